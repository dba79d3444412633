//! Datatype in numpy's notation, for types whose elements numpy can hold byte for byte.

use super::names;
use crate::base::datatype::{Bitfield, ByteOrder, Class, Compound, Datatype, Enumeration, FixedPoint, FloatingPoint, Opaque};
use std::fmt;

/// A numpy dtype with the element's exact layout. `Display` is the text `numpy.dtype` prints and
/// reads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NumpyDtype {
    /// A type string, e.g. `<f8`.
    Plain(String),
    /// A subarray; its element is no subarray and there is at least one dimension.
    Subarray(Box<NumpyDtype>, Vec<u32>),
    /// A structured type.
    Record {
        /// Fields in stored order.
        fields: Vec<NumpyField>,
        /// Size of the element, bytes.
        itemsize: u32,
    },
}

/// A field of a structured type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NumpyField {
    /// Name; bytes that are not UTF-8 are kept.
    pub name: Vec<u8>,
    /// Byte offset.
    pub offset: u32,
    /// Type.
    pub dtype: NumpyDtype,
}

/// The `descr` of a .npy header. The header's shape is the dataset's, followed by `dims`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NpyDescr {
    /// Python literal: a quoted type string or a list of fields.
    pub descr: String,
    /// Dimensions of an array datatype, which numpy counts among the array's.
    pub dims: Vec<u32>,
}

/// The dtype of `t`'s elements; `None` when numpy has none of the same layout.
pub fn numpy_dtype(t: &Datatype) -> Option<NumpyDtype> {
    // The depth of the recursion is that of the message, which its decoder bounds.
    match &t.class {
        Class::FixedPoint(f) => plain(fixed(f, t.size)?),
        Class::FloatingPoint(f) => plain(float(f, t.size)?),
        Class::String(_) => plain(format!("|S{}", t.size)),
        Class::Bitfield(b) => plain(bitfield(b, t.size)),
        Class::Opaque(o) => plain(datetime(o, t.size).unwrap_or_else(|| format!("|V{}", t.size))),
        Class::Compound(c) => compound(c, t.size),
        Class::Enumeration(e) => enumeration(e),
        Class::Array(a) => Some(subarray(numpy_dtype(&a.base)?, &a.dims)),
        Class::Complex(c) => plain(complex(&numpy_dtype(&c.base)?)?),
        Class::Time(_) | Class::Reference(_) | Class::VariableLength(_) => None,
    }
}

fn plain(s: String) -> Option<NumpyDtype> {
    Some(NumpyDtype::Plain(s))
}

fn order(o: ByteOrder, size: u32) -> Option<char> {
    match o {
        _ if size == 1 => Some('|'),
        ByteOrder::LittleEndian => Some('<'),
        ByteOrder::BigEndian => Some('>'),
        ByteOrder::Vax => None,
    }
}

fn fixed(f: &FixedPoint, size: u32) -> Option<String> {
    let whole = matches!(size, 1 | 2 | 4 | 8) && f.offset == 0 && u32::from(f.precision) == size.saturating_mul(8);
    let kind = if f.signed { 'i' } else { 'u' };
    whole.then(|| order(f.order, size)).flatten().map(|o| format!("{o}{kind}{size}"))
}

/// As h5py: unsigned integers; what does not fill those is bytes.
fn bitfield(b: &Bitfield, size: u32) -> String {
    let integer = FixedPoint {
        order: b.order,
        low_padding: b.low_padding,
        high_padding: b.high_padding,
        signed: false,
        offset: b.offset,
        precision: b.precision,
    };
    fixed(&integer, size).unwrap_or_else(|| format!("|V{size}"))
}

fn float(f: &FloatingPoint, size: u32) -> Option<String> {
    if names::is_x87_in_16(f, size) {
        return Some("<f16".into());
    }
    let layout = names::float_layout(f, size)?;
    matches!(layout, "H5T_IEEE_F16" | "H5T_IEEE_F32" | "H5T_IEEE_F64")
        .then(|| order(f.order, size))
        .flatten()
        .map(|o| format!("{o}f{size}"))
}

/// h5py keeps numpy's dates and time differences as opaque with the tag `NUMPY:<M8[ns]`.
fn datetime(o: &Opaque, size: u32) -> Option<String> {
    let tag = std::str::from_utf8(o.tag()).ok()?.strip_prefix("NUMPY:")?;
    let unit = tag.strip_prefix(['<', '>', '|'])?.strip_prefix(['M', 'm'])?.strip_prefix("8[")?.strip_suffix(']')?;
    let plain = unit.len() <= 16 && unit.bytes().all(|b| b.is_ascii_alphanumeric());
    (plain && size == 8).then(|| tag.to_owned())
}

/// `FALSE` = 0 and `TRUE` = 1 in one byte is h5py's boolean; other enumerations are their integers.
fn enumeration(e: &Enumeration) -> Option<NumpyDtype> {
    let boolean = e.base.size == 1 && e.members().len() == 2 && e.name_of(&[0]) == Some(b"FALSE") && e.name_of(&[1]) == Some(b"TRUE");
    if boolean { plain("|b1".into()) } else { numpy_dtype(&e.base) }
}

fn complex(base: &NumpyDtype) -> Option<String> {
    let NumpyDtype::Plain(base) = base else { return None };
    let order = base.chars().next()?;
    let size = match base.get(1..)? {
        "f4" => 8,
        "f8" => 16,
        "f16" => 32,
        _ => return None,
    };
    Some(format!("{order}c{size}"))
}

fn subarray(base: NumpyDtype, dims: &[u32]) -> NumpyDtype {
    match base {
        base if dims.is_empty() => base,
        NumpyDtype::Subarray(base, inner) => NumpyDtype::Subarray(base, dims.iter().copied().chain(inner).collect()),
        base => NumpyDtype::Subarray(Box::new(base), dims.to_vec()),
    }
}

/// A pair `r`, `i` of equal floating-point numbers is complex, as for h5py.
fn compound(c: &Compound, size: u32) -> Option<NumpyDtype> {
    let mut fields = Vec::with_capacity(c.members.len());
    for m in &c.members {
        let name = m.name.bytes.clone();
        // numpy would rename a field without name.
        if name.is_empty() {
            return None;
        }
        fields.push(NumpyField { name, offset: m.offset, dtype: numpy_dtype(&m.datatype)? });
    }
    if let [r, i] = fields.as_slice()
        && (r.name.as_slice(), i.name.as_slice()) == (b"r", b"i")
        && (r.offset, i.offset) == (0, size / 2)
        && r.dtype == i.dtype
        && let Some(s) = complex(&r.dtype)
        && c.members.first().and_then(|m| m.datatype.size.checked_mul(2)) == Some(size)
    {
        return plain(s);
    }
    Some(NumpyDtype::Record { fields, itemsize: size })
}

impl NumpyDtype {
    /// Size of an element, bytes; 0 if it is not known.
    pub fn itemsize(&self) -> u64 {
        match self {
            // "|S10", "<f8": the size follows the letter; dates have 8 bytes.
            NumpyDtype::Plain(s) => {
                let digits = s.get(2..).unwrap_or_default();
                let digits = digits.split('[').next().unwrap_or_default();
                digits.parse().unwrap_or(0)
            }
            NumpyDtype::Subarray(base, dims) => dims.iter().fold(base.itemsize(), |n, &d| n.saturating_mul(d.into())),
            NumpyDtype::Record { itemsize, .. } => u64::from(*itemsize),
        }
    }

    /// As an element of a list or tuple: type strings in quotes.
    fn literal(&self) -> String {
        match self {
            NumpyDtype::Plain(s) => format!("'{s}'"),
            other => other.to_string(),
        }
    }

    /// The field's tuple of name, type and shape.
    fn tuple(name: &str, dtype: &str, dims: &[u32]) -> String {
        if dims.is_empty() { format!("({name}, {dtype})") } else { format!("({name}, {dtype}, {})", shape(dims)) }
    }

    /// The type without its dimensions, and these.
    fn split(&self) -> (&NumpyDtype, &[u32]) {
        match self {
            NumpyDtype::Subarray(base, dims) => (base, dims),
            other => (other, &[]),
        }
    }

    /// Python literal for a .npy header: fields by offset, gaps as nameless bytes.
    fn npy(&self) -> Option<String> {
        let NumpyDtype::Record { fields, itemsize } = self else { return Some(self.literal()) };
        let mut fields: Vec<&NumpyField> = fields.iter().collect();
        fields.sort_by_key(|f| f.offset);
        let mut items = Vec::with_capacity(fields.len());
        let mut end = 0u64;
        let gap = |from: u64, to: u64| (to > from).then(|| format!("('', '|V{}')", to.saturating_sub(from)));
        for f in fields {
            items.extend(gap(end, f.offset.into()));
            let (base, dims) = f.dtype.split();
            let name = std::str::from_utf8(&f.name).ok()?;
            items.push(Self::tuple(&python_string(name.as_bytes()), &base.npy()?, dims));
            end = u64::from(f.offset).saturating_add(f.dtype.itemsize());
        }
        items.extend(gap(end, (*itemsize).into()));
        Some(format!("[{}]", items.join(", ")))
    }
}

/// The `descr` for .npy headers of arrays of `t`; `None` when numpy cannot hold them.
pub fn npy_descr(t: &Datatype) -> Option<NpyDescr> {
    let dtype = numpy_dtype(t)?;
    let (base, dims) = dtype.split();
    Some(NpyDescr { descr: base.npy()?, dims: dims.to_vec() })
}

impl fmt::Display for NumpyDtype {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NumpyDtype::Plain(s) => f.write_str(s),
            NumpyDtype::Subarray(base, dims) => write!(f, "({}, {})", base.literal(), shape(dims)),
            NumpyDtype::Record { fields, itemsize } => record(fields, *itemsize, f),
        }
    }
}

fn record(fields: &[NumpyField], itemsize: u32, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let packed = fields.iter().try_fold(0u64, |end, x| (u64::from(x.offset) == end).then(|| end.saturating_add(x.dtype.itemsize())));
    let list = |items: Vec<String>| items.join(", ");
    if packed == Some(u64::from(itemsize)) {
        let items = fields.iter().map(|x| {
            let (base, dims) = x.dtype.split();
            NumpyDtype::tuple(&python_string(&x.name), &base.literal(), dims)
        });
        return write!(f, "[{}]", list(items.collect()));
    }
    write!(
        f,
        "{{'names': [{}], 'formats': [{}], 'offsets': [{}], 'itemsize': {itemsize}}}",
        list(fields.iter().map(|x| python_string(&x.name)).collect()),
        list(fields.iter().map(|x| x.dtype.literal()).collect()),
        list(fields.iter().map(|x| x.offset.to_string()).collect()),
    )
}

fn shape(dims: &[u32]) -> String {
    match dims {
        [one] => format!("({one},)"),
        dims => format!("({})", dims.iter().map(u32::to_string).collect::<Vec<_>>().join(", ")),
    }
}

/// A Python string literal; bytes that are not UTF-8 as surrogate escapes.
fn python_string(s: &[u8]) -> String {
    let quote = if s.contains(&b'\'') && !s.contains(&b'"') { '"' } else { '\'' };
    let mut out = String::from(quote);
    for chunk in s.utf8_chunks() {
        for c in chunk.valid().chars() {
            let code = u32::from(c);
            match c {
                '\\' => out.push_str("\\\\"),
                '\n' => out.push_str("\\n"),
                '\r' => out.push_str("\\r"),
                '\t' => out.push_str("\\t"),
                c if c == quote => out.extend(['\\', c]),
                _ if code < 0x20 || (0x7f..=0xa0).contains(&code) || code == 0xad => out.push_str(&format!("\\x{code:02x}")),
                '\u{2028}' | '\u{2029}' | '\u{200b}'..='\u{200f}' | '\u{feff}' | '\u{e000}'..='\u{f8ff}' => {
                    out.push_str(&format!("\\u{code:04x}"));
                }
                c => out.push(c),
            }
        }
        out.extend(chunk.invalid().iter().map(|b| format!("\\udc{b:02x}")));
    }
    out.push(quote);
    out
}
