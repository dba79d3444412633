//! Other files that a file names: shown beneath its folder, never followed out of it.

use super::expected::{self, bytes, entries, strings};
use super::mounted::Mount;
use super::support::Place;
use std::os::unix::fs::symlink;
use std::path::PathBuf;

const ABSOLUTE: &[u8] = b"/@ABSOLUTE@";

/// `inside/` holds the fixture and symlinks; `outside.h5` and `outside.bin` lie above it.
fn lay_out() -> (Place, PathBuf) {
    let place = Place::new();
    let inside = place.dir().join("inside");
    let fixture = expected::folder().join("external");
    std::fs::create_dir_all(inside.join("sub")).unwrap();
    for name in ["sub/target.h5", "raw.bin"] {
        std::fs::copy(fixture.join(name), inside.join(name)).unwrap();
    }
    let outside = place.dir().canonicalize().unwrap().join("outside.h5");
    std::fs::copy(fixture.join("sub/target.h5"), &outside).unwrap();
    std::fs::write(place.dir().join("outside.bin"), [7; 24]).unwrap();
    symlink("../outside.h5", inside.join("symlink.h5")).unwrap();
    symlink("../outside.bin", inside.join("symlink.bin")).unwrap();
    symlink("..", inside.join("symlinked")).unwrap();
    // The absolute name of the file outside, as long as its placeholder.
    let mut main = std::fs::read(fixture.join("main.h5")).unwrap();
    let at = main.windows(ABSOLUTE.len()).position(|w| w == ABSOLUTE).unwrap();
    let len = main[at..].iter().position(|b| *b == 0).unwrap();
    let name = format!("{:/>len$}", outside.to_str().unwrap());
    main[at..at + len].copy_from_slice(name.as_bytes());
    std::fs::write(inside.join("main.h5"), main).unwrap();
    let main = inside.join("main.h5");
    (place, main)
}

fn mount(options: &[&str]) -> Mount {
    let (place, main) = lay_out();
    Mount::start(place, &main, options)
}

fn errno(mount: &Mount, path: &str) -> Option<i32> {
    std::fs::read(mount.path(path)).err().and_then(|e| e.raw_os_error())
}

#[test]
fn what_lies_beneath_is_shown_as_what_it_is() {
    let mount = mount(&[]);
    let want = expected::of("external/main");
    for (path, data) in entries(&want["shown"]) {
        assert_eq!(mount.read(path), bytes(data.as_str().unwrap()), "{path}");
    }
    let kind = |path: &str| mount.path(path).symlink_metadata().unwrap();
    assert!(kind("inside").is_file() && kind("group").is_dir() && kind("group/soft").is_file());
    assert_eq!(mount.xattr("inside", "h5dir.shape"), "[7]");
    assert_eq!(mount.names("group"), ["inner", "soft"]);
}

#[test]
fn what_lies_outside_is_a_dangling_symbolic_link() {
    let mount = mount(&[]);
    let want = expected::of("external/main");
    for path in strings(&want["refused"]) {
        let target = mount.link(path);
        assert!(target.starts_with("%20external") && !target.contains('/'), "{path} -> {target}");
        assert_eq!(errno(&mount, path), Some(libc::ENOENT), "{path}");
    }
    // The rest of the directory is there.
    assert_eq!(mount.read("own"), b"own\n");
    assert!(mount.names("").len() > 20);
}

#[test]
fn a_wider_root_shows_more_but_no_symbolic_link_is_followed() {
    let (place, main) = lay_out();
    let root = format!("--external-root={}", place.dir().display());
    let mount = Mount::start(place, &main, &[&root]);
    for path in ["escape", "around", "twice_outside", "far/absolute"] {
        assert_eq!(mount.read(path), b"target\n", "{path}");
    }
    for path in ["by_symlink", "by_directory", "by_magic"] {
        assert_eq!(errno(&mount, path), Some(libc::ENOENT), "{path}");
    }
    assert_eq!(mount.read("raw_escape"), [7; 24]);
    assert_eq!(errno(&mount, "raw_symlink"), Some(libc::EIO));
}

#[test]
fn external_off_opens_nothing() {
    let mount = mount(&["--external=off"]);
    for path in ["inside", "group", "root", "back", "escape"] {
        assert!(mount.link(path).starts_with("%20external"), "{path}");
    }
    assert_eq!(errno(&mount, "raw_one"), Some(libc::EIO));
    assert_eq!(mount.read("own"), b"own\n");
}

#[test]
fn allow_other_turns_external_files_off() {
    let mount = mount(&["--allow-other"]);
    assert!(mount.link("inside").starts_with("%20external"));
    drop(mount);
    let mount = self::mount(&["--allow-other", "--external=on"]);
    assert_eq!(mount.read("inside"), b"target\n");
}

#[test]
fn raw_files_are_read_beneath_the_folder_only() {
    let mount = mount(&[]);
    let want = expected::of("external/main");
    for (path, data) in entries(&want["files"]) {
        assert_eq!(mount.read(path), bytes(data.as_str().unwrap()), "{path}");
    }
    for path in strings(&want["denied"]) {
        assert_eq!(mount.path(path).metadata().unwrap().len(), 24, "{path}");
        assert_eq!(errno(&mount, path), Some(libc::EIO), "{path}");
    }
    assert_eq!(mount.xattr("raw_one", "h5dir.layout"), "external");
    let segments: serde_json::Value = serde_json::from_str(&mount.xattr("raw_one", "h5dir.external")).unwrap();
    assert_eq!(segments, serde_json::json!([{"file": "raw.bin", "offset": 8, "size": 24}]));
}

#[test]
fn nothing_named_is_changed() {
    let (place, main) = lay_out();
    let folder = main.parent().unwrap().to_owned();
    let sums =
        || super::mounted::shell(&folder, "find . -type f -exec sha256sum {} + | sort; stat -c '%n %Y %s' raw.bin main.h5 sub/target.h5");
    let before = sums();
    let mount = Mount::start(place, &main, &[]);
    super::mounted::shell(mount.place.dir(), "cp -r --no-dereference mnt copy 2>/dev/null || true");
    assert_eq!(sums(), before);
}
