//! `mount-scripts/mount.h5dir`, which mount(8) runs, with a program in the place of h5dir that shows its arguments.

use super::random::Random;
use super::support::Place;
use h5dir::config::fstab;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Output};

const FAKE: &str = "#!/bin/sh\nprintf '%s\\0' \"$@\"\nexit ${H5DIR_FAKE_STATUS:-0}\n";

/// The script, with the program that shows its arguments beside it.
struct Helper(Place);

impl Helper {
    fn new() -> Self {
        let place = Place::new();
        std::fs::copy(concat!(env!("CARGO_MANIFEST_DIR"), "/mount-scripts/mount.h5dir"), place.dir().join("mount.h5dir")).unwrap();
        let this = Helper(place);
        this.install("h5dir", FAKE);
        this
    }

    fn install(&self, name: &str, text: &str) {
        let path = self.0.dir().join(name);
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    }

    fn command(&self, args: &[&[u8]]) -> Command {
        let mut command = Command::new("sh");
        command.arg(self.0.dir().join("mount.h5dir")).args([b"/f.h5".as_slice(), b"/mnt"].iter().chain(args).map(|a| OsStr::from_bytes(a)));
        command
    }

    /// What the program gets after `-o`.
    fn options(&self, args: &[&[u8]]) -> Vec<u8> {
        let Output { status, stdout, stderr } = self.command(args).output().unwrap();
        assert!(status.success(), "{}", String::from_utf8_lossy(&stderr));
        let got: Vec<&[u8]> = stdout.split(|b| *b == 0).collect();
        assert_eq!([&got[..2], &got[3..]].concat(), [b"mount".as_slice(), b"-o", b"--", b"/f.h5", b"/mnt", b""]);
        got[2].to_vec()
    }
}

/// The options of `list` with their backslashes, by the daemon's rule.
fn raw(list: &str) -> Vec<&str> {
    let (mut items, mut start, mut escaped) = (Vec::new(), 0, false);
    for (at, c) in list.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            ',' => {
                items.push(&list[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    items.push(&list[start..]);
    items
}

/// Regression: `a\\,rw` kept its `rw`, as the comma was taken for an escaped one, and newlines ended the list.
#[test]
fn only_rw_as_a_whole_option_is_left_out() {
    let helper = Helper::new();
    let mut random = Random(7);
    let known =
        ["a\\\\,rw", "a\\,rw", "rw,rw,ro,rw", "rw", "", ",", "rw,", "a\nrw,rw\n,x", "rw\n", "\n", "r\\w,x", "rw=1,xrw", "*,?,[a],rw"];
    let parts = ["rw", "\\", "\\\\", ",", "r", "w", "\n", "=", "ro", "'", "\"", "$x", "*", "\u{e9}", " "];
    let odd = (0..250).map(|_| (0..random.below(12)).map(|_| random.pick(&parts)).collect::<String>());
    for list in known.map(str::to_owned).into_iter().chain(odd) {
        let kept = String::from_utf8(helper.options(&[b"-o", list.as_bytes()])).unwrap();
        let want: Vec<&str> = raw(&list).into_iter().filter(|item| fstab::split(item) != ["rw"]).collect();
        assert_eq!(kept, want.join(","), "{list:?}");
        let mut meant = fstab::split(&list);
        meant.retain(|item| item != "rw");
        // Nothing left is one empty option.
        let meant = if meant.is_empty() { vec![String::new()] } else { meant };
        assert_eq!(fstab::split(&kept), meant, "{list:?}");
    }
    assert_eq!(helper.options(&[b"-o", b"x=\xff\x80,rw,y"]), b"x=\xff\x80,y");
    assert_eq!(helper.options(&[b"-o", b"a\\", b"-o", b"rw", b"-o", b"b,rw"]), b"a,b", "an escape ends with its list");
}

/// Regression: the first h5dir in the PATH of the caller was run, by root with the environment of a user too.
#[test]
fn the_environment_names_no_program() {
    let helper = Helper::new();
    let evil = helper.0.dir().join("evil");
    std::fs::create_dir(&evil).unwrap();
    for name in ["h5dir", "sed", "printf", "fusermount3"] {
        helper.install(&format!("evil/{name}"), "#!/bin/sh\ntouch \"${0%/*}/was-run\"\n");
    }
    helper.install("h5dir", "#!/bin/sh\necho \"$PATH\"\n");
    let path = format!("{}:/usr/bin:/bin", evil.display());
    let run = || helper.command(&[b"-o", b"rw,ro"]).env("PATH", &path).current_dir(&evil).output().unwrap();
    let shown = String::from_utf8(run().stdout).unwrap();
    assert!(shown.starts_with("/usr/") && !shown.contains("evil"), "{shown}");
    std::fs::remove_file(helper.0.dir().join("h5dir")).unwrap();
    let output = run();
    // One that is installed would be run, and find no /f.h5.
    assert_eq!(output.status.code(), Some(32), "{output:?}");
    assert!(!evil.join("was-run").exists());
}

#[test]
fn exit_codes_are_those_of_mount() {
    let helper = Helper::new();
    for (status, want) in [("0", 0), ("2", 1), ("3", 32), ("4", 32)] {
        assert_eq!(helper.command(&[]).env("H5DIR_FAKE_STATUS", status).status().unwrap().code(), Some(want));
    }
    assert!(helper.command(&[b"-f"]).output().unwrap().stdout.is_empty());
}
