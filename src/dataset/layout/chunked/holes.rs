//! Allocated bytes and holes of a chunked dataset: `st_blocks`, SEEK_DATA and SEEK_HOLE.

use super::storage::Chunked;
use crate::base::{Address, Error, Result};
use crate::dataset::chunk::dirty::{Before, DirtyChunk};
use crate::dataset::chunk::pieces::ByteGrid;
use crate::dataset::chunk::present::{PresentChunks, VisitNumber};
use crate::dataset::chunk::stored_size::StoredSize;
use crate::dataset::environment::Environment;
use crate::dataset::layout::traits::Seek;
use crate::meta::Store;
use crate::structures::estimate::sample_place;
use std::ops::{ControlFlow, Range};

/// Chunks that are counted one by one at the first `stat`; of more, the stored bytes are estimated.
const COUNTED_CHUNKS_MAX: u64 = 1 << 16;
/// Samples of stored sizes in one estimate, and the chunks of each.
const SIZE_SAMPLES: (u64, u64) = (8, 32);

/// Which number of stored bytes a caller wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Accuracy {
    /// Exact if known or quickly found; else an estimate.
    Quick,
    /// Exact, if necessary after a walk over the whole index.
    Exact,
}

/// Count and stored size of all chunks.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Totals {
    /// Allocated chunks.
    pub(super) chunks: u64,
    /// Their stored bytes.
    pub(super) bytes: u64,
}

impl Chunked {
    /// Stored bytes of all chunks. New dirty chunks count with their decoded elements.
    pub(super) fn stored_bytes(&self, env: &Environment, store: &Store, accuracy: Accuracy) -> Result<u64> {
        let known = env.stored.get(self.number).filter(|size| !self.is_implicit && (size.is_exact || accuracy == Accuracy::Quick));
        let stored = match known {
            Some(size) => size,
            None => {
                let size = self.measure(store, accuracy)?;
                env.stored.set(self.number, size);
                size
            }
        };
        Ok(stored.bytes.saturating_add(self.dirty_bytes(env)))
    }

    /// Bytes of the elements of dirty chunks that the index has no record of: the defined ones, if
    /// chunks know them. Programs take a file with fewer bytes than its size for one with holes.
    fn dirty_bytes(&self, env: &Environment) -> u64 {
        if !self.knows_defined() {
            return env.dirty.added_bytes(self.number);
        }
        let added = env.dirty.of(self.number).into_iter().filter(|(_, chunk)| chunk.before() == Before::Absent);
        let defined = |chunk: &DirtyChunk| chunk.now().image().defined().map(|set| set.elements().saturating_mul(self.chunks.element_size));
        added.map(|(_, chunk)| defined(&chunk).unwrap_or_else(|| chunk.len())).fold(0, u64::saturating_add)
    }

    fn measure(&self, store: &Store, accuracy: Accuracy) -> Result<StoredSize> {
        // Of a remote file every node of the index is a request: the elements are counted instead.
        if accuracy == Accuracy::Quick && store.driver().is_remote() && self.has_index {
            return Ok(StoredSize { bytes: self.grid.chunks().saturating_mul(self.grid.chunk_bytes()), is_exact: false });
        }
        let is_counted = accuracy == Accuracy::Exact || self.index.is_complete(store)?;
        if !is_counted {
            let estimate = self.index.estimate(store)?;
            if estimate.walked > COUNTED_CHUNKS_MAX {
                let bytes = self.estimate(store, estimate.entries.min(self.grid.chunks()))?;
                return Ok(StoredSize { bytes, is_exact: false });
            }
        }
        Ok(StoredSize { bytes: self.totals(store)?.bytes, is_exact: true })
    }

    /// Count and stored size of all chunks, exact.
    pub(super) fn totals(&self, store: &Store) -> Result<Totals> {
        if self.index.is_complete(store)? {
            // Not walked: a sparse file can hold any number of allocated chunks.
            let chunks = self.grid.chunks();
            return Ok(Totals { chunks, bytes: chunks.saturating_mul(self.grid.chunk_bytes()) });
        }
        let mut totals = Totals::default();
        self.index.iterate(store, &mut |_, record| {
            totals.chunks = totals.chunks.saturating_add(1);
            totals.bytes = totals.bytes.saturating_add(record.size);
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(totals)
    }

    /// Estimates the stored bytes of `chunks` chunks by the mean of samples across the dataset.
    fn estimate(&self, store: &Store, chunks: u64) -> Result<u64> {
        if !self.format.has_variable_size() {
            return Ok(chunks.saturating_mul(self.grid.chunk_bytes()));
        }
        let (samples, most) = SIZE_SAMPLES;
        let mut sampled = Totals::default();
        let mut add = |size: u64| {
            sampled.chunks = sampled.chunks.saturating_add(1);
            sampled.bytes = sampled.bytes.saturating_add(size);
        };
        if self.index.is_ordered() {
            for i in 0..samples {
                let mut left = most;
                self.for_each_stored(store, sample_place(i, self.grid.chunks()), &mut |number| {
                    if let Some(record) = self.index.lookup(store, &self.grid.scaled(number))? {
                        add(record.size);
                    }
                    left = left.saturating_sub(1);
                    Ok(if left == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
                })?;
            }
        } else {
            let mut left = samples.saturating_mul(most);
            self.index.iterate(store, &mut |_, record| {
                add(record.size);
                left = left.saturating_sub(1);
                Ok(if left == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
            })?;
        }
        let bytes = u128::from(chunks).saturating_mul(u128::from(sampled.bytes)).checked_div(u128::from(sampled.chunks));
        Ok(u64::try_from(bytes.unwrap_or(0)).unwrap_or(u64::MAX))
    }

    /// Visits the numbers of the stored chunks from number `from` on, ascending. Errors: damage,
    /// chunks out of order.
    pub(super) fn for_each_stored(&self, store: &Store, from: u64, f: &mut dyn FnMut(u64) -> Result<ControlFlow<()>>) -> Result<()> {
        if from >= self.grid.chunks() {
            return Ok(());
        }
        let mut least = from;
        self.index.iterate_from(store, &self.grid.scaled(from), &mut |scaled| {
            let Some(number) = self.grid.linear(scaled) else { return Ok(ControlFlow::Continue(())) };
            if number < least {
                return Err(Error::corrupt(self.index.name(), Address::UNDEF, format!("chunk {scaled:?} is not in order")));
            }
            least = number.saturating_add(1);
            f(number)
        })
    }

    /// The first stored chunk in a range of chunk numbers.
    pub(super) fn first_stored(&self, store: &Store, range: Range<u64>) -> Result<Option<u64>> {
        if self.index.is_complete(store)? {
            return Ok(Some(range.start).filter(|n| *n < range.end));
        }
        self.found.first_stored(range, &mut |from| {
            let mut found = self.grid.chunks();
            self.for_each_stored(store, from, &mut |number| {
                found = number;
                Ok(ControlFlow::Break(()))
            })?;
            Ok(found)
        })
    }

    /// The first chunk in a range of chunk numbers that is not stored.
    fn first_absent(&self, store: &Store, range: Range<u64>) -> Result<Option<u64>> {
        if self.index.is_complete(store)? {
            return Ok(None);
        }
        self.found.first_absent(range, &mut |run| {
            let most = run.end.saturating_sub(run.start);
            let shown = self.index.stored_run(store, &self.grid.scaled(run.start), most)?;
            let mut next = run.start.saturating_add(shown.min(most));
            if next >= run.end {
                return Ok(run.end);
            }
            self.for_each_stored(store, next, &mut |number| {
                next = if number == next { next.saturating_add(1) } else { return Ok(ControlFlow::Break(())) };
                Ok(if next < run.end { ControlFlow::Continue(()) } else { ControlFlow::Break(()) })
            })?;
            Ok(next)
        })
    }

    /// Next data or hole at or after `offset` in the file; ignores dirty chunks.
    pub(super) fn seek_in_file(&self, store: &Store, offset: u64, what: Seek) -> Result<Option<u64>> {
        (&self.stored(store) as &dyn PresentChunks).seek(offset, what)
    }

    /// The chunks that are stored in the file.
    pub(super) fn stored<'a>(&'a self, store: &'a Store) -> Present<'a> {
        Present { chunked: self, store, dirty: Vec::new() }
    }

    /// The chunks that are stored or dirty.
    pub(super) fn present<'a>(&'a self, env: &Environment, store: &'a Store) -> Present<'a> {
        let dirty = if env.dirty.has(self.number) { env.dirty.of(self.number) } else { Vec::new() };
        Present { chunked: self, store, dirty: dirty.into_iter().map(|(key, _)| key.chunk).collect() }
    }
}

/// The chunks of a dataset in a file.
pub(super) struct Present<'a> {
    pub chunked: &'a Chunked,
    pub store: &'a Store,
    /// Numbers of dirty chunks, ascending.
    dirty: Vec<u64>,
}

impl Present<'_> {
    /// Numbers of dirty chunks from `from` on.
    fn dirty_from(&self, from: u64) -> &[u64] {
        self.dirty.get(self.dirty.partition_point(|n| *n < from)..).unwrap_or_default()
    }
}

impl PresentChunks for Present<'_> {
    fn grid(&self) -> &ByteGrid {
        &self.chunked.grid
    }

    fn visit(&self, from: u64, f: &mut VisitNumber<'_>) -> Result<()> {
        let (mut dirty, mut ended) = (self.dirty_from(from).iter().copied().peekable(), false);
        self.chunked.for_each_stored(self.store, from, &mut |number| {
            while let Some(between) = dirty.next_if(|n| *n <= number) {
                if between < number && f(between)?.is_break() {
                    ended = true;
                    return Ok(ControlFlow::Break(()));
                }
            }
            let flow = f(number)?;
            ended = flow.is_break();
            Ok(flow)
        })?;
        while let Some(rest) = dirty.next().filter(|_| !ended) {
            ended = f(rest)?.is_break();
        }
        Ok(())
    }

    fn first(&self, range: Range<u64>) -> Result<Option<u64>> {
        let dirty = self.dirty_from(range.start).first().copied().filter(|n| range.contains(n));
        Ok(self.chunked.first_stored(self.store, range)?.into_iter().chain(dirty).min())
    }

    fn first_absent(&self, range: Range<u64>) -> Result<Option<u64>> {
        let mut from = range.start;
        while let Some(number) = self.chunked.first_absent(self.store, from..range.end)? {
            if self.dirty.binary_search(&number).is_err() {
                return Ok(Some(number));
            }
            from = number.saturating_add(1);
        }
        Ok(None)
    }
}
