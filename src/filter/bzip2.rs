//! Filter 307, bzip2 (PyTables): one bzip2 stream. Client data: the encoder's block size, 1 to 9,
//! in 100 kB.

use super::{FilterError, Params, bounded};
use bzip2::{Action, Compress, Compression, Decompress, Status};

const NAME: &str = "bzip2";

/// Decompresses the stream; ignores bytes after it, as H5Zbzip2.c does.
pub fn decode(input: &[u8], p: &Params<'_>) -> Result<Vec<u8>, FilterError> {
    let mut out = bounded::buffer(NAME, p.expected, p.limit)?;
    let mut stream = Decompress::new(false);
    loop {
        let consumed = usize::try_from(stream.total_in()).unwrap_or(usize::MAX);
        let produced = out.len();
        let rest = input.get(consumed..).unwrap_or_default();
        let status = stream.decompress_vec(rest, &mut out).map_err(|e| FilterError::corrupt(NAME, e.to_string()))?;
        match status {
            Status::StreamEnd => return Ok(out),
            Status::MemNeeded => return Err(FilterError::TooLarge { filter: NAME, limit: p.limit }),
            _ => {}
        }
        let idle = out.len() == produced && usize::try_from(stream.total_in()).unwrap_or(usize::MAX) == consumed;
        if idle && out.len() < out.capacity() {
            return Err(FilterError::corrupt(NAME, "the stream ends early"));
        }
        // bzip2 reports the end of the stream only to a call with free output space.
        if out.len() == out.capacity() {
            bounded::reserve(NAME, &mut out, 1, p.limit)?;
        }
    }
}

/// Compresses into one stream; never declines.
///
/// # Errors
/// [`FilterError::Corrupt`] if the client data state a block size outside 1 to 9.
pub fn encode(input: &[u8], p: &Params<'_>) -> Result<Option<Vec<u8>>, FilterError> {
    let level = p.cd_values.first().copied().unwrap_or(9);
    if !(1..=9).contains(&level) {
        return Err(FilterError::corrupt(NAME, format!("block size {level}")));
    }
    // Bound from bzip2's documentation.
    let bound = input.len().saturating_add(input.len() / 100).saturating_add(600);
    let mut out = bounded::buffer(NAME, bound, bound)?;
    let mut stream = Compress::new(Compression::new(level), 0);
    loop {
        let consumed = usize::try_from(stream.total_in()).unwrap_or(usize::MAX);
        let rest = input.get(consumed..).unwrap_or_default();
        let before = out.len();
        let status = stream.compress_vec(rest, &mut out, Action::Finish).map_err(|e| FilterError::corrupt(NAME, e.to_string()))?;
        if status == Status::StreamEnd {
            return Ok(Some(bounded::fitted(out)));
        }
        if out.len() == before || status == Status::MemNeeded {
            return Err(FilterError::TooLarge { filter: NAME, limit: bound });
        }
    }
}
