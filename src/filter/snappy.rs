//! Filter 32003, Snappy. Two plug-ins use the identifier, with different formats:
//!
//! ```text
//! plain (hdf5lib of R)        one raw Snappy block: size varint | elements
//! snappy-cuda (registered)    size varint | block size varint | { size u32 LE | elements } ...
//! ```
//!
//! Neither has a signature. A plain block must decode to exactly its stated size, which bytes of
//! the other form practically never do, so plain is tried first.

use super::{FilterError, Params, bounded};
use snap::raw::{Decoder, Encoder};

const NAME: &str = "snappy";

/// Decompresses either form.
pub fn decode(input: &[u8], p: &Params<'_>) -> Result<Vec<u8>, FilterError> {
    let (size, rest) = varint(input).ok_or_else(|| FilterError::corrupt(NAME, "the size is damaged"))?;
    let mut out = bounded::zeroed(NAME, size, p.limit)?;
    match Decoder::new().decompress(input, &mut out) {
        Ok(len) if len == size => Ok(out),
        Ok(_) => Err(FilterError::corrupt(NAME, "shorter than it states")),
        Err(plain) => {
            blocks(rest, &mut out).ok_or_else(|| FilterError::corrupt(NAME, plain.to_string()))?;
            Ok(out)
        }
    }
}

/// Compresses to the plain form, one raw Snappy block; never declines.
pub fn encode(input: &[u8], _: &Params<'_>) -> Result<Option<Vec<u8>>, FilterError> {
    let bound = snap::raw::max_compress_len(input.len());
    let mut out = bounded::any(NAME, bound, bound)?;
    let len = Encoder::new().compress(input, &mut out).map_err(|e| FilterError::corrupt(NAME, e.to_string()))?;
    out.truncate(len);
    Ok(Some(bounded::fitted(out)))
}

/// Decodes a little-endian base-128 number of at most 32 bits; also returns the input after it.
fn varint(input: &[u8]) -> Option<(usize, &[u8])> {
    let mut value = 0u64;
    for (i, &byte) in input.iter().take(5).enumerate() {
        value |= u64::from(byte & 0x7f) << (7 * i as u32);
        if byte < 0x80 {
            let value = u32::try_from(value).ok()?;
            return Some((value.try_into().ok()?, input.get(i.saturating_add(1)..)?));
        }
    }
    None
}

/// Decodes the independent blocks of snappy-cuda into `out`.
fn blocks(input: &[u8], out: &mut [u8]) -> Option<()> {
    let (block_size, mut rest) = varint(input)?;
    if block_size == 0 {
        return None;
    }
    let mut decoder = Decoder::new();
    let mut plain = Vec::new();
    for block in out.chunks_mut(block_size) {
        let (stored, tail) = rest.split_first_chunk::<4>()?;
        let (elements, tail) = tail.split_at_checked(usize::try_from(u32::from_le_bytes(*stored)).ok()?)?;
        rest = tail;
        // Prepend the decoded size, which makes it a plain block.
        plain.clear();
        let mut size = block.len();
        while size >= 0x80 {
            plain.push(size as u8 | 0x80);
            size >>= 7;
        }
        plain.push(size as u8);
        plain.extend_from_slice(elements);
        decoder.decompress(&plain, block).ok().filter(|&n| n == block.len())?;
    }
    rest.is_empty().then_some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cuda(data: &[u8], block_size: usize) -> Vec<u8> {
        let put = |out: &mut Vec<u8>, mut n: usize| {
            while n >= 0x80 {
                out.push(n as u8 | 0x80);
                n >>= 7;
            }
            out.push(n as u8);
        };
        let mut out = Vec::new();
        put(&mut out, data.len());
        put(&mut out, block_size);
        for block in data.chunks(block_size) {
            let plain = snap::raw::Encoder::new().compress_vec(block).unwrap();
            let elements = varint(&plain).unwrap().1;
            out.extend_from_slice(&(elements.len() as u32).to_le_bytes());
            out.extend_from_slice(elements);
        }
        out
    }

    #[test]
    fn both_forms() {
        for len in [0, 1, 5, 100, 300, 70_000] {
            let data: Vec<u8> = (0..len).map(|i: u32| ((i / 3) ^ (i >> 5)) as u8).collect();
            let p = Params { cd_values: &[], expected: data.len(), limit: data.len() };
            let plain = snap::raw::Encoder::new().compress_vec(&data).unwrap();
            assert_eq!(decode(&plain, &p).unwrap(), data);
            for block_size in [1 << 15, 100, 7] {
                assert_eq!(decode(&cuda(&data, block_size), &p).unwrap(), data, "{len} bytes in blocks of {block_size}");
            }
            if len > 0 {
                assert!(decode(&plain[..plain.len() - 1], &p).is_err());
                assert!(decode(&plain, &Params { limit: data.len() - 1, ..p }).is_err());
                let framed = cuda(&data, 1 << 15);
                assert!(decode(&framed[..framed.len() - 1], &p).is_err());
            }
        }
        let p = Params { cd_values: &[], expected: 10, limit: 10 };
        assert!(decode(&[], &p).is_err());
        assert!(decode(&[0xff; 9], &p).is_err());
        assert!(decode(&[5, 0], &p).is_err());
    }
}
