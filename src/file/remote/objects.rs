//! The objects below a prefix of an object store, as the store of a container.

use super::client::Reply;
use super::failure::{Access, Failure, is_no_bucket};
use super::fetch::{REPEATED_READ, classified, code_of, timed_out};
use super::listing::Room;
use super::open::{DiskPlace, resolver_files};
use super::service::{self, Service};
use crate::base::locks::Mutex;
use crate::base::remote::RemoteOptions;
use crate::base::waiting;
use crate::file::attempts::{Attempts, Failed};
use crate::file::store::{self, RangeCache};
use futures_util::StreamExt;
use object_store::path::Path as Key;
use object_store::{Error, Extensions, GetOptions, GetRange, ObjectStoreExt, PutMode, PutOptions, PutPayload};
use std::future::Future;
use std::io;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;
use tokio::time::timeout;

/// Threads that send requests and receive answers.
const THREADS: usize = 2;

/// See the module's description.
pub struct RemoteStore {
    pub(super) service: Service,
    pub(super) timeout: Duration,
    /// Started by the first request, after the process is confined.
    runtime: OnceLock<Arc<Runtime>>,
    received: AtomicU64,
    sent: AtomicU64,
    /// The server was connected to.
    is_connected: AtomicBool,
    /// When a read of data failed, if none succeeded since.
    failed_read: Mutex<Option<Instant>>,
}

impl RemoteStore {
    /// The objects below `url`; nothing is sent.
    pub fn locate(url: &str, options: &RemoteOptions) -> Result<RemoteStore, Failure> {
        Ok(RemoteStore::new(service::connect(url, options)?, options.timeout))
    }

    /// The objects of `service`; nothing is sent.
    pub(super) fn new(service: Service, timeout: Duration) -> RemoteStore {
        let (received, sent) = (AtomicU64::new(0), AtomicU64::new(0));
        let (is_connected, failed_read) = (AtomicBool::new(false), Mutex::default());
        RemoteStore { service, timeout, runtime: OnceLock::new(), received, sent, is_connected, failed_read }
    }

    /// Files and directories of the host that requests use, and whether they are written.
    pub fn used(&self) -> io::Result<Vec<(OwnedFd, bool)>> {
        Ok(resolver_files())
    }

    /// The disk cache that `options` name for packs of the container here, and its directory.
    pub fn disk_cache(&self, options: &RemoteOptions) -> Result<Option<(Arc<dyn RangeCache>, OwnedFd)>, Failure> {
        let key = self.service.identity.with(self.service.key.as_ref().as_bytes());
        DiskPlace::of(options)?.map(|place| place.extents(key)).transpose()
    }

    /// The key of the object `key` below the prefix. Errors: `EINVAL`.
    pub(super) fn key(&self, key: &str) -> io::Result<Key> {
        Key::parse(format!("{}/{key}", self.service.key)).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))
    }

    /// The threads that receive answers.
    pub(super) fn runtime(&self) -> Result<&Arc<Runtime>, Failure> {
        let failed = |e: io::Error| Failure::permanent(e.raw_os_error().unwrap_or(libc::EAGAIN), format!("cannot start threads: {e}"));
        if let Some(runtime) = self.runtime.get() {
            return Ok(runtime);
        }
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        let runtime = builder.worker_threads(THREADS).thread_name("h5dir-store").enable_io().enable_time().build().map_err(failed)?;
        // Of two threads that start one, one keeps it.
        let _ = self.runtime.set(Arc::new(runtime));
        self.runtime.get().ok_or_else(|| failed(io::Error::from_raw_os_error(libc::EAGAIN)))
    }

    /// Sends a request that creates an object; its answer must come within the timeout.
    fn once<T, F>(&self, request: impl FnOnce(Extensions) -> F) -> io::Result<Result<T, Error>>
    where
        F: Future<Output = Result<T, Error>>,
    {
        self.attempt(Access::Write, request).map_err(|(failure, _)| failed(failure))
    }

    /// Sends a request. The error says whether the server could not be connected to.
    fn attempt<T, F>(&self, access: Access, request: impl FnOnce(Extensions) -> F) -> Result<Result<T, Error>, (Failure, bool)>
    where
        F: Future<Output = Result<T, Error>>,
    {
        waiting::may_wait();
        let reply = Arc::new(Reply::default());
        let mut extensions = Extensions::new();
        extensions.insert(reply.clone());
        let before = self.service.requests.load(Ordering::Relaxed);
        let request = request(extensions);
        // Listings and the like take no extensions.
        let is_marked = Arc::strong_count(&reply) > 1;
        let runtime = self.runtime().map_err(|failure| (failure, false))?;
        let answer = runtime.block_on(async { timeout(self.timeout, request).await });
        let refused = |status, e: &Error| (Failure::of_status(status, &code_of(e), self.service.dialect, access), false);
        let result = match answer {
            Err(_) => Err((timed_out(), false)),
            Ok(Err(e @ Error::NotFound { .. })) if is_no_bucket(&code_of(&e)) => Err(refused(404, &e)),
            Ok(Err(e @ (Error::NotFound { .. } | Error::AlreadyExists { .. } | Error::Precondition { .. }))) => Ok(Err(e)),
            Ok(Err(e @ Error::PermissionDenied { .. })) => Err(refused(403, &e)),
            Ok(Err(e @ Error::Unauthenticated { .. })) => Err(refused(401, &e)),
            Ok(Err(e)) => {
                if !is_marked && self.service.requests.load(Ordering::Relaxed) > before {
                    // Of several listings at once, one may get the status of another.
                    let status = self.service.unmarked.status.load(Ordering::Relaxed);
                    reply.status.store(if status < 300 { 0 } else { status }, Ordering::Relaxed);
                    reply.is_sent.store(true, Ordering::Relaxed);
                }
                Err(classified(&e, &reply, &self.service, access))
            }
            Ok(Ok(answer)) => Ok(Ok(answer)),
        };
        if !matches!(result, Err((_, true))) {
            self.is_connected.store(true, Ordering::Relaxed);
        }
        result
    }

    /// Sends a request that may be repeated, until the timeout.
    fn again<T, F>(&self, access: Access, request: impl FnMut(Extensions) -> F) -> io::Result<Result<T, Error>>
    where
        F: Future<Output = Result<T, Error>>,
    {
        self.repeated(access, request).map_err(failed)
    }

    /// Sends a request that may be repeated, until the timeout. The failure is not transient.
    pub(super) fn repeated<T, F>(&self, access: Access, request: impl FnMut(Extensions) -> F) -> Result<Result<T, Error>, Failure>
    where
        F: Future<Output = Result<T, Error>>,
    {
        self.repeated_for(self.timeout, access, request)
    }

    /// Sends a request that may be repeated; no attempt begins after `patience`. The first
    /// connection has [`crate::file::attempts::FIRST_CONNECTS_MAX`] attempts.
    fn repeated_for<T, F>(
        &self,
        patience: Duration,
        access: Access,
        mut request: impl FnMut(Extensions) -> F,
    ) -> Result<Result<T, Error>, Failure>
    where
        F: Future<Output = Result<T, Error>>,
    {
        let deadline = Instant::now() + patience;
        let mut attempts = Attempts::default();
        loop {
            let (failure, is_connect) = match self.attempt(access, &mut request) {
                Err(failed) => failed,
                Ok(done) => return Ok(done),
            };
            let was_connected = self.is_connected.load(Ordering::Relaxed);
            let failed = Failed { is_transient: failure.is_transient, is_connect, was_connected };
            let Some(pause) = attempts.pause_before(deadline, failed) else { return Err(Failure { is_transient: false, ..failure }) };
            tracing::debug!("request of the object store: {failure}; trying again");
            std::thread::sleep(pause);
        }
    }

    /// The bytes `range` of the object `key`, by attempts that begin within `patience`.
    fn get_within(&self, patience: Duration, key: &str, range: &Range<u64>) -> io::Result<Vec<u8>> {
        if range.is_empty() {
            return Ok(Vec::new());
        }
        let key = self.key(key)?;
        let answer = self.repeated_for(patience, Access::Read, |extensions| async {
            let range = Some(GetRange::Bounded(range.clone()));
            let options = GetOptions { range, extensions, ..GetOptions::default() };
            object_store::ObjectStore::get_opts(&*self.service.store, &key, options).await?.bytes().await
        });
        let bytes = answer.map_err(failed)?.map_err(|_| absent())?;
        self.received.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        Ok(bytes.to_vec())
    }
}

/// The error of a request.
fn failed(failure: Failure) -> io::Error {
    tracing::debug!("request of the object store: {failure}");
    failure.request_error()
}

fn absent() -> io::Error {
    io::Error::from_raw_os_error(libc::ENOENT)
}

impl store::ObjectStore for RemoteStore {
    fn get(&self, key: &str, range: Range<u64>) -> io::Result<Vec<u8>> {
        self.get_within(self.timeout, key, &range)
    }

    fn get_several(&self, key: &str, ranges: &[Range<u64>]) -> io::Result<Vec<Vec<u8>>> {
        let is_repetition = self.failed_read.lock().is_some_and(|at| at.elapsed() < REPEATED_READ);
        let patience = if is_repetition { Duration::ZERO } else { self.timeout };
        let read = store::by_one_get(ranges, &|range| self.get_within(patience, key, &range));
        *self.failed_read.lock() = read.is_err().then(Instant::now);
        read
    }

    fn put(&self, key: &str, bytes: &[u8]) -> io::Result<()> {
        let (key, bytes) = (self.key(key)?, PutPayload::from(bytes.to_vec()));
        self.sent.fetch_add(bytes.content_length() as u64, Ordering::Relaxed);
        let answer = self.again(Access::Write, |extensions| async {
            let options = PutOptions { extensions, ..PutOptions::default() };
            object_store::ObjectStore::put_opts(&*self.service.store, &key, bytes.clone(), options).await
        })?;
        answer.map(drop).map_err(|_| io::Error::from_raw_os_error(libc::EIO))
    }

    fn create(&self, key: &str, bytes: &[u8]) -> io::Result<bool> {
        let (key, bytes) = (self.key(key)?, PutPayload::from(bytes.to_vec()));
        self.sent.fetch_add(bytes.content_length() as u64, Ordering::Relaxed);
        let answer = self.once(|extensions| async {
            let options = PutOptions { mode: PutMode::Create, extensions, ..PutOptions::default() };
            object_store::ObjectStore::put_opts(&*self.service.store, &key, bytes, options).await
        })?;
        match answer {
            Ok(_) => Ok(true),
            Err(Error::NotFound { .. }) => Err(absent()),
            Err(_) => Ok(false),
        }
    }

    fn list_after(&self, prefix: &str, after: &str) -> io::Result<Vec<String>> {
        self.list_part(prefix, after, usize::MAX)
    }

    /// Asks for as many pages as have `max` keys.
    fn list_part(&self, prefix: &str, after: &str, max: usize) -> io::Result<Vec<String>> {
        let folder = self.key(prefix.trim_end_matches('/'))?;
        let offset = if after > prefix { self.key(after)? } else { folder.clone() };
        let answer = self.again(Access::Read, |_| async {
            let mut all = object_store::ObjectStore::list_with_offset(&*self.service.store, Some(&folder), &offset);
            let (mut room, mut keys) = (Room::new(), Vec::new());
            while keys.len() < max
                && let Some(meta) = all.next().await
            {
                let key = meta?.location;
                room.take(key.as_ref())?;
                keys.push(key);
            }
            Ok(keys)
        })?;
        let begin = format!("{}/", self.service.key);
        let own = |key: Key| key.as_ref().strip_prefix(begin.as_str()).map(str::to_owned);
        let mut keys: Vec<String> = answer.map_err(|_| absent())?.into_iter().filter_map(own).collect();
        keys.retain(|key| key.starts_with(prefix) && key.as_str() > after);
        keys.sort_unstable();
        Ok(keys)
    }

    fn head(&self, key: &str) -> io::Result<Option<u64>> {
        let key = self.key(key)?;
        let request = |_| self.service.store.head(&key);
        match self.again(Access::Read, request)? {
            Ok(meta) => Ok(Some(meta.size)),
            Err(_) => Ok(None),
        }
    }

    fn delete(&self, key: &str) -> io::Result<()> {
        let key = self.key(key)?;
        let request = |_| self.service.store.delete(&key);
        match self.again(Access::Write, request)? {
            Ok(()) | Err(Error::NotFound { .. }) => Ok(()),
            Err(_) => Err(io::Error::from_raw_os_error(libc::EIO)),
        }
    }

    fn counters(&self) -> [u64; 3] {
        [&*self.service.requests, &self.received, &self.sent].map(|n| n.load(Ordering::Relaxed))
    }
}

impl Drop for RemoteStore {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take().and_then(Arc::into_inner) {
            runtime.shutdown_background();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::request_error::RequestError;
    use crate::file::attempts::FIRST_CONNECTS_MAX;
    use crate::file::store::ObjectStore as _;
    use std::net::TcpListener;

    fn store_at(port: u16) -> RemoteStore {
        let options = RemoteOptions { timeout: Duration::from_millis(900), ..RemoteOptions::default() };
        RemoteStore::new(service::connect(&format!("http://127.0.0.1:{port}/prefix"), &options).unwrap(), options.timeout)
    }

    /// The error of a read, and the number of requests that it sent.
    fn failed_after(store: &RemoteStore, read: impl FnOnce() -> io::Result<Vec<u8>>) -> (u64, RequestError) {
        let before = store.service.requests.load(Ordering::Relaxed);
        let error = read().unwrap_err();
        (store.service.requests.load(Ordering::Relaxed) - before, RequestError::of(&error).unwrap().clone())
    }

    /// The kernel repeats a read of data that failed: it has one attempt then.
    #[test]
    fn reads_end_after_the_timeout_and_their_repetitions_sooner() {
        let silent = TcpListener::bind("127.0.0.1:0").unwrap();
        let store = store_at(silent.local_addr().unwrap().port());
        let data = || store.get_several("d/1", std::slice::from_ref(&(0..9))).map(|mut all| all.remove(0));
        let (first, error) = failed_after(&store, data);
        assert_eq!((error.errno, error.is_transient), (libc::ETIMEDOUT, false));
        assert!((2..=3).contains(&first), "{first}");
        let (again, error) = failed_after(&store, data);
        assert_eq!((error.errno, error.is_transient, again), (libc::ETIMEDOUT, false, 1));
        let (other, _) = failed_after(&store, || store.get("v/1", 0..9));
        assert!((2..=3).contains(&other), "{other}");
    }

    #[test]
    fn a_server_that_cannot_be_connected_to_is_reported_soon() {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let mut store = store_at(port);
        store.timeout = Duration::from_secs(60);
        let (requests, error) = failed_after(&store, || store.get("v/1", 0..9));
        assert_eq!((error.errno, error.is_transient, requests), (libc::EIO, false, FIRST_CONNECTS_MAX.into()));
        assert!(error.text.contains("cannot connect to the server"), "{error}");
    }
}
