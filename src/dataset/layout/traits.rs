//! The layout trait, and a dataset's bytes through its layout.
//!
//! A layout corresponds to libhdf5's `H5D_layout_ops_t`.

use super::super::environment::Environment;
use super::super::fill::FillPattern;
use crate::base::element_set::ElementSet;
pub use crate::base::seek::Seek;
use crate::base::storage_class::StorageClass;
use crate::base::{Address, Error, Result};
use crate::dataset::chunk::dirty::DirtyChunk;
use crate::dataset::chunk::encoded::Encoded;
use crate::dataset::chunk::key::ChunkKey;
use crate::dataset::creation::NewLayout;
use crate::dataset::elsewhere::{Elsewhere, Segment};
use crate::dataset::layout::source_reads::SourceReads;
use crate::filter::Pipeline;
use crate::format::message::data_layout::DataLayout;
use crate::format::message::dataspace::Dataspace;
use crate::meta::{Store, extent};
use std::any::Any;
use std::collections::BTreeSet;
use std::ops::{ControlFlow, Range};
use std::sync::Arc;

/// Preferred I/O size of a layout without chunks, bytes.
const IO_BYTES: u64 = 128 << 10;

/// The bytes of one dataset: its elements row-major in the file's own type.
pub struct DatasetBytes {
    /// Size, bytes.
    pub(crate) size: u64,
    /// Bytes of an element.
    pub(crate) element_size: u64,
    /// Value of elements that were never written.
    pub fill: FillPattern,
    /// How the bytes are stored.
    pub(crate) layout: Box<dyn Layout>,
    /// The file.
    pub(crate) store: Arc<Store>,
}

/// Runs work in the background that reads a dataset.
pub trait BackgroundTurn: Send + Sync {
    /// Runs `f` while the dataset does not change, or leaves it out.
    fn run(&self, f: &mut dyn FnMut());
}

/// The turn of a dataset that nothing changes.
pub struct AlwaysTurn;

impl BackgroundTurn for AlwaysTurn {
    fn run(&self, f: &mut dyn FnMut()) {
        f();
    }
}

/// The long work of a read, which needs no lock: decodes chunks into the caches, or has the host
/// read stored bytes into its memory. A chunk that changes meanwhile is not cached.
pub type Deferred<'a> = Box<dyn FnOnce() + 'a>;

/// What [`Layout::read_front`] did.
pub enum Front<'a> {
    /// So many bytes were read, at least one.
    Read(usize),
    /// Nothing was: this is done first.
    Deferred(Deferred<'a>),
}

/// Storage of one dataset's elements. Offsets and lengths are bytes of the dataset.
///
/// Methods that change the dataset return the new data layout message if it changed; the caller
/// stores it in the object header and opens the dataset again.
pub trait Layout: Any + Send + Sync {
    /// Name in `user.h5dir.layout`.
    fn name(&self) -> &'static str;

    /// The class of storage, whatever its name.
    fn class(&self) -> StorageClass;

    /// Facts for `user.h5dir.*`.
    fn describe(&self, data: &DatasetBytes) -> Description;

    /// The layout of a new dataset that receives a copy of the elements.
    fn for_copy(&self) -> NewLayout;

    /// Fills `buf` with the bytes from `offset`; the range lies within the dataset.
    fn read(&self, data: &DatasetBytes, env: &Environment, offset: u64, buf: &mut [u8]) -> Result<()>;

    /// [`Layout::read`] for a virtual dataset of which this one is a source.
    fn read_as_source(&self, data: &DatasetBytes, env: &Environment, _: SourceReads<'_>, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.read(data, env, offset, buf)
    }

    /// Reads the front of `buf`, for a caller with a lock that it releases for long work.
    fn read_front<'a>(&'a self, data: &'a DatasetBytes, env: &'a Environment, offset: u64, buf: &mut [u8]) -> Result<Front<'a>> {
        self.read(data, env, offset, buf).map(|()| Front::Read(buf.len()))
    }

    /// True if a read of `len` bytes from `offset` decodes chunks or waits for a disk, as far as
    /// that shows at once, and a later read does not any more.
    fn is_long_read(&self, _data: &DatasetBytes, _env: &Environment, _offset: u64, _len: usize) -> bool {
        false
    }

    /// Next byte at or after `offset` that is in the file ([`Seek::Data`]) or is not
    /// ([`Seek::Hole`]).
    fn seek_stored(&self, data: &DatasetBytes, offset: u64, what: Seek) -> Result<Option<u64>> {
        Ok(Some(if what == Seek::Data { offset } else { data.size }))
    }

    /// Next data or hole at or after `offset`; dirty bytes count as data.
    fn seek(&self, data: &DatasetBytes, _env: &Environment, offset: u64, what: Seek) -> Result<Option<u64>> {
        self.seek_stored(data, offset, what)
    }

    /// End of the zeros at `offset`, if they lie in a hole of the container file.
    fn file_hole_end(&self, _data: &DatasetBytes, _offset: u64) -> Option<u64> {
        None
    }

    /// Bytes of storage in the file, including those that dirty chunks will need.
    /// An estimate if the exact number would take long and is not known.
    fn allocated(&self, data: &DatasetBytes, env: &Environment) -> Result<u64>;

    /// Bytes of storage in the file, including those that dirty chunks will need; exact, whatever
    /// it takes.
    fn allocated_exactly(&self, data: &DatasetBytes, env: &Environment) -> Result<u64> {
        self.allocated(data, env)
    }

    /// Bytes that a copy of all stored elements reads, and whether filters may have packed them.
    fn stored_volume(&self, _data: &DatasetBytes) -> Result<StoredVolume> {
        Ok(StoredVolume { bytes: 0, packed: false })
    }

    /// Preferred I/O size, bytes.
    fn io_bytes(&self) -> u64 {
        IO_BYTES
    }

    /// Starts read-ahead for a sequential reader at `at`. Earlier calls covered bytes up to `from`.
    /// Returns the end of the covered bytes. `turn` runs what is done in the background.
    fn read_ahead(&self, _data: &Arc<DatasetBytes>, _env: &Arc<Environment>, _at: u64, from: u64, _turn: &Arc<dyn BackgroundTurn>) -> u64 {
        from
    }

    /// Access to elements that lie in other datasets, if the layout maps any.
    fn mapped(&self) -> Option<&dyn Mapped> {
        None
    }

    /// Access to the stored form of chunks, if the layout has chunks.
    fn stored_chunks(&self) -> Option<&dyn StoredChunks> {
        None
    }

    /// The filters of the elements, where they are not those of the filter pipeline message.
    fn filters(&self) -> Option<&Pipeline> {
        None
    }

    /// True if elements can be written, as far as the filter pipeline message does not decide it.
    fn can_encode(&self) -> bool {
        true
    }

    /// Which elements were written, if the layout knows that of each.
    fn definition(&self) -> Option<&dyn Definition> {
        None
    }

    /// Where the elements are in the log of records that has them, if one has.
    fn logged(&self) -> Option<&dyn Logged> {
        None
    }

    /// True if the elements are in a log of writes.
    fn is_in_log(&self) -> bool {
        self.logged().is_some()
    }

    /// Checks that SWMR readers find whole elements at any moment of a write. Error: why not.
    fn check_swmr(&self) -> std::result::Result<(), &'static str> {
        Err("which is neither chunked nor contiguous")
    }

    /// Writeback of dirty chunks, if the layout has chunks.
    fn write_back(&self) -> Option<&dyn WriteBack> {
        None
    }

    /// True if the elements are in the container file.
    fn is_in_file(&self) -> bool {
        true
    }

    /// True if the first dimension can change.
    fn resizes(&self) -> bool {
        false
    }

    /// True if all dimensions can change.
    fn resizes_all(&self) -> bool {
        false
    }

    /// Address of a block of the dataset's raw data that ends past `limit`, if there is one.
    fn past(&self, _op: &Operation<'_>, _limit: Address) -> Result<Option<Address>> {
        Ok(None)
    }

    /// Writes a prefix of `bytes` at `offset`; the range lies within the dataset. A rollback
    /// need not restore what they replace unless `undone`.
    fn write(&self, op: &Operation<'_>, offset: u64, bytes: &[u8], undone: bool) -> Result<Written>;

    /// Overwrites bytes if no structure has to change; otherwise does nothing and returns false.
    fn overwrite(&self, _data: &DatasetBytes, _env: &Environment, _offset: u64, _bytes: &[u8]) -> Result<bool> {
        Ok(false)
    }

    /// Writes the first bytes of an empty dataset, to be committed with the structures around them.
    /// `op` has the new extent. `None`: nothing was written.
    fn write_first(&self, _op: &Operation<'_>, _offset: u64, _bytes: &[u8]) -> Result<Option<DataLayout>> {
        Ok(None)
    }

    /// True if what is stored stays as it is when the maximum extent becomes `max` (`None` is
    /// unlimited) and the layout message becomes `message` but for addresses.
    fn takes_maximum(&self, _op: &Operation<'_>, _max: &[Option<u64>], _message: &DataLayout) -> bool {
        false
    }

    /// Prepares a change of the extent to `next`; the caller then stores the extent.
    fn resize(&self, _op: &Operation<'_>, _next: &[u64]) -> Result<Option<DataLayout>> {
        Err(Error::refused(libc::EPERM, "only chunked datasets can change their size"))
    }

    /// Completes a resize: `op` has the new extent, `old` is the one before.
    fn resized(&self, _op: &Operation<'_>, _old: &[u64]) -> Result<()> {
        Ok(())
    }

    /// Zeroes `range` from position `from`, for a fill value of zero, and frees chunks that become
    /// zero; makes elements undefined where the layout has a [`Definition`]. `None`: not supported,
    /// the caller writes zeros.
    fn zero(&self, _op: &Operation<'_>, _range: &Range<u64>, _from: u64) -> Result<Option<Progress>> {
        Ok(None)
    }

    /// Allocates storage for `range` from position `from`.
    fn allocate(&self, op: &Operation<'_>, range: &Range<u64>, from: u64) -> Result<Progress>;

    /// Visits the storage: all ranges of the file that the dataset has outside of its header.
    fn extents(&self, op: &Operation<'_>, visit: &mut extent::Visit<'_>) -> Result<()>;

    /// Where the elements are, if they are in other files or datasets.
    fn elsewhere(&self, _data: &DatasetBytes) -> Result<Option<Elsewhere>> {
        Ok(None)
    }

    /// Frees the storage.
    fn delete(&self, _op: &Operation<'_>) -> Result<()> {
        Ok(())
    }

    /// Units in which `source` can be copied to this dataset in stored form. `None`: it cannot.
    fn copy_unit(&self, _data: &DatasetBytes, _source: &DatasetBytes) -> Option<CopyUnit> {
        None
    }

    /// Copies `units` units of `source` from unit `from` to unit `to`, in stored form.
    fn copy_stored(&self, _op: &Operation<'_>, _source: &DatasetBytes, _from: u64, _to: u64, _units: u64) -> Result<Option<DataLayout>> {
        Err(Error::refused(libc::EOPNOTSUPP, "the layout cannot copy stored chunks"))
    }
}

/// Arguments of an operation that changes a dataset.
pub struct Operation<'a> {
    /// Caches, dirty chunks, threads.
    pub(crate) env: &'a Environment,
    /// The dataset.
    pub(crate) data: &'a DatasetBytes,
    /// The dataset's data layout message.
    pub(crate) message: &'a DataLayout,
    /// The dataset's extent; methods say where it is the new one.
    pub(crate) space: &'a Dataspace,
    /// Most bytes of dirty chunks in memory.
    pub(crate) dirty_budget: u64,
    /// K of version 1 chunk B-trees.
    pub(crate) btree_k: u16,
    /// The object header.
    pub(crate) header: Address,
}

/// Result of [`Layout::write`].
#[derive(Debug)]
pub struct Written {
    /// Bytes written, at least one.
    pub(crate) len: usize,
    /// The data layout message, if it changed.
    pub(crate) layout: Option<DataLayout>,
}

/// Result of one step over a range.
#[derive(Debug, Default)]
pub struct Progress {
    /// The data layout message, if it changed.
    pub(crate) layout: Option<DataLayout>,
    /// Position at which the next step starts; `None`: the range is done.
    pub(crate) next: Option<u64>,
    /// The step changed the dataset.
    pub(crate) changed: bool,
}

/// Facts about a layout for `user.h5dir.*`.
#[derive(Debug, Default)]
pub struct Description {
    /// Dimensions of a chunk, elements.
    pub(crate) chunk_dims: Option<Vec<u64>>,
    /// Kind of chunk index.
    pub(crate) index: Option<&'static str>,
    /// Address of the bytes, if they are in one block.
    pub(crate) address: Option<Address>,
    /// Segments of other files that contain the bytes.
    pub(crate) external: Option<Vec<Segment>>,
}

/// Cost of reading all stored elements of a dataset.
#[derive(Debug, Clone, Copy)]
pub struct StoredVolume {
    /// Bytes of the stored elements.
    pub(crate) bytes: u64,
    /// The elements may be compressed.
    pub(crate) packed: bool,
}

/// Unit in which datasets are copied in stored form: a row of chunks.
#[derive(Debug, Clone, Copy)]
pub struct CopyUnit {
    /// Bytes of the dataset in one unit.
    pub(crate) bytes: u64,
    /// Chunks in one unit.
    pub(crate) chunks: u64,
}

/// Called with the place of a source (number of the file, address of the object header) and an
/// offset of it, and what is to be written there.
pub type PutSource<'p> = &'p mut dyn FnMut((u32, Address), u64, &[u8]) -> Result<()>;

/// Access to elements that lie in other datasets.
pub trait Mapped: Send + Sync {
    /// Visits the mapped elements of `elements`: number, stored bytes, and the file whose global
    /// heap they refer to. Unmapped elements have the fill value.
    fn variable(&self, elements: Range<u64>, visit: &mut dyn FnMut(u64, &[u8], &Arc<Store>) -> Result<()>) -> Result<()>;

    /// Visits the sources of the bytes in `range`: the place of a source, and the range of its
    /// bytes. Errors: `EPERM` if an element has no source, `EOPNOTSUPP` if a source has a type
    /// without conversion, [`Error::Missing`] if a source is missing.
    fn sources(&self, range: Range<u64>, visit: &mut dyn FnMut((u32, Address), Range<u64>) -> Result<()>) -> Result<()>;

    /// Calls `put` with what each source gets of `bytes`, those of the dataset from `offset` on.
    /// Errors: `ERANGE` if a source has a type without one of the values.
    fn write(&self, offset: u64, bytes: &[u8], put: PutSource<'_>) -> Result<()>;
}

/// Access to the stored (filtered) form of chunks.
pub trait StoredChunks {
    /// Stored bytes of the chunk; `None` if it is not allocated.
    fn stored_len(&self, data: &DatasetBytes, scaled: &[u64]) -> Result<Option<u64>>;
    /// Fills the front of `buf` with stored bytes from `offset`; returns their number.
    fn read(&self, data: &DatasetBytes, scaled: &[u64], offset: u64, buf: &mut [u8]) -> Result<usize>;
    /// Visits allocated chunks from position `start` (0 = first): scaled offsets, stored bytes (0 =
    /// unknown), next position.
    fn list(&self, data: &DatasetBytes, start: u64, f: &mut dyn FnMut(&[u64], u64, u64) -> ControlFlow<()>) -> Result<()>;
    /// Where the chunk is stored; `None`: it is neither allocated nor dirty. Errors: also more
    /// bytes than a chunk can have, or bytes past the end of the file.
    fn place(&self, data: &DatasetBytes, env: &Environment, scaled: &[u64]) -> Result<Option<StoredPlace>>;
    /// The first allocated or dirty chunk at `scaled` or after it in row-major order.
    fn next(&self, data: &DatasetBytes, env: &Environment, scaled: &[u64]) -> Result<Option<Vec<u64>>>;
    /// True if stored chunks are valid in other datasets of the same filters.
    fn is_portable(&self) -> bool;
    /// False if a chunk may lie in a hole of the file: moving it would allocate storage.
    fn is_allocated_by_chunk(&self) -> bool;
    /// True if stored chunks of other datasets of the same filters are valid here.
    fn takes_portable(&self) -> bool;
    /// The allocated chunks from number `from` on with their stored bytes: about `budget` bytes,
    /// `most` chunks at most.
    fn portable(&self, data: &DatasetBytes, from: u64, budget: u64, most: usize) -> Result<Vec<PortableChunk>>;
    /// Stores the bytes of chunks.
    fn store_portable(&self, op: &Operation<'_>, chunks: &[(&[u64], u32, &[u8])]) -> Result<Option<DataLayout>>;
}

/// Where a chunk is stored.
pub struct StoredPlace {
    /// Stored bytes.
    pub(crate) len: u64,
    /// Filters that were not applied, all bits set: no filter was. `None`: the chunk is dirty.
    pub(crate) mask: Option<u32>,
    /// Where it is; undefined if it is dirty.
    pub(crate) address: Address,
}

/// A chunk in stored form.
pub struct PortableChunk {
    /// Its coordinates, in chunks.
    pub(crate) scaled: Vec<u64>,
    /// Filters that were not applied; `None`: no filter was.
    pub(crate) mask: Option<u32>,
    /// Where it is.
    pub(crate) address: Address,
    /// Stored bytes.
    pub(crate) bytes: Vec<u8>,
}

/// Which elements of a dataset were written. Blocks are `first .. end` per dimension, within the
/// extent.
pub trait Definition {
    /// The defined elements in a block.
    fn defined(&self, data: &DatasetBytes, env: &Environment, first: &[u64], end: &[u64]) -> Result<ElementSet>;
    /// Makes the elements of a block undefined, from position `from` (0 = first) on.
    fn erase(&self, op: &Operation<'_>, first: &[u64], end: &[u64], from: u64) -> Result<Progress>;
}

/// What a dataset in a log of records has there.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Measure {
    /// Bytes of written elements.
    pub written: u64,
    /// Extents of them.
    pub extents: u64,
    /// The extents lie in the log in the order of the elements.
    pub ordered: bool,
    /// Bytes that they take in log datasets, without those whose stored length is not known.
    pub stored: u64,
    /// How long some deflated records are is not known.
    pub unmeasured: bool,
    /// Numbers of the log datasets that have some.
    pub logs: BTreeSet<u32>,
}

/// A dataset in a log of records.
pub trait Logged {
    /// Its ID in the log.
    fn id(&self) -> u64;
    /// What it has there. Does not keep what is loaded for it.
    fn measure(&self) -> Result<Measure>;
    /// The next bytes of the dataset from `offset` on that are in log datasets up to number `last`:
    /// at most about `most` bytes of whole elements.
    fn next_in(&self, offset: u64, last: u32, most: u64) -> Result<Option<Range<u64>>>;
}

/// Dirty chunks with their keys.
pub type DirtyList = [(ChunkKey, Arc<DirtyChunk>)];

/// Writeback of the dirty chunks of one dataset.
pub trait WriteBack {
    /// Number of `chunks` that are encoded before they are stored, at least 1.
    fn batch_len(&self, env: &Environment, chunks: &DirtyList) -> usize;
    /// Encodes chunks in parallel. Needs no lock.
    fn encode(&self, env: &Environment, chunks: &DirtyList) -> Result<Vec<Encoded>>;
    /// Encodes chunks and stores them.
    fn flush(&self, op: &Operation<'_>, chunks: &DirtyList) -> Result<Option<DataLayout>>;
    /// Stores encoded chunks.
    fn enter(&self, op: &Operation<'_>, chunks: &[Encoded]) -> Result<Option<DataLayout>>;
    /// True if an encoded chunk is not stale.
    fn is_current(&self, op: &Operation<'_>, encoded: &Encoded) -> bool;
    /// True if the chunk lies within the extent.
    fn contains(&self, op: &Operation<'_>, key: ChunkKey) -> bool;
}

impl DatasetBytes {
    /// Fills the front of `buf` from byte `offset`; returns the bytes read, fewer than asked only
    /// at the end of the dataset.
    pub(crate) fn read(&self, env: &Environment, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let Some(buf) = self.clip(offset, buf) else { return Ok(0) };
        self.layout.read(self, env, offset, buf).map(|()| buf.len())
    }

    /// The front of `buf` that lies within the dataset when it begins at byte `offset`; `None` if
    /// empty.
    pub(crate) fn clip<'b>(&self, offset: u64, buf: &'b mut [u8]) -> Option<&'b mut [u8]> {
        let n = usize::try_from(self.size.saturating_sub(offset)).unwrap_or(usize::MAX).min(buf.len());
        buf.get_mut(..n).filter(|b| !b.is_empty())
    }

    /// The largest length up to `len` bytes that ends with an element, if there is one.
    pub(crate) fn whole_elements(&self, len: usize) -> usize {
        let rest = usize::try_from(self.element_size).ok().and_then(|size| len.checked_rem(size)).unwrap_or(0);
        len.checked_sub(rest).filter(|n| *n > 0).unwrap_or(len)
    }

    /// The ranges of `bytes`, which are those from `offset`, that are to be written: all, or those
    /// whose elements have not the fill value.
    pub(crate) fn kept(&self, bytes: &[u8], offset: u64, undefine_fill: bool) -> Vec<Range<usize>> {
        match undefine_fill {
            true => self.fill.differing(bytes, offset, self.element_size),
            false => std::iter::once(0..bytes.len()).collect(),
        }
    }

    /// End of the unwritten bytes at `offset`; `None` if the byte at `offset` was written.
    pub(crate) fn unwritten(&self, offset: u64) -> Result<Option<u64>> {
        if offset >= self.size {
            return Ok(None);
        }
        let data = self.layout.seek_stored(self, offset, Seek::Data)?.unwrap_or(self.size).min(self.size);
        Ok((data > offset).then_some(data))
    }

    /// Next data or hole at or after `offset` (< size). Only datasets with a zero fill value have
    /// holes; the end of the dataset is a hole.
    pub(crate) fn seek(&self, env: &Environment, offset: u64, what: Seek) -> Result<Option<u64>> {
        if !self.fill.is_zero() {
            return Ok(Some(if what == Seek::Data { offset } else { self.size }));
        }
        self.layout.seek(self, env, offset, what)
    }

    /// The next range at or after `offset` whose elements may have been written: those outside have
    /// the fill value, which need not be zero.
    pub(crate) fn written(&self, env: &Environment, offset: u64) -> Result<Option<Range<u64>>> {
        if offset >= self.size {
            return Ok(None);
        }
        let Some(start) = self.layout.seek(self, env, offset, Seek::Data)?.filter(|start| *start < self.size) else { return Ok(None) };
        let end = self.layout.seek(self, env, start, Seek::Hole)?.unwrap_or(self.size).min(self.size);
        Ok((start < end).then_some(start..end))
    }

    /// True if nothing was ever written.
    pub(crate) fn is_blank(&self) -> Result<bool> {
        Ok(self.size == 0 || self.unwritten(0)?.is_some_and(|end| end >= self.size))
    }
}

/// A batch of small chunks has this many bytes, but no more than this many chunks.
const SMALL_BATCH_BYTES: u64 = 1 << 20;
const SMALL_BATCH_CHUNKS: u64 = 1024;

/// Number of chunks of `bytes` bytes that are encoded before they are stored: four per thread, to
/// bound memory. More small ones: waking the threads takes longer than encoding a few of those.
pub(crate) fn batch_len(env: &Environment, bytes: u64) -> usize {
    let small = usize::try_from((SMALL_BATCH_BYTES / bytes.max(1)).min(SMALL_BATCH_CHUNKS)).unwrap_or(usize::MAX);
    env.pool.current_num_threads().max(1).saturating_mul(4).max(small)
}
