//! Registry of the kinds of containers.

use super::iod::kind::IodContainer;
use super::native::kind::Hdf5File;
use super::native::remote::RemoteHdf5File;
use super::open::ContainerKind;
use std::path::Path;

/// The first that claims a target opens it.
const KINDS: [&dyn ContainerKind; 3] = [&IodContainer, &RemoteHdf5File, DEFAULT];

/// Checks descriptions of datasets where no container is open, and opens what no kind claims.
pub const DEFAULT: &dyn ContainerKind = &Hdf5File;

/// The kind of the container at `target`, which need not exist yet.
pub fn of(target: &Path) -> &'static dyn ContainerKind {
    KINDS.into_iter().find(|kind| kind.claims(target)).unwrap_or(DEFAULT)
}
