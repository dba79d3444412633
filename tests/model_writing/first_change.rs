//! What the superblock extension tells of a file that is changed: a cache image, free space, shared messages.

use super::side::{Kept, connect};
use super::start;
use h5dir::base::{Address, Error};
use h5dir::connector::edit::Edit;
use h5dir::connector::native::NativeConnector;
use h5dir::connector::{Connector, Datatype, NewValue, ObjectId, Shape};
use h5dir::file::memory::{GrowingFile, MemoryFile};
use h5dir::format::message::file_space_info::FileSpaceInfo;
use h5dir::format::object_header::kind;
use h5dir::meta::{ObjectHeader, Store};
use h5dir::present::{Editor, Existing};
use std::sync::Arc;

const FILES: [&str; 10] = [
    "image_latest",
    "image_v110",
    "paged_latest",
    "shared_earliest",
    "shared_latest",
    "persist",
    "pages",
    "pages_forget",
    "pages_image",
    "none",
];

/// The file after `operations` and an orderly end.
fn session(bytes: Vec<u8>, operations: impl FnOnce(&NativeConnector, &dyn Edit, &GrowingFile)) -> Vec<u8> {
    let file = Arc::new(GrowingFile::new(bytes));
    let native = connect(&file, &Kept::default());
    let edit = Connector::edit(&*native).unwrap();
    operations(&native, edit, &file);
    edit.close().unwrap();
    file.bytes()
}

/// What the extension tells: whether there is an image; free space; the end of file.
fn told(bytes: &[u8]) -> (bool, Option<FileSpaceInfo>, Address) {
    let store = Store::open(Arc::new(MemoryFile::new(bytes.to_vec()))).unwrap();
    let extension = ObjectHeader::load(&store, store.superblock().extension).unwrap();
    let info = extension.find(kind::FILE_SPACE_INFO).map(|m| FileSpaceInfo::decode(&m.body, Address(0), store.ctx()).unwrap());
    let eof = store.superblock().eof.0;
    assert!(eof <= bytes.len() as u64);
    (extension.find(kind::CACHE_IMAGE).is_some(), info, Address(eof - store.base()))
}

/// A session without changes leaves a file as it was, image and managers included; so does one whose operations fail.
#[test]
fn what_changes_nothing_leaves_all_as_it_was() {
    for name in FILES {
        let before = start::file(name);
        let after = session(before.clone(), |native, edit, _| {
            let root = native.root();
            let names = |n: &NativeConnector| {
                let mut all = Vec::new();
                n.list(n.root(), 0, &mut |l, _| {
                    all.push(l.name);
                    std::ops::ControlFlow::Continue(())
                })
                .unwrap();
                all
            };
            let listed = names(native);
            let taken = listed[0].clone();
            assert!(matches!(edit.create_group(root, &taken), Err(Error::Refused { errno: libc::EEXIST, .. })));
            assert!(edit.unlink(root, b"not there", false).is_err());
            assert_eq!(names(native), listed);
            edit.commit().unwrap();
        });
        assert!(before == after, "{name}");
    }
}

/// With the first change the image goes and managers are named no more. A file whose free space persists has others when it
/// is closed, which lie past the end of file that is told.
#[test]
fn the_first_change_makes_the_extension_right() {
    for name in FILES {
        let before = start::file(name);
        let (image, old, _) = told(&before);
        assert_eq!(image, name.contains("image"), "{name}");
        let check = |bytes: &[u8], closed: bool| {
            let (image, info, end) = told(bytes);
            assert!(!image, "{name}");
            assert_eq!(info.is_some(), old.is_some());
            let Some(info) = info else { return };
            let has_managers = info.managers.iter().any(|m| m.is_defined());
            match (info.persist && closed, has_managers) {
                (true, true) => assert!(info.managers.iter().all(|m| !m.is_defined() || *m >= info.eoa) && info.eoa < end, "{name}"),
                (true, false) => assert_eq!(info.eoa, end, "{name}"),
                (false, _) => assert!(!has_managers && info.eoa == Address::UNDEF, "{name}"),
            }
            assert!(info.pages().is_none_or(|page| end.0 % page == 0), "{name}: {end}");
        };
        let after = session(before, |native, edit, file| {
            Editor { connector: native, edit }.set_attribute(native.root(), b"new", b"value", Existing::Any).unwrap();
            edit.commit().unwrap();
            check(&file.bytes(), false);
        });
        check(&after, true);
        let again = session(after, |native, edit, _| {
            Editor { connector: native, edit }.set_attribute(native.root(), b"new", b"other", Existing::Any).unwrap()
        });
        check(&again, true);
    }
}

/// A string of fixed length: variable-length ones take a heap collection.
fn fixed(text: &[u8]) -> NewValue {
    NewValue::plain(Datatype::utf8(text.len() as u32), Shape::Scalar, text.to_vec())
}

/// What the managers said is free is used, from the second commit on.
#[test]
fn remembered_free_space_is_used() {
    // What the first commit itself takes comes from the end.
    for (name, slack) in [("persist", 400), ("pages", 512), ("pages_image", 512)] {
        let before = start::file(name);
        let length = before.len().next_multiple_of(512);
        let after = session(before, |native, edit, _| {
            let root = native.root();
            edit.set_attribute(root, b"new", &fixed(b"value")).unwrap();
            edit.commit().unwrap();
            let id: ObjectId = edit.create_file(root, b"fresh").unwrap();
            edit.set_attribute(id, b"user.x", &fixed(&[b'y'; 300])).unwrap();
        });
        // The managers at the end are not counted.
        let (_, info, end) = told(&after);
        let used = info.unwrap().eoa.0 as usize;
        assert!(used <= end.0 as usize && used <= length + slack, "{name}: {length} bytes, then {used}");
    }
}

/// Damage anywhere in such a file: errors, no panic.
#[test]
fn damaged_files_are_no_danger() {
    for (name, step) in [("persist", 41), ("pages_image", 53), ("shared_latest", 47)] {
        let good = start::file(name);
        for at in (0..good.len()).step_by(step) {
            for mask in [0xffu8, 0x04] {
                let mut bad = good.clone();
                bad[at] ^= mask;
                let file = Arc::new(GrowingFile::new(bad));
                let place = Box::new(Kept::default());
                let opened = NativeConnector::writable_over(file, place, "/".into(), start::options());
                let Ok(native) = opened else { continue };
                let edit = Connector::edit(&*native).unwrap();
                let _ = Editor { connector: &*native, edit }.set_attribute(native.root(), b"new", b"value", Existing::Any);
                let _ = edit.unlink(native.root(), b"d", false);
                let _ = edit.unlink(native.root(), b"d0", false);
                let _ = edit.close();
            }
        }
    }
}
