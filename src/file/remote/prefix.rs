//! The objects below a prefix, which share threads and the memory for their blocks.

use super::blocks::{BLOCK_BYTES, Budget};
use super::driver::{Blocks, RemoteFile, Resources};
use super::failure::{Access, Failure};
use super::fetch::Object;
use super::listing;
use super::objects::RemoteStore;
use super::open::{DiskPlace, resolver_files};
use super::service;
use crate::base::checksum;
use crate::base::locks::Mutex;
use crate::base::remote::RemoteOptions;
use crate::file::objects::{Found, ObjectError, Objects, Version};
use crate::file::{FileDriver, Identity};
use object_store::path::Path as Key;
use object_store::{Error, GetOptions, GetRange, ObjectMeta, ObjectStore};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Device number of objects and folders; the inode number is a hash.
const DEVICE: u64 = u64::MAX - 2;

/// See the module's description.
pub struct RemotePrefix {
    requests: RemoteStore,
    /// The URL without secrets, ending in a slash.
    url: String,
    disk: Option<DiskPlace>,
    memory: Budget,
    open: Mutex<Vec<Blocks>>,
}

impl From<Failure> for ObjectError {
    fn from(failure: Failure) -> Self {
        ObjectError { errno: failure.errno, message: failure.message }
    }
}

impl RemotePrefix {
    /// The objects below `url`; nothing is sent.
    pub fn locate(url: &str, options: &RemoteOptions) -> Result<RemotePrefix, Failure> {
        let service = service::connect_prefix(url, options)?;
        Ok(RemotePrefix {
            requests: RemoteStore::new(service, options.timeout),
            url: format!("{}/", url.trim_end_matches('/')),
            disk: DiskPlace::of(options)?,
            memory: Budget::new(0),
            open: Mutex::default(),
        })
    }

    /// The objects of `service`.
    #[cfg(fuzzing)]
    pub(super) fn over(service: service::Service, timeout: Duration) -> RemotePrefix {
        let requests = RemoteStore::new(service, timeout);
        RemotePrefix { requests, url: "fuzzed/".into(), disk: None, memory: Budget::new(0), open: Mutex::default() }
    }

    fn store(&self) -> &dyn ObjectStore {
        &*self.requests.service.store
    }

    fn key(&self, key: &str) -> Result<Key, Failure> {
        self.requests.key(key).map_err(|_| Failure::permanent(libc::ENOENT, "the name cannot be part of a key"))
    }

    fn refused(&self, status: u16) -> Failure {
        Failure::of_status(status, "", self.requests.service.dialect, Access::Read)
    }

    /// Has all open objects keep to their shares of the memory.
    fn trim(&self) {
        self.open.lock().retain(Blocks::trim);
    }

    fn version(&self, meta: &ObjectMeta) -> Version {
        let etag = meta.e_tag.as_deref().map(|etag| unquoted(etag).to_owned());
        let modified: SystemTime = meta.last_modified.into();
        let seconds = modified.duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs());
        // Without an ETag, time and length are what is known.
        let state = etag.clone().unwrap_or_else(|| format!("{seconds} {}", meta.size));
        Version {
            identity: identity(&format!("object\n{}\n{}\n{state}", self.url, meta.location)),
            len: meta.size,
            modified: UNIX_EPOCH.checked_add(Duration::from_secs(seconds)).unwrap_or(UNIX_EPOCH),
            etag,
        }
    }

    fn open_file(&self, key: &str, version: &Version) -> Result<RemoteFile, Failure> {
        let service = self.requests.service.with_key(self.key(key)?);
        let resources = Resources {
            memory: self.memory.clone(),
            runtime: Some(self.requests.runtime()?.clone()),
            disk: self.disk.clone().map(DiskPlace::opener),
        };
        let file = RemoteFile::open(Object::new(service, format!("{}{key}", self.url), self.requests.timeout), resources)?;
        if file.etag().map(unquoted) != version.etag.as_deref() {
            return Err(changed());
        }
        self.open.lock().push(file.blocks());
        self.trim();
        Ok(file)
    }
}

impl Objects for RemotePrefix {
    fn used(&self) -> io::Result<Vec<(OwnedFd, bool)>> {
        let mut used = resolver_files();
        if let Some(disk) = &self.disk {
            used.push(disk.used()?);
        }
        Ok(used)
    }

    fn identity_of(&self, folder: &str) -> Identity {
        identity(&format!("folder\n{}{folder}", self.url))
    }

    fn list(&self, folder: &str) -> Result<Vec<(String, Found)>, ObjectError> {
        let key = self.key(folder)?;
        let begin = if key.as_ref().is_empty() { String::new() } else { format!("{key}/") };
        // The key of the folder and a slash has no name in it, nor has one of another folder.
        let is_name = |name: &&str| !name.is_empty() && !name.contains('/');
        let name = |key: &str| key.strip_prefix(begin.as_str()).filter(is_name).map(str::to_owned);
        let object = |meta: &ObjectMeta| Some((name(meta.location.as_ref())?, Found::Object(self.version(meta))));
        let Some(pages) = &self.requests.service.pages else { return Err(self.refused(405).into()) };
        let listed = self.requests.repeated(Access::Read, |extensions| listing::folder(&**pages, &begin, extensions, object))?;
        let listed = listed.map_err(|_| self.refused(404))?;
        let prefixes = listed.prefixes.iter().filter_map(|prefix| Some((name(prefix)?, Found::Prefix)));
        Ok(listed.objects.into_iter().chain(prefixes).collect())
    }

    fn find(&self, key: &str) -> Result<Option<Version>, ObjectError> {
        let key = self.key(key)?;
        let answer = self.requests.repeated(Access::Read, |extensions| {
            let options = GetOptions { head: true, extensions, ..GetOptions::default() };
            self.store().get_opts(&key, options)
        })?;
        match answer {
            Ok(answer) => Ok(Some(self.version(&answer.meta))),
            Err(Error::NotFound { .. }) => Ok(None),
            Err(_) => Err(self.refused(412).into()),
        }
    }

    fn head(&self, key: &str, version: &Version, len: u64) -> Result<Vec<u8>, ObjectError> {
        let len = len.min(version.len);
        if len == 0 {
            return Ok(Vec::new());
        }
        let key = self.key(key)?;
        let answer = self.requests.repeated(Access::Read, |extensions| async {
            let options = GetOptions { range: Some(GetRange::Bounded(0..len)), extensions, ..GetOptions::default() };
            let answer = self.store().get_opts(&key, options).await?;
            let meta = answer.meta.clone();
            Ok((meta, answer.bytes().await?))
        })?;
        let (meta, bytes) = answer.map_err(|_: Error| changed())?;
        if self.version(&meta).identity == version.identity { Ok(bytes.to_vec()) } else { Err(changed().into()) }
    }

    fn open(&self, key: &str, version: &Version) -> Result<Arc<dyn FileDriver>, ObjectError> {
        Ok(Arc::new(self.open_file(key, version)?))
    }

    fn set_memory(&self, bytes: u64) {
        self.memory.set(bytes / BLOCK_BYTES);
        self.trim();
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        let bytes = self.open.lock().iter().map(Blocks::bytes).fold(0, u64::saturating_add);
        vec![("remote_requests", self.requests.service.requests.load(Ordering::Relaxed)), ("remote_cache_bytes", bytes)]
    }
}

fn changed() -> Failure {
    Failure::permanent(libc::ESTALE, "the object was changed or removed; look its name up again")
}

/// An ETag without its quotes: listings of some stores have none.
fn unquoted(etag: &str) -> &str {
    etag.trim_matches('"')
}

fn identity(text: &str) -> Identity {
    let hash = |seed| u64::from(checksum::lookup3(text.as_bytes(), seed));
    Identity { device: DEVICE, inode: hash(1) << 32 | hash(2) }
}
