//! What an extent must be to become that of a dataset, in any kind of container.

use super::errors::invalid;
use crate::base::shape::Shape;
use crate::base::{Error, Result};

/// Longest dataset, bytes: a file that long is the largest.
const BYTES_MAX: u64 = i64::MAX as u64;

/// Checks the extent `next` of a dataset of the shape `shape`, with elements of `element_size`
/// bytes; false: it has that. `resizes`: its storage takes another extent. Errors: as
/// [`super::edit::Edit::set_extent`].
pub(super) fn check_extent(shape: &Shape, element_size: u64, resizes: bool, next: &[u64]) -> Result<bool> {
    let (now, max) = (shape.dims().unwrap_or_default(), shape.max());
    if now.is_empty() {
        return Err(Error::refused(libc::EPERM, "a dataset without dimensions has one size"));
    }
    if next.len() != now.len() {
        let reason = format!("the dataset has {} dimensions: user.h5dir.reshape gives its bytes another shape", now.len());
        return Err(invalid(reason));
    }
    if next.iter().zip(&max).any(|(n, max)| max.is_some_and(|max| *n > max)) {
        let shown: Vec<String> = max.iter().map(|n| n.map_or("null".into(), |n| n.to_string())).collect();
        let reason = format!("the dataset grows to user.h5dir.maxshape at most, [{}]; that can be set", shown.join(","));
        return Err(Error::refused(libc::EFBIG, reason));
    }
    let bytes = if next.contains(&0) { Some(0) } else { next.iter().try_fold(element_size, |n, d| n.checked_mul(*d)) };
    if bytes.is_none_or(|n| n > BYTES_MAX) {
        return Err(Error::refused(libc::EFBIG, "larger than a file can be"));
    }
    if now != next && !resizes {
        let reason = "the storage of the dataset has one size: set user.h5dir.layout to chunked and user.h5dir.maxshape first";
        return Err(Error::refused(libc::EPERM, reason));
    }
    Ok(now != next)
}
