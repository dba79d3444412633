//! Driver information: how one file is divided into several.
//!
//! ```text
//! block (superblock 0, 1):  version 0 | 0 u24 | bytes of information u32 | driver 8 | information
//! message 0x14 (extension): version 0 | driver 8 | bytes of information u16 | information
//!
//! "NCSAfami": bytes of a member u64
//! "NCSAmult": member of each type 6 u8 | 0 u16 |
//!             members in that order: address u64, EOF u64 | their names, NUL, padded to 8 bytes
//! ```
//!
//! Types are superblock, B-tree, elements, global heap, local heap, object header. In a name, `%s`
//! stands for the name of the file as a whole. H5.format.4.0, "Driver Information Block" and
//! "Driver Info Message"; H5FDfamily.c, H5FDmulti.c.

use super::Reader;
use super::superblock::{DRIVER_NAME, driver_block_len};
use crate::base::{Address, Result};

/// Types of allocations, each of which has a member.
const TYPES: usize = 6;
/// Longest driver information, bytes: six members with long names.
pub const BYTES_MAX: u64 = 16 << 10;
/// Bytes of a prefix of a block.
pub const PREFIX_BYTES: u64 = 16;

/// A member of a multi file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MultiMember {
    /// Its first address.
    pub address: u64,
    /// Bytes that it had when the file was closed.
    pub eof: u64,
    /// Its name; `%s` is the name of the whole.
    pub name: Vec<u8>,
}

/// How a file is divided.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DriverInfo {
    /// Into members of this many bytes.
    Family(u64),
    /// By types of allocations. Members are in the order of the types.
    Multi(Vec<MultiMember>),
    /// By another driver.
    Other([u8; 8]),
}

impl DriverInfo {
    /// Decodes the block `bytes` at `address`.
    pub fn decode_block(bytes: &[u8], address: Address) -> Result<DriverInfo> {
        let mut r = Reader::new(bytes, DRIVER_NAME, address);
        let len = driver_block_len(bytes, address)?.saturating_sub(PREFIX_BYTES);
        r.skip(8)?;
        let driver = r.array()?;
        Self::decode(&mut r, driver, len)
    }

    /// Decodes the body of the message in the header at `address`.
    pub fn decode_message(body: &[u8], address: Address) -> Result<DriverInfo> {
        let mut r = Reader::new(body, "driver info message", address);
        r.version(0..=0)?;
        let driver = r.array()?;
        let len = u64::from(r.u16()?);
        Self::decode(&mut r, driver, len)
    }

    fn decode(r: &mut Reader<'_>, driver: [u8; 8], len: u64) -> Result<DriverInfo> {
        let len = usize::try_from(len).ok().filter(|len| *len <= r.remaining());
        let bytes = r.bytes(len.ok_or_else(|| r.corrupt("it is longer than its block"))?)?;
        let mut r = Reader::new(bytes, DRIVER_NAME, r.address());
        match &driver {
            b"NCSAfami" => match r.u64()? {
                0 => Err(r.corrupt("members of no bytes")),
                size => Ok(DriverInfo::Family(size)),
            },
            b"NCSAmult" => Self::decode_multi(&mut r).map(DriverInfo::Multi),
            _ => Ok(DriverInfo::Other(driver)),
        }
    }

    fn decode_multi(r: &mut Reader<'_>) -> Result<Vec<MultiMember>> {
        let map: [u8; TYPES] = r.array()?;
        r.skip(2)?;
        let mut order: Vec<u8> = Vec::new();
        for (i, member) in (1u8..).zip(map) {
            if usize::from(member) > TYPES {
                return Err(r.corrupt(format!("member {member} of a type")));
            }
            // 0: the member of the type itself.
            let member = if member == 0 { i } else { member };
            if !order.contains(&member) {
                order.push(member);
            }
        }
        let places = order.iter().map(|_| Ok((r.u64()?, r.u64()?))).collect::<Result<Vec<_>>>()?;
        let mut members = Vec::new();
        for (address, eof) in places {
            let name = r.cstr()?.to_vec();
            let padding = name.len().saturating_add(1).next_multiple_of(8).saturating_sub(name.len().saturating_add(1));
            r.skip(padding.min(r.remaining()))?;
            members.push(MultiMember { address, eof, name });
        }
        Ok(members)
    }

    /// Encodes the message body that `decode_message` reads.
    #[cfg(test)]
    pub fn encode(&self) -> Vec<u8> {
        let mut data = crate::format::Writer::new();
        let driver: &[u8] = match self {
            DriverInfo::Family(size) => {
                data.u64(*size);
                b"NCSAfami"
            }
            _ => b"NCSAothr",
        };
        let data = data.into_bytes();
        let mut w = crate::format::Writer::new();
        w.u8(0).bytes(driver).u16(u16::try_from(data.len()).unwrap_or(0)).bytes(&data);
        w.into_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of files that h5py 3.16 wrote with driver='split' and driver='family'.
    const SPLIT: &[u8] = b"\0\0\0\0\x38\0\0\0NCSAmult\x01\x01\x03\x03\x01\x01\0\0\0\0\0\0\0\0\0\0\x28\x15\0\0\0\0\0\0\
        \xff\xff\xff\xff\xff\xff\xff\x7f\x8a\xc1\0\0\0\0\0\0%s-m.h5\0%s-r.h5\0";
    const FAMILY: &[u8] = b"\0NCSAfami\x08\0\0\x10\0\0\0\0\0\0";

    #[test]
    fn known_answers_and_damage() {
        let split = DriverInfo::decode_block(SPLIT, Address(96)).unwrap();
        let member = |address, eof, name: &[u8]| MultiMember { address, eof, name: name.to_vec() };
        assert_eq!(split, DriverInfo::Multi(vec![member(0, 0x1528, b"%s-m.h5"), member(i64::MAX as u64, 0xc18a, b"%s-r.h5")]));
        let family = DriverInfo::decode_message(FAMILY, Address(0)).unwrap();
        assert_eq!((family.encode(), family), (FAMILY.to_vec(), DriverInfo::Family(4096)));
        assert!((0..SPLIT.len()).all(|n| DriverInfo::decode_block(&SPLIT[..n], Address(0)).is_err()));
        assert!((0..FAMILY.len()).all(|n| DriverInfo::decode_message(&FAMILY[..n], Address(0)).is_err()));
        for i in 0..SPLIT.len() {
            let mut bytes = SPLIT.to_vec();
            bytes[i] ^= 0xff;
            let _ = DriverInfo::decode_block(&bytes, Address(0));
        }
    }
}
