//! The free list that h5dir leaves at the end of a file it changed. Not a structure of HDF5.
//!
//! ```text
//! list:   ranges | zeros | footer
//! range:  address u64 | length u64
//! footer: address of the list u64 | ranges of any use u32 | parts of metadata pages u32 |
//!         parts of raw data pages u32 | version 1 u32 | "H5dirFre" | checksum of all before it
//! ```
//!
//! The footer ends at the end of file that the superblock records. No HDF5 structure refers to the
//! list, and no other program allocates the space that it names: libhdf5 allocates past the end of
//! file, space that it freed itself, and space of its own free-space managers. A program that
//! extends the file moves the end away from the list, which is void then.

use super::{Reader, Writer};
use crate::base::checksum::lookup3;
use crate::base::free_ranges::FreeRanges;
use crate::base::{Address, Result};

/// Name of the structure.
pub const NAME: &str = "free list";
/// Length of the footer, bytes.
pub const FOOTER_BYTES: u64 = 36;
/// Length of a range, bytes.
const RANGE_BYTES: u64 = 16;
/// Most ranges of a list.
pub const RANGES_MAX: usize = 1 << 16;
const SIGNATURE: &[u8; 8] = b"H5dirFre";
const VERSION: u32 = 1;

/// The end of a list.
#[derive(Debug, PartialEq, Eq)]
pub struct Footer {
    /// Where the list starts.
    pub address: Address,
    counts: [u32; 3],
}

impl Footer {
    /// Decodes the last bytes of a file; `None` if they are not a footer of a list that ends at
    /// `eof`.
    pub fn decode(bytes: &[u8], eof: u64) -> Option<Footer> {
        let mut r = Reader::new(bytes, NAME, Address(eof));
        let address = Address(r.u64().ok()?);
        let counts = [r.u32().ok()?, r.u32().ok()?, r.u32().ok()?];
        let (version, signature) = (r.u32().ok()?, r.array::<8>().ok()?);
        let footer = Footer { address, counts };
        let ranges = counts.iter().try_fold(0u64, |sum, n| sum.checked_add(u64::from(*n)))?;
        let fits = ranges <= RANGES_MAX as u64 && address.0 > 0 && footer.least_len()? <= eof.checked_sub(address.0)?;
        (version == VERSION && signature == *SIGNATURE && fits).then_some(footer)
    }

    fn least_len(&self) -> Option<u64> {
        let ranges = self.counts.iter().try_fold(0u64, |sum, n| sum.checked_add(u64::from(*n)))?;
        ranges.checked_mul(RANGE_BYTES)?.checked_add(FOOTER_BYTES)
    }
}

/// Length of the encoded list, bytes.
pub fn encoded_len(list: &FreeRanges) -> u64 {
    (list.count() as u64).saturating_mul(RANGE_BYTES).saturating_add(FOOTER_BYTES)
}

/// Encodes the list in `len` bytes, at least [`encoded_len`], for `address`.
pub fn encode(list: &FreeRanges, address: Address, len: u64) -> Vec<u8> {
    let mut w = Writer::new();
    for range in list.iter() {
        w.u64(range.start).u64(range.end.saturating_sub(range.start));
    }
    w.zeros(usize::try_from(len.saturating_sub(encoded_len(list))).unwrap_or_default());
    w.u64(address.0);
    for list in list.lists() {
        w.u32(u32::try_from(list.len()).unwrap_or(u32::MAX));
    }
    w.u32(VERSION).bytes(SIGNATURE).checksum();
    w.into_bytes()
}

/// Decodes the list with this footer from all of its bytes. Errors: another checksum, or a range
/// that does not lie between `least` and the list.
pub fn decode(bytes: &[u8], footer: &Footer, least: u64) -> Result<FreeRanges> {
    let mut r = Reader::new(bytes, NAME, footer.address);
    let (front, checksum) = bytes.split_at_checked(bytes.len().saturating_sub(4)).ok_or_else(|| r.corrupt("too short"))?;
    if lookup3(front, 0).to_le_bytes() != checksum {
        return Err(r.corrupt("checksum mismatch"));
    }
    let mut list = |count: u32| {
        let one = |_| {
            let (start, len) = (r.u64()?, r.u64()?);
            let end = start.checked_add(len).filter(|end| len > 0 && start >= least && *end <= footer.address.0);
            end.map(|end| start..end).ok_or_else(|| r.corrupt(format!("a range of {len} bytes at {start:#x}")))
        };
        (0..count).map(one).collect::<Result<Vec<_>>>()
    };
    let [whole, metadata, raw] = footer.counts;
    Ok(FreeRanges { whole: list(whole)?, parts: [list(metadata)?, list(raw)?] })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> FreeRanges {
        FreeRanges { whole: vec![100..200, 300..1000], parts: [vec![], vec![2000..2001, 2010..2020]] }
    }

    fn decoded(bytes: &[u8]) -> Option<FreeRanges> {
        let (end, start) = (5000 + bytes.len() as u64, bytes.len() - FOOTER_BYTES as usize);
        let footer = Footer::decode(&bytes[start..], end)?;
        decode(bytes, &footer, 48).ok()
    }

    #[test]
    fn lists_round_trip() {
        for list in [sample(), FreeRanges::default()] {
            for more in [0, 1000] {
                let bytes = encode(&list, Address(5000), encoded_len(&list) + more);
                assert_eq!(bytes.len() as u64, encoded_len(&list) + more);
                assert_eq!(decoded(&bytes).as_ref(), Some(&list));
            }
        }
    }

    #[test]
    fn damage_is_found() {
        let bytes = encode(&sample(), Address(5000), 200);
        for i in 0..bytes.len() {
            let mut bytes = bytes.clone();
            bytes[i] ^= 0x40;
            assert_eq!(decoded(&bytes), None, "byte {i}");
        }
        for range in [40..100, 5000..5001, 60..60] {
            let list = FreeRanges { whole: vec![range, 70..80], parts: [vec![], vec![]] };
            assert_eq!(decoded(&encode(&list, Address(5000), encoded_len(&list))), None, "{list:?}");
        }
        let footer = &bytes[bytes.len() - FOOTER_BYTES as usize..];
        assert_eq!(Footer::decode(footer, 5000 + 90), None, "more ranges than the file has room for");
        assert_eq!(Footer::decode(&footer[1..], 5200), None);
    }
}
