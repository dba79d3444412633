//! Values of the map.
//!
//! ```text
//! cell    0 | filter mask u32 | length u32 | bytes
//!         1 | filter mask u32 | extent
//! extent  session u64 | pack u32 | offset u64 | length u32 | CRC32C of the bytes, u32
//! ```
//!
//! Numbers have their lowest byte first. The mask is that of chunks, and 0 otherwise.

use crate::base::Result;
use crate::base::checksum::crc32c;
use crate::format::{Reader, Writer};
use std::sync::Arc;

/// Longest bytes in the map itself.
pub const INLINE_MAX_BYTES: usize = 4096;

/// Bytes in a pack.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Extent {
    /// Session that wrote the pack.
    pub session: u64,
    /// Number of the pack.
    pub pack: u32,
    /// First byte in the pack.
    pub offset: u64,
    /// Length, bytes.
    pub len: u32,
    /// CRC32C of the bytes.
    pub checksum: u32,
}

impl Extent {
    /// Encoded size, bytes.
    pub const SIZE: usize = 28;

    /// Reads an extent.
    pub fn read(r: &mut Reader<'_>) -> Result<Extent> {
        let extent = Extent { session: r.u64()?, pack: r.u32()?, offset: r.u64()?, len: r.u32()?, checksum: r.u32()? };
        if extent.offset.checked_add(u64::from(extent.len)).is_none() {
            return Err(r.corrupt("an extent ends past 2^64"));
        }
        Ok(extent)
    }

    /// Appends it.
    pub fn write(&self, w: &mut Writer) {
        w.u64(self.session).u32(self.pack).u64(self.offset).u32(self.len).u32(self.checksum);
    }

    /// True if `bytes` are those of the extent.
    pub fn is_of(&self, bytes: &[u8]) -> bool {
        bytes.len() as u64 == u64::from(self.len) && crc32c(bytes) == self.checksum
    }
}

/// Where the bytes of a value are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Data {
    /// Here.
    Inline(Arc<[u8]>),
    /// In a pack.
    Extent(Extent),
}

/// A value of the map.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cell {
    /// Filters that were not applied to a chunk.
    pub mask: u32,
    /// Its bytes.
    pub data: Data,
}

impl Cell {
    /// A value with its bytes inside.
    pub fn inline(bytes: &[u8]) -> Cell {
        Cell { mask: 0, data: Data::Inline(bytes.into()) }
    }

    /// Length of the value, bytes.
    pub fn len(&self) -> u64 {
        match &self.data {
            Data::Inline(bytes) => bytes.len() as u64,
            Data::Extent(extent) => extent.len.into(),
        }
    }

    /// Its bytes, if they are inside and too many for a record.
    pub fn long(&self) -> Option<&Arc<[u8]>> {
        match &self.data {
            Data::Inline(bytes) => Some(bytes).filter(|bytes| bytes.len() > INLINE_MAX_BYTES),
            Data::Extent(_) => None,
        }
    }

    /// True if it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Encoded size, bytes.
    pub fn size(&self) -> usize {
        match &self.data {
            Data::Inline(bytes) => bytes.len().saturating_add(9),
            Data::Extent(_) => Extent::SIZE.saturating_add(5),
        }
    }

    /// Reads a cell.
    pub fn read(r: &mut Reader<'_>) -> Result<Cell> {
        let (tag, mask) = (r.u8()?, r.u32()?);
        let data = match tag {
            0 => {
                let len = r.u32()?;
                Data::Inline(r.bytes(len as usize)?.into())
            }
            1 => Data::Extent(Extent::read(r)?),
            n => return Err(r.corrupt(format!("a cell of kind {n}"))),
        };
        Ok(Cell { mask, data })
    }

    /// Appends it.
    pub fn write(&self, w: &mut Writer) {
        match &self.data {
            Data::Inline(bytes) => w.u8(0).u32(self.mask).uint(bytes.len() as u64, 4).bytes(bytes),
            Data::Extent(extent) => {
                w.u8(1).u32(self.mask);
                extent.write(w);
                w
            }
        };
    }
}
