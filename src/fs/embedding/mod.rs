//! File systems within another one: the containers in the tree of a mirror, and the trees of
//! transactions in the mount of their container.
//!
//! ```text
//! traits      what an embedder says: where a file is, and how answers read outside
//! operations  every request: sent to where the file is, its answer in the numbers outside
//! ```
//!
//! Each file system has inode numbers and handles of its own. The embedder gives those of the
//! embedded ones numbers outside, which the kernel uses. Which numbers these are, and when an
//! embedded file system is open, is the embedder's; which part of a request and of its answer is
//! translated is decided here.

mod operations;
#[cfg(test)]
mod tests;
mod traits;

pub use operations::Embedding;
pub use traits::{At, Embedder, Entered, Inside, Use, remove_name};
