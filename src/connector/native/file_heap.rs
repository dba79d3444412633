//! Global heap of one file, for parts of elements whose paths are not needed.

use crate::base::parts::Budget;
use crate::base::{Address, Result};
use crate::dataset::heap::Heap;
use crate::format::Context;
use crate::meta::Store;
use crate::structures::global_heap;

/// Longest payload of one element with sequences in sequences, bytes.
pub(super) const ELEMENT_BYTES_MAX: u64 = 64 << 20;

/// Global heap of a file.
pub(super) struct FileHeap<'a>(pub &'a Store);

impl Heap for FileHeap<'_> {
    fn ctx(&self) -> &Context {
        self.0.ctx()
    }

    fn object(&self, collection: Address, index: u32, budget: &mut Budget) -> Result<Vec<u8>> {
        let object = global_heap::object(self.0, collection, index)?;
        budget.read(object.len() as u64)?;
        Ok(object.to_vec())
    }
}
