//! The form of variable-length elements, part by part: a file that is shown, without all of it in
//! memory.

use super::cells::{Place, StateCells};
use super::dataset::{Dataset, Storage};
use super::decoding::dataset_key;
use super::form_index::{End, Index};
use super::object_access::ObjectAccess;
use super::state::State;
use crate::base::newlines::Newlines;
use crate::base::parts::Limited;
use crate::base::variable_form::VariableForm;
use crate::base::{Address, Error, Result};
use crate::dataset::chunk::cache::Found;
use crate::dataset::chunk::chunk_files::ChunkFile;
use crate::dataset::chunk::gate::Permit;
use crate::dataset::chunk::image::DenseImage;
use crate::dataset::chunk::key::CacheKey;
use crate::iod::{Key, keys};
use foldhash::{HashMap, HashMapExt};
use std::ops::{Bound, ControlFlow, Range};
use std::sync::Arc;

/// Elements of a part, at most, unless all have the fill value.
const PART_ELEMENTS: u64 = 1024;
/// Bytes of the form after which a part ends.
const PART_BYTES: usize = 1 << 20;
/// Form of an element from which on it is long, bytes.
const LONG_BYTES: usize = 64 << 10;
/// Form of a part from which on few are made at a time, bytes.
const GATED_BYTES: u64 = 1 << 20;
/// Form of a part up to which it is kept in memory, bytes.
const PART_MEMORY_MAX: u64 = 4 << 20;
/// Long elements that are remembered.
const LONG_MAX: usize = 1024;
/// Most variable-length elements of a dataset.
const VARIABLE_MAX: u64 = 1 << 30;
/// Longest form of one element, bytes.
pub(super) const ELEMENT_MAX: u64 = 64 << 20;
/// Strings with newlines that are described: an extended attribute has no room for more.
const NEWLINES_MAX: usize = 1 << 14;

/// Elements of a dataset and their form.
pub(super) enum Part {
    /// The form of so many elements.
    Stored(u64, Vec<u8>),
    /// So many elements of chunks that are not stored, and the form of each.
    Filled(u64, Arc<[u8]>),
}

/// Makes parts of the form of a dataset.
pub(super) struct Parts<'a> {
    objects: &'a ObjectAccess,
    state: &'a State,
    d: &'a Dataset,
    form: VariableForm,
    lines: bool,
    place: Place,
    /// The form of an element with the fill value.
    fill: Option<Arc<[u8]>>,
    /// Elements of a row of chunks of which one is stored.
    stored: Range<u64>,
    /// Bytes of the forms of long elements, by their stored bytes.
    long: HashMap<Vec<u8>, u64>,
}

impl<'a> Parts<'a> {
    /// Those of `d`: lines, or the exact form.
    pub fn new(objects: &'a ObjectAccess, state: &'a State, d: &'a Dataset, lines: bool) -> Result<Parts<'a>> {
        if d.elements() > VARIABLE_MAX {
            return Err(Error::limit("dataset", Address(d.id), "more than 2^30 variable-length elements"));
        }
        let form = VariableForm::of(&d.datatype);
        Ok(Parts { objects, state, d, form, lines, place: Place::Dataset(d.id), fill: None, stored: 0..0, long: HashMap::new() })
    }

    fn size(&self) -> usize {
        usize::try_from(self.d.element_size).unwrap_or(usize::MAX).max(1)
    }

    fn put(&self, element: &[u8], out: &mut Vec<u8>) -> Result<()> {
        let cells = StateCells { objects: self.objects, state: self.state, place: &self.place };
        let limited = Limited { parts: &cells, limit: ELEMENT_MAX };
        if self.lines { self.form.line(element, &limited, out) } else { self.form.exact(element, &limited, out) }
    }

    /// Waits until a form of `len` bytes may be made. The caller has no permit.
    fn permit(&self, len: u64) -> Option<Permit<'a>> {
        // The parts of an element are in memory beside its form.
        (len >= GATED_BYTES).then(|| self.objects.env.forms.enter(len.saturating_mul(2)))
    }

    /// About the bytes of the form of an element.
    fn about(&self, element: &[u8]) -> Result<u64> {
        let cells = StateCells { objects: self.objects, state: self.state, place: &self.place };
        self.form.exact_len(element, &Limited { parts: &cells, limit: ELEMENT_MAX.saturating_add(4) })
    }

    fn fill(&mut self) -> Result<Arc<[u8]>> {
        if let Some(fill) = &self.fill {
            return Ok(fill.clone());
        }
        let size = self.size();
        if self.d.element_size > ELEMENT_MAX {
            return Err(too_large(self.d));
        }
        let (mut element, mut form) = (vec![0; size], Vec::new());
        self.d.pattern.fill(0, &mut element);
        self.put(&element, &mut form)?;
        let fill: Arc<[u8]> = form.into();
        self.fill = Some(fill.clone());
        Ok(fill)
    }

    /// The part that begins with `element`, of elements before `end`; `None`: there are none.
    pub fn next(&mut self, element: u64, end: u64) -> Result<Option<Part>> {
        let end = end.min(self.d.elements());
        if element >= end {
            return Ok(None);
        }
        if let Some((n, each)) = self.filled(element, end)? {
            return Ok(Some(Part::Filled(n, each)));
        }
        self.stored(element, end).map(|(n, form)| Some(Part::Stored(n, form)))
    }

    /// How many elements from `element` on, before `end`, are in no stored chunk, and the form of
    /// each; `None`: that one is in a stored chunk.
    fn filled(&mut self, element: u64, end: u64) -> Result<Option<(u64, Arc<[u8]>)>> {
        if self.stored.contains(&element) {
            return Ok(None);
        }
        let (first, past) = stored_from(self.state, self.d, element)?;
        let filled = first.min(end).saturating_sub(element);
        if filled > 0 {
            return Ok(Some((filled, self.fill()?)));
        }
        self.stored = element..past;
        Ok(None)
    }

    /// The stored bytes of the elements from `element` on, before `end`, of a part at most.
    fn raw(&self, element: u64, end: u64) -> Result<Vec<u8>> {
        let count = end.saturating_sub(element).min(PART_ELEMENTS);
        let len = usize::try_from(count).ok().and_then(|n| n.checked_mul(self.size())).filter(|n| *n as u64 <= ELEMENT_MAX);
        let mut raw = vec![0; len.ok_or_else(|| too_large(self.d))?];
        self.objects.chunks.read_elements(self.state, self.d, element.saturating_mul(self.d.element_size), &mut raw)?;
        Ok(raw)
    }

    /// How many elements the part that begins with `element` has, and the bytes of its form. Long
    /// elements that are the same are read once.
    fn measured(&mut self, element: u64) -> Result<(u64, u64)> {
        let raw = self.raw(element, self.d.elements())?;
        let (mut n, mut len, mut form) = (0u64, 0u64, Vec::new());
        for element in raw.chunks_exact(self.size()) {
            let one = match self.long.get(element) {
                Some(len) => *len,
                None => {
                    form.clear();
                    let _permit = self.permit(self.about(element)?);
                    self.put(element, &mut form)?;
                    if form.len() >= LONG_BYTES && self.long.len() < LONG_MAX {
                        self.long.insert(element.to_vec(), form.len() as u64);
                    }
                    form.len() as u64
                }
            };
            (n, len) = (n.saturating_add(1), len.saturating_add(one));
            if len >= PART_BYTES as u64 {
                break;
            }
        }
        Ok((n, len))
    }

    /// The form of elements from `element` on, before `end`, and how many they are.
    fn stored(&self, element: u64, end: u64) -> Result<(u64, Vec<u8>)> {
        let raw = self.raw(element, end)?;
        let (mut n, mut form) = (0u64, Vec::new());
        for element in raw.chunks_exact(self.size()) {
            self.put(element, &mut form)?;
            n = n.saturating_add(1);
            if form.len() >= PART_BYTES {
                break;
            }
        }
        Ok((n, form))
    }
}

fn too_large(d: &Dataset) -> Error {
    Error::limit("dataset", Address(d.id), "elements too large for variable-length data")
}

/// The first element from `element` on that may be in a stored chunk, and the end of the row of
/// chunks that it is in. All elements before it, in the order of the file, have the fill value.
fn stored_from(state: &State, d: &Dataset, element: u64) -> Result<(u64, u64)> {
    // Along the first dimension in which chunks are longer than one element, and those before it,
    // the order of the keys is that of the elements.
    let (dims, chunk): (Vec<u64>, Vec<u64>) = match &d.storage {
        Storage::Chunked(chunk) if !chunk.is_empty() && chunk.len() == d.space.dims.len() => (d.space.dims.clone(), chunk.clone()),
        _ => (vec![d.elements()], vec![d.grid.chunk_bytes().checked_div(d.element_size).unwrap_or(1).max(1)]),
    };
    let depth = chunk.iter().position(|n| *n > 1).unwrap_or(chunk.len().saturating_sub(1));
    let row = |k: usize| dims.iter().skip(k.saturating_add(1)).fold(1u64, |n, dim| n.saturating_mul(*dim)).max(1);
    let (mut rest, mut scaled) = (element, Vec::new());
    for k in 0..=depth {
        let at = rest / row(k);
        rest = rest.checked_rem(row(k)).unwrap_or(0);
        scaled.push(at.checked_div(chunk.get(k).copied().unwrap_or(1)).unwrap_or(0));
    }
    let range = (Bound::Included(keys::chunk(d.id, &scaled)), keys::of_kind(d.id, keys::CHUNK).1);
    let mut found: Option<Key> = None;
    let _ = state.scan(&range, &mut |key, _| {
        found = Some(key.to_vec());
        Ok(ControlFlow::Break(()))
    })?;
    let Some(next) = found.and_then(|key| keys::scaled(&key)) else { return Ok((d.elements(), d.elements())) };
    let length = |k: usize| chunk.get(k).copied().unwrap_or(1);
    let start = (0..=depth).fold(0u64, |n, k| {
        let at = next.get(k).copied().unwrap_or(0).saturating_mul(length(k));
        n.saturating_add(at.saturating_mul(row(k)))
    });
    // The chunk may be cut by the end of a dimension.
    let left = dims.get(depth).copied().unwrap_or(0).saturating_sub(next.get(depth).copied().unwrap_or(0).saturating_mul(length(depth)));
    let past = start.saturating_add(length(depth).min(left).saturating_mul(row(depth)));
    Ok((start.max(element), past))
}

impl Index {
    pub fn new(mut parts: Parts<'_>) -> Result<Index> {
        let (mut ends, mut element, mut byte) = (Vec::new(), 0u64, 0u64);
        while element < parts.d.elements() {
            let (n, len, filled) = match parts.filled(element, u64::MAX)? {
                Some((n, each)) => (n, n.saturating_mul(each.len() as u64), Some(each)),
                None => {
                    let (n, len) = parts.measured(element)?;
                    (n, len, None)
                }
            };
            (element, byte) = (element.saturating_add(n), byte.saturating_add(len));
            ends.push(End { element, byte, filled });
        }
        Ok(Index::of(ends))
    }

    /// Fills the front of `buf` with the form from `offset`; returns how many bytes there are.
    pub fn read(&self, parts: &Parts<'_>, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let mut done = 0usize;
        while done < buf.len() {
            let at = offset.saturating_add(done as u64);
            let n = self.ends.partition_point(|end| end.byte <= at);
            let Some(end) = self.ends.get(n) else { break };
            let start = n.checked_sub(1).and_then(|before| self.ends.get(before)).map_or(0, |before| before.byte);
            let most = usize::try_from(end.byte.saturating_sub(at)).unwrap_or(usize::MAX);
            let rest = buf.get_mut(done..).unwrap_or_default();
            let len = rest.len().min(most);
            let target = rest.get_mut(..len).unwrap_or_default();
            match &end.filled {
                Some(each) => {
                    let within = usize::try_from(at.saturating_sub(start).checked_rem(each.len() as u64).unwrap_or(0)).unwrap_or(0);
                    target.iter_mut().zip(each.iter().cycle().skip(within)).for_each(|(to, from)| *to = *from);
                }
                None => self.read_part(parts, n, at.saturating_sub(start), target)?,
            }
            if len == 0 {
                return Err(changed(parts.d));
            }
            done = done.saturating_add(len);
        }
        Ok(done)
    }

    /// Fills `target` with the form of part `n` from its byte `at`. Long parts are in temporary
    /// files, others in the chunk cache.
    fn read_part(&self, parts: &Parts<'_>, n: usize, at: u64, target: &mut [u8]) -> Result<()> {
        let before = n.checked_sub(1).and_then(|before| self.ends.get(before)).map_or((0, 0), |end| (end.element, end.byte));
        let Some(end) = self.ends.get(n) else { return Err(changed(parts.d)) };
        let (d, env, len) = (parts.d, &parts.objects.env, end.byte.saturating_sub(before.1));
        let key = CacheKey::FormPart { dataset: dataset_key(d.id), index: self.number, part: n as u64 };
        let made = || {
            let _permit = parts.permit(len);
            let form = parts.stored(before.0, end.element)?.1;
            if form.len() as u64 == len { Ok(form) } else { Err(changed(d)) }
        };
        if len > PART_MEMORY_MAX && len <= env.chunk_files.capacity() {
            let file = env.chunk_files.get(key, len, || ChunkFile::from_decoded(&made()?, Address(d.id)))?;
            return file.read(at, target);
        }
        let image = match env.cache.get(key, len, || made().map(DenseImage::boxed))? {
            Found::Chunk(chunk) => return chunk.image().read(at, target).ok_or_else(|| changed(d)),
            // Forms are not evicted to it.
            Found::OnDisk => DenseImage::boxed(made()?),
        };
        image.read(at, target).ok_or_else(|| changed(d))
    }
}

fn changed(d: &Dataset) -> Error {
    Error::corrupt("dataset", Address(d.id), "its form changed while it was read")
}

/// The form of all elements, at most `max` bytes; `None`: it is longer.
pub(super) fn whole(mut parts: Parts<'_>, max: u64) -> Result<Option<Vec<u8>>> {
    let (mut all, mut element) = (Vec::new(), 0u64);
    while let Some(part) = parts.next(element, u64::MAX)? {
        let len = match &part {
            Part::Stored(_, form) => form.len() as u64,
            Part::Filled(n, each) => n.saturating_mul(each.len() as u64),
        };
        if (all.len() as u64).saturating_add(len) > max {
            return Ok(None);
        }
        let n = match part {
            Part::Stored(n, form) => {
                all.extend(form);
                n
            }
            Part::Filled(n, each) => {
                (0..n).for_each(|_| all.extend_from_slice(&each));
                n
            }
        };
        element = element.saturating_add(n);
    }
    Ok(Some(all))
}

/// Newlines inside the strings of `d`; `None`: inside more than [`NEWLINES_MAX`] strings.
pub(super) fn newlines(objects: &ObjectAccess, state: &State, d: &Dataset) -> Result<Option<Newlines>> {
    let mut parts = Parts::new(objects, state, d, true)?;
    let (mut newlines, mut skip, mut element) = (Newlines::default(), 0u64, 0u64);
    // The last newline ends the line.
    let inside = |line: &[u8]| (memchr::memchr_iter(b'\n', line).count() as u64).saturating_sub(1);
    while element < d.elements() {
        let filled = stored_from(state, d, element)?.0.saturating_sub(element);
        if filled > 0 && inside(&parts.fill()?) == 0 {
            (skip, element) = (skip.saturating_add(filled), element.saturating_add(filled));
            continue;
        }
        // One string at a time: where a string ends cannot be seen in the form.
        let mut note = |line: &[u8]| -> bool {
            match inside(line) {
                0 => skip = skip.saturating_add(1),
                _ if newlines.strings() >= NEWLINES_MAX => return false,
                n => newlines.push(std::mem::take(&mut skip), n),
            }
            true
        };
        let count = d.elements().saturating_sub(element).min(PART_ELEMENTS);
        let mut raw = vec![0; usize::try_from(count).unwrap_or(0).saturating_mul(parts.size())];
        objects.chunks.read_elements(state, d, element.saturating_mul(d.element_size), &mut raw)?;
        for string in raw.chunks_exact(parts.size()) {
            let mut line = Vec::new();
            parts.put(string, &mut line)?;
            if !note(&line) {
                return Ok(None);
            }
        }
        element = element.saturating_add(count);
    }
    Ok(Some(newlines))
}
