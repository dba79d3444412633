//! Guards writes that bypass the page cache against writeback of stale pages.
//!
//! A descriptor that is only written to bypasses the page cache (FOPEN_DIRECT_IO), which saves a
//! copy, and so does one that reads and appends, where the kernel can map its file. Other
//! descriptors may have pages with the old bytes, and a store through a mapping makes the kernel
//! write such a page back as a whole. So:
//!
//! 1. the range of the write is guarded: writeback leaves out the bytes within it;
//! 2. the bytes are written;
//! 3. if the file is open more than once, or the descriptor reads, its pages of that range are
//!    dropped;
//! 4. the guard ends, and the write is answered. Pages read after step 2 hold the new bytes.
//!
//! Steps 1 and 2 are made here, which returns a [`PageGuard`]. Steps 3 and 4 are the caller's: it
//! drops the pages, then the guard. It may answer earlier when the kernel is slow to drop a page:
//! the guard of one write may outlive the next one.
//!
//! With `O_APPEND` the bytes go to the end of the dataset. The kernel assumes another end after a
//! row that an append left incomplete (the size of a dataset counts whole rows), and after a fact
//! changed the shape. A descriptor with pages (`O_RDWR`) has put the bytes into the wrong pages
//! then: both ranges are guarded, and the pages of both dropped. So are the bytes that it put into
//! the right page if mappings store to the file: until the write is answered they are past the end
//! of the file for the kernel, which zeroes them when it writes the page back.

use super::types::{FsResult, Handle};
use crate::base::locks::{Mutex, MutexGuard};
use crate::base::waiting;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A write that the page cache does not show.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HiddenWrite {
    /// Where its bytes are in the file.
    pub file: Range<u64>,
    /// Where the page cache has them.
    pub pages: Option<Range<u64>>,
}

/// The last writes to a node.
#[derive(Debug, Default)]
pub struct Writes {
    tail: Mutex<Option<Tail>>,
    /// Pages were written back that a mapping had dirtied.
    mapped: AtomicBool,
    /// Held during writeback.
    guarded: Mutex<Guarded>,
}

/// The last append.
#[derive(Debug, Clone, Copy)]
struct Tail {
    /// The open file it came through.
    file: Handle,
    /// Where its bytes end.
    end: u64,
    /// Size of the file after it, which has whole rows.
    size: u64,
}

/// The writes that are guarded. The kernel sends the writes to an inode one at a time.
#[derive(Debug, Default)]
struct Guarded {
    writes: Vec<(u64, HiddenWrite)>,
    /// The write in progress, if it is one of them.
    current: Option<u64>,
    /// Numbers them.
    count: u64,
}

impl Guarded {
    fn begin(&mut self, write: HiddenWrite) {
        self.count = self.count.wrapping_add(1);
        self.writes.push((self.count, write));
        self.current = Some(self.count);
    }

    fn end(&mut self, number: u64) {
        self.writes.retain(|(n, _)| *n != number);
    }

    /// Splits data that starts at `offset` around the guarded bytes.
    fn split<'a>(&self, offset: u64, data: &'a [u8]) -> Vec<(u64, &'a [u8])> {
        let stale = self.writes.iter().flat_map(|(_, w)| [Some(&w.file), w.pages.as_ref()]).flatten();
        stale.fold(vec![(offset, data)], |parts, stale| parts.into_iter().flat_map(|part| without(part, stale)).collect())
    }
}

/// A node whose writes are guarded.
pub trait GuardedNode: Send + Sync {
    /// Its writes.
    fn writes(&self) -> &Writes;
}

/// Keeps writeback off the bytes of a write until it is dropped.
pub struct PageGuard {
    /// The write.
    pub write: HiddenWrite,
    number: u64,
    node: Arc<dyn GuardedNode>,
}

impl PageGuard {
    /// The guard of the write just made to `node`, if it was guarded. The caller must be that
    /// write.
    pub fn of(node: Arc<dyn GuardedNode>) -> Option<Self> {
        let mut guarded = node.writes().guarded.lock();
        let number = guarded.current.take()?;
        let (_, write) = guarded.writes.last()?.clone();
        drop(guarded);
        Some(PageGuard { write, number, node })
    }
}

impl Drop for PageGuard {
    fn drop(&mut self) {
        self.node.writes().guarded.lock().end(self.number);
    }
}

impl std::fmt::Debug for PageGuard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("PageGuard").field(&self.write).finish()
    }
}

/// A write request.
#[derive(Debug, Clone, Copy)]
pub struct WriteCall {
    /// The open file.
    pub file: Handle,
    /// First byte, as the kernel sees the file.
    pub offset: u64,
    /// Bytes.
    pub len: u64,
    /// Its descriptor bypasses the page cache.
    pub bypasses: bool,
}

impl WriteCall {
    fn at(&self, start: u64) -> Range<u64> {
        start..start.saturating_add(self.len)
    }
}

impl Writes {
    fn guarded(&self) -> MutexGuard<'_, Guarded> {
        waiting::take(|| self.guarded.try_lock(), || self.guarded.lock())
    }

    /// A write that failed hides nothing.
    fn end_current(&self) {
        let mut guarded = self.guarded.lock();
        if let Some(number) = guarded.current.take() {
            guarded.end(number);
        }
    }

    /// Writes by `write` at the offset of `call`.
    pub fn overwrite(&self, call: WriteCall, write: impl FnOnce(u64) -> FsResult<()>) -> FsResult<()> {
        if call.bypasses {
            self.guarded().begin(HiddenWrite { file: call.at(call.offset), pages: None });
        }
        write(call.offset).inspect_err(|_| self.end_current())?;
        let end = call.at(call.offset).end;
        let mut tail = self.tail.lock();
        *tail = tail.filter(|appended| end <= appended.end);
        Ok(())
    }

    /// Appends by `write`, which takes an offset, to a file of `size` bytes.
    pub fn append(&self, call: WriteCall, size: impl Fn() -> FsResult<u64>, write: impl FnOnce(u64) -> FsResult<()>) -> FsResult<()> {
        let mut tail = self.tail.lock();
        let before = size()?;
        // These bytes fill the row that the last append left incomplete. Another open file begins a
        // new row: FUSE_RELEASE of this one may come later.
        let at = tail.filter(|last| last.file == call.file && last.size == before).map_or(before, |last| last.end);
        let stale = || call.offset != at || self.mapped.load(Ordering::Acquire);
        let hidden = |stale| HiddenWrite { file: call.at(at), pages: (!call.bypasses && stale).then(|| call.at(call.offset)) };
        let guarded = call.bypasses || stale();
        if guarded {
            self.guarded().begin(hidden(stale()));
        }
        let after = write(at).and_then(|()| size()).inspect_err(|_| self.end_current())?;
        if !guarded && stale() {
            self.guarded().begin(hidden(true));
        }
        *tail = Some(Tail { file: call.file, end: call.at(at).end, size: after });
        Ok(())
    }

    /// Writes back `data`, pages that mappings dirtied, by `write`, except the guarded bytes.
    pub fn write_back(&self, offset: u64, data: &[u8], mut write: impl FnMut(u64, &[u8]) -> FsResult<()>) -> FsResult<()> {
        self.mapped.store(true, Ordering::Release);
        let guarded = self.guarded();
        guarded.split(offset, data).into_iter().try_for_each(|(at, part)| write(at, part))
    }

    /// The last writer closed the file: no mapping stores to it.
    pub fn end(&self) {
        self.mapped.store(false, Ordering::Release);
    }
}

/// The bytes before and after `stale`.
fn without<'a>((offset, data): (u64, &'a [u8]), stale: &Range<u64>) -> impl Iterator<Item = (u64, &'a [u8])> {
    let index = |at: u64| usize::try_from(at.saturating_sub(offset)).unwrap_or(usize::MAX).min(data.len());
    let (start, end) = (index(stale.start), index(stale.end));
    let parts = [(offset, data.get(..start).unwrap_or_default()), (offset.saturating_add(end as u64), data.get(end..).unwrap_or_default())];
    parts.into_iter().filter(|(_, part)| !part.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fs::types::Errno;

    #[test]
    fn guarded_ranges_are_left_out_of_writeback() {
        let data: Vec<u8> = (0..20).collect();
        let left = |stale: Range<u64>| without((100, &data), &stale).map(|(at, p)| (at, p[0], p.len())).collect::<Vec<_>>();
        assert_eq!(left(0..100), [(100, 0, 20)]);
        assert_eq!(left(120..130), [(100, 0, 20)]);
        assert_eq!(left(90..105), [(105, 5, 15)]);
        assert_eq!(left(110..112), [(100, 0, 10), (112, 12, 8)]);
        assert_eq!(left(115..200), [(100, 0, 15)]);
        assert_eq!(left(0..200), []);
    }

    struct Node(Writes);

    impl GuardedNode for Node {
        fn writes(&self) -> &Writes {
            &self.0
        }
    }

    fn written_back(node: &Node) -> Vec<(u64, usize)> {
        let mut parts = Vec::new();
        let write = |at, part: &[u8]| {
            parts.push((at, part.len()));
            Ok(())
        };
        node.0.write_back(0, &[0; 20], write).unwrap();
        parts
    }

    #[test]
    fn a_write_is_guarded_until_its_guard_is_dropped() {
        let node = Arc::new(Node(Writes::default()));
        let call = |bypasses| WriteCall { file: Handle(1), offset: 5, len: 5, bypasses };
        node.0.overwrite(call(false), |_| Ok(())).unwrap();
        assert!(PageGuard::of(node.clone()).is_none());
        node.0.overwrite(call(true), |_| Ok(())).unwrap();
        let guard = PageGuard::of(node.clone()).unwrap();
        assert_eq!(guard.write, HiddenWrite { file: 5..10, pages: None });
        assert_eq!(written_back(&node), [(0, 5), (10, 10)]);
        drop(guard);
        assert_eq!(written_back(&node), [(0, 20)]);
        node.0.overwrite(call(true), |_| Err(Errno(libc::ENOSPC))).unwrap_err();
        assert_eq!(written_back(&node), [(0, 20)], "a write that failed hides nothing");
        // The kernel has put appended bytes where the file ended for it.
        node.0.append(call(false), || Ok(12), |_| Ok(())).unwrap();
        let guard = PageGuard::of(node.clone()).unwrap();
        assert_eq!(guard.write, HiddenWrite { file: 12..17, pages: Some(5..10) });
        assert_eq!(written_back(&node), [(0, 5), (10, 2), (17, 3)]);
        drop(guard);
        // It has put them into the right page, and zeroes them there when a mapping made it dirty.
        let right = WriteCall { file: Handle(1), offset: 17, len: 3, bypasses: false };
        node.0.append(right, || Ok(12), |_| Ok(())).unwrap();
        let first = PageGuard::of(node.clone()).unwrap();
        assert_eq!(first.write, HiddenWrite { file: 17..20, pages: Some(17..20) });
        // The kernel may be slow to drop the page: the next write begins.
        node.0.overwrite(WriteCall { file: Handle(1), offset: 2, len: 3, bypasses: false }, |_| Ok(())).unwrap();
        assert!(PageGuard::of(node.clone()).is_none());
        assert_eq!(written_back(&node), [(0, 17)]);
        node.0.overwrite(call(true), |_| Ok(())).unwrap();
        let second = PageGuard::of(node.clone()).unwrap();
        assert_eq!(written_back(&node), [(0, 5), (10, 7)]);
        drop(first);
        assert_eq!(written_back(&node), [(0, 5), (10, 10)]);
        drop(second);
        assert_eq!(written_back(&node), [(0, 20)]);
        let unmapped = Arc::new(Node(Writes::default()));
        unmapped.0.append(right, || Ok(17), |_| Ok(())).unwrap();
        assert!(PageGuard::of(unmapped).is_none());
    }
}
