//! Types of a map from the JSON of `user.h5dir.map`.

use super::dataset::dtype;
use super::invalid;
use super::node::{Fields, Node};
use crate::base::Result;
use crate::base::datatype::Datatype;

/// Types of keys and values: `{"key": TYPE, "value": TYPE}`, each as in `user.h5dir.dataset`.
pub fn map_types(text: &[u8], sizeof_addr: u8) -> Result<(Datatype, Datatype)> {
    let node = Node::parse(text)?;
    let fields = Fields::new("a map", &node, &["key", "value"])?;
    let of = |key: &str| match fields.get(key) {
        Some(value) => dtype(value, sizeof_addr),
        None => Err(invalid(format!("a map needs the type of its {key}: {{\"key\":\"<i8\",\"value\":\"<f8\"}}"))),
    };
    Ok((of("key")?, of("value")?))
}
