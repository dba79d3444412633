//! Writing the elements of chunked datasets: into changed chunks in memory, and from there to the file.
//!
//! A changed chunk is always written to new space, and its old place is given back: whatever the machine
//! stops at, the index leads to a whole chunk. Only small changes of unfiltered chunks are made in place,
//! through the transaction. See docs/DESIGN-crash.md.

use super::chunk::cache::ChunkKey;
use super::chunk::dirty::DirtyChunk;
use super::chunk::pieces::Touched;
use super::chunk::plain::{Plain, Stored};
use super::chunk::{ChunkGrid, cache::Found};
use super::chunked::Chunked;
use super::environment::Environment;
use super::fill::FillPattern;
use super::index::write::{self, Changed};
use super::index::{ChunkRecord, Visit};
use crate::base::{Address, Error, Result, limits};
use crate::filter::FilterError;
use crate::filter::pipeline::Pipeline;
use crate::format::message::data_layout::DataLayout;
use crate::meta::Store;
use crate::meta::edit::SpaceKind;
use rayon::prelude::*;
use std::ops::ControlFlow;
use std::sync::Arc;

/// Chunks of an implicit index that are looked at when its dataset is made smaller.
const IMPLICIT_MAX: u64 = 1 << 24;

/// Fill values are written in pieces of this many bytes.
pub(super) const PIECE: usize = 1 << 20;
/// Chunks looked up one by one; among more, those that are there are found by walking the index.
const FEW: u64 = 1024;

/// What a chunked dataset is written through.
pub struct ChunkWriter<'a> {
    /// Cache, changed chunks, threads.
    pub env: &'a Environment,
    /// The container.
    pub store: &'a Store,
    /// The dataset's chunks.
    pub chunked: &'a Chunked,
    /// Geometry, with the largest extent.
    pub grid: &'a ChunkGrid,
    /// What unwritten elements read as.
    pub fill: &'a FillPattern,
    /// K of version 1 chunk B-trees.
    pub btree_k: u16,
}

/// A changed chunk as it is stored.
pub struct Encoded {
    /// Which chunk.
    pub key: ChunkKey,
    /// What was encoded,
    pub chunk: Arc<DirtyChunk>,
    /// in which state,
    pub version: u64,
    /// by which filters,
    pipeline: Pipeline,
    /// or without filters.
    raw: bool,
    stored: StoredBytes,
}

/// What is stored of a chunk.
enum StoredBytes {
    /// Its own bytes.
    Own,
    /// These, and the filter mask.
    Memory(Vec<u8>, u32),
    /// What is in a file.
    File(Stored),
}

/// How many chunks are encoded before they are written: a few per thread, so that few are in memory twice.
pub fn batch_len(env: &Environment) -> usize {
    env.pool.current_num_threads().max(1).saturating_mul(4)
}

/// Encodes changed chunks of one dataset, several at once. No lock is held meanwhile.
pub fn encode(env: &Environment, c: &Chunked, chunks: &[(ChunkKey, Arc<DirtyChunk>)]) -> Result<Vec<Encoded>> {
    let one = |(key, chunk): &(ChunkKey, Arc<DirtyChunk>)| {
        let raw = c.is_raw(&c.grid.scaled(key.chunk));
        let as_is = Encoded {
            key: *key,
            chunk: chunk.clone(),
            version: chunk.version(),
            pipeline: c.pipeline.clone(),
            raw,
            stored: StoredBytes::Own,
        };
        if raw {
            return Ok(as_is);
        }
        if let Some(file) = chunk.file() {
            let how = c.encoding_of_files(env).ok_or_else(|| refuse(&FilterError::unsupported("pipeline", "not from a file")))?;
            return Ok(Encoded { stored: StoredBytes::File(c.encode_file(env, file, how)?), ..as_is });
        }
        let (bytes, version) = chunk.snapshot();
        let (bytes, mask) = c.pipeline.encode(bytes).map_err(|e| refuse(&e))?;
        Ok(Encoded { version, stored: StoredBytes::Memory(bytes, mask), ..as_is })
    };
    if c.pipeline.is_empty() || chunks.len() < 2 {
        return chunks.iter().map(one).collect();
    }
    env.pool.install(|| chunks.par_iter().map(one).collect())
}

impl ChunkWriter<'_> {
    /// Writes `bytes` from `offset` on, which lie within the dataset. `grown`: it was made longer for them, and none of them may
    /// stay behind its end if that is taken back.
    /// Returns whether the layout message changed.
    pub fn write(&self, layout: &mut DataLayout, offset: u64, bytes: &[u8], grown: bool) -> Result<bool> {
        let mut changed = false;
        for t in self.chunked.grid.touched(offset, bytes.len()) {
            changed |= self.write_chunk(layout, &t, bytes, grown)?;
        }
        Ok(changed)
    }

    fn write_chunk(&self, layout: &mut DataLayout, t: &Touched, bytes: &[u8], grown: bool) -> Result<bool> {
        let (c, key) = (self.chunked, self.chunked.key(t.chunk));
        if let Some(chunk) = self.env.dirty.get(key) {
            if grown {
                for (at, p) in t.pieces.iter().flat_map(|p| c.grid.rows(p).map(move |(at, _)| (at, p))) {
                    self.env.dirty.keep_bytes(key, &chunk, usize::try_from(at).unwrap_or(usize::MAX), p.len)?;
                }
            }
            return chunk.gather(&c.grid, t, bytes).map(|()| false);
        }
        let scaled = c.grid.scaled(t.chunk);
        let record = c.index.lookup(self.store, &scaled)?;
        let through = c.grid.chunk_bytes() > self.env.changed_chunk_max();
        if let Some(record) = record
            && c.is_in_place(&scaled, record)
            && (self.is_implicit() || through || t.bytes().saturating_mul(2) < c.grid.chunk_bytes())
        {
            self.write_in_place(t, bytes, record, grown)?;
            self.forget(key);
            return Ok(false);
        }
        if record.is_none() {
            if self.is_implicit() {
                return Err(no_place());
            }
            write::holds(layout, self.grid, &scaled)?;
        }
        if through && c.is_raw(&scaled) && c.grid.chunk_bytes() <= limits::CHUNK_BYTES_MAX {
            let (record, changed) = self.place_blank(layout, &scaled)?;
            self.write_in_place(t, bytes, record, grown)?;
            return Ok(changed);
        }
        if through && c.encoding_of_files(self.env).is_some() {
            let chunk = self.change(t.chunk)?;
            return chunk.gather(&c.grid, t, bytes).map(|()| false);
        }
        let mut chunk = if t.bytes() == c.grid.chunk_bytes() { self.blank(false)? } else { self.load(t.chunk, record)? };
        c.grid.gather(t, bytes, &mut chunk).ok_or_else(short)?;
        self.env.dirty.insert(key, chunk, t.bytes(), record.is_none());
        self.forget(key);
        Ok(false)
    }

    /// Writes a chunk of fill values to `address`.
    pub(super) fn write_fill(&self, address: Address) -> Result<()> {
        let size = self.chunked.grid.chunk_bytes();
        let mut piece = vec![0u8; PIECE.min(usize::try_from(size).unwrap_or(PIECE))];
        let mut at = 0u64;
        while at < size {
            let n = usize::try_from(size.saturating_sub(at)).unwrap_or(PIECE).min(PIECE);
            let part = piece.get_mut(..n).unwrap_or_default();
            self.fill.fill(at, part);
            self.store.write_raw(address.checked_add(at).unwrap_or(Address::UNDEF), part)?;
            at = at.saturating_add(n as u64);
        }
        Ok(())
    }

    /// Room for a chunk that is too large to wait in memory, holding the fill value. Returns whether the layout message changed.
    pub(super) fn place_blank(&self, layout: &mut DataLayout, scaled: &[u64]) -> Result<(ChunkRecord, bool)> {
        let size = self.chunked.grid.chunk_bytes();
        let (address, zeros) = self.store.allocate_known(size, SpaceKind::Raw)?;
        if !(zeros && self.fill.is_zero()) {
            self.write_fill(address)?;
        }
        let record = ChunkRecord { address, size, filter_mask: 0 };
        let filtered = !self.chunked.pipeline.is_empty();
        let done = write::insert(self.store, layout, self.grid, filtered, self.btree_k, scaled, record)?;
        self.env.stored.change(self.chunked.number, size, 0);
        Ok((record, done.layout))
    }

    pub(super) fn write_in_place(&self, t: &Touched, bytes: &[u8], record: ChunkRecord, grown: bool) -> Result<()> {
        for p in &t.pieces {
            for (at, from) in self.chunked.grid.rows(p) {
                let part = bytes.get(from..from.saturating_add(p.len)).ok_or_else(short)?;
                let at = record.address.checked_add(at).unwrap_or(Address::UNDEF);
                if grown { self.store.write(at, part)? } else { self.store.write_raw(at, part)? }
            }
        }
        Ok(())
    }

    pub(super) fn is_implicit(&self) -> bool {
        self.chunked.is_implicit
    }

    /// What is decoded of an old state of the chunk is of no use any more.
    pub(super) fn forget(&self, key: ChunkKey) {
        self.env.cache.remove(key);
        self.env.spools.remove(key);
    }

    /// Refuses chunks that are too large to be changed: each change would need several times their size of memory, and as
    /// the chunk could not wait there for the next one, be as slow as all of it.
    fn fits(&self) -> Result<()> {
        let size = self.chunked.grid.chunk_bytes();
        if size > self.env.changed_chunk_max() {
            return Err(Error::refused(
                libc::EFBIG,
                format!("its filters take a chunk of {size} bytes as a whole: it is changed with a --cache-size of four times as much"),
            ));
        }
        Ok(())
    }

    /// A chunk of fill values (`filled`) or of bytes that will all be written.
    pub(super) fn blank(&self, filled: bool) -> Result<Vec<u8>> {
        let size = self.chunked.grid.chunk_bytes();
        if size > limits::CHUNK_BYTES_MAX {
            return Err(Error::limit("chunk", Address::UNDEF, format!("{size} bytes in one chunk")));
        }
        self.fits()?;
        let len = usize::try_from(size).map_err(|_| Error::limit("chunk", Address::UNDEF, "size"))?;
        let mut chunk = vec![0; len];
        if filled && !self.fill.is_zero() {
            self.fill.fill(0, &mut chunk);
        }
        Ok(chunk)
    }

    /// The chunk's bytes as they are now.
    pub(super) fn load(&self, chunk: u64, record: Option<ChunkRecord>) -> Result<Vec<u8>> {
        self.fits()?;
        let Some(record) = record else { return self.blank(true) };
        let (c, key) = (self.chunked, self.chunked.key(chunk));
        let raw = c.is_raw(&c.grid.scaled(chunk));
        if !raw && self.env.cache.contains(key) {
            let found = self.env.cache.get(key, c.grid.chunk_bytes(), || c.decode(self.store, record, raw))?;
            if let Found::Chunk(chunk) = found {
                return Ok(chunk.bytes().to_vec());
            }
        }
        c.decode(self.store, record, raw)
    }

    /// A chunk of fill values in a file.
    pub(super) fn blank_file(&self) -> Result<Plain> {
        Plain::filled(self.chunked.grid.chunk_bytes(), self.fill, 0, &mut |_, _| Ok(()))
    }

    /// Makes a chunk that is in the file, or not there at all, a changed one.
    pub(super) fn change(&self, chunk: u64) -> Result<Arc<DirtyChunk>> {
        let key = self.chunked.key(chunk);
        if let Some(chunk) = self.env.dirty.get(key) {
            return Ok(chunk);
        }
        let record = self.chunked.index.lookup(self.store, &self.chunked.grid.scaled(chunk))?;
        let large = self.chunked.grid.chunk_bytes() > self.env.changed_chunk_max();
        if large && self.chunked.encoding_of_files(self.env).is_some() {
            if self.env.files_are_too_many() {
                return Err(Error::refused(libc::EFBIG, "the operation changes too many chunks that are too large for memory"));
            }
            let file = match record {
                Some(record) => self.chunked.to_file(self.env, self.store, key, record)?,
                None => self.blank_file()?,
            };
            self.env.dirty.insert_file(key, file, 0, record.is_none());
        } else {
            self.env.dirty.insert(key, self.load(chunk, record)?, 0, record.is_none());
        }
        self.forget(key);
        self.env.dirty.get(key).ok_or_else(short)
    }

    /// Writes changed chunks to the file. Returns whether the layout message changed.
    pub fn flush(&self, layout: &mut DataLayout, chunks: &[(ChunkKey, Arc<DirtyChunk>)]) -> Result<bool> {
        let mut changed = false;
        for batch in chunks.chunks(batch_len(self.env)) {
            changed |= self.enter(layout, &encode(self.env, self.chunked, batch)?)?;
        }
        Ok(changed)
    }

    /// Writes encoded chunks to the file. Returns whether the layout message changed.
    pub fn enter(&self, layout: &mut DataLayout, chunks: &[Encoded]) -> Result<bool> {
        let mut changed = false;
        for e in chunks {
            let scaled = self.chunked.grid.scaled(e.key.chunk);
            changed |= match &e.stored {
                StoredBytes::Memory(stored, mask) => self.place(layout, &scaled, stored, *mask)?,
                StoredBytes::File(stored) => self.place_file(layout, &scaled, stored)?,
                StoredBytes::Own => match e.chunk.file() {
                    Some(file) => self.place_from(layout, &scaled, (file.len(), 0), &|at, buf| file.read(at, buf))?,
                    None => self.place(layout, &scaled, &e.chunk.bytes(), 0)?,
                },
            };
        }
        Ok(changed)
    }

    /// True when an encoded chunk is what would be written now.
    pub fn is_current(&self, e: &Encoded) -> bool {
        let scaled = self.chunked.grid.scaled(e.key.chunk);
        let same = e.raw == self.chunked.is_raw(&scaled) && e.pipeline == self.chunked.pipeline;
        same && self.grid.contains(&scaled) && self.env.dirty.is_current(e.key, &e.chunk, e.version)
    }

    /// The chunks are in the file now.
    pub fn flushed(&self, chunks: impl IntoIterator<Item = ChunkKey>) {
        for key in chunks {
            self.forget(key);
            self.env.dirty.remove(key);
        }
    }

    pub(super) fn place(&self, layout: &mut DataLayout, scaled: &[u64], stored: &[u8], filter_mask: u32) -> Result<bool> {
        if self.is_implicit() {
            let record = self.chunked.index.lookup(self.store, scaled)?.ok_or_else(no_place)?;
            return self.store.write_raw(record.address, stored).map(|()| false);
        }
        let address = self.store.put(stored, SpaceKind::Raw)?;
        self.lead_to(layout, scaled, ChunkRecord { address, size: stored.len() as u64, filter_mask })
    }

    /// Puts the first bytes of a dataset of one small unfiltered chunk into the file, as what is taken back with the operation and is
    /// written together with the structures around it.
    pub fn place_first(&self, layout: &mut DataLayout, offset: u64, bytes: &[u8]) -> Result<()> {
        let mut chunk = self.blank(true)?;
        let part = usize::try_from(offset).ok().and_then(|from| chunk.get_mut(from..from.checked_add(bytes.len())?));
        part.ok_or_else(short)?.copy_from_slice(bytes);
        let address = self.store.allocate(chunk.len() as u64, SpaceKind::Raw)?;
        self.store.write(address, &chunk)?;
        self.lead_to(layout, &[0], ChunkRecord { address, size: chunk.len() as u64, filter_mask: 0 })?;
        self.forget(self.chunked.key(0));
        Ok(())
    }

    /// The same of what is in a file.
    pub(super) fn place_file(&self, layout: &mut DataLayout, scaled: &[u64], stored: &Stored) -> Result<bool> {
        self.place_from(layout, scaled, (stored.len(), stored.filter_mask()), &|at, buf| stored.read(at, buf))
    }

    fn place_from(
        &self,
        layout: &mut DataLayout,
        scaled: &[u64],
        (size, filter_mask): (u64, u32),
        read: &dyn Fn(u64, &mut [u8]) -> Result<()>,
    ) -> Result<bool> {
        let address = self.store.allocate(size, SpaceKind::Raw)?;
        let mut piece = vec![0u8; PIECE];
        let mut at = 0u64;
        while at < size {
            let n = usize::try_from(size.saturating_sub(at)).unwrap_or(PIECE).min(PIECE);
            let part = piece.get_mut(..n).unwrap_or_default();
            read(at, part)?;
            self.store.write_raw(address.checked_add(at).unwrap_or(Address::UNDEF), part)?;
            at = at.saturating_add(n as u64);
        }
        self.lead_to(layout, scaled, ChunkRecord { address, size, filter_mask })
    }

    /// Makes the index lead to a chunk's new place. Returns whether the layout message changed.
    fn lead_to(&self, layout: &mut DataLayout, scaled: &[u64], record: ChunkRecord) -> Result<bool> {
        let filtered = !self.chunked.pipeline.is_empty();
        let done = write::insert(self.store, layout, self.grid, filtered, self.btree_k, scaled, record);
        let Changed { layout: changed, old } = match done {
            Ok(changed) => changed,
            Err(e) => {
                self.store.free_kind(record.address, record.size, SpaceKind::Raw)?;
                return Err(e);
            }
        };
        let before = old.map_or(0, |old| self.chunked.stored_size(old));
        self.env.stored.change(self.chunked.number, record.size, before);
        if let Some(old) = old {
            self.store.free_kind(old.address, self.chunked.stored_size(old), SpaceKind::Raw)?;
        }
        Ok(changed)
    }

    /// Prepares for an extent of `rows` in the first dimension instead of more: chunks beyond it are given back,
    /// and what lies beyond it in the others becomes fill values, as in libhdf5 (H5D__chunk_prune_by_extent). Returns
    /// whether the layout message changed.
    pub fn prune(&self, layout: &mut DataLayout, rows: u64) -> Result<bool> {
        let chunk_rows = self.grid.chunk_dims.first().copied().unwrap_or(1).max(1);
        let (mut gone, mut cut) = (Vec::new(), Vec::new());
        if self.is_implicit() && self.grid.total().is_none_or(|n| n > IMPLICIT_MAX) {
            return Err(Error::refused(
                libc::EPERM,
                format!("a dataset of more than {IMPLICIT_MAX} chunks without an index keeps its size"),
            ));
        }
        let mut visit = |scaled: &[u64], record: ChunkRecord| {
            let first = scaled.first().copied().unwrap_or(0).saturating_mul(chunk_rows);
            if first >= rows {
                // Those of an implicit index stay where they are.
                gone.extend((!self.is_implicit()).then(|| (scaled.to_vec(), record)));
            } else if first.saturating_add(chunk_rows) > rows {
                cut.push(scaled.to_vec());
            }
            Ok(ControlFlow::Continue(()))
        };
        self.chunked.index.iterate(self.store, &mut visit as &mut Visit<'_>)?;
        let mut changed = false;
        for (scaled, record) in gone {
            let filtered = !self.chunked.pipeline.is_empty();
            changed |= write::remove(self.store, layout, self.grid, filtered, self.btree_k, &scaled)?.layout;
            self.store.free_kind(record.address, self.chunked.stored_size(record), SpaceKind::Raw)?;
            self.env.stored.change(self.chunked.number, 0, self.chunked.stored_size(record));
            if let Some(number) = self.chunked.grid.linear(&scaled) {
                self.forget(self.chunked.key(number));
            }
        }
        for (key, chunk) in self.env.dirty.of(self.chunked.number) {
            let scaled = self.chunked.grid.scaled(key.chunk);
            let first = scaled.first().copied().unwrap_or(0).saturating_mul(chunk_rows);
            if first >= rows {
                self.env.dirty.remove(key);
            } else if first.saturating_add(chunk_rows) > rows {
                self.cut(key, &chunk, rows.saturating_sub(first), chunk_rows)?;
            }
            self.forget(key);
        }
        for scaled in cut {
            if let Some(number) = self.chunked.grid.linear(&scaled) {
                let first = scaled.first().copied().unwrap_or(0).saturating_mul(chunk_rows);
                self.cut(self.chunked.key(number), &self.change(number)?, rows.saturating_sub(first), chunk_rows)?;
            }
        }
        Ok(changed)
    }

    /// Fills a chunk of `of` rows from row `keep` on.
    fn cut(&self, key: ChunkKey, chunk: &Arc<DirtyChunk>, keep: u64, of: u64) -> Result<()> {
        let row = chunk.len().checked_div(of).unwrap_or(0);
        if let Some(file) = chunk.file() {
            // Another one in its place, which gives way to it should the operation fail.
            let cut = Plain::filled(file.len(), self.fill, keep.saturating_mul(row), &mut |at, buf| file.read(at, buf))?;
            self.env.dirty.insert_file(key, cut, 0, chunk.is_added());
            return Ok(());
        }
        let len = chunk.bytes().len();
        let from = usize::try_from(keep.saturating_mul(row)).map_err(|_| short())?;
        self.env.dirty.keep_bytes(key, chunk, from, len.saturating_sub(from))?;
        chunk.change(0, |bytes| {
            if let Some(tail) = bytes.get_mut(from..) {
                self.fill.fill(keep.saturating_mul(row), tail);
            }
        });
        Ok(())
    }

    /// Fills the chunks of an implicit index that were added to `old` rows: they are there, and hold whatever they held
    /// before the dataset was made smaller.
    pub fn renew(&self, old: u64) -> Result<()> {
        let chunk_rows = self.grid.chunk_dims.first().copied().unwrap_or(1).max(1);
        let start = old.div_ceil(chunk_rows).saturating_mul(chunk_rows);
        let rows = self.grid.shape.first().copied().unwrap_or(0);
        if !self.is_implicit() || start >= rows {
            return Ok(());
        }
        let (mut from, mut count) = (vec![0; self.grid.rank()], self.grid.shape.clone());
        if let (Some(from), Some(count)) = (from.first_mut(), count.first_mut()) {
            (*from, *count) = (start, rows.saturating_sub(start));
        }
        for scaled in self.grid.range(&from, &count)?.iter().flat_map(|r| r.iter()) {
            let record = self.chunked.index.lookup(self.store, &scaled)?.ok_or_else(no_place)?;
            self.write_fill(record.address)?;
        }
        Ok(())
    }

    /// Where partial edge chunks are stored unfiltered, those of the last rows are written again after the
    /// extent changed, as they become whole ones, or no longer are.
    pub fn refilter_edges(&self, rows: u64) -> Result<()> {
        if !self.chunked.raw_edges || self.chunked.pipeline.is_empty() {
            return Ok(());
        }
        let chunk_rows = self.grid.chunk_dims.first().copied().unwrap_or(1).max(1);
        let (old, new) = (self.grid.shape.first().copied().unwrap_or(0), rows);
        // One row of chunks ends behind one of the two extents and not behind the other, and begins within both.
        let row = old.min(new) / chunk_rows;
        let (begin, end) = (row.saturating_mul(chunk_rows), row.saturating_add(1).saturating_mul(chunk_rows));
        if begin >= old.min(new) || (end > old) == (end > new) {
            return Ok(());
        }
        let mut edges = Vec::new();
        let (mut from, mut count) = (vec![0; self.grid.rank()], self.grid.shape.clone());
        if let (Some(from), Some(count)) = (from.first_mut(), count.first_mut()) {
            (*from, *count) = (begin, 1);
        }
        let wide = self.chunked.grid.counts().iter().skip(1).product::<u64>() > FEW;
        if wide {
            let mut visit = |scaled: &[u64], _: ChunkRecord| {
                if scaled.first() == Some(&row) {
                    edges.push(scaled.to_vec());
                }
                Ok(ControlFlow::Continue(()))
            };
            self.chunked.index.iterate(self.store, &mut visit as &mut Visit<'_>)?;
        } else {
            for scaled in self.grid.range(&from, &count)?.iter().flat_map(|r| r.iter()) {
                if self.chunked.index.lookup(self.store, &scaled)?.is_some() {
                    edges.push(scaled);
                }
            }
        }
        for scaled in edges {
            if let Some(number) = self.chunked.grid.linear(&scaled) {
                self.change(number)?;
            }
        }
        Ok(())
    }

    /// Gives back all chunks and the index. The layout has none after it.
    pub fn delete(&self, layout: &mut DataLayout) -> Result<()> {
        self.env.dirty.forget(self.chunked.number);
        let mut places = Vec::new();
        if self.is_implicit() {
            // One stretch, of as many chunks as there may ever be: counted they could be more than fit in memory.
            let first = self.chunked.index.lookup(self.store, &vec![0; self.grid.rank()])?;
            let bytes = self.grid.max_total().and_then(|n| n.checked_mul(self.chunked.grid.chunk_bytes()));
            places.extend(first.zip(bytes).map(|(r, n)| (r.address, n)));
            return self.give_back_all(layout, &places);
        }
        self.chunked.index.iterate(self.store, &mut |_, record| {
            places.push((record.address, self.chunked.stored_size(record)));
            Ok(ControlFlow::Continue(()))
        })?;
        self.give_back_all(layout, &places)
    }

    fn give_back_all(&self, layout: &mut DataLayout, places: &[(Address, u64)]) -> Result<()> {
        write::delete(self.store, layout, self.grid, !self.chunked.pipeline.is_empty(), self.btree_k)?;
        for (address, size) in places {
            self.store.free_kind(*address, *size, SpaceKind::Raw)?;
        }
        self.env.forget(self.chunked.number);
        Ok(())
    }
}

pub(super) fn no_place() -> Error {
    Error::refused(libc::EOPNOTSUPP, "storage that the file's layout says was allocated early is not there")
}

fn short() -> Error {
    Error::corrupt("chunk", Address::UNDEF, "shorter than its dimensions say")
}

pub(super) fn refuse(e: &FilterError) -> Error {
    match e {
        // Another time there may be enough.
        FilterError::TooLarge { .. } => {
            Error::Io { operation: "find memory to encode a chunk", address: Address::UNDEF, errno: libc::ENOMEM }
        }
        _ => Error::refused(libc::EOPNOTSUPP, format!("a chunk cannot be encoded: {e}")),
    }
}
