//! `h5dir umount`: unmounts, and waits for the mount table and for the end of the daemon.

use super::failure::{Exit, Failure, errno_text, reason};
use crate::base::escape::escaped;
use crate::config::args::UmountArgs;
use crate::config::catalog::Catalog;
use crate::fuse::daemon_liveness::{self, EndFailure, Running};
use crate::fuse::mounts::{self, Mount};
use crate::fuse::{UnmountError, mountpoint, unmount};
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

/// Longest wait for the end of the daemon after its mount is gone.
const DAEMON_END_TIMEOUT: Duration = Duration::from_secs(30);
/// Longest wait for the end of the daemon while another mount namespace has the mount.
const OTHER_NAMESPACE_TIMEOUT: Duration = Duration::from_secs(5);
/// Longest wait for an answer of a mount that is starting.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// Longest wait while the mount is in use: `df`, `h5dir status` and the like hold each mount for a
/// moment.
const BUSY_TIMEOUT: Duration = Duration::from_secs(1);
/// Pause before a mount that is in use is unmounted again.
const BUSY_PAUSE: Duration = Duration::from_millis(20);
/// Longest wait for the mount table to lose an unmounted mount.
const MOUNT_TABLE_TIMEOUT: Duration = Duration::from_secs(10);

/// Runs `h5dir umount`.
pub(crate) fn umount(args: &UmountArgs) -> Result<(), Failure> {
    let given = mountpoint_of(args)?;
    let failed = |e: &UnmountError| Failure::unmount(&given, e);
    let path = mountpoint::resolve(&given).map_err(|e| failed(&UnmountError::System(e)))?;
    let mount = mount_at(&path).map_err(|e| failed(&e))?.ok_or_else(|| failed(&UnmountError::NotMounted))?;
    if !mount.is_ours() {
        let (kind, source) = (escaped(&mount.fs_type), escaped(&mount.source));
        let message = format!("cannot unmount {0}: it is a {kind} mount of {source}, not one of h5dir; use 'umount {0}'", escaped(&path));
        return Err(Failure::new(Exit::Mount, message));
    }
    // Must precede unmounting: an unmounted file system does not lead to its daemon.
    let mut daemon = daemon_liveness::find(&mount);
    // A request to a mount that does not answer would keep it busy.
    let alive = daemon.is_empty() && !is_dead(&path);
    if alive {
        // A daemon that has just mounted creates its socket before it answers.
        daemon = daemon_liveness::find(&mount);
    }
    let cannot_wait = (alive && daemon.is_empty()) || daemon.is_incomplete();
    detach(&path, args.lazy).map_err(|e| failed(&e))?;
    wait_gone(&path, &mount)?;
    // The daemon of a detached mount ends when its files are closed.
    if args.lazy {
        return Ok(());
    }
    wait_ended(&path, &mount, &daemon, cannot_wait)
}

/// Removes the mount at `path`; one that is in use is tried for [`BUSY_TIMEOUT`].
fn detach(path: &Path, lazy: bool) -> Result<(), UnmountError> {
    let end = Instant::now() + BUSY_TIMEOUT;
    loop {
        match unmount::unmount(path, lazy) {
            Err(UnmountError::Busy) if Instant::now() < end => thread::sleep(BUSY_PAUSE),
            done => return done,
        }
    }
}

/// Waits for the end of the daemon of `mount`, which was at `path`.
fn wait_ended(path: &Path, mount: &Mount, daemon: &Running, cannot_wait: bool) -> Result<(), Failure> {
    let elsewhere = mounts::elsewhere(mount.device);
    let limit = if elsewhere.is_some() { OTHER_NAMESPACE_TIMEOUT } else { DAEMON_END_TIMEOUT };
    match daemon.wait(limit) {
        Some(Some(failure)) => Err(Failure::new(Exit::General, end_failure_message(path, mount, failure))),
        // There is nothing to be written.
        Some(None) if !cannot_wait || mount.read_only => Ok(()),
        Some(None) => {
            let message = format!(
                "unmounted {}, but cannot find its daemon, which may still write its last changes; wait until it has ended",
                escaped(path)
            );
            Err(Failure::new(Exit::Mount, message))
        }
        None => {
            let why = mounts::elsewhere(mount.device).map_or_else(String::new, |(pid, name)| {
                let name = escaped(&name);
                format!(
                    ": process {pid} ({name}) has the mount in another mount namespace; end it, or unmount there with \
                     'nsenter -t {pid} -m umount {}'",
                    escaped(path)
                )
            });
            let message = format!("unmounted {}, but its daemon still runs after {} s{why}", escaped(path), limit.as_secs());
            Err(Failure::new(Exit::Mount, message))
        }
    }
}

/// The mountpoint of the command line, or that of a mount of the configuration.
fn mountpoint_of(args: &UmountArgs) -> Result<PathBuf, Failure> {
    match (&args.mountpoint, &args.name) {
        (Some(path), _) => Ok(path.clone()),
        (None, Some(name)) => {
            let catalog = Catalog::read(args.config.as_deref())?;
            let (file, mount) = catalog.find(name)?;
            file.usable_mount(mount)?;
            Ok(mount.mountpoint.clone())
        }
        (None, None) => Err(Failure::new(Exit::Usage, "nothing to unmount; give MOUNTPOINT, or --name and a name of the configuration")),
    }
}

fn end_failure_message(path: &Path, mount: &Mount, failure: EndFailure) -> String {
    let (path, source) = (escaped(path), escaped(&mount.source));
    match failure {
        EndFailure::Changes(errno) => {
            let reason = errno_text(errno);
            format!("unmounted {path}, but the last changes of {source} could not be written: {reason}; see the log of its daemon")
        }
        EndFailure::Panic => format!("unmounted {path}, but closing {source} failed; see the log of its daemon"),
        EndFailure::Unfinished => format!(
            "unmounted {path}, but the last changes of {source} could not be written: its part of the transaction was not \
             finished, and is dropped; 'echo finish > {path}/.h5dir/tx/NAME/control' before unmounting publishes it"
        ),
    }
}

/// Checks whether the mount at `path` has no daemon. Without an answer within [`ANSWER_TIMEOUT`] it
/// counts as alive.
pub(super) fn is_dead(path: &Path) -> bool {
    is_dead_within(path, ANSWER_TIMEOUT)
}

/// [`is_dead`] with a limit for the answer.
pub(super) fn is_dead_within(path: &Path, limit: Duration) -> bool {
    let (sender, answer) = mpsc::channel();
    let path = path.to_owned();
    // The daemon of another user may never answer: the thread then ends with this process.
    let started = thread::Builder::new().spawn(move || sender.send(unmount::is_dead(&path)));
    started.is_ok() && answer.recv_timeout(limit).unwrap_or(false)
}

fn mount_at(path: &Path) -> Result<Option<Mount>, UnmountError> {
    mounts::top_at(path).map_err(UnmountError::System)
}

fn wait_gone(path: &Path, mount: &Mount) -> Result<(), Failure> {
    let end = Instant::now() + MOUNT_TABLE_TIMEOUT;
    loop {
        let now = mount_at(path).map_err(|e| Failure::unmount(path, &e))?;
        if now.is_none_or(|m| (m.id, m.device) != (mount.id, mount.device)) {
            return Ok(());
        }
        if Instant::now() > end {
            let e = std::io::Error::from_raw_os_error(libc::ETIMEDOUT);
            return Err(Failure::new(
                Exit::Mount,
                format!("unmounted {}, but the mount table still lists it: {}", escaped(path), reason(&e)),
            ));
        }
        thread::sleep(Duration::from_millis(5));
    }
}
