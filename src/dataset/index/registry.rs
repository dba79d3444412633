//! Opens the chunk index of a dataset.

use super::records::Records;
use super::traits::ChunkIndex;
use super::{btree1, btree2, earray, farray, implicit, single};
use crate::base::{Address, Error, Result};
use crate::dataset::chunk::grid::ChunkGrid;
use crate::format::chunk_record::RecordShape;
use crate::format::message::data_layout::{ChunkedLayout, DataLayout, IndexInfo, Layout, NAME};

/// Opens the index that `layout` names. `shape`: fields of its records. Errors: a layout that is
/// not chunked, or contradicts the grid.
pub(crate) fn open(layout: &DataLayout, grid: &ChunkGrid, shape: RecordShape) -> Result<Box<dyn ChunkIndex>> {
    let Layout::Chunked(chunked) = &layout.class else {
        return Err(Error::unsupported(NAME, Address::UNDEF, "the storage is not chunked"));
    };
    let address = chunked.index.address();
    if chunked.chunk_dims != grid.chunk_dims {
        let detail = format!("chunk dimensions {:?}, the dataset's are {:?}", chunked.chunk_dims, grid.chunk_dims);
        return Err(Error::corrupt(NAME, address, detail));
    }
    let records = Records { version: layout.version, chunk_bytes: grid.chunk_bytes()?, shape };
    open_chunked(chunked, grid, records)
}

fn open_chunked(chunked: &ChunkedLayout, grid: &ChunkGrid, records: Records) -> Result<Box<dyn ChunkIndex>> {
    let grid = grid.clone();
    Ok(match chunked.index {
        IndexInfo::BTree1 { address } => Box::new(btree1::Index::new(address, grid, records)?),
        IndexInfo::Single { address, stored } => Box::new(single::Index::new(address, stored, grid, records)),
        IndexInfo::Implicit { address } => Box::new(implicit::Index::new(address, grid, records)?),
        IndexInfo::FixedArray { address, .. } => Box::new(farray::Index::new(address, grid, records)?),
        IndexInfo::ExtensibleArray { address, .. } => Box::new(earray::Index::new(address, grid, records)?),
        IndexInfo::BTree2 { address, .. } => Box::new(btree2::Index::new(address, grid, records)),
    })
}
