//! Tests of the maps between bytes of a dataset and its chunks.

use super::*;
use proptest::prelude::*;

/// Chunk of a byte and offset within it, computed from the definition.
fn by_definition(shape: &[u64], chunk: &[u64], es: u64, byte: u64) -> (u64, u64) {
    let (mut e, mut coords) = (byte / es, vec![0; shape.len()]);
    for i in (0..shape.len()).rev() {
        coords[i] = e % shape[i];
        e /= shape[i];
    }
    let (mut linear, mut inside) = (0, 0);
    for i in 0..shape.len() {
        linear = linear * shape[i].div_ceil(chunk[i]) + coords[i] / chunk[i];
        inside = inside * chunk[i] + coords[i] % chunk[i];
    }
    (linear, inside * es + byte % es)
}

proptest! {
    #[test]
    fn every_byte_is_where_the_definition_says(
        dims in prop::collection::vec((1u64..7, 1u64..7), 1..5), es in 1u64..5, a in 0u64..10_000, n in 0usize..3000,
    ) {
        let (shape, chunk): (Vec<_>, Vec<_>) = dims.into_iter().unzip();
        let grid = ByteGrid::new(&shape, &chunk, es).unwrap();
        let offset = a % (grid.total() + 1);
        let mut covered = 0;
        for t in grid.pieces(offset, n) {
            prop_assert_eq!(grid.linear(&grid.scaled(t.chunk)), Some(t.chunk));
            prop_assert_eq!(t.bytes(), t.pieces.iter().map(|p| p.len as u64 * grid.rows(p).count() as u64).sum::<u64>());
            for p in &t.pieces {
                for (in_chunk, in_buffer) in grid.rows(p) {
                    covered += p.len as u64;
                    let range = grid.covering_range(&t);
                    prop_assert!(range.start <= in_chunk && in_chunk + p.len as u64 <= range.end && range.end <= grid.chunk_bytes());
                    for i in 0..p.len as u64 {
                        let want = by_definition(&shape, &chunk, es, offset + in_buffer as u64 + i);
                        prop_assert_eq!((t.chunk, in_chunk + i), want);
                    }
                }
            }
        }
        prop_assert_eq!(covered, (grid.total() - offset).min(n as u64));
    }

    #[test]
    fn first_byte_and_chunk_at_agree_with_brute_force(
        dims in prop::collection::vec((1u64..6, 1u64..6), 1..4), es in 1u64..4, a in 0u64..10_000, c in 0u64..1000,
    ) {
        let (shape, chunk): (Vec<_>, Vec<_>) = dims.into_iter().unzip();
        let grid = ByteGrid::new(&shape, &chunk, es).unwrap();
        let offset = a % grid.total();
        let wanted = c % grid.chunks();
        let brute = (offset..grid.total()).find(|b| by_definition(&shape, &chunk, es, *b).0 == wanted);
        prop_assert_eq!(grid.first_byte_in(wanted, offset), brute);
        let (at, end) = grid.chunk_at(offset).unwrap();
        prop_assert_eq!(at, by_definition(&shape, &chunk, es, offset).0);
        prop_assert!((offset..end).all(|b| by_definition(&shape, &chunk, es, b).0 == at));
        let begins: Vec<u64> = (0..grid.chunks()).map(|n| grid.first_byte_in(n, 0).unwrap()).collect();
        prop_assert_eq!(grid.first_chunk_from(offset), begins.iter().filter(|b| **b < offset).count() as u64);
        prop_assert_eq!(grid.first_chunk_from(grid.total()), grid.chunks());
        for b in 0..grid.total() {
            let (chunk, within) = by_definition(&shape, &chunk, es, b);
            prop_assert_eq!(grid.in_chunk(b), Some((chunk, within)));
            prop_assert_eq!(grid.byte_at(chunk, within), Some(b));
        }
        let longest = (0..grid.chunks()).map(|n| {
            let last = (0..grid.total()).rev().find(|b| by_definition(&shape, &chunk, es, *b).0 == n).unwrap();
            last + 1 - begins[n as usize]
        });
        prop_assert!(longest.max().unwrap() <= grid.slab_bytes());

        let mut seen = Vec::new();
        grid.for_each_run(wanted, &mut |at, within, len| seen.extend((0..len).map(|i| (at + i, within + i))));
        let own: Vec<_> = (0..grid.total()).map(|b| (b, by_definition(&shape, &chunk, es, b))).filter(|(_, (n, _))| *n == wanted).collect();
        prop_assert_eq!(&seen, &own.iter().map(|(b, (_, within))| (*b, *within)).collect::<Vec<_>>());
        prop_assert_eq!(grid.span(wanted), own[0].0..own[own.len() - 1].0 + 1);
        prop_assert!(grid.slabs(&grid.span(wanted)).contains(&wanted));
        let slabs = grid.slabs(&(offset..offset + 5));
        prop_assert!((offset..(offset + 5).min(grid.total())).all(|b| slabs.contains(&by_definition(&shape, &chunk, es, b).0)));
    }
}

#[test]
fn pieces_are_copied_row_by_row() {
    let grid = ByteGrid::new(&[4, 10], &[3, 4], 1).unwrap();
    let all: Vec<u8> = (0..40).collect();
    let mut buf = vec![0u8; 27];
    for t in grid.pieces(5, 27) {
        let mut chunk = vec![99u8; grid.chunk_bytes() as usize];
        for (i, b) in all.iter().enumerate() {
            let (n, at) = by_definition(&[4, 10], &[3, 4], 1, i as u64);
            if n == t.chunk {
                chunk[at as usize] = *b;
            }
        }
        let r = grid.covering_range(&t);
        let part = &chunk[r.start as usize..r.end as usize];
        grid.scatter(&t, part, r.start, &mut buf).unwrap();
        assert!(grid.scatter(&t, &part[1..], r.start, &mut buf.clone()).is_none());
        assert!(t.runs() <= 4);
    }
    assert_eq!(buf, all[5..32]);
}

#[test]
fn hostile_sizes_are_refused() {
    assert!(ByteGrid::new(&[1 << 40, 1 << 40], &[1, 1], 1).is_none());
    assert!(ByteGrid::new(&[4], &[0], 1).is_none());
    let huge = ByteGrid::new(&[1 << 62], &[4096], 1).unwrap();
    assert_eq!(huge.pieces((1 << 62) - 10, 100).len(), 1);
}

proptest! {
    #[test]
    fn next_bytes_agree_with_brute_force(
        dims in prop::collection::vec((1u64..6, 1u64..4), 1..4), es in 1u64..4, mask in any::<u64>(), full in any::<bool>(),
    ) {
        let (shape, chunk): (Vec<_>, Vec<_>) = dims.into_iter().unzip();
        let grid = ByteGrid::new(&shape, &chunk, es).unwrap();
        let is_there = |c: u64| (full && c % 7 != 3) || mask >> (c % 64) & 1 == 1;
        let data: Vec<bool> = (0..grid.total()).map(|b| is_there(grid.chunk_at(b).unwrap().0)).collect();
        for wanted in [true, false] {
            let mut first = |mut range: Range<u64>| {
                assert!(range.start < range.end && range.end <= grid.chunks(), "{range:?}");
                Ok(range.find(|c| is_there(*c) == wanted))
            };
            for at in 0..grid.total() {
                let next = (at..grid.total()).find(|b| data[*b as usize] == wanted);
                prop_assert_eq!(grid.next_byte(at, &mut first).unwrap(), next);
            }
        }
        prop_assert_eq!(grid.next_byte(grid.total(), &mut |range| Ok(Some(range.start))).unwrap(), None);
    }
}

#[test]
fn next_bytes_of_a_vast_dataset() {
    let grid = ByteGrid::new(&[1 << 62], &[4096], 1).unwrap();
    assert_eq!(grid.next_byte(5, &mut |_| Ok(None)).unwrap(), None);
    let stored = 1u64 << 40;
    assert_eq!(grid.next_byte(5, &mut |range| Ok(range.contains(&stored).then_some(stored))).unwrap(), Some(1 << 52));
    let absent = |range: Range<u64>| if range.start == stored { stored + 1 } else { range.start };
    let mut first = |range: Range<u64>| Ok(Some(absent(range.clone())).filter(|n| *n < range.end));
    assert_eq!(grid.next_byte(1 << 52, &mut first).unwrap(), Some((1 << 52) + 4096));
}
