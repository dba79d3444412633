//! Dirty blocks of 4,096 bytes: changes that are not in the file yet, with a bit per changed
//! sector.
//!
//! A sector with changed live bytes is written by the commit. A sector with only fresh bytes, to
//! which nothing durable points, may be written at any time; it stays in memory until several small
//! structures can be written together.

use super::{FileDriver, read_all};
use foldhash::HashSet;
use std::collections::BTreeMap;
use std::io;
use std::ops::Range;

/// Bytes that a disk writes atomically.
pub const SECTOR: u64 = 512;
/// Bytes of a block.
const BLOCK: usize = 4096;
/// Undo bytes of an operation above which its undo log keeps whole blocks, each once.
const UNDO_PIECES_MAX: usize = 256 << 10;
/// Longest run of sectors written at once, bytes.
const RUN_BYTES_MAX: usize = 1 << 20;
/// Sectors of a block.
const SECTORS_PER_BLOCK: usize = BLOCK / SECTOR as usize;

/// Kind of changed bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bytes {
    /// The durable state references them.
    Live,
    /// The durable state does not reference them.
    Fresh,
}

/// A block, with all its bytes.
struct Block {
    bytes: Box<[u8; BLOCK]>,
    /// Bit per sector: it has changed live bytes.
    changed: u8,
    /// Bit per sector: it has unwritten fresh bytes.
    fresh: u8,
    /// Bit per sector: a background write of its present bytes is in flight.
    in_flight: u8,
}

impl Block {
    /// Dirty sectors.
    fn differing(&self) -> u8 {
        self.changed | self.fresh
    }

    /// Dirty sectors that may be written at any time.
    fn only_fresh(&self) -> u8 {
        self.fresh & !self.changed
    }
}

/// Dirty blocks by number. Offsets are absolute.
#[derive(Default)]
pub struct Overlay {
    blocks: BTreeMap<u64, Block>,
    /// Sectors with changed live bytes.
    changed_sectors: u64,
    /// Offset from which on the file has no bytes but zeros; `None` if unknown.
    zeros: Option<u64>,
    /// Undo log of the operation under way.
    undo: Option<Undo>,
    /// How often dirty blocks were dropped because the file has their bytes.
    writes_below: u64,
}

/// Undo log: the blocks before each write.
#[derive(Default)]
struct Undo {
    steps: Vec<Step>,
    /// Old bytes of all steps, concatenated.
    bytes: Vec<u8>,
    /// Blocks that were absent, or are logged as a whole: later writes to them need no step.
    whole: HashSet<u64>,
}

struct Step {
    number: u64,
    /// `None` if the block was absent.
    before: Option<Before>,
}

struct Before {
    /// First byte within the block; range of the old bytes in `Undo::bytes`.
    within: usize,
    bytes: Range<usize>,
    changed: u8,
    fresh: u8,
}

/// Splits `offset..offset + len` by block: number, first byte within the block, length.
fn parts(offset: u64, len: usize) -> impl Iterator<Item = (u64, usize, usize)> {
    let end = offset.saturating_add(len as u64);
    let mut at = offset;
    std::iter::from_fn(move || {
        let within = usize::try_from(at % BLOCK as u64).ok()?;
        let n = usize::try_from(end.saturating_sub(at)).unwrap_or(BLOCK).min(BLOCK - within);
        let number = at / BLOCK as u64;
        at = at.saturating_add(n as u64);
        (n > 0).then_some((number, within, n))
    })
}

impl Undo {
    /// Logs the bytes of a block before a write of `n` bytes from `within`.
    fn log(&mut self, number: u64, block: Option<&Block>, within: usize, n: usize) {
        if self.whole.contains(&number) {
            return;
        }
        let many = self.bytes.len() > UNDO_PIECES_MAX;
        let (within, n) = if many { (0, BLOCK) } else { (within, n) };
        if many || block.is_none() {
            self.whole.insert(number);
        }
        let before = block.map(|block| {
            let start = self.bytes.len();
            self.bytes.extend_from_slice(block.bytes.get(within..within.saturating_add(n)).unwrap_or_default());
            Before { within, bytes: start..self.bytes.len(), changed: block.changed, fresh: block.fresh }
        });
        self.steps.push(Step { number, before });
    }

    /// Adds `piece`, written from `within` of a block, to the block if it is logged as a whole: a
    /// rollback keeps this write.
    fn keep(&mut self, number: u64, within: usize, piece: &[u8]) {
        if !self.whole.contains(&number) {
            return;
        }
        let of_block = self.steps.iter().filter(|step| step.number == number).filter_map(|step| step.before.as_ref());
        for kept in of_block.filter(|before| before.bytes.len() == BLOCK) {
            let target = self.bytes.get_mut(kept.bytes.clone()).and_then(|b| b.get_mut(within..within.saturating_add(piece.len())));
            if let Some(target) = target {
                target.copy_from_slice(piece);
            }
        }
    }
}

impl Overlay {
    /// True if no block is dirty.
    pub fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    /// Records that the file may have been written up to `end`, and nowhere after it.
    pub fn written(&mut self, end: u64) {
        self.zeros = Some(self.zeros.map_or(end, |zeros| zeros.max(end)));
    }

    /// First byte of a dirty block at or after `offset`.
    pub fn next(&self, offset: u64) -> Option<u64> {
        let (number, _) = self.blocks.range(offset / BLOCK as u64..).next()?;
        Some(number.saturating_mul(BLOCK as u64).max(offset))
    }

    /// Bytes of sectors with changed live bytes, which a commit writes.
    pub fn changed_bytes(&self) -> u64 {
        self.changed_sectors.saturating_mul(SECTOR)
    }

    /// Approximate bytes of memory.
    pub fn bytes(&self) -> u64 {
        (self.blocks.len() as u64).saturating_mul(BLOCK as u64 + 64)
    }

    /// Writes bytes; reads the rest of their blocks from the driver `below`.
    pub fn write(&mut self, below: &dyn FileDriver, offset: u64, bytes: &[u8], what: Bytes) -> io::Result<()> {
        let mut rest = bytes;
        for (number, within, n) in parts(offset, bytes.len()) {
            let (piece, tail) = rest.split_at(n.min(rest.len()));
            rest = tail;
            if let Some(undo) = &mut self.undo {
                undo.log(number, self.blocks.get(&number), within, n);
            }
            let block = match self.blocks.entry(number) {
                std::collections::btree_map::Entry::Occupied(e) => e.into_mut(),
                std::collections::btree_map::Entry::Vacant(e) => {
                    let mut b = Box::new([0u8; BLOCK]);
                    // Reading a hole would fill the page cache with zeros.
                    if n < BLOCK && self.zeros.is_none_or(|zeros| number.saturating_mul(BLOCK as u64) < zeros) {
                        read_all(below, &mut b[..], number.saturating_mul(BLOCK as u64))?;
                    }
                    e.insert(Block { bytes: b, changed: 0, fresh: 0, in_flight: 0 })
                }
            };
            if what == Bytes::Live && self.zeros.is_some() {
                // The commit writes these bytes.
                let end = number.saturating_add(1).saturating_mul(BLOCK as u64);
                self.zeros = self.zeros.max(Some(end));
            }
            if let Some(target) = block.bytes.get_mut(within..within.saturating_add(n)) {
                target.copy_from_slice(piece);
            }
            let changed_before = block.changed.count_ones();
            for sector in within / SECTOR as usize..=(within + n - 1) / SECTOR as usize {
                let bit = 1 << (sector % SECTORS_PER_BLOCK);
                block.in_flight &= !bit;
                match what {
                    Bytes::Live => block.changed |= bit,
                    Bytes::Fresh => block.fresh |= bit,
                }
            }
            let changed = block.changed.count_ones().saturating_sub(changed_before);
            self.changed_sectors = self.changed_sectors.saturating_add(changed.into());
        }
        Ok(())
    }

    /// Updates dirty blocks after a direct write to the file, which a rollback keeps.
    pub fn update_kept(&mut self, offset: u64, bytes: &[u8]) {
        self.update_existing(offset, bytes, |undo, number, _, within, piece| undo.keep(number, within, piece));
    }

    /// Updates dirty blocks after a direct write to the file, which the caller undoes in a
    /// rollback.
    pub fn update_undone(&mut self, offset: u64, bytes: &[u8]) {
        self.update_existing(offset, bytes, |undo, number, block, within, piece| undo.log(number, Some(block), within, piece.len()));
    }

    /// Updates existing blocks; before each, calls `log` with the undo log, the block's number, the
    /// block, the first byte within it and the new bytes.
    fn update_existing(&mut self, offset: u64, bytes: &[u8], log: impl Fn(&mut Undo, u64, &Block, usize, &[u8])) {
        if self.blocks.is_empty() {
            return;
        }
        let mut rest = bytes;
        for (number, within, n) in parts(offset, bytes.len()) {
            let (piece, tail) = rest.split_at(n.min(rest.len()));
            rest = tail;
            let Some(block) = self.blocks.get_mut(&number) else { continue };
            if let Some(undo) = &mut self.undo {
                log(undo, number, block, within, piece);
            }
            if let Some(target) = block.bytes.get_mut(within..within.saturating_add(n)) {
                target.copy_from_slice(piece);
            }
        }
    }

    /// Fills `buf` from `offset` if dirty blocks cover all of it.
    pub fn read(&self, offset: u64, buf: &mut [u8]) -> bool {
        if self.blocks.is_empty() {
            return false;
        }
        let mut done = 0usize;
        for (number, within, n) in parts(offset, buf.len()) {
            let known = self.blocks.get(&number).and_then(|b| b.bytes.get(within..within.saturating_add(n)));
            let (Some(source), Some(target)) = (known, buf.get_mut(done..done.saturating_add(n))) else { return false };
            target.copy_from_slice(source);
            done = done.saturating_add(n);
        }
        true
    }

    /// Overlays dirty sectors on `buf`, read from `offset` and perhaps past EOF. Returns the end,
    /// within `buf`, of the last overlaid byte.
    pub fn patch(&self, offset: u64, buf: &mut [u8]) -> usize {
        if self.blocks.is_empty() || buf.is_empty() {
            return 0;
        }
        let end = offset.saturating_add(buf.len() as u64);
        let mut known = 0;
        for (&number, block) in self.blocks.range(offset / BLOCK as u64..=end.saturating_sub(1) / BLOCK as u64) {
            let base = number.saturating_mul(BLOCK as u64);
            for sector in (0..SECTORS_PER_BLOCK).filter(|s| block.differing() >> s & 1 == 1) {
                let start = base.saturating_add(sector as u64 * SECTOR);
                let (from, to) = (start.max(offset), start.saturating_add(SECTOR).min(end));
                if from >= to {
                    continue;
                }
                let source = block.bytes.get((from - base) as usize..(to - base) as usize);
                let target = buf.get_mut((from - offset) as usize..(to - offset) as usize);
                if let (Some(source), Some(target)) = (source, target) {
                    target.copy_from_slice(source);
                    known = known.max((to - offset) as usize);
                }
            }
        }
        known
    }

    fn runs(&self, which: impl Fn(&Block) -> u8) -> Vec<(u64, Vec<u8>)> {
        let mut out: Vec<(u64, Vec<u8>)> = Vec::new();
        for (&number, block) in &self.blocks {
            let which = which(block);
            for (sector, bytes) in block.bytes.chunks(SECTOR as usize).enumerate() {
                if which >> sector & 1 == 0 {
                    continue;
                }
                let at = number.saturating_mul(BLOCK as u64).saturating_add(sector as u64 * SECTOR);
                match out.last_mut() {
                    Some((start, run)) if start.saturating_add(run.len() as u64) == at && run.len() < RUN_BYTES_MAX => {
                        run.extend_from_slice(bytes)
                    }
                    _ => out.push((at, bytes.to_vec())),
                }
            }
        }
        out
    }

    /// Ranges of sectors with changed live bytes, one range a block.
    pub fn changed(&self) -> Vec<Range<u64>> {
        let of_block = |(number, block): (&u64, &Block)| {
            let at = |sector: u32| number.saturating_mul(BLOCK as u64).saturating_add(u64::from(sector) * SECTOR);
            at(block.changed.trailing_zeros())..at(u8::BITS - block.changed.leading_zeros())
        };
        self.blocks.iter().filter(|(_, block)| block.changed != 0).map(of_block).collect()
    }

    /// Runs of sectors with changed live bytes: offset and bytes.
    pub fn sectors(&self) -> Vec<(u64, Vec<u8>)> {
        self.runs(|b| b.changed)
    }

    /// Starts a background write: marks sectors with only fresh bytes as in flight; returns their
    /// runs.
    pub fn begin_background_write(&mut self) -> Vec<(u64, Vec<u8>)> {
        self.blocks.values_mut().for_each(|b| b.in_flight = b.only_fresh());
        self.runs(Block::only_fresh)
    }

    /// Ends a background write. If it `succeeded`, drops its sectors unless they were changed
    /// meanwhile.
    pub fn end_background_write(&mut self, succeeded: bool) {
        self.writes_below = self.writes_below.wrapping_add(1);
        self.blocks.retain(|_, b| {
            let there = std::mem::take(&mut b.in_flight);
            b.fresh &= if succeeded { !there } else { u8::MAX };
            b.differing() != 0
        });
    }

    /// Starts the undo log of an operation.
    pub fn begin(&mut self) {
        self.undo = Some(Undo::default());
    }

    /// Ends the operation; rolls its changes back with `undo`.
    pub fn end(&mut self, undo: bool) {
        let Some(all) = self.undo.take().filter(|_| undo) else { return };
        for Step { number, before } in all.steps.into_iter().rev() {
            let Some(Before { within, bytes, changed, fresh }) = before else {
                self.blocks.remove(&number);
                continue;
            };
            let Some(block) = self.blocks.get_mut(&number) else { continue };
            let target = block.bytes.get_mut(within..within.saturating_add(bytes.len()));
            if let (Some(target), Some(source)) = (target, all.bytes.get(bytes)) {
                target.copy_from_slice(source);
            }
            (block.changed, block.fresh) = (changed, fresh);
        }
        self.changed_sectors = self.blocks.values().map(|block| u64::from(block.changed.count_ones())).sum();
    }

    /// Bytes of the undo log.
    #[cfg(test)]
    pub fn undo_bytes(&self) -> usize {
        self.undo.as_ref().map_or(0, |undo| undo.bytes.len())
    }

    /// How often dirty blocks were dropped because the file has their bytes: who read the file
    /// before that may have older ones.
    pub fn writes_below(&self) -> u64 {
        self.writes_below
    }

    /// Drops all changes.
    pub fn clear(&mut self) {
        self.writes_below = self.writes_below.wrapping_add(1);
        self.blocks.clear();
        self.changed_sectors = 0;
    }
}
