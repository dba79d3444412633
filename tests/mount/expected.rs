//! What h5py says of a fixture: the JSON that make_mount.py wrote beside it.

use serde_json::Value;
use std::path::PathBuf;

/// Folder of the fixtures.
pub fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/mount")
}

/// The JSON beside the fixture `name`.
pub fn of(name: &str) -> Value {
    serde_json::from_slice(&std::fs::read(folder().join(format!("{name}.json"))).unwrap()).unwrap()
}

/// Bytes from hexadecimal digits.
pub fn bytes(hex: &str) -> Vec<u8> {
    (0..hex.len()).step_by(2).map(|i| u8::from_str_radix(&hex[i..i + 2], 16).unwrap()).collect()
}

/// The entries of an object, or of nothing.
pub fn entries(v: &Value) -> impl Iterator<Item = (&str, &Value)> {
    v.as_object().into_iter().flatten().map(|(k, v)| (k.as_str(), v))
}

/// The strings of a list.
pub fn strings(v: &Value) -> Vec<&str> {
    v.as_array().unwrap().iter().map(|s| s.as_str().unwrap()).collect()
}
