//! One of several writers of a log: elements go to a run file beside the HDF5 file, which stays as
//! it is. A later mount for writing moves them into the log (`log_join`).

use super::super::NativeConnector;
use super::super::dataset::Dataset;
use super::super::log_names::FileLog;
use super::data::rows_of;
use super::log::new_id;
use super::restricted::{Permitted, Restricted, refusal};
use crate::base::locks::Mutex;
use crate::base::{Address, Error, Result};
use crate::connector::extent::check_extent;
use crate::connector::{Form, ObjectId};
use crate::dataset::layout::{RecordLog, RunDataset, WriterRuns, WriterTail};
use crate::file::posix::PosixFile;
use crate::file::writer_log::{WriterLogs, beginning};
use crate::file::{FileDriver, WriteDriver};
use crate::format::log::writer::{HEAD_BYTES_MAX, WriterHead};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

/// Why other changes are refused.
const WHY: &str =
    "the file is mounted with --log-writer, which overwrites and appends elements of datasets in its log and changes nothing else";

/// Changes by a log writer.
struct LogWriter {
    connector: Weak<NativeConnector>,
    log: Arc<RecordLog>,
    /// Number of the writer.
    writer: u32,
    file: Arc<PosixFile>,
    /// Where the run file is.
    places: WriterLogs,
    /// Its runs may have datasets that grew.
    grows: bool,
    /// The HDF5 file, with the lock of readers.
    _locked: PosixFile,
    /// Staged bytes at which a run is written.
    staged_max: u64,
    /// Held by each change.
    state: Mutex<State>,
}

struct State {
    /// Where the next run goes.
    tail: WriterTail,
    /// Runs that are durable.
    durable: u64,
    /// A sync failed: what the file has is not known.
    failed: bool,
    /// No later run says yet that the last one is durable.
    is_unmarked: bool,
}

fn io(operation: &'static str) -> impl Fn(std::io::Error) -> Error {
    move |e| Error::io(operation, Address(0), &e)
}

/// The runs in the run file `file` of a writer, and where the next one goes. If it has none, it
/// gets the head `new`. Bytes of a commit that was not acknowledged are cut off.
fn begin(file: &Arc<PosixFile>, new: &WriterHead, joined: &[u64]) -> Result<(WriterRuns, WriterTail)> {
    let driver = || -> Arc<dyn FileDriver> { file.clone() };
    let there = beginning(file).map_err(io("read"))?;
    if !WriterHead::begins(&there) && (there.len() > HEAD_BYTES_MAX || there.iter().any(|byte| *byte != 0)) {
        return Err(Error::refused(
            libc::EEXIST,
            "beside it is another file with the name of the run file: move it, or give another number",
        ));
    }
    // A crash may have left it before it had a head.
    let found = if WriterHead::begins(&there) { WriterRuns::open(new.writer, driver())? } else { None };
    // What was joined is in the HDF5 file.
    let found = found.filter(|runs| !joined.contains(&runs.head.id));
    let known = found.map(|runs| runs.each_run(&mut |_, _, _| Ok(())).map(|tail| (runs, tail))).transpose()?;
    let (runs, tail) = match known.filter(|(_, tail)| tail.sequence > 0) {
        Some(known) => known,
        None => {
            file.set_len(0).map_err(io("truncate"))?;
            file.write_at(&new.encode(), 0).map_err(io("write"))?;
            let runs = WriterRuns::open(new.writer, driver())?;
            let runs = runs.ok_or_else(|| Error::refused(libc::EIO, "the run file became shorter"))?;
            (runs, WriterTail { end: new.len(), sequence: 0 })
        }
    };
    file.set_len(tail.end).map_err(io("truncate"))?;
    file.sync().map_err(io("sync"))?;
    Ok((runs, tail))
}

impl NativeConnector {
    /// Makes the container that of log writer `writer`, which has the run file `file` at `places`;
    /// `locked` is the HDF5 file with the lock of readers.
    pub fn begin_log_writer(&self, (writer, places): (u32, WriterLogs), file: PosixFile, locked: PosixFile) -> Result<()> {
        let main = self.file(0)?;
        let log = match self.access().log_of(&main).as_deref() {
            Some(FileLog::Records(log)) => log.clone(),
            Some(FileLog::Released { .. }) => {
                return Err(Error::refused(libc::EOPNOTSUPP, "its log is one of the released log VOL, to which one writer appends"));
            }
            None => {
                let reason = "it has no log: make datasets with the layout log in a mount with --read-write first";
                return Err(Error::refused(libc::EOPNOTSUPP, reason));
            }
        };
        let file = Arc::new(file);
        let (serial, sequence) = log.base()?;
        let new = WriterHead { writer, id: new_id()?, serial, sequence, identity: Some(log.identity()?) };
        let (runs, tail) = begin(&file, &new, &self.writer_join().joined_writers()?)?;
        let grows = runs.head.identity.is_some();
        log.write_beside(runs)?;
        let state = Mutex::new(State { tail, durable: tail.sequence, failed: false, is_unmarked: false });
        let staged_max = self.write_back().dirty_budget();
        let own = LogWriter { connector: self.this.clone(), log, writer, file, places, grows, _locked: locked, staged_max, state };
        // Nothing else sets it.
        let _ = self.log_writer.set(Restricted::to(own));
        Ok(())
    }

    /// The dataset `id` is opened anew: it has another extent.
    fn forget_extent(&self, id: ObjectId) {
        self.log_writer_state.fetch_add(1, Ordering::AcqRel);
        self.datasets.forget(id);
    }
}

impl LogWriter {
    fn refused<T>(what: &str) -> Result<T> {
        Err(refusal(what, WHY))
    }

    fn connector(&self) -> Result<Arc<NativeConnector>> {
        self.connector.upgrade().ok_or_else(|| Error::refused(libc::ESTALE, "the file is closed"))
    }

    /// The dataset `id`. Errors: `EPERM`, it is not in the log of the file.
    fn dataset(&self, connector: &NativeConnector, id: ObjectId) -> Result<Arc<Dataset>> {
        let d = connector.access().dataset(id)?.dataset.clone();
        if id.file != 0 || d.layout().logged().is_none() {
            return Self::refused("cannot write the dataset, which is not in the log");
        }
        Ok(d)
    }

    /// Appends a run. What it has is staged again if that fails.
    fn append(&self, state: &mut State, bytes: &[u8]) -> Result<()> {
        if let Err(e) = self.file.write_at(bytes, state.tail.end) {
            // A part of it may be there.
            let _ = self.file.set_len(state.tail.end);
            return Err(io("write")(e));
        }
        let end = state.tail.end.saturating_add(bytes.len() as u64);
        state.tail = WriterTail { end, sequence: state.tail.sequence.saturating_add(1) };
        Ok(())
    }

    /// Writes what is staged to the run file. `commit`: all of it, so that it counts.
    fn flush(&self, state: &mut State, commit: bool) -> Result<()> {
        while let Some(run) = self.log.next_run(commit)? {
            let continued = !commit || self.log.has_more();
            let bytes = run.encode_beside(state.tail.sequence, state.durable, continued);
            let at = state.tail.end;
            if let Err(e) = self.append(state, &bytes) {
                self.log.restore(run);
                return Err(e);
            }
            self.log.placed_beside(run, (self.writer, at), continued)?;
        }
        Ok(())
    }

    fn is_usable(state: &State) -> Result<()> {
        match state.failed {
            true => {
                Err(Error::refused(libc::EIO, "an earlier sync of the run file failed: what was written since the one before may be lost"))
            }
            false => Ok(()),
        }
    }

    /// Makes `change`, or nothing of it if it fails. It may change the extent of the dataset `id`.
    fn atomically(&self, id: ObjectId, change: impl FnOnce() -> Result<()>) -> Result<()> {
        self.log.begin();
        let done = change();
        self.log.end(done.is_ok());
        if done.is_err() {
            self.connector()?.forget_extent(id);
        }
        done
    }

    /// Gives the dataset `d` `rows` in its first dimension.
    fn set_rows(&self, connector: &NativeConnector, d: &Dataset, rows: u64) -> Result<()> {
        let (Some(logged), Some(now)) = (d.layout().logged(), d.space.dims.first()) else { return Ok(()) };
        if rows < *now {
            return Self::refused("cannot make the dataset smaller");
        }
        if !self.grows {
            let reason =
                "cannot make the dataset larger: an earlier version of h5dir began the run file; a mount with --read-write joins it";
            return Err(Error::refused(libc::EPERM, reason));
        }
        let now = RunDataset { id: logged.id(), element_size: d.element_size, dims: d.space.dims.clone() };
        self.log.grow_beside(now, rows);
        connector.forget_extent(d.id);
        Ok(())
    }
}

impl Permitted for LogWriter {
    fn why(&self) -> &'static str {
        WHY
    }

    fn write_as(&self, id: ObjectId, form: Form, offset: u64, bytes: &[u8]) -> Result<()> {
        let mut state = self.state.lock();
        Self::is_usable(&state)?;
        let connector = self.connector()?;
        let d = self.dataset(&connector, id)?;
        if form != Form::Main {
            return Self::refused("cannot write this form of the dataset");
        }
        let end = offset.checked_add(bytes.len() as u64).ok_or_else(|| Error::refused(libc::EFBIG, "beyond 2^64 bytes"))?;
        // Without room in the run file, nothing more is staged.
        if self.log.staged_bytes() > self.staged_max {
            self.flush(&mut state, false)?;
        }
        let env = connector.environment();
        if end <= d.bytes.size {
            self.log.begin();
            let done = d.layout().overwrite(&d.bytes, &env, offset, bytes);
            self.log.end(done.is_ok());
            return done.map(drop);
        }
        self.atomically(id, || {
            if let Some(rows) = rows_of(&d, end)? {
                self.set_rows(&connector, &d, rows)?;
            }
            let d = connector.access().dataset(id)?.dataset.clone();
            d.layout().overwrite(&d.bytes, &env, offset, bytes).map(drop)
        })
    }

    fn set_size_as(&self, id: ObjectId, _form: Form, size: u64) -> Result<()> {
        let state = self.state.lock();
        Self::is_usable(&state)?;
        let connector = self.connector()?;
        let d = connector.access().dataset(id)?.dataset.clone();
        if size == d.bytes.size {
            return Ok(());
        }
        let d = self.dataset(&connector, id)?;
        match rows_of(&d, size)? {
            Some(rows) => self.atomically(id, || self.set_rows(&connector, &d, rows)),
            None => Ok(()),
        }
    }

    fn set_extent(&self, id: ObjectId, dims: &[u64]) -> Result<()> {
        let state = self.state.lock();
        Self::is_usable(&state)?;
        let connector = self.connector()?;
        let d = connector.access().dataset(id)?.dataset.clone();
        if d.space.dims == dims {
            return Ok(());
        }
        let d = self.dataset(&connector, id)?;
        if !check_extent(&d.space.shape(), d.element_size, d.layout().resizes(), dims)? {
            return Ok(());
        }
        if dims.iter().zip(&d.space.dims).any(|(next, now)| next < now) {
            return Self::refused("cannot make the dataset smaller");
        }
        if dims.get(1..) != d.space.dims.get(1..) {
            return Self::refused("cannot make another dimension of the dataset larger than the first");
        }
        let rows = dims.first().copied().unwrap_or(0);
        self.atomically(id, || self.set_rows(&connector, &d, rows))
    }

    /// The object header is in the HDF5 file: the mount shows the time until it ends.
    fn set_mtime(&self, _id: ObjectId, _seconds: u32) -> Result<bool> {
        Ok(false)
    }

    fn set_atime(&self, _id: ObjectId, _seconds: u32) -> Result<bool> {
        Ok(false)
    }

    fn commit(&self) -> Result<()> {
        let mut state = self.state.lock();
        Self::is_usable(&state)?;
        if self.log.is_uncommitted() {
            self.flush(&mut state, true)?;
            self.file.sync().map_err(|e| {
                state.failed = true;
                io("sync")(e)
            })?;
            state.durable = state.tail.sequence;
            state.is_unmarked = true;
        }
        // What is durable under another name is not found.
        self.places.check_names(self.writer, &self.file).map_err(io("find"))
    }

    /// Commits. An empty run says that all others are durable, so that damage is noticed in the
    /// last one, too; nothing depends on it.
    fn close(&self) -> Result<()> {
        self.commit()?;
        let mut state = self.state.lock();
        if std::mem::take(&mut state.is_unmarked) {
            let bytes = WriterRuns::end(state.tail.sequence, state.durable);
            if let Err(e) = self.append(&mut state, &bytes) {
                tracing::debug!("the run file has no last run: {e}");
            }
        }
        Ok(())
    }
}
