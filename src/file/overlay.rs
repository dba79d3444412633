//! Changes that are not in the file yet, as blocks of 4,096 bytes with their changed sectors.
//!
//! A sector waits for the commit if live bytes in it were changed. One that holds only fresh bytes, to which nothing
//! durable points, may be written at any time: it waits so that what is made of many small structures costs few writes,
//! and so that they are read from memory meanwhile.

use super::{FileDriver, read_all};
use foldhash::HashSet;
use std::collections::BTreeMap;
use std::io;
use std::ops::Range;

/// What a disk writes as a whole.
pub const SECTOR: u64 = 512;
const BLOCK: usize = 4096;
/// An operation that writes more than this keeps whole blocks, each once, to take it back; bytes.
const PIECES_MAX: usize = 256 << 10;
/// Longest run of sectors that is put together, bytes.
const RUN_MAX: usize = 1 << 20;
const PER_BLOCK: usize = BLOCK / SECTOR as usize;

/// What the bytes that are changed are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bytes {
    /// Something durable points to them.
    Live,
    /// Nothing durable does.
    Fresh,
}

/// All bytes are known, not only those of changed sectors.
struct Block {
    bytes: Box<[u8; BLOCK]>,
    /// Bit per sector: live bytes of it were changed.
    changed: u8,
    /// Bit per sector: fresh bytes of it were written.
    fresh: u8,
    /// Bit per sector: it is on its way to the file as it is here.
    flying: u8,
}

impl Block {
    /// Sectors that are not in the file as they are here.
    fn differing(&self) -> u8 {
        self.changed | self.fresh
    }

    /// Sectors that may be written at any time.
    fn only_fresh(&self) -> u8 {
        self.fresh & !self.changed
    }
}

/// See the module's description. Offsets are absolute.
#[derive(Default)]
pub struct Overlay {
    blocks: BTreeMap<u64, Block>,
    /// From here on the file holds zeros, if anything; `None`: that is not known.
    zeros: Option<u64>,
    /// While an operation is under way: what takes it back.
    undo: Option<Undo>,
}

/// What was written, and what was there before.
#[derive(Default)]
struct Undo {
    steps: Vec<Step>,
    /// The bytes of all steps, one after another.
    bytes: Vec<u8>,
    /// Blocks that were not there, or are kept whole: what follows in them needs no step.
    whole: HashSet<u64>,
}

struct Step {
    number: u64,
    /// `None`: the block was not there.
    before: Option<Before>,
}

struct Before {
    /// First byte within the block; the bytes that were there, in `Undo::bytes`.
    within: usize,
    bytes: Range<usize>,
    changed: u8,
    fresh: u8,
}

/// Parts of `offset..offset + len` by block: number, first byte within it, length.
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
    /// `n` bytes from `within` on of a block are about to be written.
    fn note(&mut self, number: u64, block: Option<&Block>, within: usize, n: usize) {
        if self.whole.contains(&number) {
            return;
        }
        let many = self.bytes.len() > PIECES_MAX;
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

    /// `piece` from `within` on of a block is not taken back: so it is in what was kept of the block as a whole.
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
    /// True when nothing is changed.
    pub fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    /// The file was written up to `end`, perhaps, and nowhere behind.
    pub fn written(&mut self, end: u64) {
        self.zeros = Some(self.zeros.map_or(end, |zeros| zeros.max(end)));
    }

    /// First byte at or behind `offset` of which something is known here.
    pub fn next(&self, offset: u64) -> Option<u64> {
        let (number, _) = self.blocks.range(offset / BLOCK as u64..).next()?;
        Some(number.saturating_mul(BLOCK as u64).max(offset))
    }

    /// Bytes of memory, about.
    pub fn bytes(&self) -> u64 {
        (self.blocks.len() as u64).saturating_mul(BLOCK as u64 + 64)
    }

    /// Changes bytes; what else lies in their blocks is read from `below`.
    pub fn write(&mut self, below: &dyn FileDriver, offset: u64, bytes: &[u8], what: Bytes) -> io::Result<()> {
        let mut rest = bytes;
        for (number, within, n) in parts(offset, bytes.len()) {
            let (piece, tail) = rest.split_at(n.min(rest.len()));
            rest = tail;
            if let Some(undo) = &mut self.undo {
                undo.note(number, self.blocks.get(&number), within, n);
            }
            let block = match self.blocks.entry(number) {
                std::collections::btree_map::Entry::Occupied(e) => e.into_mut(),
                std::collections::btree_map::Entry::Vacant(e) => {
                    let mut b = Box::new([0u8; BLOCK]);
                    // A hole would be read as pages of zeros, which the system then keeps.
                    if n < BLOCK && self.zeros.is_none_or(|zeros| number.saturating_mul(BLOCK as u64) < zeros) {
                        read_all(below, &mut b[..], number.saturating_mul(BLOCK as u64))?;
                    }
                    e.insert(Block { bytes: b, changed: 0, fresh: 0, flying: 0 })
                }
            };
            if what == Bytes::Live && self.zeros.is_some() {
                // The commit writes there.
                let end = number.saturating_add(1).saturating_mul(BLOCK as u64);
                self.zeros = self.zeros.max(Some(end));
            }
            if let Some(target) = block.bytes.get_mut(within..within.saturating_add(n)) {
                target.copy_from_slice(piece);
            }
            for sector in within / SECTOR as usize..=(within + n - 1) / SECTOR as usize {
                let bit = 1 << (sector % PER_BLOCK);
                block.flying &= !bit;
                match what {
                    Bytes::Live => block.changed |= bit,
                    Bytes::Fresh => block.fresh |= bit,
                }
            }
        }
        Ok(())
    }

    /// Follows a write that went to the file directly, and stays there when the operation is undone.
    pub fn follow(&mut self, offset: u64, bytes: &[u8]) {
        self.each_known(offset, bytes, |undo, number, _, within, piece| undo.keep(number, within, piece));
    }

    /// The same for one that is undone with the operation, by whoever made it.
    pub fn write_below(&mut self, offset: u64, bytes: &[u8]) {
        self.each_known(offset, bytes, |undo, number, block, within, piece| undo.note(number, Some(block), within, piece.len()));
    }

    /// Changes the blocks that are there; before, what takes the operation under way back is told: number, block, first byte within it, bytes.
    fn each_known(&mut self, offset: u64, bytes: &[u8], tell: impl Fn(&mut Undo, u64, &Block, usize, &[u8])) {
        if self.blocks.is_empty() {
            return;
        }
        let mut rest = bytes;
        for (number, within, n) in parts(offset, bytes.len()) {
            let (piece, tail) = rest.split_at(n.min(rest.len()));
            rest = tail;
            let Some(block) = self.blocks.get_mut(&number) else { continue };
            if let Some(undo) = &mut self.undo {
                tell(undo, number, block, within, piece);
            }
            if let Some(target) = block.bytes.get_mut(within..within.saturating_add(n)) {
                target.copy_from_slice(piece);
            }
        }
    }

    /// Fills `buf` from `offset` if all of it is known here.
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

    /// Puts the changed sectors over `buf`, which was read from `offset`; only `buf`'s length counts.
    /// Returns the end, within `buf`, of the last byte that is known here.
    pub fn patch(&self, offset: u64, buf: &mut [u8]) -> usize {
        if self.blocks.is_empty() || buf.is_empty() {
            return 0;
        }
        let end = offset.saturating_add(buf.len() as u64);
        let mut known = 0;
        for (&number, block) in self.blocks.range(offset / BLOCK as u64..=end.saturating_sub(1) / BLOCK as u64) {
            let base = number.saturating_mul(BLOCK as u64);
            for sector in (0..PER_BLOCK).filter(|s| block.differing() >> s & 1 == 1) {
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
                    Some((start, run)) if start.saturating_add(run.len() as u64) == at && run.len() < RUN_MAX => {
                        run.extend_from_slice(bytes)
                    }
                    _ => out.push((at, bytes.to_vec())),
                }
            }
        }
        out
    }

    /// Where the sectors with changed live bytes are, those of a block together.
    pub fn changed(&self) -> Vec<Range<u64>> {
        let of_block = |(number, block): (&u64, &Block)| {
            let at = |sector: u32| number.saturating_mul(BLOCK as u64).saturating_add(u64::from(sector) * SECTOR);
            at(block.changed.trailing_zeros())..at(u8::BITS - block.changed.leading_zeros())
        };
        self.blocks.iter().filter(|(_, block)| block.changed != 0).map(of_block).collect()
    }

    /// The sectors with changed live bytes, neighbours together: offset and bytes.
    pub fn sectors(&self) -> Vec<(u64, Vec<u8>)> {
        self.runs(|b| b.changed)
    }

    /// The sectors of which only fresh bytes were written, neighbours together: offset and bytes. They are on their way to the file.
    pub fn take_off(&mut self) -> Vec<(u64, Vec<u8>)> {
        self.blocks.values_mut().for_each(|b| b.flying = b.only_fresh());
        self.runs(Block::only_fresh)
    }

    /// What was on its way is in the file, if all went `well`. Only blocks that wait for the commit stay, and those that were changed meanwhile.
    pub fn landed(&mut self, well: bool) {
        self.blocks.retain(|_, b| {
            let there = std::mem::take(&mut b.flying);
            b.fresh &= if well { !there } else { u8::MAX };
            b.differing() != 0
        });
    }

    /// Begins an operation that can be undone.
    pub fn begin(&mut self) {
        self.undo = Some(Undo::default());
    }

    /// Ends the operation; `undo` takes back what it changed.
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
    }

    /// Bytes kept to take the operation under way back.
    #[cfg(test)]
    pub fn undo_bytes(&self) -> usize {
        self.undo.as_ref().map_or(0, |undo| undo.bytes.len())
    }

    /// Forgets all changes.
    pub fn clear(&mut self) {
        self.blocks.clear();
    }
}
