//! Decodes Blosc2 frames.

use super::b2nd;
use super::frame::{Content, Frame, NAME};
use crate::filter::{FilterError, Params};

/// Decodes one stored chunk.
///
/// # Errors
/// [`FilterError::Corrupt`] for invalid or truncated input, or an array whose shape differs from
/// the client data's; [`FilterError::TooLarge`] if the output exceeds `p.limit` bytes;
/// [`FilterError::Unsupported`] for codecs or filters from plug-ins and chunks with blocks of
/// variable length.
pub fn decode(input: &[u8], p: &Params<'_>) -> Result<Vec<u8>, FilterError> {
    let frame = Frame::parse(input, p.limit)?;
    if let Some(meta) = frame.array_metalayer()? {
        let array = b2nd::Array::parse(meta, &frame, p)?;
        return array.decode(&frame, p.limit);
    }
    // The plug-in reads only the first chunk.
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
    use super::*;
    use crate::filter::golden;

    #[test]
    fn golden_chunks() {
        golden::check(include_bytes!("../../../tests/fixtures/codecs/blosc2.pack"));
    }

    /// Several chunks, chunks of one value, dictionaries, filter pipelines: frames that the HDF5
    /// plug-in never writes.
    #[test]
    fn golden_frames() {
        golden::check(include_bytes!("../../../tests/fixtures/codecs/frames.pack"));
    }

    /// The header alone states the size of a chunk of one value, so the limit must be checked.
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
