//! What paths other users learn from texts.

use super::modes::{created, h5py, is_root, shell, unmount};
use super::mounted::Mount;
use super::support::Place;
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
    f['plain'] = 1; f['plain'].attrs['n'] = 5";

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
    let script = r#"chmod 700 mnt/secret mnt/theirs; chown 7:8 mnt/theirs
        read() { getfattr --only-values -n "user.$2" "mnt/$1" 2>&1 | sed 's/.*: //' && echo; }
        all() {
            for f in safe refs theirs_refs; do echo "$f $(read $f h5dir.references)"; done
            echo "many $(read many h5dir.references | cut -c 1-20) $(read many h5dir.references2)"
            for a in good bad hidden lists; do echo "$a $(read has $a)"; done
            echo "types $(read typed h5dir.types) $(read typed_too h5dir.types)"
            for f in has plain refs safe; do
                if cat mnt/.h5dir/json/$f.json >/dev/null 2>&1; then echo "$f.json"; else echo "no $f.json"; fi
            done
        }
        export -f read all
        for who in 9:9 7:9 9:8; do echo "as $who"; setpriv --reuid=${who%:*} --regid=${who#*:} --clear-groups bash -c all; done
        echo as root; all; chmod 710 mnt/theirs; setpriv --reuid=9 --regid=8 --clear-groups bash -c all | grep theirs"#;
    let safe = r#"safe ["/open/y","/open/deep/w","/safe_target"]"#;
    let many = r#"many ["/open/y","/open/y""#;
    let denied = "Permission denied";
    let other = |theirs: &str| {
        format!(
            "{safe}\nrefs {denied}\ntheirs_refs {theirs}\n{many} {denied}\ngood /open/y\nbad /secret\nhidden {denied}\nlists {denied}\n\
             types No such attribute {denied}\nno has.json\nplain.json\nno refs.json\nsafe.json\n"
        )
    };
    let z = r#"["/theirs/z"]"#;
    let root = format!(
        "{safe}\nrefs [\"/open/y\",\"/secret/in/x\"]\ntheirs_refs {z}\n{many} [\"/secret/in/x\"]\ngood /open/y\nbad /secret\nhidden /secret/in/x\n\
         lists [[\"/open/y\"],[\"/secret/in/x\"]]\ntypes No such attribute {{\"type\":\"/secret/t\"}}\nhas.json\nplain.json\nrefs.json\nsafe.json\n"
    );
    let want = format!("as 9:9\n{}as 7:9\n{}as 9:8\n{}as root\n{root}theirs_refs {z}\n", other(denied), other(z), other(denied));
    assert_eq!(shell(&mount, script), want);
}
