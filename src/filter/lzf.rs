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

/// Farthest back reference, bytes.
const FAR: usize = 1 << 13;
/// Longest literal run.
const LITERALS: usize = 32;
/// Longest match, less the 2 bytes that need not be told.
const LONGEST: usize = (1 << 8) + (1 << 3);
/// log2 of the slots of the table of places.
const SLOT_BITS: u32 = 17;

/// A byte of the input; what is asked for is always inside.
fn byte(input: &[u8], at: usize) -> u32 {
    input.get(at).copied().map_or(0, u32::from)
}

/// The slot of the three bytes last shifted into `hash`.
fn slot(hash: u32) -> usize {
    ((hash >> (24 - SLOT_BITS)).wrapping_sub(hash) & ((1 << SLOT_BITS) - 1)) as usize
}

/// The block under construction: literals gather behind a place kept for their count.
struct Block {
    out: Vec<u8>,
    literals: usize,
    /// Most bytes the block may have.
    room: usize,
}

impl Block {
    /// Puts the number of literals before them, and leaves no place for it when there are none.
    fn close_run(&mut self) {
        let count = self.out.len().wrapping_sub(self.literals).wrapping_sub(1);
        match self.literals.checked_sub(1) {
            Some(less) => {
                if let Some(place) = self.out.get_mut(count) {
                    *place = less as u8;
                }
            }
            None => {
                self.out.pop();
            }
        }
        self.literals = 0;
    }

    /// Appends a literal; runs that are full are closed.
    fn literal(&mut self, byte: u32) {
        self.out.push(byte as u8);
        self.literals = self.literals.saturating_add(1);
        if self.literals == LITERALS {
            self.close_run();
            self.out.push(0);
        }
    }

    /// Appends a copy of `length` bytes from `back` + 1 bytes before; false when there is no room.
    fn copy(&mut self, back: usize, length: usize) -> bool {
        let empty = usize::from(self.literals == 0);
        if self.out.len().saturating_sub(empty).saturating_add(4) >= self.room {
            return false;
        }
        self.close_run();
        let told = length.saturating_sub(2);
        if told < 7 {
            self.out.push((back >> 8 | told << 5) as u8);
        } else {
            self.out.extend_from_slice(&[(back >> 8 | 7 << 5) as u8, told.saturating_sub(7) as u8]);
        }
        self.out.extend_from_slice(&[back as u8, 0]);
        true
    }
}

/// How many bytes at `at` equal those at `from`, at least 3, which are known to.
fn match_length(input: &[u8], from: usize, at: usize) -> usize {
    let bound = input.len().saturating_sub(at).saturating_sub(2).min(LONGEST);
    // LibLZF looks at 16 bytes without asking for the bound where that is farther, and else asks only after
    // the third byte.
    let bound = if (17..=18).contains(&bound) { 19 } else { bound.max(3) };
    let (a, b) = (input.get(from..).unwrap_or_default(), input.get(at..).unwrap_or_default());
    let same = a.iter().zip(b).skip(3).take(bound.saturating_sub(3)).take_while(|(a, b)| a == b).count();
    same.saturating_add(3)
}

/// Compresses into one block; declines when it would not be shorter than `input`. The choices are those of LibLZF, so
/// that the block is the same byte by byte.
pub fn encode(input: &[u8], _: &Params<'_>) -> Result<Option<Vec<u8>>, FilterError> {
    if input.is_empty() {
        return Ok(None);
    }
    // Places, of which 0 stands for none: LibLZF never refers to the first byte.
    let mut places = vec![0u32; 1 << SLOT_BITS];
    if u32::try_from(input.len()).is_err() {
        return Ok(None);
    }
    let room = input.len();
    let mut block = Block { out: bounded::buffer(NAME, room.saturating_add(4), usize::MAX)?, literals: 0, room };
    block.out.push(0);
    let last = input.len().saturating_sub(2);
    let mut at = 0;
    let mut hash = byte(input, 0) << 8 | byte(input, 1);
    while at < last {
        hash = hash << 8 | byte(input, at + 2);
        let Some(place) = places.get_mut(slot(hash)) else { return Ok(None) };
        let from = std::mem::replace(place, at as u32) as usize;
        let back = at.wrapping_sub(from).wrapping_sub(1);
        if back < FAR
            && from > 0
            && at.saturating_add(4) < input.len()
            && input.get(from..from.saturating_add(3)) == input.get(at..at.saturating_add(3))
        {
            let length = match_length(input, from, at);
            if !block.copy(back, length) {
                return Ok(None);
            }
            at = at.saturating_add(length);
            if at >= last {
                break;
            }
            // Of the places within the match the last is remembered.
            let within = at.saturating_sub(1);
            hash = byte(input, within) << 16 | byte(input, at) << 8 | byte(input, at + 1);
            if let Some(place) = places.get_mut(slot(hash)) {
                *place = within as u32;
            }
        } else {
            if block.out.len() >= room {
                return Ok(None);
            }
            block.literal(byte(input, at));
            at = at.saturating_add(1);
        }
    }
    if block.out.len().saturating_add(3) > room {
        return Ok(None);
    }
    for at in at..input.len() {
        block.literal(byte(input, at));
    }
    block.close_run();
    Ok(Some(bounded::fitted(block.out)))
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
