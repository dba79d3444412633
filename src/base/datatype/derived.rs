//! Datatype classes with a base type: variable-length, array, complex.

use super::{CharacterSet, Datatype, StringPadding};

/// Type of a variable-length element.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VariableLengthKind {
    /// A one-dimensional array.
    Sequence,
    /// A string.
    String,
}

/// Properties of a variable-length datatype: sequences and strings in the global heap.
///
/// An element on disk is `u32 length (in base elements) | address of the heap collection | u32
/// object index`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VariableLength {
    /// Sequence or string.
    pub kind: VariableLengthKind,
    /// Padding of a string; null-terminated for sequences.
    pub padding: StringPadding,
    /// Character set of a string; ASCII for sequences.
    pub charset: CharacterSet,
    /// Type of an item; one byte for strings.
    pub base: Box<Datatype>,
}

/// Properties of an array datatype, with fixed dimensions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Array {
    /// Dimensions, slowest first; at most 32.
    pub dims: Vec<u32>,
    /// Type of an item.
    pub base: Box<Datatype>,
    /// Reserved bytes of version 2.
    pub(crate) reserved: [u8; 3],
    /// Permutation of version 2 unless it is the identity 0, 1, 2, ...
    pub(crate) permutation: Vec<u32>,
}

impl Array {
    /// An array of `base`. The datatype's size must be that of `base` times the dimensions.
    pub fn new(dims: Vec<u32>, base: Datatype) -> Self {
        Array { dims, base: Box::new(base), reserved: [0; 3], permutation: Vec::new() }
    }

    /// Number of items in one array.
    #[cfg(test)]
    pub fn count(&self) -> u64 {
        self.dims.iter().fold(1u64, |n, &d| n.saturating_mul(d.into()))
    }
}

/// Properties of a complex datatype: two floating-point numbers, the real part first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Complex {
    /// Type of both parts.
    pub base: Box<Datatype>,
}
