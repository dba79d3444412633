//! Compound datatypes.

use super::{Datatype, Name};

/// Properties of a compound datatype.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Compound {
    /// Members in stored order, which may differ from the order of offsets. At most 65535.
    pub members: Vec<Member>,
}

/// One member of a compound datatype.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// Name.
    pub name: Name,
    /// Byte offset in the element.
    pub offset: u32,
    /// Datatype; for a version 1 member with dimensions, the array of these dimensions.
    pub datatype: Datatype,
    /// Dimension fields of a version 1 message; `None` from version 2 on.
    pub array: Option<MemberArray>,
}

/// Dimension fields of a version 1 member as stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MemberArray {
    /// Number of dimensions, 0 to 4.
    pub dimensionality: u8,
    /// Reserved.
    pub reserved: [u8; 3],
    /// Permutation of the dimensions; unused.
    pub permutation: u32,
    /// Reserved.
    pub reserved2: [u8; 4],
    /// Dimensions, slowest first; only the first `dimensionality` ones are used.
    pub dims: [u32; 4],
}

impl Member {
    /// Offset of the first byte after the member in the element.
    pub fn end(&self) -> u64 {
        u64::from(self.offset).saturating_add(self.datatype.element_size())
    }
}

impl Compound {
    /// Members sorted by offset.
    pub fn by_offset(&self) -> Vec<&Member> {
        let mut members: Vec<&Member> = self.members.iter().collect();
        members.sort_by_key(|m| m.offset);
        members
    }
}
