//! Datatype message (0x0003): the type of a dataset's or attribute's elements.
//!
//! ```text
//! byte 0     class (low 4 bits), version (high 4 bits)
//! byte 1-3   class bit field
//! byte 4-7   size of an element, bytes
//! byte 8-    properties of the class; those of derived classes include whole datatype messages
//! ```
//!
//! Versions: 1 (compound members may be arrays), 2 (array class), 3 (packed names and offsets, VAX
//! order), 4 (references of HDF5 1.12), 5 (complex). Decoding is lossless: [`Datatype::encode`]
//! returns the same bytes. Source: section IV.A.2.d of the specification, "The Datatype Message".

mod compound;
mod derived;
mod enumeration;
mod numeric;
mod simple;
#[cfg(test)]
mod tests;
mod version;
use crate::base::datatype::{
    Array, Bitfield, ByteOrder, CharacterSet, Class, Complex, Compound, Datatype, EnumMember, Enumeration, FixedPoint, FloatingPoint,
    Member, MemberArray, Name, Normalization, Opaque, Reference, ReferenceKind, StringPadding, StringType, Time, VariableLength,
    VariableLengthKind,
};
use crate::base::{Address, Result, limits};
use crate::format::{Reader, Writer};

/// Fields of the common header that the decoder of a class needs.
#[derive(Debug, Clone, Copy)]
struct Header {
    version: u8,
    bits: u32,
    size: u32,
    depth: usize,
}

impl Header {
    /// Size of an element, bits.
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
    /// The class bit field for the properties, without reserved bits.
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

    /// Appends the encoded message to `w`.
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

    /// The datatype as it reads back from its message. Errors: its properties contradict each
    /// other.
    pub fn as_stored(&self) -> Result<Datatype> {
        decode(&mut Reader::new(&self.to_bytes(), "datatype", Address::UNDEF))
    }

    /// Encodes the message.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut w = Writer::new();
        self.encode(&mut w);
        w.into_bytes()
    }
}

impl Name {
    /// Length of the padding from the NUL to the next multiple of 8, bytes.
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
