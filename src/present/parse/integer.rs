//! Integers of any precision into the bits of an element.

use super::{invalid, out_of_range, shown};
use crate::base::Result;
use crate::base::datatype::ByteOrder;

/// Place of an integer in its element and what surrounds it.
#[derive(Debug, Clone, Copy)]
pub struct Layout {
    /// Byte order.
    pub order: ByteOrder,
    /// Bits below the value.
    pub offset: u16,
    /// Bits of the value; not 0.
    pub precision: u16,
    /// Two's complement.
    pub signed: bool,
    /// Bits below the value are 1.
    pub low_padding: bool,
    /// Bits above the value are 1.
    pub high_padding: bool,
}

/// Sets bit `bit` of an element, counted from its lowest, to 1; nothing when the element has no
/// such bit.
pub fn set_bit(bytes: &mut [u8], order: ByteOrder, bit: u64) {
    let Some(last) = bytes.len().checked_sub(1) else { return };
    let Ok(i) = usize::try_from(bit / 8) else { return };
    let at = match order {
        ByteOrder::LittleEndian => Some(i),
        ByteOrder::BigEndian => last.checked_sub(i),
        ByteOrder::Vax => last.checked_sub(i).map(|i| i ^ 1),
    };
    if let Some(byte) = at.and_then(|at| bytes.get_mut(at)) {
        *byte |= 1u8 << (bit % 8);
    }
}

/// Sets the bits of `value` from `location` on; `len` at most 128, higher ones repeat bit 127 of a
/// signed value.
pub fn set_bits(bytes: &mut [u8], order: ByteOrder, location: u64, len: u64, value: u128, extend: bool) {
    let bits = (bytes.len() as u64).saturating_mul(8);
    for i in 0..len.min(bits) {
        let on = if i < 128 { value >> i & 1 == 1 } else { extend };
        if on {
            set_bit(bytes, order, location.saturating_add(i));
        }
    }
}

/// The bytes that `text` lists in hexadecimal, exactly `size`.
pub fn raw_hex(text: &[u8], size: usize) -> Option<Vec<u8>> {
    if text.len() != size.checked_mul(2)? {
        return None;
    }
    let digit = |b: u8| char::from(b).to_digit(16).and_then(|d| u8::try_from(d).ok());
    text.chunks_exact(2).map(|pair| Some(digit(*pair.first()?)? << 4 | digit(*pair.get(1)?)?)).collect()
}

/// Sign and magnitude of decimal or `0x` hexadecimal text.
fn read(text: &str) -> Option<(bool, &str, u32)> {
    let (negative, digits) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let (digits, radix) = match digits.strip_prefix("0x") {
        Some(digits) => (digits, 16),
        None => (digits, 10),
    };
    let fine = !digits.is_empty() && digits.chars().all(|c| c.is_digit(radix));
    fine.then_some((negative, digits, radix))
}

/// The element of `size` bytes that holds the integer `text`. Integers of more than 128 bits are
/// also read in the form they are shown in: `0x` and the element's bytes, first byte first.
pub fn parse(layout: &Layout, size: usize, text: &[u8]) -> Result<Vec<u8>> {
    let trimmed = text.trim_ascii();
    let precision = u64::from(layout.precision);
    if precision > 128
        && let Some(raw) = trimmed.strip_prefix(b"0x").and_then(|hex| raw_hex(hex, size))
    {
        return Ok(raw);
    }
    let number = std::str::from_utf8(trimmed).ok().and_then(read);
    let (negative, digits, radix) = number.ok_or_else(|| invalid(format!("{} is no integer", shown(text))))?;
    let too_large = || {
        let sign = if layout.signed { "signed" } else { "unsigned" };
        out_of_range(format!("{} does not fit {precision} bits, {sign}", shown(text)))
    };
    let magnitude = u128::from_str_radix(digits, radix).map_err(|_| too_large())?;
    // Largest magnitude on either side of 0.
    let bits = precision.min(128) as u32;
    let (below, above) = match layout.signed {
        true => (1u128 << (bits - 1), (1u128 << (bits - 1)) - 1),
        false => (0, if bits == 128 { u128::MAX } else { (1u128 << bits) - 1 }),
    };
    let fits = magnitude <= if negative { below } else { above };
    // 128 bits of magnitude fit any wider integer.
    if !(fits || precision > 128 && (layout.signed || !negative)) {
        return Err(too_large());
    }
    let mut bytes = vec![0; size];
    let value = if negative { magnitude.wrapping_neg() } else { magnitude };
    pad(layout, &mut bytes);
    set_bits(&mut bytes, layout.order, layout.offset.into(), precision, value, negative && magnitude != 0);
    Ok(bytes)
}

fn pad(layout: &Layout, bytes: &mut [u8]) {
    let bits = (bytes.len() as u64).saturating_mul(8);
    let end = u64::from(layout.offset).saturating_add(layout.precision.into());
    let below = (0..u64::from(layout.offset)).filter(|_| layout.low_padding);
    let above = (end..bits).filter(|_| layout.high_padding);
    for bit in below.chain(above) {
        set_bit(bytes, layout.order, bit);
    }
}
