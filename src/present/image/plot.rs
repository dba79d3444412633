//! A line plot of the numbers of a dataset of one dimension.

use super::encode::{Colours, Image};
use super::pixels::Source;
use super::sample::{READ_BYTES_MAX, tile_bytes};
use crate::base::Result;
use crate::present::statistics::float_of;

/// Pixels of a plot.
const WIDTH: usize = 1024;
const HEIGHT: usize = 512;
/// Pixels around the lines.
const MARGIN: usize = 8;
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

/// Smallest and largest finite number of each part of the dataset; `None`: a part has none.
fn parts(source: &Source<'_>) -> Result<Vec<Option<(f64, f64)>>> {
    let (n, size) = (source.layout.width, source.dataset.datatype.element_size().max(1));
    let room = (WIDTH.saturating_sub(2 * MARGIN)) as u64;
    // Each part of a large dataset is read from another chunk.
    let most = if n.saturating_mul(size) <= READ_BYTES_MAX { room } else { (READ_BYTES_MAX / tile_bytes(source.dataset)).clamp(1, room) };
    let count = n.min(most);
    let each = (READ_BYTES_MAX / size / count.max(1)).max(1);
    let mut out = Vec::new();
    for part in 0..count {
        let at = |part: u64| (u128::from(part) * u128::from(n) / u128::from(count)) as u64;
        let (start, end) = (at(part), at(part.saturating_add(1)).max(at(part).saturating_add(1)));
        let range = start..end.min(start.saturating_add(each)).min(n);
        let bytes = source.read(source.layout.run(0, 0, 0, &range))?;
        let numbers = bytes.chunks_exact(usize::try_from(size).unwrap_or(usize::MAX));
        let numbers = numbers.filter_map(|element| float_of(&source.dataset.datatype, element)).filter(|x| x.is_finite());
        out.push(numbers.fold(None, |range: Option<(f64, f64)>, x| Some(range.map_or((x, x), |(low, high)| (low.min(x), high.max(x))))));
    }
    Ok(out)
}

/// The pixels: indexes of colours.
pub(super) fn pixels(source: &Source<'_>) -> Result<Vec<u8>> {
    Ok(draw(&parts(source)?))
}

/// A curve through `parts`.
fn draw(parts: &[Option<(f64, f64)>]) -> Vec<u8> {
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
