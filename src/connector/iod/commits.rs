//! What makes versions of the changes of a state: its parts. Its methods are in `commit`,
//! `in_doubt` and `transaction`.

use super::long_values::LongValues;
use super::object_access::ObjectAccess;
use super::peer::Peer;
use super::pins::Pins;
use super::states::States;
use crate::iod::Container;
use std::sync::Arc;

/// Commits changes, as one version or as the part of a peer.
pub(super) struct Commits {
    /// The container.
    pub container: Arc<Container>,
    /// What is shown, and what is made next.
    pub states: Arc<States>,
    /// Stores chunks and other long values.
    pub values: Arc<LongValues>,
    /// Reads and changes objects in a state.
    pub objects: Arc<ObjectAccess>,
    /// Pins what is shown.
    pub pins: Arc<Pins>,
    /// The transaction whose peer it is.
    pub joined: Option<Arc<Peer>>,
}

impl Commits {
    /// Commits of `states`; `joined`: as a peer.
    pub fn new(states: Arc<States>, objects: Arc<ObjectAccess>, pins: Arc<Pins>, joined: Option<Arc<Peer>>) -> Commits {
        let (container, values) = (objects.container.clone(), objects.values.clone());
        Commits { container, states, values, objects, pins, joined }
    }
}
