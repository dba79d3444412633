//! Content of datasets: every datatype, layout and chunk index, and what was never written.

use super::expected::{self, bytes, entries};
use super::mounted::{Mount, shell};
use std::os::unix::fs::{FileExt, MetadataExt};

/// Every file of a fixture has the bytes that libhdf5 was given.
fn check(name: &str) {
    let mount = Mount::fixture(name);
    let want = expected::of(name);
    for (path, data) in entries(&want["files"]) {
        let got = mount.read(path);
        assert_eq!(mount.path(path).metadata().unwrap().len(), got.len() as u64, "{path}: st_size");
        match data.as_str() {
            Some(hex) => assert_eq!(got, bytes(hex), "{path}"),
            None => {
                assert_eq!(got.len() as u64, data["size"].as_u64().unwrap(), "{path}");
                let sum = shell(mount.place.dir(), &format!("sha256sum < mnt/{path}"));
                assert_eq!(sum.split(' ').next(), data["sha256"].as_str(), "{path}");
            }
        }
    }
    assert_eq!(mount.log(), "");
}

/// The derived facts that the fixture lists.
fn check_facts(name: &str) {
    let mount = Mount::fixture(name);
    for (path, facts) in entries(&expected::of(name)["facts"]) {
        for (fact, text) in entries(facts) {
            assert_eq!(mount.xattr(path, &format!("h5dir.{fact}")), text.as_str().unwrap(), "{path}: {fact}");
        }
    }
}

#[test]
fn every_datatype_in_every_simple_layout_is_its_bytes() {
    check("types");
}

#[test]
fn native_complex_numbers_are_their_bytes() {
    check("complex");
}

#[test]
fn every_layout_of_old_files_is_its_bytes() {
    check("layouts_old");
}

#[test]
fn every_layout_of_new_files_is_its_bytes() {
    check("layouts_new");
}

#[test]
fn facts_of_types() {
    check_facts("types");
    check_facts("complex");
}

#[test]
fn facts_of_layouts() {
    check_facts("layouts_old");
    check_facts("layouts_new");
}

#[test]
fn filters_are_listed_in_order() {
    for name in ["layouts_old", "layouts_new"] {
        let mount = Mount::fixture(name);
        for (path, ids) in entries(&expected::of(name)["filters"]) {
            let filters: serde_json::Value = serde_json::from_str(&mount.xattr(path, "h5dir.filters")).unwrap();
            let got: Vec<_> = filters.as_array().unwrap().iter().map(|f| f["id"].clone()).collect();
            assert_eq!(got, *ids.as_array().unwrap(), "{path}");
        }
    }
}

#[test]
fn any_range_can_be_read() {
    let mount = Mount::fixture("layouts_new");
    let want = expected::of("layouts_new");
    for path in ["contiguous", "compact", "deflated", "lzf", "two_unlimited", "fill_chunks"] {
        let data = bytes(want["files"][path].as_str().unwrap());
        let file = std::fs::File::open(mount.path(path)).unwrap();
        for start in (0..=data.len()).step_by(13) {
            for len in [1, 5, 64, 1000] {
                let mut buffer = vec![0xEE; len];
                let n = file.read_at(&mut buffer, start as u64).unwrap();
                assert_eq!(buffer[..n], data[start..data.len().min(start + len)], "{path} at {start}");
            }
        }
        assert_eq!(file.read_at(&mut [0; 8], data.len() as u64 + 5).unwrap(), 0, "{path}: past the end");
    }
}

#[test]
fn a_chunk_that_cannot_be_decoded_is_eio_and_the_rest_is_readable() {
    let mount = Mount::fixture("broken");
    let want = expected::of("broken");
    for (path, second) in [("unknown_filter", &want["unknown"]["second"]), ("bad_checksum", &want["checksum"]["first"])] {
        let (bad, good) = if path == "unknown_filter" { (0, 8) } else { (8, 0) };
        let mut buffer = [0; 8];
        // The kernel reads whole pages, so ask below the page cache.
        let direct = nix::fcntl::OFlag::O_DIRECT | nix::fcntl::OFlag::O_RDONLY;
        let file = nix::fcntl::open(&mount.path(path), direct, nix::sys::stat::Mode::empty()).unwrap();
        let file = std::fs::File::from(file);
        assert_eq!(file.read_at(&mut buffer, bad).unwrap_err().raw_os_error(), Some(libc::EIO), "{path}");
        assert_eq!(file.read_at(&mut buffer, good).unwrap(), 8, "{path}");
        assert_eq!(buffer.to_vec(), bytes(second.as_str().unwrap()), "{path}");
    }
    assert_eq!(mount.read("good"), b"abc");
    // The stored bytes stay reachable.
    assert_eq!(mount.read(".h5dir/chunks/unknown_filter/0"), bytes(want["unknown"]["stored"].as_str().unwrap()));
    let log = mount.log();
    assert_eq!(log.lines().count(), 2, "one line per object: {log}");
    assert!(log.contains("305"), "the filter is named: {log}");
}

#[test]
fn what_cannot_be_shown_is_an_empty_file_that_cannot_be_opened() {
    let mount = Mount::fixture("broken");
    for path in ["too_large", "bad_header"] {
        let meta = mount.path(path).metadata().unwrap();
        assert_eq!((meta.len(), meta.mode(), meta.blocks()), (0, 0o100000, 0), "{path}");
        assert_eq!(std::fs::read(mount.path(path)).unwrap_err().raw_os_error(), Some(libc::EIO), "{path}");
    }
    assert_eq!(mount.names(""), ["bad_checksum", "bad_header", "good", "huge", "too_large", "unknown_filter"]);
    let log = mount.log();
    assert!(log.contains("object header") && log.contains("2^63"), "{log}");
    let err = shell(mount.place.dir(), "ls -lR mnt mnt/.h5dir/exact mnt/.h5dir/attrs > listing; wc -l < listing");
    assert!(err.trim().parse::<u64>().unwrap() > 20, "{err}");
}

#[test]
fn a_dataset_larger_than_any_disk_is_a_hole() {
    let mount = Mount::fixture("broken");
    let path = mount.path("huge");
    let meta = path.metadata().unwrap();
    assert_eq!((meta.len(), meta.blocks()), (1 << 62, 0));
    let file = std::fs::File::open(&path).unwrap();
    let mut buffer = [1; 4096];
    file.read_exact_at(&mut buffer, (1 << 62) - 4096).unwrap();
    assert_eq!(buffer, [0; 4096]);
    assert_eq!(nix::unistd::lseek(&file, 0, nix::unistd::Whence::SeekData), Err(nix::errno::Errno::ENXIO));
}

#[test]
fn a_cache_smaller_than_a_chunk_is_enough() {
    let mount = Mount::with("layouts_new", "", &["--cache-size=4K", "--threads=2"]);
    let want = Mount::fixture("layouts_new");
    for path in ["sparse_long", "sparse_blocks", "deflated", "single", "fill_chunks"] {
        assert!(mount.read(path) == want.read(path), "{path}");
    }
    assert!(mount.counter("cache_bytes") <= 4096);
}
