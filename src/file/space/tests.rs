//! Tests of the allocator.

use super::*;
use proptest::prelude::*;
use std::collections::BTreeSet;

#[test]
fn freed_space_is_reused_after_the_commit_only() {
    let mut s = Space::new(1000);
    s.free(100..200, Pool::Metadata);
    assert_eq!(s.allocate(100, 1, Pool::Metadata), Some(1000));
    s.committed(false);
    assert_eq!(s.allocate(50, 1, Pool::Metadata), Some(100));
    assert_eq!(s.allocate(50, 64, Pool::Metadata), Some(1152), "150 is no multiple of 64, nor is 1100");
    // Fresh space is freed at once.
    s.free(100..150, Pool::Metadata);
    assert_eq!(s.allocate(100, 1, Pool::Metadata), Some(100));
    assert_eq!(s.split_fresh(90..210), [(90..100, false), (100..200, true), (200..210, false)]);
}

#[test]
fn the_rest_of_a_free_tail_stays_free() {
    let mut space = Space::new(0);
    let all = space.allocate(1 << 20, 1, Pool::Metadata).unwrap();
    // More unsuitable holes than the search considers, and a long free tail.
    for i in 0..100 {
        let hole = all + i * 256 + 65;
        space.free(hole..hole + 100, Pool::Metadata);
    }
    space.free(1 << 19..1 << 20, Pool::Metadata);
    let at = space.allocate(64, 128, Pool::Metadata).unwrap();
    assert!(at >= 1 << 19 && space.free_bytes() == 100 * 100 + (1 << 19) - 64, "{at} {}", space.free_bytes());
}

#[test]
fn blocks_past_the_initial_end_are_not_freed() {
    let mut s = Space::new(1000);
    assert_eq!(s.allocate(100, 1, Pool::Metadata), Some(1000));
    s.free(900..5000, Pool::Raw);
    s.committed(false);
    assert_eq!((s.free_bytes(), s.trim()), (100, 1100));
    // A block allocated across the initial end is freed as a whole.
    s.free(1000..1100, Pool::Metadata);
    s.committed(false);
    assert_eq!(s.allocate(300, 1, Pool::Metadata), Some(900));
    s.free(900..1200, Pool::Metadata);
    assert_eq!(s.trim(), 900);
}

#[test]
fn the_tail_is_freed_and_extended() {
    let mut s = Space::new(1000);
    s.free(900..1000, Pool::Metadata);
    s.committed(false);
    assert_eq!(s.allocate(300, 1, Pool::Metadata), Some(900), "a free tail is extended");
    assert_eq!(s.end(), 1200);
    s.free(900..1200, Pool::Metadata);
    assert_eq!((s.trim(), s.free_bytes()), (900, 0));
    assert_eq!(s.allocate(u64::MAX, 1, Pool::Metadata), None);
}

#[test]
fn bytes_freed_twice_are_allocated_once() {
    let mut s = Space::new(1000);
    s.free(100..200, Pool::Raw);
    s.committed(false);
    s.free(150..250, Pool::Raw);
    s.committed(false);
    let at: Vec<_> = [100, 50, 150].into_iter().filter_map(|len| s.allocate(len, 1, Pool::Raw)).collect();
    assert_eq!(at, [100, 200, 1000], "150 bytes were free from 100 on");
    // Freed while it is free, and allocated before the commit.
    s.committed(false);
    s.free(300..400, Pool::Raw);
    s.committed(false);
    s.free(300..400, Pool::Raw);
    assert_eq!(s.allocate(100, 1, Pool::Raw), Some(300));
    s.committed(false);
    assert_eq!(s.allocate(100, 1, Pool::Raw), Some(1150));
}

#[test]
fn freed_parts_of_pages_are_reported() {
    let mut s = Space::new(1512);
    s.set_pages(PAGES);
    let at = s.allocate(100, 8, Pool::Metadata).unwrap();
    s.committed(false);
    s.free(at..at + 100, Pool::Metadata);
    assert!(s.has_freed());
}

const PAGES: Pages = Pages { size: 1000, origin: 512 };

#[test]
fn pages_hold_blocks_of_one_kind() {
    let mut s = Space::new(1512);
    s.set_pages(PAGES);
    let a = s.allocate(100, 128, Pool::Metadata).unwrap();
    let b = s.allocate(100, 8, Pool::Raw).unwrap();
    let c = s.allocate(2500, 8, Pool::Raw).unwrap();
    let d = s.allocate(900, 8, Pool::Metadata).unwrap();
    assert_eq!((a, b, c, d, s.end()), (1536, 2512, 3512, 6512, 7512));
    assert_eq!(s.allocate(100, 8, Pool::Metadata), Some(1640));
    s.committed(false);
    // A long block is freed with all of its last page.
    s.free(c..c + 2500, Pool::Raw);
    s.committed(false);
    assert_eq!(s.allocate(3000, 8, Pool::Metadata), Some(c));
    // A page that is free as a whole leaves its pool.
    s.free(d..d + 900, Pool::Metadata);
    s.committed(false);
    assert_eq!(s.trim(), 6512);
}

proptest! {
    /// No short block crosses a page's end, or shares a page with another kind or a long block.
    #[test]
    fn pages_are_kept_apart(ops in proptest::collection::vec((0u8..5, 1u64..2600, 0usize..50), 1..120), user in 0u64..2) {
        let pages = Pages { size: 1000, origin: user * 512 };
        let mut s = Space::new(pages.origin + 1000);
        s.set_pages(pages);
        let mut held: Vec<(Range<u64>, Pool)> = vec![];
        let mut durable = held.clone();
        for (op, len, pick) in ops {
            match op {
                0..=2 => {
                    let pool = if op == 0 { Pool::Raw } else { Pool::Metadata };
                    let len = if op == 2 { len / 10 + 1 } else { len };
                    let at = s.allocate(len, 8, pool).unwrap();
                    let range = at..at + len;
                    let page = |at: u64| (at - pages.origin) / 1000;
                    for (other, kind) in &held {
                        let apart = page(other.end - 1) < page(at) || page(range.end - 1) < page(other.start);
                        let alike = *kind == pool && len < 1000 && other.end - other.start < 1000;
                        prop_assert!(apart || alike && (other.end <= at || other.start >= range.end), "{range:?} {other:?}");
                    }
                    for (other, _) in &durable {
                        prop_assert!(other.end <= range.start || other.start >= range.end, "{range:?} {other:?}");
                    }
                    let placed = if len < 1000 { page(at) == page(range.end - 1) } else { (at - pages.origin).is_multiple_of(1000) };
                    prop_assert!(placed, "{:?}", range);
                    held.push((range, pool));
                }
                3 if !held.is_empty() => {
                    let (range, pool) = held.swap_remove(pick % held.len());
                    s.free(range, pool);
                }
                _ => {
                    s.committed(false);
                    durable = held.clone();
                }
            }
        }
        s.committed(false);
        held.iter().for_each(|(r, pool)| s.free(r.clone(), *pool));
        s.committed(false);
        prop_assert_eq!(s.trim(), pages.origin + 1000, "all of it is freed");
    }

    /// Against a byte map: no two allocations overlap, no freed byte is allocated before the
    /// commit.
    #[test]
    fn allocations_never_overlap(ops in proptest::collection::vec((0u8..4, 1u64..60, 0usize..50), 1..120)) {
        let mut s = Space::new(64);
        let mut held: Vec<Range<u64>> = std::iter::once(0..64).collect();
        let mut durable: Vec<Range<u64>> = held.clone();
        for (op, len, pick) in ops {
            match op {
                0 | 1 => {
                    let at = s.allocate(len, if op == 0 { 1 } else { 8 }, Pool::Metadata).unwrap();
                    let range = at..at + len;
                    for other in held.iter().chain(&durable) {
                        prop_assert!(other.end <= range.start || other.start >= range.end, "{range:?} {other:?}");
                    }
                    held.push(range);
                }
                2 if !held.is_empty() => {
                    let range = held.swap_remove(pick % held.len());
                    s.free(range, Pool::Metadata);
                }
                _ => {
                    s.committed(false);
                    durable = held.clone();
                }
            }
            let sizes: BTreeSet<_> = s.free.ranges.iter().map(|r| (r.end - r.start, r.start)).collect();
            prop_assert_eq!(&sizes, &s.free.sizes);
            let all: u64 = held.iter().map(|r| r.end - r.start).sum();
            prop_assert!(all + s.free_bytes() <= s.end());
        }
    }
}

#[test]
fn space_that_a_follower_may_read_rests_before_reuse() {
    for pages in [None, Some(Pages { size: 4096, origin: 0 })] {
        let mut s = Space::new(1 << 20);
        pages.into_iter().for_each(|p| s.set_pages(p));
        let used = s.allocate(8192, 1, Pool::Raw).unwrap();
        s.committed(true);
        s.free(used..used + 8192, Pool::Raw);
        s.committed(true);
        // A damaged file may free it twice.
        s.free(used..used + 8192, Pool::Raw);
        s.committed(true);
        assert!(s.has_freed() && s.free_bytes() == 0);
        let other = s.allocate(8192, 1, Pool::Raw).unwrap();
        assert_ne!(other, used);
        s.end_rest_since(Some(Instant::now() - REST));
        assert_eq!(s.free_bytes(), 0, "not yet");
        s.end_rest_since(Some(Instant::now()));
        assert_eq!((s.free_bytes(), s.allocate(8192, 1, Pool::Raw)), (8192, Some(used)));
        s.committed(true);
        s.free(used..used + 8192, Pool::Raw);
        s.committed(false);
        assert_eq!(s.free_bytes(), 8192, "without a follower");
    }
}

#[test]
fn a_place_is_found_behind_many_ranges_that_are_not_aligned() {
    let mut space = Space::new(0);
    space.allocate(1 << 20, 1, Pool::Metadata).unwrap();
    // Long enough, and none has 300 bytes at a multiple of 512.
    for i in 0..200 {
        space.free(i * 1024 + 520..i * 1024 + 1020, Pool::Metadata);
    }
    space.free(500_000..501_000, Pool::Metadata);
    assert_eq!(space.allocate(300, 512, Pool::Metadata), Some(500_224));
    assert_eq!(space.end(), 1 << 20);
}

#[test]
fn blocks_that_are_freed_and_allocated_again_do_not_extend_the_file() {
    let mut space = Space::new(0);
    let sizes = [272, 96, 120, 512, 40, 2, 328, 18];
    let aligned = |len: u64| if len < 8 { 1 } else { len.next_power_of_two() };
    let mut ends = Vec::new();
    let mut blocks: Vec<(u64, u64)> = Vec::new();
    for round in 0..60u64 {
        blocks.drain(..).for_each(|(at, len)| space.free(at..at + len, Pool::Metadata));
        for i in 0..800u64 {
            let len = sizes[((i * 7 + i / 11 + round) % 8) as usize];
            blocks.push((space.allocate(len, aligned(len), Pool::Metadata).unwrap(), len));
        }
        space.committed(false);
        ends.push(space.end());
    }
    assert!(ends[59] * 10 <= ends[20] * 11, "{ends:?}");
}
