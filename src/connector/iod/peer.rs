//! An open container as the peer of a transaction.

use crate::iod::Membership;
use std::sync::OnceLock;
use std::sync::atomic::AtomicBool;

/// An open container as a peer.
pub(super) struct Peer {
    /// Name of the transaction.
    pub name: String,
    /// Which peer it is; unset: it joins with its first change.
    member: OnceLock<Membership>,
    /// Its part is stored, or may be, or the transaction ended: nothing more is changed.
    pub is_finished: AtomicBool,
}

impl Peer {
    /// A peer that joins later.
    pub fn new(name: String) -> Peer {
        Peer { name, member: OnceLock::new(), is_finished: AtomicBool::new(false) }
    }

    /// A peer that joined as `member`.
    pub fn joined(name: String, member: Membership) -> Peer {
        Peer { member: OnceLock::from(member), ..Peer::new(name) }
    }

    /// It joins as `member`.
    pub fn join(&self, member: Membership) {
        // The lock of the state is held: no other thread joins.
        let _ = self.member.set(member);
    }

    /// Which peer it is, if it joined.
    pub fn member(&self) -> Option<&Membership> {
        self.member.get()
    }
}
