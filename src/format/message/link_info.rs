//! Link info message, type 0x0002, version 0: link storage of a new-style group (H5.format.4.0,
//! "The Link Info Message").
//!
//! ```text
//! version 0 | flags u8 | [maximum creation order i64] | fractal heap O | name index O |
//! [creation order index O]
//! flags: 0x01 creation order tracked (maximum present) |
//!        0x02 creation order indexed (its B-tree present)
//! ```
//!
//! An undefined heap address means compact storage: the links are messages of the same object
//! header.

use crate::base::{Address, Error, Result};
use crate::format::{Context, Reader, Writer};

const NAME: &str = "link info message";
const VERSION: u8 = 0;
const TRACKED: u8 = 0x01;
const INDEXED: u8 = 0x02;

/// A decoded link info message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinkInfo {
    /// Creation order of the next link, when creation order is tracked.
    pub max_creation_order: Option<i64>,
    /// Fractal heap of dense storage; undefined: compact.
    pub fractal_heap: Address,
    /// Version 2 B-tree (type 5) of names; undefined: compact.
    pub name_index: Address,
    /// Version 2 B-tree (type 6) of creation order, when indexed; undefined: compact.
    pub creation_index: Option<Address>,
}

impl LinkInfo {
    /// Decodes the message at the start of `body`; ignores padding after it.
    pub fn decode(body: &[u8], ctx: &Context, address: Address) -> Result<Self> {
        let mut r = Reader::new(body, NAME, address);
        r.version(VERSION..=VERSION)?;
        let flags = r.u8()?;
        if flags & !(TRACKED | INDEXED) != 0 {
            return Err(r.corrupt(format!("flags are {flags:#04x}")));
        }
        let max_creation_order = if flags & TRACKED != 0 { Some(i64::from_le_bytes(r.array()?)) } else { None };
        if let Some(order) = max_creation_order.filter(|&n| n < 0) {
            return Err(r.corrupt(format!("the maximum creation order is {order}")));
        }
        let fractal_heap = r.addr(ctx)?;
        let name_index = r.addr(ctx)?;
        let creation_index = if flags & INDEXED != 0 { Some(r.addr(ctx)?) } else { None };
        Ok(LinkInfo { max_creation_order, fractal_heap, name_index, creation_index })
    }

    /// Encodes the exact bytes that `decode` reads, without padding.
    pub fn encode(&self, ctx: &Context) -> Result<Vec<u8>> {
        if self.max_creation_order.is_some_and(|n| n < 0) {
            return Err(Error::corrupt(NAME, Address::UNDEF, "the maximum creation order is negative"));
        }
        let tracked = if self.max_creation_order.is_some() { TRACKED } else { 0 };
        let indexed = if self.creation_index.is_some() { INDEXED } else { 0 };
        let mut w = Writer::new();
        w.u8(VERSION).u8(tracked | indexed);
        if let Some(order) = self.max_creation_order {
            w.bytes(&order.to_le_bytes());
        }
        w.addr(self.fractal_heap, ctx).addr(self.name_index, ctx);
        if let Some(index) = self.creation_index {
            w.addr(index, ctx);
        }
        Ok(w.into_bytes())
    }

    /// True when the links are in the fractal heap, false when they are messages of the object
    /// header.
    pub fn is_dense(&self) -> bool {
        self.fractal_heap.is_defined()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CTX: Context = Context::DEFAULT;

    /// From `compact.h5` and `dense.h5` (tests/fixtures/groups/make_groups.py), written by libhdf5
    /// 2.0.0.
    const COMPACT: &[u8] = b"\0\0\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff";
    const DENSE: &[u8] = b"\0\x03\x15\0\0\0\0\0\0\0\xe6\x04\0\0\0\0\0\0\x78\x05\0\0\0\0\0\0\x9e\x05\0\0\0\0\0\0";

    #[test]
    fn known_answers_round_trip() {
        let c = LinkInfo::decode(COMPACT, &CTX, Address(0)).unwrap();
        assert!(!c.is_dense() && c.max_creation_order.is_none() && c.creation_index.is_none());
        assert_eq!(c.encode(&CTX).unwrap(), COMPACT);
        let d = LinkInfo::decode(DENSE, &CTX, Address(0)).unwrap();
        assert!(d.is_dense());
        assert_eq!((d.max_creation_order, d.fractal_heap), (Some(21), Address(0x4e6)));
        assert_eq!((d.name_index, d.creation_index), (Address(0x578), Some(Address(0x59e))));
        assert_eq!(d.encode(&CTX).unwrap(), DENSE);
    }

    #[test]
    fn damage_is_an_error_never_a_panic() {
        for golden in [COMPACT, DENSE] {
            for n in 0..golden.len() {
                assert!(LinkInfo::decode(&golden[..n], &CTX, Address(0)).is_err(), "cut at {n}");
            }
            for i in 0..golden.len() {
                for bit in 0..8 {
                    let mut b = golden.to_vec();
                    b[i] ^= 1 << bit;
                    if let Ok(m) = LinkInfo::decode(&b, &CTX, Address(0)) {
                        assert!(b.starts_with(&m.encode(&CTX).unwrap()));
                    }
                }
            }
        }
        assert!(LinkInfo::decode(b"\x01\0", &CTX, Address(0)).is_err());
        let negative = [&b"\0\x01\xff\xff\xff\xff\xff\xff\xff\xff"[..], &[0; 16]].concat();
        assert!(LinkInfo::decode(&negative, &CTX, Address(0)).is_err());
    }
}
