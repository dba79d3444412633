//! Commits: all dirty chunks are stored, then the transaction becomes durable.

use super::super::NativeConnector;
use super::connector_parts::Commits;
use super::flush::HeldWriters;
use super::{Change, Editing, is_full};
use crate::base::lock_order::Locked;
use crate::base::{Error, Result, metrics, waiting};
use crate::dataset::layout::LogState;
use crate::structures::global_heap::edit::FreeSpace;
use parking_lot::{Condvar, Mutex, MutexGuard};
use std::sync::atomic::Ordering;
use std::time::Instant;

/// Commits that several callers ask for at once: those that wait for the one under way share the
/// next one.
#[derive(Default)]
pub(super) struct SharedCommits {
    state: Mutex<Counts>,
    /// Signals that a commit ended.
    ended: Condvar,
}

/// Numbers of commits, from 1.
#[derive(Default)]
struct Counts {
    /// The last one that was begun.
    begun: u64,
    /// The last one that ended.
    ended: u64,
    /// The last one that failed.
    failed: Option<(u64, Error)>,
}

impl SharedCommits {
    /// Runs `commit`, or waits for one that another caller begins after this call. Returns its
    /// error.
    fn share(&self, commit: impl FnOnce() -> Result<()>) -> Result<()> {
        let mut state = self.state.lock();
        let wanted = state.begun.saturating_add(1);
        while state.begun > state.ended && state.ended < wanted {
            waiting::may_wait();
            self.ended.wait(&mut state);
        }
        if state.ended >= wanted {
            return state.failed.iter().find(|(number, _)| *number >= wanted).map_or(Ok(()), |(_, e)| Err(e.clone()));
        }
        state.begun = state.begun.saturating_add(1);
        drop(state);
        let mut end = CommitEnd { commits: self, done: Err(Error::refused(libc::EIO, "the commit ended by a panic")) };
        end.done = commit();
        end.done.clone()
    }
}

/// Ends a commit when it is dropped, also by a panic.
struct CommitEnd<'a> {
    commits: &'a SharedCommits,
    done: Result<()>,
}

impl Drop for CommitEnd<'_> {
    fn drop(&mut self) {
        let mut state = self.commits.state.lock();
        state.ended = state.begun;
        if let Err(e) = &self.done {
            state.failed = Some((state.begun, e.clone()));
        }
        self.commits.ended.notify_all();
    }
}

/// What a commit stored in the transaction.
struct Stored<'a> {
    flushed: Result<()>,
    /// The state of the log when the commit is durable.
    state: Option<LogState>,
    _writer: Locked<MutexGuard<'a, ()>>,
}

impl Commits<'_> {
    /// Makes all changes before this call durable.
    pub(super) fn commit_shared(&self) -> Result<()> {
        self.connector.editing()?.commits.share(|| self.commit_all(false))
    }

    /// Stores all dirty chunks, then commits.
    pub(super) fn commit_all(&self, close: bool) -> Result<()> {
        let begun = Instant::now();
        let done = self.commit_changes(close);
        metrics::COMMITS.record(if done.is_ok() { "ok" } else { "error" }, begun);
        done
    }

    fn commit_changes(&self, close: bool) -> Result<()> {
        let editing = self.connector.editing()?;
        waiting::may_wait();
        if close {
            self.connector.write_back().stop_flusher();
        }
        // An error occurs again below.
        let _ = self.connector.write_back().store_before_commit();
        self.connector.file(0)?.store.transaction()?.sync_early();
        self.use_unshaped_to_commit()?;
        // What was written during the sync. Writers wait until the commit has their lock.
        let held = editing.hold_writers();
        let _ = self.connector.write_back().store_rounds();
        let writer = editing.writer();
        let Stored { flushed, state, _writer } = if !close && self.is_all_stored() {
            // Readers are not waited for.
            drop(held);
            Stored { flushed: Ok(()), state: None, _writer: writer }
        } else {
            drop(writer);
            self.store_rest(close, held)?
        };
        let store = self.connector.file(0)?.store.clone();
        let begun = editing.begun.load(Ordering::Acquire);
        // Bytes in other files before the structures that refer to them.
        let flushed = flushed.and_then(|()| self.connector.options.neighbours.sync());
        // Later changes are not for SWMR readers.
        let flushed =
            flushed.and_then(|()| if close && store.is_swmr_writer() { store.commit().and_then(|()| store.end_swmr()) } else { Ok(()) });
        let closed = flushed.and_then(|()| if close && begun { editing.first.close(&store) } else { Ok(()) });
        let done = closed.and_then(|()| if close { store.close() } else { store.commit() });
        if let (Ok(()), Some(state), Some(log)) = (&done, state, self.connector.used_log()) {
            log.reached(state);
        }
        if done.is_err() {
            let _alone = self.connector.access_alone();
            if store.transaction()?.has_failed() {
                editing.first.failed(&store);
                self.connector.forget_log();
            }
            if close {
                store.transaction()?.abandon();
            }
            self.connector.forget_all();
        }
        done
    }

    /// True if all changes are in the transaction. The caller holds the lock of writers.
    fn is_all_stored(&self) -> bool {
        let is_writable = self.connector.file(0).is_ok_and(|file| file.store.is_writable());
        let awaits = |editing: &Editing| editing.objects.all_pending().iter().any(|(_, p)| p.awaits_commit());
        is_writable
            && self.connector.access().written_log().is_none()
            && !self.has_unstored()
            && !self.connector.editing.as_ref().is_some_and(awaits)
    }

    /// Stores what is not in the transaction yet, with the exclusive lock.
    fn store_rest(&self, close: bool, held: HeldWriters<'_>) -> Result<Stored<'_>> {
        let change = self.connector.change(&[])?;
        drop(held);
        change.attributes().lead_references(close);
        change.references().lead_elements(close);
        change.attributes().lead_types(close);
        change.names().order_links(close);
        change.attributes().lead_fill_values(close);
        let store = change.store()?;
        let flush = || {
            let state = change.log().flush_log_to_commit(close && change.editing.begun.load(Ordering::Acquire))?;
            change.dirty_chunks().flush_all().map(|()| state)
        };
        let mut logged = flush();
        // With dirty chunks in memory, publishing would leave zeros in their place. Without any,
        // commits removals first, then stores the rest in the freed space.
        if logged.as_ref().is_err_and(is_full) && store.transaction()?.is_relieved() && !self.has_unstored() {
            logged = self.connector.options.neighbours.sync().and_then(|()| store.commit()).and_then(|()| flush());
        }
        let (flushed, state) = match logged {
            Ok(state) => (Ok(()), state),
            Err(e) => (Err(e), None),
        };
        // Readers continue during the sync.
        let Change { _writer, .. } = change;
        Ok(Stored { flushed, state, _writer })
    }
}

impl NativeConnector {
    /// Drops all decoded entries.
    pub(super) fn forget_all(&self) {
        self.datasets.forget_all();
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;
    use std::sync::mpsc::channel;

    /// Calls `share` `callers` times while a commit is under way; `then` is what the next commits
    /// do. Returns the results and the number of those commits.
    fn while_one_runs(callers: usize, then: fn() -> Result<()>) -> (Vec<Result<()>>, usize) {
        let (commits, count) = (SharedCommits::default(), AtomicUsize::new(0));
        let (begun, is_begun) = channel();
        let (end, ends) = channel::<()>();
        let results = std::thread::scope(|scope| {
            let commits = &commits;
            let first = scope.spawn(move || {
                commits.share(|| {
                    begun.send(()).unwrap();
                    ends.recv().unwrap();
                    Ok(())
                })
            });
            is_begun.recv().unwrap();
            let all: Vec<_> = (0..callers)
                .map(|_| {
                    scope.spawn(|| {
                        commits.share(|| {
                            count.fetch_add(1, Ordering::SeqCst);
                            then()
                        })
                    })
                })
                .collect();
            // A caller that comes after the first commit ended has one of its own.
            std::thread::sleep(std::time::Duration::from_millis(200));
            end.send(()).unwrap();
            first.join().unwrap().unwrap();
            all.into_iter().map(|t| t.join().unwrap_or_else(|_| Err(Error::refused(libc::EINTR, "panicked")))).collect()
        });
        (results, count.into_inner())
    }

    #[test]
    fn callers_that_wait_share_one_commit() {
        let (results, commits) = while_one_runs(8, || Ok(()));
        assert_eq!(results, vec![Ok(()); 8]);
        assert!((1..8).contains(&commits), "{commits} commits");
    }

    #[test]
    fn all_that_share_a_commit_get_its_error() {
        let full = || Err(Error::refused(libc::ENOSPC, "full"));
        let (results, commits) = while_one_runs(8, full);
        assert_eq!(results, vec![full(); 8]);
        assert!((1..8).contains(&commits), "{commits} commits");
    }

    #[test]
    fn a_commit_that_panics_is_an_error_for_all() {
        let (results, _) = while_one_runs(3, || panic!("as the test wants"));
        assert!(results.iter().all(Result::is_err), "{results:?}");
        let later = SharedCommits::default();
        assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| later.share(|| panic!("as the test wants")))).is_err());
        assert_eq!(later.share(|| Ok(())), Ok(()));
    }
}
