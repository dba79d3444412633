//! The mounted container: what all parts of the file system share.

use super::cut_names::{CutNames, Names};
use super::defined_facts::DefinedFacts;
use super::errno::errno;
use super::long_facts::LongFacts;
use super::name::NAME_MAX;
use super::reasons::Reasons;
use super::spec::{ExternalPolicy, MountSpec};
use super::types::{CloseError, Errno, FsResult, Statfs, Version};
use super::views::{Buffers, Context, Host};
use crate::base::Error;
use crate::base::escape::{escaped, escaped_bytes};
use crate::base::locks::Mutex;
use crate::connector::edit::Edit;
use crate::connector::open::{Backing, FreeSpace, OpenContainer};
use crate::connector::{Connector, Follow, ObjectId};
use foldhash::{HashSet, HashSetExt};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

/// Units of `st_blocks`, bytes.
pub const BLOCK_BYTES: u64 = 512;
/// Most commits postponed in succession.
const POSTPONED_INTERVALS_MAX: u32 = 5;
/// Objects whose failure was logged once.
const LOGGED_OBJECTS_MAX: usize = 10_000;

/// A path of an object in the container, by link names; `None`: the kernel knows none.
pub type PathOf = dyn Fn(ObjectId) -> Option<Vec<Vec<u8>>> + Send + Sync;

/// Topic of a log line that is written once for each object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Logged {
    /// A failure.
    Failure,
    /// A fact that is not listed.
    LongFact,
    /// Defined elements that are not listed.
    Defined,
}

/// See the module's description.
pub struct Mounted {
    /// The container.
    pub connector: Arc<dyn Connector>,
    /// How it is shown.
    pub spec: MountSpec,
    /// Path of the mounted group in its file, as link names.
    pub prefix: Vec<Vec<u8>>,
    /// The container can be changed.
    pub changing: bool,
    /// Names that are shown cut.
    pub cut_names: CutNames,
    /// Facts in pieces.
    pub long_facts: LongFacts,
    /// Facts of defined elements.
    pub defined_facts: DefinedFacts,
    /// Why operations on objects failed.
    pub reasons: Reasons,
    /// How often set-ID bits were set on a file.
    pub set_id_changes: AtomicU64,
    /// Nodes that the kernel knows.
    pub inodes: AtomicU64,
    /// Files that are open.
    pub open_files: AtomicU64,
    buffers: Buffers,
    path_of: OnceLock<Box<PathOf>>,
    backing: Backing,
    free_space: Option<FreeSpace>,
    logged: Mutex<HashSet<(ObjectId, Logged)>>,
    /// Changes so far.
    changes: AtomicU64,
    /// Changes wait for a commit.
    uncommitted: AtomicBool,
    /// The error of the last commit; it was logged.
    commit_error: Mutex<Option<String>>,
    /// Commits postponed in succession.
    postponed: AtomicU32,
    /// The session has ended: no more changes.
    ended: AtomicBool,
}

impl Mounted {
    /// Shows the group at `prefix` of `container`.
    pub fn new(container: OpenContainer, prefix: Vec<Vec<u8>>, spec: MountSpec) -> Self {
        let OpenContainer { connector, backing, free_space } = container;
        let (cut_names, inodes, open_files, buffers, uncommitted, ended) =
            (CutNames::new(), AtomicU64::new(0), AtomicU64::new(0), Buffers::default(), AtomicBool::new(false), AtomicBool::new(false));
        let (changing, logged) = (connector.edit().is_some(), Mutex::new(HashSet::new()));
        Mounted {
            long_facts: LongFacts::default(),
            defined_facts: DefinedFacts::default(),
            reasons: Reasons::default(),
            changes: AtomicU64::new(0),
            set_id_changes: AtomicU64::new(0),
            connector,
            spec,
            prefix,
            changing,
            cut_names,
            inodes,
            open_files,
            buffers,
            backing,
            free_space,
            path_of: OnceLock::new(),
            logged,
            uncommitted,
            commit_error: Mutex::default(),
            postponed: AtomicU32::new(0),
            ended,
        }
    }

    /// What views may use.
    pub fn context(&self) -> Context<'_> {
        Context {
            connector: &self.connector,
            prefix: &self.prefix,
            cut_names: &self.cut_names,
            file: &self.spec.file,
            changing: self.changing,
            trees: self.spec.trees,
            views: &self.spec.views,
            outside_links: self.changing || self.spec.external != ExternalPolicy::Off,
            buffers: &self.buffers,
            host: self,
        }
    }

    /// Number of the container's state.
    pub fn state(&self) -> u64 {
        self.connector.follow().map_or(0, Follow::state)
    }

    /// Version of the container; every change raises it. Read before data from which a cache entry
    /// is made.
    pub fn version(&self) -> Version {
        (self.state(), self.changes.load(Ordering::Acquire))
    }

    /// Times and length of the backing file.
    pub fn backing(&self) -> Backing {
        self.connector.follow().map_or(self.backing, |follow| follow.mounted().1)
    }

    /// Totals of the file system. Only space that can be used counts as free.
    pub fn statfs(&self) -> Statfs {
        let (len, free) = self.free_space.as_ref().and_then(|f| f()).unwrap_or_else(|| (self.backing().len, 0));
        let free = if self.changing { free.div_ceil(BLOCK_BYTES) } else { 0 };
        let blocks = len.div_ceil(BLOCK_BYTES).saturating_add(free);
        Statfs { block_size: BLOCK_BYTES as u32, blocks, free, files: 0, name_max: NAME_MAX as u32 }
    }

    /// Checks for a change of the container by another process; returns whether it is in another
    /// state. `failed`: something could not be read.
    pub fn check_changed(&self, follow: &dyn Follow, failed: bool) -> bool {
        let changed = follow.look(failed);
        if changed {
            self.cut_names.clear();
        }
        changed
    }

    /// After a failed read: true when the container is in another state, and the read may succeed.
    pub fn check_again(&self) -> bool {
        self.connector.follow().is_some_and(|f| self.check_changed(f, true))
    }

    /// How the container is changed. Errors: `EROFS` if it is not, or not any more.
    pub fn editor(&self) -> FsResult<&dyn Edit> {
        let edit = self.connector.edit().ok_or(Errno(libc::EROFS))?;
        if self.ended.load(Ordering::Acquire) { Err(Errno(libc::EROFS)) } else { Ok(edit) }
    }

    /// Sets how log lines find the path of an object; only the first call counts.
    pub fn name_objects(&self, path_of: Box<PathOf>) {
        let _ = self.path_of.set(path_of);
    }

    /// The container, with the path of an object in it if the kernel knows one: `FILE:/PATH`.
    fn title(&self, id: Option<ObjectId>) -> String {
        let file = escaped(&self.spec.file);
        let names = id.and_then(|id| self.path_of.get()?(id)).filter(|names| !names.is_empty());
        let path =
            names.map(|names| [b":/", self.prefix.iter().chain(&names).cloned().collect::<Vec<_>>().join(&b'/').as_slice()].concat());
        format!("{file}{}", escaped_bytes(&path.unwrap_or_default()))
    }

    /// Logs a failure, once per object.
    pub fn log_failure(&self, id: Option<ObjectId>, e: &Error) {
        if id.is_some_and(|id| !self.is_first(id, Logged::Failure)) {
            return;
        }
        let at = id.map(|id| format!(" (object at {id:#})")).unwrap_or_default();
        match e {
            Error::Refused { .. } => tracing::warn!("{}: {e}{at}", self.title(id)),
            _ => tracing::error!("{}: {e}{at}", self.title(id)),
        }
    }

    /// True once for each object and `what`; false for more objects than are remembered.
    pub fn is_first(&self, id: ObjectId, what: Logged) -> bool {
        let mut logged = self.logged.lock();
        logged.len() < LOGGED_OBJECTS_MAX && logged.insert((id, what))
    }

    /// Forgets the object `id`: its address may be used for another one.
    pub fn forget_object(&self, id: ObjectId) {
        let mut logged = self.logged.lock();
        for what in [Logged::Failure, Logged::LongFact, Logged::Defined] {
            logged.remove(&(id, what));
        }
        drop(logged);
        self.long_facts.forget(id);
        self.reasons.forget(id);
        self.cut_names.forget(Names::Links(id));
        self.cut_names.forget(Names::Attributes(id));
    }

    /// True if the dataset `id` can have undefined elements.
    pub fn has_undefined_elements(&self, id: ObjectId) -> bool {
        self.connector.dataset(id).is_ok_and(|d| d.profile.is_some())
    }

    /// True if elements of the dataset `id` can be undefined, or without a source to write to.
    pub fn has_unwritten_elements(&self, id: ObjectId) -> bool {
        self.connector.dataset(id).is_ok_and(|d| d.profile.is_some() || d.is_elsewhere)
    }

    /// Notes a change that waits for a commit.
    pub fn note_uncommitted(&self) {
        self.uncommitted.store(true, Ordering::Release);
        self.changes.fetch_add(1, Ordering::AcqRel);
    }

    /// Makes changes durable. Without `always`: only if there are any.
    pub fn commit(&self, always: bool) -> FsResult<()> {
        let Ok(edit) = self.editor() else { return Ok(()) };
        if !self.uncommitted.swap(false, Ordering::AcqRel) && !always {
            return Ok(());
        }
        let done = edit.commit();
        let text = done.as_ref().err().map(ToString::to_string);
        // A commit is repeated at each interval.
        let is_logged = std::mem::replace(&mut *self.commit_error.lock(), text.clone()) == text;
        done.map_err(|e| {
            // EROFS: the container takes no more changes, so there is nothing to retry.
            let errno = errno(&e);
            self.uncommitted.store(errno != Errno(libc::EROFS), Ordering::Release);
            if !is_logged {
                tracing::error!("{}: the last changes could not be made durable: {e}", escaped(&self.spec.file));
            }
            errno
        })
    }

    /// A commit at the end of an interval. Is postponed for a new file that is being written, which
    /// may be described next.
    pub fn commit_timed(&self) -> FsResult<()> {
        let waits = self.uncommitted.load(Ordering::Acquire) && self.editor().is_ok_and(|edit| edit.awaits_descriptions());
        if waits && self.postponed.fetch_add(1, Ordering::AcqRel) < POSTPONED_INTERVALS_MAX {
            return Ok(());
        }
        self.postponed.store(0, Ordering::Release);
        let idle = !self.uncommitted.load(Ordering::Acquire);
        self.commit(false)?;
        if idle {
            self.keep_up();
        }
        Ok(())
    }

    /// Shows what other writers committed, and does a part of what makes the container smaller and
    /// faster, while nothing is written.
    fn keep_up(&self) {
        let Ok(edit) = self.editor() else { return };
        if let Err(e) = edit.catch_up() {
            tracing::warn!("{}: changes of other writers are not shown yet: {e}", escaped(&self.spec.file));
        }
        let Some(log) = edit.log() else { return };
        if let Err(e) = log.compact_part() {
            tracing::warn!("{}: the log is not compacted: {e}", escaped(&self.spec.file));
        }
    }

    /// Ends the session: no more changes. False: it had ended.
    pub fn end(&self) -> bool {
        !self.ended.swap(true, Ordering::AcqRel)
    }

    /// Commits and closes the container.
    pub fn close(&self) -> Result<(), CloseError> {
        let Some(edit) = self.connector.edit() else { return Ok(()) };
        self.long_facts.end();
        edit.close().map_err(|e| CloseError {
            // The part of a transaction is published when it is finished, not by unmounting.
            is_unfinished: self.spec.transaction.is_some() && matches!(e, Error::Refused { .. }),
            errno: if let Error::Io { errno, .. } | Error::Request { errno, .. } = &e { Errno(*errno) } else { errno(&e) },
            message: format!("the last changes of {} could not be written: {e}", escaped(&self.spec.file)),
        })
    }
}

impl Host for Mounted {
    fn failed(&self, id: Option<ObjectId>, e: &Error) -> Errno {
        id.inspect(|id| self.reasons.note(*id, e));
        self.log_failure(id, e);
        errno(e)
    }

    /// A change that is impossible because of what the object is says why.
    fn refused(&self, id: Option<ObjectId>, e: &Error) -> Errno {
        id.inspect(|id| self.reasons.note(*id, e));
        match e {
            Error::Refused { errno, .. }
                if !matches!(*errno, libc::EPERM | libc::EACCES | libc::EFBIG | libc::EINVAL | libc::EOPNOTSUPP) => {}
            _ => self.log_failure(id, e),
        }
        errno(e)
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        let n = |a: &AtomicU64| a.load(Ordering::Relaxed);
        let mut all = self.connector.counters();
        all.extend([("changes_noticed", self.state()), ("inodes", n(&self.inodes)), ("open_files", n(&self.open_files))]);
        all
    }
}
