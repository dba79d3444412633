//! Other files that a container names: opened only beneath one directory, read-only. Raw files may
//! be written where that was asked for; they are beside the transaction: bytes go there at once,
//! and are made durable before the container's own. HDF5 files may be written where raw files may.

use super::NativeConnector;
use super::file::HdfFile;
use super::recover;
use crate::base::escape::escaped;
use crate::base::locks::Mutex;
use crate::base::request_error::errno_of;
use crate::base::{Address, Error, Result};
use crate::connector::Elsewhere;
use crate::dataset::environment::RawFiles;
use crate::file::confined::ConfinedDir;
use crate::file::directory::Entry;
use crate::file::host_file::HostFile;
use crate::file::journal_path::SUFFIX;
use crate::file::posix::PosixFile;
use crate::file::writer_log::WriterLogs;
use crate::file::{FileDriver, Identity, WriteDriver};
use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Opens files named by containers, if at all.
pub struct Neighbours {
    /// The directory they must lie beneath; `None` = none may be opened.
    root: Option<ConfinedDir>,
    /// Why none may be opened without a root.
    refusal: &'static str,
    /// Raw files may be written.
    written: bool,
    /// Raw files open for writing, by what the container calls them.
    open: Mutex<HashMap<(PathBuf, Vec<u8>), Arc<PosixFile>>>,
    /// Files of the container: they are never raw files.
    own: Arc<Mutex<Vec<Identity>>>,
}

/// The error of a write to a source in another HDF5 file, where that is not asked for.
pub(super) fn not_written() -> Error {
    let reason = "a source of the virtual dataset is in another HDF5 file, which is written only with --external-write and --external-root; or mount that file, and write the source there";
    Error::refused(libc::EACCES, reason)
}

/// Opens the file `name` of `directory`, which lies beneath `root`. Errors: `EACCES`, it does not.
fn host_beneath(root: &ConfinedDir, directory: &Path, name: &OsStr) -> std::io::Result<HostFile> {
    let outside = |_| std::io::Error::from_raw_os_error(libc::EACCES);
    let directory = root.directory().descend(directory.strip_prefix(root.path()).map_err(outside)?)?;
    HostFile::open_in(&directory, name)
}

/// True if `host` is on a FUSE file system that is mounted beneath `root`.
fn is_mounted_by_fuse(root: &ConfinedDir, host: &HostFile) -> std::io::Result<bool> {
    let device = Entry::of(root.directory())?.status.identity.device;
    Ok(device != host.identity().device && host.reader()?.is_on_fuse()?)
}

/// Raw files kept open for writing.
const WRITTEN_MAX: usize = 64;

impl Neighbours {
    /// Files beneath `root`, or none.
    pub fn new(root: Option<ConfinedDir>) -> Self {
        let refusal = "other files are not opened (--external=off)";
        Neighbours { root, refusal, written: false, open: Mutex::default(), own: Arc::default() }
    }

    /// No files: the container is in an object store.
    pub fn remote() -> Self {
        Neighbours { refusal: "files beside an object of an object store are not opened; copy them to this machine", ..Self::new(None) }
    }

    /// The same; raw files may be written if `written`.
    #[must_use]
    pub fn written(self, written: bool) -> Self {
        Neighbours { written, ..self }
    }

    /// The same rules for a container of one of these files. What either writes is its own to sync.
    #[must_use]
    pub(super) fn for_other(&self) -> Self {
        let (root, open, own) = (self.root.as_ref().map(ConfinedDir::again), Mutex::default(), self.own.clone());
        Neighbours { root, refusal: self.refusal, written: self.written, open, own }
    }

    /// True if other files beneath the root may be written.
    pub(super) fn is_written(&self) -> bool {
        self.written && self.root.is_some()
    }

    /// Opens the HDF5 file `name` of `directory`, beneath the root, to be written next. Errors:
    /// `EACCES`, files may not be written, or it lies outside of the root.
    pub(super) fn host(&self, directory: &Path, name: &OsStr) -> Result<HostFile> {
        let shown = escaped(Path::new(name));
        let refuse = |errno, reason| Err(Error::refused(errno, format!("the source file {shown} {reason}")));
        let Some(root) = self.root.as_ref().filter(|_| self.written) else { return Err(not_written()) };
        if name.as_bytes().ends_with(SUFFIX.as_bytes()) {
            return refuse(libc::EPERM, "has the name of a journal".to_owned());
        }
        let host = match host_beneath(root, directory, name) {
            Ok(host) => host,
            Err(e) => return refuse(errno_of(&e).unwrap_or(libc::EIO), format!("cannot be opened: {e}")),
        };
        // In a mount beneath the root, which may be this daemon's, it would wait for itself.
        match is_mounted_by_fuse(root, &host) {
            Ok(false) => Ok(host),
            Ok(true) => refuse(libc::EACCES, "is in a FUSE mount beneath --external-root; name a directory of that mount".to_owned()),
            Err(e) => refuse(libc::EIO, format!("cannot be opened: {e}")),
        }
    }

    /// Why the source file `name`, which a file in `from` names, cannot be written: there is none.
    pub(super) fn missing_to_write(&self, from: &Path, name: &[u8]) -> Error {
        let Some(root) = self.root.as_ref().filter(|_| self.written) else { return not_written() };
        let shown = escaped(Path::new(OsStr::from_bytes(name))).to_string();
        let path = Path::new(OsStr::from_bytes(name));
        let last = path.file_name().filter(|_| path.is_absolute()).map(Path::new);
        let mut error = Error::refused(libc::EACCES, format!("the source file {shown} lies outside of --external-root"));
        for place in [Some(path), last].into_iter().flatten().filter_map(|p| root.resolve(from, p)) {
            if let Err(e) = root.open_file(&place) {
                error = Error::refused(errno_of(&e).unwrap_or(libc::EIO), format!("the source file {shown} cannot be opened: {e}"));
            }
        }
        error
    }

    /// `file`, opened as `name` of `directory`, as it is after an interrupted commit. Writes
    /// nothing. Errors: its journal is not there, or is not to be used.
    fn committed(&self, file: PosixFile, directory: &Path, name: &OsStr) -> Result<Arc<dyn FileDriver>> {
        let failed = |e| Error::io("open", Address(0), &e);
        let identity = file.status().map_err(failed)?.identity;
        let host = self.root.as_ref().and_then(|root| host_beneath(root, directory, name).ok());
        match host.filter(|host| host.identity() == identity) {
            Some(host) => recover::committed(file, &host),
            // Another file has its name.
            None => recover::committed_without_journal(file),
        }
    }

    /// The file `identity` is one of the container, and no raw file that may be written.
    pub fn own(&self, identity: Identity) {
        let mut own = self.own.lock();
        if !own.contains(&identity) {
            own.push(identity);
        }
    }

    /// True when bytes were written that are not durable yet.
    pub fn is_unsynced(&self) -> bool {
        !self.open.lock().is_empty()
    }

    /// Makes what was written durable.
    pub fn sync(&self) -> Result<()> {
        let files = std::mem::take(&mut *self.open.lock());
        let results: Vec<_> = files.values().map(|f| f.sync()).collect();
        results.into_iter().collect::<std::io::Result<()>>().map_err(|e| Error::io("sync an external raw file", Address(0), &e))
    }

    /// Opens the raw file `name` for writing, where libhdf5 would look for it; makes it there if it
    /// is nowhere.
    fn open_for_writing(&self, from: &Path, name: &[u8]) -> Result<Arc<PosixFile>> {
        let refuse = |reason: String| Err(Error::refused(libc::EPERM, reason));
        let Some(root) = self.root.as_ref().filter(|_| self.written) else {
            let reason = "raw data in other files is written only with --external-write and --external-root";
            return Err(Error::refused(libc::EACCES, reason));
        };
        let key = (from.to_path_buf(), name.to_vec());
        if let Some(file) = self.open.lock().get(&key) {
            return Ok(file.clone());
        }
        let shown = String::from_utf8_lossy(name);
        if name.ends_with(SUFFIX.as_bytes()) {
            return refuse(format!("the raw file {shown} has the name of a journal"));
        }
        let path = Path::new(OsStr::from_bytes(name));
        let last = path.file_name().filter(|_| path.is_absolute()).map(Path::new);
        let places: Vec<PathBuf> = [Some(path), last].into_iter().flatten().filter_map(|p| root.resolve(from, p)).collect();
        // Not in another place than it names.
        let made = root.resolve(from, path);
        let missing = |e: &std::io::Error| e.raw_os_error() == Some(libc::ENOENT);
        places.iter().chain(&made).try_for_each(|place| root.check_visible(from, place))?;
        let mut opened = Err(std::io::Error::from_raw_os_error(libc::ENOENT));
        for (place, create) in places.iter().map(|p| (p, false)).chain(made.iter().map(|p| (p, true))) {
            opened = root.open_for_writing(place, create);
            if !opened.as_ref().is_err_and(missing) {
                break;
            }
        }
        let file = match opened.and_then(PosixFile::from_file) {
            Ok(file) => Arc::new(file),
            Err(e) if places.is_empty() => return refuse(format!("the raw file {shown} lies outside of --external-root: {e}")),
            Err(e) => return refuse(format!("the raw file {shown} cannot be opened for writing: {e}")),
        };
        let identity = file.status().map_err(|e| Error::io("stat", Address(0), &e))?.identity;
        if self.own.lock().contains(&identity) {
            return refuse(format!("the raw file {shown} is an HDF5 file that is in use"));
        }
        if self.open.lock().len() >= WRITTEN_MAX {
            self.sync()?;
        }
        self.open.lock().insert(key, file.clone());
        Ok(file)
    }

    /// Errors: `EACCES`, a file in the directory `from` may not name the raw file `name`.
    pub(super) fn check_name(&self, from: &Path, name: &[u8]) -> Result<()> {
        let shown = String::from_utf8_lossy(name);
        let refuse = |reason: String| Err(Error::refused(libc::EACCES, reason));
        let Some(root) = &self.root else {
            return refuse(format!(
                "the raw file {shown} may not be named: {}; --external-root names a directory for such files",
                self.refusal
            ));
        };
        if name.ends_with(SUFFIX.as_bytes()) {
            return refuse(format!("the raw file {shown} has the name of a journal"));
        }
        match root.resolve(from, Path::new(OsStr::from_bytes(name))) {
            Some(place) => root.check_visible(from, &place),
            None => refuse(format!("the raw file {shown} lies outside of the directory of such files (--external-root)")),
        }
    }

    fn missing(what: &'static str, name: &[u8], reason: String) -> Error {
        Error::Missing { what, name: String::from_utf8_lossy(name).into_owned(), reason: reason.into() }
    }

    /// Opens the file `name` that a file in directory `from` names, and returns the directory it
    /// lies in.
    ///
    /// Places, as libhdf5 has them: an absolute name as it is and then its last component beside
    /// `from`; a relative name beside `from`. Each only beneath the root.
    pub fn open(&self, from: &Path, name: &[u8], what: &'static str) -> Result<(PosixFile, PathBuf)> {
        let Some(root) = &self.root else {
            return Err(Self::missing(what, name, self.refusal.into()));
        };
        let path = Path::new(OsStr::from_bytes(name));
        let last = path.file_name().filter(|_| path.is_absolute()).map(Path::new);
        let mut reason = "it lies outside the directory that may be read (--external-root)".to_string();
        for candidate in [Some(path), last].into_iter().flatten() {
            let Some(relative) = root.resolve(from, candidate) else { continue };
            root.check_visible(from, &relative)?;
            match root.open_file(&relative).and_then(PosixFile::from_file) {
                Ok(file) => {
                    let directory = root.path().join(&relative).parent().map_or_else(|| root.path().to_path_buf(), Path::to_path_buf);
                    return Ok((file, directory));
                }
                Err(e) => reason = e.to_string(),
            }
        }
        Err(Self::missing(what, name, reason))
    }
}

impl Neighbours {
    /// Where run files of log writers are beside `file`, which was opened here. `None`: it has no
    /// name any more.
    pub(super) fn writers_beside(&self, file: &PosixFile) -> Result<Option<WriterLogs>> {
        let Some(root) = &self.root else { return Ok(None) };
        // A symbolic link may have led to it.
        let path = file.path_now().map_err(|e| Error::io("find", Address(0), &e))?;
        let (Some(name), Some(parent)) = (path.file_name(), path.parent()) else { return Ok(None) };
        let Ok(relative) = parent.strip_prefix(root.path()) else { return Ok(None) };
        let found = root.directory().descend(relative).and_then(|directory| WriterLogs::beside(directory, name, file));
        found.or_else(|e| match e.kind() {
            std::io::ErrorKind::NotFound => Ok(None),
            _ => Err(Error::io("open", Address(0), &e)),
        })
    }
}

/// Raw files of one container file.
pub struct RawNeighbours {
    /// Where they may lie.
    pub neighbours: Arc<Neighbours>,
    /// Directory of the file that names them.
    pub directory: PathBuf,
}

impl RawFiles for RawNeighbours {
    fn open_raw(&self, name: &[u8]) -> Result<Arc<dyn FileDriver>> {
        let (file, _) = self.neighbours.open(&self.directory, name, "external raw file")?;
        Ok(Arc::new(file))
    }

    fn open_raw_for_writing(&self, name: &[u8]) -> Result<Arc<dyn WriteDriver>> {
        let file = self.neighbours.open_for_writing(&self.directory, name)?;
        Ok(file)
    }
}

impl NativeConnector {
    /// Opens `driver`, which is `name` of `directory`, as a file beside the mounted one: as it is
    /// after a commit that was interrupted.
    pub(super) fn open_beside(&self, driver: PosixFile, directory: PathBuf, name: &OsStr) -> Result<HdfFile> {
        let writers = self.options.neighbours.writers_beside(&driver)?;
        let committed = self.options.neighbours.committed(driver, &directory, name)?;
        Ok(HdfFile::open(committed, 0, directory)?.named(name).beside(writers))
    }

    /// Errors: `EACCES`, a new dataset in `file` may not have its elements there.
    pub(super) fn check_elsewhere(&self, file: &HdfFile, elsewhere: &Elsewhere) -> Result<()> {
        match elsewhere {
            Elsewhere::Files(segments) => segments.iter().try_for_each(|s| self.options.neighbours.check_name(&file.directory, &s.name)),
            // Names of files are checked as they are opened, as those of external links.
            Elsewhere::Datasets(_) => Ok(()),
        }
    }
}

/// The surroundings of `file`.
pub(crate) fn raw_files(neighbours: &Arc<Neighbours>, file: &HdfFile) -> Arc<dyn RawFiles> {
    Arc::new(RawNeighbours { neighbours: neighbours.clone(), directory: file.directory.clone() })
}
