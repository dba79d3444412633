//! Identity of an object of a container.

use crate::base::Address;
use std::fmt;

/// An object of a container. What it is made of is a matter of the container; others compare it,
/// and ask it for numbers and names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ObjectId {
    /// Number of the file within the connector; 0 is the mounted one.
    pub(super) file: u32,
    /// Address of the object header.
    pub(super) address: Address,
}

impl ObjectId {
    /// True for an object of the container itself, which alone can be changed; false for one of
    /// another container that it leads to.
    pub fn is_own(self) -> bool {
        self.file == 0
    }

    /// A number below 2^60 that no other object of the container has, if there is one.
    pub fn inode_hint(self) -> Option<u64> {
        let fits = self.address.0 < 1 << 48 && self.file < 1 << 12;
        fits.then_some(u64::from(self.file) << 48 | self.address.0)
    }

    /// A number that is the same for the same object, and usually larger for one made later.
    pub fn serial(self) -> u64 {
        self.address.0
    }

    /// A number that no other object of the container has.
    pub fn number(self) -> u128 {
        u128::from(self.file) << 64 | u128::from(self.address.0)
    }
}

/// The object within its file; the alternate form names the file, too.
impl fmt::Display for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if f.alternate() { write!(f, "{} of file {}", self.address, self.file) } else { self.address.fmt(f) }
    }
}
