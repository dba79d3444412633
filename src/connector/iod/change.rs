//! Making a dataset another one: other metadata, the same bytes or none.

use super::dataset::Dataset;
use super::decoding::ValueLocation;
use super::image::Body;
use super::object_access::ObjectAccess;
use super::state::State;
use super::value_chunks::ValueChunks;
use crate::base::datatype::References;
use crate::base::element_set::ElementSet;
use crate::base::newlines::Newlines;
use crate::base::{Address, Error, Result};
use crate::connector::DatasetSpec;
use crate::connector::edit::Elements;
use crate::connector::plan::{Now, check_holes};
use crate::dataset::chunk::reading::{self, ChunkLocation};
use crate::dataset::create::is_same_datatype;
use crate::iod::{Key, keys};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// Bytes that are copied at a time.
const PIECE_BYTES: u64 = 1 << 20;
/// Longest dataset that becomes one of variable-length elements, bytes.
const PARSED_MAX: u64 = 128 << 20;

/// True if the chunks of both datasets are at the same places, and encoded in the same way.
fn stored_alike(a: &Dataset, b: &Dataset) -> bool {
    let space = |d: &Dataset| (d.space.extent, d.space.dims.clone());
    a.storage == b.storage && a.element_size == b.element_size && a.pipeline == b.pipeline && space(a) == space(b)
}

impl ObjectAccess {
    /// Makes the dataset `id` what `spec` states.
    pub(super) fn change_layout(&self, state: &mut State, id: u64, spec: &DatasetSpec, elements: Elements) -> Result<()> {
        if elements == Elements::Kept && self.use_prepared(state, id, spec)? {
            state.forms.remove_mut(&id);
            state.newlines.remove(&id);
            state.wait_for_fill(id, spec, false)?;
            return state.touch(id);
        }
        let newlines = spec.newlines.clone().unwrap_or_default();
        let old = self.dataset_of(state, id)?;
        let blank = elements == Elements::Dropped || !state.has_any(&keys::of_kind(id, keys::CHUNK))?;
        let (mut creation, blocks, nowhere) =
            self.planned(state, &Now { creation: old.creation(), elsewhere: false, size: old.size, blank }, spec)?;
        creation.committed = old.named.filter(|_| is_same_datatype(&creation.datatype, &old.datatype)).map(Address);
        let (was, is) = (old.datatype.contains_vlen(), creation.datatype.contains_vlen());
        if !blank && was && creation.datatype != old.datatype {
            return Err(Error::refused(libc::EINVAL, "variable-length elements keep their type"));
        }
        if !blank && is && old.size > PARSED_MAX {
            return Err(Error::refused(libc::EFBIG, "128 MiB of variable-length elements at most are parsed"));
        }
        // Zeros that a program left there are kept with another fill value.
        let keeps = elements == Elements::Kept && !is && !was && creation.bytes() == Some(old.size) && state.shows_bytes(id);
        let zeros_count = keeps && old.size > 0 && !old.pattern.reads_like(&creation.fill, creation.datatype.element_size());
        let kept = match (blank, is) {
            (true, _) if zeros_count => Kept::Chunks,
            (true, _) => Kept::Nothing,
            (false, true) if was => Kept::Form(self.whole_form(state, &old, false)?, None),
            (false, true) => {
                let mut bytes = vec![0; usize::try_from(old.size).unwrap_or(usize::MAX)];
                self.chunks.read_elements(state, &old, 0, &mut bytes)?;
                Kept::Form(bytes, creation.datatype.is_vlen_string().then(|| newlines.clone()))
            }
            (false, false) => Kept::Chunks,
        };
        let undefined = match &kept {
            Kept::Form(..) if creation.dims == old.space.dims => self.undefined(state, &old)?,
            _ => ElementSet::default(),
        };
        state.put_dataset(id, &creation)?;
        state.change_use(old.named, creation.committed.map(|named| named.0))?;
        state.changed(id);
        let new = self.dataset_of(state, id)?;
        let undefines = creation.undefine_fill && new.knows_defined();
        // Its fill value is read below.
        for (block, bytes) in blocks {
            state.put(keys::key(id, keys::CELLS, &block.to_be_bytes()), &bytes)?;
        }
        match kept {
            Kept::Chunks if stored_alike(&new, &old) && new.pattern == old.pattern && !new.datatype.contains_reference() && !undefines => {}
            Kept::Chunks => self.copy_elements(state, &old, &new, creation.undefine_fill)?,
            Kept::Nothing => self.drop_elements(state, &new)?,
            Kept::Form(form, lines) => {
                self.parse_form(state, &new, &form, lines, &ElementSet::default())?;
                self.undefine_parsed(state, id, &undefined, undefines)?;
            }
        }
        if old.size == 0 {
            state.note_shape_only(id, true);
        }
        state.forms.remove_mut(&id);
        state.wait_for_fill(id, spec, nowhere)?;
        state.newlines.remove(&id);
        // Lines that are not there yet are written next.
        if blank && !newlines.is_empty() && new.datatype.is_vlen_string() {
            state.await_newlines(id, newlines)?;
        }
        state.touch(id)
    }

    /// Makes elements of the dataset `id`, which were parsed, undefined: those in `undefined`, and
    /// with `fills` those that have the fill value.
    fn undefine_parsed(&self, state: &mut State, id: u64, undefined: &ElementSet, fills: bool) -> Result<()> {
        let d = self.dataset_of(state, id)?;
        self.undefine(state, &d, undefined)?;
        if fills {
            let all = ElementSet::of_run(&d.space.dims, &(0..d.elements()));
            self.undefine_fill_values(state, &d, &all)?;
        }
        state.changed(id);
        Ok(())
    }

    fn drop_elements(&self, state: &mut State, d: &Dataset) -> Result<()> {
        state.remove_all(&keys::of_kind(d.id, keys::CHUNK))?;
        self.drop_cells(state, d)
    }

    /// Writes the elements of `old` as those of `new`, which has as many bytes. `undefine_fill`:
    /// those with the fill value become undefined, where `new` knows which are defined.
    fn copy_elements(&self, state: &mut State, old: &Dataset, new: &Dataset, undefine_fill: bool) -> Result<()> {
        let chunks = self.take_chunks(state, old)?;
        let skips_holes = old.knows_defined() && new.knows_defined() || old.pattern == new.pattern;
        if !skips_holes {
            check_holes(old.size, (chunks.len() as u64).saturating_mul(old.grid.chunk_bytes()))?;
        }
        let places = References::of(&new.datatype).filter(|_| old.datatype != new.datatype);
        let size = new.element_size.max(1);
        let piece = (PIECE_BYTES / size).max(1).saturating_mul(size);
        let numbers: BTreeSet<u64> =
            chunks.keys().filter_map(|key| keys::scaled(key)).filter_map(|scaled| old.grid.linear(&scaled)).collect();
        let mut at = 0u64;
        while at < old.size {
            if skips_holes {
                // Only what is there is looked at.
                let next = old.grid.next_byte(at, &mut |range| Ok(numbers.range(range).next().copied()))?;
                let Some(next) = next else { break };
                at = at.max(next.saturating_sub(next.checked_rem(size).unwrap_or(0)));
            }
            let len = piece.min(old.size.saturating_sub(at));
            let mut bytes = vec![0; usize::try_from(len).unwrap_or(usize::MAX)];
            let mut written = self.read_taken(state, (&chunks, old), at, &mut bytes)?;
            if !skips_holes {
                written = std::iter::once(0..bytes.len()).collect();
            }
            if let Some(places) = &places {
                places.clear(&mut bytes, usize::try_from(size).unwrap_or(usize::MAX));
            }
            for part in written {
                let (start, bytes) = (at.saturating_add(part.start as u64), bytes.get(part).unwrap_or_default());
                if !undefine_fill || !new.knows_defined() {
                    self.write_elements(state, new, start, bytes)?;
                    continue;
                }
                for part in new.pattern.differing(bytes, start, size) {
                    let at = start.saturating_add(part.start as u64);
                    self.write_elements(state, new, at, bytes.get(part).unwrap_or_default())?;
                }
            }
            at = at.saturating_add(len);
        }
        Ok(())
    }

    /// Removes the chunks of a dataset; returns them.
    fn take_chunks(&self, state: &mut State, d: &Dataset) -> Result<BTreeMap<Key, Body>> {
        let mut taken = BTreeMap::new();
        for key in state.keys(&keys::of_kind(d.id, keys::CHUNK))? {
            let body = match state.changes.get(&key).map(|c| &c.body) {
                Some(Body::Dirty(chunk)) => Body::Dirty(chunk.clone()),
                _ => match state.get(&key)? {
                    Some(cell) => Body::Cell(cell),
                    None => continue,
                },
            };
            state.remove(key.clone())?;
            taken.insert(key, body);
        }
        Ok(taken)
    }

    /// Reads bytes of a dataset from its removed chunks; returns the ranges of them that were
    /// written ([`read_written`]).
    fn read_taken(
        &self,
        state: &State,
        (chunks, d): (&BTreeMap<Key, Body>, &Dataset),
        offset: u64,
        buf: &mut [u8],
    ) -> Result<Vec<Range<usize>>> {
        let find = |number: u64| match chunks.get(&d.chunk_key(number)) {
            Some(Body::Dirty(chunk)) => Ok(ChunkLocation::Changed(chunk.chunk.now())),
            Some(Body::Cell(cell)) => self.chunks.location_of(d, cell),
            _ => Ok(ChunkLocation::Fill),
        };
        read_written(ValueChunks { reader: &self.chunks, state, d }, offset, buf, &find)
    }

    /// Makes a new file the named datatype `datatype`; `shown`: what its file shows.
    pub(super) fn make_datatype(&self, state: &mut State, id: u64, datatype: &crate::connector::Datatype, shown: &[u8]) -> Result<()> {
        let d = self.dataset_of(state, id)?;
        if !d.is_bytes_file() {
            return Err(Error::refused(libc::EINVAL, "only a new file becomes a datatype"));
        }
        if d.size > 0 {
            let mut bytes = vec![0; shown.len().saturating_add(1)];
            let n = self.chunks.read_elements(state, &d, 0, &mut bytes)?;
            if bytes.get(..n) != Some(shown) {
                return Err(Error::refused(libc::EINVAL, "the file holds other bytes than the datatype's file shows"));
            }
        }
        use crate::format::object_header::kind;
        let body = crate::dataset::create::datatype_message(2, datatype).map_err(crate::connector::errors::refused)?;
        self.drop_elements(state, &d)?;
        for message in [kind::DATASPACE, kind::FILL_VALUE, kind::DATA_LAYOUT, kind::FILTER_PIPELINE] {
            state.remove(keys::header(id, message))?;
        }
        state.change_use(d.named, None)?;
        state.put_header(id, kind::DATATYPE, &body)?;
        state.put_header(id, keys::OBJECT_TYPE, &[super::state::DATATYPE])?;
        state.changed(id);
        state.touch(id)
    }
}

/// Reads bytes of a dataset from the chunks that `find` returns; returns the ranges of them that
/// were written, ascending: those of chunks that are there, or of defined elements.
pub(super) fn read_written(
    chunks: ValueChunks<'_>,
    offset: u64,
    buf: &mut [u8],
    find: &dyn Fn(u64) -> Result<ValueLocation>,
) -> Result<Vec<Range<usize>>> {
    let d = chunks.d;
    let mut written: Vec<Range<usize>> = Vec::new();
    for chunk in d.grid.pieces(offset, buf.len()) {
        let found = find(chunk.chunk)?;
        let rows = chunk.pieces.iter().flat_map(|p| d.grid.rows(p).map(|(at, to)| (at, to, p.len)));
        for (at, to, len) in rows.filter(|_| !matches!(found, ChunkLocation::Fill)) {
            match found.image().and_then(|image| image.defined()) {
                None => written.push(to..to.saturating_add(len)),
                Some(defined) => written.extend(defined_in_row(d, defined, at, len).map(|run| {
                    let byte = |n: u64| to.saturating_add(usize::try_from(n.saturating_sub(at)).unwrap_or(usize::MAX));
                    byte(run.start)..byte(run.end)
                })),
            }
        }
        reading::copy(chunks, offset, &chunk, found, buf, &mut |_, _, _| Ok(()))?;
    }
    written.sort_unstable_by_key(|run| run.start);
    // Rows beside each other are one range.
    written.dedup_by(|next, last| {
        let follows = last.end == next.start;
        if follows {
            last.end = next.end;
        }
        follows
    });
    Ok(written)
}

/// The defined bytes of the `len` bytes from `at` of a chunk.
fn defined_in_row(d: &Dataset, defined: &ElementSet, at: u64, len: usize) -> impl Iterator<Item = Range<u64>> {
    let (size, end) = (d.element_size.max(1), at.saturating_add(len as u64));
    let mut next = at / size;
    std::iter::from_fn(move || {
        let first = defined.next_element(d.chunk_dims(), next).filter(|n| n.saturating_mul(size) < end)?;
        next = defined.next_gap(d.chunk_dims(), first);
        Some(first.saturating_mul(size).max(at)..next.saturating_mul(size).min(end))
    })
}

/// What a dataset keeps when it becomes another one.
enum Kept {
    /// Nothing.
    Nothing,
    /// Its bytes.
    Chunks,
    /// Elements of this form; of lines, with the newlines inside strings.
    Form(Vec<u8>, Option<Newlines>),
}
