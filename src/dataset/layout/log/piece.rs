//! Parts of requests: of the caller's buffer, and of deflated data.

use crate::base::{Error, Result, limits};
use crate::dataset::chunk::cache::Found;
use crate::dataset::chunk::image::DenseImage;
use crate::dataset::chunk::key::CacheKey;
use crate::dataset::environment::Environment;
use crate::filter::{self, Params};
use std::ops::Range;

/// The part `range` of the buffer `buf`, which begins at `offset` of the dataset.
pub(super) fn part_of<'b>(buf: &'b mut [u8], offset: u64, range: &Range<u64>) -> &'b mut [u8] {
    let at = |n: u64| usize::try_from(n.saturating_sub(offset)).unwrap_or(usize::MAX);
    buf.get_mut(at(range.start)..at(range.end)).unwrap_or_default()
}

/// Deflated data of a log.
pub(super) struct DeflatedData<'a> {
    /// Its place in the chunk cache.
    pub(super) key: CacheKey,
    /// Bytes that it inflates to.
    pub(super) size: u64,
    /// Reads it as it is stored, at most so many bytes; those after the zlib stream are ignored.
    pub(super) read: &'a dyn Fn(u64) -> Result<Vec<u8>>,
    /// The error of data that is damaged.
    pub(super) corrupt: &'a dyn Fn(String) -> Error,
}

impl DeflatedData<'_> {
    fn inflated(&self) -> Result<Vec<u8>> {
        let fits = |n: &usize| *n as u64 <= limits::CHUNK_BYTES_MAX;
        let size = usize::try_from(self.size).ok().filter(fits).ok_or_else(|| (self.corrupt)(format!("data of {} bytes", self.size)))?;
        let params = Params { cd_values: &[], expected: size, limit: size };
        // A zlib stream is hardly longer than what it has.
        let most = self.size.saturating_add(self.size / 1000).saturating_add(64);
        let inflated = filter::deflate::decode(&(self.read)(most)?, &params).map_err(|e| (self.corrupt)(e.to_string()))?;
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
        match env.cache.get(self.key, self.size, || self.inflated().map(DenseImage::boxed))? {
            Found::Chunk(chunk) => {
                env.cache.record_read(self.key, &chunk, buf.len() as u64);
                copy(chunk.image().dense().unwrap_or_default(), buf)
            }
            Found::OnDisk(_) => copy(&self.inflated()?, buf),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::Address;
    use crate::dataset::chunk::key::DatasetKey;

    /// A length that a file states without having the bytes made the daemon end for want of memory.
    #[test]
    fn stated_lengths_do_not_decide_on_memory() {
        let key = CacheKey::Record { dataset: DatasetKey { file: 0, address: Address(0) }, record: 0 };
        let corrupt = |detail: String| Error::corrupt("record", Address(0), detail);
        let inflate = |size: u64, read: &dyn Fn(u64) -> Result<Vec<u8>>| DeflatedData { key, size, read, corrupt: &corrupt }.inflated();
        assert!(inflate(limits::CHUNK_BYTES_MAX + 1, &|_| unreachable!("nothing is read")).is_err());
        let asked = std::cell::Cell::new(0);
        let read = |most: u64| {
            asked.set(most);
            Err(corrupt("nothing there".into()))
        };
        assert!(inflate(1_000_000, &read).is_err());
        assert_eq!(asked.get(), 1_001_064);
    }
}
