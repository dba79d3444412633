//! Datatypes, shapes and filters in short, on one line that is safe to print.
//!
//! | datatype | short text |
//! |---|---|
//! | integer, floating-point | `int32`, `uint8`, `float64`; `BE` or `VAX` follows where it is so |
//! | number that does not fill its bytes | `int16 (12 bits)`, `float (24 bits)` |
//! | string | `str`, `str[5]` |
//! | enumeration | `bool`, `enum{RED, GREEN}` |
//! | compound | `complex64`, `compound{a: int32, b: float32}` |
//! | array, sequence | `int32[3]`, `vlen int32` |
//! | others | `bitfield8`, `opaque[5]`, `datetime64[ns]`, `time`, `object reference` |

use super::names;
use super::numpy::{NumpyDtype, numpy_dtype};
use crate::base::datatype::{ByteOrder, Class, Compound, Datatype, Enumeration, FixedPoint, FloatingPoint, Normalization, ReferenceKind};
use crate::base::escape::escaped_bytes;
use crate::base::filter_spec::FilterSpec;
use crate::base::shape::Shape;
use crate::connector::filters::{DEFLATE, id_of, registered_name};

/// Stands for what was left out.
pub const MORE: &str = "...";
/// Most characters of one name inside a type.
const NAME_CHARS: usize = 24;
/// Most characters of the name of a filter that is not registered.
const FILTER_CHARS: usize = 16;
/// Levels of types within each other that are shown.
const DEPTH_MAX: usize = 16;

/// The first `chars` characters of `text`; `...` replaces the last ones of a longer text.
pub fn cut(text: &str, chars: usize) -> String {
    match text.char_indices().nth(chars) {
        None => text.to_owned(),
        Some(_) => text.chars().take(chars.saturating_sub(MORE.len())).collect::<String>() + MORE,
    }
}

/// A name from a file, escaped and cut.
pub fn name_brief(name: &[u8], chars: usize) -> String {
    // An escape has at most four characters for one byte; a cut name shows fewer bytes.
    let start = name.get(..chars.saturating_mul(4)).unwrap_or(name);
    cut(&escaped_bytes(start).to_string(), chars)
}

/// A datatype in about `chars` characters at most.
pub fn type_brief(t: &Datatype, chars: usize) -> String {
    brief(t, chars, DEPTH_MAX)
}

fn brief(t: &Datatype, chars: usize, depth: usize) -> String {
    let Some(depth) = depth.checked_sub(1) else { return MORE.into() };
    match &t.class {
        Class::FixedPoint(f) => integer(f, t.size),
        Class::FloatingPoint(f) => float(f, t.size),
        Class::Time(_) => "time".into(),
        Class::String(_) => format!("str[{}]", t.size),
        Class::Bitfield(b) => format!("bitfield{}", b.precision),
        Class::Opaque(_) => date(t).unwrap_or_else(|| format!("opaque[{}]", t.size)),
        Class::Compound(c) => complex(t).unwrap_or_else(|| compound(c, chars, depth)),
        Class::Reference(r) => match r.kind {
            ReferenceKind::Object1 | ReferenceKind::Object2 => "object reference".into(),
            ReferenceKind::DatasetRegion1 | ReferenceKind::DatasetRegion2 => "region reference".into(),
            ReferenceKind::Attribute => "attribute reference".into(),
        },
        Class::Enumeration(_) if is_bool(t) => "bool".into(),
        Class::Enumeration(e) => enumeration(e, chars),
        Class::VariableLength(_) if t.is_vlen_string() => "str".into(),
        Class::VariableLength(v) => format!("vlen {}", brief(&v.base, chars, depth)),
        Class::Array(a) => {
            let dims: Vec<String> = a.dims.iter().map(u32::to_string).collect();
            format!("{}[{}]", brief(&a.base, chars, depth), dims.join(", "))
        }
        Class::Complex(c) => complex(t).unwrap_or_else(|| format!("complex({})", brief(&c.base, chars, depth))),
    }
}

/// Suffix of a number whose bytes are not in the usual order.
fn order(order: ByteOrder, size: u32) -> &'static str {
    match order {
        ByteOrder::BigEndian if size > 1 => " BE",
        ByteOrder::Vax => " VAX",
        _ => "",
    }
}

fn integer(f: &FixedPoint, size: u32) -> String {
    let sign = if f.signed { "int" } else { "uint" };
    let bits = size.saturating_mul(8);
    let part = if f.offset == 0 && u32::from(f.precision) == bits { String::new() } else { format!(" ({} bits)", f.precision) };
    format!("{sign}{bits}{}{part}", order(f.order, size))
}

fn float(f: &FloatingPoint, size: u32) -> String {
    let name = match names::float_layout(f, size) {
        Some("H5T_IEEE_F16") => "float16",
        Some("H5T_IEEE_F32" | "H5T_VAX_F32") => "float32",
        Some("H5T_IEEE_F64" | "H5T_VAX_F64") => "float64",
        Some("H5T_FLOAT_BFLOAT16") => "bfloat16",
        Some("H5T_FLOAT_F8E4M3") => "float8_e4m3",
        Some("H5T_FLOAT_F8E5M2") => "float8_e5m2",
        Some("H5T_FLOAT_F6E2M3") => "float6_e2m3",
        Some("H5T_FLOAT_F6E3M2") => "float6_e3m2",
        Some("H5T_FLOAT_F4E2M1") => "float4_e2m1",
        _ if names::is_x87_in_16(f, size) => return "float128 (80 bits)".into(),
        _ if is_quadruple(f, size) => "float128",
        _ => return format!("float ({} bits){}", f.precision, order(f.order, size)),
    };
    format!("{name}{}", order(f.order, size))
}

/// True for the quadruple precision of IEEE 754.
fn is_quadruple(f: &FloatingPoint, size: u32) -> bool {
    let fields = (f.sign_location, f.exponent_location, f.exponent_size, f.mantissa_location, f.mantissa_size, f.exponent_bias);
    size == 16 && fields == (127, 112, 15, 0, 112, 16383) && f.normalization == Normalization::Implied
}

/// True for the enumeration of one byte that h5py makes of booleans.
pub fn is_bool(t: &Datatype) -> bool {
    let Class::Enumeration(e) = &t.class else { return false };
    e.members().len() == 2 && matches!(numpy_dtype(t), Some(NumpyDtype::Plain(s)) if s == "|b1")
}

/// The opaque type in which h5py keeps numpy's dates and time differences.
fn date(t: &Datatype) -> Option<String> {
    let Some(NumpyDtype::Plain(s)) = numpy_dtype(t) else { return None };
    let unit = s.get(3..)?;
    match s.get(1..3)? {
        "M8" => Some(format!("datetime64{unit}")),
        "m8" => Some(format!("timedelta64{unit}")),
        _ => None,
    }
}

/// Complex numbers: those of libhdf5, and the compound of `r` and `i` that h5py makes.
fn complex(t: &Datatype) -> Option<String> {
    if matches!(&t.class, Class::Compound(c) if c.members.len() != 2) {
        return None;
    }
    let Some(NumpyDtype::Plain(s)) = numpy_dtype(t) else { return None };
    let bytes: u32 = s.get(1..)?.strip_prefix('c')?.parse().ok()?;
    Some(format!("complex{}{}", bytes.saturating_mul(8), if s.starts_with('>') { " BE" } else { "" }))
}

/// True if elements are shown as complex numbers.
pub fn is_complex(t: &Datatype) -> bool {
    matches!(t.class, Class::Compound(_) | Class::Complex(_)) && complex(t).is_some()
}

/// `KIND{ITEM, ITEM, ...}` in about `chars` characters; at least one item is whole.
fn braced(kind: &str, items: impl Iterator<Item = String>, chars: usize) -> String {
    let mut out = format!("{kind}{{");
    let (mut items, mut length) = (items.enumerate().peekable(), out.len());
    while let Some((i, item)) = items.next() {
        // After an item comes a brace, or a comma and more.
        let after = if items.peek().is_none() { 1 } else { ", ...}".len() };
        length = length.saturating_add(item.chars().count());
        if i > 0 {
            out.push_str(", ");
            length = length.saturating_add(2);
            if length.saturating_add(after) > chars {
                out.push_str(MORE);
                break;
            }
        }
        out.push_str(&item);
    }
    out.push('}');
    out
}

fn compound(c: &Compound, chars: usize, depth: usize) -> String {
    let room = chars.saturating_sub("compound{}".len());
    let member = |m: &crate::base::datatype::Member| {
        let name = name_brief(&m.name.bytes, NAME_CHARS);
        let rest = room.saturating_sub(name.chars().count()).saturating_sub(2);
        format!("{name}: {}", brief(&m.datatype, rest, depth))
    };
    braced("compound", c.members.iter().map(member), chars)
}

fn enumeration(e: &Enumeration, chars: usize) -> String {
    braced("enum", e.members().iter().map(|m| name_brief(&m.name.bytes, NAME_CHARS)), chars)
}

/// A shape: `(24, 6)`, `()` of a scalar, `null`. A largest dimension that differs from the current
/// one follows it: `(24/inf, 6/12)`.
pub fn shape_brief(shape: &Shape) -> String {
    let Shape::Simple { dims, max } = shape else {
        return if *shape == Shape::Null { "null".into() } else { "()".into() };
    };
    let largest = |i: usize| max.as_ref().and_then(|max| max.get(i)).copied();
    let one = |(i, dim): (usize, &u64)| match largest(i) {
        Some(u64::MAX) => format!("{dim}/inf"),
        Some(max) if max != *dim => format!("{dim}/{max}"),
        _ => dim.to_string(),
    };
    format!("({})", dims.iter().enumerate().map(one).collect::<Vec<_>>().join(", "))
}

/// Dimensions: `(6, 6, 8)`.
pub fn dims_brief(dims: &[u64]) -> String {
    format!("({})", dims.iter().map(u64::to_string).collect::<Vec<_>>().join(", "))
}

/// Filters in the order of writing: `shuffle+gzip 4`. Empty without filters.
pub fn filters_brief(filters: &[FilterSpec]) -> String {
    filters.iter().map(filter_brief).collect::<Vec<_>>().join("+")
}

fn filter_brief(filter: &FilterSpec) -> String {
    let level = || filter.cd_values.first().map_or_else(String::new, |level| format!(" {}", level.cast_signed()));
    match registered_name(filter.id) {
        Some(_) if filter.id == DEFLATE => format!("gzip{}", level()),
        Some(name) if Some(filter.id) == id_of("zstd") => format!("{name}{}", level()),
        Some(name) => name.into(),
        None if filter.name.is_empty() => format!("filter {}", filter.id),
        None => format!("{} ({})", name_brief(&filter.name, FILTER_CHARS), filter.id),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::present::parse::parse_datatype;

    fn short(text: &str) -> String {
        type_brief(&parse_datatype(text).unwrap(), 40)
    }

    #[test]
    fn types_are_named_as_numpy_names_them() {
        for (text, brief) in [
            ("<i4", "int32"),
            (">u2", "uint16 BE"),
            ("|u1", "uint8"),
            ("<f2", "float16"),
            (">f4", "float32 BE"),
            ("<f8", "float64"),
            ("<f16", "float128 (80 bits)"),
            ("<c8", "complex64"),
            (">c16", "complex128 BE"),
            ("|b1", "bool"),
            ("|S5", "str[5]"),
            ("|V5", "opaque[5]"),
            ("<M8[ns]", "datetime64[ns]"),
            ("[('a', '<i4'), ('b', '<f4', (3,))]", "compound{a: int32, b: float32[3]}"),
            (r#"{"class":"H5T_STRING","length":"H5T_VARIABLE","charSet":"H5T_CSET_UTF8","strPad":"H5T_STR_NULLTERM"}"#, "str"),
            (r#"{"class":"H5T_VLEN","base":{"class":"H5T_INTEGER","base":"H5T_STD_I32LE"}}"#, "vlen int32"),
            (r#"{"class":"H5T_BITFIELD","base":"H5T_STD_B8LE"}"#, "bitfield8"),
            (r#"{"class":"H5T_FLOAT","base":"H5T_FLOAT_BFLOAT16LE"}"#, "bfloat16"),
            (r#"{"class":"H5T_REFERENCE","base":"H5T_STD_REF_OBJ"}"#, "object reference"),
            (r#"{"class":"H5T_REFERENCE","base":"H5T_STD_REF_DSETREG"}"#, "region reference"),
        ] {
            assert_eq!(short(text), brief, "{text}");
        }
    }

    #[test]
    fn long_types_are_cut() {
        let fields: Vec<String> = (0..60000).map(|i| format!("('field{i}', '<i4')")).collect();
        assert_eq!(short(&format!("[{}]", fields.join(", "))), "compound{field0: int32, ...}");
        let named = parse_datatype("[('a\u{1b}\u{202e}', '<i4'), ('b', '<i4')]").unwrap();
        assert_eq!(type_brief(&named, 80), "compound{a\\x1b\\xe2\\x80\\xae: int32, b: int32}");
        let mut deep = Datatype::byte();
        for _ in 0..40 {
            deep = Datatype::new(3, 1, Class::Array(crate::base::datatype::Array::new(vec![1], deep)));
        }
        assert!(type_brief(&deep, 40).starts_with("...[1][1]"));
    }

    #[test]
    fn shapes_and_filters() {
        let simple = |dims: &[u64], max: Option<&[u64]>| Shape::Simple { dims: dims.to_vec(), max: max.map(<[u64]>::to_vec) };
        assert_eq!(shape_brief(&simple(&[24, 6, 8], Some(&[u64::MAX, 6, 9]))), "(24/inf, 6, 8/9)");
        assert_eq!(shape_brief(&simple(&[3], None)), "(3)");
        assert_eq!((shape_brief(&Shape::Scalar), shape_brief(&Shape::Null)), ("()".into(), "null".into()));
        let filter = |id, values: &[u32], name: &str| FilterSpec { id, flags: 0, name: name.into(), cd_values: values.to_vec() };
        let all = [filter(2, &[8], ""), filter(1, &[4], "deflate"), filter(32015, &[u32::MAX], ""), filter(40000, &[], "my\nown")];
        assert_eq!(filters_brief(&all), "shuffle+gzip 4+zstd -1+my\\nown (40000)");
        assert_eq!(filters_brief(&[filter(700, &[], "")]), "filter 700");
    }

    #[test]
    fn texts_are_cut_by_characters() {
        assert_eq!((cut("abcdef", 6), cut("abcdefg", 6)), ("abcdef".into(), "abc...".into()));
        assert_eq!(cut("\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}", 4), "\u{e9}...");
        assert_eq!(name_brief(&[b'x'; 1000], 10), "xxxxxxx...");
    }
}
