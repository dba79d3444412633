//! Output buffers whose size the input cannot dictate.
//!
//! A filter starts with the expected size and grows towards `Params::limit` only while it
//! really produces bytes. Memory is asked for fallibly: a refusal is an error, not an abort.

use super::FilterError;
use crate::base::buffers;

/// Up to this size zero bytes come untouched from the system; a larger buffer may be refused, and is asked
/// for in a way that can fail.
const UNTOUCHED: usize = 16 << 20;
/// Least capacity after growing, bytes (the limit permitting).
const GROWTH_MIN: usize = 4096;

/// An empty buffer with room for `wanted` bytes, at most `limit`.
pub(super) fn buffer(filter: &'static str, wanted: usize, limit: usize) -> Result<Vec<u8>, FilterError> {
    let wanted = wanted.min(limit);
    // A decoded chunk is charged by its length: its buffer must not be much larger.
    if let Some(mut spare) = buffers::take(wanted, wanted.saturating_add(wanted / 16)) {
        spare.clear();
        return Ok(spare);
    }
    let mut out = Vec::new();
    out.try_reserve_exact(wanted).map_err(|_| FilterError::TooLarge { filter, limit })?;
    Ok(out)
}

/// A buffer of exactly `len` zero bytes; more than `limit` is refused.
pub(super) fn zeroed(filter: &'static str, len: usize, limit: usize) -> Result<Vec<u8>, FilterError> {
    if len > limit {
        return Err(FilterError::TooLarge { filter, limit });
    }
    if len <= UNTOUCHED {
        return Ok(vec![0; len]);
    }
    let mut out = buffer(filter, len, limit)?;
    out.resize(len, 0);
    Ok(out)
}

/// A buffer of `len` bytes of any content, at most `limit`, to be overwritten.
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

/// Makes room for `additional` more bytes, doubling but never beyond `limit` bytes in all.
pub(super) fn reserve(filter: &'static str, out: &mut Vec<u8>, additional: usize, limit: usize) -> Result<(), FilterError> {
    let too_large = || FilterError::TooLarge { filter, limit };
    let need = out.len().checked_add(additional).filter(|&n| n <= limit).ok_or_else(too_large)?;
    if need <= out.capacity() {
        return Ok(());
    }
    let capacity = out.capacity().saturating_mul(2).max(GROWTH_MIN).clamp(need, limit);
    out.try_reserve_exact(capacity.saturating_sub(out.len())).map_err(|_| too_large())
}

/// The encoded `out` in no more memory than about its length: buffers are made for the worst case.
pub(super) fn fitted(mut out: Vec<u8>) -> Vec<u8> {
    if out.capacity() / 8 > out.len() / 7 {
        out.shrink_to_fit();
    }
    out
}

/// A copy of `input`, for filters that leave the bytes as they are.
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
