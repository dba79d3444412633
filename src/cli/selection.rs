//! The files that the selection of a command names.

use super::failure::{Exit, Failure, reason};
use crate::base::escape::escaped_bytes;
use crate::base::{Error, Result as EngineResult};
use crate::fs::model::{PointFiles, SelectionText, point_files};
use std::fs::File;
use std::io::{Read, Seek};

/// A selection, whose files were opened before the process was confined.
#[derive(Default)]
pub(super) struct SelectionFiles {
    text: String,
    files: Vec<(String, File)>,
}

impl SelectionFiles {
    /// Opens the files that `text` names (`None`: all elements are selected).
    pub fn open(text: Option<&str>) -> Result<Self, Failure> {
        let mut files: Vec<(String, File)> = Vec::new();
        for name in text.map(point_files).unwrap_or_default() {
            if name.is_empty() || files.iter().any(|(known, _)| known == name) {
                continue;
            }
            let failed = |e| Failure::new(Exit::General, format!("cannot read {}: {}", escaped_bytes(name.as_bytes()), reason(&e)));
            files.push((name.to_owned(), File::open(name).map_err(failed)?));
        }
        Ok(SelectionFiles { text: text.unwrap_or_default().to_owned(), files })
    }

    /// The selection.
    pub fn text(&self) -> SelectionText<'_> {
        SelectionText::with_files(&self.text, self)
    }
}

impl PointFiles for SelectionFiles {
    fn open(&self, name: &str) -> EngineResult<Box<dyn Read + '_>> {
        let found = self.files.iter().find(|(known, _)| known == name);
        let (_, mut file) =
            found.map(|(name, file)| (name, file)).ok_or_else(|| Error::refused(libc::ENOENT, "a file that was not opened"))?;
        // Several objects have the same selection. A pipe is read once.
        let _ = file.rewind();
        Ok(Box::new(file))
    }
}
