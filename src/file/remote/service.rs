//! The stores, by scheme: endpoint, credentials and client options from the environment.

use super::cache_file::CacheKey;
use super::client::{Connector, Reply};
use super::failure::{Dialect, Failure};
use super::identity;
use super::profile;
use crate::base::remote::{RemoteOptions, after_scheme};
use crate::base::url_secrets;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};
use object_store::azure::MicrosoftAzureBuilder;
use object_store::gcp::GoogleCloudStorageBuilder;
use object_store::http::HttpBuilder;
use object_store::list::PaginatedListStore;
use object_store::path::Path as Key;
use object_store::{ClientOptions, HeaderMap, HeaderValue, ObjectStore, RetryConfig};
use percent_encoding::percent_decode_str;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

/// A store.
struct Stores {
    store: Arc<dyn ObjectStore>,
    /// Its listings by pages; HTTP servers have none.
    pages: Option<Arc<dyn PaginatedListStore>>,
    identity: CacheKey,
}

/// Both interfaces of `store`.
fn both<T: ObjectStore + PaginatedListStore>(store: T, identity: CacheKey) -> Stores {
    let store = Arc::new(store);
    Stores { store: store.clone(), pages: Some(store), identity }
}

/// A store and the key of an object in it.
pub(super) struct Service {
    /// The store.
    pub(super) store: Arc<dyn ObjectStore>,
    /// Its listings by pages.
    pub(super) pages: Option<Arc<dyn PaginatedListStore>>,
    /// The key.
    pub(super) key: Key,
    /// Names the store, without the key, and the user in the disk cache.
    pub(super) identity: CacheKey,
    /// The kind of server.
    pub(super) dialect: Dialect,
    /// A way to credentials that the AWS profile has and h5dir has not.
    pub(super) other_method: Option<&'static str>,
    /// Requests sent.
    pub(super) requests: Arc<AtomicU64>,
    /// What the last request without a reply of its own was answered with: listings take none.
    pub(super) unmarked: Arc<Reply>,
}

impl Service {
    /// The store that `build` makes, and a key in it.
    fn over(
        dialect: Dialect,
        key: Key,
        timeout: Duration,
        build: impl FnOnce(Connector) -> Result<Stores, Failure>,
    ) -> Result<Service, Failure> {
        // Another library of the process may have installed an implementation of TLS: that is used.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let (requests, unmarked) = (Arc::new(AtomicU64::new(0)), Arc::new(Reply::default()));
        let Stores { store, pages, identity } = build(Connector::new(dialect, timeout, requests.clone(), unmarked.clone()))?;
        let other_method = match dialect {
            Dialect::S3 => profile::load(&variable).ok().and_then(|profile| profile::other_method(&profile)),
            _ => None,
        };
        Ok(Service { store, pages, key, identity, dialect, other_method, requests, unmarked })
    }

    /// The object `key` in the same store.
    pub(super) fn with_key(&self, key: Key) -> Service {
        let (store, pages) = (self.store.clone(), self.pages.clone());
        let (requests, unmarked) = (self.requests.clone(), self.unmarked.clone());
        let Service { identity, dialect, other_method, .. } = *self;
        Service { store, pages, key, identity, dialect, other_method, requests, unmarked }
    }
}

/// Scheme and rest of a URL. Errors: it has a user that cannot be used.
fn divided(url: &str) -> Result<(String, &str), Failure> {
    let start = after_scheme(url.as_bytes()).unwrap_or(0);
    let scheme = url.get(..start).unwrap_or_default().to_ascii_lowercase();
    if url_secrets::of(url).is_misplaced {
        let why = match scheme.starts_with("http") {
            true => "it has an @ in the wrong place; write /, ?, # and @ of a user and a password as %2F, %3F, %23 and %40",
            false => "it has a user; give credentials by the environment or a profile",
        };
        return Err(Failure::permanent(libc::EINVAL, format!("the URL cannot be used: {why}")));
    }
    Ok((scheme, url.get(start..).unwrap_or_default()))
}

/// The store of the object `url`; sends nothing.
pub(super) fn connect(url: &str, options: &RemoteOptions) -> Result<Service, Failure> {
    let (scheme, rest) = divided(url)?;
    if scheme.starts_with("http") {
        return Service::over(Dialect::Http, Key::default(), options.timeout, |connector| http(url, connector));
    }
    let (bucket, key) = rest
        .split_once('/')
        .filter(|(bucket, key)| !bucket.is_empty() && !key.is_empty() && !key.ends_with('/'))
        .ok_or_else(|| Failure::permanent(libc::EINVAL, "the URL names no object; write SCHEME://BUCKET/KEY"))?;
    in_bucket(&scheme, bucket, key, options)
}

/// The store of the objects below the prefix `url`, which may be a whole bucket; sends nothing.
pub(super) fn connect_prefix(url: &str, options: &RemoteOptions) -> Result<Service, Failure> {
    let (scheme, rest) = divided(url)?;
    if scheme.starts_with("http") {
        let remedy = "give the URL of one file, or the prefix of an object store (s3://, gs://, az://)";
        return Err(Failure::permanent(libc::EINVAL, format!("HTTP servers do not list their files; {remedy}")));
    }
    let (bucket, key) = rest.split_once('/').unwrap_or((rest, ""));
    if bucket.is_empty() {
        return Err(Failure::permanent(libc::EINVAL, "the URL names no bucket; write SCHEME://BUCKET/PREFIX/"));
    }
    in_bucket(&scheme, bucket, key, options)
}

fn in_bucket(scheme: &str, bucket: &str, key: &str, options: &RemoteOptions) -> Result<Service, Failure> {
    let key = Key::parse(key).map_err(|_| Failure::permanent(libc::EINVAL, "the key has an empty part, '.' or '..'; check the URL"))?;
    let dialect = match scheme {
        "gs://" => Dialect::Google,
        "az://" => Dialect::Azure,
        _ => Dialect::S3,
    };
    Service::over(dialect, key, options.timeout, |connector| match dialect {
        Dialect::Google => google(bucket, options, connector),
        Dialect::Azure => azure(bucket, options, connector),
        _ => amazon(bucket, options, connector),
    })
}

/// The stores retry nothing: `fetch` does.
fn no_retries() -> RetryConfig {
    RetryConfig { max_retries: 0, ..RetryConfig::default() }
}

/// The failure of a builder. Its text names settings; it has no secrets, for it has no values.
fn unusable(what: &str) -> impl Fn(object_store::Error) -> Failure + '_ {
    move |_| Failure::permanent(libc::EINVAL, format!("the settings of the environment for {what} are not usable; check its variables"))
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

fn is_on(name: &str) -> bool {
    variable(name).is_some_and(|value| matches!(value.to_ascii_lowercase().as_str(), "1" | "true" | "on" | "yes" | "y" | "t"))
}

fn amazon(bucket: &str, options: &RemoteOptions, mut connector: Connector) -> Result<Stores, Failure> {
    let mut builder = AmazonS3Builder::from_env();
    let profile = profile::load(&variable).map_err(|text| Failure::permanent(libc::EINVAL, text))?;
    let is_set = |builder: &AmazonS3Builder, key| builder.get_config_value(&key).is_some();
    let get = |key: &str| profile.get(key).filter(|value| !value.is_empty()).cloned();
    if !is_set(&builder, AmazonS3ConfigKey::AccessKeyId)
        && let (Some(id), Some(secret)) = (get("aws_access_key_id"), get("aws_secret_access_key"))
    {
        builder = builder.with_access_key_id(id).with_secret_access_key(secret);
        if let Some(token) = get("aws_session_token") {
            builder = builder.with_token(token);
        }
    }
    // from_env knows AWS_DEFAULT_REGION and AWS_REGION.
    if !is_set(&builder, AmazonS3ConfigKey::Region)
        && let Some(region) = variable("AWS_DEFAULT_REGION").or_else(|| get("region"))
    {
        builder = builder.with_region(region);
    }
    if variable("AWS_ENDPOINT_URL").is_none()
        && variable("AWS_ENDPOINT_URL_S3").is_none()
        && let Some(endpoint) = get("endpoint_url")
    {
        builder = builder.with_endpoint(endpoint);
    }
    if let Some(path) = variable("AWS_CA_BUNDLE") {
        let unusable = |_| Failure::permanent(libc::EINVAL, "AWS_CA_BUNDLE names no file that can be read; check it");
        connector.trust(&std::fs::read(path).map_err(unusable)?)?;
    }
    let client = ClientOptions::new().with_allow_http(is_on("AWS_ALLOW_HTTP"));
    builder = builder.with_bucket_name(bucket).with_client_options(client).with_retry(no_retries());
    if options.anonymous {
        builder = builder.with_skip_signature(true);
    }
    let identity = identity::amazon(&builder);
    Ok(both(builder.with_http_connector(connector).build().map_err(unusable("S3 (AWS_*)"))?, identity))
}

fn google(bucket: &str, options: &RemoteOptions, connector: Connector) -> Result<Stores, Failure> {
    let client = ClientOptions::new().with_allow_http(is_on("GOOGLE_ALLOW_HTTP"));
    let mut builder = GoogleCloudStorageBuilder::from_env().with_bucket_name(bucket);
    builder = builder.with_client_options(client).with_retry(no_retries());
    if options.anonymous {
        builder = builder.with_skip_signature(true);
    }
    let identity = identity::google(&builder, &variable);
    Ok(both(builder.with_http_connector(connector).build().map_err(unusable("Google Cloud Storage (GOOGLE_*)"))?, identity))
}

fn azure(container: &str, options: &RemoteOptions, connector: Connector) -> Result<Stores, Failure> {
    let client = ClientOptions::new().with_allow_http(is_on("AZURE_ALLOW_HTTP"));
    let mut builder = MicrosoftAzureBuilder::from_env().with_container_name(container);
    builder = builder.with_client_options(client).with_retry(no_retries());
    if options.anonymous {
        builder = builder.with_skip_signature(true);
    }
    let identity = identity::azure(&builder, &variable);
    Ok(both(builder.with_http_connector(connector).build().map_err(unusable("Azure (AZURE_STORAGE_ACCOUNT_NAME, ...)"))?, identity))
}

fn http(url: &str, connector: Connector) -> Result<Stores, Failure> {
    let wrong = || Failure::permanent(libc::EINVAL, "the URL cannot be parsed; check it");
    let secrets = url_secrets::of(url);
    let url = url.split('#').next().unwrap_or_default();
    let full = secrets.query.as_ref().map_or_else(|| url.to_owned(), |query| format!("{url}?{query}"));
    let mut client = ClientOptions::new().with_allow_http(true);
    if let Some(user) = &secrets.user {
        let value = format!("Basic {}", encoded(user));
        let mut value = HeaderValue::from_str(&value).map_err(|_| wrong())?;
        value.set_sensitive(true);
        let mut headers = HeaderMap::new();
        headers.insert("authorization", value);
        client = client.with_default_headers(headers);
    }
    let identity = identity::http(&full, secrets.user.as_deref());
    let builder = HttpBuilder::new().with_url(full).with_client_options(client).with_retry(no_retries());
    let store = Arc::new(builder.with_http_connector(connector).build().map_err(|_| wrong())?);
    Ok(Stores { store, pages: None, identity })
}

/// User and password of a URL as a header has them.
fn encoded(user: &str) -> String {
    STANDARD.encode(percent_decode_str(user).collect::<Vec<u8>>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn user_and_password_are_encoded() {
        for (text, header) in
            [("", ""), ("a", "YQ=="), ("ab", "YWI="), ("u:p?", "dTpwPw=="), ("u%3ap%3F", "dTpwPw=="), ("%zz%", "JXp6JQ==")]
        {
            assert_eq!(encoded(text), header);
        }
    }

    #[test]
    fn a_url_names_an_object() {
        let of = |url: &str| connect(url, &RemoteOptions { anonymous: true, ..RemoteOptions::default() });
        assert_eq!(of("s3://bucket/a/b.h5").unwrap().key.as_ref(), "a/b.h5");
        for wrong in ["s3://bucket", "s3://bucket/", "s3:///key", "s3://b/a//b", "s3://b/prefix/", "http://"] {
            assert_eq!(of(wrong).err().map(|e| e.errno), Some(libc::EINVAL), "{wrong}");
        }
    }

    #[test]
    fn a_prefix_may_be_a_bucket() {
        let of = |url: &str| connect_prefix(url, &RemoteOptions { anonymous: true, ..RemoteOptions::default() });
        for (url, key) in [("s3://bucket", ""), ("s3://bucket/", ""), ("s3a://bucket/a/b/", "a/b"), ("gs://b/c", "c")] {
            assert_eq!(of(url).unwrap().key.as_ref(), key, "{url}");
        }
        for wrong in ["s3://", "s3:///key/", "s3://b/a//b/", "http://h/a/"] {
            assert_eq!(of(wrong).err().map(|e| e.errno), Some(libc::EINVAL), "{wrong}");
        }
    }
}
