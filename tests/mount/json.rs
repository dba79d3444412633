//! `.h5dir/json`: objects as hdf5-json, compared with h5py.

use super::mounted::Mount;
use super::python;
use super::support::Place;
use std::path::Path;
use std::process::{Command, Stdio};

/// Makes the file `sys.argv[1]`: many types, shapes, layouts and links.
const MAKE: &str = r#"
import sys, h5py, numpy as np
f = h5py.File(sys.argv[1], "w")
f["i8"] = np.arange(-3, 3, dtype="<i8")
f["u4"] = np.arange(12, dtype=">u4").reshape(2, 3, 2)
f["f4"] = np.array([0.1, 1e30, np.inf, -np.inf, np.nan], "f4")
f["f8"] = np.array([[0.1, 1 / 3], [5e-324, -0.0]])
f["scalar"] = 7
f["null"] = h5py.Empty("f8")
f["none"] = np.empty((0, 3), "i4")
f["text"] = "one string"
f["strings"] = ["a", "", "c\"\n"]
f["fixed"] = np.array([b"ab", b"c"], "S4")
f["compound"] = np.array([(1, 2.5, b"x"), (3, 4.5, b"y")], [("n", "i4"), ("v", "f8"), ("s", "S2")])
f["array"] = np.arange(6, dtype="i2").reshape(2, 3).view(np.dtype((np.void, 6))).view([("a", "i2", 3)])
f["bool"] = np.array([True, False])
f.create_dataset("vlen", (2,), h5py.vlen_dtype("i4"))
f["vlen"][0], f["vlen"][1] = [1, 2, 3], []
f.create_dataset("chunked", data=np.arange(100.0).reshape(10, 10), chunks=(3, 4), maxshape=(None, 10), compression="gzip",
                 shuffle=True, fillvalue=9.5)
f.create_dataset("large", (1 << 26,), "f8", chunks=(1 << 16,))
g = f.create_group("g")
g["again"] = f["i8"]
g["soft"], g["nowhere"] = h5py.SoftLink("/f8"), h5py.SoftLink("/none/x")
g["up"] = f["/"]
f["references"] = np.array([f["g"].ref, f["i8"].ref], h5py.ref_dtype)
f["type"] = np.dtype([("x", "f4")])
f.create_group("g/sub.json")["x"] = 1
f["g/sub"] = 2
f["i8"].attrs["units"], f["i8"].attrs["list"], g.attrs["note"] = "m", [1, 2], "of the group"
many = f.create_group("many")
for i in range(300):
    many[f"d{i}"] = i
many.create_group("d0.json")
"#;

/// Compares the mount `sys.argv[2]` with the file `sys.argv[1]`.
const COMPARE: &str = r#"
import sys, os, json, errno, h5py, numpy as np
f, root = h5py.File(sys.argv[1], "r"), sys.argv[2] + "/.h5dir/json/"
def load(path):
    with open(root + path, "rb") as file:
        return json.loads(file.read())
def plain(v, dtype):
    if isinstance(v, h5py.Empty): return None
    if h5py.check_string_dtype(dtype) and isinstance(v, (bytes, str)): return v.decode() if isinstance(v, bytes) else v
    if not h5py.check_string_dtype(dtype) and h5py.check_vlen_dtype(dtype): return [plain(x, h5py.check_vlen_dtype(dtype)) for x in v]
    if isinstance(v, np.ndarray) and v.ndim: return [plain(x, dtype) for x in v]
    if dtype.names: return [plain(v[n], dtype[n].base) for n in dtype.names]
    if isinstance(v, (bytes, np.bytes_)): return bytes(v).decode()
    if isinstance(v, str): return v
    if dtype.kind == "b": return int(v)
    if dtype.kind == "f" and not np.isfinite(v): return {"inf": "Infinity", "-inf": "-Infinity", "nan": "NaN"}[str(float(v))]
    return float(str(v)) if dtype.kind == "f" else int(v)
def same(a, b): return json.dumps(a) == json.dumps(b) or a == b
ids = {}
def check(path, o):
    j = load(path + ".json")
    assert ids.setdefault(j["id"], o.id.__hash__()) == o.id.__hash__(), (path, "ids")
    attributes = {a["name"]: a for a in j["attributes"]}
    assert set(attributes) == set(o.attrs), path
    for n, a in attributes.items():
        assert same(a["value"], plain(o.attrs[n], o.attrs.get_id(n).dtype)), (path, n, a)
    if isinstance(o, h5py.Dataset):
        extent = j["shape"]["class"]
        assert extent == ("H5S_NULL" if o.shape is None else "H5S_SCALAR" if o.shape == () else "H5S_SIMPLE"), path
        assert o.shape in (None, ()) or j["shape"]["dims"] == list(o.shape), path
        value = o[()] if o.shape is not None else h5py.Empty(o.dtype)
        if h5py.check_ref_dtype(o.dtype):
            assert [f[x] for x in j["value"]] == [f[r] for r in value], path
        else:
            assert same(j["value"], plain(value, o.dtype.base)), (path, j["value"], plain(value, o.dtype.base))
        layout = j["creationProperties"]["layout"]
        assert layout.get("dims") == (list(o.chunks) if o.chunks else None), path
    elif isinstance(o, h5py.Datatype):
        assert j["type"]["class"] == "H5T_COMPOUND", j
    else:
        links = {l["title"]: l for l in j["links"]}
        assert set(links) == set(o), path
        for n, l in links.items():
            link = o.get(n, getlink=True)
            if isinstance(link, h5py.SoftLink): assert (l["class"], l["h5path"]) == ("H5L_TYPE_SOFT", link.path)
            else: assert l["class"] == "H5L_TYPE_HARD" and l["collection"] in ("groups", "datasets", "datatypes")
count = 0
def walk(path, group):
    global count
    want = set()
    for n in group:
        o = group.get(n)
        if o is None or n == "up" or n == "large": continue
        count += 1
        check(path + n, o)
        want.add(n + ".json")
        if isinstance(o, h5py.Group):
            directory = "%%%02X" % ord(n[0]) + n[1:] if n.endswith(".json") else n
            want.add(directory)
            walk(path + directory + "/", o)
    if path == "": want |= {".json", "large.json"}
    if path == "g/": want |= {"up"}
    listed = os.listdir(root + path)
    assert len(listed) == len(set(listed)) and set(listed) == want, (path, set(listed) ^ want)
check("", f)
walk("", f)
assert load("g/again.json") == load("i8.json") and os.stat(root + "g/again.json").st_ino == os.stat(root + "i8.json").st_ino
assert os.path.realpath(root + "g/up") == os.path.realpath(root) and not os.path.exists(root + "g/up.json")
assert not os.path.exists(root + "g/sub.json/x") and os.path.exists(root + "g/%73ub.json/x.json")
properties = load("chunked.json")["creationProperties"]
assert [x["class"] for x in properties["filters"]] == ["H5Z_FILTER_SHUFFLE", "H5Z_FILTER_DEFLATE"] and properties["fillValue"] == 9.5
assert load("type.json")["type"]["fields"][0]["name"] == "x"
try:
    load("large.json")
    raise AssertionError("512 MiB are too large")
except OSError as e:
    assert e.errno == errno.EFBIG, e
for wrong in ("i8", "g.json/x", "none.json.json", "%69%38.json"):
    assert not os.path.exists(root + wrong), wrong
print(count)
"#;

fn run(program: &str, args: &[&Path]) -> String {
    let output = Command::new(python::with_h5py()).args(["-c", program]).args(args).stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn objects_are_hdf5_json_with_the_values_that_h5py_reads() {
    for options in [&[][..], &["--read-write"]] {
        let place = Place::new();
        let file = place.dir().join("json.h5");
        run(MAKE, &[&file]);
        let copy = place.dir().join("copy.h5");
        std::fs::copy(&file, &copy).unwrap();
        let mount = Mount::start(place, &file, options);
        let count: u32 = run(COMPARE, &[&copy, &mount.place.mnt()]).trim().parse().unwrap();
        assert!(count > 320, "{count} objects compared");
        let metadata = mount.path(".h5dir/json/i8.json").metadata().unwrap();
        assert!(std::os::unix::fs::PermissionsExt::mode(&metadata.permissions()) & 0o222 == 0);
    }
}
