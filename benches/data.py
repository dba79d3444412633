"""The files that are measured: written once with h5py into the cache directory, then reused."""

import os
from pathlib import Path

import h5py
import numpy as np

CACHE = Path(os.environ.get("H5DIR_BENCH_CACHE", "/var/tmp/h5dir-bench"))
MIB = 1 << 20
# Part of every name: raised when the content of a file changes.
GENERATION = 3


class Array:
    """One dataset `data` of float32."""

    def __init__(self, name, shape, chunks=None, **filters):
        self.name, self.shape, self.chunks, self.filters = name, shape, chunks, filters

    @property
    def nbytes(self):
        return 4 * int(np.prod(self.shape))

    @property
    def path(self):
        mib = self.nbytes // MIB
        return CACHE / f"{self.name}-{mib}m-{GENERATION}.h5"

    @property
    def rows_at_once(self):
        """Rows of h5py's windows: at least 16 MiB, and whole chunks, so that it decodes each only once."""
        row = self.nbytes // self.shape[0]
        step = self.chunks[0] if self.chunks else 1
        return min(self.shape[0], -(-16 * MIB // (row * step)) * step)

    @property
    def chunk_count(self):
        return int(np.prod([-(-s // c) for s, c in zip(self.shape, self.chunks)]))

    def make(self):
        if self.path.exists():
            return self
        print(f"writing {self.path} ...", flush=True)
        part = self.path.with_suffix(".part")
        with h5py.File(part, "w", libver="v110") as f:
            d = f.create_dataset("data", self.shape, "f4", chunks=self.chunks, **self.filters)
            rows = self.rows_at_once
            for at in range(0, self.shape[0], rows):
                n = min(rows, self.shape[0] - at)
                d[at : at + n] = smooth((n, *self.shape[1:]), at)
        part.rename(self.path)
        return self


def smooth(shape, first_row):
    """A smooth field with noise, in steps of 1/16: deflate with shuffle makes it 5.3 times smaller."""
    rng = np.random.default_rng(first_row)
    total = np.zeros(shape, "f4")
    for axis, n in enumerate(shape):
        x = np.arange(n, dtype="f4") + (first_row if axis == 0 else 0)
        period = 1e5 if len(shape) == 1 else 60.0
        wave = (20 * np.sin(x / period * (1 + axis * 0.3))).astype("f4")
        total += wave.reshape([-1 if a == axis else 1 for a in range(len(shape))])
    # In one dimension the field is so smooth that more noise is needed for the same.
    total += rng.standard_normal(shape, dtype="f4") * np.float32(0.3 if len(shape) == 1 else 0.05)
    return np.round(total * 16) / np.float32(16)


def arrays(quick):
    """All arrays by name; `quick` makes them 128 MiB instead of 512."""
    q = 4 if quick else 1
    deflate = {"compression": "gzip", "compression_opts": 4, "shuffle": True}
    side = 512
    all_of = [
        Array("contiguous", (side // q, side, side)),
        Array("deflate3d", (side // q, side, side), (64, 64, 64), **deflate),
        Array("deflate1d", (side // q * side * side,), (MIB // 4,), **deflate),
        # Planes of 4 MiB, chunks of 64 KiB: 1,024 chunks, 64 MiB, are crossed by each plane.
        Array("small-raw", (128 // q, 1024, 1024), (16, 32, 32)),
        Array("small-deflate", (128 // q, 1024, 1024), (16, 32, 32), **deflate),
    ]
    return {a.name: a for a in all_of}


def tree(groups, datasets, name):
    """`datasets` small contiguous datasets in each of `groups` groups (0 groups: in the root)."""
    path = CACHE / f"{name}-{groups}x{datasets}-{GENERATION}.h5"
    if path.exists():
        return path
    print(f"writing {path} ...", flush=True)
    part = path.with_suffix(".part")
    with h5py.File(part, "w") as f:
        space = h5py.h5s.create_simple((4,))
        values = np.arange(4, dtype="i4")
        for g in range(max(groups, 1)):
            group = f.create_group(f"g{g:03}") if groups else f
            for i in range(datasets):
                d = h5py.h5d.create(group.id, b"d%06d" % i, h5py.h5t.STD_I32LE, space)
                d.write(h5py.h5s.ALL, h5py.h5s.ALL, values)
    part.rename(path)
    return path


def folder(files, datasets, name):
    """A directory of `files` copies of a file of `datasets` small datasets in ten groups."""
    path = CACHE / f"{name}-{files}x{datasets}-{GENERATION}"
    if path.exists():
        return path
    one = tree(10, datasets // 10, "one") if datasets else None
    print(f"writing {path} ...", flush=True)
    part = path.with_suffix(".part")
    part.mkdir()
    if one is None:
        with h5py.File(part / "00000000.h5", "w"):
            pass
        one = part / "00000000.h5"
    image = one.read_bytes()
    for i in range(files):
        (part / f"{i:08}.h5").write_bytes(image)
    part.rename(path)
    return path


def chunks(count, name):
    """A dataset of `count` stored chunks of one byte, in an extensible array."""
    path = CACHE / f"{name}-{count}-{GENERATION}.h5"
    if path.exists():
        return path
    print(f"writing {path} ...", flush=True)
    part = path.with_suffix(".part")
    with h5py.File(part, "w", libver="latest") as f:
        d = f.create_dataset("data", (count,), "u1", maxshape=(None,), chunks=(1,))
        for at in range(0, count, 1_000_000):
            d[at:at + 1_000_000] = 1
    part.rename(path)
    return path


def objects(count, name):
    """A file of `count` objects: datasets with no elements, in groups of a thousand and the rest in the root."""
    path = CACHE / f"{name}-{count}-{GENERATION}.h5"
    if path.exists():
        return path
    print(f"writing {path} ...", flush=True)
    part = path.with_suffix(".part")
    with h5py.File(part, "w", libver="v110") as f:
        space = h5py.h5s.create_simple((0,))
        # Half of them directly in the root, half in groups.
        for i in range(count // 2):
            h5py.h5d.create(f.id, b"d%07d" % i, h5py.h5t.STD_I32LE, space)
        rest, g = count - count // 2, 0
        while rest > 0:
            group = f.create_group(f"g{g:05}")
            n = min(rest - 1, 1000)
            for i in range(n):
                h5py.h5d.create(group.id, b"d%06d" % i, h5py.h5t.STD_I32LE, space)
            rest, g = rest - n - 1, g + 1
    part.rename(path)
    return path


def bytes_for_files():
    """A file that is soon read: what small files are filled from."""
    path = CACHE / "bytes.bin"
    if not path.exists():
        path.with_suffix(".part").write_bytes(np.random.default_rng(5).bytes(MIB))
        path.with_suffix(".part").rename(path)
    return path


def plain_copy(array):
    """The array's bytes as a plain file of the host's file system."""
    path = array.path.with_suffix(".bin")
    if not path.exists():
        with h5py.File(array.path) as f, open(path.with_suffix(".part"), "wb") as out:
            for at in range(0, array.shape[0], array.rows_at_once):
                out.write(f["data"][at : at + array.rows_at_once].tobytes())
        path.with_suffix(".part").rename(path)
    return path
