//! Attributes of one object from their lossless JSON list, the inverse of `attributes`.
//!
//! Each is `{"name", "type", "shape", "value"}`. Types may also be names as
//! [`super::parse_datatype`] knows them, shapes plain lists of dimensions; no shape is a scalar,
//! `null` a null dataspace. `"bytes"`, the exact form in hexadecimal, stands before `"value"`, in
//! types without references.

use super::elements::{BYTES_MAX, from_json};
use super::integer::raw_hex;
use super::node::{Fields, Node};
use super::{datatype, invalid, not_supported, shown};
use crate::base::datatype::Datatype;
use crate::base::shape::Shape;
use crate::base::value::{NewAttribute, NewValue};
use crate::base::{Error, Result, limits};
use std::collections::HashSet;

/// The attributes of a list, their types and shapes read, their values still text.
pub struct AttributeList {
    list: Node,
    sizeof_addr: u8,
}

impl AttributeList {
    /// Reads a list for a container with addresses of `sizeof_addr` bytes in elements. Types and
    /// shapes of all attributes are checked; one whose type cannot be made there (`EOPNOTSUPP`) is
    /// no error of the list.
    pub fn parse(text: &[u8], sizeof_addr: u8) -> Result<AttributeList> {
        let parsed = AttributeList { list: Node::parse(text)?, sizeof_addr };
        let mut names = HashSet::new();
        for item in parsed.list.array("the attributes")? {
            let (name, head) = Head::of(item, sizeof_addr)?;
            if !names.insert(name) {
                return Err(invalid(format!("the attribute {} is given twice", shown(name))));
            }
            drop(possible(head)?);
        }
        Ok(parsed)
    }

    /// The attributes, each with its value made when it is asked for. The error of one that cannot
    /// be made although its text is right is `EOPNOTSUPP`.
    pub fn values(&self) -> impl Iterator<Item = Result<NewAttribute>> + '_ {
        let items = self.list.array("the attributes").unwrap_or_default();
        items.iter().map(|item| {
            let (name, head) = Head::of(item, self.sizeof_addr)?;
            let Head { datatype, shape, value, bytes } = head?;
            let value = match bytes {
                Some(bytes) => NewValue::plain(datatype, shape, bytes),
                None => from_json(&datatype, &shape, value).map_err(|error| named(name, error))?,
            };
            Ok(NewAttribute { name: name.to_vec(), value })
        })
    }
}

/// The exact form of elements from its hexadecimal digits.
fn exact_form(datatype: &Datatype, shape: &Shape, hex: &Node) -> Result<Vec<u8>> {
    if datatype.contains_reference() {
        return Err(invalid("bytes of references are addresses in one file: value has their paths"));
    }
    let hex = hex.string("bytes")?;
    let bytes = raw_hex(hex, hex.len() / 2).ok_or_else(|| invalid(format!("{} is not bytes in hexadecimal", shown(hex))))?;
    let size = shape.count().and_then(|n| n.checked_mul(datatype.element_size()));
    // The parts of variable length are checked when they are stored.
    if size.is_none_or(|size| size > BYTES_MAX || !datatype.contains_vlen() && size != bytes.len() as u64) {
        return Err(invalid(format!("{} bytes are not the elements of the type and shape", bytes.len())));
    }
    Ok(bytes)
}

/// What only cannot be done is no error of the whole.
fn possible<T>(made: Result<T>) -> Result<Result<T>> {
    match made {
        Err(Error::Refused { errno, .. }) if errno != libc::EOPNOTSUPP => made.map(Ok),
        made => Ok(made),
    }
}

/// An attribute whose value is still text.
struct Head<'a> {
    datatype: Datatype,
    shape: Shape,
    value: &'a Node,
    /// The exact form, if it is given.
    bytes: Option<Vec<u8>>,
}

impl<'a> Head<'a> {
    /// The name, and the other keys.
    fn of(item: &'a Node, sizeof_addr: u8) -> Result<(&'a [u8], Result<Self>)> {
        let f = Fields::new("an attribute", item, &["name", "type", "shape", "value", "bytes", "error"])?;
        let name = f.need("name")?.string("an attribute's name")?;
        if name.is_empty() || name.contains(&0) {
            return Err(invalid("an attribute's name is empty or holds a NUL"));
        }
        let rest = || {
            if f.get("error").is_some() {
                return Err(not_supported("it has no value, only an error"));
            }
            let datatype = datatype::from_node(f.need("type")?, sizeof_addr)?;
            let shape = f.get("shape").map_or(Ok(Shape::Scalar), shape)?;
            // Only a null dataspace needs no value.
            let value = if shape == Shape::Null { f.get("value").unwrap_or(&Node::Null) } else { f.need("value")? };
            let bytes = f.get("bytes").map(|hex| exact_form(&datatype, &shape, hex)).transpose()?;
            Ok(Head { datatype, shape, value, bytes })
        };
        Ok((name, rest().map_err(|error| named(name, error))))
    }
}

/// Says in which attribute the error is.
fn named(name: &[u8], error: Error) -> Error {
    match error {
        Error::Refused { errno, reason } => Error::refused(errno, format!("attribute {}: {reason}", shown(name))),
        other => other,
    }
}

/// The inverse of `attributes::shape_json`.
fn shape(node: &Node) -> Result<Shape> {
    let limit = |n: usize| if n > limits::RANK_MAX { Err(invalid(format!("a shape has {n} dimensions"))) } else { Ok(()) };
    match node {
        Node::Null => Ok(Shape::Null),
        Node::Array(dims) if dims.is_empty() => Ok(Shape::Scalar),
        Node::Array(items) => {
            limit(items.len())?;
            Ok(Shape::Simple { dims: items.iter().map(|d| d.unsigned("a dimension")).collect::<Result<_>>()?, max: None })
        }
        _ => {
            let f = Fields::new("a shape", node, &["class", "dims", "maxdims"])?;
            match f.need("class")?.string("class")? {
                b"H5S_NULL" => Ok(Shape::Null),
                b"H5S_SCALAR" => Ok(Shape::Scalar),
                b"H5S_SIMPLE" => {
                    let items = f.need("dims")?.array("dims")?;
                    limit(items.len())?;
                    let dims: Vec<u64> = items.iter().map(|d| d.unsigned("a dimension")).collect::<Result<_>>()?;
                    let max =
                        f.get("maxdims").map(|m| m.array("maxdims")?.iter().map(largest).collect::<Result<Vec<u64>>>()).transpose()?;
                    if dims.is_empty() || max.as_ref().is_some_and(|m| m.len() != dims.len() || m.iter().zip(&dims).any(|(m, d)| m < d)) {
                        return Err(invalid("dims and maxdims do not fit each other"));
                    }
                    Ok(Shape::Simple { dims, max })
                }
                other => Err(invalid(format!("{} is no class of shapes", shown(other)))),
            }
        }
    }
}

/// A largest dimension; `u64::MAX` is unlimited.
fn largest(node: &Node) -> Result<u64> {
    match node {
        Node::String(s) if s == b"H5S_UNLIMITED" => Ok(u64::MAX),
        Node::Null => Ok(u64::MAX),
        other => other.unsigned("a largest dimension"),
    }
}
