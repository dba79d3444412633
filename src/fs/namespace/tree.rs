//! Look-ups and listings: from names to nodes.

use super::listings::{ListingState, Listings, SavedNames};
use super::node::{Node, object_numbers};
use super::table::NodeTable;
use super::unlinked::{self, Unlinked};
use crate::base::lock_order::{Locked, Rank};
use crate::base::locks::{RwLock, RwLockReadGuard, RwLockWriteGuard};
use crate::base::waiting;
use crate::connector::{Follow, LinkTarget, ObjectId};
use crate::fs::done::{ALL_PAGES, Invalidate};
use crate::fs::model::StoredLink;
use crate::fs::mounted::Mounted;
use crate::fs::retry::ATTEMPTS;
use crate::fs::types::{Errno, FileKind, FsResult, Handle, Ino, ROOT};
use crate::fs::views::{self, CONTROL_NAME, Child, Class, Host, Inode, root};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Offsets 1 and 2 follow `.` and `..`.
const FIRST_OFFSET: u64 = 2;

/// The tree of names of a mount.
pub struct Namespace {
    mounted: Arc<Mounted>,
    /// Nodes that the kernel knows.
    pub nodes: NodeTable,
    listings: Listings,
    unlinked: Unlinked,
    /// Held shared for look-ups, and alone to change names: between a look at a name and one at its
    /// object neither changes.
    names: RwLock<()>,
    /// The state of the container in which no node was outdated any more.
    renewed_state: AtomicU64,
    /// Open files whose names follow those of the main tree.
    open_views: AtomicU64,
}

impl Namespace {
    /// The names below the group `group`.
    pub fn new(mounted: Arc<Mounted>, group: ObjectId) -> Self {
        let nodes = NodeTable::new(root(group), mounted.changing, mounted.connector.follow().is_some());
        let (listings, unlinked, names, renewed_state, open_views) = Default::default();
        Namespace { mounted, nodes, listings, unlinked, names, renewed_state, open_views }
    }

    /// Link names that lead to the object `id` from the root, if the kernel knows a node of it that
    /// is in the main tree.
    pub fn path_of(&self, id: ObjectId) -> Option<Vec<Vec<u8>>> {
        let mut found = self.nodes.of_object(id);
        // In a container that is not changed, nodes are found by the number of the object alone.
        found.extend(object_numbers(id).filter_map(|ino| self.nodes.get(ino)).filter(|node| node.item.object() == Some(id)));
        found.into_iter().map(|node| node.path()).find(|path| path.first().is_some_and(|name| name != CONTROL_NAME))
    }

    /// Keeps names as they are while this is held.
    pub fn lock_shared(&self) -> Option<Locked<RwLockReadGuard<'_, ()>>> {
        let lock = || waiting::take(|| self.names.try_read(), || self.names.read());
        self.mounted.changing.then(|| Locked::acquire(Rank::Names, &self.names, lock))
    }

    /// Locks names to change them in the directories, or of the objects, `at`.
    ///
    /// Waits before for a change or commit under way, so that those who read names need not.
    pub fn lock_alone(&self, at: &[Ino]) -> Locked<RwLockWriteGuard<'_, ()>> {
        if let Some(edit) = self.mounted.connector.edit() {
            edit.await_turn();
        }
        let lock = || waiting::take(|| self.names.try_write(), || self.names.write());
        let alone = Locked::acquire(Rank::Names, &self.names, lock);
        self.save_listings(at.iter().filter_map(|ino| self.nodes.get(*ino)?.item.object()));
        alone
    }

    /// The node of `ino`, in the present state of the container.
    pub fn node(&self, ino: Ino) -> FsResult<Arc<Node>> {
        let node = self.nodes.get(ino).ok_or(Errno(libc::ESTALE))?;
        match self.mounted.connector.follow() {
            Some(f) if f.state() != node.state => self.renew(node, f),
            _ => Ok(node),
        }
    }

    /// The node of `ino`, unless it is gone and not open. Errors: `ESTALE`.
    pub fn living(&self, ino: Ino) -> FsResult<Arc<Node>> {
        let node = self.node(ino)?;
        if node.is_gone() && node.opens() == 0 { Err(Errno(libc::ESTALE)) } else { Ok(node) }
    }

    /// The directory `ino`.
    pub fn directory(&self, ino: Ino) -> FsResult<Arc<Node>> {
        let node = self.node(ino)?;
        match node.item.is_directory() {
            true if node.is_gone() => Err(Errno(libc::ENOENT)),
            true => Ok(node),
            false => Err(Errno(libc::ENOTDIR)),
        }
    }

    /// The child `name` of `dir`.
    pub fn child(&self, dir: &Node, name: &[u8]) -> FsResult<Option<Child>> {
        let found = views::lookup(&self.mounted.context(), dir, name);
        found.map_err(|e| self.mounted.failed(dir.item.object(), &e))
    }

    /// Looks up `name` in `dir`; the kernel holds one reference more to the node.
    pub fn lookup(&self, dir: &Arc<Node>, name: &[u8]) -> FsResult<Arc<Node>> {
        let child = self.child(dir, name)?.ok_or(Errno(libc::ENOENT))?;
        Ok(self.enter(Node::of_child(dir, child).1))
    }

    /// Enters `node` with one reference more; returns the node in the table.
    pub fn enter(&self, node: Node) -> Arc<Node> {
        self.renew_like(&node);
        self.nodes.reference(node)
    }

    /// The kernel drops `count` references to `ino`.
    pub fn forget(&self, ino: Ino, count: u64) {
        if self.nodes.forget(ino, count)
            && let Some(node) = self.unlinked.take(ino)
        {
            let _names = self.lock_shared();
            self.release_unlinked(&node);
        }
    }

    /// The target of the symbolic link `node`. In a container that is changed it depends on where
    /// the link is now.
    pub fn target(&self, node: &Node) -> crate::base::Result<Vec<u8>> {
        if node.item.class != Class::Symlink {
            return Ok(Vec::new());
        }
        let place = node.place();
        if let Some(parent) = place.parent.filter(|_| self.mounted.changing && !node.is_gone())
            && let Some(child) = views::lookup(&self.mounted.context(), &*parent, &place.name)?
            && child.item.class == Class::Symlink
        {
            return Ok(child.item.key().to_vec());
        }
        Ok(node.item.key().to_vec())
    }

    /// The link `name` of directory `parent` as it is stored; `None`: a hard link to an object that
    /// is not above it, a link of another file, or a name of a view.
    pub fn stored_link(&self, parent: Ino, name: &[u8]) -> FsResult<Option<StoredLink>> {
        let dir = self.directory(parent)?;
        let child = self.child(&dir, name)?.ok_or(Errno(libc::ENOENT))?;
        let is_main = dir.item.view.edit().is_some_and(|view| view.edits_links());
        let Some(group) = dir.item.group().filter(|id| is_main && id.is_own()) else { return Ok(None) };
        let link_name = child.link_name.as_deref().unwrap_or(&child.name);
        let link = self.mounted.connector.lookup(group, link_name).map_err(|e| self.mounted.failed(Some(group), &e))?;
        Ok(link.and_then(|link| match link.target {
            LinkTarget::Hard(id) => dir.levels_up_to(id).map(StoredLink::Above),
            LinkTarget::Soft(path) => {
                let text = self.mounted.context().text_of_link((group, &link.name), &path);
                Some(StoredLink::Soft { path, text })
            }
            LinkTarget::External { file, object } => Some(StoredLink::External { file, object }),
            LinkTarget::UserDefined(class) => Some(StoredLink::UserDefined(class)),
        }))
    }

    /// Counts a file opened on `node`.
    pub fn opened(&self, node: &Node) {
        node.count_open(true);
        if node.item.view.follows_names() {
            self.open_views.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// Ends [`Namespace::opened`].
    pub fn closed(&self, node: &Node) {
        node.count_open(false);
        if node.item.view.follows_names() {
            self.open_views.fetch_sub(1, Ordering::AcqRel);
        }
    }

    /// Notes the pages of open files of the dataset `id` as stale, if it is open through more than
    /// one view.
    pub fn invalidate_views(&self, id: ObjectId, invalidate: &mut Invalidate) {
        if self.open_views.load(Ordering::Acquire) == 0 {
            return;
        }
        let open = self.nodes.open_on(id);
        if open.len() > 1 {
            invalidate.pages.extend(open.into_iter().map(|ino| (ino, ALL_PAGES)));
        }
    }
}

/// Listings of directories.
impl Namespace {
    /// Opens a directory.
    pub fn open_directory(&self, ino: Ino) -> FsResult<Handle> {
        match self.directory(ino) {
            // A directory that was removed while it is a working directory.
            Err(Errno(libc::ENOENT)) if self.node(ino).is_ok_and(|node| node.opens() > 0) => {}
            found => drop(found?),
        }
        Ok(if self.mounted.changing { self.listings.open(ino) } else { Handle(0) })
    }

    /// Closes a directory.
    pub fn close_directory(&self, handle: Handle) {
        self.listings.close(handle);
    }

    /// The entries `.` and `..` of `dir` after `offset`: name, node, and the offset after it.
    pub fn dots(dir: &Arc<Node>, offset: u64) -> impl Iterator<Item = (&'static [u8], Arc<Node>, u64)> {
        let parent = dir.parent().unwrap_or_else(|| dir.clone());
        let all = [(&b"."[..], dir.clone(), 1), (b"..", parent, 2)];
        all.into_iter().filter(move |(.., next)| offset < *next)
    }

    fn list(&self, dir: &Node, offset: u64, f: &mut dyn FnMut(Child, u64) -> ControlFlow<()>) -> FsResult<()> {
        let start = offset.saturating_sub(FIRST_OFFSET);
        let mut take = |child, next: u64| f(child, next.saturating_add(FIRST_OFFSET));
        let listed = dir.item.view.list(&self.mounted.context(), dir, start, &mut take);
        listed.map_err(|e| self.mounted.failed(dir.item.object(), &e))
    }

    /// Children of `dir`, open as `handle`, after `offset`.
    pub fn list_open(&self, handle: Handle, dir: &Node, offset: u64, f: &mut dyn FnMut(Child, u64) -> ControlFlow<()>) -> FsResult<()> {
        let Some(listing) = self.listings.get(handle) else { return self.list(dir, offset, f) };
        let mut state = listing.state.lock();
        if offset == 0 || matches!(*state, ListingState::Idle) {
            self.listings.set(&mut state, ListingState::ByPosition);
        }
        if let ListingState::Saved(names) = &*state {
            for (name, next) in names.after(offset) {
                // A name that was removed, or cannot be read, is left out.
                let child = self.child(dir, name).ok().flatten();
                if child.is_some_and(|child| f(child, next).is_break()) {
                    break;
                }
            }
            return Ok(());
        }
        let mut found = false;
        let done = self.list(dir, offset, &mut |child, next| {
            found = true;
            f(child, next)
        });
        // The kernel asks until an answer is empty.
        if !found && offset > 0 || done == Err(Errno(libc::ENOENT)) {
            self.listings.set(&mut state, ListingState::Idle);
        }
        done
    }

    /// Saves the names of directories of `objects` that are being read, before they change.
    pub fn save_listings(&self, objects: impl IntoIterator<Item = ObjectId>) {
        let open = self.listings.being_read();
        if open.is_empty() {
            return;
        }
        let objects: Vec<_> = objects.into_iter().collect();
        for listing in open {
            let affected = |dir: &Arc<Node>| dir.item.object().is_some_and(|id| objects.contains(&id));
            let Some(dir) = self.nodes.get(listing.ino).filter(affected) else { continue };
            let mut state = listing.state.lock();
            if !matches!(*state, ListingState::ByPosition) {
                continue;
            }
            let room = self.listings.room();
            let (mut names, mut fits) = (SavedNames::default(), true);
            // Names that cannot be read now could not be read later.
            let _ = self.list(&dir, 0, &mut |child, next| {
                fits = names.push(&child.name, next, room);
                if fits { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
            });
            self.listings.set(&mut state, if fits { ListingState::Saved(names) } else { ListingState::TooLarge });
        }
    }
}

/// Nodes that lose their last name.
impl Namespace {
    /// Makes `change`, which returns the object that lost its last name, and keeps the node of
    /// `there`, not in the table, if it is that object. The lock of names is held alone.
    pub fn keeping(&self, there: Option<&Node>, change: impl FnOnce() -> FsResult<Option<ObjectId>>) -> FsResult<Option<ObjectId>> {
        let held = there.and_then(|there| {
            let node = self.nodes.known(there)?;
            unlinked::hold(self.mounted.connector.edit()?, &node).then_some(node)
        });
        let removed = change();
        let Some(node) = held else { return removed };
        if matches!(removed, Ok(Some(id)) if node.item.object() == Some(id)) {
            self.unlinked.keep(node);
        } else {
            self.release_unlinked(&node);
        }
        removed
    }

    fn release_unlinked(&self, node: &Node) {
        if let Some(edit) = self.mounted.connector.edit() {
            unlinked::release(edit, node);
        }
    }

    /// Releases all nodes that are kept. The lock of names is held alone.
    pub fn release_all_unlinked(&self) {
        self.unlinked.take_all().iter().for_each(|node| self.release_unlinked(node));
    }
}

/// Nodes of a container that another process changes.
impl Namespace {
    /// Finds outdated nodes again that may be `node`.
    fn renew_like(&self, node: &Node) {
        let Some(follow) = self.mounted.connector.follow() else { return };
        if self.renewed_state.load(Ordering::Acquire) == follow.state() {
            return;
        }
        for _ in 0..ATTEMPTS {
            let Some(outdated) = self.nodes.outdated(node) else { return };
            if self.renew(outdated, follow).is_err() {
                return;
            }
        }
    }

    /// The outdated node `node` in the present state. A node that is not found again is gone.
    fn renew(&self, node: Arc<Node>, follow: &dyn Follow) -> FsResult<Arc<Node>> {
        let state = follow.state();
        let (mut outdated, mut at) = (Vec::new(), node.clone());
        let mut parent = loop {
            if at.ino == ROOT {
                break self.nodes.renew_root(root(follow.mounted().0), state);
            }
            if at.is_gone() {
                outdated.iter().for_each(|n| self.nodes.lose(n));
                return Ok(node);
            }
            if at.state == state {
                break at;
            }
            let above = at.parent().map(|p| self.nodes.get(p.ino).unwrap_or(p));
            outdated.push(at);
            at = above.ok_or(Errno(libc::ESTALE))?;
        };
        while let Some(old) = outdated.pop() {
            let child = self.child(&parent, &old.place().name)?;
            // A number is that of one type of file for as long as the kernel knows it.
            let Some(child) = child.filter(|c| c.item.file_kind() == old.item.file_kind()) else {
                self.nodes.lose(&old);
                outdated.iter().for_each(|n| self.nodes.lose(n));
                return Ok(node);
            };
            parent = self.nodes.renew(&old, Node::of_child(&parent, child).1);
        }
        Ok(parent)
    }

    /// Notes that no node is outdated in `state`.
    pub fn note_renewed(&self, state: u64) {
        self.renewed_state.store(state, Ordering::Release);
    }

    /// The object `id` became one of another kind: its nodes show that under their numbers.
    pub fn kind_changed(&self, id: ObjectId) {
        for old in self.nodes.of_object(id) {
            let Some(parent) = old.parent() else { continue };
            match self.child(&parent, &old.place().name) {
                Ok(Some(child)) if child.item.file_kind() == old.item.file_kind() => {
                    self.nodes.renew(&old, Node::of_child(&parent, child).1);
                }
                _ => self.nodes.lose(&old),
            }
        }
    }

    /// The number that `child` of `dir` has or would get, and its type of file.
    pub fn number(&self, dir: &Arc<Node>, child: Child) -> (Vec<u8>, Ino, FileKind) {
        let (name, node) = Node::of_child(dir, child);
        self.renew_like(&node);
        (name, self.nodes.number_of(&node), node.item.file_kind())
    }

    /// True when a look-up of the name of `node` finds it.
    pub fn has_its_name(&self, node: &Arc<Node>) -> bool {
        let place = node.place();
        let Some(parent) = place.parent else { return true };
        let found = Node::new(&parent, &place.name, None, node.item.clone());
        !node.is_gone() && self.nodes.number_of(&found) == node.ino
    }

    /// True when `name` in directory `parent` is `ino`.
    pub fn leads_to(&self, parent: Ino, name: &[u8], ino: Ino) -> bool {
        let Ok(parent) = self.directory(parent) else { return false };
        let Ok(Some(child)) = views::lookup(&self.mounted.context(), &*parent, name) else { return false };
        self.number(&parent, child).1 == ino
    }
}
