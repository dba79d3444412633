//! Setting and removing attributes.

use super::super::attribute::{self, Value};
use super::super::traverse;
use super::{Change, now};
use crate::base::{Address, Error, Result};
use crate::connector::edit::Existing;
use crate::connector::{Connector, ObjectId};
use crate::container::attributes_edit;
use crate::container::global_heap_edit;
use crate::dataset::types::Shape;
use crate::dataset::types::parse::{AttributeSpec, Store as ValueStore, parse_value_into};
use crate::dataset::vl::VariableForm;
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
        Ok(())
    }

    /// Sets an attribute's raw bytes, its variable-length parts in exact form.
    pub(super) fn set_attribute_bytes(&self, id: ObjectId, name: &[u8], bytes: &[u8]) -> Result<()> {
        if name.is_empty() || name.contains(&0) || name.len() > NAME_MAX {
            return Err(Error::refused(libc::EINVAL, "an attribute has a name without NUL"));
        }
        let object = self.connector.object(id)?;
        let store = self.store()?;
        let version = HeaderEdit::load(&store, id.address)?.version();
        let held = self.held_by(id, name)?;
        let old = attribute::stored(&object, name)?.map(|old| attribute::typed(&object, &old).map(|value| (old, value))).transpose()?;
        self.not_pending(id, name);
        match old {
            Some((_, value)) if value.datatype.contains_reference() => {
                if self.connector.attribute_raw(id, name)?.as_deref() != Some(bytes) {
                    let reason = "bytes of references are addresses in one file: user.h5dir.attributes sets them by paths";
                    return Err(Error::refused(libc::EPERM, reason));
                }
            }
            Some((old, value)) if old.datatype_shared || !is_bytes(&value) => {
                let data = raw(&value, bytes, &mut Values::new(self, &store))?;
                let body = Attribute { data, ..old }.encode();
                attributes_edit::set(&store, id.address, name, &body, now()).map_err(too_large)?;
            }
            _ => {
                let datatype = super::names::stream().datatype;
                let shape = Shape::Simple { dims: vec![bytes.len() as u64], max: None };
                let spec = AttributeSpec { name: name.to_vec(), datatype, shape, bytes: bytes.to_vec() };
                super::typed::put(&store, id, version, &spec)?;
            }
        }
        self.free_held(&held)?;
        self.changed(id);
        Ok(())
    }

    /// Gives an attribute another name.
    pub(super) fn rename_attribute(&self, id: ObjectId, from: &[u8], to: &[u8], replace: bool) -> Result<()> {
        if to.is_empty() || to.contains(&0) || to.len() > NAME_MAX {
            return Err(Error::refused(libc::EINVAL, "an attribute has a name without NUL"));
        }
        let store = self.store()?;
        if !replace && attribute::stored(&self.connector.object(id)?, to)?.is_some() {
            return Err(Error::refused(libc::EEXIST, "the attribute is there"));
        }
        self.not_pending(id, from);
        self.not_pending(id, to);
        let held = if from == to { Default::default() } else { self.held_by(id, to)? };
        if !attributes_edit::rename(&store, id.address, from, to, now()).map_err(too_large)? {
            return Err(Error::refused(libc::ENOENT, "there is no such attribute"));
        }
        self.free_held(&held)?;
        self.changed(id);
        Ok(())
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
        Ok(())
    }
}

/// More than a header or its heap takes.
pub(super) fn too_large(e: Error) -> Error {
    match e {
        Error::Limit { .. } => Error::refused(libc::E2BIG, e.to_string()),
        other => other,
    }
}

/// A list of bytes, as a new file among attributes becomes one.
fn is_bytes(value: &Value) -> bool {
    matches!(&value.shape, Shape::Simple { dims, .. } if dims.len() == 1) && value.datatype == super::names::stream().datatype
}

/// The elements whose raw bytes, variable-length parts in exact form, are `bytes`.
fn raw(value: &Value, bytes: &[u8], values: &mut Values<'_>) -> Result<Vec<u8>> {
    let wrong = |what: String| Error::refused(libc::EINVAL, what);
    if !value.datatype.contains_vlen() {
        let (want, have) = (value.bytes.len(), bytes.len());
        let fits = want == have;
        return fits.then(|| bytes.to_vec()).ok_or_else(|| wrong(format!("the attribute's type and shape take {want} bytes, not {have}")));
    }
    let form = VariableForm::of(&value.datatype);
    let size = usize::try_from(value.datatype.element_size()).unwrap_or(usize::MAX).max(1);
    let (mut rest, mut out) = (bytes, Vec::with_capacity(value.bytes.len()));
    while out.len() < value.bytes.len()
        && let Some((element, used)) = form.parse(size, rest, &mut |count, payload| values.sequence(count, payload))?
    {
        out.extend(element);
        rest = rest.get(used..).unwrap_or_default();
    }
    let count = value.bytes.len() / size;
    let whole = out.len() == value.bytes.len() && rest.is_empty();
    whole.then_some(out).ok_or_else(|| wrong(format!("the bytes are not the exact form of {count} elements of the attribute's type")))
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
        // An object without a path is shown by its address in the file that it was in.
        let no_path = path.starts_with(b"#") && self.nowhere.is_some();
        let found = match if no_path { Ok(None) } else { traverse::path(self.change.connector, start, path, &mut 0) } {
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
