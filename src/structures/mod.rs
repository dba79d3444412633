//! On-disk structures that hold metadata: B-trees, arrays, heaps, groups and attribute storage.
//!
//! One folder each: `load` reads blocks, `read` looks up and `walk` visits entries, `edit` changes
//! the structure in place by address, tests beside them. Several structures share `budget` (bounded
//! walks), `dense_storage` (links and attributes in a heap), `estimate` (sizes without a walk),
//! `extent` (reads and frees of blocks), `order` (creation orders), `paged_elements` (arrays) and
//! `window` (buffered small reads).

pub(crate) mod attributes;
pub(crate) mod before_first_write;
pub(crate) mod btree1;
pub mod btree2;
mod budget;
mod dense_storage;
pub(crate) mod earray;
pub(crate) mod estimate;
mod extent;
pub(crate) mod farray;
pub(crate) mod file_space;
pub mod fractal_heap;
pub(crate) mod free_list;
pub(crate) mod free_space;
pub mod global_heap;
pub(crate) mod group;
mod leave_managers;
pub(crate) mod link_count;
pub mod local_heap;
pub(crate) mod order;
mod paged_elements;
pub mod shared_messages;
mod window;

#[cfg(test)]
mod array_tests;
#[cfg(test)]
mod edit_oracle;
#[cfg(test)]
mod oracle;
#[cfg(test)]
mod tests;
