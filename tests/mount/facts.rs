//! Setting derived facts, and copies of whole trees between two mounts.

use super::expected;
use super::mounted::{Mount, copy_fixture, getxattr};
use super::python;
use super::support::{Place, eventually, h5dir, is_mounted, run};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// What h5py finds different in two files.
fn differences(a: &Path, b: &Path) -> Vec<String> {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/oracle/tree_compare.py");
    let output = Command::new(python::with_h5py()).arg(script).args([a, b]).stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().lines().filter(|l| !l.is_empty()).map(str::to_owned).collect()
}

pub(super) fn h5py(path: &Path, program: &str) {
    let script = format!("import h5py, sys, numpy as np\nwith h5py.File(sys.argv[1], 'r+') as f:\n{program}\n");
    let output = Command::new(python::with_h5py()).args(["-c", &script]).arg(path).stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// What a script says, in the mount; whether it ends well.
pub(super) fn shell(directory: &Path, script: &str) -> (bool, String) {
    let output = Command::new("timeout").args(["60", "bash", "-uo", "pipefail", "-c", script]).current_dir(directory).output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&text).into_owned())
}

pub(super) fn created(libver: &str) -> (Place, PathBuf) {
    let place = Place::new();
    let file = place.dir().join("new.h5");
    assert_eq!(run(&mut h5dir(&["create", "--libver", libver, file.to_str().unwrap()])), (0, String::new()));
    (place, file)
}

pub(super) fn empty(libver: &str) -> (Mount, PathBuf) {
    let (place, file) = created(libver);
    (Mount::start(place, &file, &["--read-write"]), file)
}

pub(super) fn unmount(mount: &Mount) {
    assert_eq!(run(h5dir(&["umount"]).arg(mount.place.mnt())), (0, String::new()), "{}", mount.log());
    eventually("it is unmounted", || !is_mounted(&mount.place.mnt()));
}

/// Copies the tree of `file` by `command` (from `$S` to `$D`); what it says, and how the copy differs.
pub(super) fn copied(file: &Path, libver: &str, command: &str) -> (String, Vec<String>) {
    let source = Mount::start(Place::new(), file, &[]);
    let (target, copy) = empty(libver);
    let script = format!("S={} D={}; {command}", source.place.mnt().display(), target.place.mnt().display());
    let (done, text) = shell(source.place.dir(), &script);
    let text = if done { text } else { format!("failed: {text}; log: {}", target.log()) };
    unmount(&target);
    (text, differences(file, &copy))
}

pub(super) const CP: &str = "cp -a $S/. $D/";
pub(super) const RSYNC: &str = "rsync -aX --exclude=/.h5dir $S/ $D/";
pub(super) const TAR: &str = "cd $S; T='tar --xattrs --xattrs-include=user.*'; $T -cf - $(ls) | $T -C $D -xpf -";

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
fn variable_length_data_are_copied() {
    let directory = tempfile::tempdir().unwrap();
    let file = copy_fixture("variable", directory.path());
    for command in [CP, RSYNC, TAR] {
        let (_, differences) = copied(&file, "v110", command);
        assert!(differences.is_empty(), "{command}: {differences:?}");
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
            setfattr -n user.h5dir.dtype -v '<f8' b; setfattr -n user.h5dir.reshape -v '[20,10]' b2; setfattr -n user.h5dir.maxshape -v '[20,10]' b
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
            set dtype '<f8'; set reshape '[3]'; set reshape '[14]'; set shape '[-1]'; set bogus 1; set dataset '{"bogus":1}'; set layout odd; set filters odd
            set dataset '{"dtype":"str","shape":[3]}'; set dtype odd; set chunks '[0]'; set fillvalue xyz; set maxshape '[3]'; cat e"#;
        assert_eq!(shell(&mnt, refused).1, "1234567890abc", "{}", mount.log());
        assert!(mount.log().contains("13 bytes are no whole number of elements of 8 bytes"), "{}", mount.log());
        unmount(&mount);
        h5py(
            &file,
            "    a, b, n, l = f['a'], f['b'], f['n'], f['large']
    assert (a[:] == np.arange(200.).reshape(10, 20)).all() and a.chunks == (5, 7) and a.fillvalue == -1 and a.maxshape == (None, 20)
    assert a.shuffle and a.compression_opts == 6
    assert (b[:] == np.arange(200.).reshape(20, 10)).all() and f['b2'] == b and b.attrs['note'] == 'kept' and b.chunks is None
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
        cp sequences more; stat -c %s more; if seq 2 >fixed; then false; fi
        # The daemon hears of a close after the program that closed.
        for n in $(seq 100); do if [ \"$(head -n 1 fixed)\" = one ]; then break; fi; sleep 0.1; done; cat fixed";
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

/// Attributes that are references to parts of `d`, and one whose selection is too long to be shown.
const REFERENCES: &str = "    from h5py import h5r
    d = f.create_dataset('d', data=np.arange(6000).reshape(600, 10)); d.attrs['i'] = np.int32(5); d.attrs['a'] = np.arange(3.)
    def region(name, select):
        s = d.id.get_space(); select(s)
        d.attrs.create(name, h5r.create(d.id, b'.', h5r.DATASET_REGION, s), dtype=h5py.regionref_dtype)
    region('block', lambda s: s.select_hyperslab((1, 2), (2, 3))); region('all', lambda s: s.select_all())
    region('apart', lambda s: s.select_hyperslab((1, 2), (2, 3), (3, 3), (1, 2))); region('none', lambda s: s.select_none())
    region('points', lambda s: s.select_elements([(5, 9), (0, 0), (3, 4)]))
    d.attrs['two'] = np.array([d.regionref[0:1], d.regionref[1:3, ::3]], dtype=h5py.regionref_dtype)
    d.attrs['nil'] = np.empty(2, dtype=h5py.regionref_dtype); d.attrs['object'] = d.ref
    g = f.create_group('g'); g.attrs['there'] = d.regionref[3, 4]; g.attrs['n'] = np.int64(7)
    many = f.create_group('many'); many.attrs['n'] = np.int16(3)
    s = d.id.get_space(); s.select_elements([(i % 600, i % 7) for i in range(4000)])
    many.attrs.create('long', h5r.create(d.id, b'.', h5r.DATASET_REGION, s), dtype=h5py.regionref_dtype)
    many.attrs['last'] = np.float32(0.5)";

/// What a copy of them has.
const COPIED: &str = "    from h5py import h5r
    d, g, many = f['d'], f['g'], f['many']
    assert d.attrs['i'].dtype == 'i4' and d.attrs['a'].dtype == 'f8' and f[d.attrs['object']] == d and g.attrs['n'].dtype == 'i8'
    def region(r):
        assert f[r] == d, r
        s = h5r.get_region(r, d.id)
        return None if s.get_select_type() == 0 else d[:].ravel()[sorted(set(np.ravel_multi_index(
            tuple(np.array(s.get_select_elem_pointlist()).T), d.shape)))] if s.get_select_type() == 1 else d[r].ravel()
    same = lambda r, want: (np.asarray(region(r)) == np.asarray(want).ravel()).all()
    v = d[:]
    assert same(d.attrs['points'], sorted([v[5, 9], v[0, 0], v[3, 4]])) and same(d.attrs['apart'], v[[1, 4]][:, [2, 3, 5, 6, 8, 9]])
    assert d.attrs['none'] and region(d.attrs['none']) is None and region(d.attrs['all']).size == 6000
    assert same(d.attrs['two'][0], v[0:1]) and same(d.attrs['two'][1], v[1:3, ::3]) and not d.attrs['nil'][0] and not d.attrs['nil'][1]
    assert same(g.attrs['there'], v[3, 4])
    assert many.attrs['n'].dtype == 'i2' and many.attrs['last'].dtype == 'f4' and d.attrs['block'] and d.attrs['apart']
    d.attrs['block'] = 1; del d.attrs['apart']";

#[test]
fn an_attribute_that_cannot_be_made_leaves_the_others_their_types() {
    let (place, file) = created("earliest");
    h5py(&file, REFERENCES);
    let source = Mount::start(place, &file, &[]);
    for (libver, command) in [("v110", CP), ("earliest", RSYNC)] {
        let (target, copy) = empty(libver);
        let script = format!("S={} D={}; {command}; sync $D/d", source.place.mnt().display(), target.place.mnt().display());
        assert_eq!(shell(source.place.dir(), &script), (true, String::new()), "{}", target.log());
        assert_eq!(target.log().matches("left out of user.h5dir.attributes").count(), 1, "{}", target.log());
        assert!(target.log().contains("attribute \"long\""), "{}", target.log());
        for name in ["h5dir.attributes", "block", "apart", "points", "two", "all", "none"] {
            let name = format!("user.{name}");
            let text = |m: &Mount| String::from_utf8(getxattr(&m.path("d"), &name).unwrap()).unwrap();
            assert_eq!(text(&source), text(&target));
        }
        // By hand: one that is there takes another selection; what can be made of nothing is an error, and so is wrong text.
        let script = r#"cd $D; setfattr -n user.block -v '{"dataset":"/d","selection":{"select_type":"H5S_SEL_HYPERSLABS","selection":[[[7,8],[7,9]]]}}' d
            T='"type":{"class":"H5T_REFERENCE","base":"H5T_STD_REF_DSETREG"}'; L='{"dataset":"/d","selection":{"select_type":"H5S_SEL_POINTS","count":9}}'
            set() { setfattr -n user.h5dir.attributes -v "$1" g 2>&1 | sed 's/.*: //'; }
            set "[{\"name\":\"x\",$T,\"value\":$L}]"; set "[{\"name\":\"x\",$T,\"value\":$L},{\"name\":\"y\",\"type\":\"u1\",\"value\":\"z\"}]"
            set "[{\"name\":\"x\",$T,\"value\":$L},{\"name\":\"y\",\"type\":\"u1\",\"value\":9}]"; getfattr -n user.y --only-values g"#;
        let script = format!("D={}; {script}", target.place.mnt().display());
        let said = "Operation not supported\nInvalid argument\n9";
        assert_eq!(shell(source.place.dir(), &script), (true, said.into()), "{}", target.log());
        unmount(&target);
        h5py(&copy, &format!("    assert (f['d'][f['d'].attrs['block']] == [78, 79]).all()\n{COPIED}"));
    }
}

/// Regression: EIO when the attributes that the object has are longer together than an extended attribute.
#[test]
fn attributes_are_set_beside_others_of_more_than_64_kib() {
    let (mount, file) = empty("v110");
    let script = r#"set -e; : >a
        for i in 1 2 3; do setfattr -n user.x$i -v "$(head -c 30000 /dev/zero | tr '\0' v)" a; done
        J='[{"name":"j","type":{"class":"H5T_INTEGER","base":"H5T_STD_I32LE"},"shape":{"class":"H5S_SCALAR"},"value":5}]'
        setfattr -n user.h5dir.attributes -v "$J" a; getfattr --only-values -n user.j a
        setfattr -x user.h5dir.attributes a"#;
    assert_eq!(shell(&mount.place.mnt(), script), (true, "5".into()), "{}", mount.log());
    unmount(&mount);
    h5py(&file, "    assert f['a'].attrs['j'] == 5 and f['a'].attrs['j'].dtype == '<i4' and len(f['a'].attrs) == 4");
}

/// While a large dataset is laid out anew, other requests are served, and it tells how far it is.
#[test]
fn a_layout_is_changed_beside_other_requests() {
    let (mount, file) = empty("v110");
    let program = "
import os, threading, numpy as np
np.random.default_rng(1).integers(0, 9, 8_000_000).astype('f8').tofile('big')
open('other', 'wb').write(b'x' * 1000)
done, served, progress = [], 0, set()
def change():
    os.setxattr('big', 'user.h5dir.dataset', b'{\"dtype\":\"<f8\",\"shape\":[2000,4000],\"chunks\":[20,500],\"filters\":[\"deflate 6\"]}')
    done.append(1)
thread = threading.Thread(target=change)
thread.start()
while not done:
    os.mkdir(f'd{served}'); open(f'd{served}/f', 'w').write('new'); assert open('other', 'rb').read() == b'x' * 1000
    try: progress.add(int(os.getxattr('big', 'user.h5dir.progress').split(b'/')[0]))
    except OSError: pass
    served += 1
thread.join()
print(served > 3, max(progress) > 0, np.fromfile('big').sum() == np.random.default_rng(1).integers(0, 9, 8_000_000).sum())
try: os.getxattr('big', 'user.h5dir.progress')
except OSError as e: print(e.errno)";
    let output = Command::new(python::with_h5py()).args(["-c", program]).current_dir(mount.place.mnt()).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert_eq!(text, "True True True\n61\n", "{}", mount.log());
    unmount(&mount);
    h5py(
        &file,
        "    assert f['big'].chunks == (20, 500) and f['big'][()].sum() == np.random.default_rng(1).integers(0, 9, 8_000_000).sum()",
    );
}

/// The comment of an object is a fact that is set and removed, and survives a replacement by an editor.
#[test]
fn comments_are_shown_and_set() {
    let (place, file) = created("earliest");
    h5py(&file, "    h5py.h5o.set_comment(f.create_group('g').id, b'old'); f['d'] = [1.5]; h5py.h5o.set_comment(f['d'].id, b'of d')");
    let mount = Mount::start(place, &file, &["--read-write"]);
    let script = r#"exec 2>&1; G='getfattr --only-values -n user.h5dir.comment'
        $G g; echo; getfattr -d -m comment d | grep -c comment; touch new; setfattr -n user.h5dir.comment -v 'a new one' new; $G new; echo
        $G . >/dev/null || echo none; setfattr -x user.h5dir.comment g; $G g >/dev/null || echo removed
        setfattr -n user.h5dir.comment -v 0x6100 new || echo refused; cp d d~; mv d~ d; $G d"#;
    let said = shell(&mount.place.mnt(), script).1;
    let lines: Vec<&str> = said.lines().filter(|line| !line.contains("user.h5dir.comment:") && !line.starts_with("setfattr")).collect();
    assert_eq!(lines, ["old", "1", "a new one", "none", "removed", "refused", "of d"], "{said} {}", mount.log());
    unmount(&mount);
    h5py(
        &file,
        "    import ctypes, glob, os
    lib = ctypes.CDLL(glob.glob(os.path.join(os.path.dirname(h5py.__file__), '..', 'h5py.libs', 'libhdf5-*.so*'))[0])
    lib.H5Oget_comment.argtypes = [ctypes.c_int64, ctypes.c_void_p, ctypes.c_size_t]
    def of(name):
        text = ctypes.create_string_buffer(99)
        found = f[name]; lib.H5Oget_comment(found.id.id, text, 99)
        return text.value
    assert [of(name) for name in ('g', 'new', 'd')] == [b'', b'a new one', b'of d']",
    );
}

/// The errno of a refusal, `EINVAL` above all, does not say what was wrong.
#[test]
fn the_reason_of_the_last_failure_is_a_fact_of_the_file() {
    let (mount, _) = empty("v110");
    let script = r#"cd mnt; head -c 800 /dev/zero >f; reason() { getfattr --only-values -n user.h5dir.error $1 2>/dev/null && echo || echo none; }
        reason f
        setfattr -n user.h5dir.dataset -v '{"dtype": "<f9"}' f 2>/dev/null && exit 1; reason f
        setfattr -n user.h5dir.dataset -v '{"dtype": "<f8", "chunks": [0]}' f 2>/dev/null && exit 1; reason f
        getfattr -d f; reason .; echo x >g; reason g"#;
    let (done, said) = shell(mount.place.dir(), script);
    let lines: Vec<&str> = said.lines().collect();
    assert!(done && lines.len() == 5 && [lines[0], lines[3], lines[4]] == ["none"; 3], "{said}");
    assert!(lines[1].contains("<f9") && lines[2].contains("chunk") && !lines[2].contains("<f9"), "{said}");
}

/// Regression: with a fill value other than zero the bytes past the new end were still read. Pages
/// with erased elements stayed, too, and a store to one brought the elements back.
#[test]
fn facts_that_change_elements_show_at_once() {
    use std::os::unix::fs::FileExt;
    let (mount, _) = empty("v110");
    let at = mount.path("d");
    let set = |fact: &str, value: &str| {
        assert_eq!(
            shell(&mount.place.mnt(), &format!("setfattr -n user.h5dir.{fact} -v '{value}' d")),
            (true, String::new()),
            "{}",
            mount.log()
        );
    };
    std::fs::write(&at, b"").unwrap();
    set("dataset", r#"{"dtype":"u1","shape":[100],"maxshape":[null],"chunks":[64],"fillvalue":67}"#);
    let file = std::fs::File::options().read(true).write(true).open(&at).unwrap();
    let mut buffer = [0; 100];
    for n in 1..20u8 {
        file.write_all_at(&[n; 100], 0).unwrap();
        assert_eq!(file.read_at(&mut buffer, 0).unwrap(), 100);
        set("shape", "[38]");
        assert_eq!((file.read_at(&mut buffer, 0).unwrap(), file.read_at(&mut buffer, 30).unwrap()), (38, 8));
        set("shape", "[100]");
        file.write_all_at(&[n; 100], 0).unwrap();
        file.read_exact_at(&mut buffer, 0).unwrap();
        set("erase", "20:60");
        file.write_all_at(&[9], 0).unwrap();
        file.read_exact_at(&mut buffer, 0).unwrap();
        let mut want = [n; 100];
        want[0] = 9;
        want[20..60].fill(0);
        assert!(buffer == want, "{buffer:?}");
    }
    file.sync_all().unwrap();
    drop(file);
    unmount(&mount);
}

/// Regression: EIO.
#[test]
fn compact_data_of_64_kib_is_refused_with_a_reason() {
    let (mount, _) = empty("v110");
    std::fs::write(mount.path("d"), vec![7; 160_000]).unwrap();
    let set = r#"setfattr -n user.h5dir.dataset -v '{"dtype":"u1","shape":[160000],"layout":"compact"}' d"#;
    let (done, text) = shell(&mount.place.mnt(), set);
    assert!(!done && text.contains("Invalid argument"), "{text}");
    assert!(mount.xattr("d", "h5dir.error").contains("64 KiB") && mount.read("d") == vec![7; 160_000], "{}", mount.log());
    unmount(&mount);
}
