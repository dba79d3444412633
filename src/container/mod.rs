//! The containers that hold metadata: B-trees, heaps and groups.
//! The containers that hold metadata: B-trees, arrays and heaps.

pub mod attributes_edit;
pub mod btree1;
pub mod btree2;
pub mod btree2_edit;
pub mod budget;
pub mod dense_attributes;
pub mod dense_attributes_edit;
pub mod dense_links;
pub mod dense_links_edit;
pub mod earray;
pub mod extent;
pub mod farray;
pub mod fractal_heap;
pub mod fractal_heap_edit;
pub mod global_heap;
pub mod group;
pub mod group_btree;
pub mod group_list;
pub mod heap_names;
mod index_walk;
pub mod local_heap;
pub mod shared_messages;

#[cfg(test)]
mod oracle;
#[cfg(test)]
mod tests;
