//! Canonical byte forms of variable-length elements.
//!
//! *Exact form*: the element's bytes as stored, with every variable-length descriptor (in the
//! element, in compound members and array elements) replaced by
//! `u32 count of base elements, lowest byte first | the base elements, each in exact form`.
//! A string's base elements are its bytes, all that are stored. Nil descriptors have count 0.
//!
//! *Lines form*, for strings: the bytes up to the first NUL, and a newline.

use super::types::resolver::{Budget, Descriptor, Environment};
use super::types::value::until_nul;
use crate::base::{Address, Error, Result};
use crate::format::message::datatype::{Class, Datatype};

/// How elements of a datatype are walked; made once, used for every element.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VariableForm {
    plan: Plan,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Plan {
    /// Bytes that stay as they are.
    Verbatim,
    /// A descriptor.
    Variable { base_size: u32, base: Box<Plan> },
    /// Parts that are not verbatim by start and end in the element, in order; the rest is verbatim.
    Compound(Vec<(usize, usize, Plan)>),
    /// Equal parts of so many bytes, none verbatim.
    Array(usize, Box<Plan>),
}

impl Plan {
    fn of(t: &Datatype) -> Plan {
        // The depth of the recursion is that of the datatype message, which its decoder bounds.
        match &t.class {
            Class::VariableLength(v) => Plan::Variable { base_size: v.base.size, base: Box::new(Plan::of(&v.base)) },
            Class::Compound(c) => {
                let members = c.by_offset();
                let parts =
                    members.iter().map(|m| (m.offset as usize, usize::try_from(m.end()).unwrap_or(usize::MAX), Plan::of(&m.datatype)));
                let parts: Vec<_> = parts.filter(|(.., plan)| *plan != Plan::Verbatim).collect();
                if parts.is_empty() { Plan::Verbatim } else { Plan::Compound(parts) }
            }
            Class::Array(a) => match Plan::of(&a.base) {
                Plan::Verbatim => Plan::Verbatim,
                base => Plan::Array(a.base.size as usize, Box::new(base)),
            },
            _ => Plan::Verbatim,
        }
    }
}

impl VariableForm {
    /// The form of `t`'s elements.
    pub fn of(t: &Datatype) -> Self {
        VariableForm { plan: Plan::of(t) }
    }

    /// Size of the base elements, if an element is one sequence of elements that stay as they are.
    pub fn plain_base(&self) -> Option<u32> {
        match &self.plan {
            Plan::Variable { base_size, base } if **base == Plan::Verbatim => Some(*base_size),
            _ => None,
        }
    }

    /// Length of `element`'s exact form, bytes. Heap objects are read only for sequences in sequences.
    /// Longer than the environment's limit is [`Error::Limit`].
    pub fn exact_len(&self, element: &[u8], environment: &Environment<'_>) -> Result<u64> {
        let mut walk = Walk { environment, budget: Budget::new(environment.limit), out: None, len: 0 };
        walk.element(&self.plan, element)?;
        Ok(walk.len)
    }

    /// Appends `element`'s exact form to `out`. Longer than the environment's limit is [`Error::Limit`];
    /// after an error `out` holds a part of it.
    pub fn exact(&self, element: &[u8], environment: &Environment<'_>, out: &mut Vec<u8>) -> Result<()> {
        let mut walk = Walk { environment, budget: Budget::new(environment.limit), out: Some(out), len: 0 };
        walk.element(&self.plan, element)
    }

    /// Appends the lines form of a variable-length string to `out`. Other datatypes are [`Error::Unsupported`].
    pub fn line(&self, element: &[u8], environment: &Environment<'_>, out: &mut Vec<u8>) -> Result<()> {
        let Plan::Variable { base_size, .. } = self.plan else {
            return Err(Error::unsupported("value", Address::UNDEF, "lines of another type than variable-length strings"));
        };
        let d = Descriptor::decode(element, &environment.ctx)?;
        let mut budget = Budget::new(environment.limit);
        let payload = d.payload(base_size, environment.resolver, &mut budget)?;
        let s = until_nul(&payload);
        budget.output((s.len() as u64).saturating_add(1))?;
        out.extend_from_slice(s);
        out.push(b'\n');
        Ok(())
    }
}

/// One pass over an element that counts or writes.
struct Walk<'a, 'o> {
    environment: &'a Environment<'a>,
    budget: Budget,
    out: Option<&'o mut Vec<u8>>,
    len: u64,
}

impl Walk<'_, '_> {
    fn count(&mut self, n: u64) -> Result<()> {
        self.budget.output(n)?;
        self.len = self.len.saturating_add(n);
        Ok(())
    }

    fn push(&mut self, bytes: &[u8]) -> Result<()> {
        self.count(bytes.len() as u64)?;
        if let Some(out) = self.out.as_deref_mut() {
            out.extend_from_slice(bytes);
        }
        Ok(())
    }

    fn element(&mut self, plan: &Plan, bytes: &[u8]) -> Result<()> {
        match plan {
            Plan::Verbatim => self.push(bytes),
            Plan::Variable { base_size, base } => self.variable(*base_size, base, bytes),
            Plan::Compound(parts) => self.compound(parts, bytes),
            Plan::Array(size, base) => self.each(*size, base, bytes),
        }
    }

    fn each(&mut self, size: usize, base: &Plan, bytes: &[u8]) -> Result<()> {
        if *base == Plan::Verbatim {
            return self.push(bytes);
        }
        bytes.chunks_exact(size.max(1)).try_for_each(|part| self.element(base, part))
    }

    fn variable(&mut self, base_size: u32, base: &Plan, bytes: &[u8]) -> Result<()> {
        let d = Descriptor::decode(bytes, &self.environment.ctx)?;
        self.push(&d.count.to_le_bytes())?;
        if self.out.is_none() && *base == Plan::Verbatim {
            return self.count(d.payload_len(base_size));
        }
        let payload = d.payload(base_size, self.environment.resolver, &mut self.budget)?;
        self.each(base_size as usize, base, &payload)
    }

    fn compound(&mut self, parts: &[(usize, usize, Plan)], bytes: &[u8]) -> Result<()> {
        let outside = || Error::corrupt("value", Address::UNDEF, "a compound member lies outside its element");
        let mut at = 0usize;
        for (start, end, plan) in parts {
            self.push(bytes.get(at..*start).ok_or_else(outside)?)?;
            self.element(plan, bytes.get(*start..*end).ok_or_else(outside)?)?;
            at = *end;
        }
        self.push(bytes.get(at..).ok_or_else(outside)?)
    }
}
