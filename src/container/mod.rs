//! container layer.

pub mod btree1;
pub mod budget;
pub mod earray;
pub mod farray;
//! The containers that hold metadata: B-trees and heaps.

pub mod btree2;
pub mod extent;
pub mod fractal_heap;
pub mod global_heap;
pub mod local_heap;
pub mod shared_messages;
