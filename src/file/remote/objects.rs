//! The objects below a prefix of an object store, as the store of a container.

use super::failure::Failure;
use super::fetch::{backoff, classified, timed_out};
use super::open::resolver_files;
use super::service::{self, Reply, Service};
use crate::base::remote::RemoteOptions;
use crate::base::waiting;
use crate::file::store;
use futures_util::{StreamExt, TryStreamExt};
use object_store::path::Path as Key;
use object_store::{Error, Extensions, GetOptions, GetRange, ObjectStoreExt, PutMode, PutOptions, PutPayload};
use std::future::Future;
use std::io;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
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
}

impl RemoteStore {
    /// The objects below `url`; nothing is sent.
    pub fn locate(url: &str, options: &RemoteOptions) -> Result<RemoteStore, Failure> {
        Ok(RemoteStore::new(service::connect(url, options)?, options.timeout))
    }

    /// The objects of `service`; nothing is sent.
    pub(super) fn new(service: Service, timeout: Duration) -> RemoteStore {
        let (received, sent) = (AtomicU64::new(0), AtomicU64::new(0));
        RemoteStore { service, timeout, runtime: OnceLock::new(), received, sent }
    }

    /// Files and directories of the host that requests use, and whether they are written.
    pub fn used(&self) -> io::Result<Vec<(OwnedFd, bool)>> {
        Ok(resolver_files())
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

    /// Sends one request; its answer must come within the timeout.
    fn once<T, F>(&self, request: impl FnOnce(Extensions) -> F) -> io::Result<Result<T, Error>>
    where
        F: Future<Output = Result<T, Error>>,
    {
        self.attempt(request).map_err(|failure| failed(&failure))
    }

    fn attempt<T, F>(&self, request: impl FnOnce(Extensions) -> F) -> Result<Result<T, Error>, Failure>
    where
        F: Future<Output = Result<T, Error>>,
    {
        waiting::may_wait();
        let reply = Arc::new(Reply::default());
        let mut extensions = Extensions::new();
        extensions.insert(reply.clone());
        let before = self.service.requests.load(Ordering::Relaxed);
        let request = request(extensions);
        let answer = self.runtime()?.block_on(async { timeout(self.timeout, request).await });
        match answer {
            Err(_) => Err(timed_out()),
            Ok(Err(e @ (Error::NotFound { .. } | Error::AlreadyExists { .. } | Error::Precondition { .. }))) => Ok(Err(e)),
            Ok(Err(Error::PermissionDenied { .. } | Error::Unauthenticated { .. })) => Err(Failure::of_status(403)),
            Ok(Err(e)) => {
                if !reply.is_sent.load(Ordering::Relaxed) && self.service.requests.load(Ordering::Relaxed) > before {
                    // Of several listings at once, one may get the status of another.
                    let status = self.service.unmarked.status.load(Ordering::Relaxed);
                    reply.status.store(if status < 300 { 0 } else { status }, Ordering::Relaxed);
                    reply.is_sent.store(true, Ordering::Relaxed);
                }
                Err(classified(&e, &reply).0)
            }
            Ok(Ok(answer)) => Ok(Ok(answer)),
        }
    }

    /// Sends a request that may be repeated, until the timeout.
    fn again<T, F>(&self, request: impl FnMut(Extensions) -> F) -> io::Result<Result<T, Error>>
    where
        F: Future<Output = Result<T, Error>>,
    {
        self.repeated(request).map_err(|failure| failed(&failure))
    }

    /// Sends a request that may be repeated, until the timeout.
    pub(super) fn repeated<T, F>(&self, mut request: impl FnMut(Extensions) -> F) -> Result<Result<T, Error>, Failure>
    where
        F: Future<Output = Result<T, Error>>,
    {
        let deadline = Instant::now() + self.timeout;
        let mut attempt = 1u32;
        loop {
            match self.attempt(&mut request) {
                Err(e) if e.is_transient => {
                    let pause = backoff(attempt);
                    if Instant::now() + pause > deadline {
                        return Err(e);
                    }
                    tracing::debug!("request of the object store: {e}; trying again");
                    std::thread::sleep(pause);
                    attempt = attempt.saturating_add(1);
                }
                done => return done,
            }
        }
    }
}

/// The error of a request; its text is logged, because an errno has none.
fn failed(failure: &Failure) -> io::Error {
    tracing::debug!("request of the object store: {failure}");
    failure.io_error()
}

fn absent() -> io::Error {
    io::Error::from_raw_os_error(libc::ENOENT)
}

impl store::ObjectStore for RemoteStore {
    fn get(&self, key: &str, range: Range<u64>) -> io::Result<Vec<u8>> {
        if range.is_empty() {
            return Ok(Vec::new());
        }
        let key = self.key(key)?;
        let answer = self.again(|extensions| async {
            let range = Some(GetRange::Bounded(range.clone()));
            let options = GetOptions { range, extensions, ..GetOptions::default() };
            object_store::ObjectStore::get_opts(&*self.service.store, &key, options).await?.bytes().await
        })?;
        let bytes = answer.map_err(|_| absent())?;
        self.received.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        Ok(bytes.to_vec())
    }

    fn put(&self, key: &str, bytes: &[u8]) -> io::Result<()> {
        let (key, bytes) = (self.key(key)?, PutPayload::from(bytes.to_vec()));
        self.sent.fetch_add(bytes.content_length() as u64, Ordering::Relaxed);
        let answer = self.again(|extensions| async {
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
        let answer = self.again(|_| {
            let all = object_store::ObjectStore::list_with_offset(&*self.service.store, Some(&folder), &offset);
            all.map_ok(|meta| meta.location).take(max).try_collect::<Vec<_>>()
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
        match self.again(request)? {
            Ok(meta) => Ok(Some(meta.size)),
            Err(_) => Ok(None),
        }
    }

    fn delete(&self, key: &str) -> io::Result<()> {
        let key = self.key(key)?;
        let request = |_| self.service.store.delete(&key);
        match self.again(request)? {
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
