#!/usr/bin/env python3
"""Holes, stored bytes and lists of chunks of chunked datasets that h5py writes, against libhdf5.

Every kind of chunk index, with or without filters (both with H5DIR_LONG), with chunks stored at random, in rows, none and
all. libhdf5's `H5Dchunk_iter` says which chunks are stored, and their sizes. Its offsets are wrong in
extensible arrays whose unlimited dimension is not the first (libhdf5 2.0): there the offsets are those
that were written.
"""
import os
import random

import h5py
import numpy as np
from h5py import h5d, h5p, h5s, h5t

from harness import Tally, arguments, fact, folder, mounted, read

# Chunks that the first stat counts one by one.
COUNTED_CHUNKS_MAX = 1 << 16

# Name, library version, shape, maximum shape (None: unlimited), chunk.
GEOMETRIES = [
    ("btree1_1d", "earliest", (3000,), (None,), (7,)),
    ("btree1_rows", "earliest", (70, 50), (None, 60), (4, 9)),
    ("btree1_cube", "earliest", (9, 14, 11), (None, None, 11), (2, 5, 3)),
    ("btree2", "latest", (60, 77), (None, None), (5, 8)),
    ("btree2_cube", "latest", (11, 13, 17), (None, 13, None), (3, 2, 4)),
    ("btree2_deep", "latest", (300, 300), (None, None), (3, 2)),
    ("earray", "latest", (4000,), (None,), (3,)),
    ("earray_paged", "latest", (300, 290), (None, 290), (2, 3)),
    ("earray_second", "latest", (40, 90), (45, None), (3, 4)),
    ("earray_last", "latest", (7, 9, 50), (8, 9, None), (2, 4, 3)),
    ("earray_middle", "latest", (6, 70, 9), (6, None, 12), (2, 3, 4)),
    ("earray_one_row", "latest", (5, 900), (5, None), (5, 2)),
    ("farray", "latest", (31, 47), (31, 47), (4, 6)),
    ("farray_wider", "latest", (31, 47), (60, 90), (4, 6)),
    ("farray_paged", "latest", (260, 250), (260, 250), (3, 4)),
    ("single", "latest", (30, 7), (30, 7), (30, 7)),
    ("implicit", "latest", (33, 40), (33, 40), (5, 6)),
]
PATTERNS = ["none", "few", "half", "most", "rows", "all"]


def make(path, name, libver, shape, maxshape, chunk, dtype, filtered, pattern, rng):
    """Writes a dataset "d" whose chunks are stored by `pattern`; returns their offsets."""
    written = set()
    with h5py.File(path, "w", libver=(libver, "latest")) as f:
        plist = h5p.create(h5p.DATASET_CREATE)
        plist.set_chunk(chunk)
        early = name == "implicit"
        plist.set_alloc_time(h5d.ALLOC_TIME_EARLY if early else h5d.ALLOC_TIME_INCR)
        if filtered:
            plist.set_deflate(1)
        limits = tuple(h5s.UNLIMITED if n is None else n for n in maxshape)
        space = h5s.create_simple(shape, limits)
        d = h5py.Dataset(h5d.create(f.id, b"d", h5t.py_create(np.dtype(dtype)), space, plist))
        share = {"none": 0, "few": 0.02, "half": 0.5, "most": 0.97, "rows": 0, "all": 1}[pattern]
        for at in np.ndindex(*[-(-n // c) for n, c in zip(shape, chunk)]):
            if rng.random() < share or (pattern == "rows" and at[0] % 3 == 1):
                written.add(tuple(i * c for i, c in zip(at, chunk)))
                part = tuple(slice(i * c, min((i + 1) * c, n)) for i, c, n in zip(at, chunk, shape))
                size = [p.stop - p.start for p in part]
                d[part] = np.random.default_rng(rng.randrange(1 << 30)).integers(0, 100, size).astype(dtype)
    return written


def stored(path, written):
    """Stored chunks by libhdf5: offsets and bytes; the elements; chunk dimensions; the storage size."""
    with h5py.File(path) as f:
        d, chunks = f["d"], []
        if d.id.get_num_chunks() > 0:
            d.id.chunk_iter(lambda info: chunks.append((tuple(info.chunk_offset), info.size)))
        if d.maxshape.count(None) == 1 and d.maxshape[0] is not None:
            assert len(chunks) == len(written), f"{len(chunks)} chunks, {len(written)} were written"
            chunks = [(at, size) for at, (_, size) in zip(sorted(written), chunks)]
        return chunks, d[()], d.chunks, d.id.get_storage_size()


def runs(chunks, data, chunk):
    """Ranges of bytes in stored chunks."""
    mask = np.zeros(data.shape, bool)
    for at, _ in chunks:
        mask[tuple(slice(a, a + c) for a, c in zip(at, chunk))] = True
    mask = np.repeat(mask.ravel(), data.itemsize)
    edges = np.flatnonzero(np.diff(np.concatenate(([False], mask, [False])).astype(np.int8)))
    return [(int(a), int(b)) for a, b in edges.reshape(-1, 2)], mask


def segments(f):
    """Data of a file by SEEK_DATA and SEEK_HOLE."""
    found, at = [], 0
    while True:
        try:
            data = os.lseek(f.fileno(), at, os.SEEK_DATA)
        except OSError:
            return found
        at = os.lseek(f.fileno(), data, os.SEEK_HOLE)
        found.append((data, at))


def check_file(tally, point, chunks, data, chunk, storage, rng, what):
    path = os.path.join(point, "d")
    want, mask = runs(chunks, data, chunk)
    total = sum(size for _, size in chunks)
    tally.equal(total, storage, f"{what}: chunk sizes and the storage size of libhdf5")
    blocks = os.stat(path).st_blocks * 512
    if len(mask) // data.itemsize // int(np.prod(chunk)) * 2 <= COUNTED_CHUNKS_MAX:
        tally.check(0 <= blocks - total < (512 if total else 513), f"{what}: {blocks} bytes in blocks, {total} are stored")
    with open(path, "rb") as f:
        tally.equal(segments(f), want, f"{what}: segments")
        for _ in range(40 if len(mask) else 0):
            at = rng.randrange(len(mask))
            for kind, wanted in ((os.SEEK_DATA, True), (os.SEEK_HOLE, False)):
                found = np.flatnonzero(mask[at:] == wanted)
                expected = at + int(found[0]) if len(found) else (None if wanted else len(mask))
                try:
                    got = os.lseek(f.fileno(), at, kind)
                except OSError:
                    got = None
                tally.equal(got, expected, f"{what}: seek {wanted} from {at}")
    tally.equal(read(path), data.tobytes(), f"{what}: bytes")
    names = {".".join(str(a // c) for a, c in zip(at, chunk)) for at, _ in chunks}
    listed = os.listdir(os.path.join(point, ".h5dir", "chunks", "d"))
    tally.equal(sorted(listed), sorted(names), f"{what}: names of chunks")
    tally.equal(int(fact(path, "storage")), total, f"{what}: user.h5dir.storage")


def check_changes(tally, point, data, chunks, chunk, rng, what):
    """Chunks that a write adds are data before they are in the file, and after."""
    path = os.path.join(point, "d")
    _, mask = runs(chunks, data, chunk)
    if not len(mask):
        return set()
    flat, stored_at = data.reshape(-1), {at for at, _ in chunks}
    with open(path, "r+b") as f:
        for turn in range(4):
            for _ in range(8):
                at = rng.randrange(flat.size)
                f.seek(at * data.itemsize)
                f.write(b"\7" * data.itemsize)
                flat[at] = np.frombuffer(b"\7" * data.itemsize, data.dtype)[0]
                place = np.unravel_index(at, data.shape)
                stored_at.add(tuple(int(p) // c * c for p, c in zip(place, chunk)))
            f.flush()
            if turn % 2:
                os.fsync(f.fileno())
            want, _ = runs([(at, 0) for at in stored_at], data, chunk)
            tally.equal(segments(f), want, f"{what}: segments after change {turn}")
    os.sync()
    quick, exact = os.stat(path).st_blocks * 512, int(fact(path, "storage"))
    tally.check(0 <= quick - exact < (512 if exact else 513), f"{what}: {quick} bytes in blocks, {exact} are stored")
    tally.equal(read(path), data.tobytes(), f"{what}: bytes after changes")
    return stored_at


def check_estimates(tally, binary, path, rng):
    """Datasets of more chunks than the first stat counts."""
    for name, libver, maxshape in [("btree1", "earliest", (None, None)), ("btree2", "latest", (None, None)),
                                   ("earray", "latest", (None, 400)), ("second", "latest", (400, None)), ("farray", "latest", (400, 400))]:
        for filtered, share in [(False, 1.0), (True, 1.0), (False, 0.6)]:
            what = f"{name}, {'deflate' if filtered else 'plain'}, {share}"
            written = set()
            with h5py.File(path, "w", libver=(libver, "latest")) as f:
                d = f.create_dataset("d", (400, 400), "u1", chunks=(1, 1), maxshape=maxshape, compression=1 if filtered else None)
                for row in range(400):
                    start = 0 if share == 1.0 else rng.randrange(400)
                    d[row, start:] = row % 100 + 1
                    written |= {(row, column) for column in range(start, 400)}
            chunks, data, chunk, storage = stored(path, written)
            with mounted(binary, path) as point:
                target = os.path.join(point, "d")
                quick = os.stat(target).st_blocks * 512
                tally.check(storage / 3 < quick < storage * 3, f"{what}: estimate {quick} of {storage}")
                tally.check(share < 1 or filtered or abs(quick - storage) < 0.1 * storage, f"{what}: estimate {quick} of {storage}")
                tally.equal(int(fact(target, "storage")), storage, f"{what}: storage")
                want, _ = runs(chunks, data, chunk)
                with open(target, "rb") as f:
                    tally.equal(segments(f), want, f"{what}: segments")
            # The kernel keeps no attributes.
            with mounted(binary, path, "--attr-timeout", "0") as point:
                target = os.path.join(point, "d")
                fact(target, "storage")
                quick = os.stat(target).st_blocks * 512
                tally.check(0 <= quick - storage < 512, f"{what}: {quick} in blocks after it was counted, not {storage}")


def main():
    args = arguments(__doc__)
    tally, rng = Tally(), random.Random(args.seed)
    with folder(args.keep) as where:
        path = os.path.join(where, "f.h5")
        for name, libver, shape, maxshape, chunk in GEOMETRIES:
            for pattern in PATTERNS:
                turns = (False, True) if os.environ.get("H5DIR_LONG") else (rng.random() < 0.5,)
                for filtered in (False,) if name == "implicit" else turns:
                    dtype = rng.choice(["u1", "<i4", "<f8"])
                    what = f"{name}, {pattern}, {'deflate' if filtered else 'plain'}, {dtype}"
                    written = make(path, name, libver, shape, maxshape, chunk, dtype, filtered, pattern, rng)
                    chunks, data, chunk_dims, storage = stored(path, written)
                    with mounted(args.bin, path) as point:
                        check_file(tally, point, chunks, data, chunk_dims, storage, rng, what)
                    if pattern in ("few", "half", "rows"):
                        with mounted(args.bin, path, "--read-write") as point:
                            written = check_changes(tally, point, data, chunks, chunk_dims, rng, what)
                        chunks, data, chunk_dims, storage = stored(path, written)
                        with mounted(args.bin, path) as point:
                            check_file(tally, point, chunks, data, chunk_dims, storage, rng, what + ", changed")
        check_estimates(tally, args.bin, path, rng)
    tally.finish()


if __name__ == "__main__":
    main()
