//! Chunks without filters, stored up to their last written byte. All other elements have the fill
//! value. Containers of objects have such chunks.

use super::parts::Parts;
use super::traits::{ChunkFormat, Large, LargeReader, memory_len};
use crate::base::{Address, Error, Result, buffers};
use crate::dataset::chunk::dirty_file::{DirtyFile, Stored};
use crate::dataset::chunk::image::{ChunkImage, DenseImage, Image};
use crate::dataset::chunk::source::ChunkSource;
use crate::dataset::environment::Environment;
use crate::dataset::fill::FillPattern;
use crate::format::chunk_record::{ChunkRecord, StoredForm};
use std::any::Any;
use std::ops::Range;
use std::sync::Arc;

/// What all chunks of a dataset have in common.
#[derive(Debug, PartialEq, Eq)]
struct Whole {
    /// Bytes of a chunk's elements.
    bytes: u64,
    /// Value of elements that were never written.
    fill: FillPattern,
}

/// Chunks that are stored up to their last written byte.
struct Prefix(Arc<Whole>);

/// Opens the format, for a dataset without filters.
pub(super) fn open(parts: &Parts<'_>) -> Arc<dyn ChunkFormat> {
    Arc::new(Prefix(Arc::new(Whole { bytes: parts.chunk_bytes, fill: parts.fill.clone() })))
}

/// Filtered chunks that are a prefix in memory until they are encoded: what was written to a new
/// one may be far less than a chunk.
struct FilteredPrefix {
    filtered: Arc<dyn ChunkFormat>,
    whole: Arc<Whole>,
}

/// The format of chunks that `filtered` stores, for a dataset with filters.
pub(super) fn filtered(filtered: Arc<dyn ChunkFormat>, parts: &Parts<'_>) -> Arc<dyn ChunkFormat> {
    Arc::new(FilteredPrefix { filtered, whole: Arc::new(Whole { bytes: parts.chunk_bytes, fill: parts.fill.clone() }) })
}

/// A chunk in memory: its first bytes.
#[derive(Debug)]
struct PrefixImage {
    whole: Arc<Whole>,
    bytes: Vec<u8>,
}

impl Drop for PrefixImage {
    fn drop(&mut self) {
        buffers::give(std::mem::take(&mut self.bytes));
    }
}

impl PrefixImage {
    /// The range of `len` bytes from `at`. `None`: out of range.
    fn range(&self, at: u64, len: usize) -> Option<(usize, usize)> {
        let end = at.checked_add(len as u64).filter(|end| *end <= self.whole.bytes)?;
        Some((usize::try_from(at).ok()?, usize::try_from(end).ok()?))
    }

    /// Appends fill values until it has `len` bytes at least.
    fn extend(&mut self, len: usize) {
        let old = self.bytes.len();
        if old < len {
            self.bytes.resize(len, 0);
            self.whole.fill.fill(old as u64, self.bytes.get_mut(old..).unwrap_or_default());
        }
    }
}

impl ChunkImage for PrefixImage {
    fn element_bytes(&self) -> u64 {
        self.whole.bytes
    }

    fn memory(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn read(&self, at: u64, buf: &mut [u8]) -> Option<()> {
        let (start, end) = self.range(at, buf.len())?;
        let there = self.bytes.get(start..end.min(self.bytes.len())).unwrap_or_default();
        let (head, tail) = buf.split_at_mut_checked(there.len())?;
        head.copy_from_slice(there);
        self.whole.fill.fill(at.checked_add(there.len() as u64)?, tail);
        Some(())
    }

    fn write(&mut self, at: u64, bytes: &[u8]) -> Option<()> {
        let (start, end) = self.range(at, bytes.len())?;
        self.extend(start);
        let (head, tail) = bytes.split_at_checked(end.min(self.bytes.len()).checked_sub(start)?)?;
        self.bytes.get_mut(start..start.checked_add(head.len())?)?.copy_from_slice(head);
        self.bytes.extend_from_slice(tail);
        Some(())
    }

    fn is_blank(&self, parts: &[(usize, usize)]) -> bool {
        parts.iter().all(|(at, len)| {
            let end = at.saturating_add(*len);
            let there = self.bytes.get(*at..end.min(self.bytes.len())).unwrap_or_default();
            there.iter().all(|b| *b == 0) && (end <= self.bytes.len() || self.whole.fill.is_zero())
        })
    }

    fn clear(&mut self, parts: &[(usize, usize)]) {
        for (at, len) in parts {
            let Some((start, end)) = self.range(*at as u64, *len) else { continue };
            if !self.whole.fill.is_zero() {
                self.extend(end);
            }
            let there = end.min(self.bytes.len());
            self.bytes.get_mut(start..there).unwrap_or_default().fill(0);
        }
    }

    fn fill(&mut self, range: Range<u64>, fill: &FillPattern) {
        let start = usize::try_from(range.start).unwrap_or(usize::MAX).min(self.bytes.len());
        match usize::try_from(range.end).ok().and_then(|end| self.bytes.get_mut(start..end)) {
            Some(part) => fill.fill(range.start, part),
            None => self.bytes.truncate(start),
        }
    }

    fn duplicate(&self) -> Image {
        let len = self.bytes.len();
        // Room for what a write may append.
        let mut bytes = buffers::empty(len, len.saturating_add(len / 8));
        bytes.extend_from_slice(&self.bytes);
        Box::new(PrefixImage { whole: self.whole.clone(), bytes })
    }

    fn dense(&self) -> Option<&[u8]> {
        (self.bytes.len() as u64 == self.whole.bytes).then_some(&self.bytes)
    }

    fn into_dense(mut self: Box<Self>) -> Option<Vec<u8>> {
        self.extend(memory_len(self.whole.bytes, Address::UNDEF).ok()?);
        Some(std::mem::take(&mut self.bytes))
    }
}

impl ChunkFormat for Prefix {
    fn has_variable_size(&self) -> bool {
        true
    }

    fn is_plain(&self, _is_edge: bool) -> bool {
        false
    }

    fn is_stored_like(&self, other: &dyn ChunkFormat) -> bool {
        (other as &dyn Any).downcast_ref::<Prefix>().is_some_and(|other| other.0 == self.0)
    }

    fn blank(&self, fill: Option<&FillPattern>) -> Result<Image> {
        let len = memory_len(self.0.bytes, Address::UNDEF)?;
        // Small files stay small.
        let bytes = if fill.is_some() { Vec::new() } else { buffers::empty(len, len.saturating_add(len / 8)) };
        Ok(Box::new(PrefixImage { whole: self.0.clone(), bytes }))
    }

    fn decode(&self, source: &dyn ChunkSource, record: ChunkRecord, _is_edge: bool) -> Result<Image> {
        let len = memory_len(record.size, record.address)?;
        self.decode_fetched(source.bytes(record.address, len)?.into_owned(), record)
    }

    fn decode_fetched(&self, stored: Vec<u8>, record: ChunkRecord) -> Result<Image> {
        if stored.len() as u64 > self.0.bytes {
            return Err(Error::corrupt("chunk", record.address, "it is longer than chunks of its dataset"));
        }
        Ok(Box::new(PrefixImage { whole: self.0.clone(), bytes: stored }))
    }

    fn stored_as_is<'a>(&self, image: &'a dyn ChunkImage) -> Option<&'a [u8]> {
        Some(&(image as &dyn Any).downcast_ref::<PrefixImage>()?.bytes)
    }

    fn encode(&self, image: Image, _is_edge: bool) -> Result<(Vec<u8>, StoredForm)> {
        let other = || Error::corrupt("chunk", Address::UNDEF, "the decoded chunk is one of another format");
        let bytes = (image as Box<dyn Any>).downcast::<PrefixImage>().map(|mut image| std::mem::take(&mut image.bytes));
        Ok((bytes.map_err(|_| other())?, StoredForm::WHOLE))
    }

    fn open_large<'a>(&'a self, _reader: LargeReader<'a>) -> Result<Option<Large<'a>>> {
        Ok(None)
    }

    fn changes_in_files(&self, env: &Environment) -> bool {
        self.0.bytes <= env.chunk_files.capacity()
    }

    fn stored_in_file(&self, end: u64) -> Option<u64> {
        Some(end)
    }
}

impl ChunkFormat for FilteredPrefix {
    fn has_variable_size(&self) -> bool {
        true
    }

    fn is_plain(&self, _is_edge: bool) -> bool {
        false
    }

    fn is_stored_like(&self, other: &dyn ChunkFormat) -> bool {
        let other = (other as &dyn Any).downcast_ref::<FilteredPrefix>();
        other.is_some_and(|other| other.whole == self.whole && self.filtered.is_stored_like(&*other.filtered))
    }

    fn blank(&self, fill: Option<&FillPattern>) -> Result<Image> {
        Prefix(self.whole.clone()).blank(fill)
    }

    fn decode(&self, source: &dyn ChunkSource, record: ChunkRecord, is_edge: bool) -> Result<Image> {
        self.filtered.decode(source, record, is_edge)
    }

    fn encode(&self, image: Image, is_edge: bool) -> Result<(Vec<u8>, StoredForm)> {
        let whole = image.into_dense().ok_or_else(|| Error::corrupt("chunk", Address::UNDEF, "the decoded chunk is not dense"))?;
        self.filtered.encode(DenseImage::boxed(whole), is_edge)
    }

    fn open_large<'a>(&'a self, _reader: LargeReader<'a>) -> Result<Option<Large<'a>>> {
        Ok(None)
    }

    fn changes_in_files(&self, env: &Environment) -> bool {
        self.filtered.changes_in_files(env)
    }

    fn encode_file(&self, env: &Environment, file: &DirtyFile) -> Result<Stored> {
        self.filtered.encode_file(env, file)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::filter::Pipeline;

    fn format(fill: &FillPattern) -> Arc<dyn ChunkFormat> {
        let (chunk_dims, pipeline) = (&[4, 4][..], &Pipeline::default());
        open(&Parts { chunk_bytes: 16, chunk_dims, element_size: 1, fill, pipeline, sections: None, raw_edges: false })
    }

    fn record(size: u64) -> ChunkRecord {
        ChunkRecord { address: Address(7), size, form: StoredForm::WHOLE }
    }

    #[test]
    fn a_chunk_is_stored_up_to_its_last_written_byte() {
        for (fill, value) in [(FillPattern::zero(), 0), (FillPattern::new(&[9], 1), 9)] {
            let f = format(&fill);
            let mut image = f.decode_fetched(vec![1, 2, 3], record(3)).unwrap();
            assert_eq!((image.element_bytes(), image.memory()), (16, 3));
            image.write(5, &[6, 7]).unwrap();
            assert_eq!(f.stored_as_is(&*image).unwrap(), [1, 2, 3, value, value, 6, 7]);
            assert!(image.write(15, &[1, 2]).is_none() && image.write(u64::MAX, &[1]).is_none() && image.read(16, &mut [0]).is_none());
            image.write(6, &[8, 9]).unwrap();
            let mut buf = [1; 16];
            image.read(0, &mut buf).unwrap();
            assert_eq!(buf[..9], [1, 2, 3, value, value, 6, 8, 9, value]);
            let copy = image.duplicate();
            image.fill(4..u64::MAX, &fill);
            image.clear(&[(1, 1), (6, 2)]);
            assert_eq!((image.is_blank(&[(1, 1)]), image.is_blank(&[(8, 8)])), (true, value == 0));
            assert!(!image.is_blank(&[(0, 2)]));
            image.read(0, &mut buf).unwrap();
            assert_eq!(buf[..9], [1, 0, 3, value, value, value, 0, 0, value]);
            // Zeros that the fill value stands for are not stored.
            assert_eq!(f.encode(image, false).unwrap().0.len(), if value == 0 { 4 } else { 8 });
            assert_eq!(copy.into_dense().unwrap()[8..], [value; 8]);
            assert_eq!(f.blank(Some(&fill)).unwrap().into_dense().unwrap(), [value; 16]);
        }
        assert!(format(&FillPattern::zero()).decode_fetched(vec![0; 17], record(17)).is_err());
    }
}
