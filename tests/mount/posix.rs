//! What pjdfstest found: times of objects and directories, as POSIX wants them.

use super::mounted::Mount;
use super::support::{Place, eventually, h5dir, run};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A new file, mounted for writing.
fn new(libver: &str) -> Mount {
    let place = Place::new();
    let file = place.dir().join("new.h5");
    assert_eq!(run(&mut h5dir(&["create", "--libver", libver, file.to_str().unwrap()])).0, 0);
    Mount::start(place, &file, &["--read-write"])
}

#[derive(Debug, Clone, Copy, PartialEq, PartialOrd)]
struct Times {
    modified: (i64, i64),
    changed: (i64, i64),
}

fn times(path: &Path) -> Times {
    let m = fs::symlink_metadata(path).unwrap();
    Times { modified: (m.mtime(), m.mtime_nsec()), changed: (m.ctime(), m.ctime_nsec()) }
}

/// Does `f`; the times of `path` before it and, perhaps by another name, after it.
fn around(path: &Path, after: &Path, f: impl FnOnce()) -> (Times, Times) {
    let before = times(path);
    std::thread::sleep(Duration::from_millis(20));
    f();
    (before, times(after))
}

#[test]
fn names_change_the_times_of_what_has_them_and_of_where_they_are() {
    for libver in ["v110", "earliest"] {
        let mount = new(libver);
        let path = |p: &str| mount.path(p);
        fs::create_dir(path("d")).unwrap();
        fs::write(path("d/f"), b"text").unwrap();
        let changed_only = |(a, b): (Times, Times)| assert!(b.changed > a.changed && b.modified == a.modified, "{libver}: {a:?} {b:?}");
        let both = |(a, b): (Times, Times)| assert!(b.changed > a.changed && b.modified > a.modified, "{libver}: {a:?} {b:?}");
        changed_only(around(&path("d/f"), &path("d/f"), || fs::hard_link(path("d/f"), path("d/g")).unwrap()));
        changed_only(around(&path("d/f"), &path("d/f"), || fs::remove_file(path("d/g")).unwrap()));
        changed_only(around(&path("d/f"), &path("d/h"), || fs::rename(path("d/f"), path("d/h")).unwrap()));
        changed_only(around(&path("d"), &path("e"), || fs::rename(path("d"), path("e")).unwrap()));
        both(around(&path("e"), &path("e"), || fs::create_dir(path("e/inner")).unwrap()));
        both(around(&path("e"), &path("e"), || fs::remove_dir(path("e/inner")).unwrap()));
        both(around(&path("e"), &path("e"), || std::os::unix::fs::symlink("h", path("e/soft")).unwrap()));
        both(around(&path("e"), &path("e"), || fs::remove_file(path("e/soft")).unwrap()));
        both(around(&path("e/h"), &path("e/h"), || {
            fs::OpenOptions::new().write(true).open(path("e/h")).unwrap().set_len(100).unwrap();
        }));
        // One name put over another of two: what is left of the object was changed.
        fs::write(path("x"), b"1").unwrap();
        fs::write(path("y"), b"2").unwrap();
        fs::hard_link(path("y"), path("z")).unwrap();
        changed_only(around(&path("z"), &path("z"), || fs::rename(path("x"), path("y")).unwrap()));
    }
}

#[test]
fn times_that_are_set_are_told_exactly_and_kept_in_seconds() {
    let mut mount = new("v110");
    let file = mount.path("f");
    fs::write(&file, b"text").unwrap();
    let at = |seconds, nanos| UNIX_EPOCH + Duration::new(seconds, nanos);
    let (accessed, modified) = (at(1_900_000_000, 100_000_002), at(2_200_000_000, 300_000_004));
    let set = fs::FileTimes::new().set_accessed(accessed).set_modified(modified);
    fs::OpenOptions::new().write(true).open(&file).unwrap().set_times(set).unwrap();
    let told = |m: &fs::Metadata| -> [SystemTime; 2] { [m.accessed().unwrap(), m.modified().unwrap()] };
    assert_eq!(told(&fs::metadata(&file).unwrap()), [accessed, modified]);
    assert_eq!(mount.terminate(), Some(0));
    let place = std::mem::replace(&mut mount.place, Place::new());
    let container = place.dir().join("new.h5");
    let mount = Mount::start(place, &container, &["--read-write"]);
    assert_eq!(told(&fs::metadata(mount.path("f")).unwrap()), [at(1_900_000_000, 0), at(2_200_000_000, 0)]);
}

fn script(mount: &Mount, script: &str) -> String {
    let mut command = std::process::Command::new("timeout");
    command.args(["60", "bash", "-ec", script]).current_dir(mount.place.mnt()).stdin(std::process::Stdio::null());
    let output = command.output().unwrap();
    assert!(output.status.success(), "{script}: {}; log: {}", String::from_utf8_lossy(&output.stderr), mount.log());
    String::from_utf8(output.stdout).unwrap()
}

fn python(mount: &Mount, program: &str) -> String {
    let mut command = std::process::Command::new("timeout");
    command.arg("60").arg(super::python::with_h5py()).args(["-c", program]).current_dir(mount.place.mnt());
    let output = command.stdin(std::process::Stdio::null()).output().unwrap();
    assert!(output.status.success(), "{}; log: {}", String::from_utf8_lossy(&output.stderr), mount.log());
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn any_time_can_be_set() {
    let mount = new("v110");
    let set = "for t in @-9223372036854775808 @9223372036854775807 @-0.5 '1960-01-01 10:00:00.123456789Z'; do
        touch f -d \"$t\"; done; TZ=UTC stat -c %y f; touch -d @-0.25 f; TZ=UTC stat -c %y f";
    let want = "1960-01-01 10:00:00.123456789 +0000\n1969-12-31 23:59:59.750000000 +0000\n";
    assert_eq!((script(&mount, set), mount.log()), (want.into(), String::new()));
}

#[test]
fn attributes_change_no_modification_time() {
    for libver in ["v110", "earliest"] {
        let mount = new(libver);
        let set = "echo text > a; mkdir d; cp a d/f; touch -d @1577836800 a d/f d
            setfattr -n user.k -v v a; setfattr -n user.h5dir.chunks -v [7] a; setfattr -n user.i -v v d; setfattr -x user.i d
            setfattr -n user.h5dir.dtype -v '\"int8\"' d/f
            cp -a d e; tar --xattrs --xattrs-include='user.*' -cf - d | (mkdir t; tar --xattrs --xattrs-include='user.*' -C t -xf -)
            stat --cached=never -c %Y a d d/f e e/f t/d t/d/f; stat -c %Z a | grep -v 15778";
        let told = script(&mount, set);
        assert!(told.starts_with(&"1577836800\n".repeat(7)), "{libver}: {told}");
        let again = mount.place.dir().join("new.h5");
        drop(script(&mount, "touch -d @1577836800 a; setfattr -n user.m -v v a; sync a"));
        let stat = h5dir(&["stat", "--json", &format!("{}:/a", again.display())]).output().unwrap();
        assert!(
            String::from_utf8_lossy(&stat.stdout).contains("2020-01-01T00:00:00"),
            "{libver}: {}",
            String::from_utf8_lossy(&stat.stdout)
        );
        script(
            &mount,
            ": > z; touch -d @1577836800 z; setfattr -n user.h5dir.shape -v [9] z; test $(stat --cached=never -c %s%Y z) -gt 91577836800",
        );
    }
}

#[test]
fn what_fcntl_takes_off_a_descriptor_does_not_hold_any_more() {
    let mount = new("v110");
    let told = python(
        &mount,
        "import os, fcntl
for mode in (os.O_WRONLY, os.O_RDWR):
    f = os.open('f', mode | os.O_CREAT | os.O_TRUNC | os.O_APPEND); os.write(f, b'0123456789'); os.pwrite(f, b'x', 0)
    fcntl.fcntl(f, fcntl.F_SETFL, 0); os.pwrite(f, b'A', 2); os.lseek(f, 5, 0); os.write(f, b'B')
    fcntl.fcntl(f, fcntl.F_SETFL, os.O_APPEND); os.lseek(f, 0, 0); os.write(f, b'C')
    os.close(f); print(open('f').read())",
    );
    assert_eq!(told, "01A34B6789xC\n".repeat(2));
}

#[test]
fn a_removed_directory_has_attributes_while_it_is_open() {
    let mount = new("v110");
    let told = python(
        &mount,
        "import os
os.mkdir('d'); f = os.open('d', os.O_RDONLY); os.setxattr(f, 'user.a', b'1'); os.rmdir('d'); os.mkdir('d')
os.utime(f); os.setxattr(f, 'user.b', b'2'); os.fchmod(f, 0o755); os.fsync(f)
print(os.fstat(f).st_nlink, os.getxattr(f, 'user.a'), *[[a for a in os.listxattr(d) if 'h5dir' not in a] for d in (f, 'd')])
os.mkdir('e'); os.chdir('e'); os.rmdir('../e'); os.close(os.open('.', os.O_RDONLY))",
    );
    assert_eq!(told, "0 b'1' ['user.a', 'user.b'] []\n");
}

/// A daemon to which a shell gives limits.
fn limited(limits: &str, place: Place, file: &Path) -> Mount {
    let mut command = std::process::Command::new("sh");
    command.args(["-c", &format!("{limits}; exec \"$@\""), "sh"]);
    let mount = h5dir(&["mount", "-f"]);
    command.arg(mount.get_program()).args(mount.get_args());
    command.envs(mount.get_envs().filter_map(|(k, v)| Some((k, v?))));
    Mount::start_by(command, place, file, &["--read-write"])
}

#[test]
fn a_process_that_may_not_write_large_files_gets_errors() {
    let place = Place::new();
    let file = place.dir().join("new.h5");
    assert_eq!(run(&mut h5dir(&["create", file.to_str().unwrap()])).0, 0);
    let mount = limited("ulimit -f 1024", place, &file);
    let told = script(
        &mount,
        "echo first > a; sync a; ! dd if=/dev/urandom of=b bs=100k count=20 conv=fsync 2>&1; cat a; rm -f b; echo c > c; sync c",
    );
    assert!(told.contains("File too large") && told.ends_with("first\n"), "{told}");
}

#[test]
fn a_mount_with_few_descriptors_is_refused() {
    let place = Place::new();
    let file = place.dir().join("new.h5");
    assert_eq!(run(&mut h5dir(&["create", file.to_str().unwrap()])).0, 0);
    for files in [7, 12, 20, 40] {
        let mut command = std::process::Command::new("timeout");
        command.args(["20", "sh", "-c", &format!("ulimit -n {files}; exec \"$@\""), "sh"]);
        command.arg(h5dir(&[]).get_program()).args(["mount", "--read-write"]).arg(&file).arg(place.mnt());
        let (code, told) = run(&mut command);
        assert!(code == 1 && told.contains("ulimit -n"), "{files}: {code}, {told}");
    }
    let mount = limited("ulimit -Sn 12", place, &file);
    assert_eq!(script(&mount, "echo a > a; cat a"), "a\n");
}

#[test]
fn a_mount_with_little_address_space_is_refused_and_none_aborts() {
    let place = Place::new();
    let file = place.dir().join("new.h5");
    assert_eq!(run(&mut h5dir(&["create", file.to_str().unwrap()])).0, 0);
    for kib in [60_000, 200_000, 300_000, 400_000, 500_000] {
        let mut command = std::process::Command::new("timeout");
        command.args(["20", "sh", "-c", &format!("ulimit -v {kib}; exec \"$@\""), "sh"]);
        command.arg(h5dir(&[]).get_program()).args(["mount", "--read-write"]).arg(&file).arg(place.mnt());
        let (code, told) = run(&mut command);
        assert!(code == 1 && told.contains("ulimit -v"), "{kib}: {code}, {told}");
    }
    let mount = limited("ulimit -v 800000", place, &file);
    assert_eq!(script(&mount, "head -c 50000000 /dev/zero > a; sync a; cat a | wc -c"), "50000000\n");
}

#[test]
fn signals_that_ask_for_nothing_do_not_end_the_daemon() {
    use nix::sys::signal::{Signal, kill};
    let place = Place::new();
    let file = place.dir().join("new.h5");
    assert_eq!(run(&mut h5dir(&["create", file.to_str().unwrap()])).0, 0);
    let mut mount = Mount::start(place, &file, &["--read-write"]);
    let pid = nix::unistd::Pid::from_raw(mount.daemon().id() as i32);
    for signal in [Signal::SIGUSR1, Signal::SIGUSR2, Signal::SIGPIPE, Signal::SIGALRM, Signal::SIGIO, Signal::SIGPROF, Signal::SIGVTALRM] {
        kill(pid, signal).unwrap();
        assert_eq!(script(&mount, &format!("echo {signal} > a; cat a")), format!("{signal}\n"));
    }
    // SAFETY: no memory is involved; the process is this test's child.
    assert_eq!(unsafe { libc::kill(pid.as_raw(), libc::SIGRTMIN() + 3) }, 0);
    assert_eq!(script(&mount, "cat a"), "SIGVTALRM\n");
    kill(pid, Signal::SIGQUIT).unwrap();
    eventually("the daemon ends", || mount.daemon().try_wait().unwrap().is_some_and(|status| status.code() == Some(0)));
}
