//! Deflate of data that are mostly long runs of zeros, such as frames with few defined pixels.
//!
//! A zlib stream is a sequence of blocks, of which some end at a byte (RFC 1951, 3.2). The blocks
//! of a run of zeros are deflated once and then repeated, so that the cost follows the other data.

use flate2::{Compress, Compression, FlushCompress, Status};
use std::cell::RefCell;
use std::ops::Range;

/// Zeros that are deflated once, bytes: of long runs, and of what is left of them.
const UNITS_BYTES: [usize; 2] = [64 << 10, 4 << 10];
/// Data are divided into zeros and others at multiples of this number of bytes.
const STEP_BYTES: usize = UNITS_BYTES[1];
/// The level of the units of zeros.
const LEVEL_MAX: u32 = 9;
/// The least level of the other data: level 1 stores the zeros around a few bytes six times as
/// large.
const LEVEL_MIN: u32 = 2;
/// Deflate with a window of 32 KiB, and the check of these two bytes (RFC 1950).
const HEADER: [u8; 2] = [0x78, 0x01];
/// An empty last block.
const LAST_BLOCK: [u8; 2] = [0x03, 0x00];
/// Adler-32: the largest prime below 2^16, and bytes that cannot overflow a sum.
const ADLER_MODULUS: u32 = 65_521;
const ADLER_BYTES: usize = 5552;

static ZEROS: [u8; UNITS_BYTES[0]] = [0; UNITS_BYTES[0]];

/// Encoder of one level.
struct Encoder {
    level: u32,
    compress: Compress,
    /// The blocks of one unit of zeros, of each length.
    zeros: [Vec<u8>; 2],
}

thread_local! {
    /// Reused by every chunk of a thread with the same level.
    static ENCODER: RefCell<Option<Encoder>> = const { RefCell::new(None) };
}

/// Deflates `input`. `None`: it has not enough zeros to gain from this.
pub(super) fn encode(input: &[u8], level: u32) -> Option<Vec<u8>> {
    let runs = runs(input);
    let zeros: usize = runs.iter().filter(|(_, is_zero)| *is_zero).map(|(run, _)| run.len()).sum();
    if zeros == 0 || zeros < input.len() / 2 {
        return None;
    }
    ENCODER.with_borrow_mut(|kept| {
        if kept.as_ref().is_none_or(|of| of.level != level) {
            *kept = Some(Encoder::new(level)?);
        }
        kept.as_mut()?.encode(input, runs)
    })
}

impl Encoder {
    fn new(level: u32) -> Option<Self> {
        let compress = |level| Compress::new(Compression::new(level), false);
        let mut zeros = [Vec::new(), Vec::new()];
        for (len, unit) in UNITS_BYTES.into_iter().zip(&mut zeros) {
            blocks(&mut compress(LEVEL_MAX), ZEROS.get(..len)?, unit)?;
        }
        Some(Encoder { level, compress: compress(level.max(LEVEL_MIN)), zeros })
    }

    fn encode(&mut self, input: &[u8], runs: Vec<(Range<usize>, bool)>) -> Option<Vec<u8>> {
        let mut out = HEADER.to_vec();
        let mut sum = Adler::default();
        for (range, is_zero) in runs {
            let part = input.get(range)?;
            if is_zero {
                let mut left = part.len();
                for (len, unit) in UNITS_BYTES.into_iter().zip(&self.zeros) {
                    (0..left / len).for_each(|_| out.extend_from_slice(unit));
                    left %= len;
                }
                sum.add_zeros(part.len());
            } else {
                blocks(&mut self.compress, part, &mut out)?;
                sum.add(part);
            }
        }
        out.extend_from_slice(&LAST_BLOCK);
        out.extend_from_slice(&sum.value().to_be_bytes());
        Some(out)
    }
}

/// Appends the blocks of `input`, which end at a byte and refer to no data before them.
fn blocks(compress: &mut Compress, input: &[u8], out: &mut Vec<u8>) -> Option<()> {
    compress.reset();
    let mut rest = input;
    loop {
        out.try_reserve(rest.len().saturating_add(1024)).ok()?;
        let (before, room) = (compress.total_in(), out.capacity());
        let status = compress.compress_vec(rest, out, FlushCompress::Full).ok()?;
        let used = usize::try_from(compress.total_in().checked_sub(before)?).ok()?;
        rest = rest.get(used..)?;
        // The flush is complete when it leaves room.
        if status == Status::Ok && rest.is_empty() && out.len() < room {
            return Some(());
        }
    }
}

/// Divides `input` into whole steps of zeros (true) and other data.
fn runs(input: &[u8]) -> Vec<(Range<usize>, bool)> {
    let mut runs: Vec<(Range<usize>, bool)> = Vec::new();
    let mut at = 0usize;
    for unit in input.chunks(STEP_BYTES) {
        let is_zero = unit.len() == STEP_BYTES && ZEROS.get(..STEP_BYTES) == Some(unit);
        let end = at.saturating_add(unit.len());
        match runs.last_mut() {
            Some((range, same)) if *same == is_zero => range.end = end,
            _ => runs.push((at..end, is_zero)),
        }
        at = end;
    }
    runs
}

/// Adler-32 checksum (RFC 1950, 8.2).
struct Adler {
    a: u32,
    b: u32,
}

impl Default for Adler {
    fn default() -> Self {
        Adler { a: 1, b: 0 }
    }
}

impl Adler {
    fn add(&mut self, data: &[u8]) {
        for part in data.chunks(ADLER_BYTES) {
            for byte in part {
                self.a = self.a.wrapping_add(u32::from(*byte));
                self.b = self.b.wrapping_add(self.a);
            }
            self.a %= ADLER_MODULUS;
            self.b %= ADLER_MODULUS;
        }
    }

    /// Adds `count` zeros: each adds the first sum to the second.
    fn add_zeros(&mut self, count: usize) {
        let modulus = u64::from(ADLER_MODULUS);
        let added = (count as u64 % modulus).saturating_mul(self.a.into());
        let b = u64::from(self.b).saturating_add(added) % modulus;
        self.b = u32::try_from(b).unwrap_or(0);
    }

    fn value(&self) -> u32 {
        self.b << 16 | self.a
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::read::ZlibDecoder;
    use proptest::prelude::*;
    use std::io::Read;

    fn inflated(stream: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        ZlibDecoder::new(stream).read_to_end(&mut out).unwrap();
        let mut whole = vec![0; out.len()];
        assert_eq!(libdeflater::Decompressor::new().zlib_decompress(stream, &mut whole), Ok(out.len()));
        assert_eq!(whole, out);
        out
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn streams_inflate_to_what_was_deflated(
            len in 0usize..1 << 20, spots in prop::collection::vec((any::<u32>(), 1usize..200_000, any::<u8>()), 0..5), level in 0u32..=9,
        ) {
            let mut input = vec![0u8; len];
            for (at, size, seed) in spots {
                let at = at as usize % (len + 1);
                let end = (at + size).min(len);
                input[at..end].iter_mut().enumerate().for_each(|(i, b)| *b = (i * 7 + i / 300) as u8 ^ seed);
            }
            if let Some(stream) = encode(&input, level) {
                prop_assert!(inflated(&stream) == input);
            }
        }
    }

    #[test]
    fn zeros_cost_little_and_other_data_are_left_to_the_usual_encoder() {
        let mut input = vec![0u8; 8 << 20];
        input[5_000_000..5_000_100].fill(9);
        let stream = encode(&input, 1).unwrap();
        assert!(stream.len() < 20_000 && inflated(&stream) == input, "{}", stream.len());
        assert!(encode(&vec![1; 1 << 20], 1).is_none() && encode(&[], 1).is_none() && encode(&[0; 1000], 1).is_none());
    }
}
