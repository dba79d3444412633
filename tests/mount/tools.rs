//! Ordinary tools on a mount.

use super::mounted::{Mount, shell};
use std::fs::File;
use std::os::fd::AsRawFd;

/// Files with groups, links, attributes, every layout and variable-length data.
const FIXTURES: [&str; 4] = ["layouts_new", "links", "attributes_new", "variable"];

#[test]
fn copies_are_equal() {
    for name in FIXTURES {
        let mount = Mount::fixture(name);
        shell(mount.place.dir(), "cp -a mnt copy; diff -r --no-dereference mnt copy; chmod -R u+w copy");
    }
}

/// A folder that can hold long extended attributes: ext4 takes 4 KiB for all of a file, tmpfs any.
fn roomy() -> tempfile::TempDir {
    let memory = std::path::Path::new("/dev/shm");
    if memory.is_dir() { tempfile::tempdir_in(memory).unwrap() } else { tempfile::tempdir().unwrap() }
}

#[test]
fn rsync_copies_files_links_and_attributes() {
    for name in FIXTURES {
        let mount = Mount::fixture(name);
        let room = roomy();
        std::os::unix::fs::symlink(room.path(), mount.place.dir().join("copy")).unwrap();
        let script = "rsync -aX mnt/ copy/; diff -r --no-dereference mnt/ copy/
            test -z \"$(rsync -aXn --checksum --out-format=%n mnt/ copy/ | grep -v '/$' || true)\"
            (cd mnt && getfattr -R -h -d -m - . 2>/dev/null) | grep -v '^# file' | sort > a
            (cd copy/ && getfattr -R -h -d -m - . 2>/dev/null) | grep -v '^# file' | sort > b
            diff a b; chmod -R u+w copy";
        shell(mount.place.dir(), script);
    }
}

#[test]
fn tar_carries_everything() {
    for name in FIXTURES {
        let mount = Mount::fixture(name);
        let script =
            "mkdir copy; tar --xattrs --xattrs-include='user.*' -cf - -C mnt . | tar --xattrs --xattrs-include='user.*' -xpf - -C copy
            diff -r --no-dereference mnt copy; chmod -R u+w copy";
        shell(mount.place.dir(), script);
    }
}

#[test]
fn sums_agree_with_those_of_a_copy() {
    let mount = Mount::fixture("layouts_new");
    let script = "cp -r mnt copy; (cd mnt && find . -type f -exec sha256sum {} + | sort) > a; (cd copy && find . -type f -exec sha256sum {} + | sort) > b
        diff a b; wc -l < a; chmod -R u+w copy";
    assert_eq!(shell(mount.place.dir(), script).trim(), "22");
}

#[test]
fn dd_reads_any_block() {
    let mount = Mount::fixture("layouts_new");
    let script = "cat mnt/sparse_blocks > whole
        for bs in 1 7 512 4096 100000; do dd if=mnt/sparse_blocks bs=$bs 2>/dev/null | cmp - whole; done
        dd if=mnt/sparse_blocks bs=1000 skip=3 count=5 2>/dev/null | cmp - <(tail -c +3001 whole | head -c 5000 || true)
        dd if=mnt/sparse_blocks iflag=direct bs=4096 2>/dev/null | cmp - whole
        od -A n -t d4 -N 8 mnt/compact";
    shell(mount.place.dir(), script);
}

#[test]
fn mapped_files_show_the_bytes() {
    let mount = Mount::fixture("layouts_new");
    for path in ["sparse_blocks", "deflated", ".h5dir/npy/deflated.npy"] {
        let whole = mount.read(path);
        let file = File::open(mount.path(path)).unwrap();
        // SAFETY: a private mapping of the whole file, read within its length and unmapped once.
        let copy = unsafe {
            let at = libc::mmap(std::ptr::null_mut(), whole.len(), libc::PROT_READ, libc::MAP_PRIVATE, file.as_raw_fd(), 0);
            assert_ne!(at, libc::MAP_FAILED);
            let copy = std::slice::from_raw_parts(at.cast::<u8>(), whole.len()).to_vec();
            libc::munmap(at, whole.len());
            copy
        };
        assert!(copy == whole, "{path}");
    }
}

#[test]
fn find_and_grep_select() {
    let mount = Mount::fixture("links");
    let script =
        "find mnt -name own -size -5c | sort; find mnt -samefile mnt/data | wc -l; grep -l 'hello links' mnt/data mnt/group/own || true";
    assert_eq!(shell(mount.place.dir(), script), "mnt/alias/own\nmnt/group/own\n5\nmnt/data\n");
}
