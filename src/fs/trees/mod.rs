//! Trees of transactions in the mount of their container.
//!
//! ```text
//! trees_fs  which trees there are       tree      one of them, and its file system
//! numbers   its inode numbers           embedded  where a request is sent (`fs::embedding`)
//! ```
//!
//! The tree of a transaction is a file system of its own, with all views, open files and caches.
//! It is shown in the place of the directory `.h5dir/tx/NAME/tree`, with inode numbers and handles
//! that the container does not use.

mod embedded;
mod numbers;
mod tree;
mod trees_fs;

pub use trees_fs::TreesFs;
