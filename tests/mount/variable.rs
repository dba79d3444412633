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

/// Regression: the file was empty, its attributes said mode 0, and root read it without an error.
#[test]
fn strings_that_cannot_be_read_are_no_empty_file() {
    let (place, file) = super::facts::created("v110");
    super::facts::h5py(
        &file,
        "    d = f.create_dataset('s', (4000,), h5py.string_dtype(), chunks=(1000,), compression='gzip'); d[:] = ['hello', 'world'] * 2000
    at = d.id.get_chunk_info(1).byte_offset; f.close()
    data = bytearray(open(sys.argv[1], 'rb').read()); data[at + 20:at + 60] = b'\\xff' * 40; open(sys.argv[1], 'wb').write(data)",
    );
    for options in [&[][..], &["--read-write"]] {
        let mount = Mount::start(super::support::Place::new(), &file, options);
        for path in ["s", ".h5dir/exact/s"] {
            let stat = mount.path(path).metadata().unwrap();
            assert_eq!((stat.len(), std::os::unix::fs::PermissionsExt::mode(&stat.permissions()) & 0o777), (0, 0), "{path}");
            let error = std::fs::read(mount.path(path)).unwrap_err();
            assert_eq!(error.raw_os_error(), Some(libc::EIO), "{path}");
            let (copied, text) = super::facts::shell(mount.place.dir(), &format!("cp mnt/{path} copy"));
            assert!(!copied && text.contains("Input/output error"), "{path}: {text}");
        }
        assert!(mount.log().contains("filter"), "{}", mount.log());
    }
    drop(place);
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
