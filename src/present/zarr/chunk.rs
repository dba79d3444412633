//! Which chunks an array has, and their bytes.
//!
//! | chunk | bytes |
//! |---|---|
//! | stored by all filters of the dataset, which are codecs | as stored |
//! | of such a dataset, but stored otherwise, or changed and not stored yet | encoded anew |
//! | of other datasets | elements, in the order of bytes that the document names |
//! | of strings of variable length | their number and the strings, as `vlen-utf8` has them |

use super::array::ZarrArray;
use super::dtype::Kind;
use crate::base::value::list_of;
use crate::base::variable_form::until_nul;
use crate::base::{Error, Result};
use crate::connector::stored::{MOVED_CHUNK_MAX_BYTES, encoded};
use crate::connector::{Budget, ChunkPlace};

/// Most bytes of the strings of one chunk.
const TEXT_BYTES_MAX: u64 = 64 << 20;

/// Most bytes of the same strings as they are stored: with what follows their NUL.
const STORED_TEXT_BYTES_MAX: u64 = 2 * TEXT_BYTES_MAX;

/// Strings that are read at once.
const TEXT_PART_ELEMENTS: u64 = 1 << 16;

/// Where the bytes of a chunk come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Source {
    /// From storage, as they are: this number.
    Stored(u64),
    /// From the elements, read in parts: this number.
    Elements(u64),
    /// They are made as a whole.
    Made,
}

/// The bytes of a chunk.
pub enum ChunkBytes {
    /// So many, which [`ZarrArray::read`] reads.
    Readable(u64),
    /// All of them.
    Made(Vec<u8>),
}

impl ZarrArray {
    /// Bytes of a decoded chunk.
    fn chunk_bytes(&self) -> u64 {
        let dims = self.dtype.dims.iter().fold(1u64, |n, d| n.saturating_mul(*d));
        let element = if self.dtype.segments.is_empty() { self.element_size() } else { self.dtype.size.saturating_mul(dims) };
        self.grid.chunk_elements().saturating_mul(element)
    }

    /// Coordinates in the dataset of the chunk with these coordinates in the array; `None`: there
    /// is none.
    fn scaled<'a>(&self, chunk: &'a [u64]) -> Option<&'a [u64]> {
        let (scaled, rest) = chunk.split_at_checked(self.grid.dims.len())?;
        (rest.len() == self.dtype.dims.len() && rest.iter().all(|n| *n == 0) && self.grid.contains(scaled)).then_some(scaled)
    }

    /// True if there are bytes of the chunk, in a dataset without chunks.
    fn is_written(&self, scaled: &[u64]) -> Result<bool> {
        let run = self.grid.run(scaled, 0);
        let Some(first) = run.first else { return Ok(false) };
        let (start, end) = (first.saturating_mul(self.element_size()), first.saturating_add(run.len).saturating_mul(self.element_size()));
        Ok(self.content()?.written(start)?.is_some_and(|range| range.start < end))
    }

    fn source(&self, scaled: &[u64]) -> Result<Option<Source>> {
        if self.dtype.kind == Kind::Text {
            let is_there = self.next_text(scaled)?.as_deref() == Some(scaled);
            return Ok(is_there.then_some(Source::Made));
        }
        let place = self.chunks.as_ref().map(|chunks| chunks.place(scaled)).transpose()?.flatten();
        let exists = self.shows_all() || if self.chunks.is_some() { place.is_some() } else { self.is_written(scaled)? };
        if !exists {
            return Ok(None);
        }
        let whole = self.chunk_bytes();
        let is_coded = self.codecs.is_some() && !self.info.filters.is_empty();
        Ok(Some(match place {
            Some(ChunkPlace { len, mask: Some(0), .. }) if self.codecs.is_some() && (is_coded || len == whole) => Source::Stored(len),
            _ if is_coded => Source::Made,
            _ => Source::Elements(whole),
        }))
    }

    /// The bytes of a chunk; `None`: there is no such chunk. Errors: also strings that are not
    /// UTF-8.
    pub fn chunk(&self, chunk: &[u64]) -> Result<Option<ChunkBytes>> {
        let Some(scaled) = self.scaled(chunk) else { return Ok(None) };
        Ok(Some(match self.source(scaled)? {
            None => return Ok(None),
            Some(Source::Stored(len) | Source::Elements(len)) => ChunkBytes::Readable(len),
            Some(Source::Made) if self.dtype.kind == Kind::Text => ChunkBytes::Made(self.texts(scaled)?),
            Some(Source::Made) => ChunkBytes::Made(self.encoded(scaled)?),
        }))
    }

    /// True if there is such a chunk.
    pub fn has_chunk(&self, chunk: &[u64]) -> Result<bool> {
        Ok(match self.scaled(chunk) {
            Some(scaled) => self.source(scaled)?.is_some(),
            None => false,
        })
    }

    /// The first chunk at `chunk` or after it, in row-major order. `chunk` may be outside.
    pub fn next_chunk(&self, chunk: &[u64]) -> Result<Option<Vec<u64>>> {
        let Some(scaled) = self.scaled(chunk) else { return Ok(None) };
        let next = if self.dtype.kind == Kind::Text {
            self.next_text(scaled)?
        } else if self.shows_all() {
            Some(scaled.to_vec())
        } else if let Some(chunks) = &self.chunks {
            chunks.next(scaled)?
        } else if let Some(first) = self.grid.run(scaled, 0).first {
            let size = self.element_size().max(1);
            let start = first.saturating_mul(size);
            let written = self.content()?.written(start)?;
            written.map(|range| self.grid.chunk_of(range.start.max(start).checked_div(size).unwrap_or(0)))
        } else {
            None
        };
        Ok(next.map(|mut all| {
            all.resize(self.rank(), 0);
            all
        }))
    }

    /// The first chunk of strings at `scaled` or after it that may have some which were written.
    fn next_text(&self, scaled: &[u64]) -> Result<Option<Vec<u64>>> {
        let (Some(texts), Some(stored)) = (&self.texts, &self.info.chunks) else { return Ok(Some(scaled.to_vec())) };
        let dims = &self.grid.dims;
        let first: Vec<u64> = scaled.iter().zip(&self.grid.chunk).map(|(s, c)| s.saturating_mul(*c)).collect();
        // Stored chunks that may hold an element from the first one on begin with `from`: those of
        // one row of the dimensions before, and all of the dimensions after.
        let rows = stored.iter().zip(dims).take_while(|(c, d)| **c == 1 || **d == 1).count();
        let mut from: Vec<u64> = first.iter().zip(stored).map(|(at, c)| at.checked_div(*c).unwrap_or(0)).collect();
        from.iter_mut().skip(rows.saturating_add(1)).for_each(|n| *n = 0);
        let Some(found) = texts.next(&from)? else { return Ok(None) };
        let kept = rows.saturating_add(1).min(from.len());
        if found.get(..kept) == from.get(..kept) {
            return Ok(Some(scaled.to_vec()));
        }
        // Its first element, or one before that, is in a chunk after this one.
        let place = |(at, (n, c)): (usize, (&u64, &u64))| if at < kept { n.saturating_mul(*c) } else { 0 };
        let begin = found.iter().zip(stored).enumerate().map(place);
        let next: Vec<u64> = begin.zip(&self.grid.chunk).map(|(at, c)| at.checked_div(*c).unwrap_or(0)).collect();
        Ok(Some(if next.as_slice() > scaled { next } else { scaled.to_vec() }))
    }

    /// First byte in the file of a chunk whose bytes are stored as they are; `None`: they are in no
    /// file, or not in one piece.
    pub(super) fn offset_of(&self, chunk: &[u64]) -> Result<Option<u64>> {
        let Some(scaled) = self.scaled(chunk) else { return Ok(None) };
        if let Some(chunks) = &self.chunks {
            let is_stored = matches!(self.source(scaled)?, Some(Source::Stored(_)));
            return Ok(if is_stored { chunks.place(scaled)?.and_then(|place| place.offset) } else { None });
        }
        let run = self.grid.run(scaled, 0);
        let Some((start, first)) = self.contiguous_at().zip(run.first) else { return Ok(None) };
        let is_whole = run.len == self.grid.chunk_elements();
        Ok(start.checked_add(first.saturating_mul(self.element_size())).filter(|_| is_whole))
    }

    /// First byte of a contiguous dataset whose elements are those of the array.
    pub(super) fn contiguous_at(&self) -> Option<u64> {
        let plain = self.dtype.kind != Kind::Text && self.dtype.segments.is_empty() && self.info.filters.is_empty();
        self.info.offset.filter(|_| plain && self.chunks.is_none() && !self.info.is_elsewhere)
    }

    /// The number of a chunk in row-major order; `None`: there is none, or 2^63 come before it.
    pub fn number_of(&self, chunk: &[u64]) -> Option<u64> {
        let scaled = self.scaled(chunk)?;
        let number = scaled.iter().zip(self.grid.counts()).try_fold(0u64, |n, (s, count)| n.checked_mul(count)?.checked_add(*s));
        number.filter(|n| *n < 1 << 63)
    }

    /// The chunk with this number; `None`: there are fewer.
    pub fn chunk_at(&self, number: u64) -> Option<Vec<u64>> {
        let counts = self.grid.counts();
        let mut chunk = vec![0; counts.len()];
        let mut rest = number;
        for (n, count) in chunk.iter_mut().zip(&counts).rev() {
            *n = rest.checked_rem(*count)?;
            rest = rest.checked_div(*count)?;
        }
        chunk.resize(self.rank(), 0);
        (rest == 0).then_some(chunk)
    }

    /// Fills the front of `buf` from byte `offset` of a chunk whose bytes are readable; fewer bytes
    /// only at its end.
    pub fn read(&self, chunk: &[u64], offset: u64, buf: &mut [u8]) -> Result<usize> {
        let Some(scaled) = self.scaled(chunk) else { return Ok(0) };
        match (self.source(scaled)?, &self.chunks) {
            (Some(Source::Stored(_)), Some(chunks)) if !self.info.filters.is_empty() => chunks.read(scaled, offset, buf),
            // Without filters they are the elements, whatever length a damaged index says.
            (Some(Source::Stored(len) | Source::Elements(len)), _) => {
                let n = usize::try_from(len.saturating_sub(offset)).unwrap_or(usize::MAX).min(buf.len());
                let Some(buf) = buf.get_mut(..n) else { return Ok(0) };
                self.read_elements(scaled, offset, buf).map(|()| n)
            }
            _ => Ok(0),
        }
    }

    /// Fills `buf` from byte `offset` of the elements of a chunk.
    fn read_elements(&self, scaled: &[u64], offset: u64, buf: &mut [u8]) -> Result<()> {
        if self.dtype.segments.is_empty() {
            return self.read_raw(scaled, offset, buf);
        }
        // Whole elements are converted.
        let dims = self.dtype.dims.iter().fold(1u64, |n, d| n.saturating_mul(*d)).max(1);
        let (to, from) = (self.dtype.size.max(1), self.element_size().checked_div(dims).unwrap_or(1).max(1));
        let first = offset.checked_div(to).unwrap_or(0);
        let end = offset.saturating_add(buf.len() as u64).div_ceil(to);
        let bytes = end.saturating_sub(first).saturating_mul(from);
        let limit = || Error::refused(libc::EFBIG, "the elements of one request are too large");
        let bytes = usize::try_from(bytes).ok().filter(|n| *n as u64 <= MOVED_CHUNK_MAX_BYTES).ok_or_else(limit)?;
        let mut raw = vec![0; bytes];
        self.read_raw(scaled, first.saturating_mul(from), &mut raw)?;
        let made = self.dtype.convert(&raw, usize::try_from(from).unwrap_or(usize::MAX));
        let skip = usize::try_from(offset.saturating_sub(first.saturating_mul(to))).unwrap_or(usize::MAX);
        let part = made.get(skip..).unwrap_or_default();
        buf.iter_mut().zip(part).for_each(|(to, from)| *to = *from);
        Ok(())
    }

    /// Fills `buf` from byte `offset` of the elements of a chunk as the dataset has them; those
    /// outside of the dataset have the fill value.
    fn read_raw(&self, scaled: &[u64], offset: u64, buf: &mut [u8]) -> Result<()> {
        let (size, content) = (self.element_size().max(1), self.content()?);
        let mut done = 0usize;
        while let Some(rest) = buf.get_mut(done..).filter(|rest| !rest.is_empty()) {
            let at = offset.saturating_add(done as u64);
            let (element, within) = (at.checked_div(size).unwrap_or(0), at.checked_rem(size).unwrap_or(0));
            let run = self.grid.run(scaled, element);
            let len = usize::try_from(run.len.saturating_mul(size).saturating_sub(within)).unwrap_or(usize::MAX).min(rest.len());
            let part = rest.get_mut(..len).unwrap_or_default();
            match run.first {
                Some(first) => {
                    let n = content.read(first.saturating_mul(size).saturating_add(within), part)?;
                    // The dataset became smaller.
                    part.get_mut(n..).unwrap_or_default().fill(0);
                }
                None => self.pad(within, part),
            }
            done = done.saturating_add(len.max(1));
        }
        Ok(())
    }

    /// Fills `buf` with the fill value from its byte `within` on.
    fn pad(&self, within: u64, buf: &mut [u8]) {
        if self.fill.is_empty() {
            return buf.fill(0);
        }
        let skip = usize::try_from(within).unwrap_or(0);
        buf.iter_mut().zip(self.fill.iter().cycle().skip(skip)).for_each(|(to, from)| *to = *from);
    }

    /// All elements of a chunk, encoded by all filters.
    fn encoded(&self, scaled: &[u64]) -> Result<Vec<u8>> {
        let limit = || Error::refused(libc::EFBIG, format!("a chunk has more than {MOVED_CHUNK_MAX_BYTES} bytes"));
        let len = usize::try_from(self.chunk_bytes()).ok().filter(|n| *n as u64 <= MOVED_CHUNK_MAX_BYTES).ok_or_else(limit)?;
        let mut bytes = vec![0; len];
        self.read_elements(scaled, 0, &mut bytes)?;
        encoded(&self.info.filters, bytes)
    }

    /// The strings of a chunk: their number, then the length and the bytes of each.
    fn texts(&self, scaled: &[u64]) -> Result<Vec<u8>> {
        let elements = self.grid.chunk_elements();
        let count = u32::try_from(elements).ok().filter(|_| elements <= TEXT_BYTES_MAX / 4);
        let count = count.ok_or_else(|| Error::refused(libc::EFBIG, "too many strings in a chunk"))?;
        let mut out = count.to_le_bytes().to_vec();
        let mut budget = Budget::new(TEXT_BYTES_MAX);
        let (mut at, mut stored) = (0u64, 0u64);
        while at < elements {
            let run = self.grid.run(scaled, at);
            let len = run.len.clamp(1, TEXT_PART_ELEMENTS);
            at = at.saturating_add(len);
            let Some(first) = run.first else {
                (0..len).for_each(|_| out.extend_from_slice(&[0; 4]));
                continue;
            };
            let range = first..first.saturating_add(len);
            let value = self.connector.elements_in(self.id, range.clone())?;
            debug_assert_eq!(value.shape, list_of(&range));
            let size = usize::try_from(value.datatype.size).unwrap_or(usize::MAX).max(1);
            for element in value.bytes.chunks_exact(size) {
                stored = stored.saturating_add(value.parts.count(element)?.into());
            }
            if stored > STORED_TEXT_BYTES_MAX {
                return Err(Error::refused(libc::EFBIG, "the strings of a chunk are too large"));
            }
            for element in value.bytes.chunks_exact(size) {
                let bytes = value.parts.sequence(element, 1, &mut budget)?;
                let text = until_nul(&bytes);
                if std::str::from_utf8(text).is_err() {
                    return Err(Error::refused(libc::EILSEQ, "a string is not UTF-8, which Zarr requires"));
                }
                budget.output((text.len() as u64).saturating_add(4))?;
                let len = u32::try_from(text.len()).unwrap_or(u32::MAX);
                out.extend_from_slice(&len.to_le_bytes());
                out.extend_from_slice(text);
            }
        }
        Ok(out)
    }
}
