//! Access to a fixed array by element index. Elements are opaque bytes.

use crate::base::{Address, Error, Result};
use crate::format::elements::{Elements, page_bit};
use crate::format::farray::data_block::{self, Body, DataBlock};
use crate::format::farray::header::{self, Header};
use crate::meta::Store;
use std::mem::size_of;
use std::ops::ControlFlow;
use std::sync::Arc;

/// Called with each element: index, encoded element. `Break` ends the walk.
pub type Visit<'a> = dyn FnMut(u64, &[u8]) -> Result<ControlFlow<()>> + 'a;

/// An open fixed array.
#[derive(Debug)]
pub struct FixedArray {
    address: Address,
    header: Header,
}

impl FixedArray {
    /// Opens the array whose header is at `address`; cheap when it is cached.
    pub fn open(store: &Store, address: Address) -> Result<Arc<FixedArray>> {
        store.cached(address, || {
            let bytes = store.read(address, Header::size(store.ctx()), header::NAME)?;
            let header = Header::decode(&bytes, store.ctx(), address)?;
            Ok((FixedArray { address, header }, size_of::<FixedArray>()))
        })
    }

    /// The header.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Element `index`, decoded by `decode`; `None` beyond the end and where nothing was ever written.
    pub fn get<T>(&self, store: &Store, index: u64, decode: impl FnOnce(&[u8]) -> Result<T>) -> Result<Option<T>> {
        if index >= self.header.elements || !self.header.data_block.is_defined() {
            return Ok(None);
        }
        let block = self.data_block(store)?;
        let (page, within) = (index / self.header.page_elements().max(1), index % self.header.page_elements().max(1));
        let holder;
        let (elements, at) = match &block.body {
            Body::Elements(elements) => (elements, index),
            Body::PageBitmap(bitmap) if !page_bit(bitmap, page) => return Ok(None),
            Body::PageBitmap(_) => {
                holder = self.page(store, page)?;
                (&*holder, within)
            }
        };
        usize::try_from(at).ok().and_then(|i| elements.get(i)).map(decode).transpose()
    }

    /// Visits every element for which space was written, in order, as (index, encoded element).
    pub fn iterate(&self, store: &Store, f: &mut Visit<'_>) -> Result<()> {
        if !self.header.data_block.is_defined() {
            return Ok(());
        }
        let block = self.data_block(store)?;
        match &block.body {
            Body::Elements(elements) => visit(elements, 0, f).map(drop),
            Body::PageBitmap(bitmap) => {
                // The bitmap was read from the file: its length bounds this loop.
                for page in (0..self.header.pages()).filter(|&p| page_bit(bitmap, p)) {
                    let elements = self.page(store, page)?;
                    let first = page.saturating_mul(self.header.page_elements());
                    if visit(&elements, first, f)?.is_break() {
                        break;
                    }
                }
                Ok(())
            }
        }
    }

    fn data_block(&self, store: &Store) -> Result<Arc<DataBlock>> {
        let at = self.header.data_block;
        let block = store.cached(at, || {
            let bytes = store.read(at, self.header.data_block_size(store.ctx()), data_block::NAME)?;
            let block = DataBlock::decode(&bytes, store.ctx(), at, &self.header, self.address)?;
            let charge = size_of::<DataBlock>().saturating_add(block.byte_len());
            Ok((block, charge))
        })?;
        if block.header == self.address { Ok(block) } else { Err(Error::corrupt(data_block::NAME, at, "two arrays share the block")) }
    }

    fn page(&self, store: &Store, page: u64) -> Result<Arc<Elements>> {
        let beyond = || Error::corrupt(data_block::PAGE_NAME, self.header.data_block, format!("page {page} lies beyond 2^64"));
        let at = self.header.page_address(page, store.ctx()).ok_or_else(beyond)?;
        let count = self.header.elements_of_page(page);
        cached_page(store, at, data_block::PAGE_NAME, count, self.header.element_size)
    }
}

/// The page of `count` elements at `address`, from the cache if there.
pub(super) fn cached_page(store: &Store, address: Address, structure: &'static str, count: u64, element_size: u8) -> Result<Arc<Elements>> {
    let odd = || Error::corrupt(structure, address, format!("{count} elements of {element_size} bytes"));
    let n = usize::try_from(count).map_err(|_| odd())?;
    let page = store.cached(address, || {
        let len = count.checked_mul(u64::from(element_size)).and_then(|n| n.checked_add(4)).ok_or_else(odd)?;
        let bytes = store.read(address, len, structure)?;
        let page = Elements::decode_page(&bytes, structure, address, n, element_size)?;
        let charge = size_of::<Elements>().saturating_add(page.byte_len());
        Ok((page, charge))
    })?;
    // A hostile file may reach one address from arrays that disagree about it.
    if page.len() == n && page.element_size() == element_size { Ok(page) } else { Err(odd()) }
}

/// Visits `elements`, the first of which has index `first`.
pub(super) fn visit(elements: &Elements, first: u64, f: &mut Visit<'_>) -> Result<ControlFlow<()>> {
    for (i, index) in (0..elements.len()).zip(first..) {
        if let Some(e) = elements.get(i)
            && f(index, e)?.is_break()
        {
            return Ok(ControlFlow::Break(()));
        }
    }
    Ok(ControlFlow::Continue(()))
}
