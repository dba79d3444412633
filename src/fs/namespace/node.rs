//! Nodes: what the inode numbers that the kernel knows stand for.
//!
//! The number of a dataset comes from the address of its object header, so hard links share it. The
//! number of a directory comes from its path (the parent's number and its name): the kernel allows
//! a directory one parent only, so a group that is reached by two paths is two directories. Numbers
//! do not depend on the order of look-ups.

use crate::base::locks::RwLock;
use crate::connector::ObjectId;
use crate::fs::page_guard::{GuardedNode, Writes};
use crate::fs::set_size::SetSize;
use crate::fs::types::Ino;
use crate::fs::views::{Child, Inode, Item};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Where a node is.
#[derive(Debug, Clone)]
pub struct NodePlace {
    /// Directory it was found in; `None` at the root.
    pub parent: Option<Arc<Node>>,
    /// File name.
    pub name: Box<[u8]>,
    /// Link name where the file name shown differs from it.
    pub link_name: Option<Box<[u8]>>,
}

/// A node and its place.
#[derive(Debug)]
pub struct Node {
    /// Inode number.
    pub ino: Ino,
    /// What it stands for.
    pub item: Item,
    pub(super) place: RwLock<NodePlace>,
    /// Greatest address of a group from here up. Most groups have greater addresses than those they
    /// are in, so a cycle is excluded without a look at each. `ANY_ADDRESS` in a container that is
    /// changed.
    pub(super) greatest: u64,
    pub(super) refs: AtomicU64,
    /// Its object lost its last name, or its own name was removed.
    pub(super) gone: AtomicBool,
    /// Files open on it, and one if it was replaced.
    opens: AtomicU64,
    /// One more than EOF when the kernel was given a page padded past it, or 0.
    padded: AtomicU64,
    /// Writes to it.
    pub writes: Writes,
    /// The size that was set last.
    pub set_size: SetSize,
    /// State of the container in which it was found.
    pub state: u64,
    /// State of the container in which it was opened last.
    opened_in: AtomicU64,
    /// Changes by others when it was opened last.
    opened_after: AtomicU64,
    /// Open files that write through the pages that the kernel has of it.
    page_writers: AtomicU64,
    /// It became shorter by a fact, and the kernel may have the size before.
    is_shorter: AtomicBool,
}

impl Node {
    /// A node that is in no table yet.
    pub fn new(parent: &Arc<Node>, name: &[u8], link_name: Option<Box<[u8]>>, item: Item) -> Node {
        let greatest = parent.greatest.max(group_address(&item));
        let place = NodePlace { parent: Some(parent.clone()), name: name.into(), link_name };
        Self::at(number(parent.ino, name, &item), item, place, greatest, parent.state)
    }

    /// The node of `child` in directory `parent`, and its file name.
    pub fn of_child(parent: &Arc<Node>, child: Child) -> (Vec<u8>, Node) {
        let node = Node::new(parent, &child.name, child.link_name, child.item);
        (child.name, node)
    }

    pub(super) fn at(ino: Ino, item: Item, place: NodePlace, greatest: u64, state: u64) -> Node {
        let (refs, gone, opens, padded, writes, set_size) = Default::default();
        Node {
            ino,
            item,
            place: RwLock::new(place),
            greatest,
            refs,
            gone,
            opens,
            padded,
            writes,
            set_size,
            state,
            opened_in: AtomicU64::new(u64::MAX),
            opened_after: AtomicU64::new(u64::MAX),
            page_writers: AtomicU64::new(0),
            is_shorter: AtomicBool::new(false),
        }
    }

    /// Notes an open in `state`; returns whether it was opened in that state before.
    pub fn note_opened(&self, state: u64) -> bool {
        self.opened_in.swap(state, Ordering::AcqRel) == state
    }

    /// Notes an open after `changes` by others; returns whether there were none since the last one.
    pub fn note_changes(&self, changes: u64) -> bool {
        self.opened_after.swap(changes, Ordering::AcqRel) == changes
    }

    /// Notes that it became shorter by a fact, or that the kernel gets its size.
    pub fn set_shorter(&self, is_shorter: bool) {
        self.is_shorter.store(is_shorter, Ordering::Release);
    }

    /// True if the kernel may take it for longer than it is.
    pub fn is_shorter(&self) -> bool {
        self.is_shorter.load(Ordering::Acquire)
    }

    /// Counts an open file that writes through pages; returns whether there are others.
    pub fn enter_page_writer(&self) -> bool {
        self.page_writers.fetch_add(1, Ordering::AcqRel) > 0
    }

    /// Such a file is closed.
    pub fn leave_page_writer(&self) {
        self.page_writers.fetch_sub(1, Ordering::AcqRel);
    }

    /// True if files that write through pages are open.
    pub fn has_page_writers(&self) -> bool {
        self.page_writers.load(Ordering::Acquire) > 0
    }

    /// Directory it is in; `None` at the root.
    pub fn parent(&self) -> Option<Arc<Node>> {
        self.place.read().parent.clone()
    }

    /// Where it is.
    pub fn place(&self) -> NodePlace {
        self.place.read().clone()
    }

    /// Link name where the file name differs from it.
    pub fn other_link_name(&self) -> Option<Box<[u8]>> {
        self.place.read().link_name.clone()
    }

    /// EOF when the kernel was given a page padded past it.
    pub fn padded(&self) -> Option<u64> {
        self.padded.load(Ordering::Acquire).checked_sub(1)
    }

    /// Notes EOF at which the kernel was given a padded page; `None`: it has none.
    pub fn set_padded(&self, end: Option<u64>) {
        self.padded.store(end.map_or(0, |end| end.saturating_add(1)), Ordering::Release);
    }

    /// Files open on it, and one if it was replaced.
    pub fn opens(&self) -> u64 {
        self.opens.load(Ordering::Acquire)
    }

    /// Counts a file that was opened (`more`) or closed.
    pub fn count_open(&self, more: bool) {
        if more {
            self.opens.fetch_add(1, Ordering::AcqRel)
        } else {
            self.opens.fetch_sub(1, Ordering::AcqRel)
        };
    }

    /// Link names that lead here from the root of the mount.
    pub fn path(self: &Arc<Node>) -> Vec<Vec<u8>> {
        let mut names = Vec::new();
        let mut at = self.clone();
        while let Some(parent) = at.parent() {
            let place = at.place();
            names.push(place.link_name.unwrap_or(place.name).into_vec());
            at = parent;
        }
        names.reverse();
        names
    }

    /// True when its number is that of its object, however it was reached.
    pub(super) fn numbered_by_object(&self) -> bool {
        object_number(&self.item).is_some()
    }

    /// True when `other`, in no table yet, is this one. In a container that is changed a link may
    /// have another target, and an attribute another name: both are read from the container when
    /// they are needed.
    pub(super) fn is(&self, other: &Node) -> bool {
        let same = self.item.is(&other.item, self.greatest == ANY_ADDRESS) && self.state == other.state && !self.is_gone();
        same && (self.numbered_by_object() || self.has_place_of(other))
    }

    /// True when both are at the same place.
    pub(super) fn has_place_of(&self, other: &Node) -> bool {
        let (a, b) = (self.place.read(), other.place.read());
        let ino = |p: &NodePlace| p.parent.as_ref().map(|n| n.ino);
        a.name == b.name && ino(&a) == ino(&b)
    }
}

impl Inode for Node {
    fn item(&self) -> &Item {
        &self.item
    }

    fn link_name(&self) -> Vec<u8> {
        let place = self.place();
        place.link_name.unwrap_or(place.name).into_vec()
    }

    fn is_root(&self) -> bool {
        self.place.read().parent.is_none()
    }

    fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Acquire)
    }

    fn depth(&self) -> usize {
        std::iter::successors(self.parent(), |n| n.parent()).count()
    }

    fn levels_up_to(&self, id: ObjectId) -> Option<usize> {
        if id.serial() > self.greatest {
            return None;
        }
        if self.item.group() == Some(id) {
            return Some(0);
        }
        let mut up = std::iter::successors(self.parent(), |n| n.parent());
        up.position(|n| n.item.group() == Some(id)).map(|up| up.saturating_add(1))
    }
}

impl GuardedNode for Node {
    fn writes(&self) -> &Writes {
        &self.writes
    }
}

/// [`Node::greatest`] where groups may be moved anywhere.
pub const ANY_ADDRESS: u64 = u64::MAX;

/// Address of the group that `item` shows, or 0.
pub fn group_address(item: &Item) -> u64 {
    item.group().map_or(0, ObjectId::serial)
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

/// Numbers of objects: bit 62, two bits for the space, 12 for the file, 48 for the address.
const BY_OBJECT: u64 = 1 << 62;
/// Numbers of paths.
const BY_PATH: u64 = 1 << 63;

/// The number of `item` that does not depend on where it is.
fn object_number(item: &Item) -> Option<Ino> {
    let (space, id) = (item.view.number_space(item)?, item.object()?);
    Some(Ino(BY_OBJECT | space.bits() << 60 | id.inode_hint()?))
}

/// The numbers that nodes of the object `id` may have.
pub fn object_numbers(id: ObjectId) -> impl Iterator<Item = Ino> {
    let hint = id.inode_hint();
    (0..4u64).filter_map(move |space| Some(Ino(BY_OBJECT | space << 60 | hint?)))
}

/// True for the number of an object, which does not depend on its names.
pub fn is_of_object(ino: Ino) -> bool {
    ino.0 & (BY_PATH | BY_OBJECT) == BY_OBJECT
}

/// A number after `ino` for a node whose own number is taken.
pub fn next_number(ino: Ino) -> Ino {
    Ino(ino.0.wrapping_add(1) | BY_PATH)
}

/// The natural number of a node: it has this one unless another node does.
pub fn number(parent: Ino, name: &[u8], item: &Item) -> Ino {
    object_number(item).unwrap_or_else(|| {
        // FNV-1a over the parent's number and the name.
        let bytes = parent.0.to_le_bytes();
        let h = bytes.iter().chain(name).fold(0xcbf2_9ce4_8422_2325u64, |h, b| (h ^ u64::from(*b)).wrapping_mul(0x0100_0000_01b3));
        Ino(h | BY_PATH)
    })
}
