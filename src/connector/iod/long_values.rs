//! Values that are too long for records, chunks encoded, in packs: stored beside writers when many
//! are in memory, and by each commit. No version has them before a commit.

use super::chunk_reader::ChunkReader;
use super::dataset::Dataset;
use super::decoding::chunk_key;
use super::derived::Derived;
use super::encoding::Encoded;
use super::image::{Body, Change};
use super::running::Running;
use super::state::State;
use super::states::States;
use crate::base::{Address, Error, Result};
use crate::dataset::chunk::changed::{SharedImage, Unencoded};
use crate::dataset::chunk::file_image::FileImage;
use crate::dataset::chunk::key::CacheKey;
use crate::dataset::environment::Environment;
use crate::iod::cell::INLINE_MAX_BYTES;
use crate::iod::{Cell, Data, Key, PackWriter, Session, keys};
use rayon::prelude::*;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

/// Chunks that are encoded before they are put into packs.
const ENCODED_AT_ONCE: usize = 64;
/// Least memory for changes that are not encoded, bytes.
const DIRTY_MIN_BYTES: u64 = 16 << 20;

/// See the module's description.
pub(super) struct LongValues {
    states: Arc<States>,
    chunks: Arc<ChunkReader>,
    derived: Arc<Derived>,
    /// Bytes of chunks in memory above which a thread stores them. Writers wait above twice that.
    limit: usize,
    /// Held by the one thread that stores values beside writers. Before the next state; a thread
    /// that has that one only tries it.
    storing: parking_lot::Mutex<()>,
    /// Threads that were started for that.
    storers: Arc<AtomicUsize>,
}

impl LongValues {
    /// Those of `states`.
    pub fn new(states: Arc<States>, chunks: Arc<ChunkReader>, derived: Arc<Derived>) -> Arc<LongValues> {
        let limit = usize::try_from((chunks.env.cache.budget() / 8).max(DIRTY_MIN_BYTES)).unwrap_or(usize::MAX);
        Arc::new(LongValues { states, chunks, derived, limit, storing: parking_lot::Mutex::new(()), storers: Arc::default() })
    }

    /// Encodes chunks in memory if one operation made many.
    pub fn bound(&self, state: &mut State) -> Result<()> {
        let many = state.dirty_bytes > self.limit.saturating_mul(4) || self.chunks.env.files_are_full();
        if many { self.store(state) } else { Ok(()) }
    }

    /// Stores all values in packs that are too long for records, chunks encoded. No version has
    /// them yet.
    pub fn store(&self, state: &mut State) -> Result<()> {
        let Some(session) = state.session.clone() else { return Ok(()) };
        let (values, chunks) = (long_values(state), self.dirty_chunks(state)?);
        let (longs, cells) = self.store_all(&session, &values, &chunks)?;
        // Not before the packs are there: after an error the values are still in memory.
        values_stored(state, values, longs);
        let stored = self.chunks_stored(state, chunks, cells);
        self.cache_stored(stored);
        Ok(())
    }

    /// Stores long values and chunks in packs, chunks encoded, while other operations run: a commit
    /// after it has little left to do.
    pub fn store_ahead(&self) -> Result<()> {
        let _one = self.storing.lock();
        let state = self.states.shown();
        let (Some(session), None) = (state.session.clone(), &state.failed) else { return Ok(()) };
        let (values, chunks) = (long_values(&state), self.dirty_chunks(&state)?);
        if values.is_empty() && chunks.is_empty() {
            return Ok(());
        }
        drop(state);
        let (longs, cells) = self.store_all(&session, &values, &chunks)?;
        let mut state = self.states.next();
        values_stored(&mut state, values, longs);
        let stored = self.chunks_stored(&mut state, chunks, cells);
        drop(state);
        self.cache_stored(stored);
        Ok(())
    }

    /// Has a thread store chunks ahead if many are in memory; waits for it if too many are.
    pub fn store_many_ahead(self: &Arc<Self>) -> Result<()> {
        let dirty = self.states.shown().dirty_bytes;
        if dirty > self.limit.saturating_mul(2) || self.chunks.env.files_are_full() {
            return self.store_ahead();
        }
        // A burst of writes starts one.
        if dirty > self.limit
            && let Some(running) = Running::one_of(&self.storers, 1)
        {
            let values = self.clone();
            let store = move || {
                let _running = running;
                // The chunks stay in memory; a commit gets the error again.
                if let Err(e) = values.store_ahead() {
                    tracing::debug!("chunks are not stored ahead: {e}");
                }
            };
            if let Err(e) = std::thread::Builder::new().name("h5dir-store".into()).spawn(store) {
                tracing::debug!("chunks are not stored ahead: {e}");
            }
        }
        Ok(())
    }

    /// The chunks in memory.
    fn dirty_chunks(&self, state: &State) -> Result<Vec<ChunkToStore>> {
        let mut chunks = Vec::new();
        for (key, change) in &state.changes {
            if let Body::Dirty(image) = &change.body {
                let (id, ..) = keys::parts(key).ok_or_else(|| Error::corrupt("chunk", Address::UNDEF, "it has no dataset"))?;
                let ((image, version), dataset) = (image.chunk.snapshot(), self.derived.dataset(state, id)?);
                chunks.push(ChunkToStore { key: key.clone(), dataset, image, version });
            }
        }
        Ok(chunks)
    }

    /// Stores long values, and chunks encoded; returns where.
    fn store_all(&self, session: &Session, values: &[LongValue], chunks: &[ChunkToStore]) -> Result<(Vec<Cell>, Vec<Cell>)> {
        let mut packs = PackWriter::new(&self.chunks.container, session);
        let stored = put_all(&mut packs, &self.chunks.env, values, chunks);
        if let Err(e) = &stored {
            packs.give_up(e);
        }
        stored
    }

    /// Replaces chunks in memory by what is stored of them, unless they changed since; returns
    /// those for the cache.
    fn chunks_stored(&self, state: &mut State, chunks: Vec<ChunkToStore>, cells: Vec<Cell>) -> Vec<StoredImage> {
        let mut stored = Vec::new();
        for (ChunkToStore { key, dataset, image, version }, cell) in chunks.into_iter().zip(cells) {
            state.note_pack(&cell);
            let Some(Change { body: Body::Dirty(now), ranges }) = state.changes.get(&key) else { continue };
            if !Arc::ptr_eq(&now.chunk.now(), &image) || now.chunk.version() != version {
                continue;
            }
            let ranges = ranges.clone();
            let is_sparse = image.image().defined().is_some();
            let is_full = !is_sparse && ranges.list().last().is_some_and(|(_, end)| *end as usize >= image.memory());
            let in_cache = if let Data::Extent(extent) = &cell.data { Some(chunk_key(&dataset, extent)) } else { None };
            state.change_form(key, Body::Cell(cell), ranges);
            let in_cache = in_cache.filter(|_| FileImage::of(image.image()).is_none());
            stored.extend(in_cache.map(|key| StoredImage { key, image, is_full }));
        }
        stored
    }

    /// Puts chunks that were stored into the cache. Full ones are rarely read soon.
    fn cache_stored(&self, stored: Vec<StoredImage>) {
        for StoredImage { key, image, is_full } in stored {
            // A reader that has it now has read it.
            let Ok(Unencoded(image)) = Arc::try_unwrap(image) else { continue };
            let len = image.element_bytes();
            if let Some(chunk) = self.chunks.env.cache.insert(key, image).filter(|_| is_full) {
                self.chunks.env.cache.record_read(key, &chunk, len);
            }
        }
    }

    /// What `f` returns while no thread stores values beside writers; `None`: one does.
    pub fn while_idle<T>(&self, f: impl FnOnce() -> T) -> Option<T> {
        let _none = self.storing.try_lock()?;
        Some(f())
    }

    /// Waits until no thread stores values beside writers, and keeps others from it.
    pub fn stop(&self) -> parking_lot::MutexGuard<'_, ()> {
        self.storing.lock()
    }
}

/// A value in memory that is too long for records: a chunk in stored form, a block of cells.
struct LongValue {
    key: Key,
    mask: u32,
    bytes: Arc<[u8]>,
}

/// The long values in memory.
fn long_values(state: &State) -> Vec<LongValue> {
    let values = state.changes.iter().filter_map(|(key, change)| match &change.body {
        Body::Cell(cell) => cell.long().map(|bytes| LongValue { key: key.clone(), mask: cell.mask, bytes: bytes.clone() }),
        _ => None,
    });
    values.collect()
}

/// Replaces long values in memory by where they are stored, unless they changed since.
fn values_stored(state: &mut State, values: Vec<LongValue>, cells: Vec<Cell>) {
    for (LongValue { key, bytes, .. }, cell) in values.into_iter().zip(cells) {
        state.note_pack(&cell);
        let Some(Change { body: Body::Cell(now), ranges }) = state.changes.get(&key) else { continue };
        if now.mask == cell.mask && now.long().is_some_and(|now| Arc::ptr_eq(now, &bytes)) {
            let ranges = ranges.clone();
            state.change_form(key, Body::Cell(cell), ranges);
        }
    }
}

/// A changed chunk, to be encoded and stored.
struct ChunkToStore {
    key: Key,
    dataset: Arc<Dataset>,
    image: SharedImage,
    /// Its version when `image` was taken.
    version: u64,
}

/// A chunk that was stored, and is to be cached.
struct StoredImage {
    key: CacheKey,
    image: SharedImage,
    /// It was written to its end.
    is_full: bool,
}

/// Puts long values and chunks, encoded, into packs, which are durable then; returns where.
fn put_all(packs: &mut PackWriter<'_>, env: &Environment, values: &[LongValue], chunks: &[ChunkToStore]) -> Result<(Vec<Cell>, Vec<Cell>)> {
    let place = |value: &LongValue| Ok(Cell { mask: value.mask, data: Data::Extent(packs.add(&value.bytes)?) });
    let longs = values.iter().map(place).collect::<Result<Vec<_>>>()?;
    let mut cells = Vec::with_capacity(chunks.len());
    for group in chunks.chunks(ENCODED_AT_ONCE) {
        for encoded in encode_all(env, group) {
            let (encoded, mask) = encoded?;
            cells.push(Cell { mask, data: placed(packs, encoded)? });
        }
    }
    packs.settle()?;
    Ok((longs, cells))
}

/// A value in a record, or in a pack if it is long.
fn placed(packs: &mut PackWriter<'_>, encoded: Encoded<'_>) -> Result<Data> {
    match encoded {
        Encoded::File(len, read) if len > INLINE_MAX_BYTES as u64 => packs.add_from(len, &*read).map(Data::Extent),
        encoded => {
            let bytes = encoded.into_memory()?;
            if bytes.len() > INLINE_MAX_BYTES { packs.add(&bytes).map(Data::Extent) } else { Ok(Data::Inline(bytes.as_ref().into())) }
        }
    }
}

/// Encodes chunks, several at once if they have filters.
fn encode_all<'a>(env: &Environment, chunks: &'a [ChunkToStore]) -> Vec<Result<(Encoded<'a>, u32)>> {
    let encode = |chunk: &'a ChunkToStore| chunk.dataset.encode(env, &chunk.image);
    if chunks.len() < 2 || chunks.iter().all(|chunk| chunk.dataset.pipeline.is_empty()) {
        return chunks.iter().map(encode).collect();
    }
    // Not those in files: they may wait for a permit, whose holder may wait for the pool.
    let in_memory = |chunk: &'a ChunkToStore| FileImage::of(chunk.image.image()).is_none().then(|| encode(chunk));
    let encoded: Vec<_> = env.pool.install(|| chunks.par_iter().map(in_memory).collect());
    encoded.into_iter().zip(chunks).map(|(encoded, chunk)| encoded.unwrap_or_else(|| encode(chunk))).collect()
}
