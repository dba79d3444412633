//! Onion files (`NAME.onion`): revisions of an HDF5 file, page by page (H5FDonion*.c, 1.14).
//!
//! ```text
//! header:   "OHDH" | version 1 | flags u24 | bytes of a page u32 | original EOF u64 |
//!           history: address u64, bytes u64 | checksum
//! history:  "OWHS" | version 1 | 0 u24 | revisions u64 |
//!           record of each: address u64, bytes u64, checksum u32 | checksum
//! record:   "ORRS" | version 1 | 0 u24 | revision u64 | parent u64 | time 16 | EOF u64 |
//!           bytes of a page u32 | entries u64 | bytes of the comment u32 |
//!           entries: offset in the file u64, address in the onion file u64, checksum u32 |
//!           comment | checksum
//! ```
//!
//! Checksums are fletcher32 of all bytes before. The entries of a record are all pages that differ
//! from the original file. Callers supply the checksum, which is a filter's.

use super::Reader;
use crate::base::{Address, Result, limits};

/// Name of onion files in errors.
pub const NAME: &str = "onion file";
/// Bytes of the header.
pub const HEADER_BYTES: u64 = 40;
/// First bytes of an onion file.
pub const SIGNATURE: &[u8; 4] = b"OHDH";
/// Bytes of a history without revisions, and of each record in it.
const HISTORY_BYTES: usize = 20;
const LOCATION_BYTES: usize = 20;
/// Bytes of an entry.
const ENTRY_BYTES: usize = 20;

/// Computes the checksum of bytes.
pub type Checksum<'a> = &'a dyn Fn(&[u8]) -> u32;

/// Address and length of a structure in the onion file, bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OnionExtent {
    /// Its first byte.
    pub address: u64,
    /// Its length.
    pub len: u64,
}

/// The header of an onion file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Header {
    /// Length of the original file.
    pub original_eof: u64,
    /// The history.
    pub history: OnionExtent,
}

/// The state of the file in one revision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Revision {
    /// Length of the file.
    pub eof: u64,
    /// Bytes of a page, a power of two.
    pub page_size: u64,
    /// Pages that differ from the original: offset in the file, address in the onion file.
    /// Ascending.
    pub pages: Vec<(u64, u64)>,
}

/// Errors: `bytes` do not end with the checksum of those before.
fn verify<'a>(bytes: &'a [u8], address: u64, checksum: Checksum<'_>) -> Result<Reader<'a>> {
    let r = Reader::new(bytes, NAME, Address(address));
    let (front, stored) = bytes.split_last_chunk::<4>().ok_or_else(|| r.corrupt("too short"))?;
    let (stored, sum) = (u32::from_le_bytes(*stored), checksum(front));
    if stored != sum && !cfg!(fuzzing) {
        return Err(r.corrupt(format!("checksum is {stored:#010x}, must be {sum:#010x}")));
    }
    Ok(Reader::new(front, NAME, Address(address)))
}

impl OnionExtent {
    fn decode(r: &mut Reader<'_>) -> Result<OnionExtent> {
        let place = OnionExtent { address: r.u64()?, len: r.u64()? };
        if place.len > limits::METADATA_BLOCK_MAX || place.address.checked_add(place.len).is_none() {
            return Err(r.corrupt(format!("{} bytes at {:#x}", place.len, place.address)));
        }
        Ok(place)
    }
}

impl Header {
    /// Decodes the first bytes of an onion file.
    pub fn decode(bytes: &[u8], checksum: Checksum<'_>) -> Result<Header> {
        let mut r = verify(bytes, 0, checksum)?;
        r.signature(SIGNATURE)?;
        r.version(1..=1)?;
        // Flags, and bytes of a page, which every revision has.
        r.skip(7)?;
        Ok(Header { original_eof: r.u64()?, history: OnionExtent::decode(&mut r)? })
    }
}

/// Decodes the history `bytes` at `address`: the places of the records of all revisions.
pub fn decode_history(bytes: &[u8], address: u64, checksum: Checksum<'_>) -> Result<Vec<OnionExtent>> {
    let mut r = verify(bytes, address, checksum)?;
    r.signature(b"OWHS")?;
    r.version(1..=1)?;
    r.skip(3)?;
    let count = r.u64()?;
    let fits = usize::try_from(count).ok().and_then(|n| n.checked_mul(LOCATION_BYTES)?.checked_add(HISTORY_BYTES));
    if fits != Some(bytes.len()) {
        return Err(r.corrupt(format!("{count} revisions in {} bytes", bytes.len())));
    }
    let mut places = Vec::new();
    for _ in 0..count {
        places.push(OnionExtent::decode(&mut r)?);
        r.skip(4)?;
    }
    Ok(places)
}

impl Revision {
    /// Decodes the record `bytes` at `address`.
    pub fn decode(bytes: &[u8], address: u64, checksum: Checksum<'_>) -> Result<Revision> {
        let mut r = verify(bytes, address, checksum)?;
        r.signature(b"ORRS")?;
        r.version(1..=1)?;
        r.skip(3 + 8 + 8 + 16)?;
        let (eof, page_size, count, _comment) = (r.u64()?, u64::from(r.u32()?), r.u64()?, r.u32()?);
        if !page_size.is_power_of_two() {
            return Err(r.corrupt(format!("pages of {page_size} bytes")));
        }
        if count > (r.remaining() / ENTRY_BYTES) as u64 {
            return Err(r.corrupt(format!("{count} pages in {} bytes", r.remaining())));
        }
        let mut pages = Vec::new();
        for _ in 0..count {
            let (offset, at) = (r.u64()?, r.u64()?);
            r.skip(4)?;
            if !offset.is_multiple_of(page_size) || at.checked_add(page_size).is_none() || offset.checked_add(page_size).is_none() {
                return Err(r.corrupt(format!("a page of {page_size} bytes at {offset:#x}, stored at {at:#x}")));
            }
            pages.push((offset, at));
        }
        pages.sort_unstable();
        if pages.windows(2).any(|pair| matches!(pair, [a, b] if a.0 == b.0)) {
            return Err(r.corrupt("a page is stored twice"));
        }
        Ok(Revision { eof, page_size, pages })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn zero(_: &[u8]) -> u32 {
        0
    }

    #[test]
    fn structures_are_bounded() {
        let header =
            [&b"OHDH\x01\0\0\0\x20\0\0\0"[..], &[7, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, 0x50, 0, 0, 0, 0, 0, 0, 0], &[0; 4]]
                .concat();
        let decoded = Header::decode(&header, &zero).unwrap();
        assert_eq!(decoded, Header { original_eof: 7, history: OnionExtent { address: 9, len: 0x50 } });
        assert!((0..header.len()).all(|n| Header::decode(&header[..n], &zero).is_err()));
        let record = |offset: u64, count: u64| {
            let head =
                [&b"ORRS\x01\0\0\0"[..], &[0; 32], &100u64.to_le_bytes(), &32u32.to_le_bytes(), &count.to_le_bytes(), &[0; 4]].concat();
            let entry = |offset: u64| [&offset.to_le_bytes()[..], &[0; 12]].concat();
            [head, entry(64), entry(offset), vec![0; 4]].concat()
        };
        let decoded = Revision::decode(&record(32, 2), 0, &zero).unwrap();
        assert_eq!((decoded.eof, decoded.pages), (100, vec![(32, 0), (64, 0)]));
        for (offset, count) in [(33, 2), (64, 2), (0, 3), (0, u64::MAX), (u64::MAX - 31, 2)] {
            assert!(Revision::decode(&record(offset, count), 0, &zero).is_err());
        }
        let history = [&b"OWHS\x01\0\0\0"[..], &1u64.to_le_bytes(), &[0; 20], &[0; 4]].concat();
        assert_eq!(decode_history(&history, 0, &zero).map(|all| all.len()), Ok(1));
        assert!((0..history.len()).all(|n| decode_history(&history[..n], 0, &zero).is_err()));
        assert!(Header::decode(&header, &|_| 1).is_err());
    }
}
