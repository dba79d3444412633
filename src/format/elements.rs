//! Array elements of equal size with a checksum: a page of a fixed or extensible array.
//!
//! ```text
//! n x element | checksum
//! ```
//!
//! Elements are opaque here: the array's client defines their content (H5.format.4.0, "Fixed Array
//! Data Block Page", "Extensible Array Data Block Page").

use super::{Context, Reader, Writer};
use crate::base::{Address, Error, Result, limits};

/// Size of a checksum, bytes.
pub const CHECKSUM: usize = 4;

/// Encoded elements of one block or page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Elements {
    element_size: u8,
    bytes: Vec<u8>,
}

impl Elements {
    /// Reads `count` elements of `element_size` bytes from `r`.
    pub fn decode(r: &mut Reader<'_>, count: usize, element_size: u8) -> Result<Self> {
        let n = count.checked_mul(usize::from(element_size)).ok_or_else(|| r.corrupt(format!("{count} elements")))?;
        Ok(Elements { element_size, bytes: r.bytes(n)?.to_vec() })
    }

    /// Returns `count` elements without a chunk: an undefined address, then zeros.
    ///
    /// Errors: elements shorter than an address; more bytes than one metadata block may have.
    pub fn blank(count: u64, element_size: u8, ctx: &Context, structure: &'static str, address: Address) -> Result<Self> {
        let width = usize::from(ctx.sizeof_addr);
        let Some(rest) = usize::from(element_size).checked_sub(width) else {
            return Err(Error::corrupt(structure, address, format!("elements of {element_size} bytes, addresses of {width}")));
        };
        let bytes = count.checked_mul(u64::from(element_size)).filter(|&n| n <= limits::METADATA_BLOCK_MAX);
        let n = bytes.and_then(|_| usize::try_from(count).ok());
        let n = n.ok_or_else(|| Error::limit(structure, address, format!("{count} elements of {element_size} bytes in one block")))?;
        let mut element = vec![0xff; width];
        element.resize(width.saturating_add(rest), 0);
        Ok(Elements { element_size, bytes: element.repeat(n) })
    }

    /// Appends the elements to `w`.
    pub fn encode(&self, w: &mut Writer) {
        w.bytes(&self.bytes);
    }

    /// Decodes a page: `count` elements and their checksum, in all of `buf`.
    pub fn decode_page(buf: &[u8], structure: &'static str, address: Address, count: usize, element_size: u8) -> Result<Self> {
        let mut r = Reader::new(buf, structure, address);
        let page = Self::decode(&mut r, count, element_size)?;
        r.checksum()?;
        Ok(page)
    }

    /// Encodes a page with its checksum.
    pub fn encode_page(&self) -> Vec<u8> {
        let mut w = Writer::new();
        self.encode(&mut w);
        w.checksum();
        w.into_bytes()
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.bytes.len().checked_div(usize::from(self.element_size)).unwrap_or(0)
    }

    /// Size of one element, bytes.
    pub fn element_size(&self) -> u8 {
        self.element_size
    }

    /// Size of all elements, bytes.
    pub fn byte_len(&self) -> usize {
        self.bytes.len()
    }

    /// Returns encoded element `i`.
    pub fn get(&self, i: usize) -> Option<&[u8]> {
        let size = usize::from(self.element_size);
        let from = i.checked_mul(size)?;
        self.bytes.get(from..from.checked_add(size)?)
    }

    /// Replaces element `i`; false when there is no such element or its size differs.
    pub fn set(&mut self, i: usize, element: &[u8]) -> bool {
        let size = usize::from(self.element_size);
        let range = i.checked_mul(size).and_then(|from| Some(from..from.checked_add(size)?));
        match range.and_then(|r| self.bytes.get_mut(r)) {
            Some(slot) if slot.len() == element.len() => {
                slot.copy_from_slice(element);
                true
            }
            _ => false,
        }
    }
}

/// Bit `i` of a page initialisation bitmap, counted from the most significant bit of the first
/// byte.
pub fn page_bit(bitmap: &[u8], i: u64) -> bool {
    let byte = usize::try_from(i / 8).ok().and_then(|b| bitmap.get(b));
    byte.is_some_and(|b| b & (0x80 >> (i % 8)) != 0)
}

/// The first set bit in `from..end` of a page initialisation bitmap.
pub fn next_page_bit(bitmap: &[u8], from: u64, end: u64) -> Option<u64> {
    let mut at = from;
    while at < end {
        let byte = *bitmap.get(usize::try_from(at / 8).ok()?)?;
        let rest = byte & (0xff >> (at % 8));
        if rest != 0 {
            let found = (at / 8).saturating_mul(8).saturating_add(u64::from(rest.leading_zeros()));
            return (found < end).then_some(found);
        }
        at = (at / 8).saturating_add(1).saturating_mul(8);
    }
    None
}

/// Number of set bits in `from..end` of a page initialisation bitmap.
pub fn count_page_bits(bitmap: &[u8], from: u64, end: u64) -> u64 {
    let first = from / 8;
    let of = |n: u64| usize::try_from(n).unwrap_or(usize::MAX).min(bitmap.len());
    let bytes = bitmap.get(of(first)..of(end.div_ceil(8))).unwrap_or_default();
    let count = |(at, byte): (u64, &u8)| {
        let after = 0xffu16 >> from.saturating_sub(at.saturating_mul(8)).min(8);
        let before = 0xff00u16 >> end.saturating_sub(at.saturating_mul(8)).min(8);
        u64::from((u16::from(*byte) & after & before).count_ones())
    };
    (first..).zip(bytes).map(count).sum()
}

/// Sets bit `i` of a page initialisation bitmap; false when it is out of range.
pub fn set_page_bit(bitmap: &mut [u8], i: u64) -> bool {
    let byte = usize::try_from(i / 8).ok().and_then(|b| bitmap.get_mut(b));
    byte.map(|b| *b |= 0x80 >> (i % 8)).is_some()
}

/// Size of a bitmap of `pages` bits, bytes.
pub fn bitmap_size(pages: u64) -> u64 {
    pages.div_ceil(8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_count_from_the_high_end() {
        assert!(page_bit(&[0x80, 0x01], 0) && page_bit(&[0x80, 0x01], 15));
        assert!(!page_bit(&[0x80, 0x01], 1) && !page_bit(&[0x80, 0x01], 16) && !page_bit(&[], u64::MAX));
        let mut bits = [0u8; 2];
        assert!(set_page_bit(&mut bits, 0) && set_page_bit(&mut bits, 15) && !set_page_bit(&mut bits, 16));
        assert_eq!(bits, [0x80, 0x01]);
        assert_eq!((bitmap_size(0), bitmap_size(8), bitmap_size(9)), (0, 1, 2));
    }

    #[test]
    fn blank_elements_and_changes() {
        let ctx = &Context { sizeof_addr: 2, sizeof_size: 4 };
        let blank = |count, size| Elements::blank(count, size, ctx, "x", Address(0));
        let mut e = blank(2, 3).unwrap();
        assert!(e.set(1, &[1, 2, 3]) && !e.set(2, &[1, 2, 3]) && !e.set(0, &[1]) && !e.set(usize::MAX, &[1, 2, 3]));
        assert_eq!(e.bytes, [0xff, 0xff, 0, 1, 2, 3]);
        assert!(blank(1, 1).is_err() && blank(1 << 40, 2).is_err() && blank(u64::MAX, 255).is_err());
    }

    #[test]
    fn page_round_trip_and_damage() {
        let mut w = Writer::new();
        w.bytes(&[1, 2, 3, 4, 5, 6]).checksum();
        let b = w.into_bytes();
        let page = Elements::decode_page(&b, "page", Address(0), 3, 2).unwrap();
        assert_eq!((page.len(), page.get(1), page.get(3)), (3, Some(&[3, 4][..]), None));
        assert_eq!(page.encode_page(), b);
        for i in 0..b.len() {
            let mut bad = b.clone();
            bad[i] ^= 1;
            assert!(Elements::decode_page(&bad, "page", Address(0), 3, 2).is_err());
            assert!(Elements::decode_page(&b[..i], "page", Address(0), 3, 2).is_err());
        }
    }

    #[test]
    fn bits_are_found_and_counted() {
        let bitmap = [0x00, 0x41, 0x00, 0x00, 0x80, 0xff];
        let set: Vec<u64> = (0..48).filter(|&i| page_bit(&bitmap, i)).collect();
        for from in 0..50 {
            for end in 0..50 {
                let mut inside = set.iter().copied().filter(|i| (from..end).contains(i));
                assert_eq!(count_page_bits(&bitmap, from, end), inside.clone().count() as u64, "{from}..{end}");
                assert_eq!(next_page_bit(&bitmap, from, end), inside.next(), "{from}..{end}");
            }
        }
        assert_eq!((next_page_bit(&bitmap, u64::MAX - 1, u64::MAX), count_page_bits(&bitmap, 44, u64::MAX)), (None, 4));
    }
}
