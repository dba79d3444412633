//! A view shows the container as a tree of items; nodes of the file system stand for items.
//!
//! Code outside this folder works with items by their [`Class`] and through [`View`] and
//! [`EditView`]. It does not know which views there are. A view is one file of this folder and one
//! line of `ALL`.

use super::bytes::Bytes;
use super::context::{Context, Effects};
use crate::base::Result;
use crate::connector::ObjectId;
use crate::fs::name::NAME_MAX;
use crate::fs::types::{Creator, Errno, FileKind, FsResult, OpenMode};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::SystemTime;

/// What an item is to the file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Class {
    /// A group, as a directory of its links.
    Group,
    /// Another directory.
    Directory,
    /// The elements of a dataset, as a file.
    Dataset,
    /// Another file.
    File,
    /// A symbolic link; the key is its target.
    Symlink,
    /// An object that cannot be read: listed, but opening it is `EIO`.
    Broken,
}

/// Files whose numbers come from those of their objects, so that names of one object share one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NumberSpace {
    /// Objects of the main tree.
    Objects,
    /// Exact forms of datasets.
    Exact,
    /// `.npy` files.
    Npy,
    /// Descriptions of objects.
    Json,
}

impl NumberSpace {
    /// The two bits of it in a number. There is no room for a fifth: its view makes numbers of
    /// paths.
    pub const fn bits(self) -> u64 {
        match self {
            NumberSpace::Objects => 0,
            NumberSpace::Exact => 1,
            NumberSpace::Npy => 2,
            NumberSpace::Json => 3,
        }
    }
}

/// What a node stands for: something that a view shows.
#[derive(Clone)]
pub struct Item {
    /// The view that shows it.
    pub view: &'static dyn View,
    /// What it is.
    pub class: Class,
    /// The object that is shown, or a part of which is shown.
    pub owner: Option<ObjectId>,
    /// Which part of the object, or the target of a symbolic link; `None`: the object itself.
    pub key: Option<Arc<[u8]>>,
}

impl Item {
    /// The object `id` itself.
    pub fn object_of(view: &'static dyn View, class: Class, id: ObjectId) -> Item {
        Item { view, class, owner: Some(id), key: None }
    }

    /// The part `key` of the object `id`.
    pub fn part_of(view: &'static dyn View, class: Class, id: ObjectId, key: &[u8]) -> Item {
        Item { view, class, owner: Some(id), key: Some(key.into()) }
    }

    /// The object shown, if a whole object is shown.
    pub fn object(&self) -> Option<ObjectId> {
        self.owner.filter(|_| self.key.is_none())
    }

    /// True for a part of an object.
    pub fn is_part(&self) -> bool {
        self.owner.is_some() && self.key.is_some()
    }

    /// The bytes of the key.
    pub fn key(&self) -> &[u8] {
        self.key.as_deref().unwrap_or_default()
    }

    /// True for directories.
    pub fn is_directory(&self) -> bool {
        matches!(self.class, Class::Group | Class::Directory)
    }

    /// The group shown as a directory.
    pub fn group(&self) -> Option<ObjectId> {
        self.object().filter(|_| self.class == Class::Group)
    }

    /// The dataset shown as a file of its elements.
    pub fn dataset(&self) -> Option<ObjectId> {
        self.object().filter(|_| self.class == Class::Dataset)
    }

    /// The dataset whose bytes are those of the file one by one.
    pub fn mapped_dataset(&self) -> Option<ObjectId> {
        self.dataset().filter(|_| self.view.edit().is_some_and(EditView::maps_ranges))
    }

    /// The dataset of which the file shows elements, all or a selection, that can be written.
    pub fn elements_of(&self) -> Option<ObjectId> {
        self.dataset().or_else(|| self.editable()?.written_dataset(self))
    }

    /// True for a file that no directory lists.
    pub fn is_unlisted(&self) -> bool {
        self.view.is_unlisted(self)
    }

    /// Type of file.
    pub fn file_kind(&self) -> FileKind {
        match self.class {
            Class::Group | Class::Directory => FileKind::Directory,
            Class::Symlink => FileKind::Symlink,
            Class::Dataset | Class::File | Class::Broken => FileKind::Regular,
        }
    }

    /// How the view of this item changes it, if it can be changed; the container may still refuse.
    pub fn editable(&self) -> Option<&'static dyn EditView> {
        self.view.edit().filter(|edit| edit.is_editable(self))
    }

    /// How this item is changed, where it belongs to the mounted file itself.
    pub fn writable(&self) -> Option<&'static dyn EditView> {
        self.editable().filter(|_| self.owner.is_some_and(|id| id.is_own()))
    }

    /// True when both are the same part of the same object; `moving`: parts and links may have been
    /// given another key.
    pub fn is(&self, other: &Item, moving: bool) -> bool {
        let same = self.view.name() == other.view.name() && self.class == other.class && self.owner == other.owner;
        let moved = moving && (self.class == Class::Symlink || (self.is_part() && other.is_part()));
        same && (moved || self.key == other.key)
    }
}

impl PartialEq for Item {
    fn eq(&self, other: &Self) -> bool {
        self.is(other, false)
    }
}

impl std::fmt::Debug for Item {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let name = self.view.name();
        f.debug_struct("Item").field("view", &name).field("class", &self.class).field("owner", &self.owner).field("key", &self.key).finish()
    }
}

/// A child of a directory.
pub struct Child {
    /// File name.
    pub name: Vec<u8>,
    /// What it is.
    pub item: Item,
    /// Link name where the file name differs from it.
    pub link_name: Option<Box<[u8]>>,
}

/// A node of the file system, as a view sees it.
pub trait Inode: Send + Sync {
    /// What it stands for.
    fn item(&self) -> &Item;
    /// Its present link name.
    fn link_name(&self) -> Vec<u8>;
    /// True for the root of the mount.
    fn is_root(&self) -> bool;
    /// True when no name leads to it any more.
    fn is_gone(&self) -> bool;
    /// Directories between it and the root of the mount.
    fn depth(&self) -> usize;
    /// Directories up to the group `id`, if this is it or lies in it.
    fn levels_up_to(&self, id: ObjectId) -> Option<usize>;
}

/// Size and storage of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    /// Size, bytes.
    pub size: u64,
    /// Allocated storage, bytes.
    pub allocated: u64,
    /// Preferred I/O size, bytes.
    pub block_size: u32,
}

impl Extent {
    /// A file of `size` bytes that are stored nowhere.
    pub fn of(size: u64) -> Self {
        Extent { size, allocated: 0, block_size: 4096 }
    }
}

/// Owner and mode of an item.
pub struct Owned {
    /// User and group; `None`: those of the mount.
    pub by: Option<(u32, u32)>,
    /// Permission bits.
    pub mode: u16,
}

/// Takes children of a directory, each with the position after it.
pub type Visit<'a> = &'a mut dyn FnMut(Child, u64) -> ControlFlow<()>;

/// Shows a container as a tree of items.
pub trait View: Send + Sync {
    /// Name below `.h5dir`; no other view has it.
    fn name(&self) -> &'static str;

    /// Its files below `.h5dir`, as a pattern, and what they have, for `README` and the manual.
    fn about(&self) -> (&'static str, &'static str) {
        ("", "")
    }

    /// What this view shows of the mounted group.
    fn root(&'static self, group: ObjectId) -> Item;

    /// True if it has something to show.
    fn is_shown(&self, _cx: &Context<'_>) -> bool {
        true
    }

    /// True when names follow those of the main tree, and so may change without a request that
    /// names them.
    fn follows_names(&self) -> bool {
        true
    }

    /// The child `name` of directory `dir`.
    fn lookup(&'static self, _cx: &Context<'_>, _dir: &dyn Inode, _name: &[u8]) -> Result<Option<Child>> {
        Ok(None)
    }

    /// Children of `dir` after position `start` (0 = all), each with the position after it.
    fn list(&'static self, _cx: &Context<'_>, _dir: &dyn Inode, _start: u64, _f: Visit<'_>) -> Result<()> {
        Ok(())
    }

    /// Size and storage of the file `inode`.
    fn extent(&self, _cx: &Context<'_>, _inode: &dyn Inode) -> Result<Extent> {
        Ok(Extent::of(0))
    }

    /// The bytes of the file `inode`; `None`: it has none that can be read.
    fn open(&self, _cx: &Context<'_>, _inode: Arc<dyn Inode>) -> Result<Option<Box<dyn Bytes>>> {
        Ok(None)
    }

    /// True when the bytes of `item` are made as they are read, and their size may not be known:
    /// the page cache is bypassed.
    fn is_generated(&self, _item: &Item) -> bool {
        false
    }

    /// True when the files show what references name, by path.
    fn names_targets(&self) -> bool {
        false
    }

    /// True when no directory lists the file `item`, so that its name is dropped after each use.
    fn is_unlisted(&self, _item: &Item) -> bool {
        false
    }

    /// Longest name in its directories, bytes.
    fn name_max(&self) -> usize {
        NAME_MAX
    }

    /// True when only the owner of the mount may read the files.
    fn is_private(&self) -> bool {
        false
    }

    /// True when a name of an item, or in it, may lead to another one at any time, without a change
    /// of the container.
    fn is_volatile(&self) -> bool {
        false
    }

    /// True when names of its files come and go with the bytes of objects, such as those of chunks.
    fn names_parts_of_bytes(&self) -> bool {
        false
    }

    /// Name of the transaction whose tree is shown in the place of the directory `item`.
    fn tree(&self, _item: &Item) -> Option<String> {
        None
    }

    /// Owner and mode of `item`, where they are not those of its object.
    fn owned(&self, _cx: &Context<'_>, _item: &Item) -> Option<Owned> {
        None
    }

    /// True when names of its directories are attributes of their objects. As by setxattr(2), only
    /// the owner sets those of a directory with the sticky bit.
    fn names_attributes(&self) -> bool {
        false
    }

    /// All times of `item`, where they are not those of its object.
    fn time(&self, _cx: &Context<'_>, _item: &Item) -> Option<SystemTime> {
        None
    }

    /// Space of inode numbers in which the object's address is the number of `item`: names of one
    /// object share it. `None`: the number is made of the path.
    fn number_space(&self, _item: &Item) -> Option<NumberSpace> {
        None
    }

    /// The object whose attributes and facts are the extended attributes of `item`.
    fn xattr_target(&self, item: &Item) -> Option<ObjectId> {
        item.object().filter(|_| item.class != Class::Broken)
    }

    /// How items are changed; `None`: they are not.
    fn edit(&self) -> Option<&'static dyn EditView> {
        None
    }
}

/// Changes items of a view. Callers hold the lock of names: alone where names change, shared where
/// bytes do.
pub trait EditView: Send + Sync {
    /// True for items that can be written to, or have names created in them.
    fn is_editable(&self, item: &Item) -> bool;

    /// True where items are the objects and links of the container: names are created, moved and
    /// removed as links, and extended attributes are changed.
    fn edits_links(&self) -> bool {
        false
    }

    /// True where `item` is an object of the container in the main tree: attributes, owner and mode
    /// are changed through it.
    fn is_object(&self, _item: &Item) -> bool {
        self.edits_links()
    }

    /// True where offsets in a file are offsets in a dataset: ranges can be allocated, zeroed and
    /// copied.
    fn maps_ranges(&self) -> bool {
        false
    }

    /// True where written bytes are kept until the file is closed.
    fn is_buffered(&self) -> bool {
        false
    }

    /// True for a descriptor opened by `mode` that bypasses the page cache.
    fn bypasses_page_cache(&self, _mode: OpenMode) -> bool {
        false
    }

    /// The dataset of which `item`, a part of it, has elements.
    fn written_dataset(&self, _item: &Item) -> Option<ObjectId> {
        None
    }

    /// Size of the file `inode`, bytes.
    fn size(&self, _cx: &Context<'_>, _inode: &dyn Inode) -> FsResult<u64> {
        Err(Errno(libc::EACCES))
    }

    /// Writes bytes of the file `inode`.
    fn write(&self, _cx: &Context<'_>, _inode: &dyn Inode, _offset: u64, _data: &[u8]) -> FsResult<Effects> {
        Err(Errno(libc::EACCES))
    }

    /// Sets the size of the file `inode`.
    fn resize(&self, _cx: &Context<'_>, _inode: &dyn Inode, _size: u64) -> FsResult<Effects> {
        Err(Errno(libc::EACCES))
    }

    /// Counts a writer of `inode`.
    fn open_writer(&self, _cx: &Context<'_>, _inode: &dyn Inode) -> FsResult<()> {
        Ok(())
    }

    /// Stores buffered bytes when a descriptor is closed, or the file is synced.
    fn finish(&self, _cx: &Context<'_>, _inode: &dyn Inode) -> FsResult<Effects> {
        Ok(Effects::default())
    }

    /// The group that loses a name if the last writer of `inode` leaves now.
    fn unlinked_by_close(&self, _cx: &Context<'_>, _inode: &dyn Inode) -> Option<ObjectId> {
        None
    }

    /// A writer of `inode` has left.
    fn close_writer(&self, _cx: &Context<'_>, _inode: &dyn Inode) -> Effects {
        Effects::default()
    }

    /// An attribute of `id` was removed.
    fn attribute_removed(&self, _cx: &Context<'_>, _id: ObjectId) {}

    /// Creates the file `name`, which is not there, in `dir`.
    fn create(&self, _cx: &Context<'_>, _dir: &dyn Inode, _name: &[u8], _mode: OpenMode) -> FsResult<Effects> {
        Err(Errno(libc::EPERM))
    }

    /// Makes the directory `name`, which is not there, in `dir` for `creator`.
    fn make_directory(&self, _cx: &Context<'_>, _dir: &dyn Inode, _name: &[u8], _creator: Creator) -> FsResult<Effects> {
        Err(Errno(libc::EPERM))
    }

    /// Removes the file `inode`, found in `dir` as `child`.
    fn remove(&self, _cx: &Context<'_>, _dir: &dyn Inode, _child: &Child) -> FsResult<Effects> {
        Err(Errno(libc::EPERM))
    }

    /// Renames the part `inode` to `name` within `dir`, where it replaces `replaced`. Returns the
    /// new link name; `None`: nothing changed.
    fn rename(
        &self,
        _cx: &Context<'_>,
        _dir: &dyn Inode,
        _inode: &dyn Inode,
        _name: &[u8],
        _replaced: Option<&Item>,
    ) -> FsResult<Option<(Vec<u8>, Effects)>> {
        Err(Errno(libc::EPERM))
    }
}
