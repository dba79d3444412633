//! A decoded chunk in memory, in the form that its chunk format works with.

use super::pieces::{ByteGrid, ChunkPieces};
use crate::base::element_set::ElementSet;
use crate::base::{Error, buffers};
use crate::dataset::fill::FillPattern;
use std::any::Any;
use std::fmt::Debug;
use std::ops::Range;

/// A decoded chunk of any format.
pub(crate) type Image = Box<dyn ChunkImage>;

/// A decoded chunk. Offsets are bytes of the chunk's elements, row-major.
pub(crate) trait ChunkImage: Any + Debug + Send + Sync {
    /// Bytes of the chunk's elements.
    fn element_bytes(&self) -> u64;

    /// Memory, bytes.
    fn memory(&self) -> u64;

    /// Copies the pieces `t` of a request to the request's buffer. `None`: a piece is out of range.
    fn scatter(&self, grid: &ByteGrid, t: &ChunkPieces, buf: &mut [u8]) -> Option<()> {
        for p in &t.pieces {
            for (at, to) in grid.rows(p) {
                self.read(at, buf.get_mut(to..to.checked_add(p.len)?)?)?;
            }
        }
        Some(())
    }

    /// Copies the pieces `t` of a request from the request's buffer. `None`: a piece is out of
    /// range.
    fn gather(&mut self, grid: &ByteGrid, t: &ChunkPieces, buf: &[u8]) -> Option<()> {
        for p in &t.pieces {
            for (at, from) in grid.rows(p) {
                self.write(at, buf.get(from..from.checked_add(p.len)?)?)?;
            }
        }
        Some(())
    }

    /// Fills `buf` with the bytes from `at`. `None`: out of range.
    fn read(&self, at: u64, buf: &mut [u8]) -> Option<()>;

    /// Writes `bytes` at `at`. `None`: out of range.
    fn write(&mut self, at: u64, bytes: &[u8]) -> Option<()>;

    /// True if nothing is lost when all `parts`, offsets and lengths, are cleared: they are zero
    /// bytes, or undefined where the image knows that.
    fn is_blank(&self, parts: &[(usize, usize)]) -> bool;

    /// Zeroes `parts`, offsets and lengths, or makes their elements undefined.
    fn clear(&mut self, parts: &[(usize, usize)]);

    /// Stores the fill value in the bytes `range`, or makes their elements undefined.
    fn fill(&mut self, range: Range<u64>, fill: &FillPattern);

    /// The elements that were written, if the image knows them.
    fn defined(&self) -> Option<&ElementSet> {
        None
    }

    /// An independent copy.
    fn duplicate(&self) -> Image;

    /// The bytes of all elements, if the image is dense. Only dense images go to the disk cache.
    fn dense(&self) -> Option<&[u8]>;

    /// Converts a dense image to the bytes of all elements, without a copy.
    fn into_dense(self: Box<Self>) -> Option<Vec<u8>>;

    /// The first error of its file since the last call: something was not read or changed.
    fn take_failure(&self) -> Option<Error> {
        None
    }
}

/// All elements, row-major.
#[derive(Debug)]
pub(crate) struct DenseImage(Vec<u8>);

impl DenseImage {
    /// The image of these bytes.
    pub(crate) fn boxed(bytes: Vec<u8>) -> Image {
        Box::new(DenseImage(bytes))
    }

    fn part(&mut self, at: usize, len: usize) -> Option<&mut [u8]> {
        self.0.get_mut(at..at.checked_add(len)?)
    }
}

impl Drop for DenseImage {
    fn drop(&mut self) {
        buffers::give(std::mem::take(&mut self.0));
    }
}

impl ChunkImage for DenseImage {
    fn element_bytes(&self) -> u64 {
        self.0.len() as u64
    }

    fn memory(&self) -> u64 {
        self.element_bytes()
    }

    fn scatter(&self, grid: &ByteGrid, t: &ChunkPieces, buf: &mut [u8]) -> Option<()> {
        grid.scatter(t, &self.0, 0, buf)
    }

    fn gather(&mut self, grid: &ByteGrid, t: &ChunkPieces, buf: &[u8]) -> Option<()> {
        grid.gather(t, buf, &mut self.0)
    }

    fn read(&self, at: u64, buf: &mut [u8]) -> Option<()> {
        let from = usize::try_from(at).ok()?;
        buf.copy_from_slice(self.0.get(from..from.checked_add(buf.len())?)?);
        Some(())
    }

    fn write(&mut self, at: u64, bytes: &[u8]) -> Option<()> {
        self.part(usize::try_from(at).ok()?, bytes.len())?.copy_from_slice(bytes);
        Some(())
    }

    fn is_blank(&self, parts: &[(usize, usize)]) -> bool {
        parts.iter().all(|(at, len)| self.0.get(*at..at.saturating_add(*len)).is_some_and(|b| b.iter().all(|b| *b == 0)))
    }

    fn clear(&mut self, parts: &[(usize, usize)]) {
        for (at, len) in parts {
            if let Some(part) = self.part(*at, *len) {
                part.fill(0);
            }
        }
    }

    fn fill(&mut self, range: Range<u64>, fill: &FillPattern) {
        let len = self.0.len();
        let end = |n: u64| usize::try_from(n).unwrap_or(usize::MAX).min(len);
        if let Some(part) = self.0.get_mut(end(range.start)..end(range.end)) {
            fill.fill(range.start, part);
        }
    }

    fn duplicate(&self) -> Image {
        DenseImage::boxed(self.0.clone())
    }

    fn dense(&self) -> Option<&[u8]> {
        Some(&self.0)
    }

    fn into_dense(mut self: Box<Self>) -> Option<Vec<u8>> {
        Some(std::mem::take(&mut self.0))
    }
}
