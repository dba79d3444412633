//! Filter 32004, LZ4: blocks after a big-endian header (not the LZ4 frame format).
//!
//! ```text
//! decoded size u64 BE | block size u32 BE | { stored size u32 BE | LZ4 block } ...
//! ```
//!
//! A block whose stored size equals its decoded size is uncompressed. The last block may be shorter
//! than the block size. Client data, for the encoder: the block size, 0 for the default.
//! (LZ4_HDF5_format.md of hdf5_plugins)

use super::{FilterError, Params, bounded};
use crate::base::buffers;

const NAME: &str = "lz4";

/// Decompresses all blocks.
pub fn decode(input: &[u8], p: &Params<'_>) -> Result<Vec<u8>, FilterError> {
    let short = || FilterError::corrupt(NAME, "the blocks end early");
    let (size, rest) = input.split_first_chunk::<8>().ok_or_else(short)?;
    let (block_size, mut rest) = rest.split_first_chunk::<4>().ok_or_else(short)?;
    let size = usize::try_from(u64::from_be_bytes(*size)).unwrap_or(usize::MAX);
    let block_size = usize::try_from(u32::from_be_bytes(*block_size)).unwrap_or(usize::MAX);
    if block_size == 0 && size > 0 {
        return Err(FilterError::corrupt(NAME, "block size is 0"));
    }
    let mut out = bounded::zeroed(NAME, size, p.limit)?;
    for block in out.chunks_mut(block_size.max(1)) {
        let (stored, tail) = rest.split_first_chunk::<4>().ok_or_else(short)?;
        let stored = usize::try_from(u32::from_be_bytes(*stored)).unwrap_or(usize::MAX);
        let (data, tail) = tail.split_at_checked(stored).ok_or_else(short)?;
        rest = tail;
        if data.len() == block.len() {
            block.copy_from_slice(data);
            continue;
        }
        let len = lz4_flex::block::decompress_into(data, block).map_err(|e| FilterError::corrupt(NAME, e.to_string()))?;
        if len != block.len() {
            return Err(FilterError::corrupt(NAME, "a block is shorter than the block size"));
        }
    }
    Ok(out)
}

/// Block size when the client data state none, bytes.
const DEFAULT_BLOCK: usize = 1 << 30;
/// Largest input block of LZ4, bytes (LZ4_MAX_INPUT_SIZE).
const BLOCK_MAX: usize = 0x7e00_0000;

/// Compresses block by block; never declines: incompressible blocks are stored unchanged.
///
/// # Errors
/// [`FilterError::Corrupt`] if the client data state a block size above LZ4's maximum.
pub fn encode(input: &[u8], p: &Params<'_>) -> Result<Option<Vec<u8>>, FilterError> {
    let wanted = match p.cd_values.first() {
        Some(&size) if size > 0 => usize::try_from(size).unwrap_or(usize::MAX),
        _ => DEFAULT_BLOCK,
    };
    if wanted > BLOCK_MAX {
        return Err(FilterError::corrupt(NAME, format!("block size {wanted}")));
    }
    let block_size = wanted.min(input.len());
    let bound = lz4_flex::block::get_maximum_output_size(block_size);
    let mut out = bounded::buffer(NAME, input.len(), usize::MAX)?;
    out.extend_from_slice(&(input.len() as u64).to_be_bytes());
    out.extend_from_slice(&(block_size as u32).to_be_bytes());
    let mut scratch = bounded::any(NAME, bound, bound)?;
    for block in input.chunks(block_size.max(1)) {
        let made = lz4_flex::block::compress_into(block, &mut scratch).ok().and_then(|len| scratch.get(..len));
        let stored = made.filter(|made| made.len() < block.len()).unwrap_or(block);
        out.extend_from_slice(&(stored.len() as u32).to_be_bytes());
        out.extend_from_slice(stored);
    }
    buffers::give(scratch);
    Ok(Some(bounded::fitted(out)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_headers() {
        let run = |input: &[u8]| decode(input, &Params { cd_values: &[], expected: 4, limit: 1000 });
        let head = |size: u64, block: u32| [size.to_be_bytes().as_slice(), &block.to_be_bytes()].concat();
        assert_eq!(run(&head(0, 0)).unwrap(), b"");
        assert_eq!(run(&[head(3, 9), vec![0, 0, 0, 3, 7, 8, 9]].concat()).unwrap(), [7, 8, 9]);
        assert!(run(&head(3, 0)).is_err());
        assert!(run(&head(3, 3)).is_err());
        assert!(matches!(run(&head(u64::MAX, 3)), Err(FilterError::TooLarge { .. })));
        assert!(run(&[head(3, 3), vec![0xff, 0xff, 0xff, 0xff, 7, 8, 9]].concat()).is_err());
        // A block that decodes to 2 of 3 bytes.
        assert!(run(&[head(3, 3), vec![0, 0, 0, 2, 0x10, 8]].concat()).is_err());
        assert!(run(&[]).is_err());
    }
}
