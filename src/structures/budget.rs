//! Bound on the work of one walk over a tree of blocks.
//!
//! Blocks of a valid file do not overlap and a walk reaches each one once, so the bytes of all
//! blocks of a walk cannot exceed the file. A hostile file whose pointers form a cycle, or meet in
//! one block a million times, exhausts this budget after work in proportion to its length.

use crate::base::{Address, Error, Result};
use crate::meta::Store;

/// Bytes of metadata that a walk may still visit.
#[derive(Debug)]
pub(crate) struct Budget {
    left: u64,
    structure: &'static str,
    address: Address,
}

impl Budget {
    /// The bytes that the file can hold, for a walk over `structure` that starts at `address`.
    pub fn new(store: &Store, structure: &'static str, address: Address) -> Result<Self> {
        Ok(Budget { left: store.room()?, structure, address })
    }

    /// Subtracts a block of `bytes`. Errors: the walk visited more than the file can hold.
    pub fn spend(&mut self, bytes: u64) -> Result<()> {
        let left = self.left.checked_sub(bytes.max(1));
        self.left =
            left.ok_or_else(|| Error::corrupt(self.structure, self.address, "its blocks hold more bytes than the file: they overlap"))?;
        Ok(())
    }
}
