//! From a URL to a driver, in two steps: what needs files of the host, and what needs the network.

use super::cache_directory::CacheDirectory;
use super::cache_file::CacheKey;
use super::disk::DiskCache;
use super::driver::{RemoteFile, Resources, own_memory};
use super::extents::ExtentCache;
use super::failure::Failure;
use super::fetch::Object;
use super::service;
use crate::base::escape::escaped;
use crate::base::remote::RemoteOptions;
use crate::file::store::RangeCache;
use nix::fcntl::{OFlag, open};
use nix::sys::stat::Mode;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Files of the host by which names of servers are resolved.
const RESOLVER_FILES: [&str; 8] = [
    "/etc/resolv.conf",
    "/etc/hosts",
    "/etc/host.conf",
    "/etc/nsswitch.conf",
    "/etc/gai.conf",
    "/etc/services",
    "/run/systemd/resolve",
    "/run/NetworkManager/resolv.conf",
];
/// Variables that name files with tokens, which are read again before a token expires.
const TOKEN_FILES: [&str; 3] = ["AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", "AZURE_FEDERATED_TOKEN_FILE"];

/// An object whose store is known; nothing was sent yet.
pub struct LocatedObject {
    object: Object,
    disk: Option<DiskPlace>,
}

/// Where blocks are kept on disk.
#[derive(Clone)]
pub(super) struct DiskPlace(Arc<CacheDirectory>);

impl DiskPlace {
    /// Opens the directory that `options` names, if they name one.
    pub(super) fn of(options: &RemoteOptions) -> Result<Option<DiskPlace>, Failure> {
        let Some(path) = options.cache_dir.as_deref() else { return Ok(None) };
        let directory = CacheDirectory::open(path, options.cache_dir_bytes).map_err(|e| {
            let remedy = "give a directory of your own with mode 0700, or a new one";
            Failure::permanent(
                e.raw_os_error().unwrap_or(libc::EIO),
                format!("the directory {} of the disk cache: {e}; {remedy}", escaped(path)),
            )
        })?;
        Ok(Some(DiskPlace(Arc::new(directory))))
    }

    /// Opens the cache for a version of an object.
    pub(super) fn opener(self) -> Box<dyn FnOnce(CacheKey) -> DiskCache + Send> {
        Box::new(move |version| DiskCache::open(self.0, version))
    }

    /// The cache for packs of the container whose store has the key `store`, and its directory.
    pub(super) fn extents(self, store: CacheKey) -> Result<(Arc<dyn RangeCache>, OwnedFd), Failure> {
        let (directory, _) = self.used().map_err(|e| Failure::permanent(e.raw_os_error().unwrap_or(libc::EIO), e.to_string()))?;
        Ok((Arc::new(ExtentCache::open(self.0, store)), directory))
    }

    /// Its directory, which is written.
    pub(super) fn used(&self) -> std::io::Result<(OwnedFd, bool)> {
        Ok((self.0.directory().as_fd().try_clone_to_owned()?, true))
    }
}

/// Finds the store of `url`: reads environment, profiles and certificates, opens the disk cache.
pub fn locate(url: &Path, options: &RemoteOptions) -> Result<LocatedObject, Failure> {
    let text = url.to_str().ok_or_else(|| Failure::permanent(libc::EINVAL, "the URL is not UTF-8; check it"))?;
    let service = service::connect(text, options)?;
    let object = Object::new(service, text.to_owned(), options.timeout);
    Ok(LocatedObject { object, disk: DiskPlace::of(options)? })
}

/// Files and directories of the host by which names of servers and tokens are found, to be read.
pub(super) fn resolver_files() -> Vec<(OwnedFd, bool)> {
    let tokens = TOKEN_FILES.into_iter().filter_map(std::env::var_os);
    let tokens = tokens.filter_map(|file| PathBuf::from(file).parent().map(Path::to_path_buf));
    let mut used = Vec::new();
    for path in RESOLVER_FILES.into_iter().map(PathBuf::from).chain(tokens) {
        // A file that does not exist is not used.
        if let Ok(fd) = open(&path, OFlag::O_PATH | OFlag::O_CLOEXEC, Mode::empty()) {
            used.push((fd, false));
        }
    }
    used
}

impl LocatedObject {
    /// Files and directories of the host that reading uses, and whether they are written.
    pub fn used(&self) -> std::io::Result<Vec<(OwnedFd, bool)>> {
        let mut used = resolver_files();
        if let Some(disk) = &self.disk {
            used.push(disk.used()?);
        }
        Ok(used)
    }

    /// Opens the object with `memory_bytes` for its blocks. Starts threads.
    pub fn open(self, memory_bytes: u64) -> Result<RemoteFile, Failure> {
        let LocatedObject { object, disk } = self;
        RemoteFile::open(object, Resources { memory: own_memory(memory_bytes), runtime: None, disk: disk.map(DiskPlace::opener) })
    }
}
