//! Chunks near each other in a pack are fetched by one request.

use super::chunk_reader::ChunkReader;
use super::dataset::Dataset;
use super::decoding::{HELD_BYTES, StoredValue, chunk_key, permit};
use crate::base::{Error, Result};
use crate::dataset::chunk::cache::Chunk;
use crate::dataset::chunk::reading::ClaimedChunk;
use crate::iod::Extent;
use rayon::prelude::*;
use std::sync::Arc;

/// Bytes between two chunks that are fetched and not used, at most.
const GAP_BYTES: u64 = 512 << 10;
/// Bytes of one request, at most, unless a chunk is longer.
const REQUEST_BYTES: u64 = 8 << 20;
/// Requests of one reader at once.
const REQUESTS_AT_ONCE: usize = 16;

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

/// Calls `fetch` with each group, several at once; returns all results, in any order.
pub(super) fn each_group<T: Send, R: Send>(groups: Vec<Vec<T>>, fetch: &(dyn Fn(Vec<T>) -> Vec<R> + Sync)) -> Vec<R> {
    if groups.len() < 2 {
        return groups.into_iter().flat_map(fetch).collect();
    }
    let at_once = groups.len().div_ceil(REQUESTS_AT_ONCE).max(1);
    let mut groups = groups.into_iter();
    let parts = std::iter::from_fn(|| Some(groups.by_ref().take(at_once).collect::<Vec<_>>()).filter(|part| !part.is_empty()));
    std::thread::scope(|scope| {
        let threads: Vec<_> = parts.map(|part| scope.spawn(move || part.into_iter().flat_map(fetch).collect::<Vec<_>>())).collect();
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

/// A chunk that is fetched, and its number among those of a request.
type Numbered<'a> = (usize, ClaimedChunk<'a, StoredValue>);

impl ChunkReader {
    /// Fetches and decodes claimed chunks of `d`: those near each other together, several requests
    /// at once.
    pub(super) fn fetch<'a>(&self, d: &Dataset, claimed: Vec<ClaimedChunk<'a, StoredValue>>) -> Vec<Result<Arc<Chunk>>> {
        let groups = grouped(claimed.into_iter().enumerate().collect(), |(_, (_, stored)): &Numbered<'a>| stored.extent);
        let mut fetched = each_group(self.split(d, groups), &|group| self.fetch_group(d, group));
        fetched.sort_unstable_by_key(|(number, _)| *number);
        fetched.into_iter().map(|(_, chunk)| chunk).collect()
    }

    /// Stored chunks of `d` in groups that one request each fetches.
    pub(super) fn groups(&self, d: &Dataset, stored: Vec<StoredValue>) -> Vec<Vec<StoredValue>> {
        self.split(d, grouped(stored, |stored| stored.extent))
    }

    /// Divides groups of chunks that are decoded. Those of a group are in memory together: few of
    /// them if they are long.
    fn split<T>(&self, d: &Dataset, groups: Vec<Vec<T>>) -> Vec<Vec<T>> {
        if d.pipeline.is_empty() {
            return groups;
        }
        let most = usize::try_from(HELD_BYTES / d.grid.chunk_bytes().max(1)).unwrap_or(usize::MAX).max(1);
        let mut parts = Vec::new();
        for mut group in groups {
            while group.len() > most {
                let rest = group.split_off(most);
                parts.push(std::mem::replace(&mut group, rest));
            }
            parts.push(group);
        }
        parts
    }

    /// Fetches and decodes the chunks of a group that are in no cache, and that no other thread
    /// fetches. Readers find their errors again.
    pub(super) fn fetch_missing(&self, d: &Dataset, group: Vec<StoredValue>) {
        let chunks = group.iter().map(|stored| (chunk_key(d, &stored.extent), d.decoded_len(stored.extent.len.into())));
        let ours = self.env.cache.reserve(chunks).into_iter().zip(&group).enumerate();
        let ours = ours.filter_map(|(n, (reservation, stored))| Some((n, (reservation?, *stored)))).collect();
        drop(self.fetch_group(d, ours));
    }

    /// Fetches and decodes the chunks of a group by one request.
    fn fetch_group(&self, d: &Dataset, group: Vec<Numbered<'_>>) -> Vec<(usize, Result<Arc<Chunk>>)> {
        let extents: Vec<Extent> = group.iter().map(|(_, (_, stored))| stored.extent).collect();
        let stored = self.read_group(&extents);
        // Not while it is fetched: requests go out side by side, and are short.
        let bytes = extents.iter().fold(0u64, |n, extent| n.saturating_add(d.decoding_bytes(extent.len.into())));
        let _permit = permit(&self.env, bytes);
        let decode = |((number, (reservation, chunk)), stored): (Numbered<'_>, Result<Vec<u8>>)| {
            (number, reservation.finish(stored.and_then(|bytes| d.decode(bytes, chunk.mask))))
        };
        if group.len() < 2 || d.pipeline.is_empty() {
            return group.into_iter().zip(stored).map(decode).collect();
        }
        self.env.pool.install(|| group.into_par_iter().zip(stored).map(decode).collect())
    }

    /// The stored bytes of the chunks of a group.
    fn read_group(&self, extents: &[Extent]) -> Vec<Result<Vec<u8>>> {
        match self.container.read_many(extents) {
            Ok(stored) => stored,
            // The store cannot be reached, or does not answer: another request ends as this one.
            Err(e @ (Error::Io { .. } | Error::Request { .. })) => extents.iter().map(|_| Err(e.clone())).collect(),
            // One of them is not in its pack.
            Err(_) => extents.iter().map(|extent| self.container.read_within("chunk", extent, extent.len.into())).collect(),
        }
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
    use crate::iod::{Cell, Data, Ranges};

    fn extent(session: u64, offset: u64, len: u32) -> Extent {
        Extent { session, pack: 0, offset, len, checksum: 0 }
    }

    #[test]
    fn chunks_near_each_other_are_one_group() {
        let lens = |extents: &[Extent]| grouped(extents.to_vec(), |extent| *extent).iter().map(Vec::len).collect::<Vec<_>>();
        let near: Vec<Extent> = (0..64).rev().map(|n| extent(1, n << 16, 1 << 16)).collect();
        assert_eq!(lens(&near), [64]);
        assert_eq!(lens(&[extent(1, 0, 10), extent(1, GAP_BYTES + 10, 10)]), [2]);
        assert_eq!(lens(&[extent(1, 0, 10), extent(1, GAP_BYTES + 11, 10)]), [1, 1]);
        assert_eq!(lens(&[extent(1, 0, 10), extent(2, 10, 10)]), [1, 1]);
        let far: Vec<Extent> = (0..12).map(|n| extent(1, n << 20, 1 << 20)).collect();
        assert_eq!(lens(&far), [8, 4]);
        // Overlapping extents count with all of their bytes.
        let overlapping: Vec<Extent> = (0..16).map(|n| extent(1, n, 1 << 20)).collect();
        assert_eq!(lens(&overlapping), [8, 8]);
        assert_eq!(lens(&[extent(1, 0, u32::MAX), extent(1, u64::from(u32::MAX), 1)]), [1, 1]);
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
            let d = c.objects.dataset_of(&c.states.shown(), id.serial()).unwrap();
            let stored = (0..5).map(|n| StoredValue { extent: extent(1, n << 10, 1 << 10), mask: 0 }).collect();
            assert_eq!(c.chunks.groups(&d, stored).iter().map(Vec::len).collect::<Vec<_>>(), want);
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
        let key = c.objects.dataset_of(&state, id.serial()).unwrap().chunk_key(3);
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
