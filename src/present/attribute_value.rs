//! The value of an attribute that a user states as text, perhaps with its type.

use super::parse::{Node, from_json, parse_datatype_in};
use crate::base::shape::Shape;
use crate::base::value::NewValue;
use crate::base::{Error, Result, limits};

/// The value that `text` states: JSON, or else a string. `datatype`: its type, in numpy's notation
/// or by a name. Without one, numbers are `<i8` or `<f8`, if one of them has a fraction or is not
/// finite, and all else is strings. `sizeof_addr`: bytes of an address in the container.
pub fn attribute_value(text: &[u8], datatype: Option<&str>, sizeof_addr: u8) -> Result<NewValue> {
    let parsed = Node::parse(text).ok().filter(|node| matches!(node, Node::Number(_) | Node::Array(_) | Node::String(_)));
    let node = parsed.unwrap_or_else(|| Node::String(text.to_vec()));
    let is_text = datatype.is_some_and(|t| t == "str" || t.contains('S'));
    // A number that shall be a string keeps its digits.
    let node = if is_text && matches!(node, Node::Number(_)) { Node::String(text.to_vec()) } else { node };
    let mut dims = Vec::new();
    let mut level = &node;
    while let Node::Array(items) = level {
        dims.push(items.len() as u64);
        match items.first() {
            Some(first) if dims.len() <= limits::RANK_MAX => level = first,
            _ => break,
        }
    }
    let datatype = parse_datatype_in(datatype.unwrap_or_else(|| usual_type(&node, 0)), sizeof_addr)?;
    let shape = if dims.is_empty() { Shape::Scalar } else { Shape::Simple { dims, max: None } };
    from_json(&datatype, &shape, &node).map_err(|e| match e {
        Error::Refused { errno, reason } => Error::refused(errno, format!("{reason}; give lists of equal lengths and values of the type")),
        e => e,
    })
}

/// The type of a value without one.
fn usual_type(node: &Node, depth: usize) -> &'static str {
    match node {
        Node::Number(n) if n.bytes().all(|b| b.is_ascii_digit() || b == b'-' || b == b'+') => "<i8",
        Node::Number(_) => "<f8",
        Node::Array(items) if depth < limits::RANK_MAX => {
            let mut found = None;
            for item in items {
                found = match (found, usual_type(item, depth.saturating_add(1))) {
                    (Some("str"), _) | (_, "str") => Some("str"),
                    (Some("<f8"), _) | (_, "<f8") => Some("<f8"),
                    (_, t) => Some(t),
                };
            }
            found.unwrap_or("<f8")
        }
        _ => "str",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_have_the_type_of_their_text() {
        let is = |text: &str, datatype: &str, dims: Option<&[u64]>| {
            let value = attribute_value(text.as_bytes(), None, 8).unwrap();
            assert_eq!(value.datatype, parse_datatype_in(datatype, 8).unwrap(), "{text}");
            assert_eq!(value.shape.dims(), dims.or(Some(&[])), "{text}");
        };
        is("5", "<i8", None);
        is("-5.5", "<f8", None);
        is("1e3", "<f8", None);
        is("m/s", "str", None);
        is("\"5\"", "str", None);
        is("", "str", None);
        is("true", "str", None);
        is("[1, 2, 3]", "<i8", Some(&[3]));
        is("[[1, 2], [3, 4.5]]", "<f8", Some(&[2, 2]));
        is("[\"a\", \"b\"]", "str", Some(&[2]));
        is("[1, \"b", "str", None);
        assert!(attribute_value(b"[[1], [1, 2]]", None, 8).is_err(), "lists of different lengths");
        assert!(attribute_value(b"300", Some("|u1"), 8).is_err(), "out of range");
        assert!(attribute_value(b"1", Some("nothing"), 8).is_err());
        assert_eq!(attribute_value(b"5", Some("str"), 8).unwrap().form, [1, 0, 0, 0, b'5']);
        assert_eq!(attribute_value(b"5", Some(">i2"), 8).unwrap().form, [0, 5]);
    }
}
