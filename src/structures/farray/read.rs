//! Lookup by index and ordered walk of a fixed array. Elements are opaque bytes.

use crate::base::{Address, Error, Result};
use crate::format::elements::{Elements, count_page_bits, next_page_bit, page_bit};
use crate::format::farray::data_block::{self, Body, DataBlock};
use crate::format::farray::header::{self, Header};
use crate::meta::Store;
use crate::meta::extent::{self, Extent};
use crate::structures::estimate::Estimate;
use crate::structures::paged_elements::{self, Page, Visit, visit};
use std::mem::size_of;
use std::sync::Arc;

/// Bytes of a page bitmap that cost as much as one of another structure: most of the bitmap of a
/// large array is a hole.
const BITMAP_BYTES_COST: u64 = 256;

/// An open fixed array.
#[derive(Debug)]
pub struct FixedArray {
    pub(super) address: Address,
    pub(super) header: Header,
}

impl FixedArray {
    /// Opens the array whose header is at `address`; cheap when it is cached.
    pub fn open(store: &Store, address: Address) -> Result<Arc<FixedArray>> {
        store.cached(address, |store| Ok((Self::load(store, address)?, size_of::<FixedArray>())))
    }

    /// Reads the header at `address`, past the cache.
    pub(super) fn load(store: &Store, address: Address) -> Result<FixedArray> {
        let bytes = store.read(address, Header::size(store.ctx()), header::NAME)?;
        Ok(FixedArray { address, header: Header::decode(&bytes, store.ctx(), address)? })
    }

    /// Visits the header and the data block of the array whose header is at `address`. Errors:
    /// damage, a data block of another array.
    pub fn extents(store: &Store, address: Address, visit: &mut extent::Visit<'_>) -> Result<()> {
        let array = FixedArray::load(store, address)?;
        visit(Extent::metadata(address, Header::size(store.ctx()), header::NAME))?;
        if !array.header.data_block.is_defined() {
            return Ok(());
        }
        array.load_data_block(store)?;
        let whole = Extent::metadata(array.header.data_block, array.allocated_size(store)?, data_block::NAME);
        let cost = if array.header.pages() == 0 { whole.cost } else { array.header.data_block_size(store.ctx()) / BITMAP_BYTES_COST };
        visit(Extent { cost: cost.saturating_add(Header::size(store.ctx())), ..whole })
    }

    /// Bytes of the data block with all its pages.
    pub(super) fn allocated_size(&self, store: &Store) -> Result<u64> {
        self.header.allocated_size(store.ctx()).ok_or_else(|| self.too_large())
    }

    pub(super) fn too_large(&self) -> Error {
        Error::corrupt(header::NAME, self.address, "the array is larger than any file")
    }

    /// The header.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Element `index`, decoded by `decode`; `None` past the last element and where none was set.
    pub fn get<T>(&self, store: &Store, index: u64, decode: impl FnOnce(&[u8]) -> Result<T>) -> Result<Option<T>> {
        if index >= self.header.elements || !self.header.data_block.is_defined() {
            return Ok(None);
        }
        let block = self.data_block(store)?;
        let per_page = self.header.page_elements().max(1);
        let page;
        let (elements, at) = match &block.body {
            Body::Elements(elements) => (elements, index),
            Body::PageBitmap(bitmap) if !page_bit(bitmap, index / per_page) => return Ok(None),
            Body::PageBitmap(_) => {
                page = self.page(store, index / per_page)?.cached(store)?;
                (&*page, index % per_page)
            }
        };
        usize::try_from(at).ok().and_then(|i| elements.get(i)).map(decode).transpose()
    }

    /// Visits the elements of the data block, or of every written page, in order from index `start`
    /// on.
    pub fn iterate_from(&self, store: &Store, start: u64, f: &mut Visit<'_>) -> Result<()> {
        if !self.header.data_block.is_defined() {
            return Ok(());
        }
        let block = self.data_block(store)?;
        let bitmap = match &block.body {
            Body::Elements(elements) => return visit(elements, 0, start, f).map(drop),
            Body::PageBitmap(bitmap) => bitmap,
        };
        let mut next = start / self.header.page_elements().max(1);
        // The bitmap was read from the file: its length bounds this loop.
        while let Some(page) = next_page_bit(bitmap, next, self.header.pages()) {
            let elements: Arc<Elements> = self.page(store, page)?.cached(store)?;
            let first = page.saturating_mul(self.header.page_elements());
            if visit(&elements, first, start, f)?.is_break() {
                break;
            }
            next = page.saturating_add(1);
        }
        Ok(())
    }

    /// Estimates how many elements satisfy `is_set`, from the page bitmap and a few pages.
    pub fn estimate(&self, store: &Store, is_set: &mut dyn FnMut(&[u8]) -> Result<bool>) -> Result<Estimate> {
        let (end, pages) = (self.header.elements, self.header.pages());
        if !self.header.data_block.is_defined() {
            return Ok(Estimate::default());
        }
        let written = match &self.data_block(store)?.body {
            Body::Elements(_) => end,
            Body::PageBitmap(bitmap) => count_page_bits(bitmap, 0, pages).saturating_mul(self.header.page_elements()),
        };
        let written = written.min(end);
        let set = paged_elements::estimate(end, written, &mut |start, f| self.iterate_from(store, start, f), is_set)?;
        Ok(Estimate { entries: set, walked: written })
    }

    fn data_block(&self, store: &Store) -> Result<Arc<DataBlock>> {
        let at = self.header.data_block;
        let block = store.cached(at, |store| {
            let block = self.load_data_block(store)?;
            let charge = size_of::<DataBlock>().saturating_add(block.byte_len());
            Ok((block, charge))
        })?;
        if block.header == self.address { Ok(block) } else { Err(Error::corrupt(data_block::NAME, at, "two arrays share the block")) }
    }

    /// Reads the data block (of a paged one its front), past the cache.
    pub(super) fn load_data_block(&self, store: &Store) -> Result<DataBlock> {
        let (at, ctx) = (self.header.data_block, store.ctx());
        let bytes = store.read(at, self.header.data_block_size(ctx), data_block::NAME)?;
        DataBlock::decode(&bytes, ctx, at, &self.header, self.address)
    }

    /// Place and shape of page `page`.
    pub(super) fn page(&self, store: &Store, page: u64) -> Result<Page> {
        let beyond = || Error::corrupt(data_block::PAGE_NAME, self.header.data_block, format!("page {page} exceeds 2^64 bytes"));
        Ok(Page {
            address: self.header.page_address(page, store.ctx()).ok_or_else(beyond)?,
            structure: data_block::PAGE_NAME,
            count: self.header.elements_of_page(page),
            element_size: self.header.element_size,
        })
    }
}
