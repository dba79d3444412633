//! Changes of a container: each operation makes the next state.

use super::access::IodConnector;
use super::create::bytes_file;
use super::ids::object;
use super::in_doubt::is_retried;
use super::state::{State, Waiting};
use super::stored;
use crate::base::{Error, Result};
use crate::connector::edit::{CopyRange, Edit, Elements, Erase, NewReference, Taken, check_comment};
use crate::connector::maps::EditMaps;
use crate::connector::plan::Now;
use crate::connector::stored::{ChunkStorage, Original, StoredChunk};
use crate::connector::{DatasetSpec, Datatype, Form, LinkFacts, LinkTarget, NewAttribute, NewValue, ObjectId, ObjectProperties, Ownership};
use crate::format::message::{comment, times};
use crate::format::object_header::kind;
use crate::iod::keys;
use std::ops::Range;

impl IodConnector {
    /// Runs an operation; one that fails changes nothing.
    pub(super) fn operate<T>(&self, f: impl FnOnce(&mut State) -> Result<T>) -> Result<T> {
        self.write_with(|state| {
            state.begin();
            let done = f(state);
            state.end(done.is_ok());
            done
        })
    }

    /// Runs a write; one that fails may have written a part.
    fn write_with<T>(&self, f: impl FnOnce(&mut State) -> Result<T>) -> Result<T> {
        self.values.store_many_ahead()?;
        let mut state = self.states.next();
        self.commits.check_unfinished()?;
        self.join(&mut state)?;
        self.commits.check_writable(&state)?;
        self.commits.keep_ids(&mut state)?;
        f(&mut state)
    }
}

impl Edit for IodConnector {
    fn catch_up(&self) -> Result<()> {
        self.advance_if_clean()
    }

    fn write(&self, id: ObjectId, offset: u64, bytes: &[u8]) -> Result<()> {
        self.write_as(id, Form::Main, offset, bytes)
    }

    fn write_as(&self, id: ObjectId, form: Form, offset: u64, bytes: &[u8]) -> Result<()> {
        let id = State::check_id(id)?;
        if let Err(e) = self.fetch_for_write(id, offset, bytes.len()) {
            tracing::debug!("the write reads the chunks: {e}");
        }
        self.write_with(|state| {
            state.note_shape_only(id, false);
            let d = self.objects.dataset_of(state, id)?;
            match d.datatype.contains_vlen() {
                true => self.objects.write_form(state, &d, form, offset, bytes),
                false => self.objects.write_bytes(state, id, offset, bytes),
            }
        })
    }

    fn set_size(&self, id: ObjectId, size: u64) -> Result<()> {
        self.set_size_as(id, Form::Main, size)
    }

    fn set_extent(&self, id: ObjectId, dims: &[u64]) -> Result<()> {
        let id = State::check_id(id)?;
        self.operate(|state| self.objects.change_extent(state, id, dims))
    }

    fn set_size_as(&self, id: ObjectId, form: Form, size: u64) -> Result<()> {
        let id = State::check_id(id)?;
        self.operate(|state| {
            state.note_shape_only(id, false);
            let d = self.objects.dataset_of(state, id)?;
            if !d.datatype.contains_vlen() {
                return self.objects.resize(state, &d, size);
            }
            self.objects.resize_form(state, &d, form, size)?;
            // No close follows if no file is open.
            if !state.is_held(id)
                && let Err(e) = self.objects.finish_form(state, id, true)
            {
                state.forms.remove_mut(&id);
                state.newlines.remove(&id);
                state.changed(id);
                return Err(e);
            }
            Ok(())
        })
    }

    fn finish(&self, id: ObjectId, last: bool) -> Result<bool> {
        let id = State::check_id(id)?;
        let (has_form, is_announced) = {
            let state = self.states.shown();
            (state.forms.contains_key(&id), state.announced().contains_key(&id))
        };
        let finished = has_form
            && self.operate(|state| {
                let done = self.objects.finish_form(state, id, last);
                // Another open file may write the rest.
                if last && state.holders(id) <= 1 && state.forms.remove_mut(&id) {
                    state.newlines.remove(&id);
                    state.changed(id);
                }
                done
            })?;
        // An error here leaves the elements that were written.
        let applied = is_announced && self.operate(|state| self.objects.apply_announced(state, id))?;
        Ok(finished || applied)
    }

    fn prepare_change(&self, id: ObjectId, spec: &DatasetSpec) -> Result<bool> {
        self.prepare(State::check_id(id)?, spec)
    }

    fn end_preparation(&self, id: ObjectId) {
        self.end_prepared(id.serial());
    }

    fn change_dataset(&self, id: ObjectId, spec: DatasetSpec, elements: Elements) -> Result<()> {
        let id = State::check_id(id)?;
        self.operate(|state| self.objects.change_layout(state, id, &spec, elements))
    }

    fn become_datatype(&self, id: ObjectId, datatype: &Datatype, shown: &[u8]) -> Result<()> {
        let id = State::check_id(id)?;
        self.operate(|state| self.objects.make_datatype(state, id, datatype, shown))
    }

    fn set_elements(&self, id: ObjectId, elements: &NewValue) -> Result<()> {
        let id = State::check_id(id)?;
        self.operate(|state| self.objects.put_value(state, id, elements))
    }

    fn set_elements_of(&self, id: ObjectId, elements: &[Range<u64>], values: &NewValue) -> Result<()> {
        let id = State::check_id(id)?;
        self.operate(|state| self.objects.put_elements_of(state, id, elements, values))
    }

    fn set_references(&self, id: ObjectId, first: u64, references: Vec<NewReference>) -> Result<()> {
        let id = State::check_id(id)?;
        self.operate(|state| self.objects.put_references(state, id, first, references))
    }

    fn use_datatype(&self, id: ObjectId, attribute: Option<&[u8]>, path: &[u8]) -> Result<()> {
        let id = State::check_id(id)?;
        self.operate(|state| self.objects.use_type(state, id, attribute, path))
    }

    fn set_comment(&self, id: ObjectId, text: &[u8]) -> Result<()> {
        check_comment(text)?;
        let id = State::check_id(id)?;
        self.operate(|state| {
            match text {
                [] => state.remove(keys::header(id, kind::COMMENT))?,
                text => state.put_header(id, kind::COMMENT, &comment::encode(text))?,
            }
            state.changed(id);
            Ok(())
        })
    }

    fn set_link_order(&self, group: ObjectId, names: Vec<Vec<u8>>) -> Result<()> {
        let group = State::check_id(group)?;
        self.operate(|state| state.order_links(group, &names))
    }

    fn set_properties(&self, id: ObjectId, properties: &ObjectProperties) -> Result<()> {
        let id = State::check_id(id)?;
        self.operate(|state| state.put_properties(id, properties))
    }

    fn takes_chunks(&self, id: ObjectId, storage: &ChunkStorage) -> Result<bool> {
        Ok(self.objects.dataset_of(&self.states.shown(), State::check_id(id)?)?.takes(storage))
    }

    fn store_chunks(&self, id: ObjectId, storage: &ChunkStorage, chunks: &[StoredChunk]) -> Result<()> {
        let id = State::check_id(id)?;
        self.operate(|state| self.objects.put_chunks(state, id, storage, chunks, stored::inline(chunks)))
    }

    fn refer_to_chunks(&self, id: ObjectId, storage: &ChunkStorage, chunks: &[StoredChunk], original: &Original) -> Result<()> {
        let id = State::check_id(id)?;
        let places = self.objects.places(self.original(original)?, chunks)?;
        self.operate(|state| self.objects.put_chunks(state, id, storage, chunks, places))
    }

    fn zero(&self, id: ObjectId, offset: u64, len: u64) -> Result<()> {
        let id = State::check_id(id)?;
        self.operate(|state| {
            state.note_shape_only(id, false);
            self.objects.zero_bytes(state, id, offset, len)
        })
    }

    fn create_file(&self, group: ObjectId, name: &[u8]) -> Result<ObjectId> {
        let group = State::check_id(group)?;
        self.operate(|state| state.create_dataset(group, name, &bytes_file()).map(object))
    }

    fn create_dataset(&self, group: ObjectId, name: &[u8], spec: &DatasetSpec) -> Result<ObjectId> {
        let group = State::check_id(group)?;
        self.operate(|state| {
            let (creation, blocks, nowhere) = self.objects.planned(state, &Now::new_file(bytes_file()), spec)?;
            let id = state.create_dataset(group, name, &creation)?;
            for (block, bytes) in blocks {
                state.put(keys::key(id, keys::CELLS, &block.to_be_bytes()), &bytes)?;
            }
            state.wait_for_fill(id, spec, nowhere)?;
            Ok(object(id))
        })
    }

    fn create_group(&self, group: ObjectId, name: &[u8]) -> Result<ObjectId> {
        let group = State::check_id(group)?;
        self.operate(|state| state.create_group(group, name).map(object))
    }

    fn link(&self, group: ObjectId, name: &[u8], target: ObjectId) -> Result<()> {
        let (group, target) = (State::check_id(group)?, State::check_id(target)?);
        self.operate(|state| state.link(group, name, target))
    }

    fn symlink(&self, group: ObjectId, name: &[u8], target: &[u8]) -> Result<()> {
        let group = State::check_id(group)?;
        self.operate(|state| state.enter(group, name, &LinkTarget::Soft(target.to_vec())))
    }

    fn external_link(&self, group: ObjectId, name: &[u8], file: &[u8], object: &[u8]) -> Result<()> {
        let group = State::check_id(group)?;
        let target = LinkTarget::External { file: file.to_vec(), object: object.to_vec() };
        self.operate(|state| state.enter(group, name, &target))
    }

    fn unlink(&self, group: ObjectId, name: &[u8], directory: bool) -> Result<Option<ObjectId>> {
        let group = State::check_id(group)?;
        self.operate(|state| state.unlink(group, name, directory))
    }

    fn rename(&self, from: (ObjectId, &[u8]), to: (ObjectId, &[u8]), taken: Taken) -> Result<Option<ObjectId>> {
        let (source, target) = ((State::check_id(from.0)?, from.1), (State::check_id(to.0)?, to.1));
        self.operate(|state| state.rename(source, target, taken))
    }

    fn set_attribute(&self, id: ObjectId, name: &[u8], value: &NewValue) -> Result<()> {
        let id = State::check_id(id)?;
        self.operate(|state| {
            if state.waiting.attributes.get(&(id, name.to_vec())).is_some_and(|waiting| waiting.has_elements_of(value)) {
                // A copying program says again what it said with types.
                return Ok(());
            }
            self.objects.put_attribute(state, id, name, value, false)?;
            state.touch(id)
        })
    }

    fn set_attributes(&self, id: ObjectId, attributes: &mut dyn Iterator<Item = Result<NewAttribute>>) -> Result<()> {
        let id = State::check_id(id)?;
        let all = attributes.collect::<Result<Vec<_>>>()?;
        self.operate(|state| {
            // All or none: one that cannot be stored is an error before any is set.
            all.iter().try_for_each(|a| self.objects.check_attribute(state, &a.name, &a.value))?;
            all.iter().try_for_each(|a| self.objects.put_attribute(state, id, &a.name, &a.value, true))?;
            state.touch(id)
        })
    }

    fn set_attribute_bytes(&self, id: ObjectId, name: &[u8], bytes: &[u8]) -> Result<()> {
        let id = State::check_id(id)?;
        self.operate(|state| {
            self.objects.put_attribute_bytes(state, id, name, bytes)?;
            state.touch(id)
        })
    }

    fn rename_attribute(&self, id: ObjectId, from: &[u8], to: &[u8], replace: bool) -> Result<()> {
        let id = State::check_id(id)?;
        self.operate(|state| self.objects.move_attribute(state, id, from, to, replace))
    }

    fn remove_attribute(&self, id: ObjectId, name: &[u8]) -> Result<()> {
        let id = State::check_id(id)?;
        self.operate(|state| self.objects.delete_attribute(state, id, name))
    }

    fn set_mtime(&self, id: ObjectId, seconds: u32) -> Result<bool> {
        let id = State::check_id(id)?;
        self.operate(|state| state.put_header(id, kind::MTIME, &times::encode(seconds)).map(|()| true))
    }

    fn set_atime(&self, id: ObjectId, seconds: u32) -> Result<bool> {
        let id = State::check_id(id)?;
        self.operate(|state| state.put_header(id, keys::ACCESS_TIME, &times::encode(seconds)).map(|()| true))
    }

    fn set_ownership(&self, id: ObjectId, ownership: &Ownership) -> Result<()> {
        let id = State::check_id(id)?;
        self.operate(|state| match *ownership == Ownership::default() {
            true => state.remove(keys::header(id, keys::OWNERSHIP)),
            false => state.put_header(id, keys::OWNERSHIP, &super::ownership::encode(ownership)),
        })
    }

    fn set_link_ownership(&self, group: ObjectId, name: &[u8], ownership: &Ownership) -> Result<()> {
        let group = State::check_id(group)?;
        self.operate(|state| {
            let facts = state.link_facts(group, name)?;
            state.set_link_facts(group, name, &LinkFacts { ownership: *ownership, ..facts })
        })
    }

    fn retarget(&self, group: ObjectId, name: &[u8], path: &[u8], text: Option<&[u8]>) -> Result<()> {
        let group = State::check_id(group)?;
        self.operate(|state| state.retarget(group, name, path, text))
    }

    fn erase(&self) -> Option<&dyn Erase> {
        Some(self)
    }

    fn copy_range(&self) -> Option<&dyn CopyRange> {
        Some(self)
    }

    fn maps(&self) -> Option<&dyn EditMaps> {
        Some(self)
    }

    fn hold(&self, id: ObjectId) {
        self.states.shown().hold(id.serial());
    }

    fn release(&self, id: ObjectId) {
        let (number, shown) = (id.serial(), self.states.shown());
        if !shown.release(number) || !shown.is_nameless(number) {
            return;
        }
        let mut state = self.states.next();
        let is_unused = state.failed.is_none() && state.is_nameless(number) && !state.is_held(number);
        if is_unused && let Err(e) = state.delete_object(number) {
            tracing::warn!("object {number}: the space of the deleted object is not freed: {e}");
        }
    }

    fn commit(&self) -> Result<()> {
        // Finishing the peer of a transaction commits.
        if self.joined.is_some() {
            return Ok(());
        }
        self.commits.check_answers()?;
        match self.values.store_ahead() {
            Err(e) if is_retried(&e) => return Err(e),
            Err(e) => tracing::debug!("the commit stores the chunks: {e}"),
            Ok(()) => {}
        }
        let mut state = self.states.next();
        if state.session.is_none() { Ok(()) } else { self.commits.commit_all(&mut state) }
    }

    fn refusal(&self) -> Option<String> {
        self.refused_reason()
    }

    fn discard(&self) -> Result<()> {
        self.discard_changes()
    }

    fn close(&self) -> Result<()> {
        let mut state = self.states.next();
        if state.failed.is_none() && self.joined.is_none() {
            self.objects.lead_types(&mut state, true);
        }
        let done = match &state.failed {
            _ if self.joined.is_some() => self.leave(&state),
            Some(reason) => Err(Error::refused(libc::EIO, reason.clone())),
            None => self.commits.commit_all(&mut state),
        };
        let Waiting { references, attributes, fills, types: _ } = &state.waiting;
        let lost = references.len().saturating_add(attributes.len()).saturating_add(fills.len());
        if lost > 0 {
            tracing::warn!("{lost} references are nil: their targets were not copied or not named");
        }
        if !state.waiting.types.is_empty() {
            tracing::info!("{} types stay their own: no named datatype is at their paths", state.waiting.types.len());
        }
        state.failed.get_or_insert_with(|| "the container was closed".into());
        self.pins.release(self.joined.is_some());
        done
    }
}
