//! Encoder of Blosc2: a frame with one plain chunk, which the plug-in reads for datasets of any
//! number of dimensions.
//!
//! ```text
//! client data: as for Blosc; then, for an array, its rank and the chunk's shape
//!              shuffle: 0 none, 1 bytes, 2 bits, and others; codec: as for Blosc, and others
//! ```
//!
//! A stored chunk records its own inner filters and codec, so unimplemented ones are replaced by
//! lossless substitutes: no shuffle, LZ4. [`super::frame`] and [`crate::filter::blosc::chunk`]
//! describe the layout.

use super::frame::NAME;
use crate::filter::blosc::encode::{Settings, Shuffle, is_split, put_blocks};
use crate::filter::{FilterError, Params, bounded};

/// Index of shuffle and codec in the client data.
const SHUFFLE: usize = 5;
const CODEC: usize = 6;
const LZ4: u32 = 1;
/// Size of a chunk header, bytes.
const CHUNK_HEADER: usize = 32;
/// Size of the header of a frame without metalayers, bytes.
const HEADER: u32 = 97;
/// An empty metalayer map, in the header and, with another length field, in the trailer.
const NO_METALAYERS: [u8; 10] = [0x93, 0xcd, 0, 7, 0xde, 0, 0, 0xdc, 0, 0];
/// The index: an uncompressed chunk that holds offset 0 of the only chunk.
const INDEX: [u8; 40] =
    [5, 1, 7, 8, 8, 0, 0, 0, 8, 0, 0, 0, 40, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
/// Trailer: version, no variable-length metalayers, its own length, no fingerprint.
const TRAILER: [u8; 19] = [0x94, 1, 0x93, 0xcd, 0, 6, 0xde, 0, 0, 0xdc, 0, 0, 0xce, 0, 0, 0, 35, 0xd8, 0];
const FINGERPRINT: usize = 16;

/// Replaces unsupported shuffles and codecs; returns the settings and the compressor's identifier.
fn settings(p: &Params<'_>) -> Result<(Settings, u8), FilterError> {
    let mut values = p.cd_values.to_vec();
    if let Some(shuffle) = values.get_mut(SHUFFLE).filter(|s| **s > 2) {
        *shuffle = 0;
    }
    if let Some(codec) = values.get_mut(CODEC).filter(|c| !matches!(**c, 0..=2 | 4 | 5)) {
        *codec = LZ4;
    }
    let compressor = values.get(CODEC).map_or(0, |&c| c as u8);
    let mut settings = Settings::new(&values)?;
    if settings.item < 2 && settings.shuffle == Shuffle::Bytes {
        settings.shuffle = Shuffle::None;
    }
    Ok((settings, compressor))
}

/// Identifier of the inner filter.
fn filter_of(s: &Settings) -> u8 {
    match s.shuffle {
        Shuffle::None => 0,
        Shuffle::Bytes => 1,
        Shuffle::Bits => 2,
    }
}

/// Encodes one chunk; stores it uncompressed if compression does not shrink it.
fn chunk(input: &[u8], s: &Settings, compressor: u8) -> Result<Vec<u8>, FilterError> {
    let too_large = || FilterError::unsupported(NAME, format!("a chunk of {} bytes", input.len()));
    let length = i32::try_from(input.len()).map_err(|_| too_large())?;
    let block = s.block(input.len());
    let filter = filter_of(s);
    let header = |plain: bool, stored: usize| {
        let flags = s.code() << 5 | 5 | if is_split(s, block) { 0 } else { 16 } | if plain { 2 } else { 0 };
        let mut header = vec![5, 1, flags, s.item as u8];
        header.extend_from_slice(&length.to_le_bytes());
        header.extend_from_slice(&(block as u32).to_le_bytes());
        header.extend_from_slice(&(stored as u32).to_le_bytes());
        header.extend_from_slice(&[0, 0, 0, 0, 0, filter, compressor]);
        header.resize(CHUNK_HEADER, 0);
        header
    };
    let mut out = bounded::buffer(NAME, input.len().saturating_add(CHUNK_HEADER), usize::MAX)?;
    out.resize(CHUNK_HEADER, 0);
    let smaller = s.level > 0 && put_blocks(s, input, block, input.len(), &mut out)?;
    if !smaller {
        out.truncate(CHUNK_HEADER);
        out.extend_from_slice(input);
    }
    let (stored, begin) = (out.len(), out.get_mut(..CHUNK_HEADER));
    begin.unwrap_or_default().copy_from_slice(&header(!smaller, stored));
    Ok(out)
}

/// Compresses one chunk; never declines: an incompressible one is stored uncompressed in a frame,
/// as by the plug-in.
///
/// # Errors
/// [`FilterError::Corrupt`] if the client data lack an item size, [`FilterError::Unsupported`] for
/// more than 2 GiB.
pub fn encode(input: &[u8], p: &Params<'_>) -> Result<Option<Vec<u8>>, FilterError> {
    let (mut s, compressor) = settings(p)?;
    // Releases differ in how they handle items beyond a multiple of 8.
    if s.shuffle == Shuffle::Bits && !input.len().is_multiple_of(s.item.saturating_mul(8)) {
        s.shuffle = if s.item > 1 { Shuffle::Bytes } else { Shuffle::None };
    }
    let chunk = chunk(input, &s, compressor)?;
    let filter = filter_of(&s);
    let size = (HEADER as usize).saturating_add(chunk.len()).saturating_add(INDEX.len() + TRAILER.len() + FINGERPRINT);
    let mut out = bounded::buffer(NAME, size, usize::MAX)?;
    let number = |out: &mut Vec<u8>, n: usize| {
        out.push(0xd2);
        out.extend_from_slice(&(n as u32).to_be_bytes());
    };
    let long = |out: &mut Vec<u8>, kind: u8, n: usize| {
        out.push(kind);
        out.extend_from_slice(&(n as u64).to_be_bytes());
    };
    out.extend_from_slice(b"\x9e\xa8b2frame\0");
    number(&mut out, HEADER as usize);
    long(&mut out, 0xcf, size);
    // Version 2 with offsets of 64 bits; contiguous; codec and level; split mode 3 (split by
    // codec).
    out.extend_from_slice(&[0xa4, 0x12, 0, compressor | (s.level as u8) << 4, 3]);
    long(&mut out, 0xd3, input.len());
    long(&mut out, 0xd3, chunk.len());
    number(&mut out, s.item);
    number(&mut out, s.block(input.len()));
    number(&mut out, input.len());
    // Number of threads (the reader uses its own); no variable-length metalayers; inner filters.
    out.extend_from_slice(&[0xd1, 0, 0, 0xd1, 0, 1, 0xc2, 0xd8, 6, 0, 0, 0, 0, 0, filter, compressor, 0]);
    out.extend_from_slice(&[0; 8]);
    out.extend_from_slice(&NO_METALAYERS);
    out.extend_from_slice(&chunk);
    out.extend_from_slice(&INDEX);
    out.extend_from_slice(&TRAILER);
    out.extend_from_slice(&[0; FINGERPRINT]);
    Ok(Some(out))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn data(n: usize, random: bool) -> Vec<u8> {
        let mut x = 1u32;
        let next = |i: usize| {
            x = x.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            if random { (x >> 24) as u8 } else { (i / 64) as u8 }
        };
        (0..n).map(next).collect()
    }

    #[test]
    fn encoded_chunks_are_decoded() {
        for n in [1, 7, 31, 128, 1000, 4096, 65_536, 70_001, 600_000] {
            for (item, random) in [(1, false), (2, true), (4, false), (8, false), (17, false), (300, true)] {
                for (shuffle, codec, level) in [(0, 0, 5), (1, 1, 9), (2, 1, 1), (1, 4, 6), (2, 5, 3), (3, 2, 5), (4, 33, 5), (1, 1, 0)] {
                    let (input, values) = (data(n, random), [1, 0, item, n as u32, level, shuffle, codec]);
                    let p = Params { cd_values: &values, expected: n, limit: n };
                    let coded = encode(&input, &p).unwrap().unwrap();
                    assert!(
                        coded.len() <= n + 204 && (random || n < 4096 || level == 0 || coded.len() < n),
                        "{n} {values:?} {}",
                        coded.len()
                    );
                    assert_eq!(super::super::decode(&coded, &p).unwrap(), input, "{n} {values:?}");
                }
            }
        }
    }

    #[test]
    fn client_data_without_an_item_size_are_refused() {
        assert!(encode(&[1; 10], &Params { cd_values: &[1, 0], expected: 10, limit: 10 }).is_err());
    }
}
