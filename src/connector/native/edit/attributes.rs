//! Setting and removing attributes.

use super::super::attribute::{self, Value};
use super::super::{info, ownership};
use super::change_parts::{AttributeChange, NameChange};
use super::errors::{refused, too_large};
use super::{Change, now};
use crate::base::datatype::Datatype;
use crate::base::shape::Shape;
use crate::base::variable_form::VariableForm;
use crate::base::{Address, Error, Result};
use crate::connector::{LinkFacts, NewValue, ObjectId, Ownership};
use crate::dataset::create::{dataspace_message, datatype_message};
use crate::dataset::heap::HeapStore;
use crate::dataset::parts::store_elements;
use crate::format::Writer;
use crate::format::message::attribute::{Attribute, encode_attribute};
use crate::format::message::dataspace::Dataspace;
use crate::format::message::link::LinkTarget;
use crate::meta::Store;
use crate::meta::header_edit::HeaderEdit;
use crate::structures::attributes::edit as attributes_edit;
use crate::structures::global_heap::edit as global_heap_edit;
use std::cell::Cell;

/// Largest name, bytes: what libhdf5's message takes, with its NUL.
const NAME_MAX: usize = 65_534;

impl AttributeChange<'_> {
    /// Sets an attribute.
    pub(super) fn set_attribute(&self, id: ObjectId, name: &[u8], value: &NewValue) -> Result<()> {
        if name.is_empty() || name.contains(&0) || name.len() > NAME_MAX {
            return Err(Error::refused(libc::EINVAL, "the name of an attribute has 1 to 65,534 bytes, and no NUL"));
        }
        let object = self.change.access.object(id)?;
        let found = attribute::stored(&object, name)?;
        if self.is_pending(id, name, value) {
            // A copying program says again what it said with types.
            return Ok(());
        }
        let store = self.change.store()?;
        let held = self.held_by(id, name)?;
        let data = store_elements(value, &mut Values::new(self.change, &store))?;
        let old = found.map(|old| attribute::typed(&object, &old).map(|typed| (old, typed))).transpose()?;
        let body = match old {
            Some((old, typed)) if typed.shape == value.shape && typed.datatype == value.datatype => Attribute { data, ..old }.encode(),
            Some((old, typed)) if typed.shape == value.shape => {
                Attribute { data, datatype: value.datatype.to_bytes(), datatype_shared: false, ..old }.encode()
            }
            _ => {
                let header = HeaderEdit::load(&store, id.address)?.version();
                let space = Dataspace::of(&value.shape, if header == 1 { 1 } else { 2 }).encode(store.ctx());
                let datatype = datatype_message(store.superblock().version, &value.datatype)?;
                encode_attribute(header, name, &datatype, false, &space, &data)?
            }
        };
        attributes_edit::set(&store, id.address, name, &body, now())?;
        self.free_held(id, &held)?;
        self.not_pending(id, name);
        self.change.changed(id);
        Ok(())
    }

    /// Sets owner, group and mode: an attribute that is hidden from the others.
    pub(super) fn set_ownership(&self, id: ObjectId, to: &Ownership) -> Result<()> {
        self.store_facts(id, ownership::NAME, &LinkFacts { ownership: *to, text: None })
    }

    fn store_facts(&self, id: ObjectId, name: &[u8], to: &LinkFacts) -> Result<()> {
        match ownership::value(to) {
            Some(value) => self.set_attribute(id, name, &value),
            None if attribute::stored(&self.change.access.object(id)?, name)?.is_some() => self.remove_attribute(id, name),
            None => Ok(()),
        }
    }

    /// Sets an attribute's raw bytes, its variable-length parts in exact form.
    pub(super) fn set_attribute_bytes(&self, id: ObjectId, name: &[u8], bytes: &[u8]) -> Result<()> {
        if name.is_empty() || name.contains(&0) || name.len() > NAME_MAX {
            return Err(Error::refused(libc::EINVAL, "the name of an attribute has 1 to 65,534 bytes, and no NUL"));
        }
        let object = self.change.access.object(id)?;
        let store = self.change.store()?;
        let version = HeaderEdit::load(&store, id.address)?.version();
        let held = self.held_by(id, name)?;
        let old = attribute::stored(&object, name)?.map(|old| attribute::typed(&object, &old).map(|value| (old, value))).transpose()?;
        self.not_pending(id, name);
        match old {
            Some((_, value)) if value.datatype.contains_reference() => {
                if info::exact(&self.change.access, id, name)?.as_deref() != Some(bytes) {
                    let reason = "bytes of references are addresses in one file: user.h5dir.attributes sets them by paths";
                    return Err(Error::refused(libc::EPERM, reason));
                }
            }
            Some((old, value)) if old.datatype_shared || !is_bytes(&value) => {
                let data = raw(&value, bytes, &mut Values::new(self.change, &store))?;
                let body = Attribute { data, ..old }.encode();
                attributes_edit::set(&store, id.address, name, &body, now()).map_err(too_large)?;
            }
            _ => {
                let datatype = Datatype::byte();
                let shape = Shape::Simple { dims: vec![bytes.len() as u64], max: None };
                let value = Value { datatype, shape, bytes: bytes.to_vec() };
                put(&store, id, version, name, &value)?;
            }
        }
        self.free_held(id, &held)?;
        self.change.changed(id);
        Ok(())
    }

    /// Gives an attribute another name.
    pub(super) fn rename_attribute(&self, id: ObjectId, from: &[u8], to: &[u8], replace: bool) -> Result<()> {
        if to.is_empty() || to.contains(&0) || to.len() > NAME_MAX {
            return Err(Error::refused(libc::EINVAL, "the name of an attribute has 1 to 65,534 bytes, and no NUL"));
        }
        let store = self.change.store()?;
        if !replace && attribute::stored(&self.change.access.object(id)?, to)?.is_some() {
            return Err(Error::refused(libc::EEXIST, "the attribute is there"));
        }
        self.not_pending(id, from);
        self.not_pending(id, to);
        let held = if from == to { Default::default() } else { self.held_by(id, to)? };
        if !attributes_edit::rename(&store, id.address, from, to, now()).map_err(too_large)? {
            return Err(Error::refused(libc::ENOENT, "there is no such attribute"));
        }
        self.free_held(id, &held)?;
        self.change.changed(id);
        Ok(())
    }

    /// Removes an attribute.
    pub(super) fn remove_attribute(&self, id: ObjectId, name: &[u8]) -> Result<()> {
        let store = self.change.store()?;
        self.not_pending(id, name);
        let held = self.held_by(id, name)?;
        if !attributes_edit::remove(&store, id.address, name, now())? {
            return Err(Error::refused(libc::ENODATA, "there is no such attribute"));
        }
        self.free_held(id, &held)?;
        self.change.changed(id);
        Ok(())
    }
}

impl NameChange<'_> {
    /// Sets owner and group of a link that is not a hard link.
    pub(super) fn set_link_ownership(&self, group: ObjectId, name: &[u8], to: &Ownership) -> Result<()> {
        self.set_link_facts(group, name, &LinkFacts { ownership: *to, ..self.link_facts(group, name)? })
    }

    /// Owner, group and text of a soft or external link.
    pub(super) fn link_facts(&self, group: ObjectId, name: &[u8]) -> Result<LinkFacts> {
        Ok(ownership::of_link(&self.change.access.object(group)?, name))
    }

    /// Sets owner, group and text of a soft or external link.
    pub(super) fn set_link_facts(&self, group: ObjectId, name: &[u8], to: &LinkFacts) -> Result<()> {
        self.change.attributes().store_facts(group, &ownership::link_attribute(name), to)
    }

    /// Removes and returns owner, group and text of the link `name`, which will be removed.
    pub(super) fn take_link_facts(&self, group: ObjectId, name: &[u8], target: &LinkTarget) -> Result<LinkFacts> {
        if matches!(target, LinkTarget::Hard(_)) {
            return Ok(LinkFacts::default());
        }
        let found = self.link_facts(group, name)?;
        self.set_link_facts(group, name, &LinkFacts::default())?;
        Ok(found)
    }
}

/// A list of bytes, as a new file among attributes becomes one.
fn is_bytes(value: &Value) -> bool {
    matches!(&value.shape, Shape::Simple { dims, .. } if dims.len() == 1) && value.datatype == Datatype::byte()
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

/// Where parts of a value go that do not lie in it.
pub(super) struct Values<'a> {
    /// The operation.
    pub(super) change: &'a Change<'a>,
    /// The file.
    pub(super) store: &'a Store,
    /// Set when a reference names an object that does not exist, and so is null.
    pub(super) nowhere: Option<&'a Cell<bool>>,
}

impl<'a> Values<'a> {
    /// Every reference must lead to an object.
    pub(super) fn new(change: &'a Change<'a>, store: &'a Store) -> Self {
        Values { change, store, nowhere: None }
    }
}

impl HeapStore for Values<'_> {
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
        let found = match if no_path { Ok(None) } else { self.change.access.follow_path(start, path, &mut 0) } {
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

/// Writes an attribute with a type of its own.
pub(super) fn put(store: &Store, id: ObjectId, version: u8, name: &[u8], value: &Value) -> Result<()> {
    put_as(store, id, version, name, value, None)
}

/// Writes an attribute; `named`: the encoded reference to its named datatype.
pub(super) fn put_as(store: &Store, id: ObjectId, version: u8, name: &[u8], value: &Value, named: Option<Vec<u8>>) -> Result<()> {
    let superblock = store.superblock().version;
    let Dataspace { extent, dims, max_dims, .. } = Dataspace::of(&value.shape, 1);
    let space = dataspace_message(store.ctx(), superblock, extent, &dims, max_dims.as_deref());
    let is_named = named.is_some();
    let datatype = named.map_or_else(|| datatype_message(superblock, &value.datatype).map_err(refused), Ok)?;
    let body = encode_attribute(version, name, &datatype, is_named, &space, &value.bytes)?;
    attributes_edit::set(store, id.address, name, &body, now()).map_err(too_large)
}
