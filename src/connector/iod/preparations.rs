//! Which datasets have another layout made for them, and what was made. `P`: what that is.

use crate::format::object_header::kind::{MTIME, REFERENCE_COUNT};
use crate::iod::keys;
use foldhash::HashMap;
use parking_lot::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Datasets whose next layout is being made, or is made. All states of a mount have the same.
pub(super) struct Preparations<P> {
    /// `None`: the dataset was changed since.
    all: Mutex<HashMap<u64, Option<Preparation<P>>>>,
    count: AtomicUsize,
}

/// What is known of the next layout of a dataset.
enum Preparation<P> {
    /// It is being made.
    Begun,
    Made(Box<P>),
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
            *preparation = None;
        }
    }

    /// Notes changes of any values.
    pub fn note_all(&self) {
        if !self.is_empty() {
            self.all.lock().values_mut().for_each(|preparation| *preparation = None);
        }
    }

    /// Notes that the next layout of the dataset `id` is being made.
    pub fn begin(&self, id: u64) {
        let mut all = self.all.lock();
        all.insert(id, Some(Preparation::Begun));
        self.count.store(all.len(), Ordering::Release);
    }

    /// True if the dataset `id` was changed since its preparation began.
    pub fn is_void(&self, id: u64) -> bool {
        !matches!(self.all.lock().get(&id), Some(Some(_)))
    }

    /// Keeps what was made; returns it if the dataset was changed since.
    pub fn made(&self, id: u64, prepared: P) -> Option<P> {
        match self.all.lock().get_mut(&id) {
            Some(Some(preparation)) => {
                *preparation = Preparation::Made(Box::new(prepared));
                None
            }
            _ => Some(prepared),
        }
    }

    /// Ends a preparation; returns what was made, if the dataset was not changed since.
    pub fn take(&self, id: u64) -> Option<P> {
        let mut all = self.all.lock();
        let taken = all.remove(&id).flatten();
        self.count.store(all.len(), Ordering::Release);
        match taken? {
            Preparation::Made(prepared) => Some(*prepared),
            Preparation::Begun => None,
        }
    }
}

/// A layout that is being made.
pub(super) struct UnderWay<'a, P> {
    pub preparations: &'a Preparations<P>,
    pub id: u64,
    /// It is made.
    pub is_kept: bool,
}

impl<P> Drop for UnderWay<'_, P> {
    fn drop(&mut self) {
        if !self.is_kept {
            self.preparations.take(self.id);
        }
    }
}

/// The object whose elements, or the metadata that they need, `key` has.
pub(super) fn elements_of(key: &[u8]) -> Option<u64> {
    let (id, kind, _) = keys::parts(key)?;
    let is_loose = |key| keys::message(key).is_some_and(|m| matches!(m, MTIME | REFERENCE_COUNT | keys::OWNERSHIP | keys::ACCESS_TIME));
    (matches!(kind, keys::CHUNK | keys::CELLS) || kind == keys::HEADER && !is_loose(key)).then_some(id)
}
