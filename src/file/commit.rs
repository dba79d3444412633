//! Making the changes of a [`Transaction`] durable: the steps of a commit, and of the end of a session.

use super::journal::{self, BYTES_MAX, Journal};
use super::overlay::{Bytes, SECTOR};
use super::transaction::{RESERVED, TOGETHER, Transaction};
use super::{WriteDriver, read_all};
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Encodes the superblock for an end of file and the nonce of a commit.
pub type EncodeRoot<'a> = &'a dyn Fn(u64, u64) -> io::Result<Root>;

/// Encoded superblocks for one commit, all of one length and within one sector.
#[derive(Debug, Clone, Default)]
pub struct Root {
    /// Where the superblock lies, absolute: a multiple of the sector size.
    pub offset: u64,
    /// The durable one with the file's new end.
    pub extended: Vec<u8>,
    /// One that no reader accepts. It carries the nonce.
    pub marked: Vec<u8>,
    /// The one after the commit.
    pub settled: Vec<u8>,
}

/// How far a commit came when it failed.
struct Failed {
    error: io::Error,
    /// Nothing may be tried again.
    fatal: bool,
    /// The journal is what counts: its state is what readers shall see.
    marked: bool,
}

fn before(error: io::Error) -> Failed {
    Failed { error, fatal: false, marked: false }
}

fn fatal(error: io::Error) -> Failed {
    Failed { error, fatal: true, marked: false }
}

fn torn(error: io::Error) -> Failed {
    Failed { error, fatal: true, marked: true }
}

impl Transaction {
    /// Makes all changes durable. The caller prevents changes meanwhile. After an error that is not `EROFS` nothing of it is
    /// durable; if [`Transaction::has_failed`] then, nothing more can be written. Error: `ESTALE` when there are changes and the
    /// file was deleted or replaced.
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
                state.look_at = TOGETHER;
                state.space.committed(self.driver.is_followed() && !self.starved.load(Ordering::Acquire));
                self.starved.store(false, Ordering::Release);
                Ok(())
            }
            Err(failed) => {
                if failed.fatal {
                    self.failed.store(true, Ordering::Release);
                    self.torn.store(failed.marked, Ordering::Release);
                    if !failed.marked {
                        self.state.write().overlay.clear();
                    }
                }
                Err(failed.error)
            }
        }
    }

    /// Refuses to commit to a file that nothing leads to: the changes would be gone when it is closed.
    fn check_name(&self) -> io::Result<()> {
        let named = self.place.check_name();
        if named.is_err() && !self.nameless.swap(true, Ordering::AcqRel) {
            tracing::error!("the HDF5 file was deleted or replaced: changes to it cannot be kept");
        }
        named
    }

    fn steps(&self, journal: &mut Option<Arc<dyn WriteDriver>>, root: EncodeRoot<'_>) -> Result<(), Failed> {
        self.complete().map_err(before)?;
        self.write_fresh().map_err(before)?;
        // What could not be put back where it was waits with no room made certain.
        self.state.write().secure_changed(&*self.driver).map_err(before)?;
        let (end, told, len, unsynced) = {
            let s = self.state.read();
            (s.space.end(), s.told, s.len, s.unsynced)
        };
        if unsynced {
            self.driver.sync().map_err(fatal)?;
            self.state.write().unsynced = false;
        }
        let eof = if end > told { len } else { told };
        let nonce = random().map_err(before)?;
        let root = root(eof, nonce).map_err(before)?;
        if root.settled != root.extended {
            self.state.write().overlay.write(&*self.driver, root.offset, &root.settled, Bytes::Live).map_err(before)?;
        }
        let sectors = self.state.read().overlay.sectors();
        if !matches!(sectors.as_slice(), [] | [_]) || sectors.iter().any(|(_, bytes)| bytes.len() as u64 != SECTOR) {
            // The marked and the settled superblock tell the new end.
            self.journaled(journal, &root, nonce, sectors)?;
            self.state.write().told = eof;
            return Ok(());
        }
        if eof != told {
            self.publish(&root.extended, root.offset)?;
            let mut s = self.state.write();
            s.overlay.follow(root.offset, &root.extended);
            s.told = eof;
        }
        match self.state.read().overlay.sectors().first() {
            Some((offset, bytes)) => self.publish(bytes, *offset),
            None => Ok(()),
        }
    }

    /// Completes the last page of a file that is changed: a cache image may end within one.
    fn complete(&self) -> io::Result<()> {
        let mut s = self.state.write();
        let end = s.space.end();
        if end > s.len && (s.unsynced || !s.overlay.is_empty()) {
            self.driver.set_len(end)?;
            (s.len, s.unsynced) = (end, true);
        }
        Ok(())
    }

    /// Writes within one sector and makes it durable. If the write fails, perhaps half done, the old bytes are put back.
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
        };
        let encoded = changes.encode();
        if encoded.len() as u64 > BYTES_MAX {
            return Err(before(io::Error::from_raw_os_error(libc::ENOMEM)));
        }
        let file = match journal {
            Some(file) if self.place.is_kept() => file.clone(),
            _ => journal.insert(self.place.create().map_err(before)?).clone(),
        };
        // Bytes of a longer one before it are not read.
        file.write_at(&encoded, 0).map_err(before)?;
        file.sync().map_err(fatal)?;
        self.publish(&changes.marked, changes.root).map_err(|f| if f.fatal { torn(f.error) } else { f })?;
        changes.apply(&*self.driver).map_err(torn)?;
        // It no longer counts: its state says so, too, and its space is kept for the next one. An error here changes nothing.
        let _ = journal::make_void(&*file);
        if encoded.len() as u64 > RESERVED {
            let _ = file.set_len(RESERVED);
        }
        Ok(())
    }

    /// Ends a session without a commit: unless a commit failed that the journal will finish, the file is cut to the recorded end,
    /// and the journal removed. The file is in the state of the last commit then, and bytes past that state would be taken for
    /// another writer's.
    pub fn abandon(&self) {
        if self.torn.load(Ordering::Acquire) {
            return;
        }
        let _landed = self.flight.landed();
        if !self.has_failed() {
            let _ = self.driver.set_len(self.state.read().told);
        }
        self.journal.lock().take();
        let _ = self.place.remove();
    }

    /// Ends a session: after a commit, gives the unused end of the file back and removes the journal.
    pub fn close(&self, root: EncodeRoot<'_>) -> io::Result<()> {
        if let Err(e) = self.commit(root) {
            self.abandon();
            return Err(e);
        }
        let (end, told) = {
            let mut s = self.state.write();
            s.space.end_rest();
            (s.space.trim(), s.told)
        };
        if end < told {
            let root = root(end, 0)?;
            if let Err(failed) = self.publish(&root.settled, root.offset) {
                // What the superblock tells is not known then: nothing may lie behind it.
                self.failed.fetch_or(failed.fatal, Ordering::AcqRel);
                return Err(failed.error);
            }
            self.state.write().told = end;
        }
        if self.driver.status()?.len > end {
            self.driver.set_len(end)?;
            self.driver.sync()?;
            self.state.write().len = end;
        }
        self.journal.lock().take();
        self.place.remove()
    }
}

/// A random number.
fn random() -> io::Result<u64> {
    getrandom::u64().map_err(|e| io::Error::from_raw_os_error(e.raw_os_error().unwrap_or(libc::EIO)))
}

/// `runs` without the sector at `offset`.
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
