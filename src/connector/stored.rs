//! Chunks in stored form, moved between containers without being decoded.

use super::{Datatype, FilterSpec, Result};
use crate::base::{Address, Error};
use crate::dataset::fill::FillPattern;
use crate::file::Identity;
use crate::filter::registry::FLETCHER32;
use crate::filter::{Pipeline, fletcher32};
use std::path::PathBuf;

/// Largest chunk that is moved as a whole, bytes.
pub const MOVED_CHUNK_MAX_BYTES: u64 = 256 << 20;
/// Chunks of one batch.
pub(crate) const BATCH_CHUNKS_MAX: usize = 4096;
/// Bytes of a stored piece of a dataset without chunks, about.
const PIECE_BYTES: u64 = 1 << 20;
/// Bytes by which a stored chunk may exceed twice its decoded size.
const STORED_SLACK_BYTES: u64 = 32 << 10;

/// What decides on the stored bytes of the chunks of a dataset.
#[derive(Debug, Clone, PartialEq)]
pub struct ChunkStorage {
    /// Type of the elements.
    pub datatype: Datatype,
    /// Dimensions of the dataset.
    pub dims: Vec<u64>,
    /// Dimensions of a chunk, elements.
    pub chunk: Vec<u64>,
    /// Filters in the order of writing.
    pub filters: Vec<FilterSpec>,
    /// The way in which sparse chunks are stored; `None`: all elements are.
    pub profile: Option<&'static str>,
    /// Value of elements that were never written.
    pub(crate) fill: FillPattern,
}

/// A chunk in stored form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredChunk {
    /// Its coordinates, in chunks.
    pub scaled: Vec<u64>,
    /// Bit i set: filter i was not applied.
    pub mask: u32,
    /// Its stored bytes. Without filters they may end early: the rest has the fill value.
    pub bytes: Vec<u8>,
    /// Where they are in the original, if there is one.
    pub offset: Option<u64>,
}

/// The file that has the stored chunks of a dataset.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Original {
    /// Its canonical path, or its URL.
    pub path: PathBuf,
    /// Which file it is.
    pub identity: Identity,
}

/// The stored chunks of a dataset.
pub trait StoredChunks: Send + Sync {
    /// How they are stored.
    fn storage(&self) -> &ChunkStorage;

    /// The file that has their bytes, if it is one that others can refer to.
    fn original(&self) -> Option<Original> {
        None
    }

    /// The next chunks in row-major order after the one at `after`, or from the first one on: about
    /// `budget` bytes, and one chunk at least. None: there are no more. Errors: also a checksum by
    /// the last filter that is wrong.
    fn next(&self, after: Option<&[u64]>, budget: u64) -> Result<Vec<StoredChunk>>;
}

/// Elements of `element_size` bytes in a stored piece of a dataset without chunks.
pub(crate) fn piece_elements(element_size: u64) -> u64 {
    PIECE_BYTES.checked_div(element_size).unwrap_or(1).max(1)
}

/// The error of chunks that are not stored as they are; the caller writes their elements.
pub(crate) fn unlike() -> Error {
    Error::refused(libc::EOPNOTSUPP, "the chunks of the two datasets are stored in different ways")
}

impl ChunkStorage {
    /// Bytes of a decoded chunk.
    pub(crate) fn chunk_bytes(&self) -> u64 {
        self.chunk.iter().fold(self.datatype.element_size(), |n, d| n.saturating_mul(*d))
    }

    /// That of a dataset without chunks: pieces of its elements in row-major order.
    pub(crate) fn pieces(datatype: Datatype, elements: u64, fill: FillPattern) -> ChunkStorage {
        let piece = piece_elements(datatype.element_size());
        ChunkStorage { datatype, dims: vec![elements], chunk: vec![piece], filters: Vec::new(), profile: None, fill }
    }

    /// `self`, unless its elements hold addresses of the container, or its chunks are too large.
    pub(crate) fn portable(self) -> Option<ChunkStorage> {
        let held = self.datatype.contains_vlen() || self.datatype.contains_reference();
        (!held && self.chunk_bytes() <= MOVED_CHUNK_MAX_BYTES).then_some(self)
    }

    /// True if stored chunks of `other` are valid here, byte for byte.
    pub(crate) fn is_like(&self, other: &ChunkStorage) -> bool {
        let pipeline = |storage: &ChunkStorage| Pipeline { filters: storage.filters.clone() };
        (&self.dims, &self.chunk, &self.fill, self.profile) == (&other.dims, &other.chunk, &other.fill, other.profile)
            && self.datatype.is_like(&other.datatype)
            && pipeline(self).is_like(&pipeline(other))
    }

    /// A filter mask by which no filter was applied.
    pub(crate) fn mask_of_all(&self) -> u32 {
        u32::try_from(self.filters.len()).ok().and_then(|n| 1u32.checked_shl(n)).map_or(u32::MAX, |bit| bit.wrapping_sub(1))
    }

    /// Errors: the checksum that the last filter added to the chunk is wrong.
    pub(crate) fn verify(&self, chunk: &StoredChunk) -> Result<()> {
        let last = self.filters.iter().zip(0u32..).last();
        let is_applied = |bit: u32| chunk.mask.checked_shr(bit).unwrap_or(0) & 1 == 0;
        if !last.is_some_and(|(filter, bit)| filter.id == FLETCHER32 && is_applied(bit)) {
            return Ok(());
        }
        let damaged = |e| Error::corrupt("chunk", Address::UNDEF, format!("chunk {:?}: {e}", chunk.scaled));
        fletcher32::verify(&chunk.bytes).map(drop).map_err(damaged)
    }

    /// Errors: `bytes` are more than a chunk has in stored form.
    pub(crate) fn check(&self, bytes: &[u8]) -> Result<()> {
        let whole = self.chunk_bytes();
        let most = if self.filters.is_empty() { whole } else { whole.saturating_mul(2).saturating_add(STORED_SLACK_BYTES) };
        if bytes.len() as u64 > most { Err(unlike()) } else { Ok(()) }
    }
}

/// A chunk in stored form, with all filters applied, also those that are optional. Errors: a filter
/// has no encoder, or declines.
pub fn encoded(filters: &[FilterSpec], chunk: Vec<u8>) -> Result<Vec<u8>> {
    let filters = filters.iter().map(|f| FilterSpec { flags: 0, ..f.clone() }).collect();
    let failed = |e| Error::refused(libc::EOPNOTSUPP, format!("the chunk cannot be encoded with all filters: {e}"));
    Pipeline { filters }.encode(chunk).map(|(bytes, _)| bytes).map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn storage(filters: &[(u16, &[u32])]) -> ChunkStorage {
        let spec = |(id, values): &(u16, &[u32])| FilterSpec { id: *id, flags: 0, name: Vec::new(), cd_values: values.to_vec() };
        let (datatype, filters) = (Datatype::byte(), filters.iter().map(spec).collect());
        ChunkStorage { datatype, dims: vec![100], chunk: vec![10], filters, profile: None, fill: FillPattern::zero() }
    }

    #[test]
    fn storage_is_alike_only_with_all_parameters() {
        let gzip = storage(&[(2, &[1]), (1, &[6])]);
        assert!(gzip.is_like(&gzip.clone()));
        for other in [storage(&[(2, &[1]), (1, &[9])]), storage(&[(1, &[6])]), storage(&[(1, &[6]), (2, &[1])]), storage(&[])] {
            assert!(!gzip.is_like(&other), "{other:?}");
        }
        let flags = |optional: u16| {
            let mut all = gzip.clone();
            all.filters.iter_mut().for_each(|f| (f.flags, f.name) = (optional, b"deflate".to_vec()));
            all
        };
        assert!(gzip.is_like(&flags(1)), "flags and names do not decide on stored bytes");
        assert!(!gzip.is_like(&ChunkStorage { chunk: vec![20], ..gzip.clone() }));
        assert!(!gzip.is_like(&ChunkStorage { profile: Some("map"), ..gzip.clone() }), "chunks with a map differ by a flag alone");
        assert!(!gzip.is_like(&ChunkStorage { dims: vec![101], ..gzip.clone() }));
        assert!(!gzip.is_like(&ChunkStorage { fill: FillPattern::new(&[1], 1), ..gzip.clone() }));
    }

    #[test]
    fn large_chunks_and_long_bytes_are_not_moved() {
        let plain = storage(&[]);
        assert!(plain.check(&[0; 10]).is_ok() && plain.check(&[0; 11]).is_err());
        let gzip = storage(&[(1, &[6])]);
        assert!(gzip.check(&[0; 11]).is_ok() && gzip.check(&vec![0; 21 + (32 << 10)]).is_err());
        assert!(gzip.clone().portable().is_some());
        assert!(ChunkStorage { chunk: vec![MOVED_CHUNK_MAX_BYTES + 1], ..gzip }.portable().is_none());
    }

    #[test]
    fn a_checksum_of_the_last_filter_is_verified() {
        let last = storage(&[(1, &[6]), (3, &[])]);
        let mut bytes = b"abcd".to_vec();
        fletcher32::append(&mut bytes);
        let chunk = |mask: u32, bytes: &[u8]| StoredChunk { scaled: vec![0], mask, bytes: bytes.to_vec(), offset: None };
        assert!(last.verify(&chunk(0, &bytes)).is_ok() && last.verify(&chunk(1, &bytes)).is_ok());
        bytes[1] ^= 1;
        assert!(last.verify(&chunk(0, &bytes)).is_err() && last.verify(&chunk(0, b"ab")).is_err());
        assert!(last.verify(&chunk(2, &bytes)).is_ok(), "the filter was not applied");
        assert!(storage(&[(3, &[]), (1, &[6])]).verify(&chunk(0, &bytes)).is_ok(), "the checksum is compressed");
        assert!(storage(&[]).verify(&chunk(0, &bytes)).is_ok());
    }

    #[test]
    fn a_mask_of_all_has_a_bit_for_each_filter() {
        assert_eq!((storage(&[]).mask_of_all(), storage(&[(1, &[6])]).mask_of_all()), (0, 1));
        let of = |n: usize| storage(&vec![(3, &[][..]); n]).mask_of_all();
        assert_eq!((of(3), of(31), of(32)), (7, u32::MAX >> 1, u32::MAX));
    }
}
