//! Text that users give: the JSON of facts, datatypes and values. The first byte says which. Facts are also set on a
//! dataset of a container in memory and read again: a text that is shown must be taken, and be shown again.
//!
//! Time and memory follow the length of the input, except values: datasets that are created have at most
//! `ELEMENTS_MAX` bytes of elements.
#![no_main]

use h5dir::base::shape::Shape;
use h5dir::connector::iod::fuzzing::create;
use h5dir::connector::{Connector, DatasetSpec, ObjectId};
use h5dir::present::fuzzing::{
    AttributeList, map_types, parse_dataset_json, parse_datatype_in, parse_fact, parse_names, parse_references, parse_types, parse_value,
};
use h5dir::present::{Editor, FACT_NAMES, Node, NpyHeader, check_fact, check_new_file, fact, numpy_dtype, text};
use libfuzzer_sys::fuzz_target;
use std::str::from_utf8;

/// Size of addresses in the file that the text is for.
const ADDRESS_BYTES: u8 = 8;
/// Facts that have a form of their own, and one that is not set.
const NAMES: [&str; 10] = ["dtype", "shape", "maxshape", "chunks", "filters", "fillvalue", "layout", "profile", "dataset", "newlines"];
/// Facts that are set on objects.
const SET: [&str; 14] = [
    "attributes",
    "chunks",
    "comment",
    "dataset",
    "datatype",
    "dtype",
    "fillvalue",
    "filters",
    "layout",
    "map",
    "maxshape",
    "shape",
    "types",
    "erase",
];
/// Most bytes of elements of a dataset that is created.
const ELEMENTS_MAX: u64 = 1 << 20;

fuzz_target!(|data: &[u8]| {
    let [which, rest @ ..] = data else { return };
    match which % 12 {
        0 => drop(parse_dataset_json(rest, ADDRESS_BYTES)),
        1 => {
            let [fact, rest @ ..] = rest else { return };
            drop(parse_fact(NAMES[usize::from(*fact) % NAMES.len()], rest, ADDRESS_BYTES));
        }
        2 => {
            if let Ok(list) = AttributeList::parse(rest, ADDRESS_BYTES) {
                list.values().for_each(drop);
            }
        }
        3 => drop(parse_references(rest)),
        4 => drop((parse_types(rest), parse_names(rest), map_types(rest, ADDRESS_BYTES))),
        5 => drop((check_new_file(rest), check_fact(rest))),
        6 => datatype(rest),
        7 => value(rest),
        8 => node(rest),
        9 => drop(NpyHeader::parse(rest)),
        _ => container(rest),
    }
});

/// A datatype is shown as text, which means the same datatype.
fn datatype(bytes: &[u8]) {
    let Some(t) = from_utf8(bytes).ok().and_then(|text| parse_datatype_in(text, ADDRESS_BYTES).ok()) else { return };
    drop(numpy_dtype(&t));
    let shown = text(&t);
    if let Ok(again) = parse_datatype_in(&shown, ADDRESS_BYTES) {
        assert_eq!(text(&again), shown);
    }
}

/// The text of a value behind the text of its datatype and a line end.
fn value(bytes: &[u8]) {
    let Some(at) = bytes.iter().position(|b| *b == b'\n') else { return };
    let (of, rest) = bytes.split_at(at);
    let [_, count, rest @ ..] = rest else { return };
    let Some(t) = from_utf8(of).ok().and_then(|text| parse_datatype_in(text, ADDRESS_BYTES).ok()) else { return };
    let shape = if *count == 0 { Shape::Scalar } else { Shape::Simple { dims: vec![u64::from(*count)], max: None } };
    if t.element_size() <= ELEMENTS_MAX / 256 {
        drop(parse_value(&t, &shape, rest));
    }
}

/// JSON that was read is written so that it is read as the same.
fn node(bytes: &[u8]) {
    if let Ok(node) = Node::parse_json(bytes) {
        let again = Node::parse_json(&node.json());
        assert!(again.is_ok_and(|again| again.json() == node.json()));
    }
    drop(Node::parse(bytes));
}

/// True if the elements of a dataset of `spec` take little memory.
fn is_small(spec: &DatasetSpec) -> bool {
    let size = spec.dtype.as_ref().map_or(1, |t| t.element_size());
    let bytes = |dims: &[u64]| dims.iter().try_fold(size, |n, d| n.checked_mul(*d)).is_some_and(|n| n <= ELEMENTS_MAX);
    let chunks = match &spec.chunks {
        Some(h5dir::connector::ChunksSpec::Dims(dims)) => bytes(dims),
        _ => true,
    };
    size <= ELEMENTS_MAX && spec.shape.as_ref().is_none_or(|dims| bytes(dims)) && chunks
}

/// Facts set one after another, each a byte and a text up to a NUL.
fn container(bytes: &[u8]) {
    let Ok(connector) = create() else { return };
    let Some(edit) = connector.edit() else { return };
    let editor = Editor { connector: &*connector, edit };
    let root = connector.root();
    let Ok(id) = editor.create_dataset(root, b"d", b"{}") else { return };
    for part in bytes.split(|b| *b == 0).take(8) {
        let [name, text @ ..] = part else { continue };
        let name = SET[usize::from(*name) % SET.len()];
        let parsed = parse_fact(name, text, ADDRESS_BYTES).map(|parsed| parsed.without_fill());
        if parsed.is_ok_and(|spec| !is_small(&spec)) {
            continue;
        }
        drop(editor.set_fact(id, name, text));
    }
    let shown = |id: ObjectId, name: &str| fact(&*connector, id, name).ok().flatten();
    for name in FACT_NAMES {
        drop(shown(id, name));
    }
    // What a copy sets.
    let Some(description) = shown(id, "dataset").filter(|text| text.len() <= 64 << 10) else { return };
    let Ok(copy) = editor.create_dataset(root, b"copy", b"{}") else { return };
    if editor.set_fact(copy, "dataset", &description).is_ok() {
        let again = shown(copy, "dataset");
        assert_eq!(again.as_deref().map(String::from_utf8_lossy), Some(String::from_utf8_lossy(&description)));
    }
}
