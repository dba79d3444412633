//! Chunks that are changed in temporary files, because they are too large for memory.

use super::chunk_reader::ChunkReader;
use super::dataset::Dataset;
use crate::base::{Error, Result};
use crate::dataset::chunk::changed::{SharedImage, Unencoded};
use crate::dataset::chunk::file_image::FileImage;
use crate::dataset::chunk::format::no_room;
use crate::iod::{Cell, Data};

impl ChunkReader {
    /// True if chunks of `d` are changed in temporary files. Errors: `EFBIG` if they are too large
    /// for those, too.
    fn changes_in_files(&self, d: &Dataset) -> Result<bool> {
        let len = d.grid.chunk_bytes();
        if len <= self.env.changed_chunk_max() {
            return Ok(false);
        }
        if d.format.changes_in_files(&self.env) {
            return Ok(true);
        }
        if len > self.env.chunk_files.capacity() {
            return Err(Error::refused(libc::ENOSPC, no_room(len)));
        }
        let need = len.saturating_mul(4);
        Err(Error::refused(libc::EFBIG, format!("chunks of {len} bytes need a --cache-size of {need}")))
    }

    /// A chunk of `d` without written elements. `covered`: all of them are written next.
    pub(super) fn blank(&self, d: &Dataset, covered: bool) -> Result<SharedImage> {
        match self.changes_in_files(d)? {
            false => d.blank(covered),
            true => self.in_file(d, 0, &mut |_, _| Ok(())),
        }
    }

    /// The chunk of `d` in a cell, to be changed.
    pub(super) fn to_change(&self, d: &Dataset, cell: &Cell) -> Result<SharedImage> {
        match &cell.data {
            Data::Extent(extent) if self.changes_in_files(d)? => {
                let file = self.decoded_file(d, extent, cell.mask)?;
                self.in_file(d, file.len(), &mut |at, buf| file.read(at, buf))
            }
            Data::Inline(bytes) if self.changes_in_files(d)? && d.pipeline.is_empty() => {
                self.in_file(d, bytes.len() as u64, &mut |at, buf| {
                    let from = usize::try_from(at).unwrap_or(usize::MAX);
                    let part = bytes.get(from..).and_then(|rest| rest.get(..buf.len())).unwrap_or_default();
                    buf.iter_mut().zip(part).for_each(|(to, byte)| *to = *byte);
                    Ok(())
                })
            }
            _ => self.in_memory(d, cell),
        }
    }

    /// A chunk of `d` in a new file: its first `len` bytes from `read`.
    fn in_file(&self, d: &Dataset, len: u64, read: &mut dyn FnMut(u64, &mut [u8]) -> Result<()>) -> Result<SharedImage> {
        if self.env.files_are_too_many() {
            return Err(Error::refused(libc::EFBIG, "one operation changes too many chunks that are too large for memory"));
        }
        let whole = d.grid.chunk_bytes();
        self.env.share_temporary_space(whole);
        let image = FileImage::new(&self.env.images, (whole, len), &d.pattern, read)?;
        Ok(Unencoded::shared(Box::new(image)))
    }
}
