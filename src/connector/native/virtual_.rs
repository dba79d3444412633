//! Virtual datasets: sources opened beneath the allowed directory, kept, read through the same cache.

use super::dataset::{Dataset, Surroundings, VirtualParts};
use super::external;
use super::file::HdfFile;
use super::traverse;
use super::{NativeConnector, OpenDataset};
use crate::base::{Address, Error, Result, limits};
use crate::connector::{Connector, ObjectId, ObjectKind};
use crate::container::global_heap;
use crate::dataset::chunk::map::MapBudget;
use crate::dataset::environment::RawFiles;
use crate::dataset::storage::{Mapped, Storage};
use crate::dataset::virtual_::{Description, MissingPolicy, Source, SourceOpener, VirtualDataset};
use crate::format::message::dataspace::Dataspace;
use crate::format::virtual_mapping::VirtualMappings;
use crate::meta::Store;
use parking_lot::Mutex;
use std::cell::Cell;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, Weak};

/// Sources of one virtual dataset kept open.
const SOURCES_KEPT: usize = 4096;
/// Bytes of sources that one read may read, as a multiple of its own and beyond that.
const NESTED_FACTOR: u64 = 64;
const NESTED_SLACK: u64 = 16 << 20;
/// What a read of a source costs beside its bytes, as bytes.
const SOURCE_READ: u64 = 64;

/// What datasets of a native container need around them.
pub struct NativeSurroundings<'a> {
    /// The container.
    pub connector: &'a NativeConnector,
}

impl Surroundings for NativeSurroundings<'_> {
    fn raw_files(&self, file: &Arc<HdfFile>) -> Arc<dyn RawFiles> {
        external::raw_files(&self.connector.options.neighbours, file)
    }

    fn maps(&self) -> Arc<MapBudget> {
        self.connector.options.environment.maps.clone()
    }

    fn virtual_storage(&self, p: VirtualParts<'_>) -> Result<(Storage, Vec<u64>)> {
        let store = &p.object.file.store;
        let (heap, index) = p.heap;
        let mappings = if heap.is_defined() {
            VirtualMappings::decode(&global_heap::object(store, heap, index)?, heap, store.ctx())?
        } else {
            VirtualMappings { version: 0, entries: Vec::new() }
        };
        let description = Description {
            dims: p.space.dims.clone(),
            max_dims: p.space.max().iter().map(|m| m.unwrap_or(u64::MAX)).collect(),
            datatype: p.datatype.to_bytes(),
            element_size: p.datatype.element_size(),
            fill: p.fill.element().to_vec(),
        };
        let dataset = VirtualDataset::new(&mappings, description)?;
        let opener = Opener {
            connector: self.connector.this.clone(),
            file: p.object.file.clone(),
            depth: p.depth.saturating_add(1),
            opened: Mutex::default(),
        };
        let shape = dataset.extent(&opener)?;
        let mapped = VirtualStorage { dataset, shape: shape.clone(), opener, missing: self.connector.options.missing };
        Ok((Storage::Virtual(Box::new(mapped)), shape))
    }
}

struct VirtualStorage {
    dataset: VirtualDataset,
    shape: Vec<u64>,
    opener: Opener,
    missing: MissingPolicy,
}

thread_local! {
    /// Virtual datasets around the one that this thread reads, and bytes it may still read of them.
    static READING: Cell<(usize, u64)> = const { Cell::new((0, 0)) };
}

/// A read of a virtual dataset: in a hostile file it is its own source, or many times the same one's.
struct Reading;

impl Reading {
    fn enter(bytes: u64) -> Result<Reading> {
        let too_much = |what| Error::limit("virtual dataset", Address::UNDEF, what);
        let (depth, left) = READING.get();
        if depth >= limits::VIRTUAL_DEPTH_MAX {
            return Err(too_much("virtual datasets nested too deep"));
        }
        let left = if depth == 0 { bytes.saturating_mul(NESTED_FACTOR).saturating_add(NESTED_SLACK) } else { left };
        READING.set((depth.saturating_add(1), left));
        Ok(Reading)
    }

    /// Counts bytes read of a source.
    fn spend(bytes: u64) -> Result<()> {
        let (depth, left) = READING.get();
        if depth > 0 {
            let too_much = || Error::limit("virtual dataset", Address::UNDEF, "too many bytes of its sources for one read");
            READING.set((depth, left.checked_sub(bytes).ok_or_else(too_much)?));
        }
        Ok(())
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        let (depth, left) = READING.get();
        READING.set((depth.saturating_sub(1), left));
    }
}

impl Mapped for VirtualStorage {
    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        let _reading = Reading::enter(buf.len() as u64)?;
        self.dataset.read(&self.opener, &self.shape, offset, buf, self.missing)
    }

    fn variable(&self, elements: Range<u64>, visit: &mut dyn FnMut(u64, &[u8], &Arc<Store>) -> Result<()>) -> Result<()> {
        let size = self.dataset.element_size();
        let len = usize::try_from(size).unwrap_or(usize::MAX);
        self.dataset.segments(&self.opener, &self.shape, elements, self.missing, &mut |source, segment| {
            let heap = source.heap().filter(|_| source.element_size() == size);
            let heap = heap.ok_or_else(|| {
                Error::unsupported(
                    "virtual dataset",
                    self.opener.file.root,
                    "variable-length elements of a virtual source or of another type",
                )
            })?;
            for i in 0..segment.len {
                let mut element = vec![0; len];
                source.read(segment.source_element.saturating_add(i).saturating_mul(size), &mut element)?;
                visit(segment.virtual_element.saturating_add(i), &element, &heap)?;
            }
            Ok(())
        })
    }
}

type Name = (Vec<u8>, Vec<u8>);

/// Opens and keeps the sources of one virtual dataset while the container stays as it is. What is missing is looked for again.
struct Opener {
    connector: Weak<NativeConnector>,
    file: Arc<HdfFile>,
    depth: usize,
    opened: Mutex<Sources>,
}

/// Sources by their names, of one state of the container.
#[derive(Default)]
struct Sources {
    generation: u64,
    by_name: HashMap<Name, Arc<dyn Source>>,
}

impl Sources {
    fn of(&mut self, generation: u64) -> &mut HashMap<Name, Arc<dyn Source>> {
        if self.generation != generation {
            *self = Sources { generation, ..Sources::default() };
        }
        &mut self.by_name
    }
}

impl SourceOpener for Opener {
    fn open(&self, file: &[u8], dataset: &[u8]) -> Result<Option<Arc<dyn Source>>> {
        let name = (file.to_vec(), dataset.to_vec());
        let Some(connector) = self.connector.upgrade() else { return Ok(None) };
        let generation = connector.generation();
        if let Some(s) = self.opened.lock().of(generation).get(&name) {
            return Ok(Some(s.clone()));
        }
        let Some(id) = self.find(&connector, file, dataset)? else { return Ok(None) };
        let dataset = connector.dataset_at(id, self.depth)?;
        let source: Arc<dyn Source> = Arc::new(DatasetSource { dataset, environment: connector.environment() });
        let mut kept = self.opened.lock();
        let opened = kept.of(generation);
        if opened.len() >= SOURCES_KEPT {
            opened.clear();
        }
        opened.insert(name, source.clone());
        Ok(Some(source))
    }
}

impl Opener {
    fn find(&self, connector: &NativeConnector, file: &[u8], dataset: &[u8]) -> Result<Option<ObjectId>> {
        let target = if file == b"." {
            self.file.clone()
        } else {
            match connector.neighbour(&self.file, file, "virtual dataset source") {
                Ok(f) => f,
                Err(Error::Missing { reason, .. }) => {
                    tracing::debug!("source file {:?}: {reason}", String::from_utf8_lossy(file));
                    return Ok(None);
                }
                Err(e) => return Err(e),
            }
        };
        let root = ObjectId { file: target.index, address: target.root };
        let id = traverse::path(connector, root, dataset, &mut 0)?;
        Ok(id.filter(|id| connector.info(*id).is_ok_and(|i| i.kind == ObjectKind::Dataset)))
    }
}

struct DatasetSource {
    dataset: Arc<OpenDataset>,
    environment: Arc<crate::dataset::environment::Environment>,
}

impl DatasetSource {
    fn inner(&self) -> &Dataset {
        &self.dataset.dataset
    }
}

impl Source for DatasetSource {
    fn shape(&self) -> Vec<u64> {
        let Dataspace { dims, .. } = &self.inner().space;
        dims.clone()
    }

    fn element_size(&self) -> u64 {
        self.inner().element_size
    }

    fn datatype_bytes(&self) -> Vec<u8> {
        self.inner().datatype.to_bytes()
    }

    fn heap(&self) -> Option<Arc<Store>> {
        let bytes = &self.inner().bytes;
        (!matches!(bytes.storage, Storage::Virtual(_))).then(|| bytes.store.clone())
    }

    fn read(&self, byte_offset: u64, buf: &mut [u8]) -> Result<()> {
        Reading::spend((buf.len() as u64).saturating_add(SOURCE_READ))?;
        let n = self.inner().bytes.read(&self.environment, byte_offset, buf)?;
        if n == buf.len() {
            Ok(())
        } else {
            Err(Error::corrupt("virtual dataset source", self.inner().object.header.address, "it is shorter than its extent"))
        }
    }
}
