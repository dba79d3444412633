//! Type and attributes of a dataset that a file of bytes replaces.
//!
//! Editors and `sed -i` write a new file and rename it over the old one. If the new file has
//! neither a declared type nor attributes, and its bytes fit the type of the dataset that it
//! replaces, it becomes such a dataset. It stays the same object, so that a descriptor on it stays
//! valid.

use crate::base::Result;
use crate::base::datatype::{Class, StringPadding, StringType};
use crate::connector::edit::Edit;
use crate::connector::{Connector, DatasetInfo, Form, ObjectId};
use crate::present::{self, Editor};
use serde_json::Value;

/// Layouts whose elements are in other places than the dataset.
const ELSEWHERE: [&str; 2] = ["external", "virtual"];
/// Properties of a dataset that do not depend on its elements.
const PROPERTIES: [&str; 7] = ["dtype", "maxshape", "chunks", "filters", "fillvalue", "layout", "profile"];
/// Longest text of attributes, bytes.
const ATTRIBUTES_MAX: u64 = 64 << 20;
/// Longest file of lines, bytes.
const LINES_MAX: u64 = 128 << 20;

/// A container that is changed.
#[derive(Clone, Copy)]
pub struct Container<'a> {
    /// The container.
    pub connector: &'a dyn Connector,
    /// How it is changed.
    pub edit: &'a dyn Edit,
}

impl Container<'_> {
    /// Gives the dataset `new` the type and the attributes of `old`, if it has none and its bytes
    /// fit; false if not.
    pub fn keep_type(&self, new: ObjectId, old: ObjectId) -> Result<bool> {
        let (bytes, typed) = (self.connector.dataset(new)?, self.connector.dataset(old)?);
        if !bytes.is_bytes_file || typed.is_bytes_file || self.connector.attributes(new)?.iter().next().is_some() {
            return Ok(false);
        }
        let Some(shape) = self.fitting_shape(new, &typed)? else { return Ok(false) };
        let Some(text) = present::fact(self.connector, old, "dataset")? else { return Ok(false) };
        let Some(description) = described(&text, &shape) else { return Ok(false) };
        let editor = Editor { connector: self.connector, edit: self.edit };
        let before = self.pad(new, &typed)?;
        if let Err(e) = editor.set_fact(new, "dataset", &description) {
            self.edit.note_description(new, None);
            before.map_or(Ok(()), |bytes| self.replace(new, &bytes))?;
            return Err(e);
        }
        let attributes = present::attributes_json(self.connector, old, ATTRIBUTES_MAX)?;
        editor.set_fact(new, "attributes", &attributes)?;
        for fact in ["types", "comment"] {
            if let Some(text) = present::fact(self.connector, old, fact)? {
                editor.set_fact(new, fact, &text)?;
            }
        }
        Ok(true)
    }

    /// Dimensions of a dataset like `typed` that has the bytes of `new`; `None` if they do not fit.
    fn fitting_shape(&self, new: ObjectId, typed: &DatasetInfo) -> Result<Option<Vec<u64>>> {
        let Some(dims) = typed.shape.dims() else { return Ok(None) };
        let size = self.connector.content(new, Form::Main)?.size()?;
        let vlen = typed.datatype.contains_vlen();
        if ELSEWHERE.contains(&typed.layout) || typed.datatype.contains_reference() || vlen && !typed.lines {
            return Ok(None);
        }
        if !vlen && dims.is_empty() && self.padded(new, typed)?.is_some() {
            return Ok(Some(Vec::new()));
        }
        let elements = match vlen {
            true if size > LINES_MAX => None,
            true => Some(self.lines(new, size)?),
            false => {
                size.checked_div(u64::from(typed.datatype.size)).filter(|n| n.checked_mul(u64::from(typed.datatype.size)) == Some(size))
            }
        };
        Ok(elements.and_then(|n| with_elements(dims, &typed.shape.max(), n)))
    }

    /// Number of lines of `new`; the last one need not end in a newline.
    fn lines(&self, new: ObjectId, size: u64) -> Result<u64> {
        let content = self.connector.content(new, Form::Main)?;
        let (mut at, mut lines, mut last, mut buffer) = (0u64, 0u64, b'\n', vec![0; 1 << 16]);
        while at < size {
            let n = content.read(at, &mut buffer)?;
            let Some(part) = buffer.get(..n).filter(|part| !part.is_empty()) else { break };
            lines = lines.saturating_add(part.iter().filter(|b| **b == b'\n').count() as u64);
            last = part.last().copied().unwrap_or(last);
            at = at.saturating_add(n as u64);
        }
        Ok(lines.saturating_add(u64::from(last != b'\n')))
    }

    /// The text of `new` without a newline at the end, padded to the size of the one string of
    /// fixed length `typed`; `None` if it is longer, or `typed` is none.
    fn padded(&self, new: ObjectId, typed: &DatasetInfo) -> Result<Option<Vec<u8>>> {
        let Class::String(StringType { padding, .. }) = typed.datatype.class else { return Ok(None) };
        let Ok(size) = usize::try_from(typed.datatype.size) else { return Ok(None) };
        let content = self.connector.content(new, Form::Main)?;
        if content.size()? > u64::from(typed.datatype.size).saturating_add(1) {
            return Ok(None);
        }
        let mut text = vec![0; size.saturating_add(1)];
        let n = content.read(0, &mut text)?;
        text.truncate(n);
        if text.last() == Some(&b'\n') {
            text.pop();
        }
        let pad = if padding == StringPadding::SpacePadded { b' ' } else { 0 };
        let fits = text.len() <= size;
        text.resize(size, pad);
        Ok(fits.then_some(text))
    }

    /// Pads the text of `new` to the one string `typed`; returns its bytes before.
    fn pad(&self, new: ObjectId, typed: &DatasetInfo) -> Result<Option<Vec<u8>>> {
        if typed.shape.dims().is_none_or(|dims| !dims.is_empty()) {
            return Ok(None);
        }
        let Some(text) = self.padded(new, typed)? else { return Ok(None) };
        let content = self.connector.content(new, Form::Main)?;
        let mut before = vec![0; text.len().saturating_add(1)];
        let n = content.read(0, &mut before)?;
        before.truncate(n);
        self.replace(new, &text)?;
        Ok(Some(before))
    }

    fn replace(&self, id: ObjectId, bytes: &[u8]) -> Result<()> {
        self.edit.set_size_as(id, Form::Main, bytes.len() as u64)?;
        self.edit.write_as(id, Form::Main, 0, bytes)
    }
}

/// Dimensions of `count` elements: `dims`, or another number of rows if `max` permits it.
fn with_elements(dims: &[u64], max: &[Option<u64>], count: u64) -> Option<Vec<u64>> {
    let product = |dims: &[u64]| dims.iter().try_fold(1u64, |n, d| n.checked_mul(*d));
    if product(dims)? == count {
        return Some(dims.to_vec());
    }
    let (_, row) = dims.split_first()?;
    let rows = count.checked_div(product(row)?).filter(|_| count.checked_rem(product(row).unwrap_or(1)) == Some(0))?;
    let permitted = max.first()?.is_none_or(|max| rows <= max);
    let is_fixed = max.first()? == &dims.first().copied();
    (permitted && !is_fixed).then(|| [&[rows], row].concat())
}

/// The description `text` of a dataset, with the dimensions `shape` and without what its elements
/// are.
fn described(text: &[u8], shape: &[u64]) -> Option<Vec<u8>> {
    let Ok(Value::Object(mut all)) = serde_json::from_slice(text) else { return None };
    all.retain(|name, _| PROPERTIES.contains(&name.as_str()));
    all.insert("shape".into(), shape.into());
    Some(Value::Object(all).to_string().into_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_number_of_rows_can_be_another() {
        assert_eq!(with_elements(&[], &[], 1), Some(vec![]));
        assert_eq!(with_elements(&[], &[], 2), None);
        assert_eq!(with_elements(&[4], &[Some(4)], 4), Some(vec![4]));
        assert_eq!(with_elements(&[4], &[Some(4)], 3), None);
        assert_eq!(with_elements(&[4], &[None], 9), Some(vec![9]));
        assert_eq!(with_elements(&[4], &[Some(6)], 7), None);
        assert_eq!(with_elements(&[4, 3], &[None, Some(3)], 6), Some(vec![2, 3]));
        assert_eq!(with_elements(&[4, 3], &[None, Some(3)], 7), None);
        assert_eq!(with_elements(&[0, 0], &[None, None], 7), None);
    }
}
