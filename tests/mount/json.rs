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
with open(root + "large.json", "rb", buffering=0) as file:
    assert os.stat(root + "large.json").st_size == 0, "not known before it was read"
    head, value = file.read(1 << 20).split(b'"value":', 1)
    assert json.loads(head + b'"value":[]}')["shape"]["dims"] == [1 << 26]
    assert value and value == (b"[" + b"0.0," * (1 << 18))[:len(value)], value[:40]
    try:
        os.pread(file.fileno(), 1, 1 << 28)
        raise AssertionError("256 MiB that were not read")
    except OSError as e:
        assert e.errno == errno.EFBIG, e
for wrong in ("i8", "g.json/x", "none.json.json", "%69%38.json"):
    assert not os.path.exists(root + wrong), wrong
print(count)
"#;

/// Makes the file `sys.argv[1]`: datasets of more than 8 MiB, and one of little more bytes of text
/// than an object may have that is made as a whole.
const MAKE_LONG: &str = r#"
import sys, h5py, numpy as np
f, rng = h5py.File(sys.argv[1], "w"), np.random.default_rng(1)
f["line"] = rng.integers(-9, 9, 1_100_000)
f.create_dataset("rows", data=rng.integers(-99, 99, (370_000, 3)), chunks=(1000, 2), compression="gzip", compression_opts=1)
f["cube"] = np.array([b"%d" % i for i in range(5 * 7 * 2800)], "S100").reshape(5, 7, 2800)
f["line"].attrs["units"] = "m"
f["one"] = np.void(bytes(range(256)) * 36_000)
f.create_dataset("words", (2, 35), h5py.string_dtype())[:] = np.array(["x" * (1 << 20)] * 70, object).reshape(2, 35)
f["small"] = np.arange(12).reshape(2, 3, 2)
"#;

/// Compares the long texts of the mount `sys.argv[2]` with the file `sys.argv[1]`.
const COMPARE_LONG: &str = r#"
import sys, os, json, random, h5py, numpy as np
f, root = h5py.File(sys.argv[1], "r"), sys.argv[2] + "/.h5dir/json/"
def plain(v):
    return v.decode() if isinstance(v, bytes) else [plain(x) for x in v] if isinstance(v, list) else v
for name in f:
    path = f"{root}{name}.json"
    with open(path, "rb", buffering=0) as file:
        text = file.readall()
        head, value = text.split(b',\n"value":', 1)
        want = f[name][()].tobytes().hex() if name == "one" else plain(f[name][()].tolist())
        assert value == json.dumps(want, separators=(",", ":")).encode() + b"\n}\n", (name, value[:60], value[-60:])
        assert len(json.loads(head + b"}")["attributes"]) == len(f[name].attrs), name
        assert os.fstat(file.fileno()).st_size == len(text), name
        for at in [0, len(head), len(text) - 3, len(text), len(text) + 9] + random.Random(1).sample(range(len(text)), 5):
            assert os.pread(file.fileno(), 4096, at) == text[at:at + 4096], (name, at)
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

/// Regression: the text of an object of more than 64 MiB of text could not be read at all.
#[test]
fn the_text_of_a_large_dataset_is_made_as_it_is_read() {
    let place = Place::new();
    let file = place.dir().join("json.h5");
    run(MAKE_LONG, &[&file]);
    let mount = Mount::start(place, &file, &[]);
    run(COMPARE_LONG, &[&file, &mount.place.mnt()]);
}
