//! Whole files as arguments: `h5dir cp -r FILE.h5 iod:FOLDER`, and back.
//!
//! If one side of a recursive copy is a container in an object store, an HDF5 file on the other
//! side is its root group.

use super::super::side::argument::Argument;
use super::super::side::whole::{is_hdf5, is_object, root_of};
use crate::base::remote::is_container;
use std::path::Path;

/// Endings of the names of HDF5 files that are created.
const HDF5_ENDINGS: [&str; 3] = ["h5", "hdf5", "nc"];

fn is_in_container(argument: &Argument) -> bool {
    matches!(argument, Argument::Object { file, .. } if is_container(file))
}

/// True for a container, and for an object of an object store.
fn is_remote(argument: &Argument) -> bool {
    is_in_container(argument) || matches!(argument, Argument::Local(path) if is_object(path))
}

/// True for a name that does not exist, and has the ending of an HDF5 file.
fn is_new_hdf5(path: &Path) -> bool {
    let ending = path.extension().and_then(|e| e.to_str()).unwrap_or_default();
    HDF5_ENDINGS.contains(&ending) && path.symlink_metadata().is_err()
}

/// The arguments with whole files as their root groups. True: the destination is created if it does
/// not exist.
pub(super) fn roots(sources: Vec<Argument>, destination: Argument, recursive: bool) -> (Vec<Argument>, Argument, bool) {
    if !recursive {
        return (sources, destination, false);
    }
    if is_in_container(&destination) {
        let whole = |source: Argument| match &source {
            Argument::Local(path) if is_hdf5(path) || is_object(path) => root_of(path),
            _ => source,
        };
        return (sources.into_iter().map(whole).collect(), destination, true);
    }
    match &destination {
        Argument::Local(path) if sources.iter().all(is_remote) && (is_new_hdf5(path) || is_hdf5(path)) => {
            let whole = |source: Argument| match &source {
                Argument::Local(path) => root_of(path),
                _ => source,
            };
            (sources.into_iter().map(whole).collect(), root_of(path), true)
        }
        _ => (sources, destination, false),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fs::open;

    #[test]
    fn whole_files_are_their_root_groups_beside_containers() {
        let folder = tempfile::tempdir().unwrap();
        let local = |name: &str| Argument::Local(folder.path().join(name));
        let root = |name: &str| root_of(&folder.path().join(name));
        open::create(&folder.path().join("file"), &crate::fs::NewFile::default()).unwrap();
        std::fs::write(folder.path().join("bytes.h5"), b"no signature").unwrap();
        let iod = || root_of(Path::new("iod:x"));
        let of = |sources: Vec<Argument>, destination, recursive| roots(sources, destination, recursive);
        let container = root_of(Path::new("iod:x"));
        assert_eq!(of(vec![local("file")], iod(), true), (vec![root("file")], container.clone(), true));
        assert_eq!(of(vec![local("bytes.h5")], iod(), true), (vec![local("bytes.h5")], container.clone(), true));
        let url = || Argument::Local("s3://bucket/run.h5".into());
        assert_eq!(of(vec![url()], iod(), true), (vec![root_of(Path::new("s3://bucket/run.h5"))], container.clone(), true));
        assert_eq!(of(vec![local("file")], iod(), false), (vec![local("file")], container.clone(), false));
        assert_eq!(of(vec![iod()], local("new.h5"), true), (vec![container.clone()], root("new.h5"), true));
        assert_eq!(of(vec![url()], local("new.h5"), true), (vec![root_of(Path::new("s3://bucket/run.h5"))], root("new.h5"), true));
        assert_eq!(of(vec![iod()], local("new"), true), (vec![container.clone()], local("new"), false));
        assert_eq!(of(vec![iod()], local("file"), true), (vec![container], root("file"), true));
        assert_eq!(of(vec![local("file")], local("new.h5"), true), (vec![local("file")], local("new.h5"), false));
    }
}
