//! Resolution of the paths that users name. Every file and directory of the host is found by it.
//!
//! A path is resolved one component at a time, by descriptors. A symbolic link that belongs neither
//! to root nor to the caller is followed only to a file or directory of the link's owner: else it
//! would choose a file of the caller for another user. A file that does not exist yet counts as one
//! of the owner of its directory.

use super::directory::{Directory, Entry};
use crate::base::escape::escaped;
use crate::base::request_error::RequestError;
use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::sys::stat::{Mode, mkdirat};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::path::{Component, Path, PathBuf};

/// Symbolic links followed in one path: the kernel's limit.
const SYMLINKS_MAX: usize = 40;
/// Attempts to open a file that is replaced by a rename at the same time.
const ATTEMPTS_MAX: usize = 16;

/// A symbolic link that was followed, of a user who is neither root nor the caller.
#[derive(Debug)]
struct ForeignLink {
    path: PathBuf,
    owner: u32,
}

/// A resolved path: a name in an open directory.
#[derive(Debug)]
pub struct Resolved {
    /// The directory.
    pub directory: Directory,
    /// The name in it; `.` if the path is the directory.
    pub name: OsString,
    links: Vec<ForeignLink>,
}

/// A path that is resolved one component at a time.
struct Walk {
    directory: Directory,
    /// Remaining components, the next one last.
    rest: Vec<OsString>,
    followed: usize,
    links: Vec<ForeignLink>,
}

fn errno(code: i32) -> io::Error {
    io::Error::from_raw_os_error(code)
}

impl Walk {
    /// Starts at the root or the working directory.
    fn new(path: &Path) -> io::Result<Walk> {
        let directory = start(path)?;
        let mut walk = Walk { directory, rest: Vec::new(), followed: 0, links: Vec::new() };
        walk.push(path);
        Ok(walk)
    }

    fn push(&mut self, path: &Path) {
        let names = path.components().rev().filter(|c| matches!(c, Component::Normal(_) | Component::ParentDir));
        self.rest.extend(names.map(|c| c.as_os_str().to_owned()));
    }

    /// Follows the symbolic link `entry`, which is `name`.
    fn follow(&mut self, name: &OsStr, entry: &Entry) -> io::Result<()> {
        self.followed = self.followed.saturating_add(1);
        if self.followed > SYMLINKS_MAX {
            return Err(errno(libc::ELOOP));
        }
        if entry.uid != 0 && entry.uid != nix::unistd::geteuid().as_raw() {
            let path = self.directory.path().map_or_else(|_| PathBuf::from(name), |directory| directory.join(name));
            self.links.push(ForeignLink { path, owner: entry.uid });
        }
        // Follows the text of a magic link, not the link itself.
        let target = PathBuf::from(self.directory.read_link(name)?);
        if target.is_absolute() {
            self.directory = start(&target)?;
        }
        self.push(&target);
        Ok(())
    }

    /// Walks to the directory that holds the last component, which is returned: `.` without one.
    /// `follow`: it must exist, and a symbolic link is followed.
    fn last(&mut self, follow: bool) -> io::Result<OsString> {
        let mut attempts = 0;
        while let Some(name) = self.rest.pop() {
            if name == ".." {
                self.directory = self.directory.enter(OsStr::new(".."))?;
                continue;
            }
            let is_last = self.rest.is_empty();
            if is_last && !follow {
                return Ok(name);
            }
            let entry = self.directory.entry(&name)?.ok_or_else(|| errno(libc::ENOENT))?;
            if entry.is_symlink() {
                self.follow(&name, &entry)?;
            } else if is_last {
                return Ok(name);
            } else {
                match self.directory.enter(&name) {
                    Ok(directory) => self.directory = directory,
                    Err(e) if e.raw_os_error() == Some(libc::ELOOP) && attempts < ATTEMPTS_MAX => {
                        attempts += 1;
                        self.rest.push(name);
                    }
                    Err(e) => return Err(e),
                }
            }
        }
        Ok(OsString::from("."))
    }
}

/// The directory where the resolution of `path` starts.
fn start(path: &Path) -> io::Result<Directory> {
    Directory::start(if path.is_absolute() { "/" } else { "." })
}

/// The name of a user in messages.
fn user(uid: u32) -> String {
    let name = nix::unistd::User::from_uid(uid.into()).ok().flatten().map(|user| user.name);
    name.map_or_else(|| format!("user {uid}"), |name| format!("user {} ({uid})", escaped(&name)))
}

impl Resolved {
    /// Resolves `path`, which exists. Its last component is followed if it is a symbolic link. The
    /// caller calls [`Resolved::check`] with the open file.
    pub fn file(path: &Path) -> io::Result<Resolved> {
        Self::resolve(path, true)
    }

    /// Resolves the directory part of `path`; its last component may be missing, and is not
    /// followed. The caller calls [`Resolved::check`] with the open file.
    pub fn name(path: &Path) -> io::Result<Resolved> {
        Self::resolve(path, false)
    }

    fn resolve(path: &Path, follow: bool) -> io::Result<Resolved> {
        if path.as_os_str().is_empty() {
            return Err(errno(libc::ENOENT));
        }
        let mut walk = Walk::new(path)?;
        let name = walk.last(follow)?;
        Ok(Resolved { directory: walk.directory, name, links: walk.links })
    }

    /// As [`Resolved::name`], for a file that is created: what is in the directory may be replaced.
    /// Errors: a symbolic link of another user leads to a directory that is not that user's.
    pub fn new_name(path: &Path) -> io::Result<Resolved> {
        let found = Self::name(path)?;
        if !found.links.is_empty() {
            found.check(Entry::of(&found.directory)?.uid)?;
        }
        Ok(found)
    }

    /// Checks the owner of what was found. Error (`ELOOP`): a link of another user leads to it.
    pub fn check(&self, uid: u32) -> io::Result<()> {
        let Some(link) = self.links.iter().find(|link| link.owner != uid) else { return Ok(()) };
        let (path, owner, of) = (escaped(&link.path), user(link.owner), user(uid));
        let text = format!(
            "the symbolic link {path} belongs to {owner}, and what it leads to belongs to {of}; such a link is followed only to files of \
             its owner, give a path without it"
        );
        Err(RequestError { errno: libc::ELOOP, is_transient: false, text }.into())
    }

    /// The directory that the path is. Errors: `ENOTDIR`, `ENOENT`, and those of `check`.
    pub fn enter(self) -> io::Result<Directory> {
        let directory = if self.name == "." { self.directory.clone() } else { self.directory.enter(&self.name)? };
        if !self.links.is_empty() {
            self.check(Entry::of(&directory)?.uid)?;
        }
        Ok(directory)
    }

    /// Opens the file. Errors: those of `check`, and `ELOOP` if it is a symbolic link.
    pub fn open(&self, flags: OFlag, mode: Mode) -> io::Result<File> {
        let file = self.directory.open_file(&self.name, flags, mode)?;
        self.check(Entry::of(&file)?.uid)?;
        Ok(file)
    }
}

/// Resolves `path` and opens it by `step`; again if it is replaced by a rename meanwhile.
pub fn open_by<T>(path: &Path, step: impl Fn(Resolved) -> io::Result<T>) -> io::Result<T> {
    let mut attempts = 0;
    loop {
        match step(Resolved::file(path)?) {
            Err(e) if matches!(e.raw_os_error(), Some(libc::ELOOP | libc::ENOENT)) && attempts < ATTEMPTS_MAX => attempts += 1,
            opened => return opened,
        }
    }
}

impl Directory {
    /// Opens `path`, resolved by the rule of this module.
    pub fn open(path: &Path) -> io::Result<Directory> {
        directory(path)
    }
}

/// Opens the directory `path`; the working directory if it is empty.
pub fn directory(path: &Path) -> io::Result<Directory> {
    open_by(if path.as_os_str().is_empty() { Path::new(".") } else { path }, Resolved::enter)
}

/// Opens the directory `path`, and creates it with `mode` if it is missing.
pub fn directory_or_create(path: &Path, mode: Mode) -> io::Result<Directory> {
    match directory(path) {
        Err(e) if e.raw_os_error() == Some(libc::ENOENT) => {}
        opened => return opened,
    }
    let found = Resolved::new_name(path)?;
    match mkdirat(found.directory.as_fd(), found.name.as_os_str(), mode) {
        Err(Errno::EEXIST) => {}
        made => made?,
    }
    found.directory.enter(&found.name)
}

/// Opens the directory `path`, and creates it and those above it if they are missing.
pub fn directory_or_create_all(path: &Path) -> io::Result<Directory> {
    match directory(path) {
        Err(e) if e.raw_os_error() == Some(libc::ENOENT) => {}
        opened => return opened,
    }
    if let Some(parent) = path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        directory_or_create_all(parent)?;
    }
    directory_or_create(path, Mode::from_bits_truncate(0o777))
}

/// Removes the file `path`.
pub fn remove(path: &Path) -> io::Result<()> {
    let found = Resolved::new_name(path)?;
    found.directory.remove(&found.name)
}

/// Opens the existing file `path` with `flags`, also one of the descriptors of the process, such as
/// `/dev/fd/3`. Does not block on a FIFO.
pub fn open(path: &Path, flags: OFlag) -> io::Result<File> {
    match open_by(path, |found| found.open(flags, Mode::empty())) {
        // The text of the link of a pipe is no path.
        Err(e) if e.raw_os_error() == Some(libc::ENOENT) => open_descriptor(path, flags).unwrap_or(Err(e)),
        opened => opened,
    }
}

/// Opens `path` if it names one of the descriptors of the process.
fn open_descriptor(path: &Path, flags: OFlag) -> Option<io::Result<File>> {
    let number = match path.to_str()? {
        "/dev/stdin" => "0",
        text => text.strip_prefix("/dev/fd/").or_else(|| text.strip_prefix("/proc/self/fd/"))?,
    };
    let own = format!("/proc/self/fd/{}", number.parse::<u32>().ok()?);
    Some(nix::fcntl::open(own.as_str(), flags | OFlag::O_CLOEXEC, Mode::empty()).map(File::from).map_err(io::Error::from))
}

/// Opens the file `path` with `flags`, and creates it with `mode` if it is missing.
pub fn open_or_create(path: &Path, flags: OFlag, mode: Mode) -> io::Result<File> {
    match open_by(path, |found| found.open(flags, Mode::empty())) {
        Err(e) if e.raw_os_error() == Some(libc::ENOENT) => {
            let found = Resolved::new_name(path)?;
            found.directory.open_file(&found.name, flags | OFlag::O_CREAT | OFlag::O_EXCL, mode)
        }
        opened => opened,
    }
}
