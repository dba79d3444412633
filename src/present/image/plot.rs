//! A line plot of the numbers of a dataset of one dimension.

use super::encode::{Colours, Image};
use super::pixels::Source;
use super::sample::{READ_BYTES_MAX, page, tile, tiles_max};
use crate::base::Result;
use crate::present::statistics::float_of;

/// Pixels of a plot.
const WIDTH: usize = 1024;
const HEIGHT: usize = 512;
/// Pixels around the lines.
const MARGIN: usize = 8;
/// Bytes of elements that are read at once, about.
const BATCH_BYTES: u64 = 4 << 20;
/// Parts between lines of the grid.
const PARTS: usize = 4;
/// Indexes of colours.
const GRID: u8 = 1;
const LINE: u8 = 2;
/// White, light gray, blue.
const PALETTE: [u8; 9] = [255, 255, 255, 221, 221, 221, 31, 119, 180];

/// The image without its pixels.
pub(super) fn outline() -> Image {
    let mut palette = PALETTE.to_vec();
    palette.resize(768, 0);
    Image { width: WIDTH as u32, height: HEIGHT as u32, depth: 8, colours: Colours::Palette(palette), pixels: Vec::new() }
}

/// Smallest and largest of some numbers; `None`: there are none.
type Extremes = Option<(f64, f64)>;

/// The first elements of `count` parts of `n`, and the end.
fn bounds(n: u64, count: u64) -> impl Iterator<Item = u64> {
    (0..=count).map(move |part| (u128::from(part) * u128::from(n) / u128::from(count.max(1))) as u64)
}

fn extremes(source: &Source<'_>, bytes: &[u8]) -> Extremes {
    let t = &source.dataset.datatype;
    let numbers = bytes.chunks_exact(usize::try_from(t.size).unwrap_or(usize::MAX).max(1)).filter_map(|element| float_of(t, element));
    let join = |range: Extremes, x: f64| Some(range.map_or((x, x), |(low, high)| (low.min(x), high.max(x))));
    numbers.filter(|x| x.is_finite()).fold(None, join)
}

/// Smallest and largest finite number of each part of the dataset.
fn parts(source: &Source<'_>) -> Result<Vec<Extremes>> {
    let (n, d) = (source.layout.width, source.dataset);
    let size = d.datatype.element_size().max(1);
    let room = (WIDTH.saturating_sub(2 * MARGIN)) as u64;
    let (tile, most) = (tile(d, 0, page(d)), tiles_max(d));
    let count = n.min(room);
    let mut out = Vec::new();
    let is_large = n.saturating_mul(size) > READ_BYTES_MAX;
    if n.div_ceil(tile) > most || is_large {
        // Each part is read from other chunks, or from other elements of a large one.
        let in_one = n <= tile;
        let count = if in_one { count } else { count.min(most) };
        let each = match in_one {
            true => (READ_BYTES_MAX / size / count.max(1)).max(1),
            false => (most / count.max(1)).max(1).saturating_mul(tile).min((READ_BYTES_MAX / size).max(1)),
        };
        for start in bounds(n, count).take(usize::try_from(count).unwrap_or(usize::MAX)) {
            let range = start..start.saturating_add(each).min(n);
            out.push(extremes(source, &source.read(source.layout.run(0, 0, 0, &range))?));
        }
        return Ok(out);
    }
    // Many parts at once: a virtual dataset may take long for each request.
    let at_once = (BATCH_BYTES / size).max(1).saturating_mul(count).checked_div(n).unwrap_or(1).max(1);
    let bounds: Vec<u64> = bounds(n, count).collect();
    let step = usize::try_from(at_once).unwrap_or(usize::MAX);
    let mut first = 0usize;
    while let Some((start, rest)) = bounds.get(first..).and_then(<[u64]>::split_first).filter(|(_, rest)| !rest.is_empty()) {
        let ends = rest.get(..step.min(rest.len())).unwrap_or(rest);
        let range = *start..ends.last().copied().unwrap_or(*start);
        let bytes = source.read(source.layout.run(0, 0, 0, &range))?;
        let at = |element: u64| usize::try_from(element.saturating_sub(*start).saturating_mul(size)).unwrap_or(usize::MAX);
        let mut before = *start;
        for end in ends {
            out.push(extremes(source, bytes.get(at(before)..at(*end)).unwrap_or_default()));
            before = *end;
        }
        first = first.saturating_add(ends.len());
    }
    Ok(out)
}

/// The pixels: indexes of colours.
pub(super) fn pixels(source: &Source<'_>) -> Result<Vec<u8>> {
    Ok(draw(&parts(source)?))
}

/// A curve through `parts`.
fn draw(parts: &[Extremes]) -> Vec<u8> {
    let mut canvas = vec![0u8; WIDTH * HEIGHT];
    let (left, right) = (MARGIN, WIDTH - MARGIN - 1);
    let (top, bottom) = (MARGIN, HEIGHT - MARGIN - 1);
    let mut vertical = |x: usize, from: usize, to: usize, colour: u8| {
        for y in from.min(to)..=from.max(to) {
            if let Some(pixel) = canvas.get_mut(y.saturating_mul(WIDTH).saturating_add(x)) {
                *pixel = colour;
            }
        }
    };
    for i in 0..=PARTS {
        vertical(left + (right - left) * i / PARTS, top, bottom, GRID);
        (left..=right).for_each(|x| vertical(x, top + (bottom - top) * i / PARTS, top + (bottom - top) * i / PARTS, GRID));
    }
    let all = parts.iter().flatten().copied().reduce(|(a, b), (c, d)| (a.min(c), b.max(d)));
    let Some((low, high)) = all else { return canvas };
    let place = |value: f64| {
        // By halves: the range of all doubles is no double.
        let width = high / 2.0 - low / 2.0;
        let part = if width > 0.0 { (value / 2.0 - low / 2.0) / width } else { 0.5 };
        bottom.saturating_sub((part.clamp(0.0, 1.0) * (bottom - top) as f64).round() as usize)
    };
    let last = parts.len().saturating_sub(1);
    let mut before: Option<(usize, usize)> = None;
    for x in left..=right {
        // Between two parts a straight line.
        let at = if right > left { (x - left) as f64 * last as f64 / (right - left) as f64 } else { 0.0 };
        let (part, rest) = (at.floor() as usize, at.fract());
        let get = |i: usize| parts.get(i).copied().flatten();
        let shown = match (get(part), get(part.saturating_add(1))) {
            (Some((a, b)), Some((c, d))) if rest > 0.0 => Some((a + (c - a) * rest, b + (d - b) * rest)),
            (Some(range), _) if rest < 0.5 || part == last => Some(range),
            (None, Some(range)) if rest >= 0.5 => Some(range),
            _ => None,
        };
        let Some((low, high)) = shown else {
            before = None;
            continue;
        };
        let (up, down) = (place(high), place(low));
        // As far as the pixels before it, so that there is no gap.
        let (from, to) = before.map_or((up, down), |(up_before, down_before)| (up.min(down_before), down.max(up_before)));
        vertical(x, from, to, LINE);
        before = Some((up, down));
    }
    canvas
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_curve_goes_from_the_smallest_to_the_largest_number() {
        let line: Vec<_> = (0..100).map(|i| Some((f64::from(i), f64::from(i)))).collect();
        let canvas = draw(&line);
        let blue = |x: usize| (0..HEIGHT).filter(|y| canvas[y * WIDTH + x] == LINE).collect::<Vec<_>>();
        assert_eq!(blue(MARGIN), [HEIGHT - MARGIN - 1]);
        assert_eq!(blue(WIDTH - MARGIN - 1).first(), Some(&MARGIN));
        assert!((MARGIN..WIDTH - MARGIN).all(|x| !blue(x).is_empty()), "no gap");
        let gap = draw(&[Some((0.0, 1.0)), None, Some((0.0, 1.0))]);
        assert!((0..HEIGHT).all(|y| gap[y * WIDTH + WIDTH / 2] != LINE), "numbers that are missing");
        assert!(draw(&[None]).iter().all(|pixel| *pixel != LINE));
        assert!(draw(&[Some((f64::MIN, f64::MAX))]).contains(&LINE) && draw(&[Some((5.0, 5.0))]).contains(&LINE));
    }
}
