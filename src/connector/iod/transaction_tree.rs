//! Trees of transactions: what a peer sees, each as a container of its own beside the one that is
//! shown.
//!
//! A tree shares the store and the caches of its container. To look at it takes no place of a peer:
//! it joins the transaction with its first change, or when it is finished.

use super::access::IodConnector;
use super::commits::Commits;
use super::peer::Peer;
use super::state::State;
use super::transaction::base_snapshot;
use crate::base::{Error, Result};
use crate::connector::transactions::TreeUse;
use crate::iod::Standing;
use crate::iod::transactions::ended;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long it is known that a transaction has not ended.
const KNOWN_TIME: Duration = Duration::from_secs(1);
/// Transactions of which that is known, at most.
const KNOWN_MAX: usize = 1024;

impl IodConnector {
    /// True if transactions have trees here: a peer of one is a tree already.
    fn opens_trees(&self) -> bool {
        self.writable && self.joined.is_none()
    }

    /// The tree of a transaction that is open here.
    pub(super) fn opened_tree(&self, name: &str) -> Option<Arc<IodConnector>> {
        self.trees.opened.lock().get(name)?.upgrade()
    }

    /// Number of trees that are open.
    pub(super) fn open_trees(&self) -> u64 {
        self.trees.opened.lock().values().filter(|tree| tree.strong_count() > 0).count() as u64
    }

    /// How the tree of a transaction is used, as far as that is known.
    pub(super) fn known_use(&self, name: &str) -> TreeUse {
        match self.opened_tree(name).as_ref().and_then(|tree| tree.joined.as_ref()) {
            Some(peer) if peer.has_ended() => TreeUse::Ended,
            Some(peer) if peer.member().is_some() => TreeUse::Joined,
            _ => TreeUse::Read,
        }
    }

    /// [`IodConnector::known_use`], after a request for the transaction.
    pub(super) fn use_of_tree(&self, name: &str) -> Result<TreeUse> {
        let found = self.container.transaction(name)?;
        let has_ended = found.is_none_or(|found| !matches!(found.own_standing(), Standing::Open(_)));
        if !has_ended {
            let mut running = self.trees.running.lock();
            if running.len() >= KNOWN_MAX {
                running.clear();
            }
            running.insert(name.to_owned(), Instant::now());
            return Ok(self.known_use(name));
        }
        if let Some(tree) = self.opened_tree(name) {
            tree.end_peer();
        }
        Ok(TreeUse::Ended)
    }

    /// True if a transaction has a tree: it has not ended. That of a peer is found out later.
    pub(super) fn shows_tree(&self, name: &str) -> Result<bool> {
        if !self.opens_trees() {
            return Ok(false);
        }
        match self.known_use(name) {
            TreeUse::Joined => return Ok(true),
            TreeUse::Ended => return Ok(false),
            TreeUse::Read => {}
        }
        if self.trees.running.lock().get(name).is_some_and(|at| at.elapsed() < KNOWN_TIME) {
            return Ok(true);
        }
        Ok(self.use_of_tree(name)? != TreeUse::Ended)
    }

    /// Opens the tree of a transaction.
    pub(super) fn open_tree(&self, name: &str) -> Result<Arc<IodConnector>> {
        if !self.opens_trees() {
            return Err(Error::refused(libc::EROFS, "trees of transactions are in mounts that write"));
        }
        let transaction = self.container.known_transaction(name)?;
        match transaction.own_standing() {
            Standing::Open(_) => {}
            standing => return Err(ended(name, &standing)),
        }
        // A session has a pin of its own.
        let container = Arc::new(self.container.beside());
        let state = State::new(container.clone(), base_snapshot(&container, &transaction)?, None);
        let tree = self.peer_beside(container, state, Peer::of_tree(transaction.name));
        let mut trees = self.trees.opened.lock();
        trees.retain(|_, tree| tree.strong_count() > 0);
        trees.insert(name.to_owned(), Arc::downgrade(&tree));
        Ok(tree)
    }

    /// Notes that the transaction of this peer has ended: nothing more is changed, or pinned.
    pub(super) fn end_peer(&self) {
        if let Some(peer) = &self.joined {
            peer.end();
            self.pins.release(self.joined.is_some());
        }
    }

    /// True if `peer` joined, or can.
    pub(super) fn is_or_becomes(&self, peer: &Peer) -> Result<bool> {
        Ok(peer.member().is_some() || self.container.known_transaction(&peer.name)?.check_place().is_ok())
    }

    /// Makes the peer that this is join its transaction, unless it did.
    pub(super) fn join(&self, state: &mut State) -> Result<()> {
        let Some(peer) = self.joined.as_ref().filter(|peer| peer.member().is_none()) else { return Ok(()) };
        let transaction = self.container.known_transaction(&peer.name)?;
        let session = match &state.session {
            // It was begun by an attempt that failed, and may have a place.
            Some(session) => session.clone(),
            None => {
                if !matches!(transaction.own_standing(), Standing::Open(_)) {
                    self.end_peer();
                }
                // A session is a version: none is made where no peer can join.
                transaction.check_place()?;
                Arc::new(Commits::first_session(&self.container, &mut self.container.snapshot(None)?)?)
            }
        };
        state.session = Some(session.clone());
        let member = self.container.join_transaction(&transaction, session.number(), None)?;
        self.pins.keep_base(state)?;
        peer.join(member);
        Ok(())
    }
}
