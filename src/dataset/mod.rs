//! Dataset storage (libhdf5's H5D): layouts, chunk caches, chunk formats, chunk indexes.

pub(crate) mod allocation_map;
pub(crate) mod chunk;
pub(crate) mod create;
pub(crate) mod creation;
pub mod environment;
pub(crate) mod fill;
pub(crate) mod heap;
pub(crate) mod index;
pub mod layout;
pub(crate) mod parameters;
pub(crate) mod parts;
pub(crate) mod reference;
