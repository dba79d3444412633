//! References in the elements of datasets that are written.
//!
//! Bytes of references are addresses of one file. Those that a program copies from another file mean nothing here, and a program
//! cannot know addresses. So they are never taken: a dataset that becomes one of references holds null in place of whatever
//! bytes it had, and gets its references by `user.h5dir.references` (see [`super::super::references`]). While a copying
//! program writes the elements after that, the references stay as they are; any other write that would change them, but to null,
//! is `EPERM`.
//!
//! A reference to an object that is not there yet is null, and is tried again before each commit, at the end for the last time.

use super::super::dataset::Dataset;
use super::super::references::{PER_FACT, number, table};
use super::attributes::Values;
use super::facts::invalid;
use super::{Change, HashMap};
use crate::base::{Error, Result, limits};
use crate::connector::ObjectId;
use crate::dataset::types::Shape;
use crate::dataset::types::parse::{parse_references, parse_value_into};
use crate::dataset::types::references::References as Places;
use crate::format::message::datatype::Datatype;
use crate::meta::Store;
use parking_lot::Mutex;
use std::cell::Cell;

/// References that are tried again before a commit that is not the last one.
const RETRIED_MAX: usize = 4096;
/// Bytes of paths of all references that lead nowhere yet.
const WAITING_MAX: usize = 64 << 20;

/// What is known of the references of a dataset that became one of references.
#[derive(Debug, Default)]
struct Copied {
    /// Its elements are being written by the program that made it: references are left out of that.
    writing: bool,
    /// References that were not null in bytes that were not taken.
    dropped: u64,
    /// Some of them lie in sequences, which no fact tells.
    in_sequences: bool,
    /// References that were told.
    told: u64,
    /// Those of them that lead nowhere yet: number and text.
    waiting: Vec<(u64, Vec<u8>)>,
}

/// Datasets that became ones of references.
#[derive(Default)]
pub(super) struct References(Mutex<HashMap<ObjectId, Copied>>);

impl References {
    /// All have closed `id`: what is written from now on is no copy.
    pub(super) fn closed(&self, id: ObjectId) {
        if let Some(c) = self.0.lock().get_mut(&id) {
            c.writing = false;
        }
    }

    /// `id` is gone.
    pub(super) fn forget(&self, id: ObjectId) {
        self.0.lock().remove(&id);
    }

    fn is_written(&self, id: ObjectId) -> bool {
        self.0.lock().get(&id).is_some_and(|c| c.writing)
    }

    fn note_dropped(&self, id: ObjectId, n: u64) {
        if let Some(c) = self.0.lock().get_mut(&id) {
            c.dropped = c.dropped.saturating_add(n);
        }
    }
}

fn not_taken() -> Error {
    Error::refused(libc::EPERM, "bytes of references are addresses in one file: user.h5dir.references sets them by paths")
}

impl Change<'_> {
    /// The dataset `id` is about to become one of references. `filled`: it has bytes.
    pub(super) fn begin_references(&self, id: ObjectId, filled: bool) {
        // Programs that set attributes of a closed file with bytes (`rsync`) write no more.
        let writing = !filled || self.editing.held.lock().contains_key(&id);
        self.editing.references.0.lock().insert(id, Copied { writing, ..Copied::default() });
    }

    /// Sets references in `elements`, which are whole and were made of bytes of another type, to null.
    pub(super) fn clear_references(&self, d: &Dataset, places: &Places, elements: &mut [u8]) {
        let n = places.clear(elements, usize::try_from(d.element_size).unwrap_or(usize::MAX));
        self.editing.references.note_dropped(d.id, n);
    }

    /// Elements with references in sequences were made of their exact form.
    pub(super) fn note_sequences(&self, id: ObjectId) {
        if let Some(c) = self.editing.references.0.lock().get_mut(&id) {
            c.in_sequences = true;
        }
    }

    /// Errors: the dataset's form cannot be written, as it holds references.
    pub(super) fn check_form(&self, d: &Dataset) -> Result<()> {
        let fine = !d.datatype.contains_reference() || self.editing.references.is_written(d.id);
        if fine { Ok(()) } else { Err(not_taken()) }
    }

    /// `bytes`, to be written at `offset`, with the references that the dataset has; `None`: it has none. Errors: they would be
    /// other ones.
    pub(super) fn keep_references(&self, d: &Dataset, offset: u64, bytes: &[u8]) -> Result<Option<Vec<u8>>> {
        let Some(places) = Places::of(&d.datatype) else { return Ok(None) };
        let size = d.element_size.max(1);
        let skip = offset % size;
        let whole = skip.saturating_add(bytes.len() as u64).checked_next_multiple_of(size);
        let Some(whole) = whole.and_then(|n| usize::try_from(n).ok()).filter(|_| size <= limits::ELEMENT_BYTES_MAX) else {
            return Err(Error::refused(libc::EOPNOTSUPP, "elements with references are too large"));
        };
        let mut old = vec![0u8; whole];
        d.bytes.read(&self.connector.options.environment, offset.saturating_sub(skip), &mut old)?;
        let start = usize::try_from(skip).unwrap_or(usize::MAX);
        let range = start..start.saturating_add(bytes.len());
        let mut new = old.clone();
        if let Some(part) = new.get_mut(range.clone()) {
            part.copy_from_slice(bytes);
        }
        let (writing, ends) = (self.editing.references.is_written(d.id), range.clone());
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
                // One that two requests write is counted once; one that is there already is not lost.
                let lost = !null && ends.contains(&last) && old.iter().all(|b| *b == 0);
                dropped = dropped.saturating_add(lost.into());
                new.copy_from_slice(old);
                Ok(())
            })?;
        }
        self.editing.references.note_dropped(d.id, dropped);
        Ok(new.get(range).map(<[u8]>::to_vec))
    }

    /// Sets references by their paths: the fact `name`.
    pub(super) fn set_references(&self, id: ObjectId, name: &str, text: &[u8]) -> Result<()> {
        let d = self.dataset(id)?;
        let first = number(name).and_then(|n| n.checked_mul(PER_FACT)).ok_or_else(|| invalid("a dataset has no such references"))?;
        let entries = parse_references(text)?;
        let end = first.saturating_add(entries.len() as u64);
        if !table(&d).is_some_and(|t| end <= t.total && first < t.total) || entries.len() as u64 > PER_FACT {
            return Err(invalid(format!("the dataset has no {} references from number {first} on", entries.len())));
        }
        // A null one takes away what was told before.
        let all: Vec<_> = (first..).zip(entries).collect();
        let left = self.put_references(&d, &all)?;
        let mut copied = self.editing.references.0.lock();
        let c = copied.entry(id).or_default();
        c.waiting.retain(|(n, _)| !(first..end).contains(n));
        c.told = c.told.saturating_add(all.iter().filter(|(_, text)| text.is_some()).count() as u64);
        // Elements that are written as a whole later begin with null ones.
        let again = d.datatype.contains_vlen() && c.writing;
        c.waiting.extend(if again { all.into_iter().filter_map(|(n, text)| Some((n, text?))).collect() } else { left });
        let bytes = |c: &Copied| c.waiting.iter().map(|(_, text)| text.len().saturating_add(32)).sum::<usize>();
        if copied.values().map(bytes).sum::<usize>() > WAITING_MAX {
            copied.remove(&id);
            return Err(invalid("too many references lead to objects that are not there"));
        }
        drop(copied);
        self.changed(id);
        self.note_change(id)
    }

    /// Writes references; returns those that lead nowhere, which are null.
    fn put_references(&self, d: &Dataset, all: &[(u64, Option<Vec<u8>>)]) -> Result<Vec<(u64, Vec<u8>)>> {
        let (store, mut left) = (self.store()?, Vec::new());
        let Some(table) = table(d) else { return Ok(left) };
        for (n, text) in all {
            // It may have become shorter.
            let Some((at, t)) = table.place(*n) else { continue };
            let bytes = match text {
                None => None,
                Some(text) => {
                    let found = self.reference(&store, t, text)?;
                    if found.is_none() {
                        left.push((*n, text.clone()));
                    }
                    found
                }
            };
            let bytes = bytes.unwrap_or_else(|| vec![0; t.size as usize]);
            let mut there = vec![0; bytes.len()];
            d.bytes.read(&self.connector.options.environment, at, &mut there)?;
            if there != bytes {
                self.put_elements(d.id, at, &bytes)?;
                self.flush_if_many(d.id)?;
            }
        }
        Ok(left)
    }

    /// The bytes of the reference of type `t` with this text; `None` if it leads nowhere.
    fn reference(&self, store: &Store, t: &Datatype, text: &[u8]) -> Result<Option<Vec<u8>>> {
        let nowhere = Cell::new(false);
        let mut values = Values { nowhere: Some(&nowhere), ..Values::new(self, store) };
        match parse_value_into(t, &Shape::Scalar, text, &mut values) {
            Ok(bytes) => Ok((!nowhere.get()).then_some(bytes)),
            // A selection that was shown without all it says.
            Err(Error::Refused { .. }) => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// Tries again to lead references to their objects. `last`: says of which datasets some are null.
    pub(super) fn lead_elements(&self, last: bool) {
        let mut all = std::mem::take(&mut *self.editing.references.0.lock());
        let waiting: usize = all.values().map(|c| c.waiting.len()).sum();
        for (id, c) in &mut all {
            if !c.waiting.is_empty() && (last || waiting <= RETRIED_MAX) {
                self.lead_one(*id, c);
            }
            let lost = c.dropped.saturating_sub(c.told).saturating_add(if last { c.waiting.len() as u64 } else { 0 });
            if last && c.in_sequences {
                tracing::warn!("object at {}: references in sequences are null, as no fact tells them", id.address);
            }
            if last && lost > 0 {
                tracing::warn!("object at {}: {lost} references are null, as what they lead to was not copied or not told", id.address);
            }
        }
        if !last {
            *self.editing.references.0.lock() = all;
        }
    }

    fn lead_one(&self, id: ObjectId, c: &mut Copied) {
        let waiting: Vec<_> = c.waiting.iter().map(|(n, text)| (*n, Some(text.clone()))).collect();
        let done = self.atomically(|| {
            let d = self.dataset(id)?;
            let left = self.put_references(&d, &waiting)?;
            Ok((left, d.datatype.contains_vlen() && c.writing))
        });
        match done {
            Ok((_, true)) => {}
            Ok((left, false)) => c.waiting = left,
            Err(e) => tracing::warn!("object at {}: references stay null: {e}", id.address),
        }
        self.changed(id);
    }
}
