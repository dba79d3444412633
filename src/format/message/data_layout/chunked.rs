//! Chunked layout of the data layout message, and the parameters of its chunk index.
//!
//! ```text
//! v3:     n | B-tree address O | n x dimension u32
//! v4, v5: flags | n | E | n x dimension E bytes | index type | index information | address O
//!         type 1 single chunk:     flags bit 1: size L, filter mask u32
//!              2 implicit:         -
//!              3 fixed array:      page bits
//!              4 extensible array: max bits | index elements | min super pointers |
//!                                  min elements | page bits
//!              5 version 2 B-tree: node size u32 | split % | merge %
//! v5, class 4: see `structured`
//! ```
//!
//! n is the rank plus one: the last dimension is the element size in bytes. The extensible array's
//! own header stores the third and fourth parameter in the opposite order.

use super::{DIMS_MAX, unencodable};
use crate::base::{Address, Result};
use crate::format::chunk_record::StoredForm;
use crate::format::{Context, Reader, Writer};

/// Flag: chunks that extend past the dataset's extent are stored unfiltered.
pub const DONT_FILTER_PARTIAL_EDGE_CHUNKS: u8 = 0x01;
/// Flag: the message has the single chunk's size and filter mask.
pub const SINGLE_INDEX_WITH_FILTER: u8 = 0x02;

/// Chunk shape and index of a chunked dataset.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChunkedLayout {
    /// `DONT_FILTER_PARTIAL_EDGE_CHUNKS`, `SINGLE_INDEX_WITH_FILTER`; 0 before version 4.
    pub flags: u8,
    /// Chunk dimensions in elements, one for each dimension of the dataspace; none is 0.
    pub chunk_dims: Vec<u64>,
    /// Size of an element, bytes.
    pub element_size: u64,
    /// Width of a stored dimension, bytes (version 4 and later; 4 before).
    pub dim_width: u8,
    /// The chunk index.
    pub index: IndexInfo,
    /// Number of sections of structured chunks (class 4); `None`: ordinary chunks (class 2).
    pub sections: Option<u8>,
}

/// A chunk index: its kind, parameters and address (undefined: no chunk is allocated).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IndexInfo {
    /// Version 1 B-tree (layout versions 1 to 3).
    BTree1 {
        /// Address of the root node.
        address: Address,
    },
    /// One chunk, no index.
    Single {
        /// Address of the chunk.
        address: Address,
        /// Stored size in bytes and how the bytes are decoded, if the chunk has filters or
        /// sections.
        stored: Option<(u64, StoredForm)>,
    },
    /// All chunks contiguous, without an index.
    Implicit {
        /// Address of the first chunk.
        address: Address,
    },
    /// Fixed array.
    FixedArray {
        /// Address of the header.
        address: Address,
        /// log2 of the number of elements in a data block page.
        page_bits: u8,
    },
    /// Extensible array.
    ExtensibleArray {
        /// Address of the header.
        address: Address,
        /// log2 of the largest number of elements.
        max_bits: u8,
        /// Number of elements in the index block.
        index_elements: u8,
        /// Fewest data block pointers in a super block.
        min_super_pointers: u8,
        /// Fewest elements in a data block.
        min_elements: u8,
        /// log2 of the number of elements in a data block page.
        page_bits: u8,
    },
    /// Version 2 B-tree, record types 10 to 13.
    BTree2 {
        /// Address of the header.
        address: Address,
        /// Size of a node, bytes.
        node_size: u32,
        /// Percentage of a node's records above which it is split.
        split: u8,
        /// Percentage below which nodes are merged.
        merge: u8,
    },
}

impl IndexInfo {
    /// Address of the index, or of the chunks when there is no index.
    pub fn address(&self) -> Address {
        match *self {
            IndexInfo::BTree1 { address }
            | IndexInfo::Single { address, .. }
            | IndexInfo::Implicit { address }
            | IndexInfo::FixedArray { address, .. }
            | IndexInfo::ExtensibleArray { address, .. }
            | IndexInfo::BTree2 { address, .. } => address,
        }
    }

    fn code(&self) -> u8 {
        match self {
            IndexInfo::BTree1 { .. } => 0,
            IndexInfo::Single { .. } => 1,
            IndexInfo::Implicit { .. } => 2,
            IndexInfo::FixedArray { .. } => 3,
            IndexInfo::ExtensibleArray { .. } => 4,
            IndexInfo::BTree2 { .. } => 5,
        }
    }

    /// Decodes an index. `single`: decodes the properties of a single chunk.
    pub(super) fn decode(
        r: &mut Reader<'_>,
        ctx: &Context,
        single: &mut dyn FnMut(&mut Reader<'_>) -> Result<Option<(u64, StoredForm)>>,
    ) -> Result<Self> {
        let code = r.u8()?;
        // The address comes last, so each arm reads its parameters first.
        Ok(match code {
            1 => {
                let stored = single(r)?;
                IndexInfo::Single { address: r.addr(ctx)?, stored }
            }
            2 => IndexInfo::Implicit { address: r.addr(ctx)? },
            3 => {
                let [page_bits] = Self::parameters(r)?;
                IndexInfo::FixedArray { address: r.addr(ctx)?, page_bits }
            }
            4 => {
                let [max_bits, index_elements, min_super_pointers, min_elements, page_bits] = Self::parameters(r)?;
                let address = r.addr(ctx)?;
                IndexInfo::ExtensibleArray { address, max_bits, index_elements, min_super_pointers, min_elements, page_bits }
            }
            5 => {
                let node_size = r.u32()?;
                let [split, merge] = Self::parameters(r)?;
                if split > 100 || merge > 100 {
                    return Err(r.corrupt(format!("split {split} %, merge {merge} %")));
                }
                IndexInfo::BTree2 { address: r.addr(ctx)?, node_size, split, merge }
            }
            _ => return Err(r.corrupt(format!("chunk index type {code}"))),
        })
    }

    fn parameters<const N: usize>(r: &mut Reader<'_>) -> Result<[u8; N]> {
        let p = r.array::<N>()?;
        if p.contains(&0) { Err(r.corrupt("a chunk index parameter is 0")) } else { Ok(p) }
    }

    /// Encodes the index. `single`: encodes the properties of a single chunk.
    pub(super) fn encode(&self, w: &mut Writer, ctx: &Context, single: &dyn Fn(&mut Writer, u64, StoredForm)) {
        w.u8(self.code());
        match *self {
            IndexInfo::BTree1 { .. } | IndexInfo::Implicit { .. } => {}
            IndexInfo::Single { stored, .. } => {
                if let Some((size, form)) = stored {
                    single(w, size, form);
                }
            }
            IndexInfo::FixedArray { page_bits, .. } => {
                w.u8(page_bits);
            }
            IndexInfo::ExtensibleArray { max_bits, index_elements, min_super_pointers, min_elements, page_bits, .. } => {
                w.bytes(&[max_bits, index_elements, min_super_pointers, min_elements, page_bits]);
            }
            IndexInfo::BTree2 { node_size, split, merge, .. } => {
                w.u32(node_size).u8(split).u8(merge);
            }
        }
        w.addr(self.address(), ctx);
    }
}

impl ChunkedLayout {
    /// Size of a chunk before filters, bytes; `decode` rejects sizes past 2^64.
    #[cfg(test)]
    pub fn chunk_bytes(&self) -> u64 {
        self.chunk_dims.iter().fold(self.element_size, |n, &d| n.saturating_mul(d))
    }

    pub(super) fn new(r: &Reader<'_>, flags: u8, mut dims: Vec<u64>, dim_width: u8, index: IndexInfo) -> Result<Self> {
        if dims.contains(&0) {
            return Err(r.corrupt("a chunk dimension is 0"));
        }
        if dims.iter().try_fold(1u64, |n, &d| n.checked_mul(d)).is_none() {
            return Err(r.corrupt("a chunk exceeds 2^64 bytes"));
        }
        match dims.pop() {
            Some(element_size) if !dims.is_empty() => {
                Ok(ChunkedLayout { flags, chunk_dims: dims, element_size, dim_width, index, sections: None })
            }
            _ => Err(r.corrupt("chunked storage of rank 0")),
        }
    }

    fn rank_plus_one(r: &mut Reader<'_>) -> Result<usize> {
        let n = usize::from(r.u8()?);
        if (2..=DIMS_MAX).contains(&n) { Ok(n) } else { Err(r.corrupt(format!("{n} chunk dimensions"))) }
    }

    pub(super) fn from_btree1(r: &Reader<'_>, dims: &[u32], address: Address) -> Result<Self> {
        Self::new(r, 0, dims.iter().map(|&d| u64::from(d)).collect(), 4, IndexInfo::BTree1 { address })
    }

    pub(super) fn decode_v3(r: &mut Reader<'_>, ctx: &Context) -> Result<Self> {
        let n = Self::rank_plus_one(r)?;
        let address = r.addr(ctx)?;
        let dims = (0..n).map(|_| r.u32()).collect::<Result<Vec<u32>>>()?;
        Self::from_btree1(r, &dims, address)
    }

    /// Flags, and chunk dimensions with the element size and their width.
    pub(super) fn decode_dims(r: &mut Reader<'_>) -> Result<(u8, Vec<u64>, u8)> {
        let flags = r.u8()?;
        if flags & !(DONT_FILTER_PARTIAL_EDGE_CHUNKS | SINGLE_INDEX_WITH_FILTER) != 0 {
            return Err(r.unsupported(format!("chunked layout flags {flags:#04x}")));
        }
        let n = Self::rank_plus_one(r)?;
        let dim_width = r.u8()?;
        if !(1..=8).contains(&dim_width) {
            return Err(r.corrupt(format!("chunk dimensions of {dim_width} bytes")));
        }
        let dims = (0..n).map(|_| r.uint(usize::from(dim_width))).collect::<Result<Vec<u64>>>()?;
        Ok((flags, dims, dim_width))
    }

    pub(super) fn decode_v4(r: &mut Reader<'_>, ctx: &Context) -> Result<Self> {
        let (flags, dims, dim_width) = Self::decode_dims(r)?;
        let has_mask = flags & SINGLE_INDEX_WITH_FILTER != 0;
        let mut single = |r: &mut Reader<'_>| {
            let stored = |size, filter_mask| (size, StoredForm::Whole { filter_mask });
            if has_mask { Ok(Some(stored(r.length(ctx)?, r.u32()?))) } else { Ok(None) }
        };
        let index = IndexInfo::decode(r, ctx, &mut single)?;
        Self::new(r, flags, dims, dim_width, index)
    }

    /// Chunk dimensions and element size as in version 1 to 3 messages.
    pub(super) fn dims_u32(&self) -> Result<Vec<u32>> {
        let all = self.chunk_dims.iter().chain([&self.element_size]);
        all.map(|&d| u32::try_from(d).map_err(|_| unencodable("a chunk dimension exceeds 32 bits"))).collect()
    }

    pub(super) fn encode(&self, w: &mut Writer, ctx: &Context, version: u8) -> Result<()> {
        let n = u8::try_from(self.chunk_dims.len().saturating_add(1)).map_err(|_| unencodable("more than 254 dimensions"))?;
        if matches!(self.index, IndexInfo::BTree1 { .. }) != (version == 3) {
            return Err(unencodable("a version 1 B-tree goes with version 3, other indexes with 4 and 5"));
        }
        if version == 3 {
            w.u8(n).addr(self.index.address(), ctx);
            for d in self.dims_u32()? {
                w.u32(d);
            }
            return Ok(());
        }
        if matches!(self.index, IndexInfo::Single { stored: Some(_), .. }) && self.flags & SINGLE_INDEX_WITH_FILTER == 0 {
            return Err(unencodable("a filtered single chunk without its flag"));
        }
        self.encode_dims(w)?;
        self.index.encode(w, ctx, &|w, size, form| {
            let filter_mask = if let StoredForm::Whole { filter_mask } = form { filter_mask } else { 0 };
            w.length(size, ctx).u32(filter_mask);
        });
        Ok(())
    }

    /// Encodes flags, chunk dimensions and element size.
    pub(super) fn encode_dims(&self, w: &mut Writer) -> Result<()> {
        let n = u8::try_from(self.chunk_dims.len().saturating_add(1)).map_err(|_| unencodable("more than 254 dimensions"))?;
        w.u8(self.flags).u8(n).u8(self.dim_width);
        for &d in self.chunk_dims.iter().chain([&self.element_size]) {
            let bits = u32::from(self.dim_width).saturating_mul(8);
            if d.checked_shr(bits).unwrap_or(0) != 0 {
                return Err(unencodable("a chunk dimension exceeds its width"));
            }
            w.uint(d, usize::from(self.dim_width));
        }
        Ok(())
    }
}
