//! Names that a file can have pass through, others are escaped and can be told.

use super::expected::{self, bytes, entries};
use super::mounted::{Mount, getxattr, listxattr, shell};
use super::python;
use super::support::{Place, eventually, h5dir, is_mounted, run};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use std::process::{Command, Stdio};

fn list(directory: &Path) -> Vec<Vec<u8>> {
    std::fs::read_dir(directory).unwrap().map(|e| e.unwrap().file_name().into_vec()).collect()
}

#[test]
fn every_name_is_shown_and_leads_to_its_dataset() {
    let mount = Mount::fixture("names");
    let want = expected::of("names");
    let listed = list(&mount.path(""));
    for (shown, what) in entries(&want["names"]) {
        let shown = bytes(shown);
        let text = String::from_utf8_lossy(&shown).into_owned();
        assert!(listed.contains(&shown), "{text} is not listed");
        let path = mount.path("").join(OsString::from_vec(shown.clone()));
        assert_eq!(std::fs::read(&path).unwrap_or_else(|e| panic!("{text}: {e}")), [what[1].as_u64().unwrap() as u8], "{text}");
        let name = bytes(what[0].as_str().unwrap());
        match getxattr(&path, "user.h5dir.name") {
            Ok(told) => assert!(told == name && shown != name, "{text}"),
            Err(e) => assert!(e.raw_os_error() == Some(libc::ENODATA) && shown == name, "{text}: {e}"),
        }
    }
}

#[test]
fn long_names_are_cut_but_told() {
    let mount = Mount::fixture("names");
    let long: Vec<Vec<u8>> = list(&mount.path("")).into_iter().filter(|n| n.windows(2).any(|w| w == b"%~")).collect();
    let mut told = BTreeMap::new();
    for name in &long {
        assert!(name.len() <= 255);
        let path = mount.path("").join(std::ffi::OsStr::from_bytes(name));
        told.insert(getxattr(&path, "user.h5dir.name").unwrap(), std::fs::read(&path).unwrap()[0]);
    }
    let want = expected::of("names");
    let want: BTreeMap<Vec<u8>, u8> = entries(&want["long"]).map(|(n, v)| (bytes(n), v.as_u64().unwrap() as u8)).collect();
    assert_eq!(told, want);
}

#[test]
fn names_that_no_file_can_have_do_not_hide_their_directory() {
    let mount = Mount::fixture("names");
    for (group, shown) in entries(&expected::of("names")["impossible"]) {
        let shown = bytes(shown.as_str().unwrap());
        assert_eq!(list(&mount.path(group)), std::slice::from_ref(&shown), "{group}");
        assert_eq!(std::fs::read(mount.path(group).join(OsString::from_vec(shown))).unwrap(), [200], "{group}");
    }
}

#[test]
fn another_spelling_of_a_name_does_not_exist() {
    let mount = Mount::fixture("names");
    for path in ["%70lain", "%2f", "%2F", "plain%00", "%EMPTY", "50%25", "slash/a%2fb", "dot/%2e"] {
        assert_eq!(std::fs::read(mount.path(path)).unwrap_err().raw_os_error(), Some(libc::ENOENT), "{path}");
    }
    let long = "x".repeat(256);
    assert_eq!(std::fs::read(mount.path(&long)).unwrap_err().raw_os_error(), Some(libc::ENAMETOOLONG));
}

#[test]
fn ls_and_find_show_the_whole_directory() {
    let mount = Mount::fixture("names");
    let n = shell(mount.place.dir(), "ls -laR mnt > listing; find mnt -type f -print0 | xargs -0 cat | wc -c");
    assert_eq!(n.trim(), "21", "14 ordinary and escaped, 3 long, 4 impossible");
}

/// Regression: a group with a link name of more than 64 KiB was EIO.
#[test]
fn a_link_name_of_more_than_64_kib_is_cut() {
    for libver in ["earliest", "v110"] {
        let place = Place::new();
        let file = place.dir().join("long.h5");
        let make = format!(
            "import h5py
with h5py.File({file:?}, 'w', libver=('{libver}', 'latest')) as f:
    g = f.create_group('g' * 66560); g['d'] = [1, 2]; f['d' * 66561] = [3]"
        );
        python_ends_well(&make);
        let mount = Mount::start(place, &file, &["--read-write"]);
        let names = mount.names("");
        let cut: Vec<_> = names.iter().filter(|n| n.len() == 255 && n.contains("%~")).collect();
        assert_eq!((names.len(), cut.len()), (2, 2), "{names:?} {}", mount.log());
        let (dataset, group) = (cut[0], cut[1]);
        assert_eq!((mount.read(dataset), mount.names(group)), (3i64.to_le_bytes().to_vec(), vec!["d".to_owned()]));
        assert!(!listxattr(&mount.path(dataset)).contains(&"user.h5dir.name".to_owned()));
        std::fs::write(mount.path(&format!("{group}/new")), b"x").unwrap();
        std::fs::remove_file(mount.path(dataset)).unwrap();
        assert_eq!(run(h5dir(&["umount"]).arg(mount.place.mnt())), (0, String::new()));
        eventually("it is unmounted", || !is_mounted(&mount.place.mnt()));
        python_ends_well(&format!(
            "import h5py
with h5py.File({file:?}, 'r+') as f:
    assert list(f) == ['g' * 66560] and sorted(f['g' * 66560]) == ['d', 'new'], [len(n) for n in f]
    f['g' * 66560]['more'] = 1"
        ));
    }
}

fn python_ends_well(program: &str) {
    let output = Command::new(python::with_h5py()).args(["-c", program]).stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// The name of the log's group was `EIO` for a new file, and `EEXIST` without a reason for a log.
#[test]
fn the_name_of_the_log_has_an_errno_and_a_reason() {
    let place = Place::new();
    let plain = place.dir().join("plain.h5");
    assert_eq!(run(&mut h5dir(&["create", plain.to_str().unwrap()])), (0, String::new()));
    let mount = Mount::start(place, &plain, &["--read-write"]);
    std::fs::create_dir(mount.path("LOG")).unwrap();
    std::fs::write(mount.path("d"), b"").unwrap();
    let description = r#"{"dtype":"<i4","shape":[4],"layout":"log"}"#;
    let set = || Command::new("setfattr").args(["-n", "user.h5dir.dataset", "-v", description]).arg(mount.path("d")).output().unwrap();
    assert!(String::from_utf8_lossy(&set().stderr).contains("Invalid argument"));
    assert!(mount.text(".h5dir/log").contains("the log needs the name LOG"));
    std::fs::rename(mount.path("LOG"), mount.path("other")).unwrap();
    assert!(set().status.success());
    drop(mount);
    let place = Place::new();
    let log = place.dir().join("log.h5");
    assert_eq!(run(&mut h5dir(&["create", "--log", log.to_str().unwrap()])), (0, String::new()));
    let mount = Mount::start(place, &log, &["--read-write"]);
    std::fs::write(mount.path("a"), b"a").unwrap();
    let errno = |done: std::io::Result<()>| done.unwrap_err().raw_os_error();
    assert_eq!(errno(std::fs::write(mount.path("LOG"), b"")), Some(libc::EPERM));
    assert_eq!(errno(std::fs::create_dir(mount.path("LOG"))), Some(libc::EPERM));
    assert_eq!(errno(std::fs::hard_link(mount.path("a"), mount.path("LOG"))), Some(libc::EPERM));
    assert_eq!(errno(std::os::unix::fs::symlink("a", mount.path("LOG"))), Some(libc::EPERM));
    assert_eq!(errno(std::fs::rename(mount.path("a"), mount.path("LOG"))), Some(libc::EPERM));
    assert_eq!(mount.read("a"), b"a");
    assert!(mount.text(".h5dir/log").contains("LOG belongs to the log"));
}
