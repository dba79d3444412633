//! Changing a fixed array: creating it, setting elements, giving its space back.
//!
//! The data block is allocated whole when the first element is set. Its pages are written one by one, each
//! when an element of it is set for the first time; the bitmap in the block's front tells which were.
//!
//! Facts from libhdf5's H5FA.c, H5FAdblock.c, H5FAdblkpage.c.

use crate::base::{Address, Error, Result, limits};
use crate::format::elements::{Elements, bitmap_size, page_bit, set_page_bit};
use crate::format::farray::data_block::{self, Body, DataBlock};
use crate::format::farray::header::{self, Header};
use crate::meta::Store;
use crate::meta::edit::SpaceKind;

/// Creates an array of `elements` elements of `element_size` bytes, none of which is set, and returns its
/// header's address. Errors: parameters that no array can have.
pub fn create(store: &Store, client: u8, element_size: u8, page_bits: u8, elements: u64) -> Result<Address> {
    let header = Header { client, element_size, page_bits, elements, data_block: Address::UNDEF };
    let bytes = header.encode(store.ctx());
    Header::decode(&bytes, store.ctx(), Address::UNDEF)?;
    if elements == 0 || element_size < store.ctx().sizeof_addr || header.allocated_size(store.ctx()).is_none() {
        let detail = format!("{elements} elements of {element_size} bytes");
        return Err(Error::unsupported(header::NAME, Address::UNDEF, detail));
    }
    store.put(&bytes, SpaceKind::Metadata)
}

/// Sets element `index` of the array whose header is at `address`. Errors: an index beyond the end, an
/// element of another size.
pub fn set(store: &Store, address: Address, index: u64, element: &[u8]) -> Result<()> {
    let mut header = load(store, address)?;
    if index >= header.elements || element.len() != usize::from(header.element_size) {
        let detail = format!("element {index} of {} bytes does not fit {} of {}", element.len(), header.elements, header.element_size);
        return Err(Error::unsupported(header::NAME, address, detail));
    }
    let fresh = !header.data_block.is_defined();
    let mut block = if fresh { blank(store, address, &header)? } else { load_block(store, address, &header)? };
    if fresh {
        let size = header.allocated_size(store.ctx()).ok_or_else(|| beyond(address))?;
        header.data_block = store.allocate(size, SpaceKind::Metadata)?;
    }
    match &mut block.body {
        Body::Elements(elements) => {
            put(elements, index, element, address)?;
            store.write(header.data_block, &block.encode(store.ctx()))?;
        }
        Body::PageBitmap(bitmap) => {
            let page = index / header.page_elements().max(1);
            let written = page_bit(bitmap, page);
            set_in_page(store, address, &header, index, written, element)?;
            if !written && !set_page_bit(bitmap, page) {
                return Err(beyond(address));
            }
            if fresh || !written {
                store.write(header.data_block, &block.encode(store.ctx()))?;
            }
        }
    }
    if fresh { store.write(address, &header.encode(store.ctx())) } else { Ok(()) }
}

/// Gives the space of the array whose header is at `address` back.
pub fn delete(store: &Store, address: Address) -> Result<()> {
    let header = load(store, address)?;
    if header.data_block.is_defined() {
        // What is freed must be the array's own.
        load_block(store, address, &header)?;
        let size = header.allocated_size(store.ctx()).ok_or_else(|| beyond(address))?;
        return free_all(store, vec![(address, Header::size(store.ctx())), (header.data_block, size)], header::NAME);
    }
    free_all(store, vec![(address, Header::size(store.ctx()))], header::NAME)
}

/// Frees blocks (address, bytes), or none of them: they must lie in the file and not overlap.
pub(super) fn free_all(store: &Store, mut blocks: Vec<(Address, u64)>, structure: &'static str) -> Result<()> {
    blocks.sort_unstable();
    let end = store.transaction()?.end();
    let mut last = 0;
    for &(at, len) in &blocks {
        let start = store.offset(at, structure)?;
        let stop = start.checked_add(len).filter(|&stop| start >= last && stop <= end);
        last = stop.ok_or_else(|| Error::corrupt(structure, at, format!("{len} bytes overlap others, or end behind the file")))?;
    }
    for (at, len) in blocks {
        store.free(at, len)?;
    }
    store.forget();
    Ok(())
}

fn beyond(address: Address) -> Error {
    Error::corrupt(header::NAME, address, "the array is larger than any file")
}

fn load(store: &Store, address: Address) -> Result<Header> {
    let bytes = store.read(address, Header::size(store.ctx()), header::NAME)?;
    Header::decode(&bytes, store.ctx(), address)
}

fn load_block(store: &Store, address: Address, header: &Header) -> Result<DataBlock> {
    let bytes = store.read(header.data_block, header.data_block_size(store.ctx()), data_block::NAME)?;
    DataBlock::decode(&bytes, store.ctx(), header.data_block, header, address)
}

/// A data block without anything set.
fn blank(store: &Store, address: Address, header: &Header) -> Result<DataBlock> {
    let body = match header.pages() {
        0 => Body::Elements(Elements::blank(header.elements, header.element_size, store.ctx(), data_block::NAME, address)?),
        pages => {
            let bytes = bitmap_size(pages);
            let n = usize::try_from(bytes).ok().filter(|_| bytes <= limits::METADATA_BLOCK_MAX);
            let n = n.ok_or_else(|| Error::limit(data_block::NAME, address, format!("{pages} pages")))?;
            Body::PageBitmap(vec![0; n])
        }
    };
    Ok(DataBlock { client: header.client, header: address, body })
}

/// Sets element `index` in its page; a page never `written` before is begun.
fn set_in_page(store: &Store, address: Address, header: &Header, index: u64, written: bool, element: &[u8]) -> Result<()> {
    let ctx = store.ctx();
    let per_page = header.page_elements().max(1);
    let page = index / per_page;
    let count = header.elements_of_page(page);
    let at = header.page_address(page, ctx).ok_or_else(|| beyond(address))?;
    let mut elements = edit_page(store, at, data_block::PAGE_NAME, count, header.element_size, written)?;
    put(&mut elements, index % per_page, element, address)?;
    store.write(at, &elements.encode_page())
}

/// The page of `count` elements at `at`: read if it was `written`, else one without anything set.
pub(super) fn edit_page(store: &Store, at: Address, structure: &'static str, count: u64, size: u8, written: bool) -> Result<Elements> {
    let blank = Elements::blank(count, size, store.ctx(), structure, at)?;
    if !written {
        return Ok(blank);
    }
    let len = (blank.byte_len() as u64).saturating_add(4);
    Elements::decode_page(&store.read(at, len, structure)?, structure, at, blank.len(), size)
}

/// Replaces element `i`.
pub(super) fn put(elements: &mut Elements, i: u64, element: &[u8], address: Address) -> Result<()> {
    match usize::try_from(i) {
        Ok(i) if elements.set(i, element) => Ok(()),
        _ => Err(Error::corrupt("array elements", address, format!("no element {i} of {} bytes", element.len()))),
    }
}
