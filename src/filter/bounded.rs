//! Output buffers whose size the input cannot dictate.
//!
//! A filter starts with the expected size and grows towards `Params::limit` only while it
//! really produces bytes. Memory is asked for fallibly: a refusal is an error, not an abort.

use super::FilterError;

/// Least capacity after growing, bytes (the limit permitting).
const GROWTH_MIN: usize = 4096;

/// An empty buffer with room for `wanted` bytes, at most `limit`.
pub(super) fn buffer(filter: &'static str, wanted: usize, limit: usize) -> Result<Vec<u8>, FilterError> {
    let mut out = Vec::new();
    out.try_reserve_exact(wanted.min(limit)).map_err(|_| FilterError::TooLarge { filter, limit })?;
    Ok(out)
}

/// A buffer of exactly `len` zero bytes; more than `limit` is refused.
pub(super) fn zeroed(filter: &'static str, len: usize, limit: usize) -> Result<Vec<u8>, FilterError> {
    if len > limit {
        return Err(FilterError::TooLarge { filter, limit });
    }
    let mut out = buffer(filter, len, limit)?;
    out.resize(len, 0);
    Ok(out)
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

/// A copy of `input`, for filters that leave the bytes as they are.
pub(super) fn copy(filter: &'static str, input: &[u8], limit: usize) -> Result<Vec<u8>, FilterError> {
    let mut out = Vec::new();
    reserve(filter, &mut out, input.len(), limit)?;
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
