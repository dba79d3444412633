//! Appending to a log of the released log VOL: anchors, data datasets, metadata datasets.
//!
//! What is written is what all versions from 1.4 on read alike: entries of one block, without
//! flags, in one section; data datasets of exactly the bytes that a flush has, each further back in
//! the file than all before it, because readers apply entries in the order of their data.

use super::super::attribute::{self, Value};
use super::super::log_members::{self, counts};
use super::super::released_log::{COUNTS, DIMS, GROUP, ID, MAX_DIMS, PREFIX, data_name, metadata_name};
use super::attributes::put;
use super::change_parts::LogChange;
use super::data::replace_message;
use super::flush::LogFlush;
use super::log::{contiguous_at, signed};
use super::now;
use crate::base::datatype::{Bitfield, ByteOrder, Class, Datatype, FixedPoint};
use crate::base::fill::Fill;
use crate::base::shape::Shape;
use crate::base::{Address, Error, Result};
use crate::connector::ObjectId;
use crate::connector::bytes_file::bytes_file;
use crate::dataset::creation::{Creation, Records};
use crate::dataset::layout::{LogDataset, Metadata, RecordLog, Run, new_contiguous, new_in_log};
use crate::format::message::fill_value::FillValue;
use crate::format::object_header::kind;
use crate::meta::edit::SpaceKind;
use crate::meta::header_edit::HeaderEdit;
use crate::structures::attributes::edit as attributes_edit;
use std::sync::Arc;

/// Space allocation time "early", as the log VOL sets it.
const EARLY: u8 = 1;
/// Fewer staged bytes wait for a commit: every data dataset is an object.
const EARLY_MIN_BYTES: u64 = 64 << 10;
/// Fill values are written if they are set.
const FILL_IF_SET: u8 = 2;

/// Integers of `size` bytes.
fn integers(numbers: &[i64], size: usize) -> Value {
    let precision = if size == 4 { 32 } else { 64 };
    let class = FixedPoint { order: ByteOrder::LittleEndian, low_padding: false, high_padding: false, signed: true, offset: 0, precision };
    let datatype = Datatype { size: u32::from(precision / 8), class: Class::FixedPoint(class), ..Datatype::byte() };
    let shape = Shape::Simple { dims: vec![numbers.len() as u64], max: None };
    let bytes = numbers.iter().flat_map(|n| n.to_le_bytes().into_iter().take(size)).collect();
    Value { datatype, shape, bytes }
}

/// The datatype of data and metadata datasets, `H5T_STD_B8LE`.
fn bits() -> Datatype {
    let class = Bitfield { order: ByteOrder::LittleEndian, low_padding: false, high_padding: false, offset: 0, precision: 8 };
    Datatype { class: Class::Bitfield(class), ..Datatype::byte() }
}

fn gone() -> Error {
    Error::refused(libc::EIO, "the group _LOG of the log is gone")
}

impl LogChange<'_> {
    fn put_integers(&self, id: ObjectId, name: &[u8], value: &Value) -> Result<()> {
        let store = self.change.store()?;
        let version = HeaderEdit::load(&store, id.address)?.version();
        put(&store, id, version, name, value)?;
        self.change.changed(id);
        Ok(())
    }

    /// Changes the counts of the root group.
    fn set_counts(&self, change: impl FnOnce(&mut [i64; 5])) -> Result<()> {
        let file = self.change.connector.file(0)?;
        let found = counts(&file, PREFIX)?;
        let mut all = [found.datasets, found.data, found.metadata, found.config, found.subfiles];
        change(&mut all);
        self.put_integers(ObjectId { file: 0, address: file.root }, COUNTS, &integers(&all, 4))
    }

    /// Makes a log of the released log VOL in a file that has none and no dataset.
    pub(super) fn create_released_log(&self) -> Result<()> {
        let file = self.change.connector.file(0)?;
        let root = ObjectId { file: 0, address: file.root };
        if self.change.access.log_of(&file).is_some() {
            return Err(Error::refused(libc::EEXIST, "the file has a log"));
        }
        self.change.objects().create_group(root, GROUP)?;
        self.put_integers(root, COUNTS, &integers(&[0, 0, 0, 0, 1], 4))?;
        *file.log.write() = None;
        Ok(())
    }

    /// `creation` with the layout that datasets in this file have. Errors: it cannot have it.
    pub(super) fn suited(&self, creation: Creation) -> Result<Creation> {
        let is_released = self.change.access.written_log().is_some_and(|log| log.is_released());
        let refuse = |why: &'static str| Err(Error::refused(libc::EOPNOTSUPP, why));
        match (is_released, creation.layout.kind.records()) {
            (false, Some(Records::Released)) => Ok(Creation { layout: new_in_log(Records::Plain), ..creation }),
            (true, Some(Records::Plain | Records::Released)) => Ok(Creation { layout: new_in_log(Records::Released), ..creation }),
            (true, Some(Records::Deflated)) => refuse("the released log VOL cannot read deflated elements: take the profile released"),
            (true, None) if creation.datatype.contains_vlen() => {
                refuse("the released log VOL has no datasets with elements of variable length; take a file without its log")
            }
            (true, None) => refuse("the released log VOL reads no file with datasets outside of its log; take the layout log"),
            (false, _) => Ok(creation),
        }
    }

    /// Makes the dataset object of `id` an anchor of a released log. One that is `blank` keeps the
    /// ID that it has: other programs count IDs without a dataset as datasets.
    pub(super) fn set_released_anchor(&self, log: &RecordLog, id: ObjectId, creation: &Creation, blank: bool) -> Result<bool> {
        let has = if blank { log_members::integers(&self.change.access.object(id)?, ID)? } else { None };
        let kept = match has.and_then(|all| u64::try_from(*all.first()?).ok()) {
            Some(number) if log.renew_id(number)? => Some(number),
            _ => None,
        };
        let number = kept.map_or_else(|| log.take_id(), Ok)?;
        self.set_counts(|counts| counts[0] = signed(log.next_id()))?;
        let dims: Vec<i64> = creation.dims.iter().map(|d| signed(*d)).collect();
        let max: Vec<i64> = creation.max().iter().map(|m| m.map_or(-1, signed)).collect();
        self.put_integers(id, DIMS, &integers(&dims, 8))?;
        self.put_integers(id, MAX_DIMS, &integers(&max, 8))?;
        self.put_integers(id, ID, &integers(&[signed(number)], 4))?;
        Ok(kept.is_some())
    }

    /// Stores the shape of an anchor of a released log.
    pub(super) fn set_released_extent(&self, log: &RecordLog, id: ObjectId, dims: &[u64]) -> Result<()> {
        log.note_growth();
        let dims: Vec<i64> = dims.iter().map(|d| signed(*d)).collect();
        self.put_integers(id, DIMS, &integers(&dims, 8))
    }

    /// Takes the attributes of an anchor from an object that is a dataset no more.
    pub(super) fn drop_released_anchor(&self, id: ObjectId) -> Result<()> {
        if !self.change.access.written_log().is_some_and(|log| log.is_released()) {
            return Ok(());
        }
        let object = self.change.access.object(id)?;
        for name in [ID, DIMS, MAX_DIMS] {
            if attribute::stored(&object, name)?.is_some() {
                attributes_edit::remove(&*self.change.store()?, id.address, name, now())?;
            }
        }
        self.change.changed(id);
        Ok(())
    }

    fn released_group(&self) -> Result<ObjectId> {
        let file = self.change.connector.file(0)?;
        self.change.names().member_of(ObjectId { file: 0, address: file.root }, GROUP)?.ok_or_else(gone)
    }

    /// Writes what is staged to a data dataset. A commit writes the entries.
    pub(super) fn flush_released(&self, log: &Arc<RecordLog>, when: LogFlush) -> Result<()> {
        // An operation that fails stages it again.
        if when == LogFlush::Early && log.staged_bytes() < EARLY_MIN_BYTES {
            return Ok(());
        }
        while let Some(batch) = log.next_batch()? {
            let write = || self.add_data(log, &batch);
            let written = if when == LogFlush::Within { write() } else { self.change.atomically(write) };
            match written {
                Ok((number, at)) => log.placed_batch(batch, number, at)?,
                Err(e) => {
                    log.restore(batch);
                    return Err(e);
                }
            }
        }
        Ok(())
    }

    fn add_data(&self, log: &RecordLog, batch: &Run) -> Result<(u32, LogDataset)> {
        let number = log.last_number()?.checked_add(1).ok_or_else(|| Error::refused(libc::EFBIG, "2^32 data datasets"))?;
        let store = self.change.store()?;
        // Later than all data before it.
        let address = store.append(batch.len())?.0;
        store.write_raw(address, batch.bare())?;
        self.new_bits(&data_name(number), address, batch.len())?;
        self.set_counts(|counts| counts[1] = i64::from(number))?;
        Ok((number, LogDataset { address, len: batch.len() }))
    }

    /// A dataset of the log group whose `size` bytes at `address` were written.
    fn new_bits(&self, name: &[u8], address: Address, size: u64) -> Result<()> {
        let store = self.change.store()?;
        let creation = Creation { datatype: bits(), dims: vec![size], max_dims: None, layout: new_contiguous(), ..bytes_file() };
        let made = self.change.objects().new_dataset(&creation, now())?;
        let id = self.change.names().created(self.released_group()?, name, made)?;
        let d = self.change.dataset(id)?;
        let version = if store.superblock().version < 2 { 2 } else { 3 };
        let fill = FillValue { version, allocation_time: EARLY, write_time: FILL_IF_SET, fill: Fill::Default };
        let mut header = self.change.header(id)?;
        replace_message(&mut header, kind::FILL_VALUE, fill.encode())?;
        replace_message(&mut header, kind::DATA_LAYOUT, contiguous_at(&d, address, size)?.encode(store.ctx())?)?;
        header.write(&store)?;
        self.change.changed(id);
        Ok(())
    }

    /// Writes what is staged and the entries of it, for a commit.
    pub(super) fn flush_released_to_commit(&self, log: &Arc<RecordLog>) -> Result<()> {
        self.flush_released(log, LogFlush::Commit)?;
        let Some(metadata) = log.metadata()? else { return Ok(()) };
        self.change.atomically(|| self.add_metadata(&metadata))?;
        log.metadata_written(&metadata);
        Ok(())
    }

    fn add_metadata(&self, metadata: &Metadata) -> Result<()> {
        let (store, group) = (self.change.store()?, self.released_group()?);
        for number in 0..metadata.replaces {
            let name = metadata_name(number);
            if self.change.names().has_link(group, &name)? {
                self.change.names().unlink(group, &name, false)?;
            }
        }
        let mut count = i64::from(metadata.number);
        if let Some(bytes) = &metadata.bytes {
            let address = store.allocate(bytes.len() as u64, SpaceKind::Raw)?;
            store.write_raw(address, bytes)?;
            self.new_bits(&metadata_name(metadata.number), address, bytes.len() as u64)?;
            count = count.saturating_add(1);
        }
        self.set_counts(|counts| counts[2] = count)
    }
}
