//! Trees of transactions: what a peer sees, each as a container of its own beside the one that is
//! shown.
//!
//! A tree shares the store and the caches of its container. To look at it takes no place of a peer:
//! it joins the transaction with its first change, or when it is finished.

use super::access::IodConnector;
use super::peer::Peer;
use super::state::State;
use super::transaction::base_snapshot;
use crate::base::{Error, Result};
use crate::iod::Standing;
use crate::iod::transactions::ended;
use std::sync::Arc;
use std::sync::atomic::Ordering;

impl IodConnector {
    /// True if transactions have trees here: a peer of one is a tree already.
    fn opens_trees(&self) -> bool {
        self.writable && self.joined.is_none()
    }

    /// The tree of a transaction that was opened here.
    pub(super) fn opened_tree(&self, name: &str) -> Option<Arc<IodConnector>> {
        self.trees.lock().get(name)?.upgrade()
    }

    /// True if the tree of a transaction was opened here and may be changed.
    pub(super) fn changes_tree(&self, name: &str) -> bool {
        let tree = self.opened_tree(name);
        tree.and_then(|tree| Some(!tree.joined.as_ref()?.is_finished.load(Ordering::Acquire))).unwrap_or(false)
    }

    /// True if a transaction has a tree: it has not ended.
    pub(super) fn shows_tree(&self, name: &str) -> Result<bool> {
        if !self.opens_trees() {
            return Ok(false);
        }
        if self.changes_tree(name) {
            return Ok(true);
        }
        let found = self.container.transaction(name)?;
        Ok(found.is_some_and(|transaction| matches!(transaction.own_standing(), Standing::Open(_))))
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
        let tree = self.peer_beside(container, state, Peer::new(transaction.name));
        let mut trees = self.trees.lock();
        trees.retain(|_, tree| tree.strong_count() > 0);
        trees.insert(name.to_owned(), Arc::downgrade(&tree));
        Ok(tree)
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
                // A session is a version: none is made where no peer can join.
                transaction.check_place()?;
                Arc::new(Self::first_session(&self.container, &mut self.container.snapshot(None)?)?)
            }
        };
        state.session = Some(session.clone());
        let member = self.container.join_transaction(&transaction, session.number(), None)?;
        self.keep_base_pinned(state)?;
        peer.join(member);
        Ok(())
    }
}
