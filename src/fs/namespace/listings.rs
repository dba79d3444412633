//! Directories that are read while names in them change.
//!
//! A listing continues from a position in the group's structures. A change of names invalidates
//! positions. So before names of a group change, the names of each of its directories that is being
//! read are saved, once, and the rest of that listing is taken from the saved names: every name
//! that stays is returned exactly once, as POSIX requires. Nothing is saved where no directory is
//! being read, or nothing changes.

use crate::base::locks::Mutex;
use crate::fs::types::{Handle, Ino};
use foldhash::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Bytes of the names saved for all directories; further ones are read by position.
const SAVED_BYTES_MAX: usize = 128 << 20;

/// All directories that are open in a container that is changed.
#[derive(Default)]
pub struct Listings {
    open: Mutex<HashMap<u64, Arc<Listing>>>,
    last_handle: AtomicU64,
    /// Directories that are being read by position.
    by_position: AtomicUsize,
    /// Bytes of saved names.
    saved_bytes: AtomicUsize,
}

/// One open directory.
pub struct Listing {
    /// Its inode.
    pub ino: Ino,
    /// How far it was read.
    pub state: Mutex<ListingState>,
}

/// Progress of a listing.
pub enum ListingState {
    /// Not begun, or at its end.
    Idle,
    /// Continues from a position.
    ByPosition,
    /// Continues with saved names.
    Saved(SavedNames),
    /// Continues from a position: there were too many names to save.
    TooLarge,
}

/// Names, one after the other, with the position after each and where it ends.
#[derive(Default)]
pub struct SavedNames {
    names: Vec<u8>,
    entries: Vec<(u64, usize)>,
}

impl SavedNames {
    /// Adds a name; returns false when all names are larger than `room`, bytes.
    pub fn push(&mut self, name: &[u8], next: u64, room: usize) -> bool {
        self.names.extend_from_slice(name);
        self.entries.push((next, self.names.len()));
        self.bytes() <= room
    }

    fn bytes(&self) -> usize {
        self.names.len().saturating_add(self.entries.len().saturating_mul(size_of::<(u64, usize)>()))
    }

    /// The names after position `offset`, each with the position after it.
    pub fn after(&self, offset: u64) -> impl Iterator<Item = (&[u8], u64)> {
        let first = self.entries.partition_point(|(next, _)| *next <= offset);
        (first..self.entries.len()).filter_map(|i| {
            let start = i.checked_sub(1).and_then(|before| self.entries.get(before)).map_or(0, |(_, end)| *end);
            let (next, end) = self.entries.get(i)?;
            Some((self.names.get(start..*end)?, *next))
        })
    }
}

impl Listings {
    /// Opens the directory `ino`.
    pub fn open(&self, ino: Ino) -> Handle {
        let handle = self.last_handle.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
        self.open.lock().insert(handle, Arc::new(Listing { ino, state: Mutex::new(ListingState::Idle) }));
        Handle(handle)
    }

    /// Closes the directory `handle`.
    pub fn close(&self, handle: Handle) {
        let listing = self.open.lock().remove(&handle.0);
        if let Some(listing) = listing {
            self.set(&mut listing.state.lock(), ListingState::Idle);
        }
    }

    /// The directory opened as `handle`.
    pub fn get(&self, handle: Handle) -> Option<Arc<Listing>> {
        self.open.lock().get(&handle.0).cloned()
    }

    /// All open directories, if one is being read by position.
    pub fn being_read(&self) -> Vec<Arc<Listing>> {
        if self.by_position.load(Ordering::Relaxed) == 0 {
            return Vec::new();
        }
        self.open.lock().values().cloned().collect()
    }

    /// Bytes that more names may take.
    pub fn room(&self) -> usize {
        SAVED_BYTES_MAX.saturating_sub(self.saved_bytes.load(Ordering::Relaxed))
    }

    /// Replaces a state.
    pub fn set(&self, state: &mut ListingState, new: ListingState) {
        let count = |state: &ListingState| match state {
            ListingState::Idle | ListingState::TooLarge => (0, 0),
            ListingState::ByPosition => (1, 0),
            ListingState::Saved(names) => (0, names.bytes()),
        };
        let (old, now) = (count(state), count(&new));
        self.by_position.fetch_add(now.0, Ordering::Relaxed);
        self.by_position.fetch_sub(old.0, Ordering::Relaxed);
        self.saved_bytes.fetch_add(now.1, Ordering::Relaxed);
        self.saved_bytes.fetch_sub(old.1, Ordering::Relaxed);
        *state = new;
    }
}
