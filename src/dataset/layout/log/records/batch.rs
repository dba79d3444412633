//! What differs in a log of the released log VOL.
//!
//! Staged elements become a data dataset (`_ld_k`), which has nothing else. Its entries wait in
//! memory until a commit writes them as a metadata dataset (`_md_k`). Nothing in such a log erases
//! elements: where some are erased, the commit writes the entries of all elements that are left as
//! the only metadata dataset. All datasets are in memory, so that it can.

use super::dataset::{Dataset, LogDataset, LogGroup, ReleasedMember};
use super::extent::{Extent, Source};
use super::log::RecordLog;
use super::pages::Pages;
use super::runs::{Made, Maker, Run};
use super::shape::{Shape, blocks};
use super::state::{Entry, Inner, Released, Undo, missing, stage_records};
use crate::base::{Address, Error, Result};
use crate::dataset::creation::Records;
use crate::dataset::layout::log::block_index::Stored;
use crate::format::Writer;
use crate::format::log::record::IDS_MAX;
use crate::format::log::released::{EntryShape, NAME, one_section, write_entry};
use crate::format::log::run::{Erased, RunHead};
use foldhash::HashMap;
use std::ops::Range;
use std::sync::Arc;

/// Metadata datasets that are joined to one.
const METADATA_MAX: u32 = 64;

/// Rows of the blocks of one dataset that are read.
const RUNS_MAX: u64 = 1 << 26;

/// A metadata dataset that is to be written.
pub(crate) struct Metadata {
    /// Its number.
    pub(crate) number: u32,
    /// Its bytes; `None`: there is no entry.
    pub(crate) bytes: Option<Vec<u8>>,
    /// Number of earlier ones that it replaces: all of them or none.
    pub(crate) replaces: u32,
}

fn load_member(group: &LogGroup, member: &ReleasedMember, pages: &Arc<Pages>) -> Result<(Dataset, bool)> {
    let Some(found) = &group.released else { return Err(missing()) };
    let size = member.element_size;
    let index = found.log.index(member.id, EntryShape { dims: &member.dims, legacy: false }, size)?;
    for write in &index.writes {
        match &write.stored {
            Stored::Plain => {}
            Stored::Deflated => return Err(Error::unsupported(NAME, write.address, format!("deflated data of dataset ID {}", member.id))),
            Stored::Broken(error) => return Err(Error::clone(error)),
        }
    }
    let mut dataset = Dataset::new(Shape::new(&member.dims, size), pages.clone());
    let mut is_outside = false;
    index.replay(RUNS_MAX, &mut |number, run, first| {
        let source = index.writes.get(number).and_then(|write| {
            // Data datasets are numbered from 0 in the order of writes.
            let log = u32::try_from(write.order.1).ok()?.checked_add(1)?;
            let offset = write.address.0.checked_sub(group.logs.get(&log)?.address.0)?;
            Some(Source::Stored { log, offset: offset.checked_add(first.checked_mul(size)?)? })
        });
        match source {
            Some(source) => drop(dataset.extents.set(run, Some(source), size)),
            None => is_outside = true,
        }
        dataset.bound();
    })?;
    if is_outside {
        return Err(Error::corrupt(NAME, Address::UNDEF, format!("data of dataset ID {} outside of the data datasets", member.id)));
    }
    Ok((dataset, index.is_clipped))
}

impl Inner {
    /// Data of `bytes` bytes from an offset of a data dataset on.
    fn data(&self, log: u32, offset: u64, bytes: u64) -> Result<Range<Address>> {
        let start = self.logs.get(&log).and_then(|log| log.address.checked_add(offset));
        let end = start.and_then(|start| start.checked_add(bytes));
        start.zip(end).map(|(start, end)| start..end).ok_or_else(missing)
    }

    /// The entries of a record in data dataset `log`.
    fn entries(&self, made: &Made, log: u32) -> Result<Vec<Entry>> {
        let shape = &self.datasets.get(&made.dataset).ok_or_else(missing)?.shape;
        let mut entries = Vec::new();
        blocks(shape, made.elements.clone(), &mut |start, count, skipped| {
            let bytes = count.iter().fold(shape.element_size, |n, c| n.saturating_mul(*c));
            let offset = made.offset.saturating_add(skipped.saturating_mul(shape.element_size));
            let entry = |data| Entry { dataset: made.dataset, start, count, data };
            entries.push(self.data(log, offset, bytes).map(entry));
        });
        entries.into_iter().collect()
    }

    /// Appends the entries of all elements that the dataset has.
    fn all_entries(&self, id: u64, dataset: &Dataset, base: u64, w: &mut Writer) -> Result<()> {
        let size = dataset.shape.element_size;
        for extent in dataset.extents.all(size) {
            let Extent { first, end, source } = extent?;
            let Source::Stored { log, offset } = source else { continue };
            let mut done = Ok(());
            blocks(&dataset.shape, first..end, &mut |start, count, skipped| {
                let bytes = count.iter().fold(size, |n, c| n.saturating_mul(*c));
                let data = self.data(log, offset.saturating_add(skipped.saturating_mul(size)), bytes);
                let written = data.and_then(|data| write(w, id, (&start, &count), &data, base));
                if let Err(error) = written {
                    done = Err(error);
                }
            });
            done?;
        }
        Ok(())
    }

    /// True if elements of the range are in data datasets, or that is not known.
    pub(super) fn has_stored(&self, id: u64, range: &Range<u64>) -> bool {
        let Some(dataset) = self.datasets.get(&id) else { return false };
        dataset
            .extents
            .within(range.clone(), dataset.shape.element_size)
            .any(|e| e.map_or(true, |e| matches!(e.source, Source::Stored { .. })))
    }

    /// Puts the ID of a dataset that is forgotten to the free ones, unless an entry has it.
    pub(super) fn free_id(&mut self, id: u64) {
        let free = !self.has_stored(id, &(0..u64::MAX));
        let Some(released) = self.released.as_mut().filter(|_| free) else { return };
        if released.is_clipped || released.entries.iter().any(|e| e.dataset == id) {
            return;
        }
        if let Some(undo) = &mut self.undo {
            undo.push(Undo::Ids(self.next_id, released.free_ids.clone()));
        }
        released.free_ids.push(id);
    }

    /// Stages what `batch` has again, as it was before that was written.
    pub(super) fn unplace(&mut self, batch: &Run, buffers: HashMap<u32, Arc<Vec<u8>>>) {
        self.buffers.extend(buffers);
        for made in &batch.made {
            let Some(dataset) = self.datasets.get(&made.dataset) else { continue };
            let size = dataset.shape.element_size;
            let bytes = made.elements.end.saturating_sub(made.elements.start).saturating_mul(size);
            let at = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
            let data = batch.records.get(at(made.offset)..at(made.offset.saturating_add(bytes))).unwrap_or_default();
            let source = self.buffer(made.dataset, made.elements.clone(), data);
            if let Some(dataset) = self.datasets.get_mut(&made.dataset) {
                dataset.extents.set(made.elements.clone(), Some(source), size);
            }
            self.staged.entry(made.dataset).or_default().push(made.elements.clone());
        }
    }

    /// Takes a free ID, or the next one.
    pub(super) fn take_id(&mut self) -> Result<u64> {
        let Some(released) = &mut self.released else {
            let id = self.next_id;
            if id >= IDS_MAX {
                return Err(Error::refused(libc::ENOSPC, "the log gave 2^22 dataset IDs, which are all; copy the datasets to a new file"));
            }
            self.next_id = id.saturating_add(1);
            return Ok(id);
        };
        if let Some(undo) = &mut self.undo {
            undo.push(Undo::Ids(self.next_id, released.free_ids.clone()));
        }
        if let Some(id) = released.free_ids.pop() {
            let before = self.datasets.remove(&id);
            if let (Some(undo), Some(dataset)) = (&mut self.undo, before) {
                undo.push(Undo::Forgotten { id, dataset: Box::new(dataset), staged: Vec::new() });
            }
            return Ok(id);
        }
        let id = self.next_id;
        if i32::try_from(id).is_err() {
            return Err(Error::refused(libc::ENOSPC, "the log VOL has IDs for 2^31 datasets"));
        }
        self.next_id = id.saturating_add(1);
        Ok(id)
    }
}

/// Appends an entry. `base`: offset of address 0 in the file.
fn write(w: &mut Writer, id: u64, block: (&[u64], &[u64]), data: &Range<Address>, base: u64) -> Result<()> {
    let id = i32::try_from(id).map_err(|_| missing())?;
    write_entry(w, id, block, &(data.start.0.saturating_add(base)..data.end.0.saturating_add(base)));
    Ok(())
}

impl RecordLog {
    /// Loads all datasets of the log. Errors: elements that are not stored as they are.
    pub(super) fn load_released(&self, group: &LogGroup) -> Result<Option<(Released, HashMap<u64, Dataset>)>> {
        let Some(found) = &group.released else { return Ok(None) };
        let mut released = Released { metadata: found.metadata, ..Released::default() };
        let mut datasets = HashMap::default();
        for member in &found.members {
            let (dataset, is_clipped) = load_member(group, member, &self.pages)?;
            released.is_clipped |= is_clipped;
            let id = u64::try_from(member.id).map_err(|_| Error::corrupt(NAME, Address::UNDEF, "a negative dataset ID"))?;
            if datasets.insert(id, dataset).is_some() {
                return Err(Error::corrupt(NAME, Address::UNDEF, format!("two datasets with the ID {id}")));
            }
        }
        Ok(Some((released, datasets)))
    }

    /// How records of datasets in this log are stored, of those that are `deflated` or not.
    pub(crate) fn records(&self, deflated: bool) -> Records {
        match (self.is_released(), deflated) {
            (true, _) => Records::Released,
            (false, true) => Records::Deflated,
            (false, false) => Records::Plain,
        }
    }

    /// Reads the log of the released log VOL. Errors: it has what is read, but not written.
    pub(crate) fn verify(&self) -> Result<()> {
        self.opened().map(drop)
    }

    /// Makes the dataset `id`, of which no element was written, one without a shape. False: some
    /// were written, perhaps.
    pub(crate) fn renew_id(&self, id: u64) -> Result<bool> {
        self.opened()?;
        let mut guard = self.state.lock();
        let inner = &mut *guard;
        let is_clipped = inner.released.as_ref().is_none_or(|released| released.is_clipped);
        let waits = inner.released.as_ref().is_some_and(|released| released.entries.iter().any(|e| e.dataset == id));
        let written = inner.datasets.get(&id).map_or(Ok(0), |d| d.extents.elements())? > 0;
        if is_clipped || waits || written || inner.staged.contains_key(&id) {
            return Ok(false);
        }
        if let (Some(undo), Some(dataset)) = (&mut inner.undo, inner.datasets.remove(&id)) {
            undo.push(Undo::Forgotten { id, dataset: Box::new(dataset), staged: Vec::new() });
        }
        Ok(true)
    }

    /// What is staged, as a data dataset; `None` if nothing is.
    pub(crate) fn next_batch(&self) -> Result<Option<Run>> {
        let mut guard = self.state.lock();
        let inner = &mut *guard;
        if inner.staged.is_empty() {
            inner.clear_buffers();
            return Ok(None);
        }
        let mut maker = Maker { is_bare: true, ..Maker::default() };
        let mut ids: Vec<u64> = inner.staged.keys().copied().collect();
        ids.sort_unstable();
        for id in ids {
            let (Some(mut ranges), Some(dataset)) = (inner.staged.remove(&id), inner.datasets.get(&id)) else { continue };
            while !ranges.is_empty() {
                match stage_records(&mut maker, (id, dataset), &mut ranges, &inner.buffers) {
                    Ok(rest) => ranges = rest,
                    Err(e) => {
                        inner.staged.insert(id, ranges);
                        inner.stage_again(maker.made);
                        return Err(e);
                    }
                }
            }
        }
        if maker.made.is_empty() {
            inner.clear_buffers();
            return Ok(None);
        }
        let head = RunHead { sequence: 0, serial: 0, bytes: 0, records: 0, continued: false, datasets: Vec::new() };
        Ok(Some(Run { head, records: maker.writer.into_bytes(), made: maker.made, erased: Vec::new(), is_bare: true }))
    }

    /// Enters `batch`, which was written as data dataset `number`.
    pub(crate) fn placed_batch(&self, batch: Run, number: u32, log: LogDataset) -> Result<()> {
        let mut guard = self.state.lock();
        let inner = &mut *guard;
        let waiting = inner.released.as_ref().map_or(0, |released| released.entries.len());
        if let Some(undo) = &mut inner.undo {
            // Only the first one of an operation may have elements that were staged before it.
            let first = !undo.iter().any(|step| matches!(step, Undo::Log(_)));
            undo.extend([Undo::Log(number), Undo::Entries(waiting)]);
            undo.extend(first.then(|| Undo::Placed(Box::new(batch.clone()), inner.buffers.clone())));
        }
        inner.logs.insert(number, log);
        inner.tail = (number, log.len);
        for made in batch.made {
            let entries = inner.entries(&made, number)?;
            inner.enter(made, number, 0)?;
            if let Some(released) = &mut inner.released {
                released.entries.extend(entries);
            }
        }
        Ok(())
    }

    /// True if entries wait for a metadata dataset.
    pub(crate) fn has_entries(&self) -> bool {
        self.state.lock().released.as_ref().is_some_and(|released| !released.entries.is_empty())
    }

    /// The metadata dataset that a commit writes; `None`: nothing changed. Nothing is staged.
    pub(crate) fn metadata(&self) -> Result<Option<Metadata>> {
        let base = self.opened()?.group.store.base();
        let inner = self.state.lock();
        let Some(released) = &inner.released else { return Ok(None) };
        if released.entries.is_empty() && inner.erased.is_empty() {
            return Ok(None);
        }
        let mut w = Writer::new();
        let joined = !inner.erased.is_empty() || released.metadata >= METADATA_MAX;
        if joined {
            let mut ids: Vec<u64> = inner.datasets.keys().copied().collect();
            ids.sort_unstable();
            for id in ids {
                if let Some(dataset) = inner.datasets.get(&id) {
                    inner.all_entries(id, dataset, base, &mut w)?;
                }
            }
        } else {
            for Entry { dataset, start, count, data } in &released.entries {
                write(&mut w, *dataset, (start, count), data, base)?;
            }
        }
        let bytes = (w.position() > 0).then(|| one_section(&w.into_bytes()));
        let (number, replaces) = if joined { (0, released.metadata) } else { (released.metadata, 0) };
        Ok(Some(Metadata { number, bytes, replaces }))
    }

    /// Notes that `metadata` was written.
    pub(crate) fn metadata_written(&self, metadata: &Metadata) {
        let mut guard = self.state.lock();
        let inner = &mut *guard;
        let joined = !inner.erased.is_empty() || metadata.replaces > 0;
        inner.erased.clear();
        if let Some(released) = &mut inner.released {
            released.entries.clear();
            released.metadata = metadata.number.saturating_add(u32::from(metadata.bytes.is_some()));
            released.is_clipped &= !joined;
        }
    }

    /// A dataset grows. Entries beyond the old extent must not show their elements again.
    pub(crate) fn note_growth(&self) {
        let mut inner = self.state.lock();
        if inner.released.as_ref().is_some_and(|released| released.is_clipped) {
            inner.note_erased(Erased { dataset: 0, first: 0, count: 0 });
        }
    }
}
