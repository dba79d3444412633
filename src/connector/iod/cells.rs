//! Variable-length cells: blocks of payloads, to which the elements of datasets and attributes
//! refer.
//!
//! ```text
//! block  count u32 | end of each payload in the bytes, u32 | bytes of all payloads
//! ```
//!
//! An element is the descriptor of the file format: `u32 count | block u64 | index u32`. References
//! have the object's id plus 1 in place of an address, because 0 is nil.

use super::dataset::Dataset;
use super::decoding::{extent_key, permit};
use super::ids::no_such;
use super::object_access::ObjectAccess;
use super::paths;
use super::state::State;
use super::states::States;
use crate::base::fill::Fill;
use crate::base::parts::Budget;
use crate::base::shape::Shape;
use crate::base::value::Elements;
use crate::base::{Address, Error, Result};
use crate::dataset::chunk::image::{ChunkImage, DenseImage};
use crate::dataset::heap::{Heap, HeapStore};
use crate::format::{Context, Reader, Writer};
use crate::iod::limits::{CELLS_BYTES_MAX, check_extent};
use crate::iod::{Data, Key, keys};
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Bytes after which a block is complete.
const BLOCK_BYTES: usize = 256 << 10;
/// Elements whose cells are looked up at a time.
const PIECE_ELEMENTS: u64 = 1 << 10;
/// Number of the block of an attribute, which is stored beside its elements.
const OWN_BLOCK: u64 = 1;

/// Encodes a block.
pub(super) fn encode_block(payloads: &[Vec<u8>]) -> Result<Vec<u8>> {
    let too_large = || Error::refused(libc::EFBIG, "variable-length elements of 4 GiB");
    let mut w = Writer::new();
    w.u32(u32::try_from(payloads.len()).map_err(|_| too_large())?);
    let mut end = 0u32;
    for payload in payloads {
        end = u32::try_from(payload.len()).ok().and_then(|n| end.checked_add(n)).ok_or_else(too_large)?;
        w.u32(end);
    }
    for payload in payloads {
        w.bytes(payload);
    }
    Ok(w.into_bytes())
}

/// Payload `index` of a block.
pub(super) fn payload(block: &[u8], index: u32, at: u64) -> Result<&[u8]> {
    let mut r = Reader::new(block, "block of cells", Address(at));
    let count = r.u32()?;
    let mut ends = r.sub((count as usize).saturating_mul(4))?;
    if index >= count {
        return Err(r.corrupt(format!("it has {count} cells, and not number {index}")));
    }
    let start = match index.checked_sub(1) {
        Some(before) => {
            ends.skip((before as usize).saturating_mul(4))?;
            ends.u32()?
        }
        None => 0,
    };
    let range = start as usize..ends.u32()? as usize;
    r.rest().get(range).ok_or_else(|| r.corrupt("a cell is outside of it"))
}

/// Errors: a block of the object `at` does not decode.
pub(super) fn check_block(block: &[u8], at: u64) -> Result<()> {
    let mut r = Reader::new(block, "block of cells", Address(at));
    let count = r.u32()?;
    let mut ends = r.sub((count as usize).saturating_mul(4))?;
    let (bytes, mut last) = (r.rest().len(), 0);
    for _ in 0..count {
        let end = ends.u32()?;
        if end < last || end as usize > bytes {
            return Err(r.corrupt("a cell is outside of it"));
        }
        last = end;
    }
    Ok(())
}

/// Where the parts of elements are.
pub(super) enum Place {
    /// In blocks of this dataset.
    Dataset(u64),
    /// In this block, that of an attribute.
    Block(Vec<u8>),
}

/// Reads parts of elements.
pub(super) struct Cells {
    pub states: Arc<States>,
    pub objects: Arc<ObjectAccess>,
    pub place: Place,
}

/// Reads parts of elements in a state of the caller.
pub(super) struct StateCells<'a> {
    pub objects: &'a ObjectAccess,
    pub state: &'a State,
    pub place: &'a Place,
}

impl StateCells<'_> {
    fn cell(&self, block: u64, index: u32, budget: &mut Budget) -> Result<Vec<u8>> {
        let id = match self.place {
            Place::Block(bytes) => {
                let found = payload(bytes, index, block)?;
                budget.read(found.len() as u64)?;
                return Ok(found.to_vec());
            }
            Place::Dataset(id) => *id,
        };
        let key = keys::key(id, keys::CELLS, &block.to_be_bytes());
        let cell = self.state.get(&key)?.ok_or_else(|| Error::corrupt("variable-length element", Address(id), "its block is missing"))?;
        let loaded;
        let block_bytes = match &cell.data {
            Data::Inline(bytes) => bytes,
            Data::Extent(extent) => {
                check_extent("block of cells", extent, CELLS_BYTES_MAX)?;
                let c = self.objects;
                loaded = c.chunks.cached(extent_key(id, extent, true), extent.len.into(), &|| {
                    let _permit = permit(&c.env, extent.len.into());
                    c.container.read_within("block of cells", extent, CELLS_BYTES_MAX).map(DenseImage::boxed)
                })?;
                loaded.image().and_then(ChunkImage::dense).unwrap_or_default()
            }
        };
        let found = payload(block_bytes, index, block)?;
        budget.read(found.len() as u64)?;
        Ok(found.to_vec())
    }
}

impl Heap for StateCells<'_> {
    fn ctx(&self) -> &Context {
        &Context::DEFAULT
    }

    fn object(&self, collection: Address, index: u32, budget: &mut Budget) -> Result<Vec<u8>> {
        self.cell(collection.0, index, budget)
    }

    fn path(&self, address: Address) -> Option<Vec<u8>> {
        paths::present_path_of(&self.objects.derived, self.state, address.0.checked_sub(1)?)
    }
}

impl Heap for Cells {
    fn ctx(&self) -> &Context {
        &Context::DEFAULT
    }

    fn object(&self, collection: Address, index: u32, budget: &mut Budget) -> Result<Vec<u8>> {
        let state = self.states.shown();
        StateCells { objects: &self.objects, state: &state, place: &self.place }.cell(collection.0, index, budget)
    }

    fn path(&self, address: Address) -> Option<Vec<u8>> {
        let state = self.states.shown();
        paths::present_path_of(&self.objects.derived, &state, address.0.checked_sub(1)?)
    }
}

/// Reads cells and records their blocks.
struct Recorded<'a> {
    cells: StateCells<'a>,
    blocks: RefCell<BTreeSet<u64>>,
}

impl Heap for Recorded<'_> {
    fn ctx(&self) -> &Context {
        self.cells.ctx()
    }

    fn object(&self, collection: Address, index: u32, budget: &mut Budget) -> Result<Vec<u8>> {
        self.blocks.borrow_mut().insert(collection.0);
        self.cells.object(collection, index, budget)
    }

    fn path(&self, address: Address) -> Option<Vec<u8>> {
        self.cells.path(address)
    }
}

impl ObjectAccess {
    /// The blocks with the cells of the fill value of a dataset.
    fn fill_blocks(&self, state: &State, d: &Dataset) -> BTreeSet<u64> {
        let Fill::Value(fill) = &d.fill.fill else { return BTreeSet::new() };
        let place = Place::Dataset(d.id);
        let recorded = Recorded { cells: StateCells { objects: self, state, place: &place }, blocks: RefCell::default() };
        let element = Elements { datatype: &d.datatype, shape: &Shape::Scalar, bytes: fill };
        if let Err(e) = element.exact(&recorded) {
            tracing::debug!("dataset {}: its fill value cannot be read: {e}", d.id);
        }
        recorded.blocks.into_inner()
    }

    /// The blocks with cells that elements of a dataset or its fill value refer to, and the bytes
    /// of the exact form of all elements.
    pub(super) fn used_blocks(&self, state: &State, d: &Dataset) -> Result<(BTreeSet<u64>, u64)> {
        let place = Place::Dataset(d.id);
        let recorded = Recorded { cells: StateCells { objects: self, state, place: &place }, blocks: self.fill_blocks(state, d).into() };
        let (mut at, mut form_bytes) = (0u64, 0u64);
        while at < d.elements() {
            let n = d.elements().saturating_sub(at).min(PIECE_ELEMENTS);
            let mut bytes = vec![0; usize::try_from(n.saturating_mul(d.element_size)).unwrap_or(usize::MAX)];
            self.chunks.read_elements(state, d, at.saturating_mul(d.element_size), &mut bytes)?;
            let size = usize::try_from(d.element_size).unwrap_or(usize::MAX).max(1);
            for element in bytes.chunks_exact(size) {
                let element = Elements { datatype: &d.datatype, shape: &Shape::Scalar, bytes: element };
                form_bytes = form_bytes.saturating_add(element.exact(&recorded)?.len() as u64);
            }
            at = at.saturating_add(n);
        }
        Ok((recorded.blocks.into_inner(), form_bytes))
    }

    /// Removes the cells of the elements of a dataset; those of its fill value stay.
    pub(super) fn drop_cells(&self, state: &mut State, d: &Dataset) -> Result<()> {
        let kept = self.fill_blocks(state, d);
        let is_kept = |key: &Key| {
            let block = keys::parts(key).and_then(|(_, _, block)| block.try_into().ok());
            block.is_some_and(|block| kept.contains(&u64::from_be_bytes(block)))
        };
        let cells = state.keys(&keys::of_kind(d.id, keys::CELLS))?;
        cells.into_iter().filter(|key| !is_kept(key)).try_for_each(|key| state.remove(key))
    }
}

/// Stores parts of new elements.
pub(super) struct NewCells<'a> {
    pub state: &'a State,
    /// Blocks are those of a dataset, and have ids; else there is one.
    pub of_dataset: bool,
    /// A reference to an object that does not exist is nil, and is noted.
    pub lenient: bool,
    /// References to objects that do not exist.
    pub nowhere: Cell<bool>,
    /// Complete blocks of a dataset.
    pub blocks: Vec<(u64, Vec<u8>)>,
    current: Option<u64>,
    payloads: Vec<Vec<u8>>,
    bytes: usize,
}

impl<'a> NewCells<'a> {
    /// Those of a dataset, or of an attribute.
    pub fn new(state: &'a State, of_dataset: bool, lenient: bool) -> Self {
        let (blocks, payloads) = (Vec::new(), Vec::new());
        NewCells { state, of_dataset, lenient, nowhere: Cell::new(false), blocks, current: None, payloads, bytes: 0 }
    }

    fn complete(&mut self) -> Result<()> {
        if let Some(id) = self.current.take() {
            self.blocks.push((id, encode_block(&std::mem::take(&mut self.payloads))?));
            self.bytes = 0;
        }
        Ok(())
    }

    /// The blocks of a dataset.
    pub fn into_blocks(mut self) -> Result<Vec<(u64, Vec<u8>)>> {
        self.complete()?;
        Ok(self.blocks)
    }

    /// The block of an attribute.
    pub fn into_block(self) -> Result<Vec<u8>> {
        encode_block(&self.payloads)
    }
}

impl HeapStore for NewCells<'_> {
    fn sequence(&mut self, count: u32, payload: &[u8]) -> Result<Vec<u8>> {
        let mut w = Writer::new();
        if payload.is_empty() {
            w.u32(count).u64(0).u32(0);
            return Ok(w.into_bytes());
        }
        if self.of_dataset && self.bytes >= BLOCK_BYTES {
            self.complete()?;
        }
        let block = match (self.of_dataset, self.current) {
            (false, _) => OWN_BLOCK,
            (true, Some(block)) => block,
            (true, None) => *self.current.insert(self.state.new_id()?),
        };
        let index = u32::try_from(self.payloads.len()).map_err(|_| Error::refused(libc::EFBIG, "too many variable-length elements"))?;
        self.payloads.push(payload.to_vec());
        self.bytes = self.bytes.saturating_add(payload.len());
        w.u32(count).u64(block).u32(index);
        Ok(w.into_bytes())
    }

    fn object(&mut self, path: &[u8]) -> Result<Address> {
        let found = if path.starts_with(b"#") { None } else { paths::follow(self.state, 0, path, &mut 0).ok().flatten() };
        match found {
            Some(id) => Ok(Address(id.checked_add(1).ok_or_else(|| no_such(id, "there is no such object"))?)),
            None if self.lenient => {
                self.nowhere.set(true);
                Ok(Address(0))
            }
            None => Err(Error::refused(libc::EINVAL, "a reference leads to an object of the file")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_hold_payloads_and_damaged_ones_are_errors() {
        let payloads = [b"one".to_vec(), Vec::new(), b"three".to_vec()];
        let block = encode_block(&payloads).unwrap();
        for (i, wanted) in (0u32..).zip(&payloads) {
            assert_eq!(payload(&block, i, 9).unwrap(), wanted);
        }
        assert!(payload(&block, 3, 9).is_err());
        for len in 0..block.len() {
            assert!(payload(&block[..len], 2, 9).is_err());
        }
        for bit in 0..block.len() * 8 {
            let mut damaged = block.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            let _ = payload(&damaged, 2, 9);
        }
    }
}
