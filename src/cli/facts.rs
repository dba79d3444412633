//! Facts of objects as JSON.

use super::text;
use crate::fs::JsonTree;
use serde_json::Value;

/// Prefix of extended attributes that h5dir derives.
pub(crate) const FACT_PREFIX: &[u8] = b"user.h5dir.";
/// Namespace of all extended attributes of a mount.
pub(crate) const USER_PREFIX: &[u8] = b"user.";

/// Facts whose text is never JSON, though it may look like it.
const TEXT_FACTS: [&str; 6] = ["comment", "fillvalue", "index", "layout", "name", "profile"];

/// A fact as JSON: nested if its text is JSON.
pub(crate) fn fact_json(name: &[u8], value: &[u8]) -> Value {
    let is_text = TEXT_FACTS.iter().any(|text| text.as_bytes() == name);
    // numpy's notation of types is Python.
    let tree = JsonTree::parse_json(value).ok().filter(|_| !is_text);
    tree.and_then(|tree| nested(&tree)).unwrap_or_else(|| text::json(value))
}

/// The tree as JSON; strings that are not UTF-8 become `{"hex": "..."}`. `None`: the name of a
/// field is not UTF-8, or a number is not finite.
fn nested(tree: &JsonTree) -> Option<Value> {
    // The depth of the recursion is the text's, which its parser bounds.
    Some(match tree {
        JsonTree::Null => Value::Null,
        JsonTree::Bool(b) => Value::Bool(*b),
        JsonTree::Number(n) => Value::Number(n.parse().ok()?),
        JsonTree::String(s) => text::json(s),
        JsonTree::Array(items) => Value::Array(items.iter().map(nested).collect::<Option<_>>()?),
        JsonTree::Object(fields) => {
            let field = |(name, value): &(Vec<u8>, JsonTree)| Some((String::from_utf8(name.clone()).ok()?, nested(value)?));
            Value::Object(fields.iter().map(field).collect::<Option<_>>()?)
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn facts_that_are_json_are_nested() {
        assert_eq!((fact_json(b"maxshape", b"[1, null]"), fact_json(b"storage", b"17")), (json!([1, null]), json!(17)));
        assert_eq!((fact_json(b"dtype", b"<f8"), fact_json(b"fillvalue", b"17")), (json!("<f8"), json!("17")));
        let bytes = br#"[{"name":"a","value":"\udcb5m"}]"#;
        assert_eq!(fact_json(b"attributes", bytes), json!([{"name": "a", "value": {"hex": "b56d"}}]));
        assert_eq!(fact_json(b"dtype", br"[('\udc', '<i4')]"), json!(r"[('\udc', '<i4')]"));
    }
}
