//! Changes of live bytes that are not in the file yet, as blocks of 4,096 bytes with their changed sectors.

use super::FileDriver;
use std::collections::BTreeMap;
use std::io;

/// What a disk writes as a whole.
pub const SECTOR: u64 = 512;
const BLOCK: usize = 4096;
const PER_BLOCK: usize = BLOCK / SECTOR as usize;

#[derive(Clone)]
struct Block {
    bytes: Box<[u8; BLOCK]>,
    /// Bit per sector.
    changed: u8,
}

/// See the module's description. Offsets are absolute.
#[derive(Default)]
pub struct Overlay {
    blocks: BTreeMap<u64, Block>,
    /// While an operation is under way: what its blocks were before it.
    before: Option<BTreeMap<u64, Option<Block>>>,
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

impl Overlay {
    /// True when nothing is changed.
    pub fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    /// Bytes of memory, about.
    pub fn bytes(&self) -> u64 {
        (self.blocks.len() as u64).saturating_mul(BLOCK as u64 + 64)
    }

    /// Changes bytes; what else lies in their blocks is read from `below`.
    pub fn write(&mut self, below: &dyn FileDriver, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let mut rest = bytes;
        for (number, within, n) in parts(offset, bytes.len()) {
            let (piece, tail) = rest.split_at(n.min(rest.len()));
            rest = tail;
            if let Some(before) = &mut self.before {
                before.entry(number).or_insert_with(|| self.blocks.get(&number).cloned());
            }
            let block = match self.blocks.entry(number) {
                std::collections::btree_map::Entry::Occupied(e) => e.into_mut(),
                std::collections::btree_map::Entry::Vacant(e) => {
                    let mut b = Box::new([0u8; BLOCK]);
                    if n < BLOCK {
                        below.read_at(&mut b[..], number.saturating_mul(BLOCK as u64))?;
                    }
                    e.insert(Block { bytes: b, changed: 0 })
                }
            };
            if let Some(target) = block.bytes.get_mut(within..within.saturating_add(n)) {
                target.copy_from_slice(piece);
            }
            for sector in within / SECTOR as usize..=(within + n - 1) / SECTOR as usize {
                block.changed |= 1 << (sector % PER_BLOCK);
            }
        }
        Ok(())
    }

    /// Follows a write that went to the file directly.
    pub fn follow(&mut self, offset: u64, bytes: &[u8]) {
        if self.blocks.is_empty() {
            return;
        }
        let mut rest = bytes;
        for (number, within, n) in parts(offset, bytes.len()) {
            let (piece, tail) = rest.split_at(n.min(rest.len()));
            rest = tail;
            if let Some(target) = self.blocks.get_mut(&number).and_then(|b| b.bytes.get_mut(within..within.saturating_add(n))) {
                target.copy_from_slice(piece);
            }
        }
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
            for sector in (0..PER_BLOCK).filter(|s| block.changed >> s & 1 == 1) {
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

    /// The changed sectors, neighbours together: offset and bytes.
    pub fn sectors(&self) -> Vec<(u64, Vec<u8>)> {
        let mut out: Vec<(u64, Vec<u8>)> = Vec::new();
        for (&number, block) in &self.blocks {
            for (sector, bytes) in block.bytes.chunks(SECTOR as usize).enumerate() {
                if block.changed >> sector & 1 == 0 {
                    continue;
                }
                let at = number.saturating_mul(BLOCK as u64).saturating_add(sector as u64 * SECTOR);
                match out.last_mut() {
                    Some((start, run)) if start.saturating_add(run.len() as u64) == at => run.extend_from_slice(bytes),
                    _ => out.push((at, bytes.to_vec())),
                }
            }
        }
        out
    }

    /// Begins an operation that can be undone.
    pub fn begin(&mut self) {
        self.before = Some(BTreeMap::new());
    }

    /// Ends the operation; `undo` takes back what it changed.
    pub fn end(&mut self, undo: bool) {
        for (number, block) in self.before.take().filter(|_| undo).into_iter().flatten() {
            match block {
                Some(block) => self.blocks.insert(number, block),
                None => self.blocks.remove(&number),
            };
        }
    }

    /// Forgets all changes.
    pub fn clear(&mut self) {
        self.blocks.clear();
    }
}
