//! What an argument names, located before the command is confined: a container, or a directory.

use crate::config::resolve;
use crate::fs::open::{self, LocatedContainer, UsedDirectory};
use crate::fs::{MountSpec, OpenError, Operations};
use crate::mirror::{self, LocatedMirror};
use std::sync::Arc;

/// A container, or a directory or prefix whose containers are shown as directories.
pub(crate) enum Located {
    /// A container.
    Container(LocatedContainer),
    /// A directory of the host, or a prefix of objects.
    Mirror(LocatedMirror),
}

impl Located {
    /// Resolves the paths of `spec` and opens what is there. Nothing is resolved again afterwards.
    pub(crate) fn find(spec: &MountSpec) -> Result<Located, OpenError> {
        Ok(match resolve::listed_mirror(spec) {
            Some(mirror) => Located::Mirror(mirror::locate(&mirror)?),
            None => Located::Container(open::locate(spec)?),
        })
    }

    /// All directories that it uses.
    pub(crate) fn directories(&self) -> Result<Vec<UsedDirectory>, OpenError> {
        match self {
            Located::Container(located) => located.directories(),
            Located::Mirror(located) => located.directories(),
        }
    }

    /// Builds its file system. Starts threads.
    pub(crate) fn open(self, spec: &MountSpec) -> Result<Arc<dyn Operations>, OpenError> {
        match self {
            Located::Container(located) => open::open_located(spec, located),
            Located::Mirror(located) => mirror::open(located),
        }
    }
}
