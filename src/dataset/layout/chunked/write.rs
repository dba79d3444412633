//! Writes chunked datasets: into dirty chunks in memory, and from there to the file.
//!
//! Writeback stores a dirty chunk in new space and frees the old space, so that after a crash the
//! index refers to a whole chunk. Only small changes of unfiltered chunks are made in place,
//! through the transaction. See docs/DESIGN-crash.md.

use super::storage::Chunked;
use crate::base::element_set::ElementSet;
use crate::base::io_pieces::{each_piece, pieces};
use crate::base::limits::{self, IO_PIECE_BYTES};
use crate::base::zeros::is_zero;
use crate::base::{Address, Error, Result};
use crate::dataset::chunk::ChunkGrid;
use crate::dataset::chunk::dirty::{Before, DirtyChunk};
use crate::dataset::chunk::dirty_file::{DirtyFile, Stored};
use crate::dataset::chunk::dirty_needs::IndexSize;
use crate::dataset::chunk::encoded::{Encoded, StoredBytes};
use crate::dataset::chunk::file_image::FileImage;
use crate::dataset::chunk::format::{LargeReader, no_room};
use crate::dataset::chunk::image::Image;
use crate::dataset::chunk::key::ChunkKey;
use crate::dataset::chunk::pieces::ChunkPieces;
use crate::dataset::environment::Environment;
use crate::dataset::fill::FillPattern;
use crate::dataset::index::ChunkRecord;
use crate::dataset::index::write::{self, Changed};
use crate::dataset::layout::traits::batch_len;
use crate::format::chunk_record::StoredForm;
use crate::format::message::data_layout::DataLayout;
use crate::meta::Store;
use crate::meta::edit::SpaceKind;
use crate::meta::level::Level;
use rayon::prelude::*;
use std::sync::Arc;

/// Most chunks looked up one by one; for more, the index is walked.
pub(super) const LOOKUP_CHUNKS_MAX: u64 = 1024;

/// Changes one chunked dataset.
pub(crate) struct ChunkWriter<'a> {
    /// Caches, dirty chunks, threads.
    pub(crate) env: &'a Environment,
    /// The container.
    pub(crate) store: &'a Store,
    /// The dataset's chunks.
    pub(crate) chunked: &'a Chunked,
    /// The grid with the extent of the operation.
    pub(crate) grid: &'a ChunkGrid,
    /// Value of unwritten elements.
    pub(crate) fill: &'a FillPattern,
    /// K of version 1 chunk B-trees.
    pub(crate) btree_k: u16,
}

/// Number of dirty chunks of one dataset that are encoded before they are stored, by the bytes that
/// are encoded.
pub(super) fn batch(env: &Environment, c: &Chunked, chunks: &[(ChunkKey, Arc<DirtyChunk>)]) -> usize {
    if !c.format.stores_defined() {
        return batch_len(env, c.grid.chunk_bytes());
    }
    let elements = |chunk: &DirtyChunk| chunk.now().image().defined().map_or(0, ElementSet::elements);
    let all = chunks.iter().map(|(_, chunk)| elements(chunk)).fold(0, u64::saturating_add);
    let each = all.div_ceil((chunks.len() as u64).max(1));
    batch_len(env, each.saturating_mul(c.chunks.element_size))
}

/// Encodes dirty chunks of one dataset in parallel. `is_edge`: true for the scaled offsets of a
/// chunk that extends past the extent. Needs no lock.
pub(super) fn encode(
    env: &Environment,
    c: &Chunked,
    is_edge: &(dyn Fn(&[u64]) -> bool + Sync),
    chunks: &[(ChunkKey, Arc<DirtyChunk>)],
) -> Result<Vec<Encoded>> {
    let one = |(key, chunk): &(ChunkKey, Arc<DirtyChunk>)| {
        let is_edge = is_edge(&c.grid.scaled(key.chunk));
        let (version, format) = (chunk.version(), c.format.clone());
        let unencoded = Encoded { key: *key, chunk: chunk.clone(), version, format, is_edge, stored: StoredBytes::Unencoded };
        if c.format.is_plain(is_edge) {
            return Ok(unencoded);
        }
        if let Some(image) = chunk.in_file() {
            return Ok(Encoded { stored: StoredBytes::File(c.format.encode_file(env, image.file())?), ..unencoded });
        }
        let (image, version) = chunk.snapshot();
        let (bytes, form) = c.format.encode(Arc::unwrap_or_clone(image).0, is_edge)?;
        Ok(Encoded { version, stored: StoredBytes::Memory(bytes, form), ..unencoded })
    };
    if !c.format.has_variable_size() || chunks.len() < 2 {
        return chunks.iter().map(one).collect();
    }
    env.pool.install(|| chunks.par_iter().map(one).collect())
}

impl Chunked {
    /// Writes a request's pieces of an unfiltered chunk in place. A rollback restores what they
    /// replace if `undone`.
    fn write_in_place(&self, store: &Store, t: &ChunkPieces, bytes: &[u8], record: ChunkRecord, undone: bool) -> Result<()> {
        for p in &t.pieces {
            for (at, from) in self.grid.rows(p) {
                let part = bytes.get(from..from.saturating_add(p.len)).ok_or_else(out_of_range)?;
                let at = record.address.checked_add(at).unwrap_or(Address::UNDEF);
                if undone { store.write_at_level(at, part, Level::Data)? } else { store.write_raw(at, part)? }
            }
        }
        Ok(())
    }

    /// Overwrites a small part of a stored chunk that is not dirty, beside readers. `false`: the
    /// chunk cannot be changed so, and nothing was done.
    pub(super) fn overwrite_stored(&self, store: &Store, t: &ChunkPieces, bytes: &[u8]) -> Result<bool> {
        // Only of chunks with more dimensions do readers keep a decoded copy, which would be stale.
        let is_read_directly = self.chunks.rank() == 1 && !self.format.has_variable_size();
        if !is_read_directly || !self.format.can_encode() || !self.changes_in_place(t) {
            return Ok(false);
        }
        let scaled = self.grid.scaled(t.chunk);
        match self.index.lookup(store, &scaled)?.filter(|record| self.is_in_place(&scaled, *record)) {
            Some(record) => self.write_in_place(store, t, bytes, record, false).map(|()| true),
            None => Ok(false),
        }
    }

    /// True if so little of an unfiltered chunk is written that it does not become dirty.
    fn changes_in_place(&self, t: &ChunkPieces) -> bool {
        self.is_implicit || t.bytes().saturating_mul(2) < self.grid.chunk_bytes()
    }
}

impl ChunkWriter<'_> {
    /// Writes `bytes` at `offset`; the range lies within the dataset. Returns whether the layout
    /// message changed.
    ///
    /// A rollback restores what they replace if `undone`, or if they belong to several chunks:
    /// there may be no storage for some of those.
    pub(crate) fn write(&self, layout: &mut DataLayout, offset: u64, bytes: &[u8], undone: bool) -> Result<bool> {
        let mut changed = false;
        let chunks = self.chunked.grid.pieces(offset, bytes.len());
        let undone = undone || chunks.len() > 1;
        for t in &chunks {
            changed |= self.write_chunk(layout, t, bytes, undone)?;
        }
        Ok(changed)
    }

    fn write_chunk(&self, layout: &mut DataLayout, t: &ChunkPieces, bytes: &[u8], undone: bool) -> Result<bool> {
        let (c, key) = (self.chunked, self.chunked.key(t.chunk));
        if let Some(chunk) = self.env.dirty.get(key) {
            if undone {
                for (at, p) in t.pieces.iter().flat_map(|p| c.grid.rows(p).map(move |(at, _)| (at, p))) {
                    self.env.dirty.log_bytes(key, &chunk, usize::try_from(at).unwrap_or(usize::MAX), p.len)?;
                }
            }
            return chunk.gather(&c.grid, t, bytes).map(|()| false);
        }
        let scaled = c.grid.scaled(t.chunk);
        let record = c.index.lookup(self.store, &scaled)?;
        let too_large = c.grid.chunk_bytes() > self.env.changed_chunk_max();
        if let Some(record) = record
            && c.is_in_place(&scaled, record)
            && (too_large || c.changes_in_place(t))
        {
            self.write_in_place(t, bytes, record, undone)?;
            self.drop_decoded(key);
            return Ok(false);
        }
        if record.is_none() {
            if self.is_implicit() {
                return Err(not_allocated());
            }
            write::check_capacity(layout, self.grid, &scaled)?;
            // They read the same without being stored.
            if self.fill.stands_for_zeros() && !c.format.knows_defined() && self.are_zeros(t, bytes) {
                return Ok(false);
            }
        }
        if too_large && c.is_plain(&scaled) && c.grid.chunk_bytes() <= limits::CHUNK_BYTES_MAX {
            let (record, changed) = self.store_blank(layout, &scaled)?;
            self.write_in_place(t, bytes, record, undone)?;
            return Ok(changed);
        }
        if too_large && c.format.changes_in_files(self.env) {
            let chunk = self.make_dirty(t.chunk)?;
            return chunk.gather(&c.grid, t, bytes).map(|()| false);
        }
        let mut chunk = if t.bytes() == c.grid.chunk_bytes() { self.blank(false)? } else { self.load(t.chunk, record)? };
        chunk.gather(&c.grid, t, bytes).ok_or_else(out_of_range)?;
        self.add_dirty(key, chunk, t.bytes(), self.before(record));
        self.drop_decoded(key);
        Ok(false)
    }

    /// True if a request's pieces of a chunk are zeros.
    fn are_zeros(&self, t: &ChunkPieces, bytes: &[u8]) -> bool {
        t.pieces.iter().all(|p| self.chunked.grid.rows(p).all(|(_, from)| bytes.get(from..from.saturating_add(p.len)).is_some_and(is_zero)))
    }

    /// Writes a chunk of fill values to `address`, unfiltered. Bytes that are zeros already are not
    /// written.
    pub(super) fn write_fill(&self, address: Address) -> Result<()> {
        let size = self.chunked.grid.chunk_bytes();
        let parts = if self.fill.is_zero() { self.store.written_in(address, size)? } else { std::iter::once(0..size).collect() };
        let mut piece = vec![0u8; IO_PIECE_BYTES.min(usize::try_from(size).unwrap_or(IO_PIECE_BYTES))];
        for part in parts {
            for (at, n) in pieces(part) {
                let bytes = piece.get_mut(..n).unwrap_or_default();
                self.fill.fill(at, bytes);
                self.store.write_raw(address.checked_add(at).unwrap_or(Address::UNDEF), bytes)?;
            }
        }
        Ok(())
    }

    /// Stores an unfiltered chunk of fill values, for chunks too large for memory. Returns its
    /// record, and whether the layout message changed.
    pub(super) fn store_blank(&self, layout: &mut DataLayout, scaled: &[u64]) -> Result<(ChunkRecord, bool)> {
        let size = self.chunked.grid.chunk_bytes();
        let (address, zeros) = self.store.allocate_known(size, SpaceKind::Raw)?;
        if !(zeros && self.fill.is_zero()) {
            self.write_fill(address)?;
        }
        let record = ChunkRecord { address, size, form: StoredForm::WHOLE };
        let shape = self.chunked.format.record_shape();
        let done = write::insert(self.store, layout, self.grid, shape, self.btree_k, scaled, record)?;
        self.env.stored.change(self.chunked.number, size, 0);
        Ok((record, done.layout))
    }

    /// Writes a request's pieces of an unfiltered chunk in place. A rollback restores what
    /// they replace if `undone`.
    pub(super) fn write_in_place(&self, t: &ChunkPieces, bytes: &[u8], record: ChunkRecord, undone: bool) -> Result<()> {
        self.chunked.write_in_place(self.store, t, bytes, record, undone)
    }

    pub(super) fn is_implicit(&self) -> bool {
        self.chunked.is_implicit
    }

    /// Drops decoded copies of the chunk, which are stale.
    pub(super) fn drop_decoded(&self, key: ChunkKey) {
        self.env.cache.remove(key);
        self.env.chunk_files.remove(key);
    }

    /// Refuses to change chunks too large for memory.
    ///
    /// Each change would need several times the chunk's size of memory and, as the chunk could not
    /// stay there, would decode and encode all of it.
    fn check_memory(&self) -> Result<()> {
        let size = self.chunked.grid.chunk_bytes();
        if size > self.env.changed_chunk_max() {
            if size > self.env.chunk_files.capacity() {
                return Err(Error::refused(libc::ENOSPC, no_room(size)));
            }
            return Err(Error::refused(
                libc::EFBIG,
                format!("its filters need all {size} bytes of a chunk in memory: use a --cache-size of four times as much"),
            ));
        }
        Ok(())
    }

    /// A chunk of fill values (`filled`), or one whose bytes the caller overwrites.
    pub(super) fn blank(&self, filled: bool) -> Result<Image> {
        self.check_memory()?;
        self.chunked.format.blank(filled.then_some(self.fill))
    }

    /// Decodes a stored chunk, or makes one of fill values if there is none.
    pub(super) fn load(&self, chunk: u64, record: Option<ChunkRecord>) -> Result<Image> {
        self.check_memory()?;
        let Some(record) = record else { return self.blank(true) };
        let (c, key) = (self.chunked, self.chunked.key(chunk));
        let is_edge = c.grid.is_edge(&c.grid.scaled(chunk));
        // A reader that decodes the chunk is not waited for.
        if !c.format.is_plain(is_edge)
            && let Some(chunk) = self.env.cache.ready(std::iter::once(key)).into_iter().flatten().next()
        {
            return Ok(chunk.image().duplicate());
        }
        c.format.decode(self.store, record, is_edge)
    }

    /// Adds a dirty chunk, of which `written` bytes are new.
    pub(super) fn add_dirty(&self, key: ChunkKey, image: Image, written: u64, before: Before) {
        // All of an index without storage is new.
        let chunks = if self.chunked.has_index { self.chunked.grid.chunks() } else { 0 };
        let index = if chunks == 0 {
            IndexSize::default()
        } else {
            IndexSize::of(chunks, self.chunked.chunks.rank(), self.chunked.index.is_ordered())
        };
        self.env.dirty.insert(key, image, written, (before, index));
    }

    /// What the record of a chunk that becomes dirty says.
    fn before(&self, record: Option<ChunkRecord>) -> Before {
        match record {
            None => Before::Absent,
            Some(_) if self.is_implicit() => Before::InPlace,
            Some(_) => Before::Moves,
        }
    }

    /// A chunk of fill values in a temporary file.
    pub(super) fn blank_file(&self) -> Result<DirtyFile> {
        DirtyFile::filled(self.chunked.grid.chunk_bytes(), self.fill, 0, &mut |_, _| Ok(()))
    }

    /// Returns the dirty chunk; loads it, or makes one of fill values, if it is not dirty yet.
    pub(super) fn make_dirty(&self, chunk: u64) -> Result<Arc<DirtyChunk>> {
        let key = self.chunked.key(chunk);
        if let Some(chunk) = self.env.dirty.get(key) {
            return Ok(chunk);
        }
        let record = self.chunked.index.lookup(self.store, &self.chunked.grid.scaled(chunk))?;
        let large = self.chunked.grid.chunk_bytes() > self.env.changed_chunk_max();
        if large && self.chunked.format.changes_in_files(self.env) {
            if self.env.files_are_too_many() {
                return Err(Error::refused(libc::EFBIG, "the operation changes too many chunks that are too large for memory"));
            }
            let file = match record {
                Some(record) => {
                    let is_edge = self.chunked.grid.is_edge(&self.chunked.grid.scaled(chunk));
                    self.chunked.format.to_file(LargeReader { env: self.env, source: self.store, key, record, is_edge })?
                }
                None => self.blank_file()?,
            };
            let image = FileImage::from_file(&self.env.images, file, self.fill, self.chunked.grid.chunk_bytes());
            self.add_dirty(key, Box::new(image), 0, self.before(record));
        } else {
            self.add_dirty(key, self.load(chunk, record)?, 0, self.before(record));
        }
        self.drop_decoded(key);
        self.env.dirty.get(key).ok_or_else(out_of_range)
    }

    /// Encodes and stores dirty chunks. Returns whether the layout message changed.
    pub(crate) fn flush(&self, layout: &mut DataLayout, chunks: &[(ChunkKey, Arc<DirtyChunk>)]) -> Result<bool> {
        let mut changed = false;
        for batch in chunks.chunks(batch(self.env, self.chunked, chunks)) {
            changed |= self.enter(layout, &encode(self.env, self.chunked, &|scaled| self.chunked.grid.is_edge(scaled), batch)?)?;
        }
        Ok(changed)
    }

    /// Stores encoded chunks. Returns whether the layout message changed.
    pub(crate) fn enter(&self, layout: &mut DataLayout, chunks: &[Encoded]) -> Result<bool> {
        let mut changed = false;
        for e in chunks {
            let scaled = self.chunked.grid.scaled(e.key.chunk);
            changed |= match &e.stored {
                StoredBytes::Memory(stored, form) => self.store_chunk(layout, &scaled, stored, *form)?,
                StoredBytes::File(stored) => self.store_file(layout, &scaled, stored)?,
                StoredBytes::Unencoded => match e.chunk.in_file() {
                    Some(image) => {
                        let file = image.file();
                        self.store_from(layout, &scaled, (file.len(), StoredForm::WHOLE), &|at, buf| file.read(at, buf))?
                    }
                    None => {
                        self.store_chunk(layout, &scaled, e.chunk.now().image().dense().ok_or_else(out_of_range)?, StoredForm::WHOLE)?
                    }
                },
            };
        }
        Ok(changed)
    }

    /// True when an encoded chunk is not stale: chunk, format and extent did not change since.
    pub(crate) fn is_current(&self, e: &Encoded) -> bool {
        let scaled = self.chunked.grid.scaled(e.key.chunk);
        let same_form = e.is_edge == self.chunked.grid.is_edge(&scaled) && e.format.is_stored_like(&*self.chunked.format);
        same_form && self.grid.contains(&scaled) && self.env.dirty.is_current(e.key, &e.chunk, e.version)
    }

    /// Stores a chunk's encoded bytes in new space. Returns whether the layout message changed.
    pub(super) fn store_chunk(&self, layout: &mut DataLayout, scaled: &[u64], stored: &[u8], form: StoredForm) -> Result<bool> {
        if self.is_implicit() {
            let record = self.chunked.index.lookup(self.store, scaled)?.ok_or_else(not_allocated)?;
            return self.store.write_promised(record.address, stored).map(|()| false);
        }
        let address = self.store.put(stored, SpaceKind::Raw)?;
        self.update_index(layout, scaled, ChunkRecord { address, size: stored.len() as u64, form })
    }

    /// Writes the first bytes of a dataset of one small unfiltered chunk through the transaction.
    ///
    /// They are rolled back with the operation, and written together with the structures around
    /// them.
    pub(crate) fn store_first(&self, layout: &mut DataLayout, offset: u64, bytes: &[u8]) -> Result<()> {
        let mut chunk = self.blank(true)?;
        chunk.write(offset, bytes).ok_or_else(out_of_range)?;
        let (stored, form) = self.chunked.format.encode(chunk, true)?;
        let (address, size) = (self.store.allocate(stored.len() as u64, SpaceKind::Raw)?, stored.len() as u64);
        self.store.write(address, &stored)?;
        self.update_index(layout, &[0], ChunkRecord { address, size, form })?;
        self.drop_decoded(self.chunked.key(0));
        Ok(())
    }

    /// Stores a chunk encoded in a temporary file in new space. Returns whether the layout message
    /// changed.
    pub(super) fn store_file(&self, layout: &mut DataLayout, scaled: &[u64], stored: &Stored) -> Result<bool> {
        self.store_from(layout, scaled, (stored.len(), stored.form()), &|at, buf| stored.read(at, buf))
    }

    /// Stores `size` encoded bytes from `read` in new space. Returns whether the layout message
    /// changed.
    fn store_from(
        &self,
        layout: &mut DataLayout,
        scaled: &[u64],
        (size, form): (u64, StoredForm),
        read: &dyn Fn(u64, &mut [u8]) -> Result<()>,
    ) -> Result<bool> {
        let address = self.store.allocate(size, SpaceKind::Raw)?;
        let mut at = 0u64;
        each_piece(size, read, &mut |piece| {
            self.store.write_raw(address.checked_add(at).unwrap_or(Address::UNDEF), piece)?;
            at = at.saturating_add(piece.len() as u64);
            Ok(())
        })?;
        self.update_index(layout, scaled, ChunkRecord { address, size, form })
    }

    /// Sets a chunk's record in the index and frees its old space; on error frees the new space.
    /// Returns whether the layout message changed.
    fn update_index(&self, layout: &mut DataLayout, scaled: &[u64], record: ChunkRecord) -> Result<bool> {
        let shape = self.chunked.format.record_shape();
        let done = write::insert(self.store, layout, self.grid, shape, self.btree_k, scaled, record);
        let Changed { layout: changed, old } = match done {
            Ok(changed) => changed,
            Err(e) => {
                self.store.free_kind(record.address, record.size, SpaceKind::Raw)?;
                return Err(e);
            }
        };
        let before = old.map_or(0, |old| self.chunked.format.stored_size(old));
        self.env.stored.change(self.chunked.number, record.size, before);
        if let Some(old) = old {
            self.store.free_kind(old.address, self.chunked.format.stored_size(old), SpaceKind::Raw)?;
        }
        Ok(changed)
    }

    /// Frees all chunks and the index, and resets the index address in the layout.
    pub(crate) fn delete(&self, layout: &mut DataLayout) -> Result<()> {
        self.env.dirty.forget(self.chunked.number);
        let mut blocks = Vec::new();
        if self.is_implicit() {
            // One block holds all chunks of the maximum extent, more than could be listed in
            // memory.
            let first = self.chunked.index.lookup(self.store, &vec![0; self.grid.rank()])?;
            let bytes = self.grid.max_total().and_then(|n| n.checked_mul(self.chunked.grid.chunk_bytes()));
            blocks.extend(first.zip(bytes).map(|(r, n)| (r.address, n)));
            return self.free_all(layout, &blocks);
        }
        self.chunked.chunk_extents(self.store, &*self.chunked.index, &mut |chunk| {
            blocks.push((chunk.address, chunk.len));
            Ok(())
        })?;
        self.free_all(layout, &blocks)
    }

    fn free_all(&self, layout: &mut DataLayout, blocks: &[(Address, u64)]) -> Result<()> {
        write::delete(self.store, layout, self.grid, self.chunked.format.record_shape(), self.btree_k)?;
        for (address, size) in blocks {
            self.store.free_kind(*address, *size, SpaceKind::Raw)?;
        }
        self.env.forget(self.chunked.number);
        Ok(())
    }
}

pub(super) fn not_allocated() -> Error {
    Error::refused(libc::EOPNOTSUPP, "the dataset's layout requires storage allocated early, but the file has none")
}

pub(super) fn out_of_range() -> Error {
    Error::corrupt("chunk", Address::UNDEF, "shorter than its dimensions say")
}
