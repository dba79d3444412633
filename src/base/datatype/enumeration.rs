//! Enumeration datatypes: named integers.

use super::{Datatype, Name};

/// Properties of an enumeration datatype.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Enumeration {
    /// The integer type.
    pub base: Box<Datatype>,
    members: Vec<EnumMember>,
    /// Indexes of `members`, sorted by their value bytes.
    by_value: Vec<u32>,
}

/// One member of an enumeration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EnumMember {
    /// Name.
    pub name: Name,
    /// Value: an encoded element of the base type.
    pub value: Vec<u8>,
}

impl Enumeration {
    /// An enumeration; every value must have the size of `base`.
    pub fn new(base: Datatype, members: Vec<EnumMember>) -> Self {
        let mut by_value: Vec<u32> = (0..members.len() as u32).collect();
        by_value.sort_by_key(|&i| members.get(i as usize).map(|m| &m.value));
        Enumeration { base: Box::new(base), members, by_value }
    }

    /// Members in stored order.
    pub fn members(&self) -> &[EnumMember] {
        &self.members
    }

    /// Name of the element `value`; the first stored one if several members have this value.
    pub fn name_of(&self, value: &[u8]) -> Option<&[u8]> {
        let value_at = |i: u32| self.members.get(i as usize).map(|m| m.value.as_slice()).unwrap_or_default();
        let at = self.by_value.partition_point(|&i| value_at(i) < value);
        let member = self.members.get(*self.by_value.get(at)? as usize)?;
        (member.value == value).then_some(member.name.bytes.as_slice())
    }
}
