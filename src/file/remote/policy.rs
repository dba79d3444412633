//! What is fetched beyond the bytes of a read: read-ahead, neighbourhoods, expected structures.

use super::blocks::{BLOCK_BYTES, Use};
use crate::base::locks::Mutex;
use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

/// Reads up to this length are small: they are of structures, and go to no stream, bytes.
const SMALL_READ_MAX_BYTES: u64 = 16 << 10;
/// Blocks of a region, in which misses are counted.
const REGION_BLOCKS: u64 = 128;
/// Blocks fetched at the first and second miss of small reads in a region; then all of it.
const MISS_BLOCKS: [u64; 2] = [4, 32];
/// Regions with misses before their density is known.
const REGIONS_SAMPLED: u64 = 4;
/// Most regions remembered.
const REGIONS_MAX: usize = 1 << 20;
/// Readers of streams remembered.
const STREAMS: usize = 16;
/// Distance between two reads of one stream, bytes: requests of the kernel come out of order.
const STREAM_SLACK_BYTES: u64 = 2 << 20;
/// First window of a stream, bytes.
const WINDOW_MIN_BYTES: u64 = 4 << 20;
/// Largest window in multiples of what the stream has read.
const WINDOW_FACTOR: u64 = 4;
/// Largest window of a stream, in pieces.
const WINDOW_PIECES_MAX: u64 = 16;
/// Expected blocks at most this far apart are fetched by one GET.
const EXPECTED_GAP_BLOCKS: u64 = 8;
/// Largest gap between expected blocks that one GET may fetch, too, to save a GET.
const WASTED_GAP_BLOCKS: u64 = 128;
/// Expected runs fetched at once.
const EXPECTED_RUNS_MAX: usize = 16;
/// Most expected runs remembered.
const PLAN_RUNS_MAX: usize = 1 << 16;

/// A sequential reader.
#[derive(Debug, Clone, Copy)]
struct Stream {
    /// End of what was read.
    next: u64,
    /// End of what was asked for ahead.
    ahead: u64,
    /// Bytes read ahead.
    window: u64,
    /// Bytes read.
    read: u64,
}

#[derive(Default)]
struct ReadHistory {
    /// The stream read last is the last one.
    streams: Vec<Stream>,
    /// Misses of small reads by region.
    regions: HashMap<u64, u8>,
    /// Regions with several misses.
    dense: u64,
    /// Runs of blocks that will be read, by their first block.
    plan: BTreeMap<u64, u64>,
    /// Blocks of larger gaps that were planned to be fetched.
    wasted: u64,
}

/// Decides what is fetched.
pub(super) struct Policy {
    state: Mutex<ReadHistory>,
    /// Blocks of the object.
    total: u64,
    /// Blocks of a transfer.
    piece: u64,
    /// Most blocks read ahead.
    window_max: u64,
    /// Most blocks of larger gaps that are fetched.
    waste_max: u64,
}

/// The blocks that have the bytes `range`.
pub(super) fn blocks_of(range: &Range<u64>) -> Range<u64> {
    range.start / BLOCK_BYTES..range.end.div_ceil(BLOCK_BYTES)
}

impl Policy {
    /// For an object of `total` blocks, of which `budget` fit into memory; a transfer has `piece`.
    pub(super) fn new(total: u64, budget: u64, piece: u64) -> Policy {
        let window_max = (budget / 2).min(piece.saturating_mul(WINDOW_PIECES_MAX)).max(1);
        Policy { state: Mutex::default(), total, piece, window_max, waste_max: budget }
    }

    /// What a read of `len` bytes is for.
    pub(super) fn used(len: u64) -> Use {
        if len > SMALL_READ_MAX_BYTES { Use::Data } else { Use::Metadata }
    }

    /// Blocks to fetch ahead of a reader that reads the bytes `read`; empty if there are none.
    pub(super) fn ahead(&self, read: &Range<u64>) -> Range<u64> {
        let len = read.end.saturating_sub(read.start);
        if Self::used(len) == Use::Metadata {
            return 0..0;
        }
        let mut state = self.state.lock();
        let is_near =
            |s: &Stream| read.start <= s.next.saturating_add(STREAM_SLACK_BYTES) && read.start.saturating_add(STREAM_SLACK_BYTES) >= s.next;
        let Some(at) = state.streams.iter().rposition(is_near) else {
            if state.streams.len() >= STREAMS {
                state.streams.remove(0);
            }
            state.streams.push(Stream { next: read.end, ahead: read.end, window: WINDOW_MIN_BYTES, read: len });
            return 0..0;
        };
        let mut s = state.streams.remove(at);
        s.next = s.next.max(read.end);
        s.read = s.read.saturating_add(len);
        s.ahead = s.ahead.max(s.next);
        let (window_max, piece) = (self.window_max.saturating_mul(BLOCK_BYTES), self.piece.saturating_mul(BLOCK_BYTES));
        // The window grows with what was read: a short stream wastes little.
        let window = s.window.min(window_max);
        let step = piece.min(window / 2).max(BLOCK_BYTES);
        let target = s.next.saturating_add(window);
        let start = s.ahead;
        if start.saturating_add(step) <= target {
            s.ahead = start.saturating_add(target.saturating_sub(start) / step * step);
            s.window = s.read.saturating_mul(WINDOW_FACTOR).max(WINDOW_MIN_BYTES).min(window_max);
        }
        let range = start / BLOCK_BYTES..(s.ahead / BLOCK_BYTES).min(self.total);
        state.streams.push(s);
        if start == s.ahead { 0..0 } else { range }
    }

    /// Ranges to fetch for a read of `len` bytes that misses the blocks `missing`.
    pub(super) fn on_miss(&self, missing: &Range<u64>, len: u64) -> Vec<(Range<u64>, Use)> {
        if Self::used(len) == Use::Data {
            return Vec::new();
        }
        let mut state = self.state.lock();
        let planned = self.planned(&mut state, missing.start);
        if !planned.is_empty() {
            return planned.into_iter().map(|run| (run, Use::Metadata)).collect();
        }
        let region = missing.start / REGION_BLOCKS;
        if state.regions.len() >= REGIONS_MAX {
            state.regions.clear();
            state.dense = 0;
        }
        let is_dense = state.regions.len() as u64 >= REGIONS_SAMPLED && state.dense.saturating_mul(2) >= state.regions.len() as u64;
        let misses = state.regions.entry(region).or_default();
        *misses = misses.saturating_add(1);
        let misses = usize::from(*misses);
        if misses == 2 {
            state.dense = state.dense.saturating_add(1);
        }
        let size = match MISS_BLOCKS.get(misses.saturating_sub(1)) {
            Some(size) if !is_dense => *size,
            _ => REGION_BLOCKS,
        };
        let start = missing.start / size * size;
        let end = start.saturating_add(size).max(missing.end).min(self.total);
        vec![(start..end, Use::Metadata)]
    }

    /// Takes from the plan the run with `block` and those after it that are fetched with it.
    fn planned(&self, state: &mut ReadHistory, block: u64) -> Vec<Range<u64>> {
        let found = state.plan.range(..=block).next_back().filter(|(_, end)| **end > block).map(|(start, _)| *start);
        let Some(first) = found else { return Vec::new() };
        let (mut runs, mut blocks) = (Vec::new(), 0u64);
        for (&start, &end) in state.plan.range(first..) {
            let size = end.saturating_sub(start);
            if !runs.is_empty() && (runs.len() >= EXPECTED_RUNS_MAX || blocks.saturating_add(size) > self.window_max) {
                break;
            }
            blocks = blocks.saturating_add(size);
            runs.push(start..end);
        }
        for run in &runs {
            state.plan.remove(&run.start);
        }
        runs
    }

    /// Records that the byte ranges `expected` will be read soon.
    pub(super) fn announce(&self, expected: &[Range<u64>]) {
        let mut wanted: Vec<Range<u64>> = expected.iter().map(blocks_of).filter(|blocks| blocks.start < self.total).collect();
        wanted.sort_unstable_by_key(|blocks| blocks.start);
        let mut state = self.state.lock();
        let left = self.waste_max.saturating_sub(state.wasted);
        let (gap_max, wasted) = bridged(&wanted, left);
        state.wasted = state.wasted.saturating_add(wasted);
        let mut run: Option<Range<u64>> = None;
        for blocks in wanted {
            let blocks = blocks.start..blocks.end.min(self.total);
            match &mut run {
                Some(run) if blocks.start <= run.end.saturating_add(gap_max) => run.end = run.end.max(blocks.end),
                _ => self.insert(&mut state.plan, run.replace(blocks)),
            }
        }
        self.insert(&mut state.plan, run);
    }

    /// Adds a run to the plan, cut into pieces.
    fn insert(&self, plan: &mut BTreeMap<u64, u64>, run: Option<Range<u64>>) {
        let mut run = run.unwrap_or_default();
        while !run.is_empty() && plan.len() < PLAN_RUNS_MAX {
            let cut = run.end.min(run.start.saturating_add(self.piece));
            let end = plan.entry(run.start).or_default();
            *end = cut.max(*end);
            run.start = cut;
        }
    }
}

/// The largest gap between the sorted runs `wanted` over which one GET goes, and the blocks of such
/// gaps, of which at most `left` may be fetched: the smallest gaps come first.
fn bridged(wanted: &[Range<u64>], left: u64) -> (u64, u64) {
    let pairs = wanted.iter().zip(wanted.iter().skip(1));
    let gaps = pairs.map(|(run, next)| next.start.saturating_sub(run.end));
    let mut gaps: Vec<u64> = gaps.filter(|gap| (EXPECTED_GAP_BLOCKS..=WASTED_GAP_BLOCKS).contains(gap)).collect();
    gaps.sort_unstable();
    let (mut gap_max, mut wasted) = (EXPECTED_GAP_BLOCKS, 0u64);
    // Gaps of one length are fetched all or not at all.
    for same in gaps.chunk_by(|a, b| a == b) {
        let gap = same.first().copied().unwrap_or(0);
        let sum = wasted.saturating_add(gap.saturating_mul(same.len() as u64));
        if sum > left {
            break;
        }
        (gap_max, wasted) = (gap, sum);
    }
    (gap_max, wasted)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn windows_of_sequential_readers_grow_to_whole_pieces() {
        let policy = Policy::new(1 << 20, 4096, 128);
        let mut asked = Vec::new();
        for i in 0..200 {
            let ahead = policy.ahead(&(i * MIB..(i + 1) * MIB));
            if !ahead.is_empty() {
                asked.push(ahead);
            }
        }
        assert!(asked.windows(2).all(|pair| pair[0].end == pair[1].start), "each block once: {asked:?}");
        assert!(asked[0].end <= 128, "begins small: {asked:?}");
        assert!(asked.iter().rev().take(4).all(|r| r.end - r.start == 128), "whole pieces: {asked:?}");
        let last = asked.last().unwrap().end * BLOCK_BYTES;
        assert!((312 * MIB..=328 * MIB).contains(&last), "{last}");
    }

    #[test]
    fn random_readers_are_not_read_ahead_of() {
        let policy = Policy::new(1 << 20, 4096, 128);
        for i in [9u64, 3, 77, 20, 55, 40] {
            assert!(policy.ahead(&(i * 10 * MIB..i * 10 * MIB + MIB)).is_empty());
        }
        assert!(policy.ahead(&(90 * MIB..90 * MIB + 100)).is_empty());
    }

    #[test]
    fn misses_in_a_region_fetch_more_each_time() {
        let policy = Policy::new(1 << 20, 4096, 128);
        let sizes = [200, 220, 130, 255].map(|block| policy.on_miss(&(block..block + 1), 512)[0].0.clone());
        assert_eq!(sizes, [200..204, 192..224, 128..256, 128..256]);
        assert!(policy.on_miss(&(0..1), MIB).is_empty(), "large reads fetch what they read");
        // Dense regions make the next region one of them.
        for region in 10..14 {
            (0..2).for_each(|n| drop(policy.on_miss(&(region * 128 + n..region * 128 + n + 1), 512)));
        }
        assert_eq!(policy.on_miss(&(128 * 50..128 * 50 + 1), 512)[0].0, 128 * 50..128 * 51);
    }

    #[test]
    fn expected_structures_are_fetched_together() {
        let policy = Policy::new(1 << 20, 4096, 128);
        let expected: Vec<Range<u64>> = (0..100u64).map(|i| i * 3 * BLOCK_BYTES..i * 3 * BLOCK_BYTES + 512).collect();
        policy.announce(&expected);
        policy.announce(std::slice::from_ref(&((1 << 30)..(1 << 30) + 10)));
        let runs: Vec<Range<u64>> = policy.on_miss(&(30..31), 512).into_iter().map(|(run, _)| run).collect();
        assert_eq!(runs, [0..128, 128..256, 256..298, (1 << 14)..(1 << 14) + 1]);
        assert_eq!(policy.on_miss(&(30..31), 512).len(), 1, "a plan is used once");
    }

    #[test]
    fn the_smallest_gaps_are_fetched_first() {
        let runs = |starts: &[u64]| starts.iter().map(|start| *start..start + 1).collect::<Vec<_>>();
        assert_eq!(bridged(&runs(&[0, 5, 21, 81, 400]), 1000), (59, 74));
        assert_eq!(bridged(&runs(&[0, 5, 21, 81, 400]), 73), (15, 15));
        assert_eq!(bridged(&runs(&[0, 101, 202]), 150), (EXPECTED_GAP_BLOCKS, 0));
    }
}
