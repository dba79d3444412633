//! Changes chunk indexes: inserts, replaces and removes records of chunks.
//!
//! The first record creates the index; [`delete`] frees it. The caller stores and frees the chunks
//! themselves, and writes the layout message again if [`Changed::layout`] is set. The grid's extent
//! must contain the chunk: a dataset that shrinks removes its chunks before its extent changes.

use super::btree2::UNFILTERED_RECORD_TYPE;
use super::linear::Linear;
use super::records::Records;
use super::registry::open;
use crate::base::{Address, Error, Result};
use crate::dataset::chunk::grid::ChunkGrid;
use crate::format::btree1::ChunkKey;
use crate::format::chunk_record::{ChunkRecord, RecordFormat, RecordShape, Sections, StoredForm};
use crate::format::message::data_layout::{ChunkedLayout, DataLayout, IndexInfo, Layout, NAME, SINGLE_INDEX_WITH_FILTER};
use crate::meta::Store;
use crate::structures::btree1::edit::{self as btree1_edit, ChunkTree};
use crate::structures::btree2::edit as btree2_edit;
use crate::structures::earray::edit as earray_edit;
use crate::structures::farray::edit as farray_edit;
use std::cmp::Ordering;

pub(crate) use super::plan::plan;

/// Result of a change of the index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Changed {
    /// The layout message must be written again.
    pub(crate) layout: bool,
    /// The chunk's record before the change.
    pub(crate) old: Option<ChunkRecord>,
}

/// Sets the record of the chunk `scaled`. `k`: the superblock's K of chunk B-trees.
///
/// Errors, before any change: a chunk outside the extent, or a record that the index cannot encode.
/// `Unsupported` for an implicit index, unless the chunk already has this record.
pub(crate) fn insert(
    store: &Store,
    layout: &mut DataLayout,
    grid: &ChunkGrid,
    shape: RecordShape,
    k: u16,
    scaled: &[u64],
    record: ChunkRecord,
) -> Result<Changed> {
    let edit = Edit::new(store, layout, grid, shape, k, scaled)?;
    edit.check(layout, &record)?;
    let old = edit.old;
    let chunked = chunked(layout)?;
    let before = (chunked.index, chunked.flags);
    match &mut chunked.index {
        IndexInfo::Single { address, stored } => {
            (*address, *stored) = (record.address, shape.has_sizes().then_some((record.size, record.form)));
            if shape.is_filtered() {
                chunked.flags |= SINGLE_INDEX_WITH_FILTER;
            }
        }
        IndexInfo::Implicit { address } => {
            if old != Some(record) {
                return Err(Error::unsupported(NAME, *address, "a chunk of an implicit index cannot be placed freely"));
            }
        }
        index => {
            let address = index.address();
            let fresh = !address.is_defined();
            let address = if fresh { edit.create(index)? } else { address };
            if let Err(error) = edit.put(index, address, record) {
                if fresh {
                    edit.destroy(index, address)?;
                }
                return Err(error);
            }
            set_address(index, address);
        }
    }
    Ok(Changed { layout: (chunked.index, chunked.flags) != before, old })
}

/// Refuses a chunk past the index's capacity: an extensible array has a maximum number of elements.
pub(crate) fn check_capacity(layout: &DataLayout, grid: &ChunkGrid, scaled: &[u64]) -> Result<()> {
    let Layout::Chunked(ChunkedLayout { index: IndexInfo::ExtensibleArray { max_bits, address, .. }, .. }) = &layout.class else {
        return Ok(());
    };
    let number = Linear::new(grid, 1, NAME, *address)?.index(scaled);
    if number.is_some_and(|n| u32::from(*max_bits) < u64::BITS && n >> *max_bits != 0) {
        return Err(Error::refused(libc::EFBIG, format!("the dataset's chunk index is full with 2^{max_bits} chunks: use larger chunks")));
    }
    Ok(())
}

/// Removes the record of the chunk `scaled`, if there is one. An implicit index does not change,
/// and `old` is `None`.
pub(crate) fn remove(
    store: &Store,
    layout: &mut DataLayout,
    grid: &ChunkGrid,
    shape: RecordShape,
    k: u16,
    scaled: &[u64],
) -> Result<Changed> {
    let edit = Edit::new(store, layout, grid, shape, k, scaled)?;
    let chunked = chunked(layout)?;
    let implicit = matches!(chunked.index, IndexInfo::Implicit { .. });
    let Some(old) = edit.old.filter(|_| !implicit) else { return Ok(Changed { layout: false, old: None }) };
    let single = matches!(chunked.index, IndexInfo::Single { .. });
    if single {
        chunked.index = reset(chunked.index);
    } else {
        edit.take(&chunked.index)?;
    }
    Ok(Changed { layout: single, old: Some(old) })
}

/// Frees the index's own structures, not the chunks, and resets the index address in the layout.
pub(crate) fn delete(store: &Store, layout: &mut DataLayout, grid: &ChunkGrid, shape: RecordShape, k: u16) -> Result<()> {
    open(layout, grid, shape)?;
    let edit = Edit::without_chunk(store, layout, grid, shape, k)?;
    let chunked = chunked(layout)?;
    let address = chunked.index.address();
    if address.is_defined() {
        edit.destroy(&chunked.index, address)?;
    }
    chunked.index = reset(chunked.index);
    Ok(())
}

fn chunked(layout: &mut DataLayout) -> Result<&mut ChunkedLayout> {
    match &mut layout.class {
        Layout::Chunked(chunked) => Ok(chunked),
        _ => Err(Error::unsupported(NAME, Address::UNDEF, "the storage is not chunked")),
    }
}

fn set_address(index: &mut IndexInfo, to: Address) {
    match index {
        IndexInfo::BTree1 { address }
        | IndexInfo::Single { address, .. }
        | IndexInfo::Implicit { address }
        | IndexInfo::FixedArray { address, .. }
        | IndexInfo::ExtensibleArray { address, .. }
        | IndexInfo::BTree2 { address, .. } => *address = to,
    }
}

/// Resets an index to its state before the first chunk is stored.
fn reset(mut index: IndexInfo) -> IndexInfo {
    set_address(&mut index, Address::UNDEF);
    if let IndexInfo::Single { stored: Some((size, form)), .. } = &mut index {
        let absent = if let StoredForm::Sections(_) = form { StoredForm::Sections(Sections::default()) } else { StoredForm::WHOLE };
        (*size, *form) = (0, absent);
    }
    index
}

/// One change of a dataset's index.
struct Edit<'a> {
    store: &'a Store,
    grid: &'a ChunkGrid,
    records: Records,
    format: RecordFormat,
    k: u16,
    scaled: &'a [u64],
    /// The chunk's record before the change.
    old: Option<ChunkRecord>,
}

impl<'a> Edit<'a> {
    fn without_chunk(store: &'a Store, layout: &DataLayout, grid: &'a ChunkGrid, shape: RecordShape, k: u16) -> Result<Self> {
        let records = Records { version: layout.version, chunk_bytes: grid.chunk_bytes()?, shape };
        Ok(Edit { store, grid, records, format: records.format(store.ctx()), k, scaled: &[], old: None })
    }

    fn new(store: &'a Store, layout: &DataLayout, grid: &'a ChunkGrid, shape: RecordShape, k: u16, scaled: &'a [u64]) -> Result<Self> {
        // Also checks that index, layout and grid agree.
        let index = open(layout, grid, shape)?;
        if !grid.contains(scaled) {
            return Err(Error::unsupported(NAME, Address::UNDEF, format!("chunk {scaled:?} lies outside the extent {:?}", grid.shape)));
        }
        let old = index.lookup(store, scaled)?;
        Ok(Edit { scaled, old, ..Self::without_chunk(store, layout, grid, shape, k)? })
    }

    /// Checks that the index can encode `record`.
    fn check(&self, layout: &DataLayout, record: &ChunkRecord) -> Result<()> {
        let bad = |detail: String| Err(Error::unsupported(NAME, record.address, detail));
        let ChunkRecord { address, size, form } = *record;
        let end = address.checked_add(size);
        let widest = u32::from(self.store.ctx().sizeof_addr).saturating_mul(8);
        if end.is_none_or(|end| end.0.checked_shr(widest).unwrap_or(0) != 0) || size == 0 {
            return bad(format!("a chunk of {size} bytes, which is empty or ends past the address space"));
        }
        if !self.records.shape.has_sizes() {
            let whole = size == self.records.chunk_bytes && form == StoredForm::WHOLE;
            return if whole { Ok(()) } else { bad(format!("{size} bytes, {form:?} of a chunk without filters")) };
        }
        if matches!(form, StoredForm::Sections(_)) != self.records.shape.sections().is_some() {
            return bad(format!("{form:?} in an index of {:?}", self.records.shape));
        }
        let single = matches!(&layout.class, Layout::Chunked(c) if matches!(c.index, IndexInfo::Single { .. }));
        let width = match self.format {
            RecordFormat::Sections { size_width, .. } => size_width,
            RecordFormat::Filtered { size_width } if layout.version == 4 && !single => size_width.min(4),
            // Before version 5 libhdf5 keeps sizes in 32 bits, whatever the width of the field.
            _ if layout.version < 5 => 4,
            _ => self.store.ctx().sizeof_size,
        };
        if size.checked_shr(u32::from(width).saturating_mul(8)).unwrap_or(0) != 0 {
            return bad(format!("a chunk of {size} bytes, its size is stored in {width} bytes"));
        }
        Ok(())
    }

    /// Creates an index without records.
    fn create(&self, index: &IndexInfo) -> Result<Address> {
        let (store, format, ctx) = (self.store, self.format, self.store.ctx());
        let (client, size) = (format.client(), format.element_size(ctx));
        let element_size = u8::try_from(size).map_err(|_| Error::limit(NAME, Address::UNDEF, "elements of 256 bytes"))?;
        match *index {
            IndexInfo::FixedArray { page_bits, .. } => {
                let elements = self.grid.max_total().ok_or_else(|| Error::limit(NAME, Address::UNDEF, "2^64 chunks or more"))?;
                farray_edit::create(store, client, element_size, page_bits, elements)
            }
            IndexInfo::ExtensibleArray { max_bits, index_elements, min_super_pointers, min_elements, page_bits, .. } => {
                let creation =
                    earray_edit::Creation { client, element_size, max_bits, index_elements, min_elements, min_super_pointers, page_bits };
                earray_edit::create(store, &creation)
            }
            IndexInfo::BTree1 { .. } => btree1_edit::create_chunk_tree(store, self.grid.rank(), self.k),
            IndexInfo::BTree2 { node_size, split, merge, .. } => {
                let size = u16::try_from(format.btree2_size(self.grid.rank(), ctx)).unwrap_or(u16::MAX);
                btree2_edit::create(store, UNFILTERED_RECORD_TYPE.saturating_add(client), size, node_size, split, merge)
            }
            IndexInfo::Single { .. } | IndexInfo::Implicit { .. } => {
                Err(Error::unsupported(NAME, Address::UNDEF, "the index has no structures"))
            }
        }
    }

    /// Inserts or replaces the record in the index at `address`.
    fn put(&self, index: &IndexInfo, address: Address, record: ChunkRecord) -> Result<()> {
        match index {
            IndexInfo::FixedArray { .. } | IndexInfo::ExtensibleArray { .. } => self.set(index, address, Some(record)),
            IndexInfo::BTree2 { .. } => {
                let encoded = self.format.encode_btree2(record, self.scaled, self.store.ctx());
                if self.old.is_none() {
                    return btree2_edit::insert(self.store, address, &encoded, &mut |r| self.compare(r));
                }
                let found = btree2_edit::replace(self.store, address, &mut |r| self.compare(r), &encoded)?;
                if found { Ok(()) } else { Err(self.inconsistent(address)) }
            }
            IndexInfo::BTree1 { .. } => {
                let size = u32::try_from(record.size).map_err(|_| Error::limit(NAME, address, "a chunk of 4 GiB"))?;
                let key = ChunkKey { size, filter_mask: record.filter_mask(), offsets: self.offsets()? };
                btree1_edit::insert_chunk(self.store, &self.tree(address, &self.dims()), &key, record.address).map(drop)
            }
            IndexInfo::Single { .. } | IndexInfo::Implicit { .. } => Ok(()),
        }
    }

    /// Order of a version 2 B-tree's record relative to the chunk.
    fn compare(&self, record: &[u8]) -> Result<Ordering> {
        Ok(self.format.btree2_scaled(record, self.store.ctx()).cmp(self.scaled.iter().copied()))
    }

    fn inconsistent(&self, address: Address) -> Error {
        Error::corrupt(NAME, address, format!("chunk {:?} was found by a lookup, but not by the change of its record", self.scaled))
    }

    /// Removes the record, which exists, from the index.
    fn take(&self, index: &IndexInfo) -> Result<()> {
        let address = index.address();
        match index {
            IndexInfo::FixedArray { .. } | IndexInfo::ExtensibleArray { .. } => self.set(index, address, None),
            IndexInfo::BTree2 { .. } => match btree2_edit::remove(self.store, address, &mut |r| self.compare(r))? {
                Some(_) => Ok(()),
                None => Err(self.inconsistent(address)),
            },
            IndexInfo::BTree1 { .. } => match btree1_edit::remove_chunk(self.store, &self.tree(address, &self.dims()), &self.offsets()?)? {
                Some(_) => Ok(()),
                None => Err(self.inconsistent(address)),
            },
            IndexInfo::Single { .. } | IndexInfo::Implicit { .. } => Ok(()),
        }
    }

    /// Sets an element of an array index.
    fn set(&self, index: &IndexInfo, address: Address, record: Option<ChunkRecord>) -> Result<()> {
        let element = self.format.encode_element(record, self.store.ctx());
        let unlimited = usize::from(matches!(index, IndexInfo::ExtensibleArray { .. }));
        let number = Linear::new(self.grid, unlimited, NAME, address)?.index(self.scaled);
        let number = number.ok_or_else(|| Error::limit(NAME, address, format!("chunk {:?} has no number", self.scaled)))?;
        match unlimited {
            0 => farray_edit::set(self.store, address, number, &element),
            _ => earray_edit::set(self.store, address, number, &element),
        }
    }

    /// Frees the index's structures.
    fn destroy(&self, index: &IndexInfo, address: Address) -> Result<()> {
        match index {
            IndexInfo::FixedArray { .. } => farray_edit::delete(self.store, address),
            IndexInfo::ExtensibleArray { .. } => earray_edit::delete(self.store, address),
            IndexInfo::BTree2 { .. } => btree2_edit::delete_tree(self.store, address),
            IndexInfo::BTree1 { .. } => btree1_edit::delete_tree(self.store, &self.tree(address, &self.dims())),
            IndexInfo::Single { .. } | IndexInfo::Implicit { .. } => Ok(()),
        }
    }

    fn tree<'b>(&self, root: Address, dims: &'b [u64]) -> ChunkTree<'b> {
        ChunkTree { root, k: self.k, dims }
    }

    /// Chunk dimensions of a version 1 B-tree, followed by the element size.
    fn dims(&self) -> Vec<u64> {
        self.grid.chunk_dims.iter().copied().chain([self.grid.element_size]).collect()
    }

    /// Offsets of the chunk's key in a version 1 B-tree.
    fn offsets(&self) -> Result<Vec<u64>> {
        let mut offsets = self.grid.origin(self.scaled).ok_or_else(|| Error::limit(NAME, Address::UNDEF, "a chunk past 2^64"))?;
        offsets.push(0);
        Ok(offsets)
    }
}
