//! Changes to a file that become durable together or not at all.
//!
//! New bytes go to space that nothing durable points to, straight into the file. Changes of live bytes wait
//! in memory. A commit
//!
//! 1. makes the new bytes and the file's length durable;
//! 2. if the file grew and there is no journal to come, tells so in the superblock, one sector: the old state with room behind it;
//! 3. publishes the changes of live bytes. All in one sector: written, and that is it. Else they go to the
//!    journal; the superblock is marked so that no reader accepts the file; the changes are made; the
//!    superblock is settled. Each step is durable before the next.
//!
//! Whatever step the machine stops at, the file is in the old or the new state, or marked with the journal
//! beside it. See docs/DESIGN-crash.md.

use super::journal::{BYTES_MAX, Journal};
use super::overlay::{Overlay, SECTOR};
use super::space::{Pages, Pool, Ranges, Space};
use super::{FileDriver, JournalPlace, Status, WriteDriver};
use parking_lot::{Mutex, RwLock};
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The file's length grows by at least this much, so that few commits have to tell a new one; bytes.
const GROWTH_MIN: u64 = 64 << 10;
const GROWTH_MAX: u64 = 64 << 20;
const GRANULE: u64 = 4096;
/// So much written in one run to new space goes to the disk while more comes; bytes.
const WRITEBACK: u64 = 8 << 20;

/// Room that the journal has from the first operation on, so that what is removed on a full disk can be committed; bytes.
const RESERVED: u64 = 256 << 10;

/// Encoded superblocks for one commit, all of one length and within one sector.
#[derive(Debug, Clone, Default)]
pub struct Root {
    /// Where the superblock lies, absolute: a multiple of the sector size.
    pub offset: u64,
    /// The durable one with the file's new end.
    pub extended: Vec<u8>,
    /// One that no reader accepts.
    pub marked: Vec<u8>,
    /// The one after the commit.
    pub settled: Vec<u8>,
}

struct State {
    overlay: Overlay,
    space: Space,
    /// Length of the file.
    len: u64,
    /// End of file that the durable superblock tells.
    told: u64,
    /// Bytes were written to fresh space since the last sync.
    unsynced: bool,
    /// The last run written to new space, as far as the disk has not been told to write it.
    run: Range<u64>,
    /// From here on nothing was ever written: zeros.
    virgin: u64,
    /// The operation under way.
    operation: Option<Operation>,
}

impl State {
    /// `part` was written: the run that has become long enough for the disk.
    fn ran(&mut self, part: &Range<u64>) -> Option<Range<u64>> {
        // Data may be aligned: a small gap does not end a run.
        let follows = part.start >= self.run.end && part.start.saturating_sub(self.run.end) < GRANULE;
        self.run = if follows { self.run.start..part.end } else { part.clone() };
        if self.run.end.saturating_sub(self.run.start) < WRITEBACK {
            return None;
        }
        let run = self.run.clone();
        self.run = run.end..run.end;
        Some(run)
    }
}

/// What taking an operation back needs to know.
#[derive(Default)]
struct Operation {
    /// What it allocated, together and one by one.
    allocated: Ranges,
    taken: Vec<(Range<u64>, Pool)>,
    /// What it gave back: taken note of when it ends.
    freed: Vec<(Range<u64>, Pool)>,
    /// What it overwrote in place of bytes that are older than it.
    overwritten: Vec<(u64, Vec<u8>)>,
}

/// See the module's description.
pub struct Transaction {
    driver: Arc<dyn WriteDriver>,
    place: Box<dyn JournalPlace>,
    state: RwLock<State>,
    journal: Mutex<Option<Arc<dyn WriteDriver>>>,
    /// Nothing was done yet.
    idle: AtomicBool,
    /// There was no room for something since the last commit.
    starved: AtomicBool,
    failed: AtomicBool,
    /// A commit failed that the journal will finish.
    torn: AtomicBool,
}

fn read_only() -> io::Error {
    io::Error::from_raw_os_error(libc::EROFS)
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
    /// Changes to `driver`, whose superblock tells `told` as its end (absolute). All bytes below that are taken
    /// to be in use, and those behind it to be nobody's.
    pub fn new(driver: Arc<dyn WriteDriver>, place: Box<dyn JournalPlace>, told: u64) -> io::Result<Self> {
        let len = driver.status()?.len;
        let state = State {
            overlay: Overlay::default(),
            space: Space::new(told),
            len,
            told,
            unsynced: false,
            run: 0..0,
            virgin: len.max(told),
            operation: None,
        };
        Ok(Transaction {
            driver,
            place,
            state: RwLock::new(state),
            journal: Mutex::new(None),
            idle: AtomicBool::new(true),
            starved: AtomicBool::new(false),
            failed: AtomicBool::new(false),
            torn: AtomicBool::new(false),
        })
    }

    /// Begins an operation: a group of changes that is made as a whole or not at all.
    pub fn begin(&self) {
        if self.idle.swap(false, Ordering::AcqRel) {
            self.reserve();
        }
        let mut state = self.state.write();
        state.overlay.begin();
        state.operation = Some(Operation::default());
    }

    /// Makes the journal. What fails here is met again, and told, by the commit that needs it.
    fn reserve(&self) {
        let mut journal = self.journal.lock();
        if journal.is_none()
            && let Ok(file) = self.place.create()
        {
            if let Err(e) = file.reserve(RESERVED) {
                tracing::debug!("no room for the journal is reserved: {e}");
            }
            *journal = Some(file);
        }
    }

    /// Ends the operation. If it was `done` its changes stay; else they are taken back, except what
    /// [`Transaction::write_data`] wrote. An error while that is done ends all writing.
    pub fn finish(&self, done: bool) {
        let mut state = self.state.write();
        state.overlay.end(!done);
        let Some(operation) = state.operation.take() else { return };
        if done {
            for (range, pool) in operation.freed {
                state.space.free(range, pool);
            }
            return;
        }
        for (offset, bytes) in operation.overwritten.into_iter().rev() {
            if self.driver.write_at(&bytes, offset).is_ok() {
                state.overlay.follow(offset, &bytes);
            } else if state.overlay.write(&*self.driver, offset, &bytes).is_err() {
                // Nothing durable leads there, but this session can't go on.
                self.failed.store(true, Ordering::Release);
            }
        }
        for (range, pool) in operation.taken {
            state.space.free(range, pool);
        }
        // On a full disk there may be no room behind the length, where there is some in what was given back elsewhere.
        state.space.trim();
    }

    /// Writes bytes: in place where nothing durable points, else with the next commit.
    pub fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.within(offset, bytes.len())?;
        self.remember(offset, bytes.len())?;
        self.write_data(offset, bytes)
    }

    /// Only a damaged file leads to what was never allocated; the end of a commit would be too late to find out.
    fn within(&self, offset: u64, len: usize) -> io::Result<()> {
        let end = offset.checked_add(len as u64).filter(|end| *end <= self.end());
        end.map(drop).ok_or_else(|| io::Error::from_raw_os_error(libc::EIO))
    }

    /// Keeps what lies in fresh space that is older than the operation under way.
    fn remember(&self, offset: u64, len: usize) -> io::Result<()> {
        let mut state = self.state.write();
        let end = offset.saturating_add(len as u64);
        let Some(operation) = &state.operation else { return Ok(()) };
        let mut old = Vec::new();
        for (part, fresh) in state.space.split_fresh(offset..end) {
            for (piece, own) in operation.allocated.split(part) {
                if fresh && !own {
                    let mut bytes = vec![0; usize::try_from(piece.end.saturating_sub(piece.start)).unwrap_or(0)];
                    self.driver.read_at(&mut bytes, piece.start)?;
                    old.push((piece.start, bytes));
                }
            }
        }
        if let Some(operation) = &mut state.operation {
            operation.overwritten.extend(old);
        }
        Ok(())
    }

    /// The same for bytes that stay when the operation under way is taken back: elements.
    pub fn write_data(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.usable()?;
        self.within(offset, bytes.len())?;
        let end = offset.saturating_add(bytes.len() as u64);
        let parts = self.state.read().space.split_fresh(offset..end);
        for (part, fresh) in parts {
            let slice = |r: &Range<u64>| {
                let from = usize::try_from(r.start.saturating_sub(offset)).ok()?;
                let to = usize::try_from(r.end.saturating_sub(offset)).ok()?;
                bytes.get(from..to)
            };
            let piece = slice(&part).unwrap_or_default();
            if fresh {
                self.driver.write_at(piece, part.start)?;
                let mut state = self.state.write();
                state.overlay.follow(part.start, piece);
                state.unsynced = true;
                state.len = state.len.max(part.end);
                if let Some(run) = state.ran(&part) {
                    drop(state);
                    self.driver.begin_writeback(run.start, run.end.saturating_sub(run.start));
                }
            } else {
                self.state.write().overlay.write(&*self.driver, part.start, piece)?;
            }
        }
        Ok(())
    }

    /// The file has pages of `size` bytes from `origin` on.
    pub fn set_pages(&self, pages: Pages) {
        self.state.write().space.set_pages(pages);
    }

    /// The file's pages, if it has any.
    pub fn pages(&self) -> Option<Pages> {
        self.state.read().space.pages()
    }

    /// Takes `len` bytes at a multiple of `align`. Returns whether they are zeros; else what they hold is not
    /// defined.
    pub fn allocate(&self, len: u64, align: u64, pool: Pool) -> io::Result<(u64, bool)> {
        self.usable()?;
        let mut state = self.state.write();
        let at = state.space.allocate(len, align, pool).ok_or_else(|| io::Error::from_raw_os_error(libc::EFBIG))?;
        let range = at..at.saturating_add(len);
        let end = state.space.end();
        if end > state.len {
            let room = (end / 8).clamp(GROWTH_MIN, GROWTH_MAX);
            let longer = end.saturating_add(room).checked_next_multiple_of(GRANULE).unwrap_or(end);
            // An end of file that the superblock may tell.
            let longer = state.space.pages().and_then(|p| p.up(longer)).unwrap_or(longer);
            if let Err(e) = self.driver.set_len(longer) {
                state.space.free(range, pool);
                return Err(e);
            }
            state.len = longer;
            state.unsynced = true;
        }
        let zeros = at >= state.virgin;
        state.virgin = state.virgin.max(range.end);
        if let Some(operation) = &mut state.operation {
            operation.allocated.insert(range.clone());
            operation.taken.push((range, pool));
        }
        Ok((at, zeros))
    }

    /// Gives `range` back; it is used again when nothing durable points there.
    pub fn free(&self, range: Range<u64>, pool: Pool) {
        let mut state = self.state.write();
        // What a damaged file says was taken beyond the end never was.
        let range = range.start..range.end.min(state.space.end());
        if range.is_empty() {
            return;
        }
        match &mut state.operation {
            Some(operation) => operation.freed.push((range, pool)),
            None => state.space.free(range, pool),
        }
    }

    /// Cuts what is free off the end; returns the end. The file gets shorter when it is closed.
    pub fn trim(&self) -> u64 {
        self.state.write().space.trim()
    }

    /// Declares that nothing durable points to `range`.
    pub fn add_free(&self, range: Range<u64>) {
        self.state.write().space.add_free(range);
    }

    /// There was no room for a change.
    pub fn note_starved(&self) {
        self.starved.store(true, Ordering::Release);
    }

    /// True when there was no room for something, and a commit makes some in the file.
    pub fn is_relieved(&self) -> bool {
        self.starved.load(Ordering::Acquire) && self.state.read().space.gives_back()
    }

    /// Memory that waits for the next commit, bytes.
    pub fn waiting(&self) -> u64 {
        self.state.read().overlay.bytes()
    }

    /// End of what is allocated, absolute.
    pub fn end(&self) -> u64 {
        self.state.read().space.end()
    }

    /// True when a commit would have something to do.
    pub fn is_dirty(&self) -> bool {
        let state = self.state.read();
        state.unsynced || !state.overlay.is_empty()
    }

    /// True after a failure that leaves only reading.
    pub fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Acquire)
    }

    fn usable(&self) -> io::Result<()> {
        if self.has_failed() { Err(read_only()) } else { Ok(()) }
    }

    /// Makes all changes durable. `root` encodes the superblock for a given end of file. The caller sees to it
    /// that nothing is changed meanwhile. After an error that is not `EROFS` nothing of it is durable; if
    /// [`Transaction::has_failed`] then, nothing more can be written.
    pub fn commit(&self, root: &dyn Fn(u64) -> io::Result<Root>) -> io::Result<()> {
        self.usable()?;
        let mut journal = self.journal.lock();
        match self.steps(&mut journal, root) {
            Ok(()) => {
                let mut state = self.state.write();
                state.overlay.clear();
                state.space.committed();
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

    fn steps(&self, journal: &mut Option<Arc<dyn WriteDriver>>, root: &dyn Fn(u64) -> io::Result<Root>) -> Result<(), Failed> {
        self.complete().map_err(before)?;
        let (end, told, len, unsynced) = {
            let s = self.state.read();
            (s.space.end(), s.told, s.len, s.unsynced)
        };
        if unsynced {
            self.driver.sync().map_err(fatal)?;
            self.state.write().unsynced = false;
        }
        let eof = if end > told { len } else { told };
        let root = root(eof).map_err(before)?;
        if root.settled != root.extended {
            self.state.write().overlay.write(&*self.driver, root.offset, &root.settled).map_err(before)?;
        }
        let sectors = self.state.read().overlay.sectors();
        if !matches!(sectors.as_slice(), [] | [_]) || sectors.iter().any(|(_, bytes)| bytes.len() as u64 != SECTOR) {
            // The marked and the settled superblock tell the new end.
            self.journaled(journal, &root, sectors)?;
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
        self.driver.read_at(&mut old, offset).map_err(before)?;
        if let Err(e) = self.driver.write_at(bytes, offset) {
            return Err(if self.driver.write_at(&old, offset).is_ok() { before(e) } else { fatal(e) });
        }
        self.driver.sync().map_err(fatal)
    }

    fn journaled(&self, journal: &mut Option<Arc<dyn WriteDriver>>, root: &Root, sectors: Vec<(u64, Vec<u8>)>) -> Result<(), Failed> {
        let mut old = vec![0u8; SECTOR as usize];
        self.driver.read_at(&mut old, root.offset).map_err(before)?;
        let with = |mut sector: Vec<u8>, superblock: &[u8]| {
            if let Some(target) = sector.get_mut(..superblock.len()) {
                target.copy_from_slice(superblock);
            }
            sector
        };
        let mut new = old.clone();
        self.state.read().overlay.patch(root.offset, &mut new);
        let changes = Journal {
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
        // What is left of an older one behind it is not looked at.
        file.write_at(&encoded, 0).map_err(before)?;
        file.sync().map_err(fatal)?;
        self.publish(&changes.marked, changes.root).map_err(|f| if f.fatal { torn(f.error) } else { f })?;
        changes.apply(&*self.driver).map_err(torn)?;
        // It no longer counts, and its room is kept for the next one. An error here changes nothing.
        if encoded.len() as u64 > RESERVED {
            let _ = file.set_len(RESERVED);
        }
        Ok(())
    }

    /// Ends a session: after a commit, gives the unused end of the file back and removes the journal.
    pub fn close(&self, root: &dyn Fn(u64) -> io::Result<Root>) -> io::Result<()> {
        if let Err(e) = self.commit(root) {
            if !self.torn.load(Ordering::Acquire) {
                // The file is whole without it.
                self.journal.lock().take();
                let _ = self.place.remove();
            }
            return Err(e);
        }
        let (end, told) = {
            let mut s = self.state.write();
            (s.space.trim(), s.told)
        };
        if end < told {
            let root = root(end)?;
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

impl FileDriver for Transaction {
    fn status(&self) -> io::Result<Status> {
        self.driver.status()
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        let state = self.state.read();
        let n = self.driver.read_at(buf, offset)?;
        Ok(n.max(state.overlay.patch(offset, buf)))
    }

    fn hole_end(&self, _offset: u64) -> Option<u64> {
        None
    }

    fn advise(&self, offset: u64, len: u64) {
        self.driver.advise(offset, len);
    }
}
