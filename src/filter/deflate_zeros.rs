//! Deflate of data that are mostly long runs of zeros, such as frames with few defined pixels.
//!
//! A zlib stream is a sequence of blocks, of which some end at a byte (RFC 1951, 3.2). The blocks
//! of a run of zeros are deflated once and then repeated, so that the cost follows the other data.

use flate2::{Compress, Compression, FlushCompress, Status};
use std::cell::RefCell;

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

/// Data that are deflated.
#[derive(Debug, PartialEq, Eq)]
pub enum Run<'a> {
    /// So many zeros, a multiple of [`STEP_BYTES`].
    Zeros(usize),
    /// Parts that follow each other.
    Data(Vec<&'a [u8]>),
}

/// Appends `part` to `runs`.
pub fn push<'a>(runs: &mut Vec<Run<'a>>, part: &'a [u8]) {
    match runs.last_mut() {
        Some(Run::Data(parts)) => parts.push(part),
        _ => runs.push(Run::Data(vec![part])),
    }
}

/// Appends `len` zeros to `runs`.
pub fn push_zeros(runs: &mut Vec<Run<'_>>, len: usize) {
    let whole = len - len % STEP_BYTES;
    match runs.last_mut() {
        Some(Run::Zeros(before)) => *before = before.saturating_add(whole),
        _ if whole > 0 => runs.push(Run::Zeros(whole)),
        _ => {}
    }
    if let Some(rest) = ZEROS.get(..len % STEP_BYTES).filter(|rest| !rest.is_empty()) {
        push(runs, rest);
    }
}

/// Deflates `input`. `None`: it has not enough zeros to gain from this.
pub(super) fn encode(input: &[u8], level: u32) -> Option<Vec<u8>> {
    encode_runs(&runs(input), level)
}

/// Deflates `runs`, as [`encode`].
pub(super) fn encode_runs(runs: &[Run<'_>], level: u32) -> Option<Vec<u8>> {
    let (mut zeros, mut data) = (0usize, 0usize);
    for run in runs {
        match run {
            Run::Zeros(len) => zeros = zeros.saturating_add(*len),
            Run::Data(parts) => data = parts.iter().fold(data, |n, part| n.saturating_add(part.len())),
        }
    }
    if zeros == 0 || zeros < data {
        return None;
    }
    ENCODER.with_borrow_mut(|kept| {
        if kept.as_ref().is_none_or(|of| of.level != level) {
            *kept = Some(Encoder::new(level)?);
        }
        kept.as_mut()?.encode(runs)
    })
}

impl Encoder {
    fn new(level: u32) -> Option<Self> {
        let compress = |level| Compress::new(Compression::new(level), false);
        let mut zeros = [Vec::new(), Vec::new()];
        for (len, unit) in UNITS_BYTES.into_iter().zip(&mut zeros) {
            blocks(&mut compress(LEVEL_MAX), &[ZEROS.get(..len)?], unit)?;
        }
        Some(Encoder { level, compress: compress(level.max(LEVEL_MIN)), zeros })
    }

    fn encode(&mut self, runs: &[Run<'_>]) -> Option<Vec<u8>> {
        let mut out = HEADER.to_vec();
        let mut sum = Adler::default();
        for run in runs {
            match run {
                Run::Zeros(zeros) => {
                    let mut left = *zeros;
                    for (len, unit) in UNITS_BYTES.into_iter().zip(&self.zeros) {
                        (0..left / len).for_each(|_| out.extend_from_slice(unit));
                        left %= len;
                    }
                    sum.add_zeros(*zeros);
                }
                Run::Data(parts) => {
                    blocks(&mut self.compress, parts, &mut out)?;
                    parts.iter().for_each(|part| sum.add(part));
                }
            }
        }
        out.extend_from_slice(&LAST_BLOCK);
        out.extend_from_slice(&sum.value().to_be_bytes());
        Some(out)
    }
}

/// Appends the blocks of `parts`, which end at a byte and refer to no data before them.
fn blocks(compress: &mut Compress, parts: &[&[u8]], out: &mut Vec<u8>) -> Option<()> {
    compress.reset();
    let (last, before) = parts.split_last()?;
    before.iter().try_for_each(|part| feed(compress, part, FlushCompress::None, out))?;
    feed(compress, last, FlushCompress::Full, out)
}

/// Deflates `input` as a whole.
fn feed(compress: &mut Compress, input: &[u8], flush: FlushCompress, out: &mut Vec<u8>) -> Option<()> {
    let mut rest = input;
    loop {
        out.try_reserve(rest.len().saturating_add(1024)).ok()?;
        let (before, room) = (compress.total_in(), out.capacity());
        let status = compress.compress_vec(rest, out, flush).ok()?;
        let used = usize::try_from(compress.total_in().checked_sub(before)?).ok()?;
        rest = rest.get(used..)?;
        // A flush is complete when it leaves room.
        if status == Status::Ok && rest.is_empty() && out.len() < room {
            return Some(());
        }
    }
}

/// Divides `input` into whole steps of zeros and other data.
fn runs(input: &[u8]) -> Vec<Run<'_>> {
    let mut runs = Vec::new();
    let mut at = 0usize;
    let is_zero = |step: &[u8]| ZEROS.get(..STEP_BYTES) == Some(step);
    while let Some(rest) = input.get(at..).filter(|rest| !rest.is_empty()) {
        let same = is_zero(rest.get(..STEP_BYTES).unwrap_or_default());
        let steps = rest.chunks(STEP_BYTES).take_while(|step| is_zero(step) == same);
        let len = steps.map(<[u8]>::len).sum();
        match same {
            true => runs.push(Run::Zeros(len)),
            false => runs.push(Run::Data(vec![rest.get(..len).unwrap_or_default()])),
        }
        at = at.saturating_add(len);
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
            let mut runs = Vec::new();
            for step in input.chunks(STEP_BYTES) {
                if step.iter().all(|b| *b == 0) { push_zeros(&mut runs, step.len()) } else { push(&mut runs, step) }
            }
            if let Some(stream) = encode_runs(&runs, level) {
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
