//! container layer.

pub mod btree2;
pub mod group_btree;
pub mod group_list;
pub mod heap_names;
