//! A container in memory: the reference model that the file system is tested against.
//!
//! It does directly what [`Connector`] and [`super::edit::Edit`] say, with maps and vectors, so
//! that a difference between it and the native connector is a fault of one of them.

use super::edit::Edit;
use super::maps::Maps;
use super::memory_map::MemoryMap;
use super::memory_value::{Kept, MemoryValue};
use super::{
    AttributeNames, Budget, Chunks, Connector, Content, DatasetInfo, Datatype, Fill, Form, Link, LinkFacts, LinkTarget, LinkText, ObjectId,
    ObjectInfo, ObjectKind, Ownership, Result, Shape, TargetVisitor, Value,
};
use crate::base::locks::RwLock;
use crate::base::storage_class::StorageClass;
use crate::base::value::{byte_range, list_of};
use crate::base::{Address, Error, limits};
use crate::dataset::layout::Seek;
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::ops::Range;
use std::sync::Arc;

/// An object of the model.
#[derive(Debug, Clone, Default)]
pub struct MemoryObject {
    /// Links, if it is a group.
    pub links: Option<BTreeMap<Vec<u8>, LinkTarget>>,
    /// Texts of its soft links, by link name.
    pub texts: BTreeMap<Vec<u8>, LinkText>,
    /// Bytes, if it is a dataset.
    pub bytes: Option<Vec<u8>>,
    /// Types and pairs, if it is a map.
    pub map: Option<MemoryMap>,
    /// How a dataset grows; `None` = it does not.
    pub rows: Option<Rows>,
    /// Extent and maximum extent, elements, where they are more than `rows` has.
    pub grid: Option<Grid>,
    /// One element that rows hold when they are added; none = zeros.
    pub fill: Vec<u8>,
    /// Type of the elements, which has no parts outside them; none = bytes.
    pub datatype: Option<Datatype>,
    /// Attributes by name.
    pub attributes: BTreeMap<Vec<u8>, MemoryValue>,
    /// Modification time, if the object records one.
    pub mtime: Option<u32>,
    /// Owner, group and mode.
    pub ownership: Ownership,
}

impl MemoryObject {
    /// Type of the elements.
    pub(super) fn element_type(&self) -> Datatype {
        self.datatype.clone().unwrap_or_else(Datatype::byte)
    }

    /// What the dataset is, if it is one.
    fn info(&self) -> Option<DatasetInfo> {
        let len = self.bytes.as_ref()?.len() as u64;
        let datatype = self.element_type();
        let elements = |bytes: u64| bytes.checked_div(datatype.element_size()).unwrap_or(0);
        let shape = match self.rows {
            _ if self.grid.is_some() => self.grid.clone().map(|Grid { dims, max }| match dims.is_empty() {
                true => Shape::Scalar,
                false => Shape::Simple { dims, max: Some(max) },
            })?,
            None => Shape::Simple { dims: vec![elements(len)], max: None },
            Some(Rows { bytes, max }) => {
                // Rows of one element have one dimension.
                let row = Some(elements(bytes)).filter(|n| *n > 1);
                let dims = |first: u64| [Some(first), row].into_iter().flatten().collect();
                Shape::Simple { dims: dims(len.checked_div(bytes).unwrap_or(0)), max: Some(dims(max.unwrap_or(u64::MAX))) }
            }
        };
        Some(DatasetInfo {
            fill: if self.fill.is_empty() { Fill::Default } else { Fill::Value(self.fill.clone()) },
            allocation_time: 2,
            usual_allocation_time: None,
            fill_time: 2,
            layout: "contiguous",
            class: StorageClass::Contiguous,
            copy_layout: None,
            profile: None,
            chunks: None,
            index: None,
            filters: Vec::new(),
            stored_filters: Vec::new(),
            offset: None,
            external: None,
            is_elsewhere: false,
            resizes: self.rows.is_some(),
            is_logged: false,
            is_bytes_file: self.datatype.is_none() && self.fill.is_empty() && matches!(self.rows, Some(Rows { bytes: 1, max: None })),
            lines: false,
            references: None,
            parts: Arc::new(Kept::default()),
            datatype,
            shape,
        })
    }
}

/// The first dimension of a dataset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rows {
    /// Size of one row, bytes, not 0.
    pub bytes: u64,
    /// Most rows; `None` = any number.
    pub max: Option<u64>,
}

/// The dimensions of a dataset.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grid {
    /// Extent, elements.
    pub dims: Vec<u64>,
    /// Maximum extent, elements; `u64::MAX` = any.
    pub max: Vec<u64>,
}

/// All there is.
#[derive(Debug, Default)]
pub(super) struct State {
    /// Objects by number.
    pub objects: BTreeMap<u64, MemoryObject>,
    /// How often an object is held.
    pub held: BTreeMap<u64, u64>,
    /// Commits so far.
    pub commits: u64,
    /// [`Edit::close`] was called.
    pub closed: bool,
}

/// A container of objects by number; number 0 is the root group.
pub struct MemoryConnector {
    pub(super) state: RwLock<State>,
    writable: bool,
}

impl MemoryConnector {
    /// A container of `objects` that cannot be changed; the first must be a group.
    pub fn new(objects: Vec<MemoryObject>) -> Result<Self> {
        let state = State { objects: (0..).zip(objects).collect(), ..State::default() };
        Ok(MemoryConnector { state: RwLock::new(state), writable: false })
    }

    /// The same, but it can be changed.
    pub fn writable(objects: Vec<MemoryObject>) -> Result<Self> {
        Ok(MemoryConnector { writable: true, ..Self::new(objects)? })
    }

    /// The same container, opened again.
    #[must_use]
    pub fn reopened(&self) -> Self {
        let state = State { objects: self.state.read().objects.clone(), ..State::default() };
        MemoryConnector { state: RwLock::new(state), writable: self.writable }
    }

    /// The identity of object `number`.
    pub fn id(number: u64) -> ObjectId {
        ObjectId { file: 0, address: Address(number) }
    }

    /// Objects there are, also those without names that are held.
    pub fn len(&self) -> usize {
        self.state.read().objects.len()
    }

    /// True when there is not even a root.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Commits so far, and whether the container was closed.
    pub fn commits(&self) -> (u64, bool) {
        let state = self.state.read();
        (state.commits, state.closed)
    }

    pub(super) fn with<T>(&self, id: ObjectId, f: impl FnOnce(&MemoryObject) -> T) -> Result<T> {
        self.state.read().object(id).map(f)
    }
}

impl State {
    /// The object `id`.
    pub fn object(&self, id: ObjectId) -> Result<&MemoryObject> {
        let object = self.objects.get(&id.address.0).filter(|_| id.file == 0);
        object.ok_or_else(|| Error::corrupt("object", id.address, "there is no such object"))
    }

    /// Links of the group `id`; a map has none.
    pub fn links(&self, id: ObjectId) -> Result<&BTreeMap<Vec<u8>, LinkTarget>> {
        static NONE: BTreeMap<Vec<u8>, LinkTarget> = BTreeMap::new();
        let object = self.object(id)?;
        let none = object.map.as_ref().map(|_| &NONE);
        object.links.as_ref().or(none).ok_or_else(|| Error::corrupt("object", id.address, "it is not a group"))
    }

    /// Hard links to `id`.
    pub fn names_of(&self, id: ObjectId) -> usize {
        let to_it = |o: &MemoryObject| o.links.iter().flatten().filter(|(_, t)| **t == LinkTarget::Hard(id)).count();
        self.objects.values().map(to_it).sum()
    }

    fn follow(&self, start: ObjectId, path: &[u8], hops: usize) -> Result<Option<ObjectId>> {
        if hops > limits::LINK_HOPS_MAX {
            return Err(Error::limit("link", start.address, "too many links followed"));
        }
        let mut at = if path.first() == Some(&b'/') { MemoryConnector::id(0) } else { start };
        for name in path.split(|b| *b == b'/').filter(|c| !c.is_empty() && *c != b".") {
            let Some(target) = self.object(at)?.links.as_ref().and_then(|l| l.get(name)) else { return Ok(None) };
            let next = match target {
                LinkTarget::Hard(id) => Some(*id),
                LinkTarget::Soft(path) => self.follow(at, path, hops.saturating_add(1))?,
                LinkTarget::External { .. } | LinkTarget::UserDefined(_) => None,
            };
            let Some(next) = next else { return Ok(None) };
            at = next;
        }
        Ok(Some(at))
    }
}

struct MemoryContent(Vec<u8>);

impl Content for MemoryContent {
    fn size(&self) -> Result<u64> {
        Ok(self.0.len() as u64)
    }

    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let rest = usize::try_from(offset).ok().and_then(|o| self.0.get(o..)).unwrap_or_default();
        let n = rest.len().min(buf.len());
        for (to, from) in buf.iter_mut().zip(rest) {
            *to = *from;
        }
        Ok(n)
    }

    fn allocated(&self) -> Result<u64> {
        self.size()
    }

    fn block_size(&self) -> u32 {
        4096
    }

    fn seek(&self, offset: u64, what: Seek) -> Result<Option<u64>> {
        Ok(Some(if what == Seek::Data { offset } else { self.0.len() as u64 }))
    }

    fn read_ahead(&self, _at: u64, from: u64) -> u64 {
        from
    }
}

impl Connector for MemoryConnector {
    fn root(&self) -> ObjectId {
        Self::id(0)
    }

    fn link_facts(&self, group: ObjectId, name: &[u8]) -> Result<LinkFacts> {
        let text = self.state.read().object(group)?.texts.get(name).cloned();
        Ok(LinkFacts { text, ..LinkFacts::default() })
    }

    fn info(&self, id: ObjectId) -> Result<ObjectInfo> {
        let state = self.state.read();
        let object = state.object(id)?;
        let kind = match (&object.links, &object.bytes) {
            (Some(_), _) => ObjectKind::Group,
            (None, Some(_)) => ObjectKind::Dataset,
            (None, None) if object.map.is_some() => ObjectKind::Map,
            (None, None) => ObjectKind::Unknown,
        };
        let links = u32::try_from(state.names_of(id)).unwrap_or(u32::MAX);
        Ok(ObjectInfo { kind, links, times: [None, object.mtime, None, None], ownership: object.ownership })
    }

    fn lookup(&self, group: ObjectId, name: &[u8]) -> Result<Option<Link>> {
        Ok(self.state.read().links(group)?.get(name).map(|t| Link { name: name.to_vec(), target: t.clone() }))
    }

    fn list(&self, group: ObjectId, start: u64, f: &mut dyn FnMut(Link, u64) -> ControlFlow<()>) -> Result<()> {
        // A copy: what `f` does may ask for other things.
        let links = self.state.read().links(group)?.clone();
        for (next, (name, target)) in (1u64..).zip(links).filter(|(i, _)| *i > start) {
            if f(Link { name, target }, next).is_break() {
                break;
            }
        }
        Ok(())
    }

    fn external(&self, _from: ObjectId, _file: &[u8], _object: &[u8]) -> Result<Option<ObjectId>> {
        Ok(None)
    }

    fn resolve(&self, start: ObjectId, path: &[u8]) -> Result<Option<ObjectId>> {
        self.state.read().follow(start, path, 0)
    }

    fn content(&self, id: ObjectId, _form: Form) -> Result<Arc<dyn Content>> {
        let bytes = self.with(id, |o| o.bytes.clone())?;
        Ok(Arc::new(MemoryContent(bytes.ok_or_else(|| Error::corrupt("object", id.address, "it is not a dataset"))?)))
    }

    fn dataset(&self, id: ObjectId) -> Result<DatasetInfo> {
        self.with(id, |o| o.info())?.ok_or_else(|| Error::corrupt("object", id.address, "it is not a dataset"))
    }

    fn elements(&self, id: ObjectId) -> Result<Value> {
        let info = self.dataset(id)?;
        let bytes = self.with(id, |o| o.bytes.clone().unwrap_or_default())?;
        Ok(Value { datatype: info.datatype, committed: false, shape: info.shape, bytes, parts: info.parts })
    }

    fn elements_in(&self, id: ObjectId, elements: Range<u64>) -> Result<Value> {
        let value = self.elements(id)?;
        let range = byte_range(&value.datatype, &elements)?;
        let bytes = value.bytes.get(range).ok_or_else(|| Error::refused(libc::EIO, "the dataset has fewer elements than it had"))?.to_vec();
        Ok(Value { shape: list_of(&elements), bytes, ..value })
    }

    fn references(&self, _id: ObjectId, _first: u64, _budget: &mut Budget, _f: &mut TargetVisitor<'_>) -> Result<()> {
        Ok(())
    }

    fn chunks(&self, _id: ObjectId) -> Result<Option<Arc<dyn Chunks>>> {
        Ok(None)
    }

    fn datatype(&self, id: ObjectId) -> Result<Datatype> {
        Err(Error::corrupt("object", id.address, "it is not a datatype"))
    }

    fn attributes(&self, id: ObjectId) -> Result<AttributeNames> {
        self.with(id, |o| o.attributes.keys().cloned().collect())
    }

    fn attribute(&self, id: ObjectId, name: &[u8]) -> Result<Option<Value>> {
        self.with(id, |o| o.attributes.get(name).map(MemoryValue::value))
    }

    fn maps(&self) -> Option<&dyn Maps> {
        Some(self)
    }

    fn edit(&self) -> Option<&dyn Edit> {
        self.writable.then_some(self)
    }
}
