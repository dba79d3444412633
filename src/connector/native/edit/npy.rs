//! Making a dataset what the header of a `.npy` file says.

use super::super::npy;
use super::Change;
use super::attributes::Values;
use super::facts::refused;
use super::plan::{Now, plan};
use super::relayout::Elements;
use crate::base::Result;
use crate::connector::edit::NpyHeader;
use crate::connector::{Form, ObjectId};
use crate::dataset::create::dataset_messages;
use crate::dataset::types::parse::DatasetSpec;

impl Change<'_> {
    /// Makes the dataset what `header` says. Nothing but its shape is changed where that says its type; a type that is shown
    /// so but is another (an enumeration, an array) stays.
    pub(super) fn set_npy(&self, id: ObjectId, header: &NpyHeader, emptied: bool) -> Result<()> {
        let d = self.dataset(id)?;
        let wanted = header.notation();
        let mut spec =
            DatasetSpec { dtype: Some(header.datatype().clone()), shape: Some(header.dims().to_vec()), ..DatasetSpec::default() };
        if let Some((descr, dims)) = npy::notation(&d)
            && descr == wanted.0
        {
            let rows = (dims.len() == wanted.1.len()).then(|| dims.first().zip(wanted.1.first())).flatten();
            let grows = rows.is_some_and(|(_, n)| d.space.max().first().is_some_and(|max| max.is_none_or(|max| *n <= max)));
            if dims == wanted.1 {
                spec = DatasetSpec::default();
                if !emptied {
                    return Ok(());
                }
            } else if !emptied && grows && d.chunked().is_some() && dims.get(1..) == wanted.1.get(1..) {
                return self.set_size(id, Form::Main, header.data_len());
            }
        }
        let store = self.store()?;
        let creation = plan(&Now::of(&d)?.emptied(), &spec, &mut Values::new(self, &store))?;
        // What contradicts itself is found before anything is changed.
        dataset_messages(store.ctx(), store.superblock().version, &creation).map_err(refused)?;
        self.relayout(&d, &creation, spec.dtype.is_some(), Elements::Dropped)?;
        self.editing.wishes.lock().remove(&id);
        self.touch(id)
    }
}
