#!/usr/bin/env python3
"""Containers as Zarr hierarchies: the views zarr and zarr2 as zarr-python, xarray and tensorstore read them, against h5py."""
import json
import os
import shutil
import subprocess
import sys
import warnings

import h5py
import hdf5plugin
import numpy as np

import harness

warnings.filterwarnings("ignore")
import xarray  # noqa: E402
import zarr  # noqa: E402

# Fixtures of other tests that a run reads.
FIXTURES = 40
FORMATS = {"zarr": 3, "zarr2": 2}
NUMBERS = ("i1", "u1", "<i2", ">u2", "<i4", ">i4", "<u8", ">i8", "<f2", ">f2", "<f4", ">f4", "<f8", ">f8", "<c8", ">c16")
FILTERS = {
    "none": {}, "gzip": {"compression": "gzip"}, "shuffle gzip": {"compression": "gzip", "compression_opts": 9, "shuffle": True},
    "gzip sum": {"compression": "gzip", "shuffle": True, "fletcher32": True}, "sum": {"fletcher32": True}, "lzf": {"compression": "lzf"},
    "shuffle": {"shuffle": True}, "zstd": hdf5plugin.Zstd(5), "blosc": hdf5plugin.Blosc("zstd", 5, hdf5plugin.Blosc.SHUFFLE),
    "blosc bits": hdf5plugin.Blosc("lz4", 5, hdf5plugin.Blosc.BITSHUFFLE), "lz4": hdf5plugin.LZ4(), "bzip2": hdf5plugin.BZip2(),
    "bitshuffle": hdf5plugin.Bitshuffle(), "szip": {"compression": "szip"}, "scale": {"scaleoffset": 3}, "blosc2": hdf5plugin.Blosc2(),
}


def numbers(rng, dtype, shape):
    dtype = np.dtype(dtype)
    if dtype.kind in "fc":
        data = rng.normal(size=shape) * 100 + (1j * rng.normal(size=shape) if dtype.kind == "c" else 0)
        return np.round(data, 2).astype(dtype)
    return rng.integers(0, 100, shape).astype(dtype)


def make(path, rng):
    with h5py.File(path, "w") as f:
        types = f.create_group("types")
        for dtype in NUMBERS:
            data = numbers(rng, dtype, (11, 7))
            types.create_dataset(f"chunked {dtype}", data=data, chunks=(4, 3), compression="gzip", shuffle=True)
            types.create_dataset(f"plain {dtype}", data=data, chunks=(4, 3))
            types.create_dataset(f"contiguous {dtype}", data=data)
            types[f"scalar {dtype}"] = data[1, 1]
        filters = f.create_group("filters/deep/er")
        for name, options in FILTERS.items():
            for dtype in ("<i4", ">i2") if name not in ("scale",) else ("<i4",):
                filters.create_dataset(f"{name} {dtype}", data=rng.integers(0, 4, (50, 60)).astype(dtype), chunks=(16, 25), **options)
        noise = filters.create_dataset("skipped", (40, 40), "u1", chunks=(16, 16), compression="gzip", shuffle=True)
        noise.id.write_direct_chunk((0, 0), bytes(range(256)), 3)
        noise.id.write_direct_chunk((0, 16), bytes(range(255, -1, -1)), 2)
        noise[16:] = 5
        edges = f.create_group("edges")
        space = h5py.h5s.create_simple((10, 10), (10, 10))
        plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        plist.set_chunk((4, 4))
        plist.set_deflate(4)
        if hasattr(plist, "set_chunk_opts"):
            plist.set_chunk_opts(h5py.h5d.CHUNK_DONT_FILTER_PARTIAL_CHUNKS)
        h5py.h5d.create(edges.id, b"unfiltered edges", h5py.h5t.STD_I32LE, space, plist).write(
            h5py.h5s.ALL, h5py.h5s.ALL, np.arange(100, dtype="<i4").reshape(10, 10))
        fills = f.create_group("fills")
        for name, dtype, fill in (("nan", "<f4", np.nan), ("inf", "<f8", np.inf), ("minus", ">f4", -np.inf), ("int", "<i2", -7), ("big", ">u4", 77),
                                  ("u8", "<u8", 2**64 - 1), ("i8", ">i8", -2**63), ("tenth", "<f4", 0.1), ("complex", "<c8", 1 + 2j)):
            sparse = fills.create_dataset(name, (20, 20), dtype, chunks=(6, 7), fillvalue=fill, compression="gzip")
            sparse[7:9, 8:9] = 3
            fills.create_dataset(name + " empty", (5,), dtype, fillvalue=fill)
        other = f.create_group("other")
        other["bool"] = np.array([True, False, True])
        other["fixed"] = np.array([b"a", b"bcd", b"", b"xyz\xff"], "S4")
        other.create_dataset("fixed chunks", data=np.array([[b"ab", b"c"], [b"", b"d"], [b"e", b"ff"]], "S3"), chunks=(2, 2), compression="gzip")
        other.create_dataset("words", data=["hällo", "", "two\nlines", "x" * 1000], dtype=h5py.string_dtype())
        other.create_dataset("words 2-D", data=np.array([["a", "b", "c"]] * 70, object), dtype=h5py.string_dtype(), chunks=(4, 2), compression="gzip")
        other["word"] = "one"
        other["enum"] = np.array([1, 0, 2]).astype(h5py.enum_dtype({"RED": 0, "GREEN": 1, "BLUE": 2}, "<i2"))
        record = np.dtype([("n", "<i4"), ("x", "<f8"), ("s", "S3"), ("in", [("a", "<i2"), ("b", "?")])])
        table = np.zeros(30, record)
        table["n"], table["x"], table["s"] = np.arange(30), rng.random(30), b"ab"
        table["in"]["a"] = np.arange(30) * 3
        other.create_dataset("table", data=table, chunks=(8,), compression="gzip")
        other["table contiguous"] = table
        gaps = np.dtype({"names": ["a", "b"], "formats": [">i4", "<f8"], "offsets": [4, 16], "itemsize": 32})
        gapped = np.zeros(9, gaps)
        gapped["a"], gapped["b"] = np.arange(9), 0.5
        other["gaps"] = gapped
        members = np.zeros(5, [("pair", ">i2", (2,)), ("z", ">c8"), ("many", "u1", (2000,)), ("deep", [("er", [("x", ">f4")])])])
        members["pair"], members["z"], members["deep"]["er"]["x"], members["many"][:, 3] = [[1, 2]] * 5, 1 - 2j, 0.5, np.arange(5)
        other["members"] = members
        other.create_dataset("gaps chunks", data=gapped, chunks=(4,), compression="gzip")
        other.create_dataset("arrays", data=np.arange(24, dtype="<i4").reshape(4, 6), dtype="<i4")
        other.create_dataset("subarray", (3,), np.dtype((">i2", (2, 2))), chunks=(2,))[:] = np.arange(12).reshape(3, 2, 2)
        stamps = np.array(["2020-01-01T01:02:03.5", "NaT"], "M8[ns]")
        other.create_dataset("stamps", data=stamps.astype(h5py.opaque_dtype(stamps.dtype)))
        other["opaque"] = np.array([b"abc", b"de"], "V3")
        other["empty"], other["null"] = np.zeros((0, 3)), h5py.Empty("f4")
        other.create_dataset("empty chunks", (0, 3), chunks=(2, 2), maxshape=(None, 3))
        other["references"] = np.array([other.ref], h5py.ref_dtype)
        other.create_dataset("lists", (3,), h5py.vlen_dtype("<i4"))[1] = [1, 2]
        other.create_dataset("big", data=rng.random((1000, 1031)))
        other.create_dataset("five", data=np.arange(2 * 3 * 4 * 5 * 6).reshape(2, 3, 4, 5, 6), chunks=(1, 2, 3, 2, 5))
        odd = f.create_group("odd names")
        for name in ("zarr.json", "c", ".zgroup", "0", "ü", "a b%20", ".."[:1] + "x", "x" * 300, "back\\slash"):
            odd.create_dataset(name, data=[1, 2, 3])
        odd.create_group("inner/zarr.json")["c"] = 5
        f["odd names/up"] = f["/odd names"]
        f["soft"] = h5py.SoftLink("/other/table")
        f["cycle"] = h5py.SoftLink("/")
        f["dangling"] = h5py.SoftLink("/nowhere")
        f.attrs["title"], f.attrs["numbers"] = "hällo", np.arange(6, dtype="<i2").reshape(2, 3)
        a = other["big"].attrs
        a["f4"], a["nan"], a["u8"], a["list"], a["one"] = np.float32(0.1), np.nan, np.uint64(2**64 - 1), [1.5, np.inf], [3]
        a["flag"], a["words"], a["fixed"], a["none"] = True, ["a", "ü"], np.bytes_(b"xy"), h5py.Empty("f8")
        a["complex"], a["ref"] = 1 + 2j, other.ref


def flat(data, nested, before=""):
    """Fields of a compound as the view shows them."""
    out = {}
    for name in data.dtype.names:
        part = data[name]
        rest = part.shape[data.ndim:]
        count = int(np.prod(rest)) if rest else 0
        if count > 1000:
            out[before + name] = part
        elif rest:
            part = part.reshape(data.shape + (count,))
            out.update({f"{before}{name}.{i}": part[..., i] for i in range(count)})
        elif part.dtype.names and not nested:
            out.update(flat(part, nested, f"{before}{name}."))
        else:
            out[before + name] = part
    return out


def same(got, want):
    got, want = np.asarray(got), np.asarray(want)
    if want.dtype.names and want.dtype.names != ("r", "i") and got.dtype.names:
        fields = flat(want, any(got[n].dtype.names for n in got.dtype.names))
        return list(fields) == list(got.dtype.names) and all(same(got[n], fields[n]) for n in fields)
    if got.dtype.kind == "V" and not got.dtype.names and want.dtype.kind != "V":
        return got.tobytes() == want.tobytes()
    if want.dtype.names:
        return got.shape == want.shape and all(same(got[name], want[name]) for name in want.dtype.names)
    if got.shape != want.shape:
        return False
    if want.dtype.kind in "fc":
        return np.array_equal(got, want, equal_nan=True)
    if want.dtype.kind in "mM":
        return np.array_equal(got.view("i8"), want.view("i8"))
    if want.dtype.kind == "V":
        return got.tobytes() == want.tobytes()
    return np.array_equal(got, want)


def value_of(d):
    if h5py.check_string_dtype(d.dtype) and h5py.check_string_dtype(d.dtype).length is None:
        return np.array(d.asstr()[()], object)
    return d[()]


HIDDEN = {"other": {"null", "references", "lists"}}


def node_name(name):
    """A name in a hierarchy: as in the main tree, names of documents escaped."""
    name = name.replace("%", "%25")
    return "%%%02X" % ord(name[0]) + name[1:] if name in ("zarr.json", ".zgroup") else name


def arrays(t, view, top, path):
    """Each dataset of a file as an array of zarr-python."""
    root = zarr.open_group(top, mode="r", zarr_format=FORMATS[view])
    with h5py.File(path) as f:
        datasets = {}
        f.visititems(lambda name, o: datasets.update({name: o}) if isinstance(o, h5py.Dataset) else None)
        for name, d in datasets.items():
            group, leaf = os.path.split(name)
            if "\\" in leaf or len(leaf) > 255:
                # zarr-python takes a backslash for a slash; long names are cut.
                continue
            if leaf in HIDDEN.get(group, ()):
                t.check(name not in root, f"{view}: {name} is shown")
                continue
            try:
                got = root["/".join(node_name(part) for part in name.split("/"))][()]
            except Exception as e:  # noqa: BLE001
                t.check(False, f"{view}/{name}: {e!r}"[:300])
                continue
            want = value_of(d)
            t.check(same(got, want), f"{view}/{name}: {got!r}, not {want!r}"[:300])


def attributes(t, view, top):
    root = zarr.open_group(top, mode="r", zarr_format=FORMATS[view])
    t.equal(dict(root.attrs), {"title": "hällo", "numbers": [[0, 1, 2], [3, 4, 5]]}, f"{view}: attributes of the root")
    a = dict(root["other/big"].attrs)
    t.check(np.isnan(a.pop("nan")), f"{view}: NaN")
    a.pop("_ARRAY_DIMENSIONS", None)
    t.equal(a, {"f4": float(np.float32(0.1)), "u8": 2**64 - 1, "list": [1.5, float("inf")], "one": 3, "flag": True, "words": ["a", "ü"], "fixed": "xy",
                "none": []}, f"{view}: attributes")


def netcdf(path, rng):
    """What xarray and netCDF write: scales, coordinates, fill values, packed numbers."""
    data = xarray.Dataset(
        {"temperature": (("time", "lat", "lon"), rng.random((5, 8, 9)).astype("f4")),
         "flag": (("lat", "lon"), rng.integers(0, 3, (8, 9)).astype("i2"), {"_FillValue": np.int16(-1), "missing_value": np.int16(-1)}),
         "no_coordinates": (("free", "lat"), np.arange(24.0).reshape(3, 8)),
         "names": (("lat",), np.array(["a", "bb", "", "d", "ü", "f", "g", "hh"], object)),
         "scalar": ((), 7.5, {"grid_mapping_name": "x"})},
        coords={"time": np.array(["2020-01-01", "2020-01-02", "2020-01-03", "2020-01-04", "2020-01-05T06"], "M8[ns]"), "lat": np.linspace(-80, 80, 8),
                "lon": np.arange(9.0), "height": (("lat", "lon"), rng.random((8, 9)))},
        attrs={"title": "a", "numbers": np.array([1, 2], "i4"), "one": np.array([5.5], "f4")})
    data["temperature"].attrs.update(units="K", valid_range=np.array([0, 1], "f4"))
    data["temperature"].values[0, 0, :3] = np.nan
    encoding = {"temperature": {"dtype": "i2", "scale_factor": 0.001, "add_offset": 0.5, "_FillValue": -999, "zlib": True, "chunksizes": (2, 4, 5)},
                "height": {"_FillValue": 1e20, "zlib": True, "shuffle": True, "fletcher32": True}, "flag": {"zlib": True}}
    data.to_netcdf(path, engine="h5netcdf", encoding=encoding, unlimited_dims=["time"])


def masked(path, rng):
    """What h5py writes for netCDF: a `_FillValue` that is not the fill value, and scales."""
    with h5py.File(path, "w") as f:
        f["x"] = np.arange(12.0)
        f["x"].make_scale("x")
        for name, dtype, fill, attribute in (("zero", "f4", None, -1.0), ("other", "i4", 7, 9), ("same", "i2", 5, 5), ("plain", "i4", 7, None)):
            d = f.create_dataset(name, (12,), dtype, chunks=(4,), fillvalue=fill, compression="gzip")
            d[4:8] = [1, 9, 7, -1]
            d.dims[0].attach_scale(f["x"])
            if attribute is not None:
                d.attrs["_FillValue"] = np.array([attribute], dtype)


def netcdf_c(path, rng):
    import netCDF4
    with netCDF4.Dataset(path, "w") as f:
        f.createDimension("x", 6), f.createDimension("y", None), f.createDimension("n", 4)
        f.createVariable("x", "f8", ("x",))[:] = np.arange(6)
        f.createVariable("z", "f4", ("y", "x"), fill_value=-1e30, zlib=True, chunksizes=(2, 3))[:5] = rng.random((5, 6)).astype("f4")
        f["z"].units, f["z"].coordinates = "m", "aux"
        f.createVariable("aux", "i4", ("y", "x"))[:5] = rng.integers(0, 9, (5, 6))
        f.createVariable("n", "i4", ("n", "x"))[:] = 3
        f.createVariable("chars", "S1", ("n", "x"))[:] = b"a"
        f.createVariable("u8", "u8", ("n",), fill_value=2**64 - 1)[:] = [1, 2, 2**64 - 1, 4]
        g = f.createGroup("inner")
        g.createDimension("k", 3)
        g.createVariable("v", "f4", ("k", "x"))[:] = 1.5
        f.version = np.int32(3)


def unnamed(path, rng):
    """Dimensions without scales, and with some, in groups; a variable that has the name of a dimension."""
    with h5py.File(path, "w") as f:
        f["b"], f["a"], f["s"], f["c"], f["words"] = np.zeros((3, 4)), rng.random((4, 4, 3)), 1.0, np.zeros(7), ["a", "b"]
        f["x"] = np.arange(7.0)
        f["x"].make_scale("x")
        f["d"], f["e"] = np.arange(7), np.arange(7.0)
        f["e"].dims[0].attach_scale(f["x"])
        f.create_group("inner/deep")["q"] = np.zeros((3, 3))
        f["inner/y"], f["inner/r"] = np.arange(9.0), np.zeros((3, 9))
        f["inner/y"].make_scale("y")
        f.create_group("a group")["k"] = np.zeros((2, 5))


def tracked(path, rng):
    """Dimensions without scales in groups that track the order of creation."""
    with h5py.File(path, "w", track_order=True) as f:
        f["b"], f["a"] = np.zeros((3, 4)), rng.random((4, 4, 3))
        inner = f.create_group("inner", track_order=True)
        inner["u"], inner["o"] = np.zeros((5, 6)), np.zeros((6, 6))
        f.create_group("first", track_order=True)["w"] = np.zeros(2)


def colliding(path, rng):
    """Variables that have names of dimensions, and are not their coordinates."""
    import netCDF4
    with netCDF4.Dataset(path, "w") as f:
        f.createDimension("x", 6), f.createDimension("y", 3), f.createDimension("t", None)
        f.createVariable("x", "f8", ("y",))[:] = rng.random(3)
        f.createVariable("v", "i4", ("y", "x"))[:] = 1
        f.createVariable("t", "f8", ("t", "x"))[:4] = 2
        g = f.createGroup("inner")
        g.createDimension("z", 2)
        g.createVariable("z", "f4", ("x", "z"))[:] = 5


def equal_datasets(t, got, want, what):
    try:
        xarray.testing.assert_identical(want, got)
        t.passed += 1
    except AssertionError as e:
        t.check(False, f"{what}: {e}"[:600])
    for name in want.variables:
        if want[name].dtype.kind not in "OUT":
            t.equal(str(got[name].dtype), str(want[name].dtype), f"{what}: type of {name}")
        for key in ("_FillValue", "scale_factor", "add_offset", "units", "calendar"):
            a, b = got[name].encoding.get(key), want[name].encoding.get(key)
            t.check(a == b or np.isnan(a) and np.isnan(b), f"{what}: {key} of {name}: {a!r}, not {b!r}")


def datasets(t, options, place, rng):
    """xarray opens a view as it opens the file."""
    for name, write in (("xarray.nc", netcdf), ("netcdf.nc", netcdf_c), ("masked.nc", masked), ("unnamed.h5", unnamed), ("tracked.h5", tracked),
                        ("colliding.nc", colliding)):
        path = os.path.join(place, name)
        write(path, rng)
        with harness.mounted(options.bin, path) as point:
            for view in FORMATS:
                top = f"{point}/.h5dir/{view}"
                with h5py.File(path) as f:
                    groups = ["/"] + [group for group in ("inner", "inner/deep", "a group", "first") if group in f]
                for group in groups:
                    for decode, whole in ((True, True), (True, False), (False, False)):
                        more = {"decode_cf": decode, "group": group}
                        want = xarray.open_dataset(path, engine="h5netcdf", phony_dims="sort", **more).load()
                        got = xarray.open_zarr(top, consolidated=whole, zarr_format=FORMATS[view], chunks=None, **more).load()
                        equal_datasets(t, got, want, f"{name} {view} {group} decode={decode} consolidated={whole}")
        text = os.path.join(place, name + ".json")
        subprocess.run([options.bin, "kerchunk", path, "-o", text], check=True)
        got = references(t, "/", text, place)
        if got is not None:
            equal_datasets(t, got, xarray.open_dataset(path, engine="h5netcdf", phony_dims="sort").load(), f"{name} by references")


def consolidated(t, options, place):
    """`zarr.json` of the root has what zarr-python would put there, within limits."""
    path, copy = os.path.join(place, "unnamed.h5"), os.path.join(place, "consolidated")
    with h5py.File(path, "a") as f:
        f["inner/again"], f["inner/deep/up"] = h5py.SoftLink("/a group"), h5py.SoftLink("/inner")
    with harness.mounted(options.bin, path) as point:
        shutil.rmtree(copy, ignore_errors=True)
        subprocess.run(["cp", "-r", f"{point}/.h5dir/zarr", copy], check=True)
        with open(f"{copy}/zarr.json") as f:
            ours = json.load(f)
        zarr.consolidate_metadata(copy, zarr_format=3)
        with open(f"{copy}/zarr.json") as f:
            theirs = json.load(f)
    a, b = ours.pop("consolidated_metadata"), theirs.pop("consolidated_metadata")
    t.equal((ours, a["kind"], a["must_understand"], sorted(a["metadata"])), (theirs, b["kind"], b["must_understand"], sorted(b["metadata"])), "root")
    t.check("inner/again/k" in a["metadata"] and "inner/deep/up" not in a["metadata"], "other names of groups")
    for name, document in b["metadata"].items():
        document.pop("storage_transformers", None)
        t.equal(a["metadata"][name], document, f"consolidated {name}")

    def has(what):
        with open(f"{what}/.h5dir/zarr/zarr.json") as f:
            return "consolidated_metadata" in json.load(f), os.path.exists(f"{what}/.h5dir/zarr2/.zmetadata")

    with harness.mounted(options.bin, path + ":/inner") as point:
        t.equal(has(point), (True, True), "a mounted group")
    with harness.mounted(options.bin, "--read-write", path) as point:
        t.equal(has(point), (False, False), "a writable mount")
        os.chmod(f"{point}/inner/y", 0o600)
    with harness.mounted(options.bin, path) as point:
        t.equal(has(point), (False, True), "an object that only its owner reads")
    many = os.path.join(place, "many.h5")
    for count, wanted in ((1999, True), (2001, False)):
        with h5py.File(many, "w") as f:
            for i in range(count):
                f.create_group(f"g{i}")
        with harness.mounted(options.bin, many) as point:
            t.equal(has(point), (wanted, wanted), f"{count} groups")


READER = """
import sys, warnings
warnings.filterwarnings("ignore")
import fsspec, pickle, xarray, zarr
what, text, out = sys.argv[1:]
if what == "arrays":
    fs = fsspec.filesystem("reference", fo=text, asynchronous=True)
    root = zarr.open_group(zarr.storage.FsspecStore(fs, read_only=True, path=""), mode="r", zarr_format=2, use_consolidated=False)
    found = {name[:-8]: root[name[:-8]][()] for name in fs.references if name.endswith("/.zarray") and chr(92) not in name}
else:
    more = {"consolidated": False, "storage_options": {"fo": text, "remote_protocol": "file"}}
    found = xarray.open_dataset("reference://", engine="zarr", backend_kwargs=more, chunks=None, group=what).load()
assert "h5py" not in sys.modules, "h5py is in the process"
pickle.dump(found, open(out, "wb"))
"""


def references(t, what, text, place):
    """What a process without h5py reads by references."""
    import pickle
    out = os.path.join(place, "found.pickle")
    done = subprocess.run([sys.executable, "-c", READER, what, text, out], stderr=subprocess.PIPE, stdin=subprocess.DEVNULL)
    if done.returncode != 0:
        t.check(False, f"{what} by references: {done.stderr.decode()[-600:]}")
        return None if what != "arrays" else {}
    with open(out, "rb") as f:
        return pickle.load(f)


def kerchunk(t, options, place, path):
    """References in a view and by the command."""
    text = os.path.join(place, "all.json")
    done = subprocess.run([options.bin, "kerchunk", path, "-o", text], stderr=subprocess.PIPE, stdin=subprocess.DEVNULL)
    t.equal(done.returncode, 0, f"h5dir kerchunk: {done.stderr}")
    t.check(b"other/lists" in done.stderr and b"other/references" in done.stderr, f"what is left out is named: {done.stderr}")
    with open(text) as f:
        refs = json.load(f)["refs"]
    with harness.mounted(options.bin, path) as point:
        with open(f"{point}/.h5dir/kerchunk.json") as f:
            t.check(json.load(f)["refs"] == refs, "the view has other references than the command")
    found = references(t, "arrays", text, place)
    with h5py.File(path) as f:
        for name, got in found.items():
            if "%" not in name:
                t.check(same(got, value_of(f[name])), f"by references: {name}: {got!r}"[:300])
        stored = f["filters/deep/er/gzip sum <i4"].id
        for i in range(stored.get_num_chunks()):
            info = stored.get_chunk_info(i)
            key = "filters/deep/er/gzip sum <i4/" + ".".join(str(o // c) for o, c in zip(info.chunk_offset, (16, 25)))
            t.equal(refs[key], [path, info.byte_offset, info.size] if info.size > 512 else refs[key], f"reference {key}")
    t.check(len(found) > 100, f"{len(found)} arrays by references")
    user = os.path.join(place, "user block.h5")
    with h5py.File(user, "w", userblock_size=1024) as f:
        f.create_dataset("a", data=np.arange(5000), chunks=(1000,), compression="gzip")
        f["b"] = np.arange(4000.0)
    subprocess.run([options.bin, "kerchunk", user, "-o", text], check=True)
    for name, got in references(t, "arrays", text, place).items():
        t.check(same(got, np.arange(len(got))), f"after a user block: {name}")
    piece = subprocess.run([options.bin, "kerchunk", "--url", "s3://x/y.h5", user + ":/"], check=True, stdout=subprocess.PIPE).stdout
    urls = {v[0] for v in json.loads(piece)["refs"].values() if isinstance(v, list)}
    t.equal(urls, {"s3://x/y.h5"}, "the URL that is wanted")
    again = subprocess.run([options.bin, "kerchunk", user, "-o", user], stderr=subprocess.PIPE)
    t.check(again.returncode == 2 and h5py.is_hdf5(user), "the file itself is not replaced")


def copies(t, options, place, path):
    """Copies of a view are stores of their own, of exact sizes; consolidated metadata; another reader."""
    import tensorstore
    with harness.mounted(options.bin, path) as point:
        for view in FORMATS:
            copy = os.path.join(place, "copy " + view)
            shutil.rmtree(copy, ignore_errors=True)
            subprocess.run(["cp", "-r", f"{point}/.h5dir/{view}", copy], check=True)
            arrays(t, view, copy, path)
            for top, _, names in os.walk(f"{point}/.h5dir/{view}"):
                for name in names:
                    at = os.path.join(top, name)
                    t.equal(os.path.getsize(at), len(harness.read(at)), f"size of {at}")
        for view, driver in (("zarr", "zarr3"), ("zarr2", "zarr")):
            with h5py.File(path) as f:
                names = [f"types/{kind} {dtype}" for kind in ("plain", "contiguous") for dtype in NUMBERS]
                names += ["filters/deep/er/zstd <i4", "filters/deep/er/blosc <i4", "filters/deep/er/lz4 <i4", "fills/nan empty", "other/five"]
                for name in names:
                    store = {"driver": driver, "kvstore": {"driver": "file", "path": f"{point}/.h5dir/{view}/{name}"}}
                    try:
                        got = tensorstore.open(store, read=True).result().read().result()
                    except Exception as e:  # noqa: BLE001
                        t.check(False, f"tensorstore {view}/{name}: {e}"[:300])
                        continue
                    t.check(same(got, f[name][()]), f"tensorstore {view}/{name}")
        with open(f"{point}/.h5dir/zarr2/.zmetadata") as f:
            metadata = json.load(f)["metadata"]
        for key, value in metadata.items():
            with open(f"{point}/.h5dir/zarr2/{key}") as f:
                t.equal(json.load(f), value, f"consolidated {key}")
        with h5py.File(path) as f:
            root = zarr.open_consolidated(f"{point}/.h5dir/zarr2", zarr_format=2)
            t.check(same(root["other/big"][()], f["other/big"][()]), "an array of the consolidated hierarchy")
        top = f"{point}/.h5dir/zarr/fills/nan"
        t.equal(sorted(os.path.relpath(os.path.join(at, name), top) for at, _, names in os.walk(top) for name in names), ["c/1/1", "zarr.json"],
                "only chunks that exist are listed")
        for name in ("c/0/0", "c/9/9", "c/01/1", "c/1", "c/1/1/1", "d", "c/1/x"):
            t.check(name == "c/1" or not os.path.exists(f"{top}/{name}"), f"{name} is there")
        t.check(not os.path.exists(f"{point}/.h5dir/zarr/cycle") and not os.path.exists(f"{point}/.h5dir/zarr/odd names/up/up"), "a cycle is shown")


def changed(t, options, place):
    """Views follow the changes of a mount."""
    path = os.path.join(place, "changed.h5")
    with h5py.File(path, "w") as f:
        f.create_dataset("gzip", data=np.arange(100, dtype="<i4").reshape(10, 10), chunks=(4, 4), compression="gzip")
        f.create_dataset("sparse", (40,), "<f8", chunks=(10,), fillvalue=np.nan)
        f["plain"] = np.arange(10.0)
    with harness.mounted(options.bin, path, "--read-write") as point:
        for step in range(3):
            for name, dtype, at in (("gzip", "<i4", 4 * (5 + 11 * step)), ("plain", "<f8", 8 * step), ("sparse", "<f8", 8 * (3 + 10 * step))):
                with open(f"{point}/{name}", "r+b") as f:
                    f.seek(at)
                    f.write(np.array([-7 - step], dtype).tobytes())
            if step == 1:
                os.sync()
            for view in FORMATS:
                root = zarr.open_group(f"{point}/.h5dir/{view}", mode="r", zarr_format=FORMATS[view])
                for name, dtype in (("gzip", "<i4"), ("plain", "<f8"), ("sparse", "<f8")):
                    want = np.frombuffer(harness.read(f"{point}/{name}"), dtype)
                    t.check(same(root[name][()].ravel(), want), f"{view}/{name} after change {step}: {root[name][()]}"[:300])
        t.check(not os.path.exists(f"{point}/.h5dir/kerchunk.json"), "places of chunks that change are shown")
        os.mkdir(f"{point}/new")
        shutil.copy(f"{point}/plain", f"{point}/new/file")
        root = zarr.open_group(f"{point}/.h5dir/zarr", mode="r")
        t.check(bytes(root["new/file"][()]) == harness.read(f"{point}/plain"), "a new file is an array")


def container(t, options, place, path):
    """A container in an object store."""
    store = os.path.join(place, "store")
    shutil.rmtree(store, ignore_errors=True)
    subprocess.run([options.bin, "create", f"iod:{store}"], check=True)
    subprocess.run([options.bin, "cp", "-r", *[f"{path}:/{name}" for name in ("types", "fills", "other", "edges")], f"iod:{store}:/"],
                   stderr=subprocess.DEVNULL, check=False)
    with harness.mounted(options.bin, f"iod:{store}") as point, h5py.File(path) as f:
        t.check(not os.path.exists(f"{point}/.h5dir/kerchunk.json"), "a container has no places in one file")
        for view in FORMATS:
            root = zarr.open_group(f"{point}/.h5dir/{view}", mode="r", zarr_format=FORMATS[view])
            found = {name: a for name, a in root.members(max_depth=None) if isinstance(a, zarr.Array)}
            t.check(len(found) > 60, f"{view} of a container: {len(found)} arrays")
            for name, a in found.items():
                t.check(same(a[()], value_of(f[name])), f"container {view}/{name}: {a[()]!r}"[:300])


def corpus(t, options, rng):
    """Numbers of files of other tests."""
    paths = []
    for at, _, names in os.walk(os.path.join(harness.TOP, "tests", "fixtures")):
        paths += [os.path.join(at, name) for name in names if os.path.getsize(os.path.join(at, name)) < 1 << 19]
    # libhdf5 does not know the log of a file.
    paths = [path for path in sorted(paths) if h5py.is_hdf5(path) and "log" not in os.path.basename(path)]
    t.check(len(paths) > FIXTURES, f"{len(paths)} fixtures")
    for path in rng.choice(paths, FIXTURES, replace=False):
        one_file(t, options, str(path))


def numbers_of(f):
    """Datasets of numbers that h5py reads: name and values."""
    names = []
    try:
        f.visit(names.append)
    except RuntimeError:
        return
    for name in names:
        try:
            d = f[name]
            if isinstance(d, h5py.Dataset) and d.shape is not None and d.dtype.kind in "iufcb" and d.size <= 1 << 20:
                yield name, d, d[()]
        except (KeyError, OSError, ValueError, TypeError, RuntimeError):
            pass


def one_file(t, options, path):
    try:
        f = h5py.File(path)
    except OSError:
        return
    with f, harness.mounted(options.bin, path) as point:
        for name, d, want in numbers_of(f):
            for view in FORMATS:
                at = f"{point}/.h5dir/{view}/{name}"
                if not os.path.isdir(at):
                    # netCDF keeps dimensions in datasets; numpy has a notation for more types.
                    hidden = b"not a netCDF variable" in np.bytes_(d.attrs.get("NAME", b"")) if "NAME" in d.attrs else False
                    t.check(hidden or not os.path.exists(f"{point}/.h5dir/npy/{name}.npy"), f"{path}: {view}/{name} is not shown")
                    continue
                try:
                    harness.read(f"{point}/{name}")
                except OSError:
                    # Elements in files that this mount may not read.
                    continue
                try:
                    got = zarr.open_array(zarr.storage.LocalStore(at, read_only=True), mode="r", zarr_format=FORMATS[view])[()]
                except Exception as e:  # noqa: BLE001
                    t.check(False, f"{path}: {view}/{name}: {e!r}"[:400])
                    continue
                t.check(same(got, want), f"{path}: {view}/{name}: {got!r}, not {want!r}"[:400])


def main():
    options = harness.arguments(__doc__)
    t = harness.Tally()
    rng = np.random.default_rng(options.seed)
    with harness.folder(options.keep) as place:
        path = os.path.join(place, "all.h5")
        make(path, rng)
        with harness.mounted(options.bin, path) as point:
            for view in FORMATS:
                arrays(t, view, f"{point}/.h5dir/{view}", path)
                attributes(t, view, f"{point}/.h5dir/{view}")
        datasets(t, options, place, rng)
        consolidated(t, options, place)
        copies(t, options, place, path)
        kerchunk(t, options, place, path)
        changed(t, options, place)
        container(t, options, place, path)
        corpus(t, options, rng)
    t.finish()


if __name__ == "__main__":
    main()
