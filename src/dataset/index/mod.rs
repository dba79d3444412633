//! Chunk indexes: from a chunk's scaled offsets to its place in the file.
//!
//! One kind of index, one file. An index keeps no file content itself: headers and blocks come from
//! the store's cache, so a repeated lookup costs a few hash lookups and a lookup after
//! [`Store::forget`] sees the file as it is then.

mod btree1;
mod btree2;
mod earray;
mod farray;
mod implicit;
mod linear;
mod plan;
mod single;
#[cfg(test)]
mod tests;
pub mod write;
#[cfg(test)]
mod write_tests;

pub use crate::format::chunk_record::ChunkRecord;

use super::chunk::ChunkGrid;
use crate::base::{Address, Error, Result};
use crate::format::Context;
use crate::format::chunk_record::RecordFormat;
use crate::format::message::data_layout::{ChunkedLayout, DataLayout, IndexInfo, Layout, NAME};
use crate::meta::Store;
use std::ops::ControlFlow;

/// Called with each allocated chunk: scaled offsets, place. `Break` ends the walk.
pub type Visit<'a> = dyn FnMut(&[u64], ChunkRecord) -> Result<ControlFlow<()>> + 'a;

/// Finds the chunks of one dataset.
pub trait ChunkIndex: Send + Sync {
    /// The chunk with these scaled offsets; `None` when it is not allocated or outside the extent.
    fn lookup(&self, store: &Store, scaled: &[u64]) -> Result<Option<ChunkRecord>>;

    /// Visits every allocated chunk of the current extent, in any order. The work is bounded by what
    /// the file holds, not by the number of chunks the extent has room for.
    fn iterate(&self, store: &Store, f: &mut Visit<'_>) -> Result<()>;

    /// True when every chunk of the current extent is allocated, so that there is no need to visit them.
    fn is_complete(&self, _store: &Store) -> Result<bool> {
        Ok(false)
    }
}

/// The index that `layout` names, for a dataset of shape `grid`; `filtered`: it has a filter
/// pipeline. Errors: a layout that is not chunked, or does not fit the grid.
pub fn open(layout: &DataLayout, grid: &ChunkGrid, filtered: bool) -> Result<Box<dyn ChunkIndex>> {
    let Layout::Chunked(chunked) = &layout.class else {
        return Err(Error::unsupported(NAME, Address::UNDEF, "the storage is not chunked"));
    };
    let address = chunked.index.address();
    if chunked.chunk_dims != grid.chunk_dims {
        let detail = format!("chunk dimensions {:?}, the dataset's are {:?}", chunked.chunk_dims, grid.chunk_dims);
        return Err(Error::corrupt(NAME, address, detail));
    }
    let records = Records { version: layout.version, chunk_bytes: grid.chunk_bytes()?, filtered };
    open_chunked(chunked, grid, records)
}

fn open_chunked(chunked: &ChunkedLayout, grid: &ChunkGrid, records: Records) -> Result<Box<dyn ChunkIndex>> {
    let grid = grid.clone();
    Ok(match chunked.index {
        IndexInfo::BTree1 { address } => Box::new(btree1::Index::new(address, grid, records)?),
        IndexInfo::Single { address, filtered } => Box::new(single::Index::new(address, filtered, grid, records)),
        IndexInfo::Implicit { address } => Box::new(implicit::Index::new(address, grid, records)?),
        IndexInfo::FixedArray { address, .. } => Box::new(farray::Index::new(address, grid, records)?),
        IndexInfo::ExtensibleArray { address, .. } => Box::new(earray::Index::new(address, grid, records)?),
        IndexInfo::BTree2 { address, .. } => Box::new(btree2::Index::new(address, grid, records)),
    })
}

/// What decides how a dataset's chunk records are encoded.
#[derive(Debug, Clone, Copy)]
struct Records {
    /// Of the layout message.
    version: u8,
    chunk_bytes: u64,
    filtered: bool,
}

impl Records {
    fn format(&self, ctx: &Context) -> RecordFormat {
        RecordFormat::new(self.version, self.chunk_bytes, self.filtered, ctx)
    }

    /// The format, once an array's header agrees with it.
    fn array_format(&self, ctx: &Context, client: u8, element_size: u8, structure: &'static str, address: Address) -> Result<RecordFormat> {
        let format = self.format(ctx);
        if client == format.client() && usize::from(element_size) == format.element_size(ctx) {
            return Ok(format);
        }
        let detail = format!(
            "client {client} with elements of {element_size} bytes, the dataset implies client {} and {} bytes",
            format.client(),
            format.element_size(ctx)
        );
        Err(Error::corrupt(structure, address, detail))
    }
}
