//! Names of stores in the disk cache: what is read of one is not found under the name of another.
//!
//! A name is a hash of the kind of the store, of where it is, and of the user that reads it. Users
//! are known by names: an access key's ID, an account, a client. Keys and passwords are not hashed.
//! Tokens and signatures are where nothing else names the user; they are too long to be guessed.

use super::cache_file::CacheKey;
use crate::base::url_secrets::shown;
use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey as S3};
use object_store::azure::{AzureConfigKey as Azure, MicrosoftAzureBuilder};
use object_store::gcp::{GoogleCloudStorageBuilder, GoogleConfigKey as Google};
use reqwest::Url;
use std::io::Read;
use std::path::{Path, PathBuf};

/// Longest file of credentials that is read, bytes.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// Path of the credentials that the Google Cloud SDK stores, below the home directory.
const GOOGLE_DEFAULT_FILE: &str = ".config/gcloud/application_default_credentials.json";
/// Members of a file of Google credentials that name a server or a user.
const GOOGLE_NAMES: [&str; 4] = ["gcs_base_url", "client_email", "client_id", "account"];

/// Value of an environment variable.
type Variable<'a> = &'a dyn Fn(&str) -> Option<String>;

/// The name of the store of `kind` with `settings`. A missing one differs from an empty one.
fn named(kind: &str, settings: impl IntoIterator<Item = Option<String>>) -> CacheKey {
    let texts: Vec<String> = settings.into_iter().map(|value| value.map_or_else(String::new, |value| format!("={value}"))).collect();
    CacheKey::of(std::iter::once(kind).chain(texts.iter().map(String::as_str)).map(str::as_bytes))
}

/// The URL `endpoint` without a password.
fn endpoint(endpoint: Option<String>) -> Option<String> {
    endpoint.map(|url| shown(&url).into_owned())
}

/// The store that `builder` will make.
pub(super) fn amazon(builder: &AmazonS3Builder) -> CacheKey {
    let of = |key| builder.get_config_value(&key);
    let place = [S3::Bucket, S3::Region, S3::VirtualHostedStyleRequest, S3::S3Express].map(of);
    let endpoints = [S3::Endpoint, S3::S3Endpoint].map(|key| endpoint(of(key)));
    let ways = [S3::ContainerCredentialsRelativeUri, S3::ContainerCredentialsFullUri, S3::MetadataEndpoint].map(|key| endpoint(of(key)));
    let user = [S3::SkipSignature, S3::AccessKeyId, S3::RoleArn, S3::RoleSessionName].map(of);
    named("s3", place.into_iter().chain(endpoints).chain(ways).chain(user))
}

/// The store that `builder` will make.
pub(super) fn google(builder: &GoogleCloudStorageBuilder, variable: Variable<'_>) -> CacheKey {
    let of = |key| builder.get_config_value(&key);
    let default = || Some(PathBuf::from(variable("HOME")?).join(GOOGLE_DEFAULT_FILE));
    let file = of(Google::ServiceAccount).or_else(|| of(Google::ApplicationCredentials)).map(PathBuf::from).or_else(default);
    let account = of(Google::ServiceAccountKey).or_else(|| text_of(&file?));
    let place = [of(Google::Bucket), endpoint(of(Google::BaseUrl))];
    let user = [Google::SkipSignature, Google::BearerToken].map(of);
    named("gs", place.into_iter().chain(user).chain(google_names(account.as_deref())))
}

/// What a file of Google credentials says of the server and the user.
fn google_names(json: Option<&str>) -> [Option<String>; 4] {
    let json: serde_json::Value = json.and_then(|json| serde_json::from_str(json).ok()).unwrap_or_default();
    GOOGLE_NAMES.map(|name| json.get(name)?.as_str().map(str::to_owned))
}

fn text_of(path: &Path) -> Option<String> {
    let mut text = String::new();
    std::fs::File::open(path).ok()?.take(FILE_BYTES_MAX).read_to_string(&mut text).ok()?;
    Some(text)
}

/// The store that `builder` will make.
pub(super) fn azure(builder: &MicrosoftAzureBuilder, variable: Variable<'_>) -> CacheKey {
    let of = |key| builder.get_config_value(&key);
    let place = [Azure::ContainerName, Azure::AccountName, Azure::UseEmulator, Azure::UseFabricEndpoint].map(of);
    let endpoints = [of(Azure::Endpoint), variable("AZURITE_BLOB_STORAGE_URL")].map(endpoint);
    let has_key = of(Azure::AccessKey).map(|_| String::new());
    let user = [Azure::SkipSignature, Azure::CredentialType, Azure::ClientId, Azure::AuthorityId, Azure::ObjectId, Azure::MsiResourceId];
    let tokens = [Azure::Token, Azure::SasKey];
    let who = user.into_iter().chain(tokens).map(of).chain([has_key]);
    named("az", place.into_iter().chain(endpoints).chain(who))
}

/// The server of `url`, which has no user, and the object there. `user`: `USER:PASSWORD`.
pub(super) fn http(url: &str, user: Option<&str>) -> CacheKey {
    let name = user.map(|user| user.split_once(':').map_or(user, |(name, _)| name).to_owned());
    // As the client sends it: the default port, and digits of a host, may be written otherwise.
    let url = Url::parse(url).map_or_else(|_| url.to_owned(), String::from);
    named("http", [Some(url), name])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All different, and what is expected to be the same.
    fn check(keys: Vec<CacheKey>) {
        for (n, key) in keys.iter().enumerate() {
            assert!(!keys[..n].contains(key), "{n}");
        }
    }

    #[test]
    fn amazon_stores_differ_by_place_and_user() {
        let base = || AmazonS3Builder::new().with_bucket_name("b").with_access_key_id("id").with_secret_access_key("s");
        check(vec![
            amazon(&base()),
            amazon(&base().with_endpoint("http://a:1")),
            amazon(&base().with_endpoint("http://a:2")),
            amazon(&base().with_region("r")),
            amazon(&base().with_bucket_name("c")),
            amazon(&base().with_access_key_id("other")),
            amazon(&base().with_skip_signature(true)),
            amazon(&AmazonS3Builder::new().with_bucket_name("b")),
        ]);
        assert!(amazon(&base()) == amazon(&base().with_secret_access_key("t").with_token("u")));
    }

    #[test]
    fn google_and_azure_stores_differ_by_place_and_user() {
        let none = |_: &str| None;
        let google_of = |json: &str, base: &str| {
            let builder = GoogleCloudStorageBuilder::new().with_bucket_name("b").with_base_url(base);
            google(&builder.with_service_account_key(json), &none)
        };
        let azure_of = |account: &str| MicrosoftAzureBuilder::new().with_container_name("b").with_account(account);
        check(vec![
            google_of(r#"{"client_email":"a"}"#, "http://a"),
            google_of(r#"{"client_email":"b"}"#, "http://a"),
            google_of(r#"{"client_email":"a"}"#, "http://b"),
            google_of(r#"{"client_email":"a","gcs_base_url":"http://b"}"#, "http://a"),
            azure(&azure_of("a"), &none),
            azure(&azure_of("b"), &none),
            azure(&azure_of("a").with_access_key("k"), &none),
            azure(&azure_of("a").with_endpoint("http://a".into()), &none),
            azure(&azure_of("a").with_container_name("c"), &none),
            azure(&azure_of("a").with_config(Azure::SasKey, "sig=1"), &none),
            azure(&azure_of("a").with_config(Azure::SasKey, "sig=2"), &none),
            azure(&azure_of("a"), &|name| (name == "AZURITE_BLOB_STORAGE_URL").then(|| "http://a".into())),
        ]);
        assert!(google_of(r#"{"private_key":"k"}"#, "") == google_of(r#"{"private_key":"l"}"#, ""));
        assert!(azure(&azure_of("a").with_access_key("k"), &none) == azure(&azure_of("a").with_access_key("l"), &none));
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("key.json");
        std::fs::write(&file, r#"{"client_email":"a"}"#).unwrap();
        let by_file = GoogleCloudStorageBuilder::new().with_bucket_name("b").with_base_url("http://a");
        let by_file = google(&by_file.with_service_account_path(file.to_str().unwrap()), &none);
        assert!(by_file == google_of(r#"{"client_email":"a"}"#, "http://a"));
    }

    #[test]
    fn http_objects_differ_by_url_query_and_user() {
        check(vec![
            http("http://h/a", None),
            http("https://h/a", None),
            http("http://h:81/a", None),
            http("http://i/a", None),
            http("http://h/b", None),
            http("http://h/a?q", None),
            http("http://h/a", Some("u:p")),
            http("http://h/a", Some("v:p")),
            http("http://h/a", Some("")),
        ]);
        assert!(http("http://h:80/a", Some("u:p")) == http("HTTP://H/a", Some("u:q")), "passwords are not hashed");
    }
}
