//! Requests, sent to the container or to a tree.

use super::numbers::{is_root, root_of};
use super::routes::Route;
use super::trees_fs::TreesFs;
use crate::fs::model::ObjectModel;
use crate::fs::operations::KernelMemory;
use crate::fs::types::{
    Attr, Changes, CloseError, Creator, DirEntry, DirEntryPlus, Entry, Errno, FsResult, Handle, Ino, OpenMode, Opened, Statfs, Whence,
};
use crate::fs::views::TREE;
use crate::fs::{Caller, Done, FileKind, Invalidate, Operations, Sight};
use std::ops::ControlFlow;
use std::path::Path;
use std::time::Duration;

/// Time between looks for trees that are over.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

impl TreesFs {
    /// Sends a change of `ino`, whose answer names no file.
    fn change<T>(&self, ino: Ino, change: impl FnOnce(&Route<'_>) -> Done<T>) -> Done<T> {
        self.change_to(ino, change, |_, answer| answer)
    }

    /// Sends a change of `ino`; `answer` gives the answer the numbers of the kernel.
    fn change_to<T, U>(&self, ino: Ino, change: impl FnOnce(&Route<'_>) -> Done<T>, answer: impl FnOnce(&Route<'_>, T) -> U) -> Done<U> {
        Done::by(|| {
            let at = self.at(ino)?;
            let done = change(&at);
            Ok(at.done(done, |done| answer(&at, done)))
        })
    }

    /// Sends a change through the open file `handle`.
    fn change_open<T>(&self, ino: Ino, handle: Handle, change: impl FnOnce(&Route<'_>, Handle) -> Done<T>) -> Done<T> {
        Done::by(|| {
            let (at, handle) = self.at_handle(ino, handle)?;
            Ok(at.done(change(&at, handle), |answer| answer))
        })
    }

    /// Lists a directory of the container with attributes: trees have numbers of their own.
    fn list_main(
        &self,
        (at, ino, handle): (&Route<'_>, Ino, Handle),
        offset: u64,
        f: &mut dyn FnMut(DirEntryPlus<'_>) -> ControlFlow<()>,
    ) -> FsResult<()> {
        // The container counts a look-up of the directories that trees are shown in the place of.
        let mut replaced = Vec::new();
        let listed = at.fs().readdirplus(ino, handle, offset, &mut |e| {
            let tree = if e.name == TREE.as_bytes() { self.enter_tree(ino, &e.entry.attr) } else { Ok(None) };
            let tree = match tree {
                Ok(None) => return f(e),
                Ok(Some(tree)) => tree,
                // It is left out: there are too many.
                Err(_) => {
                    replaced.push(e.entry.attr.ino);
                    return ControlFlow::Continue(());
                }
            };
            let shown = tree.root_attr().map(|attr| Entry { attr, volatile: true, ..e.entry });
            let flow = shown.map_or(ControlFlow::Break(()), |entry| f(DirEntryPlus { entry, ..e }));
            if flow.is_break() {
                tree.forget(root_of(tree.number), 1);
            } else {
                replaced.push(e.entry.attr.ino);
            }
            flow
        });
        replaced.into_iter().for_each(|ino| self.main.forget(ino, 1));
        listed
    }
}

impl Operations for TreesFs {
    fn lookup(&self, parent: Ino, name: &[u8]) -> FsResult<Entry> {
        let at = self.at(parent)?;
        let entry = at.fs().lookup(at.ino(), name)?;
        if at.tree().is_some() || name != TREE.as_bytes() || entry.attr.kind != FileKind::Directory {
            return Ok(at.entered(entry));
        }
        let found = self.found(parent, entry);
        // A tree that is shown there, or an error: the kernel does not know the directory.
        if found.is_ok_and(|found| found.attr.ino == entry.attr.ino) {
            return found;
        }
        self.main.forget(entry.attr.ino, 1);
        found
    }

    fn forget(&self, ino: Ino, count: u64) {
        match self.tree_of(ino) {
            Ok(None) => self.main.forget(ino, count),
            Ok(Some(tree)) => {
                if let (Some(inner), Some(fs)) = (tree.forget(ino, count), tree.if_open()) {
                    fs.forget(inner, count);
                }
            }
            Err(_) => {}
        }
    }

    fn getattr(&self, ino: Ino) -> FsResult<Attr> {
        if let Some(tree) = self.tree_of(ino)?.filter(|_| is_root(ino)) {
            // One that cannot be opened is shown without what it holds.
            let _ = self.at(ino);
            return tree.root_attr();
        }
        let at = self.at(ino)?;
        Ok(at.attr(at.fs().getattr(at.ino())?))
    }

    fn readlink(&self, ino: Ino) -> FsResult<Vec<u8>> {
        let at = self.at(ino)?;
        at.fs().readlink(at.ino())
    }

    fn open(&self, ino: Ino, mode: OpenMode) -> FsResult<Opened> {
        let at = self.at(ino)?;
        Ok(at.opened(at.fs().open(at.ino(), mode)?))
    }

    fn read(&self, ino: Ino, handle: Handle, offset: u64, buf: &mut [u8]) -> FsResult<usize> {
        let (at, handle) = self.at_handle(ino, handle)?;
        at.fs().read(at.ino(), handle, offset, buf)
    }

    fn pad(&self, handle: Handle, offset: u64, buf: &mut [u8]) -> bool {
        self.at_handle(Ino(0), handle).is_ok_and(|(at, handle)| at.fs().pad(handle, offset, buf))
    }

    fn release(&self, ino: Ino, handle: Handle) -> Invalidate {
        let Ok((at, handle)) = self.at_handle(ino, handle) else { return Invalidate::default() };
        let invalidate = at.invalidate(at.fs().release(at.ino(), handle));
        at.tree().into_iter().for_each(|tree| tree.closed());
        invalidate
    }

    fn opendir(&self, ino: Ino) -> FsResult<Handle> {
        let at = self.at(ino)?;
        Ok(at.opened_handle(at.fs().opendir(at.ino())?))
    }

    fn readdir(&self, ino: Ino, handle: Handle, offset: u64, f: &mut dyn FnMut(DirEntry<'_>) -> ControlFlow<()>) -> FsResult<()> {
        let (at, handle) = self.at_handle(ino, handle)?;
        at.fs().readdir(at.ino(), handle, offset, &mut |e| f(DirEntry { ino: at.listed(e.name, e.ino), ..e }))
    }

    fn readdirplus(&self, ino: Ino, handle: Handle, offset: u64, f: &mut dyn FnMut(DirEntryPlus<'_>) -> ControlFlow<()>) -> FsResult<()> {
        let (at, handle) = self.at_handle(ino, handle)?;
        let Some(tree) = at.tree() else { return self.list_main((&at, ino, handle), offset, f) };
        at.fs().readdirplus(at.ino(), handle, offset, &mut |e| {
            if e.name == b"." || e.name == b".." {
                let attr = Attr { ino: at.listed(e.name, e.entry.attr.ino), ..e.entry.attr };
                return f(DirEntryPlus { entry: Entry { attr, ..e.entry }, ..e });
            }
            let entry = tree.entered(e.entry);
            let flow = f(DirEntryPlus { entry, ..e });
            if flow.is_break() {
                tree.forget(entry.attr.ino, 1);
            }
            flow
        })
    }

    fn releasedir(&self, ino: Ino, handle: Handle) {
        if let Ok((at, handle)) = self.at_handle(ino, handle) {
            at.fs().releasedir(at.ino(), handle);
            at.tree().into_iter().for_each(|tree| tree.closed());
        }
    }

    fn getxattr(&self, ino: Ino, name: &[u8]) -> FsResult<Vec<u8>> {
        let at = self.at(ino)?;
        at.fs().getxattr(at.ino(), name)
    }

    fn check_sight(&self, ino: Ino, sight: Sight<'_>, caller: Caller) -> FsResult<()> {
        let at = self.at(ino)?;
        at.fs().check_sight(at.ino(), sight, caller)
    }

    fn listxattr(&self, ino: Ino) -> FsResult<Vec<u8>> {
        let at = self.at(ino)?;
        at.fs().listxattr(at.ino())
    }

    fn fact(&self, ino: Ino, name: &str, limit: u64) -> FsResult<Vec<u8>> {
        let at = self.at(ino)?;
        at.fs().fact(at.ino(), name, limit)
    }

    fn lseek(&self, ino: Ino, handle: Handle, offset: u64, whence: Whence) -> FsResult<u64> {
        let (at, handle) = self.at_handle(ino, handle)?;
        at.fs().lseek(at.ino(), handle, offset, whence)
    }

    fn statfs(&self) -> FsResult<Statfs> {
        self.main.statfs()
    }

    /// Trees are not followed: the peers of a transaction see one version.
    fn look(&self, kernel: &dyn KernelMemory) {
        self.main.look(kernel);
        self.drop_unused(kernel);
    }

    fn look_interval(&self) -> Option<Duration> {
        Some(LOOK_INTERVAL)
    }

    fn status(&self) -> String {
        self.main.status()
    }

    fn measurements(&self, mountpoint: &Path) -> String {
        self.main.measurements(mountpoint)
    }

    fn set_cache_bytes(&self, bytes: u64) -> bool {
        self.main.set_cache_bytes(bytes)
    }

    fn is_writable(&self) -> bool {
        self.main.is_writable()
    }

    fn is_volatile(&self, ino: Ino) -> bool {
        self.at(ino).is_ok_and(|at| at.fs().is_volatile(at.ino()))
    }

    fn write(&self, ino: Ino, handle: Handle, offset: u64, data: &[u8], mode: OpenMode) -> Done<usize> {
        self.change_open(ino, handle, |at, handle| at.fs().write(at.ino(), handle, offset, data, mode))
    }

    fn setattr(&self, ino: Ino, changes: &Changes) -> Done<Attr> {
        self.change_to(ino, |at| at.fs().setattr(at.ino(), changes), |at, attr| at.attr(attr))
    }

    fn create(&self, parent: Ino, name: &[u8], creator: Creator, mode: OpenMode, exclusive: bool) -> Done<(Entry, Opened)> {
        let create = |at: &Route<'_>| at.fs().create(at.ino(), name, creator, mode, exclusive);
        self.change_to(parent, create, |at, (entry, opened)| (at.entered(entry), at.opened(opened)))
    }

    fn mknod(&self, parent: Ino, name: &[u8], creator: Creator) -> Done<Entry> {
        self.change_to(parent, |at| at.fs().mknod(at.ino(), name, creator), |at, entry| at.entered(entry))
    }

    fn mkdir(&self, parent: Ino, name: &[u8], creator: Creator) -> Done<Entry> {
        self.change_to(parent, |at| at.fs().mkdir(at.ino(), name, creator), |at, entry| at.entered(entry))
    }

    fn unlink(&self, parent: Ino, name: &[u8]) -> Done<()> {
        self.change(parent, |at| at.fs().unlink(at.ino(), name))
    }

    fn rmdir(&self, parent: Ino, name: &[u8]) -> Done<()> {
        self.change(parent, |at| at.fs().rmdir(at.ino(), name))
    }

    fn rename(&self, from: (Ino, &[u8]), to: (Ino, &[u8]), flags: u32) -> Done<()> {
        Done::by(|| {
            let (source, target) = (self.at(from.0)?, self.at(to.0)?);
            if !source.is_beside(&target) {
                return Err(Errno(libc::EXDEV));
            }
            let done = source.fs().rename((source.ino(), from.1), (target.ino(), to.1), flags);
            Ok(source.done(done, |()| ()))
        })
    }

    fn link(&self, ino: Ino, parent: Ino, name: &[u8]) -> Done<Entry> {
        Done::by(|| {
            let (file, directory) = (self.at(ino)?, self.at(parent)?);
            if !file.is_beside(&directory) {
                return Err(Errno(libc::EXDEV));
            }
            let done = file.fs().link(file.ino(), directory.ino(), name);
            Ok(file.done(done, |entry| file.entered(entry)))
        })
    }

    fn symlink(&self, parent: Ino, name: &[u8], target: &[u8], creator: Creator) -> Done<Entry> {
        self.change_to(parent, |at| at.fs().symlink(at.ino(), name, target, creator), |at, entry| at.entered(entry))
    }

    fn setxattr(&self, ino: Ino, name: &[u8], value: &[u8], flags: i32) -> Done<()> {
        self.change(ino, |at| at.fs().setxattr(at.ino(), name, value, flags))
    }

    fn removexattr(&self, ino: Ino, name: &[u8]) -> Done<()> {
        self.change(ino, |at| at.fs().removexattr(at.ino(), name))
    }

    fn fallocate(&self, ino: Ino, handle: Handle, offset: u64, len: u64, mode: i32) -> Done<()> {
        self.change_open(ino, handle, |at, handle| at.fs().fallocate(at.ino(), handle, offset, len, mode))
    }

    fn copy_range(&self, from: (Handle, u64), to: (Handle, u64), len: u64) -> Done<u64> {
        Done::by(|| {
            let ((source, a), (target, b)) = (self.at_handle(Ino(0), from.0)?, self.at_handle(Ino(0), to.0)?);
            if !source.is_beside(&target) {
                return Err(Errno(libc::EOPNOTSUPP));
            }
            let done = source.fs().copy_range((a, from.1), (b, to.1), len);
            Ok(source.done(done, |copied| copied))
        })
    }

    fn model(&self, ino: Ino) -> FsResult<ObjectModel> {
        let at = self.at(ino)?;
        at.fs().model(at.ino())
    }

    fn flush(&self, ino: Ino, handle: Handle) -> Done<()> {
        self.change_open(ino, handle, |at, handle| at.fs().flush(at.ino(), handle))
    }

    fn fsync(&self, ino: Ino) -> Done<()> {
        self.change(ino, |at| at.fs().fsync(at.ino()))
    }

    /// A tree commits nothing before it is finished.
    fn commit(&self) -> FsResult<()> {
        self.main.commit()
    }

    fn shutdown(&self) -> Result<(), CloseError> {
        // All of them end, whatever fails.
        let mut failed: Vec<CloseError> = self.main.shutdown().err().into_iter().collect();
        failed.extend(self.all().into_iter().filter_map(|tree| tree.if_open()?.shutdown().err()));
        let messages: Vec<&str> = failed.iter().map(|e| e.message.as_str()).collect();
        let message = messages.join("; ");
        failed.first().map_or(Ok(()), |e| Err(CloseError { message, ..e.clone() }))
    }
}
