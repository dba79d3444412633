//! Records free space as libhdf5 does: free-space managers at the end of the file.
//!
//! A file whose free space persists (`H5Pset_file_space_strategy`) gets them when a session that
//! changed it ends. The first change of the next session, of h5dir or libhdf5, takes them.
//!
//! ```text
//! file space info message -> headers (82 bytes each) | section lists
//! ```
//!
//! Managers lie past all other structures, so that no section names their own space.

use crate::base::free_ranges::FreeRanges;
use crate::base::{Address, Result};
use crate::format::free_space::{Class, Header, Section};
use crate::format::message::file_space_info::FileSpaceInfo;
use crate::meta::Store;
use std::ops::Range;

/// Managers of metadata, of elements, and of blocks of a page or more for any use.
const METADATA: usize = 0;
const RAW: usize = 2;
const LARGE: usize = 6;
/// Shortest range without pages that is recorded for elements, bytes.
const RAW_BYTES_MIN: u64 = 4096;
/// Most sections recorded.
const SECTIONS_MAX: usize = 1 << 16;
/// Bytes of a section in a list, at most: count, size, offset, type.
const SECTION_BYTES: u64 = 8 + 8 + 8 + 1;
/// Bytes of a list without sections, at most.
const LIST_BYTES: u64 = 4 + 1 + 8 + 4;

/// A manager to be written.
struct New {
    index: usize,
    sections: Vec<Section>,
    header: Address,
    list: Address,
    /// Bytes allocated for the list.
    allocated: u64,
}

/// Sorts the ranges of `free` into managers; drops sections below the threshold of `info`.
fn managers(free: &FreeRanges, info: &FileSpaceInfo) -> Vec<New> {
    let mut all: Vec<New> = Vec::new();
    let mut add = |index: usize, class: Class, range: &Range<u64>| {
        let section = Section { size: range.end.saturating_sub(range.start), offset: range.start, class };
        if section.size < info.threshold.max(1) {
            return;
        }
        match all.iter_mut().find(|m| m.index == index) {
            Some(manager) => manager.sections.push(section),
            None => all.push(New { sections: vec![section], ..new(index) }),
        }
    };
    for range in &free.whole {
        let is_long = range.end.saturating_sub(range.start) >= RAW_BYTES_MIN;
        match info.pages() {
            Some(_) => add(LARGE, Class::Large, range),
            None => add(if is_long { RAW } else { METADATA }, Class::Simple, range),
        }
    }
    let [metadata, raw] = &free.parts;
    metadata.iter().for_each(|range| add(METADATA, Class::Small, range));
    raw.iter().for_each(|range| add(RAW, Class::Small, range));
    // For the rest of the page of the headers.
    if info.pages().is_some() && !all.is_empty() && all.iter().all(|m| m.index != METADATA) {
        all.push(new(METADATA));
    }
    all
}

/// Bytes of the list of `manager` with one more section, at most.
fn bound(manager: &New) -> u64 {
    SECTION_BYTES.saturating_mul((manager.sections.len() as u64).saturating_add(1)).saturating_add(LIST_BYTES)
}

fn new(index: usize) -> New {
    New { index, sections: Vec::new(), header: Address::UNDEF, list: Address::UNDEF, allocated: 0 }
}

/// Allocates the headers and lists of `managers` at the end of the file; returns the rest of the
/// page of the headers, if the file has pages.
fn allocate(store: &Store, info: &FileSpaceInfo, managers: &mut [New]) -> Result<Option<Range<u64>>> {
    let size = Header::size(store.ctx());
    let lists: u64 = managers.iter().map(bound).fold(0, u64::saturating_add);
    let headers = size.saturating_mul(managers.len() as u64);
    let together = info.pages().is_none_or(|page| headers.saturating_add(lists) <= page);
    let (start, len) = store.append(if together { headers.saturating_add(lists) } else { headers })?;
    let mut at = start.0;
    for manager in managers.iter_mut() {
        manager.header = Address(at);
        at = at.saturating_add(size);
    }
    for manager in managers.iter_mut() {
        if together {
            (manager.list, manager.allocated) = (Address(at), bound(manager));
            at = at.saturating_add(manager.allocated);
        } else {
            (manager.list, manager.allocated) = store.append(bound(manager))?;
        }
    }
    let rest = at..start.0.saturating_add(len);
    Ok(info.pages().filter(|_| !rest.is_empty()).map(|_| rest))
}

fn write(store: &Store, manager: &mut New) -> Result<()> {
    manager.sections.sort_unstable();
    let stored = manager.sections.len() as u64;
    let space = manager.sections.iter().map(|s| s.size).fold(0, u64::saturating_add);
    let mut header = Header { space, sections: stored, stored, list: manager.list, list_allocated: manager.allocated, ..Header::of_file() };
    let list = header.encode_list(&manager.sections, manager.header, store.ctx());
    header.list_size = list.len() as u64;
    store.write(manager.list, &list)?;
    store.write(manager.header, &header.encode(store.ctx()))
}

/// Commits, and writes managers of what is free then past everything else, to be committed. Returns
/// the end of the file without them, and the addresses for the message `info`. A failure to write
/// loses the free space, and nothing else.
pub(super) fn leave(store: &Store, info: &FileSpaceInfo) -> Result<(Address, Vec<Address>)> {
    store.end_free_record()?;
    let end = store.commit_end()?;
    let mut addresses = vec![Address::UNDEF; info.managers.len()];
    let mut free = store.free_list()?;
    free.keep_longest(SECTIONS_MAX);
    let mut managers = managers(&free, info);
    if managers.is_empty() {
        return Ok((end, addresses));
    }
    let written = store.atomically(|| {
        if let Some(rest) = allocate(store, info, &mut managers)? {
            let section = Section { size: rest.end.saturating_sub(rest.start), offset: rest.start, class: Class::Small };
            let small = managers.iter_mut().filter(|m| m.index == METADATA && section.size >= info.threshold);
            small.for_each(|m| m.sections.push(section));
        }
        managers.retain(|manager| !manager.sections.is_empty());
        managers.iter_mut().try_for_each(|manager| write(store, manager))
    });
    match written {
        Ok(()) => {
            for manager in &managers {
                addresses.get_mut(manager.index).into_iter().for_each(|at| *at = manager.header);
            }
        }
        Err(e) => tracing::warn!("the free space of this session is lost: {e}"),
    }
    Ok((end, addresses))
}
