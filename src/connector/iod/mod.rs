//! Containers in object stores as containers of the model.
//!
//! ```text
//! access    the open container        state      snapshot and uncommitted changes
//! states    what readers and writers have   derived   what is kept of states
//! dataset   metadata, chunks          content    bytes of a dataset as a file
//! write     elements of fixed size    form       elements of variable length
//! create    new objects               change     other type, shape or layout
//! names     links                     paths      from paths to objects and back
//! attribute attributes                cells      parts outside of elements
//! references, ownership               commit     one version, merged with others
//! edit      the trait `Edit`          kind       location, creation, opening
//! transaction, peer, transaction_tree  peers of one version
//! pins      kept versions            coalesce     chunks by few requests
//! versions  the trait `Versions`     diff       what differs between two versions
//! siblings  other versions           following  versions of other writers
//! beside    what both keep
//! ids       identities               chunks     datasets and chunks with caches
//! prepare, preparations  layouts made beforehand
//! external  files that links lead to   originals, original_sources  files that chunks refer to
//! types, named_types  datatypes     check, check_bytes   checks
//! properties  creation properties
//! map       maps                       listing    values from a position on
//! stored    chunks as they are stored   in_doubt, refusal  commits that fail
//! long_values  values in packs     running   threads of which few run at once
//! ```
//!
//! An object is a range of keys of `crate::iod`; its identity is its id there.

mod access;
mod attribute;
mod beside;
mod cells;
mod change;
mod check;
mod check_bytes;
#[cfg(test)]
mod check_tests;
mod chunk_reader;
mod chunks;
mod coalesce;
mod commit;
mod commits;
mod content;
#[cfg(test)]
mod contest_tests;
#[cfg(test)]
mod costs_tests;
mod create;
mod dataset;
mod decoding;
#[cfg(test)]
mod decoding_tests;
mod derived;
mod diff;
mod edit;
mod elements_of;
mod encoding;
mod extent;
mod external;
mod following;
mod form;
mod form_index;
mod forms;
#[cfg(fuzzing)]
pub mod fuzzing;
#[cfg(test)]
mod history_tests;
mod ids;
mod image;
mod in_doubt;
mod in_files;
#[cfg(test)]
mod in_files_tests;
#[cfg(test)]
mod kills_tests;
pub mod kind;
mod listing;
mod long_values;
mod map;
#[cfg(test)]
mod map_tests;
mod moves;
#[cfg(test)]
mod moves_tests;
mod named_types;
#[cfg(test)]
mod named_types_tests;
mod names;
mod object_access;
mod original_sources;
mod originals;
mod ownership;
mod paths;
mod peer;
mod pins;
mod preparations;
mod prepare;
mod properties;
#[cfg(test)]
mod readers_tests;
mod references;
mod refusal;
mod running;
mod siblings;
mod sparse;
#[cfg(test)]
mod sparse_tests;
mod state;
mod states;
mod stored;
#[cfg(test)]
mod tests;
mod transaction;
#[cfg(test)]
mod transaction_tests;
mod transaction_tree;
mod types;
mod value_chunks;
#[cfg(test)]
mod version_tests;
mod versions;
mod write;

pub use access::IodConnector;

use super::edit::Edit;
use super::{
    AttributeNames, Budget, Chunks, Connector, Content, DatasetInfo, Datatype, Follow, Form, Link, LinkFacts, ObjectId, ObjectInfo,
    ObjectKind, ObjectProperties, Ownership, Result, TargetVisitor, Value,
};
use crate::base::Error;
use crate::base::element_set::ElementSet;
use crate::base::storage_class::StorageClass;
use crate::base::value::{byte_range, list_of};
use crate::dataset::chunk::defined::ChunkSets;
use crate::format::message::{comment, times};
use crate::format::object_header::kind as message;
use crate::iod::keys;
use cells::{Cells, Place};
use dataset::Storage;
use ids::no_such;
use sparse::Sets;
use state::State;
use std::ops::ControlFlow;
use std::ops::Range;
use std::sync::Arc;

fn own(id: ObjectId) -> Result<u64> {
    State::check_id(id)
}

impl Connector for IodConnector {
    fn root(&self) -> ObjectId {
        ids::object(0)
    }

    fn changes_by_others(&self) -> u64 {
        self.states.shown().by_others()
    }

    fn end_mount(&self) {
        self.pins.release(self.joined.is_some());
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        let [requests, received, sent] = self.container.store().counters();
        let version = self.states.shown().snapshot.version();
        let mut counters = self.env.counters();
        counters.extend([
            ("store_requests", requests),
            ("store_bytes_received", received),
            ("store_bytes_sent", sent),
            ("version", version),
            ("open_trees", self.open_trees()),
        ]);
        counters
    }

    fn set_cache_bytes(&self, bytes: u64) {
        self.env.cache.set_budget(bytes);
    }

    fn info(&self, id: ObjectId) -> Result<ObjectInfo> {
        if let Some((there, id)) = self.elsewhere(id)? {
            return there.info(id);
        }
        let id = own(id)?;
        let state = self.states.shown();
        let headers = state.headers(id)?;
        let body = |message: u16| headers.get(&message).map(|cell| state.container.bytes(cell)).transpose();
        let at = crate::base::Address(id);
        let time = |message: u16| body(message)?.map(|body| times::decode(&body, at)).transpose();
        let kind = body(keys::OBJECT_TYPE)?.map_or(ObjectKind::Unknown, |body| state::kind_of(&body));
        let ownership = body(keys::OWNERSHIP)?.map_or(Ok(Ownership::default()), |body| ownership::decode(&body, id))?;
        let links = state.link_count(id)?;
        Ok(ObjectInfo { kind, links, times: [time(keys::ACCESS_TIME)?, time(message::MTIME)?, None, None], ownership })
    }

    fn link_facts(&self, group: ObjectId, name: &[u8]) -> Result<LinkFacts> {
        if let Some((there, id)) = self.elsewhere(group)? {
            return there.link_facts(id, name);
        }
        self.states.shown().link_facts(own(group)?, name)
    }

    fn lookup(&self, group: ObjectId, name: &[u8]) -> Result<Option<Link>> {
        if let Some((there, id)) = self.elsewhere(group)? {
            return Ok(there.lookup(id, name)?.map(|link| siblings::link_of(link, group.file)));
        }
        let found = paths::lookup(&self.states.shown(), own(group)?, name)?;
        Ok(found.map(|target| Link { name: name.to_vec(), target }))
    }

    fn list(&self, group: ObjectId, start: u64, f: &mut dyn FnMut(Link, u64) -> ControlFlow<()>) -> Result<()> {
        if let Some((there, id)) = self.elsewhere(group)? {
            return there.list(id, start, &mut |link, next| f(siblings::link_of(link, group.file), next));
        }
        let group = own(group)?;
        self.list_values((group, keys::LINK), start, &mut |name, cell, next| {
            let target = paths::decode_link(&self.container.bytes(cell)?, group)?;
            Ok(f(Link { name: name.to_vec(), target }, next))
        })
    }

    fn comment(&self, id: ObjectId) -> Result<Option<Vec<u8>>> {
        if let Some((there, id)) = self.elsewhere(id)? {
            return there.comment(id);
        }
        let body = self.states.shown().header(own(id)?, message::COMMENT)?;
        Ok(body.map(|body| comment::decode(&body).to_vec()).filter(|text| !text.is_empty()))
    }

    fn properties(&self, id: ObjectId) -> Result<ObjectProperties> {
        if let Some((there, id)) = self.elsewhere(id)? {
            return there.properties(id);
        }
        self.states.shown().properties(own(id)?)
    }

    fn auxiliary_objects(&self, id: ObjectId) -> Result<Option<[u64; 2]>> {
        if let Some((there, id)) = self.elsewhere(id)? {
            return there.auxiliary_objects(id);
        }
        Ok(Some(properties::auxiliary_objects(own(id)?)))
    }

    fn created_links(&self, group: ObjectId, limit: usize) -> Result<Option<Vec<Vec<u8>>>> {
        if let Some((there, id)) = self.elsewhere(group)? {
            return there.created_links(id, limit);
        }
        let names = self.states.shown().ordered_links(own(group)?)?;
        Ok(names.map(|names| names.into_iter().take(limit).collect()))
    }

    fn external(&self, from: ObjectId, file: &[u8], object: &[u8]) -> Result<Option<ObjectId>> {
        if from.file < external::FOREIGN {
            return self.follow_external(file, object);
        }
        let (there, id) = self.foreign(from)?;
        Ok(there.external(id, file, object)?.map(|found| external::shown(found, from.file)))
    }

    fn resolve(&self, start: ObjectId, path: &[u8]) -> Result<Option<ObjectId>> {
        if let Some((there, id)) = self.elsewhere(start)? {
            return Ok(there.resolve(id, path)?.map(|id| external::shown(id, start.file)));
        }
        Ok(paths::follow(&self.states.shown(), own(start)?, path, &mut 0)?.map(ids::object))
    }

    fn content(&self, id: ObjectId, form: Form) -> Result<Arc<dyn Content>> {
        if let Some((there, id)) = self.elsewhere(id)? {
            return there.content(id, form);
        }
        let number = own(id)?;
        self.objects.dataset_of(&self.states.shown(), number)?;
        Ok(Arc::new(content::IodContent::new(self.shared()?, number, form)))
    }

    fn dataset(&self, id: ObjectId) -> Result<DatasetInfo> {
        if let Some((there, id)) = self.elsewhere(id)? {
            return Connector::dataset(&*there, id);
        }
        let id = own(id)?;
        let d = self.objects.dataset_of(&self.states.shown(), id)?;
        let kind = d.new_layout().kind;
        let (class, chunks, index) = match &d.storage {
            Storage::Compact => (StorageClass::Compact, None, None),
            Storage::Contiguous => (StorageClass::Contiguous, None, None),
            Storage::Chunked(dims) => (StorageClass::Chunked, Some(dims.clone()), Some("ordered map")),
        };
        Ok(DatasetInfo {
            datatype: d.datatype.clone(),
            shape: d.space.shape(),
            fill: d.fill.fill.clone(),
            allocation_time: d.fill.allocation_time,
            usual_allocation_time: Some(kind.allocation_time()),
            fill_time: d.fill.write_time,
            layout: kind.name(),
            class,
            copy_layout: Some(kind.name()),
            profile: kind.profile(),
            chunks,
            index,
            filters: kind.user_filters(&d.pipeline.filters),
            stored_filters: d.pipeline.filters.clone(),
            offset: None,
            external: None,
            is_elsewhere: false,
            resizes: d.resizes(),
            is_bytes_file: d.is_bytes_file(),
            is_logged: false,
            lines: d.datatype.is_vlen_string(),
            references: references::total(&d),
            parts: Arc::new(Cells { states: self.states.clone(), objects: self.objects.clone(), place: Place::Dataset(id) }),
        })
    }

    fn newlines(&self, id: ObjectId) -> Result<Option<super::Newlines>> {
        if let Some((there, id)) = self.elsewhere(id)? {
            return Connector::newlines(&*there, id);
        }
        let (number, state) = (own(id)?, self.states.shown());
        let dataset = self.objects.dataset_of(&state, number)?;
        forms::newlines(&self.objects, &state, &dataset)
    }

    fn elements(&self, id: ObjectId) -> Result<Value> {
        if let Some((there, id)) = self.elsewhere(id)? {
            return there.elements(id);
        }
        let number = own(id)?;
        let state = self.states.shown();
        let d = self.objects.dataset_of(&state, number)?;
        let too_large = |_| Error::limit("dataset", id.address, "larger than the memory");
        let mut bytes = vec![0; usize::try_from(d.size).map_err(too_large)?];
        self.chunks.read_elements(&state, &d, 0, &mut bytes)?;
        let parts = Arc::new(Cells { states: self.states.clone(), objects: self.objects.clone(), place: Place::Dataset(number) });
        Ok(Value { datatype: d.datatype.clone(), committed: false, shape: d.space.shape(), bytes, parts })
    }

    fn elements_in(&self, id: ObjectId, elements: Range<u64>) -> Result<Value> {
        if let Some((there, id)) = self.elsewhere(id)? {
            return there.elements_in(id, elements);
        }
        let number = own(id)?;
        let state = self.states.shown();
        let d = self.objects.dataset_of(&state, number)?;
        let range = byte_range(&d.datatype, &elements)?;
        if range.end as u64 > d.size {
            return Err(Error::refused(libc::EIO, "the dataset has fewer elements than it had"));
        }
        let mut bytes = vec![0; range.len()];
        self.chunks.read_elements(&state, &d, range.start as u64, &mut bytes)?;
        let parts = Arc::new(Cells { states: self.states.clone(), objects: self.objects.clone(), place: Place::Dataset(number) });
        Ok(Value { datatype: d.datatype.clone(), committed: false, shape: list_of(&elements), bytes, parts })
    }

    fn references(&self, id: ObjectId, first: u64, budget: &mut Budget, f: &mut TargetVisitor<'_>) -> Result<()> {
        if let Some((there, id)) = self.elsewhere(id)? {
            return there.references(id, first, budget, f);
        }
        self.objects.visit_references(&self.states.shown(), own(id)?, first, budget, f)
    }

    fn defined(&self, id: ObjectId, first: &[u64], end: &[u64]) -> Result<Option<ElementSet>> {
        if let Some((there, id)) = self.elsewhere(id)? {
            return there.defined(id, first, end);
        }
        let (number, state) = (own(id)?, self.states.shown());
        let d = self.objects.dataset_of(&state, number)?;
        if !d.knows_defined() {
            return Ok(None);
        }
        (&Sets::of(&self.objects, &d, &state)? as &dyn ChunkSets).elements(first, end).map(Some)
    }

    fn chunks(&self, id: ObjectId) -> Result<Option<Arc<dyn Chunks>>> {
        if let Some((there, id)) = self.elsewhere(id)? {
            return there.chunks(id);
        }
        let number = own(id)?;
        let d = self.objects.dataset_of(&self.states.shown(), number)?;
        let Storage::Chunked(dims) = &d.storage else { return Ok(None) };
        Ok(Some(Arc::new(content::IodChunks { connector: self.shared()?, id: number, rank: dims.len() })))
    }

    fn stored(&self, id: ObjectId) -> Result<Option<Arc<dyn super::stored::StoredChunks>>> {
        if let Some((there, id)) = self.elsewhere(id)? {
            return there.stored(id);
        }
        let d = self.objects.dataset_of(&self.states.shown(), own(id)?)?;
        let chunks = stored::IodStoredChunks::of(self.shared()?, &d);
        Ok(chunks.map(|chunks| Arc::new(chunks) as Arc<dyn super::stored::StoredChunks>))
    }

    fn datatype(&self, id: ObjectId) -> Result<Datatype> {
        if let Some((there, id)) = self.elsewhere(id)? {
            return there.datatype(id);
        }
        let number = own(id)?;
        let state = self.states.shown();
        let body = state.header(number, message::DATATYPE)?.ok_or_else(|| no_such(number, "it is not a datatype"))?;
        types::decode_type(&body, number)
    }

    fn named_type(&self, id: ObjectId, attribute: Option<&[u8]>) -> Result<Option<ObjectId>> {
        if let Some((there, of)) = self.elsewhere(id)? {
            return Ok(there.named_type(of, attribute)?.map(|named| external::shown(named, id.file)));
        }
        Ok(self.states.shown().named_type(own(id)?, attribute)?.map(ids::object))
    }

    fn path_of(&self, id: ObjectId) -> Option<Vec<u8>> {
        if let Some((there, id)) = self.elsewhere(id).ok()? {
            return there.path_of(id);
        }
        paths::present_path_of(&self.derived, &self.states.shown(), id.serial())
    }

    fn attributes(&self, id: ObjectId) -> Result<AttributeNames> {
        if let Some((there, id)) = self.elsewhere(id)? {
            return there.attributes(id);
        }
        let keys = self.states.shown().keys(&keys::of_kind(own(id)?, keys::ATTRIBUTE))?;
        Ok(keys.iter().filter_map(|key| keys::parts(key)).map(|(_, _, name)| name.to_vec()).collect())
    }

    fn attribute(&self, id: ObjectId, name: &[u8]) -> Result<Option<Value>> {
        if let Some((there, id)) = self.elsewhere(id)? {
            return there.attribute(id, name);
        }
        self.attribute_of(&self.states.shown(), own(id)?, name)
    }

    fn follow(&self) -> Option<&dyn Follow> {
        self.following.get().map(|_| self as &dyn Follow)
    }

    fn maps(&self) -> Option<&dyn super::maps::Maps> {
        Some(self)
    }

    fn check(&self) -> Option<&dyn super::check::Check> {
        Some(self)
    }

    fn versions(&self) -> Option<&dyn super::versions::Versions> {
        Some(self)
    }

    fn transactions(&self) -> Option<&dyn super::transactions::Transactions> {
        // Those of a tree are those of its mount.
        (!self.joined.as_ref().is_some_and(|peer| peer.is_tree)).then_some(self)
    }

    fn edit(&self) -> Option<&dyn Edit> {
        self.writable.then_some(self)
    }
}
