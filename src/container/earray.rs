//! Access to an extensible array by element index. Elements are opaque bytes.

use super::budget::Budget;
use super::farray::{Visit, cached_page, visit};
use crate::base::{Address, Error, Result};
use crate::format::earray::{
    DataBlock, Geometry, Header, IndexBlock, Place, SuperBlock, SuperBlockInfo, data_block, header, index_block, super_block,
};
use crate::format::elements::Elements;
use crate::meta::Store;
use std::mem::size_of;
use std::ops::ControlFlow;
use std::sync::Arc;

/// An open extensible array.
#[derive(Debug)]
pub struct ExtensibleArray {
    address: Address,
    header: Header,
    geometry: Geometry,
}

/// One data block: where, its super block's measures, and which of its pages were written.
struct Slot<'a> {
    address: Address,
    info: &'a SuperBlockInfo,
    /// Position within the super block.
    number: u64,
    super_block: Option<&'a SuperBlock>,
}

impl Slot<'_> {
    fn page_written(&self, page: u64) -> bool {
        self.super_block.is_some_and(|s| s.page_written(self.info, self.number, page))
    }
}

impl ExtensibleArray {
    /// Opens the array whose header is at `address`; cheap when it is cached.
    pub fn open(store: &Store, address: Address) -> Result<Arc<ExtensibleArray>> {
        store.cached(address, || {
            let bytes = store.read(address, Header::size(store.ctx()), header::NAME)?;
            let header = Header::decode(&bytes, store.ctx(), address)?;
            let geometry = Geometry::new(&header, store.ctx(), address)?;
            let rows = geometry.super_blocks.len().saturating_mul(size_of::<SuperBlockInfo>());
            Ok((ExtensibleArray { address, header, geometry }, size_of::<ExtensibleArray>().saturating_add(rows)))
        })
    }

    /// The header.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Element `index`, decoded by `decode`; `None` where nothing was ever set.
    pub fn get<T>(&self, store: &Store, index: u64, decode: impl FnOnce(&[u8]) -> Result<T>) -> Result<Option<T>> {
        if index >= self.header.max_index_set || !self.header.index_block.is_defined() {
            return Ok(None);
        }
        let index_block = self.index_block(store)?;
        let beyond = || Error::corrupt(header::NAME, self.address, format!("element {index} exceeds what the array can hold"));
        let (super_block, data_block, element) = match self.geometry.place(index).ok_or_else(beyond)? {
            Place::IndexBlock(i) => return index_block.elements.get(i).map(decode).transpose(),
            Place::DataBlock { super_block, data_block, element } => (super_block, data_block, element),
        };
        let Some(info) = self.geometry.super_blocks.get(super_block) else { return Err(beyond()) };
        let mut holder = None;
        let address = match super_block.checked_sub(self.geometry.virtual_super_blocks) {
            None => slot(&index_block.data_blocks, info.start_data_block.saturating_add(data_block)),
            Some(i) => {
                let Some(at) = slot(&index_block.super_blocks, i as u64) else { return Ok(None) };
                let block = holder.insert(self.super_block(store, at, info)?);
                slot(&block.data_blocks, data_block)
            }
        };
        let Some(address) = address else { return Ok(None) };
        let slot = Slot { address, info, number: data_block, super_block: holder.as_deref() };
        if info.pages == 0 {
            let block = self.data_block(store, &slot)?;
            return usize::try_from(element).ok().and_then(|i| block.elements.get(i)).map(decode).transpose();
        }
        let per_page = self.geometry.page_elements().max(1);
        let page = element / per_page;
        if !slot.page_written(page) {
            return Ok(None);
        }
        let elements = self.page(store, &slot, page)?;
        usize::try_from(element % per_page).ok().and_then(|i| elements.get(i)).map(decode).transpose()
    }

    /// Visits every element of every block and page that exists, in order, as (index, encoded element).
    pub fn iterate(&self, store: &Store, f: &mut Visit<'_>) -> Result<()> {
        if !self.header.index_block.is_defined() {
            return Ok(());
        }
        let end = self.header.max_index_set;
        let mut f = |i: u64, e: &[u8]| if i < end { f(i, e) } else { Ok(ControlFlow::Break(())) };
        let mut budget = Budget::new(store, header::NAME, self.address)?;
        let index_block = self.index_block(store)?;
        if visit(&index_block.elements, 0, &mut f)?.is_break() {
            return Ok(());
        }
        for (u, info) in self.geometry.super_blocks.iter().enumerate() {
            if self.geometry.first_element(info) >= end {
                break;
            }
            let end = match u.checked_sub(self.geometry.virtual_super_blocks) {
                None => {
                    let from = usize::try_from(info.start_data_block).unwrap_or(usize::MAX);
                    let count = usize::try_from(info.data_blocks).unwrap_or(usize::MAX);
                    let blocks = index_block.data_blocks.get(from..from.saturating_add(count)).unwrap_or_default();
                    self.walk(store, info, None, blocks, &mut f, &mut budget)?
                }
                Some(i) => {
                    let Some(at) = slot(&index_block.super_blocks, i as u64) else { continue };
                    budget.spend(self.geometry.super_block_size(info))?;
                    let block = self.super_block(store, at, info)?;
                    self.walk(store, info, Some(&block), &block.data_blocks, &mut f, &mut budget)?
                }
            };
            if end.is_break() {
                break;
            }
        }
        Ok(())
    }

    /// Visits the elements of the data blocks at `addresses`, which are those of one super block.
    fn walk(
        &self,
        store: &Store,
        info: &SuperBlockInfo,
        super_block: Option<&SuperBlock>,
        addresses: &[Address],
        f: &mut Visit<'_>,
        budget: &mut Budget,
    ) -> Result<ControlFlow<()>> {
        for (number, &address) in (0u64..).zip(addresses).filter(|(_, a)| a.is_defined()) {
            let slot = Slot { address, info, number, super_block };
            let first = self.geometry.first_element(info).saturating_add(number.saturating_mul(info.data_block_elements));
            budget.spend(self.geometry.data_block_size(info))?;
            if info.pages == 0 && visit(&self.data_block(store, &slot)?.elements, first, f)?.is_break() {
                return Ok(ControlFlow::Break(()));
            }
            // The super block's bitmap was read from the file: its length bounds this loop.
            for page in (0..info.pages).filter(|&p| slot.page_written(p)) {
                budget.spend(self.geometry.page_size())?;
                let elements = self.page(store, &slot, page)?;
                let first = first.saturating_add(page.saturating_mul(self.geometry.page_elements()));
                if visit(&elements, first, f)?.is_break() {
                    return Ok(ControlFlow::Break(()));
                }
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    fn index_block(&self, store: &Store) -> Result<Arc<IndexBlock>> {
        let at = self.header.index_block;
        let block = store.cached(at, || {
            let bytes = store.read(at, self.geometry.index_block_size(), index_block::NAME)?;
            let block = IndexBlock::decode(&bytes, store.ctx(), at, &self.header, &self.geometry, self.address)?;
            Ok((block, size_of::<IndexBlock>().saturating_add(bytes.len())))
        })?;
        self.mine(block.header, at, index_block::NAME)?;
        Ok(block)
    }

    fn super_block(&self, store: &Store, at: Address, info: &SuperBlockInfo) -> Result<Arc<SuperBlock>> {
        let block = store.cached(at, || {
            let bytes = store.read(at, self.geometry.super_block_size(info), super_block::NAME)?;
            let block = SuperBlock::decode(&bytes, store.ctx(), at, &self.header, &self.geometry, info, self.address)?;
            Ok((block, size_of::<SuperBlock>().saturating_add(bytes.len())))
        })?;
        self.mine(block.header, at, super_block::NAME)?;
        if block.data_blocks.len() as u64 == info.data_blocks {
            Ok(block)
        } else {
            Err(Error::corrupt(super_block::NAME, at, "two pointers to the block disagree about it"))
        }
    }

    fn data_block(&self, store: &Store, slot: &Slot<'_>) -> Result<Arc<DataBlock>> {
        let at = slot.address;
        let block = store.cached(at, || {
            let bytes = store.read(at, self.geometry.data_block_size(slot.info), data_block::NAME)?;
            let block = DataBlock::decode(&bytes, store.ctx(), at, &self.header, &self.geometry, slot.info, self.address)?;
            Ok((block, size_of::<DataBlock>().saturating_add(bytes.len())))
        })?;
        self.mine(block.header, at, data_block::NAME)?;
        if block.elements.len() as u64 == slot.info.data_block_elements {
            Ok(block)
        } else {
            Err(Error::corrupt(data_block::NAME, at, "two pointers to the block disagree about it"))
        }
    }

    fn page(&self, store: &Store, slot: &Slot<'_>, page: u64) -> Result<Arc<Elements>> {
        let beyond = || Error::corrupt(data_block::PAGE_NAME, slot.address, format!("page {page} lies beyond 2^64"));
        let at = self.geometry.page_address(slot.address, page).ok_or_else(beyond)?;
        cached_page(store, at, data_block::PAGE_NAME, self.geometry.page_elements(), self.header.element_size)
    }

    fn mine(&self, owner: Address, at: Address, structure: &'static str) -> Result<()> {
        if owner == self.address { Ok(()) } else { Err(Error::corrupt(structure, at, "two arrays share the block")) }
    }
}

/// Address `i`, if it is there and defined.
fn slot(addresses: &[Address], i: u64) -> Option<Address> {
    usize::try_from(i).ok().and_then(|i| addresses.get(i)).copied().filter(|a| a.is_defined())
}
