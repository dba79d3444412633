//! Virtual layout: the elements are in other datasets.

use super::dataset::{Description as Stored, SourceOpener, VirtualDataset};
use super::read::MissingPolicy;
use super::write::NewBytes;
use crate::base::storage_class::StorageClass;
use crate::base::{Address, Error, Result};
use crate::dataset::creation::NewLayout;
use crate::dataset::elsewhere::{Elsewhere, decoded};
use crate::dataset::environment::Environment;
use crate::dataset::layout::contiguous;
use crate::dataset::layout::parts::Parts;
use crate::dataset::layout::source_reads::{LongReads, SourceBytes, SourceReads};
use crate::dataset::layout::traits::{DatasetBytes, Description, Front, Layout, Mapped, Operation, Progress, PutSource, Written};
use crate::format::message::data_layout::Layout as Class;
use crate::format::virtual_mapping::VirtualMappings;
use crate::meta::{Store, extent};
use crate::structures::global_heap;
use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

/// A virtual dataset with the opener of its sources.
struct Virtual {
    header: Address,
    /// Where the mappings are stored: collection and index.
    stored: (Address, u32),
    dataset: VirtualDataset,
    shape: Vec<u64>,
    sources: Box<dyn SourceOpener + Send + Sync>,
    missing: MissingPolicy,
}

/// Name of the layout.
pub(in crate::dataset::layout) const NAME: &str = "virtual";

/// The mappings in the object `index` of the collection `heap`.
fn mappings(store: &Store, heap: Address, index: u32) -> Result<VirtualMappings> {
    match heap.is_defined() {
        true => VirtualMappings::decode(&global_heap::object(store, heap, index)?, heap, store.ctx()),
        false => Ok(VirtualMappings { version: 0, entries: Vec::new() }),
    }
}

/// Opens the layout if the message is of this class. Sets unlimited dimensions from the sources.
pub(in crate::dataset::layout) fn open(parts: &mut Parts<'_>) -> Result<Option<Box<dyn Layout>>> {
    let Class::Virtual { heap, index } = parts.message.class else { return Ok(None) };
    let store = parts.store;
    let mappings = mappings(store, heap, index)?;
    let description = Stored {
        dims: parts.space.dims.clone(),
        max_dims: parts.space.max().iter().map(|m| m.unwrap_or(u64::MAX)).collect(),
        datatype: parts.datatype.to_bytes(),
        element_size: parts.datatype.element_size(),
        fill: parts.fill.element().to_vec(),
    };
    let dataset = VirtualDataset::new(&mappings, description)?;
    let sources = parts.surroundings.sources();
    let shape = dataset.extent(&*sources)?;
    parts.space.dims.clone_from(&shape);
    Ok(Some(Box::new(Virtual {
        header: parts.header,
        stored: (heap, index),
        dataset,
        shape,
        sources,
        missing: parts.surroundings.missing(),
    })))
}

impl Layout for Virtual {
    fn name(&self) -> &'static str {
        NAME
    }

    fn class(&self) -> StorageClass {
        StorageClass::Virtual
    }

    fn describe(&self, _data: &DatasetBytes) -> Description {
        Description::default()
    }

    fn for_copy(&self) -> NewLayout {
        contiguous::new()
    }

    fn read(&self, data: &DatasetBytes, env: &Environment, offset: u64, buf: &mut [u8]) -> Result<()> {
        let bytes = SourceBytes::of_read(buf.len() as u64);
        self.read_as_source(data, env, SourceReads::new(&bytes), offset, buf)
    }

    fn read_front<'a>(&'a self, data: &'a DatasetBytes, env: &'a Environment, offset: u64, buf: &mut [u8]) -> Result<Front<'a>> {
        let (bytes, long) = (SourceBytes::of_read(buf.len() as u64), LongReads::default());
        self.read_as_source(data, env, SourceReads::new(&bytes).deferring(&long), offset, buf)?;
        let parts = long.into_parts();
        Ok(match parts.is_empty() {
            true => Front::Read(buf.len()),
            false => Front::Deferred(Box::new(move || self.sources.warm(&parts))),
        })
    }

    fn read_as_source(&self, _: &DatasetBytes, _: &Environment, reads: SourceReads<'_>, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.dataset.read(&*self.sources, reads.nested()?, &self.shape, offset, buf, self.missing)
    }

    fn allocated(&self, _data: &DatasetBytes, _env: &Environment) -> Result<u64> {
        Ok(0)
    }

    fn mapped(&self) -> Option<&dyn Mapped> {
        Some(self)
    }

    fn is_in_file(&self) -> bool {
        false
    }

    fn write(&self, _op: &Operation<'_>, _offset: u64, _bytes: &[u8], _undone: bool) -> Result<Written> {
        Err(Error::refused(libc::EPERM, "a virtual dataset is written through its sources"))
    }

    fn extents(&self, op: &Operation<'_>, visit: &mut extent::Visit<'_>) -> Result<()> {
        match op.message.class {
            Class::Virtual { heap, .. } if heap.is_defined() => visit(global_heap::extent(&op.data.store, heap)?),
            _ => Ok(()),
        }
    }

    fn elsewhere(&self, data: &DatasetBytes) -> Result<Option<Elsewhere>> {
        let (heap, index) = self.stored;
        Ok(Some(Elsewhere::Datasets(decoded(mappings(&data.store, heap, index)?))))
    }

    fn allocate(&self, _op: &Operation<'_>, _range: &Range<u64>, _from: u64) -> Result<Progress> {
        Err(Error::refused(libc::EOPNOTSUPP, "the dataset's elements are in other datasets: no space can be allocated"))
    }
}

impl Virtual {
    /// The bytes `bytes` from `offset` on with the elements that they are a part of, which are read
    /// where a source has another type.
    fn with_elements<'b>(&self, offset: u64, bytes: &'b [u8]) -> Result<NewBytes<'b>> {
        let (size, len) = (self.dataset.element_size().max(1), bytes.len() as u64);
        let elements = self.dataset.elements_of(offset, len);
        let start = elements.start.saturating_mul(size);
        let whole = elements.end.saturating_sub(elements.start).saturating_mul(size);
        let as_they_are = NewBytes { offset, bytes, elements: Cow::Borrowed(bytes) };
        if whole == len {
            return Ok(as_they_are);
        }
        let mut converts = false;
        self.dataset.check_covered(&*self.sources, &self.shape, elements, &mut |source, _| {
            converts |= self.dataset.converts(source)?;
            Ok(())
        })?;
        if !converts {
            return Ok(as_they_are);
        }
        // At most two elements more than `bytes`.
        let mut all = vec![0; usize::try_from(whole).unwrap_or(0)];
        let reads = SourceBytes::of_read(whole);
        self.dataset.read(&*self.sources, SourceReads::new(&reads).nested()?, &self.shape, start, &mut all, self.missing)?;
        let at = usize::try_from(offset.saturating_sub(start)).unwrap_or(usize::MAX);
        if let Some(part) = all.get_mut(at..at.saturating_add(bytes.len())) {
            part.copy_from_slice(bytes);
        }
        Ok(NewBytes { offset, bytes, elements: Cow::Owned(all) })
    }
}

impl Mapped for Virtual {
    fn sources(&self, range: Range<u64>, visit: &mut dyn FnMut((u32, Address), Range<u64>) -> Result<()>) -> Result<()> {
        let elements = self.dataset.elements_of(range.start, range.end.saturating_sub(range.start));
        self.dataset.check_covered(&*self.sources, &self.shape, elements, &mut |source, part| visit(source.place(), part))
    }

    fn write(&self, offset: u64, bytes: &[u8], put: PutSource<'_>) -> Result<()> {
        let new = self.with_elements(offset, bytes)?;
        self.dataset.write(&*self.sources, &self.shape, &new, &mut |source, at, bytes| put(source.place(), at, bytes))
    }

    fn variable(&self, elements: Range<u64>, visit: &mut dyn FnMut(u64, &[u8], &Arc<Store>) -> Result<()>) -> Result<()> {
        let size = self.dataset.element_size();
        let len = usize::try_from(size).unwrap_or(usize::MAX);
        self.dataset.segments(&*self.sources, &self.shape, elements, self.missing, &mut |source, segment| {
            let heap = source.heap().filter(|_| source.element_size() == size);
            let reason = "variable-length elements of a virtual source or of another type";
            let heap = heap.ok_or_else(|| Error::unsupported("virtual dataset", self.header, reason))?;
            let bytes = SourceBytes::of_read(segment.len.saturating_mul(size));
            for i in 0..segment.len {
                let mut element = vec![0; len];
                source.read(SourceReads::new(&bytes), segment.source_element.saturating_add(i).saturating_mul(size), &mut element)?;
                visit(segment.virtual_element.saturating_add(i), &element, &heap)?;
            }
            Ok(())
        })
    }
}
