//! Properties of the numeric classes: fixed-point, floating-point, time, bit field.
//!
//! ```text
//! fixed-point, bit field   u16 bit offset, u16 precision
//! floating-point           u16 bit offset, u16 precision, u8 exponent location, u8 exponent size,
//!                          u8 mantissa location, u8 mantissa size, u32 exponent bias
//! time                     u16 precision
//! ```
//!
//! Class bit field: bit 0 is the byte order, 1 and 2 the padding below and above the value.
//! Fixed-point: 3 signed. Floating-point: 3 padding inside, 4-5 normalization, 6 VAX order (with
//! bit 0, from version 3), 8-15 location of the sign. Locations are bit numbers, counted from the
//! lowest bit of the element. Source: section IV.A.2.d of the specification, classes 0, 1, 2 and 4.

use super::{Bitfield, ByteOrder, FixedPoint, FloatingPoint, Header, Normalization, Time};
use crate::base::Result;
use crate::format::{Reader, Writer};

impl ByteOrder {
    fn of_bit(bits: u32) -> ByteOrder {
        if bits & 1 == 0 { ByteOrder::LittleEndian } else { ByteOrder::BigEndian }
    }

    fn bit(self) -> u32 {
        u32::from(self != ByteOrder::LittleEndian)
    }
}

fn flag(bits: u32, n: u32) -> bool {
    bits >> n & 1 == 1
}

fn field(on: bool, n: u32) -> u32 {
    u32::from(on) << n
}

/// Checks that `len` bits from `location` are within an element.
fn check_bits(r: &Reader<'_>, h: &Header, what: &'static str, location: u64, len: u64) -> Result<()> {
    if len == 0 {
        return Err(r.corrupt(format!("the {what} has no bits")));
    }
    if location.saturating_add(len) > h.bit_size() {
        return Err(r.corrupt(format!(
            "the {what} has bits {location} to {} of {} in the element",
            location.saturating_add(len),
            h.bit_size()
        )));
    }
    Ok(())
}

impl FixedPoint {
    pub(super) fn decode(r: &mut Reader<'_>, h: &Header) -> Result<Self> {
        let (offset, precision) = (r.u16()?, r.u16()?);
        check_bits(r, h, "integer", offset.into(), precision.into())?;
        Ok(FixedPoint {
            order: ByteOrder::of_bit(h.bits),
            low_padding: flag(h.bits, 1),
            high_padding: flag(h.bits, 2),
            signed: flag(h.bits, 3),
            offset,
            precision,
        })
    }

    pub(super) fn bits(&self) -> u32 {
        self.order.bit() | field(self.low_padding, 1) | field(self.high_padding, 2) | field(self.signed, 3)
    }

    pub(super) fn encode(&self, w: &mut Writer) {
        w.u16(self.offset).u16(self.precision);
    }
}

impl FloatingPoint {
    pub(super) fn decode(r: &mut Reader<'_>, h: &Header) -> Result<Self> {
        let order = match (flag(h.bits, 0), h.version >= 3 && flag(h.bits, 6)) {
            (true, true) => ByteOrder::Vax,
            (false, true) => return Err(r.corrupt("the byte order of a floating-point datatype is undefined")),
            _ => ByteOrder::of_bit(h.bits),
        };
        let normalization = match h.bits >> 4 & 3 {
            0 => Normalization::None,
            1 => Normalization::MsbSet,
            2 => Normalization::Implied,
            _ => return Err(r.corrupt("the mantissa normalization is undefined")),
        };
        let (offset, precision) = (r.u16()?, r.u16()?);
        let [exponent_location, exponent_size, mantissa_location, mantissa_size] = r.array()?;
        let f = FloatingPoint {
            order,
            low_padding: flag(h.bits, 1),
            high_padding: flag(h.bits, 2),
            inner_padding: flag(h.bits, 3),
            normalization,
            sign_location: (h.bits >> 8 & 0xff) as u8,
            offset,
            precision,
            exponent_location,
            exponent_size,
            mantissa_location,
            mantissa_size,
            exponent_bias: r.u32()?,
        };
        f.check(r, h)?;
        Ok(f)
    }

    fn check(&self, r: &Reader<'_>, h: &Header) -> Result<()> {
        let sign = (u64::from(self.sign_location), 1);
        let exponent = (u64::from(self.exponent_location), u64::from(self.exponent_size));
        let mantissa = (u64::from(self.mantissa_location), u64::from(self.mantissa_size));
        check_bits(r, h, "sign", sign.0, sign.1)?;
        check_bits(r, h, "exponent", exponent.0, exponent.1)?;
        check_bits(r, h, "mantissa", mantissa.0, mantissa.1)?;
        let overlap = |a: (u64, u64), b: (u64, u64)| a.0 < b.0.saturating_add(b.1) && b.0 < a.0.saturating_add(a.1);
        if overlap(sign, exponent) || overlap(sign, mantissa) || overlap(exponent, mantissa) {
            return Err(r.corrupt("sign, exponent and mantissa overlap"));
        }
        Ok(())
    }

    pub(super) fn bits(&self) -> u32 {
        let normalization = match self.normalization {
            Normalization::None => 0,
            Normalization::MsbSet => 1,
            Normalization::Implied => 2,
        };
        self.order.bit()
            | field(self.low_padding, 1)
            | field(self.high_padding, 2)
            | field(self.inner_padding, 3)
            | normalization << 4
            | field(self.order == ByteOrder::Vax, 6)
            | u32::from(self.sign_location) << 8
    }

    pub(super) fn encode(&self, w: &mut Writer) {
        w.u16(self.offset).u16(self.precision);
        w.u8(self.exponent_location).u8(self.exponent_size).u8(self.mantissa_location).u8(self.mantissa_size);
        w.u32(self.exponent_bias);
    }
}

impl Time {
    pub(super) fn decode(r: &mut Reader<'_>, h: &Header) -> Result<Self> {
        let t = Time { order: ByteOrder::of_bit(h.bits), precision: r.u16()? };
        check_bits(r, h, "time", 0, t.precision.into())?;
        Ok(t)
    }

    pub(super) fn bits(&self) -> u32 {
        self.order.bit()
    }

    pub(super) fn encode(&self, w: &mut Writer) {
        w.u16(self.precision);
    }
}

impl Bitfield {
    pub(super) fn decode(r: &mut Reader<'_>, h: &Header) -> Result<Self> {
        let (offset, precision) = (r.u16()?, r.u16()?);
        check_bits(r, h, "bit field", offset.into(), precision.into())?;
        Ok(Bitfield { order: ByteOrder::of_bit(h.bits), low_padding: flag(h.bits, 1), high_padding: flag(h.bits, 2), offset, precision })
    }

    pub(super) fn bits(&self) -> u32 {
        self.order.bit() | field(self.low_padding, 1) | field(self.high_padding, 2)
    }

    pub(super) fn encode(&self, w: &mut Writer) {
        w.u16(self.offset).u16(self.precision);
    }
}
