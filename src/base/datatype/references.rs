//! Where the references of elements lie: in the element itself, in its members and arrays.
//!
//! References within variable-length parts lie in the global heap and are not among them.

use super::{Class, Datatype};
use crate::base::Result;

/// The references of an element, in the order of their bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct References {
    plan: Plan,
    count: u64,
    in_sequences: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Plan {
    /// A reference of this type.
    One(Datatype),
    /// Members that hold references, by offset.
    Compound(Vec<(usize, Plan)>),
    /// So many parts of so many bytes each.
    Array(usize, usize, Box<Plan>),
}

impl Plan {
    fn of(t: &Datatype) -> Option<Plan> {
        // The depth of the recursion is that of the datatype message, which its decoder bounds.
        match &t.class {
            Class::Reference(_) => Some(Plan::One(t.clone())),
            Class::Compound(c) => {
                let members = c.by_offset();
                let parts: Vec<_> = members.iter().filter_map(|m| Some((m.offset as usize, Plan::of(&m.datatype)?))).collect();
                (!parts.is_empty()).then_some(Plan::Compound(parts))
            }
            Class::Array(a) => {
                let size = (a.base.size as usize).max(1);
                Some(Plan::Array((t.size as usize).checked_div(size)?, size, Box::new(Plan::of(&a.base)?)))
            }
            _ => None,
        }
    }

    fn count(&self) -> u64 {
        match self {
            Plan::One(_) => 1,
            Plan::Compound(parts) => parts.iter().fold(0, |n, (_, plan)| n.saturating_add(plan.count())),
            Plan::Array(n, _, base) => (*n as u64).saturating_mul(base.count()),
        }
    }

    fn each<'a>(&'a self, at: usize, f: &mut dyn FnMut(usize, &'a Datatype) -> Result<()>) -> Result<()> {
        match self {
            Plan::One(t) => f(at, t),
            Plan::Compound(parts) => parts.iter().try_for_each(|(offset, plan)| plan.each(at.saturating_add(*offset), f)),
            Plan::Array(n, size, base) => (0..*n).try_for_each(|i| base.each(at.saturating_add(i.saturating_mul(*size)), f)),
        }
    }
}

fn in_sequences(t: &Datatype) -> bool {
    match &t.class {
        Class::VariableLength(v) => v.base.contains_reference(),
        Class::Compound(c) => c.members.iter().any(|m| in_sequences(&m.datatype)),
        Class::Array(a) => in_sequences(&a.base),
        _ => false,
    }
}

impl References {
    /// The references of elements of type `t`; `None` if there are none, in sequences neither.
    pub fn of(t: &Datatype) -> Option<References> {
        if !t.contains_reference() {
            return None;
        }
        let plan = Plan::of(t).unwrap_or(Plan::Compound(Vec::new()));
        Some(References { count: plan.count(), in_sequences: in_sequences(t), plan })
    }

    /// References of one element, without those in sequences.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// True when sequences of an element hold references, too.
    pub fn in_sequences(&self) -> bool {
        self.in_sequences
    }

    /// Calls `f` with the offset and the type of each reference of an element.
    pub fn each<'a>(&'a self, f: &mut dyn FnMut(usize, &'a Datatype) -> Result<()>) -> Result<()> {
        self.plan.each(0, f)
    }

    /// Sets the references in `elements`, of `size` bytes each, to null. Returns how many were not.
    pub fn clear(&self, elements: &mut [u8], size: usize) -> u64 {
        let mut cleared = 0u64;
        for element in elements.chunks_exact_mut(size.max(1)) {
            let _ = self.each(&mut |at, t| {
                let part = element.get_mut(at..at.saturating_add(t.size as usize)).unwrap_or_default();
                cleared = cleared.saturating_add(part.iter().any(|b| *b != 0).into());
                part.fill(0);
                Ok(())
            });
        }
        cleared
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::present::parse::parse_datatype;

    #[test]
    fn references_of_members_and_arrays() {
        let t = parse_datatype(
            r#"{"class":"H5T_COMPOUND","fields":[{"name":"n","type":{"class":"H5T_INTEGER","base":"H5T_STD_I32LE"}},
            {"name":"r","type":{"class":"H5T_ARRAY","dims":[2],"base":{"class":"H5T_REFERENCE","base":"H5T_STD_REF_OBJ"}}},
            {"name":"s","type":{"class":"H5T_REFERENCE","base":"H5T_STD_REF_OBJ"}}]}"#,
        )
        .unwrap();
        let r = References::of(&t).unwrap();
        assert_eq!((r.count(), r.in_sequences(), t.size), (3, false, 28));
        let mut offsets = Vec::new();
        r.each(&mut |at, t| {
            offsets.push((at, t.size));
            Ok(())
        })
        .unwrap();
        assert_eq!(offsets, [(4, 8), (12, 8), (20, 8)]);
        let mut two = vec![1u8; 56];
        two[32..40].fill(0);
        assert_eq!(r.clear(&mut two, 28), 5);
        assert_eq!(two, [[1u8; 4].as_slice(), &[0; 24], &[1; 4], &[0; 24]].concat());
        assert_eq!(References::of(&parse_datatype("<f8").unwrap()), None);
    }
}
