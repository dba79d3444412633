//! Answers of HTTP servers and of object stores, as the checks of answers, the libraries behind them and the stores of
//! containers and mirrors take them. The server is the input: each request gets the next of its answers, and the last one
//! is followed by a broken connection.
//!
//! A request has no second attempt, because its time is shorter than the first pause. The answers are in the input, and
//! listings end with them.
#![no_main]

use h5dir::file::objects::{Found, Objects, Version};
use h5dir::file::remote::fuzzing::{Answer, Remote, Request, Server};
use h5dir::file::store::ObjectStore;
use libfuzzer_sys::fuzz_target;
use std::ops::Range;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

/// Most answers of the server.
const ANSWERS_MAX: usize = 24;
/// Largest length of an object, bytes.
const OBJECT_MAX: u64 = i64::MAX as u64;
/// Longest ETag, bytes.
const ETAG_MAX: usize = 256;
/// Headers by number.
const HEADERS: [&str; 16] = [
    "content-range",
    "content-length",
    "etag",
    "last-modified",
    "content-type",
    "x-amz-version-id",
    "date",
    "location",
    "content-encoding",
    "transfer-encoding",
    "x-ms-version-id",
    "x-goog-generation",
    "retry-after",
    "accept-ranges",
    "x-amz-meta-a",
    "x-ms-blob-type",
];

/// Bytes of the input that were not used.
#[derive(Default)]
struct Input {
    bytes: Vec<u8>,
    at: usize,
    answers: usize,
}

static INPUT: Mutex<Input> = Mutex::new(Input { bytes: Vec::new(), at: 0, answers: 0 });

static REMOTES: LazyLock<Vec<Remote>> = LazyLock::new(|| {
    let server: Server = Arc::new(|request| INPUT.lock().unwrap_or_else(PoisonError::into_inner).answer(request));
    Remote::all(&server)
});

impl Input {
    fn byte(&mut self) -> u8 {
        self.part(1).first().copied().unwrap_or(0)
    }

    fn word(&mut self) -> u16 {
        u16::from(self.byte()) << 8 | u16::from(self.byte())
    }

    fn part(&mut self, len: usize) -> &[u8] {
        let from = self.at;
        self.at = self.bytes.len().min(from.saturating_add(len));
        &self.bytes[from..self.at]
    }

    /// An answer: length of the object, status, headers that are right, other headers, body.
    fn answer(&mut self, request: &Request<'_>) -> Option<Answer> {
        if self.answers == ANSWERS_MAX || self.at == self.bytes.len() {
            return None;
        }
        self.answers += 1;
        let (len, how, right, others) = (u64::from(self.word()), self.byte(), self.byte(), self.byte());
        let range = request.range.and_then(bounds).map(|range| range.start..range.end.min(len));
        let bytes = range.as_ref().map_or(len, |range| range.end.saturating_sub(range.start));
        let status = match how & 7 {
            0 | 1 => {
                if range.is_some() {
                    206
                } else {
                    200
                }
            }
            2 => 200,
            3 => 206,
            4 => 404,
            5 => 412,
            6 => 403,
            _ => self.word() % 700,
        };
        let mut answer = Answer { status, ..Answer::default() };
        let mut put = |set: bool, name: usize, value: String| {
            if set {
                answer.headers.push((HEADERS[name], value.into_bytes()));
            }
        };
        if let Some(range) = &range {
            put(right & 1 == 0, 0, format!("bytes {}-{}/{len}", range.start, range.end.saturating_sub(1)));
        }
        let part = self.body(how, bytes);
        let stated = if request.method == "HEAD" { len } else { part.len() as u64 };
        put(right & 2 == 0, 1, stated.to_string());
        put(right & 4 == 0, 2, format!("\"{}\"", right >> 6));
        put(right & 8 == 0, 3, "Wed, 21 Oct 2015 07:28:00 GMT".into());
        for _ in 0..others & 3 {
            let (name, len) = (self.byte(), self.byte());
            let value = self.part(usize::from(len)).to_vec();
            answer.headers.push((HEADERS[usize::from(name) % HEADERS.len()], value));
        }
        let size = if right & 16 == 0 { part.len() } else { 1 + usize::from(others >> 2) };
        answer.body = part.chunks(size.max(1)).map(<[u8]>::to_vec).collect();
        answer.breaks = right & 32 != 0;
        Some(answer)
    }

    /// As many bytes as the headers state, or some of the input.
    fn body(&mut self, how: u8, bytes: u64) -> Vec<u8> {
        match how >> 3 & 3 {
            0 | 1 => vec![how; usize::try_from(bytes.min(1 << 16)).unwrap_or(0)],
            2 => Vec::new(),
            _ => {
                let len = usize::from(self.word());
                self.part(len).to_vec()
            }
        }
    }
}

fn bounds(text: &str) -> Option<Range<u64>> {
    let (first, last) = text.strip_prefix("bytes=")?.split_once('-')?;
    Some(first.parse().ok()?..last.parse::<u64>().ok()?.checked_add(1)?)
}

fuzz_target!(|data: &[u8]| {
    let [kind, operation, start, len, rest @ ..] = data else { return };
    let remotes = &*REMOTES;
    assert_eq!(remotes.len(), 4);
    *INPUT.lock().unwrap_or_else(PoisonError::into_inner) = Input { bytes: rest.to_vec(), ..Input::default() };
    let remote = &remotes[usize::from(kind % 4)];
    let start = u64::from(*start);
    let range = start..start + u64::from(*len) * 16 + 1;
    match operation % 8 {
        0 => read(remote, range),
        1 => mirror(remote, u64::from(*len)),
        2 => list(remote, "v/", "v/0000000000000001", usize::from(*len)),
        3 => list(remote, "d/", "", usize::MAX),
        4 => {
            let several = [range.start..range.end, range.end + 5..range.end + 90];
            if let Ok(parts) = remote.store.get_several("d/1", &several) {
                assert!(parts.iter().zip(&several).all(|(part, range)| part.len() as u64 <= range.end - range.start));
            }
        }
        5 => {
            if let Ok(bytes) = remote.store.get("v/1", range.clone()) {
                assert!(bytes.len() as u64 <= range.end - range.start);
            }
            if let Ok(Some(len)) = remote.store.head("v/1") {
                assert!(len <= OBJECT_MAX);
            }
        }
        _ => {
            drop(remote.store.create("v/2", b"bytes"));
            drop(remote.store.put("v/2", b"bytes"));
            drop(remote.store.delete("v/2"));
        }
    }
});

/// Three ranges of one object, which is one version of it.
fn read(remote: &Remote, range: Range<u64>) {
    let all = [range.clone(), range.start + 3..range.end + 3, 0..1];
    if let Ok(parts) = remote.read(&all) {
        assert!(parts.iter().zip(&all).all(|(part, range)| part.len() as u64 <= range.end - range.start));
    }
}

/// Names of a listing are those that were asked for, ascending.
fn list(remote: &Remote, prefix: &str, after: &str, max: usize) {
    if let Ok(keys) = remote.store.list_part(prefix, after, max) {
        assert!(keys.iter().all(|key| key.starts_with(prefix) && key.as_str() > after), "{keys:?}");
        assert!(keys.is_sorted());
    }
}

fn check(version: &Version) {
    let is_short = version.etag.as_ref().is_none_or(|etag| etag.len() <= ETAG_MAX);
    assert!(version.len <= OBJECT_MAX && is_short, "{version:?}");
}

/// A folder of a mirror, an object in it, and its first bytes.
fn mirror(remote: &Remote, len: u64) {
    for (name, found) in remote.prefix.list("folder").unwrap_or_default() {
        assert!(!name.is_empty() && !name.contains('/'), "{name:?}");
        if let Found::Object(version) = &found {
            check(version);
        }
    }
    if let Ok(Some(version)) = remote.prefix.find("folder/name") {
        check(&version);
        if let Ok(head) = remote.prefix.head("folder/name", &version, len) {
            assert!(head.len() as u64 <= len);
        }
    }
}
