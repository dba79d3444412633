//! Groups, group aliases, cycles, soft links, named datatypes.

use super::expected::{self, entries, strings};
use super::mounted::{Mount, shell};
use super::support::{Place, eventually, h5dir, is_mounted, run};
use super::writing::h5py;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

#[test]
fn groups_are_directories() {
    let mount = Mount::fixture("links");
    assert_eq!(mount.names(""), ["alias", "cycle", "data", "group", "named", "single", "soft"]);
    assert_eq!(mount.names("group"), ["hard", "own", "sub", "to_cycle"]);
    assert_eq!(mount.names("cycle/deep"), ["deeper", "up"]);
    assert_eq!(mount.xattr("group", "h5dir.kind"), "group");
    let meta = mount.path("group").metadata().unwrap();
    assert_eq!((meta.nlink(), meta.len()), (1, 0));
    assert_eq!(mount.read("group/sub/third"), b"hello links\n");
}

#[test]
fn a_group_reached_twice_is_a_directory_each_time() {
    let mount = Mount::fixture("links");
    let meta = |path: &str| mount.path(path).symlink_metadata().unwrap();
    assert!(meta("alias").is_dir() && meta("group").is_dir());
    assert_ne!(meta("alias").ino(), meta("group").ino(), "the kernel allows a directory one parent");
    assert_eq!(mount.names("alias"), mount.names("group"));
    assert_eq!(mount.read("alias/own"), b"own\n");
    assert!(meta("group/to_cycle").is_dir());
    assert_eq!(mount.link("group/to_cycle/self"), ".");
}

#[test]
fn soft_links_and_cycles_are_relative_symbolic_links() {
    let mount = Mount::fixture("links");
    for (path, target) in entries(&expected::of("links")["symlinks"]) {
        assert_eq!(mount.link(path), target.as_str().unwrap(), "{path}");
    }
    assert_eq!(mount.read("soft/chain"), b"own\n");
    assert_eq!(mount.read("soft/relative"), b"own\n", "relative to the group it lies in");
    assert_eq!(mount.read("soft/deep/up"), b"hello links\n");
    assert_eq!(mount.names("soft/to_group"), ["third"]);
    assert_eq!(mount.names("cycle/self/deep/up/self"), mount.names("cycle"));
    assert_eq!(mount.read("cycle/deep/deeper/root/data"), b"hello links\n");
    let error = |path: &str| std::fs::read(mount.path(path)).unwrap_err().raw_os_error();
    assert_eq!(error("soft/dangling"), Some(libc::ENOENT));
    assert_eq!(error("soft/loop"), Some(libc::ELOOP));
}

#[test]
fn no_soft_link_leaves_the_mount() {
    let mount = Mount::fixture("links");
    let hostile = expected::of("links");
    for path in strings(&hostile["hostile"]).into_iter().chain(["soft/hostile_proc"]) {
        let target = mount.link(path);
        let up = target.split('/').take_while(|c| *c == "..").count();
        assert!(!target.starts_with('/') && up <= path.matches('/').count(), "{path} -> {target}");
        assert!(!target.split('/').skip(up).any(|c| c == ".."), "{path} -> {target}");
        // ENOTDIR where the way leads through a dataset.
        let error = std::fs::read(mount.path(path)).unwrap_err().raw_os_error();
        assert!(matches!(error, Some(libc::ENOENT | libc::ENOTDIR)), "{path} -> {target}");
    }
}

#[test]
fn walks_of_a_cyclic_file_end() {
    let mount = Mount::fixture("links");
    let dir = mount.place.dir();
    let found = shell(dir, "find mnt -type d | wc -l; find mnt -type l | wc -l; find mnt -type f | wc -l");
    // Directories: root, alias, alias/sub, cycle, group, group/sub, soft, soft/deep, and in cycle: deep, deeper,
    // in each of the four places where cycle is reached: /, group, alias.
    let counts: Vec<u64> = found.lines().map(|l| l.trim().parse().unwrap()).collect();
    assert_eq!(counts[0], 8 + 2 + 2 * 3, "{found}");
    assert_eq!(counts[2], 2 * 3 + 3, "{found}");
    shell(
        dir,
        "ls -lR mnt > /dev/null; du -s mnt; du -sL mnt 2>/dev/null || true; tar cf all.tar -C mnt . && tar tf all.tar | grep cycle/deep/deeper",
    );
    let entries = shell(dir, "tar tf all.tar | wc -l; find mnt | wc -l");
    let counts: Vec<&str> = entries.lines().map(str::trim).collect();
    assert_eq!(counts[0], counts[1]);
}

#[test]
fn a_named_datatype_is_a_file_that_describes_it() {
    let mount = Mount::fixture("links");
    let text = mount.text("named");
    assert!(text.contains("H5T_STD_I16BE"), "{text}");
    assert_eq!(mount.xattr("named", "h5dir.kind"), "datatype");
    let mount = Mount::fixture("types");
    let text = mount.text("named");
    assert!(text.contains("H5T_COMPOUND") && text.contains("H5T_STD_I32LE") && text.contains("\"s\""), "{text}");
    assert_eq!(mount.path("named").metadata().unwrap().len(), text.len() as u64);
}

/// A new file, mounted for writing.
fn created(libver: &str) -> (Mount, PathBuf) {
    let place = Place::new();
    let file = place.dir().join("new.h5");
    assert_eq!(run(&mut h5dir(&["create", "--libver", libver, file.to_str().unwrap()])), (0, String::new()));
    (Mount::start(place, &file, &["--read-write"]), file)
}

fn unmount(mount: &Mount) {
    assert_eq!(run(h5dir(&["umount"]).arg(mount.place.mnt())), (0, String::new()));
    eventually("it is unmounted", || !is_mounted(&mount.place.mnt()));
}

/// Prints soft links with the path that they hold and the bytes that libhdf5 finds there, and attributes of groups.
const SOFT_LINKS: &str = "def show(g):
        for a in g.attrs: print(f'{g.name}@{a}')
        for n in g:
            l = g.get(n, getlink=True)
            if isinstance(l, h5py.SoftLink):
                o = g.get(n)
                print(g.name.rstrip('/') + '/' + n, l.path, o[()].tobytes().decode().strip() if isinstance(o, h5py.Dataset) else o and 'group')
            elif isinstance(g[n], h5py.Group):
                show(g[n])
    show(f)";

/// Files and links: name, text, path that libhdf5 gets, what is found there.
const TREE: &str = "mkdir -p g/b/d; echo top >c; echo deep >g/c; echo %: >g/b/%";
const LINKS: [(&str, &str, &str, &str); 11] = [
    ("dot", "./g//c", "g/c", "deep"),
    ("g/abs", "/etc/hostname", "/.h5dir/symlink//etc/hostname", "None"),
    ("g/b/k", "../c", "/g/c", "deep"),
    ("g/b/l", "../../c", "/c", "top"),
    ("g/b/self", ".", ".", "group"),
    ("g/l", "../c", "/c", "top"),
    ("g/mid", "b/d/../../../c", "/c", "top"),
    ("g/out", "../../../../c", "/.h5dir/symlink/../../../../c", "None"),
    ("g/plain", "b/%", "b/%", "%:"),
    ("g/up", "../g/b/", "/g/b", "group"),
    ("none", "g/b/../no", "/g/no", "None"),
];

fn made(mount: &Mount) {
    let links: String = LINKS.iter().map(|(name, text, ..)| format!("ln -s '{text}' '{name}'\n")).collect();
    shell(&mount.place.mnt(), &format!("{TREE}\n{links}"));
}

/// Texts of the links below `dir`.
fn check_texts(dir: &Path) {
    for (name, text, ..) in LINKS {
        assert_eq!(std::fs::read_link(dir.join(name)).unwrap(), Path::new(text), "{name}");
    }
}

/// libhdf5 finds the links below the group `top`.
fn check_paths(file: &Path, top: &str) {
    let seen = h5py(file, "r", SOFT_LINKS);
    for (name, _, path, found) in LINKS {
        let path = if path.starts_with('/') && !path.starts_with("/.h5dir") { format!("{top}{path}") } else { path.to_owned() };
        assert!(seen.lines().any(|line| line == format!("{top}/{name} {path} {found}")), "{name} {path}: {seen}");
    }
}

#[test]
fn libhdf5_follows_symbolic_links_to_files_of_the_mount() {
    for libver in ["v110", "earliest"] {
        let (mount, file) = created(libver);
        made(&mount);
        check_texts(&mount.place.mnt());
        assert_eq!(shell(&mount.place.mnt(), "cat g/l g/b/l g/b/k g/mid dot g/up/k"), "top\ntop\ndeep\ntop\ndeep\ndeep\n");
        unmount(&mount);
        check_paths(&file, "");
        let again = Mount::start(Place::new(), &file, &["--read-write"]);
        check_texts(&again.place.mnt());
        // A moved link gets the path that its text has there; links in a moved directory keep theirs.
        let moved = "mv g/b/k .; mkdir x; mv g/l x/; mv g/b h; readlink k x/l h/l; cat x/l; ! cat h/l k 2>/dev/null";
        assert_eq!(shell(&again.place.mnt(), moved), "../c\n../c\n../../c\ntop\n");
        unmount(&again);
        let seen = h5py(&file, "r", SOFT_LINKS);
        for line in ["/k /.h5dir/symlink/../c None", "/x/l /c top", "/h/l /c top"] {
            assert!(seen.lines().any(|l| l == line), "{line}: {seen}");
        }
        assert!(!seen.contains("@_h5dir_posix:k") && !seen.contains("/g@_h5dir_posix:l"), "{seen}");
    }
}

#[test]
fn copies_of_symbolic_links_keep_texts_and_paths() {
    let (from, source) = created("v110");
    made(&from);
    let copies = tempfile::tempdir().unwrap();
    let tools = ["cp -a SRC/. .", "rsync -a SRC/ .", "tar -cf - -C SRC . | tar -xf -", "cp -a SRC DIR/folder; cp -a DIR/folder/. ."];
    for (i, tool) in tools.into_iter().enumerate() {
        let copy = copies.path().join(format!("{i}.h5"));
        assert_eq!(run(&mut h5dir(&["create", copy.to_str().unwrap()])).0, 0);
        let to = Mount::start(Place::new(), &copy, &["--read-write"]);
        let script = tool.replace("SRC", from.place.mnt().to_str().unwrap()).replace("DIR", copies.path().to_str().unwrap());
        shell(&to.place.mnt(), &format!("mkdir top; cd top; {script}"));
        check_texts(&to.place.mnt().join("top"));
        shell(&to.place.mnt(), "mv top moved; mkdir deep; mv moved deep/er");
        check_texts(&to.place.mnt().join("deep/er"));
        shell(&to.place.mnt(), "mv deep/er top");
        unmount(&to);
        check_paths(&copy, "/top");
    }
    unmount(&from);
    for (scheme, extension) in [("", "h5"), ("iod:", "iod")] {
        let [stored, restored] = ["stored", "restored"].map(|name| format!("{scheme}{}.{extension}", copies.path().join(name).display()));
        let dir = copies.path().join(format!("{extension}-dir"));
        let back = copies.path().join(format!("{extension}-back.h5"));
        for new in [&stored, &restored, &back.display().to_string()] {
            assert_eq!(run(&mut h5dir(&["create", new])), (0, String::new()));
        }
        let [stored, restored] = [stored, restored].map(|name| name + ":/");
        let [source, last] = [&source, &back].map(|path| format!("{}:/", path.display()));
        let folder = dir.display().to_string();
        let top = restored.clone() + "top";
        for (a, b) in [(&source, &stored), (&stored, &folder), (&folder, &top), (&restored, &last)] {
            assert_eq!(run(&mut h5dir(&["cp", "-r", a, b])), (0, String::new()), "{a} to {b}");
        }
        check_texts(&dir);
        assert_eq!(run(&mut h5dir(&["diff", "-r", &source, &top])), (0, String::new()));
        check_paths(&back, "/top");
    }
}

/// All links of NWB files are absolute.
#[test]
fn copies_of_absolute_soft_links_are_followed_by_libhdf5() {
    let place = Place::new();
    let file = place.dir().join("source.h5");
    let make = "f['general/devices/dev'] = [1]; f.create_group('general/ephys/shank')['device'] = h5py.SoftLink('/general/devices/dev')";
    h5py(&file, "w", make);
    let from = Mount::start(place, &file, &[]);
    let (to, copy) = created("earliest");
    shell(&to.place.mnt(), &format!("cp -a {}/. .", from.place.mnt().display()));
    assert_eq!(to.link("general/ephys/shank/device"), from.link("general/ephys/shank/device"));
    unmount(&to);
    let seen = "l = f['general/ephys/shank'].get('device', getlink=True).path; print(l, f['general/ephys/shank/device'][0])";
    assert_eq!(h5py(&copy, "r", seen), "/general/devices/dev 1\n");
}

#[test]
fn texts_end_with_their_links() {
    for libver in ["v110", "earliest"] {
        let (mount, file) = created(libver);
        let rounds = "i=0; while [ $((i += 1)) -le 100 ]; do
            ln -s ../$i-x g/a; ln -s ./b g/b; mv g/a g/b; ln -sfn ../$i g/b; mv g/b h/; ln -s ../y h/c; mv h/b h/c; rm h/c
            ln -s ../x g/a; echo x >g/f; mv g/f g/a; rm g/a; done; ln -s ../x g/d; sync g";
        shell(&mount.place.mnt(), &format!("mkdir g h; {rounds}; rm g/d"));
        let size = std::fs::metadata(&file).unwrap().len();
        shell(&mount.place.mnt(), rounds);
        let grown = std::fs::metadata(&file).unwrap().len().saturating_sub(size);
        assert!(grown <= 4096, "{libver}: {grown} bytes more than {size}");
        unmount(&mount);
        assert_eq!(h5py(&file, "r", "print(list(f['g'].attrs), list(f['h'].attrs))"), "['_h5dir_posix:d'] []\n");
    }
}

#[test]
fn texts_of_changed_links_and_damaged_texts_are_not_shown() {
    let (mount, file) = created("v110");
    let names = ["a", "b", "c", "d", "e", "f", "h", "i", "j", "k"];
    shell(
        &mount.place.mnt(),
        &format!("mkdir g; echo x >x; for n in {}; do ln -s .././x g/$n; done; ln -s .././x g/same", names.join(" ")),
    );
    unmount(&mount);
    let change = "import numpy; g = f['g']; sum = g.attrs['_h5dir_posix:a'].split()[-1]
    def put(name, value):
        del g.attrs['_h5dir_posix:' + name]; g.attrs['_h5dir_posix:' + name] = value
    del g['a']; g['a'] = h5py.SoftLink('/./x')
    put('b', numpy.bytes_(b'text=%GG ' + sum)); put('c', numpy.bytes_(b'text= ' + sum)); put('d', numpy.bytes_(b'text=a%00b ' + sum))
    put('e', numpy.bytes_(b'text=' + b'y' * 5000 + b' ' + sum)); put('f', numpy.bytes_(b'text=y')); put('h', 'text=y ' + sum.decode())
    put('i', [1, 2]); put('j', numpy.bytes_(b'text=y path-sum=zz')); put('k', numpy.zeros((60000,), 'u1'))";
    h5py(&file, "r+", change);
    let again = Mount::start(Place::new(), &file, &["--read-write"]);
    for name in names {
        assert_eq!(again.link(&format!("g/{name}")), "../x", "{name}");
    }
    assert_eq!(again.link("g/same"), ".././x");
    // Another program removed the link, and its text stayed.
    unmount(&again);
    h5py(&file, "r+", "del f['g/same']");
    let again = Mount::start(Place::new(), &file, &["--read-write"]);
    shell(&again.place.mnt(), "ln -s ../x g/same; mv g/i g/l; rm g/k; readlink g/same g/l");
    unmount(&again);
    let seen = h5py(&file, "r", "print(f['g'].attrs['_h5dir_posix:same'].decode().split()[0], '_h5dir_posix:k' in f['g'].attrs)");
    assert_eq!(seen, "text=../x False\n");
}

/// The texts that earlier versions stored in the path are shown as they were, and become paths when the links are moved.
#[test]
fn links_of_earlier_versions_are_read_as_they_were() {
    let place = Place::new();
    let file = place.dir().join("earlier.h5");
    h5py(&file, "w", "f['c'] = [1]; g = f.create_group('g/b'); g['l'] = h5py.SoftLink('/.h5dir/symlink/../c')");
    let mount = Mount::start(place, &file, &["--read-write"]);
    assert_eq!(mount.link("g/b/l"), "../c");
    assert_eq!(shell(&mount.place.mnt(), "mv g/b/l g/; readlink g/l"), "../c\n");
    unmount(&mount);
    assert_eq!(h5py(&file, "r", "print(f['g'].get('l', getlink=True).path, f['g/l'][0])"), "/c 1\n");
    // A read-only mount without external links shows only texts that stay inside, and else the path.
    let inside = Mount::start(Place::new(), &file, &["--external=off"]);
    assert_eq!(inside.link("g/l"), "../c");
}

/// Each change of an attribute of such a group reads all of them.
#[test]
fn an_old_group_with_many_attributes_stores_targets_as_they_are() {
    let place = Place::new();
    let file = place.dir().join("many.h5");
    h5py(&file, "w", "f['x'] = [1]; g = f.create_group('g'); [g.attrs.__setitem__(f'a{i}', i) for i in range(1023)]");
    let mount = Mount::start(place, &file, &["--read-write"]);
    shell(&mount.place.mnt(), "ln -s ../x g/first; ln -s ../x g/second; mv g/first g/third; ln -s ./y g/fourth; mkdir h; mv g/second h/");
    for link in ["g/third", "h/second"] {
        assert_eq!(mount.link(link), "../x");
    }
    assert_eq!(mount.link("g/fourth"), "./y");
    unmount(&mount);
    let seen = "print([f[n.rsplit('/', 1)[0]].get(n.rsplit('/', 1)[1], getlink=True).path for n in ('g/third', 'h/second', 'g/fourth')])";
    assert_eq!(h5py(&file, "r", seen), "['/x', '/x', '/.h5dir/symlink/./y']\n");
}
