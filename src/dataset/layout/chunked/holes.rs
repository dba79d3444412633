//! Allocated bytes and holes of a chunked dataset: `st_blocks`, SEEK_DATA and SEEK_HOLE.

use super::read::Chunked;
use crate::base::Result;
use crate::dataset::environment::Environment;
use crate::dataset::layout::traits::Seek;
use crate::meta::Store;

impl Chunked {
    /// Stored bytes of all chunks. New dirty chunks count with their decoded size.
    pub(super) fn stored_bytes(&self, env: &Environment, store: &Store) -> Result<u64> {
        let known = env.stored.get(self.number).filter(|_| !self.is_implicit);
        let stored = match known {
            Some(bytes) => bytes,
            None => {
                let bytes = self.map(store)?.stored_bytes;
                env.stored.set(self.number, bytes);
                bytes
            }
        };
        Ok(stored.saturating_add(env.dirty.added_bytes(self.number)))
    }

    /// Number of allocated chunks.
    pub(super) fn stored_chunk_count(&self, store: &Store) -> Result<u64> {
        Ok(self.map(store)?.count)
    }

    /// Next data or hole at or after `offset` of a dataset with dirty chunks, which count as data.
    pub(super) fn seek_with_dirty(&self, env: &Environment, store: &Store, offset: u64, what: Seek) -> Result<Option<u64>> {
        let stored = self.seek_in_file(store, offset, what)?;
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
            hole = if end < self.grid.total() { self.seek_in_file(store, end, what)? } else { Some(end) };
        }
        Ok(hole)
    }

    /// Next data or hole at or after `offset` in the file; ignores dirty chunks.
    pub(super) fn seek_in_file(&self, store: &Store, offset: u64, what: Seek) -> Result<Option<u64>> {
        let map = self.map(store)?;
        Ok(match what {
            Seek::Data => map.next_data(&self.grid, offset),
            Seek::Hole => Some(map.next_hole(&self.grid, offset)),
        })
    }
}
