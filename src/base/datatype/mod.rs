//! Datatypes: what the elements of a dataset or attribute are. Encoded by
//! `format::message::datatype`.

mod compound;
mod derived;
mod enumeration;
pub(crate) mod make;
mod numeric;
mod references;
mod simple;

pub use compound::{Compound, Member, MemberArray};
pub use derived::{Array, Complex, VariableLength, VariableLengthKind};
pub use enumeration::{EnumMember, Enumeration};
pub use numeric::{Bitfield, ByteOrder, FixedPoint, FloatingPoint, Normalization, Time};
pub use references::References;
pub use simple::{CharacterSet, Opaque, Reference, ReferenceKind, StringPadding, StringType};

/// A decoded datatype message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Datatype {
    /// Version of the message, 1 to 5.
    pub version: u8,
    /// Bits of the class bit field without a meaning in [`Datatype::class`]; 0 in canonical
    /// messages.
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
    /// Class 9: sequences and strings in the global heap.
    VariableLength(VariableLength),
    /// Class 10: arrays of fixed dimensions.
    Array(Array),
    /// Class 11: complex numbers.
    Complex(Complex),
}

impl Datatype {
    /// The type of bytes: unsigned integers of 8 bits.
    pub fn byte() -> Self {
        let order = ByteOrder::LittleEndian;
        let byte = FixedPoint { order, low_padding: false, high_padding: false, signed: false, offset: 0, precision: 8 };
        Datatype::new(1, 1, Class::FixedPoint(byte))
    }

    /// A string of `size` bytes, padded with NULs, in UTF-8.
    pub fn utf8(size: u32) -> Self {
        let string = StringType { padding: StringPadding::NullPadded, charset: CharacterSet::Utf8 };
        Datatype::new(1, size, Class::String(string))
    }

    /// A datatype without reserved bits.
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

    /// The base type of an array, sequence, enumeration or complex number.
    pub fn base(&self) -> Option<&Datatype> {
        match &self.class {
            Class::Enumeration(c) => Some(&c.base),
            Class::VariableLength(c) => Some(&c.base),
            Class::Array(c) => Some(&c.base),
            Class::Complex(c) => Some(&c.base),
            _ => None,
        }
    }

    /// True when `test` holds for this datatype or any datatype inside it.
    pub fn any(&self, test: &dyn Fn(&Datatype) -> bool) -> bool {
        // Recursion is bounded by the nesting depth, which the decoder limits.
        test(self) || self.base().is_some_and(|b| b.any(test)) || self.members().iter().any(|m| m.datatype.any(test))
    }

    /// True if elements of both types have the same bytes and meaning; the version of the message
    /// and what has no meaning in it may differ.
    pub fn is_like(&self, other: &Datatype) -> bool {
        self.size == other.size
            && match (&self.class, &other.class) {
                (Class::Compound(a), Class::Compound(b)) => {
                    let same = |(a, b): (&Member, &Member)| {
                        a.name.bytes == b.name.bytes && a.offset == b.offset && a.datatype.is_like(&b.datatype)
                    };
                    a.members.len() == b.members.len() && a.members.iter().zip(&b.members).all(same)
                }
                (Class::Enumeration(a), Class::Enumeration(b)) => {
                    let same = |(a, b): (&EnumMember, &EnumMember)| a.name.bytes == b.name.bytes && a.value == b.value;
                    let (left, right) = (a.members(), b.members());
                    left.len() == right.len() && left.iter().zip(right).all(same) && a.base.is_like(&b.base)
                }
                (Class::Array(a), Class::Array(b)) => a.dims == b.dims && a.base.is_like(&b.base),
                (Class::Complex(a), Class::Complex(b)) => a.base.is_like(&b.base),
                (Class::VariableLength(a), Class::VariableLength(b)) => {
                    (a.kind, a.padding, a.charset) == (b.kind, b.padding, b.charset) && a.base.is_like(&b.base)
                }
                (a, b) => a == b,
            }
    }

    /// True when elements contain global heap IDs of sequences or strings.
    pub fn contains_vlen(&self) -> bool {
        self.any(&|t| matches!(t.class, Class::VariableLength(_)))
    }

    /// True when elements contain references.
    pub fn contains_reference(&self) -> bool {
        self.any(&|t| matches!(t.class, Class::Reference(_)))
    }

    /// True for a variable-length string itself, not for types that contain one.
    pub fn is_vlen_string(&self) -> bool {
        matches!(&self.class, Class::VariableLength(v) if v.kind == VariableLengthKind::String)
    }
}

/// Name of a member as stored: NUL-terminated; up to version 2 padded to a multiple of 8.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Name {
    /// The name without its NUL; usually UTF-8.
    pub bytes: Vec<u8>,
    /// Padding after the NUL if it is nonzero; canonical messages have none.
    pub(crate) padding: Vec<u8>,
}

impl Name {
    /// A name with canonical padding.
    pub fn new(bytes: impl Into<Vec<u8>>) -> Self {
        Name { bytes: bytes.into(), padding: Vec::new() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression: compounds as libhdf5 writes them by default were another type than their copies,
    /// whose message has another version, so their chunks were decoded.
    #[test]
    fn types_are_alike_whatever_the_version_of_their_message() {
        let member = |name: &str, offset, version, array| Member {
            name: Name { bytes: name.into(), padding: vec![version] },
            offset,
            datatype: Datatype { version, reserved: version.into(), ..Datatype::byte() },
            array,
        };
        let compound = |version: u8, names: [&str; 2]| {
            let array = (version == 1).then(MemberArray::default);
            let members = names.iter().zip([0, 1]).map(|(name, at)| member(name, at, version, array)).collect();
            Datatype::new(version, 2, Class::Compound(Compound { members }))
        };
        let array = |version: u8, dims: &[u32]| {
            let base = compound(version, ["a", "b"]);
            let array = Array { permutation: vec![version.into()], ..Array::new(dims.to_vec(), base) };
            Datatype::new(version, 12, Class::Array(array))
        };
        assert!(array(1, &[2, 3]).is_like(&array(3, &[2, 3])) && array(1, &[2, 3]) != array(3, &[2, 3]));
        assert!(!array(1, &[2, 3]).is_like(&array(1, &[3, 2])) && !array(1, &[6]).is_like(&Datatype::byte()));
        assert!(!compound(1, ["a", "b"]).is_like(&compound(1, ["a", "c"])));
        let enumeration = |version, value: u8| {
            let base = Datatype { version, ..Datatype::byte() };
            Datatype::new(
                version,
                1,
                Class::Enumeration(Enumeration::new(base, vec![EnumMember { name: Name::new(*b"on"), value: vec![value] }])),
            )
        };
        assert!(enumeration(1, 7).is_like(&enumeration(3, 7)) && !enumeration(1, 7).is_like(&enumeration(1, 8)));
        assert!(!Datatype::byte().is_like(&Datatype::utf8(1)));
    }
}
