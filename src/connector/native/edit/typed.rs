//! Setting attributes with their types and shapes: `user.h5dir.attributes`.
//!
//! A reference may lead to an object that is not there yet, as when a tree is copied: until it is, the attribute holds a
//! reference to nothing. Before each commit it is tried again. What leads nowhere when the file is closed stays so.

use super::attributes::{Values, too_large};
use super::facts::refused;
use super::{Change, now};
use crate::base::{Error, Result};
use crate::connector::ObjectId;
use crate::container::attributes_edit;
use crate::dataset::create::{dataspace_message, datatype_message};
use crate::dataset::types::Shape;
use crate::dataset::types::parse::{AttributeSpec, parse_attributes_json_each};
use crate::format::message::attribute::encode_attribute;
use crate::format::message::dataspace::Extent;
use crate::meta::Store;
use crate::meta::header_edit::HeaderEdit;
use std::cell::Cell;
use std::collections::HashSet;

/// Bytes of all descriptions with references that lead nowhere yet.
const PENDING_MAX: usize = 16 << 20;

/// Attributes with references to what is not there yet.
#[derive(Debug, Clone)]
pub struct Pending {
    /// The whole list.
    text: Vec<u8>,
    /// Those of it that are not right yet.
    names: HashSet<Vec<u8>>,
}

impl Change<'_> {
    /// Sets attributes with their types and shapes; those not named stay.
    pub(super) fn set_attributes(&self, id: ObjectId, text: &[u8]) -> Result<()> {
        let names = self.set_typed(id, text, &|_| true)?;
        let mut pending = self.editing.pending.lock();
        pending.remove(&id);
        if !names.is_empty() {
            if pending.values().map(|p| p.text.len()).sum::<usize>().saturating_add(text.len()) > PENDING_MAX {
                return Err(Error::refused(libc::EINVAL, "too many references lead to objects that are not there"));
            }
            pending.insert(id, Pending { text: text.to_vec(), names });
        }
        Ok(())
    }

    /// Sets those of the attributes that are `wanted`; returns the names of those with references that lead nowhere. Those that
    /// cannot be made are left out, unless there is no other.
    fn set_typed(&self, id: ObjectId, text: &[u8], wanted: &dyn Fn(&[u8]) -> bool) -> Result<HashSet<Vec<u8>>> {
        let store = self.store()?;
        let version = HeaderEdit::load(&store, id.address)?.version();
        let nowhere = Cell::new(false);
        let mut values = Values { nowhere: Some(&nowhere), ..Values::new(self, &store) };
        let (mut names, mut left, mut any) = (HashSet::new(), Vec::new(), false);
        parse_attributes_json_each(text, store.ctx().sizeof_addr, &mut values, wanted, &mut |name, attribute| {
            let leads_nowhere = nowhere.replace(false);
            let attribute = match attribute {
                Ok(attribute) => attribute,
                Err(error) => {
                    left.push(error);
                    return Ok(());
                }
            };
            any = true;
            if leads_nowhere {
                names.insert(name.to_vec());
            }
            let held = self.held_by(id, &attribute.name)?;
            put(&store, id, version, &attribute)?;
            self.free_held(&held)
        })?;
        if !any && !left.is_empty() {
            return Err(left.swap_remove(0));
        }
        for error in left {
            tracing::warn!("object at {}, left out of user.h5dir.attributes: {error}", id.address);
        }
        self.changed(id);
        Ok(names)
    }

    /// True if the attribute gets its value later.
    pub(super) fn is_pending(&self, id: ObjectId, name: &[u8]) -> bool {
        self.editing.pending.lock().get(&id).is_some_and(|p| p.names.contains(name))
    }

    /// The attribute is another one now.
    pub(super) fn not_pending(&self, id: ObjectId, name: &[u8]) {
        if let Some(p) = self.editing.pending.lock().get_mut(&id) {
            p.names.remove(name);
        }
    }

    /// Tries again to lead references to their objects. `last`: says which lead nowhere.
    pub(super) fn lead_references(&self, last: bool) {
        let all: Vec<_> = self.editing.pending.lock().drain().collect();
        for (id, p) in all {
            // Those that still lead nowhere are written as they were.
            let done = self.atomically(|| self.set_typed(id, &p.text, &|name| p.names.contains(name)));
            match done {
                Ok(names) if names.is_empty() => {}
                Ok(names) if last => {
                    let names: Vec<_> = names.iter().map(|n| String::from_utf8_lossy(n)).collect();
                    tracing::warn!("object at {}: references in {} lead to no object of the file", id.address, names.join(", "));
                }
                Ok(names) => drop(self.editing.pending.lock().insert(id, Pending { text: p.text, names })),
                Err(error) => tracing::warn!("object at {}: its references lead nowhere: {error}", id.address),
            }
        }
    }
}

/// Writes an attribute.
pub(super) fn put(store: &Store, id: ObjectId, version: u8, attribute: &AttributeSpec) -> Result<()> {
    let superblock = store.superblock().version;
    let (extent, dims, max) = match &attribute.shape {
        Shape::Null => (Extent::Null, &[][..], None),
        Shape::Scalar => (Extent::Scalar, &[][..], None),
        Shape::Simple { dims, max } => {
            let unlimited = |n: &u64| Some(*n).filter(|n| *n != u64::MAX);
            (Extent::Simple, dims.as_slice(), max.as_ref().map(|m| m.iter().map(unlimited).collect::<Vec<_>>()))
        }
    };
    let space = dataspace_message(store.ctx(), superblock, extent, dims, max.as_deref());
    let datatype = datatype_message(superblock, &attribute.datatype).map_err(refused)?;
    let body = encode_attribute(version, &attribute.name, &datatype, false, &space, &attribute.bytes)?;
    attributes_edit::set(store, id.address, &attribute.name, &body, now()).map_err(too_large)
}
