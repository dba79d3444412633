//! Creation order of links and attributes: of new objects, and in copies. netCDF changes only files that track it.

use super::facts::{CP, RSYNC, TAR, created, empty, shell, unmount};
use super::mounted::{Mount, listxattr};
use super::python;
use super::support::{Place, h5dir, run};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// `make` writes a netCDF-4 file; `show` prints the order of links and attributes, with whether they are tracked; `change`
/// changes the file by netCDF.
const PROGRAM: &str = r#"
import h5py, netCDF4, random, sys
what, path = sys.argv[1:3]
dice = random.Random(5)
def shuffled(names):
    names = list(names); dice.shuffle(names); return names
def make():
    with netCDF4.Dataset(path, "w") as n:
        n.createDimension("time", None); n.createDimension("x", 3)
        for name in shuffled(f"v{i:03}" for i in range(400)):
            v = n.createVariable(name, "f4", ("time", "x"))
            for a in shuffled("zba"): v.setncattr(a, a)
        v = n.createVariable("many", "i4", ("x",)); v[:] = [1, 2, 3]
        for a in shuffled(f"a{i}" for i in range(30)): v.setncattr(a, 1.5)
        for a in ("title", "history", "b", "a"): n.setncattr(a, "text")
        for name in ("second", "first"):
            g = n.createGroup(name); g.setncattr("z", "1"); g.setncattr("c", "2")
            for v in ("q", "b"): g.createVariable(v, "i2", ("x",))
        n.createGroup("empty")
def attributes(o):
    names, order = [], o.id.get_create_plist().get_attr_creation_order()
    h5py.h5a.iterate(o.id, lambda n: names.append(n) if not n.startswith(b"_h5dir") else None, index_type=index(order))
    return names, order
def index(order):
    return h5py.h5.INDEX_CRT_ORDER if order else h5py.h5.INDEX_NAME
def show():
    with h5py.File(path, "r") as f:
        def one(name, o):
            links = []
            if isinstance(o, h5py.Group):
                order = o.id.get_create_plist().get_link_creation_order()
                o.id.links.iterate(links.append, idx_type=index(order))
                links = links, order
            print(name, links, *attributes(o), sep="|")
        one("/", f["/"]); f.visititems(one)
def change():
    with netCDF4.Dataset(path, "a") as n:
        n.createDimension("new", 3); n.createVariable("newest", "f4", ("new",))[:] = 1
        n.setncattr("added", "1"); n.variables["many"].setncattr("added", "2"); n.createGroup("last").createVariable("x", "f4", ("new",))
    with netCDF4.Dataset(path) as n:
        assert list(n.variables)[-1] == "newest" and n.ncattrs()[-1] == "added" and n.variables["many"].ncattrs()[-1] == "added"
globals()[what]()
"#;

fn program(what: &str, path: &Path) -> String {
    let output = Command::new(python::with_h5py()).args(["-c", PROGRAM, what]).arg(path).stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success(), "{what} {}: {}", path.display(), String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn made() -> (Place, PathBuf) {
    let place = Place::new();
    let file = place.dir().join("made.nc");
    program("make", &file);
    (place, file)
}

fn is_sound(file: &Path) {
    assert_eq!(run(h5dir(&["check"]).arg(file)).0, 0, "{}", file.display());
    program("change", file);
    assert_eq!(run(h5dir(&["check"]).arg(file)).0, 0, "{} changed by netCDF", file.display());
}

#[test]
fn copies_between_mounts_keep_the_order() {
    let (place, file) = made();
    let wanted = program("show", &file);
    let source = Mount::start(place, &file, &[]);
    // What tar unpacks in this way has no attributes of the root group.
    for command in [CP, RSYNC, &TAR.replace("$(ls)", ".")] {
        let (target, copy) = empty("v110");
        let script = format!("S={} D={}; {command}", source.place.mnt().display(), target.place.mnt().display());
        assert_eq!(shell(source.place.dir(), &script), (true, String::new()), "{command}: {}", target.log());
        unmount(&target);
        assert!(program("show", &copy) == wanted, "{command}");
        is_sound(&copy);
    }
}

#[test]
fn h5dir_cp_keeps_the_order() {
    let (place, file) = made();
    let wanted = program("show", &file);
    let at = |name: &str| place.dir().join(name).to_str().unwrap().to_owned();
    let cp = |from: &str, to: &str| assert_eq!(run(h5dir(&["cp", "-a", "--create"]).args([from, to])), (0, String::new()), "{from} {to}");
    let source = format!("{}:/", file.display());
    cp(&source, &format!("{}:/", at("direct.h5")));
    let direct = PathBuf::from(at("direct.h5"));
    assert!(program("show", &direct) == wanted);
    is_sound(&direct);
    // A container keeps the order of links.
    cp(&source, &format!("iod:{}:/", at("container")));
    cp(&format!("iod:{}:/", at("container")), &format!("{}:/", at("through.h5")));
    let links = |text: &str| text.lines().map(|l| l.split('|').take(2).map(str::to_owned).collect()).collect::<Vec<Vec<_>>>();
    let through = PathBuf::from(at("through.h5"));
    assert!(links(&program("show", &through)) == links(&wanted));
    is_sound(&through);
}

#[test]
fn new_files_track_the_order() {
    let (mount, file) = empty("v110");
    let script = "set -e; for n in z a m; do echo $n >$n; mkdir d$n; done; for i in $(seq 40 -1 1); do : >da/$i; done; rm a da/7 da/2
        mv m m2; ln z a; ln -s z s; mv da/3 dz/; setfattr -n user.z -v 1 z; setfattr -n user.b -v 2 z; rm da/4?; rm da/[123]?; rm da/[569]";
    assert_eq!(shell(&mount.place.mnt(), script), (true, String::new()), "{}", mount.log());
    // Directories of plain files have nothing that a copy needs.
    assert_eq!(listxattr(&mount.place.mnt()), Vec::<String>::new());
    unmount(&mount);
    let shown = program("show", &file);
    let root = "/|([b'z', b'dz', b'da', b'dm', b'm2', b'a', b's'], 3)|[]|3";
    for line in [root, "a|[]|[b'z', b'b']|3", "da|([b'8', b'4', b'1'], 3)|[]|3", "dz|([b'3'], 3)|[]|3"] {
        assert!(shown.lines().any(|l| l == line), "{line}: {shown}");
    }
    assert_eq!(run(h5dir(&["check"]).arg(&file)).0, 0);
    let (_place, old) = created("earliest");
    assert_eq!(program("show", &old), "/|([], 0)|[]|0\n");
}
