//! Owners and modes of files: stored in their objects where they differ from those of the mount.

use super::changes::ChangeLog;
use super::done::Invalidate;
use super::mounted::Mounted;
use super::namespace::Node;
use super::spec::Modes;
use super::types::{Attr, Caller, Changes, Creator, Errno, FileKind, FsResult};
use super::views::{Class, Host, Inode, Owned};
use crate::base::Error;
use crate::connector::edit::Edit;
use crate::connector::{ObjectId, Ownership};
use std::sync::atomic::Ordering;

/// Permission bits to read.
const READ_BITS: u16 = 0o444;
/// Permission bits to write.
pub const WRITE_BITS: u16 = 0o222;
/// Permission bits to read and write.
const DATA_BITS: u16 = READ_BITS | WRITE_BITS;
/// Permission bits of a mode.
const MODE_BITS: u16 = 0o7777;
/// A program with this bit runs as its owner.
const SET_USER_ID: u16 = libc::S_ISUID as u16;
/// A program with this bit runs as its group. A new file in such a directory gets the group of the
/// directory.
const SET_GROUP_ID: u16 = libc::S_ISGID as u16;
/// Only the owner of a file in such a directory, or of the directory, removes it.
const STICKY: u16 = libc::S_ISVTX as u16;
/// Permission bits of all but the owner.
const OTHERS_BITS: u16 = 0o077;
/// The group may execute the file.
const GROUP_EXECUTE: u16 = libc::S_IXGRP as u16;

fn mode_bits(mode: u32) -> u16 {
    u16::try_from(mode & u32::from(MODE_BITS)).unwrap_or(0)
}

/// `mode` of a file after a change of its owner or group, or of its bytes by a process without
/// `CAP_FSETID`. A set-group-ID bit without the execute bit of the group is no privilege and stays.
fn without_set_id(mode: u16) -> u16 {
    let group = if mode & GROUP_EXECUTE != 0 { SET_GROUP_ID } else { 0 };
    mode & !(SET_USER_ID | group)
}

/// Puts what is stored in the object of `node` into `attr`, which holds the mount's defaults.
pub fn show(mounted: &Mounted, node: &Node, stored: &Ownership, attr: &mut Attr) {
    if mounted.spec.modes == Modes::Fixed {
        return;
    }
    attr.uid = stored.uid.unwrap_or(attr.uid);
    attr.gid = stored.gid.unwrap_or(attr.gid);
    if let Some(mode) = stored.mode.filter(|_| attr.kind != FileKind::Symlink) {
        let perm = match (attr.kind, node.item.class) {
            _ if is_main(node) => mode,
            // The directory of a dataset can be searched by those who may read the dataset.
            (FileKind::Directory, Class::Directory) => (mode & DATA_BITS) | ((mode & READ_BITS) >> 2),
            (FileKind::Directory, _) => mode,
            _ => mode & DATA_BITS,
        };
        attr.perm = perm & !mounted.spec.umask & !mounted.spec.hidden_mode_bits();
    }
}

/// Puts owner and mode of what is no object into `attr`, which holds the mount's defaults.
pub fn show_owned(mounted: &Mounted, owned: &Owned, attr: &mut Attr) {
    if mounted.spec.modes == Modes::Fixed {
        return;
    }
    (attr.uid, attr.gid) = owned.by.unwrap_or((mounted.spec.uid, mounted.spec.gid));
    attr.perm = owned.mode & !mounted.spec.umask & !mounted.spec.hidden_mode_bits();
}

/// Takes permissions to write from all but the owner, if the directory whose attributes are changed
/// through a view has the sticky bit. The kernel refuses setxattr(2) the same way.
pub fn keep_sticky(mounted: &Mounted, stored: &Ownership, attr: &mut Attr) {
    if stored.mode.unwrap_or(mounted.spec.dir_mode) & STICKY != 0 {
        attr.perm &= !(WRITE_BITS & OTHERS_BITS);
    }
}

/// Owner and mode of a directory.
pub struct Directory {
    uid: u32,
    gid: u32,
    mode: u16,
}

impl Directory {
    /// True if the class of `caller` has the permission to search.
    pub fn may_be_searched_by(&self, caller: Caller) -> bool {
        let shift = match (caller.uid == self.uid, caller.gid == self.gid) {
            (true, _) => 6,
            (false, true) => 3,
            (false, false) => 0,
        };
        caller.uid == 0 || (self.mode >> shift) & 1 != 0
    }
}

/// Owner and mode of the directory of a group in the main tree, which stores `stored`.
pub fn directory(mounted: &Mounted, stored: &Ownership) -> Directory {
    let spec = &mounted.spec;
    match spec.modes {
        Modes::Fixed => Directory { uid: spec.uid, gid: spec.gid, mode: spec.dir_mode },
        _ => Directory {
            uid: stored.uid.unwrap_or(spec.uid),
            gid: stored.gid.unwrap_or(spec.gid),
            mode: stored.mode.map_or(spec.dir_mode, |mode| mode & !spec.umask),
        },
    }
}

/// True if `node` is an object's file or directory in the main tree.
fn is_main(node: &Node) -> bool {
    node.item.view.edit().is_some_and(|view| view.is_object(&node.item))
}

/// True if the object of `node` stores owner and mode, and `node` shows them as they are.
pub fn is_stored(node: &Node) -> bool {
    is_main(node) && node.item.object().is_some_and(|id| id.is_own())
}

/// The object whose owner and mode `node` shows.
pub fn object(node: &Node) -> Option<ObjectId> {
    node.item.object().or(node.item.owner)
}

/// The group and the name of the link that `node` shows, if it is a symbolic link of the main tree.
pub fn link(node: &Node) -> Option<(ObjectId, Vec<u8>)> {
    let parent = node.parent().filter(|_| node.item.class == Class::Symlink && is_main(node))?;
    let group = parent.item.group().filter(|id| id.is_own())?;
    Some((group, node.link_name()))
}

/// Owner and mode of the mount for files of `kind`.
fn defaults(mounted: &Mounted, kind: FileKind) -> (u16, u32, u32) {
    let spec = &mounted.spec;
    (if kind == FileKind::Directory { spec.dir_mode } else { spec.file_mode }, spec.uid, spec.gid)
}

/// What of owner and mode differs from those of the mount, for files of `kind`.
fn deviation(mounted: &Mounted, kind: FileKind, (mode, uid, gid): (u16, u32, u32)) -> Ownership {
    let (default_mode, default_uid, default_gid) = defaults(mounted, kind);
    Ownership {
        mode: (mode & !mounted.spec.umask != default_mode).then_some(mode),
        uid: (uid != default_uid).then_some(uid),
        gid: (gid != default_gid).then_some(gid),
    }
}

/// Sets owner and mode of `node`, whose attributes are `now`. Errors: `EPERM` where no object of
/// the main tree can store them.
pub fn set(mounted: &Mounted, log: &ChangeLog, node: &Node, now: &Attr, changes: &Changes, invalidate: &mut Invalidate) -> FsResult<()> {
    if mounted.spec.modes == Modes::Fixed {
        return Ok(());
    }
    let chown = (changes.uid.is_some() || changes.gid.is_some()) && now.kind == FileKind::Regular;
    let mode = changes.mode.map_or(if chown { without_set_id(now.perm) } else { now.perm }, mode_bits);
    let (uid, gid) = (changes.uid.unwrap_or(now.uid), changes.gid.unwrap_or(now.gid));
    let same = mode & !mounted.spec.umask == now.perm && (uid, gid) == (now.uid, now.gid);
    if !is_main(node) {
        // What cannot be written has no write permission, whatever a copying program sets.
        let fewer = mode & !WRITE_BITS == now.perm & !WRITE_BITS && (uid, gid) == (now.uid, now.gid);
        return if same || fewer { Ok(()) } else { Err(Errno(libc::EPERM)) };
    }
    if same {
        return Ok(());
    }
    if let Some((group, name)) = link(node) {
        let ownership = Ownership { mode: None, ..deviation(mounted, now.kind, (now.perm, uid, gid)) };
        let stored = mounted.editor()?.set_link_ownership(group, &name, &ownership);
        return stored.map_err(|e| mounted.refused(Some(group), &e));
    }
    let Some(id) = node.item.object().filter(|id| id.is_own()) else { return Err(Errno(libc::EOPNOTSUPP)) };
    let ownership = deviation(mounted, now.kind, (mode, uid, gid));
    mounted.editor()?.set_ownership(id, &ownership).map_err(|e| mounted.refused(Some(id), &e))?;
    if without_set_id(mode) != mode {
        mounted.set_id_changes.fetch_add(1, Ordering::AcqRel);
    }
    log.attribute_changed(id, None, invalidate);
    Ok(())
}

/// The object of the file `node` and what it stores, if it has set-ID bits that a change of its
/// bytes clears.
pub fn set_id(mounted: &Mounted, node: &Node) -> Option<(ObjectId, Ownership)> {
    let file = matches!(node.item.class, Class::Dataset | Class::File) && mounted.spec.modes != Modes::Fixed;
    let id = object(node).filter(|id| file && id.is_own())?;
    let stored = mounted.connector.info(id).ok()?.ownership;
    stored.mode.is_some_and(|mode| without_set_id(mode) != mode).then_some((id, stored))
}

/// Clears the set-ID bits of the file `node`. The lock of names is held alone.
pub fn clear_set_id(mounted: &Mounted, log: &ChangeLog, node: &Node, invalidate: &mut Invalidate) -> FsResult<()> {
    let Some((id, stored)) = set_id(mounted, node) else { return Ok(()) };
    let (mode, uid, gid) = defaults(mounted, FileKind::Regular);
    let now = (without_set_id(stored.mode.unwrap_or(mode)), stored.uid.unwrap_or(uid), stored.gid.unwrap_or(gid));
    let ownership = deviation(mounted, FileKind::Regular, now);
    mounted.editor()?.set_ownership(id, &ownership).map_err(|e| mounted.refused(Some(id), &e))?;
    log.attribute_changed(id, None, invalidate);
    invalidate.attributes.push(node.ino);
    Ok(())
}

/// Sets owner and group of the new link `name` in the group `parent`, made by `creator`.
pub fn link_created(mounted: &Mounted, edit: &dyn Edit, parent: ObjectId, name: &[u8], creator: Creator) -> Result<(), Error> {
    if mounted.spec.modes == Modes::Fixed {
        return Ok(());
    }
    let (gid, _) = inherited_group(mounted, parent, creator)?;
    let ownership = Ownership { mode: None, ..deviation(mounted, FileKind::Symlink, (0, creator.uid, gid)) };
    if ownership == Ownership::default() { Ok(()) } else { edit.set_link_ownership(parent, name, &ownership) }
}

/// The group of what `creator` makes in `parent`, and whether it is that of the directory.
fn inherited_group(mounted: &Mounted, parent: ObjectId, creator: Creator) -> Result<(u32, bool), Error> {
    let parent = mounted.connector.info(parent)?.ownership;
    let inherits = parent.mode.unwrap_or(mounted.spec.dir_mode) & SET_GROUP_ID != 0;
    Ok((if inherits { parent.gid.unwrap_or(mounted.spec.gid) } else { creator.gid }, inherits))
}

/// Sets owner and mode of the new object `id` of `kind`, created by `creator` in the group
/// `parent`.
pub fn created(
    mounted: &Mounted,
    edit: &dyn Edit,
    (id, kind): (ObjectId, FileKind),
    creator: Creator,
    parent: ObjectId,
) -> Result<(), Error> {
    if mounted.spec.modes == Modes::Fixed {
        return Ok(());
    }
    let (gid, inherits) = inherited_group(mounted, parent, creator)?;
    let inherited = if inherits && kind == FileKind::Directory { SET_GROUP_ID } else { 0 };
    let ownership = deviation(mounted, kind, (mode_bits(creator.mode) | inherited, creator.uid, gid));
    if ownership == Ownership::default() { Ok(()) } else { edit.set_ownership(id, &ownership) }
}
