//! What stat tells: sizes, blocks, times, owners, modes.

use super::expected::{self, entries};
use super::mounted::{Mount, copy_fixture};
use super::support::Place;
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, SystemTime};

#[test]
fn blocks_are_the_storage_allocated() {
    for name in ["layouts_old", "layouts_new"] {
        let mount = Mount::fixture(name);
        for (path, facts) in entries(&expected::of(name)["facts"]) {
            let Some(storage) = facts["storage"].as_str() else { continue };
            let storage: u64 = storage.parse().unwrap();
            let blocks = mount.path(path).metadata().unwrap().blocks();
            // Programs take a file without blocks for one hole.
            let is_data = storage == 0 && blocks == 1 && mount.read(path).first().is_some_and(|b| *b != 0);
            assert!(blocks == storage.div_ceil(512) || is_data, "{name} {path}: {blocks} blocks, {storage} bytes");
        }
    }
}

/// `tar -S` takes a file without blocks for one hole, without asking: a fill value was lost.
#[test]
fn unwritten_elements_that_are_not_zero_have_a_block() {
    let mount = Mount::fixture("layouts_new");
    let mut seen = 0;
    for (path, facts) in entries(&expected::of("layouts_new")["facts"]) {
        if facts["storage"].as_str() == Some("0") && mount.read(path).first().is_some_and(|b| *b != 0) {
            seen += 1;
            assert_eq!(mount.path(path).metadata().unwrap().blocks(), 1, "{path}");
        }
    }
    assert!(seen > 0);
}

#[test]
fn block_size_suits_the_chunks() {
    let mount = Mount::fixture("layouts_new");
    let size = |path: &str| mount.path(path).metadata().unwrap().blksize();
    assert_eq!(size("contiguous"), 128 << 10);
    assert_eq!(size("fixed"), 4096, "small chunks");
    assert_eq!(size("sparse_rows"), 4 * 1024 * 4, "a chunk is 16 KiB");
}

#[test]
fn times_come_from_the_object_header() {
    for name in ["layouts_old", "layouts_new"] {
        let mount = Mount::fixture(name);
        let want = &expected::of(name)["times"]["with_times"];
        let meta = mount.path("with_times").metadata().unwrap();
        let time = |key: &str| want[key].as_i64().unwrap();
        assert_eq!(meta.ctime(), time("ctime"), "{name}");
        if name == "layouts_new" {
            assert_eq!((meta.mtime(), meta.atime()), (time("mtime"), time("atime")), "{name}");
        } else {
            // Version 1 headers have one time, which libhdf5 shows as the change time.
            assert_eq!(meta.mtime(), time("ctime"), "{name}");
        }
    }
}

#[test]
fn times_are_else_those_of_the_container() {
    let place = Place::new();
    let file = copy_fixture("layouts_old", place.dir());
    let time = SystemTime::UNIX_EPOCH + Duration::new(1_234_567_890, 123_456_789);
    std::fs::File::open(&file).unwrap().set_times(std::fs::FileTimes::new().set_modified(time)).unwrap();
    let mount = Mount::start(place, &file, &[]);
    assert_eq!(mount.path("contiguous").metadata().unwrap().modified().unwrap(), time);
    assert_eq!(mount.path("").metadata().unwrap().modified().unwrap(), time);
}

#[test]
fn hard_links_share_the_inode_and_are_counted() {
    let mount = Mount::fixture("links");
    let meta = |path: &str| mount.path(path).metadata().unwrap();
    let (ino, links) = (meta("data").ino(), meta("data").nlink());
    assert_eq!(links, 3);
    for path in ["group/hard", "group/sub/third", "alias/hard", "alias/sub/third"] {
        assert_eq!((meta(path).ino(), meta(path).nlink()), (ino, 3), "{path}");
    }
    assert_eq!(meta("single").nlink(), 1);
    assert_ne!(meta("single").ino(), ino);
}

#[test]
fn files_belong_to_the_caller_and_have_the_default_modes() {
    let mount = Mount::fixture("links");
    let me = std::fs::metadata(mount.place.dir()).unwrap();
    for (path, mode) in [("data", 0o100644), ("group", 0o040755), ("", 0o040755), ("named", 0o100644)] {
        let meta = mount.path(path).metadata().unwrap();
        assert_eq!((meta.mode(), meta.uid(), meta.gid()), (mode, me.uid(), me.gid()), "{path}");
    }
    assert_eq!(mount.path("soft/own").symlink_metadata().unwrap().mode(), 0o120777);
}

#[test]
fn owner_and_modes_can_be_chosen() {
    let mount = Mount::with("links", "", &["--uid=1234", "--gid=2345", "--file-mode=0400", "--dir-mode=0500"]);
    for (path, mode) in [("data", 0o100400), ("group", 0o040500)] {
        let meta = mount.path(path).metadata().unwrap();
        assert_eq!((meta.mode(), meta.uid(), meta.gid()), (mode, 1234, 2345), "{path}");
    }
}

#[test]
fn inode_numbers_are_the_same_in_the_next_mount() {
    let numbers = || {
        let mount = Mount::fixture("links");
        ["", "data", "group", "alias", "group/sub", "soft/own", "named"].map(|p| mount.path(p).symlink_metadata().unwrap().ino())
    };
    assert_eq!(numbers(), numbers());
}
