//! Joining the run files of several writers with the log: their elements are moved into it, and the
//! run files removed.
//!
//! The commit that has the elements names the run files (attribute `joined`), so that none is
//! joined twice if it could not be removed.

use super::super::object::Object;
use super::super::record_log;
use super::connector_parts::WriterJoin;
use crate::base::{Address, Error, Result};
use crate::connector::ObjectId;
use crate::dataset::layout::WriterRuns;
use crate::file::posix::PosixFile;
use crate::file::writer_log::WriterLogs;
use crate::format::log::writer::WriterHead;
use std::sync::Arc;

/// Elements that are moved at once, bytes.
const PIECE_BYTES: u64 = 8 << 20;

impl WriterJoin<'_> {
    /// Identifiers of the run files that the log was joined with last.
    pub(super) fn joined_writers(&self) -> Result<Vec<u64>> {
        let file = self.connector.file(0)?;
        let group = record_log::find(&Object::open(&file, file.root)?)?;
        group.map_or_else(|| Ok(Vec::new()), |group| record_log::joined(&group))
    }

    /// Moves the elements of the run files at `places` into the log, and removes these files. No
    /// change of the file came before. Errors: a mount writes one of them; it is damaged, or of
    /// another state of the file.
    pub fn join_writers(&self, places: &WriterLogs) -> Result<()> {
        let file = self.connector.file(0)?;
        // A file without a log has none, and costs no search.
        if record_log::find(&Object::open(&file, file.root)?)?.is_none() {
            return Ok(());
        }
        let failed = |e: std::io::Error| Error::refused(libc::EIO, format!("run files of log writers: {e}"));
        let found = places.all(WriterHead::begins).map_err(failed)?;
        if found.is_empty() {
            return Ok(());
        }
        if self.connector.options.log.raw {
            return Err(Error::refused(
                libc::EBUSY,
                "run files of log writers are beside it: mount it once without --log=raw, which joins them",
            ));
        }
        let ids = check(&found)?;
        self.move_all()?;
        if !ids.is_empty() {
            let change = self.connector.change(&[])?;
            change.atomically(|| change.log().note_joined(&ids))?;
        }
        self.connector.commits().commit_all(false)?;
        // The log is read again, without the run files.
        self.connector.forget_log();
        self.connector.forget_all();
        found.iter().try_for_each(|(writer, file)| places.remove(*writer, file)).map_err(failed)
    }

    /// Moves the elements of all run files into the log.
    fn move_all(&self) -> Result<()> {
        let has_writers = {
            let access = self.connector.access();
            access.record_log().map_or(Ok(false), |log| log.has_writers())?
        };
        if !has_writers {
            return Ok(());
        }
        let mut datasets = Vec::new();
        self.connector.each_in_log(&mut |id, _, _| datasets.push(id))?;
        for id in datasets {
            let mut at = 0;
            while let Some(end) = self.move_beside(id, at)? {
                at = end;
                self.connector.write_back().bound_staged()?;
            }
        }
        Ok(())
    }

    /// Moves the next elements of a dataset from `at` on; returns their end.
    fn move_beside(&self, id: ObjectId, at: u64) -> Result<Option<u64>> {
        let change = self.connector.change(&[id])?;
        let d = change.dataset(id)?;
        let Some(logged) = d.layout().logged() else { return Ok(None) };
        let Some(range) = logged.next_beside(at, PIECE_BYTES)? else { return Ok(None) };
        let mut piece = vec![0; usize::try_from(range.end.saturating_sub(range.start)).unwrap_or(0)];
        let env = &self.connector.options.environment;
        d.bytes.read(env, range.start, &mut piece)?;
        change.atomically_reserved(|| d.layout().overwrite(&d.bytes, env, range.start, &piece))?;
        change.settle()?;
        Ok(Some(range.end))
    }
}

/// Identifiers of the run files `found`. Errors: a mount writes one of them.
fn check(found: &[(u32, PosixFile)]) -> Result<Vec<u64>> {
    let mut ids = Vec::new();
    for (writer, file) in found {
        let again = file.again().map_err(|e| Error::io("open", Address(0), &e))?;
        again
            .lock_exclusive()
            .map_err(|_| Error::refused(libc::EWOULDBLOCK, format!("a mount is log writer {writer} of it: unmount that first")))?;
        ids.extend(WriterRuns::open(*writer, Arc::new(again))?.map(|(head, _)| head.id));
    }
    Ok(ids)
}
