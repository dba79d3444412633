//! Filter 4: szip, extended Rice coding (CCSDS 121.0-B) as libaec's szlib interface lays it out for HDF5.
//!
//! ```text
//! client data: options mask, pixels per block, bits per pixel, pixels per scanline
//! stored:      u32 LE length of the decoded bytes | coded stream
//! ```
//!
//! Each scanline is padded to a whole number of blocks and is one reference sample interval. Pixels of 32 and 64 bits are
//! coded as 8-bit samples, all first bytes of the pixels, then all second bytes, and so on; scanlines still count samples.
//! Narrower pixels take 1, 2 or 4 bytes in memory, in the order the mask says.
//! Source: H5Zszip.c; libaec's documentation of its szlib compatibility; CCSDS 121.0-B-3.

mod bits;
mod encode;
mod rice;

use super::{FilterError, Params};
use bits::BitError;
pub use encode::encode;
use rice::{Rice, RiceError};

/// Name in errors.
const NAME: &str = "szip";
/// Options mask: pixels are big-endian in memory.
const MASK_MSB: u32 = 16;
/// Options mask: nearest-neighbour preprocessing.
const MASK_NN: u32 = 32;
/// Largest block the standard knows, pixels.
const BLOCK_MAX: usize = 64;
/// Largest scanline, pixels (libhdf5 writes at most 4096).
const SCANLINE_MAX: usize = 1 << 16;

/// How pixels become samples and samples bytes.
struct Geometry {
    /// Samples per block.
    block: usize,
    /// Bits per sample, 1 to 32.
    width: u32,
    /// Bytes per sample in memory: 1, 2 or 4.
    sample: usize,
    /// Bytes of a pixel whose bytes are coded apart, else 1.
    planes: usize,
    /// Samples per scanline, without padding.
    scanline: usize,
    msb: bool,
    preprocess: bool,
}

impl Geometry {
    fn new(cd_values: &[u32]) -> Result<Self, FilterError> {
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

    /// Writes samples that begin at sample number `at` of the stream to their places in `out`.
    fn store(&self, samples: &[u32], at: usize, out: &mut [u8]) {
        match self.sample {
            1 if self.planes == 1 => {
                for (to, &s) in out.iter_mut().skip(at).zip(samples) {
                    *to = s as u8;
                }
            }
            1 => self.store_planes(samples, at, out),
            size => {
                // The last place may be short when the length is no multiple of the sample size.
                for (to, &s) in out.chunks_mut(size).skip(at).zip(samples) {
                    let bytes = if self.msb { (s << (32 - 8 * size)).to_be_bytes() } else { s.to_le_bytes() };
                    for (to, b) in to.iter_mut().zip(bytes) {
                        *to = b;
                    }
                }
            }
        }
    }

    /// As [`Self::store`], for one-byte samples of which each is one byte of a wider pixel.
    fn store_planes(&self, mut samples: &[u32], mut at: usize, out: &mut [u8]) {
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

/// Decodes one stored chunk.
///
/// # Errors
/// [`FilterError::Corrupt`] for a broken or truncated stream, [`FilterError::TooLarge`] if it says it decodes to more than
/// `p.limit` bytes.
pub fn decode(input: &[u8], p: &Params<'_>) -> Result<Vec<u8>, FilterError> {
    let geometry = Geometry::new(p.cd_values)?;
    let Some((prefix, stream)) = input.split_first_chunk::<4>() else {
        return Err(FilterError::corrupt(NAME, "no length prefix"));
    };
    let length = usize::try_from(u32::from_le_bytes(*prefix)).unwrap_or(usize::MAX);
    if length > p.limit {
        return Err(FilterError::TooLarge { filter: NAME, limit: p.limit });
    }
    if length % geometry.planes != 0 {
        return Err(FilterError::corrupt(NAME, format!("{length} bytes are not whole pixels of {} bytes", geometry.planes)));
    }
    let mut out = vec![0; length];
    let samples = length.div_ceil(geometry.sample);
    let blocks = geometry.scanline.div_ceil(geometry.block);
    let mut rice = Rice::new(stream, geometry.width, geometry.block, blocks, geometry.preprocess);
    let mut interval = Vec::with_capacity(blocks.saturating_mul(geometry.block));
    let mut at = 0usize;
    while at < samples {
        let wanted = geometry.scanline.min(samples - at);
        rice.interval(&mut interval, wanted).map_err(|e| explain(e, at))?;
        geometry.store(interval.get(..wanted).unwrap_or(&interval), at, &mut out);
        at = at.saturating_add(wanted);
    }
    Ok(out)
}

fn explain(e: RiceError, at: usize) -> FilterError {
    let what = match e {
        RiceError::Bits(BitError::End) => "the stream ends early",
        RiceError::Bits(BitError::Unary) => "a code is too long",
        RiceError::Sample => "a sample exceeds its width",
        RiceError::ZeroRun => "a run of zero blocks leaves its interval",
        RiceError::SecondExtension => "an unknown second-extension code",
    };
    FilterError::corrupt(NAME, format!("{what} in the interval at sample {at}"))
}

#[cfg(test)]
mod tests {
    use super::super::golden;
    use super::*;

    #[test]
    fn golden_chunks() {
        golden::check(include_bytes!("../../../tests/fixtures/codecs/szip.pack"));
        golden::check(include_bytes!("../../../tests/fixtures/codecs/szip_precision.pack"));
    }

    #[test]
    fn damage_never_panics() {
        golden::damage(include_bytes!("../../../tests/fixtures/codecs/szip.pack"), 12);
    }

    #[test]
    fn hostile_client_data() {
        for cd in
            [&[][..], &[32, 8, 8], &[32, 0, 8, 64], &[32, 7, 8, 64], &[32, 8, 0, 64], &[32, 8, 33, 64], &[32, 8, 8, 0], &[32, 8, 65, 64]]
        {
            let p = Params { cd_values: cd, expected: 64, limit: 64 };
            assert!(matches!(decode(&[64, 0, 0, 0, 0x12, 0x34], &p), Err(FilterError::Corrupt { .. })), "{cd:?}");
        }
        let p = Params { cd_values: &[32, 8, 8, u32::MAX], expected: 64, limit: 64 };
        assert!(matches!(decode(&[64, 0, 0, 0, 0x12, 0x34], &p), Err(FilterError::Unsupported { .. })));
        let p = Params { cd_values: &[32, 8, 8, 64], expected: 64, limit: 63 };
        assert_eq!(decode(&[64, 0, 0, 0, 0x12], &p), Err(FilterError::TooLarge { filter: NAME, limit: 63 }));
        assert_eq!(decode(&[0, 0, 0, 0], &p), Ok(vec![]));
    }
}
