//! Chunks in memory that are not encoded, in the form that the format of their dataset works with.

use crate::base::{Address, Error, Result};
use crate::dataset::chunk::changed::{ChangedChunk, SharedImage, Unencoded};
use crate::dataset::chunk::file_image::FileImage;
use crate::iod::{self, Ranges};
use std::ops::Range;
use std::sync::Arc;

/// Bytes that are copied at a time.
const PIECE_BYTES: u64 = 256 << 10;

/// What a session makes of a value.
pub(super) type Body = iod::Body<Arc<DirtyImage>>;
/// A change that is not committed.
pub(super) type Change = iod::Change<Arc<DirtyImage>>;
/// Changes of a session since its last commit.
pub(super) type Changes = iod::Changes<Arc<DirtyImage>>;

/// A chunk that changed, in the states that have it: all of them show its present bytes.
#[derive(Debug)]
pub(super) struct DirtyImage {
    pub chunk: ChangedChunk,
    /// Number of the state in which it was made.
    pub made_in: u64,
}

impl DirtyImage {
    /// Made in the state of this number.
    pub fn new(image: SharedImage, made_in: u64) -> Arc<DirtyImage> {
        Arc::new(DirtyImage { chunk: ChangedChunk::new(image), made_in })
    }

    /// Bytes of memory.
    pub fn memory(&self) -> usize {
        self.chunk.now().memory()
    }
}

/// The error of bytes that a chunk of the dataset `id` does not have.
pub(super) fn out_of_range(id: u64) -> Error {
    Error::corrupt("chunk", Address(id), "shorter than its dimensions say")
}

impl Unencoded {
    /// Bytes of memory.
    pub(super) fn memory(&self) -> usize {
        usize::try_from(self.0.memory()).unwrap_or(usize::MAX)
    }

    /// Bytes that were written, or those in memory: its stored length is not known.
    pub(super) fn written_bytes(&self, element_size: u64) -> u64 {
        let all = FileImage::of(&*self.0).map_or_else(|| self.0.memory(), FileImage::end);
        self.0.defined().map_or(all, |set| set.elements().saturating_mul(element_size))
    }

    /// What `done` says of work with it: the error of its file, or that bytes are out of range of
    /// the dataset `id`.
    pub(super) fn check(&self, done: Option<()>, id: u64) -> Result<()> {
        match self.0.take_failure() {
            Some(e) => Err(e),
            None => done.ok_or_else(|| out_of_range(id)),
        }
    }

    /// Replaces `ranges`, bytes of the chunk, by what `from` has there: values, and which of its
    /// elements are defined. `dims`: dimensions of the chunk, elements; `size`: bytes of one.
    /// `None`: a chunk does not have these dimensions.
    pub(super) fn take(&mut self, from: &Unencoded, ranges: &Ranges, dims: &[u64], size: u64) -> Option<()> {
        for (start, end) in ranges.list() {
            let bytes = u64::from(*start)..u64::from(*end).min(self.0.element_bytes());
            if bytes.is_empty() {
                continue;
            }
            let Some(defined) = from.0.defined() else {
                self.copy(from, bytes)?;
                continue;
            };
            let len = usize::try_from(bytes.end.saturating_sub(bytes.start)).ok()?;
            self.0.clear(&[(usize::try_from(bytes.start).ok()?, len)]);
            let mut at = bytes.start.checked_div(size)?;
            while let Some(first) = defined.next_element(dims, at).filter(|n| n.saturating_mul(size) < bytes.end) {
                at = defined.next_gap(dims, first);
                self.copy(from, first.saturating_mul(size).max(bytes.start)..at.saturating_mul(size).min(bytes.end))?;
            }
        }
        Some(())
    }

    /// Copies the bytes in `range`. `None`: out of range.
    fn copy(&mut self, from: &Unencoded, range: Range<u64>) -> Option<()> {
        let mut at = range.start;
        while at < range.end {
            let len = usize::try_from(range.end.saturating_sub(at).min(PIECE_BYTES)).ok()?;
            let mut piece = vec![0; len];
            from.0.read(at, &mut piece)?;
            self.0.write(at, &piece)?;
            at = at.saturating_add(len as u64);
        }
        Some(())
    }
}
