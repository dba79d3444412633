//! Stores whose server is a fuzz target. Nothing is sent.

use super::super::cache_file::CacheKey;
use super::super::failure::Failure;
use super::super::fetch::Object;
use super::super::objects::RemoteStore;
use super::super::prefix::RemotePrefix;
use super::super::service::Service;
use super::{CheckedService, Dialect, Reply};
use http_body::Frame;
use object_store::aws::AmazonS3Builder;
use object_store::azure::MicrosoftAzureBuilder;
use object_store::client::{HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse, HttpResponseBody, HttpService};
use object_store::gcp::GoogleCloudStorageBuilder;
use object_store::http::HttpBuilder;
use object_store::list::PaginatedListStore;
use object_store::path::Path as Key;
use object_store::{ClientOptions, HeaderValue, ObjectStore, RetryConfig};
use std::collections::VecDeque;
use std::fmt;
use std::future::Future;
use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

/// Time of a request: a failed one is not repeated, as the first pause is longer.
const TIMEOUT: Duration = Duration::from_millis(45);
/// Prefix of all keys.
const PREFIX: &str = "p";

/// A request that reaches the server.
pub struct Request<'a> {
    /// Its method.
    pub method: &'a str,
    /// Its header `Range`.
    pub range: Option<&'a str>,
}

/// An answer of the server.
#[derive(Debug, Default)]
pub struct Answer {
    /// HTTP status.
    pub status: u16,
    /// Headers.
    pub headers: Vec<(&'static str, Vec<u8>)>,
    /// Parts of the body.
    pub body: VecDeque<Vec<u8>>,
    /// The connection breaks after them.
    pub breaks: bool,
}

/// The server; `None`: it cannot be connected to.
pub type Server = Arc<dyn Fn(&Request<'_>) -> Option<Answer> + Send + Sync>;

#[derive(Clone)]
struct Scripted {
    server: Server,
    unmarked: Arc<Reply>,
}

impl fmt::Debug for Scripted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Scripted")
    }
}

impl HttpConnector for Scripted {
    fn connect(&self, _: &ClientOptions) -> object_store::Result<HttpClient> {
        let (client, unmarked) = (HttpClient::new(self.clone()), self.unmarked.clone());
        Ok(HttpClient::new(CheckedService { client, timeout: TIMEOUT, requests: Arc::default(), unmarked }))
    }
}

impl HttpService for Scripted {
    fn call<'a, 'b>(&'a self, request: HttpRequest) -> Pin<Box<dyn Future<Output = Result<HttpResponse, HttpError>> + Send + 'b>>
    where
        'a: 'b,
        Self: 'b,
    {
        let range = request.headers().get("range").and_then(|value| value.to_str().ok());
        let answer = (self.server)(&Request { method: request.method().as_str(), range });
        Box::pin(std::future::ready(answer.map(response).ok_or_else(|| broken(HttpErrorKind::Connect))))
    }
}

fn broken(kind: HttpErrorKind) -> HttpError {
    HttpError::new(kind, std::io::Error::from_raw_os_error(libc::ECONNRESET))
}

fn response(answer: Answer) -> HttpResponse {
    let Answer { status, headers, body, breaks } = answer;
    let mut response = HttpResponse::new(HttpResponseBody::new(Parts { body, breaks }));
    if let Ok(status) = status.try_into() {
        *response.status_mut() = status;
    }
    for (name, value) in headers {
        if let Ok(value) = HeaderValue::from_bytes(&value) {
            response.headers_mut().append(name, value);
        }
    }
    response
}

struct Parts {
    body: VecDeque<Vec<u8>>,
    breaks: bool,
}

impl http_body::Body for Parts {
    type Data = <HttpResponseBody as http_body::Body>::Data;
    type Error = HttpError;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Self::Data>, HttpError>>> {
        let part = self.body.pop_front().map(|part| Ok(Frame::data(part.into())));
        let is_broken = part.is_none() && std::mem::take(&mut self.breaks);
        Poll::Ready(part.or_else(|| is_broken.then(|| Err(broken(HttpErrorKind::Interrupted)))))
    }
}

/// A store, and the same as a prefix.
pub struct Remote {
    /// The store of a container.
    pub store: RemoteStore,
    /// The objects of a mirror.
    pub prefix: RemotePrefix,
}

impl Remote {
    /// The store of each kind whose answers `server` makes.
    pub fn all(server: &Server) -> Vec<Remote> {
        [Dialect::S3, Dialect::Google, Dialect::Azure, Dialect::Http].iter().filter_map(|dialect| Remote::of(*dialect, server)).collect()
    }

    fn of(dialect: Dialect, server: &Server) -> Option<Remote> {
        let unmarked = Arc::new(Reply::default());
        let connector = Scripted { server: server.clone(), unmarked: unmarked.clone() };
        let (store, pages) = stores(dialect, connector)?;
        let service = || Service {
            store: store.clone(),
            pages: pages.clone(),
            key: Key::from(PREFIX),
            identity: CacheKey::of([]),
            dialect,
            other_method: None,
            requests: Arc::default(),
            unmarked: unmarked.clone(),
        };
        Some(Remote { store: RemoteStore::new(service(), TIMEOUT), prefix: RemotePrefix::over(service(), TIMEOUT) })
    }

    /// The bytes `ranges` of one version of an object, in order.
    pub fn read(&self, ranges: &[Range<u64>]) -> Result<Vec<Vec<u8>>, Failure> {
        let object = Object::new(self.store.service.with_key(Key::from(PREFIX)), String::new(), TIMEOUT);
        let runtime = self.store.runtime()?;
        let one = |range: &Range<u64>| {
            let mut all = Vec::new();
            runtime.block_on(object.get(range.clone(), &mut |bytes| all.extend_from_slice(bytes)))?;
            Ok(all)
        };
        ranges.iter().map(one).collect()
    }
}

type Stores = (Arc<dyn ObjectStore>, Option<Arc<dyn PaginatedListStore>>);

fn both<T: ObjectStore + PaginatedListStore>(store: T) -> Stores {
    let store = Arc::new(store);
    (store.clone(), Some(store))
}

fn stores(dialect: Dialect, connector: Scripted) -> Option<Stores> {
    let retry = RetryConfig { max_retries: 0, ..RetryConfig::default() };
    match dialect {
        Dialect::S3 => {
            let builder = AmazonS3Builder::new().with_bucket_name("b").with_skip_signature(true);
            builder.with_retry(retry).with_http_connector(connector).build().ok().map(both)
        }
        Dialect::Google => {
            let builder = GoogleCloudStorageBuilder::new().with_bucket_name("b").with_skip_signature(true);
            builder.with_retry(retry).with_http_connector(connector).build().ok().map(both)
        }
        Dialect::Azure => {
            let builder = MicrosoftAzureBuilder::new().with_account("a").with_container_name("b").with_skip_signature(true);
            builder.with_retry(retry).with_http_connector(connector).build().ok().map(both)
        }
        Dialect::Http => {
            let options = ClientOptions::new().with_allow_http(true);
            let builder = HttpBuilder::new().with_url("http://h").with_client_options(options).with_retry(retry);
            let store = builder.with_http_connector(connector).build().ok()?;
            Some((Arc::new(store), None))
        }
    }
}
