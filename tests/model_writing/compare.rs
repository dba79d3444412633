//! Both trees, walked side by side.

use super::operations::Tree;
use super::side::{Side, kind};
use h5dir::fs::types::{Handle, Ino, ROOT};
use h5dir::fs::{Attr, FileKind, OpenMode, Operations, Whence};
use std::collections::BTreeMap;
use std::ops::ControlFlow;

type Wrong = Result<(), String>;

fn same<T: PartialEq + std::fmt::Debug>(path: &str, what: &str, file: T, model: T) -> Wrong {
    if file == model {
        return Ok(());
    }
    Err(format!("{what} of /{path}: the file has {file:.600?}, the model {model:.600?}"))
}

fn names(side: &Side, dir: Ino) -> Vec<(String, FileKind, Ino)> {
    let mut out = Vec::new();
    side.fs
        .readdir(dir, Handle(0), 2, &mut |e| {
            out.push((String::from_utf8_lossy(e.name).into_owned(), e.kind, e.ino));
            ControlFlow::Continue(())
        })
        .unwrap();
    out.sort_by(|a, b| a.0.cmp(&b.0));
    out
}

/// Attributes but not the derived facts.
fn xattrs(side: &Side, ino: Ino) -> Result<BTreeMap<String, Vec<u8>>, String> {
    let list = side.fs.listxattr(ino).map_err(|e| format!("listxattr: {e:?}"))?;
    let names = list.split(|b| *b == 0).filter(|n| !n.is_empty() && !n.starts_with(b"user.h5dir."));
    let value = |n: &[u8]| side.fs.getxattr(ino, n).map_err(|e| format!("getxattr {}: {e:?}", String::from_utf8_lossy(n)));
    let shown = |n: &[u8]| value(n).map(|v| if super::netcdf::tells_names(n) { Vec::new() } else { v });
    names.map(|n| Ok((String::from_utf8_lossy(n).into_owned(), shown(n)?))).collect()
}

fn read(side: &Side, ino: Ino, offset: u64, len: usize) -> Result<Vec<u8>, i32> {
    let opened = side.fs.open(ino, OpenMode { read: true, ..OpenMode::default() }).map_err(|e| e.0)?;
    let mut bytes = vec![0x55; len];
    let n = side.fs.read(ino, opened.handle, offset, &mut bytes);
    side.fs.release(ino, opened.handle);
    bytes.truncate(n.map_err(|e| e.0)?);
    Ok(bytes)
}

/// What is said to be a hole must read as zeros; what has data takes room.
fn holes(path: &str, side: &Side, ino: Ino, attr: &Attr, bytes: &[u8]) -> Wrong {
    let opened = side.fs.open(ino, OpenMode { read: true, ..OpenMode::default() }).unwrap();
    let (mut at, mut wrong, mut data) = (0u64, Ok(()), 0u64);
    for _ in 0..10_000 {
        let next = side.fs.lseek(ino, opened.handle, at, Whence::Data);
        let from = next.map_or(bytes.len() as u64, |n| n);
        if from < at || bytes[at as usize..from as usize].iter().any(|b| *b != 0) {
            wrong = Err(format!("/{path}: bytes {at}..{from} are no hole"));
        }
        if next.is_err() || wrong.is_err() {
            break;
        }
        let hole = side.fs.lseek(ino, opened.handle, from, Whence::Hole).unwrap();
        if hole <= from || hole > bytes.len() as u64 {
            wrong = Err(format!("/{path}: a hole at {hole} after data at {from} of {} bytes", bytes.len()));
            break;
        }
        data += hole - from;
        at = hole;
        if at == bytes.len() as u64 {
            break;
        }
    }
    side.fs.release(ino, opened.handle);
    let fill = side.fs.getxattr(ino, b"user.h5dir.fillvalue").unwrap_or_default();
    if data > 0 && attr.blocks == 0 && fill == b"0" {
        return Err(format!("/{path}: {data} bytes of data in no blocks"));
    }
    wrong
}

struct Walk<'a> {
    file: &'a Side,
    model: &'a Side,
    /// Inode numbers: two paths have one in both or in neither.
    inodes: [BTreeMap<Ino, Ino>; 2],
    tree: Tree,
}

impl Walk<'_> {
    fn entry(&mut self, path: &str, a: &Attr, b: &Attr) -> Wrong {
        let facts = |a: &Attr| (kind(a.kind), a.nlink, a.size, a.perm);
        same(path, "kind, names, size, mode", facts(a), facts(b))?;
        same(path, "inode", *self.inodes[0].entry(a.ino).or_insert(b.ino), b.ino)?;
        same(path, "inode in the model", *self.inodes[1].entry(b.ino).or_insert(a.ino), a.ino)?;
        self.tree.all.push((path.to_owned(), a.kind, a.size));
        if a.kind == FileKind::Symlink {
            return same(path, "target", self.file.fs.readlink(a.ino), self.model.fs.readlink(b.ino));
        }
        let attributes = xattrs(self.file, a.ino).map_err(|e| format!("/{path}: {e}"))?;
        same(path, "attributes", &attributes, &xattrs(self.model, b.ino)?)?;
        self.tree.xattrs.push((path.to_owned(), attributes.into_keys().collect()));
        if a.kind == FileKind::Directory {
            return self.directory(path, a.ino, b.ino);
        }
        let bytes = read(self.file, a.ino, 0, a.size as usize + 7);
        let wanted = read(self.model, b.ino, 0, b.size as usize + 7);
        if bytes != wanted {
            let at = bytes.iter().flatten().zip(wanted.iter().flatten()).position(|(a, b)| a != b);
            let show = |r: Result<Vec<u8>, i32>| r.map(|b| b.into_iter().skip(at.unwrap_or(0)).take(20).collect::<Vec<_>>());
            return same(path, &format!("bytes from {at:?}"), show(bytes), show(wanted));
        }
        let bytes = bytes.unwrap();
        let (from, len) = (bytes.len() / 3, bytes.len() / 2);
        same(path, "some bytes", read(self.file, a.ino, from as u64, len), Ok(bytes[from..from + len].to_vec()))?;
        holes(path, self.file, a.ino, a, &bytes)
    }

    fn directory(&mut self, path: &str, a: Ino, b: Ino) -> Wrong {
        let (there, wanted) = (names(self.file, a), names(self.model, b));
        let of = |all: &[(String, FileKind, Ino)]| all.iter().map(|(n, k, _)| (n.clone(), kind(*k))).collect::<Vec<_>>();
        same(path, "names", of(&there), of(&wanted))?;
        for (name, _, listed) in there {
            let below = if path.is_empty() { name.clone() } else { format!("{path}/{name}") };
            let found = (self.file.fs.lookup(a, name.as_bytes()), self.model.fs.lookup(b, name.as_bytes()));
            let (Ok(a), Ok(b)) = found else { return Err(format!("/{below}: {found:?}")) };
            let wrong = same(&below, "listed inode", listed, a.attr.ino).and_then(|()| self.entry(&below, &a.attr, &b.attr));
            self.file.fs.forget(a.attr.ino, 1);
            self.model.fs.forget(b.attr.ino, 1);
            wrong?;
        }
        Ok(())
    }
}

/// What is there, if both have the same.
pub fn trees(file: &Side, model: &Side) -> Result<Tree, String> {
    let tree = Tree { all: Vec::new(), xattrs: Vec::new() };
    let mut walk = Walk { file, model, inodes: Default::default(), tree };
    let (a, b) = (file.fs.getattr(ROOT).unwrap(), model.fs.getattr(ROOT).unwrap());
    walk.entry("", &a, &b)?;
    Ok(walk.tree)
}
