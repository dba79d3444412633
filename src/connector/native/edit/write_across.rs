//! Writes through virtual datasets with sources in several HDF5 files.
//!
//! All sources are checked, and all bytes are converted, before the first is written. Then the
//! mounted file is written, in the operation of the check, and after it the others, each in one
//! operation: a commit of a file has all that one write changes in it, or nothing.

use super::Change;
use super::connector_parts::OtherFileWrites;
use super::through::{ForOthers, NewPart};
use crate::base::limits::IO_PIECE_BYTES as PIECE;
use crate::base::{Error, Result};
use crate::connector::edit::Edit;
use crate::connector::{Form, ObjectId};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::Range;

/// Attempts to write: other files are opened between them, which may show other sources.
const ATTEMPTS_MAX: usize = 4;

impl OtherFileWrites<'_> {
    /// True if writes to the dataset `id` may go to other files.
    pub(super) fn leads_elsewhere(&self, id: ObjectId) -> Result<bool> {
        if id.file != 0 || !self.connector.options.neighbours.is_written() {
            return Ok(false);
        }
        let d = &self.connector.access().dataset(id)?.dataset;
        Ok(d.layout().mapped().is_some() && !d.datatype.contains_vlen() && !d.datatype.contains_reference())
    }

    /// Writes `parts` to the virtual dataset `id`. Errors: of a check, nothing was written; of
    /// another file, the files before it were written.
    pub(super) fn write_across(&self, id: ObjectId, parts: &[NewPart<'_>]) -> Result<()> {
        let turn = self.connector.editing()?.others.turn();
        let mut attempts = ATTEMPTS_MAX;
        loop {
            let collected = RefCell::new(ForOthers::default());
            self.connector.write_back().admit_write()?;
            let done = self.connector.operate(&[id], |c| {
                collected.replace(ForOthers::default());
                c.write_own(id, parts, &collected)
            });
            let collected = collected.into_inner();
            if collected.missing.is_empty() {
                done?;
                self.write_others(&collected)?;
                return self.bound_others(&turn);
            }
            attempts = attempts.saturating_sub(1);
            if attempts == 0 {
                return Err(Error::refused(libc::EBUSY, "the sources of the virtual dataset change; try again"));
            }
            self.open_others(&turn, &collected.missing, &collected.files())?;
        }
    }

    fn write_others(&self, collected: &ForOthers) -> Result<()> {
        let mut files: BTreeMap<u32, Vec<(ObjectId, NewPart<'_>)>> = BTreeMap::new();
        for part in &collected.parts {
            let bytes = collected.bytes.get(part.bytes.clone()).unwrap_or_default();
            files.entry(part.source.file).or_default().push((ObjectId { file: 0, ..part.source }, (part.offset, bytes)));
        }
        for (file, parts) in files {
            self.use_other(file)?.other_files().write_parts(&parts)?;
        }
        Ok(())
    }

    /// Writes to datasets of this file, in one operation.
    fn write_parts(&self, parts: &[(ObjectId, NewPart<'_>)]) -> Result<()> {
        if let [(id, (offset, bytes))] = parts {
            return self.connector.write_as(*id, Form::Main, *offset, bytes);
        }
        self.connector.write_back().admit_write()?;
        self.connector.operate(&[], |c| {
            parts.iter().try_for_each(|(id, (offset, bytes))| {
                c.data().write(*id, Form::Main, *offset, bytes)?;
                c.dirty_chunks().flush_if_many(*id)
            })
        })
    }

    /// Writes zeros to `range` of the virtual dataset `id`, within its size.
    pub(super) fn zero_across(&self, id: ObjectId, range: Range<u64>) -> Result<()> {
        let size = self.connector.access().dataset(id)?.dataset.bytes.size;
        let zeros = vec![0u8; PIECE];
        let (mut at, end) = (range.start, range.end.min(size));
        while at < end {
            let n = usize::try_from(end.saturating_sub(at)).unwrap_or(PIECE).min(PIECE);
            self.write_across(id, &[(at, zeros.get(..n).unwrap_or_default())])?;
            at = at.saturating_add(n as u64);
        }
        Ok(())
    }
}

impl Change<'_> {
    /// Checks all sources of `parts` of the virtual dataset `id`, writes those in this file, and
    /// collects what the others get. Errors: also if others must be opened before.
    fn write_own(&self, id: ObjectId, parts: &[NewPart<'_>], others: &RefCell<ForOthers>) -> Result<()> {
        let d = self.writable_dataset(id)?;
        let past = |(offset, bytes): &NewPart<'_>| offset.checked_add(bytes.len() as u64).filter(|end| *end > d.bytes.size);
        if let Some(end) = parts.iter().find_map(past) {
            return self.data().resize(&d, end);
        }
        self.data().write_through(&d, parts, Some(others))?;
        self.objects().touch(id)
    }
}
