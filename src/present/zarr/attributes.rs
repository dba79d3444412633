//! Attributes as JSON, as zarr-python and xarray have them.
//!
//! | attribute | JSON |
//! |---|---|
//! | numbers, booleans, enumerations | numbers, `true`; `NaN`, `Infinity` are bare as in Python |
//! | strings | strings |
//! | one element | the element, as netCDF has it |
//! | several | list of lists; of strings a flat list |
//! | null dataspace | `[]`, of strings `""` |
//!
//! Compounds, references, sequences, complex numbers and opaque bytes are left out, and what HDF5
//! and netCDF keep in attributes for themselves.

use super::dtype::base64_text;
use super::{DOCUMENT_BYTES_MAX, FILL_VALUE, ZarrFormat};
use crate::base::datatype::{Class, Datatype};
use crate::base::value::Elements;
use crate::base::variable_form::until_nul;
use crate::base::{Error, Result};
use crate::connector::{Budget, Connector, ObjectId, Value};
use crate::present::brief::is_bool;
use crate::present::json::write_string;
use crate::present::number;
use crate::present::value::strip;

/// Attributes that are dimension scales, or the netCDF library's own.
const HIDDEN: [&[u8]; 8] =
    [b"REFERENCE_LIST", b"CLASS", b"DIMENSION_LIST", b"NAME", b"_Netcdf4Dimid", b"_Netcdf4Coordinates", b"_nc3_strict", b"_NCProperties"];

/// The attributes of `id` as a JSON object of at most 16 MiB. `first`: members before them, each
/// with a comma. `masked`: the attribute `_FillValue` is elsewhere.
pub(super) fn attributes_json(connector: &dyn Connector, id: ObjectId, first: &[u8], format: ZarrFormat, masked: bool) -> Result<Vec<u8>> {
    let mut out = b"{".to_vec();
    out.extend_from_slice(first);
    for name in connector.attributes(id)?.iter() {
        if HIDDEN.contains(&name.as_slice()) || (masked && name == FILL_VALUE) {
            continue;
        }
        let Some(value) = connector.attribute(id, name)? else { continue };
        let before = out.len();
        write_string(name, &mut out);
        out.push(b':');
        let coded = format == ZarrFormat::V3 && name == FILL_VALUE && connector.dataset(id).is_ok();
        let written = if coded { fill_value(&value, &mut out)? } else { false };
        if !written && !write_value(&value, &mut out)? {
            out.truncate(before);
            continue;
        }
        out.push(b',');
        if out.len() as u64 > DOCUMENT_BYTES_MAX {
            return Err(Error::refused(libc::EFBIG, format!("the attributes take more than {DOCUMENT_BYTES_MAX} bytes as JSON")));
        }
    }
    out.pop_if(|b| *b == b',');
    out.push(b'}');
    Ok(out)
}

/// The bytes of the attribute `name` if it is one element of the type `t`.
pub(super) fn one_value(connector: &dyn Connector, id: ObjectId, name: &[u8], t: &Datatype) -> Result<Option<Vec<u8>>> {
    let value = connector.attribute(id, name)?;
    Ok(value.filter(|v| v.shape.count() == Some(1) && v.datatype.is_like(t) && v.bytes.len() as u64 == t.element_size()).map(|v| v.bytes))
}

/// The string in the attribute `name`; `None`: it has none.
pub(super) fn text(connector: &dyn Connector, id: ObjectId, name: &[u8]) -> Result<Option<Vec<u8>>> {
    let Some(value) = connector.attribute(id, name)?.filter(|v| v.shape.count() == Some(1)) else { return Ok(None) };
    string(&value, &value.datatype, &value.bytes, &mut Budget::tight(DOCUMENT_BYTES_MAX))
}

/// The string in an element; `None`: it is none.
fn string(value: &Value, t: &Datatype, element: &[u8], budget: &mut Budget) -> Result<Option<Vec<u8>>> {
    Ok(match &t.class {
        Class::String(s) => Some(strip(s.padding, element).to_vec()),
        Class::VariableLength(_) if t.is_vlen_string() => Some(until_nul(&value.parts.sequence(element, 1, budget)?).to_vec()),
        _ => None,
    })
}

/// A fill value of version 3 as xarray reads it: floats as base64 of their 8 bytes. False: it is no
/// float or string.
fn fill_value(value: &Value, out: &mut Vec<u8>) -> Result<bool> {
    let coded = match &value.datatype.class {
        _ if value.shape.count() != Some(1) => return Ok(false),
        Class::FloatingPoint(f) => number::float_value(f, &value.bytes).map(f64::to_le_bytes).map(|bytes| base64_text(&bytes)),
        Class::String(_) => Some(base64_text(&value.bytes)),
        _ => None,
    };
    if let Some(coded) = &coded {
        write_string(coded.as_bytes(), out);
    }
    Ok(coded.is_some())
}

/// Appends a value. False: JSON has none such, and part of it may have been appended.
fn write_value(value: &Value, out: &mut Vec<u8>) -> Result<bool> {
    let (t, mut budget) = (&value.datatype, Budget::tight(DOCUMENT_BYTES_MAX));
    let base = if let Class::Array(a) = &t.class { &*a.base } else { t };
    let is_text = matches!(base.class, Class::String(_)) || base.is_vlen_string();
    if !is_text && !matches!(base.class, Class::FixedPoint(_) | Class::FloatingPoint(_) | Class::Bitfield(_) | Class::Enumeration(_)) {
        return Ok(false);
    }
    let Some(dims) = value.shape.dims() else {
        out.extend_from_slice(if is_text { b"\"\"" } else { b"[]" });
        return Ok(true);
    };
    let inner = if let Class::Array(a) = &t.class { a.dims.iter().map(|d| u64::from(*d)).collect() } else { Vec::new() };
    let dims = [dims, inner.as_slice()].concat();
    let count = dims.iter().try_fold(1u64, |n, d| n.checked_mul(*d)).unwrap_or(u64::MAX);
    let elements = Elements { datatype: base, shape: &value.shape, bytes: &value.bytes };
    let dims = match count {
        1 => Vec::new(),
        _ if is_text => vec![count],
        _ => dims,
    };
    nested(value, &elements, &dims, &mut budget, out)
}

/// Appends elements nested by `dims`.
fn nested(value: &Value, e: &Elements<'_>, dims: &[u64], budget: &mut Budget, out: &mut Vec<u8>) -> Result<bool> {
    let Some((&n, rest)) = dims.split_first() else { return element(value, e.datatype, e.bytes, budget, out) };
    out.push(b'[');
    let len = usize::try_from(n).ok().and_then(|n| e.bytes.len().checked_div(n)).unwrap_or(0);
    if n > 0 && len > 0 {
        for (i, bytes) in e.bytes.chunks_exact(len).enumerate() {
            if i > 0 {
                out.push(b',');
            }
            budget.output(1)?;
            if !nested(value, &Elements { bytes, ..*e }, rest, budget, out)? {
                return Ok(false);
            }
        }
    }
    out.push(b']');
    Ok(true)
}

fn element(value: &Value, t: &Datatype, bytes: &[u8], budget: &mut Budget, out: &mut Vec<u8>) -> Result<bool> {
    if let Some(text) = string(value, t, bytes, budget)? {
        budget.output(text.len() as u64)?;
        write_string(&text, out);
        return Ok(true);
    }
    let text = match &t.class {
        Class::FixedPoint(f) => number::integer(bytes, f.order, f.offset.into(), f.precision.into(), f.signed),
        Class::Bitfield(b) => number::integer(bytes, b.order, b.offset.into(), b.precision.into(), false),
        Class::FloatingPoint(f) => number::float_value(f, bytes).map(|x| match x {
            x if x.is_nan() => "NaN".into(),
            x if x.is_infinite() => if x > 0.0 { "Infinity" } else { "-Infinity" }.into(),
            x => format!("{x:?}"),
        }),
        Class::Enumeration(_) if is_bool(t) => Some(if bytes.iter().all(|b| *b == 0) { "false" } else { "true" }.into()),
        Class::Enumeration(e) => return element(value, &e.base, bytes, budget, out),
        _ => None,
    };
    out.extend_from_slice(text.as_deref().unwrap_or_default().as_bytes());
    Ok(text.is_some())
}
