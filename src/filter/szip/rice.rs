//! Decoder of szip: adaptive entropy decoding of reference sample intervals (CCSDS 121.0-B,
//! sections 3 to 5).
//!
//! ```text
//! interval = blocks;  block = option id (3, 4 or 5 bits), then
//!   id 0, bit 0   [reference] unary n        run of all-zero blocks (n+1; n = 4: rest of the
//! segment
//!                                            of 64; n > 4: n)
//!   id 0, bit 1   [reference] unary each     second extension: one code for two samples
//!   id 1 ..       [reference] unary each, then id-1 low bits each      split samples
//!   id all ones   samples as they are
//! ```
//!
//! The reference (the uncoded first sample of an interval) exists only with preprocessing. The
//! other samples are then differences to the previous sample, mapped to non-negative numbers.

use super::bits::{BitError, BitReader};

/// Why an interval could not be decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RiceError {
    /// The bit stream ended or has an overlong code.
    Bits(BitError),
    /// A sample does not fit its width.
    Sample,
    /// A run of zero blocks leaves the interval.
    ZeroRun,
    /// A second-extension code beyond the table.
    SecondExtension,
}

impl From<BitError> for RiceError {
    fn from(e: BitError) -> Self {
        RiceError::Bits(e)
    }
}

/// Zero-block run code for "to the end of the segment".
const REST_OF_SEGMENT: u32 = 5;
/// Blocks of one segment.
const SEGMENT_BLOCKS: usize = 64;
/// Largest second-extension code: pairs with sums 0 to 12.
const SECOND_EXTENSION_MAX: u32 = 90;

/// Decoder of one stream.
#[derive(Debug)]
pub(super) struct Rice<'a> {
    bits: BitReader<'a>,
    /// Bits per sample, 1 to 32.
    width: u32,
    /// Samples per block.
    block: usize,
    /// Blocks per interval.
    blocks: usize,
    preprocess: bool,
}

impl<'a> Rice<'a> {
    /// A decoder at the start of `bytes`. `width` must be 1 to 32, `block` even and not 0.
    pub(super) fn new(bytes: &'a [u8], width: u32, block: usize, blocks: usize, preprocess: bool) -> Self {
        Rice { bits: BitReader::new(bytes), width, block, blocks, preprocess }
    }

    /// Largest sample.
    fn max(&self) -> u32 {
        u32::MAX >> (32 - self.width)
    }

    /// Decodes the next interval into `out`, replacing its content; stops early after `wanted`
    /// samples.
    pub(super) fn interval(&mut self, out: &mut Vec<u32>, wanted: usize) -> Result<(), RiceError> {
        out.clear();
        let size = self.block.saturating_mul(self.blocks);
        let id_bits = match self.width {
            0..=8 => 3,
            9..=16 => 4,
            _ => 5,
        };
        let uncompressed = (1u32 << id_bits) - 1;
        while out.len() < size.min(wanted) {
            let reference = self.preprocess && out.is_empty();
            match self.bits.get(id_bits)? {
                0 if self.bits.get(1)? == 0 => self.zero_blocks(out, reference, size)?,
                0 => self.second_extension(out, reference)?,
                id if id == uncompressed => {
                    for _ in 0..self.block {
                        out.push(self.bits.get(self.width)?);
                    }
                }
                id => self.split_samples(out, reference, id - 1)?,
            }
        }
        // Second-extension sums may exceed the width; prediction would then leave the range.
        if out.iter().fold(0, |all, s| all | s) > self.max() {
            return Err(RiceError::Sample);
        }
        if self.preprocess {
            unpredict(out, self.max());
        }
        Ok(())
    }

    /// Decodes a run of zero blocks; `size` is the interval's length in samples.
    fn zero_blocks(&mut self, out: &mut Vec<u32>, reference: bool, size: usize) -> Result<(), RiceError> {
        if reference {
            out.push(self.bits.get(self.width)?);
        }
        let code = self.bits.unary()?.saturating_add(1);
        let done = out.len() / self.block;
        let run = match code {
            REST_OF_SEGMENT => self.blocks.saturating_sub(done).min(SEGMENT_BLOCKS - done % SEGMENT_BLOCKS),
            _ if code > REST_OF_SEGMENT => code as usize - 1,
            _ => code as usize,
        };
        let end = done.saturating_add(run).saturating_mul(self.block);
        if end > size {
            return Err(RiceError::ZeroRun);
        }
        out.resize(end, 0);
        Ok(())
    }

    /// Decodes a block of second-extension codes.
    fn second_extension(&mut self, out: &mut Vec<u32>, reference: bool) -> Result<(), RiceError> {
        if reference {
            out.push(self.bits.get(self.width)?);
        }
        for pair in 0..self.block / 2 {
            let code = self.bits.unary()?;
            if code > SECOND_EXTENSION_MAX {
                return Err(RiceError::SecondExtension);
            }
            // code = sum (sum + 1) / 2 + second, with second <= sum.
            let mut sum = 0;
            let mut below = 0;
            while below + sum < code {
                below += sum + 1;
                sum += 1;
            }
            let second = code - below;
            // The reference replaces the first sample of the first pair.
            if pair > 0 || !reference {
                out.push(sum - second);
            }
            out.push(second);
        }
        Ok(())
    }

    /// Decodes a block of split samples with `k` low bits each.
    fn split_samples(&mut self, out: &mut Vec<u32>, reference: bool, k: u32) -> Result<(), RiceError> {
        if reference {
            out.push(self.bits.get(self.width)?);
        }
        let start = out.len();
        out.resize(start.saturating_add(self.block - usize::from(reference)), 0);
        let samples = out.get_mut(start..).unwrap_or_default();
        let limit = self.max() >> k;
        // A local copy stays in registers during the two loops, which take most of the time.
        let mut bits = self.bits;
        let mut over = false;
        for s in &mut *samples {
            let high = bits.unary()?;
            over |= high > limit;
            *s = high << k;
        }
        if over {
            return Err(RiceError::Sample);
        }
        if k > 0 {
            for s in samples {
                *s |= bits.get(k)?;
            }
        }
        self.bits = bits;
        Ok(())
    }
}

/// Reverses the unit-delay predictor and its mapping of differences; the first sample is the
/// reference.
///
/// All samples must be at most `max`, a power of two less one.
fn unpredict(samples: &mut [u32], max: u32) {
    let Some((&mut first, rest)) = samples.split_first_mut() else { return };
    let half = max / 2;
    let mut x = first;
    for d in rest {
        // Differences up to the distance to the nearer limit alternate in sign, larger ones have
        // one sign. Branch-free, since signs are unpredictable. XOR with `max` is subtraction from
        // `max`: all its bits are set.
        let mirror = if x > half { max } else { 0 };
        let near = x.wrapping_add((*d >> 1) ^ (*d & 1).wrapping_neg());
        let step = (*d >> 1) + (*d & 1);
        x = if step <= mirror ^ x { near } else { mirror ^ *d };
        *d = x;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `unpredict` reverses the mapping of CCSDS 121.0-B 4.4, implemented here from the standard.
    #[test]
    fn mapping_round_trips() {
        let max = 31u32;
        for before in 0..=max {
            for x in 0..=max {
                let (delta, room) = (i64::from(x) - i64::from(before), i64::from(before.min(max - before)));
                let mapped = match delta {
                    d if (0..=room).contains(&d) => 2 * d,
                    d if (-room..0).contains(&d) => 2 * -d - 1,
                    d => room + d.abs(),
                };
                let mut s = [before, mapped as u32];
                unpredict(&mut s, max);
                assert_eq!(s, [before, x]);
            }
        }
    }

    /// A second-extension sum of 4 bits in samples of 1 bit.
    #[test]
    fn samples_beyond_the_width_are_refused() {
        // id 000, bit 1, reference 0, eight zeros and a one: sum 3.
        let mut out = Vec::new();
        let mut rice = Rice::new(&[0b0001_0000, 0b0000_0100, 0xff], 1, 2, 1, true);
        assert_eq!(rice.interval(&mut out, 2), Err(RiceError::Sample));
    }

    #[test]
    fn second_extension_codes_are_all_pairs() {
        let mut pairs = std::collections::BTreeSet::new();
        for code in 0..=SECOND_EXTENSION_MAX {
            // id 000, bit 1, then `code` zeros and a one, for a block of 2 samples of 8 bits
            // without reference.
            let mut bits = vec![0u8, 0, 0, 1];
            bits.extend(std::iter::repeat_n(0, code as usize));
            bits.push(1);
            let bytes: Vec<u8> = bits.chunks(8).map(|c| c.iter().enumerate().fold(0, |b, (i, &v)| b | v << (7 - i))).collect();
            let mut out = Vec::new();
            Rice::new(&bytes, 8, 2, 1, false).interval(&mut out, 2).unwrap();
            assert!(out[0] + out[1] <= 12);
            pairs.insert((out[0], out[1]));
        }
        assert_eq!(pairs.len(), 91);
    }
}
