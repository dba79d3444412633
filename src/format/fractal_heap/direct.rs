//! Direct block of a fractal heap: holds managed objects.
//!
//! ```text
//! "FHDB" | version 0 | heap header O | offset of the block in the heap | [checksum] | objects
//! ```
//!
//! A header flag enables the checksum. It covers the whole block, with its own field as 0. In a
//! heap with filters the whole block, prefix included, is stored filtered. H5.format.4.0, "Fractal
//! Heap Direct Block".

use super::Geometry;
use crate::base::{Address, Result, checksum::lookup3};
use crate::format::{Reader, Writer};

/// Name of the structure in errors.
pub const NAME: &str = "fractal heap direct block";
const SIGNATURE: &[u8; 4] = b"FHDB";

/// A decoded direct block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirectBlock {
    /// Heap header that owns the block.
    pub heap: Address,
    /// Offset of the block's first byte in the heap's address space.
    pub offset: u64,
    /// The whole block, prefix included: object offsets count from its first byte.
    pub bytes: Vec<u8>,
}

impl DirectBlock {
    /// Decodes the whole (unfiltered) block `bytes` from `address`. Errors: signature, version,
    /// checksum.
    pub fn decode(bytes: Vec<u8>, address: Address, g: &Geometry) -> Result<Self> {
        Self::checked(bytes, address, g, true)
    }

    /// Decodes a block without verifying its checksum, which takes most of the time for large
    /// blocks.
    ///
    /// For blocks whose checksum has been verified before.
    pub fn decode_sound(bytes: Vec<u8>, address: Address, g: &Geometry) -> Result<Self> {
        Self::checked(bytes, address, g, false)
    }

    fn checked(mut bytes: Vec<u8>, address: Address, g: &Geometry, check: bool) -> Result<Self> {
        let mut r = Reader::new(&bytes, NAME, address);
        r.signature(SIGNATURE)?;
        r.version(0..=0)?;
        let heap = r.addr(g.ctx())?;
        let offset = r.uint(g.offset_size)?;
        if g.checksummed && check {
            let at = r.position();
            let stored = r.array::<4>()?;
            let field = at..at.saturating_add(4);
            if let Some(field) = bytes.get_mut(field.clone()) {
                field.fill(0);
            }
            let want = lookup3(&bytes, 0);
            if let Some(field) = bytes.get_mut(field) {
                field.copy_from_slice(&stored);
            }
            if want != u32::from_le_bytes(stored) && !cfg!(fuzzing) {
                let r = Reader::new(&bytes, NAME, address);
                return Err(r.corrupt(format!("checksum is {:#010x}, must be {want:#010x}", u32::from_le_bytes(stored))));
            }
        }
        Ok(DirectBlock { heap, offset, bytes })
    }

    /// Returns the object of `length` bytes at heap offset `offset`; `None` if it is not within the
    /// block's object area.
    pub fn object(&self, offset: u64, length: u64, g: &Geometry) -> Option<&[u8]> {
        let start = usize::try_from(offset.checked_sub(self.offset)?).ok()?;
        let end = start.checked_add(usize::try_from(length).ok()?)?;
        self.bytes.get(start..end).filter(|_| start >= g.direct_overhead())
    }

    /// Stores `object` at heap offset `offset` and updates the checksum; `None` if it is not within
    /// the object area.
    pub fn put(&mut self, offset: u64, object: &[u8], g: &Geometry) -> Option<()> {
        let start = usize::try_from(offset.checked_sub(self.offset)?).ok()?;
        let target = self.bytes.get_mut(start..start.checked_add(object.len())?);
        target.filter(|_| start >= g.direct_overhead())?.copy_from_slice(object);
        if g.checksummed {
            let end = g.direct_overhead();
            let field = end.checked_sub(4)?..end;
            self.bytes.get_mut(field.clone())?.fill(0);
            let sum = lookup3(&self.bytes, 0);
            self.bytes.get_mut(field)?.copy_from_slice(&sum.to_le_bytes());
        }
        Some(())
    }

    /// Encodes a whole block of `size` bytes whose object area starts with `objects`; `None` if
    /// they do not fit.
    pub fn encode(heap: Address, offset: u64, objects: &[u8], size: usize, g: &Geometry) -> Option<Vec<u8>> {
        let mut w = Writer::new();
        w.bytes(SIGNATURE).u8(0).addr(heap, g.ctx()).uint(offset, g.offset_size);
        let at = w.position();
        if g.checksummed {
            w.zeros(4);
        }
        w.bytes(objects);
        let rest = size.checked_sub(w.position())?;
        w.zeros(rest);
        let mut bytes = w.into_bytes();
        if g.checksummed {
            let sum = lookup3(&bytes, 0);
            bytes.get_mut(at..at.checked_add(4)?)?.copy_from_slice(&sum.to_le_bytes());
        }
        Some(bytes)
    }
}
