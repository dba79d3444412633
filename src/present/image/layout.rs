//! Which elements of a dataset are pixels, by its shape and by the attributes of HDF5 images.

use crate::base::datatype::{ByteOrder, Class, Datatype};
use crate::base::parts::Budget;
use crate::base::{Error, Result};
use crate::connector::{Connector, DatasetInfo, ObjectId};
use crate::present::statistics::float_of;
use crate::present::values::attribute_text;
use std::ops::Range;

/// Most bytes that are read to find a palette.
const PALETTE_BYTES_MAX: u64 = 1 << 20;
/// Bytes of the colours of a palette.
const PALETTE_BYTES: usize = 768;

/// How pixels lie in a block of a dataset.
pub(super) struct Layout {
    /// Its images; a plot is one.
    pub(super) frames: u64,
    /// Rows of an image; 0: a plot.
    pub(super) height: u64,
    /// Pixels of a row, or elements of a plot.
    pub(super) width: u64,
    /// Samples of a pixel.
    pub(super) planes: u64,
    /// The first element.
    first: u64,
    /// Elements from one frame, row, pixel and sample to the next.
    steps: [u64; 4],
    /// Axes of rows and pixels.
    pub(super) axes: (usize, usize),
    /// Colours of three bytes, 256 of them.
    pub(super) palette: Option<Vec<u8>>,
    /// Numbers that are black and white; `None`: percentiles of the image.
    pub(super) range: Option<(f64, f64)>,
    /// The lowest number is white.
    pub(super) inverted: bool,
    /// The first row is at the bottom; the first pixel of a row is at its right.
    pub(super) flipped: (bool, bool),
}

/// Bits of a sample whose elements are pixels as they are: unsigned integers of one and two bytes.
pub(super) fn raw_depth(t: &Datatype) -> Option<u8> {
    let whole = |order: ByteOrder, offset: u16, precision: u16| {
        order != ByteOrder::Vax && offset == 0 && u32::from(precision) == t.size.saturating_mul(8)
    };
    let is_raw = match &t.class {
        Class::FixedPoint(f) => !f.signed && whole(f.order, f.offset, f.precision),
        Class::Bitfield(b) => whole(b.order, b.offset, b.precision),
        _ => false,
    };
    match t.size {
        1 if is_raw => Some(8),
        2 if is_raw => Some(16),
        _ => None,
    }
}

/// Where the samples of pixels are: the axis.
fn interlace(text: Option<String>, dims: &[u64], t: &Datatype, is_image: bool) -> Option<usize> {
    let colours = |axis: usize| dims.get(axis).is_some_and(|n| matches!(n, 3 | 4));
    let last = dims.len().checked_sub(1)?;
    let first = last.checked_sub(2)?;
    let axis = match text.as_deref() {
        Some("INTERLACE_PIXEL") => last,
        Some("INTERLACE_LINE") => first.checked_add(1)?,
        Some("INTERLACE_PLANE") => first,
        // Bytes in threes are colours, unless they are all there is.
        _ if is_image || dims.len() == 4 || (raw_depth(t).is_some() && dims.iter().rev().skip(1).take(2).all(|n| *n > 4)) => last,
        _ => return None,
    };
    colours(axis).then_some(axis)
}

impl Layout {
    /// True if the elements are numbers in 1 to 4 dimensions, and there are some.
    pub(super) fn is_picture(dataset: &DatasetInfo) -> bool {
        let dims = dataset.shape.dims().unwrap_or_default();
        let numbers =
            matches!(dataset.datatype.class, Class::FixedPoint(_) | Class::FloatingPoint(_) | Class::Bitfield(_) | Class::Enumeration(_));
        let colours = dims.len() < 4 || dims.last().is_some_and(|n| matches!(n, 3 | 4));
        numbers && (1..=4).contains(&dims.len()) && colours && dims.iter().all(|n| *n > 0)
    }

    /// The pixels of `block`. `None`: it has none.
    pub(super) fn of(connector: &dyn Connector, id: ObjectId, d: &DatasetInfo, block: &[Range<u64>]) -> Result<Option<Layout>> {
        let dims = d.shape.dims().unwrap_or_default();
        let text = |name: &[u8]| attribute_text(connector, id, name).ok().flatten().and_then(|text| String::from_utf8(text).ok());
        let is_image = text(b"CLASS").as_deref() == Some("IMAGE");
        let extent: Vec<u64> = block.iter().map(|range| range.end.saturating_sub(range.start)).collect();
        if extent.contains(&0) || extent.is_empty() {
            return Ok(None);
        }
        let mut strides = vec![1u64; dims.len()];
        for axis in (0..dims.len().saturating_sub(1)).rev() {
            let next = strides.get(axis.saturating_add(1)).copied().unwrap_or(1);
            let inner = dims.get(axis.saturating_add(1)).copied().unwrap_or(1);
            strides.iter_mut().skip(axis).take(1).for_each(|stride| *stride = next.saturating_mul(inner));
        }
        let first = block.iter().zip(&strides).fold(0u64, |sum, (range, stride)| sum.saturating_add(range.start.saturating_mul(*stride)));
        let samples = interlace(
            text(b"INTERLACE_MODE"),
            dims,
            &d.datatype,
            is_image && text(b"IMAGE_SUBCLASS").as_deref() == Some("IMAGE_TRUECOLOR"),
        );
        let samples = samples.filter(|_| dims.len() >= 3);
        if samples.is_some_and(|axis| extent.get(axis) != dims.get(axis)) {
            return Err(Error::refused(libc::EINVAL, "a selection takes all colours of a pixel"));
        }
        let mut others: Vec<usize> = (0..dims.len()).filter(|axis| Some(*axis) != samples).collect();
        let (column, row) = (others.pop(), others.pop());
        let frame = others.pop();
        if !others.is_empty() {
            return Ok(None);
        }
        let of = |axis: Option<usize>, all: &[u64], none: u64| axis.and_then(|axis| all.get(axis).copied()).unwrap_or(none);
        let palette = if samples.is_none() && row.is_some() { palette(connector, id, &d.datatype) } else { None };
        let origin = text(b"DISPLAY_ORIGIN").unwrap_or_default();
        Ok(Some(Layout {
            frames: of(frame, &extent, 1),
            height: of(row, &extent, 0),
            width: of(column, &extent, 0),
            planes: of(samples, &extent, 1),
            first,
            steps: [frame, row, column, samples].map(|axis| of(axis, &strides, 0)),
            axes: (row.unwrap_or(0), column.unwrap_or(0)),
            palette,
            range: range(connector, id),
            inverted: text(b"IMAGE_WHITE_IS_ZERO").as_deref() == Some("1"),
            flipped: (is_image && origin.starts_with('L'), is_image && origin.ends_with('R')),
        }))
    }

    pub(super) fn is_plot(&self) -> bool {
        self.height == 0
    }

    /// Pixels and samples follow one another.
    pub(super) fn is_interleaved(&self) -> bool {
        self.steps[3] == 1 && self.planes > 1
    }

    /// The elements of sample `plane` of `pixels`, or of all their samples if they are interleaved.
    pub(super) fn run(&self, frame: u64, row: u64, plane: u64, pixels: &Range<u64>) -> Range<u64> {
        let [frames, rows, columns, samples] = self.steps;
        let at = |n: u64, step: u64| n.saturating_mul(step);
        let start = self.first.saturating_add(at(frame, frames)).saturating_add(at(row, rows)).saturating_add(at(plane, samples));
        start.saturating_add(at(pixels.start, columns))..start.saturating_add(at(pixels.end, columns))
    }

    /// Rows follow one another without elements between.
    pub(super) fn has_dense_rows(&self) -> bool {
        self.steps[1] == self.width.saturating_mul(self.steps[2])
    }
}

/// The range of numbers that the image shows.
fn range(connector: &dyn Connector, id: ObjectId) -> Option<(f64, f64)> {
    let value = connector.attribute(id, b"IMAGE_MINMAXRANGE").ok()??;
    let size = usize::try_from(value.datatype.size).ok().filter(|size| *size > 0)?;
    let mut numbers = value.bytes.chunks_exact(size).map_while(|element| float_of(&value.datatype, element));
    let (low, high) = (numbers.next()?, numbers.next()?);
    (low.is_finite() && high.is_finite() && low < high).then_some((low, high))
}

/// The colours of the first palette that the attribute PALETTE names.
fn palette(connector: &dyn Connector, id: ObjectId, t: &Datatype) -> Option<Vec<u8>> {
    if raw_depth(t) != Some(8) {
        return None;
    }
    let value = connector.attribute(id, b"PALETTE").ok()??;
    let Class::Reference(reference) = &value.datatype.class else { return None };
    let element = value.bytes.get(..usize::try_from(value.datatype.size).ok()?)?;
    let target = value.parts.reference(reference, element, &mut Budget::tight(PALETTE_BYTES_MAX)).ok()??;
    let id = connector.resolve(connector.root(), &target.object).ok()??;
    let found = connector.dataset(id).ok()?;
    let dims = found.shape.dims()?;
    let model = attribute_text(connector, id, b"PAL_COLORMODEL").ok().flatten();
    let fits = matches!(dims, [1..=256, 3]) && found.datatype.size == 1 && model.is_none_or(|model| model == b"RGB");
    let mut colours = connector.elements(id).ok().filter(|_| fits)?.bytes;
    colours.resize(PALETTE_BYTES, 0);
    Some(colours)
}
