//! The HTTP client of all stores: what it may follow, and the check of each answer.

use super::answer::{Asked, guarded, too_slow};
use super::failure::{Dialect, Failure};
use object_store::client::{HttpClient, HttpConnector, HttpError, HttpRequest, HttpResponse, HttpService};
use object_store::{ClientConfigKey, ClientOptions, Error};
use reqwest::redirect::Policy;
use reqwest::{Certificate, Url};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, Ordering};
use std::time::Duration;
use tokio::time::{Instant, timeout_at};

#[cfg(fuzzing)]
pub mod fuzzing;

/// Longest time to connect, and between two parts of an answer. A GET may have several attempts.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(10);
/// Longest time to connect.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Idle connections kept per host: as many as GETs at once.
const IDLE_CONNECTIONS: usize = 32;
/// Redirects that one request follows.
const REDIRECTS_MAX: usize = 5;
const USER_AGENT: &str = concat!("h5dir/", env!("CARGO_PKG_VERSION"));

/// What a request was answered with; put into the extensions of a request.
#[derive(Debug, Default)]
pub(super) struct Reply {
    /// The request left: its credentials were found.
    pub(super) is_sent: AtomicBool,
    /// HTTP status; 0: no answer.
    pub(super) status: AtomicU16,
    /// A part was asked for, and the whole object was answered.
    pub(super) is_whole: AtomicBool,
    /// When an answer without bytes ends; `None`: after the timeout.
    pub(super) until: Option<Instant>,
}

/// Makes clients that count requests, record answers and check them.
#[derive(Debug)]
pub(super) struct Connector {
    dialect: Dialect,
    timeout: Duration,
    certificates: Vec<Certificate>,
    requests: Arc<AtomicU64>,
    unmarked: Arc<Reply>,
}

impl Connector {
    /// Clients for servers of `dialect`.
    pub(super) fn new(dialect: Dialect, timeout: Duration, requests: Arc<AtomicU64>, unmarked: Arc<Reply>) -> Connector {
        Connector { dialect, timeout, certificates: Vec::new(), requests, unmarked }
    }

    /// Trusts the certificates in `pem`, too.
    pub(super) fn trust(&mut self, pem: &[u8]) -> Result<(), Failure> {
        let unusable = |_| Failure::permanent(libc::EINVAL, "AWS_CA_BUNDLE names no file of PEM certificates; check it");
        self.certificates.extend(Certificate::from_pem_bundle(pem).map_err(unusable)?);
        Ok(())
    }

    fn client(&self, options: &ClientOptions) -> reqwest::Result<reqwest::Client> {
        let attempt = attempt_timeout(self.timeout);
        let connect = options.get_config_value(&ClientConfigKey::ConnectTimeout).as_deref().and_then(seconds);
        let may_use_http = options.get_config_value(&ClientConfigKey::AllowHttp).is_some_and(|value| value == "true");
        let is_any_host = self.dialect == Dialect::Http;
        let policy = Policy::custom(move |attempt| match attempt.previous().last() {
            Some(from) if may_follow(is_any_host, attempt.previous().len(), from, attempt.url()) => attempt.follow(),
            _ => attempt.stop(),
        });
        // The whole time of a request is limited by `answer`.
        reqwest::Client::builder()
            .user_agent(USER_AGENT)
            .default_headers(options.get_default_headers().cloned().unwrap_or_default())
            .redirect(policy)
            .referer(false)
            .tls_certs_merge(self.certificates.iter().cloned())
            .connect_timeout(attempt.min(connect.unwrap_or(CONNECT_TIMEOUT)))
            .read_timeout(attempt)
            .pool_max_idle_per_host(IDLE_CONNECTIONS)
            .https_only(!may_use_http)
            .build()
    }
}

/// True if a redirect from `from` to `to` is followed, the `count`th of a request.
fn may_follow(is_any_host: bool, count: usize, from: &Url, to: &Url) -> bool {
    let is_secure_as_before = to.scheme() == "https" || to.scheme() == "http" && from.scheme() == "http";
    let is_same_host = from.host_str() == to.host_str() && from.port_or_known_default() == to.port_or_known_default();
    count <= REDIRECTS_MAX && is_secure_as_before && (is_any_host || is_same_host && from.scheme() == to.scheme())
}

/// `5s` as a duration.
fn seconds(text: &str) -> Option<Duration> {
    text.strip_suffix('s')?.parse().ok().map(Duration::from_secs)
}

/// The longest time that one attempt of a GET waits for the server.
pub(super) fn attempt_timeout(timeout: Duration) -> Duration {
    ATTEMPT_TIMEOUT.min(timeout / 3).max(Duration::from_millis(100))
}

impl HttpConnector for Connector {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        let failed = |e: reqwest::Error| Error::Generic { store: "HTTP client", source: Box::new(e) };
        let client = HttpClient::new(self.client(options).map_err(failed)?);
        let (requests, unmarked) = (self.requests.clone(), self.unmarked.clone());
        Ok(HttpClient::new(CheckedService { client, timeout: self.timeout, requests, unmarked }))
    }
}

/// Counts requests and checks their answers.
#[derive(Debug)]
struct CheckedService {
    client: HttpClient,
    timeout: Duration,
    requests: Arc<AtomicU64>,
    unmarked: Arc<Reply>,
}

impl HttpService for CheckedService {
    // As `async_trait` declares it.
    fn call<'a, 'b>(&'a self, request: HttpRequest) -> Pin<Box<dyn Future<Output = Result<HttpResponse, HttpError>> + Send + 'b>>
    where
        'a: 'b,
        Self: 'b,
    {
        Box::pin(async move {
            let reply = request.extensions().get::<Arc<Reply>>().unwrap_or(&self.unmarked).clone();
            self.requests.fetch_add(1, Ordering::Relaxed);
            reply.is_sent.store(true, Ordering::Relaxed);
            reply.status.store(0, Ordering::Relaxed);
            let until = reply.until.unwrap_or_else(|| Instant::now() + self.timeout);
            let asked = Asked::of(request.method().as_str(), request.headers())?;
            let answer = timeout_at(until, self.client.execute(request)).await.map_err(|_| too_slow())??;
            let status = answer.status().as_u16();
            reply.status.store(status, Ordering::Relaxed);
            reply.is_whole.store(status == 200 && matches!(asked, Asked::Part(_)), Ordering::Relaxed);
            guarded(answer, &asked, until)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redirects_keep_the_host_of_stores_and_never_leave_tls() {
        let of = |is_any_host, from: &str, to: &str| may_follow(is_any_host, 1, &from.parse().unwrap(), &to.parse().unwrap());
        for (from, to, store, http) in [
            ("http://a/x", "http://a/y", true, true),
            ("http://a/x", "http://a:80/y", true, true),
            ("https://a/x", "https://a:443/y", true, true),
            ("http://a/x", "http://b/y", false, true),
            ("http://a/x", "http://a:81/y", false, true),
            ("https://a/x", "https://b/y", false, true),
            ("http://a/x", "https://a/y", false, true),
            ("https://a/x", "http://a/y", false, false),
            ("https://a:1/x", "http://a:1/y", false, false),
            ("http://a/x", "file:///etc/passwd", false, false),
            ("http://a/x", "ftp://a/y", false, false),
        ] {
            assert_eq!((of(false, from, to), of(true, from, to)), (store, http), "{from} to {to}");
        }
        let url: Url = "http://a/x".parse().unwrap();
        assert!(may_follow(true, REDIRECTS_MAX, &url, &url) && !may_follow(true, REDIRECTS_MAX + 1, &url, &url));
    }
}
