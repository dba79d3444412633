//! Stored chunks for other containers, and from them.

use super::access::IodConnector;
use super::coalesce::{each_group, grouped};
use super::dataset::{Dataset, Storage};
use super::image::Body;
use super::object_access::ObjectAccess;
use super::state::State;
use crate::base::{Error, Result};
use crate::connector::stored::{BATCH_CHUNKS_MAX, ChunkStorage, StoredChunk, StoredChunks, unlike};
use crate::iod::{Cell, Data, Extent, Ranges, keys};
use foldhash::HashMap;
use std::ops::{Bound, ControlFlow};
use std::sync::Arc;

/// Bytes of a chunk up to which it is copied instead of referred to: a reference is not shorter.
const REFERRED_MIN_BYTES: usize = 64;

impl Dataset {
    /// How its chunks are stored, if it has chunks that other containers can have.
    pub(super) fn chunk_storage(&self) -> Option<ChunkStorage> {
        let (datatype, fill) = (self.datatype.clone(), self.pattern.clone());
        let storage = match &self.storage {
            Storage::Chunked(chunk) => {
                let (dims, filters) = (self.space.dims.clone(), self.pipeline.filters.clone());
                ChunkStorage { datatype, dims, chunk: chunk.clone(), filters, profile: self.new_layout().kind.profile(), fill }
            }
            Storage::Compact | Storage::Contiguous => ChunkStorage::pieces(datatype, self.elements(), fill),
        };
        storage.portable()
    }

    /// True if chunks stored by `other` are valid in it.
    pub(super) fn takes(&self, other: &ChunkStorage) -> bool {
        self.chunk_storage().is_some_and(|own| own.is_like(other))
    }
}

/// The chunks of a dataset for another container.
pub(super) struct IodStoredChunks {
    connector: Arc<IodConnector>,
    id: u64,
    storage: ChunkStorage,
}

impl IodStoredChunks {
    /// Those of `d`; `None`: they are valid there only.
    pub(super) fn of(connector: Arc<IodConnector>, d: &Dataset) -> Option<IodStoredChunks> {
        Some(IodStoredChunks { connector, id: d.id, storage: d.chunk_storage()? })
    }

    /// Coordinates and values of the chunks after the one at `after`.
    fn cells(&self, after: Option<&[u64]>, budget: u64) -> Result<Vec<(Vec<u64>, Cell)>> {
        let state = self.connector.states.shown();
        let d = self.connector.objects.dataset_of(&state, self.id)?;
        let (start, end) = keys::of_kind(self.id, keys::CHUNK);
        let start = after.map_or(start, |scaled| Bound::Excluded(keys::chunk(self.id, scaled)));
        let (mut found, mut sum) = (Vec::new(), 0u64);
        let _ = state.scan(&(start, end), &mut |key, cell| {
            let Some(scaled) = keys::scaled(key).filter(|scaled| d.grid.linear(scaled).is_some()) else {
                return Ok(ControlFlow::Continue(()));
            };
            let cell = match state.changes.get(key).map(|c| &c.body) {
                Some(Body::Dirty(chunk)) => {
                    let image = chunk.chunk.now();
                    let (encoded, mask) = d.encode(&self.connector.env, &image)?;
                    Cell { mask, data: Data::Inline(encoded.into_memory()?.as_ref().into()) }
                }
                _ => cell.clone(),
            };
            sum = sum.saturating_add(cell.len());
            found.push((scaled, cell));
            Ok(if sum < budget && found.len() < BATCH_CHUNKS_MAX { ControlFlow::Continue(()) } else { ControlFlow::Break(()) })
        })?;
        Ok(found)
    }
}

impl StoredChunks for IodStoredChunks {
    fn storage(&self) -> &ChunkStorage {
        &self.storage
    }

    fn next(&self, after: Option<&[u64]>, budget: u64) -> Result<Vec<StoredChunk>> {
        let (places, cells): (Vec<Vec<u64>>, Vec<Cell>) = self.cells(after, budget)?.into_iter().unzip();
        let mut fetched = self.connector.objects.fetch_stored(&cells)?;
        let read = |extent: &Extent| self.connector.container.read_within("chunk", extent, extent.len.into());
        let chunk = |(scaled, cell): (Vec<u64>, &Cell)| {
            let bytes = match &cell.data {
                Data::Inline(bytes) => bytes.to_vec(),
                // Several chunks may have one extent.
                Data::Extent(extent) => fetched.remove(extent).map_or_else(|| read(extent), Ok)?,
            };
            let chunk = StoredChunk { scaled, mask: cell.mask, bytes, offset: None };
            self.storage.verify(&chunk).map(|()| chunk)
        };
        places.into_iter().zip(&cells).map(chunk).collect()
    }
}

impl ObjectAccess {
    /// The stored bytes of values in packs, by few requests.
    pub(super) fn fetch_stored(&self, cells: &[Cell]) -> Result<HashMap<Extent, Vec<u8>>> {
        let fetch = |extents: Vec<Extent>| match self.container.read_many(&extents) {
            Ok(all) => extents.iter().zip(all).map(|(extent, bytes)| Ok((*extent, bytes?))).collect(),
            Err(e) => vec![Err(e)],
        };
        let extents = cells.iter().filter_map(|cell| if let Data::Extent(extent) = &cell.data { Some(*extent) } else { None });
        let mut groups = grouped(extents.collect(), |extent| *extent);
        groups.iter_mut().for_each(Vec::dedup);
        each_group(groups, &fetch).into_iter().collect()
    }

    /// Where chunks are in the original `number`, of which each is read: it may have changed, or
    /// have its last changes in a journal.
    pub(super) fn places(&self, number: u64, chunks: &[StoredChunk]) -> Result<Vec<Data>> {
        let place = |chunk: &StoredChunk| match chunk.offset {
            Some(offset) if chunk.bytes.len() > REFERRED_MIN_BYTES => Extent::in_original(number, offset, &chunk.bytes).map(Data::Extent),
            _ => Ok(Data::Inline(chunk.bytes.as_slice().into())),
        };
        let places = chunks.iter().map(place).collect::<Result<Vec<_>>>()?;
        let extents = places.iter().filter_map(|place| if let Data::Extent(extent) = place { Some(*extent) } else { None });
        for request in grouped(extents.collect(), |extent| *extent) {
            self.container.read_many(&request)?.into_iter().try_for_each(|read| read.map(drop))?;
        }
        Ok(places)
    }

    /// Stores chunks of another container as they are, with their bytes in `places`.
    pub(super) fn put_chunks(
        &self,
        state: &mut State,
        id: u64,
        storage: &ChunkStorage,
        chunks: &[StoredChunk],
        places: Vec<Data>,
    ) -> Result<()> {
        let d = self.dataset_of(state, id)?;
        if !d.takes(storage) {
            return Err(unlike());
        }
        for (chunk, data) in chunks.iter().zip(places) {
            storage.check(&chunk.bytes)?;
            if d.grid.linear(&chunk.scaled).is_none() {
                return Err(Error::refused(libc::EINVAL, "a chunk lies outside of the dataset"));
            }
            let mut ranges = Ranges::default();
            ranges.add(0..d.grid.chunk_bytes());
            state.change(keys::chunk(id, &chunk.scaled), Body::Cell(Cell { mask: chunk.mask, data }), ranges);
        }
        state.touch(id)
    }
}

/// The bytes of chunks in the values themselves.
pub(super) fn inline(chunks: &[StoredChunk]) -> Vec<Data> {
    chunks.iter().map(|chunk| Data::Inline(chunk.bytes.as_slice().into())).collect()
}

#[cfg(test)]
mod tests {
    use super::super::tests::{bytes, empty, errno, open, spec};
    use super::*;
    use crate::connector::edit::Edit;
    use crate::connector::{ChunksSpec, Connector, DatasetSpec, FilterSpec, ObjectId};
    use crate::file::store::ObjectStore;

    /// `zlib.compress(b"\x07" * 10000, 1)` of Python.
    const SEVENS: [u8; 68] = [
        0x78, 0x01, 0xed, 0xd0, 0x31, 0x0d, 0x00, 0x00, 0x00, 0xc3, 0xa0, 0xb3, 0xfe, 0x1d, 0x4f, 0xc7, 0x12, 0x90, 0x40, 0x61, 0xc0, 0x80,
        0x01, 0x03, 0x06, 0x0c, 0x18, 0x30, 0x60, 0xc0, 0x80, 0x01, 0x03, 0x06, 0x0c, 0x18, 0x30, 0x60, 0xc0, 0x80, 0x01, 0x03, 0x06, 0x0c,
        0x18, 0x30, 0x60, 0xc0, 0x80, 0x01, 0x03, 0x06, 0x0c, 0x18, 0x30, 0x60, 0xc0, 0x80, 0x01, 0x03, 0x06, 0xfe, 0x07, 0x06, 0x7c, 0x4a,
        0x11, 0x80,
    ];

    fn gzip(c: &IodConnector, name: &[u8], level: u32) -> ObjectId {
        let filters = vec![FilterSpec { id: 1, flags: 0, name: Vec::new(), cd_values: vec![level] }];
        let chunks = Some(ChunksSpec::Dims(vec![10_000]));
        c.create_dataset(c.root(), name, &DatasetSpec { chunks, filters: Some(filters), ..spec("u1", &[45_000]) }).unwrap()
    }

    fn chunk(at: u64, mask: u32, bytes: &[u8]) -> StoredChunk {
        StoredChunk { scaled: vec![at], mask, bytes: bytes.to_vec(), offset: None }
    }

    /// All chunks of a dataset, read in batches of about `budget` bytes, and the number of batches.
    fn all(c: &IodConnector, id: ObjectId, budget: u64) -> (Vec<StoredChunk>, usize) {
        let stored = Connector::stored(c, id).unwrap().unwrap();
        let (mut all, mut batches) = (Vec::<StoredChunk>::new(), 0);
        loop {
            let after = all.last().map(|chunk| chunk.scaled.clone());
            let batch = stored.next(after.as_deref(), budget).unwrap();
            if batch.is_empty() {
                return (all, batches);
            }
            batches += 1;
            all.extend(batch);
        }
    }

    #[test]
    fn chunks_keep_their_stored_bytes_and_masks() {
        let (store, raw) = (empty(), (0..10_000u32).map(|n| (n % 251) as u8).collect::<Vec<_>>());
        let c = open(&store);
        let (d, level) = (gzip(&c, b"d", 1), gzip(&c, b"level", 2));
        let chunks = [chunk(0, 0, &SEVENS), chunk(2, 1, &raw), chunk(4, 1, &raw)];
        let storage = c.objects.dataset_of(&c.states.shown(), d.serial()).unwrap().chunk_storage().unwrap();
        assert!(c.takes_chunks(d, &storage).unwrap() && !c.takes_chunks(level, &storage).unwrap());
        c.store_chunks(d, &storage, &chunks).unwrap();
        assert_eq!(errno(&c.store_chunks(level, &storage, &chunks)), libc::EOPNOTSUPP);
        assert_eq!(errno(&c.store_chunks(d, &storage, &[chunk(1, 0, &SEVENS), chunk(5, 0, &SEVENS)])), libc::EINVAL);
        assert_eq!(errno(&c.store_chunks(d, &storage, &[chunk(1, 0, &[0; 60_000])])), libc::EOPNOTSUPP);
        let elements = [vec![7; 10_000], vec![0; 10_000], raw.clone(), vec![0; 10_000], raw[..5000].to_vec()].concat();
        assert_eq!((bytes(&*c, d), all(&c, d, 1)), (elements.clone(), (chunks.to_vec(), 3)));
        c.close().unwrap();
        // From packs, too. A chunk that is written to is encoded.
        let c = open(&store);
        for (budget, batches) in [(1, 3), (SEVENS.len() as u64 + 1, 2), (1 << 20, 1)] {
            assert_eq!(all(&c, d, budget), (chunks.to_vec(), batches), "{budget}");
        }
        assert_eq!(bytes(&*c, d), elements);
        c.write(d, 20_000, &[1]).unwrap();
        let (changed, _) = all(&c, d, 1 << 20);
        assert_eq!((&changed[0], changed[1].mask, &changed[2]), (&chunks[0], 0, &chunks[2]));
        let other = gzip(&c, b"other", 1);
        c.store_chunks(other, &storage, &changed).unwrap();
        assert_eq!(bytes(&*c, other), bytes(&*c, d));
    }

    /// Chunks of many datasets are stored in one pack by a commit, or before it if they are many.
    #[test]
    fn chunks_of_small_datasets_share_packs() {
        let store = empty();
        let c = open(&store);
        let raw = vec![9; 10_000];
        let ids: Vec<ObjectId> = (0..50).map(|n| gzip(&c, format!("d{n}").as_bytes(), 1)).collect();
        let storage = c.objects.dataset_of(&c.states.shown(), ids[0].serial()).unwrap().chunk_storage().unwrap();
        let before = store.counters()[0];
        for id in &ids {
            c.store_chunks(*id, &storage, &[chunk(1, 1, &raw), chunk(3, 0, &SEVENS)]).unwrap();
        }
        assert_eq!((store.counters()[0], c.states.shown().dirty_bytes), (before, 500_000));
        c.commit().unwrap();
        let requests = store.counters()[0] - before;
        assert!(requests <= 5, "{requests} requests");
        assert_eq!(c.states.shown().dirty_bytes, 0);
        assert_eq!(all(&c, ids[49], 1 << 20).0, [chunk(1, 1, &raw), chunk(3, 0, &SEVENS)]);
    }
}
