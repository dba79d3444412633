//! Where the chunks of a group are in its file, as references of fsspec.

use super::ObjectModel;
use crate::base::{Error, Result};
use crate::fs::views::name_of_node;
use crate::present;
pub use crate::present::LeftOut;

impl ObjectModel {
    /// Passes the references of the group to `f` in pieces, and what they lack to `left_out`.
    /// `url`: what the file is called; else its absolute path or its URL. Errors: `ENOTDIR`, it is
    /// no group; `EINVAL`, its bytes are not in one file.
    pub fn kerchunk(&self, url: Option<&[u8]>, f: &mut dyn FnMut(&[u8]) -> Result<()>, left_out: &mut dyn FnMut(&LeftOut)) -> Result<()> {
        let connector = self.models.mounted.connector.clone();
        let in_files = || Error::refused(libc::EINVAL, "its bytes are not in one file that others read");
        let location = connector.location().ok_or_else(in_files)?;
        if connector.info(self.id)?.kind != crate::connector::ObjectKind::Group {
            return Err(Error::refused(libc::ENOTDIR, "it is no group; give the group that it is in"));
        }
        let mut references = present::References::new(connector, self.id, url.map_or(location, <[u8]>::to_vec), name_of_node);
        while let Some(piece) = references.next_piece()? {
            f(&piece)?;
            references.left_out.drain(..).for_each(|left| left_out(&left));
        }
        Ok(())
    }
}
