#!/usr/bin/env python3
"""Copies between mounts are what libhdf5 reads as the original: every filter of hdf5plugin and h5py, ranks 1 to 4; references to
named datatypes, by cp, rsync and tar."""
import os
import subprocess

import h5py
import hdf5plugin
import numpy as np

import harness

FILTERS = {
    "gzip": {"compression": "gzip", "shuffle": True, "fletcher32": True},
    "lzf": {"compression": "lzf"},
    "scaleoffset": {"scaleoffset": 0},
    "szip": {"compression": "szip"},
    "zstd": hdf5plugin.Zstd(clevel=5),
    "lz4": hdf5plugin.LZ4(),
    "bzip2": hdf5plugin.BZip2(),
    "bitshuffle": hdf5plugin.Bitshuffle(cname="lz4"),
    "bitshuffle zstd": hdf5plugin.Bitshuffle(cname="zstd", clevel=3),
    "zfp": hdf5plugin.Zfp(reversible=True),
    **{f"blosc {c}": hdf5plugin.Blosc(cname=c) for c in ("blosclz", "lz4", "zlib", "zstd")},
    **{f"blosc2 {c}": hdf5plugin.Blosc2(cname=c) for c in ("blosclz", "lz4", "zlib", "zstd")},
}
SHAPES = {1: ((1000,), (300,)), 2: ((40, 30), (16, 16)), 3: ((12, 11, 10), (5, 4, 10)), 4: ((6, 5, 4, 7), (4, 4, 4, 4))}


def make(t, path, rng):
    """A dataset for each filter, rank and type that libhdf5 here can write."""
    names = []
    with h5py.File(path, "w", libver=("v110", "v110")) as f:
        for label, filters in FILTERS.items():
            for rank, (shape, chunks) in SHAPES.items():
                for dtype in ("<i4", "<f4", ">i2"):
                    name = f"{label} {rank} {dtype}"
                    data = rng.integers(0, 50, shape).astype(dtype)
                    try:
                        f.create_dataset(name, data=data, chunks=chunks, **filters)
                    except (OSError, ValueError):
                        # Not for this type or rank, or not in this build of libhdf5.
                        if name in f:
                            del f[name]
                        continue
                    names.append(name)
    t.check(len(names) > 120, f"libhdf5 wrote {len(names)} datasets")
    return names


COPIES = {
    "cp": "cp -a {a}/. {b}/",
    "rsync": "rsync -aX {a}/ {b}/",
    "tar": "tar -C {a} --xattrs --xattrs-include='*' -cf - . | tar -C {b} --xattrs --xattrs-include='*' -xf -",
}


def named_types(t, h5dir, place):
    """Datasets and attributes of copies refer to the named datatype of the copy."""
    source = os.path.join(place, "named.h5")
    with h5py.File(source, "w") as f:
        f["t"] = np.dtype([("x", "<f8"), ("n", "<i4")])
        d = f.create_dataset("d", (4,), dtype=f["t"])
        d.attrs.create("a", np.zeros((), f["t"].dtype), dtype=f["t"])
    for tool, command in COPIES.items():
        target = os.path.join(place, f"{tool}.h5")
        subprocess.run([h5dir, "create", target], check=True)
        with harness.mounted(h5dir, source) as a, harness.mounted(h5dir, target, "--read-write") as b:
            subprocess.run(command.format(a=a, b=b), shell=True, check=True, timeout=60)
        with h5py.File(target) as f:
            types = [f["d"].id.get_type(), h5py.h5a.open(f["d"].id, b"a").get_type()]
            t.check(all(one.committed() and one == f["t"].id for one in types), f"{tool}: the copy refers to its named datatype")


def main():
    options = harness.arguments(__doc__)
    t = harness.Tally()
    with harness.folder(options.keep) as place:
        source, target = os.path.join(place, "source.h5"), os.path.join(place, "target.h5")
        names = make(t, source, np.random.default_rng(options.seed))
        subprocess.run([options.bin, "create", target], check=True)
        with harness.mounted(options.bin, source) as a, harness.mounted(options.bin, target, "--read-write", "--commit-on-close=off") as b:
            subprocess.run(["cp", "-a", *(os.path.join(a, n) for n in names), b], check=True, timeout=300)
            for n in names:
                t.equal(harness.read(os.path.join(b, n)), harness.read(os.path.join(a, n)), f"{n}: bytes in the mount")
        with h5py.File(source, "r") as f, h5py.File(target, "r") as g:
            for n in names:
                def values(d):
                    try:
                        return d[...].tobytes()
                    except OSError as e:
                        return str(e).encode()

                def facts(d):
                    plist = d.id.get_create_plist()
                    return d.dtype, d.shape, d.chunks, [plist.get_filter(i)[:1] + plist.get_filter(i)[2:3] for i in range(plist.get_nfilters())]

                t.equal(values(g[n]), values(f[n]), f"{n}: elements as libhdf5 reads them")
                t.equal(facts(g[n]), facts(f[n]), f"{n}: type, shape, chunks and filters")
        named_types(t, options.bin, place)
    t.finish()


if __name__ == "__main__":
    main()
