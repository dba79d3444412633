//! Groups, group aliases, cycles, soft links, named datatypes.

use super::expected::{self, entries, strings};
use super::mounted::{Mount, shell};
use std::os::unix::fs::MetadataExt;

#[test]
fn groups_are_directories() {
    let mount = Mount::fixture("links");
    assert_eq!(mount.names(""), ["alias", "cycle", "data", "group", "named", "single", "soft"]);
    assert_eq!(mount.names("group"), ["hard", "own", "sub", "to_cycle"]);
    assert_eq!(mount.names("cycle/deep"), ["deeper", "up"]);
    assert_eq!(mount.xattr("group", "h5dir.kind"), "group");
    let meta = mount.path("group").metadata().unwrap();
    assert_eq!((meta.nlink(), meta.len()), (1, 0));
    assert_eq!(mount.read("group/sub/third"), b"hello links\n");
}

#[test]
fn a_group_reached_twice_is_a_directory_each_time() {
    let mount = Mount::fixture("links");
    let meta = |path: &str| mount.path(path).symlink_metadata().unwrap();
    assert!(meta("alias").is_dir() && meta("group").is_dir());
    assert_ne!(meta("alias").ino(), meta("group").ino(), "the kernel allows a directory one parent");
    assert_eq!(mount.names("alias"), mount.names("group"));
    assert_eq!(mount.read("alias/own"), b"own\n");
    assert!(meta("group/to_cycle").is_dir());
    assert_eq!(mount.link("group/to_cycle/self"), ".");
}

#[test]
fn soft_links_and_cycles_are_relative_symbolic_links() {
    let mount = Mount::fixture("links");
    for (path, target) in entries(&expected::of("links")["symlinks"]) {
        assert_eq!(mount.link(path), target.as_str().unwrap(), "{path}");
    }
    assert_eq!(mount.read("soft/chain"), b"own\n");
    assert_eq!(mount.read("soft/relative"), b"own\n", "relative to the group it lies in");
    assert_eq!(mount.read("soft/deep/up"), b"hello links\n");
    assert_eq!(mount.names("soft/to_group"), ["third"]);
    assert_eq!(mount.names("cycle/self/deep/up/self"), mount.names("cycle"));
    assert_eq!(mount.read("cycle/deep/deeper/root/data"), b"hello links\n");
    let error = |path: &str| std::fs::read(mount.path(path)).unwrap_err().raw_os_error();
    assert_eq!(error("soft/dangling"), Some(libc::ENOENT));
    assert_eq!(error("soft/loop"), Some(libc::ELOOP));
}

#[test]
fn no_soft_link_leaves_the_mount() {
    let mount = Mount::fixture("links");
    let hostile = expected::of("links");
    for path in strings(&hostile["hostile"]).into_iter().chain(["soft/hostile_proc"]) {
        let target = mount.link(path);
        let up = target.split('/').take_while(|c| *c == "..").count();
        assert!(!target.starts_with('/') && up <= path.matches('/').count(), "{path} -> {target}");
        assert!(!target.split('/').skip(up).any(|c| c == ".."), "{path} -> {target}");
        // ENOTDIR where the way leads through a dataset.
        let error = std::fs::read(mount.path(path)).unwrap_err().raw_os_error();
        assert!(matches!(error, Some(libc::ENOENT | libc::ENOTDIR)), "{path} -> {target}");
    }
}

#[test]
fn walks_of_a_cyclic_file_end() {
    let mount = Mount::fixture("links");
    let dir = mount.place.dir();
    let found = shell(dir, "find mnt -type d | wc -l; find mnt -type l | wc -l; find mnt -type f | wc -l");
    // Directories: root, alias, alias/sub, cycle, group, group/sub, soft, soft/deep, and in cycle: deep, deeper,
    // in each of the four places where cycle is reached: /, group, alias.
    let counts: Vec<u64> = found.lines().map(|l| l.trim().parse().unwrap()).collect();
    assert_eq!(counts[0], 8 + 2 + 2 * 3, "{found}");
    assert_eq!(counts[2], 2 * 3 + 3, "{found}");
    shell(
        dir,
        "ls -lR mnt > /dev/null; du -s mnt; du -sL mnt 2>/dev/null || true; tar cf all.tar -C mnt . && tar tf all.tar | grep cycle/deep/deeper",
    );
    let entries = shell(dir, "tar tf all.tar | wc -l; find mnt | wc -l");
    let counts: Vec<&str> = entries.lines().map(str::trim).collect();
    assert_eq!(counts[0], counts[1]);
}

#[test]
fn a_named_datatype_is_a_file_that_describes_it() {
    let mount = Mount::fixture("links");
    let text = mount.text("named");
    assert!(text.contains("H5T_STD_I16BE"), "{text}");
    assert_eq!(mount.xattr("named", "h5dir.kind"), "datatype");
    let mount = Mount::fixture("types");
    let text = mount.text("named");
    assert!(text.contains("H5T_COMPOUND") && text.contains("H5T_STD_I32LE") && text.contains("\"s\""), "{text}");
    assert_eq!(mount.path("named").metadata().unwrap().len(), text.len() as u64);
}
