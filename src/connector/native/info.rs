//! Datasets and attributes in the types of the container model.

use super::access::Access;
use super::dataset::Dataset;
use super::edit::bytes_file::is_as_made;
use super::edit::reading::{Attempt, Reader};
use super::references::{self, ReferenceTable};
use super::{NativeConnector, attribute};
use crate::base::datatype::Class;
use crate::base::parts::{Parts, Target};
use crate::base::shape::Shape;
use crate::base::value::{byte_range, list_of};
use crate::base::{Error, Result};
use crate::connector::{Budget, DatasetInfo, ExternalSegment, ObjectId, TargetVisitor, Value};
use crate::dataset::layout::Segment;
use std::ops::{ControlFlow, Range};

/// References whose targets are found at a time.
const REFERENCES_AT_ONCE: usize = 64;

/// What the dataset `id` is.
pub fn dataset(access: &Access<'_>, id: ObjectId) -> Result<DatasetInfo> {
    let open = access.dataset(id)?;
    let d = &open.dataset;
    let layout = d.layout();
    let description = layout.describe(&d.bytes);
    // A dataset that can grow where its copy could not takes the layout that suits the copy.
    let kind = layout.for_copy().kind;
    let copied = kind.grows() || d.space.max().iter().zip(&d.space.dims).all(|(most, now)| *most == Some(*now));
    let segment = |s: Segment| ExternalSegment { name: s.name, offset: s.offset, size: s.size };
    Ok(DatasetInfo {
        datatype: d.datatype.clone(),
        shape: d.space.shape(),
        fill: d.fill.fill.clone(),
        allocation_time: d.fill.allocation_time,
        usual_allocation_time: (kind.name() == layout.name()).then(|| kind.allocation_time()),
        fill_time: d.fill.write_time,
        layout: layout.name(),
        class: layout.class(),
        copy_layout: copied.then(|| kind.name()),
        profile: kind.profile(),
        chunks: description.chunk_dims,
        index: description.index,
        filters: kind.user_filters(&d.pipeline.filters),
        stored_filters: d.pipeline.filters.clone(),
        offset: description.address.and_then(|a| a.checked_add(d.bytes.store.base())).map(|a| a.0),
        external: description.external.map(|all| all.into_iter().map(segment).collect()),
        is_elsewhere: !layout.is_in_file(),
        resizes: layout.resizes(),
        is_bytes_file: is_as_made(d),
        is_logged: layout.is_in_log(),
        lines: open.lines.is_some(),
        references: references::total(d),
        parts: access.connector.parts(id.file)?,
    })
}

/// The elements of the dataset `id`, as stored.
pub fn elements(connector: &NativeConnector, id: ObjectId) -> Result<Value> {
    connector.reading(id, &mut |d, reader| {
        check_mapped(d, "variable-length elements of a virtual dataset as JSON")?;
        let too_large = |_| Error::limit("dataset", id.address, "larger than the memory");
        let bytes = vec![0; usize::try_from(d.bytes.size).map_err(too_large)?];
        value(connector, (id, d), reader, 0, d.space.shape(), bytes)
    })
}

/// Errors: addresses in elements of other files are those of these files.
fn check_mapped(d: &Dataset, detail: &'static str) -> Result<()> {
    match d.layout().mapped().is_some() && (d.datatype.contains_vlen() || d.datatype.contains_reference()) {
        true => Err(Error::unsupported("value", d.id.address, detail)),
        false => Ok(()),
    }
}

/// An attempt to read elements of the dataset `id`, opened as `d`, from byte `offset` into `bytes`,
/// all of which it has.
fn value<'a>(
    connector: &NativeConnector,
    (id, d): (ObjectId, &'a Dataset),
    reader: Reader<'a>,
    offset: u64,
    shape: Shape,
    mut bytes: Vec<u8>,
) -> Attempt<'a, Value> {
    if let Some(deferred) = reader.fill(&d.bytes, offset, &mut bytes)? {
        return Ok(ControlFlow::Continue(deferred));
    }
    Ok(ControlFlow::Break(Value { datatype: d.datatype.clone(), committed: false, shape, bytes, parts: connector.parts(id.file)? }))
}

/// Elements of the dataset `id` that follow one another.
pub fn elements_in(connector: &NativeConnector, id: ObjectId, elements: Range<u64>) -> Result<Value> {
    connector.reading(id, &mut |d, reader| {
        check_mapped(d, "variable-length elements of a virtual dataset as text")?;
        let range = byte_range(&d.datatype, &elements)?;
        if range.end as u64 > d.bytes.size {
            return Err(Error::refused(libc::EIO, "the dataset has fewer elements than it had"));
        }
        value(connector, (id, d), reader, range.start as u64, list_of(&elements), vec![0; range.len()])
    })
}

/// Calls `f` with what the references of the dataset `id` name, from number `first` on. `f` may use
/// the container.
pub fn references(connector: &NativeConnector, id: ObjectId, first: u64, budget: &mut Budget, f: &mut TargetVisitor<'_>) -> Result<()> {
    let mut next = first;
    loop {
        let targets = some_references(&connector.access(), id, next, budget)?;
        let is_last = targets.len() < REFERENCES_AT_ONCE;
        next = next.saturating_add(targets.len() as u64);
        for target in targets {
            if f(target?)?.is_break() {
                return Ok(());
            }
        }
        if is_last {
            return Ok(());
        }
    }
}

/// What some references from number `first` on name; fewer than [`REFERENCES_AT_ONCE`] are the
/// last ones. An error takes the place of the reference that cannot be read.
fn some_references(access: &Access<'_>, id: ObjectId, first: u64, budget: &mut Budget) -> Result<Vec<Result<Option<Target>>>> {
    let open = access.dataset(id)?;
    let Some(table) = ReferenceTable::of(&open.dataset) else { return Ok(Vec::new()) };
    let (file, env) = (&open.dataset.object.file, &access.connector.options.environment);
    let parts = access.parts(file);
    let mut target = |n: u64| -> Option<Result<Option<Target>>> {
        let (at, t) = table.place(n)?;
        let Class::Reference(r) = &t.class else { return None };
        let mut bytes = vec![0; t.size as usize];
        Some(open.dataset.bytes.read(env, at, &mut bytes).and_then(|_| parts.reference(r, &bytes, budget)))
    };
    let mut targets = Vec::new();
    for n in (first..table.total).take(REFERENCES_AT_ONCE) {
        let Some(found) = target(n) else { break };
        let failed = found.is_err();
        targets.push(found);
        if failed {
            break;
        }
    }
    Ok(targets)
}

/// The attribute `name` of the object `id`.
pub fn attribute(access: &Access<'_>, id: ObjectId, name: &[u8]) -> Result<Option<Value>> {
    let object = access.object(id)?;
    let Some(stored) = attribute::stored(&object, name)? else { return Ok(None) };
    let attribute::Value { datatype, shape, bytes } = attribute::typed(&object, &stored)?;
    Ok(Some(Value { datatype, committed: stored.datatype_shared, shape, bytes, parts: access.connector.parts(id.file)? }))
}

/// An attribute's bytes in exact form.
pub fn exact(access: &Access<'_>, id: ObjectId, name: &[u8]) -> Result<Option<Vec<u8>>> {
    let Some(value) = attribute(access, id, name)? else { return Ok(None) };
    let file = access.connector.file(id.file)?;
    value.elements().exact(&access.parts(&file)).map(|form| Some(form.into_owned()))
}
