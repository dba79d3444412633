//! Chunks near each other in a pack are fetched by one request.

use super::chunk_reader::ChunkReader;
use super::dataset::Dataset;
use super::decoding::{HELD_BYTES, chunk_key, permit};
use crate::base::{Error, Result};
use crate::dataset::chunk::cache::{Chunk, Reservation};
use crate::dataset::chunk::image::Image;
use crate::iod::{Cell, Data, Extent};
use foldhash::HashMap;
use rayon::prelude::*;
use std::sync::Arc;

/// Bytes between two chunks that are fetched and not used, at most.
const GAP_BYTES: u64 = 512 << 10;
/// Bytes of one request, at most, unless a chunk is longer.
const REQUEST_BYTES: u64 = 8 << 20;
/// Requests of one reader at once.
const REQUESTS_AT_ONCE: usize = 16;

/// Chunks of one request, ascending.
pub(super) type Group = Vec<(Extent, u32)>;
/// Decoded chunks, and why others could not be read.
pub(super) type Fetched = HashMap<Extent, Result<Arc<Chunk>>>;

/// Divides values in packs into groups that one request each fetches. `place`: where one is.
pub(super) fn grouped<T>(mut all: Vec<T>, place: impl Fn(&T) -> Extent) -> Vec<Vec<T>> {
    all.sort_unstable_by_key(|value| (place(value).session, place(value).pack, place(value).offset));
    let (mut groups, mut bytes): (Vec<Vec<T>>, u64) = (Vec::new(), 0);
    for value in all {
        let next = place(&value);
        // Extents may overlap.
        bytes = bytes.saturating_add(next.len.into());
        let is_near =
            |group: &&mut Vec<T>| group.first().zip(group.last()).is_some_and(|(first, last)| near(place(first), place(last), next));
        match groups.last_mut().filter(|_| bytes <= REQUEST_BYTES).filter(is_near) {
            Some(group) => group.push(value),
            None => {
                groups.push(vec![value]);
                bytes = next.len.into();
            }
        }
    }
    groups
}

/// Divides chunks in packs into groups that one request each fetches.
pub(super) fn groups(cells: &[Cell]) -> Vec<Group> {
    let in_packs = cells.iter().filter_map(|cell| match &cell.data {
        Data::Extent(extent) => Some((*extent, cell.mask)),
        Data::Inline(_) => None,
    });
    let mut groups = grouped(in_packs.collect(), |(extent, _)| *extent);
    groups.iter_mut().for_each(|group| group.dedup_by_key(|(extent, _)| *extent));
    groups
}

/// [`groups`] of chunks that are decoded. Those of a group are in memory together: few of them if
/// they are long.
pub(super) fn groups_to_decode(d: &Dataset, cells: &[Cell]) -> Vec<Group> {
    let most = HELD_BYTES.checked_div(d.grid.chunk_bytes()).and_then(|n| usize::try_from(n).ok()).unwrap_or(1).max(1);
    match d.pipeline.is_empty() {
        true => groups(cells),
        false => groups(cells).iter().flat_map(|group| group.chunks(most).map(<[_]>::to_vec)).collect(),
    }
}

/// Calls `fetch` with each group, several at once; returns all results.
pub(super) fn each_group<T: Sync, R: Send>(groups: &[Vec<T>], fetch: &(dyn Fn(&[T]) -> Vec<R> + Sync)) -> Vec<R> {
    if groups.len() < 2 {
        return groups.iter().flat_map(|group| fetch(group)).collect();
    }
    std::thread::scope(|scope| {
        let parts = groups.chunks(groups.len().div_ceil(REQUESTS_AT_ONCE).max(1));
        let threads: Vec<_> =
            parts.map(|part| scope.spawn(move || part.iter().flat_map(|group| fetch(group)).collect::<Vec<_>>())).collect();
        let joined = threads.into_iter().flat_map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        joined.collect()
    })
}

fn end(extent: &Extent) -> u64 {
    extent.offset.saturating_add(extent.len.into())
}

/// True if one request fetches a group from `first` to `last` and `next`.
fn near(first: Extent, last: Extent, next: Extent) -> bool {
    let same_pack = (first.session, first.pack) == (next.session, next.pack);
    same_pack && next.offset.saturating_sub(end(&last)) <= GAP_BYTES && end(&next).saturating_sub(first.offset) <= REQUEST_BYTES
}

impl ChunkReader {
    /// Fetches and decodes the chunks of a group that are in no cache, and that no other thread
    /// fetches.
    pub(super) fn fetch_group(&self, d: &Dataset, group: &[(Extent, u32)]) -> Vec<(Extent, Result<Arc<Chunk>>)> {
        let chunks = group.iter().map(|(extent, _)| (chunk_key(d, extent), d.decoded_len(extent.len.into())));
        let (mut ours, mut reserved) = (Group::new(), Vec::new());
        for (chunk, reservation) in group.iter().zip(self.env.cache.reserve(chunks)) {
            if let Some(reservation) = reservation {
                ours.push(*chunk);
                reserved.push(reservation);
            }
        }
        let stored = self.read_group(&ours);
        // Not while it is fetched: requests go out side by side, and are short.
        let bytes = ours.iter().fold(0u64, |n, (extent, _)| n.saturating_add(d.decoding_bytes(extent.len.into())));
        let permit = permit(&self.env, bytes);
        let decoded = self.decode_all(d, &ours, stored);
        drop(permit);
        let finish =
            |((reservation, image), (extent, _)): ((Reservation<'_>, Result<Image>), &(Extent, u32))| (*extent, reservation.finish(image));
        reserved.into_iter().zip(decoded).zip(&ours).map(finish).collect()
    }

    /// The stored bytes of the chunks of a group.
    fn read_group(&self, group: &[(Extent, u32)]) -> Vec<Result<Vec<u8>>> {
        let extents: Vec<Extent> = group.iter().map(|(extent, _)| *extent).collect();
        match self.container.read_many(&extents) {
            Ok(stored) => stored,
            // The store cannot be reached, or does not answer: another request ends as this one.
            Err(e @ (Error::Io { .. } | Error::Request { .. })) => extents.iter().map(|_| Err(e.clone())).collect(),
            // One of them is not in its pack.
            Err(_) => extents.iter().map(|extent| self.container.read_within("chunk", extent, extent.len.into())).collect(),
        }
    }

    /// Fetches the chunks of `cells` that are in no cache, if one request brings several.
    pub(super) fn fetch_several(&self, d: &Dataset, cells: &[Cell]) -> Fetched {
        let is_missing = |cell: &&Cell| matches!(&cell.data, Data::Extent(extent) if !self.env.cache.contains(chunk_key(d, extent)));
        let is_fetched = |cell: &&Cell| !self.is_large(d, cell) && d.check_stored(cell.len()).is_ok();
        let missing: Vec<Cell> = cells.iter().filter(is_fetched).filter(is_missing).cloned().collect();
        if missing.len() < 2 {
            return Fetched::default();
        }
        each_group(&groups_to_decode(d, &missing), &|group| self.fetch_group(d, group)).into_iter().collect()
    }

    /// Decodes chunks, several at once if they have filters.
    fn decode_all(&self, d: &Dataset, group: &Group, stored: Vec<Result<Vec<u8>>>) -> Vec<Result<Image>> {
        let decode = |((_, mask), stored): (&(Extent, u32), Result<Vec<u8>>)| stored.and_then(|bytes| d.decode(bytes, *mask));
        if group.len() < 2 || d.pipeline.is_empty() {
            return group.iter().zip(stored).map(decode).collect();
        }
        self.env.pool.install(|| group.par_iter().zip(stored).map(decode).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::super::image::Body;
    use super::super::tests::{bytes, empty, open, open_in, spec};
    use super::*;
    use crate::connector::edit::Edit;
    use crate::connector::{ChunksSpec, Connector, DatasetSpec, FilterSpec, Form};
    use crate::file::store::faulty::{Fault, FaultyStore};
    use crate::iod::Ranges;

    fn cell(session: u64, offset: u64, len: u32) -> Cell {
        Cell { mask: 0, data: Data::Extent(Extent { session, pack: 0, offset, len, checksum: 0 }) }
    }

    #[test]
    fn chunks_near_each_other_are_one_group() {
        let lens = |cells: &[Cell]| groups(cells).iter().map(Vec::len).collect::<Vec<_>>();
        let near: Vec<Cell> = (0..64).rev().map(|n| cell(1, n << 16, 1 << 16)).collect();
        assert_eq!(lens(&near), [64]);
        assert_eq!(lens(&[cell(1, 0, 10), cell(1, GAP_BYTES + 10, 10)]), [2]);
        assert_eq!(lens(&[cell(1, 0, 10), cell(1, GAP_BYTES + 11, 10)]), [1, 1]);
        assert_eq!(lens(&[cell(1, 0, 10), cell(2, 10, 10), Cell::inline(b"x")]), [1, 1]);
        let far: Vec<Cell> = (0..12).map(|n| cell(1, n << 20, 1 << 20)).collect();
        assert_eq!(lens(&far), [8, 4]);
        assert_eq!(lens(&[cell(1, 5, 10), cell(1, 5, 10)]), [1]);
        // Overlapping extents count with all of their bytes.
        let overlapping: Vec<Cell> = (0..16).map(|n| cell(1, n, 1 << 20)).collect();
        assert_eq!(lens(&overlapping), [8, 8]);
        assert_eq!(lens(&[cell(1, 0, u32::MAX), cell(1, u64::from(u32::MAX), 1)]), [1, 1]);
    }

    #[test]
    fn few_long_chunks_are_decoded_together() {
        let c = open(&empty());
        let deflate = || FilterSpec { id: 1, flags: 0, name: Vec::new(), cd_values: vec![1] };
        for (filters, want) in [(vec![deflate()], vec![2, 2, 1]), (vec![], vec![5])] {
            let name = filters.len().to_string();
            let chunks = Some(ChunksSpec::Dims(vec![16 << 20]));
            let spec = DatasetSpec { chunks, filters: Some(filters), ..spec("u1", &[80 << 20]) };
            let id = c.create_dataset(c.root(), name.as_bytes(), &spec).unwrap();
            let d = c.dataset_of(&c.states.shown(), id.serial()).unwrap();
            let cells: Vec<Cell> = (0..5).map(|n| cell(1, n << 10, 1 << 10)).collect();
            assert_eq!(groups_to_decode(&d, &cells).iter().map(Vec::len).collect::<Vec<_>>(), want);
        }
    }

    /// The chunks of a failed request were requested once more, one by one.
    #[test]
    fn a_failed_request_is_not_repeated() {
        let store = empty();
        let c = open(&store);
        let spec = DatasetSpec { chunks: Some(ChunksSpec::Dims(vec![1 << 16])), ..spec("u1", &[4 << 20]) };
        let id = c.create_dataset(c.root(), b"d", &spec).unwrap();
        c.write(id, 0, &vec![5; 4 << 20]).unwrap();
        c.close().unwrap();
        let version = c.states.shown().snapshot.version();
        let faulty = Arc::new(FaultyStore::new(store, Fault::Silent, i64::MAX));
        let c = open_in(faulty.clone(), Some(version)).unwrap();
        let content = c.content(id, Form::Main).unwrap();
        content.size().unwrap();
        faulty.fail_at(0);
        let mut buf = vec![0; 4 << 20];
        assert!(matches!(content.read(0, &mut buf), Err(Error::Request { .. })));
        assert_eq!(faulty.since(), 1);
        faulty.heal();
        assert_eq!((content.read(0, &mut buf).unwrap(), buf[77]), (4 << 20, 5));
    }

    /// Of the chunks of one request, one is not in its pack: the others are read.
    #[test]
    fn a_chunk_past_the_end_of_its_pack_fails_alone() {
        let c = open(&empty());
        let spec = DatasetSpec { chunks: Some(ChunksSpec::Dims(vec![1 << 16])), ..spec("u1", &[1 << 20]) };
        let id = c.create_dataset(c.root(), b"d", &spec).unwrap();
        c.write(id, 0, &vec![5; 1 << 20]).unwrap();
        c.commit().unwrap();
        c.env.forget_decoded();
        let mut state = c.states.next();
        let key = c.dataset_of(&state, id.serial()).unwrap().chunk_key(3);
        let Data::Extent(extent) = state.get(&key).unwrap().unwrap().data else { panic!("inline") };
        let wrong = Cell { mask: 0, data: Data::Extent(Extent { offset: extent.offset + (1 << 20), ..extent }) };
        state.change(key, Body::Cell(wrong), Ranges::whole());
        drop(state);
        let content = c.content(id, Form::Main).unwrap();
        let mut buf = vec![0; 1 << 20];
        assert!(content.read(0, &mut buf).is_err());
        for (at, len) in [(0, 3 << 16), (4 << 16, 12 << 16)] {
            buf.fill(0);
            assert_eq!((content.read(at, &mut buf[..len]).unwrap(), buf[len - 1]), (len, 5));
        }
    }

    /// 64 chunks of 64 KiB in one pack: a read or a read-ahead of all is one request.
    #[test]
    fn a_sequential_read_is_few_requests() {
        let store = empty();
        let c = open(&store);
        let spec = DatasetSpec { chunks: Some(ChunksSpec::Dims(vec![1 << 16])), ..spec("u1", &[4 << 20]) };
        let id = c.create_dataset(c.root(), b"d", &spec).unwrap();
        let data: Vec<u8> = (0..4usize << 20).map(|n| (n % 251) as u8).collect();
        c.write(id, 0, &data).unwrap();
        c.close().unwrap();
        for ahead in [false, true] {
            let c = open(&store);
            c.set_cache_bytes(64 << 20);
            let content = c.content(id, Form::Main).unwrap();
            content.size().unwrap();
            let before = c.container.store().counters()[0];
            if ahead {
                assert_eq!(content.read_ahead(0, 0), 4 << 20);
            }
            assert_eq!(bytes(&*c, id), data);
            let requests = c.container.store().counters()[0] - before;
            assert!((1..=3).contains(&requests), "{requests} requests, read ahead: {ahead}");
        }
    }
}
