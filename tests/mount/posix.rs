//! What pjdfstest found: times of objects and directories, as POSIX wants them.

use super::mounted::Mount;
use super::support::{Place, h5dir, run};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A new file, mounted for writing.
fn new(libver: &str) -> Mount {
    let place = Place::new();
    let file = place.dir().join("new.h5");
    assert_eq!(run(&mut h5dir(&["create", "--libver", libver, file.to_str().unwrap()])).0, 0);
    Mount::start(place, &file, &["--read-write"])
}

#[derive(Debug, Clone, Copy, PartialEq, PartialOrd)]
struct Times {
    modified: (i64, i64),
    changed: (i64, i64),
}

fn times(path: &Path) -> Times {
    let m = fs::symlink_metadata(path).unwrap();
    Times { modified: (m.mtime(), m.mtime_nsec()), changed: (m.ctime(), m.ctime_nsec()) }
}

/// Does `f`; the times of `path` before it and, perhaps by another name, after it.
fn around(path: &Path, after: &Path, f: impl FnOnce()) -> (Times, Times) {
    let before = times(path);
    std::thread::sleep(Duration::from_millis(20));
    f();
    (before, times(after))
}

#[test]
fn names_change_the_times_of_what_has_them_and_of_where_they_are() {
    for libver in ["v110", "earliest"] {
        let mount = new(libver);
        let path = |p: &str| mount.path(p);
        fs::create_dir(path("d")).unwrap();
        fs::write(path("d/f"), b"text").unwrap();
        let changed_only = |(a, b): (Times, Times)| assert!(b.changed > a.changed && b.modified == a.modified, "{libver}: {a:?} {b:?}");
        let both = |(a, b): (Times, Times)| assert!(b.changed > a.changed && b.modified > a.modified, "{libver}: {a:?} {b:?}");
        changed_only(around(&path("d/f"), &path("d/f"), || fs::hard_link(path("d/f"), path("d/g")).unwrap()));
        changed_only(around(&path("d/f"), &path("d/f"), || fs::remove_file(path("d/g")).unwrap()));
        changed_only(around(&path("d/f"), &path("d/h"), || fs::rename(path("d/f"), path("d/h")).unwrap()));
        changed_only(around(&path("d"), &path("e"), || fs::rename(path("d"), path("e")).unwrap()));
        both(around(&path("e"), &path("e"), || fs::create_dir(path("e/inner")).unwrap()));
        both(around(&path("e"), &path("e"), || fs::remove_dir(path("e/inner")).unwrap()));
        both(around(&path("e"), &path("e"), || std::os::unix::fs::symlink("h", path("e/soft")).unwrap()));
        both(around(&path("e"), &path("e"), || fs::remove_file(path("e/soft")).unwrap()));
        both(around(&path("e/h"), &path("e/h"), || {
            fs::OpenOptions::new().write(true).open(path("e/h")).unwrap().set_len(100).unwrap();
        }));
        // One name put over another of two: what is left of the object was changed.
        fs::write(path("x"), b"1").unwrap();
        fs::write(path("y"), b"2").unwrap();
        fs::hard_link(path("y"), path("z")).unwrap();
        changed_only(around(&path("z"), &path("z"), || fs::rename(path("x"), path("y")).unwrap()));
    }
}

#[test]
fn times_that_are_set_are_told_exactly_and_kept_in_seconds() {
    let mut mount = new("v110");
    let file = mount.path("f");
    fs::write(&file, b"text").unwrap();
    let at = |seconds, nanos| UNIX_EPOCH + Duration::new(seconds, nanos);
    let (accessed, modified) = (at(1_900_000_000, 100_000_002), at(2_200_000_000, 300_000_004));
    let set = fs::FileTimes::new().set_accessed(accessed).set_modified(modified);
    fs::OpenOptions::new().write(true).open(&file).unwrap().set_times(set).unwrap();
    let told = |m: &fs::Metadata| -> [SystemTime; 2] { [m.accessed().unwrap(), m.modified().unwrap()] };
    assert_eq!(told(&fs::metadata(&file).unwrap()), [accessed, modified]);
    assert_eq!(mount.terminate(), Some(0));
    let place = std::mem::replace(&mut mount.place, Place::new());
    let container = place.dir().join("new.h5");
    let mount = Mount::start(place, &container, &["--read-write"]);
    assert_eq!(told(&fs::metadata(mount.path("f")).unwrap()), [at(1_900_000_000, 0), at(2_200_000_000, 0)]);
}
