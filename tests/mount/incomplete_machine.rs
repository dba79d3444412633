//! Mounts on a machine that lacks something: the message names what is missing and what to do.

use super::mounted::copy_fixture;
use super::namespace::in_own_namespace;
use super::support::{Place, is_mounted};
use std::path::Path;
use std::process::Command;

/// In a mount namespace of its own: a /dev with little in it, $1 is a folder of this test. `exec` runs h5dir as nobody.
const LACKING: &str = r#"
    set -e
    here=$1 lack=$2
    mkdir "$here/dev"
    for node in 'null 1 3' 'zero 1 5' 'random 1 8' 'urandom 1 9'; do
        set -- $node
        mknod -m 666 "$here/dev/$1" c "$2" "$3"
    done
    case $lack in
    kernel) grep -vw fuse /proc/filesystems >"$here/filesystems"; mount --bind "$here/filesystems" /proc/filesystems ;;
    # A minor number without a driver is what a kernel without FUSE has.
    driver) minor=1; while grep -q "^ *$minor " /proc/misc; do minor=$((minor + 1)); done; mknod -m 666 "$here/dev/fuse" c 10 $minor ;;
    mode) mknod -m 600 "$here/dev/fuse" c 10 229 ;;
    fusermount3 | privileges) mknod -m 666 "$here/dev/fuse" c 10 229 ;;
    esac
    mount --rbind "$here/dev" /dev
    cd "$here"
    case $lack in
    mode) exec ./setpriv --reuid=nobody --clear-groups ./h5dir mount -f f.h5 mnt ;;
    fusermount3)
        mount -t tmpfs tmpfs /usr/bin
        exec ./setpriv --reuid=nobody --clear-groups ./h5dir mount -f f.h5 mnt
        ;;
    privileges) exec ./setpriv --reuid=nobody --clear-groups --no-new-privs ./h5dir mount -f f.h5 mnt ;;
    capability) mknod -m 666 "$here/dev/fuse" c 10 229; exec ./setpriv --bounding-set=-sys_admin ./h5dir mount -f f.h5 mnt ;;
    *) exec ./h5dir mount f.h5 mnt ;;
    esac
"#;

fn mount_without(lack: &str) -> String {
    let place = Place::new();
    let here = place.dir();
    copy_fixture("links", here);
    std::fs::rename(here.join("links.h5"), here.join("f.h5")).unwrap();
    std::fs::copy(env!("CARGO_BIN_EXE_h5dir"), here.join("h5dir")).unwrap();
    let setpriv = ["/usr/bin/setpriv", "/bin/setpriv"].into_iter().find(|p| Path::new(p).exists()).unwrap();
    std::fs::copy(setpriv, here.join("setpriv")).unwrap();
    for args in [&["chmod", "-R", "a+rX"][..], &["chown", "-R", "nobody"]] {
        assert!(Command::new(args[0]).args(&args[1..]).arg(here).status().unwrap().success());
    }
    let mut command = in_own_namespace("sh", LACKING);
    command.arg(here).arg(lack).env_remove("FUSERMOUNT_PATH");
    let output = command.output().unwrap();
    let message = String::from_utf8(output.stderr).unwrap();
    assert_eq!((output.status.code(), message.lines().count()), (Some(4), 1), "{lack}: {message}");
    assert!(!is_mounted(&place.mnt()));
    message
}

#[test]
fn the_missing_thing_is_named() {
    for (lack, missing, remedy) in [
        ("kernel", "the kernel has no FUSE (/dev/fuse: No such file or directory)", "'modprobe fuse'"),
        ("driver", "the kernel has no FUSE (/dev/fuse: No such device)", "CONFIG_FUSE_FS"),
        ("device", "/dev/fuse is missing, although the kernel has FUSE", "--device /dev/fuse --cap-add SYS_ADMIN"),
        ("mode", "/dev/fuse cannot be opened: Permission denied", "'chmod 666 /dev/fuse'"),
        ("fusermount3", "the program fusermount3 is not installed", "install the package fuse3"),
        ("privileges", "Operation not permitted", "fusermount3 needs its set-user-ID bit, which no_new_privs disables"),
        ("capability", "Operation not permitted", "root needs CAP_SYS_ADMIN"),
    ] {
        let message = mount_without(lack);
        assert!(message.contains("cannot mount ") && message.contains("f.h5") && message.contains(missing), "{lack}: {message}");
        assert!(message.contains(remedy), "{lack}: {message}");
    }
}
