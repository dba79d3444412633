//! Sets of elements against bitmaps.

use super::element_set::ElementSet;
use proptest::prelude::*;
use std::ops::{ControlFlow, Range};

/// A set and the same set as a bitmap of its extent.
#[derive(Debug, Clone)]
struct Both {
    set: ElementSet,
    bits: Vec<bool>,
}

fn coordinates(dims: &[u64], mut number: u64) -> Vec<u64> {
    let mut out: Vec<u64> = dims
        .iter()
        .rev()
        .map(|d| {
            let c = number % d;
            number /= d;
            c
        })
        .collect();
    out.reverse();
    out
}

fn size(dims: &[u64]) -> u64 {
    dims.iter().product()
}

/// The union of blocks; numbers are folded into the extent.
fn both(dims: &[u64], blocks: &[Vec<(u64, u64)>]) -> Both {
    let clipped: Vec<Vec<(u64, u64)>> =
        blocks.iter().map(|b| b.iter().zip(dims).map(|((a, n), d)| (a % d, (a % d + n % d).min(d - 1))).collect()).collect();
    let corners: Vec<u64> = clipped.iter().flat_map(|b| b.iter().map(|x| x.0).chain(b.iter().map(|x| x.1))).collect();
    let inside = |number: u64| {
        let at = coordinates(dims, number);
        clipped.iter().any(|b| at.iter().zip(b).all(|(c, (low, high))| low <= c && c <= high))
    };
    Both { set: ElementSet::of_blocks(dims.len(), &corners).unwrap(), bits: (0..size(dims)).map(inside).collect() }
}

fn check(dims: &[u64], b: &Both) {
    assert_eq!(b.set.elements(), b.bits.iter().filter(|x| **x).count() as u64);
    assert!(b.set.is_within(dims) && b.set.is_empty() == (b.set.elements() == 0));
    let mut shown = vec![false; b.bits.len()];
    b.set
        .for_each_run(dims, &mut |r: Range<u64>| {
            r.for_each(|n| assert!(!std::mem::replace(&mut shown[n as usize], true), "twice"));
            Ok(())
        })
        .unwrap();
    assert_eq!(shown, b.bits);
    let (mut blocks, mut elements) = (0, 0);
    let _ = b.set.for_each_block(&mut |first, end| {
        blocks += 1;
        elements += first.iter().zip(end).map(|(f, e)| e - f).product::<u64>();
        ControlFlow::Continue(())
    });
    assert_eq!((blocks, elements), (b.set.blocks(), b.set.elements()));
    for from in 0..size(dims) {
        assert_eq!(b.set.next_element(dims, from), (from..size(dims)).find(|n| b.bits[*n as usize]), "from {from}");
        assert_eq!(b.set.next_gap(dims, from), (from..size(dims)).find(|n| !b.bits[*n as usize]).unwrap_or(size(dims)), "from {from}");
    }
}

fn any_blocks() -> impl Strategy<Value = Vec<Vec<(u64, u64)>>> {
    prop::collection::vec(prop::collection::vec((0u64..100, 0u64..5), 4), 0..12)
}

proptest! {
    #[test]
    fn operations_agree_with_bitmaps(
        dims in prop::collection::vec(1u64..7, 1..5), a in any_blocks(), b in any_blocks(), runs in prop::collection::vec((any::<u64>(), any::<u64>(), any::<bool>()), 0..8),
    ) {
        let (a, b) = (both(&dims, &a), both(&dims, &b));
        check(&dims, &a);
        let zip = |f: fn(bool, bool) -> bool| a.bits.iter().zip(&b.bits).map(|(x, y)| f(*x, *y)).collect::<Vec<_>>();
        check(&dims, &Both { set: a.set.union(&b.set).unwrap(), bits: zip(|x, y| x || y) });
        check(&dims, &Both { set: a.set.intersection(&b.set).unwrap(), bits: zip(|x, y| x && y) });
        check(&dims, &Both { set: a.set.difference(&b.set).unwrap(), bits: zip(|x, y| x && !y) });
        // Equal sets have equal trees, however they were made.
        let again = a.set.difference(&b.set).unwrap().union(&a.set.intersection(&b.set).unwrap()).unwrap();
        prop_assert_eq!(&again, &a.set);

        let mut changed = a.clone();
        for (from, len, insert) in runs {
            let from = from % size(&dims);
            let run = from..(from + len % size(&dims)).min(size(&dims));
            let kept = changed.set.clone();
            if insert { changed.set.insert_run(&dims, &run) } else { changed.set.remove_run(&dims, &run) }.unwrap();
            changed.bits[run.start as usize..run.end as usize].fill(insert);
            check(&dims, &changed);
            let same = ElementSet::of_run(&dims, &run);
            let want = if insert { kept.union(&same) } else { kept.difference(&same) };
            prop_assert_eq!(want.unwrap(), changed.set.clone());
        }
        let ascending: Vec<Range<u64>> = (0..size(&dims)).filter(|n| a.bits[*n as usize]).map(|n| n..n + 1).collect();
        prop_assert_eq!(&ElementSet::of_runs(&dims, &ascending).unwrap(), &a.set);
        let mut runs = Vec::new();
        a.set.for_each_run(&dims, &mut |run| {
            runs.push(run);
            Ok(())
        }).unwrap();
        prop_assert_eq!(ElementSet::of_runs(&dims, &runs).unwrap(), a.set);
    }
}

#[test]
fn blocks_that_touch_become_one() {
    let set = ElementSet::of_blocks(2, &[0, 0, 1, 1, 2, 0, 2, 1, 0, 2, 2, 3]).unwrap();
    assert_eq!((set.blocks(), set.elements()), (1, 12));
    assert_eq!(set, ElementSet::block(&[0, 0], &[3, 4]));
    assert_eq!(ElementSet::block(&[5, 3], &[7, 4]).moved(&[10, 20]), Some(ElementSet::block(&[15, 23], &[17, 24])));
    assert_eq!(ElementSet::block(&[5], &[7]).moved(&[u64::MAX]), None);
}

#[test]
fn a_block_of_the_whole_extent_costs_one_span() {
    let dims = [1 << 20, 1 << 20, 1 << 20];
    let mut set = ElementSet::block(&[0, 0, 0], &dims);
    assert_eq!((set.blocks(), set.elements()), (1, 1 << 60));
    assert_eq!((set.next_gap(&dims, 7), set.next_element(&dims, 1 << 59)), (1 << 60, Some(1 << 59)));
    set.remove_run(&dims, &(12..13)).unwrap();
    assert_eq!((set.next_gap(&dims, 7), set.elements()), (12, (1 << 60) - 1));
}

#[test]
fn hostile_blocks_are_refused() {
    assert!(ElementSet::of_blocks(1, &[2, 1]).is_err() && ElementSet::of_blocks(1, &[0, u64::MAX]).is_err());
    assert!(ElementSet::of_blocks(2, &[0, 0, 1]).is_err() && ElementSet::of_blocks(0, &[1]).is_err());
    // Every row of one set meets every column of the other.
    let rows: Vec<u64> = (0..8192).flat_map(|n| [n * 2, n, n * 2, n]).collect();
    let columns: Vec<u64> = (0..8192).flat_map(|n| [0, n * 2, 1 << 20, n * 2]).collect();
    let (rows, columns) = (ElementSet::of_blocks(2, &rows).unwrap(), ElementSet::of_blocks(2, &columns).unwrap());
    assert!(rows.union(&columns).is_err());
}
