//! Datasets whose raw data is said to lie where the file had nothing when it was opened: nothing is written or given back there, as
//! it may be others' by now.
//!
//! A dataset is looked at before its first change. From then on what its index leads to was there before, or was allocated since.

use super::super::dataset::Dataset;
use super::lost::is_of_object;
use super::{Change, Editing};
use crate::base::{Address, Error, Result};
use crate::connector::ObjectId;
use crate::dataset::bounds;
use crate::meta::Store;
use std::sync::Arc;

/// The end that the file had when it was opened.
fn limit(store: &Store) -> Address {
    Address(store.superblock().eof.0.saturating_sub(store.base()))
}

impl Editing {
    /// True when the dataset was looked at, and may be written.
    pub(super) fn is_vetted(&self, id: ObjectId, store: &Store) -> bool {
        id.address >= limit(store) || self.vetted.lock().get(&id) == Some(&None)
    }
}

impl Change<'_> {
    /// Refuses a dataset with raw data beyond the end that the file had, or with an index that does not tell.
    pub(super) fn vet(&self, d: &Arc<Dataset>) -> Result<()> {
        let store = self.store()?;
        let limit = limit(&store);
        if self.editing.is_vetted(d.id, &store) {
            return Ok(());
        }
        let known = self.editing.vetted.lock().get(&d.id).cloned();
        let wrong = match known {
            Some(wrong) => wrong,
            None => {
                let detail = || format!("lies beyond {limit}, where the file ended when it was opened");
                let wrong = match bounds::beyond(&d.bytes, &d.layout, self.chunks(d).grid(), limit) {
                    Ok(found) => found.map(|at| Error::corrupt("raw data", at, detail())),
                    // What lies behind the damage of an index is not known.
                    Err(e) if is_of_object(&e) => Some(e),
                    Err(e) => return Err(e),
                };
                self.editing.vetted.lock().insert(d.id, wrong.clone());
                wrong
            }
        };
        wrong.map_or(Ok(()), Err)
    }

    /// The object was made in this session, maybe where another one was.
    pub(super) fn vouch(&self, id: ObjectId) -> Result<()> {
        if id.address < limit(&*self.store()?) {
            self.editing.vetted.lock().insert(id, None);
        }
        Ok(())
    }
}
