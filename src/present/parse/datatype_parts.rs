//! Datatypes made of their parts.

use super::invalid;
use crate::base::datatype::{
    Array, ByteOrder, CharacterSet, Class, Complex, Compound, Datatype, EnumMember, Enumeration, FixedPoint, FloatingPoint, Member, Name,
    Opaque, StringPadding, StringType, VariableLength, VariableLengthKind,
};
use crate::base::{Result, limits};

/// Makes datatypes for a file.
#[derive(Clone, Copy)]
pub struct Maker {
    /// Bytes of its addresses.
    pub sizeof_addr: u8,
}

impl Maker {
    /// Bytes of a variable-length element.
    fn variable_size(self) -> u32 {
        u32::from(self.sizeof_addr).saturating_add(8)
    }

    /// A variable-length string.
    pub fn variable_string(self, padding: StringPadding, charset: CharacterSet) -> Datatype {
        let base = Box::new(integer(1, ByteOrder::LittleEndian, false));
        let class = VariableLength { kind: VariableLengthKind::String, padding, charset, base };
        Datatype::new(1, self.variable_size(), Class::VariableLength(class))
    }

    /// A variable-length sequence.
    pub fn sequence(self, base: Datatype) -> Datatype {
        let version = base.version;
        let (padding, charset) = (StringPadding::NullTerminated, CharacterSet::Ascii);
        let class = VariableLength { kind: VariableLengthKind::Sequence, padding, charset, base: Box::new(base) };
        Datatype::new(version, self.variable_size(), Class::VariableLength(class))
    }
}

/// An array of `base`; `base` itself when there are no dimensions.
pub fn array(dims: Vec<u32>, base: Datatype) -> Result<Datatype> {
    if dims.is_empty() {
        return Ok(base);
    }
    if dims.len() > limits::RANK_MAX {
        return Err(invalid(format!("an array has more than {} dimensions", limits::RANK_MAX)));
    }
    let size = dims.iter().try_fold(base.size, |n, &d| n.checked_mul(d)).filter(|&n| n > 0);
    let size = size.ok_or_else(|| invalid("the dimensions of an array are 0 or too large"))?;
    Ok(Datatype::new(base.version.max(2), size, Class::Array(Array::new(dims, base))))
}

/// A compound of members (name, offset, type) in the order given.
pub fn compound(members: Vec<(Vec<u8>, u32, Datatype)>, size: u64) -> Result<Datatype> {
    let size = u32::try_from(size).map_err(|_| invalid("a datatype is too large"))?;
    if members.is_empty() || size == 0 || members.len() > limits::DATATYPE_MEMBERS_MAX {
        return Err(invalid(format!("a compound has {} members", members.len())));
    }
    // As libhdf5: members' versions are at most the compound's.
    let version = members.iter().map(|(.., t)| t.version).max().unwrap_or(1);
    let member = |(name, offset, datatype): (Vec<u8>, u32, Datatype)| {
        if name.contains(&0) {
            return Err(invalid("a member's name cannot hold a NUL"));
        }
        Ok(Member { name: Name::new(name), offset, datatype, array: (version == 1).then(Default::default) })
    };
    let members = members.into_iter().map(member).collect::<Result<_>>()?;
    Ok(Datatype::new(version, size, Class::Compound(Compound { members })))
}

/// An enumeration over the integers `base`.
pub fn enumeration(base: Datatype, members: Vec<(Vec<u8>, Vec<u8>)>) -> Result<Datatype> {
    if members.len() > limits::DATATYPE_MEMBERS_MAX {
        return Err(invalid(format!("an enumeration has {} members", members.len())));
    }
    let mut names = std::collections::HashSet::with_capacity(members.len());
    if members.iter().any(|(name, _)| name.contains(&0) || !names.insert(name.as_slice())) {
        return Err(invalid("names of an enumeration are equal or hold a NUL"));
    }
    let (version, size) = (base.version, base.size);
    let members = members.iter().map(|(name, value)| EnumMember { name: Name::new(name.clone()), value: value.clone() });
    let class = Enumeration::new(base, members.collect());
    Ok(Datatype::new(version, size, Class::Enumeration(class)))
}

/// An integer that fills its `size` bytes.
pub fn integer(size: u32, order: ByteOrder, signed: bool) -> Datatype {
    let precision = u16::try_from(size.saturating_mul(8)).unwrap_or(u16::MAX);
    let class = FixedPoint { order, low_padding: false, high_padding: false, signed, offset: 0, precision };
    Datatype::new(1, size, Class::FixedPoint(class))
}

/// A floating-point number.
pub fn floating(f: FloatingPoint, size: u32) -> Datatype {
    Datatype::new(if f.order == ByteOrder::Vax { 3 } else { 1 }, size, Class::FloatingPoint(f))
}

/// Opaque bytes.
pub fn opaque(size: u32, tag: &[u8]) -> Datatype {
    Datatype::new(1, size, Class::Opaque(Opaque::new(tag)))
}

/// A string of fixed length.
pub fn string(size: u32, padding: StringPadding, charset: CharacterSet) -> Datatype {
    Datatype::new(1, size, Class::String(StringType { padding, charset }))
}

/// A complex number of two `base`.
pub fn complex(base: Datatype) -> Result<Datatype> {
    let size = base.size.checked_mul(2).ok_or_else(|| invalid("a datatype is too large"))?;
    Ok(Datatype::new(5, size, Class::Complex(Complex { base: Box::new(base) })))
}
