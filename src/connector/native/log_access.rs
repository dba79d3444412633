//! The log of the mounted file, for connectors: what datasets have in it, its use, its parts.

use super::NativeConnector;
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

impl NativeConnector {
    /// The log of the mounted file that is written, of either kind. A SWMR writer writes none.
    pub(super) fn written_log(&self) -> Option<Arc<RecordLog>> {
        let is_swmr = self.editing.as_ref().is_some_and(|editing| editing.swmr.get().is_some());
        if is_swmr { None } else { self.known_log() }
    }

    /// The log of the mounted file that can be written, of either kind.
    fn known_log(&self) -> Option<Arc<RecordLog>> {
        self.log_of(&self.file(0).ok()?)?.written().cloned()
    }

    /// The log of records of the mounted file, if it has one.
    pub(super) fn record_log(&self) -> Option<Arc<RecordLog>> {
        match self.log_of(&self.file(0).ok()?).as_deref() {
            Some(FileLog::Records(log)) => Some(log.clone()),
            _ => None,
        }
    }

    /// Calls `f` with each dataset of the file whose elements are in a log. Errors: a group, a link
    /// or an object cannot be read; its datasets would count as deleted.
    pub(super) fn each_anchor(&self, f: &mut dyn FnMut(ObjectId, Anchor) -> Result<()>) -> Result<()> {
        let (mut seen, mut groups) = (HashSet::default(), vec![self.root()]);
        seen.insert(self.root());
        while let Some(group) = groups.pop() {
            for id in self.all_members(group)?.into_iter().filter(|id| seen.insert(*id)) {
                match self.info(id)?.kind {
                    ObjectKind::Group => groups.push(id),
                    ObjectKind::Dataset => {
                        let _shared = self.shared();
                        if let Some(anchor) = self.anchor_of(&self.object(id)?)? {
                            f(id, anchor)?;
                        }
                    }
                    ObjectKind::Datatype | ObjectKind::Map => {}
                    ObjectKind::Unknown => return Err(Error::corrupt("object header", id.address, "the object is of no known kind")),
                }
            }
        }
        Ok(())
    }

    /// Targets of the hard links of `group`. Errors: a link cannot be read.
    fn all_members(&self, group: ObjectId) -> Result<Vec<ObjectId>> {
        let _shared = self.shared();
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

    /// Calls `f` with each dataset in the log of records: ID in the log, and what it has there.
    pub(super) fn each_in_log(&self, f: &mut dyn FnMut(ObjectId, u64, Measure)) -> Result<()> {
        self.each_anchor(&mut |id, _| {
            let open = self.dataset(id)?;
            if let Some(logged) = open.dataset.layout().logged() {
                f(id, logged.id(), logged.measure()?);
            }
            Ok(())
        })
    }
}

impl Log for NativeConnector {
    fn dataset(&self, id: ObjectId) -> Result<Option<DatasetInLog>> {
        let _shared = self.shared();
        let open = NativeConnector::dataset(self, id)?;
        let measure = open.dataset.layout().logged().map(|logged| logged.measure()).transpose()?;
        Ok(measure.map(|m| DatasetInLog { written: m.written, extents: m.extents }))
    }

    fn usage(&self) -> Result<LogUse> {
        let Some(log) = self.known_log() else { return Ok(LogUse::default()) };
        let (mut written, mut stored, mut unmeasured) = (0u64, 0u64, false);
        self.each_in_log(&mut |_, _, measure| {
            written = written.saturating_add(measure.written);
            stored = stored.saturating_add(measure.stored);
            unmeasured |= measure.unmeasured;
        })?;
        let LogTotals { logs, bytes: total, indexed, unindexed, staged, .. } = log.totals()?;
        let dead = (!unmeasured).then(|| total.saturating_sub(stored));
        Ok(LogUse { logs, total, written, dead, indexed, unindexed, staged })
    }

    fn dump(&self, f: &mut LogVisitor<'_>) -> Result<()> {
        match self.log_of(&self.file(0)?).as_deref() {
            Some(FileLog::Records(log)) => log.dump(f),
            Some(FileLog::Released { prefix, log, .. }) => {
                dump_counts(&self.file(0)?, prefix, f)?;
                let mut shapes = HashMap::default();
                self.each_anchor(&mut |_, anchor| {
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
