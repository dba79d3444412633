#!/usr/bin/env python3
"""Compares `h5dir stat --space` with h5stat on files that h5py writes, and checks it on every file of the corpus.

h5stat does not know global heap collections: they are unaccounted space there. Their sizes are read
from the collections that are found by their signature.
"""
import ctypes
import glob
import json
import os
import re
import struct
import subprocess

import h5py
import numpy as np
from h5py import h5d, h5f, h5p, h5s, h5t

from harness import TOP, Tally, arguments, folder

CORPUS = os.environ.get("CORPUS", os.path.join(TOP, "..", "shared", "corpus"))
SUMMARY = {
    "metadata": r"File metadata: (\d+) bytes",
    "raw": r"Raw data: (\d+) bytes",
    "free": r"tracked free space: (\d+) bytes",
    "unaccounted": r"Unaccounted space: (\d+) bytes",
    "total": r"Total space: (\d+) bytes",
}


def space(binary, path):
    """What h5dir prints: exit code, JSON, standard error."""
    done = subprocess.run([binary, "stat", "--space", "--json", path], stdin=subprocess.DEVNULL, capture_output=True, timeout=120)
    try:
        found = json.loads(done.stdout)
    except ValueError:
        found = None
    return done.returncode, found, done.stderr.decode(errors="replace")


def h5stat(path):
    """The summary of h5stat; None if it fails."""
    done = subprocess.run(["h5stat", "-S", path], stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", timeout=120)
    found = {key: re.search(pattern, done.stdout) for key, pattern in SUMMARY.items()}
    if done.returncode != 0 or None in found.values():
        return None
    return {key: int(match.group(1)) for key, match in found.items()}


def length(path):
    """Bytes of the file, in all of its members if the first of them is the superblock of a multi file."""
    whole = path.removesuffix("-s.h5")
    return sum(map(os.path.getsize, glob.glob(glob.escape(whole) + "-[sbrglo].h5") if whole != path else [path]))


def collections(path):
    """Bytes of all global heap collections in a file from which nothing was removed."""
    with open(path, "rb") as f:
        data = f.read()
    return sum(struct.unpack_from("<Q", data, at.start() + 8)[0] for at in re.finditer(rb"GCOL\x01\0\0\0", data))


def compare(tally, binary, path, heap=0, known=(0, 0)):
    """`known`: bytes of metadata and of raw data by which h5stat differs."""
    name = os.path.basename(path)
    code, found, errors = space(binary, path)
    want = h5stat(path)
    if want is None or found is None:
        tally.check(False, f"{name}: {code} {errors} {want}")
        return
    tally.equal((code, errors), (0, ""), name)
    want["metadata"] += known[0]
    want["raw"] += known[1]
    want["unaccounted"] -= sum(known)
    got = {key: found[key] for key in ["metadata", "raw", "free", "total"]}
    got["unaccounted"] = found["dead"] + found["global_heap"]
    tally.equal(got, want, name)
    tally.equal(found["global_heap"], heap, name + ": global heap")
    if "persist" in name or "_pages" in name and "forgetful" not in name:
        tally.equal(found["dead"], 0, name + ": every byte is in a structure or listed as free")
    consistent(tally, found, path)


def consistent(tally, found, path):
    tally.equal(found["live"] + found["free"] + found["dead"], length(path), path + ": sum")
    tally.equal((found["claimed_twice"], found["past_end"]), (0, 0), path + ": overlaps")


def groups(f):
    for i in range(20):
        g = f.create_group(f"g{i}")
        for k in range(i * 7):
            g[f"link {k}"] = h5py.SoftLink("/" + "x" * (k % 50))
    f["again"] = f["g3"]
    f["elsewhere"] = h5py.ExternalLink("other.h5", "/x")


def ordered(f):
    g = f.create_group("ordered", track_order=True)
    for k in range(300):
        g.create_group(f"name {k}")


def attributes(f):
    for n in [1, 7, 9, 200]:
        d = f.create_dataset(f"d{n}", data=np.arange(n))
        for k in range(n):
            d.attrs[f"attribute {k}"] = np.arange(k % 40)
    if f.libver[0] != "earliest":
        f["d9"].attrs["large"] = np.arange(20000)
        f["d9"].attrs["larger"] = np.arange(40000)


def contiguous(f):
    f["a"] = np.arange(1000)
    f["scalar"] = 3
    f["empty"] = h5py.Empty("f4")
    f.create_dataset("unwritten", (1000,), "f8")
    layout = h5p.create(h5p.DATASET_CREATE)
    layout.set_layout(h5d.COMPACT)
    h5d.create(f.id, b"compact", h5t.NATIVE_INT32, h5s.create_simple((10,)), layout).write(h5s.ALL, h5s.ALL, np.arange(10, dtype="i4"))
    outside = h5p.create(h5p.DATASET_CREATE)
    outside.set_external(b"outside.raw", 0, 80)
    h5d.create(f.id, b"external", h5t.NATIVE_INT32, h5s.create_simple((20,)), outside)
    f["type"] = np.dtype("f4")
    t = f["type"]
    f.create_dataset("of_type", (5,), t)


def chunks(f):
    random = np.random.default_rng(1)
    cases = {"fixed": ((100, 90), (100, 90)), "one": ((100, 90), (None, 90)), "two": ((100, 90), (None, None))}
    for name, (shape, most) in cases.items():
        for filters in [{}, {"compression": 4}, {"compression": 4, "fletcher32": True}]:
            data = random.integers(0, 100, shape)
            f.create_dataset(f"{name}{len(filters)}", data=data, chunks=(3, 7), maxshape=most, **filters)
    f.create_dataset("single", data=random.random((50, 50)), chunks=(50, 50))
    f.create_dataset("single_filtered", data=np.zeros((50, 50)), chunks=(50, 50), compression=1)
    f.create_dataset("sparse", (10000,), "i4", chunks=(10,), maxshape=(None,))[9000:9020] = 1
    f.create_dataset("many", data=np.arange(30000), chunks=(5,), maxshape=(None,))
    early = h5p.create(h5p.DATASET_CREATE)
    early.set_chunk((7,))
    early.set_alloc_time(h5d.ALLOC_TIME_EARLY)
    h5d.create(f.id, b"implicit", h5t.NATIVE_INT32, h5s.create_simple((100,)), early)
    f["fixed0"].attrs["x"] = 1


def variable(f):
    f["strings"] = np.array(["x" * (i % 200) for i in range(2000)], dtype=h5py.string_dtype())
    f.create_dataset("chunked", data=np.array(["y" * (i % 90) for i in range(900)], dtype=object), dtype=h5py.string_dtype(), chunks=(50,), compression=1)
    nested = h5py.vlen_dtype(np.dtype("i4"))
    d = f.create_dataset("sequences", (30,), nested)
    for i in range(30):
        d[i] = np.arange(i * 40)
    d = f.create_dataset("large", (1,), nested)
    d[0] = np.arange(100000)
    f.attrs["strings"] = ["first", "second"]
    f["regions"] = np.array([d.regionref[:1], f["strings"].regionref[4:9]], dtype=h5py.regionref_dtype)
    f["objects"] = np.array([d.ref, None], dtype=h5py.ref_dtype)
    f.create_dataset("filled", (3,), h5py.string_dtype(), fillvalue="filled")
    f.create_dataset("of_strings", (2,), np.dtype([("a", "i4"), ("b", h5py.string_dtype(), (3,))]))


def virtual(f):
    f["source"] = np.arange(100)
    layout = h5py.VirtualLayout((2, 100), "i8")
    layout[0] = h5py.VirtualSource(f["source"])
    layout[1] = h5py.VirtualSource("gone.h5", "source", (100,))
    f.create_virtual_dataset("virtual", layout)


def removed(f):
    f["kept"] = np.arange(10)
    f["removed"] = np.arange(5000)
    f.create_dataset("chunked", data=np.arange(5000), chunks=(100,))


def known(kind, libver):
    """Differences of h5stat 1.10: elements of compact datasets are raw data, the mappings of a virtual dataset are
    metadata, index blocks of extensible arrays are not counted."""
    if kind is chunks and libver == "v110":
        return 5 * 232, 0
    return {contiguous: (40, -40), virtual: (-150, 0)}.get(kind, (0, 0))


KINDS = [groups, ordered, attributes, contiguous, chunks, variable, virtual, removed]


def strategies():
    """File creation properties: none, user block, shared messages, persistent free space, pages."""
    yield "plain", {}
    yield "userblock", {"userblock_size": 1024}
    yield "persist", {"fs_strategy": "fsm", "fs_persist": True}
    yield "pages", {"fs_strategy": "page", "fs_persist": True, "fs_page_size": 1024}
    yield "forgetful_pages", {"fs_strategy": "page", "fs_persist": False, "fs_page_size": 1024}


def shared(path):
    """A file with shared messages: as lists and as B-trees."""
    fcpl, fapl = h5p.create(h5p.FILE_CREATE), h5p.create(h5p.FILE_ACCESS)
    fapl.set_libver_bounds(h5f.LIBVER_V110, h5f.LIBVER_V110)
    lib = ctypes.CDLL(glob.glob(os.path.join(os.path.dirname(h5py.__file__), "..", "h5py.libs", "libhdf5-*.so*"))[0])
    lib.H5Pset_shared_mesg_nindexes(ctypes.c_int64(fcpl.id), 2)
    lib.H5Pset_shared_mesg_index(ctypes.c_int64(fcpl.id), 0, 0x2A, 10)
    lib.H5Pset_shared_mesg_index(ctypes.c_int64(fcpl.id), 1, 0x1000, 10)
    lib.H5Pset_shared_mesg_phase_change(ctypes.c_int64(fcpl.id), 20, 10)
    with h5py.File(h5f.create(path.encode(), h5f.ACC_TRUNC, fcpl, fapl)) as f:
        for i in range(60):
            d = f.create_dataset(f"d{i}", data=np.array([b"text"] * (i % 9), dtype=f"S{20 + i % 30}"))
            d.attrs["shared"] = "s" * (20 + i % 40)


def main():
    given, tally = arguments(__doc__), Tally()
    with folder(given.keep) as place:
        for libver in ["earliest", "v108", "v110"]:
            for kind in KINDS:
                for strategy, properties in strategies():
                    if properties.get("fs_strategy") and libver != "v110" or kind is virtual and libver != "v110":
                        continue
                    path = os.path.join(place, f"{kind.__name__}_{libver}_{strategy}.h5")
                    with h5py.File(path, "w", libver=(libver, "v110" if libver == "earliest" else libver), **properties) as f:
                        kind(f)
                    heap = collections(path)
                    if kind is removed:
                        with h5py.File(path, "a", libver=(libver, "v110" if libver == "earliest" else libver)) as f:
                            del f["removed"], f["chunked"]
                    compare(tally, given.bin, path, heap, known(kind, libver))
        shared(os.path.join(place, "shared.h5"))
        compare(tally, given.bin, os.path.join(place, "shared.h5"), collections(os.path.join(place, "shared.h5")))
    corpus(tally, given.bin)
    tally.finish()


def corpus(tally, binary):
    """Sums agree on every file that can be opened. h5stat has the same, where it can read the file."""
    counts = {"whole": 0, "in part": 0, "refused": 0, "like h5stat": 0, "unlike h5stat": 0}
    for top, _, names in os.walk(os.path.join(CORPUS, "files")):
        for path in (os.path.join(top, name) for name in sorted(names)):
            code, found, errors = space(binary, path)
            if found is None:
                tally.check(code == 3 and "panic" not in errors, f"{path}: {code} {errors}")
                counts["refused"] += 1
                continue
            counts["whole" if code == 0 else "in part"] += 1
            is_member = re.search(r"/(family|multi|tsplit)_", path)
            if is_member is None:
                consistent(tally, found, path)
            if code != 0 and os.environ.get("H5DIR_SPACE_VERBOSE"):
                print(path, errors.strip().splitlines()[:2])
            want = h5stat(path) if code == 0 else None
            if want is not None:
                got = (found["metadata"], found["raw"], found["free"], found["dead"] + found["global_heap"])
                same = got == (want["metadata"], want["raw"], want["free"], want["unaccounted"])
                counts["like h5stat" if same else "unlike h5stat"] += 1
                if not same and os.environ.get("H5DIR_SPACE_VERBOSE"):
                    print(path, "metadata, raw, free, rest:", got, tuple(want.values())[:4])
    print("corpus:", ", ".join(f"{n} {what}" for what, n in counts.items()))


if __name__ == "__main__":
    main()
