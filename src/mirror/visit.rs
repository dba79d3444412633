//! Visits the containers of a tree of files one after another, each by itself.

use super::containers::external_of;
use super::files::{Folder, Name};
use super::mirror_fs::LocatedMirror;
use crate::fs::MountSpec;
use crate::fs::open::{LocatedContainer, OpenError, Recognized};
use std::ffi::OsStr;
use std::io;
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// Directories within each other that are visited.
const DEPTH_MAX: usize = 1024;

/// What [`visit_containers`] calls: how a container is opened, and the container.
pub type ContainerVisitor<'a> = dyn FnMut(&MountSpec, Result<LocatedContainer, OpenError>) -> ControlFlow<()> + 'a;

/// Calls `f` with each container of the tree that is shown, sorted by name, until it breaks. Errors
/// in the tree are passed to `f`; symbolic links are not followed.
pub fn visit_containers(located: LocatedMirror, f: &mut ContainerVisitor<'_>) -> Result<(), OpenError> {
    let (spec, tree) = located.into_parts();
    tree.check()?;
    let root = tree.path().map_err(|e| spec.failed(e))?;
    let external = external_of(&spec.container, &root);
    let container = MountSpec { external, ..spec.container.clone() };
    // Paths of directories, the next one last.
    let mut pending: Vec<Vec<Vec<u8>>> = vec![Vec::new()];
    while let Some(path) = pending.pop() {
        let shown = |name: &OsStr| -> PathBuf {
            let below: PathBuf = path.iter().map(|name| OsStr::from_bytes(name)).collect();
            spec.root.join(below).join(name)
        };
        let failed = |name: &OsStr, source: io::Error| {
            let spec = MountSpec { file: shown(name), ..container.clone() };
            let error = OpenError::Open { path: spec.file.clone(), source };
            (spec, error)
        };
        let listed = tree.folder(&path).and_then(|(folder, _)| folder.list().map(|names| (folder, names)));
        let (folder, mut names) = match listed {
            Ok(listed) => listed,
            Err(e) => {
                let (spec, error) = failed(OsStr::new(""), e);
                if f(&spec, Err(error)).is_break() {
                    return Ok(());
                }
                continue;
            }
        };
        names.sort_by(|a, b| a.name.cmp(&b.name));
        let mut below = Vec::new();
        for name in &names {
            let found = match look(&*folder, name) {
                Ok(found) => found,
                Err(e) => {
                    let (spec, error) = failed(&name.name, e);
                    if f(&spec, Err(error)).is_break() {
                        return Ok(());
                    }
                    continue;
                }
            };
            let bytes = name.name.as_bytes();
            match found {
                Found::Folder if path.len() < DEPTH_MAX && !spec.hides(&path, bytes, true) => {
                    below.push(path.iter().cloned().chain([bytes.to_vec()]).collect());
                }
                Found::Container(identity) if !spec.hides(&path, bytes, false) => {
                    let one = MountSpec { file: shown(&name.name), ..container.clone() };
                    if f(&one, folder.locate(&name.name, identity, &one)).is_break() {
                        return Ok(());
                    }
                }
                _ => {}
            }
        }
        pending.extend(below.into_iter().rev());
    }
    Ok(())
}

enum Found {
    Folder,
    /// A file that is a container, or a damaged one.
    Container(crate::fs::open::Identity),
    Other,
}

fn look(folder: &dyn Folder, name: &Name) -> io::Result<Found> {
    let entry = match name.entry {
        Some(entry) => entry,
        None => match folder.entry(&name.name)? {
            Some(entry) => entry,
            // It was removed meanwhile.
            None => return Ok(Found::Other),
        },
    };
    if entry.is_directory() {
        return Ok(Found::Folder);
    }
    // The first bytes of objects that have another ending are not fetched.
    if !entry.is_regular() || folder.guess(&name.name) == Some(Recognized::Other) {
        return Ok(Found::Other);
    }
    Ok(match folder.recognize(&name.name, &entry)? {
        Recognized::Container | Recognized::Damaged => Found::Container(entry.status.identity),
        Recognized::Other => Found::Other,
    })
}
