//! Requests for files of the tree and for `.h5dir`, by the kind of the node.

use super::handles::{OpenHandle, What as OpenWhat};
use super::host_io::{allocate, copy_files, read_full, seek, write_to};
use super::mirror_fs::{MirrorFs, errno};
use super::node::{Node, What};
use crate::file::names::Pinned;
use crate::file::read_all;
use crate::fs::embedding::Embedder;
use crate::fs::open::{Directory, Entry as HostEntry};
use crate::fs::types::{
    Attr, Changes, CloseError, Creator, DirEntry, DirEntryPlus, Entry, Errno, FsResult, Handle, Ino, OpenMode, Opened, ROOT, Statfs, Whence,
};
use crate::fs::{Done, Invalidate, KernelMemory, Operations};
use nix::fcntl::OFlag;
use nix::sys::stat::Mode;
use std::ffi::OsStr;
use std::io;
use std::ops::ControlFlow;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

impl MirrorFs {
    /// Creates the file `name` in the directory `parent` of the tree, or opens the one that is
    /// there.
    fn create_in_tree(
        &self,
        parent: &Arc<Node>,
        name: &[u8],
        creator: Creator,
        mode: OpenMode,
        exclusive: bool,
    ) -> FsResult<(Entry, Opened)> {
        let directory = self.changed_directory(parent)?;
        let os = self.new_name(parent, name, false)?;
        let mut flags = if mode.read { OFlag::O_RDWR } else { OFlag::O_WRONLY };
        flags.set(OFlag::O_APPEND, mode.append);
        flags.set(OFlag::O_DSYNC, mode.sync);
        let new = directory.open_file(os, flags | OFlag::O_CREAT | OFlag::O_EXCL, Mode::from_bits_truncate(0o600));
        match new {
            Ok(file) => {
                let pinned = Pinned::of(&file).map_err(|e| errno(&e))?;
                let entry = self.created(parent, &directory, os, &pinned, creator)?;
                let node = self.node(entry.attr.ino)?;
                let now = HostEntry::of(&file).map_err(|e| errno(&e))?;
                Ok((entry, self.opened(&node, OpenWhat::File(file), &now, mode)))
            }
            Err(e) if e.raw_os_error() == Some(libc::EEXIST) && !exclusive => {
                let entry = self.lookup_in_tree(parent, name)?;
                let opened = self.node(entry.attr.ino).and_then(|node| {
                    if mode.truncate {
                        self.set_in_tree(&node, &Changes { size: Some(0), ..Changes::default() })?;
                    }
                    self.open_in_tree(&node, mode)
                });
                opened.map(|opened| (entry, opened)).inspect_err(|_| self.forget_one(entry.attr.ino))
            }
            Err(e) => Err(errno(&e)),
        }
    }

    /// Makes a directory or link in the directory `parent` of the tree by `make`.
    fn make_in_tree(
        &self,
        parent: &Arc<Node>,
        name: &[u8],
        creator: Creator,
        is_link: bool,
        make: impl FnOnce(&Directory, &OsStr) -> io::Result<()>,
    ) -> FsResult<Entry> {
        let directory = self.changed_directory(parent)?;
        let os = self.new_name(parent, name, !is_link)?;
        make(&directory, os).map_err(|e| errno(&e))?;
        let pinned = self.pin_new(&directory, os, is_link)?;
        self.created(parent, &directory, os, &pinned, creator)
    }

    /// Path of the file `node` of the tree for calls that take paths.
    fn xattr<T>(&self, node: &Arc<Node>, f: impl FnOnce(&Path) -> io::Result<T>) -> FsResult<T> {
        let pinned = self.pin(node)?;
        f(&pinned.path()).map_err(|e| errno(&e))
    }

    fn has_xattrs_of_tree(&self, node: &Node) -> bool {
        self.tree.has_host_files() && matches!(node.what, What::Directory | What::File | What::Symlink)
    }

    /// The directory of the tree `ino`, whose names may be changed.
    fn tree_directory(&self, ino: Ino) -> FsResult<Arc<Node>> {
        let node = self.node(ino)?;
        match node.what {
            What::Directory => Ok(node),
            What::Control => Err(Errno(libc::EPERM)),
            _ => Err(Errno(libc::ENOTDIR)),
        }
    }

    /// The node of `ino`, whose attributes may be changed.
    fn changeable(&self, ino: Ino) -> FsResult<Arc<Node>> {
        let node = self.node(ino)?;
        match node.what {
            _ if node.original => Err(Errno(libc::EROFS)),
            What::Control | What::Text(_) | What::Unreadable => Err(Errno(libc::EPERM)),
            _ => Ok(node),
        }
    }

    /// Makes the file or directory `node` of the tree durable.
    fn sync_in_tree(&self, node: &Arc<Node>) -> FsResult<()> {
        crate::base::waiting::may_wait();
        if matches!(node.what, What::Directory) {
            return self.changed_directory(node)?.sync().map_err(|e| errno(&e));
        }
        self.handles.file(node.ino).map_or(Ok(()), |file| file.sync_all().map_err(|e| errno(&e)))
    }
}

impl Operations for MirrorFs {
    fn lookup(&self, parent: Ino, name: &[u8]) -> FsResult<Entry> {
        let parent = self.node(parent)?;
        match &parent.what {
            What::Directory if parent.ino == ROOT && name == super::control::NAME => Ok(self.lookup_control_directory(&parent)),
            What::Directory => self.lookup_in_tree(&parent, name),
            What::Control => self.lookup_control(&parent, name),
            _ => Err(Errno(libc::ENOTDIR)),
        }
    }

    fn forget(&self, ino: Ino, count: u64) {
        Embedder::forget(self, ino, count);
    }

    fn getattr(&self, ino: Ino) -> FsResult<Attr> {
        let node = self.node(ino)?;
        match &node.what {
            What::Control | What::Text(_) => Ok(self.control_attr(&node)),
            what => {
                // A file that is open has attributes after it lost its name.
                let entry = match self.stat_in(&node) {
                    Err(Errno(libc::ESTALE)) => self.entry_of_open(ino).ok_or(Errno(libc::ESTALE))?,
                    found => found?.1,
                };
                Ok(self.attr(ino, what, &entry))
            }
        }
    }

    fn readlink(&self, ino: Ino) -> FsResult<Vec<u8>> {
        let node = self.node(ino)?;
        match &node.what {
            What::Symlink => {
                let (directory, _) = self.stat_in(&node)?;
                let target = directory.read_link(&node.name()).map_err(|e| errno(&e))?;
                Ok(target.as_bytes().to_vec())
            }
            _ => Err(Errno(libc::EINVAL)),
        }
    }

    fn open(&self, ino: Ino, mode: OpenMode) -> FsResult<Opened> {
        let node = self.node(ino)?;
        match &node.what {
            What::Text(text) => self.open_text(&node, *text, mode),
            _ if node.original && mode.write => Err(Errno(libc::EROFS)),
            _ => self.open_in_tree(&node, mode),
        }
    }

    fn read(&self, _ino: Ino, handle: Handle, offset: u64, buf: &mut [u8]) -> FsResult<usize> {
        let open = self.handles.get(handle)?;
        match &open.what {
            OpenWhat::File(file) => read_full(file, buf, offset),
            OpenWhat::Bytes(driver) => read_all(&**driver, buf, offset).map_err(|e| errno(&e)),
            OpenWhat::Text(text) => {
                let rest = usize::try_from(offset).ok().and_then(|at| text.get(at..)).unwrap_or_default();
                let n = rest.len().min(buf.len());
                buf.iter_mut().zip(rest).for_each(|(to, from)| *to = *from);
                Ok(n)
            }
            OpenWhat::Directory(_) | OpenWhat::Inside(_) => Err(Errno(libc::EISDIR)),
        }
    }

    fn has_host_files(&self) -> bool {
        self.tree.has_host_files()
    }

    fn lists_attributes(&self) -> bool {
        self.tree.lists_attributes()
    }

    fn host_file(&self, handle: Handle) -> Option<OwnedFd> {
        match &self.handles.get(handle).ok()?.what {
            OpenWhat::File(file) => Some(file.try_clone().ok()?.into()),
            _ => None,
        }
    }

    fn release(&self, _ino: Ino, handle: Handle) -> Invalidate {
        let Some(open) = self.handles.remove(handle) else { return Invalidate::default() };
        if let OpenWhat::File(file) = &open.what
            && open.mode.write
            && let Ok(entry) = HostEntry::of(file)
        {
            self.containers.signatures.count_writer(entry.status.identity, false);
            // It may be shown as a container now.
            if let Some(parent) = open.node.parent() {
                self.stale_names.lock().push((parent.ino, self.shown_name(&open.node)));
            }
        }
        Invalidate::default()
    }

    fn opendir(&self, ino: Ino) -> FsResult<Handle> {
        self.open_directory(&self.node(ino)?)
    }

    fn readdir(&self, _ino: Ino, handle: Handle, offset: u64, f: &mut dyn FnMut(DirEntry<'_>) -> ControlFlow<()>) -> FsResult<()> {
        let open = self.handles.get(handle)?;
        match &open.node.what {
            What::Control => self.list_control(&open, offset, f),
            _ => self.list_tree(&open, offset, f),
        }
    }

    fn readdirplus(&self, _ino: Ino, handle: Handle, offset: u64, f: &mut dyn FnMut(DirEntryPlus<'_>) -> ControlFlow<()>) -> FsResult<()> {
        let open = self.handles.get(handle)?;
        match &open.node.what {
            What::Control => self.list_control_plus(&open, offset, f),
            _ => self.list_tree_plus(&open, offset, f),
        }
    }

    fn releasedir(&self, _ino: Ino, handle: Handle) {
        self.handles.remove(handle);
    }

    fn getxattr(&self, ino: Ino, name: &[u8]) -> FsResult<Vec<u8>> {
        let node = self.node(ino)?;
        if !self.has_xattrs_of_tree(&node) {
            return Err(Errno(libc::ENODATA));
        }
        self.xattr(&node, |path| xattr::get_deref(path, OsStr::from_bytes(name)))?.ok_or(Errno(libc::ENODATA))
    }

    fn listxattr(&self, ino: Ino) -> FsResult<Vec<u8>> {
        let node = self.node(ino)?;
        if !self.has_xattrs_of_tree(&node) {
            return Ok(Vec::new());
        }
        let names = self.xattr(&node, |path| Ok(xattr::list_deref(path)?.collect::<Vec<_>>()))?;
        let user = names.iter().filter(|name| name.as_bytes().starts_with(b"user."));
        Ok(user.flat_map(|name| [name.as_bytes(), b"\0"].concat()).collect())
    }

    fn lseek(&self, _ino: Ino, handle: Handle, offset: u64, whence: Whence) -> FsResult<u64> {
        let open = self.handles.get(handle)?;
        match &open.what {
            OpenWhat::File(file) => seek(file, offset, whence),
            OpenWhat::Bytes(driver) => seek_in(driver.status().map_err(|e| errno(&e))?.len, offset, whence),
            _ => Err(Errno(libc::EINVAL)),
        }
    }

    fn statfs(&self) -> FsResult<Statfs> {
        let space = self.tree.space().map_err(|e| errno(&e))?;
        Ok(Statfs { free: if self.changing { space.free } else { 0 }, ..space })
    }

    fn look(&self, kernel: &dyn KernelMemory) {
        // The kernel may wait for a request, and the request for the lock.
        let stale = std::mem::take(&mut *self.stale_names.lock());
        for (parent, name) in stale {
            kernel.forget_name(parent, &name);
        }
        self.look_at_files(|ino| kernel.forget_inode(ino));
        self.look_inside(kernel);
    }

    fn is_writable(&self) -> bool {
        self.changing
    }

    fn names_may_change(&self) -> bool {
        true
    }

    fn status(&self) -> String {
        crate::fs::status_text(&self.root_path, &self.counters())
    }

    fn measurements(&self, mountpoint: &Path) -> String {
        crate::fs::measurements(&self.counters(), &crate::fs::label("mountpoint", &mountpoint.to_string_lossy()))
    }

    fn set_cache_bytes(&self, bytes: u64) -> bool {
        self.containers.set_cache_bytes(self.tree.divide_cache(bytes));
        true
    }

    fn write(&self, _ino: Ino, handle: Handle, offset: u64, data: &[u8], mode: OpenMode) -> Done<usize> {
        let write = |open: Arc<OpenHandle>| self.changing_bytes(&open, |file| write_to(&open, file, offset, data, mode));
        self.handles.get(handle).and_then(write).into()
    }

    fn setattr(&self, ino: Ino, changes: &Changes) -> Done<Attr> {
        self.changeable(ino).and_then(|node| self.set_in_tree(&node, changes)).into()
    }

    fn create(&self, parent: Ino, name: &[u8], creator: Creator, mode: OpenMode, exclusive: bool) -> Done<(Entry, Opened)> {
        self.tree_directory(parent).and_then(|parent| self.create_in_tree(&parent, name, creator, mode, exclusive)).into()
    }

    fn mknod(&self, parent: Ino, name: &[u8], creator: Creator) -> Done<Entry> {
        let mode = OpenMode { write: true, ..OpenMode::default() };
        let made = self.tree_directory(parent).and_then(|parent| self.create_in_tree(&parent, name, creator, mode, true));
        made.map(|(entry, opened)| {
            self.release(entry.attr.ino, opened.handle);
            entry
        })
        .into()
    }

    fn mkdir(&self, parent: Ino, name: &[u8], creator: Creator) -> Done<Entry> {
        let make = |d: &Directory, n: &OsStr| d.make_directory(n, Mode::from_bits_truncate(0o700));
        self.tree_directory(parent).and_then(|parent| self.make_in_tree(&parent, name, creator, false, make)).into()
    }

    fn unlink(&self, parent: Ino, name: &[u8]) -> Done<()> {
        self.tree_directory(parent).and_then(|parent| self.remove_in_tree(&parent, name, false)).into()
    }

    fn rmdir(&self, parent: Ino, name: &[u8]) -> Done<()> {
        self.tree_directory(parent).and_then(|parent| self.remove_in_tree(&parent, name, true)).into()
    }

    fn rename(&self, from: (Ino, &[u8]), to: (Ino, &[u8]), flags: u32) -> Done<()> {
        let both = self.tree_directory(from.0).and_then(|source| Ok((source, self.tree_directory(to.0)?)));
        both.and_then(|(source, target)| self.rename_in_tree((&source, from.1), (&target, to.1), flags)).into()
    }

    fn link(&self, ino: Ino, parent: Ino, name: &[u8]) -> Done<Entry> {
        let link = || {
            let (node, parent) = (self.node(ino)?, self.tree_directory(parent)?);
            if matches!(node.what, What::Text(_)) {
                return Err(Errno(libc::EPERM));
            }
            let (directory, pinned) = (self.changed_directory(&parent)?, self.pin(&node)?);
            directory.link(self.new_name(&parent, name, false)?, &pinned).map_err(|e| errno(&e))?;
            let entry = pinned.entry().map_err(|e| errno(&e))?;
            Ok(self.enter_in_tree(&parent, name, &entry, node.what.clone()))
        };
        link().into()
    }

    fn symlink(&self, parent: Ino, name: &[u8], target: &[u8], creator: Creator) -> Done<Entry> {
        let make = |d: &Directory, n: &OsStr| d.make_symlink(n, OsStr::from_bytes(target));
        self.tree_directory(parent).and_then(|parent| self.make_in_tree(&parent, name, creator, true, make)).into()
    }

    fn setxattr(&self, ino: Ino, name: &[u8], value: &[u8], flags: i32) -> Done<()> {
        let set = |path: &Path| {
            let there = flags != 0 && xattr::get_deref(path, OsStr::from_bytes(name))?.is_some();
            match flags {
                libc::XATTR_CREATE if there => Err(io::Error::from_raw_os_error(libc::EEXIST)),
                libc::XATTR_REPLACE if !there => Err(io::Error::from_raw_os_error(libc::ENODATA)),
                _ => xattr::set_deref(path, OsStr::from_bytes(name), value),
            }
        };
        self.changeable(ino).and_then(|node| self.xattr(&node, set)).into()
    }

    fn removexattr(&self, ino: Ino, name: &[u8]) -> Done<()> {
        let remove = |path: &Path| xattr::remove_deref(path, OsStr::from_bytes(name));
        self.changeable(ino).and_then(|node| self.xattr(&node, remove)).into()
    }

    fn fallocate(&self, _ino: Ino, handle: Handle, offset: u64, len: u64, mode: i32) -> Done<()> {
        self.handles.get(handle).and_then(|open| self.changing_bytes(&open, |file| allocate(file, offset, len, mode))).into()
    }

    fn copy_range(&self, from: (Handle, u64), to: (Handle, u64), len: u64) -> Done<u64> {
        let both = self.handles.get(from.0).and_then(|source| Ok((source, self.handles.get(to.0)?)));
        both.and_then(|(source, target)| match (&source.what, &target.what) {
            (OpenWhat::File(a), OpenWhat::File(_)) => self.changing_bytes(&target, |b| copy_files((a, from.1), (b, to.1), len)),
            // The kernel reads and writes.
            _ => Err(Errno(libc::EOPNOTSUPP)),
        })
        .into()
    }

    fn fsync(&self, ino: Ino) -> Done<()> {
        self.node(ino).and_then(|node| self.sync_in_tree(&node)).into()
    }

    fn commit(&self) -> FsResult<()> {
        self.containers.commit()
    }

    fn shutdown(&self) -> Result<(), CloseError> {
        self.containers.shutdown()
    }
}

impl MirrorFs {
    /// Properties of the open file `ino` of the tree.
    fn entry_of_open(&self, ino: Ino) -> Option<HostEntry> {
        HostEntry::of(&self.handles.file(ino)?).ok()
    }
}

/// The next data or hole at or after `offset` of a file of `len` bytes without holes.
fn seek_in(len: u64, offset: u64, whence: Whence) -> FsResult<u64> {
    match whence {
        _ if offset >= len => Err(Errno(libc::ENXIO)),
        Whence::Data => Ok(offset),
        Whence::Hole => Ok(len),
    }
}
