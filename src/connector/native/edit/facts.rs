//! Setting derived facts: what is said makes a dataset what it shall be (`plan`).
//!
//! What is not said stays, as far as it fits what is said:
//!
//! Facts that only describe (`kind`, `index`, `storage`, `offset`, `external`, and the layouts `external` and `virtual`) are taken
//! and ignored: programs that copy extended attributes set them.

use super::super::references;
use super::attributes::Values;
use super::names::stream;
use super::plan::{Now, plan};
use super::relayout::Elements;
use super::{Change, Dataset};
use crate::base::{Error, Result};
use crate::connector::{ObjectId, ObjectKind};
use crate::dataset::create::dataset_messages;
use crate::dataset::newlines::Newlines;
use crate::dataset::types;
use crate::dataset::types::parse::{ChunksSpec, DatasetSpec, LayoutSpec, parse_datatype_in, parse_fact};
use crate::format::message::datatype::Datatype;
use std::cell::Cell;
use std::sync::Arc;

/// Files whose newlines inside strings are kept at a time.
const NEWLINES_AWAITED_MAX: usize = 4096;
/// Facts that say nothing that could be set.
const DESCRIPTIVE: [&str; 5] = ["external", "index", "kind", "offset", "storage"];

pub(super) fn invalid(reason: impl Into<std::borrow::Cow<'static, str>>) -> Error {
    Error::refused(libc::EINVAL, reason)
}

/// What makes no dataset is the caller's mistake.
pub(super) fn refused(e: Error) -> Error {
    match e {
        Error::Unsupported { detail, .. } => invalid(detail),
        Error::Limit { detail, .. } => invalid(detail),
        other => other,
    }
}

impl Change<'_> {
    /// Sets a derived fact.
    pub(super) fn set_fact(&self, id: ObjectId, name: &str, text: &[u8]) -> Result<()> {
        if name == "attributes" {
            return self.set_attributes(id, text);
        }
        if references::number(name).is_some() && self.connector.object(id)?.info().kind == ObjectKind::Dataset {
            return self.set_references(id, name, text);
        }
        let elsewhere = name == "layout" && matches!(text.trim_ascii(), b"external" | b"virtual");
        if elsewhere || DESCRIPTIVE.contains(&name) {
            tracing::debug!("user.h5dir.{name} tells what an object is and is not set by writing it");
            return Ok(());
        }
        let store = self.store()?;
        let spec = if name == "datatype" { Ok(DatasetSpec::default()) } else { parse_fact(name, text, store.ctx().sizeof_addr) };
        let spec = spec.map_err(|e| match e {
            Error::Refused { errno: libc::EPERM, reason } => invalid(reason),
            other => other,
        })?;
        if self.connector.object(id)?.info().kind != ObjectKind::Dataset {
            return Err(invalid("only a dataset can be given types, shapes and layouts"));
        }
        let d = self.dataset(id)?;
        if name == "datatype" {
            let text = std::str::from_utf8(text).map_err(|_| invalid("a datatype is text"))?;
            return self.commit_datatype(&d, &parse_datatype_in(text, store.ctx().sizeof_addr)?);
        }
        let wish = self.editing.wishes.lock().get(&id).cloned();
        let mut spec = match wish {
            Some(wish) => with_wish(spec, wish),
            None => spec,
        };
        if self.is_wish(&d, &spec) {
            tracing::info!("{name} of a new file is kept until its shape is set");
            self.editing.wishes.lock().insert(id, spec);
            return Ok(());
        }
        let strings = spec.dtype.as_ref().is_some_and(|t| t.is_vlen_string());
        if strings && spec.shape.is_none() && !spec.null_space && is_stream(&d) && d.bytes.size > 0 {
            spec.shape = Some(vec![self.lines(&d)?]);
        }
        // A fill value may refer to an object that is not there: null then.
        let nowhere = Cell::new(false);
        let creation = plan(&Now::of(&d)?, &spec, &mut Values { nowhere: Some(&nowhere), ..Values::new(self, &store) })?;
        if nowhere.get() {
            tracing::warn!("object at {}: its fill value is null, as it refers to no object of the file", id.address);
        }
        // What contradicts itself is found before anything is changed.
        dataset_messages(store.ctx(), store.superblock().version, &creation).map_err(refused)?;
        let newlines = spec.newlines.take().unwrap_or_default();
        // Lines that are not there yet are written next.
        let awaited = strings && d.bytes.size == 0 && !newlines.is_empty();
        self.relayout(&d, &creation, spec.dtype.is_some(), Elements::Kept { newlines: newlines.clone() })?;
        if awaited {
            self.await_newlines(id, newlines)?;
        }
        self.editing.wishes.lock().remove(&id);
        // The same bytes are no change of them: who copies a file sets its times first.
        if strings || creation.bytes() == Some(d.bytes.size) { self.note_change(id) } else { self.touch(id) }
    }

    /// Keeps the newlines inside strings until the lines are written.
    fn await_newlines(&self, id: ObjectId, newlines: Newlines) -> Result<()> {
        let mut all = self.editing.newlines.lock();
        if all.len() >= NEWLINES_AWAITED_MAX && !all.contains_key(&id) {
            return Err(invalid("too many files wait for strings with newlines"));
        }
        all.insert(id, newlines);
        Ok(())
    }

    /// Makes a new file a named datatype. Its bytes, if there are any, must be the text in which the file of such a datatype
    /// shows it.
    fn commit_datatype(&self, d: &Arc<Dataset>, datatype: &Datatype) -> Result<()> {
        let mut text = types::text(datatype).into_bytes();
        let is_text = d.bytes.size == 0
            || d.bytes.size == text.len() as u64 && {
                let want = text.clone();
                d.bytes.read(&self.connector.options.environment, 0, &mut text)?;
                text == want
            };
        if !is_stream(d) || !is_text {
            return Err(invalid("only a new file that is empty, or holds the datatype's text, becomes a named datatype"));
        }
        self.become_datatype(d, datatype)?;
        self.note_change(d.id)
    }

    /// Lines of a file, the last one with or without its end.
    fn lines(&self, d: &Dataset) -> Result<u64> {
        let (mut at, mut lines, mut open) = (0u64, 0u64, false);
        let mut piece = vec![0u8; 1 << 16];
        while at < d.bytes.size {
            let n = d.bytes.read(&self.connector.options.environment, at, &mut piece)?;
            let bytes = piece.get(..n).filter(|b| !b.is_empty()).ok_or_else(|| d.object.lacks("whole data layout"))?;
            lines = lines.saturating_add(bytes.iter().filter(|b| **b == b'\n').count() as u64);
            open = bytes.last() != Some(&b'\n');
            at = at.saturating_add(n as u64);
        }
        Ok(lines.saturating_add(u64::from(open)))
    }

    /// Chunks of a new file that have no sense before it has another shape: programs that copy extended attributes may set
    /// them first.
    fn is_wish(&self, d: &Dataset, spec: &DatasetSpec) -> bool {
        let Some(ChunksSpec::Dims(chunks)) = &spec.chunks else { return false };
        let only_chunks = *spec == DatasetSpec { chunks: spec.chunks.clone(), ..DatasetSpec::default() };
        only_chunks && chunks.len() != 1 && is_stream(d)
    }
}

/// What was said before, where `spec` says nothing.
fn with_wish(mut spec: DatasetSpec, wish: DatasetSpec) -> DatasetSpec {
    let whole = matches!(spec.layout, Some(LayoutSpec::Compact | LayoutSpec::Contiguous)) || spec.null_space;
    let rank = spec.shape.as_ref().map(Vec::len);
    let fits = |chunks: &ChunksSpec| !matches!((chunks, rank), (ChunksSpec::Dims(c), Some(rank)) if c.len() != rank);
    if !whole && spec.chunks.is_none() {
        spec.chunks = wish.chunks.filter(fits);
    }
    spec
}

/// A file that is as it was created, but for its bytes.
pub(super) fn is_stream(d: &Dataset) -> bool {
    let new = stream();
    d.datatype.element_size() == 1 && d.space.max() == [None] && d.pipeline.filters.is_empty() && d.fill.fill == new.fill
}

/// Nothing was ever written to it.
pub(super) fn is_blank(d: &Dataset) -> Result<bool> {
    Ok(d.bytes.size == 0 || d.bytes.unwritten(0)?.is_some_and(|end| end >= d.bytes.size))
}
