//! Opens files that a container names: only beneath one directory, without symbolic or magic links.

use super::directory::Directory;
use super::syscall::{after_leases, uninterrupted};
use crate::base::waiting;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::path::{Component, Path, PathBuf};

/// A directory beneath which files may be opened by relative path.
#[derive(Debug)]
pub struct ConfinedDir {
    directory: Directory,
    path: PathBuf,
}

impl ConfinedDir {
    /// Opens `path` as the root of confinement.
    pub fn open(path: &Path) -> io::Result<Self> {
        Self::new(Directory::open(path)?)
    }

    /// Uses `directory` as the root of confinement.
    pub fn new(directory: Directory) -> io::Result<Self> {
        Ok(ConfinedDir { path: directory.path()?, directory })
    }

    /// The directory.
    pub fn directory(&self) -> &Directory {
        &self.directory
    }

    /// Canonical path of the directory when it was opened.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Path of `name`, relative to `from` (a directory below this one), from this directory. `None`
    /// if it is outside. Keeps a `..` after a name: the system must check that `missing/../file`
    /// exists.
    pub fn resolve(&self, from: &Path, name: &Path) -> Option<PathBuf> {
        let mut clean = if name.is_absolute() { PathBuf::new() } else { from.to_path_buf() };
        let mut named = false;
        for c in name.components() {
            match c {
                Component::Prefix(_) | Component::RootDir => clean.push("/"),
                Component::CurDir => {}
                Component::ParentDir if named => clean.push(".."),
                Component::ParentDir => {
                    if !clean.pop() {
                        return None;
                    }
                }
                Component::Normal(n) => {
                    named = true;
                    clean.push(n);
                }
            }
        }
        clean.strip_prefix(&self.path).ok().map(Path::to_path_buf).filter(|p| !p.as_os_str().is_empty())
    }

    /// Opens `relative` beneath this directory.
    pub fn open_file(&self, relative: &Path) -> io::Result<File> {
        self.open_with(relative, nix::fcntl::OFlag::O_RDONLY)
    }

    /// Opens `relative` beneath this directory for reading and writing; creates it with `create`.
    pub fn open_for_writing(&self, relative: &Path, create: bool) -> io::Result<File> {
        use nix::fcntl::OFlag;
        self.open_with(relative, if create { OFlag::O_RDWR | OFlag::O_CREAT } else { OFlag::O_RDWR })
    }

    fn open_with(&self, relative: &Path, flags: nix::fcntl::OFlag) -> io::Result<File> {
        use nix::fcntl::{OFlag, OpenHow, ResolveFlag, openat2};
        use nix::sys::stat::Mode;
        // openat2 refuses a mode without creation.
        let mode = if flags.contains(OFlag::O_CREAT) { Mode::from_bits_truncate(0o666) } else { Mode::empty() };
        let how = OpenHow::new()
            .flags(flags | OFlag::O_CLOEXEC | OFlag::O_NONBLOCK | OFlag::O_NOCTTY)
            .mode(mode)
            .resolve(ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_SYMLINKS | ResolveFlag::RESOLVE_NO_MAGICLINKS);
        waiting::may_wait();
        let fd = after_leases(|| uninterrupted(|| openat2(self.directory.as_fd(), relative, how)))?;
        Ok(fd.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression: `0/../file`, `1/../file`, ... all resolved to `file`, a virtual dataset of
    /// endless sources.
    #[test]
    fn only_what_lies_beneath_and_is_there() {
        let outer = tempfile::tempdir().unwrap();
        let root = outer.path().canonicalize().unwrap().join("root");
        std::fs::create_dir_all(root.join("sub")).unwrap();
        std::fs::write(root.join("file"), "inside").unwrap();
        std::fs::write(outer.path().join("secret"), "outside").unwrap();
        std::os::unix::fs::symlink("../secret", root.join("link")).unwrap();
        std::os::unix::fs::symlink("..", root.join("up")).unwrap();
        let dir = ConfinedDir::open(&root).unwrap();
        let open = |from: &Path, name: &str| dir.resolve(from, Path::new(name)).is_some_and(|p| dir.open_file(&p).is_ok());
        let sub = root.join("sub");
        let absolute = root.join("file");
        for (from, name) in [(&root, "file"), (&root, "./sub/../file"), (&sub, "../file"), (&root, absolute.to_str().unwrap())] {
            assert!(open(from, name), "{name}");
        }
        for name in
            ["0/../file", "link", "../secret", "up/secret", "sub/../../secret", "/etc/passwd", "../root/link", "", ".", "/", "../.."]
        {
            assert!(!open(&root, name), "{name}");
        }
        assert!(!open(&sub, "../../secret") && !open(&sub, "../link"));
        let write = |name: &str, create| dir.open_for_writing(Path::new(name), create).is_ok();
        assert!(write("file", false) && !write("new", false) && write("sub/new", true) && write("sub/new", false));
        for name in ["link", "up/secret", "../secret", "../made", "up/made", "no/such"] {
            assert!(!write(name, true), "{name}");
        }
        assert!(!outer.path().join("made").exists());
    }
}
