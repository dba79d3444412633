//! The process: background, signals, unmounting, crashes, exit codes.

use crate::support::{Foreground, Place, eventually, h5dir, is_mounted, run};
use std::fs::{self, File};
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::time::Duration;

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

fn umount(args: &[&str], mnt: &Path) -> (i32, String) {
    run(h5dir(&["umount"]).args(args).arg(mnt))
}

/// The background mount of `size` at a new place.
fn background(size: &str) -> Place {
    let place = Place::new();
    let size = format!("--size={size}");
    assert_eq!(run(&mut h5dir(&["bench-memory-fs", &size, text(&place.mnt())])), (0, String::new()));
    place
}

#[test]
fn background_mount_returns_when_it_answers() {
    // Filling the file takes a while, during which nothing is mounted.
    let place = background("200M");
    assert_eq!(fs::metadata(place.mnt().join("data")).unwrap().len(), 200 << 20);
    assert_eq!(umount(&[], &place.mnt()), (0, String::new()));
    assert!(!is_mounted(&place.mnt()));
}

#[test]
fn relative_mountpoint_is_that_of_the_caller() {
    let place = Place::new();
    let mut command = h5dir(&["bench-memory-fs", "--size=10", "./mnt/"]);
    assert_eq!(run(command.current_dir(place.dir())).0, 0);
    assert!(place.mnt().join("data").exists());
    let mut command = h5dir(&["umount", "mnt"]);
    assert_eq!(run(command.current_dir(place.dir())), (0, String::new()));
}

#[test]
fn failure_in_the_background_is_reported_by_the_parent() {
    let place = Place::new();
    let (code, message) = run(&mut h5dir(&["bench-memory-fs", "--size=1", "/nonexistent/mnt"]));
    assert_eq!(code, 4);
    assert!(message.contains("/nonexistent/mnt") && message.contains("mkdir") && message.lines().count() == 1, "{message}");

    let text_file = place.dir().join("text.h5");
    fs::write(&text_file, "no HDF5 at all").unwrap();
    let (code, message) = run(&mut h5dir(&["mount", text(&text_file), text(&place.mnt())]));
    assert_eq!(code, 3);
    let want = format!(
        "h5dir: cannot mount {}: it is not an HDF5 file (no HDF5 signature at 0, 512, 1024, ...); check the path\n",
        text_file.display()
    );
    assert_eq!(message, want);

    let (code, message) = run(&mut h5dir(&["mount", "/nonexistent.h5", text(&place.mnt())]));
    assert_eq!((code, message.as_str()), (3, "h5dir: cannot mount /nonexistent.h5: No such file or directory; check the path\n"));
    assert!(!is_mounted(&place.mnt()));
}

#[test]
fn wrong_usage_is_exit_code_2() {
    let place = Place::new();
    let mnt = place.mnt();
    let config = place.dir().join("c.yaml");
    fs::write(&config, "mount:\n  cache-sise: 1\n").unwrap();
    let wrong: [(&[&str], &str); 6] = [
        (&["-o", "rw=1"], "'rw'"),
        (&["-o", "ro,colour=red"], "'colour'"),
        (&["--cache-size=big"], "cache-size"),
        (&["--allow-other", "--allow-root"], "--allow-root"),
        (&["--config", text(&config)], "line 2 column 3"),
        (&["--config", "/nonexistent.yaml"], "/nonexistent.yaml"),
    ];
    for (options, part) in wrong {
        let (code, message) = run(h5dir(&["bench-memory-fs", "--size=1"]).args(options).arg(&mnt));
        assert_eq!(code, 2, "{options:?}: {message}");
        assert!(message.contains(part), "{options:?}: {message}");
    }
    let (code, message) = run(h5dir(&["bench-memory-fs", "--size=1", text(&mnt)]).env("H5DIR_LOG", "h5dir=loud"));
    assert!(code == 2 && message.contains("H5DIR_LOG"), "{code} {message}");
}

#[test]
fn signals_unmount() {
    for signal in [libc::SIGTERM, libc::SIGINT, libc::SIGQUIT] {
        let mut daemon = Foreground::new(&[]);
        daemon.signal(signal);
        assert_eq!(daemon.wait(), Some(0));
        assert!(!is_mounted(&daemon.place.mnt()));
    }
}

#[test]
fn signal_unmounts_although_files_are_open() {
    let mut daemon = Foreground::new(&[]);
    let file = File::open(daemon.place.mnt().join("data")).unwrap();
    daemon.signal(libc::SIGTERM);
    assert_eq!(daemon.wait(), Some(0));
    assert!(!is_mounted(&daemon.place.mnt()));
    drop(file);
}

#[test]
fn umount_waits_for_the_daemon() {
    let mut daemon = Foreground::new(&[]);
    let mnt = daemon.place.mnt();
    daemon.signal(libc::SIGSTOP);
    let mut umount = h5dir(&["umount", text(&mnt)]).spawn().unwrap();
    eventually("it is out of the mount table", || !is_mounted(&mnt));
    std::thread::sleep(Duration::from_millis(200));
    assert!(umount.try_wait().unwrap().is_none(), "the daemon still runs");
    daemon.signal(libc::SIGCONT);
    assert!(umount.wait().unwrap().success());
    assert_eq!(daemon.wait(), Some(0));
}

/// Regression: `umount` gave up at a mount that `df` or `h5dir status` of somebody else held for a moment.
#[test]
fn a_mount_in_use_for_a_moment_is_unmounted() {
    let place = background("1M");
    let mnt = place.mnt();
    let file = File::open(mnt.join("data")).unwrap();
    let user = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(300));
        drop(file);
    });
    assert_eq!(umount(&[], &mnt), (0, String::new()));
    user.join().unwrap();
    assert!(!is_mounted(&mnt));
}

#[test]
fn busy_mount_is_kept_unless_lazy() {
    let place = background("1M");
    let mnt = place.mnt();
    let file = File::open(mnt.join("data")).unwrap();
    let (code, message) = umount(&[], &mnt);
    assert!(code == 4 && message.contains("in use"), "{code} {message}");
    assert!(is_mounted(&mnt));
    assert_eq!(umount(&["--lazy"], &mnt), (0, String::new()));
    assert!(!is_mounted(&mnt));
    drop(file);
}

#[test]
fn umount_of_what_is_not_mounted_is_clear() {
    let place = Place::new();
    let (code, message) = umount(&[], &place.mnt());
    assert!(code == 4 && message.contains("nothing is mounted there"), "{code} {message}");
    let (code, message) = umount(&[], Path::new("/proc"));
    assert!(code == 4 && message.contains("proc mount"), "{code} {message}");
    let (code, message) = umount(&[], Path::new("/nonexistent/x"));
    assert!(code == 4 && message.contains("/nonexistent/x"), "{code} {message}");
}

#[test]
fn unmounted_from_outside_the_daemon_ends() {
    let mut daemon = Foreground::new(&[]);
    let status = std::process::Command::new("fusermount3").arg("-u").arg(daemon.place.mnt()).status().unwrap();
    assert!(status.success());
    assert_eq!(daemon.wait(), Some(0));
}

#[test]
fn dead_mount_is_cleaned_by_the_next_mount() {
    let mut daemon = Foreground::new(&[]);
    let mnt = daemon.place.mnt();
    daemon.child.kill().unwrap();
    daemon.child.wait().unwrap();
    assert!(is_mounted(&mnt), "the mount outlives its daemon");
    assert_eq!(nix::sys::statvfs::statvfs(&mnt).err(), Some(nix::errno::Errno::ENOTCONN));
    assert_eq!(run(&mut h5dir(&["bench-memory-fs", "--size=5", text(&mnt)])), (0, String::new()));
    assert_eq!(fs::read(mnt.join("data")).unwrap().len(), 5);
    assert_eq!(umount(&[], &mnt).0, 0);
    assert!(!is_mounted(&mnt), "nothing is left below");
}

#[test]
fn dead_mount_is_unmounted() {
    let mut daemon = Foreground::new(&[]);
    daemon.child.kill().unwrap();
    daemon.child.wait().unwrap();
    assert_eq!(umount(&[], &daemon.place.mnt()), (0, String::new()));
    assert!(!is_mounted(&daemon.place.mnt()));
}

#[test]
fn root_needs_no_helper_program() {
    let place = Place::new();
    let mnt = place.mnt();
    assert_eq!(run(h5dir(&["bench-memory-fs", "--size=5", text(&mnt)]).env("PATH", "/nonexistent")), (0, String::new()));
    assert_eq!(run(h5dir(&["umount", text(&mnt)]).env("PATH", "/nonexistent")), (0, String::new()));
}

#[test]
fn options_reach_the_kernel() {
    let place = Place::new();
    let mnt = place.mnt();
    let options = "noexec,allow_other,_netdev,x-systemd.automount,attr-timeout=0,readahead=256K,threads=1";
    assert_eq!(run(&mut h5dir(&["bench-memory-fs", "--size=5", "-o", options, text(&mnt)])), (0, String::new()));
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let line = table.lines().find(|line| line.contains(text(&mnt))).unwrap();
    for part in ["ro,nosuid,nodev,noexec,noatime", "fuse.h5dir h5dir-memory", "default_permissions", "allow_other"] {
        assert!(line.contains(part), "{part} in {line}");
    }
    assert_eq!(umount(&[], &mnt).0, 0);
}

#[test]
fn systemd_is_told() {
    let place = Place::new();
    let path = place.dir().join("notify");
    let socket = UnixDatagram::bind(&path).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let mut daemon = Foreground::with(place, &[], |command| {
        command.env("NOTIFY_SOCKET", &path).env("WATCHDOG_USEC", "200000");
    });
    let receive = || {
        let mut buf = [0; 1000];
        let n = socket.recv(&mut buf).unwrap();
        String::from_utf8_lossy(&buf[..n]).into_owned()
    };
    let first = receive();
    assert!(first.starts_with("READY=1\n"), "{first}");
    assert!(receive().starts_with("WATCHDOG=1"));
    daemon.signal(libc::SIGTERM);
    // Pings of the watchdog that were sent before the signal come first.
    assert!((0..100).any(|_| receive().trim() == "STOPPING=1"));
    assert_eq!(daemon.wait(), Some(0));
}

#[test]
fn log_file_and_json() {
    let place = Place::new();
    let log = place.dir().join("log");
    let mnt = place.mnt();
    let options = format!("log-file={},log-level=info,log-format=json", log.display());
    assert_eq!(run(&mut h5dir(&["bench-memory-fs", "--size=5", "-o", &options, text(&mnt)])), (0, String::new()));
    assert_eq!(umount(&[], &mnt).0, 0);
    let text = fs::read_to_string(&log).unwrap();
    let messages: Vec<String> = text
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap())
        .filter(|line| line["target"].as_str().unwrap().starts_with("h5dir"))
        .map(|line| line["message"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(messages, [format!("mounted h5dir-memory at {}", mnt.display()), format!("unmounted {}", mnt.display())]);
}
