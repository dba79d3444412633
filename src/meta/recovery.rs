//! Opens a container after its last writer: interrupted commits, leftover journals, bytes past EOF.
//!
//! An interrupted commit leaves a journal and a marked superblock, which no reader accepts. The
//! journal is used only if all of this holds (see docs/DESIGN-crash.md):
//!
//! - The superblock on disk is marked and carries the journal's nonce.
//! - The journal's settled superblock is the marked one without the mark.
//! - The journal's root sector is where the superblock is.
//! - All its records are within the file.
//!
//! A commit of a SWMR writer does not mark the superblock. Its journal is used if the superblock on
//! disk has the flags of a SWMR writer and is that of the journal's settled sector, and the journal
//! names this file.

use super::cache::MetadataCache;
use super::edit::{SECTOR_BYTES, failed};
use super::store::{METADATA_CACHE_BYTES, Store};
use crate::base::{Address, Error, Result};
use crate::file::journal::{self, CommittedFile, JournalKind, Reason, StoredJournal};
use crate::file::transaction::Transaction;
use crate::file::{FileDriver, Identity, JournalPlace, WriteDriver, read_all};
use crate::format::superblock::{Superblock, mark_bit};
use std::sync::Arc;

mod free_space;

/// Most data extents examined to find the last; with more of them the file's length is its end.
const EXTENTS_MAX: usize = 1 << 12;
/// Fewest bytes of a valid file after the start of the root group's header, or after the
/// superblock's start if undefined.
const AFTER_ROOT_BYTES_MIN: u64 = 16;

/// Attempts to read a consistent state of a file that another process commits to.
const ATTEMPTS_MAX: usize = 64;

/// Whether to accept journals of format 1, which carry no nonce.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OldJournals {
    /// Refuse them.
    Refused,
    /// Accept them: only `recover` does.
    Used,
}

/// End of the last data extent of `file` past `recorded`, before a trailing hole; `len` is the
/// file's length.
fn written_end(file: &dyn WriteDriver, recorded: u64, len: u64) -> u64 {
    let (mut at, mut end) = (recorded, recorded);
    for _ in 0..EXTENTS_MAX {
        if at >= len {
            return end;
        }
        match (file.hole_end(at), file.storage_end(at)) {
            (Some(next), _) => at = next,
            (None, Some(next)) if next > at => (at, end) = (next, next.min(len)),
            _ => return len,
        }
    }
    len
}

/// Returns a view of `file` with its interrupted commit applied; `None` if there is none. Writes
/// nothing.
pub fn committed(file: Arc<dyn FileDriver>, place: &dyn JournalPlace) -> Result<Option<Arc<dyn FileDriver>>> {
    let mut attempts = 0;
    loop {
        let store = Store::open(file.clone())?;
        match interrupted(&store, place, OldJournals::Refused) {
            Ok(Some(journal)) => return Ok(Some(Arc::new(CommittedFile::new(file, journal)))),
            Ok(None) => return Ok(None),
            // A live writer started its next commit in between.
            Err(_) if attempts < ATTEMPTS_MAX && Store::open(file.clone())?.superblock() != store.superblock() => attempts += 1,
            Err(e) => return Err(e),
        }
    }
}

/// Completes an interrupted commit of `file` and removes its journal. Returns whether there was
/// one.
pub fn finish(file: &Arc<dyn WriteDriver>, place: &dyn JournalPlace, old: OldJournals) -> Result<bool> {
    let Some(journal) = interrupted(&Store::open(file.clone())?, place, old)? else { return Ok(false) };
    let io = failed("recover", Address(0));
    journal.apply(&**file).map_err(&io)?;
    free_space::keep(file, place);
    place.remove().map_err(&io)?;
    Ok(true)
}

/// Removes a journal that `file` does not need. Returns whether there was one.
///
/// Error: `EEXIST` when it may hold a commit of another file.
pub fn clear_leftover(file: &Arc<dyn WriteDriver>, place: &dyn JournalPlace) -> Result<bool> {
    let io = failed("recover", Address(0));
    let owner = file.status().map_err(&io)?.identity;
    let Some(found) = place.open().map_err(&io)? else { return Ok(false) };
    if let JournalKind::Armed(Some(other)) = journal::kind(&*found).map_err(&io)?
        && other != owner
    {
        let reason = format!(
            "the journal beside the file belongs to another file (inode {}), which may need it; move it beside that file, or remove it",
            other.inode
        );
        return Err(Error::refused(libc::EEXIST, reason));
    }
    tracing::info!("removing a leftover journal: the file has no interrupted commit");
    free_space::keep(file, place);
    place.remove().map_err(&io)?;
    Ok(true)
}

/// Returns the journal of the file's interrupted commit; `None` when its superblock is not marked.
///
/// Error: the superblock is marked, and there is no journal that may be used.
fn interrupted(store: &Store, place: &dyn JournalPlace, old: OldJournals) -> Result<Option<StoredJournal>> {
    if !store.is_marked() {
        return interrupted_swmr_writer(store, place);
    }
    let refuse = |reason: String| {
        let detail = "an interrupted commit awaits its journal, NAME.h5dir-journal beside the file as it was named then";
        Error::corrupt("superblock", Address(store.base), format!("{detail}; {reason}"))
    };
    if let Some(obstacle) = place.obstacle() {
        return Err(refuse(obstacle));
    }
    let io = failed("read the journal", Address(0));
    let Some(source) = place.open().map_err(&io)? else { return Err(refuse("there is none".into())) };
    let found = StoredJournal::open(source).map_err(&io)?;
    let mut journal = found.map_err(|reason| refuse(format!("there is one, but {reason}")))?;
    if journal.nonce().is_none() && old == OldJournals::Refused {
        return Err(refuse("there is one of an older release; 'h5dir recover FILE' applies it".into()));
    }
    let end = match bound_end(store, &journal)? {
        Ok(end) => end,
        Err(reason) => return Err(refuse(format!("there is one, but {reason}"))),
    };
    match journal.verify(end).map_err(&io)? {
        Ok(()) => Ok(Some(journal)),
        Err(reason) => Err(refuse(format!("there is one, but {reason}"))),
    }
}

/// Returns the journal of a SWMR writer's interrupted commit; `None` if there is none, or the
/// writer lives.
fn interrupted_swmr_writer(store: &Store, place: &dyn JournalPlace) -> Result<Option<StoredJournal>> {
    if !store.superblock.is_of_swmr_writer() || store.driver.is_changed_by_mount() {
        return Ok(None);
    }
    let io = failed("read the journal", Address(0));
    let Some(source) = place.open().map_err(&io)? else { return Ok(None) };
    let Ok(mut journal) = StoredJournal::open(source).map_err(&io)? else { return Ok(None) };
    let status = store.driver.status().map_err(failed("stat", Address(0)))?;
    let settled = Superblock::decode(&journal.settled, Address(store.base));
    let belongs = journal.ordered_owner() == Some(status.identity)
        && journal.root() == store.base
        && settled.is_ok_and(|settled| settled == store.superblock && settled.eof.0 <= status.len);
    let end = store.superblock.eof.0.checked_next_multiple_of(SECTOR_BYTES).filter(|_| belongs);
    let Some(end) = end else { return Ok(None) };
    Ok(journal.verify(end).map_err(&io)?.is_ok().then_some(journal))
}

/// True if the journal at `place` is of a session that changed the file `owner`.
pub fn is_of_session(place: &dyn JournalPlace, owner: Identity) -> Result<bool> {
    let io = failed("recover", Address(0));
    let Some(found) = place.open().map_err(&io)? else { return Ok(false) };
    let kind = journal::kind(&*found).map_err(&io)?;
    let mut named = [0; 16];
    let n = read_all(&*found, &mut named, journal::OWNER_AT).map_err(&io)?;
    let names_owner = n == named.len() && named == *[owner.device.to_le_bytes(), owner.inode.to_le_bytes()].as_flattened();
    Ok(matches!(kind, JournalKind::Void | JournalKind::Armed(Some(_))) && names_owner)
}

/// Checks that `journal` belongs to the marked superblock of `store`; returns the end of file that
/// bounds its records.
fn bound_end(store: &Store, journal: &StoredJournal) -> Result<std::result::Result<u64, Reason>> {
    if journal.root() != store.base {
        return Ok(Err("its root sector is not where the superblock is"));
    }
    let mut sector = vec![0; SECTOR_BYTES as usize];
    let n = read_all(&*store.driver, &mut sector, store.base).map_err(failed("read", Address(store.base)))?;
    if n < sector.len() || sector != journal.marked {
        return Ok(Err("it was made for another state of the file"));
    }
    let Ok(settled) = Superblock::decode(&journal.settled, Address(store.base)) else {
        return Ok(Err("its settled superblock cannot be read"));
    };
    let marked = journal.nonce().map_or_else(|| settled.marked_without_nonce(), |nonce| settled.marked(nonce));
    if marked != store.superblock {
        return Ok(Err("its superblocks do not belong together"));
    }
    let len = store.driver.status().map_err(failed("stat", Address(0)))?.len;
    let end = settled.eof.0.checked_next_multiple_of(SECTOR_BYTES);
    Ok(end.filter(|_| settled.eof.0 <= len).ok_or("it needs a longer file than this one"))
}

impl Store {
    /// Opens `driver` for writing, after completing an interrupted commit.
    pub fn open_writable(driver: Arc<dyn WriteDriver>, place: Box<dyn JournalPlace>) -> Result<Store> {
        let finished = finish(&driver, &*place, OldJournals::Refused)?;
        let store = Store::open(driver.clone())?;
        let status = driver.status().map_err(failed("stat", Address(0)))?;
        let Some(recorded) = store.recorded_end(status.len) else { return Err(store.wrong_length(status.len)) };
        // Bytes past the recorded EOF are discarded if our journal shows an unfinished session.
        let ours = finished || clear_leftover(&driver, &*place)? && !store.superblock.is_unclosed();
        // The EOF may have changed.
        let mut store = Store::open(driver.clone())?;
        let status = driver.status().map_err(failed("stat", Address(0)))?;
        let recorded = store.recorded_end(status.len).unwrap_or(recorded);
        // The EOF of a file in use, also by a crashed writer, is not extended: `recover` handles
        // it.
        let longer = store.with_tail(&*driver, status.len).filter(|s| !ours && !s.is_in_use());
        let recorded = longer.as_ref().map_or(recorded, |s| s.eof.0);
        // Checked here, so that the error comes before the first commit.
        if let Some(obstacle) = place.obstacle() {
            return Err(Error::refused(libc::EEXIST, format!("{obstacle}, and the journal needs that name; remove it or rename it")));
        }
        let transaction = Transaction::new(driver, place, recorded).map_err(failed("open", Address(0)))?;
        if let Some(longer) = longer {
            transaction.schedule_eof(store.base, longer.encode()?);
            store.superblock = longer;
        }
        let transaction = Arc::new(transaction);
        store.driver = transaction.clone();
        store.cache = Arc::new(MetadataCache::tracking(METADATA_CACHE_BYTES));
        store.transaction = Some(transaction);
        Ok(store)
    }

    /// The recorded end of file, absolute, if it is plausible for a file of `len` bytes.
    pub fn recorded_end(&self, len: u64) -> Option<u64> {
        let root = self.superblock.root.defined().unwrap_or(0);
        let least = self.base.saturating_add(root).saturating_add(AFTER_ROOT_BYTES_MIN);
        self.superblock.eof.defined().filter(|&e| (least.min(len)..=len).contains(&e))
    }

    /// The error for a file of `len` bytes whose length contradicts its superblock.
    pub fn wrong_length(&self, len: u64) -> Error {
        let detail = match self.superblock.eof.defined() {
            Some(recorded) if recorded > len => format!("cut: {len} of {recorded} bytes"),
            _ => format!("the file has {len} bytes, its superblock records an end of file of {}", self.superblock.eof),
        };
        Error::corrupt("superblock", Address(self.base), detail)
    }

    /// The lengths that the file has and that its superblock records, if it was cut.
    ///
    /// `None` during a commit, and for the file of a SWMR writer, which records an EOF first.
    pub fn cut(&self) -> Result<Option<(u64, u64)>> {
        let len = self.file_len()?.saturating_add(self.base);
        let is_written = self.superblock.is_of_swmr_writer() || self.is_marked();
        Ok(self.superblock.eof.defined().filter(|recorded| *recorded > len && !is_written).map(|recorded| (len, recorded)))
    }

    /// The superblock with its EOF extended over data past the recorded EOF; `None` if there is
    /// none.
    ///
    /// libhdf5 writes such bytes: `H5Dflush` references them without updating the EOF. A trailing
    /// hole does not count. `len` is the length of `file`.
    pub fn with_tail(&self, file: &dyn WriteDriver, len: u64) -> Option<Superblock> {
        let recorded = self.superblock.eof.defined().filter(|&eof| eof < len && !self.superblock.is_of_several())?;
        let end = written_end(file, recorded, len);
        let counted = recorded < end && end < mark_bit(self.ctx().sizeof_addr);
        counted.then(|| Superblock { eof: Address(end), ..self.superblock.clone() })
    }

    /// Overwrites the superblock on disk and makes it durable, outside of a transaction.
    pub fn replace_superblock(&mut self, file: &dyn WriteDriver, superblock: Superblock) -> Result<()> {
        let bytes = superblock.encode()?;
        let old = self.superblock.encode()?;
        file.write_at(&bytes, self.base)
            .or_else(|e| file.write_at(&old, self.base).and(Err(e)))
            .and_then(|()| file.sync())
            .map_err(failed("write", Address(self.base)))?;
        self.superblock = superblock;
        Ok(())
    }

    /// True when the superblock is marked: a commit is under way or was interrupted.
    pub fn is_marked(&self) -> bool {
        self.driver.extent().is_ok_and(|(len, _)| self.superblock.is_marked(len))
    }
}
