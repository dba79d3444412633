//! What paths other users learn from texts.

use super::modes::{created, h5py, is_root, shell, unmount};
use super::mounted::Mount;
use super::support::Place;
use std::path::Path;
use std::process::Command;

/// Objects in directories of several modes, and what names them.
const OBJECTS: &str = "    for path in ['open/y', 'secret/in/x', 'theirs/z', 'open/deep/w']:
        f[path] = 1.0
    f['secret/t'] = numpy.dtype('<i2')
    reference = lambda *paths: numpy.array([f[p].ref for p in paths], h5py.ref_dtype)
    f['safe'], f['refs'], f['theirs_refs'] = reference('open/y', 'open/deep/w', 'safe_target'), reference('open/y', 'secret/in/x'), reference('theirs/z')
    f['typed'] = numpy.zeros(2, '<i2'); f.create_dataset('typed_too', (2,), f['secret/t'])
    f['many'] = numpy.array([f['open/y'].ref] * 128 + [f['secret/in/x'].ref], h5py.ref_dtype)
    f['has'] = 1
    f['has'].attrs['good'], f['has'].attrs['bad'] = f['open/y'].ref, f['secret'].ref
    f['has'].attrs['hidden'] = f['secret/in/x'].ref
    lists = numpy.empty(2, object); lists[:] = [reference('open/y'), reference('secret/in/x')]
    f['has'].attrs.create('lists', lists, dtype=h5py.vlen_dtype(h5py.ref_dtype))
    f['plain'] = 1; f['plain'].attrs['n'] = 5
    f['above/b/x'] = 1; f['above/b/r'] = reference('above/b/x')";

/// References, references in sequences and named types told any user the paths in directories that the user may not search.
#[test]
fn texts_do_not_name_what_is_in_directories_that_the_caller_may_not_search() {
    if !is_root() {
        // Another user cannot mount for all.
        return;
    }
    let (mount, file) = created("v110", &[]);
    unmount(&mount);
    h5py(&file, &format!("    f['safe_target'] = 1\n{OBJECTS}"));
    let place = Place::new();
    let mount = Mount::start(place, &file, &["--read-write", "--allow-other"]);
    assert_eq!(Command::new("chmod").args(["-R", "a+rX"]).arg(mount.place.dir()).status().unwrap().code(), Some(0));
    // h5py makes no fill value of references.
    let script = r##"chmod 700 mnt/secret mnt/theirs; chown 7:8 mnt/theirs; touch mnt/filled
        setfattr -n user.h5dir.dataset -v '{"dtype":{"class":"H5T_REFERENCE","base":"H5T_STD_REF_OBJ"},"shape":[4],"fillvalue":"/secret/in/x"}' mnt/filled
        read() { getfattr --only-values -n "user.$2" "mnt/$1" 2>&1 | sed 's/.*: //' && echo; }
        all() {
            for f in safe refs theirs_refs; do echo "$f $(read $f h5dir.references)"; done
            echo "many $(read many h5dir.references | cut -c 1-20) $(read many h5dir.references2)"
            for a in good bad hidden lists; do echo "$a $(read has $a)"; done
            echo "types $(read typed h5dir.types) $(read typed_too h5dir.types)"
            echo "filled $(read filled h5dir.fillvalue) $(read filled h5dir.dataset | cut -c 1-17)"
            for f in has plain refs safe filled; do
                if cat mnt/.h5dir/json/$f.json >/dev/null 2>&1; then echo "$f.json"; else echo "no $f.json"; fi
            done
        }
        export -f read all
        for who in 9:9 7:9 9:8; do echo "as $who"; setpriv --reuid=${who%:*} --regid=${who#*:} --clear-groups bash -c all; done
        echo as root; all; chmod 710 mnt/theirs; setpriv --reuid=9 --regid=8 --clear-groups bash -c all | grep theirs"##;
    let safe = r#"safe ["/open/y","/open/deep/w","/safe_target"]"#;
    let many = r#"many ["/open/y","/open/y""#;
    let denied = "Permission denied";
    let other = |theirs: &str| {
        format!(
            "{safe}\nrefs {denied}\ntheirs_refs {theirs}\n{many} {denied}\ngood /open/y\nbad /secret\nhidden {denied}\nlists {denied}\n\
             types No such attribute {denied}\nfilled {denied} {denied}\n\
             no has.json\nplain.json\nno refs.json\nsafe.json\nno filled.json\n"
        )
    };
    let z = r#"["/theirs/z"]"#;
    let root = format!(
        "{safe}\nrefs [\"/open/y\",\"/secret/in/x\"]\ntheirs_refs {z}\n{many} [\"/secret/in/x\"]\ngood /open/y\nbad /secret\nhidden /secret/in/x\n\
         lists [[\"/open/y\"],[\"/secret/in/x\"]]\ntypes No such attribute {{\"type\":\"/secret/t\"}}\n\
         filled /secret/in/x {{\"dtype\":{{\"class\"\nhas.json\nplain.json\nrefs.json\nsafe.json\nfilled.json\n"
    );
    let want = format!("as 9:9\n{}as 7:9\n{}as 9:8\n{}as root\n{root}theirs_refs {z}\n", other(denied), other(z), other(denied));
    assert_eq!(shell(&mount, script), want);
}

/// A reason may name what only root sees; who is in a mount of a group is past the groups above it.
#[test]
fn reasons_with_paths_are_hidden_and_mounted_groups_are_reached() {
    if !is_root() {
        return;
    }
    let (mount, file) = created("v110", &[]);
    unmount(&mount);
    h5py(&file, &format!("    f['safe_target'] = 1\n{OBJECTS}"));
    let mount = Mount::start(Place::new(), &file, &["--read-write", "--allow-other"]);
    assert_eq!(Command::new("chmod").args(["-R", "a+rX"]).arg(mount.place.dir()).status().unwrap().code(), Some(0));
    let script = r#"chmod 700 mnt/secret mnt/above
        as() { (setpriv --reuid=9 --regid=9 --clear-groups "$@" || true) 2>&1 | sed 's/.*: //'; echo; }
        setfattr -n user.h5dir.types -v '{"type":"/secret/in/x"}' mnt/typed 2>/dev/null && exit 1
        setfattr -n user.h5dir.shape -v '[1,"x"]' mnt/plain 2>/dev/null && exit 1
        [[ $(getfattr --only-values -n user.h5dir.error mnt/typed) == */secret/in/x* ]]
        as getfattr --only-values -n user.h5dir.error mnt/typed
        [[ $(as getfattr --only-values -n user.h5dir.error mnt/plain) == *dimension* ]]"#;
    assert_eq!(shell(&mount, script).trim(), "Permission denied");
    unmount(&mount);
    let group = format!("{}:/above/b", file.display());
    let mount = Mount::start(Place::new(), Path::new(&group), &["--allow-other"]);
    assert_eq!(Command::new("chmod").args(["a+rx"]).arg(mount.place.dir()).status().unwrap().code(), Some(0));
    let script = "setpriv --reuid=9 --regid=9 --clear-groups getfattr --only-values -n user.h5dir.references mnt/r";
    assert_eq!(shell(&mount, script), r#"["/above/b/x"]"#);
}
