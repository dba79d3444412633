//! Objects of a damaged container that are found without names.

use super::{ObjectId, Result};
use std::ops::ControlFlow;

/// Takes objects, each with the position after it.
pub type FoundVisitor<'a> = dyn FnMut(ObjectId, u64) -> ControlFlow<()> + 'a;

/// Looks for objects by what they are made of.
pub trait Salvage {
    /// Visits the objects from position `start` on (0 = all), until `f` breaks. Reads the container
    /// up to there.
    fn found(&self, start: u64, f: &mut FoundVisitor<'_>) -> Result<()>;

    /// The object called `name`, as its identity is printed.
    fn named(&self, name: &[u8]) -> Option<ObjectId>;
}
