//! A tree of files, with every container in it shown as a directory: a directory of the host, or
//! the objects below a prefix.
//!
//! ```text
//! mirror_fs    the parts together; `.h5dir`
//! operations   requests for files of the tree and for `.h5dir`, by kind of node
//! tree         files of the tree: names, attributes, changes
//! files        the traits of a tree of files; a directory of the host
//! object_tree  the objects below a prefix as a tree of files
//! host_io      reads and writes of open files of the tree
//! listing      entries of a directory of the tree
//! contained    files in containers: where a request is sent, and its answer (`fs::embedding`)
//! inside       files in containers: numbers and handles, of the container as it is open now
//! containers   opens containers at first use, closes them when idle
//! signatures   which files are containers
//! handles      open files and directories
//! node, table  what inode numbers stand for
//! control      .h5dir of the mirror
//! visit        containers one after another, for commands that read whole files
//! ```
//!
//! Files of a directory are reached by path from the descriptor of its root, without symbolic
//! links, and compared with the file that the kernel looked up: a file that was replaced is
//! `ESTALE`, and the kernel looks its name up again. Objects are compared by their ETag.

mod contained;
mod containers;
mod control;
mod files;
mod handles;
mod host_io;
mod inside;
mod listing;
mod mirror_fs;
mod node;
mod object_tree;
mod operations;
mod signatures;
pub mod spec;
mod table;
mod tree;
mod visit;

pub use mirror_fs::{LocatedMirror, locate, open};
pub use spec::{MirrorSpec, Naming};
pub use visit::{ContainerVisitor, visit_containers};
