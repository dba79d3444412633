//! Variable-length data: lines, and the exact form below `.h5dir/exact`.

use super::expected::{self, bytes, entries};
use super::mounted::{Mount, shell};
use std::os::unix::fs::FileExt;

#[test]
fn strings_are_lines_and_all_else_is_exact() {
    let mount = Mount::fixture("variable");
    for (path, data) in entries(&expected::of("variable")["files"]) {
        let Some(hex) = data.as_str() else { continue };
        assert_eq!(mount.path(path).metadata().unwrap().len(), hex.len() as u64 / 2, "{path}: st_size");
        assert_eq!(mount.read(path), bytes(hex), "{path}");
    }
    let long = "0123456789abcdef".repeat(700);
    assert_eq!(mount.text("long"), format!("{long}\nx\n{long}\n"));
}

#[test]
fn the_exact_form_tells_every_length() {
    let mount = Mount::fixture("variable");
    let want = expected::of("variable");
    for (path, hex) in entries(&want["exact"]) {
        let data = bytes(hex.as_str().unwrap());
        let path = format!(".h5dir/exact/{path}");
        assert_eq!(mount.path(&path).metadata().unwrap().len(), data.len() as u64, "{path}: st_size");
        assert_eq!(mount.read(&path), data, "{path}");
    }
    let listed = mount.names(".h5dir/exact");
    assert_eq!(listed, mount.names(""), "the same tree");
}

#[test]
fn any_range_of_the_lines_can_be_read() {
    let mount = Mount::fixture("variable");
    for path in ["strings_deflated", "records", ".h5dir/exact/strings", "long"] {
        let whole = mount.read(path);
        let file = std::fs::File::open(mount.path(path)).unwrap();
        for start in (0..whole.len()).step_by(whole.len().div_ceil(50)) {
            let mut buffer = [0; 37];
            let n = file.read_at(&mut buffer, start as u64).unwrap();
            assert_eq!(buffer[..n], whole[start..whole.len().min(start + 37)], "{path} at {start}");
        }
    }
}

#[test]
fn text_tools_work_on_lines() {
    let mount = Mount::fixture("variable");
    let out = shell(mount.place.dir(), "grep -c . mnt/strings; wc -l < mnt/strings; sort mnt/ascii | tail -1; grep -l three -r mnt | sort");
    assert_eq!(out, "4\n5\nbc\nmnt/strings\nmnt/strings_chunked\nmnt/strings_deflated\n");
}
