//! What an operation returns beside its answer: what the kernel has cached and must drop.

use super::page_guard::PageGuard;
use super::types::{FsResult, Ino};
use crate::connector::Content;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

/// All pages of a file.
pub const ALL_PAGES: Range<u64> = 0..i64::MAX as u64;

/// A file that grew.
#[derive(Clone)]
pub struct Grown {
    /// The file.
    pub ino: Ino,
    /// Offset of its last byte.
    pub last: u64,
    /// Its bytes.
    pub content: Arc<dyn Content>,
}

impl Grown {
    /// The last byte; `None`: it cannot be read, or the file became shorter. Decodes what holds it:
    /// the caller has no lock.
    pub fn last_byte(&self) -> Option<u8> {
        let mut byte = [0];
        let read = self.content.read(self.last, &mut byte);
        let [byte] = byte;
        read.is_ok_and(|n| n == 1).then_some(byte)
    }
}

impl fmt::Debug for Grown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Grown").field("ino", &self.ino).field("last", &self.last).finish_non_exhaustive()
    }
}

/// What the kernel must drop after a change, because its copy is stale.
#[derive(Debug, Default)]
pub struct Invalidate {
    /// Pages to drop soon: of other inodes that show the same dataset. FLUSH and FSYNC are answered
    /// after they are dropped.
    pub pages: Vec<(Ino, Range<u64>)>,
    /// Pages to drop before the answer.
    pub pages_before_answer: Vec<(Ino, Range<u64>)>,
    /// Names in directories to drop soon: of files that are named at every use.
    pub names: Vec<(Ino, Vec<u8>)>,
    /// Attributes to drop before the answer.
    pub attributes: Vec<Ino>,
    /// Files that grew, for the kernel before the answer: in copy_file_range(2) it uses the size
    /// that it has without asking.
    pub grown: Vec<Grown>,
    /// A write that bypassed the page cache. Its pages are dropped first, then the guard, then the
    /// write is answered.
    pub guard: Option<PageGuard>,
}

impl Invalidate {
    /// The same of a file system that is shown within another one: in its inode numbers, which
    /// `number` returns for those that the kernel knows.
    #[must_use]
    pub fn outward(self, number: &dyn Fn(Ino) -> Option<Ino>) -> Invalidate {
        let pages = |all: Vec<_>| all.into_iter().filter_map(|(ino, range)| Some((number(ino)?, range))).collect();
        Invalidate {
            pages: pages(self.pages),
            pages_before_answer: pages(self.pages_before_answer),
            grown: self.grown.into_iter().filter_map(|grown| Some(Grown { ino: number(grown.ino)?, ..grown })).collect(),
            names: self.names.into_iter().filter_map(|(ino, name)| Some((number(ino)?, name))).collect(),
            attributes: self.attributes.into_iter().filter_map(number).collect(),
            guard: self.guard,
        }
    }
}

/// The result of an operation that changes something. The kernel must drop pages even after an
/// error: a part may have been done.
#[derive(Debug)]
pub struct Done<T> {
    /// The answer.
    pub result: FsResult<T>,
    /// Stale copies in the kernel.
    pub invalidate: Invalidate,
}

impl<T> Done<T> {
    /// Runs `f`, which notes stale copies.
    pub fn of(f: impl FnOnce(&mut Invalidate) -> FsResult<T>) -> Self {
        let mut invalidate = Invalidate::default();
        let result = f(&mut invalidate);
        Done { result, invalidate }
    }
}

impl<T> Done<T> {
    /// What `f` did, or why it did nothing.
    pub fn by(f: impl FnOnce() -> FsResult<Done<T>>) -> Self {
        f().unwrap_or_else(|e| Err(e).into())
    }
}

impl<T> From<FsResult<T>> for Done<T> {
    fn from(result: FsResult<T>) -> Self {
        Done { result, invalidate: Invalidate::default() }
    }
}
