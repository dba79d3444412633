//! Which named datatypes an object and its attributes refer to, from `user.h5dir.types`.

use super::invalid;
use super::node::{Fields, Node};
use crate::base::Result;

/// A reference to a named datatype.
#[derive(Debug, PartialEq, Eq)]
pub struct TypeUse {
    /// The attribute that refers to it; `None`: the elements of the dataset.
    pub attribute: Option<Vec<u8>>,
    /// Path of the datatype.
    pub path: Vec<u8>,
}

/// Reads `user.h5dir.types`.
pub fn parse_types(text: &[u8]) -> Result<Vec<TypeUse>> {
    let node = Node::parse(text)?;
    let fields = Fields::new("types", &node, &["type", "attributes"])?;
    let one = |attribute: Option<&Vec<u8>>, path: &Node| match path.string("a path")? {
        [] => Err(invalid("the path of a named datatype is not empty")),
        path => Ok(TypeUse { attribute: attribute.cloned(), path: path.to_vec() }),
    };
    let mut uses = Vec::new();
    if let Some(path) = fields.get("type") {
        uses.push(one(None, path)?);
    }
    match fields.get("attributes") {
        Some(Node::Object(attributes)) => {
            for (name, path) in attributes {
                uses.push(one(Some(name), path)?);
            }
        }
        Some(other) => return Err(invalid(format!("attributes are an object, not {}", other.kind()))),
        None => {}
    }
    Ok(uses)
}

/// Reads a list of names.
pub fn parse_names(text: &[u8]) -> Result<Vec<Vec<u8>>> {
    let node = Node::parse(text)?;
    node.array("names")?.iter().map(|name| name.string("a name").map(<[u8]>::to_vec)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_a_list_of_strings() {
        assert_eq!(parse_names(br#"["a","\udcff b"]"#).unwrap(), [b"a".to_vec(), b"\xff b".to_vec()]);
        assert!(parse_names(b"{}").is_err() && parse_names(b"[1]").is_err());
    }

    #[test]
    fn paths_are_read_by_attribute() {
        let of = |attribute: Option<&[u8]>, path: &[u8]| TypeUse { attribute: attribute.map(<[u8]>::to_vec), path: path.to_vec() };
        let all = parse_types(br#"{"type":"/t","attributes":{"a":"/u/v","\udcff":"/t"}}"#).unwrap();
        assert_eq!(all, [of(None, b"/t"), of(Some(b"a"), b"/u/v"), of(Some(b"\xff"), b"/t")]);
        assert_eq!(parse_types(b"{}").unwrap(), []);
        for wrong in ["[]", "{\"type\":1}", "{\"type\":\"\"}", "{\"attributes\":[]}", "{\"other\":\"/t\"}", "{\"attributes\":{\"a\":null}}"]
        {
            assert!(parse_types(wrong.as_bytes()).is_err(), "{wrong}");
        }
    }
}
