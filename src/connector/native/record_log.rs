//! The log of records of a file: its group, and the anchors of its datasets.

use super::NativeConnector;
use super::log_members::{data_range, integers, member, members, shape};
use super::log_names::{DEFLATE, FileLog, GROUP, ID, MAXIMUM, SHAPE};
use super::object::Object;
use crate::base::shape::Shape;
use crate::base::{Address, Error, Result, limits};
use crate::connector::log::{DatasetInLog, Log, LogUse, LogVisitor};
use crate::connector::{Connector, LinkTarget as Target, ObjectId, ObjectKind};
use crate::dataset::layout::{Anchor, InLog, LogDataset, LogGroup, LogState, LogTotals, Measure, RecordAnchor, RecordLog};
use crate::format::message::link::LinkTarget;
use crate::structures::group;
use foldhash::{HashMap, HashSet};
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

/// Name of this structure in errors.
const NAME: &str = "log group";
/// Attributes of the group: the next dataset ID, the number of log datasets, the state.
pub(super) const DATASETS: &[u8] = b"datasets";
pub(super) const LOGS: &[u8] = b"logs";
pub(super) const STATE: &[u8] = b"state";
/// Attribute of the group: new datasets are in the log.
pub(super) const DEFAULT: &[u8] = b"default";
/// Version of the log: the first number of the state.
pub(super) const VERSION: u64 = 1;
/// Datasets of the group.
pub(super) const INDEX: &[u8] = b"index_table";
pub(super) const SKIP: &[u8] = b"skip_list";
const LOG_PREFIX: &[u8] = b"log_";

/// Name of log dataset `number`.
pub(super) fn log_name(number: u32) -> Vec<u8> {
    [LOG_PREFIX, number.to_string().as_bytes()].concat()
}

/// The log group of a file with the root group `root`, if it has one.
pub(super) fn find(root: &Object) -> Result<Option<Object>> {
    let link = group::lookup(&root.file.store, &root.group_storage()?, GROUP)?;
    let Some(LinkTarget::Hard(address)) = link.map(|l| l.target) else { return Ok(None) };
    let object = Object::open(&root.file, address)?;
    let is_log = integers(&object, DATASETS)?.is_some() && integers(&object, LOGS)?.is_some();
    Ok(is_log.then_some(object))
}

/// The log of records of file number `index`, opened at its first use.
pub(super) fn open(connector: &NativeConnector, index: u32) -> Arc<RecordLog> {
    let weak = connector.this.clone();
    let source = move || {
        let closed = || Error::corrupt(NAME, Address::UNDEF, "the container is closed");
        open_group(&*weak.upgrade().ok_or_else(closed)?, index)
    };
    Arc::new(RecordLog::new(connector.environment(), Box::new(source)))
}

/// Opens what the group has.
fn open_group(connector: &NativeConnector, index: u32) -> Result<LogGroup> {
    let _shared = connector.shared();
    let file = connector.file(index)?;
    let root = Object::open(&file, file.root)?;
    let object = find(&root)?.ok_or_else(|| Error::corrupt(NAME, file.root, "there is no log"))?;
    let at = object.header.address;
    let values = integers(&object, STATE)?.map(|values| values.iter().map(|n| u64::try_from(*n).ok()).collect::<Option<Vec<u64>>>());
    let state = match values.as_ref().map(|values| values.as_deref()) {
        None => None,
        Some(Some([VERSION, a, b, c, d, e, ..])) => Some(LogState::of([*a, *b, *c, *d, *e])),
        Some(Some([version, ..])) => return Err(Error::unsupported(NAME, at, format!("version {version}"))),
        Some(_) => return Err(Error::corrupt(NAME, at, "a state of negative numbers")),
    };
    let next_id = integers(&object, DATASETS)?.and_then(|n| u64::try_from(*n.first()?).ok());
    let next_id = next_id.ok_or_else(|| Error::corrupt(NAME, at, "a negative number of datasets"))?;
    let is_default = integers(&object, DEFAULT)?.is_some_and(|n| n.first() == Some(&1));
    let mut group = LogGroup { state, next_id, is_default, logs: BTreeMap::new(), index: None, skip: None, store: file.store.clone() };
    for (name, address) in members(&object)? {
        match name.as_slice() {
            INDEX => group.index = Some(member(connector, &file, address)?.bytes),
            SKIP => group.skip = Some(member(connector, &file, address)?.bytes),
            _ => {
                let Some(number) = number_of(&name) else { continue };
                match member(connector, &file, address).map(|d| data_range(&d)) {
                    Ok(range) => {
                        let len = range.end.0.saturating_sub(range.start.0);
                        group.logs.insert(number, LogDataset { address: range.start, len });
                    }
                    Err(e) => tracing::warn!("data of the log cannot be read: {e}"),
                }
            }
        }
    }
    Ok(group)
}

fn number_of(name: &[u8]) -> Option<u32> {
    let digits = std::str::from_utf8(name.strip_prefix(LOG_PREFIX)?).ok()?;
    let number = digits.parse::<u32>().ok()?;
    (number.to_string() == digits && number > 0).then_some(number)
}

/// What the dataset object `object` is an anchor of.
pub(super) fn anchor(log: &Arc<RecordLog>, object: &Object) -> Result<Option<Anchor>> {
    let corrupt = |detail: &'static str| Error::corrupt("log anchor", object.header.address, detail);
    let Some(id) = integers(object, ID)? else { return Ok(None) };
    let id = id.first().and_then(|id| u64::try_from(*id).ok()).filter(|id| *id > 0).ok_or_else(|| corrupt("a wrong ID"))?;
    let dims = integers(object, SHAPE)?.ok_or_else(|| corrupt("there is no shape"))?;
    let max = integers(object, MAXIMUM)?.unwrap_or_else(|| dims.clone());
    if dims.len() > limits::RANK_MAX || max.len() != dims.len() {
        return Err(corrupt("a wrong rank"));
    }
    let deflate = integers(object, DEFLATE)?.is_some();
    let shape = shape(&dims, &max).ok_or_else(|| corrupt("a negative dimension"))?;
    Ok(Some(Anchor { shape, log: InLog::Records(RecordAnchor { id, deflate, log: log.clone() }) }))
}

impl NativeConnector {
    /// The log of records of the mounted file, if it has one.
    pub(super) fn record_log(&self) -> Option<Arc<RecordLog>> {
        match self.log_of(&self.file(0).ok()?).as_deref() {
            Some(FileLog::Records(log)) => Some(log.clone()),
            _ => None,
        }
    }

    /// Calls `f` with each dataset of the file whose elements are in a log.
    fn each_anchor(&self, f: &mut dyn FnMut(ObjectId, Anchor) -> Result<()>) -> Result<()> {
        let (mut seen, mut groups) = (HashSet::default(), vec![self.root()]);
        seen.insert(self.root());
        while let Some(group) = groups.pop() {
            let mut members = Vec::new();
            self.list(group, 0, &mut |link, _| {
                if let Target::Hard(id) = link.target
                    && seen.insert(id)
                {
                    members.push(id);
                }
                ControlFlow::Continue(())
            })?;
            for id in members {
                match self.info(id)?.kind {
                    ObjectKind::Group => groups.push(id),
                    ObjectKind::Dataset => {
                        let _shared = self.shared();
                        if let Some(anchor) = self.anchor_of(&self.object(id)?)? {
                            f(id, anchor)?;
                        }
                    }
                    ObjectKind::Datatype | ObjectKind::Unknown => {}
                }
            }
        }
        Ok(())
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
        let Some(log) = self.record_log() else { return Ok(LogUse::default()) };
        let (mut written, mut deflated) = (0u64, false);
        self.each_in_log(&mut |_, _, measure| {
            written = written.saturating_add(measure.written);
            deflated |= measure.deflated;
        })?;
        let LogTotals { logs, bytes: total, indexed, unindexed, staged } = log.totals()?;
        let dead = (!deflated).then(|| total.saturating_sub(written.saturating_sub(staged)));
        Ok(LogUse { logs, total, written, dead, indexed, unindexed, staged })
    }

    fn dump(&self, f: &mut LogVisitor<'_>) -> Result<()> {
        match self.log_of(&self.file(0)?).as_deref() {
            Some(FileLog::Records(log)) => log.dump(f),
            Some(FileLog::Released { prefix, log }) => {
                super::log::dump_counts(&self.file(0)?, prefix, f)?;
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
