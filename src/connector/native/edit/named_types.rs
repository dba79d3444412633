//! Named datatypes that datasets and attributes are made to refer to, by paths.
//!
//! A path at which nothing is yet, as when a tree is copied, is tried again before each commit. If
//! nothing is there at the end, the type stays one of its own. The datatype counts each reference
//! to it as a name.

use super::super::{attribute, named_types};
use super::change_parts::AttributeChange;
use super::now;
use crate::base::datatype::Datatype;
use crate::base::{Error, Result};
use crate::connector::{ObjectId, ObjectKind};
use crate::dataset::create::{awaits_datatype, is_same_datatype, refuse_other_datatype};
use crate::format::message::attribute::encode_attribute;
use crate::format::message::dataspace::Dataspace;
use crate::format::object_header::{SharedMessage, flag, kind};
use crate::structures::attributes::edit as attributes_edit;
use crate::structures::link_count::add_reference;
use crate::structures::shared_messages::edit as shared_messages_edit;

/// Attribute, or `None` for the elements, and path of the datatype.
pub(super) type TypeUses = Vec<(Option<Vec<u8>>, Vec<u8>)>;

/// Uses that are tried again before a commit that is not the last one.
const RETRIED_MAX: usize = 4096;
/// Bytes of paths and names of all uses that wait.
const WAITING_MAX: usize = 64 << 20;

fn len(uses: &TypeUses) -> usize {
    let one = |(name, path): &(Option<Vec<u8>>, Vec<u8>)| name.as_ref().map_or(0, Vec::len).saturating_add(path.len());
    uses.iter().map(|part| one(part).saturating_add(64)).fold(0, usize::saturating_add)
}

impl AttributeChange<'_> {
    /// Makes the dataset `id`, or its attribute, refer to the named datatype at `path`.
    pub(super) fn use_datatype(&self, id: ObjectId, attribute: Option<&[u8]>, path: &[u8]) -> Result<()> {
        let waits = !self.refer(id, attribute, path)?;
        let mut pending = self.change.editing.objects.all_pending();
        pending.change(id, |p| {
            let uses = p.types.get_or_insert_default();
            uses.retain(|(name, _)| name.as_deref() != attribute);
            if waits {
                uses.push((attribute.map(<[u8]>::to_vec), path.to_vec()));
            }
            p.types = p.types.take().filter(|uses| !uses.is_empty());
        });
        let kept = pending.iter().filter_map(|(_, p)| p.types.as_ref()).map(len).fold(0, usize::saturating_add);
        if kept > WAITING_MAX {
            pending.change(id, |p| p.types = None);
            return Err(Error::refused(libc::EINVAL, "too many objects refer to named datatypes that are not there"));
        }
        Ok(())
    }

    /// Makes the reference; false: nothing is at `path`, there is no such attribute, or the bytes
    /// have no type yet.
    fn refer(&self, id: ObjectId, name: Option<&[u8]>, path: &[u8]) -> Result<bool> {
        let (store, object) = (self.change.store()?, self.change.access.object(id)?);
        let root = ObjectId { file: 0, address: self.change.connector.file(0)?.root };
        let found = self.change.access.follow_path(root, path, &mut 0)?.filter(|found| found.file == 0);
        let Some(named) = found else { return Ok(false) };
        let old = named_types::of(&object, name)?;
        if old == Some(named.address) {
            return Ok(true);
        }
        let is_type = self.change.objects().kind(named)? == ObjectKind::Datatype;
        let datatype = if is_type { Some(self.change.access.object(named)?.datatype()?) } else { None };
        let body = SharedMessage::encode_object(named.address, store.ctx());
        if let Some(name) = name {
            let Some(stored) = attribute::stored(&object, name)? else { return Ok(false) };
            let typed = attribute::typed(&object, &stored)?;
            if awaits_datatype(datatype.as_ref(), &typed.datatype) {
                return Ok(false);
            }
            refuse_other_datatype(datatype.as_ref(), &typed.datatype, path)?;
            let version = self.change.header(id)?.version();
            let space = Dataspace::of(&typed.shape, if version == 1 { 1 } else { 2 }).encode(store.ctx());
            let body = encode_attribute(version, name, &body, true, &space, &stored.data)?;
            // Changes the counts of both datatypes.
            attributes_edit::set(&store, id.address, name, &body, now())?;
            if let Some(address) = old {
                self.change.objects().drop_unlinked_datatype(ObjectId { address, ..id })?;
            }
        } else {
            let d = self.change.dataset(id)?;
            if awaits_datatype(datatype.as_ref(), &d.datatype) {
                return Ok(false);
            }
            refuse_other_datatype(datatype.as_ref(), &d.datatype, path)?;
            shared_messages_edit::forget(&store, id.address)?;
            let mut header = self.change.header(id)?;
            let at = header.find(kind::DATATYPE).ok_or_else(|| object.lacks("datatype"))?;
            header.set_body(at, body);
            header.set_flags(at, flag::CONSTANT | flag::SHARED);
            header.write(&store)?;
            add_reference(&store, named.address)?;
            if let Some(address) = old {
                self.change.objects().drop_datatype(ObjectId { address, ..id })?;
            }
        }
        self.change.changed(named);
        self.change.changed(id);
        Ok(true)
    }

    /// The reference to a named datatype that the attribute `name` keeps when it gets a value of
    /// the type `datatype`.
    pub(super) fn kept_type(&self, id: ObjectId, name: &[u8], datatype: &Datatype) -> Result<Option<Vec<u8>>> {
        let object = self.change.access.object(id)?;
        let Some(stored) = attribute::stored(&object, name)?.filter(|a| a.datatype_shared) else { return Ok(None) };
        let keeps = attribute::typed(&object, &stored).is_ok_and(|typed| is_same_datatype(&typed.datatype, datatype));
        Ok(keeps.then_some(stored.datatype))
    }

    /// Tries again to refer to named datatypes. `last`: logs which do not exist.
    pub(super) fn lead_types(&self, last: bool) {
        let mut all = self.change.editing.objects.all_pending().take(|p| p.types.take());
        let waiting: usize = all.iter().map(|(_, uses)| uses.len()).sum();
        if !last && waiting > RETRIED_MAX {
            let mut pending = self.change.editing.objects.all_pending();
            all.into_iter().for_each(|(id, uses)| pending.change(id, |p| p.types = Some(uses)));
            return;
        }
        for (id, uses) in &mut all {
            uses.retain(|(name, path)| match self.change.atomically(|| self.refer(*id, name.as_deref(), path)) {
                Ok(found) => !found,
                Err(e) => {
                    tracing::warn!("object at {}: a type stays one of its own: {e}", id.address);
                    false
                }
            });
            if last && !uses.is_empty() {
                tracing::info!(
                    "object at {}: {} types stay its own: no named datatype is at their paths, or no such attribute is there",
                    id.address,
                    uses.len()
                );
            }
        }
        if !last {
            let mut pending = self.change.editing.objects.all_pending();
            let left = all.into_iter().filter(|(_, uses)| !uses.is_empty());
            left.for_each(|(id, uses)| pending.change(id, |p| p.types = Some(uses)));
        }
    }
}
