//! One mount: made, served by several event loops, and taken down.
//!
//! ```text
//! Mounted::new    remove a dead mount, mount, handshake, announce it, start the loops,
//!                 wait for the first answer
//! Mounted::wait, on_end   the file system was unmounted by any process
//! Mounted::unmount, drop
//! ```
//!
//! Unmounting is done here and not by `fuser`: its handle unmounts *whatever* is at the mountpoint
//! when it is dropped, even after another process unmounted ours and mounted another file system.

use super::adapter::Adapter;
use super::busy_poll::BusyPoll;
use super::device_defect::DeviceDefect;
use super::kernel::{CacheTimes, Kernel, Memory};
use super::mountpoint::{self, Mountpoint};
use super::mounts::{self, Device, FS_TYPE};
use super::threads::{self, Run};
use super::unmount::{self, UnmountError};
use super::unmounter::Unmounter;
use crate::base::escape::escaped;
use crate::fs::{KernelMemory, Operations};
use fuser::{Config, MountOption, Session, SessionACL};
use nix::errno::Errno;
use nix::mount::MsFlags;
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

/// Reason why a new mount is not used.
const NOT_THERE: &str = "the mountpoint was exchanged, unmounted, or mounted over meanwhile";

/// Who may use the mount.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// The user who mounted it.
    Owner,
    /// That user and root.
    OwnerAndRoot,
    /// Everyone, as far as the permission bits allow.
    Everyone,
}

/// How to mount.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionConfig {
    /// An existing directory.
    pub mountpoint: PathBuf,
    /// Name shown as the source in the mount table.
    pub source: String,
    /// Mounted read-only. If false and the file system is not writable, the adapter refuses write
    /// requests.
    pub read_only: bool,
    /// Programs on it cannot be run.
    pub noexec: bool,
    /// Who may use it.
    pub access: Access,
    /// Event loops.
    pub threads: usize,
    /// How long the kernel may cache names and attributes.
    pub times: CacheTimes,
    /// How far the kernel reads ahead, bytes.
    pub readahead: u64,
    /// Poll for requests, and keep processors out of deep sleep, while many come.
    pub stay_awake: bool,
}

/// Why a file system could not be mounted.
#[derive(Debug, thiserror::Error)]
pub enum MountError {
    /// The mountpoint cannot be used.
    #[error("the mountpoint {} cannot be used: {source}", escaped(path))]
    Mountpoint {
        /// The mountpoint.
        path: PathBuf,
        /// Its reason.
        source: io::Error,
    },
    /// The mountpoint is not a directory.
    #[error("the mountpoint {} is not a directory", escaped(path))]
    NotDirectory {
        /// The mountpoint.
        path: PathBuf,
    },
    /// An h5dir mount is there.
    #[error("{} is already mounted at {}", escaped(source_name), escaped(path))]
    AlreadyMounted {
        /// The mountpoint.
        path: PathBuf,
        /// Its source.
        source_name: String,
    },
    /// A dead mount is in the way.
    #[error("a dead mount at {} cannot be removed: {source}", escaped(path))]
    Stale {
        /// The mountpoint.
        path: PathBuf,
        /// Its reason.
        source: UnmountError,
    },
    /// /dev/fuse cannot be opened.
    #[error("/dev/fuse cannot be opened: {source}")]
    Device {
        /// What keeps it from being opened.
        defect: DeviceDefect,
        /// The error of open(2).
        source: io::Error,
    },
    /// `allow_other` is not permitted to users.
    #[error("--allow-other and --allow-root need root or the line user_allow_other in /etc/fuse.conf")]
    AllowOther,
    /// The mount or the handshake failed.
    #[error("mounting at {} failed: {reason}", escaped(path))]
    Refused {
        /// The mountpoint.
        path: PathBuf,
        /// The reason given by the kernel or fusermount3.
        reason: String,
    },
    /// Mounted, but it does not answer.
    #[error("the mount at {} does not answer: {source}", escaped(path))]
    NoAnswer {
        /// The mountpoint.
        path: PathBuf,
        /// The error of the first request.
        source: io::Error,
    },
}

/// A mounted file system; unmounted when it is dropped.
#[derive(Debug)]
pub struct Mounted {
    mountpoint: PathBuf,
    device: Device,
    kernel: Kernel,
    loops: Option<JoinHandle<io::Result<()>>>,
    ended: Arc<AtomicBool>,
    unmounter: Option<Unmounter>,
}

/// How the daemon is confined.
pub struct Confinement<'a> {
    /// Unmounts when this process may not.
    pub unmounter: Option<Unmounter>,
    /// Starts the event loops.
    pub run: Run<'a>,
}

impl Mounted {
    /// Mounts `operations` and returns once the mount answers.
    pub fn new(operations: Arc<dyn Operations>, config: &SessionConfig) -> Result<Self, MountError> {
        Self::announced(operations, config, |_| (), Confinement { unmounter: None, run: &threads::here })
    }

    /// Mounts `operations`, calls `announce` with the device number before the mount answers, and
    /// returns once it does.
    pub fn announced(
        operations: Arc<dyn Operations>,
        config: &SessionConfig,
        announce: impl FnOnce(Device),
        confinement: Confinement<'_>,
    ) -> Result<Self, MountError> {
        let mountpoint = prepare(&config.mountpoint)?;
        let fuse = File::options().read(true).write(true).open("/dev/fuse");
        let fuse = fuse.map_err(|source| MountError::Device { defect: DeviceDefect::of(&source), source })?;
        let (readahead, busy_poll) = (u32::try_from(config.readahead).unwrap_or(u32::MAX), BusyPoll::new(config.stay_awake));
        let adapter = Adapter::new(operations, config.times, readahead, config.threads, busy_poll);
        let (kernel, event_loops) = (adapter.kernel(), adapter.event_loops());
        let session = mount(adapter, fuse, &mountpoint, config)?;
        let _ = kernel.set(session.notifier());
        if let Some(event_loops) = event_loops {
            event_loops.busy_poll().set_device(session.as_fd());
        }
        let covered = mountpoint.covered().and_then(|mount| mount.ok_or_else(|| io::Error::other(NOT_THERE)));
        let answered = covered.and_then(|mount| {
            announce(mount.device);
            let loops = threads::call(confinement.run, move || start(session))?;
            first_answer(mountpoint.path(), mount.device)?;
            Ok((mount.device, loops))
        });
        match answered {
            Ok((device, loops)) => {
                set_readahead(device, config.readahead);
                let mountpoint = mountpoint.path().to_owned();
                let unmounter = confinement.unmounter;
                Ok(Mounted { mountpoint, device, kernel, loops: Some(loops), ended: Arc::default(), unmounter })
            }
            Err(source) => {
                withdraw(&mountpoint);
                Err(MountError::NoAnswer { path: mountpoint.path().to_owned(), source })
            }
        }
    }

    /// Its device number.
    pub fn device(&self) -> Device {
        self.device
    }

    /// What the process that unmounts answers; `None` without that process.
    pub fn answer(&self) -> Option<io::Result<Vec<u8>>> {
        self.unmounter.as_ref().map(Unmounter::answer)
    }

    /// The caches of the kernel.
    pub fn memory(&self) -> Arc<dyn KernelMemory> {
        Arc::new(Memory(self.kernel.clone()))
    }

    /// Where it is mounted.
    pub fn mountpoint(&self) -> &Path {
        &self.mountpoint
    }

    /// True if it is the upper mount at the mountpoint.
    pub fn is_present(&self) -> bool {
        mounts::top_at(&self.mountpoint).ok().flatten().is_some_and(|m| m.device == self.device)
    }

    /// Unmounts it, unless it was unmounted before.
    pub fn unmount(&self, lazy: bool) -> Result<(), UnmountError> {
        match &self.unmounter {
            Some(unmounter) => unmounter.unmount(self.device, lazy),
            None if self.is_present() => unmount::unmount(&self.mountpoint, lazy),
            None => Ok(()),
        }
    }

    /// Calls `f` once with the result of the session when it is unmounted by any process.
    pub fn on_end(&mut self, f: impl FnOnce(io::Result<()>) + Send + 'static) -> io::Result<()> {
        let Some(loops) = self.loops.take() else { return Ok(()) };
        let ended = Arc::clone(&self.ended);
        thread::Builder::new().name("h5dir-end".into()).spawn(move || {
            let result = join(loops);
            ended.store(true, Ordering::Release);
            f(result);
        })?;
        Ok(())
    }

    /// Waits until it is unmounted.
    pub fn wait(mut self) -> io::Result<()> {
        let result = self.loops.take().map_or(Ok(()), join);
        self.ended.store(true, Ordering::Release);
        result
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if self.ended.load(Ordering::Acquire) {
            // It was unmounted, or the connection was aborted. A new mount may have the device
            // number by now, so only a mount that does not answer is removed.
            let _ = match &self.unmounter {
                Some(unmounter) => unmounter.clean_stale(),
                None => unmount::clean_stale(&self.mountpoint).map(drop),
            };
        } else if self.unmount(false).is_err() {
            let _ = self.unmount(true);
        }
    }
}

/// Result of a thread; a panic in it is an error.
fn join(loops: JoinHandle<io::Result<()>>) -> io::Result<()> {
    match loops.join().unwrap_or_else(|_| Err(io::Error::other("an event loop panicked"))) {
        // The error of a loop that took a request while the connection ended, such as the last
        // close after a lazy unmount.
        Err(e) if e.raw_os_error() == Some(libc::ECONNABORTED) => Ok(()),
        result => result,
    }
}

/// The mountpoint, cleaned of dead mounts, checked and open.
fn prepare(path: &Path) -> Result<Mountpoint, MountError> {
    let failed = |source| MountError::Mountpoint { path: path.to_owned(), source };
    let mountpoint = mountpoint::resolve(path).map_err(failed)?;
    match unmount::clean_stale(&mountpoint) {
        Ok(cleaned) => cleaned.iter().for_each(|m| tracing::warn!("removed a dead mount of {} at {}", escaped(&m.source), escaped(path))),
        Err(source) => return Err(MountError::Stale { path: mountpoint, source }),
    }
    if let Some(mount) = mounts::top_at(&mountpoint).map_err(failed)?.filter(mounts::Mount::is_ours) {
        return Err(MountError::AlreadyMounted { path: mountpoint, source_name: mount.source.to_string_lossy().into_owned() });
    }
    Mountpoint::open(&mountpoint).map_err(|e| match e.raw_os_error() {
        Some(libc::ENOTDIR) => MountError::NotDirectory { path: mountpoint },
        _ => failed(e),
    })
}

/// Mounts on the directory that `prepare` found: by mount(2) where permitted, otherwise by its path
/// with fusermount3.
fn mount(adapter: Adapter, fuse: File, at: &Mountpoint, config: &SessionConfig) -> Result<Session<Adapter>, MountError> {
    let options = fuser_config(config);
    let session = match mount_on(at, &fuse, config) {
        Ok(()) => Session::from_fd(adapter, fuse.into(), options.acl, options).inspect_err(|_| withdraw(at)),
        Err(Errno::EPERM) => Session::new(adapter, at.path(), &options),
        Err(e) => Err(io::Error::other(e.desc())),
    };
    session.map_err(|e| refused(at.path(), &e))
}

fn mount_on(at: &Mountpoint, fuse: &File, config: &SessionConfig) -> nix::Result<()> {
    let mode = at.mode().map_err(|e| e.raw_os_error().map_or(Errno::EIO, Errno::from_raw))?;
    let (user, group) = (nix::unistd::getuid(), nix::unistd::getgid());
    let mut data = format!("fd={},rootmode={mode:o},user_id={user},group_id={group},subtype={}", fuse.as_raw_fd(), subtype());
    if default_permissions(config) {
        data.push_str(",default_permissions");
    }
    if config.access != Access::Owner {
        data.push_str(",allow_other");
    }
    let mut flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOATIME;
    flags.set(MsFlags::MS_RDONLY, config.read_only);
    flags.set(MsFlags::MS_NOEXEC, config.noexec);
    nix::mount::mount(Some(config.source.as_str()), &at.pinned(), Some("fuse"), flags, Some(data.as_str()))
}

/// Removes a mount without a daemon from the directory, wherever that is now.
fn withdraw(at: &Mountpoint) {
    let path = at.now_at().unwrap_or_else(|_| at.path().to_owned());
    if mounts::top_at(&path).ok().flatten().is_some_and(|m| m.is_ours()) {
        let _ = unmount::unmount(&path, true);
    }
}

fn subtype() -> &'static str {
    FS_TYPE.trim_start_matches("fuse.")
}

/// True if the kernel checks modes. In a mount that only root can use they restrict no access, and
/// the kernel would ask for the attributes of a directory before each name created in it.
fn default_permissions(config: &SessionConfig) -> bool {
    !nix::unistd::geteuid().is_root() || config.access != Access::Owner || config.read_only
}

fn fuser_config(config: &SessionConfig) -> Config {
    let mut options = vec![
        MountOption::FSName(escape(&config.source)),
        // As a kernel option: fuser passes `MountOption::Subtype` to fusermount3 only.
        MountOption::CUSTOM(format!("subtype={}", subtype())),
        MountOption::NoSuid,
        MountOption::NoDev,
        MountOption::NoAtime,
    ];
    if default_permissions(config) {
        options.push(MountOption::DefaultPermissions);
    }
    if config.read_only {
        options.push(MountOption::RO);
    }
    if config.noexec {
        options.push(MountOption::NoExec);
    }
    let mut fuser = Config::default();
    fuser.mount_options = options;
    fuser.acl = match config.access {
        Access::Owner => SessionACL::Owner,
        Access::OwnerAndRoot => SessionACL::RootAndOwner,
        Access::Everyone => SessionACL::All,
    };
    fuser.n_threads = Some(config.threads.max(1));
    fuser.clone_fd = true;
    fuser
}

/// fusermount3 takes the source from a list separated by commas.
fn escape(source: &str) -> String {
    source.replace('\\', "\\\\").replace(',', "\\,")
}

fn refused(mountpoint: &Path, error: &io::Error) -> MountError {
    let text = error.to_string();
    if text.contains("user_allow_other") {
        return MountError::AllowOther;
    }
    if matches!(error.raw_os_error(), Some(libc::ENOENT | libc::EACCES)) && !unmount::has_helper() {
        return MountError::Refused {
            path: mountpoint.to_owned(),
            reason: "mount(2) is permitted to root only, and the program fusermount3 is not installed; install the package fuse3".into(),
        };
    }
    // fuser puts all its arguments before the reason.
    let reason = if text.starts_with("Error calling mount()") { text.rsplit(": ").next().unwrap_or(&text) } else { text.trim() };
    let hint = match (reason.ends_with("Operation not permitted"), nix::unistd::geteuid().is_root()) {
        (true, true) => "; root needs CAP_SYS_ADMIN: start the container with --device /dev/fuse --cap-add SYS_ADMIN",
        (true, false) => "; fusermount3 needs its set-user-ID bit, which no_new_privs disables, and in a container CAP_SYS_ADMIN",
        (false, _) => "",
    };
    MountError::Refused { path: mountpoint.to_owned(), reason: format!("{reason}{hint}") }
}

/// Starts the event loops and takes the mount away from fuser (see the top of this file).
fn start(session: Session<Adapter>) -> io::Result<JoinHandle<io::Result<()>>> {
    let mut background = session.spawn()?;
    let placeholder = thread::Builder::new().name("h5dir-none".into()).spawn(|| Ok(()))?;
    let loops = std::mem::replace(&mut background.guard, placeholder);
    std::mem::forget(background);
    Ok(loops)
}

/// Asks the new mount through the kernel: attributes of the root, then totals, which are never
/// cached.
fn first_answer(mountpoint: &Path, device: Device) -> io::Result<()> {
    let root = fs::metadata(mountpoint)?;
    nix::sys::statvfs::statvfs(mountpoint)?;
    let top = mounts::top_at(mountpoint)?;
    if Device::from_raw(root.dev()) != device || top.is_none_or(|m| !m.is_ours() || m.device != device) {
        return Err(io::Error::other(NOT_THERE));
    }
    Ok(())
}

/// INIT cannot raise readahead above the kernel's default of 128 KiB; root can, afterwards.
fn set_readahead(device: Device, bytes: u64) {
    let path = format!("/sys/class/bdi/{device}/read_ahead_kb");
    match fs::write(&path, format!("{}\n", bytes / 1024)) {
        Ok(()) => tracing::debug!("{path} is {} KiB", bytes / 1024),
        Err(e) => tracing::debug!("{path} stays as it is: {e}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mountpoint_must_be_a_directory_that_exists() {
        let dir = tempfile::tempdir().unwrap();
        assert!(matches!(prepare(&dir.path().join("absent")), Err(MountError::Mountpoint { .. })));
        fs::write(dir.path().join("file"), "").unwrap();
        assert!(matches!(prepare(&dir.path().join("file")), Err(MountError::NotDirectory { .. })));
        assert_eq!(prepare(dir.path()).unwrap().path(), dir.path().canonicalize().unwrap());
    }

    #[test]
    fn a_request_taken_while_the_connection_ended_is_no_failure() {
        let ended = |errno: i32| join(thread::spawn(move || Err(io::Error::from_raw_os_error(errno))));
        assert!(ended(libc::ECONNABORTED).is_ok() && ended(libc::EIO).is_err());
        assert!(join(thread::spawn(|| Ok(()))).is_ok());
    }

    #[test]
    fn reasons_are_short() {
        let long = io::Error::other("Error calling mount() at \"/m\" with \"fd=3\" and flags=X: EINVAL: Invalid argument");
        assert_eq!(refused(Path::new("/m"), &long).to_string(), "mounting at /m failed: Invalid argument");
        let other = io::Error::other("fusermount3: option allow_other only allowed if 'user_allow_other' is set in /etc/fuse.conf");
        assert!(matches!(refused(Path::new("/m"), &other), MountError::AllowOther));
        assert_eq!(escape("a,b\\c"), "a\\,b\\\\c");
    }
}
