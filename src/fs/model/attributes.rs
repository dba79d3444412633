//! Attributes of an object, by name.

use super::ObjectModel;
use crate::base::escape::escaped_bytes;
use crate::base::{Error, Result};
use crate::present;

impl ObjectModel {
    /// Names of the attributes.
    pub fn attribute_names(&self) -> Result<Vec<Vec<u8>>> {
        self.read(|object| Ok(object.connector.attributes(object.id)?.to_vec()))
    }

    /// The attribute `name` as text. Errors: `ENODATA`, there is none.
    pub fn attribute_text(&self, name: &[u8]) -> Result<Vec<u8>> {
        let text = self.read(|object| present::attribute_text(object.connector, object.id, name))?;
        let absent = || format!("there is no such attribute: {}; without a name, 'h5dir attr get' shows all", escaped_bytes(name));
        text.ok_or_else(|| Error::refused(libc::ENODATA, absent()))
    }

    /// Sets the attribute `name` to what `text` states, as an attribute of the type `datatype`, or
    /// of the type that the text has.
    pub fn set_attribute(&self, name: &[u8], text: &[u8], datatype: Option<&str>) -> Result<()> {
        let width = self.models.mounted.connector.reference_bytes();
        let value = present::attribute_value(text, datatype, width)?;
        self.change(None, |edit| edit.set_attribute(self.id, name, &value))
    }

    /// Removes the attribute `name`. Errors: `ENODATA`, there is none.
    pub fn remove_attribute(&self, name: &[u8]) -> Result<()> {
        self.change(None, |edit| edit.remove_attribute(self.id, name))
    }
}
