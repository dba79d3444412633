//! Options: command line, `-o` list and configuration file are merged into one checked plan.
//!
//! ```text
//! args      the command line                     fstab    -o key=value[,...]
//! options   the mount options, each optional     file     the YAML file
//! value     sizes, modes, switches, users        target   FILE[:/group]
//! memory    the default cache size               create   the rules for new files
//! help      the screen of h5dir, examples    side_args, iod_args  arguments of some commands
//! yaml      nodes with their places              problem  a place and what is wrong there
//! layers    the sources of the options           catalog  files of the machine and the user
//! new_files, new_file_args  properties of new HDF5 files
//! applicable  options without effect on a source
//! resolve   merges, applies defaults, checks     effective, schema  for config show and editors
//! ```
//! Precedence: long option, then `-o`, then the mount in the file, then `defaults:` of the file,
//! then the default.

mod applicable;
pub(crate) mod args;
pub(crate) mod attr_args;
pub(crate) mod catalog;
pub(crate) mod create;
pub(crate) mod effective;
pub(crate) mod file;
pub(crate) mod file_options;
pub(crate) mod find_args;
pub mod fstab;
pub(crate) mod help;
pub(crate) mod iod_args;
pub(crate) mod layers;
pub(crate) mod memory;
pub(crate) mod new_file_args;
pub(crate) mod new_files;
pub(crate) mod options;
pub(crate) mod problem;
pub(crate) mod resolve;
pub(crate) mod schema;
pub(crate) mod side_args;
pub(crate) mod target;
pub(crate) mod value;
pub(crate) mod view_args;
pub(crate) mod yaml;

pub(crate) use resolve::{LogPlan, MountPlan};

/// A wrong option, value or configuration file: one sentence.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct UsageError(pub(crate) String);
