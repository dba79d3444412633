//! Encoder of Blosc (version 1): one chunk in the format of [`super::chunk`], format version 2.
//!
//! ```text
//! client data: filter revision, format version, item size, chunk bytes, level (0 to 9),
//!              shuffle (0 none, 1 bytes, 2 bits),
//!              codec (0 BloscLZ, 1 LZ4, 2 LZ4HC, 3 Snappy, 4 zlib, 5 Zstandard)
//! ```
//!
//! Source: blosc_filter.c of hdf5-blosc, README_CHUNK_FORMAT.rst of c-blosc.

use super::chunk::{HEADER, SPLIT_ITEM_MAX, SPLIT_ITEMS_MIN};
use super::codec::Codec;
use crate::filter::{FilterError, Params, bit_transpose, bounded, shuffle};

/// Name in errors.
const NAME: &str = "blosc";
/// Smallest chunk that is compressed, bytes.
const CHUNK_BYTES_MIN: usize = 128;
/// Block size of the fast codecs, and of the thorough ones, bytes.
const BLOCK_BYTES: (usize, usize) = (64 << 10, 256 << 10);
/// Largest item size, bytes; larger items are treated as single bytes.
const ITEM_MAX: usize = 255;
/// Flag of a chunk whose bytes follow the header as they are.
const UNCOMPRESSED: u8 = 2;
/// Level when the client data state none.
const DEFAULT_LEVEL: u32 = 5;

/// Inner filter applied to a block before compression.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::filter) enum Shuffle {
    None,
    Bytes,
    Bits,
}

/// Decoded client data.
pub(in crate::filter) struct Settings {
    pub item: usize,
    pub level: u32,
    pub shuffle: Shuffle,
    codec: Codec,
}

impl Settings {
    pub(in crate::filter) fn new(cd_values: &[u32]) -> Result<Self, FilterError> {
        let item = match cd_values.get(2).map(|&v| usize::try_from(v).unwrap_or(usize::MAX)) {
            None | Some(0) => return Err(FilterError::corrupt(NAME, "no item size in the client data")),
            Some(size) if size > ITEM_MAX => 1,
            Some(size) => size,
        };
        let shuffle = match cd_values.get(5).copied().unwrap_or(1) {
            0 => Shuffle::None,
            1 => Shuffle::Bytes,
            2 => Shuffle::Bits,
            other => return Err(FilterError::unsupported(NAME, format!("shuffle {other}"))),
        };
        let codec = match cd_values.get(6).copied().unwrap_or(0) {
            0 => Codec::BloscLz,
            1 | 2 => Codec::Lz4,
            3 => Codec::Snappy,
            4 => Codec::Zlib,
            5 => Codec::Zstd,
            other => return Err(FilterError::unsupported(NAME, format!("codec {other}"))),
        };
        Ok(Settings { item, level: cd_values.get(4).copied().unwrap_or(DEFAULT_LEVEL).min(9), shuffle, codec })
    }

    /// Identifier of the codec in the chunk's flags.
    pub(in crate::filter) fn code(&self) -> u8 {
        match self.codec {
            Codec::BloscLz => 0,
            Codec::Lz4 => 1,
            Codec::Snappy => 2,
            Codec::Zlib => 3,
            Codec::Zstd => 4,
        }
    }

    /// Compression level on the codec's own scale.
    fn codec_level(&self) -> i32 {
        let level = i32::try_from(self.level).unwrap_or(9);
        match self.codec {
            Codec::Zstd => level.saturating_mul(2).saturating_sub(1),
            _ => level,
        }
    }

    /// True for the slow codecs: they get larger blocks, which are not split.
    fn thorough(&self) -> bool {
        matches!(self.codec, Codec::Zlib | Codec::Zstd)
    }

    /// Block size of a chunk of `length` bytes: a multiple of 8 items in larger chunks, else whole
    /// items.
    pub(in crate::filter) fn block(&self, length: usize) -> usize {
        let target = if self.thorough() { BLOCK_BYTES.1 } else { BLOCK_BYTES.0 };
        if length > target {
            let eight = self.item.saturating_mul(8);
            return target - target.checked_rem(eight).unwrap_or(0);
        }
        let rest = length.checked_rem(self.item).unwrap_or(0);
        if length > self.item { length.saturating_sub(rest) } else { length }
    }

    /// Shuffles `block` into one of the buffers; returns `block` itself if that changes nothing.
    fn shuffled<'a>(&self, block: &'a [u8], buffers: &'a mut [Vec<u8>; 2]) -> &'a [u8] {
        let [planes, rows] = buffers;
        let (Some(planes), Some(to)) = (planes.get_mut(..block.len()), rows.get_mut(..block.len())) else { return block };
        let items = block.len().checked_div(self.item).unwrap_or(0);
        match self.shuffle {
            Shuffle::Bytes if self.item > 1 => {
                shuffle::shuffle(block, self.item, to);
                to
            }
            Shuffle::Bits if items > 0 && items.is_multiple_of(8) => {
                // Bytes after the last whole item are unchanged.
                to.copy_from_slice(block);
                bit_transpose::transpose_block(block, planes, to, self.item);
                to
            }
            _ => block,
        }
    }
}

/// True if blocks of this length are split into one stream per byte of the item.
pub(in crate::filter) fn is_split(s: &Settings, block: usize) -> bool {
    !s.thorough() && s.item <= SPLIT_ITEM_MAX && block / s.item.max(1) >= SPLIT_ITEMS_MIN
}

/// Appends the block starts and the blocks to `out`, which holds the chunk's header; false if it
/// then exceeds `most` bytes.
pub(in crate::filter) fn put_blocks(s: &Settings, input: &[u8], block: usize, most: usize, out: &mut Vec<u8>) -> Result<bool, FilterError> {
    let (starts, split) = (out.len(), is_split(s, block));
    out.resize(starts.saturating_add(input.len().div_ceil(block.max(1)).saturating_mul(4)), 0);
    let mut buffers = [vec![0; block], vec![0; block]];
    for (i, from) in input.chunks(block.max(1)).enumerate() {
        let start = (out.len() as u32).to_le_bytes();
        let place = starts.saturating_add(i.saturating_mul(4));
        if let Some(slot) = out.get_mut(place..).and_then(<[u8]>::first_chunk_mut::<4>) {
            *slot = start;
        }
        let shuffled = s.shuffled(from, &mut buffers);
        let streams = if split && from.len() == block { s.item } else { 1 };
        for part in shuffled.chunks((from.len() / streams).max(1)) {
            let coded = s.codec.compress(part, s.codec_level())?;
            let coded = if coded.len() < part.len() { &coded } else { part };
            out.extend_from_slice(&(coded.len() as u32).to_le_bytes());
            out.extend_from_slice(coded);
        }
        if out.len() > most {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Stores one chunk uncompressed, for pipelines that cannot do without the filter.
///
/// # Errors
/// As [`encode`]; [`FilterError::Unsupported`] for 2 GiB and more.
pub fn store(input: &[u8], p: &Params<'_>) -> Result<Option<Vec<u8>>, FilterError> {
    let s = Settings::new(p.cd_values)?;
    let too_large = || FilterError::unsupported(NAME, format!("a chunk of {} bytes", input.len()));
    let size = input.len().checked_add(HEADER).filter(|size| i32::try_from(*size).is_ok()).ok_or_else(too_large)?;
    let mut out = bounded::buffer(NAME, size, usize::MAX)?;
    out.extend_from_slice(&[2, 1, s.code() << 5 | UNCOMPRESSED, s.item as u8]);
    [input.len(), s.block(input.len()), size].iter().for_each(|n| out.extend_from_slice(&(*n as u32).to_le_bytes()));
    out.extend_from_slice(input);
    Ok(Some(out))
}

/// Compresses one chunk; declines if the result would be longer than `input`, at level 0, and for
/// very small chunks.
///
/// # Errors
/// [`FilterError::Corrupt`] if the client data lack an item size, [`FilterError::Unsupported`] for
/// an unknown codec or shuffle.
pub fn encode(input: &[u8], p: &Params<'_>) -> Result<Option<Vec<u8>>, FilterError> {
    let s = Settings::new(p.cd_values)?;
    let length = i32::try_from(input.len()).ok();
    let Some(length) = length.filter(|_| s.level > 0 && input.len() >= CHUNK_BYTES_MIN) else { return Ok(None) };
    let block = s.block(input.len());
    let mut flags = s.code() << 5 | if is_split(&s, block) { 0 } else { 16 };
    flags |= match s.shuffle {
        Shuffle::None => 0,
        Shuffle::Bytes => 1,
        Shuffle::Bits => 4,
    };
    let mut out = bounded::buffer(NAME, input.len(), usize::MAX)?;
    out.extend_from_slice(&[2, 1, flags, s.item as u8]);
    out.extend_from_slice(&length.to_le_bytes());
    out.extend_from_slice(&(block as u32).to_le_bytes());
    out.resize(HEADER, 0);
    if !put_blocks(&s, input, block, input.len(), &mut out)? {
        return Ok(None);
    }
    let stored = (out.len() as u32).to_le_bytes();
    if let Some(slot) = out.get_mut(12..).and_then(<[u8]>::first_chunk_mut::<4>) {
        *slot = stored;
    }
    Ok(Some(bounded::fitted(out)))
}
