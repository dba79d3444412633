"""Makes and reads the files of the SWMR unit tests (src/connector/native/edit/swmr_tests.rs).

swmr_images.py make FILE: a file with a dataset of each chunk index, without elements.
swmr_images.py check FOLDER: every *.h5 there is opened as a SWMR reader, every *.cleared as a file that no program writes; element i
of each dataset must be i + 1. Prints the numbers of files.
"""
import sys
from pathlib import Path

import h5py
import numpy as np


def make(path):
    with h5py.File(path, "w", libver="latest") as f:
        f.create_dataset("array", (0,), "i8", maxshape=(None,), chunks=(4,))
        f.create_dataset("packed", (0, 3), "i4", maxshape=(None, 3), chunks=(5, 3), compression="gzip")
        f.create_dataset("tree", (0, 2), "i4", maxshape=(None, None), chunks=(2, 2))
        f.create_dataset("packedtree", (0, 2), "i4", maxshape=(None, None), chunks=(3, 1), compression="gzip")
        f.create_dataset("fixed", (0,), "i4", maxshape=(9000,), chunks=(2,))
        f.create_dataset("small", (0,), "i2", maxshape=(400,), chunks=(8,), shuffle=True)
        f.create_dataset("single", (0,), "i4", maxshape=(5000,), chunks=(5000,))
        early = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        early.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
        # An empty dataset would get no storage.
        f.create_dataset("early", (8,), "i4", maxshape=(400,), chunks=(8,), dcpl=early).resize(0, 0)
        f.create_dataset("inner/wide", (0, 70), "i2", maxshape=(None, 70), chunks=(1, 10))
        # The mark of sparse chunks of profile map: a flag of deflate that libhdf5 does not know.
        marked = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        marked.set_chunk((6,))
        marked.set_filter(1, 0x81, (4,))
        space, four = h5py.h5s.create_simple((0,), (h5py.h5s.UNLIMITED,)), h5py.h5t.STD_I32LE
        h5py.h5d.create(f.id, b"sparse", four, space, marked)
        # Continuation chunks of the header.
        for i in range(6):
            f["array"].attrs[f"attribute{i}"] = "x" * 50 * i


def check(path, **how):
    with h5py.File(path, "r", **how) as f:
        for name in ("array", "packed", "tree", "packedtree", "fixed", "small", "single", "early", "inner/wide", "sparse"):
            data = f[name][...].ravel()
            want = np.arange(1, data.size + 1).astype(data.dtype)
            if not np.array_equal(data, want):
                at = int(np.flatnonzero(data != want)[0])
                raise SystemExit(f"{path}: {name} has {data.size} elements; number {at} is {data[at]}")


def main():
    if sys.argv[1] == "make":
        return make(sys.argv[2])
    live, cleared = sorted(Path(sys.argv[2]).glob("*.h5")), sorted(Path(sys.argv[2]).glob("*.cleared"))
    for path in live:
        check(path, libver="latest", swmr=True)
    for path in cleared:
        check(path)
    print(len(live), len(cleared))


main()
