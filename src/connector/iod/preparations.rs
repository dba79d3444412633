//! Which datasets have another layout made for them, and what was made. `P`: what that is.

use crate::base::locks::Mutex;
use crate::iod::{keys, merge};
use foldhash::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Datasets whose next layout is being made, or is made. All states of a mount have the same.
pub(super) struct Preparations<P> {
    all: Mutex<HashMap<u64, Preparation<P>>>,
    count: AtomicUsize,
}

/// The next layout of a dataset.
struct Preparation<P> {
    /// `None`: it is being made.
    made: Option<Box<P>>,
    /// The dataset was changed since it began.
    is_void: bool,
}

impl<P> Default for Preparations<P> {
    fn default() -> Self {
        Preparations { all: Mutex::default(), count: AtomicUsize::new(0) }
    }
}

impl<P> Preparations<P> {
    /// True if there are none. Then nothing but the changes of the state needs its packs.
    pub fn is_empty(&self) -> bool {
        self.count.load(Ordering::Acquire) == 0
    }

    /// Notes a change of the value of `key`.
    pub fn note(&self, key: &[u8]) {
        if !self.is_empty()
            && let Some(id) = elements_of(key)
            && let Some(preparation) = self.all.lock().get_mut(&id)
        {
            preparation.is_void = true;
        }
    }

    /// Notes changes of any values.
    pub fn note_all(&self) {
        if !self.is_empty() {
            self.all.lock().values_mut().for_each(|preparation| preparation.is_void = true);
        }
    }

    /// Notes that the next layout of the dataset `id` is being made, until the guard is dropped.
    /// `None`: one is there already.
    pub fn begin(&self, id: u64) -> Option<UnderWay<'_, P>> {
        let mut all = self.all.lock();
        if all.contains_key(&id) {
            return None;
        }
        all.insert(id, Preparation { made: None, is_void: false });
        self.count.store(all.len(), Ordering::Release);
        Some(UnderWay { preparations: self, id, is_made: false })
    }

    /// Ends the preparation of the dataset `id`; returns what was made, and whether the dataset is
    /// as it was when that began.
    pub fn take(&self, id: u64) -> Option<(P, bool)> {
        let mut all = self.all.lock();
        let taken = all.remove(&id)?;
        self.count.store(all.len(), Ordering::Release);
        taken.made.map(|made| (*made, !taken.is_void))
    }
}

/// A layout that is being made.
pub(super) struct UnderWay<'a, P> {
    preparations: &'a Preparations<P>,
    id: u64,
    is_made: bool,
}

impl<P> UnderWay<'_, P> {
    /// Keeps what was made; false if the dataset was changed since.
    pub fn finish(mut self, made: P) -> bool {
        self.is_made = true;
        let mut all = self.preparations.all.lock();
        let Some(preparation) = all.get_mut(&self.id) else { return false };
        preparation.made = Some(Box::new(made));
        !preparation.is_void
    }
}

impl<P> Drop for UnderWay<'_, P> {
    fn drop(&mut self) {
        if !self.is_made {
            self.preparations.take(self.id);
        }
    }
}

/// The object whose elements, or the metadata that they need, `key` has.
pub(super) fn elements_of(key: &[u8]) -> Option<u64> {
    let (id, kind, _) = keys::parts(key)?;
    let is_needed = || keys::message(key).is_some_and(|message| !merge::is_loose(message));
    (matches!(kind, keys::CHUNK | keys::CELLS) || kind == keys::HEADER && is_needed()).then_some(id)
}
