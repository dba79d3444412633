//! Extents of a group's links outside of its object header, and a check that listing does not need.

use super::edit::table;
use super::read::GroupStorage;
use super::symbol_table_edit;
use crate::base::Result;
use crate::format::message::symbol_table::SymbolTable;
use crate::meta::Store;
use crate::meta::extent::Visit;
use crate::structures::dense_storage::DenseStorage;
use crate::structures::local_heap;

/// Visits the structures of `storage`, not the objects of the links.
pub(crate) fn extents(store: &Store, storage: &GroupStorage, visit: &mut Visit<'_>) -> Result<()> {
    match *storage {
        GroupStorage::SymbolTable { btree, heap } => symbol_table_edit::extents(store, &table(store, SymbolTable { btree, heap })?, visit),
        GroupStorage::Compact(_) => Ok(()),
        GroupStorage::Dense { fractal_heap: heap, name_index, creation_index } => {
            let creation_index = creation_index.defined().is_some().then_some(creation_index);
            DenseStorage { heap, name_index, creation_index }.extents(store, visit)
        }
    }
}

/// Errors: the list of free blocks among the names of `storage` is damaged.
pub(crate) fn check_free_names(store: &Store, storage: &GroupStorage) -> Result<()> {
    match *storage {
        GroupStorage::SymbolTable { heap, .. } => local_heap::edit::check_free_list(store, heap),
        GroupStorage::Compact(_) | GroupStorage::Dense { .. } => Ok(()),
    }
}
