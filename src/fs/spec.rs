//! What to mount and how.

use super::create_rules::CreateRules;
pub use super::views::ViewChoice;
use crate::connector::open::OpenOptions;
pub use crate::connector::open::{ExternalPolicy, OpenError, RemoteOptions};
pub use crate::connector::transactions::{Base, Ending, TransactionSpec, TransactionUse};
pub use crate::connector::versions::VersionName;
use std::path::PathBuf;
use std::time::Duration;

/// Permission bits of files unless asked otherwise.
pub const DEFAULT_FILE_MODE: u16 = 0o644;
/// Permission bits of directories unless asked otherwise.
pub const DEFAULT_DIR_MODE: u16 = 0o755;

/// What chmod(2) and chown(2) do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Modes {
    /// Owners and modes are stored in the objects, and shown; set-ID bits only where files change.
    Stored,
    /// Owners and modes are stored in the objects, and shown with set-ID bits.
    All,
    /// All files have those of the mount. Setting others succeeds without effect.
    Fixed,
}

/// One container and how it is shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MountSpec {
    /// The HDF5 file.
    pub file: PathBuf,
    /// Group that becomes the root, e.g. `/entry/data`; `None` is the root group.
    pub group: Option<Vec<u8>>,
    /// Most bytes of the caches.
    pub cache_bytes: u64,
    /// Which other files may be read.
    pub external: ExternalPolicy,
    /// Of those, hidden files, too.
    pub external_hidden: bool,
    /// A missing source of a virtual dataset reads as fill value instead of failing.
    pub vds_missing_fill: bool,
    /// Owner shown.
    pub uid: u32,
    /// Group owner shown.
    pub gid: u32,
    /// Permission bits of files.
    pub file_mode: u16,
    /// Permission bits of directories.
    pub dir_mode: u16,
    /// Permission bits that no file has.
    pub umask: u16,
    /// Whether owners and modes are stored.
    pub modes: Modes,
    /// Threads that may decode at the same time.
    pub threads: usize,
    /// The container may be changed.
    pub writable: bool,
    /// SWMR readers of libhdf5 may have it open meanwhile; only elements are changed.
    pub swmr: bool,
    /// Elements of datasets in its log are written to a run file of this number beside it.
    pub log_writer: Option<u32>,
    /// Changes by other processes are followed, in a read-only mount.
    pub follow: bool,
    /// The container is damaged: it is read as far as possible.
    pub rescue: bool,
    /// Logs are shown as they are stored.
    pub raw_log: bool,
    /// How the container is read if it is in an object store.
    pub remote: RemoteOptions,
    /// The version that is shown, where the container has versions.
    pub version: VersionName,
    /// How the mount takes part in transactions of several writers; `None`: it does not.
    pub transaction: Option<TransactionUse>,
    /// Trees of transactions are shown.
    pub trees: bool,
    /// The views below `.h5dir`.
    pub views: ViewChoice,
    /// The version is kept from garbage collection, by a pin that lasts so long.
    pub pin: Option<Duration>,
    /// Closing a descriptor after a write commits.
    pub commit_on_close: bool,
    /// A file without a type that replaces a dataset takes the type and attributes of that.
    pub keep_types: bool,
    /// The datasets that new files become.
    pub create: CreateRules,
}

impl MountSpec {
    /// The container to be changed. With `external_write`, other files beneath the directory that
    /// was named for them are written, too.
    #[must_use]
    pub fn to_change(self, external_write: bool) -> Self {
        let external = match self.external {
            ExternalPolicy::Beneath(Some(root)) if external_write => ExternalPolicy::Written(root),
            external => external,
        };
        MountSpec { writable: true, external, ..self }
    }

    /// `file`, read-only: its root group, no other files, owner root, the default modes, no cache,
    /// one thread.
    pub fn new(file: impl Into<PathBuf>) -> Self {
        MountSpec {
            file: file.into(),
            group: None,
            cache_bytes: 0,
            external: ExternalPolicy::Off,
            external_hidden: false,
            vds_missing_fill: false,
            uid: 0,
            gid: 0,
            file_mode: DEFAULT_FILE_MODE,
            dir_mode: DEFAULT_DIR_MODE,
            umask: 0,
            modes: Modes::Stored,
            threads: 1,
            writable: false,
            swmr: false,
            log_writer: None,
            follow: false,
            rescue: false,
            raw_log: false,
            remote: RemoteOptions::default(),
            version: VersionName::Newest,
            transaction: None,
            trees: false,
            views: ViewChoice::default(),
            pin: None,
            commit_on_close: false,
            keep_types: false,
            create: CreateRules::default(),
        }
    }

    /// `file`, writable.
    pub fn writable(file: impl Into<PathBuf>) -> Self {
        MountSpec { writable: true, ..MountSpec::new(file) }
    }

    /// Bits of stored modes that are not shown: the author of a file does not choose with
    /// which rights programs of others run.
    pub fn hidden_mode_bits(&self) -> u16 {
        let hides = self.modes == Modes::Stored && !self.writable;
        if hides { (libc::S_ISUID | libc::S_ISGID) as u16 } else { 0 }
    }

    /// How its container is opened.
    pub fn open_options(&self) -> OpenOptions {
        OpenOptions {
            target: self.file.clone(),
            group: self.group.clone(),
            writable: self.writable,
            swmr: self.swmr,
            log_writer: self.log_writer,
            follow: self.follow && !self.rescue,
            rescue: self.rescue,
            raw_log: self.raw_log,
            external: self.external.clone(),
            external_hidden: self.external_hidden,
            missing_is_fill: self.vds_missing_fill,
            cache_bytes: self.cache_bytes,
            threads: self.threads,
            remote: self.remote.clone(),
            version: self.version.clone(),
            transaction: self.transaction.clone(),
            pin: self.pin,
            shared: None,
        }
    }
}
