//! Equality of parts of two objects, of one container or of two.
//!
//! An object has a path for each of its hard links, and a container shows one of them. So two
//! references are equal, too, if their paths lead to one object of the second container.

use super::{Object, created_links, defined, references};
use crate::base::Error;
use crate::base::value::NewValue;
use crate::connector::edit::NewReference;
use crate::connector::{DatasetInfo, Result, Target};
use std::collections::HashSet;

pub(super) fn has_same_defined((from, d): (Object<'_>, &DatasetInfo), (to, copy): (Object<'_>, &DatasetInfo)) -> Result<bool> {
    if !defined::knows_defined(from, d) {
        return Ok(true);
    }
    let knows = defined::knows_defined(to, copy);
    // A copy of a log is dense where no layout of a log is.
    if d.is_logged && !knows {
        return Ok(true);
    }
    let mut slabs = defined::Slabs::of(d);
    while let Some((slab, runs)) = slabs.next(&|slab| defined::defined_runs(from, d, slab))? {
        let same = match defined::defined_runs(to, copy, &slab) {
            _ if !knows => defined::is_whole(&slab.elements, &runs),
            // A large slab, as nothing is defined in the source.
            Err(Error::Refused { errno: libc::EFBIG, .. }) => false,
            found => found? == runs,
        };
        if !same {
            return Ok(false);
        }
    }
    Ok(true)
}

pub(super) fn is_same_target(a: &Target, b: &Target, to: Object<'_>) -> bool {
    let found = |target: &Target| {
        let is_path = target.file.is_none() && target.object.starts_with(b"/");
        if is_path { to.connector.resolve(to.connector.root(), &target.object).ok().flatten() } else { None }
    };
    a == b || a.part == b.part && found(a).is_some_and(|object| found(b) == Some(object))
}

/// True if `a` and `b` are the same value. They are of types of the container of `to`.
pub(super) fn is_same_value(a: &NewValue, b: &NewValue, to: Object<'_>) -> bool {
    a.datatype.is_like(&b.datatype)
        && (a.shape == b.shape || a.shape.dims() == b.shape.dims() && a.shape.max() == b.shape.max())
        && a.form == b.form
        && a.targets.len() == b.targets.len()
        && a.targets.iter().zip(&b.targets).all(|(a, b)| is_same_target(a, b, to))
}

/// True if the names that both groups have are in the same order, where both track it.
pub(super) fn has_same_order(from: Object<'_>, to: Object<'_>) -> Result<bool> {
    let (Some(ours), Some(theirs)) = (created_links(from)?, created_links(to)?) else { return Ok(true) };
    let (in_ours, in_theirs): (HashSet<&Vec<u8>>, HashSet<&Vec<u8>>) = (ours.iter().collect(), theirs.iter().collect());
    Ok(ours.iter().filter(|name| in_theirs.contains(name)).eq(theirs.iter().filter(|name| in_ours.contains(name))))
}

/// Number of the first reference that does not name the same on both sides.
pub(super) fn first_reference(left: Object<'_>, right: Object<'_>) -> Result<Option<u64>> {
    let mut first = 0u64;
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    loop {
        // Their batches may differ in length.
        if ours.is_empty() {
            ours = references::references(left, first)?;
        }
        if theirs.is_empty() {
            theirs = references::references(right, first)?;
        }
        let both = ours.len().min(theirs.len());
        if both == 0 {
            return Ok((ours.len() != theirs.len()).then_some(first));
        }
        let differs = ours.iter().zip(&theirs).position(|(a, b)| !is_same_reference(a, b, right));
        if let Some(at) = differs {
            return Ok(Some(first.saturating_add(at as u64)));
        }
        ours.drain(..both);
        theirs.drain(..both);
        first = first.saturating_add(both as u64);
    }
}

/// True if the references of two datasets name the same. `right`: where paths of one object are
/// looked for.
pub(super) fn has_same_references(left: Object<'_>, right: Object<'_>) -> Result<bool> {
    let total = |object: Object<'_>| Ok::<_, Error>(object.connector.dataset(object.id)?.references);
    Ok(total(left)? == total(right)? && first_reference(left, right)?.is_none())
}

fn is_same_reference(a: &NewReference, b: &NewReference, right: Object<'_>) -> bool {
    match (a, b) {
        (NewReference::To(a), NewReference::To(b)) => is_same_target(a, b, right),
        (a, b) => a == b,
    }
}
