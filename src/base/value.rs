//! Values: elements with their type and shape, as they are read and as they are to be written.

use super::datatype::Datatype;
use super::parts::{Budget, Parts, Target};
use super::shape::Shape;
use super::variable_form::{NumberedTargets, VariableForm};
use super::{Address, Error, Result};
use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

/// Most bytes of a value in exact form.
pub const EXACT_BYTES_MAX: u64 = 64 << 20;

/// Where `elements` of type `datatype` that follow one another lie in the bytes of all. Errors:
/// beyond the memory.
pub fn byte_range(datatype: &Datatype, elements: &Range<u64>) -> Result<Range<usize>> {
    let at = |n: u64| n.checked_mul(datatype.element_size()).and_then(|at| usize::try_from(at).ok());
    let range = at(elements.start).zip(at(elements.end)).map(|(start, end)| start..end.max(start));
    range.ok_or_else(|| Error::limit("value", Address::UNDEF, "larger than the memory"))
}

/// The extent of elements that follow one another.
pub fn list_of(elements: &Range<u64>) -> Shape {
    Shape::Simple { dims: vec![elements.end.saturating_sub(elements.start)], max: None }
}

/// Elements in their stored form.
#[derive(Debug, Clone, Copy)]
pub struct Elements<'a> {
    /// Their datatype.
    pub datatype: &'a Datatype,
    /// Their extent.
    pub shape: &'a Shape,
    /// Their bytes, elements one after another, last dimension fastest.
    pub bytes: &'a [u8],
}

impl Elements<'_> {
    /// The elements in exact form, at most [`EXACT_BYTES_MAX`] bytes; `parts` reads what lies
    /// outside them.
    pub fn exact(&self, parts: &dyn Parts) -> Result<Cow<'_, [u8]>> {
        if !self.datatype.contains_vlen() {
            return Ok(Cow::Borrowed(self.bytes));
        }
        let form = VariableForm::of(self.datatype);
        let mut out = Vec::new();
        let size = usize::try_from(self.datatype.element_size()).unwrap_or(usize::MAX).max(1);
        let mut budget = Budget::tight(EXACT_BYTES_MAX);
        for element in self.bytes.chunks_exact(size) {
            form.exact_within(element, parts, &mut budget, &mut out)?;
            if out.len() as u64 > EXACT_BYTES_MAX {
                return Err(Error::limit("attribute", Address::UNDEF, format!("more than {EXACT_BYTES_MAX} bytes in exact form")));
            }
        }
        Ok(Cow::Owned(out))
    }
}

/// The value of an attribute.
#[derive(Clone)]
pub struct Value {
    /// Type of its elements.
    pub datatype: Datatype,
    /// True when the type is a named one, which other objects may have too.
    pub committed: bool,
    /// Its shape.
    pub shape: Shape,
    /// Its elements as stored.
    pub bytes: Vec<u8>,
    /// Reads what lies outside the elements.
    pub parts: Arc<dyn Parts + Send + Sync>,
}

impl Value {
    /// The elements.
    pub fn elements(&self) -> Elements<'_> {
        Elements { datatype: &self.datatype, shape: &self.shape, bytes: &self.bytes }
    }

    /// The elements in exact form, at most [`EXACT_BYTES_MAX`] bytes.
    pub fn exact(self) -> Result<Vec<u8>> {
        if !self.datatype.contains_vlen() {
            return Ok(self.bytes);
        }
        Ok(self.elements().exact(&*self.parts)?.into_owned())
    }
}

/// A value to be written. No container is needed to make one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewValue {
    /// Type of its elements.
    pub datatype: Datatype,
    /// Its shape.
    pub shape: Shape,
    /// The elements in exact form, with the number of its target (u32, lowest byte first, from 1
    /// on; 0: nil) in place of each reference.
    pub form: Vec<u8>,
    /// What the references name.
    pub targets: Vec<Target>,
}

impl NewValue {
    /// True if `other` has the same elements, perhaps with a type in other words.
    pub fn has_elements_of(&self, other: &NewValue) -> bool {
        self.shape == other.shape && self.form == other.form && self.targets == other.targets
    }

    /// Elements without parts outside their bytes.
    pub fn plain(datatype: Datatype, shape: Shape, bytes: Vec<u8>) -> NewValue {
        NewValue { datatype, shape, form: bytes, targets: Vec::new() }
    }

    /// What sets `elements` in another container, where their type is `datatype`: at most
    /// [`EXACT_BYTES_MAX`] bytes. `parts` reads what lies outside of them.
    pub fn of(elements: &Elements<'_>, datatype: Datatype, parts: &dyn Parts) -> Result<NewValue> {
        let (mut form, mut targets) = (Vec::new(), NumberedTargets::default());
        let numbered = VariableForm::numbered(elements.datatype);
        if numbered.is_verbatim() {
            return Ok(NewValue::plain(datatype, elements.shape.clone(), elements.bytes.to_vec()));
        }
        let size = usize::try_from(elements.datatype.element_size()).unwrap_or(usize::MAX).max(1);
        let mut budget = Budget::tight(EXACT_BYTES_MAX);
        for element in elements.bytes.chunks_exact(size) {
            numbered.numbered_within(element, parts, &mut budget, &mut targets, &mut form)?;
        }
        Ok(NewValue { datatype, shape: elements.shape.clone(), form, targets: targets.into_list() })
    }

    /// [`NewValue::of`] a value that is not needed any more.
    pub fn from_value(value: Value, datatype: Datatype) -> Result<NewValue> {
        if VariableForm::numbered(&value.datatype).is_verbatim() {
            return Ok(NewValue::plain(datatype, value.shape, value.bytes));
        }
        NewValue::of(&value.elements(), datatype, &*value.parts)
    }
}

/// An attribute to be written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewAttribute {
    /// Its name, not empty and without NUL.
    pub name: Vec<u8>,
    /// Its value.
    pub value: NewValue,
}
