//! Joining the run files of several writers with the log: their elements are moved into it, and the
//! run files removed.
//!
//! One commit has all elements, and names the run files (attribute `joined`), so that none is
//! joined twice if it could not be removed. Nothing commits before: a run file belongs to the state
//! of the HDF5 file that it was made beside.

use super::super::object::Object;
use super::super::record_log;
use super::connector_parts::WriterJoin;
use crate::base::{Error, Result};
use crate::connector::ObjectId;
use crate::dataset::layout::{Beside, InLog};
use crate::file::posix::PosixFile;
use crate::file::writer_log::WriterLogs;
use foldhash::HashSet;

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
        let found = record_log::run_files(places)?;
        if found.is_empty() {
            return Ok(());
        }
        if self.connector.options.log.raw {
            return Err(Error::refused(
                libc::EBUSY,
                "run files of log writers are beside it: mount it once without --log=raw, which joins them",
            ));
        }
        let ids = self.move_all(&found).inspect_err(|_| self.connector.forget_log())?;
        if !ids.is_empty() {
            let change = self.connector.change(&[])?;
            change.atomically(|| change.log().note_joined(&ids))?;
        }
        self.connector.commits().commit_all(false)?;
        self.connector.forget_all();
        let failed = |e: std::io::Error| Error::refused(libc::EIO, format!("run files of log writers: {e}"));
        found.iter().try_for_each(|(writer, file)| places.remove(*writer, file)).map_err(failed)
    }

    /// Moves the elements of the run files `found` into the log. Returns the identifiers of these.
    fn move_all(&self, found: &[(u32, PosixFile)]) -> Result<Vec<u64>> {
        let joined = self.joined_writers()?;
        let all = record_log::unjoined(locked(found)?, &[])?;
        let ids = all.iter().map(|runs| runs.head.id).collect();
        let beside = Beside::read(all.into_iter().filter(|runs| !joined.contains(&runs.head.id)).collect())?;
        let access = self.connector.access();
        let log = access.record_log().ok_or_else(|| Error::refused(libc::EIO, "the log group is gone"))?;
        log.check_beside(&beside)?;
        drop(access);
        let mut missing: HashSet<u64> = beside.datasets().collect();
        let mut datasets = Vec::new();
        self.connector.each_anchor(&mut |_, id, anchor| {
            if let InLog::Records(anchor) = anchor.log
                && missing.remove(&anchor.id)
            {
                datasets.push((id, anchor.id));
            }
            Ok(())
        })?;
        for (id, number) in datasets {
            self.move_dataset(id, number, &beside)?;
        }
        for number in missing {
            tracing::warn!("log writers wrote dataset {number} of the log, which another program deleted since");
        }
        Ok(ids)
    }

    /// Gives the dataset `id`, `number` of the log, the extent that writers gave it, and its
    /// elements in `beside`.
    fn move_dataset(&self, id: ObjectId, number: u64, beside: &Beside) -> Result<()> {
        let d = self.connector.access().dataset(id)?.dataset.clone();
        let mut dims = d.space.dims.clone();
        if let (Some(first), Some(rows)) = (dims.first_mut(), beside.rows(number)) {
            *first = rows.max(*first);
        }
        if dims != d.space.dims {
            let change = self.connector.change(&[id])?;
            change.atomically_reserved(|| change.layout().set_extent(id, &dims))?;
        }
        let env = &self.connector.options.environment;
        beside.each_piece(number, (&dims, d.element_size), PIECE_BYTES, &mut |offset, piece| {
            let change = self.connector.change(&[id])?;
            let d = change.dataset(id)?;
            change.atomically_reserved(|| d.layout().overwrite(&d.bytes, env, offset, piece))?;
            drop(change);
            self.connector.write_back().bound_staged()
        })
    }
}

/// The run files `found`, locked. Errors: a mount writes one of them.
fn locked(found: &[(u32, PosixFile)]) -> Result<Vec<(u32, PosixFile)>> {
    let lock = |(writer, file): &(u32, PosixFile)| {
        let again = file.again().map_err(|e| Error::refused(libc::EIO, format!("the run file of writer {writer}: {e}")))?;
        again
            .lock_exclusive()
            .map_err(|_| Error::refused(libc::EWOULDBLOCK, format!("a mount is log writer {writer} of it: unmount that first")))?;
        Ok((*writer, again))
    };
    found.iter().map(lock).collect()
}
