//! The pin of a mount: garbage collection keeps the version that it is based on.

use super::access::IodConnector;
use super::state::State;
use crate::base::{Address, Error, Result};
use std::sync::mpsc::{self, RecvTimeoutError};

impl IodConnector {
    /// Starts the thread that renews the pin at half its life.
    pub(super) fn keep_pinned(&self) -> Result<()> {
        let (running, ended) = mpsc::channel::<()>();
        let (connector, period) = (self.weak(), self.container.pin_period());
        let renew = move || {
            while ended.recv_timeout(period) == Err(RecvTimeoutError::Timeout) {
                let Some(connector) = connector.upgrade() else { return };
                connector.renew_pin();
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
    pub(super) fn keep_base_pinned(&self, state: &State) -> Result<()> {
        self.container.pin(state.snapshot.pinned(), state.session.as_deref())?;
        self.keep_pinned()
    }

    fn renew_pin(&self) {
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

    /// Pins the version that the changes are based on now: garbage collection may make room by
    /// deleting those before it.
    pub(super) fn move_pin(&self, state: &State) {
        if self.renewing.lock().is_some()
            && let Err(e) = self.container.pin(state.snapshot.pinned(), state.session.as_deref())
        {
            tracing::debug!("the pin of an older version than {} stays: {e}", state.snapshot.version());
        }
    }

    /// Removes the pin.
    pub(super) fn release_pin(&self) {
        // That of a peer may be there although the peer did not join.
        if (self.renewing.lock().take().is_some() || self.joined.is_some())
            && let Err(e) = self.container.unpin()
        {
            tracing::debug!("the pin stays until it is over: {e}");
        }
    }

    /// Notes that all packs belong to committed versions, after a commit.
    pub(super) fn settle_packs(&self, state: &State) {
        if let (true, Some(_none), Some(session)) = (state.preparations.is_empty(), self.storing.try_lock(), &state.session) {
            session.settle();
        }
    }
}

impl Drop for IodConnector {
    fn drop(&mut self) {
        self.release_pin();
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
        c.keep_pinned().unwrap();
        assert_eq!(count(&store, keys::PINS), 1);
        c.close().unwrap();
        assert_eq!(count(&store, keys::PINS), 0);
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
        c.store_ahead().unwrap();
        c.renew_pin();
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
        c.keep_pinned().unwrap();
        c.commit().unwrap();
        c.write(id, 0, &vec![2; 6 << 20]).unwrap();
        c.close().unwrap();
        let c = open(&store);
        c.write(id, (7 << 20) + 5, &[3; 100]).unwrap();
        c.set_size(id, 9 << 20).unwrap();
        c.renew_pin();
        assert_eq!(collect(&store).rewritten, 1);
        c.commit().unwrap();
        c.close().unwrap();
        let mut want = [vec![2; 6 << 20], vec![1; 2 << 20], vec![0; 1 << 20]].concat();
        want[(7 << 20) + 5..(7 << 20) + 105].fill(3);
        assert!(bytes(&*open(&store), id) == want);
    }
}
