//! Canonical byte forms of variable-length elements.
//!
//! *Exact form*: the element's bytes as stored, with every variable-length descriptor (in the
//! element, in compound members and array elements) replaced by
//! `u32 count of base elements, lowest byte first | the base elements, each in exact form`.
//! A string's base elements are all its stored bytes. Nil descriptors have count 0.
//!
//! *Lines form*, for strings: the bytes up to the first NUL, and a newline.

use super::datatype::{Class, Datatype, Member, Reference, ReferenceKind};
use super::parts::{Budget, Limited, Parts, Target};
use super::{Address, Error, Result};
use foldhash::HashMap;

/// Memory of a target beside its path and its part, about.
const TARGET_BYTES: u64 = 256;

/// Plan for walking elements of a datatype; made once, used for every element.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct VariableForm {
    plan: Plan,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Plan {
    /// Bytes that are copied unchanged.
    Verbatim,
    /// Bytes that are parsed as zeros, whatever the form holds.
    Zeroed,
    /// A reference of this size in bytes; the form has a number in its place.
    Numbered(Reference, usize),
    /// A variable-length descriptor.
    Variable { base_size: u32, base: Box<Plan> },
    /// Members that are not verbatim: start, end, plan; ordered by start. All else is verbatim.
    Compound(Vec<(usize, usize, Plan)>),
    /// Array of elements of this size in bytes, not verbatim.
    Array(usize, Box<Plan>),
}

/// What the form has of references.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AsForm {
    Bytes,
    Zeros,
    Numbers,
    /// Numbers, if a part of the reference may be outside of the element.
    NumbersOfHeld,
}

/// A descriptor in an element, of a part that is stored outside of the element.
#[derive(Debug)]
pub(crate) enum Held<'a> {
    /// A sequence that is not nil.
    Sequence(&'a [u8]),
    /// A reference of a kind that may have such a part.
    Reference(&'a Reference, &'a [u8]),
    /// A sequence that cannot be read; nested descriptors are missing.
    Unreadable(Error),
}

impl Plan {
    fn of(t: &Datatype, references: AsForm) -> Plan {
        // The datatype's decoder bounds the recursion.
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
            Class::Reference(_) if references == AsForm::Zeros => Plan::Zeroed,
            Class::Reference(r) if references == AsForm::Numbers => Plan::Numbered(*r, t.size as usize),
            Class::Reference(r) if references == AsForm::NumbersOfHeld && r.kind != ReferenceKind::Object1 => {
                Plan::Numbered(*r, t.size as usize)
            }
            _ => Plan::Verbatim,
        }
    }
}

impl VariableForm {
    /// The forms of elements of type `t`.
    pub fn of(t: &Datatype) -> Self {
        VariableForm { plan: Plan::of(t, AsForm::Bytes) }
    }

    /// The forms of elements of type `t`, with references parsed as null.
    pub fn without_references(t: &Datatype) -> Self {
        VariableForm { plan: Plan::of(t, AsForm::Zeros) }
    }

    /// The forms of elements in a [`crate::base::value::NewValue`]: numbers in place of references.
    pub fn numbered(t: &Datatype) -> Self {
        VariableForm { plan: Plan::of(t, AsForm::Numbers) }
    }

    /// Plan for [`VariableForm::held`], which visits references too.
    pub fn holding(t: &Datatype) -> Self {
        VariableForm { plan: Plan::of(t, AsForm::NumbersOfHeld) }
    }

    /// Size of the base elements, if an element is one sequence of verbatim base elements.
    pub(crate) fn plain_base(&self) -> Option<u32> {
        match &self.plan {
            Plan::Variable { base_size, base } if **base == Plan::Verbatim => Some(*base_size),
            _ => None,
        }
    }

    /// Length of `element`'s exact form, bytes. Reads parts only for nested sequences.
    /// [`Error::Limit`] if longer than the limit.
    pub fn exact_len(&self, element: &[u8], limited: &Limited<'_>) -> Result<u64> {
        let mut budget = Budget::new(limited.limit);
        let mut walk = Walk { parts: limited.parts, budget: &mut budget, out: None, targets: None, len: 0 };
        walk.element(&self.plan, element)?;
        Ok(walk.len)
    }

    /// Appends `element`'s exact form to `out`. [`Error::Limit`] if longer than the limit. After an
    /// error `out` holds a part of the form.
    pub fn exact(&self, element: &[u8], limited: &Limited<'_>, out: &mut Vec<u8>) -> Result<()> {
        self.exact_within(element, limited.parts, &mut Budget::new(limited.limit), out)
    }

    /// Appends `element`'s exact form to `out`, within `budget`.
    pub fn exact_within(&self, element: &[u8], parts: &dyn Parts, budget: &mut Budget, out: &mut Vec<u8>) -> Result<()> {
        let mut walk = Walk { parts, budget, out: Some(out), targets: None, len: 0 };
        walk.element(&self.plan, element)
    }

    /// As [`VariableForm::exact_within`], with the number of its target, from 1 on, in place of
    /// each reference; 0 if it is nil. Appends the targets to `targets`.
    pub fn numbered_within(
        &self,
        element: &[u8],
        parts: &dyn Parts,
        budget: &mut Budget,
        targets: &mut NumberedTargets,
        out: &mut Vec<u8>,
    ) -> Result<()> {
        let mut walk = Walk { parts, budget, out: Some(out), targets: Some(targets), len: 0 };
        walk.element(&self.plan, element)
    }

    /// Appends the lines form of a variable-length string to `out`. [`Error::Unsupported`] for
    /// other datatypes.
    pub fn line(&self, element: &[u8], limited: &Limited<'_>, out: &mut Vec<u8>) -> Result<()> {
        let Plan::Variable { base_size, .. } = self.plan else {
            return Err(Error::unsupported("value", Address::UNDEF, "only variable-length strings are shown as lines"));
        };
        let mut budget = Budget::new(limited.limit);
        let payload = limited.parts.sequence(element, base_size, &mut budget)?;
        let s = until_nul(&payload);
        budget.output((s.len() as u64).saturating_add(1))?;
        out.extend_from_slice(s);
        out.push(b'\n');
        Ok(())
    }
}

impl VariableForm {
    /// True when elements have no variable-length part.
    pub(crate) fn is_verbatim(&self) -> bool {
        self.plan == Plan::Verbatim
    }

    /// Calls `f` with the bytes of each variable-length descriptor in `element` that is not nil,
    /// nested ones first. Skips unreadable sequences.
    pub fn sequences(&self, element: &[u8], limited: &Limited<'_>, f: &mut dyn FnMut(&[u8])) {
        self.held(element, limited, &mut |held| {
            if let Held::Sequence(descriptor) = held {
                f(descriptor);
            }
        });
    }

    /// Calls `f` with each descriptor in `element` of a part that is stored elsewhere, nested ones
    /// first.
    pub fn held(&self, element: &[u8], limited: &Limited<'_>, f: &mut dyn FnMut(Held<'_>)) {
        self.plan.held(element, limited.parts, &mut Budget::new(limited.limit), f);
    }
}

impl Plan {
    fn held(&self, element: &[u8], parts: &dyn Parts, budget: &mut Budget, f: &mut dyn FnMut(Held<'_>)) {
        match self {
            Plan::Verbatim | Plan::Zeroed => {}
            Plan::Numbered(t, _) => f(Held::Reference(t, element)),
            Plan::Variable { base_size, base } => {
                match parts.count(element) {
                    Ok(0) => return,
                    Ok(_) => {}
                    Err(e) => return f(Held::Unreadable(e)),
                }
                if **base != Plan::Verbatim {
                    match parts.sequence(element, *base_size, budget) {
                        Ok(payload) => {
                            let inner = payload.chunks_exact((*base_size).max(1) as usize);
                            inner.for_each(|part| base.held(part, parts, budget, f));
                        }
                        Err(e) => f(Held::Unreadable(e)),
                    }
                }
                f(Held::Sequence(element));
            }
            Plan::Compound(members) => {
                for (start, end, plan) in members {
                    plan.held(element.get(*start..*end).unwrap_or_default(), parts, budget, f);
                }
            }
            Plan::Array(size, base) => {
                element.chunks_exact((*size).max(1)).for_each(|part| base.held(part, parts, budget, f));
            }
        }
    }
}

/// Stores a sequence (count of base elements, their bytes) and returns its descriptor.
pub type Keep<'a> = dyn FnMut(u32, &[u8]) -> Result<Vec<u8>> + 'a;
/// Makes a reference (its type, size in bytes, number of its target).
pub type Refer<'a> = dyn FnMut(&Reference, usize, u32) -> Result<Vec<u8>> + 'a;

/// Makers of the parts of parsed elements.
struct Makers<'k, 'a, 'r, 'b> {
    keep: &'k mut Keep<'a>,
    refer: &'r mut Refer<'b>,
}

impl VariableForm {
    /// Length of the exact form at the start of `form`, of an element of `size` bytes. `None`:
    /// `form` is truncated.
    pub(crate) fn form_len(&self, size: usize, form: &[u8]) -> Option<usize> {
        self.plan.form_len(size, form)
    }

    /// Parses an exact form at the start of `form`, the inverse of [`VariableForm::exact`].
    ///
    /// Returns the element, of `size` bytes, and the length of the form. `None`: `form` is
    /// truncated.
    pub fn parse(&self, size: usize, form: &[u8], keep: &mut Keep<'_>) -> Result<Option<(Vec<u8>, usize)>> {
        self.parse_numbered(size, form, keep, &mut |_, size, _| Ok(vec![0; size]))
    }

    /// [`VariableForm::parse`] of a form with numbers in place of references, which `refer` makes.
    pub fn parse_numbered(&self, size: usize, form: &[u8], keep: &mut Keep<'_>, refer: &mut Refer<'_>) -> Result<Option<(Vec<u8>, usize)>> {
        // Stores no sequence of a truncated form.
        let Some(len) = self.plan.form_len(size, form) else { return Ok(None) };
        let mut rest = form.get(..len).unwrap_or_default();
        let mut element = Vec::with_capacity(size);
        Ok(self.plan.parse(size, &mut rest, &mut Makers { keep, refer }, &mut element)?.map(|()| (element, len)))
    }
}

impl Plan {
    /// Length of the exact form at the start of `form`, of `size` bytes of elements. `None`: `form`
    /// is truncated.
    fn form_len(&self, size: usize, form: &[u8]) -> Option<usize> {
        let len = match self {
            Plan::Verbatim | Plan::Zeroed => size,
            Plan::Numbered(..) => 4,
            Plan::Variable { base_size, base } => {
                let count = usize::try_from(u32::from_le_bytes(form.get(..4)?.try_into().ok()?)).ok()?;
                let base_size = *base_size as usize;
                match **base {
                    Plan::Verbatim | Plan::Zeroed => count.checked_mul(base_size)?.checked_add(4)?,
                    // Each base element takes at least four bytes, so `form` bounds the loop.
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

    /// Parses one element from the front of `form` and appends it to `out`. `None`: `form` is
    /// truncated.
    fn parse(&self, size: usize, form: &mut &[u8], makers: &mut Makers<'_, '_, '_, '_>, out: &mut Vec<u8>) -> Result<Option<()>> {
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
            Plan::Numbered(t, size) => {
                let Some(number) = take(form, 4).and_then(|b| b.try_into().ok()).map(u32::from_le_bytes) else { return Ok(None) };
                out.extend((makers.refer)(t, *size, number)?);
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
                        if base.parse(base_size, form, makers, &mut payload)?.is_none() {
                            return Ok(None);
                        }
                    }
                }
                out.extend((makers.keep)(count, &payload)?);
            }
            Plan::Compound(parts) => {
                let mut at = 0usize;
                for (start, end, plan) in parts {
                    let Some(bytes) = start.checked_sub(at).and_then(|n| take(form, n)) else { return Ok(None) };
                    out.extend_from_slice(bytes);
                    if plan.parse(end.saturating_sub(*start), form, makers, out)?.is_none() {
                        return Ok(None);
                    }
                    at = *end;
                }
                let Some(bytes) = size.checked_sub(at).and_then(|n| take(form, n)) else { return Ok(None) };
                out.extend_from_slice(bytes);
            }
            Plan::Array(each, base) => {
                for _ in 0..size.checked_div(*each).unwrap_or(0) {
                    if base.parse(*each, form, makers, out)?.is_none() {
                        return Ok(None);
                    }
                }
            }
        }
        Ok(Some(()))
    }
}

/// What the references of a value name, each target once.
#[derive(Default)]
pub struct NumberedTargets {
    list: Vec<Target>,
    numbers: HashMap<Target, u32>,
    /// Numbers of references that were met, as they are stored.
    met: HashMap<(Reference, Vec<u8>), u32>,
}

impl NumberedTargets {
    /// The targets, in the order of their numbers, which begin at 1.
    pub fn into_list(self) -> Vec<Target> {
        self.list
    }

    /// The number of what the reference `bytes` names; 0 if it is nil.
    fn number(&mut self, t: &Reference, bytes: &[u8], parts: &dyn Parts, budget: &mut Budget) -> Result<u32> {
        let met = (*t, bytes.to_vec());
        if let Some(number) = self.met.get(&met) {
            return Ok(*number);
        }
        let Some(target) = parts.reference(t, bytes, budget)? else { return Ok(0) };
        if let Some(number) = self.numbers.get(&target) {
            return Ok(*number);
        }
        // It is kept twice.
        budget.output((target.memory() as u64).saturating_mul(2).saturating_add(TARGET_BYTES))?;
        self.list.push(target.clone());
        let number = u32::try_from(self.list.len()).map_err(|_| Error::limit("value", Address::UNDEF, "it has 2^32 references"))?;
        self.numbers.insert(target, number);
        self.met.insert(met, number);
        Ok(number)
    }
}

/// One pass over an element, which measures its exact form or writes it to `out`.
struct Walk<'a, 'o> {
    parts: &'a dyn Parts,
    budget: &'a mut Budget,
    out: Option<&'o mut Vec<u8>>,
    /// What the references name that are written as numbers.
    targets: Option<&'o mut NumberedTargets>,
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
            Plan::Numbered(t, _) if self.targets.is_some() => self.reference(t, bytes),
            Plan::Verbatim | Plan::Zeroed | Plan::Numbered(..) => self.push(bytes),
            Plan::Variable { base_size, base } => self.variable(*base_size, base, bytes),
            Plan::Compound(parts) => self.compound(parts, bytes),
            Plan::Array(size, base) => self.each(*size, base, bytes),
        }
    }

    fn reference(&mut self, t: &Reference, bytes: &[u8]) -> Result<()> {
        let Some(targets) = self.targets.as_deref_mut() else { return self.push(bytes) };
        let number = targets.number(t, bytes, self.parts, self.budget)?;
        self.push(&number.to_le_bytes())
    }

    fn each(&mut self, size: usize, base: &Plan, bytes: &[u8]) -> Result<()> {
        if *base == Plan::Verbatim {
            return self.push(bytes);
        }
        bytes.chunks_exact(size.max(1)).try_for_each(|part| self.element(base, part))
    }

    fn variable(&mut self, base_size: u32, base: &Plan, bytes: &[u8]) -> Result<()> {
        let count = self.parts.count(bytes)?;
        self.push(&count.to_le_bytes())?;
        if self.out.is_none() && *base == Plan::Verbatim {
            return self.count(u64::from(count).saturating_mul(base_size.into()));
        }
        let payload = self.parts.sequence(bytes, base_size, self.budget)?;
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

/// Bytes up to the first NUL.
pub fn until_nul(bytes: &[u8]) -> &[u8] {
    bytes.iter().position(|b| *b == 0).and_then(|end| bytes.get(..end)).unwrap_or(bytes)
}
