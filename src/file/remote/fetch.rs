//! One GET of a range: pinned to one version of the object, retried with backoff.

use super::answer::{BadAnswer, time_for};
use super::cache_file::CacheKey;
use super::client::{Reply, attempt_timeout};
use super::failure::{Access, Failure};
use super::service::Service;
use crate::base::locks::Mutex;
use crate::file::attempts::{Attempts, Failed};
use futures_util::StreamExt;
use object_store::client::{HttpError, HttpErrorKind};
use object_store::{Error, Extensions, GetOptions, GetRange, GetResult, ObjectMeta};
use std::error::Error as StdError;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant, SystemTime};
use tokio::time::{sleep, timeout, timeout_at};

/// A read so soon after one that failed has one attempt: it is probably the same read, repeated by
/// the kernel or for a part of it.
pub(super) const REPEATED_READ: Duration = Duration::from_secs(2);
/// Longest code in the body of an answer.
const CODE_MAX: usize = 64;
/// Longest text of a library that is shown, bytes.
const DETAIL_MAX: usize = 200;
/// Error text of the HTTP client for a URL without TLS where that is not allowed.
const SCHEME_NOT_ALLOWED: &str = "URL scheme is not allowed";

/// The version of an object that is read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Pin {
    /// Its ETag, if the server has ETags.
    pub(super) etag: Option<String>,
    /// Last-Modified.
    pub(super) modified: SystemTime,
    /// Length, bytes.
    pub(super) len: u64,
}

impl Pin {
    fn of(meta: &ObjectMeta) -> Pin {
        Pin { etag: meta.e_tag.clone(), modified: meta.last_modified.into(), len: meta.size }
    }

    /// True if `other` is the same version: by the ETag, else by Last-Modified and the length.
    fn is_version_of(&self, other: &Pin) -> bool {
        let is_dated_alike = self.etag.is_some() || self.modified == other.modified;
        self.etag == other.etag && self.len == other.len && is_dated_alike
    }

    /// The ETag for If-Match, which accepts no weak ones.
    fn strong_etag(&self) -> Option<&String> {
        self.etag.as_ref().filter(|etag| !etag.starts_with("W/"))
    }
}

/// Receives the bytes of a GET in order.
pub(super) type Sink<'a> = &'a mut (dyn FnMut(&[u8]) + Send);

/// An object and what is known of it.
pub(super) struct Object {
    service: Service,
    /// The URL without secrets.
    name: String,
    timeout: Duration,
    pin: OnceLock<Pin>,
    /// The server rejects If-Match with the ETag that it returned.
    ignores_if_match: AtomicBool,
    /// Another version was found.
    is_changed: AtomicBool,
    /// When a GET failed last, if none succeeded since.
    failed: Mutex<Option<Instant>>,
    bytes: AtomicU64,
    retries: AtomicU64,
}

impl Object {
    /// The object of `service`, called `name` in messages.
    pub(super) fn new(service: Service, name: String, timeout: Duration) -> Object {
        Object {
            service,
            name,
            timeout,
            pin: OnceLock::new(),
            ignores_if_match: AtomicBool::new(false),
            is_changed: AtomicBool::new(false),
            failed: Mutex::default(),
            bytes: AtomicU64::new(0),
            retries: AtomicU64::new(0),
        }
    }

    /// The URL without secrets.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Names its store in the disk cache.
    pub(super) fn store_identity(&self) -> CacheKey {
        self.service.identity
    }

    /// The version that is read; `None` before the first answer.
    pub(super) fn pin(&self) -> Option<&Pin> {
        self.pin.get()
    }

    /// Requests sent, bytes received, attempts repeated.
    pub(super) fn counters(&self) -> [u64; 3] {
        [&*self.service.requests, &self.bytes, &self.retries].map(|n| n.load(Ordering::Relaxed))
    }

    /// Gets the bytes `range`, which is not empty, and passes them to `sink`. The first call may
    /// ask for more than the object has; it pins the version.
    ///
    /// An attempt that fails is repeated from where it stopped, until no byte came for the timeout
    /// or fewer came than [`time_for`] allows. A GET soon after one that failed has the time of one
    /// attempt.
    pub(super) async fn get(&self, range: Range<u64>, sink: Sink<'_>) -> Result<(), Failure> {
        let is_repetition = self.failed.lock().is_some_and(|at| at.elapsed() < REPEATED_READ);
        let patience = if is_repetition { attempt_timeout(self.timeout) } else { self.timeout };
        let result = self.get_within(patience, range, sink).await;
        *self.failed.lock() = result.is_err().then(Instant::now);
        result
    }

    async fn get_within(&self, patience: Duration, range: Range<u64>, sink: Sink<'_>) -> Result<(), Failure> {
        let (mut at, mut end) = (range.start, range.end);
        let mut attempts = Attempts::default();
        let start = Instant::now();
        let mut silent_until = start + patience;
        while at < end {
            let before = at;
            let until = start + patience + time_for(before.saturating_sub(range.start));
            let mut counted = |bytes: &[u8]| {
                at = at.saturating_add(bytes.len() as u64);
                sink(bytes);
            };
            let result = self.attempt(before..end, until, &mut counted).await;
            end = end.min(self.pin.get().map_or(end, |pin| pin.len));
            let Err((failure, is_connect)) = result else { continue };
            if at > before {
                attempts.restart();
                silent_until = Instant::now() + patience;
            }
            let deadline = silent_until.min(start + patience + time_for(at.saturating_sub(range.start)));
            let failed = Failed { is_transient: failure.is_transient, is_connect, was_connected: self.pin.get().is_some() };
            let Some(pause) = attempts.pause_before(deadline, failed) else { return Err(failure) };
            tracing::debug!("{}: bytes {at} to {end}: {failure}; trying again", self.name);
            self.retries.fetch_add(1, Ordering::Relaxed);
            sleep(pause).await;
        }
        Ok(())
    }

    /// One attempt; an answer without bytes ends at `until`. The error says whether the server
    /// could not be connected to.
    async fn attempt(&self, range: Range<u64>, until: Instant, sink: Sink<'_>) -> Result<(), (Failure, bool)> {
        let result = match self.request(range.clone(), until, true).await {
            Err((failure, _, 412)) if self.pin.get().is_some() => self.without_if_match(range, until, failure).await?,
            Err((_, _, 404 | 410)) if self.pin.get().is_some() => return Err((self.changed(), false)),
            Err((failure, is_connect, _)) => return Err((failure, is_connect)),
            Ok(result) => result,
        };
        self.check(&result).map_err(|failure| (failure, false))?;
        self.receive(result, sink).await.map_err(|failure| (failure, false))
    }

    /// Repeats a request that was answered with 412. A server may not know its own ETags in
    /// If-Match: then they are only compared.
    async fn without_if_match(&self, range: Range<u64>, until: Instant, failure: Failure) -> Result<GetResult, (Failure, bool)> {
        if self.ignores_if_match.load(Ordering::Relaxed) {
            return Err((failure, false));
        }
        let result = self.request(range, until, false).await.map_err(|(failure, is_connect, status)| match status {
            404 | 410 | 412 | 416 => (self.changed(), false),
            _ => (failure, is_connect),
        })?;
        self.check(&result).map_err(|failure| (failure, false))?;
        self.ignores_if_match.store(true, Ordering::Relaxed);
        Ok(result)
    }

    /// Sends the request. The error has the HTTP status, or 0.
    async fn request(&self, range: Range<u64>, until: Instant, pinned: bool) -> Result<GetResult, (Failure, bool, u16)> {
        let reply = Arc::new(Reply { until: Some(until.into()), ..Reply::default() });
        let mut extensions = Extensions::new();
        extensions.insert(reply.clone());
        let pinned = pinned && !self.ignores_if_match.load(Ordering::Relaxed);
        let if_match = self.pin.get().filter(|_| pinned).and_then(Pin::strong_etag).cloned();
        let options = GetOptions { range: Some(GetRange::Bounded(range)), if_match, extensions, ..GetOptions::default() };
        let answer = timeout_at(until.into(), self.service.store.get_opts(&self.service.key, options)).await;
        let status = reply.status.load(Ordering::Relaxed);
        match answer {
            Ok(Ok(result)) => Ok(result),
            Ok(Err(e)) => {
                let (mut failure, is_connect) = classified(&e, &reply, &self.service, Access::Read);
                // Credentials that were found once may be found again.
                failure.is_transient |= self.pin.get().is_some() && !reply.is_sent.load(Ordering::Relaxed);
                Err((failure, is_connect, if (200..300).contains(&status) { 0 } else { status }))
            }
            Err(_) => Err((timed_out(), false, 0)),
        }
    }

    /// Checks that an answer is of the pinned version; pins the first.
    fn check(&self, result: &GetResult) -> Result<(), Failure> {
        let found = Pin::of(&result.meta);
        let pin = self.pin.get_or_init(|| found.clone());
        if pin.is_version_of(&found) { Ok(()) } else { Err(self.changed()) }
    }

    async fn receive(&self, result: GetResult, sink: Sink<'_>) -> Result<(), Failure> {
        let mut left = result.range.end.saturating_sub(result.range.start);
        let mut stream = result.into_stream();
        let idle = attempt_timeout(self.timeout);
        while left > 0 {
            let part = match timeout(idle, stream.next()).await {
                Err(_) => return Err(timed_out()),
                Ok(None) => return Err(Failure::transient(libc::EIO, "the answer was cut off")),
                Ok(Some(Err(e))) => {
                    let reply = Reply { is_sent: true.into(), ..Reply::default() };
                    return Err(classified(&e, &reply, &self.service, Access::Read).0);
                }
                Ok(Some(Ok(part))) => part,
            };
            let part = part.get(..part.len().min(usize::try_from(left).unwrap_or(usize::MAX))).unwrap_or_default();
            left = left.saturating_sub(part.len() as u64);
            self.bytes.fetch_add(part.len() as u64, Ordering::Relaxed);
            sink(part);
        }
        Ok(())
    }

    /// Records that the object has another version, and logs it once.
    fn changed(&self) -> Failure {
        if !self.is_changed.swap(true, Ordering::Relaxed) {
            tracing::error!(
                "{}: the object was changed or removed since it was opened; open it again; if it is mounted itself, mount it again",
                self.name
            );
        }
        Failure::permanent(libc::EIO, "the object was changed or removed since it was opened; open it again")
    }

    /// Logs a failed read, except of an object that was changed, which is logged already.
    pub(super) fn report(&self, failure: &Failure) {
        if !self.is_changed.load(Ordering::Relaxed) {
            tracing::error!("cannot read {}: {failure}", self.name);
        }
    }
}

pub(super) fn timed_out() -> Failure {
    Failure::transient(libc::ETIMEDOUT, "the server does not answer; check the network and the endpoint")
}

/// The failure that `error` is, and whether the server could not be connected to. Texts of errors
/// that may have the URL with its secrets are not used.
pub(super) fn classified(error: &Error, reply: &Reply, service: &Service, access: Access) -> (Failure, bool) {
    let status = reply.status.load(Ordering::Relaxed);
    if let (Some(bad), false) = (cause::<BadAnswer>(error), is_timeout(error)) {
        return (Failure::permanent(libc::EIO, format!("the answer cannot be used: {bad}; check the endpoint")), false);
    }
    if status != 0 && !(200..300).contains(&status) {
        return (Failure::of_status(status, &code_of(error), service.dialect, access), false);
    }
    if matches!(error, Error::NotSupported { .. }) || reply.is_whole.load(Ordering::Relaxed) {
        return (Failure::permanent(libc::EOPNOTSUPP, "the server ignores Range requests; copy the file to this machine"), false);
    }
    if !reply.is_sent.load(Ordering::Relaxed) {
        return (Failure::permanent(libc::EACCES, no_credentials(service)), false);
    }
    let (mut kind, mut innermost) = (None, String::new());
    let mut next: Option<&(dyn StdError + 'static)> = Some(error);
    while let Some(e) = next {
        kind = e.downcast_ref::<HttpError>().map(HttpError::kind).or(kind);
        innermost = e.to_string();
        next = e.source();
    }
    // The innermost error is one of the system or of TLS. One of the client has the URL.
    let text = innermost.split(" (os error").next().unwrap_or_default();
    // Texts of parsers may quote what the server sent.
    let is_shown = text.len() <= DETAIL_MAX && !text.contains("://") && !text.chars().any(char::is_control);
    let detail = if is_shown { text } else { "it cannot be parsed, or the connection failed" };
    match kind {
        _ if innermost == SCHEME_NOT_ALLOWED => {
            let variables = service.dialect.variables();
            (Failure::permanent(libc::EIO, format!("the endpoint has no TLS (http://); set {variables}_ALLOW_HTTP=true to use it")), false)
        }
        Some(HttpErrorKind::Timeout) => (timed_out(), false),
        Some(HttpErrorKind::Connect) => {
            (Failure::transient(libc::EIO, format!("cannot connect to the server: {detail}; check the network and the endpoint")), true)
        }
        Some(_) => (Failure::transient(libc::EIO, format!("the connection broke: {detail}")), false),
        None => (Failure::permanent(libc::EIO, format!("the answer cannot be used: {detail}; check the endpoint")), false),
    }
}

/// The first of `error` and its causes that is a `T`.
fn cause<T: StdError + 'static>(error: &Error) -> Option<&T> {
    let mut next: Option<&(dyn StdError + 'static)> = Some(error);
    while let Some(e) = next {
        if let Some(found) = e.downcast_ref() {
            return Some(found);
        }
        next = e.source();
    }
    None
}

fn is_timeout(error: &Error) -> bool {
    cause::<HttpError>(error).is_some_and(|e| e.kind() == HttpErrorKind::Timeout)
}

fn no_credentials(service: &Service) -> String {
    if let Some(method) = service.other_method {
        let remedy = "put its keys into the environment, for example by eval \"$(aws configure export-credentials --format env)\"";
        return format!("no credentials were found: the AWS profile uses {method}, which h5dir does not have; {remedy}");
    }
    let variables = service.dialect.variables();
    let public = format!("for a public object, set {variables}_SKIP_SIGNATURE=true, or mount with --anonymous");
    format!("no credentials were found; set them in the environment or a profile; {public}")
}

/// The code in the body of an answer, `<Code>NoSuchBucket</Code>`; empty if there is none.
pub(super) fn code_of(error: &Error) -> String {
    let mut next: Option<&(dyn StdError + 'static)> = Some(error);
    while let Some(e) = next {
        let text = e.to_string();
        let code = text.split_once("<Code>").and_then(|(_, rest)| rest.split_once("</Code>")).map(|(code, _)| code);
        if let Some(code) = code.filter(|code| code.len() <= CODE_MAX && code.bytes().all(|b| b.is_ascii_alphanumeric())) {
            return code.to_owned();
        }
        next = e.source();
    }
    String::new()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_words() {
        let of = |text: &str| code_of(&Error::Generic { store: "S3", source: text.into() });
        assert_eq!(of("403: <Error><Code>AccessDenied</Code><Message>"), "AccessDenied");
        let long = format!("<Code>{}</Code>", "x".repeat(CODE_MAX + 1));
        for none in ["<Code>", "<Code>a b</Code>", "</Code><Code>", long.as_str()] {
            assert_eq!(of(none), "", "{none}");
        }
    }

    #[test]
    fn versions_differ_by_etag_or_by_time_and_length() {
        let pin = |etag: Option<&str>, seconds, len| Pin {
            etag: etag.map(str::to_owned),
            modified: SystemTime::UNIX_EPOCH + Duration::from_secs(seconds),
            len,
        };
        assert!(pin(Some("a"), 1, 9).is_version_of(&pin(Some("a"), 2, 9)));
        assert!(!pin(Some("a"), 1, 9).is_version_of(&pin(Some("b"), 1, 9)));
        assert!(!pin(Some("a"), 1, 9).is_version_of(&pin(None, 1, 9)));
        assert!(pin(None, 1, 9).is_version_of(&pin(None, 1, 9)));
        assert!(!pin(None, 1, 9).is_version_of(&pin(None, 2, 9)) && !pin(None, 1, 9).is_version_of(&pin(None, 1, 8)));
        assert_eq!(pin(Some("W/\"a\""), 1, 1).strong_etag(), None);
    }
}
