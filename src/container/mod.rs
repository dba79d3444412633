//! The containers that hold metadata: B-trees and heaps.

pub mod btree2;
pub mod extent;
pub mod fractal_heap;
