//! Filter 32001: Blosc (version 1), and what Blosc2 shares with it: chunks, their codecs and their filters.
//!
//! A stored HDF5 chunk is one Blosc chunk ([`chunk`]).
//! Source: README_HEADER.rst / README_CHUNK_FORMAT.rst of c-blosc.

pub(in crate::filter) mod chunk;
pub(in crate::filter) mod codec;
pub(in crate::filter) mod encode;
mod lz;
mod unshuffle;

use super::{FilterError, Params};
use chunk::Chunk;
pub use encode::encode;

/// Name in errors.
const NAME: &str = "blosc";

/// Decodes one stored chunk. The client data are not needed.
///
/// # Errors
/// [`FilterError::Corrupt`] for broken or truncated input, [`FilterError::TooLarge`] if it says it decodes to more than
/// `p.limit` bytes, [`FilterError::Unsupported`] for codecs or filters from plug-ins.
pub fn decode(input: &[u8], p: &Params<'_>) -> Result<Vec<u8>, FilterError> {
    Chunk::parse(NAME, input)?.decode(p.limit)
}

#[cfg(test)]
mod tests {
    use super::super::golden;

    const PACK: &[u8] = include_bytes!("../../../tests/fixtures/codecs/blosc.pack");

    #[test]
    fn golden_chunks() {
        golden::check(PACK);
    }

    #[test]
    fn damage_never_panics() {
        golden::damage(PACK, 8);
    }
}
