//! A dataset's stored bytes, whatever its layout: read a range, count storage, find holes.

use super::chunked::Chunked;
use super::environment::Environment;
use super::external::External;
use super::fill::FillPattern;
use crate::base::{Address, Error, Result};
use crate::meta::Store;
use std::sync::Arc;

/// How far ahead of a sequential reader contiguous data is asked for, bytes.
const CONTIGUOUS_AHEAD: u64 = 4 << 20;

/// Where the bytes of a dataset lie.
pub enum Storage {
    /// In the object header.
    Compact(Vec<u8>),
    /// In one block; undefined = never written.
    Contiguous(Address),
    /// In other files.
    External(External),
    /// In chunks.
    Chunked(Box<Chunked>),
    /// In other datasets.
    Virtual(Box<dyn Mapped>),
}

/// A dataset that other datasets supply.
pub trait Mapped: Send + Sync {
    /// Fills `buf` with the bytes from `offset`.
    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<()>;

    /// Visits the elements `elements` that a source has: number, bytes as stored, and the file whose
    /// global heap they lead to. The others are fill values.
    fn variable(&self, elements: std::ops::Range<u64>, visit: &mut dyn FnMut(u64, &[u8], &Arc<Store>) -> Result<()>) -> Result<()>;
}

/// What `SEEK_DATA` and `SEEK_HOLE` look for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seek {
    /// Allocated bytes.
    Data,
    /// Bytes that read as zero and take no storage.
    Hole,
}

/// The bytes of one dataset: its elements row-major in the file's own type.
pub struct DatasetBytes {
    /// Bytes in all.
    pub size: u64,
    /// What unwritten elements read as.
    pub fill: FillPattern,
    /// Where the bytes lie.
    pub storage: Storage,
    /// The container.
    pub store: Arc<Store>,
}

impl DatasetBytes {
    /// Fills the front of `buf` from byte `offset`; returns the bytes read, fewer only at the end.
    pub fn read(&self, env: &Environment, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let n = usize::try_from(self.size.saturating_sub(offset)).unwrap_or(usize::MAX).min(buf.len());
        let Some(buf) = buf.get_mut(..n).filter(|b| !b.is_empty()) else { return Ok(0) };
        match &self.storage {
            Storage::Compact(bytes) => {
                let from = usize::try_from(offset).unwrap_or(usize::MAX);
                let part = from.checked_add(n).and_then(|end| bytes.get(from..end));
                buf.copy_from_slice(
                    part.ok_or_else(|| Error::corrupt("compact data layout", Address::UNDEF, "holds less than the dataset"))?,
                );
            }
            Storage::Contiguous(address) => match address.checked_add(offset) {
                Some(at) => self.store.read_raw(at, buf)?,
                None if address.is_defined() => return Err(Error::corrupt("contiguous data layout", *address, "ends beyond 2^64")),
                None => self.fill.fill(offset, buf),
            },
            Storage::External(e) => e.read(offset, buf)?,
            Storage::Chunked(c) => c.read(env, &self.store, &self.fill, offset, buf)?,
            Storage::Virtual(v) => v.read(offset, buf)?,
        }
        Ok(n)
    }

    /// If the byte at `offset` was never written, where the unwritten bytes from there on end.
    pub fn unwritten(&self, offset: u64) -> Result<Option<u64>> {
        match &self.storage {
            _ if offset >= self.size => Ok(None),
            Storage::Contiguous(a) if !a.is_defined() => Ok(Some(self.size)),
            Storage::Chunked(c) => {
                let data = c.seek(&self.store, offset, Seek::Data)?.unwrap_or(self.size).min(self.size);
                Ok((data > offset).then_some(data))
            }
            _ => Ok(None),
        }
    }

    /// The byte at `offset` was written: where the written bytes from there on end.
    pub fn written(&self, offset: u64) -> Result<u64> {
        match &self.storage {
            Storage::Chunked(c) => {
                Ok(c.seek(&self.store, offset, Seek::Hole)?.filter(|end| *end > offset).unwrap_or(self.size).min(self.size))
            }
            _ => Ok(self.size),
        }
    }

    /// If the bytes at `offset` are zeros because they lie in a hole of the file, where they end.
    pub fn zeros(&self, offset: u64) -> Option<u64> {
        let Storage::Contiguous(a) = &self.storage else { return None };
        let at = self.store.offset(a.checked_add(offset)?, "raw data").ok()?;
        let end = self.store.driver().hole_end(at)?;
        Some(offset.saturating_add(end.saturating_sub(at)).min(self.size))
    }

    /// Bytes of storage really allocated in the container, or to be when what was changed is written out.
    pub fn allocated(&self, env: &Environment) -> Result<u64> {
        match &self.storage {
            Storage::Compact(bytes) => Ok(bytes.len() as u64),
            Storage::Contiguous(a) => Ok(if a.is_defined() { self.size } else { 0 }),
            Storage::External(_) => Ok(self.size),
            Storage::Chunked(c) => c.allocated(env, &self.store),
            Storage::Virtual(_) => Ok(0),
        }
    }

    /// Next data or hole at or after `offset` (which is < size). Holes exist only where the fill
    /// value is zero bytes; the end of the file is a hole.
    pub fn seek(&self, offset: u64, what: Seek) -> Result<Option<u64>> {
        let all_hole = matches!(&self.storage, Storage::Contiguous(a) if !a.is_defined());
        if !self.fill.is_zero() {
            return Ok(Some(if what == Seek::Data { offset } else { self.size }));
        }
        match (&self.storage, what) {
            (Storage::Chunked(c), _) => c.seek(&self.store, offset, what),
            (_, Seek::Data) => Ok((!all_hole).then_some(offset)),
            (_, Seek::Hole) => Ok(Some(if all_hole { offset } else { self.size })),
        }
    }

    /// Starts reading what a sequential reader at byte `at` will want next; up to byte `from` that was done
    /// before. Returns up to where it is done now.
    pub fn read_ahead(self: &Arc<Self>, env: &Arc<Environment>, at: u64, from: u64) -> u64 {
        match &self.storage {
            Storage::Chunked(_) => super::chunked::read_ahead(self, env, at, from),
            Storage::Contiguous(a) => {
                let to = at.saturating_add(CONTIGUOUS_AHEAD).min(self.size);
                // Few large hints rather than many small ones.
                if to.saturating_sub(from) < CONTIGUOUS_AHEAD / 2 {
                    return from;
                }
                if let Some(address) = a.checked_add(from).and_then(|a| self.store.offset(a, "raw data").ok()) {
                    self.store.driver().advise(address, to.saturating_sub(from));
                }
                to
            }
            _ => from,
        }
    }
}
