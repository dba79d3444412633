//! Buffered reads of small records at nearby offsets of one block.

use crate::base::{Address, Result};
use crate::meta::Store;

/// Bytes read at once.
const WINDOW_BYTES: u64 = 4096;

/// Part of a block in memory.
pub(in crate::structures) struct Window<'s> {
    store: &'s Store,
    /// First byte of the block.
    block: Address,
    structure: &'static str,
    bytes: Vec<u8>,
    /// Offset of `bytes` in the block.
    start: u64,
}

impl<'s> Window<'s> {
    /// A window over the block at `block`, named `structure` in errors; reads nothing yet.
    pub fn new(store: &'s Store, block: Address, structure: &'static str) -> Self {
        Window { store, block, structure, bytes: Vec::new(), start: 0 }
    }

    /// The `len` bytes at `offset` of the block; `None` past EOF.
    pub fn get(&mut self, offset: u64, len: usize) -> Result<Option<&[u8]>> {
        if self.present(offset, len).is_none() {
            let Some(at) = self.block.checked_add(offset) else { return Ok(None) };
            (self.bytes, self.start) = (self.store.read_upto(at, WINDOW_BYTES, self.structure)?, offset);
        }
        Ok(self.present(offset, len))
    }

    fn present(&self, offset: u64, len: usize) -> Option<&[u8]> {
        let from = usize::try_from(offset.checked_sub(self.start)?).ok()?;
        self.bytes.get(from..from.checked_add(len)?)
    }
}
