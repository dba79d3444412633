//! Zeroes and allocates ranges of chunked datasets.
//!
//! The cost is proportional to the chunks that exist or are allocated, not to the range. Each call
//! does one step of bounded size and returns the position of the next step.

use super::write::{ChunkWriter, LOOKUP_CHUNKS_MAX, not_allocated};
use crate::base::limits::IO_PIECE_BYTES;
use crate::base::{Address, Result};
use crate::dataset::chunk::dirty::{Before, DirtyChunk};
use crate::dataset::index::write;
use crate::dataset::index::{ChunkRecord, Visit};
use crate::format::message::data_layout::DataLayout;
use crate::meta::edit::SpaceKind;
use std::collections::BTreeMap;
use std::ops::{ControlFlow, Range};

/// Most chunks handled by one call.
const STEP_CHUNKS_MAX: usize = 1 << 16;
/// Chunks of a range up to this length are looked up one by one, bytes.
const SHORT_RANGE_BYTES: u64 = 64 << 10;
/// Approximate bytes decoded or stored by one call.
const STEP_BYTES: u64 = 16 << 20;
/// Largest unfiltered chunk that is read to check whether it is all zero, bytes.
const ZERO_CHECK_MAX_BYTES: u64 = 16 << 20;

/// Result of one call.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct RangeStep {
    /// The layout message changed.
    pub(crate) layout: bool,
    /// Position of the next call; `None`: the range is done. A chunk number or a byte, as each
    /// method says.
    pub(crate) next: Option<u64>,
}

/// Parts of a chunk inside and outside a range: offset in the chunk, length.
struct Parts {
    inside: Vec<(usize, usize)>,
    outside: Vec<(usize, usize)>,
}

impl Parts {
    fn bytes(&self) -> u64 {
        self.inside.iter().map(|(_, len)| *len as u64).sum()
    }
}

impl ChunkWriter<'_> {
    /// Zeroes bytes `range` of a dataset whose fill value is zero; frees chunks that become zero.
    ///
    /// `from` and the next position are chunk numbers; bytes for an implicit index.
    pub(crate) fn zero(&self, layout: &mut DataLayout, range: &Range<u64>, from: u64) -> Result<RangeStep> {
        if self.is_implicit() {
            return self.zero_in_place(range, from);
        }
        let (chunks, next) = self.used_chunks(range, from)?;
        let mut progress = RangeStep { layout: false, next };
        let mut loaded = 0u64;
        for (number, record) in chunks {
            if loaded > STEP_BYTES {
                progress.next = Some(number);
                break;
            }
            let span = self.chunked.grid.span(number);
            if range.start <= span.start && span.end <= range.end {
                progress.layout |= self.free_chunk(layout, number, record)?;
            } else {
                let (layout, bytes) = self.zero_part(layout, range, number, record)?;
                progress.layout |= layout;
                loaded = loaded.saturating_add(bytes);
            }
        }
        Ok(progress)
    }

    /// Zeroes bytes `range` of a dataset with an implicit index, in place. `from` and the next
    /// position are bytes.
    fn zero_in_place(&self, range: &Range<u64>, from: u64) -> Result<RangeStep> {
        let mut at = range.start.max(from);
        let stop = at.saturating_add(STEP_BYTES).min(range.end);
        let zeros = vec![0u8; IO_PIECE_BYTES];
        while at < stop {
            let n = usize::try_from(stop.saturating_sub(at)).unwrap_or(IO_PIECE_BYTES).min(IO_PIECE_BYTES);
            for t in self.chunked.grid.pieces(at, n) {
                let record = self.chunked.index.lookup(self.store, &self.chunked.grid.scaled(t.chunk))?.ok_or_else(not_allocated)?;
                self.write_in_place(&t, zeros.get(..n).unwrap_or_default(), record, false)?;
                self.drop_decoded(self.chunked.key(t.chunk));
            }
            at = at.saturating_add(n as u64);
        }
        Ok(RangeStep { layout: false, next: Some(at).filter(|at| *at < range.end) })
    }

    /// Numbers of the chunks that contain bytes of a short range, ascending.
    fn chunks_of(&self, range: &Range<u64>) -> Vec<u64> {
        let len = usize::try_from(range.end.saturating_sub(range.start)).unwrap_or(usize::MAX);
        let mut numbers: Vec<u64> = self.chunked.grid.pieces(range.start, len).iter().map(|t| t.chunk).collect();
        numbers.sort_unstable();
        numbers.dedup();
        numbers
    }

    /// Stored and dirty chunks from number `from` that may contain bytes of `range`, with their
    /// records.
    ///
    /// At most [`STEP_CHUNKS_MAX`]; if there are more, also the number of the next one.
    fn used_chunks(&self, range: &Range<u64>, from: u64) -> Result<(BTreeMap<u64, Option<ChunkRecord>>, Option<u64>)> {
        let c = self.chunked;
        let slabs = c.grid.slabs(range);
        let numbers = slabs.start.max(from)..slabs.end;
        let wanted = |n: u64| {
            let span = c.grid.span(n);
            numbers.contains(&n) && span.start < range.end && range.start < span.end
        };
        let mut used = BTreeMap::new();
        let mut next = None;
        let mut keep = |number: u64, record: Option<ChunkRecord>| {
            used.entry(number).or_insert(record);
            if used.len() > STEP_CHUNKS_MAX
                && let Some((last, _)) = used.pop_last()
            {
                next = Some(next.map_or(last, |n: u64| n.min(last)));
            }
        };
        let candidates: Option<Vec<u64>> = if numbers.end.saturating_sub(numbers.start) <= LOOKUP_CHUNKS_MAX {
            Some(numbers.clone().filter(|n| wanted(*n)).collect())
        } else {
            let short = range.end.saturating_sub(range.start) <= SHORT_RANGE_BYTES;
            short.then(|| self.chunks_of(range).into_iter().filter(|n| wanted(*n)).collect())
        };
        if let Some(candidates) = candidates {
            for number in candidates {
                if let Some(record) = c.index.lookup(self.store, &c.grid.scaled(number))? {
                    keep(number, Some(record));
                }
            }
        } else {
            let mut visit = |scaled: &[u64], record: ChunkRecord| {
                if let Some(number) = c.grid.linear(scaled).filter(|n| wanted(*n)) {
                    keep(number, Some(record));
                }
                Ok(ControlFlow::Continue(()))
            };
            c.index.iterate(self.store, &mut visit as &mut Visit<'_>)?;
        }
        for (key, _) in self.env.dirty.of(c.number) {
            if wanted(key.chunk) {
                keep(key.chunk, None);
            }
        }
        Ok((used, next))
    }

    /// Discards a chunk's elements and frees its space. Returns whether the layout message changed.
    ///
    /// A chunk of an implicit index stays allocated and is overwritten with the fill value.
    pub(super) fn free_chunk(&self, layout: &mut DataLayout, number: u64, record: Option<ChunkRecord>) -> Result<bool> {
        let key = self.chunked.key(number);
        self.env.dirty.remove(key);
        self.drop_decoded(key);
        let Some(record) = record else { return Ok(false) };
        if self.is_implicit() {
            self.write_fill(record.address)?;
            return Ok(false);
        }
        let scaled = self.chunked.grid.scaled(number);
        let shape = self.chunked.format.record_shape();
        let changed = write::remove(self.store, layout, self.grid, shape, self.btree_k, &scaled)?;
        self.store.free_kind(record.address, self.chunked.format.stored_size(record), SpaceKind::Raw)?;
        self.env.stored.change(self.chunked.number, 0, self.chunked.format.stored_size(record));
        Ok(changed.layout)
    }

    /// Zeroes the part of a chunk inside `range`. Returns whether the layout message changed, and
    /// the bytes decoded.
    fn zero_part(&self, layout: &mut DataLayout, range: &Range<u64>, number: u64, record: Option<ChunkRecord>) -> Result<(bool, u64)> {
        let parts = self.parts(number, range);
        if parts.inside.is_empty() {
            return Ok((false, 0));
        }
        let (c, key) = (self.chunked, self.chunked.key(number));
        if let Some(chunk) = self.env.dirty.get(key) {
            return Ok((self.zero_dirty(layout, number, record, &chunk, &parts)?, 0));
        }
        let Some(record) = record else { return Ok((false, 0)) };
        let size = c.grid.chunk_bytes();
        if parts.outside.is_empty() && !self.is_implicit() {
            return self.free_chunk(layout, number, Some(record)).map(|changed| (changed, 0));
        }
        let small = parts.bytes() <= STEP_BYTES && parts.bytes().saturating_mul(2) < size;
        let too_large = size > self.env.changed_chunk_max();
        let in_place = c.is_in_place(&c.grid.scaled(number), record) && (small || too_large || self.is_implicit());
        if too_large && !in_place && c.format.changes_in_files(self.env) {
            let chunk = self.make_dirty(number)?;
            return Ok((self.zero_dirty(layout, number, Some(record), &chunk, &parts)?, size));
        }
        if !in_place || size <= ZERO_CHECK_MAX_BYTES {
            let mut image = self.load(number, Some(record))?;
            if image.is_blank(&parts.outside) && !self.is_implicit() {
                return self.free_chunk(layout, number, Some(record)).map(|changed| (changed, size));
            }
            if image.is_blank(&parts.inside) {
                return Ok((false, size));
            }
            if !in_place {
                image.clear(&parts.inside);
                self.add_dirty(key, image, parts.bytes(), Before::Moves);
                self.drop_decoded(key);
                return Ok((false, size));
            }
        }
        let zeros = vec![0; IO_PIECE_BYTES];
        for (at, len) in parts.inside {
            for from in (0..len).step_by(IO_PIECE_BYTES) {
                let address = record.address.checked_add(at as u64).and_then(|a| a.checked_add(from as u64)).unwrap_or(Address::UNDEF);
                self.store.write_raw(address, zeros.get(..len.saturating_sub(from).min(IO_PIECE_BYTES)).unwrap_or_default())?;
            }
        }
        self.drop_decoded(key);
        Ok((false, size))
    }

    /// Zeroes parts of a dirty chunk; frees the chunk if the rest is zero too.
    fn zero_dirty(
        &self,
        layout: &mut DataLayout,
        number: u64,
        record: Option<ChunkRecord>,
        chunk: &DirtyChunk,
        parts: &Parts,
    ) -> Result<bool> {
        if chunk.is_blank(&parts.outside)? { self.free_chunk(layout, number, record) } else { chunk.clear(&parts.inside).map(|()| false) }
    }

    fn parts(&self, number: u64, range: &Range<u64>) -> Parts {
        let mut parts = Parts { inside: Vec::new(), outside: Vec::new() };
        self.chunked.grid.for_each_run(number, &mut |at, within, len| {
            // Parts before, inside and after the range.
            let end = at.saturating_add(len);
            let cuts = [at, range.start.clamp(at, end), range.end.clamp(at, end), end];
            for (i, pair) in cuts.windows(2).enumerate() {
                let [from, to] = pair else { continue };
                let place = usize::try_from(from.saturating_sub(at).saturating_add(within));
                let len = usize::try_from(to.saturating_sub(*from));
                if let (Ok(place), Ok(len @ 1..)) = (place, len) {
                    if i == 1 { parts.inside.push((place, len)) } else { parts.outside.push((place, len)) }
                }
            }
        });
        parts
    }

    /// Stores chunks of fill values where bytes of `range` have no chunk. `from` and the next
    /// position are bytes.
    pub(crate) fn allocate(&self, layout: &mut DataLayout, range: &Range<u64>, from: u64) -> Result<RangeStep> {
        let c = self.chunked;
        let mut progress = RangeStep::default();
        if self.is_implicit() {
            return Ok(progress);
        }
        let (mut stored, mut at) = (0u64, range.start.max(from));
        let too_large = c.grid.chunk_bytes() > self.env.changed_chunk_max();
        let (mut edge, mut encoded, mut streamed) = (None, None, None);
        while at < range.end {
            let end = at.saturating_add(SHORT_RANGE_BYTES).min(range.end);
            for number in self.chunks_of(&(at..end)) {
                let scaled = c.grid.scaled(number);
                if self.env.dirty.get(c.key(number)).is_some() || c.index.lookup(self.store, &scaled)?.is_some() {
                    continue;
                }
                write::check_capacity(layout, self.grid, &scaled)?;
                if too_large && c.is_plain(&scaled) {
                    progress.layout |= self.store_blank(layout, &scaled)?.1;
                    stored = stored.saturating_add(c.grid.chunk_bytes());
                    continue;
                }
                if too_large && c.format.changes_in_files(self.env) {
                    let file = match &streamed {
                        Some(file) => file,
                        None => streamed.insert(c.format.encode_file(self.env, &self.blank_file()?)?),
                    };
                    progress.layout |= self.store_file(layout, &scaled, file)?;
                    self.drop_decoded(c.key(number));
                    stored = stored.saturating_add(file.len());
                    continue;
                }
                let is_edge = c.grid.is_edge(&scaled);
                // Chunks of fill values have the same stored bytes, except edge chunks.
                let blank = if c.format.stores_edges_differently() && is_edge { &mut edge } else { &mut encoded };
                let (bytes, form) = match blank {
                    Some((bytes, form)) => (&*bytes, *form),
                    None => {
                        let (bytes, form) = blank.insert(c.format.encode(self.blank(true)?, is_edge)?);
                        (&*bytes, *form)
                    }
                };
                progress.layout |= self.store_chunk(layout, &scaled, bytes, form)?;
                self.drop_decoded(c.key(number));
                stored = stored.saturating_add(bytes.len() as u64);
            }
            at = end;
            let covered = at.saturating_sub(range.start.max(from));
            if at < range.end && (stored > STEP_BYTES || covered >= SHORT_RANGE_BYTES.saturating_mul(LOOKUP_CHUNKS_MAX)) {
                progress.next = Some(at);
                break;
            }
        }
        Ok(progress)
    }
}
