//! Attributes and fill values whose references name objects that are not there yet, as when a tree
//! is copied.
//!
//! Until the object is there they hold a nil reference. Before each commit they are tried again.
//! References that name no object when the file is closed stay nil.

use super::super::attribute::Value;
use super::attributes::{Values, put_as};
use super::change_parts::AttributeChange;
use super::errors::refused;
use super::now;
use crate::base::fill::Fill;
use crate::base::{Error, Result};
use crate::connector::{NewAttribute, NewValue, ObjectId};
use crate::dataset::create::dataset_messages;
use crate::dataset::creation::Creation;
use crate::dataset::parts::store_elements;
use crate::format::object_header::kind;
use crate::meta::header_edit::HeaderEdit;
use crate::structures::attributes::edit as attributes_edit;
use crate::structures::shared_messages::edit as shared_messages_edit;
use std::cell::Cell;
use std::collections::HashMap;

/// Bytes of all values with references that name no object yet.
const PENDING_MAX: usize = 16 << 20;

/// Attributes with references to what is not there yet.
#[derive(Debug, Clone, Default)]
pub(super) struct UnresolvedAttributes(HashMap<Vec<u8>, NewValue>);

impl UnresolvedAttributes {
    /// Bytes that are kept.
    fn len(&self) -> usize {
        let of = |(name, value): (&Vec<u8>, &NewValue)| {
            let paths = value.targets.iter().map(|t| t.object.len()).sum::<usize>();
            name.len().saturating_add(value.form.len()).saturating_add(paths)
        };
        self.0.iter().map(of).fold(0, usize::saturating_add)
    }
}

impl AttributeChange<'_> {
    /// Sets attributes with their types and shapes, and their creation order where it is tracked;
    /// those not named stay.
    pub(super) fn set_attributes(&self, id: ObjectId, attributes: &mut dyn Iterator<Item = Result<NewAttribute>>) -> Result<()> {
        let mut names = Vec::new();
        let mut noted = attributes.inspect(|attribute| names.extend(attribute.as_ref().ok().map(|a| a.name.clone())));
        let left = self.put_attributes(id, &mut noted)?;
        if attributes_edit::set_order(&*self.change.store()?, id.address, &names, now())? {
            self.change.changed(id);
        }
        let mut pending = self.change.editing.objects.all_pending();
        pending.change(id, |p| p.attributes = None);
        if !left.0.is_empty() {
            let kept = pending.iter().filter_map(|(_, p)| p.attributes.as_ref()).map(UnresolvedAttributes::len);
            if kept.fold(left.len(), usize::saturating_add) > PENDING_MAX {
                return Err(Error::refused(libc::EBUSY, "too many references lead to objects that are not there yet"));
            }
            pending.change(id, |p| p.attributes = Some(left));
        }
        Ok(())
    }

    /// Sets attributes; returns those with references that name no object.
    fn put_attributes(&self, id: ObjectId, attributes: &mut dyn Iterator<Item = Result<NewAttribute>>) -> Result<UnresolvedAttributes> {
        let store = self.change.store()?;
        let version = HeaderEdit::load(&store, id.address)?.version();
        let nowhere = Cell::new(false);
        let mut values = Values { nowhere: Some(&nowhere), ..Values::new(self.change, &store) };
        let mut left = UnresolvedAttributes::default();
        for attribute in attributes {
            let NewAttribute { name, value } = attribute?;
            let bytes = store_elements(&value, &mut values)?;
            let held = self.held_by(id, &name)?;
            let stored = Value { datatype: value.datatype.clone(), shape: value.shape.clone(), bytes };
            let named = self.kept_type(id, &name, &value.datatype)?;
            put_as(&store, id, version, &name, &stored, named)?;
            self.free_held(id, &held)?;
            if nowhere.replace(false) {
                left.0.insert(name, value);
            }
        }
        self.change.changed(id);
        Ok(left)
    }

    /// True if the attribute gets the elements of `value` later.
    pub(super) fn is_pending(&self, id: ObjectId, name: &[u8], value: &NewValue) -> bool {
        let objects = &self.change.editing.objects;
        let waits = |all: &UnresolvedAttributes| all.0.get(name).is_some_and(|waiting| waiting.has_elements_of(value));
        objects.pending(id, |p| p.attributes.as_ref().is_some_and(waits)) == Some(true)
    }

    /// The attribute is another one now.
    pub(super) fn not_pending(&self, id: ObjectId, name: &[u8]) {
        self.change.editing.objects.change_pending(id, |p| p.attributes.as_mut().map(|a| a.0.remove(name)));
    }

    /// Sets fill values whose references name objects now. `last`: logs those that stay null.
    pub(super) fn lead_fill_values(&self, last: bool) {
        let all = self.change.editing.objects.all_pending().take(|p| p.fill.take());
        for (id, value) in all {
            match self.change.atomically(|| self.put_fill_value(id, &value)) {
                Ok(true) => {}
                Ok(false) if last => {
                    tracing::warn!("object at {}: its fill value is null, as it refers to no object of the file", id.address);
                }
                Ok(false) => self.change.editing.objects.change_pending(id, |p| p.fill = Some(value)),
                Err(error) => tracing::warn!("object at {}: its fill value is null: {error}", id.address),
            }
        }
    }

    /// Sets the fill value of a dataset; false: one of its references names no object.
    fn put_fill_value(&self, id: ObjectId, value: &NewValue) -> Result<bool> {
        let (store, d) = (self.change.store()?, self.change.dataset(id)?);
        let nowhere = Cell::new(false);
        let fill = store_elements(value, &mut Values { nowhere: Some(&nowhere), ..Values::new(self.change, &store) })?;
        if nowhere.get() {
            return Ok(false);
        }
        if fill.len() as u64 != d.datatype.element_size() {
            return Ok(true);
        }
        let creation = Creation { fill: Fill::Value(fill), ..d.now()?.creation };
        let messages = dataset_messages(store.ctx(), store.superblock().version, &creation).map_err(refused)?;
        shared_messages_edit::forget(&store, id.address)?;
        let mut header = HeaderEdit::load(&store, id.address)?;
        // Filters of sparse chunks have the fill value as a parameter.
        let kept = [kind::DATASPACE, kind::DATATYPE, kind::DATA_LAYOUT, kind::MTIME];
        for (kind, flags, body) in messages.into_iter().filter(|(k, ..)| !kept.contains(k)) {
            match header.find(kind) {
                Some(at) => header.set_body(at, body),
                None => drop(header.add(kind, flags, body)),
            }
        }
        header.write(&store)?;
        self.change.changed(id);
        Ok(true)
    }

    /// Tries again to lead references to their objects. `last`: says which lead nowhere.
    pub(super) fn lead_references(&self, last: bool) {
        let all = self.change.editing.objects.all_pending().take(|p| p.attributes.take());
        for (id, p) in all {
            // Those that still lead nowhere are written as they were.
            let again = p.0.iter().map(|(name, value)| Ok(NewAttribute { name: name.clone(), value: value.clone() }));
            match self.change.atomically(|| self.put_attributes(id, &mut { again })) {
                Ok(left) if left.0.is_empty() => {}
                Ok(left) if last => {
                    let names: Vec<_> = left.0.keys().map(|n| String::from_utf8_lossy(n)).collect();
                    tracing::warn!("object at {}: references in {} lead to no object of the file", id.address, names.join(", "));
                }
                Ok(left) => self.change.editing.objects.change_pending(id, |p| p.attributes = Some(left)),
                Err(error) => tracing::warn!("object at {}: its references lead nowhere: {error}", id.address),
            }
        }
    }
}
