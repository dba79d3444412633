//! Driver over an object of an object store, read by ranged GETs. Only this folder names tokio and
//! object_store.
//!
//! ```text
//! driver      RemoteFile, the FileDriver      open     from a URL to a driver
//! blocks      blocks in memory, transfers     disk     blocks in a directory
//! extents     bytes of packs in a directory   cache_directory, cache_file   its files
//! policy      what is fetched beyond a read   fetch    one GET: pin, retries, errors
//! service     the stores, by scheme           profile  credentials of AWS profiles
//! identity    names of stores and users in the disk cache
//! client      the HTTP client, redirects      answer   checks of all answers
//! objects     the store of a container below a prefix
//! prefix      objects below a prefix, for mirrors      listing  pages of names
//! ```

mod answer;
mod blocks;
mod cache_directory;
mod cache_file;
mod client;
mod disk;
mod driver;
mod extents;
mod failure;
mod fetch;
mod identity;
mod listing;
mod objects;
mod open;
mod policy;
mod prefix;
mod profile;
mod service;

#[cfg(fuzzing)]
pub use client::fuzzing;
pub use driver::RemoteFile;
pub use failure::Failure;
pub use objects::RemoteStore;
pub use open::{LocatedObject, locate};
pub use prefix::RemotePrefix;
