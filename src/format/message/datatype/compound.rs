//! Compound datatypes.
//!
//! ```text
//! bits 0-15: number of members; then for each member
//!   name         NUL-terminated; versions 1 and 2: padded to a multiple of 8
//!   byte offset  versions 1 and 2: u32; from 3: as many bytes as the compound's size needs
//!   version 1    u8 dimensionality (0-4), 3 reserved, u32 permutation, 4 reserved,
//!                4 x u32 dimension
//!   datatype     a datatype message
//! ```
//!
//! A version 1 member with dimensions is an array; [`Member::datatype`] is that array. Source:
//! section IV.A.2.d of the specification, class 6.

use super::{Array, Class, Compound, Datatype, Header, Member, MemberArray, Name, decode_at};
use crate::base::Result;
use crate::format::{Reader, Writer};
use std::collections::HashSet;

impl MemberArray {
    fn decode(r: &mut Reader<'_>) -> Result<Self> {
        let a = MemberArray {
            dimensionality: r.u8()?,
            reserved: r.array()?,
            permutation: r.u32()?,
            reserved2: r.array()?,
            dims: [r.u32()?, r.u32()?, r.u32()?, r.u32()?],
        };
        if a.dimensionality > 4 {
            return Err(r.corrupt(format!("a compound member has {} dimensions", a.dimensionality)));
        }
        Ok(a)
    }

    fn encode(&self, w: &mut Writer) {
        w.u8(self.dimensionality).bytes(&self.reserved).u32(self.permutation).bytes(&self.reserved2);
        for d in self.dims {
            w.u32(d);
        }
    }

    /// Returns the array of these dimensions, or `base` itself when there are none.
    fn array_of(&self, r: &Reader<'_>, base: Datatype) -> Result<Datatype> {
        let dims: Vec<u32> = self.dims.iter().copied().take(self.dimensionality.into()).collect();
        if dims.is_empty() {
            return Ok(base);
        }
        let size = dims.iter().try_fold(base.size, |n, &d| n.checked_mul(d)).filter(|&n| n > 0);
        let size = size.ok_or_else(|| r.corrupt("the dimensions of a compound member are 0 or overflow"))?;
        Ok(Datatype::new(2, size, Class::Array(Array::new(dims, base))))
    }
}

/// Width of a member offset from version 3 on, bytes.
fn offset_width(size: u32) -> usize {
    match size {
        0..=0xff => 1,
        0x100..=0xffff => 2,
        0x1_0000..=0xff_ffff => 3,
        _ => 4,
    }
}

impl Member {
    fn decode(r: &mut Reader<'_>, h: &Header) -> Result<Self> {
        let name = Name::decode(r, h.version)?;
        let offset = if h.version >= 3 { r.uint(offset_width(h.size))? as u32 } else { r.u32()? };
        let array = if h.version == 1 { Some(MemberArray::decode(r)?) } else { None };
        let stored = decode_at(r, h.depth.saturating_add(1))?;
        let datatype = match &array {
            Some(a) => a.array_of(r, stored)?,
            None => stored,
        };
        Ok(Member { name, offset, datatype, array })
    }

    fn encode(&self, w: &mut Writer, version: u8, size: u32) {
        self.name.encode(w, version);
        if version >= 3 {
            w.uint(self.offset.into(), offset_width(size));
        } else {
            w.u32(self.offset);
        }
        let mut stored = &self.datatype;
        if version == 1 {
            let array = self.array.unwrap_or_default();
            array.encode(w);
            if array.dimensionality > 0
                && let Class::Array(a) = &stored.class
            {
                stored = &a.base;
            }
        }
        stored.encode(w);
    }
}

impl Compound {
    pub(super) fn decode(r: &mut Reader<'_>, h: &Header) -> Result<Self> {
        let count = (h.bits & 0xffff) as usize;
        if count == 0 {
            return Err(r.corrupt("a compound datatype has no members"));
        }
        // A member occupies at least 10 bytes of the message.
        let mut members = Vec::with_capacity(count.min(r.remaining() / 10));
        for _ in 0..count {
            members.push(Member::decode(r, h)?);
        }
        let compound = Compound { members };
        compound.check(r, h)?;
        Ok(compound)
    }

    /// Checks that members have distinct names, are within the element and do not overlap.
    fn check(&self, r: &Reader<'_>, h: &Header) -> Result<()> {
        let mut names = HashSet::with_capacity(self.members.len());
        for m in &self.members {
            if m.end() > u64::from(h.size) {
                return Err(r.corrupt(format!("a compound member ends at byte {} of {}", m.end(), h.size)));
            }
            if !names.insert(&m.name.bytes) {
                return Err(r.corrupt(format!("two compound members are named {:?}", String::from_utf8_lossy(&m.name.bytes))));
            }
        }
        let mut end = 0;
        for m in self.by_offset() {
            if u64::from(m.offset) < end {
                return Err(r.corrupt(format!("the compound member at byte {} overlaps another", m.offset)));
            }
            end = m.end();
        }
        Ok(())
    }

    pub(super) fn bits(&self) -> u32 {
        self.members.len() as u32 & 0xffff
    }

    pub(super) fn encode(&self, w: &mut Writer, version: u8, size: u32) {
        for m in &self.members {
            m.encode(w, version, size);
        }
    }
}
