//! Version 2 B-trees: indexes of chunks, links, attributes and heap objects.
//!
//! ```text
//! header -> root node
//! internal node: record 0 | record 1 | ... | child 0 | child 1 | ...     records separate children
//! leaf:          record 0 | record 1 | ...
//! ```
//!
//! Records are opaque bytes of one size; callers compare them. `load` opens a tree and loads nodes;
//! `read` finds a record; `walk` visits records and nodes; `edit` creates, changes and deletes a
//! tree, with `records` as the records of one node. H5.format.4.0, "Version 2 B-trees".

pub(crate) mod edit;
mod load;
mod read;
mod records;
mod walk;

pub use load::BTree2;
pub use read::Compare;
pub use walk::Visit;
pub(in crate::structures) use walk::walk_past_damage;

#[cfg(test)]
#[path = "read_tests.rs"]
mod tests;
