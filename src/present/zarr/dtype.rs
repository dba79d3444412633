//! Datatypes as those of Zarr, and fill values as JSON.
//!
//! | elements | version 3 | version 2 |
//! |---|---|---|
//! | integers, IEEE floats, complex numbers, booleans | `int16`, `complex64` and so on | `<i2` |
//! | enumerations, bit fields | the integers | the integers |
//! | strings of fixed length | `null_terminated_bytes` | `S8` |
//! | strings of variable length | `string`, codec `vlen-utf8` | object, filter `vlen-utf8` |
//! | dates that h5py writes | `numpy.datetime64` | `<M8[ns]` |
//! | opaque, extended precision | `raw_bytes` | `V8` |
//! | compounds of those | `structured` | list of fields |
//!
//! Fields of compounds follow each other without gaps, lowest byte first. zarr-python reads no
//! nested fields in version 2, and no fields with dimensions: members of a nested compound are
//! fields `outer.inner` in version 2, elements of an array `name.0` and so on in both; more than
//! 1,000 of them are one field of raw bytes. Other types have no array.

use crate::base::datatype::{Class, Datatype};
use crate::present::json::Json;
use crate::present::number::hex;
use crate::present::numpy::{NumpyDtype, NumpyField, numpy_dtype};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;

/// Largest element of a compound, bytes.
const COMPOUND_BYTES_MAX: u32 = 1 << 20;

/// Elements of a member that are fields each.
const MEMBER_ELEMENTS_MAX: usize = 1000;
/// Fields of a compound, those of nested ones included.
const FIELDS_MAX: usize = 1 << 14;

/// What the elements of an array are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Bool,
    Integer {
        signed: bool,
    },
    Float,
    Complex,
    Date,
    /// Strings of fixed length, opaque bytes, compounds.
    Bytes,
    /// Strings of variable length.
    Text,
}

/// Bytes of an element of the dataset that an element of the array has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Segment {
    /// First byte in the element of the dataset.
    pub from: usize,
    /// Number of bytes.
    pub len: usize,
    /// Bytes of a number whose order is reversed; 1: none.
    pub unit: usize,
}

/// The type of an array.
#[derive(Debug, Clone)]
pub(super) struct ZarrType {
    pub kind: Kind,
    /// Bytes of an element of the array; 0 for strings of variable length.
    pub size: u64,
    /// The numbers have their highest byte first.
    pub big_endian: bool,
    /// Dimensions of an array datatype, which the array has, too.
    pub dims: Vec<u64>,
    /// How an element is made of one of the dataset; empty: it is the same bytes.
    pub segments: Vec<Segment>,
    /// `data_type` of version 3.
    pub v3: Json,
    /// `dtype` of version 2.
    pub v2: Json,
}

/// The type of arrays of `t`; `None`: Zarr has none.
pub(super) fn zarr_type(t: &Datatype) -> Option<ZarrType> {
    if t.is_vlen_string() {
        let (v2, v3) = (Json::string("|O"), Json::string("string"));
        return Some(ZarrType { kind: Kind::Text, size: 0, big_endian: false, dims: Vec::new(), segments: Vec::new(), v3, v2 });
    }
    if let Class::Array(a) = &t.class {
        let base = zarr_type(&a.base).filter(|base| base.kind != Kind::Text)?;
        let dims = a.dims.iter().map(|d| u64::from(*d)).chain(base.dims.iter().copied()).collect();
        return Some(ZarrType { dims, ..base });
    }
    match numpy_dtype(t)? {
        NumpyDtype::Plain(s) => plain(&s, t.size),
        NumpyDtype::Record { fields, .. } => record(&fields, t.size),
        NumpyDtype::Subarray(..) => None,
    }
}

/// A type of version 3 with its configuration.
fn configured(name: &str, configuration: Vec<(&'static str, Json)>) -> Json {
    Json::Object(vec![("name", Json::string(name)), ("configuration", Json::Object(configuration))])
}

/// The type of `size` bytes that numpy calls `s`.
fn plain(s: &str, size: u32) -> Option<ZarrType> {
    let (order, letter, rest) = (s.get(..1)?, s.get(1..2)?, s.get(2..)?);
    let bits = size.saturating_mul(8);
    let length = || vec![("length_bytes", Json::integer(size))];
    let raw = || (Kind::Bytes, configured("raw_bytes", length()), format!("|V{size}"));
    let number = |kind, name: String| (kind, Json::string(name), s.to_owned());
    let (kind, v3, v2) = match letter {
        "b" => number(Kind::Bool, "bool".into()),
        "i" => number(Kind::Integer { signed: true }, format!("int{bits}")),
        "u" => number(Kind::Integer { signed: false }, format!("uint{bits}")),
        "f" if size <= 8 => number(Kind::Float, format!("float{bits}")),
        "c" if size <= 16 => number(Kind::Complex, format!("complex{bits}")),
        "M" | "m" => date(s, letter, rest)?,
        "S" => (Kind::Bytes, configured("null_terminated_bytes", length()), s.to_owned()),
        _ => raw(),
    };
    let big_endian = order == ">" && kind != Kind::Bytes;
    let (dims, segments) = (Vec::new(), Vec::new());
    Some(ZarrType { kind, size: size.into(), big_endian, dims, segments, v3, v2: Json::string(v2) })
}

/// `<M8[25s]`: 25 seconds.
fn date(s: &str, letter: &str, rest: &str) -> Option<(Kind, Json, String)> {
    let unit = rest.strip_prefix("8[")?.strip_suffix(']')?;
    let digits = unit.bytes().take_while(u8::is_ascii_digit).count();
    let factor = if digits == 0 { 1 } else { unit.get(..digits)?.parse::<u32>().ok()? };
    let unit = unit.get(digits..)?;
    let known = ["Y", "M", "W", "D", "h", "m", "s", "ms", "us", "ns", "ps", "fs", "as"];
    if !known.contains(&unit) || factor == 0 {
        return None;
    }
    let name = if letter == "M" { "numpy.datetime64" } else { "numpy.timedelta64" };
    let v3 = configured(name, vec![("unit", Json::string(unit)), ("scale_factor", Json::integer(factor))]);
    Some((Kind::Date, v3, s.to_owned()))
}

/// A compound of `size` bytes.
fn record(fields: &[NumpyField], size: u32) -> Option<ZarrType> {
    if size > COMPOUND_BYTES_MAX {
        return None;
    }
    let mut packed = Packed::default();
    let v3 = packed.fields(fields, 0, b"")?;
    let Packed { segments, v2 } = packed;
    let bytes: usize = segments.iter().fold(0, |n, s: &Segment| n.saturating_add(s.len));
    if bytes == 0 {
        return None;
    }
    let is_same = matches!(segments.as_slice(), [one] if one.from == 0 && one.unit == 1 && one.len as u64 == u64::from(size));
    let segments = if is_same { Vec::new() } else { segments };
    Some(ZarrType { kind: Kind::Bytes, size: bytes as u64, big_endian: false, dims: Vec::new(), segments, v3, v2: Json::Array(v2) })
}

/// The fields of a compound without gaps.
#[derive(Default)]
struct Packed {
    segments: Vec<Segment>,
    /// Fields of version 2, those of nested compounds with joined names.
    v2: Vec<Json>,
}

impl Packed {
    /// Adds the fields of a compound that begins at byte `at` of an element; their names follow
    /// `prefix` in version 2. Returns the type of version 3.
    fn fields(&mut self, fields: &[NumpyField], at: usize, prefix: &[u8]) -> Option<Json> {
        let mut all = Vec::new();
        for field in fields {
            std::str::from_utf8(&field.name).ok()?;
            let from = at.checked_add(usize::try_from(field.offset).ok()?)?;
            let NumpyDtype::Subarray(base, dims) = &field.dtype else {
                all.push(self.field(&field.dtype, from, prefix, &field.name)?);
                continue;
            };
            let size = usize::try_from(base.itemsize()).ok()?;
            let count = dims.iter().try_fold(1usize, |n, d| n.checked_mul(usize::try_from(*d).ok()?))?;
            if count > MEMBER_ELEMENTS_MAX {
                let raw = NumpyDtype::Plain(format!("|V{}", count.checked_mul(size)?));
                all.push(self.field(&raw, from, prefix, &field.name)?);
                continue;
            }
            for i in 0..count {
                let name = [&field.name, format!(".{i}").as_bytes()].concat();
                all.push(self.field(base, from.checked_add(i.checked_mul(size)?)?, prefix, &name)?);
            }
        }
        Some(configured("structured", vec![("fields", Json::Array(all))]))
    }

    /// Adds a field; returns it as version 3 has it.
    fn field(&mut self, dtype: &NumpyDtype, from: usize, prefix: &[u8], name: &[u8]) -> Option<Json> {
        if self.v2.len() > FIELDS_MAX {
            return None;
        }
        let whole = [prefix, name].concat();
        let v3 = match dtype {
            NumpyDtype::Record { fields, .. } => self.fields(fields, from, &[&whole, b".".as_slice()].concat())?,
            NumpyDtype::Plain(s) => {
                let size = u32::try_from(dtype.itemsize()).ok()?;
                let (t, len) = (plain(s, size)?, usize::try_from(size).ok()?);
                let part = if t.kind == Kind::Complex { len / 2 } else { len };
                self.add(Segment { from, len, unit: if t.big_endian { part.max(1) } else { 1 } });
                let v2 = match t.v2 {
                    Json::String(s) => Json::String(s.iter().map(|b| if *b == b'>' { b'<' } else { *b }).collect()),
                    other => other,
                };
                self.v2.push(Json::Array(vec![Json::String(whole), v2]));
                t.v3
            }
            NumpyDtype::Subarray(..) => return None,
        };
        Some(Json::Array(vec![Json::string(name), v3]))
    }

    /// Adds bytes, to the last segment if they follow it.
    fn add(&mut self, next: Segment) {
        match self.segments.last_mut() {
            Some(last) if last.unit == 1 && next.unit == 1 && last.from.checked_add(last.len) == Some(next.from) => {
                last.len = last.len.saturating_add(next.len);
            }
            _ if next.len > 0 => self.segments.push(next),
            _ => {}
        }
    }
}

impl ZarrType {
    /// The bytes of elements of the array, made of those of the dataset.
    pub(super) fn convert(&self, elements: &[u8], element_size: usize) -> Vec<u8> {
        if self.segments.is_empty() {
            return elements.to_vec();
        }
        let mut out = Vec::new();
        for element in elements.chunks_exact(element_size.max(1)) {
            for s in &self.segments {
                let part = element.get(s.from..s.from.saturating_add(s.len)).unwrap_or_default();
                match s.unit {
                    1 => out.extend_from_slice(part),
                    unit => part.chunks(unit).for_each(|number| out.extend(number.iter().rev())),
                }
            }
        }
        out
    }

    /// The element of the array `bytes` as JSON, as a fill value; in version 3 (`exactly`) NaNs
    /// that are not the usual one have their bits.
    pub(super) fn fill_json(&self, bytes: &[u8], exactly: bool) -> Json {
        let mut little = bytes.to_vec();
        if self.big_endian {
            let unit = if self.kind == Kind::Complex { little.len() / 2 } else { little.len() };
            little.chunks_mut(unit.max(1)).for_each(<[u8]>::reverse);
        }
        match self.kind {
            Kind::Bool => Json::Number((if little.first().is_some_and(|b| *b != 0) { "true" } else { "false" }).into()),
            Kind::Integer { signed } => integer(&little, signed),
            Kind::Date => integer(&little, true),
            Kind::Float => float(&little, exactly),
            Kind::Complex => {
                let (real, imaginary) = little.split_at(little.len() / 2);
                Json::Array(vec![float(real, exactly), float(imaginary, exactly)])
            }
            Kind::Bytes => Json::string(STANDARD.encode(&little)),
            Kind::Text => Json::string(""),
        }
    }
}

/// Base64 of `bytes`, as Zarr and fsspec have it.
pub(super) fn base64_text(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

/// An integer of up to 8 bytes, lowest byte first.
fn integer(little: &[u8], signed: bool) -> Json {
    let negative = signed && little.last().is_some_and(|b| b & 0x80 != 0);
    let mut all = [if negative { 0xff } else { 0u8 }; 16];
    all.iter_mut().zip(little).for_each(|(to, from)| *to = *from);
    Json::integer(i128::from_le_bytes(all))
}

/// The IEEE float in 2, 4 or 8 bytes, lowest byte first.
pub(super) fn double(little: &[u8]) -> Option<f64> {
    Some(match *little {
        [a, b] => half(u16::from_le_bytes([a, b])),
        [a, b, c, d] => f32::from_le_bytes([a, b, c, d]).into(),
        [a, b, c, d, e, f, g, h] => f64::from_le_bytes([a, b, c, d, e, f, g, h]),
        _ => return None,
    })
}

fn half(bits: u16) -> f64 {
    let (sign, exponent, fraction) = (bits >> 15, i32::from(bits >> 10 & 0x1f), f64::from(bits & 0x3ff));
    let size = match exponent {
        0 => fraction * 2f64.powi(-24),
        0x1f if fraction == 0.0 => f64::INFINITY,
        0x1f => f64::NAN,
        e => (1024.0 + fraction) * 2f64.powi(e.saturating_sub(25)),
    };
    if sign == 1 { -size } else { size }
}

/// A float as a fill value.
fn float(little: &[u8], exactly: bool) -> Json {
    let Some(x) = double(little) else { return Json::integer(0) };
    if x.is_nan() {
        let usual: &[u8] = match little.len() {
            2 => &[0x00, 0x7e],
            4 => &[0x00, 0x00, 0xc0, 0x7f],
            _ => &[0, 0, 0, 0, 0, 0, 0xf8, 0x7f],
        };
        let reversed: Vec<u8> = little.iter().rev().copied().collect();
        return Json::string(if exactly && little != usual { format!("0x{}", hex(&reversed)) } else { "NaN".into() });
    }
    if x.is_infinite() {
        return Json::string(if x > 0.0 { "Infinity" } else { "-Infinity" });
    }
    Json::Number(format!("{x:?}"))
}
