//! A tree: where it is shown, and its file system, opened when its name is looked up.

use super::numbers::{Numbers, root_of};
use crate::base::locks::Mutex;
use crate::base::waiting;
use crate::fs::container::ContainerFs;
use crate::fs::types::{Attr, Entry, Errno, FsResult, Handle, Ino, ROOT};
use crate::fs::{Invalidate, Operations};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// Bits of a mode that are no permissions.
const SPECIAL_BITS: u16 = 0o7000;

/// Pause before the first look whether a transaction has ended.
const LOOK_PAUSE: Duration = Duration::from_secs(1);
/// Longest pause between two of them.
const LOOK_PAUSE_MAX: Duration = Duration::from_secs(60);

/// Bits of a handle within its tree.
const HANDLE_BITS: u32 = 48;

/// The tree that `handle` is in; 0: none.
pub fn tree_of_handle(handle: Handle) -> u64 {
    handle.0 >> HANDLE_BITS
}

/// See the module's description.
pub struct Tree {
    /// Its number, from 1 on.
    pub number: u64,
    /// The transaction.
    pub name: String,
    /// The directory that it is in, and the attributes of its root until it is opened.
    shown: Mutex<Option<(Ino, Attr)>>,
    numbers: Mutex<Numbers>,
    handles: AtomicU64,
    /// When to look whether its transaction has ended, and the pause after that.
    due: Mutex<(Instant, Duration)>,
    open: OnceLock<Arc<ContainerFs>>,
    /// Held while it is opened.
    opening: Mutex<()>,
}

impl Tree {
    /// A tree that is not open.
    pub fn new(number: u64, name: String) -> Tree {
        Tree {
            number,
            name,
            shown: Mutex::default(),
            numbers: Mutex::new(Numbers::new(number)),
            handles: AtomicU64::new(0),
            due: Mutex::new((Instant::now() + LOOK_PAUSE, LOOK_PAUSE)),
            open: OnceLock::new(),
            opening: Mutex::new(()),
        }
    }

    /// Its file system, opened by `open` if it is not.
    pub fn enter(&self, open: impl FnOnce() -> FsResult<ContainerFs>) -> FsResult<Arc<ContainerFs>> {
        if let Some(fs) = self.if_open() {
            return Ok(fs);
        }
        let _opening = waiting::take(|| self.opening.try_lock(), || self.opening.lock());
        match self.if_open() {
            Some(fs) => Ok(fs),
            None => open().map(|fs| self.open.get_or_init(|| Arc::new(fs)).clone()),
        }
    }

    /// Its file system, if it is open.
    pub fn if_open(&self) -> Option<Arc<ContainerFs>> {
        self.open.get().cloned()
    }

    /// True if the kernel knows no file of it, and none is open.
    pub fn is_unused(&self) -> bool {
        self.handles.load(Ordering::Acquire) == 0 && self.numbers.lock().is_empty()
    }

    /// True if it is time to look whether its transaction has ended: twice as long after each look.
    pub fn is_due(&self) -> bool {
        let mut due = self.due.lock();
        let now = Instant::now();
        let is_due = now >= due.0;
        if is_due {
            *due = (now + due.1, due.1.saturating_mul(2).min(LOOK_PAUSE_MAX));
        }
        is_due
    }

    /// Counts a look-up of its root, shown in the place of the directory `attr` in `parent`.
    pub fn enter_root(&self, parent: Ino, attr: Attr) {
        *self.shown.lock() = Some((parent, attr));
        self.numbers.lock().enter(ROOT);
    }

    /// The attributes of its root, which belongs to the owner of the transaction. Nothing of it can
    /// be read until it is opened.
    pub fn root_attr(&self) -> FsResult<Attr> {
        let ino = root_of(self.number);
        let (_, shown) = (*self.shown.lock()).ok_or(Errno(libc::ESTALE))?;
        if let Some(attr) = self.if_open().and_then(|fs| fs.getattr(ROOT).ok()) {
            return Ok(Attr { ino, ..self.shown_root(attr) });
        }
        Ok(Attr { ino, perm: shown.perm & 0o700, ..shown })
    }

    /// Attributes of its root, which are `attr` in it, for others than its own file system.
    pub fn shown_root(&self, attr: Attr) -> Attr {
        let shown = self.shown.lock().map(|(_, shown)| shown);
        shown.map_or(attr, |shown| Attr { uid: shown.uid, gid: shown.gid, perm: attr.perm & (shown.perm | SPECIAL_BITS), ..attr })
    }

    /// The directory that its root is in.
    pub fn parent(&self) -> Ino {
        self.shown.lock().map_or(ROOT, |(parent, _)| parent)
    }

    /// The number within it of `ino`. Errors: `ESTALE`.
    pub fn inner(&self, ino: Ino) -> FsResult<Ino> {
        self.numbers.lock().inner(ino).ok_or(Errno(libc::ESTALE))
    }

    /// The number outside that `inner` has or would get.
    pub fn outer(&self, inner: Ino) -> Ino {
        self.numbers.lock().outer(inner)
    }

    /// The entry of a file that was looked up, outside.
    pub fn entered(&self, entry: Entry) -> Entry {
        let ino = self.numbers.lock().enter(entry.attr.ino);
        Entry { attr: Attr { ino, ..entry.attr }, ..entry }
    }

    /// Drops `count` references; returns the number within it.
    pub fn forget(&self, ino: Ino, count: u64) -> Option<Ino> {
        self.numbers.lock().forget(ino, count)
    }

    /// The handle outside of one that was opened.
    pub fn opened(&self, handle: Handle) -> Handle {
        self.handles.fetch_add(1, Ordering::AcqRel);
        Handle(self.number << HANDLE_BITS | handle.0)
    }

    /// The handle within it of `handle`.
    pub fn handle(&self, handle: Handle) -> Handle {
        Handle(handle.0 & ((1 << HANDLE_BITS) - 1))
    }

    /// A handle was closed.
    pub fn closed(&self) {
        self.handles.fetch_sub(1, Ordering::AcqRel);
    }

    /// What the kernel must drop, by its numbers.
    pub fn invalidate(&self, invalidate: Invalidate) -> Invalidate {
        let numbers = self.numbers.lock();
        invalidate.outward(&|ino| numbers.known(ino))
    }
}
