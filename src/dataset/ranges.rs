//! Ranges of chunked datasets: chunks that become zero are given back, chunks that are not there are allocated.
//!
//! What is done is proportional to the chunks that are there, or are allocated, and not to the range. Each call does so much
//! that the changes of one operation stay small, and tells the chunk at which the next one goes on.

use super::chunk::dirty::DirtyChunk;
use super::chunked::Chunked;
use super::index::write;
use super::index::{ChunkRecord, Visit};
use super::write::{ChunkWriter, PIECE, no_place, refuse};
use crate::base::{Address, Result};
use crate::format::message::data_layout::DataLayout;
use crate::meta::edit::SpaceKind;
use std::collections::BTreeMap;
use std::ops::{ControlFlow, Range};
use std::sync::atomic::Ordering;

/// Chunks looked up one by one; among more, those that are there are found by walking the index.
const FEW: u64 = 1024;
/// Chunks handled by one call.
const CHUNKS_MAX: usize = 1 << 16;
/// Chunks of so short a range are found one by one, too; bytes.
const SHORT: u64 = 64 << 10;
/// Bytes decoded or stored by one call, about.
const BYTES_MAX: u64 = 16 << 20;
/// Larger unfiltered chunks are not read to find out whether they are zero.
const LOOKED_AT_MAX: u64 = 16 << 20;

/// How far a call came.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Progress {
    /// The layout message changed.
    pub layout: bool,
    /// The chunk at which to go on.
    pub next: Option<u64>,
}

/// Which parts of a chunk lie in a range, and what the others hold.
struct Parts {
    /// Where they begin in the chunk, and their lengths.
    inside: Vec<(usize, usize)>,
    outside: Vec<(usize, usize)>,
}

impl Parts {
    fn is_zero(parts: &[(usize, usize)], bytes: &[u8]) -> bool {
        parts.iter().all(|(at, len)| bytes.get(*at..at.saturating_add(*len)).is_some_and(|b| b.iter().all(|b| *b == 0)))
    }

    fn clear(&self, bytes: &mut [u8]) {
        for (at, len) in &self.inside {
            if let Some(part) = bytes.get_mut(*at..at.saturating_add(*len)) {
                part.fill(0);
            }
        }
    }

    fn bytes(&self) -> u64 {
        self.inside.iter().map(|(_, len)| *len as u64).sum()
    }
}

impl ChunkWriter<'_> {
    /// Zeroes the bytes `range` of a dataset whose fill value is zero, from chunk `from` on. A chunk of which nothing else is left
    /// is given back.
    pub fn zero(&self, layout: &mut DataLayout, range: &Range<u64>, from: u64) -> Result<Progress> {
        if self.is_implicit() {
            return self.zero_in_place(range, from);
        }
        let (there, more) = self.there(range, from)?;
        let mut progress = Progress { layout: false, next: more };
        let mut loaded = 0u64;
        for (number, record) in there {
            if loaded > BYTES_MAX {
                progress.next = Some(number);
                break;
            }
            let span = self.chunked.grid.span(number);
            if range.start <= span.start && span.end <= range.end {
                progress.layout |= self.give_back(layout, number, record)?;
            } else {
                let (layout, bytes) = self.zero_part(layout, range, number, record)?;
                progress.layout |= layout;
                loaded = loaded.saturating_add(bytes);
            }
        }
        Ok(progress)
    }

    /// The same where chunks stay where they are; `from` and what is told as the next one are bytes.
    fn zero_in_place(&self, range: &Range<u64>, from: u64) -> Result<Progress> {
        let mut at = range.start.max(from);
        let stop = at.saturating_add(BYTES_MAX).min(range.end);
        let zeros = vec![0u8; PIECE];
        while at < stop {
            let n = usize::try_from(stop.saturating_sub(at)).unwrap_or(PIECE).min(PIECE);
            for t in self.chunked.grid.touched(at, n) {
                let record = self.chunked.index.lookup(self.store, &self.chunked.grid.scaled(t.chunk))?.ok_or_else(no_place)?;
                self.write_in_place(&t, zeros.get(..n).unwrap_or_default(), record, false)?;
                self.forget(self.chunked.key(t.chunk));
            }
            at = at.saturating_add(n as u64);
        }
        Ok(Progress { layout: false, next: Some(at).filter(|at| *at < range.end) })
    }

    /// Numbers of the chunks that hold bytes of a short range, in order.
    fn of_short(&self, range: &Range<u64>) -> Vec<u64> {
        let len = usize::try_from(range.end.saturating_sub(range.start)).unwrap_or(usize::MAX);
        let mut numbers: Vec<u64> = self.chunked.grid.touched(range.start, len).iter().map(|t| t.chunk).collect();
        numbers.sort_unstable();
        numbers.dedup();
        numbers
    }

    /// The chunks from `from` on, in the file or in memory, that may hold bytes of `range`; and the next one, if these are not all.
    fn there(&self, range: &Range<u64>, from: u64) -> Result<(BTreeMap<u64, Option<ChunkRecord>>, Option<u64>)> {
        let c = self.chunked;
        let slabs = c.grid.slabs(range);
        let numbers = slabs.start.max(from)..slabs.end;
        let wanted = |n: u64| {
            let span = c.grid.span(n);
            numbers.contains(&n) && span.start < range.end && range.start < span.end
        };
        let mut there = BTreeMap::new();
        let mut more = None;
        let mut keep = |number: u64, record: Option<ChunkRecord>| {
            there.entry(number).or_insert(record);
            if there.len() > CHUNKS_MAX
                && let Some((last, _)) = there.pop_last()
            {
                more = Some(more.map_or(last, |m: u64| m.min(last)));
            }
        };
        let few: Option<Vec<u64>> = if numbers.end.saturating_sub(numbers.start) <= FEW {
            Some(numbers.clone().filter(|n| wanted(*n)).collect())
        } else {
            let short = range.end.saturating_sub(range.start) <= SHORT;
            short.then(|| self.of_short(range).into_iter().filter(|n| wanted(*n)).collect())
        };
        if let Some(few) = few {
            for number in few {
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
        Ok((there, more))
    }

    /// Makes a chunk one that was never written. Returns whether the layout message changed.
    pub(super) fn give_back(&self, layout: &mut DataLayout, number: u64, record: Option<ChunkRecord>) -> Result<bool> {
        let key = self.chunked.key(number);
        self.env.dirty.remove(key);
        self.forget(key);
        let Some(record) = record else { return Ok(false) };
        if self.is_implicit() {
            self.write_fill(record.address)?;
            return Ok(false);
        }
        let scaled = self.chunked.grid.scaled(number);
        let filtered = !self.chunked.pipeline.is_empty();
        let changed = write::remove(self.store, layout, self.grid, filtered, self.btree_k, &scaled)?;
        self.store.free_kind(record.address, self.chunked.stored_size(record), SpaceKind::Raw)?;
        self.env.stored.change(self.chunked.number, 0, self.chunked.stored_size(record));
        Ok(changed.layout)
    }

    /// Zeroes the part of a chunk that lies in `range`. Returns whether the layout message changed, and the bytes decoded.
    fn zero_part(&self, layout: &mut DataLayout, range: &Range<u64>, number: u64, record: Option<ChunkRecord>) -> Result<(bool, u64)> {
        let parts = self.parts(number, range);
        if parts.inside.is_empty() {
            return Ok((false, 0));
        }
        let (c, key) = (self.chunked, self.chunked.key(number));
        if let Some(chunk) = self.env.dirty.get(key) {
            return Ok((self.zero_changed(layout, number, record, &chunk, &parts)?, 0));
        }
        let Some(record) = record else { return Ok((false, 0)) };
        let size = c.grid.chunk_bytes();
        if parts.outside.is_empty() && !self.is_implicit() {
            return self.give_back(layout, number, Some(record)).map(|changed| (changed, 0));
        }
        let few = parts.bytes() <= BYTES_MAX && parts.bytes().saturating_mul(2) < size;
        let through = size > self.env.changed_chunk_max();
        let in_place = c.is_in_place(&c.grid.scaled(number), record) && (few || through || self.is_implicit());
        if through && !in_place && c.encoding_of_files(self.env).is_some() {
            let chunk = self.change(number)?;
            return Ok((self.zero_changed(layout, number, Some(record), &chunk, &parts)?, size));
        }
        if !in_place || size <= LOOKED_AT_MAX {
            let mut bytes = self.load(number, Some(record))?;
            if Parts::is_zero(&parts.outside, &bytes) && !self.is_implicit() {
                return self.give_back(layout, number, Some(record)).map(|changed| (changed, size));
            }
            if Parts::is_zero(&parts.inside, &bytes) {
                return Ok((false, size));
            }
            if !in_place {
                parts.clear(&mut bytes);
                self.env.dirty.insert(key, bytes, parts.bytes(), false);
                self.forget(key);
                return Ok((false, size));
            }
        }
        let zeros = vec![0; PIECE];
        for (at, len) in parts.inside {
            for from in (0..len).step_by(PIECE) {
                let address = record.address.checked_add(at as u64).and_then(|a| a.checked_add(from as u64)).unwrap_or(Address::UNDEF);
                self.store.write_raw(address, zeros.get(..len.saturating_sub(from).min(PIECE)).unwrap_or_default())?;
            }
        }
        self.forget(key);
        Ok((false, size))
    }

    /// Zeroes parts of a changed chunk; one of which nothing else is left is given back.
    fn zero_changed(
        &self,
        layout: &mut DataLayout,
        number: u64,
        record: Option<ChunkRecord>,
        chunk: &DirtyChunk,
        parts: &Parts,
    ) -> Result<bool> {
        if chunk.is_zero(&parts.outside)? { self.give_back(layout, number, record) } else { chunk.clear(&parts.inside).map(|()| false) }
    }

    fn parts(&self, number: u64, range: &Range<u64>) -> Parts {
        let mut parts = Parts { inside: Vec::new(), outside: Vec::new() };
        self.chunked.grid.stretches(number, &mut |at, within, len| {
            // Before, in and behind the range.
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

    /// Stores chunks of fill values where bytes of `range` have none, from byte `from` on; what is told as the next one is a byte.
    pub fn allocate(&self, layout: &mut DataLayout, range: &Range<u64>, from: u64) -> Result<Progress> {
        let c = self.chunked;
        let mut progress = Progress::default();
        if self.is_implicit() {
            return Ok(progress);
        }
        let (mut stored, mut at) = (0u64, range.start.max(from));
        let through = c.grid.chunk_bytes() > self.env.changed_chunk_max();
        let (mut raw, mut encoded, mut streamed) = (None, None, None);
        while at < range.end {
            let end = at.saturating_add(SHORT).min(range.end);
            for number in self.of_short(&(at..end)) {
                let scaled = c.grid.scaled(number);
                if self.env.dirty.get(c.key(number)).is_some() || c.index.lookup(self.store, &scaled)?.is_some() {
                    continue;
                }
                write::holds(layout, self.grid, &scaled)?;
                if through && c.is_raw(&scaled) {
                    progress.layout |= self.place_blank(layout, &scaled)?.1;
                    stored = stored.saturating_add(c.grid.chunk_bytes());
                    continue;
                }
                if through && let Some(how) = c.encoding_of_files(self.env) {
                    let file = match &streamed {
                        Some(file) => file,
                        None => streamed.insert(c.encode_file(self.env, &self.blank_file()?, how)?),
                    };
                    progress.layout |= self.place_file(layout, &scaled, file)?;
                    self.forget(c.key(number));
                    stored = stored.saturating_add(file.len());
                    continue;
                }
                let raw = match &mut raw {
                    Some(raw) => raw,
                    None => raw.insert(self.blank(true)?),
                };
                let (bytes, mask) = match &mut encoded {
                    _ if c.is_raw(&scaled) => (&*raw, 0),
                    Some((bytes, mask)) => (&*bytes, *mask),
                    None => {
                        let (bytes, mask) = encoded.insert(c.pipeline.encode(raw.clone()).map_err(|e| refuse(&e))?);
                        (&*bytes, *mask)
                    }
                };
                progress.layout |= self.place(layout, &scaled, bytes, mask)?;
                self.forget(c.key(number));
                stored = stored.saturating_add(bytes.len() as u64);
            }
            at = end;
            let seen = at.saturating_sub(range.start.max(from));
            if at < range.end && (stored > BYTES_MAX || seen >= SHORT.saturating_mul(FEW)) {
                progress.next = Some(at);
                break;
            }
        }
        Ok(progress)
    }

    /// Makes the chunks from `to` on what the chunks `from` of `source` are, as they are stored: without decoding them. The caller
    /// has seen to it that both have the same shape, filters and fill value, and that none of them waits in memory at the source.
    pub fn adopt(&self, layout: &mut DataLayout, source: &Chunked, from: Range<u64>, to: u64) -> Result<bool> {
        let c = self.chunked;
        let mut changed = false;
        for (i, number) in from.enumerate() {
            let target = to.saturating_add(i as u64);
            let (at, scaled) = (source.grid.scaled(number), c.grid.scaled(target));
            let Some(record) = source.index.lookup(self.store, &at)? else {
                let old = c.index.lookup(self.store, &scaled)?;
                changed |= self.give_back(layout, target, old)?;
                continue;
            };
            let size = if source.is_raw(&at) { source.grid.chunk_bytes() } else { record.size };
            source.check_stored(self.store, record, size)?;
            let mut bytes = vec![0; usize::try_from(size).unwrap_or(0)];
            self.store.read_raw(record.address, &mut bytes)?;
            changed |= self.place(layout, &scaled, &bytes, record.filter_mask)?;
            self.env.dirty.remove(c.key(target));
            self.forget(c.key(target));
            self.env.copied.fetch_add(1, Ordering::Relaxed);
        }
        Ok(changed)
    }
}
