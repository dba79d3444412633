//! Keeps the free space of a session that was killed: as the free list that the session would have
//! left at the end of the file.

use super::Store;
use crate::base::free_ranges::FreeRanges;
use crate::base::{Address, Error, Result};
use crate::file::free_record::FreeRecord;
use crate::file::space::{Pages, Ranges};
use crate::file::{JournalPlace, WriteDriver, journal};
use crate::format::free_list::{self, FOOTER_BYTES, Footer};
use crate::format::superblock::Superblock;
use crate::meta::edit::failed;
use std::ops::Range;
use std::sync::Arc;

/// Leaves a free list in `file` if the journal names a record of free space, and cuts free space at
/// the end of the file. Without the list that space is lost, so an error is only logged.
pub(super) fn keep(file: &Arc<dyn WriteDriver>, place: &dyn JournalPlace) {
    match leave_list(file, place) {
        Ok(0) => {}
        Ok(bytes) => tracing::info!("the last session was killed; its {bytes} bytes of free space are kept"),
        Err(e) => tracing::warn!("the last session was killed; its free space is lost: {e}"),
    }
}

/// Returns the bytes of free space.
fn leave_list(file: &Arc<dyn WriteDriver>, place: &dyn JournalPlace) -> Result<u64> {
    let io = failed("recover", Address(0));
    let Some(journal) = place.open().map_err(&io)? else { return Ok(0) };
    let status = file.status().map_err(&io)?;
    let Some(place) = journal::free_record(&*journal, status.identity).map_err(&io)? else { return Ok(0) };
    let mut store = Store::open(file.clone())?;
    let superblock = store.superblock().clone();
    let Some(eof) = store.recorded_end(status.len) else { return Ok(0) };
    if store.is_marked() || superblock.is_unclosed() || superblock.is_in_use() || superblock.is_of_several() || has_list(&store, eof)? {
        return Ok(0);
    }
    let start = store.base().saturating_add(superblock.size());
    let Some((record, block)) = FreeRecord::read(&**file, place, start, eof).map_err(&io)? else { return Ok(0) };
    let (bytes, pages) = (record.free.bytes(), record.pages);
    let (list, end) = list_and_end(record, place.offset..place.offset.saturating_add(block), eof);
    let end = if list.count() == 0 { end } else { write_list(&**file, &list.relative_to(store.base()), store.base(), end, pages)? };
    store.replace_superblock(&**file, Superblock { eof: Address(end), ..superblock })?;
    file.set_len(end).and_then(|()| file.sync()).map_err(&io)?;
    Ok(bytes)
}

/// The free space of `record` and its `block`, by absolute offsets, but for what is free at the end
/// of the file, `eof`; and the end of the space in use.
fn list_and_end(record: FreeRecord, block: Range<u64>, eof: u64) -> (FreeRanges, u64) {
    let is_part = record.pages.is_some_and(|pages| block.end.saturating_sub(block.start) < pages.size);
    let union = |list: Vec<Range<u64>>, more: Option<Range<u64>>| {
        let mut all = Ranges::default();
        list.into_iter().chain(more).for_each(|range| all.insert(range));
        all.iter().collect::<Vec<_>>()
    };
    let FreeRanges { whole, parts: [metadata, raw] } = record.free;
    let mut whole = union(whole, Some(block.clone()).filter(|_| !is_part));
    let metadata = union(metadata, Some(block).filter(|_| is_part));
    let end = whole.pop_if(|last| last.end == eof).map_or(eof, |last| last.start);
    (FreeRanges { whole, parts: [metadata, raw] }, end)
}

/// Writes `list` at the absolute offset `end`, or at the next page; returns the end of the list, of
/// its page.
fn write_list(file: &dyn WriteDriver, list: &FreeRanges, base: u64, end: u64, pages: Option<Pages>) -> Result<u64> {
    let up = |at: u64| pages.map_or(Some(at), |pages| pages.up(at));
    let range = up(end).and_then(|start| Some(start..up(start.checked_add(free_list::encoded_len(list))?)?));
    let range = range.ok_or_else(|| Error::corrupt("free list", Address(end), "ends beyond 2^64"))?;
    let address = Address(range.start.saturating_sub(base));
    let bytes = free_list::encode(list, address, range.end.saturating_sub(range.start));
    file.write_at(&bytes, range.start).and_then(|()| file.sync()).map_err(failed("write", address))?;
    Ok(range.end)
}

/// True if the file ends with a free list: the session was killed after it left one.
fn has_list(store: &Store, eof: u64) -> Result<bool> {
    let end = eof.saturating_sub(store.base());
    let Some(start) = end.checked_sub(FOOTER_BYTES) else { return Ok(false) };
    Ok(Footer::decode(&store.read(Address(start), FOOTER_BYTES, "free list")?, end).is_some())
}
