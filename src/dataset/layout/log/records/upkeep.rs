//! What compaction and reports need to know of a log, and what compaction does to it.

use super::dataset::{Dataset, LogDataset};
use super::log::RecordLog;
use super::shape::Shape;
use super::state::{Inner, Member, Undo};
use crate::base::Result;
use crate::dataset::layout::DatasetBytes;
use crate::dataset::layout::traits::{Measure, Seek};
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

/// Bytes and records of a log.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct LogTotals {
    /// Log datasets.
    pub(crate) logs: u64,
    /// Their bytes.
    pub(crate) bytes: u64,
    /// Bytes of the last one that no run has.
    pub(crate) unused: u64,
    /// Index entries.
    pub(crate) indexed: u64,
    /// Records that the index lacks.
    pub(crate) unindexed: u64,
    /// Bytes that are staged.
    pub(crate) staged: u64,
}

impl RecordLog {
    /// Calls `f` with the dataset, which is loaded for this if it is not in memory.
    pub(super) fn with_dataset<T>(&self, member: &Member, f: impl FnOnce(&Dataset) -> Result<T>) -> Result<T> {
        let opened = self.opened()?;
        if let Some(dataset) = self.state.lock().datasets.get(&member.id) {
            return f(dataset);
        }
        f(&self.load(&opened, member.id, member.shape.clone())?)
    }

    /// What a dataset has in the log.
    pub(super) fn measure(&self, member: &Member) -> Result<Measure> {
        self.with_dataset(member, Dataset::measure)
    }

    /// The next elements of a dataset from `at` on that are in log datasets up to number `last`, at
    /// most `most`.
    pub(super) fn next_in(&self, member: &Member, at: u64, last: u32, most: u64) -> Result<Option<Range<u64>>> {
        self.with_dataset(member, |dataset| dataset.next_in(at, last, most))
    }

    /// Bytes and records of the log.
    pub(crate) fn totals(&self) -> Result<LogTotals> {
        self.opened()?;
        let inner = self.state.lock();
        let last = inner.logs.iter().next_back();
        let used = |number: u32| if number == inner.tail.0 { inner.tail.1 } else { 0 };
        Ok(LogTotals {
            unused: last.map_or(0, |(number, log)| log.len.saturating_sub(used(*number))),
            logs: inner.logs.len() as u64,
            bytes: inner.logs.values().map(|log| log.len).fold(0, u64::saturating_add),
            indexed: inner.state.entries,
            unindexed: if self.is_released() { 0 } else { inner.unindexed },
            staged: inner.staged_bytes,
        })
    }

    /// Bytes of the log that were live when they were last counted; 0: they were not.
    pub(crate) fn live(&self) -> u64 {
        self.state.lock().state.live
    }

    /// Notes how many bytes of the log are live. The next state that is stored has it.
    pub(crate) fn note_live(&self, bytes: u64) {
        self.state.lock().state.live = bytes;
    }

    /// Bytes that were appended since the log was opened or last compacted.
    pub(crate) fn appended(&self) -> u64 {
        self.state.lock().appended
    }

    /// After how many of them a look for dead bytes is worth while, if that is known.
    pub(crate) fn look_at(&self) -> Option<u64> {
        self.state.lock().look_at
    }

    /// Begins to count appended bytes anew. `look_at`: see [`RecordLog::look_at`].
    pub(crate) fn count_appended(&self, look_at: Option<u64>) {
        let mut inner = self.state.lock();
        (inner.appended, inner.look_at) = (0, look_at);
    }

    /// Log datasets from the first one up to number `last`, before any that `used` has or a dataset
    /// in memory needs. Later ones stay: the records alone make the index only if erased ranges
    /// follow the records that they are of.
    pub(crate) fn unused(&self, last: u32, used: &BTreeSet<u32>) -> Result<Vec<(u32, LogDataset)>> {
        let inner = self.state.lock();
        let mut used = used.clone();
        for dataset in inner.datasets.values() {
            used.append(&mut dataset.measure()?.logs);
        }
        let unused = inner.logs.range(..=last).take_while(|(number, _)| !used.contains(number));
        Ok(unused.map(|(number, log)| (*number, *log)).collect())
    }

    /// Forgets log datasets that are freed.
    pub(crate) fn remove_logs(&self, logs: &[(u32, LogDataset)]) {
        let mut inner = self.state.lock();
        for (number, _) in logs {
            inner.logs.remove(number);
        }
        if let Some(undo) = &mut inner.undo {
            undo.push(Undo::Changed(logs.to_vec()));
        }
    }

    /// The log dataset `number` has only `len` bytes from now on.
    pub(crate) fn trim(&self, number: u32, len: u64) {
        let mut inner = self.state.lock();
        let Some(log) = inner.logs.get_mut(&number) else { return };
        let before = *log;
        log.len = len;
        if let Some(undo) = &mut inner.undo {
            undo.push(Undo::Changed(vec![(number, before)]));
        }
    }

    /// Opens the log again without its index: from the records alone. Nothing is staged.
    pub(crate) fn forget_index(&self) -> Result<()> {
        let mut kept = self.opened.lock();
        *kept = None;
        *self.state.lock() = Inner { ignores_index: true, ..Inner::default() };
        drop(kept);
        let opened = self.opened()?;
        for id in opened.changed() {
            self.load_changed(&opened, id)?;
        }
        self.state.lock().is_indexed = false;
        Ok(())
    }

    /// IDs of datasets that are not in memory, of which runs that the index lacks erased elements
    /// without naming their shape: deleted datasets, and any dataset in runs of earlier versions.
    /// Their index entries can be written anew only after [`RecordLog::use_unshaped`].
    pub(crate) fn unshaped(&self) -> Vec<u64> {
        let Some(opened) = self.opened.lock().clone() else { return Vec::new() };
        let inner = self.state.lock();
        opened.changed().filter(|id| !opened.shapes.contains_key(id) && !inner.datasets.contains_key(id)).collect()
    }

    /// Loads the `layouts`, which are those of all datasets of [`RecordLog::unshaped`] that the
    /// file has. The others are deleted, and have no entries.
    pub(crate) fn use_unshaped(&self, layouts: &[Arc<DatasetBytes>]) -> Result<()> {
        for data in layouts {
            data.layout.seek_stored(data, 0, Seek::Data)?;
        }
        for id in self.unshaped() {
            self.state.lock().add(id, Dataset::new(Shape::unbounded(&[], 1), self.pages.clone()));
        }
        Ok(())
    }

    /// Loads a dataset that runs changed which the index lacks, unless it is in memory.
    pub(super) fn load_changed(&self, opened: &super::load::Opened, id: u64) -> Result<()> {
        let Some(d) = opened.shapes.get(&id) else { return Ok(()) };
        if !self.state.lock().datasets.contains_key(&id) {
            let loaded = self.load(opened, id, Shape::unbounded(&d.dims, d.element_size))?;
            self.state.lock().add(id, loaded);
        }
        Ok(())
    }
}
