//! Budget, eviction, waiting readers and shared memory of the chunk cache.

use super::*;
use crate::dataset::chunk::image::DenseImage;
use crate::dataset::chunk::key::StoredExtent;
use std::sync::Barrier;

fn key(chunk: u64) -> ChunkKey {
    ChunkKey { dataset: 1.into(), chunk }
}

fn bytes(f: Found) -> Vec<u8> {
    match f {
        Found::Chunk(c) => c.image().dense().unwrap().to_vec(),
        Found::OnDisk => panic!("on disk"),
    }
}

#[test]
fn caches_that_share_memory_share_the_budget_and_no_chunk() {
    let first = ChunkCache::new(4 * charged_bytes(100), 0);
    let second = first.sharing(0);
    let get = |cache: &ChunkCache, i: u64, byte: u8| bytes(cache.get(key(i), 100, || Ok(DenseImage::boxed(vec![byte; 100]))).unwrap());
    for i in 0..4 {
        assert_eq!(get(&first, i, 1), [1; 100]);
    }
    assert_eq!(get(&second, 0, 2), [2; 100]);
    assert!(!first.contains(key(0)) && first.contains(key(1)) && second.contains(key(0)));
    assert!(first.bytes() <= first.budget() && first.bytes() == second.bytes());
    second.clear();
    assert!(!second.contains(key(0)) && first.contains(key(3)));
    assert_eq!(get(&second, 3, 3), [3; 100]);
    drop(second);
    assert_eq!(first.bytes(), 3 * charged_bytes(100));
}

#[test]
fn one_decode_however_many_wait() {
    let cache = ChunkCache::new(1 << 20, 0);
    let barrier = Barrier::new(8);
    std::thread::scope(|s| {
        for _ in 0..8 {
            s.spawn(|| {
                barrier.wait();
                let c = cache.get(key(7), 100, || {
                    std::thread::sleep(std::time::Duration::from_millis(20));
                    Ok(DenseImage::boxed(vec![9; 100]))
                });
                assert_eq!(bytes(c.unwrap()), [9; 100]);
            });
        }
    });
    assert_eq!(cache.counters.decodes.load(Ordering::Relaxed), 1);
}

#[test]
fn the_budget_holds_and_the_oldest_goes() {
    let budget = 10 * charged_bytes(100);
    let cache = ChunkCache::new(budget, 0);
    for i in 0..30 {
        cache.get(key(i), 100, || Ok(DenseImage::boxed(vec![i as u8; 100]))).unwrap();
        assert!(cache.bytes() <= budget);
    }
    assert!(!cache.contains(key(19)) && cache.contains(key(20)) && cache.contains(key(29)));
}

/// Regression: a cache of a gigabyte held hundreds of millions of one-byte chunks.
#[test]
fn tiny_chunks_count_for_what_they_take() {
    let cache = ChunkCache::new(100_000, 0);
    for i in 0..2000 {
        cache.get(key(i), 1, || Ok(DenseImage::boxed(vec![1]))).unwrap();
    }
    assert!(cache.memory.state.lock().slots.len() < 500);
}

#[test]
fn chunks_read_to_their_ends_go_first() {
    let cache = ChunkCache::new(1_010_000, 0);
    for i in 0..6 {
        let Found::Chunk(c) = cache.get(key(i), 100_000, || Ok(DenseImage::boxed(vec![1; 100_000]))).unwrap() else { panic!("on disk") };
        assert_eq!(cache.unread_bytes(), if i == 0 { 100_000 } else { 200_000 });
        if i > 0 {
            cache.record_read(key(i), &c, 60_000);
            cache.record_read(key(i), &c, 40_000);
            cache.record_read(key(i), &c, 40_000);
        } else {
            cache.record_read(key(i), &c, 60_000);
            let unread = cache.get(key(99), 100_000, || Ok(DenseImage::boxed(vec![1; 100_000])));
            drop(unread);
        }
    }
    // A quarter of the budget: two of them.
    let held: Vec<u64> = (0..6).filter(|i| cache.contains(key(*i))).collect();
    assert_eq!((held, cache.bytes()), (vec![0, 4, 5], 4 * charged_bytes(100_000)));
    cache.get(key(7), 700_000, || Ok(DenseImage::boxed(vec![1; 700_000]))).unwrap();
    let held: Vec<u64> = (0..8).filter(|i| cache.contains(key(*i))).collect();
    assert_eq!((held, cache.bytes()), (vec![0, 5, 7], 3 * charged_bytes(100_000) + charged_bytes(700_000)));
}

#[test]
fn too_large_is_served_and_not_kept() {
    let cache = ChunkCache::new(50, 0);
    assert_eq!(bytes(cache.get(key(1), 100, || Ok(DenseImage::boxed(vec![1; 100]))).unwrap()).len(), 100);
    assert!(!cache.contains(key(1)) && cache.bytes() == 0);
}

#[test]
fn a_failure_reaches_everyone_and_is_tried_again() {
    let cache = ChunkCache::new(1000, 0);
    let e = Error::corrupt("chunk", Address(5), "bad");
    assert_eq!(cache.get(key(1), 10, || Err(e.clone())).err(), Some(e));
    assert_eq!(cache.bytes(), 0);
    assert_eq!(bytes(cache.get(key(1), 10, || Ok(DenseImage::boxed(vec![3; 10]))).unwrap()), [3; 10]);
}

#[test]
fn a_panicking_decoder_leaves_no_reservation() {
    let cache = ChunkCache::new(1000, 0);
    let r = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| cache.get(key(1), 10, || panic!("decoder"))));
    assert!(r.is_err() && cache.bytes() == 0 && !cache.contains(key(1)));
}

#[test]
fn a_chunk_read_in_part_goes_to_the_disk_cache() {
    let cache = ChunkCache::new(10_000, 1 << 20);
    let Found::Chunk(c) = cache.get(key(1), 9000, || Ok(DenseImage::boxed(vec![5; 9000]))).unwrap() else { panic!("on disk") };
    cache.record_read(key(1), &c, 10);
    cache.get(key(2), 9000, || Ok(DenseImage::boxed(vec![6; 9000]))).unwrap();
    assert!(matches!(cache.get(key(1), 9000, || panic!("decoded again")).unwrap(), Found::OnDisk));
    let at = cache.disk_cache().find(key(1).into()).unwrap();
    let mut b = [0; 4];
    cache.disk_cache().read(at, 100, &mut b).unwrap();
    assert_eq!(b, [5; 4]);
}

#[test]
fn reserved_chunks_are_waited_for_and_end_with_their_owner() {
    let cache = ChunkCache::new(1 << 20, 0);
    let size = |i| (key(i).into(), 100);
    cache.insert(key(0).into(), DenseImage::boxed(vec![7; 100])).unwrap();
    let mut reserved = cache.reserve((0..4).map(size));
    assert_eq!(reserved.iter().map(Option::is_some).collect::<Vec<_>>(), [false, true, true, true]);
    assert!(cache.reserve((0..4).map(size)).iter().all(Option::is_none));
    assert!(cache.insert(key(1).into(), DenseImage::boxed(vec![8; 100])).is_none());
    std::thread::scope(|s| {
        let waiting: Vec<_> = (0..4)
            .map(|i| {
                s.spawn({
                    let cache = &cache;
                    move || (i, cache.get(key(i), 100, || panic!("decoded twice")))
                })
            })
            .collect();
        while cache.counters.waits.load(Ordering::Relaxed) < 3 {
            std::thread::yield_now();
        }
        reserved.pop().flatten().unwrap().finish(Ok(DenseImage::boxed(vec![3; 100]))).unwrap();
        let bad = Error::corrupt("chunk", Address(2), "bad");
        assert!(reserved.pop().flatten().unwrap().finish(Err(bad.clone())).is_err());
        // As by a panic.
        drop(reserved);
        let results: Vec<_> = waiting.into_iter().map(|t| t.join().unwrap().1).collect();
        assert!(results[1].is_err() && results[2].as_ref().err() == Some(&bad));
        assert_eq!((bytes(results[0].clone().unwrap()), bytes(results[3].clone().unwrap())), (vec![7; 100], vec![3; 100]));
    });
    assert_eq!(cache.bytes(), 2 * charged_bytes(100));
}

#[test]
fn extents_do_not_go_to_the_disk_cache() {
    let cache = ChunkCache::new(10_000, 1 << 20);
    let extent = StoredExtent { object: (1, 2), offset: 3, len: 9000, checksum: 4 };
    let stored = CacheKey::Extent { dataset: 1.into(), extent, raw: false };
    let chunk = cache.insert(stored, DenseImage::boxed(vec![8; 9000])).unwrap();
    cache.record_read(stored, &chunk, 10);
    cache.get(key(3), 9000, || Ok(DenseImage::boxed(vec![9; 9000]))).unwrap();
    assert!(!cache.contains(stored));
}
