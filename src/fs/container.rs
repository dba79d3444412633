//! The file system of a container: [`Operations`] over a [`Connector`].

use super::cut_names::CutNames;
use super::errno::errno;
use super::file::OpenFile;
use super::nodes::{Node, NodeKind, NodeTable, View};
use super::spec::MountSpec;
use super::types::{Attr, DirEntry, DirEntryPlus, Entry, Errno, FileKind, Handle, Ino, OpenMode, Opened, Statfs, Whence};
use super::view::{Child, Failures, Tree};
use super::{FsResult, Operations, xattr};
use crate::connector::{Connector, Form, ObjectId};
use crate::dataset::storage::Seek;
use parking_lot::{Mutex, RwLock};
use std::collections::{HashMap, HashSet};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

/// Units of `st_blocks`.
const BLOCK: u64 = 512;
/// Objects whose failure was logged once.
const LOGGED_MAX: usize = 10_000;

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

/// See the module's description.
pub struct ContainerFs {
    connector: Arc<dyn Connector>,
    nodes: NodeTable,
    handles: RwLock<HashMap<u64, Arc<OpenFile>>>,
    next_handle: AtomicU64,
    spec: MountSpec,
    prefix: Vec<Vec<u8>>,
    backing: Backing,
    logged: Mutex<HashSet<ObjectId>>,
    cut_names: CutNames,
}

impl ContainerFs {
    /// The file system that shows the group `root` of `connector`, which lies at `prefix` in its file.
    pub fn new(connector: Arc<dyn Connector>, root: ObjectId, prefix: Vec<Vec<u8>>, backing: Backing, spec: MountSpec) -> Self {
        ContainerFs {
            connector,
            nodes: NodeTable::new(NodeKind::Group(View::Main, root)),
            handles: RwLock::new(HashMap::new()),
            next_handle: AtomicU64::new(1),
            spec,
            prefix,
            backing,
            logged: Mutex::new(HashSet::new()),
            cut_names: CutNames::new(),
        }
    }

    fn tree(&self) -> Tree<'_> {
        Tree {
            connector: &*self.connector,
            prefix: &self.prefix,
            root: self.nodes.root().kind.object(),
            cut_names: &self.cut_names,
            failures: self,
        }
    }

    fn node(&self, ino: Ino) -> FsResult<Arc<Node>> {
        self.nodes.get(ino).ok_or(Errno(libc::ESTALE))
    }

    fn directory(&self, ino: Ino) -> FsResult<Arc<Node>> {
        let node = self.node(ino)?;
        if node.kind.is_directory() { Ok(node) } else { Err(Errno(libc::ENOTDIR)) }
    }

    /// One log line per object that fails.
    fn complain(&self, id: Option<ObjectId>, e: &crate::base::Error) {
        if let Some(id) = id {
            let mut logged = self.logged.lock();
            if logged.len() >= LOGGED_MAX || !logged.insert(id) {
                return;
            }
        }
        let at = id.map(|id| format!(" (object at {} of file {})", id.address, id.file)).unwrap_or_default();
        tracing::error!("{}: {e}{at}", self.spec.file.display());
    }

    fn failed(&self, id: Option<ObjectId>, e: &crate::base::Error) -> Errno {
        self.complain(id, e);
        errno(e)
    }

    /// Attributes of a node. An object whose size cannot be told is shown as a broken one.
    fn attr(&self, node: &Node) -> Attr {
        let kind = match &node.kind {
            k if k.is_directory() => FileKind::Directory,
            NodeKind::Symlink(_) => FileKind::Symlink,
            _ => FileKind::Regular,
        };
        let perm = match kind {
            FileKind::Directory => self.spec.dir_mode,
            FileKind::Symlink => 0o777,
            FileKind::Regular => self.spec.file_mode,
        };
        let b = &self.backing;
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
        self.times(node, &mut attr);
        if let Err(e) = self.sizes(node, &mut attr) {
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
        if attr.kind == FileKind::Regular {
            attr.nlink = info.links.max(1);
        }
    }

    fn sizes(&self, node: &Node, attr: &mut Attr) -> crate::base::Result<()> {
        match &node.kind {
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
            NodeKind::AttrFile(id, name) => attr.size = self.connector.attribute_raw(*id, name)?.map_or(0, |v| v.len() as u64),
            NodeKind::Symlink(target) => attr.size = target.len() as u64,
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

    fn entry(&self, node: &Node) -> Entry {
        Entry { attr: self.attr(node), generation: 0 }
    }

    /// Children from `offset` on, after `.` and `..`.
    fn list(&self, dir: &Arc<Node>, offset: u64, f: &mut dyn FnMut(Child, u64) -> ControlFlow<()>) -> FsResult<()> {
        let start = offset.saturating_sub(FIRST);
        let all = self.tree().list(dir, start, &mut |child, next| f(child, next.saturating_add(FIRST)));
        all.map_err(|e| self.failed(dir.kind.object(), &e))
    }

    fn status_text(&self) -> Vec<u8> {
        let env = self.connector.environment();
        let c = &env.cache.counters;
        let n = |a: &AtomicU64| a.load(Ordering::Relaxed);
        let rows = [
            ("cache_budget_bytes", env.cache.budget()),
            ("cache_bytes", env.cache.bytes()),
            ("cache_hits", n(&c.hits)),
            ("cache_waits", n(&c.waits)),
            ("cache_evictions", n(&c.evictions)),
            ("chunks_decoded", n(&c.decodes)),
            ("chunks_not_kept", n(&c.unkept)),
            ("spill_bytes", env.cache.spill().bytes()),
            ("spill_hits", n(&c.spill_hits)),
            ("inodes", self.nodes.len() as u64),
            ("open_files", self.handles.read().len() as u64),
        ];
        let mut out = format!("version {}\nfile {}\n", env!("CARGO_PKG_VERSION"), self.spec.file.display());
        for (name, value) in rows {
            out.push_str(&format!("{name} {value}\n"));
        }
        out.into_bytes()
    }

    fn open_kind(&self, kind: &NodeKind) -> crate::base::Result<Option<OpenFile>> {
        Ok(Some(match kind {
            NodeKind::Dataset(view, id) => {
                let content = self.connector.content(*id, form(*view))?;
                let header = if *view == View::Npy { self.connector.npy_header(*id)?.unwrap_or_default() } else { Vec::new() };
                OpenFile::content(header, content)
            }
            NodeKind::Datatype(id) => OpenFile::bytes(self.connector.datatype_text(*id)?),
            NodeKind::AttrFile(id, name) => OpenFile::bytes(self.connector.attribute_raw(*id, name)?.unwrap_or_default()),
            NodeKind::Status => OpenFile::bytes(self.status_text()),
            NodeKind::ChunkFile(id, scaled) => match self.connector.chunks(*id)? {
                Some(chunks) => OpenFile::chunk(chunks, scaled.clone()),
                None => return Ok(None),
            },
            NodeKind::Unknown(_) => OpenFile::bytes(Vec::new()),
            NodeKind::Broken(_) => return Ok(None),
            NodeKind::Group(..) | NodeKind::Symlink(_) | NodeKind::Control | NodeKind::ChunkDir(_) | NodeKind::AttrDir(_) => {
                return Ok(None);
            }
        }))
    }
}

impl Failures for ContainerFs {
    fn note(&self, id: ObjectId, error: &crate::base::Error) {
        self.complain(Some(id), error);
    }
}

/// Offsets 1 and 2 follow `.` and `..`.
const FIRST: u64 = 2;

fn form(view: View) -> Form {
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
        let dir = self.directory(parent)?;
        let child = self.tree().lookup(&dir, name).map_err(|e| self.failed(dir.kind.object(), &e))?;
        let (_, node) = child.ok_or(Errno(libc::ENOENT))?.node(&dir);
        let node = self.nodes.reference(node);
        Ok(self.entry(&node))
    }

    fn forget(&self, ino: Ino, count: u64) {
        self.nodes.forget(ino, count);
    }

    fn getattr(&self, ino: Ino) -> FsResult<Attr> {
        Ok(self.attr(&*self.node(ino)?))
    }

    fn readlink(&self, ino: Ino) -> FsResult<Vec<u8>> {
        match &self.node(ino)?.kind {
            NodeKind::Symlink(target) => Ok(target.to_vec()),
            _ => Err(Errno(libc::EINVAL)),
        }
    }

    fn open(&self, ino: Ino, mode: OpenMode) -> FsResult<Opened> {
        let node = self.node(ino)?;
        if node.kind.is_directory() {
            return Err(Errno(libc::EISDIR));
        }
        if mode.write {
            return Err(Errno(libc::EROFS));
        }
        let file = self.open_kind(&node.kind).map_err(|e| self.failed(node.kind.object(), &e))?;
        let file = file.ok_or(Errno(libc::EIO))?;
        let handle = self.next_handle.fetch_add(1, Ordering::Relaxed);
        self.handles.write().insert(handle, Arc::new(file));
        let live = node.kind == NodeKind::Status;
        Ok(Opened { handle: Handle(handle), keep_cache: !live, direct_io: live })
    }

    fn read(&self, ino: Ino, handle: Handle, offset: u64, buf: &mut [u8]) -> FsResult<usize> {
        let file = self.handles.read().get(&handle.0).cloned().ok_or(Errno(libc::EBADF))?;
        file.read(offset, buf).map_err(|e| self.failed(self.nodes.get(ino).and_then(|n| n.kind.object()), &e))
    }

    fn release(&self, _ino: Ino, handle: Handle) {
        self.handles.write().remove(&handle.0);
    }

    fn opendir(&self, ino: Ino) -> FsResult<Handle> {
        self.directory(ino).map(|_| Handle(0))
    }

    fn readdir(&self, ino: Ino, _handle: Handle, offset: u64, f: &mut dyn FnMut(DirEntry<'_>) -> ControlFlow<()>) -> FsResult<()> {
        let dir = self.directory(ino)?;
        for (name, at, ino) in [(&b"."[..], 0, dir.ino), (b"..", 1, dir.parent.as_ref().map_or(dir.ino, |p| p.ino))] {
            if offset <= at && f(DirEntry { ino, kind: FileKind::Directory, name, next: at.saturating_add(1) }).is_break() {
                return Ok(());
            }
        }
        self.list(&dir, offset, &mut |child, next| {
            let kind = kind_of(&child.kind);
            let (name, node) = child.node(&dir);
            f(DirEntry { ino: node.ino, kind, name: &name, next })
        })
    }

    fn readdirplus(&self, ino: Ino, _handle: Handle, offset: u64, f: &mut dyn FnMut(DirEntryPlus<'_>) -> ControlFlow<()>) -> FsResult<()> {
        let dir = self.directory(ino)?;
        for (name, at, node) in [(&b"."[..], 0, &dir), (b"..", 1, dir.parent.as_ref().unwrap_or(&dir))] {
            if offset <= at && f(DirEntryPlus { name, entry: self.entry(node), next: at.saturating_add(1) }).is_break() {
                return Ok(());
            }
        }
        self.list(&dir, offset, &mut |child, next| {
            let (name, node) = child.node(&dir);
            let node = self.nodes.reference(node);
            let flow = f(DirEntryPlus { name: &name, entry: self.entry(&node), next });
            if flow.is_break() {
                self.nodes.forget(node.ino, 1);
            }
            flow
        })
    }

    fn releasedir(&self, _ino: Ino, _handle: Handle) {}

    fn getxattr(&self, ino: Ino, name: &[u8]) -> FsResult<Vec<u8>> {
        let node = self.node(ino)?;
        xattr::get(&*self.connector, &self.cut_names, &node, name, &|e| self.failed(node.kind.object(), e))
    }

    fn listxattr(&self, ino: Ino) -> FsResult<Vec<u8>> {
        let node = self.node(ino)?;
        xattr::list(&*self.connector, &node, &|e| self.failed(node.kind.object(), e))
    }

    fn lseek(&self, _ino: Ino, handle: Handle, offset: u64, whence: Whence) -> FsResult<u64> {
        let file = self.handles.read().get(&handle.0).cloned().ok_or(Errno(libc::EBADF))?;
        let what = match whence {
            Whence::Data => Seek::Data,
            Whence::Hole => Seek::Hole,
        };
        let found = file.seek(offset, what).map_err(|e| self.failed(None, &e))?;
        found.ok_or(Errno(libc::ENXIO))
    }

    fn statfs(&self) -> FsResult<Statfs> {
        Ok(Statfs { block_size: BLOCK as u32, blocks: self.backing.len.div_ceil(BLOCK), files: 0, name_max: super::name::NAME_MAX as u32 })
    }
}
