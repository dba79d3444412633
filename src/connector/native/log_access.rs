//! The log of the mounted file, for connectors: what datasets have in it, its use, its parts.

use super::NativeConnector;
use super::access::Access;
use super::log::dump_counts;
use super::log_names::FileLog;
use crate::base::shape::Shape;
use crate::base::{Error, Result};
use crate::connector::log::{DatasetInLog, Log, LogUse, LogVisitor};
use crate::connector::{Connector, ObjectId, ObjectKind};
use crate::dataset::layout::{Anchor, InLog, LogTotals, Measure, RecordLog};
use crate::format::message::link;
use crate::structures::group;
use foldhash::{HashMap, HashSet};
use std::ops::ControlFlow;
use std::sync::Arc;

/// A walk over the datasets of the mounted file whose elements are in a log.
struct AnchorWalk {
    seen: HashSet<ObjectId>,
    groups: Vec<ObjectId>,
    /// Objects of the group that was visited last.
    members: Vec<ObjectId>,
}

impl AnchorWalk {
    fn new(root: ObjectId) -> Self {
        AnchorWalk { seen: HashSet::from_iter([root]), groups: vec![root], members: Vec::new() }
    }

    /// Calls `f` with the datasets of the next group. Returns false if there are no more groups.
    /// Errors: a group, a link or an object cannot be read; its datasets would count as deleted.
    fn advance(&mut self, access: &Access<'_>, f: &mut VisitAnchor<'_>) -> Result<bool> {
        while let Some(id) = self.members.pop() {
            match access.info(id)?.kind {
                ObjectKind::Group => self.groups.push(id),
                ObjectKind::Dataset => {
                    if let Some(anchor) = access.anchor_of(&access.object(id)?)? {
                        f(access, id, anchor)?;
                        return Ok(true);
                    }
                }
                ObjectKind::Datatype | ObjectKind::Map => {}
                ObjectKind::Unknown => return Err(Error::corrupt("object header", id.address, "the object is of no known kind")),
            }
        }
        let Some(group) = self.groups.pop() else { return Ok(false) };
        self.members = access.all_members(group)?.into_iter().filter(|id| self.seen.insert(*id)).collect();
        self.members.reverse();
        Ok(true)
    }
}

/// Called with a dataset whose elements are in a log.
pub(super) type VisitAnchor<'a> = dyn FnMut(&Access<'_>, ObjectId, Anchor) -> Result<()> + 'a;
/// Called with a dataset in the log of records: its ID in the log, and what it has there.
pub(super) type VisitInLog<'a> = dyn FnMut(ObjectId, u64, Measure) + 'a;

/// Calls `f` with `anchor`, the dataset `id`, if it is in the log of records.
fn visit_in_log(access: &Access<'_>, id: ObjectId, f: &mut VisitInLog<'_>) -> Result<()> {
    let open = access.dataset(id)?;
    if let Some(logged) = open.dataset.layout().logged() {
        f(id, logged.id(), logged.measure()?);
    }
    Ok(())
}

impl NativeConnector {
    /// The log of the mounted file that is written, of either kind, if it was used since the file
    /// was opened: another one has nothing in memory. A SWMR writer writes none.
    pub(super) fn used_log(&self) -> Option<Arc<RecordLog>> {
        if self.is_swmr() {
            return None;
        }
        let file = self.file(0).ok()?;
        let known = file.log.read().clone().flatten();
        known?.written().cloned()
    }

    fn is_swmr(&self) -> bool {
        self.editing.as_ref().is_some_and(|editing| editing.swmr.get().is_some())
    }

    /// Calls `f` with each dataset of the file whose elements are in a log. Operations go on
    /// meanwhile.
    pub(super) fn each_anchor(&self, f: &mut VisitAnchor<'_>) -> Result<()> {
        let mut walk = AnchorWalk::new(self.root());
        while walk.advance(&self.access(), f)? {}
        Ok(())
    }

    /// Calls `f` with each dataset in the log of records. Operations go on meanwhile.
    pub(super) fn each_in_log(&self, f: &mut VisitInLog<'_>) -> Result<()> {
        self.each_anchor(&mut |access, id, _| visit_in_log(access, id, f))
    }
}

impl Access<'_> {
    /// The log of the mounted file that is written, of either kind. A SWMR writer writes none.
    pub(super) fn written_log(&self) -> Option<Arc<RecordLog>> {
        if self.connector.is_swmr() { None } else { self.known_log() }
    }

    /// The log of the mounted file that can be written, of either kind.
    fn known_log(&self) -> Option<Arc<RecordLog>> {
        self.log_of(&self.connector.file(0).ok()?)?.written().cloned()
    }

    /// The log of records of the mounted file, if it has one.
    pub(super) fn record_log(&self) -> Option<Arc<RecordLog>> {
        match self.log_of(&self.connector.file(0).ok()?).as_deref() {
            Some(FileLog::Records(log)) => Some(log.clone()),
            _ => None,
        }
    }

    /// Calls `f` with each dataset of the file whose elements are in a log.
    pub(super) fn each_anchor(&self, f: &mut VisitAnchor<'_>) -> Result<()> {
        let mut walk = AnchorWalk::new(self.connector.root());
        while walk.advance(self, f)? {}
        Ok(())
    }

    /// Calls `f` with each dataset in the log of records.
    pub(super) fn each_in_log(&self, f: &mut VisitInLog<'_>) -> Result<()> {
        self.each_anchor(&mut |access, id, _| visit_in_log(access, id, f))
    }

    /// Targets of the hard links of `group`. Errors: a link cannot be read.
    fn all_members(&self, group: ObjectId) -> Result<Vec<ObjectId>> {
        let object = self.object(group)?;
        let mut members = Vec::new();
        let damage = group::list(&object.file.store, &object.group_storage()?, 0, &mut |link, _| {
            if let link::LinkTarget::Hard(address) = link.target {
                members.push(ObjectId { file: group.file, address });
            }
            Ok(ControlFlow::Continue(()))
        })?;
        damage.map_or(Ok(()), Err)?;
        // `group_storage` omits damaged link messages of a compact group.
        object.link_messages().try_for_each(|link| link.map(drop))?;
        Ok(members)
    }
}

impl Log for NativeConnector {
    fn dataset(&self, id: ObjectId) -> Result<Option<DatasetInLog>> {
        let access = self.access();
        let open = access.dataset(id)?;
        let measure = open.dataset.layout().logged().map(|logged| logged.measure()).transpose()?;
        Ok(measure.map(|m| DatasetInLog { written: m.written, extents: m.extents }))
    }

    fn usage(&self) -> Result<LogUse> {
        let Some(log) = self.access().known_log() else { return Ok(LogUse::default()) };
        let (mut written, mut stored, mut unmeasured) = (0u64, 0u64, false);
        self.each_in_log(&mut |_, _, measure| {
            written = written.saturating_add(measure.written);
            stored = stored.saturating_add(measure.stored);
            unmeasured |= measure.unmeasured;
        })?;
        let LogTotals { logs, bytes: total, indexed, unindexed, staged, .. } = {
            let _access = self.access();
            log.totals()?
        };
        let dead = (!unmeasured).then(|| total.saturating_sub(stored));
        Ok(LogUse { logs, total, written, dead, indexed, unindexed, staged })
    }

    fn dump(&self, f: &mut LogVisitor<'_>) -> Result<()> {
        let access = self.access();
        match access.log_of(&self.file(0)?).as_deref() {
            Some(FileLog::Records(log)) => log.dump(f),
            Some(FileLog::Released { prefix, log, .. }) => {
                dump_counts(&self.file(0)?, prefix, f)?;
                let mut shapes = HashMap::default();
                access.each_anchor(&mut |_, _, anchor| {
                    let dims = if let Shape::Simple { dims, .. } = anchor.shape { dims } else { Vec::new() };
                    if let InLog::Released(released) = anchor.log {
                        shapes.insert(released.id, (dims, released.legacy));
                    }
                    Ok(())
                })?;
                log.dump(&|id| shapes.get(&id).cloned(), f)
            }
            None => Ok(()),
        }
    }
}
