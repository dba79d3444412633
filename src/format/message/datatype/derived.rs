//! Datatype classes with a base type: variable-length, array, complex.
//!
//! ```text
//! variable-length  bits 0-3: 0 sequence, 1 string; strings: 4-7 padding, 8-11 character set
//!                  base, a datatype message
//! array            u8 rank; version 2: 3 reserved; rank x u32 dimension;
//!                  version 2: rank x u32 permutation; base, a datatype message
//! complex          bit 0 homogeneous (1), 1-2 form (0 rectangular); base, a floating-point message
//! ```
//!
//! Source: section IV.A.2.d of the specification, classes 9, 10 and 11.

use super::{Array, CharacterSet, Class, Complex, Header, StringPadding, VariableLength, VariableLengthKind, decode_at};
use crate::base::{Result, limits};
use crate::format::{Reader, Writer};

impl VariableLength {
    pub(super) fn decode(r: &mut Reader<'_>, h: &Header) -> Result<Self> {
        let kind = match h.bits & 0xf {
            0 => VariableLengthKind::Sequence,
            1 => VariableLengthKind::String,
            n => return Err(r.corrupt(format!("variable-length kind {n} is undefined"))),
        };
        let (padding, charset) = match kind {
            VariableLengthKind::Sequence => (StringPadding::NullTerminated, CharacterSet::Ascii),
            VariableLengthKind::String => (StringPadding::of(h.bits >> 4), CharacterSet::of(h.bits >> 8)),
        };
        let base = Box::new(decode_at(r, h.depth.saturating_add(1))?);
        Ok(VariableLength { kind, padding, charset, base })
    }

    pub(super) fn bits(&self) -> u32 {
        match self.kind {
            VariableLengthKind::Sequence => 0,
            VariableLengthKind::String => 1 | self.padding.number() << 4 | self.charset.number() << 8,
        }
    }

    pub(super) fn encode(&self, w: &mut Writer) {
        self.base.encode(w);
    }
}

impl Array {
    pub(super) fn decode(r: &mut Reader<'_>, h: &Header) -> Result<Self> {
        let rank = usize::from(r.u8()?);
        if rank > limits::RANK_MAX {
            return Err(r.corrupt(format!("an array datatype has rank {rank}")));
        }
        let reserved = if h.version < 3 { r.array()? } else { [0; 3] };
        let mut dims = Vec::with_capacity(rank);
        for _ in 0..rank {
            dims.push(r.u32()?);
        }
        let mut permutation = Vec::new();
        if h.version < 3 {
            for _ in 0..rank {
                permutation.push(r.u32()?);
            }
            if permutation.iter().zip(0..).all(|(&p, i)| p == i) {
                permutation.clear();
            }
        }
        let base = decode_at(r, h.depth.saturating_add(1))?;
        let size = dims.iter().try_fold(base.size, |n, &d| n.checked_mul(d));
        if size != Some(h.size) {
            return Err(r.corrupt(format!("an array datatype of size {} has dimensions {dims:?} and a base of size {}", h.size, base.size)));
        }
        Ok(Array { dims, base: Box::new(base), reserved, permutation })
    }

    pub(super) fn encode(&self, w: &mut Writer, version: u8) {
        w.u8(self.dims.len() as u8);
        if version < 3 {
            w.bytes(&self.reserved);
        }
        for &d in &self.dims {
            w.u32(d);
        }
        if version < 3 {
            for i in 0..self.dims.len() {
                w.u32(self.permutation.get(i).copied().unwrap_or(i as u32));
            }
        }
        self.base.encode(w);
    }
}

impl Complex {
    pub(super) fn decode(r: &mut Reader<'_>, h: &Header) -> Result<Self> {
        if h.bits & 1 == 0 {
            return Err(r.unsupported("complex numbers whose parts differ in type"));
        }
        if h.bits >> 1 & 3 != 0 {
            return Err(r.unsupported(format!("complex numbers of form {}", h.bits >> 1 & 3)));
        }
        if h.bits >> 3 != 0 {
            return Err(r.corrupt("reserved bits of a complex datatype are set"));
        }
        let base = decode_at(r, h.depth.saturating_add(1))?;
        if !matches!(base.class, Class::FloatingPoint(_)) {
            return Err(r.corrupt("the base of a complex datatype is not a floating-point number"));
        }
        if base.size.checked_mul(2) != Some(h.size) {
            return Err(r.corrupt(format!("a complex datatype has size {}, its base {}", h.size, base.size)));
        }
        Ok(Complex { base: Box::new(base) })
    }

    pub(super) fn bits(&self) -> u32 {
        1
    }

    pub(super) fn encode(&self, w: &mut Writer) {
        self.base.encode(w);
    }
}
