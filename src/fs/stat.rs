//! Attributes of nodes, as stat(2) returns them.

use super::mounted::{BLOCK_BYTES, Mounted};
use super::namespace::{Namespace, Node};
use super::ownership::{self, WRITE_BITS};
use super::times::Times;
use super::types::{Attr, Entry, FileKind};
use super::views::{Class, Inode};
use crate::base::Result;
use crate::connector::{ObjectInfo, ObjectKind};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// See the module's description.
pub struct Stat {
    mounted: Arc<Mounted>,
    namespace: Arc<Namespace>,
    times: Arc<Times>,
}

/// Permission bits of the owner.
const OWNER_BITS: u16 = 0o700;

/// True for the top directory of a view: it stays, whatever happens to names of objects.
fn is_top(node: &Node) -> bool {
    let above = node.parent();
    above.is_some_and(|above| !std::ptr::addr_eq(above.item.view, node.item.view))
}

impl Stat {
    /// Attributes of the nodes of `namespace`.
    pub fn new(mounted: Arc<Mounted>, namespace: Arc<Namespace>, times: Arc<Times>) -> Self {
        Stat { mounted, namespace, times }
    }

    /// The answer to a look-up of `node`.
    pub fn entry(&self, node: &Node) -> Entry {
        let view = node.item.view;
        let volatile = view.is_volatile() || self.mounted.changing && view.follows_names() && !is_top(node);
        Entry { attr: self.attr(node), generation: 0, volatile }
    }

    /// Attributes of `node`. An object whose size cannot be read is shown like a broken one.
    pub fn attr(&self, node: &Node) -> Attr {
        node.set_shorter(false);
        let mut attr = self.defaults(node);
        if node.is_gone() {
            attr.nlink = 0;
            if node.opens() == 0 {
                return attr;
            }
        }
        if let Some(time) = node.item.view.time(&self.mounted.context(), &node.item) {
            // Its object is not read: a listing has many of them.
            (attr.atime, attr.mtime, attr.ctime, attr.btime) = (time, time, time, time);
        } else {
            self.set_facts(node, &mut attr);
        }
        if let Some(owned) = node.item.view.owned(&self.mounted.context(), &node.item) {
            ownership::show_owned(&self.mounted, &owned, &mut attr);
        }
        if let Some((group, name)) = ownership::link(node)
            && let Ok(stored) = self.mounted.connector.link_facts(group, &name)
        {
            ownership::show(&self.mounted, node, &stored.ownership, &mut attr);
        }
        if attr.kind != FileKind::Symlink && !ownership::is_stored(node) && node.item.writable().is_none() {
            attr.perm &= !WRITE_BITS;
        }
        if node.item.view.is_private() {
            attr.perm &= OWNER_BITS;
        }
        if let Err(e) = self.set_size(node, &mut attr) {
            self.mounted.check_again();
            self.mounted.log_failure(node.item.object(), &e);
            (attr.perm, attr.size, attr.blocks, attr.is_brief) = (0, 0, 0, true);
        }
        attr
    }

    /// Sets what the object of `node` says.
    fn set_facts(&self, node: &Node, attr: &mut Attr) {
        let Some(id) = ownership::object(node) else { return };
        let connector = &self.mounted.connector;
        let Ok(info) = connector.info(id) else { return };
        // Objects of other files say nothing about access to this mount; other versions do.
        if id.is_own() || connector.versions().is_some() {
            ownership::show(&self.mounted, node, &info.ownership, attr);
        }
        if node.item.view.names_attributes() && info.kind != ObjectKind::Dataset {
            ownership::keep_sticky(&self.mounted, &info.ownership, attr);
        }
        self.set_times(node, &info, attr);
    }

    fn defaults(&self, node: &Node) -> Attr {
        let (kind, spec, backing) = (node.item.file_kind(), &self.mounted.spec, self.mounted.backing());
        let perm = match kind {
            FileKind::Directory => spec.dir_mode,
            FileKind::Symlink => 0o777,
            FileKind::Regular => spec.file_mode,
        };
        Attr {
            ino: node.ino,
            kind,
            perm,
            nlink: 1,
            size: 0,
            blocks: 0,
            blksize: 4096,
            atime: backing.atime,
            mtime: backing.mtime,
            ctime: backing.ctime,
            btime: backing.mtime,
            uid: spec.uid,
            gid: spec.gid,
            is_brief: kind == FileKind::Regular && node.item.view.is_generated(&node.item),
        }
    }

    fn set_times(&self, node: &Node, info: &ObjectInfo, attr: &mut Attr) {
        let Some(id) = node.item.object() else { return };
        let [atime, mtime, ctime, btime] = info.times.map(|t| t.map(|s| SystemTime::UNIX_EPOCH + Duration::from_secs(u64::from(s))));
        // A header may record some times only: the change time replaces a missing modification
        // time.
        attr.mtime = mtime.or(ctime).unwrap_or(attr.mtime);
        attr.ctime = ctime.or(mtime).unwrap_or(attr.ctime);
        attr.atime = atime.or(mtime).unwrap_or(attr.atime);
        attr.btime = btime.or(mtime).unwrap_or(attr.btime);
        if let Some(times) = self.times.get(id).filter(|_| self.mounted.changing) {
            attr.mtime = times.mtime.unwrap_or(attr.mtime);
            attr.atime = times.atime.unwrap_or(attr.atime);
            attr.ctime = times.ctime;
        }
        if attr.kind == FileKind::Regular && !node.is_gone() {
            attr.nlink = info.links.max(1);
        }
    }

    fn set_size(&self, node: &Node, attr: &mut Attr) -> Result<()> {
        match node.item.class {
            Class::Group | Class::Directory => {}
            Class::Broken => attr.perm = 0,
            Class::Symlink => attr.size = self.namespace.target(node)?.len() as u64,
            Class::Dataset | Class::File => {
                let extent = node.item.view.extent(&self.mounted.context(), node)?;
                (attr.size, attr.blocks, attr.blksize) = (extent.size, extent.allocated.div_ceil(BLOCK_BYTES), extent.block_size);
            }
        }
        Ok(())
    }
}
