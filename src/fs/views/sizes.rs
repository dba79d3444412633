//! Sizes of generated texts, which are found when a text is made.

use super::context::Context;
use super::view::Item;
use crate::base::locks::Mutex;
use crate::base::lru_cache::lru_cache;
use crate::connector::ObjectId;
use lru::LruCache;
use std::num::NonZeroUsize;
use std::sync::Arc;

/// Files whose sizes are kept.
const SIZES_MAX: NonZeroUsize = NonZeroUsize::new(4096).unwrap();

/// Object and name of the view.
type Key = (ObjectId, &'static str);

/// Sizes by object and view, each with the number of the container's state.
struct Sizes(Mutex<LruCache<Key, (u64, u64)>>);

impl Default for Sizes {
    fn default() -> Self {
        Sizes(Mutex::new(lru_cache(SIZES_MAX)))
    }
}

/// Place of the size of one file.
pub(super) struct SizePlace {
    sizes: Arc<Sizes>,
    key: Key,
    state: u64,
    stays: bool,
}

impl SizePlace {
    /// The place of the file of `item`, as the container is now; `None`: it shows no object.
    pub(super) fn of(cx: &Context<'_>, item: &Item) -> Option<SizePlace> {
        let state = cx.connector.follow().map_or(0, |follow| follow.state());
        Some(SizePlace { sizes: cx.buffers.get(), key: (item.object()?, item.view.name()), state, stays: !cx.changing })
    }

    /// The size, bytes; `None`: it was not found yet.
    pub(super) fn get(&self) -> Option<u64> {
        self.sizes.0.lock().peek(&self.key).filter(|(_, state)| *state == self.state).map(|(size, _)| *size)
    }

    /// True if a size that was found stays that of the file, in this state of the container.
    pub(super) fn stays(&self) -> bool {
        self.stays
    }

    /// The size of a file that nothing changes.
    pub(super) fn settled(&self) -> Option<u64> {
        self.get().filter(|_| self.stays)
    }

    /// Notes the size, or forgets that of an earlier text.
    pub(super) fn set(&self, size: Option<u64>) {
        let mut sizes = self.sizes.0.lock();
        match size {
            Some(size) => drop(sizes.put(self.key, (size, self.state))),
            None => drop(sizes.pop(&self.key)),
        }
    }
}
