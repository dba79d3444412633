//! An open container: its state, and caches of what never changes.

use super::beside::{Following, Siblings, Trees};
use super::chunk_reader::ChunkReader;
use super::derived::Derived;
use super::external::External;
use super::original_sources::OriginalSources;
use super::peer::Peer;
use super::state::State;
use super::states::States;
use crate::base::locks::Mutex;
use crate::base::{Address, Error, Result};
use crate::connector::stored::Original;
use crate::dataset::environment::Environment;
use crate::iod::Container;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak, mpsc};

/// Least memory for changes that are not encoded, bytes.
const DIRTY_MIN_BYTES: u64 = 16 << 20;

/// A thread of a kind of which few run at once. It counts until this is dropped, also by a panic.
pub(super) struct Running(Arc<AtomicUsize>);

impl Running {
    /// One more of those that `count` counts, if fewer than `most` run.
    pub(super) fn one_of(count: &Arc<AtomicUsize>, most: usize) -> Option<Running> {
        let more = |n: usize| n.checked_add(1).filter(|n| *n <= most);
        count.fetch_update(Ordering::AcqRel, Ordering::Acquire, more).ok().map(|_| Running(count.clone()))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// See the module's description.
pub struct IodConnector {
    /// The container.
    pub(super) container: Arc<Container>,
    /// What is shown, and what is made next.
    pub(super) states: States,
    /// It was opened for writing.
    pub(super) writable: bool,
    /// Decoded chunks and blocks of cells; memory, temporary files and threads for decoding.
    pub(super) env: Arc<Environment>,
    /// Held by the one thread that stores chunks ahead of a commit. Before the next state; a thread
    /// that has that one only tries it.
    pub(super) storing: parking_lot::Mutex<()>,
    /// Threads that were started for that.
    pub(super) storers: Arc<AtomicUsize>,
    /// Reads chunks.
    pub(super) chunks: Arc<ChunkReader>,
    /// What was derived from states.
    pub(super) derived: Derived,
    /// Other versions of the container.
    pub(super) siblings: Siblings<IodConnector>,
    /// Other files that links lead to; unset: they are not opened.
    pub(super) external: OnceLock<Arc<External>>,
    /// Files that chunks may refer to; unset: none.
    pub(super) original_sources: OnceLock<Arc<dyn OriginalSources>>,
    /// Those that chunks of this session refer to, with their numbers.
    pub(super) originals: Mutex<Vec<(Original, u64)>>,
    /// How versions of other writers are followed; unset: they are not, or it is written.
    pub(super) following: OnceLock<Following>,
    /// Bytes of chunks in memory above which a thread stores them. Writers wait above twice that.
    pub(super) dirty_limit: usize,
    /// The transaction whose peer it is.
    pub(super) joined: Option<Peer>,
    /// Trees of transactions.
    pub(super) trees: Trees<IodConnector>,
    /// Ends the thread that renews the pin when it is dropped.
    pub(super) renewing: Mutex<Option<mpsc::Sender<()>>>,
    this: Weak<IodConnector>,
}

impl IodConnector {
    /// Shows `state`, with the caches of `env`.
    pub(super) fn new(container: Arc<Container>, state: State, writable: bool, env: Arc<Environment>) -> Arc<IodConnector> {
        Self::of_peer(container, state, writable, env, None)
    }

    /// Shows `state`, another version of the container, with the same caches.
    pub(super) fn sibling(&self, state: State) -> Arc<IodConnector> {
        Self::with_chunks(self.chunks.clone(), (state, None), false)
    }

    /// A peer of a transaction that shows `state`, with the same caches and other files.
    pub(super) fn peer_beside(&self, container: Arc<Container>, state: State, joined: Peer) -> Arc<IodConnector> {
        let peer = Self::with_chunks(self.chunks.of(container), (state, Some(joined)), true);
        if let Some(external) = self.external.get() {
            let _ = peer.external.set(external.clone());
        }
        if let Some(sources) = self.original_sources.get() {
            peer.set_original_sources(sources.clone());
        }
        peer
    }

    /// [`IodConnector::new`], as a peer of a transaction.
    pub(super) fn of_peer(
        container: Arc<Container>,
        state: State,
        writable: bool,
        env: Arc<Environment>,
        joined: Option<Peer>,
    ) -> Arc<IodConnector> {
        Self::with_chunks(ChunkReader::new(container, env), (state, joined), writable)
    }

    fn with_chunks(chunks: Arc<ChunkReader>, (state, joined): (State, Option<Peer>), writable: bool) -> Arc<IodConnector> {
        let (container, env) = (chunks.container.clone(), chunks.env.clone());
        let dirty_limit = usize::try_from((env.cache.budget() / 8).max(DIRTY_MIN_BYTES)).unwrap_or(usize::MAX);
        Arc::new_cyclic(|this| IodConnector {
            container,
            states: States::new(state),
            writable,
            env,
            storing: parking_lot::Mutex::new(()),
            storers: Arc::default(),
            chunks,
            derived: Derived::default(),
            siblings: Siblings::new(),
            external: OnceLock::new(),
            original_sources: OnceLock::new(),
            originals: Mutex::new(Vec::new()),
            following: OnceLock::new(),
            dirty_limit,
            joined,
            trees: Trees::default(),
            renewing: Mutex::new(None),
            this: this.clone(),
        })
    }

    /// An owner that does not keep it open.
    pub(super) fn weak(&self) -> Weak<IodConnector> {
        self.this.clone()
    }

    /// A shared owner of it.
    pub(super) fn shared(&self) -> Result<Arc<IodConnector>> {
        self.this.upgrade().ok_or_else(|| Error::corrupt("object", Address::UNDEF, "the container is closed"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_threads_of_a_kind_run_also_after_a_panic() {
        let count = Arc::new(AtomicUsize::new(0));
        let two: Vec<_> = (0..2).map(|_| Running::one_of(&count, 2).unwrap()).collect();
        assert!(Running::one_of(&count, 2).is_none());
        drop(two);
        let running = Running::one_of(&count, 1).unwrap();
        let thread = std::thread::spawn(move || {
            let _running = running;
            panic!("as the test wants");
        });
        assert!(thread.join().is_err() && Running::one_of(&count, 1).is_some());
    }
}
