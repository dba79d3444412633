//! Extents: ranges of the file that structures own.
//!
//! Each structure has one function that visits its extents. Deletion frees what it visits; the
//! accounting of the file's space sums it.

use super::edit::SpaceKind;
use crate::base::{Address, Result};

/// A range of the file that one structure owns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    /// First byte.
    pub address: Address,
    /// Length, bytes.
    pub len: u64,
    /// Purpose of the space.
    pub kind: SpaceKind,
    /// True if several objects refer to the extent: a global heap collection.
    pub shared: bool,
    /// Name of the structure.
    pub structure: &'static str,
    /// Bytes that count for the limit of a walk: `len`, and fewer for an array whose unwritten
    /// pages are a hole that no reader visits.
    pub cost: u64,
}

/// Called with each extent. An error ends the walk.
pub type Visit<'a> = dyn FnMut(Extent) -> Result<()> + 'a;

impl Extent {
    /// An extent that was allocated as metadata.
    pub fn metadata(address: Address, len: u64, structure: &'static str) -> Self {
        Extent { address, len, kind: SpaceKind::Metadata, shared: false, structure, cost: len }
    }

    /// An extent that was allocated as raw data.
    pub fn raw(address: Address, len: u64, structure: &'static str) -> Self {
        Extent { kind: SpaceKind::Raw, ..Self::metadata(address, len, structure) }
    }
}

/// All extents that `walk` visits.
pub fn collect(walk: impl FnOnce(&mut Visit<'_>) -> Result<()>) -> Result<Vec<Extent>> {
    let mut all = Vec::new();
    walk(&mut |extent| {
        all.push(extent);
        Ok(())
    })?;
    Ok(all)
}
