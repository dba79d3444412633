//! An open container as the peer of a transaction.

use crate::iod::Membership;
use std::sync::atomic::AtomicBool;

/// An open container as a peer.
pub(super) struct Peer {
    /// Name of the transaction.
    pub name: String,
    /// Which peer it is.
    pub member: Membership,
    /// Its part is stored, or may be: nothing more is changed.
    pub is_finished: AtomicBool,
}
