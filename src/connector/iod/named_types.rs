//! Named datatypes that datasets and attributes refer to.
//!
//! The datatype's link count has one for each reference to it, so that it stays as long as it is
//! used.

use super::attribute;
use super::object_access::ObjectAccess;
use super::paths;
use super::state::State;
use super::types::{TypeOf, referred};
use crate::base::{Error, Result};
use crate::connector::ObjectKind;
use crate::dataset::create::{awaits_datatype, refuse_other_datatype};
use crate::format::object_header::kind;
use crate::iod::keys;

/// References to named datatypes that wait for them, at most.
const WAITING_MAX: usize = 1 << 20;
/// Those that are tried again by a commit.
const RETRIED_MAX: usize = 4096;

impl State {
    /// The named datatype of a dataset, or of the attribute `name` of an object.
    pub(super) fn named_type(&self, id: u64, name: Option<&[u8]>) -> Result<Option<u64>> {
        match name {
            Some(name) => match self.bytes(&keys::key(id, keys::ATTRIBUTE, name))? {
                Some(stored) => attribute::named_type(&stored, id),
                None => Ok(None),
            },
            None => self.header(id, kind::DATATYPE)?.map_or(Ok(None), |body| referred(&body, id)),
        }
    }

    /// Named datatypes that an object and its attributes refer to, one for each reference.
    pub(super) fn types_used(&self, id: u64) -> Result<Vec<u64>> {
        let mut all: Vec<u64> = self.named_type(id, None)?.into_iter().collect();
        for key in self.keys(&keys::of_kind(id, keys::ATTRIBUTE))? {
            let named = self.bytes(&key).and_then(|stored| stored.map_or(Ok(None), |stored| attribute::named_type(&stored, id)));
            match named {
                Ok(named) => all.extend(named),
                Err(e @ (Error::Io { .. } | Error::Request { .. })) => return Err(e),
                // Damage must not keep the object.
                Err(e) => tracing::debug!("a named datatype of a deleted object stays: {e}"),
            }
        }
        Ok(all)
    }

    /// A named datatype is used instead of another one.
    pub(super) fn change_use(&mut self, old: Option<u64>, new: Option<u64>) -> Result<()> {
        if old == new {
            return Ok(());
        }
        if let Some(new) = new {
            let full = || Error::refused(libc::EMLINK, "the datatype is used 2^32 times");
            let count = self.link_count(new)?.checked_add(1).ok_or_else(full)?;
            self.set_link_count(new, count)?;
        }
        match old.filter(|old| matches!(self.kind(*old), Ok(Some(ObjectKind::Datatype)))) {
            Some(old) => self.drop_use(old),
            None => Ok(()),
        }
    }

    /// A named datatype is used once less. It is deleted if it has neither names nor users.
    fn drop_use(&mut self, id: u64) -> Result<()> {
        let left = self.link_count(id)?.saturating_sub(1);
        if left > 0 || self.is_held(id) { self.set_link_count(id, left) } else { self.delete_object(id) }
    }
}

impl ObjectAccess {
    /// Makes a dataset or an attribute refer to the named datatype at `path`, now or later.
    pub(super) fn use_type(&self, state: &mut State, id: u64, name: Option<&[u8]>, path: &[u8]) -> Result<()> {
        state.waiting.types.retain(|(object, attribute, _)| *object != id || attribute.as_deref() != name);
        if !self.refer(state, id, name, path)? {
            if state.waiting.types.len() >= WAITING_MAX {
                return Err(Error::refused(libc::EINVAL, "too many objects refer to named datatypes that are not there"));
            }
            state.waiting.types.push((id, name.map(<[u8]>::to_vec), path.to_vec()));
        }
        Ok(())
    }

    /// Makes the reference; false: nothing is at `path`, there is no such attribute, or the bytes
    /// have no type yet.
    fn refer(&self, state: &mut State, id: u64, name: Option<&[u8]>, path: &[u8]) -> Result<bool> {
        let Some(named) = paths::follow(state, 0, path, &mut 0)? else { return Ok(false) };
        let is_type = state.kind(named)? == Some(ObjectKind::Datatype);
        let datatype = if is_type { Some(state.named_datatype(named)?) } else { None };
        let Some(name) = name else {
            let d = self.dataset_of(state, id)?;
            if awaits_datatype(datatype.as_ref(), &d.datatype) {
                return Ok(false);
            }
            refuse_other_datatype(datatype.as_ref(), &d.datatype, path)?;
            if d.named != Some(named) {
                state.change_use(d.named, Some(named))?;
                state.put_header(id, kind::DATATYPE, &TypeOf { datatype: d.datatype.clone(), named: Some(named) }.message()?)?;
                state.changed(id);
            }
            return Ok(true);
        };
        attribute::refer(state, (id, name), named, &mut |own| {
            if awaits_datatype(datatype.as_ref(), own) {
                return Ok(false);
            }
            refuse_other_datatype(datatype.as_ref(), own, path).map(|()| true)
        })
    }

    /// Tries again to refer to named datatypes. `all`: also if they are many.
    pub(super) fn lead_types(&self, state: &mut State, all: bool) {
        if !all && state.waiting.types.len() > RETRIED_MAX {
            return;
        }
        for (id, name, path) in std::mem::take(&mut state.waiting.types) {
            match self.refer(state, id, name.as_deref(), &path) {
                Ok(true) => {}
                Ok(false) => state.waiting.types.push((id, name, path)),
                Err(e) => tracing::warn!("object {id}: a type stays one of its own: {e}"),
            }
        }
    }
}
