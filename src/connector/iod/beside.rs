//! What an open container keeps beside its state: other versions, and how it follows new ones.

use crate::base::locks::{Mutex, RwLock};
use crate::base::lru_cache::lru_cache;
use crate::connector::ObjectId;
use crate::connector::open::Backing;
use foldhash::HashMap;
use lru::LruCache;
use std::num::NonZeroUsize;
use std::sync::{Arc, Weak};
use std::time::Instant;

/// Versions that are kept open.
const OPEN_MAX: NonZeroUsize = NonZeroUsize::MIN.saturating_add(7);
/// Versions whose time is kept.
const TIMES_MAX: NonZeroUsize = NonZeroUsize::MIN.saturating_add(4095);

/// Other versions; `C`: an open one.
pub(super) struct Siblings<C> {
    pub open: Mutex<LruCache<u32, Arc<C>>>,
    /// When versions were committed, seconds since 1970.
    pub times: Mutex<LruCache<u64, u64>>,
    /// Versions after the first number, as listed last.
    pub listed: Mutex<(u64, Arc<[u64]>)>,
}

impl<C> Siblings<C> {
    pub fn new() -> Self {
        let (open, times) = (lru_cache(OPEN_MAX), lru_cache(TIMES_MAX));
        Siblings { open: Mutex::new(open), times: Mutex::new(times), listed: Mutex::new((0, Arc::default())) }
    }
}

/// Trees of the transactions of a container; `C`: an open one.
pub(super) struct Trees<C> {
    /// Those that are open, by name.
    pub opened: Mutex<HashMap<String, Weak<C>>>,
    /// Transactions that had not ended at some time.
    pub running: Mutex<HashMap<String, Instant>>,
}

impl<C> Default for Trees<C> {
    fn default() -> Self {
        Trees { opened: Mutex::default(), running: Mutex::default() }
    }
}

/// How new versions are followed.
pub(super) struct Following {
    /// Path of the group that is shown.
    pub group: Option<Vec<u8>>,
    /// The group that is shown, and the times of its version.
    pub mounted: RwLock<(ObjectId, Backing)>,
    pub looks: Mutex<Looks>,
}

/// Requests for newer versions.
#[derive(Default)]
pub(super) struct Looks {
    pub last: Option<Instant>,
    /// The last one failed, which was logged.
    pub failing: bool,
}
