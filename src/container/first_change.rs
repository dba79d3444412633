//! What has to be done before a file's first change: what else its superblock extension would tell of it was true only
//! of the file as it was.
//!
//! - A metadata cache image (message 0x18) holds entries that are newer than the bytes at their addresses. They are written
//!   there, the message goes, and the image's block is freed.
//! - Free-space managers (message 0x17) list free space. It becomes free here, when the commit that says so is durable; the
//!   managers are freed, and the message names none. Until the file is closed it tells no end of file either: some
//!   releases of libhdf5 (1.10.0 to 1.10.4) cut what lies behind that end off at their first change.
//!
//! libhdf5 writes the managers when it closes or flushes a file, not when it takes what they list. After a writer that was killed they may
//! list space that datasets have: what they tell is not taken over then, and `h5dir recover` takes them out.
//!
//! The next libhdf5 that changes the file writes managers of its own. What is free when h5dir closes a file is not
//! told: none knows of it then, as in files that do not remember free space.

use crate::base::{Address, Error, Result};
use crate::file::space::Ranges;
use crate::format::cache_image;
use crate::format::file_space_manager::{self, Manager};
use crate::format::message::file_space_info::{FileSpaceInfo, SMALL};
use crate::format::object_header::{flag, kind};
use crate::meta::edit::SpaceKind;
use crate::meta::header_edit::HeaderEdit;
use crate::meta::{ObjectHeader, Store};

/// Managers of elements and global heaps, whose small blocks have pages of their own.
const RAW_MANAGERS: std::ops::RangeInclusive<usize> = 2..=3;
/// Most sections taken over from a file's managers.
const SECTIONS_MAX: usize = 1 << 22;

/// What has to be done, found out when the file is opened.
#[derive(Debug, Default)]
pub struct FirstChange {
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

impl FirstChange {
    /// Finds out what has to be done, and sets how space is allocated. Errors: what the extension tells is damaged.
    pub fn plan(store: &Store, extension: &ObjectHeader) -> Result<FirstChange> {
        let mut first = FirstChange::default();
        if let Some(m) = extension.find(kind::CACHE_IMAGE) {
            first.image = cache_image::decode_message(&m.body, store.ctx(), extension.address)?;
            first.extension = Some(extension.address);
        }
        // A message that a writer without knowledge of it marked is out of date: libhdf5 ignores it, too (H5F__super_read).
        if let Some(m) = extension.find(kind::FILE_SPACE_INFO).filter(|m| m.flags & flag::WAS_UNKNOWN == 0) {
            let info = FileSpaceInfo::decode(&m.body, extension.address, store.ctx())?;
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

    /// Errors: an entry of the cache image lies where none can.
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

    /// Does it, as a part of the file's first operation.
    pub fn apply(&self, store: &Store) -> Result<()> {
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
                tracing::warn!("free space that the file remembers is lost: who wrote it last did not close it");
            } else {
                blocks.extend(remembered(store, info));
            }
            tell(&mut header, store, info, Address::UNDEF);
        }
        header.write(store)?;
        blocks.iter().try_for_each(|b| store.free_kind(b.address, b.len, b.kind))
    }

    /// Takes the managers out of a file whose writer was killed. Returns whether there were some; they are gone with the commit.
    pub fn forget_space(store: &Store, extension: Address) -> Result<bool> {
        let mut header = HeaderEdit::load(store, extension)?;
        let known = |i: &usize| header.message(*i).is_some_and(|m| m.flags & flag::WAS_UNKNOWN == 0);
        let Some(i) = header.find(kind::FILE_SPACE_INFO).filter(known) else { return Ok(false) };
        let info = FileSpaceInfo::decode(header.body(i), extension, store.ctx())?;
        if info.managers.iter().all(|a| !a.is_defined()) {
            return Ok(false);
        }
        store.atomically(|| {
            tell(&mut header, store, &info, Address::UNDEF);
            header.write(store)
        })?;
        Ok(true)
    }

    /// After the last commit before the file is closed: tells where it ends. Does nothing where nothing remembers that.
    pub fn close(&self, store: &Store) -> Result<()> {
        let (Some(extension), Some(info)) = (self.extension, &self.space) else { return Ok(()) };
        if info.version == 0 {
            return Ok(());
        }
        let end = store.commit_end()?;
        store.atomically(|| {
            let mut header = HeaderEdit::load(store, extension)?;
            tell(&mut header, store, info, end);
            header.write(store)
        })
    }

    /// After writing failed: whether the image still counts.
    pub fn failed(&self, store: &Store) {
        if self.image.is_some() {
            let still = self.extension.and_then(|at| ObjectHeader::load(store, at).ok());
            store.set_image(still.is_some_and(|h| h.find(kind::CACHE_IMAGE).is_some()));
        }
    }
}

/// The message that names no managers.
fn tell(header: &mut HeaderEdit, store: &Store, info: &FileSpaceInfo, eoa: Address) {
    let Some(i) = header.find(kind::FILE_SPACE_INFO) else { return };
    let managers = vec![Address::UNDEF; info.managers.len()];
    let body = FileSpaceInfo { eoa, managers, ..info.clone() }.encode(store.ctx());
    // What libhdf5 puts behind it is kept.
    let mut whole = header.body(i).to_vec();
    if let Some(front) = whole.get_mut(..body.len()) {
        front.copy_from_slice(&body);
        header.set_body(i, whole);
    }
}

/// The managers and what they say is free. Nothing, if they contradict each other: that space is lost then, nothing else.
fn remembered(store: &Store, info: &FileSpaceInfo) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut all = Ranges::default();
    let eof = store.superblock().eof.0.saturating_sub(store.base());
    for (i, &manager) in info.managers.iter().enumerate().filter(|(_, a)| a.is_defined()) {
        let kind = if RAW_MANAGERS.contains(&i) { SpaceKind::Raw } else { SpaceKind::Metadata };
        // What is left of a page behind a long block goes with the block.
        let least = if i < SMALL { 1 } else { info.page_size };
        let found = match sections(store, manager, kind, least) {
            Ok(found) => found,
            Err(e) => {
                tracing::warn!("free space that the file remembers is lost: {e}");
                continue;
            }
        };
        for b in found {
            let end = b.address.0.checked_add(b.len).filter(|end| *end <= eof);
            let range = end.map(|end| b.address.0..end).filter(|r| r.start > 0 && !r.is_empty());
            let apart = range.clone().is_some_and(|r| all.split(r).iter().all(|(_, taken)| !taken));
            if !apart || blocks.len() >= SECTIONS_MAX {
                tracing::warn!("free space that the file remembers is lost: {} bytes at {} cannot be free", b.len, b.address);
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
    let ctx = store.ctx();
    let size = Manager::size(ctx);
    let manager = Manager::decode(&store.read(address, size, file_space_manager::NAME)?, address, ctx)?;
    let mut blocks = vec![Block { address, len: size, kind: SpaceKind::Metadata }];
    if !manager.list.is_defined() || manager.list_size == 0 {
        return Ok(blocks);
    }
    let list = store.read(manager.list, manager.list_size, file_space_manager::LIST)?;
    let found = manager.decode_list(&list, address, ctx)?;
    blocks.push(Block { address: manager.list, len: manager.list_allocated, kind: SpaceKind::Metadata });
    blocks.extend(found.into_iter().filter(|(_, len)| *len >= least).map(|(address, len)| Block { address, len, kind }));
    Ok(blocks)
}
