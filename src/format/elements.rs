//! A run of equally long array elements with a checksum: a page of a fixed or extensible array.
//!
//! ```text
//! n x element | checksum
//! ```
//!
//! Elements are opaque here: the array's client says what they hold (H5.format.4.0, "Fixed Array
//! Data Block Page", "Extensible Array Data Block Page").

use super::{Reader, Writer};
use crate::base::{Address, Result};

/// Bytes of a checksum.
pub const CHECKSUM: usize = 4;

/// Encoded elements of one block or page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Elements {
    element_size: u8,
    bytes: Vec<u8>,
}

impl Elements {
    /// The next `count` elements of `element_size` bytes from `r`.
    pub fn decode(r: &mut Reader<'_>, count: usize, element_size: u8) -> Result<Self> {
        let n = count.checked_mul(usize::from(element_size)).ok_or_else(|| r.corrupt(format!("{count} elements")))?;
        Ok(Elements { element_size, bytes: r.bytes(n)?.to_vec() })
    }

    /// Writes the elements.
    pub fn encode(&self, w: &mut Writer) {
        w.bytes(&self.bytes);
    }

    /// Decodes a page: `count` elements and their checksum, all of `buf`.
    pub fn decode_page(buf: &[u8], structure: &'static str, address: Address, count: usize, element_size: u8) -> Result<Self> {
        let mut r = Reader::new(buf, structure, address);
        let page = Self::decode(&mut r, count, element_size)?;
        r.checksum()?;
        Ok(page)
    }

    /// The page `decode_page` read.
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

    /// True without elements.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Bytes of one element.
    pub fn element_size(&self) -> u8 {
        self.element_size
    }

    /// Bytes of all elements.
    pub fn byte_len(&self) -> usize {
        self.bytes.len()
    }

    /// Encoded element `i`.
    pub fn get(&self, i: usize) -> Option<&[u8]> {
        let size = usize::from(self.element_size);
        let from = i.checked_mul(size)?;
        self.bytes.get(from..from.checked_add(size)?)
    }
}

/// Bit `i` of a page initialisation bitmap: the first bit is the highest of the first byte.
pub fn page_bit(bitmap: &[u8], i: u64) -> bool {
    let byte = usize::try_from(i / 8).ok().and_then(|b| bitmap.get(b));
    byte.is_some_and(|b| b & (0x80 >> (i % 8)) != 0)
}

/// Bytes that hold a bitmap of `pages` bits.
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
        assert_eq!((bitmap_size(0), bitmap_size(8), bitmap_size(9)), (0, 1, 2));
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
}
