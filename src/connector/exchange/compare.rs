//! What differs between an object and its copy in another container.
//!
//! An object has a path for each of its hard links, and a container shows one of them. So two
//! references are equal, too, if their paths lead to one object of the container of the copy.

use super::{Object, attributes, created_links, defined, definition, references};
use crate::base::Error;
use crate::base::datatype::make::Maker;
use crate::base::value::NewValue;
use crate::connector::edit::NewReference;
use crate::connector::{DatasetInfo, FillSpec, ObjectKind, Result, Target, usual_fill_time};
use std::collections::HashSet;

/// What differs between `from` and its copy `to`, in a word; `None`: nothing. A copy may have more
/// attributes than its source, and may be stored in another way.
pub fn difference(from: Object<'_>, to: Object<'_>) -> Result<Option<&'static str>> {
    let (kind, kind_of_copy) = (from.connector.info(from.id)?.kind, to.connector.info(to.id)?.kind);
    if kind != kind_of_copy {
        return Ok(Some("kinds"));
    }
    if kind == ObjectKind::Dataset {
        let (d, copy) = (from.connector.dataset(from.id)?, to.connector.dataset(to.id)?);
        if !is_same_dataset(&d, &copy, to)? {
            return Ok(Some("type, shape or storage"));
        }
        if !has_same_defined((from, &d), (to, &copy))? {
            return Ok(Some("defined elements"));
        }
        if !has_same_references(from, to)? {
            return Ok(Some("references"));
        }
    }
    if kind == ObjectKind::Datatype {
        let maker = Maker { sizeof_addr: to.connector.reference_bytes() };
        let made = |object: Object<'_>| maker.remake(&object.connector.datatype(object.id)?);
        if !made(from)?.is_like(&made(to)?) {
            return Ok(Some("datatypes"));
        }
    }
    if kind == ObjectKind::Group && !has_same_order(from, to)? {
        return Ok(Some("creation orders of links"));
    }
    let comment = from.connector.comment(from.id)?;
    if comment.is_some() && comment != to.connector.comment(to.id)? {
        return Ok(Some("comments"));
    }
    Ok((!has_same_attributes(from, to)?).then_some("attributes"))
}

fn is_same_dataset(d: &DatasetInfo, copy: &DatasetInfo, to: Object<'_>) -> Result<bool> {
    // One that grows without chunks of its own has some where it is copied to, and none in a log.
    let chunked = d.chunks.is_some() && copy.copy_layout != Some(definition::LOG);
    let same_layout = d.chunks.is_some() == copy.chunks.is_some() && chunked == copy.chunks.is_some();
    let ids = |d: &DatasetInfo| d.filters.iter().map(|filter| filter.id).collect::<Vec<_>>();
    // Filters set their parameters for each dataset, and a profile may need filters of its own.
    let profile = |d: &DatasetInfo| d.profile.filter(|_| d.copy_layout.is_some());
    let same_filters = || profile(d) != profile(copy) || ids(d) == ids(copy);
    if chunked && !(d.chunks == copy.chunks && same_filters()) {
        return Ok(false);
    }
    let fill_time = |d: &DatasetInfo| Some(d.fill_time).filter(|time| *time != usual_fill_time(&d.datatype));
    let allocation_time =
        |d: &DatasetInfo| Some(d.allocation_time).filter(|time| d.usual_allocation_time.is_some_and(|usual| usual != *time));
    if fill_time(d) != fill_time(copy) || same_layout && allocation_time(d) != allocation_time(copy) {
        return Ok(false);
    }
    let datatype = Maker { sizeof_addr: to.connector.reference_bytes() }.remake(&d.datatype)?;
    let same_shape = d.shape.dims() == copy.shape.dims() && d.shape.max() == copy.shape.max();
    if !same_shape || !datatype.is_like(&copy.datatype) {
        return Ok(false);
    }
    Ok(match (definition::fill(d, &datatype)?, definition::fill(copy, &datatype)?) {
        (FillSpec::Value(a), FillSpec::Value(b)) => is_same_value(&a, &b, to),
        (a, b) => a == b,
    })
}

fn has_same_defined((from, d): (Object<'_>, &DatasetInfo), (to, copy): (Object<'_>, &DatasetInfo)) -> Result<bool> {
    if !defined::knows_defined(from, d) {
        return Ok(true);
    }
    let knows = defined::knows_defined(to, copy);
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

fn has_same_references(from: Object<'_>, to: Object<'_>) -> Result<bool> {
    let total = |object: Object<'_>| Ok::<_, crate::base::Error>(object.connector.dataset(object.id)?.references);
    if total(from)? != total(to)? {
        return Ok(false);
    }
    let mut first = 0u64;
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    loop {
        // Their batches may differ in length.
        if ours.is_empty() {
            ours = references::references(from, first)?;
        }
        if theirs.is_empty() {
            theirs = references::references(to, first)?;
        }
        let both = ours.len().min(theirs.len());
        if both == 0 {
            return Ok(ours.len() == theirs.len());
        }
        if !ours.drain(..both).zip(theirs.drain(..both)).all(|(a, b)| is_same_reference(&a, &b, to)) {
            return Ok(false);
        }
        first = first.saturating_add(both as u64);
    }
}

fn is_same_reference(a: &NewReference, b: &NewReference, to: Object<'_>) -> bool {
    match (a, b) {
        (NewReference::To(a), NewReference::To(b)) => is_same_target(a, b, to),
        (a, b) => a == b,
    }
}

fn is_same_target(a: &Target, b: &Target, to: Object<'_>) -> bool {
    let found = |target: &Target| {
        let is_path = target.file.is_none() && target.object.starts_with(b"/");
        if is_path { to.connector.resolve(to.connector.root(), &target.object).ok().flatten() } else { None }
    };
    a == b || a.part == b.part && found(a).is_some_and(|object| found(b) == Some(object))
}

/// True if `a` and `b` are the same value. They are of types of the container of `to`.
fn is_same_value(a: &NewValue, b: &NewValue, to: Object<'_>) -> bool {
    a.datatype.is_like(&b.datatype)
        && (a.shape == b.shape || a.shape.dims() == b.shape.dims() && a.shape.max() == b.shape.max())
        && a.form == b.form
        && a.targets.len() == b.targets.len()
        && a.targets.iter().zip(&b.targets).all(|(a, b)| is_same_target(a, b, to))
}

/// True if the names that both groups have are in the same order, where both track it.
fn has_same_order(from: Object<'_>, to: Object<'_>) -> Result<bool> {
    let (Some(ours), Some(theirs)) = (created_links(from)?, created_links(to)?) else { return Ok(true) };
    let (in_ours, in_theirs): (HashSet<&Vec<u8>>, HashSet<&Vec<u8>>) = (ours.iter().collect(), theirs.iter().collect());
    Ok(ours.iter().filter(|name| in_theirs.contains(name)).eq(theirs.iter().filter(|name| in_ours.contains(name))))
}

fn has_same_attributes(from: Object<'_>, to: Object<'_>) -> Result<bool> {
    let sizeof_addr = to.connector.reference_bytes();
    for name in from.connector.attributes(from.id)?.iter() {
        let Some(ours) = attributes::attribute(from, name, sizeof_addr)? else { continue };
        let Some(theirs) = attributes::attribute(to, name, sizeof_addr)? else { return Ok(false) };
        if !is_same_value(&ours.value, &theirs.value, to) {
            return Ok(false);
        }
    }
    Ok(true)
}
