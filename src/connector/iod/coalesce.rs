//! Chunks near each other in a pack are fetched by one request.

use super::access::{Claim, IodConnector};
use super::dataset::Dataset;
use super::decoding::HELD_BYTES;
use crate::base::{Address, Error, Result};
use crate::iod::{Cell, Data, Extent};
use foldhash::HashMap;
use std::sync::Arc;

/// Bytes between two chunks that are fetched and not used, at most.
const GAP_BYTES: u64 = 512 << 10;
/// Bytes of one request, at most, unless a chunk is longer.
const REQUEST_BYTES: u64 = 8 << 20;
/// Requests of one reader at once.
const REQUESTS_AT_ONCE: usize = 16;

/// Chunks of one request, ascending.
pub(super) type Group = Vec<(Extent, u32)>;
/// Decoded chunks.
pub(super) type Fetched = HashMap<Extent, Arc<Vec<u8>>>;

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

impl IodConnector {
    /// Fetches and decodes the chunks of a group that are in no cache, and that no other thread
    /// fetches. Chunks that cannot be read are left out: their reader gets the error.
    pub(super) fn fetch_group(&self, d: &Dataset, group: &[(Extent, u32)]) -> Vec<(Extent, Arc<Vec<u8>>)> {
        let claimed: Group = {
            let mut images = self.images.lock();
            let is_ours = |(extent, _): &&(Extent, u32)| images.get(extent).is_none() && images.arriving.insert(*extent);
            group.iter().filter(is_ours).copied().collect()
        };
        if claimed.is_empty() {
            return Vec::new();
        }
        let claim = Claim { connector: self, extents: claimed.iter().map(|(extent, _)| *extent).collect() };
        let extents = &claim.extents;
        let stored = self.container.read_many(extents).unwrap_or_else(|e| {
            tracing::debug!("chunks are fetched one by one: {e}");
            Vec::new()
        });
        // Not while it is fetched: requests go out side by side, and are short.
        let bytes = extents.iter().fold(0u64, |n, extent| n.saturating_add(d.decoding_bytes(extent.len.into())));
        let permit = self.decoding.enter(bytes);
        let decoded = decode_all(d, &claimed, stored);
        drop(permit);
        let mut images = self.images.lock();
        for (extent, image) in &decoded {
            images.put(*extent, image.clone());
        }
        // It locks them.
        drop(images);
        decoded
    }

    /// Fetches the chunks of `cells` that are in no cache, if one request brings several.
    pub(super) fn fetch_several(&self, d: &Dataset, cells: &[Cell]) -> Fetched {
        let missing: Vec<Cell> = {
            let mut images = self.images.lock();
            let is_missing = |cell: &&Cell| matches!(&cell.data, Data::Extent(extent) if images.get(extent).is_none());
            let is_fetched = |cell: &&Cell| !self.is_large(d, cell) && d.check_stored(cell.len()).is_ok();
            cells.iter().filter(is_fetched).filter(is_missing).cloned().collect()
        };
        if missing.len() < 2 {
            return Fetched::default();
        }
        each_group(&groups_to_decode(d, &missing), &|group| self.fetch_group(d, group)).into_iter().collect()
    }
}

/// Decodes chunks, several at once if they have filters.
fn decode_all(d: &Dataset, claimed: &Group, stored: Vec<Result<Vec<u8>>>) -> Vec<(Extent, Arc<Vec<u8>>)> {
    let decode = |((extent, mask), stored): (&(Extent, u32), Result<Vec<u8>>)| {
        let image = stored.and_then(|bytes| d.decode(bytes, *mask)).map(Arc::new);
        image.map(|image| (*extent, image))
    };
    let mut work: Vec<_> = claimed.iter().zip(stored).collect();
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    if threads < 2 || work.len() < 2 || d.pipeline.is_empty() {
        return work.into_iter().filter_map(|chunk| decode(chunk).ok()).collect();
    }
    let lost = || Error::Io { operation: "decode a chunk", address: Address(d.id), errno: libc::EIO };
    let size = work.len().div_ceil(threads);
    let decoded: Vec<Result<(Extent, Arc<Vec<u8>>)>> = std::thread::scope(|scope| {
        let mut running = Vec::new();
        while !work.is_empty() {
            let part = work.split_off(work.len().saturating_sub(size));
            running.push(scope.spawn(move || part.into_iter().map(decode).collect::<Vec<_>>()));
        }
        running.into_iter().flat_map(|thread| thread.join().unwrap_or_else(|_| vec![Err(lost())])).collect()
    });
    decoded.into_iter().filter_map(Result::ok).collect()
}

#[cfg(test)]
mod tests {
    use super::super::tests::{bytes, empty, open, spec};
    use super::*;
    use crate::connector::edit::Edit;
    use crate::connector::{ChunksSpec, Connector, DatasetSpec, FilterSpec, Form};

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
            let d = c.dataset_of(&c.state.read(), id.serial()).unwrap();
            let cells: Vec<Cell> = (0..5).map(|n| cell(1, n << 10, 1 << 10)).collect();
            assert_eq!(groups_to_decode(&d, &cells).iter().map(Vec::len).collect::<Vec<_>>(), want);
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
