//! Compares values that may hold references, which are paths.
//!
//! An object has a path for each of its hard links, and a container shows one of them. So two paths
//! are equal if both lead to one object of the container on the right.

use super::container::Container;
use crate::cli::tree;
use serde_json::Value;

/// True if both values are equal, where a path may be another path of the same object of
/// `right_of`.
pub(crate) fn same(left: &Value, right: &Value, right_of: &Container) -> bool {
    match (left, right) {
        (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b, right_of)),
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len() && a.iter().all(|(key, a)| b.get(key).is_some_and(|b| same(a, b, right_of)))
        }
        (Value::String(a), Value::String(b)) if a != b => lead_to_one_object(a, b, right_of),
        _ => left == right,
    }
}

/// True if the text `dtype`, a JSON description, has a reference.
pub(crate) fn has_reference(dtype: &Value) -> bool {
    match dtype {
        Value::Object(fields) => fields.get("class").and_then(Value::as_str) == Some("H5T_REFERENCE") || fields.values().any(has_reference),
        Value::Array(items) => items.iter().any(has_reference),
        _ => false,
    }
}

fn lead_to_one_object(a: &str, b: &str, container: &Container) -> bool {
    let is_path = |text: &str| text.starts_with('/');
    let number = |path: &str| Some(tree::locate(&*container.operations, path.as_bytes(), false).ok()?.attr.ino);
    is_path(a) && is_path(b) && number(a).is_some_and(|found| number(b) == Some(found))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::tree::tests::sample;
    use serde_json::json;
    use std::sync::Arc;

    #[test]
    fn paths_of_one_object_are_equal() {
        let container = Container { operations: Arc::new(sample()), domain: 0 };
        let same = |a, b| same(&a, &b, &container);
        assert!(same(json!(["/g/d", null]), json!(["/up/d", null])));
        assert!(same(json!({"a": 1, "b": ["/g/d"]}), json!({"a": 1, "b": ["/g/d"]})));
        assert!(!same(json!(["/g/d"]), json!(["/g"])));
        assert!(!same(json!(["/g/d"]), json!(["/g/none"])));
        assert!(!same(json!(["/g/d"]), json!(["/g/d", 1])));
        assert!(!same(json!({"a": 1}), json!({"b": 1})));
        assert!(!same(json!("g/d"), json!("up/d")), "no paths");
    }

    #[test]
    fn references_are_found_in_types() {
        assert!(has_reference(&json!({"class": "H5T_COMPOUND", "fields": [{"name": "r", "type": {"class": "H5T_REFERENCE"}}]})));
        assert!(!has_reference(&json!({"class": "H5T_STRING", "name": "H5T_REFERENCE"})));
    }
}
