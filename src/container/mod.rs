//! The containers that hold metadata: B-trees, arrays and heaps.

pub mod btree1;
pub mod btree2;
pub mod budget;
pub mod earray;
pub mod extent;
pub mod farray;
pub mod fractal_heap;
pub mod global_heap;
pub mod local_heap;
pub mod shared_messages;

#[cfg(test)]
mod tests;
