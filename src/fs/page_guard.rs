//! Writes whose bytes the kernel's pages of the file do not have: what keeps writeback from undoing them.
//!
//! A descriptor that is only written to bypasses the page cache (FOPEN_DIRECT_IO), which spares a copy. Other descriptors may have pages
//! with the old bytes, and a store through a mapping makes the kernel write such a page back as a whole. So:
//!
//! 1. the range of the write is guarded: of pages written back, the bytes within it are left out;
//! 2. the bytes are written;
//! 3. if the file is open more than once, its pages of that range are dropped;
//! 4. the guard ends, and the write is answered. Pages read after step 2 hold the new bytes.
//!
//! With `O_APPEND` bytes go where the dataset ends. The kernel takes it to end elsewhere after a row that an append left
//! unfilled (a dataset's size counts whole rows), and after a fact changed the shape. A descriptor with pages (`O_RDWR`) has put the
//! bytes into the wrong ones then: both ranges are guarded, and the pages of both dropped.

use super::FsResult;
use super::container::ContainerFs;
use super::nodes::Node;
use super::types::Handle;
use crate::base::waiting;
use parking_lot::{Mutex, MutexGuard};
use std::ops::Range;

/// A write that the page cache does not show.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hidden {
    /// Where its bytes are in the file.
    pub file: Range<u64>,
    /// Where the page cache has them.
    pub pages: Option<Range<u64>>,
}

/// What a node knows of its last writes.
#[derive(Debug, Default)]
pub struct Writes {
    /// Where the last appended bytes ended, and the size of the file then.
    tail: Mutex<Option<(u64, u64)>>,
    /// The write that is guarded. Held while pages are written back. The kernel makes one write after the other to an inode.
    guarded: Mutex<Option<Hidden>>,
}

/// A write, as the kernel sees it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Call {
    pub offset: u64,
    pub len: u64,
    /// Through a descriptor that bypasses the page cache.
    pub bypasses: bool,
}

impl Call {
    fn at(&self, start: u64) -> Range<u64> {
        start..start.saturating_add(self.len)
    }
}

impl Node {
    fn guarded(&self) -> MutexGuard<'_, Option<Hidden>> {
        waiting::take(|| self.writes.guarded.try_lock(), || self.writes.guarded.lock())
    }

    /// Writes by `write` at the offset of `call`.
    pub(super) fn overwrite(&self, call: Call, write: impl FnOnce(u64) -> FsResult<()>) -> FsResult<()> {
        if call.bypasses {
            *self.guarded() = Some(Hidden { file: call.at(call.offset), pages: None });
        }
        write(call.offset).inspect_err(|_| self.end_guard())?;
        let end = call.at(call.offset).end;
        let mut tail = self.writes.tail.lock();
        *tail = tail.filter(|(appended, _)| end <= *appended);
        Ok(())
    }

    /// Appends by `write`, which takes an offset, to a file whose length `size` tells.
    pub(super) fn append(&self, call: Call, size: impl Fn() -> FsResult<u64>, write: impl FnOnce(u64) -> FsResult<()>) -> FsResult<()> {
        let mut tail = self.writes.tail.lock();
        let before = size()?;
        // The next bytes fill the row that the last ones left unfilled.
        let at = tail.filter(|(_, then)| *then == before).map_or(before, |(end, _)| end);
        let pages = (!call.bypasses).then(|| call.at(call.offset));
        if pages != Some(call.at(at)) {
            *self.guarded() = Some(Hidden { file: call.at(at), pages });
        }
        let after = write(at).and_then(|()| size()).inspect_err(|_| self.end_guard())?;
        *tail = Some((call.at(at).end, after));
        Ok(())
    }

    /// Writes back `data`, pages that mappings changed, by `write`: but for the bytes that are guarded.
    pub(super) fn write_back(&self, offset: u64, data: &[u8], mut write: impl FnMut(u64, &[u8]) -> FsResult<()>) -> FsResult<()> {
        let guarded = self.guarded();
        let Some(hidden) = &*guarded else { return write(offset, data) };
        let wrong = [Some(&hidden.file), hidden.pages.as_ref()];
        let parts = wrong
            .into_iter()
            .flatten()
            .fold(vec![(offset, data)], |parts, wrong| parts.into_iter().flat_map(|part| without(part, wrong)).collect());
        parts.into_iter().try_for_each(|(at, part)| write(at, part))
    }

    /// The next append goes to the end of the last row.
    pub(super) fn end_tail(&self) {
        *self.writes.tail.lock() = None;
    }

    fn end_guard(&self) {
        *self.writes.guarded.lock() = None;
    }
}

/// The bytes before and behind `wrong`.
fn without<'a>((offset, data): (u64, &'a [u8]), wrong: &Range<u64>) -> impl Iterator<Item = (u64, &'a [u8])> {
    let index = |at: u64| usize::try_from(at.saturating_sub(offset)).unwrap_or(usize::MAX).min(data.len());
    let (start, end) = (index(wrong.start), index(wrong.end));
    let parts = [(offset, data.get(..start).unwrap_or_default()), (offset.saturating_add(end as u64), data.get(end..).unwrap_or_default())];
    parts.into_iter().filter(|(_, part)| !part.is_empty())
}

impl ContainerFs {
    /// The last write through `handle`, if pages of it must be dropped.
    pub(super) fn hidden_by(&self, handle: Handle) -> Option<Hidden> {
        let handles = self.handles.read();
        let owner = handles.get(&handle.0)?.owner.as_ref()?;
        let hidden = owner.node.writes.guarded.lock().clone()?;
        // Nobody else has pages: whoever opens the file now reads what was written.
        if hidden.pages.is_none() && owner.node.opens() <= 1 {
            owner.node.end_guard();
            return None;
        }
        Some(hidden)
    }

    /// The pages that [`ContainerFs::hidden_by`] named are dropped.
    pub(super) fn note_dropped(&self, handle: Handle) {
        if let Some(owner) = self.handles.read().get(&handle.0).and_then(|file| file.owner.as_ref()) {
            owner.node.end_guard();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guarded_ranges_are_left_out_of_what_is_written_back() {
        let data: Vec<u8> = (0..20).collect();
        let left = |wrong: Range<u64>| without((100, &data), &wrong).map(|(at, p)| (at, p[0], p.len())).collect::<Vec<_>>();
        assert_eq!(left(0..100), [(100, 0, 20)]);
        assert_eq!(left(120..130), [(100, 0, 20)]);
        assert_eq!(left(90..105), [(105, 5, 15)]);
        assert_eq!(left(110..112), [(100, 0, 10), (112, 12, 8)]);
        assert_eq!(left(115..200), [(100, 0, 15)]);
        assert_eq!(left(0..200), []);
    }
}
