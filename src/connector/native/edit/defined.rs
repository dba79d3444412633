//! Makes elements of datasets undefined.

mod set;

use super::super::NativeConnector;
use super::bytes_file::is_bytes_file;
use super::change_parts::DataChange;
use crate::base::element_set::ElementSet;
use crate::base::{Error, Result};
use crate::connector::ObjectId;
use crate::connector::defined::unknown;
use crate::connector::edit::Erase;
use std::ops::Range;

/// Elements of variable length that one operation erases.
const ERASED_ELEMENTS: usize = 1 << 14;

impl Erase for NativeConnector {
    fn punch(&self, id: ObjectId, offset: u64, len: u64) -> Result<()> {
        let range = offset..offset.saturating_add(len);
        if self.other_files().leads_elsewhere(id)? {
            return self.other_files().zero_across(id, range);
        }
        self.in_steps(id, &|c, at| c.data().zero(id, range.clone(), at, true))
    }

    fn erase(&self, id: ObjectId, first: &[u64], end: &[u64]) -> Result<()> {
        let (dims, size, knows, has_parts) = {
            let access = self.access();
            let d = &access.dataset(id)?.dataset;
            (d.space.dims.clone(), d.element_size.max(1), d.layout().definition().is_some(), d.datatype.contains_vlen())
        };
        if knows && !has_parts {
            return self.in_steps(id, &|c, at| c.data().erase(id, first, end, at));
        }
        if knows {
            return ElementSet::block(first, end).for_each_run(&dims, &mut |run| {
                (run.start..run.end).step_by(ERASED_ELEMENTS).try_for_each(|from| {
                    let part = from..from.saturating_add(ERASED_ELEMENTS as u64).min(run.end);
                    self.operate(&[id], |c| c.data().erase_variable(id, part.start.saturating_mul(size)..part.end.saturating_mul(size)))
                })
            });
        }
        // Erasing elsewhere is punching.
        ElementSet::block(first, end).for_each_run(&dims, &mut |run| {
            let bytes = |n: u64| n.checked_mul(size).ok_or_else(|| Error::refused(libc::EFBIG, "elements past 2^64 bytes"));
            self.punch(id, bytes(run.start)?, bytes(run.end.saturating_sub(run.start))?)
        })
    }

    fn erase_set(&self, id: ObjectId, set: &ElementSet) -> Result<()> {
        let plain = {
            let access = self.access();
            let d = &access.dataset(id)?.dataset;
            d.layout().definition().is_some() && !d.datatype.contains_vlen()
        };
        let erase_block = |first: &[u64], end: &[u64]| self.erase(id, first, end);
        if plain {
            return self.erase_apart(id, set, &erase_block);
        }
        set.try_each_block(&mut |first, end| erase_block(first, end))
    }

    fn set_defined(&self, id: ObjectId, range: Range<u64>, defined: &[Range<u64>]) -> Result<()> {
        let blank = self.definitions().is_unwritten(id)?;
        let knows = {
            let access = self.access();
            let d = &access.dataset(id)?.dataset;
            d.layout().definition().is_some() || !is_bytes_file(d)
        };
        if knows {
            self.definitions().change_defined(id, &range, defined)?;
        }
        self.definitions().announce(id, blank || !knows, range, defined);
        Ok(())
    }

    fn writer_closed(&self, id: ObjectId) {
        self.definitions().forget_announced(id);
    }
}

impl DataChange<'_> {
    /// Makes the elements of a block undefined from position `from` on. Returns where the next step
    /// begins, if any is left.
    pub(super) fn erase(&self, id: ObjectId, first: &[u64], end: &[u64], from: u64) -> Result<Option<u64>> {
        let d = self.change.writable_dataset(id)?;
        let end: Vec<u64> = end.iter().zip(&d.space.dims).map(|(e, n)| *e.min(n)).collect();
        let first: Vec<u64> = first.iter().zip(&end).map(|(f, e)| *f.min(e)).collect();
        let definition = d.layout().definition().ok_or_else(unknown)?;
        let progress = definition.erase(&self.change.operation(&d, &d.space), &first, &end, from)?;
        self.progressed(&d, progress)
    }

    /// Makes elements of variable length in `range`, bytes, undefined, and frees their parts: both
    /// or neither.
    fn erase_variable(&self, id: ObjectId, range: Range<u64>) -> Result<()> {
        let d = self.change.writable_dataset(id)?;
        self.free_sequences_in(&d, range.start..range.end.min(d.bytes.size))?;
        self.erase_plain(id, range)
    }

    /// Makes the elements in `range`, bytes, undefined.
    pub(super) fn erase_bytes(&self, id: ObjectId, range: Range<u64>) -> Result<()> {
        let has_parts = self.change.dataset(id)?.datatype.contains_vlen();
        if has_parts { self.erase_variable(id, range) } else { self.erase_plain(id, range) }
    }

    /// Makes the elements in `range`, bytes, undefined. Does not free their parts.
    fn erase_plain(&self, id: ObjectId, range: Range<u64>) -> Result<()> {
        let range = range.start..range.end.min(self.change.dataset(id)?.bytes.size);
        let mut next = (!range.is_empty()).then_some(0);
        while let Some(from) = next {
            let d = self.change.dataset(id)?;
            let none = || Error::refused(libc::EOPNOTSUPP, "the layout cannot erase elements");
            let progress = d.layout().zero(&self.change.operation(&d, &d.space), &range, from)?.ok_or_else(none)?;
            next = self.progressed(&d, progress)?;
        }
        Ok(())
    }
}
