//! The paths that a text names: those of references, and of named datatypes.

use super::references;
use super::value::value_text;
use crate::base::datatype::Reference;
use crate::base::locks::Mutex;
use crate::base::{Error, Result};
use crate::connector::{Budget, Connector, DatasetInfo, Fill, Limited, ObjectId, ObjectKind, Parts, Shape, Target, Value};
use std::collections::BTreeSet;
use std::ops::ControlFlow;

/// Fact of all attributes.
const ATTRIBUTES: &str = "attributes";
/// Facts with the fill value.
const FILL_VALUE: &str = "fillvalue";
const DATASET: &str = "dataset";
/// Fact of named datatypes.
const TYPES: &str = "types";

/// Bytes of text that are looked through, which is as much as one text has.
const TEXT_MAX: u64 = 64 << 20;

/// Paths of objects of the container.
pub type Paths = BTreeSet<Vec<u8>>;

/// Adds the path of `target`, if it is one of this container.
fn note(target: &Target, paths: &mut Paths) {
    if target.file.is_none() {
        paths.insert(target.object.clone());
    }
}

/// Parts of elements; notes what references name.
struct Noted<'a> {
    parts: &'a dyn Parts,
    paths: Mutex<Paths>,
}

impl Parts for Noted<'_> {
    fn count(&self, element: &[u8]) -> Result<u32> {
        self.parts.count(element)
    }

    fn sequence(&self, element: &[u8], base_size: u32, budget: &mut Budget) -> Result<Vec<u8>> {
        self.parts.sequence(element, base_size, budget)
    }

    fn reference(&self, t: &Reference, element: &[u8], budget: &mut Budget) -> Result<Option<Target>> {
        let target = self.parts.reference(t, element, budget)?;
        target.iter().for_each(|target| note(target, &mut self.paths.lock()));
        Ok(target)
    }
}

/// Adds what the references of `value` name. A text that is too long is not shown, nor are these.
fn of_value(value: &Value, paths: &mut Paths) -> Result<()> {
    if !value.datatype.contains_reference() {
        return Ok(());
    }
    let noted = Noted { parts: &*value.parts, paths: Mutex::default() };
    match value_text(&value.elements(), &Limited { parts: &noted, limit: TEXT_MAX }) {
        Ok(_) | Err(Error::Limit { .. }) => {}
        Err(e) => return Err(e),
    }
    paths.append(&mut noted.paths.into_inner());
    Ok(())
}

/// Adds what the references of the fill value name.
fn of_fill(d: &DatasetInfo, paths: &mut Paths) -> Result<()> {
    match &d.fill {
        Fill::Value(bytes) if bytes.len() as u64 == d.datatype.element_size() => {
            let (datatype, bytes, parts) = (d.datatype.clone(), bytes.clone(), d.parts.clone());
            of_value(&Value { datatype, committed: false, shape: Shape::Scalar, bytes, parts }, paths)
        }
        _ => Ok(()),
    }
}

/// What the text of the attribute `name` names.
pub fn of_attribute(connector: &dyn Connector, id: ObjectId, name: &[u8]) -> Result<Paths> {
    let mut paths = Paths::new();
    connector.attribute(id, name)?.iter().try_for_each(|value| of_value(value, &mut paths))?;
    Ok(paths)
}

/// What the fact `name` names.
pub fn of_fact(connector: &dyn Connector, id: ObjectId, name: &str) -> Result<Paths> {
    let mut paths = Paths::new();
    match name {
        ATTRIBUTES => of_attributes(connector, id, &mut paths)?,
        TYPES => of_types(connector, id, &mut paths)?,
        FILL_VALUE | DATASET if is_dataset(connector, id) => of_fill(&connector.dataset(id)?, &mut paths)?,
        _ => {
            if let Some(number) = references::number(name).filter(|_| is_dataset(connector, id)) {
                of_references(connector, id, number, &mut paths)?;
            }
        }
    }
    Ok(paths)
}

/// What the JSON description of an object names.
pub fn of_description(connector: &dyn Connector, id: ObjectId) -> Result<Paths> {
    let mut paths = Paths::new();
    of_attributes(connector, id, &mut paths)?;
    of_types(connector, id, &mut paths)?;
    // A description of more text does not exist.
    let is_short = |d: &DatasetInfo| d.shape.count().and_then(|n| n.checked_mul(d.datatype.element_size())).is_some_and(|n| n <= TEXT_MAX);
    if is_dataset(connector, id) {
        let d = connector.dataset(id)?;
        of_fill(&d, &mut paths)?;
        if d.datatype.contains_reference() && is_short(&d) {
            of_value(&connector.elements(id)?, &mut paths)?;
        }
    }
    Ok(paths)
}

fn is_dataset(connector: &dyn Connector, id: ObjectId) -> bool {
    connector.info(id).is_ok_and(|info| info.kind == ObjectKind::Dataset)
}

fn of_attributes(connector: &dyn Connector, id: ObjectId, paths: &mut Paths) -> Result<()> {
    for name in connector.attributes(id)?.iter() {
        // One that cannot be read is not shown.
        if let Ok(Some(value)) = connector.attribute(id, name) {
            of_value(&value, paths)?;
        }
    }
    Ok(())
}

fn of_types(connector: &dyn Connector, id: ObjectId, paths: &mut Paths) -> Result<()> {
    let mut add = |attribute: Option<&[u8]>| {
        let named = connector.named_type(id, attribute).ok().flatten();
        paths.extend(named.and_then(|named| connector.path_of(named)));
    };
    if is_dataset(connector, id) {
        add(None);
    }
    connector.attributes(id)?.iter().for_each(|name| add(Some(name)));
    Ok(())
}

/// Adds what the references in the fact with number `number` name.
fn of_references(connector: &dyn Connector, id: ObjectId, number: u64, paths: &mut Paths) -> Result<()> {
    let first = number.saturating_mul(references::PER_FACT);
    if connector.dataset(id)?.references.is_none_or(|total| first >= total) {
        return Ok(());
    }
    let mut left = references::PER_FACT;
    connector.references(id, first, &mut Budget::tight(TEXT_MAX), &mut |target| {
        target.iter().for_each(|target| note(target, paths));
        left = left.saturating_sub(1);
        Ok(if left == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
    })
}
