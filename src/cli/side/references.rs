//! Compares values that may hold references, which are paths.
//!
//! An object has a path for each of its hard links, and a container shows one of them. So two paths
//! are equal if both lead to one object of the container on the right.

use super::container::Container;
use crate::cli::tree;
use crate::fs::JsonTree;

/// True if both values are equal, where a path may be another path of the same object of
/// `right_of`.
pub(crate) fn same(left: &JsonTree, right: &JsonTree, right_of: &Container) -> bool {
    match (left, right) {
        (JsonTree::Array(a), JsonTree::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b, right_of)),
        (JsonTree::Object(a), JsonTree::Object(b)) => {
            let of = |name: &[u8]| b.iter().find(|(key, _)| key == name).map(|(_, value)| value);
            a.len() == b.len() && a.iter().all(|(key, a)| of(key).is_some_and(|b| same(a, b, right_of)))
        }
        (JsonTree::String(a), JsonTree::String(b)) if a != b => lead_to_one_object(a, b, right_of),
        _ => left == right,
    }
}

/// True if the text `dtype`, a JSON description, has a reference.
pub(crate) fn has_reference(dtype: &JsonTree) -> bool {
    match dtype {
        JsonTree::Object(fields) => {
            dtype.get("class").and_then(JsonTree::text) == Some(b"H5T_REFERENCE") || fields.iter().any(|(_, value)| has_reference(value))
        }
        JsonTree::Array(items) => items.iter().any(has_reference),
        _ => false,
    }
}

fn lead_to_one_object(a: &[u8], b: &[u8], container: &Container) -> bool {
    let is_path = |text: &[u8]| text.starts_with(b"/");
    let number = |path: &[u8]| Some(tree::locate(&*container.operations, path, false).ok()?.attr.ino);
    is_path(a) && is_path(b) && number(a).is_some_and(|found| number(b) == Some(found))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::tree::tests::sample;
    use std::sync::Arc;

    #[test]
    fn paths_of_one_object_are_equal() {
        let container = Container { operations: Arc::new(sample()), domain: 0 };
        let tree = |text: &str| JsonTree::parse(text.as_bytes()).unwrap();
        let same = |a, b| same(&tree(a), &tree(b), &container);
        assert!(same(r#"["/g/d", null]"#, r#"["/up/d", null]"#));
        assert!(same(r#"{"a": 1, "b": ["/g/d"]}"#, r#"{"a": 1, "b": ["/g/d"]}"#));
        assert!(!same(r#"["/g/d"]"#, r#"["/g"]"#));
        assert!(!same(r#"["/g/d"]"#, r#"["/g/none"]"#));
        assert!(!same(r#"["/g/d"]"#, r#"["/g/d", 1]"#));
        assert!(!same(r#"{"a": 1}"#, r#"{"b": 1}"#));
        assert!(!same(r#""g/d""#, r#""up/d""#), "no paths");
    }

    #[test]
    fn references_are_found_in_types() {
        let tree = |text: &str| JsonTree::parse(text.as_bytes()).unwrap();
        assert!(has_reference(&tree(r#"{"class": "H5T_COMPOUND", "fields": [{"name": "r", "type": {"class": "H5T_REFERENCE"}}]}"#)));
        assert!(!has_reference(&tree(r#"{"class": "H5T_STRING", "name": "H5T_REFERENCE"}"#)));
    }
}
