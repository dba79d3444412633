//! Replaces some elements of variable length; the others stay as they are.

use super::cells::NewCells;
use super::dataset::Dataset;
use super::object_access::ObjectAccess;
use super::state::State;
use crate::base::{Error, Result};
use crate::connector::NewValue;
use crate::connector::edit::each_range;
use crate::dataset::parts::store_elements;
use crate::iod::{Data, keys};
use std::ops::Range;

/// Blocks of cells up to which none is removed.
const BLOCKS_FEW: usize = 64;
/// Bytes of blocks, beside twice the bytes of the cells in use, up to which they are kept.
const BLOCKS_SLACK_BYTES: u64 = 16 << 20;
/// Bytes of cells in use that a block has on average, at least, in a dataset of many blocks.
const BLOCK_BYTES_MIN: u64 = 16 << 10;

impl ObjectAccess {
    /// Sets the elements `elements` of the dataset `id`, runs that ascend and do not overlap, to
    /// `values`.
    pub(super) fn put_elements_of(&self, state: &mut State, id: u64, elements: &[Range<u64>], values: &NewValue) -> Result<()> {
        let d = self.dataset_of(state, id)?;
        if state.forms.get(&id).is_some_and(|form| form.written) {
            return Err(Error::refused(libc::EBUSY, "the dataset is being written through an open file"));
        }
        let count = elements.iter().fold(0u64, |n, r| n.saturating_add(r.end.saturating_sub(r.start)));
        let is_within = elements.last().is_none_or(|last| last.end <= d.elements());
        if !d.datatype.is_like(&values.datatype) || values.shape.count() != Some(count) || !is_within {
            return Err(Error::refused(libc::EINVAL, "the elements do not fit the type and shape of the dataset"));
        }
        let mut cells = NewCells::new(state, true, true);
        let bytes = store_elements(values, &mut cells)?;
        for (block, bytes) in cells.into_blocks()? {
            state.put(keys::key(id, keys::CELLS, &block.to_be_bytes()), &bytes)?;
        }
        // A form that was only read is outdated.
        state.forms.remove_mut(&id);
        let byte = |n: u64| n.saturating_mul(d.element_size);
        let ranges: Vec<Range<u64>> = elements.iter().map(|r| byte(r.start)..byte(r.end)).collect();
        each_range(&ranges, &bytes, &mut |offset, part| self.write_elements(state, &d, offset, part))?;
        state.changed(id);
        let d = self.dataset_of(state, id)?;
        self.drop_unused_cells(state, &d)?;
        state.changed(id);
        state.touch(id)
    }

    /// Removes blocks of which no cell is in use; stores all cells anew if most are not.
    fn drop_unused_cells(&self, state: &mut State, d: &Dataset) -> Result<()> {
        let blocks = state.keys(&keys::of_kind(d.id, keys::CELLS))?;
        if blocks.len() <= BLOCKS_FEW {
            return Ok(());
        }
        let (used, form_bytes) = self.used_blocks(state, d)?;
        let mut bytes = 0u64;
        for key in blocks {
            let block = keys::parts(&key).and_then(|(_, _, block)| block.try_into().ok()).map(u64::from_be_bytes);
            if block.is_some_and(|block| !used.contains(&block)) {
                state.remove(key)?;
            } else if let Some(value) = state.get(&key)? {
                bytes = bytes.saturating_add(match &value.data {
                    Data::Inline(bytes) => bytes.len() as u64,
                    Data::Extent(extent) => extent.len.into(),
                });
            }
        }
        let is_small = used.len() <= BLOCKS_FEW || used.len() as u64 <= form_bytes / BLOCK_BYTES_MIN;
        if is_small && bytes <= form_bytes.saturating_mul(2).saturating_add(BLOCKS_SLACK_BYTES) {
            return Ok(());
        }
        let form = self.whole_form(state, d, false)?;
        let undefined = self.undefined(state, d)?;
        self.parse_form(state, d, &form, None, &undefined)
    }
}
