//! Filter 32026: Blosc2.
//!
//! A stored HDF5 chunk is a contiguous frame ([`frame`]) that holds either one plain chunk, or a multi-dimensional array
//! ([`b2nd`]) whose chunks are cut in multi-dimensional blocks.
//! Source: README_CFRAME_FORMAT.rst, README_B2ND_METALAYER.rst of c-blosc2, blosc2_filter.c of PyTables' hdf5-blosc2.

mod b2nd;
mod frame;

use super::blosc::chunk::Chunk;
use super::{FilterError, Params};
use frame::{Content, Frame};

/// Name in errors.
const NAME: &str = "blosc2";

/// Decodes one stored chunk.
///
/// # Errors
/// [`FilterError::Corrupt`] for broken or truncated input, or an array of another shape than the client data tell,
/// [`FilterError::TooLarge`] if it decodes to more than `p.limit` bytes, [`FilterError::Unsupported`] for codecs or filters
/// from plug-ins and chunks with blocks of variable length.
pub fn decode(input: &[u8], p: &Params<'_>) -> Result<Vec<u8>, FilterError> {
    let frame = Frame::parse(input, p.limit)?;
    if let Some(meta) = frame.array_metalayer()? {
        let array = b2nd::Array::parse(meta, &frame, p)?;
        return array.decode(&frame, p.limit);
    }
    // The plug-in reads the first chunk and no other.
    if frame.chunk_count() != 1 {
        return Err(FilterError::unsupported(NAME, format!("a plain frame of {} chunks", frame.chunk_count())));
    }
    match frame.chunk(0)? {
        Content::Chunk(chunk) => chunk.decode(p.limit),
        Content::Fill(fill, length) => {
            let mut out = vec![0; length];
            fill.fill(NAME, &mut out)?;
            Ok(out)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::golden;
    use super::*;

    #[test]
    fn golden_chunks() {
        golden::check(include_bytes!("../../../tests/fixtures/codecs/blosc2.pack"), decode);
    }

    #[test]
    fn damage_never_panics() {
        golden::damage(include_bytes!("../../../tests/fixtures/codecs/blosc2.pack"), 6, decode);
    }
}
