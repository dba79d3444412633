//! The containers of a mirror: opened at first use, closed when they were idle for some time, or to
//! open others.
//!
//! A container of a writable mirror is opened for reading. The first change opens it again, for
//! writing, and takes its lock; once it is idle it is closed and unlocked. Each opening has a
//! number, its generation: inode numbers and handles of an earlier one are outdated, and are looked
//! up by name (`inside`).

use super::files::Folder;
use super::signatures::Signatures;
use super::spec::MirrorSpec;
use crate::base::waiting;
use crate::fs::open::{self, Entry, Identity, OpenError, Shared};
use crate::fs::spec::Modes;
use crate::fs::types::{CloseError, Errno, FsResult, ROOT};
use crate::fs::{ExternalPolicy, MountSpec, Operations};
use foldhash::{HashMap, HashMapExt};
use parking_lot::{Condvar, Mutex};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Part of the open containers that is closed at once to open another one: 1 / this.
const CLOSED_PART: usize = 16;

/// Longest wait for a request in another container that is to be closed.
const SLOT_WAIT: Duration = Duration::from_secs(10);
/// Time after which a wait for a slot looks for containers that can be closed.
const SLOT_RETRY: Duration = Duration::from_millis(20);

/// How long closing a container waits for what is open in it: the kernel reports a close(2) after
/// it has returned.
const RELEASE_WAIT: Duration = Duration::from_secs(1);
/// Time after which such a wait tries again.
const RELEASE_RETRY: Duration = Duration::from_millis(2);

/// A container that is open.
pub struct Open {
    /// Its file system.
    pub operations: Arc<dyn Operations>,
    /// Number of this opening.
    pub generation: u64,
    /// Opened for writing.
    pub writable: bool,
    /// Requests that use it.
    requests: AtomicUsize,
    /// Files and directories of it that are open.
    pub handles: AtomicUsize,
}

/// A container of the mirror, open or not.
pub struct Container {
    /// Number in the mirror.
    pub number: u64,
    /// Its file.
    pub identity: Identity,
    open: Mutex<Option<Arc<Open>>>,
    /// Milliseconds since the mirror began.
    used: AtomicU64,
}

impl std::fmt::Debug for Container {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Container").field("number", &self.number).finish_non_exhaustive()
    }
}

/// Where the file of a container is.
pub struct Located {
    /// Its directory.
    pub directory: Box<dyn Folder>,
    /// Its properties.
    pub entry: Entry,
    /// Its path, for messages.
    pub path: PathBuf,
}

/// A container in use by a request: it is not closed meanwhile.
pub struct InUse<'a> {
    containers: &'a Containers,
    container: Arc<Container>,
    /// The open container.
    pub open: Arc<Open>,
    /// The use keeps it from being idle.
    counts: bool,
}

impl InUse<'_> {
    /// The container.
    pub fn container(&self) -> &Container {
        &self.container
    }
}

impl Drop for InUse<'_> {
    fn drop(&mut self) {
        if self.counts {
            self.container.used.store(self.containers.now(), Ordering::Relaxed);
        }
        self.open.requests.fetch_sub(1, Ordering::AcqRel);
        self.containers.freed.notify_one();
    }
}

/// What came of closing a container.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Closing {
    Closed,
    WasClosed,
    /// A request uses it.
    InRequest,
    /// Something in it is open.
    InUse,
    /// Its changes could not be made durable.
    Failed,
}

/// The right to have one more container open, unless it is kept.
struct Slot<'a>(&'a Containers);

impl Slot<'_> {
    /// The container is open: closing it frees the slot.
    fn keep(self) {
        std::mem::forget(self);
    }
}

impl Drop for Slot<'_> {
    fn drop(&mut self) {
        self.0.free_slot();
    }
}

/// See the module's description.
pub struct Containers {
    spec: MirrorSpec,
    /// Path of the root when the mirror began, for links between its files.
    root: PathBuf,
    shared: Shared,
    /// What files are.
    pub signatures: Signatures,
    known: Mutex<HashMap<Identity, Arc<Container>>>,
    /// Those that are open, by number.
    open: Mutex<HashMap<u64, Arc<Container>>>,
    /// Containers that are open or being opened.
    slots: Mutex<usize>,
    /// Notified when a slot is free, or a container is not in use.
    freed: Condvar,
    numbers: AtomicU64,
    generations: AtomicU64,
    began: Instant,
    ended: AtomicBool,
}

impl Containers {
    /// No container is open yet.
    pub fn new(spec: MirrorSpec, root: PathBuf, shared: Shared) -> Containers {
        Containers {
            spec,
            root,
            shared,
            signatures: Signatures::default(),
            known: Mutex::new(HashMap::new()),
            open: Mutex::new(HashMap::new()),
            slots: Mutex::new(0),
            freed: Condvar::new(),
            numbers: AtomicU64::new(0),
            generations: AtomicU64::new(0),
            began: Instant::now(),
            ended: AtomicBool::new(false),
        }
    }

    fn now(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// The container of the file `identity`.
    pub fn of(&self, identity: Identity) -> Arc<Container> {
        let new = || {
            let number = self.numbers.fetch_add(1, Ordering::Relaxed);
            Arc::new(Container { number, identity, open: Mutex::new(None), used: AtomicU64::new(0) })
        };
        self.known.lock().entry(identity).or_insert_with(new).clone()
    }

    /// Forgets a container of which the kernel knows no file, unless it is open.
    pub fn forget(&self, container: &Arc<Container>) {
        let mut known = self.known.lock();
        // One is in the map, one is the caller's. A container that is being opened is locked.
        if Arc::strong_count(container) <= 2 && container.open.try_lock().is_some_and(|open| open.is_none()) {
            known.remove(&container.identity);
        }
    }

    /// Changes the memory for decoded chunks of all containers.
    pub fn set_cache_bytes(&self, bytes: u64) {
        self.shared.set_cache_bytes(bytes);
    }

    /// Counters of all containers.
    pub fn counters(&self) -> Vec<(&'static str, u64)> {
        let mut all = self.shared.counters();
        all.push(("open_containers", self.open.lock().len() as u64));
        all
    }

    /// Those that are open.
    pub fn all_open(&self) -> Vec<Arc<Container>> {
        self.open.lock().values().cloned().collect()
    }

    /// The container, if it is open in `generation`. Such a use does not keep it from being idle.
    pub fn if_open(&self, container: &Arc<Container>, generation: Option<u64>) -> Option<InUse<'_>> {
        let state = container.open.lock();
        let open = state.as_ref().filter(|open| generation.is_none_or(|g| g == open.generation))?.clone();
        open.requests.fetch_add(1, Ordering::AcqRel);
        Some(InUse { containers: self, container: container.clone(), open, counts: false })
    }

    /// The container, opened if it is not open, or not for `writing`. `locate` finds its file;
    /// `moved` opens again what is open in an earlier opening, before anything is changed.
    pub fn enter(
        &self,
        container: &Arc<Container>,
        writing: bool,
        locate: impl FnOnce() -> FsResult<Located>,
        moved: impl FnOnce(&Open),
    ) -> FsResult<InUse<'_>> {
        let mut state = waiting::take(|| container.open.try_lock(), || container.open.lock());
        if let Some(open) = state.as_ref().filter(|open| open.writable || !writing) {
            open.requests.fetch_add(1, Ordering::AcqRel);
            return Ok(InUse { containers: self, container: container.clone(), open: open.clone(), counts: true });
        }
        if self.ended.load(Ordering::Acquire) {
            return Err(Errno(libc::ESHUTDOWN));
        }
        waiting::may_wait();
        let located = locate()?;
        let slot = state.is_none().then(|| self.reserve(container)).transpose()?;
        let opened = self.opened(container, writing, &located)?;
        opened.requests.fetch_add(1, Ordering::AcqRel);
        // Requests that still use an earlier opening hold it.
        let replaced = state.replace(opened.clone());
        if writing || replaced.is_some() {
            moved(&opened);
        }
        drop(replaced);
        self.open.lock().insert(container.number, container.clone());
        slot.into_iter().for_each(Slot::keep);
        container.used.store(self.now(), Ordering::Relaxed);
        Ok(InUse { containers: self, container: container.clone(), open: opened, counts: true })
    }

    fn opened(&self, container: &Container, writable: bool, located: &Located) -> FsResult<Arc<Open>> {
        let Located { directory, entry, path } = located;
        let (name, spec) = (path.file_name().unwrap_or_default(), self.mount_spec(path, entry, writable));
        let opened = directory.container(name, container.identity, &spec, &self.shared);
        let operations = opened.map_err(|e| self.failed(entry, writable, &e))?;
        let generation = self.generations.fetch_add(1, Ordering::Relaxed).saturating_add(1);
        let (requests, handles) = Default::default();
        Ok(Arc::new(Open { operations, generation, writable, requests, handles }))
    }

    /// How the container at `path` is shown.
    fn mount_spec(&self, path: &std::path::Path, entry: &Entry, writable: bool) -> MountSpec {
        let template = &self.spec.container;
        let mode = (entry.mode & 0o666) as u16 & !template.umask;
        let external = external_of(template, &self.root);
        // A container of a mirror that is written is opened for writing when it is changed.
        let modes = if template.writable && template.modes == Modes::Stored { Modes::All } else { template.modes };
        MountSpec {
            file: path.to_owned(),
            external,
            modes,
            uid: self.spec.uid.unwrap_or(entry.uid),
            gid: self.spec.gid.unwrap_or(entry.gid),
            file_mode: self.spec.file_mode.unwrap_or(mode),
            dir_mode: self.spec.dir_mode.unwrap_or(with_search(mode)),
            writable,
            follow: template.follow || template.writable,
            ..template.clone()
        }
    }

    fn failed(&self, entry: &Entry, writable: bool, e: &OpenError) -> Errno {
        let damaged = matches!(e, OpenError::Engine { source, .. } if source.is_about_content()) || matches!(e, OpenError::NotHdf5 { .. });
        if damaged && !writable {
            tracing::error!("{e}");
            self.signatures.mark_unreadable(entry.status.identity, entry.status.stamp());
            return Errno(libc::EIO);
        }
        tracing::warn!("{e}");
        match e {
            OpenError::Open { source, .. } => Errno(source.raw_os_error().unwrap_or(libc::EIO)),
            OpenError::Remote { .. } => Errno(libc::EIO),
            OpenError::Engine { source, .. } => match open::errno(source) {
                Errno(libc::EWOULDBLOCK) => Errno(libc::EBUSY),
                errno => errno,
            },
            _ => Errno(libc::EIO),
        }
    }

    /// Reserves a slot for a container that is opened next; closes others for that. Waits for
    /// requests in those, and a moment for what is open in them. Errors: `ENFILE` if all are in use
    /// for longer.
    fn reserve(&self, but: &Container) -> FsResult<Slot<'_>> {
        let began = Instant::now();
        loop {
            {
                let mut slots = self.slots.lock();
                if *slots < self.spec.open_max {
                    *slots = slots.saturating_add(1);
                    return Ok(Slot(self));
                }
            }
            let mut all = self.all_open();
            all.sort_by_key(|c| c.used.load(Ordering::Relaxed));
            let wanted = (self.spec.open_max / CLOSED_PART).max(1);
            // Containers that are being opened are not in the list.
            let (mut closed, mut is_brief) = (0usize, all.len() < self.spec.open_max);
            for container in all.iter().filter(|c| c.number != but.number) {
                match self.close(container, true) {
                    Closing::Closed => closed = closed.saturating_add(1),
                    Closing::InRequest => is_brief = true,
                    Closing::WasClosed | Closing::InUse | Closing::Failed => {}
                }
                if closed >= wanted {
                    break;
                }
            }
            if closed > 0 {
                continue;
            }
            if began.elapsed() >= if is_brief { SLOT_WAIT } else { RELEASE_WAIT } {
                tracing::warn!("all of the {} containers that may be open are in use: --max-open allows more", self.spec.open_max);
                return Err(Errno(libc::ENFILE));
            }
            let mut slots = self.slots.lock();
            if *slots >= self.spec.open_max {
                self.freed.wait_for(&mut slots, SLOT_RETRY);
            }
        }
    }

    fn free_slot(&self) {
        let mut slots = self.slots.lock();
        *slots = slots.saturating_sub(1);
        drop(slots);
        self.freed.notify_one();
    }

    /// Closes the container unless it is in use. `soon`: also if files of it are open for reading,
    /// which are opened again when they are used.
    fn close(&self, container: &Container, soon: bool) -> Closing {
        // One that is being opened is in a request.
        let Some(mut state) = container.open.try_lock() else { return Closing::InRequest };
        let Some(open) = state.as_ref() else { return Closing::WasClosed };
        if open.requests.load(Ordering::Acquire) > 0 {
            return Closing::InRequest;
        }
        if open.handles.load(Ordering::Acquire) > 0 && (open.writable || !soon) {
            return Closing::InUse;
        }
        // Changes that cannot be made durable now stay: a later fsync(2) reports that.
        if open.writable && open.operations.fsync(ROOT).result.is_err() {
            container.used.store(self.now(), Ordering::Relaxed);
            return Closing::Failed;
        }
        if let Err(e) = open.operations.shutdown() {
            tracing::error!("{}", e.message);
        }
        *state = None;
        // Locked still: a request that opens it again enters it afterwards.
        self.open.lock().remove(&container.number);
        self.free_slot();
        Closing::Closed
    }

    /// Closes containers that were not used for some time.
    pub fn close_idle(&self) {
        let idle = u64::try_from(self.spec.idle.as_millis()).unwrap_or(u64::MAX);
        let now = self.now();
        for container in self.all_open() {
            if now.saturating_sub(container.used.load(Ordering::Relaxed)) >= idle {
                self.close(&container, false);
            }
        }
    }

    /// Closes the container in the file `identity`, if it is one, because its name changes. Waits a
    /// moment for what is open in it. Errors: `EBUSY` if it stays open, or if its changes cannot be
    /// made durable.
    pub fn close_file(&self, identity: Identity) -> FsResult<()> {
        let Some(container) = self.known.lock().get(&identity).cloned() else { return Ok(()) };
        let deadline = Instant::now() + RELEASE_WAIT;
        loop {
            match self.close(&container, false) {
                Closing::Closed | Closing::WasClosed => return Ok(()),
                Closing::InUse | Closing::InRequest if Instant::now() < deadline => {
                    waiting::may_wait();
                    std::thread::sleep(RELEASE_RETRY);
                }
                Closing::InUse | Closing::InRequest | Closing::Failed => return Err(Errno(libc::EBUSY)),
            }
        }
    }

    /// Makes all changes durable.
    pub fn commit(&self) -> FsResult<()> {
        let mut result = Ok(());
        for container in self.all_open() {
            if let Some(used) = self.if_open(&container, None).filter(|used| used.open.writable) {
                result = result.and(used.open.operations.commit());
            }
        }
        result
    }

    /// Makes all changes durable and closes all containers. Later requests open none.
    pub fn shutdown(&self) -> Result<(), CloseError> {
        self.ended.store(true, Ordering::Release);
        let mut result = Ok(());
        for container in self.all_open() {
            let open = container.open.lock().take();
            result = open.map_or(Ok(()), |open| open.operations.shutdown()).and(result);
        }
        self.open.lock().clear();
        *self.slots.lock() = 0;
        result
    }
}

/// Which other files a container of the tree at `root` may name: its own directory is that of the
/// tree.
pub fn external_of(template: &MountSpec, root: &std::path::Path) -> ExternalPolicy {
    match &template.external {
        ExternalPolicy::Beneath(None) => ExternalPolicy::Beneath(Some(root.to_owned())),
        given => given.clone(),
    }
}

/// Permission bits of a directory whose files have `mode`: who may read it may search it.
pub fn with_search(mode: u16) -> u16 {
    mode | (mode & 0o444) >> 2
}
