//! Version 1 B-trees: indexes of chunked datasets and of old-style groups.
//!
//! ```text
//! node: key | child | key | child | ... | key
//! children of level n: nodes of level n - 1; of level 0: chunks, or symbol table nodes
//! ```
//!
//! `read` loads nodes, looks entries up and walks a tree; `node_edit` changes nodes of either kind;
//! `edit` changes chunk indexes; `structures/group/symbol_table_edit` changes those of groups.
//! H5.format.4.0, "Version 1 B-trees".

pub(crate) mod edit;
pub(in crate::structures) mod node_edit;
mod read;

pub(in crate::structures) use read::{NODE_BYTES_EXPECTED, load};
pub use read::{estimate, find, iterate, iterate_from};
