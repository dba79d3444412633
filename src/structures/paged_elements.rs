//! Pages of array elements, shared by fixed and extensible arrays.
//!
//! ```text
//! page: element | element | ... | checksum
//! ```
//!
//! A page is written when an element of it is set for the first time; a bitmap outside of the page
//! records that. Elements are opaque bytes of one size.

use crate::base::{Address, Error, Result};
use crate::format::elements::Elements;
use crate::meta::Store;
use crate::structures::estimate::sample_place;
use std::mem::size_of;
use std::ops::ControlFlow;
use std::sync::Arc;

/// Called with each element: index, encoded element. `Break` ends the walk.
pub type Visit<'a> = dyn FnMut(u64, &[u8]) -> Result<ControlFlow<()>> + 'a;

/// Visits elements from an index on.
pub(in crate::structures) type IterateFrom<'a> = dyn FnMut(u64, &mut Visit<'_>) -> Result<()> + 'a;

/// Samples of one estimate, and the elements of each.
const SAMPLES: (u64, u64) = (16, 1024);
/// Bytes of a page's checksum.
const CHECKSUM_BYTES: u64 = 4;

/// Place and shape of one page.
#[derive(Debug, Clone, Copy)]
pub(in crate::structures) struct Page {
    /// First byte.
    pub address: Address,
    /// Name in errors.
    pub structure: &'static str,
    /// Number of elements.
    pub count: u64,
    /// Bytes of an element.
    pub element_size: u8,
}

impl Page {
    fn mismatch(&self) -> Error {
        Error::corrupt(self.structure, self.address, format!("{} elements of {} bytes", self.count, self.element_size))
    }

    fn load(&self, store: &Store) -> Result<Elements> {
        let count = usize::try_from(self.count).map_err(|_| self.mismatch())?;
        let bytes = self.count.checked_mul(u64::from(self.element_size));
        let len = bytes.and_then(|n| n.checked_add(CHECKSUM_BYTES)).ok_or_else(|| self.mismatch())?;
        Elements::decode_page(&store.read(self.address, len, self.structure)?, self.structure, self.address, count, self.element_size)
    }

    /// The page from the store's cache, or read into it.
    pub fn cached(&self, store: &Store) -> Result<Arc<Elements>> {
        let page = store.cached(self.address, |store| {
            let page = self.load(store)?;
            let charge = size_of::<Elements>().saturating_add(page.byte_len());
            Ok((page, charge))
        })?;
        // A hostile file may reach one address from arrays that disagree about it.
        let fits = page.len() as u64 == self.count && page.element_size() == self.element_size;
        if fits { Ok(page) } else { Err(self.mismatch()) }
    }

    /// The page's elements for an edit: read if the page was `written`, else all unset.
    pub fn edit(&self, store: &Store, written: bool) -> Result<Elements> {
        // Checks the size against the limits before anything is read.
        let blank = Elements::blank(self.count, self.element_size, store.ctx(), self.structure, self.address)?;
        if written { self.load(store) } else { Ok(blank) }
    }
}

/// Replaces element `i` of `elements`; `array` is the array's address for errors.
pub(in crate::structures) fn set_element(elements: &mut Elements, i: u64, element: &[u8], array: Address) -> Result<()> {
    match usize::try_from(i) {
        Ok(i) if elements.set(i, element) => Ok(()),
        _ => Err(Error::corrupt("array elements", array, format!("no element {i} of {} bytes", element.len()))),
    }
}

/// Visits `elements` from index `start` on; the first one has index `first`.
pub(in crate::structures) fn visit(elements: &Elements, first: u64, start: u64, f: &mut Visit<'_>) -> Result<ControlFlow<()>> {
    let skipped = usize::try_from(start.saturating_sub(first)).unwrap_or(usize::MAX);
    for (i, index) in (skipped..elements.len()).zip(first.max(start)..) {
        if let Some(e) = elements.get(i)
            && f(index, e)?.is_break()
        {
            return Ok(ControlFlow::Break(()));
        }
    }
    Ok(ControlFlow::Continue(()))
}

/// Estimates how many elements of an array are set: the share that `is_set` among samples, of the
/// elements of its `written` blocks and pages. `end`: one more than the highest index.
pub(in crate::structures) fn estimate(
    end: u64,
    written: u64,
    iterate_from: &mut IterateFrom<'_>,
    is_set: &mut dyn FnMut(&[u8]) -> Result<bool>,
) -> Result<u64> {
    let (samples, elements) = SAMPLES;
    let (mut seen, mut set) = (0u64, 0u64);
    for i in 0..samples {
        let mut left = elements;
        iterate_from(sample_place(i, end), &mut |_, element| {
            seen = seen.saturating_add(1);
            set = set.saturating_add(u64::from(is_set(element)?));
            left = left.saturating_sub(1);
            Ok(if left == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
        })?;
    }
    // Blocks are written for elements that are set.
    let share = u128::from(written).saturating_mul(u128::from(set.max(1))).checked_div(u128::from(seen));
    Ok(u64::try_from(share.unwrap_or(0)).unwrap_or(u64::MAX))
}
