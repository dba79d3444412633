//! Selections of elements: texts of users, JSON of region references, and bytes of files. The first byte says which, and
//! the next ones are a small shape. What is selected lies within the shape, and all ways to count and visit it agree.
//!
//! A shape has at most `ELEMENTS_MAX` elements where they are visited, and a visit at most `STEPS_MAX` steps.
#![no_main]

use h5dir::base::Address;
use h5dir::base::element_set::ElementSet;
use h5dir::base::fuzzing::Budget;
use h5dir::base::parts::{Part, Region};
use h5dir::base::selected::Selected;
use h5dir::connector::edit::NewReference;
use h5dir::connector::memory::{MemoryConnector, MemoryObject, Rows};
use h5dir::connector::{Connector, ObjectId};
use h5dir::format::Reader;
use h5dir::format::Writer;
use h5dir::format::selection::{Form, SerializedSelection};
use h5dir::present::fuzzing::parse_references;
use h5dir::present::{SelectionText, defined_json, defined_len, defined_values};
use libfuzzer_sys::fuzz_target;
use std::collections::BTreeSet;
use std::ops::{ControlFlow, Range};
use std::str::from_utf8;
use std::sync::LazyLock;

/// Most elements that are visited one by one.
const ELEMENTS_MAX: u64 = 4096;
/// Most steps of a visit.
const STEPS_MAX: u64 = 1 << 14;
/// Rows and columns of the dataset in memory.
const TABLE: (u64, u64) = (13, 17);

fuzz_target!(|data: &[u8]| {
    let [which, rank, rest @ ..] = data else { return };
    let (sizes, rest) = rest.split_at(rest.len().min(usize::from(rank % 5)));
    // The largest one is for texts only.
    let dims: Vec<u64> = sizes.iter().map(|n| if *n == 255 { u64::MAX } else { u64::from(*n % 12) }).collect();
    match which % 4 {
        0 => texts(rest, &dims),
        1 => regions(rest, &dims),
        2 => stored(rest, &dims),
        _ => dataset(rest),
    }
});

/// Number of elements of `dims`, if they are few.
fn few(dims: &[u64]) -> Option<u64> {
    dims.iter().try_fold(1u64, |n, d| n.checked_mul(*d)).filter(|n| *n <= ELEMENTS_MAX)
}

/// Two texts with a line end between them, and their union, intersection and difference.
fn texts(bytes: &[u8], dims: &[u64]) {
    let Ok(text) = from_utf8(bytes) else { return };
    let (first, second) = text.split_once('\n').unwrap_or((text, ""));
    let select = |text: &str| SelectionText::from(text).select(dims);
    let (Ok(a), Ok(b)) = (select(first), select(second)) else { return };
    for block in [&a, &b].into_iter().filter_map(Selected::block) {
        assert_eq!(block.len(), dims.len());
        assert!(block.iter().zip(dims).all(|(range, size)| range.start <= range.end && range.end <= *size));
        set(&block);
    }
    if dims.is_empty() || few(dims).is_none() {
        return;
    }
    for selected in [&a, &b] {
        in_order(selected, dims);
    }
    let (Ok(a), Ok(b)) = (a.to_set(), b.to_set()) else { panic!("a small shape has few blocks") };
    let (in_a, in_b) = (numbers(&a, dims), numbers(&b, dims));
    let sets = [
        (a.union(&b), &in_a | &in_b),
        (a.intersection(&b), &in_a & &in_b),
        (a.difference(&b), &in_a - &in_b),
        (b.difference(&a), &in_b - &in_a),
    ];
    for (set, expected) in sets {
        assert!(set.is_ok_and(|set| numbers(&set, dims) == expected));
    }
}

/// Numbers of the elements of `selected` in its order, which all its methods agree upon.
fn in_order(selected: &Selected, dims: &[u64]) -> Vec<u64> {
    let visit = |ordinals: Range<u64>| {
        let mut all = Vec::new();
        let visited = selected.for_each_run(ordinals, &mut |run| {
            all.extend(run);
            Ok(())
        });
        assert!(visited.is_ok());
        all
    };
    let all = visit(0..u64::MAX);
    let half = selected.len() / 2;
    assert_eq!([visit(0..half), visit(half..u64::MAX)].concat(), all);
    let Ok(set) = selected.to_set() else { panic!("a small shape has few blocks") };
    assert_eq!(selected.len(), all.len() as u64);
    assert_eq!(numbers(&set, dims), all.iter().copied().collect());
    assert!(!selected.is_ascending() || all.is_sorted());
    all
}

fn set(block: &[Range<u64>]) -> ElementSet {
    let (first, end): (Vec<u64>, Vec<u64>) = block.iter().map(|r| (r.start, r.end)).unzip();
    let set = ElementSet::block(&first, &end);
    let count = block.iter().fold(1u64, |n, r| n.saturating_mul(r.end - r.start));
    if !block.is_empty() {
        assert_eq!((set.elements(), set.is_empty()), (count, count == 0));
    }
    set
}

/// Numbers of the elements of `set`, which all its methods agree upon.
fn numbers(set: &ElementSet, dims: &[u64]) -> BTreeSet<u64> {
    assert!(set.is_within(dims));
    let (count, mut all, mut blocks) = (few(dims).unwrap_or(0), BTreeSet::new(), (0, 0));
    let visited = set.for_each_run(dims, &mut |run| {
        assert!(run.end <= count && all.last().is_none_or(|last| *last < run.start));
        all.extend(run);
        Ok(())
    });
    assert!(visited.is_ok());
    let flow = set.for_each_block(&mut |first, end| {
        blocks = (blocks.0 + 1, blocks.1 + first.iter().zip(end).map(|(f, e)| e - f).product::<u64>());
        ControlFlow::Continue(())
    });
    assert!(flow.is_continue());
    assert_eq!((set.blocks(), set.elements(), set.elements()), (blocks.0, blocks.1, all.len() as u64));
    let mut found = BTreeSet::new();
    let mut from = 0;
    while let Some(next) = set.next_element(dims, from) {
        let gap = set.next_gap(dims, next);
        assert!(from <= next && next < gap && gap <= count);
        found.extend(next..gap);
        from = gap;
    }
    assert_eq!(found, all);
    all
}

/// JSON of references with selections.
fn regions(bytes: &[u8], dims: &[u64]) {
    let Ok(references) = parse_references(bytes) else { return };
    for reference in references.into_iter().take(16) {
        let NewReference::To(target) = reference else { continue };
        let Part::Region(region) = target.part else { continue };
        let form = Form::Compact { width: 8 };
        visit(
            &match region {
                Region::None => SerializedSelection::None(form),
                Region::All => SerializedSelection::All(form),
                Region::Points { rank, coordinates } => SerializedSelection::Points { form, rank, coordinates },
                Region::Blocks { rank, corners } => SerializedSelection::Blocks { form, rank, corners },
                Region::Regular(dims) => SerializedSelection::Regular { form, dims },
                Region::Opaque(_) => continue,
            },
            dims,
        );
    }
}

/// A serialized selection, which is decoded as the same after it was encoded.
fn stored(bytes: &[u8], dims: &[u64]) {
    let Ok(selection) = SerializedSelection::decode(&mut Reader::new(bytes, "fuzzed", Address(0))) else { return };
    let mut w = Writer::new();
    selection.encode(&mut w);
    let again = SerializedSelection::decode(&mut Reader::new(&w.into_bytes(), "encoded", Address(0)));
    assert!(again.is_ok_and(|again| again == selection), "{selection:?}");
    visit(&selection, dims);
}

/// Visits what `selection` selects of an extent of `dims`, by number and by ordinal.
fn visit(selection: &SerializedSelection, dims: &[u64]) {
    let Ok(selection) = selection.to_selection(&Budget::new(STEPS_MAX, "fuzzed")) else { return };
    let (Ok(view), Some(count)) = (selection.over(dims), few(dims)) else { return };
    assert_eq!(view.elements(), count);
    let (mut by_number, mut by_ordinal) = (Vec::new(), Vec::new());
    let budget = || Budget::new(STEPS_MAX, "fuzzed");
    let numbered = view.runs_within(0..u64::MAX, &budget(), &mut |run| {
        assert!(run.linear + run.len <= count && run.ordinal + run.len <= view.count());
        by_number.extend((0..run.len).map(|n| (run.linear + n, run.ordinal + n)));
        Ok(())
    });
    let ordered = view.by_ordinal_within(0..u64::MAX, &budget(), &mut |run| {
        assert!(run.linear + run.len <= count && run.ordinal + run.len <= view.count());
        by_ordinal.extend((0..run.len).map(|n| (run.linear + n, run.ordinal + n)));
        Ok(())
    });
    if numbered.is_err() || ordered.is_err() {
        return;
    }
    assert!(by_number.is_sorted_by_key(|(number, _)| *number));
    assert!(by_ordinal.is_sorted_by(|(_, a), (_, b)| a < b));
    // A part of the extent has the elements of the whole that are in it.
    let (low, high) = (count / 3, count / 3 * 2);
    let mut part = Vec::new();
    let parted = view.runs_within(low..high, &budget(), &mut |run| {
        part.extend((0..run.len).map(|n| (run.linear + n, run.ordinal + n)));
        Ok(())
    });
    if parted.is_ok() {
        assert!(part.iter().eq(by_number.iter().filter(|(number, _)| (low..high).contains(number))));
    }
    by_number.sort_unstable();
    by_ordinal.sort_unstable();
    assert_eq!(by_number, by_ordinal);
}

static DATASET: LazyLock<Option<(MemoryConnector, ObjectId)>> = LazyLock::new(|| {
    let bytes = (0..TABLE.0 * TABLE.1).map(|n| n as u8).collect();
    let rows = Some(Rows { bytes: TABLE.1, max: None });
    let dataset = MemoryObject { bytes: Some(bytes), rows, ..MemoryObject::default() };
    let root = MemoryObject { links: Some(Default::default()), ..MemoryObject::default() };
    Some((MemoryConnector::new(vec![root, dataset]).ok()?, MemoryConnector::id(1)))
});

/// A text, and the elements of a dataset that it selects.
fn dataset(bytes: &[u8]) {
    let (Ok(text), Some((connector, id))) = (from_utf8(bytes), &*DATASET) else { return };
    let connector: &dyn Connector = connector;
    let selected = defined_values(connector, *id, text.into(), u64::MAX);
    let len = defined_len(connector, *id, text.into(), u64::MAX);
    assert_eq!(selected.as_ref().ok().map(|values| values.len() as u64), len.ok());
    assert_eq!(defined_json(connector, *id, text.into(), u64::MAX).is_ok(), selected.is_ok());
    let dims = [TABLE.0, TABLE.1];
    let Ok(elements) = SelectionText::from(text).select(&dims) else { return assert!(selected.is_err()) };
    let expected: Vec<u8> = in_order(&elements, &dims).into_iter().map(|n| n as u8).collect();
    assert!(selected.is_ok_and(|values| values == expected));
}
