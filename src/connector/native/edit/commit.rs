//! Commits: all dirty chunks are stored, then the transaction becomes durable.

use super::super::NativeConnector;
use super::{Change, Exclusive, is_full};
use crate::base::{Result, metrics, waiting};
use crate::structures::global_heap::edit::FreeSpace;
use std::sync::atomic::Ordering;
use std::time::Instant;

impl NativeConnector {
    /// Stores all dirty chunks, then commits.
    pub(super) fn commit_all(&self, close: bool) -> Result<()> {
        let begun = Instant::now();
        let done = self.commit_changes(close);
        metrics::COMMITS.record(if done.is_ok() { "ok" } else { "error" }, begun);
        done
    }

    fn commit_changes(&self, close: bool) -> Result<()> {
        let editing = self.editing()?;
        waiting::may_wait();
        if close {
            self.stop_flusher();
        }
        // An error occurs again below.
        let _ = self.store_before_commit();
        self.use_unshaped_to_commit()?;
        let change = self.change(&[])?;
        change.lead_references(close);
        change.lead_elements(close);
        change.lead_types(close);
        change.order_links(close);
        change.lead_fill_values(close);
        let store = change.store()?;
        let flush = || {
            let state = change.flush_log_to_commit(close && editing.begun.load(Ordering::Acquire))?;
            change.flush_all().map(|()| state)
        };
        let mut logged = flush();
        // With dirty chunks in memory, publishing would leave zeros in their place. Without any,
        // commits removals first, then stores the rest in the freed space.
        if logged.as_ref().is_err_and(is_full) && store.transaction()?.is_relieved() && !self.has_unstored() {
            logged = self.options.neighbours.sync().and_then(|()| store.commit()).and_then(|()| flush());
        }
        let (flushed, state) = match logged {
            Ok(state) => (Ok(()), state),
            Err(e) => (Err(e), None),
        };
        let Change { _exclusive, _writer, .. } = change;
        // Readers continue during the sync.
        drop(_exclusive);
        let begun = editing.begun.load(Ordering::Acquire);
        // Bytes in other files before the structures that refer to them.
        let flushed = flushed.and_then(|()| self.options.neighbours.sync());
        // Later changes are not for SWMR readers.
        let flushed =
            flushed.and_then(|()| if close && store.is_swmr_writer() { store.commit().and_then(|()| store.end_swmr()) } else { Ok(()) });
        let closed = flushed.and_then(|()| if close && begun { editing.first.close(&store) } else { Ok(()) });
        let done = closed.and_then(|()| if close { store.close() } else { store.commit() });
        if let (Ok(()), Some(state), Some(log)) = (&done, state, self.written_log()) {
            log.reached(state);
        }
        if done.is_err() {
            let _readers = Exclusive::take(&editing.lock);
            if store.transaction()?.has_failed() {
                editing.first.failed(&store);
                self.forget_log();
            }
            if close {
                store.transaction()?.abandon();
            }
            self.forget_all();
        }
        done
    }

    /// Drops all decoded entries.
    pub(super) fn forget_all(&self) {
        self.datasets.lock().clear();
        self.attribute_names.lock().clear();
        self.options.environment.forget_decoded();
        self.options.environment.stored.clear();
        if let Some(e) = &self.editing {
            e.new_generation();
            e.objects.forget_all_times();
            *e.heaps.lock() = FreeSpace::default();
        }
        if let Ok(file) = self.file(0) {
            file.store.forget();
        }
    }
}
