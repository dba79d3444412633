//! Properties of the numeric classes: fixed-point, floating-point, time, bit field.

/// Order of an element's bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ByteOrder {
    /// Lowest byte first.
    LittleEndian,
    /// Highest byte first.
    BigEndian,
    /// 16-bit words highest first, each lowest byte first.
    Vax,
}

/// Properties of an integer datatype.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FixedPoint {
    /// Byte order; never VAX.
    pub order: ByteOrder,
    /// Padding bit below the value.
    pub low_padding: bool,
    /// Padding bit above the value.
    pub high_padding: bool,
    /// True for two's complement.
    pub signed: bool,
    /// Number of bits below the value.
    pub offset: u16,
    /// Number of bits of the value.
    pub precision: u16,
}

/// Storage of the highest mantissa bit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Normalization {
    /// Not normalized: the mantissa is as stored.
    None,
    /// Stored, and always 1 except for zero.
    MsbSet,
    /// Not stored; implied to be 1.
    Implied,
}

/// Properties of a floating-point datatype.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FloatingPoint {
    /// Byte order.
    pub order: ByteOrder,
    /// Padding bit below the value.
    pub low_padding: bool,
    /// Padding bit above the value.
    pub high_padding: bool,
    /// Padding bit between sign, exponent and mantissa.
    pub inner_padding: bool,
    /// Storage of the highest mantissa bit.
    pub normalization: Normalization,
    /// Location of the sign bit.
    pub sign_location: u8,
    /// Number of bits below the value (informative: locations count from bit 0 of the element).
    pub offset: u16,
    /// Number of bits of the value.
    pub precision: u16,
    /// Lowest bit of the exponent.
    pub exponent_location: u8,
    /// Number of exponent bits.
    pub exponent_size: u8,
    /// Lowest bit of the mantissa.
    pub mantissa_location: u8,
    /// Number of mantissa bits.
    pub mantissa_size: u8,
    /// Bias of the exponent.
    pub exponent_bias: u32,
}

/// Properties of a UNIX time datatype.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Time {
    /// Byte order; never VAX.
    pub order: ByteOrder,
    /// Number of bits of the value.
    pub precision: u16,
}

/// Properties of a bit field datatype.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bitfield {
    /// Byte order; never VAX.
    pub order: ByteOrder,
    /// Padding bit below the value.
    pub low_padding: bool,
    /// Padding bit above the value.
    pub high_padding: bool,
    /// Number of bits below the value.
    pub offset: u16,
    /// Number of bits of the value.
    pub precision: u16,
}
