//! Header of a `.npy` file (numpy.lib.format, versions 1.0 to 3.0).
//!
//! ```text
//! "\x93NUMPY" | major | minor | header length u16 (1.0) or u32 | Python dict, spaces, newline
//! ```
//! The whole is a multiple of 64 bytes, so that the data that follow can be mapped.

use super::npy_descr;
use crate::base::Result;
use crate::connector::{Connector, DatasetInfo, ObjectId, Shape};

const ALIGN: usize = 64;
/// Digits of the first dimension that there is room for.
const ROWS_DIGITS: usize = 21;

/// The `.npy` header of the dataset `id`; `None` when numpy has no notation for its elements or it
/// holds none by nature.
pub fn npy_header(connector: &dyn Connector, id: ObjectId) -> Result<Option<Vec<u8>>> {
    Ok(header(&connector.dataset(id)?))
}

fn header(dataset: &DatasetInfo) -> Option<Vec<u8>> {
    if dataset.shape == Shape::Null || dataset.datatype.contains_vlen() {
        return None;
    }
    let (descr, dims) = notation(dataset)?;
    Some(build(&descr, &dims))
}

/// How numpy notes the elements of `dataset`, and the shape with the dimensions of its elements.
pub(super) fn notation(dataset: &DatasetInfo) -> Option<(String, Vec<u64>)> {
    let descr = npy_descr(&dataset.datatype)?;
    let dims = dataset.shape.dims().unwrap_or_default().iter().copied().chain(descr.dims.iter().map(|d| u64::from(*d)));
    Some((descr.descr, dims.collect()))
}

/// The `.npy` header of an array of `dims` whose elements numpy notes as `descr`.
pub fn build(descr: &str, dims: &[u64]) -> Vec<u8> {
    let shape: Vec<String> = dims.iter().map(u64::to_string).collect();
    // A tuple of one needs its comma.
    let comma = if dims.len() == 1 { "," } else { "" };
    let mut dict = format!("{{'descr': {descr}, 'fortran_order': False, 'shape': ({}{comma}), }}", shape.join(", "));
    // As numpy, so that what it wrote is as long when it is read: room for any number of rows.
    let room = dims.first().map_or(0, |rows| ROWS_DIGITS.saturating_sub(rows.to_string().len()));
    dict.push_str(&" ".repeat(room));
    let (major, width) = match (dict.is_ascii(), dict.len()) {
        (false, _) => (3u8, 4usize),
        (true, n) if n > 60_000 => (2, 4),
        _ => (1, 2),
    };
    let fixed = 8usize.saturating_add(width);
    let unpadded = fixed.saturating_add(dict.len()).saturating_add(1);
    // At least one, as numpy.
    let pad = ALIGN.saturating_sub(unpadded % ALIGN);
    let len = dict.len().saturating_add(pad).saturating_add(1);
    let mut out = b"\x93NUMPY".to_vec();
    out.extend_from_slice(&[major, 0]);
    out.extend_from_slice(len.to_le_bytes().get(..width).unwrap_or_default());
    out.extend_from_slice(dict.as_bytes());
    out.resize(out.len().saturating_add(pad), b' ');
    out.push(b'\n');
    out
}

#[cfg(test)]
mod tests {
    use super::build;

    #[test]
    fn aligned_and_as_numpy_writes_it() {
        // numpy.lib.format.write_array_header_1_0 of an array of shape (3,), dtype '<f8'.
        let h = build("'<f8'", &[3]);
        assert_eq!(h.len() % 64, 0);
        assert!(h.starts_with(b"\x93NUMPY\x01\0v\0{'descr': '<f8', 'fortran_order': False, 'shape': (3,), }"));
        let h = build("'<f8'", &[3, 4]);
        assert!(h.starts_with(b"\x93NUMPY\x01\0v\0{'descr': '<f8', 'fortran_order': False, 'shape': (3, 4), }"));
        assert!(build("'<i4'", &[]).windows(13).any(|w| w == b"'shape': (), "));
        assert_eq!(build(&"x".repeat(70_000), &[1]).get(6), Some(&2));
        assert_eq!(build("[('\u{e9}', '<i4')]", &[1]).get(6), Some(&3));
    }
}
