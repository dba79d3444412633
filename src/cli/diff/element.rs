//! Which element a byte belongs to, and the text of an element.

use super::report::At;
use crate::cli::text;

/// Longest element that is shown, bytes.
pub(super) const ELEMENT_BYTES_MAX: u64 = 4096;

/// Elements of fixed size, from the facts of a dataset.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Elements {
    /// Size of one element, bytes.
    size: u64,
    /// Dimensions.
    shape: Vec<u64>,
    number: Option<Number>,
}

/// A type whose elements are shown as numbers.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Number {
    kind: u8,
    little: bool,
    size: usize,
}

impl Elements {
    /// Of the dataset of `bytes` bytes with these facts; `None` if elements have no fixed size.
    pub(super) fn new(dtype: &[u8], shape: &[u8], bytes: u64) -> Option<Elements> {
        let shape: Vec<u64> = serde_json::from_slice(shape).ok()?;
        let count = shape.iter().try_fold(1u64, |n, d| n.checked_mul(*d))?;
        let size = bytes.checked_div(count)?;
        if size == 0 || size.checked_mul(count) != Some(bytes) || has_sequence(dtype) {
            return None;
        }
        let number = Number::parse(dtype).filter(|n| n.size as u64 == size);
        Some(Elements { size, shape, number })
    }

    /// Size of one element, bytes.
    pub(super) fn size(&self) -> u64 {
        self.size
    }

    /// The coordinates of the element that has the byte `offset`.
    pub(super) fn at(&self, offset: u64) -> At {
        coordinates(offset.checked_div(self.size).unwrap_or(0), &self.shape)
    }

    /// The element `bytes` as text.
    pub(super) fn text(&self, bytes: &[u8]) -> String {
        self.number.and_then(|number| number.text(bytes)).unwrap_or_else(|| text::value(bytes))
    }
}

/// The coordinates of element `number` of a dataset of this shape.
pub(super) fn coordinates(number: u64, shape: &[u64]) -> At {
    let (mut rest, mut index) = (number, Vec::new());
    for dim in shape.iter().rev() {
        index.push(rest.checked_rem(*dim).unwrap_or(0));
        rest = rest.checked_div(*dim).unwrap_or(0);
    }
    index.reverse();
    At::Element(index)
}

/// True if elements of the type have variable length: their bytes are lines or have counts.
fn has_sequence(dtype: &[u8]) -> bool {
    let is = |part: &[u8]| dtype.windows(part.len()).any(|w| w == part);
    dtype == b"str" || is(b"H5T_VLEN") || is(b"H5T_VARIABLE")
}

impl Number {
    /// From numpy's notation, such as `<f8`.
    fn parse(dtype: &[u8]) -> Option<Number> {
        let text = std::str::from_utf8(dtype).ok()?;
        let mut chars = text.chars();
        let order = chars.next()?;
        let kind = u8::try_from(chars.next()?).ok()?;
        let size: usize = chars.as_str().parse().ok()?;
        let known = matches!((kind, size), (b'i' | b'u', 1 | 2 | 4 | 8) | (b'f', 4 | 8));
        (known && matches!(order, '<' | '>' | '|')).then_some(Number { kind, little: order != '>', size })
    }

    fn text(self, bytes: &[u8]) -> Option<String> {
        let mut wide = [0u8; 8];
        let place = wide.get_mut(..self.size)?;
        place.copy_from_slice(bytes.get(..self.size)?);
        if !self.little {
            place.reverse();
        }
        let raw = u64::from_le_bytes(wide);
        let shift = 64u32.saturating_sub(u32::try_from(self.size).ok()?.saturating_mul(8));
        Some(match (self.kind, self.size) {
            (b'u', _) => raw.to_string(),
            (b'i', _) => ((raw << shift).cast_signed() >> shift).to_string(),
            (b'f', 4) => format!("{:?}", f32::from_bits(u32::try_from(raw).ok()?)),
            _ => format!("{:?}", f64::from_bits(raw)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_belong_to_elements() {
        let e = Elements::new(b"<i4", b"[3,4]", 48).unwrap();
        assert_eq!((e.size(), e.at(0), e.at(7), e.at(47)), (4, At::Element(vec![0, 0]), At::Element(vec![0, 1]), At::Element(vec![2, 3])));
        assert_eq!(Elements::new(b"<f8", b"[]", 8).unwrap().at(3), At::Element(vec![]));
        for (dtype, shape, bytes) in [(&b"str"[..], &b"[2]"[..], 8), (b"<i4", b"[3]", 13), (b"<i4", b"null", 0), (b"<i4", b"[0]", 0)] {
            assert_eq!(Elements::new(dtype, shape, bytes), None);
        }
    }

    #[test]
    fn elements_are_numbers_or_bytes() {
        let text = |dtype: &str, bytes: &[u8]| Elements::new(dtype.as_bytes(), b"[1]", bytes.len() as u64).unwrap().text(bytes);
        assert_eq!(text("<i2", &(-2i16).to_le_bytes()), "-2");
        assert_eq!(text(">i8", &i64::MIN.to_be_bytes()), i64::MIN.to_string());
        assert_eq!(text("|u1", &[200]), "200");
        assert_eq!(text("|i1", &[200]), "-56");
        assert_eq!(text(">f4", &1.5f32.to_be_bytes()), "1.5");
        assert_eq!(text("<f8", &f64::NAN.to_le_bytes()), "NaN");
        assert_eq!(text("|S3", b"abc"), "abc");
        assert_eq!(text("<c8", &[0; 8]), "0x0000000000000000");
    }
}
