//! Creation, replacement, renaming and removal of an object's attributes, as in libhdf5's
//! H5Oattribute.c.
//!
//! ```text
//! attribute info message (0x15) of a version 2 header:
//! next creation order | heap, name index and order index of dense storage
//! ```
//!
//! Attributes are messages of the object header. Those of a version 2 header move to dense storage
//! (fractal heap and B-trees) when there are more than the header's "max compact" (8) or one is too
//! large for a message, and back when there are fewer than "min dense" (6).
//!
//! A shared message (of the file-wide table) becomes a message of its own when it is changed;
//! [`crate::structures::shared_messages::edit`] describes the effect on the table. An attribute
//! with a committed datatype counts as a link to the datatype. The caller deletes a datatype whose
//! last link it was.

use super::dense::{self, DenseAttribute};
use super::dense_edit;
use crate::base::{Address, Error, Result};
use crate::format::Reader;
use crate::format::message::attribute::{Attribute, name_of};
use crate::format::message::attribute_info::AttributeInfo;
use crate::format::object_header::{Message, SharedMessage, flag, kind};
use crate::meta::Store;
use crate::meta::header_edit::HeaderEdit;
use crate::structures::dense_storage::DenseStorage;
use crate::structures::link_count;
use crate::structures::order::merged;
use crate::structures::shared_messages::SharedMessages;
use std::ops::ControlFlow;

const NAME: &str = "attribute";
/// Most attributes in a header and fewest in dense storage, unless the header states others.
const DEFAULT_PHASE_CHANGE: (u16, u16) = (8, 6);
/// Creation order of attributes whose order is not tracked; also the first order never assigned.
const NO_ORDER: u16 = u16::MAX;

/// Creates or replaces the attribute `name` of the object whose header is at `object`. The
/// attribute message `body` must have that name; a replaced attribute keeps its creation order.
/// `seconds` since 1970 is the time of the change, if the header records times. Errors, before
/// anything is written: the attribute is a shared message that cannot be changed; it is too large
/// for a version 1 header; no creation order is left.
pub fn set(store: &Store, object: Address, name: &[u8], body: &[u8], seconds: u32) -> Result<()> {
    let attribute = Attribute::decode(body, object)?;
    if attribute.name != name || name.is_empty() {
        return Err(Error::corrupt(NAME, object, "the attribute message has another name"));
    }
    let mut editor = Editor::load(store, object)?;
    let place = editor.find(name)?;
    let shared = place.as_ref().is_some_and(|p| editor.is_shared(p));
    let body = &if shared { editor.unshared(body)? } else { body.to_vec() };
    let old = place.as_ref().filter(|_| !shared).map(|p| editor.body(p)).transpose()?;
    let types = Types::load(store, object, old.as_deref(), Some(body))?;
    match place {
        Some(place) => editor.replace(place, name, body)?,
        None => editor.insert(body, 0)?,
    }
    types.apply(store, &mut editor.header)?;
    editor.finish(seconds)
}

/// Removes the attribute `name`; false if the object has none. Errors as those of [`set`].
pub fn remove(store: &Store, object: Address, name: &[u8], seconds: u32) -> Result<bool> {
    let mut editor = Editor::load(store, object)?;
    let Some(place) = editor.find(name)? else { return Ok(false) };
    let old = if editor.is_shared(&place) { None } else { Some(editor.body(&place)?) };
    let types = Types::load(store, object, old.as_deref(), None)?;
    editor.remove(place, name)?;
    types.apply(store, &mut editor.header)?;
    editor.finish(seconds)?;
    Ok(true)
}

/// Renames the attribute `old` to `new` and replaces an attribute `new`. Value and creation order
/// stay. False if the object has no attribute `old`. Errors as those of [`set`].
pub fn rename(store: &Store, object: Address, old: &[u8], new: &[u8], seconds: u32) -> Result<bool> {
    if new.is_empty() || new.contains(&0) {
        return Err(Error::corrupt(NAME, object, "the new name is empty or holds a NUL"));
    }
    let editor = Editor::load(store, object)?;
    let Some(place) = editor.find(old)? else { return Ok(false) };
    if old == new {
        return Ok(true);
    }
    let shared = editor.is_shared(&place);
    let body = editor.body(&place)?;
    let body = renamed(&if shared { editor.unshared(&body)? } else { body }, new, object)?;
    if editor.header.version() == 1 && body.len() > editor.header.body_max() {
        return Err(too_large());
    }
    editor.find(new)?;
    remove(store, object, new, seconds)?;
    // The removal may have moved the attribute.
    let mut editor = Editor::load(store, object)?;
    let Some(place) = editor.find(old)? else { return Ok(false) };
    editor.rename(place, old, new, &body)?;
    // The shared message counted once as a link to its committed datatype, for all its users.
    let types = Types::load(store, object, None, shared.then_some(body.as_slice()))?;
    types.apply(store, &mut editor.header)?;
    editor.finish(seconds)?;
    Ok(true)
}

/// Sets the creation order of attributes, if the object tracks it: those in `names` in their order,
/// the others before or after them, as they were created before the first of them or not. False if
/// nothing changed, as when an attribute is a shared message, which cannot move.
pub fn set_order(store: &Store, object: Address, names: &[Vec<u8>], seconds: u32) -> Result<bool> {
    let mut editor = Editor::load(store, object)?;
    if !editor.header.attribute_order().0 {
        return Ok(false);
    }
    let Some(mut all) = editor.all()? else { return Ok(false) };
    all.sort_by_key(|a| a.creation_order);
    let found: Vec<&[u8]> = all.iter().map(|a| name_of(&a.body, object)).collect::<Result<_>>()?;
    let order = merged(found.len(), |i| found.get(i).copied(), names);
    if order.iter().copied().eq(0..all.len()) {
        return Ok(false);
    }
    editor.remove_all()?;
    for a in order.into_iter().filter_map(|i| all.get(i)) {
        editor.insert(&a.body, a.flags)?;
    }
    editor.finish(seconds)?;
    Ok(true)
}

/// The attribute message `body` with another name.
fn renamed(body: &[u8], name: &[u8], object: Address) -> Result<Vec<u8>> {
    let mut attribute = Attribute::decode(body, object)?;
    if name.len() >= usize::from(u16::MAX) {
        return Err(Error::limit(NAME, object, "a name of 65535 bytes or more"));
    }
    attribute.name = name.to_vec();
    attribute.name_tail = vec![0];
    if !name.is_ascii() {
        (attribute.version, attribute.charset) = (3, 1);
    }
    Ok(attribute.encode())
}

/// Place of an attribute.
enum AttributePlace {
    /// Position of its header message.
    Compact(usize),
    /// Dense storage.
    Dense(DenseAttribute),
}

/// An object during a change of its attributes.
struct Editor<'s> {
    store: &'s Store,
    address: Address,
    header: HeaderEdit,
    /// Attribute info to write; only in version 2 headers.
    info: Option<AttributeInfo>,
}

impl<'s> Editor<'s> {
    fn load(store: &'s Store, address: Address) -> Result<Self> {
        let header = HeaderEdit::load(store, address)?;
        let at = header.find(kind::ATTRIBUTE_INFO).filter(|_| header.version() != 1);
        let info = at.map(|i| AttributeInfo::decode(header.body(i), store.ctx(), address)).transpose()?;
        Ok(Editor { store, address, header, info })
    }

    fn unsupported<T>(&self) -> Result<T> {
        Err(Error::unsupported(NAME, self.address, "a shared message cannot be changed"))
    }

    fn dense(&self) -> Option<&AttributeInfo> {
        self.info.as_ref().filter(|i| i.is_dense())
    }

    /// Finds the attribute `name`. Errors: it is a shared message that cannot be changed.
    fn find(&self, name: &[u8]) -> Result<Option<AttributePlace>> {
        for (i, m) in self.header.messages().enumerate().filter(|(_, m)| m.kind == kind::ATTRIBUTE) {
            let body = if m.flags & flag::SHARED != 0 { &self.shared(m)? } else { &m.body };
            if name_of(body, self.address).is_ok_and(|n| n == name) {
                return if m.flags & flag::SHAREABLE != 0 { self.unsupported() } else { Ok(Some(AttributePlace::Compact(i))) };
            }
        }
        let Some(info) = self.dense() else { return Ok(None) };
        for d in dense::find(self.store, info.fractal_heap, info.name_index, name)? {
            let place = AttributePlace::Dense(d);
            if name_of(&self.body(&place)?, self.address)? == name {
                return Ok(Some(place));
            }
        }
        Ok(None)
    }

    /// Reads the message of an attribute that is in the file's table.
    fn shared(&self, m: &Message) -> Result<Vec<u8>> {
        let mut r = Reader::new(&m.body, "shared message", self.address);
        match SharedMessage::decode(&mut r, self.store.ctx())? {
            SharedMessage::Heap(id) => SharedMessages::attribute(self.store, &id),
            SharedMessage::Object(_) => Err(Error::corrupt("shared message", self.address, "an attribute message of another object")),
        }
    }

    fn is_shared(&self, place: &AttributePlace) -> bool {
        match place {
            AttributePlace::Compact(i) => self.header.message(*i).is_some_and(|m| m.flags & flag::SHARED != 0),
            AttributePlace::Dense(d) => d.shared_heap_id.is_some(),
        }
    }

    fn body(&self, place: &AttributePlace) -> Result<Vec<u8>> {
        match place {
            AttributePlace::Compact(i) => match self.header.message(*i).filter(|m| m.flags & flag::SHARED != 0) {
                Some(m) => self.shared(m),
                None => Ok(self.header.body(*i).to_vec()),
            },
            AttributePlace::Dense(d) => match &d.shared_heap_id {
                Some(id) => SharedMessages::attribute(self.store, id),
                None => Ok(d.body.clone()),
            },
        }
    }

    /// Converts the message of a shared attribute into an unshared one. Copies its datatype and
    /// dataspace out of the table, where they were counted once for all users of the attribute.
    fn unshared(&self, body: &[u8]) -> Result<Vec<u8>> {
        let mut a = Attribute::decode(body, self.address)?;
        let in_table = |kind: u16, bytes: &[u8]| -> Result<Option<Vec<u8>>> {
            let mut r = Reader::new(bytes, "shared message", self.address);
            let SharedMessage::Heap(id) = SharedMessage::decode(&mut r, self.store.ctx())? else { return Ok(None) };
            let lacks = || Error::corrupt("shared message", self.address, "the file has no shared message table");
            SharedMessages::of(self.store)?.ok_or_else(lacks)?.message(self.store, kind, &id).map(Some)
        };
        if a.datatype_shared
            && let Some(datatype) = in_table(kind::DATATYPE, &a.datatype)?
        {
            (a.datatype, a.datatype_shared) = (datatype, false);
        }
        if a.dataspace_shared
            && let Some(dataspace) = in_table(kind::DATASPACE, &a.dataspace)?
        {
            (a.dataspace, a.dataspace_shared) = (dataspace, false);
        }
        Ok(a.encode())
    }

    /// Number of attributes in the header.
    fn compact_count(&self) -> usize {
        self.header.messages().filter(|m| m.kind == kind::ATTRIBUTE).count()
    }

    fn phase_change(&self) -> (usize, usize) {
        let (most, fewest) = self.header.prefix().phase_change.unwrap_or(DEFAULT_PHASE_CHANGE);
        (usize::from(most), usize::from(fewest))
    }

    /// Errors: `body` is too large for a version 1 header, which has no dense storage.
    fn check_size(&self, body: &[u8]) -> Result<()> {
        if self.header.version() == 1 && body.len() > self.header.body_max() {
            return Err(too_large());
        }
        Ok(())
    }

    fn insert(&mut self, body: &[u8], flags: u8) -> Result<()> {
        self.check_size(body)?;
        if self.header.version() == 1 {
            self.header.add(kind::ATTRIBUTE, flags, body.to_vec());
            return Ok(());
        }
        if self.info.as_ref().is_some_and(|info| info.max_creation_order == Some(NO_ORDER)) {
            self.renumber()?;
        }
        let mut info = match &self.info {
            Some(info) => info.clone(),
            None => self.new_info(),
        };
        let order = info.max_creation_order.unwrap_or(NO_ORDER);
        if let Some(next) = &mut info.max_creation_order {
            if *next == NO_ORDER {
                return Err(Error::limit(NAME, self.address, "no creation order is left"));
            }
            *next = next.saturating_add(1);
        }
        let full = self.compact_count() >= self.phase_change().0 || body.len() > self.header.body_max();
        if !info.is_dense() && full {
            self.check_unshared()?;
            self.info = Some(info);
            self.make_dense()?;
        } else {
            self.info = Some(info);
        }
        if let Some(info) = self.dense() {
            return dense_edit::insert(self.store, &storage(info), body, flags, u32::from(order));
        }
        let i = self.header.add(kind::ATTRIBUTE, flags, body.to_vec());
        self.header.set_creation_index(i, order);
        Ok(())
    }

    /// Attribute info, without dense storage, of an object that has no such message.
    fn new_info(&self) -> AttributeInfo {
        let (tracked, indexed) = self.header.attribute_order();
        let used = self.header.messages().filter(|m| m.kind == kind::ATTRIBUTE).filter_map(|m| m.creation_index).max();
        AttributeInfo {
            max_creation_order: tracked.then_some(used.map_or(0, |n| n.saturating_add(1))),
            fractal_heap: Address::UNDEF,
            name_index: Address::UNDEF,
            creation_index: indexed.then_some(Address::UNDEF),
        }
    }

    fn replace(&mut self, place: AttributePlace, name: &[u8], body: &[u8]) -> Result<()> {
        self.rename(place, name, name, body)
    }

    /// Replaces the message of the attribute `old` by `body`, which has the name `new`.
    fn rename(&mut self, place: AttributePlace, old: &[u8], new: &[u8], body: &[u8]) -> Result<()> {
        self.check_size(body)?;
        if let AttributePlace::Compact(i) = place {
            if body.len() <= self.header.body_max() {
                self.header.set_body(i, body.to_vec());
                if let Some(flags) = self.header.message(i).map(|m| m.flags).filter(|f| f & flag::SHARED != 0) {
                    self.header.set_flags(i, flags & !flag::SHARED);
                }
                return Ok(());
            }
            self.check_unshared()?;
            if self.info.is_none() {
                self.info = Some(self.new_info());
            }
            self.make_dense()?;
        }
        let Some(info) = self.dense() else { return Ok(()) };
        let at = storage(info);
        if old == new {
            return dense_edit::replace(self.store, &at, body).map(drop);
        }
        let Some(stored) = dense_edit::remove(self.store, &at, old)? else { return Ok(()) };
        dense_edit::insert(self.store, &at, body, stored.flags & !flag::SHARED, stored.creation_order)
    }

    fn remove(&mut self, place: AttributePlace, name: &[u8]) -> Result<()> {
        match place {
            AttributePlace::Compact(i) => self.header.remove(i),
            AttributePlace::Dense(_) => {
                let Some(info) = self.dense() else { return Ok(()) };
                dense_edit::remove(self.store, &storage(info), name)?;
                self.make_compact()?;
            }
        }
        if self.dense().is_none() && self.compact_count() == 0 {
            self.info = None;
        }
        Ok(())
    }

    /// All attributes of an object with a version 2 header; `None` if one is a shared message.
    fn all(&self) -> Result<Option<Vec<DenseAttribute>>> {
        let compact = self.header.messages().filter(|m| m.kind == kind::ATTRIBUTE).map(|m| DenseAttribute {
            body: m.body.clone(),
            flags: m.flags,
            creation_order: u32::from(m.creation_index.unwrap_or(NO_ORDER)),
            shared_heap_id: None,
        });
        let mut all: Vec<DenseAttribute> = compact.collect();
        let mut skipped = None;
        if let Some(info) = self.dense() {
            skipped = dense::list(self.store, info.fractal_heap, info.name_index, &mut |d| {
                all.push(d);
                Ok(ControlFlow::Continue(()))
            })?;
        }
        let shared = |d: &DenseAttribute| d.shared_heap_id.is_some() || d.flags & (flag::SHARED | flag::SHAREABLE) != 0;
        match skipped {
            Some(damage) => Err(damage),
            None => Ok((!all.iter().any(shared)).then_some(all)),
        }
    }

    /// Assigns creation orders anew, without those of removed attributes, in the present order.
    fn renumber(&mut self) -> Result<()> {
        let Some(mut all) = self.all()?.filter(|all| all.len() < usize::from(NO_ORDER)) else { return Ok(()) };
        all.sort_by_key(|a| a.creation_order);
        self.remove_all()?;
        all.iter().try_for_each(|a| self.insert(&a.body, a.flags))
    }

    /// Removes all attributes; the next one has the creation order 0.
    fn remove_all(&mut self) -> Result<()> {
        while let Some(i) = self.header.find(kind::ATTRIBUTE) {
            self.header.remove(i);
        }
        if let Some(info) = self.dense() {
            dense_edit::delete(self.store, &storage(info))?;
        }
        self.info = None;
        Ok(())
    }

    /// Errors: the shared message table refers to an attribute in the header, which therefore
    /// cannot move.
    fn check_unshared(&self) -> Result<()> {
        let shared = |m: &Message| m.kind == kind::ATTRIBUTE && m.flags & flag::SHAREABLE != 0;
        if self.header.messages().any(shared) { self.unsupported() } else { Ok(()) }
    }

    /// Moves all attributes of the header to dense storage.
    fn make_dense(&mut self) -> Result<()> {
        let Some(info) = self.info.as_mut().filter(|i| !i.is_dense()) else { return Ok(()) };
        let at = dense_edit::create(self.store, info.creation_index.is_some())?;
        (info.fractal_heap, info.name_index, info.creation_index) = (at.heap, at.name_index, at.creation_index);
        while let Some(i) = self.header.find(kind::ATTRIBUTE) {
            let Some(m) = self.header.message(i) else { break };
            let order = u32::from(m.creation_index.unwrap_or(NO_ORDER));
            let flags = m.flags & !flag::SHARED;
            let body = self.body(&AttributePlace::Compact(i))?;
            let body = if m.flags == flags { body } else { self.unshared(&body)? };
            // The shared message counted once as a link to its committed datatype, for all its
            // users.
            if m.flags != flags
                && let Some(datatype) = committed_type(self.store, self.address, &body)?
            {
                link_count::add_reference(self.store, datatype)?;
            }
            dense_edit::insert(self.store, &at, &body, flags, order)?;
            self.header.remove(i);
        }
        Ok(())
    }

    /// Moves all attributes from dense storage to the header if they are few enough and all fit.
    fn make_compact(&mut self) -> Result<()> {
        let fewest = self.phase_change().1;
        let Some(info) = self.dense().cloned() else { return Ok(()) };
        let longest = self.header.body_max();
        let mut all: Vec<DenseAttribute> = Vec::new();
        let mut fit = true;
        dense::list(self.store, info.fractal_heap, info.name_index, &mut |d| {
            fit &= d.shared_heap_id.is_none() && d.flags & (flag::SHARED | flag::SHAREABLE) == 0 && d.body.len() <= longest;
            all.push(d);
            let stop = !fit || all.len() > fewest;
            Ok(if stop { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
        })?;
        if !all.is_empty() && (!fit || all.len() >= fewest) {
            return Ok(());
        }
        all.sort_by_key(|d| d.creation_order);
        for d in all {
            let i = self.header.add(kind::ATTRIBUTE, d.flags, d.body);
            self.header.set_creation_index(i, u16::try_from(d.creation_order).unwrap_or(NO_ORDER));
        }
        dense_edit::delete(self.store, &storage(&info))?;
        if let Some(info) = &mut self.info {
            info.fractal_heap = Address::UNDEF;
            info.name_index = Address::UNDEF;
            info.creation_index = info.creation_index.map(|_| Address::UNDEF);
        }
        Ok(())
    }

    /// Writes the header with the changed attribute info message.
    fn finish(mut self, seconds: u32) -> Result<()> {
        let at = self.header.find(kind::ATTRIBUTE_INFO).filter(|_| self.header.version() != 1);
        match (at, &self.info) {
            (Some(i), Some(info)) => {
                let body = info.encode(self.store.ctx())?;
                self.header.set_body(i, body);
            }
            (None, Some(info)) => {
                let body = info.encode(self.store.ctx())?;
                self.header.add(kind::ATTRIBUTE_INFO, flag::DONT_SHARE, body);
            }
            (Some(i), None) => self.header.remove(i),
            (None, None) => {}
        }
        self.header.note_change(seconds);
        self.header.write(self.store)
    }
}

/// Dense storage of an attribute info message.
fn storage(info: &AttributeInfo) -> DenseStorage {
    DenseStorage { heap: info.fractal_heap, name_index: info.name_index, creation_index: info.creation_index }
}

/// Link counts of committed datatypes that change with an attribute.
struct Types {
    /// Change of the object's own link count.
    own: i32,
    others: Vec<HeaderEdit>,
}

impl Types {
    /// Loads the datatypes whose link counts change when `new` replaces `old`.
    fn load(store: &Store, object: Address, old: Option<&[u8]>, new: Option<&[u8]>) -> Result<Types> {
        let committed = |body: Option<&[u8]>| body.map_or(Ok(None), |b| committed_type(store, object, b));
        let (old, new) = (committed(old)?, committed(new)?);
        let mut types = Types { own: 0, others: Vec::new() };
        if old == new {
            return Ok(types);
        }
        for (address, change) in [(old, -1i32), (new, 1)] {
            let Some(address) = address else { continue };
            if address == object {
                types.own = types.own.saturating_add(change);
                continue;
            }
            let mut header = HeaderEdit::load(store, address)?;
            // Not every writer counts what uses a datatype.
            if change > 0 || header.links() > 0 {
                header.add_links(change)?;
            }
            types.others.push(header);
        }
        Ok(types)
    }

    /// Writes the changed link counts; the object's own one into its header `own`.
    fn apply(self, store: &Store, own: &mut HeaderEdit) -> Result<()> {
        if self.own > 0 || self.own < 0 && own.links() > 0 {
            own.add_links(self.own)?;
        }
        self.others.into_iter().try_for_each(|header| header.write(store))
    }
}

/// Error for an attribute that does not fit into a version 1 object header.
fn too_large() -> Error {
    Error::refused(libc::E2BIG, "attributes of 64 KiB or more cannot be in a version 1 object header")
}

/// Address of the committed datatype of the attribute message `body`, if it has one.
fn committed_type(store: &Store, object: Address, body: &[u8]) -> Result<Option<Address>> {
    let attribute = Attribute::decode(body, object)?;
    if !attribute.datatype_shared {
        return Ok(None);
    }
    match SharedMessage::decode(&mut Reader::new(&attribute.datatype, "shared message", object), store.ctx())? {
        SharedMessage::Object(address) => Ok(Some(address)),
        // Link counts of messages in the file's table may be too high.
        SharedMessage::Heap(_) => Ok(None),
    }
}

#[cfg(test)]
#[path = "edit_tests.rs"]
mod tests;
