//! Opens files that a container names: only beneath one directory, without symbolic or magic links.

use super::directory::{Directory, Entry};
use super::reader::Reader;
use super::syscall::{after_leases, uninterrupted};
use crate::base::escape::escaped;
use crate::base::{Error, Result, waiting};
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

/// A directory beneath which files may be opened by relative path.
#[derive(Debug)]
pub struct ConfinedDir {
    directory: Directory,
    path: PathBuf,
    /// Files whose names begin with a dot, or that are in directories of such names, may be opened.
    hidden: bool,
}

impl ConfinedDir {
    /// Opens `path` as the root of confinement.
    pub fn open(path: &Path) -> io::Result<Self> {
        Self::new(Directory::open(path)?)
    }

    /// Uses `directory` as the root of confinement.
    pub fn new(directory: Directory) -> io::Result<Self> {
        Ok(ConfinedDir { path: directory.path()?, directory, hidden: false })
    }

    /// The same; hidden files may be opened if `hidden`.
    #[must_use]
    pub fn with_hidden(self, hidden: bool) -> Self {
        ConfinedDir { hidden, ..self }
    }

    /// The same directory once more.
    pub fn again(&self) -> Self {
        ConfinedDir { directory: self.directory.clone(), path: self.path.clone(), hidden: self.hidden }
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

    /// Checks the result of `resolve` for a name in `from`. Error: it has a component that begins
    /// with a dot, and hidden files may not be opened. Components that are those of `from` are not
    /// checked.
    pub fn check_visible(&self, from: &Path, relative: &Path) -> Result<()> {
        let own = from.strip_prefix(&self.path).unwrap_or(Path::new(""));
        let same = own.components().zip(relative.components()).take_while(|(a, b)| a == b).count();
        let is_hidden = |c: Component<'_>| matches!(c, Component::Normal(name) if name.as_bytes().starts_with(b"."));
        if self.hidden || !relative.components().skip(same).any(is_hidden) {
            return Ok(());
        }
        let shown = escaped(&self.path.join(relative)).to_string();
        Err(Error::refused(libc::EACCES, format!("{shown} is a hidden file, or in a hidden directory; only --external=all opens it")))
    }

    /// Opens `relative` beneath this directory, if `reader` may read it there. Error: `EACCES`.
    pub fn open_file_for(&self, relative: &Path, reader: &Reader) -> io::Result<File> {
        if reader.is_caller() {
            return self.open_file(relative);
        }
        let error = |errno| Err(io::Error::from_raw_os_error(errno));
        // Each directory stays open, so that `..` is the one that was passed before.
        let mut above: Vec<Directory> = Vec::new();
        let mut at = self.directory.clone();
        let (Some(name), Some(parent)) = (relative.file_name(), relative.parent()) else { return error(libc::EISDIR) };
        for component in parent.components() {
            match component {
                Component::Normal(name) => {
                    let below = at.enter(name)?;
                    above.push(std::mem::replace(&mut at, below));
                    if !reader.may_search(&Entry::of(&at)?) {
                        return error(libc::EACCES);
                    }
                }
                Component::ParentDir => match above.pop() {
                    Some(directory) => at = directory,
                    None => return error(libc::EXDEV),
                },
                Component::CurDir | Component::RootDir | Component::Prefix(_) => {}
            }
        }
        let file = at.open_file(name, nix::fcntl::OFlag::O_RDONLY, nix::sys::stat::Mode::empty())?;
        if reader.may_read(&Entry::of(&file)?) { Ok(file) } else { error(libc::EACCES) }
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

    #[test]
    fn hidden_names_are_refused_but_for_those_of_the_container() {
        let place = tempfile::tempdir().unwrap();
        let root = place.path().canonicalize().unwrap().join(".root");
        std::fs::create_dir_all(root.join(".own/sub/.git")).unwrap();
        let dir = ConfinedDir::open(&root).unwrap();
        let is_visible = |from: &str, name: &str| {
            let from = root.join(from);
            dir.check_visible(&from, &dir.resolve(&from, Path::new(name)).unwrap())
        };
        for (from, name) in [("", "a"), ("", "a/../b"), (".own", "f"), (".own/sub", "f"), (".own/sub", "../f"), (".own", "../a.")] {
            assert_eq!(is_visible(from, name), Ok(()), "{from} {name}");
        }
        for (from, name) in
            [("", ".ssh/id"), ("", "a/.x"), ("", "..x"), (".own/sub", ".git/x"), (".own", "../.other/f"), ("", "a/../.ssh/id")]
        {
            let refused = is_visible(from, name).unwrap_err().to_string();
            assert!(refused.contains("--external=all"), "{from} {name}: {refused}");
        }
        let all = dir.again().with_hidden(true);
        assert_eq!(all.again().check_visible(&root, Path::new(".ssh/id")), Ok(()));
    }

    /// A user who may not pass a directory cannot have a file in it read.
    #[test]
    fn directories_and_files_are_checked_for_a_reader() {
        use std::os::unix::fs::{PermissionsExt, chown};
        if !nix::unistd::geteuid().is_root() {
            return;
        }
        let place = tempfile::tempdir().unwrap();
        let root = place.path();
        std::fs::create_dir_all(root.join("open/closed")).unwrap();
        for name in ["open/f", "open/secret", "open/closed/f"] {
            std::fs::write(root.join(name), "x").unwrap();
        }
        let mode = |name: &str, mode| std::fs::set_permissions(root.join(name), PermissionsExt::from_mode(mode)).unwrap();
        mode("open/secret", 0o600);
        mode("open/closed", 0o700);
        std::fs::create_dir(root.join("theirs")).unwrap();
        let dir = ConfinedDir::open(root).unwrap();
        let code = |reader: &Reader, name: &str| dir.open_file_for(Path::new(name), reader).err().map(|e| e.raw_os_error().unwrap());
        let reader = || Reader::owner_of(&Directory::open(&root.join("theirs")).unwrap()).unwrap();
        assert_eq!(["open/f", "open/secret", "open/closed/f"].map(|name| code(&reader(), name)), [None; 3], "root");
        chown(root.join("theirs"), Some(65533), Some(65533)).unwrap();
        let user = reader();
        let refused = Some(libc::EACCES);
        assert_eq!(["open/f", "open/secret", "open/closed/f"].map(|name| code(&user, name)), [None, refused, refused]);
        assert_eq!(
            ["open/closed/../f", "open/../open/f", "open/../../x"].map(|name| code(&user, name)),
            [refused, None, Some(libc::EXDEV)]
        );
        chown(root.join("open/secret"), None, Some(65533)).unwrap();
        mode("open/secret", 0o640);
        assert_eq!(code(&user, "open/secret"), None, "by the group");
    }

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
