//! The commands as typed: background mounts, umount, ls, stat, exit codes.

use super::mounted::{Mount, copy_fixture};
use super::support::{Place, h5dir, is_mounted, run};
use super::writing::h5py;
use serde_json::Value;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

fn output(args: &[&str]) -> String {
    let output = h5dir(args).output().unwrap();
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn json(args: &[&str]) -> Value {
    serde_json::from_str(&output(args)).unwrap()
}

/// A process that ends closes its files one by one: to be followed by another one the locked file has to be closed, too.
#[test]
fn the_daemon_has_ended_when_umount_returns() {
    let place = Place::new();
    let (file, mnt) = (place.dir().join("new.h5"), place.mnt());
    let file = file.to_str().unwrap();
    assert_eq!(run(&mut h5dir(&["create", file])).0, 0);
    for _ in 0..30 {
        assert_eq!(run(h5dir(&["mount", "--read-write", file]).arg(&mnt)), (0, String::new()));
        assert_eq!(run(h5dir(&["umount"]).arg(&mnt)), (0, String::new()));
    }
}

#[test]
fn mount_goes_to_the_background_once_it_answers_and_umount_waits() {
    let place = Place::new();
    let file = copy_fixture("links", place.dir());
    let mnt = place.mnt();
    for _ in 0..3 {
        assert_eq!(run(h5dir(&["mount"]).arg(&file).arg(&mnt)), (0, String::new()));
        // No waiting: it answers.
        assert_eq!(std::fs::read(mnt.join("data")).unwrap(), b"hello links\n");
        assert_eq!(run(h5dir(&["umount"]).arg(&mnt)), (0, String::new()));
        assert!(!is_mounted(&mnt));
        assert_eq!(std::fs::read_dir(&mnt).unwrap().count(), 0);
        let open = std::process::Command::new("fuser").arg(&file).output();
        if let Ok(open) = open {
            assert!(!open.status.success(), "the daemon is gone: {open:?}");
        }
    }
}

#[test]
fn relative_paths_survive_going_to_the_background() {
    let place = Place::new();
    copy_fixture("links", place.dir());
    let mut command = h5dir(&["mount", "links.h5", "mnt"]);
    assert_eq!(run(command.current_dir(place.dir())), (0, String::new()));
    assert_eq!(std::fs::read(place.mnt().join("single")).unwrap(), 7i64.to_le_bytes());
    assert_eq!(run(h5dir(&["umount", "mnt"]).current_dir(place.dir())), (0, String::new()));
}

#[test]
fn exit_codes_and_sentences() {
    let place = Place::new();
    let file = copy_fixture("links", place.dir());
    let text = place.dir().join("text");
    std::fs::write(&text, "no HDF5 file").unwrap();
    let empty = place.dir().join("empty");
    std::fs::write(&empty, "").unwrap();
    let (mnt, nowhere) = (place.mnt(), place.dir().join("nowhere"));
    let cases: [(i32, &[&str], &[&Path], &str); 12] = [
        (2, &["mount", "--no-such-option"], &[&file, &mnt], "--no-such-option"),
        (2, &["mount", "--cache-size=many"], &[&file, &mnt], "--cache-size"),
        (2, &["mount"], &[&file], "MOUNTPOINT"),
        (3, &["mount"], &[&nowhere, &mnt], "No such file"),
        (3, &["mount"], &[&text, &mnt], "not an HDF5 file"),
        (3, &["mount"], &[&empty, &mnt], "not an HDF5 file"),
        (2, &["mount", "-f"], &[place.dir(), &mnt], "choose one outside"),
        (4, &["mount"], &[&file, &nowhere], "mkdir"),
        (4, &["mount"], &[&file, &text], "directory"),
        (4, &["umount"], &[&mnt], "nothing is mounted"),
        (3, &["ls"], &[&text], "not an HDF5 file"),
        (3, &["stat"], &[&nowhere], "No such file"),
    ];
    for (code, args, paths, part) in cases {
        let (got, message) = run(h5dir(args).args(paths));
        assert_eq!(got, code, "{args:?} {paths:?}: {message}");
        assert!(message.contains(part), "{args:?} {paths:?}: {message}");
        if code > 2 {
            assert_eq!(message.lines().count(), 1, "one sentence: {message}");
        }
    }
    assert!(!is_mounted(&mnt));
    let (code, message) = run(h5dir(&["ls"]).arg(format!("{}:/nothing", file.display())));
    assert_eq!(code, 5, "{message}");
    let (code, message) = run(h5dir(&["stat"]).arg(format!("{}:/group/nothing", file.display())));
    assert_eq!(code, 5, "{message}");
}

#[test]
fn usage_errors_name_the_next_step() {
    let place = Place::new();
    let (file, mnt) = (copy_fixture("links", place.dir()), place.mnt());
    let (wrong, large) = (place.dir().join("wrong.yaml"), place.dir().join("large.yaml"));
    std::fs::write(&wrong, "mount:\n  cache-sise: 5\n").unwrap();
    std::fs::write(&large, vec![b'#'; 2 << 20]).unwrap();
    let (wrong, large) = (format!("--config={}", wrong.display()), format!("--config={}", large.display()));
    for (args, step) in [
        (&["--read-only", "--read-write"][..], "; give one of them"),
        (&["--umask=0", "--file-mode=444"], "; give one of them"),
        (&["--allow-other", "--allow-root"], "; give one of them"),
        (&["--external=off", "--external-root=/"], "; give one of them"),
        (&["--external-write"], "; give both"),
        (&["--external-root=/etc/passwd"], "; give a directory"),
        (&["--external-root=/nonexistent"], "; check the path"),
        (&["-o", "suid"], "; leave it out"),
        (&["-o", "fsname=x"], "; leave it out"),
        (&["-o", "auto_unmount"], "; leave it out"),
        (&["-o", "remount"], "unmount it and mount it again"),
        (&["-o", "colour"], "'h5dir mount --help' lists the options"),
        (&["-o", "cache-size=x"], "expected a number of bytes such as 64K"),
        (&["--cache-size=x"], "For more information, try '--help'"),
        (&["--config=/nonexistent"], "; check the path"),
        (&[large.as_str()], "larger than 1 MiB"),
        (&[wrong.as_str()], "cache-size"),
    ] {
        let (code, message) = run(h5dir(&["mount"]).args(args).arg(&file).arg(&mnt));
        assert!(code == 2 && message.contains(step), "{args:?}: {code} {message}");
    }
    assert!(!is_mounted(&mnt));
}

#[test]
fn ls_shows_what_a_mount_shows() {
    let mount = Mount::fixture("links");
    let file = mount.place.dir().join("links.h5");
    let file = file.to_str().unwrap();
    let lines = |text: String| text.lines().map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(lines(output(&["ls", file])), mount.names(""));
    assert_eq!(lines(output(&["ls", &format!("{file}:/group")])), mount.names("group"));
    let long = output(&["ls", "-l", "--posix", &format!("{file}:/soft")]);
    assert!(long.contains("own -> ../group/own"), "{long}");
    for all in [output(&["ls", "-R", file]), output(&["ls", "-R", "--posix", file])] {
        assert!(all.contains("deeper") && all.contains("third"), "{all}");
    }
}

#[test]
fn ls_as_json_agrees_with_the_mount() {
    let mount = Mount::fixture("layouts_new");
    let file = mount.place.dir().join("layouts_new.h5");
    let listed = json(&["ls", "--json", file.to_str().unwrap()]);
    let all: Vec<&Value> = listed.as_array().unwrap_or_else(|| panic!("{listed}")).iter().collect();
    assert_eq!(all.len(), mount.names("").len());
    for entry in all {
        let path = entry["path"].as_str().or(entry["name"].as_str()).unwrap().trim_start_matches('/');
        assert_eq!(entry["size"].as_u64().unwrap(), mount.path(path).metadata().unwrap().len(), "{path}");
    }
}

#[test]
fn stat_as_json_agrees_with_the_mount() {
    let mount = Mount::fixture("attributes_new");
    let file = mount.place.dir().join("attributes_new.h5");
    let got = json(&["stat", "--json", &format!("{}:/data", file.display())]);
    let meta = mount.path("data").metadata().unwrap();
    assert_eq!(got["size"].as_u64(), Some(meta.len()));
    assert_eq!(got["ino"].as_u64(), Some(meta.ino()));
    assert_eq!(got["blocks"].as_u64(), Some(meta.blocks()));
    // Facts that are JSON are nested.
    assert_eq!(got["facts"]["shape"], serde_json::from_str::<serde_json::Value>(&mount.xattr("data", "h5dir.shape")).unwrap());
    assert!(got["facts"]["shape"].is_array() && got["facts"]["dataset"].is_object() && got["facts"]["storage"].is_u64(), "{got}");
    for name in ["list", "text", "colour", "point"] {
        assert_eq!(got["attributes"][name].as_str().map(str::to_owned), Some(mount.xattr("data", name)), "{name}");
    }
    let text = output(&["stat", "--posix", &format!("{}:/data", file.display())]);
    assert!(text.contains("Size: 3 bytes") && text.contains("list: [1,2,3]"), "{text}");
    let screen = output(&["stat", &format!("{}:/data", file.display())]);
    assert!(screen.lines().count() <= 24 && screen.lines().all(|line| line.chars().count() <= 80), "{screen}");
    assert!(screen.contains("shape     (3)\n") && screen.contains("  bools = [true, false]\n"), "{screen}");
}

#[test]
fn a_second_mount_on_the_same_place_is_refused() {
    let mount = Mount::fixture("links");
    let file = mount.place.dir().join("links.h5");
    let (code, message) = run(h5dir(&["mount"]).arg(&file).arg(mount.place.mnt()));
    assert_eq!(code, 4, "{message}");
    assert_eq!(mount.read("data"), b"hello links\n", "the first one goes on");
}

#[test]
fn status_lists_mounts_and_shows_the_counters_of_one() {
    let mount = Mount::fixture("links");
    let mnt = mount.place.mnt();
    let mnt = mnt.to_str().unwrap();
    let source =
        json(&["status", "--json"]).as_array().unwrap().iter().find(|m| m["mountpoint"] == mnt).expect("it is listed")["source"].clone();
    assert!(source.as_str().unwrap().ends_with("links.h5"), "{source}");
    assert!(output(&["status"]).contains(&format!(" on {mnt} (ro, pid ")));
    let all = json(&["status", "--json"]);
    let listed = all.as_array().unwrap().iter().find(|m| m["mountpoint"] == mnt).unwrap();
    assert!(listed["read_only"] == true && listed["dead"] == false && listed["pid"].as_u64() > Some(1) && listed["age_seconds"].is_u64());
    let counters = json(&["status", "--json", mnt]);
    assert_eq!(counters["version"], env!("CARGO_PKG_VERSION"));
    assert!(counters["cache_budget_bytes"].as_u64().unwrap() > 0);
    assert!(output(&["status", mnt]).lines().any(|line| line.starts_with("open_files ")));
    let (code, text) = run(h5dir(&["status"]).arg(mount.place.dir()));
    assert!(code == 4 && text.contains("no mountpoint of h5dir"), "{code} {text}");
}

/// Regression: 40 groups with two links to the next one each have 2^40 paths: `ls -R`, `diff -r` and `cp -r` into a directory visited all.
#[test]
fn groups_with_several_links_are_visited_once() {
    let place = Place::new();
    let (file, copy) = (place.dir().join("dag.h5"), place.dir().join("copy"));
    let program = "g = f\n    for _ in range(40):\n        n = g.create_group('a'); g['b'] = n; g = n\n    g['leaf'] = 7";
    h5py(&file, "w", program);
    std::fs::create_dir(&copy).unwrap();
    let file = file.to_str().unwrap();
    let root = format!("{file}:/");
    assert!(output(&["ls", "-R", "--posix", file]).contains("\n/b:\n(the same group as /a)\n"));
    assert!(output(&["ls", "-R", file]).contains(" b  (the same group as /a)\n"));
    assert_eq!(json(&["ls", "-R", "--json", file]).as_array().unwrap().len(), 81);
    assert_eq!(run(&mut h5dir(&["diff", "-r", &root, &root])), (0, String::new()));
    // The second time over the first one.
    for _ in 0..2 {
        assert_eq!(run(&mut h5dir(&["cp", "-r", &root, copy.to_str().unwrap()])), (0, String::new()));
        assert_eq!(std::fs::read(copy.join("b/".repeat(40)).join("leaf")).unwrap(), 7i64.to_le_bytes());
    }
}
