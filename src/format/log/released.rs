//! Metadata dataset of the released log VOL (`_md_k`), connector versions 1.0 to 1.4.
//!
//! ```text
//! dataset:   sections i64 | end of each section i64[], from the start of the dataset | entries
//! entry:     size i32 | dataset ID i32 | flags i32 | data offset i64 | data length i64 | body
//! body:      [record number i64] | REFERENCE: offset of the entry referred to i64, from this entry
//!            [record number i64] | [blocks i32, if MULTIPLE] | starts i64[] | counts i64[]
//!            ENCODED, more than one dimension: steps i64[] before the starts; a start and a count
//!            are one i64 each
//! ```
//!
//! The form of a body is recognised by its length, not by its flags: writers set `ENCODED` and
//! `DEFLATED` on bodies that are not. All integers are little-endian. The data offset is that in
//! the file, user block included. Source: DataLib-ECP/vol-log-based, `H5VL_log_metai`.

use crate::base::{Address, Error, Result, limits};
use crate::format::{Reader, Writer};
use flate2::read::ZlibDecoder;
use std::io::Read;
use std::ops::Range;

/// Name of the structure in errors.
pub(crate) const NAME: &str = "log VOL metadata";
/// Bytes of an entry's header.
pub(crate) const HEADER_BYTES: u64 = 28;
/// Sections of one metadata dataset: one per rank of the writer.
const SECTIONS_MAX: u64 = 1 << 24;
/// Blocks of one entry.
const BLOCKS_MAX: u64 = 1 << 24;

/// The entry has a number of blocks.
const MULTIPLE: u32 = 0x01;
/// The entry has the blocks of another entry.
const REFERENCE: u32 = 0x10;
/// The entry has a record number: the index of its blocks in the first dimension.
const RECORD: u32 = 0x20;

/// Number of sections that a metadata dataset of `size` bytes begins with.
pub(crate) fn section_count(head: [u8; 8], size: u64, at: Address) -> Result<u64> {
    let n = u64::from_le_bytes(head);
    let fits = n.checked_add(1).and_then(|n| n.checked_mul(8)).is_some_and(|n| n <= size);
    if fits && n <= SECTIONS_MAX { Ok(n) } else { Err(Error::corrupt(NAME, at, format!("{n} sections in {size} bytes"))) }
}

/// The entries of each section. `ends`: the table of their ends. Errors: they are not in order.
pub(crate) fn sections(ends: &[u8], size: u64, at: Address) -> Result<Vec<Range<u64>>> {
    let mut from = (ends.len() as u64).saturating_add(8);
    let section = |end: &[u8]| {
        let end = end.try_into().map_or(0, u64::from_le_bytes);
        // An empty section may have an end before the first entry.
        let end = if end < from && end == 0 { from } else { end };
        if end < from || end > size {
            return Err(Error::corrupt(NAME, at, format!("a section ends at {end}, in {from} to {size}")));
        }
        Ok(std::mem::replace(&mut from, end)..end)
    };
    ends.chunks_exact(8).map(section).collect()
}

/// Appends an entry without flags: one block of the dataset, or a scalar dataset. `data`: offsets
/// in the file. This is the form that all versions read alike.
pub(crate) fn write_entry(w: &mut Writer, dataset: i32, (start, count): (&[u64], &[u64]), data: &Range<u64>) {
    let numbers = (start.len().saturating_add(count.len()) as u64).saturating_mul(8);
    let size = u32::try_from(HEADER_BYTES.saturating_add(numbers)).unwrap_or(u32::MAX);
    w.u32(size).bytes(&dataset.to_le_bytes()).u32(0).u64(data.start).u64(data.end.saturating_sub(data.start));
    for n in start.iter().chain(count) {
        w.u64(*n);
    }
}

/// A metadata dataset whose only section is `entries`.
pub(crate) fn one_section(entries: &[u8]) -> Vec<u8> {
    let end = (entries.len() as u64).saturating_add(16);
    [&1u64.to_le_bytes(), &end.to_le_bytes(), entries].concat()
}

/// Header of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct EntryHeader {
    /// Bytes of the entry, header included.
    pub(crate) size: u32,
    /// ID of the dataset; negative IDs do not exist.
    pub(crate) dataset: i32,
    /// Which fields it has.
    pub(crate) flags: u32,
    /// Offset of the data in the file.
    pub(crate) data_offset: u64,
    /// Stored bytes of the data.
    pub(crate) data_len: u64,
}

impl EntryHeader {
    /// Decodes a header.
    pub(crate) fn decode(bytes: &[u8], at: Address) -> Result<Self> {
        let mut r = Reader::new(bytes, NAME, at);
        let (size, dataset, flags) = (r.u32()?, i32::from_le_bytes(r.array()?), r.u32()?);
        Ok(EntryHeader { size, dataset, flags, data_offset: r.u64()?, data_len: r.u64()? })
    }

    /// True if the size is one that an entry can have, of which `left` bytes are in the section.
    pub(crate) fn is_sound(&self, left: u64) -> bool {
        let size = u64::from(self.size);
        (HEADER_BYTES..=left.min(i32::MAX as u64)).contains(&size)
    }

    /// Sizes that an entry with these flags and this body can have, for datasets of any rank.
    /// `body`: what follows the header.
    pub(crate) fn possible_sizes(&self, body: &[u8]) -> Vec<u64> {
        let record = if self.flags & RECORD != 0 { 8 } else { 0 };
        if self.flags & REFERENCE != 0 {
            return vec![HEADER_BYTES + 8, HEADER_BYTES + 16];
        }
        let multiple = self.flags & MULTIPLE != 0;
        let stored = usize::try_from(record).ok().and_then(|at| body.get(at..at.saturating_add(4)));
        let blocks = stored.and_then(|b| b.try_into().ok()).map_or(0, u32::from_le_bytes);
        let (count_bytes, n) = if multiple { (4, u64::from(blocks)) } else { (0, 1) };
        let fixed = HEADER_BYTES.saturating_add(record).saturating_add(count_bytes);
        let of_rank = |e: u64| {
            let canonical = n.saturating_mul(16).saturating_mul(e);
            let encoded = e.saturating_sub(1).saturating_add(n.saturating_mul(2)).saturating_mul(8);
            [canonical, if multiple && e > 1 { encoded } else { canonical }]
        };
        let mut sizes: Vec<u64> = (0..=limits::RANK_MAX as u64).flat_map(of_rank).map(|n| n.saturating_add(fixed)).collect();
        sizes.sort_unstable();
        sizes.dedup();
        sizes
    }
}

/// Shape of the dataset that an entry is decoded for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct EntryShape<'a> {
    /// Dimensions, elements.
    pub(crate) dims: &'a [u64],
    /// The file was written before version 1.4, which stored other steps in encoded entries with a
    /// record number than it used.
    pub(crate) legacy: bool,
}

/// Blocks of elements, in the order of their data.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Blocks {
    /// Starts, one number per dimension and block.
    pub(crate) starts: Vec<u64>,
    /// Counts, one number per dimension and block.
    pub(crate) counts: Vec<u64>,
    /// Number of blocks.
    pub(crate) len: usize,
}

impl Blocks {
    /// Elements of all blocks of a dataset of `rank`; `None` if it exceeds 64 bits.
    pub(crate) fn elements(&self, rank: usize) -> Option<u64> {
        if rank == 0 {
            return Some(self.len as u64);
        }
        let volume = |counts: &[u64]| counts.iter().try_fold(1u64, |n, c| n.checked_mul(*c));
        self.counts.chunks_exact(rank).try_fold(0u64, |n, counts| n.checked_add(volume(counts)?))
    }

    fn push(&mut self, start: impl IntoIterator<Item = u64>, count: impl IntoIterator<Item = u64>) {
        self.starts.extend(start);
        self.counts.extend(count);
        self.len = self.len.saturating_add(1);
    }
}

/// What an entry selects.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Body {
    /// Its own blocks. Several if the writer merged requests, which leaves open how the numbers are
    /// ordered: the data length decides.
    Own(Vec<Blocks>),
    /// Those of an earlier entry.
    Reference {
        /// Bytes from this entry back to the other.
        back: u64,
        /// Index of the blocks in the first dimension, if not that of the other entry.
        record: Option<u64>,
    },
}

fn non_negative(n: i64, r: &Reader<'_>) -> Result<u64> {
    u64::try_from(n).map_err(|_| r.corrupt(format!("the negative number {n}")))
}

fn number(r: &mut Reader<'_>) -> Result<u64> {
    let n = i64::from_le_bytes(r.array()?);
    non_negative(n, r)
}

/// Decodes the body of an entry. Errors: its length fits no form.
pub(crate) fn decode_body(header: &EntryHeader, body: &[u8], shape: EntryShape<'_>, at: Address) -> Result<Body> {
    let mut r = Reader::new(body, NAME, at);
    let rank = shape.dims.len();
    if header.flags & REFERENCE != 0 {
        // Versions 1.1 to 1.3 set RECORD on references without a record number.
        let record = if body.len() == 16 { Some(number(&mut r)?) } else { None };
        let relative = i64::from_le_bytes(r.array()?);
        if r.remaining() > 0 || relative >= 0 {
            return Err(r.corrupt("a reference that leads to no earlier entry"));
        }
        return Ok(Body::Reference { back: relative.unsigned_abs(), record });
    }
    let record = if header.flags & RECORD != 0 { Some(number(&mut r)?) } else { None };
    let inner = match record {
        Some(_) => rank.checked_sub(1).ok_or_else(|| r.corrupt("a record number in a scalar dataset"))?,
        None => rank,
    };
    let n = if header.flags & MULTIPLE == 0 { 1 } else { u64::from(r.u32()?) };
    if n > BLOCKS_MAX {
        return Err(r.corrupt(format!("{n} blocks")));
    }
    let form = Form { blocks: n, inner, record, shape };
    match form.decode(r.rest(), at) {
        Some(found) => found.map(Body::Own),
        None => {
            // Canonical bodies are the longest form.
            let most = form.canonical_bytes().ok_or_else(|| r.corrupt("the blocks' number"))?;
            let mut inflated = Vec::new();
            let read = ZlibDecoder::new(r.rest()).take(most.saturating_add(1)).read_to_end(&mut inflated);
            let found = read.ok().and_then(|_| form.decode(&inflated, at));
            found.ok_or_else(|| r.corrupt(format!("a body of {} bytes for {n} blocks of rank {inner}", r.remaining())))?.map(Body::Own)
        }
    }
}

/// How the numbers of a body are to be decoded.
struct Form<'a> {
    blocks: u64,
    /// Dimensions with a start and a count.
    inner: usize,
    record: Option<u64>,
    shape: EntryShape<'a>,
}

impl Form<'_> {
    fn canonical_bytes(&self) -> Option<u64> {
        self.blocks.checked_mul(16)?.checked_mul(self.inner as u64)
    }

    /// The blocks, in each way that the numbers may be ordered; `None` if the length fits no form.
    fn decode(&self, body: &[u8], at: Address) -> Option<Result<Vec<Blocks>>> {
        let e = self.inner as u64;
        let encoded = e.checked_sub(1).and_then(|s| s.checked_add(self.blocks.checked_mul(2)?)).and_then(|n| n.checked_mul(8));
        let len = body.len() as u64;
        if Some(len) == self.canonical_bytes() {
            Some(self.canonical(body, at))
        } else if Some(len) == encoded && e > 1 {
            Some(self.encoded(body, at))
        } else {
            None
        }
    }

    fn push(&self, blocks: &mut Blocks, start: &[u64], count: &[u64]) {
        blocks.push(self.record.into_iter().chain(start.iter().copied()), self.record.map(|_| 1).into_iter().chain(count.iter().copied()));
    }

    fn canonical(&self, body: &[u8], at: Address) -> Result<Vec<Blocks>> {
        let mut r = Reader::new(body, NAME, at);
        let all: Vec<u64> = (0..body.len() / 8).map(|_| number(&mut r)).collect::<Result<_>>()?;
        let n = usize::try_from(self.blocks).unwrap_or(usize::MAX);
        let mut ordered = Blocks::default();
        if self.inner == 0 {
            (0..n).for_each(|_| self.push(&mut ordered, &[], &[]));
            return Ok(vec![ordered]);
        }
        let (starts, counts) = all.split_at(all.len() / 2);
        for (start, count) in starts.chunks_exact(self.inner).zip(counts.chunks_exact(self.inner)) {
            self.push(&mut ordered, start, count);
        }
        // A writer that merges requests stores the start and the count of each.
        let mut pairs = Blocks::default();
        for pair in all.chunks_exact(self.inner.saturating_mul(2)) {
            let (start, count) = pair.split_at(self.inner);
            self.push(&mut pairs, start, count);
        }
        Ok(if pairs == ordered { vec![ordered] } else { vec![ordered, pairs] })
    }

    /// Mixed-radix numbers. Counts are 1 or more per dimension: their digits are one less, which
    /// the released reader overlooks for counts of a whole dimension.
    fn encoded(&self, body: &[u8], at: Address) -> Result<Vec<Blocks>> {
        let mut r = Reader::new(body, NAME, at);
        let mut steps = (1..self.inner).map(|_| number(&mut r)).collect::<Result<Vec<_>>>()?;
        if self.record.is_some() && self.shape.legacy {
            // The steps of one dimension more, without the last one, were stored.
            steps.remove(0);
            steps.push(self.shape.dims.last().copied().unwrap_or(0));
        }
        if steps.contains(&0) {
            return Err(r.corrupt("a step of 0"));
        }
        let n = usize::try_from(self.blocks).unwrap_or(usize::MAX);
        let starts = (0..n).map(|_| number(&mut r)).collect::<Result<Vec<_>>>()?;
        let ones = steps.iter().try_fold(1u64, |n, s| n.checked_add(*s)).ok_or_else(|| r.corrupt("steps of 2^64"))?;
        let digits = |mut n: u64| {
            let digit = |step: &u64| {
                let digit = n.checked_div(*step).unwrap_or(0);
                n = n.checked_rem(*step).unwrap_or(0);
                digit
            };
            steps.iter().chain(&[1]).map(digit).collect::<Vec<u64>>()
        };
        let mut blocks = Blocks::default();
        for start in starts {
            let count = number(&mut r)?.checked_sub(ones).ok_or_else(|| r.corrupt("a count of 0"))?;
            let count: Vec<u64> = digits(count).into_iter().map(|n| n.saturating_add(1)).collect();
            self.push(&mut blocks, &digits(start), &count);
        }
        Ok(vec![blocks])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(text: &str) -> Vec<u8> {
        (0..text.len()).step_by(2).map(|i| u8::from_str_radix(&text[i..i + 2], 16).unwrap()).collect()
    }

    fn longs(numbers: &[i64]) -> Vec<u8> {
        numbers.iter().flat_map(|n| n.to_le_bytes()).collect()
    }

    fn body(bytes: &[u8], dims: &[u64]) -> Result<Body> {
        let header = EntryHeader::decode(bytes, Address(0)).unwrap();
        decode_body(&header, &bytes[28..], EntryShape { dims, legacy: false }, Address(0))
    }

    fn blocks(starts: &[u64], counts: &[u64], len: usize) -> Body {
        Body::Own(vec![Blocks { starts: starts.to_vec(), counts: counts.to_vec(), len }])
    }

    /// Entries that the released connector wrote: a block, encoded points, a reference.
    #[test]
    fn golden_entries() {
        let grid = [hex("3c0000000000000000000000"), longs(&[4952, 160, 0, 0, 4, 10])].concat();
        let header = EntryHeader::decode(&grid, Address(0)).unwrap();
        assert_eq!((header.size, header.dataset, header.data_offset, header.data_len), (60, 0, 4952, 160));
        assert_eq!(body(&grid, &[8, 10]).unwrap(), blocks(&[0, 0], &[4, 10], 1));
        let points = [hex("780000000000000005000000"), longs(&[2912, 24]), hex("05000000"), longs(&[7, 1, 12, 14, 24, 41, 9, 8, 8, 8, 8])];
        let expected = blocks(&[0, 1, 1, 5, 2, 0, 3, 3, 5, 6], &[1, 2, 1, 1, 1, 1, 1, 1, 1, 1], 5);
        assert_eq!(body(&points.concat(), &[6, 7]).unwrap(), expected);
        let reference = [hex("240000000100000015000000"), longs(&[3152, 192, -304])].concat();
        assert_eq!(body(&reference, &[4, 8, 12]).unwrap(), Body::Reference { back: 304, record: None });
    }

    /// What is written is what the released connector writes without its options.
    #[test]
    fn written_entries_are_those_of_the_connector() {
        let grid = [hex("3c0000000000000000000000"), longs(&[4952, 160, 0, 0, 4, 10])].concat();
        let mut w = Writer::new();
        write_entry(&mut w, 0, (&[0, 0], &[4, 10]), &(4952..5112));
        assert_eq!(w.into_bytes(), grid);
        let mut w = Writer::new();
        write_entry(&mut w, 3, (&[], &[]), &(8..16));
        let scalar = w.into_bytes();
        assert_eq!(scalar, [hex("1c0000000300000000000000"), longs(&[8, 8])].concat());
        let all = one_section(&[grid, scalar].concat());
        assert_eq!(all.get(..16).unwrap(), longs(&[1, 104]));
        assert_eq!(sections(&all[8..16], all.len() as u64, Address(0)).unwrap().first(), Some(&(16..104)));
    }

    /// Counts of a whole dimension, which the released decoder misreads.
    #[test]
    fn whole_rows_are_decoded() {
        let row = [hex("500000000000000005000000"), longs(&[100, 192]), hex("02000000"), longs(&[96, 12, 0, 192, 132, 132])].concat();
        assert_eq!(body(&row, &[4, 8, 12]).unwrap(), blocks(&[0, 0, 0, 2, 0, 0], &[1, 2, 12, 1, 2, 12], 2));
    }

    #[test]
    fn records_have_a_first_dimension_of_one() {
        let record = [hex("440000000000000020000000"), longs(&[2048, 96, 3, 0, 0, 4, 6])].concat();
        assert_eq!(body(&record, &[5, 4, 6]).unwrap(), blocks(&[3, 0, 0], &[1, 4, 6], 1));
        let reference = [hex("2c0000000000000030000000"), longs(&[2144, 96, 1, -68])].concat();
        assert_eq!(body(&reference, &[5, 4, 6]).unwrap(), Body::Reference { back: 68, record: Some(1) });
        assert!(body(&record, &[]).is_err());
    }

    #[test]
    fn hostile_entries_are_errors() {
        let entry = |flags: &str, rest: &[u8]| [hex("3c00000000000000"), hex(flags), longs(&[0, 8]), rest.to_vec()].concat();
        assert!(body(&entry("00000000", &longs(&[0, 0, 4])), &[8, 10]).is_err(), "short");
        assert!(body(&entry("00000000", &longs(&[-1, 0, 4, 1])), &[8, 10]).is_err(), "negative");
        assert!(body(&entry("01000000", &hex("ffffff7f")), &[8, 10]).is_err(), "many blocks");
        assert!(body(&entry("10000000", &longs(&[60])), &[8, 10]).is_err(), "a reference forwards");
        assert!(body(&entry("05000000", &[hex("01000000"), longs(&[0, 0, 9])].concat()), &[8, 10]).is_err(), "a step of 0");
        assert!(section_count([255; 8], 100, Address(0)).is_err());
        assert!(sections(&longs(&[40, 30]), 100, Address(0)).is_err());
        assert!(sections(&longs(&[40, 300]), 100, Address(0)).is_err());
        assert_eq!(sections(&longs(&[40, 40, 100]), 100, Address(0)).unwrap(), [32..40, 40..40, 40..100]);
    }
}
