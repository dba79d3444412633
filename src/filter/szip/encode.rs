//! Encoder of szip: adaptive entropy coding of reference sample intervals (CCSDS 121.0-B, sections
//! 3 to 5).
//!
//! The stream is that of [`super::rice`]; each block uses the shortest of its possible options.

use super::geometry::{Geometry, NAME};
use crate::filter::bits::BitWriter;
use crate::filter::{FilterError, Params, bounded, shuffle};

/// Size of the length prefix of the stream, bytes.
const PREFIX_BYTES: usize = 4;
/// Longest run of zero blocks coded as its length less one.
const SHORT_RUN_BLOCKS: usize = 4;
/// Blocks of one segment.
const SEGMENT_BLOCKS: usize = 64;
/// Largest sum of two samples that has a second-extension code.
const SUM_MAX: u64 = 12;

/// Encodes one chunk; declines when the stream would be longer than `input`.
///
/// # Errors
/// [`FilterError::Corrupt`] if the client data are invalid, the chunk is not whole pixels, or a
/// pixel has bits beyond its width.
pub fn encode(input: &[u8], p: &Params<'_>) -> Result<Option<Vec<u8>>, FilterError> {
    let geometry = Geometry::new(p.cd_values)?;
    let Ok(length) = u32::try_from(input.len()) else { return Ok(None) };
    if !input.len().is_multiple_of(geometry.sample.saturating_mul(geometry.planes)) {
        return Err(FilterError::corrupt(NAME, "the chunk is not whole pixels"));
    }
    let mut apart = Vec::new();
    let bytes = if geometry.planes > 1 {
        apart.resize(input.len(), 0);
        shuffle::shuffle(input, geometry.planes, &mut apart);
        &apart
    } else {
        input
    };
    let mut out = bounded::buffer(NAME, input.len().saturating_add(PREFIX_BYTES), usize::MAX)?;
    out.extend_from_slice(&length.to_le_bytes());
    let blocks = geometry.scanline.div_ceil(geometry.block);
    let mut coder = Coder { bits: BitWriter::new(out), width: geometry.width, block: geometry.block, blocks };
    let padded = blocks.saturating_mul(geometry.block);
    let mut samples = Vec::with_capacity(padded);
    for line in bytes.chunks(geometry.scanline.saturating_mul(geometry.sample)) {
        samples.clear();
        geometry.load(line, &mut samples);
        if samples.iter().fold(0, |all, s| all | s) > coder.max() {
            return Err(FilterError::corrupt(NAME, "a pixel has bits beyond its width"));
        }
        // Padding of a line's last block: the samples that are cheapest to code.
        let fill = if geometry.preprocess { samples.last().copied().unwrap_or(0) } else { 0 };
        samples.resize(padded, fill);
        let reference = geometry.preprocess.then(|| predict(&mut samples, coder.max()));
        coder.interval(&samples, reference);
        if coder.bits.len() / 8 > input.len().saturating_add(PREFIX_BYTES) {
            return Ok(None);
        }
    }
    let out = coder.bits.finish();
    Ok(Some(out).filter(|out| out.len() <= input.len().saturating_add(PREFIX_BYTES)).map(bounded::fitted))
}

impl Geometry {
    /// Reads the samples of `line`, whole samples in memory order.
    fn load(&self, line: &[u8], samples: &mut Vec<u32>) {
        let fold = |v: u32, b: &u8| v << 8 | u32::from(*b);
        match self.sample {
            1 => samples.extend(line.iter().map(|&b| u32::from(b))),
            size if self.msb => samples.extend(line.chunks_exact(size).map(|s| s.iter().fold(0, fold))),
            size => samples.extend(line.chunks_exact(size).map(|s| s.iter().rev().fold(0, fold))),
        }
    }
}

/// Replaces samples by mapped differences to the previous sample; returns the first one, replaced
/// by 0.
///
/// All samples must be at most `max`, a power of two less one.
fn predict(samples: &mut [u32], max: u32) -> u32 {
    let Some((first, rest)) = samples.split_first_mut() else { return 0 };
    let reference = std::mem::take(first);
    let mut before = reference;
    for s in rest {
        let x = *s;
        let room = before.min(max.saturating_sub(before));
        let distance = x.abs_diff(before);
        *s = if distance > room {
            // Past the nearer limit of the range, differences have only one sign.
            room.saturating_add(distance)
        } else if x >= before {
            distance.saturating_mul(2)
        } else {
            distance.saturating_mul(2).saturating_sub(1)
        };
        before = x;
    }
    reference
}

/// Coding option of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Choice {
    Plain,
    SecondExtension,
    /// Split samples with this many low bits stored uncoded.
    Split(u32),
}

/// Encoder of one stream.
struct Coder {
    bits: BitWriter,
    /// Bits per sample, 1 to 31.
    width: u32,
    /// Samples per block.
    block: usize,
    /// Blocks per interval.
    blocks: usize,
}

impl Coder {
    /// Largest sample.
    fn max(&self) -> u32 {
        u32::MAX >> 32u32.saturating_sub(self.width)
    }

    /// Width of an option identifier, bits.
    fn id_bits(&self) -> u32 {
        match self.width {
            0..=8 => 3,
            9..=16 => 4,
            _ => 5,
        }
    }

    /// Codes the blocks of an interval; with a reference, its first sample must be 0.
    fn interval(&mut self, samples: &[u32], reference: Option<u32>) {
        let mut zeros = 0usize;
        let mut zeros_reference = None;
        for (i, block) in samples.chunks_exact(self.block).enumerate() {
            let reference = reference.filter(|_| i == 0);
            let next = i.saturating_add(1);
            if block.iter().all(|&s| s == 0) {
                zeros_reference = zeros_reference.or(reference);
                zeros = zeros.saturating_add(1);
                if next.is_multiple_of(SEGMENT_BLOCKS) || next == self.blocks {
                    self.zero_blocks(zeros, zeros_reference.take(), true);
                    zeros = 0;
                }
                continue;
            }
            if zeros > 0 {
                self.zero_blocks(zeros, zeros_reference.take(), false);
                zeros = 0;
            }
            self.block(block, reference);
        }
    }

    /// Writes the reference sample, if any.
    fn reference(&mut self, reference: Option<u32>) {
        if let Some(r) = reference {
            self.bits.put(u64::from(r), self.width);
        }
    }

    /// Codes a run of `count` zero blocks; `to_end`: it reaches the end of the segment.
    fn zero_blocks(&mut self, count: usize, reference: Option<u32>, to_end: bool) {
        self.bits.put(0, self.id_bits().saturating_add(1));
        self.reference(reference);
        let code = match count {
            0..=SHORT_RUN_BLOCKS => count.saturating_sub(1),
            _ if to_end => SHORT_RUN_BLOCKS,
            _ => count,
        };
        self.bits.unary(u32::try_from(code).unwrap_or(u32::MAX));
    }

    fn block(&mut self, samples: &[u32], reference: Option<u32>) {
        let coded = samples.get(usize::from(reference.is_some())..).unwrap_or_default();
        let id_bits = self.id_bits();
        match self.choose(samples, coded) {
            Choice::Plain => {
                self.bits.put(u64::MAX, id_bits);
                self.reference(reference);
                coded.iter().for_each(|&s| self.bits.put(u64::from(s), self.width));
            }
            Choice::SecondExtension => {
                self.bits.put(1, id_bits.saturating_add(1));
                self.reference(reference);
                for pair in samples.as_chunks::<2>().0 {
                    self.bits.unary(u32::try_from(pair_code(*pair)).unwrap_or(u32::MAX));
                }
            }
            Choice::Split(k) => {
                self.bits.put(u64::from(k).saturating_add(1), id_bits);
                self.reference(reference);
                coded.iter().for_each(|&s| self.bits.unary(s >> k));
                coded.iter().for_each(|&s| self.bits.put(u64::from(s), k));
            }
        }
    }

    /// Chooses the shortest option. `samples` is the block, `coded` the block without the
    /// reference.
    fn choose(&self, samples: &[u32], coded: &[u32]) -> Choice {
        let count = coded.len() as u64;
        let mut best = (count.saturating_mul(u64::from(self.width)), Choice::Plain);
        let ids = 1u32 << self.id_bits();
        for k in 0..ids.saturating_sub(2).min(self.width) {
            let high: u64 = coded.iter().map(|&s| u64::from(s >> k)).sum();
            let cost = high.saturating_add(count.saturating_mul(u64::from(k).saturating_add(1)));
            if cost < best.0 {
                best = (cost, Choice::Split(k));
            }
        }
        let pairs = samples.as_chunks::<2>().0;
        if pairs.iter().all(|[a, b]| u64::from(*a).saturating_add(u64::from(*b)) <= SUM_MAX) {
            let cost = pairs.iter().fold(1, |cost: u64, pair| cost.saturating_add(pair_code(*pair)).saturating_add(1));
            if cost < best.0 {
                best = (cost, Choice::SecondExtension);
            }
        }
        best.1
    }
}

/// Second-extension code of a pair of samples.
fn pair_code([a, b]: [u32; 2]) -> u64 {
    let sum = u64::from(a).saturating_add(u64::from(b));
    (sum.saturating_mul(sum.saturating_add(1)) / 2).saturating_add(u64::from(b))
}
