//! Contiguous layout: the elements are in one block of the file, allocated at the first write.

use super::parts::Parts;
use super::plain_reads::{PlainReads, is_on_disk};
use super::traits::{BackgroundTurn, DatasetBytes, Description, Front, Layout, Operation, Progress, Seek, StoredVolume, Written};
use crate::base::io_pieces::pieces;
use crate::base::limits::IO_PIECE_BYTES;
use crate::base::storage_class::StorageClass;
use crate::base::{Address, Error, Result};
use crate::dataset::creation::{CreateLayout, Creation, NewLayout};
use crate::dataset::environment::Environment;
use crate::format::Context;
use crate::format::message::data_layout::{DataLayout, Layout as Class};
use crate::meta::edit::SpaceKind;
use crate::meta::extent::{self, Extent};
use std::ops::Range;
use std::sync::Arc;

/// Read-ahead window, bytes.
const READ_AHEAD_BYTES: u64 = 4 << 20;
/// Read-ahead window of a remote file, bytes: several requests at once.
const REMOTE_READ_AHEAD_BYTES: u64 = 32 << 20;
/// Name of the layout.
pub(super) const NAME: &str = "contiguous";
/// Structure named by errors.
const STRUCTURE: &str = "contiguous data layout";

/// A dataset in one block.
struct Contiguous {
    /// The block; undefined until the first write.
    address: Address,
}

/// Opens the layout if the message is of this class.
pub(super) fn open(parts: &mut Parts<'_>) -> Result<Option<Box<dyn Layout>>> {
    let Class::Contiguous { address, .. } = parts.message.class else { return Ok(None) };
    Ok(Some(Box::new(Contiguous { address })))
}

/// Creates contiguous datasets.
pub(super) struct Create;

impl CreateLayout for Create {
    fn name(&self) -> &'static str {
        NAME
    }

    fn fits_any_container(&self) -> bool {
        true
    }

    fn allocation_time(&self) -> u8 {
        2
    }

    fn message(&self, _ctx: &Context, _superblock_version: u8, creation: &Creation) -> Result<DataLayout> {
        Ok(DataLayout { version: 3, class: Class::Contiguous { address: Address::UNDEF, size: creation.bytes(), dims: Vec::new() } })
    }
}

/// The layout of a new contiguous dataset.
pub(crate) fn new() -> NewLayout {
    NewLayout { kind: &Create, chunk: Vec::new() }
}

impl Contiguous {
    fn at(&self, offset: u64) -> Result<Address> {
        self.address.checked_add(offset).ok_or_else(|| Error::corrupt(STRUCTURE, self.address, "ends past 2^64"))
    }

    /// Allocates the block and fills it, except `written`, which the caller writes next.
    ///
    /// Skips zeros where new space already reads as zeros, unless `zeros_too`: then the host file
    /// system allocates the space.
    fn allocate_block(&self, op: &Operation<'_>, written: Range<u64>, zeros_too: bool) -> Result<(Address, DataLayout)> {
        let (data, store) = (op.data, &op.data.store);
        let address = store.allocate(data.size, SpaceKind::Raw)?;
        let all = std::iter::once(0..data.size).collect();
        let parts = if data.fill.is_zero() && !zeros_too { store.written_in(address, data.size)? } else { all };
        for part in parts {
            fill(op, address, part.start..part.end.min(written.start))?;
            fill(op, address, part.start.max(written.end)..part.end)?;
        }
        let Class::Contiguous { size, dims, .. } = &op.message.class else {
            return Err(Error::corrupt(STRUCTURE, op.header, "the layout message is of another class"));
        };
        let class = Class::Contiguous { address, size: *size, dims: dims.clone() };
        Ok((address, DataLayout { version: op.message.version, class }))
    }
}

/// Writes the fill value to `range` of the block at `address`.
fn fill(op: &Operation<'_>, address: Address, range: Range<u64>) -> Result<()> {
    let mut piece = vec![0u8; IO_PIECE_BYTES];
    for (at, n) in pieces(range) {
        let part = piece.get_mut(..n).unwrap_or_default();
        op.data.fill.fill(at, part);
        op.data.store.write_raw(address.checked_add(at).unwrap_or(Address::UNDEF), part)?;
    }
    Ok(())
}

impl Layout for Contiguous {
    fn check_swmr(&self) -> std::result::Result<(), &'static str> {
        // libhdf5 refuses a block past the EOF that the superblock had when the file was opened.
        if self.address.is_defined() { Ok(()) } else { Err("which has no storage yet") }
    }

    fn name(&self) -> &'static str {
        NAME
    }

    fn class(&self) -> StorageClass {
        StorageClass::Contiguous
    }

    fn describe(&self, _data: &DatasetBytes) -> Description {
        Description { address: Some(self.address), ..Description::default() }
    }

    fn for_copy(&self) -> NewLayout {
        new()
    }

    fn read(&self, data: &DatasetBytes, _env: &Environment, offset: u64, buf: &mut [u8]) -> Result<()> {
        if self.address.is_defined() {
            return data.store.read_raw(self.at(offset)?, buf);
        }
        data.fill.fill(offset, buf);
        Ok(())
    }

    fn is_long_read(&self, data: &DatasetBytes, _env: &Environment, offset: u64, len: usize) -> bool {
        self.at(offset).is_ok_and(|at| self.address.is_defined() && is_on_disk(&data.store, at, len))
    }

    fn read_front<'a>(&'a self, data: &'a DatasetBytes, env: &'a Environment, offset: u64, buf: &mut [u8]) -> Result<Front<'a>> {
        if !self.address.is_defined() {
            return self.read(data, env, offset, buf).map(|()| Front::Read(buf.len()));
        }
        let reads = PlainReads::new(&data.store, true);
        reads.read(self.at(offset)?, buf)?;
        Ok(reads.deferred().map_or(Front::Read(buf.len()), Front::Deferred))
    }

    fn seek_stored(&self, data: &DatasetBytes, offset: u64, what: Seek) -> Result<Option<u64>> {
        let stored = self.address.is_defined();
        Ok(match what {
            Seek::Data => stored.then_some(offset),
            Seek::Hole => Some(if stored { data.size } else { offset }),
        })
    }

    fn file_hole_end(&self, data: &DatasetBytes, offset: u64) -> Option<u64> {
        let at = data.store.offset(self.address.checked_add(offset)?, "raw data").ok()?;
        let end = data.store.driver().hole_end(at)?;
        Some(offset.saturating_add(end.saturating_sub(at)).min(data.size))
    }

    fn allocated(&self, data: &DatasetBytes, _env: &Environment) -> Result<u64> {
        Ok(if self.address.is_defined() { data.size } else { 0 })
    }

    fn stored_volume(&self, data: &DatasetBytes) -> Result<StoredVolume> {
        Ok(StoredVolume { bytes: if self.address.is_defined() { data.size } else { 0 }, packed: false })
    }

    fn read_ahead(&self, data: &Arc<DatasetBytes>, _env: &Arc<Environment>, at: u64, from: u64, _turn: &Arc<dyn BackgroundTurn>) -> u64 {
        let window = if data.store.driver().is_remote() { REMOTE_READ_AHEAD_BYTES } else { READ_AHEAD_BYTES };
        let to = at.saturating_add(window).min(data.size);
        // Gives few large hints instead of many small ones.
        if to.saturating_sub(from) < window / 2 {
            return from;
        }
        if let Some(address) = self.address.checked_add(from).and_then(|a| data.store.offset(a, "raw data").ok()) {
            data.store.driver().advise(address, to.saturating_sub(from));
        }
        to
    }

    fn past(&self, op: &Operation<'_>, limit: Address) -> Result<Option<Address>> {
        let within = self.address.checked_add(op.data.size).is_some_and(|end| end <= limit);
        Ok(Some(self.address).filter(|a| a.is_defined() && !within))
    }

    fn write(&self, op: &Operation<'_>, offset: u64, bytes: &[u8], _undone: bool) -> Result<Written> {
        let len = bytes.len();
        if self.address.is_defined() {
            op.data.store.write_raw(self.at(offset)?, bytes)?;
            return Ok(Written { len, layout: None });
        }
        let (address, layout) = self.allocate_block(op, offset..offset.saturating_add(len as u64), false)?;
        op.data.store.write_raw(Contiguous { address }.at(offset)?, bytes)?;
        Ok(Written { len, layout: Some(layout) })
    }

    fn overwrite(&self, data: &DatasetBytes, _env: &Environment, offset: u64, bytes: &[u8]) -> Result<bool> {
        if !self.address.is_defined() {
            return Ok(false);
        }
        data.store.write_raw(self.at(offset)?, bytes).map(|()| true)
    }

    fn allocate(&self, op: &Operation<'_>, _range: &Range<u64>, _from: u64) -> Result<Progress> {
        if self.address.is_defined() {
            return Ok(Progress::default());
        }
        let (_, layout) = self.allocate_block(op, 0..0, true)?;
        Ok(Progress { layout: Some(layout), next: None, changed: true })
    }

    fn extents(&self, op: &Operation<'_>, visit: &mut extent::Visit<'_>) -> Result<()> {
        if !self.address.is_defined() || op.data.size == 0 {
            return Ok(());
        }
        visit(Extent::raw(self.address, op.data.size, STRUCTURE))
    }

    fn delete(&self, op: &Operation<'_>) -> Result<()> {
        self.extents(op, &mut |block| op.data.store.free_kind(block.address, block.len, block.kind))
    }
}
