//! Which elements of a dataset were written.

use super::ObjectModel;
use crate::base::element_set::ElementSet;
use crate::base::selected::Selected;
use crate::base::{Error, Result};
use crate::present;
pub use crate::present::{Input, InputForm, PointFiles, SelectionText, WriteProgress, point_files};

/// The defined elements of a selection.
#[derive(Debug)]
pub struct DefinedElements {
    /// How many they are.
    pub count: u64,
    /// Which they are; `None` of a dataset that has no coordinates.
    elements: Option<Selected>,
}

impl DefinedElements {
    /// Dimensions of the dataset; none of one that has no coordinates.
    pub fn dims(&self) -> &[u64] {
        self.elements.as_ref().map_or(&[], Selected::dims)
    }

    /// Which they are; empty without dimensions. Errors: `EFBIG`, they are too many blocks.
    pub fn set(&self) -> Result<ElementSet> {
        self.elements.as_ref().map_or_else(|| Ok(ElementSet::default()), Selected::to_set)
    }
}

impl ObjectModel {
    /// Errors: `EISDIR`, it is no dataset.
    pub(super) fn check_elements(&self) -> Result<()> {
        match self.is_dataset() {
            true => Ok(()),
            false => Err(Error::refused(libc::EISDIR, "it is no dataset: it has no elements")),
        }
    }

    /// The defined elements in `selection` (empty: all). A dataset that does not know them has all.
    pub fn defined(&self, selection: SelectionText<'_>) -> Result<DefinedElements> {
        self.check_elements()?;
        self.read(|object| {
            let shape = object.connector.dataset(object.id)?.shape;
            if selection.is_empty() && shape.dims().is_none_or(<[u64]>::is_empty) {
                return Ok(DefinedElements { count: shape.count().unwrap_or(0), elements: None });
            }
            let elements = present::defined(object.connector, object.id, selection)?;
            Ok(DefinedElements { count: elements.len(), elements: Some(elements) })
        })
    }

    /// The same as JSON of at most `limit` bytes. Errors: `EFBIG`, it has more.
    pub fn defined_json(&self, selection: SelectionText<'_>, limit: u64) -> Result<Vec<u8>> {
        self.check_elements()?;
        self.read(|object| present::defined_json(object.connector, object.id, selection, limit))
    }

    /// Makes the elements of `selection` undefined.
    pub fn erase(&self, selection: SelectionText<'_>) -> Result<()> {
        self.check_elements()?;
        let connector = &*self.models.mounted.connector;
        self.change(None, |edit| present::erase(connector, edit, self.id, selection))
    }
    /// Writes `input` to the elements in `selection` (empty: all), in its order. Calls `progress`
    /// with the bytes that were written. Errors: `EINVAL`, the input has not as many elements.
    pub fn write(&self, selection: SelectionText<'_>, input: &mut Input<'_>, progress: &mut dyn FnMut(u64) -> Result<()>) -> Result<()> {
        self.check_elements()?;
        let connector = &*self.models.mounted.connector;
        let size = self.models.changes.size(self.id);
        self.change(size, |edit| present::write_selected(connector, edit, self.id, selection, input, progress))
    }

    /// Appends `input` along the dimension `axis` (negative: from the last one). Returns the
    /// coordinates that came; see [`present::append`].
    pub fn append(&self, axis: i64, input: &mut Input<'_>, progress: &mut dyn FnMut(u64) -> Result<()>) -> Result<u64> {
        self.check_elements()?;
        let connector = &*self.models.mounted.connector;
        let size = self.models.changes.size(self.id);
        self.change(size, |edit| present::append(connector, edit, self.id, axis, input, progress))
    }

    /// Passes the bytes of the elements in `selection` to `f`, in its order. Errors: `EOPNOTSUPP`,
    /// they are of variable length.
    pub(super) fn print_raw(&self, selection: SelectionText<'_>, f: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
        self.check_elements()?;
        let connector = &*self.models.mounted.connector;
        let dataset = connector.dataset(self.id)?;
        if dataset.datatype.contains_vlen() {
            return Err(Error::refused(libc::EOPNOTSUPP, "elements of variable length have no bytes of their own; omit --raw"));
        }
        let elements = selection.select(dataset.shape.dims().unwrap_or(&[0]))?;
        present::selected_values(connector, self.id, &elements, f)
    }
}
