//! The tree of names: nodes that the kernel knows, look-ups, and listings of directories.

mod listings;
mod node;
mod table;
mod tree;
mod unlinked;

pub use node::{Node, NodePlace, is_of_object};
pub use tree::Namespace;
