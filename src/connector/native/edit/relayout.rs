//! Making a dataset anew at its place: other header messages, the same bytes.
//!
//! The object header stays where it is, with attributes, links and times. The old elements are read
//! through a second view of the old header while the new ones are written; the old storage is given
//! back at the end. Variable-length elements come from the form in which the file shows them: lines
//! of strings, or the exact form.

use super::attributes::Values;
use super::change_parts::LayoutChange;
use super::errors::refused;
use super::{Dataset, key};
use crate::base::datatype::{Datatype, References};
use crate::base::newlines::Newlines;
use crate::base::variable_form::VariableForm;
use crate::base::{Error, Result, limits};
use crate::connector::ObjectId;
use crate::connector::plan::{Now, check_holes};
use crate::dataset::create::{Messages, dataset_messages, datatype_message};
use crate::dataset::creation::Creation;
use crate::dataset::heap::HeapStore as _;
use crate::format::object_header::{flag, kind};
use crate::meta::header_edit::HeaderEdit;
use crate::structures::shared_messages::edit as shared_messages_edit;
use std::sync::Arc;

/// So many bytes are copied whatever the file takes on the disk.
const COPIED_ALWAYS: u64 = 1 << 30;
/// Times that filters make data smaller, at most (deflate: 1032).
const PACKED_MOST: u64 = 1032;
/// Bytes read at once.
const PIECE: usize = 1 << 20;
/// Longest form of one variable-length element, bytes.
const ELEMENT_MAX: usize = 64 << 20;
/// File number under which the old state of a dataset is cached while it is read; no file has it.
const OLD: u32 = 0x7ff;
/// Messages that make a dataset, but for its datatype.
pub(super) const KINDS: [u16; 7] = [
    kind::DATASPACE,
    kind::FILL_VALUE,
    kind::FILL_VALUE_OLD,
    kind::EXTERNAL_FILES,
    kind::FILTER_PIPELINE,
    kind::SECTION_FILTERS,
    kind::DATA_LAYOUT,
];

/// What a dataset that is made anew holds.
pub(super) enum Elements<'a> {
    /// What it held.
    Kept {
        /// Newlines inside strings, where the bytes are lines of them.
        newlines: Newlines,
    },
    /// Variable-length elements of this form, lines or the exact one.
    Form {
        /// All of it.
        form: &'a [u8],
        /// Strings as lines, with the newlines inside them.
        lines: Option<Newlines>,
    },
    /// What it held within the new extent, each element at its coordinates.
    Placed,
    /// Nothing.
    Dropped,
}

impl LayoutChange<'_> {
    /// Makes the dataset `d` what `creation` says. `retyped`: its datatype too.
    pub(super) fn relayout(&self, d: &Arc<Dataset>, creation: &Creation, retyped: bool, elements: Elements<'_>) -> Result<()> {
        self.change.data().check_bounds(d)?;
        let creation = &self.change.log().suited(creation.clone())?;
        let store = self.change.store()?;
        let id = d.id;
        if let Some(warning) = creation.layout.kind.warning()
            && d.layout().for_copy() != creation.layout
        {
            tracing::warn!("object at {}: {warning}", id.address);
        }
        let mut messages = dataset_messages(store.ctx(), store.superblock().version, creation)?;
        let parsed = creation.datatype.contains_vlen() && !d.datatype.contains_vlen();
        let blank = self.is_blank(d, creation)?;
        if matches!(elements, Elements::Kept { .. })
            && !parsed
            && !blank
            && d.datatype.contains_vlen()
            && retyped
            && creation.datatype != d.datatype
        {
            return Err(Error::refused(libc::EINVAL, "variable-length elements keep their type"));
        }
        if matches!(elements, Elements::Kept { .. } | Elements::Placed) && !blank {
            bound_copy(d)?;
        }
        let old = Arc::new(self.change.access.open_dataset(d.object.clone(), ObjectId { file: OLD, ..id }, 0)?);
        let env = &self.change.connector.options.environment;
        env.forget(key(old.id));
        if matches!(elements, Elements::Kept { .. }) && self.adopt(id, &old, creation, retyped)? {
            return Ok(());
        }
        self.change.editing.preparations.cancel(id);
        creation.layout.kind.store(&store, creation, &mut messages)?;
        self.set_messages(id, messages, retyped)?;
        let keeps_id = self.change.log().set_anchor(id, creation, blank)?;
        env.forget(key(id));
        self.change.changed(id);
        if retyped && creation.datatype != old.datatype {
            match creation.datatype.contains_reference() {
                true => self.change.references().begin_references(id, old.bytes.size > 0),
                false => self.change.references().end_references(id),
            }
        }
        match elements {
            Elements::Form { form, lines } => {
                self.change.data().free_sequences(&old)?;
                self.parse_form(form, lines, id)?;
            }
            Elements::Dropped => self.change.data().free_sequences(&old)?,
            Elements::Placed if blank => {}
            Elements::Placed => self.place_elements(&old, id)?,
            // A new file whose lines come later.
            Elements::Kept { .. } if parsed && old.bytes.size == 0 => {}
            Elements::Kept { newlines } if parsed => self.parse_elements(&old, id, newlines)?,
            Elements::Kept { .. } if blank => {}
            Elements::Kept { .. } => match References::of(&creation.datatype).filter(|_| retyped && creation.datatype != old.datatype) {
                Some(places) => self.copy_without_references(&old, id, &places)?,
                None => self.copy_elements(&old, id, creation.undefine_fill)?,
            },
        }
        self.change.connector.holes().note_shape(id, old.bytes.size);
        // What is in memory only would be lost if something fails after this.
        self.change.dirty_chunks().flush_within(id)?;
        if !keeps_id {
            self.change.delete_storage(&old)?;
        }
        env.forget(key(old.id));
        Ok(())
    }

    /// True if the dataset `d` has no elements that `creation` keeps.
    pub(super) fn is_blank(&self, d: &Dataset, creation: &Creation) -> Result<bool> {
        Ok(self.is_untouched(d)? && !self.counts_zeros(d, creation))
    }

    /// True if nothing of the dataset `d` is stored, nor in memory to be stored.
    fn is_untouched(&self, d: &Dataset) -> Result<bool> {
        Ok(d.bytes.is_blank()? && !self.change.connector.options.environment.dirty.has(key(d.id)))
    }

    /// True if the zeros that `d` shows, of which nothing is stored, are elements of what
    /// `creation` makes of it: written ones are defined, and all of them have the bytes that they
    /// had with another fill value.
    fn counts_zeros(&self, d: &Dataset, creation: &Creation) -> bool {
        let (holes, size) = (self.change.connector.holes(), d.bytes.size);
        let keeps = creation.bytes() == Some(size) && !creation.datatype.contains_vlen() && !d.datatype.contains_vlen();
        let fills_alike = d.bytes.fill.reads_like(&creation.fill, creation.datatype.element_size());
        creation.layout.kind.profile().is_some() && holes.has_written(d.id, size) || keeps && !fills_alike && holes.shows_bytes(d.id, size)
    }

    /// What `d` is, for a plan of what it becomes: bytes that a program wrote have a number, also
    /// if all of them are zeros.
    pub(super) fn now(&self, d: &Dataset) -> Result<Now> {
        let now = d.now()?;
        let blank = now.blank && self.is_untouched(d)? && !self.change.connector.holes().has_written(d.id, d.bytes.size);
        Ok(Now { blank, ..now })
    }

    /// Makes the dataset `d` a named datatype.
    pub(super) fn become_datatype(&self, d: &Arc<Dataset>, datatype: &Datatype) -> Result<()> {
        let store = self.change.store()?;
        let body = datatype_message(store.superblock().version, datatype).map_err(refused)?;
        self.change.data().check_bounds(d)?;
        self.change.delete_storage(d)?;
        self.set_messages(d.id, vec![(kind::DATATYPE, flag::CONSTANT | flag::DONT_SHARE, body)], true)?;
        self.change.log().drop_released_anchor(d.id)?;
        self.change.connector.options.environment.forget(key(d.id));
        self.change.changed(d.id);
        Ok(())
    }

    /// Puts the messages of a dataset in the place of those it has.
    pub(super) fn set_messages(&self, id: ObjectId, messages: Messages, retyped: bool) -> Result<()> {
        let store = self.change.store()?;
        let old_type = if retyped { self.change.objects().committed_datatype(&store, id)? } else { None };
        shared_messages_edit::forget(&store, id.address)?;
        let mut header = HeaderEdit::load(&store, id.address)?;
        for kind in KINDS {
            // Version 1 headers may hold both fill value messages, or the same twice.
            while let Some(i) = header.find(kind).filter(|_| !messages.iter().any(|m| m.0 == kind)) {
                header.remove(i);
            }
        }
        for (k, flags, body) in messages {
            match header.find(k) {
                Some(_) if k == kind::DATATYPE && !retyped => {}
                Some(i) => {
                    header.set_body(i, body);
                    if header.message(i).is_some_and(|m| m.flags != flags) {
                        header.set_flags(i, flags);
                    }
                }
                None => drop(header.add(k, flags, body)),
            }
        }
        header.write(&store)?;
        old_type.map_or(Ok(()), |address| self.change.objects().drop_datatype(ObjectId { address, ..id }))
    }

    /// Writes the bytes of `old` to the dataset `id`.
    fn copy_elements(&self, old: &Dataset, id: ObjectId, undefine_fill: bool) -> Result<()> {
        let env = &self.change.connector.options.environment;
        let new = self.change.dataset(id)?;
        let written = self.change.connector.holes().written(id, old, &new)?;
        let mut piece = vec![0u8; PIECE];
        let mut at = 0u64;
        while let Some(next) = written.next(old, at)? {
            let len = usize::try_from(next.end.saturating_sub(next.start)).unwrap_or(PIECE).clamp(1, PIECE);
            let len = new.bytes.whole_elements(len);
            let n = old.bytes.read(env, next.start, piece.get_mut(..len).unwrap_or_default())?;
            let bytes = piece.get(..n).filter(|b| !b.is_empty()).ok_or_else(|| old.object.lacks("whole data layout"))?;
            for part in new.bytes.kept(bytes, next.start, undefine_fill) {
                self.change.data().write_elements(id, next.start.saturating_add(part.start as u64), bytes.get(part).unwrap_or_default())?;
            }
            at = next.start.saturating_add(n as u64);
            self.change.dirty_chunks().flush_if_many(id)?;
        }
        Ok(())
    }

    /// Writes the bytes of `old` to the dataset `id`, whose type holds references: these become
    /// null.
    fn copy_without_references(&self, old: &Dataset, id: ObjectId, places: &References) -> Result<()> {
        let env = &self.change.connector.options.environment;
        let new = self.change.dataset(id)?;
        let size = new.element_size.max(1);
        if size > limits::ELEMENT_BYTES_MAX {
            return Err(Error::refused(libc::EOPNOTSUPP, "elements with references are too large"));
        }
        let whole = (PIECE as u64).next_multiple_of(size);
        let mut piece = vec![0u8; usize::try_from(whole).unwrap_or(0)];
        let mut at = 0u64;
        while at < old.bytes.size {
            let n = old.bytes.read(env, at, &mut piece)?;
            let bytes = piece.get_mut(..n).filter(|b| !b.is_empty()).ok_or_else(|| old.object.lacks("whole data layout"))?;
            self.change.references().clear_references(&new, places, bytes);
            self.change.data().write_elements(id, at, bytes)?;
            at = at.saturating_add(n as u64);
            self.change.dirty_chunks().flush_if_many(id)?;
        }
        Ok(())
    }

    /// Makes the variable-length elements of the dataset `id` from the bytes of `old`, which are
    /// their form.
    fn parse_elements(&self, old: &Dataset, id: ObjectId, newlines: Newlines) -> Result<()> {
        let env = &self.change.connector.options.environment;
        let new = self.change.dataset(id)?;
        let mut parser = Parser::new(&new, new.datatype.is_vlen_string().then_some(newlines));
        let mut piece = vec![0u8; PIECE];
        let mut at = 0u64;
        while at < old.bytes.size {
            let n = old.bytes.read(env, at, &mut piece)?;
            let bytes = piece.get(..n).filter(|b| !b.is_empty()).ok_or_else(|| old.object.lacks("whole data layout"))?;
            at = at.saturating_add(n as u64);
            self.parse_piece(&mut parser, bytes, id, at >= old.bytes.size)?;
        }
        parser.finish(new.elements())
    }

    /// Makes the variable-length elements of the dataset `id` from their form.
    fn parse_form(&self, form: &[u8], lines: Option<Newlines>, id: ObjectId) -> Result<()> {
        let new = self.change.dataset(id)?;
        let mut parser = Parser::new(&new, lines);
        let pieces = form.chunks(PIECE).len();
        for (i, piece) in form.chunks(PIECE).enumerate() {
            self.parse_piece(&mut parser, piece, id, i.saturating_add(1) == pieces)?;
        }
        parser.finish(new.elements())
    }

    /// Writes the elements that `bytes`, the next part of the form, completes. `last`: nothing
    /// follows.
    fn parse_piece(&self, parser: &mut Parser, bytes: &[u8], id: ObjectId, last: bool) -> Result<()> {
        let store = self.change.store()?;
        if parser.references_lost {
            self.change.references().note_sequences(id);
        }
        let mut values = Values::new(self.change, &store);
        parser.rest.extend_from_slice(bytes);
        let elements = parser.take(last, &mut |count, payload| values.sequence(count, payload))?;
        if !elements.is_empty() {
            let from = parser.written.saturating_mul(parser.size as u64);
            parser.written = parser.written.saturating_add((elements.len() / parser.size.max(1)) as u64);
            if parser.written > parser.total {
                return Err(parser.wrong_count(parser.total));
            }
            self.change.data().write_elements(id, from, &elements)?;
            self.change.dirty_chunks().flush_if_many(id)?;
        }
        Ok(())
    }
}

/// True if elements that were never written need not be written: they read the same, or are
/// undefined in both datasets.
pub(super) fn skips_holes(old: &Dataset, new: &Dataset) -> bool {
    let both_know = old.layout().definition().is_some() && new.layout().definition().is_some();
    both_know || old.bytes.fill == new.bytes.fill
}

/// All elements that are there are copied within one operation. Refuses that where they are far
/// more than the file can hold: a damaged file, or one with holes of terabytes.
pub(super) fn bound_copy(old: &Dataset) -> Result<()> {
    let Ok(volume) = old.layout().stored_volume(&old.bytes) else { return Ok(()) };
    let (there, packed) = (volume.bytes, if volume.packed { PACKED_MOST } else { 1 });
    let status = old.bytes.store.driver().status().map_err(|e| Error::io("stat", old.id.address, &e))?;
    if there > COPIED_ALWAYS.max(status.allocated.saturating_mul(packed).saturating_mul(2)) {
        let reason = format!("{there} bytes would be copied, of a file that takes {} on the disk", status.allocated);
        return Err(Error::refused(libc::EFBIG, reason));
    }
    Ok(())
}

/// Elements that were never written keep what they read as when the fill value becomes another:
/// they are written. Refuses to do that where they are nearly all.
pub(super) fn bound_holes(old: &Dataset) -> Result<()> {
    if !old.layout().resizes() {
        return Ok(());
    }
    let there = old.layout().stored_volume(&old.bytes)?.bytes;
    check_holes(old.bytes.size, there)
}

/// Takes elements from their form as it comes.
struct Parser {
    form: VariableForm,
    /// Bytes of an element.
    size: usize,
    /// Strings as lines, with the newlines inside those that are left.
    lines: Option<Newlines>,
    /// Elements that there are to be.
    total: u64,
    /// Elements taken.
    written: u64,
    /// What does not make an element yet.
    rest: Vec<u8>,
    /// Sequences hold references, which become null.
    references_lost: bool,
}

impl Parser {
    fn new(d: &Dataset, lines: Option<Newlines>) -> Self {
        Parser {
            form: VariableForm::without_references(&d.datatype),
            size: usize::try_from(d.element_size).unwrap_or(0),
            lines,
            total: d.elements(),
            written: 0,
            rest: Vec::new(),
            references_lost: References::of(&d.datatype).is_some_and(|r| r.in_sequences()),
        }
    }

    fn wrong_count(&self, total: u64) -> Error {
        let what = if self.lines.is_some() { "lines" } else { "elements in exact form" };
        Error::refused(libc::EINVAL, format!("the file has not as many {what} as the dataset has elements, {total}"))
    }

    /// The elements that are there as a whole.
    fn take(&mut self, last: bool, keep: &mut dyn FnMut(u32, &[u8]) -> Result<Vec<u8>>) -> Result<Vec<u8>> {
        let mut elements = Vec::new();
        let mut used = 0usize;
        // More is not stored than is wanted.
        let mut left = self.total.saturating_sub(self.written).saturating_add(1);
        while left > 0
            && let Some(form) = self.rest.get(used..).filter(|f| !f.is_empty())
        {
            let taken = match &self.lines {
                Some(newlines) => match string_end(form, newlines.first()) {
                    Ok(n) => Some((line(form.get(..n).unwrap_or_default(), keep)?, n.saturating_add(1))),
                    // A last line needs no end.
                    Err(0) if last => Some((line(form, keep)?, form.len())),
                    Err(_) => None,
                },
                None => self.form.parse(self.size, form, keep)?,
            };
            let Some((element, n)) = taken else { break };
            self.lines.iter_mut().for_each(Newlines::pop);
            elements.extend(element);
            used = used.saturating_add(n);
            left = left.saturating_sub(1);
        }
        self.rest.drain(..used);
        if self.rest.len() > ELEMENT_MAX {
            return Err(Error::refused(libc::EINVAL, format!("an element of more than {ELEMENT_MAX} bytes")));
        }
        Ok(elements)
    }

    /// All that was given must have been taken, and be enough.
    fn finish(&self, total: u64) -> Result<()> {
        let more = self.lines.as_ref().is_some_and(|newlines| !newlines.is_empty());
        if self.written != total || !self.rest.is_empty() || more { Err(self.wrong_count(total)) } else { Ok(()) }
    }
}

/// Where the string ends that `form` begins with and that holds `newlines`; else how many of them
/// are missing.
fn string_end(form: &[u8], newlines: u64) -> std::result::Result<usize, u64> {
    let mut left = newlines;
    for (at, _) in form.iter().enumerate().filter(|(_, b)| **b == b'\n') {
        match left.checked_sub(1) {
            Some(n) => left = n,
            None => return Ok(at),
        }
    }
    Err(left)
}

fn line(text: &[u8], keep: &mut dyn FnMut(u32, &[u8]) -> Result<Vec<u8>>) -> Result<Vec<u8>> {
    if text.contains(&0) {
        return Err(Error::refused(libc::EINVAL, "a string holds no NUL"));
    }
    let count = u32::try_from(text.len()).map_err(|_| Error::refused(libc::EINVAL, "a line of 4 GiB"))?;
    keep(count, text)
}
