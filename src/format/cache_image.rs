//! Metadata cache image (MDCI) and the superblock extension message 0x0018 that points to it.
//!
//! ```text
//! message: version 0 | address O | length L
//! block:   "MDCI" | version 0 | flags | data length L | entries u32 | entries | checksum
//! entry:   type | flags | ring | age | flush-dependency children u16 | dirty children u16 |
//!          parents u16 | LRU rank i32 | address O | size L | parents x O | image bytes
//! ```

use super::{Context, Reader};
use crate::base::{Address, Result};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Name of the block.
pub const NAME: &str = "metadata cache image";

/// Decodes the message: address and length of the image, `None` when there is none.
pub fn decode_message(body: &[u8], ctx: &Context, address: Address) -> Result<Option<(Address, u64)>> {
    let mut r = Reader::new(body, "metadata cache image message", address);
    r.version(0..=0)?;
    let (at, len) = (r.addr(ctx)?, r.length(ctx)?);
    Ok((at.is_defined() && len > 0).then_some((at, len)))
}

/// Decodes the image: entries by home address.
pub fn decode(block: &[u8], ctx: &Context, address: Address) -> Result<BTreeMap<u64, Arc<[u8]>>> {
    let mut r = Reader::new(block, NAME, address);
    r.signature(b"MDCI")?;
    r.version(0..=0)?;
    r.skip(1)?;
    r.length(ctx)?;
    let entries = r.u32()?;
    let mut map = BTreeMap::new();
    for _ in 0..entries {
        r.skip(8)?;
        let parents = usize::from(r.u16()?);
        r.skip(4)?;
        let at = r.addr(ctx)?;
        let size = r.size(ctx)?;
        r.skip(parents.saturating_mul(usize::from(ctx.sizeof_addr)))?;
        let image = r.bytes(size)?;
        let Some(at) = at.defined() else { return Err(r.corrupt("an entry without an address")) };
        map.insert(at, Arc::from(image));
    }
    r.checksum()?;
    Ok(map)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::Writer;

    fn image() -> Vec<u8> {
        let mut w = Writer::new();
        w.bytes(b"MDCI").u8(0).u8(0).u64(0).u32(2);
        for (at, bytes) in [(96u64, &b"abc"[..]), (800, b"xyzw")] {
            w.u8(1).u8(1).u8(1).u8(0).u16(0).u16(0).u16(1).u32(0).u64(at).u64(bytes.len() as u64).u64(48).bytes(bytes);
        }
        w.checksum();
        w.into_bytes()
    }

    #[test]
    fn entries_by_address() {
        let m = decode(&image(), &Context::DEFAULT, Address(0)).unwrap();
        assert_eq!(m.get(&800).map(|b| b.to_vec()), Some(b"xyzw".to_vec()));
        assert_eq!(m.len(), 2);
    }

    #[test]
    fn damage_is_an_error() {
        let b = image();
        for i in 0..b.len() {
            let mut c = b.clone();
            c[i] ^= 1;
            assert!(decode(&c, &Context::DEFAULT, Address(0)).is_err(), "byte {i}");
            assert!(decode(&b[..i], &Context::DEFAULT, Address(0)).is_err());
        }
    }
}
