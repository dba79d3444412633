//! Predefined datatypes: the names libhdf5 and hdf5-json give to standard types.

use crate::base::datatype::{
    ByteOrder, CharacterSet, Class, Datatype, FloatingPoint, Normalization, Reference, ReferenceKind, StringPadding,
};

/// A floating-point layout that has a name.
struct Layout {
    name: &'static str,
    /// Size in bytes, precision, sign location, exponent location and size, mantissa size, bias.
    fields: (u32, u16, u8, u8, u8, u8, u32),
    vax: bool,
}

const LAYOUTS: [Layout; 11] = [
    Layout { name: "H5T_IEEE_F16", fields: (2, 16, 15, 10, 5, 10, 15), vax: false },
    Layout { name: "H5T_IEEE_F32", fields: (4, 32, 31, 23, 8, 23, 127), vax: false },
    Layout { name: "H5T_IEEE_F64", fields: (8, 64, 63, 52, 11, 52, 1023), vax: false },
    Layout { name: "H5T_FLOAT_BFLOAT16", fields: (2, 16, 15, 7, 8, 7, 127), vax: false },
    Layout { name: "H5T_FLOAT_F8E4M3", fields: (1, 8, 7, 3, 4, 3, 7), vax: false },
    Layout { name: "H5T_FLOAT_F8E5M2", fields: (1, 8, 7, 2, 5, 2, 15), vax: false },
    Layout { name: "H5T_FLOAT_F6E2M3", fields: (1, 6, 5, 3, 2, 3, 1), vax: false },
    Layout { name: "H5T_FLOAT_F6E3M2", fields: (1, 6, 5, 2, 3, 2, 3), vax: false },
    Layout { name: "H5T_FLOAT_F4E2M1", fields: (1, 4, 3, 1, 2, 1, 1), vax: false },
    Layout { name: "H5T_VAX_F32", fields: (4, 32, 31, 23, 8, 23, 129), vax: true },
    Layout { name: "H5T_VAX_F64", fields: (8, 64, 63, 52, 11, 52, 1025), vax: true },
];

/// Byte order as libhdf5 names it.
pub fn order(o: ByteOrder) -> &'static str {
    match o {
        ByteOrder::LittleEndian => "H5T_ORDER_LE",
        ByteOrder::BigEndian => "H5T_ORDER_BE",
        ByteOrder::Vax => "H5T_ORDER_VAX",
    }
}

fn suffix(o: ByteOrder) -> &'static str {
    if o == ByteOrder::BigEndian { "BE" } else { "LE" }
}

/// String padding as libhdf5 names it.
pub fn padding(p: StringPadding) -> String {
    match p {
        StringPadding::NullTerminated => "H5T_STR_NULLTERM".into(),
        StringPadding::NullPadded => "H5T_STR_NULLPAD".into(),
        StringPadding::SpacePadded => "H5T_STR_SPACEPAD".into(),
        StringPadding::Reserved(n) => format!("H5T_STR_RESERVED_{n}"),
    }
}

/// Character set as libhdf5 names it.
pub fn charset(c: CharacterSet) -> String {
    match c {
        CharacterSet::Ascii => "H5T_CSET_ASCII".into(),
        CharacterSet::Utf8 => "H5T_CSET_UTF8".into(),
        CharacterSet::Reserved(n) => format!("H5T_CSET_RESERVED_{n}"),
    }
}

/// Reference type as hdf5-json names it.
pub fn reference(r: &Reference) -> &'static str {
    match r.kind {
        ReferenceKind::Object1 => "H5T_STD_REF_OBJ",
        ReferenceKind::DatasetRegion1 => "H5T_STD_REF_DSETREG",
        ReferenceKind::Object2 | ReferenceKind::DatasetRegion2 | ReferenceKind::Attribute => "H5T_STD_REF",
    }
}

/// True for an integer-like layout that fills a whole 1-, 2-, 4- or 8-byte element.
fn is_whole(size: u32, offset: u16, precision: u16) -> bool {
    matches!(size, 1 | 2 | 4 | 8) && offset == 0 && u32::from(precision) == size.saturating_mul(8)
}

/// Name of a standard floating-point layout without byte order, e.g. `H5T_IEEE_F64`.
pub fn float_layout(f: &FloatingPoint, size: u32) -> Option<&'static str> {
    let fields = (size, f.precision, f.sign_location, f.exponent_location, f.exponent_size, f.mantissa_size, f.exponent_bias);
    let plain = f.normalization == Normalization::Implied
        && f.offset == 0
        && f.mantissa_location == 0
        && !(f.low_padding || f.high_padding || f.inner_padding);
    let vax = f.order == ByteOrder::Vax;
    LAYOUTS.iter().find(|l| plain && l.fields == fields && l.vax == vax).map(|l| l.name)
}

/// The layout and size in bytes of a standard floating-point type by its name without byte order,
/// the inverse of [`float_layout`].
pub fn float_by_name(name: &str, order: ByteOrder) -> Option<(FloatingPoint, u32)> {
    let layout = LAYOUTS.iter().find(|l| l.name == name)?;
    let (size, precision, sign_location, exponent_location, exponent_size, mantissa_size, exponent_bias) = layout.fields;
    let float = FloatingPoint {
        order: if layout.vax { ByteOrder::Vax } else { order },
        low_padding: false,
        high_padding: false,
        inner_padding: false,
        normalization: Normalization::Implied,
        sign_location,
        offset: 0,
        precision,
        exponent_location,
        exponent_size,
        mantissa_location: 0,
        mantissa_size,
        exponent_bias,
    };
    Some((float, size))
}

/// The x87 extended format in 16 little-endian bytes.
pub fn x87_in_16() -> FloatingPoint {
    FloatingPoint {
        order: ByteOrder::LittleEndian,
        low_padding: false,
        high_padding: false,
        inner_padding: false,
        normalization: Normalization::None,
        sign_location: 79,
        offset: 0,
        precision: 80,
        exponent_location: 64,
        exponent_size: 15,
        mantissa_location: 0,
        mantissa_size: 64,
        exponent_bias: 16383,
    }
}

/// True for the x87 extended format in 16 little-endian bytes (`long double` of x86-64).
pub fn is_x87_in_16(f: &FloatingPoint, size: u32) -> bool {
    let fields = (f.sign_location, f.exponent_location, f.exponent_size, f.mantissa_location, f.mantissa_size);
    size == 16
        && fields == (79, 64, 15, 0, 64)
        && f.exponent_bias == 16383
        && f.order == ByteOrder::LittleEndian
        && f.normalization == Normalization::None
}

/// Predefined name of a number, time, bit field or complex type, e.g. `H5T_STD_I32LE`; `None` when
/// it has none.
pub fn standard(t: &Datatype) -> Option<String> {
    let bits = t.size.saturating_mul(8);
    match &t.class {
        Class::FixedPoint(f) if is_whole(t.size, f.offset, f.precision) && !f.low_padding && !f.high_padding => {
            Some(format!("H5T_STD_{}{bits}{}", if f.signed { 'I' } else { 'U' }, suffix(f.order)))
        }
        Class::Bitfield(b) if is_whole(t.size, b.offset, b.precision) && !b.low_padding && !b.high_padding => {
            Some(format!("H5T_STD_B{bits}{}", suffix(b.order)))
        }
        Class::Time(u) if matches!(t.size, 4 | 8) && u32::from(u.precision) == bits => Some(format!("H5T_UNIX_D{bits}{}", suffix(u.order))),
        Class::FloatingPoint(f) => {
            let name = float_layout(f, t.size)?;
            let ordered = t.size > 1 && f.order != ByteOrder::Vax;
            Some(format!("{name}{}", if ordered { suffix(f.order) } else { "" }))
        }
        Class::Complex(c) => {
            let base = standard(&c.base)?;
            base.starts_with("H5T_IEEE_").then(|| base.replacen("H5T_IEEE_", "H5T_COMPLEX_IEEE_", 1))
        }
        _ => None,
    }
}

/// True when members follow each other without gaps in stored order and fill the element.
pub fn is_packed(t: &Datatype) -> bool {
    let end = t.members().iter().try_fold(0, |end, m| (u64::from(m.offset) == end).then(|| m.end()));
    end == Some(t.element_size())
}
