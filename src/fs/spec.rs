//! What to show as a file system, and why it could not be shown.

use super::create_rules::CreateRules;
use crate::base::escape::{escaped, escaped_bytes};
use std::io;
use std::path::PathBuf;

/// Permission bits of files unless asked otherwise.
pub const DEFAULT_FILE_MODE: u16 = 0o444;
/// Permission bits of directories unless asked otherwise.
pub const DEFAULT_DIR_MODE: u16 = 0o555;
/// The same of files that can be changed.
pub const WRITABLE_FILE_MODE: u16 = 0o644;
/// The same of directories that can be changed.
pub const WRITABLE_DIR_MODE: u16 = 0o755;

/// One container and how it is shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MountSpec {
    /// The HDF5 file.
    pub file: PathBuf,
    /// Group that becomes the root, e.g. `/entry/data`; `None` is the root group.
    pub group: Option<Vec<u8>>,
    /// Bound of the caches, bytes.
    pub cache_bytes: u64,
    /// Which other files may be read.
    pub external: ExternalPolicy,
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
    /// Threads that may decode at the same time.
    pub threads: usize,
    /// The container may be changed.
    pub writable: bool,
    /// Changes that others make are followed, where it may not.
    pub follow: bool,
    /// Closing a descriptor through which bytes were written makes them durable.
    pub commit_on_close: bool,
    /// What new files become.
    pub create: CreateRules,
}

impl MountSpec {
    /// `file` as it is, to be read: the root group, no other files, everything root's with the default modes, no room to cache data,
    /// one thread.
    pub fn new(file: impl Into<PathBuf>) -> Self {
        MountSpec {
            file: file.into(),
            group: None,
            cache_bytes: 0,
            external: ExternalPolicy::Off,
            vds_missing_fill: false,
            uid: 0,
            gid: 0,
            file_mode: DEFAULT_FILE_MODE,
            dir_mode: DEFAULT_DIR_MODE,
            threads: 1,
            writable: false,
            follow: false,
            commit_on_close: true,
            create: CreateRules::default(),
        }
    }

    /// The same to be changed.
    pub fn writable(file: impl Into<PathBuf>) -> Self {
        MountSpec { file_mode: WRITABLE_FILE_MODE, dir_mode: WRITABLE_DIR_MODE, writable: true, ..MountSpec::new(file) }
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
    /// The operating system refused.
    #[error("cannot open {}: {source}", escaped(path))]
    Open {
        /// The file.
        path: PathBuf,
        /// Its reason.
        source: io::Error,
    },
    /// No superblock signature.
    #[error("{} is not an HDF5 file (no HDF5 signature at 0, 512, 1024, ...)", escaped(path))]
    NotHdf5 {
        /// The file.
        path: PathBuf,
    },
    /// The engine refused.
    #[error("cannot read {}: {source}", escaped(path))]
    Engine {
        /// The file.
        path: PathBuf,
        /// Its reason.
        source: crate::base::Error,
    },
    /// The group to show is not there.
    #[error("{} has no group {}", escaped(path), escaped_bytes(group))]
    NoSuchGroup {
        /// The file.
        path: PathBuf,
        /// The group asked for.
        group: Vec<u8>,
    },
}
