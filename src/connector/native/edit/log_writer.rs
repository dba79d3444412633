//! One of several writers of a log: elements go to a run file beside the HDF5 file, which stays as
//! it is. A later mount for writing moves them into the log (`log_join`).

use super::super::NativeConnector;
use super::super::log_names::FileLog;
use super::restricted::{Permitted, Restricted, refusal};
use crate::base::locks::Mutex;
use crate::base::{Address, Error, Result};
use crate::connector::{Connector, Form, ObjectId};
use crate::dataset::layout::{RecordLog, WriterRuns, WriterTail};
use crate::file::posix::PosixFile;
use crate::file::writer_log::beginning;
use crate::file::{FileDriver, WriteDriver};
use crate::format::log::writer::{HEAD_BYTES, WriterHead};
use std::sync::{Arc, Weak};

/// Why other changes are refused.
const WHY: &str = "the file is mounted with --log-writer, which overwrites elements of datasets in its log and changes nothing else";

/// Changes by a log writer.
struct LogWriter {
    connector: Weak<NativeConnector>,
    log: Arc<RecordLog>,
    /// Number of the writer.
    writer: u32,
    file: Arc<PosixFile>,
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
}

fn io(operation: &'static str) -> impl Fn(std::io::Error) -> Error {
    move |e| Error::io(operation, Address(0), &e)
}

/// A new identifier of a run file, below 2^63.
fn new_id() -> Result<u64> {
    let random = getrandom::u64().map_err(|e| Error::refused(libc::EIO, format!("no random numbers: {e}")))?;
    Ok(random >> 1)
}

/// The runs in the run file `file` of `writer`, made if it has no head, and where the next one
/// goes. Bytes of a commit that was not acknowledged are cut off.
fn begin(writer: u32, file: &Arc<PosixFile>, (serial, sequence): (u64, u64), joined: &[u64]) -> Result<(WriterRuns, WriterTail)> {
    let driver = || -> Arc<dyn FileDriver> { file.clone() };
    let there = beginning(file).map_err(io("read"))?;
    if !WriterHead::begins(&there) && (there.len() > HEAD_BYTES || there.iter().any(|byte| *byte != 0)) {
        return Err(Error::refused(
            libc::EEXIST,
            "beside it is another file with the name of the run file: move it, or give another number",
        ));
    }
    if !WriterHead::begins(&there) {
        // A crash left it before it had a head.
        file.set_len(0).map_err(io("truncate"))?;
    }
    let mut found = WriterRuns::open(writer, driver())?;
    if found.as_ref().is_none_or(|(head, _)| joined.contains(&head.id)) {
        // What was joined is in the HDF5 file.
        file.set_len(0).map_err(io("truncate"))?;
        let head = WriterHead { writer, id: new_id()?, serial, sequence };
        file.write_at(&head.encode(), 0).map_err(io("write"))?;
        found = WriterRuns::open(writer, driver())?;
    }
    let (_, runs) = found.ok_or_else(|| Error::refused(libc::EIO, "the run file became shorter"))?;
    let tail = runs.each_run(&mut |_, _, _| Ok(()))?;
    file.set_len(tail.end.max(HEAD_BYTES as u64)).map_err(io("truncate"))?;
    file.sync().map_err(io("sync"))?;
    Ok((runs, tail))
}

impl NativeConnector {
    /// Makes the container that of log writer `writer`, which has the run file `file`; `locked` is
    /// the HDF5 file with the lock of readers.
    pub fn begin_log_writer(&self, writer: u32, file: PosixFile, locked: PosixFile) -> Result<()> {
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
        let (runs, tail) = begin(writer, &file, log.base()?, &self.writer_join().joined_writers()?)?;
        log.write_beside(runs)?;
        let state = Mutex::new(State { tail, durable: tail.sequence, failed: false });
        let staged_max = self.write_back().dirty_budget();
        let own = LogWriter { connector: self.this.clone(), log, writer, file, _locked: locked, staged_max, state };
        // Nothing else sets it.
        let _ = self.log_writer.set(Restricted::to(own));
        Ok(())
    }
}

impl LogWriter {
    fn refused<T>(what: &str) -> Result<T> {
        Err(refusal(what, WHY))
    }

    /// Writes what is staged to the run file. `commit`: all of it, so that it counts.
    fn flush(&self, state: &mut State, commit: bool) -> Result<()> {
        while let Some(run) = self.log.next_run(commit)? {
            let continued = !commit || self.log.has_more();
            let bytes = run.encode_beside(state.tail.sequence, state.durable, continued);
            if let Err(e) = self.file.write_at(&bytes, state.tail.end) {
                self.log.restore(run);
                // A part of it may be there.
                let _ = self.file.set_len(state.tail.end);
                return Err(io("write")(e));
            }
            let at = state.tail.end;
            state.tail = WriterTail { end: at.saturating_add(bytes.len() as u64), sequence: state.tail.sequence.saturating_add(1) };
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
}

impl Permitted for LogWriter {
    fn why(&self) -> &'static str {
        WHY
    }

    fn write_as(&self, id: ObjectId, form: Form, offset: u64, bytes: &[u8]) -> Result<()> {
        let mut state = self.state.lock();
        Self::is_usable(&state)?;
        let connector = self.connector.upgrade().ok_or_else(|| Error::refused(libc::ESTALE, "the file is closed"))?;
        let open = connector.access().dataset(id)?;
        let d = &open.dataset;
        if id.file != 0 || d.layout().logged().is_none() || form != Form::Main {
            return Self::refused("cannot write the dataset, which is not in the log");
        }
        let end = offset.saturating_add(bytes.len() as u64);
        if end > d.bytes.size {
            return Self::refused("cannot make the dataset larger");
        }
        self.log.begin();
        let done = d.layout().overwrite(&d.bytes, &connector.environment(), offset, bytes);
        self.log.end(done.is_ok());
        done?;
        if self.log.staged_bytes() > self.staged_max { self.flush(&mut state, false) } else { Ok(()) }
    }

    fn set_size_as(&self, id: ObjectId, _form: Form, size: u64) -> Result<()> {
        let connector = self.connector.upgrade().ok_or_else(|| Error::refused(libc::ESTALE, "the file is closed"))?;
        let now = connector.access().dataset(id)?.dataset.bytes.size;
        if size == now { Ok(()) } else { Self::refused("cannot change the size of the dataset") }
    }

    fn set_extent(&self, id: ObjectId, dims: &[u64]) -> Result<()> {
        let connector = self.connector.upgrade().ok_or_else(|| Error::refused(libc::ESTALE, "the file is closed"))?;
        let now = Connector::dataset(&*connector, id)?.shape;
        if now.dims() == Some(dims) { Ok(()) } else { Self::refused("cannot change the shape of the dataset") }
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
        if !self.log.is_uncommitted() {
            return Ok(());
        }
        self.flush(&mut state, true)?;
        self.file.sync().map_err(|e| {
            state.failed = true;
            io("sync")(e)
        })?;
        state.durable = state.tail.sequence;
        Ok(())
    }

    fn close(&self) -> Result<()> {
        self.commit()
    }
}
