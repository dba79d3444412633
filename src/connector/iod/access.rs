//! An open container: its state, and caches of what never changes.

use super::beside::{Following, Siblings, Trees};
use super::chunk_reader::ChunkReader;
use super::commits::Commits;
use super::derived::Derived;
use super::external::External;
use super::long_values::LongValues;
use super::object_access::ObjectAccess;
use super::original_sources::OriginalSources;
use super::peer::Peer;
use super::pins::Pins;
use super::state::State;
use super::states::States;
use crate::base::locks::Mutex;
use crate::base::{Address, Error, Result};
use crate::connector::stored::Original;
use crate::dataset::environment::Environment;
use crate::iod::Container;
use std::sync::{Arc, OnceLock, Weak};

/// See the module's description.
pub struct IodConnector {
    /// The container.
    pub(super) container: Arc<Container>,
    /// What is shown, and what is made next.
    pub(super) states: Arc<States>,
    /// It was opened for writing.
    pub(super) writable: bool,
    /// Decoded chunks and blocks of cells; memory, temporary files and threads for decoding.
    pub(super) env: Arc<Environment>,
    /// Stores chunks and other long values.
    pub(super) values: Arc<LongValues>,
    /// Reads chunks.
    pub(super) chunks: Arc<ChunkReader>,
    /// What was derived from states.
    pub(super) derived: Arc<Derived>,
    /// Reads and changes objects in a state.
    pub(super) objects: Arc<ObjectAccess>,
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
    /// The transaction whose peer it is.
    pub(super) joined: Option<Arc<Peer>>,
    /// Makes versions of changes.
    pub(super) commits: Commits,
    /// Trees of transactions.
    pub(super) trees: Trees<IodConnector>,
    /// Pins what is shown.
    pub(super) pins: Arc<Pins>,
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
        let (states, derived) = (Arc::new(States::new(state)), Arc::<Derived>::default());
        let pins = Pins::new(container.clone(), states.clone());
        let values = LongValues::new(states.clone(), chunks.clone(), derived.clone());
        let objects = ObjectAccess::new(chunks.clone(), values.clone(), derived.clone());
        let joined = joined.map(Arc::new);
        let commits = Commits::new(states.clone(), objects.clone(), pins.clone(), joined.clone());
        Arc::new_cyclic(|this| IodConnector {
            container,
            states,
            writable,
            env,
            values,
            chunks,
            derived,
            objects,
            siblings: Siblings::new(),
            external: OnceLock::new(),
            original_sources: OnceLock::new(),
            originals: Mutex::new(Vec::new()),
            following: OnceLock::new(),
            joined,
            commits,
            trees: Trees::default(),
            pins,
            this: this.clone(),
        })
    }

    /// A shared owner of it.
    pub(super) fn shared(&self) -> Result<Arc<IodConnector>> {
        self.this.upgrade().ok_or_else(|| Error::corrupt("object", Address::UNDEF, "the container is closed"))
    }
}

impl Drop for IodConnector {
    fn drop(&mut self) {
        self.pins.release(self.joined.is_some());
    }
}
