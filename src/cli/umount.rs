//! `h5dir umount`: returns when the mount is out of the mount table and its daemon has ended.

use super::failure::{Exit, Failure, errno_text, reason};
use crate::base::escape::escaped;
use crate::config::args::UmountArgs;
use crate::fuse::daemon_liveness::{self, EndFailure};
use crate::fuse::mounts::{self, Mount};
use crate::fuse::{UnmountError, mountpoint, unmount};
use std::path::Path;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

/// How long the daemon may take to end after its mount is gone.
const DAEMON_LIMIT: Duration = Duration::from_secs(30);
/// How long a mount that is starting may take to answer.
const ANSWER_LIMIT: Duration = Duration::from_secs(10);
/// How long a mount may stay in the table after it was unmounted.
const TABLE_LIMIT: Duration = Duration::from_secs(10);

/// `h5dir umount`.
pub fn umount(args: &UmountArgs) -> Result<(), Failure> {
    let failed = |e: &UnmountError| Failure::unmount(&args.mountpoint, e);
    let path = mountpoint::resolve(&args.mountpoint).map_err(|e| failed(&UnmountError::System(e)))?;
    let mount = at(&path).map_err(|e| failed(&e))?.ok_or_else(|| failed(&UnmountError::NotMounted))?;
    if !mount.is_ours() {
        let (kind, source) = (escaped(&mount.fs_type), escaped(&mount.source));
        let message = format!("cannot unmount {0}: it is a {kind} mount of {source}, not one of h5dir; use 'umount {0}'", escaped(&path));
        return Err(Failure::new(Exit::Mount, message));
    }
    // Nothing leads from an unmounted file system to its daemon.
    let mut daemons = daemon_liveness::find(&mount);
    let alive = daemons.is_empty() && !is_dead(&path);
    if alive {
        // A daemon that has just mounted is announced before it answers.
        daemons = daemon_liveness::find(&mount);
    }
    let unseen = (alive && daemons.is_empty()) || daemons.is_incomplete();
    unmount::unmount(&path, args.lazy).map_err(|e| failed(&e))?;
    wait_gone(&path, &mount)?;
    // A detached file system lives on until its files are closed.
    if args.lazy {
        return Ok(());
    }
    if unseen {
        super::say(&format!("unmounted {}; its daemon cannot be seen from here, and may still write its last changes", escaped(&path)));
    }
    match daemons.wait(DAEMON_LIMIT).as_deref() {
        Some([]) => Ok(()),
        Some([failure, ..]) => Err(Failure::new(Exit::General, sentence(&path, &mount, *failure))),
        None => {
            let message = format!("unmounted {}, but its daemon still runs after {} s", escaped(&path), DAEMON_LIMIT.as_secs());
            Err(Failure::new(Exit::Mount, message))
        }
    }
}

fn sentence(path: &Path, mount: &Mount, failure: EndFailure) -> String {
    let (path, source) = (escaped(path), escaped(&mount.source));
    match failure {
        EndFailure::Changes(errno) => {
            let reason = errno_text(errno);
            format!("unmounted {path}, but the last changes of {source} could not be written: {reason}; see the log of its daemon")
        }
        EndFailure::Panic => format!("unmounted {path}, but closing {source} failed; see the log of its daemon"),
    }
}

/// Whether no daemon is behind the mount at `path`. One that does not answer within [`ANSWER_LIMIT`] is alive.
fn is_dead(path: &Path) -> bool {
    let (sender, answer) = mpsc::channel();
    let path = path.to_owned();
    // The daemon of another user may never answer: then the thread is left to the end of this process.
    let asked = thread::Builder::new().spawn(move || sender.send(unmount::is_dead(&path)));
    asked.is_ok() && answer.recv_timeout(ANSWER_LIMIT).unwrap_or(false)
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
            return Err(Failure::new(Exit::Mount, format!("unmounted {}, but it is still listed: {}", escaped(path), reason(&e))));
        }
        thread::sleep(Duration::from_millis(5));
    }
}
