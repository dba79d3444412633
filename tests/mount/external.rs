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

/// Regression: a file could have `.ssh/id_rsa` beside it read as its raw data, and shown to all who see the mount.
#[test]
fn hidden_files_are_read_only_where_that_is_asked_for() {
    let place = || {
        let place = Place::new();
        let folder = place.dir().join("home");
        std::fs::create_dir_all(folder.join(".ssh")).unwrap();
        std::fs::write(folder.join(".ssh/id"), "secret!!").unwrap();
        super::writing::h5py(&folder.join(".ssh/x.h5"), "w", "f['d'] = [5]");
        let program = "f.create_dataset('raw', (8,), 'u1', external=[('.ssh/id', 0, 8)]); \
            l = h5py.VirtualLayout((1,), 'i8'); l[:] = h5py.VirtualSource('.ssh/x.h5', 'd', (1,)); \
            f.create_virtual_dataset('virtual', l); f['link'] = h5py.ExternalLink('.ssh/x.h5', '/d')";
        super::writing::h5py(&folder.join("f.h5"), "w", program);
        (place, folder.join("f.h5"))
    };
    for options in [&[][..], &["--external"], &["--vds-missing=fill"], &["--external-write", "--read-write"]] {
        let (place, file) = place();
        let root = format!("--external-root={}", file.parent().unwrap().display());
        let mount = Mount::start(place, &file, &[options, &[root.as_str()]].concat());
        for name in ["raw", "virtual"] {
            assert_eq!(errno(&mount, name), Some(libc::EACCES), "{name} {options:?}: {}", mount.log());
        }
        assert!(mount.link("link").starts_with("%20external"), "{options:?}");
        assert_eq!(mount.log().lines().filter(|line| line.contains("only --external=all opens it")).count(), 3, "{}", mount.log());
    }
    let (place, file) = place();
    let mount = Mount::start(place, &file, &["--external=all"]);
    let number = 5u64.to_le_bytes().to_vec();
    assert_eq!((mount.read("raw"), mount.read("virtual"), mount.read("link")), (b"secret!!".to_vec(), number.clone(), number));
}

/// A dataset in two raw files, one of them missing yet; and one that leads out of the folder.
fn raw(options: &[&str]) -> (Mount, std::path::PathBuf) {
    let place = Place::new();
    let folder = place.dir().join("data");
    std::fs::create_dir(&folder).unwrap();
    std::fs::write(place.dir().join("secret"), "secret").unwrap();
    std::os::unix::fs::symlink("../secret", folder.join("link")).unwrap();
    let file = folder.join("f.h5");
    let program = "[f.create_dataset(n, (8,), 'u1', external=[(e, 2, 4), ('made.raw', 0, 4)]) for n, e in \
        [('d', 'old.raw'), ('link', 'link'), ('up', '../secret'), ('absolute', '/etc/h5dir-test'), ('self', 'f.h5'), ('j', 'x.h5dir-journal')]]";
    super::writing::h5py(&file, "w", program);
    std::fs::write(folder.join("old.raw"), "..abcd..").unwrap();
    let root = format!("--external-root={}", folder.display());
    let options: Vec<&str> = options.iter().copied().chain([root.as_str(), "--read-write"]).collect();
    (Mount::start(place, &file, &options), folder)
}

fn write(mount: &Mount, path: &str, at: u64, bytes: &[u8]) -> i32 {
    use std::os::unix::fs::FileExt;
    let file = std::fs::File::options().write(true).open(mount.path(path)).unwrap();
    let done = file.write_all_at(bytes, at).and_then(|()| file.sync_all());
    done.err().and_then(|e| e.raw_os_error()).unwrap_or(0)
}

#[test]
fn raw_files_are_written_where_that_is_asked_for() {
    let (mount, folder) = raw(&["--external-write"]);
    assert_eq!(write(&mount, "d", 3, b"XYZ"), 0, "{}", mount.log());
    assert_eq!(mount.read("d"), b"abcXYZ\0\0");
    assert_eq!(std::fs::read(folder.join("old.raw")).unwrap(), b"..abcX..");
    assert_eq!(std::fs::read(folder.join("made.raw")).unwrap(), b"YZ");
    for path in ["link", "up", "absolute", "self", "j"] {
        assert_eq!(write(&mount, path, 0, b"evil"), libc::EPERM, "{path}");
    }
    assert_eq!(std::fs::read(mount.place.dir().join("secret")).unwrap(), b"secret");
    assert!(!std::path::Path::new("/etc/h5dir-test").exists() && !folder.join("x.h5dir-journal").exists());
    assert!(mount.log().contains("cannot be opened for writing"), "{}", mount.log());
    let (plain, folder) = raw(&[]);
    assert_eq!(write(&plain, "d", 3, b"XYZ"), libc::EACCES);
    assert!(plain.log().contains("--external-write") && !folder.join("made.raw").exists(), "{}", plain.log());
}

#[test]
fn a_pipe_in_the_place_of_another_file_keeps_nobody_waiting() {
    let pipe = |path: &std::path::Path| {
        std::fs::remove_file(path).unwrap();
        nix::unistd::mkfifo(path, nix::sys::stat::Mode::S_IRWXU).unwrap();
    };
    let (place, main) = lay_out();
    pipe(&main.with_file_name("raw.bin"));
    pipe(&main.parent().unwrap().join("sub/target.h5"));
    let mount = Mount::start(place, &main, &[]);
    assert_eq!((errno(&mount, "raw_one"), errno(&mount, "inside")), (Some(libc::EIO), Some(libc::ENOENT)));
    assert_eq!(mount.read("own"), b"own\n");
    let (mount, folder) = raw(&["--external-write"]);
    pipe(&folder.join("old.raw"));
    assert_eq!(write(&mount, "d", 0, b"XYZ"), libc::EPERM, "{}", mount.log());
    assert_eq!(errno(&mount, "d"), Some(libc::EIO));
}
