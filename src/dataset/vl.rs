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
use crate::format::message::datatype::{Class, Datatype, Member};

/// How elements of a datatype are walked; made once, used for every element.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VariableForm {
    plan: Plan,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Plan {
    /// Bytes that stay as they are.
    Verbatim,
    /// Bytes that are not taken from the form: zeros in their place.
    Zeroed,
    /// A descriptor.
    Variable { base_size: u32, base: Box<Plan> },
    /// Parts that are not verbatim by start and end in the element, in order; the rest is verbatim.
    Compound(Vec<(usize, usize, Plan)>),
    /// Equal parts of so many bytes, none verbatim.
    Array(usize, Box<Plan>),
}

impl Plan {
    fn of(t: &Datatype, references: bool) -> Plan {
        // The depth of the recursion is that of the datatype message, which its decoder bounds.
        match &t.class {
            Class::VariableLength(v) => Plan::Variable { base_size: v.base.size, base: Box::new(Plan::of(&v.base, references)) },
            Class::Compound(c) => {
                let members = c.by_offset();
                let end = |m: &Member| usize::try_from(m.end()).unwrap_or(usize::MAX);
                let parts = members.iter().map(|m| (m.offset as usize, end(m), Plan::of(&m.datatype, references)));
                let parts: Vec<_> = parts.filter(|(.., plan)| *plan != Plan::Verbatim).collect();
                if parts.is_empty() { Plan::Verbatim } else { Plan::Compound(parts) }
            }
            Class::Array(a) => match Plan::of(&a.base, references) {
                Plan::Verbatim => Plan::Verbatim,
                base => Plan::Array(a.base.size as usize, Box::new(base)),
            },
            Class::Reference(_) if !references => Plan::Zeroed,
            _ => Plan::Verbatim,
        }
    }
}

impl VariableForm {
    /// The form of `t`'s elements.
    pub fn of(t: &Datatype) -> Self {
        VariableForm { plan: Plan::of(t, true) }
    }

    /// The form of `t`'s elements, to be parsed without their references, which become null.
    pub fn without_references(t: &Datatype) -> Self {
        VariableForm { plan: Plan::of(t, false) }
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

impl VariableForm {
    /// True when no part is variable.
    pub fn is_verbatim(&self) -> bool {
        self.plan == Plan::Verbatim
    }

    /// Calls `f` with each sequence that `element` holds, those inside others first. What cannot be read is left out.
    pub fn sequences(&self, element: &[u8], environment: &Environment<'_>, f: &mut dyn FnMut(&Descriptor)) {
        self.plan.sequences(element, environment, &mut Budget::new(environment.limit), f);
    }
}

impl Plan {
    fn sequences(&self, element: &[u8], environment: &Environment<'_>, budget: &mut Budget, f: &mut dyn FnMut(&Descriptor)) {
        match self {
            Plan::Verbatim | Plan::Zeroed => {}
            Plan::Variable { base_size, base } => {
                let Some(d) = Descriptor::decode(element, &environment.ctx).ok().filter(|d| d.count > 0) else { return };
                if **base != Plan::Verbatim
                    && let Ok(payload) = d.payload(*base_size, environment.resolver, budget)
                {
                    let parts = payload.chunks_exact((*base_size).max(1) as usize);
                    parts.for_each(|part| base.sequences(part, environment, budget, f));
                }
                f(&d);
            }
            Plan::Compound(parts) => {
                for (start, end, plan) in parts {
                    plan.sequences(element.get(*start..*end).unwrap_or_default(), environment, budget, f);
                }
            }
            Plan::Array(size, base) => {
                element.chunks_exact((*size).max(1)).for_each(|part| base.sequences(part, environment, budget, f));
            }
        }
    }
}

/// Keeps so many base elements, which are these bytes; returns the descriptor.
pub type Keep<'a> = dyn FnMut(u32, &[u8]) -> Result<Vec<u8>> + 'a;

impl VariableForm {
    /// Length of the exact form, that of an element of `size` bytes, which `form` begins with; `None` if `form` ends too early.
    pub fn form_len(&self, size: usize, form: &[u8]) -> Option<usize> {
        self.plan.form_len(size, form)
    }

    /// The inverse of [`VariableForm::exact`]: the element of `size` bytes whose exact form `form` begins with, and the form's
    /// length. `None`: `form` ends too early.
    pub fn parse(&self, size: usize, form: &[u8], keep: &mut Keep<'_>) -> Result<Option<(Vec<u8>, usize)>> {
        // Nothing is kept of what is not there as a whole.
        let Some(len) = self.plan.form_len(size, form) else { return Ok(None) };
        let mut rest = form.get(..len).unwrap_or_default();
        let mut element = Vec::with_capacity(size);
        Ok(self.plan.parse(size, &mut rest, keep, &mut element)?.map(|()| (element, len)))
    }
}

impl Plan {
    /// Length of the exact form of `size` bytes of elements that `form` begins with; `None` if it ends before.
    fn form_len(&self, size: usize, form: &[u8]) -> Option<usize> {
        let len = match self {
            Plan::Verbatim | Plan::Zeroed => size,
            Plan::Variable { base_size, base } => {
                let count = usize::try_from(u32::from_le_bytes(form.get(..4)?.try_into().ok()?)).ok()?;
                let base_size = *base_size as usize;
                match **base {
                    Plan::Verbatim | Plan::Zeroed => count.checked_mul(base_size)?.checked_add(4)?,
                    // Each takes four bytes at least, so that the count is bounded by the form.
                    _ => (0..count).try_fold(4usize, |at, _| at.checked_add(base.form_len(base_size, form.get(at..)?)?))?,
                }
            }
            Plan::Compound(parts) => {
                let (mut at, mut len) = (0usize, 0usize);
                for (start, end, plan) in parts {
                    len = len.checked_add(start.checked_sub(at)?)?;
                    len = len.checked_add(plan.form_len(end.checked_sub(*start)?, form.get(len..)?)?)?;
                    at = *end;
                }
                len.checked_add(size.checked_sub(at)?)?
            }
            Plan::Array(each, base) => {
                (0..size.checked_div(*each)?).try_fold(0usize, |at, _| at.checked_add(base.form_len(*each, form.get(at..)?)?))?
            }
        };
        (form.len() >= len).then_some(len)
    }

    /// Takes an element from the front of `form` and appends it to `out`.
    fn parse(&self, size: usize, form: &mut &[u8], keep: &mut Keep<'_>, out: &mut Vec<u8>) -> Result<Option<()>> {
        fn take<'a>(form: &mut &'a [u8], n: usize) -> Option<&'a [u8]> {
            let (front, rest) = form.split_at_checked(n)?;
            *form = rest;
            Some(front)
        }
        match self {
            Plan::Verbatim => {
                let Some(bytes) = take(form, size) else { return Ok(None) };
                out.extend_from_slice(bytes);
            }
            Plan::Zeroed => {
                let Some(bytes) = take(form, size) else { return Ok(None) };
                out.resize(out.len().saturating_add(bytes.len()), 0);
            }
            Plan::Variable { base_size, base } => {
                let Some(count) = take(form, 4).and_then(|b| b.try_into().ok()).map(u32::from_le_bytes) else { return Ok(None) };
                let base_size = *base_size as usize;
                let mut payload = Vec::new();
                if **base == Plan::Verbatim {
                    let Some(bytes) = (count as usize).checked_mul(base_size).and_then(|n| take(form, n)) else { return Ok(None) };
                    payload.extend_from_slice(bytes);
                } else {
                    for _ in 0..count {
                        if base.parse(base_size, form, keep, &mut payload)?.is_none() {
                            return Ok(None);
                        }
                    }
                }
                out.extend(keep(count, &payload)?);
            }
            Plan::Compound(parts) => {
                let mut at = 0usize;
                for (start, end, plan) in parts {
                    let Some(bytes) = start.checked_sub(at).and_then(|n| take(form, n)) else { return Ok(None) };
                    out.extend_from_slice(bytes);
                    if plan.parse(end.saturating_sub(*start), form, keep, out)?.is_none() {
                        return Ok(None);
                    }
                    at = *end;
                }
                let Some(bytes) = size.checked_sub(at).and_then(|n| take(form, n)) else { return Ok(None) };
                out.extend_from_slice(bytes);
            }
            Plan::Array(each, base) => {
                for _ in 0..size.checked_div(*each).unwrap_or(0) {
                    if base.parse(*each, form, keep, out)?.is_none() {
                        return Ok(None);
                    }
                }
            }
        }
        Ok(Some(()))
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
            Plan::Verbatim | Plan::Zeroed => self.push(bytes),
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
