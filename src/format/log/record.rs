//! Record of a log, index entry, skip list entry.
//!
//! ```text
//! record:       head | data
//! index entry:  head | log dataset i64 | offset of the data in it, bytes i64
//! head:         dataset ID i64 | 0 i32 | start i64[rank] | count i64[rank] | flags
//!               dataset ID i64 | 1 i32 | points i64 | point i64[points][rank] | flags
//! flags:        order i32 | filter i32
//! skip list:    for each dataset ID: offset of its index entries, bytes i64 | their number i64
//! ```
//!
//! `order` is 1 if the integers of the head are big-endian, else 0. `filter` is 1 if the data is
//! one zlib stream, else 0. Log datasets are numbered from 1. Dataset 0 is the log's own: its
//! records are control records, in the coordinates of bytes. Source: "Design of log VOL", appendix.

use super::super::{Reader, Writer};
use crate::base::{Address, Result, limits};

/// Name of the structure in errors.
pub(crate) const NAME: &str = "log record";
/// The dataset ID of control records (`format::log::run`).
pub(crate) const CONTROL_ID: u64 = 0;
/// Bytes of a skip list entry.
pub(crate) const SKIP_BYTES: u64 = 16;
/// Dataset IDs are less than this: the skip list has an entry for each.
pub(crate) const IDS_MAX: u64 = 1 << 22;
/// Points of one record.
const POINTS_MAX: u64 = 1 << 24;

/// Elements that a record has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Selection {
    /// A block.
    Subarray {
        /// First element, a number per dimension.
        start: Vec<u64>,
        /// Elements, a number per dimension.
        count: Vec<u64>,
    },
    /// Single elements: a number per dimension and point.
    Points(Vec<u64>),
}

impl Selection {
    /// Number of elements in a dataset of `rank`; `None` if it exceeds 64 bits.
    pub(crate) fn elements(&self, rank: usize) -> Option<u64> {
        match self {
            Selection::Subarray { count, .. } => count.iter().try_fold(1u64, |n, c| n.checked_mul(*c)),
            Selection::Points(points) => points.len().checked_div(rank).map(|n| n as u64),
        }
    }
}

/// Head of a record or of an index entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Head {
    /// ID of the dataset.
    pub(crate) dataset: u64,
    /// Its elements.
    pub(crate) selection: Selection,
    /// The data is one zlib stream.
    pub(crate) deflated: bool,
}

/// Reads integers in the order of one head.
struct Integers {
    big_endian: bool,
}

impl Integers {
    fn long(&self, r: &mut Reader<'_>) -> Result<u64> {
        let bytes = r.array()?;
        let n = if self.big_endian { i64::from_be_bytes(bytes) } else { i64::from_le_bytes(bytes) };
        u64::try_from(n).map_err(|_| r.corrupt(format!("the negative number {n}")))
    }

    fn int(&self, r: &mut Reader<'_>) -> Result<u32> {
        let bytes = r.array()?;
        Ok(if self.big_endian { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) })
    }
}

impl Head {
    /// Decodes a head. `rank`: that of a dataset, `None` if there is no such dataset.
    pub(crate) fn read(r: &mut Reader<'_>, rank: impl Fn(u64) -> Option<usize>) -> Result<Head> {
        let begin = r.clone();
        // Which order it is follows the integers that have it: that in which the dataset exists.
        Self::ordered(r, &rank, false).or_else(|e| {
            *r = begin;
            Self::ordered(r, &rank, true).map_err(|_| e)
        })
    }

    fn ordered(r: &mut Reader<'_>, rank: &impl Fn(u64) -> Option<usize>, big_endian: bool) -> Result<Head> {
        let integers = Integers { big_endian };
        let dataset = integers.long(r)?;
        let rank = rank(dataset).filter(|n| *n <= limits::RANK_MAX);
        let rank = rank.ok_or_else(|| r.corrupt(format!("dataset ID {dataset}")))?;
        let numbers = |r: &mut Reader<'_>, n: usize| (0..n).map(|_| integers.long(r)).collect::<Result<Vec<_>>>();
        let selection = match integers.int(r)? {
            0 => Selection::Subarray { start: numbers(r, rank)?, count: numbers(r, rank)? },
            1 => {
                let points = integers.long(r)?;
                let n = usize::try_from(points).ok().filter(|_| points <= POINTS_MAX).and_then(|n| n.checked_mul(rank));
                let n = n.filter(|n| n.checked_mul(8).is_some_and(|bytes| bytes <= r.remaining()));
                Selection::Points(numbers(r, n.ok_or_else(|| r.corrupt(format!("{points} points")))?)?)
            }
            n => return Err(r.corrupt(format!("selection type {n}"))),
        };
        let order = integers.int(r)?;
        if order != u32::from(big_endian) {
            return Err(r.corrupt(format!("byte order {order}")));
        }
        let deflated = match integers.int(r)? {
            0 => false,
            1 => true,
            n => return Err(r.unsupported(format!("filter {n}"))),
        };
        Ok(Head { dataset, selection, deflated })
    }

    /// Appends the head of a record of a dataset of `rank`, little-endian.
    pub(crate) fn write(&self, rank: usize, w: &mut Writer) {
        let longs = |w: &mut Writer, numbers: &[u64]| {
            for n in numbers {
                w.u64(*n);
            }
        };
        w.u64(self.dataset);
        match &self.selection {
            Selection::Subarray { start, count } => {
                w.u32(0);
                longs(w, start);
                longs(w, count);
            }
            Selection::Points(points) => {
                w.u32(1).u64(points.len().checked_div(rank).unwrap_or(0) as u64);
                longs(w, points);
            }
        }
        w.u32(0).u32(self.deflated.into());
    }

    /// Bytes of the head of a block of `rank`.
    pub(crate) fn block_bytes(rank: usize) -> usize {
        rank.saturating_mul(16).saturating_add(20)
    }
}

/// Entry of the index table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct IndexEntry {
    /// What the record has.
    pub(crate) head: Head,
    /// Number of its log dataset, from 1.
    pub(crate) log: u64,
    /// Offset of its data there, bytes.
    pub(crate) offset: u64,
}

impl IndexEntry {
    /// Bytes after the head.
    pub(crate) const PLACE_BYTES: u64 = 16;

    /// Decodes an entry of a dataset of `rank`.
    pub(crate) fn read(r: &mut Reader<'_>, dataset: u64, rank: usize) -> Result<IndexEntry> {
        let begin = r.clone();
        let of = |id| (id == dataset).then_some(rank);
        let little = Head::ordered(r, &of, false);
        let (head, big_endian) = match little {
            Ok(head) => (head, false),
            Err(e) => {
                *r = begin;
                (Head::ordered(r, &of, true).map_err(|_| e)?, true)
            }
        };
        let integers = Integers { big_endian };
        Ok(IndexEntry { head, log: integers.long(r)?, offset: integers.long(r)? })
    }

    /// Appends the entry of a dataset of `rank`, little-endian.
    pub(crate) fn write(&self, rank: usize, w: &mut Writer) {
        self.head.write(rank, w);
        w.u64(self.log).u64(self.offset);
    }
}

/// Decodes a skip list entry: offset of the index entries in bytes, and their number.
pub(crate) fn decode_skip(bytes: &[u8; 16], at: Address) -> Result<(u64, u64)> {
    let mut r = Reader::new(bytes, "log skip list", at);
    let integers = Integers { big_endian: false };
    Ok((integers.long(&mut r)?, integers.long(&mut r)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(text: &str) -> Vec<u8> {
        let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
        digits.chunks(2).map(|d| u8::from_str_radix(std::str::from_utf8(d).unwrap(), 16).unwrap()).collect()
    }

    /// The 52 bytes that docs/FORMAT.md has of a 2-D block.
    #[test]
    fn golden_head() {
        let head = Head { dataset: 3, selection: Selection::Subarray { start: vec![1, 2], count: vec![4, 10] }, deflated: false };
        let bytes = hex("0300000000000000 00000000 0100000000000000 0200000000000000 0400000000000000 0a00000000000000 00000000 00000000");
        let mut w = Writer::new();
        head.write(2, &mut w);
        assert_eq!(w.into_bytes(), bytes);
        assert_eq!(bytes.len(), Head::block_bytes(2));
        let read = |bytes: &[u8]| Head::read(&mut Reader::new(bytes, NAME, Address(0)), |id| (id < 5).then_some(2));
        assert_eq!(read(&bytes).unwrap(), head);
        for n in 0..bytes.len() {
            assert!(read(&bytes[..n]).is_err());
        }
        let big = hex("0000000000000003 00000000 0000000000000001 0000000000000002 0000000000000004 000000000000000a 00000001 00000000");
        assert_eq!(read(&big).unwrap(), head);
        // A head of another order than it states.
        let mut wrong = big;
        wrong[47] = 0;
        assert!(read(&wrong).is_err());
    }

    #[test]
    fn points_and_entries() {
        let points = hex("0200000000000000 01000000 0200000000000000 0500000000000000 0700000000000000 00000000 01000000");
        let head = Head::read(&mut Reader::new(&points, NAME, Address(0)), |_| Some(1)).unwrap();
        assert_eq!(head, Head { dataset: 2, selection: Selection::Points(vec![5, 7]), deflated: true });
        assert_eq!(head.selection.elements(1), Some(2));
        let entry = IndexEntry {
            head: Head { dataset: 9, selection: Selection::Subarray { start: vec![], count: vec![] }, deflated: false },
            log: 2,
            offset: 77,
        };
        let mut w = Writer::new();
        entry.write(0, &mut w);
        let bytes = w.into_bytes();
        assert_eq!(IndexEntry::read(&mut Reader::new(&bytes, NAME, Address(0)), 9, 0).unwrap(), entry);
        assert!(IndexEntry::read(&mut Reader::new(&bytes, NAME, Address(0)), 8, 0).is_err());
        assert_eq!(decode_skip(&[1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0], Address(0)).unwrap(), (1, 2));
    }

    /// Regression: entries of points were written without the number of these.
    #[test]
    fn points_are_written_with_their_number() {
        for rank in 1..4 {
            let selection = Selection::Points((0..6 * rank as u64).collect());
            let entry = IndexEntry { head: Head { dataset: 7, selection, deflated: true }, log: 1, offset: 99 };
            let mut w = Writer::new();
            entry.write(rank, &mut w);
            let bytes = w.into_bytes();
            assert_eq!(bytes[12..20], 6u64.to_le_bytes());
            assert_eq!(IndexEntry::read(&mut Reader::new(&bytes, NAME, Address(0)), 7, rank).unwrap(), entry);
        }
    }

    #[test]
    fn hostile_numbers_are_errors() {
        let many = hex("0200000000000000 01000000 ffffffffffffff00");
        assert!(Head::read(&mut Reader::new(&many, NAME, Address(0)), |_| Some(1)).is_err());
        let negative = hex("ffffffffffffffff 00000000");
        assert!(Head::read(&mut Reader::new(&negative, NAME, Address(0)), |_| Some(0)).is_err());
    }
}
