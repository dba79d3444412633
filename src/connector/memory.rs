//! A container in memory: the reference model that the file system is tested against.
//!
//! It does directly what [`Connector`] says, with maps and vectors, so that a difference between it
//! and the native connector is a fault of one of them.

use super::{AttributeNames, Chunks, Connector, Content, Form, Link, LinkTarget, ObjectId, ObjectInfo, ObjectKind, Result};
use crate::base::{Address, Error, limits};
use crate::dataset::environment::Environment;
use crate::dataset::storage::Seek;
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

/// An object of the model.
#[derive(Debug, Clone, Default)]
pub struct MemoryObject {
    /// Links, if it is a group.
    pub links: Option<BTreeMap<Vec<u8>, LinkTarget>>,
    /// Bytes, if it is a dataset.
    pub bytes: Option<Vec<u8>>,
    /// Attributes: name to text.
    pub attributes: BTreeMap<Vec<u8>, Vec<u8>>,
}

/// A container of objects by number; number 0 is the root group.
pub struct MemoryConnector {
    objects: Vec<MemoryObject>,
    environment: Arc<Environment>,
}

impl MemoryConnector {
    /// A container of `objects`; the first must be a group.
    pub fn new(objects: Vec<MemoryObject>) -> Result<Self> {
        Ok(MemoryConnector { objects, environment: Arc::new(Environment::new(1 << 20, 0, 1)?) })
    }

    /// The identity of object `number`.
    pub fn id(number: u64) -> ObjectId {
        ObjectId { file: 0, address: Address(number) }
    }

    fn object(&self, id: ObjectId) -> Result<&MemoryObject> {
        let object = usize::try_from(id.address.0).ok().and_then(|i| self.objects.get(i));
        object.ok_or_else(|| Error::corrupt("object", id.address, "there is no such object"))
    }

    fn links(&self, id: ObjectId) -> Result<&BTreeMap<Vec<u8>, LinkTarget>> {
        self.object(id)?.links.as_ref().ok_or_else(|| Error::corrupt("object", id.address, "it is not a group"))
    }

    fn follow(&self, start: ObjectId, path: &[u8], hops: usize) -> Result<Option<ObjectId>> {
        if hops > limits::LINK_HOPS_MAX {
            return Err(Error::limit("link", start.address, "too many links followed"));
        }
        let mut at = if path.first() == Some(&b'/') { self.root() } else { start };
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

    fn environment(&self) -> &Arc<Environment> {
        &self.environment
    }

    fn info(&self, id: ObjectId) -> Result<ObjectInfo> {
        let object = self.object(id)?;
        let kind = match (&object.links, &object.bytes) {
            (Some(_), _) => ObjectKind::Group,
            (None, Some(_)) => ObjectKind::Dataset,
            (None, None) => ObjectKind::Unknown,
        };
        let to_it = |o: &MemoryObject| o.links.iter().flatten().filter(|(_, t)| **t == LinkTarget::Hard(id)).count();
        let links = self.objects.iter().map(to_it).sum::<usize>();
        Ok(ObjectInfo { kind, links: u32::try_from(links).unwrap_or(u32::MAX), times: [None; 4] })
    }

    fn lookup(&self, group: ObjectId, name: &[u8]) -> Result<Option<Link>> {
        Ok(self.links(group)?.get(name).map(|t| Link { name: name.to_vec(), target: t.clone() }))
    }

    fn list(&self, group: ObjectId, start: u64, f: &mut dyn FnMut(Link, u64) -> ControlFlow<()>) -> Result<()> {
        for (next, (name, target)) in (1u64..).zip(self.links(group)?).filter(|(i, _)| *i > start) {
            if f(Link { name: name.clone(), target: target.clone() }, next).is_break() {
                break;
            }
        }
        Ok(())
    }

    fn external(&self, _from: u32, _file: &[u8], _object: &[u8]) -> Result<Option<ObjectId>> {
        Ok(None)
    }

    fn resolve(&self, start: ObjectId, path: &[u8]) -> Result<Option<ObjectId>> {
        self.follow(start, path, 0)
    }

    fn content(&self, id: ObjectId, _form: Form) -> Result<Arc<dyn Content>> {
        let bytes = self.object(id)?.bytes.clone();
        Ok(Arc::new(MemoryContent(bytes.ok_or_else(|| Error::corrupt("object", id.address, "it is not a dataset"))?)))
    }

    fn npy_header(&self, _id: ObjectId) -> Result<Option<Vec<u8>>> {
        Ok(None)
    }

    fn chunks(&self, _id: ObjectId) -> Result<Option<Arc<dyn Chunks>>> {
        Ok(None)
    }

    fn datatype_text(&self, id: ObjectId) -> Result<Vec<u8>> {
        Err(Error::corrupt("object", id.address, "it is not a datatype"))
    }

    fn attributes(&self, id: ObjectId) -> Result<AttributeNames> {
        Ok(self.object(id)?.attributes.keys().cloned().collect())
    }

    fn attribute_text(&self, id: ObjectId, name: &[u8]) -> Result<Option<Vec<u8>>> {
        Ok(self.object(id)?.attributes.get(name).cloned())
    }

    fn attribute_raw(&self, id: ObjectId, name: &[u8]) -> Result<Option<Vec<u8>>> {
        self.attribute_text(id, name)
    }

    fn fact_names(&self, _id: ObjectId) -> Result<Vec<&'static str>> {
        Ok(vec!["kind"])
    }

    fn fact(&self, id: ObjectId, name: &str) -> Result<Option<Vec<u8>>> {
        let kind = if self.info(id)?.kind == ObjectKind::Group { "group" } else { "dataset" };
        Ok((name == "kind").then(|| kind.into()))
    }
}
