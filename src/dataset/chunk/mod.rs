//! Chunks: geometry, caches, dirty chunks, and their formats.

pub(crate) mod cache;
pub(crate) mod changed;
pub(crate) mod chunk_files;
pub(crate) mod defined;
pub(crate) mod dirty;
pub(crate) mod dirty_file;
pub(crate) mod dirty_needs;
pub(crate) mod disk_cache;
pub(crate) mod encoded;
pub(crate) mod file_image;
pub(crate) mod format;
pub(crate) mod gate;
pub(crate) mod grid;
pub(crate) mod image;
pub(crate) mod key;
pub(crate) mod pieces;
pub(crate) mod present;
pub(crate) mod reading;
pub(crate) mod source;
pub(crate) mod stored_size;
pub(crate) mod temporary;

pub(crate) use grid::ChunkGrid;

/// Structure that errors name for a chunk or a record that may be sound, but is too large for the
/// memory and the temporary files that there are.
pub(crate) const LARGE_DATA: &str = "large data";
