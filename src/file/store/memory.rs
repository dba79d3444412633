//! A store in memory. Clones share it: each is a session of its own.

use super::{ObjectStore, names, part};
use crate::base::locks::Mutex;
use std::collections::BTreeMap;
use std::io;
use std::ops::{Bound, Range};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Objects by key.
#[derive(Debug, Clone, Default)]
pub struct MemoryStore {
    objects: Arc<Mutex<BTreeMap<String, Arc<Vec<u8>>>>>,
    counters: Arc<[AtomicU64; 3]>,
}

impl MemoryStore {
    /// Another store with the same objects.
    pub fn copied(&self) -> MemoryStore {
        MemoryStore { objects: Arc::new(Mutex::new(self.objects.lock().clone())), ..MemoryStore::default() }
    }

    /// All keys.
    pub fn keys(&self) -> Vec<String> {
        self.objects.lock().keys().cloned().collect()
    }

    /// Bytes of all objects.
    pub fn bytes(&self) -> u64 {
        self.objects.lock().values().fold(0, |sum, object| sum.saturating_add(object.len() as u64))
    }

    fn count(&self, received: usize, sent: usize) {
        let [requests, bytes_in, bytes_out] = &*self.counters;
        requests.fetch_add(1, Ordering::Relaxed);
        bytes_in.fetch_add(received as u64, Ordering::Relaxed);
        bytes_out.fetch_add(sent as u64, Ordering::Relaxed);
    }
}

impl ObjectStore for MemoryStore {
    fn get(&self, key: &str, range: Range<u64>) -> io::Result<Vec<u8>> {
        let found = self.objects.lock().get(key).cloned();
        let bytes = found.map(|object| part(&object, &range));
        self.count(bytes.as_ref().map_or(0, Vec::len), 0);
        bytes.ok_or_else(|| io::Error::from_raw_os_error(libc::ENOENT))
    }

    fn put(&self, key: &str, bytes: &[u8]) -> io::Result<()> {
        names(key)?;
        self.count(0, bytes.len());
        self.objects.lock().insert(key.to_owned(), Arc::new(bytes.to_vec()));
        Ok(())
    }

    fn create(&self, key: &str, bytes: &[u8]) -> io::Result<bool> {
        names(key)?;
        self.count(0, bytes.len());
        let mut objects = self.objects.lock();
        if objects.contains_key(key) {
            return Ok(false);
        }
        objects.insert(key.to_owned(), Arc::new(bytes.to_vec()));
        Ok(true)
    }

    fn list_after(&self, prefix: &str, after: &str) -> io::Result<Vec<String>> {
        self.count(0, 0);
        let objects = self.objects.lock();
        let from = if after > prefix { Bound::Excluded(after) } else { Bound::Included(prefix) };
        let keys = objects.range::<str, _>((from, Bound::Unbounded)).map(|(key, _)| key);
        Ok(keys.take_while(|key| key.starts_with(prefix)).cloned().collect())
    }

    fn head(&self, key: &str) -> io::Result<Option<u64>> {
        self.count(0, 0);
        Ok(self.objects.lock().get(key).map(|object| object.len() as u64))
    }

    fn delete(&self, key: &str) -> io::Result<()> {
        self.count(0, 0);
        self.objects.lock().remove(key);
        Ok(())
    }

    fn counters(&self) -> [u64; 3] {
        [0, 1, 2].map(|i| self.counters.get(i).map_or(0, |n: &AtomicU64| n.load(Ordering::Relaxed)))
    }
}
