//! Changes of objects from text: facts, attributes, headers of `.npy` files, descriptions of new
//! datasets.

use super::parse::{
    AttributeList, NpyHeader, ParsedDataset, parse_dataset_json, parse_datatype_in, parse_fact, parse_references, parse_value,
    variable_string,
};
use super::{npy, references};
use crate::base::datatype::{Class, StringPadding};
use crate::base::{Error, Result};
use crate::connector::edit::{Edit, Elements};
use crate::connector::kinds;
use crate::connector::{Connector, DatasetSpec, Datatype, Form, NewAttribute, ObjectId, ObjectKind, Shape, Value};

/// Facts that say nothing that could be set.
const DESCRIPTIVE: [&str; 10] = ["external", "index", "key", "kind", "log", "offset", "progress", "storage", "value", "virtual"];
/// Attribute of the root group of a netCDF-4 file of the classic model.
const NETCDF_CLASSIC: &[u8] = b"_nc3_strict";
/// Bytes by which elements of new files refer to objects.
const REFERENCE_BYTES: u8 = 8;

/// Whether an attribute may or must be there when it is set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Existing {
    /// Either way.
    Any,
    /// It must not be there (`XATTR_CREATE`).
    Create,
    /// It must be there (`XATTR_REPLACE`).
    Replace,
}

/// A container that is changed.
#[derive(Clone, Copy)]
pub struct Editor<'a> {
    /// The container.
    pub connector: &'a dyn Connector,
    /// How it is changed.
    pub edit: &'a dyn Edit,
}

fn invalid(reason: impl Into<std::borrow::Cow<'static, str>>) -> Error {
    Error::refused(libc::EINVAL, reason)
}

impl<'a> Editor<'a> {
    /// Sets an attribute: an existing one keeps its type and takes the text, a new one becomes a
    /// UTF-8 string.
    pub fn set_attribute(&self, id: ObjectId, name: &[u8], text: &[u8], existing: Existing) -> Result<()> {
        let found = self.connector.attribute(id, name)?;
        match (existing, found.is_some()) {
            (Existing::Create, true) => return Err(Error::refused(libc::EEXIST, "the attribute is there")),
            (Existing::Replace, false) => return Err(Error::refused(libc::ENODATA, "there is no such attribute")),
            _ => {}
        }
        let value = match found {
            Some(old) => parse_value(&with_room(&old, text)?, &old.shape, text)?,
            None => parse_value(&self.text_type(text)?, &Shape::Scalar, text)?,
        };
        self.edit.set_attribute(id, name, &value)
    }

    /// The type of a new attribute: a variable-length UTF-8 string, or one of fixed length where
    /// netCDF-4's classic model knows no others.
    fn text_type(&self, text: &[u8]) -> Result<Datatype> {
        if self.connector.attribute(self.connector.root(), NETCDF_CLASSIC)?.is_none() {
            return variable_string(self.connector.reference_bytes());
        }
        Ok(Datatype::utf8(u32::try_from(text.len().max(1)).map_err(|_| Error::refused(libc::E2BIG, "too long"))?))
    }

    /// Sets a derived fact (`shape`, `dtype`, ..., `dataset`, `attributes`) from its text. Facts
    /// that only describe (`kind`, `index`, `storage`, `offset`, `external`, and the layouts
    /// `external` and `virtual`) are taken and ignored: programs that copy extended attributes set
    /// them.
    pub fn set_fact(&self, id: ObjectId, name: &str, text: &[u8]) -> Result<()> {
        if name == "attributes" {
            return self.set_attributes(id, text);
        }
        if name == "map" {
            return super::map::become_map(self.edit, id, text, self.connector.reference_bytes());
        }
        if super::defined_fact::is_defined_fact(name) && self.connector.info(id)?.kind == ObjectKind::Dataset {
            return super::defined_fact::set(self.connector, self.edit, id, text);
        }
        if name == super::named_types::NAME {
            return super::named_types::set(self.edit, id, text);
        }
        if name == "comment" {
            return self.edit.set_comment(id, text);
        }
        if name == super::link_order::NAME {
            return super::link_order::set(self.edit, id, text);
        }
        self.edit.keep_layout(id);
        let done = self.set_dataset_fact(id, name, text);
        if name == "dataset" {
            self.edit.note_description(id, done.as_ref().err());
        }
        done
    }

    /// Prepares [`Editor::set_fact`] while other operations continue. Errors that setting the fact
    /// reports as well are left to it.
    pub fn prepare_fact(&self, id: ObjectId, name: &str, text: &[u8]) -> Result<Option<Prepared<'a>>> {
        let parsed = parse_fact(name, text, self.connector.reference_bytes());
        let Ok(spec) = parsed.and_then(|p| p.spec(|| Ok(self.connector.dataset(id)?.datatype))) else { return Ok(None) };
        if name == "shape" && self.next_extent(id, &spec)?.is_some() {
            return Ok(None);
        }
        let held = Held::new(self.edit, id);
        Ok(self.edit.prepare_change(id, &spec)?.then(|| Prepared { held }))
    }

    fn set_dataset_fact(&self, id: ObjectId, name: &str, text: &[u8]) -> Result<()> {
        if let Some(number) = references::number(name)
            && self.connector.info(id)?.kind == ObjectKind::Dataset
        {
            return self.set_references(id, number, text);
        }
        if name == "erase" {
            return super::defined::erase(self.connector, self.edit, id, String::from_utf8_lossy(text).as_ref().into());
        }
        let elsewhere = name == "layout" && matches!(text.trim_ascii(), b"external" | b"virtual");
        if elsewhere || DESCRIPTIVE.contains(&name) {
            tracing::debug!("user.h5dir.{name} describes an object and cannot be set");
            return Ok(());
        }
        let width = self.connector.reference_bytes();
        let parsed = if name == "datatype" { Ok(ParsedDataset::default()) } else { parse_fact(name, text, width) };
        let parsed = parsed.map_err(|e| match e {
            Error::Refused { errno: libc::EPERM, reason } => invalid(reason),
            other => other,
        })?;
        if self.connector.info(id)?.kind != ObjectKind::Dataset {
            return Err(invalid("only a dataset can be given types, shapes and layouts"));
        }
        if name == "datatype" {
            let text = std::str::from_utf8(text).map_err(|_| invalid("a datatype is text"))?;
            let datatype = parse_datatype_in(text, width)?;
            return self.edit.become_datatype(id, &datatype, super::text(&datatype).as_bytes());
        }
        let mut spec = parsed.spec(|| Ok(self.connector.dataset(id)?.datatype))?;
        if name == "shape" {
            if let Some(dims) = self.next_extent(id, &spec)? {
                return self.edit.set_extent(id, &dims);
            }
            spec.only_blank = !self.connector.dataset(id)?.is_bytes_file;
        }
        self.edit.change_dataset(id, spec, Elements::Kept)
    }

    /// The extent that the dataset `id` gets where `spec` has a shape of its rank, within its
    /// maximum.
    fn next_extent(&self, id: ObjectId, spec: &DatasetSpec) -> Result<Option<Vec<u64>>> {
        if self.connector.info(id)?.kind != ObjectKind::Dataset {
            return Ok(None);
        }
        let now = self.connector.dataset(id)?.shape;
        let max = now.max();
        let fits = |next: &Vec<u64>| {
            let within = next.iter().zip(&max).all(|(n, max)| max.is_none_or(|max| *n <= max));
            !next.is_empty() && now.dims().is_some_and(|now| now.len() == next.len()) && within
        };
        Ok(spec.shape.clone().filter(fits))
    }

    /// Sets attributes with their types and shapes from a JSON list; those not named stay. Those
    /// that cannot be made are left out, unless there is no other.
    fn set_attributes(&self, id: ObjectId, text: &[u8]) -> Result<()> {
        let list = AttributeList::parse(text, self.connector.reference_bytes())?;
        let (mut left, mut any) = (Vec::new(), false);
        let mut values = list.values();
        let mut next = || -> Option<Result<NewAttribute>> {
            loop {
                match values.next() {
                    Some(Ok(attribute)) => {
                        any = true;
                        return Some(Ok(attribute));
                    }
                    Some(Err(error @ Error::Refused { errno, .. })) if errno != libc::EOPNOTSUPP => return Some(Err(error)),
                    Some(Err(error)) => left.push(error),
                    None if !any && !left.is_empty() => return Some(Err(left.swap_remove(0))),
                    None => return None,
                }
            }
        };
        self.edit.set_attributes(id, &mut std::iter::from_fn(&mut next))?;
        for error in left {
            tracing::warn!("object at {}, left out of user.h5dir.attributes: {error}", id);
        }
        Ok(())
    }

    /// Sets the references of the fact with number `number` by their paths.
    fn set_references(&self, id: ObjectId, number: u64, text: &[u8]) -> Result<()> {
        let first = number.checked_mul(references::PER_FACT).ok_or_else(|| invalid("a dataset has no such references"))?;
        let entries = parse_references(text)?;
        if entries.len() as u64 > references::PER_FACT {
            return Err(invalid(format!("the dataset has no {} references from number {first} on", entries.len())));
        }
        self.edit.set_references(id, first, entries)
    }

    /// Makes a dataset what the header of a `.npy` file says. Its elements stay where only the
    /// number of rows becomes another, unless they are to be `emptied`; else they are gone. Nothing
    /// but the shape is changed where the header says the dataset's type; a type that is shown so
    /// but is another (an enumeration, an array) stays.
    pub fn set_npy(&self, id: ObjectId, header: &NpyHeader, emptied: bool) -> Result<()> {
        self.edit.keep_layout(id);
        let d = self.connector.dataset(id)?;
        let wanted = header.notation();
        let mut spec =
            DatasetSpec { dtype: Some(header.datatype().clone()), shape: Some(header.dims().to_vec()), ..DatasetSpec::default() };
        if let Some((descr, dims)) = npy::notation(&d)
            && descr == wanted.0
        {
            let rows = (dims.len() == wanted.1.len()).then(|| dims.first().zip(wanted.1.first())).flatten();
            let grows = rows.is_some_and(|(_, n)| d.shape.max().first().is_some_and(|max| max.is_none_or(|max| *n <= max)));
            if dims == wanted.1 {
                spec = DatasetSpec::default();
                if !emptied {
                    return Ok(());
                }
            } else if !emptied && grows && d.resizes && dims.get(1..) == wanted.1.get(1..) {
                return self.edit.set_size_as(id, Form::Main, header.data_len());
            }
        }
        self.edit.change_dataset(id, spec, Elements::Dropped)
    }

    /// A new dataset: what `description`, in the form of `user.h5dir.dataset`, makes of a new file.
    pub fn create_dataset(&self, group: ObjectId, name: &[u8], description: &[u8]) -> Result<ObjectId> {
        let spec = parse_dataset_json(description, self.connector.reference_bytes())?.spec(|| Ok(Datatype::byte()))?;
        self.edit.create_dataset(group, name, &spec)
    }
}

/// Keeps an object that loses its last name, until this is dropped.
pub struct Held<'a> {
    edit: &'a dyn Edit,
    id: ObjectId,
}

impl<'a> Held<'a> {
    /// Holds the object `id`.
    pub fn new(edit: &'a dyn Edit, id: ObjectId) -> Self {
        edit.hold(id);
        Held { edit, id }
    }

    /// The object.
    pub fn id(&self) -> ObjectId {
        self.id
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.edit.release(self.id);
    }
}

/// A prepared change of a dataset, which ends when it is dropped.
pub struct Prepared<'a> {
    held: Held<'a>,
}

impl Drop for Prepared<'_> {
    fn drop(&mut self) {
        self.held.edit.end_preparation(self.held.id);
    }
}

/// Whether a new file can be what `description`, in the form of `user.h5dir.dataset`, says.
pub fn check_new_file(description: &[u8]) -> Result<()> {
    kinds::DEFAULT.check_new_dataset(&parse_dataset_json(description, REFERENCE_BYTES)?.spec(|| Ok(Datatype::byte()))?)
}

/// Whether `description`, in the form of `user.h5dir.dataset` with one key, says something that can
/// be done by itself.
pub fn check_fact(description: &[u8]) -> Result<()> {
    let spec = parse_dataset_json(description, REFERENCE_BYTES)?.without_fill();
    kinds::DEFAULT.check_part(&spec)
}

/// The type in which an attribute takes the text: of one string of fixed length that is too short
/// for it the length changes. A named datatype, which other objects may have too, stays as it is.
fn with_room(old: &Value, text: &[u8]) -> Result<Datatype> {
    let datatype = old.datatype.clone();
    let room = usize::try_from(datatype.size).unwrap_or(usize::MAX);
    let Class::String(string) = &datatype.class else { return Ok(datatype) };
    if old.shape != Shape::Scalar || old.committed || text.len() <= room {
        return Ok(datatype);
    }
    let end = usize::from(string.padding == StringPadding::NullTerminated);
    let size = u32::try_from(text.len().saturating_add(end)).map_err(|_| Error::refused(libc::E2BIG, "too long"))?;
    Ok(Datatype { size, ..datatype })
}
