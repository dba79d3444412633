//! Other versions than that which is shown, each as a container of its own that is only read.
//!
//! An object of version N has the file number N in its identity; 0 is the version that is shown.

use super::access::IodConnector;
use super::ids;
use super::state::State;
use crate::base::Result;
use crate::connector::{Link, LinkTarget, ObjectId};
use std::sync::Arc;

/// Numbers of versions that a listing keeps.
const LISTED_MAX: usize = 1 << 16;

/// The object `id` of the version `version`.
pub(super) fn of_version(id: ObjectId, version: u32) -> ObjectId {
    ObjectId { file: version, ..id }
}

/// A link of a group of the version `version`.
pub(super) fn link_of_version(link: Link, version: u32) -> Link {
    match link.target {
        LinkTarget::Hard(id) => Link { target: LinkTarget::Hard(of_version(id, version)), ..link },
        _ => link,
    }
}

impl IodConnector {
    /// The container of the version of `id`, and the object there; `None`: it is shown here.
    pub(super) fn elsewhere(&self, id: ObjectId) -> Result<Option<(Arc<IodConnector>, ObjectId)>> {
        if id.is_own() {
            return Ok(None);
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
