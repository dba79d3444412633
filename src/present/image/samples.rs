//! Elements as numbers of the processor: samples of TIFF files, and doubles.

use crate::base::datatype::Datatype;
use crate::present::numpy::{NumpyDtype, numpy_dtype};
use crate::present::statistics::float_of;
use tiff::tags::SampleFormat;

/// Samples of an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Samples {
    format: SampleFormat,
    /// Bytes of a sample.
    bytes: u16,
    /// Bytes of elements are in the other order than those of this machine; `None`: elements become
    /// doubles.
    swapped: Option<bool>,
}

impl Samples {
    /// Samples that have the elements of type `t`: numbers that numpy has, and others as doubles.
    pub(super) fn of(t: &Datatype) -> Samples {
        let doubles = Samples { format: SampleFormat::IEEEFP, bytes: 8, swapped: None };
        let Some(NumpyDtype::Plain(text)) = numpy_dtype(t) else { return doubles };
        let mut chars = text.chars();
        let (order, kind, bytes) = (chars.next(), chars.next(), chars.as_str().parse().unwrap_or(0));
        let format = match kind {
            Some('u' | 'b') => SampleFormat::Uint,
            Some('i') => SampleFormat::Int,
            Some('f') => SampleFormat::IEEEFP,
            _ => return doubles,
        };
        let other = if cfg!(target_endian = "big") { '<' } else { '>' };
        if matches!(bytes, 1 | 2 | 4 | 8) { Samples { format, bytes, swapped: Some(order == Some(other)) } } else { doubles }
    }

    /// What a sample is.
    pub(super) fn format(self) -> SampleFormat {
        self.format
    }

    /// Bytes of a sample.
    pub(super) fn bytes(self) -> u16 {
        self.bytes
    }

    /// The samples that `elements` of type `t` are.
    pub(super) fn made_of(self, mut elements: Vec<u8>, t: &Datatype) -> Vec<u8> {
        match self.swapped {
            Some(false) => elements,
            Some(true) => {
                elements.chunks_exact_mut(self.bytes.into()).for_each(<[u8]>::reverse);
                elements
            }
            None => others(&elements, t).flat_map(f64::to_ne_bytes).collect(),
        }
    }

    /// Calls `f` with every `step`th of `elements` of type `t` as a double, from the first on.
    pub(super) fn each_double(self, elements: &[u8], t: &Datatype, step: usize, mut f: impl FnMut(f64)) {
        // A loop for each type: the compiler makes vectors of them.
        macro_rules! each {
            ($number:ty) => {{
                let (all, _) = elements.as_chunks::<{ size_of::<$number>() }>();
                if self.swapped == Some(true) {
                    let number = |mut bytes: [u8; size_of::<$number>()]| {
                        bytes.reverse();
                        <$number>::from_ne_bytes(bytes)
                    };
                    all.iter().step_by(step).for_each(|bytes| f(number(*bytes) as f64));
                } else {
                    all.iter().step_by(step).for_each(|bytes| f(<$number>::from_ne_bytes(*bytes) as f64));
                }
            }};
        }
        match (self.format, self.bytes) {
            _ if self.swapped.is_none() => others(elements, t).step_by(step).for_each(f),
            (SampleFormat::Uint, 1) => each!(u8),
            (SampleFormat::Uint, 2) => each!(u16),
            (SampleFormat::Uint, 4) => each!(u32),
            (SampleFormat::Uint, 8) => each!(u64),
            (SampleFormat::Int, 1) => each!(i8),
            (SampleFormat::Int, 2) => each!(i16),
            (SampleFormat::Int, 4) => each!(i32),
            (SampleFormat::Int, 8) => each!(i64),
            (SampleFormat::IEEEFP, 4) => each!(f32),
            (SampleFormat::IEEEFP, 8) => each!(f64),
            _ => others(elements, t).step_by(step).for_each(f),
        }
    }
}

/// Elements of any type of numbers as doubles.
fn others(elements: &[u8], t: &Datatype) -> impl Iterator<Item = f64> {
    let size = usize::try_from(t.size).unwrap_or(usize::MAX).max(1);
    elements.chunks_exact(size).map(move |element| float_of(t, element).unwrap_or(f64::NAN))
}
