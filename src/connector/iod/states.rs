//! The state of an open container: one writer at a time makes the next one; readers take the one
//! that is shown, and keep it while they need it. Writers do not wait for readers.

use super::state::State;
use crate::base::locks::{Mutex, MutexGuard, RwLock};
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

/// See the module's description.
pub(super) struct States {
    /// Locked to take or to replace it.
    shown: RwLock<Arc<State>>,
    next: Mutex<State>,
}

impl States {
    /// `state` is shown.
    pub fn new(state: State) -> States {
        States { shown: RwLock::new(Arc::new(state.for_readers())), next: Mutex::new(state) }
    }

    /// The state that is shown.
    pub fn shown(&self) -> Arc<State> {
        self.shown.read().clone()
    }

    /// The next state, to be changed. Other writers wait until it is dropped: it is shown then.
    pub fn next(&self) -> Next<'_> {
        Next::new(&self.shown, self.next.lock())
    }

    /// [`States::next`]; `None`: another writer makes it.
    pub fn try_next(&self) -> Option<Next<'_>> {
        self.next.try_lock().map(|next| Next::new(&self.shown, next))
    }
}

/// A state that is being made.
pub(super) struct Next<'a> {
    shown: &'a RwLock<Arc<State>>,
    state: MutexGuard<'a, State>,
}

impl<'a> Next<'a> {
    fn new(shown: &'a RwLock<Arc<State>>, mut state: MutexGuard<'a, State>) -> Self {
        state.renew();
        Next { shown, state }
    }
}

impl Deref for Next<'_> {
    type Target = State;

    fn deref(&self) -> &State {
        &self.state
    }
}

impl DerefMut for Next<'_> {
    fn deref_mut(&mut self) -> &mut State {
        &mut self.state
    }
}

impl Drop for Next<'_> {
    fn drop(&mut self) {
        // After a panic, the operation under way is undone.
        self.state.end(!std::thread::panicking());
        let made = Arc::new(self.state.for_readers());
        let before = std::mem::replace(&mut *self.shown.write(), made);
        // It may be large: not under the lock.
        drop(before);
    }
}
