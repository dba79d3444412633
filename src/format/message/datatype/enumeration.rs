//! Enumerations: names of integers.
//!
//! ```text
//! bits 0-15: number of members
//! base       a datatype message (fixed-point, same size)
//! names      NUL-terminated; versions 1 and 2: each padded to a multiple of 8
//! values     one element of the base type per name, packed
//! ```
//!
//! The specification's section is IV.A.2.d, class 8.

use super::{Class, Datatype, Header, Name, decode_at};
use crate::base::Result;
use crate::format::{Reader, Writer};

/// Named integers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Enumeration {
    /// The integer type.
    pub base: Box<Datatype>,
    members: Vec<EnumMember>,
    /// Indexes of `members` in the order of their value bytes.
    by_value: Vec<u32>,
}

/// One name of an enumeration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EnumMember {
    /// Name.
    pub name: Name,
    /// Value: an element of the base type, as stored.
    pub value: Vec<u8>,
}

impl Enumeration {
    /// An enumeration; every value has the size of `base`.
    pub fn new(base: Datatype, members: Vec<EnumMember>) -> Self {
        let mut by_value: Vec<u32> = (0..members.len() as u32).collect();
        by_value.sort_by_key(|&i| members.get(i as usize).map(|m| &m.value));
        Enumeration { base: Box::new(base), members, by_value }
    }

    /// Members in stored order.
    pub fn members(&self) -> &[EnumMember] {
        &self.members
    }

    /// Name of the element `value`; the first stored one if several have it.
    pub fn name_of(&self, value: &[u8]) -> Option<&[u8]> {
        let value_at = |i: u32| self.members.get(i as usize).map(|m| m.value.as_slice()).unwrap_or_default();
        let at = self.by_value.partition_point(|&i| value_at(i) < value);
        let member = self.members.get(*self.by_value.get(at)? as usize)?;
        (member.value == value).then_some(member.name.bytes.as_slice())
    }

    pub(super) fn decode(r: &mut Reader<'_>, h: &Header) -> Result<Self> {
        let count = (h.bits & 0xffff) as usize;
        let base = decode_at(r, h.depth.saturating_add(1))?;
        if !matches!(base.class, Class::FixedPoint(_)) {
            return Err(r.corrupt("the base of an enumeration is no integer"));
        }
        if base.size != h.size {
            return Err(r.corrupt(format!("an enumeration has size {}, its base {}", h.size, base.size)));
        }
        let mut names = Vec::with_capacity(count.min(r.remaining()));
        for _ in 0..count {
            let name = Name::decode(r, h.version)?;
            if name.bytes.is_empty() {
                return Err(r.corrupt("a member of an enumeration has no name"));
            }
            names.push(name);
        }
        let mut members = Vec::with_capacity(names.len());
        for name in names {
            members.push(EnumMember { name, value: r.bytes(base.size as usize)?.to_vec() });
        }
        Ok(Enumeration::new(base, members))
    }

    pub(super) fn bits(&self) -> u32 {
        self.members.len() as u32 & 0xffff
    }

    pub(super) fn encode(&self, w: &mut Writer, version: u8) {
        self.base.encode(w);
        for m in &self.members {
            m.name.encode(w, version);
        }
        for m in &self.members {
            w.bytes(&m.value);
        }
    }
}
