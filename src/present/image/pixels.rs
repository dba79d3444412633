//! Elements become pixels.

use super::layout::{Layout, raw_depth};
use super::sample::{READ_BYTES_MAX, Sampled, spread};
use super::samples::Samples;
use crate::base::datatype::{ByteOrder, Class};
use crate::base::{Error, Result};
use crate::connector::{Connector, DatasetInfo, ObjectId};
use std::ops::Range;

/// Bytes of rows that are read at once, about.
const BATCH_BYTES: u64 = 4 << 20;
/// Numbers whose percentiles are taken.
const RANKED_MAX: usize = 1 << 20;
/// Numbers up to this part of all are black, and from the same part before the end on white.
const CUT: f64 = 0.01;

/// The dataset that pixels come from.
pub(super) struct Source<'a> {
    pub(super) connector: &'a dyn Connector,
    pub(super) id: ObjectId,
    pub(super) dataset: &'a DatasetInfo,
    pub(super) layout: &'a Layout,
}

impl Source<'_> {
    /// The bytes of elements.
    pub(super) fn read(&self, elements: Range<u64>) -> Result<Vec<u8>> {
        Ok(self.connector.elements_in(self.id, elements)?.bytes)
    }

    fn size(&self) -> usize {
        usize::try_from(self.dataset.datatype.size).unwrap_or(usize::MAX).max(1)
    }

    /// The samples of the image in samples of `depth` bits, the highest byte first.
    pub(super) fn pixels(&self, frame: u64, sampled: &Sampled, depth: u8) -> Result<Vec<u8>> {
        let elements = self.elements(frame, sampled)?;
        let mut samples = match raw_depth(&self.dataset.datatype) {
            Some(raw) if raw == depth => self.raw(elements),
            _ => self.scaled(&elements),
        };
        if self.layout.inverted && self.layout.palette.is_none() && self.layout.planes == 1 {
            samples.iter_mut().for_each(|byte| *byte = !*byte);
        }
        Ok(self.oriented(samples, sampled, (depth / 8).into()))
    }

    /// The samples of an image in full size as numbers.
    pub(super) fn numbers(&self, frame: u64, sampled: &Sampled, samples: Samples) -> Result<Vec<u8>> {
        let elements = self.elements(frame, sampled)?;
        Ok(self.oriented(samples.made_of(elements, &self.dataset.datatype), sampled, samples.bytes().into()))
    }

    /// `samples` of `size` bytes with the first row at the top and the first pixel at the left.
    fn oriented(&self, mut samples: Vec<u8>, sampled: &Sampled, size: usize) -> Vec<u8> {
        let (_, width) = sampled.size();
        let pixel = usize::try_from(self.layout.planes).unwrap_or(1).saturating_mul(size).max(1);
        let line = pixel.saturating_mul(width as usize).max(1);
        let (upside_down, mirrored) = self.layout.flipped;
        if upside_down {
            samples = samples.chunks_exact(line).rev().flatten().copied().collect();
        }
        if mirrored {
            samples = samples.chunks_exact(line).flat_map(|line| line.chunks_exact(pixel).rev().flatten().copied()).collect();
        }
        samples
    }

    /// The elements of the pixels, sample by sample.
    fn elements(&self, frame: u64, sampled: &Sampled) -> Result<Vec<u8>> {
        let (height, width) = sampled.size();
        let planes = usize::try_from(self.layout.planes).unwrap_or(1).max(1);
        let large = || Error::refused(libc::EFBIG, "the image is too large");
        let len = (height as usize).checked_mul(width as usize).and_then(|n| n.checked_mul(planes)?.checked_mul(self.size()));
        let mut out = vec![0u8; len.ok_or_else(large)?];
        let line = (width as usize).saturating_mul(planes).saturating_mul(self.size()).max(1);
        let (whole, together) = (self.is_whole(sampled), self.is_read_whole(sampled));
        let batch = (BATCH_BYTES / self.line_bytes()).max(1);
        let rows = sampled.rows.iter().flat_map(|range| spread(range, sampled.of_rows));
        let mut read = (0..0, Vec::new());
        for (row, to) in rows.zip(out.chunks_exact_mut(line)) {
            if !together {
                self.row(frame, row, sampled, to)?;
                continue;
            }
            if !read.0.contains(&row) {
                let next = row.saturating_add(batch).min(self.layout.height);
                let start = |row| self.layout.run(frame, row, 0, &(0..1)).start;
                read = (row..next, self.read(start(row)..start(next))?);
            }
            let at = usize::try_from(row.saturating_sub(read.0.start).saturating_mul(self.line_bytes())).unwrap_or(usize::MAX);
            let from = read.1.get(at..).unwrap_or_default();
            if whole {
                copy(from, to);
            } else {
                self.pick(sampled, from, to);
            }
        }
        Ok(out)
    }

    /// Bytes of a row of the image.
    fn line_bytes(&self) -> u64 {
        self.layout.width.saturating_mul(self.layout.planes).saturating_mul(self.size() as u64).max(1)
    }

    /// All rows are read, each in the order of its samples, also where not all pixels are shown.
    fn is_read_whole(&self, sampled: &Sampled) -> bool {
        let layout = self.layout;
        let all = sampled.rows.first() == Some(&(0..layout.height)) && sampled.columns.first() == Some(&(0..layout.width));
        let shown = self.is_whole(sampled) || self.line_bytes().saturating_mul(layout.height) <= READ_BYTES_MAX;
        all && shown && layout.has_dense_rows() && (layout.planes == 1 || layout.is_interleaved())
    }

    /// The elements of some pixels of a row, of which `from` has all.
    fn pick(&self, sampled: &Sampled, from: &[u8], to: &mut [u8]) {
        let pixel = self.size().saturating_mul(usize::try_from(self.layout.planes).unwrap_or(1).max(1));
        let columns = sampled.columns.iter().flat_map(|range| spread(range, sampled.of_columns));
        for (column, to) in columns.zip(to.chunks_exact_mut(pixel)) {
            let at = usize::try_from(column).unwrap_or(usize::MAX).saturating_mul(pixel);
            copy(from.get(at..).unwrap_or_default(), to);
        }
    }

    /// All pixels of the image are shown.
    fn is_whole(&self, sampled: &Sampled) -> bool {
        sampled.of_rows == self.layout.height && sampled.of_columns == self.layout.width
    }

    /// The elements of the pixels of a row.
    fn row(&self, frame: u64, row: u64, sampled: &Sampled, to: &mut [u8]) -> Result<()> {
        let (size, interleaved) = (self.size(), self.layout.is_interleaved());
        let planes = usize::try_from(self.layout.planes).unwrap_or(1).max(1);
        let pixel = size.saturating_mul(planes);
        // What a run has of each pixel.
        let (runs, part) = if interleaved { (1, pixel) } else { (planes, size) };
        for plane in 0..runs {
            let mut pixels = to.chunks_exact_mut(pixel);
            for range in &sampled.columns {
                let len = range.end.saturating_sub(range.start).saturating_mul(part as u64);
                if len > READ_BYTES_MAX / u64::from(sampled.size().0).max(1) {
                    for column in spread(range, sampled.of_columns) {
                        let one = column..column.saturating_add(1);
                        let from = self.read(self.layout.run(frame, row, plane as u64, &one))?;
                        let to = pixels.next().and_then(|pixel| pixel.get_mut(plane.saturating_mul(size)..)).unwrap_or_default();
                        copy(&from, to.get_mut(..part).unwrap_or_default());
                    }
                    continue;
                }
                let bytes = self.read(self.layout.run(frame, row, plane as u64, range))?;
                for column in spread(range, sampled.of_columns) {
                    let at = usize::try_from(column.saturating_sub(range.start)).unwrap_or(usize::MAX).saturating_mul(part);
                    let from = bytes.get(at..at.saturating_add(part)).unwrap_or_default();
                    let to = pixels.next().and_then(|pixel| pixel.get_mut(plane.saturating_mul(size)..)).unwrap_or_default();
                    copy(from, to.get_mut(..part).unwrap_or_default());
                }
            }
        }
        Ok(())
    }

    /// Samples that are the elements.
    fn raw(&self, mut elements: Vec<u8>) -> Vec<u8> {
        let order = match &self.dataset.datatype.class {
            Class::FixedPoint(f) => f.order,
            Class::Bitfield(b) => b.order,
            _ => ByteOrder::BigEndian,
        };
        if order == ByteOrder::LittleEndian && self.size() == 2 {
            elements.chunks_exact_mut(2).for_each(<[u8]>::reverse);
        }
        elements
    }

    /// Samples of 8 bits, from the range of the image. What is not a number is black.
    fn scaled(&self, elements: &[u8]) -> Vec<u8> {
        let (t, numbers) = (&self.dataset.datatype, Samples::of(&self.dataset.datatype));
        let count = elements.len() / self.size();
        let (low, high) = self.layout.range.unwrap_or_else(|| {
            let step = count.div_ceil(RANKED_MAX).max(1);
            let mut ranked = Vec::with_capacity(count / step + 1);
            numbers.each_double(elements, t, step, |x| ranked.extend(x.is_finite().then_some(x)));
            percentiles(ranked)
        });
        let (low, width) = (low / 2.0, high / 2.0 - low / 2.0);
        if width <= 0.0 {
            return vec![0; count];
        }
        let mut samples = Vec::with_capacity(count);
        // By halves: the range of all doubles is no double. NaN becomes 0.
        numbers.each_double(elements, t, 1, |x| samples.push((((x / 2.0 - low) / width).clamp(0.0, 1.0) * 255.0 + 0.5) as u8));
        samples
    }
}

/// Fills `to` with the first bytes of `from`, as far as there are any.
fn copy(from: &[u8], to: &mut [u8]) {
    let len = from.len().min(to.len());
    if let (Some(from), Some(to)) = (from.get(..len), to.get_mut(..len)) {
        to.copy_from_slice(from);
    }
}

/// The numbers below and above which a hundredth of `numbers`, all finite, lies.
fn percentiles(mut numbers: Vec<f64>) -> (f64, f64) {
    let Some(last) = numbers.len().checked_sub(1) else { return (0.0, 0.0) };
    let mut at = |part: f64| {
        let place = ((last as f64 * part).round() as usize).min(last);
        *numbers.select_nth_unstable_by(place, f64::total_cmp).1
    };
    let (low, high) = (at(CUT), at(1.0 - CUT));
    // Almost all numbers are one: the others are shown.
    if low < high { (low, high) } else { (at(0.0), at(1.0)) }
}

#[cfg(test)]
mod tests {
    use super::percentiles;

    #[test]
    fn percentiles_leave_out_few_numbers() {
        assert_eq!(percentiles((0..=1000).rev().map(f64::from).collect()), (10.0, 990.0));
        assert_eq!(percentiles(Vec::new()), (0.0, 0.0));
        assert_eq!(percentiles(vec![3.0; 500]), (3.0, 3.0));
        let mut one = vec![0.0; 500];
        one[7] = 9.0;
        assert_eq!(percentiles(one), (0.0, 9.0));
    }
}
