//! The pin of a mount: garbage collection keeps the version that it is based on.

use super::state::State;
use super::states::States;
use crate::base::locks::Mutex;
use crate::base::{Address, Error, Result};
use crate::iod::Container;
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};

/// Pins the version of the states of a container.
pub(super) struct Pins {
    container: Arc<Container>,
    states: Arc<States>,
    /// Ends the thread that renews the pin when it is dropped.
    renewing: Mutex<Option<mpsc::Sender<()>>>,
}

impl Pins {
    /// Nothing is pinned.
    pub fn new(container: Arc<Container>, states: Arc<States>) -> Arc<Pins> {
        Arc::new(Pins { container, states, renewing: Mutex::new(None) })
    }

    /// Starts the thread that renews the pin at half its life.
    pub fn keep_renewed(self: &Arc<Self>) -> Result<()> {
        let (running, ended) = mpsc::channel::<()>();
        let (pins, period) = (Arc::downgrade(self), self.container.pin_period());
        let renew = move || {
            while ended.recv_timeout(period) == Err(RecvTimeoutError::Timeout) {
                let Some(pins) = pins.upgrade() else { return };
                pins.renew();
            }
        };
        let started = std::thread::Builder::new().name("h5dir-pin".into()).spawn(renew);
        let failed = |e: std::io::Error| Error::Io {
            operation: "start a thread",
            address: Address::UNDEF,
            errno: e.raw_os_error().unwrap_or(libc::EAGAIN),
        };
        started.map_err(failed)?;
        *self.renewing.lock() = Some(running);
        Ok(())
    }

    /// Pins the version that the peer of a transaction sees, with its session.
    pub fn keep_base(self: &Arc<Self>, state: &State) -> Result<()> {
        self.pin(state)?;
        self.keep_renewed()
    }

    fn pin(&self, state: &State) -> Result<()> {
        self.container.pin(state.snapshot.pinned(), state.session.as_deref())
    }

    fn renew(&self) {
        let (base, session, failed) = {
            let state = self.states.shown();
            (state.snapshot.pinned(), state.session.clone(), state.failed.is_some())
        };
        // What a session that failed shows stays readable.
        let session = session.filter(|_| !failed);
        if let Err(e) = self.container.pin(base, session.as_deref()) {
            tracing::warn!("the pin of version {} is not renewed: {e}", base.version);
        }
    }

    /// Pins the version that the changes are based on now, if one is pinned: garbage collection may
    /// make room by deleting those before it.
    pub fn advance(&self, state: &State) {
        if self.renewing.lock().is_some()
            && let Err(e) = self.pin(state)
        {
            tracing::debug!("the pin of an older version than {} stays: {e}", state.snapshot.version());
        }
    }

    /// Removes the pin, if there is one. `joined`: that of a peer may be there although the peer
    /// did not join.
    pub fn release(&self, joined: bool) {
        if (self.renewing.lock().take().is_some() || joined)
            && let Err(e) = self.container.unpin()
        {
            tracing::debug!("the pin stays until it is over: {e}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{bytes, empty, open, spec};
    use crate::connector::Connector;
    use crate::connector::edit::Edit;
    use crate::file::store::memory::MemoryStore;
    use crate::iod::{Container, gc, keys};
    use std::sync::Arc;

    fn collect(store: &MemoryStore) -> gc::Report {
        let options = gc::Options { keep: gc::Keep::Versions(1), grace: 0, dry_run: false };
        gc::run(&Container::open(Arc::new(store.clone())).unwrap(), &options).unwrap()
    }

    fn count(store: &MemoryStore, begin: &str) -> usize {
        store.keys().iter().filter(|key| key.starts_with(begin)).count()
    }

    #[test]
    fn a_mount_has_a_pin_until_it_is_closed() {
        let store = empty();
        let c = open(&store);
        c.pins.keep_renewed().unwrap();
        assert_eq!(count(&store, keys::PINS), 1);
        c.close().unwrap();
        assert_eq!(count(&store, keys::PINS), 0);
    }

    /// A thread that had the container when the daemon of a read-only mount ended left its pin.
    #[test]
    fn the_pin_of_a_mount_that_ends_does_not_wait_for_threads_that_have_it() {
        let store = empty();
        let c = open(&store);
        let id = c.create_dataset(c.root(), b"d", &spec("u1", &[4])).unwrap();
        let content = c.content(id, crate::connector::Form::Main).unwrap();
        c.pins.keep_renewed().unwrap();
        assert_eq!(count(&store, keys::PINS), 1);
        c.end_mount();
        assert_eq!((count(&store, keys::PINS), content.size().unwrap()), (0, 4));
    }

    /// A mount that runs for months overwrites a dataset: the packs of its old commits go.
    #[test]
    fn packs_of_a_running_session_are_collected() {
        let store = empty();
        let c = open(&store);
        let id = c.create_dataset(c.root(), b"d", &spec("u1", &[100_000])).unwrap();
        for n in 0..9 {
            c.write(id, 0, &[n; 100_000]).unwrap();
            c.commit().unwrap();
        }
        c.write(id, 0, &[9; 50_000]).unwrap();
        c.values.store_ahead().unwrap();
        c.pins.renew();
        let packs: u64 = (0..3).map(|_| collect(&store).packs).sum();
        assert!(packs >= 7, "{packs} packs");
        c.commit().unwrap();
        c.close().unwrap();
        let want = [[9; 50_000], [8; 50_000]].concat();
        assert_eq!(bytes(&*open(&store), id), want);
    }

    /// Values that garbage collection moves do not conflict with changes of a mount.
    #[test]
    fn moved_chunks_merge_with_changes() {
        let store = empty();
        let c = open(&store);
        let id = c.create_dataset(c.root(), b"d", &spec("u1", &[8 << 20])).unwrap();
        c.write(id, 0, &vec![1; 8 << 20]).unwrap();
        c.pins.keep_renewed().unwrap();
        c.commit().unwrap();
        c.write(id, 0, &vec![2; 6 << 20]).unwrap();
        c.close().unwrap();
        let c = open(&store);
        c.write(id, (7 << 20) + 5, &[3; 100]).unwrap();
        c.set_size(id, 9 << 20).unwrap();
        c.pins.renew();
        assert_eq!(collect(&store).rewritten, 1);
        c.commit().unwrap();
        c.close().unwrap();
        let mut want = [vec![2; 6 << 20], vec![1; 2 << 20], vec![0; 1 << 20]].concat();
        want[(7 << 20) + 5..(7 << 20) + 105].fill(3);
        assert!(bytes(&*open(&store), id) == want);
    }
}
