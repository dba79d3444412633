//! HDF5 files whose bytes chunks refer to (`cp --link`).

use super::access::IodConnector;
use super::original_sources::{OriginalSources, refused};
use crate::base::Result;
use crate::connector::stored::Original;
use std::sync::Arc;

impl IodConnector {
    /// Sets the files that chunks may refer to.
    pub(super) fn set_original_sources(&self, sources: Arc<dyn OriginalSources>) {
        self.container.set_original_files(sources.clone());
        let _ = self.original_sources.set(sources);
    }

    /// Number of an original, which the container refers to from now on. Errors: `EXDEV` if it
    /// cannot.
    pub(super) fn original(&self, original: &Original) -> Result<u64> {
        let mut known = self.originals.lock();
        if let Some((_, number)) = known.iter().find(|(there, _)| there == original) {
            return Ok(*number);
        }
        let none = || refused("the container refers to no other files (--external=off)".into());
        let name = self.original_sources.get().ok_or_else(none)?.name_of(original)?;
        let number = self.operate(|state| state.new_id())?;
        self.container.create_original(number, &name)?;
        known.push((original.clone(), number));
        Ok(number)
    }
}
