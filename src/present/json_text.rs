//! The hdf5-json of an object as the bytes of a file; of a large dataset made as it is read.

use super::blocks::{BlockText, Blocks};
use super::hdf5_json::{before_value, hdf5_json, is_too_large};
use super::value::json_value;
use crate::base::value::list_of;
use crate::base::{Error, Result};
use crate::connector::{Connector, Elements, Limited, ObjectId, ObjectKind, Value};
use std::ops::Range;
use std::sync::Arc;

/// Most bytes of text of an object but for the elements of a large dataset, and of one element that
/// has parts outside of it.
const TEXT_BYTES_MAX: u64 = 64 << 20;
/// Most bytes of elements of which the text is made as a whole.
const WHOLE_BYTES_MAX: u64 = 8 << 20;
/// Bytes of text of a block, about: it ends with the elements that reach them.
const BLOCK_BYTES: usize = 1 << 20;
/// Bytes of elements that are read at once, and how many; also of those with parts outside of them.
const BATCH_BYTES: u64 = 1 << 20;
const BATCH_ELEMENTS: u64 = 1 << 16;
const BATCH_PARTS: u64 = 256;
/// After the elements.
const AFTER_VALUE: &[u8] = b"\n}\n";

/// See the module's description.
pub struct JsonText(Text);

enum Text {
    Whole(Vec<u8>),
    Long(BlockText<Large>),
}

/// A dataset whose text is long; rows of blocks are its elements.
struct Large {
    connector: Arc<dyn Connector>,
    id: ObjectId,
    /// The text before the value.
    head: Vec<u8>,
    /// Elements in the last one, two and so on of the dimensions.
    spans: Vec<u64>,
    count: u64,
    /// Elements that are read at once.
    step: u64,
    /// Elements may have parts of any length outside of them.
    has_parts: bool,
}

impl Large {
    /// The dataset `id`, if its elements are many bytes, and none of them alone; `anyway`: if it
    /// has elements.
    fn of(connector: &Arc<dyn Connector>, id: ObjectId, anyway: bool) -> Result<Option<Large>> {
        if connector.info(id)?.kind != ObjectKind::Dataset {
            return Ok(None);
        }
        let d = connector.dataset(id)?;
        let size = d.datatype.element_size().max(1);
        if size > WHOLE_BYTES_MAX {
            return Ok(None);
        }
        let Some(count) = d.shape.count().filter(|count| *count > 0 && (anyway || count.saturating_mul(size) > WHOLE_BYTES_MAX)) else {
            return Ok(None);
        };
        let mut span = 1u64;
        let spans = d.shape.dims().unwrap_or_default().iter().rev().map(|dim| {
            span = span.saturating_mul(*dim);
            span
        });
        let (spans, has_parts) = (spans.collect(), d.datatype.contains_vlen() || d.datatype.contains_reference());
        let step = (BATCH_BYTES / size).clamp(1, if has_parts { BATCH_PARTS } else { BATCH_ELEMENTS });
        let head = before_value(&**connector, id, &d, TEXT_BYTES_MAX)?;
        Ok(Some(Large { connector: connector.clone(), id, head, spans, count, step, has_parts }))
    }

    /// Lists that begin with element `at`, or end before it.
    fn edges(&self, at: u64) -> usize {
        self.spans.iter().take_while(|span| at.is_multiple_of(**span)).count()
    }

    /// Appends the elements `range`, which are `value`, until `out` has a block. Returns the next
    /// element.
    fn write(&self, value: &Value, range: Range<u64>, out: &mut Vec<u8>) -> Result<u64> {
        let row = self.spans.first().copied().unwrap_or(1).max(1);
        let size = usize::try_from(value.datatype.element_size()).unwrap_or(usize::MAX).max(1);
        let limited = Limited { parts: &*value.parts, limit: TEXT_BYTES_MAX };
        let (mut at, mut rest) = (range.start, value.bytes.as_slice());
        while at < range.end && out.len() < BLOCK_BYTES {
            let row_end = at.saturating_sub(at % row).saturating_add(row);
            let end = if self.has_parts { at.saturating_add(1) } else { row_end.min(range.end) };
            let len = usize::try_from(end.saturating_sub(at)).ok().and_then(|n| n.checked_mul(size));
            let changed = || Error::refused(libc::ESTALE, "the dataset became shorter");
            let (part, later) = len.and_then(|len| rest.split_at_checked(len)).ok_or_else(changed)?;
            let text = json_value(&Elements { datatype: &value.datatype, shape: &list_of(&(at..end)), bytes: part }, &limited)?;
            if at > 0 {
                out.push(b',');
            }
            out.extend(std::iter::repeat_n(b'[', self.edges(at)));
            out.extend_from_slice(text.strip_prefix(b"[").and_then(|text| text.strip_suffix(b"]")).unwrap_or(&text));
            out.extend(std::iter::repeat_n(b']', self.edges(end)));
            (at, rest) = (end, later);
        }
        Ok(at)
    }
}

impl Blocks for Large {
    fn make(&self, element: u64, starts: &[(u64, u64)]) -> Result<(Vec<u8>, u64)> {
        let mut out = if starts.len() <= 1 { self.head.clone() } else { Vec::new() };
        let mut at = element;
        // The head alone may be a block.
        while at < self.count && out.len() < BLOCK_BYTES {
            let range = at..at.saturating_add(self.step).min(self.count);
            let value = self.connector.elements_in(self.id, range.clone())?;
            at = self.write(&value, range, &mut out)?;
        }
        if self.is_end(at) {
            out.extend_from_slice(AFTER_VALUE);
        }
        Ok((out, at))
    }

    fn is_end(&self, element: u64) -> bool {
        element >= self.count
    }
}

impl JsonText {
    /// The text of the object `id`. Errors: `EFBIG`, an object that is no dataset, or the
    /// attributes, take more than 64 MiB.
    pub fn of(connector: &Arc<dyn Connector>, id: ObjectId) -> Result<JsonText> {
        if let Some(large) = Large::of(connector, id, false)? {
            return Ok(JsonText(Text::Long(BlockText::new(large))));
        }
        match hdf5_json(&**connector, id, TEXT_BYTES_MAX) {
            Err(e) if is_too_large(&e) => {
                let large = Large::of(connector, id, true)?.ok_or(e)?;
                Ok(JsonText(Text::Long(BlockText::new(large))))
            }
            text => Ok(JsonText(Text::Whole(text?))),
        }
    }

    /// Fills the front of `buf` from `offset`; fewer bytes only at the end. Errors: those of the
    /// elements; `EFBIG`, `offset` is far beyond what was read.
    pub fn read(&self, offset: u64, buf: &mut [u8]) -> Result<usize> {
        match &self.0 {
            Text::Whole(text) => {
                let from = usize::try_from(offset).ok().and_then(|at| text.get(at..)).unwrap_or_default();
                let len = from.len().min(buf.len());
                buf.iter_mut().zip(from).for_each(|(to, from)| *to = *from);
                Ok(len)
            }
            Text::Long(text) => text.read(offset, buf),
        }
    }

    /// Size of a text that was made to its end, bytes.
    pub fn known_size(&self) -> Option<u64> {
        match &self.0 {
            Text::Whole(text) => Some(text.len() as u64),
            Text::Long(text) => text.known_size(),
        }
    }
}
