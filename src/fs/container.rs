//! The file system of a container: [`Operations`] over a [`Connector`].

use super::cut_names::CutNames;
use super::errno::errno;
use super::file::OpenFile;
use super::listing::Listings;
use super::nodes::{Node, NodeKind, NodeTable, View};
use super::page_guard::Hidden;
use super::side::{Side, attribute_name};
use super::spec::MountSpec;
use super::times::Stamps;
use super::types::{Attr, Changes, DirEntry, DirEntryPlus, Entry, Errno, FileKind, Handle, Ino, OpenMode, Opened, Statfs, Whence};
use super::view::{Child, Failures, Tree};
use super::view_writers::ViewWriters;
use super::{FsResult, KernelMemory, Operations, xattr};
use crate::base::{escape::escaped, waiting};
use crate::connector::{Connector, Form, ObjectId};
use crate::dataset::storage::Seek;
use foldhash::{HashMap, HashMapExt, HashSet, HashSetExt};
use lru::LruCache;
use parking_lot::{Mutex, RwLock, RwLockReadGuard};
use std::num::NonZeroUsize;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::{Duration, SystemTime};

/// Units of `st_blocks`.
const BLOCK: u64 = 512;
/// Objects whose failure was logged once.
const LOGGED_MAX: usize = 10_000;
/// Objects without a recorded time whose last change is remembered while they are mounted.
const CHANGED_MAX: NonZeroUsize = NonZeroUsize::new(1 << 16).unwrap();

/// Times and length of the backing file, shown where the container records none.
#[derive(Debug, Clone, Copy)]
pub struct Backing {
    /// Last access.
    pub atime: SystemTime,
    /// Last change of content.
    pub mtime: SystemTime,
    /// Last change of status.
    pub ctime: SystemTime,
    /// Length, bytes.
    pub len: u64,
}

/// Tells length and free room of the backing file's file system, bytes.
pub type Room = Box<dyn Fn() -> Option<(u64, u64)> + Send + Sync>;

/// See the module's description.
pub struct ContainerFs {
    pub(super) connector: Arc<dyn Connector>,
    pub(super) nodes: NodeTable,
    pub(super) handles: RwLock<HashMap<u64, Arc<OpenFile>>>,
    pub(super) next_handle: AtomicU64,
    /// Directories that are open.
    pub(super) listings: Listings,
    pub(super) spec: MountSpec,
    pub(super) prefix: Vec<Vec<u8>>,
    pub(super) backing: Backing,
    room: Option<Room>,
    pub(super) logged: Mutex<HashSet<ObjectId>>,
    pub(super) cut_names: CutNames,
    /// The container can be changed.
    pub(super) changing: bool,
    /// Held to look names up, and alone to change them: between a look at a name and one at its object
    /// neither becomes another.
    pub(super) names: RwLock<()>,
    /// When objects were changed: finer than what is recorded, and also where nothing is.
    pub(super) changed: Mutex<LruCache<ObjectId, Stamps>>,
    /// Something waits for a commit.
    pub(super) dirty: AtomicBool,
    /// No more changes.
    pub(super) ended: AtomicBool,
    /// The state of the container that the kernel was told of last.
    pub(super) told: AtomicU64,
    /// The state in which no node was outdated any more.
    pub(super) found: AtomicU64,
    /// What is being written below `.h5dir`.
    pub(super) side: Side,
    pub(super) view_writers: ViewWriters,
    /// Files open below `.h5dir`.
    pub(super) open_views: AtomicU64,
    /// Open files of datasets whose bytes may have been changed through another.
    pub(super) elsewhere: Mutex<Vec<Ino>>,
    /// What was replaced or removed and the kernel has not forgotten yet.
    pub(super) replaced: Mutex<HashMap<Ino, Arc<Node>>>,
}

impl ContainerFs {
    /// The file system that shows the group `root` of `connector`, which lies at `prefix` in its file.
    pub fn new(connector: Arc<dyn Connector>, root: ObjectId, prefix: Vec<Vec<u8>>, backing: Backing, spec: MountSpec) -> Self {
        let (changing, followed) = (connector.edit().is_some(), connector.follow().is_some());
        ContainerFs {
            connector,
            nodes: NodeTable::new(NodeKind::Group(View::Main, root), changing, followed),
            handles: RwLock::new(HashMap::new()),
            next_handle: AtomicU64::new(1),
            view_writers: ViewWriters::default(),
            open_views: AtomicU64::new(0),
            elsewhere: Mutex::default(),
            replaced: Mutex::default(),
            listings: Listings::default(),
            spec,
            prefix,
            backing,
            room: None,
            logged: Mutex::new(HashSet::new()),
            cut_names: CutNames::new(),
            changing,
            names: RwLock::new(()),
            changed: Mutex::new(LruCache::new(CHANGED_MAX)),
            dirty: AtomicBool::new(false),
            ended: AtomicBool::new(false),
            told: AtomicU64::new(0),
            found: AtomicU64::new(0),
            side: Side::default(),
        }
    }

    /// The same, with totals that follow the backing file.
    #[must_use]
    pub fn with_room(self, room: Room) -> Self {
        ContainerFs { room: Some(room), ..self }
    }

    /// Names stay as they are while this is held.
    pub(super) fn steady(&self) -> Option<RwLockReadGuard<'_, ()>> {
        self.changing.then(|| waiting::take(|| self.names.try_read(), || self.names.read()))
    }

    pub(super) fn tree(&self) -> Tree<'_> {
        Tree { connector: &*self.connector, prefix: &self.prefix, root: self.root_group(), cut_names: &self.cut_names, failures: self }
    }

    pub(super) fn node(&self, ino: Ino) -> FsResult<Arc<Node>> {
        let node = self.nodes.get(ino).ok_or(Errno(libc::ESTALE))?;
        match self.connector.follow() {
            Some(f) if f.state() != node.state => self.renewed(node, f),
            _ => Ok(node),
        }
    }

    /// The node of `ino` while it stands for something.
    pub(super) fn living(&self, ino: Ino) -> FsResult<Arc<Node>> {
        let node = self.node(ino)?;
        if node.is_gone() && node.opens() == 0 { Err(Errno(libc::ESTALE)) } else { Ok(node) }
    }

    pub(super) fn directory(&self, ino: Ino) -> FsResult<Arc<Node>> {
        let node = self.node(ino)?;
        match node.kind.is_directory() {
            true if node.is_gone() => Err(Errno(libc::ENOENT)),
            true => Ok(node),
            false => Err(Errno(libc::ENOTDIR)),
        }
    }

    /// One log line per object that fails.
    pub(super) fn complain(&self, id: Option<ObjectId>, e: &crate::base::Error) {
        if let Some(id) = id {
            let mut logged = self.logged.lock();
            if logged.len() >= LOGGED_MAX || !logged.insert(id) {
                return;
            }
        }
        let at = id.map(|id| format!(" (object at {} of file {})", id.address, id.file)).unwrap_or_default();
        match e {
            crate::base::Error::Refused { .. } => tracing::warn!("{}: {e}{at}", escaped(&self.spec.file)),
            _ => tracing::error!("{}: {e}{at}", escaped(&self.spec.file)),
        }
    }

    pub(super) fn failed(&self, id: Option<ObjectId>, e: &crate::base::Error) -> Errno {
        self.complain(id, e);
        errno(e)
    }

    /// Attributes of a node. An object whose size cannot be told is shown as a broken one.
    pub(super) fn attr(&self, node: &Node) -> Attr {
        let kind = kind_of(&node.kind);
        let perm = match kind {
            FileKind::Directory => self.spec.dir_mode,
            FileKind::Symlink => 0o777,
            FileKind::Regular => self.spec.file_mode,
        };
        let fixed = self.changing && kind != FileKind::Symlink && !node.kind.takes_changes();
        let perm = if fixed { perm & !0o222 } else { perm };
        let b = self.backing();
        let mut attr = Attr {
            ino: node.ino,
            kind,
            perm,
            nlink: 1,
            size: 0,
            blocks: 0,
            blksize: 4096,
            atime: b.atime,
            mtime: b.mtime,
            ctime: b.ctime,
            btime: b.mtime,
            uid: self.spec.uid,
            gid: self.spec.gid,
        };
        if node.is_gone() {
            attr.nlink = 0;
            if node.opens() == 0 {
                return attr;
            }
        }
        self.times(node, &mut attr);
        if let Err(e) = self.sizes(node, &mut attr) {
            // It may be readable in a moment, and is then looked at again.
            self.look_again();
            self.complain(node.kind.object(), &e);
            (attr.perm, attr.size, attr.blocks) = (0, 0, 0);
        }
        attr
    }

    fn times(&self, node: &Node, attr: &mut Attr) {
        let Some(info) = node.kind.object().and_then(|id| self.connector.info(id).ok()) else { return };
        let [atime, mtime, ctime, btime] = info.times.map(|t| t.map(|s| SystemTime::UNIX_EPOCH + Duration::from_secs(u64::from(s))));
        // A header may record some only: the change time stands for a missing modification time.
        attr.mtime = mtime.or(ctime).unwrap_or(attr.mtime);
        attr.ctime = ctime.or(mtime).unwrap_or(attr.ctime);
        attr.atime = atime.or(mtime).unwrap_or(attr.atime);
        attr.btime = btime.or(mtime).unwrap_or(attr.btime);
        if let Some(stamps) = node.kind.object().filter(|_| self.changing).and_then(|id| self.changed.lock().peek(&id).copied()) {
            attr.mtime = stamps.mtime.unwrap_or(attr.mtime);
            attr.atime = stamps.atime.unwrap_or(attr.atime);
            attr.ctime = stamps.ctime;
        }
        if attr.kind == FileKind::Regular && !node.is_gone() {
            attr.nlink = info.links.max(1);
        }
    }

    fn sizes(&self, node: &Node, attr: &mut Attr) -> crate::base::Result<()> {
        if let Some(len) = self.side_len(node) {
            attr.size = len;
            return Ok(());
        }
        match &node.kind {
            NodeKind::Dataset(View::Main, id) if self.became_datatype(*id) => attr.size = self.connector.datatype_text(*id)?.len() as u64,
            NodeKind::Dataset(view, id) => {
                let content = self.connector.glance(*id, form(*view))?;
                attr.size = content.size()?;
                // A damaged chunk index: what it still leads to can be read.
                attr.blocks = match content.allocated() {
                    Ok(bytes) => bytes.div_ceil(BLOCK),
                    Err(e) => {
                        self.complain(Some(*id), &e);
                        0
                    }
                };
                attr.blksize = content.block_size();
                if *view == View::Npy {
                    let header = self.connector.npy_header(*id)?.map_or(0, |h| h.len() as u64);
                    attr.size = attr.size.saturating_add(header);
                }
            }
            NodeKind::Datatype(id) => attr.size = self.connector.datatype_text(*id)?.len() as u64,
            NodeKind::ChunkFile(id, scaled) => {
                let chunks = self.connector.chunks(*id)?;
                attr.size = chunks.map(|c| c.stored_len(scaled)).transpose()?.flatten().unwrap_or(0);
                attr.blocks = attr.size.div_ceil(BLOCK);
            }
            NodeKind::AttrFile(id, _) => {
                attr.size = self.connector.attribute_raw(*id, &attribute_name(node))?.map_or(0, |v| v.len() as u64)
            }
            NodeKind::Symlink(_) => attr.size = self.target(node)?.len() as u64,
            NodeKind::Broken(_) => attr.perm = 0,
            NodeKind::Group(..)
            | NodeKind::Unknown(_)
            | NodeKind::Control
            | NodeKind::Status
            | NodeKind::ChunkDir(_)
            | NodeKind::AttrDir(_) => {}
        }
        Ok(())
    }

    /// Where the symbolic link `node` leads. In a container that is changed that depends on where it is now.
    fn target(&self, node: &Node) -> crate::base::Result<Vec<u8>> {
        let NodeKind::Symlink(target) = &node.kind else { return Ok(Vec::new()) };
        let place = node.place();
        if let Some(parent) = place.parent.filter(|_| self.changing && !node.is_gone())
            && let Some(Child { kind: NodeKind::Symlink(now), .. }) = self.tree().lookup(&parent, &place.name)?
        {
            return Ok(now.to_vec());
        }
        Ok(target.to_vec())
    }

    /// The entry `name` of `dir`, with one reference more.
    pub(super) fn entry_in(&self, dir: &Arc<Node>, name: &[u8]) -> FsResult<Entry> {
        let child = self.tree().lookup(dir, name).map_err(|e| self.failed(dir.kind.object(), &e))?;
        let (_, node) = child.ok_or(Errno(libc::ENOENT))?.node(dir);
        let node = self.enter(node);
        Ok(self.entry(&node))
    }

    pub(super) fn entry(&self, node: &Node) -> Entry {
        Entry { attr: self.attr(node), generation: 0, volatile: self.changing && node.kind.is_view() }
    }

    /// Children from `offset` on, after `.` and `..`.
    pub(super) fn list(&self, dir: &Arc<Node>, offset: u64, f: &mut dyn FnMut(Child, u64) -> ControlFlow<()>) -> FsResult<()> {
        let start = offset.saturating_sub(FIRST);
        let all = self.tree().list(dir, start, &mut |child, next| f(child, next.saturating_add(FIRST)));
        all.map_err(|e| self.failed(dir.kind.object(), &e))
    }
}

impl Failures for ContainerFs {
    fn note(&self, id: ObjectId, error: &crate::base::Error) {
        self.complain(Some(id), error);
    }
}

/// Offsets 1 and 2 follow `.` and `..`.
const FIRST: u64 = 2;

/// The form of a dataset that `view` shows.
pub(super) fn form(view: View) -> Form {
    match view {
        View::Exact | View::Npy => Form::Exact,
        View::Main | View::Chunks | View::Attrs => Form::Main,
    }
}

fn kind_of(kind: &NodeKind) -> FileKind {
    match kind {
        k if k.is_directory() => FileKind::Directory,
        NodeKind::Symlink(_) => FileKind::Symlink,
        _ => FileKind::Regular,
    }
}

impl Operations for ContainerFs {
    fn lookup(&self, parent: Ino, name: &[u8]) -> FsResult<Entry> {
        if name.len() > super::name::NAME_MAX {
            return Err(Errno(libc::ENAMETOOLONG));
        }
        let _steady = self.steady();
        self.whole(|| self.entry_in(&self.directory(parent)?, name), |e| self.forget(e.attr.ino, 1))
    }

    fn forget(&self, ino: Ino, count: u64) {
        if self.nodes.forget(ino, count) {
            self.forget_replaced(ino);
        }
    }

    fn getattr(&self, ino: Ino) -> FsResult<Attr> {
        let _steady = self.steady();
        let attr = || {
            // What others removed has no attributes any more; what was removed here is still open.
            let node = if self.changing { self.node(ino) } else { self.living(ino) }?;
            Ok(self.attr(&node))
        };
        self.whole(attr, |_| ())
    }

    fn readlink(&self, ino: Ino) -> FsResult<Vec<u8>> {
        let _steady = self.steady();
        let read = || {
            let node = self.living(ino)?;
            match &node.kind {
                NodeKind::Symlink(_) => self.target(&node).map_err(|e| self.failed(None, &e)),
                _ => Err(Errno(libc::EINVAL)),
            }
        };
        self.whole(read, |_| ())
    }

    fn open(&self, ino: Ino, mode: OpenMode) -> FsResult<Opened> {
        let _steady = self.steady();
        self.whole(|| self.open_node(&self.living(ino)?, mode), |opened| self.release(ino, opened.handle))
    }

    fn read(&self, ino: Ino, handle: Handle, offset: u64, buf: &mut [u8]) -> FsResult<usize> {
        self.readable(|| {
            let file = self.file_of(ino, handle)?;
            if let Some(read) = self.side_read(&file, offset, buf) {
                return read;
            }
            file.read(offset, buf).map_err(|e| self.failed(self.nodes.get(ino).and_then(|n| n.kind.object()), &e))
        })
    }

    fn pad(&self, handle: Handle, offset: u64, buf: &mut [u8]) -> bool {
        let file = self.handles.read().get(&handle.0).cloned();
        file.is_some_and(|file| file.pad(offset, buf))
    }

    fn release(&self, _ino: Ino, handle: Handle) {
        let file = self.handles.write().remove(&handle.0);
        if let Some(file) = file {
            self.release_file(&file);
        }
    }

    fn opendir(&self, ino: Ino) -> FsResult<Handle> {
        let _steady = self.steady();
        self.open_directory(ino)
    }

    fn readdir(&self, ino: Ino, handle: Handle, offset: u64, f: &mut dyn FnMut(DirEntry<'_>) -> ControlFlow<()>) -> FsResult<()> {
        let _steady = self.steady();
        let dir = self.directory(ino)?;
        for (name, at, ino) in [(&b"."[..], 0, dir.ino), (b"..", 1, dir.parent().map_or(dir.ino, |p| p.ino))] {
            if offset <= at && f(DirEntry { ino, kind: FileKind::Directory, name, next: at.saturating_add(1) }).is_break() {
                return Ok(());
            }
        }
        self.list_open(handle, &dir, offset, &mut |child, next| {
            let kind = kind_of(&child.kind);
            let (name, node) = child.node(&dir);
            self.find_outdated(&node);
            f(DirEntry { ino: self.nodes.number_of(&node), kind, name: &name, next })
        })
    }

    fn readdirplus(&self, ino: Ino, handle: Handle, offset: u64, f: &mut dyn FnMut(DirEntryPlus<'_>) -> ControlFlow<()>) -> FsResult<()> {
        let _steady = self.steady();
        self.list_whole(ino, handle, offset, f)
    }

    fn releasedir(&self, _ino: Ino, handle: Handle) {
        self.close_directory(handle);
    }

    fn getxattr(&self, ino: Ino, name: &[u8]) -> FsResult<Vec<u8>> {
        let _steady = self.steady();
        let get = || {
            let node = self.living(ino)?;
            xattr::get(&*self.connector, &self.cut_names, &node, name, &|e| self.failed(node.kind.object(), e))
        };
        self.whole(get, |_| ())
    }

    fn listxattr(&self, ino: Ino) -> FsResult<Vec<u8>> {
        let _steady = self.steady();
        let list = || {
            let node = self.living(ino)?;
            xattr::list(&*self.connector, &node, &|e| self.failed(node.kind.object(), e))
        };
        self.whole(list, |_| ())
    }

    fn lseek(&self, ino: Ino, handle: Handle, offset: u64, whence: Whence) -> FsResult<u64> {
        let what = match whence {
            Whence::Data => Seek::Data,
            Whence::Hole => Seek::Hole,
        };
        let found = self.readable(|| self.file_of(ino, handle)?.seek(offset, what).map_err(|e| self.failed(None, &e)))?;
        found.ok_or(Errno(libc::ENXIO))
    }

    fn statfs(&self) -> FsResult<Statfs> {
        let (len, free) = self.room.as_ref().and_then(|r| r()).unwrap_or_else(|| (self.backing().len, 0));
        // Only what can be used counts as free.
        let free = if self.changing { free.div_ceil(BLOCK) } else { 0 };
        let blocks = len.div_ceil(BLOCK).saturating_add(free);
        Ok(Statfs { block_size: BLOCK as u32, blocks, free, files: 0, name_max: super::name::NAME_MAX as u32 })
    }

    fn is_writable(&self) -> bool {
        self.changing
    }

    fn look(&self, kernel: &dyn KernelMemory) {
        self.tell_changes(kernel);
    }

    fn write(&self, ino: Ino, handle: Handle, offset: u64, data: &[u8], now: OpenMode) -> FsResult<usize> {
        let file = self.handles.read().get(&handle.0).cloned().ok_or(Errno(libc::EBADF))?;
        let end = self.padded_end(&file);
        let written = self.write_file(&file, offset, data, now)?;
        self.note_skipped(&file, end, offset);
        file.note_written();
        self.sync_written(ino, &file, now)?;
        Ok(written)
    }

    fn changed_elsewhere(&self) -> Vec<Ino> {
        std::mem::take(&mut *self.elsewhere.lock())
    }

    fn hidden(&self, handle: Handle) -> Option<Hidden> {
        self.hidden_by(handle)
    }

    fn pages_dropped(&self, handle: Handle) {
        self.note_dropped(handle)
    }

    fn skipped(&self, handle: Handle) -> Option<u64> {
        self.take_skipped(handle)
    }

    fn setattr(&self, ino: Ino, changes: &Changes) -> FsResult<Attr> {
        let _steady = self.steady();
        self.change_attributes(&*self.living(ino)?, changes)
    }

    fn create(&self, parent: Ino, name: &[u8], mode: OpenMode, exclusive: bool) -> FsResult<(Entry, Opened)> {
        let _alone = self.alone(&[parent]);
        self.create_open(parent, name, mode, exclusive)
    }

    fn mknod(&self, parent: Ino, name: &[u8]) -> FsResult<Entry> {
        let _alone = self.alone(&[parent]);
        self.make_file(parent, &self.spot(parent, name)?).map(|(entry, _)| entry)
    }

    fn mkdir(&self, parent: Ino, name: &[u8]) -> FsResult<Entry> {
        let _alone = self.alone(&[parent]);
        self.make(parent, name, |edit, group, name| edit.create_group(group, name).map(|id| Some(NodeKind::Group(View::Main, id))))
    }

    fn unlink(&self, parent: Ino, name: &[u8]) -> FsResult<()> {
        let _alone = self.alone(&[parent]);
        self.remove(parent, name, false)
    }

    fn rmdir(&self, parent: Ino, name: &[u8]) -> FsResult<()> {
        let _alone = self.alone(&[parent]);
        self.remove(parent, name, true)
    }

    fn rename(&self, from: (Ino, &[u8]), to: (Ino, &[u8]), flags: u32) -> FsResult<()> {
        let _alone = self.alone(&[from.0, to.0]);
        self.move_name(from, to, flags)
    }

    fn link(&self, ino: Ino, parent: Ino, name: &[u8]) -> FsResult<Entry> {
        let _alone = self.alone(&[parent]);
        self.add_name(ino, parent, name)
    }

    fn symlink(&self, parent: Ino, name: &[u8], target: &[u8]) -> FsResult<Entry> {
        let _alone = self.alone(&[parent]);
        self.make_symlink(parent, name, target)
    }

    fn setxattr(&self, ino: Ino, name: &[u8], value: &[u8], flags: i32) -> FsResult<()> {
        xattr::ours(name)?;
        let _alone = self.alone(&[ino]);
        self.change_xattr(&*self.living(ino)?, name, |target| target.set(name, value, flags))
    }

    fn removexattr(&self, ino: Ino, name: &[u8]) -> FsResult<()> {
        xattr::ours(name)?;
        let _alone = self.alone(&[ino]);
        let node = self.living(ino)?;
        self.change_xattr(&node, name, |target| target.remove(name))?;
        node.kind.object().into_iter().for_each(|id| self.attribute_removed(id));
        Ok(())
    }

    fn fallocate(&self, _ino: Ino, handle: Handle, offset: u64, len: u64, mode: i32) -> FsResult<()> {
        self.allocate(handle, offset, len, mode)
    }

    fn copy_range(&self, from: (Handle, u64), to: (Handle, u64), len: u64) -> FsResult<u64> {
        self.copy_between(from, to, len)
    }

    fn commit(&self) -> FsResult<()> {
        self.commit_changes(false)
    }

    fn flush(&self, ino: Ino, handle: Handle) -> FsResult<()> {
        self.finish_of(handle)?;
        let wrote = self.handles.read().get(&handle.0).is_some_and(|file| file.take_written());
        if wrote && self.spec.commit_on_close {
            self.commit_changes(true)?;
        }
        if wrote { self.tell_lost(self.nodes.get(ino)) } else { Ok(()) }
    }

    fn fsync(&self, ino: Ino) -> FsResult<()> {
        let node = self.nodes.get(ino);
        node.as_ref().map_or(Ok(()), |n| self.side_finish(n))?;
        self.finish(node.as_ref().and_then(|n| n.kind.object()), false)?;
        self.commit_changes(true)?;
        self.tell_lost(node)
    }

    fn shutdown(&self) -> Result<(), super::CloseError> {
        self.end()
    }
}
