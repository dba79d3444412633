//! A file made, mounted for writing and changed with the usual programs: what h5py finds then.

use super::mounted::Mount;
use super::support::{Place, eventually, h5dir, is_mounted, run};
use std::path::Path;
use std::process::{Command, Stdio};

/// An interpreter with h5py.
pub fn python() -> String {
    let venv = concat!(env!("CARGO_MANIFEST_DIR"), "/.venv/bin/python");
    let found = std::env::var("PYTHON").ok().or_else(|| Path::new(venv).exists().then(|| venv.into()));
    found.unwrap_or_else(|| "/opt/venv/bin/python".into())
}

/// What `program` prints of the file `f` at `path`, opened with `mode`.
pub fn h5py(path: &Path, mode: &str, program: &str) -> String {
    let script = format!("import h5py, sys\nwith h5py.File(sys.argv[1], '{mode}') as f:\n    {program}\n");
    let output = Command::new(python()).args(["-c", &script]).arg(path).stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

pub fn shell(mount: &Mount, script: &str) -> String {
    let output = Command::new("sh").args(["-ec", script]).current_dir(mount.place.mnt()).stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success(), "{script}: {}; log: {}", String::from_utf8_lossy(&output.stderr), mount.log());
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn made_mounted_changed_and_read_by_h5py() {
    for libver in ["v110", "earliest"] {
        let place = Place::new();
        let file = place.dir().join("new.h5");
        let name = file.to_str().unwrap();
        assert_eq!(run(&mut h5dir(&["create", "--libver", libver, name])), (0, String::new()));
        let again = run(&mut h5dir(&["create", name]));
        assert!(again.0 == 3 && again.1.contains("File exists"), "{again:?}");
        let mount = Mount::start(place, &file, &["--read-write"]);
        shell(
            &mount,
            "mkdir g; echo one >g/a; ln g/a b; ln -s ../b g/l; mv g h; setfattr -n user.note -v hi b; echo x >gone; rm gone; sync b",
        );
        assert_eq!(shell(&mount, "cat b h/a h/l; readlink h/l; getfattr --only-values -n user.note h/a"), "one\none\none\n../b\nhi");
        let busy = run(&mut h5dir(&["recover", name]));
        assert!(busy.0 == 3 && busy.1.contains("another program"), "{busy:?}");
        let (code, message) = run(h5dir(&["umount"]).arg(mount.place.mnt()));
        assert_eq!((code, message.as_str()), (0, ""));
        eventually("it is unmounted", || !is_mounted(&mount.place.mnt()));
        let program = "print(sorted(f), sorted(f['h']), f['b'][()].tobytes(), f['h/l'] == f['h/a'], f['b'].attrs['note'])";
        let seen = h5py(&file, "r", program);
        assert!(seen.starts_with("['b', 'h'] ['a', 'l'] b'one\\n' True"), "{seen}");
        h5py(&file, "r+", "del f['h']; f['n'] = [1, 2]");
        assert!(!mount.place.dir().join("new.h5.h5dir-journal").exists());
        assert_eq!(run(&mut h5dir(&["recover", name])), (0, String::new()));
    }
}

#[test]
fn a_signal_commits_what_was_written() {
    let place = Place::new();
    let file = place.dir().join("new.h5");
    assert_eq!(run(&mut h5dir(&["create", file.to_str().unwrap()])).0, 0);
    let mut mount = Mount::start(place, &file, &["--read-write", "--commit-interval=0"]);
    std::fs::write(mount.path("x"), b"kept").unwrap();
    assert_eq!(mount.terminate(), Some(0), "{}", mount.log());
    assert_eq!(h5py(&file, "r", "print(f['x'][()].tobytes())"), "b'kept'\n");
}

#[test]
fn a_chunk_too_large_to_be_changed_in_memory_is_refused() {
    let place = Place::new();
    let file = place.dir().join("large.h5");
    let make = "[f.create_dataset(n, (s * 3,), 'u1', chunks=(s,), compression=c, fillvalue=7 if n == 'sevens' else 0) \
        for n, s, c in (('large', 1 << 27, 'gzip'), ('small', 1 << 20, 'gzip'), ('plain', 1 << 27, None), ('sevens', 1 << 27, None))]";
    h5py(&file, "w", make);
    let mount = Mount::start(place, &file, &["--read-write", "--cache-size=64M"]);
    let write_at = |name: &str, bytes: &[u8], at| {
        use std::os::unix::fs::FileExt;
        let f = std::fs::OpenOptions::new().write(true).open(mount.path(name)).unwrap();
        f.write_all_at(bytes, at).map_err(|e| e.raw_os_error())
    };
    let write = |name: &str| write_at(name, b"x", 5);
    assert_eq!(write("large"), Err(Some(libc::EFBIG)));
    assert_eq!(write("small"), Ok(()));
    // Without filters it is written through.
    assert_eq!((write("sevens"), write_at("plain", b"abcd", (1 << 27) - 2)), (Ok(()), Ok(())));
    assert_eq!((write("plain"), write_at("plain", b"e", 1 << 27)), (Ok(()), Ok(())));
    assert!(mount.log().contains("--cache-size"), "{}", mount.log());
    assert_eq!(mount.read("small")[..8], *b"\0\0\0\0\0x\0\0");
    assert_eq!(run(h5dir(&["umount"]).arg(mount.place.mnt())).0, 0);
    let program = "p, s, c = f['plain'], f['sevens'], 1 << 27; \
        print(p[4:7].tobytes(), p[c-3:c+3].tobytes(), p[2*c:].any(), p[7:c-2].any(), s[4:7].tobytes(), (s[6:] == 7).all())";
    assert_eq!(h5py(&file, "r", program), "b'\\x00x\\x00' b'\\x00abed\\x00' False False b'\\x07x\\x07' True\n");
}
