//! Maps of the in-memory model: reading and changing them.

use super::maps::{EditMaps, KeyVisitor, MapTypes, Maps, no_key, no_map, not_a_directory, not_empty};
use super::memory::{MemoryConnector, MemoryObject};
use super::memory_map::MemoryMap;
use super::{ObjectId, Result};
use crate::base::Error;
use std::collections::BTreeMap;

impl MemoryConnector {
    fn map(&self, id: ObjectId) -> Result<MemoryMap> {
        self.with(id, |o| o.map.clone())?.ok_or_else(|| no_map(id))
    }

    fn change_map<T>(&self, id: ObjectId, f: impl FnOnce(&mut MemoryMap) -> Result<T>) -> Result<T> {
        self.change(|s| f(s.object_mut(id)?.map.as_mut().ok_or_else(|| no_map(id))?))
    }
}

impl MemoryObject {
    /// Makes an empty group or map a map.
    fn make_map(&mut self, types: &MapTypes) -> Result<()> {
        let empty = match (&self.links, &self.map) {
            (Some(links), _) => links.is_empty(),
            (None, Some(map)) => map.pairs.is_empty(),
            (None, None) => return Err(not_a_directory()),
        };
        if !empty {
            return Err(not_empty());
        }
        (self.links, self.map) = (None, Some(MemoryMap { types: types.clone(), pairs: BTreeMap::new() }));
        Ok(())
    }
}

impl Maps for MemoryConnector {
    fn types(&self, id: ObjectId) -> Result<MapTypes> {
        self.map(id).map(|map| map.types)
    }

    fn value(&self, id: ObjectId, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let map = self.map(id)?;
        map.types.check_key(key)?;
        Ok(map.pairs.get(key).cloned())
    }

    fn keys(&self, id: ObjectId, start: u64, f: &mut KeyVisitor<'_>) -> Result<()> {
        for (next, key) in (1u64..).zip(self.map(id)?.pairs.keys()).filter(|(next, _)| *next > start) {
            if f(key, next).is_break() {
                break;
            }
        }
        Ok(())
    }
}

impl EditMaps for MemoryConnector {
    fn become_map(&self, id: ObjectId, types: &MapTypes) -> Result<()> {
        types.check()?;
        if id == Self::id(0) {
            return Err(Error::refused(libc::EINVAL, "the root group cannot be made a map"));
        }
        self.change(|s| s.object_mut(id)?.make_map(types))
    }

    fn put(&self, id: ObjectId, key: &[u8], value: &[u8]) -> Result<()> {
        self.change_map(id, |map| {
            map.types.check_key(key)?;
            map.types.check_value(value)?;
            map.pairs.insert(key.to_vec(), value.to_vec());
            Ok(())
        })
    }

    fn remove(&self, id: ObjectId, key: &[u8]) -> Result<()> {
        self.change_map(id, |map| map.pairs.remove(key).map(drop).ok_or_else(no_key))
    }

    fn rekey(&self, id: ObjectId, from: &[u8], to: &[u8], replace: bool) -> Result<()> {
        self.change_map(id, |map| {
            map.types.check_key(to)?;
            let value = map.pairs.get(from).cloned().ok_or_else(no_key)?;
            if from != to && !replace && map.pairs.contains_key(to) {
                return Err(Error::refused(libc::EEXIST, "the map has the new key"));
            }
            map.pairs.remove(from);
            map.pairs.insert(to.to_vec(), value);
            Ok(())
        })
    }
}
