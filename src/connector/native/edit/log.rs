//! Appending to the log of records: anchors, log datasets, runs, the index.

use super::super::attribute::Value;
use super::super::dataset::Dataset;
use super::super::file::HdfFile;
use super::super::log_members::{self, integers as integers_of};
use super::super::log_names::{ATTRIBUTES, DEFLATE, GROUP, ID, MAXIMUM, SHAPE};
use super::super::object::Object;
use super::super::record_log::{self, DATASETS, DEFAULT, IDENTITY, INDEX, JOINED, LOGS, SKIP, STATE, VERSION};
use super::super::released_log::COUNTS;
use super::super::{NativeConnector, attribute};
use super::attributes::put;
use super::change_parts::LogChange;
use super::connector_parts::{Commits, WriteBack};
use super::flush::LogFlush;
use super::{is_full, now};
use crate::base::datatype::{ByteOrder, Class, Datatype, FixedPoint};
use crate::base::shape::Shape;
use crate::base::{Address, Error, Result};
use crate::connector::ObjectId;
use crate::connector::bytes_file::bytes_file;
use crate::dataset::creation::{Creation, Records};
use crate::dataset::layout::{InLog, LogDataset, LogState, RecordAnchor, RecordLog, new_chunked, new_contiguous};
use crate::format::log::run::RUN_PROBE_BYTES;
use crate::format::message::data_layout::{DataLayout, Layout as LayoutClass};
use crate::format::message::dataspace::Dataspace;
use crate::format::object_header::kind;
use crate::meta::edit::SpaceKind;
use crate::meta::header_edit::HeaderEdit;
use crate::structures::attributes::edit as attributes_edit;
use foldhash::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Least and largest chunk of the index table, bytes, and bytes of it per entry.
const INDEX_CHUNK_BYTES: (u64, u64) = (4 << 10, 1 << 20);
const ENTRY_BYTES: u64 = 64;
/// Chunk of the skip list, elements.
const SKIP_CHUNK: u64 = 1024;

/// Bytes of a new log dataset.
#[derive(Debug, Clone, Copy)]
pub(super) enum LogRoom {
    /// More than is needed now, perhaps.
    Estimated(u64),
    /// With storage for all of them.
    Reserved(u64),
}

/// The datatype of a 64-bit integer.
fn integer(signed: bool) -> Datatype {
    let class = FixedPoint { order: ByteOrder::LittleEndian, low_padding: false, high_padding: false, signed, offset: 0, precision: 64 };
    Datatype { size: 8, class: Class::FixedPoint(class), ..Datatype::byte() }
}

/// An attribute of 64-bit integers: one, or a list.
fn integers(numbers: &[i64], scalar: bool) -> Value {
    let shape = if scalar { Shape::Scalar } else { Shape::Simple { dims: vec![numbers.len() as u64], max: None } };
    let bytes = numbers.iter().flat_map(|n| n.to_le_bytes()).collect();
    Value { datatype: integer(true), shape, bytes }
}

/// The layout message of the contiguous dataset `d`, with its bytes elsewhere.
pub(super) fn contiguous_at(d: &Dataset, address: Address, size: u64) -> Result<DataLayout> {
    let LayoutClass::Contiguous { dims, .. } = &d.message.class else { return Err(d.object.lacks("contiguous data layout")) };
    let class = LayoutClass::Contiguous { address, size: Some(size), dims: dims.clone() };
    Ok(DataLayout { version: d.message.version, class })
}

/// A new identifier of a log or a run file, from 1 to 2^63 - 1.
pub(super) fn new_id() -> Result<u64> {
    let random = getrandom::u64().map_err(|e| Error::refused(libc::EIO, format!("no random numbers: {e}")))?;
    Ok((random >> 1).max(1))
}

pub(super) fn signed(n: u64) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}

impl LogChange<'_> {
    /// The log is looked for again: the operation that may have created it was rolled back.
    pub(super) fn forget_new_log(&self) {
        let gone = |file: &Arc<HdfFile>| {
            let root = Object::open(file, file.root);
            root.and_then(|root| Ok(record_log::find(&root)?.is_some() || integers_of(&root, COUNTS)?.is_some())).is_ok_and(|found| !found)
        };
        if self.change.access.written_log().is_some() && self.change.connector.file(0).is_ok_and(|file| gone(&file)) {
            self.change.connector.forget_log();
        }
    }

    fn set_integers(&self, id: ObjectId, name: &[u8], numbers: &[i64], scalar: bool) -> Result<()> {
        let store = self.change.store()?;
        let version = HeaderEdit::load(&store, id.address)?.version();
        put(&store, id, version, name, &integers(numbers, scalar))?;
        self.change.changed(id);
        Ok(())
    }

    fn root(&self) -> Result<ObjectId> {
        Ok(ObjectId { file: 0, address: self.change.connector.file(0)?.root })
    }

    /// The group of the log.
    pub(super) fn log_group(&self) -> Result<Option<ObjectId>> {
        let file = self.change.connector.file(0)?;
        let group = record_log::find(&Object::open(&file, file.root)?)?;
        Ok(group.map(|g| ObjectId { file: 0, address: g.header.address }))
    }

    /// The log of the file, made if there is none.
    fn log_to_write(&self) -> Result<(Arc<RecordLog>, ObjectId)> {
        let file = self.change.connector.file(0)?;
        if self.log_group()?.is_none() {
            if self.change.connector.options.log.raw {
                return Err(Error::refused(libc::EPERM, "a file without a log gets one only in a mount without --log=raw"));
            }
            if self.change.names().has_link(self.root()?, GROUP)? {
                return Err(name_taken());
            }
            self.check_no_run_files()?;
            let group = self.change.objects().create_group(self.root()?, GROUP)?;
            // The first ID is that of the log itself.
            self.set_integers(group, DATASETS, &[1], true)?;
            self.set_integers(group, LOGS, &[0], true)?;
            self.set_integers(group, STATE, &[signed(VERSION), 0, 0, 0, 0, 0, 0], false)?;
            self.set_integers(group, IDENTITY, &[signed(new_id()?)], true)?;
            *file.log.write() = None;
        }
        let group = self.log_group()?.ok_or_else(name_taken)?;
        let log = self.change.access.record_log();
        let log = log.ok_or_else(|| Error::refused(libc::EPERM, "a log is written only in a mount without --log=raw"))?;
        Ok((log, group))
    }

    /// Errors: run files are beside the file, which has no log: an earlier file had its name.
    fn check_no_run_files(&self) -> Result<()> {
        let Some(places) = &self.change.connector.file(0)?.writers else { return Ok(()) };
        let found = record_log::run_files(places)?;
        let Some((writer, _)) = found.first() else { return Ok(()) };
        let name = places.name(*writer);
        let reason = format!("{} is a run file of the log of another file, which had this name: move or remove it", name.display());
        Err(Error::refused(libc::EEXIST, reason))
    }

    /// New datasets are in the log from now on, unless they state otherwise. `released`: the log is
    /// one of the released log VOL, in which all datasets are.
    pub(super) fn log_by_default(&self, released: bool) -> Result<()> {
        if released {
            return self.create_released_log();
        }
        let (_, group) = self.log_to_write()?;
        self.set_integers(group, DEFAULT, &[1], true)?;
        *self.change.connector.file(0)?.log.write() = None;
        Ok(())
    }

    /// Makes the dataset object of `id`, which is as `creation` states, an anchor or none. `blank`:
    /// no element of it was written. Returns true if it keeps the ID that it has in the log.
    pub(super) fn set_anchor(&self, id: ObjectId, creation: &Creation, blank: bool) -> Result<bool> {
        if let Some(log) = self.change.access.written_log().filter(|log| log.is_released()) {
            return self.set_released_anchor(&log, id, creation, blank);
        }
        let object = self.change.access.object(id)?;
        let Some(records) = creation.layout.kind.records() else {
            if self.change.access.record_log().is_none() {
                return Ok(false);
            }
            for name in ATTRIBUTES {
                if attribute::stored(&object, name)?.is_some() {
                    attributes_edit::remove(&*self.change.store()?, id.address, name, now())?;
                }
            }
            self.change.changed(id);
            return Ok(false);
        };
        let (log, group) = self.log_to_write()?;
        let number = log.take_id()?;
        self.set_integers(group, DATASETS, &[signed(log.next_id())], true)?;
        let dims: Vec<i64> = creation.dims.iter().map(|d| signed(*d)).collect();
        let max: Vec<i64> = creation.max().iter().map(|m| m.map_or(-1, signed)).collect();
        self.set_integers(id, ID, &[signed(number)], true)?;
        self.set_integers(id, SHAPE, &dims, false)?;
        // Without it, the dataset has a fixed shape.
        self.set_integers_or_none(id, MAXIMUM, Some(max.as_slice()).filter(|max| *max != dims), false)?;
        self.set_integers_or_none(id, DEFLATE, Some(&[1][..]).filter(|_| records == Records::Deflated), true)?;
        self.change.changed(id);
        Ok(false)
    }

    /// Sets the attribute `name` of the anchor `id`, or removes it.
    fn set_integers_or_none(&self, id: ObjectId, name: &[u8], numbers: Option<&[i64]>, scalar: bool) -> Result<()> {
        match numbers {
            Some(numbers) => self.set_integers(id, name, numbers, scalar),
            None => attributes_edit::remove(&*self.change.store()?, id.address, name, now()).map(drop),
        }
    }

    /// Makes the dataset object of `id`, which takes over the storage of the dataset `from`, an
    /// anchor like it, or none.
    pub(super) fn move_anchor(&self, from: ObjectId, id: ObjectId, creation: &Creation) -> Result<()> {
        if creation.layout.kind.records().is_none() {
            return self.set_anchor(id, creation, false).map(drop);
        }
        let copy = self.change.access.object(from)?;
        for name in ATTRIBUTES {
            let numbers = log_members::integers(&copy, name)?;
            self.set_integers_or_none(id, name, numbers.as_deref(), name == ID || name == DEFLATE)?;
        }
        Ok(())
    }

    /// Stores the extent of a dataset: in its dataspace message, or in the attribute of an anchor.
    /// Returns whether it is an anchor.
    pub(super) fn set_anchor_extent(&self, d: &Dataset, space: &Dataspace) -> Result<bool> {
        if d.layout().for_copy().kind.records().is_none() {
            return Ok(false);
        }
        if let Some(log) = self.change.access.written_log().filter(|log| log.is_released()) {
            self.set_released_extent(&log, d.id, &space.dims)?;
            return Ok(true);
        }
        let dims: Vec<i64> = space.dims.iter().map(|d| signed(*d)).collect();
        self.set_integers(d.id, SHAPE, &dims, false)?;
        Ok(true)
    }

    /// Appends what is staged to the log. A commit makes it count.
    pub(super) fn flush_log(&self, when: LogFlush) -> Result<()> {
        let Some(log) = self.change.access.written_log() else { return Ok(()) };
        if log.is_released() {
            return self.flush_released(&log, when);
        }
        if when == LogFlush::Within && log.had_staged() {
            // An operation that fails takes the place in the log back, but not earlier writes.
            return Ok(());
        }
        let store = self.change.store()?;
        let commit = when == LogFlush::Commit;
        while let Some(run) = log.next_run(commit)? {
            let continued = !commit || log.has_more();
            let done = (|| {
                if log.place(run.len()).is_none() {
                    self.add_log(&log, LogRoom::Estimated(log.estimate(run.len())), when)?;
                }
                let next = store.transaction()?.has_changed_structures();
                let at = log.place(run.len()).ok_or_else(|| Error::refused(libc::ENOSPC, "no room in the log"))?;
                self.end_runs(&log, run.len())?;
                store.write_unused(at, &run.encode(log.serial(next), continued))?;
                Ok(next)
            })();
            match done {
                Ok(next) => log.placed(run, next && !continued, continued)?,
                Err(e) => {
                    log.restore(run);
                    return Err(e);
                }
            }
        }
        Ok(())
    }

    /// Zeroes the first unused bytes of the last log dataset, after `more` used ones. A run of a
    /// killed session may be there, and would count as the next one.
    fn end_runs(&self, log: &RecordLog, more: u64) -> Result<()> {
        let Some((_, LogDataset { address, len }, used)) = log.last_log() else { return Ok(()) };
        let end = used.saturating_add(more);
        let zeros = usize::try_from(len.saturating_sub(end)).unwrap_or(usize::MAX).min(RUN_PROBE_BYTES);
        match address.checked_add(end) {
            Some(at) if zeros > 0 => self.change.store()?.write_unused(at, &vec![0; zeros]),
            _ => Ok(()),
        }
    }

    /// Creates a log dataset.
    pub(super) fn add_log(&self, log: &RecordLog, room: LogRoom, when: LogFlush) -> Result<()> {
        self.end_runs(log, 0)?;
        let number = log.last_number()?.checked_add(1).ok_or_else(|| Error::refused(libc::EFBIG, "2^32 log datasets"))?;
        let create = || {
            let group = self.log_group()?.ok_or_else(|| Error::refused(libc::EIO, "the log group is gone"))?;
            let (LogRoom::Estimated(size) | LogRoom::Reserved(size)) = room;
            let address = self.new_log_dataset(group, number, size)?;
            if matches!(room, LogRoom::Reserved(_)) {
                self.change.store()?.reserve_storage(address, size)?;
            }
            self.set_integers(group, LOGS, &[signed(number.into())], true)?;
            Ok(LogDataset { address, len: size })
        };
        let made = if when == LogFlush::Within { create()? } else { self.change.atomically(create)? };
        log.add_log(number, made);
        Ok(())
    }

    /// A log dataset of `size` bytes, which have arbitrary content.
    fn new_log_dataset(&self, group: ObjectId, number: u32, size: u64) -> Result<Address> {
        let store = self.change.store()?;
        let creation = Creation { dims: vec![size], max_dims: None, layout: new_contiguous(), ..bytes_file() };
        let id = self.new_member(group, &record_log::log_name(number), &creation)?;
        let address = store.allocate(size, SpaceKind::Raw)?;
        // What is there is not a run of an earlier log.
        store.write_unused(address, &[0; RUN_PROBE_BYTES])?;
        let d = self.change.dataset(id)?;
        self.change.data().set_layout(&d, &contiguous_at(&d, address, size)?)?;
        Ok(address)
    }

    fn new_member(&self, group: ObjectId, name: &[u8], creation: &Creation) -> Result<ObjectId> {
        let address = self.change.objects().new_dataset(creation, now())?;
        self.change.names().created(group, name, address)
    }

    /// Appends what is staged, for a commit; writes the index if it is time, or to `close` the
    /// file. Returns the state of the log that the commit makes durable, if it is another one.
    pub(super) fn flush_log_to_commit(&self, close: bool) -> Result<Option<LogState>> {
        let Some(log) = self.change.access.written_log() else { return Ok(None) };
        if log.is_released() {
            return self.flush_released_to_commit(&log).map(|()| None);
        }
        self.flush_log(LogFlush::Commit)?;
        if log.wants_index(close) && log.unshaped().is_empty() {
            match self.change.atomically(|| self.write_index(&log, close, None)) {
                // The file is read like that of a killed session, without an index.
                Err(e) if is_full(&e) && !log.wants_index(false) => tracing::warn!("no space for the index of the log: {e}"),
                state => return state.map(Some),
            }
        }
        let Some(state) = log.awaited_state() else { return Ok(None) };
        self.change.atomically(|| self.set_state(state))?;
        Ok(Some(state))
    }

    /// Notes in the log that the run files with these identifiers are in it.
    pub(super) fn note_joined(&self, ids: &[u64]) -> Result<()> {
        let group = self.log_group()?.ok_or_else(|| Error::refused(libc::EIO, "the log group is gone"))?;
        let ids: Vec<i64> = ids.iter().map(|id| signed(*id)).collect();
        // A log of an earlier version has none.
        if integers_of(&self.change.access.object(group)?, IDENTITY)?.is_none() {
            self.set_integers(group, IDENTITY, &[signed(new_id()?)], true)?;
        }
        self.set_integers(group, JOINED, &ids, false)
    }

    fn set_state(&self, state: LogState) -> Result<()> {
        let group = self.log_group()?.ok_or_else(|| Error::refused(libc::EIO, "the log group is gone"))?;
        let values: Vec<i64> = std::iter::once(VERSION).chain(state.values()).map(signed).collect();
        self.set_integers(group, STATE, &values, false)
    }

    /// Writes index table and skip list anew, and the state that has them. Entries of datasets that
    /// were not used are kept, but those of an ID that is not in `keep`.
    pub(super) fn write_index(&self, log: &RecordLog, close: bool, keep: Option<&HashSet<u64>>) -> Result<LogState> {
        let group = self.log_group()?.ok_or_else(|| Error::refused(libc::EIO, "the log group is gone"))?;
        let bytes = |chunk: u64| Creation { layout: new_chunked(vec![chunk]), ..bytes_file() };
        // The old ones are read until the new ones are complete.
        let (least, most) = INDEX_CHUNK_BYTES;
        let chunk = log.index_entries().saturating_mul(ENTRY_BYTES / 16).clamp(least, most).next_power_of_two();
        let index = ObjectId { address: self.change.objects().new_dataset(&bytes(chunk), now())?, ..group };
        let environment = &self.change.connector.options.environment;
        environment.forget(super::key(index));
        self.change.changed(index);
        let (skip, state) = log.write_index(keep, &mut |at, piece| {
            self.change.data().put_elements(index, at, piece)?;
            self.change.dirty_chunks().flush_if_many(index)?;
            if environment.dirty.bytes() == 0 {
                // The index is not read again soon.
                environment.cache.forget(super::key(index));
            }
            Ok(())
        })?;
        self.change.dirty_chunks().flush_within(index)?;
        for name in [INDEX, SKIP] {
            if self.change.names().has_link(group, name)? {
                self.change.names().unlink(group, name, false)?;
            }
        }
        self.change.names().created(group, INDEX, index.address)?;
        let layout = new_chunked(vec![SKIP_CHUNK]);
        let list = self.new_member(group, SKIP, &Creation { datatype: integer(false), layout, ..bytes_file() })?;
        if !skip.is_empty() {
            self.change.data().put_elements(list, 0, &skip)?;
        }
        if close {
            self.trim_log(log, group)?;
        }
        self.set_state(state)?;
        log.indexed(state);
        Ok(state)
    }

    /// Frees what is not used of the last log dataset.
    fn trim_log(&self, log: &RecordLog, group: ObjectId) -> Result<()> {
        let Some((number, LogDataset { address, len }, used)) = log.last_log().filter(|(_, log, used)| *used > 0 && *used < log.len) else {
            return Ok(());
        };
        let store = self.change.store()?;
        let name = record_log::log_name(number);
        let Some(id) = self.change.names().member_of(group, &name)? else { return Ok(()) };
        let d = self.change.dataset(id)?;
        let message = contiguous_at(&d, address, used)?;
        let space = Dataspace { dims: vec![used], ..d.space.clone() };
        let mut header = self.change.header(id)?;
        super::data::replace_message(&mut header, kind::DATASPACE, space.encode(store.ctx()))?;
        super::data::replace_message(&mut header, kind::DATA_LAYOUT, message.encode(store.ctx())?)?;
        header.write(&store)?;
        self.change.changed(id);
        log.trim(number, used);
        let from = address.checked_add(used).unwrap_or(address);
        store.free_kind(from, len.saturating_sub(used), SpaceKind::Raw)
    }
}

impl NativeConnector {
    /// The log is opened again, as it was last made durable.
    pub(super) fn forget_log(&self) {
        if let Ok(file) = self.file(0) {
            *file.log.write() = None;
        }
    }
}

impl WriteBack<'_> {
    /// Appends what is staged to the log if it exceeds its memory. The caller holds no lock.
    pub(super) fn bound_staged(&self) -> Result<()> {
        let many = self.connector.used_log().is_some_and(|log| log.staged_bytes() > self.dirty_budget());
        if many { self.connector.change(&[])?.log().flush_log(LogFlush::Early) } else { Ok(()) }
    }
}

impl Commits<'_> {
    /// Loads the datasets whose shape the log needs for its index. Errors: one of them cannot be
    /// read; no index is written then, because it would lack their entries. The caller holds no
    /// lock.
    pub(super) fn use_unshaped(&self) -> Result<()> {
        let Some(log) = self.connector.used_log() else { return Ok(()) };
        let wanted: HashSet<u64> = log.unshaped().into_iter().collect();
        if wanted.is_empty() {
            return Ok(());
        }
        let mut found = Vec::new();
        self.connector.each_anchor(&mut |access, id, anchor| {
            if let InLog::Records(RecordAnchor { id: number, .. }) = anchor.log
                && wanted.contains(&number)
            {
                found.push(access.dataset(id)?.dataset.bytes.clone());
            }
            Ok(())
        })?;
        let _access = self.connector.access();
        log.use_unshaped(&found)
    }

    /// Runs [`NativeConnector::use_unshaped`] in a commit. After an error the session writes no
    /// index; the error is logged, and later commits do not retry.
    pub(super) fn use_unshaped_to_commit(&self) -> Result<()> {
        let failed = &self.connector.editing()?.unshaped_failed;
        if !failed.load(Ordering::Acquire)
            && let Err(e) = self.use_unshaped()
        {
            failed.store(true, Ordering::Release);
            tracing::warn!("the index of the log is not written: {e}");
        }
        Ok(())
    }
}

/// Error of a log in a file whose root group has the name of its group.
fn name_taken() -> Error {
    let reason = "the log needs the name LOG in the root group, which an object that is no log has: rename it, or use another layout";
    Error::refused(libc::EINVAL, reason)
}
