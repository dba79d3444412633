//! Objects below a prefix of an object store: names, versions and drivers.

use super::{FileDriver, Identity};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::SystemTime;

/// One version of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Version {
    /// Differs between objects, and between versions of one.
    pub identity: Identity,
    /// Length, bytes.
    pub len: u64,
    /// Last-Modified, to the second: listings and answers have it in different units.
    pub modified: SystemTime,
    /// ETag without quotes, if the server has ETags.
    pub etag: Option<String>,
}

/// What has a name below a prefix.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Found {
    /// An object.
    Object(Version),
    /// Objects have keys that begin with the name and a slash.
    Prefix,
}

/// Why a request failed: an errno, and a sentence without secrets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectError {
    /// The errno.
    pub errno: i32,
    /// What failed and what to do.
    pub message: String,
}

/// The objects below a prefix. Keys and names of folders are relative to it; that of a folder is
/// empty or ends in no slash.
pub trait Objects: Send + Sync {
    /// Files and directories of the host that requests use, and whether they are written.
    fn used(&self) -> io::Result<Vec<(OwnedFd, bool)>>;

    /// Stands for the directory `folder`.
    fn identity_of(&self, folder: &str) -> Identity;

    /// Names directly below `folder`, and what has them; a name may be both an object and a prefix.
    fn list(&self, folder: &str) -> Result<Vec<(String, Found)>, ObjectError>;

    /// The present version of the object `key`, if there is one.
    fn find(&self, key: &str) -> Result<Option<Version>, ObjectError>;

    /// The first `len` bytes of the object `key`. Errors: `ESTALE` if it has another version.
    fn head(&self, key: &str, version: &Version, len: u64) -> Result<Vec<u8>, ObjectError>;

    /// A driver over the object `key`. Errors: `ESTALE` if it has another version.
    fn open(&self, key: &str, version: &Version) -> Result<Arc<dyn FileDriver>, ObjectError>;

    /// Sets the memory for the blocks of all open objects, bytes.
    fn set_memory(&self, bytes: u64);

    /// Counters by name.
    fn counters(&self) -> Vec<(&'static str, u64)>;
}
