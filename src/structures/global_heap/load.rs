//! Extent and directory of a global heap collection, from small reads of its headers.

use crate::base::{Address, Error, Result};
use crate::format::global_heap::{Directory, NAME, ObjectHeader, decode_header, header_size};
use crate::meta::Store;
use crate::meta::edit::SpaceKind;
use crate::meta::extent::Extent;
use crate::structures::window::Window;

/// Bytes and directory of the collection at `collection`. Errors: a damaged collection header;
/// damage after it is recorded in the directory.
pub(super) fn directory(store: &Store, collection: Address) -> Result<(u64, Directory)> {
    let ctx = store.ctx();
    let header = header_size(ctx);
    let mut window = Window::new(store, collection, NAME);
    let bytes = window.get(0, header)?.ok_or_else(|| Error::corrupt(NAME, collection, "its header is past EOF"))?;
    let size = decode_header(bytes, collection, ctx)?;
    let directory = Directory::walk(size, ctx, &mut |offset| {
        window.get(offset, header)?.map(|b| ObjectHeader::decode(b, collection, ctx)).transpose()
    })?;
    Ok((size, directory))
}

/// The extent of the collection at `collection`, from its header.
pub(crate) fn extent(store: &Store, collection: Address) -> Result<Extent> {
    let bytes = store.read(collection, header_size(store.ctx()) as u64, NAME)?;
    let len = decode_header(&bytes, collection, store.ctx())?;
    Ok(Extent { kind: SpaceKind::GlobalHeap, shared: true, ..Extent::metadata(collection, len, NAME) })
}
