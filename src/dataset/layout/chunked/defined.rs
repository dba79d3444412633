//! Defined elements of datasets in sparse chunks: the sets of chunks, and erasing.

use super::holes::Present;
use super::storage::Chunked;
use super::write::ChunkWriter;
use crate::base::element_set::ElementSet;
use crate::base::{Address, Error, Result};
use crate::dataset::chunk::cache::Found;
use crate::dataset::chunk::defined::{ChunkSets, EachSet, STEP_CHUNKS, local_block};
use crate::dataset::chunk::pieces::ByteGrid;
use crate::dataset::chunk::present::{PresentChunks, VisitNumber};
use crate::dataset::chunk::{ChunkGrid, LARGE_DATA};
use crate::dataset::environment::Environment;
use crate::format::message::data_layout::DataLayout;
use crate::meta::Store;
use rayon::prelude::*;
use std::ops::Range;

/// Most bytes of chunks that one call of [`ChunkWriter::erase`] decodes, about.
const STEP_BYTES: u64 = 64 << 20;

impl Chunked {
    /// True if chunks know which of their elements were written.
    pub(super) fn knows_defined(&self) -> bool {
        self.format.knows_defined()
    }

    /// The sets of its chunks.
    pub(super) fn sets<'a>(&'a self, env: &'a Environment, store: &'a Store) -> Sets<'a> {
        Sets { present: self.present(env, store), env }
    }

    /// The defined elements of a stored chunk, which is kept decoded.
    fn decoded_set(&self, env: &Environment, store: &Store, number: u64) -> Result<Option<ElementSet>> {
        let scaled = self.grid.scaled(number);
        let Some(record) = self.index.lookup(store, &scaled)? else { return Ok(None) };
        let load = || self.format.decode(store, record, self.grid.is_edge(&scaled));
        match env.cache.get(self.key(number), self.grid.chunk_bytes(), load)? {
            Found::Chunk(chunk) => Ok(chunk.image().defined().cloned()),
            Found::OnDisk => Err(Error::corrupt("chunk", record.address, "a sparse chunk in the disk cache")),
        }
    }
}

/// Which elements of a dataset in a file were written.
pub(super) struct Sets<'a> {
    present: Present<'a>,
    env: &'a Environment,
}

impl PresentChunks for Sets<'_> {
    fn grid(&self) -> &ByteGrid {
        self.present.grid()
    }

    fn visit(&self, from: u64, f: &mut VisitNumber<'_>) -> Result<()> {
        self.present.visit(from, f)
    }

    fn first(&self, range: Range<u64>) -> Result<Option<u64>> {
        self.present.first(range)
    }

    fn first_absent(&self, range: Range<u64>) -> Result<Option<u64>> {
        self.present.first_absent(range)
    }
}

impl ChunkSets for Sets<'_> {
    fn chunks(&self) -> &ChunkGrid {
        &self.present.chunked.chunks
    }

    fn set_of(&self, number: u64, decode: bool) -> Result<Option<ElementSet>> {
        let Sets { present: Present { chunked: c, store, .. }, env } = self;
        let (key, scaled) = (c.key(number), c.grid.scaled(number));
        if c.grid.chunk_bytes() > env.whole_chunk_max() {
            return Err(Error::limit(LARGE_DATA, Address::UNDEF, "sparse chunks of this size need a larger --cache-size"));
        }
        if let Some(chunk) = env.dirty.get(key) {
            return Ok(chunk.now().image().defined().cloned());
        }
        // A thread of the pool does not wait for a chunk that is being decoded.
        if let Some(chunk) = env.cache.ready(std::iter::once(key)).into_iter().flatten().next() {
            return Ok(chunk.image().defined().cloned());
        }
        match decode {
            true => c.decoded_set(env, store, number),
            false => match c.index.lookup(store, &scaled)? {
                Some(record) => c.format.defined(*store, record, c.grid.is_edge(&scaled)),
                None => Ok(None),
            },
        }
    }

    fn each(&self, numbers: &[u64], f: &EachSet<'_>) -> Result<Vec<ElementSet>> {
        // Passing one chunk to a thread takes longer than its set. Who asks for that of one chunk
        // often reads its values next.
        if let [number] = numbers {
            let decode = self.present.chunked.format.stores_defined();
            return Ok(vec![f(*number, self.set_of(*number, decode)?)?]);
        }
        let one = |n: &u64| f(*n, self.set_of(*n, false)?);
        self.env.pool.install(|| numbers.par_iter().map(one).collect())
    }
}

impl ChunkWriter<'_> {
    /// Makes the elements of the block `first .. end` undefined, from chunk number `from` on; frees
    /// chunks in which none is left. Returns whether the layout message changed, and the number of
    /// the chunk at which the next call begins.
    pub(crate) fn erase(&self, layout: &mut DataLayout, first: &[u64], end: &[u64], from: u64) -> Result<(bool, Option<u64>)> {
        let c = self.chunked;
        let count: Vec<u64> = end.iter().zip(first).map(|(e, f)| e.saturating_sub(*f)).collect();
        let Some(range) = self.grid.range(first, &count)? else { return Ok((false, None)) };
        let ends = c.grid.linear(&range.first).zip(c.grid.linear(&range.last));
        let (low, high) = ends.ok_or_else(|| Error::limit("chunk grid", Address::UNDEF, "chunk numbers"))?;
        let (mut changed, mut decoded) = (false, 0u64);
        let mut next = Some(low.max(from));
        while let Some(from) = next {
            let numbers;
            (numbers, next) =
                (&c.present(self.env, self.store) as &dyn PresentChunks).step(from..high.saturating_add(1), STEP_CHUNKS, &|_| true)?;
            for number in numbers {
                if decoded > STEP_BYTES {
                    return Ok((changed, Some(number)));
                }
                let origin = self.grid.origin(&c.grid.scaled(number)).unwrap_or_default();
                let block = local_block(&origin, &self.grid.chunk_dims, first, end);
                if !block.is_empty() {
                    decoded = decoded.saturating_add(c.grid.chunk_bytes());
                    changed |= self.erase_in(layout, number, &block)?;
                }
            }
        }
        Ok((changed, None))
    }

    /// Makes the elements of `block` in a chunk undefined, given in the chunk's coordinates.
    /// Returns whether the layout message changed.
    fn erase_in(&self, layout: &mut DataLayout, number: u64, block: &ElementSet) -> Result<bool> {
        let c = self.chunked;
        let sets = c.sets(self.env, self.store);
        let Some(set) = (&sets as &dyn ChunkSets).within(number, false)? else { return Ok(false) };
        if set.intersection(block)?.is_empty() {
            return Ok(false);
        }
        if set.difference(block)?.is_empty() {
            let record = c.index.lookup(self.store, &c.grid.scaled(number))?;
            return self.free_chunk(layout, number, record);
        }
        let mut parts = Vec::new();
        let size = self.grid.element_size;
        block.for_each_run(&self.grid.chunk_dims, &mut |run| {
            let bytes = |n: u64| n.checked_mul(size).and_then(|n| usize::try_from(n).ok());
            let part = bytes(run.start).zip(bytes(run.end.saturating_sub(run.start)));
            parts.push(part.ok_or_else(|| Error::limit("chunk", Address::UNDEF, "size"))?);
            Ok(())
        })?;
        self.make_dirty(number)?.clear(&parts)?;
        Ok(false)
    }
}
