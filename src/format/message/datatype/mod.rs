//! Datatype message (0x0003): the type of a dataset's or attribute's elements.
//!
//! ```text
//! byte 0     class (low 4 bits), version (high 4 bits)
//! byte 1-3   class bit field
//! byte 4-7   size of an element, bytes
//! byte 8-    properties of the class; for derived classes they contain whole datatype messages
//! ```
//!
//! Versions: 1 (compound members may be arrays), 2 (array class), 3 (packed names and offsets, VAX
//! order), 4 (references of HDF5 1.12), 5 (complex). Decoding loses nothing: [`Datatype::encode`]
//! gives back the same bytes. The specification's section is IV.A.2.d, "The Datatype Message".

mod compound;
mod derived;
mod enumeration;
mod numeric;
mod simple;
#[cfg(test)]
mod tests;
mod version;

pub use compound::{Compound, Member, MemberArray};
pub use derived::{Array, Complex, VariableLength, VariableLengthKind};
pub use enumeration::{EnumMember, Enumeration};
pub use numeric::{Bitfield, ByteOrder, FixedPoint, FloatingPoint, Normalization, Time};
pub use simple::{CharacterSet, Opaque, Reference, ReferenceKind, StringPadding, StringType};

use crate::base::{Result, limits};
use crate::format::{Reader, Writer};

/// A datatype with everything its message says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Datatype {
    /// Version of the message, 1 to 5.
    pub version: u8,
    /// Bits of the class bit field that [`Datatype::class`] gives no meaning to; 0 in canonical messages.
    pub reserved: u32,
    /// Size of one element on disk, bytes; never 0.
    pub size: u32,
    /// Class and its properties.
    pub class: Class,
}

/// The datatype classes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Class {
    /// Class 0: integers.
    FixedPoint(FixedPoint),
    /// Class 1: floating-point numbers of any layout.
    FloatingPoint(FloatingPoint),
    /// Class 2: UNIX times.
    Time(Time),
    /// Class 3: strings of fixed length.
    String(StringType),
    /// Class 4: bit fields.
    Bitfield(Bitfield),
    /// Class 5: tagged bytes.
    Opaque(Opaque),
    /// Class 6: records.
    Compound(Compound),
    /// Class 7: references to objects, regions and attributes.
    Reference(Reference),
    /// Class 8: named integers.
    Enumeration(Enumeration),
    /// Class 9: sequences and strings kept in the global heap.
    VariableLength(VariableLength),
    /// Class 10: arrays of fixed dimensions.
    Array(Array),
    /// Class 11: complex numbers.
    Complex(Complex),
}

/// What the decoder of a class is told by the common header.
#[derive(Debug, Clone, Copy)]
struct Header {
    version: u8,
    bits: u32,
    size: u32,
    depth: usize,
}

impl Header {
    /// Bit positions in an element.
    fn bit_size(&self) -> u64 {
        u64::from(self.size).saturating_mul(8)
    }
}

/// Decodes one datatype message and consumes exactly its bytes.
pub fn decode(r: &mut Reader<'_>) -> Result<Datatype> {
    decode_at(r, 0)
}

fn decode_at(r: &mut Reader<'_>, depth: usize) -> Result<Datatype> {
    if depth >= limits::DATATYPE_DEPTH_MAX {
        return Err(crate::base::Error::limit(
            r.structure(),
            r.address(),
            format!("datatypes nested deeper than {}", limits::DATATYPE_DEPTH_MAX),
        ));
    }
    let first = r.u8()?;
    let (number, version) = (first & 0x0f, first >> 4);
    if !(1..=5).contains(&version) {
        return Err(r.unsupported(format!("datatype version {version}")));
    }
    let bits = r.uint(3)? as u32;
    let size = r.u32()?;
    if size == 0 {
        return Err(r.corrupt("a datatype has size 0"));
    }
    let h = Header { version, bits, size, depth };
    let class = match number {
        0 => Class::FixedPoint(FixedPoint::decode(r, &h)?),
        1 => Class::FloatingPoint(FloatingPoint::decode(r, &h)?),
        2 => Class::Time(Time::decode(r, &h)?),
        3 => Class::String(StringType::decode(&h)),
        4 => Class::Bitfield(Bitfield::decode(r, &h)?),
        5 => Class::Opaque(Opaque::decode(r, &h)?),
        6 => Class::Compound(Compound::decode(r, &h)?),
        7 => Class::Reference(Reference::decode(r, &h)?),
        8 => Class::Enumeration(Enumeration::decode(r, &h)?),
        9 => Class::VariableLength(VariableLength::decode(r, &h)?),
        10 => Class::Array(Array::decode(r, &h)?),
        11 => Class::Complex(Complex::decode(r, &h)?),
        n => return Err(r.unsupported(format!("datatype class {n}"))),
    };
    let mut datatype = Datatype { version, reserved: 0, size, class };
    datatype.reserved = bits ^ datatype.class_bits();
    Ok(datatype)
}

impl Datatype {
    /// A datatype whose reserved bits are 0.
    pub fn new(version: u8, size: u32, class: Class) -> Self {
        Datatype { version, reserved: 0, size, class }
    }

    /// Number of the class, 0 to 11.
    pub fn class_number(&self) -> u8 {
        match &self.class {
            Class::FixedPoint(_) => 0,
            Class::FloatingPoint(_) => 1,
            Class::Time(_) => 2,
            Class::String(_) => 3,
            Class::Bitfield(_) => 4,
            Class::Opaque(_) => 5,
            Class::Compound(_) => 6,
            Class::Reference(_) => 7,
            Class::Enumeration(_) => 8,
            Class::VariableLength(_) => 9,
            Class::Array(_) => 10,
            Class::Complex(_) => 11,
        }
    }

    /// The class bit field as its properties ask for it.
    fn class_bits(&self) -> u32 {
        match &self.class {
            Class::FixedPoint(c) => c.bits(),
            Class::FloatingPoint(c) => c.bits(),
            Class::Time(c) => c.bits(),
            Class::String(c) => c.bits(),
            Class::Bitfield(c) => c.bits(),
            Class::Opaque(c) => c.bits(),
            Class::Compound(c) => c.bits(),
            Class::Reference(c) => c.bits(),
            Class::Enumeration(c) => c.bits(),
            Class::VariableLength(c) => c.bits(),
            Class::Array(_) => 0,
            Class::Complex(c) => c.bits(),
        }
    }

    /// Writes the message.
    pub fn encode(&self, w: &mut Writer) {
        w.u8(self.version << 4 | self.class_number());
        w.uint(u64::from((self.class_bits() ^ self.reserved) & 0x00ff_ffff), 3);
        w.u32(self.size);
        match &self.class {
            Class::FixedPoint(c) => c.encode(w),
            Class::FloatingPoint(c) => c.encode(w),
            Class::Time(c) => c.encode(w),
            Class::String(_) | Class::Reference(_) => {}
            Class::Bitfield(c) => c.encode(w),
            Class::Opaque(c) => c.encode(w),
            Class::Compound(c) => c.encode(w, self.version, self.size),
            Class::Enumeration(c) => c.encode(w, self.version),
            Class::VariableLength(c) => c.encode(w),
            Class::Array(c) => c.encode(w, self.version),
            Class::Complex(c) => c.encode(w),
        }
    }

    /// The message's bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut w = Writer::new();
        self.encode(&mut w);
        w.into_bytes()
    }

    /// Size of one element on disk, bytes.
    pub fn element_size(&self) -> u64 {
        u64::from(self.size)
    }

    /// Members of a compound datatype; empty for every other class.
    pub fn members(&self) -> &[Member] {
        match &self.class {
            Class::Compound(c) => &c.members,
            _ => &[],
        }
    }

    /// The datatype this one is made of: of an array, sequence, enumeration or complex number.
    pub fn base(&self) -> Option<&Datatype> {
        match &self.class {
            Class::Enumeration(c) => Some(&c.base),
            Class::VariableLength(c) => Some(&c.base),
            Class::Array(c) => Some(&c.base),
            Class::Complex(c) => Some(&c.base),
            _ => None,
        }
    }

    /// True when `test` holds for this datatype or any inside it.
    pub fn any(&self, test: &dyn Fn(&Datatype) -> bool) -> bool {
        // The depth is that of the message, which the decoder bounds.
        test(self) || self.base().is_some_and(|b| b.any(test)) || self.members().iter().any(|m| m.datatype.any(test))
    }

    /// True when elements hold addresses of the global heap for sequences or strings.
    pub fn contains_vlen(&self) -> bool {
        self.any(&|t| matches!(t.class, Class::VariableLength(_)))
    }

    /// True when elements hold references.
    pub fn contains_reference(&self) -> bool {
        self.any(&|t| matches!(t.class, Class::Reference(_)))
    }

    /// True for a variable-length string itself.
    pub fn is_vlen_string(&self) -> bool {
        matches!(&self.class, Class::VariableLength(v) if v.kind == VariableLengthKind::String)
    }
}

/// Name of a member as stored: NUL-terminated; up to version 2 padded to a multiple of 8.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Name {
    /// The name without its NUL; usually UTF-8.
    pub bytes: Vec<u8>,
    /// Padding after the NUL if it is not zero; canonical messages have none.
    padding: Vec<u8>,
}

impl Name {
    /// A name with canonical padding.
    pub fn new(bytes: impl Into<Vec<u8>>) -> Self {
        Name { bytes: bytes.into(), padding: Vec::new() }
    }

    /// Bytes between the NUL and the next multiple of 8.
    fn padding_len(&self) -> usize {
        7usize.saturating_sub(self.bytes.len() % 8)
    }

    fn decode(r: &mut Reader<'_>, version: u8) -> Result<Name> {
        let mut name = Name::new(r.cstr()?);
        if version < 3 {
            let padding = r.bytes(name.padding_len())?;
            if padding.iter().any(|&b| b != 0) {
                name.padding = padding.to_vec();
            }
        }
        Ok(name)
    }

    fn encode(&self, w: &mut Writer, version: u8) {
        w.bytes(&self.bytes).u8(0);
        if version >= 3 {
            return;
        }
        if self.padding.len() == self.padding_len() {
            w.bytes(&self.padding);
        } else {
            w.zeros(self.padding_len());
        }
    }
}
