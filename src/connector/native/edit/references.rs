//! References in the elements of datasets that are written.
//!
//! Bytes of references are addresses of one file. Those that a program copies from another file
//! mean nothing here, and a program cannot know addresses. So they are never taken: a dataset that
//! becomes one of references holds null in place of whatever bytes it had, and gets its references
//! by what they name (`user.h5dir.references`). While a copying program writes the elements after
//! that, the references stay as they are; any other write that would change them, but to null, is
//! `EPERM`.
//!
//! A reference to an object that is not there yet is null, and is tried again before each commit,
//! at the end for the last time.

use super::super::NativeConnector;
use super::super::dataset::Dataset;
use super::super::references::ReferenceTable;
use super::Editing;
use super::attributes::Values;
use super::bytes_file::is_bytes_file;
use super::change_parts::ReferenceChange;
use super::errors::invalid;
use crate::base::datatype::{Class, Datatype, References as Places};
use crate::base::{Error, Result, limits};
use crate::connector::edit::NewReference;
use crate::connector::{NewValue, ObjectId, Part};
use crate::dataset::parts::store_elements;
use crate::dataset::reference;
use crate::meta::Store;
use std::cell::Cell;
use std::ops::Range;

/// References that are tried again before a commit that is not the last one.
const RETRIED_MAX: usize = 4096;
/// Bytes of paths of all references that lead nowhere yet.
const WAITING_MAX: usize = 64 << 20;

/// What is known of the references of a dataset that became one of references.
#[derive(Debug, Default)]
pub(super) struct Copied {
    /// Its elements are being written by the program that made it: references are left out of that.
    pub(super) writing: bool,
    /// References that were not null in bytes that were not taken.
    dropped: u64,
    /// Some of them are in sequences, which no fact names.
    in_sequences: bool,
    /// References that were set by path.
    named: u64,
    /// Those of them that lead nowhere yet, by number.
    waiting: Vec<(u64, NewReference)>,
}

impl NativeConnector {
    /// True if the elements of the dataset `id` hold references.
    pub(super) fn holds_references(&self, id: ObjectId) -> Result<bool> {
        Ok(self.access().dataset(id)?.dataset.datatype.contains_reference())
    }
}

impl Editing {
    fn is_copied(&self, id: ObjectId) -> bool {
        self.objects.pending(id, |p| p.references.as_ref().is_some_and(|c| c.writing)) == Some(true)
    }

    /// Changes what is known of the references of `id`, if its type was set by this mount.
    fn change_references(&self, id: ObjectId, f: impl FnOnce(&mut Copied)) {
        self.objects.change_pending(id, |p| p.references.as_mut().map(f));
    }

    fn note_dropped(&self, id: ObjectId, n: u64) {
        self.change_references(id, |c| c.dropped = c.dropped.saturating_add(n));
    }
}

fn not_taken() -> Error {
    Error::refused(libc::EPERM, "bytes of references are addresses in one file: user.h5dir.references sets them by paths")
}

impl ReferenceChange<'_> {
    /// The dataset `id` is about to become one of references. `filled`: it has bytes.
    pub(super) fn begin_references(&self, id: ObjectId, filled: bool) {
        // Programs that set attributes of a closed file with bytes (`rsync`) write no more.
        let writing = !filled || self.change.editing.objects.is_held(id);
        self.change.editing.objects.change_pending(id, |p| {
            let waiting = p.references.take().map(|early| early.waiting).unwrap_or_default();
            p.references = Some(Copied { writing, named: waiting.len() as u64, waiting, ..Copied::default() });
        });
    }

    /// The dataset `id` became one of another type, without references.
    pub(super) fn end_references(&self, id: ObjectId) {
        let dropped = self.change.editing.objects.change_pending(id, |p| p.references.take());
        if dropped.is_some_and(|c| !c.waiting.is_empty()) {
            tracing::warn!("object at {}: the references that were set are dropped: the new type has none", id.address);
        }
    }

    /// Sets references in `elements`, which are whole and were made of bytes of another type, to
    /// null.
    pub(super) fn clear_references(&self, d: &Dataset, places: &Places, elements: &mut [u8]) {
        let n = places.clear(elements, usize::try_from(d.element_size).unwrap_or(usize::MAX));
        self.change.editing.note_dropped(d.id, n);
    }

    /// Elements with references in sequences were made of their exact form.
    pub(super) fn note_sequences(&self, id: ObjectId) {
        self.change.editing.change_references(id, |c| c.in_sequences = true);
    }

    /// Errors: the dataset's form cannot be written, as it holds references.
    pub(super) fn check_form(&self, d: &Dataset) -> Result<()> {
        let fine = !d.datatype.contains_reference() || self.change.editing.is_copied(d.id);
        if fine { Ok(()) } else { Err(not_taken()) }
    }

    /// `bytes`, to be written at `offset`, with the references that the dataset has; `None`: it has
    /// none. Errors: they would be other ones.
    pub(super) fn keep_references(&self, d: &Dataset, offset: u64, bytes: &[u8]) -> Result<Option<Vec<u8>>> {
        let Some(places) = Places::of(&d.datatype) else { return Ok(None) };
        let size = d.element_size.max(1);
        let skip = offset % size;
        let whole = skip.saturating_add(bytes.len() as u64).checked_next_multiple_of(size);
        let Some(whole) = whole.and_then(|n| usize::try_from(n).ok()).filter(|_| size <= limits::ELEMENT_BYTES_MAX) else {
            return Err(Error::refused(libc::EOPNOTSUPP, "elements with references are too large"));
        };
        let mut old = vec![0u8; whole];
        d.bytes.read(&self.change.connector.options.environment, offset.saturating_sub(skip), &mut old)?;
        let start = usize::try_from(skip).unwrap_or(usize::MAX);
        let range = start..start.saturating_add(bytes.len());
        let mut new = old.clone();
        if let Some(part) = new.get_mut(range.clone()) {
            part.copy_from_slice(bytes);
        }
        let (writing, ends) = (self.change.editing.is_copied(d.id), range.clone());
        let (mut dropped, size) = (0u64, usize::try_from(size).unwrap_or(usize::MAX));
        for (n, (old, new)) in old.chunks_exact(size).zip(new.chunks_exact_mut(size)).enumerate() {
            places.each(&mut |at, t| {
                let last = n.saturating_mul(size).saturating_add(at).saturating_add(t.size as usize).saturating_sub(1);
                let part = at..at.saturating_add(t.size as usize);
                let (Some(old), Some(new)) = (old.get(part.clone()), new.get_mut(part)) else { return Ok(()) };
                let null = new.iter().all(|b| *b == 0);
                if old == new || null && !writing {
                    return Ok(());
                }
                if !writing {
                    return Err(not_taken());
                }
                // One that two requests write is counted once; one that is there already is not
                // lost.
                let lost = !null && ends.contains(&last) && old.iter().all(|b| *b == 0);
                dropped = dropped.saturating_add(lost.into());
                new.copy_from_slice(old);
                Ok(())
            })?;
        }
        self.change.editing.note_dropped(d.id, dropped);
        Ok(new.get(range).map(<[u8]>::to_vec))
    }

    /// Sets references from number `first` on.
    pub(super) fn set_references(&self, id: ObjectId, first: u64, entries: Vec<NewReference>) -> Result<()> {
        let d = self.change.dataset(id)?;
        let end = first.saturating_add(entries.len() as u64);
        if is_bytes_file(&d) {
            // Copying programs set extended attributes in any order: the type comes later.
            return self.wait_for_objects(id, first..end, (first..).zip(entries).collect());
        }
        if !ReferenceTable::of(&d).is_some_and(|t| end <= t.total && first < t.total) {
            return Err(invalid(format!("the dataset has no {} references from number {first} on", entries.len())));
        }
        // A null reference replaces an earlier one.
        let all: Vec<_> = (first..).zip(entries).collect();
        let named = all.iter().filter(|(_, entry)| *entry != NewReference::Nil).count() as u64;
        let left = self.put_references(&d, &all)?;
        // Elements that are written as a whole later begin with null ones.
        let again = d.datatype.contains_vlen() && self.change.editing.is_copied(id);
        self.wait_for_objects(id, first..end, if again { all } else { left })?;
        self.change.editing.change_references(id, |c| c.named = c.named.saturating_add(named));
        self.change.changed(id);
        self.change.objects().note_change(id)
    }

    /// Sets all elements. References that lead nowhere are null.
    pub(super) fn set_elements(&self, id: ObjectId, elements: &NewValue) -> Result<()> {
        let d = self.change.dataset(id)?;
        if !d.datatype.is_like(&elements.datatype) || elements.shape.count() != Some(d.elements()) {
            return Err(invalid("the elements do not fit the type and shape of the dataset"));
        }
        let (store, nowhere) = (self.change.store()?, Cell::new(false));
        let mut values = Values { nowhere: Some(&nowhere), ..Values::new(self.change, &store) };
        let bytes = store_elements(elements, &mut values)?;
        self.change.data().free_sequences(&d)?;
        self.change.data().put_elements(id, 0, &bytes)?;
        self.change.changed(id);
        self.change.objects().note_change(id)
    }

    /// Keeps the references `left` of those with the numbers `of`, to be tried again.
    fn wait_for_objects(&self, id: ObjectId, of: Range<u64>, left: Vec<(u64, NewReference)>) -> Result<()> {
        let bytes = |c: &Copied| c.waiting.iter().map(|(_, entry)| len(entry).saturating_add(32)).sum::<usize>();
        let mut pending = self.change.editing.objects.all_pending();
        pending.change(id, |p| {
            let c = p.references.get_or_insert_default();
            c.waiting.retain(|(n, _)| !of.contains(n));
            c.waiting.extend(left.into_iter().filter(|(_, entry)| *entry != NewReference::Nil));
        });
        if pending.iter().filter_map(|(_, p)| p.references.as_ref()).map(bytes).sum::<usize>() > WAITING_MAX {
            pending.change(id, |p| p.references = None);
            return Err(Error::refused(libc::EBUSY, "too many references lead to objects that are not there yet"));
        }
        Ok(())
    }

    /// Writes references; returns those that lead nowhere, which are null.
    fn put_references(&self, d: &Dataset, all: &[(u64, NewReference)]) -> Result<Vec<(u64, NewReference)>> {
        let (store, mut left) = (self.change.store()?, Vec::new());
        let Some(table) = ReferenceTable::of(d) else { return Ok(left) };
        for (n, entry) in all {
            // It may have become shorter.
            let Some((at, t)) = table.place(*n) else { continue };
            let bytes = self.reference(&store, t, entry)?;
            if bytes.is_none() && *entry != NewReference::Nil {
                left.push((*n, entry.clone()));
            }
            let bytes = bytes.unwrap_or_else(|| vec![0; t.size as usize]);
            let mut there = vec![0; bytes.len()];
            d.bytes.read(&self.change.connector.options.environment, at, &mut there)?;
            if there != bytes {
                self.change.data().put_elements(d.id, at, &bytes)?;
                self.change.dirty_chunks().flush_if_many(d.id)?;
            }
        }
        Ok(left)
    }

    /// The bytes of the reference of type `t`; `None` if it is nil or names no object.
    fn reference(&self, store: &Store, t: &Datatype, entry: &NewReference) -> Result<Option<Vec<u8>>> {
        let (NewReference::To(target), Class::Reference(r)) = (entry, &t.class) else { return Ok(None) };
        // A type of references to regions names no object as a whole, the others of that age
        // nothing else.
        let fits = match &target.part {
            Part::Object => r.is_standard() || !r.is_region(),
            Part::Region(_) => r.is_standard() || r.is_region(),
            Part::Attribute(_) => r.is_standard(),
        };
        let nowhere = Cell::new(false);
        let mut values = Values { nowhere: Some(&nowhere), ..Values::new(self.change, store) };
        match fits.then(|| reference::encode(r, t.size as usize, target, &mut values)).transpose() {
            Ok(bytes) => Ok(bytes.filter(|_| !nowhere.get())),
            Err(Error::Refused { .. }) => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// Tries again to lead references to their objects. `last`: says of which datasets some are
    /// null.
    pub(super) fn lead_elements(&self, last: bool) {
        let mut all = self.change.editing.objects.all_pending().take(|p| p.references.take());
        let waiting: usize = all.iter().map(|(_, c)| c.waiting.len()).sum();
        for (id, c) in &mut all {
            if !c.waiting.is_empty() && (last || waiting <= RETRIED_MAX) {
                self.lead_one(*id, c);
            }
            let lost = c.dropped.saturating_sub(c.named).saturating_add(if last { c.waiting.len() as u64 } else { 0 });
            if last && c.in_sequences {
                tracing::warn!("object at {}: references in sequences are null: no fact names them", id.address);
            }
            if last && !c.waiting.is_empty() && self.change.dataset(*id).is_ok_and(|d| is_bytes_file(&d)) {
                tracing::warn!("object at {}: the references that were set are dropped: it stayed a file of bytes", id.address);
            } else if last && lost > 0 {
                tracing::warn!("object at {}: {lost} references are null: their targets were not copied or not named", id.address);
            }
        }
        if !last {
            let mut pending = self.change.editing.objects.all_pending();
            all.into_iter().for_each(|(id, c)| pending.change(id, |p| p.references = Some(c)));
        }
    }

    fn lead_one(&self, id: ObjectId, c: &mut Copied) {
        let waiting = c.waiting.clone();
        let done = self.change.atomically(|| {
            let d = self.change.dataset(id)?;
            if is_bytes_file(&d) {
                return Ok((Vec::new(), true));
            }
            let left = self.put_references(&d, &waiting)?;
            Ok((left, d.datatype.contains_vlen() && c.writing))
        });
        match done {
            Ok((_, true)) => {}
            Ok((left, false)) => c.waiting = left,
            Err(e) => tracing::warn!("object at {}: references stay null: {e}", id.address),
        }
        self.change.changed(id);
    }
}

/// Bytes of what `entry` names.
fn len(entry: &NewReference) -> usize {
    match entry {
        NewReference::To(target) => target.object.len(),
        NewReference::Nil | NewReference::Unknown => 0,
    }
}
