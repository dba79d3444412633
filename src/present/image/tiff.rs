//! TIFF files: numbers as they are, not compressed, in one strip.

use super::encode::Colours;
use super::samples::Samples;
use crate::base::{Error, Result};
use std::io::Cursor;
use tiff::TiffResult;
use tiff::encoder::TiffEncoder;
use tiff::tags::{CompressionMethod, ExtraSamples, PhotometricInterpretation, Tag};

/// An image without its samples.
pub(super) struct Outline<'a> {
    pub(super) width: u32,
    pub(super) height: u32,
    pub(super) samples: Samples,
    pub(super) colours: &'a Colours,
    /// The lowest number is white.
    pub(super) inverted: bool,
}

impl Outline<'_> {
    /// Bytes of the samples.
    fn strip(&self) -> u64 {
        let pixel = self.colours.channels().saturating_mul(self.samples.bytes().into());
        u64::from(self.width).saturating_mul(self.height.into()).saturating_mul(pixel)
    }

    /// The file up to its samples, which begin at `offset`.
    fn head(&self, offset: u32) -> TiffResult<Vec<u8>> {
        let mut file = Cursor::new(Vec::new());
        let (channels, bytes) = (usize::try_from(self.colours.channels()).unwrap_or(1), u32::try_from(self.strip())?);
        let mut encoder = TiffEncoder::new(&mut file)?;
        let mut tags = encoder.image_directory()?;
        tags.write_tag(Tag::ImageWidth, self.width)?;
        tags.write_tag(Tag::ImageLength, self.height)?;
        tags.write_tag(Tag::BitsPerSample, vec![self.samples.bytes().saturating_mul(8); channels].as_slice())?;
        tags.write_tag(Tag::Compression, CompressionMethod::None.to_u16())?;
        let photometric = match self.colours {
            Colours::Gray if self.inverted => PhotometricInterpretation::WhiteIsZero,
            Colours::Gray => PhotometricInterpretation::BlackIsZero,
            Colours::Rgb | Colours::Rgba => PhotometricInterpretation::RGB,
            Colours::Palette(_) => PhotometricInterpretation::RGBPalette,
        };
        tags.write_tag(Tag::PhotometricInterpretation, photometric.to_u16())?;
        tags.write_tag(Tag::SamplesPerPixel, u16::try_from(channels)?)?;
        tags.write_tag(Tag::SampleFormat, vec![self.samples.format().to_u16(); channels].as_slice())?;
        tags.write_tag(Tag::RowsPerStrip, self.height)?;
        tags.write_tag(Tag::StripOffsets, offset)?;
        tags.write_tag(Tag::StripByteCounts, bytes)?;
        match self.colours {
            Colours::Rgba => tags.write_tag(Tag::ExtraSamples, ExtraSamples::UnassociatedAlpha.to_u16())?,
            Colours::Palette(palette) => {
                // All reds, greens and blues, of 16 bits.
                let plane = |n: usize| palette.iter().skip(n).step_by(3).map(|byte| u16::from(*byte) * 257);
                tags.write_tag(Tag::ColorMap, (0..3).flat_map(plane).collect::<Vec<_>>().as_slice())?;
            }
            Colours::Gray | Colours::Rgb => {}
        }
        tags.finish()?;
        Ok(file.into_inner())
    }

    /// Size of the file, bytes.
    pub(super) fn size(&self) -> u64 {
        self.head(0).map_or(0, |head| (head.len() as u64).saturating_add(self.strip()))
    }

    /// The file with these samples.
    pub(super) fn encode(&self, mut samples: Vec<u8>) -> Result<Vec<u8>> {
        let failed = |e: String| Error::refused(libc::EIO, format!("the TIFF image cannot be made: {e}"));
        let head = |offset| self.head(offset).map_err(|e| failed(e.to_string()));
        let offset = u32::try_from(head(0)?.len()).map_err(|e| failed(e.to_string()))?;
        samples.splice(0..0, head(offset)?);
        let (len, size) = (samples.len() as u64, self.size());
        if len == size { Ok(samples) } else { Err(failed(format!("it has {len} bytes, not {size}"))) }
    }
}
