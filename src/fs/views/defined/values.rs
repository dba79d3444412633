//! The values of a selection as a file.
//!
//! Reading gives the defined elements, writing takes all of them: byte `n` of the file is byte `n`
//! of the elements in the order of the selection. The file has one size: truncation keeps the
//! elements. Elements of variable length are in exact form, and written when the file is closed.

use super::VALUES;
use crate::base::locks::Mutex;
use crate::base::selected::Selected;
use crate::base::{Error, Result};
use crate::connector::edit::Edit;
use crate::connector::{Connector, ObjectId};
use crate::fs::types::{Errno, FsResult};
use crate::fs::views::buffer::{Key, Part, WrittenParts};
use crate::fs::views::bytes::{Bytes, copy};
use crate::fs::views::context::{Context, Effects};
use crate::fs::views::elements::dataset_write;
use crate::fs::views::view::Item;
use crate::present;
use std::collections::VecDeque;
use std::sync::Arc;

/// Most bytes of elements of variable length.
const BYTES_MAX: u64 = 64 << 20;

/// The dataset and the selection of the file `item`, if it has values.
pub(super) fn selection(item: &Item) -> Option<(ObjectId, &str)> {
    let text = std::str::from_utf8(item.key()).ok()?.strip_suffix(VALUES)?;
    Some((item.owner.filter(|_| item.is_part())?, text))
}

/// Selections that were parsed last: a write of one file parses its name several times.
#[derive(Default)]
struct Recent(Mutex<VecDeque<(ObjectId, String, Selected)>>);

/// Selections that are kept, and the largest of them, bytes.
const RECENT: usize = 16;
const RECENT_BYTES_MAX: u64 = 256 << 10;

/// The elements of a selection.
fn elements(cx: &Context<'_>, (id, text): (ObjectId, &str)) -> Result<Selected> {
    let recent: Arc<Recent> = cx.buffers.get();
    let shape = cx.connector.dataset(id)?.shape;
    let is_it = |(of, known, selected): &&(ObjectId, String, Selected)| *of == id && known == text && shape.dims() == Some(selected.dims());
    if let Some((.., selected)) = recent.0.lock().iter().find(is_it) {
        return Ok(selected.clone());
    }
    let selected = present::selected(&**cx.connector, id, text.into())?;
    if selected.memory() <= RECENT_BYTES_MAX {
        let mut kept = recent.0.lock();
        kept.truncate(RECENT.saturating_sub(1));
        kept.push_front((id, text.to_owned(), selected.clone()));
    }
    Ok(selected)
}

/// Size of the file: that of the defined elements.
pub(super) fn len(cx: &Context<'_>, (id, text): (ObjectId, &str)) -> Result<u64> {
    if let Some(len) = buffers(cx).len(&(id, text.into())) {
        return Ok(len);
    }
    let datatype = cx.connector.dataset(id)?.datatype;
    if datatype.contains_vlen() {
        return present::defined_len(&**cx.connector, id, text.into(), BYTES_MAX);
    }
    let defined = present::defined_in_order(&**cx.connector, id, elements(cx, (id, text))?)?;
    Ok(defined.len().saturating_mul(datatype.element_size()))
}

/// What a file shows.
#[derive(Clone)]
enum Shown {
    /// These elements.
    Elements(Selected),
    /// Elements of variable length.
    Exact(Arc<Vec<u8>>),
}

/// An open file.
pub(super) struct Values {
    connector: Arc<dyn Connector>,
    id: ObjectId,
    text: String,
    elements: Selected,
    /// Found by the first read, and again by each that begins at the first byte.
    shown: Mutex<Option<Shown>>,
}

impl Values {
    /// Errors: the selection has no meaning.
    pub(super) fn open(cx: &Context<'_>, (id, text): (ObjectId, &str)) -> Result<Values> {
        let elements = elements(cx, (id, text))?;
        Ok(Values { connector: cx.connector.clone(), id, text: text.to_owned(), elements, shown: Mutex::new(None) })
    }

    fn shown(&self, anew: bool) -> Result<Shown> {
        let known = self.shown.lock().clone();
        let connector = &*self.connector;
        let dataset = connector.dataset(self.id)?;
        // Numbers of elements are those of one extent.
        let is_same = dataset.shape.dims() == Some(self.elements.dims());
        if let Some(shown) = known.filter(|_| !anew && is_same) {
            return Ok(shown);
        }
        let text = self.text.as_str().into();
        let elements = if is_same { self.elements.clone() } else { present::selected(connector, self.id, text)? };
        let shown = match dataset.datatype.contains_vlen() {
            true => Shown::Exact(Arc::new(present::defined_values(connector, self.id, text, BYTES_MAX)?)),
            false => Shown::Elements(present::defined_in_order(connector, self.id, elements)?),
        };
        *self.shown.lock() = Some(shown.clone());
        Ok(shown)
    }
}

impl Bytes for Values {
    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<usize> {
        match self.shown(offset == 0)? {
            Shown::Elements(elements) => present::read_at(&*self.connector, self.id, &elements, offset, buf),
            Shown::Exact(bytes) => Ok(copy(&bytes, offset, buf)),
        }
    }

    fn size(&self) -> Result<u64> {
        match self.shown(false)? {
            Shown::Elements(elements) => Ok(elements.len().saturating_mul(self.connector.dataset(self.id)?.datatype.element_size())),
            Shown::Exact(bytes) => Ok(bytes.len() as u64),
        }
    }
}

/// The elements of a selection, of variable length, as a part that is written as a whole.
struct Exact;

impl Part for Exact {
    const NOUN: &'static str = "values of the selection";

    fn stored(connector: &dyn Connector, (id, text): &Key) -> Result<Option<Vec<u8>>> {
        let elements = present::selected(connector, *id, key_text(text)?.into())?;
        present::exact_values(connector, *id, &elements, BYTES_MAX).map(Some)
    }

    fn set(connector: &dyn Connector, edit: &dyn Edit, (id, text): &Key, bytes: &[u8]) -> Result<()> {
        let elements = present::selected(connector, *id, key_text(text)?.into())?;
        present::write_exact(connector, edit, *id, &elements, bytes)
    }
}

fn key_text(text: &[u8]) -> Result<&str> {
    std::str::from_utf8(text).map_err(|_| Error::refused(libc::EINVAL, "a selection that is not UTF-8"))
}

fn buffers(cx: &Context<'_>) -> Arc<WrittenParts<Exact>> {
    cx.buffers.get()
}

/// The selected elements, and the size of one; `None`: it is variable.
fn target(cx: &Context<'_>, (id, text): (ObjectId, &str)) -> FsResult<(Selected, Option<u64>)> {
    let failed = |e: Error| cx.host.refused(Some(id), &e);
    let elements = elements(cx, (id, text)).map_err(failed)?;
    let datatype = cx.connector.dataset(id).map_err(failed)?.datatype;
    Ok((elements, (!datatype.contains_vlen()).then(|| datatype.element_size())))
}

/// Size of the file for a writer: that of all elements.
pub(super) fn whole_len(cx: &Context<'_>, file: (ObjectId, &str)) -> FsResult<u64> {
    match target(cx, file)? {
        (elements, Some(size)) => Ok(elements.len().saturating_mul(size)),
        (_, None) => len(cx, file).map_err(|e| cx.host.failed(Some(file.0), &e)),
    }
}

/// Writes bytes of the file at `offset`.
pub(super) fn write(cx: &Context<'_>, file: (ObjectId, &str), offset: u64, data: &[u8]) -> FsResult<Effects> {
    let (id, text) = file;
    let edit = cx.connector.edit().ok_or(Errno(libc::EROFS))?;
    let (elements, size) = target(cx, file)?;
    if size.is_none() {
        return buffers(cx).write(cx, &(id, text.into()), offset, data).map(|()| Effects::default());
    }
    dataset_write(cx, id, present::write_at(&**cx.connector, edit, id, &elements, offset, data))
}

/// Truncates the file: the elements of a selection stay. Errors: `EFBIG`, it has fewer bytes.
pub(super) fn resize(cx: &Context<'_>, file: (ObjectId, &str), size: u64) -> FsResult<Effects> {
    match target(cx, file)? {
        (elements, Some(each)) if size > elements.len().saturating_mul(each) => Err(Errno(libc::EFBIG)),
        (_, Some(_)) => Ok(Effects::default()),
        (_, None) => buffers(cx).resize(cx, &(file.0, file.1.into()), size),
    }
}

/// Counts a writer.
pub(super) fn open_writer(cx: &Context<'_>, (id, text): (ObjectId, &str)) {
    buffers(cx).open((id, text.into()));
}

/// Sets elements of variable length if bytes were written.
pub(super) fn finish(cx: &Context<'_>, (id, text): (ObjectId, &str)) -> FsResult<Effects> {
    buffers(cx).finish(cx, &(id, text.into()))
}

/// A writer has left.
pub(super) fn close_writer(cx: &Context<'_>, (id, text): (ObjectId, &str), gone: bool) -> Effects {
    buffers(cx).close(cx, &(id, text.into()), gone)
}
