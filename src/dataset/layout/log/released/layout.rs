//! The layout of a dataset in a released log.

use super::super::block_index::{BlockIndex, Piece, Stored, Write};
use crate::base::element_set::ElementSet;
use crate::base::locks::Mutex;
use crate::base::storage_class::StorageClass;
use crate::base::{Address, Error, Result};
use crate::dataset::chunk::key::{CacheKey, DatasetKey};
use crate::dataset::creation::NewLayout;
use crate::dataset::environment::Environment;
use crate::dataset::layout::contiguous;
use crate::dataset::layout::log::anchor::{NAME, ReleasedAnchor};
use crate::dataset::layout::log::definition;
use crate::dataset::layout::log::piece::{DeflatedData, part_of};
use crate::dataset::layout::traits::{DatasetBytes, Definition, Description, Layout, Operation, Progress, Seek, StoredVolume, Written};
use crate::format::log::released::{EntryShape, NAME as STRUCTURE};
use crate::meta::extent;
use std::ops::Range;
use std::sync::Arc;

/// A dataset in a released log.
struct Released {
    anchor: ReleasedAnchor,
    dims: Vec<u64>,
    element_size: u64,
    key: DatasetKey,
    /// Its writes, from the first use on.
    index: Mutex<Option<Arc<BlockIndex>>>,
}

/// The layout of the dataset with this anchor.
pub(in crate::dataset::layout::log) fn open(anchor: ReleasedAnchor, dims: &[u64], element_size: u64, key: DatasetKey) -> Box<dyn Layout> {
    Box::new(Released { anchor, dims: dims.to_vec(), element_size, key, index: Mutex::default() })
}

impl Released {
    fn index(&self) -> Result<Arc<BlockIndex>> {
        let mut kept = self.index.lock();
        if let Some(index) = &*kept {
            return Ok(index.clone());
        }
        let shape = EntryShape { dims: &self.dims, legacy: self.anchor.legacy };
        let index = Arc::new(self.anchor.log.index(self.anchor.id, shape, self.element_size)?);
        *kept = Some(index.clone());
        Ok(index)
    }

    fn first_element(&self, offset: u64) -> u64 {
        offset.checked_div(self.element_size).unwrap_or(0)
    }

    /// The bytes of `piece` that `range`, bytes of the dataset, has; and where they begin within
    /// the write.
    fn cut(&self, piece: &Piece, range: &Range<u64>) -> (Range<u64>, u64) {
        let size = self.element_size;
        let (from, to) = (piece.elements.start.saturating_mul(size), piece.elements.end.saturating_mul(size));
        let part = from.max(range.start)..to.min(range.end);
        let within = piece.first.saturating_mul(size).saturating_add(part.start.saturating_sub(from));
        (part, within)
    }

    /// Reads the elements of a deflated write.
    fn read_deflated(&self, env: &Environment, number: usize, write: &Write, within: u64, buf: &mut [u8]) -> Result<()> {
        let corrupt = |detail: String| Error::corrupt(STRUCTURE, write.address, detail);
        let read = |from: u64, buf: &mut [u8]| {
            self.anchor.log.store(write.file)?.read_raw(write.address.checked_add(from).unwrap_or(Address::UNDEF), buf)
        };
        let key = CacheKey::Record { dataset: self.key, record: number as u64 };
        let size = write.elements.saturating_mul(self.element_size);
        let (stored, at) = (write.stored_bytes, write.address);
        DeflatedData { key, size, stored, at, read: &read, corrupt: &corrupt }.copy_to(env, within, buf)
    }
}

impl Layout for Released {
    fn name(&self) -> &'static str {
        NAME
    }

    fn class(&self) -> StorageClass {
        StorageClass::Log
    }

    fn check_swmr(&self) -> std::result::Result<(), &'static str> {
        Err("whose elements are in a log, which SWMR readers do not read")
    }

    fn describe(&self, _data: &DatasetBytes) -> Description {
        Description::default()
    }

    fn for_copy(&self) -> NewLayout {
        contiguous::new()
    }

    fn read(&self, data: &DatasetBytes, env: &Environment, offset: u64, buf: &mut [u8]) -> Result<()> {
        let range = offset..offset.saturating_add(buf.len() as u64);
        let elements = self.first_element(range.start)..range.end.div_ceil(self.element_size.max(1));
        let index = self.index()?;
        let (pieces, gaps) = index.suppliers(elements);
        for gap in gaps {
            let (from, to) = (gap.start.saturating_mul(self.element_size), gap.end.saturating_mul(self.element_size));
            let part = from.max(range.start)..to.min(range.end);
            data.fill.fill(part.start, part_of(buf, offset, &part));
        }
        let mut plain: Vec<(usize, Range<u64>, Address)> = Vec::new();
        for piece in &pieces {
            let Some(write) = index.writes.get(piece.write) else { continue };
            let (part, within) = self.cut(piece, &range);
            match &write.stored {
                Stored::Broken(error) => return Err(Error::clone(error)),
                Stored::Deflated => self.read_deflated(env, piece.write, write, within, part_of(buf, offset, &part))?,
                Stored::Plain => {
                    let from = write.address.checked_add(within).unwrap_or(Address::UNDEF);
                    match plain.last_mut() {
                        // Joins pieces that are next to each other in the dataset and in the log.
                        Some((file, last, at))
                            if *file == write.file
                                && last.end == part.start
                                && at.checked_add(last.end.saturating_sub(last.start)) == Some(from) =>
                        {
                            last.end = part.end;
                        }
                        _ => plain.push((write.file, part, from)),
                    }
                }
            }
        }
        for (file, part, from) in plain {
            self.anchor.log.store(file)?.read_raw(from, part_of(buf, offset, &part))?;
        }
        Ok(())
    }

    fn seek_stored(&self, data: &DatasetBytes, offset: u64, what: Seek) -> Result<Option<u64>> {
        let index = self.index()?;
        let at = self.first_element(offset);
        let found = match what {
            Seek::Data => index.next_supplied(at),
            Seek::Hole => Some(index.next_unsupplied(at)),
        };
        Ok(found
            .map(|e| e.saturating_mul(self.element_size).max(offset))
            .filter(|at| *at < data.size || what == Seek::Hole)
            .map(|at| at.min(data.size)))
    }

    fn allocated(&self, _data: &DatasetBytes, _env: &Environment) -> Result<u64> {
        Ok(self.index()?.stored_bytes())
    }

    fn stored_volume(&self, _data: &DatasetBytes) -> Result<StoredVolume> {
        Ok(StoredVolume { bytes: self.index()?.stored_bytes(), packed: false })
    }

    fn write(&self, _op: &Operation<'_>, _offset: u64, _bytes: &[u8], _undone: bool) -> Result<Written> {
        Err(Error::refused(libc::EPERM, "datasets of the released log VOL are not written"))
    }

    fn can_encode(&self) -> bool {
        false
    }

    fn is_in_log(&self) -> bool {
        true
    }

    fn definition(&self) -> Option<&dyn Definition> {
        Some(self)
    }

    fn allocate(&self, _op: &Operation<'_>, _range: &Range<u64>, _from: u64) -> Result<Progress> {
        Err(Error::refused(libc::EOPNOTSUPP, "datasets of the released log VOL are not written"))
    }

    /// The data is in datasets of the log, which are objects of their own.
    fn extents(&self, _op: &Operation<'_>, _visit: &mut extent::Visit<'_>) -> Result<()> {
        Ok(())
    }
}

impl Definition for Released {
    fn defined(&self, data: &DatasetBytes, _env: &Environment, first: &[u64], end: &[u64]) -> Result<ElementSet> {
        definition::defined(self, data, &self.dims, first, end)
    }

    fn erase(&self, _op: &Operation<'_>, _first: &[u64], _end: &[u64], _from: u64) -> Result<Progress> {
        Err(Error::refused(libc::EPERM, "datasets of the released log VOL are not written"))
    }
}
