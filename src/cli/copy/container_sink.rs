//! A group of a container as the destination.
//!
//! A new dataset is written under a temporary name in its group and renamed when it is complete, so
//! that no commit shows half of it under its name. A file below `.h5dir`, and a new file for which
//! there are rules, has its name from the start and is removed if it is not finished.

use super::sink::{Finished, KEPT_MODE_BITS, MARKER, NewFile, NewLink, SinkDirectory, SinkFile, check_name, temporary_name};
use crate::base::Error;
use crate::cli::side::container::{Container, Held, ObjectContent, ObjectSource, error};
use crate::cli::side::{EXACT_VIEW, Meta, SideKind};
use crate::cli::tree;
use crate::fs::model::{ChunkStorage, Definition, ObjectModel, Original, StoredChunk, io_error};
use crate::fs::{Changes, Creator, Entry, Errno, FsResult, Handle, Ino, OpenMode};
use std::io;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

/// Bytes of one write.
const WRITE_BYTES: usize = 1 << 20;
/// Opened for writing.
const WRITE: OpenMode = OpenMode {
    read: false,
    write: true,
    append: false,
    sync: false,
    maps_direct: false,
    truncate: false,
    written_back: false,
    clears_set_id: false,
};

/// A group of the destination.
pub(super) struct GroupDirectory {
    container: Arc<Container>,
    held: Arc<Held>,
    /// Path of the view.
    path: Vec<u8>,
    /// New files have their names from the start.
    direct: bool,
    /// It is a map, whose files are pairs.
    map: bool,
}

impl GroupDirectory {
    /// The group at `path`; `rules`: there are rules for the names of new files.
    pub(super) fn open(container: &Arc<Container>, path: &[u8], rules: bool) -> io::Result<GroupDirectory> {
        let located = tree::locate(&*container.operations, path, true).map_err(error)?;
        let held = Arc::new(Held::new(container, located.attr.ino));
        if container.meta_of(held.ino())?.kind != SideKind::Directory {
            return Err(io::Error::from_raw_os_error(libc::ENOTDIR));
        }
        let path = tree::absolute(path);
        let direct = rules || tree::is_below_control(&path);
        let map = map_of(container, &held)?.is_some();
        Ok(GroupDirectory { container: container.clone(), held, path, direct, map })
    }

    fn is_form(&self) -> bool {
        tree::is_below_control(&self.path)
    }

    /// Takes over the lookup reference of `entry`.
    fn hold(&self, entry: FsResult<Entry>) -> io::Result<Arc<Held>> {
        Ok(Arc::new(Held::new(&self.container, entry.map_err(error)?.attr.ino)))
    }

    fn below(&self, name: &[u8], held: Arc<Held>, map: bool) -> Rc<dyn SinkDirectory> {
        let path = tree::join(&self.path, name);
        Rc::new(GroupDirectory { container: self.container.clone(), held, path, direct: self.direct, map })
    }

    fn rename(&self, from: &[u8], to: &[u8]) -> io::Result<()> {
        let ino = self.held.ino();
        self.container.operations.rename((ino, from), (ino, to), 0).result.map_err(|e| naming(e, to))
    }

    /// Makes a name by `make`, under a temporary name that is moved to `name` if `exists`.
    fn place(&self, name: &[u8], exists: bool, make: impl FnOnce(&[u8]) -> io::Result<()>) -> io::Result<()> {
        check_name(name)?;
        if !exists {
            return make(name).map_err(|e| if e.kind() == io::ErrorKind::InvalidInput { naming(Errno(libc::EINVAL), name) } else { e });
        }
        let temporary = temporary_name()?;
        make(&temporary)?;
        let moved = self.rename(&temporary, name);
        // It is still there if both were names of one object.
        let _ = self.container.operations.unlink(self.held.ino(), &temporary).result;
        moved
    }

    fn file(&self, name: &[u8], held: Arc<Held>, state: NewFileName) -> ObjectFile {
        let (container, directory) = (self.container.clone(), self.held.clone());
        let (path, part) = (self.path.clone(), self.map);
        ObjectFile { container, directory, path, name: name.to_vec(), held, state, open: None, exact: false, part }
    }

    /// Opens a file of a view under its name, emptied.
    fn open_form(&self, new: &NewFile<'_>) -> io::Result<Box<dyn SinkFile>> {
        if new.exists {
            let held = self.hold(self.container.operations.lookup(self.held.ino(), new.name))?;
            let mut file = self.file(new.name, held, NewFileName::Done);
            // The size of a .npy file changes only while it is open.
            file.opened()?;
            file.resize(0)?;
            return Ok(Box::new(file));
        }
        let made = self.container.operations.create(self.held.ino(), new.name, creator(new.meta), WRITE, false).result;
        let (entry, opened) = made.map_err(error)?;
        let held = Arc::new(Held::new(&self.container, entry.attr.ino));
        let mut file = self.file(new.name, held.clone(), NewFileName::Named);
        file.open = Some((held, opened.handle));
        Ok(Box::new(file))
    }

    /// Opens an existing dataset, which is emptied if its size can change. `None`: it can be
    /// neither emptied nor overwritten. Errors: the source has another size than a dataset with a
    /// type, which is not to be replaced.
    fn open_in_place(&self, new: &NewFile<'_>) -> io::Result<Option<Box<dyn SinkFile>>> {
        let held = self.hold(self.container.operations.lookup(self.held.ino(), new.name))?;
        let (meta, model) = (self.container.meta_of(held.ino())?, model_of(&self.container, &held)?);
        // The size of standard input is not known.
        let is_known = new.meta.size != u64::MAX;
        if is_known
            && meta.size != new.meta.size
            && let Some(row) = model.row_bytes().map_err(|e| io_error(&e))?
        {
            let (size, there) = (new.meta.size, meta.size);
            let is_whole = size.checked_rem(row) == Some(0);
            match (is_whole, new.resize, new.force) {
                (true, true, _) => {}
                (_, _, true) => return Ok(None),
                (true, false, _) => {
                    let rows = size.checked_div(row).unwrap_or(0);
                    return Err(io::Error::other(format!(
                        "it has {size} bytes, and the dataset has {there}; --resize makes it {rows} rows, -f a dataset of bytes"
                    )));
                }
                (false, ..) => {
                    return Err(io::Error::other(format!(
                        "it has {size} bytes, and the dataset has {there} in rows of {row}; -f replaces it by a dataset of bytes"
                    )));
                }
            }
        }
        let file = self.file(new.name, held, NewFileName::Done);
        let emptied = match model.is_elsewhere().map_err(|e| io_error(&e))? {
            false => file.resize(0),
            // Its bytes are not in the container, and stay until others replace them.
            true if is_known => file.resize(new.meta.size),
            true => Ok(()),
        };
        match emptied {
            Ok(()) => Ok(Some(Box::new(file))),
            Err(e) if e.raw_os_error() == Some(libc::EPERM) && (meta.size == new.meta.size || !is_known) => Ok(Some(Box::new(file))),
            Err(e) if e.raw_os_error() == Some(libc::EPERM) => Ok(None),
            Err(e) => Err(e),
        }
    }
}

/// The definition of the map `held`; `None`: it is no map.
fn map_of(container: &Container, held: &Held) -> io::Result<Option<Definition>> {
    let Some(model) = container.model(held)? else { return Ok(None) };
    Ok(Some(model.own_definition().map_err(|e| io_error(&e))?).filter(|definition| matches!(definition, Definition::Map(_))))
}

fn model_of(container: &Container, held: &Held) -> io::Result<ObjectModel> {
    container.model(held)?.ok_or_else(|| io::Error::from_raw_os_error(libc::EOPNOTSUPP))
}

/// Makes the directory `held` the map that `map` defines.
fn become_map(container: &Container, held: &Held, map: &Definition) -> io::Result<()> {
    if map_of(container, held)?.as_ref() == Some(map) {
        return Ok(());
    }
    model_of(container, held)?.define(map).map_err(|e| match e {
        Error::Refused { errno: libc::ENOTEMPTY, .. } => {
            io::Error::other("it is a map, and the destination is a directory that holds something else")
        }
        e => io_error(&e),
    })
}

/// The error of making `name`. No link can have some names that a view shows, as `%2E`.
fn naming(e: Errno, name: &[u8]) -> io::Error {
    match e {
        Errno(libc::EINVAL) if name.contains(&b'%') => io::Error::other("a new link cannot have this name, which is shown escaped or cut"),
        e => error(e),
    }
}

/// Owner and mode of a new file with the attributes `meta`.
fn creator(meta: &Meta) -> Creator {
    let (uid, gid) = (nix::unistd::geteuid().as_raw(), nix::unistd::getegid().as_raw());
    Creator { uid, gid, mode: meta.perm & KEPT_MODE_BITS }
}

fn set_meta(container: &Container, ino: Ino, meta: &Meta, owner: bool) -> io::Result<()> {
    let changes = Changes {
        mode: Some(meta.perm & KEPT_MODE_BITS),
        uid: owner.then_some(meta.uid),
        gid: owner.then_some(meta.gid),
        atime: Some(meta.atime),
        mtime: Some(meta.mtime),
        ..Changes::default()
    };
    container.operations.setattr(ino, &changes).result.map(drop).map_err(container.failed(ino))
}

fn set_xattr(container: &Container, ino: Ino, name: &[u8], value: &[u8]) -> io::Result<()> {
    container.operations.setxattr(ino, name, value, 0).result.map_err(error)
}

impl SinkDirectory for GroupDirectory {
    fn identity(&self) -> io::Result<(u64, u64)> {
        Ok(self.container.meta_of(self.held.ino())?.identity)
    }

    fn find(&self, name: &[u8]) -> io::Result<Option<Meta>> {
        self.container.find(self.held.ino(), name)
    }

    fn enter(&self, name: &[u8]) -> io::Result<Rc<dyn SinkDirectory>> {
        let held = self.hold(self.container.operations.lookup(self.held.ino(), name))?;
        let map = map_of(&self.container, &held)?.is_some();
        Ok(self.below(name, held, map))
    }

    fn make_directory(&self, name: &[u8], meta: &Meta) -> io::Result<Rc<dyn SinkDirectory>> {
        check_name(name)?;
        let made = self.container.operations.mkdir(self.held.ino(), name, creator(meta)).result;
        let entry = made.map_err(|e| naming(e, name))?;
        Ok(self.below(name, self.hold(Ok(entry))?, false))
    }

    fn make_map(&self, name: &[u8], map: &Definition, meta: &Meta, exists: bool) -> io::Result<Rc<dyn SinkDirectory>> {
        check_name(name)?;
        let (operations, ino) = (&self.container.operations, self.held.ino());
        let entry = if exists { operations.lookup(ino, name) } else { operations.mkdir(ino, name, creator(meta)).result };
        let held = self.hold(Ok(entry.map_err(|e| naming(e, name))?))?;
        let made = become_map(&self.container, &held, map);
        if made.is_err() && !exists {
            let _ = operations.rmdir(ino, name).result;
        }
        made.map(|()| self.below(name, held, true))
    }

    fn make_file(&self, new: &NewFile<'_>) -> io::Result<Box<dyn SinkFile>> {
        check_name(new.name)?;
        if self.is_form() || self.map {
            return self.open_form(new);
        }
        if new.exists && !new.typed {
            match self.open_in_place(new)? {
                Some(file) => return Ok(file),
                None if new.force => {}
                None => {
                    let there = self.find(new.name)?.map_or(0, |found| found.size);
                    let advice = "its size is fixed; -f replaces it by a dataset of bytes";
                    let reason = format!("it has {} bytes, and the dataset has {there}: {advice}", new.meta.size);
                    return Err(io::Error::new(io::ErrorKind::PermissionDenied, reason));
                }
            }
        }
        let temporary = if self.direct && !new.exists { None } else { Some(temporary_name()?) };
        let name = temporary.as_deref().unwrap_or(new.name);
        let held = self.hold(self.container.operations.mknod(self.held.ino(), name, creator(new.meta)).result)?;
        Ok(Box::new(self.file(new.name, held, temporary.map_or(NewFileName::Named, NewFileName::Temporary))))
    }

    fn make_link(&self, name: &[u8], link: &NewLink, meta: &Meta, _owner: bool, exists: bool) -> io::Result<()> {
        let group = || model_of(&self.container, &self.held);
        self.place(name, exists, |name| match link {
            NewLink::Target(target) => {
                let made = self.container.operations.symlink(self.held.ino(), name, target, creator(meta)).result;
                self.hold(made).map(drop)
            }
            NewLink::Stored(stored) => group()?.create_link(name, stored, creator(meta)).map_err(|e| io_error(&e)),
            NewLink::Group(there) => group()?.link_group(name, &model_of(&self.container, there)?).map_err(|e| io_error(&e)),
        })
    }

    fn link(&self, name: &[u8], file: &Finished, exists: bool) -> io::Result<()> {
        let Finished::Object(object) = file else { return Err(io::Error::from_raw_os_error(libc::EXDEV)) };
        let (operations, ino) = (&self.container.operations, self.held.ino());
        self.place(name, exists, |name| self.hold(operations.link(object.ino(), ino, name).result).map(drop))
    }

    fn set_xattr(&self, name: &[u8], value: &[u8]) -> io::Result<()> {
        set_xattr(&self.container, self.held.ino(), name, value)
    }

    fn set_meta(&self, meta: &Meta, owner: bool) -> io::Result<()> {
        set_meta(&self.container, self.held.ino(), meta, owner)
    }

    fn takes_xattrs(&self) -> bool {
        !self.is_form()
    }

    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.container.names(self.held.ino())?.is_empty())
    }

    fn marker(&self) -> io::Result<Option<Vec<u8>>> {
        match self.container.operations.getxattr(self.held.ino(), MARKER) {
            Ok(found) => Ok(Some(found)),
            Err(Errno(libc::ENODATA)) => Ok(None),
            Err(e) => Err(error(e)),
        }
    }

    fn set_marker(&self, marker: Option<&[u8]>) -> io::Result<()> {
        let (operations, ino) = (&self.container.operations, self.held.ino());
        match marker {
            Some(marker) => operations.setxattr(ino, MARKER, marker, 0).result.map_err(error),
            None => operations.removexattr(ino, MARKER).result.map_err(error),
        }
    }

    fn finished(&self, name: &[u8]) -> io::Result<Option<Finished>> {
        let held = self.hold(self.container.operations.lookup(self.held.ino(), name))?;
        Ok(Some(Finished::Object(held)))
    }

    fn holds_parts(&self) -> bool {
        self.map
    }

    fn as_object(&self) -> Option<(&Arc<Container>, &Arc<Held>)> {
        (!self.is_form()).then_some((&self.container, &self.held))
    }
}

/// Which name a file has that is being made.
enum NewFileName {
    /// A temporary one.
    Temporary(Vec<u8>),
    /// Its own, and it is removed if it is not finished.
    Named,
    /// Its own.
    Done,
}

/// A file of a container that is being made.
struct ObjectFile {
    container: Arc<Container>,
    directory: Arc<Held>,
    /// Path of the directory.
    path: Vec<u8>,
    name: Vec<u8>,
    held: Arc<Held>,
    state: NewFileName,
    /// The file that is written: itself, or its exact form.
    open: Option<(Arc<Held>, Handle)>,
    exact: bool,
    /// It is a pair of a map, with the owner and the times of the map.
    part: bool,
}

impl ObjectFile {
    fn resize(&self, size: u64) -> io::Result<()> {
        let changes = Changes { size: Some(size), ..Changes::default() };
        self.container.operations.setattr(self.held.ino(), &changes).result.map(drop).map_err(self.container.failed(self.held.ino()))
    }

    /// The open file, opened by the first call.
    fn opened(&mut self) -> io::Result<(Ino, Handle)> {
        if let Some((held, handle)) = &self.open {
            return Ok((held.ino(), *handle));
        }
        let held = if self.exact { self.exact_form()? } else { self.held.clone() };
        let handle = self.container.operations.open(held.ino(), WRITE).map_err(self.container.failed(held.ino()))?.handle;
        let ino = held.ino();
        self.open = Some((held, handle));
        Ok((ino, handle))
    }

    fn exact_form(&self) -> io::Result<Arc<Held>> {
        let name = if let NewFileName::Temporary(name) = &self.state { name } else { &self.name };
        let path = [EXACT_VIEW, &tree::join(&self.path, name)].concat();
        let found = tree::locate(&*self.container.operations, &path, false).map_err(error)?;
        Ok(Arc::new(Held::new(&self.container, found.attr.ino)))
    }
}

impl Drop for ObjectFile {
    fn drop(&mut self) {
        if let Some((held, handle)) = self.open.take() {
            drop(self.container.operations.release(held.ino(), handle));
        }
        let name = match &self.state {
            NewFileName::Temporary(name) => name,
            NewFileName::Named => &self.name,
            NewFileName::Done => return,
        };
        let _ = self.container.operations.unlink(self.directory.ino(), name).result;
    }
}

impl SinkFile for ObjectFile {
    fn model(&self) -> io::Result<ObjectModel> {
        model_of(&self.container, &self.held)
    }

    fn write(&mut self, offset: u64, data: &[u8]) -> io::Result<()> {
        let (ino, handle) = self.opened()?;
        let mut at = offset;
        for piece in data.chunks(WRITE_BYTES) {
            let n = self.container.operations.write(ino, handle, at, piece, WRITE).result.map_err(self.container.failed(ino))?;
            if n != piece.len() {
                return Err(io::ErrorKind::WriteZero.into());
            }
            at = at.saturating_add(n as u64);
        }
        Ok(())
    }

    fn is_unwritten(&mut self, range: Range<u64>, fill: &[u8]) -> io::Result<bool> {
        if self.exact || self.part {
            return Ok(false);
        }
        let model = self.model()?;
        if !model.has_mapped_bytes() {
            return Ok(false);
        }
        let written = model.written(range.start).map_err(|e| io_error(&e))?;
        if written.is_some_and(|written| written.start < range.end) {
            return Ok(false);
        }
        let handle = self.container.operations.open(self.held.ino(), OpenMode { read: true, ..OpenMode::default() }).map_err(error)?.handle;
        let compare = || {
            let mut found = vec![0; fill.len()];
            let n = self.container.operations.read(self.held.ino(), handle, range.start, &mut found)?;
            Ok(n == fill.len() && found == fill)
        };
        let same = compare().map_err(error);
        drop(self.container.operations.release(self.held.ino(), handle));
        same
    }

    fn copy_range(&mut self, from: &ObjectContent, range: Range<u64>) -> io::Result<u64> {
        if self.exact || !from.is_of(&self.container) {
            return Ok(0);
        }
        let (_, handle) = self.opened()?;
        let len = range.end.saturating_sub(range.start);
        match self.container.operations.copy_range((from.handle, range.start), (handle, range.start), len).result {
            Ok(n) => Ok(n),
            Err(e) if matches!(e.0, libc::EOPNOTSUPP | libc::EXDEV | libc::EINVAL | libc::EBADF) => Ok(0),
            Err(e) => Err(error(e)),
        }
    }

    fn may_take_chunks(&self, from: &ObjectSource) -> bool {
        !self.exact && !self.part && from.container().domain != self.container.domain
    }

    fn takes_chunks(&mut self, storage: &ChunkStorage) -> io::Result<bool> {
        self.model()?.takes_chunks(storage).map_err(|e| io_error(&e))
    }

    fn store_chunks(&mut self, storage: &ChunkStorage, chunks: &[StoredChunk], original: Option<&Original>) -> io::Result<bool> {
        self.model()?.store_chunks(storage, chunks, original).map_err(|e| io_error(&e))
    }

    fn use_exact_form(&mut self) {
        self.exact = true;
    }

    fn set_size(&mut self, size: u64) -> io::Result<()> {
        if self.exact || self.container.meta_of(self.held.ino())?.size == size {
            return Ok(());
        }
        self.resize(size)
    }

    fn end_content(&mut self) -> io::Result<()> {
        let Some((held, handle)) = self.open.take() else { return Ok(()) };
        let flushed = self.container.operations.flush(held.ino(), handle).result.map_err(self.container.failed(held.ino()));
        drop(self.container.operations.release(held.ino(), handle));
        flushed
    }

    fn set_xattr(&mut self, name: &[u8], value: &[u8]) -> io::Result<()> {
        set_xattr(&self.container, self.held.ino(), name, value)
    }

    fn set_meta(&mut self, meta: &Meta, owner: bool) -> io::Result<()> {
        if self.part {
            return Ok(());
        }
        set_meta(&self.container, self.held.ino(), meta, owner)
    }

    fn finish(mut self: Box<Self>) -> io::Result<Finished> {
        self.end_content()?;
        if let NewFileName::Temporary(temporary) = &self.state {
            let ino = self.directory.ino();
            self.container.operations.rename((ino, temporary), (ino, &self.name), 0).result.map_err(|e| naming(e, &self.name))?;
        }
        self.state = NewFileName::Done;
        Ok(Finished::Object(self.held.clone()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::side::Source;
    use crate::fs::model::StoredLink;
    use crate::fs::{MountSpec, open};
    use std::time::UNIX_EPOCH;

    fn meta(kind: SideKind) -> Meta {
        Meta { kind, perm: 0o644, uid: 0, gid: 0, size: 3, links: 1, identity: (0, 0), atime: UNIX_EPOCH, mtime: UNIX_EPOCH }
    }

    /// A new container, open for writing, in a temporary folder.
    fn container() -> (tempfile::TempDir, Arc<Container>) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f.h5");
        open::create(&path, &crate::fs::NewFile::default()).unwrap();
        let operations = open::open(&MountSpec::writable(&path)).unwrap();
        (dir, Arc::new(Container { operations, domain: 1 }))
    }

    fn names(container: &Arc<Container>, path: &[u8]) -> Vec<Vec<u8>> {
        ObjectSource::resolve(container, path, true).unwrap().names().unwrap()
    }

    fn content(container: &Arc<Container>, path: &[u8]) -> Vec<u8> {
        let source = ObjectSource::resolve(container, path, true).unwrap();
        let mut bytes = vec![0; 100];
        let n = source.open().unwrap().read(0, &mut bytes).unwrap();
        bytes[..n].to_vec()
    }

    #[test]
    fn a_file_that_is_not_finished_leaves_nothing() {
        let (_dir, container) = container();
        for rules in [false, true] {
            let root = GroupDirectory::open(&container, b"/", rules).unwrap();
            let meta = meta(SideKind::Regular);
            let new = |exists, typed| NewFile { name: b"d", meta: &meta, exists, typed, force: false, resize: false };
            let mut file = root.make_file(&new(false, false)).unwrap();
            file.write(0, b"abc").unwrap();
            drop(file);
            assert!(names(&container, b"/").is_empty(), "rules: {rules}");
            let mut file = root.make_file(&new(false, false)).unwrap();
            file.write(0, b"abc").unwrap();
            assert_eq!(names(&container, b"/") == [b"d".to_vec()], rules, "it has its name when it is finished");
            file.finish().unwrap();
            let mut file = root.make_file(&new(true, true)).unwrap();
            file.write(0, b"xyz").unwrap();
            drop(file);
            assert_eq!((names(&container, b"/"), content(&container, b"/d")), (vec![b"d".to_vec()], b"abc".to_vec()));
            container.operations.unlink(root.held.ino(), b"d").result.unwrap();
        }
        container.operations.shutdown().unwrap();
    }

    #[test]
    fn links_are_stored_as_they_were_found() {
        let (_dir, container) = container();
        let root = GroupDirectory::open(&container, b"/", false).unwrap();
        let a = root.make_directory(b"a", &meta(SideKind::Directory)).unwrap();
        let b = a.make_directory(b"b", &meta(SideKind::Directory)).unwrap();
        let external = StoredLink::External { file: b"other.h5".to_vec(), object: b"/x".to_vec() };
        let all = [
            (&b"up"[..], StoredLink::Above(1)),
            (b"here", StoredLink::Above(0)),
            (b"soft", StoredLink::Soft { path: b"/a/b".to_vec(), text: None }),
            (b"external", external),
        ];
        for (name, link) in &all {
            b.make_link(name, &NewLink::Stored(link.clone()), &meta(SideKind::Symlink), false, false).unwrap();
        }
        let found = ObjectSource::resolve(&container, b"/a/b", true).unwrap();
        for (name, link) in &all {
            assert_eq!(found.child(name).unwrap().stored_link().unwrap().as_ref(), Some(link), "{}", name.escape_ascii());
        }
        let too_far = NewLink::Stored(StoredLink::Above(3));
        assert!(b.make_link(b"far", &too_far, &meta(SideKind::Symlink), false, false).is_err());
        let other_class = NewLink::Stored(StoredLink::UserDefined(187));
        assert!(b.make_link(b"ud", &other_class, &meta(SideKind::Symlink), false, false).is_err());
        let shared = NewLink::Group(found.held());
        root.make_link(b"second", &shared, &meta(SideKind::Directory), false, false).unwrap();
        let second = ObjectSource::resolve(&container, b"/second", true).unwrap();
        let group = found.shared_group().unwrap();
        assert!(group.is_some() && second.shared_group().unwrap() == group);
        assert_eq!(names(&container, b"/second"), names(&container, b"/a/b"));
        drop((found, second, a, b, root));
        container.operations.shutdown().unwrap();
    }
}
