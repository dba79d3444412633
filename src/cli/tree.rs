//! Path resolution in a file system that is not mounted.

use crate::fs::types::ROOT;
use crate::fs::{Attr, Errno, FileKind, FsResult, Ino, Operations};
use std::collections::VecDeque;
use std::ops::ControlFlow;

/// Most symbolic links followed for one path, as in the kernel.
const LINKS_MAX: usize = 40;

/// A directory entry with its attributes.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Named {
    /// File name.
    pub(crate) name: Vec<u8>,
    /// Attributes of the file.
    pub(crate) attr: Attr,
}

/// Where a path leads.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Located {
    /// The file.
    pub(crate) attr: Attr,
    /// Directory and name by which it was found; `None`: it is the root, or `..` led to it.
    pub(crate) found: Option<(Ino, Vec<u8>)>,
}

/// Resolves `path` from the root like the kernel does; does not follow a link at its end.
pub(crate) fn resolve(operations: &dyn Operations, path: &[u8]) -> FsResult<Attr> {
    Ok(locate(operations, path, false)?.attr)
}

/// Resolves `path` from the root like the kernel does; `follow`: also a link at its end. Adds a
/// lookup reference to each file on the way.
pub(crate) fn locate(operations: &dyn Operations, path: &[u8], follow: bool) -> FsResult<Located> {
    let mut pending: VecDeque<Vec<u8>> = components(path);
    let mut above = vec![ROOT];
    let mut here = Located { attr: operations.getattr(ROOT)?, found: None };
    let mut links = 0;
    while let Some(name) = pending.pop_front() {
        if here.attr.kind != FileKind::Directory {
            return Err(Errno(libc::ENOTDIR));
        }
        match name.as_slice() {
            b"." => continue,
            b".." => {
                // `..` of the root is the root.
                if above.len() > 1 {
                    above.pop();
                }
                here = Located { attr: operations.getattr(above.last().copied().unwrap_or(ROOT))?, found: None };
                continue;
            }
            _ => {}
        }
        let found = operations.lookup(here.attr.ino, &name)?.attr;
        if found.kind == FileKind::Symlink && (follow || !pending.is_empty()) {
            links += 1;
            let target = operations.readlink(found.ino)?;
            // An absolute target leaves the mount.
            if links > LINKS_MAX || target.starts_with(b"/") {
                return Err(Errno(if links > LINKS_MAX { libc::ELOOP } else { libc::ENOENT }));
            }
            for name in components(&target).into_iter().rev() {
                pending.push_front(name);
            }
            continue;
        }
        if found.kind == FileKind::Directory {
            above.push(found.ino);
        }
        here = Located { attr: found, found: Some((here.attr.ino, name)) };
    }
    Ok(here)
}

fn components(path: &[u8]) -> VecDeque<Vec<u8>> {
    path.split(|b| *b == b'/').filter(|name| !name.is_empty()).map(<[u8]>::to_vec).collect()
}

/// Lists a directory by name, without `.` and `..`. Adds a lookup reference to each: see
/// [`forget`].
pub(crate) fn list(operations: &dyn Operations, directory: Ino) -> FsResult<Vec<Named>> {
    let mut names = Vec::new();
    let handle = operations.opendir(directory)?;
    let result = operations.readdirplus(directory, handle, 0, &mut |e| {
        if e.name != b"." && e.name != b".." {
            names.push(Named { name: e.name.to_vec(), attr: e.entry.attr });
        }
        ControlFlow::Continue(())
    });
    operations.releasedir(directory, handle);
    result?;
    names.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(names)
}

/// Names of a directory in order, without `.` and `..`.
pub(crate) fn names(operations: &dyn Operations, directory: Ino) -> FsResult<Vec<Vec<u8>>> {
    let mut names = Vec::new();
    let handle = operations.opendir(directory)?;
    let result = operations.readdir(directory, handle, 0, &mut |e| {
        if e.name != b"." && e.name != b".." {
            names.push(e.name.to_vec());
        }
        ControlFlow::Continue(())
    });
    operations.releasedir(directory, handle);
    result?;
    names.sort();
    Ok(names)
}

/// Drops the lookup references of a listing.
pub(crate) fn forget(operations: &dyn Operations, names: &[Named]) {
    names.iter().for_each(|n| operations.forget(n.attr.ino, 1));
}

/// Appends a name to the path of a directory.
pub(crate) fn join(directory: &[u8], name: &[u8]) -> Vec<u8> {
    let mut path = directory.strip_suffix(b"/").unwrap_or(directory).to_vec();
    path.push(b'/');
    path.extend_from_slice(name);
    path
}

/// Makes a path absolute and drops empty components, without looking at the tree.
pub(crate) fn absolute(path: &[u8]) -> Vec<u8> {
    components(path).iter().fold(b"/".to_vec(), |at, name| join(&at, name))
}

/// True for the path of the control directory or a file in it.
pub(crate) fn is_below_control(path: &[u8]) -> bool {
    path == b"/.h5dir" || path.starts_with(b"/.h5dir/")
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::fs::memory::MemoryFs;

    /// `/g/d` (bytes, attributes), `/g/again` -> `.`, `/up` -> `g/../g`, `/loop` -> `loop/x`,
    /// `/host` -> `/etc`.
    pub(crate) fn sample() -> MemoryFs {
        let mut fs = MemoryFs::new();
        let g = fs.add_dir(ROOT, b"g").unwrap();
        let d = fs.add_file(g, b"d", b"12345".to_vec()).unwrap();
        fs.set_xattr(d, b"user.h5dir.dtype", b"<i4").unwrap();
        fs.set_xattr(d, b"user.units", "m\u{b2}".as_bytes()).unwrap();
        fs.set_xattr(d, b"user.raw", &[0, 1]).unwrap();
        fs.add_symlink(g, b"again", b".").unwrap();
        fs.add_symlink(ROOT, b"up", b"g/../g").unwrap();
        fs.add_symlink(ROOT, b"loop", b"loop/x").unwrap();
        fs.add_symlink(ROOT, b"host", b"/etc").unwrap();
        fs
    }

    #[test]
    fn paths_are_resolved_as_by_the_kernel() {
        let fs = sample();
        let find = |path: &str| resolve(&fs, path.as_bytes()).map(|a| a.ino.0);
        let d = find("/g/d").unwrap();
        for path in ["g//d/", "/./g/../g/d", "/../g/d", "/up/d", "/g/again/again/d", "up/../g/d"] {
            assert_eq!(find(path), Ok(d), "{path}");
        }
        assert_eq!(find("/"), Ok(1));
        assert_eq!(find("/g/x"), Err(Errno(libc::ENOENT)));
        assert_eq!(find("/g/d/x"), Err(Errno(libc::ENOTDIR)));
        assert_eq!(find("/loop/y"), Err(Errno(libc::ELOOP)));
        assert_eq!(find("/host/passwd"), Err(Errno(libc::ENOENT)));
        assert_eq!(resolve(&fs, b"/up").unwrap().kind, FileKind::Symlink);
        assert_eq!(locate(&fs, b"/up", true).unwrap().attr.ino.0, find("/g").unwrap());
        assert_eq!(locate(&fs, b"/loop", true), Err(Errno(libc::ELOOP)));
        assert_eq!(locate(&fs, b"/g/d", true).unwrap().found, Some((Ino(find("/g").unwrap()), b"d".to_vec())));
        assert_eq!(locate(&fs, b"/g/..", true).unwrap().found, None);
        assert_eq!(absolute(b"g//d/"), b"/g/d");
    }
}
