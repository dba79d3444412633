//! Filter 32000, LZF (h5py): one LibLZF block, without header.
//!
//! ```text
//! 000LLLLL                     L + 1 literal bytes follow
//! LLLooooo oooooooo            copy L + 2 bytes (L of 1 to 6) from o + 1 bytes back
//! 111ooooo LLLLLLLL oooooooo   copy L + 9 bytes from o + 1 bytes back
//! ```
//!
//! Client data: filter revision, LZF version, chunk size; the decoder needs none of them.

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

/// Decodes a back reference after its control byte; returns the input after it.
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

/// Longest distance of a back reference, bytes.
const DISTANCE_MAX: usize = 1 << 13;
/// Longest run of literals, bytes.
const LITERAL_RUN_MAX: usize = 32;
/// Longest match, bytes, less the 2 bytes that the length code does not count.
const MATCH_CODE_MAX: usize = (1 << 8) + (1 << 3);
/// log2 of the number of hash table slots.
const SLOT_BITS: u32 = 17;

/// The byte of `input` at `at`; 0 past the end, which callers never request.
fn byte(input: &[u8], at: usize) -> u32 {
    input.get(at).copied().map_or(0, u32::from)
}

/// Hash table slot of the last three bytes shifted into `hash`.
fn slot(hash: u32) -> usize {
    ((hash >> (24 - SLOT_BITS)).wrapping_sub(hash) & ((1 << SLOT_BITS) - 1)) as usize
}

/// The block being written: a literal run is preceded by a placeholder for its length.
struct Block {
    out: Vec<u8>,
    literals: usize,
    /// Most bytes of the block.
    room: usize,
}

impl Block {
    /// Ends the literal run: stores its length, or removes the placeholder of an empty run.
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

    /// Appends a literal; starts a new run when the run is full.
    fn literal(&mut self, byte: u32) {
        self.out.push(byte as u8);
        self.literals = self.literals.saturating_add(1);
        if self.literals == LITERAL_RUN_MAX {
            self.close_run();
            self.out.push(0);
        }
    }

    /// Appends a copy of `length` bytes at distance `back` + 1; false when the block is full.
    fn copy(&mut self, back: usize, length: usize) -> bool {
        let empty = usize::from(self.literals == 0);
        if self.out.len().saturating_sub(empty).saturating_add(4) >= self.room {
            return false;
        }
        self.close_run();
        let code = length.saturating_sub(2);
        if code < 7 {
            self.out.push((back >> 8 | code << 5) as u8);
        } else {
            self.out.extend_from_slice(&[(back >> 8 | 7 << 5) as u8, code.saturating_sub(7) as u8]);
        }
        self.out.extend_from_slice(&[back as u8, 0]);
        true
    }
}

/// Length of the match at `from` and `at`, whose first 3 bytes are known to be equal.
fn match_length(input: &[u8], from: usize, at: usize) -> usize {
    let bound = input.len().saturating_sub(at).saturating_sub(2).min(MATCH_CODE_MAX);
    // LibLZF compares 16 bytes without checking a longer bound, and otherwise checks it only after
    // the third byte.
    let bound = if (17..=18).contains(&bound) { 19 } else { bound.max(3) };
    let (a, b) = (input.get(from..).unwrap_or_default(), input.get(at..).unwrap_or_default());
    let same = a.iter().zip(b).skip(3).take(bound.saturating_sub(3)).take_while(|(a, b)| a == b).count();
    same.saturating_add(3)
}

/// Compresses into one block; declines if it would not be shorter than `input`.
///
/// Matches are chosen as by LibLZF, so that the output is identical byte for byte.
pub fn encode(input: &[u8], _: &Params<'_>) -> Result<Option<Vec<u8>>, FilterError> {
    if input.is_empty() {
        return Ok(None);
    }
    // Positions by hash; 0 means none: LibLZF never refers to the first byte.
    let mut positions = vec![0u32; 1 << SLOT_BITS];
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
        let Some(place) = positions.get_mut(slot(hash)) else { return Ok(None) };
        let from = std::mem::replace(place, at as u32) as usize;
        let back = at.wrapping_sub(from).wrapping_sub(1);
        if back < DISTANCE_MAX
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
            // Of the positions within the match, only the last enters the table.
            let within = at.saturating_sub(1);
            hash = byte(input, within) << 16 | byte(input, at) << 8 | byte(input, at + 1);
            if let Some(place) = positions.get_mut(slot(hash)) {
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
        // "ab", 5 bytes at distance 2, 10 bytes at distance 1
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
