//! Objects of a container as sources: its view, without a kernel.

use super::{Content, EXACT_VIEW, FACT_MAX, FACT_PREFIX, Meta, SideKind, Source};
use crate::cli::tree;
use crate::fs::model::{ObjectModel, SharedGroup, StoredLink, StoredSource, io_error};
use crate::fs::{Attr, Errno, FileKind, FsResult, Handle, Ino, OpenMode, Operations, Whence};
use std::io;
use std::ops::{ControlFlow, Range};
use std::sync::Arc;

/// Extended attribute with the reason of the last failure.
const REASON_XATTR: &[u8] = b"user.h5dir.error";

/// The error of an operation.
pub(crate) fn error(Errno(errno): Errno) -> io::Error {
    io::Error::from_raw_os_error(errno)
}

/// An open container.
pub(crate) struct Container {
    /// Its file system.
    pub(crate) operations: Arc<dyn Operations>,
    /// Distinguishes the containers of a command, and from local devices.
    pub(crate) domain: u64,
}

impl Container {
    fn meta(&self, attr: &Attr) -> Meta {
        Meta {
            kind: match attr.kind {
                FileKind::Directory => SideKind::Directory,
                FileKind::Regular => SideKind::Regular,
                FileKind::Symlink => SideKind::Symlink,
            },
            perm: attr.perm.into(),
            uid: attr.uid,
            gid: attr.gid,
            size: attr.size,
            links: attr.nlink.into(),
            identity: (self.domain, attr.ino.0),
            atime: attr.atime,
            mtime: attr.mtime,
        }
    }

    /// The error of an operation on `ino`, with its reason where that is known.
    pub(crate) fn failed(&self, ino: Ino) -> impl Fn(Errno) -> io::Error + '_ {
        move |e| {
            let says = matches!(e, Errno(libc::EIO | libc::EINVAL | libc::EFBIG));
            match says.then(|| self.operations.getxattr(ino, REASON_XATTR)) {
                Some(Ok(reason)) => io::Error::new(error(e).kind(), String::from_utf8_lossy(&reason).into_owned()),
                _ => error(e),
            }
        }
    }

    /// Attributes of `ino`.
    pub(crate) fn meta_of(&self, ino: Ino) -> io::Result<Meta> {
        Ok(self.meta(&self.operations.getattr(ino).map_err(self.failed(ino))?))
    }

    /// The object that `held` shows; `None`: it shows none.
    pub(crate) fn model(&self, held: &Held) -> io::Result<Option<ObjectModel>> {
        match self.operations.model(held.ino) {
            Ok(model) => Ok(Some(model)),
            Err(Errno(libc::EOPNOTSUPP)) => Ok(None),
            Err(e) => Err(error(e)),
        }
    }

    /// Names in the directory `ino`, in any order.
    pub(crate) fn names(&self, ino: Ino) -> io::Result<Vec<Vec<u8>>> {
        let handle = self.operations.opendir(ino).map_err(self.failed(ino))?;
        let listed = list(&*self.operations, ino, handle);
        self.operations.releasedir(ino, handle);
        listed.map_err(self.failed(ino))
    }

    /// Attributes of the file `name` of directory `parent`; `None` if there is none.
    pub(crate) fn find(&self, parent: Ino, name: &[u8]) -> io::Result<Option<Meta>> {
        match self.operations.lookup(parent, name) {
            Ok(entry) => {
                self.operations.forget(entry.attr.ino, 1);
                Ok(Some(self.meta(&entry.attr)))
            }
            Err(Errno(libc::ENOENT)) => Ok(None),
            Err(e) => Err(error(e)),
        }
    }
}

/// A reference to an inode of a container, dropped with it.
pub(crate) struct Held {
    container: Arc<Container>,
    ino: Ino,
}

impl Held {
    /// Takes over one lookup reference to `ino`.
    pub(crate) fn new(container: &Arc<Container>, ino: Ino) -> Self {
        Held { container: container.clone(), ino }
    }

    /// The inode number.
    pub(crate) fn ino(&self) -> Ino {
        self.ino
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.container.operations.forget(self.ino, 1);
    }
}

/// A file, directory or link of a view.
pub(crate) struct ObjectSource {
    container: Arc<Container>,
    held: Arc<Held>,
    meta: Meta,
    /// Path of the view.
    path: Vec<u8>,
    /// Directory and name by which it was found; `None`: it is the root, or `..` led to it.
    found: Option<(Arc<Held>, Vec<u8>)>,
}

impl ObjectSource {
    /// The object at `path`; `follow`: a symbolic link at its end is followed.
    pub(crate) fn resolve(container: &Arc<Container>, path: &[u8], follow: bool) -> io::Result<ObjectSource> {
        let tree::Located { attr, found } = tree::locate(&*container.operations, path, follow).map_err(error)?;
        let found = found.map(|(ino, name)| (Arc::new(Held::new(container, ino)), name));
        Ok(Self::new(container, &attr, tree::absolute(path), found))
    }

    /// Takes over one lookup reference to the file of `attr`.
    fn new(container: &Arc<Container>, attr: &Attr, path: Vec<u8>, found: Option<(Arc<Held>, Vec<u8>)>) -> Self {
        let held = Arc::new(Held::new(container, attr.ino));
        ObjectSource { container: container.clone(), held, meta: container.meta(attr), path, found }
    }

    /// Its container.
    pub(crate) fn container(&self) -> &Container {
        &self.container
    }

    /// The reference to its inode.
    #[cfg(test)]
    pub(crate) fn held(&self) -> Arc<Held> {
        self.held.clone()
    }

    /// Path of the view.
    pub(crate) fn path(&self) -> &[u8] {
        &self.path
    }

    /// Identifies the container and the group, if it is one with several hard links.
    pub(crate) fn shared_group(&self) -> io::Result<Option<SharedGroup>> {
        match self.model()? {
            Some(model) => model.shared_group().map_err(|e| io_error(&e)),
            None => Ok(None),
        }
    }

    /// True if it is below `.h5dir`, where files are forms of objects.
    pub(crate) fn is_form(&self) -> bool {
        tree::is_below_control(&self.path)
    }

    /// The object as its container models it; `None`: the file is a form of it, or a part.
    pub(crate) fn model(&self) -> io::Result<Option<ObjectModel>> {
        if self.is_form() { Ok(None) } else { self.container.model(&self.held) }
    }

    /// Its stored chunks, if it is a dataset that has some; `referred`: only if another container
    /// can refer to them. `None`: its elements are copied.
    pub(crate) fn stored_chunks(&self, referred: bool) -> io::Result<Option<StoredSource>> {
        match self.model()? {
            Some(model) => model.stored_chunks(referred).map_err(|e| io_error(&e)),
            None => Ok(None),
        }
    }

    /// The same object in another view: the file `path` of it.
    pub(crate) fn form(&self, path: &[u8]) -> io::Result<ObjectSource> {
        Self::resolve(&self.container, path, true)
    }

    /// The same object in its exact form.
    pub(crate) fn exact(&self) -> io::Result<ObjectSource> {
        self.form(&[EXACT_VIEW, self.path()].concat())
    }
}

impl Source for ObjectSource {
    fn meta(&self) -> &Meta {
        &self.meta
    }

    fn names(&self) -> io::Result<Vec<Vec<u8>>> {
        let mut names = self.container.names(self.held.ino)?;
        names.sort_unstable();
        names.dedup();
        Ok(names)
    }

    fn child(&self, name: &[u8]) -> io::Result<Box<dyn Source>> {
        let entry = self.container.operations.lookup(self.held.ino, name).map_err(error)?;
        let found = Some((self.held.clone(), name.to_vec()));
        Ok(Box::new(Self::new(&self.container, &entry.attr, tree::join(&self.path, name), found)))
    }

    fn target(&self) -> io::Result<Vec<u8>> {
        self.container.operations.readlink(self.held.ino).map_err(error)
    }

    fn open(&self) -> io::Result<Box<dyn Content>> {
        let mode = OpenMode { read: true, ..OpenMode::default() };
        let opened = self.container.operations.open(self.held.ino, mode).map_err(self.container.failed(self.held.ino))?;
        let dataset = self.model().ok().flatten().filter(ObjectModel::has_mapped_bytes);
        Ok(Box::new(ObjectContent { container: self.container.clone(), held: self.held.clone(), handle: opened.handle, dataset }))
    }

    fn xattr_names(&self) -> io::Result<Vec<Vec<u8>>> {
        let names = self.container.operations.listxattr(self.held.ino).map_err(error)?;
        Ok(names.split(|b| *b == 0).filter(|name| !name.is_empty()).map(<[u8]>::to_vec).collect())
    }

    fn xattr(&self, name: &[u8]) -> io::Result<Vec<u8>> {
        match name.strip_prefix(FACT_PREFIX).and_then(|fact| std::str::from_utf8(fact).ok()) {
            Some(fact) => self.container.operations.fact(self.held.ino, fact, FACT_MAX),
            None => self.container.operations.getxattr(self.held.ino, name),
        }
        .map_err(error)
    }

    fn stored_link(&self) -> io::Result<Option<StoredLink>> {
        let Some((directory, name)) = &self.found else { return Ok(None) };
        match self.container.model(directory)? {
            Some(group) => group.stored_link(name).map_err(|e| io_error(&e)),
            None => Ok(None),
        }
    }

    fn as_object(&self) -> Option<&ObjectSource> {
        Some(self)
    }
}

fn list(operations: &dyn Operations, ino: Ino, handle: Handle) -> FsResult<Vec<Vec<u8>>> {
    let mut names = Vec::new();
    operations.readdir(ino, handle, 0, &mut |entry| {
        if entry.name != b"." && entry.name != b".." {
            names.push(entry.name.to_vec());
        }
        ControlFlow::Continue(())
    })?;
    Ok(names)
}

/// An open file of a view.
pub(crate) struct ObjectContent {
    container: Arc<Container>,
    held: Arc<Held>,
    /// Its handle.
    pub(crate) handle: Handle,
    /// The dataset whose elements are its bytes one by one.
    dataset: Option<ObjectModel>,
}

impl ObjectContent {
    /// True if it is of this container.
    pub(crate) fn is_of(&self, container: &Container) -> bool {
        self.container.domain == container.domain
    }
}

impl Drop for ObjectContent {
    fn drop(&mut self) {
        drop(self.container.operations.release(self.held.ino, self.handle));
    }
}

impl Content for ObjectContent {
    fn read(&mut self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        self.container.operations.read(self.held.ino, self.handle, offset, buf).map_err(self.container.failed(self.held.ino))
    }

    fn data(&mut self, offset: u64) -> io::Result<Option<Range<u64>>> {
        self.data_from(offset)
    }

    fn written(&mut self, offset: u64) -> io::Result<Option<Range<u64>>> {
        match &self.dataset {
            Some(model) => model.written(offset).map_err(|e| io_error(&e)),
            None => self.data_from(offset),
        }
    }

    /// Also of a text that was made at open, whose file shows a size of 0.
    fn size(&self) -> io::Result<u64> {
        let mut size = self.container.meta_of(self.held.ino)?.size;
        if size == 0 {
            while let Some(range) = self.data_from(size)?.filter(|range| range.end < u64::MAX) {
                size = range.end;
            }
        }
        Ok(size)
    }

    fn as_object(&self) -> Option<&ObjectContent> {
        Some(self)
    }
}

impl ObjectContent {
    fn data_from(&self, offset: u64) -> io::Result<Option<Range<u64>>> {
        let seek = |at, whence| self.container.operations.lseek(self.held.ino, self.handle, at, whence);
        let start = match seek(offset, Whence::Data) {
            Ok(start) => start,
            Err(Errno(libc::ENXIO)) => return Ok(None),
            // A text whose end is not known.
            Err(Errno(libc::EINVAL)) => return Ok(Some(offset..u64::MAX)),
            Err(e) => return Err(error(e)),
        };
        let end = match seek(start, Whence::Hole) {
            Ok(end) => end,
            Err(Errno(libc::ENXIO)) => return Ok(None),
            Err(e) => return Err(error(e)),
        };
        Ok((start < end).then_some(start..end))
    }
}
