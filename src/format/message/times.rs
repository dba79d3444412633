//! Modification time messages: 0x0012 (seconds since 1970) and the old 0x000E (14 ASCII digits,
//! UTC).

use crate::base::{Address, Result};
use crate::format::{Reader, Writer};
use chrono::{DateTime, NaiveDate, NaiveTime};

/// Decodes message 0x0012, `version 1 | 0 0 0 | seconds u32`, to seconds since 1970.
pub fn decode(body: &[u8], address: Address) -> Result<u32> {
    let mut r = Reader::new(body, "modification time message", address);
    r.version(1..=1)?;
    r.skip(3)?;
    r.u32()
}

/// Encodes message 0x0012 for `seconds` since 1970.
pub fn encode(seconds: u32) -> Vec<u8> {
    let mut w = Writer::new();
    w.u8(1).zeros(3).u32(seconds);
    w.into_bytes()
}

/// Decodes the old message 0x000E, `YYYYMMDDhhmmss`, 2 bytes reserved, to seconds since 1970.
pub fn decode_old(body: &[u8], address: Address) -> Result<u32> {
    let mut r = Reader::new(body, "old modification time message", address);
    let mut number = |n: usize| -> Result<i64> {
        let b = r.bytes(n)?;
        b.iter().try_fold(0i64, |v, d| if d.is_ascii_digit() { Ok(v * 10 + i64::from(d - b'0')) } else { Err(r.corrupt("not a digit")) })
    };
    let (y, mo, d, h, mi, s) = (number(4)?, number(2)?, number(2)?, number(2)?, number(2)?, number(2)?);
    if !(1..=12).contains(&mo) || !(1..=31).contains(&d) || h > 23 || mi > 59 || s > 60 {
        return Err(r.corrupt("not a date"));
    }
    // A day past the end of its month is one of the next.
    let month = u32::try_from(mo).ok().zip(i32::try_from(y).ok()).and_then(|(mo, y)| NaiveDate::from_ymd_opt(y, mo, 1));
    let start = month.ok_or_else(|| r.corrupt("not a date"))?.and_time(NaiveTime::MIN).and_utc().timestamp();
    u32::try_from(start + (((d - 1) * 24 + h) * 60 + mi) * 60 + s).map_err(|_| r.corrupt("the date is outside 1970..2106"))
}

/// Encodes the old message 0x000E for `seconds` since 1970.
pub fn encode_old(seconds: u32) -> Vec<u8> {
    let time = DateTime::from_timestamp(seconds.into(), 0).unwrap_or_default();
    format!("{}\0\0", time.format("%Y%m%d%H%M%S")).into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_dates() {
        assert_eq!(decode_old(b"19700101000000\0\0", Address(0)).unwrap(), 0);
        assert_eq!(decode_old(b"20000229123456\0\0", Address(0)).unwrap(), 951_827_696);
        for t in [0, 951_827_696, 951_782_400, 951_868_800, 1_709_164_800, 1_709_251_199, u32::MAX]
            .into_iter()
            .chain((0..4000).map(|d| d * 1_000_003))
        {
            assert_eq!(decode_old(&encode_old(t), Address(0)).unwrap(), t);
        }
        assert!(decode_old(b"2000022912345", Address(0)).is_err());
        assert!(decode_old(b"20001329123456\0\0", Address(0)).is_err());
        assert_eq!(decode(&encode(77), Address(0)).unwrap(), 77);
        assert!(decode(&[1, 0, 0, 0, 1], Address(0)).is_err());
    }
}
