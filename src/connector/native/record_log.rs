//! The log of records of a file: its group, and the anchors of its datasets.

use super::access::Access;
use super::log_members::{data_range, integers, member, members, shape};
use super::log_names::{DEFLATE, GROUP, ID, MAXIMUM, SHAPE};
use super::object::Object;
use super::{NativeConnector, attribute};
use crate::base::request_error::errno_of;
use crate::base::shape::Shape;
use crate::base::{Address, Error, Result, limits};
use crate::dataset::layout::{Anchor, InLog, LogDataset, LogGroup, LogState, RecordAnchor, RecordLog, WriterRuns};
use crate::file::posix::PosixFile;
use crate::file::writer_log::WriterLogs;
use crate::format::log::record::IDS_MAX;
use crate::format::log::writer::WriterHead;
use crate::format::message::link::LinkTarget;
use crate::structures::group;
use std::collections::BTreeMap;
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
/// Attribute of the group: identifiers of run files whose elements are in the log.
pub(super) const JOINED: &[u8] = b"joined";
/// Attribute of the group: a random number, which run files of this log have, too.
pub(super) const IDENTITY: &[u8] = b"identity";
/// Number after those of log datasets.
const LOG_NUMBERS_END: u32 = 1 << 31;

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
    let closed = || Error::corrupt(NAME, Address::UNDEF, "the container is closed");
    let weak = connector.this.clone();
    let source = move || open_group(&Access::of_caller(&*weak.upgrade().ok_or_else(closed)?), index);
    let weak = connector.this.clone();
    let beside = move || writers(&*weak.upgrade().ok_or_else(closed)?, index);
    Arc::new(RecordLog::new(connector.environment(), Box::new(source), Box::new(beside), false))
}

/// Opens what the group has.
fn open_group(access: &Access<'_>, index: u32) -> Result<LogGroup> {
    let connector = access.connector;
    let file = connector.file(index)?;
    let root = Object::open(&file, file.root)?;
    let object = find(&root)?.ok_or_else(|| Error::corrupt(NAME, file.root, "there is no log"))?;
    let at = object.header.address;
    let values = integers(&object, STATE)?.map(|values| values.iter().map(|n| u64::try_from(*n).ok()).collect::<Option<Vec<u64>>>());
    let state = match values.as_ref().map(|values| values.as_deref()) {
        None => None,
        // Earlier versions do not count live bytes.
        Some(Some([VERSION, a, b, c, d, e, more @ ..])) => Some(LogState::of([*a, *b, *c, *d, *e, more.first().copied().unwrap_or(0)])),
        Some(Some([version, ..])) => return Err(Error::unsupported(NAME, at, format!("version {version}"))),
        Some(_) => return Err(Error::corrupt(NAME, at, "a state of negative numbers")),
    };
    let next_id = integers(&object, DATASETS)?.and_then(|n| u64::try_from(*n.first()?).ok());
    let next_id = next_id.ok_or_else(|| Error::corrupt(NAME, at, "a negative number of datasets"))?;
    let is_default = integers(&object, DEFAULT)?.is_some_and(|n| n.first() == Some(&1));
    let identity = integers(&object, IDENTITY)?.and_then(|n| u64::try_from(*n.first()?).ok()).unwrap_or(0);
    let mut group = LogGroup {
        state,
        next_id,
        is_default,
        logs: BTreeMap::new(),
        index: None,
        skip: None,
        store: file.store.clone(),
        released: None,
        identity,
    };
    for (name, address) in members(&object)? {
        match name.as_slice() {
            INDEX => group.index = Some(member(access, &file, address)?.bytes),
            SKIP => group.skip = Some(member(access, &file, address)?.bytes),
            _ => {
                let Some(number) = number_of(&name) else { continue };
                match member(access, &file, address).map(|d| data_range(&d)) {
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

/// The run files beside file number `index` of `connector` that its log was not joined with yet. A
/// file that is changed was joined with all of them.
fn writers(connector: &NativeConnector, index: u32) -> Result<Vec<WriterRuns>> {
    if index == 0 && connector.editing.is_some() {
        return Ok(Vec::new());
    }
    let file = connector.file(index)?;
    let Some(places) = &file.writers else { return Ok(Vec::new()) };
    let found = run_files(places)?;
    if found.is_empty() {
        return Ok(Vec::new());
    }
    let group = find(&Object::open(&file, file.root)?)?;
    let group = group.ok_or_else(|| Error::corrupt(NAME, file.root, "there is no log"))?;
    unjoined(found, &joined(&group)?)
}

/// The run files at `places`, and their writers.
pub(super) fn run_files(places: &WriterLogs) -> Result<Vec<(u32, PosixFile)>> {
    let failed = |e: std::io::Error| Error::refused(errno_of(&e).unwrap_or(libc::EIO), format!("run files of log writers: {e}"));
    places.all(WriterHead::begins).map_err(failed)
}

/// The runs of the files `found`, but for those with an identifier in `joined`.
pub(super) fn unjoined(found: Vec<(u32, PosixFile)>, joined: &[u64]) -> Result<Vec<WriterRuns>> {
    let mut all = Vec::new();
    for (writer, found) in found {
        let named = |e: Error| Error::corrupt(NAME, Address::UNDEF, format!("the run file of writer {writer}: {e}"));
        let opened = WriterRuns::open(writer, Arc::new(found)).map_err(named)?;
        all.extend(opened.filter(|runs| !joined.contains(&runs.head.id)));
    }
    Ok(all)
}

/// Identifiers of the run files that the log `object` was joined with last.
pub(super) fn joined(object: &Object) -> Result<Vec<u64>> {
    let value = attribute::find(object, JOINED)?.filter(|value| value.datatype.size == 8);
    let bytes = value.map(|value| value.bytes).unwrap_or_default();
    Ok(bytes.as_chunks::<8>().0.iter().map(|id| u64::from_le_bytes(*id)).collect())
}

fn number_of(name: &[u8]) -> Option<u32> {
    let digits = std::str::from_utf8(name.strip_prefix(LOG_PREFIX)?).ok()?;
    let number = digits.parse::<u32>().ok()?;
    (number.to_string() == digits && (1..LOG_NUMBERS_END).contains(&number)).then_some(number)
}

/// What the dataset object `object` is an anchor of.
pub(super) fn anchor(log: &Arc<RecordLog>, object: &Object) -> Result<Option<Anchor>> {
    let corrupt = |detail: &'static str| Error::corrupt("log anchor", object.header.address, detail);
    let Some(id) = integers(object, ID)? else { return Ok(None) };
    let id =
        id.first().and_then(|id| u64::try_from(*id).ok()).filter(|id| (1..IDS_MAX).contains(id)).ok_or_else(|| corrupt("a wrong ID"))?;
    let dims = integers(object, SHAPE)?.ok_or_else(|| corrupt("there is no shape"))?;
    let max = integers(object, MAXIMUM)?;
    if dims.len() > limits::RANK_MAX || max.as_ref().is_some_and(|max| max.len() != dims.len()) {
        return Err(corrupt("a wrong rank"));
    }
    let deflate = integers(object, DEFLATE)?.is_some();
    let mut shape = shape(&dims, max.as_deref()).ok_or_else(|| corrupt("a negative dimension"))?;
    if let Shape::Simple { dims, max: Some(max) } = &mut shape
        && let (Some(first), Some(most)) = (dims.first_mut(), max.first())
        && let Some(rows) = log.rows(id).filter(|rows| rows > first)
    {
        if rows > *most {
            return Err(corrupt("run files of log writers beside the file have more rows than its maximum shape"));
        }
        *first = rows;
    }
    Ok(Some(Anchor { shape, log: InLog::Records(RecordAnchor { id, deflate, log: log.clone() }) }))
}
