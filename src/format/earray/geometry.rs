//! Geometry of an extensible array: the block of each element, and the size of each block.
//!
//! Source: H5.format.4.0, "Extensible Array Index", and libhdf5's H5EAhdr.c, H5EAdblock.c.

use super::Header;
use super::header::NAME;
use crate::base::{Address, Error, Result};
use crate::format::Context;
use crate::format::elements::{CHECKSUM, bitmap_size};

/// Size of signature, version, client and checksum, bytes.
const PREFIX_BYTES: u64 = 10;

/// One super block. The first few do not exist on disk and only size the index block's data blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SuperBlockInfo {
    /// Number of data blocks.
    pub data_blocks: u64,
    /// Number of elements in each data block.
    pub data_block_elements: u64,
    /// Index of its first element, not counting elements in the index block.
    pub start_element: u64,
    /// Number of data blocks in all earlier super blocks.
    pub start_data_block: u64,
    /// Number of pages of each data block; 0 when not paged.
    pub pages: u64,
}

impl SuperBlockInfo {
    /// Size of each data block's page bitmap, bytes.
    pub fn bitmap_size(&self) -> u64 {
        bitmap_size(self.pages)
    }
}

/// Location of an element.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ElementPlace {
    /// In the index block, at this position.
    IndexBlock(usize),
    /// In a data block.
    DataBlock {
        /// Super block that the data block belongs to.
        super_block: usize,
        /// Data block within the super block.
        data_block: u64,
        /// Element within the data block.
        element: u64,
    },
}

/// Block sizes of one array, derived from its header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Geometry {
    /// Every super block, by index.
    pub super_blocks: Vec<SuperBlockInfo>,
    /// Number of leading super blocks that exist only as data block addresses in the index block.
    pub virtual_super_blocks: usize,
    /// Number of data block addresses in the index block.
    pub index_data_blocks: usize,
    /// Width of a block offset, bytes.
    pub offset_size: u8,
    index_elements: u64,
    min_elements: u64,
    page_elements: u64,
    element_size: u64,
    sizeof_addr: u64,
}

impl Geometry {
    /// Derives the geometry; parameters that libhdf5 cannot write are corrupt.
    pub fn new(h: &Header, ctx: &Context, address: Address) -> Result<Self> {
        let bad = || {
            Error::corrupt(
                NAME,
                address,
                format!(
                    "parameters: max bits {}, index elements {}, min elements {}, min super pointers {}, page bits {}",
                    h.max_bits, h.index_elements, h.min_elements, h.min_super_pointers, h.page_bits
                ),
            )
        };
        let powers = h.min_elements.is_power_of_two() && h.min_super_pointers.is_power_of_two();
        if !powers || !(1..=64).contains(&h.max_bits) || !(1..=63).contains(&h.page_bits) {
            return Err(bad());
        }
        let min_log2 = h.min_elements.trailing_zeros() as usize;
        let count = usize::from(h.max_bits).checked_sub(min_log2).and_then(|n| n.checked_add(1)).ok_or_else(bad)?;
        let virtual_super_blocks = (h.min_super_pointers.trailing_zeros() as usize).saturating_mul(2);
        let page_elements = 1u64.checked_shl(u32::from(h.page_bits)).ok_or_else(bad)?;
        let super_blocks = Self::rows(count, u64::from(h.min_elements), page_elements);
        let paged = super_blocks.iter().take(virtual_super_blocks).any(|s| s.pages > 0);
        if count < virtual_super_blocks || paged {
            return Err(bad());
        }
        Ok(Geometry {
            super_blocks,
            virtual_super_blocks,
            index_data_blocks: usize::from(h.min_super_pointers).saturating_sub(1).saturating_mul(2),
            offset_size: h.max_bits.div_ceil(8),
            index_elements: u64::from(h.index_elements),
            min_elements: u64::from(h.min_elements),
            page_elements,
            element_size: u64::from(h.element_size),
            sizeof_addr: u64::from(ctx.sizeof_addr),
        })
    }

    fn rows(count: usize, min_elements: u64, page_elements: u64) -> Vec<SuperBlockInfo> {
        let (mut start_element, mut start_data_block) = (0u64, 0u64);
        let power = |n: usize| 1u64.checked_shl(u32::try_from(n).unwrap_or(u32::MAX)).unwrap_or(u64::MAX);
        let row = |u: usize| {
            let data_blocks = power(u / 2);
            let data_block_elements = power(u.div_ceil(2)).saturating_mul(min_elements);
            let pages = if data_block_elements > page_elements { data_block_elements / page_elements.max(1) } else { 0 };
            let info = SuperBlockInfo { data_blocks, data_block_elements, start_element, start_data_block, pages };
            // Only the sums after the last super block can saturate; they are not used.
            start_element = start_element.saturating_add(data_blocks.saturating_mul(data_block_elements));
            start_data_block = start_data_block.saturating_add(data_blocks);
            info
        };
        (0..count).map(row).collect()
    }

    /// Number of elements in a full page.
    pub fn page_elements(&self) -> u64 {
        self.page_elements
    }

    /// Number of super block addresses in the index block.
    pub fn index_super_blocks(&self) -> usize {
        self.super_blocks.len().saturating_sub(self.virtual_super_blocks)
    }

    /// Index of the first element of super block `s`.
    pub fn first_element(&self, s: &SuperBlockInfo) -> u64 {
        s.start_element.saturating_add(self.index_elements)
    }

    /// Location of element `index`; `None` past the largest index of the array.
    pub fn place(&self, index: u64) -> Option<ElementPlace> {
        let Some(beyond) = index.checked_sub(self.index_elements) else {
            return usize::try_from(index).ok().map(ElementPlace::IndexBlock);
        };
        let super_block = usize::try_from(beyond.checked_div(self.min_elements)?.checked_add(1)?.ilog2()).ok()?;
        let info = self.super_blocks.get(super_block)?;
        let within = beyond.checked_sub(info.start_element)?;
        let data_block = within.checked_div(info.data_block_elements)?;
        let element = within.checked_rem(info.data_block_elements)?;
        Some(ElementPlace::DataBlock { super_block, data_block, element })
    }

    /// Size of the index block, bytes.
    pub fn index_block_size(&self) -> u64 {
        let addresses = self.index_data_blocks.saturating_add(self.index_super_blocks()) as u64;
        let elements = self.index_elements.saturating_mul(self.element_size);
        PREFIX_BYTES.saturating_add(self.sizeof_addr).saturating_add(elements).saturating_add(addresses.saturating_mul(self.sizeof_addr))
    }

    /// Size of super block `s`, bytes.
    pub fn super_block_size(&self, s: &SuperBlockInfo) -> u64 {
        let each = s.bitmap_size().saturating_add(self.sizeof_addr);
        self.block_prefix().saturating_add(s.data_blocks.saturating_mul(each))
    }

    /// Size of a data block of `s` without its pages, bytes.
    pub fn data_block_size(&self, s: &SuperBlockInfo) -> u64 {
        let elements = if s.pages > 0 { 0 } else { s.data_block_elements.saturating_mul(self.element_size) };
        self.block_prefix().saturating_add(elements)
    }

    /// Allocated size of a data block of `s` with all its pages, bytes.
    pub fn allocated_size(&self, s: &SuperBlockInfo) -> u64 {
        self.data_block_size(s).saturating_add(s.pages.saturating_mul(self.page_size()))
    }

    /// Size of a page, bytes.
    pub fn page_size(&self) -> u64 {
        self.page_elements.saturating_mul(self.element_size).saturating_add(CHECKSUM as u64)
    }

    /// Address of page `page` of the data block at `block`.
    pub fn page_address(&self, block: Address, page: u64) -> Option<Address> {
        block.checked_add(self.block_prefix())?.checked_add(page.checked_mul(self.page_size())?)
    }

    /// Size of signature, version, client, header address, block offset and checksum, bytes.
    fn block_prefix(&self) -> u64 {
        PREFIX_BYTES.saturating_add(self.sizeof_addr).saturating_add(u64::from(self.offset_size))
    }
}

#[cfg(test)]
mod tests {
    use super::super::header::tests::standard;
    use super::*;

    #[test]
    fn standard_parameters() {
        let g = Geometry::new(&standard(), &Context::DEFAULT, Address(0)).unwrap();
        assert_eq!((g.super_blocks.len(), g.virtual_super_blocks, g.index_data_blocks, g.index_super_blocks()), (29, 4, 6, 25));
        assert_eq!(g.index_block_size(), 18 + 4 * 8 + 31 * 8);
        assert_eq!(g.place(3), Some(ElementPlace::IndexBlock(3)));
        assert_eq!(g.place(4), Some(ElementPlace::DataBlock { super_block: 0, data_block: 0, element: 0 }));
        assert_eq!(g.place(4 + 16 + 32 + 63), Some(ElementPlace::DataBlock { super_block: 2, data_block: 1, element: 31 }));
        assert_eq!(g.place(u64::MAX), None);
        // Elements map to distinct locations, in order.
        let mut expected = 4u64;
        for (u, s) in g.super_blocks.iter().enumerate().take(10) {
            assert_eq!(g.first_element(s), expected);
            for data_block in 0..s.data_blocks {
                for element in 0..s.data_block_elements {
                    assert_eq!(g.place(expected), Some(ElementPlace::DataBlock { super_block: u, data_block, element }));
                    expected += 1;
                }
            }
        }
        let first_paged = g.super_blocks.iter().position(|s| s.pages > 0).unwrap();
        assert_eq!((first_paged, g.super_blocks[first_paged].pages), (13, 2));
    }

    #[test]
    fn odd_parameters_are_refused_and_none_panics() {
        let h = standard();
        let try_new = |h: Header| Geometry::new(&h, &Context::DEFAULT, Address(0));
        assert!(try_new(Header { min_elements: 3, ..h.clone() }).is_err());
        assert!(try_new(Header { min_super_pointers: 0, ..h.clone() }).is_err());
        assert!(try_new(Header { max_bits: 65, ..h.clone() }).is_err());
        assert!(try_new(Header { page_bits: 4, ..h.clone() }).is_err(), "the index block's data blocks would be paged");
        for bits in 0..=255u8 {
            for min in [0u8, 1, 2, 64, 128, 255] {
                for page_bits in [0, 1, 10, 63, 64, 255] {
                    let h = Header { max_bits: bits, min_elements: min, min_super_pointers: min, page_bits, ..h.clone() };
                    if let Ok(g) = try_new(h) {
                        for i in [0, 1, 255, 1 << 20, 1 << 40, u64::MAX - 1, u64::MAX] {
                            let _ = g.place(i);
                        }
                        for s in &g.super_blocks {
                            let _ = (g.super_block_size(s), g.data_block_size(s), g.first_element(s), g.page_address(Address(9), s.pages));
                        }
                    }
                }
            }
        }
    }
}
