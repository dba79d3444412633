//! Guards for mounts and daemons, and a file system with hooks.

use h5dir::fs::memory::MemoryFs;
use h5dir::fs::types::ROOT;
use h5dir::fs::{
    Attr, DirEntry, DirEntryPlus, Entry, Errno, FsResult, Handle, Ino, Invalidate, OpenMode, Opened, Operations, Statfs, Whence,
};
use h5dir::fuse::{Access, CacheTimes, Mounted, SessionConfig, daemon_liveness, mounts};
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

#[path = "../support/mod.rs"]
mod shared;
pub use shared::{Place, eventually, h5dir, is_mounted, run};

/// A mount served by this process.
pub struct InProcess {
    // Dropped in this order: unmount, then remove the directory.
    pub mounted: Option<Mounted>,
    pub place: Place,
}

pub fn config(mountpoint: PathBuf) -> SessionConfig {
    let long = Duration::from_secs(86_400);
    SessionConfig {
        mountpoint,
        source: "memory".into(),
        read_only: true,
        noexec: false,
        access: Access::Owner,
        threads: 3,
        times: CacheTimes { entry: long, absent: long, attr: long },
        readahead: 1 << 20,
        stay_awake: false,
    }
}

impl InProcess {
    pub fn new(operations: impl Operations) -> Self {
        Self::with(operations, |_| {})
    }

    pub fn with(operations: impl Operations, change: impl FnOnce(&mut SessionConfig)) -> Self {
        let place = Place::new();
        let mut config = config(place.mnt());
        change(&mut config);
        let mounted = Mounted::new(Arc::new(operations), &config).expect("the mount tests need /dev/fuse and root");
        InProcess { mounted: Some(mounted), place }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.place.mnt().join(name)
    }
}

/// The binary, in the foreground; killed and unmounted when dropped.
pub struct Foreground {
    pub child: Child,
    pub place: Place,
}

impl Foreground {
    pub fn new(options: &[&str]) -> Self {
        Self::with(Place::new(), options, |_| {})
    }

    pub fn with(place: Place, options: &[&str], change: impl FnOnce(&mut Command)) -> Self {
        let mut command = h5dir(&["bench-memory-fs", "-f", "--size=1M"]);
        command.args(options).arg(place.mnt()).stderr(Stdio::null());
        change(&mut command);
        let child = command.spawn().unwrap();
        let this = Foreground { child, place };
        eventually("the mount answers", || this.place.mnt().join("data").exists());
        let mount = mounts::top_at(&this.place.mnt()).unwrap().unwrap();
        eventually("the daemon can be waited for", || !daemon_liveness::find(&mount).is_empty());
        // It asks its own mount once: stopped or killed before that is answered, it would keep the mount busy, or never end.
        eventually("the mount has answered its daemon", || this.has_thread("h5dir-end"));
        this
    }

    fn has_thread(&self, name: &str) -> bool {
        let threads = std::fs::read_dir(format!("/proc/{}/task", self.child.id())).unwrap();
        threads.flatten().any(|t| std::fs::read_to_string(t.path().join("comm")).is_ok_and(|comm| comm.trim() == name))
    }

    pub fn signal(&self, signal: i32) {
        let pid = nix::unistd::Pid::from_raw(self.child.id() as i32);
        nix::sys::signal::kill(pid, nix::sys::signal::Signal::try_from(signal).unwrap()).unwrap();
    }

    /// Exit code, once it has ended.
    pub fn wait(&mut self) -> Option<i32> {
        eventually("the daemon ends", || self.child.try_wait().unwrap().is_some());
        self.child.try_wait().unwrap().and_then(|status| status.code())
    }
}

impl Drop for Foreground {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A memory file system that counts and misbehaves.
pub struct Hooked {
    pub inner: MemoryFs,
    /// Panics in the operation of this name on any inode but the root.
    pub panic_in: Option<&'static str>,
    /// Fails listings of the root after so many entries.
    pub break_listing_after: Option<usize>,
    pub calls: Arc<Calls>,
}

#[derive(Default)]
pub struct Calls {
    pub getxattr: AtomicU64,
    pub lookup: AtomicU64,
    pub looked_up: AtomicU64,
    pub opendir: AtomicU64,
}

impl Hooked {
    pub fn new(inner: MemoryFs) -> Self {
        Hooked { inner, panic_in: None, break_listing_after: None, calls: Arc::default() }
    }

    fn hook(&self, operation: &'static str, ino: Ino) {
        assert!(ino == ROOT || self.panic_in != Some(operation), "asked to panic in {operation}");
    }
}

impl Operations for Hooked {
    fn lookup(&self, parent: Ino, name: &[u8]) -> FsResult<Entry> {
        self.calls.lookup.fetch_add(1, Ordering::Relaxed);
        self.inner.lookup(parent, name)
    }

    fn forget(&self, ino: Ino, count: u64) {
        self.inner.forget(ino, count)
    }

    fn getattr(&self, ino: Ino) -> FsResult<Attr> {
        self.inner.getattr(ino)
    }

    fn readlink(&self, ino: Ino) -> FsResult<Vec<u8>> {
        self.hook("readlink", ino);
        self.inner.readlink(ino)
    }

    fn open(&self, ino: Ino, mode: OpenMode) -> FsResult<Opened> {
        self.hook("open", ino);
        self.inner.open(ino, mode)
    }

    fn read(&self, ino: Ino, handle: Handle, offset: u64, buf: &mut [u8]) -> FsResult<usize> {
        self.hook("read", ino);
        self.inner.read(ino, handle, offset, buf)
    }

    fn release(&self, ino: Ino, handle: Handle) -> Invalidate {
        self.hook("release", ino);
        self.inner.release(ino, handle)
    }

    fn opendir(&self, ino: Ino) -> FsResult<Handle> {
        self.calls.opendir.fetch_add(1, Ordering::Relaxed);
        self.inner.opendir(ino)
    }

    fn readdir(&self, ino: Ino, handle: Handle, offset: u64, f: &mut dyn FnMut(DirEntry<'_>) -> ControlFlow<()>) -> FsResult<()> {
        self.hook("readdir", ino);
        let mut broken = false;
        self.inner.readdir(ino, handle, offset, &mut |e| {
            broken = self.break_listing_after.is_some_and(|n| e.next > n as u64);
            if broken { ControlFlow::Break(()) } else { f(e) }
        })?;
        if broken { Err(Errno(libc::EIO)) } else { Ok(()) }
    }

    fn readdirplus(&self, ino: Ino, handle: Handle, offset: u64, f: &mut dyn FnMut(DirEntryPlus<'_>) -> ControlFlow<()>) -> FsResult<()> {
        self.hook("readdir", ino);
        let mut broken = false;
        self.inner.readdirplus(ino, handle, offset, &mut |e| {
            broken = self.break_listing_after.is_some_and(|n| e.next > n as u64);
            if broken {
                return ControlFlow::Break(());
            }
            let flow = f(e);
            if flow.is_continue() {
                self.calls.looked_up.fetch_add(1, Ordering::Relaxed);
            }
            flow
        })?;
        if broken { Err(Errno(libc::EIO)) } else { Ok(()) }
    }

    fn releasedir(&self, ino: Ino, handle: Handle) {
        self.inner.releasedir(ino, handle)
    }

    fn getxattr(&self, ino: Ino, name: &[u8]) -> FsResult<Vec<u8>> {
        self.calls.getxattr.fetch_add(1, Ordering::Relaxed);
        self.hook("getxattr", ino);
        self.inner.getxattr(ino, name)
    }

    fn listxattr(&self, ino: Ino) -> FsResult<Vec<u8>> {
        self.inner.listxattr(ino)
    }

    fn lseek(&self, ino: Ino, handle: Handle, offset: u64, whence: Whence) -> FsResult<u64> {
        self.inner.lseek(ino, handle, offset, whence)
    }

    fn statfs(&self) -> FsResult<Statfs> {
        self.inner.statfs()
    }
}
