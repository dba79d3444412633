//! What other users of the machine can do to mounting, unmounting, and to what is printed.

use super::mounted::copy_fixture;
use super::namespace::in_own_namespace;
use super::support::{Place, h5dir, is_mounted, run};
use h5dir::base::escape::is_unsafe;
use h5dir::fuse::{mounts, unmount};
use nix::fcntl::{AT_FDCWD, RenameFlags, renameat2};
use std::ffi::{OsStr, OsString};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{lchown, symlink};
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::Path;
use std::process::{Command, Output};
use std::sync::atomic::{AtomicBool, Ordering};

const NOBODY: u32 = 65_534;

/// Regression: any user could take the name by which a daemon is found, so that `umount` hung, waited for the wrong process, or printed
/// what that user sent.
#[test]
fn abstract_sockets_do_not_concern_umount() {
    let place = Place::new();
    let file = copy_fixture("links", place.dir());
    assert_eq!(run(h5dir(&["mount"]).arg(&file).arg(place.mnt())), (0, String::new()));
    let device = mounts::top_at(&place.mnt()).unwrap().unwrap().device;
    let taken = (0..32).filter_map(|n| {
        let address = SocketAddr::from_abstract_name(format!("h5dir/mount/{device}/{n}")).unwrap();
        UnixListener::bind_addr(&address).ok()
    });
    let taken: Vec<_> = taken.collect();
    assert_eq!(taken.len(), 32, "no daemon uses these names");
    assert_eq!(run(h5dir(&["umount"]).arg(place.mnt())), (0, String::new()));
}

/// Runs as root in a mount namespace with a /run of its own, where users may open /dev/fuse: FOLDER FILE PYTHON.
const AS_ROOT: &str = r#"
    set -eu
    trap 'echo "failed at line $LINENO" >&2; cat said >&2' ERR
    mount -t tmpfs -o mode=755 tmpfs /run
    install -d -o 65534 -m 700 /run/user/65534
    mknod -m 666 "$1/fuse" c 10 229
    mount --bind "$1/fuse" /dev/fuse
    cd "$1"
    # No function: the process in the background is the program.
    as_user="setpriv --reuid=65534 --clear-groups --inh-caps=-all env -u XDG_RUNTIME_DIR"
    sockets=/run/user/65534/h5dir
    clean() {
        [ -z "${taken:-}" ] || kill -9 "$taken"
        umount -l mnt $sockets 2>/dev/null || :
    }
    trap clean EXIT
    mounted() { $as_user ./h5dir mount "$@" f.h5 mnt; device=$(awk -v at="$PWD/mnt" '$5 == at { print $3 }' /proc/self/mountinfo); }
    in_time() { timeout -s KILL 20 "$@"; }
    # The daemon that umount did not find has closed the file.
    closed() { until flock -n f.h5 true; do sleep 0.01; done; }

    # The daemon of the user is waited for: its socket is gone with it.
    mounted --read-write
    ls $sockets | grep -q "^$device\\."
    in_time ./h5dir umount mnt 2>said
    [ ! -s said ]
    [ -z "$(ls $sockets)" ]

    # The user unmounts, too.
    mounted --read-write
    $as_user ./h5dir umount mnt 2>said
    [ ! -s said ]
    [ -z "$(ls $sockets)" ]

    # A killed daemon leaves its socket, which the next one removes.
    mounted
    kill -9 "$(ls $sockets | cut -d. -f2)"
    while $as_user stat -f mnt >/dev/null 2>&1; do sleep 0.01; done
    [ "$(ls $sockets | wc -l)" = 1 ]
    mounted
    [ "$(ls $sockets | wc -l)" = 1 ]

    # A socket of the user that takes no connection, and one that sends what a terminal acts upon.
    $as_user ./h5dir umount mnt
    mounted --read-write
    $as_user "$2" -c '
import os, socket, sys, time
def listen(name, backlog):
    s = socket.socket(socket.AF_UNIX)
    s.bind(sys.argv[1] + name)
    s.listen(backlog)
    return s
# Later than the daemon.
loud = listen(".1.9999999999999999998", 9)
if os.fork() == 0:
    peer, _ = loud.accept()
    peer.send(b"\x1b[2J\x1b]0;owned\x07the disk is full\nrun: me\n" * 100)
    peer.close()
    os._exit(0)
full = listen(".1.9999999999999999999", 0)
waiting = socket.socket(socket.AF_UNIX)
waiting.connect(sys.argv[1] + ".1.9999999999999999999")
# Keeps the full socket open after this process.
if os.fork() == 0:
    time.sleep(5)
    os._exit(0)
print("up", flush=True)
os.wait()
loud.close()
# What umount waits for is the end of the process that listened: this one.
' "$sockets/$device" >up & taken=$!
    until grep -q up up; do sleep 0.01; done
    ! in_time ./h5dir umount mnt 2>said
    taken=
    grep -q 'cannot find its daemon' said
    [ "$(wc -l <said)" = 1 ]
    [ -z "$(tr -d '\040-\176\n' <said)" ]
    [ -z "$(grep 'run: me' said)" ]
    closed

    # A file system of the user in the place of the sockets is not asked for anything.
    rm -r $sockets
    mounted --read-write
    rm -r $sockets
    $as_user mkdir -m 700 $sockets
    cp -p f.h5 g.h5
    $as_user ./h5dir mount g.h5 $sockets 2>said
    ! in_time ./h5dir umount mnt 2>said
    grep -q 'cannot find its daemon' said
    umount -l $sockets
    closed

    # Without a directory in /run: that in /tmp. One that another user made is not used.
    place=$PWD
    mkdir /run/place
    mount --bind . /run/place
    mount -t tmpfs -o mode=1777 tmpfs /tmp
    mkdir -p "$place"
    mount --bind /run/place "$place"
    cd "$place"
    rm -r /run/user/65534
    mounted --read-write
    [ "$(ls /tmp/h5dir-65534 | wc -l)" = 1 ] && [ "$(stat -c %a:%u /tmp/h5dir-65534)" = 700:65534 ]
    in_time ./h5dir umount mnt
    [ -z "$(ls /tmp/h5dir-65534)" ]
    rm -r /tmp/h5dir-65534
    setpriv --reuid=65533 --clear-groups mkdir -m 777 /tmp/h5dir-65534
    mounted --read-write
    ! in_time ./h5dir umount mnt 2>said
    grep -q 'cannot find its daemon' said
    [ -z "$(ls /tmp/h5dir-65534)" ]
    closed
    # It has nothing to write.
    mounted
    in_time ./h5dir umount mnt 2>said
    [ ! -s said ]
"#;

#[test]
fn root_unmounts_what_a_user_mounted() {
    if !nix::unistd::geteuid().is_root() {
        return;
    }
    let place = Place::new();
    std::fs::copy(env!("CARGO_BIN_EXE_h5dir"), place.dir().join("h5dir")).unwrap();
    std::fs::copy(copy_fixture("links", place.dir()), place.dir().join("f.h5")).unwrap();
    for path in ["", "mnt", "f.h5"] {
        lchown(place.dir().join(path), Some(NOBODY), None).unwrap();
    }
    let readable = Command::new("chmod").args(["-R", "a+rX"]).arg(place.dir()).status().unwrap();
    assert!(readable.success());
    let python = Path::new("/usr/bin/python3");
    let mut command = in_own_namespace("bash", AS_ROOT);
    command.arg(place.dir()).arg(python);
    let Output { status, stdout, stderr } = command.output().unwrap();
    assert!(status.success(), "{}{}", String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
}

/// A directory of another user, with the directory `mp` and the link `lnk` to the mountpoint of the place.
fn planted() -> Place {
    let place = Place::new();
    let theirs = place.dir().join("theirs");
    std::fs::create_dir_all(theirs.join("mp")).unwrap();
    symlink(place.mnt(), theirs.join("lnk")).unwrap();
    for path in ["", "mp", "lnk"] {
        lchown(theirs.join(path), Some(NOBODY), None).unwrap();
    }
    place
}

/// Regression: a link that another user had put in the place of the mountpoint was followed to any directory.
#[test]
fn a_mountpoint_that_is_a_link_of_another_user_is_refused() {
    if !nix::unistd::geteuid().is_root() {
        return;
    }
    let place = planted();
    let file = copy_fixture("links", place.dir());
    let link = place.dir().join("theirs/lnk");
    for end in ["", "/", "/."] {
        let path = joined(&[link.as_ref(), end.as_ref()]);
        let (code, message) = run(h5dir(&["mount"]).arg(&file).arg(&path));
        assert!(code == 4 && message.contains("symbolic link of the user 65534"), "{code} {message}");
        assert!(!is_mounted(&place.mnt()));
    }
    // One of the caller is resolved, and a directory of another user is one to mount on.
    let own = place.dir().join("own");
    symlink("mnt", &own).unwrap();
    assert_eq!(run(h5dir(&["mount"]).arg(&file).arg(&own)), (0, String::new()));
    assert!(is_mounted(&place.mnt()));
    let (code, message) = run(h5dir(&["umount"]).arg(&link));
    assert!(code == 4 && message.contains("symbolic link of the user 65534"), "{code} {message}");
    assert_eq!(run(h5dir(&["umount"]).arg(&own)), (0, String::new()));
    let theirs = place.dir().join("theirs/mp");
    assert_eq!(run(h5dir(&["mount"]).arg(&file).arg(&theirs)), (0, String::new()));
    assert_eq!(run(h5dir(&["umount"]).arg(&theirs)), (0, String::new()));
}

/// Sets the flag when it is dropped, also by a failed assertion: a thread that waits for it ends.
struct AtEnd<'a>(&'a AtomicBool);

impl Drop for AtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Regression: a link that took the place of the mountpoint between its check and the mount was mounted through.
#[test]
fn a_mountpoint_that_is_exchanged_meanwhile_is_not_followed() {
    if !nix::unistd::geteuid().is_root() {
        return;
    }
    let place = planted();
    let file = copy_fixture("links", place.dir());
    let (directory, link) = (place.dir().join("theirs/mp"), place.dir().join("theirs/lnk"));
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                // Refused while the directory is mounted on.
                let _ = renameat2(AT_FDCWD, &directory, AT_FDCWD, &link, RenameFlags::RENAME_EXCHANGE);
                std::thread::sleep(std::time::Duration::from_micros(50));
            }
        });
        let _end = AtEnd(&done);
        for _ in 0..60 {
            let (code, message) = run(h5dir(&["mount"]).arg(&file).arg(&directory));
            let through = is_mounted(&place.mnt());
            let left = [&directory, &link].map(|path| unmount::unmount(path, true).is_ok());
            assert!(!through, "mounted through the link: {code} {message}");
            match code {
                // The directory that was checked may have the other name when it is mounted on.
                0 => assert!(left == [true, false] || left == [false, true], "{left:?}"),
                4 => assert_eq!(left, [false, false], "nothing is left behind: {message}"),
                _ => panic!("{code} {message}"),
            }
        }
    });
}

fn joined(parts: &[&OsStr]) -> OsString {
    parts.iter().copied().collect()
}

/// A name that a terminal acts upon: escape sequences in C0 and C1, a newline, overrides of the direction, no UTF-8.
const ODD: &[u8] = b"a\x1b[2J\xc2\x9b31m\nERROR \xe2\x80\xae\xe2\x81\xa6\xe2\x80\xa8\x7f\xff.h5";

/// Regression: messages and logs showed names of files as they were.
#[test]
fn odd_names_are_escaped_wherever_they_are_printed() {
    let place = Place::new();
    let odd = |name: &str| place.dir().join(OsStr::from_bytes(&[name.as_bytes(), ODD].concat()));
    std::fs::write(odd("text"), "no HDF5 at all").unwrap();
    std::fs::rename(copy_fixture("links", place.dir()), odd("good")).unwrap();
    std::fs::create_dir(odd("mnt")).unwrap();
    let group = joined(&[odd("good").as_ref(), ":/".as_ref(), OsStr::from_bytes(ODD)]);
    let (good, text, absent, mnt, config) = (odd("good"), odd("text"), odd("absent"), odd("mnt"), odd("absent.yaml"));
    let log = joined(&["--log-file=".as_ref(), odd("mnt").as_ref()]);
    let option = joined(&["--".as_ref(), OsStr::from_bytes(ODD)]);
    let config = joined(&["--config=".as_ref(), config.as_ref()]);
    let cases: [(&str, &[&OsStr], i32); 18] = [
        ("ls", &[text.as_ref()], 3),
        ("ls", &[absent.as_ref()], 3),
        ("ls", &[&group], 5),
        ("ls", &["-l".as_ref(), good.as_ref()], 0),
        ("ls", &["-R".as_ref(), good.as_ref()], 0),
        ("stat", &["--posix".as_ref(), good.as_ref()], 0),
        ("stat", &[absent.as_ref()], 3),
        ("create", &[good.as_ref()], 3),
        ("recover", &[good.as_ref()], 0),
        ("recover", &[text.as_ref()], 3),
        ("mount", &[absent.as_ref(), mnt.as_ref()], 3),
        ("mount", &[&group, mnt.as_ref()], 5),
        ("mount", &[good.as_ref(), absent.as_ref()], 4),
        ("mount", &[good.as_ref(), text.as_ref()], 4),
        ("mount", &[&log, good.as_ref(), mnt.as_ref()], 1),
        ("mount", &[&config, good.as_ref(), mnt.as_ref()], 2),
        ("umount", &[mnt.as_ref()], 4),
        ("umount", &[&option], 2),
    ];
    for (command, args, code) in cases {
        let Output { status, stdout, stderr } = h5dir(&[command]).args(args).output().unwrap();
        let shown = String::from_utf8([stdout, stderr].concat()).unwrap();
        assert_eq!(status.code(), Some(code), "{command} {args:?}: {shown:?}");
        assert!(!shown.contains(|c| c != '\n' && is_unsafe(c)), "{command} {args:?}: {shown:?}");
        // clap shows what is no UTF-8 with a character that says so.
        if code != 2 && !(command == "ls" && code == 0) {
            assert!(shown.contains("a\\x1b[2J\\xc2\\x9b31m\\nERROR \\xe2\\x80\\xae\\xe2\\x81\\xa6"), "{command} {args:?}: {shown:?}");
            assert!(code == 0 || shown.lines().count() == 1, "{shown:?}");
        }
    }
    // The log of a daemon, and what it says of its end.
    let log = place.dir().join("log");
    let mut command = h5dir(&["mount", "--log-level=info", "--log-file"]);
    assert_eq!(run(command.arg(&log).arg(&good).arg(&mnt)), (0, String::new()));
    assert_eq!(run(h5dir(&["umount"]).arg(&mnt)), (0, String::new()));
    let log = std::fs::read_to_string(&log).unwrap();
    assert!(log.contains("mounted ") && log.contains("a\\x1b[2J\\xc2\\x9b31m\\nERROR"), "{log:?}");
    assert!(!log.contains(|c| c != '\n' && is_unsafe(c)), "{log:?}");
    assert!(log.lines().all(|line| !line.starts_with("ERROR")), "{log}");
}

/// Regression: JSON for programs sent characters to the terminal that JSON need not escape.
#[test]
fn json_is_exact_and_safe_to_print() {
    let place = Place::new();
    let name = "a\u{1b}\u{9b}31m\n\u{202e}\u{2066}\u{2028}\u{7f}\u{e9}";
    let file = place.dir().join(format!("f{name}.h5"));
    assert_eq!(run(h5dir(&["create"]).arg(&file)), (0, String::new()));
    assert_eq!(run(h5dir(&["mount", "--read-write"]).arg(&file).arg(place.mnt())), (0, String::new()));
    std::fs::create_dir(place.mnt().join(name)).unwrap();
    assert_eq!(run(h5dir(&["umount"]).arg(place.mnt())), (0, String::new()));
    let shown = |command: &str| {
        let output = h5dir(&[command, "--json"]).arg(&file).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(!text.contains(|c| c != '\n' && is_unsafe(c)), "{text:?}");
        serde_json::from_str::<serde_json::Value>(&text).unwrap()
    };
    assert_eq!(shown("ls")[0]["path"].as_str().unwrap().trim_start_matches('/'), name);
    assert_eq!(shown("stat")["file"].as_str().unwrap(), file.to_str().unwrap());
}

/// Regression: a link in the place of the log file was followed, and a pipe waited for.
#[test]
fn a_log_file_is_a_regular_file() {
    let place = Place::new();
    let file = copy_fixture("links", place.dir());
    let (link, pipe, victim) = (place.dir().join("link"), place.dir().join("pipe"), place.dir().join("victim"));
    std::fs::write(&victim, "").unwrap();
    symlink(&victim, &link).unwrap();
    nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
    for (path, part) in [(&link, "symbolic link"), (&pipe, "not a regular file"), (&"/dev/stderr".into(), "symbolic link")] {
        let mut command = h5dir(&["mount", "--log-level=debug", "--log-file"]);
        let (code, message) = run(command.arg(path).arg(&file).arg(place.mnt()));
        assert!(code == 1 && message.contains(part) && message.contains("--foreground"), "{code} {message}");
    }
    assert!(!is_mounted(&place.mnt()));
    assert_eq!(std::fs::read(&victim).unwrap(), b"");
}

/// Regression: in a container whose root has the sticky bit, every user could end the transactions of others, and set attributes of
/// directories of others through `.h5dir/attrs`.
#[test]
fn transactions_and_attributes_of_others_are_not_changed() {
    if !nix::unistd::geteuid().is_root() {
        return;
    }
    let place = Place::new();
    let container = format!("iod:{}", place.dir().join("container").display());
    assert_eq!(run(&mut h5dir(&["create", &container])), (0, String::new()));
    let mount = ["mount", "--read-write", "--allow-other", &container];
    assert_eq!(run(h5dir(&mount).arg(place.mnt())), (0, String::new()));
    let script = r#"set -e; as() { setpriv --reuid="$1" --regid="$1" --clear-groups sh -c "umask $2; $3"; }
        chmod 1777 .; mkdir shared; chmod 1777 shared; sync .
        as 1001 022 'mkdir .h5dir/tx/his; mkdir .h5dir/tx/his/tree/work'
        as 1001 002 'mkdir .h5dir/tx/ours'
        stat -c '%n %a %u' .h5dir/tx/*/control .h5dir/tx/*/tree .h5dir/tx/his
        ! as 1002 022 'echo abort >.h5dir/tx/his/control' 2>/dev/null
        ! as 1002 022 'rmdir .h5dir/tx/his/tree/work' 2>/dev/null
        ! as 1002 022 'mkdir .h5dir/tx/his/tree/other' 2>/dev/null
        as 1001 022 'echo finish >.h5dir/tx/his/control'
        ! as 1002 022 'setfattr -n user.a -v 1 shared' 2>/dev/null
        ! as 1002 022 'echo 1 >.h5dir/attrs/shared/a' 2>/dev/null
        echo 1 >.h5dir/attrs/shared/a
        ! as 1002 022 'echo 2 >.h5dir/attrs/shared/a' 2>/dev/null
        ! as 1002 022 'rm .h5dir/attrs/shared/a' 2>/dev/null
        as 1002 022 'mkdir shared/own; echo 1 >.h5dir/attrs/shared/own/b; rm .h5dir/attrs/shared/own/b'"#;
    let done = Command::new("bash").args(["-c", script]).current_dir(place.mnt()).output().unwrap();
    assert_eq!(run(h5dir(&["umount"]).arg(place.mnt())), (0, String::new()));
    let text = String::from_utf8_lossy(&done.stdout);
    assert!(done.status.success(), "{text}{}", String::from_utf8_lossy(&done.stderr));
    let want = [
        ".h5dir/tx/his/control 640 1001",
        ".h5dir/tx/ours/control 660 1001",
        ".h5dir/tx/his/tree 1755 1001",
        ".h5dir/tx/ours/tree 1775 1001",
        ".h5dir/tx/his 555 1001",
    ];
    assert_eq!(text.lines().collect::<Vec<_>>(), want);
}
