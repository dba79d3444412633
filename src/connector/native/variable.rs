//! Datasets with variable-length parts as files: a form whose elements differ in length, and where
//! each begins.
//!
//! Element offsets are found in one pass over the elements and kept as checkpoints, one for every
//! `stride` elements. In the lines form a string's stored length is trusted unless one of a few
//! strings looked at first holds a NUL: writers other than libhdf5 count the terminator or padding.
//! Then every string is looked at and ends at its first NUL, as in C.

use super::content::block_size;
use super::dataset::Dataset;
use crate::base::{Error, Result};
use crate::connector::Content;
use crate::container::global_heap;
use crate::dataset::environment::Environment;
use crate::dataset::storage::Seek;
use crate::dataset::types::resolver::{self, Descriptor, Resolver};
use crate::dataset::vl::VariableForm;
use crate::meta::Store;
use parking_lot::Mutex;
use std::sync::{Arc, OnceLock};

/// Longest form of one element, bytes.
const ELEMENT_MAX: u64 = 1 << 30;
/// Element bytes read at once.
const BATCH_BYTES: u64 = 256 << 10;
/// Most checkpoints kept.
const CHECKPOINTS_MAX: u64 = 1 << 16;
/// Strings looked at before stored lengths are trusted.
const SAMPLES: u64 = 64;

/// Global heap of a file.
pub struct HeapResolver<'a>(pub &'a Store);

impl Resolver for HeapResolver<'_> {
    fn vlen(&self, collection: crate::base::Address, index: u32) -> Result<Vec<u8>> {
        global_heap::object(self.0, collection, index).map(|o| o.to_vec())
    }
}

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
    index: OnceLock<Result<Index>>,
    once: Mutex<()>,
}

impl VariableContent {
    /// The lines form (`lines`) or the exact form of `dataset`.
    pub fn new(dataset: Arc<Dataset>, environment: Arc<Environment>, lines: bool) -> Self {
        let form = VariableForm::of(&dataset.datatype);
        VariableContent { dataset, environment, form, lines, index: OnceLock::new(), once: Mutex::new(()) }
    }

    fn store(&self) -> &Store {
        &self.dataset.bytes.store
    }

    fn index(&self) -> Result<&Index> {
        if self.index.get().is_none() {
            let _once = self.once.lock();
            self.index.get_or_init(|| self.build());
        }
        match self.index.get() {
            Some(Ok(i)) => Ok(i),
            Some(Err(e)) => Err(e.clone()),
            None => Err(Error::corrupt("dataset", self.dataset.object.header.address, "no index of elements")),
        }
    }

    /// Calls `f` with each element from `first` on until it returns false.
    fn elements(&self, first: u64, f: &mut dyn FnMut(u64, &[u8]) -> Result<bool>) -> Result<()> {
        let size = self.dataset.element_size.max(1);
        let total = self.dataset.elements();
        let per_batch = (BATCH_BYTES / size).max(1);
        let mut next = first;
        while next < total {
            let n = per_batch.min(total.saturating_sub(next));
            let mut raw = vec![0; usize::try_from(n.saturating_mul(size)).unwrap_or(0)];
            self.dataset.bytes.read(&self.environment, next.saturating_mul(size), &mut raw)?;
            for element in raw.chunks_exact(usize::try_from(size).unwrap_or(usize::MAX)) {
                if !f(next, element)? {
                    return Ok(());
                }
                next = next.saturating_add(1);
            }
        }
        Ok(())
    }

    fn descriptor(&self, element: &[u8]) -> Result<Descriptor> {
        Descriptor::decode(element, self.store().ctx())
    }

    /// True when every sampled string is free of NUL.
    fn lengths_can_be_trusted(&self) -> Result<bool> {
        let total = self.dataset.elements();
        let step = (total / SAMPLES).max(1);
        let size = self.dataset.element_size;
        let mut raw = vec![0; usize::try_from(size).unwrap_or(0)];
        for i in (0..total).step_by(usize::try_from(step).unwrap_or(usize::MAX)).take(SAMPLES as usize + 1) {
            self.dataset.bytes.read(&self.environment, i.saturating_mul(size), &mut raw)?;
            if self.string(&raw)?.contains(&0) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// A string's stored bytes.
    fn string(&self, element: &[u8]) -> Result<Vec<u8>> {
        let d = self.descriptor(element)?;
        d.payload(1, &HeapResolver(self.store()), &mut resolver::Budget::new(ELEMENT_MAX))
    }

    fn build(&self) -> Result<Index> {
        let encoding = match self.lines {
            false => Encoding::Exact,
            true if self.lengths_can_be_trusted()? => Encoding::LineAsStored,
            true => Encoding::LineToNul,
        };
        let stride = (self.dataset.elements() / CHECKPOINTS_MAX).max(256);
        let mut index = Index { encoding, stride, checkpoints: Vec::new(), size: 0 };
        self.elements(0, &mut |i, element| {
            if i % stride == 0 {
                index.checkpoints.push(index.size);
            }
            let len = self.len_of(encoding, element)?;
            index.size =
                index.size.checked_add(len).filter(|n| *n <= i64::MAX as u64).ok_or_else(|| {
                    Error::limit("dataset", self.dataset.object.header.address, "its byte form is larger than a file can be")
                })?;
            Ok(true)
        })?;
        Ok(index)
    }

    fn len_of(&self, encoding: Encoding, element: &[u8]) -> Result<u64> {
        match encoding {
            Encoding::LineAsStored => Ok(u64::from(self.descriptor(element)?.count).saturating_add(1)),
            Encoding::Exact => {
                let heap = HeapResolver(self.store());
                self.form.exact_len(element, &resolver::Environment { ctx: *self.store().ctx(), resolver: &heap, limit: ELEMENT_MAX })
            }
            Encoding::LineToNul => {
                let s = self.string(element)?;
                Ok(s.iter().position(|b| *b == 0).unwrap_or(s.len()) as u64 + 1)
            }
        }
    }

    fn write(&self, encoding: Encoding, element: &[u8], out: &mut Vec<u8>) -> Result<()> {
        let heap = HeapResolver(self.store());
        let environment = resolver::Environment { ctx: *self.store().ctx(), resolver: &heap, limit: ELEMENT_MAX };
        match encoding {
            Encoding::Exact => self.form.exact(element, &environment, out),
            Encoding::LineToNul => self.form.line(element, &environment, out),
            Encoding::LineAsStored => {
                out.extend_from_slice(&self.string(element)?);
                out.push(b'\n');
                Ok(())
            }
        }
    }
}

impl Content for VariableContent {
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
        let mut form = Vec::new();
        self.elements((at as u64).saturating_mul(index.stride), &mut |_, element| {
            let len = self.len_of(index.encoding, element)?;
            let end = position.saturating_add(len);
            if end > offset {
                form.clear();
                self.write(index.encoding, element, &mut form)?;
                if form.len() as u64 != len {
                    return Err(Error::corrupt(
                        "variable-length element",
                        self.dataset.object.header.address,
                        "its length changed while it was read",
                    ));
                }
                let skip = usize::try_from(offset.saturating_sub(position)).unwrap_or(usize::MAX);
                let bytes = form.get(skip..).unwrap_or_default();
                let n = bytes.len().min(buf.len().saturating_sub(done));
                if let (Some(to), Some(from)) = (buf.get_mut(done..done.saturating_add(n)), bytes.get(..n)) {
                    to.copy_from_slice(from);
                }
                done = done.saturating_add(n);
            }
            position = end;
            Ok(done < buf.len())
        })?;
        Ok(done)
    }

    fn allocated(&self) -> Result<u64> {
        self.dataset.bytes.allocated()
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
