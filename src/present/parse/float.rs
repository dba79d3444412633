//! Decimal text into the nearest binary floating-point number of any layout.
//!
//! Exact integers of unlimited width: the text is `n * 10^e`, which is divided by the power of two
//! that leaves as many bits as the mantissa has; what remains decides the rounding (to nearest,
//! ties to even).

use super::super::decimal::{Big, EXPONENT_MAX};
use super::integer::{raw_hex, set_bit, set_bits};
use super::{invalid, out_of_range, shown};
use crate::base::datatype::{ByteOrder, FloatingPoint, Normalization};
use crate::base::{Error, Result};
use std::cmp::Ordering;

/// Digits that are looked at; more than any exact decimal form of a supported number has.
const DIGITS_MAX: usize = 20_000;
/// Powers of ten beyond `2^EXPONENT_MAX` either way.
const POWER_MAX: i64 = 6_100;

/// A number as written.
enum Decimal {
    Nan,
    Infinite,
    /// Digits (0 to 9, the first not 0, none for zero) and `k` in `0.d1d2d3... * 10^k`.
    Finite(Vec<u8>, i64),
}

/// Sign and number of `text`.
fn read(text: &str) -> Option<(bool, Decimal)> {
    let (negative, rest) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    match rest.to_ascii_lowercase().as_str() {
        "nan" => return Some((negative, Decimal::Nan)),
        "inf" | "infinity" => return Some((negative, Decimal::Infinite)),
        _ => {}
    }
    let (mantissa, exponent) = match rest.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, power(exponent)?),
        None => (rest, 0),
    };
    let (whole, part) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let all = whole.bytes().chain(part.bytes());
    if whole.len().saturating_add(part.len()) == 0 || !all.clone().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let zeros = all.clone().take_while(|&b| b == b'0').count();
    let mut digits: Vec<u8> = all.skip(zeros).map(|b| b.saturating_sub(b'0')).collect();
    if digits.len() > DIGITS_MAX {
        // Whatever follows only says that the number is no tie.
        digits.truncate(DIGITS_MAX);
        digits.push(1);
    }
    let k = i64::try_from(whole.len()).ok()?.checked_sub(i64::try_from(zeros).ok()?)?;
    Some((negative, Decimal::Finite(digits, k.saturating_add(exponent))))
}

/// An exponent; one too large to matter is cut.
fn power(text: &str) -> Option<i64> {
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let cut = 1_000_000_000_000;
    Some(digits.parse().unwrap_or(cut).min(cut) * if text.starts_with('-') { -1 } else { 1 })
}

/// The fields of a number: what is stored as exponent and mantissa.
struct Fields {
    exponent: u64,
    mantissa: u128,
}

/// Bits of the fraction above its lowest: the implied one is counted.
fn top_bit(t: &FloatingPoint) -> u32 {
    let size = u32::from(t.mantissa_size);
    if t.normalization == Normalization::Implied { size } else { size.saturating_sub(1) }
}

/// Largest stored exponent of a finite number.
fn exponent_max(t: &FloatingPoint) -> i64 {
    let all = (1i64 << t.exponent_size.min(62)) - 1;
    if t.order == ByteOrder::Vax { all } else { all.saturating_sub(1) }
}

/// The number nearest to `0.d1d2d3... * 10^k`; `None` when it is too large for the type.
fn nearest(t: &FloatingPoint, digits: &[u8], k: i64) -> Option<Fields> {
    let zero = Fields { exponent: 0, mantissa: 0 };
    if digits.is_empty() || k < -POWER_MAX {
        return Some(zero);
    }
    if k > POWER_MAX {
        return None;
    }
    let e = k.checked_sub(i64::try_from(digits.len()).ok()?)?;
    let (mut num, mut den) = (Big::from_digits(digits), Big::new(1));
    if e >= 0 { &mut num } else { &mut den }.mul_pow10(e.unsigned_abs());
    let top = top_bit(t);
    let lowest = 1i64.checked_sub(t.exponent_bias.into())?.checked_sub(top.into())?;
    let scale = floor_log2(&num, &den)?.checked_sub(top.into())?.max(lowest);
    if scale.abs() > EXPONENT_MAX {
        return if scale < 0 { Some(zero) } else { None };
    }
    if scale >= 0 {
        den = den.shl(scale.unsigned_abs());
    } else {
        num = num.shl(scale.unsigned_abs());
    }
    let mut fraction = quotient(num, den, top);
    let mut scale = scale;
    if fraction >> top > 1 {
        fraction >>= 1;
        scale = scale.checked_add(1)?;
    }
    let is_normal = fraction >> top == 1;
    let exponent = if is_normal { scale.checked_sub(lowest)?.checked_add(1)? } else { 0 };
    if exponent > exponent_max(t) {
        return None;
    }
    if t.order == ByteOrder::Vax && !is_normal {
        return Some(zero);
    }
    let stored = if t.normalization == Normalization::Implied { fraction & ((1u128 << top) - 1) } else { fraction };
    Some(Fields { exponent: exponent.unsigned_abs(), mantissa: stored })
}

/// Largest power of two that is not above `num / den`.
fn floor_log2(num: &Big, den: &Big) -> Option<i64> {
    let n = i64::try_from(num.bits()).ok()?.checked_sub(i64::try_from(den.bits()).ok()?)?;
    let below = if n >= 0 { num.compare(&den.clone().shl(n.unsigned_abs())) } else { num.clone().shl(n.unsigned_abs()).compare(den) };
    Some(if below == Ordering::Less { n.saturating_sub(1) } else { n })
}

/// `num / den`, which is below `2^(top + 1)`, rounded to nearest, ties to even.
fn quotient(num: Big, den: Big, top: u32) -> u128 {
    let (mut rest, divisor) = (num, den.shl(top.into()));
    let mut fraction = 0u128;
    for i in 0..=top {
        if i > 0 {
            rest.mul_small(2);
        }
        fraction <<= 1;
        if rest.compare(&divisor) != Ordering::Less {
            rest.minus(&divisor);
            fraction |= 1;
        }
    }
    rest.mul_small(2);
    let up = match rest.compare(&divisor) {
        Ordering::Less => false,
        Ordering::Equal => fraction & 1 == 1,
        Ordering::Greater => true,
    };
    fraction + u128::from(up)
}

/// The element of `size` bytes that holds the number `text`. `0x` and the element's bytes, first
/// byte first, is a number too wide to print.
pub fn parse(t: &FloatingPoint, size: usize, text: &[u8]) -> Result<Vec<u8>> {
    let trimmed = text.trim_ascii();
    if let Some(raw) = trimmed.strip_prefix(b"0x").and_then(|hex| raw_hex(hex, size)) {
        return Ok(raw);
    }
    let number = std::str::from_utf8(trimmed).ok().and_then(read);
    let (negative, number) = number.ok_or_else(|| invalid(format!("{} is no number", shown(text))))?;
    let too_large = || out_of_range(format!("{} is beyond what the type holds", shown(text)));
    if t.mantissa_size > 125 || t.mantissa_size == 0 || t.exponent_size > 31 {
        return Err(invalid("a number of this layout is given as 0x and its bytes"));
    }
    let (negative, fields) = match number {
        Decimal::Finite(digits, k) => {
            let fields = nearest(t, &digits, k).ok_or_else(too_large)?;
            let is_zero = fields.exponent == 0 && fields.mantissa == 0;
            (negative && !(is_zero && t.order == ByteOrder::Vax), fields)
        }
        // The reserved operand: the sign and nothing else.
        Decimal::Nan if t.order == ByteOrder::Vax => (true, Fields { exponent: 0, mantissa: 0 }),
        Decimal::Infinite if t.order == ByteOrder::Vax => return Err(too_large()),
        Decimal::Nan => (negative, special(t, true).ok_or_else(too_large)?),
        Decimal::Infinite => (negative, special(t, false).ok_or_else(too_large)?),
    };
    Ok(assemble(t, size, negative, &fields))
}

/// A quiet NaN or an infinity.
fn special(t: &FloatingPoint, nan: bool) -> Option<Fields> {
    let exponent = exponent_max(t).checked_add(1)?.unsigned_abs();
    let top = u32::from(t.mantissa_size).checked_sub(1)?;
    // An explicit highest bit is set as for every number.
    let (explicit, quiet) = if t.normalization == Normalization::Implied { (0, Some(top)) } else { (1u128 << top, top.checked_sub(1)) };
    let mantissa = if nan { explicit | 1u128 << quiet? } else { explicit };
    Some(Fields { exponent, mantissa })
}

fn assemble(t: &FloatingPoint, size: usize, negative: bool, fields: &Fields) -> Vec<u8> {
    let mut bytes = vec![0; size];
    let span = |location: u8, len: u8| u64::from(location)..u64::from(location).saturating_add(len.into());
    let used = [span(t.sign_location, 1), span(t.exponent_location, t.exponent_size), span(t.mantissa_location, t.mantissa_size)];
    let value = u64::from(t.offset)..u64::from(t.offset).saturating_add(t.precision.into());
    for bit in 0..(size as u64).saturating_mul(8) {
        let padding = match bit {
            bit if used.iter().any(|field| field.contains(&bit)) => false,
            bit if value.contains(&bit) => t.inner_padding,
            bit if bit < value.start => t.low_padding,
            _ => t.high_padding,
        };
        if padding {
            set_bit(&mut bytes, t.order, bit);
        }
    }
    set_bits(&mut bytes, t.order, t.sign_location.into(), 1, negative.into(), false);
    set_bits(&mut bytes, t.order, t.exponent_location.into(), t.exponent_size.into(), fields.exponent.into(), false);
    set_bits(&mut bytes, t.order, t.mantissa_location.into(), t.mantissa_size.into(), fields.mantissa, false);
    bytes
}

/// [`parse`] of IEEE single and double in the fast way of the standard library.
pub fn parse_ieee(t: &FloatingPoint, size: usize, text: &[u8]) -> Option<Result<Vec<u8>>> {
    let name = super::super::names::float_layout(t, u32::try_from(size).ok()?)?;
    let text = std::str::from_utf8(text.trim_ascii()).ok().filter(|t| t.bytes().all(|b| b.is_ascii_digit() || b"+-.eE".contains(&b)))?;
    let too_large = || -> Error { out_of_range(format!("{} is beyond what the type holds", shown(text.as_bytes()))) };
    let mut bytes = match name {
        "H5T_IEEE_F32" => text.parse::<f32>().ok().map(|x| x.is_finite().then(|| x.to_le_bytes().to_vec()))?,
        "H5T_IEEE_F64" => text.parse::<f64>().ok().map(|x| x.is_finite().then(|| x.to_le_bytes().to_vec()))?,
        _ => return None,
    };
    if let (Some(bytes), ByteOrder::BigEndian) = (&mut bytes, t.order) {
        bytes.reverse();
    }
    Some(bytes.ok_or_else(too_large))
}

#[cfg(test)]
mod tests {
    use super::*;

    const F64: FloatingPoint = FloatingPoint {
        order: ByteOrder::LittleEndian,
        low_padding: false,
        high_padding: false,
        inner_padding: false,
        normalization: Normalization::Implied,
        sign_location: 63,
        offset: 0,
        precision: 64,
        exponent_location: 52,
        exponent_size: 11,
        mantissa_location: 0,
        mantissa_size: 52,
        exponent_bias: 1023,
    };

    #[test]
    fn rounds_as_the_standard_library() {
        let f32_ = FloatingPoint {
            sign_location: 31,
            precision: 32,
            exponent_location: 23,
            exponent_size: 8,
            mantissa_size: 23,
            exponent_bias: 127,
            ..F64
        };
        let mut texts: Vec<String> = [
            "0",
            "-0",
            "-0.0",
            "1",
            "0.1",
            "1e23",
            "9007199254740993",
            "9007199254740992.99999",
            "5e-324",
            "2.4703282292062327e-324",
            "2.4703282292062328e-324",
            "2.2250738585072011e-308",
            "1.7976931348623158e308",
            "3.4028235677973366e38",
            "3.4028235e38",
            "1e-45",
            "7.006492321624085e-46",
            "7.0064923216240862e-46",
            "16777217",
            "16777219",
            ".5",
            "5.",
            "1e-999999999999999999999",
            "0e99999",
            "1e400",
            "1e-5000",
        ]
        .map(str::to_owned)
        .to_vec();
        let mut state = 88172645463325252u64;
        for _ in 0..2000 {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            texts.push(format!("{:e}", f64::from_bits(state)));
            texts.push(format!("{}e{}", state >> 20, state as i64 % 60));
        }
        for text in texts {
            let (x, y) = (text.parse::<f64>().unwrap(), text.parse::<f32>().unwrap());
            if x.is_nan() {
                continue;
            }
            let shown = text.replace("inf", "1e99999");
            for (t, size, want) in
                [(F64, 8, x.is_finite().then(|| x.to_le_bytes().to_vec())), (f32_, 4, y.is_finite().then(|| y.to_le_bytes().to_vec()))]
            {
                assert_eq!(parse(&t, size, shown.as_bytes()).ok(), want, "{text}");
                assert_eq!(parse_ieee(&t, size, shown.as_bytes()).unwrap().ok(), want, "{text}");
            }
        }
    }

    #[test]
    fn what_is_no_number_is_refused() {
        for text in ["", "-", ".", "e5", "1e", "1e+", "1.5.2", "1x", "0x12", "--1", "1 2", "\u{e4}"] {
            assert!(matches!(parse(&F64, 8, text.as_bytes()), Err(Error::Refused { errno: libc::EINVAL, .. })), "{text}");
            assert!(!matches!(parse_ieee(&F64, 8, text.as_bytes()), Some(Ok(_))), "{text}");
        }
        assert_eq!(parse(&F64, 8, b"0x0000000000000840").unwrap(), 3f64.to_le_bytes());
        assert_eq!(parse(&F64, 8, b" -inf\n").unwrap(), f64::NEG_INFINITY.to_le_bytes());
        assert!(f64::from_le_bytes(parse(&F64, 8, b"NaN").unwrap().try_into().unwrap()).is_nan());
        let long = format!("1.{}1", "0".repeat(60_000));
        assert_eq!(parse(&F64, 8, long.as_bytes()).unwrap(), 1f64.to_le_bytes());
        assert!(parse(&F64, 8, "9".repeat(60_000).as_bytes()).is_err());
    }
}
