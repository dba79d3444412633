//! Run files of log writers: `NAME.log.K` in the directory of the HDF5 file `NAME`.
//!
//! Other users may be able to create files in the directory. A run file is used under the same
//! conditions as a journal.

use super::directory::{Directory, Entry};
use super::host_file::HostFile;
use super::journal_path::rejection;
use super::posix::PosixFile;
use super::{FileDriver, Identity, read_all};
use crate::base::request_error::RequestError;
use nix::fcntl::OFlag;
use nix::sys::stat::Mode;
use std::ffi::{OsStr, OsString};
use std::io;

/// Most writers: their numbers are 1 to this.
pub const WRITERS_MAX: u32 = 1024;
/// What is between the name of the HDF5 file and the number of the writer.
const INFIX: &str = ".log.";
/// Permission bits of a file that its users may read and write.
const MODE: u32 = 0o666;
/// Bytes by which a run file is known, at least.
const BEGINNING_BYTES: usize = 64;

/// The places of run files beside an HDF5 file.
#[derive(Debug, Clone)]
pub struct WriterLogs {
    directory: Directory,
    name: OsString,
    /// Owner, mode and identity of the HDF5 file.
    owner: Entry,
}

/// Name of the run file of `writer` of the HDF5 file `name`.
pub fn name_of(name: &OsStr, writer: u32) -> OsString {
    let mut own = name.to_owned();
    own.push(format!("{INFIX}{writer}"));
    own
}

/// The first bytes of `file`.
pub fn beginning(file: &PosixFile) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; BEGINNING_BYTES];
    let len = read_all(file, &mut bytes, 0)?;
    bytes.truncate(len);
    Ok(bytes)
}

impl WriterLogs {
    /// The places beside `host`.
    pub fn of(host: &HostFile) -> io::Result<WriterLogs> {
        let owner = host.reader()?.entry()?;
        Ok(WriterLogs { directory: host.directory().clone(), name: host.name().to_owned(), owner })
    }

    /// The places beside `file`; `None`: it has not the name `name` in `directory`.
    pub fn beside(directory: Directory, name: &OsStr, file: &PosixFile) -> io::Result<Option<WriterLogs>> {
        let places = WriterLogs { directory, name: name.to_owned(), owner: file.entry()? };
        Ok(if places.has_file()? { Some(places) } else { None })
    }

    /// True while the HDF5 file has its name.
    fn has_file(&self) -> io::Result<bool> {
        Ok(self.directory.entry(&self.name)?.is_some_and(|entry| entry.status.identity == self.owner.status.identity))
    }

    /// Errors: `ESTALE`, the HDF5 file or the run file `file` of `writer` lost its name.
    pub fn check_names(&self, writer: u32, file: &PosixFile) -> io::Result<()> {
        let (name, own) = (self.name.display(), self.name(writer));
        let gone = |what: &dyn std::fmt::Display, remedy: String| {
            let text = format!("{what} was renamed or removed: {remedy}");
            Err(RequestError { errno: libc::ESTALE, is_transient: false, text }.into())
        };
        if !self.is(writer, file.status()?.identity)? {
            return gone(&own.display(), "what is written to it is not found beside the HDF5 file".into());
        }
        if !self.has_file()? {
            return gone(&name, format!("give it that name again, or rename {} with it after unmounting", own.display()));
        }
        Ok(())
    }

    /// Name of the run file of `writer`.
    pub fn name(&self, writer: u32) -> OsString {
        name_of(&self.name, writer)
    }

    /// Errors: `EPERM` for a file that another user may have made.
    fn check(&self, writer: u32, file: &PosixFile) -> io::Result<()> {
        match rejection(&file.entry()?, &self.owner) {
            None => Ok(()),
            Some(reason) => {
                let name = self.name(writer);
                Err(io::Error::new(io::ErrorKind::PermissionDenied, format!("{} is a {reason}: remove it", name.display())))
            }
        }
    }

    /// Numbers and files of all writers, ascending, open for reading: the files of such names whose
    /// first bytes `is_own` accepts. Errors: also one of these that another user may have made.
    pub fn all(&self, is_own: fn(&[u8]) -> bool) -> io::Result<Vec<(u32, PosixFile)>> {
        let mut found = Vec::new();
        for writer in 1..=WRITERS_MAX {
            let name = self.name(writer);
            if !self.directory.entry(&name)?.is_some_and(|entry| entry.is_regular()) {
                continue;
            }
            let named = |e: io::Error| io::Error::new(e.kind(), format!("{}: {e}", name.display()));
            let file = self.directory.open_file(&name, OFlag::O_RDONLY, Mode::empty()).and_then(PosixFile::from_file).map_err(named)?;
            if !is_own(&beginning(&file).map_err(named)?) {
                continue;
            }
            self.check(writer, &file)?;
            found.push((writer, file));
        }
        Ok(found)
    }

    /// Opens the run file of `writer` for writing, made if it is not there, and locks it. One that
    /// root makes gets the owner of the HDF5 file. Errors: `EWOULDBLOCK` if another mount has it.
    pub fn own(&self, writer: u32) -> io::Result<PosixFile> {
        let (name, mode) = (self.name(writer), Mode::from_bits_truncate(self.owner.mode & MODE));
        let open = |flags: OFlag| self.directory.open_file(&name, OFlag::O_RDWR | flags, mode).and_then(PosixFile::from_file);
        let file = match open(OFlag::O_CREAT | OFlag::O_EXCL) {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => open(OFlag::empty())?,
            made => {
                let made = made?;
                if nix::unistd::geteuid().is_root() {
                    made.set_owner(self.owner.uid, self.owner.gid)?;
                }
                made
            }
        };
        self.check(writer, &file)?;
        file.lock_exclusive()?;
        self.directory.sync()?;
        // It was removed while it was opened.
        let identity = file.status()?.identity;
        if self.is(writer, identity)? { Ok(file) } else { Err(io::Error::from_raw_os_error(libc::ESTALE)) }
    }

    fn is(&self, writer: u32, identity: Identity) -> io::Result<bool> {
        Ok(self.directory.entry(&self.name(writer))?.is_some_and(|entry| entry.status.identity == identity))
    }

    /// Removes the run file of `writer`, if it is `file`.
    pub fn remove(&self, writer: u32, file: &PosixFile) -> io::Result<()> {
        if self.is(writer, file.status()?.identity)? {
            self.directory.remove(&self.name(writer))?;
        }
        self.directory.sync()
    }
}
