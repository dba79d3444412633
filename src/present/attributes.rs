//! Attributes of one object as a JSON list: name, type, shape and value.
//!
//! A value whose JSON lacks some of its bytes (bytes behind the NUL of a string, between
//! members, of a NaN) has `bytes`, too: its exact form in hexadecimal.

use super::describe::type_json;
use super::json::{Json, write_string};
use super::number::hex;
use super::parse::has_lost_bytes;
use super::value::json_value_within;
use crate::base::parts::{Budget, Limited, Parts};
use crate::base::shape::Shape;
use crate::base::value::Elements;
use crate::base::{Error, Result};

/// List of `{"name", "type", "shape", "value"}`, some with `"bytes"`, made one attribute at a time.
/// A value that cannot be shown has `"error"`, a sentence, in its place.
pub struct AttributesJson {
    limit: u64,
    budget: Budget,
    /// Stored parts that all values together may lead to.
    reads: Budget,
    out: Vec<u8>,
}

impl AttributesJson {
    /// An empty list of at most `limit` bytes.
    pub fn new(limit: u64) -> Self {
        AttributesJson { limit, budget: Budget::new(limit), reads: Budget::tight(limit), out: b"[".to_vec() }
    }

    /// Adds an attribute; `name` is usually UTF-8. Fails only when the whole exceeds the limit.
    pub fn add(&mut self, name: &[u8], elements: &Elements<'_>, parts: &dyn Parts) -> Result<()> {
        let out = &mut self.out;
        let before = out.len();
        out.extend_from_slice(if before > 1 { b",\n" } else { b"\n" });
        out.extend_from_slice(b"{\"name\":");
        write_string(name, out);
        out.extend_from_slice(b",\"type\":");
        type_json(elements.datatype).write(out);
        out.extend_from_slice(b",\"shape\":");
        shape_json(elements.shape).write(out);
        match json_value_within(elements, &Limited { parts, limit: self.limit }, &mut self.reads) {
            Ok(value) => {
                out.extend_from_slice(b",\"value\":");
                out.extend_from_slice(&value);
                if has_lost_bytes(elements, parts, &value)? {
                    out.extend_from_slice(b",\"bytes\":\"");
                    out.extend_from_slice(hex(&elements.exact(parts)?).as_bytes());
                    out.push(b'"');
                }
            }
            // Without its value the form would not be lossless.
            Err(error @ Error::Limit { .. }) => return Err(error),
            Err(error) => {
                out.extend_from_slice(b",\"error\":");
                write_string(error.to_string().as_bytes(), out);
            }
        }
        out.push(b'}');
        self.budget.output(out.len().saturating_sub(before) as u64)
    }

    /// Adds an attribute that cannot be read at all.
    pub fn add_unreadable(&mut self, name: &[u8], error: &Error) -> Result<()> {
        let before = self.out.len();
        self.out.extend_from_slice(if before > 1 { b",\n{\"name\":" } else { b"\n{\"name\":" });
        write_string(name, &mut self.out);
        self.out.extend_from_slice(b",\"error\":");
        write_string(error.to_string().as_bytes(), &mut self.out);
        self.out.push(b'}');
        self.budget.output(self.out.len().saturating_sub(before) as u64)
    }

    /// The text.
    pub fn finish(mut self) -> Vec<u8> {
        self.out.extend_from_slice(b"\n]\n");
        self.out
    }
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
