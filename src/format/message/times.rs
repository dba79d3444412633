//! Modification time messages: 0x0012 (seconds since 1970) and the old 0x000E (14 ASCII digits,
//! UTC).

use crate::base::{Address, Result};
use crate::format::{Reader, Writer};

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
    // Days since 1970 by the civil-from-days identity (March-based years).
    let y2 = if mo <= 2 { y - 1 } else { y };
    let era_day = (153 * ((mo + 9) % 12) + 2) / 5 + d - 1;
    let days = 365 * y2 + y2.div_euclid(4) - y2.div_euclid(100) + y2.div_euclid(400) + era_day - 719_468;
    u32::try_from(((days * 24 + h) * 60 + mi) * 60 + s).map_err(|_| r.corrupt("the date is outside 1970..2106"))
}

/// Encodes the old message 0x000E for `seconds` since 1970.
pub fn encode_old(seconds: u32) -> Vec<u8> {
    let (days, rest) = (u64::from(seconds / 86_400), seconds % 86_400);
    // Civil from days, March-based years, 400-year eras; all numbers are positive from 1970 on.
    let z = days.saturating_add(719_468);
    let (era, day) = (z / 146_097, z % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let of_year = day - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let d = of_year - (153 * month + 2) / 5 + 1;
    let m = if month < 10 { month + 3 } else { month - 9 };
    let y = year + era * 400 + u64::from(m <= 2);
    let text = format!("{y:04}{m:02}{d:02}{:02}{:02}{:02}\0\0", rest / 3600, rest / 60 % 60, rest % 60);
    text.into_bytes()
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
