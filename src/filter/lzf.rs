//! Filter 32000, LZF (h5py): one LibLZF block, without header.
//!
//! ```text
//! 000LLLLL                     L + 1 literal bytes follow
//! LLLooooo oooooooo            copy L + 2 bytes (L of 1 to 6) from o + 1 bytes back
//! 111ooooo LLLLLLLL oooooooo   copy L + 9 bytes from o + 1 bytes back
//! ```
//!
//! Client data: filter revision, LZF version, chunk size; none is needed here.

use super::{FilterError, Params, bounded};

const NAME: &str = "lzf";

fn short() -> FilterError {
    FilterError::corrupt(NAME, "the block ends early")
}

/// Decompresses a block.
pub fn decode(input: &[u8], p: &Params<'_>) -> Result<Vec<u8>, FilterError> {
    let mut out = bounded::buffer(NAME, p.expected, p.limit)?;
    let mut rest = input;
    while let Some((&control, tail)) = rest.split_first() {
        rest = if control < 32 {
            let (literals, tail) = tail.split_at_checked(usize::from(control).saturating_add(1)).ok_or_else(short)?;
            bounded::reserve(NAME, &mut out, literals.len(), p.limit)?;
            out.extend_from_slice(literals);
            tail
        } else {
            copy(control, tail, &mut out, p.limit)?
        };
    }
    Ok(out)
}

/// A back reference; gives what follows it.
fn copy<'a>(control: u8, tail: &'a [u8], out: &mut Vec<u8>, limit: usize) -> Result<&'a [u8], FilterError> {
    let (length, tail) = match control >> 5 {
        7 => tail.split_first().map(|(&more, tail)| (usize::from(more).saturating_add(9), tail)).ok_or_else(short)?,
        length => (usize::from(length).saturating_add(2), tail),
    };
    let (&low, tail) = tail.split_first().ok_or_else(short)?;
    let back = (usize::from(control & 0x1f) << 8 | usize::from(low)).saturating_add(1);
    let from = out.len().checked_sub(back).ok_or_else(|| FilterError::corrupt(NAME, "a copy from before the beginning"))?;
    bounded::reserve(NAME, out, length, limit)?;
    if back >= length {
        out.extend_from_within(from..from.saturating_add(length));
    } else if back == 1 {
        let byte = out.last().copied().unwrap_or(0);
        out.resize(out.len().saturating_add(length), byte);
    } else {
        for at in from..from.saturating_add(length) {
            let byte = out.get(at).copied().unwrap_or(0);
            out.push(byte);
        }
    }
    Ok(tail)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_may_overlap() {
        let p = Params { cd_values: &[], expected: 0, limit: 100 };
        // "ab", 5 bytes from 2 back, 10 bytes from 1 back
        assert_eq!(decode(&[1, b'a', b'b', 0x60, 1, 0xe0, 1, 0], &p).unwrap(), b"abababaaaaaaaaaaa");
        assert_eq!(decode(&[], &p).unwrap(), b"");
    }

    #[test]
    fn corrupt_blocks() {
        let p = Params { cd_values: &[], expected: 0, limit: 100 };
        for block in [&[3, 1][..], &[0x20], &[0, 1, 0x20], &[0, 1, 0x20, 1], &[0xe0], &[0, 1, 0xe0, 0], &[0, 1, 0x3f, 0]] {
            assert!(matches!(decode(block, &p), Err(FilterError::Corrupt { .. })), "{block:?}");
        }
        assert!(matches!(decode(&[0, 1, 0xe0, 200, 0], &p), Err(FilterError::TooLarge { .. })));
    }
}
