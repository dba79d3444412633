//! Reuse of the space of variable-length values that were overwritten and of objects that were
//! deleted.

use super::super::NativeConnector;
use super::fault_tests::writable;
use crate::connector::edit::Edit;
use crate::connector::native::tests::editor;
use crate::connector::{Connector, ObjectId};
use crate::file::fault::{Fault, Plan};
use crate::present::Existing;
use std::sync::Arc;

fn container() -> Arc<NativeConnector> {
    writable(&Plan::new(0, 0, 0, Fault::Short))
}

fn end(c: &NativeConnector) -> u64 {
    c.file(0).unwrap().store.transaction().unwrap().end()
}

fn lines(c: &NativeConnector, name: &[u8]) -> ObjectId {
    let id = c.create_file(c.root(), name).unwrap();
    editor(c).set_fact(id, "dataset", br#"{"dtype": "str", "shape": [50]}"#).unwrap();
    id
}

fn rewrite(c: &NativeConnector, id: ObjectId, text: &str) {
    let all: String = (0..50).map(|i| format!("{text}{i}\n")).collect();
    c.set_size(id, 0).unwrap();
    c.write(id, 0, all.as_bytes()).unwrap();
    c.finish(id, true).unwrap();
}

#[test]
fn strings_rewritten_a_thousand_times_take_no_more_room() {
    let c = container();
    let (id, other) = (lines(&c, b"s"), lines(&c, b"other"));
    let mut most = 0;
    for i in 0..1000 {
        rewrite(&c, id, &"x".repeat(i % 40 + 1));
        if i % 3 == 0 {
            rewrite(&c, other, "kept");
        }
        c.commit().unwrap();
        if i == 100 {
            most = end(&c);
        }
    }
    assert!(end(&c) <= most + 16384, "{} bytes after 100 times, {} after 1000", most, end(&c));
    let text = |id| String::from_utf8(super::fault_tests::bytes(&c, id)).unwrap();
    assert!(text(other).starts_with("kept0\nkept1\n") && text(id).starts_with(&format!("{}0\n", "x".repeat(40))));
}

#[test]
fn what_is_deleted_leaves_nothing_in_the_global_heap() {
    let c = container();
    editor(&c).set_attribute(c.root(), b"a", b"first", Existing::Any).unwrap();
    c.commit().unwrap();
    let before = end(&c);
    for _ in 0..3 {
        let id = lines(&c, b"s");
        rewrite(&c, id, &"long".repeat(100));
        c.commit().unwrap();
        assert!(end(&c) > before + 20_000);
        c.unlink(c.root(), b"s", false).unwrap();
        c.commit().unwrap();
    }
    c.close().unwrap();
    assert!(end(&c) <= before + 512, "{before} bytes before, {} after", end(&c));
}
