//! Keeps free space from one session to the next.
//!
//! A session that changed a file ends by writing its free space behind everything else
//! ([`crate::format::free_list`]). The first change of the next session takes the list, and makes
//! it void with the same commit: after a crash there is no list, and its space is lost, but nothing
//! is allocated twice.

use crate::base::free_ranges::FreeRanges;
use crate::base::{Address, Result};
use crate::file::space::Ranges;
use crate::format::free_list::{self, FOOTER_BYTES, Footer, NAME, RANGES_MAX};
use crate::meta::Store;
use crate::meta::edit::SpaceKind;

/// The list at the end of the file, and its address; `None` if there is none.
pub(crate) fn find(store: &Store) -> Result<Option<(Address, FreeRanges)>> {
    let superblock = store.superblock();
    let eof = superblock.eof.0.saturating_sub(store.base());
    let start = eof.checked_sub(FOOTER_BYTES).filter(|start| *start >= superblock.size());
    // A truncated file has no list.
    let Some(start) = start.filter(|_| store.file_len().is_ok_and(|len| eof <= len)) else { return Ok(None) };
    let Some(footer) = Footer::decode(&store.read(Address(start), FOOTER_BYTES, NAME)?, eof) else { return Ok(None) };
    let bytes = store.read(footer.address, eof.saturating_sub(footer.address.0), NAME)?;
    let list = match free_list::decode(&bytes, &footer, superblock.size()) {
        Ok(list) => list,
        Err(e) => {
            tracing::warn!("the free space that the last session left is lost: {e}");
            return Ok(None);
        }
    };
    let mut all = Ranges::default();
    for range in list.iter() {
        if all.split(range.clone()).iter().any(|(_, taken)| *taken) {
            tracing::warn!("the free space that the last session left is lost: it names a byte twice");
            return Ok(None);
        }
        all.insert(range.clone());
    }
    Ok(Some((footer.address, list)))
}

/// Makes the space of the list free, and the list void, as a part of the file's first operation.
pub(crate) fn take(store: &Store) -> Result<()> {
    let Some((address, list)) = find(store)? else { return Ok(()) };
    let len = store.superblock().eof.0.saturating_sub(store.base()).saturating_sub(address.0);
    let footer = Address(address.0.saturating_add(len.saturating_sub(FOOTER_BYTES)));
    store.write(footer, &[0; FOOTER_BYTES as usize])?;
    store.free_kind(address, len, SpaceKind::Metadata)?;
    store.add_free(&list)
}

/// Commits, and writes a list of what is free then at the end of the file, to be committed. Returns
/// the end of the file.
pub(crate) fn leave(store: &Store) -> Result<Address> {
    store.end_free_record()?;
    let end = store.commit_end()?;
    let mut list = store.free_list()?;
    list.keep_longest(RANGES_MAX);
    if list.count() == 0 {
        return Ok(end);
    }
    let written = store.atomically(|| {
        let (address, len) = store.append(free_list::encoded_len(&list))?;
        store.write(address, &free_list::encode(&list, address, len))
    });
    if let Err(e) = written {
        tracing::warn!("the free space of this session is lost: {e}");
    }
    store.end()
}
