//! The containers that hold metadata: B-trees and heaps.

pub mod btree2;
pub mod extent;
pub mod fractal_heap;
pub mod global_heap;
pub mod local_heap;
pub mod shared_messages;

#[cfg(test)]
mod tests;
