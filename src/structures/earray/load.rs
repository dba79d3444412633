//! Blocks of an extensible array, read from the file or from the store's cache.

use crate::base::{Address, Error, Result};
use crate::format::earray::{
    DataBlock, Geometry, Header, IndexBlock, SuperBlock, SuperBlockInfo, data_block, header, index_block, super_block,
};
use crate::meta::Store;
use crate::structures::paged_elements::Page;
use std::mem::size_of;
use std::sync::Arc;

/// An open extensible array.
#[derive(Debug)]
pub struct ExtensibleArray {
    pub(super) address: Address,
    pub(super) header: Header,
    pub(super) geometry: Geometry,
}

/// Place and shape of one data block, and the bitmap of its written pages.
pub(super) struct DataBlockRef<'a> {
    pub address: Address,
    pub info: &'a SuperBlockInfo,
    /// Position within the super block.
    pub number: u64,
    /// Holds the bitmap; `None` for data blocks of virtual super blocks, which have no pages.
    pub super_block: Option<&'a SuperBlock>,
}

impl DataBlockRef<'_> {
    /// True if page `page` was ever written.
    pub fn page_written(&self, page: u64) -> bool {
        self.super_block.is_some_and(|s| s.page_written(self.info, self.number, page))
    }

    /// The first page at or after page `from` that was ever written.
    pub fn next_page(&self, from: u64) -> Option<u64> {
        self.super_block.and_then(|s| s.next_page_written(self.info, self.number, from))
    }

    /// Number of elements in the block, or in its written pages of `page_elements`.
    pub fn elements(&self, page_elements: u64) -> u64 {
        match self.super_block.filter(|_| self.info.pages > 0) {
            Some(s) => s.pages_written(self.info, self.number).saturating_mul(page_elements),
            None => self.info.data_block_elements,
        }
    }
}

impl ExtensibleArray {
    /// Opens the array whose header is at `address`; cheap when it is cached.
    pub fn open(store: &Store, address: Address) -> Result<Arc<ExtensibleArray>> {
        store.cached(address, |store| {
            let array = Self::load(store, address)?;
            let rows = array.geometry.super_blocks.len().saturating_mul(size_of::<SuperBlockInfo>());
            Ok((array, size_of::<ExtensibleArray>().saturating_add(rows)))
        })
    }

    /// Reads the header at `address`, past the cache.
    pub(super) fn load(store: &Store, address: Address) -> Result<ExtensibleArray> {
        let bytes = store.read(address, Header::size(store.ctx()), header::NAME)?;
        let header = Header::decode(&bytes, store.ctx(), address)?;
        let geometry = Geometry::new(&header, store.ctx(), address)?;
        Ok(ExtensibleArray { address, header, geometry })
    }

    /// The header.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// The index block from the store's cache, or read into it.
    pub(super) fn index_block(&self, store: &Store) -> Result<Arc<IndexBlock>> {
        let at = self.header.index_block;
        let block = store.cached(at, |store| {
            let charge = size_of::<IndexBlock>().saturating_add(charge(self.geometry.index_block_size()));
            Ok((self.load_index_block(store)?, charge))
        })?;
        self.check_owner(block.header, at, index_block::NAME)?;
        Ok(block)
    }

    /// Reads the index block, past the cache.
    pub(super) fn load_index_block(&self, store: &Store) -> Result<IndexBlock> {
        let at = self.header.index_block;
        let bytes = store.read(at, self.geometry.index_block_size(), index_block::NAME)?;
        IndexBlock::decode(&bytes, store.ctx(), at, &self.header, &self.geometry, self.address)
    }

    /// The super block at `at` from the store's cache, or read into it.
    pub(super) fn super_block(&self, store: &Store, at: Address, info: &SuperBlockInfo) -> Result<Arc<SuperBlock>> {
        let block = store.cached(at, |store| {
            let charge = size_of::<SuperBlock>().saturating_add(charge(self.geometry.super_block_size(info)));
            Ok((self.load_super_block(store, at, info)?, charge))
        })?;
        self.check_owner(block.header, at, super_block::NAME)?;
        if block.data_blocks.len() as u64 == info.data_blocks { Ok(block) } else { Err(ambiguous(super_block::NAME, at)) }
    }

    /// Reads the super block at `at`, past the cache.
    pub(super) fn load_super_block(&self, store: &Store, at: Address, info: &SuperBlockInfo) -> Result<SuperBlock> {
        let bytes = store.read(at, self.geometry.super_block_size(info), super_block::NAME)?;
        SuperBlock::decode(&bytes, store.ctx(), at, &self.header, &self.geometry, info, self.address)
    }

    /// The unpaged data block at `at` from the store's cache, or read into it.
    pub(super) fn data_block(&self, store: &Store, at: Address, info: &SuperBlockInfo) -> Result<Arc<DataBlock>> {
        let block = store.cached(at, |store| {
            let charge = size_of::<DataBlock>().saturating_add(charge(self.geometry.data_block_size(info)));
            Ok((self.load_data_block(store, at, info)?, charge))
        })?;
        self.check_owner(block.header, at, data_block::NAME)?;
        if block.elements.len() as u64 == info.data_block_elements { Ok(block) } else { Err(ambiguous(data_block::NAME, at)) }
    }

    /// Reads the data block at `at` (of a paged one its front), past the cache.
    pub(super) fn load_data_block(&self, store: &Store, at: Address, info: &SuperBlockInfo) -> Result<DataBlock> {
        let bytes = store.read(at, self.geometry.data_block_size(info), data_block::NAME)?;
        DataBlock::decode(&bytes, store.ctx(), at, &self.header, &self.geometry, info, self.address)
    }

    /// Place and shape of page `page` of the data block at `block`.
    pub(super) fn page(&self, block: Address, page: u64) -> Result<Page> {
        let beyond = || Error::corrupt(data_block::PAGE_NAME, block, format!("page {page} exceeds 2^64 bytes"));
        Ok(Page {
            address: self.geometry.page_address(block, page).ok_or_else(beyond)?,
            structure: data_block::PAGE_NAME,
            count: self.geometry.page_elements(),
            element_size: self.header.element_size,
        })
    }

    /// Error for an element or block that the geometry has no place for.
    pub(super) fn beyond(&self) -> Error {
        Error::corrupt(header::NAME, self.address, "an element exceeds what the array can hold")
    }

    fn check_owner(&self, owner: Address, at: Address, structure: &'static str) -> Result<()> {
        if owner == self.address { Ok(()) } else { Err(Error::corrupt(structure, at, "two arrays share the block")) }
    }
}

/// Error for a block that a hostile file reaches by pointers that disagree about its size.
fn ambiguous(structure: &'static str, at: Address) -> Error {
    Error::corrupt(structure, at, "two pointers to the block disagree about it")
}

/// Cache charge of a block that was read, bytes.
fn charge(size: u64) -> usize {
    usize::try_from(size).unwrap_or(usize::MAX)
}

/// Address `i` of `addresses`, if it exists and is defined.
pub(super) fn defined(addresses: &[Address], i: u64) -> Option<Address> {
    usize::try_from(i).ok().and_then(|i| addresses.get(i)).copied().filter(|a| a.is_defined())
}
