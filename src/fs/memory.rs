//! A file system of bytes in memory: the fixture of the mount tests and the baseline of the
//! benchmarks (what the FUSE adapter costs when the file system itself costs nothing). No HDF5.
//!
//! The tree is built first and is immutable afterwards, so no operation takes a lock.

use super::done::Invalidate;
use super::operations::Operations;
use super::types::{Attr, DirEntry, DirEntryPlus, Entry, Errno, FileKind, FsResult, Handle, Ino, OpenMode, Opened, ROOT, Statfs, Whence};
use std::collections::{BTreeMap, HashMap};
use std::ops::ControlFlow;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// All times shown, 2024-01-01 00:00 UTC: each run shows the same tree.
const EPOCH_SECONDS: u64 = 1_704_067_200;

type Name = (Vec<u8>, Ino);
/// Takes name, inode and the offset after it.
type Visit<'a> = &'a mut dyn FnMut(&[u8], Ino, u64) -> FsResult<ControlFlow<()>>;

#[derive(Debug)]
enum Content {
    Directory { names: Vec<Name>, index: HashMap<Vec<u8>, Ino> },
    Regular(Vec<u8>),
    Symlink(Vec<u8>),
}

#[derive(Debug)]
struct Node {
    parent: Ino,
    content: Content,
    xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
}

/// The tree.
#[derive(Debug)]
pub struct MemoryFs {
    nodes: Vec<Node>,
    uid: u32,
    gid: u32,
    time: SystemTime,
}

impl Default for MemoryFs {
    fn default() -> Self {
        Self::new()
    }
}

impl MemoryFs {
    /// An empty root directory owned by the caller.
    pub fn new() -> Self {
        MemoryFs {
            nodes: vec![Node { parent: ROOT, content: empty_directory(), xattrs: BTreeMap::new() }],
            uid: nix::unistd::geteuid().as_raw(),
            gid: nix::unistd::getegid().as_raw(),
            time: UNIX_EPOCH + Duration::from_secs(EPOCH_SECONDS),
        }
    }

    /// One file `data` of `size` bytes: a running 64-bit counter, little endian.
    pub fn with_data_file(size: usize) -> FsResult<Self> {
        let mut data = Vec::new();
        data.try_reserve_exact(size).map_err(|_| Errno(libc::ENOMEM))?;
        data.extend((0u64..).flat_map(u64::to_le_bytes).take(size));
        let mut fs = Self::new();
        fs.add_file(ROOT, b"data", data)?;
        Ok(fs)
    }

    /// Adds a directory below `parent`.
    pub fn add_dir(&mut self, parent: Ino, name: &[u8]) -> FsResult<Ino> {
        self.add(parent, name, empty_directory())
    }

    /// Adds a file with the bytes `data`.
    pub fn add_file(&mut self, parent: Ino, name: &[u8], data: Vec<u8>) -> FsResult<Ino> {
        self.add(parent, name, Content::Regular(data))
    }

    /// Adds a symbolic link to `target`.
    pub fn add_symlink(&mut self, parent: Ino, name: &[u8], target: &[u8]) -> FsResult<Ino> {
        self.add(parent, name, Content::Symlink(target.to_vec()))
    }

    /// Sets an extended attribute (whole name, with its namespace).
    pub fn set_xattr(&mut self, ino: Ino, name: &[u8], value: &[u8]) -> FsResult<()> {
        let index = slot(ino).ok_or(Errno(libc::ENOENT))?;
        let node = self.nodes.get_mut(index).ok_or(Errno(libc::ENOENT))?;
        node.xattrs.insert(name.to_vec(), value.to_vec());
        Ok(())
    }

    fn add(&mut self, parent: Ino, name: &[u8], content: Content) -> FsResult<Ino> {
        let ino = Ino(self.nodes.len() as u64 + 1);
        let index = slot(parent).ok_or(Errno(libc::ENOENT))?;
        let Some(Node { content: Content::Directory { names, index }, .. }) = self.nodes.get_mut(index) else {
            return Err(Errno(libc::ENOTDIR));
        };
        if index.contains_key(name) {
            return Err(Errno(libc::EEXIST));
        }
        index.insert(name.to_vec(), ino);
        names.push((name.to_vec(), ino));
        self.nodes.push(Node { parent, content, xattrs: BTreeMap::new() });
        Ok(ino)
    }

    fn node(&self, ino: Ino) -> FsResult<&Node> {
        slot(ino).and_then(|i| self.nodes.get(i)).ok_or(Errno(libc::ENOENT))
    }

    fn bytes(&self, ino: Ino) -> FsResult<&[u8]> {
        match &self.node(ino)?.content {
            Content::Regular(data) => Ok(data),
            Content::Directory { .. } => Err(Errno(libc::EISDIR)),
            Content::Symlink(_) => Err(Errno(libc::EINVAL)),
        }
    }

    fn names(&self, ino: Ino) -> FsResult<(&Node, &[Name])> {
        let node = self.node(ino)?;
        match &node.content {
            Content::Directory { names, .. } => Ok((node, names)),
            _ => Err(Errno(libc::ENOTDIR)),
        }
    }

    fn attr(&self, ino: Ino, node: &Node) -> Attr {
        let (kind, perm, size) = match &node.content {
            Content::Directory { names, .. } => (FileKind::Directory, 0o555, names.len() as u64),
            Content::Regular(data) => (FileKind::Regular, 0o444, data.len() as u64),
            Content::Symlink(target) => (FileKind::Symlink, 0o777, target.len() as u64),
        };
        let blocks = if kind == FileKind::Regular { size.div_ceil(512) } else { 0 };
        Attr { size, blocks, uid: self.uid, gid: self.gid, ..Attr::empty(ino, kind, perm, self.time) }
    }

    /// Visits `.`, `..` and the names after `offset`; the offset after the k-th entry is k.
    fn entries(&self, ino: Ino, offset: u64, f: Visit<'_>) -> FsResult<()> {
        let (node, names) = self.names(ino)?;
        let skip = usize::try_from(offset).unwrap_or(usize::MAX);
        let dots: [(&[u8], Ino); 2] = [(b".", ino), (b"..", node.parent)];
        // Both halves skip in constant time, so that a listing in pieces stays linear.
        let dots = dots.iter().copied().skip(skip);
        let rest = names.get(skip.saturating_sub(2)..).unwrap_or_default().iter().map(|(name, ino)| (name.as_slice(), *ino));
        for (i, (name, ino)) in dots.chain(rest).enumerate() {
            if f(name, ino, offset + i as u64 + 1)?.is_break() {
                break;
            }
        }
        Ok(())
    }
}

/// Index of an inode number in the table.
fn slot(ino: Ino) -> Option<usize> {
    usize::try_from(ino.0.checked_sub(1)?).ok()
}

fn empty_directory() -> Content {
    Content::Directory { names: Vec::new(), index: HashMap::new() }
}

impl Operations for MemoryFs {
    fn lookup(&self, parent: Ino, name: &[u8]) -> FsResult<Entry> {
        let Content::Directory { index, .. } = &self.node(parent)?.content else {
            return Err(Errno(libc::ENOTDIR));
        };
        let ino = *index.get(name).ok_or(Errno(libc::ENOENT))?;
        Ok(Entry { attr: self.getattr(ino)?, generation: 0, volatile: false })
    }

    fn forget(&self, _ino: Ino, _count: u64) {}

    fn getattr(&self, ino: Ino) -> FsResult<Attr> {
        Ok(self.attr(ino, self.node(ino)?))
    }

    fn readlink(&self, ino: Ino) -> FsResult<Vec<u8>> {
        match &self.node(ino)?.content {
            Content::Symlink(target) => Ok(target.clone()),
            _ => Err(Errno(libc::EINVAL)),
        }
    }

    fn open(&self, ino: Ino, _mode: OpenMode) -> FsResult<Opened> {
        self.bytes(ino)?;
        Ok(Opened { handle: Handle(ino.0), keep_cache: true, direct_io: false, no_flush: true })
    }

    fn read(&self, ino: Ino, _handle: Handle, offset: u64, buf: &mut [u8]) -> FsResult<usize> {
        let data = self.bytes(ino)?;
        let rest = usize::try_from(offset).ok().and_then(|start| data.get(start..)).unwrap_or_default();
        let n = rest.len().min(buf.len());
        if let (Some(to), Some(from)) = (buf.get_mut(..n), rest.get(..n)) {
            to.copy_from_slice(from);
        }
        Ok(n)
    }

    fn release(&self, _ino: Ino, _handle: Handle) -> Invalidate {
        Invalidate::default()
    }

    fn opendir(&self, ino: Ino) -> FsResult<Handle> {
        self.names(ino)?;
        Ok(Handle(ino.0))
    }

    fn readdir(&self, ino: Ino, _handle: Handle, offset: u64, f: &mut dyn FnMut(DirEntry<'_>) -> ControlFlow<()>) -> FsResult<()> {
        self.entries(ino, offset, &mut |name, ino, next| {
            let kind = self.getattr(ino)?.kind;
            Ok(f(DirEntry { ino, kind, name, next }))
        })
    }

    fn readdirplus(&self, ino: Ino, _handle: Handle, offset: u64, f: &mut dyn FnMut(DirEntryPlus<'_>) -> ControlFlow<()>) -> FsResult<()> {
        self.entries(ino, offset, &mut |name, ino, next| {
            let entry = Entry { attr: self.getattr(ino)?, generation: 0, volatile: false };
            Ok(f(DirEntryPlus { name, entry, next }))
        })
    }

    fn releasedir(&self, _ino: Ino, _handle: Handle) {}

    fn getxattr(&self, ino: Ino, name: &[u8]) -> FsResult<Vec<u8>> {
        self.node(ino)?.xattrs.get(name).cloned().ok_or(Errno(libc::ENODATA))
    }

    fn listxattr(&self, ino: Ino) -> FsResult<Vec<u8>> {
        Ok(self.node(ino)?.xattrs.keys().flat_map(|name| name.iter().copied().chain([0])).collect())
    }

    fn lseek(&self, ino: Ino, _handle: Handle, offset: u64, whence: Whence) -> FsResult<u64> {
        let size = self.bytes(ino)?.len() as u64;
        match whence {
            _ if offset >= size => Err(Errno(libc::ENXIO)),
            Whence::Data => Ok(offset),
            Whence::Hole => Ok(size),
        }
    }

    fn statfs(&self) -> FsResult<Statfs> {
        let bytes: u64 = self.nodes.iter().map(|node| if let Content::Regular(data) = &node.content { data.len() as u64 } else { 0 }).sum();
        Ok(Statfs { block_size: 4096, blocks: bytes.div_ceil(4096), free: 0, files: self.nodes.len() as u64, name_max: 255 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tree_is_walked_and_read() {
        let mut fs = MemoryFs::new();
        let dir = fs.add_dir(ROOT, b"d").unwrap();
        let file = fs.add_file(dir, b"f", b"hello".to_vec()).unwrap();
        fs.set_xattr(file, b"user.a", b"1").unwrap();
        assert_eq!(fs.add_file(dir, b"f", vec![]), Err(Errno(libc::EEXIST)));
        assert_eq!(fs.lookup(dir, b"f").unwrap().attr.size, 5);
        let mut buf = [0; 3];
        assert_eq!(fs.read(file, Handle(0), 3, &mut buf), Ok(2));
        assert_eq!(&buf[..2], b"lo");
        assert_eq!(fs.listxattr(file).unwrap(), b"user.a\0");
    }

    #[test]
    fn listing_resumes_at_every_offset() {
        let mut fs = MemoryFs::new();
        for name in [b"a", b"b", b"c"] {
            fs.add_file(ROOT, name, vec![]).unwrap();
        }
        let all: [&[u8]; 5] = [b".", b"..", b"a", b"b", b"c"];
        for start in 0..=6 {
            let mut seen = Vec::new();
            fs.readdir(ROOT, Handle(1), start, &mut |e| {
                seen.push((e.name.to_vec(), e.next));
                ControlFlow::Continue(())
            })
            .unwrap();
            let want: Vec<_> = all.iter().enumerate().skip(start as usize).map(|(i, n)| (n.to_vec(), i as u64 + 1)).collect();
            assert_eq!(seen, want, "from {start}");
        }
    }
}
