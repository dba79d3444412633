//! The operations, each as a change of the file.

use super::super::{NativeConnector, ownership, portable};
use crate::base::{Error, Result};
use crate::connector::edit::{Allocate, CopyRange, Edit, Elements, Erase, NewReference, Taken};
use crate::connector::log::EditLog;
use crate::connector::stored::{ChunkStorage, StoredChunk};
use crate::connector::{DatasetSpec, Datatype, Form, NewAttribute, NewValue, ObjectId, ObjectProperties, Ownership};
use std::ops::Range;

impl Edit for NativeConnector {
    fn write(&self, id: ObjectId, offset: u64, bytes: &[u8]) -> Result<()> {
        self.write_as(id, Form::Main, offset, bytes)
    }

    fn write_as(&self, id: ObjectId, form: Form, offset: u64, bytes: &[u8]) -> Result<()> {
        // A writer that continues after a write error would lose more.
        self.write_error(id)?;
        self.editing()?.check_refused(id)?;
        if self.write_in_place(id, offset, bytes)? {
            return Ok(());
        }
        if self.other_files().leads_elsewhere(id)? {
            return self.other_files().write_across(id, &[(offset, bytes)]);
        }
        self.write_back().admit_write()?;
        self.new_files().suit_chunks(id, offset, bytes.len() as u64)?;
        self.operate(&[id], |c| c.data().write(id, form, offset, bytes))
    }

    fn set_extent(&self, id: ObjectId, dims: &[u64]) -> Result<()> {
        self.operate(&[id], |c| c.layout().set_extent(id, dims))
    }

    fn write_ranges(&self, id: ObjectId, ranges: &[Range<u64>], bytes: &[u8]) -> Result<()> {
        self.write_error(id)?;
        self.editing()?.check_refused(id)?;
        self.write_apart(id, ranges, bytes)
    }

    fn set_elements_of(&self, id: ObjectId, elements: &[Range<u64>], values: &NewValue) -> Result<()> {
        self.operate_flushed(id, |c| c.data().set_elements_of(id, elements, values))
    }

    fn prepare_change(&self, id: ObjectId, spec: &DatasetSpec) -> Result<bool> {
        self.preparation().prepare(id, spec)
    }

    fn end_preparation(&self, id: ObjectId) {
        self.preparation().end_prepared(id);
    }

    fn change_dataset(&self, id: ObjectId, spec: DatasetSpec, elements: Elements) -> Result<()> {
        self.preparation().change_layout(id, spec, elements)
    }

    fn keep_layout(&self, id: ObjectId) {
        self.new_files().note_declared(id);
    }

    fn note_description(&self, id: ObjectId, error: Option<&Error>) {
        self.note_refused(id, error);
    }

    fn become_datatype(&self, id: ObjectId, datatype: &Datatype, shown: &[u8]) -> Result<()> {
        self.operate_flushed(id, |c| c.layout().commit_datatype(id, datatype, shown))
    }

    fn set_elements(&self, id: ObjectId, elements: &NewValue) -> Result<()> {
        self.operate_flushed(id, |c| c.references().set_elements(id, elements))
    }

    fn set_references(&self, id: ObjectId, first: u64, references: Vec<NewReference>) -> Result<()> {
        self.operate_flushed(id, |c| c.references().set_references(id, first, references))
    }

    fn use_datatype(&self, id: ObjectId, attribute: Option<&[u8]>, path: &[u8]) -> Result<()> {
        self.operate(&[id], |c| c.attributes().use_datatype(id, attribute, path))
    }

    fn set_comment(&self, id: ObjectId, comment: &[u8]) -> Result<()> {
        self.operate(&[id], |c| c.objects().set_comment(id, comment))
    }

    fn set_link_order(&self, group: ObjectId, names: Vec<Vec<u8>>) -> Result<()> {
        self.operate(&[group], |c| c.names().set_link_order(group, &names))
    }

    fn set_properties(&self, id: ObjectId, properties: &ObjectProperties) -> Result<()> {
        self.operate(&[id], |c| c.objects().set_properties(id, properties))
    }

    fn finish(&self, id: ObjectId, last: bool) -> Result<bool> {
        let rewritten = self.finish_rewrite(id, last)?;
        self.definitions().apply_announced(id).map(|applied| rewritten || applied)
    }

    fn set_size(&self, id: ObjectId, size: u64) -> Result<()> {
        self.set_size_as(id, Form::Main, size)
    }

    fn set_size_as(&self, id: ObjectId, form: Form, size: u64) -> Result<()> {
        self.new_files().suit_size(id, size);
        self.operate(&[id], |c| c.data().set_size(id, form, size))?;
        // No close follows if no file is open.
        let held = self.editing.as_ref().is_some_and(|e| e.objects.is_held(id));
        if held { Ok(()) } else { self.finish(id, true).map(|_| ()) }
    }

    fn zero(&self, id: ObjectId, offset: u64, len: u64) -> Result<()> {
        if self.other_files().leads_elsewhere(id)? {
            return self.other_files().zero_across(id, offset..offset.saturating_add(len));
        }
        self.in_steps(id, &|c, at| c.data().zero(id, offset..offset.saturating_add(len), at, false))
    }

    fn erase(&self) -> Option<&dyn Erase> {
        Some(self)
    }

    fn log_by_default(&self, released: bool) -> Result<()> {
        self.operate(&[], |c| c.log().log_by_default(released))
    }

    fn log(&self) -> Option<&dyn EditLog> {
        self.access().record_log().map(|_| self as &dyn EditLog)
    }

    fn allocate(&self) -> Option<&dyn Allocate> {
        Some(self)
    }

    fn copy_range(&self) -> Option<&dyn CopyRange> {
        Some(self)
    }

    fn takes_chunks(&self, id: ObjectId, storage: &ChunkStorage) -> Result<bool> {
        Ok(portable::takes(&self.access().dataset(id)?.dataset, storage))
    }

    fn store_chunks(&self, id: ObjectId, storage: &ChunkStorage, chunks: &[StoredChunk]) -> Result<()> {
        self.operate(&[id], |c| c.data().store_chunks(id, storage, chunks))
    }

    fn create_file(&self, group: ObjectId, name: &[u8]) -> Result<ObjectId> {
        self.operate(&[group], |c| c.objects().create_file(group, &c.access.stored_link(group, name)?))
    }

    fn create_dataset(&self, group: ObjectId, name: &[u8], spec: &DatasetSpec) -> Result<ObjectId> {
        self.operate(&[group], |c| c.objects().create_described(group, &c.access.stored_link(group, name)?, spec))
    }

    fn create_group(&self, group: ObjectId, name: &[u8]) -> Result<ObjectId> {
        self.operate(&[group], |c| c.objects().create_group(group, &c.access.stored_link(group, name)?))
    }

    fn link(&self, group: ObjectId, name: &[u8], target: ObjectId) -> Result<()> {
        self.operate(&[group, target], |c| c.names().link(group, &c.access.stored_link(group, name)?, target))
    }

    fn symlink(&self, group: ObjectId, name: &[u8], target: &[u8]) -> Result<()> {
        self.operate(&[group], |c| c.names().symlink(group, &c.access.stored_link(group, name)?, target))
    }

    fn external_link(&self, group: ObjectId, name: &[u8], file: &[u8], object: &[u8]) -> Result<()> {
        self.operate(&[group], |c| c.names().external_link(group, &c.access.stored_link(group, name)?, file, object))
    }

    fn unlink(&self, group: ObjectId, name: &[u8], directory: bool) -> Result<Option<ObjectId>> {
        let gone = self.operate(&[group], |c| c.names().unlink(group, &c.access.stored_link(group, name)?, directory))?;
        self.forget_write_error(gone);
        Ok(gone)
    }

    fn rename(&self, from: (ObjectId, &[u8]), to: (ObjectId, &[u8]), taken: Taken) -> Result<Option<ObjectId>> {
        let gone = self.operate(&[from.0, to.0], |c| {
            let names = (c.access.stored_link(from.0, from.1)?, c.access.stored_link(to.0, to.1)?);
            c.names().rename((from.0, &names.0), (to.0, &names.1), taken)
        })?;
        self.forget_write_error(gone);
        Ok(gone)
    }

    fn set_attribute(&self, id: ObjectId, name: &[u8], value: &NewValue) -> Result<()> {
        ownership::check_name(name)?;
        self.operate(&[id], |c| c.attributes().set_attribute(id, &c.access.stored_attribute(name)?, value))
    }

    fn set_attributes(&self, id: ObjectId, attributes: &mut dyn Iterator<Item = Result<NewAttribute>>) -> Result<()> {
        self.operate_flushed(id, |c| {
            let checked = |a: NewAttribute| {
                ownership::check_name(&a.name)?;
                Ok(NewAttribute { name: c.access.stored_attribute(&a.name)?.into_owned(), ..a })
            };
            c.attributes().set_attributes(id, &mut attributes.map(|a| a.and_then(checked)))
        })
    }

    fn set_attribute_bytes(&self, id: ObjectId, name: &[u8], bytes: &[u8]) -> Result<()> {
        ownership::check_name(name)?;
        self.operate(&[id], |c| c.attributes().set_attribute_bytes(id, &c.access.stored_attribute(name)?, bytes))
    }

    fn rename_attribute(&self, id: ObjectId, from: &[u8], to: &[u8], replace: bool) -> Result<()> {
        ownership::check_name(from).and_then(|()| ownership::check_name(to))?;
        self.operate(&[id], |c| {
            let (from, to) = (c.access.stored_attribute(from)?, c.access.stored_attribute(to)?);
            c.attributes().rename_attribute(id, &from, &to, replace)
        })
    }

    fn remove_attribute(&self, id: ObjectId, name: &[u8]) -> Result<()> {
        ownership::check_name(name)?;
        self.operate(&[id], |c| c.attributes().remove_attribute(id, &c.access.stored_attribute(name)?))
    }

    fn set_mtime(&self, id: ObjectId, seconds: u32) -> Result<bool> {
        self.operate(&[id], |c| c.objects().wish_mtime(id, seconds))
    }

    fn set_atime(&self, id: ObjectId, seconds: u32) -> Result<bool> {
        self.operate(&[id], |c| c.objects().set_atime(id, seconds))
    }

    fn set_ownership(&self, id: ObjectId, ownership: &Ownership) -> Result<()> {
        self.operate(&[id], |c| c.attributes().set_ownership(id, ownership))
    }

    fn set_link_ownership(&self, group: ObjectId, name: &[u8], ownership: &Ownership) -> Result<()> {
        self.operate(&[group], |c| c.names().set_link_ownership(group, &c.access.stored_link(group, name)?, ownership))
    }

    fn retarget(&self, group: ObjectId, name: &[u8], path: &[u8], text: Option<&[u8]>) -> Result<()> {
        self.operate(&[group], |c| c.names().retarget(group, &c.access.stored_link(group, name)?, path, text))
    }

    fn hold(&self, id: ObjectId) {
        if let Some(e) = &self.editing {
            e.objects.use_object(id, |usage| usage.holds = usage.holds.saturating_add(1));
        }
    }

    fn release(&self, id: ObjectId) {
        let Some(e) = &self.editing else { return };
        let usage = e.objects.use_object(id, |usage| {
            usage.holds = usage.holds.saturating_sub(1);
            *usage
        });
        if usage.holds > 0 {
            return;
        }
        e.forget_written_through(id);
        self.other_files().close_idle_others(false);
        e.objects.change_pending(id, |p| {
            p.refused = None;
            p.newlines = None;
            p.write_error.take_if(|error| error.is_reported || usage.is_nameless);
            if let Some(references) = &mut p.references {
                references.writing = false;
            }
        });
        if usage.is_nameless
            && let Err(error) = self.operate(&[id], |c| c.objects().delete_nameless(id))
        {
            tracing::warn!("object at {}: the space of the deleted object is not freed: {error}", id.address);
        }
    }

    fn write_error(&self, id: ObjectId) -> Result<()> {
        self.editing.as_ref().map_or(Ok(()), |e| e.report_write_error(id).and_then(|()| e.report_source_error(id)))
    }

    fn take_written_through(&self, id: ObjectId) -> Vec<ObjectId> {
        self.editing.as_ref().map_or_else(Vec::new, |editing| editing.take_written_through(id))
    }

    fn await_turn(&self) {
        self.editing.iter().for_each(|editing| drop(editing.writer()));
    }

    fn commit(&self) -> Result<()> {
        self.other_files().commit_others();
        let done = self.commit_own();
        self.other_files().close_idle_others(true);
        done
    }

    fn awaits_descriptions(&self) -> bool {
        self.new_files().has_unstored_new_file()
    }

    fn close(&self) -> Result<()> {
        let others = self.other_files().close_others();
        self.compaction().compact_to_close();
        self.commits().commit_all(true)?;
        self.editing()?.unreported_write_error().and(others)
    }
}

impl NativeConnector {
    /// Makes all changes of the mounted file durable.
    fn commit_own(&self) -> Result<()> {
        if self.file(0)?.store.transaction()?.has_failed() {
            return Err(Error::refused(libc::EIO, "an earlier commit failed: what was written since the one before it is lost"));
        }
        let neighbours = self.options.neighbours.is_unsynced();
        let logged = self.used_log().is_none_or(|log| !log.is_uncommitted());
        if !neighbours && logged && self.options.environment.dirty.is_empty() && !self.file(0)?.store.transaction()?.is_dirty() {
            return Ok(());
        }
        self.commits().commit_shared()
    }
}
