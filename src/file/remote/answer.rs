//! Checks of answers, before another library parses them: headers against what was asked for,
//! lengths of bodies, and time.

use object_store::HeaderMap;
use object_store::client::{HttpError, HttpErrorKind, HttpResponse, HttpResponseBody};
use std::error::Error;
use std::fmt;
use std::future::Future;
use std::ops::Range;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::{Instant, Sleep, sleep_until};

/// Longest body of an answer with an error status that is read, bytes.
const ERROR_BODY_MAX: u64 = 64 << 10;
/// Longest page of a listing, answer to a removal, or document with credentials, bytes.
const DOCUMENT_MAX: u64 = 16 << 20;
/// Longest body of the answer to a PUT or DELETE, bytes.
const RECEIPT_MAX: u64 = 64 << 10;
/// Longest ETag, bytes.
const ETAG_MAX: usize = 256;
/// Longest Last-Modified, bytes.
const DATE_MAX: usize = 64;
/// Largest length of an object, bytes: offsets of files have a sign.
pub(super) const OBJECT_MAX: u64 = i64::MAX as u64;
/// Slowest rate of an answer: below it, an answer ends by a timeout, bytes per second.
const RATE_MIN: u64 = 4 << 10;
/// Most time that received bytes add.
const TIME_MAX: Duration = Duration::from_secs(1 << 24);

/// Why an answer is not used. The text has nothing that a server sent except numbers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct BadAnswer(String);

impl fmt::Display for BadAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Error for BadAnswer {}

impl From<BadAnswer> for HttpError {
    fn from(bad: BadAnswer) -> HttpError {
        HttpError::new(HttpErrorKind::Decode, bad)
    }
}

/// The answer is not used for the reason `text`, which has no secrets.
pub(super) fn bad(text: impl Into<String>) -> BadAnswer {
    BadAnswer(text.into())
}

/// The error of an answer that took too long.
pub(super) fn too_slow() -> HttpError {
    HttpError::new(HttpErrorKind::Timeout, bad("the answer takes too long"))
}

/// What a request asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Asked {
    /// These bytes of an object, as far as it has them.
    Part(Range<u64>),
    /// Headers only.
    Head,
    /// A page of a listing, or another document.
    Document,
    /// A change.
    Receipt,
}

impl Asked {
    /// What a request with this method and these headers asks for.
    pub(super) fn of(method: &str, headers: &HeaderMap) -> Result<Asked, BadAnswer> {
        match (method, headers.get("range")) {
            ("HEAD", _) => Ok(Asked::Head),
            ("GET", Some(value)) => {
                let range = value.to_str().ok().and_then(|text| text.strip_prefix("bytes=")).and_then(bounds);
                let range = range.filter(|range| range.start < range.end);
                range.map(Asked::Part).ok_or_else(|| bad("the request has no bounded range"))
            }
            ("GET" | "POST", _) => Ok(Asked::Document),
            _ => Ok(Asked::Receipt),
        }
    }
}

/// `FIRST-LAST` as a range.
fn bounds(text: &str) -> Option<Range<u64>> {
    let (first, last) = text.split_once('-')?;
    Some(number(first)?..number(last)?.checked_add(1)?)
}

/// A decimal number without a sign.
fn number(text: &str) -> Option<u64> {
    text.bytes().all(|b| b.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

/// The range and the length of the object in a Content-Range.
fn content_range(text: &str) -> Option<(Range<u64>, u64)> {
    let (range, len) = text.strip_prefix("bytes ")?.split_once('/')?;
    Some((bounds(range)?, number(len)?))
}

/// The value of the header `name`; repetitions must be alike.
fn single<'a>(headers: &'a HeaderMap, name: &str) -> Result<Option<&'a str>, BadAnswer> {
    let mut values = headers.get_all(name).iter();
    let Some(first) = values.next() else { return Ok(None) };
    if values.any(|other| other != first) {
        return Err(bad(format!("it has several different headers {name}")));
    }
    first.to_str().map(Some).map_err(|_| bad(format!("its header {name} is not ASCII")))
}

/// True for at most `ETAG_MAX` visible ASCII characters; none are an ETag in listings only.
pub(super) fn may_be_etag(text: &str) -> bool {
    text.len() <= ETAG_MAX && text.bytes().all(|b| b.is_ascii_graphic())
}

/// Checks the headers of an answer to a request for `asked` with the status `status`. Returns the
/// longest body, and whether a longer one is an error or is cut.
fn checked(asked: &Asked, status: u16, headers: &HeaderMap) -> Result<(u64, bool), BadAnswer> {
    if !(200..300).contains(&status) {
        return Ok((ERROR_BODY_MAX, true));
    }
    match single(headers, "etag")? {
        Some(etag) if etag.is_empty() || !may_be_etag(etag) => return Err(bad("its ETag is malformed")),
        _ => {}
    }
    if single(headers, "last-modified")?.is_some_and(|date| date.len() > DATE_MAX) {
        return Err(bad("its Last-Modified is malformed"));
    }
    let stated = match single(headers, "content-length")? {
        Some(text) => Some(number(text).filter(|len| *len <= OBJECT_MAX).ok_or_else(|| bad("its Content-Length is no length"))?),
        None => None,
    };
    let max = match asked {
        // Not a part: the caller reports that, and reads no body.
        Asked::Part(_) if status != 206 => return Ok((0, true)),
        Asked::Part(range) => part_len(range, single(headers, "content-range")?, stated)?,
        _ if status == 206 => return Err(bad("it is a part of an object, which was not asked for")),
        Asked::Head => return Ok((0, true)),
        Asked::Document => DOCUMENT_MAX,
        Asked::Receipt => RECEIPT_MAX,
    };
    match stated {
        Some(len) if len > max => Err(bad(format!("it has {len} bytes, more than {max}"))),
        _ => Ok((max, false)),
    }
}

/// The length of the answer to a request for `asked`, with these headers.
fn part_len(asked: &Range<u64>, content: Option<&str>, stated: Option<u64>) -> Result<u64, BadAnswer> {
    let text = content.ok_or_else(|| bad("it has no Content-Range"))?;
    let (range, len) = content_range(text.trim()).ok_or_else(|| bad("its Content-Range is malformed"))?;
    let expected = asked.start..asked.end.min(len);
    if len > OBJECT_MAX || range != expected || range.is_empty() {
        let (first, last) = (range.start, range.end.saturating_sub(1));
        return Err(bad(format!(
            "it has bytes {first} to {last} of {len}, but {} to {} were asked for",
            asked.start,
            asked.end.saturating_sub(1)
        )));
    }
    let max = range.end.saturating_sub(range.start);
    match stated {
        Some(len) if len != max => Err(bad(format!("its Content-Length is {len}, but its range has {max} bytes"))),
        None => Err(bad("it has no Content-Length")),
        Some(_) => Ok(max),
    }
}

/// `answer` to a request for `asked`, checked. Its body ends by an error after `until`, which is
/// later by [`time_for`] the bytes received.
pub(super) fn guarded(answer: HttpResponse, asked: &Asked, until: Instant) -> Result<HttpResponse, HttpError> {
    let (parts, body) = answer.into_parts();
    let (left, is_cut) = checked(asked, parts.status.as_u16(), &parts.headers)?;
    let bounded = Bounded { body, left, is_cut, is_over: false, received: 0, until, timer: Box::pin(sleep_until(until)) };
    Ok(HttpResponse::from_parts(parts, HttpResponseBody::new(bounded)))
}

/// Time for `received` bytes at [`RATE_MIN`].
pub(super) fn time_for(received: u64) -> Duration {
    Duration::from_millis(received.saturating_mul(1000) / RATE_MIN).min(TIME_MAX)
}

/// A body that ends at a length and at a time.
struct Bounded {
    body: HttpResponseBody,
    left: u64,
    /// What is longer is left out, and is no error.
    is_cut: bool,
    is_over: bool,
    received: u64,
    until: Instant,
    timer: Pin<Box<Sleep>>,
}

type Frame = http_body::Frame<<HttpResponseBody as http_body::Body>::Data>;

impl Bounded {
    fn frame(&mut self, frame: Frame) -> Option<Result<Frame, HttpError>> {
        // Trailers are of no use.
        let mut bytes = frame.into_data().unwrap_or_default();
        let len = bytes.len() as u64;
        self.received = self.received.saturating_add(len);
        let allowed = self.until + time_for(self.received);
        if Instant::now() > allowed {
            self.is_over = true;
            return Some(Err(too_slow()));
        }
        self.timer.as_mut().reset(allowed);
        if len > self.left {
            self.is_over = true;
            if !self.is_cut {
                return Some(Err(bad("it has more bytes than were asked for").into()));
            }
            bytes.truncate(usize::try_from(self.left).unwrap_or(usize::MAX));
        }
        self.left = self.left.saturating_sub(len);
        Some(Ok(Frame::data(bytes)))
    }
}

impl http_body::Body for Bounded {
    type Data = <HttpResponseBody as http_body::Body>::Data;
    type Error = HttpError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame, HttpError>>> {
        if self.is_over {
            return Poll::Ready(None);
        }
        match Pin::new(&mut self.body).poll_frame(cx) {
            Poll::Ready(Some(Ok(frame))) => Poll::Ready(self.frame(frame)),
            Poll::Ready(end) => {
                self.is_over = true;
                Poll::Ready(end)
            }
            Poll::Pending if self.timer.as_mut().poll(cx).is_ready() => {
                self.is_over = true;
                Poll::Ready(Some(Err(too_slow())))
            }
            Poll::Pending => Poll::Pending,
        }
    }

    /// Readers reserve memory for the lower bound.
    fn size_hint(&self) -> http_body::SizeHint {
        let mut hint = http_body::SizeHint::new();
        hint.set_lower(self.body.size_hint().lower().min(self.left));
        hint
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::StreamExt;
    use object_store::HeaderValue;

    const DATE: (&str, &str) = ("last-modified", "Wed, 21 Oct 2015 07:28:00 GMT");

    fn headers(fields: &[(&'static str, &str)]) -> HeaderMap {
        let mut all = HeaderMap::new();
        for (name, value) in fields {
            all.append(*name, HeaderValue::from_bytes(value.as_bytes()).unwrap());
        }
        all
    }

    #[test]
    fn requests_say_what_they_ask_for() {
        let of = |method, fields: &[(&'static str, &str)]| Asked::of(method, &headers(fields));
        assert_eq!(of("GET", &[("range", "bytes=3-9")]), Ok(Asked::Part(3..10)));
        assert_eq!((of("GET", &[]), of("POST", &[])), (Ok(Asked::Document), Ok(Asked::Document)));
        assert_eq!((of("HEAD", &[("range", "bytes=3-9")]), of("PUT", &[])), (Ok(Asked::Head), Ok(Asked::Receipt)));
        for range in ["bytes=3-", "bytes=-3", "bytes=9-3", "bytes=0-18446744073709551615"] {
            assert!(of("GET", &[("range", range)]).is_err(), "{range}");
        }
    }

    #[test]
    fn parts_are_what_was_asked_for() {
        let of = |range: &str, len: &str| {
            let fields = headers(&[("content-range", range), ("content-length", len), ("etag", "\"e\""), DATE]);
            checked(&Asked::Part(100..200), 206, &fields)
        };
        assert_eq!(of("bytes 100-199/300", "100"), Ok((100, false)));
        assert_eq!(of("bytes 100-149/150", "50"), Ok((50, false)), "the object is shorter");
        for (range, len) in [
            ("bytes 0-18446744073709551615/5", "5"),
            ("bytes 100-18446744073709551615/18446744073709551615", "5"),
            ("bytes 18446744073709551615-0/5", "5"),
            ("bytes 100-199/18446744073709551615", "100"),
            ("bytes 100-199/9223372036854775808", "100"),
            ("bytes 100-199/99999999999999999999", "100"),
            ("bytes 100-199/*", "100"),
            ("bytes */300", "100"),
            ("bytes 100-199/150", "100"),
            ("bytes 100-198/300", "99"),
            ("bytes 99-199/300", "101"),
            ("bytes 101-200/300", "100"),
            ("bytes 100-99/100", "0"),
            ("bytes 200-100/300", "100"),
            ("bytes +100-+199/300", "100"),
            ("bytes 100-199", "100"),
            ("octets 100-199/300", "100"),
            ("", "100"),
            ("bytes 100-199/300", "99"),
            ("bytes 100-199/300", "101"),
            ("bytes 100-199/300", "1099511627776"),
            ("bytes 100-199/300", "-1"),
            ("bytes 100-199/300", "18446744073709551616"),
            ("bytes 100-199/300", ""),
        ] {
            assert!(of(range, len).is_err(), "{range}, {len}");
        }
        let lacking = |name| {
            let all = [("content-range", "bytes 100-199/300"), ("content-length", "100")];
            headers(&all.into_iter().filter(|(field, _)| *field != name).collect::<Vec<_>>())
        };
        assert!(checked(&Asked::Part(100..200), 206, &lacking("content-range")).is_err());
        assert!(checked(&Asked::Part(100..200), 206, &lacking("content-length")).is_err());
    }

    #[test]
    fn headers_of_a_version_are_short_and_single() {
        let of = |fields: &[(&'static str, &str)]| checked(&Asked::Head, 200, &headers(fields)).is_ok();
        assert!(of(&[]) && of(&[("etag", "\"e\""), DATE, ("content-length", "7")]));
        assert!(of(&[("etag", "W/\"e\"")]) && of(&[("etag", "e")]), "weak, and without quotes");
        assert!(of(&[("etag", "\"e\""), ("etag", "\"e\"")]), "repeated alike");
        let long = format!("\"{}\"", "e".repeat(ETAG_MAX));
        for etag in ["", "\"a b\"", "\"\u{e4}\"", long.as_str()] {
            assert!(!of(&[("etag", etag)]), "{etag}");
        }
        assert!(!of(&[("etag", "\"e\""), ("etag", "\"f\"")]) && !of(&[("last-modified", &"x".repeat(DATE_MAX + 1))]));
        assert!(!of(&[("content-length", "9223372036854775808")]));
        assert!(checked(&Asked::Document, 206, &headers(&[])).is_err(), "a part that was not asked for");
    }

    #[test]
    fn bodies_are_bounded_by_what_they_are() {
        let of = |asked, status, len: &str| checked(&asked, status, &headers(&[("content-length", len)]));
        assert_eq!(of(Asked::Part(0..9), 403, "1099511627776"), Ok((ERROR_BODY_MAX, true)));
        assert_eq!(of(Asked::Part(0..9), 200, "1099511627776"), Ok((0, true)), "the caller says that it is no part");
        assert_eq!(of(Asked::Document, 200, "1000"), Ok((DOCUMENT_MAX, false)));
        assert!(of(Asked::Document, 200, "1099511627776").is_err() && of(Asked::Receipt, 200, "1099511627776").is_err());
        assert_eq!(of(Asked::Head, 200, "1099511627776"), Ok((0, true)), "the length of the object");
    }

    /// A body that sends `part` without end, after a pause each.
    struct Endless(usize, Duration, Option<Pin<Box<Sleep>>>);

    impl http_body::Body for Endless {
        type Data = <HttpResponseBody as http_body::Body>::Data;
        type Error = HttpError;

        fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame, HttpError>>> {
            let next = Instant::now() + self.1;
            let ready = self.2.as_mut().is_none_or(|timer| timer.as_mut().poll(cx).is_ready());
            if !ready {
                return Poll::Pending;
            }
            self.2 = (!self.1.is_zero()).then(|| Box::pin(sleep_until(next)));
            Poll::Ready(Some(Ok(Frame::data(vec![0; self.0].into()))))
        }

        fn size_hint(&self) -> http_body::SizeHint {
            http_body::SizeHint::with_exact(1 << 40)
        }
    }

    /// Bytes received, and the kind of the error, if there was one.
    fn received(body: Endless, left: u64, is_cut: bool, time: Duration) -> (u64, Option<HttpErrorKind>) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let (body, until) = (HttpResponseBody::new(body), Instant::now() + time);
            let body = Bounded { body, left, is_cut, is_over: false, received: 0, until, timer: Box::pin(sleep_until(until)) };
            assert!(http_body::Body::size_hint(&body).lower() <= left);
            let mut stream = HttpResponseBody::new(body).bytes_stream();
            let (mut len, mut failed) = (0, None);
            while let Some(part) = stream.next().await {
                match part {
                    Ok(bytes) => len += bytes.len() as u64,
                    Err(e) => failed = Some(e.kind()),
                }
            }
            (len, failed)
        })
    }

    #[test]
    fn bodies_without_end_are_cut_or_fail() {
        let minute = Duration::from_secs(60);
        assert_eq!(received(Endless(1000, Duration::ZERO, None), 4096, true, minute), (4096, None));
        assert_eq!(received(Endless(1000, Duration::ZERO, None), 4096, false, minute), (4000, Some(HttpErrorKind::Decode)));
        let slow = Endless(1, Duration::from_millis(20), None);
        let (len, failed) = received(slow, 4096, false, Duration::from_millis(200));
        assert_eq!(failed, Some(HttpErrorKind::Timeout));
        assert!(len < 100, "{len}");
        let none = Endless(0, Duration::ZERO, None);
        assert_eq!(received(none, 4096, false, Duration::from_millis(20)), (0, Some(HttpErrorKind::Timeout)));
    }
}
