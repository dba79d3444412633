"""libhdf5's side of the test of new datasets (src/dataset/create_tests.rs).

  create.py make FOLDER     writes empty files 0.h5, 2.h5, 3.h5, named after the superblock's version
  create.py check FOLDER    each must hold what libhdf5 creates for the same cases; then it is written to
"""
import importlib.util
import os
import re
import subprocess
import sys

import h5py
import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
spec = importlib.util.spec_from_file_location("make_create", os.path.join(HERE, "..", "fixtures", "create", "make_create.py"))
fixtures = importlib.util.module_from_spec(spec)
spec.loader.exec_module(fixtures)


def make(folder):
    for version, libver in fixtures.VERSIONS.items():
        h5py.File(os.path.join(folder, f"{version}.h5"), "w", libver=libver).close()


def facts(d):
    plist = d.id.get_create_plist()
    filters = [plist.get_filter(i) for i in range(plist.get_nfilters())]
    return (d.shape, d.maxshape, d.chunks, plist.get_layout(), filters, d.id.get_type().encode(), plist.get_fill_time(),
            plist.get_alloc_time(), plist.fill_value_defined(), d.id.get_storage_size(), d.fillvalue if d.dtype.kind != "O" else None)


def dumped(path, name):
    """What h5dump says of the dataset's properties; None when it cannot read the file at all (an old one)."""
    result = subprocess.run(["h5dump", "-p", "-H", "-d", "/" + name, path], capture_output=True, text=True)
    assert result.returncode == 0, (path, name, result.stderr)
    return re.sub(r"OFFSET \d+", "", result.stdout.split("\n", 1)[1])


def write_all(f, twin, name):
    d, t = f[name], twin[name]
    for x in (d, t):
        if x.maxshape and None in x.maxshape:
            x.resize([n + 7 if m is None else n for n, m in zip(x.shape, x.maxshape)])
    if d.shape and d.dtype.kind in "iufb" and d.dtype.itemsize <= 8 and d.size:
        data = (np.arange(d.size) % 100).astype(d.dtype.base).reshape(d.shape)
        d[...] = data
        t[...] = data
        if not (d.dtype.kind == "f" and d.scaleoffset is not None):
            assert np.array_equal(d[...], data), name


def check(folder):
    count = 0
    for version, libver in fixtures.VERSIONS.items():
        path, twin_path = os.path.join(folder, f"{version}.h5"), os.path.join(folder, f"{version}.twin")
        with h5py.File(twin_path, "w", libver=libver) as twin:
            for name, create in fixtures.cases().items():
                create(twin, name.encode())
        with h5py.File(path, "r") as f, h5py.File(twin_path, "r") as twin:
            assert set(f) == set(twin) | {"type", "typed 1", "typed 2"}
            for name in twin:
                got, want = facts(f[name]), facts(twin[name])
                assert repr(got) == repr(want), (version, name, got, want)
                if f[name].shape is not None:
                    assert repr(f[name][()]) == repr(twin[name][()]), (version, name)
                count += 1
            for name in ("typed 1", "typed 2"):
                assert f[name].id.get_type().committed() and f[name].dtype == f["type"].dtype == f["compound"].dtype
                assert f[name].id.get_create_plist().get_attr_creation_order() == (0 if version == 0 else 3)
            assert h5py.h5o.get_info(f["type"].id).rc == 3
        for name in ("filters", "compound", "fill", "compact", "growing_both", "nbit_compound", "one_chunk"):
            assert dumped(path, name) == dumped(twin_path, name), (version, name)
        with h5py.File(path, "r+") as f, h5py.File(twin_path, "r+") as twin:
            for name in twin:
                write_all(f, twin, name)
                f[name].attrs["a"] = "b" * 100
            for k in range(20):
                f["typed 1"].attrs[f"k{k}"] = k
                f["type"].attrs[f"k{k}"] = k
            del f["typed 2"]
            assert h5py.h5o.get_info(f["type"].id).rc == 2
        with h5py.File(path, "r") as f, h5py.File(twin_path, "r") as twin:
            for name in twin:
                if f[name].shape is not None:
                    assert repr(f[name][()]) == repr(twin[name][()]), (version, name)
                assert f[name].attrs["a"] == "b" * 100
                assert f[name].id.get_storage_size() == twin[name].id.get_storage_size(), (version, name)
            assert list(f["typed 1"].attrs.values()) == list(range(20)) or version == 0
    print(count)


if __name__ == "__main__":
    {"make": make, "check": check}[sys.argv[1]](sys.argv[2])
