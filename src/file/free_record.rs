//! Record of the free space of a session under way, for the session after a kill.
//!
//! ```text
//! "h5dirspc" | nonce u64 | bytes of the block u64 | page size u64 | offset of the first page u64 |
//! ranges of any use u32 | parts of metadata pages u32 | parts of raw data pages u32 |
//! ranges: offset u64 | end u64 | ... checksum of all before, 2 x u32
//! ```
//!
//! Little-endian; offsets are absolute. The record fills the front of a block of the file that no
//! structure refers to. The journal beside the file names the block and the nonce of its record
//! ([`RecordPlace`]). Whatever commit is the last one: the space that a valid record names is free
//! (`file::transaction::free_record`).

use super::space::{Pages, Ranges};
use super::{FileDriver, read_all};
use crate::base::checksum::lookup3;
use crate::base::free_ranges::FreeRanges;
use std::io;
use std::ops::Range;

/// Most ranges of each kind that a session records, the longest.
pub const RANGES_MAX: usize = 1024;
/// Largest block of a record, bytes.
pub const BLOCK_BYTES_MAX: u64 = 128 << 10;
/// Most ranges of each kind in a record.
const RECORDED_MAX: usize = BLOCK_BYTES_MAX as usize / RANGE_BYTES;
const MAGIC: &[u8; 8] = b"h5dirspc";
const HEAD_BYTES: usize = 8 + 4 * 8 + 3 * 4;
const RANGE_BYTES: usize = 16;
const CHECKSUM_BYTES: usize = 8;
const CHECKSUM_SEEDS: [u32; 2] = [0, 0x6835_6473];

/// Where a record is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordPlace {
    /// Absolute offset of its block.
    pub offset: u64,
    /// Nonce of the records of this block.
    pub nonce: u64,
}

/// Free space of a file, by absolute offsets.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FreeRecord {
    /// The space.
    pub free: FreeRanges,
    /// The file's pages, if it has any.
    pub pages: Option<Pages>,
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..at.checked_add(8)?)?.try_into().ok().map(u64::from_le_bytes)
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..at.checked_add(4)?)?.try_into().ok().map(u32::from_le_bytes)
}

fn checksums(bytes: &[u8]) -> Vec<u8> {
    CHECKSUM_SEEDS.iter().flat_map(|seed| lookup3(bytes, *seed).to_le_bytes()).collect()
}

/// The head of an encoded record.
struct Head {
    block: u64,
    pages: Option<Pages>,
    counts: [usize; 3],
}

impl Head {
    fn decode(bytes: &[u8], nonce: u64) -> Option<Head> {
        let magic_fits = bytes.starts_with(MAGIC) && u64_at(bytes, 8)? == nonce;
        let pages = Pages { size: u64_at(bytes, 24)?, origin: u64_at(bytes, 32)? };
        let mut counts = [0; 3];
        for (i, count) in counts.iter_mut().enumerate() {
            *count = usize::try_from(u32_at(bytes, 40 + 4 * i)?).ok().filter(|n| *n <= RECORDED_MAX)?;
        }
        let head = Head { block: u64_at(bytes, 16)?, pages: Some(pages).filter(|p| p.size > 0), counts };
        (magic_fits && head.block <= BLOCK_BYTES_MAX && head.len() as u64 <= head.block).then_some(head)
    }

    fn len(&self) -> usize {
        encoded_len(self.counts.iter().sum())
    }
}

/// Bytes of a record of that many ranges.
pub fn encoded_len(ranges: usize) -> usize {
    ranges.saturating_mul(RANGE_BYTES).saturating_add(HEAD_BYTES + CHECKSUM_BYTES)
}

impl FreeRecord {
    /// Keeps the longest ranges, so that the encoded record has at most `len` bytes.
    pub fn limit(&mut self, len: u64) {
        let room = usize::try_from(len).unwrap_or(usize::MAX).saturating_sub(HEAD_BYTES + CHECKSUM_BYTES);
        self.free.keep_longest(room / RANGE_BYTES);
    }

    /// Encodes the record for a block of `block` bytes.
    pub fn encode(&self, nonce: u64, block: u64) -> Vec<u8> {
        let mut out = MAGIC.to_vec();
        let Pages { size, origin } = self.pages.unwrap_or(Pages { size: 0, origin: 0 });
        [nonce, block, size, origin].iter().for_each(|n| out.extend_from_slice(&n.to_le_bytes()));
        for list in self.free.lists() {
            out.extend_from_slice(&u32::try_from(list.len()).unwrap_or(u32::MAX).to_le_bytes());
        }
        for range in self.free.iter() {
            out.extend_from_slice(&range.start.to_le_bytes());
            out.extend_from_slice(&range.end.to_le_bytes());
        }
        let sums = checksums(&out);
        out.extend_from_slice(&sums);
        out
    }

    /// Reads the record at `place` of `file`, and the length of its block. Ranges are cut at `end`.
    /// `None`: it is not there as a whole, or names bytes before `start`, or a byte twice.
    pub fn read(file: &dyn FileDriver, place: RecordPlace, start: u64, end: u64) -> io::Result<Option<(FreeRecord, u64)>> {
        let mut bytes = vec![0; HEAD_BYTES];
        if read_all(file, &mut bytes, place.offset)? < bytes.len() {
            return Ok(None);
        }
        let Some(head) = Head::decode(&bytes, place.nonce) else { return Ok(None) };
        let block_end = place.offset.checked_add(head.block).filter(|block_end| place.offset >= start && *block_end <= end);
        let Some(block_end) = block_end else { return Ok(None) };
        bytes.resize(head.len(), 0);
        if read_all(file, &mut bytes, place.offset)? < bytes.len() {
            return Ok(None);
        }
        let record = FreeRecord::decode(&bytes, &head, place.offset..block_end, start..end);
        Ok(record.map(|record| (record, head.block)))
    }

    fn decode(bytes: &[u8], head: &Head, block: Range<u64>, within: Range<u64>) -> Option<FreeRecord> {
        let (front, sums) = bytes.split_at_checked(bytes.len().checked_sub(CHECKSUM_BYTES)?)?;
        if checksums(front) != sums {
            return None;
        }
        let mut all = Ranges::default();
        all.insert(block);
        let mut at = HEAD_BYTES;
        let mut list = |count: usize| {
            let mut list = Vec::with_capacity(count);
            for _ in 0..count {
                let range = u64_at(front, at)?..u64_at(front, at.checked_add(8)?)?;
                at = at.checked_add(RANGE_BYTES)?;
                if range.start < within.start || range.end <= range.start {
                    return None;
                }
                let range = range.start..range.end.min(within.end);
                if range.is_empty() {
                    continue;
                }
                if all.split(range.clone()).iter().any(|(_, taken)| *taken) {
                    return None;
                }
                all.insert(range.clone());
                list.push(range);
            }
            Some(list)
        };
        let [whole, metadata, raw] = head.counts;
        let free = FreeRanges { whole: list(whole)?, parts: [list(metadata)?, list(raw)?] };
        Some(FreeRecord { free, pages: head.pages })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::WriteDriver;
    use crate::file::memory::GrowingFile;

    const PLACE: RecordPlace = RecordPlace { offset: 1024, nonce: 7 };

    fn sample() -> FreeRecord {
        let pages = Some(Pages { size: 4096, origin: 512 });
        let free = FreeRanges { whole: vec![100..200, 2048..3000], parts: [vec![], vec![4000..4001, 4010..4020]] };
        FreeRecord { free, pages }
    }

    fn read(bytes: &[u8], place: RecordPlace, end: u64) -> Option<(FreeRecord, u64)> {
        let file = GrowingFile::new(vec![0; 8192]);
        file.write_at(bytes, 1024).unwrap();
        FreeRecord::read(&file, place, 48, end).unwrap()
    }

    #[test]
    fn records_round_trip() {
        for record in [sample(), FreeRecord::default()] {
            let bytes = record.encode(7, 512);
            assert_eq!(bytes.len(), encoded_len(record.free.count()));
            assert_eq!(read(&bytes, PLACE, 8192), Some((record, 512)));
        }
        let cut = read(&sample().encode(7, 512), PLACE, 4005).unwrap().0;
        let mut wanted = sample();
        wanted.free.parts[1].pop();
        assert_eq!(cut, wanted);
    }

    #[test]
    fn damaged_and_foreign_records_are_ignored() {
        let bytes = sample().encode(7, 512);
        for i in 0..bytes.len() {
            let mut bytes = bytes.clone();
            bytes[i] ^= 0x10;
            assert_eq!(read(&bytes, PLACE, 8192), None, "byte {i}");
        }
        assert_eq!(read(&bytes, RecordPlace { nonce: 8, ..PLACE }, 8192), None);
        assert_eq!(read(&bytes, PLACE, 1500), None, "its block lies past the end of the file");
        assert_eq!(read(&bytes, RecordPlace { offset: u64::MAX - 4, ..PLACE }, 8192), None);
        for range in [40..100, 1500..1600, 2100..2101, 60..60] {
            let free = FreeRanges { whole: vec![2000..3000, range], ..FreeRanges::default() };
            let record = FreeRecord { free, pages: None };
            assert_eq!(read(&record.encode(7, 512), PLACE, 8192), None, "{record:?}");
        }
    }

    #[test]
    fn a_record_fits_its_block() {
        let mut record = sample();
        record.limit(encoded_len(2) as u64 + 15);
        assert_eq!((record.free.count(), record.encode(7, 512).len()), (2, encoded_len(2)));
    }
}
