//! Mounts by somebody who is not root: `fusermount3` makes and removes them.

use super::namespace::in_own_namespace;
use super::support::Place;
use std::process::Command;

/// Runs a command as `nobody`, in a mount namespace of its own where everybody may open /dev/fuse, as on a desktop.
const AS_NOBODY: &str = r#"
    set -e
    mknod -m 666 "$1/fuse" c 10 229
    mount --bind "$1/fuse" /dev/fuse
    exec setpriv --reuid=nobody --clear-groups --inh-caps=-all sh "$1/work.sh" "$1"
"#;

#[test]
fn users_mount_write_and_unmount() {
    let place = Place::new();
    let folder = place.dir().join("user");
    std::fs::create_dir_all(folder.join("mnt")).unwrap();
    let work = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/mount/unprivileged.sh");
    for (from, name) in [(env!("CARGO_BIN_EXE_h5dir"), "h5dir"), (work, "work.sh")] {
        std::fs::copy(from, folder.join(name)).unwrap();
    }
    let readable = |command: &mut Command| assert!(command.status().unwrap().success());
    readable(Command::new("chmod").args(["-R", "a+rX"]).arg(place.dir()));
    let mut command = Command::new("sh");
    if nix::unistd::geteuid().is_root() {
        readable(Command::new("chown").args(["-R", "nobody"]).arg(&folder));
        command = in_own_namespace("sh", AS_NOBODY);
    } else {
        command.arg(folder.join("work.sh"));
    }
    let output = command.arg(&folder).output().unwrap();
    assert!(output.status.success(), "{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
}
