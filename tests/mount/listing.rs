//! Directories in which names come and go while they are read: as POSIX has it for readdir, each name that stays is told once.

use super::mounted::Mount;
use super::support::{Place, h5dir, run};
use super::writing::shell;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{self, File};
use std::path::Path;

/// Names of a directory: more than the kernel asks for at once.
const MANY: usize = 3000;

/// A new file of format `libver`, with a group `g` of many datasets, mounted for writing.
fn many(libver: &str) -> Mount {
    let place = Place::new();
    let file = place.dir().join("new.h5");
    assert_eq!(run(&mut h5dir(&["create", "--libver", libver, file.to_str().unwrap()])).0, 0);
    let mount = Mount::start(place, &file, &["--read-write"]);
    fs::create_dir(mount.path("g")).unwrap();
    (0..MANY).for_each(|i| drop(File::create(mount.path(&format!("g/f{i}"))).unwrap()));
    mount
}

/// How often each name of `directory` is told, while `change` is called with each.
fn told(directory: &Path, change: &mut dyn FnMut(usize, &str)) -> BTreeMap<OsString, usize> {
    let mut told = BTreeMap::new();
    for (i, entry) in fs::read_dir(directory).unwrap().enumerate() {
        let name = entry.unwrap().file_name();
        change(i, name.to_str().unwrap());
        *told.entry(name).or_default() += 1;
    }
    told
}

#[test]
fn names_that_are_removed_while_they_are_listed_leave_none_out() {
    for libver in ["v110", "earliest"] {
        let mount = many(libver);
        let g = mount.path("g");
        let seen = told(&g, &mut |_, name| fs::remove_file(g.join(name)).unwrap());
        assert_eq!((seen.len(), fs::read_dir(&g).unwrap().count()), (MANY, 0), "{libver}");
        fs::remove_dir(&g).unwrap();
    }
}

#[test]
fn names_that_stay_are_told_once_while_others_are_made_and_moved() {
    for libver in ["v110", "earliest"] {
        let mount = many(libver);
        let g = mount.path("g");
        let seen = told(&g, &mut |i, _| {
            if i % 3 == 0 {
                drop(File::create(g.join(format!("a{i}"))).unwrap());
                fs::rename(g.join(format!("a{i}")), g.join(format!("z{i}"))).unwrap();
            }
        });
        let old: Vec<_> = seen.iter().filter(|(name, _)| name.to_str().unwrap().starts_with('f')).collect();
        assert!(old.len() == MANY && seen.values().all(|n| *n == 1), "{libver}: {} names", old.len());
        // From the start again, all are told.
        assert_eq!(told(&g, &mut |_, _| {}).len(), MANY + MANY.div_ceil(3), "{libver}");
    }
}

#[test]
fn removed_attributes_and_files_of_side_views_leave_none_out() {
    let mount = many("v110");
    shell(&mount, "for i in $(seq 700); do echo $i >.h5dir/attrs/g/f1/attribute$i; done");
    for (directory, count) in [(".h5dir/attrs/g/f1", 700), (".h5dir/npy/g", MANY)] {
        let directory = mount.path(directory);
        let seen = told(&directory, &mut |_, name| fs::remove_file(directory.join(name)).unwrap());
        assert_eq!((seen.len(), fs::read_dir(&directory).unwrap().count()), (count, 0), "{}", directory.display());
    }
}

#[test]
fn git_cleans_a_large_directory() {
    let mount = many("v110");
    assert_eq!(shell(&mount, "cd g; git init -q .; git clean -fdqx; ls; cd ..; rm -rf g; ls"), "");
}
