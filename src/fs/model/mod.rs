//! Objects as their containers model them: what `h5dir cp` moves between containers beside bytes.
//!
//! Errors have their reasons. No kernel shows the file systems of both sides, so stale copies are
//! not noted.

mod attributes;
mod brief;
mod chunks;
mod defined;
mod differences;
mod links;
mod print;
mod references;

use super::changes::ChangeLog;
use super::done::Invalidate;
use super::edit::NameEditor;
pub use super::errno::errno;
use super::mounted::Mounted;
use super::namespace::Namespace;
use super::retry::consistent;
use super::types::{Errno, FsResult, Ino};
use super::views::Class;
use crate::base::{Error, Result};
use crate::connector::edit::{Edit, Elements, NewReference};
pub use crate::connector::exchange::Definition;
use crate::connector::exchange::{self, Object, Slab, Slabs};
use crate::connector::{Datatype, NewAttribute, ObjectId, ObjectKind};
pub use crate::connector::{HyperslabDim, SourceMapping};
use crate::present;
pub use crate::present::{AttributeBrief, ElementsBrief, ObjectBrief, cut};
pub use chunks::{ChunkStorage, Original, StoredChunk, StoredSource};
pub use defined::{DefinedElements, Input, InputForm, PointFiles, SelectionText, WriteProgress, point_files};
pub use differences::{Difference, ElementBytes};
pub use links::{SharedGroup, StoredLink};
pub use print::{BARS, Dialect, Form, ImageForm, Statistics};
pub use references::LeftOut;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes of attributes that one change sets, about.
const ATTRIBUTES_BYTES: usize = 16 << 20;

/// What the objects of a file system share.
pub(super) struct Models {
    pub(super) mounted: Arc<Mounted>,
    pub(super) namespace: Arc<Namespace>,
    pub(super) changes: Arc<ChangeLog>,
    pub(super) names: Arc<NameEditor>,
    /// Distinguishes the containers that this process opened.
    number: u64,
}

/// The next number of a container.
static NEXT_NUMBER: AtomicU64 = AtomicU64::new(0);

impl Models {
    /// Of a container that was opened just now.
    pub(super) fn new(mounted: Arc<Mounted>, namespace: Arc<Namespace>, changes: Arc<ChangeLog>, names: Arc<NameEditor>) -> Models {
        Models { mounted, namespace, changes, names, number: NEXT_NUMBER.fetch_add(1, Ordering::Relaxed) }
    }

    fn editor(&self) -> Result<&dyn Edit> {
        self.mounted.editor().map_err(without_reason)
    }
}

/// An object of a file system.
pub struct ObjectModel {
    models: Arc<Models>,
    ino: Ino,
    id: ObjectId,
}

/// Which bytes of an object a copy gets, before [`ObjectModel::take_rest`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CopiedBytes {
    /// It gets none: it is no dataset, its elements stay where they are, or they are taken as
    /// values.
    None,
    /// It gets those of its file.
    Main,
    /// It gets those of the exact form: the lines of its file do not give its strings.
    Exact,
}

/// What a copy did not get.
#[derive(Debug, Default)]
pub struct Lost {
    /// Elements that are undefined in the source are defined.
    pub undefined: bool,
    /// A named datatype is another one where it is copied to: the copy has a type of its own.
    pub named_type: bool,
    /// A named datatype has no path: the copy has a type of its own.
    pub unnamed_type: bool,
    /// A file with a source of a virtual dataset is not where the copy is.
    pub source: Option<Vec<u8>>,
    /// Attributes that the container cannot have.
    pub attributes: Vec<(Vec<u8>, Error)>,
}

/// The error of an operation without a reason.
fn without_reason(Errno(errno): Errno) -> Error {
    Error::refused(errno, io::Error::from_raw_os_error(errno).to_string())
}

/// The result of setting references, which is no error if too many of them wait for objects.
fn waiting(done: Result<()>) -> Result<()> {
    match done {
        Err(Error::Refused { errno: libc::EBUSY, .. }) => Ok(()),
        done => done,
    }
}

/// Sets `attributes` of the object `id`, those of about [`ATTRIBUTES_BYTES`] in one change. They
/// are read before the change: they may come from the same container.
fn set_all(edit: &dyn Edit, id: ObjectId, attributes: &mut dyn Iterator<Item = Result<NewAttribute>>) -> Result<()> {
    let mut bytes = 0usize;
    let mut batch = Vec::new();
    for attribute in attributes {
        let attribute = attribute?;
        bytes = bytes.saturating_add(attribute.name.len()).saturating_add(attribute.value.form.len());
        batch.push(Ok(attribute));
        if bytes >= ATTRIBUTES_BYTES {
            edit.set_attributes(id, &mut std::mem::take(&mut batch).into_iter())?;
            bytes = 0;
        }
    }
    if batch.is_empty() { Ok(()) } else { edit.set_attributes(id, &mut batch.into_iter()) }
}

fn is_not_supported(e: &Error) -> bool {
    matches!(e, Error::Refused { errno: libc::EOPNOTSUPP, .. })
}

impl ObjectModel {
    /// The object of the node `ino`. Errors: `EOPNOTSUPP`, it shows none.
    pub(super) fn of(models: &Arc<Models>, ino: Ino) -> FsResult<ObjectModel> {
        let Models { mounted, namespace, .. } = &**models;
        let node = namespace.living(ino)?;
        let is_object = node.item.view.edit().is_some_and(|view| view.is_object(&node.item));
        let id = node.item.object().filter(|_| is_object).ok_or(Errno(libc::EOPNOTSUPP))?;
        let is_map = || mounted.connector.info(id).is_ok_and(|info| info.kind == ObjectKind::Map);
        if node.item.class == Class::File && is_map() {
            // A pair of it.
            return Err(Errno(libc::EOPNOTSUPP));
        }
        Ok(ObjectModel { models: models.clone(), ino, id })
    }

    fn object(&self) -> Object<'_> {
        Object { connector: &*self.models.mounted.connector, id: self.id }
    }

    /// What `f` reads of the object, in one state of its container.
    fn read<T>(&self, f: impl Fn(Object<'_>) -> Result<T>) -> Result<T> {
        consistent(&self.models.mounted, || f(self.object()), |_| ())
    }

    /// What a copy in the container of `to` shall be, and how it gets its elements. `mapped`: the
    /// elements of a virtual dataset stay where they are, if that container has such datasets. May
    /// cost a pass over strings.
    pub fn definition(&self, to: &ObjectModel, mapped: bool) -> Result<(Definition, CopiedBytes)> {
        let (to, sizeof_addr) = (&to.models.mounted.connector, to.models.mounted.connector.reference_bytes());
        let mapped = mapped && to.takes_mappings();
        self.read(|object| {
            let definition = Definition::of(object, sizeof_addr)?;
            let definition = if mapped { definition.mapped_as(object)? } else { definition };
            let has_bytes =
                matches!(definition, Definition::Dataset(_)) && !definition.is_elsewhere() && !exchange::is_copied_as_value(object)?;
            let bytes = match has_bytes {
                false => CopiedBytes::None,
                true if exchange::needs_exact_form(object)? => CopiedBytes::Exact,
                true => CopiedBytes::Main,
            };
            Ok((definition, bytes))
        })
    }

    /// True for a dataset whose elements are in other files or datasets.
    pub fn is_elsewhere(&self) -> Result<bool> {
        self.read(|object| {
            let is_dataset = object.connector.info(object.id)?.kind == ObjectKind::Dataset;
            Ok(is_dataset && object.connector.dataset(object.id)?.is_elsewhere)
        })
    }

    /// Bytes of one row of a dataset that can get another number of rows: of one coordinate of its
    /// first dimension. `None`: it cannot, or has elements of variable length, or is a file of
    /// bytes, which has any size.
    pub fn row_bytes(&self) -> Result<Option<u64>> {
        self.read(|object| {
            if object.connector.info(object.id)?.kind != ObjectKind::Dataset {
                return Ok(None);
            }
            let d = object.connector.dataset(object.id)?;
            let dims = d.shape.dims().unwrap_or_default();
            if !d.resizes || d.datatype.contains_vlen() || d.datatype == Datatype::byte() && dims.len() == 1 {
                return Ok(None);
            }
            let row = dims.iter().skip(1).try_fold(d.datatype.element_size(), |n, d| n.checked_mul(*d));
            Ok(row.filter(|row| *row > 0))
        })
    }

    /// What a copy in a container whose elements refer by 8 bytes shall be.
    pub fn own_definition(&self) -> Result<Definition> {
        self.definition_for(8)
    }

    fn definition_for(&self, sizeof_addr: u8) -> Result<Definition> {
        self.read(|object| Definition::of(object, sizeof_addr))
    }

    /// Why links or attributes of the object are missing in the lists that were read.
    pub fn damage(&self) -> Option<Error> {
        self.object().connector.damage(self.id)
    }

    /// True if the lines of the dataset do not give its strings.
    pub fn needs_exact_form(&self) -> Result<bool> {
        self.read(exchange::needs_exact_form)
    }

    /// True if it or an attribute is of a named datatype without a path, which no text names.
    pub fn has_unnamed_type(&self) -> Result<bool> {
        Ok(self.read(exchange::named_types)?.iter().any(|(_, path)| path.is_none()))
    }

    /// True if it is a dataset.
    pub fn is_dataset(&self) -> bool {
        self.read(|object| object.connector.info(object.id)).is_ok_and(|info| info.kind == ObjectKind::Dataset)
    }

    /// True if the file of the dataset has a line for each of its strings.
    pub fn has_lines(&self) -> Result<bool> {
        self.read(|object| Ok(object.connector.info(object.id)?.kind == ObjectKind::Dataset && object.connector.dataset(object.id)?.lines))
    }

    /// What differs in the copy `to`; `None`: nothing.
    pub fn difference(&self, to: &ObjectModel) -> Result<Option<&'static str>> {
        self.read(|object| exchange::difference(object, to.object()))
    }

    /// Makes the object, which is new, what `definition` states.
    pub fn define(&self, definition: &Definition) -> Result<()> {
        let size = self.models.changes.size(self.id);
        self.change(size, |edit| match definition {
            Definition::Group => Ok(()),
            Definition::Datatype(datatype) => edit.become_datatype(self.id, datatype, present::text(datatype).as_bytes()),
            Definition::Map(types) => {
                let none =
                    || Error::refused(libc::EOPNOTSUPP, "it is a map, and HDF5 files have none; copy it to a container in an object store");
                edit.maps().ok_or_else(none)?.become_map(self.id, types)
            }
            Definition::Dataset(spec) => {
                edit.keep_layout(self.id);
                let done = edit.change_dataset(self.id, (**spec).clone(), Elements::Kept);
                edit.note_description(self.id, done.as_ref().err());
                done
            }
        })
    }

    /// Gives the object what `from` has beside its definition and its bytes. References to objects
    /// that are not there yet are nil until they are; if too many wait so, the caller does this
    /// again when all objects are there.
    pub fn take_rest(&self, from: &ObjectModel) -> Result<Lost> {
        let mut lost = Lost::default();
        // None of it changes the size.
        self.change(None, |edit| {
            let kind = from.read(|object| Ok(object.connector.info(object.id)?.kind))?;
            if kind == ObjectKind::Dataset && self.object().connector.dataset(self.id)?.is_elsewhere {
                // A source that must not be opened may be there: who reads it gets the error.
                lost.source = exchange::missing_source(self.object()).unwrap_or(None);
            } else if kind == ObjectKind::Dataset {
                if from.read(exchange::is_copied_as_value)? {
                    let sizeof_addr = self.models.mounted.connector.reference_bytes();
                    edit.set_elements(self.id, &from.read(|object| exchange::whole(object, sizeof_addr))?)?;
                } else {
                    waiting(self.take_references(from, edit))?;
                }
                lost.undefined = self.take_defined(from, edit)?;
            }
            edit.set_properties(self.id, &from.read(|object| object.connector.properties(object.id))?)?;
            if kind == ObjectKind::Group
                && let Some(names) = from.read(exchange::created_links)?
            {
                edit.set_link_order(self.id, names)?;
            }
            waiting(self.take_attributes(from, edit, &mut lost.attributes))?;
            for (attribute, path) in from.read(exchange::named_types)? {
                let Some(path) = path else {
                    lost.unnamed_type = true;
                    continue;
                };
                match edit.use_datatype(self.id, attribute.as_deref(), &path) {
                    // At its path is another type, or none.
                    Err(Error::Refused { errno: libc::EINVAL, .. }) => lost.named_type = true,
                    done => done?,
                }
            }
            match from.read(|object| object.connector.comment(object.id))? {
                Some(comment) => edit.set_comment(self.id, &comment),
                None => Ok(()),
            }
        })?;
        Ok(lost)
    }

    fn take_references(&self, from: &ObjectModel, edit: &dyn Edit) -> Result<()> {
        let mut first = 0u64;
        loop {
            let batch: Vec<NewReference> = from.read(|object| exchange::references(object, first))?;
            if batch.is_empty() {
                return Ok(());
            }
            let next = first.saturating_add(batch.len() as u64);
            edit.set_references(self.id, first, batch)?;
            first = next;
        }
    }

    /// Returns whether elements that are undefined in `from` are defined.
    fn take_defined(&self, from: &ObjectModel, edit: &dyn Edit) -> Result<bool> {
        let d = from.read(|object| object.connector.dataset(object.id))?;
        if !exchange::knows_defined(from.object(), &d) {
            return Ok(false);
        }
        let knows = exchange::knows_defined(self.object(), &self.models.mounted.connector.dataset(self.id)?);
        let erase = edit.erase().filter(|_| knows);
        let read = |slab: &Slab| from.read(|object| exchange::defined_runs(object, &d, slab));
        let mut slabs = Slabs::of(&d);
        while let Some((slab, runs)) = slabs.next(&read)? {
            match erase {
                Some(erase) => erase.set_defined(self.id, slab.elements, &runs)?,
                None if d.is_logged || exchange::is_whole(&slab.elements, &runs) => {}
                None => return Ok(true),
            }
        }
        Ok(false)
    }

    fn take_attributes(&self, from: &ObjectModel, edit: &dyn Edit, lost: &mut Vec<(Vec<u8>, Error)>) -> Result<()> {
        let names = from.read(|object| object.connector.attributes(object.id))?;
        if names.is_empty() {
            return Ok(());
        }
        let sizeof_addr = self.models.mounted.connector.reference_bytes();
        // One that was removed meanwhile is left out.
        let value = |name: &Vec<u8>| from.read(|object| exchange::attribute(object, name, sizeof_addr)).transpose();
        match set_all(edit, self.id, &mut names.iter().filter_map(value)) {
            Err(e) if is_not_supported(&e) => {}
            done => return done,
        }
        // One of them is refused: the others are set one by one.
        for name in names.iter() {
            let Some(attribute) = value(name) else { continue };
            match edit.set_attributes(self.id, &mut std::iter::once(attribute)) {
                Err(e) if is_not_supported(&e) => lost.push((name.clone(), e)),
                done => done?,
            }
        }
        Ok(())
    }

    /// Changes the object by `f`. `size`: that before, if it may change.
    fn change<T>(&self, size: Option<u64>, f: impl FnOnce(&dyn Edit) -> Result<T>) -> Result<T> {
        let edit = self.models.editor()?;
        let _names = self.models.namespace.lock_alone(&[self.ino]);
        let kind = || self.models.mounted.connector.info(self.id).map(|info| info.kind).ok();
        let before = kind();
        let done = f(edit).inspect_err(|e| self.models.mounted.reasons.note(self.id, e))?;
        let mut unseen = Invalidate::default();
        if kind() != before {
            self.models.changes.kind_changed(self.id, &mut unseen);
        }
        self.models.changes.attribute_changed(self.id, size, &mut unseen);
        Ok(done)
    }
}

/// `e` as the operations of a file system return it: the errno alone where it decides what follows,
/// else the reason.
pub fn io_error(e: &Error) -> io::Error {
    match errno(e).0 {
        code @ (libc::ENOSPC | libc::EDQUOT | libc::EROFS) => io::Error::from_raw_os_error(code),
        code => io::Error::new(io::Error::from_raw_os_error(code).kind(), e.to_string()),
    }
}
