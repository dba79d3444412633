//! Header and extents of a local heap.

use crate::base::{Address, Error, Result};
use crate::format::Context;
use crate::format::local_heap::{Header, NAME, SEGMENT_NAME};
use crate::meta::Store;
use crate::meta::extent::{Extent, Visit};

/// Alignment of the header, of strings and of free blocks, bytes.
pub(super) const ALIGN_BYTES: u64 = 8;

/// Bytes that libhdf5 allocates for a header.
pub(super) fn header_size(ctx: &Context) -> u64 {
    (Header::size(ctx) as u64).next_multiple_of(ALIGN_BYTES)
}

/// Reads the header at `heap`, past the cache.
pub(super) fn load_header(store: &Store, heap: Address) -> Result<Header> {
    let ctx = store.ctx();
    Header::decode(&store.read(heap, Header::size(ctx) as u64, NAME)?, heap, ctx)
}

/// Reads the header at `heap`. Errors: damage; the data segment ends past EOF.
pub(super) fn load_checked(store: &Store, heap: Address) -> Result<Header> {
    let header = load_header(store, heap)?;
    let end = header.segment.checked_add(header.segment_size).map(|a| a.0);
    if header.segment_size > 0 && end.is_none_or(|e| e > store.file_len().unwrap_or(0)) {
        return Err(Error::corrupt(NAME, heap, "the data segment ends past EOF"));
    }
    Ok(header)
}

/// Visits the header and the data segment of the heap at `heap`.
pub(crate) fn extents(store: &Store, heap: Address, visit: &mut Visit<'_>) -> Result<()> {
    let header = load_checked(store, heap)?;
    visit(Extent::metadata(heap, header_size(store.ctx()), NAME))?;
    if header.segment_size > 0 { visit(Extent::metadata(header.segment, header.segment_size, SEGMENT_NAME)) } else { Ok(()) }
}
