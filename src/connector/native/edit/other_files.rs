//! Other HDF5 files that are written: those with sources of virtual datasets.
//!
//! Each is a container of its own, with its lock, its journal and its transaction. It is opened by
//! the first write to it, and closed when no virtual dataset that was written through to it is open
//! and nothing in it waits for a commit, when it was not used for long and others are needed, or
//! with the mounted file. After that it is open for reading.
//!
//! The mounted file keeps its own view of the names in it, and of all datasets that were never
//! written: a write changes no structure of those. Datasets that were written are read by the
//! container that writes them ([`NativeConnector::written_elsewhere`]).
//!
//! One write to other files is under way at a time: it has the turn. Other files are changed,
//! committed, opened and closed without a lock of the mounted file, and read with its lock of
//! readers. A dataset becomes one that is read elsewhere with the exclusive lock.

use super::super::external::not_written;
use super::super::file::HdfFile;
use super::super::log::LogAccess;
use super::super::object::Object;
use super::super::{NativeConnector, Options, onion, recover, several};
use super::connector_parts::OtherFileWrites;
use crate::base::escape::escaped;
use crate::base::lock_order::{Locked, Rank};
use crate::base::locks::{Mutex, MutexGuard, RwLock};
use crate::base::{Address, Error, Result, waiting};
use crate::connector::ObjectId;
use crate::connector::edit::Edit;
use crate::connector::versions::VersionName;
use crate::file::host_file::HostFile;
use crate::file::writer_log::WriterLogs;
use crate::file::{FileDriver, Stamp};
use crate::meta::Store;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

/// Other files that are open for writing.
const OPEN_MAX: usize = 64;
/// Temporary files of another file, in multiples of the chunk cache.
const TEMPORARY_FACTOR: u64 = 2;
/// Decoded metadata of another file that is written, bytes.
const METADATA_BYTES: usize = 1 << 20;

/// Longest wait for readers and commits that still use a file that was closed.
const END_WAIT: Duration = Duration::from_secs(5);
/// Longest wait for their descriptor to be closed.
const DESCRIPTOR_WAIT: Duration = Duration::from_millis(200);
/// Time after which such a wait looks again.
const END_RETRY: Duration = Duration::from_millis(1);

/// See the module's description.
#[derive(Default)]
pub(super) struct OtherFiles {
    turn: Mutex<()>,
    /// By number of the file.
    files: RwLock<BTreeMap<u32, OtherFile>>,
    /// One was written.
    any: AtomicBool,
    uses: AtomicU64,
}

/// Another file that is or was written.
struct OtherFile {
    /// Reads the datasets that were written; writes them, too, while the file is open for writing.
    connector: Arc<NativeConnector>,
    writable: bool,
    /// Shared by commits, which closing the file excludes.
    session: Arc<RwLock<()>>,
    /// The file by its number in the mounted container, with the bytes as `connector` has them.
    view: Arc<HdfFile>,
    /// Addresses of the datasets that were written.
    written: BTreeSet<Address>,
    /// When it was used last, as a count of uses.
    used: u64,
    /// The state of the file when it was closed.
    closed: Option<Stamp>,
    /// The store that was closed last: its descriptor and its lock last as long as it is in use.
    ended: Weak<Store>,
    failure: Option<Failure>,
}

/// Why changes of another file are not durable.
struct Failure {
    error: Error,
    is_reported: bool,
    /// The file was closed with it: no later commit has the changes.
    is_final: bool,
}

/// The right to open, write and close other files.
pub(super) type Turn<'a> = Locked<MutexGuard<'a, ()>>;

fn title(file: &HdfFile) -> String {
    escaped(Path::new(&file.name)).to_string()
}

/// True for the error of a file that another writer has open.
fn is_in_use(e: &Error) -> bool {
    matches!(e, Error::Refused { errno: libc::EWOULDBLOCK | libc::EBUSY, .. })
}

/// The error of another file `file` as that of a write to the mounted one.
fn about(file: &HdfFile, e: &Error) -> Error {
    let (errno, reason) = match e {
        // A write does not block.
        Error::Refused { errno: libc::EWOULDBLOCK, reason } => (libc::EBUSY, reason.to_string()),
        Error::Refused { errno, reason } => (*errno, reason.to_string()),
        Error::Io { errno, .. } => (*errno, e.to_string()),
        _ => (libc::EIO, e.to_string()),
    };
    Error::refused(errno, format!("the source file {}: {reason}", title(file)))
}

impl OtherFiles {
    pub(super) fn turn(&self) -> Turn<'_> {
        Locked::acquire(Rank::OtherFiles, &self.turn, || waiting::take(|| self.turn.try_lock(), || self.turn.lock()))
    }

    fn connector_of(&self, file: u32) -> Option<Arc<NativeConnector>> {
        self.files.read().get(&file).map(|other| other.connector.clone())
    }

    /// Session and container of file number `file`, if it is open for writing.
    fn session(&self, file: u32) -> Option<(Arc<RwLock<()>>, Arc<NativeConnector>)> {
        self.files.read().get(&file).filter(|other| other.writable).map(|other| (other.session.clone(), other.connector.clone()))
    }

    /// Numbers of those that are open for writing.
    fn writable(&self) -> Vec<u32> {
        if !self.any.load(Ordering::Acquire) {
            return Vec::new();
        }
        self.files.read().iter().filter(|(_, other)| other.writable).map(|(n, _)| *n).collect()
    }

    /// Waits until nothing uses what was closed of file number `file`: this process would find its
    /// own descriptor, and take it for another writer's. True: it was closed before. The caller has
    /// the turn.
    fn await_end(&self, file: u32) -> bool {
        let ended = self.files.read().get(&file).map(|other| other.ended.clone()).unwrap_or_default();
        let begun = Instant::now();
        while ended.strong_count() > 0 && begun.elapsed() < END_WAIT {
            std::thread::sleep(END_RETRY);
        }
        self.files.read().contains_key(&file)
    }

    /// Takes the result of a commit of file number `file`, or of closing it. Returns whether it is
    /// another error than before.
    fn note_committed(&self, file: u32, done: &Result<()>) -> bool {
        let mut files = self.files.write();
        let Some(other) = files.get_mut(&file) else { return false };
        match done {
            // What was not durable after an earlier error is now.
            Ok(()) => {
                other.failure.take_if(|failure| !failure.is_final);
                false
            }
            Err(error) if other.failure.as_ref().is_some_and(|failure| failure.error == *error) => false,
            Err(error) => {
                other.failure = Some(Failure { error: error.clone(), is_reported: false, is_final: false });
                true
            }
        }
    }

    /// Errors: bytes that were written to the dataset `id` of another file could not be stored, or
    /// could not be made durable.
    pub(super) fn report_error(&self, id: ObjectId) -> Result<()> {
        let mut files = self.files.write();
        let Some(other) = files.get_mut(&id.file) else { return Ok(()) };
        let connector = other.connector.clone();
        if let Some(failure) = &mut other.failure {
            failure.is_reported = true;
            let reason = format!("bytes that were written to the source file {} may be lost: {}", title(&other.view), failure.error);
            return Err(Error::refused(libc::EIO, reason));
        }
        drop(files);
        connector.write_error(ObjectId { file: 0, ..id })
    }

    /// Errors: one that no caller got.
    fn unreported_error(&self) -> Result<()> {
        let files = self.files.read();
        let failed = files.values().find_map(|other| other.failure.as_ref().filter(|f| !f.is_reported).map(|f| (other, f)));
        failed.map_or(Ok(()), |(other, failure)| {
            let reason = format!("bytes written to the source file {} are lost: {}", title(&other.view), failure.error);
            Err(Error::refused(libc::EIO, reason))
        })
    }

    /// The file that was not used for longest, beside those in `kept`.
    fn idlest(&self, kept: &BTreeSet<u32>) -> Option<u32> {
        let files = self.files.read();
        let open = files.iter().filter(|(n, other)| other.writable && !kept.contains(n));
        open.min_by_key(|(_, other)| other.used).map(|(n, _)| *n)
    }

    /// The file with most bytes in memory that wait to be stored, if they are more than `most` with
    /// those of the others.
    fn fullest(&self, most: u64) -> Option<u32> {
        let waiting = |connector: &NativeConnector| {
            let staged = connector.file(0).and_then(|file| Ok(file.store.transaction()?.waiting())).unwrap_or(0);
            connector.options.environment.dirty.bytes().saturating_add(staged)
        };
        let files = self.files.read();
        let open = files.iter().filter(|(_, other)| other.writable);
        let all: Vec<(u64, u32)> = open.map(|(n, other)| (waiting(&other.connector), *n)).collect();
        let sum = all.iter().fold(0u64, |sum, (bytes, _)| sum.saturating_add(*bytes));
        all.into_iter().max().filter(|_| sum > most).map(|(_, n)| n)
    }
}

impl OtherFileWrites<'_> {
    /// The container that reads and writes the dataset `id` of another file, and the dataset there;
    /// `None`: it was never written. The caller holds the lock of readers while it uses it.
    pub(in super::super) fn written_elsewhere(&self, id: ObjectId) -> Option<(Arc<NativeConnector>, ObjectId)> {
        let others = &self.connector.editing.as_ref()?.others;
        if id.file == 0 || !others.any.load(Ordering::Acquire) {
            return None;
        }
        let files = others.files.read();
        let other = files.get(&id.file).filter(|other| other.written.contains(&id.address))?;
        Some((other.connector.clone(), ObjectId { file: 0, ..id }))
    }

    /// The object `id`, if it is a dataset of another file that was written.
    pub(in super::super) fn object_elsewhere(&self, id: ObjectId) -> Option<Result<Object>> {
        let (other, _) = self.written_elsewhere(id)?;
        let view = self.connector.editing.as_ref()?.others.files.read().get(&id.file)?.view.clone();
        let _access = other.access();
        Some(Object::open(&view, id.address))
    }

    /// Errors: the dataset `id` of another file cannot be written now. `false`: it is not open for
    /// writing yet.
    pub(super) fn is_open_elsewhere(&self, id: ObjectId) -> Result<bool> {
        if !self.connector.options.neighbours.is_written() {
            return Err(not_written());
        }
        let others = &self.connector.editing()?.others;
        let files = others.files.read();
        let Some(other) = files.get(&id.file).filter(|other| other.writable && other.written.contains(&id.address)) else {
            return Ok(false);
        };
        let connector = other.connector.clone();
        drop(files);
        others.report_error(id)?;
        if connector.file(0)?.store.is_writable() {
            return Ok(true);
        }
        let e = Error::refused(libc::EROFS, "an earlier write to it failed: it stays as it was last made durable");
        Err(about(&*self.connector.file(id.file)?, &e))
    }

    /// Opens the files of the datasets `ids` for writing, where they are not. Errors: one of them
    /// cannot be written; those of the others that were opened stay open.
    pub(super) fn open_others(&self, _turn: &Turn<'_>, ids: &BTreeSet<ObjectId>, needed: &BTreeSet<u32>) -> Result<()> {
        let others = &self.connector.editing()?.others;
        if needed.len() > OPEN_MAX {
            let reason = format!(
                "one write goes to sources in {} other HDF5 files, at most {OPEN_MAX} are open: write fewer elements at once",
                needed.len()
            );
            return Err(Error::refused(libc::EMFILE, reason));
        }
        for id in ids {
            let file = self.connector.file(id.file)?;
            if !others.files.read().get(&id.file).is_some_and(|other| other.writable) {
                while others.writable().len() >= OPEN_MAX {
                    let Some(idlest) = others.idlest(needed) else { break };
                    self.close_other(idlest);
                }
                self.open_other(&file).map_err(|e| about(&file, &e))?;
            }
            self.enter_written(*id).map_err(|e| about(&file, &e))?;
        }
        Ok(())
    }

    /// How `file` is opened as a container of its own.
    fn options_of_other(&self, file: &HdfFile) -> Options {
        let environment = &self.connector.options.environment;
        let temporary = environment.cache.budget().saturating_mul(TEMPORARY_FACTOR);
        Options {
            environment: Arc::new(environment.sharing(temporary, METADATA_BYTES)),
            neighbours: Arc::new(self.connector.options.neighbours.for_other()),
            missing: self.connector.options.missing,
            rescue: false,
            log: LogAccess { raw: self.connector.options.log.raw, file_name: file.name.clone(), writers: None },
        }
    }

    fn open_other(&self, file: &Arc<HdfFile>) -> Result<()> {
        waiting::may_wait();
        let was_closed = self.connector.editing()?.others.await_end(file.index);
        let host = self.connector.options.neighbours.host(&file.directory, &file.name)?;
        if host.identity() != file.identity {
            // Readers find the file that has the name now when they look for it again.
            self.connector.editing()?.new_generation();
            return Err(Error::refused(libc::ESTALE, "another file has its name now; try again"));
        }
        let before = host.reader().and_then(|file| file.status()).map_err(|e| Error::io("stat", Address(0), &e))?.stamp();
        let mut opened = open_for_writing(&host, file, self.options_of_other(file));
        // The last that used it may still be closing the descriptor.
        let begun = Instant::now();
        while was_closed && opened.as_ref().is_err_and(is_in_use) && begun.elapsed() < DESCRIPTOR_WAIT {
            std::thread::sleep(END_RETRY);
            opened = open_for_writing(&host, file, self.options_of_other(file));
        }
        let connector = opened?;
        let now = host.reader().and_then(|file| file.status()).map_err(|e| Error::io("stat", Address(0), &e))?.stamp();
        let others = &self.connector.editing()?.others;
        let known = others.files.read().get(&file.index).map_or(file.stamp, |other| other.closed.unwrap_or(file.stamp));
        let is_changed = known != before || before != now;
        if is_changed {
            self.refresh_other(file, host.reader().map_err(|e| Error::io("open", Address(0), &e))?)?;
        }
        let own = connector.file(0)?;
        let view = HdfFile::view(&own, &*self.connector.file(file.index)?);
        let _alone = self.connector.access_alone();
        let used = others.uses.fetch_add(1, Ordering::Relaxed);
        let mut files = others.files.write();
        let before = files.remove(&file.index);
        let ended = before.as_ref().map(|other| other.ended.clone()).unwrap_or_default();
        let (written, mut failure) = before.map_or_else(Default::default, |other| (other.written, other.failure));
        failure.take_if(|failure: &mut Failure| failure.is_reported);
        // Another program may have moved the datasets; nothing waits for a commit.
        let written = if is_changed { BTreeSet::new() } else { written };
        let session = Arc::default();
        let other = OtherFile { connector, writable: true, session, view: Arc::new(view), written, used, closed: None, ended, failure };
        files.insert(file.index, other);
        others.any.store(true, Ordering::Release);
        Ok(())
    }

    /// Shows file number `file.index` as it is now: another program changed it, or a commit of it
    /// was interrupted.
    fn refresh_other(&self, file: &Arc<HdfFile>, driver: impl FileDriver + 'static) -> Result<()> {
        let opened = HdfFile::open(Arc::new(driver), file.index, file.directory.clone())?.named(&file.name);
        opened.store.limit_cache(self.connector.options.environment.metadata_bytes);
        let _alone = self.connector.access_alone();
        if let Some(known) = self.connector.files.write().get_mut(usize::try_from(file.index).unwrap_or(usize::MAX)) {
            *known = Arc::new(opened);
        }
        self.connector.datasets.forget_all();
        self.connector.attribute_names.lock().clear();
        self.connector.paths.lock().remove(&file.index);
        self.connector.options.environment.forget_decoded();
        self.connector.editing()?.new_generation();
        Ok(())
    }

    /// From now on the dataset `id` of an open file is read and written there. Errors: it cannot be
    /// written.
    fn enter_written(&self, id: ObjectId) -> Result<()> {
        let others = &self.connector.editing()?.others;
        let Some(other) = others.connector_of(id.file) else { return Ok(()) };
        let there = ObjectId { file: 0, ..id };
        other.write_error(there)?;
        drop(other.change(&[there])?.writable_dataset(there)?);
        let _alone = self.connector.access_alone();
        let used = others.uses.fetch_add(1, Ordering::Relaxed);
        let is_new = others.files.write().get_mut(&id.file).is_some_and(|other| {
            other.used = used;
            other.written.insert(id.address)
        });
        if is_new {
            self.connector.datasets.forget(id);
            self.connector.editing()?.new_generation();
        }
        Ok(())
    }

    /// Notes that file number `file` is written now. Returns its container.
    pub(super) fn use_other(&self, file: u32) -> Result<Arc<NativeConnector>> {
        let others = &self.connector.editing()?.others;
        let used = others.uses.fetch_add(1, Ordering::Relaxed);
        let mut files = others.files.write();
        let other = files.get_mut(&file).filter(|other| other.writable);
        let other = other.ok_or_else(|| Error::refused(libc::EIO, "the source file is closed"))?;
        other.used = used;
        Ok(other.connector.clone())
    }

    /// Keeps what waits to be stored in other files within the memory of the mounted one.
    pub(super) fn bound_others(&self, _turn: &Turn<'_>) -> Result<()> {
        let others = &self.connector.editing()?.others;
        while let Some(n) = others.fullest(self.connector.write_back().dirty_budget().max(super::WAITING_MAX)) {
            self.commit_other(n)?;
        }
        Ok(())
    }

    fn commit_other(&self, n: u32) -> Result<()> {
        let others = &self.connector.editing()?.others;
        let Some((session, _)) = others.session(n) else { return Ok(()) };
        let _session = Locked::acquire(Rank::OtherFiles, &*session, || waiting::take(|| session.try_read(), || session.read()));
        // Closed meanwhile, and so committed; another session has its own commits.
        let Some((_, connector)) = others.session(n).filter(|(now, _)| Arc::ptr_eq(now, &session)) else { return Ok(()) };
        let done = Edit::commit(&*connector);
        if let (true, Err(e)) = (others.note_committed(n, &done), &done)
            && let Ok(file) = self.connector.file(n)
        {
            tracing::error!("{}: the last changes could not be made durable: {e}", escaped(&file.directory.join(&file.name)));
        }
        done
    }

    /// Makes what was written to other files durable. Errors are reported to those who wrote
    /// ([`Edit::write_error`]).
    pub(super) fn commit_others(&self) {
        let Some(editing) = &self.connector.editing else { return };
        for n in editing.others.writable() {
            let _ = self.commit_other(n);
        }
    }

    /// Closes the other files to which no open virtual dataset was written through. `always`: also
    /// those with changes that wait for a commit.
    pub(super) fn close_idle_others(&self, always: bool) {
        let Some(editing) = &self.connector.editing else { return };
        if editing.others.writable().is_empty() {
            return;
        }
        let Some(turn) = editing.others.turn.try_lock() else { return };
        let _turn = Locked::acquire(Rank::OtherFiles, &editing.others.turn, || turn);
        let in_use = editing.files_written_through();
        for n in editing.others.writable() {
            let Some((_, connector)) = editing.others.session(n).filter(|_| !in_use.contains(&n)) else { continue };
            let is_dirty =
                || connector.commits().has_unstored() || connector.file(0).is_ok_and(|f| f.store.transaction().is_ok_and(|t| t.is_dirty()));
            let closes = always || !is_dirty();
            drop(connector);
            if closes {
                self.close_other(n);
            }
        }
    }

    /// Commits file number `n` and closes it for writing. The caller has the turn.
    fn close_other(&self, n: u32) {
        let Some(editing) = &self.connector.editing else { return };
        let (Some((session, connector)), Ok(file)) = (editing.others.session(n), self.connector.file(n)) else { return };
        let _session = Locked::acquire(Rank::OtherFiles, &*session, || waiting::take(|| session.try_write(), || session.write()));
        waiting::may_wait();
        let done = Edit::close(&*connector);
        if let (true, Err(e)) = (editing.others.note_committed(n, &done), &done) {
            tracing::error!("{}: the last changes could not be written: {e}", escaped(&file.directory.join(&file.name)));
        }
        let driver = file.store.driver().clone();
        let closed = driver.status().ok().map(|status| status.stamp());
        let reading = NativeConnector::open(driver, file.directory.clone(), self.options_of_other(&file));
        let reading = reading.and_then(|reading| Ok((HdfFile::view(&*reading.file(0)?, &file), reading)));
        let _alone = self.connector.access_alone();
        let mut files = editing.others.files.write();
        let Some(other) = files.get_mut(&n) else { return };
        (other.writable, other.closed) = (false, closed);
        other.ended = connector.file(0).map(|own| Arc::downgrade(&own.store)).unwrap_or_default();
        other.failure.iter_mut().for_each(|failure| failure.is_final = true);
        match reading {
            Ok((view, reading)) => (other.view, other.connector) = (Arc::new(view), reading),
            Err(e) => tracing::error!("{}: cannot be read: {e}", escaped(&file.directory.join(&file.name))),
        }
        drop(files);
        editing.new_generation();
    }

    /// Commits and closes all other files. Errors: one that no caller got.
    pub(super) fn close_others(&self) -> Result<()> {
        let others = &self.connector.editing()?.others;
        let _turn = others.turn();
        for n in others.writable() {
            self.close_other(n);
        }
        others.unreported_error()
    }
}

/// Opens `host` for writing, which the mounted container knows as `file`. Errors: those of a mount
/// of it.
fn open_for_writing(host: &HostFile, file: &HdfFile, options: Options) -> Result<Arc<NativeConnector>> {
    let opened = recover::open_to_change(host)?;
    let refuse = |reason: &'static str| Err(Error::refused(libc::EROFS, reason));
    if onion::open(host, &VersionName::Newest)?.is_some() {
        return refuse("it has revisions in an onion file beside it, which are only read");
    }
    if several::open(host)?.is_some() {
        return refuse("files in several members (drivers family and multi) are only read");
    }
    let writers = WriterLogs::of(host).map_err(|e| Error::io("open", Address(0), &e))?;
    let options = Options { log: LogAccess { writers: Some(writers.clone()), ..options.log }, ..options };
    NativeConnector::open_joined(host, opened, file.directory.clone(), options, &writers)
}
