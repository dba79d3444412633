//! Lookup by index and ordered iteration of an extensible array. Elements are opaque bytes.

use super::load::{DataBlockRef, ExtensibleArray, defined};
use super::walk::Block;
use crate::base::Result;
use crate::format::earray::{ElementPlace, header};
use crate::meta::Store;
use crate::structures::budget::Budget;
use crate::structures::estimate::Estimate;
use crate::structures::paged_elements::{self, Visit, visit};
use std::ops::ControlFlow;

impl ExtensibleArray {
    /// Element `index`, decoded by `decode`; `None` where none was ever set.
    pub fn get<T>(&self, store: &Store, index: u64, decode: impl FnOnce(&[u8]) -> Result<T>) -> Result<Option<T>> {
        if index >= self.header.max_index_set || !self.header.index_block.is_defined() {
            return Ok(None);
        }
        let index_block = self.index_block(store)?;
        let (super_block, number, element) = match self.geometry.place(index).ok_or_else(|| self.beyond())? {
            ElementPlace::IndexBlock(i) => return index_block.elements.get(i).map(decode).transpose(),
            ElementPlace::DataBlock { super_block, data_block, element } => (super_block, data_block, element),
        };
        let info = self.geometry.super_blocks.get(super_block).ok_or_else(|| self.beyond())?;
        let mut owner = None;
        let address = match super_block.checked_sub(self.geometry.virtual_super_blocks) {
            None => defined(&index_block.data_blocks, info.start_data_block.saturating_add(number)),
            Some(i) => {
                let Some(at) = defined(&index_block.super_blocks, i as u64) else { return Ok(None) };
                let block = owner.insert(self.super_block(store, at, info)?);
                defined(&block.data_blocks, number)
            }
        };
        let Some(address) = address else { return Ok(None) };
        if info.pages == 0 {
            let block = self.data_block(store, address, info)?;
            return usize::try_from(element).ok().and_then(|i| block.elements.get(i)).map(decode).transpose();
        }
        let per_page = self.geometry.page_elements().max(1);
        let page = element / per_page;
        if !(DataBlockRef { address, info, number, super_block: owner.as_deref() }).page_written(page) {
            return Ok(None);
        }
        let elements = self.page(address, page)?.cached(store)?;
        usize::try_from(element % per_page).ok().and_then(|i| elements.get(i)).map(decode).transpose()
    }

    /// Visits the elements of all blocks and written pages in order, from index `start` up to the
    /// largest index set.
    pub fn iterate_from(&self, store: &Store, start: u64, f: &mut Visit<'_>) -> Result<()> {
        if !self.header.index_block.is_defined() {
            return Ok(());
        }
        let end = self.header.max_index_set;
        let mut f = |i: u64, e: &[u8]| if i < end { f(i, e) } else { Ok(ControlFlow::Break(())) };
        let mut budget = Budget::new(store, header::NAME, self.address)?;
        let index_block = self.index_block(store)?;
        if visit(&index_block.elements, 0, start, &mut f)?.is_break() {
            return Ok(());
        }
        self.walk(store, &index_block, start..end, &mut budget, &mut |block, budget| match block {
            Block::Super(..) => Ok(ControlFlow::Continue(())),
            Block::Data(block) => self.visit_data_block(store, &block, start, budget, &mut f),
        })
    }

    /// Estimates how many elements satisfy `is_set`, from the page bitmaps and a few blocks.
    pub fn estimate(&self, store: &Store, is_set: &mut dyn FnMut(&[u8]) -> Result<bool>) -> Result<Estimate> {
        if !self.header.index_block.is_defined() {
            return Ok(Estimate::default());
        }
        let (end, index_block) = (self.header.max_index_set, self.index_block(store)?);
        let mut written = index_block.elements.len() as u64;
        let mut budget = Budget::new(store, header::NAME, self.address)?;
        self.walk(store, &index_block, 0..end, &mut budget, &mut |block, _| {
            if let Block::Data(block) = block {
                written = written.saturating_add(block.elements(self.geometry.page_elements()));
            }
            Ok(ControlFlow::Continue(()))
        })?;
        let written = written.min(end);
        let set = paged_elements::estimate(end, written, &mut |start, f| self.iterate_from(store, start, f), is_set)?;
        Ok(Estimate { entries: set, walked: written })
    }

    fn visit_data_block(
        &self,
        store: &Store,
        block: &DataBlockRef<'_>,
        start: u64,
        budget: &mut Budget,
        f: &mut Visit<'_>,
    ) -> Result<ControlFlow<()>> {
        let info = block.info;
        let first = self.geometry.first_element(info).saturating_add(block.number.saturating_mul(info.data_block_elements));
        if info.pages == 0 {
            return visit(&self.data_block(store, block.address, info)?.elements, first, start, f);
        }
        let mut next = start.saturating_sub(first) / self.geometry.page_elements().max(1);
        // The super block's bitmap was read from the file: its length bounds this loop.
        while let Some(page) = block.next_page(next) {
            budget.spend(self.geometry.page_size())?;
            let elements = self.page(block.address, page)?.cached(store)?;
            let first = first.saturating_add(page.saturating_mul(self.geometry.page_elements()));
            if visit(&elements, first, start, f)?.is_break() {
                return Ok(ControlFlow::Break(()));
            }
            next = page.saturating_add(1);
        }
        Ok(ControlFlow::Continue(()))
    }
}
