//! Directories that are read while names in them come and go.
//!
//! A listing goes on from a position in the group's structures, which a change of names makes another one. So before names of a
//! group change, the names of each directory of it that is being read are kept, once, and the rest of that listing is
//! taken from them: every name that stays is told exactly once, as POSIX asks, and of those that go what is left. Nothing is kept of
//! directories that nobody reads, and where nothing changes.

use super::FsResult;
use super::container::ContainerFs;
use super::nodes::Node;
use super::types::{Errno, Handle, Ino};
use super::view::Child;
use crate::connector::ObjectId;
use foldhash::HashMap;
use parking_lot::{Mutex, RwLockWriteGuard};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Bytes of the names kept for all directories; beyond that they are read by position.
const KEPT_MAX: usize = 128 << 20;

/// All directories that are open in a container that is changed.
#[derive(Default)]
pub(super) struct Listings {
    open: Mutex<HashMap<u64, Arc<Listing>>>,
    /// Those that are being read by position.
    live: AtomicUsize,
    /// Bytes kept.
    kept: AtomicUsize,
}

/// One open directory.
pub(super) struct Listing {
    ino: Ino,
    state: Mutex<State>,
}

enum State {
    /// Not begun, or at its end.
    Idle,
    /// It goes on from a position.
    Live,
    /// It goes on with names that were there.
    Kept(Kept),
    /// It goes on from a position: there were too many names to keep.
    Large,
}

/// Names, one after the other, with the position behind each and where it ends.
#[derive(Default)]
struct Kept {
    names: Vec<u8>,
    entries: Vec<(u64, usize)>,
}

impl Kept {
    fn bytes(&self) -> usize {
        self.names.len().saturating_add(self.entries.len().saturating_mul(size_of::<(u64, usize)>()))
    }

    /// The names behind the position `offset`, each with its own.
    fn after(&self, offset: u64) -> impl Iterator<Item = (&[u8], u64)> {
        let first = self.entries.partition_point(|(next, _)| *next <= offset);
        (first..self.entries.len()).filter_map(|i| {
            let start = i.checked_sub(1).and_then(|before| self.entries.get(before)).map_or(0, |(_, end)| *end);
            let (next, end) = self.entries.get(i)?;
            Some((self.names.get(start..*end)?, *next))
        })
    }
}

impl Listings {
    /// Takes the place of a state.
    fn set(&self, state: &mut State, new: State) {
        let count = |state: &State| match state {
            State::Idle | State::Large => (0, 0),
            State::Live => (1, 0),
            State::Kept(kept) => (0, kept.bytes()),
        };
        let (old, now) = (count(state), count(&new));
        self.live.fetch_add(now.0, Ordering::Relaxed);
        self.live.fetch_sub(old.0, Ordering::Relaxed);
        self.kept.fetch_add(now.1, Ordering::Relaxed);
        self.kept.fetch_sub(old.1, Ordering::Relaxed);
        *state = new;
    }
}

impl ContainerFs {
    /// Names in these directories, or of these objects, change while this is held.
    pub(super) fn alone(&self, at: &[Ino]) -> RwLockWriteGuard<'_, ()> {
        let alone = crate::base::waiting::take(|| self.names.try_write(), || self.names.write());
        self.keep_listings(at.iter().filter_map(|ino| self.nodes.get(*ino)?.kind.object()));
        alone
    }

    /// Keeps what is being read of these objects.
    pub(super) fn keep_listings(&self, objects: impl IntoIterator<Item = ObjectId>) {
        if self.listings.live.load(Ordering::Relaxed) == 0 {
            return;
        }
        let objects: Vec<_> = objects.into_iter().collect();
        let open: Vec<_> = self.listings.open.lock().values().cloned().collect();
        for listing in open {
            let concerned = |dir: &Arc<Node>| dir.kind.object().is_some_and(|id| objects.contains(&id));
            let Some(dir) = self.nodes.get(listing.ino).filter(concerned) else { continue };
            let mut state = listing.state.lock();
            if !matches!(*state, State::Live) {
                continue;
            }
            let room = KEPT_MAX.saturating_sub(self.listings.kept.load(Ordering::Relaxed));
            let mut kept = Kept::default();
            // What cannot be read now could not be read later.
            let _ = self.list(&dir, 0, &mut |child, next| {
                kept.names.extend_from_slice(&child.name);
                kept.entries.push((next, kept.names.len()));
                if kept.bytes() > room { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            });
            let new = if kept.bytes() > room { State::Large } else { State::Kept(kept) };
            self.listings.set(&mut state, new);
        }
    }

    pub(super) fn open_directory(&self, ino: Ino) -> FsResult<Handle> {
        match self.directory(ino) {
            // One that was removed while it is somebody's working directory.
            Err(Errno(libc::ENOENT)) if self.node(ino).is_ok_and(|node| node.opens() > 0) => {}
            found => drop(found?),
        }
        if !self.changing {
            return Ok(Handle(0));
        }
        let handle = self.next_handle.fetch_add(1, Ordering::Relaxed);
        self.listings.open.lock().insert(handle, Arc::new(Listing { ino, state: Mutex::new(State::Idle) }));
        Ok(Handle(handle))
    }

    pub(super) fn close_directory(&self, handle: Handle) {
        let listing = self.listings.open.lock().remove(&handle.0);
        if let Some(listing) = listing {
            self.listings.set(&mut listing.state.lock(), State::Idle);
        }
    }

    /// Children from `offset` on, after `.` and `..`, of a directory that is open as `handle`.
    pub(super) fn list_open(
        &self,
        handle: Handle,
        dir: &Arc<Node>,
        offset: u64,
        f: &mut dyn FnMut(Child, u64) -> ControlFlow<()>,
    ) -> FsResult<()> {
        let listing = self.listings.open.lock().get(&handle.0).cloned();
        let Some(listing) = listing else { return self.list(dir, offset, f) };
        let mut state = listing.state.lock();
        if offset == 0 || matches!(*state, State::Idle) {
            self.listings.set(&mut state, State::Live);
        }
        if let State::Kept(kept) = &*state {
            for (name, next) in kept.after(offset) {
                // One that is gone is left out, and so is one that cannot be read, as in other listings.
                let child = self.tree().lookup(dir, name).map_err(|e| self.failed(dir.kind.object(), &e));
                if child.ok().flatten().is_some_and(|child| f(child, next).is_break()) {
                    break;
                }
            }
            return Ok(());
        }
        let mut met = false;
        let done = self.list(dir, offset, &mut |child, next| {
            met = true;
            f(child, next)
        });
        // The kernel asks until there is nothing more.
        if !met && offset > 0 || done == Err(Errno(libc::ENOENT)) {
            self.listings.set(&mut state, State::Idle);
        }
        done
    }
}
