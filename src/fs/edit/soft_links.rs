//! Soft links that stand for symbolic links: their paths, and the texts that are kept beside them.

use super::names::{DirectorySlot, NameEditor};
use crate::base::Error;
use crate::connector::edit::Edit;
use crate::connector::{LinkTarget, ObjectId, ObjectKind};
use crate::fs::done::Invalidate;
use crate::fs::namespace::Node;
use crate::fs::symlink::{self, SoftLink};
use crate::fs::types::{Creator, Entry, FsResult, ROOT};
use std::sync::Arc;

impl NameEditor {
    /// Creates a soft link for the symbolic link `target`.
    pub(super) fn create_soft_link(
        &self,
        slot: &DirectorySlot,
        target: &[u8],
        creator: Creator,
        invalidate: &mut Invalidate,
    ) -> FsResult<Entry> {
        let link = self.soft_link(&slot.dir, target);
        let create = |edit: &dyn Edit, group, name: &[u8]| {
            edit.symlink(group, name, &link.path)?;
            let stored = if link.text.is_none() { Ok(()) } else { retarget(edit, (group, name), &link, target) };
            stored.inspect_err(|_| drop(edit.unlink(group, name, false)))
        };
        self.create_link(slot, creator, create, invalidate)
    }

    /// The soft link in `dir` for the symbolic link `target`.
    fn soft_link(&self, dir: &Arc<Node>, target: &[u8]) -> SoftLink {
        let place = symlink::SymlinkPlace { dir: &dir.path(), prefix: &self.mounted.prefix };
        symlink::stored(target, place, &|names| self.has_parent(names))
    }

    /// False if `names` from the root of the mount lead to a file or a link.
    fn has_parent(&self, names: &[Vec<u8>]) -> bool {
        let connector = &self.mounted.connector;
        let is_directory = |id| connector.info(id).is_ok_and(|info| matches!(info.kind, ObjectKind::Group | ObjectKind::Map));
        let Ok((_, mut id)) = self.group(ROOT) else { return false };
        let mut above = Vec::new();
        for name in names {
            above.push(id);
            match connector.lookup(id, name).map(|link| link.map(|link| link.target)) {
                Ok(None) => return true,
                // A link to a group above it is shown as a symbolic link.
                Ok(Some(LinkTarget::Hard(next))) if is_directory(next) && !above.contains(&next) => id = next,
                _ => return false,
            }
        }
        true
    }

    /// Gives the moved link `name` in `dir` the path that its text leads to there.
    pub(super) fn follow_text(&self, edit: &dyn Edit, dir: &Arc<Node>, (group, name): (ObjectId, &[u8])) -> Result<(), Error> {
        let Some(LinkTarget::Soft(path)) = self.mounted.connector.lookup(group, name)?.map(|link| link.target) else { return Ok(()) };
        let Some(target) = self.mounted.context().text_of_link((group, name), &path) else { return Ok(()) };
        let link = self.soft_link(dir, &target);
        if link.path == path { Ok(()) } else { retarget(edit, (group, name), &link, &target) }
    }
}

/// Makes the soft link `name` of `group` the link `link`, or one that holds its text `target` as it
/// is if the group has no room for texts.
fn retarget(edit: &dyn Edit, (group, name): (ObjectId, &[u8]), link: &SoftLink, target: &[u8]) -> Result<(), Error> {
    match edit.retarget(group, name, &link.path, link.text.as_deref()) {
        Err(Error::Refused { errno: libc::EMLINK, .. }) => edit.retarget(group, name, &symlink::verbatim(target), None),
        done => done,
    }
}
