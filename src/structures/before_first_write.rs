//! Changes to the superblock extension and the space it describes, made with a file's first change.
//!
//! - A metadata cache image (message 0x18) holds entries that are newer than the bytes at their
//!   addresses. The entries are written there, the message is removed, and the image's block is
//!   freed.
//! - Free-space managers (message 0x17) list free space. That space and the managers are freed, and
//!   the message names none. It records no EOF until the file is closed: libhdf5 1.10.0 to 1.10.4
//!   truncate a file to the recorded EOF at their first change.
//!
//! libhdf5 writes the managers when it closes or flushes a file, not when it allocates from them.
//! After a writer was killed they may list space that datasets use: they are ignored then, and
//! `h5dir recover` removes them.
//!
//! When it closes a file, h5dir leaves managers of its own if free space persists
//! ([`super::leave_managers`]), and else a list of free space ([`super::free_list`]).

use super::free_space::Manager;
use super::{file_space, free_list, leave_managers};
use crate::base::{Address, Error, Result};
use crate::file::space::Ranges;
use crate::format::cache_image;
use crate::format::free_space::Client;
use crate::format::message::file_space_info::{FileSpaceInfo, SMALL};
use crate::format::object_header::{flag, kind};
use crate::meta::edit::SpaceKind;
use crate::meta::extent::collect;
use crate::meta::header_edit::HeaderEdit;
use crate::meta::{ObjectHeader, Store};

/// Managers of elements and global heaps, whose small blocks have separate pages.
const RAW_MANAGERS: std::ops::RangeInclusive<usize> = 2..=3;
/// Largest number of sections read from a file's managers.
const SECTIONS_MAX: usize = 1 << 22;

/// Changes to make, planned when the file is opened.
#[derive(Debug, Default)]
pub struct BeforeFirstWrite {
    extension: Option<Address>,
    image: Option<(Address, u64)>,
    space: Option<FileSpaceInfo>,
}

/// A block to be freed.
struct Block {
    address: Address,
    len: u64,
    kind: SpaceKind,
}

/// What the superblock extension `header` says of managers of free space; `None`: there are none.
fn remembered(header: &HeaderEdit, store: &Store, extension: Address) -> Result<Option<FileSpaceInfo>> {
    let known = |i: &usize| header.message(*i).is_some_and(|m| m.flags & flag::WAS_UNKNOWN == 0);
    let Some(i) = header.find(kind::FILE_SPACE_INFO).filter(known) else { return Ok(None) };
    let info = FileSpaceInfo::decode(header.body(i), extension, store.ctx())?;
    Ok(Some(info).filter(|info| info.managers.iter().any(|a| a.is_defined())))
}

impl BeforeFirstWrite {
    /// Plans the changes, and sets the store's page size. Errors: a damaged message of the
    /// extension.
    pub fn plan(store: &Store, extension: &ObjectHeader) -> Result<BeforeFirstWrite> {
        let mut first = BeforeFirstWrite::default();
        if let Some(m) = extension.find(kind::CACHE_IMAGE) {
            first.image = cache_image::decode_message(&m.body, store.ctx(), extension.address)?;
            first.extension = Some(extension.address);
        }
        if let Some(info) = file_space::info(store, extension)? {
            if let Some(size) = info.pages() {
                store.set_pages(size)?;
            }
            if info.persist {
                first.space = Some(info);
                first.extension = Some(extension.address);
            }
        }
        Ok(first)
    }

    /// Errors: the cache image or an entry of it has an impossible address.
    pub fn check_image(&self, store: &Store) -> Result<()> {
        let Some((image, len)) = self.image else { return Ok(()) };
        let bad = |at: u64| Err(Error::corrupt("metadata cache image", image, format!("an entry for address {at:#x}")));
        let eof = store.superblock().eof.0.saturating_sub(store.base());
        if image.0.checked_add(len).is_none_or(|end| end > eof) {
            return bad(image.0);
        }
        let mut before = 1;
        for (at, bytes) in store.image() {
            let end = at.saturating_add(bytes.len() as u64);
            let in_image = end > image.0 && at < image.0.saturating_add(len);
            if at < before || end > eof || in_image {
                return bad(at);
            }
            before = end;
        }
        Ok(())
    }

    /// Makes the changes, as a part of the file's first operation.
    pub fn apply(&self, store: &Store) -> Result<()> {
        free_list::take(store)?;
        let Some(extension) = self.extension else { return Ok(()) };
        let mut blocks: Vec<Block> = Vec::new();
        if let Some((address, len)) = self.image {
            for (at, bytes) in store.image() {
                store.write(Address(at), bytes)?;
            }
            store.set_image(false);
            blocks.push(Block { address, len, kind: SpaceKind::Metadata });
        }
        let mut header = HeaderEdit::load(store, extension)?;
        while let Some(i) = header.find(kind::CACHE_IMAGE) {
            header.remove(i);
        }
        if let Some(info) = &self.space {
            if store.superblock().is_unclosed() {
                tracing::warn!("ignored the free space that the file records: its last writer did not close it");
            } else {
                blocks.extend(recorded_free_space(store, info));
            }
            clear_managers(&mut header, store, info, Address::UNDEF);
        }
        header.write(store)?;
        blocks.iter().try_for_each(|b| store.free_kind(b.address, b.len, b.kind))
    }

    /// Removes the managers from a file whose writer was killed; the commit frees them. False if
    /// the file has none.
    pub fn forget_space(store: &Store, extension: Address) -> Result<bool> {
        let mut header = HeaderEdit::load(store, extension)?;
        let Some(info) = remembered(&header, store, extension)? else { return Ok(false) };
        store.atomically(|| {
            clear_managers(&mut header, store, &info, Address::UNDEF);
            header.write(store)
        })?;
        Ok(true)
    }

    /// True if the superblock `extension` of the file refers to managers of free space.
    pub fn remembers_space(store: &Store, extension: Address) -> Result<bool> {
        Ok(extension.is_defined() && remembered(&HeaderEdit::load(store, extension)?, store, extension)?.is_some())
    }

    /// Leaves free-space managers if free space persists, else a free list. Records the EOF if the
    /// file has a message for it. To be called after the last change before the file is closed.
    pub fn close(&self, store: &Store) -> Result<()> {
        let space = self.extension.zip(self.space.as_ref().filter(|info| info.version > 0));
        let Some((extension, info)) = space else { return free_list::leave(store).map(drop) };
        let (end, managers) = leave_managers::leave(store, info)?;
        store.atomically(|| {
            let mut header = HeaderEdit::load(store, extension)?;
            set_managers(&mut header, store, info, end, managers.clone());
            header.write(store)
        })
    }

    /// Restores the cache image after a failed write, if the extension still has it.
    pub fn failed(&self, store: &Store) {
        if self.image.is_some() {
            let still = self.extension.and_then(|at| ObjectHeader::load(store, at).ok());
            store.set_image(still.is_some_and(|h| h.find(kind::CACHE_IMAGE).is_some()));
        }
    }
}

/// Changes the message to name no managers, and `eoa` as EOF.
fn clear_managers(header: &mut HeaderEdit, store: &Store, info: &FileSpaceInfo, eoa: Address) {
    set_managers(header, store, info, eoa, vec![Address::UNDEF; info.managers.len()]);
}

/// Changes the message to name `managers`, and `eoa` as EOF.
fn set_managers(header: &mut HeaderEdit, store: &Store, info: &FileSpaceInfo, eoa: Address, managers: Vec<Address>) {
    let Some(i) = header.find(kind::FILE_SPACE_INFO) else { return };
    let body = FileSpaceInfo { eoa, managers, ..info.clone() }.encode(store.ctx());
    // Keeps the bytes that libhdf5 writes after the message.
    let mut whole = header.body(i).to_vec();
    if let Some(front) = whole.get_mut(..body.len()) {
        front.copy_from_slice(&body);
        header.set_body(i, whole);
    }
}

/// The managers and the space that they list. Nothing if they contradict each other: that space is
/// lost, without other harm.
fn recorded_free_space(store: &Store, info: &FileSpaceInfo) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut all = Ranges::default();
    let eof = store.superblock().eof.0.saturating_sub(store.base());
    for (i, &manager) in info.managers.iter().enumerate().filter(|(_, a)| a.is_defined()) {
        let kind = if RAW_MANAGERS.contains(&i) { SpaceKind::Raw } else { SpaceKind::Metadata };
        // The rest of a page after a large block is freed with the block.
        let least = if i < SMALL { 1 } else { info.page_size };
        let found = match sections(store, manager, kind, least) {
            Ok(found) => found,
            Err(e) => {
                tracing::warn!("ignored a part of the free space that the file records: {e}");
                continue;
            }
        };
        for b in found {
            let end = b.address.0.checked_add(b.len).filter(|end| *end <= eof);
            let range = end.map(|end| b.address.0..end).filter(|r| r.start > 0 && !r.is_empty());
            let apart = range.clone().is_some_and(|r| all.split(r).iter().all(|(_, taken)| !taken));
            if !apart || blocks.len() >= SECTIONS_MAX {
                tracing::warn!("ignored the free space that the file records: {} bytes at {} cannot be free", b.len, b.address);
                return Vec::new();
            }
            range.into_iter().for_each(|r| all.insert(r));
            blocks.push(b);
        }
    }
    blocks
}

/// The manager at `address` and its sections of at least `least` bytes.
fn sections(store: &Store, address: Address, kind: SpaceKind, least: u64) -> Result<Vec<Block>> {
    let manager = Manager::load(store, address, Client::File)?;
    let own = collect(|visit| manager.extents(store, visit))?;
    let large = manager.sections.iter().filter(|s| s.size >= least);
    let large = large.map(|s| Block { address: Address(s.offset), len: s.size, kind });
    Ok(own.iter().map(|e| Block { address: e.address, len: e.len, kind: e.kind }).chain(large).collect())
}
