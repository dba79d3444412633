//! Named datatypes of files that count their uses, and of files that count hard links alone, as
//! those of JLD2 do.

use super::super::NativeConnector;
use super::fault_tests::{bytes, writable};
use crate::connector::edit::Edit;
use crate::connector::native::tests::editor;
use crate::connector::{Connector, NewValue, ObjectId, Shape};
use crate::file::fault::{Fault, Plan};
use crate::meta::header_edit::HeaderEdit;
use crate::present::Existing;
use crate::present::parse::parse_datatype;
use std::sync::Arc;

/// A container with the named datatype `t`, which the datasets `d` and `e` and the attribute `a` of
/// `e` have. `counted`: it counts them.
fn container(counted: bool) -> (Arc<NativeConnector>, ObjectId) {
    let c = writable(&Plan::new(0, 0, 0, Fault::Short));
    let t = c.create_file(c.root(), b"t").unwrap();
    c.become_datatype(t, &parse_datatype("<i4").unwrap(), b"").unwrap();
    for name in [b"d", b"e"] {
        let id = c.create_file(c.root(), name).unwrap();
        editor(&c).set_fact(id, "dataset", br#"{"dtype": "<i4", "shape": [4]}"#).unwrap();
        c.use_datatype(id, None, b"/t").unwrap();
        c.write(id, 0, &[7; 16]).unwrap();
    }
    let e = found(&c, b"/e");
    let value = NewValue::plain(parse_datatype("<i4").unwrap(), Shape::Scalar, vec![5; 4]);
    Edit::set_attribute(&*c, e, b"a", &value).unwrap();
    c.use_datatype(e, Some(b"a"), b"/t").unwrap();
    c.commit().unwrap();
    if !counted {
        let change = c.change(&[t]).unwrap();
        let store = change.store().unwrap();
        let mut header = HeaderEdit::load(&store, t.address).unwrap();
        header.set_links(1);
        change.atomically(|| header.write(&store)).unwrap();
        change.changed(t);
    }
    (c, t)
}

fn found(c: &NativeConnector, path: &[u8]) -> ObjectId {
    c.resolve(c.root(), path).unwrap().unwrap()
}

fn end(c: &NativeConnector) -> u64 {
    c.commit().unwrap();
    c.file(0).unwrap().store.transaction().unwrap().end()
}

/// A dataset that goes took the datatype with it, which another one has, and which has a name.
#[test]
fn a_datatype_that_is_not_counted_stays_when_a_user_goes() {
    let (c, t) = container(false);
    c.unlink(c.root(), b"d", false).unwrap();
    c.commit().unwrap();
    assert_eq!((found(&c, b"/t"), c.info(t).unwrap().links), (t, 1));
    editor(&c).set_attribute(c.root(), b"more", &[3; 5000], Existing::Any).unwrap();
    c.forget_all();
    assert_eq!((bytes(&c, found(&c, b"/e")), c.named_type(found(&c, b"/e"), None).unwrap()), (vec![7; 16], Some(t)));
}

#[test]
fn a_datatype_that_is_not_counted_stays_when_its_name_goes() {
    let (c, t) = container(false);
    c.unlink(c.root(), b"t", false).unwrap();
    c.unlink(c.root(), b"d", false).unwrap();
    editor(&c).set_attribute(c.root(), b"more", &[3; 5000], Existing::Any).unwrap();
    c.commit().unwrap();
    c.forget_all();
    let e = found(&c, b"/e");
    assert_eq!((bytes(&c, e), c.named_type(e, None).unwrap()), (vec![7; 16], Some(t)));
    assert_eq!(c.attribute(e, b"a").unwrap().unwrap().bytes, [5; 4]);
    c.remove_attribute(e, b"a").unwrap();
    // Another type takes its place: it is not needed, and stays as lost space.
    editor(&c).set_fact(e, "dataset", br#"{"dtype": "<i8", "shape": [2]}"#).unwrap();
    assert_eq!(bytes(&c, e).len(), 16);
}

#[test]
fn a_datatype_that_is_counted_goes_with_its_last_user() {
    let (c, t) = container(true);
    assert_eq!(c.info(t).unwrap().links, 4);
    c.unlink(c.root(), b"t", false).unwrap();
    c.unlink(c.root(), b"d", false).unwrap();
    c.commit().unwrap();
    assert_eq!(bytes(&c, found(&c, b"/e")), vec![7; 16]);
    editor(&c).set_fact(found(&c, b"/e"), "dataset", br#"{"dtype": "<i8", "shape": [2]}"#).unwrap();
    c.commit().unwrap();
    assert_eq!(c.info(t).unwrap().links, 1, "the attribute uses it");
    c.remove_attribute(found(&c, b"/e"), b"a").unwrap();
    c.forget_all();
    assert!(c.info(t).map_or(0, |info| info.links) == 0, "nothing uses it");
}

#[test]
fn datatypes_that_come_and_go_take_no_room() {
    let (c, _) = container(true);
    let round = || {
        let t = c.create_file(c.root(), b"u").unwrap();
        c.become_datatype(t, &parse_datatype("<i4").unwrap(), b"").unwrap();
        let id = c.create_file(c.root(), b"f").unwrap();
        editor(&c).set_fact(id, "dataset", br#"{"dtype": "<i4", "shape": [4]}"#).unwrap();
        c.use_datatype(id, None, b"/u").unwrap();
        c.unlink(c.root(), b"u", false).unwrap();
        c.unlink(c.root(), b"f", false).unwrap();
        end(&c)
    };
    let before = (0..5).map(|_| round()).max().unwrap();
    let after = (0..100).map(|_| round()).max().unwrap();
    assert!(after <= before, "{before} {after}");
}
