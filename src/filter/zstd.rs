//! Filter 32015, Zstandard: one or more zstd frames (RFC 8878). Client data: the level, for the
//! encoder.

use super::{FilterError, Params, bounded};
use std::cell::RefCell;
use zstd::zstd_safe::{self, CCtx, DCtx};

const NAME: &str = "zstd";

thread_local! {
    /// Decompression context, reused by every chunk of a thread.
    static DECOMPRESSION: RefCell<Option<DCtx<'static>>> = const { RefCell::new(None) };
    /// Compression context, reused by every chunk of a thread.
    static COMPRESSION: RefCell<Option<CCtx<'static>>> = const { RefCell::new(None) };
}

/// Level when the client data state none.
const DEFAULT_LEVEL: i32 = 3;

/// Level from the client data; like the plug-in, clamps values out of range.
pub(super) fn level(value: Option<u32>) -> i32 {
    value.map_or(DEFAULT_LEVEL, |v| i32::try_from(v).unwrap_or(1).clamp(1, zstd_safe::max_c_level()))
}

/// Compresses `input` into `out`, which must have space for the worst case; returns the length.
pub(super) fn compress_into(input: &[u8], out: &mut [u8], level: i32) -> Result<usize, FilterError> {
    COMPRESSION.with_borrow_mut(|context| {
        if context.is_none() {
            *context = CCtx::try_create();
        }
        let context = context.as_mut().ok_or(FilterError::TooLarge { filter: NAME, limit: out.len() })?;
        context.compress(out, input, level).map_err(named)
    })
}

/// Compresses into one frame; never declines.
pub fn encode(input: &[u8], p: &Params<'_>) -> Result<Option<Vec<u8>>, FilterError> {
    let bound = zstd_safe::compress_bound(input.len());
    let mut out = bounded::any(NAME, bound, bound)?;
    let len = compress_into(input, &mut out, level(p.cd_values.first().copied()))?;
    out.truncate(len);
    Ok(Some(bounded::fitted(out)))
}

/// Sum of the content sizes of all frames; `None` when a frame does not state its size.
fn content_size(mut input: &[u8]) -> Result<Option<u64>, FilterError> {
    let mut sum = 0u64;
    while !input.is_empty() {
        let len = zstd_safe::find_frame_compressed_size(input).map_err(named)?;
        let (frame, rest) = input.split_at_checked(len.max(1)).ok_or_else(|| FilterError::corrupt(NAME, "a frame ends early"))?;
        match zstd_safe::get_frame_content_size(frame) {
            Ok(Some(size)) => sum = sum.saturating_add(size),
            Ok(None) => return Ok(None),
            Err(_) => return Err(FilterError::corrupt(NAME, "a frame header is damaged")),
        }
        input = rest;
    }
    Ok(Some(sum))
}

/// Converts a zstd error code.
fn named(code: usize) -> FilterError {
    FilterError::corrupt(NAME, zstd_safe::get_error_name(code))
}

/// Decompresses all frames.
pub fn decode(input: &[u8], p: &Params<'_>) -> Result<Vec<u8>, FilterError> {
    let known = content_size(input)?;
    if known.is_some_and(|size| usize::try_from(size).map_or(true, |size| size > p.limit)) {
        return Err(FilterError::TooLarge { filter: NAME, limit: p.limit });
    }
    // One call decodes everything: unlike the streaming calls it needs no window, whose size the
    // frame dictates. Without a stated size, try the expected size first, then the limit.
    let first = known.and_then(|size| usize::try_from(size).ok()).unwrap_or(p.expected).min(p.limit);
    match attempt(input, first, p.limit) {
        Err(_) if known.is_none() && first < p.limit => attempt(input, p.limit, p.limit),
        result => result,
    }
}

/// Decompresses into a buffer of `room` bytes.
fn attempt(input: &[u8], room: usize, limit: usize) -> Result<Vec<u8>, FilterError> {
    let mut out = bounded::buffer(NAME, room, limit)?;
    DECOMPRESSION.with_borrow_mut(|context| {
        if context.is_none() {
            *context = DCtx::try_create();
        }
        let context = context.as_mut().ok_or(FilterError::TooLarge { filter: NAME, limit })?;
        context.decompress(&mut out, input).map_err(named)
    })?;
    if out.len() > limit {
        return Err(FilterError::TooLarge { filter: NAME, limit });
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_with_and_without_a_size() {
        let data: Vec<u8> = (0..3000u32).map(|i| (i / 7) as u8).collect();
        let sized = zstd_safe_compress(&data);
        let p = Params { cd_values: &[], expected: 3000, limit: 10_000 };
        assert_eq!(decode(&sized, &p).unwrap(), data);
        assert_eq!(decode(&[sized.clone(), sized.clone()].concat(), &p).unwrap(), data.repeat(2));
        // The streaming encoder does not know the size in advance.
        let unsized_frame = zstd::stream::encode_all(data.as_slice(), 1).unwrap();
        assert_eq!(decode(&unsized_frame, &p).unwrap(), data);
        assert_eq!(decode(&unsized_frame, &Params { expected: 10, ..p }).unwrap(), data);
        for frame in [&sized, &unsized_frame] {
            assert!(decode(frame, &Params { limit: 2999, ..p }).is_err());
        }
        assert!(decode(b"not zstd", &p).is_err());
        assert_eq!(decode(&[], &p).unwrap(), b"");
    }

    fn zstd_safe_compress(data: &[u8]) -> Vec<u8> {
        let mut out = Vec::with_capacity(zstd_safe::compress_bound(data.len()));
        zstd_safe::compress(&mut out, data, 3).unwrap();
        out
    }
}
