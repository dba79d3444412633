//! Bytes that are read and written piece by piece, to bound memory.

use super::limits::IO_PIECE_BYTES;
use std::ops::Range;

/// Offsets and lengths of the pieces of `range`: at most [`IO_PIECE_BYTES`] each.
pub fn pieces(range: Range<u64>) -> impl Iterator<Item = (u64, usize)> {
    let end = range.end;
    range.step_by(IO_PIECE_BYTES).map(move |at| (at, usize::try_from(end.saturating_sub(at)).unwrap_or(IO_PIECE_BYTES).min(IO_PIECE_BYTES)))
}

/// Reads `len` bytes piece by piece: `read` fills a buffer from an offset, `take` gets it.
pub fn each_piece<E>(
    len: u64,
    read: &dyn Fn(u64, &mut [u8]) -> Result<(), E>,
    take: &mut dyn FnMut(&[u8]) -> Result<(), E>,
) -> Result<(), E> {
    let mut buffer = vec![0; usize::try_from(len).unwrap_or(usize::MAX).min(IO_PIECE_BYTES)];
    for (at, n) in pieces(0..len) {
        let piece = buffer.get_mut(..n).unwrap_or_default();
        read(at, piece)?;
        take(piece)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_have_all_bytes_in_order() {
        for len in [0, 1, IO_PIECE_BYTES as u64, IO_PIECE_BYTES as u64 * 3 + 5] {
            let mut all = Vec::new();
            let read = |at: u64, buf: &mut [u8]| {
                buf.iter_mut().zip(at..).for_each(|(to, n)| *to = (n % 251) as u8);
                Ok::<(), ()>(())
            };
            each_piece(len, &read, &mut |piece| {
                assert!(piece.len() <= IO_PIECE_BYTES);
                all.extend_from_slice(piece);
                Ok(())
            })
            .unwrap();
            assert!(all.len() as u64 == len && all.iter().zip(0u64..).all(|(byte, n)| *byte == (n % 251) as u8));
        }
        assert_eq!(pieces(7..7).count(), 0);
        assert_eq!(each_piece(9, &|_, _| Err(3), &mut |_| Ok(())), Err(3));
    }
}
