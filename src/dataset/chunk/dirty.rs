//! Dirty chunks: changed and not yet in the container file.
//!
//! Readers look here first. Writeback starts with full chunks (every byte written), which are
//! unlikely to be written again, then takes the least recently used ones, as libhdf5's chunk cache
//! does (H5D__chunk_cache_prune).
//!
//! The bytes of a chunk too large for memory are in a temporary file ([`FileImage`]). Those chunks
//! have a bound of their own.
//!
//! An undo log records what an operation replaces, so that the operation can be rolled back.

use super::changed::{ChangedChunk, SharedImage, Unencoded};
use super::dirty_needs::{DirtyNeeds, IndexSize};
use super::file_image::FileImage;
use super::image::{ChunkImage, Image};
use super::key::{ChunkKey, DatasetKey};
use super::pieces::{ByteGrid, ChunkPieces};
use crate::base::locks::Mutex;
use crate::base::{Address, Error, Result};
use foldhash::{HashMap, HashMapExt};
use lru::LruCache;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A dirty chunk, in memory or in a temporary file.
#[derive(Debug)]
pub struct DirtyChunk {
    chunk: ChangedChunk,
    /// Its bytes are in a file.
    is_in_file: bool,
    /// Bytes written so far, counting rewrites again.
    written: AtomicU64,
    /// What the chunk index said at insertion.
    before: Before,
    /// The index of its dataset.
    index: IndexSize,
    /// Sums over all chunks.
    total: Arc<DirtyNeeds>,
    /// Memory that `total` counts for this chunk; `None`: it was removed.
    charged: Mutex<Option<u64>>,
}

/// What the index says of a chunk that becomes dirty.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Before {
    /// It has no record of the chunk.
    Absent,
    /// The chunk gets another place when it is stored.
    Moves,
    /// The chunk is stored where it is.
    InPlace,
}

/// Memory of an entry besides the chunk's bytes; most of the memory of one-element chunks.
const ENTRY_OVERHEAD_BYTES: u64 = 256;

/// Dirty chunks in LRU order, and their numbers by dataset.
struct Entries {
    chunks: LruCache<ChunkKey, Arc<DirtyChunk>>,
    datasets: HashMap<DatasetKey, DatasetChunks>,
}

/// Dirty chunks of one dataset.
#[derive(Default)]
struct DatasetChunks {
    numbers: BTreeSet<u64>,
    /// Chunks whose record in the chunk index changes when they are stored.
    recorded: u64,
    /// Groups of neighbours that have one of the chunks.
    groups: u64,
    /// The chunk index.
    index: IndexSize,
    /// Bytes of chunks without a record in the chunk index.
    added: u64,
}

impl DatasetChunks {
    fn insert(&mut self, number: u64, index: IndexSize) {
        self.index = if self.numbers.is_empty() { index } else { self.index.grown_to(index) };
        let is_first = self.numbers.range(self.index.neighbours(number)).next().is_none();
        self.groups = self.groups.saturating_add(is_first.into());
        self.numbers.insert(number);
    }

    fn remove(&mut self, number: u64) {
        if !self.numbers.remove(&number) {
            return;
        }
        let was_last = self.numbers.range(self.index.neighbours(number)).next().is_none();
        self.groups = self.groups.saturating_sub(was_last.into());
    }

    /// What storing them changes of the chunk index, at most, bytes.
    fn index_bytes(&self) -> u64 {
        if self.recorded == 0 { 0 } else { self.index.changed_by(self.groups) }
    }
}

impl Default for Entries {
    fn default() -> Self {
        Entries { chunks: LruCache::unbounded(), datasets: HashMap::new() }
    }
}

impl Entries {
    fn has(&self, dataset: DatasetKey) -> bool {
        self.datasets.contains_key(&dataset)
    }
}

/// What rolling back an operation restores.
#[derive(Default)]
struct UndoLog {
    /// Entries before the operation inserted, replaced or removed them.
    chunks: HashMap<ChunkKey, Option<Arc<DirtyChunk>>>,
    /// What older chunks were, in order of change.
    changes: Vec<(Arc<DirtyChunk>, Old)>,
}

/// What a chunk was before a change.
enum Old {
    /// Bytes at an offset.
    Bytes(usize, Vec<u8>),
    /// All of it.
    Image(SharedImage),
}

/// All dirty chunks of a mount.
#[derive(Default)]
pub(crate) struct DirtyChunks {
    entries: Mutex<Entries>,
    /// Sums over all chunks.
    needs: Arc<DirtyNeeds>,
    /// Maximum of the memory so far.
    #[cfg(test)]
    peak_bytes: AtomicU64,
    /// Undo log of the running operation.
    undo: Mutex<Option<UndoLog>>,
}

impl DirtyChunks {
    /// True when there is no dirty chunk.
    pub(crate) fn is_empty(&self) -> bool {
        self.bytes() == 0
    }

    /// Memory of all chunks, bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.needs.memory()
    }

    /// Storage that the chunks in memory take in a file without pages, at most, bytes.
    pub(crate) fn storage_bytes(&self) -> u64 {
        self.needs.storage()
    }

    /// What storing the chunks changes where it is, at most, bytes: of chunks, and of indexes.
    pub(crate) fn bytes_in_place(&self) -> u64 {
        self.needs.in_place()
    }

    /// Maximum of the memory of all chunks so far, bytes.
    #[cfg(test)]
    pub(crate) fn peak_bytes(&self) -> u64 {
        self.peak_bytes.load(Ordering::Relaxed)
    }

    /// True when `dataset` has dirty chunks.
    pub(crate) fn has(&self, dataset: DatasetKey) -> bool {
        !self.is_empty() && self.entries.lock().has(dataset)
    }

    /// The chunk `key`, if it is dirty.
    pub(crate) fn get(&self, key: ChunkKey) -> Option<Arc<DirtyChunk>> {
        if self.is_empty() {
            return None;
        }
        self.entries.lock().chunks.get(&key).cloned()
    }

    /// True when `chunk` is still the dirty chunk `key` and has not changed since `version`.
    pub(crate) fn is_current(&self, key: ChunkKey, chunk: &Arc<DirtyChunk>, version: u64) -> bool {
        let entries = self.entries.lock();
        entries.chunks.peek(&key).is_some_and(|c| Arc::ptr_eq(c, chunk)) && chunk.version() == version
    }

    /// True when `chunk` is still the dirty chunk `key`, in any version.
    pub(crate) fn contains(&self, key: ChunkKey, chunk: &Arc<DirtyChunk>) -> bool {
        self.entries.lock().chunks.peek(&key).is_some_and(|c| Arc::ptr_eq(c, chunk))
    }

    /// Starts the undo log of an operation.
    pub(crate) fn begin(&self) {
        *self.undo.lock() = Some(UndoLog::default());
    }

    /// Ends an operation; rolls its changes back unless `done`.
    pub(crate) fn end(&self, done: bool) {
        let undo = self.undo.lock().take().unwrap_or_default();
        if done {
            return;
        }
        for (chunk, old) in undo.changes.into_iter().rev() {
            let restored = match old {
                Old::Bytes(at, bytes) => chunk.write(at, &bytes, 0),
                Old::Image(image) => {
                    chunk.replace(image);
                    Ok(())
                }
            };
            if let Err(e) = restored {
                tracing::error!("cannot roll back a failed change of a chunk: {e}");
            }
        }
        // A chunk may have moved to another number: it leaves that before it comes back.
        undo.chunks.keys().for_each(|key| drop(self.remove_chunk(*key)));
        for (key, chunk) in undo.chunks {
            if let Some(chunk) = chunk {
                self.replace_chunk(key, chunk);
            }
        }
    }

    fn log_replaced(&self, key: ChunkKey, old: Option<Arc<DirtyChunk>>) {
        if let Some(undo) = &mut *self.undo.lock() {
            undo.chunks.entry(key).or_insert(old);
        }
    }

    /// Records `len` bytes of a chunk from `at` in the undo log, before the operation changes them;
    /// all of a chunk whose bytes do not say all of it.
    pub(crate) fn log_bytes(&self, key: ChunkKey, chunk: &Arc<DirtyChunk>, at: usize, len: usize) -> Result<()> {
        if let Some(undo) = &mut *self.undo.lock()
            && !undo.chunks.contains_key(&key)
        {
            let image = chunk.now();
            if !chunk.is_in_file && image.image().dense().is_none() {
                undo.changes.push((chunk.clone(), Old::Image(image)));
                return Ok(());
            }
            let mut old = vec![0; len.min(usize::try_from(chunk.len()).unwrap_or(usize::MAX).saturating_sub(at))];
            chunk.get(at as u64, &mut old)?;
            undo.changes.push((chunk.clone(), Old::Bytes(at, old)));
        }
        Ok(())
    }

    /// Adds a chunk, of which `written` bytes are new. `index`: the index of its dataset.
    pub(crate) fn insert(&self, key: ChunkKey, image: Image, written: u64, (before, index): (Before, IndexSize)) {
        let (is_in_file, chunk) = (FileImage::of(&*image).is_some(), ChangedChunk::new(Unencoded::shared(image)));
        let (written, total, charged) = (written.into(), self.needs.clone(), Mutex::new(None));
        let chunk = DirtyChunk { chunk, is_in_file, written, before, index, total, charged };
        let old = self.replace_chunk(key, Arc::new(chunk));
        self.log_replaced(key, old);
    }

    fn replace_chunk(&self, key: ChunkKey, chunk: Arc<DirtyChunk>) -> Option<Arc<DirtyChunk>> {
        let (added, recorded, index) = (chunk.added_bytes(), chunk.is_recorded(), chunk.index);
        let mut entries = self.entries.lock();
        chunk.charge();
        #[cfg(test)]
        self.peak_bytes.fetch_max(self.bytes(), Ordering::Relaxed);
        let old = entries.chunks.put(key, chunk);
        if let Some(old) = &old {
            old.release();
        }
        let of_dataset = entries.datasets.entry(key.dataset).or_default();
        let changed_before = of_dataset.index_bytes();
        of_dataset.insert(key.chunk, index);
        let was_recorded = old.as_ref().is_some_and(|old| old.is_recorded());
        of_dataset.recorded = of_dataset.recorded.saturating_add(recorded.into()).saturating_sub(was_recorded.into());
        self.needs.exchange_index(changed_before, of_dataset.index_bytes());
        of_dataset.added = of_dataset.added.saturating_add(added).saturating_sub(old.as_ref().map_or(0, |old| old.added_bytes()));
        old
    }

    /// Removes a chunk that was written back or discarded.
    pub(crate) fn remove(&self, key: ChunkKey) {
        if let Some(old) = self.remove_chunk(key) {
            self.log_replaced(key, Some(old));
        }
    }

    fn remove_chunk(&self, key: ChunkKey) -> Option<Arc<DirtyChunk>> {
        let mut entries = self.entries.lock();
        let old = entries.chunks.pop(&key)?;
        old.release();
        if let Some(of_dataset) = entries.datasets.get_mut(&key.dataset) {
            let changed_before = of_dataset.index_bytes();
            of_dataset.remove(key.chunk);
            of_dataset.recorded = of_dataset.recorded.saturating_sub(old.is_recorded().into());
            self.needs.exchange_index(changed_before, of_dataset.index_bytes());
            of_dataset.added = of_dataset.added.saturating_sub(old.added_bytes());
            if of_dataset.numbers.is_empty() {
                entries.datasets.remove(&key.dataset);
            }
        }
        Some(old)
    }

    /// The dirty chunks of `dataset`, ordered by number.
    pub(crate) fn of(&self, dataset: DatasetKey) -> Vec<(ChunkKey, Arc<DirtyChunk>)> {
        let entries = self.entries.lock();
        let keys = entries.datasets.get(&dataset).into_iter().flat_map(|d| &d.numbers).map(|&chunk| ChunkKey { dataset, chunk });
        keys.filter_map(|key| entries.chunks.peek(&key).map(|c| (key, c.clone()))).collect()
    }

    /// Bytes of the dirty chunks of `dataset` that have no record in the chunk index.
    pub(crate) fn added_bytes(&self, dataset: DatasetKey) -> u64 {
        if self.is_empty() { 0 } else { self.entries.lock().datasets.get(&dataset).map_or(0, |n| n.added) }
    }

    /// Datasets with dirty chunks, sorted.
    pub(crate) fn datasets(&self) -> Vec<DatasetKey> {
        let mut datasets: Vec<DatasetKey> = self.entries.lock().datasets.keys().copied().collect();
        datasets.sort_unstable();
        datasets
    }

    /// Selects about `wanted` bytes of chunks in memory for writeback: full ones, then the least
    /// recently used.
    pub(crate) fn choose(&self, wanted: u64) -> Vec<(ChunkKey, Arc<DirtyChunk>)> {
        self.select(wanted, |c| !c.is_in_file)
    }

    /// Selects about `wanted` bytes of chunks in temporary files for writeback: full ones, then the
    /// least recently used.
    pub(crate) fn choose_files(&self, wanted: u64) -> Vec<(ChunkKey, Arc<DirtyChunk>)> {
        self.select(wanted, |c| c.is_in_file)
    }

    fn select(&self, wanted: u64, which: impl Fn(&DirtyChunk) -> bool) -> Vec<(ChunkKey, Arc<DirtyChunk>)> {
        let mut all: Vec<_> = self.entries.lock().chunks.iter().filter(|(_, c)| which(c)).map(|(k, c)| (*k, c.clone())).collect();
        // Oldest first, then a stable sort that puts full chunks before the rest.
        all.reverse();
        all.sort_by_key(|(_, c)| !c.is_full());
        let mut sum = 0u64;
        all.retain(|(_, c)| {
            let take = sum < wanted;
            sum = sum.saturating_add(if c.is_in_file { c.len() } else { c.memory() });
            take
        });
        all
    }

    /// Gives each dirty chunk of `dataset` the number that `next` returns for its present one. One
    /// without a next number is discarded.
    pub(crate) fn renumber(&self, dataset: DatasetKey, next: &dyn Fn(u64) -> Option<u64>) {
        let chunks = self.of(dataset);
        chunks.iter().for_each(|(key, _)| self.remove(*key));
        for (key, chunk) in chunks {
            if let Some(chunk_number) = next(key.chunk) {
                let key = ChunkKey { chunk: chunk_number, ..key };
                let old = self.replace_chunk(key, chunk);
                self.log_replaced(key, old);
            }
        }
    }

    /// Discards all dirty chunks of `dataset`.
    pub(crate) fn forget(&self, dataset: DatasetKey) {
        for (key, _) in self.of(dataset) {
            self.remove(key);
        }
    }
}

impl DirtyChunk {
    /// The chunk as it is now. A change while the caller keeps it copies all of it.
    pub(crate) fn now(&self) -> SharedImage {
        self.chunk.now()
    }

    /// The chunk as it is now, and its version.
    pub(crate) fn snapshot(&self) -> (SharedImage, u64) {
        self.chunk.snapshot()
    }

    /// Version of the bytes, raised by each change.
    pub(crate) fn version(&self) -> u64 {
        self.chunk.version()
    }

    /// The chunk, if its bytes are in a file.
    pub(crate) fn in_file(&self) -> Option<FileImage> {
        self.is_in_file.then(|| self.chunk.in_file()).flatten()
    }

    /// Decoded bytes.
    pub(crate) fn len(&self) -> u64 {
        self.now().image().element_bytes()
    }

    /// What the chunk index said at insertion.
    pub(crate) fn before(&self) -> Before {
        self.before
    }

    /// Decoded bytes if the chunk has no record in the chunk index, else 0.
    fn added_bytes(&self) -> u64 {
        if self.before == Before::Absent { self.len() } else { 0 }
    }

    /// True if its record in the chunk index changes when it is stored.
    fn is_recorded(&self) -> bool {
        self.before != Before::InPlace
    }

    /// Memory, bytes.
    fn memory(&self) -> u64 {
        self.now().image().memory().saturating_add(ENTRY_OVERHEAD_BYTES)
    }

    /// Counts the memory of the chunk, which is added.
    fn charge(&self) {
        let mut charged = self.charged.lock();
        let memory = self.memory();
        let old = charged.replace(memory).unwrap_or(0);
        self.count(old, memory);
    }

    /// Counts the memory of the chunk no more, which is removed.
    fn release(&self) {
        let old = self.charged.lock().take().unwrap_or(0);
        self.count(old, 0);
    }

    /// Counts the memory that the chunk takes after a change.
    fn recharge(&self) {
        let mut charged = self.charged.lock();
        let Some(old) = charged.as_mut() else { return };
        let memory = self.memory();
        self.count(*old, memory);
        *old = memory;
    }

    /// The chunk took `old` bytes, and takes `now`.
    fn count(&self, old: u64, now: u64) {
        let is_in_place = self.before == Before::InPlace && !self.is_in_file;
        self.total.exchange(old, now, is_in_place);
    }

    /// Replaces the decoded chunk.
    fn replace(&self, image: SharedImage) {
        self.chunk.replace(image);
        self.recharge();
    }

    /// Fills `buf` with the chunk's bytes from `at`.
    pub(crate) fn get(&self, at: u64, buf: &mut [u8]) -> Result<()> {
        self.chunk.read(|image| image.read(at, buf))?.ok_or_else(out_of_range)
    }

    /// Copies the chunk's pieces `t` of a request to the request's buffer `to`.
    pub(crate) fn scatter(&self, grid: &ByteGrid, t: &ChunkPieces, to: &mut [u8]) -> Result<()> {
        self.chunk.read(|image| image.scatter(grid, t, to))?.ok_or_else(out_of_range)
    }

    /// Writes bytes at `at`; counts `written` bytes as written.
    fn write(&self, at: usize, new: &[u8], written: u64) -> Result<()> {
        self.change(written, |image| image.write(at as u64, new))?.ok_or_else(out_of_range)
    }

    /// Copies the chunk's pieces `t` of a request from the request's buffer `from`.
    pub(crate) fn gather(&self, grid: &ByteGrid, t: &ChunkPieces, from: &[u8]) -> Result<()> {
        self.change(t.bytes(), |image| image.gather(grid, t, from))?.ok_or_else(out_of_range)
    }

    /// True when nothing is lost when all `parts`, offsets and lengths, are cleared.
    pub(crate) fn is_blank(&self, parts: &[(usize, usize)]) -> Result<bool> {
        self.chunk.read(|image| image.is_blank(parts))
    }

    /// Zeroes `parts`, offsets and lengths, or makes their elements undefined.
    pub(crate) fn clear(&self, parts: &[(usize, usize)]) -> Result<()> {
        self.change(0, |image| image.clear(parts))
    }

    /// Changes the chunk by `f`; counts `written` bytes as written. Errors: those of its file.
    pub(crate) fn change<T>(&self, written: u64, f: impl FnOnce(&mut dyn ChunkImage) -> T) -> Result<T> {
        self.written.fetch_add(written, Ordering::Relaxed);
        let (done, is_dense) = self.chunk.change(|image| (f(image), image.dense().is_some()))?;
        // Dense chunks keep their size.
        if !is_dense && !self.is_in_file {
            self.recharge();
        }
        Ok(done)
    }

    /// True when at least as many bytes were written as the chunk has.
    pub(crate) fn is_full(&self) -> bool {
        self.written.load(Ordering::Relaxed) >= self.len()
    }
}

fn out_of_range() -> Error {
    Error::corrupt("chunk", Address::UNDEF, "shorter than its dimensions say")
}

#[cfg(test)]
mod tests {
    use super::super::image::DenseImage;
    use super::*;

    fn key(chunk: u64) -> ChunkKey {
        ChunkKey { dataset: (chunk / 10).into(), chunk }
    }

    #[test]
    fn full_chunks_go_first_then_the_oldest() {
        let d = DirtyChunks::default();
        assert!(d.is_empty() && d.get(key(1)).is_none());
        for n in [1, 2, 3, 14] {
            d.insert(key(n), DenseImage::boxed(vec![n as u8; 100]), if n == 3 { 100 } else { 7 }, (Before::Absent, IndexSize::default()));
        }
        d.get(key(1));
        assert_eq!(d.bytes(), 4 * (100 + ENTRY_OVERHEAD_BYTES));
        let order: Vec<u64> = d.choose(2 * (100 + ENTRY_OVERHEAD_BYTES) + 1).iter().map(|(k, _)| k.chunk).collect();
        assert_eq!(order, [3, 2, 14]);
        assert_eq!(d.datasets(), [0.into(), 1.into()]);
        d.insert(key(2), DenseImage::boxed(vec![9; 50]), 50, (Before::Absent, IndexSize::default()));
        assert_eq!((d.bytes(), d.of(0.into()).len()), (350 + 4 * ENTRY_OVERHEAD_BYTES, 3));
        assert!(d.has(0.into()) && d.has(1.into()) && !d.has(2.into()));
        d.forget(0.into());
        assert!(!d.has(0.into()));
        assert_eq!(d.bytes(), 100 + ENTRY_OVERHEAD_BYTES);
        d.remove(key(14));
        assert!(d.is_empty());
    }

    #[test]
    fn neighbours_change_the_same_nodes_of_an_index() {
        let d = DirtyChunks::default();
        let key = |chunk| ChunkKey { dataset: 1.into(), chunk };
        let add = |n, before| d.insert(key(n), DenseImage::boxed(vec![0; 8]), 8, (before, IndexSize::of(1 << 20, 1, true)));
        (0..64).for_each(|n| add(n, Before::Moves));
        let two = d.bytes_in_place();
        add(5, Before::Absent);
        assert_eq!(d.bytes_in_place(), two);
        add(100, Before::Absent);
        assert_eq!(d.bytes_in_place(), two / 2 * 3);
        (1..64).for_each(|n| d.remove(key(n)));
        assert_eq!(d.bytes_in_place(), two);
        [0, 100].into_iter().for_each(|n| d.remove(key(n)));
        assert_eq!((d.bytes_in_place(), d.storage_bytes()), (0, 0));
    }

    #[test]
    fn chunks_of_single_elements_do_not_fill_the_memory() {
        let d = DirtyChunks::default();
        (0..1000).for_each(|n| {
            d.insert(ChunkKey { dataset: 1.into(), chunk: n }, DenseImage::boxed(vec![0; 8]), 8, (Before::Absent, IndexSize::default()))
        });
        assert!(d.bytes() > 100_000, "an entry takes far more than its eight bytes");
    }

    #[test]
    fn a_failed_operation_is_rolled_back() {
        let d = DirtyChunks::default();
        for n in [1, 2, 3] {
            d.insert(key(n), DenseImage::boxed(vec![n as u8; 8]), 8, (Before::Absent, IndexSize::default()));
        }
        let all = || d.of(0.into()).into_iter().map(|(k, c)| (k.chunk, c.now().image().dense().unwrap().to_vec())).collect::<Vec<_>>();
        let before = all();
        for done in [false, true] {
            d.begin();
            let one = d.get(key(1)).unwrap();
            d.log_bytes(key(1), &one, 6, 2).unwrap();
            one.change(0, |image| image.write(6, &[9, 9])).unwrap().unwrap();
            d.insert(key(2), DenseImage::boxed(vec![7; 100]), 0, (Before::Absent, IndexSize::default()));
            d.remove(key(3));
            d.insert(key(4), DenseImage::boxed(vec![4; 8]), 0, (Before::Absent, IndexSize::default()));
            d.remove(key(4));
            d.insert(key(5), DenseImage::boxed(vec![5; 8]), 0, (Before::Absent, IndexSize::default()));
            d.forget(0.into());
            d.insert(key(6), DenseImage::boxed(vec![6; 8]), 0, (Before::Absent, IndexSize::default()));
            d.end(done);
            if !done {
                assert_eq!((all(), d.bytes()), (before.clone(), 24 + 3 * ENTRY_OVERHEAD_BYTES));
            }
        }
        assert_eq!((all(), d.bytes()), (vec![(6, vec![6; 8])], 8 + ENTRY_OVERHEAD_BYTES));
        d.remove(key(6));
        d.end(false);
        assert!(d.is_empty(), "nothing is rolled back outside operations");
    }
}
