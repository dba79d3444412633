//! Whole files and directories as sides: their root group.

use super::argument::Argument;
use crate::base::remote::{is_prefix, is_url};
use crate::fs::open::{self, ContainerPlace, Recognized};
use std::path::Path;

/// The root group of the container, file or directory `path`.
pub(crate) fn root_of(path: &Path) -> Argument {
    Argument::Object { file: path.to_owned(), path: b"/".to_vec() }
}

/// True for a local HDF5 file.
pub(crate) fn is_hdf5(path: &Path) -> bool {
    matches!(recognized(path), Some(Recognized::Container))
}

/// What the first bytes of the local file `path` show; `None`: it is no regular file, or cannot be
/// read.
pub(crate) fn recognized(path: &Path) -> Option<Recognized> {
    let found = open::Resolved::file(path).ok()?;
    let entry = found.directory.entry(&found.name).ok()??;
    let place = ContainerPlace { directory: &found.directory, name: &found.name, identity: entry.status.identity };
    entry.is_regular().then(|| open::recognize(&place).ok()).flatten()
}

/// True for an object of an object store.
pub(crate) fn is_object(path: &Path) -> bool {
    is_url(path) && !is_prefix(path)
}
