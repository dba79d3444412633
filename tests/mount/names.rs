//! Names that a file can have pass through, others are escaped and can be told.

use super::expected::{self, bytes, entries};
use super::mounted::{Mount, getxattr, shell};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

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
