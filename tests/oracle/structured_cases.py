"""Sparse datasets of profile "structured" through a mount, against an independent reader.

  structured_cases.py H5DIR DIRECTORY CASE

DIRECTORY has an empty folder "mnt". The caller unmounts it after a failure.
"""

import os
import random

import h5py
import numpy as np

from defined import CASE, FILE, H5DIR, MNT, Mounted, agrees, create, describe, punch, run, shell, view_mask


def each_index():
    """Structured chunks: each index, filters per section, and what stock libraries do with the file."""
    rng = random.Random(11)
    shape, chunks = (9, 40), [4, 10]
    cases = {"single": (shape, shape), "fixed": (shape, chunks), "extensible": ([40, None], chunks), "btree": ([None, None], chunks)}
    many = ["shuffle", {"deflate": 6}, "fletcher32"]
    with h5py.File(FILE, "w", libver=("v110", "v110")) as f:
        f["other"], f["group/other"] = np.arange(5), 7
    want = {}
    with Mounted():
        for name, (maximum, chunk) in cases.items():
            for kind, filters in [("bare", []), ("filtered", many), ("shuffled", ["shuffle"])]:
                own = shape if name in ("single", "fixed") else (40, 40) if name == "extensible" else shape
                maxshape = own if name in ("single", "fixed") else maximum
                path = describe(f"{name}.{kind}", "structured", dtype="<i4", shape=own, maxshape=maxshape, chunks=chunk, filters=filters)
                data, defined = np.zeros(own, "<i4"), np.zeros(own, bool)
                with open(path, "r+b", buffering=0) as f:
                    for _ in range(25):
                        at, n = rng.randrange(data.size), rng.randrange(1, 30)
                        values = np.arange(n, dtype="<i4")[: data.size - at]
                        os.pwrite(f.fileno(), values.tobytes(), at * 4)
                        data.ravel()[at : at + n], defined.ravel()[at : at + n] = values, True
                    os.setxattr(path, "user.h5dir.erase", b"4:8,:10")
                    data[4:8, :10], defined[4:8, :10] = 0, False
                want[f"{name}.{kind}"] = data, defined
                assert os.getxattr(path, "user.h5dir.filters").decode().count("deflate") == (kind == "filtered")
        log = open(os.path.join(MNT, ".h5dir/log")).read()
        assert "no released libhdf5 opens" in log, log
        indexes = [os.getxattr(os.path.join(MNT, f"{name}.bare"), "user.h5dir.index").decode() for name in cases]
        assert indexes == ["single chunk", "fixed array", "extensible array", "v2 B-tree"], indexes
    for name, (data, defined) in want.items():
        agrees("structured", name, data, defined)
    with Mounted():
        for name, (data, defined) in want.items():
            path = os.path.join(MNT, name)
            assert (np.fromfile(path, "<i4").reshape(data.shape) == data).all() and (view_mask(name, data.shape) == defined).all(), name
        shell("cp -a fixed.filtered single.bare btree.shuffled group; rm *.bare")
        # cp copies a small file, which takes more space than its length, without its holes.
        copies = {f"group/{name}": (want[name][0], view_mask(f"group/{name}", shape)) for name in ["fixed.filtered", "btree.shuffled"]}
    for name, (data, defined) in copies.items():
        agrees("structured", name, data, defined)
    with h5py.File(FILE, "r+") as f:
        assert list(f["other"][...]) == list(range(5)) and f["group/other"][()] == 7
        assert "fixed.filtered" in f and len(f) == 2 + 2 * len(cases)
        f["new"] = 5
        # docs/SEMANTICS.md says what libhdf5 refuses.
        for refused in [lambda: f["fixed.filtered"], lambda: f.__delitem__("fixed.filtered"), lambda: f.visititems(lambda *_: None)]:
            try:
                refused()
            except (KeyError, OSError, RuntimeError):
                continue
            raise SystemExit("h5py takes a structured dataset")
    agrees("structured", "fixed.filtered", *want["fixed.filtered"])
    with Mounted():
        shell("rm *.filtered *.shuffled group/*.*")
    assert "Raw data:   56 bytes" in run(H5DIR, "stat", "--space", FILE), "the storage of unlinked datasets is freed"


def many_chunks():
    """Indexes of many structured chunks: pages, super blocks, inner nodes; absent and emptied records."""
    rng = random.Random(13)
    shapes = {"fixed": ((6000,), [6000], [2]), "extensible": ((6000,), [None], [2]), "btree": ((60, 100), [None, None], [1, 2]), "single": ((50,), [50], [50])}
    create()
    want = {}
    with Mounted():
        for name, (shape, maxshape, chunks) in shapes.items():
            for filters in [[], ["deflate"]]:
                path = describe(name + "".join(filters), "structured", dtype="u1", shape=shape, maxshape=maxshape, chunks=chunks, filters=filters)
                data, defined = np.zeros(shape, "u1"), np.zeros(shape, bool)
                with open(path, "r+b", buffering=0) as f:
                    for _ in range(60):
                        at, n = rng.randrange(data.size), rng.randrange(1, 90)
                        values = rng.randbytes(n)[: data.size - at]
                        os.pwrite(f.fileno(), values, at)
                        data.ravel()[at : at + n], defined.ravel()[at : at + n] = np.frombuffer(values, "u1"), True
                want[path] = data, defined
    for path, (data, defined) in want.items():
        agrees("structured", os.path.basename(path), data, defined)
    with Mounted():
        for path, (data, defined) in want.items():
            assert (np.fromfile(path, "u1").reshape(data.shape) == data).all()
            for _ in range(20):
                at, n = rng.randrange(data.size), rng.randrange(1, 400)
                punch(path, at, min(n, data.size - at))
                data.ravel()[at : at + n], defined.ravel()[at : at + n] = 0, False
    for path, (data, defined) in want.items():
        agrees("structured", os.path.basename(path), data, defined)
    with Mounted():
        for path, (data, defined) in want.items():
            assert (view_mask(os.path.basename(path), data.shape) == defined).all()
            os.setxattr(path, "user.h5dir.erase", b":" if data.ndim == 1 else b":,:")
            data[...], defined[...] = 0, False
            assert os.stat(path).st_blocks == 0
            # Reserved space has no defined elements.
            run("fallocate", "-l", str(data.size // 2), path)
            assert os.stat(path).st_blocks > 0 and not view_mask(os.path.basename(path), data.shape).any()
    for path, (data, defined) in want.items():
        agrees("structured", os.path.basename(path), data, defined)


def damage():
    """A dataset of another draft, or with a damaged chunk, is EIO with a log line; the others stay usable."""
    with h5py.File(FILE, "w") as f:
        f["other"] = np.arange(5)
    names = ["bare", "packed", "one"]
    with Mounted():
        for name in names[:2]:
            path = describe(name, "structured", dtype="<i4", shape=[40], maxshape=[None], chunks=[10], filters=["deflate"] if name == "packed" else [])
            with open(path, "r+b", buffering=0) as f:
                os.pwrite(f.fileno(), np.arange(20, dtype="<i4").tobytes(), 40)
        path = describe("one", "structured", dtype="<i4", shape=[10], maxshape=[10], chunks=[10])
        with open(path, "r+b", buffering=0) as f:
            os.pwrite(f.fileno(), b"abcd", 8)
    whole = open(FILE, "rb").read()
    # The first layout message in the file is that of "bare"; headers of version 1 have no checksums.
    layout = whole.index(bytes([5, 4, 0, 0, 0, 0, 2, 1, 10, 4, 8, 2, 1, 0, 4]))
    single = whole.index(bytes([5, 4, 0, 0, 0, 0, 2, 1, 10, 4, 8, 2, 1, 0, 1]))
    filters = whole.index(bytes([1, 2, 0, 1, 10, 0, 1, 0]))
    section = whole.index(bytes([1, 0, 8, 24, 0, 0, 0]))
    three = bytes([3, 3, 0, 1, 2, 3])
    cases = [
        (layout + 2, bytes([1]), "bare", "property version 1"),
        (layout + 11, three, "bare", "variable length"),
        (layout + 13, bytes([1]), "bare", "checksummed"),
        (layout + 14, bytes([2]), "bare", "index"),
        (single + 5, bytes([2]), "one", "data layout message"),
        (filters, bytes([3]), "packed", "section filters message"),
        (filters + 2, bytes([1]), "packed", "section filters message"),
        (section + 40, bytes([7]), "bare", "sparse chunk"),
    ]
    for at, patch, damaged, reason in cases:
        with open(FILE, "wb") as f:
            f.write(whole[:at] + patch + whole[at + len(patch) :])
        with Mounted():
            for name in ["other", *names]:
                path = os.path.join(MNT, name)
                try:
                    read = open(path, "rb").read()
                    assert name != damaged or not read, (name, reason)
                except OSError as e:
                    assert name == damaged and e.errno in (5, 13), (name, reason, e)
            log = open(os.path.join(MNT, ".h5dir/log")).read()
            assert reason in log, (reason, log)
            os.unlink(os.path.join(MNT, damaged))
        with h5py.File(FILE) as f:
            assert damaged not in f and list(f["other"][...]) == list(range(5))


CASES = [each_index, many_chunks, damage]
if __name__ == "__main__":
    next(case for case in CASES if case.__name__ == CASE)()
