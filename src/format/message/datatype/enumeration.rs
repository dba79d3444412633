//! Enumeration datatypes: named integers.
//!
//! ```text
//! bits 0-15: number of members
//! base       a datatype message (fixed-point, same size)
//! names      NUL-terminated; versions 1 and 2: each padded to a multiple of 8
//! values     one element of the base type per name, packed
//! ```
//!
//! Source: section IV.A.2.d of the specification, class 8.

use super::{Class, EnumMember, Enumeration, Header, Name, decode_at};
use crate::base::Result;
use crate::format::{Reader, Writer};

impl Enumeration {
    pub(super) fn decode(r: &mut Reader<'_>, h: &Header) -> Result<Self> {
        let count = (h.bits & 0xffff) as usize;
        let base = decode_at(r, h.depth.saturating_add(1))?;
        if !matches!(base.class, Class::FixedPoint(_)) {
            return Err(r.corrupt("the base of an enumeration is not an integer"));
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
        self.members().len() as u32 & 0xffff
    }

    pub(super) fn encode(&self, w: &mut Writer, version: u8) {
        self.base.encode(w);
        for m in self.members() {
            m.name.encode(w, version);
        }
        for m in self.members() {
            w.bytes(&m.value);
        }
    }
}
