//! Real mounts of HDF5 files by the built command, one file per operation.
//!
//! The files, and what h5py says of them, are in tests/fixtures/mount. They need /dev/fuse and root;
//! where that is missing they fail. Each mount is taken down by a guard, also when its test fails.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod accounting;
mod attributes;
mod chunk_indexes;
mod commands;
mod concurrent;
mod configuration;
mod control;
mod copies;
mod datasets;
mod defined;
mod event_loops;
mod expected;
mod external;
mod facts;
mod following;
mod incomplete_machine;
mod interrupted;
mod json;
mod links;
mod listing;
mod mappings;
mod memory;
mod modes;
mod mount_helper;
mod mounted;
mod names;
mod namespace;
mod orders;
mod other_files;
mod other_programs;
mod other_users;
mod posix;
#[path = "../support/python.rs"]
mod python;
#[path = "../support/random.rs"]
mod random;
mod ranges;
mod readonly;
mod replacing;
mod side_views;
mod sight;
mod space;
mod sparse;
mod stat;
mod subtree;
#[path = "../support/mod.rs"]
mod support;
mod tools;
mod unprivileged;
mod user_block;
mod variable;
mod views;
mod virtual_;
mod writing;
