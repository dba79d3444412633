//! URLs of objects in object stores, without [secrets](super::url_secrets), and how they are read.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Schemes of URLs that name an object.
const SCHEMES: [&str; 10] =
    ["s3://", "s3a://", "gs://", "az://", "http://", "https://", "iod+s3://", "iod+gs://", "iod+az://", FOLDER_SCHEME];
/// Begin of the name of a container in a folder.
const FOLDER_SCHEME: &str = "iod:";
/// Begin of the name of a container in an object store, before the URL.
const URL_PREFIX: &str = "iod+";
/// Default time for one GET with its retries.
pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(30);
/// Default limit of the disk cache, bytes.
pub const DEFAULT_CACHE_DIR_BYTES: u64 = 10 << 30;

/// Offset of the first byte after `scheme://`; `None` if `text` is no URL of an object.
pub fn after_scheme(text: &[u8]) -> Option<usize> {
    let is_prefix = |scheme: &&&str| text.get(..scheme.len()).is_some_and(|start| start.eq_ignore_ascii_case(scheme.as_bytes()));
    SCHEMES.iter().find(is_prefix).map(|scheme| scheme.len())
}

/// What is wrong with `text`, a path that does not exist, if it was meant to be a URL.
pub fn misspelled(text: &[u8]) -> Option<String> {
    let colon = text.windows(2).position(|pair| pair == b":/")?;
    let before = text.get(..colon).unwrap_or_default();
    let start = before.iter().rposition(|b| *b == b'/').map_or(0, |at| at.saturating_add(1));
    let scheme = before.get(start..).and_then(|name| std::str::from_utf8(name).ok()).filter(|name| is_scheme(name))?;
    let known = SCHEMES.iter().any(|known| known.trim_end_matches("://").eq_ignore_ascii_case(scheme));
    match (known, text.get(colon..).unwrap_or_default().starts_with(b"://")) {
        (true, false) => Some(format!("a URL has two slashes after its scheme: {scheme}://")),
        (false, true) => Some(format!("{scheme}:// is no known scheme; there are {}", SCHEMES.join(", "))),
        _ => None,
    }
}

/// True for the name of a scheme.
fn is_scheme(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_alphabetic()) && name.chars().all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c))
}

/// True if `text` begins as a URL does, though with an unknown scheme or one slash only.
pub fn is_like_url(text: &[u8]) -> bool {
    misspelled(text).is_some() && !text.starts_with(b"/")
}

/// True if `target` is a URL of an object or a container, not a path of the host.
pub fn is_url(target: &Path) -> bool {
    after_scheme(target.as_os_str().as_bytes()).is_some()
}

/// True if `target` is a URL of a prefix of objects, or of a directory of an HTTP server: it ends
/// in a slash, or names a bucket only.
pub fn is_prefix(target: &Path) -> bool {
    let text = target.as_os_str().as_bytes();
    let Some(start) = after_scheme(text).filter(|_| !text.starts_with(b"iod")) else { return false };
    let rest = text.get(start..).unwrap_or_default();
    let is_http = text.get(..4).is_some_and(|scheme| scheme.eq_ignore_ascii_case(b"http"));
    rest.ends_with(b"/") || !is_http && !rest.is_empty() && !rest.contains(&b'/')
}

/// True if `target` begins as the name of a container does; there may be nothing after that.
pub fn is_container(target: &Path) -> bool {
    let text = target.as_os_str().as_bytes();
    after_scheme(text).is_some() && (text.starts_with(FOLDER_SCHEME.as_bytes()) || text.starts_with(URL_PREFIX.as_bytes()))
}

/// The folder of the container `iod:FOLDER`; `None` if `target` is another name.
pub fn container_folder(target: &Path) -> Option<&Path> {
    let folder = target.as_os_str().as_bytes().strip_prefix(FOLDER_SCHEME.as_bytes())?;
    Some(Path::new(OsStr::from_bytes(folder))).filter(|folder| !folder.as_os_str().is_empty())
}

/// The URL of the prefix of the container `iod+URL`, without the slash at its end; `None` if
/// `target` is another name.
pub fn container_url(target: &Path) -> Option<String> {
    let url = target.to_str()?.strip_prefix(URL_PREFIX)?.trim_end_matches('/');
    after_scheme(url.as_bytes()).map(|_| url.to_owned())
}

/// The prefix that the one of the container at `url` is in, without a slash at its end.
pub fn container_parent(url: &str) -> &str {
    url.rsplit_once('/').map_or(url, |(parent, _)| parent)
}

/// `target` with the folder of a container mapped by `f`.
pub fn with_folder(target: &Path, f: impl FnOnce(&Path) -> PathBuf) -> PathBuf {
    match container_folder(target) {
        Some(folder) => {
            let mut name = std::ffi::OsString::from(FOLDER_SCHEME);
            name.push(f(folder));
            name.into()
        }
        None => target.to_owned(),
    }
}

/// How objects in object stores are read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemoteOptions {
    /// Requests are not signed.
    pub anonymous: bool,
    /// Time for one GET with its retries.
    pub timeout: Duration,
    /// Directory of the disk cache.
    pub cache_dir: Option<PathBuf>,
    /// Limit of the disk cache, bytes.
    pub cache_dir_bytes: u64,
}

impl Default for RemoteOptions {
    fn default() -> Self {
        RemoteOptions { anonymous: false, timeout: DEFAULT_TIMEOUT, cache_dir: None, cache_dir_bytes: DEFAULT_CACHE_DIR_BYTES }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_known_by_their_scheme() {
        for url in ["s3://b/k", "S3://b/k", "https://h/k", "az://c/k", "gs://b/k", "http://h"] {
            assert!(is_url(Path::new(url)), "{url}");
        }
        for path in ["s3:/b/k", "/s3://b", "./http://x", "ftp://h/k", "s3", ""] {
            assert!(!is_url(Path::new(path)), "{path}");
        }
    }

    #[test]
    fn misspelled_urls_are_known() {
        for (text, says) in
            [("ftp://x/y.h5", "ftp:// is no known scheme"), ("/d/s3:/b/a.h5", "two slashes"), ("iod+foo://", "iod+foo:// is no")]
        {
            assert!(misspelled(text.as_bytes()).is_some_and(|hint| hint.contains(says)), "{text}");
        }
        for other in ["a.h5:/g", "s3://b/k", "x:/y.h5:/g", "/d/a b://x", "a.h5"] {
            assert_eq!(misspelled(other.as_bytes()), None, "{other}");
        }
    }

    #[test]
    fn names_of_containers_may_be_incomplete() {
        for name in ["iod:", "iod:f", "iod+s3://", "iod+s3://b/p"] {
            assert!(is_container(Path::new(name)), "{name}");
        }
        assert!(!is_container(Path::new("iod")) && !is_container(Path::new("s3://b/p")) && !is_container(Path::new("iod+x://")));
        assert_eq!((container_folder(Path::new("iod:")), container_url(Path::new("iod+s3://"))), (None, None));
    }

    #[test]
    fn prefixes_end_in_a_slash_or_are_buckets() {
        for url in ["s3://b/p/", "S3://b", "gs://b/", "az://c/a/b/", "http://h/", "https://h/d/"] {
            assert!(is_prefix(Path::new(url)), "{url}");
        }
        for other in ["s3://b/k", "http://h", "http://h/k", "iod+s3://b/p/", "iod:f/", "/d/", "s3://"] {
            assert!(!is_prefix(Path::new(other)), "{other}");
        }
    }
}
