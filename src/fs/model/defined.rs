//! Which elements of a dataset were written.

use super::ObjectModel;
use crate::base::element_set::ElementSet;
use crate::base::{Error, Result};
use crate::present;

/// The defined elements of a selection.
#[derive(Debug)]
pub struct DefinedElements {
    /// Dimensions of the dataset; none of one that has no coordinates.
    pub dims: Vec<u64>,
    /// How many they are.
    pub count: u64,
    /// Which they are; empty without dimensions.
    pub set: ElementSet,
}

impl ObjectModel {
    fn check_elements(&self) -> Result<()> {
        match self.is_dataset() {
            true => Ok(()),
            false => Err(Error::refused(libc::EISDIR, "it is no dataset: it has no elements")),
        }
    }

    /// The defined elements in `selection` (empty: all). A dataset that does not know them has all.
    pub fn defined(&self, selection: &str) -> Result<DefinedElements> {
        self.check_elements()?;
        self.read(|object| {
            let shape = object.connector.dataset(object.id)?.shape;
            if selection.trim().is_empty() && shape.dims().is_none_or(<[u64]>::is_empty) {
                return Ok(DefinedElements { dims: Vec::new(), count: shape.count().unwrap_or(0), set: ElementSet::default() });
            }
            let (set, dims) = present::defined(object.connector, object.id, selection)?;
            Ok(DefinedElements { dims, count: set.elements(), set })
        })
    }

    /// The same as JSON of at most `limit` bytes. Errors: `EFBIG`, it has more.
    pub fn defined_json(&self, selection: &str, limit: u64) -> Result<Vec<u8>> {
        self.check_elements()?;
        self.read(|object| present::defined_json(object.connector, object.id, selection, limit))
    }

    /// Makes the elements of `selection` undefined.
    pub fn erase(&self, selection: &str) -> Result<()> {
        self.check_elements()?;
        let connector = &*self.models.mounted.connector;
        self.change(None, |edit| present::erase(connector, edit, self.id, selection))
    }
}
