//! The containers that hold metadata: B-trees and heaps.

pub mod btree2;
pub mod group_btree;
pub mod group_list;
pub mod heap_names;
pub mod extent;
pub mod fractal_heap;
pub mod global_heap;
pub mod local_heap;
pub mod shared_messages;
