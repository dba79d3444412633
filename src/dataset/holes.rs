//! Which bytes of a chunked dataset take storage: `st_blocks`, SEEK_DATA and SEEK_HOLE.

use super::chunked::Chunked;
use super::environment::Environment;
use super::storage::Seek;
use crate::base::Result;
use crate::meta::Store;

impl Chunked {
    /// Stored bytes of all chunks. Those that are not in the file yet count in full.
    pub fn allocated(&self, env: &Environment, store: &Store) -> Result<u64> {
        let known = env.stored.get(self.number).filter(|_| !self.is_implicit);
        let stored = match known {
            Some(bytes) => bytes,
            None => {
                let bytes = self.map(store)?.stored_bytes;
                env.stored.set(self.number, bytes);
                bytes
            }
        };
        Ok(stored.saturating_add(env.dirty.added(self.number)))
    }

    /// Chunks that are in the file.
    pub fn chunks_there(&self, store: &Store) -> Result<u64> {
        Ok(self.map(store)?.count)
    }

    /// As `seek`, where some chunks are not in the file yet: they are data, or a copy made by looking for holes would lack them.
    pub fn seek_changed(&self, env: &Environment, store: &Store, offset: u64, what: Seek) -> Result<Option<u64>> {
        let stored = self.seek(store, offset, what)?;
        let changed = env.dirty.of(self.number);
        if what == Seek::Data {
            let first = changed.iter().filter_map(|(key, _)| self.grid.first_byte_in(key.chunk, offset));
            return Ok(first.chain(stored).min());
        }
        let mut hole = stored;
        while let Some(at) = hole
            && let Some((chunk, end)) = self.grid.chunk_at(at)
            && changed.binary_search_by_key(&chunk, |(key, _)| key.chunk).is_ok()
        {
            hole = if end < self.grid.total() { self.seek(store, end, what)? } else { Some(end) };
        }
        Ok(hole)
    }

    /// Next data or hole at or after `offset`.
    pub fn seek(&self, store: &Store, offset: u64, what: Seek) -> Result<Option<u64>> {
        let map = self.map(store)?;
        Ok(match what {
            Seek::Data => map.next_data(&self.grid, offset),
            Seek::Hole => Some(map.next_hole(&self.grid, offset)),
        })
    }
}
