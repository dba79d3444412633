//! Extents of a group's links outside of its object header.

use super::edit::table;
use super::read::GroupStorage;
use super::symbol_table_edit;
use crate::base::Result;
use crate::format::message::symbol_table::SymbolTable;
use crate::meta::Store;
use crate::meta::extent::Visit;
use crate::structures::dense_storage::DenseStorage;

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
