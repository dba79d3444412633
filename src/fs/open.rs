//! From a file name to the file system that shows it.

use super::Operations;
use super::container::{Backing, ContainerFs};
use super::spec::{DEFAULT_DIR_MODE, DEFAULT_FILE_MODE, ExternalPolicy, MountSpec, OpenError};
use crate::base::{Address, Error};
use crate::connector::native::external::Neighbours;
use crate::connector::native::{NativeConnector, Options};
use crate::connector::{Connector, ObjectKind};
use crate::dataset::environment::Environment;
use crate::dataset::virtual_::MissingPolicy;
use crate::file::FileDriver;
use crate::file::confined::ConfinedDir;
use crate::file::posix::PosixFile;
use std::path::PathBuf;
use std::sync::Arc;

/// Spill file, in multiples of the chunk cache.
const SPILL_FACTOR: u64 = 16;

/// Opens the container of `spec` and builds its file system. Starts threads: call it after a fork.
pub fn open(spec: &MountSpec) -> Result<Arc<dyn Operations>, OpenError> {
    let path = &spec.file;
    let io = |source| OpenError::Open { path: path.clone(), source };
    let engine = |source| match source {
        Error::Corrupt { structure: "superblock", ref detail, .. } if detail.contains("no HDF5 signature") => {
            OpenError::NotHdf5 { path: path.clone() }
        }
        source => OpenError::Engine { path: path.clone(), source },
    };
    let driver = PosixFile::open(path).map_err(io)?;
    let status = driver.status().map_err(io)?;
    let directory = NativeConnector::directory_of(path).map_err(io)?;
    let root = match &spec.external {
        ExternalPolicy::Off => None,
        ExternalPolicy::Beneath(None) => Some(ConfinedDir::open(&directory).map_err(io)?),
        ExternalPolicy::Beneath(Some(dir)) => Some(ConfinedDir::open(dir).map_err(|source| OpenError::Open { path: dir.clone(), source })?),
    };
    let environment = Environment::new(spec.cache_bytes, spec.cache_bytes.saturating_mul(SPILL_FACTOR), spec.threads).map_err(engine)?;
    let missing = if spec.vds_missing_fill { MissingPolicy::Fill } else { MissingPolicy::Error };
    let options = Options { environment: Arc::new(environment), neighbours: Arc::new(Neighbours::new(root)), missing };
    let connector = NativeConnector::open(Arc::new(driver), directory, options).map_err(engine)?;
    let backing = Backing { atime: status.atime, mtime: status.mtime, ctime: status.ctime, len: status.len };
    let (group, prefix) = subtree(&*connector, spec)?;
    Ok(Arc::new(ContainerFs::new(connector, group, prefix, backing, spec.clone())))
}

/// The file system over `driver` alone, whatever it reads from: no other file is opened. For tests and fuzzing.
pub fn over(driver: Arc<dyn FileDriver>, environment: Arc<Environment>) -> Result<Arc<dyn Operations>, Error> {
    let status = driver.status().map_err(|e| Error::io("stat", Address(0), &e))?;
    let options = Options { environment, neighbours: Arc::new(Neighbours::new(None)), missing: MissingPolicy::Fill };
    let connector = NativeConnector::open(driver, PathBuf::from("/"), options)?;
    let backing = Backing { atime: status.atime, mtime: status.mtime, ctime: status.ctime, len: status.len };
    let spec = MountSpec {
        file: PathBuf::from("memory"),
        group: None,
        cache_bytes: 0,
        external: ExternalPolicy::Off,
        vds_missing_fill: true,
        uid: 0,
        gid: 0,
        file_mode: DEFAULT_FILE_MODE,
        dir_mode: DEFAULT_DIR_MODE,
        threads: 1,
    };
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
