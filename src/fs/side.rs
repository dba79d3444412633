//! Writing below `.h5dir`: which of its files take what is written to them, and what becomes of it when they are closed.
//!
//! Attributes (`attribute_files`) and `.npy` files (`npy_write`) are something else while they are written than what they
//! become: each has a state as long as files are open on it for writing. Files of `exact` have none.

use super::attribute_files::Attributes;
use super::container::ContainerFs;
use super::file::OpenFile;
use super::nodes::{Node, NodeKind, View};
use super::npy_write::Writings;
use super::types::{Entry, Errno, Ino, OpenMode};
use super::{FsResult, name};
use crate::connector::ObjectId;

/// Files that are being written.
#[derive(Default)]
pub struct Side {
    /// Attributes.
    pub(super) attributes: Attributes,
    /// Datasets with a header before them.
    pub(super) npy: Writings,
}

/// A file with a state of its own while it is written.
pub(super) enum SideFile {
    /// An attribute, by its name.
    Attribute(ObjectId, Vec<u8>),
    /// A dataset in the npy view.
    Npy(ObjectId),
}

impl ContainerFs {
    /// Closes a file that nobody has any more.
    pub(super) fn release_file(&self, file: &OpenFile) {
        // A new file without a header goes.
        if file.owner.as_ref().is_some_and(|o| o.writes && self.is_fresh(&o.node)) {
            let _alone = self.names.write();
            return self.close_file(file);
        }
        let _steady = self.steady();
        self.close_file(file);
    }

    /// What `node` is beside the main tree, if it can be written.
    pub(super) fn side_file(&self, node: &Node) -> Option<SideFile> {
        match &node.kind {
            _ if !self.changing => None,
            NodeKind::AttrFile(id, _) if id.file == 0 => Some(SideFile::Attribute(*id, attribute_name(node))),
            NodeKind::Dataset(View::Npy, id) if id.file == 0 => Some(SideFile::Npy(*id)),
            _ => None,
        }
    }

    /// One file more is open on `node` for writing.
    pub(super) fn side_open(&self, node: &Node) -> FsResult<()> {
        match self.side_file(node) {
            Some(SideFile::Attribute(id, name)) => self.attribute_open(id, name),
            Some(SideFile::Npy(id)) => self.npy_open(id, node)?,
            None => {}
        }
        Ok(())
    }

    /// Length of what is being written; `None` if nothing is.
    pub(super) fn side_len(&self, node: &Node) -> Option<u64> {
        match self.side_file(node)? {
            SideFile::Attribute(id, name) => self.attribute_len(id, name),
            SideFile::Npy(id) => self.npy_len(id),
        }
    }

    /// Reads what is being written; `None` if nothing is.
    pub(super) fn side_read(&self, file: &OpenFile, offset: u64, buf: &mut [u8]) -> Option<FsResult<usize>> {
        match self.side_file(&file.owner.as_ref()?.node)? {
            SideFile::Attribute(id, name) => self.attribute_read(id, name, offset, buf).map(Ok),
            SideFile::Npy(id) => self.npy_read(id, offset, buf),
        }
    }

    /// Takes what is written, if the file is one of those.
    pub(super) fn side_write(&self, file: &OpenFile, offset: u64, data: &[u8], append: bool) -> Option<FsResult<usize>> {
        let owner = file.owner.as_ref()?;
        let side = self.side_file(&owner.node)?;
        let offset = if append { self.side_len(&owner.node).unwrap_or(offset) } else { offset };
        let gone = owner.node.is_gone();
        Some(match side {
            // Nobody sees what is written to an attribute that was removed.
            SideFile::Attribute(..) if gone => Ok(data.len()),
            SideFile::Attribute(id, name) => {
                if owner.node.opens() > 1 {
                    self.elsewhere.lock().push(owner.node.ino);
                }
                self.attribute_write(id, name, offset, data)
            }
            SideFile::Npy(id) => self.npy_write(id, offset, data),
        })
    }

    /// Sets the size, if the file is one of those.
    pub(super) fn side_resize(&self, node: &Node, size: u64) -> Option<FsResult<()>> {
        match self.side_file(node)? {
            SideFile::Attribute(..) if node.is_gone() => Some(Ok(())),
            SideFile::Attribute(id, name) => Some(self.attribute_resize(id, name, size)),
            SideFile::Npy(id) => Some(self.npy_resize(id, size)),
        }
    }

    /// A descriptor is closed, or the file synced: what was written becomes what it is to be.
    pub(super) fn side_finish(&self, node: &Node) -> FsResult<()> {
        match self.side_file(node) {
            Some(SideFile::Attribute(id, name)) if !node.is_gone() => self.attribute_finish(id, name),
            Some(SideFile::Npy(id)) => self.npy_finish(id),
            _ => Ok(()),
        }
    }

    /// One file less is open on `node` for writing.
    pub(super) fn side_close(&self, node: &Node) {
        match self.side_file(node) {
            Some(SideFile::Attribute(id, name)) => self.attribute_close(id, name, node.is_gone()),
            Some(SideFile::Npy(id)) => self.npy_close(id),
            None => {}
        }
    }

    /// Makes the file `name` of a directory below `.h5dir`, unless it is there; `None`: the directory is another one.
    pub(super) fn side_create(&self, parent: Ino, name: &[u8], mode: OpenMode, exclusive: bool) -> Option<FsResult<Entry>> {
        let dir = self.directory(parent).ok()?;
        let id = match &dir.kind {
            NodeKind::Group(View::Attrs | View::Npy, id) | NodeKind::AttrDir(id) if id.file == 0 => *id,
            _ => return None,
        };
        let there = match self.tree().lookup(&dir, name) {
            Err(e) => return Some(Err(self.failed(Some(id), &e))),
            Ok(there) => there,
        };
        Some(match (there, &dir.kind) {
            _ if name.len() > name::NAME_MAX => Err(Errno(libc::ENAMETOOLONG)),
            (Some(_), _) if exclusive => Err(Errno(libc::EEXIST)),
            (Some(_), _) => self.entry_in(&dir, name),
            // Nobody would write its header.
            (None, NodeKind::Group(View::Npy, _)) if !mode.write => Err(Errno(libc::EINVAL)),
            (None, NodeKind::Group(View::Npy, _)) => self.npy_create(&dir, id, name),
            (None, _) => self.attribute_create(&dir, id, name),
        })
    }

    /// Takes the name `name` away; `None`: the directory is another one.
    pub(super) fn side_remove(&self, parent: Ino, name: &[u8], directory: bool) -> Option<FsResult<()>> {
        let dir = self.directory(parent).ok()?;
        let group = match &dir.kind {
            NodeKind::Group(View::Attrs | View::Npy, id) | NodeKind::AttrDir(id) if id.file == 0 => *id,
            _ => return None,
        };
        let child = match self.tree().lookup(&dir, name) {
            Err(e) => return Some(Err(self.failed(Some(group), &e))),
            Ok(None) => return Some(Err(Errno(libc::ENOENT))),
            Ok(Some(child)) => child,
        };
        Some(match &child.kind {
            // Directories and links are those of the main tree.
            kind if kind.is_directory() && !directory => Err(Errno(libc::EISDIR)),
            _ if directory => Err(Errno(if child.kind.is_directory() { libc::EPERM } else { libc::ENOTDIR })),
            NodeKind::AttrFile(..) => self.attribute_remove(&dir, child),
            NodeKind::Dataset(View::Npy, _) => self.npy_remove(group, name, &child),
            _ => Err(Errno(libc::EPERM)),
        })
    }
}

/// The attribute that `node` shows, wherever it has been moved.
pub(super) fn attribute_name(node: &Node) -> Vec<u8> {
    let place = node.place();
    place.link_name.unwrap_or(place.name).into_vec()
}
