"""Chunk indexes, filters, datatypes, shapes and format versions: what a mount shows against h5py.

Each file is written by h5py with one libver bound; every dataset is compared by its bytes, random
ranges, facts, storage, holes and stored chunks.
"""
import errno
import json
import os
import random

import h5py
import hdf5plugin
import numpy as np
from h5py import h5d, h5p, h5s

import harness

LIBVERS = ["earliest", "v108", "v110", "v200", "latest"]
DTYPES = ["<i1", "<u2", ">i4", "<i8", "<f2", "<f4", ">f8", "<c8", "S7", [("a", "<i2"), ("b", ">f8"), ("c", "S3")]]
U = None
# name, shape, maxshape, chunks, early allocation: together they reach every chunk index.
SHAPES = [
    ("single", (13, 7), None, (13, 7), False),
    ("single_partial", (13, 7), (20, 20), (20, 20), False),
    ("implicit", (13, 7), None, (5, 3), True),
    ("fixed", (13, 7), (30, 7), (5, 3), False),
    ("fixed_paged", (1500,), None, (1,), False),
    ("extensible", (40, 7), (U, 9), (3, 2), False),
    ("extensible_second", (7, 4, 30), (7, 4, U), (3, 2, 4), False),
    ("extensible_long", (700,), (U,), (2,), False),
    ("btree2", (13, 17), (U, U), (5, 3), False),
    ("btree2_deep", (40, 30), (U, U), (1, 1), False),
    ("rank4", (3, 4, 5, 6), None, (2, 3, 2, 4), False),
]
FILTERS = {
    "none": {},
    "deflate": dict(compression="gzip", compression_opts=4),
    "shuffle_deflate": dict(compression="gzip", shuffle=True),
    "fletcher": dict(fletcher32=True),
    "lzf_fletcher": dict(compression="lzf", fletcher32=True),
    "szip": dict(compression="szip"),
    "scaleoffset": dict(scaleoffset=0),
    "lz4": dict(hdf5plugin.LZ4()),
    "zstd": dict(hdf5plugin.Zstd()),
    "bzip2": dict(hdf5plugin.BZip2()),
    "blosc_lz4": dict(hdf5plugin.Blosc(cname="lz4", shuffle=hdf5plugin.Blosc.SHUFFLE)),
    "blosc_zstd_bits": dict(hdf5plugin.Blosc(cname="zstd", shuffle=hdf5plugin.Blosc.BITSHUFFLE)),
    "blosc_blosclz": dict(hdf5plugin.Blosc(cname="blosclz")),
    "blosc2_lz4": dict(hdf5plugin.Blosc2(cname="lz4")),
    "blosc2_zstd": dict(hdf5plugin.Blosc2(cname="zstd", filters=hdf5plugin.Blosc2.BITSHUFFLE)),
    "bitshuffle": dict(hdf5plugin.Bitshuffle()),
    "bitshuffle_lz4": dict(hdf5plugin.Bitshuffle(cname="lz4")),
    "zfp": dict(hdf5plugin.Zfp(reversible=True)),
}


def values(rng, shape, dtype):
    """Half compressible, half random bytes."""
    dtype = np.dtype(dtype)
    n = int(np.prod(shape)) * dtype.itemsize
    data = rng.integers(0, 256, n, dtype=np.uint8)
    data[: n // 2] = np.arange(n // 2) // 64
    return data.view(dtype).reshape(shape)


def suits(name, dtype, shape):
    """Whether a filter takes a type."""
    kind = np.dtype(dtype).kind
    if name == "szip":
        return kind in "iuf" and np.dtype(dtype).itemsize in (1, 2, 4, 8)
    if name == "scaleoffset":
        return kind in "iu"
    if name == "zfp":
        return np.dtype(dtype) in (np.dtype("<i4"), np.dtype("<f4"), np.dtype("<f8"), np.dtype("<i8")) and len(shape) <= 4
    return not (name.startswith("blosc2") and kind == "V")


def create(f, rng, name, shape, maxshape, chunks, early, dtype, options, sparse, fill=None):
    plist = h5p.create(h5p.DATASET_CREATE)
    if early:
        plist.set_alloc_time(h5d.ALLOC_TIME_EARLY)
    plist.set_obj_track_times(False)
    d = f.create_dataset(name, shape, dtype, maxshape=maxshape, chunks=chunks, fillvalue=fill, dcpl=plist, **options)
    data = values(rng, shape, dtype)
    if not sparse:
        d[...] = data
        return d
    # About a third of the chunks, by whole chunks.
    grid = [range(-(-n // c)) for n, c in zip(shape, chunks)]
    for _ in range(max(1, int(np.prod([len(g) for g in grid])) // 3)):
        at = [int(rng.integers(0, len(g))) for g in grid]
        where = tuple(slice(a * c, min(a * c + c, n)) for a, c, n in zip(at, chunks, shape))
        d[where] = data[where]
    return d


def fill_file(f, seed, with_filters):
    rng = np.random.default_rng(seed)
    made = []
    for name, shape, maxshape, chunks, early in SHAPES:
        for sparse in (False, True):
            for fill in (None, 3):
                dtype = "<i4" if fill else DTYPES[len(made) % len(DTYPES)]
                path = f"shape/{name}{'_sparse' if sparse else ''}{'_fill' if fill else ''}"
                made.append(create(f, rng, path, shape, maxshape, chunks, early, dtype, {}, sparse, fill))
        made.append(create(f, rng, f"filtered/{name}", shape, maxshape, chunks, False, "<i4", FILTERS["shuffle_deflate"], True))
    for i, dtype in enumerate(DTYPES):
        made.append(f.create_dataset(f"contiguous/{i}", data=values(rng, (6, 5), dtype)))
    for name, options in FILTERS.items() if with_filters else ():
        for dtype in ("<u2", "<i4", "<f4", ">f8", "S7"):
            for shape, chunks in (((50, 30), (16, 30)), ((9000,), (4000,))):
                if suits(name, dtype, shape):
                    path = f"filter/{name}_{np.dtype(dtype).str[1:]}_{len(shape)}"
                    made.append(create(f, rng, path, shape, None, chunks, False, dtype, options, False))
    # Grown, then shrunk into the middle of a chunk.
    for name, shape, maxshape, chunks, _ in SHAPES:
        if maxshape:
            d = create(f, rng, f"resized/{name}", shape, maxshape, chunks, False, "<i2", {}, False)
            d.resize(tuple(min(n + c + 1, m or 10**6) for n, c, m in zip(shape, chunks, maxshape)))
            d.resize(tuple(max(1, n - c // 2 - 1) for n, c in zip(shape, chunks)))
            made.append(d)
    return [d.name for d in made]


def raw(d):
    """The elements in the file's datatype."""
    t = d.id.get_type()
    out = np.zeros(d.shape, f"V{t.get_size()}")
    if out.size:
        d.id.read(h5s.ALL, h5s.ALL, out, t)
    return out.tobytes()


def runs(mask, size):
    edges = np.flatnonzero(np.diff(np.concatenate(([0], mask.ravel().astype(np.int8), [0]))))
    return [tuple(r) for r in (edges.reshape(-1, 2) * size).tolist()]


def allocated_runs(d, chunks):
    mask = np.zeros(d.shape, bool)
    for scaled, _ in chunks:
        mask[tuple(slice(s * c, s * c + c) for s, c in zip(scaled, d.chunks))] = True
    return runs(mask, d.id.get_type().get_size())


def seek_runs(path):
    out, at = [], 0
    fd = os.open(path, os.O_RDONLY)
    try:
        while True:
            try:
                start = os.lseek(fd, at, os.SEEK_DATA)
            except OSError:
                return out
            at = os.lseek(fd, start, os.SEEK_HOLE)
            out.append((start, at))
    finally:
        os.close(fd)


def stored_chunks(d):
    """Scaled coordinates and place of each chunk, or None where libhdf5 2.0.0 tells wrong coordinates: an
    extensible array whose unlimited dimension is not the first."""
    if d.maxshape.count(None) == 1 and d.maxshape[0] is not None:
        return None
    infos = [d.id.get_chunk_info(i) for i in range(d.id.get_num_chunks())]
    return [(tuple(o // c for o, c in zip(i.chunk_offset, d.chunks)), i) for i in infos]


def compare(t, label, d, path, file, rnd):
    want = raw(d)
    t.equal(harness.read(path), want, f"{label}: bytes")
    t.equal(os.stat(path).st_size, len(want), f"{label}: st_size")
    # One block, where nothing is stored and the bytes are no hole.
    blocks = os.stat(path).st_blocks
    t.equal(0 if d.id.get_storage_size() == 0 and blocks == 1 else blocks, -(-d.id.get_storage_size() // 512), f"{label}: st_blocks")
    t.equal(harness.fact(path, "storage"), str(d.id.get_storage_size()), f"{label}: storage")
    t.equal(json.loads(harness.fact(path, "shape")), list(d.shape), f"{label}: shape")
    t.equal(json.loads(harness.fact(path, "maxshape")), list(d.maxshape), f"{label}: maxshape")
    fd = os.open(path, os.O_RDONLY)
    for _ in range(8):
        at = rnd.randrange(len(want) + 10)
        n = rnd.choice((1, 7, 100, 5000))
        t.equal(os.pread(fd, n, at), want[at : at + n], f"{label}: {n} bytes at {at}")
    os.close(fd)
    if d.chunks is None:
        t.equal(harness.fact(path, "offset"), str(d.id.get_offset()), f"{label}: offset")
        return
    t.equal(json.loads(harness.fact(path, "chunks")), list(d.chunks), f"{label}: chunks")
    chunks = stored_chunks(d)
    if chunks is None:
        return
    if not np.any(np.asarray(d.fillvalue) != np.zeros((), d.dtype)):
        t.equal(seek_runs(path), allocated_runs(d, chunks), f"{label}: holes")
    root, inner = file["mount"], path[len(file["mount"]) :]
    view = f"{root}/.h5dir/chunks{inner}"
    t.equal(sorted(os.listdir(view)), sorted(".".join(map(str, s)) for s, _ in chunks), f"{label}: chunk names")
    for scaled, info in chunks[:: max(1, len(chunks) // 5)]:
        t.equal(harness.read(f"{view}/{'.'.join(map(str, scaled))}"), file["bytes"][info.byte_offset : info.byte_offset + info.size],
                f"{label}: chunk {scaled}")


def large_chunks(t, place, binary):
    """Chunks far beyond the cache, of a filter that can't be decoded in pieces: each is decoded once."""
    path = os.path.join(place, "large.h5")
    rows = np.random.default_rng(5).integers(0, 4, (140, 1 << 20), "u1")
    # Plenty of repetition, but too little to be taken for a bomb.
    rows[:, 1 << 18 :] = 3
    with h5py.File(path, "w") as f:
        f.create_dataset("lzf", data=rows, chunks=rows.shape, compression="lzf")
        f.create_dataset("bomb", shape=rows.shape, dtype="u1", chunks=rows.shape, compression="lzf", fillvalue=1)
        f["bomb"][0, 0] = 2
    with harness.mounted(binary, path, "--cache-size=32M") as mount:
        t.check(harness.read(f"{mount}/lzf") == rows.tobytes(), "a chunk of 140 MiB, cache 32 MiB")
        status = dict(line.split(" ", 1) for line in harness.read(f"{mount}/.h5dir/status").decode().splitlines())
        t.equal(status["chunks_decoded"].strip(), "1", "a large chunk is decoded once")
        try:
            harness.read(f"{mount}/bomb")
            t.check(False, "a chunk that may be a bomb is refused")
        except OSError as e:
            t.equal(e.errno, errno.EIO, "a chunk that may be a bomb")
    with harness.mounted(binary, path, "--cache-size=560M") as mount:
        t.check(harness.read(f"{mount}/bomb") == b"\2" + b"\1" * (rows.size - 1), "the same where a quarter of the cache is as large")
    print("large chunks", flush=True)


def main():
    options = harness.arguments(__doc__)
    t = harness.Tally()
    with harness.folder(options.keep) as place:
        for number, libver in enumerate(LIBVERS):
            path = os.path.join(place, libver + ".h5")
            # One file begins after a user block.
            block = 512 if libver == "v110" else None
            with h5py.File(path, "w", libver=(libver, "latest"), userblock_size=block) as f:
                names = fill_file(f, options.seed + number, with_filters=libver in ("earliest", "latest"))
            rnd = random.Random(options.seed + number)
            with h5py.File(path, "r") as f, harness.mounted(options.bin, path) as mount:
                file = dict(mount=mount, bytes=harness.read(path))
                for name in names:
                    compare(t, f"{libver} {name}", f[name], mount + name, file, rnd)
            print(f"{libver}: {len(names)} datasets", flush=True)
        large_chunks(t, place, options.bin)
    t.finish()


if __name__ == "__main__":
    main()
