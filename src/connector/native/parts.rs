//! Parts of elements of one file: objects of its global heap, paths of what references name.

use super::NativeConnector;
use super::access::Access;
use super::file::HdfFile;
use super::paths::Paths;
use crate::base::parts::{Budget, Parts};
use crate::base::{Address, Error, Result};
use crate::connector::ObjectId;
use crate::dataset::heap::Heap;
use crate::format::Context;
use crate::meta::Store;
use crate::structures::global_heap;
use std::sync::Arc;

/// Follows the addresses in values of one file, each by an access of its own.
struct FileParts {
    connector: Arc<NativeConnector>,
    file: u32,
    store: Arc<Store>,
}

impl Heap for FileParts {
    fn ctx(&self) -> &Context {
        self.store.ctx()
    }

    fn object(&self, collection: Address, index: u32, budget: &mut Budget) -> Result<Vec<u8>> {
        PartsWithin { access: &self.connector.access(), file: self.file, store: &self.store }.object(collection, index, budget)
    }

    fn path(&self, address: Address) -> Option<Vec<u8>> {
        PartsWithin { access: &self.connector.access(), file: self.file, store: &self.store }.path(address)
    }
}

/// Follows the addresses in values of one file within an access.
pub(super) struct PartsWithin<'a> {
    access: &'a Access<'a>,
    file: u32,
    store: &'a Store,
}

impl Heap for PartsWithin<'_> {
    fn ctx(&self) -> &Context {
        self.store.ctx()
    }

    fn object(&self, collection: Address, index: u32, budget: &mut Budget) -> Result<Vec<u8>> {
        budget.read(global_heap::locate(self.store, collection, index)?.1)?;
        global_heap::object(self.store, collection, index).map(|o| o.to_vec())
    }

    fn path(&self, address: Address) -> Option<Vec<u8>> {
        self.access.path_from_root(ObjectId { file: self.file, address })
    }
}

impl NativeConnector {
    /// Reads parts of elements of file number `file`.
    pub(super) fn parts(&self, file: u32) -> Result<Arc<dyn Parts + Send + Sync>> {
        let connector = self.this.upgrade().ok_or_else(|| Error::corrupt("object", Address::UNDEF, "the container is closed"))?;
        Ok(Arc::new(FileParts { connector, file, store: self.file(file)?.store.clone() }))
    }
}

impl Access<'_> {
    /// Reads parts of elements of `file` within this access.
    pub(super) fn parts<'a>(&'a self, file: &'a HdfFile) -> PartsWithin<'a> {
        PartsWithin { access: self, file: file.index, store: &file.store }
    }

    /// A path of the object `id` from the root of its file.
    pub(super) fn path_from_root(&self, id: ObjectId) -> Option<Vec<u8>> {
        let file = self.connector.file(id.file).ok()?;
        let generation = self.connector.generation();
        let mut all = self.connector.paths.lock();
        let paths = all.entry(id.file).or_default();
        let start = ObjectId { file: id.file, address: file.root };
        let leads_there = |path: &Vec<u8>| self.follow_path(start, path, &mut 0).is_ok_and(|found| found == Some(id));
        match paths.find(&file, id.address) {
            // Names may have been moved, or made in groups that were visited.
            Some(path) if paths.is_of(generation) || leads_there(&path) => Some(path),
            None if paths.is_of(generation) => None,
            _ => {
                *paths = Paths::new(generation);
                paths.find(&file, id.address)
            }
        }
    }
}
