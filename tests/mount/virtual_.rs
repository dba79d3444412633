//! Virtual datasets: sources beside the file, missing ones, none from outside.

use super::expected::{self, bytes, entries};
use super::mounted::Mount;
use super::support::Place;
use nix::fcntl::OFlag;
use std::os::unix::fs::{FileExt, symlink};

fn mount(options: &[&str]) -> Mount {
    let place = Place::new();
    let inside = place.dir().join("inside");
    let fixture = expected::folder().join("virtual");
    std::fs::create_dir(&inside).unwrap();
    for name in ["virtual.h5", "one.h5", "two.h5", "series_0.h5", "series_2.h5"] {
        std::fs::copy(fixture.join(name), inside.join(name)).unwrap();
    }
    std::fs::copy(fixture.join("two.h5"), place.dir().join("outside.h5")).unwrap();
    symlink("two.h5", inside.join("symlink.h5")).unwrap();
    let file = inside.join("virtual.h5");
    Mount::start(place, &file, options)
}

#[test]
fn sources_beside_the_file_supply_their_part() {
    let mount = mount(&[]);
    let want = expected::of("virtual/virtual");
    for (path, data) in entries(&want["files"]) {
        assert_eq!(mount.read(path), bytes(data.as_str().unwrap()), "{path}");
        assert_eq!(mount.path(path).metadata().unwrap().len(), mount.read(path).len() as u64);
    }
    for (path, facts) in entries(&want["facts"]) {
        for (fact, text) in entries(facts) {
            assert_eq!(mount.xattr(path, &format!("h5dir.{fact}")), text.as_str().unwrap(), "{path}: {fact}");
        }
    }
}

#[test]
fn a_missing_source_is_eio_on_what_it_would_supply() {
    let mount = mount(&[]);
    for (path, want) in entries(&expected::of("virtual/virtual")["missing"]) {
        assert_eq!(std::fs::read(mount.path(path)).unwrap_err().raw_os_error(), Some(libc::EIO), "{path}");
        let file = nix::fcntl::open(&mount.path(path), OFlag::O_DIRECT, nix::sys::stat::Mode::empty()).unwrap();
        let mut buffer = [0; 8];
        std::fs::File::from(file).read_exact_at(&mut buffer, 0).unwrap_or_else(|e| panic!("{path}: {e}"));
        assert_eq!(buffer.to_vec(), bytes(want["good"].as_str().unwrap()), "{path}");
    }
}

#[test]
fn a_missing_source_is_fill_where_asked_for_and_none_comes_from_outside() {
    let mount = mount(&["--vds-missing=fill"]);
    for (path, want) in entries(&expected::of("virtual/virtual")["missing"]) {
        assert_eq!(mount.read(path), bytes(want["fill"].as_str().unwrap()), "{path}");
    }
}

#[test]
fn external_off_opens_no_source_but_the_file_itself() {
    let mount = mount(&["--external=off", "--vds-missing=fill"]);
    let want = expected::of("virtual/virtual");
    let complete = bytes(want["files"]["complete"].as_str().unwrap());
    let mut expected = [0xFF; 24].to_vec();
    expected[16..].copy_from_slice(&complete[16..]);
    assert_eq!(mount.read("complete"), expected);
}
