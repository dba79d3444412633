//! Holes of new files: bytes that were never written, exact to the byte.
//!
//! A copying program writes the bytes of a file before it says what the dataset is. A layout that
//! knows which elements were written then learns it from the holes that the program left. Only
//! files with holes have an entry.

use super::super::dataset::Dataset;
use super::connector_parts::Holes;
use super::relayout::{bound_holes, skips_holes};
use crate::base::element_set::ElementSet;
use crate::base::{Error, Result};
use crate::connector::ObjectId;
use crate::dataset::environment::Environment;
use crate::dataset::layout::Seek;
use std::ops::Range;

/// Most holes of one file; what else is not written counts as written.
const HOLES_MAX: u64 = 1 << 16;
/// Bytes of the longest file, as dimensions of a set of bytes.
const BYTES: [u64; 1] = [1 << 63];

/// A change of the bytes of a new file.
#[derive(Debug, Clone)]
pub(super) enum Touched {
    /// They are written.
    Written(Range<u64>),
    /// They are punched.
    Punched(Range<u64>),
    /// The size is set.
    Resized(u64),
}

impl<'a> Holes<'a> {
    /// Notes a change of the bytes of `id`, which has `size` bytes, if it is a new file. The caller
    /// makes the change in the same operation: writes and sizes are noted before, because a byte
    /// that counts as written does no harm, punches afterwards.
    pub(super) fn note_holes(&self, id: ObjectId, size: u64, touched: Touched) -> Result<()> {
        self.note(id, size, touched, true)
    }

    /// As [`Holes::note_holes`], of a change by the extent, which is no use of the bytes.
    pub(super) fn note_extent(&self, id: ObjectId, size: u64, touched: Touched) -> Result<()> {
        self.note(id, size, touched, false)
    }

    fn note(&self, id: ObjectId, size: u64, touched: Touched, uses_bytes: bool) -> Result<()> {
        let Some(editing) = &self.connector.editing else { return Ok(()) };
        let usage = editing.objects.usage(id);
        if usage.is_shape_only && uses_bytes {
            editing.objects.use_object(id, |usage| usage.is_shape_only = false);
        }
        if !(usage.is_new_file || usage.has_exact_holes) {
            return Ok(());
        }
        let grows =
            matches!(&touched, Touched::Written(r) if r.start > size) || matches!(touched, Touched::Resized(_) | Touched::Punched(_));
        if !grows && editing.objects.pending(id, |p| p.holes.is_empty()) != Some(false) {
            return Ok(());
        }
        editing.objects.change_pending(id, |p| touch(&mut p.holes, size, touched))
    }

    /// Finds the elements of `old`, the dataset `id` as it was, that are written to `new`.
    pub(super) fn written(self, id: ObjectId, old: &Dataset, new: &Dataset) -> Result<Written<'a>> {
        let env = &self.connector.options.environment;
        // With another fill value, undefined elements would not read as the zeros of a hole.
        let stay_undefined = new.layout().definition().is_some() && old.bytes.fill == new.bytes.fill;
        if let Some(holes) = self.exact_holes(id).filter(|_| stay_undefined) {
            // Zeros that were written are defined, though they are not stored.
            return Ok(Written { env, skips: false, holes });
        }
        let skips = skips_holes(old, new);
        if !skips {
            bound_holes(old)?;
        }
        Ok(Written { env, skips, holes: ElementSet::default() })
    }

    /// True if `id` is a new file of `size` bytes of which some were written, be it zeros.
    pub(super) fn has_written(&self, id: ObjectId, size: u64) -> bool {
        self.exact_holes(id).is_some_and(|holes| holes.elements() < size)
    }

    /// True if the bytes that the dataset `id` shows, of which nothing is stored, may be zeros that
    /// a program left there: they are kept with another fill value. False if a program has only set
    /// its shape.
    pub(super) fn shows_bytes(&self, id: ObjectId, size: u64) -> bool {
        let is_shape_only = self.connector.editing.as_ref().is_some_and(|editing| editing.objects.usage(id).is_shape_only);
        size > 0 && !is_shape_only
    }

    /// The dataset `id` gets an extent. `before`: its size, bytes.
    pub(super) fn note_shape(&self, id: ObjectId, before: u64) {
        if let Some(editing) = self.connector.editing.as_ref().filter(|_| before == 0) {
            editing.objects.use_object(id, |usage| usage.is_shape_only = true);
        }
    }

    /// All holes of `id`; `None` unless it is a new file.
    fn exact_holes(&self, id: ObjectId) -> Option<ElementSet> {
        let objects = &self.connector.editing.as_ref()?.objects;
        let usage = objects.usage(id);
        let known = usage.has_exact_holes || usage.is_new_file;
        known.then(|| objects.pending(id, |p| p.holes.clone()).unwrap_or_default())
    }

    /// The description of `id` was set: its layout knows what is defined.
    pub(super) fn forget_holes(&self, id: ObjectId) {
        if let Some(editing) = &self.connector.editing {
            editing.objects.use_object(id, |usage| usage.has_exact_holes = false);
            editing.objects.change_pending(id, |p| p.holes = ElementSet::default());
        }
    }
}

/// Notes a change of the bytes of a file of `size` bytes with these holes.
fn touch(holes: &mut ElementSet, size: u64, touched: Touched) -> Result<()> {
    let (written, unwritten) = match touched {
        Touched::Written(r) => (r.clone(), size..r.start),
        Touched::Punched(r) => (0..0, r.start..r.end.min(size)),
        Touched::Resized(to) => (to..size, size..to),
    };
    holes.remove_run(&BYTES, &written)?;
    if unwritten.start < unwritten.end && holes.blocks() < HOLES_MAX {
        holes.insert_run(&BYTES, &unwritten)?;
    }
    Ok(())
}

/// Finds the elements that are copied when a dataset gets another layout.
pub(super) struct Written<'a> {
    env: &'a Environment,
    /// What was never written is not copied.
    skips: bool,
    /// Bytes that are not copied either.
    holes: ElementSet,
}

impl Written<'_> {
    /// The first bytes at or after `at` that are copied; `None`: there are no more.
    pub(super) fn next(&self, d: &Dataset, at: u64) -> Result<Option<Range<u64>>> {
        let size = d.bytes.size;
        let seek = |at, what| Ok::<_, Error>(d.layout().seek(&d.bytes, self.env, at, what)?.unwrap_or(size).min(size));
        let mut at = at;
        while at < size {
            let data = if self.skips { seek(at, Seek::Data)? } else { at };
            if data >= size {
                break;
            }
            let hole = self.holes.next_element(&BYTES, data).unwrap_or(size);
            if hole > data {
                let end = if self.skips { seek(data, Seek::Hole)? } else { size };
                return Ok(Some(data..end.min(hole)));
            }
            at = self.holes.next_gap(&BYTES, data);
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holes_are_what_no_write_touched() {
        let mut holes = ElementSet::default();
        touch(&mut holes, 0, Touched::Written(100..110)).unwrap();
        touch(&mut holes, 110, Touched::Written(20..25)).unwrap();
        touch(&mut holes, 110, Touched::Resized(200)).unwrap();
        touch(&mut holes, 200, Touched::Punched(105..1000)).unwrap();
        touch(&mut holes, 200, Touched::Resized(150)).unwrap();
        let mut found = Vec::new();
        holes
            .for_each_run(&BYTES, &mut |run| {
                found.push(run);
                Ok(())
            })
            .unwrap();
        assert_eq!(found, [0..20, 25..100, 105..150]);
    }
}
