//! Commit of a [`Transaction`], and the end of a session.

use super::journal::{self, BYTES_MAX, Journal};
use super::overlay::{Bytes, SECTOR};
use super::transaction::{BATCH_BYTES, GRANULE, Transaction, journal_room};
use super::write_order::WriteOrder;
use super::{WriteDriver, read_all};
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Fewer bytes are synced by the commit alone, bytes.
const EARLY_SYNC_MIN_BYTES: u64 = 4 << 20;
/// Shorter free ranges keep their storage, bytes.
const PUNCH_MIN_BYTES: u64 = 64 << 10;

mod ordered;

/// Encodes the superblock for an EOF and the nonce of a commit.
pub type EncodeRoot<'a> = &'a dyn Fn(u64, u64) -> io::Result<Root>;

/// Encoded superblocks for one commit, all of one length and within one sector.
#[derive(Debug, Clone, Default)]
pub struct Root {
    /// Absolute offset of the superblock, a multiple of the sector size.
    pub offset: u64,
    /// The durable superblock with the new EOF.
    pub extended: Vec<u8>,
    /// A superblock that no reader accepts, with the nonce.
    pub marked: Vec<u8>,
    /// The superblock after the commit.
    pub settled: Vec<u8>,
}

/// Failure of a commit.
struct Failed {
    error: io::Error,
    /// The commit must not be retried.
    fatal: bool,
    /// The file is marked: the journal has the state that readers must see.
    marked: bool,
}

fn before(error: io::Error) -> Failed {
    Failed { error, fatal: false, marked: false }
}

fn fatal(error: io::Error) -> Failed {
    Failed { error, fatal: true, marked: false }
}

fn after_mark(error: io::Error) -> Failed {
    Failed { error, fatal: true, marked: true }
}

impl Transaction {
    /// Makes all changes durable. The caller prevents concurrent changes. After an error other than
    /// `EROFS` none of the changes is durable; if [`Transaction::has_failed`], no further write is
    /// possible. Error: `ESTALE` if there are changes and the file was deleted or replaced.
    pub fn commit(&self, root: EncodeRoot<'_>) -> io::Result<()> {
        self.usable()?;
        if self.is_dirty() {
            self.check_name()?;
        }
        let mut journal = self.journal.lock();
        match self.steps(&mut journal, root) {
            Ok(()) => {
                let mut state = self.state.write();
                state.overlay.clear();
                state.batch_limit = BATCH_BYTES;
                state.order.iter_mut().for_each(WriteOrder::clear);
                state.space.committed(self.driver.is_followed() && !self.out_of_space.load(Ordering::Acquire));
                self.out_of_space.store(false, Ordering::Release);
                drop(state);
                self.record_after_commit(journal.as_deref());
                Ok(())
            }
            Err(failed) => {
                if failed.fatal {
                    self.failed.store(true, Ordering::Release);
                    self.interrupted.store(failed.marked, Ordering::Release);
                    if !failed.marked {
                        self.state.write().overlay.clear();
                    }
                }
                Err(failed.error)
            }
        }
    }

    /// Syncs what was written to fresh space, if it is much, while changes go on. An error fails
    /// the next commit.
    pub fn sync_early(&self) {
        if self.state.read().unsynced_bytes <= EARLY_SYNC_MIN_BYTES || self.usable().is_err() {
            return;
        }
        // Not beside the sync of a commit: the kernel reports an error to one of the two.
        let _commits = self.journal.lock();
        self.state.write().unsynced_bytes = 0;
        if let Err(e) = self.driver.sync() {
            self.state.write().sync_error = Some(e.raw_os_error().unwrap_or(libc::EIO));
        }
    }

    /// Errors: the file has no name, so that the changes would be lost when it is closed.
    fn check_name(&self) -> io::Result<()> {
        let named = self.place.check_name();
        if named.is_err() && !self.unlinked_logged.swap(true, Ordering::AcqRel) {
            tracing::error!("cannot commit changes: the HDF5 file was deleted or replaced");
        }
        named
    }

    fn steps(&self, journal: &mut Option<Arc<dyn WriteDriver>>, root: EncodeRoot<'_>) -> Result<(), Failed> {
        self.complete().map_err(before)?;
        self.write_fresh_sectors().map_err(before)?;
        // Storage of bytes that a rollback could not write back is not allocated yet.
        self.state.write().ensure_dirty_storage(&*self.driver).map_err(before)?;
        self.record_before_commit().map_err(before)?;
        let (end, recorded_eof, len, unsynced, sync_error) = {
            let s = self.state.read();
            (s.space.end(), s.recorded_eof, s.len, s.unsynced, s.sync_error)
        };
        if let Some(errno) = sync_error {
            return Err(fatal(io::Error::from_raw_os_error(errno)));
        }
        if unsynced {
            self.driver.sync().map_err(fatal)?;
            let mut state = self.state.write();
            (state.unsynced, state.unsynced_bytes) = (false, 0);
        }
        let nonce = random().map_err(before)?;
        let eof = if end > recorded_eof { self.eof_with_room(end, len) } else { recorded_eof };
        let encode = root;
        let root = encode(eof, nonce).map_err(before)?;
        if self.is_ordered() {
            return self.publish_in_order(journal, &root, eof, nonce);
        }
        if root.settled != root.extended {
            self.state.write().overlay.write(&*self.driver, root.offset, &root.settled, Bytes::Live).map_err(before)?;
        }
        let sectors = self.state.read().overlay.sectors();
        if !matches!(sectors.as_slice(), [] | [_]) || sectors.iter().any(|(_, bytes)| bytes.len() as u64 != SECTOR) {
            // The marked and the settled superblock record the new EOF, without unused space.
            let eof = self.state.read().space.up(end).unwrap_or(end).min(len);
            let root = encode(eof, nonce).map_err(before)?;
            self.journaled(journal, &root, nonce, sectors)?;
            self.state.write().recorded_eof = eof;
            return Ok(());
        }
        if eof != recorded_eof {
            self.publish(&root.extended, root.offset)?;
            let mut s = self.state.write();
            s.overlay.update_kept(root.offset, &root.extended);
            s.recorded_eof = eof;
        }
        match self.state.read().overlay.sectors().first() {
            Some((offset, bytes)) => self.publish(bytes, *offset),
            None => Ok(()),
        }
    }

    /// EOF for a commit that records it in a write of its own: past the allocated space as much as
    /// the session allocated, so that few commits record one, and a killed session leaves little
    /// unused space.
    fn eof_with_room(&self, end: u64, len: u64) -> u64 {
        let state = self.state.read();
        let room = end.saturating_sub(state.space.initial_end()).max(GRANULE);
        let eof = end.saturating_add(room);
        match state.space.pages() {
            // Whole pages.
            Some(pages) => pages.up(eof).filter(|eof| *eof <= len).unwrap_or(end).min(len),
            None => eof.min(len),
        }
    }

    /// Extends a changed file to the end of its last page: a cache image may end within a page.
    fn complete(&self) -> io::Result<()> {
        let mut s = self.state.write();
        let end = s.space.end();
        if end > s.len && (s.unsynced || !s.overlay.is_empty()) {
            self.driver.set_len(end)?;
            (s.len, s.unsynced) = (end, true);
        }
        Ok(())
    }

    /// Writes within one sector and syncs. Restores the old bytes if the write fails, perhaps half
    /// done.
    fn publish(&self, bytes: &[u8], offset: u64) -> Result<(), Failed> {
        let mut old = vec![0u8; bytes.len()];
        read_all(&*self.driver, &mut old, offset).map_err(before)?;
        if let Err(e) = self.driver.write_at(bytes, offset) {
            return Err(if self.driver.write_at(&old, offset).is_ok() { before(e) } else { fatal(e) });
        }
        self.driver.sync().map_err(fatal)
    }

    fn journaled(
        &self,
        journal: &mut Option<Arc<dyn WriteDriver>>,
        root: &Root,
        nonce: u64,
        sectors: Vec<(u64, Vec<u8>)>,
    ) -> Result<(), Failed> {
        let mut old = vec![0u8; SECTOR as usize];
        read_all(&*self.driver, &mut old, root.offset).map_err(before)?;
        let with = |mut sector: Vec<u8>, superblock: &[u8]| {
            if let Some(target) = sector.get_mut(..superblock.len()) {
                target.copy_from_slice(superblock);
            }
            sector
        };
        let mut new = old.clone();
        self.state.read().overlay.patch(root.offset, &mut new);
        let changes = Journal {
            owner: self.driver.status().map_err(before)?.identity,
            nonce,
            root: root.offset,
            marked: with(old, &root.marked),
            settled: with(new, &root.settled),
            records: without_sector(sectors, root.offset),
            free_record: self.state.read().free_record.place(),
        };
        let encoded = changes.encode();
        let file = self.arm(journal, &encoded)?;
        self.publish(&changes.marked, changes.root).map_err(|f| if f.fatal { after_mark(f.error) } else { f })?;
        changes.apply(&*self.driver).map_err(after_mark)?;
        disarm(&*file, &changes, encoded.len() as u64);
        self.journal_room.shorten(&*file);
        Ok(())
    }

    /// Writes a journal, durable.
    fn arm(&self, journal: &mut Option<Arc<dyn WriteDriver>>, encoded: &[u8]) -> Result<Arc<dyn WriteDriver>, Failed> {
        if encoded.len() as u64 > BYTES_MAX {
            return Err(before(io::Error::from_raw_os_error(libc::ENOMEM)));
        }
        let file = match journal {
            Some(file) if self.place.is_kept() => file.clone(),
            _ => journal.insert(self.place.create().map_err(before)?).clone(),
        };
        // Overwrites a longer journal; readers ignore the bytes after this one.
        file.write_at(encoded, 0).map_err(before)?;
        file.sync().map_err(fatal)?;
        Ok(file)
    }

    /// Writes the superblock as `root` encodes it now, and syncs. Called after a commit.
    pub fn publish_root(&self, root: EncodeRoot<'_>) -> io::Result<()> {
        let eof = self.state.read().recorded_eof;
        let root = root(eof, 0)?;
        self.publish(&root.settled, root.offset).map_err(|failed| {
            self.failed.fetch_or(failed.fatal, Ordering::AcqRel);
            failed.error
        })
    }

    /// Ends a session without a commit. Unless recovery must finish an interrupted commit,
    /// truncates the file to the recorded EOF and removes the journal. The file is in the state of
    /// the last commit then; bytes past its EOF would be taken for those of another writer.
    pub fn abandon(&self) {
        if self.interrupted.load(Ordering::Acquire) {
            return;
        }
        let mut journal = self.journal.lock();
        let _idle = self.background.wait();
        if !self.has_failed() {
            let eof = self.state.read().recorded_eof;
            let _ = self.driver.set_len(eof);
        }
        journal.take();
        let _ = self.place.remove();
    }

    /// Ends a session: commits, truncates the unused end of the file and removes the journal.
    pub fn close(&self, root: EncodeRoot<'_>) -> io::Result<()> {
        self.end_free_record();
        if let Err(e) = self.commit(root) {
            self.abandon();
            return Err(e);
        }
        let (end, recorded_eof) = {
            let mut s = self.state.write();
            s.space.end_rest();
            (s.space.trim(), s.recorded_eof)
        };
        if end < recorded_eof {
            let root = root(end, 0)?;
            if let Err(failed) = self.publish(&root.settled, root.offset) {
                // The recorded EOF is unknown after a fatal error.
                self.failed.fetch_or(failed.fatal, Ordering::AcqRel);
                return Err(failed.error);
            }
            self.state.write().recorded_eof = end;
        }
        if self.driver.status()?.len > end {
            self.driver.set_len(end)?;
            self.driver.sync()?;
            self.state.write().len = end;
        }
        if self.releases_storage.load(Ordering::Acquire) {
            self.punch_free_space();
        }
        self.journal.lock().take();
        self.place.remove()
    }

    /// Frees the storage of free space. An error is harmless: no structure refers to it.
    fn punch_free_space(&self) {
        let free: Vec<Range<u64>> =
            self.state.read().space.free_ranges().filter(|r| r.end.saturating_sub(r.start) >= PUNCH_MIN_BYTES).collect();
        let done = free.into_iter().try_for_each(|r| self.driver.release_storage(r.start, r.end.saturating_sub(r.start)));
        if let Err(e) = done {
            tracing::debug!("the storage of free space stays: {e}");
        }
    }
}

/// Marks the journal in `file`, `len` bytes of `changes`, void and keeps its space for the next
/// commit. An error is harmless: the file no longer matches it, or it repeats the same changes.
fn disarm(file: &dyn WriteDriver, changes: &Journal, len: u64) {
    let _ = journal::make_void(file);
    if len > journal_room::RESERVED {
        let _ = file.set_len(journal_room::RESERVED);
        let _ = file.write_at(&journal::void_head(changes.owner), 0);
        let _ = journal::set_free_record(file, changes.free_record);
    }
}

/// Returns a random number.
fn random() -> io::Result<u64> {
    getrandom::u64().map_err(|e| io::Error::from_raw_os_error(e.raw_os_error().unwrap_or(libc::EIO)))
}

/// Removes the sector at `offset` from `runs`.
fn without_sector(runs: Vec<(u64, Vec<u8>)>, offset: u64) -> Vec<(u64, Vec<u8>)> {
    let mut out = Vec::new();
    for (start, mut bytes) in runs {
        let within = offset.checked_sub(start).and_then(|d| usize::try_from(d).ok()).filter(|&d| d < bytes.len());
        let Some(at) = within else {
            out.push((start, bytes));
            continue;
        };
        let tail = bytes.split_off((at + SECTOR as usize).min(bytes.len()));
        bytes.truncate(at);
        if !bytes.is_empty() {
            out.push((start, bytes));
        }
        if !tail.is_empty() {
            out.push((offset.saturating_add(SECTOR), tail));
        }
    }
    out
}
