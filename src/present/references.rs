//! The references of a dataset as facts: `user.h5dir.references`, and `references2`, `references3`,
//! ... of the references that follow.
//!
//! Each is a JSON list of so many references in stored order, as `value` shows them: the path of
//! the object, an object for a part of one, `null`. Bytes of references are addresses of their file
//! and mean nothing in another one; a copy is made from these.

use super::value::target_json;
use crate::base::{Address, Error, Result};
use crate::connector::{Budget, Connector, DatasetInfo, Limited, ObjectId};
use std::borrow::Cow;
use std::ops::ControlFlow;

/// References of one fact: 64 KiB hold those to regions, too.
pub const PER_FACT: u64 = 128;
/// Most facts of one dataset: a list of extended attributes has no room for more.
const FACTS_MAX: u64 = 1024;
/// Name of the first fact.
const NAME: &str = "references";

/// Number of the fact `name`, from 0 on; `None` if it is another one.
pub fn number(name: &str) -> Option<u64> {
    match name.strip_prefix(NAME)? {
        "" => Some(0),
        rest => rest.parse::<u64>().ok().filter(|n| *n >= 2 && n.to_string() == rest).map(|n| n.saturating_sub(1)),
    }
}

/// True for the name of a fact of references.
pub fn is_references_fact(name: &str) -> bool {
    number(name).is_some()
}

/// Names of the facts of `dataset`.
pub fn names(dataset: &DatasetInfo) -> Vec<Cow<'static, str>> {
    let facts = dataset.references.map_or(0, |total| total.div_ceil(PER_FACT).min(FACTS_MAX));
    let name = |n: u64| if n == 0 { NAME.into() } else { format!("{NAME}{}", n.saturating_add(1)).into() };
    (0..facts).map(name).collect()
}

/// Text of the fact with number `number` of the dataset `id`, in at most `limit` bytes.
pub fn text(connector: &dyn Connector, id: ObjectId, dataset: &DatasetInfo, number: u64, limit: u64) -> Result<Option<Vec<u8>>> {
    let Some(total) = dataset.references.filter(|_| number < FACTS_MAX) else { return Ok(None) };
    let first = number.saturating_mul(PER_FACT);
    if first >= total {
        return Ok(None);
    }
    let mut left = total.min(first.saturating_add(PER_FACT)).saturating_sub(first);
    let mut out = b"[".to_vec();
    let mut budget = Budget::tight(limit);
    connector.references(id, first, &mut budget, &mut |target| {
        if out.len() > 1 {
            out.push(b',');
        }
        out.extend(target_json(target.as_ref(), &Limited { parts: &*dataset.parts, limit })?);
        if out.len() as u64 > limit {
            return Err(Error::limit("value", Address::UNDEF, "the references of one fact take more than its reader allows"));
        }
        left = left.saturating_sub(1);
        Ok(if left == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
    })?;
    out.push(b']');
    Ok(Some(out))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn facts_are_numbered_from_two() {
        let names =
            ["references", "references2", "references10", "references1", "references02", "references0", "reference", "references+3"];
        assert_eq!(names.map(number), [Some(0), Some(1), Some(9), None, None, None, None, None]);
    }
}
