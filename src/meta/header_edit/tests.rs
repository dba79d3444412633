//! Random edits of object headers against a model, and libhdf5 as the oracle.

use super::*;
use crate::format::message::link::{LinkMessage, LinkValue};
use crate::format::message::link_info::LinkInfo;
use crate::meta::ObjectHeader;
use crate::meta::edit::testing::{empty, writable};
use proptest::prelude::*;

impl HeaderEdit {
    /// Number of messages.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// True if there are no messages.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}

#[derive(Debug, Clone)]
enum Op {
    Add(usize),
    Set(usize, usize),
    Remove(usize),
    Links(u32),
    Reload,
}

fn op() -> impl Strategy<Value = Op> {
    let size = || prop_oneof![4 => 0usize..40, 3 => 0usize..400, 2 => 0usize..3000, 1 => 60_000usize..65_529];
    prop_oneof![
        4 => size().prop_map(Op::Add),
        3 => (any::<usize>(), size()).prop_map(|(i, n)| Op::Set(i, n)),
        4 => any::<usize>().prop_map(Op::Remove),
        1 => (1u32..4).prop_map(Op::Links),
        4 => Just(Op::Reload),
    ]
}

/// Checks the rules that libhdf5 checks when it loads a header.
fn check_rules(edit: &HeaderEdit) {
    let header = edit.prefix.message_header_len();
    let mut count = 0;
    for (i, c) in edit.chunks.iter().enumerate() {
        let nils = c.parts.iter().filter(|p| p.is_free() && p.len >= header).count();
        let gaps: Vec<_> = c.parts.iter().enumerate().filter(|(_, p)| p.is_free() && p.len < header).map(|(i, _)| i).collect();
        assert!(gaps.is_empty() || (nils == 0 && gaps == [c.parts.len() - 1]), "{nils} NIL messages, gaps {gaps:?}");
        assert!(i == 0 || c.parts.iter().any(|p| !p.is_free()), "an empty chunk");
        assert!(c.parts.windows(2).all(|w| !(w[0].is_free() && w[1].is_free())), "NIL messages that touch");
        if edit.version() == 1 {
            assert!(c.parts.iter().all(|p| p.len % 8 == 0));
            count += c.parts.len();
        }
    }
    assert!(edit.version() != 1 || count == usize::from(edit.prefix.message_count));
}

fn run(version: u8, tracked: bool, ops: &[Op]) {
    let (store, file) = empty();
    let mut model: Vec<(u16, Vec<u8>)> = Vec::new();
    let mut edit = HeaderEdit::new(version, Some(7), (tracked, tracked));
    if version == 1 {
        model.push((kind::MTIME, times::encode(7)));
    }
    let at = edit.clone().create(&store).unwrap();
    edit = HeaderEdit::load(&store, at).unwrap();
    let (mut links, mut fill) = (1, 0u8);
    for op in ops.iter().chain([&Op::Reload]) {
        fill = fill.wrapping_add(1);
        let body = |n: usize| vec![fill; if version == 1 { n & !7 } else { n }];
        match op {
            Op::Add(n) => {
                let i = edit.add(kind::ATTRIBUTE, 0, body(*n));
                assert_eq!(i, edit.len() - 1);
                model.push((kind::ATTRIBUTE, body(*n)));
            }
            Op::Set(i, n) if !edit.is_empty() => {
                let i = i % edit.len();
                if edit.message(i).unwrap().kind == kind::ATTRIBUTE {
                    let old = (kind::ATTRIBUTE, edit.body(i).to_vec());
                    edit.set_body(i, body(*n));
                    *model.iter_mut().find(|m| **m == old).unwrap() = (kind::ATTRIBUTE, body(*n));
                }
            }
            Op::Remove(i) if !edit.is_empty() => {
                let i = i % edit.len();
                if edit.message(i).unwrap().kind == kind::ATTRIBUTE {
                    let old = (kind::ATTRIBUTE, edit.body(i).to_vec());
                    edit.remove(i);
                    model.remove(model.iter().position(|m| *m == old).unwrap());
                }
            }
            Op::Links(n) => {
                edit.set_links(*n);
                links = *n;
            }
            _ => {
                edit.write(&store).unwrap();
                edit = HeaderEdit::load(&store, at).unwrap();
                check_rules(&edit);
                let read = ObjectHeader::load(&store, at).unwrap();
                let sorted = |mut v: Vec<(u16, Vec<u8>)>| {
                    v.sort();
                    v
                };
                let got = read.messages.iter().filter(|m| m.kind != kind::REFERENCE_COUNT).map(|m| (m.kind, m.body.clone()));
                assert_eq!(sorted(got.collect()), sorted(model.clone()));
                assert_eq!(edit.links(), links);
            }
        }
    }
    drop(edit);
    HeaderEdit::delete(&store, at).unwrap();
    store.close().unwrap();
    assert_eq!(file.bytes().len(), 48, "all space is freed");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, ..ProptestConfig::default() })]
    #[test]
    fn random_changes(version in 1u8..=2, tracked: bool, ops in proptest::collection::vec(op(), 1..120)) {
        run(version, tracked, &ops);
    }
}

#[test]
fn a_body_of_the_same_size_is_overwritten_in_place() {
    for version in [1, 2] {
        let (store, _) = empty();
        let mut edit = HeaderEdit::new(version, None, (false, false));
        edit.add(kind::ATTRIBUTE, 0, vec![1; 16]);
        edit.add(kind::ATTRIBUTE, 0, vec![2; 16]);
        let at = edit.create(&store).unwrap();
        let before = store.read(at, 256, "t").unwrap();
        let mut edit = HeaderEdit::load(&store, at).unwrap();
        edit.set_body(0, vec![3; 16]);
        edit.touch(9);
        edit.write(&store).unwrap();
        let after = store.read(at, 256, "t").unwrap();
        let differ = before.iter().zip(&after).filter(|(a, b)| a != b).count();
        assert!(differ <= 16 + 4, "{differ}");
    }
}

#[test]
fn too_large_is_an_error_before_anything_is_written() {
    for version in [1, 2] {
        let (store, _) = empty();
        let at = HeaderEdit::new(version, Some(1), (false, false)).create(&store).unwrap();
        let mut edit = HeaderEdit::load(&store, at).unwrap();
        let i = edit.add(kind::ATTRIBUTE, 0, vec![0; edit.body_max() + 1]);
        assert!(matches!(edit.clone().write(&store), Err(Error::Limit { .. })));
        edit.set_body(i, vec![0; edit.body_max()]);
        edit.write(&store).unwrap();
        assert_eq!(HeaderEdit::load(&store, at).unwrap().body(i).len(), BODY_MAX & if version == 1 { !7 } else { !0 });
    }
}

fn link(name: &str, to: Address) -> Vec<u8> {
    let message = LinkMessage {
        name_width: 1,
        link_type: None,
        creation_order: None,
        charset: None,
        name: name.into(),
        value: LinkValue::Address(to),
    };
    message.encode(&Context::DEFAULT).unwrap()
}

/// libhdf5 reads and changes new groups and datatypes, and old objects with more links.
#[test]
fn libhdf5_reads_new_headers_and_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.h5");
    let oracle = |what: &str| {
        let local = concat!(env!("CARGO_MANIFEST_DIR"), "/.venv/bin/python");
        let known = [local, "/opt/venv/bin/python"].into_iter().find(|p| std::path::Path::new(p).exists()).unwrap_or("python3");
        let python = std::env::var("PYTHON").unwrap_or_else(|_| known.to_owned());
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/oracle/header_edit.py");
        let output = std::process::Command::new(python).args([script, what]).arg(&path).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    let addresses: Vec<Address> = oracle("make").split_whitespace().map(|n| Address(n.parse().unwrap())).collect();
    let (store, file) = writable(std::fs::read(&path).unwrap());
    let mut root = HeaderEdit::load(&store, addresses[1]).unwrap();
    for i in 0..3 {
        root.add(kind::LINK, 0, link(&format!("h{i}"), addresses[0]));
    }
    let mut dataset = HeaderEdit::load(&store, addresses[0]).unwrap();
    assert_eq!(dataset.links(), 1);
    dataset.set_links(4);
    dataset.write(&store).unwrap();
    for (i, order) in [(1, (false, false)), (2, (true, false)), (3, (true, true))] {
        let mut group = HeaderEdit::new(2, (i > 1).then_some(77), order);
        let info = LinkInfo { max_creation_order: None, fractal_heap: Address::UNDEF, name_index: Address::UNDEF, creation_index: None };
        group.add(kind::LINK_INFO, 0, info.encode(store.ctx()).unwrap());
        group.add(kind::GROUP_INFO, 1, vec![0, 0]);
        let at = group.create(&store).unwrap();
        root.add(kind::LINK, 0, link(&format!("empty{i}"), at));
    }
    for version in [1, 2] {
        let mut datatype = HeaderEdit::new(version, Some(77), (false, false));
        datatype.add(kind::DATATYPE, 1, vec![0x10, 0, 0, 0, 1, 0, 0, 0, 0, 0, 8, 0]);
        let at = datatype.create(&store).unwrap();
        root.add(kind::LINK, 0, link(&format!("t{version}"), at));
    }
    root.touch(78);
    root.write(&store).unwrap();
    store.close().unwrap();
    std::fs::write(&path, file.bytes()).unwrap();
    oracle("check");
    let (store, _) = writable(std::fs::read(&path).unwrap());
    assert_eq!(HeaderEdit::load(&store, addresses[0]).unwrap().links(), 1);
}
