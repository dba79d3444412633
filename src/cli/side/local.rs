//! Local files as sources: by descriptors, without following symbolic links below the first name.

use super::{Content, Meta, PIECE_BYTES, SideKind, Source};
use crate::fs::open::Resolved;
use nix::dir::Dir;
use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, openat, readlinkat};
use nix::sys::stat::{FileStat, Mode, SFlag, fstat, fstatat};
use nix::sys::uio::pread;
use nix::unistd::{Whence, lseek};
use std::ffi::OsStr;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use std::rc::Rc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Flags of every open of a file that is read: a pipe does not block.
const READ: OFlag = OFlag::O_RDONLY.union(OFlag::O_NOFOLLOW).union(OFlag::O_NONBLOCK).union(OFlag::O_NOCTTY).union(OFlag::O_CLOEXEC);
/// Flags of a directory.
const DIRECTORY: OFlag = OFlag::O_RDONLY.union(OFlag::O_DIRECTORY).union(OFlag::O_NOFOLLOW).union(OFlag::O_CLOEXEC);

/// Attributes from `stat`.
pub(crate) fn meta(stat: &FileStat) -> Meta {
    let kind = match SFlag::from_bits_truncate(stat.st_mode & SFlag::S_IFMT.bits()) {
        SFlag::S_IFDIR => SideKind::Directory,
        SFlag::S_IFREG => SideKind::Regular,
        SFlag::S_IFLNK => SideKind::Symlink,
        _ => SideKind::Other,
    };
    Meta {
        kind,
        perm: stat.st_mode & 0o7777,
        uid: stat.st_uid,
        gid: stat.st_gid,
        size: u64::try_from(stat.st_size).unwrap_or(0),
        links: stat.st_nlink,
        identity: (stat.st_dev, stat.st_ino),
        atime: time(stat.st_atime, stat.st_atime_nsec),
        mtime: time(stat.st_mtime, stat.st_mtime_nsec),
    }
}

fn time(seconds: i64, nanoseconds: i64) -> SystemTime {
    let whole = Duration::from_secs(seconds.unsigned_abs());
    let base = if seconds < 0 { UNIX_EPOCH.checked_sub(whole) } else { UNIX_EPOCH.checked_add(whole) };
    let part = Duration::from_nanos(u64::try_from(nanoseconds).unwrap_or(0));
    base.and_then(|base| base.checked_add(part)).unwrap_or(UNIX_EPOCH)
}

/// Attributes of the file `name` in `directory`; `None` if there is none. Links are not followed.
pub(crate) fn find(directory: impl AsFd, name: &[u8]) -> io::Result<Option<Meta>> {
    match fstatat(directory, name, AtFlags::AT_SYMLINK_NOFOLLOW) {
        Ok(stat) => Ok(Some(meta(&stat))),
        Err(Errno::ENOENT) => Ok(None),
        Err(e) => Err(e.into()),
    }
}

/// Opens the directory `name` in `directory`; no link.
pub(crate) fn open_directory(directory: impl AsFd, name: &[u8]) -> io::Result<OwnedFd> {
    Ok(openat(directory, name, DIRECTORY, Mode::empty())?)
}

/// A local file, directory or link.
pub(crate) struct LocalSource {
    /// The directory that holds a link; the file or directory itself otherwise.
    descriptor: Rc<OwnedFd>,
    name: Vec<u8>,
    meta: Meta,
}

impl LocalSource {
    /// The file at `path`; `follow`: a symbolic link at its end is followed.
    pub(crate) fn open(path: &Path, follow: bool) -> io::Result<LocalSource> {
        let found = if follow { Resolved::file(path)? } else { Resolved::name(path)? };
        let source = Self::at(found.directory.as_fd().try_clone_to_owned()?, found.name.as_bytes())?;
        found.check(source.meta.uid)?;
        Ok(source)
    }

    /// The file `name` in `directory`.
    fn at(directory: OwnedFd, name: &[u8]) -> io::Result<LocalSource> {
        let first = meta(&fstatat(&directory, name, AtFlags::AT_SYMLINK_NOFOLLOW)?);
        let flags = match first.kind {
            SideKind::Directory => DIRECTORY,
            SideKind::Regular => READ,
            SideKind::Symlink | SideKind::Other => {
                return Ok(LocalSource { descriptor: directory.into(), name: name.to_vec(), meta: first });
            }
        };
        let opened = openat(&directory, name, flags, Mode::empty())?;
        // The name may lead to another file now.
        let meta = meta(&fstat(&opened)?);
        Ok(LocalSource { descriptor: opened.into(), name: name.to_vec(), meta })
    }

    /// Its descriptor; of a link, that of its directory.
    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

impl Source for LocalSource {
    fn meta(&self) -> &Meta {
        &self.meta
    }

    fn names(&self) -> io::Result<Vec<Vec<u8>>> {
        let mut names = Vec::new();
        for entry in Dir::from_fd(open_directory(&*self.descriptor, b".")?)?.iter() {
            let name = entry?.file_name().to_bytes().to_vec();
            if name != b"." && name != b".." {
                names.push(name);
            }
        }
        names.sort_unstable();
        Ok(names)
    }

    fn child(&self, name: &[u8]) -> io::Result<Box<dyn Source>> {
        Ok(Box::new(Self::at(self.descriptor.try_clone()?, name)?))
    }

    fn target(&self) -> io::Result<Vec<u8>> {
        Ok(readlinkat(&*self.descriptor, self.name.as_slice())?.into_vec())
    }

    fn open(&self) -> io::Result<Box<dyn Content>> {
        if self.meta.kind != SideKind::Regular {
            return Err(io::Error::from_raw_os_error(if self.meta.kind == SideKind::Directory { libc::EISDIR } else { libc::EINVAL }));
        }
        Ok(Box::new(LocalContent { file: self.descriptor.clone() }))
    }

    fn xattr_names(&self) -> io::Result<Vec<Vec<u8>>> {
        if !matches!(self.meta.kind, SideKind::Regular | SideKind::Directory) {
            return Ok(Vec::new());
        }
        let mut list = Vec::with_capacity(super::FACT_MAX.min(1 << 16) as usize);
        match rustix::fs::flistxattr(&*self.descriptor, rustix::buffer::spare_capacity(&mut list)) {
            Err(rustix::io::Errno::NOTSUP) => return Ok(Vec::new()),
            listed => listed.map(drop)?,
        }
        Ok(list.split(|b| *b == 0).filter(|name| name.starts_with(b"user.")).map(<[u8]>::to_vec).collect())
    }

    fn xattr(&self, name: &[u8]) -> io::Result<Vec<u8>> {
        if !matches!(self.meta.kind, SideKind::Regular | SideKind::Directory) {
            return Err(io::Error::from_raw_os_error(libc::ENODATA));
        }
        let mut value = Vec::with_capacity(1 << 16);
        match rustix::fs::fgetxattr(&*self.descriptor, OsStr::from_bytes(name), rustix::buffer::spare_capacity(&mut value)) {
            Err(rustix::io::Errno::NOTSUP) => Err(io::Error::from_raw_os_error(libc::ENODATA)),
            got => Ok(got.map(|_| value)?),
        }
    }
}

/// An open local file.
struct LocalContent {
    file: Rc<OwnedFd>,
}

fn offset_of(offset: u64) -> io::Result<i64> {
    i64::try_from(offset).map_err(|_| io::Error::from_raw_os_error(libc::EFBIG))
}

impl Content for LocalContent {
    fn read(&mut self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        let mut done = 0;
        while let Some(rest) = buf.get_mut(done..).filter(|rest| !rest.is_empty()) {
            match pread(&*self.file, rest, offset_of(offset.saturating_add(done as u64))?) {
                Ok(0) => break,
                Ok(n) => done = done.saturating_add(n),
                Err(Errno::EINTR) => {}
                Err(e) => return Err(e.into()),
            }
        }
        Ok(done)
    }

    fn data(&mut self, offset: u64) -> io::Result<Option<Range<u64>>> {
        let seek = |at: u64, whence| lseek(&*self.file, offset_of(at)?, whence).map_err(io::Error::from);
        let found = seek(offset, Whence::SeekData).and_then(|start| {
            let start = u64::try_from(start).unwrap_or(0);
            Ok(start..u64::try_from(seek(start, Whence::SeekHole)?).unwrap_or(0))
        });
        match found {
            Ok(range) => Ok((!range.is_empty()).then_some(range)),
            Err(e) if e.raw_os_error() == Some(libc::ENXIO) => Ok(None),
            // The file system knows no holes.
            Err(e) if e.raw_os_error() == Some(libc::EINVAL) => {
                let size = self.size()?;
                Ok((offset < size).then_some(offset..size))
            }
            Err(e) => Err(e),
        }
    }

    fn size(&self) -> io::Result<u64> {
        Ok(u64::try_from(fstat(&*self.file)?.st_size).unwrap_or(0))
    }
}

/// Standard input: read once from the start.
pub(crate) struct StandardInput {
    position: u64,
}

impl StandardInput {
    /// Reads from the start.
    pub(crate) fn new() -> Self {
        StandardInput { position: 0 }
    }

    /// Waits until there is something to read; false after a signal.
    fn wait() -> io::Result<bool> {
        let stdin = io::stdin();
        let mut polled = [nix::poll::PollFd::new(stdin.as_fd(), nix::poll::PollFlags::POLLIN)];
        match nix::poll::poll(&mut polled, nix::poll::PollTimeout::from(500u16)) {
            Ok(n) => Ok(n > 0),
            Err(Errno::EINTR) => Ok(false),
            Err(e) => Err(e.into()),
        }
    }
}

impl Content for StandardInput {
    fn read(&mut self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        if offset != self.position {
            return Err(io::Error::from_raw_os_error(libc::ESPIPE));
        }
        let mut done = 0;
        let most = buf.len().min(PIECE_BYTES);
        while let Some(rest) = buf.get_mut(done..most).filter(|rest| !rest.is_empty()) {
            if !Self::wait()? {
                if crate::cli::process::is_interrupted() {
                    return Err(io::ErrorKind::Interrupted.into());
                }
                continue;
            }
            match nix::unistd::read(io::stdin().as_fd(), rest) {
                Ok(0) => break,
                Ok(n) => done = done.saturating_add(n),
                Err(Errno::EINTR) => {}
                Err(e) => return Err(e.into()),
            }
        }
        self.position = self.position.saturating_add(done as u64);
        Ok(done)
    }

    fn data(&mut self, offset: u64) -> io::Result<Option<Range<u64>>> {
        Ok(Some(offset..u64::MAX))
    }

    fn size(&self) -> io::Result<u64> {
        Ok(self.position)
    }
}
