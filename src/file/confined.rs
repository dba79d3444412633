//! Opening of files that a container names: only beneath one directory, no symbolic or magic link.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Component, Path, PathBuf};

/// A directory beneath which named files may be opened, read-only.
#[derive(Debug)]
pub struct ConfinedDir {
    dir: OwnedFd,
    path: PathBuf,
}

impl ConfinedDir {
    /// Opens `path` as the root of confinement.
    pub fn open(path: &Path) -> io::Result<Self> {
        let path = path.canonicalize()?;
        let dir = File::open(&path)?;
        if !dir.metadata()?.is_dir() {
            return Err(io::Error::from_raw_os_error(libc::ENOTDIR));
        }
        Ok(ConfinedDir { dir: dir.into(), path })
    }

    /// Canonical path of the directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// `name` as seen from `from` (a directory below this one), relative to this directory.
    /// `None` when it lies outside.
    pub fn resolve(&self, from: &Path, name: &Path) -> Option<PathBuf> {
        let joined = if name.is_absolute() { name.to_path_buf() } else { from.join(name) };
        let mut clean = PathBuf::new();
        for c in joined.components() {
            match c {
                Component::Prefix(_) | Component::RootDir => clean.push("/"),
                Component::CurDir => {}
                Component::ParentDir => {
                    if !clean.pop() {
                        return None;
                    }
                }
                Component::Normal(n) => clean.push(n),
            }
        }
        clean.strip_prefix(&self.path).ok().map(Path::to_path_buf).filter(|p| !p.as_os_str().is_empty())
    }

    /// Opens `relative` beneath this directory.
    pub fn open_file(&self, relative: &Path) -> io::Result<File> {
        use nix::fcntl::{OFlag, OpenHow, ResolveFlag, openat2};
        let how = OpenHow::new()
            .flags(OFlag::O_RDONLY | OFlag::O_CLOEXEC | OFlag::O_NONBLOCK | OFlag::O_NOCTTY)
            .resolve(ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_SYMLINKS | ResolveFlag::RESOLVE_NO_MAGICLINKS);
        let fd = openat2(self.dir.as_fd(), relative, how).map_err(io::Error::from)?;
        Ok(fd.into())
    }
}
