//! The contiguous frame of Blosc2.
//!
//! ```text
//!  0 msgpack array | 2 "b2frame\0" | 11 i32 header bytes | 16 u64 frame bytes |
//! 25 u8 version (low 4 bits) | 26 u8 0: contiguous
//! 30 i64 decoded bytes | 39 i64 stored bytes | 48 i32 item size | 53 i32 block bytes |
//! 58 i32 chunk bytes
//! 87 metalayers: 93 cd u16 | de u16 count, per metalayer: fixstr name, d2 i32 offset of its
//!    content (c6 u32 length, bytes)
//! header | chunks | index: one chunk of i64 LE offsets after the header (negative: byte 7 is the
//! value of all items) | trailer
//! value of all items) | trailer
//! ```
//!
//! Numbers of the header are big-endian.

use crate::filter::FilterError;
use crate::filter::blosc::chunk::{Chunk, Fill};

/// Name in errors.
pub(super) const NAME: &str = "blosc2";

/// Offset of the metalayers; size of the shortest header, bytes.
const HEADER_MIN: usize = 87;
/// Most metalayers searched.
const METALAYERS_MAX: u16 = 64;
/// Largest index accepted when the limit is smaller, bytes.
const INDEX_MIN: usize = 4096;

/// A chunk of a frame.
pub(super) enum Content<'a> {
    /// A stored chunk.
    Chunk(Chunk<'a>),
    /// A chunk of this many bytes of one value; exists only in the index.
    Fill(Fill<'a>, usize),
}

/// A frame with a valid header and its decoded index.
pub(super) struct Frame<'a> {
    bytes: &'a [u8],
    header: usize,
    item: usize,
    length: usize,
    chunk: usize,
    /// Chunk offsets, 8 bytes each.
    index: Vec<u8>,
}

fn corrupt(what: &'static str) -> FilterError {
    FilterError::corrupt(NAME, what)
}

/// Reads a big-endian signed number of `N` (4 or 8) bytes at `at` as a size.
fn size_at<const N: usize>(bytes: &[u8], at: usize) -> Option<usize> {
    let raw = bytes.get(at..)?.first_chunk::<N>()?;
    let n = raw.iter().fold(0u64, |n, &b| n << 8 | u64::from(b));
    // The sign bit of the N-byte number.
    let sign = 1u64.checked_shl(u32::try_from(N).ok()?.checked_mul(8)? - 1)?;
    if n & sign != 0 { None } else { usize::try_from(n).ok() }
}

impl<'a> Frame<'a> {
    /// Parses the header and decodes the chunk index; `limit` bounds the index, bytes.
    pub(super) fn parse(input: &'a [u8], limit: usize) -> Result<Self, FilterError> {
        if input.get(2..10) != Some(b"b2frame\0") {
            return Err(corrupt("no frame signature"));
        }
        let number = |at| size_at::<4>(input, at).ok_or_else(|| corrupt("a number in the frame header"));
        let long = |at| size_at::<8>(input, at).ok_or_else(|| corrupt("a number in the frame header"));
        let (header, total) = (number(11)?, long(16)?);
        let bytes = input.get(..total).ok_or_else(|| corrupt("the frame ends early"))?;
        if header < HEADER_MIN || header > total {
            return Err(corrupt("header and frame size disagree"));
        }
        match (bytes.get(25), bytes.get(26)) {
            (Some(version), Some(0)) if version & 15 <= 3 => {}
            (version, kind) => return Err(FilterError::unsupported(NAME, format!("frame version {version:x?}, type {kind:?}"))),
        }
        let (length, stored) = (long(30)?, long(39)?);
        let (item, chunk) = (number(48)?, number(58)?);
        if item == 0 || (chunk == 0 && length > 0) {
            return Err(corrupt("sizes in the frame header"));
        }
        let mut frame = Frame { bytes, header, item, length, chunk, index: Vec::new() };
        let want = frame.chunk_count().checked_mul(8).filter(|&n| n <= limit.max(INDEX_MIN));
        let want = want.ok_or(FilterError::TooLarge { filter: NAME, limit })?;
        if want > 0 {
            let at = header.checked_add(stored).and_then(|at| bytes.get(at..));
            let index = Chunk::parse(NAME, at.ok_or_else(|| corrupt("the index is outside"))?)?;
            if index.len() != want {
                return Err(corrupt("the index has another number of chunks"));
            }
            frame.index = index.decode(want)?;
        }
        Ok(frame)
    }

    /// Item size, bytes.
    pub(super) fn item(&self) -> usize {
        self.item
    }

    /// Number of chunks in the frame.
    pub(super) fn chunk_count(&self) -> usize {
        if self.chunk == 0 { 0 } else { self.length.div_ceil(self.chunk) }
    }

    /// Returns chunk `i`.
    pub(super) fn chunk(&self, i: usize) -> Result<Content<'a>, FilterError> {
        let raw = i.checked_mul(8).and_then(|at| self.index.get(at..)).and_then(<[u8]>::first_chunk::<8>);
        let offset = i64::from_le_bytes(*raw.ok_or_else(|| corrupt("no such chunk"))?);
        let Ok(offset) = usize::try_from(offset) else {
            let fill = match offset.to_le_bytes() {
                [.., kind] if kind & 1 != 0 => Fill::Zero,
                [.., kind] if kind & 4 != 0 => Fill::Zero,
                [.., kind] if kind & 2 != 0 => Fill::Nan(self.item),
                _ => return Err(corrupt("an unknown value in the index")),
            };
            let before = i.saturating_mul(self.chunk);
            return Ok(Content::Fill(fill, self.chunk.min(self.length.saturating_sub(before))));
        };
        let bytes = self.header.checked_add(offset).and_then(|at| self.bytes.get(at..));
        Chunk::parse(NAME, bytes.ok_or_else(|| corrupt("a chunk is outside"))?).map(Content::Chunk)
    }

    /// Content of the metalayer of a multi-dimensional array, if the frame has one.
    pub(super) fn array_metalayer(&self) -> Result<Option<&'a [u8]>, FilterError> {
        let broken = || corrupt("metalayers");
        let header = self.bytes.get(..self.header).unwrap_or_default();
        let Some(map) = header.get(HEADER_MIN..).filter(|m| !m.is_empty()) else { return Ok(None) };
        let &[0x93, 0xcd, _, _, 0xde, high, low, ref rest @ ..] = map else { return Err(broken()) };
        let mut rest = rest;
        let count = u16::from_be_bytes([high, low]);
        if count > METALAYERS_MAX {
            return Err(FilterError::unsupported(NAME, format!("{count} metalayers")));
        }
        for _ in 0..count {
            let (&key, behind) = rest.split_first().filter(|(k, _)| *k & 0xe0 == 0xa0).ok_or_else(broken)?;
            let (name, behind) = behind.split_at_checked(usize::from(key & 31)).ok_or_else(broken)?;
            let (value, behind) = behind.split_first_chunk::<5>().ok_or_else(broken)?;
            rest = behind;
            // "caterva" is the former name of "b2nd".
            if name == b"b2nd" || name == b"caterva" {
                let at = size_at::<4>(value, 1).filter(|_| value.first() == Some(&0xd2)).ok_or_else(broken)?;
                let content = header.get(at..).filter(|c| c.first() == Some(&0xc6)).ok_or_else(broken)?;
                let length = size_at::<4>(content, 1).ok_or_else(broken)?;
                return content.get(5..).and_then(|c| c.get(..length)).map(Some).ok_or_else(broken);
            }
        }
        Ok(None)
    }
}
