//! Ranges of datasets: zeroing, allocating, copying.

use super::super::NativeConnector;
use super::super::dataset::Dataset;
use super::Change;
use super::data::PIECE;
use crate::base::{Error, Result};
use crate::connector::ObjectId;
use crate::dataset::ranges::Progress;
use crate::dataset::storage::Storage;
use crate::format::message::data_layout::DataLayout;
use std::ops::Range;
use std::sync::Arc;

/// Bytes zeroed by writing in one operation.
const STEP: u64 = 16 << 20;

impl Change<'_> {
    /// Zeroes bytes within the dataset's size, from a place on that an earlier call told; returns the next one.
    pub(super) fn zero(&self, id: ObjectId, range: Range<u64>, from: u64) -> Result<Option<u64>> {
        let d = self.writable_dataset(id)?;
        if d.datatype.contains_vlen() {
            return Err(Error::refused(libc::EOPNOTSUPP, "there is nothing to be zeroed in lines"));
        }
        let range = range.start..range.end.min(d.bytes.size);
        if range.is_empty() {
            return Ok(None);
        }
        if d.chunked().is_some() && d.bytes.fill.is_zero() {
            return self.in_chunks(&d, |layout, d| self.chunks(d).writer(self)?.zero(layout, &range, from));
        }
        let zeros = vec![0u8; PIECE];
        let (mut at, end) = (range.start.max(from), range.end);
        let stop = end.min(at.saturating_add(STEP));
        while at < stop {
            let d = self.dataset(id)?;
            // What was never written and reads as zeros stays so.
            if let (true, Some(hole)) = (d.bytes.fill.is_zero(), d.bytes.unwritten(at)?) {
                at = hole.max(at.saturating_add(1));
                continue;
            }
            let n = usize::try_from(stop.saturating_sub(at)).unwrap_or(PIECE).min(PIECE);
            self.write(id, at, zeros.get(..n).unwrap_or_default())?;
            at = at.saturating_add(n as u64);
        }
        Ok((at < end).then_some(at))
    }

    /// Allocates storage for bytes within the dataset's size, from a place on that an earlier call told; returns the next one.
    pub(super) fn allocate(&self, id: ObjectId, range: Range<u64>, from: u64) -> Result<Option<u64>> {
        let d = self.writable_dataset(id)?;
        let range = range.start..range.end.min(d.bytes.size);
        if range.is_empty() || d.datatype.contains_vlen() {
            return Ok(None);
        }
        match &d.bytes.storage {
            Storage::Contiguous(address) if !address.is_defined() => {
                self.allocate_contiguous(&d, (0, 0), true)?;
                self.touch(id)?;
                Ok(None)
            }
            Storage::Chunked(_) => self.in_chunks(&d, |layout, d| self.chunks(d).writer(self)?.allocate(layout, &range, from)),
            Storage::Compact(_) | Storage::Contiguous(_) => Ok(None),
            Storage::External(_) | Storage::Virtual(_) => {
                Err(Error::refused(libc::EOPNOTSUPP, "the dataset's elements lie elsewhere: nothing is allocated for them"))
            }
        }
    }

    /// Changes which chunks a dataset has.
    fn in_chunks(&self, d: &Arc<Dataset>, f: impl FnOnce(&mut DataLayout, &Arc<Dataset>) -> Result<Progress>) -> Result<Option<u64>> {
        let mut layout = d.layout.clone();
        let progress = f(&mut layout, d)?;
        if progress.layout {
            self.set_layout(d, &layout)?;
        }
        self.changed(d.id);
        self.touch(d.id)?;
        Ok(progress.next)
    }
}

impl NativeConnector {
    /// Copies a range; see [`crate::connector::edit::Edit::copy_range`].
    pub(super) fn copy_bytes(&self, _from: (ObjectId, u64), _to: (ObjectId, u64), _len: u64) -> Result<u64> {
        Err(Error::refused(libc::EOPNOTSUPP, "later"))
    }
}
