//! File-system semantics over a container: what each operation means, without any FUSE type.
//!
//! `fuse` translates kernel requests to [`Operations`] and back and decides nothing.

mod changes;
pub mod container;
pub mod create_rules;
mod cut_names;
mod defined_facts;
pub mod done;
mod edit;
pub mod embedding;
mod errno;
mod long_facts;
pub mod memory;
pub mod model;
mod mounted;
pub mod name;
mod namespace;
pub mod open;
mod open_files;
pub mod operations;
mod ownership;
pub mod page_guard;
mod reasons;
mod reload;
mod retry;
mod set_size;
mod sight;
pub mod spec;
mod stat;
mod subtree;
pub mod symlink;
mod times;
mod trees;
pub mod types;
mod views;
mod xattr;

pub use crate::present::{FACT_NAMES, Node as JsonTree, build_npy_header};
pub use done::{Done, Grown, Invalidate};
pub use namespace::is_of_object;
pub use open::{NewFile, SHARED_MESSAGES, Strategy, open};
pub use operations::{KernelMemory, Operations};
pub use spec::{ExternalPolicy, MountSpec, OpenError};
pub use types::{
    Attr, Caller, Changes, CloseError, Creator, DirEntry, DirEntryPlus, Entry, Errno, FileKind, FsResult, Handle, Ino, OpenMode, Opened,
    Sight, Statfs, Whence,
};
pub use views::{about_views, label, measurements, status_text};
