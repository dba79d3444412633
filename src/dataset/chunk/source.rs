//! Where chunk formats read the stored bytes of chunks: a file, or bytes that were fetched.

use crate::base::{Address, Error, Result};
use crate::meta::Store;
use std::borrow::Cow;

/// Stored bytes of chunks, by address.
pub(crate) trait ChunkSource: Sync {
    /// Address past the last byte.
    fn end(&self) -> Result<u64>;

    /// Fills `buf` with the bytes from `address`. Errors: they are not there, or cannot be read.
    fn read(&self, address: Address, buf: &mut [u8]) -> Result<()>;

    /// The `len` bytes from `address`, if they are in memory.
    fn in_memory(&self, _address: Address, _len: usize) -> Option<&[u8]> {
        None
    }
}

impl dyn ChunkSource + '_ {
    /// The `len` bytes from `address`; the caller has checked that there are so many.
    pub(crate) fn bytes(&self, address: Address, len: usize) -> Result<Cow<'_, [u8]>> {
        if let Some(bytes) = self.in_memory(address, len) {
            return Ok(Cow::Borrowed(bytes));
        }
        let mut bytes = vec![0; len];
        self.read(address, &mut bytes)?;
        Ok(Cow::Owned(bytes))
    }
}

impl ChunkSource for Store {
    fn end(&self) -> Result<u64> {
        self.file_len()
    }

    fn read(&self, address: Address, buf: &mut [u8]) -> Result<()> {
        self.read_raw(address, buf)
    }
}

/// The stored bytes of one chunk, which were fetched.
pub(crate) struct FetchedChunk<'a> {
    /// Address at which the chunk is taken to be; errors name it.
    pub(crate) address: Address,
    /// All of its stored bytes.
    pub(crate) bytes: &'a [u8],
}

impl ChunkSource for FetchedChunk<'_> {
    fn end(&self) -> Result<u64> {
        Ok(self.address.0.saturating_add(self.bytes.len() as u64))
    }

    fn read(&self, address: Address, buf: &mut [u8]) -> Result<()> {
        let past_end = || Error::past_end("chunk", address, buf.len() as u64, 0);
        let bytes = self.in_memory(address, buf.len()).ok_or_else(past_end)?;
        buf.copy_from_slice(bytes);
        Ok(())
    }

    fn in_memory(&self, address: Address, len: usize) -> Option<&[u8]> {
        let from = usize::try_from(address.0.checked_sub(self.address.0)?).ok()?;
        self.bytes.get(from..from.checked_add(len)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fetched_chunk_ends_with_its_bytes() {
        let chunk = FetchedChunk { address: Address(100), bytes: b"abcdef" };
        let source: &dyn ChunkSource = &chunk;
        assert_eq!(source.end().unwrap(), 106);
        assert!(matches!(source.bytes(Address(102), 4).unwrap(), Cow::Borrowed(b"cdef")));
        for (at, len) in [(102, 5), (99, 1), (107, 0), (u64::MAX, 2), (100, usize::MAX)] {
            assert!(source.in_memory(Address(at), len).is_none(), "{at} {len}");
        }
        assert!(source.read(Address(106), &mut [0]).is_err());
    }
}
