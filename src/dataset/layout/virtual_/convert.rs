//! Fetches segments from a source in few reads, and converts numbers.
//!
//! libhdf5 reads a source with the virtual dataset's type, so any of its conversions may occur.
//! Supported are equal types, and conversion between integers and IEEE floats of whole bytes
//! (H5Tconv: values out of range saturate, fractions are truncated; integers of equal size that
//! differ in byte order keep their bits even if the signedness differs).
//!
//! A value is written only if it reads back as the same value.

use super::dataset::{Segment, Source};
use crate::base::{Address, Error, Result};
use crate::dataset::layout::source_reads::SourceReads;
use std::sync::Arc;

/// Most segments collected before they are fetched.
const SEGMENTS_MAX: usize = 8192;
/// Most bytes of one read that fetches several segments.
const FETCH_MAX_BYTES: u64 = 1 << 20;
/// Largest gap between segments that one read fetches together, bytes.
const FETCH_GAP_MAX_BYTES: u64 = 1 << 10;

/// A number type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Number {
    float: bool,
    signed: bool,
    big_endian: bool,
    size: usize,
}

/// Conversion of a source's elements to the virtual dataset's type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Transfer {
    /// Copies bytes.
    Same,
    /// Converts values.
    Convert {
        /// Source type.
        from: Number,
        /// Virtual type.
        to: Number,
    },
}

impl Number {
    /// The number type of an encoded datatype message; `None` if it cannot be converted.
    fn parse(bytes: &[u8]) -> Option<Number> {
        let size = usize::from(*bytes.get(4)?);
        let bits = *bytes.get(1)?;
        let properties = bytes.get(8..)?;
        let number = |float, signed| Some(Number { float, signed, big_endian: bits & 1 != 0, size });
        let precision = u8::try_from(size.checked_mul(8)?).ok()?;
        if bytes.get(5..8)? != [0, 0, 0] || !properties.starts_with(&[0, 0, precision, 0]) {
            return None;
        }
        match (bytes.first()? & 0xf, size) {
            (0, 1 | 2 | 4 | 8) => number(false, bits & 8 != 0),
            (1, 4) if bits & 0x40 == 0 && bytes.get(2) == Some(&31) && properties.get(4..12)? == [23, 8, 0, 23, 127, 0, 0, 0] => {
                number(true, true)
            }
            (1, 8) if bits & 0x40 == 0 && bytes.get(2) == Some(&63) && properties.get(4..12)? == [52, 11, 0, 52, 255, 3, 0, 0] => {
                number(true, true)
            }
            _ => None,
        }
    }

    /// The value of an element, as an integer or, for float types, as a float.
    fn get(&self, element: &[u8]) -> (i128, f64) {
        let mut raw = [0u8; 8];
        for (to, from) in raw.iter_mut().zip(element) {
            *to = *from;
        }
        if self.big_endian {
            raw.get_mut(..self.size).unwrap_or_default().reverse();
        }
        let n = u64::from_le_bytes(raw);
        match (self.float, self.signed, self.size) {
            (true, _, 4) => (0, f64::from(f32::from_bits(n as u32))),
            (true, _, _) => (0, f64::from_bits(n)),
            (false, true, 1) => (i128::from(n as u8 as i8), 0.0),
            (false, true, 2) => (i128::from(n as u16 as i16), 0.0),
            (false, true, 4) => (i128::from(n as u32 as i32), 0.0),
            (false, true, _) => (i128::from(n as i64), 0.0),
            (false, false, _) => (i128::from(n), 0.0),
        }
    }

    /// Encodes a value of type `from`, in the first `size` bytes of the result.
    fn put(&self, value: (i128, f64), from: &Number) -> [u8; 8] {
        let n = if self.float && self.size == 4 {
            // Converts 64-bit integers directly to 32-bit floats, to avoid double rounding.
            u64::from(if from.float { value.1 as f32 } else { value.0 as f32 }.to_bits())
        } else if self.float {
            if from.float { value.1 } else { value.0 as f64 }.to_bits()
        } else if !from.float && from.size == self.size && from.big_endian != self.big_endian {
            value.0 as u64
        } else {
            let bits = u32::try_from(self.size).unwrap_or(8).saturating_mul(8);
            let one = 1i128;
            let (min, max) = match self.signed {
                true => (-(one << bits.saturating_sub(1)), (one << bits.saturating_sub(1)).saturating_sub(1)),
                false => (0, (one << bits).saturating_sub(1)),
            };
            // Casting a float saturates and truncates the fraction; NaN becomes 0, as in libhdf5's
            // software conversion (in its hardware conversion NaN depends on the processor).
            (if from.float { value.1 as i128 } else { value.0 }).clamp(min, max) as u64
        };
        let mut raw = n.to_le_bytes();
        if self.big_endian {
            raw.get_mut(..self.size).unwrap_or_default().reverse();
        }
        raw
    }
}

impl Transfer {
    /// Chooses the conversion between two encoded datatypes. Ignores the message version.
    pub(super) fn new(virtual_type: &[u8], virtual_size: u64, source_type: &[u8], source_size: u64) -> Result<Self> {
        let (a, b) = (virtual_type.split_first(), source_type.split_first());
        if let (Some((a, rest)), Some((b, other))) = (a, b)
            && a & 0xf == b & 0xf
            && rest == other
            && virtual_size == source_size
        {
            return Ok(Transfer::Same);
        }
        match (Number::parse(source_type), Number::parse(virtual_type)) {
            (Some(from), Some(to)) if from.size as u64 == source_size && to.size as u64 == virtual_size => {
                Ok(Transfer::Convert { from, to })
            }
            _ => Err(Error::unsupported("virtual dataset", Address::UNDEF, "a source has another datatype")),
        }
    }

    /// Appends the stored form of `value`, an element of the virtual dataset, to `stored`. Errors:
    /// `ERANGE` if it would read back as another value.
    pub(super) fn store(&self, value: &[u8], stored: &mut Vec<u8>) -> Result<()> {
        let Transfer::Convert { from, to } = self else {
            stored.extend_from_slice(value);
            return Ok(());
        };
        let put = from.put(to.get(value), to);
        let there = put.get(..from.size).unwrap_or_default();
        let back = to.put(from.get(there), from);
        let is_nan = |n: &Number, raw: &[u8]| n.float && n.get(raw).1.is_nan();
        if back.get(..to.size) != Some(value) && !(is_nan(to, value) && is_nan(from, there)) {
            return Err(Error::refused(libc::ERANGE, "a source of the virtual dataset has a type without this value"));
        }
        stored.extend_from_slice(there);
        Ok(())
    }
}

/// Collects segments and fetches them into a buffer.
pub(super) struct Gather<'b> {
    element_size: u64,
    datatype: &'b [u8],
    reads: SourceReads<'b>,
    /// Byte of the extent at which `buf` begins.
    byte_offset: u64,
    buf: &'b mut [u8],
    /// Source of `segments`.
    source: Option<(Arc<dyn Source>, Transfer)>,
    segments: Vec<Segment>,
    /// End of the last segment, a virtual element.
    reach: u64,
}

impl<'b> Gather<'b> {
    /// Collects for `buf`, which begins at byte `byte_offset` of a virtual dataset of type
    /// `datatype`.
    pub(super) fn new(datatype: &'b [u8], element_size: u64, reads: SourceReads<'b>, byte_offset: u64, buf: &'b mut [u8]) -> Self {
        Gather { element_size, datatype, reads, byte_offset, buf, source: None, segments: Vec::new(), reach: 0 }
    }

    /// Adds a segment. Fetches earlier segments first if it may overlap them: the later one wins.
    pub(super) fn add(&mut self, source: &Arc<dyn Source>, segment: Segment) -> Result<()> {
        let same = self.source.as_ref().is_some_and(|(old, _)| Arc::ptr_eq(old, source));
        if !same || segment.virtual_element < self.reach || self.segments.len() >= SEGMENTS_MAX {
            self.flush()?;
        }
        if !same {
            let transfer = Transfer::new(self.datatype, self.element_size, &source.datatype_bytes(), source.element_size())?;
            self.source = Some((source.clone(), transfer));
        }
        self.reach = segment.virtual_element.saturating_add(segment.len);
        self.segments.push(segment);
        Ok(())
    }

    /// Fetches the collected segments.
    pub(super) fn flush(&mut self) -> Result<()> {
        let mut segments = std::mem::take(&mut self.segments);
        segments.sort_unstable_by_key(|s| (s.source_element, s.virtual_element));
        match self.source.clone() {
            None => Ok(()),
            Some((source, Transfer::Same)) => {
                let pieces: Vec<(u64, Range)> = segments.iter().filter_map(|s| self.clip(s)).collect();
                self.fetch(source.as_ref(), &pieces)
            }
            Some((source, Transfer::Convert { from, to })) => segments.iter().try_for_each(|s| self.convert(source.as_ref(), s, from, to)),
        }
    }

    /// Clips a segment to the buffer: source byte, range of the buffer.
    fn clip(&self, s: &Segment) -> Option<(u64, Range)> {
        let begin = s.virtual_element.checked_mul(self.element_size)?;
        let end = s.len.checked_mul(self.element_size)?.checked_add(begin)?;
        let from = begin.max(self.byte_offset);
        let to = end.min(self.byte_offset.checked_add(self.buf.len() as u64)?);
        let len = usize::try_from(to.checked_sub(from)?).ok().filter(|&n| n > 0)?;
        let at = usize::try_from(from.checked_sub(self.byte_offset)?).ok()?;
        let source = s.source_element.checked_mul(self.element_size)?.checked_add(from.checked_sub(begin)?)?;
        Some((source, at..at.checked_add(len)?))
    }

    /// Reads sorted pieces; those close to each other with one read.
    fn fetch(&mut self, source: &dyn Source, pieces: &[(u64, Range)]) -> Result<()> {
        let mut scratch = Vec::new();
        let mut rest = pieces;
        while let Some(&(begin, ref first)) = rest.first() {
            let mut end = begin.saturating_add(first.len() as u64);
            let close = |p: &&(u64, Range)| {
                let stop = p.0.saturating_add(p.1.len() as u64);
                let near = p.0 <= end.saturating_add(FETCH_GAP_MAX_BYTES) && stop.saturating_sub(begin) <= FETCH_MAX_BYTES;
                if near {
                    end = stop.max(end);
                }
                near
            };
            let n = rest.iter().skip(1).take_while(close).count().saturating_add(1);
            let (group, more) = rest.split_at_checked(n).unwrap_or((rest, &[]));
            rest = more;
            if let [(at, to)] = group {
                source.read(self.reads, *at, self.buf.get_mut(to.clone()).unwrap_or_default())?;
                continue;
            }
            // At most FETCH_MAX_BYTES, which bounds the allocation.
            scratch.resize(usize::try_from(end.saturating_sub(begin)).unwrap_or(0), 0);
            source.read(self.reads, begin, &mut scratch)?;
            for (at, to) in group {
                let from = usize::try_from(at.saturating_sub(begin)).unwrap_or(usize::MAX);
                let bytes = scratch.get(from..from.saturating_add(to.len()));
                if let (Some(bytes), Some(to)) = (bytes, self.buf.get_mut(to.clone())) {
                    to.copy_from_slice(bytes);
                }
            }
        }
        Ok(())
    }

    /// Reads and converts a segment, clipped to the buffer.
    fn convert(&mut self, source: &dyn Source, s: &Segment, from: Number, to: Number) -> Result<()> {
        let Some((_, range)) = self.clip(s) else { return Ok(()) };
        let size = self.element_size.max(1);
        let skip = self.byte_offset.saturating_add(range.start as u64) / size;
        let end = self.byte_offset.saturating_add(range.end as u64).div_ceil(size);
        let mut element = skip;
        let per_window = (FETCH_MAX_BYTES / 8).max(1);
        let mut scratch = Vec::new();
        while element < end {
            let n = end.saturating_sub(element).min(per_window);
            scratch.resize(usize::try_from(n).unwrap_or(0).saturating_mul(from.size), 0);
            let first = s.source_element.saturating_add(element.saturating_sub(s.virtual_element));
            source.read(self.reads, first.saturating_mul(from.size as u64), &mut scratch)?;
            for raw in scratch.chunks_exact(from.size) {
                let bytes = to.put(from.get(raw), &from);
                let at = element.saturating_mul(size);
                for (i, b) in bytes.iter().take(to.size).enumerate() {
                    let place = at.saturating_add(i as u64).checked_sub(self.byte_offset).and_then(|p| usize::try_from(p).ok());
                    if let Some(place) = place.and_then(|p| self.buf.get_mut(p)) {
                        *place = *b;
                    }
                }
                element = element.saturating_add(1);
            }
        }
        Ok(())
    }
}

type Range = std::ops::Range<usize>;

#[cfg(test)]
mod tests {
    use super::*;

    const fn number(float: bool, size: usize) -> Number {
        Number { float, signed: true, big_endian: false, size }
    }

    fn stored(virtual_: Number, source: Number, value: &[u8]) -> Option<Vec<u8>> {
        let mut out = Vec::new();
        Transfer::Convert { from: source, to: virtual_ }.store(value, &mut out).is_ok().then_some(out)
    }

    #[test]
    fn values_that_would_read_back_as_others_are_not_stored() {
        let (double, float, int) = (number(true, 8), number(true, 4), number(false, 4));
        assert_eq!(stored(double, float, &0.5f64.to_le_bytes()), Some(0.5f32.to_le_bytes().to_vec()));
        assert_eq!(stored(double, float, &0.1f64.to_le_bytes()), None);
        assert_eq!(stored(double, int, &(-7f64).to_le_bytes()), Some((-7i32).to_le_bytes().to_vec()));
        assert_eq!(stored(double, int, &0.5f64.to_le_bytes()), None);
        assert_eq!(stored(double, int, &1e300f64.to_le_bytes()), None);
        assert_eq!(stored(double, int, &f64::NAN.to_le_bytes()), None);
        assert!(stored(double, float, &f64::NAN.to_le_bytes()).is_some());
        assert_eq!(stored(int, number(false, 1), &200i32.to_le_bytes()), None);
    }
}
