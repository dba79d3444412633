//! Property tests: both searches of [`View`](super::view::View) against a list of all elements.

use super::Result;
use super::budget::Budget;
use super::hyperslab::{HyperslabDim, UNLIMITED};
use super::points::Points;
use super::selection::{Bounds, Selection};
use super::span_tree::SpanTree;
use super::view::{Run, View};
use proptest::prelude::*;
use std::ops::Range;

const SEARCH_STEPS: u64 = 1 << 26;

impl View<'_> {
    /// [`View::runs_within`] with a budget of its own.
    pub(crate) fn runs(&self, linear: Range<u64>, visit: &mut dyn FnMut(Run) -> Result<()>) -> Result<()> {
        self.runs_within(linear, &Budget::new(SEARCH_STEPS, "test"), visit)
    }

    /// [`View::by_ordinal_within`] with a budget of its own.
    pub(crate) fn by_ordinal(&self, ordinals: Range<u64>, visit: &mut dyn FnMut(Run) -> Result<()>) -> Result<()> {
        self.by_ordinal_within(ordinals, &Budget::new(SEARCH_STEPS, "test"), visit)
    }
}

impl Selection {
    /// Number of elements selected in an extent of `shape`.
    pub(crate) fn count(&self, shape: &[u64]) -> Result<u64> {
        Ok(self.over(shape)?.count())
    }

    /// Visits the selected elements by linear number.
    pub(crate) fn runs(&self, shape: &[u64], linear: Range<u64>, visit: &mut dyn FnMut(Run) -> Result<()>) -> Result<()> {
        self.over(shape)?.runs(linear, visit)
    }

    /// Visits the selected elements by ordinal.
    pub(crate) fn by_ordinal(&self, shape: &[u64], ordinals: Range<u64>, visit: &mut dyn FnMut(Run) -> Result<()>) -> Result<()> {
        self.over(shape)?.by_ordinal(ordinals, visit)
    }
}

/// Coordinates in selection order, in or out of the extent.
fn brute(selection: &Selection, shape: &[u64], blocks: &[Vec<(u64, u64)>]) -> Vec<Vec<u64>> {
    let in_dim = |d: &HyperslabDim, c: u64| {
        let Some(o) = c.checked_sub(d.start) else { return false };
        if d.count == 1 { o < d.block } else { o / d.stride < d.count && o % d.stride < d.block }
    };
    let selected = |p: &[u64]| match selection {
        Selection::None => false,
        Selection::All => p.iter().zip(shape).all(|(c, n)| c < n),
        Selection::Regular(r) => p.iter().zip(&r.dims).zip(shape).all(|((&c, d), &n)| in_dim(d, c) && (!d.is_unlimited() || c < n)),
        Selection::Blocks(_) => blocks.iter().any(|b| b.iter().zip(p).all(|(&(low, high), &c)| low <= c && c <= high)),
        Selection::Points(_) => unreachable!(),
    };
    if let Selection::Points(points) = selection {
        return (0..points.len()).map(|i| points.point(i).unwrap().to_vec()).collect();
    }
    let mut all = vec![vec![]];
    for _ in shape {
        all = all.into_iter().flat_map(|p: Vec<u64>| (0..40).map(move |c| [p.clone(), vec![c]].concat())).collect();
    }
    all.retain(|p| selected(p));
    all
}

fn linear(p: &[u64], shape: &[u64]) -> Option<u64> {
    p.iter().zip(shape).try_fold(0, |l, (&c, &n)| (c < n).then_some(l * n + c))
}

fn expand(runs: &[Run]) -> Vec<(u64, u64)> {
    runs.iter().flat_map(|r| (0..r.len).map(|i| (r.ordinal + i, r.linear + i))).collect()
}

fn check(selection: &Selection, shape: &[u64], blocks: &[Vec<(u64, u64)>], cuts: (u64, u64)) {
    let all = brute(selection, shape, blocks);
    let view = selection.over(shape).unwrap();
    assert_eq!(view.count(), all.len() as u64);
    let pairs: Vec<(u64, u64)> = all.iter().enumerate().filter_map(|(i, p)| Some((i as u64, linear(p, shape)?))).collect();
    let total: u64 = shape.iter().product();
    let (a, b) = (cuts.0 % (total + 1), cuts.1 % (total + 2));
    for range in [0..total, a.min(b)..a.max(b), a..a + 1, 0..u64::MAX] {
        let mut runs = Vec::new();
        view.runs(range.clone(), &mut |r| {
            runs.push(r);
            Ok(())
        })
        .unwrap();
        let mut want: Vec<(u64, u64)> = pairs.iter().copied().filter(|p| range.contains(&p.1)).collect();
        want.sort_by_key(|&(i, l)| (l, i));
        assert_eq!(expand(&runs), want, "runs {range:?} of {selection:?} in {shape:?}");
    }
    let n = all.len() as u64;
    let (a, b) = (cuts.0 % (n + 1), cuts.1 % (n + 2));
    for range in [0..n, a.min(b)..a.max(b), a..a + 1, 0..u64::MAX] {
        let mut runs = Vec::new();
        view.by_ordinal(range.clone(), &mut |r| {
            runs.push(r);
            Ok(())
        })
        .unwrap();
        let want: Vec<(u64, u64)> = pairs.iter().copied().filter(|p| range.contains(&p.0)).collect();
        assert_eq!(expand(&runs), want, "by_ordinal {range:?} of {selection:?} in {shape:?}");
        // Neighbouring runs do not continue one another.
        assert!(runs.windows(2).all(|w| w[0].ordinal + w[0].len != w[1].ordinal || w[0].linear + w[0].len != w[1].linear));
    }
    if let Bounds::Box(low, high) = selection.bounds() {
        assert!(all.iter().all(|p| p.iter().zip(&low).zip(&high).all(|((c, l), h)| l <= c && c <= h)));
    }
}

fn dim() -> impl Strategy<Value = HyperslabDim> {
    (0u64..5, 1u64..4, 0u64..3, 1u64..4).prop_map(|(start, block, gap, count)| HyperslabDim { start, stride: block + gap, count, block })
}

fn shape() -> impl Strategy<Value = Vec<u64>> {
    prop::collection::vec(0u64..9, 1..4)
}

fn regular() -> impl Strategy<Value = (Selection, Vec<u64>)> {
    shape().prop_flat_map(|shape| {
        let rank = shape.len();
        (prop::collection::vec(dim(), rank), 0..rank * 3, Just(shape)).prop_map(move |(mut dims, unlimited, shape)| {
            if unlimited < rank {
                dims[unlimited].count = UNLIMITED;
            } else if unlimited < rank * 2 {
                let d = &mut dims[unlimited - rank];
                (d.count, d.block) = (1, UNLIMITED);
            }
            (Selection::regular(dims).unwrap(), shape)
        })
    })
}

type Case = (Vec<Vec<(u64, u64)>>, Vec<u64>);

fn blocks() -> impl Strategy<Value = Case> {
    shape().prop_flat_map(|shape| {
        let range = (0u64..9, 0u64..5).prop_map(|(low, len)| (low, low + len));
        let blocks = prop::collection::vec(prop::collection::vec(range, shape.len()), 1..7);
        (blocks, Just(shape))
    })
}

fn points() -> impl Strategy<Value = (Selection, Vec<u64>)> {
    shape().prop_flat_map(|shape| {
        let rank = shape.len();
        let points = prop::collection::vec(prop::collection::vec(0u64..9, rank), 0..12);
        (points, Just(shape)).prop_map(move |(p, shape)| (Selection::Points(Points::new(rank, p.concat()).unwrap()), shape))
    })
}

fn cuts() -> impl Strategy<Value = (u64, u64)> {
    (0u64..100_000, 0u64..100_000)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn regular_hyperslabs((selection, shape) in regular(), cuts in cuts()) {
        check(&selection, &shape, &[], cuts);
    }

    #[test]
    fn unions_of_blocks((blocks, shape) in blocks(), cuts in cuts()) {
        let corners: Vec<u64> = blocks.iter().flat_map(|b| b.iter().map(|r| r.0).chain(b.iter().map(|r| r.1))).collect();
        let tree = SpanTree::new(shape.len(), &corners, &Budget::new(1 << 20, "test")).unwrap();
        check(&Selection::Blocks(tree), &shape, &blocks, cuts);
    }

    #[test]
    fn lists_of_points((selection, shape) in points(), cuts in cuts()) {
        check(&selection, &shape, &[], cuts);
    }

    #[test]
    fn slices_of_an_unlimited_dimension((selection, shape) in regular(), n in 0u64..9) {
        if let Some((d, _)) = selection.unlimited() {
            let mut clipped = shape.clone();
            clipped[d] = selection.unlimited().unwrap().1.first(n).unwrap().end();
            prop_assert_eq!(selection.first_slices(n).count(&shape).unwrap(), selection.count(&clipped).unwrap());
        }
    }
}

#[test]
fn whole_extents() {
    check(&Selection::All, &[3, 4, 5], &[], (7, 40));
    check(&Selection::All, &[3, 0], &[], (7, 40));
    check(&Selection::None, &[3, 4], &[], (7, 40));
    let mut runs = Vec::new();
    for (selection, shape, want) in [
        (Selection::All, vec![], Some(1)),
        (Selection::None, vec![], None),
        (Selection::All, vec![1 << 30, 1 << 30], Some(1 << 60)),
        (Selection::All, vec![7, 0, u64::MAX, 9], None),
    ] {
        runs.clear();
        selection
            .runs(&shape, 0..u64::MAX, &mut |r| {
                runs.push(r);
                Ok(())
            })
            .unwrap();
        assert_eq!(runs.first().map(|r| r.len), want);
        assert!(runs.len() <= 1);
    }
    assert!(Selection::All.over(&[1 << 40, 1 << 40]).is_err());
}

/// Extents of 2^60 elements: the cost follows the answer.
#[test]
fn huge_extents() {
    let shape = [1 << 20, 1 << 20, 1 << 20];
    let d = |start, stride, count, block| HyperslabDim { start, stride, count, block };
    let s = Selection::regular(vec![d(5, 1 << 10, 1000, 2), d(0, 1, 1, 1 << 20), d(7, 9, UNLIMITED, 3)]).unwrap();
    let view = s.over(&shape).unwrap();
    let row = 116_507 * 3 + 3;
    assert_eq!(view.count(), 2000 * (1 << 20) * row);
    let mut seen = Vec::new();
    let mut keep = |r: Run| {
        seen.push(r);
        Ok(())
    };
    // A million empty planes precede the one that is selected.
    view.runs((7 << 40)..(1029 << 40) + 20, &mut keep).unwrap();
    let ordinal = 2 * (1 << 20) * row;
    assert_eq!(seen, [Run { ordinal, linear: (1029 << 40) + 7, len: 3 }, Run { ordinal: ordinal + 3, linear: (1029 << 40) + 16, len: 3 }]);
    seen.clear();
    let mut keep = |r: Run| {
        seen.push(r);
        Ok(())
    };
    view.by_ordinal(ordinal + 1..ordinal + 4, &mut keep).unwrap();
    assert_eq!(
        seen,
        [Run { ordinal: ordinal + 1, linear: (1029 << 40) + 8, len: 2 }, Run { ordinal: ordinal + 3, linear: (1029 << 40) + 16, len: 1 }]
    );
    // Whole rows of whole planes are one run; too many runs are refused.
    let s = Selection::regular(vec![d(5, 2, 3, 1), d(0, 1, 1, 1 << 20), d(0, 1, 1, 1 << 20)]).unwrap();
    let mut n = 0;
    s.runs(&shape, 0..1 << 60, &mut |_| {
        n += 1;
        Ok(())
    })
    .unwrap();
    assert_eq!(n, 3);
    // Columns outside of the extent: many rows without an answer.
    let corners = [0, 0, 5, (1 << 20) - 1, 5, 1 << 30, 0, 1 << 21, 5, (1 << 20) - 1, (1 << 21) + 5, 1 << 30];
    let tree = SpanTree::new(3, &corners, &Budget::new(1000, "test")).unwrap();
    assert!(Selection::Blocks(tree).runs(&[1 << 20, 4, 1 << 20], 0..u64::MAX, &mut |_| Ok(())).is_ok());
}
