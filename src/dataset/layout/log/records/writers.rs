//! Run files of several writers, beside the HDF5 file: which of their runs count, and appending to
//! one of them.

use super::beside::{Beside, BesideKept};
use super::dataset::{FIRST_WRITER, WriterRuns};
use super::log::RecordLog;
use super::run_records::{RUN_BYTES_MAX, whole_run};
use super::runs::Run;
use crate::base::{Address, Error, Result};
use crate::file::FileDriver;
use crate::format::log::run::{RUN_PROBE_BYTES, RunDataset, RunHead, next_start, probe};
use crate::format::log::writer::{HEAD_BYTES_MAX, WriterHead};
use std::sync::Arc;

const NAME: &str = "run file of a log writer";
/// Bytes that are searched for runs at once.
const WINDOW_BYTES: usize = 1 << 20;
/// Bytes of runs that a search reads, for each byte that is searched.
const SEARCH_FACTOR: u64 = 4;

fn corrupt(detail: &'static str) -> Error {
    Error::corrupt(NAME, Address::UNDEF, detail)
}

/// Where the next run of a run file goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct WriterTail {
    /// Its first byte.
    pub(crate) end: u64,
    /// Its number.
    pub(crate) sequence: u64,
}

impl WriterRuns {
    /// Number of `writer` among those of log datasets.
    pub(super) fn log_of(writer: u32) -> u32 {
        FIRST_WRITER.saturating_add(writer)
    }

    /// The runs in `file`; `None`: its writer was stopped before it had a head.
    pub(crate) fn open(writer: u32, file: Arc<dyn FileDriver>) -> Result<Option<WriterRuns>> {
        let len = file.status().map_err(|e| Error::io("stat", Address(0), &e))?.len;
        let mut start = vec![0; usize::try_from(len).unwrap_or(HEAD_BYTES_MAX).min(HEAD_BYTES_MAX)];
        let read = file.read_at(&mut start, 0).map_err(|e| Error::io("read", Address(0), &e))?;
        let Some(head) = WriterHead::decode(start.get(..read).unwrap_or_default())? else { return Ok(None) };
        if head.writer != writer {
            return Err(corrupt("it has the name of another writer's"));
        }
        Ok(Some(WriterRuns { file, len, head }))
    }

    fn run_at(&self, at: u64, sequence: Option<u64>) -> Result<Option<(RunHead, Vec<u8>)>> {
        whole_run(self.len.saturating_sub(at), sequence, &|buf| self.read(at, buf))
    }

    /// Calls `f` with the runs that count, and the first byte of each. Returns where the next one
    /// goes: what is there belongs to a commit that was not acknowledged. Errors: what is there is
    /// damaged, and was durable.
    pub(crate) fn each_run(&self, f: &mut dyn FnMut(&RunHead, &[u8], u64) -> Result<()>) -> Result<WriterTail> {
        let mut tail = WriterTail { end: self.head.len(), sequence: 0 };
        let (mut at, mut sequence, mut pending) = (tail.end, 0u64, Vec::new());
        while let Some((head, run)) = self.run_at(at, Some(sequence))? {
            let start = at;
            at = at.saturating_add(head.bytes);
            sequence = sequence.saturating_add(1);
            if head.continued {
                pending.push(start);
                continue;
            }
            for place in pending.drain(..) {
                // Read again: they may be more than fit into memory.
                let (head, run) = self.run_at(place, None)?.ok_or_else(|| corrupt("a run that changed"))?;
                f(&head, &run, place)?;
            }
            f(&head, &run, start)?;
            tail = WriterTail { end: at, sequence };
        }
        self.check_rest(tail)?;
        Ok(tail)
    }

    /// Errors: after `tail` is a run that was written when the one at `tail` was durable.
    fn check_rest(&self, tail: WriterTail) -> Result<()> {
        let (mut at, mut window, mut left) = (tail.end, Vec::new(), self.len.saturating_sub(tail.end).saturating_mul(SEARCH_FACTOR));
        while at < self.len {
            window.resize(usize::try_from(self.len.saturating_sub(at)).unwrap_or(WINDOW_BYTES).min(WINDOW_BYTES), 0);
            self.read(at, &mut window)?;
            let mut from = 0;
            while let Some(start) = next_start(&window, from) {
                let place = at.saturating_add(start as u64);
                from = start.saturating_add(1);
                let most = self.len.saturating_sub(place).min(RUN_BYTES_MAX);
                let Some((_, bytes)) = window.get(start..).and_then(probe).filter(|(_, bytes)| *bytes <= most) else { continue };
                // In a hostile file runs begin everywhere.
                let Some(rest) = left.checked_sub(bytes) else { return Ok(()) };
                left = rest;
                if self.run_at(place, None)?.is_some_and(|(head, _)| head.serial > tail.sequence) {
                    return Err(corrupt("a run that was durable is damaged"));
                }
            }
            if window.len() < WINDOW_BYTES {
                break;
            }
            at = at.saturating_add((WINDOW_BYTES - RUN_PROBE_BYTES) as u64);
        }
        Ok(())
    }
}

impl WriterRuns {
    /// Run number `sequence` of a run file, which has no records: `durable` runs are durable.
    pub(crate) fn end(sequence: u64, durable: u64) -> Vec<u8> {
        RunHead { sequence, serial: durable, bytes: 0, records: 0, continued: false, datasets: Vec::new() }.encode(&[])
    }
}

impl RecordLog {
    /// The run files beside the file, as they were at the first call that succeeded.
    pub(crate) fn beside(&self) -> Result<Arc<Beside>> {
        let mut kept = self.beside.lock();
        if let Some(read) = &kept.read {
            return Ok(read.clone());
        }
        kept.has_failed = true;
        let read = Arc::new(Beside::read((self.writers)()?)?);
        *kept = BesideKept { read: Some(read.clone()), has_failed: false };
        Ok(read)
    }

    /// The first dimension that the dataset `id` has at least, for what writers beside the file
    /// wrote. `None` if their run files cannot be read: then no element of the log can.
    pub(crate) fn rows(&self, id: u64) -> Option<u64> {
        let has_failed = self.beside.lock().has_failed;
        let beside = if has_failed { None } else { self.beside().ok().and_then(|beside| beside.rows(id)) };
        let own = self.state.lock().grown.get(&id).and_then(|d| d.dims.first().copied());
        beside.max(own)
    }

    /// Serial number of the state of the file, and number of its next run.
    pub(crate) fn base(&self) -> Result<(u64, u64)> {
        let opened = self.opened()?;
        Ok((opened.state.serial, opened.next_sequence))
    }

    /// Errors: `beside` does not belong to the file in its state.
    pub(crate) fn check_beside(&self, beside: &Beside) -> Result<()> {
        let opened = self.opened()?;
        beside.check_base(&opened.state, opened.next_sequence, opened.group.identity)
    }

    /// Identity of the log; 0: it has none.
    pub(crate) fn identity(&self) -> Result<u64> {
        Ok(self.opened()?.group.identity)
    }

    /// What is staged goes to `runs`, beside the file: [`RecordLog::placed_beside`].
    pub(crate) fn write_beside(&self, runs: WriterRuns) -> Result<()> {
        self.opened()?;
        let mut inner = self.state.lock();
        inner.is_beside = true;
        inner.writers.insert(runs.log(), runs);
        Ok(())
    }

    /// Enters `run`, which was written to `offset` of the run file of `writer`.
    pub(crate) fn placed_beside(&self, run: Run, (writer, offset): (u32, u64), continued: bool) -> Result<()> {
        let mut inner = self.state.lock();
        let inner = &mut *inner;
        let (len, shift) = (run.len(), run.head_len());
        let log = WriterRuns::log_of(writer);
        let end = offset.saturating_add(len);
        inner.writers.get_mut(&log).into_iter().for_each(|runs| runs.len = runs.len.max(end));
        inner.is_continued = continued;
        for made in run.made {
            inner.enter(made, log, offset.saturating_add(shift))?;
        }
        inner.pack();
        Ok(())
    }

    /// The dataset `now` has `rows` in its first dimension from now on. The next run says so.
    pub(crate) fn grow_beside(&self, now: RunDataset, rows: u64) {
        self.state.lock().grow(now, rows);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::memory::MemoryFile;
    use crate::format::Writer;
    use crate::format::log::record::{Head, Selection};

    const HEAD: WriterHead = WriterHead { writer: 1, id: 1, serial: 0, sequence: 0, identity: Some(7) };

    fn run(sequence: u64, continued: bool, records: &[u8], count: u64) -> Vec<u8> {
        run_after(0, sequence, continued, records, count)
    }

    fn run_after(durable: u64, sequence: u64, continued: bool, records: &[u8], count: u64) -> Vec<u8> {
        let datasets = vec![RunDataset { id: 1, element_size: 1, dims: vec![4] }];
        RunHead { sequence, serial: durable, bytes: 0, records: count, continued, datasets }.encode(records)
    }

    fn record(deflated: bool) -> Vec<u8> {
        let mut w = Writer::new();
        let selection = Selection::Subarray { start: vec![1], count: vec![2] };
        Head { dataset: 1, selection, deflated }.write(1, &mut w);
        w.bytes(b"ab");
        w.into_bytes()
    }

    fn open(runs: &[Vec<u8>]) -> WriterRuns {
        let file = MemoryFile::new([HEAD.encode(), runs.concat()].concat());
        WriterRuns::open(1, Arc::new(file)).unwrap().unwrap()
    }

    fn counted(runs: &[Vec<u8>]) -> (Vec<u64>, WriterTail) {
        let mut seen = Vec::new();
        let tail = open(runs).each_run(&mut |head, _, _| {
            seen.push(head.sequence);
            Ok(())
        });
        (seen, tail.unwrap())
    }

    /// Runs count up to the last one that ends a commit; another number, or damage, ends them.
    #[test]
    fn runs_count_to_the_last_commit() {
        let whole = |sequence, continued| run(sequence, continued, &record(false), 1);
        let len = whole(0, false).len() as u64;
        let tail = |runs: u64| WriterTail { end: HEAD.len() + runs * len, sequence: runs };
        assert_eq!(counted(&[]), (vec![], tail(0)));
        assert_eq!(counted(&[whole(0, false), whole(1, true), whole(2, false)]), (vec![0, 1, 2], tail(3)));
        assert_eq!(counted(&[whole(0, false), whole(1, true)]), (vec![0], tail(1)));
        assert_eq!(counted(&[whole(0, false), whole(2, false)]), (vec![0], tail(1)));
        let mut damaged = whole(1, false);
        *damaged.last_mut().unwrap() ^= 1;
        assert_eq!(counted(&[whole(0, false), damaged.clone(), whole(2, false)]), (vec![0], tail(1)));
        for cut in 0..damaged.len() {
            assert_eq!(counted(&[whole(0, false), whole(1, false)[..cut].to_vec()]), (vec![0], tail(1)));
        }
    }

    /// A damaged run was cut off with all that was acknowledged after it.
    #[test]
    fn damage_in_a_run_that_was_durable_is_an_error() {
        let commit = |n: u64| run_after(n, n, false, &record(false), 1);
        let each = |runs: &[Vec<u8>]| open(runs).each_run(&mut |_, _, _| Ok(()));
        let whole = commit(1);
        for at in 0..whole.len() {
            let mut damaged = whole.clone();
            damaged[at] ^= 1;
            assert!(each(&[commit(0), damaged.clone(), commit(2)]).is_err(), "{at}");
            // The last commit may be torn, whatever came of it.
            assert!(each(&[commit(0), damaged]).is_ok(), "{at}");
        }
        let torn = [commit(0), vec![0; whole.len()], run_after(1, 2, false, &record(false), 1)];
        assert_eq!(each(&torn).unwrap().sequence, 1);
        let far = [commit(0), vec![0; 3 * WINDOW_BYTES - 50], commit(2)];
        assert!(each(&far).is_err());
        let hostile = run_after(1, 1, true, &record(false), 1)[..RUN_PROBE_BYTES].repeat(1 << 12);
        assert!(each(&[commit(0), hostile]).is_ok());
    }

    #[test]
    fn a_run_file_of_another_writer_is_refused() {
        let file = |bytes: Vec<u8>| -> Arc<dyn FileDriver> { Arc::new(MemoryFile::new(bytes)) };
        let head = WriterHead { writer: 2, ..HEAD }.encode();
        assert!(WriterRuns::open(1, file(head.clone())).is_err());
        assert!(WriterRuns::open(2, file(head.clone())).unwrap().is_some());
        assert!(WriterRuns::open(2, file(head[..40].to_vec())).unwrap().is_none());
    }
}
