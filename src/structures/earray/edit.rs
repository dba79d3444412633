//! Creation, element changes and deletion of an extensible array.
//!
//! A block is allocated when the first element below it is set: the index block, a super block, a
//! data block with room for all its pages. A page is written when an element of it is set for the
//! first time; the bitmap in the super block records that. The header counts the blocks.
//!
//! Follows libhdf5's H5EA.c, H5EAiblock.c, H5EAsblock.c, H5EAdblock.c, H5EAdblkpage.c.

use super::load::ExtensibleArray;
use crate::base::{Address, Error, Result, limits};
use crate::format::earray::header::Statistics;
use crate::format::earray::{
    DataBlock, ElementPlace, Geometry, Header, IndexBlock, SuperBlock, SuperBlockInfo, data_block, header, index_block, super_block,
};
use crate::format::elements::Elements;
use crate::meta::Store;
use crate::meta::edit::SpaceKind;
use crate::meta::level::Level;
use crate::structures::extent::free_all;
use crate::structures::paged_elements::set_element;

/// Parameters of a new array; see [`Header`].
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
    /// Elements of the smallest data block.
    pub min_elements: u8,
    /// Data block addresses of the smallest super block.
    pub min_super_pointers: u8,
    /// log2 of the elements of a data block page.
    pub page_bits: u8,
}

/// Creates an array with no element set; returns its header's address. Errors: parameters that no
/// array can have.
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

/// Sets element `index` of the array whose header is at `address`. Errors: an index past what the
/// array can hold, an element of another size.
pub fn set(store: &Store, address: Address, index: u64, element: &[u8]) -> Result<()> {
    let mut editor = Editor::open(store, address)?;
    let before = editor.array.header.clone();
    let place = editor.place(index, element)?;
    editor.set(place, element)?;
    editor.array.header.max_index_set = before.max_index_set.max(index.saturating_add(1));
    if editor.array.header != before {
        store.write_at_level(address, &editor.array.header.encode(store.ctx()), Level::Index)?;
    }
    Ok(())
}

/// Frees the array whose header is at `address`. Reads every block before the first one is freed.
pub fn delete(store: &Store, address: Address) -> Result<()> {
    free_all(store, |visit| ExtensibleArray::extents(store, address, visit))?;
    store.forget();
    Ok(())
}

/// One change of an array.
struct Editor<'a> {
    store: &'a Store,
    array: ExtensibleArray,
}

impl<'a> Editor<'a> {
    fn open(store: &'a Store, address: Address) -> Result<Self> {
        Ok(Editor { store, array: ExtensibleArray::load(store, address)? })
    }

    fn place(&self, index: u64, element: &[u8]) -> Result<ElementPlace> {
        let size = self.array.header.element_size;
        if element.len() != usize::from(size) {
            let detail = format!("an element of {} bytes, the array's have {size}", element.len());
            return Err(Error::unsupported(header::NAME, self.array.address, detail));
        }
        // libhdf5 refuses an index of more bits, although the last super block has room for some.
        let fits = index.checked_shr(u32::from(self.array.header.max_bits)).unwrap_or(0) == 0;
        let place = self.array.geometry.place(index).filter(|_| fits);
        place.ok_or_else(|| {
            Error::limit(header::NAME, self.array.address, format!("element {index} of an array of 2^{}", self.array.header.max_bits))
        })
    }

    fn set(&mut self, place: ElementPlace, element: &[u8]) -> Result<()> {
        let fresh = !self.array.header.index_block.is_defined();
        let mut index_block = if fresh { self.create_index_block()? } else { self.array.load_index_block(self.store)? };
        let changed = match place {
            ElementPlace::IndexBlock(i) => {
                set_element(&mut index_block.elements, i as u64, element, self.array.address)?;
                true
            }
            ElementPlace::DataBlock { super_block, data_block, element: at } => {
                let info = *self.array.geometry.super_blocks.get(super_block).ok_or_else(|| self.array.beyond())?;
                match super_block.checked_sub(self.array.geometry.virtual_super_blocks) {
                    None => self.set_below_index_block(&mut index_block, &info, data_block, at, element)?,
                    Some(i) => {
                        let slot = index_block.super_blocks.get_mut(i).ok_or_else(|| self.array.beyond())?;
                        let created = !slot.is_defined();
                        *slot = self.set_below_super_block(*slot, &info, data_block, at, element)?;
                        created
                    }
                }
            }
        };
        if fresh {
            // Allocated last: an earlier error leaves an array without an index block.
            self.array.header.index_block = self.store.allocate(self.array.geometry.index_block_size(), SpaceKind::Metadata)?;
        }
        if fresh || changed {
            self.store.write_at_level(self.array.header.index_block, &index_block.encode(self.store.ctx()), Level::Outer)?;
        }
        Ok(())
    }

    /// Sets an element of a data block below the index block `block`; true if it created the data
    /// block.
    fn set_below_index_block(
        &mut self,
        block: &mut IndexBlock,
        info: &SuperBlockInfo,
        data_block: u64,
        at: u64,
        element: &[u8],
    ) -> Result<bool> {
        let number = info.start_data_block.saturating_add(data_block);
        let slot = usize::try_from(number).ok().and_then(|i| block.data_blocks.get_mut(i)).ok_or_else(|| self.array.beyond())?;
        if slot.is_defined() {
            self.set_in_block(*slot, info, at, element)?;
            return Ok(false);
        }
        // libhdf5 counts the data blocks of earlier super blocks twice; nothing reads the number.
        *slot = self.create_data_block(info, number, Some((at, element)))?;
        Ok(true)
    }

    /// Sets an element of a data block below the super block at `address`, creates that one if the
    /// address is undefined, and returns its address.
    fn set_below_super_block(&mut self, address: Address, info: &SuperBlockInfo, number: u64, at: u64, element: &[u8]) -> Result<Address> {
        let fresh = !address.is_defined();
        let mut block = if fresh { self.create_super_block(info)? } else { self.array.load_super_block(self.store, address, info)? };
        let i = usize::try_from(number).map_err(|_| self.array.beyond())?;
        let mut data_block = *block.data_blocks.get(i).ok_or_else(|| self.array.beyond())?;
        let mut changed = fresh;
        if !data_block.is_defined() {
            let first = if info.pages == 0 { Some((at, element)) } else { None };
            data_block = self.create_data_block(info, number, first)?;
            *block.data_blocks.get_mut(i).ok_or_else(|| self.array.beyond())? = data_block;
            changed = true;
        } else if info.pages == 0 {
            self.set_in_block(data_block, info, at, element)?;
        }
        if info.pages > 0 {
            let per_page = self.array.geometry.page_elements().max(1);
            let page = at / per_page;
            let written = block.page_written(info, number, page);
            self.set_in_page(data_block, page, at % per_page, written, element)?;
            if !written && !block.set_page_written(info, number, page) {
                return Err(self.array.beyond());
            }
            changed |= !written;
        }
        if !changed {
            return Ok(address);
        }
        let size = self.array.geometry.super_block_size(info);
        let address = if fresh { self.store.allocate(size, SpaceKind::Metadata)? } else { address };
        self.store.write_at_level(address, &block.encode(self.store.ctx()), Level::Inner)?;
        if fresh {
            let s = &mut self.array.header.statistics;
            s.super_blocks = s.super_blocks.saturating_add(1);
            s.super_block_bytes = s.super_block_bytes.saturating_add(size);
        }
        Ok(address)
    }

    /// Allocates and writes data block `number` of `info`, with element `first` set; `None` if the
    /// block is paged.
    fn create_data_block(&mut self, info: &SuperBlockInfo, number: u64, first: Option<(u64, &[u8])>) -> Result<Address> {
        let count = if info.pages > 0 { 0 } else { info.data_block_elements };
        let mut elements = Elements::blank(count, self.array.header.element_size, self.store.ctx(), data_block::NAME, self.array.address)?;
        if let Some((at, element)) = first {
            set_element(&mut elements, at, element, self.array.address)?;
        }
        let block = DataBlock {
            client: self.array.header.client,
            header: self.array.address,
            block_offset: info.start_element.saturating_add(number.saturating_mul(info.data_block_elements)),
            elements,
            offset_size: self.array.geometry.offset_size,
        };
        let size = self.array.geometry.allocated_size(info);
        let at = self.store.allocate(size, SpaceKind::Metadata)?;
        self.store.write(at, &block.encode(self.store.ctx()))?;
        let s = &mut self.array.header.statistics;
        s.data_blocks = s.data_blocks.saturating_add(1);
        s.data_block_bytes = s.data_block_bytes.saturating_add(size);
        self.array.header.realised = self.array.header.realised.saturating_add(info.data_block_elements);
        Ok(at)
    }

    /// Sets element `at` of the unpaged data block at `address`.
    fn set_in_block(&self, address: Address, info: &SuperBlockInfo, at: u64, element: &[u8]) -> Result<()> {
        let mut block = self.array.load_data_block(self.store, address, info)?;
        set_element(&mut block.elements, at, element, self.array.address)?;
        self.store.write_at_level(address, &block.encode(self.store.ctx()), Level::Leaf)
    }

    /// Sets element `at` of a page of the data block at `block`; creates the page if it was not
    /// `written` before.
    fn set_in_page(&self, block: Address, page: u64, at: u64, written: bool, element: &[u8]) -> Result<()> {
        let page = self.array.page(block, page)?;
        let mut elements = page.edit(self.store, written)?;
        set_element(&mut elements, at, element, self.array.address)?;
        self.store.write_at_level(page.address, &elements.encode_page(), Level::Leaf)
    }

    fn create_index_block(&mut self) -> Result<IndexBlock> {
        let Header { client, index_elements, element_size, .. } = self.array.header;
        let elements = Elements::blank(u64::from(index_elements), element_size, self.store.ctx(), index_block::NAME, self.array.address)?;
        self.array.header.realised = self.array.header.realised.saturating_add(u64::from(index_elements));
        Ok(IndexBlock {
            client,
            header: self.array.address,
            elements,
            data_blocks: vec![Address::UNDEF; self.array.geometry.index_data_blocks],
            super_blocks: vec![Address::UNDEF; self.array.geometry.index_super_blocks()],
        })
    }

    fn create_super_block(&self, info: &SuperBlockInfo) -> Result<SuperBlock> {
        let size = self.array.geometry.super_block_size(info);
        let too_large = || Error::limit(super_block::NAME, self.array.address, format!("{} data blocks", info.data_blocks));
        // The block's size bounds all of its parts.
        let within = |n: u64| usize::try_from(n).ok().filter(|_| size <= limits::METADATA_BLOCK_MAX).ok_or_else(too_large);
        Ok(SuperBlock {
            client: self.array.header.client,
            header: self.array.address,
            block_offset: info.start_element,
            page_bitmaps: vec![0; within(info.data_blocks.saturating_mul(info.bitmap_size()))?],
            data_blocks: vec![Address::UNDEF; within(info.data_blocks)?],
            offset_size: self.array.geometry.offset_size,
        })
    }
}
