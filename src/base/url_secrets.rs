//! Secrets of URLs: user, password and query, apart from the text that is shown.
//!
//! [`conceal`] takes them from arguments and values of configuration files before anything else
//! reads those. From then on every path, message and table of the process has the URL without them,
//! and only the client of the server asks for them ([`of`]). Texts of libraries that quote what was
//! given pass [`shown`].

use crate::base::locks::Mutex;
use std::borrow::Cow;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::os::unix::ffi::{OsStrExt, OsStringExt};

/// The secrets that were taken, by the URL that is shown.
static TAKEN: Mutex<Vec<(Vec<u8>, UrlSecrets)>> = Mutex::new(Vec::new());
/// Schemes whose keys may have a question mark: what follows it is shown.
const WITHOUT_QUERY: [&[u8]; 4] = [b"s3", b"s3a", b"gs", b"az"];

/// Parts of a URL that are not shown: they may hold passwords and signatures.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct UrlSecrets {
    /// `USER:PASSWORD`.
    pub user: Option<String>,
    /// The query, without its question mark.
    pub query: Option<String>,
    /// The user is no part of a URL that can be requested: it has a slash, for example.
    pub is_misplaced: bool,
}

impl fmt::Debug for UrlSecrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("UrlSecrets")
    }
}

/// A URL with its parts.
struct Divided<'a> {
    /// With its colon and slashes.
    scheme: &'a [u8],
    is_http: bool,
    user: Option<&'a [u8]>,
    is_misplaced: bool,
    /// Host and path.
    place: &'a [u8],
    query: Option<&'a [u8]>,
    /// `:/PATH` in the file.
    inner: &'a [u8],
}

/// The first `at` bytes of `bytes`, and those after the byte there; all of them without a position.
fn divided_at(bytes: &[u8], at: Option<usize>) -> (&[u8], Option<&[u8]>) {
    match at {
        Some(at) => (bytes.get(..at).unwrap_or_default(), bytes.get(at.saturating_add(1)..)),
        None => (bytes, None),
    }
}

/// Where `:/PATH` begins in a URL after its scheme. That of another scheme does not count.
pub fn inner_start(rest: &[u8]) -> Option<usize> {
    let is_inner = |at: &usize| {
        let after = rest.get(at.saturating_add(2));
        rest.get(*at..at.saturating_add(2)) == Some(b":/") && after != Some(&b'/')
    };
    (0..rest.len()).rfind(is_inner)
}

/// Length of a scheme with its colon and slashes; that of `http` may lack slashes. A name with a
/// dot is that of a file, as in `a.h5://g`.
fn scheme_len(text: &[u8]) -> Option<usize> {
    let colon = text.iter().position(|b| *b == b':')?;
    let (name, rest) = text.split_at_checked(colon)?;
    let is_name = name.first()?.is_ascii_alphabetic() && name.iter().all(|b| b.is_ascii_alphanumeric() || b"+-".contains(b));
    let slashes = rest.iter().skip(1).take(2).take_while(|b| **b == b'/').count();
    let is_url = slashes == 2 && name != b"iod" || is_http(name);
    (is_name && is_url).then(|| colon.saturating_add(1).saturating_add(slashes))
}

fn is_http(name: &[u8]) -> bool {
    let name = name.strip_prefix(b"iod+").unwrap_or(name);
    name.eq_ignore_ascii_case(b"http") || name.eq_ignore_ascii_case(b"https")
}

/// True if `text` can be a host and a port.
fn is_host(text: &[u8]) -> bool {
    let after_address = text.iter().position(|b| *b == b']').and_then(|at| text.get(at..)).unwrap_or(text);
    match after_address.iter().position(|b| *b == b':') {
        Some(colon) => {
            let port = after_address.get(colon.saturating_add(1)..).unwrap_or_default();
            !port.is_empty() && port.len() <= 5 && port.iter().all(u8::is_ascii_digit)
        }
        None => true,
    }
}

/// The parts of the URL `text`; `None` if it is none.
fn divided(text: &[u8]) -> Option<Divided<'_>> {
    let (scheme, rest) = text.split_at_checked(scheme_len(text)?)?;
    let name = scheme.split(|b| *b == b':').next().unwrap_or_default().to_ascii_lowercase();
    let is_store = WITHOUT_QUERY.contains(&name.strip_prefix(b"iod+").unwrap_or(&name));
    let authority = rest.split(|b| b"/?#".contains(b)).next().unwrap_or_default();
    let at = |bytes: &[u8]| bytes.iter().rposition(|b| *b == b'@');
    let (user_end, is_misplaced) = match at(authority) {
        Some(at) => (Some(at), is_store),
        // A password with a slash ends the host early.
        None if !is_store && (!is_host(authority) || !scheme.ends_with(b"//")) => (at(rest), at(rest).is_some()),
        None => (None, false),
    };
    let (user, rest) = match divided_at(rest, user_end) {
        (user, Some(rest)) => (Some(user), rest),
        (rest, None) => (None, rest),
    };
    let (file, inner) = rest.split_at_checked(inner_start(rest).unwrap_or(rest.len()))?;
    let has_query = !is_store && (user.is_some() || scheme.ends_with(b"//"));
    let (place, query) = divided_at(file, file.iter().position(|b| *b == b'?').filter(|_| has_query));
    Some(Divided { scheme, is_http: is_http(&name), user, is_misplaced, place, query, inner })
}

/// `text` without the secrets of the URL that it may be, which [`of`] returns from then on. Two
/// URLs that differ in their secrets only get different texts.
pub fn conceal(text: &OsStr) -> OsString {
    let bytes = text.as_bytes();
    let Some(url) = divided(bytes) else { return text.to_owned() };
    let owned = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let secrets = UrlSecrets { user: url.user.map(owned), query: url.query.map(owned), is_misplaced: url.is_misplaced };
    if !url.is_http && secrets == UrlSecrets::default() {
        return text.to_owned();
    }
    let shown = [url.scheme, url.place].concat();
    let mut taken = TAKEN.lock();
    let is_other = |shown: &[u8]| taken.iter().any(|(url, other)| url == shown && *other != secrets);
    let mut numbered = shown.clone();
    for number in 2..=taken.len().saturating_add(2) {
        if !is_other(&numbered) {
            break;
        }
        // A fragment is not sent.
        numbered = [shown.as_slice(), format!("#{number}").as_bytes()].concat();
    }
    if !taken.iter().any(|(url, _)| *url == numbered) {
        taken.push((numbered.clone(), secrets));
    }
    OsString::from_vec([numbered.as_slice(), url.inner].concat())
}

/// `argument` of a command line without the secrets of the URL that it is or that an option has.
pub fn conceal_argument(argument: &OsStr) -> OsString {
    let bytes = argument.as_bytes();
    if !bytes.starts_with(b"-") {
        return conceal(argument);
    }
    let mark = bytes.windows(3).position(|mark| mark == b"://").unwrap_or(bytes.len());
    let before = bytes.get(..mark).unwrap_or_default();
    let start = match before.iter().position(|b| *b == b'=') {
        Some(at) => at.saturating_add(1),
        None if mark == bytes.len() => bytes.iter().take_while(|b| **b == b'-').count(),
        None => mark.saturating_sub(before.iter().rev().take_while(|b| b.is_ascii_alphanumeric()).count()),
    };
    let (option, value) = bytes.split_at(start);
    let mut option = OsString::from_vec(option.to_vec());
    option.push(conceal(OsStr::from_bytes(value)));
    option
}

/// The secrets of `url`, which [`conceal`] returned; of others none.
pub fn of(url: &str) -> UrlSecrets {
    let is_wanted = |shown: &[u8]| {
        let shown = shown.strip_prefix(b"iod+").unwrap_or(shown);
        shown == url.as_bytes() || shown.strip_suffix(b"/") == Some(url.as_bytes())
    };
    TAKEN.lock().iter().find(|(shown, _)| is_wanted(shown)).map(|(_, secrets)| secrets.clone()).unwrap_or_default()
}

/// `message` with the secrets left out of each URL in it, up to a space or a quotation mark.
pub fn shown(message: &str) -> Cow<'_, str> {
    let mut out = String::new();
    let mut rest = message;
    while let Some(at) = rest.find("://") {
        let is_scheme = |c: char| c.is_ascii_alphanumeric() || "+-".contains(c);
        let name = rest.get(..at).unwrap_or_default();
        let name = name.rsplit(|c| !is_scheme(c)).next().unwrap_or_default().trim_start_matches(|c: char| !c.is_ascii_alphabetic());
        let (before, url) = rest.split_at_checked(at.saturating_sub(name.len())).unwrap_or((rest, ""));
        let end = url.find(|c: char| c.is_whitespace() || c.is_control() || "'\"`<>".contains(c)).unwrap_or(url.len());
        let (url, after) = url.split_at_checked(end).unwrap_or((url, ""));
        out.push_str(before);
        match divided(url.as_bytes()).filter(|url| url.user.is_some() || url.query.is_some()) {
            Some(parts) => out.push_str(&String::from_utf8_lossy(&[parts.scheme, parts.place, parts.inner].concat())),
            None => out.push_str(url),
        }
        rest = after;
        if url.is_empty() {
            // A scheme without a name.
            let (mark, tail) = rest.split_at_checked(3).unwrap_or((rest, ""));
            out.push_str(mark);
            rest = tail;
        }
    }
    if out.is_empty() {
        return Cow::Borrowed(message);
    }
    out.push_str(rest);
    Cow::Owned(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn concealed(url: &str) -> (String, UrlSecrets) {
        let text = conceal(OsStr::new(url)).into_string().unwrap();
        let start = text.find("://").map_or(text.len(), |at| at + 3);
        let end = inner_start(&text.as_bytes()[start..]).map_or(text.len(), |at| start + at);
        let secrets = of(text[..end].trim_start_matches("iod+"));
        (text, secrets)
    }

    #[test]
    fn secrets_are_apart_from_what_is_shown() {
        let some = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        for (url, shown, user, query, is_misplaced) in [
            ("http://u:p@h:1/a@b?x=1", "http://h:1/a@b", "u:p", "x=1", false),
            ("HTTPS://u@h1/a", "HTTPS://h1/a", "u", "", false),
            ("http://u:p@h2/a.h5?t=1:/g/d", "http://h2/a.h5:/g/d", "u:p", "t=1", false),
            ("http://h3/a?url=https://o/x&sig=1", "http://h3/a", "", "url=https://o/x&sig=1", false),
            ("http://h4?a@b", "http://h4", "", "a@b", false),
            ("http://u:p@[::1]:80/a", "http://[::1]:80/a", "u:p", "", false),
            ("http://u:p@", "http://", "u:p", "", false),
            ("http://u:p/w@h5/x?t", "http://h5/x", "u:p/w", "t", true),
            ("http://u:p?w@h6/x", "http://h6/x", "u:p?w", "", true),
            ("http://u:p#w@h7/x", "http://h7/x", "u:p#w", "", true),
            ("http://u:/pw@h8/x:/g", "http://h8/x:/g", "u:/pw", "", true),
            ("http://u:p@w@h9/x", "http://h9/x", "u:p@w", "", false),
            ("http:/u:p@h10/x", "http:/h10/x", "u:p", "", false),
            ("http:u:p@h11", "http:h11", "u:p", "", false),
            ("iod+http:/u:p@h13", "iod+http:/h13", "u:p", "", false),
            ("ftp://u:p@h12/x?t", "ftp://h12/x", "u:p", "t", false),
            ("s3://id:key@b/k?v@w", "s3://b/k?v@w", "id:key", "", true),
            ("iod+s3://id:key@b2/p", "iod+s3://b2/p", "id:key", "", true),
        ] {
            let secrets = UrlSecrets { user: some(user), query: some(query), is_misplaced };
            let (text, found) = concealed(url);
            assert!((text.as_str(), &found) == (shown, &secrets), "{url}: {text} {:?} {:?}", found.user, found.query);
        }
        for other in [
            "s3://b/a?b@c",
            "iod:f@g",
            "a.h5:/g@x",
            "/http://u:p@h",
            "x/ftp://u:p@h",
            "http://h20:80/a@b",
            "a.h5://g@x?y",
            "iod://f@g",
            "http:a?b",
            "-",
            "",
        ] {
            assert_eq!(conceal(OsStr::new(other)), other);
        }
        assert!(!format!("{:?}", concealed("http://u:pass@h21/").1).contains("pass"));
    }

    #[test]
    fn urls_that_differ_in_their_secrets_differ() {
        let all = ["http://same/x", "http://same/x?1", "http://same/x?2:/g", "http://same/x?1:/h"].map(|url| concealed(url).0);
        assert_eq!(all, ["http://same/x", "http://same/x#2", "http://same/x#3:/g", "http://same/x#2:/h"]);
        assert_eq!(of("http://same/x#3").query.as_deref(), Some("2"));
        assert_eq!(of("http://same/x"), UrlSecrets::default());
    }

    #[test]
    fn options_have_urls_too() {
        let of = |text: &str| conceal_argument(OsStr::new(text)).into_string().unwrap();
        assert_eq!(
            (of("--config=http://u:p@h30/x?t").as_str(), of("http://u:p@h31/x?t=1").as_str()),
            ("--config=http://h30/x", "http://h31/x")
        );
        assert_eq!((of("--http://u:p w@h32/x?t=1").as_str(), of("-ohttp://u@h33").as_str()), ("--http://h32/x", "-ohttp://h33"));
        assert_eq!((of("--http:/u@h34").as_str(), of("--config=http:/u@h35").as_str()), ("--http:/h34", "--config=http:/h35"));
        assert_eq!((of("-o=a").as_str(), of("-a").as_str(), of("--").as_str()), ("-o=a", "-a", "--"));
    }

    #[test]
    fn messages_have_no_secrets() {
        for (message, without) in [
            ("cannot read 'http://u:p@h/x?t': no", "cannot read 'http://h/x': no"),
            ("a http://u:p/w@h/x b https://h/?q c", "a http://h/x b https://h/ c"),
            ("(iod+http://u:p@h) :// s3://b/k?x=1", "(iod+http://h) :// s3://b/k?x=1"),
            ("no --http://u:p@h/x?t", "no --http://h/x"),
            ("\u{e9}1.http://u:p@h/x?t", "\u{e9}1.http://h/x"),
            ("http://h:80/a@b: no", "http://h:80/a@b: no"),
            ("none", "none"),
            ("", ""),
        ] {
            assert_eq!(shown(message), without);
        }
    }
}
