//! Values of the map.
//!
//! ```text
//! cell    0 | filter mask u32 | length u32 | bytes
//!         1 | filter mask u32 | extent
//!         2 | filter mask u32 | original u64 | offset u64 | length u32 | CRC32C of the bytes, u32
//! extent  session u64 | pack u32 | offset u64 | length u32 | CRC32C of the bytes, u32
//! ```
//!
//! Numbers have their lowest byte first. The mask is that of chunks, and 0 otherwise.

use crate::base::checksum::crc32c;
use crate::base::{Address, Error, Result};
use crate::format::{Reader, Writer};
use std::sync::Arc;

/// Longest bytes in the map itself.
pub const INLINE_MAX_BYTES: usize = 4096;

/// Bit of the session that makes the rest of it the number of an original.
const ORIGINAL: u64 = 1 << 63;

/// Bytes in a pack, or in an original.
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
    /// Encoded size of one in an original, bytes.
    const ORIGINAL_SIZE: usize = 24;

    /// `bytes`, fewer than 2^32, which are at `offset` of the original `number`.
    pub fn in_original(number: u64, offset: u64, bytes: &[u8]) -> Result<Extent> {
        let len = u32::try_from(bytes.len()).map_err(|_| Error::limit("original", Address(offset), "an extent of 4 GiB"))?;
        Ok(Extent { session: ORIGINAL | number, pack: 0, offset, len, checksum: crc32c(bytes) })
    }

    /// The original that has the bytes; `None`: a pack has them.
    pub fn original(&self) -> Option<u64> {
        (self.session & ORIGINAL != 0).then_some(self.session & !ORIGINAL)
    }

    /// Reads an extent in a pack.
    pub fn read(r: &mut Reader<'_>) -> Result<Extent> {
        Extent { session: r.u64()?, pack: r.u32()?, offset: r.u64()?, len: r.u32()?, checksum: r.u32()? }.checked(r)
    }

    fn read_in_original(r: &mut Reader<'_>) -> Result<Extent> {
        let session = r.u64()?;
        let extent = Extent { session, pack: 0, offset: r.u64()?, len: r.u32()?, checksum: r.u32()? }.checked(r)?;
        Ok(Extent { session: ORIGINAL | session, ..extent })
    }

    fn checked(self, r: &Reader<'_>) -> Result<Extent> {
        if self.session & ORIGINAL != 0 {
            return Err(r.corrupt("an extent of a session past 2^63"));
        }
        if self.offset.checked_add(u64::from(self.len)).is_none() {
            return Err(r.corrupt("an extent ends past 2^64"));
        }
        Ok(self)
    }

    /// Appends it.
    pub fn write(&self, w: &mut Writer) {
        w.u64(self.session).u32(self.pack).u64(self.offset).u32(self.len).u32(self.checksum);
    }

    /// True if `bytes` are those of the extent.
    pub fn is_of(&self, bytes: &[u8]) -> bool {
        bytes.len() as u64 == u64::from(self.len) && (crc32c(bytes) == self.checksum || cfg!(fuzzing))
    }
}

/// Where the bytes of a value are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Data {
    /// Here.
    Inline(Arc<[u8]>),
    /// In a pack or in an original.
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
            Data::Extent(extent) => if extent.original().is_some() { Extent::ORIGINAL_SIZE } else { Extent::SIZE }.saturating_add(5),
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
            2 => Data::Extent(Extent::read_in_original(r)?),
            n => return Err(r.corrupt(format!("a cell of kind {n}"))),
        };
        Ok(Cell { mask, data })
    }

    /// Appends it.
    pub fn write(&self, w: &mut Writer) {
        match &self.data {
            Data::Inline(bytes) => w.u8(0).u32(self.mask).uint(bytes.len() as u64, 4).bytes(bytes),
            Data::Extent(extent) => match extent.original() {
                Some(number) => w.u8(2).u32(self.mask).u64(number).u64(extent.offset).u32(extent.len).u32(extent.checksum),
                None => {
                    w.u8(1).u32(self.mask);
                    extent.write(w);
                    w
                }
            },
        };
    }
}
