//! Decodes Blosc chunks.

use super::chunk::Chunk;
use crate::filter::{FilterError, Params};

/// Name in errors.
const NAME: &str = "blosc";

/// Decodes one stored chunk; ignores the client data.
///
/// # Errors
/// [`FilterError::Corrupt`] for invalid or truncated input, [`FilterError::TooLarge`] if the stated
/// size exceeds `p.limit` bytes, [`FilterError::Unsupported`] for codecs or filters from plug-ins.
pub fn decode(input: &[u8], p: &Params<'_>) -> Result<Vec<u8>, FilterError> {
    Chunk::parse(NAME, input)?.decode(p.limit)
}

#[cfg(test)]
mod tests {
    use crate::filter::golden;

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
