//! Setting and removing attributes.

use super::super::attribute::{self, Value};
use super::super::traverse;
use super::{Change, now};
use crate::base::{Address, Error, Result};
use crate::connector::ObjectId;
use crate::connector::edit::Existing;
use crate::container::attributes_edit;
use crate::container::global_heap_edit;
use crate::dataset::types::Shape;
use crate::dataset::types::parse::{Store as ValueStore, parse_value_into};
use crate::format::Writer;
use crate::format::message::attribute::{Attribute, encode_attribute};
use crate::format::message::dataspace::{Dataspace, Extent};
use crate::format::message::datatype::{CharacterSet, Class, Datatype, StringPadding, StringType};
use crate::meta::Store;
use crate::meta::header_edit::HeaderEdit;
use std::cell::Cell;

/// Largest name, bytes: what libhdf5's message takes, with its NUL.
const NAME_MAX: usize = 65_534;

impl Change<'_> {
    /// Sets an attribute from its text.
    pub(super) fn set_attribute(&self, id: ObjectId, name: &[u8], text: &[u8], existing: Existing) -> Result<()> {
        if name.is_empty() || name.contains(&0) || name.len() > NAME_MAX {
            return Err(Error::refused(libc::EINVAL, "an attribute has a name without NUL"));
        }
        let object = self.connector.object(id)?;
        let found = attribute::stored(&object, name)?;
        match (existing, found.is_some()) {
            (Existing::Create, true) => return Err(Error::refused(libc::EEXIST, "the attribute is there")),
            (Existing::Replace, false) => return Err(Error::refused(libc::ENODATA, "there is no such attribute")),
            _ => {}
        }
        if self.is_pending(id, name) {
            // A copying program says again what it said with types.
            return Ok(());
        }
        let store = self.store()?;
        let held = self.held_by(id, name)?;
        let body = match found {
            Some(old) => {
                let Value { datatype, shape, .. } = attribute::typed(&object, &old)?;
                let (datatype, old) = with_room(datatype, old, &shape, text)?;
                let data = parse_value_into(&datatype, &shape, text, &mut Values::new(self, &store))?;
                Attribute { data, ..old }.encode()
            }
            None => {
                let version = HeaderEdit::load(&store, id.address)?.version();
                let (datatype, space, bytes) = string(text, version)?;
                encode_attribute(version, name, &datatype.to_bytes(), false, &space.encode(store.ctx()), &bytes)?
            }
        };
        attributes_edit::set(&store, id.address, name, &body, now())?;
        self.free_held(&held)?;
        self.changed(id);
        self.touch(id)
    }

    /// Removes an attribute.
    pub(super) fn remove_attribute(&self, id: ObjectId, name: &[u8]) -> Result<()> {
        let store = self.store()?;
        self.not_pending(id, name);
        let held = self.held_by(id, name)?;
        if !attributes_edit::remove(&store, id.address, name, now())? {
            return Err(Error::refused(libc::ENODATA, "there is no such attribute"));
        }
        self.free_held(&held)?;
        self.changed(id);
        self.touch(id)
    }
}

/// One string of fixed length takes a longer text: of what it is only the length changes. A named datatype, which others
/// may have too, stays as it is.
fn with_room(datatype: Datatype, old: Attribute, shape: &Shape, text: &[u8]) -> Result<(Datatype, Attribute)> {
    let room = usize::try_from(datatype.size).unwrap_or(usize::MAX);
    let Class::String(string) = &datatype.class else { return Ok((datatype, old)) };
    if *shape != Shape::Scalar || old.datatype_shared || text.len() <= room {
        return Ok((datatype, old));
    }
    let end = usize::from(string.padding == StringPadding::NullTerminated);
    let size = u32::try_from(text.len().saturating_add(end)).map_err(|_| Error::refused(libc::E2BIG, "too long"))?;
    let datatype = Datatype { size, ..datatype };
    let old = Attribute { datatype: datatype.to_bytes(), ..old };
    Ok((datatype, old))
}

/// A new attribute: one UTF-8 string of fixed length.
fn string(text: &[u8], header_version: u8) -> Result<(Datatype, Dataspace, Vec<u8>)> {
    if text.contains(&0) {
        return Err(Error::refused(libc::EINVAL, "a string attribute holds no NUL"));
    }
    let size = u32::try_from(text.len().max(1)).map_err(|_| Error::refused(libc::E2BIG, "too long"))?;
    let class = Class::String(StringType { padding: StringPadding::NullPadded, charset: CharacterSet::Utf8 });
    let datatype = Datatype { version: 1, reserved: 0, size, class };
    let version = if header_version == 1 { 1 } else { 2 };
    let space = Dataspace { version, extent: Extent::Scalar, dims: Vec::new(), max_dims: None };
    let mut bytes = text.to_vec();
    bytes.resize(size as usize, 0);
    Ok((datatype, space, bytes))
}

/// Where parts of a value go that do not lie in it.
pub(super) struct Values<'a> {
    /// The operation.
    pub(super) change: &'a Change<'a>,
    /// The file.
    pub(super) store: &'a Store,
    /// References may lead to what is not there, to nothing then; this tells that one did.
    pub(super) nowhere: Option<&'a Cell<bool>>,
}

impl<'a> Values<'a> {
    /// Every reference must lead to an object.
    pub(super) fn new(change: &'a Change<'a>, store: &'a Store) -> Self {
        Values { change, store, nowhere: None }
    }
}

impl ValueStore for Values<'_> {
    fn sequence(&mut self, count: u32, payload: &[u8]) -> Result<Vec<u8>> {
        let ctx = self.store.ctx();
        let mut w = Writer::new();
        w.u32(count);
        if payload.is_empty() {
            // Nothing is stored of an empty one.
            w.addr(Address(0), ctx).u32(0);
        } else {
            let (collection, index) = global_heap_edit::insert(self.store, &mut self.change.editing.heaps.lock(), payload)?;
            w.addr(collection, ctx).u32(index);
        }
        Ok(w.into_bytes())
    }

    fn object(&mut self, path: &[u8]) -> Result<Address> {
        let start = ObjectId { file: 0, address: self.change.connector.file(0)?.root };
        let found = match traverse::path(self.change.connector, start, path, &mut 0) {
            Err(_) if self.nowhere.is_some() => None,
            found => found?,
        };
        let found = found.filter(|id| id.file == 0).map(|id| id.address);
        if let (None, Some(nowhere)) = (found, self.nowhere) {
            nowhere.set(true);
            return Ok(Address(0));
        }
        found.ok_or_else(|| Error::refused(libc::EINVAL, "a reference leads to an object of the file"))
    }
}
