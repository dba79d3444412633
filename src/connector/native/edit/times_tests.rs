//! Which times a file keeps.

use super::write_errors_tests::{empty, find, open};
use crate::connector::edit::Edit;
use crate::connector::{Connector, Form};

/// Long ago.
const SET: u32 = 946_684_800;

#[test]
fn what_is_written_after_the_time_was_set_sets_it_again_within_the_same_second() {
    let file = empty();
    let c = open(&file);
    for (name, written_before) in [(&b"a"[..], false), (b"b", true)] {
        let id = c.create_file(c.root(), name).unwrap();
        if written_before {
            c.write(id, 0, b"one").unwrap();
        }
        assert!(c.set_mtime(id, SET).unwrap());
        assert!(c.info(id).unwrap().times.contains(&Some(SET)));
        c.write(id, 0, b"two").unwrap();
    }
    let kept = c.create_file(c.root(), b"kept").unwrap();
    c.write(kept, 0, b"three").unwrap();
    c.set_mtime(kept, SET).unwrap();
    c.close().unwrap();
    drop(c);
    let c = open(&file);
    for name in [b"a", b"b"] {
        let id = find(&c, name);
        assert!(!c.info(id).unwrap().times.contains(&Some(SET)), "{name:?}");
        assert_eq!(c.content(id, Form::Main).unwrap().size().unwrap(), 3);
    }
    assert!(c.info(find(&c, b"kept")).unwrap().times.contains(&Some(SET)), "chunks that are written out later change no time");
}
