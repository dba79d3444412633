//! Where two files differ first.

use crate::cli::side::{Content, PIECE_BYTES};
use std::io;

/// Where two files differ first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    /// The byte.
    pub(super) offset: u64,
    /// Newlines before it.
    pub(super) newlines: u64,
    /// The byte after the last of these newlines.
    pub(super) line: u64,
}

/// Buffers of a comparison.
#[derive(Default)]
pub(super) struct Pieces {
    left: Vec<u8>,
    right: Vec<u8>,
}

/// The first byte in which the files differ, one of which may end there. Ranges that are holes in
/// both are not read.
pub(super) fn first_difference(left: &mut dyn Content, right: &mut dyn Content, pieces: &mut Pieces) -> io::Result<Option<Place>> {
    pieces.left.resize(PIECE_BYTES, 0);
    pieces.right.resize(PIECE_BYTES, 0);
    let mut place = Place { offset: 0, newlines: 0, line: 0 };
    loop {
        let next = match (left.data(place.offset)?, right.data(place.offset)?) {
            (None, None) => return Ok(None),
            (Some(a), Some(b)) => a.start.min(b.start),
            (Some(a), None) | (None, Some(a)) => a.start,
        };
        place.offset = next;
        let n = left.read(next, &mut pieces.left)?;
        let m = right.read(next, &mut pieces.right)?;
        let (a, b) = (pieces.left.get(..n).unwrap_or_default(), pieces.right.get(..m).unwrap_or_default());
        let equal = if a == b { n } else { a.iter().zip(b).take_while(|(a, b)| a == b).count() };
        for (at, _) in a.iter().enumerate().take(equal).filter(|(_, byte)| **byte == b'\n') {
            place.newlines = place.newlines.saturating_add(1);
            place.line = next.saturating_add(at as u64).saturating_add(1);
        }
        place.offset = next.saturating_add(equal as u64);
        if a != b {
            return Ok(Some(place));
        }
        if n < PIECE_BYTES {
            return Ok(None);
        }
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
        assert_eq!(compare(&mut a, &mut b), Some(Place { offset: hole + 4, newlines: 2, line: hole + 4 }));
        assert!(a.2 <= 2, "{} reads", a.2);
        let (mut a, mut b) = (Holed(5, b"q".to_vec(), 0), Holed(0, b"\0\0\0\0\0q".to_vec(), 0));
        assert_eq!(compare(&mut a, &mut b), None);
        let (mut a, mut b) = (Holed(0, b"q".to_vec(), 0), Holed(0, b"qr".to_vec(), 0));
        assert_eq!(compare(&mut a, &mut b), Some(Place { offset: 1, newlines: 0, line: 0 }));
        let (mut a, mut b) = (Holed(9, Vec::new(), 0), Holed(9, Vec::new(), 0));
        assert_eq!(compare(&mut a, &mut b), None);
    }
}
