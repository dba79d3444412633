//! Named datatypes that datasets and attributes of containers refer to.

use super::access::IodConnector;
use super::tests::{empty, errno, open, spec};
use crate::base::Error;
use crate::connector::edit::{Edit, Elements};
use crate::connector::{Connector, DatasetSpec, LinkTarget, NewValue, ObjectId, Shape};
use crate::dataset::create::is_same_datatype;
use crate::format::object_header::{SharedMessage, kind};
use crate::present::parse::parse_datatype;

const TYPE: &str = r#"{"class":"H5T_COMPOUND","fields":[{"name":"x","type":"<f8"},{"name":"n","type":"<i4"}]}"#;

fn named(c: &IodConnector, name: &[u8], dtype: &str) -> ObjectId {
    let id = c.create_file(c.root(), name).unwrap();
    c.become_datatype(id, &parse_datatype(dtype).unwrap(), b"").unwrap();
    id
}

fn dataset(c: &IodConnector, name: &[u8], dtype: &str) -> ObjectId {
    c.create_dataset(c.root(), name, &spec(dtype, &[3])).unwrap()
}

fn attribute(c: &IodConnector, id: ObjectId, name: &[u8], dtype: &str) {
    let datatype = parse_datatype(dtype).unwrap();
    let bytes = vec![5; datatype.element_size() as usize];
    c.set_attribute(id, name, &NewValue::plain(datatype, Shape::Scalar, bytes)).unwrap();
}

fn found(c: &IodConnector, path: &[u8]) -> ObjectId {
    c.resolve(c.root(), path).unwrap().unwrap()
}

/// The datatype is counted for each user, is read through it, and goes with the last one.
#[test]
fn a_named_datatype_stays_as_long_as_it_is_used() {
    let store = empty();
    let c = open(&store);
    let t = named(&c, b"t", TYPE);
    let (d, e) = (dataset(&c, b"d", TYPE), dataset(&c, b"e", TYPE));
    attribute(&c, d, b"a", TYPE);
    attribute(&c, c.root(), b"of the root", TYPE);
    for (id, name) in [(d, None), (d, Some(b"a".as_slice())), (c.root(), Some(b"of the root")), (e, None)] {
        c.use_datatype(id, name, b"/t").unwrap();
        c.use_datatype(id, name, b"/t").unwrap();
        assert_eq!(c.named_type(id, name).unwrap(), Some(t));
    }
    assert_eq!(c.info(t).unwrap().links, 5);
    assert!(c.attribute(d, b"a").unwrap().unwrap().committed);
    Edit::write(&*c, d, 0, &[9; 36]).unwrap();
    c.close().unwrap();

    let c = open(&store);
    let (t, d) = (found(&c, b"/t"), found(&c, b"/d"));
    assert_eq!(c.path_of(c.named_type(d, None).unwrap().unwrap()).unwrap(), b"/t");
    assert!(is_same_datatype(&Connector::dataset(&*c, d).unwrap().datatype, &parse_datatype(TYPE).unwrap()));
    // In place of the datatype stands a reference to it.
    let stored = c.states.shown().header(d.serial(), kind::DATATYPE).unwrap().unwrap();
    assert_eq!(stored, SharedMessage::encode_object(t.address, &crate::format::Context::DEFAULT));
    // Without its name it stays for its users.
    c.unlink(c.root(), b"t", false).unwrap();
    assert_eq!((c.info(t).unwrap().links, super::tests::bytes(&*c, d)), (4, vec![9; 36]));
    assert_eq!((c.named_type(d, None).unwrap(), c.path_of(t)), (Some(t), None));
    c.remove_attribute(c.root(), b"of the root").unwrap();
    c.unlink(c.root(), b"d", false).unwrap();
    assert_eq!(c.info(t).unwrap().links, 1);
    c.close().unwrap();

    let c = open(&store);
    let t = c.named_type(found(&c, b"/e"), None).unwrap().unwrap();
    c.change_dataset(found(&c, b"/e"), spec("<i2", &[3]), Elements::Dropped).unwrap();
    assert!(c.info(t).is_err(), "the last user has another type");
}

#[test]
fn a_change_that_keeps_the_type_keeps_its_name() {
    let store = empty();
    let c = open(&store);
    // The message has another version than the type that is parsed.
    let (u, e) = (named(&c, b"u", TYPE), dataset(&c, b"e", TYPE));
    c.use_datatype(e, None, b"/u").unwrap();
    c.change_dataset(e, spec(TYPE, &[3]), Elements::Kept).unwrap();
    assert_eq!(c.named_type(e, None).unwrap(), Some(u));
    let (t, d) = (named(&c, b"t", "<i4"), dataset(&c, b"d", "<i4"));
    attribute(&c, d, b"a", "<i4");
    c.use_datatype(d, None, b"/t").unwrap();
    c.use_datatype(d, Some(b"a"), b"t").unwrap();
    c.change_dataset(d, DatasetSpec { maxshape: Some(vec![None]), ..DatasetSpec::default() }, Elements::Kept).unwrap();
    c.change_dataset(d, spec("<i4", &[3]), Elements::Kept).unwrap();
    c.set_attribute_bytes(d, b"a", &[1, 2, 3, 4]).unwrap();
    attribute(&c, d, b"a", "<i4");
    c.rename_attribute(d, b"a", b"b", false).unwrap();
    assert_eq!((c.named_type(d, None).unwrap(), c.named_type(d, Some(b"b")).unwrap()), (Some(t), Some(t)));
    assert_eq!(c.info(t).unwrap().links, 3);
    attribute(&c, d, b"b", "<i8");
    assert_eq!((c.named_type(d, Some(b"b")).unwrap(), c.info(t).unwrap().links), (None, 2));
}

/// What is copied before its type gets it by the next commit, also through a new name.
#[test]
fn a_datatype_that_is_made_later_is_referred_to_by_the_next_commit() {
    let store = empty();
    let c = open(&store);
    let d = dataset(&c, b"d", "<i4");
    attribute(&c, d, b"a", "<i4");
    attribute(&c, d, b"gone", "<i4");
    for name in [None, Some(b"a".as_slice()), Some(b"gone")] {
        c.use_datatype(d, name, b"/types/t").unwrap();
    }
    c.rename_attribute(d, b"a", b"b", false).unwrap();
    c.remove_attribute(d, b"gone").unwrap();
    Edit::commit(&*c).unwrap();
    assert_eq!(c.named_type(d, None).unwrap(), None);
    let group = c.create_group(c.root(), b"types").unwrap();
    let t = named(&c, b"t", "<i4");
    c.rename((c.root(), b"t"), (group, b"t"), crate::connector::edit::Taken::Refuse).unwrap();
    Edit::commit(&*c).unwrap();
    assert_eq!((c.named_type(d, None).unwrap(), c.named_type(d, Some(b"b")).unwrap()), (Some(t), Some(t)));
    assert_eq!(c.info(t).unwrap().links, 3);
}

#[test]
fn other_types_and_objects_are_refused() {
    let store = empty();
    let c = open(&store);
    let (t, d) = (named(&c, b"t", "<i4"), dataset(&c, b"d", "<i8"));
    for path in [b"/t".as_slice(), b"/d", b"/"] {
        assert_eq!(errno(&c.use_datatype(d, None, path)), libc::EINVAL, "{}", String::from_utf8_lossy(path));
    }
    c.use_datatype(d, Some(b"a"), b"/t").unwrap();
    assert_eq!((c.named_type(d, None).unwrap(), c.info(t).unwrap().links), (None, 1));
}

/// A user of one writer, and the removal by another one, conflict; two users are both counted.
#[test]
fn users_of_two_writers_are_both_counted() {
    let store = empty();
    let c = open(&store);
    named(&c, b"t", "<i4");
    for name in ["d", "e", "f"] {
        dataset(&c, name.as_bytes(), "<i4");
    }
    c.close().unwrap();
    let (one, other) = (open(&store), open(&store));
    one.use_datatype(found(&one, b"/d"), None, b"/t").unwrap();
    other.use_datatype(found(&other, b"/e"), None, b"/t").unwrap();
    Edit::commit(&*one).unwrap();
    Edit::commit(&*other).unwrap();
    assert_eq!(other.info(found(&other, b"/t")).unwrap().links, 3);
    other.close().unwrap();

    let (one, other) = (open(&store), open(&store));
    for name in ["d", "e", "t"] {
        one.unlink(one.root(), name.as_bytes(), false).unwrap();
    }
    other.use_datatype(found(&other, b"/f"), None, b"/t").unwrap();
    Edit::commit(&*one).unwrap();
    let refused = Edit::commit(&*other);
    assert!(refused.is_err_and(|e| e.to_string().contains("removed the object")), "the datatype is gone");
}

/// References of a damaged container lead to errors, and to no recursion.
#[test]
fn references_to_what_is_no_datatype_are_errors() {
    let store = empty();
    let c = open(&store);
    let (t, d) = (named(&c, b"t", "<i4"), dataset(&c, b"d", "<i4"));
    let refer = |id: ObjectId, to: u64| {
        let body = SharedMessage::encode_object(crate::base::Address(to), &crate::format::Context::DEFAULT);
        c.operate(|state| state.put_header(id.serial(), kind::DATATYPE, &body)).unwrap();
        c.states.next().all_changed();
    };
    for to in [0, 12345, d.serial(), u64::MAX] {
        refer(d, to);
        assert!(matches!(Connector::dataset(&*c, d).map(drop), Err(Error::Corrupt { .. })), "{to}");
    }
    refer(d, t.serial());
    refer(t, t.serial());
    assert!(Connector::dataset(&*c, d).is_err() && c.datatype(t).is_err());
    c.unlink(c.root(), b"d", false).unwrap();
    assert!(!matches!(c.lookup(c.root(), b"d").unwrap().map(|l| l.target), Some(LinkTarget::Hard(_))));
}
