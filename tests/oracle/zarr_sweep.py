#!/usr/bin/env python3
"""Containers as Zarr hierarchies: the views zarr and zarr2 as zarr-python, xarray and tensorstore read them, against h5py."""
import os
import shutil
import subprocess
import warnings

import h5py
import hdf5plugin
import numpy as np

import harness

warnings.filterwarnings("ignore")
import xarray  # noqa: E402
import zarr  # noqa: E402

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


def arrays(t, view, top, path):
    """Each dataset of a file as an array of zarr-python."""
    root = zarr.open_group(top, mode="r", zarr_format=FORMATS[view])
    with h5py.File(path) as f:
        datasets = {}
        f.visititems(lambda name, o: datasets.update({name: o}) if isinstance(o, h5py.Dataset) else None)
        for name, d in datasets.items():
            group, leaf = os.path.split(name)
            if group == "odd names" and leaf in ("zarr.json", ".zgroup") or group.endswith("zarr.json") or len(leaf) > 255:
                continue
            if leaf in HIDDEN.get(group, ()):
                t.check(name not in root, f"{view}: {name} is shown")
                continue
            try:
                got = root[name.replace("\\", "%5C") if 0 else name][()]
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
    for name, write in (("xarray.nc", netcdf), ("netcdf.nc", netcdf_c)):
        path = os.path.join(place, name)
        write(path, rng)
        with harness.mounted(options.bin, path) as point:
            for view in FORMATS:
                top = f"{point}/.h5dir/{view}"
                for group in ("/", "inner") if name == "netcdf.nc" else ("/",):
                    for decode in (True, False):
                        more = {"decode_cf": decode, "group": group}
                        want = xarray.open_dataset(path, engine="h5netcdf", **more).load()
                        got = xarray.open_zarr(top, consolidated=False, zarr_format=FORMATS[view], chunks=None, **more).load()
                        equal_datasets(t, got, want, f"{name} {view} {group} decode={decode}")


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
    t.finish()


if __name__ == "__main__":
    main()
