//! An open container as the peer of a transaction.

use crate::iod::Membership;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

/// An open container as a peer.
pub(super) struct Peer {
    /// Name of the transaction.
    pub name: String,
    /// Which peer it is; unset: it joins with its first change.
    member: OnceLock<Membership>,
    /// It is a tree beside a mount.
    pub is_tree: bool,
    /// Its part is stored, or may be, or the transaction has ended: nothing more is changed.
    pub is_finished: AtomicBool,
    /// The transaction has ended, as far as that is known.
    has_ended: AtomicBool,
}

impl Peer {
    /// A tree, which joins later.
    pub fn of_tree(name: String) -> Peer {
        let (is_finished, has_ended) = Default::default();
        Peer { name, member: OnceLock::new(), is_tree: true, is_finished, has_ended }
    }

    /// A peer that joined as `member`.
    pub fn joined(name: String, member: Membership) -> Peer {
        Peer { member: OnceLock::from(member), is_tree: false, ..Peer::of_tree(name) }
    }

    /// It joins as `member`.
    pub fn join(&self, member: Membership) {
        // The caller makes the next state: no other thread joins.
        let _ = self.member.set(member);
    }

    /// Notes that the transaction has ended.
    pub fn end(&self) {
        self.is_finished.store(true, Ordering::Release);
        self.has_ended.store(true, Ordering::Release);
    }

    /// True if the transaction has ended, as far as that is known.
    pub fn has_ended(&self) -> bool {
        self.has_ended.load(Ordering::Acquire)
    }

    /// Which peer it is, if it joined.
    pub fn member(&self) -> Option<&Membership> {
        self.member.get()
    }
}
