//! Header of a local heap.

use crate::base::{Address, Result};
use crate::format::local_heap::{Header, NAME};
use crate::meta::Store;

/// Reads the header at `heap`, past the cache.
pub(super) fn load_header(store: &Store, heap: Address) -> Result<Header> {
    let ctx = store.ctx();
    Header::decode(&store.read(heap, Header::size(ctx) as u64, NAME)?, heap, ctx)
}
