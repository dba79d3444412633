//! Pairs of a map of the in-memory model, sorted by the bytes of their keys.

use super::maps::MapTypes;
use std::collections::BTreeMap;

/// A map of the model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemoryMap {
    /// Its types.
    pub types: MapTypes,
    /// Values by key.
    pub pairs: BTreeMap<Vec<u8>, Vec<u8>>,
}
