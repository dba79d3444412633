//! Setting derived facts, and copies of whole trees between two mounts.

use super::expected;
use super::mounted::{Mount, copy_fixture, getxattr};
use super::python;
use super::support::{Place, eventually, h5dir, is_mounted, run};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// What h5py finds different in two files.
fn differences(a: &Path, b: &Path) -> Vec<String> {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/mount/compare.py");
    let output = Command::new(python::with_h5py()).arg(script).args([a, b]).stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().lines().filter(|l| !l.is_empty()).map(str::to_owned).collect()
}

fn h5py(path: &Path, program: &str) {
    let script = format!("import h5py, sys, numpy as np\nwith h5py.File(sys.argv[1], 'r+') as f:\n{program}\n");
    let output = Command::new(python::with_h5py()).args(["-c", &script]).arg(path).stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// What a script says, in the mount; whether it ends well.
fn shell(directory: &Path, script: &str) -> (bool, String) {
    let output = Command::new("timeout").args(["60", "bash", "-uo", "pipefail", "-c", script]).current_dir(directory).output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&text).into_owned())
}

fn created(libver: &str) -> (Place, PathBuf) {
    let place = Place::new();
    let file = place.dir().join("new.h5");
    assert_eq!(run(&mut h5dir(&["create", "--libver", libver, file.to_str().unwrap()])), (0, String::new()));
    (place, file)
}

fn empty(libver: &str) -> (Mount, PathBuf) {
    let (place, file) = created(libver);
    (Mount::start(place, &file, &["--read-write"]), file)
}

fn unmount(mount: &Mount) {
    assert_eq!(run(h5dir(&["umount"]).arg(mount.place.mnt())), (0, String::new()), "{}", mount.log());
    eventually("it is unmounted", || !is_mounted(&mount.place.mnt()));
}

/// Copies the tree of `file` by `command` (from `$S` to `$D`); what it says, and how the copy differs.
fn copied(file: &Path, libver: &str, command: &str) -> (String, Vec<String>) {
    let source = Mount::start(Place::new(), file, &[]);
    let (target, copy) = empty(libver);
    let script = format!("S={} D={}; {command}", source.place.mnt().display(), target.place.mnt().display());
    let (done, text) = shell(source.place.dir(), &script);
    let text = if done { text } else { format!("failed: {text}; log: {}", target.log()) };
    unmount(&target);
    (text, differences(file, &copy))
}

const CP: &str = "cp -a $S/. $D/";
const RSYNC: &str = "rsync -aX --exclude=/.h5dir $S/ $D/";
const TAR: &str = "cd $S; T='tar --xattrs --xattrs-include=user.*'; $T -cf - $(ls) | $T -C $D -xpf -";

#[test]
fn a_copy_between_mounts_is_the_same() {
    let dir = tempfile::tempdir().unwrap();
    let mutant = |name: &str| expected::folder().join(format!("../mutants/{name}.h5"));
    let mut files =
        Vec::from(["attributes_new", "attributes_old", "layouts_new", "layouts_old", "complex"].map(|n| copy_fixture(n, dir.path())));
    files.extend(["attrs_v108", "attrs_latest", "chunks_v110", "filters_latest", "userblock_latest", "types_latest"].map(mutant));
    for (i, file) in files.iter().enumerate() {
        for (command, libver) in [(CP, "v110"), (RSYNC, "earliest"), (TAR, "v110")] {
            // Named datatypes, and the attributes of the root group, are not in what tar unpacks in this way.
            if command == TAR && !file.to_str().unwrap().contains("layouts") || i % 2 == 1 && libver == "earliest" {
                continue;
            }
            let (text, differences) = copied(file, libver, command);
            assert_eq!((text.as_str(), differences), ("", Vec::new()), "{}: {command}", file.display());
        }
    }
}

#[test]
fn variable_length_data_are_copied_but_for_lines_in_strings() {
    let file = copy_fixture("variable", tempfile::tempdir().unwrap().keep().as_path());
    for command in [CP, RSYNC, TAR] {
        let (_, differences) = copied(&file, "v110", command);
        assert!(differences.iter().all(|d| d.starts_with("/newline ")), "{command}: {differences:?}");
    }
}

#[test]
fn a_dataset_becomes_what_its_facts_say() {
    for libver in ["v110", "earliest"] {
        let (mount, file) = empty(libver);
        let mnt = mount.place.mnt();
        let doubles: Vec<u8> = (0..200u32).flat_map(|i| f64::from(i).to_le_bytes()).collect();
        std::fs::write(mnt.join("a"), &doubles).unwrap();
        std::fs::write(mnt.join("b"), &doubles).unwrap();
        let large: Vec<u8> = (0..1_000_000u32).flat_map(u32::to_le_bytes).collect();
        std::fs::write(mnt.join("large"), &large).unwrap();
        let script = r#"set -e
            setfattr -n user.note -v kept b; ln b b2; exec 5<b
            setfattr -n user.h5dir.dataset -v '{"dtype":"<f8","shape":[10,20],"chunks":[5,7],"filters":["shuffle","deflate 6"],"fillvalue":-1}' a
            setfattr -n user.h5dir.dtype -v '<f8' b; setfattr -n user.h5dir.shape -v '[20,10]' b2; setfattr -n user.h5dir.maxshape -v '[20,10]' b
            setfattr -n user.h5dir.layout -v contiguous b; cmp b <(cat <&5)
            setfattr -n user.h5dir.dataset -v '{"dtype":"<u4","shape":[1000,1000],"layout":"contiguous"}' large
            for v in '[100,100]' '[333,7]' none '[1000,1]'; do setfattr -n user.h5dir.chunks -v "$v" large; done
            setfattr -n user.h5dir.filters -v 'shuffle, deflate 1' large
            touch n; setfattr -n user.h5dir.shape -v '[3,4]' n; stat -c %s n
            setfattr -n user.h5dir.dataset -v '{"dtype":">i2","shape":[3,4],"fillvalue":9,"layout":"compact"}' n; stat -c %s n
            printf 'one\ntwo\n\nfour' >s; setfattr -n user.h5dir.dataset -v '{"dtype":"str","shape":[4]}' s; stat -c %s s"#;
        assert_eq!(shell(&mnt, script), (true, "12\n24\n14\n".into()), "{}", mount.log());
        assert!(std::fs::read(mnt.join("a")).unwrap() == doubles && std::fs::read(mnt.join("large")).unwrap() == large);
        let refused = r#"printf 1234567890abc >e; set() { setfattr -n "user.h5dir.$1" -v "$2" e 2>/dev/null && echo "$1 $2"; }
            set dtype '<f8'; set shape '[3]'; set shape '[14]'; set bogus 1; set dataset '{"bogus":1}'; set layout odd; set filters odd
            set dataset '{"dtype":"str","shape":[3]}'; set dtype odd; set chunks '[0]'; set fillvalue xyz; set maxshape '[3]'; cat e"#;
        assert_eq!(shell(&mnt, refused).1, "1234567890abc", "{}", mount.log());
        assert!(mount.log().contains("13 bytes are no whole number of elements of 8 bytes"), "{}", mount.log());
        unmount(&mount);
        h5py(
            &file,
            "    a, b, n, l = f['a'], f['b'], f['n'], f['large']
    assert (a[:] == np.arange(200.).reshape(10, 20)).all() and a.chunks == (5, 7) and a.fillvalue == -1 and a.maxshape == (None, 20)
    assert a.shuffle and a.compression_opts == 6
    assert (b[:] == np.arange(200.).reshape(20, 10)).all() and f['b2'] == b and b.attrs['note'] == b'kept' and b.chunks is None
    assert (l[:] == np.arange(1000000).reshape(1000, 1000)).all() and l.chunks == (1000, 1) and l.compression == 'gzip'
    assert (n[:] == 9).all() and n.dtype == '>i2' and list(f['s'][:]) == [b'one', b'two', b'', b'four'] and f['e'].shape == (13,)
    a.resize((12, 20)); assert (a[11] == -1).all()
    l[5, 5] = 1; n[0, 0] = 3; f['s'][1] = 'changed'
    for k in list(f): del f[k]",
        );
    }
}

#[test]
fn lines_replace_the_strings_of_a_dataset() {
    let (place, file) = created("v110");
    h5py(
        &file,
        "    t = h5py.string_dtype()
    f.create_dataset('fixed', data=['a', 'b', 'c'], dtype=t)
    f.create_dataset('grows', data=['a', 'b', 'c'], dtype=t, maxshape=(None,), chunks=(100,), compression='gzip')
    s = f.create_dataset('sequences', (3,), h5py.vlen_dtype('<i4')); s[0] = [1, 2]; s[1] = [3]
    f.create_dataset('more', (1,), h5py.vlen_dtype('<i4'), maxshape=(None,))",
    );
    let mount = Mount::start(place, &file, &["--read-write"]);
    let mnt = mount.place.mnt();
    let script = "set -e; printf 'one\\ntwo\\nthree\\n' >fixed; cat fixed; seq 9 | head -6 >grows; echo more >>grows; tail -2 grows
        cp sequences more; stat -c %s more; if seq 2 >fixed; then false; fi; cat fixed";
    let (done, text) = shell(&mnt, script);
    let text: Vec<&str> = text.lines().filter(|l| !l.contains("error")).collect();
    assert!(done && text == ["one", "two", "three", "6", "more", "24", "one", "two", "three"], "{text:?} {}", mount.log());
    assert!(getxattr(&mnt.join("grows"), "user.h5dir.shape").unwrap() == b"[7]");
    unmount(&mount);
    h5py(
        &file,
        "    assert list(f['fixed'][:]) == [b'one', b'two', b'three'] and list(f['grows'][:]) == [b'1', b'2', b'3', b'4', b'5', b'6', b'more']
    assert [list(x) for x in f['more'][:]] == [[1, 2], [3], []] == [list(x) for x in f['sequences'][:]]
    f['fixed'][1] = 'x' * 5000; f['grows'].resize((8,)); f['grows'][7] = 'end'",
    );
}
