//! A container file of the host. Its path is resolved once; later operations use the descriptors of
//! the file and its directory, so that renamed or replaced path components have no effect.

use super::directory::{Directory, Entry};
use super::host_path::{self, Resolved};
use super::posix::PosixFile;
use super::{FileDriver, Identity, Status, WriteDriver};
use nix::fcntl::OFlag;
use nix::sys::stat::Mode;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// A container file with its directory.
#[derive(Debug)]
pub struct HostFile {
    directory: Directory,
    name: OsString,
    /// Open for reading.
    file: PosixFile,
    identity: Identity,
}

fn errno(code: i32) -> io::Error {
    io::Error::from_raw_os_error(code)
}

/// Errors: the last component of `path` is not the name of a file.
fn check_name(path: &Path) -> io::Result<()> {
    // "file/" and "file/." name a directory.
    let bytes = path.as_os_str().as_bytes();
    if bytes.ends_with(b"/") || bytes.ends_with(b"/.") || bytes == b"." {
        return Err(errno(if path.is_dir() { libc::EISDIR } else { libc::ENOTDIR }));
    }
    match path.file_name() {
        Some(_) => Ok(()),
        None => Err(errno(if bytes.is_empty() { libc::ENOENT } else { libc::EISDIR })),
    }
}

impl HostFile {
    /// Resolves `path` and opens the file for reading. Errors: those of [`Resolved::check`],
    /// `EISDIR` and `EINVAL` for anything but a regular file or a block device, `EWOULDBLOCK` if
    /// another process keeps a lease for more than 3 s.
    pub fn open(path: &Path) -> io::Result<HostFile> {
        check_name(path)?;
        host_path::open_by(path, |found| {
            let entry = found.directory.entry(&found.name)?.ok_or_else(|| errno(libc::ENOENT))?;
            if entry.is_symlink() {
                return Err(errno(libc::ELOOP));
            }
            // Opening a device may have effects.
            if !entry.is_openable() {
                return Err(errno(if entry.is_directory() { libc::EISDIR } else { libc::EINVAL }));
            }
            let file = Self::open_in(&found.directory, &found.name)?;
            found.check(file.file.entry()?.uid)?;
            Ok(file)
        })
    }

    /// Creates the file `path`, which must not exist, with the content `bytes` after `before` bytes
    /// of zeros, and makes it durable.
    pub fn create(path: &Path, before: u64, bytes: &[u8]) -> io::Result<()> {
        check_name(path)?;
        let Resolved { directory, name, .. } = Resolved::new_name(path)?;
        let name = name.as_os_str();
        let flags = OFlag::O_RDWR | OFlag::O_CREAT | OFlag::O_EXCL;
        let file = PosixFile::from_file(directory.open_file(name, flags, Mode::from_bits_truncate(0o666))?)?;
        let written = file.write_at(bytes, before).and_then(|()| file.sync()).and_then(|()| directory.sync());
        if written.is_err() && directory.entry(name)?.is_some_and(|e| file.status().is_ok_and(|s| s.identity == e.status.identity)) {
            // Removes an incomplete file.
            let _ = directory.remove(name);
        }
        written
    }

    /// Opens the file `name` of `directory` for reading. Errors: `ELOOP` for a symbolic link.
    pub fn open_in(directory: &Directory, name: &OsStr) -> io::Result<HostFile> {
        let file = PosixFile::from_file(directory.open_file(name, OFlag::O_RDONLY, Mode::empty())?)?;
        let identity = file.status()?.identity;
        Ok(HostFile { directory: directory.clone(), name: name.to_owned(), file, identity })
    }

    /// Duplicates the descriptor of the file, open for reading.
    pub fn reader(&self) -> io::Result<PosixFile> {
        self.file.again()
    }

    /// Opens the same file for reading and writing, even if another file has its name now.
    pub fn open_writable(&self) -> io::Result<PosixFile> {
        self.file.reopen_writable()
    }

    /// Opens the file that has the name now, for reading.
    pub fn open_successor(&self) -> io::Result<PosixFile> {
        Self::open_in(&self.directory, &self.name).map(|found| found.file)
    }

    /// Status of the file that has the name now; `None` if it cannot be opened as a container.
    pub fn status_now(&self) -> Option<Status> {
        self.directory.entry(&self.name).ok().flatten().filter(Entry::is_openable).map(|e| e.status)
    }

    /// True while the file has the name by which it was opened.
    pub fn is_in_place(&self) -> bool {
        self.directory.entry(&self.name).is_ok_and(|found| found.is_some_and(|e| e.status.identity == self.identity))
    }

    /// Identity of the file.
    pub fn identity(&self) -> Identity {
        self.identity
    }

    /// Its directory.
    pub fn directory(&self) -> &Directory {
        &self.directory
    }

    /// Its name in the directory.
    pub fn name(&self) -> &OsStr {
        &self.name
    }

    /// Its path, for messages.
    pub fn path(&self) -> PathBuf {
        self.directory.path().map_or_else(|_| PathBuf::from(&self.name), |directory| directory.join(&self.name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::request_error::errno_of;
    use std::os::unix::fs::symlink;

    fn code<T>(result: io::Result<T>) -> i32 {
        result.err().and_then(|e| errno_of(&e)).unwrap_or(0)
    }

    /// Regression: opening a FIFO waited for a process at its other end.
    #[test]
    fn only_regular_files_are_opened() {
        use nix::fcntl::{FcntlArg, fcntl};
        use std::os::fd::AsFd;
        let dir = tempfile::tempdir().unwrap();
        let (path, fifo, link) = (dir.path().join("f"), dir.path().join("fifo"), dir.path().join("link"));
        std::fs::write(&path, "file").unwrap();
        nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU).unwrap();
        symlink("f", &link).unwrap();
        symlink("loop", dir.path().join("loop")).unwrap();
        let open = |path: &Path| code(HostFile::open(path));
        assert_eq!([open(&fifo), open(Path::new("/dev/null")), open(dir.path())], [libc::EINVAL, libc::EINVAL, libc::EISDIR]);
        assert_eq!([open(&dir.path().join("none")), open(Path::new(""))], [libc::ENOENT, libc::ENOENT]);
        assert_eq!([open(&dir.path().join("f/")), open(&dir.path().join("loop"))], [libc::ENOTDIR, libc::ELOOP]);
        let found = HostFile::open(&link).unwrap();
        assert_eq!((found.path(), found.is_in_place()), (dir.path().canonicalize().unwrap().join("f"), true));
        for file in [found.reader().unwrap(), found.open_writable().unwrap(), found.open_successor().unwrap()] {
            let flags = OFlag::from_bits_retain(fcntl(file.as_fd(), FcntlArg::F_GETFL).unwrap());
            assert!(!flags.contains(OFlag::O_NONBLOCK));
        }
    }

    #[test]
    fn a_replaced_name_or_directory_does_not_change_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let sub = dir.path().join("sub");
        std::fs::create_dir(&sub).unwrap();
        std::fs::write(sub.join("f"), "the file").unwrap();
        std::fs::write(dir.path().join("other"), "another").unwrap();
        let found = HostFile::open(&sub.join("f")).unwrap();
        std::fs::rename(&sub, dir.path().join("moved")).unwrap();
        symlink(dir.path(), &sub).unwrap();
        assert!(found.is_in_place());
        std::fs::remove_file(dir.path().join("moved/f")).unwrap();
        symlink("../other", dir.path().join("moved/f")).unwrap();
        assert!(!found.is_in_place() && found.status_now().is_none());
        assert_eq!(code(found.open_successor()), libc::ELOOP);
        found.open_writable().unwrap().write_at(b"THE", 0).unwrap();
        let mut bytes = [0; 8];
        found.reader().unwrap().read_at(&mut bytes, 0).unwrap();
        assert_eq!((&bytes, std::fs::read(dir.path().join("other")).unwrap()), (b"THE file", b"another".to_vec()));
    }

    /// Regression: root followed the symbolic links of another user.
    #[test]
    fn symbolic_links_of_other_users_lead_to_their_own_files_only() {
        use std::os::unix::fs::lchown;
        if !nix::unistd::geteuid().is_root() {
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let (file, sub) = (dir.path().join("real/f"), dir.path().join("real"));
        std::fs::create_dir(&sub).unwrap();
        std::fs::write(&file, "file").unwrap();
        symlink("real", dir.path().join("linked")).unwrap();
        symlink("../linked/./f", sub.join("link")).unwrap();
        let paths = [dir.path().join("linked/f"), sub.join("link"), dir.path().join("linked/../linked/link")];
        let code_of = |path: &PathBuf| code(HostFile::open(path));
        for (owner, file_owner, expected) in [(0, 0, 0), (65534, 0, libc::ELOOP), (65534, 65534, 0), (65534, 65533, libc::ELOOP)] {
            for link in [dir.path().join("linked"), sub.join("link")] {
                lchown(&link, Some(owner), None).unwrap();
            }
            lchown(&file, Some(file_owner), None).unwrap();
            assert_eq!(paths.each_ref().map(code_of), [expected; 3], "{owner} {file_owner}");
        }
        lchown(&file, Some(65534), None).unwrap();
        assert_eq!(HostFile::open(&paths[2]).unwrap().path(), sub.canonicalize().unwrap().join("f"));
    }
}
