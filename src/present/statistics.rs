//! Statistics of the numbers of a dataset.

use super::gather::gather;
use super::number;
use super::parse::SelectionText;
use super::table::{Table, plain_number};
use crate::base::datatype::{Class, Datatype};
use crate::base::{Error, Result};
use crate::connector::{Connector, ObjectId};
use rayon::prelude::*;

/// Bars of a histogram.
pub const BARS: usize = 16;
/// Batches of elements that are read at the same time.
const AT_ONCE: usize = 16;

/// Statistics of numbers.
#[derive(Debug, Clone, PartialEq)]
pub struct Statistics {
    /// Elements.
    pub count: u64,
    /// Those of them that are not a number.
    pub nans: u64,
    /// Those of them that are infinite.
    pub infinite: u64,
    /// Smallest and largest number, infinite ones too, in decimal; `None`: there is none.
    pub range: Option<(String, String)>,
    /// Mean of the finite numbers.
    pub mean: f64,
    /// Standard deviation of the finite numbers, of the whole population.
    pub deviation: f64,
    /// Limits of the histogram: the smallest and the largest finite number.
    pub limits: (f64, f64),
    /// Finite numbers in parts of equal width; empty if there are none.
    pub histogram: Vec<u64>,
}

/// A number.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Number {
    Integer(i128),
    Float(f64),
}

impl Number {
    fn as_f64(self) -> f64 {
        match self {
            Number::Integer(n) => n as f64,
            Number::Float(x) => x,
        }
    }

    fn is_less(self, other: Number) -> bool {
        match (self, other) {
            (Number::Integer(a), Number::Integer(b)) => a < b,
            (a, b) => a.as_f64() < b.as_f64(),
        }
    }

    fn text(self) -> String {
        match self {
            Number::Integer(n) => n.to_string(),
            Number::Float(x) if x.is_infinite() => if x > 0.0 { "Infinity" } else { "-Infinity" }.into(),
            Number::Float(x) => format!("{x:?}"),
        }
    }
}

/// Statistics of some elements.
#[derive(Debug, Clone, Copy, Default)]
struct Partial {
    count: u64,
    nans: u64,
    infinite: u64,
    range: Option<(Number, Number)>,
    finite: Option<(f64, f64)>,
    /// Of the finite numbers: how many, their mean, the sum of squared distances from it.
    moments: (u64, f64, f64),
}

impl Partial {
    fn add(&mut self, n: Number) {
        self.count = self.count.saturating_add(1);
        let x = n.as_f64();
        if x.is_nan() {
            self.nans = self.nans.saturating_add(1);
            return;
        }
        let (low, high) = self.range.unwrap_or((n, n));
        self.range = Some((if n.is_less(low) { n } else { low }, if high.is_less(n) { n } else { high }));
        if x.is_infinite() {
            self.infinite = self.infinite.saturating_add(1);
            return;
        }
        let (low, high) = self.finite.unwrap_or((x, x));
        self.finite = Some((low.min(x), high.max(x)));
        let (count, mean, squares) = self.moments;
        let (count, distance) = (count.saturating_add(1), x - mean);
        let mean = mean + distance / count as f64;
        self.moments = (count, mean, squares + distance * (x - mean));
    }

    fn join(self, other: Partial) -> Partial {
        let range = match (self.range, other.range) {
            (Some((a, b)), Some((c, d))) => Some((if c.is_less(a) { c } else { a }, if b.is_less(d) { d } else { b })),
            (one, other) => one.or(other),
        };
        let finite = match (self.finite, other.finite) {
            (Some((a, b)), Some((c, d))) => Some((a.min(c), b.max(d))),
            (one, other) => one.or(other),
        };
        let ((n, a, s), (m, b, r)) = (self.moments, other.moments);
        let all = n.saturating_add(m);
        let moments = match all {
            0 => (0, 0.0, 0.0),
            _ => {
                let (part, distance) = (m as f64 / all as f64, b - a);
                (all, a + distance * part, s + r + distance * distance * n as f64 * part)
            }
        };
        Partial {
            count: self.count.saturating_add(other.count),
            nans: self.nans.saturating_add(other.nans),
            infinite: self.infinite.saturating_add(other.infinite),
            range,
            finite,
            moments,
        }
    }
}

/// Statistics of the elements of the dataset `id` in `selection` (empty: all). Reads them twice, in
/// batches on all processors; calls `progress` with the bytes that were read. Errors: `EOPNOTSUPP`,
/// they are no numbers; what `progress` returns.
pub fn statistics(
    connector: &dyn Connector,
    id: ObjectId,
    selection: SelectionText<'_>,
    progress: &mut dyn FnMut(u64) -> Result<()>,
) -> Result<Statistics> {
    let table = Table::of(connector, id, selection)?;
    if !matches!(table.datatype().class, Class::FixedPoint(_) | Class::FloatingPoint(_) | Class::Bitfield(_)) {
        return Err(Error::refused(libc::EOPNOTSUPP, "its elements are no numbers; 'h5dir cat' shows them"));
    }
    let mut all = Partial::default();
    each(connector, id, &table, progress, Partial::add, &mut |part| all = all.join(part))?;
    let (low, high) = all.finite.unwrap_or_default();
    let mut histogram = Vec::new();
    if all.finite.is_some() {
        histogram = vec![0u64; BARS];
        let count = |bars: &mut Bars, n: Number| bars.add(n.as_f64(), low, high);
        each(connector, id, &table, progress, count, &mut |bars: Bars| {
            histogram.iter_mut().zip(bars.0).for_each(|(sum, n)| *sum = sum.saturating_add(n));
        })?;
    }
    let (count, mean, squares) = all.moments;
    Ok(Statistics {
        count: all.count,
        nans: all.nans,
        infinite: all.infinite,
        range: all.range.map(|(low, high)| (low.text(), high.text())),
        mean,
        deviation: if count > 0 { (squares / count as f64).sqrt() } else { 0.0 },
        limits: (low, high),
        histogram,
    })
}

/// Numbers by bar.
#[derive(Default)]
struct Bars([u64; BARS]);

impl Bars {
    fn add(&mut self, x: f64, low: f64, high: f64) {
        if !x.is_finite() {
            return;
        }
        // Halves: the distance of two finite numbers may not be one.
        let width = high / 2.0 - low / 2.0;
        let part = if width > 0.0 { (x / 2.0 - low / 2.0) / width } else { 0.0 };
        let at = ((part * BARS as f64) as usize).min(BARS.saturating_sub(1));
        if let Some(bar) = self.0.get_mut(at) {
            *bar = bar.saturating_add(1);
        }
    }
}

/// Reads all elements in batches, several at once. `add` takes the numbers of a batch, `join` the
/// batches in order.
fn each<T: Default + Send>(
    connector: &dyn Connector,
    id: ObjectId,
    table: &Table,
    progress: &mut dyn FnMut(u64) -> Result<()>,
    add: impl Fn(&mut T, Number) + Sync,
    join: &mut dyn FnMut(T),
) -> Result<()> {
    let size = usize::try_from(table.datatype().element_size()).unwrap_or(usize::MAX).max(1);
    let mut runs = table.batches().peekable();
    while runs.peek().is_some() {
        let batch: Vec<_> = runs.by_ref().take(AT_ONCE).collect();
        let read = |elements: Vec<std::ops::Range<u64>>| {
            let mut part = T::default();
            let Some(value) = gather(connector, id, &elements)? else { return Ok((part, 0)) };
            for element in value.bytes.chunks_exact(size) {
                if let Some(n) = number_of(&value.datatype, element) {
                    add(&mut part, n);
                }
            }
            Ok((part, value.bytes.len() as u64))
        };
        let parts: Vec<(T, u64)> = batch.into_par_iter().map(read).collect::<Result<_>>()?;
        for (part, bytes) in parts {
            join(part);
            progress(bytes)?;
        }
    }
    Ok(())
}

/// The element as a double, that of an enumeration too; `None`: it is no number.
pub(super) fn float_of(t: &Datatype, bytes: &[u8]) -> Option<f64> {
    let t = if let Class::Enumeration(e) = &t.class { &e.base } else { t };
    number_of(t, bytes).map(Number::as_f64)
}

/// The element as a number; `None`: it is too large for one.
fn number_of(t: &Datatype, bytes: &[u8]) -> Option<Number> {
    if let Some(raw) = plain_number(t, bytes) {
        return Some(match (&t.class, t.size) {
            (Class::FloatingPoint(_), 4) => Number::Float(f32::from_bits(raw as u32).into()),
            (Class::FloatingPoint(_), _) => Number::Float(f64::from_bits(raw)),
            (Class::FixedPoint(f), size) if f.signed => {
                let unused = 64u32.saturating_sub(size.saturating_mul(8));
                Number::Integer(((raw << unused).cast_signed() >> unused).into())
            }
            _ => Number::Integer(raw.into()),
        });
    }
    let integer = |order, offset: u16, precision: u16, signed| number::integer(bytes, order, offset.into(), precision.into(), signed);
    match &t.class {
        Class::FixedPoint(f) => integer(f.order, f.offset, f.precision, f.signed)?.parse().ok().map(Number::Integer),
        Class::Bitfield(b) => integer(b.order, b.offset, b.precision, false)?.parse().ok().map(Number::Integer),
        Class::FloatingPoint(f) => number::float_value(f, bytes).map(Number::Float),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(numbers: &[f64]) -> Partial {
        let mut part = Partial::default();
        numbers.iter().for_each(|x| part.add(Number::Float(*x)));
        part
    }

    #[test]
    fn parts_join_as_if_they_were_one() {
        let numbers = [3.0, -1.5, f64::NAN, 1e6, f64::INFINITY, 0.25, 7.0];
        for at in 0..=numbers.len() {
            let (joined, whole) = (of(&numbers[..at]).join(of(&numbers[at..])), of(&numbers));
            assert_eq!((joined.count, joined.nans, joined.infinite), (7, 1, 1));
            assert_eq!((joined.range, joined.finite), (whole.range, whole.finite));
            let (a, b) = (joined.moments, whole.moments);
            assert!(a.0 == b.0 && (a.1 - b.1).abs() < 1e-6 && (a.2 - b.2).abs() < 1e-3 * b.2, "{a:?} {b:?}");
        }
        let large = [Number::Integer(i128::from(u64::MAX)), Number::Integer(i128::from(u64::MAX) - 1)];
        assert!(large[1].is_less(large[0]) && !large[0].is_less(large[1]), "not as doubles");
    }

    #[test]
    fn bars_have_equal_width() {
        let mut bars = Bars::default();
        (0..160).for_each(|i| bars.add(f64::from(i), 0.0, 159.0));
        assert!(bars.0.iter().all(|n| (9..=11).contains(n)), "{:?}", bars.0);
        let mut bars = Bars::default();
        [f64::MIN, f64::MAX, 0.0, f64::NAN].iter().for_each(|x| bars.add(*x, f64::MIN, f64::MAX));
        assert_eq!((bars.0[0], bars.0[BARS / 2], bars.0[BARS - 1]), (1, 1, 1));
        let mut bars = Bars::default();
        bars.add(5.0, 5.0, 5.0);
        assert_eq!(bars.0[0], 1, "all numbers are one");
    }
}
