//! Numbers as pictures: datasets of two and more dimensions as PNG and TIFF images, of one as line
//! plots.
//!
//! | dataset | picture |
//! |---|---|
//! | 1 dimension | plot |
//! | 2 dimensions | gray, or colours of a palette |
//! | 3 dimensions | a gray image for each position of the first, or one image in colours |
//! | 4 dimensions, the last of 3 or 4 elements | images in colours, as many as the first has |
//!
//! Attributes of the HDF5 Image specification say which it is. Images are stored without
//! compression where their size must be known before they are made. A TIFF image has the numbers as
//! they are.
//!
//! ```text
//! layout  which elements are pixels    sample  pixels of large images
//! pixels  elements become pixels       plot    lines
//! samples elements as numbers          encode  PNG                         tiff    TIFF
//! ```

mod encode;
mod layout;
mod pixels;
mod plot;
mod sample;
mod samples;
mod tiff;

use super::parse::{SelectionText, one_block};
use crate::base::{Error, Result};
use crate::connector::{Connector, DatasetInfo, ObjectId};
use encode::{Colours, Image, Packing};
use layout::{Layout, raw_depth};
use sample::Sampled;
use samples::Samples;
use std::sync::Arc;

/// Most bytes of the pixels of an image, of numbers that are scaled 8 for each.
const IMAGE_BYTES_MAX: u64 = 64 << 20;

/// A form of an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ImageForm {
    /// PNG.
    Png,
    /// PNG without compression, whose size is known before it is made.
    StoredPng,
    /// TIFF without compression, with the numbers as they are.
    Tiff,
}

/// The pictures of a dataset, or of a block of it.
pub struct Pictures {
    connector: Arc<dyn Connector>,
    id: ObjectId,
    dataset: DatasetInfo,
    layout: Layout,
}

/// True if a dataset has pictures. Reads no elements.
pub fn has_pictures(connector: &dyn Connector, id: ObjectId) -> bool {
    connector.dataset(id).is_ok_and(|dataset| Layout::is_picture(&dataset))
}

impl Pictures {
    /// The pictures of the dataset `id` in `selection` (empty: all). Errors: `EOPNOTSUPP`, it has
    /// none; `EINVAL`, no such selection.
    pub fn of(connector: Arc<dyn Connector>, id: ObjectId, selection: SelectionText<'_>) -> Result<Pictures> {
        let dataset = connector.dataset(id)?;
        let none = || Error::refused(libc::EOPNOTSUPP, "it is no picture: one has numbers in 1 to 4 dimensions; 'h5dir cat' prints it");
        let dims = dataset.shape.dims().filter(|_| Layout::is_picture(&dataset)).ok_or_else(none)?;
        let block = one_block(selection, dims)?;
        let layout = Layout::of(&*connector, id, &dataset, &block)?.ok_or_else(none)?;
        Ok(Pictures { connector, id, dataset, layout })
    }

    /// True if it is a plot, which is its preview.
    pub fn is_plot(&self) -> bool {
        self.layout.is_plot()
    }

    /// Images in full size; 0: it is a plot, or they are too large.
    pub fn frames(&self) -> u64 {
        if self.layout.is_plot() || self.frame_bytes() > IMAGE_BYTES_MAX { 0 } else { self.layout.frames }
    }

    fn frame_bytes(&self) -> u64 {
        let each = if self.is_raw() { self.dataset.datatype.element_size() } else { 8 };
        self.layout.height.saturating_mul(self.layout.width).saturating_mul(self.layout.planes).saturating_mul(each)
    }

    /// Its elements are pixels as they are.
    fn is_raw(&self) -> bool {
        raw_depth(&self.dataset.datatype).is_some()
    }

    fn colours(&self) -> Colours {
        match (&self.layout.palette, self.layout.planes) {
            (Some(palette), _) => Colours::Palette(palette.clone()),
            (None, 3) => Colours::Rgb,
            (None, 4) => Colours::Rgba,
            _ => Colours::Gray,
        }
    }

    /// What is written of image `frame`; `None`: the preview, which is at most 1,024 pixels wide
    /// and high. Its pixels are not made.
    fn outline(&self, frame: Option<u64>) -> (Image, Sampled) {
        let sampled = match frame {
            Some(_) => Sampled::all(&self.layout),
            None => Sampled::of(&self.layout, &self.dataset),
        };
        if self.layout.is_plot() {
            return (plot::outline(), sampled);
        }
        // 16 bits show nothing where they are not all used.
        let depth = raw_depth(&self.dataset.datatype).filter(|depth| frame.is_some() || *depth == 8).unwrap_or(8);
        let (height, width) = sampled.size();
        (Image { width, height, depth, colours: self.colours(), pixels: Vec::new() }, sampled)
    }

    /// Image `frame` as a TIFF file without its samples.
    fn tiff<T>(&self, f: impl FnOnce(&tiff::Outline<'_>, &Sampled) -> T) -> T {
        let sampled = Sampled::all(&self.layout);
        let (height, width) = sampled.size();
        let (samples, colours) = (Samples::of(&self.dataset.datatype), self.colours());
        f(&tiff::Outline { width, height, samples, colours: &colours, inverted: self.layout.inverted }, &sampled)
    }

    /// Size of image `frame`, or of the preview, bytes; of a compressed one before compression.
    /// Reads no elements.
    pub fn size(&self, frame: Option<u64>, form: ImageForm) -> u64 {
        if form == ImageForm::Tiff { self.tiff(|outline, _| outline.size()) } else { self.outline(frame).0.size() }
    }

    /// Image `frame`, counted from 0, or the preview, which is no TIFF file. Errors: `EFBIG`, it is
    /// too large; `ENOENT`, there is no such image; `EOPNOTSUPP`, a plot is no TIFF file.
    pub fn file(&self, frame: Option<u64>, form: ImageForm) -> Result<Vec<u8>> {
        if frame.is_some_and(|frame| frame >= self.frames()) {
            return Err(match frame < Some(self.layout.frames) {
                true => Error::refused(libc::EFBIG, "the image is too large; select a part of it, as in 'h5dir cat -s 0:1000,0:1000'"),
                false => Error::refused(libc::ENOENT, "there is no such image"),
            });
        }
        let source = pixels::Source { connector: &*self.connector, id: self.id, dataset: &self.dataset, layout: &self.layout };
        let packing = match (form, frame) {
            (ImageForm::Tiff, Some(frame)) => {
                return self.tiff(|outline, sampled| outline.encode(source.numbers(frame, sampled, outline.samples)?));
            }
            (ImageForm::Tiff, None) => return Err(Error::refused(libc::EOPNOTSUPP, "one dimension is a plot, a PNG image; use --png")),
            (ImageForm::StoredPng, _) => Packing::Stored,
            (ImageForm::Png, _) => Packing::Deflated,
        };
        let (mut image, sampled) = self.outline(frame);
        image.pixels = match self.layout.is_plot() {
            true => plot::pixels(&source)?,
            false => source.pixels(frame.unwrap_or(0), &sampled, image.depth)?,
        };
        image.encode(packing)
    }
}
