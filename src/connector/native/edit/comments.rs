//! Comments of objects: text of the object comment message.

use super::change_parts::ObjectChange;
use super::now;
use crate::base::Result;
use crate::connector::ObjectId;
use crate::connector::edit::check_comment;
use crate::format::message::comment;
use crate::format::object_header::kind;

impl ObjectChange<'_> {
    /// Sets the comment of an object; an empty one removes it.
    pub(super) fn set_comment(&self, id: ObjectId, text: &[u8]) -> Result<()> {
        check_comment(text)?;
        let (store, mut header) = (self.change.store()?, self.change.header(id)?);
        let body = || comment::encode(text);
        match (header.find(kind::COMMENT), text.is_empty()) {
            (None, true) => return Ok(()),
            (Some(at), true) => header.remove(at),
            (Some(at), false) => header.set_body(at, body()),
            (None, false) => drop(header.add(kind::COMMENT, 0, body())),
        }
        header.note_change(now());
        header.write(&store)?;
        self.change.changed(id);
        Ok(())
    }
}
