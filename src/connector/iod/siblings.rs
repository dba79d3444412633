//! Other versions than that which is shown, each as a container of its own that is only read.
//!
//! An object of version N has the file number N in its identity; 0 is the version that is shown.

use super::access::IodConnector;
use super::external::{FOREIGN, INNER, shown};
use super::ids;
use super::state::State;
use crate::base::{Error, Result};
use crate::connector::{Connector, Link, LinkTarget, ObjectId};
use std::sync::Arc;

/// Numbers of versions that a listing keeps.
const LISTED_MAX: usize = 1 << 16;

/// The object `id` of the version `version`.
pub(super) fn of_version(id: ObjectId, version: u32) -> ObjectId {
    ObjectId { file: version, ..id }
}

/// A link of a group of the version or the file that the file number `of` is of.
pub(super) fn link_of(link: Link, of: u32) -> Link {
    match link.target {
        LinkTarget::Hard(id) => Link { target: LinkTarget::Hard(shown(id, of)), ..link },
        _ => link,
    }
}

impl IodConnector {
    /// The file of a foreign object, and the object there.
    pub(super) fn foreign(&self, id: ObjectId) -> Result<(Arc<dyn Connector>, ObjectId)> {
        let none = || Error::corrupt("object", id.address, "it is of another file");
        let external = self.external.get().ok_or_else(none)?;
        Ok((external.of(id.file)?, ObjectId { file: id.file & INNER, ..id }))
    }

    /// What an external link of the container leads to; `None`: nothing that may be shown.
    pub(super) fn follow_external(&self, file: &[u8], object: &[u8]) -> Result<Option<ObjectId>> {
        let Some(external) = self.external.get() else { return Ok(None) };
        let (number, there) = match external.file(file) {
            Ok(opened) => opened,
            // What is refused and could be allowed is no missing file.
            Err(e @ Error::Refused { .. }) => return Err(e),
            Err(e) => {
                tracing::debug!("{e}");
                return Ok(None);
            }
        };
        let Some(found) = there.resolve(there.root(), object)? else { return Ok(None) };
        if found.file > INNER {
            return Err(Error::limit("external link", found.address, "it leads through too many files"));
        }
        Ok(Some(shown(found, FOREIGN | number << 11)))
    }

    /// The container of the version of `id`, or the file that it is in, and the object there;
    /// `None`: it is shown here.
    pub(super) fn elsewhere(&self, id: ObjectId) -> Result<Option<(Arc<dyn Connector>, ObjectId)>> {
        if id.is_own() {
            return Ok(None);
        }
        if id.file >= FOREIGN {
            return self.foreign(id).map(Some);
        }
        if let Some(there) = self.siblings.open.lock().get(&id.file) {
            return Ok(Some((there.clone(), ids::object(id.serial()))));
        }
        let snapshot = self.container.snapshot(Some(id.file.into()))?;
        let opened = self.sibling(State::new(self.container.clone(), snapshot, None));
        // Another thread may have opened it meanwhile: its caches are kept.
        let there = self.siblings.open.lock().get_or_insert(id.file, || opened).clone();
        Ok(Some((there, ids::object(id.serial()))))
    }

    /// When a version was committed, seconds since 1970; `None`: there is no such version.
    pub(super) fn committed_at(&self, version: u64) -> Result<Option<u64>> {
        if let Some(seconds) = self.siblings.times.lock().get(&version) {
            return Ok(Some(*seconds));
        }
        let Some((record, _)) = self.container.read_record(version)? else { return Ok(None) };
        self.siblings.times.lock().put(version, record.seconds);
        Ok(Some(record.seconds))
    }

    /// Numbers of versions after `version`. One request of the store serves many calls.
    pub(super) fn listed_after(&self, version: u64) -> Result<Arc<[u64]>> {
        {
            let listed = self.siblings.listed.lock();
            let at = listed.1.partition_point(|n| *n <= version);
            if version > 0 && version >= listed.0 && at < listed.1.len() {
                return Ok(listed.1.get(at..).unwrap_or_default().into());
            }
        }
        let numbers: Arc<[u64]> = self.container.versions_after(version, LISTED_MAX)?.into();
        *self.siblings.listed.lock() = (version, numbers.clone());
        Ok(numbers)
    }
}
