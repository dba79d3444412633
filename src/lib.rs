//! h5dir: an HDF5 engine in safe Rust and the file system that shows it.
//!
//! Layers import downwards only (`tests/tidy` checks it):
//!
//! ```text
//! cli, config > {fuse | mirror} > fs > present > connector
//!     > {dataset > {structures, filter} > meta | iod} > {format | file} > base
//! ```

pub mod base;
pub mod cli;
pub mod config;
pub mod connector;
pub mod dataset;
pub mod file;
pub mod filter;
pub mod format;
pub mod fs;
pub mod fuse;
pub mod iod;
pub mod meta;
pub mod mirror;
pub mod present;
pub mod structures;

/// The Python of the tests that let libhdf5 work.
#[cfg(test)]
#[path = "../tests/support/python.rs"]
mod python;
