//! Space of variable-length elements in the global heap, which is freed when they are replaced
//! or deleted.
//!
//! Each element has heap objects of its own, as libhdf5 writes them. Space that cannot be
//! determined leaks: space that is lost, nothing else.

use super::super::attribute::{self, Value};
use super::super::dataset::Dataset;
use super::super::file_heap::{ELEMENT_BYTES_MAX, FileHeap};
use super::super::object::Object;
use super::change_parts::{AttributeChange, DataChange};
use crate::base::parts::Limited;
use crate::base::variable_form::VariableForm;
use crate::base::{Address, Error, Result};
use crate::connector::ObjectId;
use crate::dataset::heap::Descriptor;
use crate::format::Reader;
use crate::format::message::attribute::Attribute;
use crate::format::object_header::SharedMessage;
use crate::structures::global_heap::edit::{self as global_heap_edit, Removed};
use std::collections::HashSet;
use std::ops::ControlFlow;

/// Changes of live bytes that wait in memory: beyond it no collection is packed that has other
/// objects too.
const WAITING_MAX: u64 = 32 << 20;

/// What an attribute holds elsewhere.
#[derive(Default)]
pub(super) struct Held {
    value: Option<Value>,
    /// The committed datatype that it counts as a name of.
    pub(super) datatype: Option<Address>,
}

/// Heap objects to be removed.
#[derive(Default)]
struct Objects {
    found: Vec<(Address, u32)>,
    /// Collections that are gone: what else leads there is not right.
    gone: HashSet<Address>,
}

impl DataChange<'_> {
    /// Frees the global heap objects of the elements of `d`.
    pub(super) fn free_sequences(&self, d: &Dataset) -> Result<()> {
        self.free_sequences_in(d, 0..d.bytes.size)
    }

    /// Frees the parts of variable-length elements in `range`, bytes.
    pub(super) fn free_sequences_in(&self, d: &Dataset, range: std::ops::Range<u64>) -> Result<()> {
        let form = VariableForm::of(&d.datatype);
        if form.is_verbatim() || !d.layout().is_in_file() || d.bytes.is_blank().unwrap_or(true) {
            return Ok(());
        }
        let env = &self.change.connector.options.environment;
        let size = usize::try_from(d.element_size).unwrap_or(usize::MAX).max(1);
        let mut objects = Objects::default();
        d.written_elements(env, range, &mut |elements| {
            // What cannot be read is lost space, and no reason to keep the rest.
            let Ok(elements) = elements else { return Ok(ControlFlow::Break(())) };
            for element in elements.chunks_exact(size) {
                // Those that were never written show the fill value, which is the dataset's own.
                if element != d.bytes.fill.element() {
                    self.find_objects(&form, element, &mut objects)?;
                }
            }
            self.free_objects(&mut objects)?;
            Ok(ControlFlow::Continue(()))
        })
    }

    fn find_objects(&self, form: &VariableForm, element: &[u8], objects: &mut Objects) -> Result<()> {
        let store = self.change.store()?;
        form.sequences(element, &Limited { parts: &FileHeap(&store), limit: ELEMENT_BYTES_MAX }, &mut |element| {
            objects.found.extend(Descriptor::decode(element, store.ctx()).map(|d| (d.collection, d.index)));
        });
        Ok(())
    }

    fn free_objects(&self, objects: &mut Objects) -> Result<()> {
        let (store, mut space) = (self.change.store()?, self.change.editing.heaps.lock());
        objects.found.sort_unstable();
        objects.found.dedup();
        for of_one in objects.found.chunk_by(|a, b| a.0 == b.0) {
            let Some(&(collection, _)) = of_one.first().filter(|(c, _)| !objects.gone.contains(c)) else { continue };
            let indexes: Vec<u32> = of_one.iter().map(|(_, index)| *index).collect();
            let whole = store.transaction()?.waiting() > WAITING_MAX;
            match global_heap_edit::remove_some(&store, &mut space, collection, &indexes, whole) {
                Ok(Removed::Collection) => drop(objects.gone.insert(collection)),
                Ok(_) => {}
                // Objects may have been moved half way.
                Err(e @ Error::Io { .. }) => return Err(e),
                Err(e) => tracing::debug!("space of variable-length elements is lost: {e}"),
            }
        }
        objects.found.clear();
        Ok(())
    }
}

impl AttributeChange<'_> {
    /// What the attribute `name` holds elsewhere, before it goes.
    pub(super) fn held_by(&self, id: ObjectId, name: &[u8]) -> Result<Held> {
        let object = self.change.access.object(id)?;
        Ok(attribute::stored(&object, name)?.map(|a| self.held_in(&object, &a)).unwrap_or_default())
    }

    fn held_in(&self, object: &Object, a: &Attribute) -> Held {
        let value = attribute::typed(object, a).ok().filter(|v| v.datatype.contains_vlen());
        let shared = a.datatype_shared.then(|| {
            let mut r = Reader::new(&a.datatype, "shared message", object.header.address);
            SharedMessage::decode(&mut r, object.file.store.ctx())
        });
        let datatype = match shared {
            Some(Ok(SharedMessage::Object(address))) => Some(address),
            _ => None,
        };
        Held { value, datatype }
    }

    /// Frees the heap objects of a removed attribute of `id`, and its committed datatype if it was
    /// the last use of that.
    pub(super) fn free_held(&self, id: ObjectId, held: &Held) -> Result<()> {
        self.free_heap_objects(held)?;
        let datatype = held.datatype.filter(|address| *address != id.address);
        datatype.map_or(Ok(()), |address| self.change.objects().drop_unlinked_datatype(ObjectId { address, ..id }))
    }

    fn free_heap_objects(&self, held: &Held) -> Result<()> {
        let Some(value) = &held.value else { return Ok(()) };
        let form = VariableForm::of(&value.datatype);
        let mut objects = Objects::default();
        for element in value.bytes.chunks_exact(usize::try_from(value.datatype.element_size()).unwrap_or(0).max(1)) {
            self.change.data().find_objects(&form, element, &mut objects)?;
        }
        self.change.data().free_objects(&mut objects)
    }

    /// Frees the heap objects of all attributes of a deleted object; returns their
    /// committed datatypes.
    pub(super) fn free_all_held(&self, id: ObjectId) -> Result<Vec<Address>> {
        let object = self.change.access.object(id)?;
        let mut all = Vec::new();
        if let Err(e) = attribute::each(&object, &mut |a| all.push(self.held_in(&object, &a))) {
            tracing::debug!("what attributes of a deleted object take elsewhere is lost: {e}");
        }
        for held in &all {
            self.free_heap_objects(held)?;
        }
        Ok(all.into_iter().filter_map(|h| h.datatype).collect())
    }
}
