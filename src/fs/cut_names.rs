//! Names too long for a file: cut, with a hash at the end, and found again by that hash.
//!
//! The container finds names, not hashes of names: a search goes through all names of the group. So
//! that a listing of thousands of them does not search thousands of times, what a search saw is
//! kept.

use super::name::{CUT_HASH, cut_hash, hash};
use crate::base::Result;
use crate::base::locks::Mutex;
use crate::base::lru_cache::lru_cache;
use crate::connector::ObjectId;
use lru::LruCache;
use std::collections::HashMap;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Groups and objects whose long names are cached.
const CACHED_OBJECTS: NonZeroUsize = NonZeroUsize::new(4).unwrap();
/// Most bytes of cached names of one object.
const NAME_BYTES_MAX: usize = 8 << 20;
/// Names of fewer bytes are never cut.
const CUT_NAME_BYTES_MIN: usize = 64;

/// Which names: links or attributes of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Names {
    /// Links of a group.
    Links(ObjectId),
    /// Attributes of an object.
    Attributes(ObjectId),
}

type ByHash = HashMap<u64, Box<[u8]>>;

/// Long names by their hashes.
pub struct CutNames {
    kept: Mutex<LruCache<Names, Arc<ByHash>>>,
    /// Rises when all cached names may be outdated.
    cleared: AtomicU64,
}

impl CutNames {
    /// An empty cache.
    pub fn new() -> Self {
        CutNames { kept: Mutex::new(lru_cache(CACHED_OBJECTS)), cleared: AtomicU64::new(0) }
    }

    /// Drops cached names of one object: they may have changed.
    pub fn forget(&self, names: Names) {
        self.kept.lock().pop(&names);
    }

    /// Drops all cached names: they may have changed.
    pub fn clear(&self) {
        self.cleared.fetch_add(1, Ordering::AcqRel);
        self.kept.lock().clear();
    }

    /// The name that is cut to `shown`. `show` cuts names; `visit` passes all names until its
    /// callback returns false. Of names with the same hash only one is found.
    pub fn find(
        &self,
        names: Names,
        shown: &[u8],
        show: &dyn Fn(&[u8]) -> Vec<u8>,
        visit: &mut dyn FnMut(&mut dyn FnMut(&[u8]) -> bool) -> Result<()>,
    ) -> Result<Option<Vec<u8>>> {
        let Some(wanted) = shown.len().checked_sub(CUT_HASH).and_then(|at| cut_hash(shown.get(at..)?)) else { return Ok(None) };
        let known = self.kept.lock().get(&names).cloned();
        if let Some(known) = known {
            return Ok(known.get(&wanted).filter(|n| show(n) == shown).map(|n| n.to_vec()));
        }
        let cleared = self.cleared.load(Ordering::Acquire);
        let (mut seen, mut bytes, mut found) = (ByHash::new(), 0usize, None);
        visit(&mut |name| {
            if name.len() < CUT_NAME_BYTES_MIN {
                return true;
            }
            let h = hash(name);
            if h == wanted && show(name) == shown {
                found = Some(name.to_vec());
            }
            if bytes <= NAME_BYTES_MAX {
                bytes = bytes.saturating_add(name.len()).saturating_add(CUT_NAME_BYTES_MIN);
                seen.insert(h, name.into());
            }
            bytes <= NAME_BYTES_MAX || found.is_none()
        })?;
        let mut kept = self.kept.lock();
        if bytes <= NAME_BYTES_MAX && cleared == self.cleared.load(Ordering::Acquire) {
            kept.put(names, Arc::new(seen));
        }
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::super::name::file_name;
    use super::*;
    use crate::connector::memory::MemoryConnector;

    /// Regression: each look-up of a cut name went through all names of the group.
    #[test]
    fn one_search_serves_many_look_ups() {
        let names: Vec<Vec<u8>> = (0..1000).map(|i| format!("{}{i}", "x".repeat(300)).into_bytes()).collect();
        let cut = CutNames::new();
        let id = Names::Links(MemoryConnector::id(48));
        let mut visits = 0;
        let show = |n: &[u8]| file_name(n).into_owned();
        let mut find = |shown: &[u8]| {
            let mut visit = |f: &mut dyn FnMut(&[u8]) -> bool| {
                visits += 1;
                let _ = names.iter().all(|n| f(n));
                Ok(())
            };
            cut.find(id, shown, &show, &mut visit).unwrap()
        };
        for n in &names {
            assert_eq!(find(&show(n)).as_ref(), Some(n));
        }
        assert_eq!(find(&show(&[b'y'; 300])), None);
        assert_eq!((find(b"short"), find(b"%~0123456789ABCDEG")), (None, None));
        assert_eq!(visits, 1);
    }
}
