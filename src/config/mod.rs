//! What the user asks for: command line, `-o` list and configuration file become one checked plan.
//!
//! ```text
//! args      the command line as typed            fstab    -o key=value[,...]
//! options   the mount options, each optional     file     the YAML file
//! value     sizes, modes, switches, users        target   FILE[:/group]
//! memory    the default cache size               create   the rules for new files
//! resolve   all of it, with defaults, checked
//! ```
//! Precedence: long option, then `-o`, then the file, then the default.

pub mod args;
pub mod create;
pub mod file;
pub mod fstab;
pub mod memory;
pub mod options;
pub mod resolve;
pub mod target;
pub mod value;

pub use resolve::{LogPlan, MountPlan};

/// A request that cannot be followed: one sentence.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct UsageError(pub String);
