//! An open container: its state under a lock, and caches of what never changes.

use super::beside::{Following, Siblings, Trees};
use super::dataset::Dataset;
use super::decoding_memory::Decoding;
use super::external::External;
use super::original_sources::OriginalSources;
use super::peer::Peer;
use super::state::State;
use crate::base::{Address, Error, Result, buffers};
use crate::connector::stored::Original;
use crate::iod::{Container, Extent};
use foldhash::{HashMap, HashMapExt, HashSet, HashSetExt};
use lru::LruCache;
use parking_lot::{Condvar, Mutex, RwLock};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak, mpsc};

/// Decoded headers that are kept.
const DATASETS_MAX: usize = 4096;
/// Bytes of chunks that were read or written to their end, at most.
const PASSED_BYTES: u64 = 32 << 20;
/// Least memory for changes that are not encoded, bytes.
const DIRTY_MIN_BYTES: u64 = 16 << 20;

/// Decoded bytes of chunks and of blocks of cells, by extent: extents never change.
pub(super) struct Images {
    cache: LruCache<Extent, Arc<Vec<u8>>>,
    /// Chunks that a thread fetches and decodes; others wait for it.
    pub(super) arriving: HashSet<Extent>,
    bytes: u64,
    limit: u64,
    /// Chunks that were read or written to their end, with their lengths.
    passed: VecDeque<(Extent, u64)>,
    passed_bytes: u64,
}

impl Images {
    fn new(limit: u64) -> Images {
        let (passed, passed_bytes) = (VecDeque::new(), 0);
        Images { cache: LruCache::unbounded(), arriving: HashSet::new(), bytes: 0, limit, passed, passed_bytes }
    }

    pub(super) fn get(&mut self, extent: &Extent) -> Option<Arc<Vec<u8>>> {
        self.cache.get(extent).cloned()
    }

    #[cfg(test)]
    pub(super) fn clear(&mut self) {
        self.cache.clear();
        self.bytes = 0;
    }

    pub(super) fn put(&mut self, extent: Extent, image: Arc<Vec<u8>>) {
        self.bytes = self.bytes.saturating_add(image.len() as u64);
        if let Some(old) = self.cache.put(extent, image) {
            self.dropped(old);
        }
        while self.bytes > self.limit
            && let Some((_, old)) = self.cache.pop_lru()
        {
            self.dropped(old);
        }
    }

    /// Notes that a chunk was read or written to its end. It is rarely requested again: the kernel
    /// has its bytes. Few of those are kept.
    pub(super) fn pass(&mut self, extent: Extent) {
        let Some(image) = self.cache.peek(&extent) else { return };
        // Stored bytes count as well: an image may be empty.
        let len = (image.len() as u64).max(extent.len.into());
        self.passed.push_back((extent, len));
        self.passed_bytes = self.passed_bytes.saturating_add(len);
        while self.passed_bytes > PASSED_BYTES.min(self.limit / 4)
            && let Some((first, len)) = self.passed.pop_front()
        {
            self.passed_bytes = self.passed_bytes.saturating_sub(len);
            if let Some(old) = self.cache.pop(&first) {
                self.dropped(old);
            }
        }
    }

    fn dropped(&mut self, image: Arc<Vec<u8>>) {
        self.bytes = self.bytes.saturating_sub(image.len() as u64);
        if let Ok(image) = Arc::try_unwrap(image) {
            buffers::give(image);
        }
    }
}

/// Caches of decoded chunks, and how threads fill them.
type Caches = (Arc<Mutex<Images>>, Arc<Condvar>, Arc<AtomicUsize>, Arc<Decoding>);

/// Extents that one thread fetches while others wait for them: dropped, also by a panic, they are
/// waited for no longer.
pub(super) struct Claim<'a> {
    pub(super) connector: &'a IodConnector,
    pub(super) extents: Vec<Extent>,
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        let mut images = self.connector.images.lock();
        for extent in &self.extents {
            images.arriving.remove(extent);
        }
        drop(images);
        self.connector.arrival.notify_all();
    }
}

/// See the module's description.
pub struct IodConnector {
    /// The container.
    pub(super) container: Arc<Container>,
    /// What is shown.
    pub(super) state: RwLock<State>,
    /// It was opened for writing.
    pub(super) writable: bool,
    /// Decoded chunks and blocks of cells.
    pub(super) images: Arc<Mutex<Images>>,
    /// A chunk arrived, or could not be fetched.
    pub(super) arrival: Arc<Condvar>,
    /// Memory and temporary files for decoding chunks.
    pub(super) decoding: Arc<Decoding>,
    /// Held by the one thread that stores chunks ahead of a commit.
    pub(super) storing: Mutex<()>,
    /// Threads that read ahead.
    pub(super) readers_ahead: Arc<AtomicUsize>,
    /// Decoded headers of datasets, of the current generation.
    pub(super) datasets: Mutex<LruCache<u64, Arc<Dataset>>>,
    /// Bytes stored for datasets, counted or estimated in this generation.
    pub(super) counted: Mutex<LruCache<u64, (u64, u64)>>,
    /// Paths of objects, with the generation that they are of.
    pub(super) paths: Mutex<(u64, HashMap<u64, Vec<u8>>)>,
    /// Where a listing of a group ended: group, position, generation, last key.
    pub(super) cursor: Mutex<Option<(u64, u64, u64, Vec<u8>)>>,
    /// Other versions of the container.
    pub(super) siblings: Siblings<IodConnector>,
    /// Other files that links lead to; unset: they are not opened.
    pub(super) external: OnceLock<Arc<External>>,
    /// Files that chunks may refer to; unset: none.
    pub(super) original_sources: OnceLock<Arc<dyn OriginalSources>>,
    /// Those that chunks of this session refer to, with their numbers.
    pub(super) originals: Mutex<Vec<(Original, u64)>>,
    /// How versions of other writers are followed; unset: they are not, or it is written.
    pub(super) following: OnceLock<Following>,
    /// Rises with each change.
    generation: AtomicU64,
    /// Bytes of chunks in memory above which a thread stores them. Writers wait above twice that.
    pub(super) dirty_limit: usize,
    /// The transaction whose peer it is.
    pub(super) joined: Option<Peer>,
    /// Trees of transactions.
    pub(super) trees: Trees<IodConnector>,
    /// Ends the thread that renews the pin when it is dropped.
    pub(super) renewing: Mutex<Option<mpsc::Sender<()>>>,
    this: Weak<IodConnector>,
}

impl IodConnector {
    /// Shows `state`, with `cache_bytes` of decoded chunks.
    pub(super) fn new(container: Arc<Container>, state: State, writable: bool, cache_bytes: u64) -> Arc<IodConnector> {
        Self::of_peer(container, state, writable, cache_bytes, None)
    }

    /// [`IodConnector::new`], as a peer of a transaction.
    pub(super) fn of_peer(
        container: Arc<Container>,
        state: State,
        writable: bool,
        cache_bytes: u64,
        joined: Option<Peer>,
    ) -> Arc<IodConnector> {
        let images = Arc::new(Mutex::new(Images::new(cache_bytes.max(1 << 20))));
        let caches = (images, Arc::default(), Arc::default(), Arc::new(Decoding::new(cache_bytes.max(1 << 20))));
        let dirty_limit = usize::try_from((cache_bytes / 8).max(DIRTY_MIN_BYTES)).unwrap_or(usize::MAX);
        Self::with_caches(container, (state, joined), writable, caches, dirty_limit)
    }

    /// Shows `state`, another version of the container, with the same caches.
    pub(super) fn sibling(&self, state: State) -> Arc<IodConnector> {
        let caches = (self.images.clone(), self.arrival.clone(), self.readers_ahead.clone(), self.decoding.clone());
        Self::with_caches(self.container.clone(), (state, None), false, caches, self.dirty_limit)
    }

    /// A peer of a transaction that shows `state`, with the same caches and other files.
    pub(super) fn peer_beside(&self, container: Arc<Container>, state: State, joined: Peer) -> Arc<IodConnector> {
        let caches = (self.images.clone(), self.arrival.clone(), self.readers_ahead.clone(), self.decoding.clone());
        let peer = Self::with_caches(container, (state, Some(joined)), true, caches, self.dirty_limit);
        if let Some(external) = self.external.get() {
            let _ = peer.external.set(external.clone());
        }
        if let Some(sources) = self.original_sources.get() {
            peer.set_original_sources(sources.clone());
        }
        peer
    }

    fn with_caches(
        container: Arc<Container>,
        (state, joined): (State, Option<Peer>),
        writable: bool,
        caches: Caches,
        dirty_limit: usize,
    ) -> Arc<IodConnector> {
        let datasets_max = std::num::NonZeroUsize::new(DATASETS_MAX).unwrap_or(std::num::NonZeroUsize::MIN);
        let (images, arrival, readers_ahead, decoding) = caches;
        Arc::new_cyclic(|this| IodConnector {
            container,
            state: RwLock::new(state),
            writable,
            images,
            arrival,
            decoding,
            storing: Mutex::new(()),
            readers_ahead,
            datasets: Mutex::new(LruCache::new(datasets_max)),
            counted: Mutex::new(LruCache::new(datasets_max)),
            paths: Mutex::new((0, HashMap::new())),
            cursor: Mutex::new(None),
            siblings: Siblings::new(),
            external: OnceLock::new(),
            original_sources: OnceLock::new(),
            originals: Mutex::new(Vec::new()),
            following: OnceLock::new(),
            generation: AtomicU64::new(1),
            dirty_limit,
            joined,
            trees: Trees::default(),
            renewing: Mutex::new(None),
            this: this.clone(),
        })
    }

    /// Changes the memory for decoded chunks.
    pub(super) fn set_images_limit(&self, bytes: u64) {
        self.images.lock().limit = bytes.max(1 << 20);
        self.decoding.set_cache_bytes(bytes);
    }

    /// Bytes that are read ahead of a sequential reader: an eighth of the cache.
    pub(super) fn ahead_bytes(&self) -> u64 {
        (self.images.lock().limit / 8).clamp(1 << 20, 32 << 20)
    }

    /// An owner that does not keep it open.
    pub(super) fn weak(&self) -> Weak<IodConnector> {
        self.this.clone()
    }

    /// A shared owner of it.
    pub(super) fn shared(&self) -> Result<Arc<IodConnector>> {
        self.this.upgrade().ok_or_else(|| Error::corrupt("object", Address::UNDEF, "the container is closed"))
    }

    /// Number that rises with each change.
    pub(super) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Notes a change of the object `id`.
    pub(super) fn changed(&self, id: u64) {
        self.datasets.lock().pop(&id);
        self.generation.fetch_add(1, Ordering::AcqRel);
    }

    /// Notes a change of any kind but of the metadata of datasets.
    pub(super) fn note_change(&self) {
        self.generation.fetch_add(1, Ordering::AcqRel);
    }

    /// Notes changes of any objects.
    pub(super) fn all_changed(&self) {
        self.datasets.lock().clear();
        self.generation.fetch_add(1, Ordering::AcqRel);
    }
}
