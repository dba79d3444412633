//! Attribute values and facts as text.

use super::attribute::{self, Value};
use super::dataset::Dataset;
use super::paths::Paths;
use super::{NativeConnector, facts, references, traverse};
use crate::base::budget::Budget;
use crate::base::{Address, Error, Result};
use crate::connector::{Connector, ObjectId, ObjectKind};
use crate::container::global_heap;
use crate::dataset::newlines::Newlines;
use crate::dataset::types::{self, AttributesJson, Resolver, value_text};
use crate::dataset::vl::VariableForm;
use crate::format::message::datatype::Class;
use crate::meta::Store;

/// Most bytes of a value's text: a little more than an extended attribute may have, so that one too
/// long is known to be.
const TEXT_MAX: u64 = (64 << 10) + 1;
/// Text of a number or a string has at most so many bytes for each of its own.
const TEXT_PER_BYTE: usize = 32;
/// Most bytes of a raw value in exact form.
const RAW_MAX: u64 = 64 << 20;
/// Bytes of heap objects looked at for one answer, beyond twice its own: many values may lead to one huge object.
const HEAP_SLACK: u64 = 16 << 20;

/// Follows the addresses in values of one file.
struct FileResolver<'a> {
    connector: &'a NativeConnector,
    file: u32,
    store: &'a Store,
    budget: Budget,
}

impl Resolver for FileResolver<'_> {
    fn vlen(&self, collection: Address, index: u32) -> Result<Vec<u8>> {
        self.budget.spend(global_heap::locate(self.store, collection, index)?.1)?;
        global_heap::object(self.store, collection, index).map(|o| o.to_vec())
    }

    fn object_path(&self, address: Address) -> Option<Vec<u8>> {
        let file = self.connector.file(self.file).ok()?;
        let generation = self.connector.generation();
        let mut all = self.connector.paths.lock();
        let paths = all.entry(self.file).or_default();
        let start = ObjectId { file: self.file, address: file.root };
        let leads_there = |path: &Vec<u8>| {
            let found = traverse::path(self.connector, start, path, &mut 0);
            found.is_ok_and(|id| id == Some(ObjectId { address, ..start }))
        };
        match paths.find(&file, address) {
            // Names may have been moved, or made in groups that were visited.
            Some(path) if paths.is_of(generation) || leads_there(&path) => Some(path),
            None if paths.is_of(generation) => None,
            _ => {
                *paths = Paths::new(generation);
                paths.find(&file, address)
            }
        }
    }

    fn region(&self, _dataset: Address, selection: &[u8]) -> Option<serde_json::Value> {
        super::region::json(selection)
    }
}

fn with_environment<T>(
    connector: &NativeConnector,
    id: ObjectId,
    limit: u64,
    f: impl FnOnce(&types::Environment<'_>) -> Result<T>,
) -> Result<T> {
    let file = connector.file(id.file)?;
    let budget = Budget::new(limit.saturating_mul(2).saturating_add(HEAP_SLACK), "global heap");
    let resolver = FileResolver { connector, file: id.file, store: &file.store, budget };
    f(&types::Environment { ctx: *file.store.ctx(), resolver: &resolver, limit })
}

fn find(connector: &NativeConnector, id: ObjectId, name: &[u8]) -> Result<Option<Value>> {
    attribute::find(&connector.object(id)?, name)?.map(|a| a.value).transpose()
}

/// Text of the attribute `name`.
pub fn attribute_text(connector: &NativeConnector, id: ObjectId, name: &[u8]) -> Result<Option<Vec<u8>>> {
    let Some(value) = find(connector, id, name)? else { return Ok(None) };
    with_environment(connector, id, TEXT_MAX, |e| value_text(&value.elements(), e)).map(Some)
}

/// Whether the text of the attribute `name` has at most `most` bytes.
pub fn attribute_fits(connector: &NativeConnector, id: ObjectId, name: &[u8], most: usize) -> Result<bool> {
    let Some(value) = find(connector, id, name)? else { return Ok(true) };
    let plain = matches!(
        value.datatype.class,
        Class::FixedPoint(_) | Class::FloatingPoint(_) | Class::Bitfield(_) | Class::Time(_) | Class::String(_) | Class::Opaque(_)
    );
    if plain && value.bytes.len().saturating_mul(TEXT_PER_BYTE) <= most {
        return Ok(true);
    }
    match with_environment(connector, id, TEXT_MAX, |e| value_text(&value.elements(), e)) {
        Err(Error::Limit { .. }) => Ok(false),
        text => Ok(text?.len() <= most),
    }
}

/// Raw bytes of the attribute `name`; variable-length parts in exact form.
pub fn attribute_raw(connector: &NativeConnector, id: ObjectId, name: &[u8]) -> Result<Option<Vec<u8>>> {
    let Some(value) = find(connector, id, name)? else { return Ok(None) };
    if !value.datatype.contains_vlen() {
        return Ok(Some(value.bytes));
    }
    with_environment(connector, id, RAW_MAX, |e| {
        let form = VariableForm::of(&value.datatype);
        let mut out = Vec::new();
        let size = usize::try_from(value.datatype.element_size()).unwrap_or(usize::MAX).max(1);
        for element in value.bytes.chunks_exact(size) {
            form.exact(element, e, &mut out)?;
            if out.len() as u64 > RAW_MAX {
                return Err(Error::limit("attribute", id.address, format!("more than {RAW_MAX} bytes in exact form")));
            }
        }
        Ok(Some(out))
    })
}

/// All attributes of an object, lossless.
fn attributes(connector: &NativeConnector, id: ObjectId) -> Result<Vec<u8>> {
    let object = connector.object(id)?;
    let names = connector.attributes(id)?;
    with_environment(connector, id, TEXT_MAX, |e| {
        // One value at a time is in memory, and none behind the one that is too much.
        let mut json = AttributesJson::new(e);
        for name in names.iter() {
            match attribute::find(&object, name).and_then(|a| a.map(|a| a.value).transpose()) {
                Ok(Some(value)) => json.add(name, &value.elements())?,
                Ok(None) => {}
                Err(error) => json.add_unreadable(name, &error)?,
            }
        }
        Ok(json.finish())
    })
}

fn whole(connector: &NativeConnector, id: ObjectId, dataset: &Dataset, newlines: Option<Option<Newlines>>) -> Result<Vec<u8>> {
    with_environment(connector, id, TEXT_MAX, |e| facts::whole(dataset, e, newlines))
}

/// Whether the fact `name` is there and has at most `most` bytes.
pub fn fact_fits(connector: &NativeConnector, id: ObjectId, name: &str, most: usize) -> Result<bool> {
    if name == "dataset" && connector.info(id)?.kind == ObjectKind::Dataset {
        // Newlines that would make it too long are left out: the strings need not be read.
        let d = connector.dataset(id)?;
        return Ok(whole(connector, id, &d.dataset, d.lines.is_some().then_some(None))?.len() <= most);
    }
    Ok(fact(connector, id, name)?.is_some_and(|text| text.len() <= most))
}

/// Text of the fact `name`.
pub fn fact(connector: &NativeConnector, id: ObjectId, name: &str) -> Result<Option<Vec<u8>>> {
    let kind = connector.info(id)?.kind;
    let text = match (name, kind) {
        ("attributes", _) => return attributes(connector, id).map(Some),
        ("kind", ObjectKind::Group) => "group",
        ("kind", ObjectKind::Dataset) => "dataset",
        ("kind", ObjectKind::Datatype) => "datatype",
        ("kind", ObjectKind::Unknown) => "unknown",
        ("datatype", ObjectKind::Datatype) => {
            let mut out = Vec::new();
            types::type_json(&connector.object(id)?.datatype()?).write(&mut out);
            return Ok(Some(out));
        }
        ("dtype", ObjectKind::Datatype) => return Ok(Some(facts::dtype(&connector.object(id)?.datatype()?))),
        (_, ObjectKind::Dataset) => {
            let d = connector.dataset(id)?;
            if name == "dataset" {
                let newlines = d.lines.as_ref().map(|lines| lines.newlines());
                return whole(connector, id, &d.dataset, newlines).map(Some);
            }
            if let Some(n) = references::number(name) {
                return with_environment(connector, id, TEXT_MAX, |e| references::text(&d.dataset, n, e, &connector.environment()));
            }
            return with_environment(connector, id, TEXT_MAX, |e| facts::dataset(&d.dataset, name, e, &connector.environment()));
        }
        _ => return Ok(None),
    };
    Ok(Some(text.into()))
}
