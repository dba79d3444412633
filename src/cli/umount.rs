//! `h5dir umount`: returns when the mount is out of the mount table and its daemon has ended.

use super::failure::{Exit, Failure, reason};
use crate::config::args::UmountArgs;
use crate::fuse::mounts::{self, Mount};
use crate::fuse::presence::Daemon;
use crate::fuse::{UnmountError, mountpoint, unmount};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

/// How long the daemon may take to end after its mount is gone.
const DAEMON_LIMIT: Duration = Duration::from_secs(30);
/// How long a mount may stay in the table after it was unmounted.
const TABLE_LIMIT: Duration = Duration::from_secs(10);

/// `h5dir umount`.
pub fn umount(args: &UmountArgs) -> Result<(), Failure> {
    let failed = |e: &UnmountError| Failure::unmount(&args.mountpoint, e);
    let path = mountpoint::resolve(&args.mountpoint).map_err(|e| failed(&UnmountError::System(e)))?;
    let mount = at(&path).map_err(|e| failed(&e))?.ok_or_else(|| failed(&UnmountError::NotMounted))?;
    if !mount.is_ours() {
        let (kind, source) = (mount.fs_type.display(), mount.source.display());
        let message = format!("cannot unmount {0}: it is a {kind} mount of {source}, not one of h5dir; use 'umount {0}'", path.display());
        return Err(Failure::new(Exit::Mount, message));
    }
    // Seen before, as nothing leads to it afterwards.
    let mut daemons = Daemon::of(mount.device);
    let answers = daemons.is_empty() && !unmount::is_dead(&path);
    if answers {
        // One that has just mounted is announced when it answers.
        daemons = Daemon::of(mount.device);
    }
    let unseen = answers && daemons.is_empty();
    unmount::unmount(&path, args.lazy).map_err(|e| failed(&e))?;
    wait_gone(&path, &mount)?;
    // A detached file system lives on until its files are closed.
    if args.lazy {
        return Ok(());
    }
    if unseen {
        eprintln!("h5dir: unmounted {}; its daemon cannot be seen from here, and may still write its last changes", path.display());
    }
    match Daemon::wait_for(&daemons, DAEMON_LIMIT).as_deref() {
        Some("") => Ok(()),
        Some(sentence) => Err(Failure::new(Exit::General, format!("unmounted {}, but {sentence}", path.display()))),
        None => {
            let message = format!("unmounted {}, but its daemon still runs after {} s", path.display(), DAEMON_LIMIT.as_secs());
            Err(Failure::new(Exit::Mount, message))
        }
    }
}

fn at(path: &Path) -> Result<Option<Mount>, UnmountError> {
    mounts::top_at(path).map_err(UnmountError::System)
}

fn wait_gone(path: &Path, mount: &Mount) -> Result<(), Failure> {
    let end = Instant::now() + TABLE_LIMIT;
    loop {
        let now = at(path).map_err(|e| Failure::unmount(path, &e))?;
        if now.is_none_or(|m| (m.id, m.device) != (mount.id, mount.device)) {
            return Ok(());
        }
        if Instant::now() > end {
            let e = std::io::Error::from_raw_os_error(libc::ETIMEDOUT);
            return Err(Failure::new(Exit::Mount, format!("unmounted {}, but it is still listed: {}", path.display(), reason(&e))));
        }
        thread::sleep(Duration::from_millis(5));
    }
}
