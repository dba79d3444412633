//! Rejects changes of datasets whose raw data lies past the EOF at open.
//!
//! Such data comes from a damaged file, and its space may have been allocated to another object
//! since. A dataset is checked before its first change. Later its index refers only to data that
//! was checked, or allocated since.

use super::super::dataset::Dataset;
use super::Editing;
use super::change_parts::{DataChange, ObjectChange};
use super::errors::is_of_object;
use crate::base::{Address, Error, Result};
use crate::connector::ObjectId;
use crate::meta::Store;
use std::sync::Arc;

/// The EOF of the file at open.
fn eof_at_open(store: &Store) -> Address {
    Address(store.superblock().eof.0.saturating_sub(store.base()))
}

impl Editing {
    /// True if the dataset was checked and may be changed.
    pub(super) fn has_checked_bounds(&self, id: ObjectId, store: &Store) -> bool {
        id.address >= eof_at_open(store) || self.objects.usage(id).has_sound_bounds
    }
}

impl DataChange<'_> {
    /// Errors: raw data of the dataset lies past the EOF at open, or its index is damaged.
    pub(super) fn check_bounds(&self, d: &Arc<Dataset>) -> Result<()> {
        let store = self.change.store()?;
        let limit = eof_at_open(&store);
        if self.change.editing.has_checked_bounds(d.id, &store) {
            return Ok(());
        }
        let objects = &self.change.editing.objects;
        let known = objects.pending(d.id, |p| p.bounds_error.clone()).flatten();
        let wrong = match known {
            Some(error) => Some(error),
            None => {
                let detail = || format!("lies past {limit}, the EOF when the file was opened");
                let wrong = match d.layout().past(&self.change.operation(d, &d.space), limit) {
                    Ok(found) => found.map(|at| Error::corrupt("raw data", at, detail())),
                    // Chunks behind a damaged part of an index are unknown.
                    Err(e) if is_of_object(&e) => Some(e),
                    Err(e) => return Err(e),
                };
                match &wrong {
                    None => objects.use_object(d.id, |usage| usage.has_sound_bounds = true),
                    Some(error) => objects.change_pending(d.id, |p| p.bounds_error = Some(error.clone())),
                }
                wrong
            }
        };
        wrong.map_or(Ok(()), Err)
    }
}

impl ObjectChange<'_> {
    /// Records that the object was created by this mount, perhaps at the address of a deleted one.
    pub(super) fn mark_created(&self, id: ObjectId) -> Result<()> {
        if id.address < eof_at_open(&*self.change.store()?) {
            self.change.editing.objects.use_object(id, |usage| usage.has_sound_bounds = true);
        }
        Ok(())
    }
}
