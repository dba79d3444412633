//! The chunk of Blosc and Blosc2: a header, then independently filtered and compressed blocks.
//!
//! ```text
//!  0 u8 version | 1 u8 codec version | 2 u8 flags | 3 u8 item size | 4 u32 bytes |
//!  8 u32 bytes per block | 12 u32 stored bytes
//!    flags: 1 shuffled, 2 uncompressed, 4 bit-shuffled, 16 blocks not split, upper 3 bits codec;
//!           1 and 4 both: Blosc2, and then
//! 16 6 x u8 filters | 22 u8 plug-in codec, 23 u8 its parameter | 24 6 x u8 filter parameters |
//! 30 u8 flags | 31 u8 flags
//!    byte 31: 1 dictionary, 2 big-endian, 8 lazy,
//!             bits 4-6 all items equal (1 zero, 2 NaN, 3 the value that follows, 4 any)
//! header | u32 start of each block in the chunk | [u32 size, dictionary] | streams
//! stream: i32 size (0: zeros; negative: one byte token, then if token & 1 the byte -size
//!         repeated) | coded bytes (uncompressed if the size equals the decoded size)
//! ```
//!
//! A block that is split has one stream per byte of the item. The last block, if shorter, is not
//! split.
//! Source: README_CHUNK_FORMAT.rst of c-blosc2.

use super::codec::{Codec, Streams};
use super::unshuffle;
use crate::filter::FilterError;

/// Size of the Blosc 1 header, bytes.
pub(super) const HEADER: usize = 16;
/// Size of the Blosc2 header, bytes.
const HEADER2: usize = 32;
/// Largest item size, bytes, at which Blosc 1 splits blocks.
pub(super) const SPLIT_ITEM_MAX: usize = 16;
/// Fewest items per block at which Blosc 1 splits blocks.
pub(super) const SPLIT_ITEMS_MIN: usize = 128;
/// Largest dictionary, bytes.
const DICTIONARY_MAX: usize = 32 << 10;

/// The value of a chunk whose items are all equal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::filter) enum Fill<'a> {
    /// All bytes zero (also: never initialized).
    Zero,
    /// Quiet NaNs of the item's size, 4 or 8 bytes.
    Nan(usize),
    /// This value repeated.
    Value(&'a [u8]),
}

impl Fill<'_> {
    /// Fills `to`, which starts at an item boundary.
    pub(in crate::filter) fn fill(self, name: &'static str, to: &mut [u8]) -> Result<(), FilterError> {
        match self {
            Fill::Zero => to.fill(0),
            Fill::Nan(4) => repeat(&f32::NAN.to_le_bytes(), to),
            Fill::Nan(8) => repeat(&f64::NAN.to_le_bytes(), to),
            Fill::Nan(n) => return Err(FilterError::corrupt(name, format!("NaNs of {n} bytes"))),
            Fill::Value(v) => repeat(v, to),
        }
        Ok(())
    }
}

fn repeat(value: &[u8], to: &mut [u8]) {
    for (t, v) in to.iter_mut().zip(value.iter().cycle()) {
        *t = *v;
    }
}

/// An inner filter to reverse.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Shuffle(usize),
    Bits,
    Delta,
    ByteDelta(usize),
}

impl Step {
    /// True if the step needs a second buffer.
    fn moves(self) -> bool {
        matches!(self, Step::Shuffle(_) | Step::Bits)
    }
}

/// Stored form of the chunk.
#[derive(Debug, Clone)]
enum Body<'a> {
    Fill(Fill<'a>),
    /// Uncompressed and unfiltered.
    Plain(&'a [u8]),
    Blocks {
        codec: Codec,
        starts: &'a [u8],
        dictionary: Option<&'a [u8]>,
        steps: Vec<Step>,
    },
}

/// A chunk with a valid header.
#[derive(Debug, Clone)]
pub(in crate::filter) struct Chunk<'a> {
    name: &'static str,
    bytes: &'a [u8],
    version: u8,
    extended: bool,
    split: bool,
    item: usize,
    length: usize,
    block: usize,
    body: Body<'a>,
}

/// Reads a little-endian 32-bit size at `at`; corrupt if past the end of `bytes` or negative.
fn size_at(name: &'static str, bytes: &[u8], at: usize) -> Result<usize, FilterError> {
    let word = bytes.get(at..).and_then(<[u8]>::first_chunk::<4>);
    let n = word.map(|w| i32::from_le_bytes(*w)).ok_or_else(|| FilterError::corrupt(name, "the chunk ends early"))?;
    usize::try_from(n).map_err(|_| FilterError::corrupt(name, format!("size {n}")))
}

impl<'a> Chunk<'a> {
    /// Parses the header of the chunk at the start of `bytes`, which may be longer. Allocates
    /// nothing by its sizes.
    pub(in crate::filter) fn parse(name: &'static str, bytes: &'a [u8]) -> Result<Self, FilterError> {
        let corrupt = |what: &'static str| FilterError::corrupt(name, what);
        let Some(&[version, codec_version, flags, item, ..]) = bytes.first_chunk::<HEADER>() else {
            return Err(corrupt("no chunk header"));
        };
        if !(2..=6).contains(&version) {
            return Err(FilterError::unsupported(name, format!("chunk version {version}")));
        }
        let extended = flags & 5 == 5;
        let item = usize::from(item);
        let length = size_at(name, bytes, 4)?;
        let block = size_at(name, bytes, 8)?;
        let stored = size_at(name, bytes, 12)?;
        let bytes = bytes.get(..stored).ok_or_else(|| corrupt("the chunk ends early"))?;
        let header = if extended { HEADER2 } else { HEADER };
        if stored < header || item == 0 || (block == 0 && length > 0) {
            return Err(corrupt("sizes in the chunk header"));
        }
        let (split, block) = (flags & 16 == 0, block.min(length));
        let mut chunk = Chunk { name, bytes, version, extended, split, item, length, block, body: Body::Fill(Fill::Zero) };
        let fill = if extended { chunk.fill_of_header()? } else { None };
        chunk.body = if let Some(fill) = fill {
            Body::Fill(fill)
        } else if flags & 2 != 0 {
            let plain = bytes.get(header..).filter(|b| b.len() == length);
            Body::Plain(plain.ok_or_else(|| corrupt("an uncompressed chunk of another length"))?)
        } else if length == 0 {
            Body::Plain(&[])
        } else {
            chunk.blocks(flags, codec_version, header)?
        };
        Ok(chunk)
    }

    /// Byte `at` of the extended header.
    fn byte(&self, at: usize) -> u8 {
        self.bytes.get(at).copied().unwrap_or(0)
    }

    /// The value of all items from the extended header, if it states one. Call only if the chunk
    /// has that header.
    fn fill_of_header(&self) -> Result<Option<Fill<'a>>, FilterError> {
        let flags = self.byte(31);
        if flags & 0x8a != 0 || self.byte(30) != 0 {
            return Err(FilterError::unsupported(self.name, format!("chunk flags {flags:#04x} {:#04x}", self.byte(30))));
        }
        match flags >> 4 & 7 {
            0 => Ok(None),
            1 | 4 => Ok(Some(Fill::Zero)),
            2 => Ok(Some(Fill::Nan(self.item))),
            3 => {
                let value = self.bytes.get(HEADER2..).unwrap_or_default();
                let whole = self.length.checked_rem(value.len()) == Some(0);
                whole.then_some(Some(Fill::Value(value))).ok_or_else(|| FilterError::corrupt(self.name, "a repeated value of odd size"))
            }
            other => Err(FilterError::unsupported(self.name, format!("special value {other}"))),
        }
    }

    /// Parses codec, block starts, dictionary and inner filters of a compressed chunk.
    fn blocks(&self, flags: u8, codec_version: u8, header: usize) -> Result<Body<'a>, FilterError> {
        let codec = match flags >> 5 {
            0 => Codec::BloscLz,
            1 => Codec::Lz4,
            2 => Codec::Snappy,
            3 => Codec::Zlib,
            4 => Codec::Zstd,
            6 => return Err(FilterError::unsupported(self.name, plugin_codec(self.byte(22)))),
            other => return Err(FilterError::unsupported(self.name, format!("codec {other}"))),
        };
        if codec_version != 1 {
            return Err(FilterError::unsupported(self.name, format!("codec version {codec_version}")));
        }
        let ends = || FilterError::corrupt(self.name, "the block starts end early");
        let starts_length = self.block_count().checked_mul(4).ok_or_else(ends)?;
        let (starts, behind) = self.bytes.get(header..).and_then(|b| b.split_at_checked(starts_length)).ok_or_else(ends)?;
        let mut dictionary = None;
        if self.extended && self.byte(31) & 1 != 0 {
            let size = size_at(self.name, behind, 0)?;
            let found = behind.get(4..).and_then(|b| b.get(..size)).filter(|_| (1..=DICTIONARY_MAX).contains(&size));
            dictionary = Some(found.ok_or_else(|| FilterError::corrupt(self.name, format!("a dictionary of {size} bytes")))?);
        }
        Ok(Body::Blocks { codec, starts, dictionary, steps: self.steps(flags)? })
    }

    /// The inner filters to reverse, last applied first.
    fn steps(&self, flags: u8) -> Result<Vec<Step>, FilterError> {
        let mut steps = Vec::new();
        if !self.extended {
            if flags & 8 != 0 {
                return Err(FilterError::unsupported(self.name, "delta without an extended header"));
            }
            if flags & 1 != 0 && self.item > 1 {
                steps.push(Step::Shuffle(self.item));
            } else if flags & 4 != 0 {
                steps.push(Step::Bits);
            }
            return Ok(steps);
        }
        // Version 3 (alpha) left the sixth filter slot uninitialized.
        let slots = if self.version == 3 { 5 } else { 6 };
        for slot in (0..slots).rev() {
            let meta = usize::from(self.byte(24 + slot));
            match self.byte(16 + slot) {
                // Truncated precision (4 floats, 36 integers) is lossy: nothing to reverse.
                0 | 4 | 36 => {}
                1 => steps.push(Step::Shuffle(if meta == 0 { self.item } else { meta })),
                2 => steps.push(Step::Bits),
                3 => steps.push(Step::Delta),
                35 if meta > 0 => steps.push(Step::ByteDelta(meta)),
                35 => steps.push(Step::ByteDelta(self.item)),
                other => return Err(FilterError::unsupported(self.name, format!("inner filter {other}"))),
            }
        }
        if let Some(at) = steps.iter().position(|&s| s == Step::Delta)
            && at + 1 != steps.len()
        {
            return Err(FilterError::unsupported(self.name, "delta before other inner filters"));
        }
        Ok(steps)
    }

    /// Decoded size, bytes.
    pub(in crate::filter) fn len(&self) -> usize {
        self.length
    }

    /// Block size, bytes (the last block may be shorter).
    pub(in crate::filter) fn block_len(&self) -> usize {
        self.block
    }

    /// The value of all items, if they are equal.
    pub(in crate::filter) fn fill(&self) -> Option<Fill<'a>> {
        match self.body {
            Body::Fill(fill) => Some(fill),
            _ => None,
        }
    }

    fn block_count(&self) -> usize {
        if self.block == 0 { 0 } else { self.length.div_ceil(self.block) }
    }

    /// Decodes the whole chunk.
    pub(in crate::filter) fn decode(&self, limit: usize) -> Result<Vec<u8>, FilterError> {
        if self.length > limit {
            return Err(FilterError::TooLarge { filter: self.name, limit });
        }
        let mut out = vec![0; self.length];
        if let Some(fill) = self.fill() {
            fill.fill(self.name, &mut out)?;
        } else if self.block > 0 {
            let mut blocks = self.reader();
            for (i, to) in out.chunks_mut(self.block).enumerate() {
                blocks.block(i, to)?;
            }
        }
        Ok(out)
    }

    /// Returns a decoder of single blocks.
    pub(in crate::filter) fn reader(&self) -> Blocks<'_, 'a> {
        let streams = match &self.body {
            Body::Blocks { codec, dictionary, .. } => Some(Streams::new(*codec, *dictionary)),
            _ => None,
        };
        Blocks { chunk: self, streams, scratch: [Vec::new(), Vec::new()], first: None }
    }
}

fn plugin_codec(id: u8) -> String {
    let name = match id {
        32 => " (ndlz)",
        33..=35 => " (zfp)",
        36 | 40 => " (JPEG 2000 HT)",
        37 | 39 => " (JPEG 2000)",
        38 => " (OpenZL)",
        _ => "",
    };
    format!("plug-in codec {id}{name}")
}

/// Decoder of single blocks of a chunk; reuses buffers and codec state between them.
pub(in crate::filter) struct Blocks<'c, 'a> {
    chunk: &'c Chunk<'a>,
    streams: Option<Streams<'a>>,
    scratch: [Vec<u8>; 2],
    /// The decoded first block, if the delta filter needs it.
    first: Option<Vec<u8>>,
}

impl Blocks<'_, '_> {
    /// Decodes block `i` into `to`, which has the block's length.
    pub(in crate::filter) fn block(&mut self, i: usize, to: &mut [u8]) -> Result<(), FilterError> {
        let chunk = self.chunk;
        let short = || FilterError::corrupt(chunk.name, "the chunk ends early");
        match &chunk.body {
            Body::Fill(fill) => fill.fill(chunk.name, to),
            Body::Plain(bytes) => {
                let at = i.checked_mul(chunk.block).ok_or_else(short)?;
                let end = at.checked_add(to.len()).ok_or_else(short)?;
                to.copy_from_slice(bytes.get(at..end).ok_or_else(short)?);
                Ok(())
            }
            Body::Blocks { starts, steps, .. } => {
                let delta = steps.last() == Some(&Step::Delta);
                if delta && i > 0 && self.first.is_none() {
                    let mut first = vec![0; chunk.block];
                    self.filtered(starts, steps, 0, &mut first)?;
                    unshuffle::delta(chunk.item, None, &mut first);
                    self.first = Some(first);
                }
                self.filtered(starts, steps, i, to)?;
                if delta {
                    unshuffle::delta(chunk.item, self.first.as_deref().filter(|_| i > 0), to);
                }
                Ok(())
            }
        }
    }

    /// Decodes block `i` and reverses all inner filters except delta, which is always the last to
    /// reverse.
    fn filtered(&mut self, starts: &[u8], steps: &[Step], i: usize, to: &mut [u8]) -> Result<(), FilterError> {
        let (chunk, n) = (self.chunk, to.len());
        let [mut from, mut spare] = std::mem::take(&mut self.scratch);
        let mut moves = steps.iter().filter(|s| s.moves()).count();
        if moves > 0 {
            from.resize(n, 0);
        }
        if moves > 1 {
            spare.resize(n, 0);
        }
        let result = self.streams(starts, i, if moves > 0 { &mut from } else { &mut *to });
        for &step in steps {
            if step.moves() {
                moves -= 1;
                let target = if moves == 0 { &mut *to } else { &mut spare[..] };
                match step {
                    Step::Shuffle(item) => unshuffle::shuffle(item, &from, target),
                    _ => unshuffle::bits(chunk.item, chunk.version, &from, target),
                }
                std::mem::swap(&mut from, &mut spare);
            } else if let Step::ByteDelta(streams) = step {
                unshuffle::bytedelta(streams, if moves == 0 { &mut *to } else { &mut from });
            }
        }
        self.scratch = [from, spare];
        result
    }

    /// Decompresses the streams of block `i`.
    fn streams(&mut self, starts: &[u8], i: usize, to: &mut [u8]) -> Result<(), FilterError> {
        let chunk = self.chunk;
        let name = chunk.name;
        let start = size_at(name, starts, i.saturating_mul(4))?;
        let mut rest =
            chunk.bytes.get(start..).filter(|_| start > 0).ok_or_else(|| FilterError::corrupt(name, "a block starts outside"))?;
        let whole = to.len() == chunk.block && chunk.split;
        // Writers older than the split flag split only such blocks; a version 2 chunk may be that
        // old.
        let old = chunk.item <= SPLIT_ITEM_MAX && chunk.block / chunk.item >= SPLIT_ITEMS_MIN;
        let count = if whole && (chunk.extended || old) { chunk.item } else { 1 };
        let size = to.len() / count;
        if size == 0 || !to.len().is_multiple_of(count) {
            return Err(FilterError::corrupt(name, format!("a block of {} bytes in {count} streams", to.len())));
        }
        for part in to.chunks_exact_mut(size) {
            self.stream(&mut rest, part)?;
        }
        Ok(())
    }

    /// Decompresses the next stream of `rest` into `to`.
    fn stream(&mut self, rest: &mut &[u8], to: &mut [u8]) -> Result<(), FilterError> {
        let name = self.chunk.name;
        let short = || FilterError::corrupt(name, "a stream ends early");
        let (size, behind) = rest.split_first_chunk::<4>().ok_or_else(short)?;
        let size = i32::from_le_bytes(*size);
        if size <= 0 && !self.chunk.extended {
            return Err(FilterError::corrupt(name, format!("a stream of {size} bytes")));
        }
        match size {
            0 => {
                to.fill(0);
                *rest = behind;
            }
            ..0 => {
                let (&token, behind) = behind.split_first().ok_or_else(short)?;
                let byte = u8::try_from(size.unsigned_abs()).ok().filter(|_| token & 1 != 0);
                to.fill(byte.ok_or_else(|| FilterError::corrupt(name, format!("a stream of {size} bytes, token {token}")))?);
                *rest = behind;
            }
            1.. => {
                let size = usize::try_from(size).unwrap_or(usize::MAX);
                let (stream, behind) = behind.split_at_checked(size).ok_or_else(short)?;
                *rest = behind;
                if stream.len() == to.len() {
                    to.copy_from_slice(stream);
                } else if !self.streams.as_mut().is_some_and(|s| s.decompress(stream, to)) {
                    return Err(FilterError::corrupt(name, "a stream does not decompress to its size"));
                }
            }
        }
        Ok(())
    }
}
