//! The client data of szip: how pixels map to samples, and samples to bytes.

use crate::filter::FilterError;

/// Name in errors.
pub(super) const NAME: &str = "szip";
/// Options mask: pixels are big-endian in memory.
const MASK_MSB: u32 = 16;
/// Options mask: nearest-neighbour preprocessing.
const MASK_NN: u32 = 32;
/// Largest block in the standard, pixels.
const BLOCK_MAX: usize = 64;
/// Largest scanline, pixels (libhdf5 writes at most 4096).
const SCANLINE_MAX: usize = 1 << 16;

/// Mapping of pixels to samples and of samples to bytes.
pub(super) struct Geometry {
    /// Samples per block.
    pub(super) block: usize,
    /// Bits per sample, 1 to 32.
    pub(super) width: u32,
    /// Bytes per sample in memory: 1, 2 or 4.
    pub(super) sample: usize,
    /// Bytes of a pixel whose bytes are coded as separate planes, else 1.
    pub(super) planes: usize,
    /// Samples per scanline, without padding.
    pub(super) scanline: usize,
    pub(super) msb: bool,
    pub(super) preprocess: bool,
}

impl Geometry {
    pub(super) fn new(cd_values: &[u32]) -> Result<Self, FilterError> {
        let &[mask, block, pixel_bits, scanline, ..] = cd_values else {
            return Err(FilterError::corrupt(NAME, format!("{} client data values, 4 needed", cd_values.len())));
        };
        let block = usize::try_from(block).unwrap_or(usize::MAX);
        let scanline = usize::try_from(scanline).unwrap_or(usize::MAX);
        if block == 0 || block % 2 != 0 || scanline == 0 {
            return Err(FilterError::corrupt(NAME, format!("{block} pixels per block, {scanline} per scanline")));
        }
        if block > BLOCK_MAX || scanline > SCANLINE_MAX {
            return Err(FilterError::unsupported(NAME, format!("{block} pixels per block, {scanline} per scanline")));
        }
        let (width, planes) = match pixel_bits {
            32 => (8, 4),
            64 => (8, 8),
            1..=31 => (pixel_bits, 1),
            _ => return Err(FilterError::corrupt(NAME, format!("{pixel_bits} bits per pixel"))),
        };
        let sample = match width {
            0..=8 => 1,
            9..=16 => 2,
            _ => 4,
        };
        let (msb, preprocess) = (mask & MASK_MSB != 0, mask & MASK_NN != 0);
        Ok(Geometry { block, width, sample, planes, scanline, msb, preprocess })
    }

    /// Stores samples to `out`; `at` is the number of the first one in the stream.
    pub(super) fn store(&self, samples: &[u32], at: usize, out: &mut [u8]) {
        match self.sample {
            1 if self.planes == 1 => {
                for (to, &s) in out.iter_mut().skip(at).zip(samples) {
                    *to = s as u8;
                }
            }
            1 => self.store_planes(samples, at, out),
            size => {
                // The last sample may be cut when the length is not a multiple of the sample size.
                for (to, &s) in out.chunks_mut(size).skip(at).zip(samples) {
                    let bytes = if self.msb { (s << (32 - 8 * size)).to_be_bytes() } else { s.to_le_bytes() };
                    for (to, b) in to.iter_mut().zip(bytes) {
                        *to = b;
                    }
                }
            }
        }
    }

    /// Stores one-byte samples, each a byte of a wider pixel, to `out`; `at` is the number of the
    /// first one.
    pub(super) fn store_planes(&self, mut samples: &[u32], mut at: usize, out: &mut [u8]) {
        let pixels = out.len() / self.planes;
        while !samples.is_empty() && pixels > 0 {
            let (plane, pixel) = (at / pixels, at % pixels);
            let n = samples.len().min(pixels - pixel);
            let (now, later) = samples.split_at(n);
            let first = pixel.saturating_mul(self.planes).saturating_add(plane);
            for (to, &s) in out.get_mut(first..).unwrap_or_default().iter_mut().step_by(self.planes).zip(now) {
                *to = s as u8;
            }
            samples = later;
            at = at.saturating_add(n);
        }
    }
}
