//! Walks a file system through `fs::Operations` as a curious user would, within bounds: every view,
//! every attribute, some bytes of every file. Shared by tests/mutants and fuzz/.

use h5dir::connector::Connector;
use h5dir::connector::native::kind::over;
use h5dir::dataset::environment::Environment;
use h5dir::file::memory::MemoryFile;
use h5dir::fs::open::show;
use h5dir::fs::types::ROOT;
use h5dir::fs::{Errno, FileKind, FsResult, Ino, MountSpec, OpenMode, Operations, Whence};
use h5dir::present::References;
use std::collections::HashSet;
use std::ops::ControlFlow;
use std::sync::Arc;

/// Bytes of references that are made.
const REFERENCES_BYTES: usize = 4 << 20;

/// Bounds of one walk.
#[derive(Clone, Copy)]
pub struct Bounds {
    /// Files and directories visited.
    pub nodes: usize,
    /// Directories below one another.
    pub depth: usize,
    /// Names taken from one directory.
    pub names: usize,
    /// Extended attributes read of one file.
    pub xattrs: usize,
    /// Bytes of one read.
    pub read: usize,
    /// Views of datasets as text and as Zarr are walked, too, which cost more than all others.
    pub texts: bool,
}

impl Bounds {
    /// What a mutant gets.
    pub const SMALL: Bounds = Bounds { nodes: 220, depth: 9, names: 60, xattrs: 40, read: 8192, texts: false };
}

/// What a walk met.
#[derive(Debug, Default, Clone, Copy)]
pub struct Seen {
    /// Files and directories.
    pub nodes: u64,
    /// Operations that failed with an errno.
    pub errors: u64,
    /// Bytes read.
    pub bytes: u64,
    /// Names that were listed and then not found.
    pub lost: u64,
}

/// Opens `bytes` as a file and walks it; `None` when it cannot be opened.
pub fn open_and_walk(bytes: &[u8], environment: Arc<Environment>, bounds: Bounds) -> Option<Seen> {
    let container = over(Arc::new(MemoryFile::new(bytes)), environment).ok()?;
    if bounds.texts {
        references(&container.connector);
    }
    let spec = MountSpec { vds_missing_fill: true, ..MountSpec::new("memory") };
    let fs = show(container, spec).ok()?;
    Some(walk(&*fs, bounds))
}

/// Makes the references of `h5dir kerchunk`, as far as they are not long: a view has them where the
/// container is a file.
fn references(connector: &Arc<dyn Connector>) {
    let mut references = References::new(connector.clone(), connector.root(), b"file".to_vec(), <[u8]>::to_vec);
    let mut bytes = 0;
    while let Ok(Some(piece)) = references.next_piece() {
        bytes += piece.len();
        if bytes > REFERENCES_BYTES {
            break;
        }
    }
}

struct Walk<'a> {
    fs: &'a dyn Operations,
    bounds: Bounds,
    seen: Seen,
    todo: Vec<(Ino, usize)>,
    buffer: Vec<u8>,
}

/// Walks `fs`.
pub fn walk(fs: &dyn Operations, bounds: Bounds) -> Seen {
    let mut w = Walk { fs, bounds, seen: Seen::default(), todo: vec![(ROOT, 0)], buffer: vec![0; bounds.read] };
    if let Ok(control) = fs.lookup(ROOT, b".h5dir") {
        let texts: &[&str] = if bounds.texts { &["arrow", "csv", "images", "jsonl", "zarr", "zarr2"] } else { &[] };
        for view in ["README", "attrs", "chunks", "defined", "exact", "json", "log", "metrics", "npy", "status"].iter().chain(texts) {
            match fs.lookup(control.attr.ino, view.as_bytes()) {
                Ok(e) if e.attr.kind == FileKind::Directory => w.todo.insert(0, (e.attr.ino, 0)),
                Ok(e) => w.file(e.attr.ino, e.attr.size),
                Err(e) => panic!("view {view}: {e:?}"),
            }
        }
    }
    // The main tree first, then the views, each with a share of the nodes.
    let share = bounds.nodes / 2;
    let mut spent = 0;
    while let Some((dir, depth)) = w.todo.pop() {
        if depth == 0 {
            spent = 0;
        }
        if spent < share && w.seen.nodes < (bounds.nodes * 3) as u64 {
            let before = w.seen.nodes;
            w.directory(dir, depth);
            spent += usize::try_from(w.seen.nodes - before).unwrap_or(usize::MAX);
        }
    }
    let _ = fs.statfs();
    w.seen
}

impl Walk<'_> {
    fn note<T>(&mut self, result: FsResult<T>) -> Option<T> {
        match result {
            Ok(t) => Some(t),
            Err(e) => {
                assert!(e.0 > 0 && e.0 < 134, "errno {}", e.0);
                self.seen.errors += 1;
                None
            }
        }
    }

    fn directory(&mut self, dir: Ino, depth: usize) {
        self.xattrs(dir);
        let Some(handle) = self.note(self.fs.opendir(dir)) else { return };
        let (mut offset, mut names, mut entries) = (0u64, HashSet::new(), Vec::new());
        // Slices of a few names each, resumed as the kernel does.
        for slice in 0.. {
            let mut left = 7;
            let before = entries.len();
            let result = self.fs.readdirplus(dir, handle, offset, &mut |e| {
                if left == 0 {
                    return ControlFlow::Break(());
                }
                left -= 1;
                assert!(e.next > offset, "offset {} after {offset}", e.next);
                offset = e.next;
                check_name(e.name);
                if !matches!(e.name, b"." | b"..") {
                    entries.push((e.name.to_vec(), e.entry.attr));
                }
                ControlFlow::Continue(())
            });
            if self.note(result).is_none() || (entries.len() == before && slice > 0) || entries.len() >= self.bounds.names {
                break;
            }
        }
        self.fs.releasedir(dir, handle);
        for (name, attr) in entries {
            if self.seen.nodes >= (self.bounds.nodes * 3) as u64 {
                break;
            }
            self.seen.nodes += 1;
            if !names.insert(name.clone()) {
                self.seen.lost += 1;
            }
            match self.fs.lookup(dir, &name) {
                Ok(e) if e.attr.kind == attr.kind => self.fs.forget(e.attr.ino, 1),
                Ok(_) => self.seen.lost += 1,
                Err(_) => {
                    self.seen.lost += 1;
                    self.seen.errors += 1;
                }
            }
            match attr.kind {
                FileKind::Directory if depth < self.bounds.depth => self.todo.push((attr.ino, depth + 1)),
                FileKind::Directory => {}
                FileKind::Symlink => self.symlink(attr.ino, depth),
                FileKind::Regular => self.file(attr.ino, attr.size),
            }
        }
    }

    fn symlink(&mut self, ino: Ino, depth: usize) {
        let _ = self.note(self.fs.getattr(ino));
        let Some(target) = self.note(self.fs.readlink(ino)) else { return };
        assert!(!target.is_empty() && target.len() < 4096 && target[0] != b'/' && !target.contains(&0), "target {target:?}");
        // Every `..` leads up from the link's own directory and stands in front.
        let ups = target.split(|b| *b == b'/').filter(|c| *c == b"..").count();
        assert!(ups <= depth, "{} leads out of the mount from depth {depth}", String::from_utf8_lossy(&target));
    }

    fn xattrs(&mut self, ino: Ino) {
        let Some(names) = self.note(self.fs.listxattr(ino)) else { return };
        assert!(names.len() <= 65536 && names.last().is_none_or(|b| *b == 0));
        for name in names.split(|b| *b == 0).filter(|n| !n.is_empty()).take(self.bounds.xattrs) {
            assert!(name.starts_with(b"user.") && name.len() <= 255, "{name:?}");
            if let Some(value) = self.note(self.fs.getxattr(ino, name)) {
                assert!(value.len() <= 65536);
            }
        }
    }

    fn file(&mut self, ino: Ino, size: u64) {
        self.xattrs(ino);
        let _ = self.note(self.fs.getattr(ino));
        let Some(open) = self.note(self.fs.open(ino, OpenMode { read: true, ..OpenMode::default() })) else { return };
        let n = self.buffer.len() as u64;
        for offset in [0, size / 2, size.saturating_sub(n)] {
            let mut buffer = std::mem::take(&mut self.buffer);
            if let Some(got) = self.note(self.fs.read(ino, open.handle, offset, &mut buffer)) {
                let want = size.saturating_sub(offset).min(n);
                assert!(open.direct_io || got as u64 == want, "{got} bytes at {offset} of {size}");
                self.seen.bytes += got as u64;
            }
            self.buffer = buffer;
            for whence in [Whence::Data, Whence::Hole] {
                let found = self.fs.lseek(ino, open.handle, offset, whence);
                // ENXIO is the answer where there is no more data.
                if found != Err(Errno(libc::ENXIO))
                    && let Some(at) = self.note(found)
                {
                    assert!(open.direct_io || (at >= offset && at <= size.max(offset)), "{at} after {offset} of {size}");
                }
            }
        }
        self.fs.release(ino, open.handle);
    }
}

fn check_name(name: &[u8]) {
    let ok = !name.is_empty() && name.len() <= 255 && !name.contains(&b'/') && !name.contains(&0);
    assert!(ok, "name {:?}", String::from_utf8_lossy(name));
}
