//! Filter 32026: Blosc2.
//!
//! A stored HDF5 chunk is a contiguous frame ([`frame`]) that holds either one plain chunk, or a multi-dimensional array
//! ([`b2nd`]) whose chunks are cut in multi-dimensional blocks.
//! Source: README_CFRAME_FORMAT.rst, README_B2ND_METALAYER.rst of c-blosc2, blosc2_filter.c of PyTables' hdf5-blosc2.

mod b2nd;
mod encode;
mod frame;

use super::blosc::chunk::Chunk;
use super::{FilterError, Params};
pub use encode::encode;
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
        Content::Fill(_, length) if length > p.limit => Err(FilterError::TooLarge { filter: NAME, limit: p.limit }),
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
        golden::check(include_bytes!("../../../tests/fixtures/codecs/blosc2.pack"));
    }

    /// Several chunks, chunks of one value, dictionaries, filter pipelines: what the HDF5 plug-in never writes.
    #[test]
    fn golden_frames() {
        golden::check(include_bytes!("../../../tests/fixtures/codecs/frames.pack"));
    }

    /// A chunk that only the index tells is as long as the frame's header says, so the limit must be asked.
    #[test]
    fn filled_chunk_is_bounded() {
        let pack = golden::records(include_bytes!("../../../tests/fixtures/codecs/frames.pack"));
        let zeros = pack.iter().find(|r| r.label.starts_with("zeros <i2")).unwrap();
        let mut frame = zeros.stored.to_vec();
        // Decoded bytes and chunk bytes; a metalayer of another name makes the frame plain.
        frame[30..38].copy_from_slice(&0x7fff_ffffi64.to_be_bytes());
        frame[58..62].copy_from_slice(&0x7fff_ffffi32.to_be_bytes());
        let name = frame.windows(4).position(|w| w == b"b2nd").unwrap();
        frame[name] = b'x';
        let p = Params { cd_values: &[1, 0, 2, 200], expected: 200, limit: 1000 };
        assert!(decode(&frame, &p).is_err());
    }

    #[test]
    fn damage_never_panics() {
        golden::damage(include_bytes!("../../../tests/fixtures/codecs/frames.pack"), 6);
        golden::damage(include_bytes!("../../../tests/fixtures/codecs/blosc2.pack"), 6);
    }
}
