//! Datatypes from text: numpy's notation, predefined names, names people type, JSON descriptions.
//!
//! | text | datatype |
//! |---|---|
//! | `<f8`, `>i4`, `\|u1`, `f8` (little-endian) | numbers; `<f16` is x87's 80 bits in 16 |
//! | `\|S10`, `S10` | string of 10 bytes, null-padded, as h5py has it |
//! | `\|b1`, `bool` | h5py's enumeration `FALSE`, `TRUE` |
//! | `<c16`, `complex128` | h5py's compound of `r` and `i` |
//! | `\|V5`, `<M8[ns]` | opaque; h5py's opaque with the tag `NUMPY:<M8[ns]` |
//! | `float64`, `int32`, `uint8`, ... | little-endian numbers |
//! | `str`, `bytes` | variable-length string, UTF-8 or ASCII |
//! | `H5T_IEEE_F64BE`, ... | predefined types |
//! | `[('a', '<i4'), ('b', '<f8')]`, `{'names': ...}`, `('<f8', (3,))` | compounds, arrays |
//! | `{"class": ...}` | see `description` |

use super::node::{Fields, Node};
use super::{description, invalid, not_supported, shown};
use crate::base::datatype::make::{Maker, array, complex, compound, floating, integer, opaque, string};
use crate::base::datatype::{
    Bitfield, ByteOrder, CharacterSet, Class, Compound, Datatype, EnumMember, Enumeration, Member, Name, StringPadding, Time,
};
use crate::base::{Error, Result, limits};
use crate::present::names;

/// The datatype that `text` names or describes, for a file with addresses of 8 bytes.
#[cfg(test)]
pub fn parse_datatype(text: &str) -> Result<Datatype> {
    parse_datatype_in(text, 8)
}

/// As [`parse_datatype`], for a file with addresses of `sizeof_addr` bytes.
pub fn parse_datatype_in(text: &str, sizeof_addr: u8) -> Result<Datatype> {
    let text = text.trim();
    if text.starts_with(['{', '[', '(']) {
        return from_node(&Node::parse(text.as_bytes())?, sizeof_addr);
    }
    checked(Maker { sizeof_addr }.named(text)?)
}

/// The datatype that `node` names or describes.
pub fn from_node(node: &Node, sizeof_addr: u8) -> Result<Datatype> {
    checked(Maker { sizeof_addr }.node(node, 0)?)
}

/// `t` if it is one that a file may hold.
fn checked(t: Datatype) -> Result<Datatype> {
    t.as_stored().map_err(|error| match error {
        Error::Corrupt { detail, .. } | Error::Unsupported { detail, .. } | Error::Limit { detail, .. } => invalid(detail),
        other => other,
    })
}

impl Maker {
    /// Type of a node inside a description `depth` levels deep.
    pub fn node(self, node: &Node, depth: usize) -> Result<Datatype> {
        if depth >= limits::DATATYPE_DEPTH_MAX {
            return Err(invalid(format!("datatypes nested deeper than {}", limits::DATATYPE_DEPTH_MAX)));
        }
        match node {
            Node::String(s) => self.named(std::str::from_utf8(s).map_err(|_| invalid(format!("{} is no datatype", shown(s))))?),
            Node::Object(fields) if fields.iter().any(|(name, _)| name == b"class") => description::datatype(self, node, depth),
            Node::Object(_) => self.record(node, depth),
            Node::Array(items) => match items.as_slice() {
                // A pair of a type and a shape, where a list of fields would begin with one.
                [base @ (Node::String(_) | Node::Object(_)), shape] => array(dims(shape)?, self.node(base, depth.saturating_add(1))?),
                [base @ Node::Array(_), shape @ (Node::Number(_) | Node::Array(_))] if dims(shape).is_ok() => {
                    array(dims(shape)?, self.node(base, depth.saturating_add(1))?)
                }
                items => self.fields(items, depth),
            },
            other => Err(invalid(format!("a datatype cannot be {}", other.kind()))),
        }
    }

    /// Type by one of its names.
    pub fn named(self, name: &str) -> Result<Datatype> {
        let name = name.trim();
        if let Some(t) = predefined(name) {
            return Ok(t);
        }
        let notation = match name {
            "float16" | "half" => "<f2",
            "float32" | "single" => "<f4",
            "float64" | "double" | "float" => "<f8",
            "longdouble" | "float128" => "<f16",
            "int8" => "<i1",
            "int16" => "<i2",
            "int32" => "<i4",
            "int64" | "int" => "<i8",
            "uint8" => "<u1",
            "uint16" => "<u2",
            "uint32" => "<u4",
            "uint64" | "uint" => "<u8",
            "bool" | "?" => "|b1",
            "complex64" => "<c8",
            "complex128" | "complex" => "<c16",
            "complex256" => "<c32",
            "bfloat16" => return predefined("H5T_FLOAT_BFLOAT16LE").ok_or_else(|| invalid("no such datatype")),
            "str" => return Ok(self.variable_string(StringPadding::NullTerminated, CharacterSet::Utf8)),
            "bytes" => return Ok(self.variable_string(StringPadding::NullTerminated, CharacterSet::Ascii)),
            other => other,
        };
        plain(notation).unwrap_or_else(|| Err(invalid(format!("{} is no datatype", shown(name.as_bytes())))))
    }

    /// numpy's `{'names': [...], 'formats': [...], 'offsets': [...], 'itemsize': n}`.
    fn record(self, node: &Node, depth: usize) -> Result<Datatype> {
        let f = Fields::new("a datatype", node, &["names", "formats", "offsets", "itemsize", "aligned", "titles"])?;
        let (names, formats) = (f.need("names")?.array("names")?, f.need("formats")?.array("formats")?);
        let offsets = f.get("offsets").map(|o| o.array("offsets")).transpose()?;
        if names.len() != formats.len() || offsets.is_some_and(|o| o.len() != names.len()) {
            return Err(invalid("names, formats and offsets differ in number"));
        }
        if f.get("aligned").is_some_and(|a| *a != Node::Bool(false)) && offsets.is_none() {
            return Err(not_supported("aligned fields need their offsets given"));
        }
        let (mut members, mut end) = (Vec::new(), 0u64);
        for (i, (name, format)) in names.iter().zip(formats).enumerate() {
            let t = self.node(format, depth.saturating_add(1))?;
            let offset = match offsets.and_then(|o| o.get(i)) {
                Some(o) => o.small("an offset")?,
                None => u32::try_from(end).map_err(|_| invalid("a datatype is too large"))?,
            };
            end = end.max(u64::from(offset).saturating_add(t.element_size()));
            members.push((name.string("a field's name")?.to_vec(), offset, t));
        }
        let size = f.get("itemsize").map(|n| n.unsigned("itemsize")).transpose()?.unwrap_or(end);
        compound(members, size)
    }

    /// numpy's list of fields `(name, type[, shape])`; nameless bytes are gaps.
    fn fields(self, items: &[Node], depth: usize) -> Result<Datatype> {
        let (mut members, mut end) = (Vec::new(), 0u64);
        for item in items {
            let (name, t) = match item.array("a field")? {
                [name, t] => (name, self.node(t, depth.saturating_add(1))?),
                [name, t, shape] => (name, array(dims(shape)?, self.node(t, depth.saturating_add(1))?)?),
                _ => return Err(invalid("a field is a name, a type and perhaps a shape")),
            };
            let name = name.string("a field's name")?;
            let offset = u32::try_from(end).map_err(|_| invalid("a datatype is too large"))?;
            end = end.saturating_add(t.element_size());
            if !(name.is_empty() && matches!(t.class, Class::Opaque(_))) {
                members.push((name.to_vec(), offset, t));
            }
        }
        compound(members, end)
    }
}

/// Dimensions of an array: a list or one number.
fn dims(node: &Node) -> Result<Vec<u32>> {
    match node {
        Node::Number(_) => Ok(vec![node.small("a dimension")?]),
        other => other.array("an array's shape")?.iter().map(|d| d.small("a dimension")).collect(),
    }
}

/// A predefined type by the name that `names` gives it.
fn predefined(name: &str) -> Option<Datatype> {
    let rest = name.strip_prefix("H5T_")?;
    let (stem, order) = match (rest.strip_suffix("LE"), rest.strip_suffix("BE")) {
        (Some(stem), _) => (stem, Some(ByteOrder::LittleEndian)),
        (_, Some(stem)) => (stem, Some(ByteOrder::BigEndian)),
        _ => (rest, None),
    };
    if let Some(base) = stem.strip_prefix("COMPLEX_") {
        let suffix = rest.get(stem.len()..)?;
        return complex(predefined(&format!("H5T_{base}{suffix}"))?).ok();
    }
    let bytes = |bits: &str, allowed: &[u32]| bits.parse::<u32>().ok().map(|bits| bits / 8).filter(|n| allowed.contains(n));
    if let (Some(bits), Some(order)) = (stem.strip_prefix("STD_"), order) {
        let size = bytes(bits.get(1..)?, &[1, 2, 4, 8])?;
        let whole = integer(size, order, bits.starts_with('I'));
        let Class::FixedPoint(f) = &whole.class else { return None };
        return match bits.get(..1)? {
            "I" | "U" => Some(whole),
            "B" => {
                let (order, offset, precision) = (f.order, f.offset, f.precision);
                let class = Bitfield { order, low_padding: false, high_padding: false, offset, precision };
                Some(Datatype::new(1, size, Class::Bitfield(class)))
            }
            _ => None,
        };
    }
    if let (Some(bits), Some(order)) = (stem.strip_prefix("UNIX_D"), order) {
        let size = bytes(bits, &[4, 8])?;
        let precision = u16::try_from(size.saturating_mul(8)).ok()?;
        return Some(Datatype::new(1, size, Class::Time(Time { order, precision })));
    }
    let (f, size) = names::float_by_name(&format!("H5T_{stem}"), order.unwrap_or(ByteOrder::LittleEndian))?;
    // One byte has no order, and VAX has its own.
    let ordered = size > 1 && f.order != ByteOrder::Vax;
    (ordered == order.is_some()).then(|| floating(f, size))
}

/// numpy's notation of one type without fields; `None` when it is none.
fn plain(text: &str) -> Option<Result<Datatype>> {
    let (order, rest) = match text.chars().next()? {
        '<' | '=' | '|' => (ByteOrder::LittleEndian, text.get(1..)?),
        '>' => (ByteOrder::BigEndian, text.get(1..)?),
        _ => (ByteOrder::LittleEndian, text),
    };
    let (kind, digits) = (rest.chars().next()?, rest.get(1..)?);
    if matches!(kind, 'M' | 'm') {
        let unit = digits.strip_prefix("8[")?.strip_suffix(']')?;
        let sign = if order == ByteOrder::BigEndian { '>' } else { '<' };
        let fine = (1..=16).contains(&unit.len()) && unit.bytes().all(|b| b.is_ascii_alphanumeric());
        return fine.then(|| Ok(opaque(8, format!("NUMPY:{sign}{rest}").as_bytes())));
    }
    if !digits.bytes().all(|b| b.is_ascii_digit()) || kind == 'O' {
        return (rest == "O").then(|| Err(not_supported("objects of Python have no datatype; say \"str\" for strings")));
    }
    let size: u32 = digits.parse().ok().filter(|&n| n > 0)?;
    Some(Ok(match (kind, size) {
        ('i', 1 | 2 | 4 | 8) => integer(size, order, true),
        ('u', 1 | 2 | 4 | 8) => integer(size, order, false),
        ('f', _) => float(size, order)?,
        ('c', _) => pair(float(size / 2, order).filter(|_| size.is_multiple_of(2) && size > 4)?),
        ('b', 1) => boolean(),
        ('S' | 'a', _) => string(size, StringPadding::NullPadded, CharacterSet::Ascii),
        ('V', _) => opaque(size, b""),
        ('U', _) => return Some(Err(not_supported("HDF5 has no UTF-32 strings; say S for bytes or \"str\" for UTF-8"))),
        _ => return None,
    }))
}

/// numpy's floating-point numbers.
fn float(size: u32, order: ByteOrder) -> Option<Datatype> {
    if size == 16 {
        return (order == ByteOrder::LittleEndian).then(|| floating(names::x87_in_16(), 16));
    }
    let bits = size.saturating_mul(8);
    names::float_by_name(&format!("H5T_IEEE_F{bits}"), order).map(|(f, size)| floating(f, size))
}

/// h5py's complex number.
fn pair(part: Datatype) -> Datatype {
    let size = part.size;
    let member = |name: &str, offset, datatype| Member { name: Name::new(name), offset, datatype, array: Some(Default::default()) };
    let members = vec![member("r", 0, part.clone()), member("i", size, part)];
    Datatype::new(1, size.saturating_mul(2), Class::Compound(Compound { members }))
}

/// h5py's truth value.
fn boolean() -> Datatype {
    let member = |name: &str, value| EnumMember { name: Name::new(name), value: vec![value] };
    let base = integer(1, ByteOrder::LittleEndian, true);
    Datatype::new(1, 1, Class::Enumeration(Enumeration::new(base, vec![member("FALSE", 0), member("TRUE", 1)])))
}
