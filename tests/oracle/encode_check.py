#!/usr/bin/env python3
"""Has libhdf5 (h5py, hdf5plugin) read chunks that were encoded by the filter layer; used by tests/encode.rs.

    encode_check.py make DIR [SCALE]   chunks of many types and patterns, and the pipelines libhdf5 made for them
    encode_check.py check DIR          puts what was encoded into the files and reads it by libhdf5

DIR/cases.json is a list of { name, filters: [{ id, flags, cd_values }], mask, same }; per case number N there are
N.raw (the chunk), N.stored (what libhdf5 stored, with that mask), and after encoding N.encoded and N.mask (decimal).
`same`: libhdf5 leaves no choice, so the bytes must be the same.
"""
import json
import os
import shutil
import sys

import h5py
import hdf5plugin
import numpy as np
from h5py import h5d, h5p, h5s, h5t, h5z

SIZES = [1, 2, 7, 8, 33, 100, 1000, 4113]
BIG = [70001, 300000]
TYPES = ["u1", "<i2", ">i2", "<u4", ">i4", "<i8", ">u8", "<f4", ">f4", "<f8", ">f8"]
KINDS = ["zeros", "const", "ramp", "random", "walk", "sparse", "noise", "extreme", "special"]
# Pipelines of these have one result.
SAME = {2, 3, 5, 6, 32000}
ZFP = 32013


def pattern(kind, n, dtype, rng):
    native = np.dtype(dtype).newbyteorder("=")
    whole = native.kind != "f"
    with np.errstate(over="ignore"):
        if kind == "zeros":
            a = np.zeros(n, native)
        elif kind == "const":
            a = np.full(n, 77, native)
        elif kind == "ramp":
            a = (np.arange(n) % 30000).astype(native)
        elif kind == "random":
            a = rng.integers(np.iinfo(native).min, np.iinfo(native).max, n, native, True) if whole else rng.normal(0, 1e3, n).astype(native)
        elif kind == "walk":
            a = np.cumsum(rng.integers(-3, 4, n)).astype(native) if whole else np.cumsum(rng.normal(0, 1, n)).astype(native)
        elif kind == "sparse":
            a = np.where(rng.random(n) < 0.02, rng.integers(1, 100, n), 0).astype(native)
        elif kind == "noise":
            a = rng.integers(0, 12, n).astype(native)
        elif kind == "special":
            odd = np.array([np.nan, np.inf, -np.inf][:int(rng.integers(1, 4))]) if not whole else np.array([0, np.iinfo(native).min, 3, 77])
            a = np.where(rng.random(n) < 0.1, rng.choice(odd, n), np.arange(n) % 50).astype(native)
        else:
            a = np.where(np.arange(n) % 3 == 0, np.iinfo(native).max if whole else 1e30, 0).astype(native)
    return a.astype(dtype)


def other(code, *values, flags=h5z.FLAG_OPTIONAL):
    return lambda d: d.set_filter(code, flags, tuple(v & 0xffffffff for v in values))


def plugin(filter_):
    return other(filter_["compression"], *filter_["compression_opts"])


def deflate(level):
    return lambda d: d.set_deflate(level)


def shuffle(d):
    d.set_shuffle()


def fletcher32(d):
    d.set_fletcher32()


def pipelines(dtype):
    """name, filters, fill value."""
    for level in range(10):
        yield f"deflate {level}", [deflate(level)], None
    yield "shuffle", [shuffle], None
    yield "fletcher32", [fletcher32], None
    yield "shuffle deflate fletcher32", [shuffle, deflate(6), fletcher32], None
    yield "fletcher32 shuffle deflate", [fletcher32, shuffle, deflate(1)], None
    yield "lzf", [other(32000)], None
    yield "shuffle lzf", [shuffle, other(32000)], None
    yield "nbit", [other(5)], None
    kind = np.dtype(dtype).kind
    if kind != "f":
        for bits in [0, 3, np.dtype(dtype).itemsize * 8]:
            yield f"scaleoffset {bits}", [other(6, 2, bits)], None
            yield f"scaleoffset {bits} fill", [other(6, 2, bits)], 3
        yield "scaleoffset shuffle deflate", [other(6, 2, 0), shuffle, deflate(4)], 77
    else:
        for factor in [0, 2, -2, 5]:
            yield f"scaleoffset {factor}", [other(6, 0, factor)], None
            yield f"scaleoffset {factor} fill", [other(6, 0, factor)], 3.25
    for coding, ppb in [("nn", 8), ("nn", 32), ("ec", 2), ("ec", 16)]:
        yield f"szip {coding} {ppb}", [lambda d, c=coding, p=ppb: d.set_szip(h5z.SZIP_NN_OPTION_MASK if c == "nn" else h5z.SZIP_EC_OPTION_MASK, p)], None
    for level in [1, 3, 19]:
        yield f"zstd {level}", [plugin(hdf5plugin.Zstd(clevel=level))], None
    for size in [0, 64, 1000]:
        yield f"lz4 {size}", [plugin(hdf5plugin.LZ4(nbytes=size))], None
    for size in [1, 9]:
        yield f"bzip2 {size}", [plugin(hdf5plugin.BZip2(blocksize=size))], None
    for cname in ["none", "lz4", "zstd"]:
        for nelems in [0, 64]:
            yield f"bitshuffle {cname} {nelems}", [plugin(hdf5plugin.Bitshuffle(nelems=nelems, cname=cname))], None
    for cname in ["blosclz", "lz4", "lz4hc", "snappy", "zlib", "zstd"]:
        for s in [0, 1, 2]:
            yield f"blosc {cname} {s}", [plugin(hdf5plugin.Blosc(cname=cname, clevel=5, shuffle=s))], None
    yield "blosc level 0", [plugin(hdf5plugin.Blosc(cname="lz4", clevel=0))], None
    for cname in ["blosclz", "lz4", "lz4hc", "zlib", "zstd"]:
        for s in [0, 1, 2, 3]:
            yield f"blosc2 {cname} {s}", [plugin(hdf5plugin.Blosc2(cname=cname, clevel=5, filters=s))], None
    yield "blosc2 level 0", [plugin(hdf5plugin.Blosc2(cname="lz4", clevel=0))], None
    yield "shuffle blosc2", [shuffle, plugin(hdf5plugin.Blosc2(cname="zstd", clevel=9))], None
    yield "blosc level 9", [plugin(hdf5plugin.Blosc(cname="zstd", clevel=9))], None
    yield "unknown", [other(299)], None
    if dtype in ("<f4", "<f8", "<i4", "<i8"):
        for opts in [dict(rate=8), dict(precision=12), dict(reversible=True)] + ([dict(accuracy=0.01)] if kind == "f" else []):
            yield f"zfp {opts}", [plugin(hdf5plugin.Zfp(**opts))], None


def odd_types():
    """Integers of which not all bits count, and elements that are no numbers: label, type, precision and offset."""
    for base, precision, offset in [("STD_I16LE", 11, 0), ("STD_U32BE", 17, 9), ("STD_I32LE", 20, 3), ("STD_U64LE", 1, 63), ("STD_I64BE", 50, 0)]:
        t = getattr(h5t, base).copy()
        t.set_precision(precision)
        t.set_offset(offset)
        yield f"{base} {precision} bits at {offset}", t, precision, offset
    yield "compound", h5t.py_create(np.dtype([("a", "<i2"), ("b", "S5"), ("c", ">f8"), ("d", "<i4", (3,))])), None, None
    yield "opaque 7", h5t.create(h5t.OPAQUE, 7), None, None
    yield "opaque 300", h5t.create(h5t.OPAQUE, 300), None, None


def masked(tid, n, precision, offset, rng):
    """n values with padding bits zero, in the type's byte order."""
    size = tid.get_size()
    if precision is None:
        return (rng.bytes(size * 3) * n)[:size * n]
    order = "little" if tid.get_order() == h5t.ORDER_LE else "big"
    values = [(int.from_bytes(rng.bytes(8), "little") & ((1 << precision) - 1)) << offset for _ in range(n)]
    return b"".join(v.to_bytes(size, order) for v in values)


class Cases:
    def __init__(self, folder):
        self.folder, self.list = folder, []
        self.file = h5py.File(os.path.join(folder, "cases.h5"), "w", rdcc_nbytes=0, libver="latest")
        self.empty = h5py.File(os.path.join(folder, "empty.h5"), "w", libver="latest")

    def add(self, name, tid, raw, filters, fill, dims):
        dcpl = h5p.create(h5p.DATASET_CREATE)
        dcpl.set_chunk(dims)
        dcpl.set_fill_time(h5d.FILL_TIME_NEVER if fill is None else h5d.FILL_TIME_IFSET)
        if fill is not None:
            dcpl.set_fill_value(np.array(fill, dtype=tid.dtype))
        number = len(self.list)
        try:
            for f in filters:
                f(dcpl)
            dset = h5d.create(self.file.id, b"%d" % number, tid, h5s.create_simple(dims), dcpl)
        except (ValueError, OSError, RuntimeError, TypeError):
            # Not for this type or size, says libhdf5.
            if b"%d" % number in self.file.id:
                self.file.id.unlink(b"%d" % number)
            return
        h5d.create(self.empty.id, b"%d" % number, tid, h5s.create_simple(dims), dcpl)
        dset.write(h5s.ALL, h5s.ALL, np.frombuffer(raw, f"V{tid.get_size()}").reshape(dims), mtype=tid)
        dset.flush()
        mask, stored = dset.read_direct_chunk((0,) * len(dims))
        plist = dset.get_create_plist()
        pipeline = [plist.get_filter(i) for i in range(plist.get_nfilters())]
        same = all(f[0] in SAME for f in pipeline)
        self.list.append({
            "name": name, "filters": [{"id": f[0], "flags": f[1], "cd_values": [v & 0xffffffff for v in f[2]]} for f in pipeline],
            "mask": mask, "same": same,
        })
        for suffix, data in [("raw", raw), ("stored", stored)]:
            with open(os.path.join(self.folder, f"{number}.{suffix}"), "wb") as out:
                out.write(data)

    def close(self):
        self.file.close()
        self.empty.close()
        with open(os.path.join(self.folder, "cases.json"), "w") as out:
            json.dump(self.list, out)


def shape(n, rng):
    """n elements, sometimes in two dimensions."""
    return (n // 7, 7) if n % 7 == 0 and rng.random() < 0.5 else (n,)


def make(folder, scale):
    rng = np.random.default_rng(int(os.environ.get("H5DIR_SEED", "3")))
    cases = Cases(folder)
    for dtype in TYPES:
        tid = h5t.py_create(np.dtype(dtype))
        for name, filters, fill in pipelines(dtype):
            for _ in range(2 * scale):
                n = int(rng.choice(SIZES))
                kind = str(rng.choice(KINDS))
                cases.add(f"{name} {dtype} {kind} {n}", tid, pattern(kind, n, dtype, rng).tobytes(), filters, fill, shape(n, rng))
    for dtype in ["u1", "<i2", "<f4", ">f8"]:
        tid = h5t.py_create(np.dtype(dtype))
        for name, filters, fill in pipelines(dtype):
            if rng.random() > 0.2 * scale:
                continue
            n, kind = int(rng.choice(BIG)), str(rng.choice(KINDS[2:]))
            cases.add(f"{name} {dtype} {kind} {n}", tid, pattern(kind, n, dtype, rng).tobytes(), filters, fill, (n,))
    for name, tid, precision, offset in odd_types():
        for label, filters, fill in pipelines("<i4"):
            if fill is None and not label.startswith(("zfp", "scaleoffset 3")):
                n = int(rng.choice([1, 9, 64, 500]))
                cases.add(f"{label} {name} {n}", tid, masked(tid, n, precision, offset, rng), filters, None, (n,))
    cases.close()
    print(len(cases.list), "cases")


def content(folder, number, suffix):
    with open(os.path.join(folder, f"{number}.{suffix}"), "rb") as f:
        return f.read()


def read(dset):
    tid = dset.get_type()
    out = np.zeros(dset.shape, f"V{tid.get_size()}")
    dset.read(h5s.ALL, h5s.ALL, out, mtype=tid)
    return out.tobytes()


def check(folder):
    with open(os.path.join(folder, "cases.json")) as f:
        cases = json.load(f)
    source, target = os.path.join(folder, "cases.h5"), os.path.join(folder, "encoded.h5")
    # Into datasets without chunks: where there is one, libhdf5 2.0 leaves its mask alone when other bytes of the same
    # length are written directly.
    shutil.copyfile(os.path.join(folder, "empty.h5"), target)
    with h5py.File(target, "r+") as f:
        for number in range(len(cases)):
            dset = h5d.open(f.id, b"%d" % number)
            mask = int(content(folder, number, "mask"))
            dset.write_direct_chunk((0,) * dset.rank, content(folder, number, "encoded"), filter_mask=mask)
    failed, unreadable = [], 0
    with h5py.File(source, rdcc_nbytes=0) as mine, h5py.File(target, rdcc_nbytes=0) as theirs:
        for number, case in enumerate(cases):
            name, dataset = case["name"], b"%d" % number
            mask, encoded = int(content(folder, number, "mask")), content(folder, number, "encoded")
            try:
                want = read(h5d.open(mine.id, dataset))
            except OSError:
                # Of scaled floats whose minimum is not a number libhdf5 writes what it cannot read.
                assert any(f["id"] == 6 for f in case["filters"]), name
                want, case["same"] = content(folder, number, "raw"), False
                unreadable += 1
            try:
                got = read(h5d.open(theirs.id, dataset))
            except OSError as e:
                failed.append(f"{name}: {e}")
                continue
            if got != want:
                failed.append(f"{name}: libhdf5 reads other bytes")
            stored = content(folder, number, "stored")
            if case["filters"][-1]["id"] == ZFP and not case["mask"]:
                # The plug-in's zfp writes whole bytes, others whole words of 8.
                stored += bytes(-len(stored) % 8)
                case["same"] = True
            if case["same"] and (mask, encoded) != (case["mask"], stored):
                failed.append(f"{name}: mask {mask}, {len(encoded)} bytes, not as libhdf5's")
            # Which chunks are stored without an optional filter may differ only where a coder is better or worse.
            if mask != case["mask"] and not name.startswith("blosc"):
                failed.append(f"{name}: mask {mask}, libhdf5's is {case['mask']}")
    total, theirs = (sum(len(content(folder, n, s)) for n in range(len(cases))) for s in ("encoded", "stored"))
    differ = sum(int(content(folder, n, "mask")) != c["mask"] for n, c in enumerate(cases))
    print(f"{len(cases)} cases, {len(failed)} failed; {total} bytes, libhdf5 {theirs}; {differ} masks differ from libhdf5's, "
          f"{unreadable} that it cannot read from itself")
    for line in failed[:40]:
        print("FAILED", line)
    sys.exit(1 if failed or not cases else 0)


if __name__ == "__main__":
    if sys.argv[1] == "make":
        make(sys.argv[2], int(sys.argv[3]) if len(sys.argv) > 3 else 1)
    else:
        check(sys.argv[2])
