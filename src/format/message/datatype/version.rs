//! Message versions of a datatype: the oldest that can encode it, as libhdf5 chooses them.
//!
//! ```text
//! 1  all other datatypes                  4  references of HDF5 1.12
//! 2  arrays                               5  complex numbers
//! 3  VAX byte order
//! ```
//!
//! A datatype's version is at least that of its parts. Compounds, arrays and enumerations are
//! shorter from version 3 on and use it in files that allow it. Other classes use the oldest
//! possible version.

use super::{Array, ByteOrder, Class, Complex, Compound, Datatype, EnumMember, Enumeration, Member, MemberArray, Name, VariableLength};

impl Datatype {
    /// The oldest message version that can encode this datatype.
    pub fn version_needed(&self) -> u8 {
        let own = match &self.class {
            Class::FloatingPoint(f) if f.order == ByteOrder::Vax => 3,
            Class::Reference(r) if r.is_standard() => 4,
            Class::Array(_) => 2,
            Class::Complex(_) => 5,
            _ => 1,
        };
        let base = self.base().map_or(1, Datatype::version_needed);
        self.members().iter().map(|m| m.datatype.version_needed()).fold(own.max(base), u8::max)
    }

    /// Converts the datatype to the message versions of a file whose datatypes have at least
    /// version `least`.
    ///
    /// `least` 1: readable by every libhdf5; 3: from 1.8 on. Padding and reserved bits are cleared.
    pub fn for_file(&self, least: u8) -> Datatype {
        let needed = self.version_needed();
        let derived = needed.max(least);
        let (version, class) = match &self.class {
            Class::Compound(c) => (derived, Class::Compound(c.at(derived, least))),
            Class::Enumeration(e) => {
                let member = |m: &EnumMember| EnumMember { name: Name::new(m.name.bytes.clone()), value: m.value.clone() };
                (derived, Class::Enumeration(Enumeration::new(e.base.for_file(least), e.members().iter().map(member).collect())))
            }
            Class::Array(a) => (derived, Class::Array(Array::new(a.dims.clone(), a.base.for_file(least)))),
            Class::VariableLength(v) => {
                let base = Box::new(v.base.for_file(least));
                (base.version, Class::VariableLength(VariableLength { base, ..v.clone() }))
            }
            Class::Complex(c) => (needed, Class::Complex(Complex { base: Box::new(c.base.for_file(least)) })),
            other => (needed, other.clone()),
        };
        Datatype::new(version, self.size, class)
    }
}

impl Compound {
    fn at(&self, version: u8, least: u8) -> Compound {
        let member = |m: &Member| Member {
            name: Name::new(m.name.bytes.clone()),
            offset: m.offset,
            datatype: m.datatype.for_file(least),
            // Only version 1 has the fields. They stay unused: arrays require version 2.
            array: (version == 1).then(MemberArray::default),
        };
        Compound { members: self.members.iter().map(member).collect() }
    }
}

#[cfg(test)]
mod tests {
    use crate::base::Address;
    use crate::format::Reader;
    use crate::format::message::datatype::{Datatype, decode};

    fn bytes(hex: &str) -> Vec<u8> {
        (0..hex.len()).step_by(2).map(|i| u8::from_str_radix(&hex[i..i + 2], 16).unwrap()).collect()
    }

    fn parse(hex: &str) -> Datatype {
        decode(&mut Reader::new(&bytes(hex), "t", Address(0))).unwrap()
    }

    /// Messages that libhdf5 2.0.0 writes for the same type with libver earliest and v110.
    const PAIRS: [(&str, &str); 6] = [
        ("11201f000400000000002000170800177f000000", "11201f000400000000002000170800177f000000"),
        ("2a00000008000000010000000200000000000000100800000400000000002000", "3a000000080000000102000000100800000400000000002000"),
        (
            concat!(
                "26020000140000006100000000000000000000001008000004000000000020006200000000000000040000002a000000100000",
                "0001000000020000000000000011203f000800000000004000340b0034ff030000"
            ),
            concat!(
                "36020000140000006100001008000004000000000020006200043a00000010000000010200000011203f000800000000004000",
                "340b0034ff030000"
            ),
        ),
        (
            "18020000010000001000000001000000000008004100000000000000420000000000000001020000",
            "3802000001000000100000000100000000000800410042000102",
        ),
        ("1901010010000000100000000100000000000800", "1901010010000000100000000100000000000800"),
        ("1700000008000000", "1700000008000000"),
    ];

    #[test]
    fn versions_are_those_libhdf5_writes() {
        for (old, new) in PAIRS {
            for from in [old, new] {
                let hex = |d: Datatype| d.to_bytes().iter().map(|b| format!("{b:02x}")).collect::<String>();
                assert_eq!(hex(parse(from).for_file(3)), new);
                // In old headers libhdf5 pads the message, not the datatype, to a multiple of 8.
                let got = hex(parse(from).for_file(1));
                assert_eq!(got, old[..got.len()]);
                assert!(old[got.len()..].bytes().all(|b| b == b'0'));
            }
        }
    }

    #[test]
    fn plain_compounds_are_version_1() {
        // Version 3 compound of one integer.
        let c = parse("360100000400000061000010080000040000000000200 0".replace(' ', "").as_str());
        let old = c.for_file(1);
        assert_eq!(old.version, 1);
        let again = decode(&mut Reader::new(&old.to_bytes(), "t", Address(0))).unwrap();
        assert_eq!(again, old);
        assert_eq!(again.for_file(3), c);
    }
}
