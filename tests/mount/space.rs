//! Space that was freed is used again, by this session and by later ones.

use super::mounted::{Mount, shell};
use super::python;
use super::support::{Place, h5dir, is_mounted, run};
use super::writing::h5py;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// A file whose sessions follow one another.
struct File {
    place: Place,
    path: PathBuf,
}

impl Drop for File {
    fn drop(&mut self) {
        if is_mounted(&self.place.mnt()) {
            let _ = run(h5dir(&["umount", "--lazy"]).arg(self.place.mnt()));
        }
    }
}

impl File {
    /// Made by statements of h5py over `h5py`, `np` and `path`.
    fn made(program: &str) -> File {
        let place = Place::new();
        let path = place.dir().join("f.h5");
        let script = format!("import h5py, numpy as np, sys\npath = sys.argv[1]\n{program}");
        assert!(Command::new(python::with_h5py()).args(["-c", &script]).arg(&path).status().unwrap().success());
        File { place, path }
    }

    /// Mounts it, changes it by a script, and unmounts it; returns its size then.
    fn session(&self, script: &str) -> u64 {
        let mounted = run(h5dir(&["mount", "--read-write"]).args([&self.path, &self.place.mnt()]));
        assert_eq!(mounted.0, 0, "{}", mounted.1);
        shell(&self.place.mnt(), script);
        assert_eq!(run(h5dir(&["umount"]).arg(self.place.mnt())), (0, String::new()));
        self.size()
    }

    fn size(&self) -> u64 {
        std::fs::metadata(&self.path).unwrap().len()
    }
}

/// The size of the file after pairs of sessions, which do `odd` and `even`, stays that after the first pair.
#[track_caller]
fn keeps_its_size(make: &str, odd: &str, even: &str) {
    let file = File::made(make);
    let first = file.session(odd).max(file.session(even));
    for round in 0..8 {
        let size = file.session(odd).max(file.session(even));
        assert!(size * 10 <= first * 11 + 4096, "round {round}: {first} bytes, now {size}");
    }
    h5py(&file.path, "r", "f.visititems(lambda name, o: o[()] if isinstance(o, h5py.Dataset) else None)");
}

const EMPTY: &str = "h5py.File(path, 'w').close()";

#[test]
fn rewritten_chunks_use_the_space_of_earlier_sessions() {
    let make = "h5py.File(path, 'w').create_dataset('d', data=np.arange(1000000) * 7 % 1001, chunks=(20000,), compression='gzip')";
    let rewrite = "head -c 8000000 /dev/urandom | dd of=d conv=notrunc bs=1M status=none";
    keeps_its_size(make, rewrite, rewrite);
    keeps_its_size(
        make,
        "printf x | dd of=d conv=notrunc bs=1 seek=4000000 status=none",
        "printf y | dd of=d conv=notrunc bs=1 seek=7 status=none",
    );
}

#[test]
fn files_removed_in_one_session_leave_their_space_to_the_next() {
    keeps_its_size(EMPTY, "head -c 1000000 /dev/urandom >f", "head -c 1000000 /dev/urandom >f");
    keeps_its_size(EMPTY, "head -c 3000000 /dev/urandom >f", "rm f");
    keeps_its_size(EMPTY, "for i in $(seq 100); do head -c $((i * 37)) /dev/urandom >f$i; done", "rm f*");
    keeps_its_size(EMPTY, "for i in $(seq 60); do mkdir d$i; setfattr -n user.a -v $i d$i; done", "rmdir d*");
}

#[test]
fn files_with_pages_and_with_free_space_managers_keep_their_size() {
    for kind in [
        "fs_strategy='page', fs_page_size=4096",
        "fs_strategy='page', fs_persist=True",
        "fs_strategy='fsm', fs_persist=True",
        "userblock_size=1024",
    ] {
        let make = format!(
            "h5py.File(path, 'w', libver='latest', {kind}).create_dataset('d', data=np.arange(9000), chunks=(300,), compression='gzip')"
        );
        let odd = "for i in $(seq 40); do head -c $((i * 137)) /dev/urandom >f$i; done; head -c 72000 /dev/urandom >d";
        keeps_its_size(&make, odd, "rm f*; head -c 72000 /dev/zero >d");
    }
}

/// What the list of free space names is still free after another program changed the file, and other space is not.
#[test]
fn free_space_is_not_given_twice_after_other_writers() {
    let file = File::made(EMPTY);
    file.session("head -c 200000 /dev/urandom >a; head -c 200000 /dev/urandom >b; cp a ../a; cp b ../b");
    for round in 0..4 {
        file.session("rm a; cp ../b c");
        // Within the file, past its end, and not at all.
        let change =
            ["f['b'].attrs['note'] = 1", "f['x%d' % f.id.get_filesize()] = list(range(20000))", "pass", "del f['b']; f['b'] = f['c'][()]"]
                [round];
        h5py(&file.path, "r+", change);
        file.session("cp ../a a; rm c; mkdir -p g; cp ../b g/b");
        let same = |name: &str, want: &str| {
            let want = file.place.dir().join(want);
            assert_eq!(
                h5py(&file.path, "r", &format!("print(f['{name}'][()].tobytes() == open('{}', 'rb').read())", want.display())),
                "True\n"
            );
        };
        same("a", "a");
        same("b", "b");
        same("g/b", "b");
    }
}

#[test]
fn free_space_of_a_killed_session_is_not_used() {
    let file = File::made(EMPTY);
    file.session("head -c 200000 /dev/urandom >a; head -c 300000 /dev/urandom >b; cp b ../b; cp a ../a");
    file.session("rm a");
    let path = file.path.clone();
    // What this session writes is durable, and takes the space that was free.
    let place = Place::new();
    let mut mount = Mount::start(place, &path, &["--read-write"]);
    std::fs::copy(file.place.dir().join("a"), mount.path("kept")).unwrap();
    shell(&mount.place.mnt(), "sync kept");
    mount.daemon().kill().unwrap();
    mount.daemon().wait().unwrap();
    assert_eq!(run(h5dir(&["umount", "--lazy"]).arg(mount.place.mnt())), (0, String::new()));
    file.session("head -c 150000 /dev/urandom >new; rm b; cp ../b b; cp ../b b2");
    for (name, want) in [("kept", "a"), ("b", "b"), ("b2", "b")] {
        let want = file.place.dir().join(want);
        assert_eq!(h5py(&path, "r", &format!("print(f['{name}'][()].tobytes() == open('{}', 'rb').read())", want.display())), "True\n");
    }
}

fn tail(path: &Path) -> Vec<u8> {
    let bytes = std::fs::read(path).unwrap();
    bytes[bytes.len() - 16..].to_vec()
}

/// Regression: a mount that changes nothing would take the list, and lose it.
#[test]
fn a_session_without_changes_leaves_the_file_as_it_is() {
    let file = File::made(EMPTY);
    file.session("head -c 200000 /dev/urandom >a; head -c 1000 /dev/urandom >b");
    file.session("rm a");
    let (size, end) = (file.size(), tail(&file.path));
    assert!(end.windows(8).any(|w| w == b"H5dirFre"));
    file.session("cat b >/dev/null; ls -l");
    assert_eq!((file.size(), tail(&file.path)), (size, end));
}

/// A new file of 12 MB of text, open. Calls `written` after each piece.
fn written_in_pieces(path: &Path, mut written: impl FnMut()) -> std::fs::File {
    let mut f = std::fs::File::create_new(path).unwrap();
    for piece in 0..48 {
        f.write_all(format!("{piece:7}\n").repeat(1 << 15).as_bytes()).unwrap();
        written();
    }
    f
}

/// Regression: the bytes of a new file were stored when its chunks were enlarged and by timed commits, and again when
/// its type was set.
#[test]
fn a_file_that_is_described_is_stored_once() {
    let place = Place::new();
    let path = place.dir().join("f.h5");
    h5py(&path, "w", "pass");
    let mount = Mount::start(place, &path, &["--read-write", "--commit-interval=1"]);
    // Storage reserved for the bytes in memory reads as zeros.
    let is_stored_past = |at: usize| std::fs::read(&path).unwrap().get(at..).is_some_and(|rest| rest != vec![0; rest.len()]);
    let file = written_in_pieces(&mount.place.mnt().join("d"), || assert!(!is_stored_past(1_000_000)));
    std::thread::sleep(Duration::from_secs(2));
    assert!(!is_stored_past(1_000_000));
    shell(
        &mount.place.mnt(),
        r#"setfattr -n user.h5dir.dataset -v '{"dtype":"S8","shape":[1572864],"chunks":[100000],"filters":["deflate 1"]}' d"#,
    );
    drop(file);
    shell(&mount.place.mnt(), "sync d");
    assert!(!is_stored_past(1_000_000));
    // A file without a type is made durable, be it open or not.
    let file = written_in_pieces(&mount.place.mnt().join("open"), || ());
    let deadline = Instant::now() + Duration::from_secs(60);
    while !is_stored_past(12_000_000) {
        assert!(Instant::now() < deadline, "the bytes are not stored");
        std::thread::sleep(Duration::from_millis(200));
    }
    drop(file);
    assert_eq!(run(h5dir(&["umount"]).arg(mount.place.mnt())), (0, String::new()));
    assert!(std::fs::metadata(&path).unwrap().len() < 13_500_000);
    h5py(
        &path,
        "r",
        "assert f['d'].shape == (48 << 15,) and f['open'].shape == (48 << 18,) and f['open'][:].tobytes() == f['d'][:].tobytes()",
    );
}
