//! The parts of a released log as they are stored.

use super::directory::{Directory, Place, ReleasedLog, Window};
use crate::base::log_part::{LogPart, LogVisitor};
use crate::base::{Error, Result};
use crate::dataset::layout::DatasetBytes;
use crate::format::log::released::{EntryHeader, EntryShape, HEADER_BYTES, NAME};
use std::ops::Range;

/// Dimensions of a dataset by its ID, and whether the file was written before version 1.4.
pub(crate) type Shapes<'a> = dyn Fn(i32) -> Option<(Vec<u64>, bool)> + 'a;

impl ReleasedLog {
    /// Calls `f` with every part of the log.
    pub(crate) fn dump(&self, shapes: &Shapes<'_>, f: &mut LogVisitor<'_>) -> Result<()> {
        let directory = self.directory()?;
        for (file, log) in (0u32..).zip(&directory.files) {
            LogPart::new("log_file", 0).number("number", file).show(f)?;
            for (number, data) in (0u64..).zip(&log.data) {
                let bytes = data.end.0.saturating_sub(data.start.0);
                LogPart::new("data", 1).number("number", number).number("address", data.start.0).number("bytes", bytes).show(f)?;
            }
            for (metadata, bytes) in (0u32..).zip(&log.metadata) {
                let part = LogPart::new("metadata", 1).number("number", metadata);
                match bytes {
                    Err(error) => part.problem(error).show(f)?,
                    Ok(bytes) => {
                        part.number("bytes", bytes.size).show(f)?;
                        let place = Place { file, metadata, section: 0, offset: 0 };
                        self.dump_metadata(&directory, bytes, place, shapes, f)?;
                    }
                }
            }
        }
        Ok(())
    }

    fn dump_metadata(
        &self,
        directory: &Directory,
        bytes: &DatasetBytes,
        place: Place,
        shapes: &Shapes<'_>,
        f: &mut LogVisitor<'_>,
    ) -> Result<()> {
        let mut window = Window::new(bytes, &self.environment);
        let all = match window.sections() {
            Ok(all) => all,
            Err(error) => return LogPart::new("section", 2).problem(&error).show(f),
        };
        for section in all {
            let len = section.end.saturating_sub(section.start);
            LogPart::new("section", 2).number("offset", section.start).number("bytes", len).show(f)?;
            self.dump_section(directory, &mut window, section, place, shapes, f)?;
        }
        Ok(())
    }

    /// The entries of a section, up to one whose size is damaged.
    fn dump_section(
        &self,
        directory: &Directory,
        window: &mut Window<'_>,
        section: Range<u64>,
        place: Place,
        shapes: &Shapes<'_>,
        f: &mut LogVisitor<'_>,
    ) -> Result<()> {
        let at = window.address();
        let header_bytes = usize::try_from(HEADER_BYTES).unwrap_or(usize::MAX);
        let mut offset = section.start;
        while offset < section.end {
            let header = EntryHeader::decode(window.get(offset, header_bytes)?, at)?;
            let part = LogPart::new("entry", 3)
                .number("offset", offset)
                .number("bytes", header.size)
                .number("dataset", u32::try_from(header.dataset).unwrap_or(u32::MAX))
                .number("flags", header.flags)
                .number("data_offset", header.data_offset)
                .number("data_bytes", header.data_len);
            if !header.is_sound(section.end.saturating_sub(offset)) {
                return part.problem(&Error::corrupt(NAME, at, "a damaged size")).show(f);
            }
            let part = match shapes(header.dataset) {
                None => part.problem(&Error::corrupt(NAME, at, "no dataset has this ID")),
                Some((dims, legacy)) => {
                    let shape = EntryShape { dims: &dims, legacy };
                    match directory.blocks(&self.environment, Place { section: section.start, offset, ..place }, shape) {
                        Ok(blocks) => match blocks.first() {
                            Some(blocks) => part.numbers("start", &blocks.starts).numbers("count", &blocks.counts),
                            None => part,
                        },
                        Err(error) => part.problem(&error),
                    }
                }
            };
            part.show(f)?;
            offset = offset.saturating_add(header.size.into());
        }
        Ok(())
    }
}
