//! Numbers from the bits of an element: integers of any precision, floating-point of any layout.

use super::decimal::{self, Binary, EXPONENT_MAX};
use crate::base::datatype::{ByteOrder, FloatingPoint, Normalization};

/// `len` bits (128 at most) from bit `location` on, counted from the lowest bit of the element.
/// `None` when they do not lie in `bytes`.
pub fn bits(bytes: &[u8], order: ByteOrder, location: u64, len: u64) -> Option<u128> {
    if let Some(n) = whole(bytes, order, location, len) {
        return Some(n.into());
    }
    let end = location.checked_add(len)?;
    if len == 0 || len > 128 || end > (bytes.len() as u64).checked_mul(8)? {
        return None;
    }
    let last = bytes.len().checked_sub(1)?;
    let mut value = 0u128;
    let (first, stop) = (location / 8, end.div_ceil(8));
    for i in (first..stop).rev() {
        let i = usize::try_from(i).ok()?;
        let at = match order {
            ByteOrder::LittleEndian => i,
            ByteOrder::BigEndian => last.checked_sub(i)?,
            ByteOrder::Vax => last.checked_sub(i)? ^ 1,
        };
        let byte = u128::from(*bytes.get(at)?);
        // Place of the byte's bit 0 relative to the field's bit 0.
        let shift = (i as i64).checked_mul(8)?.checked_sub(i64::try_from(location).ok()?)?;
        value |= if shift >= 0 { byte.checked_shl(u32::try_from(shift).ok()?)? } else { byte >> shift.unsigned_abs() };
    }
    Some(if len == 128 { value } else { value & ((1u128 << len) - 1) })
}

/// [`bits`] of a field that is all of an element of 1, 2, 4 or 8 bytes, as almost all fields are.
fn whole(bytes: &[u8], order: ByteOrder, location: u64, len: u64) -> Option<u64> {
    if location != 0 || len != (bytes.len() as u64).checked_mul(8)? {
        return None;
    }
    let mut n = match bytes.len() {
        1 => return bytes.first().map(|byte| (*byte).into()),
        2 => u16::from_le_bytes(bytes.try_into().ok()?).into(),
        4 => u32::from_le_bytes(bytes.try_into().ok()?).into(),
        8 => u64::from_le_bytes(bytes.try_into().ok()?),
        _ => return None,
    };
    match order {
        ByteOrder::LittleEndian => {}
        ByteOrder::BigEndian => n = n.swap_bytes() >> 64u64.checked_sub(len)?,
        ByteOrder::Vax => return None,
    }
    Some(n)
}

/// Decimal text of the integer in `len` bits from `location`; `None` beyond 128 bits.
pub fn integer(bytes: &[u8], order: ByteOrder, location: u64, len: u64, signed: bool) -> Option<String> {
    let n = bits(bytes, order, location, len)?;
    let negative = signed && n >> (len - 1) & 1 == 1;
    if !negative {
        return Some(u64::try_from(n).map_or_else(|_| n.to_string(), |n| n.to_string()));
    }
    let extended = (if len == 128 { n } else { n | u128::MAX << len }) as i128;
    Some(i64::try_from(extended).map_or_else(|_| extended.to_string(), |n| n.to_string()))
}

/// Lower-case hexadecimal of `bytes`, first byte first.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

/// A floating-point number as read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Float {
    /// Not a number.
    Nan,
    /// Infinite; true: negative.
    Infinite(bool),
    /// Zero; true: negative.
    Zero(bool),
    /// Any other; true: negative.
    Finite(bool, Binary),
}

/// The number in `bytes`. `None` when its fields are too wide or its exponent too large to print.
pub fn float(t: &FloatingPoint, bytes: &[u8]) -> Option<Float> {
    let field = |location: u8, len: u8| bits(bytes, t.order, location.into(), len.into());
    let negative = field(t.sign_location, 1)? == 1;
    let size = u32::from(t.mantissa_size);
    if size > 125 || t.exponent_size > 31 {
        return None;
    }
    let mantissa = field(t.mantissa_location, t.mantissa_size)?;
    let stored = i64::try_from(field(t.exponent_location, t.exponent_size)?).ok()?;
    let implied = t.normalization == Normalization::Implied;
    if t.order == ByteOrder::Vax {
        // No infinities; exponent 0 is zero or, with the sign, a reserved operand.
        if stored == 0 {
            return Some(if negative { Float::Nan } else { Float::Zero(false) });
        }
    } else if stored == (1i64 << t.exponent_size) - 1 {
        // Without an implied bit the mantissa's highest one says nothing.
        let payload = if implied { mantissa } else { mantissa & ((1u128 << (size - 1)) - 1) };
        return Some(if payload == 0 { Float::Infinite(negative) } else { Float::Nan });
    }
    let bias = i64::from(t.exponent_bias);
    let top = if implied { size } else { size - 1 };
    let fraction = if implied && stored > 0 { mantissa | 1u128 << size } else { mantissa };
    if fraction == 0 {
        return Some(Float::Zero(negative));
    }
    // An explicit highest bit that is not set: the same number as one whose exponent is smaller.
    let up = i64::from(fraction.leading_zeros()).saturating_sub(127 - i64::from(top)).min(stored.max(1) - 1);
    let (fraction, stored) = (fraction << up, stored.max(1) - up);
    let exponent = stored.checked_sub(bias)?.checked_sub(top.into())?;
    if exponent.abs() > EXPONENT_MAX {
        return None;
    }
    let closer_below = fraction == 1u128 << top && stored > 1;
    Some(Float::Finite(negative, Binary { fraction, exponent, closer_below }))
}

/// Text of the number: the shortest that reads back as the same number, `NaN`, `Infinity`,
/// `-Infinity`. `None` where [`float`] is.
///
/// Read as what: IEEE half and single precision as themselves. Types that programs cannot parse
/// (bfloat16, 8-bit, odd layouts), and the few subnormal digits of half and single, as double, so
/// that a reader who knows only double gets the exact value. Numbers whose neighbours are nearer
/// than a double's as themselves: that reads back exactly as a double too, if the number is one.
pub fn float_text(t: &FloatingPoint, bytes: &[u8]) -> Option<String> {
    Some(match float(t, bytes)? {
        Float::Nan => "NaN".into(),
        Float::Infinite(false) => "Infinity".into(),
        Float::Infinite(true) => "-Infinity".into(),
        Float::Zero(false) => "0.0".into(),
        Float::Zero(true) => "-0.0".into(),
        Float::Finite(negative, v) => {
            let (digits, k) = digits(t, v);
            decimal::format(negative, &digits, k)
        }
    })
}

/// The number in `bytes` as a double, which is exact if it has no more digits. `None` when its
/// fields are too wide.
pub fn float_value(t: &FloatingPoint, bytes: &[u8]) -> Option<f64> {
    Some(match float(t, bytes)? {
        Float::Nan => f64::NAN,
        Float::Infinite(negative) => {
            if negative {
                f64::NEG_INFINITY
            } else {
                f64::INFINITY
            }
        }
        Float::Zero(_) => 0.0,
        Float::Finite(negative, v) => {
            let size = as_f64(v).map_or_else(|| float_text(t, bytes)?.trim_start_matches('-').parse().ok(), Some)?;
            if negative { -size } else { size }
        }
    })
}

fn digits(t: &FloatingPoint, v: Binary) -> (Vec<u8>, i64) {
    let layout = (t.mantissa_size, t.exponent_size, t.exponent_bias);
    let is_ieee = t.normalization == Normalization::Implied && t.order != ByteOrder::Vax;
    let is_normal = v.fraction >> t.mantissa_size == 1;
    let native = match layout {
        (10, 5, 15) if is_ieee && is_normal => None,
        (23, 8, 127) if is_ieee && is_normal => as_f64(v).and_then(|x| parts(&format!("{:e}", x as f32))),
        _ if v.exponent >= double_gap(v) => as_f64(v).and_then(|x| parts(&format!("{x:e}"))),
        _ => None,
    };
    native.unwrap_or_else(|| decimal::shortest(v))
}

/// Power of two that is the distance of doubles about `v`.
fn double_gap(v: Binary) -> i64 {
    v.exponent.saturating_add(75 - i64::from(v.fraction.leading_zeros())).max(-1074)
}

/// The number as a double if it is one.
fn as_f64(v: Binary) -> Option<f64> {
    let zeros = v.fraction.trailing_zeros();
    let fraction = u64::try_from(v.fraction.checked_shr(zeros)?).ok()?;
    let exponent = v.exponent.checked_add(zeros.into())?;
    let bits = i64::from(64 - fraction.leading_zeros());
    if bits > 53 || exponent < -1074 || exponent.checked_add(bits)? > 1024 {
        return None;
    }
    // In two steps, each exact: one power of two might be out of range.
    let half = i32::try_from(exponent / 2).ok()?;
    let rest = i32::try_from(exponent).ok()?.checked_sub(half)?;
    Some(fraction as f64 * 2f64.powi(half) * 2f64.powi(rest))
}

/// Digits and power of ten of a number that Rust printed with an exponent.
fn parts(text: &str) -> Option<(Vec<u8>, i64)> {
    let (mantissa, exponent) = text.split_once('e')?;
    let digits = mantissa.bytes().filter(u8::is_ascii_digit).map(|b| b.saturating_sub(b'0')).collect();
    Some((digits, exponent.parse::<i64>().ok()?.checked_add(1)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_cross_bytes_in_every_order() {
        let le = [0x78, 0x56, 0x34, 0x12];
        let be = [0x12, 0x34, 0x56, 0x78];
        let vax = [0x34, 0x12, 0x78, 0x56];
        for (bytes, order) in [(le, ByteOrder::LittleEndian), (be, ByteOrder::BigEndian), (vax, ByteOrder::Vax)] {
            assert_eq!(bits(&bytes, order, 0, 32), Some(0x1234_5678));
            assert_eq!(bits(&bytes, order, 4, 12), Some(0x567));
            assert_eq!(bits(&bytes, order, 31, 1), Some(0));
            assert_eq!(bits(&bytes, order, 28, 1), Some(1));
            assert_eq!(bits(&bytes, order, 28, 5), None);
        }
        assert_eq!(bits(&[0xff; 20], ByteOrder::BigEndian, 3, 128), Some(u128::MAX));
    }

    #[test]
    fn fields_of_whole_elements() {
        let bytes = [0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11];
        for (n, little, big) in [(1usize, 0x88u128, 0x88u128), (2, 0x7788, 0x8877), (4, 0x5566_7788, 0x8877_6655)] {
            let bytes = bytes.get(..n).unwrap();
            assert_eq!(bits(bytes, ByteOrder::LittleEndian, 0, 8 * n as u64), Some(little));
            assert_eq!(bits(bytes, ByteOrder::BigEndian, 0, 8 * n as u64), Some(big));
        }
        assert_eq!(bits(&bytes, ByteOrder::LittleEndian, 0, 64), Some(0x1122_3344_5566_7788));
        assert_eq!(bits(&bytes, ByteOrder::BigEndian, 0, 64), Some(0x8877_6655_4433_2211));
        assert_eq!(bits(&bytes, ByteOrder::Vax, 0, 64), Some(0x7788_5566_3344_1122));
        assert_eq!(integer(&[0xff; 8], ByteOrder::BigEndian, 0, 64, false).as_deref(), Some("18446744073709551615"));
        assert_eq!(integer(&[0xff; 8], ByteOrder::BigEndian, 0, 64, true).as_deref(), Some("-1"));
        assert_eq!(integer(&[0x80, 0], ByteOrder::BigEndian, 0, 16, true).as_deref(), Some("-32768"));
    }

    #[test]
    fn doubles_are_recognized() {
        let of = |fraction, exponent| as_f64(Binary { fraction, exponent, closer_below: false });
        assert_eq!(of(3 << 100, -101), Some(1.5));
        assert_eq!(of(1, -1074), Some(5e-324));
        assert_eq!(of((1 << 53) - 1, 971), Some(f64::MAX));
        assert_eq!((of(1, -1075), of(1, 1024), of((1 << 53) + 1, 0)), (None, None, None));
        assert_eq!(of(1, 1023), Some(2f64.powi(1023)));
    }

    #[test]
    fn integers_of_odd_precision() {
        assert_eq!(integer(&[0xfc, 0x0f], ByteOrder::LittleEndian, 2, 10, true).as_deref(), Some("-1"));
        assert_eq!(integer(&[0xfc, 0x0f], ByteOrder::LittleEndian, 2, 10, false).as_deref(), Some("1023"));
        assert_eq!(integer(&[0x80; 8], ByteOrder::BigEndian, 0, 64, true).as_deref(), Some("-9187201950435737472"));
        assert_eq!(integer(&[0xff; 16], ByteOrder::BigEndian, 0, 128, true).as_deref(), Some("-1"));
        assert_eq!(integer(&[0xff; 17], ByteOrder::BigEndian, 0, 136, true), None);
    }
}
