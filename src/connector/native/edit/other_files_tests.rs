//! Writes through virtual datasets to other files: what is durable, who has the files open, what is
//! recovered. That the right elements are written is compared with libhdf5 by
//! `tests/oracle/virtual_files_sweep.py`.

use super::super::create::create;
use super::super::external::Neighbours;
use super::super::recover::tests::{interrupted, write_private};
use super::super::recover::{open_for_reading, open_to_change};
use super::super::tests::{editor, options};
use super::super::{NativeConnector, Options};
use crate::base::{Error, Result};
use crate::connector::edit::Edit;
use crate::connector::new_file::NewFile;
use crate::connector::{Connector, Form, ObjectId};
use crate::file::confined::ConfinedDir;
use crate::file::host_file::HostFile;
use std::path::Path;
use std::sync::Arc;

/// Opens `path` for changes, and other files in its directory.
fn open(path: &Path) -> Result<Arc<NativeConnector>> {
    let host = HostFile::open(path).unwrap();
    let root = ConfinedDir::new(host.directory().clone()).unwrap();
    let options = Options { neighbours: Arc::new(Neighbours::new(Some(root)).written(true)), ..options() };
    NativeConnector::open_writable(&host, open_to_change(&host)?, path.parent().unwrap().to_owned(), options)
}

/// Makes a file with a dataset of eight bytes, and of virtual ones over the files `over`.
fn make(dir: &Path, name: &str, over: &[&str]) {
    let path = dir.join(name);
    create(&path, &NewFile::default()).unwrap();
    let c = open(&path).unwrap();
    let x = c.create_file(c.root(), b"x").unwrap();
    c.write(x, 0, b"ABCDEFGH").unwrap();
    for source in over {
        let v = c.create_file(c.root(), format!("over {source}").as_bytes()).unwrap();
        let fact = format!(
            r#"{{"dtype": "u1", "shape": [16], "layout": "virtual", "virtual": [
                {{"source": ".:/x", "at": "0:8"}}, {{"source": "{source}:/x", "at": "8:16"}}]}}"#
        );
        editor(&c).set_fact(v, "dataset", fact.as_bytes()).unwrap();
    }
    c.close().unwrap();
}

fn folder() -> (tempfile::TempDir, std::path::PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().canonicalize().unwrap();
    (dir, path)
}

fn named(c: &NativeConnector, path: &str) -> ObjectId {
    c.resolve(c.root(), path.as_bytes()).unwrap().unwrap()
}

fn read(c: &NativeConnector, id: ObjectId) -> Vec<u8> {
    let content = c.content(id, Form::Main).unwrap();
    let mut bytes = vec![0; content.size().unwrap() as usize];
    content.read(0, &mut bytes).unwrap();
    bytes
}

/// The elements of the dataset `x` of a file, as it is on disk.
fn stored(path: &Path) -> Vec<u8> {
    let host = HostFile::open(path).unwrap();
    let c = NativeConnector::open(open_for_reading(&host).unwrap(), path.parent().unwrap().to_owned(), options()).unwrap();
    read(&c, named(&c, "/x"))
}

fn errno(done: Result<()>) -> i32 {
    match done {
        Err(Error::Refused { errno, .. }) => errno,
        done => panic!("{done:?}"),
    }
}

#[test]
fn a_commit_makes_the_other_files_durable() {
    let (_dir, dir) = folder();
    make(&dir, "s.h5", &[]);
    make(&dir, "m.h5", &["s.h5"]);
    let c = open(&dir.join("m.h5")).unwrap();
    let v = named(&c, "/over s.h5");
    c.hold(v);
    let journal = dir.join("s.h5.h5dir-journal");
    assert!(read(&c, v) == b"ABCDEFGHABCDEFGH" && !journal.exists(), "reading opens nothing for writing");
    c.write(v, 4, b"12345678").unwrap();
    assert_eq!(read(&c, v), b"ABCD12345678EFGH");
    assert!(journal.exists());
    c.commit().unwrap();
    assert_eq!((stored(&dir.join("m.h5")), stored(&dir.join("s.h5"))), (b"ABCD1234".to_vec(), b"5678EFGH".to_vec()));
    assert_eq!(c.write_error(v), Ok(()));
    // Nothing is lost by closing the other file, and it is open again when it is written again.
    c.release(v);
    assert!(!journal.exists() && open(&dir.join("s.h5")).is_ok());
    assert_eq!(read(&c, v), b"ABCD12345678EFGH");
    c.write(v, 15, b"!").unwrap();
    assert_eq!(read(&c, v), b"ABCD12345678EFG!");
    c.close().unwrap();
    assert_eq!(stored(&dir.join("s.h5")), b"5678EFG!");
    assert!(!journal.exists());
}

#[test]
fn two_files_with_virtual_datasets_of_each_other_wait_for_nothing() {
    let (_dir, dir) = folder();
    make(&dir, "a.h5", &["b.h5"]);
    make(&dir, "b.h5", &["a.h5"]);
    let (a, b) = (open(&dir.join("a.h5")).unwrap(), open(&dir.join("b.h5")).unwrap());
    for (c, path) in [(&a, "/over b.h5"), (&b, "/over a.h5")] {
        assert_eq!(errno(c.write(named(c, path), 0, &[7; 16])), libc::EBUSY);
        assert_eq!(read(c, named(c, "/x")), b"ABCDEFGH", "a refused write writes nothing");
    }
    b.close().unwrap();
    drop(b);
    a.write(named(&a, "/over b.h5"), 0, &[7; 16]).unwrap();
    a.close().unwrap();
    assert_eq!(stored(&dir.join("b.h5")), [7; 8]);
}

/// Without locks (`HDF5_USE_FILE_LOCKING`) the lock does not show that.
#[test]
fn a_file_that_is_written_as_a_source_is_not_opened_for_writing_again() {
    let (_dir, dir) = folder();
    make(&dir, "s.h5", &[]);
    make(&dir, "m.h5", &["s.h5"]);
    let c = open(&dir.join("m.h5")).unwrap();
    c.write(named(&c, "/over s.h5"), 8, &[1]).unwrap();
    let host = HostFile::open(&dir.join("s.h5")).unwrap();
    let opened = NativeConnector::open_writable(&host, host.open_writable().unwrap(), dir.clone(), options());
    assert_eq!(errno(opened.map(drop)), libc::EBUSY);
    c.close().unwrap();
}

#[test]
fn a_source_that_cannot_be_committed_is_reported_to_those_who_wrote() {
    let (_dir, dir) = folder();
    make(&dir, "s.h5", &[]);
    make(&dir, "m.h5", &["s.h5"]);
    let c = open(&dir.join("m.h5")).unwrap();
    let (x, v) = (named(&c, "/x"), named(&c, "/over s.h5"));
    c.hold(v);
    c.write(v, 0, &[7; 16]).unwrap();
    // Another file takes the name: what was written has no journal there.
    make(&dir, "other.h5", &[]);
    std::fs::rename(dir.join("other.h5"), dir.join("s.h5")).unwrap();
    c.commit().unwrap();
    let reason = c.write_error(v).unwrap_err().to_string();
    assert!(reason.contains("s.h5"), "{reason}");
    assert_eq!((c.write_error(x), stored(&dir.join("m.h5"))), (Ok(()), vec![7; 8]), "the mounted file goes on");
    assert_eq!(errno(c.write(v, 0, &[8; 16])), libc::EIO);
    c.write(x, 0, &[9]).unwrap();
    c.release(v);
    c.commit().unwrap();
    // The file that has the name now.
    c.hold(v);
    c.write(v, 0, &[8; 16]).unwrap();
    c.close().unwrap();
    assert_eq!((stored(&dir.join("m.h5")), stored(&dir.join("s.h5"))), (vec![8; 8], vec![8; 8]));
}

#[test]
fn an_error_that_no_caller_got_is_that_of_closing() {
    let (_dir, dir) = folder();
    make(&dir, "s.h5", &[]);
    make(&dir, "m.h5", &["s.h5"]);
    let c = open(&dir.join("m.h5")).unwrap();
    c.write(named(&c, "/over s.h5"), 0, &[7; 16]).unwrap();
    std::fs::remove_file(dir.join("s.h5")).unwrap();
    assert!(c.close().unwrap_err().to_string().contains("s.h5"));
    assert_eq!(stored(&dir.join("m.h5")), [7; 8]);
}

#[test]
fn an_interrupted_commit_of_a_source_is_shown_and_the_first_write_recovers_it() {
    let (_dir, dir) = folder();
    make(&dir, "s.h5", &[]);
    make(&dir, "m.h5", &["s.h5"]);
    let source = dir.join("s.h5");
    let (marked, journal) = interrupted(&std::fs::read(&source).unwrap());
    std::fs::write(&source, &marked).unwrap();
    write_private(&dir.join("s.h5.h5dir-journal"), &journal.encode());
    let c = open(&dir.join("m.h5")).unwrap();
    let v = named(&c, "/over s.h5");
    assert_eq!(read(&c, v), b"ABCDEFGHABCDEFGH");
    assert!(std::fs::read(&source).unwrap() == marked, "reading recovers nothing");
    c.write(v, 8, b"recovers").unwrap();
    assert_eq!(read(&c, v), b"ABCDEFGHrecovers");
    c.close().unwrap();
    assert_eq!(stored(&source), b"recovers");
    assert!(!dir.join("s.h5.h5dir-journal").exists());
}

/// Each write is one value for both files: a reader sees it in each of them as a whole, and writers
/// of the mounted file, readers and commits get on.
#[test]
fn readers_writers_and_commits_get_on_together() {
    let (_dir, dir) = folder();
    make(&dir, "s.h5", &[]);
    make(&dir, "m.h5", &["s.h5"]);
    let c = open(&dir.join("m.h5")).unwrap();
    let (v, own) = (named(&c, "/over s.h5"), c.create_file(c.root(), b"own").unwrap());
    c.write(v, 0, &[1; 16]).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| (0..200u8).for_each(|n| c.write(v, 0, &[n; 16]).unwrap()));
        scope.spawn(|| (0..200u8).for_each(|n| c.write(own, 0, &[n; 64]).unwrap()));
        scope.spawn(|| (0..20).for_each(|_| c.commit().unwrap()));
        scope.spawn(|| {
            for _ in 0..200 {
                let bytes = read(&c, v);
                assert!(bytes.chunks(8).all(|part| part.iter().all(|b| *b == part[0])), "{bytes:?}");
            }
        });
    });
    c.close().unwrap();
    assert_eq!(stored(&dir.join("s.h5")), [199; 8]);
}
