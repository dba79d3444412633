//! Changing an extensible array: creating it, setting elements, giving its space back.
//!
//! Every block is allocated when the first element under it is set: the index block, a super block, a data
//! block with room for all its pages. A page is written when an element of it is set for the first time; the
//! bitmap in the super block tells which were. The header counts the blocks.
//!
//! Facts from libhdf5's H5EA.c, H5EAiblock.c, H5EAsblock.c, H5EAdblock.c, H5EAdblkpage.c.

use super::budget::Budget;
use super::farray_edit::{edit_page, free_all, put};
use crate::base::{Address, Error, Result, limits};
use crate::format::earray::header::Statistics;
use crate::format::earray::{
    DataBlock, Geometry, Header, IndexBlock, Place, SuperBlock, SuperBlockInfo, data_block, header, index_block, super_block,
};
use crate::format::elements::Elements;
use crate::meta::Store;
use crate::meta::edit::SpaceKind;

/// What an array is created with; see [`Header`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Creation {
    /// 0 chunks, 1 filtered chunks.
    pub client: u8,
    /// Bytes of an element.
    pub element_size: u8,
    /// log2 of the most elements the array may have.
    pub max_bits: u8,
    /// Elements kept in the index block.
    pub index_elements: u8,
    /// Least number of elements of a data block.
    pub min_elements: u8,
    /// Least number of data block pointers of a super block.
    pub min_super_pointers: u8,
    /// log2 of the elements of a data block page.
    pub page_bits: u8,
}

/// Creates an array without elements and returns its header's address. Errors: parameters that no array can have.
pub fn create(store: &Store, creation: &Creation) -> Result<Address> {
    let Creation { client, element_size, max_bits, index_elements, min_elements, min_super_pointers, page_bits } = *creation;
    let header = Header {
        client,
        element_size,
        max_bits,
        index_elements,
        min_elements,
        min_super_pointers,
        page_bits,
        statistics: Statistics::default(),
        max_index_set: 0,
        realised: 0,
        index_block: Address::UNDEF,
    };
    let bytes = header.encode(store.ctx());
    Header::decode(&bytes, store.ctx(), Address::UNDEF)?;
    Geometry::new(&header, store.ctx(), Address::UNDEF)?;
    if element_size < store.ctx().sizeof_addr {
        return Err(Error::unsupported(header::NAME, Address::UNDEF, format!("elements of {element_size} bytes")));
    }
    store.put(&bytes, SpaceKind::Metadata)
}

/// Sets element `index` of the array whose header is at `address`. Errors: an index beyond what the array can
/// hold, an element of another size.
pub fn set(store: &Store, address: Address, index: u64, element: &[u8]) -> Result<()> {
    let mut editor = Editor::open(store, address)?;
    let before = editor.header.clone();
    let place = editor.place(index, element)?;
    editor.set(place, element)?;
    editor.header.max_index_set = before.max_index_set.max(index.saturating_add(1));
    if editor.header != before {
        store.write(address, &editor.header.encode(store.ctx()))?;
    }
    Ok(())
}

/// Gives the space of the array whose header is at `address` back.
pub fn delete(store: &Store, address: Address) -> Result<()> {
    let editor = Editor::open(store, address)?;
    // Everything is looked at before anything is freed.
    let mut free = vec![(address, Header::size(store.ctx()))];
    if editor.header.index_block.is_defined() {
        editor.blocks(&mut free)?;
    }
    free_all(store, free, header::NAME)
}

/// An array that is being changed.
struct Editor<'a> {
    store: &'a Store,
    address: Address,
    header: Header,
    geometry: Geometry,
}

impl<'a> Editor<'a> {
    fn open(store: &'a Store, address: Address) -> Result<Self> {
        let bytes = store.read(address, Header::size(store.ctx()), header::NAME)?;
        let header = Header::decode(&bytes, store.ctx(), address)?;
        let geometry = Geometry::new(&header, store.ctx(), address)?;
        Ok(Editor { store, address, header, geometry })
    }

    fn place(&self, index: u64, element: &[u8]) -> Result<Place> {
        let size = self.header.element_size;
        if element.len() != usize::from(size) {
            let detail = format!("an element of {} bytes, the array's have {size}", element.len());
            return Err(Error::unsupported(header::NAME, self.address, detail));
        }
        // libhdf5 takes no index that needs more bits, though the last super block has room for some.
        let fits = index.checked_shr(u32::from(self.header.max_bits)).unwrap_or(0) == 0;
        let place = self.geometry.place(index).filter(|_| fits);
        place.ok_or_else(|| Error::limit(header::NAME, self.address, format!("element {index} of an array of 2^{}", self.header.max_bits)))
    }

    fn set(&mut self, place: Place, element: &[u8]) -> Result<()> {
        let fresh = !self.header.index_block.is_defined();
        let mut index_block = if fresh { self.begin_index_block()? } else { self.index_block()? };
        let changed = match place {
            Place::IndexBlock(i) => {
                put(&mut index_block.elements, i as u64, element, self.address)?;
                true
            }
            Place::DataBlock { super_block, data_block, element: at } => {
                let info = *self.geometry.super_blocks.get(super_block).ok_or_else(|| self.beyond())?;
                match super_block.checked_sub(self.geometry.virtual_super_blocks) {
                    None => self.set_below_index_block(&mut index_block, &info, data_block, at, element)?,
                    Some(i) => {
                        let slot = index_block.super_blocks.get_mut(i).ok_or_else(|| self.beyond())?;
                        let begun = !slot.is_defined();
                        *slot = self.set_below_super_block(*slot, &info, data_block, at, element)?;
                        begun
                    }
                }
            }
        };
        if fresh {
            // The space is taken last, so that a failure before leaves an array without an index block.
            self.header.index_block = self.store.allocate(self.geometry.index_block_size(), SpaceKind::Metadata)?;
        }
        if fresh || changed {
            self.store.write(self.header.index_block, &index_block.encode(self.store.ctx()))?;
        }
        Ok(())
    }

    /// Sets an element of a data block that the index block points to; true when the block was begun.
    fn set_below_index_block(
        &mut self,
        block: &mut IndexBlock,
        info: &SuperBlockInfo,
        data_block: u64,
        at: u64,
        element: &[u8],
    ) -> Result<bool> {
        let number = info.start_data_block.saturating_add(data_block);
        let slot = usize::try_from(number).ok().and_then(|i| block.data_blocks.get_mut(i)).ok_or_else(|| self.beyond())?;
        if slot.is_defined() {
            self.set_in_block(*slot, info, at, element)?;
            return Ok(false);
        }
        // libhdf5 counts the data blocks of earlier super blocks twice; the number is not read.
        *slot = self.begin_data_block(info, number, Some((at, element)))?;
        Ok(true)
    }

    /// Sets an element of a data block below the super block at `address` (undefined: begun), which is returned.
    fn set_below_super_block(&mut self, address: Address, info: &SuperBlockInfo, number: u64, at: u64, element: &[u8]) -> Result<Address> {
        let fresh = !address.is_defined();
        let mut block = if fresh { self.begin_super_block(info)? } else { self.super_block(address, info)? };
        let i = usize::try_from(number).map_err(|_| self.beyond())?;
        let mut data_block = *block.data_blocks.get(i).ok_or_else(|| self.beyond())?;
        let mut changed = fresh;
        if !data_block.is_defined() {
            let first = if info.pages == 0 { Some((at, element)) } else { None };
            data_block = self.begin_data_block(info, number, first)?;
            *block.data_blocks.get_mut(i).ok_or_else(|| self.beyond())? = data_block;
            changed = true;
        } else if info.pages == 0 {
            self.set_in_block(data_block, info, at, element)?;
        }
        if info.pages > 0 {
            let per_page = self.geometry.page_elements().max(1);
            let page = at / per_page;
            let written = block.page_written(info, number, page);
            self.set_in_page(data_block, page, at % per_page, written, element)?;
            if !written && !block.set_page_written(info, number, page) {
                return Err(self.beyond());
            }
            changed |= !written;
        }
        if !changed {
            return Ok(address);
        }
        let size = self.geometry.super_block_size(info);
        let address = if fresh { self.store.allocate(size, SpaceKind::Metadata)? } else { address };
        self.store.write(address, &block.encode(self.store.ctx()))?;
        if fresh {
            let s = &mut self.header.statistics;
            s.super_blocks = s.super_blocks.saturating_add(1);
            s.super_block_bytes = s.super_block_bytes.saturating_add(size);
        }
        Ok(address)
    }

    /// Allocates data block `number` of `info` and writes it, with one element set unless it is paged.
    fn begin_data_block(&mut self, info: &SuperBlockInfo, number: u64, first: Option<(u64, &[u8])>) -> Result<Address> {
        let count = if info.pages > 0 { 0 } else { info.data_block_elements };
        let mut elements = Elements::blank(count, self.header.element_size, self.store.ctx(), data_block::NAME, self.address)?;
        if let Some((at, element)) = first {
            put(&mut elements, at, element, self.address)?;
        }
        let block = DataBlock {
            client: self.header.client,
            header: self.address,
            block_offset: info.start_element.saturating_add(number.saturating_mul(info.data_block_elements)),
            elements,
            offset_size: self.geometry.offset_size,
        };
        let size = self.geometry.allocated_size(info);
        let at = self.store.allocate(size, SpaceKind::Metadata)?;
        self.store.write(at, &block.encode(self.store.ctx()))?;
        let s = &mut self.header.statistics;
        s.data_blocks = s.data_blocks.saturating_add(1);
        s.data_block_bytes = s.data_block_bytes.saturating_add(size);
        self.header.realised = self.header.realised.saturating_add(info.data_block_elements);
        Ok(at)
    }

    /// Sets element `at` of the data block at `address`, which is not paged.
    fn set_in_block(&self, address: Address, info: &SuperBlockInfo, at: u64, element: &[u8]) -> Result<()> {
        let ctx = self.store.ctx();
        let bytes = self.store.read(address, self.geometry.data_block_size(info), data_block::NAME)?;
        let mut block = DataBlock::decode(&bytes, ctx, address, &self.header, &self.geometry, info, self.address)?;
        put(&mut block.elements, at, element, self.address)?;
        self.store.write(address, &block.encode(ctx))
    }

    /// Sets element `at` of a page of the data block at `block`; a page never `written` before is begun.
    fn set_in_page(&self, block: Address, page: u64, at: u64, written: bool, element: &[u8]) -> Result<()> {
        let (per_page, size) = (self.geometry.page_elements(), self.header.element_size);
        let address = self.geometry.page_address(block, page).ok_or_else(|| self.beyond())?;
        let mut elements = edit_page(self.store, address, data_block::PAGE_NAME, per_page, size, written)?;
        put(&mut elements, at, element, self.address)?;
        self.store.write(address, &elements.encode_page())
    }

    fn begin_index_block(&mut self) -> Result<IndexBlock> {
        let Header { client, index_elements, element_size, .. } = self.header;
        let elements = Elements::blank(u64::from(index_elements), element_size, self.store.ctx(), index_block::NAME, self.address)?;
        self.header.realised = self.header.realised.saturating_add(u64::from(index_elements));
        Ok(IndexBlock {
            client,
            header: self.address,
            elements,
            data_blocks: vec![Address::UNDEF; self.geometry.index_data_blocks],
            super_blocks: vec![Address::UNDEF; self.geometry.index_super_blocks()],
        })
    }

    fn index_block(&self) -> Result<IndexBlock> {
        let (at, ctx) = (self.header.index_block, self.store.ctx());
        let bytes = self.store.read(at, self.geometry.index_block_size(), index_block::NAME)?;
        IndexBlock::decode(&bytes, ctx, at, &self.header, &self.geometry, self.address)
    }

    fn begin_super_block(&self, info: &SuperBlockInfo) -> Result<SuperBlock> {
        let size = self.geometry.super_block_size(info);
        let too_large = || Error::limit(super_block::NAME, self.address, format!("{} data blocks", info.data_blocks));
        // The block's size bounds all of its parts.
        let within = |n: u64| usize::try_from(n).ok().filter(|_| size <= limits::METADATA_BLOCK_MAX).ok_or_else(too_large);
        Ok(SuperBlock {
            client: self.header.client,
            header: self.address,
            block_offset: info.start_element,
            page_bitmaps: vec![0; within(info.data_blocks.saturating_mul(info.bitmap_size()))?],
            data_blocks: vec![Address::UNDEF; within(info.data_blocks)?],
            offset_size: self.geometry.offset_size,
        })
    }

    fn super_block(&self, at: Address, info: &SuperBlockInfo) -> Result<SuperBlock> {
        let bytes = self.store.read(at, self.geometry.super_block_size(info), super_block::NAME)?;
        SuperBlock::decode(&bytes, self.store.ctx(), at, &self.header, &self.geometry, info, self.address)
    }

    /// Adds every block behind the header, and its size, to `out`.
    fn blocks(&self, out: &mut Vec<(Address, u64)>) -> Result<()> {
        let mut budget = Budget::new(self.store, header::NAME, self.address)?;
        let index_block = self.index_block()?;
        out.push((self.header.index_block, self.geometry.index_block_size()));
        for (u, info) in self.geometry.super_blocks.iter().enumerate() {
            let holder;
            let data_blocks = match u.checked_sub(self.geometry.virtual_super_blocks) {
                None => {
                    let from = usize::try_from(info.start_data_block).unwrap_or(usize::MAX);
                    let count = usize::try_from(info.data_blocks).unwrap_or(usize::MAX);
                    index_block.data_blocks.get(from..from.saturating_add(count)).unwrap_or_default()
                }
                Some(i) => {
                    let Some(&at) = index_block.super_blocks.get(i).filter(|a| a.is_defined()) else { continue };
                    budget.spend(self.geometry.super_block_size(info))?;
                    holder = self.super_block(at, info)?;
                    out.push((at, self.geometry.super_block_size(info)));
                    &holder.data_blocks
                }
            };
            for &at in data_blocks.iter().filter(|a| a.is_defined()) {
                budget.spend(self.geometry.data_block_size(info))?;
                let bytes = self.store.read(at, self.geometry.data_block_size(info), data_block::NAME)?;
                DataBlock::decode(&bytes, self.store.ctx(), at, &self.header, &self.geometry, info, self.address)?;
                out.push((at, self.geometry.allocated_size(info)));
            }
        }
        Ok(())
    }

    fn beyond(&self) -> Error {
        Error::corrupt(header::NAME, self.address, "an element lies beyond what the array can hold")
    }
}
