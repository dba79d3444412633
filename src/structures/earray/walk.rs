//! Walk over the super blocks and data blocks of an extensible array, in the order of elements.

use super::load::{DataBlockRef, ExtensibleArray, defined};
use crate::base::{Address, Result};
use crate::format::earray::{Header, IndexBlock, SuperBlockInfo, data_block, header, index_block, super_block};
use crate::meta::Store;
use crate::meta::extent::{self, Extent};
use crate::structures::budget::Budget;
use std::ops::{ControlFlow, Range};

/// A block reached by the walk.
pub(super) enum Block<'a> {
    Super(Address, &'a SuperBlockInfo),
    /// Not loaded yet.
    Data(DataBlockRef<'a>),
}

/// Called with each block and the bytes that the walk may still visit.
pub(super) type Visit<'a> = dyn FnMut(Block<'_>, &mut Budget) -> Result<ControlFlow<()>> + 'a;

impl ExtensibleArray {
    /// Visits the header and the blocks of the array whose header is at `address`. Errors: damage,
    /// a block of another array.
    pub fn extents(store: &Store, address: Address, visit: &mut extent::Visit<'_>) -> Result<()> {
        let array = ExtensibleArray::load(store, address)?;
        visit(Extent::metadata(address, Header::size(store.ctx()), header::NAME))?;
        if !array.header.index_block.is_defined() {
            return Ok(());
        }
        let index_block = array.load_index_block(store)?;
        visit(Extent::metadata(array.header.index_block, array.geometry.index_block_size(), index_block::NAME))?;
        let mut budget = Budget::new(store, header::NAME, address)?;
        array.walk(store, &index_block, 0..u64::MAX, &mut budget, &mut |block, _| {
            visit(match block {
                Block::Super(at, info) => Extent::metadata(at, array.geometry.super_block_size(info), super_block::NAME),
                Block::Data(block) => {
                    // Checks that the block belongs to this array.
                    array.load_data_block(store, block.address, block.info)?;
                    let cost = array.geometry.data_block_size(block.info);
                    Extent { cost, ..Extent::metadata(block.address, array.geometry.allocated_size(block.info), data_block::NAME) }
                }
            })?;
            Ok(ControlFlow::Continue(()))
        })
    }

    /// Visits the allocated super blocks and data blocks below `index` that hold elements of
    /// `range`. The walk loads super blocks, not data blocks.
    pub(super) fn walk(&self, store: &Store, index: &IndexBlock, range: Range<u64>, budget: &mut Budget, f: &mut Visit<'_>) -> Result<()> {
        for (u, info) in self.geometry.super_blocks.iter().enumerate() {
            let first = self.geometry.first_element(info);
            if first >= range.end {
                break;
            }
            // Data blocks before the range.
            let skipped = range.start.saturating_sub(first).checked_div(info.data_block_elements).unwrap_or(0);
            if skipped >= info.data_blocks {
                continue;
            }
            let super_block;
            let (owner, addresses) = match u.checked_sub(self.geometry.virtual_super_blocks) {
                None => {
                    let from = usize::try_from(info.start_data_block).unwrap_or(usize::MAX);
                    let count = usize::try_from(info.data_blocks).unwrap_or(usize::MAX);
                    (None, index.data_blocks.get(from..from.saturating_add(count)).unwrap_or_default())
                }
                Some(i) => {
                    let Some(at) = defined(&index.super_blocks, i as u64) else { continue };
                    budget.spend(self.geometry.super_block_size(info))?;
                    super_block = self.super_block(store, at, info)?;
                    if f(Block::Super(at, info), budget)?.is_break() {
                        return Ok(());
                    }
                    (Some(&*super_block), super_block.data_blocks.as_slice())
                }
            };
            let from = usize::try_from(skipped).unwrap_or(usize::MAX);
            for (number, &address) in (skipped..).zip(addresses.get(from..).unwrap_or_default()).filter(|(_, a)| a.is_defined()) {
                let first = first.saturating_add(number.saturating_mul(info.data_block_elements));
                if first >= range.end {
                    return Ok(());
                }
                budget.spend(self.geometry.data_block_size(info))?;
                if f(Block::Data(DataBlockRef { address, info, number, super_block: owner }), budget)?.is_break() {
                    return Ok(());
                }
            }
        }
        Ok(())
    }
}
