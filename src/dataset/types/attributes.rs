//! Attributes of one object as a JSON list: name, type, shape and value.

use super::describe::type_json;
use super::json::{Json, write_string};
use super::resolver::{Budget, Environment};
use super::value::{Elements, Shape, json_value};
use crate::base::{Error, Result};

/// An attribute to be shown.
#[derive(Debug, Clone, Copy)]
pub struct AttributeValue<'a> {
    /// Name; usually UTF-8.
    pub name: &'a [u8],
    /// Its elements.
    pub elements: Elements<'a>,
}

/// List of `{"name", "type", "shape", "value"}`. A value that cannot be shown has `"error"`, a sentence, in
/// its place. Fails only when the whole, or one value, exceeds the environment's limit.
pub fn attributes_json<'a>(attributes: impl IntoIterator<Item = AttributeValue<'a>>, environment: &Environment<'_>) -> Result<Vec<u8>> {
    let mut budget = Budget::new(environment.limit);
    let mut out = b"[".to_vec();
    for (i, a) in attributes.into_iter().enumerate() {
        let before = out.len();
        out.extend_from_slice(if i > 0 { b",\n" } else { b"\n" });
        out.extend_from_slice(b"{\"name\":");
        write_string(a.name, &mut out);
        out.extend_from_slice(b",\"type\":");
        type_json(a.elements.datatype).write(&mut out);
        out.extend_from_slice(b",\"shape\":");
        shape_json(a.elements.shape).write(&mut out);
        match json_value(&a.elements, environment) {
            Ok(value) => {
                out.extend_from_slice(b",\"value\":");
                out.extend_from_slice(&value);
            }
            // Without its value the form would not be lossless.
            Err(error @ Error::Limit { .. }) => return Err(error),
            Err(error) => {
                out.extend_from_slice(b",\"error\":");
                write_string(error.to_string().as_bytes(), &mut out);
            }
        }
        out.push(b'}');
        budget.output(out.len().saturating_sub(before) as u64)?;
    }
    out.extend_from_slice(b"\n]\n");
    Ok(out)
}

/// Extent in hdf5-json's form; an unlimited largest dimension is `"H5S_UNLIMITED"`.
pub fn shape_json(shape: &Shape) -> Json {
    let class = |name: &str| ("class", Json::string(name));
    match shape {
        Shape::Null => Json::Object(vec![class("H5S_NULL")]),
        Shape::Scalar => Json::Object(vec![class("H5S_SCALAR")]),
        Shape::Simple { dims, max } => {
            let number = |&n: &u64| if n == u64::MAX { Json::string("H5S_UNLIMITED") } else { Json::integer(n) };
            let mut fields = vec![class("H5S_SIMPLE"), ("dims", Json::Array(dims.iter().map(|&d| Json::integer(d)).collect()))];
            if let Some(max) = max.as_ref().filter(|max| *max != dims) {
                fields.push(("maxdims", Json::Array(max.iter().map(number).collect())));
            }
            Json::Object(fields)
        }
    }
}
