//! Group info message, type 0x000A, version 0: parameters of a new-style group (H5.format.4.0, "The
//! Group Info Message").
//!
//! ```text
//! version 0 | flags u8 | [maximum compact u16 | minimum dense u16] |
//! [estimated entries u16 | estimated name length u16]
//! flags: 0x01 first pair present | 0x02 second pair present
//! ```

use crate::base::{Address, Result};
use crate::format::{Context, Reader, Writer};

const NAME: &str = "group info message";
const VERSION: u8 = 0;
const PHASE_CHANGE: u8 = 0x01;
const ESTIMATES: u8 = 0x02;

/// A decoded group info message. An absent pair means libhdf5's defaults.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GroupInfo {
    /// Most links in compact storage, fewest in dense storage; 8 and 6 when absent.
    pub phase_change: Option<(u16, u16)>,
    /// Estimated number of links and length of their names, bytes; 4 and 8 when absent.
    pub estimates: Option<(u16, u16)>,
}

impl GroupInfo {
    /// Decodes the message at the start of `body`; ignores padding after it.
    pub fn decode(body: &[u8], _ctx: &Context, address: Address) -> Result<Self> {
        let mut r = Reader::new(body, NAME, address);
        r.version(VERSION..=VERSION)?;
        let flags = r.u8()?;
        if flags & !(PHASE_CHANGE | ESTIMATES) != 0 {
            return Err(r.corrupt(format!("flags are {flags:#04x}")));
        }
        let mut pair = |flag: u8| if flags & flag != 0 { Ok(Some((r.u16()?, r.u16()?))) } else { Ok(None) };
        Ok(GroupInfo { phase_change: pair(PHASE_CHANGE)?, estimates: pair(ESTIMATES)? })
    }

    /// Encodes the exact bytes that `decode` reads, without padding.
    pub fn encode(&self, _ctx: &Context) -> Result<Vec<u8>> {
        let flag = |on: bool, bit: u8| if on { bit } else { 0 };
        let mut w = Writer::new();
        w.u8(VERSION).u8(flag(self.phase_change.is_some(), PHASE_CHANGE) | flag(self.estimates.is_some(), ESTIMATES));
        for (a, b) in self.phase_change.iter().chain(&self.estimates) {
            w.u16(*a).u16(*b);
        }
        Ok(w.into_bytes())
    }

    /// Most links in compact storage; one more converts the group to dense storage.
    pub fn max_compact(&self) -> u16 {
        self.phase_change.map_or(8, |p| p.0)
    }

    /// Fewest links in dense storage; one less converts the group to compact storage.
    pub fn min_dense(&self) -> u16 {
        self.phase_change.map_or(6, |p| p.1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_answers_round_trip() {
        // The first three by libhdf5 2.0.0: `compact.h5` and `dense.h5`
        // (tests/fixtures/groups/make_groups.py).
        let goldens: [(&[u8], GroupInfo); 4] = [
            (b"\0\0", GroupInfo::default()),
            (b"\0\x02d\0\x14\0", GroupInfo { phase_change: None, estimates: Some((100, 20)) }),
            (b"\0\x01\0\0\0\0", GroupInfo { phase_change: Some((0, 0)), estimates: None }),
            (b"\0\x03\x10\0\x08\0\x64\0\x14\0", GroupInfo { phase_change: Some((16, 8)), estimates: Some((100, 20)) }),
        ];
        for (b, want) in goldens {
            let m = GroupInfo::decode(b, &Context::DEFAULT, Address(0)).unwrap();
            assert_eq!(m, want);
            assert_eq!(m.encode(&Context::DEFAULT).unwrap(), b);
            for n in 0..b.len() {
                assert!(GroupInfo::decode(&b[..n], &Context::DEFAULT, Address(0)).is_err(), "cut at {n}");
            }
        }
        assert_eq!((GroupInfo::default().max_compact(), GroupInfo::default().min_dense()), (8, 6));
    }

    #[test]
    fn damage_is_an_error() {
        for b in [b"\x01\0", b"\0\x04", b"\0\x80"] {
            assert!(GroupInfo::decode(b, &Context::DEFAULT, Address(0)).is_err());
        }
    }
}
