//! Objects of an object store by key: the six operations that containers in object stores need.
//!
//! ```text
//! local    a folder of the host              memory   a map, for tests
//! probe    proves that `create` creates once   faulty   a store of tests whose requests fail
//! ```
//!
//! Stores reached by a network are in `file::remote::objects`, their disk cache in
//! `file::remote::extents`.

pub mod faulty;
pub mod local;
pub mod memory;
pub mod probe;

use std::io;
use std::ops::Range;

/// Bytes of ranges of objects of one store, kept for later. An object never changes.
pub trait RangeCache: Send + Sync {
    /// The bytes under `name`, if there are `len`, as they were kept.
    fn get(&self, name: &str, len: u32) -> Option<Vec<u8>>;

    /// Removes the bytes under `name`.
    fn discard(&self, name: &str);

    /// Keeps bytes under `name`. Errors are logged only: a cache may lack bytes.
    fn put(&self, name: &str, bytes: &[u8]);
}

/// Fills a buffer with bytes from an offset.
pub type ReadBytes<'a> = dyn Fn(u64, &mut [u8]) -> io::Result<()> + 'a;

/// Objects by key. A key is one to three names of `a-z`, `0-9`, `-` and `_`, divided by `/`.
/// An object is complete when it is visible, and never changes.
///
/// Errors have an errno where one is known, or are a `base::request_error::RequestError`.
/// `NotFound`: there is no such object.
pub trait ObjectStore: Send + Sync {
    /// The bytes `range` of an object; fewer if the object ends before.
    fn get(&self, key: &str, range: Range<u64>) -> io::Result<Vec<u8>>;

    /// The bytes of each of `ranges`, which ascend and are near each other, by one request.
    fn get_several(&self, key: &str, ranges: &[Range<u64>]) -> io::Result<Vec<Vec<u8>>> {
        by_one_get(ranges, &|range| self.get(key, range))
    }

    /// Fills `buf` with the bytes of an object from `offset`. Errors: `UnexpectedEof` if the object
    /// ends before.
    fn fill(&self, key: &str, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let range = offset..offset.saturating_add(buf.len() as u64);
        let bytes = self.get_several(key, &[range])?.pop().filter(|bytes| bytes.len() == buf.len());
        buf.copy_from_slice(&bytes.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    /// Stores an object; one with the same key is replaced. Durable at the latest when the next
    /// [`ObjectStore::create`] of this store returns.
    fn put(&self, key: &str, bytes: &[u8]) -> io::Result<()>;

    /// [`ObjectStore::put`] of `len` bytes, which `read` fills a buffer with from an offset. Here
    /// all of them are in memory. Errors: also `ENOMEM`.
    fn put_from(&self, key: &str, len: u64, read: &ReadBytes<'_>) -> io::Result<()> {
        let mut bytes = Vec::new();
        let len = usize::try_from(len).map_err(|_| io::Error::from_raw_os_error(libc::EFBIG))?;
        bytes.try_reserve_exact(len)?;
        bytes.resize(len, 0);
        read(0, &mut bytes)?;
        self.put(key, &bytes)
    }

    /// Makes durable what was put, so that the next [`ObjectStore::create`] is short.
    fn settle(&self) -> io::Result<()> {
        Ok(())
    }

    /// Stores an object if there is none with this key; false: there is one. Durable when it
    /// returns. Of several concurrent calls with one key, exactly one returns true. After an error
    /// the object may exist.
    fn create(&self, key: &str, bytes: &[u8]) -> io::Result<bool>;

    /// Keys that begin with `prefix`, which ends in `/`, and are greater than `after`; ascending.
    fn list_after(&self, prefix: &str, after: &str) -> io::Result<Vec<String>>;

    /// The first `max` keys of [`ObjectStore::list_after`].
    fn list_part(&self, prefix: &str, after: &str, max: usize) -> io::Result<Vec<String>> {
        let mut keys = self.list_after(prefix, after)?;
        keys.truncate(max);
        Ok(keys)
    }

    /// Length of an object, bytes; `None`: there is none.
    fn head(&self, key: &str) -> io::Result<Option<u64>>;

    /// Removes an object, if there is one.
    fn delete(&self, key: &str) -> io::Result<()>;

    /// True if requests take little time: nothing is gained by leaving one out.
    fn is_near(&self) -> bool {
        false
    }

    /// Bytes used and bytes free, where the store knows.
    fn space(&self) -> Option<(u64, u64)> {
        None
    }

    /// Requests sent, bytes received and bytes sent.
    fn counters(&self) -> [u64; 3] {
        [0; 3]
    }
}

/// The bytes of each of `ranges`, of which `get` reads the smallest range that has all.
pub(super) fn by_one_get(ranges: &[Range<u64>], get: &dyn Fn(Range<u64>) -> io::Result<Vec<u8>>) -> io::Result<Vec<Vec<u8>>> {
    let Some(start) = ranges.first().map(|range| range.start) else { return Ok(Vec::new()) };
    let end = ranges.iter().map(|range| range.end).max().unwrap_or(start);
    let bytes = get(start..end)?;
    if ranges.len() == 1 {
        return Ok(vec![bytes]);
    }
    let within = |n: u64| n.saturating_sub(start);
    Ok(ranges.iter().map(|range| part(&bytes, &(within(range.start)..within(range.end)))).collect())
}

/// Longest name in a key, bytes.
const NAME_MAX: usize = 64;

/// The names of a key. Errors: `EINVAL` if it is not one.
fn names(key: &str) -> io::Result<Vec<&str>> {
    let names: Vec<&str> = key.split('/').collect();
    let fits = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'-' | b'_');
    let is_name = |name: &&str| !name.is_empty() && name.len() <= NAME_MAX && name.bytes().all(fits);
    let valid = names.len() <= 3 && names.iter().all(is_name);
    valid.then_some(names).ok_or_else(|| io::Error::from_raw_os_error(libc::EINVAL))
}

/// The part of `bytes` in `range`; shorter if `bytes` ends before.
fn part(bytes: &[u8], range: &Range<u64>) -> Vec<u8> {
    let index = |n: u64| usize::try_from(n).unwrap_or(usize::MAX).min(bytes.len());
    bytes.get(index(range.start)..index(range.end)).unwrap_or_default().to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_lower_case_names() {
        assert_eq!(names("d/12/ab_-").unwrap(), ["d", "12", "ab_-"]);
        for bad in ["", "/", "a//b", "../x", "a/b/c/d", "A", "a.b", &"x".repeat(65)] {
            assert_eq!(names(bad).unwrap_err().raw_os_error(), Some(libc::EINVAL), "{bad}");
        }
        assert_eq!(part(b"abc", &(1..9)), b"bc");
        assert_eq!(part(b"abc", &(7..9)), b"");
    }
}
