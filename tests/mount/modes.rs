//! Owners, modes and symbolic links that are stored in the container.

use super::mounted::Mount;
use super::python;
use super::support::{Place, h5dir, run};
use std::path::{Path, PathBuf};
use std::process::Command;

pub(super) fn created(libver: &str, options: &[&str]) -> (Mount, PathBuf) {
    let place = Place::new();
    let file = place.dir().join("new.h5");
    assert_eq!(run(&mut h5dir(&["create", "--libver", libver, file.to_str().unwrap()])), (0, String::new()));
    (Mount::start(place, &file, &[&["--read-write"], options].concat()), file)
}

/// The output of a script in the directory of the mountpoint. All of its commands must succeed.
pub(super) fn shell(mount: &Mount, script: &str) -> String {
    let mut command = Command::new("timeout");
    let output = command.args(["120", "bash", "-euo", "pipefail", "-c", script]).current_dir(mount.place.dir()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{said}{}\n{}", String::from_utf8_lossy(&output.stderr), mount.log());
    said
}

pub(super) fn unmount(mount: &Mount) {
    assert_eq!(run(h5dir(&["umount"]).arg(mount.place.mnt())), (0, String::new()));
}

pub(super) fn h5py(file: &Path, program: &str) {
    let program = format!("import sys, numpy, h5py\nwith h5py.File(sys.argv[1], 'r+') as f:\n{program}\n");
    let output = Command::new(python::with_h5py()).args(["-c", &program]).arg(file).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

pub(super) fn is_root() -> bool {
    nix::unistd::geteuid().is_root()
}

const TREE: &str = r"umask 022; cd mnt; echo a >f; chmod 755 f; mkdir -m 700 d; mkdir d/e; install -m 640 f d/g; (umask 002; echo b >h; mkdir i)
    chmod u+s,g+s,o+t i; ln -s /usr/bin/env abs; ln -s ../../out rel; ln -s f in; ln -s .h5dir/status control; ln -s a/../b up
    ln -s .././f d/up; ln -s ../../f d/out";
const LIST: &str = r"find mnt -mindepth 1 -printf '%P %y %m %l\n' | sort";
const LISTED: &str = "abs l 777 /usr/bin/env\ncontrol l 777 .h5dir/status\nd d 700 \nd/e d 755 \nd/g f 640 \nd/out l 777 ../../f\nd/up l 777 .././f\nf f 755 \nh f 664 \n\
    i d 7775 \nin l 777 f\nrel l 777 ../../out\nup l 777 a/../b\n";

#[test]
fn modes_and_symbolic_links_are_stored_and_shown_in_later_mounts() {
    for libver in ["v110", "earliest"] {
        let (mount, file) = created(libver, &[]);
        shell(&mount, TREE);
        assert_eq!(shell(&mount, LIST), LISTED, "{libver}");
        unmount(&mount);
        h5py(
            &file,
            "    a = lambda p: f[p].attrs.get('_h5dir_posix')
    assert a('f') == b'mode=0755' and a('d') == b'mode=0700' and a('d/g') == b'mode=0640' and a('i') == b'mode=7775', a('i')
    assert a('d/e') is None and f.get('abs', getlink=True).path == '/.h5dir/symlink//usr/bin/env'
    f['f'].attrs['note'] = 'kept'; f['d'].attrs['_h5dir_posix'] = numpy.bytes_(b'mode=0711 colour=red uid=no')",
        );
        let again = Mount::start(Place::new(), &file, &["--read-write"]);
        assert_eq!(shell(&again, LIST), LISTED.replace("d d 700", "d d 711"));
        assert_eq!(
            shell(&again, "cd mnt; chmod 644 f; getfattr -n user.note --only-values f; chmod 755 d; stat -c %a f d"),
            "kept644\n755\n"
        );
        unmount(&again);
        h5py(&file, "    assert '_h5dir_posix' not in f['f'].attrs and '_h5dir_posix' not in f['d'].attrs");
        // Read-only: stored modes are the same, but for set-ID bits.
        let reader = Mount::start(Place::new(), &file, &[]);
        assert_eq!(shell(&reader, "stat -c %a mnt/f mnt/i mnt/d/g; readlink mnt/abs"), "644\n1775\n640\n/usr/bin/env\n");
        unmount(&reader);
        let confined = Mount::start(Place::new(), &file, &["--external=off"]);
        assert_eq!(shell(&confined, "readlink mnt/abs mnt/in"), "./%2Eh5dir/symlink/usr/bin/env\nf\n");
        // Links that cannot leave the mount are shown as they are.
        let outside = "./%2Eh5dir/symlink/%2E%2E/%2E%2E/out\n../%2Eh5dir/symlink/%2E%2E/%2E%2E/f\n";
        assert_eq!(shell(&confined, "readlink mnt/rel mnt/d/out mnt/d/up; cat mnt/d/up"), format!("{outside}.././f\na\n"));
    }
}

#[test]
fn the_attribute_of_the_mode_is_hidden_and_protected() {
    let (mount, _) = created("v110", &[]);
    shell(&mount, "cd mnt; echo a >f; setfattr -n user.a -v 1 f; chmod 600 f; chmod 711 .");
    assert_eq!(
        shell(&mount, "cd mnt; getfattr -d -m - f . | grep -c posix || true; ls .h5dir/attrs/f .h5dir/attrs"),
        "0\n.h5dir/attrs:\nf\n\n.h5dir/attrs/f:\na\n"
    );
    assert_eq!(
        shell(
            &mount,
            "cd mnt; grep -c posix .h5dir/json/f.json || true; getfattr -n user.h5dir.attributes --only-values f | grep -c posix || true"
        ),
        "0\n0\n"
    );
    let refused = r#"cd mnt; exec 2>&1
        setfattr -n user._h5dir_posix -v mode=0777 f || echo; setfattr -x user._h5dir_posix f || echo
        getfattr -n user._h5dir_posix f || echo; (echo mode=0777 >.h5dir/attrs/f/_h5dir_posix) || echo
        mv .h5dir/attrs/f/a .h5dir/attrs/f/_h5dir_posix || echo
        setfattr -n user.h5dir.attributes -v '[{"name":"_h5dir_posix","type":"|S9","shape":[],"value":"mode=0777"}]' f || echo"#;
    let said = shell(&mount, refused);
    assert_eq!((said.matches("not permitted").count(), said.matches("No such attribute").count()), (5, 1), "{said}");
    assert_eq!(shell(&mount, "stat -c %a mnt/f mnt/.h5dir/npy/f.npy mnt/.h5dir/chunks/f mnt/.h5dir/attrs/f/a"), "600\n600\n500\n600\n");
}

#[test]
fn copying_programs_bring_modes_and_links() {
    let (mount, _) = created("v110", &[]);
    let script = format!(
        r"umask 022; mkdir tree; (mkdir sub; cd sub; mkdir mnt; {TREE}); mv sub/mnt/* tree; touch -d @1000000000 tree/f
        list() {{ (cd $1; find . -mindepth 1 -printf '%P %y %m %U %G %l\n' | sort); }}; list tree >want
        cp -a tree mnt/cp; rsync -a tree/ mnt/rsync; tar c -C tree . | (mkdir mnt/tar; tar xp -C mnt/tar); cp -a mnt/cp mnt/again
        for copy in cp rsync tar again; do list mnt/$copy | diff want - || echo $copy; done
        rsync -a mnt/rsync/ back; list back | diff want -; rsync -aiJ tree/ mnt/rsync; cp -p tree/f mnt/p; stat -c '%a %Y' mnt/p"
    );
    assert_eq!(shell(&mount, &script), "755 1000000000\n");
    let python = format!(
        "{} -c \"import os, shutil; shutil.copy('f', 'm'); os.chmod('m', 0o751); shutil.copytree('d', 'n', symlinks=True); print(oct(os.stat('m').st_mode))\"",
        python::with_h5py().display()
    );
    assert_eq!(shell(&mount, &format!("cd tree; mv * ../mnt; cd ../mnt; {python}")), "0o100751\n");
}

#[test]
fn programs_run_from_a_writable_mount_unless_forbidden() {
    let (mount, file) = created("v110", &[]);
    let make = r"cd mnt; printf '#!/bin/sh\necho script\n' >s; chmod +x s; cp /bin/echo e; ./s; ./e program; sh -c ./s";
    assert_eq!(shell(&mount, make), "script\nprogram\nscript\n");
    unmount(&mount);
    let forbidden = Mount::start(Place::new(), &file, &["--read-write", "--noexec"]);
    assert_eq!(shell(&forbidden, "cd mnt; ./e program 2>/dev/null || echo $?"), "126\n");
}

#[test]
fn fixed_modes_take_every_mode_and_store_none() {
    let (mount, file) = created("v110", &["--modes=fixed", "--file-mode=0640", "--dir-mode=0750"]);
    let script = "cd mnt; umask 077; echo a >f; mkdir d; chmod 777 f d; stat -c %a f d; getfattr -d -m - f | grep -c posix || true";
    assert_eq!(shell(&mount, script), "640\n750\n0\n");
    unmount(&mount);
    h5py(&file, "    assert not f['f'].attrs and not f['d'].attrs");
}

#[test]
fn owners_are_stored_and_modes_enforced() {
    if !is_root() {
        // Only root can change owners: `unprivileged` has what other users can do.
        return;
    }
    let (mount, file) = created("v110", &["--allow-other"]);
    assert_eq!(Command::new("chmod").args(["-R", "a+rX"]).arg(mount.place.dir()).status().unwrap().code(), Some(0));
    let script = r#"umask 022; as() { setpriv --reuid=$1 --regid=$2 --clear-groups sh -c "cd mnt; $3" 2>&1; }
        echo root >mnt/theirs; chown 7:8 mnt/theirs; mkdir -m 2775 mnt/shared; chown 0:8 mnt/shared; mkdir -m 700 mnt/private; echo x >mnt/private/f
        mkdir -m 1777 mnt/tmp; echo y >mnt/tmp/roots
        as 7 9 'echo more >>theirs; id -u'; as 9 9 'echo no >>theirs' || true
        as 9 8 'echo z >shared/new; mkdir shared/dir; umask 077; echo w >tmp/w' ; as 9 9 'cat private/f' || true
        as 9 9 'cat .h5dir/npy/private/f.npy' || true; as 7 7 'rm -f tmp/w' || true; as 9 9 'chmod 777 theirs' || true; as 9 9 'rm tmp/w'
        cat mnt/theirs; cd mnt; stat -c '%n %u %g %a' theirs shared shared/new shared/dir; chown -h 0:0 theirs; stat -c '%u %g' theirs"#;
    let said = shell(&mount, script);
    let want = ["7\n", "cannot create theirs: Permission denied", "cat: private/f: Permission denied", "private/f.npy: Permission denied"];
    want.iter().for_each(|want| assert!(said.contains(want), "{want}: {said}"));
    let end = "root\nmore\ntheirs 7 8 644\nshared 0 8 2775\nshared/new 9 8 644\nshared/dir 9 8 2755\n0 0\n";
    assert!(said.ends_with(end) && said.matches("Operation not permitted").count() == 2, "{said}");
    unmount(&mount);
    h5py(&file, "    assert f['shared/new'].attrs['_h5dir_posix'] == b'uid=9 gid=8' and '_h5dir_posix' not in f['theirs'].attrs");
}

/// The bits stayed after `chown` and after writing by another user.
#[test]
fn set_id_bits_are_cleared_by_chown_and_by_unprivileged_changes() {
    let allow_other: &[&str] = if is_root() { &["--allow-other"] } else { &[] };
    let (mount, file) = created("v110", allow_other);
    assert_eq!(Command::new("chmod").args(["-R", "a+rX"]).arg(mount.place.dir()).status().unwrap().code(), Some(0));
    let script = r#"umask 022; cd mnt; chmod 777 .
        as() { if [ $UID -eq 0 ]; then setpriv --reuid=9 --regid=9 --clear-groups sh -c "$1"; else sh -c "$1"; fi; }
        for f in append open truncate change view; do echo text >$f; chmod 6777 $f; done
        for f in group-only read chown; do echo text >$f; chmod 6745 $f; done; mkdir dir; chmod 6777 dir
        as 'echo x >>append; : >open; truncate -s 2 truncate; exec 3<>change; printf y >&3; stat -c "%n %a" append open truncate change'
        as 'exec 3>own; echo a >&3; chmod 6777 own; stat -c "%n %a" own; echo b >&3; stat -c "%n %a" own'
        as 'echo x >>.h5dir/exact/view; cat read >/dev/null; echo x >dir/file'
        chmod 6755 chown; chgrp $(id -g) chown group-only dir; stat -c '%n %a' chown group-only dir; cat change"#;
    let changed = "append 777\nopen 777\ntruncate 777\nchange 777\nown 6777\nown 777\n";
    assert_eq!(shell(&mount, script), format!("{changed}chown 755\ngroup-only 2745\ndir 6777\nyext\n"));
    if is_root() {
        assert_eq!(shell(&mount, "cd mnt; chmod 6777 open; echo root >>open; : >open; truncate -s 9 open; stat -c %a open"), "6777\n");
    }
    unmount(&mount);
    let again = Mount::start(Place::new(), &file, &["--modes=all"]);
    let list = "cd mnt; stat -c '%n %a' append truncate change view group-only read chown dir";
    let read = "append 777\ntruncate 777\nchange 777\nview 777\ngroup-only 2745\nread 6745\nchown 755\ndir 6777\n";
    assert_eq!(shell(&again, list), read);
    drop(again);
    // The author of a file does not choose them for its readers.
    let hidden = read.replace("2745", "745").replace("6745", "745").replace("6777", "777");
    assert_eq!(shell(&Mount::start(Place::new(), &file, &[]), list), hidden);
    let again = Mount::start(Place::new(), &file, &["--read-write"]);
    assert_eq!(shell(&again, list), read, "copies need them");
}

#[test]
fn allow_root_keeps_other_users_out_whatever_mode_is_stored() {
    let (mount, file) = created("v110", &[]);
    shell(&mount, "cd mnt; echo a >f; chmod 755 f");
    unmount(&mount);
    let mount = Mount::start(Place::new(), &file, &["--allow-root"]);
    assert_eq!(shell(&mount, "stat -c %a mnt mnt/f"), "700\n700\n");
}

/// `cp -a`, `rsync -a` and `tar x` of another user's tree.
#[test]
fn owners_of_symbolic_links_are_stored_and_move_with_them() {
    if !is_root() {
        return;
    }
    for libver in ["v110", "earliest"] {
        let (mount, file) = created(libver, &[]);
        shell(
            &mount,
            "mkdir -p out/t; cd out/t; echo x >f; ln -s f a; ln -s /nowhere b; ln -s f c; chown -hR 1000:1001 .; cd ../..
            cp -a out/t mnt/cp; rsync -a out/t/ mnt/rsync/; tar -C out -cf out.tar t; tar -C mnt -xf out.tar",
        );
        let list = r"find mnt -type l -printf '%P %U:%G %l\n' | sort";
        let owned = |dir: &str| format!("{dir}/a 1000:1001 f\n{dir}/b 1000:1001 /nowhere\n{dir}/c 1000:1001 f\n");
        assert_eq!(shell(&mount, list), ["cp", "rsync", "t"].map(owned).concat(), "{libver}");
        let moves = "cd mnt; rm -r rsync; mv cp/a cp/z; mv t/b cp/; mv -T cp/c t/c; mv --exchange cp/z t/a 2>/dev/null || true
            chown -h root t/c; chown -h root:root t/a; rm t/a; ln -s f t/a; getfattr -dm- t cp | grep -c posix || true";
        assert_eq!(shell(&mount, moves), "0\n");
        unmount(&mount);
        let again = Mount::start(Place::new(), &file, &[]);
        assert_eq!(shell(&again, list), "cp/b 1000:1001 /nowhere\ncp/z 1000:1001 f\nt/a 0:0 f\nt/c 0:1001 f\n", "{libver}");
        unmount(&again);
        let stored =
            "    assert sorted(f['t'].attrs) == ['_h5dir_posix', '_h5dir_posix:c'] and f['t'].attrs['_h5dir_posix:c'] == b'gid=1001'";
        h5py(&file, stored);
    }
}
