//! Real mounts of the in-memory file system: the FUSE adapter, the session and the daemon, without HDF5.
//!
//! They need /dev/fuse and root; where that is missing they fail. Each mount is taken down by a guard,
//! also when its test fails.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod adapter;
mod daemon;
mod support;
mod views;
mod writing;
