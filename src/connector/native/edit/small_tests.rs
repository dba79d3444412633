//! Small files: their first bytes are in place at once.

use super::super::NativeConnector;
use super::fault_tests::{bytes, use_reserved, writable};
use crate::base::Error;
use crate::connector::edit::Edit;
use crate::connector::native::tests::editor;
use crate::connector::{Connector, Form, ObjectId};
use crate::file::fault::{Fault, LENGTH, Plan, UNSURE, WRITE};
use std::sync::Arc;

fn container() -> Arc<NativeConnector> {
    writable(&Plan::new(0, 0, 0, Fault::Short))
}

fn file(c: &NativeConnector) -> ObjectId {
    c.create_file(c.root(), b"f").unwrap()
}

fn allocated(c: &NativeConnector, id: ObjectId) -> u64 {
    c.content(id, Form::Main).unwrap().allocated().unwrap()
}

fn waits(c: &NativeConnector) -> bool {
    !c.environment().dirty.is_empty()
}

#[test]
fn the_first_bytes_do_not_wait_as_a_changed_chunk() {
    for (offset, len) in [(0, 1), (0, 480), (100, 7), (479, 1)] {
        let c = container();
        let id = file(&c);
        c.write(id, offset, &vec![7; len]).unwrap();
        let mut want = vec![0; offset as usize];
        want.resize(offset as usize + len, 7);
        assert_eq!((waits(&c), bytes(&c, id), allocated(&c, id)), (false, want.clone(), 480));
        c.commit().unwrap();
        c.environment().forget(super::key(id));
        assert_eq!(bytes(&c, id), want);
    }
    let c = container();
    let id = file(&c);
    c.write(id, 480, &[7]).unwrap();
    assert!(waits(&c), "it is no small file");
}

#[test]
fn what_comes_after_the_first_bytes() {
    let c = container();
    let id = file(&c);
    c.write(id, 0, b"abc").unwrap();
    c.write(id, 3, b"de").unwrap();
    c.write(id, 1, b"X").unwrap();
    assert_eq!(bytes(&c, id), b"aXcde");
    c.set_size(id, 0).unwrap();
    assert_eq!((bytes(&c, id), allocated(&c, id)), (Vec::new(), 0));
    // No bytes of the longer file are read.
    c.write(id, 5, b"z").unwrap();
    assert_eq!(bytes(&c, id), b"\0\0\0\0\0z");
    c.write(id, 6, &[1; 1000]).unwrap();
    c.commit().unwrap();
    assert_eq!(bytes(&c, id), [&b"\0\0\0\0\0z"[..], &[1; 1000]].concat());
    editor(&c).set_fact(id, "dtype", b"<u2").unwrap();
    assert_eq!(bytes(&c, id).len(), 1006);
}

#[test]
fn first_bytes_that_find_no_room_leave_an_empty_file() {
    let mut failed = 0;
    for kinds in [WRITE, LENGTH, WRITE | UNSURE] {
        for n in 0..100 {
            let plan = Plan::new(kinds, n, u32::MAX, Fault::Errno(libc::ENOSPC));
            let c = writable(&plan);
            let id = file(&c);
            use_reserved(&c);
            plan.pause(false);
            let done = c.write(id, 0, b"first");
            plan.pause(true);
            if !plan.has_struck() {
                break;
            }
            if done.is_err() {
                failed += 1;
                assert_eq!((bytes(&c, id), allocated(&c, id)), (Vec::new(), 0));
            }
            c.write(id, 0, b"again").unwrap();
            c.commit().unwrap();
            assert_eq!(bytes(&c, id), b"again");
        }
    }
    assert!(failed > 0);
}

#[test]
fn on_a_full_disk_small_files_find_the_room_of_what_was_removed_before() {
    let plan = Plan::new(LENGTH, 0, u32::MAX, Fault::Errno(libc::ENOSPC));
    let c = writable(&plan);
    let old = c.create_file(c.root(), b"old").unwrap();
    c.write(old, 0, &[1; 10_000]).unwrap();
    c.commit().unwrap();
    c.unlink(c.root(), b"old", false).unwrap();
    plan.pause(false);
    let small = |i: usize| {
        let id = c.create_file(c.root(), format!("x{i}").as_bytes())?;
        c.write(id, 0, b"bytes")?;
        assert_eq!(bytes(&c, id), b"bytes");
        Ok::<_, Error>(())
    };
    let made = (0..500).take_while(|i| small(*i).is_ok()).count();
    // The extent of the file holds some of them, too.
    assert!(plan.has_struck() && (20..500).contains(&made), "{made} files");
}
