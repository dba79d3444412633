//! Type and attributes of a dataset that a file of bytes replaces.
//!
//! Editors and `sed -i` write a new file and rename it over the old one. If the new file has
//! neither a declared type nor attributes, and its bytes fit the type of the dataset that it
//! replaces, it becomes such a dataset. It stays the same object, so that a descriptor on it stays
//! valid. The bytes stay as they are, but for the padding of one string of fixed length and the
//! newline after the last line.

use crate::base::Result;
use crate::base::datatype::{Class, StringPadding, StringType};
use crate::connector::edit::Edit;
use crate::connector::{Connector, DatasetInfo, Form, ObjectId, Shape};
use crate::present::{self, Editor, Held, Prepared};

/// Longest text of attributes, bytes.
const ATTRIBUTES_MAX_BYTES: u64 = 64 << 20;
/// Longest string of fixed length to which a text is padded, bytes.
const PADDED_MAX_BYTES: u32 = 64 << 10;
/// Longest file that is converted while the names are locked, bytes.
pub const UNPREPARED_MAX_BYTES: u64 = 16 << 20;

/// A file of bytes without attributes that replaces a dataset with a type.
pub struct Replacement<'a> {
    connector: &'a dyn Connector,
    edit: &'a dyn Edit,
    new: ObjectId,
    typed: DatasetInfo,
    /// The replaced dataset stays readable after it lost its name.
    old: Held<'a>,
}

/// What the new file becomes.
struct Fit {
    /// The dataset, with the shape that its bytes have.
    like: DatasetInfo,
    /// All bytes of the one string of fixed length.
    padded: Option<Vec<u8>>,
}

impl<'a> Replacement<'a> {
    /// `None` if `new` is no file of bytes without attributes, or `old` has no type.
    pub fn new(connector: &'a dyn Connector, edit: &'a dyn Edit, new: ObjectId, old: ObjectId) -> Result<Option<Self>> {
        if !connector.dataset(new)?.is_bytes_file {
            return Ok(None);
        }
        let typed = connector.dataset(old)?;
        if typed.is_bytes_file || connector.attributes(new)?.iter().next().is_some() {
            return Ok(None);
        }
        Ok(Some(Replacement { connector, edit, new, typed, old: Held::new(edit, old) }))
    }

    /// The file of bytes.
    pub fn new_file(&self) -> ObjectId {
        self.new
    }

    fn editor(&self) -> Editor<'a> {
        Editor { connector: self.connector, edit: self.edit }
    }

    /// Prepares [`Replacement::keep_type`] of a long file while other operations continue.
    pub fn prepare(&self) -> Result<Option<Prepared<'a>>> {
        let is_long = self.size()? > UNPREPARED_MAX_BYTES;
        match self.fit(is_long)? {
            Some(fit) if is_long => self.editor().prepare_fact(self.new, "dataset", &present::description(&fit.like)?),
            _ => Ok(None),
        }
    }

    /// Gives the new file the type and the attributes of the dataset that it replaced, if its bytes
    /// fit; false if not. `prepared`: [`Replacement::prepare`] did most of the work.
    pub fn keep_type(&self, prepared: bool) -> Result<bool> {
        let Some(Fit { like, padded }) = self.fit(prepared)? else { return Ok(false) };
        let description = present::description(&like)?;
        let before = padded.map(|text| self.pad(&text)).transpose()?;
        if let Err(e) = self.editor().set_fact(self.new, "dataset", &description) {
            self.edit.note_description(self.new, None);
            before.map_or(Ok(()), |bytes| self.replace(&bytes))?;
            return Err(e);
        }
        self.copy_attributes().unwrap_or_else(|e| {
            tracing::warn!("object at {}: it lacks attributes of the dataset that it replaced: {e}", self.new);
        });
        Ok(true)
    }

    fn copy_attributes(&self) -> Result<()> {
        let old = self.old.id();
        let attributes = present::attributes_json(self.connector, old, ATTRIBUTES_MAX_BYTES)?;
        self.editor().set_fact(self.new, "attributes", &attributes)?;
        for fact in ["types", "comment"] {
            if let Some(text) = present::fact(self.connector, old, fact)? {
                self.editor().set_fact(self.new, fact, &text)?;
            }
        }
        Ok(())
    }

    fn size(&self) -> Result<u64> {
        self.connector.content(self.new, Form::Main)?.size()
    }

    /// What the new file becomes; `None` if its bytes do not fit, or would read back as others.
    fn fit(&self, prepared: bool) -> Result<Option<Fit>> {
        let (typed, size) = (&self.typed, self.size()?);
        let Some(dims) = typed.shape.dims() else { return Ok(None) };
        let is_lossy = !typed.filters.iter().all(|filter| filter.is_lossless());
        if typed.is_elsewhere || is_lossy || typed.datatype.contains_reference() || (size > UNPREPARED_MAX_BYTES && !prepared) {
            return Ok(None);
        }
        if dims.is_empty()
            && let Some(text) = self.padded(size)?
        {
            return Ok(Some(Fit { like: typed.clone(), padded: Some(text) }));
        }
        let element_bytes = u64::from(typed.datatype.size);
        let elements = match typed.datatype.contains_vlen() {
            true if !typed.lines || prepared => None,
            true => self.lines(size)?,
            false => size.checked_div(element_bytes).filter(|n| n.checked_mul(element_bytes) == Some(size)),
        };
        let shape = elements.and_then(|n| with_elements(dims, &typed.shape.max(), n)).map(|dims| like_shape(&typed.shape, dims));
        Ok(shape.map(|shape| Fit { like: DatasetInfo { shape, ..typed.clone() }, padded: None }))
    }

    /// Number of lines of the new file; the last one need not end in a newline. `None`: it has a
    /// NUL, at which a string would end.
    fn lines(&self, size: u64) -> Result<Option<u64>> {
        let content = self.connector.content(self.new, Form::Main)?;
        let (mut at, mut lines, mut last, mut buffer) = (0u64, 0u64, b'\n', vec![0; 1 << 16]);
        while at < size {
            let n = content.read(at, &mut buffer)?;
            let Some(part) = buffer.get(..n).filter(|part| !part.is_empty()) else { break };
            if part.contains(&0) {
                return Ok(None);
            }
            lines = lines.saturating_add(memchr::memchr_iter(b'\n', part).count() as u64);
            last = part.last().copied().unwrap_or(last);
            at = at.saturating_add(n as u64);
        }
        Ok(Some(lines.saturating_add(u64::from(last != b'\n'))))
    }

    /// The text of the new file, of `size` bytes, without a newline at the end, padded to the size
    /// of the string of fixed length; `None` if it is longer, or the type is no such string.
    fn padded(&self, size: u64) -> Result<Option<Vec<u8>>> {
        let Class::String(StringType { padding, .. }) = self.typed.datatype.class else { return Ok(None) };
        let room = self.typed.datatype.size;
        if room > PADDED_MAX_BYTES || size > u64::from(room).saturating_add(1) {
            return Ok(None);
        }
        let mut text = self.bytes(size)?;
        if text.last() == Some(&b'\n') {
            text.pop();
        }
        let pad = if padding == StringPadding::SpacePadded { b' ' } else { 0 };
        let fits = text.len() <= room as usize;
        text.resize(room as usize, pad);
        Ok(fits.then_some(text))
    }

    /// The first `size` bytes of the new file.
    fn bytes(&self, size: u64) -> Result<Vec<u8>> {
        let mut bytes = vec![0; usize::try_from(size).unwrap_or(usize::MAX)];
        let n = self.connector.content(self.new, Form::Main)?.read(0, &mut bytes)?;
        bytes.truncate(n);
        Ok(bytes)
    }

    /// Replaces the bytes of the new file by `text`; returns those before.
    fn pad(&self, text: &[u8]) -> Result<Vec<u8>> {
        let before = self.bytes(self.size()?)?;
        self.replace(text)?;
        Ok(before)
    }

    fn replace(&self, bytes: &[u8]) -> Result<()> {
        self.edit.set_size_as(self.new, Form::Main, bytes.len() as u64)?;
        self.edit.write_as(self.new, Form::Main, 0, bytes)
    }
}

/// A shape like `shape` with the dimensions `dims`.
fn like_shape(shape: &Shape, dims: Vec<u64>) -> Shape {
    match shape {
        Shape::Simple { max, .. } => Shape::Simple { dims, max: max.clone() },
        other => other.clone(),
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
