//! The kind of container that is an HDF5 file.

use super::external::Neighbours;
use super::following::Following;
use super::log::LogAccess;
use super::{
    NativeConnector, Options, Recovered, onion, open_for_reading, open_to_change, open_to_recover, open_to_rescue, open_unwritten, several,
    share_lock,
};
use crate::base::escape::escaped;
use crate::base::request_error::{RequestError, errno_of};
use crate::base::{Address, Error, Result};
use crate::connector::new_file::NewFile;
use crate::connector::open::{
    Backing, ContainerKind, ContainerPlace, ExternalPolicy, FreeSpace, Located, OpenContainer, OpenError, OpenOptions, Recognized,
    UsedDirectory, temporary_directory,
};
use crate::connector::plan;
use crate::connector::{Connector, DatasetSpec};
use crate::dataset::environment::Environment;
use crate::dataset::layout::virtual_::MissingPolicy;
use crate::file::confined::ConfinedDir;
use crate::file::directory::Directory;
use crate::file::host_file::HostFile;
use crate::file::posix::PosixFile;
use crate::file::writer_log::WriterLogs;
use crate::file::{FileDriver, Status};
use crate::meta::find_superblock;
use nix::fcntl::OFlag;
use nix::sys::stat::Mode;
use std::ffi::OsStr;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// See the module's description.
pub struct Hdf5File;

/// An HDF5 file, opened.
struct LocatedFile {
    host: HostFile,
    /// Open for writing, and locked, for a writable container.
    writable: Option<PosixFile>,
    /// The directory of other files that may be read.
    external: Option<ConfinedDir>,
    external_written: bool,
    /// The run file of a log writer, and the HDF5 file with the lock of readers.
    log_writer: Option<(PosixFile, PosixFile)>,
}

impl From<Status> for Backing {
    fn from(s: Status) -> Self {
        Backing { atime: s.atime, mtime: s.mtime, ctime: s.ctime, len: s.len }
    }
}

impl ContainerKind for Hdf5File {
    fn claims(&self, _target: &Path) -> bool {
        true
    }

    fn exists(&self, target: &Path) -> bool {
        target.symlink_metadata().is_ok() || several::first_member(target).is_some()
    }

    fn locate(&self, options: &OpenOptions) -> Result<Box<dyn Located>, OpenError> {
        let path = &options.target;
        let io = |source| OpenError::Open { path: path.clone(), source };
        let host = HostFile::open(path).or_else(|e| match several::first_member(path) {
            Some(first) if e.kind() == std::io::ErrorKind::NotFound => HostFile::open(&first),
            _ => Err(e),
        });
        located(host.map_err(io)?, options)
    }

    fn locate_in(&self, place: &ContainerPlace<'_>, options: &OpenOptions) -> Result<Box<dyn Located>, OpenError> {
        let io = |source| OpenError::Open { path: options.target.clone(), source };
        let host = HostFile::open_in(place.directory, place.name).map_err(io)?;
        if host.identity() != place.identity {
            return Err(io(std::io::Error::from_raw_os_error(libc::ESTALE)));
        }
        located(host, options)
    }

    fn recognize(&self, place: &ContainerPlace<'_>) -> std::io::Result<Recognized> {
        let file = PosixFile::from_file(place.directory.open_file(place.name, OFlag::O_RDONLY, Mode::empty())?)?;
        if file.status()?.identity != place.identity {
            return Err(std::io::Error::from_raw_os_error(libc::ESTALE));
        }
        recognized(&file, Path::new(place.name))
    }

    fn open_named(&self, root: &ConfinedDir, from: &Path, name: &[u8], options: &OpenOptions) -> Result<Arc<dyn Connector>> {
        let beneath = || Neighbours::new(Some(root.again()));
        let (driver, directory) = beneath().open(from, name, "external link target")?;
        let mut native = native_options(options, beneath(), OsStr::new(""))?;
        native.log.writers = beneath().writers_beside(&driver)?;
        Ok(NativeConnector::open(Arc::new(driver), directory, native)?)
    }

    fn create(&self, path: &Path, new: &NewFile) -> Result<(), OpenError> {
        super::create(path, new).map_err(|source| open_error(path, source))
    }

    fn examine(&self, path: &Path, confine: &mut dyn FnMut(&[UsedDirectory])) -> Result<String, OpenError> {
        let engine = |source| open_error(path, source);
        let host = HostFile::open(path).map_err(|source| OpenError::Open { path: path.to_owned(), source })?;
        confine(&directories(&host, false, None)?);
        let found = super::examine(&host).map_err(engine)?;
        Ok(format!("{}: {}", path.display(), sentence(&found, "would be")))
    }

    fn recover(&self, path: &Path, confine: &mut dyn FnMut(&[UsedDirectory])) -> Result<String, OpenError> {
        let engine = |source| open_error(path, source);
        let host = HostFile::open(path).map_err(|source| OpenError::Open { path: path.to_owned(), source })?;
        let file = open_to_recover(&host).map_err(engine)?;
        confine(&directories(&host, true, None)?);
        let found = super::recover(&host, file).map_err(engine)?;
        Ok(format!("{}: {}", path.display(), sentence(&found, "was")))
    }

    fn check_new_dataset(&self, spec: &DatasetSpec) -> Result<()> {
        plan::check_new_dataset(spec)
    }

    fn check_part(&self, spec: &DatasetSpec) -> Result<()> {
        plan::check_part(spec)
    }
}

/// Whether `driver`, which is called `name`, has a superblock.
pub(super) fn recognized(driver: &dyn FileDriver, name: &Path) -> std::io::Result<Recognized> {
    match find_superblock(driver) {
        Ok(Some(_)) => Ok(Recognized::Container),
        Ok(None) => Ok(Recognized::Other),
        Err(Error::Io { errno, .. }) => Err(std::io::Error::from_raw_os_error(errno)),
        Err(e) => {
            tracing::warn!("{}: {e}", escaped(name));
            Ok(Recognized::Damaged)
        }
    }
}

/// Opens the container in the bytes of `driver`, for reading; other files are not opened.
pub(super) fn open_driver(driver: Arc<dyn FileDriver>, options: &OpenOptions) -> Result<OpenContainer, OpenError> {
    let path = &options.target;
    let backing = driver.status().map_err(|source| OpenError::Open { path: path.clone(), source })?.into();
    let engine = |source| open_error(path, source);
    let native = native_options(options, Neighbours::remote(), OsStr::new("")).map_err(engine)?;
    let connector: Arc<dyn Connector> = match options.rescue {
        true => NativeConnector::open_damaged(driver, PathBuf::from("/"), native).map_err(engine)?,
        false => NativeConnector::open(driver, PathBuf::from("/"), native).map_err(engine)?,
    };
    Ok(OpenContainer { connector, backing, free_space: None })
}

impl Located for LocatedFile {
    /// Those of the file, of other files and of temporary files.
    fn directories(&self) -> Result<Vec<UsedDirectory>, OpenError> {
        let external = self.external.as_ref().map(|dir| (dir.directory(), self.external_written));
        directories(&self.host, self.writable.is_some(), external)
    }

    fn open(self: Box<Self>, options: &OpenOptions) -> Result<OpenContainer, OpenError> {
        let path = &options.target;
        let io = |source| OpenError::Open { path: path.clone(), source };
        let engine = |source| open_error(path, source);
        let LocatedFile { host, writable, external, external_written, log_writer } = *self;
        let reader = host.reader().map_err(io)?;
        let backing = reader.status().map_err(io)?.into();
        let directory = host.directory().path().map_err(io)?;
        let mut native = native_options(options, Neighbours::new(external).written(external_written), host.name()).map_err(engine)?;
        let writers = WriterLogs::of(&host).map_err(io)?;
        native.log.writers = Some(writers.clone());
        let connector: Arc<dyn Connector> = if options.rescue {
            NativeConnector::open_damaged(open_to_rescue(&host).map_err(engine)?, directory, native).map_err(engine)?
        } else if let Some(revision) = onion::open(&host, &options.version).map_err(engine)? {
            if writable.is_some() {
                let reason = "the file has revisions in an onion file beside it, which are only read: leave out --read-write, or copy one by 'h5dir cp -r FILE:/ NEW.h5:/ --create'";
                return Err(engine(Error::refused(libc::EROFS, reason)));
            }
            NativeConnector::open(revision, directory, native).map_err(engine)?
        } else if let Some(members) = several::open(&host).map_err(engine)? {
            if writable.is_some() {
                let reason = "files in several members (drivers family and multi) are only read: leave out --read-write, or copy it by 'h5dir cp -r FILE:/ NEW.h5:/ --create'";
                return Err(engine(Error::refused(libc::EROFS, reason)));
            }
            NativeConnector::open(members, directory, native).map_err(engine)?
        } else if let Some(file) = writable {
            let locked = if options.swmr { Some(file.again().map_err(io)?) } else { None };
            let connector = NativeConnector::open_joined(&host, file, directory, native, &writers).map_err(engine)?;
            if let Some(locked) = locked {
                begin_swmr(&connector, &locked).map_err(engine)?;
            }
            connector
        } else if let (Some((file, locked)), Some(writer)) = (log_writer, options.log_writer) {
            let connector = NativeConnector::open(open_for_reading(&host).map_err(engine)?, directory, native).map_err(engine)?;
            connector.begin_log_writer((writer, writers), file, locked).map_err(engine)?;
            connector
        } else if options.follow {
            Following::open(host, directory, options.group.clone(), native).map_err(engine)?
        } else {
            NativeConnector::open(open_for_reading(&host).map_err(engine)?, directory, native).map_err(engine)?
        };
        let free_space = options.writable.then(|| Box::new(move || reader.free_space()) as FreeSpace);
        Ok(OpenContainer { connector, backing, free_space })
    }
}

/// Makes `connector` a SWMR writer, and lets readers lock its file `locked`. Closes it on an error.
fn begin_swmr(connector: &NativeConnector, locked: &PosixFile) -> Result<()> {
    connector.closed_on_error(connector.begin_swmr().and_then(|()| share_lock(locked)))
}

/// The container that is the file `host`; its path is not resolved again.
fn located(host: HostFile, options: &OpenOptions) -> Result<Box<dyn Located>, OpenError> {
    let path = &options.target;
    let io = |source| OpenError::Open { path: path.clone(), source };
    let external = match &options.external {
        ExternalPolicy::Off => None,
        ExternalPolicy::Beneath(None) => Some(ConfinedDir::new(host.directory().clone()).map_err(io)?),
        ExternalPolicy::Beneath(Some(dir)) | ExternalPolicy::Written(dir) => {
            Some(ConfinedDir::open(dir).map_err(|source| OpenError::Open { path: dir.clone(), source })?)
        }
    };
    let external = external.map(|root| root.with_hidden(options.external_hidden));
    let log_writer = options.log_writer.map(|writer| open_log_writer(&host, writer)).transpose().map_err(|e| open_error(path, e))?;
    let changed = options.writable && log_writer.is_none();
    let writable = changed.then(|| open_to_change(&host)).transpose();
    let writable = writable.map_err(|source| open_error(path, source))?;
    let external_written = matches!(options.external, ExternalPolicy::Written(_)) && options.writable;
    Ok(Box::new(LocatedFile { host, writable, external, external_written, log_writer }))
}

/// Opens and locks the run file of `writer` beside `host`, and keeps programs from changing `host`.
fn open_log_writer(host: &HostFile, writer: u32) -> Result<(PosixFile, PosixFile)> {
    let locked = open_unwritten(host)?;
    let writers = WriterLogs::of(host).map_err(|e| Error::io("open", Address(0), &e))?;
    let own = writers.own(writer).map_err(|e| {
        let name = writers.name(writer);
        match e.raw_os_error() {
            Some(libc::EWOULDBLOCK) => Error::refused(libc::EBUSY, format!("another mount is log writer {writer}: give another number")),
            _ => Error::refused(errno_of(&e).unwrap_or(libc::EIO), format!("the run file {}: {e}", name.display())),
        }
    })?;
    Ok((own, locked))
}

/// The container that `driver` holds, without other files, read-only. For tests and fuzzing.
pub fn over(driver: Arc<dyn FileDriver>, environment: Arc<Environment>) -> Result<OpenContainer> {
    let backing = driver.status().map_err(|e| Error::io("stat", Address(0), &e))?.into();
    let options = Options {
        environment,
        neighbours: Arc::new(Neighbours::new(None)),
        missing: MissingPolicy::Fill,
        rescue: false,
        log: LogAccess::default(),
    };
    let connector = NativeConnector::open(driver, PathBuf::from("/"), options)?;
    Ok(OpenContainer { connector, backing, free_space: None })
}

pub(super) fn native_options(options: &OpenOptions, neighbours: Neighbours, file_name: &OsStr) -> Result<Options> {
    let environment = options.environment(0)?;
    let log = LogAccess { raw: options.raw_log, file_name: file_name.to_owned(), writers: None };
    let missing = if options.missing_is_fill { MissingPolicy::Fill } else { MissingPolicy::Error };
    Ok(Options { environment, neighbours: Arc::new(neighbours), missing, rescue: options.rescue, log })
}

fn directories(host: &HostFile, written: bool, external: Option<(&Directory, bool)>) -> Result<Vec<UsedDirectory>, OpenError> {
    let io = |source| OpenError::Open { path: host.path(), source };
    let temporary = temporary_directory();
    let all = [Some((host.directory(), written)), external, temporary.as_ref().map(|dir| (dir, true))];
    let used = |(directory, written): (&Directory, bool)| {
        Ok(UsedDirectory { directory: directory.as_fd().try_clone_to_owned().map_err(io)?, written, tree: false })
    };
    all.into_iter().flatten().map(used).collect()
}

/// What `h5dir recover` prints of its result; `done`: that something was done, or would be.
fn sentence(found: &Recovered, done: &str) -> String {
    let mut what = match (found.finished, found.unmarked, found.removed) {
        (true, ..) => format!("an interrupted commit {done} finished from its journal"),
        (_, true, _) => format!("the mark of a writer that is gone {done} taken off; what it wrote last may be missing"),
        (_, _, true) => format!("a stale journal {done} removed; the file is complete"),
        _ if found.kept > 0 || found.forgotten => "a writer that is gone did not close the file".into(),
        _ => "there is nothing to do".into(),
    };
    if found.kept > 0 {
        what.push_str(&format!("; {} bytes past the EOF of the superblock {done} kept", found.kept));
    }
    if found.forgotten {
        what.push_str(&format!("; the free space that the file remembers may be in use, and {done} forgotten"));
    }
    what
}

pub(super) fn open_error(path: &Path, source: Error) -> OpenError {
    match source {
        Error::Corrupt { structure: "superblock", ref detail, .. } if detail.contains("no HDF5 signature") => {
            OpenError::NotHdf5 { path: path.to_owned() }
        }
        Error::Io { operation: "open" | "create", errno, .. } => {
            OpenError::Open { path: path.to_owned(), source: std::io::Error::from_raw_os_error(errno) }
        }
        Error::Request { operation: "create", errno, reason } => {
            OpenError::Open { path: path.to_owned(), source: RequestError { errno, is_transient: false, text: reason }.into() }
        }
        source => OpenError::Engine { path: path.to_owned(), source },
    }
}
