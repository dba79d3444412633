//! The file is changed by h5py while it is mounted read-only: the mount shows it soon, through all that the kernel remembers.

use super::mounted::{Mount, getxattr, listxattr, shell};
use super::python;
use super::support::{Place, eventually};
use super::writing::h5py;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};

const OFTEN: &str = "--check-interval=0.1";

fn made(program: &str) -> (Place, PathBuf) {
    let place = Place::new();
    let file = place.dir().join("f.h5");
    h5py(&file, "w", program);
    (place, file)
}

fn mounted(program: &str) -> (Mount, PathBuf) {
    let (place, file) = made(program);
    (Mount::start(place, &file, &[OFTEN]), file)
}

fn numbers(range: std::ops::Range<i64>) -> Vec<u8> {
    range.flat_map(i64::to_le_bytes).collect()
}

/// A process that does, line by line, what it is told; it prints a line after each.
struct Writer(Ended, ChildStdin);

/// A process that is ended when this is dropped.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Writer {
    fn start(file: &std::path::Path, open: &str) -> Self {
        let program = format!("import h5py, sys, numpy as np\nf = {open}\nfor line in sys.stdin:\n    exec(line)\n    print(flush=True)\n");
        let mut command = Command::new(python::with_h5py());
        let mut child = command.args(["-c", &program]).arg(file).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let input = child.stdin.take().unwrap();
        Writer(Ended(child), input)
    }

    fn tell(&mut self, line: &str) {
        writeln!(self.1, "{line}").unwrap();
        let mut answer = [0];
        self.0.0.stdout.as_mut().unwrap().read_exact(&mut answer).unwrap();
    }
}

#[test]
fn bytes_sizes_names_and_attributes_are_the_new_ones() {
    let (mount, file) = mounted(
        "import numpy as np; g = f.create_group('g'); f['plain'] = np.arange(1000); f['old'] = 1; f['both'] = 5; f['same'] = f['both']
    f.create_dataset('rows', data=np.arange(100), maxshape=(None,), chunks=(10,), compression='gzip'); g['x'] = 'text'
    g.attrs['a'] = 'one'; f['link'] = h5py.SoftLink('/plain'); f['strings'] = ['a', 'bc']",
    );
    // All of it is in the kernel's memory before.
    shell(mount.place.dir(), "ls -lR mnt >/dev/null; cat mnt/plain mnt/rows mnt/strings mnt/same >/dev/null; ! test -e mnt/new");
    let (mut open, plain) = (File::open(mount.path("rows")).unwrap(), File::open(mount.path("plain")).unwrap());
    let mut all = Vec::new();
    open.read_to_end(&mut all).unwrap();
    assert_eq!(all, numbers(0..100));
    // SAFETY: the file stays 8000 bytes long; the pages are only read.
    let mapped =
        unsafe { libc::mmap(std::ptr::null_mut(), 8000, libc::PROT_READ, libc::MAP_SHARED, std::os::fd::AsRawFd::as_raw_fd(&plain), 0) };
    assert_ne!(mapped, libc::MAP_FAILED);
    // SAFETY: within the mapping, which lives as long as the test.
    let first = || unsafe { mapped.cast::<i64>().read_volatile() };
    assert_eq!(first(), 0);
    let ino = mount.path("plain").metadata().unwrap().ino();
    h5py(
        &file,
        "r+",
        "f['rows'].resize((250,)); f['rows'][100:] = range(100, 250); f['plain'][:2] = [7, 8]; del f['old']; f['new/deep'] = 3
    f['g'].attrs['a'] = 'two'; f['g'].attrs['b'] = 5; del f['link']; f['link'] = h5py.SoftLink('/rows'); del f['both']
    f['strings'][1] = 'cde'; f['g/y'] = 1",
    );
    eventually("the mapping shows it", || first() == 7);
    eventually("the new rows are there", || mount.read("rows") == numbers(0..250));
    eventually("new names are there", || mount.path("new/deep").exists());
    eventually("old ones are not", || !mount.path("old").exists() && !mount.path("both").exists());
    assert_eq!(mount.names(""), ["g", "link", "new", "plain", "rows", "same", "strings"]);
    assert_eq!(
        (mount.names("g"), mount.link("link").as_str(), mount.text("strings").as_str()),
        (vec!["x".into(), "y".into()], "./rows", "a\ncde\n")
    );
    assert_eq!(
        (mount.xattr("g", "a").as_str(), mount.xattr("g", "b").as_str(), mount.xattr("rows", "h5dir.shape").as_str()),
        ("two", "5", "[250]")
    );
    assert!(listxattr(&mount.path("g")).contains(&"user.b".into()) && getxattr(&mount.path("g"), "user.c").is_err());
    assert_eq!((mount.read("same"), mount.path("same").metadata().unwrap().nlink()), (5i64.to_le_bytes().to_vec(), 1));
    // What was open goes on.
    open.read_to_end(&mut all).unwrap();
    assert_eq!((all.len(), open.seek(SeekFrom::End(0)).unwrap()), (2000, 2000));
    let mut head = [0; 16];
    plain.read_exact_at(&mut head, 0).unwrap();
    assert_eq!((head[0], head[8], mount.path("plain").metadata().unwrap().ino()), (7, 8, ino));
    assert!(!mount.log().contains("ERROR"), "{}", mount.log());
    // SAFETY: the mapping made above.
    unsafe { libc::munmap(mapped, 8000) };
}

#[test]
fn a_file_made_anew_in_place_is_shown_by_its_paths() {
    let (mount, file) = mounted("f['a'] = [1]; f['g/b'] = [2]; f['kind/x'] = 1; f['z'] = 'z'; f.attrs['v'] = 1");
    let open = File::open(mount.path("a")).unwrap();
    let gone = File::open(mount.path("z")).unwrap();
    shell(mount.place.dir(), "cat mnt/a mnt/g/b mnt/kind/x >/dev/null; ls -R mnt >/dev/null");
    let mut inside = Command::new("sh");
    inside.args(["-c", "cd mnt/g && read line; ls; cat b; /bin/pwd -P"]).current_dir(mount.place.dir());
    let mut inside = inside.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    h5py(&file, "w", "f['first'] = [9] * 100; f['kind'] = [3]; f['g/b'] = 'other'; f['g/c'] = 1; f['a'] = [4]; f.attrs['v'] = 2");
    eventually("it is the new file", || mount.path("first").exists() && mount.path("kind").is_file());
    eventually("also for who has it open", || {
        let mut b = [0; 8];
        open.read_exact_at(&mut b, 0).is_ok() && b[0] == 4
    });
    assert_eq!(
        (mount.names(""), mount.names("g")),
        (vec!["a".into(), "first".into(), "g".into(), "kind".into()], vec!["b".into(), "c".into()])
    );
    assert_eq!((mount.text("g/b").as_str(), mount.read("kind")[0], mount.xattr("", "v").as_str()), ("other\n", 3, "2"));
    assert_eq!(gone.read_at(&mut [0; 8], 0).unwrap_err().raw_os_error(), Some(libc::ESTALE));
    inside.stdin.take().unwrap().write_all(b"\n").unwrap();
    let output = String::from_utf8(inside.wait_with_output().unwrap().stdout).unwrap();
    assert_eq!(output, format!("b\nc\nother\n{}\n", mount.path("g").display()));
}

#[test]
fn a_file_that_takes_the_name_is_shown_if_it_can_be() {
    let (mount, file) = mounted("f['v'] = [1]; f['g/x'] = [1]");
    let folder = mount.place.dir().to_owned();
    let replace = |make: &dyn Fn(&std::path::Path)| {
        make(&folder.join("t"));
        std::fs::rename(folder.join("t"), &file).unwrap();
    };
    assert_eq!(mount.read("v")[0], 1);
    replace(&|t| drop(h5py(t, "w", "f['pad'] = [0] * 50; f['g/x'] = [2, 2]; f['v'] = [2]")));
    eventually("the second file", || mount.read("v")[0] == 2 && mount.read("g/x").len() == 16);
    replace(&|t| std::fs::write(t, "no HDF5").unwrap());
    eventually("the warning", || mount.log().contains("cannot be read now"));
    assert_eq!(mount.read("v")[0], 2);
    replace(&|t| drop(h5py(t, "w", "f['v'] = [3]")));
    eventually("the third file", || mount.read("v")[0] == 3 && !mount.path("g").exists());
    // Without its name it is still changed by who has it open.
    let mut writer = Writer::start(&file, "h5py.File(sys.argv[1], 'r+')");
    writer.tell("pass");
    std::fs::remove_file(&file).unwrap();
    writer.tell("f['v'][0] = 4; f.close()");
    eventually("it has no name", || mount.read("v")[0] == 4);
    h5py(&file, "w", "f['v'] = [5]");
    eventually("the fourth file", || mount.read("v")[0] == 5);
    // No link is followed to where it leads now.
    h5py(&folder.join("other"), "w", "f['v'] = [6]");
    replace(&|t| std::os::unix::fs::symlink("other", t).unwrap());
    std::thread::sleep(std::time::Duration::from_millis(400));
    assert_eq!(mount.read("v")[0], 5);
}

#[test]
fn tail_follows_a_writer_in_swmr_mode() {
    let (place, file) = made("pass");
    std::fs::remove_file(&file).unwrap();
    let mut writer = Writer::start(&file, "h5py.File(sys.argv[1], 'w', libver='latest')");
    writer.tell("d = f.create_dataset('log', (0,), 'S8', maxshape=(None,), chunks=(4,)); f.swmr_mode = True");
    let mount = Mount::start(place, &file, &[OFTEN]);
    let out = File::create(mount.place.dir().join("out")).unwrap();
    let mut tail = Command::new("tail");
    tail.args(["-c", "+1", "-s", "0.05", "-f", "mnt/log"]).current_dir(mount.place.dir());
    let mut tail = Ended(tail.stdout(out).stderr(Stdio::null()).spawn().unwrap());
    let mut wanted = String::new();
    for i in 0..30 {
        writer.tell(&format!("d.resize(({},)); d[{i}] = b'{i:07}.'; d.flush()", i + 1));
        wanted.push_str(&format!("{i:07}."));
        if i % 10 == 9 {
            eventually("the rows come", || std::fs::read_to_string(mount.place.dir().join("out")).unwrap().len() == wanted.len());
        }
    }
    assert!(tail.0.try_wait().unwrap().is_none());
    assert_eq!(std::fs::read_to_string(mount.place.dir().join("out")).unwrap(), wanted);
    assert_eq!(mount.text("log"), wanted);
}

#[test]
fn readers_live_through_a_file_that_is_written_all_the_time() {
    let (mut mount, file) = mounted("f['v'] = [1]");
    let program = "import h5py, sys, time, os, numpy as np
end = time.time() + 6; n = 0
while time.time() < end:
    n += 1
    mode = ['w', 'r+', 'r+'][n % 3] if n > 1 else 'w'
    with h5py.File(sys.argv[1], mode, libver=['earliest', 'latest'][n // 3 % 2]) as f:
        for i in range(20):
            name = 'g%d/d%d' % (i % 3, i)
            if name in f: del f[name]
            f.create_dataset(name, data=np.full(100 * (n % 7 + 1), n), chunks=(50,), compression='gzip')
            f[name].attrs['n'] = n
    if n % 5 == 0:
        with h5py.File(sys.argv[1] + '.t', 'w') as f: f['g0/d0'] = np.full(10, n); f['h1'] = n
        os.rename(sys.argv[1] + '.t', sys.argv[1])
with h5py.File(sys.argv[1] + '.t', 'w') as f: f['end'] = [1, 2, 3]
os.rename(sys.argv[1] + '.t', sys.argv[1])
";
    let mut writer = Command::new(python::with_h5py()).args(["-c", program]).arg(&file).spawn().unwrap();
    let script = "while ! test -e done; do find mnt -type f -exec cat {} + ; ls -lR mnt; find mnt -exec getfattr -d -- {} +; \
        cat mnt/.h5dir/exact/g0/d0; find mnt/.h5dir/chunks; done >/dev/null 2>&1";
    let readers: Vec<Child> =
        (0..3).map(|_| Command::new("timeout").args(["20", "sh", "-c", script]).current_dir(mount.place.dir()).spawn().unwrap()).collect();
    assert!(writer.wait().unwrap().success());
    std::fs::write(mount.place.dir().join("done"), "").unwrap();
    for mut reader in readers {
        eventually("the readers end", || reader.try_wait().unwrap().is_some());
    }
    eventually("the last state is shown", || {
        mount.names("") == ["end"] && mount.read("end") == [1i64, 2, 3].map(i64::to_le_bytes).concat()
    });
    assert!(mount.counter("changes_noticed") > 5 && mount.daemon().try_wait().unwrap().is_none());
    assert!(!mount.log().contains("panic"), "{}", mount.log());
}

#[test]
fn other_files_that_are_shown_are_followed_too() {
    let place = Place::new();
    let (file, other) = (place.dir().join("f.h5"), place.dir().join("o.h5"));
    h5py(&other, "w", "f.create_dataset('d', data=[1, 2], maxshape=(None,))");
    h5py(&file, "w", "f['e'] = h5py.ExternalLink('o.h5', '/d')");
    let mount = Mount::start(place, &file, &[OFTEN]);
    assert_eq!(mount.read("e").len(), 16);
    h5py(&other, "r+", "f['d'].resize((3,)); f['d'][:] = [4, 5, 6]");
    eventually("it is longer", || mount.read("e") == [4i64, 5, 6].map(i64::to_le_bytes).concat());
}

#[test]
fn with_no_interval_the_file_counts_as_one_that_never_changes() {
    let (place, file) = made("f['v'] = [1]");
    let mount = Mount::start(place, &file, &["--check-interval=0"]);
    assert_eq!((mount.read("v")[0], mount.counter("changes_noticed")), (1, 0));
    h5py(&file, "r+", "f['v'][0] = 2; f['w'] = 1");
    std::thread::sleep(std::time::Duration::from_millis(1500));
    // Which bytes are read depends on the pages that the kernel still keeps.
    assert_eq!((mount.names(""), mount.counter("changes_noticed")), (vec!["v".into()], 0));
}

#[test]
fn a_mount_locks_nothing_and_keeps_no_writer_out() {
    let (mount, file) = mounted("f['v'] = [1]");
    let mut writer = Writer::start(&file, "h5py.File(sys.argv[1], 'r+')");
    writer.tell("f['v'][0] = 2; f.flush()");
    eventually("it is seen before the writer ends", || mount.read("v")[0] == 2);
}

#[test]
fn a_hundred_thousand_names_are_told_of_without_stopping_anybody() {
    let (mount, file) = mounted("g = f.create_group('g'); [g.create_group('%05d' % i) for i in range(5000)]; f['v'] = [1]");
    shell(mount.place.dir(), "ls -lR mnt >/dev/null");
    h5py(&file, "r+", "del f['g/00007']; f['v'][0] = 2; f['g/new'] = 1");
    eventually("the new state", || mount.read("v")[0] == 2 && !mount.path("g/00007").exists() && mount.path("g/new").exists());
    eventually("the whole listing", || mount.names("g").len() == 5000);
}

#[test]
fn commits_of_a_mount_for_writing_are_seen() {
    let (place, file) = made("f['v'] = [1]");
    let (writer, reader) = (Mount::start(place, &file, &["--read-write"]), Mount::start(Place::new(), &file, &[OFTEN]));
    for i in 0..12 {
        let script = format!(
            "mkdir d{i}; for n in 1 2 3 4 5; do echo $n >d{i}/$n; done; sync d{i}; rm d{i}/3; find '{}' >/dev/null",
            reader.place.mnt().display()
        );
        shell(&writer.place.mnt(), &script);
    }
    shell(&writer.place.mnt(), "sync d1");
    eventually("the last commit", || {
        (0..12).all(|i| reader.names("").len() == 13 && reader.names(&format!("d{i}")) == ["1", "2", "4", "5"])
    });
    assert_eq!(reader.text("d7/5"), "5\n");
    assert!(!reader.log().contains("panic"), "{}", reader.log());
}

/// What the mount knows of `d` leads to space that the writer has freed.
#[test]
fn a_dataset_whose_space_was_used_again_does_not_show_the_bytes_of_another() {
    const ROUNDS: usize = 4;
    let make = "import numpy as np
    for i in range(4): f.create_dataset('d%d' % i, data=np.full((8, 20000), 1, 'u1'), chunks=(1, 20000), maxshape=(None, 20000))";
    let replace = "import numpy as np
    n = sum(k.startswith('new') for k in f); del f['d%d' % n]; f.create_dataset('new%d' % n, data=np.full((8, 20000), 9, 'u1'), chunks=(1, 20000))
    f.create_dataset('more%d' % n, data=np.full((8, 20000), 9, 'u1'), chunks=(1, 20000))";
    for by_mount in [true, false] {
        let (place, file) = made(make);
        let reader = Mount::start(place, &file, &["--check-interval=3600"]);
        let writer = by_mount.then(|| Mount::start(Place::new(), &file, &["--read-write", "--commit-interval=0"]));
        for i in 0..ROUNDS {
            let open = File::open(reader.path(&format!("d{i}"))).unwrap();
            // SAFETY: the descriptor is open.
            let advice = unsafe { libc::posix_fadvise(std::os::fd::AsRawFd::as_raw_fd(&open), 0, 0, libc::POSIX_FADV_RANDOM) };
            assert_eq!(advice, 0);
            let mut row = [0; 1000];
            // The chunk index is known now; the other chunks are not.
            open.read_exact_at(&mut row, 0).unwrap();
            assert_eq!(row, [1; 1000]);
            match &writer {
                Some(writer) => drop(shell(
                    &writer.place.mnt(),
                    &format!(
                        "rm d{i}; sync .; for n in 1 2 3 4; do head -c 160000 /dev/zero | tr '\\0' '\\11' >new{i}-$n; sync new{i}-$n; done"
                    ),
                )),
                None => drop(h5py(&file, "r+", replace)),
            }
            match open.read_exact_at(&mut row, 100_000) {
                Ok(()) => assert_eq!(row, [1; 1000], "round {i}, by a mount: {by_mount}"),
                Err(e) => assert!([libc::EIO, libc::ESTALE].contains(&e.raw_os_error().unwrap_or(0)), "{e}"),
            }
        }
    }
}
