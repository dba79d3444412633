//! Blocks of an object in memory: bounded, and each fetched by one transfer at a time.
//!
//! A block in memory is ready. A block that a GET brings is part of a [`Transfer`], on which its
//! readers wait; blocks of a transfer become ready one by one, as their bytes arrive.

use super::failure::Failure;
use lru::LruCache;
use parking_lot::{Condvar, Mutex};
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Length of a block, bytes.
pub(super) const BLOCK_BYTES: u64 = 64 << 10;
/// Blocks in memory between two missing ones that one GET fetches again, instead of two GETs.
const BRIDGED_BLOCKS_MAX: u64 = 16;

/// Bytes of a block; the last one of an object may be shorter.
pub(super) type Block = Arc<Vec<u8>>;

/// What a block is for: each use has half of the memory, if both need it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Use {
    /// Structures: small reads.
    Metadata,
    /// Elements: large reads, read-ahead.
    Data,
}

/// Blocks that one GET brings.
pub(super) struct Transfer {
    /// The blocks.
    pub(super) blocks: Range<u64>,
    /// What they are for.
    pub(super) used: Use,
    progress: Mutex<Progress>,
    arrived: Condvar,
    /// It ended with an error. No lock: `progress` is locked while blocks are inserted.
    has_failed: AtomicBool,
}

#[derive(Default)]
struct Progress {
    ready: Vec<Block>,
    /// Bytes of the next block.
    partial: Vec<u8>,
    outcome: Option<Result<(), Failure>>,
}

impl Transfer {
    /// A transfer of `blocks`.
    pub(super) fn new(blocks: Range<u64>, used: Use) -> Transfer {
        Transfer { blocks, used, progress: Mutex::default(), arrived: Condvar::new(), has_failed: AtomicBool::new(false) }
    }

    /// Adds bytes that arrived; passes each block that is complete to `complete`.
    pub(super) fn push(&self, mut bytes: &[u8], complete: &mut dyn FnMut(u64, Block)) {
        while !bytes.is_empty() {
            let mut progress = self.progress.lock();
            let room = (BLOCK_BYTES as usize).saturating_sub(progress.partial.len());
            let (part, rest) = bytes.split_at(room.min(bytes.len()));
            progress.partial.reserve_exact(room);
            progress.partial.extend_from_slice(part);
            bytes = rest;
            if progress.partial.len() as u64 == BLOCK_BYTES {
                self.take_partial(&mut progress, complete);
            }
        }
    }

    fn take_partial(&self, progress: &mut Progress, complete: &mut dyn FnMut(u64, Block)) {
        let block: Block = std::mem::take(&mut progress.partial).into();
        let number = self.blocks.start.saturating_add(progress.ready.len() as u64);
        progress.ready.push(block.clone());
        complete(number, block);
        self.arrived.notify_all();
    }

    /// Ends the transfer with an error, unless it has ended.
    fn abandon(&self) {
        let mut progress = self.progress.lock();
        if progress.outcome.is_none() {
            progress.partial = Vec::new();
            progress.outcome = Some(Err(Failure::permanent(libc::EIO, "the transfer was abandoned")));
            self.has_failed.store(true, Ordering::Relaxed);
            self.arrived.notify_all();
        }
    }

    /// True if it ended with an error.
    fn has_failed(&self) -> bool {
        self.has_failed.load(Ordering::Relaxed)
    }

    /// Ends the transfer. After a success, bytes of an incomplete block are the object's last one.
    pub(super) fn finish(&self, outcome: Result<(), Failure>, complete: &mut dyn FnMut(u64, Block)) {
        let mut progress = self.progress.lock();
        if outcome.is_ok() && !progress.partial.is_empty() {
            self.take_partial(&mut progress, complete);
        }
        progress.partial = Vec::new();
        self.has_failed.store(outcome.is_err(), Ordering::Relaxed);
        progress.outcome = Some(outcome);
        self.arrived.notify_all();
    }

    /// Waits for block `number`.
    pub(super) fn wait(&self, number: u64) -> Result<Block, Failure> {
        let index = usize::try_from(number.saturating_sub(self.blocks.start)).unwrap_or(usize::MAX);
        let mut progress = self.progress.lock();
        loop {
            if let Some(block) = progress.ready.get(index) {
                return Ok(block.clone());
            }
            match &progress.outcome {
                Some(Err(failure)) => return Err(failure.clone()),
                Some(Ok(())) => return Err(Failure::permanent(libc::EIO, "the answer was too short")),
                None => self.arrived.wait(&mut progress),
            }
        }
    }

    /// The blocks of a transfer that has ended, in order.
    pub(super) fn ready(&self) -> Vec<Block> {
        self.progress.lock().ready.clone()
    }
}

/// A transfer that must be performed: its readers wait. Dropped before it has ended, also by a
/// panic or the end of the threads, it ends with an error.
pub(super) struct Due(Arc<Transfer>);

impl std::ops::Deref for Due {
    type Target = Arc<Transfer>;

    fn deref(&self) -> &Arc<Transfer> {
        &self.0
    }
}

impl Drop for Due {
    fn drop(&mut self) {
        self.0.abandon();
    }
}

/// Where a block is.
#[derive(Clone)]
pub(super) enum BlockPlace {
    /// In memory.
    Ready(Block),
    /// In a transfer under way.
    Arriving(Arc<Transfer>),
    /// Neither.
    Missing,
}

/// Blocks in memory and transfers under way.
pub(super) struct BlockCache {
    state: Mutex<CachedBlocks>,
    budget: Budget,
    piece: u64,
}

/// Least blocks that each of several objects may have in memory.
const SHARE_MIN_BLOCKS: u64 = 4;

/// Memory for the blocks of one object, or of several that have equal shares.
#[derive(Clone)]
pub(super) struct Budget {
    /// Blocks of all objects together.
    total: Arc<AtomicU64>,
    /// Objects that share them.
    objects: Arc<AtomicU64>,
}

impl Budget {
    /// `blocks` for the objects that [`Budget::joined`] adds.
    pub(super) fn new(blocks: u64) -> Budget {
        Budget { total: Arc::new(AtomicU64::new(blocks)), objects: Arc::new(AtomicU64::new(0)) }
    }

    /// The same memory, with one more object in it, until that is dropped.
    fn joined(&self) -> Budget {
        self.objects.fetch_add(1, Ordering::Relaxed);
        self.clone()
    }

    /// Sets the blocks of all objects together.
    pub(super) fn set(&self, blocks: u64) {
        self.total.store(blocks, Ordering::Relaxed);
    }

    /// Blocks of one object now.
    pub(super) fn share(&self) -> u64 {
        (self.total.load(Ordering::Relaxed) / self.objects.load(Ordering::Relaxed).max(1)).max(SHARE_MIN_BLOCKS)
    }
}

struct CachedBlocks {
    metadata: LruCache<u64, Block>,
    data: LruCache<u64, Block>,
    arriving: HashMap<u64, Arc<Transfer>>,
}

impl CachedBlocks {
    fn find(&mut self, number: u64) -> BlockPlace {
        if let Some(block) = self.metadata.get(&number).or_else(|| self.data.get(&number)) {
            return BlockPlace::Ready(block.clone());
        }
        self.arriving.get(&number).map_or(BlockPlace::Missing, |transfer| BlockPlace::Arriving(transfer.clone()))
    }

    /// True if a transfer that has not failed brings the block. One that was abandoned stays in the
    /// table until the block is claimed again.
    fn is_arriving(&self, number: u64) -> bool {
        self.arriving.get(&number).is_some_and(|transfer| !transfer.has_failed())
    }

    fn is_ready(&self, number: u64) -> bool {
        self.metadata.contains(&number) || self.data.contains(&number)
    }

    /// Runs of missing blocks in `range`, over few ready ones between them, of at most `piece`
    /// blocks each.
    fn missing_runs(&self, range: Range<u64>, piece: u64) -> Vec<Range<u64>> {
        let mut runs: Vec<Range<u64>> = Vec::new();
        let mut bridge = 0;
        for number in range {
            if self.is_arriving(number) {
                bridge = BRIDGED_BLOCKS_MAX.saturating_add(1);
            } else if self.is_ready(number) {
                bridge = bridge.saturating_add(1);
            } else {
                match runs.last_mut() {
                    Some(run) if bridge <= BRIDGED_BLOCKS_MAX && number.saturating_sub(run.start) < piece => {
                        run.end = number.saturating_add(1)
                    }
                    _ => runs.push(number..number.saturating_add(1)),
                }
                bridge = 0;
            }
        }
        runs
    }
}

impl BlockCache {
    /// A cache with a share of `budget`; a transfer has at most `piece` blocks.
    pub(super) fn new(budget: &Budget, piece: u64) -> BlockCache {
        let state = CachedBlocks { metadata: LruCache::unbounded(), data: LruCache::unbounded(), arriving: HashMap::new() };
        BlockCache { state: Mutex::new(state), budget: budget.joined(), piece: piece.max(1) }
    }

    /// Most blocks in memory.
    pub(super) fn budget(&self) -> u64 {
        self.budget.share()
    }

    /// Drops blocks until no more than the share are left, which other objects make smaller.
    pub(super) fn trim(&self) {
        trim(&mut self.state.lock(), self.budget());
    }

    /// Places of `blocks`.
    pub(super) fn find(&self, blocks: Range<u64>) -> Vec<BlockPlace> {
        let mut state = self.state.lock();
        let is_failed = |place: &BlockPlace| matches!(place, BlockPlace::Arriving(transfer) if transfer.has_failed());
        let find = |number| Some(state.find(number)).filter(|place| !is_failed(place)).unwrap_or(BlockPlace::Missing);
        blocks.map(find).collect()
    }

    /// Places of `blocks`, none of which is missing afterwards, and the transfers to start for that
    /// and for `extra`.
    pub(super) fn claim(&self, blocks: Range<u64>, extra: &[(Range<u64>, Use)], used: Use) -> (Vec<BlockPlace>, Vec<Due>) {
        let mut state = self.state.lock();
        let mut started = Vec::new();
        // Extra ranges come first: one GET may bring both.
        for (range, used) in extra.iter().cloned().chain([(blocks.clone(), used)]) {
            for run in state.missing_runs(range, self.piece) {
                let transfer = Arc::new(Transfer::new(run.clone(), used));
                for number in run.filter(|number| !state.is_ready(*number)).collect::<Vec<_>>() {
                    if !state.is_arriving(number) {
                        state.arriving.insert(number, transfer.clone());
                    }
                }
                started.push(Due(transfer));
            }
        }
        (blocks.map(|number| state.find(number)).collect(), started)
    }

    /// Adds a block.
    pub(super) fn insert(&self, number: u64, block: Block, used: Use) {
        let mut state = self.state.lock();
        let known = if used == Use::Metadata { state.data.pop(&number) } else { None };
        drop(known);
        match used {
            Use::Data if state.metadata.contains(&number) => {}
            Use::Data => drop(state.data.push(number, block)),
            Use::Metadata => drop(state.metadata.push(number, block)),
        }
        trim(&mut state, self.budget());
    }

    /// Removes a transfer that has ended.
    pub(super) fn land(&self, transfer: &Arc<Transfer>) {
        let mut state = self.state.lock();
        for number in transfer.blocks.clone() {
            if state.arriving.get(&number).is_some_and(|other| Arc::ptr_eq(other, transfer)) {
                state.arriving.remove(&number);
            }
        }
    }

    /// Bytes in memory, at most.
    pub(super) fn bytes(&self) -> u64 {
        let state = self.state.lock();
        (state.metadata.len() as u64).saturating_add(state.data.len() as u64).saturating_mul(BLOCK_BYTES)
    }
}

impl Drop for BlockCache {
    fn drop(&mut self) {
        self.budget.objects.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Evicts blocks above `budget`; each use keeps half of it, if both need it.
fn trim(state: &mut CachedBlocks, budget: u64) {
    while (state.metadata.len() as u64).saturating_add(state.data.len() as u64) > budget {
        let from_data = state.data.len() as u64 > budget / 2 || state.metadata.len() as u64 <= budget / 2;
        let lru = if from_data { &mut state.data } else { &mut state.metadata };
        if lru.pop_lru().is_none() {
            break;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(byte: u8) -> Block {
        vec![byte; BLOCK_BYTES as usize].into()
    }

    #[test]
    fn neighbouring_misses_are_one_transfer() {
        let cache = BlockCache::new(&Budget::new(100), 16);
        cache.insert(3, block(3), Use::Metadata);
        let (places, started) = cache.claim(0..6, &[], Use::Metadata);
        assert_eq!((started.len(), started[0].blocks.clone()), (1, 0..6));
        assert!(matches!(places[3], BlockPlace::Ready(_)) && matches!(places[5], BlockPlace::Arriving(_)));
        // What is under way is not started again.
        let (_, again) = cache.claim(4..8, &[], Use::Metadata);
        assert_eq!((again.len(), again[0].blocks.clone()), (1, 6..8));
        let (_, long) = cache.claim(20..60, &[], Use::Data);
        assert_eq!(long.iter().map(|t| t.blocks.clone()).collect::<Vec<_>>(), [20..36, 36..52, 52..60]);
        cache.land(&started[0]);
        assert!(matches!(cache.find(0..1)[0], BlockPlace::Missing));
    }

    #[test]
    fn an_extra_range_brings_the_wanted_blocks() {
        let cache = BlockCache::new(&Budget::new(100), 16);
        let (places, started) = cache.claim(5..6, &[(0..16, Use::Metadata)], Use::Metadata);
        assert_eq!((places.len(), started.len(), started[0].blocks.clone()), (1, 1, 0..16));
        assert!(matches!(places[0], BlockPlace::Arriving(_)));
    }

    #[test]
    fn blocks_are_ready_before_their_transfer_ends() {
        let transfer = Transfer::new(7..9, Use::Data);
        let mut seen = Vec::new();
        transfer.push(&vec![1; BLOCK_BYTES as usize + 5], &mut |number, _| seen.push(number));
        assert_eq!(transfer.wait(7).unwrap().len() as u64, BLOCK_BYTES);
        transfer.push(&[2; 5], &mut |number, _| seen.push(number));
        transfer.finish(Ok(()), &mut |number, _| seen.push(number));
        assert_eq!((seen, transfer.wait(8).unwrap().len()), (vec![7, 8], 10));
        let failed = Transfer::new(0..1, Use::Data);
        failed.finish(Err(Failure::permanent(libc::EACCES, "denied")), &mut |_, _| ());
        assert_eq!(failed.wait(0).unwrap_err().errno, libc::EACCES);
    }

    #[test]
    fn a_transfer_that_is_dropped_ends_with_an_error() {
        let cache = BlockCache::new(&Budget::new(100), 16);
        let (places, started) = cache.claim(0..2, &[], Use::Data);
        let BlockPlace::Arriving(transfer) = places[1].clone() else { panic!("not arriving") };
        let reader = std::thread::spawn(move || transfer.wait(1).unwrap_err().errno);
        let task = std::thread::spawn(move || {
            let due = started;
            due[0].push(&[1; 7], &mut |_, _| ());
            panic!("as the test wants");
        });
        assert!(task.join().is_err());
        assert_eq!(reader.join().unwrap(), libc::EIO);
        assert!(matches!(cache.find(1..2)[0], BlockPlace::Missing), "it is fetched again");
        let (again, started) = cache.claim(0..2, &[], Use::Data);
        started[0].push(&vec![1; 2 * BLOCK_BYTES as usize], &mut |_, _| ());
        started[0].finish(Ok(()), &mut |_, _| ());
        assert!(matches!(&again[1], BlockPlace::Arriving(transfer) if transfer.wait(1).is_ok()));
        drop(started);
        assert!(matches!(&again[0], BlockPlace::Arriving(transfer) if transfer.wait(0).is_ok()), "a success stays one");
    }

    #[test]
    fn data_does_not_displace_metadata() {
        let cache = BlockCache::new(&Budget::new(10), 4);
        (0..4).for_each(|n| cache.insert(n, block(0), Use::Metadata));
        (10..40).for_each(|n| cache.insert(n, block(1), Use::Data));
        assert!(cache.find(0..4).iter().all(|place| matches!(place, BlockPlace::Ready(_))));
        assert_eq!(cache.bytes(), 10 * BLOCK_BYTES);
        (50..80).for_each(|n| cache.insert(n, block(0), Use::Metadata));
        assert_eq!(cache.bytes(), 10 * BLOCK_BYTES);
        assert!(matches!(cache.find(39..40)[0], BlockPlace::Ready(_)));
    }

    #[test]
    fn objects_have_equal_shares_of_one_budget() {
        let budget = Budget::new(40);
        let first = BlockCache::new(&budget, 4);
        (0..60).for_each(|n| first.insert(n, block(0), Use::Data));
        assert_eq!(first.bytes(), 40 * BLOCK_BYTES);
        let second = BlockCache::new(&budget, 4);
        first.trim();
        (0..60).for_each(|n| second.insert(n, block(0), Use::Data));
        assert_eq!((first.bytes(), second.bytes()), (20 * BLOCK_BYTES, 20 * BLOCK_BYTES));
        drop(first);
        assert_eq!(second.budget(), 40);
        budget.set(0);
        second.trim();
        assert_eq!(second.bytes(), SHARE_MIN_BLOCKS * BLOCK_BYTES);
    }
}
