//! Bytes of a dataset as a file, always those of the present state.

use super::access::IodConnector;
use super::dataset::Dataset;
use super::form_index::{FormIndex, Index};
use super::forms::Parts;
use super::image::Body;
use super::sparse::Sets;
use super::state::State;
use super::value_chunks::{Source, ValueChunks};
use crate::base::locks::{Mutex, RwLock};
use crate::base::{Result, waiting};
use crate::connector::{ChunkPlace, Chunks, Content, FILL_BYTES_MAX, Form};
use crate::dataset::chunk::defined::ChunkSets;
use crate::dataset::chunk::present::PresentChunks;
use crate::dataset::layout::Seek;
use crate::iod::range::KeyRange;
use crate::iod::{Key, keys};
use std::ops::{Bound, ControlFlow, Range};
use std::sync::Arc;

/// Stored chunks of a dataset that are counted each time its storage is asked for.
const COUNTED_CHUNKS: usize = 4096;
/// Longest index of a form that other open files share, bytes.
const SHARED_BYTES_MAX: usize = 2 << 20;
/// Smallest and largest preferred I/O size, bytes.
const BLOCK_SIZES: (u64, u64) = (4096, 4 << 20);

/// See the module's description.
pub(super) struct IodContent {
    connector: Arc<IodConnector>,
    id: u64,
    form: Form,
    /// The dataset of variable-length elements that was read last.
    now: Mutex<Option<Arc<Now>>>,
}

/// A dataset of variable-length elements.
struct Now {
    dataset: Arc<Dataset>,
    /// Where the parts of its form end.
    index: Arc<FormIndex>,
}

impl IodContent {
    pub fn new(connector: Arc<IodConnector>, id: u64, form: Form) -> Self {
        IodContent { connector, id, form, now: Mutex::new(None) }
    }

    fn dataset(&self, state: &State) -> Result<Arc<Dataset>> {
        self.connector.objects.dataset_of(state, self.id)
    }

    fn is_lines(&self, d: &Dataset) -> bool {
        self.form == Form::Main && d.datatype.is_vlen_string()
    }

    /// The form that is being written, if this is it.
    fn written(&self, state: &State, d: &Dataset) -> Option<Arc<RwLock<Vec<u8>>>> {
        state.forms.get(&self.id).filter(|form| form.is(self.form, d.datatype.is_vlen_string())).map(|form| form.bytes.clone())
    }

    /// Keeps the stored bytes until the next change.
    fn note_counted(&self, state: &State, bytes: u64) {
        // Chunks in memory have another length when they are encoded, which is no change.
        if state.changes.is_empty() {
            self.connector.derived.note_counted(state, self.id, bytes);
        }
    }

    /// `d` with the index of its form.
    fn now(&self, d: &Arc<Dataset>) -> Arc<Now> {
        let mut now = self.now.lock();
        if let Some(now) = now.as_ref().filter(|now| Arc::ptr_eq(&now.dataset, d)) {
            return now.clone();
        }
        let index = self.connector.derived.form_index(d, self.is_lines(d));
        now.insert(Arc::new(Now { dataset: d.clone(), index })).clone()
    }

    /// The index of the form. The first reader makes it while others wait.
    fn index(&self, values: &State, now: &Now) -> Result<Arc<Index>> {
        let mut slot = now.index.try_lock().unwrap_or_else(|| {
            waiting::may_wait();
            now.index.lock()
        });
        if let Some(index) = &*slot {
            return Ok(index.clone());
        }
        let d = &*now.dataset;
        let index = Arc::new(Index::new(Parts::new(&self.connector.objects, values, d, self.is_lines(d))?)?);
        if index.memory() > SHARED_BYTES_MAX {
            self.connector.derived.forget_form(d);
        }
        Ok(slot.insert(index).clone())
    }

    fn chunks<'a>(&'a self, state: &'a State, d: &'a Dataset) -> ValueChunks<'a> {
        ValueChunks { reader: &self.connector.chunks, state, d }
    }

    fn read_form(&self, values: &State, now: &Now, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let (index, d) = (self.index(values, now)?, &*now.dataset);
        index.read(&Parts::new(&self.connector.objects, values, d, self.is_lines(d))?, offset, buf)
    }
}

/// Bytes of the first `max` values in a range, and the key of the next one.
fn stored_bytes(state: &State, range: &KeyRange, element_size: u64, max: usize) -> Result<(u64, Option<Key>)> {
    let (mut sum, mut left, mut next) = (0u64, max, None);
    let _ = state.scan(range, &mut |key, cell| {
        if left == 0 {
            next = Some(key.to_vec());
            return Ok(ControlFlow::Break(()));
        }
        let len = match state.changes.get(key).map(|c| &c.body) {
            Some(Body::Dirty(chunk)) => chunk.chunk.now().written_bytes(element_size),
            _ => cell.len(),
        };
        (sum, left) = (sum.saturating_add(len), left.saturating_sub(1));
        Ok(ControlFlow::Continue(()))
    })?;
    Ok((sum, next))
}

/// Bytes stored for a dataset in its first `max` chunks and in all blocks of cells, and the key of
/// the next chunk.
fn allocated(state: &State, d: &Dataset, max: usize) -> Result<(u64, Option<Key>)> {
    let (bytes, next) = stored_bytes(state, &keys::of_kind(d.id, keys::CHUNK), d.element_size, max)?;
    let (cells, _) = stored_bytes(state, &keys::of_kind(d.id, keys::CELLS), 1, usize::MAX)?;
    Ok((bytes.saturating_add(cells), next))
}

/// Number past that of the last stored chunk, `first` at least.
fn stored_end(state: &State, d: &Dataset, first: u64) -> Result<u64> {
    let (mut low, mut high) = (first, d.grid.chunks());
    while low < high {
        let middle = low.midpoint(high);
        let from_middle = (Bound::Included(d.chunk_key(middle)), keys::of_kind(d.id, keys::CHUNK).1);
        match state.has_any(&from_middle)? {
            true => low = middle.saturating_add(1),
            false => high = middle,
        }
    }
    Ok(low)
}

/// Bytes stored for a dataset of which `bytes` are in the chunks before `next`: as many in all
/// chunk numbers up to the last stored one, in proportion.
fn estimated(state: &State, d: &Dataset, bytes: u64, next: &Key) -> Result<u64> {
    let Some(covered) = keys::scaled(next).and_then(|scaled| d.grid.linear(&scaled)) else { return Ok(bytes) };
    let all = u128::from(bytes).saturating_mul(stored_end(state, d, covered)?.into());
    Ok(all.checked_div(covered.into()).map_or(bytes, |all| u64::try_from(all).unwrap_or(u64::MAX)))
}

impl Content for IodContent {
    fn size(&self) -> Result<u64> {
        let state = self.connector.states.shown();
        let d = self.dataset(&state)?;
        match (d.datatype.contains_vlen(), self.written(&state, &d)) {
            (false, _) => Ok(d.size),
            (true, Some(bytes)) => Ok(bytes.read().len() as u64),
            (true, None) => self.index(&state, &self.now(&d)).map(|index| index.len()),
        }
    }

    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let state = self.connector.states.shown();
        let d = self.dataset(&state)?;
        match (d.datatype.contains_vlen(), self.written(&state, &d)) {
            (false, _) => self.connector.chunks.read_together(&state, &d, offset, buf),
            (true, Some(bytes)) => {
                let bytes = bytes.read();
                let rest = usize::try_from(offset).ok().and_then(|at| bytes.get(at..)).unwrap_or_default();
                buf.iter_mut().zip(rest).for_each(|(to, from)| *to = *from);
                Ok(rest.len().min(buf.len()))
            }
            (true, None) => self.read_form(&state, &self.now(&d), offset, buf),
        }
    }

    fn beyond(&self, offset: u64, buf: &mut [u8]) -> bool {
        let state = self.connector.states.shown();
        let Ok(d) = self.dataset(&state) else { return false };
        if !d.pattern.is_zero() && !d.datatype.contains_vlen() {
            d.pattern.fill(offset, buf);
            return true;
        }
        false
    }

    fn allocated(&self) -> Result<u64> {
        let state = self.connector.states.shown();
        if let Some(bytes) = self.connector.derived.counted(&state, self.id) {
            return Ok(bytes);
        }
        let d = self.dataset(&state)?;
        let bytes = match allocated(&state, &d, COUNTED_CHUNKS)? {
            (bytes, None) => bytes,
            (bytes, Some(next)) => estimated(&state, &d, bytes, &next)?,
        };
        self.note_counted(&state, bytes);
        Ok(bytes)
    }

    fn allocated_exactly(&self) -> Result<u64> {
        let state = self.connector.states.shown();
        let (bytes, _) = allocated(&state, &*self.dataset(&state)?, usize::MAX)?;
        self.note_counted(&state, bytes);
        Ok(bytes)
    }

    fn block_size(&self) -> u32 {
        let state = self.connector.states.shown();
        let bytes = self.dataset(&state).map_or(0, |d| d.grid.chunk_bytes());
        u32::try_from(bytes.clamp(BLOCK_SIZES.0, BLOCK_SIZES.1).next_power_of_two()).unwrap_or(4096)
    }

    fn seek(&self, offset: u64, what: Seek) -> Result<Option<u64>> {
        let size = self.size()?;
        if offset >= size {
            return Ok(None);
        }
        let state = self.connector.states.shown();
        let d = self.dataset(&state)?;
        if d.datatype.contains_vlen() || !d.pattern.is_zero() {
            return Ok(Some(if what == Seek::Data { offset } else { size }));
        }
        if d.knows_defined() {
            let sets = Sets::of(&self.connector.objects, &d, &state)?;
            return (&sets as &dyn ChunkSets).seek(offset, what);
        }
        (&self.chunks(&state, &d) as &dyn PresentChunks).seek(offset, what)
    }

    fn written(&self, offset: u64) -> Result<Option<Range<u64>>> {
        let size = self.size()?;
        let state = self.connector.states.shown();
        let d = self.dataset(&state)?;
        if offset >= size {
            return Ok(None);
        }
        if d.datatype.contains_vlen() || d.element_size > FILL_BYTES_MAX {
            return Ok(Some(offset..size));
        }
        let seek = |at: u64, what: Seek| match d.knows_defined() {
            true => (&Sets::of(&self.connector.objects, &d, &state)? as &dyn ChunkSets).seek(at, what),
            false => (&self.chunks(&state, &d) as &dyn PresentChunks).seek(at, what),
        };
        let Some(start) = seek(offset, Seek::Data)? else { return Ok(None) };
        let end = seek(start, Seek::Hole)?.unwrap_or(size);
        Ok((start < end).then_some(start..end))
    }

    fn read_ahead(&self, at: u64, from: u64) -> u64 {
        let state = self.connector.states.shown();
        let Ok(d) = self.dataset(&state) else { return from };
        let (start, end) = (from.max(at), at.saturating_add(self.connector.chunks.ahead_bytes()).min(d.size));
        // Few large requests: half a window at a time.
        let due = end.saturating_sub(start) >= self.connector.chunks.ahead_bytes() / 2 || end == d.size && end > start;
        if !due || d.datatype.contains_vlen() {
            return from;
        }
        match self.connector.chunks.fetch_ahead(&state, &d, start..end) {
            Ok(true) => end,
            // The reader finds the error where it is.
            Ok(false) | Err(_) => from,
        }
    }
}

/// Stored chunks of a dataset.
pub(super) struct IodChunks {
    pub connector: Arc<IodConnector>,
    pub id: u64,
    pub rank: usize,
}

impl IodChunks {
    /// The stored bytes of a chunk that is committed or encoded.
    fn stored(&self, scaled: &[u64]) -> Result<Option<Vec<u8>>> {
        let key = keys::chunk(self.id, scaled);
        let (d, source) = {
            let state = self.connector.states.shown();
            (self.connector.objects.dataset_of(&state, self.id)?, Source::of(&state, &key)?)
        };
        match source {
            Source::Image(image) => {
                let (encoded, _) = d.encode(&self.connector.env, &image)?;
                Ok(Some(encoded.into_memory()?.into_owned()))
            }
            Source::Cell(cell) => self.connector.container.bytes_of(&key, &cell).map(Some),
            Source::Nothing => Ok(None),
        }
    }
}

impl Chunks for IodChunks {
    fn rank(&self) -> usize {
        self.rank
    }

    fn stored_len(&self, scaled: &[u64]) -> Result<Option<u64>> {
        let state = self.connector.states.shown();
        let key = keys::chunk(self.id, scaled);
        if let Some(Body::Dirty(_)) = state.changes.get(&key).map(|c| &c.body) {
            // It is encoded to know its length.
            return Ok(self.stored(scaled)?.map(|bytes| bytes.len() as u64));
        }
        Ok(state.get(&key)?.map(|cell| cell.len()))
    }

    fn read(&self, scaled: &[u64], offset: u64, buf: &mut [u8]) -> Result<usize> {
        let bytes = self.stored(scaled)?.unwrap_or_default();
        let rest = usize::try_from(offset).ok().and_then(|at| bytes.get(at..)).unwrap_or_default();
        buf.iter_mut().zip(rest).for_each(|(to, from)| *to = *from);
        Ok(rest.len().min(buf.len()))
    }

    fn is_portable(&self) -> bool {
        let state = self.connector.states.shown();
        self.connector.objects.dataset_of(&state, self.id).is_ok_and(|d| d.new_layout().kind.profile().is_none())
    }

    fn place(&self, scaled: &[u64]) -> Result<Option<ChunkPlace>> {
        let state = self.connector.states.shown();
        let d = self.connector.objects.dataset_of(&state, self.id)?;
        if d.grid.linear(scaled).is_none() {
            return Ok(None);
        }
        Ok(match Source::of(&state, &keys::chunk(self.id, scaled))? {
            Source::Image(_) => Some(ChunkPlace { len: 0, mask: None, offset: None }),
            Source::Cell(cell) => Some(ChunkPlace { len: cell.len(), mask: Some(cell.mask), offset: None }),
            Source::Nothing => None,
        })
    }

    fn next(&self, scaled: &[u64]) -> Result<Option<Vec<u64>>> {
        let state = self.connector.states.shown();
        let d = self.connector.objects.dataset_of(&state, self.id)?;
        let (_, end) = keys::of_kind(self.id, keys::CHUNK);
        let mut found = None;
        let _ = state.scan(&(Bound::Included(keys::chunk(self.id, scaled)), end), &mut |key, _| {
            found = keys::scaled(key).filter(|scaled| d.grid.linear(scaled).is_some());
            Ok(if found.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
        })?;
        Ok(found)
    }

    fn list(&self, start: u64, f: &mut dyn FnMut(&[u64], u64, u64) -> ControlFlow<()>) -> Result<()> {
        let keys = self.connector.states.shown().keys(&keys::of_kind(self.id, keys::CHUNK))?;
        for (next, key) in (1u64..).zip(keys).filter(|(next, _)| *next > start) {
            let Some(scaled) = keys::scaled(&key) else { continue };
            let Some(len) = self.stored_len(&scaled)? else { continue };
            if f(&scaled, len, next).is_break() {
                break;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{empty, open};
    use super::COUNTED_CHUNKS;
    use crate::connector::edit::Edit;
    use crate::connector::{Connector, Form};

    /// A hole of more than 64 chunks counted as data.
    #[test]
    fn stored_chunks_are_counted_and_many_of_them_estimated() {
        let (store, chunk) = (empty(), 1u64 << 20);
        let c = open(&store);
        let id = c.create_file(c.root(), b"f").unwrap();
        let content = c.content(id, Form::Main).unwrap();
        c.set_size(id, chunk << 20).unwrap();
        assert_eq!(content.allocated().unwrap(), 0);
        for n in [0, 70, 1 << 19] {
            c.write(id, n * chunk, b"three").unwrap();
        }
        assert_eq!(content.allocated().unwrap(), 15);
        Edit::commit(&*c).unwrap();
        assert_eq!(content.allocated().unwrap(), 15);
        c.zero(id, chunk << 19, chunk).unwrap();
        let counted = COUNTED_CHUNKS as u64;
        (0..counted + 1000).for_each(|n| c.write(id, n * chunk, &[1; 5]).unwrap());
        // The hole at the end is no data.
        assert_eq!(content.allocated().unwrap(), 5 * (counted + 1000));
        (counted..counted + 1000).for_each(|n| c.write(id, n * chunk, &[1; 15]).unwrap());
        Edit::commit(&*c).unwrap();
        let exact = 5 * counted + 15 * 1000;
        assert_eq!(content.allocated().unwrap(), 5 * (counted + 1000));
        assert_eq!((content.allocated_exactly().unwrap(), content.allocated().unwrap()), (exact, exact));
        c.write(id, 0, &[1; 6]).unwrap();
        assert!(content.allocated().unwrap() < exact, "it is estimated again after a change");
    }
}
