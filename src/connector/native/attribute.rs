//! Attributes of an object: compact and dense, shared ones followed.

use super::object::Object;
use crate::base::datatype::Datatype;
use crate::base::shape::Shape;
use crate::base::{Error, Result};
use crate::format::Reader;
use crate::format::message::attribute::{Attribute, name_of};
use crate::format::message::attribute_info::AttributeInfo;
use crate::format::message::dataspace::Dataspace;
use crate::format::message::datatype;
use crate::format::object_header::{Message, flag, header_flag, kind};
use crate::structures::attributes::dense as dense_attributes;
use crate::structures::group::dense_edit::DenseStorage;
use foldhash::fast::FixedState;
use std::borrow::Cow;
use std::hash::BuildHasher;
use std::ops::ControlFlow;

/// A decoded attribute value.
pub struct Value {
    /// Type of its elements.
    pub datatype: Datatype,
    /// Its extent.
    pub shape: Shape,
    /// Raw elements.
    pub bytes: Vec<u8>,
}

/// Names of all attributes of `object`, each once, in creation order if the object tracks it, else
/// ascending; no value is kept. An attribute that cannot be decoded at all is logged and left out;
/// also returns the first damage.
pub fn names(object: &Object) -> Result<(Vec<Vec<u8>>, Option<Error>)> {
    let mut out = Vec::new();
    let prefix = &object.header.prefix;
    let tracked = prefix.version != 1 && prefix.flags & header_flag::CREATION_TRACKED != 0;
    let damage = each_ordered(object, &mut |a, order| out.push((a.name, order)))?;
    out.sort_unstable();
    out.dedup_by(|a, b| a.0 == b.0);
    if tracked {
        out.sort_by_key(|(_, order)| *order);
    }
    Ok((out.into_iter().map(|(name, _)| name).collect(), damage))
}

/// Calls `f` with every attribute of `object` as it is stored. One that cannot be decoded at all is
/// logged and left out. Returns the first damage.
pub fn each(object: &Object, f: &mut dyn FnMut(Attribute)) -> Result<Option<Error>> {
    each_ordered(object, &mut |a, _| f(a))
}

/// Visits attributes as [`each`], with their creation orders, which are undefined if the object
/// does not track them.
fn each_ordered(object: &Object, f: &mut dyn FnMut(Attribute, u32)) -> Result<Option<Error>> {
    let mut damage = None;
    let mut keep = |body: Result<Cow<'_, [u8]>>, order| match body.and_then(|b| Attribute::decode(&b, object.header.address)) {
        Ok(a) => f(a, order),
        Err(e) => {
            tracing::warn!("{e}");
            damage.get_or_insert(e);
        }
    };
    for m in object.header.all(kind::ATTRIBUTE) {
        keep(object.body(m), m.creation_index.map_or(u32::MAX, u32::from));
    }
    let mut skipped = None;
    if let Some(at) = dense(object)? {
        skipped = dense_attributes::list(&object.file.store, at.heap, at.name_index, &mut |d| {
            let order = d.creation_order;
            keep(body_of(object, d).map(Into::into), order);
            Ok(ControlFlow::Continue(()))
        })?;
    }
    Ok(damage.or(skipped))
}

/// A hash of an attribute's name; the same for all headers, so that a hostile file may choose
/// names that share one. Those are found as slowly as in a list.
fn hash(name: &[u8]) -> u64 {
    FixedState::default().hash_one(name)
}

/// The attribute `name` of `object`.
pub fn find(object: &Object, name: &[u8]) -> Result<Option<Value>> {
    stored(object, name)?.map(|a| typed(object, &a)).transpose()
}

/// The attribute `name` of `object` as it is stored.
pub fn stored(object: &Object, name: &[u8]) -> Result<Option<Attribute>> {
    let at = object.header.address;
    let hash_of = |m: &Message| Some(hash(name_of(&object.body(m).ok()?, at).ok()?));
    for m in object.header.attributes_named(hash(name), hash_of) {
        let Ok(body) = object.body(m) else { continue };
        // Only the one that is wanted is copied.
        if name_of(&body, at).is_ok_and(|found| found == name)
            && let Ok(a) = Attribute::decode(&body, at)
        {
            return Ok(Some(a));
        }
    }
    let Some(at) = dense(object)? else { return Ok(None) };
    for d in dense_attributes::find(&object.file.store, at.heap, at.name_index, name)? {
        let a = body_of(object, d).and_then(|body| Attribute::decode(&body, object.header.address))?;
        if a.name == name {
            return Ok(Some(a));
        }
    }
    Ok(None)
}

/// Dense storage of the attributes, if they are in it.
pub fn dense(object: &Object) -> Result<Option<DenseStorage>> {
    let Some(body) = object.message(kind::ATTRIBUTE_INFO)? else { return Ok(None) };
    let info = AttributeInfo::decode(&body, object.file.store.ctx(), object.header.address)?;
    Ok(info.is_dense().then_some(DenseStorage {
        heap: info.fractal_heap,
        name_index: info.name_index,
        creation_index: info.creation_index.filter(|at| at.is_defined()),
    }))
}

fn body_of(object: &Object, d: dense_attributes::DenseAttribute) -> Result<Vec<u8>> {
    match d.shared_heap_id {
        Some(id) => object.shared_in_heap(kind::ATTRIBUTE, &id),
        None if d.flags & flag::SHARED != 0 => object.shared(kind::ATTRIBUTE, &d.body),
        None => Ok(d.body),
    }
}

/// Type, shape and bytes of a stored attribute.
pub fn typed(object: &Object, a: &Attribute) -> Result<Value> {
    let at = object.header.address;
    let shared = |is_shared: bool, kind, bytes: &[u8]| if is_shared { object.shared(kind, bytes) } else { Ok(bytes.to_vec()) };
    let datatype = shared(a.datatype_shared, kind::DATATYPE, &a.datatype)?;
    let datatype = datatype::decode(&mut Reader::new(&datatype, "attribute datatype", at))?;
    let space = shared(a.dataspace_shared, kind::DATASPACE, &a.dataspace)?;
    let space = Dataspace::decode(&space, object.file.store.ctx(), at)?;
    let len = space.elements().and_then(|n| n.checked_mul(datatype.element_size())).and_then(|n| usize::try_from(n).ok());
    let bytes = len.and_then(|n| a.data.get(..n));
    let bytes = bytes.ok_or_else(|| Error::corrupt("attribute message", at, format!("{} bytes of data are too few", a.data.len())))?;
    Ok(Value { shape: space.shape(), bytes: bytes.to_vec(), datatype })
}
