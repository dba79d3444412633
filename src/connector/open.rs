//! Opening a container: what to open and how, and the trait of a kind of container.

use super::new_file::NewFile;
use super::shared::Shared;
use super::transactions::TransactionUse;
use super::versions::{Collected, Collection, VersionName};
use super::{Connector, DatasetSpec};
use crate::base::escape::{escaped, escaped_bytes};
pub use crate::base::remote::RemoteOptions;
use crate::base::{Error, Result};
use crate::dataset::chunk::temporary;
use crate::dataset::environment::Environment;
pub use crate::file::FileDriver;
pub use crate::file::confined::ConfinedDir;
pub use crate::file::directory::{Directory, Entry};
pub use crate::file::host_path::{self, Resolved};
pub use crate::file::objects::{Found, ObjectError, Objects, Version};
pub use crate::file::{Identity, Stamp};
use std::ffi::OsStr;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// Temporary files of a container, in multiples of its caches.
const FILES_FACTOR: u64 = 16;

/// A container and how it is opened.
#[derive(Debug, Clone)]
pub struct OpenOptions {
    /// Where it is.
    pub target: PathBuf,
    /// Group to show, found again in each state of a followed container.
    pub group: Option<Vec<u8>>,
    /// Open it for reading and writing.
    pub writable: bool,
    /// Let SWMR readers of libhdf5 have it open meanwhile.
    pub swmr: bool,
    /// Write elements of datasets in its log to a run file of this number beside it.
    pub log_writer: Option<u32>,
    /// Follow changes by other processes.
    pub follow: bool,
    /// Open it although its superblock or its root group is damaged, and look for objects without
    /// names. For reading only, not followed.
    pub rescue: bool,
    /// Which other files may be read.
    pub external: ExternalPolicy,
    /// Of those, hidden files, too.
    pub external_hidden: bool,
    /// A missing source of a virtual dataset reads as the fill value instead of failing.
    pub missing_is_fill: bool,
    /// The objects of a log are shown as they are stored, instead of the datasets in it.
    pub raw_log: bool,
    /// Most bytes of the caches.
    pub cache_bytes: u64,
    /// Threads that may decode at the same time.
    pub threads: usize,
    /// How it is read if it is in an object store.
    pub remote: RemoteOptions,
    /// The version that is shown, where the container has versions.
    pub version: VersionName,
    /// How it takes part in transactions of several writers; `None`: it does not.
    pub transaction: Option<TransactionUse>,
    /// The version that is shown is kept from garbage collection, by a pin that lasts so long
    /// without being renewed.
    pub pin: Option<Duration>,
    /// Shared with other containers: used instead of caches and threads of its own.
    pub shared: Option<Shared>,
}

impl OpenOptions {
    /// The caches, budgets and threads of the container, which may have `files_min` bytes of
    /// temporary files whatever its caches have.
    pub(super) fn environment(&self, files_min: u64) -> Result<Arc<Environment>> {
        match &self.shared {
            Some(shared) => Ok(shared.environment()),
            None => {
                let files = self.cache_bytes.saturating_mul(FILES_FACTOR).max(files_min);
                Ok(Arc::new(Environment::new(self.cache_bytes, files, self.threads)?))
            }
        }
    }
}

/// Which files named by the container (external links, raw files, virtual sources) may be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ExternalPolicy {
    /// None.
    Off,
    /// Those beneath this directory; `None` is the container's own directory.
    Beneath(Option<PathBuf>),
    /// Those beneath this directory; raw files may be written, too.
    Written(PathBuf),
}

/// Why a container could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// An error of the operating system.
    #[error("cannot open {}: {source}", escaped(path))]
    Open {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// No superblock signature.
    #[error("{} is not an HDF5 file (no HDF5 signature at 0, 512, 1024, ...)", escaped(path))]
    NotHdf5 {
        /// The file.
        path: PathBuf,
    },
    /// An error of the engine.
    #[error("cannot read {}: {source}", escaped(path))]
    Engine {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: Error,
    },
    /// An object of an object store cannot be opened.
    #[error("cannot open {}: {message}", escaped(path))]
    Remote {
        /// The URL without secrets.
        path: PathBuf,
        /// The reason and a remedy.
        message: String,
    },
    /// The group to mount is missing.
    #[error("{} has no group {}", escaped(path), escaped_bytes(group))]
    NoSuchGroup {
        /// The file.
        path: PathBuf,
        /// The group asked for.
        group: Vec<u8>,
        /// What there is instead: `a dataset`.
        kind: Option<&'static str>,
    },
}

/// Times and length of the backing file, shown where the container records none.
#[derive(Debug, Clone, Copy)]
pub struct Backing {
    /// Last access.
    pub atime: SystemTime,
    /// Last change of content.
    pub mtime: SystemTime,
    /// Last change of status.
    pub ctime: SystemTime,
    /// Length, bytes.
    pub len: u64,
}

/// Returns the length of the backing file and the free space of its file system, bytes.
pub type FreeSpace = Box<dyn Fn() -> Option<(u64, u64)> + Send + Sync>;

/// An open container.
pub struct OpenContainer {
    /// Access to it.
    pub connector: Arc<dyn Connector>,
    /// Its backing file when it was opened.
    pub backing: Backing,
    /// Where new data goes, for a writable container.
    pub free_space: Option<FreeSpace>,
}

/// A directory that an open container uses.
#[derive(Debug)]
pub struct UsedDirectory {
    /// Its descriptor, opened with `O_PATH`.
    pub directory: OwnedFd,
    /// Files in it are created, written and removed.
    pub written: bool,
    /// Its subdirectories are shown, too; if it is written, all kinds of names change.
    pub tree: bool,
}

/// A name in a directory, and the file that it is to have. Errors of those who use it: `ESTALE` if
/// it has another one.
#[derive(Debug)]
pub struct ContainerPlace<'a> {
    /// The directory.
    pub directory: &'a Directory,
    /// The name.
    pub name: &'a OsStr,
    /// The file.
    pub identity: Identity,
}

/// What the first bytes of a file show.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Recognized {
    /// A container.
    Container,
    /// A container whose first bytes are damaged, or of an unknown version.
    Damaged,
    /// Something else.
    Other,
}

/// The directory of temporary files of open containers.
pub fn temporary_directory() -> Option<Directory> {
    temporary::directory().ok()
}

/// A kind of container: HDF5 files, say.
pub trait ContainerKind: Sync {
    /// True if a container of this kind may be at `target`, which need not exist yet.
    fn claims(&self, target: &Path) -> bool;

    /// True if there is a file or a folder at `target`, or what this kind finds by that name.
    fn exists(&self, target: &Path) -> bool {
        target.symlink_metadata().is_ok()
    }

    /// Resolves the paths of `options` and opens what is there; reads nothing of it. Nothing is
    /// resolved again afterwards.
    fn locate(&self, options: &OpenOptions) -> Result<Box<dyn Located>, OpenError>;

    /// As `locate`, for the file at `place`; the path of `options` is only shown.
    fn locate_in(&self, place: &ContainerPlace<'_>, options: &OpenOptions) -> Result<Box<dyn Located>, OpenError>;

    /// Whether the file at `place` is a container of this kind.
    fn recognize(&self, place: &ContainerPlace<'_>) -> io::Result<Recognized>;

    /// Whether the bytes of `driver`, which is called `name`, are those of a container.
    fn recognize_bytes(&self, _driver: &dyn FileDriver, _name: &Path) -> io::Result<Recognized> {
        Ok(Recognized::Other)
    }

    /// Opens the container in the bytes of `driver`; the path of `options` is only shown.
    fn open_bytes(&self, _driver: Arc<dyn FileDriver>, options: &OpenOptions) -> Result<OpenContainer, OpenError> {
        Err(OpenError::Remote { path: options.target.clone(), message: "containers of this kind are no objects".into() })
    }

    /// Opens the file `name` beneath `root`, as a container in the directory `from` names it, for
    /// reading. What that file names is opened by the same rules.
    fn open_named(&self, _root: &ConfinedDir, _from: &Path, name: &[u8], _options: &OpenOptions) -> Result<Arc<dyn Connector>> {
        let (name, reason) = (String::from_utf8_lossy(name).into_owned(), "containers of this kind are no files".into());
        Err(Error::Missing { what: "external link target", name, reason })
    }

    /// The objects below the prefix that `options` names, each of which may be a container. Sends
    /// nothing.
    fn objects(&self, options: &OpenOptions) -> Result<Arc<dyn Objects>, OpenError> {
        Err(OpenError::Remote { path: options.target.clone(), message: "it is no prefix of an object store".into() })
    }

    /// Creates an empty container at `path`.
    fn create(&self, path: &Path, new: &NewFile) -> Result<(), OpenError>;

    /// Recovers the container at `path` after an interrupted writer; returns a sentence. Calls
    /// `confine` with the directories that it uses before it reads the container.
    fn recover(&self, path: &Path, confine: &mut dyn FnMut(&[UsedDirectory])) -> Result<String, OpenError>;

    /// What `recover` would do, as a sentence. Nothing is changed.
    fn examine(&self, path: &Path, confine: &mut dyn FnMut(&[UsedDirectory])) -> Result<String, OpenError>;

    /// Checks that a container at `target` may refer to bytes of the HDF5 file `original`. Opens
    /// neither. Error: why not.
    fn check_original(&self, _target: &Path, _original: &Path, _external: &ExternalPolicy) -> std::result::Result<(), String> {
        Err("the destination is an HDF5 file, which has all its bytes itself; name iod:FOLDER or iod+s3://BUCKET/PREFIX".into())
    }

    /// Checks that a new dataset can be what `spec` states.
    fn check_new_dataset(&self, spec: &DatasetSpec) -> Result<()>;

    /// Checks the filters and the layout of `spec`, each by itself.
    fn check_part(&self, spec: &DatasetSpec) -> Result<()>;
}

/// A container that was located, and not read yet.
pub trait Located: Send {
    /// All directories that the open container will use.
    fn directories(&self) -> Result<Vec<UsedDirectory>, OpenError>;

    /// Opens it, by the options that it was located with. Starts threads: call it after a fork.
    fn open(self: Box<Self>, options: &OpenOptions) -> Result<OpenContainer, OpenError>;

    /// Deletes what no kept version needs.
    fn collect(self: Box<Self>, options: &OpenOptions, _collection: &Collection) -> Result<Collected, OpenError> {
        let message = "it has no versions: only containers in object stores have them".to_owned();
        Err(OpenError::Remote { path: options.target.clone(), message })
    }
}
