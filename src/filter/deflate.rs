//! Filter 1, deflate: one zlib stream (RFC 1950). Client data: the compression level, 0 to 9, for the encoder.
//!
//! Bytes behind the stream are ignored, a truncated stream is corrupt: as H5Zdeflate.c does.
//!
//! A chunk of the expected size is inflated by libdeflate, a fifth faster on such data than
//! zlib-rs, which does the rest: streams that are longer than expected, corrupt or in pieces.
//!
//! Whole chunks are deflated by libdeflate. A level stands for a size: it is the least of libdeflate's with which scientific
//! data become, in the mean, no larger than with zlib's level, which is what other programs that write the dataset use.

use super::{FilterError, Params, bounded};
use flate2::{Decompress, FlushDecompress, Status};
use libdeflater::{CompressionLvl, Compressor, Decompressor};
use std::cell::RefCell;

const NAME: &str = "deflate";

thread_local! {
    /// Inflate state (tables and window), reused by every chunk of a thread.
    static INFLATE: RefCell<Decompress> = RefCell::new(Decompress::new(true));
    /// The same for whole streams.
    static WHOLE: RefCell<Decompressor> = RefCell::new(Decompressor::new());
    /// The last used level with its tables, reused by every chunk of a thread.
    static DEFLATE: RefCell<Option<(u32, Compressor)>> = const { RefCell::new(None) };
}

/// Deflates `input`; never declines: what does not shrink is stored a little longer, as H5Zdeflate.c does.
///
/// # Errors
/// [`FilterError::Corrupt`] if the client data are not one level of 0 to 9.
pub fn encode(input: &[u8], p: &Params<'_>) -> Result<Option<Vec<u8>>, FilterError> {
    let &[level @ 0..=9] = p.cd_values else {
        return Err(FilterError::corrupt(NAME, "client data must be one level of 0 to 9"));
    };
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

/// Inflates `input`.
pub fn decode(input: &[u8], p: &Params<'_>) -> Result<Vec<u8>, FilterError> {
    // Initialised bytes: flate2 clears the others first, at each call.
    let mut out = bounded::any(NAME, p.expected, p.limit)?;
    if let Ok(len) = WHOLE.with_borrow_mut(|d| d.zlib_decompress(input, &mut out)) {
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

/// Bytes inflated into the front of `out`, which grows when it must.
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

/// A stream inflated in pieces, for chunks that do not go into memory.
pub struct Stream(Decompress);

/// What one step did.
#[derive(Debug, Clone, Copy)]
pub struct Step {
    /// Input bytes used.
    pub consumed: usize,
    /// Output bytes written.
    pub produced: usize,
    /// The stream is at its end.
    pub ended: bool,
}

impl Stream {
    /// At the beginning of a zlib stream.
    pub fn new() -> Self {
        Stream(Decompress::new(true))
    }

    /// Inflates from `input` to the front of `output` as far as either goes.
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
