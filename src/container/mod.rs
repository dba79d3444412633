//! The containers that hold metadata, and how they are changed: B-trees, arrays, heaps and groups.
//! The containers that hold metadata: B-trees, arrays, heaps and groups.

pub mod attributes_edit;
pub mod btree1;
pub mod btree1_edit;
mod btree1_nodes;
pub mod btree2;
pub mod btree2_edit;
pub mod budget;
pub mod dense_attributes;
pub mod dense_attributes_edit;
pub mod dense_links;
pub mod dense_links_edit;
pub mod earray;
pub mod earray_edit;
pub mod extent;
pub mod farray;
pub mod farray_edit;
pub mod first_change;
pub mod fractal_heap;
pub mod fractal_heap_edit;
pub mod global_heap;
pub mod global_heap_edit;
pub mod group;
pub mod group_btree;
pub mod group_edit;
pub mod group_list;
pub mod heap_names;
mod index_walk;
pub mod local_heap;
pub mod local_heap_edit;
pub mod references;
pub mod shared_messages;
pub mod shared_messages_edit;
pub mod symbol_table_edit;

#[cfg(test)]
mod array_edit_tests;
#[cfg(test)]
mod edit_oracle;
#[cfg(test)]
mod oracle;
#[cfg(test)]
mod tests;
