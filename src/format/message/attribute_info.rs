//! Attribute info message, type 0x0015, version 0: attribute storage of a version 2 object header
//! (H5.format.4.0, "The Attribute Info Message").
//!
//! ```text
//! version 0 | flags u8 | [maximum creation order u16] | fractal heap O | name index O |
//! [creation order index O]
//! flags: 0x01 creation order tracked (maximum present) |
//!        0x02 creation order indexed (its B-tree present)
//! ```
//!
//! An undefined heap address means that the attributes are messages of the object header.

use crate::base::{Address, Result};
use crate::format::{Context, Reader, Writer};

const NAME: &str = "attribute info message";
const VERSION: u8 = 0;
const TRACKED: u8 = 0x01;
const INDEXED: u8 = 0x02;

/// A decoded attribute info message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AttributeInfo {
    /// Creation order of the next attribute, when creation order is tracked.
    pub max_creation_order: Option<u16>,
    /// Fractal heap of dense storage; undefined: none.
    pub fractal_heap: Address,
    /// Version 2 B-tree (type 8) of names; undefined: none.
    pub name_index: Address,
    /// Version 2 B-tree (type 9) of creation order, when indexed.
    pub creation_index: Option<Address>,
}

impl AttributeInfo {
    /// Decodes the message at the start of `body`; ignores padding after it.
    pub fn decode(body: &[u8], ctx: &Context, address: Address) -> Result<Self> {
        let mut r = Reader::new(body, NAME, address);
        r.version(VERSION..=VERSION)?;
        let flags = r.u8()?;
        if flags & !(TRACKED | INDEXED) != 0 {
            return Err(r.corrupt(format!("flags are {flags:#04x}")));
        }
        let max_creation_order = if flags & TRACKED != 0 { Some(r.u16()?) } else { None };
        let fractal_heap = r.addr(ctx)?;
        let name_index = r.addr(ctx)?;
        let creation_index = if flags & INDEXED != 0 { Some(r.addr(ctx)?) } else { None };
        Ok(AttributeInfo { max_creation_order, fractal_heap, name_index, creation_index })
    }

    /// Encodes the exact bytes that `decode` reads, without padding.
    pub fn encode(&self, ctx: &Context) -> Result<Vec<u8>> {
        let tracked = if self.max_creation_order.is_some() { TRACKED } else { 0 };
        let indexed = if self.creation_index.is_some() { INDEXED } else { 0 };
        let mut w = Writer::new();
        w.u8(VERSION).u8(tracked | indexed);
        if let Some(order) = self.max_creation_order {
            w.u16(order);
        }
        w.addr(self.fractal_heap, ctx).addr(self.name_index, ctx);
        if let Some(index) = self.creation_index {
            w.addr(index, ctx);
        }
        Ok(w.into_bytes())
    }

    /// True when attributes are in the fractal heap.
    pub fn is_dense(&self) -> bool {
        self.fractal_heap.is_defined()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CTX: Context = Context::DEFAULT;

    #[test]
    fn known_answers_round_trip_and_truncation() {
        // The second by libhdf5 2.0.0: `attributes.h5` (tests/fixtures/groups/make_groups.py).
        let compact: &[u8] = b"\0\0\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff";
        let dense: &[u8] = b"\0\x03\r\0\xb4\x08\0\0\0\0\0\0F\t\0\0\0\0\0\0l\t\0\0\0\0\0\0";
        let want = AttributeInfo {
            max_creation_order: Some(13),
            fractal_heap: Address(0x8b4),
            name_index: Address(0x946),
            creation_index: Some(Address(0x96c)),
        };
        assert_eq!(AttributeInfo::decode(dense, &CTX, Address(0)).unwrap(), want);
        assert!(!AttributeInfo::decode(compact, &CTX, Address(0)).unwrap().is_dense());
        for b in [compact, dense] {
            assert_eq!(AttributeInfo::decode(b, &CTX, Address(0)).unwrap().encode(&CTX).unwrap(), b);
            for n in 0..b.len() {
                assert!(AttributeInfo::decode(&b[..n], &CTX, Address(0)).is_err(), "cut at {n}");
            }
        }
    }

    #[test]
    fn damage_is_an_error() {
        for b in [b"\x01\0", b"\0\x04", b"\0\x80"] {
            let b = [&b[..], &[0; 32]].concat();
            assert!(AttributeInfo::decode(&b, &CTX, Address(0)).is_err());
        }
    }
}
