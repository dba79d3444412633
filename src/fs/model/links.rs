//! Links of a group, as its container stores them.

use super::{ObjectModel, without_reason};
use crate::base::{Error, Result};
use crate::connector::ObjectKind;
use crate::fs::done::Invalidate;
use crate::fs::retry::consistent;
use crate::fs::types::{Creator, Entry, Errno, FsResult};

/// A container, and a group in it with several hard links.
pub type SharedGroup = (u64, u64);

/// A link as the container stores it. Hard links of files are made by `link`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StoredLink {
    /// To a path in the same container.
    Soft {
        /// Path as stored.
        path: Vec<u8>,
        /// Text of the symbolic link that it was made of, if that is stored as well.
        text: Option<Vec<u8>>,
    },
    /// To a path in another container.
    External {
        /// File name as stored.
        file: Vec<u8>,
        /// Path in that file.
        object: Vec<u8>,
    },
    /// A hard link to the group that lies so many directories above the link's own; 0 is that
    /// directory.
    Above(usize),
    /// Of a class that this program does not know.
    UserDefined(u8),
}

impl ObjectModel {
    /// The link `name` of the group as it is stored; `None`: a hard link to an object that is not
    /// above it, or no link of this container.
    pub fn stored_link(&self, name: &[u8]) -> Result<Option<StoredLink>> {
        let _names = self.models.namespace.lock_shared();
        let find = || self.models.namespace.stored_link(self.ino, name);
        consistent(&self.models.mounted, find, |_| ()).map_err(without_reason)
    }

    /// Identifies the container, among those that this process opened, and the group, if it has
    /// several hard links.
    pub fn shared_group(&self) -> Result<Option<SharedGroup>> {
        self.read(|object| {
            let info = object.connector.info(object.id)?;
            Ok((object.id.is_own() && info.kind == ObjectKind::Group && info.links > 1).then(|| (self.models.number, object.id.serial())))
        })
    }

    /// Creates the link `name` of the group, as `stored_link` returns it.
    pub fn create_link(&self, name: &[u8], link: &StoredLink, creator: Creator) -> Result<()> {
        self.create(|unseen| self.models.names.make_stored_link(self.ino, name, link, creator, unseen))
    }

    /// Creates the link `name` of the group, a hard link to `group` of the same container.
    pub fn link_group(&self, name: &[u8], group: &ObjectModel) -> Result<()> {
        self.create(|unseen| self.models.names.link_group(self.ino, name, group.ino, unseen))
    }

    /// Creates a name in the group by `f`.
    fn create(&self, f: impl FnOnce(&mut Invalidate) -> FsResult<Entry>) -> Result<()> {
        let _names = self.models.namespace.lock_alone(&[self.ino]);
        let reasons = &self.models.mounted.reasons;
        reasons.forget(self.id);
        let reason = |Errno(errno)| reasons.last(self.id).map_or_else(|| without_reason(Errno(errno)), |why| Error::refused(errno, why));
        let made = f(&mut Invalidate::default()).map_err(reason)?;
        self.models.namespace.nodes.forget(made.attr.ino, 1);
        Ok(())
    }
}
