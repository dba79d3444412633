//! The header of a `.npy` file (numpy.lib.format, versions 1.0 to 3.0), as it comes.
//!
//! ```text
//! "\x93NUMPY" | major u8 | minor u8 | length u16 (1.0) or u32 | dictionary | spaces
//! ```
//!
//! The dictionary is `{'descr': ..., 'fortran_order': ..., 'shape': (...)}`.

use super::node::{Fields, Node};
use super::{datatype, invalid, not_supported, shown};
use crate::base::datatype::Datatype;
use crate::base::{Result, limits};
use crate::present::npy_descr;

const MAGIC: &[u8] = b"\x93NUMPY";
/// Longest dictionary, bytes.
const DICT_MAX: u64 = 1 << 20;

/// What a `.npy` file holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NpyHeader {
    len: usize,
    datatype: Datatype,
    dims: Vec<u64>,
    fortran: bool,
    data_len: u64,
}

impl NpyHeader {
    /// The header that `bytes` begin with; `None` if it goes on behind them.
    pub fn parse(bytes: &[u8]) -> Result<Option<NpyHeader>> {
        let n = bytes.len().min(MAGIC.len());
        if bytes.get(..n) != MAGIC.get(..n) {
            return Err(invalid("the file does not begin as a .npy file does"));
        }
        let Some(major) = bytes.get(6) else { return Ok(None) };
        let width = match major {
            1 => 2usize,
            2 | 3 => 4,
            other => return Err(not_supported(format!("version {other} of the .npy format"))),
        };
        let start = 8usize.saturating_add(width);
        let Some(field) = bytes.get(8..start) else { return Ok(None) };
        let dict = field.iter().rev().fold(0u64, |n, b| n << 8 | u64::from(*b));
        if dict > DICT_MAX {
            return Err(invalid(format!("a .npy header of {dict} bytes")));
        }
        let len = start.saturating_add(usize::try_from(dict).unwrap_or(usize::MAX));
        let Some(text) = bytes.get(start..len) else { return Ok(None) };
        // Version 1 and 2 are in Latin-1.
        let utf8: Vec<u8>;
        let text = if *major < 3 && !text.is_ascii() {
            utf8 = text.iter().map(|b| char::from(*b)).collect::<String>().into_bytes();
            utf8.as_slice()
        } else {
            text
        };
        Self::of(&Node::parse(text)?, len).map(Some)
    }

    fn of(node: &Node, len: usize) -> Result<NpyHeader> {
        let fields = Fields::new("a .npy header", node, &["descr", "fortran_order", "shape"])?;
        let descr = fields.need("descr")?;
        elsewhere(descr, 0)?;
        let datatype = datatype::from_node(descr, 8)?;
        if npy_descr(&datatype).is_none() {
            return Err(not_supported("elements for which numpy has no notation"));
        }
        let dims: Vec<u64> = fields.need("shape")?.array("shape")?.iter().map(|d| d.unsigned("a dimension")).collect::<Result<_>>()?;
        if dims.len() > limits::RANK_MAX {
            return Err(invalid(format!("more than {} dimensions", limits::RANK_MAX)));
        }
        let Node::Bool(fortran) = *fields.need("fortran_order")? else { return Err(invalid("fortran_order is True or False")) };
        let data_len = dims.iter().try_fold(datatype.element_size(), |n, d| n.checked_mul(*d)).filter(|n| i64::try_from(*n).is_ok());
        let data_len = data_len.ok_or_else(|| invalid("an array larger than a file can be"))?;
        // The order of the dimensions matters only where two have more than one index.
        let fortran = fortran && dims.iter().filter(|d| **d > 1).count() > 1;
        Ok(NpyHeader { len, datatype, dims, fortran, data_len })
    }

    /// Its length, bytes.
    pub fn header_len(&self) -> usize {
        self.len
    }

    /// Length of the data after it, bytes.
    pub fn data_len(&self) -> u64 {
        self.data_len
    }

    /// Length of an element, bytes.
    pub fn datatype_len(&self) -> u64 {
        self.datatype.element_size()
    }

    /// Type of the elements.
    pub fn datatype(&self) -> &Datatype {
        &self.datatype
    }

    /// Dimensions.
    pub fn dims(&self) -> &[u64] {
        &self.dims
    }

    /// The first index is that which changes fastest.
    pub fn is_fortran(&self) -> bool {
        self.fortran
    }

    /// How numpy notes the elements, and the shape with the dimensions of elements that are arrays.
    pub fn notation(&self) -> (String, Vec<u64>) {
        let descr = npy_descr(&self.datatype);
        let more: Vec<u64> = descr.iter().flat_map(|d| d.dims.iter().map(|d| u64::from(*d))).collect();
        (descr.map(|d| d.descr).unwrap_or_default(), [self.dims.as_slice(), &more].concat())
    }

    /// `data`, in which the first index changes fastest, with the last one changing fastest: bytes
    /// from `from` on, at most `most`, whole elements.
    pub fn transposed(&self, data: &[u8], from: u64, most: usize) -> Vec<u8> {
        let size = usize::try_from(self.datatype.element_size()).unwrap_or(0).max(1);
        let mut out = Vec::with_capacity(most.min(data.len()));
        let stride = |i: usize| self.dims.iter().take(i).fold(1u64, |n, d| n.saturating_mul(*d));
        let strides: Vec<(u64, u64)> = self.dims.iter().enumerate().map(|(i, d)| (*d, stride(i))).rev().collect();
        let mut at = from / size as u64;
        while out.len().saturating_add(size) <= most && at.saturating_mul(size as u64) < self.data_len {
            // The indices of element `at`, last dimension first, give its place in the other order.
            let (mut rest, mut place) = (at, 0u64);
            for (d, stride) in &strides {
                let index = rest.checked_rem(*d).unwrap_or(0);
                rest = rest.checked_div(*d).unwrap_or(0);
                place = place.saturating_add(index.saturating_mul(*stride));
            }
            let start = usize::try_from(place).ok().and_then(|p| p.checked_mul(size));
            let element = start.and_then(|s| data.get(s..s.checked_add(size)?));
            match element {
                Some(bytes) => out.extend_from_slice(bytes),
                None => out.resize(out.len().saturating_add(size), 0),
            }
            at = at.saturating_add(1);
        }
        out
    }
}

/// Refuses what numpy holds and HDF5 does not, with a reason.
fn elsewhere(descr: &Node, depth: usize) -> Result<()> {
    match descr {
        Node::String(s) => match s.strip_prefix(b"<").or(s.strip_prefix(b">")).or(s.strip_prefix(b"|")).unwrap_or(s).first() {
            Some(b'U') => {
                Err(not_supported(format!("elements {}: HDF5 has no strings of 4-byte characters; numpy.char.encode makes |S", shown(s))))
            }
            Some(b'O') => Err(not_supported("elements that are Python objects")),
            _ => Ok(()),
        },
        Node::Array(items) if depth < limits::DATATYPE_DEPTH_MAX => {
            let mut parts = items.iter().filter_map(|item| if let Node::Array(field) = item { field.get(1) } else { None });
            parts.try_for_each(|t| elsewhere(t, depth.saturating_add(1)))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(version: u8, dict: &str) -> Vec<u8> {
        let width = if version == 1 { 2 } else { 4 };
        [MAGIC, &[version, 0], &(dict.len() as u32).to_le_bytes()[..width], dict.as_bytes()].concat()
    }

    #[test]
    fn headers_as_numpy_writes_them() {
        for version in [1, 2, 3] {
            let whole = file(version, "{'descr': '<f8', 'fortran_order': False, 'shape': (3, 4), }      \n");
            for n in 0..whole.len() {
                assert_eq!(NpyHeader::parse(&whole[..n]).unwrap(), None, "{n}");
            }
            let h = NpyHeader::parse(&[whole.as_slice(), b"data"].concat()).unwrap().unwrap();
            assert_eq!((h.header_len(), h.data_len(), h.dims(), h.is_fortran()), (whole.len(), 96, &[3, 4][..], false));
            assert_eq!(h.notation(), ("'<f8'".into(), vec![3, 4]));
        }
        let of = |descr: &str, shape: &str| {
            NpyHeader::parse(&file(1, &format!("{{'descr': {descr}, 'fortran_order': True, 'shape': {shape}}}")))
        };
        let record = of("[('a', '<i4'), ('', '|V4'), ('b', '>f8', (2, 3))]", "(1, 5)").unwrap().unwrap();
        assert_eq!((record.data_len(), record.is_fortran()), (280, false));
        assert_eq!(record.notation().0, "[('a', '<i4'), ('', '|V4'), ('b', '>f8', (2, 3))]");
        assert_eq!(of("'|b1'", "()").unwrap().unwrap().data_len(), 1);
        for (descr, shape, errno) in [
            ("'<U3'", "(1,)", libc::EOPNOTSUPP),
            ("'|O'", "(1,)", libc::EOPNOTSUPP),
            ("[('a', '<U3')]", "(1,)", libc::EOPNOTSUPP),
            ("'<f9'", "(1,)", libc::EINVAL),
            ("'<f8'", "(-1,)", libc::EINVAL),
            ("'<f8'", "(4294967296, 4294967296)", libc::EINVAL),
            ("5", "(1,)", libc::EINVAL),
        ] {
            let error = of(descr, shape).unwrap_err();
            assert!(matches!(error, crate::base::Error::Refused { errno: e, .. } if e == errno), "{descr}: {error}");
        }
    }

    #[test]
    fn no_bytes_make_it_panic() {
        let whole = file(1, "{'descr': [('a', '<i4'), ('b', '|S3')], 'fortran_order': True, 'shape': (3, 4), }\n");
        for i in 0..whole.len() {
            for bit in 0..8 {
                let mut bytes = whole.clone();
                bytes[i] ^= 1 << bit;
                let _ = NpyHeader::parse(&bytes);
            }
        }
    }

    #[test]
    fn the_other_order() {
        let h = NpyHeader::parse(&file(1, "{'descr': '|u1', 'fortran_order': True, 'shape': (2, 3)}")).unwrap().unwrap();
        let data = [0, 10, 1, 11, 2, 12];
        assert_eq!(h.transposed(&data, 0, 100), [0, 1, 2, 10, 11, 12]);
        assert_eq!(h.transposed(&data, 2, 3), [2, 10, 11]);
        assert_eq!(h.transposed(&data[..3], 3, 100), [10, 0, 0]);
    }
}
