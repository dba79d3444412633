//! An object in short, for people.

use super::{AttributeBrief, ElementsBrief, ObjectBrief, ObjectModel};
use crate::base::Result;
use crate::connector::ObjectKind;
use crate::present;

impl ObjectModel {
    /// Kind of the object, by its header.
    pub fn kind(&self) -> Result<ObjectKind> {
        self.read(|object| Ok(object.connector.info(object.id)?.kind))
    }

    /// True if the object is in another file.
    pub fn is_external(&self) -> bool {
        !self.id.is_own()
    }

    /// What the object is. `chars`: most characters of its type and of its fill value. Costs a
    /// constant number of reads, and one for each part of its list of attributes.
    pub fn brief(&self, chars: usize) -> Result<ObjectBrief> {
        self.read(|object| present::object_brief(object.connector, object.id, chars))
    }

    /// The first `limit` attributes, with values of at most `chars` characters.
    pub fn attributes_brief(&self, limit: usize, chars: usize) -> Result<Vec<AttributeBrief>> {
        self.read(|object| present::attributes_brief(object.connector, object.id, limit, chars))
    }

    /// Elements at either end of the dataset; `None`: it has none, or the object is no dataset.
    /// Decodes no chunk of more than 64 MiB.
    pub fn elements_brief(&self) -> Result<Option<ElementsBrief>> {
        self.read(|object| present::elements_brief(object.connector, object.id))
    }

    /// Bytes of storage of the dataset, exact.
    pub fn storage(&self) -> Result<u64> {
        self.read(|object| object.connector.content(object.id, crate::connector::Form::Main)?.allocated_exactly())
    }
}
