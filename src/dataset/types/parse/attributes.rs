//! Attributes of one object from their lossless JSON list, the inverse of `types::attributes`.
//!
//! Each is `{"name", "type", "shape", "value"}`. Types may also be names as [`super::parse_datatype`] knows
//! them, shapes plain lists of dimensions; no shape is a scalar, `null` a null dataspace.

use super::elements::{NoStore, Store, from_json};
use super::node::{Fields, Node};
use super::{datatype, invalid, not_supported, shown};
use crate::base::{Error, Result, limits};
use crate::dataset::types::Shape;
use crate::format::message::datatype::Datatype;
use std::collections::HashSet;

/// An attribute with everything that makes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AttributeSpec {
    /// Name; usually UTF-8, never empty.
    pub name: Vec<u8>,
    /// Type of its elements.
    pub datatype: Datatype,
    /// Its extent.
    pub shape: Shape,
    /// Its elements as they are stored.
    pub bytes: Vec<u8>,
}

/// The attributes that `text` lists. Variable-length values and references are refused with `EOPNOTSUPP`.
pub fn parse_attributes_json(text: &[u8]) -> Result<Vec<AttributeSpec>> {
    parse_attributes_json_with(text, 8, &mut NoStore)
}

/// As [`parse_attributes_json`], for a file with addresses of `sizeof_addr` bytes; `store` keeps what lies outside the
/// elements. Nothing is stored unless the types and shapes of all attributes are right; a value that is wrong
/// behind others may leave theirs stored.
pub fn parse_attributes_json_with(text: &[u8], sizeof_addr: u8, store: &mut dyn Store) -> Result<Vec<AttributeSpec>> {
    let mut all = Vec::new();
    parse_attributes_json_each(text, sizeof_addr, store, &|_| true, &mut |_, attribute| {
        all.push(attribute?);
        Ok(())
    })?;
    Ok(all)
}

/// The same one after another: those whose names are `wanted` are given to `f`, each before the next one's value is read.
/// One that cannot be made although nothing is wrong with its text (`EOPNOTSUPP`), or that has no value, only an error, is given
/// to it as that error.
pub fn parse_attributes_json_each(
    text: &[u8],
    sizeof_addr: u8,
    store: &mut dyn Store,
    wanted: &dyn Fn(&[u8]) -> bool,
    f: &mut dyn FnMut(&[u8], Result<AttributeSpec>) -> Result<()>,
) -> Result<()> {
    let list = Node::parse(text)?;
    let (mut names, mut heads) = (HashSet::new(), Vec::new());
    for item in list.array("the attributes")? {
        let (name, head) = Head::of(item, sizeof_addr)?;
        if !names.insert(name) {
            return Err(invalid(format!("the attribute {} is given twice", shown(name))));
        }
        heads.push((name, possible(head)?));
    }
    for (name, head) in heads.into_iter().filter(|(name, _)| wanted(name)) {
        let made = head.and_then(|Head { datatype, shape, value }| {
            let bytes = from_json(&datatype, &shape, value, store).map_err(|error| named(name, error))?;
            Ok(AttributeSpec { name: name.to_vec(), datatype, shape, bytes })
        });
        f(name, possible(made)?)?;
    }
    Ok(())
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
}

impl<'a> Head<'a> {
    /// The name, and what else is said.
    fn of(item: &'a Node, sizeof_addr: u8) -> Result<(&'a [u8], Result<Self>)> {
        let f = Fields::new("an attribute", item, &["name", "type", "shape", "value", "error"])?;
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
            Ok(Head { datatype, shape, value })
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

/// The inverse of `types::attributes::shape_json`.
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
