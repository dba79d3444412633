//! Sparse datasets: which elements are defined, and making them so or undefined.

use super::access::IodConnector;
use super::cells::{Place, StateCells};
use super::change::read_written;
use super::dataset::{Dataset, Storage};
use super::decoding::{chunk_key, permit};
use super::image::{Body, out_of_range};
use super::object_access::ObjectAccess;
use super::state::State;
use super::value_chunks::{Source, ValueChunks};
use crate::base::element_set::ElementSet;
use crate::base::{Error, Result};
use crate::connector::ObjectId;
use crate::connector::defined::{ANNOUNCED_RANGES_MAX, covering_block, fill_values, unknown};
use crate::connector::edit::{CopyRange, Erase};
use crate::dataset::chunk::ChunkGrid;
use crate::dataset::chunk::defined::{ChunkSets, EachSet, local_block};
use crate::dataset::chunk::pieces::ByteGrid;
use crate::dataset::chunk::present::{PresentChunks, VisitNumber};
use crate::iod::{Cell, Data, keys};
use rayon::prelude::*;
use std::ops::Range;

/// Stored bytes of chunks whose sets are read at once.
const FETCHED_BYTES: u64 = 32 << 20;
/// Bytes of elements that are read to compare them with the fill value.
const PIECE_BYTES: u64 = 1 << 20;
/// Bytes that one call copies.
const COPIED_BYTES: u64 = 64 << 20;
/// Longest form of a fill value that elements of variable length are compared with, bytes.
const FILL_FORM_MAX: u64 = 1 << 20;

/// Which elements of a sparse dataset were written.
pub(super) struct Sets<'a> {
    objects: &'a ObjectAccess,
    d: &'a Dataset,
    chunks: ChunkGrid,
    /// The values of the dataset: those that `d` is of.
    state: &'a State,
}

impl<'a> Sets<'a> {
    /// Those of `d`, which is at `state`.
    pub fn of(objects: &'a ObjectAccess, d: &'a Dataset, state: &'a State) -> Result<Sets<'a>> {
        let Storage::Chunked(chunk_dims) = &d.storage else { return Err(unknown()) };
        let chunks = ChunkGrid::new(d.space.dims.clone(), d.space.max(), chunk_dims.clone(), d.element_size)?;
        Ok(Sets { objects, d, chunks, state })
    }

    fn source(&self, number: u64) -> Result<Source> {
        Source::of(self.state, &self.d.chunk_key(number))
    }

    /// The set of a chunk that is in memory.
    fn in_memory(&self, source: &Source) -> Result<Option<ElementSet>> {
        match source {
            Source::Image(image) => Ok(image.image().defined().cloned()),
            Source::Cell(cell) => Ok(self.objects.chunks.image(self.d, cell)?.image().and_then(|image| image.defined()).cloned()),
            Source::Nothing => Ok(None),
        }
    }

    /// True if a chunk need not be fetched, or is decoded already.
    fn is_at_hand(&self, source: &Source) -> bool {
        match source {
            Source::Cell(Cell { data: Data::Extent(extent), .. }) => self.objects.env.cache.contains(chunk_key(self.d, extent)),
            Source::Cell(_) | Source::Image(_) | Source::Nothing => true,
        }
    }

    /// What `f` makes of the sets of chunks that are fetched together.
    fn fetched(&self, chunks: &[(u64, Cell)], f: &EachSet<'_>) -> Result<Vec<(u64, ElementSet)>> {
        let cells: Vec<Cell> = chunks.iter().map(|(_, cell)| cell.clone()).collect();
        let stored = self.objects.fetch_stored(&cells)?;
        // Not by threads of the pool: a thread that has a permit may wait for them.
        let bytes = cells.iter().fold(0u64, |n, cell| n.saturating_add(self.d.decoding_bytes(cell.len())));
        let _permit = permit(&self.objects.env, bytes);
        let one = |(number, cell): &(u64, Cell)| {
            let Data::Extent(extent) = &cell.data else { return Ok((*number, f(*number, None)?)) };
            let bytes = stored.get(extent).ok_or_else(|| out_of_range(self.d.id))?;
            Ok((*number, f(*number, self.d.defined_in(bytes, cell.mask)?)?))
        };
        self.objects.env.pool.install(|| chunks.par_iter().map(one).collect())
    }
}

impl PresentChunks for Sets<'_> {
    fn grid(&self) -> &ByteGrid {
        &self.d.grid
    }

    fn visit(&self, from: u64, f: &mut VisitNumber<'_>) -> Result<()> {
        ValueChunks { reader: &self.objects.chunks, state: self.state, d: self.d }.visit(from, f)
    }
}

impl ChunkSets for Sets<'_> {
    fn chunks(&self) -> &ChunkGrid {
        &self.chunks
    }

    fn set_of(&self, number: u64, _decode: bool) -> Result<Option<ElementSet>> {
        self.in_memory(&self.source(number)?)
    }

    fn each(&self, numbers: &[u64], f: &EachSet<'_>) -> Result<Vec<ElementSet>> {
        let (mut sets, mut waiting, mut bytes) = (Vec::new(), Vec::new(), 0u64);
        for number in numbers {
            match self.source(*number)? {
                Source::Cell(cell) if !self.is_at_hand(&Source::Cell(cell.clone())) => {
                    self.objects.chunks.check_whole(self.d, cell.len())?;
                    bytes = bytes.saturating_add(cell.len());
                    waiting.push((*number, cell));
                }
                source => sets.push((*number, f(*number, self.in_memory(&source)?)?)),
            }
            if bytes >= FETCHED_BYTES {
                sets.extend(self.fetched(&std::mem::take(&mut waiting), f)?);
                bytes = 0;
            }
        }
        sets.extend(self.fetched(&waiting, f)?);
        sets.sort_unstable_by_key(|(number, _)| *number);
        Ok(sets.into_iter().map(|(_, set)| set).collect())
    }
}

impl Erase for IodConnector {
    fn punch(&self, id: ObjectId, offset: u64, len: u64) -> Result<()> {
        let id = State::check_id(id)?;
        self.operate(|state| {
            state.note_shape_only(id, false);
            self.objects.punch_bytes(state, id, offset..offset.saturating_add(len))
        })
    }

    fn erase(&self, id: ObjectId, first: &[u64], end: &[u64]) -> Result<()> {
        let id = State::check_id(id)?;
        self.operate(|state| {
            state.note_shape_only(id, false);
            let d = self.objects.dataset_of(state, id)?;
            let end: Vec<u64> = end.iter().zip(&d.space.dims).map(|(e, n)| *e.min(n)).collect();
            let first: Vec<u64> = first.iter().zip(&end).map(|(f, e)| *f.min(e)).collect();
            if d.knows_defined() {
                return self.objects.undefine_block(state, &d, &first, &end);
            }
            // Erasing elsewhere is punching.
            ElementSet::block(&first, &end).for_each_run(&d.space.dims, &mut |run| {
                let byte = |n: u64| n.checked_mul(d.element_size).ok_or_else(|| Error::refused(libc::EFBIG, "elements past 2^64 bytes"));
                self.objects.punch_bytes(state, id, byte(run.start)?..byte(run.end)?)
            })
        })
    }

    fn set_defined(&self, id: ObjectId, range: Range<u64>, defined: &[Range<u64>]) -> Result<()> {
        let id = State::check_id(id)?;
        self.operate(|state| {
            let (blank, d) = (!state.has_any(&keys::of_kind(id, keys::CHUNK))?, self.objects.dataset_of(state, id)?);
            let knows = d.knows_defined();
            if knows || !d.is_bytes_file() {
                self.objects.change_defined(state, &d, &range, defined)?;
            }
            announce(state, id, blank || !knows, range, defined);
            Ok(())
        })
    }

    fn writer_closed(&self, id: ObjectId) {
        let state = self.states.shown();
        let written = || state.has_any(&keys::of_kind(id.serial(), keys::CHUNK)).unwrap_or(false);
        let is_announced = state.announced().contains_key(&id.serial());
        if is_announced && written() {
            state.announced().remove(&id.serial());
        }
    }
}

impl CopyRange for IodConnector {
    fn copy_range(&self, from: (ObjectId, u64), to: (ObjectId, u64), len: u64) -> Result<u64> {
        let (source, target) = (State::check_id(from.0)?, State::check_id(to.0)?);
        self.operate(|state| {
            let mut done = 0u64;
            while done < len.min(COPIED_BYTES) {
                let (s, d) = (self.objects.dataset_of(state, source)?, self.objects.dataset_of(state, target)?);
                let (at, place) = (from.1.saturating_add(done), to.1.saturating_add(done));
                check_alike(&s, &d, at, place)?;
                let mut bytes = vec![0; s.readable(at, copied_at_once(&s, at, len.saturating_sub(done)))];
                if bytes.is_empty() {
                    break;
                }
                let written = read_written(ValueChunks { reader: &self.chunks, state, d: &s }, at, &mut bytes, &|number| {
                    self.chunks.location(state, &s, number)
                })?;
                self.objects.write_defined(state, &d, place, &bytes, &written)?;
                done = done.saturating_add(bytes.len() as u64);
            }
            if done > 0 {
                state.touch(target)?;
            }
            Ok(done)
        })
    }
}

/// How many of `left` bytes from `at` are copied at once: a piece that ends with an element.
fn copied_at_once(s: &Dataset, at: u64, left: u64) -> usize {
    let size = s.element_size.max(1);
    let end = at.saturating_add(PIECE_BYTES.max(size));
    let whole = end.saturating_sub(end % size).saturating_sub(at);
    usize::try_from(whole.min(left)).unwrap_or(usize::MAX)
}

/// Errors: reading and writing the elements does as well as copying what is defined of them.
fn check_alike(s: &Dataset, d: &Dataset, at: u64, to: u64) -> Result<()> {
    let know = s.knows_defined() && d.knows_defined() && s.element_size == d.element_size && s.pattern == d.pattern;
    let know = know && s.element_size <= COPIED_BYTES;
    let size = d.element_size.max(1);
    let holds_others = |d: &Dataset| d.datatype.contains_vlen() || d.datatype.contains_reference();
    if know && at % size == to % size && !holds_others(s) && !holds_others(d) {
        return Ok(());
    }
    Err(Error::refused(libc::EOPNOTSUPP, "the elements of the datasets are copied by reading and writing them"))
}

/// Keeps the runs `defined` of `range` for bytes that are written next. Does nothing if the dataset
/// was not `blank` and none of its ranges are kept.
fn announce(state: &State, id: u64, blank: bool, range: Range<u64>, defined: &[Range<u64>]) {
    let mut all = state.announced();
    if !blank && !all.contains_key(&id) {
        return;
    }
    let kept = all.values().map(|announced| announced.ranges()).fold(0, usize::saturating_add);
    if kept.saturating_add(defined.len()) >= ANNOUNCED_RANGES_MAX {
        tracing::warn!("object {id}: no memory for user.h5dir.defined: all elements that are written next will be defined");
        return;
    }
    all.entry(id).or_default().set(range, defined);
}

impl ObjectAccess {
    /// Sets the defined elements of the dataset `id` that were announced; false if none were.
    pub(super) fn apply_announced(&self, state: &mut State, id: u64) -> Result<bool> {
        let Some(announced) = state.announced().get(&id).cloned() else { return Ok(false) };
        let d = self.dataset_of(state, id)?;
        // It may have become another dataset.
        if !d.knows_defined() {
            return Ok(false);
        }
        announced.within(d.elements()).try_for_each(|(range, defined)| self.change_defined(state, &d, range, defined))?;
        Ok(true)
    }

    /// Writes `bytes` from `at` on, extending the dataset if it may grow: the ranges `written`
    /// become defined, other whole elements undefined.
    fn write_defined(&self, state: &mut State, d: &Dataset, at: u64, bytes: &[u8], written: &[Range<usize>]) -> Result<()> {
        let end = at.checked_add(bytes.len() as u64).ok_or_else(|| Error::refused(libc::EFBIG, "past the end of the largest file"))?;
        if end > d.size {
            self.resize(state, d, end)?;
        }
        let d = self.dataset_of(state, d.id)?;
        let (size, mut next) = (d.element_size.max(1), 0usize);
        let place = |n: usize| at.saturating_add(n as u64);
        for part in written.iter().cloned().chain(std::iter::once(bytes.len()..bytes.len())) {
            let gap = place(next)..place(part.start);
            // A part of an element that the range holds is written.
            let whole = gap.start.next_multiple_of(size)..gap.end / size * size;
            let (head, tail) = match whole.start < whole.end {
                true => (gap.start..whole.start, whole.end..gap.end),
                false => (gap.clone(), gap.end..gap.end),
            };
            if whole.start < whole.end {
                self.undefine_bytes(state, &d, whole)?;
            }
            for range in [head, tail, place(part.start)..place(part.end)] {
                let within = |n: u64| usize::try_from(n.saturating_sub(at)).unwrap_or(usize::MAX);
                let part = bytes.get(within(range.start)..within(range.end)).unwrap_or_default();
                if !part.is_empty() {
                    self.write_elements(state, &d, range.start, part)?;
                }
            }
            next = part.end;
        }
        Ok(())
    }

    /// The undefined elements of a sparse dataset; none of another one.
    pub(super) fn undefined(&self, state: &State, d: &Dataset) -> Result<ElementSet> {
        if !d.knows_defined() {
            return Ok(ElementSet::default());
        }
        let all = ElementSet::of_run(&d.space.dims, &(0..d.elements()));
        let defined = (&Sets::of(self, d, state)? as &dyn ChunkSets).elements(&vec![0; d.space.dims.len()], &d.space.dims)?;
        all.difference(&defined)
    }

    /// Makes the elements of `set` undefined.
    pub(super) fn undefine(&self, state: &mut State, d: &Dataset, set: &ElementSet) -> Result<()> {
        let byte = |n: u64| n.saturating_mul(d.element_size);
        set.for_each_run(&d.space.dims, &mut |run| self.undefine_bytes(state, d, byte(run.start)..byte(run.end)))
    }

    /// Makes the elements of `set` undefined that have the fill value.
    pub(super) fn undefine_fill_values(&self, state: &mut State, d: &Dataset, set: &ElementSet) -> Result<()> {
        self.each_piece(state, d, set, &mut |state, at, bytes| {
            let place = Place::Dataset(d.id);
            let parts = StateCells { objects: self, state, place: &place };
            let blank = fill_values(&d.datatype, &d.pattern, bytes, &parts, FILL_FORM_MAX)?;
            let byte = |n: usize| at.saturating_add(n as u64);
            blank.into_iter().try_for_each(|part| self.undefine_bytes(state, d, byte(part.start)..byte(part.end)))
        })
    }

    /// Of the elements with numbers in `range`, those in `defined` (ascending, disjoint) become
    /// defined, and the others undefined if they have the fill value.
    fn change_defined(&self, state: &mut State, d: &Dataset, range: &Range<u64>, defined: &[Range<u64>]) -> Result<()> {
        let (dims, run) = (&d.space.dims, ElementSet::of_run(&d.space.dims, range));
        if !d.knows_defined() {
            return Err(unknown());
        }
        let (first, end) = covering_block(dims, range);
        let known = (&Sets::of(self, d, state)? as &dyn ChunkSets).elements(&first, &end)?.intersection(&run)?;
        let wanted = ElementSet::of_runs(dims, defined)?.intersection(&run)?;
        self.each_piece(state, d, &wanted.difference(&known)?, &mut |state, at, bytes| self.write_elements(state, d, at, bytes))?;
        self.undefine_fill_values(state, d, &known.difference(&wanted)?)
    }

    /// Calls `f` with the elements of `set`, whole ones: their first byte in the dataset, and their
    /// bytes.
    fn each_piece(
        &self,
        state: &mut State,
        d: &Dataset,
        set: &ElementSet,
        f: &mut dyn FnMut(&mut State, u64, &[u8]) -> Result<()>,
    ) -> Result<()> {
        let size = d.element_size.max(1);
        let most = (PIECE_BYTES / size).max(1);
        set.for_each_run(&d.space.dims, &mut |run| {
            let mut at = run.start;
            while at < run.end {
                let end = run.end.min(at.saturating_add(most));
                let mut bytes = vec![0; usize::try_from(end.saturating_sub(at).saturating_mul(size)).unwrap_or(usize::MAX)];
                let n = self.chunks.read_elements(state, d, at.saturating_mul(size), &mut bytes)?;
                f(state, at.saturating_mul(size), bytes.get(..n).unwrap_or_default())?;
                at = end;
            }
            Ok(())
        })
    }

    /// Makes the elements in a range of bytes undefined, and zeroes those of which it has a part;
    /// zeroes all where elements are always defined.
    fn punch_bytes(&self, state: &mut State, id: u64, range: Range<u64>) -> Result<()> {
        let d = self.dataset_of(state, id)?;
        if !d.knows_defined() {
            return self.zero_bytes(state, id, range.start, range.end.saturating_sub(range.start));
        }
        if d.datatype.contains_vlen() {
            return Err(Error::refused(libc::EOPNOTSUPP, "variable-length elements are replaced as a whole"));
        }
        self.undefine_bytes(state, &d, range)?;
        state.touch(id)
    }

    /// Makes the elements in a range of bytes of a sparse dataset undefined, and zeroes those of
    /// which it has a part.
    fn undefine_bytes(&self, state: &mut State, d: &Dataset, range: Range<u64>) -> Result<()> {
        let range = range.start..range.end.min(d.size);
        let len = range.end.saturating_sub(range.start);
        if len <= PIECE_BYTES {
            for chunk in d.grid.pieces(range.start, usize::try_from(len).unwrap_or(0)) {
                let rows = |p| d.grid.rows(p).map(|(at, _)| (at, p.len as u64)).collect::<Vec<_>>();
                let parts: Vec<_> = chunk.pieces.iter().flat_map(rows).collect();
                self.undefine_parts(state, d, chunk.chunk, &parts)?;
            }
            return Ok(());
        }
        let mut next = d.grid.slabs(&range);
        while let Some(number) = Sets::of(self, d, state)?.first(next.clone())? {
            next.start = number.saturating_add(1);
            let (mut parts, mut inside) = (Vec::new(), 0u64);
            d.grid.for_each_run(number, &mut |at, within, len| {
                let (start, end) = (at.max(range.start), at.saturating_add(len).min(range.end));
                if start < end {
                    inside = inside.saturating_add(end.saturating_sub(start));
                    parts.push((within.saturating_add(start.saturating_sub(at)), end.saturating_sub(start)));
                }
            });
            if inside > 0 {
                self.undefine_parts(state, d, number, &parts)?;
            }
        }
        Ok(())
    }

    /// Makes the elements of the block `first .. end` of a sparse dataset undefined.
    fn undefine_block(&self, state: &mut State, d: &Dataset, first: &[u64], end: &[u64]) -> Result<()> {
        let chunks = Sets::of(self, d, state)?.chunks;
        let count: Vec<u64> = end.iter().zip(first).map(|(e, f)| e.saturating_sub(*f)).collect();
        let Some(range) = chunks.range(first, &count)? else { return Ok(()) };
        let ends = d.grid.linear(&range.first).zip(d.grid.linear(&range.last)).ok_or_else(|| out_of_range(d.id))?;
        let mut next = ends.0..ends.1.saturating_add(1);
        while let Some(number) = Sets::of(self, d, state)?.first(next.clone())? {
            next.start = number.saturating_add(1);
            let origin = chunks.origin(&d.grid.scaled(number)).ok_or_else(|| out_of_range(d.id))?;
            let mut parts = Vec::new();
            local_block(&origin, &chunks.chunk_dims, first, end).for_each_run(&chunks.chunk_dims, &mut |run| {
                let byte = |n: u64| n.saturating_mul(d.element_size);
                parts.push((byte(run.start), byte(run.end.saturating_sub(run.start))));
                Ok(())
            })?;
            if !parts.is_empty() {
                self.undefine_parts(state, d, number, &parts)?;
            }
        }
        // The form of elements of variable length has other lengths.
        state.changed(d.id);
        state.touch(d.id)
    }

    /// Makes parts of a chunk undefined, offsets in it and lengths. Removes a chunk of which no
    /// element is left.
    fn undefine_parts(&self, state: &mut State, d: &Dataset, number: u64, parts: &[(u64, u64)]) -> Result<()> {
        let (key, mut is_empty, size) = (d.chunk_key(number), false, d.element_size.max(1));
        let decoded = self.chunks.location(state, d, number)?;
        let Some(defined) = decoded.image().and_then(|image| image.defined()) else { return Ok(()) };
        let has_any = |(at, len): &(u64, u64)| {
            let next = defined.next_element(d.chunk_dims(), at / size);
            next.is_some_and(|element| element.saturating_mul(size) < at.saturating_add(*len))
        };
        if !parts.iter().any(has_any) {
            return Ok(());
        }
        drop(decoded);
        self.edit_chunk(state, d, key.clone(), false, |image, ranges| {
            for (at, len) in parts {
                image.clear(&[(usize::try_from(*at).ok()?, usize::try_from(*len).ok()?)]);
                ranges.add(*at..at.saturating_add(*len));
            }
            is_empty = image.defined().is_some_and(ElementSet::is_empty);
            Some(())
        })?;
        if is_empty {
            match state.snapshot.get(&state.container, &key)? {
                // Another writer may define others of its elements.
                Some(_) => state.change(key.clone(), Body::Removed, state.written(&key)),
                None => state.remove(key)?,
            }
        }
        self.values.bound(state)
    }
}
