//! Changes of elements that lie apart, many in one operation.

use super::NativeConnector;
use super::attributes::Values;
use super::change_parts::DataChange;
use super::errors::invalid;
use crate::base::element_set::ElementSet;
use crate::base::{Error, Result};
use crate::connector::edit::each_range;
use crate::connector::{Form, NewValue, ObjectId};
use crate::dataset::parts::store_elements;
use std::cell::Cell;
use std::ops::Range;

/// Ranges and blocks that one operation changes: readers wait for it.
const RANGES_AT_ONCE: usize = 1 << 12;
/// Elements of a block that is erased together with others.
const BLOCK_ELEMENTS: u64 = 1 << 16;

impl NativeConnector {
    /// Writes `bytes` to `ranges`, bytes of the dataset `id`, several in an operation.
    pub(super) fn write_apart(&self, id: ObjectId, ranges: &[Range<u64>], bytes: &[u8]) -> Result<()> {
        let mut rest = bytes;
        for some in ranges.chunks(RANGES_AT_ONCE) {
            let n = some.iter().fold(0u64, |n, r| n.saturating_add(r.end.saturating_sub(r.start)));
            let parts = usize::try_from(n).ok().and_then(|n| rest.split_at_checked(n));
            let (part, more) = parts.ok_or_else(|| invalid("fewer bytes than the ranges have"))?;
            rest = more;
            if self.other_files().leads_elsewhere(id)? {
                let mut parts = Vec::with_capacity(some.len());
                each_range(some, part, &mut |offset, bytes| {
                    parts.push((offset, bytes));
                    Ok(())
                })?;
                self.other_files().write_across(id, &parts)?;
                continue;
            }
            self.write_back().admit_write()?;
            self.operate(&[id], |c| c.data().write_ranges(id, some, part))?;
        }
        Ok(())
    }

    /// Makes the elements of `set` undefined, small blocks of it several in an operation.
    pub(super) fn erase_apart(&self, id: ObjectId, set: &ElementSet, erase_block: &dyn Fn(&[u64], &[u64]) -> Result<()>) -> Result<()> {
        let mut small: Vec<(Vec<u64>, Vec<u64>)> = Vec::new();
        let erase_small = |blocks: &mut Vec<(Vec<u64>, Vec<u64>)>| {
            let blocks = std::mem::take(blocks);
            self.operate(&[id], |c| blocks.iter().try_for_each(|(first, end)| c.data().erase_whole(id, first, end)))
        };
        set.try_each_block(&mut |first, end| {
            let elements = first.iter().zip(end).fold(1u64, |n, (f, e)| n.saturating_mul(e.saturating_sub(*f)));
            if elements > BLOCK_ELEMENTS {
                return erase_block(first, end);
            }
            small.push((first.to_vec(), end.to_vec()));
            if small.len() < RANGES_AT_ONCE { Ok(()) } else { erase_small(&mut small) }
        })?;
        if small.is_empty() { Ok(()) } else { erase_small(&mut small) }
    }
}

impl DataChange<'_> {
    fn write_ranges(&self, id: ObjectId, ranges: &[Range<u64>], bytes: &[u8]) -> Result<()> {
        let size = self.change.dataset(id)?.bytes.size;
        if ranges.last().is_some_and(|last| last.end > size) {
            return Err(Error::refused(libc::EFBIG, "the dataset has fewer elements than the selection was made for"));
        }
        each_range(ranges, bytes, &mut |offset, part| {
            self.write(id, Form::Main, offset, part)?;
            self.change.dirty_chunks().flush_if_many(id)
        })
    }

    fn erase_whole(&self, id: ObjectId, first: &[u64], end: &[u64]) -> Result<()> {
        let mut next = Some(0);
        while let Some(from) = next {
            next = self.erase(id, first, end, from)?;
        }
        Ok(())
    }

    /// Sets elements of variable length, and frees the parts of those before.
    pub(super) fn set_elements_of(&self, id: ObjectId, elements: &[Range<u64>], values: &NewValue) -> Result<()> {
        let d = self.change.writable_dataset(id)?;
        if d.layout().mapped().is_some() {
            return Err(Error::refused(libc::EPERM, "elements of variable length are written to the sources of a virtual dataset"));
        }
        if self.change.editing.objects.pending(id, |p| p.rewrite.is_some()) == Some(true) {
            return Err(Error::refused(libc::EBUSY, "the dataset is being written through an open file"));
        }
        let count = elements.iter().fold(0u64, |n, r| n.saturating_add(r.end.saturating_sub(r.start)));
        let is_within = elements.last().is_none_or(|last| last.end <= d.elements());
        if !d.datatype.is_like(&values.datatype) || values.shape.count() != Some(count) || !is_within {
            return Err(invalid("the elements do not fit the type and shape of the dataset"));
        }
        let (store, nowhere) = (self.change.store()?, Cell::new(false));
        let bytes = store_elements(values, &mut Values { nowhere: Some(&nowhere), ..Values::new(self.change, &store) })?;
        let size = d.element_size;
        let ranges: Vec<Range<u64>> = elements.iter().map(|r| r.start.saturating_mul(size)..r.end.saturating_mul(size)).collect();
        for range in &ranges {
            self.free_sequences_in(&d, range.clone())?;
        }
        drop(d);
        each_range(&ranges, &bytes, &mut |offset, part| self.put_elements(id, offset, part))?;
        self.change.changed(id);
        self.change.objects().touch(id)
    }
}
