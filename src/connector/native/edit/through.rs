//! Writes virtual datasets: their elements go to the sources.
//!
//! All sources are checked before the first is written. A write to sources in one file is one
//! operation: a commit has all of it or nothing. What sources in other files get is collected, and
//! written when the operation is done (`write_across`).

use super::super::dataset::Dataset;
use super::super::virtual_::SOURCE_FILE;
use super::change_parts::DataChange;
use super::{Change, Editing};
use crate::base::budget::Budget;
use crate::base::locks::Mutex;
use crate::base::{Error, Result, limits};
use crate::connector::{Form, ObjectId};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

/// Parts of sources that one write may visit, besides those in proportion to its bytes: in a
/// hostile file many mappings of each of several nested datasets have the same element.
const PARTS_MIN: u64 = 1 << 12;
/// Parts of sources per byte of a write: a mapping an element, in four nested datasets.
const PARTS_PER_BYTE: u64 = 4;
/// Memory for what one write has for other files, bytes: at least, and per byte of the write. A
/// part of one byte takes 49.
const MEMORY_MIN_BYTES: u64 = 16 << 20;
const MEMORY_PER_BYTE: u64 = 64;

/// Why an operation that is no write does not reach sources in other files.
const ONE_FILE: &str =
    "this operation changes one HDF5 file, and a source of the virtual dataset is in another: only writing bytes reaches it";

/// An offset and the bytes to be written there.
pub(super) type NewPart<'a> = (u64, &'a [u8]);

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
        sources.into_iter().try_for_each(|source| match source.file {
            0 => self.report_write_error(source),
            _ => self.others.report_error(source),
        })
    }

    /// Numbers of the files that were written through virtual datasets that are open.
    pub(super) fn files_written_through(&self) -> BTreeSet<u32> {
        self.written_through.0.lock().values().flat_map(|sources| sources.all.iter().map(|id| id.file)).collect()
    }

    /// No file of the dataset `id` is open.
    pub(super) fn forget_written_through(&self, id: ObjectId) {
        self.written_through.0.lock().remove(&id);
    }
}

/// Bytes that a write has for sources in other files.
#[derive(Default)]
pub(super) struct ForOthers {
    /// Sources of files that must be opened before.
    pub(super) missing: BTreeSet<ObjectId>,
    /// All sources in other files.
    all: BTreeSet<ObjectId>,
    /// In the order in which they are written.
    pub(super) parts: Vec<PartForOther>,
    /// What the parts get, one after another.
    pub(super) bytes: Vec<u8>,
}

/// A part of [`ForOthers`].
pub(super) struct PartForOther {
    pub(super) source: ObjectId,
    /// First byte of the source.
    pub(super) offset: u64,
    /// In [`ForOthers::bytes`].
    pub(super) bytes: Range<usize>,
}

impl ForOthers {
    /// Numbers of the files with sources.
    pub(super) fn files(&self) -> BTreeSet<u32> {
        self.all.iter().map(|id| id.file).collect()
    }

    /// Adds `bytes` at `offset` of `source`. Errors: more than `most` bytes of memory.
    fn add(&mut self, source: ObjectId, offset: u64, bytes: &[u8], most: u64) -> Result<()> {
        let start = self.bytes.len();
        let end = start.saturating_add(bytes.len());
        self.bytes.extend_from_slice(bytes);
        match self.parts.last_mut() {
            Some(last) if last.source == source && last.offset.saturating_add(last.bytes.len() as u64) == offset => last.bytes.end = end,
            _ => self.parts.push(PartForOther { source, offset, bytes: start..end }),
        }
        let memory = self.parts.len().saturating_mul(size_of::<PartForOther>()).saturating_add(end);
        if memory as u64 > most {
            return Err(Error::limit("virtual dataset", source.address, "one write has too many bytes for its sources"));
        }
        Ok(())
    }
}

/// A write to a virtual dataset under way.
struct Through<'a> {
    change: &'a Change<'a>,
    steps: Budget,
    /// Sources that take the write.
    sources: BTreeSet<ObjectId>,
    /// What sources in other files get; `None`: such sources are refused.
    others: Option<&'a RefCell<ForOthers>>,
    /// Memory for that, bytes.
    most: u64,
}

impl DataChange<'_> {
    /// Writes `parts` of the virtual dataset `d`, offsets within its size and the bytes there, to
    /// its sources. What sources in other files get is added to `others`, which the caller writes
    /// next. Errors: also if some of them must be opened before; nothing was written then.
    pub(super) fn write_through(&self, d: &Dataset, parts: &[NewPart<'_>], others: Option<&RefCell<ForOthers>>) -> Result<()> {
        let len = parts.iter().fold(0u64, |n, (_, bytes)| n.saturating_add(bytes.len() as u64));
        let steps = len.saturating_mul(PARTS_PER_BYTE).saturating_add(PARTS_MIN);
        let most = len.saturating_mul(MEMORY_PER_BYTE).saturating_add(MEMORY_MIN_BYTES);
        let mut through =
            Through { change: self.change, steps: Budget::new(steps, "virtual dataset"), sources: BTreeSet::new(), others, most };
        for (offset, bytes) in parts {
            through.check(d, *offset..offset.saturating_add(bytes.len() as u64), &mut Vec::new())?;
        }
        if others.is_some_and(|others| !others.borrow().missing.is_empty()) {
            return Err(Error::refused(libc::EAGAIN, "source files are opened first"));
        }
        parts.iter().try_for_each(|(offset, bytes)| through.write(d, *offset, bytes))?;
        self.change.editing.note_written_through(d.id, through.sources);
        Ok(())
    }
}

impl Through<'_> {
    /// The dataset at `id` if it is virtual, or in the mounted file. `None`: its elements are in
    /// another file.
    fn opened(&self, id: ObjectId) -> Result<Option<Arc<Dataset>>> {
        if self.change.connector.other_files().written_elsewhere(id).is_some() {
            return Ok(None);
        }
        let d = self.change.dataset(id)?;
        Ok((id.file == 0 || d.layout().mapped().is_some()).then_some(d))
    }

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
        let checked = mapped.sources(range, &mut |(file, address), part| {
            self.steps.spend(1)?;
            let id = ObjectId { file, address };
            if file == 0 {
                self.check_own(id)?;
            }
            match self.opened(id)? {
                Some(source) => self.check(&source, part, way),
                None => self.check_other(id),
            }
        });
        way.pop();
        checked.map_err(|e| match e {
            Error::Missing { what: SOURCE_FILE, name, .. } => {
                self.change.connector.options.neighbours.missing_to_write(&d.object.file.directory, name.as_bytes())
            }
            e => e,
        })
    }

    /// Checks that the source `id` of the mounted file can be written.
    fn check_own(&mut self, id: ObjectId) -> Result<()> {
        if self.sources.contains(&id) {
            return Ok(());
        }
        self.change.editing.report_write_error(id)?;
        self.change.editing.check_refused(id)?;
        self.change.writable_dataset(id)?;
        self.sources.insert(id);
        Ok(())
    }

    /// Checks that the source `id` of another file can be written, if that file is open.
    fn check_other(&mut self, id: ObjectId) -> Result<()> {
        if self.sources.contains(&id) {
            return Ok(());
        }
        let is_open = self.change.connector.other_files().is_open_elsewhere(id)?;
        let Some(others) = self.others else {
            return Err(Error::refused(libc::EXDEV, ONE_FILE));
        };
        let mut others = others.borrow_mut();
        others.all.insert(id);
        if !is_open {
            others.missing.insert(id);
        }
        self.sources.insert(id);
        Ok(())
    }

    /// Writes what [`Through::check`] accepted.
    fn write(&self, d: &Dataset, offset: u64, bytes: &[u8]) -> Result<()> {
        let Some(mapped) = d.layout().mapped() else { return self.change.data().write(d.id, Form::Main, offset, bytes) };
        mapped.write(offset, bytes, &mut |(file, address), at, part| {
            self.steps.spend(1)?;
            let id = ObjectId { file, address };
            match (self.opened(id)?, self.others) {
                (Some(source), _) => self.write(&source, at, part)?,
                (None, Some(others)) => return others.borrow_mut().add(id, at, part, self.most),
                (None, None) => return Err(Error::refused(libc::EXDEV, ONE_FILE)),
            }
            self.change.dirty_chunks().flush_if_many(id)
        })
    }
}
