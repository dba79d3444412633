//! Owner, group and mode of an object.
//!
//! ```text
//! flags u8: 1 mode, 2 owner, 4 group | mode u16 | owner u32 | group u32
//! ```

use crate::base::{Address, Result};
use crate::connector::Ownership;
use crate::format::{Reader, Writer};

/// Encodes an owner; parts that are not set are 0.
pub(super) fn encode(o: &Ownership) -> Vec<u8> {
    let mut w = Writer::new();
    let flags = u8::from(o.mode.is_some()) | u8::from(o.uid.is_some()) << 1 | u8::from(o.gid.is_some()) << 2;
    w.u8(flags).u16(o.mode.unwrap_or(0)).u32(o.uid.unwrap_or(0)).u32(o.gid.unwrap_or(0));
    w.into_bytes()
}

/// Decodes the owner of the object `id`.
pub(super) fn decode(body: &[u8], id: u64) -> Result<Ownership> {
    let mut r = Reader::new(body, "owner", Address(id));
    let (flags, mode, uid, gid) = (r.u8()?, r.u16()?, r.u32()?, r.u32()?);
    let is_set = |bit: u8| flags & bit != 0;
    Ok(Ownership { mode: is_set(1).then_some(mode & 0o7777), uid: is_set(2).then_some(uid), gid: is_set(4).then_some(gid) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owners_round_trip() {
        for o in [Ownership::default(), Ownership { mode: Some(0o640), uid: Some(7), gid: None }] {
            assert_eq!(decode(&encode(&o), 1).unwrap(), o);
        }
        assert!(decode(&[1, 2], 1).is_err());
    }
}
