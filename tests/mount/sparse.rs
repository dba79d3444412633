//! Holes: unallocated chunks of zero fill, in the linear order of the file.

use super::expected::{self, entries};
use super::mounted::{Mount, shell};
use nix::unistd::{Whence, lseek};
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// The runs of data that SEEK_DATA and SEEK_HOLE tell.
fn extents(path: &Path) -> Vec<(i64, i64)> {
    let file = File::open(path).unwrap();
    let mut out = Vec::new();
    let mut at = 0;
    while let Ok(start) = lseek(&file, at, Whence::SeekData) {
        at = lseek(&file, start, Whence::SeekHole).unwrap();
        out.push((start, at));
        assert!(start < at && out.len() < 10_000);
    }
    out
}

#[test]
fn data_is_what_libhdf5_allocated() {
    for name in ["layouts_old", "layouts_new"] {
        let mount = Mount::fixture(name);
        for (path, runs) in entries(&expected::of(name)["extents"]) {
            let want: Vec<(i64, i64)> = runs.as_array().unwrap().iter().map(|r| (r[0].as_i64().unwrap(), r[1].as_i64().unwrap())).collect();
            assert_eq!(extents(&mount.path(path)), want, "{name} {path}");
        }
        assert_eq!(extents(&mount.path("contiguous")), [(0, 140)]);
        assert_eq!(extents(&mount.path("contiguous_unwritten")), []);
        assert_eq!(extents(&mount.path("contiguous_unwritten_fill")), [(0, 48)], "its fill value is not zero");
        assert_eq!(extents(&mount.path("null")), []);
    }
}

#[test]
fn seek_from_within_a_run_and_past_the_end() {
    let mount = Mount::fixture("layouts_new");
    // Rows 4 to 11, 28 to 31 and 60 to 63 of 4 KiB are allocated.
    let file = File::open(mount.path("sparse_rows")).unwrap();
    let row = 4096;
    assert_eq!(lseek(&file, 5 * row + 1, Whence::SeekData), Ok(5 * row + 1));
    assert_eq!(lseek(&file, 5 * row + 1, Whence::SeekHole), Ok(12 * row));
    assert_eq!(lseek(&file, 12 * row, Whence::SeekData), Ok(28 * row));
    assert_eq!(lseek(&file, 12 * row + 7, Whence::SeekHole), Ok(12 * row + 7));
    assert_eq!(lseek(&file, 63 * row, Whence::SeekHole), Ok(64 * row), "the end is a hole");
    for whence in [Whence::SeekData, Whence::SeekHole] {
        assert_eq!(lseek(&file, 64 * row, whence), Err(nix::errno::Errno::ENXIO));
        assert_eq!(lseek(&file, 65 * row, whence), Err(nix::errno::Errno::ENXIO));
    }
    assert_eq!(lseek(&file, 0, Whence::SeekEnd), Ok(64 * row));
}

#[test]
fn copies_stay_sparse() {
    let mount = Mount::fixture("layouts_new");
    let dir = mount.place.dir();
    for tool in ["cp --sparse=auto mnt/sparse_long copy", "tar -S -cf - -C mnt sparse_long | tar -xSf - --transform s/sparse_long/copy/"] {
        shell(dir, &format!("rm -f copy; {tool}; cmp mnt/sparse_long copy"));
        let copy = dir.join("copy").metadata().unwrap();
        assert_eq!(copy.len(), 4 << 20);
        assert!(copy.blocks() * 512 <= 64 << 10, "{tool}: {} blocks", copy.blocks());
    }
}

#[test]
fn du_tells_storage_and_apparent_size() {
    let mount = Mount::fixture("layouts_new");
    let storage: u64 = mount.xattr("sparse_long", "h5dir.storage").parse().unwrap();
    let out = shell(mount.place.dir(), "du --apparent-size -B1 mnt/sparse_long | cut -f1; du -B1 mnt/sparse_long | cut -f1");
    assert_eq!(out, format!("{}\n{}\n", 4 << 20, storage.div_ceil(512) * 512));
}
