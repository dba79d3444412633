//! Open files and directories.

use super::files::{Content, Name};
use super::node::Node;
use crate::base::locks::{Mutex, RwLock};
use crate::fs::open::FileDriver;
use crate::fs::types::{Errno, FsResult, Handle, Ino, OpenMode};
use foldhash::{HashMap, HashMapExt};
use std::fs::File;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// What is open.
pub enum What {
    /// A file of the tree.
    File(File),
    /// A file of a tree that is only read.
    Bytes(Arc<dyn FileDriver>),
    /// A text.
    Text(Vec<u8>),
    /// A directory of the tree: its names, read at the first listing.
    Directory(Mutex<Option<Arc<[Name]>>>),
    /// A file or directory in a container: generation and handle there.
    Inside(Mutex<(u64, Handle)>),
}

impl From<Content> for What {
    fn from(content: Content) -> What {
        match content {
            Content::File(file) => What::File(file),
            Content::Bytes(driver) => What::Bytes(driver),
        }
    }
}

/// An open file or directory.
pub struct OpenHandle {
    /// What it was opened by.
    pub node: Arc<Node>,
    /// How.
    pub mode: OpenMode,
    /// It is a directory.
    pub directory: bool,
    /// It is a directory whose listing has begun.
    pub listed: AtomicBool,
    /// What is open.
    pub what: What,
}

impl OpenHandle {
    /// The file of the host that is open. Errors: `EBADF`.
    pub fn file(&self) -> FsResult<&File> {
        if let What::File(file) = &self.what { Ok(file) } else { Err(Errno(libc::EBADF)) }
    }
}

/// See the module's description.
pub struct Handles {
    open: RwLock<HashMap<u64, Arc<OpenHandle>>>,
    next: AtomicU64,
}

impl Default for Handles {
    fn default() -> Self {
        Handles { open: RwLock::new(HashMap::new()), next: AtomicU64::new(1) }
    }
}

impl Handles {
    /// Enters an open file or directory.
    pub fn enter(&self, open: OpenHandle) -> Handle {
        let handle = Handle(self.next.fetch_add(1, Ordering::Relaxed));
        self.open.write().insert(handle.0, Arc::new(open));
        handle
    }

    /// What is open as `handle`.
    pub fn get(&self, handle: Handle) -> FsResult<Arc<OpenHandle>> {
        self.open.read().get(&handle.0).cloned().ok_or(Errno(libc::EBADF))
    }

    /// Removes what is open as `handle`.
    pub fn remove(&self, handle: Handle) -> Option<Arc<OpenHandle>> {
        self.open.write().remove(&handle.0)
    }

    /// What is open in the container with this number.
    pub fn inside(&self, container: u64) -> Vec<Arc<OpenHandle>> {
        let is_in = |open: &&Arc<OpenHandle>| open.node.what.container().is_some_and(|c| c.number == container);
        self.open.read().values().filter(is_in).cloned().collect()
    }

    /// Open files of the tree.
    pub fn files(&self) -> Vec<Arc<OpenHandle>> {
        self.open.read().values().filter(|open| matches!(open.what, What::File(_))).cloned().collect()
    }

    /// An open file that is the node `ino` of the tree, one open for writing if there is one.
    pub fn file(&self, ino: Ino) -> Option<File> {
        let open = self.open.read();
        let files = open.values().filter(|open| open.node.ino == ino && matches!(open.what, What::File(_)));
        match &files.max_by_key(|open| open.mode.write)?.what {
            What::File(file) => file.try_clone().ok(),
            _ => None,
        }
    }

    /// Number of open files and directories.
    pub fn len(&self) -> usize {
        self.open.read().len()
    }
}
