//! Writes virtual datasets: their elements go to the sources, which lie in the mounted file.
//!
//! All sources are checked before the first is written. A write to sources in one file is one
//! operation: a commit has all of it or nothing.

use super::super::dataset::Dataset;
use super::change_parts::DataChange;
use super::{Change, Editing};
use crate::base::budget::Budget;
use crate::base::locks::Mutex;
use crate::base::{Address, Error, Result, limits};
use crate::connector::{Form, ObjectId};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// Parts of sources that one write may visit, besides those in proportion to its bytes: in a
/// hostile file many mappings of each of several nested datasets have the same element.
const PARTS_MIN: u64 = 1 << 12;
/// Parts of sources per byte of a write: a mapping an element, in four nested datasets.
const PARTS_PER_BYTE: u64 = 4;

/// The sources that were written through open virtual datasets.
#[derive(Default)]
pub(super) struct WrittenThrough(Mutex<BTreeMap<ObjectId, Sources>>);

#[derive(Default)]
struct Sources {
    all: BTreeSet<ObjectId>,
    /// Those written since the last [`Editing::take_written_through`].
    new: BTreeSet<ObjectId>,
}

impl Editing {
    /// Notes that a write to the virtual dataset `id` changed `sources`.
    fn note_written_through(&self, id: ObjectId, sources: BTreeSet<ObjectId>) {
        let mut written = self.written_through.0.lock();
        let of_it = written.entry(id).or_default();
        of_it.all.extend(&sources);
        of_it.new.extend(sources);
    }

    /// The sources that writes to the virtual dataset `id` changed since the last call.
    pub(super) fn take_written_through(&self, id: ObjectId) -> Vec<ObjectId> {
        let mut written = self.written_through.0.lock();
        written.get_mut(&id).map_or_else(Vec::new, |sources| std::mem::take(&mut sources.new).into_iter().collect())
    }

    /// The first error of sources that were written through the virtual dataset `id`.
    pub(super) fn report_source_error(&self, id: ObjectId) -> Result<()> {
        let sources = self.written_through.0.lock().get(&id).map(|sources| sources.all.clone()).unwrap_or_default();
        sources.into_iter().try_for_each(|source| self.report_write_error(source))
    }

    /// No file of the dataset `id` is open.
    pub(super) fn forget_written_through(&self, id: ObjectId) {
        self.written_through.0.lock().remove(&id);
    }
}

/// A write to a virtual dataset under way.
struct Through<'a> {
    change: &'a Change<'a>,
    steps: Budget,
    /// Sources that take the write.
    sources: BTreeSet<ObjectId>,
}

impl DataChange<'_> {
    /// Writes `bytes` at `offset` of the virtual dataset `d`, within its size, to its sources.
    pub(super) fn write_through(&self, d: &Dataset, offset: u64, bytes: &[u8]) -> Result<()> {
        let steps = (bytes.len() as u64).saturating_mul(PARTS_PER_BYTE).saturating_add(PARTS_MIN);
        let mut through = Through { change: self.change, steps: Budget::new(steps, "virtual dataset"), sources: BTreeSet::new() };
        through.check(d, offset..offset.saturating_add(bytes.len() as u64), &mut Vec::new())?;
        through.write(d, offset, bytes)?;
        self.change.editing.note_written_through(d.id, through.sources);
        Ok(())
    }
}

impl Through<'_> {
    /// Checks that sources take the bytes of `range` of the virtual dataset `d`. `way`: virtual
    /// datasets on the way to it.
    fn check(&mut self, d: &Dataset, range: Range<u64>, way: &mut Vec<ObjectId>) -> Result<()> {
        let Some(mapped) = d.layout().mapped() else { return Ok(()) };
        if way.len() >= limits::VIRTUAL_DEPTH_MAX {
            return Err(Error::limit("virtual dataset", d.id.address, "virtual datasets nested too deep"));
        }
        if way.contains(&d.id) {
            return Err(Error::refused(libc::ELOOP, "the virtual dataset is among its own sources"));
        }
        if d.datatype.contains_vlen() {
            return Err(Error::refused(libc::EPERM, "elements of variable length are written to the sources of a virtual dataset"));
        }
        way.push(d.id);
        let checked = mapped.sources(range, &mut |place, part| {
            self.steps.spend(1)?;
            let id = self.checked(place)?;
            let source = self.change.dataset(id)?;
            self.check(&source, part, way)
        });
        way.pop();
        checked
    }

    /// The source at `place`, which can be written.
    fn checked(&mut self, (file, address): (u32, Address)) -> Result<ObjectId> {
        let id = ObjectId { file, address };
        if self.sources.contains(&id) {
            return Ok(id);
        }
        if file != 0 {
            let reason = "a source of the virtual dataset is in another HDF5 file: mount that file, and write the source there";
            return Err(Error::refused(libc::EACCES, reason));
        }
        self.change.editing.report_write_error(id)?;
        self.change.editing.check_refused(id)?;
        self.change.writable_dataset(id)?;
        self.sources.insert(id);
        Ok(id)
    }

    /// Writes what [`Through::check`] accepted.
    fn write(&self, d: &Dataset, offset: u64, bytes: &[u8]) -> Result<()> {
        let Some(mapped) = d.layout().mapped() else { return self.change.data().write(d.id, Form::Main, offset, bytes) };
        mapped.write(offset, bytes, &mut |(file, address), at, part| {
            self.steps.spend(1)?;
            let id = ObjectId { file, address };
            self.write(&*self.change.dataset(id)?, at, part)?;
            self.change.dirty_chunks().flush_if_many(id)
        })
    }
}
