"""libhdf5's side of the test of changed chunk indexes (src/dataset/index/write_tests.rs).

  make PATH earliest|v110|latest [narrow]
                                   writes datasets of every index kind, partly written or not at all; prints what they are (JSON);
                                   narrow: addresses of 4 bytes, version 1 B-trees of K 2
  check PATH < JSON                compares: {name: {chunk number: value}}; then changes the file, reads all again, deletes all

Chunk `number` (row-major over the extent) is filled with one value; 0 is the fill value. No chunk is as long
before the filter as behind it: libhdf5 keeps the filter mask of a chunk that it writes again in the same size.
"""
import ctypes
import json
import re
import sys

import h5py
import numpy as np
from h5py import h5d, h5p, h5s, h5t

U = None


def make(path, libver, narrow=False):
    fapl = h5p.create(h5p.FILE_ACCESS)
    low = {"earliest": h5py.h5f.LIBVER_EARLIEST, "v110": h5py.h5f.LIBVER_V110, "latest": h5py.h5f.LIBVER_LATEST}
    fapl.set_libver_bounds(low[libver], h5py.h5f.LIBVER_LATEST)
    fcpl = h5p.create(h5p.FILE_CREATE)
    if narrow:
        # With lengths of 4 bytes libhdf5 forgets that a dimension is unlimited.
        fcpl.set_sizes(4, 8)
        # h5py has no set_istore_k, the libhdf5 that it has loaded does.
        library = next(line.split()[-1] for line in open("/proc/self/maps") if re.search(r"/libhdf5[-.]", line))
        assert ctypes.CDLL(library).H5Pset_istore_k(ctypes.c_int64(fcpl.id), ctypes.c_uint(2)) >= 0
    file = h5py.File(h5py.h5f.create(path.encode(), h5py.h5f.ACC_TRUNC, fcpl, fapl))
    out = []

    def add(name, shape, maxshape, chunk, filtered, step, early=False):
        dcpl = h5p.create(h5p.DATASET_CREATE)
        dcpl.set_chunk(chunk)
        dcpl.set_alloc_time(h5d.ALLOC_TIME_EARLY if early else h5d.ALLOC_TIME_INCR)
        if filtered:
            dcpl.set_deflate(1)
        space = h5s.create_simple(shape, tuple(h5s.UNLIMITED if m is None else m for m in maxshape))
        d = h5py.Dataset(h5d.create(file.id, name.encode(), h5t.py_create(np.dtype("<u2")), space, dcpl))
        counts = [-(-n // c) for n, c in zip(shape, chunk)]
        for i in range(0, int(np.prod(counts)), step) if step else ():
            d[box(d, i)] = i % 60000 + 1
        out.append(dict(name=name, header=h5py.h5o.get_info(d.id).addr, shape=shape, max=maxshape, chunk=chunk, filtered=filtered,
                        step=step, early=early))

    for filtered in (False, True):
        f = "_filtered" if filtered else ""
        for w, step in (("", 3), ("_unwritten", 0), ("_deleted", 4)):
            add("single" + f + w, (7, 3), (7, 3), (7, 3), filtered, step)
            add("fixed" + f + w, (13, 9), (20, 30), (2, 5), filtered, step)
            add("fixed_paged" + f + w, (60, 50), (70, 50), (1, 1), filtered, step)
            add("extensible" + f + w, (5, 270), (10, U), (2, 5), filtered, step)
            add("several" + f + w, (30, 4, 29), (U, 4, U), (1, 2, 1), filtered, step)
        for w, step in (("", 997), ("_unwritten", 0)) if libver != "earliest" and not narrow else ():
            add("extensible_paged" + f + w, (136000,), (U,), (1,), filtered, step)
    add("implicit", (7, 5), (9, 20), (2, 3), False, 1, early=True)
    file.close()
    print(json.dumps(out))


def box(d, number):
    counts = [-(-n // c) for n, c in zip(d.shape, d.chunks)]
    scaled = np.unravel_index(number, counts)
    return tuple(slice(s * c, min(s * c + c, n)) for s, c, n in zip(scaled, d.chunks, d.shape))


def expected(d, values):
    if d.chunks == (1,) * len(d.shape):
        flat = np.zeros(int(np.prod(d.shape)), "<u2")
        flat[[int(i) for i in values]] = list(values.values())
        return flat.reshape(d.shape)
    want = np.zeros(d.shape, "<u2")
    for i, value in values.items():
        want[box(d, int(i))] = value
    return want


def same(file, want, all=False):
    for name, array in want.items():
        got = file[name][...] if all or array.size < 10000 else array.copy()
        if got.size >= 10000:
            # 136000 chunks take a second to read.
            for part in slice(0, 500), slice(130900, 131100), slice(133000, 133200), slice(135000, None):
                got[part] = file[name][part]
        assert got.shape == array.shape and (got == array).all(), (name, np.argwhere(got != array)[:10].tolist())


def grow(d, array, shape):
    d.resize(shape)
    new = np.zeros(shape, "<u2")
    both = tuple(slice(0, min(a, b)) for a, b in zip(array.shape, shape))
    new[both] = array[both]
    return new


def check(path):
    values = json.load(sys.stdin)
    with h5py.File(path, "r") as file:
        want = {name: expected(file[name], chunks) for name, chunks in values.items()}
        assert set(want) == set(file)
        same(file, want, all=True)
        for name, chunks in values.items():
            if not name.startswith(("implicit", "extensible_paged")):
                assert file[name].id.get_num_chunks() == len(chunks), name
    with h5py.File(path, "r+") as file:
        for name, d in file.items():
            total = int(np.prod([-(-n // c) for n, c in zip(d.shape, d.chunks)]))
            for i in range(1, total, 7 if total < 10000 else 1009):
                want[name][box(d, i)] = d[box(d, i)] = i % 50000 + 7
            smaller = tuple(max(n * 2 // 3, 1) for n in d.shape)
            larger = tuple(n + n // 2 if m is None else m for n, m in zip(d.shape, d.maxshape))
            if total < 5000:
                want[name] = grow(d, want[name], smaller)
                want[name] = grow(d, want[name], larger)
            last = tuple(slice(n - 1, n) for n in d.shape)
            want[name][last] = d[last] = 4711
        same(file, want)
    with h5py.File(path, "r+") as file:
        same(file, want)
        for name, d in file.items():
            if d.size < 10000:
                d[...] = want[name] = np.arange(d.size).reshape(d.shape).astype("<u2")
    with h5py.File(path, "r+") as file:
        same(file, want)
        for name in list(file):
            del file[name]
    print("same")


if __name__ == "__main__":
    make(*sys.argv[2:]) if sys.argv[1] == "make" else check(sys.argv[2])
