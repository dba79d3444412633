//! Where two files differ first.

use crate::cli::side::{Content, PIECE_BYTES};
use std::cmp::Ordering;
use std::io;
use std::ops::Range;

/// Where two files differ first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FirstDifference {
    /// The byte.
    pub(super) offset: u64,
    /// Newlines before it.
    pub(super) newlines: u64,
}

/// The elements of a dataset with zeros in place of some of their bytes.
pub(super) struct Without {
    /// The elements.
    pub(super) content: Box<dyn Content>,
    /// Ranges of each element.
    pub(super) ranges: Vec<Range<u64>>,
    /// Size of an element, bytes.
    pub(super) size: u64,
}

impl Content for Without {
    fn read(&mut self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        let n = self.content.read(offset, buf)?;
        let end = offset.saturating_add(n as u64);
        let mut element = offset.saturating_sub(offset.checked_rem(self.size).unwrap_or(0));
        while element < end {
            for range in &self.ranges {
                let within = |at: u64| usize::try_from(element.saturating_add(at).clamp(offset, end).saturating_sub(offset)).unwrap_or(n);
                buf.get_mut(within(range.start)..within(range.end)).unwrap_or_default().fill(0);
            }
            element = element.saturating_add(self.size.max(1));
        }
        Ok(n)
    }

    fn data(&mut self, offset: u64) -> io::Result<Option<Range<u64>>> {
        self.content.data(offset)
    }

    fn size(&self) -> io::Result<u64> {
        self.content.size()
    }
}

/// Buffers of a comparison.
#[derive(Default)]
pub(super) struct Pieces {
    left: Vec<u8>,
    right: Vec<u8>,
}

/// Bytes after which two fill values that were equal are equal everywhere: the sum of both periods.
const FILL_WINDOW: usize = 128 << 10;

/// The range that begins first, as long as the one that ends last of those that begin there.
fn first_of(left: Option<Range<u64>>, right: Option<Range<u64>>) -> Option<Range<u64>> {
    match (left, right) {
        (Some(a), Some(b)) => Some(match a.start.cmp(&b.start) {
            Ordering::Less => a,
            Ordering::Equal => a.start..a.end.max(b.end),
            Ordering::Greater => b,
        }),
        (one, other) => one.or(other),
    }
}

/// The first byte in which the files differ, one of which may end there. Ranges that are holes in
/// both are not read, and of those that were written in neither only the beginning. Newlines there
/// are not counted.
pub(super) fn first_difference(
    left: &mut dyn Content,
    right: &mut dyn Content,
    pieces: &mut Pieces,
) -> io::Result<Option<FirstDifference>> {
    pieces.left.resize(PIECE_BYTES, 0);
    pieces.right.resize(PIECE_BYTES, 0);
    let (mut place, mut same_fill) = (FirstDifference { offset: 0, newlines: 0 }, false);
    loop {
        let Some(data) = first_of(left.data(place.offset)?, right.data(place.offset)?) else { return Ok(None) };
        let next = data.start;
        place.offset = next;
        let written = first_of(left.written(next)?, right.written(next)?);
        let unwritten = written.as_ref().map_or(u64::MAX, |range| range.start);
        let is_gap = unwritten > next;
        if is_gap {
            let size = left.size()?.min(right.size()?);
            if same_fill && size > next {
                place.offset = unwritten.min(size);
                continue;
            }
        }
        let end = if is_gap { unwritten } else { written.map_or(u64::MAX, |range| range.end) };
        let most = usize::try_from(end.saturating_sub(next)).unwrap_or(usize::MAX).min(if is_gap { FILL_WINDOW } else { PIECE_BYTES });
        let n = left.read(next, pieces.left.get_mut(..most).unwrap_or_default())?;
        let m = right.read(next, pieces.right.get_mut(..most).unwrap_or_default())?;
        let (a, b) = (pieces.left.get(..n).unwrap_or_default(), pieces.right.get(..m).unwrap_or_default());
        let equal = if a == b { n } else { a.iter().zip(b).take_while(|(a, b)| a == b).count() };
        let newlines = a.iter().take(equal).filter(|byte| **byte == b'\n').count() as u64;
        place.newlines = place.newlines.saturating_add(newlines);
        place.offset = next.saturating_add(equal as u64);
        if a != b {
            return Ok(Some(place));
        }
        if n < most {
            return Ok(None);
        }
        same_fill |= is_gap && n == FILL_WINDOW;
    }
}

/// Up to `most` bytes from `offset`.
pub(super) fn bytes_at(content: &mut dyn Content, offset: u64, most: usize) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; most];
    let n = content.read(offset, &mut bytes)?;
    bytes.truncate(n);
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ops::Range;

    /// Bytes with a hole of zeros before them.
    struct Holed(u64, Vec<u8>, u64);

    impl Content for Holed {
        fn read(&mut self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
            self.2 += 1;
            let size = self.size()?;
            let n = usize::try_from(size.saturating_sub(offset)).unwrap().min(buf.len());
            for (i, byte) in buf[..n].iter_mut().enumerate() {
                let at = offset + i as u64;
                *byte = if at < self.0 { 0 } else { self.1[usize::try_from(at - self.0).unwrap()] };
            }
            Ok(n)
        }

        fn data(&mut self, offset: u64) -> io::Result<Option<Range<u64>>> {
            let size = self.size()?;
            Ok((offset < size && !self.1.is_empty()).then_some(offset.max(self.0)..size))
        }

        fn size(&self) -> io::Result<u64> {
            Ok(self.0 + self.1.len() as u64)
        }
    }

    #[test]
    fn the_first_difference_is_found_and_holes_are_not_read() {
        let compare = |a: &mut Holed, b: &mut Holed| first_difference(a, b, &mut Pieces::default()).unwrap();
        let hole = 100 * PIECE_BYTES as u64;
        let (mut a, mut b) = (Holed(hole, b"x\ny\nz".to_vec(), 0), Holed(hole, b"x\ny\nw".to_vec(), 0));
        assert_eq!(compare(&mut a, &mut b), Some(FirstDifference { offset: hole + 4, newlines: 2 }));
        assert!(a.2 <= 2, "{} reads", a.2);
        let (mut a, mut b) = (Holed(5, b"q".to_vec(), 0), Holed(0, b"\0\0\0\0\0q".to_vec(), 0));
        assert_eq!(compare(&mut a, &mut b), None);
        let (mut a, mut b) = (Holed(0, b"q".to_vec(), 0), Holed(0, b"qr".to_vec(), 0));
        assert_eq!(compare(&mut a, &mut b), Some(FirstDifference { offset: 1, newlines: 0 }));
        let (mut a, mut b) = (Holed(9, Vec::new(), 0), Holed(9, Vec::new(), 0));
        assert_eq!(compare(&mut a, &mut b), None);
    }

    #[test]
    fn parts_of_elements_are_left_out() {
        let bytes: Vec<u8> = (0..32).collect();
        let mut content = Without { content: Box::new(Holed(0, bytes.clone(), 0)), ranges: vec![1..3, 6..8], size: 8 };
        let left: Vec<u8> = bytes.iter().map(|b| if [1, 2, 6, 7].contains(&(b % 8)) { 0 } else { *b }).collect();
        for (start, end) in [(0, 32), (2, 17), (7, 9), (31, 32), (3, 6)] {
            let mut found = vec![99; end - start];
            assert_eq!(content.read(start as u64, &mut found).unwrap(), end - start);
            assert_eq!(found, left[start..end], "{start} to {end}");
        }
    }

    /// Elements of this length with the fill value 1, 2, ..., of so many bytes, but for one.
    struct Filled(u64, u64, Option<u64>, u64);

    impl Content for Filled {
        fn read(&mut self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
            self.3 += 1;
            let n = usize::try_from(self.1.saturating_sub(offset)).unwrap_or(usize::MAX).min(buf.len());
            for (at, byte) in (offset..).zip(&mut buf[..n]) {
                *byte = if self.2 == Some(at) { 99 } else { 11 + (at % self.0) as u8 };
            }
            Ok(n)
        }

        fn data(&mut self, offset: u64) -> io::Result<Option<Range<u64>>> {
            Ok((offset < self.1).then_some(offset..self.1))
        }

        fn written(&mut self, offset: u64) -> io::Result<Option<Range<u64>>> {
            Ok(self.2.filter(|at| *at >= offset).map(|at| at..at + 1))
        }

        fn size(&self) -> io::Result<u64> {
            Ok(self.1)
        }
    }

    #[test]
    fn fill_values_are_compared_once() {
        const HUGE: u64 = 1 << 60;
        let compare = |a: &mut Filled, b: &mut Filled| first_difference(a, b, &mut Pieces::default()).unwrap().map(|p| p.offset);
        let of = |period, size, written| Filled(period, size, written, 0);
        let (mut a, mut b) = (of(8, HUGE, None), of(8, HUGE, Some(5)));
        assert_eq!(compare(&mut a, &mut b), Some(5));
        let (mut a, mut b) = (of(8, HUGE, Some(HUGE / 2)), of(8, HUGE, None));
        assert_eq!(compare(&mut a, &mut b), Some(HUGE / 2));
        let (mut a, mut b) = (of(8, HUGE, Some(9)), of(8, HUGE, Some(9)));
        assert_eq!((compare(&mut a, &mut b), a.3 < 9), (None, true));
        let (mut a, mut b) = (of(8, HUGE, None), of(8, HUGE + 1, None));
        assert_eq!(compare(&mut a, &mut b), Some(HUGE));
        let (mut a, mut b) = (of(8, HUGE, None), of(4, HUGE, None));
        assert_eq!(compare(&mut a, &mut b), Some(4));
    }
}
