//! Makes elements of datasets undefined.

use super::super::NativeConnector;
use super::Change;
use super::holes::Touched;
use crate::base::element_set::ElementSet;
use crate::base::{Error, Result};
use crate::connector::ObjectId;
use crate::connector::edit::Erase;

impl Erase for NativeConnector {
    fn punch(&self, id: ObjectId, offset: u64, len: u64) -> Result<()> {
        let range = offset..offset.saturating_add(len);
        self.note_holes(id, Touched::Punched(range.clone()))?;
        self.in_steps(id, &|c, at| c.zero(id, range.clone(), at, true))
    }

    fn erase(&self, id: ObjectId, first: &[u64], end: &[u64]) -> Result<()> {
        let knows = {
            let _shared = self.shared();
            self.dataset(id)?.dataset.layout().definition().is_some()
        };
        if knows {
            return self.in_steps(id, &|c, at| c.erase(id, first, end, at));
        }
        // Erasing elsewhere is punching.
        let (dims, size) = {
            let _shared = self.shared();
            let d = &self.dataset(id)?.dataset;
            (d.space.dims.clone(), d.element_size)
        };
        ElementSet::block(first, end).for_each_run(&dims, &mut |run| {
            let bytes = |n: u64| n.checked_mul(size).ok_or_else(|| Error::refused(libc::EFBIG, "elements past 2^64 bytes"));
            self.punch(id, bytes(run.start)?, bytes(run.end.saturating_sub(run.start))?)
        })
    }
}

impl Change<'_> {
    /// Makes the elements of a block undefined from position `from` on. Returns where the next step
    /// begins, if any is left.
    fn erase(&self, id: ObjectId, first: &[u64], end: &[u64], from: u64) -> Result<Option<u64>> {
        let d = self.writable_dataset(id)?;
        let end: Vec<u64> = end.iter().zip(&d.space.dims).map(|(e, n)| *e.min(n)).collect();
        let first: Vec<u64> = first.iter().zip(&end).map(|(f, e)| *f.min(e)).collect();
        let none = || Error::refused(libc::EOPNOTSUPP, "the dataset does not know which of its elements are defined");
        let definition = d.layout().definition().ok_or_else(none)?;
        if from == 0 && d.datatype.contains_vlen() {
            ElementSet::block(&first, &end).for_each_run(&d.space.dims, &mut |run| {
                self.free_sequences_in(&d, run.start.saturating_mul(d.element_size)..run.end.saturating_mul(d.element_size))
            })?;
        }
        let progress = definition.erase(&self.operation(&d, &d.space), &first, &end, from)?;
        self.progressed(&d, progress)
    }
}
