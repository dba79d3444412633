//! From a file name to the file system that shows it.

use super::Operations;
use super::container::{Backing, ContainerFs};
use super::spec::{ExternalPolicy, MountSpec, OpenError};
use crate::base::{Address, Error};
use crate::connector::native::external::Neighbours;
use crate::connector::native::following::Following;
use crate::connector::native::{self, NativeConnector, Options};
use crate::connector::{Connector, ObjectKind};
use crate::dataset::environment::Environment;
use crate::dataset::virtual_::MissingPolicy;
use crate::file::FileDriver;
use crate::file::confined::ConfinedDir;
use crate::file::host_file::HostFile;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Spill file, in multiples of the chunk cache.
const SPILL_FACTOR: u64 = 16;

/// Opens the container of `spec` and builds its file system. Starts threads: call it after a fork.
pub fn open(spec: &MountSpec) -> Result<Arc<dyn Operations>, OpenError> {
    let path = &spec.file;
    let io = |source| OpenError::Open { path: path.clone(), source };
    let engine = |source| engine_error(path, source);
    let host = HostFile::open(path).map_err(io)?;
    let reader = host.reader().map_err(io)?;
    let status = reader.status().map_err(io)?;
    let directory = host.directory().path().map_err(io)?;
    let options = options(spec, &host)?;
    let connector: Arc<dyn Connector> = if spec.writable {
        NativeConnector::open_writable(&host, directory, options).map_err(engine)?
    } else if spec.follow {
        Following::open(host, directory, spec.group.clone(), options).map_err(engine)?
    } else {
        let driver = native::committed(host.reader().map_err(io)?, &host).map_err(engine)?;
        NativeConnector::open(driver, directory, options).map_err(engine)?
    };
    let backing = Backing { atime: status.atime, mtime: status.mtime, ctime: status.ctime, len: status.len };
    let (group, prefix) = subtree(&*connector, spec)?;
    let fs = ContainerFs::new(connector, group, prefix, backing, spec.clone());
    Ok(Arc::new(if spec.writable { fs.with_room(Box::new(move || reader.free_space())) } else { fs }))
}

/// How the container of `spec`, which is `host`, is opened.
fn options(spec: &MountSpec, host: &HostFile) -> Result<Options, OpenError> {
    let io = |source| OpenError::Open { path: spec.file.clone(), source };
    let root = match &spec.external {
        ExternalPolicy::Off => None,
        ExternalPolicy::Beneath(None) => Some(ConfinedDir::new(host.directory().clone()).map_err(io)?),
        ExternalPolicy::Beneath(Some(dir)) | ExternalPolicy::Written(dir) => {
            Some(ConfinedDir::open(dir).map_err(|source| OpenError::Open { path: dir.clone(), source })?)
        }
    };
    let environment = Environment::new(spec.cache_bytes, spec.cache_bytes.saturating_mul(SPILL_FACTOR), spec.threads);
    let environment = Arc::new(environment.map_err(|source| engine_error(&spec.file, source))?);
    let missing = if spec.vds_missing_fill { MissingPolicy::Fill } else { MissingPolicy::Error };
    let written = matches!(spec.external, ExternalPolicy::Written(_)) && spec.writable;
    Ok(Options { environment, neighbours: Arc::new(Neighbours::new(root).written(written)), missing })
}

/// Makes a new, empty container at `path`. `earliest`: one that the oldest programs can use.
pub fn create(path: &Path, earliest: bool) -> Result<(), OpenError> {
    native::create(path, earliest).map_err(|source| engine_error(path, source))
}

/// Makes good what an interrupted writer of the container at `path` left behind; says what that was.
pub fn recover(path: &Path) -> Result<String, OpenError> {
    let host = HostFile::open(path).map_err(|source| OpenError::Open { path: path.to_owned(), source })?;
    let found = native::recover(&host).map_err(|source| engine_error(path, source))?;
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
