//! A local directory as the destination: by descriptors, beneath one directory.
//!
//! A file is written under a temporary name in its directory and renamed when it is complete. No
//! symbolic link of the destination is followed.

use super::sink::{Finished, KEPT_MODE_BITS, MARKER, NewFile, NewLink, SinkDirectory, SinkFile, check_name, temporary_name};
use crate::cli::side::Meta;
use crate::cli::side::local::{find, meta, open_directory};
use crate::fs::open::Directory;
use nix::dir::Dir;
use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, RenameFlags, openat, renameat, renameat2};
use nix::sys::stat::{Mode, UtimensatFlags, fchmod, fstat, futimens, mkdirat, utimensat};
use nix::sys::time::TimeSpec;
use nix::sys::uio::pwrite;
use nix::unistd::{Gid, Uid, UnlinkatFlags, fchown, fchownat, ftruncate, linkat, symlinkat, unlinkat};
use std::ffi::OsStr;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::rc::Rc;
use std::time::{SystemTime, UNIX_EPOCH};

/// Longest marker of a copy that is read, bytes: it has two paths at most.
const MARKER_BYTES_MAX: usize = 16 << 10;

/// A directory of the destination.
pub(super) struct LocalDirectory {
    /// The directory that the user named.
    top: Rc<OwnedFd>,
    /// Names from there to this one.
    at: Vec<Vec<u8>>,
    directory: Rc<OwnedFd>,
}

impl LocalDirectory {
    /// Opens the directory `path`, which may be a link to it.
    pub(super) fn open(path: &Path) -> io::Result<LocalDirectory> {
        Self::of(&Directory::open(path)?)
    }

    /// The directory `directory`.
    pub(super) fn of(directory: &Directory) -> io::Result<LocalDirectory> {
        let top = Rc::new(open_directory(directory, b".")?);
        Ok(LocalDirectory { directory: top.clone(), top, at: Vec::new() })
    }

    /// Its descriptor.
    pub(super) fn descriptor(&self) -> &OwnedFd {
        &self.directory
    }

    fn below(&self, name: &[u8], directory: OwnedFd) -> Rc<dyn SinkDirectory> {
        let mut at = self.at.clone();
        at.push(name.to_vec());
        Rc::new(LocalDirectory { top: self.top.clone(), at, directory: Rc::new(directory) })
    }

    /// Makes a name by `make` under a temporary name if `exists`, then moves it to `name`.
    fn place(&self, name: &[u8], exists: bool, make: impl Fn(&[u8]) -> io::Result<()>) -> io::Result<()> {
        check_name(name)?;
        if !exists {
            return make(name);
        }
        let temporary = temporary_name()?;
        make(&temporary)?;
        rename(&self.directory, &temporary, name, true).inspect_err(|_| {
            let _ = unlinkat(&*self.directory, temporary.as_slice(), UnlinkatFlags::NoRemoveDir);
        })?;
        // rename(2) does nothing if both are names of one file.
        match unlinkat(&*self.directory, temporary.as_slice(), UnlinkatFlags::NoRemoveDir) {
            Ok(()) | Err(Errno::ENOENT) => Ok(()),
            Err(e) => Err(e.into()),
        }
    }
}

/// Gives the file `from` the name `to`; `exists`: another file may have it.
fn rename(directory: &OwnedFd, from: &[u8], to: &[u8], exists: bool) -> io::Result<()> {
    if !exists {
        match renameat2(directory, from, directory, to, RenameFlags::RENAME_NOREPLACE) {
            // The file system does not know the flag.
            Err(Errno::EINVAL | Errno::ENOSYS) => {}
            done => return Ok(done?),
        }
    }
    Ok(renameat(directory, from, directory, to)?)
}

fn time_spec(time: SystemTime) -> TimeSpec {
    match time.duration_since(UNIX_EPOCH) {
        Ok(after) => TimeSpec::new(i64::try_from(after.as_secs()).unwrap_or(i64::MAX), after.subsec_nanos().into()),
        Err(before) => {
            let before = before.duration();
            let seconds = i64::try_from(before.as_secs()).unwrap_or(i64::MAX).saturating_neg();
            match i64::from(before.subsec_nanos()) {
                0 => TimeSpec::new(seconds, 0),
                part => TimeSpec::new(seconds.saturating_sub(1), 1_000_000_000i64.saturating_sub(part)),
            }
        }
    }
}

fn mode(meta: &Meta) -> Mode {
    Mode::from_bits_truncate(meta.perm & KEPT_MODE_BITS)
}

/// Sets owner, mode and times of an open file. As with cp, another owner needs privilege.
fn set_meta(file: &OwnedFd, meta: &Meta, owner: bool) -> io::Result<()> {
    if owner {
        match fchown(file, Some(Uid::from_raw(meta.uid)), Some(Gid::from_raw(meta.gid))) {
            Ok(()) | Err(Errno::EPERM) => {}
            Err(e) => return Err(e.into()),
        }
    }
    fchmod(file, mode(meta))?;
    Ok(futimens(file, &time_spec(meta.atime), &time_spec(meta.mtime))?)
}

fn set_xattr(file: &OwnedFd, name: &[u8], value: &[u8]) -> io::Result<()> {
    Ok(rustix::fs::fsetxattr(file, OsStr::from_bytes(name), value, rustix::fs::XattrFlags::empty())?)
}

/// The target of a symbolic link for `link`.
fn target(link: &NewLink) -> io::Result<&[u8]> {
    match link {
        NewLink::Target(target) => Ok(target),
        NewLink::Stored(_) | NewLink::Group(_) => Err(io::Error::from_raw_os_error(libc::EINVAL)),
    }
}

impl SinkDirectory for LocalDirectory {
    fn identity(&self) -> io::Result<(u64, u64)> {
        Ok(meta(&fstat(&*self.directory)?).identity)
    }

    fn find(&self, name: &[u8]) -> io::Result<Option<Meta>> {
        find(&*self.directory, name)
    }

    fn local_path(&self) -> Option<&[Vec<u8>]> {
        Some(&self.at)
    }

    fn is_empty(&self) -> io::Result<bool> {
        let mut listed = Dir::from_fd(open_directory(&*self.directory, b".")?)?;
        let is_name = |name: &[u8]| name != b"." && name != b"..";
        Ok(!listed.iter().any(|entry| entry.is_ok_and(|entry| is_name(entry.file_name().to_bytes()))))
    }

    fn marker(&self) -> io::Result<Option<Vec<u8>>> {
        let mut value = Vec::with_capacity(MARKER_BYTES_MAX);
        match rustix::fs::fgetxattr(&*self.directory, OsStr::from_bytes(MARKER), rustix::buffer::spare_capacity(&mut value)) {
            Ok(_) => Ok(Some(value)),
            // None, one of another program, or a file system without them.
            Err(rustix::io::Errno::NODATA | rustix::io::Errno::RANGE | rustix::io::Errno::NOTSUP) => Ok(None),
            Err(e) => Err(e.into()),
        }
    }

    fn set_marker(&self, marker: Option<&[u8]>) -> io::Result<()> {
        match marker {
            Some(marker) => set_xattr(&self.directory, MARKER, marker),
            None => Ok(rustix::fs::fremovexattr(&*self.directory, OsStr::from_bytes(MARKER))?),
        }
    }

    fn finished(&self, name: &[u8]) -> io::Result<Option<Finished>> {
        let path = self.at.iter().cloned().chain([name.to_vec()]).collect();
        Ok(find(&*self.directory, name)?.map(|meta| Finished::Local(Rc::new(path), meta.identity)))
    }

    fn enter(&self, name: &[u8]) -> io::Result<Rc<dyn SinkDirectory>> {
        check_name(name)?;
        Ok(self.below(name, open_directory(&*self.directory, name)?))
    }

    fn make_directory(&self, name: &[u8], _meta: &Meta) -> io::Result<Rc<dyn SinkDirectory>> {
        check_name(name)?;
        mkdirat(&*self.directory, name, Mode::S_IRWXU)?;
        Ok(self.below(name, open_directory(&*self.directory, name)?))
    }

    fn make_file(&self, new: &NewFile<'_>) -> io::Result<Box<dyn SinkFile>> {
        check_name(new.name)?;
        let temporary = temporary_name()?;
        let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let file = openat(&*self.directory, temporary.as_slice(), flags, Mode::S_IRUSR | Mode::S_IWUSR)?;
        let mut at = self.at.clone();
        at.push(new.name.to_vec());
        let (directory, name) = (self.directory.clone(), new.name.to_vec());
        Ok(Box::new(LocalFile { directory, temporary: Some(temporary), name, at, file, exists: new.exists }))
    }

    fn make_link(&self, name: &[u8], link: &NewLink, meta: &Meta, owner: bool, exists: bool) -> io::Result<()> {
        let target = target(link)?;
        self.place(name, exists, |name| {
            symlinkat(target, &*self.directory, name)?;
            if owner {
                let (uid, gid) = (Uid::from_raw(meta.uid), Gid::from_raw(meta.gid));
                match fchownat(&*self.directory, name, Some(uid), Some(gid), AtFlags::AT_SYMLINK_NOFOLLOW) {
                    // As with cp, another owner needs privilege.
                    Ok(()) | Err(Errno::EPERM) => {}
                    Err(e) => return Err(e.into()),
                }
            }
            let (atime, mtime) = (time_spec(meta.atime), time_spec(meta.mtime));
            Ok(utimensat(&*self.directory, name, &atime, &mtime, UtimensatFlags::NoFollowSymlink)?)
        })
    }

    fn link(&self, name: &[u8], file: &Finished, exists: bool) -> io::Result<()> {
        let Finished::Local(path, identity) = file else { return Err(io::Error::from_raw_os_error(libc::EXDEV)) };
        let Some((last, above)) = path.split_last() else { return Err(io::Error::from_raw_os_error(libc::ENOENT)) };
        let mut directory = self.top.clone();
        for name in above {
            directory = Rc::new(open_directory(&*directory, name)?);
        }
        // Another program may have replaced it.
        if find(&*directory, last)?.is_none_or(|meta| meta.identity != *identity) {
            return Err(io::Error::from_raw_os_error(libc::ESTALE));
        }
        self.place(name, exists, |name| Ok(linkat(&*directory, last.as_slice(), &*self.directory, name, AtFlags::empty())?))
    }

    fn set_xattr(&self, name: &[u8], value: &[u8]) -> io::Result<()> {
        set_xattr(&self.directory, name, value)
    }

    fn set_meta(&self, meta: &Meta, owner: bool) -> io::Result<()> {
        set_meta(&self.directory, meta, owner)
    }
}

/// A local file that is being made.
struct LocalFile {
    directory: Rc<OwnedFd>,
    /// `None`: it has its name.
    temporary: Option<Vec<u8>>,
    name: Vec<u8>,
    /// Path below the top directory.
    at: Vec<Vec<u8>>,
    file: OwnedFd,
    exists: bool,
}

impl Drop for LocalFile {
    fn drop(&mut self) {
        if let Some(temporary) = &self.temporary {
            let _ = unlinkat(&*self.directory, temporary.as_slice(), UnlinkatFlags::NoRemoveDir);
        }
    }
}

fn offset_of(offset: u64) -> io::Result<i64> {
    i64::try_from(offset).map_err(|_| io::Error::from_raw_os_error(libc::EFBIG))
}

impl SinkFile for LocalFile {
    fn write(&mut self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut done = 0;
        while let Some(rest) = data.get(done..).filter(|rest| !rest.is_empty()) {
            match pwrite(&self.file, rest, offset_of(offset.saturating_add(done as u64))?) {
                Ok(n) => done = done.saturating_add(n),
                Err(Errno::EINTR) => {}
                Err(e) => return Err(e.into()),
            }
        }
        Ok(())
    }

    fn set_size(&mut self, size: u64) -> io::Result<()> {
        Ok(ftruncate(&self.file, offset_of(size)?)?)
    }

    fn end_content(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn set_xattr(&mut self, name: &[u8], value: &[u8]) -> io::Result<()> {
        set_xattr(&self.file, name, value)
    }

    fn set_meta(&mut self, meta: &Meta, owner: bool) -> io::Result<()> {
        set_meta(&self.file, meta, owner)
    }

    fn finish(mut self: Box<Self>) -> io::Result<Finished> {
        let identity = meta(&fstat(&self.file)?).identity;
        if let Some(temporary) = &self.temporary {
            rename(&self.directory, temporary, &self.name, self.exists)?;
        }
        self.temporary = None;
        Ok(Finished::Local(Rc::new(std::mem::take(&mut self.at)), identity))
    }
}
