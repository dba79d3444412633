//! A file address: bytes from the superblock's base address, or undefined (all bits set).

use std::fmt;

/// Address of a structure, relative to the superblock's base address. Unit: bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Address(pub u64);

impl Address {
    /// The undefined address ("U" in the specification).
    pub const UNDEF: Address = Address(u64::MAX);

    /// True when the address is defined.
    pub fn is_defined(self) -> bool {
        self != Self::UNDEF
    }

    /// The address as a number, or `None` if undefined.
    pub fn defined(self) -> Option<u64> {
        self.is_defined().then_some(self.0)
    }

    /// `self + n`, or `None` when undefined or past 2^64.
    pub fn checked_add(self, n: u64) -> Option<Address> {
        self.defined()?.checked_add(n).map(Address)
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.defined() {
            Some(a) => write!(f, "{a:#x}"),
            None => f.write_str("undefined"),
        }
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
