//! Datatypes made of their parts.

use super::{
    Array, ByteOrder, CharacterSet, Class, Complex, Compound, Datatype, EnumMember, Enumeration, FixedPoint, FloatingPoint, Member, Name,
    Opaque, Reference, ReferenceKind, StringPadding, StringType, VariableLength, VariableLengthKind,
};
use crate::base::{Error, Result, limits};
use std::borrow::Cow;

/// Bytes of a standard reference beyond the address in it.
const STANDARD_REFERENCE: u32 = 10;

fn invalid(reason: impl Into<Cow<'static, str>>) -> Error {
    Error::refused(libc::EINVAL, reason)
}

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

    /// References of a kind.
    pub fn reference(self, kind: ReferenceKind) -> Datatype {
        let address = u32::from(self.sizeof_addr);
        let (version, size, encoding) = match kind {
            ReferenceKind::Object1 => (1, address, 0),
            ReferenceKind::DatasetRegion1 => (1, address.saturating_add(4), 0),
            ReferenceKind::Object2 | ReferenceKind::DatasetRegion2 | ReferenceKind::Attribute => {
                (4, address.saturating_add(STANDARD_REFERENCE), 1)
            }
        };
        Datatype::new(version, size, Class::Reference(Reference { kind, encoding }))
    }

    /// The type `t` of another file, in the oldest version of the message that can state it.
    /// Elements of both types have the same exact form, but for references, which may have other
    /// sizes.
    pub fn remake(self, t: &Datatype) -> Result<Datatype> {
        // The depth of the recursion is that of the message, which its decoder bounds.
        match &t.class {
            Class::FloatingPoint(f) => Ok(floating(*f, t.size)),
            Class::FixedPoint(_) | Class::Bitfield(_) | Class::Time(_) | Class::String(_) | Class::Opaque(_) => {
                Ok(Datatype::new(1, t.size, t.class.clone()))
            }
            Class::Reference(r) => Ok(self.reference(r.kind)),
            Class::VariableLength(v) if v.kind == VariableLengthKind::String => Ok(self.variable_string(v.padding, v.charset)),
            Class::VariableLength(v) => Ok(self.sequence(self.remake(&v.base)?)),
            Class::Array(a) => array(a.dims.clone(), self.remake(&a.base)?),
            Class::Complex(c) => complex(self.remake(&c.base)?),
            Class::Enumeration(e) => {
                let members = e.members().iter().map(|m| (m.name.bytes.clone(), m.value.clone()));
                enumeration(self.remake(&e.base)?, members.collect())
            }
            Class::Compound(c) => self.remake_compound(t, c),
        }
    }

    /// Members keep the gaps between them.
    fn remake_compound(self, t: &Datatype, c: &Compound) -> Result<Datatype> {
        let mut order: Vec<usize> = (0..c.members.len()).collect();
        order.sort_by_key(|at| c.members.get(*at).map(|m| m.offset));
        let mut members = vec![None; c.members.len()];
        // Bytes by which what follows is moved.
        let mut moved = 0i64;
        let place = |offset: u64, moved: i64| offset.checked_add_signed(moved).and_then(|at| u32::try_from(at).ok());
        let too_large = || invalid("a datatype is too large");
        for at in order {
            let (Some(member), Some(made)) = (c.members.get(at), members.get_mut(at)) else { continue };
            let datatype = self.remake(&member.datatype)?;
            let offset = place(member.offset.into(), moved).ok_or_else(too_large)?;
            moved = moved.saturating_add(i64::from(datatype.size).saturating_sub(member.datatype.size.into()));
            *made = Some((member.name.bytes.clone(), offset, datatype));
        }
        let size = place(t.size.into(), moved).ok_or_else(too_large)?;
        compound(members.into_iter().flatten().collect(), size.into())
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
