//! Filter 32008: bitshuffle, optionally followed by LZ4 or Zstandard.
//!
//! ```text
//! client data: major, minor version, item size, block size in items (0: default),
//!              compression (2 LZ4, 3 Zstandard), level
//! compressed:  u64 BE decoded bytes | u32 BE bytes per block | blocks: u32 BE length, stream |
//!              leftover items, unshuffled
//! otherwise:   blocks | leftover items
//! block:       bit 0 of the first byte of all items, then bit 1, ...
//!              (8 * item size rows, items / 8 bytes each)
//! ```
//!
//! The last block may be shorter, but is a multiple of 8 items; up to 7 items are left over,
//! unshuffled.
//! Source: bitshuffle's README and bshuf_h5filter.c.

use super::bit_transpose::{transpose_block, untranspose};
use super::blosc::codec::{Codec, Streams};
use super::{FilterError, Params, bounded, zstd};

/// Name in errors.
const NAME: &str = "bitshuffle";
/// Blocks are a multiple of this many items.
const BLOCK_ITEMS_MULTIPLE: usize = 8;
/// Default block size, bytes.
const BLOCK_BYTES_DEFAULT: usize = 8192;
/// Fewest items in a default block.
const BLOCK_ITEMS_MIN: usize = 128;

/// Number of items in a default block.
fn default_block(item: usize) -> usize {
    let items = BLOCK_BYTES_DEFAULT.checked_div(item).unwrap_or(0);
    (items - items % BLOCK_ITEMS_MULTIPLE).max(BLOCK_ITEMS_MIN)
}

/// Decoded client data.
struct Settings {
    /// Item size, bytes.
    item: usize,
    /// Items per block; 0: the default.
    block: usize,
    codec: Option<Codec>,
}

impl Settings {
    fn new(cd_values: &[u32]) -> Result<Self, FilterError> {
        let number = |i: usize| cd_values.get(i).map_or(0, |&v| usize::try_from(v).unwrap_or(usize::MAX));
        let item = number(2);
        if item == 0 {
            return Err(FilterError::corrupt(NAME, "no item size in the client data"));
        }
        let codec = match number(4) {
            0 => None,
            2 => Some(Codec::Lz4),
            3 => Some(Codec::Zstd),
            other => return Err(FilterError::unsupported(NAME, format!("compression {other}"))),
        };
        Ok(Settings { item, block: number(3), codec })
    }
}

/// Validates `block`, or chooses the default: items per block for a chunk of `length` bytes.
fn checked_block(block: usize, item: usize, length: usize) -> Result<usize, FilterError> {
    let block = if block == 0 { default_block(item) } else { block };
    if !length.is_multiple_of(item) || !block.is_multiple_of(BLOCK_ITEMS_MULTIPLE) {
        return Err(FilterError::corrupt(NAME, format!("{length} bytes in blocks of {block} items of {item} bytes")));
    }
    Ok(block)
}

/// Decodes one stored chunk.
///
/// # Errors
/// [`FilterError::Corrupt`] for invalid or truncated input, [`FilterError::TooLarge`] if the stated
/// size exceeds `p.limit` bytes, [`FilterError::Unsupported`] for an unknown compression.
pub fn decode(input: &[u8], p: &Params<'_>) -> Result<Vec<u8>, FilterError> {
    let Settings { item, mut block, codec } = Settings::new(p.cd_values)?;
    let mut length = input.len();
    let mut body = input;
    if codec.is_some() {
        let header = input.split_first_chunk::<8>().and_then(|(n, rest)| Some((n, rest.split_first_chunk::<4>()?)));
        let Some((n, (size, rest))) = header else {
            return Err(FilterError::corrupt(NAME, "no header"));
        };
        length = usize::try_from(u64::from_be_bytes(*n)).unwrap_or(usize::MAX);
        block = usize::try_from(u32::from_be_bytes(*size)).unwrap_or(usize::MAX) / item;
        body = rest;
    }
    if length > p.limit {
        return Err(FilterError::TooLarge { filter: NAME, limit: p.limit });
    }
    decode_blocks(body, codec, item, checked_block(block, item, length)?, length)
}

/// Encodes one chunk; never declines.
///
/// # Errors
/// [`FilterError::Corrupt`] if the client data are invalid or the chunk is not whole items,
/// [`FilterError::Unsupported`] for an unknown compression.
pub fn encode(input: &[u8], p: &Params<'_>) -> Result<Option<Vec<u8>>, FilterError> {
    let Settings { item, block, codec } = Settings::new(p.cd_values)?;
    let block = checked_block(block, item, input.len())?.saturating_mul(item);
    let mut out = bounded::buffer(NAME, input.len(), usize::MAX)?;
    if codec.is_some() {
        let size = u32::try_from(block).map_err(|_| FilterError::corrupt(NAME, format!("blocks of {block} bytes")))?;
        out.extend_from_slice(&(input.len() as u64).to_be_bytes());
        out.extend_from_slice(&size.to_be_bytes());
    }
    let leftover = (input.len() / item % BLOCK_ITEMS_MULTIPLE).saturating_mul(item);
    let (whole, tail) = input.split_at_checked(input.len().saturating_sub(leftover)).unwrap_or_default();
    let largest = block.min(whole.len());
    let (mut planes, mut rows) = (vec![0; largest], vec![0; largest]);
    let level = zstd::level(p.cd_values.get(5).copied());
    for from in whole.chunks(block) {
        let (planes, rows) = (planes.get_mut(..from.len()).unwrap_or_default(), rows.get_mut(..from.len()).unwrap_or_default());
        transpose_block(from, planes, rows, item);
        match codec {
            Some(codec) => {
                let stream = codec.compress(rows, level)?;
                out.extend_from_slice(&(stream.len() as u32).to_be_bytes());
                out.extend_from_slice(&stream);
            }
            None => out.extend_from_slice(rows),
        }
    }
    out.extend_from_slice(tail);
    Ok(Some(bounded::fitted(out)))
}

/// Decodes `body` without its header into `length` bytes, in blocks of `block` items.
fn decode_blocks(mut body: &[u8], codec: Option<Codec>, item: usize, block: usize, length: usize) -> Result<Vec<u8>, FilterError> {
    let items = length / item;
    let leftover = (items % BLOCK_ITEMS_MULTIPLE).saturating_mul(item);
    let blocked = length.saturating_sub(leftover);
    let block = block.saturating_mul(item).min(blocked);
    let mut out = vec![0; length];
    let (whole, tail) = out.split_at_mut_checked(blocked).unwrap_or_default();
    let mut streams = codec.map(|c| Streams::new(c, None));
    let mut scratch = if streams.is_some() { vec![0; block] } else { Vec::new() };
    if block > 0 {
        for to in whole.chunks_mut(block) {
            let from = match &mut streams {
                Some(streams) => {
                    let stream = take_stream(&mut body)?;
                    let from = scratch.get_mut(..to.len()).unwrap_or_default();
                    if !streams.decompress(stream, from) {
                        return Err(FilterError::corrupt(NAME, "a block does not decompress to its size"));
                    }
                    &*from
                }
                None => take(&mut body, to.len())?,
            };
            untranspose(from, to, item);
        }
    }
    tail.copy_from_slice(take(&mut body, leftover)?);
    Ok(out)
}

/// Splits the next `n` bytes off `body`.
fn take<'a>(body: &mut &'a [u8], n: usize) -> Result<&'a [u8], FilterError> {
    let Some((now, later)) = body.split_at_checked(n) else {
        return Err(FilterError::corrupt(NAME, "the input ends early"));
    };
    *body = later;
    Ok(now)
}

/// Splits the next stream and its length prefix off `body`.
fn take_stream<'a>(body: &mut &'a [u8]) -> Result<&'a [u8], FilterError> {
    let mut size = [0; 4];
    size.copy_from_slice(take(body, 4)?);
    take(body, usize::try_from(u32::from_be_bytes(size)).unwrap_or(usize::MAX))
}

#[cfg(test)]
mod tests {
    use super::super::golden;
    use super::*;

    #[test]
    fn golden_chunks() {
        golden::check(include_bytes!("../../tests/fixtures/codecs/bitshuffle.pack"));
    }

    #[test]
    fn damage_never_panics() {
        golden::damage(include_bytes!("../../tests/fixtures/codecs/bitshuffle.pack"), 10);
    }

    #[test]
    fn default_blocks() {
        assert_eq!((default_block(1), default_block(4), default_block(3), default_block(1000)), (8192, 2048, 2728, 128));
    }
}
