//! Making a dataset another one: other metadata, the same bytes or none.

use super::access::IodConnector;
use super::dataset::Dataset;
use super::decoding::Decoded;
use super::image::Body;
use super::state::State;
use crate::base::datatype::References;
use crate::base::newlines::Newlines;
use crate::base::{Address, Error, Result};
use crate::connector::DatasetSpec;
use crate::connector::edit::Elements;
use crate::connector::plan::Now;
use crate::dataset::create::is_same_datatype;
use crate::iod::{Key, keys};
use std::collections::BTreeMap;

/// Bytes that are copied at a time.
const PIECE_BYTES: u64 = 1 << 20;
/// Longest dataset that becomes one of variable-length elements, bytes.
const PARSED_MAX: u64 = 128 << 20;

impl IodConnector {
    /// Makes the dataset `id` what `spec` states.
    pub(super) fn change_layout(&self, state: &mut State, id: u64, spec: &DatasetSpec, elements: Elements) -> Result<()> {
        let newlines = spec.newlines.clone().unwrap_or_default();
        let old = self.dataset_of(state, id)?;
        let blank = elements == Elements::Dropped || !state.has_any(&keys::of_kind(id, keys::CHUNK))?;
        let (mut creation, blocks, nowhere) =
            self.planned(state, &Now { creation: old.creation(), elsewhere: false, size: old.size, blank }, spec)?;
        creation.committed = old.named.filter(|_| is_same_datatype(&creation.datatype, &old.datatype)).map(Address);
        let (was, is) = (old.datatype.contains_vlen(), creation.datatype.contains_vlen());
        if !blank && was && creation.datatype != old.datatype {
            return Err(Error::refused(libc::EINVAL, "variable-length elements keep their type"));
        }
        if !blank && is && old.size > PARSED_MAX {
            return Err(Error::refused(libc::EFBIG, "128 MiB of variable-length elements at most are parsed"));
        }
        let kept = match (blank, is) {
            (true, _) => Kept::Nothing,
            (false, true) if was => Kept::Form(self.whole_form(state, &old, false)?, None),
            (false, true) => {
                let mut bytes = vec![0; usize::try_from(old.size).unwrap_or(usize::MAX)];
                self.read_elements(state, &old, 0, &mut bytes)?;
                Kept::Form(bytes, creation.datatype.is_vlen_string().then(|| newlines.clone()))
            }
            (false, false) => Kept::Chunks,
        };
        let same = |new: &Dataset| {
            new.storage == old.storage && new.element_size == old.element_size && new.pipeline == old.pipeline && new.space == old.space
        };
        state.put_dataset(id, &creation)?;
        state.change_use(old.named, creation.committed.map(|named| named.0))?;
        self.changed(id);
        let new = self.dataset_of(state, id)?;
        match kept {
            Kept::Chunks if same(&new) && new.pattern == old.pattern && !new.datatype.contains_reference() => {}
            Kept::Chunks => self.copy_elements(state, &old, &new)?,
            Kept::Nothing => self.drop_elements(state, &new)?,
            Kept::Form(form, lines) => self.parse_form(state, &new, &form, lines)?,
        }
        for (block, bytes) in blocks {
            state.put(keys::key(id, keys::CELLS, &block.to_be_bytes()), &bytes)?;
        }
        state.forms.remove(&id);
        state.wait_for_fill(id, spec, nowhere)?;
        state.newlines.remove(&id);
        // Lines that are not there yet are written next.
        if blank && !newlines.is_empty() && new.datatype.is_vlen_string() {
            state.await_newlines(id, newlines)?;
        }
        state.touch(id)
    }

    fn drop_elements(&self, state: &mut State, d: &Dataset) -> Result<()> {
        state.remove_all(&keys::of_kind(d.id, keys::CHUNK))?;
        self.drop_cells(state, d)
    }

    /// Writes the bytes of `old` as those of `new`, which has as many.
    fn copy_elements(&self, state: &mut State, old: &Dataset, new: &Dataset) -> Result<()> {
        let chunks = self.take_chunks(state, old)?;
        let places = References::of(&new.datatype).filter(|_| old.datatype != new.datatype);
        let size = new.element_size.max(1);
        let piece = (PIECE_BYTES / size).max(1).saturating_mul(size);
        let mut at = 0u64;
        while at < old.size {
            let len = piece.min(old.size.saturating_sub(at));
            let mut bytes = vec![0; usize::try_from(len).unwrap_or(usize::MAX)];
            if self.read_taken(&chunks, old, at, &mut bytes)? {
                if let Some(places) = &places {
                    places.clear(&mut bytes, usize::try_from(size).unwrap_or(usize::MAX));
                }
                self.write_elements(state, new, at, &bytes)?;
            }
            at = at.saturating_add(len);
        }
        Ok(())
    }

    /// Removes the chunks of a dataset; returns them.
    fn take_chunks(&self, state: &mut State, d: &Dataset) -> Result<BTreeMap<Key, Body>> {
        let mut taken = BTreeMap::new();
        for key in state.keys(&keys::of_kind(d.id, keys::CHUNK))? {
            let body = match state.changes.get(&key).map(|c| &c.body) {
                Some(Body::Dirty(image)) => Body::Dirty(image.clone()),
                _ => match state.get(&key)? {
                    Some(cell) => Body::Cell(cell),
                    None => continue,
                },
            };
            state.remove(key.clone())?;
            taken.insert(key, body);
        }
        Ok(taken)
    }

    /// Reads bytes of a dataset from its removed chunks; false: none of them has any.
    fn read_taken(&self, chunks: &BTreeMap<Key, Body>, d: &Dataset, offset: u64, buf: &mut [u8]) -> Result<bool> {
        let mut any = false;
        for chunk in d.grid.pieces(offset, buf.len()) {
            let decoded = match chunks.get(&d.chunk_key(chunk.chunk)) {
                Some(Body::Dirty(image)) => Decoded::Memory(image.clone()),
                Some(Body::Cell(cell)) => self.image(d, cell)?,
                _ => Decoded::Absent,
            };
            any |= decoded.image().is_some();
            decoded.scatter(d, &chunk, buf)?;
        }
        Ok(any)
    }

    /// Makes a new file the named datatype `datatype`; `shown`: what its file shows.
    pub(super) fn make_datatype(&self, state: &mut State, id: u64, datatype: &crate::connector::Datatype, shown: &[u8]) -> Result<()> {
        let d = self.dataset_of(state, id)?;
        if !d.is_bytes_file() {
            return Err(Error::refused(libc::EINVAL, "only a new file becomes a datatype"));
        }
        if d.size > 0 {
            let mut bytes = vec![0; shown.len().saturating_add(1)];
            let n = self.read_elements(state, &d, 0, &mut bytes)?;
            if bytes.get(..n) != Some(shown) {
                return Err(Error::refused(libc::EINVAL, "the file holds other bytes than the datatype's file shows"));
            }
        }
        use crate::format::object_header::kind;
        let body = crate::dataset::create::datatype_message(2, datatype).map_err(crate::connector::errors::refused)?;
        self.drop_elements(state, &d)?;
        for message in [kind::DATASPACE, kind::FILL_VALUE, kind::DATA_LAYOUT, kind::FILTER_PIPELINE] {
            state.remove(keys::header(id, message))?;
        }
        state.change_use(d.named, None)?;
        state.put_header(id, kind::DATATYPE, &body)?;
        state.put_header(id, keys::OBJECT_TYPE, &[super::state::DATATYPE])?;
        self.changed(id);
        state.touch(id)
    }
}

/// What a dataset keeps when it becomes another one.
enum Kept {
    /// Nothing.
    Nothing,
    /// Its bytes.
    Chunks,
    /// Elements of this form; of lines, with the newlines inside strings.
    Form(Vec<u8>, Option<Newlines>),
}
