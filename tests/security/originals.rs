//! Files of the host that chunks of a container refer to.

use super::races::Arena;
use super::support::{h5dir, run};
use std::os::unix::fs::{PermissionsExt, chown};
use std::process::Command;

/// The errno of reading the file at `path`; 0: it was read.
fn errno(path: &std::path::Path) -> i32 {
    std::fs::read(path).err().map_or(0, |e| e.raw_os_error().unwrap())
}

/// Regression: chunks of one byte with a checksum gave away any file of the directory, byte by byte.
#[test]
fn originals_that_the_owner_of_the_folder_may_not_read_are_refused() {
    let arena = Arena::new();
    let at = |name: &str| arena.dir().join(name);
    std::fs::create_dir(at("data")).unwrap();
    std::fs::write(at("raw"), [7; 5000]).unwrap();
    let container = format!("iod:{}", at("box").display());
    let object = |name: &str| format!("{}:/d", at(name).display());
    assert_eq!(run(h5dir(&["cp", "--create"]).arg(at("raw")).arg(object("data/x.h5"))), (0, String::new()));
    let file = at("data/x.h5");
    let link = |name: &str| run(h5dir(&["cp", "-r", "--link"]).arg(format!("{}:/d", file.display())).arg(format!("{container}:/{name}")));
    assert_eq!(run(&mut h5dir(&["create", &container])), (0, String::new()));
    assert_eq!(link("d"), (0, String::new()));
    let mounted = || {
        let log = at("log");
        let _ = std::fs::remove_file(&log);
        assert_eq!(run(h5dir(&["mount", "--log-file"]).arg(&log).arg(&container).arg(arena.mnt())), (0, String::new()));
        let found = errno(&arena.mnt().join("d"));
        assert_eq!(run(h5dir(&["umount"]).arg(arena.mnt())), (0, String::new()));
        (found, std::fs::read_to_string(&log).unwrap())
    };
    let mode = |path: &std::path::Path, mode| std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
    mode(&file, 0o600);
    assert_eq!(mounted(), (0, String::new()), "root's container");
    assert!(Command::new("chown").args(["-R", "65533:65533"]).arg(at("box")).status().unwrap().success());
    let (found, log) = mounted();
    assert!(found == libc::EACCES && log.lines().count() == 1 && log.contains("data/x.h5 may not be read by user 65533"), "{found} {log}");
    let (code, message) = link("e");
    assert!(code != 0 && message.contains("may not be read by user 65533"), "{message}");
    mode(&file, 0o644);
    assert_eq!(mounted(), (0, String::new()));
    mode(&at("data"), 0o700);
    assert_eq!(mounted().0, libc::EACCES, "the directory");
    chown(at("data"), Some(65533), None).unwrap();
    assert_eq!(mounted(), (0, String::new()));
}
