//! Attribute message 0x000C, versions 1 to 3.
//!
//! ```text
//! v1: version 1 | 0 | name size u16 | datatype size u16 | dataspace size u16 | name | datatype | dataspace | data
//!     (name, datatype and dataspace each padded to a multiple of 8; sizes are unpadded)
//! v2: as v1 with flags (bit 0 datatype shared, bit 1 dataspace shared) in place of 0, no padding
//! v3: as v2 with a character-set byte after the sizes
//! ```

use crate::base::{Address, Result};
use crate::format::{Reader, Writer};

const NAME: &str = "attribute message";

/// An attribute message; datatype and dataspace as stored (they may be shared-message references).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attribute {
    /// 1 to 3.
    pub version: u8,
    /// The datatype bytes are a shared-message reference.
    pub datatype_shared: bool,
    /// The dataspace bytes are a shared-message reference.
    pub dataspace_shared: bool,
    /// Character set of the name: 0 ASCII, 1 UTF-8.
    pub charset: u8,
    /// Name without its NUL.
    pub name: Vec<u8>,
    /// Name bytes after the first NUL, kept for encoding.
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
            // The last part's padding may be cut off in a message without data.
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

#[cfg(test)]
mod tests {
    use super::*;

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
