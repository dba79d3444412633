//! Virtual datasets: sources opened beneath the allowed directory, kept, read through the same
//! cache.

use super::NativeConnector;
use super::access::Access;
use super::dataset::Dataset;
use super::external;
use super::file::HdfFile;
use super::object::Object;
use crate::base::io_pieces::pieces;
use crate::base::limits::IO_PIECE_BYTES;
use crate::base::locks::Mutex;
use crate::base::{Address, Error, Result};
use crate::connector::{ObjectId, ObjectKind};
use crate::dataset::environment::{Environment, RawFiles};
use crate::dataset::layout::virtual_::{MissingPolicy, Source, SourceOpener};
use crate::dataset::layout::{Anchor, SourcePart, SourceReads, Surroundings};
use crate::format::message::dataspace::Dataspace;
use crate::meta::Store;
use std::borrow::Cow;
use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::{Arc, Weak};

/// Sources of one virtual dataset kept open.
const SOURCES_KEPT: usize = 4096;
/// Files with sources, in errors.
pub(super) const SOURCE_FILE: &str = "source file of a virtual dataset";
/// What a read of a source costs beside its bytes, as bytes.
const SOURCE_READ: u64 = 64;

/// What the layouts of datasets need from a native container.
pub struct NativeSurroundings<'a> {
    /// Reads the container while the layout is opened.
    pub access: &'a Access<'a>,
    /// The dataset's object.
    pub object: Object,
    /// Virtual datasets on the way to this one.
    pub depth: usize,
}

impl Surroundings for NativeSurroundings<'_> {
    fn message(&self, kind: u16) -> Result<Option<Vec<u8>>> {
        Ok(self.object.message(kind)?.map(Cow::into_owned))
    }

    fn raw_files(&self) -> Arc<dyn RawFiles> {
        external::raw_files(&self.access.connector.options.neighbours, &self.object.file)
    }

    fn sources(&self) -> Box<dyn SourceOpener + Send + Sync> {
        Box::new(Opener {
            connector: self.access.connector.this.clone(),
            file: self.object.file.clone(),
            depth: self.depth.saturating_add(1),
            opened: Mutex::default(),
        })
    }

    fn anchor(&self) -> Result<Option<Anchor>> {
        self.access.anchor_of(&self.object)
    }

    fn missing(&self) -> MissingPolicy {
        self.access.connector.options.missing
    }
}

type Name = (Vec<u8>, Vec<u8>);

/// Opens and keeps the sources of one virtual dataset while the container stays as it is. What is
/// missing is looked for again.
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
        let access = Access::of_caller(&connector);
        let Some(id) = self.find(&access, file, dataset)? else { return Ok(None) };
        let source = match connector.other_files().source_elsewhere(id) {
            Some(source) => source?,
            None => {
                let dataset = access.dataset_at(id, self.depth)?.dataset.clone();
                Arc::new(DatasetSource { dataset, environment: connector.environment() })
            }
        };
        let mut kept = self.opened.lock();
        let opened = kept.of(generation);
        if opened.len() >= SOURCES_KEPT {
            opened.clear();
        }
        opened.insert(name, source.clone());
        Ok(Some(source))
    }

    fn warm(&self, parts: &[SourcePart]) {
        let Some(connector) = self.connector.upgrade() else { return };
        let mut buffer = vec![0; IO_PIECE_BYTES];
        for ((file, address), range) in parts {
            let id = ObjectId { file: *file, address: *address };
            for (at, len) in pieces(range.clone()) {
                let part = buffer.get_mut(..len).unwrap_or_default();
                let read = connector.reading(id, &mut |d, reader| {
                    let Some(part) = d.bytes.clip(at, part) else { return Ok(ControlFlow::Break(())) };
                    Ok(reader.fill(&d.bytes, at, part)?.map_or(ControlFlow::Break(()), ControlFlow::Continue))
                });
                if let Err(e) = read {
                    tracing::debug!("a source of a virtual dataset: {e}");
                    break;
                }
            }
        }
    }

    fn missing(&self, file: &[u8], dataset: &[u8]) -> Error {
        let opened = self.connector.upgrade().filter(|_| file != b".").map(|c| c.neighbour(&self.file, file, SOURCE_FILE));
        if let Some(Err(e @ Error::Missing { .. })) = opened {
            return e;
        }
        let name = format!("{}:{}", String::from_utf8_lossy(file), String::from_utf8_lossy(dataset));
        Error::Missing { what: "virtual dataset source", name, reason: "the file has no such dataset".into() }
    }
}

impl Opener {
    fn find(&self, access: &Access<'_>, file: &[u8], dataset: &[u8]) -> Result<Option<ObjectId>> {
        let target = if file == b"." {
            self.file.clone()
        } else {
            match access.connector.neighbour(&self.file, file, "virtual dataset source") {
                Ok(f) => f,
                Err(Error::Missing { reason, .. }) => {
                    tracing::debug!("source file {:?}: {reason}", String::from_utf8_lossy(file));
                    return Ok(None);
                }
                Err(e) => return Err(e),
            }
        };
        let root = ObjectId { file: target.index, address: target.root };
        let id = access.follow_path(root, dataset, &mut 0)?;
        Ok(id.filter(|id| access.info(*id).is_ok_and(|i| i.kind == ObjectKind::Dataset)))
    }
}

/// Fills `buf` with bytes of `dataset` from `byte_offset` on, as those of the source at `place`; if
/// that is long and `reads` are not, notes it instead.
pub(super) fn read_source(
    (place, dataset): ((u32, Address), &Dataset),
    env: &Environment,
    reads: SourceReads<'_>,
    byte_offset: u64,
    buf: &mut [u8],
) -> Result<()> {
    reads.spend((buf.len() as u64).saturating_add(SOURCE_READ))?;
    let bytes = &dataset.bytes;
    if buf.len() as u64 > bytes.size.saturating_sub(byte_offset) {
        let header = dataset.object.header.address;
        return Err(Error::corrupt("virtual dataset source", header, "it is shorter than its extent"));
    }
    let part = (place, byte_offset..byte_offset.saturating_add(buf.len() as u64));
    if reads.defers(part, || bytes.layout.is_long_read(bytes, env, byte_offset, buf.len())) {
        return Ok(());
    }
    bytes.layout.read_as_source(bytes, env, reads, byte_offset, buf)
}

struct DatasetSource {
    dataset: Arc<Dataset>,
    environment: Arc<Environment>,
}

impl DatasetSource {
    fn inner(&self) -> &Dataset {
        &self.dataset
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

    fn place(&self) -> (u32, Address) {
        let ObjectId { file, address } = self.inner().id;
        (file, address)
    }

    fn heap(&self) -> Option<Arc<Store>> {
        let bytes = &self.inner().bytes;
        bytes.layout.mapped().is_none().then(|| bytes.store.clone())
    }

    fn read(&self, reads: SourceReads<'_>, byte_offset: u64, buf: &mut [u8]) -> Result<()> {
        read_source((self.place(), self.inner()), &self.environment, reads, byte_offset, buf)
    }
}
