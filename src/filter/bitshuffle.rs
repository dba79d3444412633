//! Filter 32008: bitshuffle, optionally followed by LZ4 or Zstandard.
//!
//! ```text
//! client data: major, minor version, item size, block size in items (0: default), compression (2 LZ4, 3 Zstandard), level
//! compressed:  u64 BE decoded bytes | u32 BE bytes per block | blocks: u32 BE length, stream | leftover items as they are
//! otherwise:   blocks | leftover items
//! block:       bit 0 of the first byte of all items, then bit 1, ... (8 * item size rows, items / 8 bytes each)
//! ```
//!
//! The last block may be shorter, but is a multiple of 8 items; up to 7 items are left over.
//! Source: bitshuffle's README and bshuf_h5filter.c.

use super::blosc::codec::{Codec, Streams};
use super::{FilterError, Params, bounded, shuffle, zstd};

/// Name in errors.
const NAME: &str = "bitshuffle";
/// Items in a block are a multiple of this.
const MULTIPLE: usize = 8;
/// Default block, bytes.
const TARGET_BLOCK: usize = 8192;
/// Least items in a default block.
const MIN_BLOCK: usize = 128;

/// Undoes the bit transpose of one block: `from` has a row of bits for each bit of an item, `to` gets the items.
/// Both are as long, a multiple of 8 items of `item` bytes; else nothing sensible is written.
pub(super) fn untranspose(from: &[u8], to: &mut [u8], item: usize) {
    match item {
        1 => untranspose_sized::<1>(from, to),
        2 => untranspose_sized::<2>(from, to),
        4 => untranspose_sized::<4>(from, to),
        8 => untranspose_sized::<8>(from, to),
        _ => untranspose_eights(from, to, item, 0),
    }
}

/// [`untranspose`] for items of `N` bytes, 64 at a time, which is two to three times as fast.
fn untranspose_sized<const N: usize>(from: &[u8], to: &mut [u8]) {
    let row = to.len() / N / 8;
    let (items, _) = to.as_chunks_mut::<N>();
    for (block, items) in items.chunks_exact_mut(64).enumerate() {
        let mut planes = [[0; 64]; N];
        for (byte, plane) in planes.iter_mut().enumerate() {
            *plane = transpose_64(std::array::from_fn(|bit| {
                let at = (byte * 8 + bit).saturating_mul(row).saturating_add(block.saturating_mul(8));
                from.get(at..).and_then(<[u8]>::first_chunk::<8>).map_or(0, |b| u64::from_le_bytes(*b))
            }));
        }
        for (i, item) in items.iter_mut().enumerate() {
            *item = std::array::from_fn(|byte| planes[byte][i % 64]);
        }
    }
    untranspose_eights(from, to, N, row - row % 8);
}

/// 8 rows of 64 bits as 64 bytes, bit `k` of byte `i` being bit `i` of row `k`.
#[inline]
fn transpose_64(mut rows: [u64; 8]) -> [u8; 64] {
    // Written out so that all of it is unrolled.
    for a in [0, 2, 4, 6] {
        exchange::<1>(&mut rows, a, 0x5555_5555_5555_5555);
    }
    for a in [0, 1, 4, 5] {
        exchange::<2>(&mut rows, a, 0x3333_3333_3333_3333);
    }
    for a in [0, 1, 2, 3] {
        exchange::<4>(&mut rows, a, 0x0f0f_0f0f_0f0f_0f0f);
    }
    let mut out = [0; 64];
    let (eights, _) = out.as_chunks_mut::<8>();
    for (i, row) in rows.iter().enumerate() {
        for (eight, byte) in eights.iter_mut().zip(row.to_le_bytes()) {
            eight[i] = byte;
        }
    }
    out
}

/// The reverse of [`transpose_64`].
#[inline]
fn untranspose_64(bytes: &[u8; 64]) -> [u64; 8] {
    let (eights, _) = bytes.as_chunks::<8>();
    let mut rows = std::array::from_fn(|i| eights.iter().enumerate().fold(0, |row, (e, eight)| row | u64::from(eight[i % 8]) << (8 * e)));
    for a in [0, 1, 2, 3] {
        exchange::<4>(&mut rows, a, 0x0f0f_0f0f_0f0f_0f0f);
    }
    for a in [0, 1, 4, 5] {
        exchange::<2>(&mut rows, a, 0x3333_3333_3333_3333);
    }
    for a in [0, 2, 4, 6] {
        exchange::<1>(&mut rows, a, 0x5555_5555_5555_5555);
    }
    rows
}

/// The bit transpose of one block of items of `item` bytes; `to` and `planes` (for the bytes of the items apart) are
/// as long as `from`, a multiple of 8 items. Of `to`, what is behind the last item is left as it is.
pub(super) fn transpose_block(from: &[u8], planes: &mut [u8], to: &mut [u8], item: usize) {
    let items = from.len().checked_div(item).unwrap_or(0);
    let row = items / 8;
    if row == 0 {
        return;
    }
    shuffle::shuffle(from, item, planes);
    for (plane, rows) in planes.chunks_exact(items).zip(to.chunks_exact_mut(items)).take(item) {
        let mut rows = rows.chunks_exact_mut(row);
        let mut rows: [_; 8] = std::array::from_fn(|_| rows.next().unwrap_or_default().iter_mut());
        let (blocks, rest) = plane.as_chunks::<64>();
        for block in blocks {
            for (row, word) in rows.iter_mut().zip(untranspose_64(block)) {
                for (byte, slot) in word.to_le_bytes().into_iter().zip(row) {
                    *slot = byte;
                }
            }
        }
        for eight in rest.as_chunks::<8>().0 {
            for (row, byte) in rows.iter_mut().zip(transpose(u64::from_le_bytes(*eight)).to_le_bytes()) {
                if let Some(slot) = row.next() {
                    *slot = byte;
                }
            }
        }
    }
}

/// Exchanges the bits of row `a` that `mask` does not have with those of row `a + D` that it has.
#[inline]
fn exchange<const D: usize>(rows: &mut [u64; 8], a: usize, mask: u64) {
    let t = (rows[a] >> D ^ rows[a + D]) & mask;
    rows[a + D] ^= t;
    rows[a] ^= t << D;
}

/// [`untranspose`] of any item size, 8 items at a time, from the `skip`th such group on.
fn untranspose_eights(from: &[u8], to: &mut [u8], item: usize, skip: usize) {
    let row = to.len().checked_div(item).unwrap_or(0) / 8;
    if row <= skip {
        return;
    }
    // Per byte of the item 8 rows; per 8 items one byte of each row, an 8 x 8 bit matrix.
    for (byte, rows) in from.chunks_exact(row.saturating_mul(8)).take(item).enumerate() {
        let mut rows: [_; 8] =
            std::array::from_fn(|bit| rows.get(bit.saturating_mul(row).saturating_add(skip)..).unwrap_or_default().iter());
        for eight in to.chunks_exact_mut(item.saturating_mul(8)).skip(skip) {
            let bits = u64::from_le_bytes(std::array::from_fn(|bit| rows.get_mut(bit).and_then(Iterator::next).copied().unwrap_or(0)));
            for (t, b) in eight.iter_mut().skip(byte).step_by(item).zip(transpose(bits).to_le_bytes()) {
                *t = b;
            }
        }
    }
}

/// Transposes an 8 x 8 bit matrix whose rows are the bytes.
#[inline]
fn transpose(mut x: u64) -> u64 {
    let t = (x ^ (x >> 7)) & 0x00aa_00aa_00aa_00aa;
    x ^= t ^ (t << 7);
    let t = (x ^ (x >> 14)) & 0x0000_cccc_0000_cccc;
    x ^= t ^ (t << 14);
    let t = (x ^ (x >> 28)) & 0x0000_0000_f0f0_f0f0;
    x ^ t ^ (t << 28)
}

/// Items of a default block.
fn default_block(item: usize) -> usize {
    let items = TARGET_BLOCK.checked_div(item).unwrap_or(0);
    (items - items % MULTIPLE).max(MIN_BLOCK)
}

/// What the client data tell.
struct Settings {
    /// Bytes of an item.
    item: usize,
    /// Items per block, 0 for the default.
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

/// Items per block of a chunk of `length` bytes.
fn checked_block(block: usize, item: usize, length: usize) -> Result<usize, FilterError> {
    let block = if block == 0 { default_block(item) } else { block };
    if !length.is_multiple_of(item) || !block.is_multiple_of(MULTIPLE) {
        return Err(FilterError::corrupt(NAME, format!("{length} bytes in blocks of {block} items of {item} bytes")));
    }
    Ok(block)
}

/// Decodes one stored chunk.
///
/// # Errors
/// [`FilterError::Corrupt`] for broken or truncated input, [`FilterError::TooLarge`] if it says it decodes to more than
/// `p.limit` bytes, [`FilterError::Unsupported`] for an unknown compression.
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
/// [`FilterError::Corrupt`] if the client data are broken or the chunk is not whole items,
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
    let leftover = (input.len() / item % MULTIPLE).saturating_mul(item);
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

fn decode_blocks(mut body: &[u8], codec: Option<Codec>, item: usize, block: usize, length: usize) -> Result<Vec<u8>, FilterError> {
    let items = length / item;
    let leftover = (items % MULTIPLE).saturating_mul(item);
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

/// The next `n` bytes of `body`.
fn take<'a>(body: &mut &'a [u8], n: usize) -> Result<&'a [u8], FilterError> {
    let Some((now, later)) = body.split_at_checked(n) else {
        return Err(FilterError::corrupt(NAME, "the input ends early"));
    };
    *body = later;
    Ok(now)
}

/// The next stream with its length before it.
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
    fn transpose_is_by_bits() {
        for row in 0..8 {
            for column in 0..8 {
                assert_eq!(transpose(1 << (row * 8 + column)), 1 << (column * 8 + row));
            }
        }
    }

    /// The fast and the plain way agree with the definition, bit by bit.
    #[test]
    fn untranspose_by_definition() {
        for item in [1usize, 2, 3, 4, 8, 12] {
            for items in [8usize, 56, 64, 72, 200] {
                let from: Vec<u8> = (0..(items * item) as u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 11) as u8).collect();
                let mut want = vec![0u8; from.len()];
                for (i, bit) in (0..items).flat_map(|i| (0..item * 8).map(move |bit| (i, bit))) {
                    let set = from[bit * (items / 8) + i / 8] >> (i % 8) & 1;
                    want[i * item + bit / 8] |= set << (bit % 8);
                }
                let mut got = vec![0u8; from.len()];
                untranspose(&from, &mut got, item);
                assert_eq!(got, want, "{items} items of {item}");
                let (mut planes, mut back) = (vec![0; from.len()], vec![0; from.len()]);
                transpose_block(&want, &mut planes, &mut back, item);
                assert_eq!(back, from, "transposing {items} items of {item}");
            }
        }
    }

    #[test]
    fn default_blocks() {
        assert_eq!((default_block(1), default_block(4), default_block(3), default_block(1000)), (8192, 2048, 2728, 128));
    }
}
