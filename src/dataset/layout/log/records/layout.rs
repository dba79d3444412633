//! The layout of a dataset in a log of records.

use super::log::RecordLog;
use super::shape::Shape;
use super::state::{DeflatedAt, Found, Member};
use crate::base::element_set::ElementSet;
use crate::base::filter_spec::FilterSpec;
use crate::base::shape::Extent;
use crate::base::storage_class::StorageClass;
use crate::base::{Address, Error, Result};
use crate::dataset::chunk::key::{CacheKey, DatasetKey};
use crate::dataset::creation::{CreateLayout, Creation, MESSAGE_MAX_BYTES, NewLayout, Records, refuse};
use crate::dataset::environment::Environment;
use crate::dataset::layout::chunked::DEFAULT_SPARSE;
use crate::dataset::layout::log::anchor::{NAME, RecordAnchor};
use crate::dataset::layout::log::definition;
use crate::dataset::layout::log::piece::{Claimed, DeflatedData, part_of};
use crate::dataset::layout::plain_reads::PlainReads;
use crate::dataset::layout::traits::{
    DatasetBytes, Deferred, Definition, Description, Front, Layout, Logged, Measure, Operation, Progress, Seek, StoredVolume, Written,
};
use crate::format::Context;
use crate::format::log::record::NAME as STRUCTURE;
use crate::format::message::data_layout::{DataLayout, Layout as Class};
use crate::meta::extent;
use std::ops::Range;
use std::sync::Arc;

/// Profiles: records as they are, deflated, and in a log of the released log VOL.
const PLAIN: &str = "plain";
const DEFLATE: &str = "deflate";
const RELEASED: &str = "released";
/// Largest element of a dataset in a log, bytes: the object header of the anchor holds one.
const ELEMENT_BYTES_MAX: u64 = MESSAGE_MAX_BYTES as u64 - 8;

/// Creates datasets in a log.
pub(in crate::dataset::layout) struct Create {
    records: Records,
}

static CREATE_PLAIN: Create = Create { records: Records::Plain };
static CREATE_DEFLATE: Create = Create { records: Records::Deflated };
static CREATE_RELEASED: Create = Create { records: Records::Released };

impl Create {
    /// Without compression.
    pub(in crate::dataset::layout) const DEFAULT: &'static Create = &CREATE_PLAIN;

    /// The one of these records.
    pub(in crate::dataset::layout) fn of(records: Records) -> &'static Create {
        match records {
            Records::Plain => &CREATE_PLAIN,
            Records::Deflated => &CREATE_DEFLATE,
            Records::Released => &CREATE_RELEASED,
        }
    }
}

impl CreateLayout for Create {
    fn name(&self) -> &'static str {
        NAME
    }

    fn profile(&self) -> Option<&'static str> {
        Some(match self.records {
            Records::Plain => PLAIN,
            Records::Deflated => DEFLATE,
            Records::Released => RELEASED,
        })
    }

    fn with_profile(&'static self, name: &str) -> Option<&'static dyn CreateLayout> {
        match name {
            PLAIN => Some(Create::of(Records::Plain)),
            DEFLATE => Some(Create::of(Records::Deflated)),
            RELEASED => Some(Create::of(Records::Released)),
            _ => None,
        }
    }

    fn grows(&self) -> bool {
        true
    }

    /// A copy knows which elements were written, too.
    fn in_any_container(&self, _filters: &[FilterSpec]) -> Option<&'static dyn CreateLayout> {
        Some(DEFAULT_SPARSE)
    }

    fn records(&self) -> Option<Records> {
        Some(self.records)
    }

    fn allocation_time(&self) -> u8 {
        1
    }

    fn check(&self, creation: &Creation) -> Result<()> {
        if creation.datatype.contains_vlen() {
            return refuse("elements of variable length in a log: their parts would be in the global heap");
        }
        if creation.datatype.element_size() > ELEMENT_BYTES_MAX {
            return refuse("elements of 64 KiB in a log");
        }
        if creation.extent == Extent::Null { refuse("a dataset without elements in a log") } else { Ok(()) }
    }

    /// That of the anchor: a scalar dataset, or in a released log one without elements.
    fn message(&self, _ctx: &Context, _superblock_version: u8, creation: &Creation) -> Result<DataLayout> {
        if self.records == Records::Released {
            return Ok(DataLayout { version: 3, class: Class::Contiguous { address: Address::UNDEF, size: Some(0), dims: Vec::new() } });
        }
        let len = usize::try_from(creation.datatype.element_size()).unwrap_or(usize::MAX);
        let data = match &creation.fill {
            crate::base::fill::Fill::Value(value) => value.clone(),
            _ => vec![0; len.min(MESSAGE_MAX_BYTES)],
        };
        Ok(DataLayout { version: 3, class: Class::Compact { data, dims: Vec::new() } })
    }
}

/// What supplies elements: pieces, and ranges that were not written.
type Supplied = (Vec<(Range<u64>, Found)>, Vec<Range<u64>>);

/// A dataset in a log of records.
struct Recorded {
    log: Arc<RecordLog>,
    member: Member,
    /// The first dimension can change.
    resizes: bool,
    key: DatasetKey,
}

/// The layout of the dataset with this anchor. `resizes`: its first dimension can change.
pub(in crate::dataset::layout::log) fn open(
    anchor: RecordAnchor,
    dims: &[u64],
    element_size: u64,
    resizes: bool,
    key: DatasetKey,
) -> Box<dyn Layout> {
    let member = Member { id: anchor.id, shape: Shape::new(dims, element_size), deflate: anchor.deflate };
    Box::new(Recorded { log: anchor.log, member, resizes, key })
}

impl Recorded {
    fn size(&self) -> u64 {
        self.member.shape.element_size.max(1)
    }

    /// Elements that have some of the bytes `range`.
    fn elements(&self, range: &Range<u64>) -> Range<u64> {
        range.start / self.size()..range.end.div_ceil(self.size())
    }

    fn bytes(&self, elements: &Range<u64>) -> Range<u64> {
        elements.start.saturating_mul(self.size())..elements.end.saturating_mul(self.size())
    }

    /// Where the record in `at` is in the caches, and bytes that it inflates to.
    fn record(&self, at: &DeflatedAt) -> (CacheKey, u64) {
        // An address is that of one record as long as the file is open: log datasets that are freed
        // are so with their cached records.
        (CacheKey::Record { dataset: self.key, record: at.address.0 }, at.elements.saturating_mul(self.size()))
    }

    /// Calls `f` with the data of a deflated record.
    fn with_deflated<T>(&self, data: &DatasetBytes, at: &DeflatedAt, f: impl FnOnce(&DeflatedData<'_>) -> T) -> T {
        let (key, size) = self.record(at);
        let corrupt = |detail: String| Error::corrupt(STRUCTURE, at.address, detail);
        let read = |from: u64, buf: &mut [u8]| data.store.read_raw(at.address.checked_add(from).unwrap_or(Address::UNDEF), buf);
        f(&DeflatedData { key, size, stored: at.left, at: at.address, read: &read, corrupt: &corrupt })
    }

    /// Reads elements of a deflated record.
    fn read_deflated(&self, data: &DatasetBytes, env: &Environment, at: &DeflatedAt, skip: u64, buf: &mut [u8]) -> Result<()> {
        let within = at.first.saturating_mul(self.size()).saturating_add(skip);
        self.with_deflated(data, at, |deflated| deflated.copy_to(env, within, buf))
    }

    /// Inflates a deflated record into the caches, without a lock; `None`: they have it, or do not
    /// keep it. A record whose space is freed meanwhile is not cached.
    fn deferred<'a>(&'a self, data: &'a DatasetBytes, env: &'a Environment, at: DeflatedAt) -> Option<Deferred<'a>> {
        let (key, size) = self.record(&at);
        Some(match DeflatedData::claim(env, key, size)? {
            Claimed::Ours(reservation) => Box::new(move || drop(reservation.finish(self.with_deflated(data, &at, |d| d.image(env))))),
            Claimed::Loading(loading) => Box::new(move || drop(loading.wait())),
            Claimed::File(place) => Box::new(move || drop(place.file(|| self.with_deflated(data, &at, |d| d.to_file(env))))),
        })
    }

    /// Copies what supplies the bytes of `buf`, which begins at byte `offset`: pieces, and ranges
    /// that were not written.
    fn copy(
        &self,
        (data, env, reads): (&DatasetBytes, &Environment, &PlainReads<'_>),
        (pieces, gaps): Supplied,
        offset: u64,
        buf: &mut [u8],
    ) -> Result<()> {
        let range = offset..offset.saturating_add(buf.len() as u64);
        let cut = |elements: &Range<u64>| {
            let bytes = self.bytes(elements);
            bytes.start.max(range.start)..bytes.end.min(range.end)
        };
        for part in gaps.iter().map(cut) {
            data.fill.fill(part.start, part_of(buf, offset, &part));
        }
        for (elements, found) in pieces {
            let part = cut(&elements);
            let skip = part.start.saturating_sub(self.bytes(&elements).start);
            let target = part_of(buf, offset, &part);
            match found {
                Found::Staged(buffer, at) => {
                    let from = usize::try_from(at.saturating_add(skip)).unwrap_or(usize::MAX);
                    let bytes = from.checked_add(target.len()).and_then(|end| buffer.get(from..end));
                    target.copy_from_slice(bytes.ok_or_else(|| Error::corrupt(STRUCTURE, data.store.superblock().root, "a short buffer"))?);
                }
                Found::Stored(address) => {
                    let at = address.checked_add(skip).ok_or_else(|| Error::corrupt(STRUCTURE, address, "ends past 2^64"))?;
                    reads.read(at, target)?;
                }
                Found::Beside(runs, offset) => {
                    let at = offset.saturating_add(skip);
                    reads.read_other(&runs.file, at, target, |target| runs.read(at, target))?;
                }
                Found::Deflated(at) => self.read_deflated(data, env, &at, skip, target)?,
            }
        }
        Ok(())
    }

    /// Stages bytes from `offset`. The elements at both ends that are written in part keep the rest
    /// of their bytes.
    fn stage(&self, data: &DatasetBytes, env: &Environment, offset: u64, bytes: &[u8]) -> Result<()> {
        let range = offset..offset.saturating_add(bytes.len() as u64);
        let elements = self.elements(&range);
        let whole = self.bytes(&elements);
        if whole == range {
            return self.log.stage(&self.member, elements.start, bytes);
        }
        let mut all = vec![0; usize::try_from(whole.end.saturating_sub(whole.start)).unwrap_or(0)];
        self.read(data, env, whole.start, &mut all)?;
        part_of(&mut all, whole.start, &range).copy_from_slice(bytes);
        self.log.stage(&self.member, elements.start, &all)
    }

    /// Makes the whole elements of `elements` unwritten.
    fn erase(&self, data: &DatasetBytes, env: &Environment, elements: Range<u64>) -> Result<()> {
        for part in self.log.shared_records(&self.member, &elements)? {
            let bytes = self.bytes(&part);
            let mut kept = vec![0; usize::try_from(bytes.end.saturating_sub(bytes.start)).unwrap_or(0)];
            self.read(data, env, bytes.start, &mut kept)?;
            self.log.stage(&self.member, part.start, &kept)?;
        }
        self.log.erase(&self.member, elements)
    }
}

impl Layout for Recorded {
    fn name(&self) -> &'static str {
        NAME
    }

    fn class(&self) -> StorageClass {
        StorageClass::Log
    }

    fn check_swmr(&self) -> std::result::Result<(), &'static str> {
        Err("whose elements are in a log, which SWMR readers do not read; 'h5dir cp' copies it into chunks")
    }

    fn describe(&self, _data: &DatasetBytes) -> Description {
        Description::default()
    }

    fn for_copy(&self) -> NewLayout {
        NewLayout { kind: Create::of(self.log.records(self.member.deflate)), chunk: Vec::new() }
    }

    fn read(&self, data: &DatasetBytes, env: &Environment, offset: u64, buf: &mut [u8]) -> Result<()> {
        let range = offset..offset.saturating_add(buf.len() as u64);
        let supplied = self.log.suppliers(&self.member, self.elements(&range))?;
        self.copy((data, env, &PlainReads::new(&data.store, false)), supplied, offset, buf)
    }

    fn read_front<'a>(&'a self, data: &'a DatasetBytes, env: &'a Environment, offset: u64, buf: &mut [u8]) -> Result<Front<'a>> {
        let range = offset..offset.saturating_add(buf.len() as u64);
        let supplied = self.log.suppliers(&self.member, self.elements(&range))?;
        let deflated = supplied.0.iter().filter_map(|(_, found)| if let Found::Deflated(at) = found { Some(**at) } else { None });
        let work: Vec<Deferred<'a>> = deflated.filter_map(|at| self.deferred(data, env, at)).collect();
        if !work.is_empty() {
            return Ok(Front::Deferred(Box::new(move || work.into_iter().for_each(|work| work()))));
        }
        let reads = PlainReads::new(&data.store, true);
        self.copy((data, env, &reads), supplied, offset, buf)?;
        Ok(reads.deferred().map_or(Front::Read(buf.len()), Front::Deferred))
    }

    fn is_long_read(&self, _data: &DatasetBytes, env: &Environment, offset: u64, len: usize) -> bool {
        let range = offset..offset.saturating_add(len as u64);
        let supplied = self.log.suppliers(&self.member, self.elements(&range));
        let is_long = |found: &Found| matches!(found, Found::Deflated(at) if DeflatedData::is_long(env, self.record(at)));
        supplied.is_ok_and(|(pieces, _)| pieces.iter().any(|(_, found)| is_long(found)))
    }

    fn seek_stored(&self, data: &DatasetBytes, offset: u64, what: Seek) -> Result<Option<u64>> {
        let found = self.log.seek(&self.member, offset / self.size(), what == Seek::Data)?;
        let at = found.map(|e| e.saturating_mul(self.size()).max(offset));
        Ok(match what {
            Seek::Data => at.filter(|at| *at < data.size),
            Seek::Hole => at.map(|at| at.min(data.size)),
        })
    }

    fn allocated(&self, _data: &DatasetBytes, _env: &Environment) -> Result<u64> {
        Ok(self.log.written(&self.member)?.saturating_mul(self.size()))
    }

    fn stored_volume(&self, data: &DatasetBytes) -> Result<StoredVolume> {
        let bytes = self.log.written(&self.member)?.saturating_mul(self.size()).min(data.size);
        Ok(StoredVolume { bytes, packed: self.member.deflate })
    }

    fn resizes(&self) -> bool {
        self.resizes
    }

    fn write(&self, op: &Operation<'_>, offset: u64, bytes: &[u8], _undone: bool) -> Result<Written> {
        self.stage(op.data, op.env, offset, bytes)?;
        Ok(Written { len: bytes.len(), layout: None })
    }

    fn overwrite(&self, data: &DatasetBytes, env: &Environment, offset: u64, bytes: &[u8]) -> Result<bool> {
        self.stage(data, env, offset, bytes).map(|()| true)
    }

    fn resize(&self, op: &Operation<'_>, next: &[u64]) -> Result<Option<DataLayout>> {
        let rows = next.first().copied().unwrap_or(0);
        let row = self.member.shape.dims.iter().skip(1).fold(1u64, |n, d| n.saturating_mul(*d));
        let end = rows.saturating_mul(row);
        if end.saturating_mul(self.size()) < op.data.size {
            self.erase(op.data, op.env, end..u64::MAX)?;
        }
        Ok(None)
    }

    fn zero(&self, op: &Operation<'_>, range: &Range<u64>, _from: u64) -> Result<Option<Progress>> {
        let size = self.size();
        let whole = range.start.div_ceil(size)..range.end / size;
        let mut edges = Vec::new();
        if whole.start >= whole.end {
            edges.push(range.clone());
        } else {
            let inner = self.bytes(&whole);
            edges.extend([range.start..inner.start, inner.end..range.end]);
            self.erase(op.data, op.env, whole)?;
        }
        for edge in edges.into_iter().filter(|e| !e.is_empty()) {
            let zeros = vec![0; usize::try_from(edge.end.saturating_sub(edge.start)).unwrap_or(0)];
            self.stage(op.data, op.env, edge.start, &zeros)?;
        }
        Ok(Some(Progress { layout: None, next: None, changed: true }))
    }

    fn allocate(&self, _op: &Operation<'_>, _range: &Range<u64>, _from: u64) -> Result<Progress> {
        Err(Error::refused(libc::EOPNOTSUPP, "space in a log is not allocated before it is written"))
    }

    /// The elements are in log datasets, which are objects of their own.
    fn extents(&self, _op: &Operation<'_>, _visit: &mut extent::Visit<'_>) -> Result<()> {
        Ok(())
    }

    fn delete(&self, _op: &Operation<'_>) -> Result<()> {
        self.log.forget(&self.member)
    }

    fn definition(&self) -> Option<&dyn Definition> {
        Some(self)
    }

    fn logged(&self) -> Option<&dyn Logged> {
        Some(self)
    }
}

impl Definition for Recorded {
    fn defined(&self, data: &DatasetBytes, _env: &Environment, first: &[u64], end: &[u64]) -> Result<ElementSet> {
        definition::defined(self, data, &self.member.shape.dims, first, end)
    }

    fn erase(&self, op: &Operation<'_>, first: &[u64], end: &[u64], _from: u64) -> Result<Progress> {
        let set = self.defined(op.data, op.env, first, end)?;
        set.for_each_run(&self.member.shape.dims, &mut |run| Recorded::erase(self, op.data, op.env, run))?;
        Ok(Progress { layout: None, next: None, changed: !set.is_empty() })
    }
}

impl Logged for Recorded {
    fn id(&self) -> u64 {
        self.member.id
    }

    fn measure(&self) -> Result<Measure> {
        self.log.measure(&self.member)
    }

    fn next_in(&self, offset: u64, last: u32, most: u64) -> Result<Option<Range<u64>>> {
        let elements = self.log.next_in(&self.member, offset.div_ceil(self.size()), last, (most / self.size()).max(1))?;
        Ok(elements.map(|elements| self.bytes(&elements)))
    }
}
