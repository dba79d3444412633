//! Names of a local heap whose data segment is read as a whole.

use super::load::load_header;
use crate::base::{Address, Error, Result};
use crate::format::local_heap::NAME;
use crate::meta::Store;
use std::mem::size_of;
use std::sync::Arc;

/// An open local heap with its data segment in memory.
#[derive(Debug)]
pub struct LocalHeap {
    address: Address,
    segment: Vec<u8>,
}

impl LocalHeap {
    /// Opens the heap whose header is at `address` and reads its data segment up to EOF. Errors:
    /// corrupt header, segment over `METADATA_BLOCK_MAX`.
    pub fn open(store: &Store, address: Address) -> Result<Arc<LocalHeap>> {
        store.cached(address, |store| {
            let header = load_header(store, address)?;
            let segment = if header.segment_size == 0 { Vec::new() } else { store.read_upto(header.segment, header.segment_size, NAME)? };
            let charge = segment.len().saturating_add(size_of::<LocalHeap>());
            Ok((LocalHeap { address, segment }, charge))
        })
    }

    /// The name at `offset` of the data segment, without its NUL. Errors: the offset is past the
    /// segment, or no NUL follows in it.
    pub fn name(&self, offset: u64) -> Result<&[u8]> {
        let rest = usize::try_from(offset).ok().and_then(|o| self.segment.get(o..)).filter(|r| !r.is_empty());
        let rest = rest.ok_or_else(|| Error::corrupt(NAME, self.address, format!("offset {offset} is past the data segment")))?;
        let end = rest.iter().position(|&b| b == 0);
        end.and_then(|n| rest.get(..n)).ok_or_else(|| Error::corrupt(NAME, self.address, format!("the name at {offset} has no end")))
    }
}
