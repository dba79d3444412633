//! Structures and free space of the file itself, which no object has.
//!
//! ```text
//! superblock, driver information block
//! superblock extension -> shared message table, metadata cache image, free-space managers
//! h5dir's free list, at the end of the file
//! ```

use super::free_list;
use super::free_space::Manager;
use super::shared_messages::SharedMessages;
use crate::base::{Address, Result};
use crate::format::cache_image;
use crate::format::free_list::NAME as FREE_LIST;
use crate::format::free_space::Client;
use crate::format::message::file_space_info::FileSpaceInfo;
use crate::format::object_header::{flag, kind};
use crate::format::superblock::{DRIVER_NAME, NAME as SUPERBLOCK, driver_block_len};
use crate::meta::extent::{Extent, Visit};
use crate::meta::{ObjectHeader, Store};
use std::ops::Range;

/// Largest prefix of a driver information block that has its length, bytes.
const DRIVER_PREFIX_BYTES: u64 = 16;

/// Visits the extents of one kind of structure of the file.
pub(crate) type Part = fn(&Store, &mut Visit<'_>) -> Result<()>;

/// All kinds of structures of the file. Each can be damaged by itself.
pub(crate) const PARTS: [Part; 7] = [superblock, driver_information, extension, shared_messages, cache_image_block, managers, own_list];

/// Called with each range of addresses that the file names as free.
pub(crate) type VisitFree<'a> = dyn FnMut(Range<u64>) + 'a;

fn superblock(store: &Store, visit: &mut Visit<'_>) -> Result<()> {
    visit(Extent::metadata(Address(0), store.superblock().size(), SUPERBLOCK))
}

fn driver_information(store: &Store, visit: &mut Visit<'_>) -> Result<()> {
    let Some(address) = store.superblock().legacy.as_ref().and_then(|old| old.driver_info.defined()) else { return Ok(()) };
    let address = Address(address);
    let len = driver_block_len(&store.read(address, DRIVER_PREFIX_BYTES, DRIVER_NAME)?, address)?;
    visit(Extent::metadata(address, len, DRIVER_NAME))
}

/// The header of the superblock extension, if the file has one.
fn extension_header(store: &Store) -> Result<Option<ObjectHeader>> {
    let address = store.superblock().extension;
    if address.is_defined() { ObjectHeader::load(store, address).map(Some) } else { Ok(None) }
}

fn extension(store: &Store, visit: &mut Visit<'_>) -> Result<()> {
    extension_header(store)?.map_or(Ok(()), |header| header.extents(visit))
}

fn shared_messages(store: &Store, visit: &mut Visit<'_>) -> Result<()> {
    SharedMessages::of(store)?.map_or(Ok(()), |table| table.extents(store, visit))
}

fn cache_image_block(store: &Store, visit: &mut Visit<'_>) -> Result<()> {
    let Some(header) = extension_header(store)? else { return Ok(()) };
    let Some(message) = header.find(kind::CACHE_IMAGE) else { return Ok(()) };
    match cache_image::decode_message(&message.body, store.ctx(), header.address)? {
        Some((address, len)) => visit(Extent::metadata(address, len, cache_image::NAME)),
        None => Ok(()),
    }
}

/// The file space info message of the superblock extension `header`, if it is valid.
///
/// It is stale if marked by a writer that does not know its type; libhdf5 ignores it too
/// (H5F__super_read).
pub(super) fn info(store: &Store, header: &ObjectHeader) -> Result<Option<FileSpaceInfo>> {
    let message = header.find(kind::FILE_SPACE_INFO).filter(|m| m.flags & flag::WAS_UNKNOWN == 0);
    message.map(|m| FileSpaceInfo::decode(&m.body, header.address, store.ctx())).transpose()
}

/// Calls `f` with each free-space manager of the file.
fn each_manager(store: &Store, f: &mut dyn FnMut(Manager) -> Result<()>) -> Result<()> {
    let Some(header) = extension_header(store)? else { return Ok(()) };
    let managers = info(store, &header)?.map(|info| info.managers).unwrap_or_default();
    managers.into_iter().filter(|at| at.is_defined()).try_for_each(|at| f(Manager::load(store, at, Client::File)?))
}

fn managers(store: &Store, visit: &mut Visit<'_>) -> Result<()> {
    each_manager(store, &mut |manager| manager.extents(store, visit))
}

fn own_list(store: &Store, visit: &mut Visit<'_>) -> Result<()> {
    let Some((address, _)) = free_list::find(store)? else { return Ok(()) };
    let eof = store.superblock().eof.0.saturating_sub(store.base());
    visit(Extent::metadata(address, eof.saturating_sub(address.0), FREE_LIST))
}

/// Visits the space that the file's free-space managers and h5dir's list name as free. The managers
/// of a file that its last writer did not close are ignored: datasets may use that space.
pub(crate) fn free(store: &Store, visit: &mut VisitFree<'_>) -> Result<()> {
    if let Some((_, list)) = free_list::find(store)? {
        list.iter().for_each(|range| visit(range.clone()));
    }
    if store.superblock().is_unclosed() {
        return Ok(());
    }
    each_manager(store, &mut |manager| {
        manager.sections.iter().for_each(|s| visit(s.offset..s.offset.saturating_add(s.size)));
        Ok(())
    })
}
