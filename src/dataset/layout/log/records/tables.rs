//! The index table and the skip list.

use super::dataset::{Dataset, LogGroup, Placed};
use super::extent::Source;
use super::lengths::{Lengths, NewLengths};
use super::shape::blocks;
use super::sorted::{Place, PlaceKind, Sorter};
use crate::base::{Address, Error, Result};
use crate::dataset::environment::Environment;
use crate::format::Reader;
use crate::format::log::record::{Head, IDS_MAX, IndexEntry, SKIP_BYTES, Selection, decode_skip};

/// Name of the structure in errors.
const NAME: &str = "log index";
/// Bytes of the index table read at once.
const WINDOW_BYTES: usize = 1 << 20;
/// Bytes of one index entry read at once: those of any block, and of many points.
const ENTRY_BYTES: usize = 64 << 10;

/// Where the index entries of dataset `id` are in the index table, and their number.
fn entries_of(environment: &Environment, group: &LogGroup, id: u64) -> Result<Option<(u64, u64)>> {
    let Some(skip) = &group.skip else { return Ok(None) };
    let Some(at) = id.checked_mul(SKIP_BYTES).filter(|at| at.checked_add(SKIP_BYTES).is_some_and(|end| end <= skip.size)) else {
        return Ok(None);
    };
    let mut entry = [0; SKIP_BYTES as usize];
    skip.read(environment, at, &mut entry)?;
    decode_skip(&entry, Address::UNDEF).map(Some).map(|e| e.filter(|(_, n)| *n > 0))
}

/// Calls `f` with the index entries of dataset `id` of `rank`.
pub(super) fn each(
    environment: &Environment,
    group: &LogGroup,
    id: u64,
    rank: usize,
    f: &mut dyn FnMut(IndexEntry) -> Result<()>,
) -> Result<()> {
    let Some((start, count)) = entries_of(environment, group, id)? else { return Ok(()) };
    let absent = || Error::corrupt(NAME, Address::UNDEF, "there is no index table");
    let table = group.index.as_ref().ok_or_else(absent)?;
    let least = Head::block_bytes(0) as u64;
    if count.checked_mul(least).and_then(|n| n.checked_add(start)).is_none_or(|end| end > table.size) {
        return Err(Error::corrupt(NAME, Address::UNDEF, format!("{count} entries at {start} of {} bytes", table.size)));
    }
    let (mut window, mut from, mut left) = (Vec::new(), start, count);
    while left > 0 {
        let wanted = usize::try_from(table.size.saturating_sub(from)).unwrap_or(usize::MAX).min(WINDOW_BYTES.max(window.len()));
        window.resize(wanted, 0);
        table.read(environment, from, &mut window)?;
        let last = from.saturating_add(window.len() as u64) >= table.size;
        let mut r = Reader::new(&window, NAME, Address::UNDEF);
        let mut used = 0;
        while left > 0 && (last || r.remaining() >= ENTRY_BYTES) {
            let Ok(entry) = IndexEntry::read(&mut r, id, rank) else {
                // Many points may not fit the window.
                if last || window.len() > WINDOW_BYTES * 512 {
                    return Err(Error::corrupt(NAME, Address::UNDEF, format!("an entry of dataset ID {id}")));
                }
                break;
            };
            used = r.position();
            left = left.saturating_sub(1);
            f(entry)?;
        }
        if used == 0 && left > 0 {
            window.resize(window.len().saturating_mul(2), 0);
        }
        from = from.saturating_add(used as u64);
    }
    Ok(())
}

/// Enters the index entries of dataset `id`.
pub(super) fn load(environment: &Environment, group: &LogGroup, id: u64, dataset: &mut Dataset) -> Result<()> {
    let rank = dataset.shape.dims.len();
    // Only entries of blocks have lengths, which are after them.
    let bytes = (Head::block_bytes(rank) as u64).saturating_add(IndexEntry::PLACE_BYTES);
    let entries = entries_of(environment, group, id)?;
    let end = entries.and_then(|(start, count)| count.checked_mul(bytes)?.checked_add(start));
    let mut lengths = Lengths::new(environment, group, id, end);
    each(environment, group, id, rank, &mut |entry| {
        let log = u32::try_from(entry.log).map_err(|_| Error::corrupt(NAME, Address::UNDEF, format!("log dataset {}", entry.log)))?;
        let IndexEntry { head: Head { selection, deflated, .. }, offset, .. } = entry;
        let stored = if deflated { lengths.next() } else { 0 };
        dataset.enter(Placed { selection, deflated, stored, log, offset })?;
        dataset.bound();
        Ok(())
    })
}

/// Index entries of one dataset in the index table.
#[derive(Debug, Clone, Copy)]
pub(super) struct Indexed {
    pub(super) id: u64,
    /// Their bytes in the table.
    pub(super) start: u64,
    pub(super) end: u64,
    /// Their number.
    pub(super) count: u64,
}

/// The datasets that have index entries, by ID.
pub(super) fn indexed(environment: &Environment, group: &LogGroup) -> Result<Vec<Indexed>> {
    let (Some(skip), Some(table)) = (&group.skip, &group.index) else { return Ok(Vec::new()) };
    if skip.size > IDS_MAX.saturating_mul(SKIP_BYTES) {
        return Err(Error::corrupt(NAME, Address::UNDEF, format!("a skip list of {} bytes", skip.size)));
    }
    let mut bytes = vec![0; usize::try_from(skip.size).unwrap_or(0)];
    skip.read(environment, 0, &mut bytes)?;
    let mut all = Vec::new();
    for (entry, id) in bytes.chunks_exact(SKIP_BYTES as usize).zip(0..) {
        let Ok(entry) = <&[u8; 16]>::try_from(entry) else { continue };
        let (start, count) = decode_skip(entry, Address::UNDEF)?;
        all.extend((count > 0).then_some(Indexed { id, start, end: table.size, count }));
    }
    // Entries of one dataset end where those of the next one begin.
    all.sort_unstable_by_key(|e| e.start);
    let starts: Vec<u64> = all.iter().skip(1).map(|e| e.start).collect();
    all.iter_mut().zip(starts).for_each(|(e, next)| e.end = next);
    all.sort_unstable_by_key(|e| e.id);
    Ok(all)
}

/// Passes the index entries of a dataset, none of whose elements is staged, to `put`; returns their
/// number. They are in the order in which the records were written.
pub(super) fn write(id: u64, dataset: &Dataset, put: &mut dyn FnMut(&IndexEntry) -> Result<()>) -> Result<u64> {
    let mut sorter = Sorter::default();
    for extent in dataset.extents.all(dataset.shape.element_size) {
        let extent = extent?;
        let (first, end) = (extent.first, extent.end);
        match extent.source {
            Source::Stored { log, offset } => sorter.add(Place { log, offset, first, end, kind: PlaceKind::Plain, number: 0 }),
            Source::Deflated { log, offset, first: skipped, elements, stored } => {
                let first = first.saturating_sub(skipped.into());
                let end = first.saturating_add(elements.into());
                sorter.add(Place { log, offset, first, end, kind: PlaceKind::Deflated, number: stored });
            }
            Source::Scattered { record, .. } => {
                let Some((log, offset)) = dataset.place_of(extent.source) else { continue };
                sorter.add(Place { log, offset, first: 0, end: 0, kind: PlaceKind::Scattered, number: record });
            }
            Source::Staged { .. } => {}
        }
    }
    let (mut count, mut lengths, mut last) = (0u64, Some(NewLengths::default()), None);
    sorter.each(&mut |place| {
        // Extents of one deflated record.
        if last.replace(place) == Some(place) {
            return Ok(());
        }
        let Place { log, offset, kind, .. } = place;
        let mut entry = |selection: Selection, skipped: u64| {
            let head = Head { dataset: id, selection, deflated: kind != PlaceKind::Plain };
            count = count.saturating_add(1);
            put(&IndexEntry { head, log: log.into(), offset: offset.saturating_add(skipped) })
        };
        if kind == PlaceKind::Scattered {
            lengths = None;
            let record = dataset.scattered.get(place.number as usize);
            return record.map_or(Ok(()), |record| entry(record.placed.selection.clone(), 0));
        }
        if let Some(lengths) = lengths.as_mut().filter(|_| kind == PlaceKind::Deflated) {
            lengths.add(place.number)?;
        }
        let mut written = Ok(());
        blocks(&dataset.shape, place.first..place.end, &mut |start, count, skipped| {
            if written.is_ok() {
                written = entry(Selection::Subarray { start, count }, skipped.saturating_mul(dataset.shape.element_size));
            }
        });
        written
    })?;
    lengths.map_or(Ok(()), |lengths| lengths.write(id, put))?;
    Ok(count)
}
