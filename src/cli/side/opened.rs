//! The containers of a command: each file is opened once, after which the command is confined.

use super::container::Container;
use crate::cli::confine::{Tree, confine_copy};
use crate::cli::failure::Failure;
use crate::cli::located::Located;
use crate::cli::logging;
use crate::config::value::Level;
use crate::fs::MountSpec;
use crate::fs::open::locate;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

/// Device and inode number of the file at `path`; `None` if it cannot be found.
fn identity(path: &Path) -> Option<(u64, u64)> {
    std::fs::metadata(path).ok().map(|m| (m.dev(), m.ino()))
}

/// Opens the containers of `specs` and confines the process to them and to `trees`. Specs of one
/// file share a container, which can be changed if one of them is writable.
pub(crate) fn open(specs: Vec<MountSpec>, trees: &[Tree<'_>]) -> Result<Vec<Arc<Container>>, Failure> {
    logging::start_command(Level::Warn, true)?;
    let mut files: Vec<(Option<(u64, u64)>, MountSpec)> = Vec::new();
    let mut places = Vec::new();
    for spec in specs {
        let identity = identity(&spec.file);
        match files.iter_mut().enumerate().find(|(_, (there, _))| identity.is_some() && *there == identity) {
            Some((at, (_, there))) => {
                if spec.writable && !there.writable {
                    *there = spec;
                }
                places.push(at);
            }
            None => {
                places.push(files.len());
                files.push((identity, spec));
            }
        }
    }
    let verb = |spec: &MountSpec| if spec.writable { "change" } else { "read" };
    let (mut located, mut directories) = (Vec::new(), Vec::new());
    for (_, spec) in files {
        let failed = |e| Failure::open(verb(&spec), &e);
        // Containers of a directory are only read.
        let found =
            if spec.writable { Located::Container(locate(&spec).map_err(failed)?) } else { Located::find(&spec).map_err(failed)? };
        directories.extend(found.directories().map_err(failed)?);
        located.push((spec, found));
    }
    confine_copy(&directories, trees);
    let mut containers = Vec::new();
    for (spec, found) in located {
        let operations = found.open(&spec).map_err(|e| Failure::open(verb(&spec), &e))?;
        let domain = u64::MAX.saturating_sub(containers.len() as u64);
        containers.push(Arc::new(Container { operations, domain }));
    }
    Ok(places.into_iter().filter_map(|at| containers.get(at).cloned()).collect())
}
