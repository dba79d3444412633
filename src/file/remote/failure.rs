//! Why a request of an object store failed.

use crate::base::request_error::RequestError;
use std::fmt;
use std::io;

/// What texts about a store depend on: the kind of its server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Dialect {
    S3,
    Google,
    Azure,
    Http,
}

/// What a request was for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Access {
    Read,
    Write,
}

impl Dialect {
    /// Begin of the names of variables of the environment.
    pub(super) fn variables(self) -> &'static str {
        match self {
            Dialect::S3 => "AWS",
            Dialect::Google => "GOOGLE",
            Dialect::Azure => "AZURE",
            Dialect::Http => "HTTP",
        }
    }

    /// What to do after a redirect, which is not followed to another host.
    fn on_redirect(self) -> String {
        let region = if self == Dialect::S3 { "set AWS_REGION to the region of the bucket, or " } else { "" };
        format!("redirects to other hosts are not followed; {region}check the endpoint")
    }

    /// What to do after 401 or 403, of which the server said `code`.
    fn on_denied(self, code: &str, access: Access) -> String {
        let prefix = self.variables();
        match (code, access) {
            _ if self == Dialect::Http => "the server denies access; check the URL, its user and its password".into(),
            ("RequestTimeTooSkewed", _) => "check the clock of this machine".into(),
            ("InvalidAccessKeyId" | "SignatureDoesNotMatch" | "InvalidToken" | "ExpiredToken", _) => {
                format!("the server does not accept the credentials; check them ({prefix}_* or the profile)")
            }
            (_, Access::Write) => "the server denies writes to this key; check the permissions of the credentials".into(),
            _ => {
                format!("check the credentials; a public object may be read with {prefix}_SKIP_SIGNATURE=true, or mounted with --anonymous")
            }
        }
    }
}

/// A failed GET: the errno and a sentence without secrets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// The errno.
    pub errno: i32,
    /// What failed and what to do.
    pub message: String,
    /// Another attempt may succeed.
    pub(super) is_transient: bool,
}

impl Failure {
    /// A failure that another attempt would repeat.
    pub(super) fn permanent(errno: i32, message: impl Into<String>) -> Self {
        Failure { errno, message: message.into(), is_transient: false }
    }

    /// A failure that another attempt may not repeat.
    pub(super) fn transient(errno: i32, message: impl Into<String>) -> Self {
        Failure { errno, message: message.into(), is_transient: true }
    }

    /// The failure of a request that was answered with the HTTP status `status`, not 2xx. `code`:
    /// that of the answer's body, or empty.
    pub(super) fn of_status(status: u16, code: &str, dialect: Dialect, access: Access) -> Self {
        let name = if code.is_empty() { String::new() } else { format!(" ({code})") };
        let says = |text: &str| format!("HTTP status {status}{name}; {text}");
        match status {
            401 | 403 => Self::permanent(libc::EACCES, says(&dialect.on_denied(code, access))),
            404 if is_no_bucket(code) => Self::permanent(libc::EIO, says("there is no such bucket; check the URL and the endpoint")),
            404 | 410 if dialect == Dialect::Http => Self::permanent(libc::ENOENT, says("check the URL")),
            404 | 410 => Self::permanent(libc::ENOENT, says("check the URL; that of a prefix ends in a slash")),
            300..=399 if dialect == Dialect::Http => {
                Self::permanent(libc::EIO, says("redirects from https to http, and more than five, are not followed; check the URL"))
            }
            300..=399 => Self::permanent(libc::EIO, says(&dialect.on_redirect())),
            412 => Self::permanent(libc::EIO, says("the object was changed")),
            416 => Self::permanent(libc::EIO, says("the object is empty or was changed")),
            408 | 425 | 429 | 500.. => Self::transient(libc::EIO, says("the server is overloaded or broken; try again later")),
            _ => Self::permanent(libc::EIO, says("check the URL and the endpoint")),
        }
    }

    /// As the error of an operation of a store, with the text.
    pub(super) fn request_error(self) -> io::Error {
        RequestError { errno: self.errno, is_transient: self.is_transient, text: self.message }.into()
    }

    /// As an error of a read.
    pub(super) fn io_error(&self) -> io::Error {
        io::Error::from_raw_os_error(self.errno)
    }
}

/// True for the codes by which servers answer that a bucket does not exist.
pub(super) fn is_no_bucket(code: &str) -> bool {
    matches!(code, "NoSuchBucket" | "ContainerNotFound")
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_have_an_errno_and_a_remedy() {
        for (status, errno, transient) in [
            (403, libc::EACCES, false),
            (404, libc::ENOENT, false),
            (412, libc::EIO, false),
            (503, libc::EIO, true),
            (400, libc::EIO, false),
        ] {
            let failure = Failure::of_status(status, "", Dialect::S3, Access::Read);
            assert_eq!((failure.errno, failure.is_transient), (errno, transient), "{status}");
            assert!(failure.message.starts_with(&format!("HTTP status {status}; ")), "{failure}");
        }
    }

    #[test]
    fn remedies_fit_the_server_and_the_request() {
        for (status, code, dialect, access, has, lacks) in [
            (403, "", Dialect::Http, Access::Read, "its password", "SKIP_SIGNATURE"),
            (403, "", Dialect::S3, Access::Read, "AWS_SKIP_SIGNATURE", "denies writes"),
            (403, "", Dialect::Google, Access::Read, "GOOGLE_SKIP_SIGNATURE", "AWS"),
            (403, "AccessDenied", Dialect::S3, Access::Write, "403 (AccessDenied); the server denies writes", "anonymous"),
            (403, "SignatureDoesNotMatch", Dialect::S3, Access::Write, "does not accept the credentials", "writes"),
            (404, "NoSuchBucket", Dialect::S3, Access::Read, "no such bucket", "slash"),
            (404, "NoSuchKey", Dialect::S3, Access::Read, "ends in a slash", "bucket"),
            (404, "", Dialect::Http, Access::Read, "check the URL", "slash"),
        ] {
            let text = Failure::of_status(status, code, dialect, access).message;
            assert!(text.contains(has) && !text.contains(lacks), "{text}");
        }
        let absent = |code| Failure::of_status(404, code, Dialect::S3, Access::Read).errno == libc::ENOENT;
        assert!(absent("NoSuchKey") && !absent("NoSuchBucket"), "a missing bucket is no missing object");
    }
}
