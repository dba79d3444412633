//! The driver: reads of blocks in memory, on disk, or by GETs.

use super::blocks::{BLOCK_BYTES, Block, BlockCache, BlockPlace, Budget, Due, Transfer, Use};
use super::cache_file::CacheKey;
use super::disk::DiskCache;
use super::failure::Failure;
use super::fetch::Object;
use super::policy::{Policy, blocks_of};
use crate::base::{checksum, waiting};
use crate::file::{FileDriver, Identity, Status};
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::runtime::Runtime;
use tokio::sync::Semaphore;

/// Threads that receive answers.
const THREADS: usize = 2;
/// Threads that write to the disk cache, and resolve names.
const BLOCKING_THREADS: usize = 4;
/// GETs at once that readers wait for, and as many of read-ahead.
const GETS_MAX: usize = 16;
/// Longest GET, bytes.
const PIECE_MAX_BYTES: u64 = 8 << 20;
/// Least memory for blocks, bytes.
const BUDGET_MIN_BYTES: u64 = 16 << 20;
/// Bytes of the first GET.
pub(super) const HEAD_BYTES: u64 = 1 << 20;
/// Bytes of a read that are handled at a time.
const SEGMENT_BYTES: u64 = 32 << 20;
/// Device number of objects; the inode number is a hash of the name and the version.
const DEVICE: u64 = u64::MAX - 1;
/// Transfers that wait to be written to the disk cache; further ones are not kept.
const WRITES_PENDING_MAX: usize = 8;

/// An object of an object store.
pub struct RemoteFile {
    shared: Arc<Shared>,
    policy: Policy,
    status: Status,
    /// `None` only while it is dropped.
    runtime: Option<Arc<Runtime>>,
}

/// The blocks of an open object, which may be trimmed by those that share its memory.
pub(super) struct Blocks(Weak<Shared>);

impl Blocks {
    /// Drops blocks above the object's share; false: the object is closed.
    pub(super) fn trim(&self) -> bool {
        self.0.upgrade().map(|shared| shared.cache.trim()).is_some()
    }

    /// Bytes in memory.
    pub(super) fn bytes(&self) -> u64 {
        self.0.upgrade().map_or(0, |shared| shared.cache.bytes())
    }
}

/// What transfers use, too.
struct Shared {
    object: Object,
    cache: BlockCache,
    disk: Option<Arc<DiskCache>>,
    demand: Semaphore,
    ahead: Semaphore,
    writes: Arc<Semaphore>,
    disk_hits: AtomicU64,
}

/// What an open object may use.
pub(super) struct Resources {
    /// Memory for its blocks.
    pub(super) memory: Budget,
    /// Threads that receive its answers; `None`: threads of its own.
    pub(super) runtime: Option<Arc<Runtime>>,
    /// Opens the disk cache for a version of the object.
    pub(super) disk: Option<Box<dyn FnOnce(CacheKey) -> DiskCache + Send>>,
}

impl RemoteFile {
    /// Opens `object`: gets its first bytes, and pins its version.
    pub(super) fn open(object: Object, resources: Resources) -> Result<RemoteFile, Failure> {
        let runtime = resources.runtime.map_or_else(own_threads, Ok)?;
        let head = Transfer::new(0..HEAD_BYTES / BLOCK_BYTES, Use::Metadata);
        let mut blocks: Vec<(u64, Block)> = Vec::new();
        let mut keep = |number, block| blocks.push((number, block));
        runtime.block_on(object.get(0..HEAD_BYTES, &mut |bytes| head.push(bytes, &mut keep)))?;
        head.finish(Ok(()), &mut keep);
        let Some(pin) = object.pin().cloned() else { return Err(Failure::permanent(libc::EIO, "the object is empty")) };
        let version = format!("{}\n{}\n{:?}\n{}", object.name(), pin.etag.as_deref().unwrap_or(""), pin.modified, pin.len);
        // Without an ETag, two versions may look alike: nothing is kept on disk.
        let opener = resources.disk.filter(|_| pin.etag.is_some());
        let disk = opener.map(|open| Arc::new(open(object.store_identity().with(version.as_bytes()))));
        let budget = resources.memory.share();
        let piece = (budget / 32).clamp(4, PIECE_MAX_BYTES / BLOCK_BYTES);
        let cache = BlockCache::new(&resources.memory, piece);
        blocks.into_iter().for_each(|(number, block)| cache.insert(number, block, Use::Metadata));
        let hash = |seed| u64::from(checksum::lookup3(version.as_bytes(), seed));
        let identity = Identity { device: DEVICE, inode: hash(1) << 32 | hash(2) };
        let (len, time) = (pin.len, pin.modified);
        let status = Status { identity, len, allocated: len, atime: time, mtime: time, ctime: time };
        let shared = Shared {
            object,
            cache,
            disk,
            demand: Semaphore::new(GETS_MAX),
            ahead: Semaphore::new(GETS_MAX),
            writes: Arc::new(Semaphore::new(WRITES_PENDING_MAX)),
            disk_hits: AtomicU64::new(0),
        };
        Ok(RemoteFile {
            shared: Arc::new(shared),
            policy: Policy::new(len.div_ceil(BLOCK_BYTES), budget, piece),
            status,
            runtime: Some(runtime),
        })
    }

    /// Its blocks in memory.
    pub(super) fn blocks(&self) -> Blocks {
        Blocks(Arc::downgrade(&self.shared))
    }

    /// The ETag that is read, if the server has ETags.
    pub(super) fn etag(&self) -> Option<&str> {
        self.shared.object.pin().and_then(|pin| pin.etag.as_deref())
    }

    /// Starts `transfers`; `ahead`: no reader waits for them.
    fn start(&self, transfers: Vec<Due>, ahead: bool) {
        let Some(runtime) = &self.runtime else { return };
        for transfer in transfers {
            let shared = self.shared.clone();
            let len = self.status.len;
            runtime.spawn(async move { shared.run(&transfer, len, ahead).await });
        }
    }

    /// Fetches `blocks` in the background, as far as they are nowhere.
    fn fetch_ahead(&self, blocks: Range<u64>) {
        let blocks = match &self.shared.disk {
            // Those at the front that are on disk are read when they are needed.
            Some(disk) => blocks.clone().find(|number| !disk.has(*number)).map_or(0..0, |first| first..blocks.end),
            None => blocks,
        };
        if !blocks.is_empty() {
            let (_, started) = self.shared.cache.claim(0..0, &[(blocks, Use::Data)], Use::Data);
            self.start(started, true);
        }
    }

    /// Fills `buf` with the bytes from `offset`, all of which are in the object.
    fn read_segment(&self, buf: &mut [u8], offset: u64) -> Result<(), Failure> {
        let range = offset..offset.saturating_add(buf.len() as u64);
        let blocks = blocks_of(&range);
        let mut places = self.shared.cache.find(blocks.clone());
        if places.iter().any(|place| !matches!(place, BlockPlace::Ready(_))) {
            waiting::may_wait();
            places = self.located(&blocks, places, buf.len() as u64);
        }
        let ahead = self.policy.ahead(&range);
        if !ahead.is_empty() {
            self.fetch_ahead(ahead);
        }
        for (number, place) in blocks.zip(places) {
            let block = match place {
                BlockPlace::Ready(block) => block,
                BlockPlace::Arriving(transfer) => {
                    waiting::may_wait();
                    transfer.wait(number)?
                }
                BlockPlace::Missing => return Err(Failure::permanent(libc::EIO, "a block was not fetched")),
            };
            copy(&block, number.saturating_mul(BLOCK_BYTES), buf, offset);
        }
        Ok(())
    }

    /// Places of `blocks`, none missing: from disk, or by transfers that it starts. `len`: bytes of
    /// the read.
    fn located(&self, blocks: &Range<u64>, mut places: Vec<BlockPlace>, len: u64) -> Vec<BlockPlace> {
        let used = Policy::used(len);
        if let Some(disk) = &self.shared.disk {
            for (number, place) in blocks.clone().zip(&mut places).filter(|(_, place)| matches!(place, BlockPlace::Missing)) {
                if let Some(block) = disk.read(number) {
                    self.shared.disk_hits.fetch_add(1, Ordering::Relaxed);
                    self.shared.cache.insert(number, block.clone(), used);
                    *place = BlockPlace::Ready(block);
                }
            }
        }
        let is_missing = |(_, place): &(u64, &BlockPlace)| matches!(place, BlockPlace::Missing);
        let mut missing = blocks.clone().zip(&places).filter(is_missing).map(|(number, _)| number);
        let Some(first) = missing.next() else { return places };
        let last = missing.last().unwrap_or(first);
        let missing = first..last.saturating_add(1);
        let extra = self.policy.on_miss(&missing, len);
        let (found, started) = self.shared.cache.claim(missing.clone(), &extra, used);
        self.start(started, false);
        for (number, place) in missing.zip(found) {
            let index = usize::try_from(number.saturating_sub(blocks.start)).unwrap_or(usize::MAX);
            if let Some(old) = places.get_mut(index).filter(|old| matches!(old, BlockPlace::Missing)) {
                *old = place;
            }
        }
        places
    }
}

/// Threads for one object.
fn own_threads() -> Result<Arc<Runtime>, Failure> {
    let threads = |e: io::Error| Failure::permanent(e.raw_os_error().unwrap_or(libc::EAGAIN), format!("cannot start threads: {e}"));
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    let runtime = builder.worker_threads(THREADS).max_blocking_threads(BLOCKING_THREADS).thread_name("h5dir-remote");
    runtime.enable_io().enable_time().build().map(Arc::new).map_err(threads)
}

/// Memory of `bytes` for the blocks of one object.
pub(super) fn own_memory(bytes: u64) -> Budget {
    Budget::new(bytes.max(BUDGET_MIN_BYTES) / BLOCK_BYTES)
}

/// Copies the part of `block` that lies in `buf`. `start` and `offset`: where they begin.
fn copy(block: &[u8], start: u64, buf: &mut [u8], offset: u64) {
    let index = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
    let skipped = index(offset.saturating_sub(start));
    let to = index(start.saturating_sub(offset));
    let source = block.get(skipped..).unwrap_or_default();
    let target = buf.get_mut(to..).unwrap_or_default();
    let len = source.len().min(target.len());
    if let (Some(source), Some(target)) = (source.get(..len), target.get_mut(..len)) {
        target.copy_from_slice(source);
    }
}

impl Shared {
    /// Performs a transfer from an object of `len` bytes.
    async fn run(&self, transfer: &Arc<Transfer>, len: u64, ahead: bool) {
        let gets = if ahead { &self.ahead } else { &self.demand };
        // Closed never.
        let permit = gets.acquire().await;
        let start = transfer.blocks.start.saturating_mul(BLOCK_BYTES);
        let end = transfer.blocks.end.saturating_mul(BLOCK_BYTES).min(len);
        let mut complete = |number, block| self.cache.insert(number, block, transfer.used);
        let outcome = self.object.get(start..end, &mut |bytes| transfer.push(bytes, &mut complete)).await;
        let failed = outcome.is_err();
        transfer.finish(outcome, &mut complete);
        self.cache.land(transfer);
        drop(permit);
        if let (Some(disk), false) = (self.disk.clone(), failed)
            && let Ok(permit) = self.writes.clone().try_acquire_owned()
        {
            let (first, blocks) = (transfer.blocks.start, transfer.ready());
            tokio::task::spawn_blocking(move || {
                disk.write(first, &blocks);
                drop(permit);
            });
        }
    }
}

impl FileDriver for RemoteFile {
    fn status(&self) -> io::Result<Status> {
        Ok(self.status)
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        let len = self.status.len.saturating_sub(offset).min(buf.len() as u64);
        let buf = buf.get_mut(..usize::try_from(len).unwrap_or(0)).unwrap_or_default();
        let mut at = offset;
        for part in buf.chunks_mut(SEGMENT_BYTES as usize) {
            self.read_segment(part, at).map_err(|failure| {
                self.shared.object.report(&failure);
                failure.io_error()
            })?;
            at = at.saturating_add(part.len() as u64);
        }
        Ok(buf.len())
    }

    fn advise(&self, offset: u64, len: u64) {
        let most = self.shared.cache.budget().saturating_mul(BLOCK_BYTES) / 4;
        let end = offset.saturating_add(len.min(most)).min(self.status.len);
        if offset < end {
            self.fetch_ahead(blocks_of(&(offset..end)));
        }
    }

    fn is_remote(&self) -> bool {
        true
    }

    fn url(&self) -> Option<&str> {
        Some(self.shared.object.name())
    }

    fn announce(&self, ranges: &[Range<u64>]) {
        self.policy.announce(ranges);
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        let [requests, bytes, retries] = self.shared.object.counters();
        vec![
            ("remote_requests", requests),
            ("remote_bytes", bytes),
            ("remote_retries", retries),
            ("remote_cache_bytes", self.shared.cache.bytes()),
            ("remote_disk_blocks", self.shared.disk_hits.load(Ordering::Relaxed)),
        ]
    }
}

impl Drop for RemoteFile {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take().and_then(Arc::into_inner) {
            // Writes to the disk cache may finish; GETs end.
            runtime.shutdown_timeout(Duration::from_secs(1));
        }
    }
}
