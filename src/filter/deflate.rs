//! Filter 1, deflate: one zlib stream (RFC 1950). Client data: the compression level, 0 to 9, for
//! the encoder.
//!
//! Bytes after the stream are ignored, a truncated stream is corrupt, as in H5Zdeflate.c.
//!
//! Decoding: libdeflate inflates chunks that have the expected size, a fifth faster than zlib-rs.
//! zlib-rs inflates other streams: longer than expected, corrupt, or in pieces.
//!
//! Encoding: libdeflate deflates whole chunks. Each zlib level maps to the lowest libdeflate level
//! whose output for scientific data is on average no larger than zlib's, which other programs that
//! write the dataset use. Chunks of which most is zero are deflated by `deflate_zeros`.

use super::deflate_zeros::{self, Run};
use super::{FilterError, Params, bounded};
use flate2::{Decompress, FlushDecompress, Status};
use libdeflater::{CompressionLvl, Compressor, Decompressor};
use std::cell::RefCell;

const NAME: &str = "deflate";

thread_local! {
    /// zlib-rs inflate state (tables and window), reused by every chunk of a thread.
    static INFLATE: RefCell<Decompress> = RefCell::new(Decompress::new(true));
    /// libdeflate inflate state, reused by every chunk of a thread.
    static INFLATE_WHOLE: RefCell<Decompressor> = RefCell::new(Decompressor::new());
    /// libdeflate state and its zlib level, reused by every chunk of a thread with that level.
    static DEFLATE: RefCell<Option<(u32, Compressor)>> = const { RefCell::new(None) };
}

/// Deflates `input`; never declines: incompressible data are stored slightly longer, as in
/// H5Zdeflate.c.
///
/// # Errors
/// [`FilterError::Corrupt`] if the client data are not one level from 0 to 9.
pub fn encode(input: &[u8], p: &Params<'_>) -> Result<Option<Vec<u8>>, FilterError> {
    let level = level(p)?;
    if let Some(stream) = deflate_zeros::encode(input, level) {
        return Ok(Some(stream));
    }
    DEFLATE.with_borrow_mut(|kept| {
        if kept.as_ref().is_none_or(|(of, _)| *of != level) {
            let own = if (4..=7).contains(&level) { level.saturating_sub(1) } else { level };
            let lvl = i32::try_from(own).ok().and_then(|l| CompressionLvl::new(l).ok()).unwrap_or_default();
            *kept = Some((level, Compressor::new(lvl)));
        }
        let Some((_, compressor)) = kept else { return Ok(None) };
        let bound = compressor.zlib_compress_bound(input.len());
        let mut out = bounded::any(NAME, bound, bound)?;
        let len = compressor.zlib_compress(input, &mut out).map_err(|e| FilterError::corrupt(NAME, e.to_string()))?;
        out.truncate(len);
        Ok(Some(bounded::fitted(out)))
    })
}

/// Deflates the data of `runs` as [`encode`]. `None`: they have not enough zeros to gain from not
/// being in one piece.
///
/// # Errors
/// Those of [`encode`].
pub fn encode_runs(runs: &[Run<'_>], p: &Params<'_>) -> Result<Option<Vec<u8>>, FilterError> {
    Ok(deflate_zeros::encode_runs(runs, level(p)?))
}

/// The compression level that client data state.
fn level(p: &Params<'_>) -> Result<u32, FilterError> {
    match *p.cd_values {
        [level @ 0..=9] => Ok(level),
        _ => Err(FilterError::corrupt(NAME, "client data must be one level of 0 to 9")),
    }
}

/// Inflates `input`.
pub fn decode(input: &[u8], p: &Params<'_>) -> Result<Vec<u8>, FilterError> {
    // An initialised buffer: flate2 would zero an uninitialised one on every call.
    let mut out = bounded::any(NAME, p.expected, p.limit)?;
    if let Ok(len) = INFLATE_WHOLE.with_borrow_mut(|d| d.zlib_decompress(input, &mut out)) {
        out.truncate(len);
        return Ok(out);
    }
    let len = INFLATE.with_borrow_mut(|z| {
        z.reset(true);
        inflate(z, input, &mut out, p.limit)
    })?;
    out.truncate(len);
    Ok(out)
}

/// Inflates to the start of `out`, which grows as needed; returns the number of bytes.
fn inflate(z: &mut Decompress, input: &[u8], out: &mut Vec<u8>, limit: usize) -> Result<usize, FilterError> {
    let position = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
    loop {
        let (consumed, produced) = (position(z.total_in()), position(z.total_out()));
        let rest = input.get(consumed..).unwrap_or_default();
        let room = out.get_mut(produced..).unwrap_or_default();
        let status = z
            .decompress(rest, room, FlushDecompress::Finish)
            .map_err(|e| FilterError::corrupt(NAME, e.message().unwrap_or("not a zlib stream").to_owned()))?;
        let now = position(z.total_out());
        if status == Status::StreamEnd {
            return Ok(now);
        }
        if now == out.len() {
            bounded::reserve(NAME, out, 1, limit)?;
            out.resize(out.capacity().min(limit), 0);
        } else if now == produced && position(z.total_in()) == consumed {
            return Err(FilterError::corrupt(NAME, "the stream ends early"));
        }
    }
}

/// Incremental inflation, for chunks that are not held in memory.
pub struct Stream(Decompress);

/// Result of one [`Stream::step`].
#[derive(Debug, Clone, Copy)]
pub struct Step {
    /// Input bytes used.
    pub consumed: usize,
    /// Output bytes written.
    pub produced: usize,
    /// True at the end of the stream.
    pub ended: bool,
}

impl Stream {
    /// Starts at the beginning of a zlib stream.
    pub fn new() -> Self {
        Stream(Decompress::new(true))
    }

    /// Inflates from `input` to `output` until either is exhausted.
    pub fn step(&mut self, input: &[u8], output: &mut [u8]) -> Result<Step, FilterError> {
        let (before_in, before_out) = (self.0.total_in(), self.0.total_out());
        let status = self
            .0
            .decompress(input, output, FlushDecompress::None)
            .map_err(|e| FilterError::corrupt(NAME, e.message().unwrap_or("not a zlib stream").to_owned()))?;
        let moved = |now: u64, before: u64| usize::try_from(now.saturating_sub(before)).unwrap_or(usize::MAX);
        Ok(Step {
            consumed: moved(self.0.total_in(), before_in),
            produced: moved(self.0.total_out(), before_out),
            ended: status == Status::StreamEnd,
        })
    }
}

impl Default for Stream {
    fn default() -> Self {
        Self::new()
    }
}
