//! Datasets with variable-length parts as files: a form whose elements differ in length, and where
//! each begins.
//!
//! Element offsets are found in one pass over the elements and kept as checkpoints, one for every
//! `stride` elements. In the lines form a string's stored length is trusted unless one of a few
//! strings looked at first holds a NUL: writers other than libhdf5 count the terminator or padding.
//! Then every string is looked at and ends at its first NUL, as in C.
//!
//! Elements never written are all alike: runs of them are counted, not visited. An element that is
//! one long sequence or string is read from its place in the file, other long ones are kept in the
//! chunk cache while they are read piece by piece.

use super::content::block_size;
use super::dataset::Dataset;
use super::in_parts::{Made, Next};
use crate::base::budget::Budget;
use crate::base::newlines::Newlines;
use crate::base::parts::{self, Limited};
use crate::base::variable_form::VariableForm;
use crate::base::{Address, Error, Result, limits};
use crate::connector::Content;
use crate::dataset::chunk::cache::Found;
use crate::dataset::chunk::image::DenseImage;
use crate::dataset::chunk::key::CacheKey;
use crate::dataset::environment::Environment;
use crate::dataset::fill::FillPattern;
use crate::dataset::heap::{Descriptor, Heap};
use crate::dataset::layout::Seek;
use crate::format::Context;
use crate::meta::Store;
use crate::structures::global_heap;
use std::ops::Range;
use std::sync::Arc;

/// Longest form of one element that must be put together in memory, bytes.
const ELEMENT_MAX: u64 = 64 << 20;
/// Longer payloads are read in place, longer forms are kept while they are read, bytes.
const LONG: u64 = 256 << 10;
/// Bytes of elements and heap objects that are looked at for an index, as a multiple of the file's:
/// elements may be compressed, and heap objects named many times, but not without end.
const INDEX_FACTOR: u64 = 16;
/// The same beyond that, and for one read.
const WORK: u64 = 64 << 20;
/// Element bytes read at once.
const BATCH_BYTES: u64 = 256 << 10;
/// Elements of one part of a pass over all of them, about.
const PART_ELEMENTS: u64 = if cfg!(test) { 3 } else { 1 << 14 };
/// Most checkpoints kept.
const CHECKPOINTS_MAX: u64 = 1 << 16;
/// Strings with newlines that are described: an extended attribute has no room for more.
const NEWLINES_MAX: usize = 1 << 14;
/// Bytes of a count in the exact form.
const COUNT: u64 = 4;
/// Bytes looked at of a long string.
const SAMPLE_END: usize = 4096;
/// Strings looked at before stored lengths are trusted.
const SAMPLES: u64 = 64;

/// Global heap of a file.
struct WorkingHeap<'a> {
    store: &'a Store,
    work: &'a Budget,
}

impl Heap for WorkingHeap<'_> {
    fn ctx(&self) -> &Context {
        self.store.ctx()
    }

    fn object(&self, collection: Address, index: u32, budget: &mut parts::Budget) -> Result<Vec<u8>> {
        let len = global_heap::locate(self.store, collection, index)?.1;
        self.work.spend(len.saturating_add(OBJECT))?;
        budget.read(len)?;
        global_heap::object(self.store, collection, index).map(|o| o.to_vec())
    }
}

/// How much less nil elements cost than others.
const NIL_FACTOR: u64 = 8;
/// What looking up a heap object costs, as bytes.
const OBJECT: u64 = 64;

/// How an element is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Encoding {
    /// Parts with their counts.
    Exact,
    /// A string's stored length of bytes, and a newline.
    LineAsStored,
    /// A string up to its first NUL, and a newline.
    LineToNul,
}

struct Index {
    encoding: Encoding,
    stride: u64,
    /// Offset of element `i * stride`.
    checkpoints: Vec<u64>,
    size: u64,
}

/// See the module's description.
pub struct VariableContent {
    dataset: Arc<Dataset>,
    environment: Arc<Environment>,
    form: VariableForm,
    lines: bool,
    index: Made<Index, Indexing>,
    newlines: Made<Option<Newlines>, Counting>,
}

/// How far a pass over all elements is.
struct Pass {
    next: u64,
    /// What it may still cost.
    work: Budget,
}

/// The pass that makes the index.
struct Indexing {
    pass: Pass,
    index: Index,
}

/// The pass that counts newlines.
struct Counting {
    pass: Pass,
    newlines: Newlines,
    /// Strings without a newline since the last one that has some.
    skip: u64,
}

/// A part of the dataset.
enum Part<'a> {
    /// An element's number, its bytes, and the file whose heap it leads to.
    Element(u64, &'a [u8], &'a Store),
    /// Elements that are all this one.
    Alike(Range<u64>, &'a [u8]),
}

impl Part<'_> {
    /// Number past the last of its elements.
    fn end(&self) -> u64 {
        match self {
            Part::Element(number, ..) => number.saturating_add(1),
            Part::Alike(range, _) => range.end,
        }
    }
}

/// Elements as stored, and for each the file whose heap it leads to where that is not the
/// dataset's.
struct Batch {
    raw: Vec<u8>,
    owners: Vec<Option<Arc<Store>>>,
}

impl Batch {
    fn heaps(&self) -> impl Iterator<Item = Option<&Store>> {
        self.owners.iter().map(|o| o.as_deref()).chain(std::iter::repeat(None))
    }
}

impl VariableContent {
    /// The lines form (`lines`) or the exact form of `dataset`.
    pub fn new(dataset: Arc<Dataset>, environment: Arc<Environment>, lines: bool) -> Self {
        let form = VariableForm::of(&dataset.datatype);
        VariableContent { dataset, environment, form, lines, index: Made::default(), newlines: Made::default() }
    }

    fn store(&self) -> &Store {
        &self.dataset.bytes.store
    }

    fn index(&self) -> Result<&Index> {
        while !self.advance_index() {}
        let none = || Error::corrupt("dataset", self.dataset.object.header.address, "no index of elements");
        self.index.get().ok_or_else(none)?.as_ref().map_err(Error::clone)
    }

    fn limit(&self, detail: &'static str) -> Error {
        Error::limit("dataset", self.dataset.object.header.address, detail)
    }

    /// Calls `f` with each element from `first` on, and the file whose heap it leads to, or with
    /// runs of elements alike (never written, or nil), until it returns false.
    fn elements(&self, first: u64, work: &Budget, f: &mut dyn FnMut(Part<'_>) -> Result<bool>) -> Result<()> {
        let size = self.dataset.element_size.max(1);
        let total = self.dataset.elements();
        let per_batch = (BATCH_BYTES / size).max(1);
        let mut next = first;
        let fill = self.unwritten_element();
        let nil = vec![0; fill.len()];
        while next < total {
            let at = next.saturating_mul(size);
            let alike = match self.dataset.bytes.unwritten(at)? {
                Some(end) => Some((end, &fill)),
                None => self.dataset.layout().file_hole_end(&self.dataset.bytes, at).map(|end| (end, &nil)),
            };
            if let Some((end, element)) = alike.map(|(end, e)| ((end / size).min(total), e)).filter(|(end, _)| *end > next) {
                if !f(Part::Alike(next..end, element))? {
                    return Ok(());
                }
                next = end;
                continue;
            }
            let n = per_batch.min(total.saturating_sub(next));
            let batch = self.batch(next, n)?;
            if batch.owners.is_empty() && batch.raw.iter().all(|b| *b == 0) {
                // Long runs of nil elements, in a hole of the file say, cost little more than
                // reading them.
                work.spend(n.saturating_mul(size) / NIL_FACTOR)?;
                let one = batch.raw.get(..usize::try_from(size).unwrap_or(0)).unwrap_or_default();
                let end = next.saturating_add(n);
                if !f(Part::Alike(next..end, one))? {
                    return Ok(());
                }
                next = end;
                continue;
            }
            work.spend(n.saturating_mul(size))?;
            for (element, heap) in batch.raw.chunks_exact(usize::try_from(size).unwrap_or(usize::MAX)).zip(batch.heaps()) {
                if !f(Part::Element(next, element, heap.unwrap_or(self.store())))? {
                    return Ok(());
                }
                next = next.saturating_add(1);
            }
        }
        Ok(())
    }

    /// `n` elements from number `first` on, as stored.
    fn batch(&self, first: u64, n: u64) -> Result<Batch> {
        let size = self.dataset.element_size.max(1);
        if size > limits::ELEMENT_BYTES_MAX {
            return Err(self.limit("elements too large for variable-length data"));
        }
        let mut batch = Batch { raw: vec![0; usize::try_from(n.saturating_mul(size)).unwrap_or(0)], owners: Vec::new() };
        let Some(mapped) = self.dataset.layout().mapped() else {
            self.dataset.bytes.read(&self.environment, first.saturating_mul(size), &mut batch.raw)?;
            return Ok(batch);
        };
        // Each element leads into the heap of the file it comes from.
        self.dataset.bytes.fill.fill(0, &mut batch.raw);
        batch.owners.resize(usize::try_from(n).unwrap_or(0), None);
        let len = usize::try_from(size).unwrap_or(usize::MAX);
        mapped.variable(first..first.saturating_add(n), &mut |i, element, heap| {
            let at = usize::try_from(i.saturating_sub(first)).unwrap_or(usize::MAX);
            let from = at.saturating_mul(len);
            if let (Some(to), Some(owner)) = (batch.raw.get_mut(from..from.saturating_add(len)), batch.owners.get_mut(at)) {
                to.copy_from_slice(element);
                *owner = Some(heap.clone());
            }
            Ok(())
        })?;
        Ok(batch)
    }

    fn descriptor(&self, element: &[u8], heap: &Store) -> Result<Descriptor> {
        Descriptor::decode(element, heap.ctx())
    }

    /// True when every sampled string is free of NUL; of a long one only the end is looked at.
    fn lengths_can_be_trusted(&self, work: &Budget) -> Result<bool> {
        let total = self.dataset.elements();
        let step = (total / SAMPLES).max(1);
        for i in (0..total).step_by(usize::try_from(step).unwrap_or(usize::MAX)).take(SAMPLES as usize + 1) {
            let batch = self.batch(i, 1)?;
            let heap = batch.heaps().next().flatten().unwrap_or(self.store());
            let d = self.descriptor(&batch.raw, heap)?;
            let found = if u64::from(d.count) > LONG {
                let mut end = vec![0; SAMPLE_END];
                self.payload_at(&d, 1, heap, u64::from(d.count).saturating_sub(SAMPLE_END as u64), &mut end)?;
                end.contains(&0)
            } else {
                self.string(&batch.raw, heap, work)?.contains(&0)
            };
            if found {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// A string's stored bytes.
    fn string(&self, element: &[u8], store: &Store, work: &Budget) -> Result<Vec<u8>> {
        let d = self.descriptor(element, store)?;
        d.payload(1, &WorkingHeap { store, work }, &mut parts::Budget::new(ELEMENT_MAX))
    }

    /// Fills `buf` from byte `from` of the payload that `d` names, elements of `size` bytes.
    fn payload_at(&self, d: &Descriptor, size: u32, store: &Store, from: u64, buf: &mut [u8]) -> Result<()> {
        let (at, len) = global_heap::locate(store, d.collection, d.index)?;
        if len < d.payload_len(size) || from.saturating_add(buf.len() as u64) > len {
            let detail = format!("object {} has {len} bytes, a variable-length element needs {}", d.index, d.payload_len(size));
            return Err(Error::corrupt("global heap", d.collection, detail));
        }
        store.read_raw(at.checked_add(from).unwrap_or(Address::UNDEF), buf)
    }

    /// Newlines inside the strings, at most those of [`NEWLINES_MAX`] strings; `None`: there are
    /// more, or a string cannot be read. Reads all strings the first time.
    pub fn newlines(&self) -> Option<Newlines> {
        while !self.prepare_newlines() {}
        self.newlines.get().and_then(|found| found.as_ref().ok()).cloned().flatten()
    }

    /// The next part of what [`Self::newlines`] reads. True if nothing is left.
    pub fn prepare_newlines(&self) -> bool {
        if !self.prepare() {
            return false;
        }
        let begin = || Ok(Counting { pass: self.pass()?, newlines: Newlines::default(), skip: 0 });
        let part = |counting| self.count_newlines(counting).inspect_err(|e| tracing::debug!("newlines in strings are not counted: {e}"));
        self.newlines.advance(begin, part)
    }

    fn count_newlines(&self, counting: Counting) -> Result<Next<Option<Newlines>, Counting>> {
        let Counting { mut pass, mut newlines, mut skip } = counting;
        let (encoding, mut few) = (self.index()?.encoding, true);
        let done = self.advance(&mut pass, &mut |part, work| {
            let (element, store, count) = match &part {
                Part::Element(_, element, store) => (*element, *store, 1),
                Part::Alike(range, element) => (*element, self.store(), range.end.saturating_sub(range.start)),
            };
            // The last newline ends the line.
            let line = self.form(encoding, element, store, work)?;
            let inside = (memchr::memchr_iter(b'\n', &line).count() as u64).saturating_sub(1);
            if inside == 0 {
                skip = skip.saturating_add(count);
                return Ok(true);
            }
            for _ in 0..count {
                few = newlines.strings() < NEWLINES_MAX;
                if !few {
                    return Ok(false);
                }
                newlines.push(std::mem::take(&mut skip), inside);
            }
            Ok(true)
        })?;
        Ok(match done || !few {
            true => Next::Done(few.then_some(newlines)),
            false => Next::Pass(Counting { pass, newlines, skip }),
        })
    }

    /// A pass over all elements that begins, with what it may cost.
    fn pass(&self) -> Result<Pass> {
        let room = self.store().room()?;
        let work = Budget::new(room.saturating_mul(INDEX_FACTOR).saturating_add(WORK), "variable-length data");
        Ok(Pass { next: 0, work })
    }

    /// Goes on with a pass, by about [`PART_ELEMENTS`] or until `f` returns false. True: it is at
    /// its end.
    fn advance(&self, pass: &mut Pass, f: &mut dyn FnMut(Part<'_>, &Budget) -> Result<bool>) -> Result<bool> {
        let (end, mut next) = (pass.next.saturating_add(PART_ELEMENTS), pass.next);
        self.elements(pass.next, &pass.work, &mut |part| {
            next = part.end();
            Ok(f(part, &pass.work)? && next < end)
        })?;
        pass.next = next;
        Ok(next >= self.dataset.elements())
    }

    fn advance_index(&self) -> bool {
        self.index.advance(|| self.begin_index(), |indexing| self.index_part(indexing))
    }

    fn begin_index(&self) -> Result<Indexing> {
        let pass = self.pass()?;
        let encoding = match self.lines {
            false => Encoding::Exact,
            true if self.lengths_can_be_trusted(&pass.work)? => Encoding::LineAsStored,
            true => Encoding::LineToNul,
        };
        let stride = (self.dataset.elements() / CHECKPOINTS_MAX).max(256);
        Ok(Indexing { pass, index: Index { encoding, stride, checkpoints: Vec::new(), size: 0 } })
    }

    fn index_part(&self, indexing: Indexing) -> Result<Next<Index, Indexing>> {
        let Indexing { mut pass, mut index } = indexing;
        let (encoding, stride) = (index.encoding, index.stride);
        let too_large = || self.limit("its byte form is larger than a file can be");
        let done = self.advance(&mut pass, &mut |part, work| {
            let (elements, len) = match part {
                Part::Element(i, element, store) => (i..i.saturating_add(1), self.len_of(encoding, element, store, work)?),
                Part::Alike(range, element) => (range, self.len_of(encoding, element, self.store(), work)?),
            };
            let mut mark = elements.start.next_multiple_of(stride);
            while mark < elements.end {
                let before = mark.saturating_sub(elements.start).checked_mul(len).ok_or_else(too_large)?;
                index.checkpoints.push(index.size.saturating_add(before));
                mark = mark.saturating_add(stride);
            }
            let all = elements.end.saturating_sub(elements.start).checked_mul(len).and_then(|n| index.size.checked_add(n));
            index.size = all.filter(|n| *n <= i64::MAX as u64).ok_or_else(too_large)?;
            Ok(true)
        })?;
        Ok(if done { Next::Done(index) } else { Next::Pass(Indexing { pass, index }) })
    }

    /// An element never written.
    fn unwritten_element(&self) -> Vec<u8> {
        let mut element = vec![0; usize::try_from(self.dataset.element_size.min(limits::ELEMENT_BYTES_MAX)).unwrap_or(0)];
        self.dataset.bytes.fill.fill(0, &mut element);
        element
    }

    /// The descriptor and the base size, if the element is one sequence of fixed-size elements.
    fn plain(&self, element: &[u8], store: &Store) -> Result<Option<(Descriptor, u32)>> {
        self.form.plain_base().map(|size| Ok((self.descriptor(element, store)?, size))).transpose()
    }

    fn len_of(&self, encoding: Encoding, element: &[u8], store: &Store, work: &Budget) -> Result<u64> {
        match encoding {
            Encoding::LineAsStored => Ok(u64::from(self.descriptor(element, store)?.count).saturating_add(1)),
            Encoding::Exact => {
                if let Some((d, size)) = self.plain(element, store)? {
                    return Ok(d.payload_len(size).saturating_add(COUNT));
                }
                let heap = WorkingHeap { store, work };
                self.form.exact_len(element, &Limited { parts: &heap, limit: ELEMENT_MAX })
            }
            Encoding::LineToNul => {
                let s = self.string(element, store, work)?;
                Ok(s.iter().position(|b| *b == 0).unwrap_or(s.len()) as u64 + 1)
            }
        }
    }

    /// The form of an element.
    fn form(&self, encoding: Encoding, element: &[u8], store: &Store, work: &Budget) -> Result<Vec<u8>> {
        let heap = WorkingHeap { store, work };
        let limited = Limited { parts: &heap, limit: ELEMENT_MAX };
        let mut out = Vec::new();
        match encoding {
            Encoding::Exact => self.form.exact(element, &limited, &mut out)?,
            Encoding::LineToNul => self.form.line(element, &limited, &mut out)?,
            Encoding::LineAsStored => {
                out.extend_from_slice(&self.string(element, store, work)?);
                out.push(b'\n');
            }
        }
        Ok(out)
    }

    /// Fills `buf` from byte `from` of the form of element `number`, which has `len` bytes.
    fn form_at(&self, encoding: Encoding, e: (u64, &[u8], &Store), len: u64, from: u64, buf: &mut [u8], work: &Budget) -> Result<()> {
        let (number, element, store) = e;
        let changed =
            || Error::corrupt("variable-length element", self.dataset.object.header.address, "its length changed while it was read");
        if len > LONG
            && encoding != Encoding::LineToNul
            && let Some((d, size)) = self.plain(element, store)?
        {
            return self.long_at(encoding, &d, size, store, from, buf);
        }
        let copy = |form: &[u8], buf: &mut [u8]| {
            let start = usize::try_from(from).unwrap_or(usize::MAX);
            let bytes = start.checked_add(buf.len()).and_then(|end| form.get(start..end)).filter(|_| form.len() as u64 == len);
            bytes.map(|b| buf.copy_from_slice(b)).ok_or_else(changed)
        };
        if len <= LONG {
            return copy(&self.form(encoding, element, store, work)?, buf);
        }
        let dataset = super::dataset::key(self.dataset.id);
        let key = CacheKey::Element { dataset, element: number, exact: encoding == Encoding::Exact };
        match self.environment.cache.get(key, len, || self.form(encoding, element, store, work).map(DenseImage::boxed))? {
            Found::Chunk(form) => {
                self.environment.cache.record_read(key, &form, buf.len() as u64);
                copy(form.image().dense().unwrap_or_default(), buf)
            }
            // The entry may be overwritten while it is read; then the form is made again.
            Found::OnDisk => copy(&self.form(encoding, element, store, work)?, buf),
        }
    }

    /// As `form_at`, of a long sequence or string, which is read where it lies.
    fn long_at(&self, encoding: Encoding, d: &Descriptor, size: u32, store: &Store, from: u64, buf: &mut [u8]) -> Result<()> {
        let (front, back): (&[u8], &[u8]) = match encoding {
            Encoding::Exact => (&d.count.to_le_bytes(), b""),
            _ => (b"", b"\n"),
        };
        let payload = d.payload_len(size);
        let skip = usize::try_from(from).unwrap_or(usize::MAX).min(front.len());
        let head = front.get(skip..).unwrap_or_default();
        let (a, rest) = buf.split_at_mut(head.len().min(buf.len()));
        a.copy_from_slice(head.get(..a.len()).unwrap_or_default());
        let start = from.saturating_sub(front.len() as u64);
        let n = usize::try_from(payload.saturating_sub(start)).unwrap_or(usize::MAX).min(rest.len());
        let (body, tail) = rest.split_at_mut(n);
        if !body.is_empty() {
            self.payload_at(d, size, store, start, body)?;
        }
        tail.copy_from_slice(back.get(..tail.len()).unwrap_or_default());
        Ok(())
    }
}

impl Content for VariableContent {
    fn prepare(&self) -> bool {
        self.advance_index()
    }

    fn size(&self) -> Result<u64> {
        Ok(self.index()?.size)
    }

    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let index = self.index()?;
        let want = usize::try_from(index.size.saturating_sub(offset)).unwrap_or(usize::MAX).min(buf.len());
        let Some(buf) = buf.get_mut(..want).filter(|b| !b.is_empty()) else { return Ok(0) };
        let at = index.checkpoints.partition_point(|c| *c <= offset).saturating_sub(1);
        let mut position = index.checkpoints.get(at).copied().unwrap_or(0);
        let mut done = 0usize;
        let work = Budget::new(WORK, "variable-length data");
        self.elements((at as u64).saturating_mul(index.stride), &work, &mut |part| {
            let wanted = offset.saturating_add(done as u64);
            let Some(rest) = buf.get_mut(done..) else { return Ok(false) };
            let (len, count) = match &part {
                Part::Element(_, element, store) => (self.len_of(index.encoding, element, store, &work)?, 1),
                Part::Alike(r, element) => (self.len_of(index.encoding, element, self.store(), &work)?, r.end.saturating_sub(r.start)),
            };
            let end = position.saturating_add(len.saturating_mul(count));
            if end > wanted {
                let n = usize::try_from(end.saturating_sub(wanted)).unwrap_or(usize::MAX).min(rest.len());
                let (to, from) = (rest.get_mut(..n).unwrap_or_default(), wanted.saturating_sub(position));
                match part {
                    Part::Element(i, element, store) => self.form_at(index.encoding, (i, element, store), len, from, to, &work)?,
                    Part::Alike(_, element) => {
                        // The same form over and over, as a fill value is.
                        let form = self.form(index.encoding, element, self.store(), &work)?;
                        FillPattern::new(&form, len).fill(from, to);
                    }
                }
                done = done.saturating_add(n);
            }
            position = end;
            Ok(done < buf.len())
        })?;
        Ok(done)
    }

    fn allocated(&self) -> Result<u64> {
        self.dataset.layout().allocated(&self.dataset.bytes, &self.environment)
    }

    fn allocated_exactly(&self) -> Result<u64> {
        self.dataset.layout().allocated_exactly(&self.dataset.bytes, &self.environment)
    }

    fn block_size(&self) -> u32 {
        block_size(&self.dataset)
    }

    fn seek(&self, offset: u64, what: Seek) -> Result<Option<u64>> {
        // The form has no holes: every element writes at least its counts.
        Ok(Some(if what == Seek::Data { offset } else { self.size()? }))
    }

    fn read_ahead(&self, _at: u64, from: u64) -> u64 {
        from
    }
}
