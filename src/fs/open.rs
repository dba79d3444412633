//! From a file name to the file system that shows it.

use super::Operations;
use super::container::{Backing, ContainerFs};
use super::spec::{ExternalPolicy, MountSpec, OpenError};
use crate::base::{Address, Error};
use crate::connector::native::external::Neighbours;
use crate::connector::native::following::Following;
use crate::connector::native::{self, NativeConnector, Options};
use crate::connector::{Connector, ObjectKind};
use crate::dataset::chunk::temporary;
use crate::dataset::environment::Environment;
use crate::dataset::virtual_::MissingPolicy;
use crate::file::FileDriver;
use crate::file::confined::ConfinedDir;
use crate::file::directory::Directory;
use crate::file::host_file::HostFile;
use crate::file::posix::PosixFile;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Spill file, in multiples of the chunk cache.
const SPILL_FACTOR: u64 = 16;

/// A container's file, found and opened. Nothing of it has been read.
#[derive(Debug)]
pub struct Located {
    host: HostFile,
    /// Open for writing, and locked, if the container is to be changed.
    writable: Option<PosixFile>,
    /// The directory that other files lie in.
    external: Option<ConfinedDir>,
    external_written: bool,
}

/// A directory that the mount uses.
#[derive(Debug)]
pub struct UsedDirectory {
    /// Its descriptor, which can neither be read nor listed.
    pub directory: OwnedFd,
    /// Files in it are created, written and removed.
    pub written: bool,
}

impl Located {
    /// All directories that are used from now on: the container's, that of other files, that of temporary files.
    pub fn directories(&self) -> Result<Vec<UsedDirectory>, OpenError> {
        let external = self.external.as_ref().map(|dir| (dir.directory(), self.external_written));
        directories(&self.host, self.writable.is_some(), external)
    }
}

fn directories(host: &HostFile, written: bool, external: Option<(&Directory, bool)>) -> Result<Vec<UsedDirectory>, OpenError> {
    let io = |source| OpenError::Open { path: host.path(), source };
    let temporary = Directory::open(&temporary::directory()).ok();
    let all = [Some((host.directory(), written)), external, temporary.as_ref().map(|dir| (dir, true))];
    let used = |(directory, written): (&Directory, bool)| {
        Ok(UsedDirectory { directory: directory.as_fd().try_clone_to_owned().map_err(io)?, written })
    };
    all.into_iter().flatten().map(used).collect()
}

/// Resolves the paths of `spec` and opens the file. Nothing is resolved again afterwards.
pub fn locate(spec: &MountSpec) -> Result<Located, OpenError> {
    let io = |source| OpenError::Open { path: spec.file.clone(), source };
    let host = HostFile::open(&spec.file).map_err(io)?;
    let external = match &spec.external {
        ExternalPolicy::Off => None,
        ExternalPolicy::Beneath(None) => Some(ConfinedDir::new(host.directory().clone()).map_err(io)?),
        ExternalPolicy::Beneath(Some(dir)) | ExternalPolicy::Written(dir) => {
            Some(ConfinedDir::open(dir).map_err(|source| OpenError::Open { path: dir.clone(), source })?)
        }
    };
    let writable = spec.writable.then(|| native::open_to_change(&host)).transpose();
    let writable = writable.map_err(|source| engine_error(&spec.file, source))?;
    let external_written = matches!(spec.external, ExternalPolicy::Written(_)) && spec.writable;
    Ok(Located { host, writable, external, external_written })
}

/// Opens the container of `spec` and builds its file system. Starts threads: call it after a fork.
pub fn open(spec: &MountSpec) -> Result<Arc<dyn Operations>, OpenError> {
    open_located(spec, locate(spec)?)
}

/// Opens the container of `spec`, which was `located`.
pub fn open_located(spec: &MountSpec, located: Located) -> Result<Arc<dyn Operations>, OpenError> {
    let path = &spec.file;
    let io = |source| OpenError::Open { path: path.clone(), source };
    let engine = |source| engine_error(path, source);
    let Located { host, writable, external, external_written } = located;
    let reader = host.reader().map_err(io)?;
    let status = reader.status().map_err(io)?;
    let directory = host.directory().path().map_err(io)?;
    let neighbours = Arc::new(Neighbours::new(external).written(external_written));
    let options = options(spec, neighbours)?;
    let connector: Arc<dyn Connector> = if let Some(file) = writable {
        NativeConnector::open_writable(&host, file, directory, options).map_err(engine)?
    } else if spec.follow {
        Following::open(host, directory, spec.group.clone(), options).map_err(engine)?
    } else {
        NativeConnector::open(native::open_for_reading(&host).map_err(engine)?, directory, options).map_err(engine)?
    };
    let backing = Backing { atime: status.atime, mtime: status.mtime, ctime: status.ctime, len: status.len };
    let (group, prefix) = subtree(&*connector, spec)?;
    let fs = ContainerFs::new(connector, group, prefix, backing, spec.clone());
    Ok(Arc::new(if spec.writable { fs.with_room(Box::new(move || reader.free_space())) } else { fs }))
}

/// How the container of `spec` is opened.
fn options(spec: &MountSpec, neighbours: Arc<Neighbours>) -> Result<Options, OpenError> {
    let environment = Environment::new(spec.cache_bytes, spec.cache_bytes.saturating_mul(SPILL_FACTOR), spec.threads);
    let environment = Arc::new(environment.map_err(|source| engine_error(&spec.file, source))?);
    let missing = if spec.vds_missing_fill { MissingPolicy::Fill } else { MissingPolicy::Error };
    Ok(Options { environment, neighbours, missing })
}

/// Makes a new, empty container at `path`. `earliest`: one that the oldest programs can use.
pub fn create(path: &Path, earliest: bool) -> Result<(), OpenError> {
    native::create(path, earliest).map_err(|source| engine_error(path, source))
}

/// Repairs what an interrupted writer of the container at `path` left behind, and says what that was. `confine` is called with the
/// directories that are used, before anything of the file is read.
pub fn recover(path: &Path, confine: impl FnOnce(&[UsedDirectory])) -> Result<String, OpenError> {
    let engine = |source| engine_error(path, source);
    let host = HostFile::open(path).map_err(|source| OpenError::Open { path: path.to_owned(), source })?;
    let file = native::open_to_recover(&host).map_err(engine)?;
    confine(&directories(&host, true, None)?);
    let found = native::recover(&host, file).map_err(engine)?;
    let mut what = match (found.finished, found.unmarked, found.removed) {
        (true, ..) => "an interrupted commit was finished from its journal",
        (_, true, _) => "the mark of a writer that is gone was taken off; what it wrote last may be missing",
        (_, _, true) => "a journal that nothing waited for was removed; the file was whole",
        _ if found.kept > 0 || found.forgotten => "a writer that is gone did not close the file",
        _ => "there was nothing to do",
    }
    .to_string();
    if found.kept > 0 {
        what.push_str(&format!("; {} bytes behind the end that the superblock told are kept", found.kept));
    }
    if found.forgotten {
        what.push_str("; the free space that the file remembers may be in use, and is forgotten");
    }
    Ok(format!("{}: {what}", path.display()))
}

fn engine_error(path: &Path, source: Error) -> OpenError {
    match source {
        Error::Corrupt { structure: "superblock", ref detail, .. } if detail.contains("no HDF5 signature") => {
            OpenError::NotHdf5 { path: path.to_owned() }
        }
        Error::Io { operation: "open" | "create", errno, .. } => {
            OpenError::Open { path: path.to_owned(), source: std::io::Error::from_raw_os_error(errno) }
        }
        source => OpenError::Engine { path: path.to_owned(), source },
    }
}

/// The file system over `driver` alone, whatever it reads from: no other file is opened. For tests and fuzzing.
pub fn over(driver: Arc<dyn FileDriver>, environment: Arc<Environment>) -> Result<Arc<dyn Operations>, Error> {
    let status = driver.status().map_err(|e| Error::io("stat", Address(0), &e))?;
    let options = Options { environment, neighbours: Arc::new(Neighbours::new(None)), missing: MissingPolicy::Fill };
    let connector = NativeConnector::open(driver, PathBuf::from("/"), options)?;
    let backing = Backing { atime: status.atime, mtime: status.mtime, ctime: status.ctime, len: status.len };
    let spec = MountSpec { vds_missing_fill: true, ..MountSpec::new("memory") };
    let root = connector.root();
    Ok(Arc::new(ContainerFs::new(connector, root, Vec::new(), backing, spec)))
}

/// The group to show and the link names that lead to it.
fn subtree(connector: &dyn Connector, spec: &MountSpec) -> Result<(crate::connector::ObjectId, Vec<Vec<u8>>), OpenError> {
    let root = connector.root();
    let Some(group) = &spec.group else { return Ok((root, Vec::new())) };
    let absent = || OpenError::NoSuchGroup { path: spec.file.clone(), group: group.clone() };
    let id = connector.resolve(root, group).ok().flatten().ok_or_else(absent)?;
    if connector.info(id).map_or(true, |i| i.kind != ObjectKind::Group) {
        return Err(absent());
    }
    let prefix = group.split(|b| *b == b'/').filter(|c| !c.is_empty() && *c != b".").map(<[u8]>::to_vec).collect();
    Ok((id, prefix))
}
