//! Texts of `user.h5dir.defined`, `defined2`, ... of the dataset that was listed last.
//!
//! Each takes a pass over all defined elements, so they are made together.

use super::types::Version;
use crate::base::Result;
use crate::base::locks::Mutex;
use crate::connector::{Connector, ObjectId};
use crate::present::DefinedTexts;
use std::sync::Arc;

/// See the module's description.
#[derive(Default)]
pub struct DefinedFacts(Mutex<Option<(ObjectId, Version, Arc<DefinedTexts>)>>);

impl DefinedFacts {
    /// The texts of the dataset `id`. `version`: the state of the container, read before the call.
    pub fn get(&self, connector: &dyn Connector, id: ObjectId, version: Version) -> Result<Arc<DefinedTexts>> {
        let kept = self.0.lock().as_ref().filter(|(of, at, _)| (*of, *at) == (id, version)).map(|(_, _, texts)| texts.clone());
        if let Some(texts) = kept {
            return Ok(texts);
        }
        let texts = Arc::new(DefinedTexts::of(connector, id)?);
        // A dataset without any does not replace one whose texts are read next.
        if !texts.is_empty() {
            *self.0.lock() = Some((id, version, texts.clone()));
        }
        Ok(texts)
    }
}
