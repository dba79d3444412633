//! Parts of requests: of the caller's buffer, and of deflated data.

use crate::base::{Address, Error, Result, limits};
use crate::dataset::chunk::LARGE_DATA;
use crate::dataset::chunk::cache::{Claim, Found, Loading, Reservation};
use crate::dataset::chunk::chunk_files::{ChunkFile, FilePlace, StreamPlan};
use crate::dataset::chunk::image::{DenseImage, Image};
use crate::dataset::chunk::key::CacheKey;
use crate::dataset::environment::Environment;
use crate::filter::{self, Params};
use std::ops::Range;
use std::sync::Arc;

/// Data up to this size is inflated in memory whatever the cache size, bytes.
const MEMORY_MIN_BYTES: u64 = 32 << 20;
/// Part of the cache above which data is inflated to a temporary file.
const MEMORY_DIVISOR: u64 = 16;
/// Data up to this size is inflated to a temporary file whatever the cache size, bytes.
const STREAMED_MIN_BYTES: u64 = 2 << 30;
/// Smallest data that needs a permit of the decoding gate, bytes.
const GATED_MIN_BYTES: u64 = 4 << 20;

/// The part `range` of the buffer `buf`, which begins at `offset` of the dataset.
pub(super) fn part_of<'b>(buf: &'b mut [u8], offset: u64, range: &Range<u64>) -> &'b mut [u8] {
    let at = |n: u64| usize::try_from(n.saturating_sub(offset)).unwrap_or(usize::MAX);
    buf.get_mut(at(range.start)..at(range.end)).unwrap_or_default()
}

/// The place of data that is inflated without a lock.
pub(super) enum Claimed<'a> {
    /// A place in the chunk cache: the caller inflates the data.
    Ours(Reservation<'a>),
    /// Another thread inflates the data.
    Loading(Loading<'a>),
    /// A place for a temporary file: the first caller inflates the data.
    File(FilePlace),
}

/// Deflated data of a log.
pub(super) struct DeflatedData<'a> {
    /// Its place in the chunk cache.
    pub(super) key: CacheKey,
    /// Bytes that it inflates to.
    pub(super) size: u64,
    /// Stored bytes, at most; those after the zlib stream are ignored.
    pub(super) stored: u64,
    /// Where it is stored, for errors.
    pub(super) at: Address,
    /// Fills a buffer with stored bytes from an offset.
    pub(super) read: &'a dyn Fn(u64, &mut [u8]) -> Result<()>,
    /// The error of data that is damaged.
    pub(super) corrupt: &'a dyn Fn(String) -> Error,
}

impl DeflatedData<'_> {
    /// Stored bytes that are read: a zlib stream is hardly longer than what it has.
    fn most(&self) -> u64 {
        self.size.saturating_add(self.size / 1000).saturating_add(64).min(self.stored)
    }

    /// True if data of `size` bytes is inflated to a temporary file.
    fn is_large(env: &Environment, size: u64) -> bool {
        size > MEMORY_MIN_BYTES.max(env.cache.budget() / MEMORY_DIVISOR)
    }

    /// True if data that inflates to `size` bytes must be inflated first, and is kept then.
    pub(super) fn is_long(env: &Environment, (key, size): (CacheKey, u64)) -> bool {
        match DeflatedData::is_large(env, size) {
            true => env.chunk_files.place(key, size).made().is_none(),
            false => size <= env.cache.budget() / 4 && !env.cache.contains(key),
        }
    }

    /// Claims the place of data that inflates to `size` bytes, for a caller that inflates it;
    /// `None`: the caches have it, or do not keep it.
    pub(super) fn claim(env: &Environment, key: CacheKey, size: u64) -> Option<Claimed<'_>> {
        if DeflatedData::is_large(env, size) {
            return Some(env.chunk_files.place(key, size)).filter(|place| place.made().is_none()).map(Claimed::File);
        }
        if size > env.cache.budget() / 4 {
            return None;
        }
        match env.cache.claim(std::iter::once((key, size))).pop()? {
            Claim::Ready(_) | Claim::OnDisk(_) => None,
            Claim::Ours(reservation) => Some(Claimed::Ours(reservation)),
            Claim::Loading(loading) => Some(Claimed::Loading(loading)),
        }
    }

    /// The inflated data as an image for the chunk cache.
    pub(super) fn image(&self, env: &Environment) -> Result<Image> {
        self.inflated(env).map(DenseImage::boxed)
    }

    /// Inflates data that is too large for the memory to a temporary file.
    fn inflated_to_file(&self, env: &Environment) -> Result<Arc<ChunkFile>> {
        self.check_large(env)?;
        env.chunk_files.get(self.key, self.size, || self.to_file(env))
    }

    /// Errors: no temporary file is large enough.
    fn check_large(&self, env: &Environment) -> Result<()> {
        if self.size > STREAMED_MIN_BYTES.max(env.cache.budget()).min(env.chunk_files.capacity()) {
            let detail = format!("data of {0} bytes is too large for the caches: use a --cache-size of {0}", self.size);
            return Err(Error::limit(LARGE_DATA, self.at, detail));
        }
        Ok(())
    }

    /// The inflated data in a new temporary file.
    pub(super) fn to_file(&self, env: &Environment) -> Result<ChunkFile> {
        self.check_large(env)?;
        env.share_temporary_space(0);
        ChunkFile::inflate(StreamPlan::DEFLATED, self.size, self.most(), &mut |at, buf| (self.read)(at, buf), self.at)
    }

    fn inflated(&self, env: &Environment) -> Result<Vec<u8>> {
        let weight = self.size.saturating_mul(2).saturating_add(self.most());
        let _permit = (self.size >= GATED_MIN_BYTES).then(|| env.decoding.enter(weight));
        self.inflated_whole()
    }

    fn inflated_whole(&self) -> Result<Vec<u8>> {
        let fits = |n: &usize| *n as u64 <= limits::CHUNK_BYTES_MAX;
        let size = usize::try_from(self.size).ok().filter(fits).ok_or_else(|| (self.corrupt)(format!("data of {} bytes", self.size)))?;
        let params = Params { cd_values: &[], expected: size, limit: size };
        let mut stored = vec![0; usize::try_from(self.most()).unwrap_or(0)];
        (self.read)(0, &mut stored)?;
        let inflated = filter::deflate::decode(&stored, &params).map_err(|e| (self.corrupt)(e.to_string()))?;
        if inflated.len() == size {
            return Ok(inflated);
        }
        Err((self.corrupt)(format!("{} bytes inflated instead of {size}", inflated.len())))
    }

    /// Copies the inflated bytes from `within` on into `buf`, through the chunk cache.
    pub(super) fn copy_to(&self, env: &Environment, within: u64, buf: &mut [u8]) -> Result<()> {
        let copy = |bytes: &[u8], buf: &mut [u8]| {
            let from = usize::try_from(within).unwrap_or(usize::MAX);
            let part = from.checked_add(buf.len()).and_then(|end| bytes.get(from..end));
            part.map(|part| buf.copy_from_slice(part)).ok_or_else(|| (self.corrupt)("data that ends early".into()))
        };
        if DeflatedData::is_large(env, self.size) {
            let ends_early = || (self.corrupt)("data that ends early".into());
            let end = within.checked_add(buf.len() as u64);
            end.filter(|end| *end <= self.size).ok_or_else(ends_early)?;
            return self.inflated_to_file(env)?.read(within, buf);
        }
        match env.cache.get(self.key, self.size, || self.image(env))? {
            Found::Chunk(chunk) => {
                env.cache.record_read(self.key, &chunk, buf.len() as u64);
                copy(chunk.image().dense().unwrap_or_default(), buf)
            }
            Found::OnDisk => copy(&self.inflated(env)?, buf),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dataset::chunk::key::DatasetKey;
    use std::io::Write;

    const KEY: CacheKey = CacheKey::Record { dataset: DatasetKey { file: 0, address: Address(0) }, record: 0 };

    /// A length that a file states without having the bytes made the daemon end for want of memory.
    #[test]
    fn stated_lengths_do_not_decide_on_memory() {
        let corrupt = |detail: String| Error::corrupt("record", Address(0), detail);
        let inflate = |size: u64, stored: u64, read: &dyn Fn(u64, &mut [u8]) -> Result<()>| {
            DeflatedData { key: KEY, size, stored, at: Address(0), read, corrupt: &corrupt }.inflated_whole()
        };
        assert!(inflate(limits::CHUNK_BYTES_MAX + 1, 100, &|_, _| unreachable!("nothing is read")).is_err());
        let asked = std::cell::Cell::new(0);
        let read = |_: u64, buf: &mut [u8]| {
            asked.set(buf.len());
            Err(corrupt("nothing there".into()))
        };
        assert!(inflate(1_000_000, u64::MAX, &read).is_err());
        assert_eq!(asked.get(), 1_001_064);
        assert!(inflate(1_000_000, 1000, &read).is_err());
        assert_eq!(asked.get(), 1000);
    }

    /// Nothing of it comes to the chunk cache.
    #[test]
    fn large_data_is_inflated_to_a_temporary_file() {
        let env = Environment::new(64 << 20, 256 << 20, 1).unwrap();
        let mut z = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::fast());
        (0..40).for_each(|_| z.write_all(&[0; 1 << 20]).unwrap());
        z.write_all(b"end").unwrap();
        let stored = z.finish().unwrap();
        let read = |at: u64, buf: &mut [u8]| {
            buf.copy_from_slice(&stored[at as usize..at as usize + buf.len()]);
            Ok(())
        };
        let corrupt = |detail: String| Error::corrupt("record", Address(0), detail);
        let data = |size: u64| DeflatedData { key: KEY, size, stored: stored.len() as u64, at: Address(0), read: &read, corrupt: &corrupt };
        let mut buf = [9; 5];
        data((40 << 20) + 3).copy_to(&env, (40 << 20) - 2, &mut buf).unwrap();
        assert_eq!(&buf, b"\0\0end");
        assert_eq!((env.cache.bytes(), env.chunk_files.bytes()), (0, (40 << 20) + 3));
        assert!(data((40 << 20) + 3).copy_to(&env, (40 << 20) - 1, &mut buf).is_err());
        // More than the temporary files may have.
        let e = data(1 << 30).copy_to(&env, 0, &mut buf).unwrap_err().to_string();
        assert!(e.contains("--cache-size"), "{e}");
    }
}
