//! Creation, element changes and deletion of a fixed array.
//!
//! The data block is allocated whole when the first element is set. A page is written when an
//! element of it is set for the first time; the bitmap at the front of the block records that.
//!
//! Follows libhdf5's H5FA.c, H5FAdblock.c, H5FAdblkpage.c.

use super::read::FixedArray;
use crate::base::{Address, Error, Result, limits};
use crate::format::elements::{Elements, bitmap_size, page_bit, set_page_bit};
use crate::format::farray::data_block::{self, Body, DataBlock};
use crate::format::farray::header::{self, Header};
use crate::meta::Store;
use crate::meta::edit::SpaceKind;
use crate::meta::level::Level;
use crate::structures::extent::free_all;
use crate::structures::paged_elements::set_element;

/// Lowest client of structured chunks.
const STRUCTURED_CLIENT: u8 = 2;

/// Creates an array of `elements` unset elements of `element_size` bytes; returns its header's
/// address. Errors: parameters that no array can have.
pub fn create(store: &Store, client: u8, element_size: u8, page_bits: u8, elements: u64) -> Result<Address> {
    // The first draft of structured chunks has version 1.
    let version = u8::from(client >= STRUCTURED_CLIENT);
    let header = Header { version, client, element_size, page_bits, elements, data_block: Address::UNDEF };
    let bytes = header.encode(store.ctx());
    Header::decode(&bytes, store.ctx(), Address::UNDEF)?;
    if elements == 0 || element_size < store.ctx().sizeof_addr || header.allocated_size(store.ctx()).is_none() {
        let detail = format!("{elements} elements of {element_size} bytes");
        return Err(Error::unsupported(header::NAME, Address::UNDEF, detail));
    }
    store.put(&bytes, SpaceKind::Metadata)
}

/// Sets element `index` of the array whose header is at `address`. Errors: an index past the last
/// element, an element of another size.
pub fn set(store: &Store, address: Address, index: u64, element: &[u8]) -> Result<()> {
    let mut array = FixedArray::load(store, address)?;
    let h = &array.header;
    if index >= h.elements || element.len() != usize::from(h.element_size) {
        let detail = format!("element {index} of {} bytes does not fit {} of {}", element.len(), h.elements, h.element_size);
        return Err(Error::unsupported(header::NAME, address, detail));
    }
    let fresh = !h.data_block.is_defined();
    let mut block = if fresh { blank(store, &array)? } else { array.load_data_block(store)? };
    if fresh {
        array.header.data_block = store.allocate(array.allocated_size(store)?, SpaceKind::Metadata)?;
    }
    let at = array.header.data_block;
    match &mut block.body {
        Body::Elements(elements) => {
            set_element(elements, index, element, address)?;
            store.write_at_level(at, &block.encode(store.ctx()), Level::Inner)?;
        }
        Body::PageBitmap(bitmap) => {
            let page = index / array.header.page_elements().max(1);
            let written = page_bit(bitmap, page);
            set_in_page(store, &array, index, written, element)?;
            if !written && !set_page_bit(bitmap, page) {
                return Err(array.too_large());
            }
            if fresh || !written {
                store.write_at_level(at, &block.encode(store.ctx()), Level::Inner)?;
            }
        }
    }
    if fresh { store.write_at_level(address, &array.header.encode(store.ctx()), Level::Index) } else { Ok(()) }
}

/// Frees the array whose header is at `address`. Errors: the data block belongs to another array.
pub fn delete(store: &Store, address: Address) -> Result<()> {
    free_all(store, |visit| FixedArray::extents(store, address, visit))?;
    store.forget();
    Ok(())
}

/// Makes a data block with no element set.
fn blank(store: &Store, array: &FixedArray) -> Result<DataBlock> {
    let (header, address) = (&array.header, array.address);
    let body = match header.pages() {
        0 => Body::Elements(Elements::blank(header.elements, header.element_size, store.ctx(), data_block::NAME, address)?),
        pages => {
            let bytes = bitmap_size(pages);
            let n = usize::try_from(bytes).ok().filter(|_| bytes <= limits::METADATA_BLOCK_MAX);
            let n = n.ok_or_else(|| Error::limit(data_block::NAME, address, format!("{pages} pages")))?;
            Body::PageBitmap(vec![0; n])
        }
    };
    Ok(DataBlock { version: header.version, client: header.client, header: address, body })
}

/// Sets element `index` in its page; creates the page if it was not `written` before.
fn set_in_page(store: &Store, array: &FixedArray, index: u64, written: bool, element: &[u8]) -> Result<()> {
    let per_page = array.header.page_elements().max(1);
    let page = array.page(store, index / per_page)?;
    let mut elements = page.edit(store, written)?;
    set_element(&mut elements, index % per_page, element, array.address)?;
    store.write_at_level(page.address, &elements.encode_page(), Level::Leaf)
}
