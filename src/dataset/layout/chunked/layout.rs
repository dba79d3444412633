//! Implements [`Layout`] for chunked datasets.

use super::create;
use super::found_chunks::FoundChunks;
use super::holes::Accuracy;
use super::locate::FileChunks;
use super::storage::Chunked;
use super::write::ChunkWriter;
use super::{bounds, copy, read_ahead, sections, write};
use crate::base::element_set::ElementSet;
use crate::base::shape::Extent;
use crate::base::storage_class::StorageClass;
use crate::base::{Address, Error, Result};
use crate::dataset::chunk::ChunkGrid;
use crate::dataset::chunk::defined::ChunkSets;
use crate::dataset::chunk::encoded::Encoded;
use crate::dataset::chunk::format;
use crate::dataset::chunk::key::ChunkKey;
use crate::dataset::chunk::pieces::ByteGrid;
use crate::dataset::chunk::present::PresentChunks;
use crate::dataset::creation::NewLayout;
use crate::dataset::environment::Environment;
use crate::dataset::index;
use crate::dataset::layout::parts::Parts;
use crate::dataset::layout::traits::{
    BackgroundTurn, CopyUnit, DatasetBytes, Deferred, Definition, Description, DirtyList, Front, Layout, Operation, Progress, Seek,
    StoredChunks, StoredVolume, WriteBack, Written,
};
use crate::filter::Pipeline;
use crate::format::message::data_layout::{DONT_FILTER_PARTIAL_EDGE_CHUNKS, DataLayout, IndexInfo, Layout as Class};
use crate::meta::extent;
use std::any::Any;
use std::ops::Range;
use std::sync::Arc;

/// Structure named by errors.
const STRUCTURE: &str = "data layout message";

/// Opens the layout if the message is of this class.
pub(in crate::dataset::layout) fn open(parts: &mut Parts<'_>) -> Result<Option<Box<dyn Layout>>> {
    let Class::Chunked(c) = &parts.message.class else { return Ok(None) };
    let (at, space, pipeline) = (parts.header, &*parts.space, parts.pipeline);
    if space.extent != Extent::Simple || space.dims.len() != c.chunk_dims.len() {
        let detail = format!("chunks of rank {}, a dataspace of rank {}", c.chunk_dims.len(), space.dims.len());
        return Err(Error::corrupt(STRUCTURE, at, detail));
    }
    let element_size = parts.datatype.element_size();
    if c.element_size != element_size {
        let detail = format!("elements of {} bytes, a datatype of {element_size}", c.element_size);
        return Err(Error::corrupt(STRUCTURE, at, detail));
    }
    let chunks = ChunkGrid { shape: space.dims.clone(), max_shape: space.max(), chunk_dims: c.chunk_dims.clone(), element_size };
    let grid = ByteGrid::new(&space.dims, &c.chunk_dims, element_size);
    let grid = grid.ok_or_else(|| Error::limit("dataset", at, "dimensions past 2^63 bytes"))?;
    let raw_edges = c.flags & DONT_FILTER_PARTIAL_EDGE_CHUNKS != 0;
    let (chunk_dims, fill) = (c.chunk_dims.as_slice(), parts.fill);
    let section_filters = sections::filters(parts, c)?;
    let sections = c.sections.map(|count| format::SectionParts { count, filters: &section_filters });
    let format =
        format::open(&format::Parts { chunk_bytes: grid.chunk_bytes(), chunk_dims, element_size, fill, pipeline, sections, raw_edges });
    let index = index::open(parts.message, &chunks, format.record_shape())?;
    Ok(Some(Box::new(Chunked {
        number: parts.number,
        grid,
        chunks,
        index,
        has_index: c.index.address().is_defined(),
        is_implicit: matches!(c.index, IndexInfo::Implicit { .. }),
        format,
        found: FoundChunks::default(),
    })))
}

/// Changes a copy of the layout message; returns it if it changed.
fn update_message(op: &Operation<'_>, f: impl FnOnce(&mut DataLayout) -> Result<bool>) -> Result<Option<DataLayout>> {
    let mut message = op.message.clone();
    Ok(f(&mut message)?.then_some(message))
}

impl Chunked {
    /// Downcasts `layout`.
    pub(super) fn of(layout: &dyn Layout) -> Option<&Chunked> {
        (layout as &dyn Any).downcast_ref()
    }

    /// Changes chunks by `f`; returns the layout message if it changed.
    pub(super) fn change_chunks(
        &self,
        op: &Operation<'_>,
        f: impl FnOnce(&ChunkWriter<'_>, &mut DataLayout) -> Result<bool>,
    ) -> Result<Option<DataLayout>> {
        update_message(op, |message| f(&self.writer(op, &self.extent(op)), message))
    }

    /// Its chunks in the file of `data`.
    pub(super) fn chunks_of<'a>(&'a self, data: &'a DatasetBytes, env: &'a Environment) -> FileChunks<'a> {
        FileChunks { chunked: self, env, store: &data.store, index_store: &data.store, fill: &data.fill }
    }

    /// Its chunks in the file of `data`, for a reader who does not wait for a disk.
    fn chunks_in_memory<'a>(&'a self, data: &'a DatasetBytes, env: &'a Environment) -> FileChunks<'a> {
        FileChunks { index_store: data.store.in_memory(), ..self.chunks_of(data, env) }
    }

    /// The grid with the extent of the operation.
    fn extent(&self, op: &Operation<'_>) -> ChunkGrid {
        ChunkGrid { shape: op.space.dims.clone(), max_shape: op.space.max(), ..self.chunks.clone() }
    }

    fn writer<'a>(&'a self, op: &'a Operation<'_>, grid: &'a ChunkGrid) -> ChunkWriter<'a> {
        ChunkWriter { env: op.env, store: &op.data.store, chunked: self, grid, fill: &op.data.fill, btree_k: op.btree_k }
    }
}

/// The front of a range of bytes: what is read at a time.
enum Part {
    /// A hole, bytes.
    Hole(usize),
    /// Pieces of chunks, bytes.
    Slice(usize),
}

impl Part {
    fn len(&self) -> usize {
        let (Part::Hole(len) | Part::Slice(len)) = self;
        *len
    }
}

impl Chunked {
    /// The front of the `len` bytes from `offset`.
    fn front(chunks: FileChunks<'_>, offset: u64, len: usize) -> Result<Part> {
        let FileChunks { chunked, env, index_store, .. } = chunks;
        // The index does not contain dirty chunks.
        let is_dirty = env.dirty.has(chunked.number);
        Ok(match if is_dirty { 0 } else { chunked.hole_at(env, index_store, offset, len)?.min(len) } {
            0 => Part::Slice(chunked.slice_bytes().min(len)),
            hole => Part::Hole(hole),
        })
    }

    /// Reads a part, which is as long as `buf`; see [`Chunked::read_slice`].
    fn read_part<'a>(chunks: FileChunks<'a>, part: Part, defers: bool, offset: u64, buf: &mut [u8]) -> Result<Option<Deferred<'a>>> {
        match part {
            Part::Hole(_) => {
                chunks.fill.fill(offset, buf);
                Ok(None)
            }
            Part::Slice(_) => Chunked::read_slice(chunks, defers, offset, buf),
        }
    }
}

impl Layout for Chunked {
    fn name(&self) -> &'static str {
        self.format.layout_name()
    }

    fn class(&self) -> StorageClass {
        StorageClass::Chunked
    }

    fn describe(&self, _data: &DatasetBytes) -> Description {
        let (chunk_dims, index) = (Some(self.chunks.chunk_dims.clone()), Some(self.index.name()));
        Description { chunk_dims, index, ..Description::default() }
    }

    fn for_copy(&self) -> NewLayout {
        create::like(&*self.format, self.chunks.chunk_dims.clone())
    }

    fn read(&self, data: &DatasetBytes, env: &Environment, offset: u64, buf: &mut [u8]) -> Result<()> {
        let (mut at, mut rest) = (offset, buf);
        while !rest.is_empty() {
            let chunks = self.chunks_of(data, env);
            let part = Chunked::front(chunks, at, rest.len())?;
            let (front, tail) = rest.split_at_mut(part.len());
            Chunked::read_part(chunks, part, false, at, front)?;
            (at, rest) = (at.saturating_add(front.len() as u64), tail);
        }
        Ok(())
    }

    fn read_front<'a>(&'a self, data: &'a DatasetBytes, env: &'a Environment, offset: u64, buf: &mut [u8]) -> Result<Front<'a>> {
        let chunks = self.chunks_in_memory(data, env);
        let part = Chunked::front(chunks, offset, buf.len())?;
        let front = buf.get_mut(..part.len()).unwrap_or_default();
        Ok(match Chunked::read_part(chunks, part, true, offset, front)? {
            None => Front::Read(front.len()),
            Some(deferred) => Front::Deferred(deferred),
        })
    }

    fn is_long_read(&self, data: &DatasetBytes, env: &Environment, offset: u64, len: usize) -> bool {
        Chunked::is_long(self.chunks_in_memory(data, env), offset, len)
    }

    fn seek_stored(&self, data: &DatasetBytes, offset: u64, what: Seek) -> Result<Option<u64>> {
        self.seek_in_file(&data.store, offset, what)
    }

    fn seek(&self, data: &DatasetBytes, env: &Environment, offset: u64, what: Seek) -> Result<Option<u64>> {
        if self.knows_defined() {
            return (&self.sets(env, &data.store) as &dyn ChunkSets).seek(offset, what);
        }
        (&self.present(env, &data.store) as &dyn PresentChunks).seek(offset, what)
    }

    fn allocated(&self, data: &DatasetBytes, env: &Environment) -> Result<u64> {
        self.stored_bytes(env, &data.store, Accuracy::Quick)
    }

    fn allocated_exactly(&self, data: &DatasetBytes, env: &Environment) -> Result<u64> {
        self.stored_bytes(env, &data.store, Accuracy::Exact)
    }

    fn stored_volume(&self, data: &DatasetBytes) -> Result<StoredVolume> {
        let packed = self.format.has_variable_size();
        let bytes = match self.is_implicit {
            true => data.size,
            // Only the defined elements of sparse chunks are copied.
            false if self.knows_defined() => self.totals(&data.store)?.bytes,
            false => self.totals(&data.store)?.chunks.saturating_mul(self.grid.chunk_bytes()),
        };
        Ok(StoredVolume { bytes, packed })
    }

    fn io_bytes(&self) -> u64 {
        self.grid.chunk_bytes()
    }

    fn read_ahead(&self, data: &Arc<DatasetBytes>, env: &Arc<Environment>, at: u64, from: u64, turn: &Arc<dyn BackgroundTurn>) -> u64 {
        read_ahead::read_ahead(self, (data, env, turn), at, from)
    }

    fn stored_chunks(&self) -> Option<&dyn StoredChunks> {
        Some(self)
    }

    fn filters(&self) -> Option<&Pipeline> {
        self.format.filters()
    }

    fn can_encode(&self) -> bool {
        self.format.can_encode()
    }

    fn definition(&self) -> Option<&dyn Definition> {
        self.knows_defined().then_some(self as &dyn Definition)
    }

    fn check_swmr(&self) -> std::result::Result<(), &'static str> {
        if !self.index.has_checksums() {
            return Err("whose chunk index has no checksums; 'h5repack -L' makes one that has");
        }
        if self.format.profile().is_some_and(|profile| !profile.is_read_by_stock()) {
            return Err("whose sparse chunks are of a profile that libhdf5 does not read without a plugin");
        }
        // A chunk would change its form while readers have the old dimensions.
        if self.format.stores_edges_differently() {
            return Err("whose partial chunks are stored without filters");
        }
        Ok(())
    }

    fn write_back(&self) -> Option<&dyn WriteBack> {
        Some(self)
    }

    fn resizes(&self) -> bool {
        true
    }

    fn past(&self, op: &Operation<'_>, limit: Address) -> Result<Option<Address>> {
        bounds::past(self, &op.data.store, op.message, limit)
    }

    fn write(&self, op: &Operation<'_>, offset: u64, bytes: &[u8], undone: bool) -> Result<Written> {
        // With tall narrow chunks, a few bytes may cross more chunks than fit in memory.
        let len = self.grid.prefix_len(offset, bytes.len(), op.dirty_budget).clamp(1, bytes.len().max(1));
        let part = bytes.get(..len).unwrap_or(bytes);
        // The first chunks, if no storage is left for the others.
        let undone = undone || part.len() < bytes.len();
        let layout = update_message(op, |message| self.writer(op, &self.extent(op)).write(message, offset, part, undone))?;
        Ok(Written { len: part.len(), layout })
    }

    fn overwrite(&self, data: &DatasetBytes, env: &Environment, offset: u64, bytes: &[u8]) -> Result<bool> {
        let pieces = self.grid.pieces(offset, bytes.len());
        let dirty = pieces.iter().map(|t| env.dirty.get(self.key(t.chunk))).collect::<Option<Vec<_>>>();
        let Some(dirty) = dirty else {
            return match pieces.as_slice() {
                [t] if env.dirty.get(self.key(t.chunk)).is_none() => self.overwrite_stored(&data.store, t, bytes),
                _ => Ok(false),
            };
        };
        for (t, chunk) in pieces.iter().zip(dirty) {
            chunk.gather(&self.grid, t, bytes)?;
        }
        Ok(true)
    }

    fn write_first(&self, op: &Operation<'_>, offset: u64, bytes: &[u8]) -> Result<Option<DataLayout>> {
        if !matches!(&op.message.class, Class::Chunked(c) if !c.index.address().is_defined()) {
            return Ok(None);
        }
        // A failed operation may have left dirty chunks.
        op.env.dirty.of(self.number).iter().for_each(|(key, _)| op.env.dirty.remove(*key));
        update_message(op, |message| self.writer(op, &self.extent(op)).store_first(message, offset, bytes).map(|()| true))
    }

    fn resizes_all(&self) -> bool {
        true
    }

    fn takes_maximum(&self, op: &Operation<'_>, max: &[Option<u64>], message: &DataLayout) -> bool {
        let next = ChunkGrid { max_shape: max.to_vec(), ..self.extent(op) };
        let kind = |message: &DataLayout| match &message.class {
            Class::Chunked(chunked) => Some((message.version, chunked.chunk_dims.clone(), std::mem::discriminant(&chunked.index))),
            _ => None,
        };
        kind(message) == kind(op.message) && self.index.takes_maximum(&next)
    }

    fn resize(&self, op: &Operation<'_>, next: &[u64]) -> Result<Option<DataLayout>> {
        update_message(op, |message| self.writer(op, &self.extent(op)).prepare_extent(message, next, op.dirty_budget))
    }

    fn resized(&self, op: &Operation<'_>, old: &[u64]) -> Result<()> {
        let grid = self.extent(op);
        let writer = self.writer(op, &grid);
        writer.renumber(old)?;
        writer.fill_added_chunks(old)
    }

    fn zero(&self, op: &Operation<'_>, range: &Range<u64>, from: u64) -> Result<Option<Progress>> {
        let mut next = None;
        let layout = update_message(op, |message| {
            let step = self.writer(op, &self.extent(op)).zero(message, range, from)?;
            next = step.next;
            Ok(step.layout)
        })?;
        Ok(Some(Progress { layout, next, changed: true }))
    }

    fn allocate(&self, op: &Operation<'_>, range: &Range<u64>, from: u64) -> Result<Progress> {
        let mut next = None;
        let layout = update_message(op, |message| {
            let step = self.writer(op, &self.extent(op)).allocate(message, range, from)?;
            next = step.next;
            Ok(step.layout)
        })?;
        Ok(Progress { layout, next, changed: true })
    }

    fn extents(&self, op: &Operation<'_>, visit: &mut extent::Visit<'_>) -> Result<()> {
        Chunked::extents(self, op, visit)
    }

    fn delete(&self, op: &Operation<'_>) -> Result<()> {
        self.writer(op, &self.extent(op)).delete(&mut op.message.clone())
    }

    fn copy_unit(&self, data: &DatasetBytes, source: &DatasetBytes) -> Option<CopyUnit> {
        copy::unit((Chunked::of(&*source.layout)?, &source.fill), (self, &data.fill))
    }

    fn copy_stored(&self, op: &Operation<'_>, source: &DatasetBytes, from: u64, to: u64, units: u64) -> Result<Option<DataLayout>> {
        let alike = self.copy_unit(op.data, source).zip(Chunked::of(&*source.layout));
        let (unit, source) = alike.ok_or_else(|| Error::refused(libc::EOPNOTSUPP, "the datasets have different chunks"))?;
        let first = from.saturating_mul(unit.chunks);
        let numbers = first..first.saturating_add(units.saturating_mul(unit.chunks));
        update_message(op, |message| {
            self.writer(op, &self.extent(op)).copy_chunks(message, source, numbers, to.saturating_mul(unit.chunks))
        })
    }
}

impl Definition for Chunked {
    fn defined(&self, data: &DatasetBytes, env: &Environment, first: &[u64], end: &[u64]) -> Result<ElementSet> {
        (&self.sets(env, &data.store) as &dyn ChunkSets).elements(first, end)
    }

    fn erase(&self, op: &Operation<'_>, first: &[u64], end: &[u64], from: u64) -> Result<Progress> {
        let mut next = None;
        let layout = update_message(op, |message| {
            let (changed, rest) = self.writer(op, &self.extent(op)).erase(message, first, end, from)?;
            next = rest;
            Ok(changed)
        })?;
        Ok(Progress { layout, next, changed: true })
    }
}

impl WriteBack for Chunked {
    fn batch_len(&self, env: &Environment, chunks: &DirtyList) -> usize {
        write::batch(env, self, chunks)
    }

    fn encode(&self, env: &Environment, chunks: &DirtyList) -> Result<Vec<Encoded>> {
        write::encode(env, self, &|scaled| self.grid.is_edge(scaled), chunks)
    }

    fn flush(&self, op: &Operation<'_>, chunks: &DirtyList) -> Result<Option<DataLayout>> {
        update_message(op, |message| self.writer(op, &self.extent(op)).flush(message, chunks))
    }

    fn enter(&self, op: &Operation<'_>, chunks: &[Encoded]) -> Result<Option<DataLayout>> {
        update_message(op, |message| self.writer(op, &self.extent(op)).enter(message, chunks))
    }

    fn is_current(&self, op: &Operation<'_>, encoded: &Encoded) -> bool {
        self.writer(op, &self.extent(op)).is_current(encoded)
    }

    fn contains(&self, op: &Operation<'_>, key: ChunkKey) -> bool {
        self.extent(op).contains(&self.grid.scaled(key.chunk))
    }
}
