//! Fill value messages: 0x0005 (versions 1 to 3) and the old 0x0004.
//!
//! ```text
//! old:  size u32 | bytes
//! v1:   version 1 | allocation time | write time | defined | size u32 | bytes
//! v2:   version 2 | allocation time | write time | defined | [size u32 | bytes] if defined
//! v3:   version 3 | flags: bits 0-1 allocation, 2-3 write, 4 undefined, 5 defined |
//!       [size u32 | bytes] if bit 5
//! ```

use crate::base::fill::Fill;
use crate::base::{Address, Result};
use crate::format::{Reader, Writer};

const NAME: &str = "fill value message";
const UNDEFINED: u8 = 0x10;
const DEFINED: u8 = 0x20;

/// A decoded fill value message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FillValue {
    /// Message version, 1 to 3; 0 for the old message.
    pub version: u8,
    /// Space allocation: 1 early, 2 late, 3 incremental.
    pub allocation_time: u8,
    /// Writing of the value: 0 on allocation, 1 never, 2 if set.
    pub write_time: u8,
    /// The value.
    pub fill: Fill,
}

impl FillValue {
    /// Decodes message 0x0005.
    pub fn decode(body: &[u8], address: Address) -> Result<Self> {
        let mut r = Reader::new(body, NAME, address);
        let version = r.version(1..=3)?;
        if version == 3 {
            let flags = r.u8()?;
            let fill = match (flags & UNDEFINED != 0, flags & DEFINED != 0) {
                (true, true) => return Err(r.corrupt("both defined and undefined")),
                (true, false) => Fill::Undefined,
                (false, false) => Fill::Default,
                (false, true) => Self::value(&mut r)?,
            };
            return Ok(FillValue { version, allocation_time: flags & 3, write_time: flags >> 2 & 3, fill });
        }
        let (allocation_time, write_time, defined) = (r.u8()?, r.u8()?, r.u8()?);
        // A size after "not defined" says nothing, in version 1 either.
        let fill = match defined {
            0 => Fill::Undefined,
            _ => match r.u32()? {
                u32::MAX => Fill::Undefined,
                0 => Fill::Default,
                n => Fill::Value(r.bytes(n as usize)?.to_vec()),
            },
        };
        Ok(FillValue { version, allocation_time, write_time, fill })
    }

    fn value(r: &mut Reader<'_>) -> Result<Fill> {
        let n = r.u32()?;
        Ok(if n == 0 { Fill::Value(Vec::new()) } else { Fill::Value(r.bytes(n as usize)?.to_vec()) })
    }

    /// Decodes the old message 0x0004.
    pub fn decode_old(body: &[u8], address: Address) -> Result<Self> {
        let mut r = Reader::new(body, "old fill value message", address);
        let n = r.u32()?;
        let fill = if n == 0 { Fill::Undefined } else { Fill::Value(r.bytes(n as usize)?.to_vec()) };
        Ok(FillValue { version: 0, allocation_time: 2, write_time: 2, fill })
    }

    /// Encodes the body.
    pub fn encode(&self) -> Vec<u8> {
        let mut w = Writer::new();
        let sized = |w: &mut Writer, b: &[u8]| {
            w.uint(b.len() as u64, 4).bytes(b);
        };
        match self.version {
            0 => match &self.fill {
                Fill::Value(b) => sized(&mut w, b),
                _ => sized(&mut w, &[]),
            },
            3 => {
                let state = match self.fill {
                    Fill::Undefined => UNDEFINED,
                    Fill::Default => 0,
                    Fill::Value(_) => DEFINED,
                };
                w.u8(3).u8(self.allocation_time & 3 | (self.write_time & 3) << 2 | state);
                if let Fill::Value(b) = &self.fill {
                    sized(&mut w, b);
                }
            }
            v => {
                w.u8(v).u8(self.allocation_time).u8(self.write_time);
                match &self.fill {
                    Fill::Undefined if v == 2 => drop(w.u8(0)),
                    Fill::Undefined => drop(w.u8(0).u32(u32::MAX)),
                    Fill::Default => sized(w.u8(1), &[]),
                    Fill::Value(b) => sized(w.u8(1), b),
                }
            }
        }
        w.into_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bodies written by libhdf5 2.0: default chunked v3, user fill int32 7 v3, v2 default, v2 user
    /// fill.
    const GOLDEN: [&[u8]; 4] =
        [&[3, 0x0b], &[3, 0x2b, 4, 0, 0, 0, 7, 0, 0, 0], &[2, 3, 2, 1, 0, 0, 0, 0], &[2, 3, 2, 1, 4, 0, 0, 0, 7, 0, 0, 0]];

    #[test]
    fn golden_round_trip() {
        for g in GOLDEN {
            assert_eq!(FillValue::decode(g, Address(0)).unwrap().encode(), g);
        }
        assert_eq!(FillValue::decode(GOLDEN[3], Address(0)).unwrap().fill, Fill::Value(vec![7, 0, 0, 0]));
    }

    #[test]
    fn truncated_is_an_error() {
        for g in GOLDEN {
            for n in 0..g.len() {
                assert!(FillValue::decode(&g[..n], Address(0)).is_err());
            }
        }
        assert!(FillValue::decode(&[3, 0x30], Address(0)).is_err());
        assert!(FillValue::decode_old(&[255, 255, 255, 255, 1], Address(0)).is_err());
    }
}
