"""Groups, links, names, attributes, variable-length data, npy files and a netCDF-4 file against h5py.

Random but seeded: every attribute's text is parsed and compared with the value that h5py reads.
"""
import json
import math
import os
import struct
import unicodedata

import h5py
import netCDF4
import numpy as np
from h5py import h5d, h5p, h5s, h5t

import harness

NUMBERS = ["i1", "u1", "<i2", ">u2", "<i4", ">i4", "<u8", ">i8", "<f2", "<f4", ">f4", "<f8", ">f8"]


def random_numbers(rng, dtype, shape):
    dtype = np.dtype(dtype)
    n = int(np.prod(shape))
    # Any bit pattern: subnormal numbers, infinities and NaN too.
    data = np.frombuffer(rng.bytes(n * dtype.itemsize), dtype)
    return data.reshape(shape) if shape != () else data[0]


def random_text(rng, n):
    letters = [chr(c) for c in rng.integers(1, 0x2FFF, n * 2) if unicodedata.category(chr(c)) not in ("Cn", "Cs")]
    return "".join(letters[:n])


def same_numbers(text, want):
    """Whether the text reads back to exactly these numbers."""
    if np.size(want) == 0:
        return text == b""
    got = json.loads(text)
    got = np.array(got, dtype=object).ravel().tolist() if isinstance(got, list) else [got]
    want = np.asarray(want)
    if len(got) != want.size:
        return False
    for g, w in zip(got, want.ravel().tolist()):
        if want.dtype.kind == "f":
            g = want.dtype.type(g)
            if g != want.dtype.type(w) and not (math.isnan(g) and math.isnan(w)):
                return False
        elif g != w or not isinstance(g, int):
            return False
    return True


def shown(name):
    """File name of a name that holds no `%` and needs no cutting."""
    return name.replace("/", "%2F")


def attribute_targets(rng, f):
    dense = f.create_group("dense")
    few = f.create_dataset("few", data=np.arange(3))
    made = {}
    for where, target, n in (("dense", dense, 120), ("few", few, 6)):
        for i in range(n):
            name = f"{i:03} " + random_text(rng, int(rng.integers(1, 20))).replace("%", "x").replace("\0", "")
            dtype = NUMBERS[int(rng.integers(len(NUMBERS)))]
            shape = [(), (1,), (5,), (2, 3), (0,), (2, 2, 2)][int(rng.integers(6))]
            value = random_numbers(rng, dtype, shape) if i % 4 else random_text(rng, int(rng.integers(0, 60)))
            target.attrs[name] = value
            made.setdefault(where, {})[name] = value
    return made


def check_attributes(t, libver, made, mount):
    for where, attributes in made.items():
        path = f"{mount}/{where}"
        listed = os.listxattr(path)
        for name, value in attributes.items():
            label = f"{libver} {where} attribute {name!r}"
            t.check("user." + name in listed, f"{label}: listed")
            text = os.getxattr(path, "user." + name)
            if isinstance(value, str):
                t.equal(text, value.encode(), label)
            else:
                t.check(same_numbers(text, value), f"{label}: {text!r}, not {value!r}")
                raw = harness.read(f"{mount}/.h5dir/attrs/{where}/" + shown(name))
                t.equal(raw, value.tobytes(), f"{label}: raw")


def links(t, rng, options, place):
    """Groups of many links in each storage form, looked up one by one."""
    for libver in ("earliest", "v108", "latest"):
        path = os.path.join(place, f"links_{libver}.h5")
        with h5py.File(path, "w", libver=(libver, "latest")) as f:
            f["target"] = np.arange(4, dtype="u1")
            made = {}
            for group, n, order in (("some", 7, False), ("many", 1200, False), ("ordered", 300, True)):
                g = f.create_group(group, track_order=order)
                for i in range(n):
                    name = random_text(rng, int(rng.integers(1, 40))).replace("/", "_").replace("%", "_").replace("\0", "_").strip(".") or "_"
                    if name in g:
                        continue
                    g[name] = f["target"] if i % 3 else h5py.SoftLink("/target")
                    made.setdefault(group, set()).add((name, i % 3 == 0))
                # Deletions leave gaps in heaps and trees.
                for name, soft in list(made[group])[::5]:
                    del g[name]
                    made[group].discard((name, soft))
            made_attributes = attribute_targets(rng, f)
        with harness.mounted(options.bin, path) as mount:
            for group, names in made.items():
                listed = os.listdir(f"{mount}/{group}")
                t.equal(sorted(listed), sorted(n for n, _ in names), f"{libver} {group}: names")
                for name, soft in names:
                    file = f"{mount}/{group}/{name}"
                    t.check(os.path.islink(file) == soft and harness.read(file) == b"\0\1\2\3", f"{libver} {group}/{name!r}")
            hard = 1 + sum(not soft for names in made.values() for _, soft in names)
            t.equal(os.stat(f"{mount}/target").st_nlink, hard, f"{libver}: nlink")
            check_attributes(t, libver, made_attributes, mount)
        print(f"links and attributes, {libver}", flush=True)


def exact(values, element):
    return b"".join(struct.pack("<I", len(v)) + b"".join(map(element, v)) for v in values)


def variable(t, rng, options, place):
    """Strings and sequences of random lengths in each layout."""
    path = os.path.join(place, "variable.h5")
    want = {}
    with h5py.File(path, "w", libver="latest") as f:
        for layout, extra in (("contiguous", {}), ("chunked", dict(chunks=(37,))), ("deflated", dict(chunks=(50,), compression="gzip", maxshape=(None,)))):
            strings = [random_text(rng, int(rng.integers(0, 80))).replace("\0", "") for _ in range(400)]
            f.create_dataset(f"strings_{layout}", data=strings, dtype=h5py.string_dtype(), **extra)
            encoded = [s.encode() for s in strings]
            want[f"strings_{layout}"] = b"".join(s + b"\n" for s in encoded)
            want[f".h5dir/exact/strings_{layout}"] = exact(encoded, lambda b: bytes([b]))
            sequences = [rng.integers(-1000, 1000, int(rng.integers(0, 30))).astype("<i4") for _ in range(300)]
            d = f.create_dataset(f"sequences_{layout}", (300,), h5py.vlen_dtype(np.dtype("<i4")), **extra)
            for i, s in enumerate(sequences):
                d[i] = s
            want[f"sequences_{layout}"] = want[f".h5dir/exact/sequences_{layout}"] = exact(sequences, lambda x: x.tobytes())
    with harness.mounted(options.bin, path) as mount:
        for name, data in want.items():
            t.equal(os.stat(f"{mount}/{name}").st_size, len(data), f"variable {name}: st_size")
            t.equal(harness.read(f"{mount}/{name}"), data, f"variable {name}")
    print("variable-length data", flush=True)


def slab(rng, n, count):
    """A random start, step selection of `count` out of `n`."""
    step = int(rng.integers(1, max(2, n // count + 1)))
    start = int(rng.integers(0, n - (count - 1) * step))
    return slice(start, start + (count - 1) * step + 1, step)


def virtual(t, rng, options, place):
    """Virtual datasets of random hyperslabs of three sources, one of them missing; printf names; growing sources."""
    path = os.path.join(place, "virtual.h5")
    shapes = {"a.h5": (12, 20), "b.h5": (30,), ".": (9, 5, 4)}
    for name in ("a.h5", "b.h5"):
        with h5py.File(os.path.join(place, name), "w") as f:
            f.create_dataset("data", data=rng.integers(0, 2**31, shapes[name]).astype("<i4"), chunks=True, compression="gzip")
            f.create_dataset("grown", data=rng.integers(0, 99, (7, 6)).astype("<i4"), maxshape=(None, 6), chunks=(3, 6))
    for i in (0, 1, 2, 4):
        with h5py.File(os.path.join(place, f"series{i}.h5"), "w") as f:
            f["data"] = np.full((2, 6), i + 1, "<i4")
    with h5py.File(path, "w", libver="v110") as f:
        f.create_dataset("data", data=rng.integers(0, 2**31, shapes["."]).astype("<i4"))
        for k in range(60):
            shape = [(200,), (40, 50), (10, 12, 14)][k % 3]
            layout = h5py.VirtualLayout(shape, "<i4")
            for _ in range(int(rng.integers(1, 6))):
                name = ["a.h5", "b.h5", ".", "missing.h5"][int(rng.integers(4))]
                source = h5py.VirtualSource(name, "data", shapes.get(name, (12, 20)), "<i4")
                counts = [int(rng.integers(1, min(n, 5) + 1)) for n in source.shape]
                total = int(np.prod(counts))
                # As many elements on both sides, in one row or as they are.
                if len(shape) == len(counts) and all(c <= n for c, n in zip(counts, shape)):
                    wanted = counts
                elif total <= shape[-1]:
                    wanted = [1] * (len(shape) - 1) + [total]
                else:
                    continue
                layout[tuple(slab(rng, n, c) for n, c in zip(shape, wanted))] = source[tuple(slab(rng, n, c) for n, c in zip(source.shape, counts))]
            f.create_virtual_dataset(f"v{k}", layout, fillvalue=int(rng.integers(0, 100)))
        unlimited = h5s.UNLIMITED
        for name, file, dataset, source in (("printf", b"series%b.h5", b"data", (2, 6)), ("grown", b"a.h5", b"grown", None)):
            plist = h5p.create(h5p.DATASET_CREATE)
            plist.set_fill_value(np.array(-1, "<i4"))
            space = h5s.create_simple((1, 6), (unlimited, 6))
            if source:
                space.select_hyperslab((0, 0), (unlimited, 1), stride=(2, 1), block=(2, 6))
                from_space = h5s.create_simple(source)
            else:
                space.select_hyperslab((0, 0), (1, 1), stride=(1, 1), block=(unlimited, 6))
                from_space = h5s.create_simple((7, 6), (unlimited, 6))
                from_space.select_hyperslab((0, 0), (1, 1), stride=(1, 1), block=(unlimited, 6))
            plist.set_virtual(space, file, dataset, from_space)
            h5d.create(f.id, name.encode(), h5t.STD_I32LE, h5s.create_simple((1, 6), (unlimited, 6)), plist)
    with h5py.File(path, "r") as f, harness.mounted(options.bin, path, "--vds-missing=fill") as mount:
        for name in f:
            d = f[name]
            t.equal(json.loads(harness.fact(f"{mount}/{name}", "shape")), list(d.shape), f"virtual {name}: shape")
            t.equal(harness.read(f"{mount}/{name}"), d[...].astype("<i4").tobytes(), f"virtual {name}")
    print("virtual datasets", flush=True)


def npy(t, rng, options, place):
    """numpy opens what the npy view shows, mapped and not."""
    path = os.path.join(place, "npy.h5")
    dtypes = [*NUMBERS, "?", "<c8", ">c16", "S5", "V3", [("a", "<i2"), ("b", ">f4", (2, 2)), ("c", [("d", "u1"), ("e", "S3")])]]
    arrays = {}
    with h5py.File(path, "w") as f:
        for i, dtype in enumerate(dtypes):
            for shape in ((), (5,), (3, 4), (0, 2), (2, 3, 4)):
                dtype = np.dtype(dtype)
                n = int(np.prod(shape)) * dtype.itemsize
                data = rng.integers(0, 2, n, dtype=np.uint8) if dtype.kind == "b" else rng.integers(1, 100, n, dtype=np.uint8)
                name = f"{i}_{len(shape)}_{'_'.join(map(str, shape))}"
                arrays[name] = data.view(dtype).reshape(shape)
                chunked = dict(chunks=True, compression="gzip") if len(shape) == 2 and n else {}
                f.create_dataset(name, data=arrays[name], dtype=dtype, **chunked)
    with harness.mounted(options.bin, path) as mount:
        for name, want in arrays.items():
            file = f"{mount}/.h5dir/npy/{name}.npy"
            for mode in (None, "r") if want.size and want.shape else (None,):
                got = np.load(file, mmap_mode=mode)
                t.equal((got.dtype, got.shape, got.tobytes()), (want.dtype, want.shape, want.tobytes()), f"npy {name} {want.dtype} {mode}")
    print("npy files", flush=True)


def netcdf(t, rng, options, place):
    """A file as the netCDF library writes it: dimension scales, unlimited dimensions, packed variables."""
    path = os.path.join(place, "weather.nc")
    with netCDF4.Dataset(path, "w") as n:
        n.title = "weather"
        n.createDimension("time", None)
        n.createDimension("x", 30)
        station = n.createGroup("station")
        for name, group in (("root", n), ("station", station)):
            v = group.createVariable("t_" + name, "f4", ("time", "x"), zlib=True, shuffle=True, fill_value=-999.0)
            v[0:7, :] = rng.normal(size=(7, 30))
            v.units, v.factors = "K", np.array([0.5, 2.0])
        s = n.createVariable("names", str, ("x",))
        s[:] = np.array([f"name {i}" for i in range(30)], dtype=object)
    with netCDF4.Dataset(path) as n, harness.mounted(options.bin, path) as mount:
        n.set_auto_mask(False)
        t.equal(harness.read(f"{mount}/t_root"), n["t_root"][:].astype("<f4").tobytes(), "netCDF variable")
        t.equal(harness.read(f"{mount}/station/t_station"), n["station"]["t_station"][:].astype("<f4").tobytes(), "netCDF variable in a group")
        t.equal(harness.read(f"{mount}/names"), "".join(f"name {i}\n" for i in range(30)).encode(), "netCDF strings")
        t.equal(os.getxattr(f"{mount}/t_root", "user.units"), b"K", "netCDF attribute")
        t.equal(os.getxattr(f"{mount}/t_root", "user.factors"), b"[0.5,2.0]", "netCDF attribute")
        t.equal(os.getxattr(mount, "user.title"), b"weather", "netCDF attribute of the file")
        t.equal(harness.fact(f"{mount}/t_root", "shape"), "[7,30]", "netCDF shape")
        t.equal(harness.fact(f"{mount}/t_root", "fillvalue"), "-999.0", "netCDF fill value")
        dimensions = os.getxattr(f"{mount}/t_root", "user.DIMENSION_LIST")
        t.equal(json.loads(dimensions), [["/time"], ["/x"]], "netCDF dimension list")
    print("netCDF", flush=True)


def main():
    options = harness.arguments(__doc__)
    t = harness.Tally()
    rng = np.random.default_rng(options.seed)
    with harness.folder(options.keep) as place:
        for sweep in (links, variable, virtual, npy, netcdf):
            sweep(t, rng, options, place)
    t.finish()


if __name__ == "__main__":
    main()
