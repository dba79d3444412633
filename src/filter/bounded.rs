//! Output buffers with a size limit that hostile input cannot exceed.
//!
//! A filter starts with the expected size and grows towards `Params::limit` only while it produces
//! bytes. A failed allocation is an error, not an abort.

use super::FilterError;
use crate::base::buffers;

/// Larger buffers are allocated fallibly; up to this size, bytes, `calloc` supplies zero pages
/// untouched.
const CALLOC_BYTES_MAX: usize = 16 << 20;
/// Smallest capacity after growth, bytes (if the limit permits).
const GROWTH_MIN: usize = 4096;

/// Returns an empty buffer with capacity for `wanted` bytes, at most `limit`.
pub(super) fn buffer(filter: &'static str, wanted: usize, limit: usize) -> Result<Vec<u8>, FilterError> {
    let wanted = wanted.min(limit);
    // Caches charge a decoded chunk by its length: its buffer must not be much larger.
    if let Some(mut spare) = buffers::take(wanted, wanted.saturating_add(wanted / 16)) {
        spare.clear();
        return Ok(spare);
    }
    let mut out = Vec::new();
    out.try_reserve_exact(wanted).map_err(|_| FilterError::TooLarge { filter, limit })?;
    Ok(out)
}

/// Returns a buffer of exactly `len` zero bytes; an error if `len` exceeds `limit`.
pub(super) fn zeroed(filter: &'static str, len: usize, limit: usize) -> Result<Vec<u8>, FilterError> {
    if len > limit {
        return Err(FilterError::TooLarge { filter, limit });
    }
    if len <= CALLOC_BYTES_MAX {
        return Ok(vec![0; len]);
    }
    let mut out = buffer(filter, len, limit)?;
    out.resize(len, 0);
    Ok(out)
}

/// Returns a buffer of `len` bytes, at most `limit`, of arbitrary content for the caller to
/// overwrite.
pub(super) fn any(filter: &'static str, len: usize, limit: usize) -> Result<Vec<u8>, FilterError> {
    let len = len.min(limit);
    match buffers::take(len, len.saturating_add(len / 16)) {
        Some(mut spare) => {
            spare.resize(len, 0);
            Ok(spare)
        }
        None => zeroed(filter, len, limit),
    }
}

/// Reserves capacity for `additional` bytes by doubling, up to `limit` bytes in total.
pub(super) fn reserve(filter: &'static str, out: &mut Vec<u8>, additional: usize, limit: usize) -> Result<(), FilterError> {
    let too_large = || FilterError::TooLarge { filter, limit };
    let need = out.len().checked_add(additional).filter(|&n| n <= limit).ok_or_else(too_large)?;
    if need <= out.capacity() {
        return Ok(());
    }
    let capacity = out.capacity().saturating_mul(2).max(GROWTH_MIN).clamp(need, limit);
    out.try_reserve_exact(capacity.saturating_sub(out.len())).map_err(|_| too_large())
}

/// Shrinks `out` to about its length: buffers are allocated for the worst case.
pub(super) fn fitted(mut out: Vec<u8>) -> Vec<u8> {
    if out.capacity() / 8 > out.len() / 7 {
        out.shrink_to_fit();
    }
    out
}

/// Copies `input`, for filters that leave the bytes unchanged.
pub(super) fn copy(filter: &'static str, input: &[u8], limit: usize) -> Result<Vec<u8>, FilterError> {
    if input.len() > limit {
        return Err(FilterError::TooLarge { filter, limit });
    }
    let mut out = buffer(filter, input.len(), limit)?;
    out.extend_from_slice(input);
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn growth_stops_at_the_limit() {
        let mut out = buffer("f", 10, 100).unwrap();
        assert!((10..=100).contains(&out.capacity()));
        out.resize(10, 0);
        reserve("f", &mut out, 50, 100).unwrap();
        assert!((60..=100).contains(&out.capacity()));
        assert_eq!(reserve("f", &mut out, 91, 100), Err(FilterError::TooLarge { filter: "f", limit: 100 }));
        assert_eq!(reserve("f", &mut out, usize::MAX, 100), Err(FilterError::TooLarge { filter: "f", limit: 100 }));
        reserve("f", &mut out, 90, 100).unwrap();
        assert!(zeroed("f", 101, 100).is_err());
        assert!(copy("f", &[0; 101], 100).is_err());
        assert!(buffer("f", usize::MAX, usize::MAX).is_err());
    }
}
