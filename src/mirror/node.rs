//! Nodes: what the inode numbers that the kernel knows stand for.

use super::containers::Container;
use crate::base::locks::{Mutex, RwLock};
use crate::fs::open::{Entry, Identity};
use crate::fs::types::{FileKind, Ino};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Texts about the mirror.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Text {
    /// The last warnings and errors.
    Log,
    /// Measurements in the format of Prometheus.
    Metrics,
    /// Counters.
    Status,
}

/// What a node is.
#[derive(Debug, Clone)]
pub enum What {
    /// A directory of the tree.
    Directory,
    /// Another file of the tree.
    File,
    /// A symbolic link of the tree.
    Symlink,
    /// A file of the tree that cannot be read.
    Unreadable,
    /// The root of a container.
    Container(Arc<Container>),
    /// A file or directory in a container.
    Inside(Arc<Container>, FileKind),
    /// `.h5dir` of the mirror.
    Control,
    /// A file with text about the mirror.
    Text(Text),
}

impl What {
    /// The container that it is, or is in.
    pub fn container(&self) -> Option<&Arc<Container>> {
        match self {
            What::Container(container) | What::Inside(container, _) => Some(container),
            _ => None,
        }
    }
}

/// What identifies a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Key {
    /// A file of the tree. `original`: below `.h5dir/files`. `container`: it is shown as one.
    Host {
        /// The file.
        identity: Identity,
        /// Below `.h5dir/files`.
        original: bool,
        /// Shown as a container.
        container: bool,
    },
    /// A file in a container: number of the container, and its inode number there.
    Inside(u64, Ino),
    /// `.h5dir` and the texts in it, by number.
    Control(u8),
}

impl Key {
    /// The inode number that a node has unless another one has it. It does not depend on the order
    /// of look-ups, nor on the run of the daemon, but for nodes in containers, where it depends on
    /// the file.
    pub fn number(&self, salt: Identity) -> Ino {
        let words = match self {
            Key::Host { identity, original, container } => {
                [identity.device, identity.inode, u64::from(*original) << 1 | u64::from(*container), 0]
            }
            Key::Inside(_, ino) => [salt.device, salt.inode, ino.0, 4],
            Key::Control(n) => [0, 0, u64::from(*n), 5],
        };
        // FNV-1a.
        let bytes = words.iter().flat_map(|word| word.to_le_bytes());
        let hash = bytes.fold(0xcbf2_9ce4_8422_2325u64, |h, b| (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3));
        Ino(hash.max(2))
    }
}

impl Text {
    /// What identifies its node.
    pub fn key(self) -> Key {
        Key::Control(match self {
            Text::Log => 1,
            Text::Metrics => 2,
            Text::Status => 3,
        })
    }
}

/// Deepest directory of the tree: longer paths are no paths for the system.
const DEPTH_MAX: usize = 2048;

/// Where a node is.
#[derive(Debug, Clone)]
pub struct MirrorPlace {
    /// Its directory; `None` at the root.
    pub parent: Option<Arc<Node>>,
    /// Name of the file in the tree, or in the container.
    pub name: Box<[u8]>,
}

/// Inode number in an open container.
#[derive(Debug, Clone, Copy, Default)]
pub struct Inner {
    /// When the container was opened; 0: never.
    pub generation: u64,
    /// Number in it; the mirror holds one reference there.
    pub ino: u64,
    /// The object that it is, which is the same in all openings; 0: that is not known.
    pub object: u64,
}

/// See the module's description.
#[derive(Debug)]
pub struct Node {
    /// Inode number.
    pub ino: Ino,
    /// What identifies it now.
    pub key: Mutex<Key>,
    /// What it is.
    pub what: What,
    /// Below `.h5dir/files`, where containers are files.
    pub original: bool,
    /// Where it is.
    pub place: RwLock<MirrorPlace>,
    /// References that the kernel holds.
    pub refs: AtomicU64,
    /// Number in the container.
    pub inner: Mutex<Inner>,
    /// Hash of the stamp that its file had when it was opened last.
    pub opened: AtomicU64,
    /// Its last name was removed.
    pub gone: AtomicBool,
    /// It keeps its container open, because no name leads to it.
    pub holds: AtomicBool,
}

/// The node of a file that is in no table yet.
pub fn host_key(entry: &Entry, original: bool, what: &What) -> Key {
    Key::Host { identity: entry.status.identity, original, container: matches!(what, What::Container(_)) }
}

impl Node {
    /// A node that is in no table yet.
    pub fn new(ino: Ino, key: Key, what: What, original: bool, place: MirrorPlace) -> Node {
        let (refs, inner, opened, gone, holds) = Default::default();
        Node { ino, key: Mutex::new(key), what, original, place: RwLock::new(place), refs, inner, opened, gone, holds }
    }

    /// Where it is.
    pub fn place(&self) -> MirrorPlace {
        self.place.read().clone()
    }

    /// Its directory; `None` at the root.
    pub fn parent(&self) -> Option<Arc<Node>> {
        self.place.read().parent.clone()
    }

    /// True if it is `other`, or a directory above it.
    pub fn is_above(&self, other: &Arc<Node>) -> bool {
        let mut up = std::iter::successors(Some(other.clone()), |node| node.parent()).take(DEPTH_MAX);
        up.any(|node| node.ino == self.ino)
    }

    /// True if its last name was removed.
    pub fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Acquire)
    }

    /// It is `name` in `parent` now.
    pub(super) fn put(&self, parent: &Arc<Node>, name: &[u8]) {
        *self.place.write() = MirrorPlace { parent: Some(parent.clone()), name: name.into() };
    }

    /// Name of its file.
    pub fn name(&self) -> OsString {
        OsStr::from_bytes(&self.place.read().name).to_owned()
    }

    /// True if it is a directory of the tree from which paths start.
    fn starts_paths(&self) -> bool {
        self.place.read().parent.as_ref().is_none_or(|parent| matches!(parent.what, What::Control))
    }

    /// Names from the root of the tree to it. It must be in the tree, not in a container.
    pub fn names(self: &Arc<Node>) -> Vec<Vec<u8>> {
        let mut names = Vec::new();
        let mut at = self.clone();
        while !at.starts_paths() && names.len() < DEPTH_MAX {
            let MirrorPlace { parent, name } = at.place();
            names.push(name.into_vec());
            match parent {
                Some(parent) => at = parent,
                None => break,
            }
        }
        names.reverse();
        names
    }

    /// Path from the root of the tree to it. It must be in the tree, not in a container.
    pub fn path(self: &Arc<Node>) -> PathBuf {
        self.names().iter().map(|name| OsStr::from_bytes(name)).collect()
    }
}

/// Drops a chain of directories one by one: recursion would overflow the stack.
impl Drop for Node {
    fn drop(&mut self) {
        let mut next = self.place.get_mut().parent.take();
        while let Some(mut parent) = next.and_then(Arc::into_inner) {
            next = parent.place.get_mut().parent.take();
        }
    }
}
