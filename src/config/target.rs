//! The argument `FILE` or `FILE:/PATH`.

use super::UsageError;
use crate::base::escape::escaped;
use crate::base::remote::{after_scheme, is_like_url, misspelled};
use crate::base::url_secrets::inner_start;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// A file and an optional path in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Target {
    /// The HDF5 file.
    pub(crate) file: PathBuf,
    /// Absolute path in the file, with its leading slash.
    pub(crate) inner: Option<Vec<u8>>,
}

impl Target {
    /// Splits `text` at the last `:/`, unless all of it names an existing file. The `:/` of the
    /// scheme of a URL does not count.
    pub(crate) fn parse(text: &OsStr) -> Self {
        Self::split(text, |path| path.symlink_metadata().is_ok())
    }

    fn split(text: &OsStr, exists: impl Fn(&Path) -> bool) -> Self {
        let whole = Target { file: text.into(), inner: None };
        let bytes = text.as_bytes();
        let scheme = after_scheme(bytes);
        // The message about it names all of it.
        if scheme.is_none()
            && is_like_url(bytes)
            && !bytes.split(|b| *b == b':').next().is_some_and(|file| exists(Path::new(OsStr::from_bytes(file))))
        {
            return whole;
        }
        if scheme.is_none() && exists(&whole.file) {
            return whole;
        }
        let start = scheme.unwrap_or(0);
        let rest = bytes.get(start..).unwrap_or_default();
        let found = if scheme.is_some() { inner_start(rest) } else { rest.windows(2).rposition(|pair| pair == b":/") };
        let Some(at) = found.map(|at| start.saturating_add(at)) else { return whole };
        let (file, inner) = bytes.split_at(at);
        if file.is_empty() {
            return whole;
        }
        Target { file: OsString::from_vec(file.to_vec()).into(), inner: inner.get(1..).map(<[u8]>::to_vec) }
    }
}

/// Errors: `file` does not exist, and is like a URL.
pub(crate) fn well_named(file: &Path) -> Result<(), UsageError> {
    match misspelled(file.as_os_str().as_bytes()).filter(|_| file.symlink_metadata().is_err()) {
        Some(hint) => Err(UsageError(format!("there is no file {}: {hint}", escaped(file)))),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_colon_slash_divides_unless_the_whole_is_a_file() {
        let split = |text: &str, files: &[&str]| {
            let t = Target::split(OsStr::new(text), |p| files.iter().any(|f| p == Path::new(f)));
            (t.file.to_string_lossy().into_owned(), t.inner.map(|i| String::from_utf8(i).unwrap()))
        };
        assert_eq!(split("a.h5", &["a.h5"]), ("a.h5".into(), None));
        assert_eq!(split("a.h5:/g/d", &["a.h5"]), ("a.h5".into(), Some("/g/d".into())));
        assert_eq!(split("a.h5:/g", &["a.h5:/g"]), ("a.h5:/g".into(), None));
        assert_eq!(split("x:/y.h5:/g", &[]), ("x:/y.h5".into(), Some("/g".into())));
        assert_eq!(split("a:b.h5", &[]), ("a:b.h5".into(), None));
        assert_eq!(split(":/g", &[]), (":/g".into(), None));
        assert_eq!(split("a.h5:/", &[]), ("a.h5".into(), Some("/".into())));
        assert_eq!(split("s3://b/a.h5", &[]), ("s3://b/a.h5".into(), None));
        assert_eq!(split("s3://b/a.h5:/g", &["s3:/b/a.h5:/g"]), ("s3://b/a.h5".into(), Some("/g".into())));
        assert_eq!(split("http://h:80/a.h5:/g/d", &[]), ("http://h:80/a.h5".into(), Some("/g/d".into())));
    }
}
