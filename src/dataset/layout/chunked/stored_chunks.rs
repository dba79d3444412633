//! Access to stored chunks, for the chunks view and for copies in other containers.

use super::storage::Chunked;
use super::write::ChunkWriter;
use crate::base::{Address, Error, Result};
use crate::dataset::chunk::format::check_stored;
use crate::dataset::chunk::present::PresentChunks;
use crate::dataset::environment::Environment;
use crate::dataset::index::ChunkRecord;
use crate::dataset::layout::traits::{DatasetBytes, Operation, PortableChunk, StoredChunks, StoredPlace};
use crate::format::chunk_record::StoredForm;
use crate::format::message::data_layout::DataLayout;
use std::ops::ControlFlow;
use std::sync::atomic::Ordering;

/// Chunks that are listed even if the file's allocated bytes cannot hold so many.
const LISTED_CHUNKS_MIN: u64 = 1024;

impl Chunked {
    fn record(&self, data: &DatasetBytes, scaled: &[u64]) -> Result<Option<ChunkRecord>> {
        if self.grid.linear(scaled).is_none() {
            return Ok(None);
        }
        self.index.lookup(&data.store, scaled)
    }

    /// Numbers of allocated chunks from number `from` on, `most` at most.
    fn numbers(&self, data: &DatasetBytes, from: u64, most: usize) -> Result<Vec<u64>> {
        if self.index.is_complete(&data.store)? {
            return Ok((from..self.grid.chunks()).take(most).collect());
        }
        let mut numbers = Vec::new();
        self.for_each_stored(&data.store, from, &mut |number| {
            numbers.push(number);
            Ok(if numbers.len() < most { ControlFlow::Continue(()) } else { ControlFlow::Break(()) })
        })?;
        Ok(numbers)
    }
}

impl ChunkWriter<'_> {
    /// Stores chunks in new space: coordinates, filter mask and bytes of each. Returns whether the
    /// layout message changed.
    fn store_portable(&self, layout: &mut DataLayout, chunks: &[(&[u64], u32, &[u8])]) -> Result<bool> {
        let (c, whole) = (self.chunked, self.chunked.grid.chunk_bytes());
        let mut changed = false;
        for (scaled, mask, bytes) in chunks {
            let outside = || Error::refused(libc::EINVAL, "a chunk lies outside of the dataset");
            let number = c.grid.linear(scaled).ok_or_else(outside)?;
            if c.is_plain(scaled) && (bytes.len() as u64) < whole {
                let mut all = bytes.to_vec();
                all.resize(usize::try_from(whole).unwrap_or(0), 0);
                self.fill.fill(bytes.len() as u64, all.get_mut(bytes.len()..).unwrap_or_default());
                changed |= self.store_chunk(layout, scaled, &all, StoredForm::WHOLE)?;
            } else {
                changed |= self.store_chunk(layout, scaled, bytes, StoredForm::Whole { filter_mask: *mask })?;
            }
            self.env.dirty.remove(c.key(number));
            self.drop_decoded(c.key(number));
            self.env.copied.fetch_add(1, Ordering::Relaxed);
        }
        Ok(changed)
    }
}

impl StoredChunks for Chunked {
    fn stored_len(&self, data: &DatasetBytes, scaled: &[u64]) -> Result<Option<u64>> {
        Ok(self.record(data, scaled)?.map(|r| r.size))
    }

    fn read(&self, data: &DatasetBytes, scaled: &[u64], offset: u64, buf: &mut [u8]) -> Result<usize> {
        let Some(record) = self.record(data, scaled)? else { return Ok(0) };
        let n = usize::try_from(record.size.saturating_sub(offset)).unwrap_or(usize::MAX).min(buf.len());
        let Some(buf) = buf.get_mut(..n).filter(|b| !b.is_empty()) else { return Ok(0) };
        let at = record.address.checked_add(offset);
        data.store.read_raw(at.ok_or_else(|| Error::corrupt("chunk", record.address, "ends past 2^64"))?, buf)?;
        Ok(n)
    }

    fn list(&self, data: &DatasetBytes, start: u64, f: &mut dyn FnMut(&[u64], u64, u64) -> ControlFlow<()>) -> Result<()> {
        let store = &data.store;
        let mut visit = |number: u64| f(&self.grid.scaled(number), 0, number.saturating_add(1));
        if self.index.is_complete(store)? {
            // A sparse file may have more chunks than can be listed.
            let most = (store.held()? / self.grid.chunk_bytes().max(1)).max(LISTED_CHUNKS_MIN);
            let _ = (start..self.grid.chunks().min(most)).try_for_each(visit);
            return Ok(());
        }
        // Positions are chunk numbers.
        self.for_each_stored(store, start, &mut |number| Ok(visit(number)))
    }

    fn place(&self, data: &DatasetBytes, env: &Environment, scaled: &[u64]) -> Result<Option<StoredPlace>> {
        let Some(number) = self.grid.linear(scaled) else { return Ok(None) };
        if env.dirty.get(self.key(number)).is_some() {
            return Ok(Some(StoredPlace { len: 0, mask: None, address: Address::UNDEF }));
        }
        let Some(record) = self.index.lookup(&data.store, scaled)? else { return Ok(None) };
        let (whole, is_plain) = (self.grid.chunk_bytes(), self.is_plain(scaled));
        let len = if is_plain { whole } else { record.size };
        check_stored(&*data.store, whole, record, len)?;
        let mask = if is_plain && !self.format.is_plain(false) { u32::MAX } else { record.filter_mask() };
        Ok(Some(StoredPlace { len, mask: Some(mask), address: record.address }))
    }

    fn next(&self, data: &DatasetBytes, env: &Environment, scaled: &[u64]) -> Result<Option<Vec<u64>>> {
        let Some(from) = self.grid.linear(scaled) else { return Ok(None) };
        let first = self.present(env, &data.store).first(from..self.grid.chunks())?;
        Ok(first.map(|number| self.grid.scaled(number)))
    }

    fn is_portable(&self) -> bool {
        // Where sections are is in the record of a chunk.
        self.format.record_shape().sections().is_none()
    }

    fn is_allocated_by_chunk(&self) -> bool {
        // A chunk of an implicit index may lie in a hole of the file.
        !self.is_implicit
    }

    fn takes_portable(&self) -> bool {
        self.is_portable() && !self.is_implicit && !self.format.stores_edges_differently()
    }

    fn portable(&self, data: &DatasetBytes, from: u64, budget: u64, most: usize) -> Result<Vec<PortableChunk>> {
        let (store, whole) = (&data.store, self.grid.chunk_bytes());
        let (mut found, mut sum) = (Vec::new(), 0u64);
        for number in self.numbers(data, from, most)? {
            let scaled = self.grid.scaled(number);
            let Some(record) = self.index.lookup(store, &scaled)? else { continue };
            let is_plain = self.is_plain(&scaled);
            let size = if is_plain { whole } else { record.size };
            check_stored(&**store, whole, record, size)?;
            sum = sum.saturating_add(size);
            found.push((scaled, record, size, is_plain));
            if sum >= budget {
                break;
            }
        }
        let read = |(scaled, record, size, is_plain): (Vec<u64>, ChunkRecord, u64, bool)| {
            let mut bytes = vec![0; usize::try_from(size).unwrap_or(0)];
            store.read_raw(record.address, &mut bytes)?;
            Ok(PortableChunk { scaled, mask: (!is_plain).then(|| record.filter_mask()), address: record.address, bytes })
        };
        found.into_iter().map(read).collect()
    }

    fn store_portable(&self, op: &Operation<'_>, chunks: &[(&[u64], u32, &[u8])]) -> Result<Option<DataLayout>> {
        self.change_chunks(op, |writer, layout| writer.store_portable(layout, chunks))
    }
}
