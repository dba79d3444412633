//! Copies between mounts of what a plain copy of bytes would get wrong: strings with newlines, references.

use super::facts::{CP, RSYNC, TAR, copied, created, empty, h5py, shell, unmount};
use super::mounted::{Mount, copy_fixture, listxattr};
use super::support::{Place, h5dir, run};
use std::path::PathBuf;

/// Strings with newlines of several ranks, in datasets and attributes, of fixed and of variable length.
const STRINGS: &str = r"    s = h5py.string_dtype()
    words = ['a\nb', '', '\n', 'plain', 'end\n', '\nstart', 'x\n\ny', 'last']
    def make(name, shape, **kw):
        for kind, t in (('vl', s), ('fixed', 'S12')):
            v = np.resize(np.array(words, dtype=object if t is s else t), shape)
            f.create_dataset(f'{kind}_{name}', data=v, dtype=t, **kw)
            f.attrs.create(f'{kind}_{name}', v, dtype=t)
    make('scalar', ()); make('one', (1,)); make('line', (8,)); make('square', (4, 5)); make('cube', (2, 3, 4))
    make('grows', (9,), maxshape=(None,), chunks=(4,)); make('packed', (6, 3), maxshape=(None, 3), chunks=(2, 3), compression='gzip')
    make('none', (0,), maxshape=(None,))
    f.create_dataset('text', data=['one', 'two'], dtype=s, maxshape=(None,))
    f.create_dataset('filled', (5,), dtype=s, fillvalue='p\nq')";

#[test]
fn strings_with_newlines_are_copied() {
    let (place, file) = created("earliest");
    h5py(&file, STRINGS);
    for (command, libver) in [(CP, "v110"), (RSYNC, "earliest"), (TAR, "v110")] {
        let (text, mut differences) = copied(&file, libver, command);
        // What tar unpacks in this way has no attributes of the root group.
        differences.retain(|d| command != TAR || !d.starts_with(" attribute "));
        assert_eq!((text.as_str(), differences), ("", Vec::new()), "{command}");
    }
    drop(place);
}

#[test]
fn strings_with_more_newlines_than_can_be_told_are_not_copied() {
    let (place, file) = created("v110");
    h5py(&file, "    f.create_dataset('many', data=['a\\nb'] * 20000, dtype=h5py.string_dtype(), maxshape=(None,))");
    let source = Mount::start(place, &file, &[]);
    for command in [CP, RSYNC, TAR] {
        let (target, _) = empty("v110");
        let script = format!("S={} D={}; {command}", source.place.mnt().display(), target.place.mnt().display());
        let (done, text) = shell(source.place.dir(), &script);
        assert!(!done, "{command}: {text}");
        assert!(target.log().contains(".h5dir/exact"), "{}", target.log());
        // The exact form says it all.
        let script = format!(
            "S={} D={}; touch $D/whole; setfattr -n user.h5dir.dataset -v '{{\"dtype\":\"str\",\"shape\":[0],\"maxshape\":[null]}}' $D/whole
             cp $S/.h5dir/exact/many $D/.h5dir/exact/whole; cmp $S/.h5dir/exact/many $D/.h5dir/exact/whole",
            source.place.mnt().display(),
            target.place.mnt().display()
        );
        assert_eq!(shell(source.place.dir(), &script), (true, String::new()), "{}", target.log());
        unmount(&target);
    }
}

/// Regression: appending to a dataset with newlines in its strings made each line a string.
#[test]
fn lines_are_appended_to_strings_with_newlines() {
    let (place, file) = created("v110");
    h5py(&file, "    f.create_dataset('s', data=['a\\nb', 'c'], dtype=h5py.string_dtype(), maxshape=(None,))");
    let mount = Mount::start(place, &file, &["--read-write"]);
    let script = "echo more >>s; printf x | dd of=s conv=notrunc status=none 2>/dev/null && echo taken; truncate -s 2 s 2>/dev/null && echo cut; cat s";
    assert_eq!(shell(&mount.place.mnt(), script).1, "a\nb\nc\nmore\n", "{}", mount.log());
    unmount(&mount);
    h5py(&file, "    assert list(f['s'][:]) == [b'a\\nb', b'c', b'more'], f['s'][:]");
}

/// Regression: the write succeeded and nothing was stored.
#[test]
fn a_line_more_than_a_dataset_of_fixed_shape_has_is_efbig() {
    let (place, file) = created("v110");
    h5py(
        &file,
        "    t = h5py.string_dtype()
    f.create_dataset('names', data=['a', 'b'], dtype=t); f.create_dataset('three', data=['a', 'b'], dtype=t, maxshape=(3,))
    v = f.create_dataset('v', (2,), h5py.vlen_dtype('<i2')); v[0] = [1]",
    );
    let mount = Mount::start(place, &file, &["--read-write"]);
    let script = r#"exec 2>&1; echo x >>names; printf 'x\ny' >>three; echo x >>three; printf '\0\0\0\0' >>v
        seq 3 >names; printf 'long\nlines' >names; cat names; cat three; stat -c %s v"#;
    let said = shell(&mount.place.mnt(), script).1;
    assert_eq!(said.matches("File too large").count(), 5, "{said} {}", mount.log());
    assert!(said.ends_with("\nlong\nlines\na\nb\nx\n10\n"), "{said}");
    unmount(&mount);
    h5py(
        &file,
        "    assert [list(f[n][:]) for n in ('names', 'three')] == [[b'long', b'lines'], [b'a', b'b', b'x']] and list(f['v'][0]) == [1]",
    );
}

/// Regression: `rsync -X` skipped the whole dataset.
#[test]
fn an_attribute_too_long_for_getxattr_is_not_listed() {
    let dir = tempfile::tempdir().unwrap();
    let file = copy_fixture("limits", dir.path());
    let source = Mount::start(Place::new(), &file, &[]);
    let names = listxattr(&source.path("data"));
    assert!(names.iter().any(|n| n == "user.fits") && !names.iter().any(|n| n == "user.too_big"), "{names:?}");
    assert!(source.path(".h5dir/attrs/data/too_big").exists());
    let (target, _) = empty("v110");
    let script = format!("rsync -aX --exclude=/.h5dir {}/data {}/", source.place.mnt().display(), target.place.mnt().display());
    assert_eq!(shell(source.place.dir(), &script), (true, String::new()), "{}", target.log());
    assert_eq!(target.read("data"), source.read("data"));
    unmount(&target);
}

/// A copy without them had exit status 0.
#[test]
fn rsync_fails_where_attributes_are_too_long_for_pieces() {
    let (_place, file) = created("v110");
    h5py(
        &file,
        "    f.close(); f = h5py.File(sys.argv[1], 'w', libver='latest'); d = f.create_dataset('d', data=np.arange(3))
    d.attrs['noise'] = np.frombuffer(np.random.bytes(6 << 20), 'u1'); d.attrs['n'] = np.int16(5); f.close()",
    );
    let source = Mount::start(Place::new(), &file, &[]);
    for _ in 0..2 {
        let names = listxattr(&source.path("d"));
        assert_eq!(names, ["user.h5dir.dataset", "user.h5dir.attributes", "user.n"], "{}", source.log());
    }
    assert_eq!(source.log().matches("attributes is longer than").count(), 1, "{}", source.log());
    let (target, _) = empty("v110");
    let script = format!("rsync -aX --exclude=/.h5dir {}/d {}/", source.place.mnt().display(), target.place.mnt().display());
    let (succeeded, said) = shell(source.place.dir(), &script);
    assert!(!succeeded && said.contains("user.h5dir.attributes"), "{said}");
    unmount(&target);
}

/// Regression: attributes of more than 64 KiB, and those whose names take more, were lost, and with them all types.
#[test]
fn attributes_longer_than_an_extended_attribute_are_copied() {
    let (_place, file) = created("v110");
    h5py(
        &file,
        "    import os; f.close(); f = h5py.File(sys.argv[1], 'w', libver='latest')
    g = f.create_group('one'); g.attrs['config'] = 'x' * 100000; g.attrs['backend'] = 'text'; g.attrs['epochs'] = np.int16(5)
    g.attrs['names'] = np.array([b'a', b'bc', b'd']); g.attrs['noise'] = np.frombuffer(os.urandom(300000), 'u1')
    h = f.create_group('many')
    for i in range(600): h.attrs['attribute_number_%0100d' % i] = np.int32(i)
    t = f.create_group('texts')
    for i in range(600): t.attrs['text_number_%0100d' % i] = str(i)
    f.create_group('text').attrs['long'] = 'y' * 70000
    d = f.create_dataset('d', data=np.arange(6).reshape(2, 3)); d.attrs['large'] = np.arange(20000.0); d.attrs['small'] = np.float32(2)
    f.create_dataset('wide', (2,), np.dtype([('m%04d' % i, '<i2') for i in range(1500)]))
    e = f.create_dataset('e', (0,), 'u1', maxshape=(None,)); e.attrs['all'] = np.arange(9000) / 7
    f.close()",
    );
    for command in [CP, RSYNC, TAR] {
        let (text, mut differences) = copied(&file, "v110", command);
        differences.retain(|d| command != TAR || !d.starts_with(" attribute "));
        assert_eq!((text.as_str(), differences), ("", Vec::new()), "{command}");
    }
}

/// Pieces that do not arrive are logged, and change nothing.
#[test]
fn a_fact_without_all_its_pieces_is_not_set() {
    let (place, file) = created("v110");
    h5py(
        &file,
        "    import os; f.close(); f = h5py.File(sys.argv[1], 'w', libver='latest')
    f.create_group('g').attrs['noise'] = np.frombuffer(os.urandom(200000), 'u1'); f.close()",
    );
    let source = Mount::start(place, &file, &[]);
    let pieces = listxattr(&source.path("g"));
    assert!(pieces.len() > 2 && pieces.iter().all(|n| n.starts_with("user.h5dir.attributes.")), "{pieces:?}");
    let (target, copy) = empty("v110");
    std::fs::create_dir(target.path("g")).unwrap();
    for name in pieces.iter().skip(1) {
        xattr::set(target.path("g"), name, &xattr::get(source.path("g"), name).unwrap().unwrap()).unwrap();
    }
    assert!(xattr::set(target.path("g"), "user.h5dir.attributes.1", b"text").is_err());
    unmount(&target);
    let count = pieces.len();
    let line = format!("user.h5dir.attributes was not set: {} of its {count} pieces arrived", count - 1);
    assert!(target.log().contains(&line), "{}", target.log());
    h5py(&copy, "    assert len(f['g'].attrs) == 0");
}

/// Datasets of references, as MATLAB writes cells, and in members, arrays and chunks; `mid` lies between what they lead to.
const REFERENCES: &str = r"    from h5py import h5r, h5t, h5s
    r = f.create_group('#refs#'); a = r.create_dataset('a', data=[1, 2]); pad = [f.create_dataset(f'mid{i}', data=[i] * 99) for i in range(9)]
    z = f.create_dataset('zz', data=np.arange(60).reshape(6, 10)); b = r.create_dataset('b', data=[3])
    ref, reg = h5py.ref_dtype, h5py.regionref_dtype
    for d in pad[:8]: del f[d.name]
    def make(group, name, values, dtype=ref, **kw):
        d = group.create_dataset(name, np.shape(values), dtype, **kw); d[...] = np.array(values, dtype=dtype) if np.shape(values) else values
        return d
    cell = make(f, 'cell', [[a.ref, b.ref, z.ref], [f.ref, h5r.Reference(), r.ref]]); cell.attrs['MATLAB_class'] = np.bytes_('cell')
    make(r, 'nested', [cell.ref, z.ref, f['mid8'].ref])
    make(f, 'packed', [a.ref, z.ref] * 40, chunks=(7,), maxshape=(None,), compression='gzip')
    make(f, 'one', z.ref); make(f, 'many', [(a, b, z)[i % 3].ref for i in range(1500)])
    c = np.dtype([('n', '<i4'), ('r', ref), ('g', reg)])
    m = f.create_dataset('members', (3,), c); v = np.zeros(3, c); v['n'] = [7, 8, 9]; v['r'] = [a.ref, b.ref, z.ref]
    v['g'] = [z.regionref[1:3, 2:4], z.regionref[5, 5], z.regionref[0, ::3]]; m[:] = v
    make(f, 'regions', [z.regionref[0:2, 0], z.regionref[3, 1:7]], reg)
    two = np.dtype([('x', ref), ('y', ref)]); p = f.create_dataset('pairs', (2,), two)
    p[:] = np.array([(a.ref, b.ref), (z.ref, cell.ref)], dtype=two)";

/// A file of them, and `filled`, whose fill value is a reference, which h5py does not make.
fn with_references() -> (Place, PathBuf) {
    let (place, file) = created("earliest");
    h5py(&file, REFERENCES);
    let mount = Mount::start(Place::new(), &file, &["--read-write"]);
    let script = r#"touch filled; setfattr -n user.h5dir.dataset -v '{"dtype":{"class":"H5T_REFERENCE","base":"H5T_STD_REF_OBJ"},"shape":[4],"chunks":[2],"fillvalue":"/#refs#/a"}' filled"#;
    assert_eq!(shell(&mount.place.mnt(), script), (true, String::new()), "{}", mount.log());
    unmount(&mount);
    (place, file)
}

/// Each reference leads to the object of the same path, and selects the same.
const LED: &str = r"    names = lambda v: [f[x].name if x else None for x in np.ravel(v)]
    assert names(f['cell'][()]) == ['/#refs#/a', '/#refs#/b', '/zz', '/', None, '/#refs#'] and f['cell'].shape == (2, 3)
    assert names(f['#refs#/nested'][()]) == ['/cell', '/zz', '/mid8'] and names(f['packed'][()]) == ['/#refs#/a', '/zz'] * 40
    assert names([f['one'][()]]) == ['/zz'] and names(f['many'][()]) == ['/#refs#/a', '/#refs#/b', '/zz'] * 500
    assert names(f['filled'][()]) == ['/#refs#/a'] * 4
    m = f['members'][()]; z = f['zz']
    assert list(m['n']) == [7, 8, 9] and names(m['r']) == ['/#refs#/a', '/#refs#/b', '/zz'] and names(m['g']) == ['/zz'] * 3
    same = lambda r, want: (np.ravel(z[r]) == np.ravel(want)).all()
    assert same(m['g'][0], z[1:3, 2:4]) and same(m['g'][1], z[5, 5]) and same(m['g'][2], z[0, ::3])
    g = f['regions'][()]; assert same(g[0], z[0:2, 0]) and same(g[1], z[3, 1:7])
    p = f['pairs'][()]; assert names(p['x']) == ['/#refs#/a', '/zz'] and names(p['y']) == ['/#refs#/b', '/cell']
    f['cell'][0, 0] = z.ref; f['regions'][0] = z.regionref[1, 1]; assert len(f['packed']) == 80";

/// Regression: a copy of references held the addresses of the source, which are other objects in the target.
#[test]
fn references_are_copied_to_the_objects_of_their_paths() {
    let (place, file) = with_references();
    h5py(&file, LED);
    h5py(&file, "    f['cell'][0, 0] = f['#refs#/a'].ref; f['regions'][0] = f['zz'].regionref[0:2, 0]");
    let source = Mount::start(place, &file, &[]);
    for (command, libver) in [(CP, "v110"), (RSYNC, "earliest"), (TAR, "v110")] {
        let (target, copy) = empty(libver);
        // Addresses are others.
        let script = format!(
            "S={} D={}; echo first >$D/first; (cd $D; mkdir x; rmdir x); {command} && sync $D/first",
            source.place.mnt().display(),
            target.place.mnt().display()
        );
        assert_eq!(shell(source.place.dir(), &script), (true, String::new()), "{command}: {}", target.log());
        let same = |name: &str| source.xattr(name, "h5dir.references") == target.xattr(name, "h5dir.references");
        assert!(command == TAR || same("cell") && same("members"), "{}", target.log());
        unmount(&target);
        h5py(&copy, LED);
        assert!(!target.log().contains("are null"), "{command}: {}", target.log());
    }
}

/// What leads to nothing in the copy is null, and told of once.
#[test]
fn references_to_what_was_not_copied_are_null() {
    let (place, file) = with_references();
    let more = r"    f.create_dataset('lists', (2,), h5py.vlen_dtype(h5py.ref_dtype))[0] = [f['zz'].ref]
    g = f.create_dataset('gone', data=1); f.create_dataset('lost', data=[g.ref, f['zz'].ref], dtype=h5py.ref_dtype); del f['gone']";
    h5py(&file, more);
    let source = Mount::start(place, &file, &[]);
    for (n, command) in ["cp -a", "rsync -aX"].into_iter().enumerate() {
        let (target, copy) = empty("v110");
        let names = "cell members regions pairs filled lists lost";
        let script = format!("cd {}; {command} {names} {}/", source.place.mnt().display(), target.place.mnt().display());
        assert_eq!(shell(source.place.dir(), &script), (true, String::new()), "{command}: {}", target.log());
        // Bytes of addresses are not taken by those that are there either; null is.
        let script = r"exec 2>&1; cat cell >other; printf '\1' | dd of=cell conv=notrunc status=none; head -c 48 /dev/zero | dd of=cell conv=notrunc status=none && echo null
            printf '\1' | dd of=.h5dir/attrs/cell/r conv=notrunc status=none; printf '\0\0\0\0' >>lists";
        shell(
            &target.place.mnt(),
            r#"setfattr -n user.h5dir.attributes -v '[{"name":"r","type":{"class":"H5T_REFERENCE","base":"H5T_STD_REF_OBJ"},"shape":{"class":"H5S_SCALAR"},"value":"/cell"}]' cell"#,
        );
        let said = shell(&target.place.mnt(), script).1;
        assert!(said.matches("Operation not permitted").count() == 3 && said.contains("null"), "{said} {}", target.log());
        unmount(&target);
        let check = r"    flat = lambda v: [x for y in np.ravel(v) for x in (np.ravel(y) if isinstance(y, np.ndarray) else [y])]
    for n in ('regions', 'lists', 'lost', 'filled'):
        assert not any(flat(f[n][()])), n
    p = f['pairs'][()]; assert not any(p['x']) and not p['y'][0] and f[p['y'][1]].name == '/cell'
    assert not any(np.ravel(f['cell'][()])) and list(f['members']['n']) == [7, 8, 9] and not any(f['members']['r']) and not any(f['members']['g'])
    assert f[f['cell'].attrs['r']] == f['cell']; f['cell'][0, 0] = f['cell'].ref";
        h5py(&copy, check);
        let told = target.log().matches("are null: ").count();
        assert_eq!(told, 7, "{n}: {}", target.log());
    }
}

/// References are set by paths, in the same file and to what comes later.
#[test]
fn references_are_set_by_their_fact() {
    let (target, file) = empty("v110");
    let script = r#"set -e; touch r
        setfattr -n user.h5dir.dataset -v '{"dtype":{"class":"H5T_REFERENCE","base":"H5T_STD_REF_OBJ"},"shape":[3],"layout":"contiguous"}' r
        setfattr -n user.h5dir.references -v '["/later","/r",null]' r; getfattr --only-values -n user.h5dir.references r; echo
        echo x >later; sync later; getfattr --only-values -n user.h5dir.references r; echo
        mv later moved; getfattr --only-values -n user.h5dir.references r; echo
        ! setfattr -n user.h5dir.references -v '["/r","/r","/r","/r"]' r 2>/dev/null
        ! setfattr -n user.h5dir.references2 -v '["/r"]' r 2>/dev/null
        touch scalar; setfattr -n user.h5dir.dataset -v '{"dtype":"<i4","shape":[1]}' scalar; ! setfattr -n user.h5dir.references -v '["/r"]' scalar 2>/dev/null
        cp -a r same; getfattr --only-values -n user.h5dir.references same"#;
    let said = "[null,\"/r\",null]\n[\"/later\",\"/r\",null]\n[\"/moved\",\"/r\",null]\n[\"/moved\",\"/r\",null]";
    assert_eq!(shell(&target.place.mnt(), script), (true, said.into()), "{}", target.log());
    unmount(&target);
    h5py(
        &file,
        "    assert [f[x].name if x else None for x in f['r'][:]] == ['/moved', '/r', None] == [f[x].name if x else None for x in f['same'][:]]",
    );
}

/// Regression: `cp -a` from a file system that lists the references before the type copied null references.
#[test]
fn references_wait_for_their_type() {
    let (target, file) = empty("v110");
    let script = r#"set -e; python3 - <<'E'
import os
t = b'{"dtype":{"class":"H5T_REFERENCE","base":"H5T_STD_REF_OBJ"},"shape":[3]}'
for name, before, after in (("open", b"", b"x" * 24), ("whole", b"x" * 24, b""), ("none", b"", b"")):
    fd = os.open(name, os.O_CREAT | os.O_RDWR)
    os.write(fd, before)
    os.setxattr(fd, "user.h5dir.references", b'["/later","/open",null]')
    os.setxattr(fd, "user.h5dir.dataset", t)
    os.pwrite(fd, after, 0)
    os.close(fd)
open("closed", "wb").write(b"x" * 24)
os.setxattr("closed", "user.h5dir.references", b'["/later","/open",null]')
os.setxattr("closed", "user.h5dir.dataset", t)
open("bytes", "wb").write(b"x")
os.setxattr("bytes", "user.h5dir.references", b'["/later"]')
E
        echo x >later; sync later; getfattr --only-values -n user.h5dir.references none"#;
    assert_eq!(shell(&target.place.mnt(), script), (true, "[\"/later\",\"/open\",null]".into()), "{}", target.log());
    unmount(&target);
    assert!(target.log().contains("the references that were set are dropped: it stayed a file of bytes"), "{}", target.log());
    let want = "['/later', '/open', None]";
    h5py(
        &file,
        &format!("    for n in ('open', 'whole', 'none', 'closed'): assert [f[x].name if x else None for x in f[n][:]] == {want}, n"),
    );
}

/// Copies of large datasets take little more of the file than what `tar x` leaves, which lays them out once.
#[test]
fn copies_are_laid_out_once() {
    let packed = "(r.random(1500000) * 20).astype('i1').astype('f8'), chunks=(50000,), compression='gzip', compression_opts=1";
    for make in [
        format!("f.create_dataset('d', data={packed})"),
        "f.create_dataset('d', data=r.random(1200000)); f['d'].attrs['unit'] = 'm'".into(),
        "f.create_dataset('d', (100000000,), 'f8', chunks=(100000,))[5000:600000] = r.random(595000)".into(),
        "[f.create_dataset(f'd{i}', data=(r.random(90000) * 9).astype('i2'), chunks=(5000,), compression='gzip') for i in range(20)]"
            .into(),
    ] {
        let (place, file) = created("v110");
        h5py(&file, &format!("    r = np.random.default_rng(1)\n    {make}"));
        let source = Mount::start(place, &file, &[]);
        let mut sizes = Vec::new();
        let once = "tar --xattrs -C $S -cSf - . | tar --xattrs --xattrs-include=user.* -C $D -xSf -";
        for command in [once, "cp -a $S/. $D/", "rsync -aXS $S/ $D/", "rsync -aX $S/ $D/"] {
            if command.contains("-aX ") && make.contains("100000000") {
                continue;
            }
            let (target, copy) = empty("v110");
            let script = format!("S={} D={}; {command}", source.place.mnt().display(), target.place.mnt().display());
            assert_eq!(shell(source.place.dir(), &script), (true, String::new()), "{command}: {}", target.log());
            unmount(&target);
            let compare = format!(
                "    o = h5py.File('{}')
    for n in o:
        assert (f[n].chunks, f[n].dtype, f[n].compression) == (o[n].chunks, o[n].dtype, o[n].compression), n
        assert np.array_equal(f[n][:2000000], o[n][:2000000]), n",
                file.display()
            );
            h5py(&copy, &compare);
            sizes.push((std::fs::metadata(&copy).unwrap().len(), command));
        }
        // On a busy machine bytes are stored before the type comes. What they leave is free, and too
        // little for a copy of the dataset.
        let most = sizes[0].0 * 21 / 10 + (1 << 20);
        assert!(sizes.iter().all(|(size, _)| *size <= most), "{make}: {sizes:?}");
    }
}

/// A dataset with a mandatory filter that no program here knows, its chunks stored as they are, and one of no chunks.
const UNKNOWN: &str = r"    import struct
    for name, chunks in (('d', (0, 1, 3)), ('none', ())):
        plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        plist.set_chunk((100,))
        plist.set_filter(32123, h5py.h5z.FLAG_OPTIONAL, (7, 8, 9))
        d = h5py.Dataset(h5py.h5d.create(f.id, name.encode(), h5py.h5t.STD_I32LE, h5py.h5s.create_simple((400,)), plist))
        for n in chunks:
            d.id.write_direct_chunk((100 * n,), bytes([n]) * (50 + n))
    f.close()
    data = open(sys.argv[1], 'rb').read()
    optional, mandatory = (struct.pack('<HHHH3I', 32123, 0, flags, 3, 7, 8, 9) for flags in (1, 0))
    assert data.count(optional) == 2
    open(sys.argv[1], 'wb').write(data.replace(optional, mandatory))";

/// Regression: `cp -r` refused such a dataset, though h5copy and h5repack copy its chunks.
#[test]
fn stored_chunks_of_unknown_filters_are_copied() {
    let (place, file) = created("earliest");
    h5py(&file, UNKNOWN);
    let same = "    p = f['d'].id.get_create_plist(); assert p.get_filter(0)[:3] == (32123, 0, (7, 8, 9)), p.get_filter(0)
    assert [f['d'].id.read_direct_chunk((100 * n,)) for n in (0, 1, 3)] == [(0, bytes([n]) * (50 + n)) for n in (0, 1, 3)]
    assert f['d'].id.get_num_chunks() == 3 and f['none'].id.get_num_chunks() == 0 and f['none'].shape == (400,)";
    for libver in ["earliest", "v110"] {
        let to = place.dir().join(format!("{libver}.h5"));
        assert_eq!(run(h5dir(&["create", "--libver", libver]).arg(&to)).0, 0);
        let [from, into] = [&file, &to].map(|path| format!("{}:/", path.display()));
        assert_eq!(run(h5dir(&["cp", "-r"]).args([&from, &into])), (0, String::new()));
        h5py(&to, same);
        // Within one file.
        assert_eq!(run(h5dir(&["cp", "-r"]).args([format!("{into}d"), format!("{into}again")])), (0, String::new()));
        h5py(&to, &same.replace("f['d']", "f['again']"));
        assert_eq!(run(h5dir(&["check"]).arg(&to)).0, 0);
    }
    // Through mounts there is no way, and a message.
    let (source, (target, _)) = (Mount::start(Place::new(), &file, &[]), empty("v110"));
    let copied = std::process::Command::new("cp").arg("-a").args([source.path("d"), target.path("d")]).output().unwrap();
    assert!(!copied.status.success() && !copied.stderr.is_empty());
    // Regression: copied bytes were acknowledged, and lost when they were stored.
    let mount = Mount::start(Place::new(), &file, &["--read-write"]);
    let program = "import errno, os, sys
os.chdir(sys.argv[1])
open('bytes', 'wb').write(bytes(range(1, 201)))
source, to = os.open('bytes', os.O_RDONLY), os.open('d', os.O_WRONLY)
for length in 200, 100, 7:
    try: raise SystemExit(f'{os.copy_file_range(source, to, length, 0, 0)} bytes were taken')
    except OSError as e: assert e.errno == errno.EOPNOTSUPP, e
os.fsync(to)
os.unlink('bytes')";
    let done = std::process::Command::new("python3").args(["-c", program]).arg(mount.path("")).output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    unmount(&mount);
    h5py(&file, same);
}

/// Regression: elements that were never written were read one by one where the fill value is not zero.
#[test]
fn huge_datasets_without_elements_are_compared_and_copied_by_their_description() {
    let place = Place::new();
    let at = |name: &str| place.dir().join(name);
    let program = "f.create_dataset('large', (2**60,), 'u1', chunks=(2**29,), fillvalue=3); \
        f.create_dataset('square', (2**40, 2**20), 'u1', chunks=(2**18, 2**10), fillvalue=3); \
        f.create_dataset('zeros', (2**60,), 'u1', chunks=(2**29,)); \
        f.create_dataset('contiguous', (2**59,), 'u1', fillvalue=5); \
        some = f.create_dataset('some', (2**50,), 'u1', chunks=(2**20,), fillvalue=3); some[2**49] = 7; \
        rows = f.create_dataset('rows', (2**30, 2**20), 'u1', chunks=(8, 1024), fillvalue=3); rows[5, 7] = 1";
    for name in ["a.h5", "b.h5"] {
        super::writing::h5py(&at(name), "w", program);
    }
    super::writing::h5py(&at("b.h5"), "r+", "f['some'][2**48] = 3");
    super::writing::h5py(&at("other.h5"), "w", &program.replace("= 7", "= 8").replace("fillvalue=5", "fillvalue=6"));
    let container = format!("iod:{}", at("box").display());
    let root = |name: &str| if name == "box" { format!("{container}:/") } else { format!("{}:/", at(name).display()) };
    assert_eq!(run(&mut h5dir(&["create", &container])), (0, String::new()));
    let diff = |a: &str, b: &str| run(&mut h5dir(&["diff", &root(a), &root(b)]));
    assert_eq!(diff("a.h5", "b.h5"), (0, String::new()));
    for copy in ["new.h5", "box"] {
        assert_eq!(run(&mut h5dir(&["cp", "-r", "--create", &root("a.h5"), &root(copy)])), (0, String::new()), "{copy}");
        assert_eq!(diff("a.h5", copy), (0, String::new()), "{copy}");
    }
    let h5dir = h5dir(&["diff", &root("a.h5"), &root("other.h5")]).output().unwrap();
    let found = String::from_utf8(h5dir.stdout).unwrap();
    assert!(h5dir.status.code() == Some(1) && found.contains("contiguous") && found.contains("some"), "{found}");
    assert!(!["large", "square", "zeros", "rows"].iter().any(|name| found.contains(name)), "{found}");
}

/// Regression: `rsync -aX` ended with 23 in containers, as the value that it says again was refused;
/// in files a value that was set while an object was missing was forgotten.
#[test]
fn references_to_what_comes_later_are_said_twice() {
    let (place, file) = created("v110");
    h5py(
        &file,
        "    g, z = f.create_group('a'), f.create_group('z')
    g.attrs['ref'] = z.ref; g.attrs['refs'] = np.array([z.ref, g.ref], h5py.ref_dtype); g.attrs['other'] = z.ref",
    );
    let source = Mount::start(place, &file, &[]);
    for kind in ["", "iod:"] {
        let place = Place::new();
        let target = format!("{kind}{}", place.dir().join("new.h5").display());
        assert_eq!(run(&mut h5dir(&["create", &target])), (0, String::new()));
        let mount = Mount::start(place, target.as_ref(), &["--read-write"]);
        let get = "get() { getfattr --only-values -n user.$1 a; echo; }";
        let script = format!(
            "rsync -aX {from}/a . || exit 1; setfattr -n user.other -v /a a; get ref; get other; rsync -aX {from}/ .; {get}; mkdir later; rmdir later",
            from = source.place.mnt().display(),
        );
        let (done, text) = shell(&mount.place.mnt(), &format!("{get}; {script}"));
        assert_eq!((done, text.as_str()), (true, "\n/a\n"), "{target}: {}", mount.log());
        let (_, text) = shell(&mount.place.mnt(), &format!("{get}; setfattr -n user.other -v /a a; sync; get ref; get refs; get other"));
        assert_eq!(text, "/z\n[\"/z\",\"/a\"]\n/a\n", "{target}: {}", mount.log());
        unmount(&mount);
    }
}
