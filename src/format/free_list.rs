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
use crate::base::{Address, Result};
use std::ops::Range;

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

/// Free space, as ranges of addresses.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FreeList {
    /// For any use; in a file with pages, whole pages.
    pub whole: Vec<Range<u64>>,
    /// Parts of pages: of metadata, of raw data.
    pub parts: [Vec<Range<u64>>; 2],
}

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

impl FreeList {
    /// True if no space is free.
    pub fn is_empty(&self) -> bool {
        self.whole.is_empty() && self.parts.iter().all(Vec::is_empty)
    }

    fn lists(&self) -> [&Vec<Range<u64>>; 3] {
        let [metadata, raw] = &self.parts;
        [&self.whole, metadata, raw]
    }

    /// Length of the encoded list, bytes.
    pub fn len(&self) -> u64 {
        let ranges: u64 = self.lists().iter().map(|l| l.len() as u64).sum();
        ranges.saturating_mul(RANGE_BYTES).saturating_add(FOOTER_BYTES)
    }

    /// Drops the shortest ranges of a list that is too long.
    pub fn limit(&mut self) {
        let lengths = self.lists().into_iter().flatten().map(|r| r.end.saturating_sub(r.start));
        let mut lengths: Vec<u64> = lengths.collect();
        if lengths.len() > RANGES_MAX {
            lengths.sort_unstable_by(|a, b| b.cmp(a));
            let least = lengths.get(RANGES_MAX).copied().unwrap_or_default();
            let [metadata, raw] = &mut self.parts;
            for list in [&mut self.whole, metadata, raw] {
                list.retain(|r| r.end.saturating_sub(r.start) > least);
            }
        }
    }

    /// Encodes the list in `len` bytes, at least [`FreeList::len`], for `address`.
    pub fn encode(&self, address: Address, len: u64) -> Vec<u8> {
        let mut w = Writer::new();
        for range in self.lists().into_iter().flatten() {
            w.u64(range.start).u64(range.end.saturating_sub(range.start));
        }
        w.zeros(usize::try_from(len.saturating_sub(self.len())).unwrap_or_default());
        w.u64(address.0);
        for list in self.lists() {
            w.u32(u32::try_from(list.len()).unwrap_or(u32::MAX));
        }
        w.u32(VERSION).bytes(SIGNATURE).checksum();
        w.into_bytes()
    }

    /// Decodes the list with this footer from all of its bytes. Errors: another checksum, or a
    /// range that does not lie between `least` and the list.
    pub fn decode(bytes: &[u8], footer: &Footer, least: u64) -> Result<FreeList> {
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
        Ok(FreeList { whole: list(whole)?, parts: [list(metadata)?, list(raw)?] })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> FreeList {
        FreeList { whole: vec![100..200, 300..1000], parts: [vec![], vec![2000..2001, 2010..2020]] }
    }

    fn decoded(bytes: &[u8]) -> Option<FreeList> {
        let (end, start) = (5000 + bytes.len() as u64, bytes.len() - FOOTER_BYTES as usize);
        let footer = Footer::decode(&bytes[start..], end)?;
        FreeList::decode(bytes, &footer, 48).ok()
    }

    #[test]
    fn lists_round_trip() {
        for list in [sample(), FreeList::default()] {
            for more in [0, 1000] {
                let bytes = list.encode(Address(5000), list.len() + more);
                assert_eq!(bytes.len() as u64, list.len() + more);
                assert_eq!(decoded(&bytes).as_ref(), Some(&list));
            }
        }
    }

    #[test]
    fn damage_is_found() {
        let bytes = sample().encode(Address(5000), 200);
        for i in 0..bytes.len() {
            let mut bytes = bytes.clone();
            bytes[i] ^= 0x40;
            assert_eq!(decoded(&bytes), None, "byte {i}");
        }
        for range in [40..100, 5000..5001, 60..60] {
            let list = FreeList { whole: vec![range, 70..80], parts: [vec![], vec![]] };
            assert_eq!(decoded(&list.encode(Address(5000), list.len())), None, "{list:?}");
        }
        let footer = &bytes[bytes.len() - FOOTER_BYTES as usize..];
        assert_eq!(Footer::decode(footer, 5000 + 90), None, "more ranges than the file has room for");
        assert_eq!(Footer::decode(&footer[1..], 5200), None);
    }

    #[test]
    fn the_longest_ranges_are_kept() {
        let range = |i: u64| i * 1000..i * 1000 + 1 + i % 100;
        let mut list = FreeList { whole: (0..RANGES_MAX as u64 + 10).map(range).collect(), parts: [vec![], vec![]] };
        list.limit();
        assert!(list.whole.len() <= RANGES_MAX && list.whole.len() > RANGES_MAX / 2);
        assert!(list.whole.iter().all(|r| r.end - r.start > 1));
    }
}
