//! What differs between an object and its copy in another container.

use super::equal::{has_same_defined, has_same_order, has_same_references, is_same_value};
use super::references::whole;
use super::{Object, attributes, definition, sources};
use crate::base::datatype::make::Maker;
use crate::connector::{DatasetInfo, FillSpec, ObjectKind, Result, usual_fill_time};

/// What differs between `from` and its copy `to`, in a word; `None`: nothing. A copy may have more
/// attributes than its source, and may be stored in another way.
pub fn difference(from: Object<'_>, to: Object<'_>) -> Result<Option<&'static str>> {
    let (kind, kind_of_copy) = (from.connector.info(from.id)?.kind, to.connector.info(to.id)?.kind);
    if kind != kind_of_copy {
        return Ok(Some("kinds"));
    }
    if kind == ObjectKind::Dataset {
        let (d, copy) = (from.connector.dataset(from.id)?, to.connector.dataset(to.id)?);
        if !is_same_dataset((from, &d), (to, &copy))? {
            return Ok(Some("type, shape or storage"));
        }
        if !has_same_defined((from, &d), (to, &copy))? {
            return Ok(Some("defined elements"));
        }
        let as_value = definition::is_copied_as_value(from)?;
        if as_value && !is_same_value(&whole(from, 8)?, &whole(to, 8)?, to) || !as_value && !has_same_references(from, to)? {
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

fn is_same_dataset((from, d): (Object<'_>, &DatasetInfo), (to, copy): (Object<'_>, &DatasetInfo)) -> Result<bool> {
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
    let same_maximum = d.shape.max() == copy.shape.max();
    let same_shape = || Ok(d.shape.dims() == copy.shape.dims() || sources::are_same(from, to)?);
    if !same_maximum || !same_shape()? || !datatype.is_like(&copy.datatype) {
        return Ok(false);
    }
    Ok(match (definition::fill(d, &datatype)?, definition::fill(copy, &datatype)?) {
        (FillSpec::Value(a), FillSpec::Value(b)) => is_same_value(&a, &b, to),
        (a, b) => a == b,
    })
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
