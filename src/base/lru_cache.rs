//! LRU caches that take memory as they fill.

use lru::LruCache;
use std::hash::Hash;
use std::num::NonZeroUsize;

/// An empty cache of at most `most` entries. `LruCache::new` allocates a table for all of them at
/// once, which is much for a file of which little is read, and more for a thousand open files.
pub fn lru_cache<K: Hash + Eq, V>(most: NonZeroUsize) -> LruCache<K, V> {
    let mut cache = LruCache::unbounded();
    cache.resize(most);
    cache
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_cache_drops_what_was_used_first() {
        let mut cache = lru_cache(NonZeroUsize::MIN.saturating_add(1));
        (0..5u32).for_each(|n| assert_eq!(cache.put(n, n), None));
        assert_eq!((cache.len(), cache.peek(&3), cache.peek(&4), cache.peek(&2)), (2, Some(&3), Some(&4), None));
    }
}
