//! Attribute message 0x000C, versions 1 to 3.
//!
//! ```text
//! v1: version 1 | 0 | name size u16 | datatype size u16 | dataspace size u16 |
//!     name | datatype | dataspace | data
//!     (name, datatype and dataspace each padded to a multiple of 8; sizes are unpadded)
//! v2: as v1 with flags (bit 0 datatype shared, bit 1 dataspace shared) in place of 0, no padding
//! v3: as v2 with a character-set byte after the sizes
//! ```

use crate::base::{Address, Error, Result};
use crate::format::{Reader, Writer};

const NAME: &str = "attribute message";

/// A decoded attribute message; datatype and dataspace stay encoded (they may be references).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attribute {
    /// 1 to 3.
    pub version: u8,
    /// True if `datatype` is a shared-message reference.
    pub datatype_shared: bool,
    /// True if `dataspace` is a shared-message reference.
    pub dataspace_shared: bool,
    /// Character set of the name: 0 ASCII, 1 UTF-8.
    pub charset: u8,
    /// Name without its NUL.
    pub name: Vec<u8>,
    /// Name bytes from the first NUL on, kept for encoding.
    pub name_tail: Vec<u8>,
    /// Encoded datatype.
    pub datatype: Vec<u8>,
    /// Encoded dataspace.
    pub dataspace: Vec<u8>,
    /// Raw value, to the end of the message.
    pub data: Vec<u8>,
}

fn padding(version: u8, n: usize) -> usize {
    if version == 1 { n.wrapping_neg() & 7 } else { 0 }
}

impl Attribute {
    /// Decodes a message body.
    pub fn decode(body: &[u8], address: Address) -> Result<Self> {
        let mut r = Reader::new(body, NAME, address);
        let version = r.version(1..=3)?;
        let flags = r.u8()?;
        let flags = if version == 1 { 0 } else { flags };
        if flags & !3 != 0 {
            return Err(r.corrupt(format!("flags {flags:#x}")));
        }
        let sizes = [usize::from(r.u16()?), usize::from(r.u16()?), usize::from(r.u16()?)];
        let charset = if version == 3 { r.u8()? } else { 0 };
        let [name, datatype, dataspace] = sizes;
        let mut part = |n: usize| -> Result<&[u8]> {
            let b = r.bytes(n)?;
            // The padding of the last part may be missing in a message without data.
            r.skip(padding(version, n).min(r.remaining()))?;
            Ok(b)
        };
        let (name, datatype, dataspace) = (part(name)?, part(datatype)?, part(dataspace)?);
        let end = name.iter().position(|&b| b == 0).unwrap_or(name.len());
        let (name, tail) = name.split_at(end);
        Ok(Attribute {
            version,
            datatype_shared: flags & 1 != 0,
            dataspace_shared: flags & 2 != 0,
            charset,
            name: name.to_vec(),
            name_tail: tail.to_vec(),
            datatype: datatype.to_vec(),
            dataspace: dataspace.to_vec(),
            data: r.rest().to_vec(),
        })
    }

    /// Encodes the body.
    pub fn encode(&self) -> Vec<u8> {
        let mut w = Writer::new();
        let flags = u8::from(self.datatype_shared) | u8::from(self.dataspace_shared) << 1;
        let name = [self.name.as_slice(), &self.name_tail].concat();
        w.u8(self.version).u8(flags);
        for part in [&name, &self.datatype, &self.dataspace] {
            w.uint(part.len() as u64, 2);
        }
        if self.version == 3 {
            w.u8(self.charset);
        }
        for part in [&name, &self.datatype, &self.dataspace] {
            w.bytes(part).zeros(padding(self.version, part.len()));
        }
        w.bytes(&self.data);
        w.into_bytes()
    }
}

/// Encodes an attribute message for an object header of version `header_version`.
///
/// Version 3 is used in version 2 headers and for names that are not ASCII (then UTF-8); otherwise
/// version 2 with a shared (committed) datatype, else version 1. `datatype` is an encoded datatype
/// or, if `datatype_shared`, an encoded reference to one; `dataspace` is an encoded dataspace;
/// `value` is the raw elements. Errors: a part is larger than 65535 bytes.
pub fn encode_attribute(
    header_version: u8,
    name: &[u8],
    datatype: &[u8],
    datatype_shared: bool,
    dataspace: &[u8],
    value: &[u8],
) -> Result<Vec<u8>> {
    let limit = |what: &'static str| Err(Error::limit(NAME, Address::UNDEF, what));
    if name.len() >= usize::from(u16::MAX) {
        return limit("a name of 65535 bytes or more");
    }
    if datatype.len().max(dataspace.len()) > usize::from(u16::MAX) {
        return limit("a datatype or dataspace of 64 KiB or more");
    }
    let version = match (name.is_ascii(), datatype_shared) {
        (true, false) if header_version == 1 => 1,
        (true, true) if header_version == 1 => 2,
        _ => 3,
    };
    let attribute = Attribute {
        version,
        datatype_shared,
        dataspace_shared: false,
        charset: u8::from(!name.is_ascii()),
        name: name.to_vec(),
        name_tail: vec![0],
        datatype: datatype.to_vec(),
        dataspace: dataspace.to_vec(),
        data: value.to_vec(),
    };
    Ok(attribute.encode())
}

/// Returns the name in an attribute message of any version, without decoding the rest.
pub fn name_of(body: &[u8], address: Address) -> Result<&[u8]> {
    let mut r = Reader::new(body, NAME, address);
    let version = r.version(1..=3)?;
    r.skip(1)?;
    let size = usize::from(r.u16()?);
    r.skip(if version == 3 { 5 } else { 4 })?;
    let name = r.bytes(size)?;
    Ok(name.split(|&b| b == 0).next().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_libhdf5_encodes_it() {
        let (datatype, dataspace) = (&V3[12..24], &V3[24..28]);
        assert_eq!(encode_attribute(2, b"ab", datatype, false, dataspace, &[5, 0]).unwrap(), V3);
        let v1 = encode_attribute(1, b"ab", datatype, false, dataspace, &[5, 0]).unwrap();
        assert_eq!((v1[0], v1.len(), name_of(&v1, Address(0)).unwrap()), (1, 8 + 8 + 16 + 8 + 2, &b"ab"[..]));
        assert_eq!(encode_attribute(1, b"ab", datatype, true, dataspace, &[]).unwrap()[..2], [2, 1]);
        assert_eq!(encode_attribute(1, "\u{e4}".as_bytes(), datatype, false, dataspace, &[]).unwrap()[8], 1);
        assert!(encode_attribute(1, &[b'a'; 65_535], datatype, false, dataspace, &[]).is_err());
    }

    /// v3 message of `attrs['ab'] = numpy.int16(5)` by libhdf5 2.0, libver latest.
    const V3: [u8; 30] = [3, 0, 3, 0, 12, 0, 4, 0, 0, 97, 98, 0, 0x10, 8, 0, 0, 2, 0, 0, 0, 0, 0, 16, 0, 2, 0, 0, 0, 5, 0];

    #[test]
    fn golden_round_trip() {
        let a = Attribute::decode(&V3, Address(0)).unwrap();
        assert_eq!((a.name.as_slice(), a.data.as_slice()), (&b"ab"[..], &[5u8, 0][..]));
        assert_eq!(a.encode(), V3);
        let v1 = Attribute { version: 1, ..a };
        assert_eq!(Attribute::decode(&v1.encode(), Address(0)).unwrap(), v1);
    }

    #[test]
    fn truncated_is_an_error() {
        for n in 0..28 {
            assert!(Attribute::decode(&V3[..n], Address(0)).is_err(), "{n}");
        }
    }
}
