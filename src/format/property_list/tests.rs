//! Known answers of libhdf5.

use super::*;
use std::fmt::Write as _;
use std::io::Write as _;
use std::process::{Command, Stdio};

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/oracle/property_lists.py");
/// Datatype message of a 32-bit integer, lowest byte first.
const I4: &[u8] = b"\x10\x08\0\0\x04\0\0\0\0\0\x20\0";

fn filter(id: u16, flags: u16, cd_values: &[u32]) -> FilterSpec {
    FilterSpec { id, flags, name: Vec::new(), cd_values: cd_values.to_vec() }
}

fn dataset<'a>(layout: ListedLayout<'a>, allocation_time: u8) -> DatasetProperties<'a> {
    DatasetProperties {
        object: ObjectProperties::default(),
        layout,
        files: Vec::new(),
        filters: &[],
        fill: &Fill::Default,
        datatype: I4,
        allocation_time,
        is_usual_allocation: true,
        fill_time: 2,
    }
}

/// The lists of `lists` of the script, with its names.
fn lists() -> Vec<(&'static str, Vec<u8>)> {
    use ListedLayout::{Chunked, Compact, Contiguous};
    let chunked = || dataset(Chunked(&[4, 5]), 3);
    let files = vec![ListedFile { name: b"a.raw", offset: 5, size: Some(100) }, ListedFile { name: b"b", offset: 70_000, size: None }];
    let several = [filter(2, 1, &[]), filter(1, 1, &[6]), filter(3, 0, &[])];
    let unknown = [filter(32_015, 1, &[3]), filter(444, 1, &[])];
    let scaled = [filter(6, 1, &[2, 3])];
    let tracked = ATTRIBUTES_TRACKED | ATTRIBUTES_INDEXED;
    let timeless = ObjectProperties { header_flags: tracked, attribute_phase_change: (10, 4), ..ObjectProperties::default() };
    let times = DatasetProperties { object: timeless, is_usual_allocation: false, fill_time: 1, ..dataset(Contiguous, 1) };
    let links = LinkProperties { is_tracked: true, ..LinkProperties::default() };
    let all = LinkProperties { is_tracked: true, is_indexed: true, phase_change: (20, 10), estimates: (100, 30), filters: Vec::new() };
    let all = ObjectProperties { header_flags: TIMES | tracked, attribute_phase_change: (10, 4), links: all };
    let encode = |dataset: &DatasetProperties<'_>| encode_dataset(dataset).unwrap();
    vec![
        ("default", encode(&dataset(Contiguous, 2))),
        ("compact", encode(&dataset(Compact, 1))),
        ("chunked", encode(&chunked())),
        ("filters", encode(&DatasetProperties { filters: &several, ..chunked() })),
        ("unknown filter", encode(&DatasetProperties { filters: &unknown, ..chunked() })),
        ("scaleoffset", encode(&DatasetProperties { filters: &scaled, ..chunked() })),
        ("fill value", encode(&DatasetProperties { fill: &Fill::Value(vec![7, 0, 0, 0]), ..dataset(Contiguous, 2) })),
        ("times", encode(&times)),
        ("external", encode(&DatasetProperties { files, ..dataset(Contiguous, 2) })),
        ("group", encode_group(&ObjectProperties::default())),
        ("tracked", encode_group(&ObjectProperties { links, ..ObjectProperties::default() })),
        ("all of a group", encode_group(&all)),
        ("named datatype", encode_datatype(&ObjectProperties::default())),
    ]
}

#[test]
fn libhdf5_reads_property_lists_as_its_own() {
    let mut lines = String::new();
    for (name, list) in lists() {
        let hex = list.iter().fold(String::new(), |mut hex, byte| {
            let _ = write!(hex, "{byte:02x}");
            hex
        });
        let _ = writeln!(lines, "{name} {hex}");
    }
    let mut python = Command::new(crate::python::with_h5py()).arg(SCRIPT).stdin(Stdio::piped()).spawn().unwrap();
    python.stdin.take().unwrap().write_all(lines.as_bytes()).unwrap();
    assert!(python.wait().unwrap().success());
}

/// As libhdf5 2.0.0 encodes them, each property set.
#[test]
fn known_answers() {
    let of = |name| lists().into_iter().find(|(known, _)| *known == name).unwrap().1;
    let group: &[u8] = b"\0\tlink info\0\x04\x03\0\0\0pline\0\x04\x01\0min dense attr\0\x04\x04\0\0\0max compact attr\0\x04\n\0\0\0\
        group info\0\0\0\0\0\x14\0\n\0d\0\x1e\0object header flags\0,\0";
    assert_eq!(of("all of a group"), group);
    let filled: &[u8] = b"\0\x05layout\0\x01efl\0\x01\0pline\0\x04\x01\0min dense attr\0\x04\x06\0\0\0dset_oh_minimize\0\0\
        max compact attr\0\x04\x08\0\0\0alloc_time_state\0\x04\x01\0\0\0fill_value\0\x02\x02\x04\0\0\0\0\0\0\0\x07\0\0\0\x01\x0e\
        \x03\0\x10\x08\0\0\x04\0\0\0\0\0\x20\0object header flags\0 \0";
    assert_eq!(of("fill value"), filled);
}

#[test]
fn names_of_filters_are_cut_and_too_large_chunks_are_refused() {
    let filters = [FilterSpec { id: 32_015, flags: 0, name: b"a name of 20 letters".to_vec(), cd_values: Vec::new() }];
    let list = encode_dataset(&DatasetProperties { filters: &filters, ..dataset(ListedLayout::Chunked(&[1]), 3) }).unwrap();
    let named: &[u8] = b"\x0f\x7d\0\0\0\0\0\0\x01a name of 2\0\x01\0";
    assert!(list.windows(named.len()).any(|part| part == named));
    for dims in [&[1 << 32][..], &[1; 256]] {
        assert!(encode_dataset(&dataset(ListedLayout::Chunked(dims), 3)).is_err());
    }
}
