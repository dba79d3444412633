//! Copies between mounts of what a plain copy of bytes would get wrong: strings with newlines, references.

use super::facts::{CP, RSYNC, TAR, copied, created, empty, h5py, shell, unmount};
use super::mounted::{Mount, copy_fixture, listxattr};
use super::support::Place;

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
