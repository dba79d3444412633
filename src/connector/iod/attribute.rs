//! Attributes: a message of the file format, and the cells of its elements.
//!
//! ```text
//! attribute  length of the message u32 | attribute message, version 3 | block of cells
//! ```

use super::access::IodConnector;
use super::cells::{Cells, NewCells, Place, StateCells, check_block};
use super::object_access::ObjectAccess;
use super::state::State;
use super::types::{TypeOf, referred};
use crate::base::parts::{Budget, Limited};
use crate::base::shape::Shape;
use crate::base::value::{EXACT_BYTES_MAX, NewValue, Value};
use crate::base::variable_form::VariableForm;
use crate::base::{Address, Error, Result};
use crate::connector::Datatype;
use crate::dataset::create::is_same_datatype;
use crate::dataset::heap::HeapStore;
use crate::dataset::parts::store_elements;
use crate::format::message::attribute::{Attribute, encode_attribute};
use crate::format::message::dataspace::Dataspace;
use crate::format::{Context, Reader, Writer};
use crate::iod::keys;
use std::sync::Arc;

/// Version of object headers whose attribute messages are used.
const HEADER: u8 = 2;

/// A decoded attribute.
struct Decoded {
    datatype: TypeOf,
    shape: Shape,
    bytes: Vec<u8>,
    block: Vec<u8>,
}

/// The message of a stored attribute, and the rest.
fn message(stored: &[u8], id: u64) -> Result<(Attribute, Reader<'_>)> {
    let mut r = Reader::new(stored, "attribute", Address(id));
    let len = r.u32()?;
    Ok((Attribute::decode(r.bytes(len as usize)?, Address(id))?, r))
}

/// The named datatype of a stored attribute of the object `id`.
pub(super) fn named_type(stored: &[u8], id: u64) -> Result<Option<u64>> {
    let (message, _) = message(stored, id)?;
    if message.datatype_shared { referred(&message.datatype, id) } else { Ok(None) }
}

fn decode(state: &State, stored: &[u8], id: u64) -> Result<Decoded> {
    let (message, r) = message(stored, id)?;
    let datatype = state.type_of(&message.datatype, id)?;
    if datatype.named.is_some() != message.datatype_shared {
        return Err(r.corrupt("it states otherwise whether its datatype has a name"));
    }
    let space = Dataspace::decode(&message.dataspace, &Context::DEFAULT, Address(id))?;
    let want = space.elements().and_then(|n| n.checked_mul(datatype.datatype.element_size()));
    if want != Some(message.data.len() as u64) {
        return Err(r.corrupt("its elements do not fit its shape"));
    }
    Ok(Decoded { datatype, shape: space.shape(), bytes: message.data, block: r.rest().to_vec() })
}

fn encode(name: &[u8], datatype: &TypeOf, shape: &Shape, bytes: &[u8], block: &[u8]) -> Result<Vec<u8>> {
    let invalid = |e: Error| Error::refused(libc::E2BIG, e.to_string());
    let space = Dataspace::of(shape, 2).encode(&Context::DEFAULT);
    let type_message = datatype.message().map_err(invalid)?;
    let message = encode_attribute(HEADER, name, &type_message, datatype.named.is_some(), &space, bytes).map_err(invalid)?;
    let mut w = Writer::new();
    w.u32(u32::try_from(message.len()).map_err(|_| Error::refused(libc::E2BIG, "an attribute of 4 GiB"))?);
    w.bytes(&message).bytes(block);
    Ok(w.into_bytes())
}

fn key(id: u64, name: &[u8]) -> keys::Key {
    keys::key(id, keys::ATTRIBUTE, name)
}

/// Errors: a name that no attribute can have.
pub(super) fn check_name(name: &[u8]) -> Result<()> {
    if name.is_empty() || name.contains(&0) || name.len() > keys::KEY_MAX / 2 {
        return Err(Error::refused(libc::EINVAL, "the name of an attribute has 1 to 16,384 bytes, and no NUL"));
    }
    Ok(())
}

impl IodConnector {
    /// The attribute `name` of `id`.
    pub(super) fn attribute_of(&self, state: &State, id: u64, name: &[u8]) -> Result<Option<Value>> {
        let Some(stored) = state.bytes(&key(id, name))? else { return Ok(None) };
        let Decoded { datatype: TypeOf { datatype, named }, shape, bytes, block } = decode(state, &stored, id)?;
        let parts = Arc::new(Cells { states: self.states.clone(), objects: self.objects.clone(), place: Place::Block(block) });
        Ok(Some(Value { datatype, committed: named.is_some(), shape, bytes, parts }))
    }
}

impl ObjectAccess {
    /// The bytes to store for an attribute. `lenient`: references to objects that do not exist are
    /// nil, and the second value says whether there is one. `named`: the named datatype that it is.
    fn encoded(&self, state: &State, name: &[u8], value: &NewValue, lenient: bool, named: Option<u64>) -> Result<(Vec<u8>, bool)> {
        let mut cells = NewCells::new(state, false, lenient);
        let bytes = store_elements(value, &mut cells)?;
        let want = value.shape.count().and_then(|n| n.checked_mul(value.datatype.element_size()));
        if want != Some(bytes.len() as u64) {
            return Err(Error::refused(libc::EINVAL, "the value does not fit its type and shape"));
        }
        let nowhere = cells.nowhere.get();
        let datatype = TypeOf { datatype: value.datatype.clone(), named };
        Ok((encode(name, &datatype, &value.shape, &bytes, &cells.into_block()?)?, nowhere))
    }

    /// Errors: an attribute that cannot be set.
    pub(super) fn check_attribute(&self, state: &State, name: &[u8], value: &NewValue) -> Result<()> {
        check_name(name)?;
        self.encoded(state, name, value, true, None).map(drop)
    }

    /// Sets an attribute.
    pub(super) fn put_attribute(&self, state: &mut State, id: u64, name: &[u8], value: &NewValue, lenient: bool) -> Result<()> {
        check_name(name)?;
        let old = state.named_type(id, Some(name))?;
        let keeps = |named: &u64| state.named_datatype(*named).is_ok_and(|datatype| is_same_datatype(&datatype, &value.datatype));
        let named = old.filter(keeps);
        let (stored, nowhere) = self.encoded(state, name, value, lenient, named)?;
        let waiting = (id, name.to_vec());
        if nowhere {
            state.waiting.attributes.insert(waiting, value.clone());
        } else {
            state.waiting.attributes.remove(&waiting);
        }
        state.change_use(old, named)?;
        state.put(key(id, name), &stored)
    }

    /// Sets the raw bytes of an attribute, its variable-length parts in exact form.
    pub(super) fn put_attribute_bytes(&self, state: &mut State, id: u64, name: &[u8], bytes: &[u8]) -> Result<()> {
        check_name(name)?;
        state.waiting.attributes.remove(&(id, name.to_vec()));
        let old = state.bytes(&key(id, name))?.map(|stored| decode(state, &stored, id)).transpose()?;
        let plain = TypeOf::own(Datatype::byte());
        let is_bytes = |old: &Decoded| old.datatype == plain && matches!(&old.shape, Shape::Simple { dims, .. } if dims.len() == 1);
        let stored = match old {
            Some(old) if old.datatype.datatype.contains_reference() => {
                let place = Place::Block(old.block);
                let cells = StateCells { objects: self, state, place: &place };
                let (form, mut out) = (VariableForm::of(&old.datatype.datatype), Vec::new());
                let size = usize::try_from(old.datatype.datatype.element_size()).unwrap_or(usize::MAX).max(1);
                for element in old.bytes.chunks_exact(size) {
                    form.exact_within(element, &cells, &mut Budget::tight(bytes.len() as u64), &mut out)?;
                }
                let reason = "bytes of references are numbers of one container: user.h5dir.attributes sets them by paths";
                return if out == bytes { Ok(()) } else { Err(Error::refused(libc::EPERM, reason)) };
            }
            Some(old) if !is_bytes(&old) => self.raw(state, name, &old, bytes)?,
            _ => {
                let shape = Shape::Simple { dims: vec![bytes.len() as u64], max: None };
                encode(name, &plain, &shape, bytes, &super::cells::encode_block(&[])?)?
            }
        };
        state.put(key(id, name), &stored)
    }

    /// The attribute with the type and shape of `old` whose raw bytes are `bytes`.
    fn raw(&self, state: &State, name: &[u8], old: &Decoded, bytes: &[u8]) -> Result<Vec<u8>> {
        let wrong = |what: String| Error::refused(libc::EINVAL, what);
        let datatype = &old.datatype.datatype;
        if !datatype.contains_vlen() {
            let (want, have) = (old.bytes.len(), bytes.len());
            if want != have {
                return Err(wrong(format!("the attribute's type and shape take {want} bytes, not {have}")));
            }
            return encode(name, &old.datatype, &old.shape, bytes, &super::cells::encode_block(&[])?);
        }
        let form = VariableForm::of(datatype);
        let size = usize::try_from(datatype.element_size()).unwrap_or(usize::MAX).max(1);
        let mut cells = NewCells::new(state, false, false);
        let (mut rest, mut out) = (bytes, Vec::new());
        while out.len() < old.bytes.len()
            && let Some((element, used)) = form.parse(size, rest, &mut |count, payload| cells.sequence(count, payload))?
        {
            out.extend(element);
            rest = rest.get(used..).unwrap_or_default();
        }
        if out.len() != old.bytes.len() || !rest.is_empty() {
            let count = old.bytes.len() / size;
            return Err(wrong(format!("the bytes are not the exact form of {count} elements of the attribute's type")));
        }
        encode(name, &old.datatype, &old.shape, &out, &cells.into_block()?)
    }

    /// Gives an attribute another name.
    pub(super) fn move_attribute(&self, state: &mut State, id: u64, from: &[u8], to: &[u8], replace: bool) -> Result<()> {
        check_name(to)?;
        if !replace && state.get(&key(id, to))?.is_some() {
            return Err(Error::refused(libc::EEXIST, "the attribute exists"));
        }
        let stored = state.bytes(&key(id, from))?.ok_or_else(|| Error::refused(libc::ENODATA, "there is no such attribute"))?;
        let Decoded { datatype, shape, bytes, block } = decode(state, &stored, id)?;
        if from == to {
            return Ok(());
        }
        let renamed = encode(to, &datatype, &shape, &bytes, &block)?;
        state.waiting.attributes.remove(&(id, to.to_vec()));
        if let Some(value) = state.waiting.attributes.remove(&(id, from.to_vec())) {
            state.waiting.attributes.insert((id, to.to_vec()), value);
        }
        state.waiting.rename_type(id, from, Some(to));
        let replaced = state.named_type(id, Some(to))?;
        state.change_use(replaced, None)?;
        state.remove(key(id, from))?;
        state.put(key(id, to), &renamed)
    }

    /// Removes an attribute.
    pub(super) fn delete_attribute(&self, state: &mut State, id: u64, name: &[u8]) -> Result<()> {
        state.waiting.attributes.remove(&(id, name.to_vec()));
        if state.get(&key(id, name))?.is_none() {
            return Err(Error::refused(libc::ENODATA, "there is no such attribute"));
        }
        state.waiting.rename_type(id, name, None);
        let named = state.named_type(id, Some(name))?;
        state.change_use(named, None)?;
        state.remove(key(id, name))
    }
}

/// Makes the attribute refer to the named datatype `named`. `check` gets its datatype.
pub(super) fn refer(
    state: &mut State,
    (id, name): (u64, &[u8]),
    named: u64,
    check: &mut dyn FnMut(&Datatype) -> Result<bool>,
) -> Result<bool> {
    let Some(stored) = state.bytes(&key(id, name))? else { return Ok(false) };
    let Decoded { datatype, shape, bytes, block } = decode(state, &stored, id)?;
    if !check(&datatype.datatype)? {
        return Ok(false);
    }
    if datatype.named == Some(named) {
        return Ok(true);
    }
    let referring = encode(name, &TypeOf { datatype: datatype.datatype, named: Some(named) }, &shape, &bytes, &block)?;
    state.change_use(datatype.named, Some(named))?;
    state.put(key(id, name), &referring)?;
    Ok(true)
}

/// Checks a stored attribute of the object `id`.
pub(super) fn check(objects: &ObjectAccess, state: &State, stored: &[u8], (id, name): (u64, &[u8])) -> Result<()> {
    let (message, r) = message(stored, id)?;
    if message.name != name {
        return Err(r.corrupt(format!("{:?} has the name {:?}", String::from_utf8_lossy(name), String::from_utf8_lossy(&message.name))));
    }
    let Decoded { datatype: TypeOf { datatype, .. }, bytes, block, .. } = decode(state, stored, id)?;
    if datatype.contains_vlen() {
        check_block(&block, id)?;
        let place = Place::Block(block);
        let parts = StateCells { objects, state, place: &place };
        let (form, limited) = (VariableForm::of(&datatype), Limited { parts: &parts, limit: EXACT_BYTES_MAX });
        for element in bytes.chunks_exact(usize::try_from(datatype.element_size()).unwrap_or(usize::MAX).max(1)) {
            form.exact(element, &limited, &mut Vec::new())?;
        }
    }
    Ok(())
}
