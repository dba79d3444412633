//! PNG files.

use crate::base::{Error, Result};
use png::{BitDepth, ColorType, Compression, Encoder, Filter};

/// Bytes of a PNG file beside its image data and a palette: signature, IHDR, the frame of IDAT,
/// IEND.
const FRAME_BYTES: u64 = 8 + 25 + 12 + 12;
/// Most bytes of a block of a deflate stream that is stored.
const STORED_MAX: u64 = 65_535;

/// How image data are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Packing {
    /// As they are: the size follows from that of the image.
    Stored,
    /// Compressed.
    Deflated,
}

/// What a pixel has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Colours {
    Gray,
    Rgb,
    Rgba,
    /// An index into these colours of three bytes each, 256 of them.
    Palette(Vec<u8>),
}

impl Colours {
    /// Samples of a pixel.
    pub(super) fn channels(&self) -> u64 {
        match self {
            Colours::Gray | Colours::Palette(_) => 1,
            Colours::Rgb => 3,
            Colours::Rgba => 4,
        }
    }
}

/// An image.
pub(super) struct Image {
    pub(super) width: u32,
    pub(super) height: u32,
    /// Bits of a sample: 8 or 16.
    pub(super) depth: u8,
    pub(super) colours: Colours,
    /// Samples, the highest byte first.
    pub(super) pixels: Vec<u8>,
}

impl Image {
    /// Size of the file without compression, bytes.
    pub(super) fn size(&self) -> u64 {
        let line =
            u64::from(self.width).saturating_mul(self.colours.channels()).saturating_mul(u64::from(self.depth / 8)).saturating_add(1);
        let raw = line.saturating_mul(self.height.into());
        // A zlib stream: two bytes, blocks with five bytes each, a checksum.
        let stored = raw.saturating_add(raw.div_ceil(STORED_MAX).max(1).saturating_mul(5)).saturating_add(6);
        let palette = if matches!(self.colours, Colours::Palette(_)) { 12 + 768 } else { 0 };
        stored.saturating_add(FRAME_BYTES).saturating_add(palette)
    }

    /// The file.
    pub(super) fn encode(&self, packing: Packing) -> Result<Vec<u8>> {
        let failed = |e: png::EncodingError| Error::refused(libc::EIO, format!("the PNG image cannot be made: {e}"));
        let mut out = Vec::new();
        let mut encoder = Encoder::new(&mut out, self.width, self.height);
        encoder.set_depth(if self.depth == 16 { BitDepth::Sixteen } else { BitDepth::Eight });
        encoder.set_color(match self.colours {
            Colours::Gray => ColorType::Grayscale,
            Colours::Rgb => ColorType::Rgb,
            Colours::Rgba => ColorType::Rgba,
            Colours::Palette(_) => ColorType::Indexed,
        });
        if let Colours::Palette(palette) = &self.colours {
            encoder.set_palette(palette.clone());
        }
        match packing {
            Packing::Stored => {
                encoder.set_compression(Compression::NoCompression);
                encoder.set_filter(Filter::NoFilter);
            }
            Packing::Deflated => encoder.set_compression(Compression::Fast),
        }
        let mut writer = encoder.write_header().map_err(failed)?;
        writer.write_image_data(&self.pixels).map_err(failed)?;
        writer.finish().map_err(failed)?;
        if packing == Packing::Stored && out.len() as u64 != self.size() {
            return Err(Error::refused(libc::EIO, format!("a PNG image of {} bytes, not {}", out.len(), self.size())));
        }
        Ok(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_size_of_a_stored_image_is_known() {
        let palette = || Colours::Palette(vec![7; 768]);
        // Image data of whole blocks, and one byte less and more.
        for (width, height) in [(1, 1), (65_534, 1), (65_533, 1), (65_535, 1), (254, 257), (254, 514), (1000, 700), (3000, 2000)] {
            for (depth, colours) in [(8, Colours::Gray), (16, Colours::Gray), (8, Colours::Rgb), (16, Colours::Rgba), (8, palette())] {
                let mut image = Image { width, height, depth, colours, pixels: Vec::new() };
                image.pixels = vec![9; (u64::from(width) * u64::from(height) * image.colours.channels() * u64::from(depth) / 8) as usize];
                assert_eq!(image.encode(Packing::Stored).unwrap().len() as u64, image.size(), "{width} x {height}, {depth} bits");
            }
        }
    }
}
