//! Data layout message, 0x0008, versions 1 to 5 (H5.format.4.0, "The Data Layout Message").
//!
//! ```text
//! v1, v2: version | n | class | 0 x5 | address O (not compact) | n x dimension u32 |
//!         compact: size u32, data
//!         (chunked: the last dimension is the element size)
//! v3..v5: version | class |
//!         compact:    size u16, data
//!         contiguous: address O, size L
//!         chunked:    see `chunked`
//!         virtual:    global heap collection O, object index u32 (v4 and later)
//! v5:     structured: see `structured`
//! ```

mod chunked;
mod structured;
#[cfg(test)]
mod tests;

pub use chunked::{ChunkedLayout, DONT_FILTER_PARTIAL_EDGE_CHUNKS, IndexInfo, SINGLE_INDEX_WITH_FILTER};

use crate::base::{Address, Result, limits};
use crate::format::{Context, Reader, Writer};

/// Standard name, used in errors.
pub const NAME: &str = "data layout message";

/// Most dimensions in a message: the rank and the element size.
const DIMS_MAX: usize = limits::RANK_MAX + 1;

/// A decoded data layout message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DataLayout {
    /// 1 to 5.
    pub version: u8,
    /// Storage class and location of the raw data.
    pub class: Layout,
}

/// Storage of the raw data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Layout {
    /// In the message itself.
    Compact {
        /// The elements, row-major.
        data: Vec<u8>,
        /// Dimensions of a version 1 or 2 message, possibly truncated (the dataspace is
        /// authoritative); else empty.
        dims: Vec<u32>,
    },
    /// Contiguous in the file, or in external files.
    Contiguous {
        /// Address of the first byte; undefined when no space is allocated.
        address: Address,
        /// Size in bytes. `None` in versions 1 and 2: dataspace and datatype determine it.
        size: Option<u64>,
        /// Dimensions of a version 1 or 2 message, else empty.
        dims: Vec<u32>,
    },
    /// In chunks located by an index.
    Chunked(ChunkedLayout),
    /// In other datasets.
    Virtual {
        /// Address of the global heap collection with the mappings; undefined when there is none.
        heap: Address,
        /// Index of the object in the collection.
        index: u32,
    },
}

impl DataLayout {
    /// Decodes a message body; `address` is its address, for errors. Bytes after the fields are
    /// padding.
    pub fn decode(body: &[u8], ctx: &Context, address: Address) -> Result<Self> {
        let mut r = Reader::new(body, NAME, address);
        let version = r.version(1..=5)?;
        let class = if version < 3 { Self::legacy(&mut r, ctx)? } else { Self::current(&mut r, ctx, version)? };
        Ok(DataLayout { version, class })
    }

    fn legacy(r: &mut Reader<'_>, ctx: &Context) -> Result<Layout> {
        let n = usize::from(r.u8()?);
        let class = r.u8()?;
        r.skip(5)?;
        if n == 0 || n > DIMS_MAX {
            return Err(r.corrupt(format!("{n} dimensions")));
        }
        let address = if class == 0 { Address::UNDEF } else { r.addr(ctx)? };
        let dims = (0..n).map(|_| r.u32()).collect::<Result<Vec<u32>>>()?;
        match class {
            0 => {
                let size = usize::try_from(r.u32()?).map_err(|_| r.corrupt("compact size"))?;
                Ok(Layout::Compact { data: r.bytes(size)?.to_vec(), dims })
            }
            1 => Ok(Layout::Contiguous { address, size: None, dims }),
            2 => Ok(Layout::Chunked(ChunkedLayout::from_btree1(r, &dims, address)?)),
            _ => Err(r.corrupt(format!("layout class {class}"))),
        }
    }

    fn current(r: &mut Reader<'_>, ctx: &Context, version: u8) -> Result<Layout> {
        match r.u8()? {
            0 => {
                let size = usize::from(r.u16()?);
                Ok(Layout::Compact { data: r.bytes(size)?.to_vec(), dims: Vec::new() })
            }
            1 => Ok(Layout::Contiguous { address: r.addr(ctx)?, size: Some(r.length(ctx)?), dims: Vec::new() }),
            2 if version == 3 => ChunkedLayout::decode_v3(r, ctx).map(Layout::Chunked),
            2 => ChunkedLayout::decode_v4(r, ctx).map(Layout::Chunked),
            3 if version == 3 => Err(r.corrupt("virtual layout in a version 3 message")),
            3 => Ok(Layout::Virtual { heap: r.addr(ctx)?, index: r.u32()? }),
            4 if version == 5 => structured::decode(r, ctx).map(Layout::Chunked),
            4 => Err(r.corrupt(format!("structured chunks in a version {version} message"))),
            class => Err(r.corrupt(format!("layout class {class}"))),
        }
    }

    /// Encodes the bytes that `decode` reads, without padding. Errors: a field does not exist or
    /// fit in the version.
    pub fn encode(&self, ctx: &Context) -> Result<Vec<u8>> {
        let mut w = Writer::new();
        w.u8(self.version);
        if self.version < 3 {
            self.encode_legacy(&mut w, ctx)?
        } else {
            self.encode_current(&mut w, ctx)?
        }
        Ok(w.into_bytes())
    }

    fn encode_legacy(&self, w: &mut Writer, ctx: &Context) -> Result<()> {
        let (class, address, dims) = match &self.class {
            Layout::Compact { dims, .. } => (0, None, dims.clone()),
            Layout::Contiguous { address, dims, .. } => (1, Some(*address), dims.clone()),
            Layout::Chunked(c) => (2, Some(c.index.address()), c.dims_u32()?),
            Layout::Virtual { .. } => return Err(unencodable("virtual layout before version 4")),
        };
        let n = u8::try_from(dims.len()).map_err(|_| unencodable("more than 255 dimensions"))?;
        w.u8(n).u8(class).zeros(5);
        if let Some(address) = address {
            w.addr(address, ctx);
        }
        for d in dims {
            w.u32(d);
        }
        if let Layout::Compact { data, .. } = &self.class {
            w.u32(u32::try_from(data.len()).map_err(|_| unencodable("compact data of 4 GiB"))?).bytes(data);
        }
        Ok(())
    }

    fn encode_current(&self, w: &mut Writer, ctx: &Context) -> Result<()> {
        match &self.class {
            Layout::Compact { data, .. } => {
                let size = u16::try_from(data.len()).map_err(|_| unencodable("compact data of 64 KiB"))?;
                w.u8(0).u16(size).bytes(data);
            }
            Layout::Contiguous { address, size, .. } => {
                let size = size.ok_or_else(|| unencodable("contiguous layout without a size"))?;
                w.u8(1).addr(*address, ctx).length(size, ctx);
            }
            Layout::Chunked(c) => match c.sections {
                None => c.encode(w.u8(2), ctx, self.version)?,
                Some(_) if self.version != 5 => return Err(unencodable("structured chunks before version 5")),
                Some(sections) => structured::encode(c, sections, w.u8(4), ctx)?,
            },
            Layout::Virtual { heap, index } => {
                w.u8(3).addr(*heap, ctx).u32(*index);
            }
        }
        Ok(())
    }
}

/// The error for a value that no message can store: an error of the caller, not of the file.
fn unencodable(detail: &'static str) -> crate::base::Error {
    crate::base::Error::unsupported(NAME, Address::UNDEF, detail)
}
