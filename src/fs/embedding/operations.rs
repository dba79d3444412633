//! Every request: sent to where the file is, its answer in the numbers outside.

use super::traits::{At, Embedder, Inside, Use, remove_name};
use crate::fs::model::ObjectModel;
use crate::fs::operations::KernelMemory;
use crate::fs::types::{
    Attr, Changes, CloseError, Creator, DirEntry, DirEntryPlus, Entry, Errno, FsResult, Handle, Ino, OpenMode, Opened, Statfs, Whence,
};
use crate::fs::{Caller, Done, Invalidate, Operations, Sight};
use std::ops::ControlFlow;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Duration;

/// The file system that `E` and those within it are together.
pub struct Embedding<E>(pub E);

/// The number of an open file in requests that have its handle alone.
const NO_NUMBER: Ino = Ino(0);

/// Counts a look-up of `name` in the directory `at`.
fn enter(at: &impl Inside, name: &[u8], entry: Entry) -> FsResult<Entry> {
    let entered = at.entered(name, entry);
    if entered.as_ref().map_or(true, |entered| entered.surplus) {
        at.operations().forget(entry.attr.ino, 1);
    }
    entered.map(|entered| entered.entry)
}

/// Lists the directory `at` with attributes.
fn list_plus(at: &impl Inside, handle: Handle, offset: u64, f: &mut dyn FnMut(DirEntryPlus<'_>) -> ControlFlow<()>) -> FsResult<()> {
    at.lists();
    // Forgotten after the listing, which may hold a lock.
    let mut surplus = Vec::new();
    let listed = at.operations().readdirplus(at.ino(), handle, offset, &mut |e| {
        let inner = e.entry.attr.ino;
        if e.name == b"." || e.name == b".." {
            let attr = Attr { ino: at.listed(e.name, inner), ..e.entry.attr };
            return f(DirEntryPlus { entry: Entry { attr, ..e.entry }, ..e });
        }
        let Ok(entered) = at.entered(e.name, e.entry) else { return ControlFlow::Break(()) };
        let flow = f(DirEntryPlus { entry: entered.entry, ..e });
        if flow.is_break() {
            at.refused(&entered);
        } else if entered.surplus {
            surplus.push(inner);
        }
        flow
    });
    surplus.into_iter().for_each(|inner| at.operations().forget(inner, 1));
    listed
}

impl<E: Embedder> Embedding<E> {
    /// Reads something of `ino`; the answer names no file.
    fn read_of<T>(&self, ino: Ino, read: impl FnOnce(&dyn Operations, Ino) -> FsResult<T>) -> FsResult<T> {
        match self.0.at(ino, Use::Read)?.open()? {
            None => read(self.0.own(), ino),
            Some(at) => read(at.operations(), at.ino()),
        }
    }

    /// Reads something of the open file `handle`; the answer names no file.
    fn read_open<T>(&self, ino: Ino, handle: Handle, read: impl FnOnce(&dyn Operations, Ino, Handle) -> FsResult<T>) -> FsResult<T> {
        match self.0.at_handle(ino, handle)?.open()? {
            None => read(self.0.own(), ino, handle),
            Some((at, handle)) => read(at.operations(), at.ino(), handle),
        }
    }

    /// Changes `ino`; `answer` has the answer in the numbers outside.
    fn change_to<T>(
        &self,
        (ino, by): (Ino, Use),
        change: impl FnOnce(&dyn Operations, Ino) -> Done<T>,
        answer: impl FnOnce(&E::Inside<'_>, T) -> FsResult<T>,
    ) -> Done<T> {
        Done::by(|| {
            let Some(at) = self.0.at(ino, by)?.open()? else { return Ok(change(self.0.own(), ino)) };
            let Done { result, invalidate } = change(at.operations(), at.ino());
            Ok(Done { result: result.and_then(|done| answer(&at, done)), invalidate: at.outward(invalidate) })
        })
    }

    /// Changes `ino`; the answer names no file.
    fn change<T>(&self, ino: Ino, change: impl FnOnce(&dyn Operations, Ino) -> Done<T>) -> Done<T> {
        self.change_to((ino, Use::Change), change, |_, answer| Ok(answer))
    }

    /// Removes the name `name` of the directory `parent`.
    fn remove(&self, parent: Ino, name: &[u8], is_directory: bool) -> Done<()> {
        Done::by(|| {
            let Some(at) = self.0.at(parent, Use::Change)?.open()? else {
                return Ok(remove_name(self.0.own(), parent, name, is_directory));
            };
            let Done { result, invalidate } = at.remove(name, is_directory);
            Ok(Done { result, invalidate: at.outward(invalidate) })
        })
    }

    /// Makes the entry `name` of the directory `parent`.
    fn make(&self, parent: Ino, name: &[u8], make: impl FnOnce(&dyn Operations, Ino) -> Done<Entry>) -> Done<Entry> {
        self.change_to((parent, Use::Change), make, |at, entry| enter(at, name, entry))
    }

    /// Changes the open file `handle`.
    fn change_open<T>(&self, ino: Ino, handle: Handle, change: impl FnOnce(&dyn Operations, Ino, Handle) -> Done<T>) -> Done<T> {
        Done::by(|| {
            let Some((at, handle)) = self.0.at_handle(ino, handle)?.open()? else { return Ok(change(self.0.own(), ino, handle)) };
            let Done { result, invalidate } = change(at.operations(), at.ino(), handle);
            Ok(Done { result, invalidate: at.outward(invalidate) })
        })
    }
}

impl<E: Embedder> Operations for Embedding<E> {
    fn warning(&self) -> Option<String> {
        self.0.own().warning()
    }

    fn lookup(&self, parent: Ino, name: &[u8]) -> FsResult<Entry> {
        match self.0.at(parent, Use::Read)?.open()? {
            None => self.0.own_lookup(parent, name),
            Some(at) => enter(&at, name, at.operations().lookup(at.ino(), name)?),
        }
    }

    fn forget(&self, ino: Ino, count: u64) {
        self.0.forget(ino, count);
    }

    fn getattr(&self, ino: Ino) -> FsResult<Attr> {
        match self.0.at(ino, Use::Stat)?.open()? {
            None => self.0.own_attr(ino),
            Some(at) => Ok(at.attr(ino, at.operations().getattr(at.ino())?)),
        }
    }

    fn readlink(&self, ino: Ino) -> FsResult<Vec<u8>> {
        self.read_of(ino, |fs, ino| fs.readlink(ino))
    }

    fn open(&self, ino: Ino, mode: OpenMode) -> FsResult<Opened> {
        let by = if mode.write { Use::Change } else { Use::Read };
        match self.0.at(ino, by)?.open()? {
            None => self.0.own().open(ino, mode),
            Some(at) => at.opened(ino, at.operations().open(at.ino(), mode)?, mode),
        }
    }

    fn read(&self, ino: Ino, handle: Handle, offset: u64, buf: &mut [u8]) -> FsResult<usize> {
        self.read_open(ino, handle, |fs, ino, handle| fs.read(ino, handle, offset, buf))
    }

    fn lists_attributes(&self) -> bool {
        self.0.own().lists_attributes()
    }

    fn has_host_files(&self) -> bool {
        self.0.own().has_host_files()
    }

    fn host_file(&self, handle: Handle) -> Option<OwnedFd> {
        match self.0.at_close(NO_NUMBER, handle).ok()? {
            At::Own => self.0.own().host_file(handle),
            At::Inside((at, handle)) => at.operations().host_file(handle),
            At::Closed => None,
        }
    }

    fn pad(&self, handle: Handle, offset: u64, buf: &mut [u8]) -> bool {
        self.read_open(NO_NUMBER, handle, |fs, _, handle| Ok(fs.pad(handle, offset, buf))).is_ok_and(|padded| padded)
    }

    fn release(&self, ino: Ino, handle: Handle) -> Invalidate {
        match self.0.at_close(ino, handle) {
            Ok(At::Own) => self.0.own().release(ino, handle),
            Ok(At::Inside((at, inner))) => {
                let invalidate = at.operations().release(at.ino(), inner);
                self.0.closed(handle, Some(&at));
                at.outward(invalidate)
            }
            Ok(At::Closed) | Err(_) => {
                self.0.closed(handle, None);
                Invalidate::default()
            }
        }
    }

    fn opendir(&self, ino: Ino) -> FsResult<Handle> {
        match self.0.at(ino, Use::Read)?.open()? {
            None => self.0.own().opendir(ino),
            Some(at) => Ok(at.opened_directory(at.operations().opendir(at.ino())?)),
        }
    }

    fn readdir(&self, ino: Ino, handle: Handle, offset: u64, f: &mut dyn FnMut(DirEntry<'_>) -> ControlFlow<()>) -> FsResult<()> {
        let Some((at, handle)) = self.0.at_handle(ino, handle)?.open()? else { return self.0.own().readdir(ino, handle, offset, f) };
        at.lists();
        at.operations().readdir(at.ino(), handle, offset, &mut |e| f(DirEntry { ino: at.listed(e.name, e.ino), ..e }))
    }

    fn readdirplus(&self, ino: Ino, handle: Handle, offset: u64, f: &mut dyn FnMut(DirEntryPlus<'_>) -> ControlFlow<()>) -> FsResult<()> {
        match self.0.at_handle(ino, handle)?.open()? {
            None => self.0.own_list_plus(ino, handle, offset, f),
            Some((at, handle)) => list_plus(&at, handle, offset, f),
        }
    }

    fn releasedir(&self, ino: Ino, handle: Handle) {
        match self.0.at_close(ino, handle) {
            Ok(At::Own) => self.0.own().releasedir(ino, handle),
            Ok(At::Inside((at, inner))) => {
                at.operations().releasedir(at.ino(), inner);
                self.0.closed(handle, Some(&at));
            }
            Ok(At::Closed) | Err(_) => self.0.closed(handle, None),
        }
    }

    fn getxattr(&self, ino: Ino, name: &[u8]) -> FsResult<Vec<u8>> {
        self.read_of(ino, |fs, ino| fs.getxattr(ino, name))
    }

    fn check_sight(&self, ino: Ino, sight: Sight<'_>, caller: Caller) -> FsResult<()> {
        self.read_of(ino, |fs, ino| fs.check_sight(ino, sight, caller))
    }

    fn listxattr(&self, ino: Ino) -> FsResult<Vec<u8>> {
        self.read_of(ino, |fs, ino| fs.listxattr(ino))
    }

    fn fact(&self, ino: Ino, name: &str, limit: u64) -> FsResult<Vec<u8>> {
        self.read_of(ino, |fs, ino| fs.fact(ino, name, limit))
    }

    fn lseek(&self, ino: Ino, handle: Handle, offset: u64, whence: Whence) -> FsResult<u64> {
        self.read_open(ino, handle, |fs, ino, handle| fs.lseek(ino, handle, offset, whence))
    }

    fn statfs(&self) -> FsResult<Statfs> {
        self.0.own().statfs()
    }

    fn look(&self, kernel: &dyn KernelMemory) {
        self.0.look(kernel);
    }

    fn look_interval(&self) -> Option<Duration> {
        self.0.look_interval()
    }

    fn status(&self) -> String {
        self.0.own().status()
    }

    fn measurements(&self, mountpoint: &Path) -> String {
        self.0.own().measurements(mountpoint)
    }

    fn set_cache_bytes(&self, bytes: u64) -> bool {
        self.0.own().set_cache_bytes(bytes)
    }

    fn is_writable(&self) -> bool {
        self.0.own().is_writable()
    }

    fn names_may_change(&self) -> bool {
        self.0.own().names_may_change()
    }

    fn is_volatile(&self, ino: Ino) -> bool {
        self.read_of(ino, |fs, ino| Ok(fs.is_volatile(ino))).is_ok_and(|volatile| volatile)
    }

    fn write(&self, ino: Ino, handle: Handle, offset: u64, data: &[u8], mode: OpenMode) -> Done<usize> {
        self.change_open(ino, handle, |fs, ino, handle| fs.write(ino, handle, offset, data, mode))
    }

    fn setattr(&self, ino: Ino, changes: &Changes) -> Done<Attr> {
        self.change_to((ino, Use::SetStat), |fs, ino| fs.setattr(ino, changes), |at, attr| Ok(at.attr(ino, attr)))
    }

    fn create(&self, parent: Ino, name: &[u8], creator: Creator, mode: OpenMode, exclusive: bool) -> Done<(Entry, Opened)> {
        self.change_to(
            (parent, Use::Change),
            |fs, parent| fs.create(parent, name, creator, mode, exclusive),
            |at, (entry, opened)| {
                let entry = enter(at, name, entry)?;
                Ok((entry, at.opened(entry.attr.ino, opened, mode)?))
            },
        )
    }

    fn mknod(&self, parent: Ino, name: &[u8], creator: Creator) -> Done<Entry> {
        self.make(parent, name, |fs, parent| fs.mknod(parent, name, creator))
    }

    fn mkdir(&self, parent: Ino, name: &[u8], creator: Creator) -> Done<Entry> {
        self.make(parent, name, |fs, parent| fs.mkdir(parent, name, creator))
    }

    fn unlink(&self, parent: Ino, name: &[u8]) -> Done<()> {
        self.remove(parent, name, false)
    }

    fn rmdir(&self, parent: Ino, name: &[u8]) -> Done<()> {
        self.remove(parent, name, true)
    }

    fn rename(&self, from: (Ino, &[u8]), to: (Ino, &[u8]), flags: u32) -> Done<()> {
        Done::by(|| {
            let (source, target) = (self.0.at(from.0, Use::Change)?.open()?, self.0.at(to.0, Use::Change)?.open()?);
            match (source, target) {
                (None, None) => Ok(self.0.own().rename(from, to, flags)),
                (Some(source), Some(target)) if source.is_beside(&target) => {
                    let Done { result, invalidate } = source.rename(from.1, (&target, to.1), flags);
                    Ok(Done { result, invalidate: source.outward(invalidate) })
                }
                _ => Err(Errno(libc::EXDEV)),
            }
        })
    }

    fn link(&self, ino: Ino, parent: Ino, name: &[u8]) -> Done<Entry> {
        Done::by(|| {
            let (file, directory) = (self.0.at(ino, Use::SetStat)?.open()?, self.0.at(parent, Use::Change)?.open()?);
            match (file, directory) {
                (None, None) => Ok(self.0.own().link(ino, parent, name)),
                (Some(file), Some(directory)) if file.is_beside(&directory) => {
                    let Done { result, invalidate } = directory.operations().link(file.ino(), directory.ino(), name);
                    let result = result.and_then(|entry| enter(&directory, name, entry));
                    Ok(Done { result, invalidate: directory.outward(invalidate) })
                }
                _ => Err(Errno(libc::EXDEV)),
            }
        })
    }

    fn symlink(&self, parent: Ino, name: &[u8], target: &[u8], creator: Creator) -> Done<Entry> {
        self.make(parent, name, |fs, parent| fs.symlink(parent, name, target, creator))
    }

    fn has_stored_pages(&self, ino: Ino) -> bool {
        self.read_of(ino, |fs, ino| Ok(fs.has_stored_pages(ino))).is_ok_and(|stored| stored)
    }

    fn setxattr(&self, ino: Ino, name: &[u8], value: &[u8], flags: i32) -> Done<()> {
        self.change(ino, |fs, ino| fs.setxattr(ino, name, value, flags))
    }

    fn removexattr(&self, ino: Ino, name: &[u8]) -> Done<()> {
        self.change(ino, |fs, ino| fs.removexattr(ino, name))
    }

    fn fallocate(&self, ino: Ino, handle: Handle, offset: u64, len: u64, mode: i32) -> Done<()> {
        self.change_open(ino, handle, |fs, ino, handle| fs.fallocate(ino, handle, offset, len, mode))
    }

    fn copy_range(&self, from: (Handle, u64), to: (Handle, u64), len: u64) -> Done<u64> {
        Done::by(|| {
            // The target first: it may be opened again to be written, with what is open in it.
            let (target, source) = (self.0.at_handle(NO_NUMBER, to.0)?.open()?, self.0.at_handle(NO_NUMBER, from.0)?.open()?);
            match (source, target) {
                (None, None) => Ok(self.0.own().copy_range(from, to, len)),
                (Some((source, a)), Some((target, b))) if source.is_beside(&target) => {
                    let Done { result, invalidate } = target.operations().copy_range((a, from.1), (b, to.1), len);
                    Ok(Done { result, invalidate: target.outward(invalidate) })
                }
                // The kernel reads and writes.
                _ => Err(Errno(libc::EOPNOTSUPP)),
            }
        })
    }

    fn model(&self, ino: Ino) -> FsResult<ObjectModel> {
        self.read_of(ino, |fs, ino| fs.model(ino))
    }

    fn flush(&self, ino: Ino, handle: Handle) -> Done<()> {
        Done::by(|| match self.0.at_close(ino, handle)? {
            At::Own => Ok(self.0.own().flush(ino, handle)),
            At::Closed => Ok(Ok(()).into()),
            At::Inside((at, handle)) => {
                let Done { result, invalidate } = at.operations().flush(at.ino(), handle);
                Ok(Done { result, invalidate: at.outward(invalidate) })
            }
        })
    }

    fn fsync(&self, ino: Ino) -> Done<()> {
        Done::by(|| match self.0.at(ino, Use::Sync)? {
            At::Own => Ok(self.0.own().fsync(ino)),
            // What is not open was made durable.
            At::Closed => Ok(Ok(()).into()),
            At::Inside(at) => {
                let Done { result, invalidate } = at.operations().fsync(at.ino());
                Ok(Done { result, invalidate: at.outward(invalidate) })
            }
        })
    }

    fn commit(&self) -> FsResult<()> {
        self.0.own().commit()
    }

    fn shutdown(&self) -> Result<(), CloseError> {
        self.0.shutdown()
    }
}
