//! A directory of the destination that does not exist, of a copy that changes nothing.

use super::sink::{Finished, NewFile, NewLink, SinkDirectory, SinkFile};
use crate::cli::side::Meta;
use std::io;
use std::rc::Rc;

/// See the module's description.
pub(super) struct AbsentDirectory {
    /// It would be a local directory.
    pub(super) is_local: bool,
}

fn absent<T>() -> io::Result<T> {
    Err(io::Error::from_raw_os_error(libc::ENOENT))
}

impl SinkDirectory for AbsentDirectory {
    fn identity(&self) -> io::Result<(u64, u64)> {
        // No source has it: devices and containers are numbered otherwise.
        Ok((0, 0))
    }

    fn local_path(&self) -> Option<&[Vec<u8>]> {
        self.is_local.then_some(&[])
    }

    fn find(&self, _name: &[u8]) -> io::Result<Option<Meta>> {
        Ok(None)
    }

    fn enter(&self, _name: &[u8]) -> io::Result<Rc<dyn SinkDirectory>> {
        absent()
    }

    fn make_directory(&self, _name: &[u8], _meta: &Meta) -> io::Result<Rc<dyn SinkDirectory>> {
        absent()
    }

    fn make_file(&self, _new: &NewFile<'_>) -> io::Result<Box<dyn SinkFile>> {
        absent()
    }

    fn make_link(&self, _name: &[u8], _link: &NewLink, _meta: &Meta, _owner: bool, _exists: bool) -> io::Result<()> {
        absent()
    }

    fn link(&self, _name: &[u8], _file: &Finished, _exists: bool) -> io::Result<()> {
        absent()
    }

    fn set_xattr(&self, _name: &[u8], _value: &[u8]) -> io::Result<()> {
        absent()
    }

    fn set_meta(&self, _meta: &Meta, _owner: bool) -> io::Result<()> {
        absent()
    }
}
