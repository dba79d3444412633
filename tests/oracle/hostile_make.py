"""Hostile but mostly valid HDF5 files, made with h5py and, where libhdf5 would not, by hand.

Each function below NAME -> file makes one; `make(folder)` makes them all. The bytes of SECRET lie in a
file outside the folder, next to which nothing may lead.
"""
import ctypes, os, struct, zlib

import h5py, hdf5plugin, numpy as np
from h5py import h5a, h5d, h5f, h5g, h5o, h5p, h5s, h5t

SECRET = b"root:x:0:0:this must never be shown"
UNDEF = b"\xff" * 8


def new(path, libver="latest"):
    return h5py.File(path, "w", libver=libver)


def lookup3(data):
    """Jenkins' lookup3, as libhdf5 seals metadata."""
    m, rot = 0xFFFFFFFF, lambda x, k: (x << k | x >> (32 - k)) & 0xFFFFFFFF
    a = b = c = (0xDEADBEEF + len(data)) & m
    while len(data) > 12:
        x, y, z = struct.unpack("<III", data[:12])
        a, b, c, data = (a + x) & m, (b + y) & m, (c + z) & m, data[12:]
        for k1, k2, k3 in ((4, 6, 8), (16, 19, 4)):
            a = (a - c & m) ^ rot(c, k1); c = c + b & m
            b = (b - a & m) ^ rot(a, k2); a = a + c & m
            c = (c - b & m) ^ rot(b, k3); b = b + a & m
    if not data:
        return c
    x, y, z = struct.unpack("<III", data.ljust(12, b"\0"))
    a, b, c = (a + x) & m, (b + y) & m, (c + z) & m
    for k, (p, q) in zip((14, 11, 25, 16, 4, 14, 24), ("cb", "ac", "ba", "cb", "ac", "ba", "cb")):
        v = {"a": a, "b": b, "c": c}
        v[p] = (v[p] ^ v[q]) - rot(v[q], k) & m
        a, b, c = v["a"], v["b"], v["c"]
    return c


def patch(path, at, data):
    with open(path, "r+b") as f:
        f.seek(at)
        f.write(data)


def header_of(path, name):
    """Address and bytes of a version 2 object header with one chunk."""
    with h5py.File(path) as f:
        at = h5o.get_info(f[name].id).addr
    with open(path, "rb") as f:
        f.seek(at)
        raw = f.read(4096)
    for n in range(16, len(raw) - 4):
        if struct.unpack_from("<I", raw, n)[0] == lookup3(raw[:n]):
            return at, raw[:n]
    raise AssertionError("no header")


def reseal(path, at, header):
    patch(path, at, header + struct.pack("<I", lookup3(header)))


def zeros_deflated(n, level=9):
    z, out, block = zlib.compressobj(level), [], bytes(1 << 24)
    for _ in range(n >> 24):
        out.append(z.compress(block))
    out.append(z.flush())
    return b"".join(out)


def one_chunk(path, n, stored, **how):
    with new(path) as f:
        d = f.create_dataset("d", (n,), "u1", chunks=(n,), **how)
        d.id.write_direct_chunk((0,), stored)


def deflate_1g_shuffled(path):
    with new(path) as f:
        d = f.create_dataset("d", (1 << 28,), "<i4", chunks=(1 << 28,), compression="gzip", shuffle=True)
        d.id.write_direct_chunk((0,), zeros_deflated(1 << 30))


def deflate_3g(path):
    one_chunk(path, 3 << 30, zeros_deflated(3 << 30, 1), compression="gzip")


def deflate_cut(path):
    one_chunk(path, 1 << 30, zeros_deflated(1 << 30, 1)[:-100], compression="gzip")


def zstd_bomb(path):
    with new(path) as f:
        d = f.create_dataset("d", (300 << 20,), "u1", chunks=(300 << 20,), **hdf5plugin.Zstd())
        d[0] = 0


def blosc_bomb(path):
    with new(path) as f:
        d = f.create_dataset("d", (300 << 20,), "u1", chunks=(300 << 20,), **hdf5plugin.Blosc())
        d[0] = 0


def lzf_bomb(path):
    with new(path) as f:
        d = f.create_dataset("d", (300 << 20,), "u1", chunks=(300 << 20,), compression="lzf", shuffle=True)
        d[0] = 0


def tiny_chunks(path):
    with new(path) as f:
        d = f.create_dataset("filtered", (50000,), "u1", chunks=(1,), compression="gzip")
        d[:] = 1
        f.create_dataset("empty", (1 << 40,), "u1", chunks=(1,), maxshape=(None,))
        f.create_dataset("square", (1 << 30, 1 << 30), "u1", chunks=(1, 1), compression="gzip", maxshape=(None, None))


def implicit_in_a_hole(path):
    """2^39 chunks of one byte in a file of a terabyte that takes no storage."""
    with new(path) as f:
        dcpl = h5p.create(h5p.DATASET_CREATE)
        dcpl.set_chunk((1,))
        dcpl.set_alloc_time(h5d.ALLOC_TIME_EARLY)
        h5d.create(f.id, b"d", h5t.STD_U8LE, h5s.create_simple((0x1234,)), dcpl)
    at, header = header_of(path, "d")
    reseal(path, at, header.replace(struct.pack("<Q", 0x1234), struct.pack("<Q", 1 << 39)))
    os.truncate(path, 1 << 40)


def contiguous_in_a_hole(path):
    """2^35 sequences, all nil, in a hole."""
    with new(path) as f:
        dcpl = h5p.create(h5p.DATASET_CREATE)
        dcpl.set_alloc_time(h5d.ALLOC_TIME_EARLY)
        h5d.create(f.id, b"d", h5t.vlen_create(h5t.STD_I32LE), h5s.create_simple((0x1234,)), dcpl)
    at, header = header_of(path, "d")
    header = header.replace(struct.pack("<Q", 0x1234), struct.pack("<Q", 1 << 35)).replace(struct.pack("<Q", 0x1234 * 16), struct.pack("<Q", 1 << 39))
    reseal(path, at, header)
    os.truncate(path, 1 << 40)


def vl_unwritten(path):
    with new(path) as f:
        f.create_dataset("s", (1 << 44,), h5py.string_dtype(), chunks=(1 << 16,))
        f.create_dataset("v", (1 << 20, 1 << 20), h5py.vlen_dtype("f8"), chunks=(64, 64))
        d = f.create_dataset("few", (1 << 35,), h5py.string_dtype(), chunks=(16,))
        d[1 << 34] = "in the middle"


def repeat_descriptor(path, name, n):
    with h5py.File(path) as f:
        at = f[name].id.get_offset()
    with open(path, "r+b") as f:
        f.seek(at)
        one = f.read(16)
        f.seek(at)
        f.write(one * n)


def vl_one_object(path):
    """Hundreds of thousands of sequences and strings that are all one heap object of 8 MiB."""
    n, size = 300000, 8 << 20
    with new(path) as f:
        d = f.create_dataset("v", (n,), h5py.vlen_dtype("u1"))
        d[0] = np.zeros(size, "u1")
        d = f.create_dataset("s", (n,), h5py.string_dtype())
        d[0] = "x" * size
        d = f.create_dataset("z", (n,), h5py.vlen_dtype("u1"))
        d[0] = np.zeros(size, "u1")
    for name in "vsz":
        repeat_descriptor(path, name, n)


def vl_strings_with_nul(path):
    """Strings whose stored length counts NUL bytes: every one must be looked at, and all are one object."""
    n, size = 200000, 4 << 20
    with new(path) as f:
        d = f.create_dataset("s", (n,), h5py.string_dtype())
        d[0] = "x" * size
    repeat_descriptor(path, "s", n)
    with open(path, "r+b") as f:
        raw = f.read()
        at = raw.index(b"x" * 4096) + size - 1
        f.seek(at)
        f.write(b"\0")


def vl_nested(path):
    """Sequences of sequences, all one object: 300 elements of half a gigabyte each."""
    n = 20000
    with new(path) as f:
        t = h5t.vlen_create(h5t.vlen_create(h5t.STD_U8LE))
        h5d.create(f.id, b"d", t, h5s.create_simple((300,)))
        f.create_dataset("inner", (n,), h5py.vlen_dtype("u1"))[0] = np.ones(30000, "u1")
        f.create_dataset("outer", (1,), h5py.vlen_dtype("V16"))[0] = np.zeros(n, "V16")
        dcpl = h5p.create(h5p.DATASET_CREATE)
        dcpl.set_alloc_time(h5d.ALLOC_TIME_EARLY)
        h5d.create(f.id, b"e", t, h5s.create_simple((300,)), dcpl)
    repeat_descriptor(path, "inner", n)
    with h5py.File(path) as f:
        inner, outer, e = (f[x].id.get_offset() for x in ("inner", "outer", "e"))
    with open(path, "r+b") as f:
        f.seek(inner)
        leaf = f.read(16)
        f.seek(outer)
        top = f.read(16)
        f.seek(0)
        at = f.read().index(b"\0" * (n * 16 - 64))
        f.seek(at - at % 8 + 64)
        f.write(leaf * (n - 16))
        f.seek(e)
        f.write((struct.pack("<I", n - 32) + top[4:]) * 300)


def deep(path):
    """10,000 groups, one in the other."""
    with new(path) as f:
        at = f.id
        for _ in range(10000):
            at = h5g.create(at, b"g")


def dag(path):
    """Forty levels, each reached twice from the one above: 2^40 paths."""
    with new(path) as f:
        below = f.create_group("last")
        for i in range(40):
            g = f.create_group("level%d" % i)
            g["a"] = g["b"] = below
            below = g
        f["top"] = below


def long_names(path):
    with new(path) as f:
        f["d"] = 1
        g = f.create_group("g")
        for i in range(20000):
            g["x" * 300 + str(i)] = f["d"]


def odd_names(path):
    with new(path) as f:
        for name in (b"a\nb", b"\x1b[31mred", b"\x7f", b" ", b"-rf", b"%2F", b"%EMPTY", b"%~0123456789ABCDEF", b".h5dir", b"\xc0\xaf..\xc0\xaf",
                     b"y" * 252, b"y" * 255, b"y" * 256, b"z" * 60000, "\u202eabc".encode(), b"a\\b", b"*", b"$(id)", b"x.npy", b"..."):
            h5g.create(f.id, name)
            h5a.create(f.id, name[:60000], h5t.STD_I8LE, h5s.create(h5s.SCALAR))
        f["l"] = h5py.SoftLink("/a\nb/../../../..")


def escapes(path):
    """Every way to name another file, towards a secret outside of the folder."""
    folder = os.path.dirname(path)
    outside = os.path.join(os.path.dirname(folder), "secret.bin")
    with open(outside, "wb") as f:
        f.write(SECRET * 20)
    with new(os.path.join(os.path.dirname(folder), "secret.h5")) as f:
        f["d"] = np.frombuffer(SECRET, "u1")
    link = lambda name, to: os.path.lexists(os.path.join(folder, name)) or os.symlink(to, os.path.join(folder, name))
    link("link.bin", "../secret.bin"), link("link.h5", "../secret.h5"), link("up", ".."), link("passwd", "/etc/passwd")
    if not os.path.exists(os.path.join(folder, "pipe")):
        os.mkfifo(os.path.join(folder, "pipe"))
    os.makedirs(os.path.join(folder, "folder"), exist_ok=True)
    raw = ["../secret.bin", outside, "link.bin", "up/secret.bin", "/etc/passwd", "passwd", "/proc/self/environ", "pipe", "folder", ".", "",
           "folder/../../secret.bin", "/proc/self/root/etc/passwd", "file:///etc/passwd", "core:/etc/passwd"]
    with new(path) as f:
        for i, name in enumerate(raw):
            dcpl = h5p.create(h5p.DATASET_CREATE)
            if name:
                dcpl.set_external(name.encode(), 0, 64)
                h5d.create(f.id, b"raw%d" % i, h5t.STD_U8LE, h5s.create_simple((64,)), dcpl)
            other = name.replace(".bin", ".h5")
            f["ext%d" % i] = h5py.ExternalLink(other or "x", "/d")
            l = h5py.VirtualLayout(shape=(35,), dtype="u1")
            l[:] = h5py.VirtualSource(other or "x", "d", shape=(35,))
            f.create_virtual_dataset("vds%d" % i, l)
        f["soft"] = h5py.SoftLink("/../../../../etc/passwd")
        f["soft2"] = h5py.SoftLink("../../../../../etc/passwd")


def virtual_cycle(path):
    """Virtual datasets that are their own sources, some of them many times."""
    with new(path) as f:
        def virtual(name, sources, shape=(4096,)):
            l = h5py.VirtualLayout(shape=shape, dtype="u1")
            for s in sources:
                l[:] = h5py.VirtualSource(".", s, shape=shape)
            f.create_virtual_dataset(name, l)
        virtual("self", ["self"])
        virtual("a", ["b"])
        virtual("b", ["a"])
        # Each is mapped from the next, sixty times over the same elements.
        for i in range(14):
            dcpl = h5p.create(h5p.DATASET_CREATE)
            space = h5s.create_simple((4096,))
            for _ in range(60):
                dcpl.set_virtual(space, b".", b"t%d" % (i + 1), space)
            h5d.create(f.id, b"t%d" % i, h5t.STD_U8LE, space, dcpl)
        f["t14"] = np.ones(4096, "u1")


def virtual_printf(path):
    """Sources without end: every number is the same file."""
    name = os.path.basename(path).encode()
    with new(path) as f:
        f["s"] = np.ones(4, "u1")
        for i, source in enumerate((b"%b/../" + name, b"./%b/.././" + name)):
            dcpl = h5p.create(h5p.DATASET_CREATE)
            space = h5s.create_simple((0, 4), (h5s.UNLIMITED, 4))
            space.select_hyperslab((0, 0), (h5s.UNLIMITED, 1), block=(1, 4))
            dcpl.set_virtual(space, source, b"s", h5s.create_simple((4,)))
            h5d.create(f.id, b"p%d" % i, h5t.STD_U8LE, h5s.create_simple((0, 4), (h5s.UNLIMITED, 4)), dcpl)


def many_raw_files(path):
    with new(path) as f:
        for k in range(3):
            dcpl = h5p.create(h5p.DATASET_CREATE)
            for i in range(1200):
                dcpl.set_external(b"./" * (i % 50) + os.path.basename(path).encode(), i, 4)
            h5d.create(f.id, b"d%d" % k, h5t.STD_U8LE, h5s.create_simple((4800,)), dcpl)


def v1_header(messages):
    body = b"".join(struct.pack("<HHB3x", kind, len(b), 0) + b for kind, b in messages)
    return struct.pack("<BxHIIxxxx", 1, len(messages), 1, len(body)) + body


def continuations(path):
    """Object headers whose continuation blocks form a chain, a cycle, a fan, and overlap in a hole."""
    with new(path, "earliest") as f:
        for name in "abcd":
            f.create_dataset(name, (100, 100), "f8", maxshape=(None, None), chunks=(10, 10), fillvalue=1.5).attrs["x"] = np.zeros(200)
    with h5py.File(path) as f:
        at = {name: h5o.get_info(f[name].id).addr for name in "abcd"}
    end = os.path.getsize(path) + 7 & ~7
    link = lambda where, size: (0x10, struct.pack("<QQ", where, size))
    block = lambda m: b"".join(struct.pack("<HHB3x", kind, len(b), 0) + b for kind, b in m)
    one = 24
    chain = b"".join(block([link(end + (i + 1) * one, one)]) for i in range(100000))
    patch(path, end, chain)
    patch(path, at["a"], v1_header([link(end, one)]))
    patch(path, at["b"], v1_header([link(at["b"] + 16, 24)]))
    fan = end + len(chain)
    patch(path, fan, block([link(fan + 8 * i, 1 << 24) for i in range(2000)]))
    patch(path, at["c"], v1_header([link(fan, 2000 * 24)]))
    hole = fan + 2000 * 24
    blocks = block([link(hole + (1 << 20) + 65536 * i, 16 << 20) for i in range(4000)])
    patch(path, hole, blocks)
    patch(path, at["d"], v1_header([link(hole, len(blocks))]))
    os.truncate(path, 1 << 36)


def btree_cycle(path):
    """An old-style group whose B-tree leads back to itself, and one whose nodes all share their children."""
    with new(path, "earliest") as f:
        for g in ("a", "b"):
            for i in range(2000):
                f["%s/n%05d" % (g, i)] = h5py.SoftLink("x")
    with open(path, "rb") as f:
        raw = f.read()
    at = 0
    while (at := raw.find(b"TREE\0", at + 1)) > 0:
        level, used = raw[at + 5], struct.unpack_from("<H", raw, at + 6)[0]
        if level == 1:
            children = [at + 32 + 16 * i for i in range(used)]
            for c in children[1:]:
                patch(path, c, struct.pack("<Q", at if c % 32 else struct.unpack_from("<Q", raw, children[0])[0]))


def many_chunks(path):
    with new(path) as f:
        d = f.create_dataset("d", (150000,), "u1", chunks=(1,), maxshape=(None,))
        d[:] = 1


def big_types(path):
    with new(path) as f:
        f.create_dataset("wide", (1 << 20,), np.dtype(("S", 1 << 30)), chunks=(1,))
        f.create_dataset("members", (4,), np.dtype([("m%d" % i, "u1") for i in range(2500)]))
        t = h5t.array_create(h5t.STD_U8LE, (1 << 30,))
        h5d.create(f.id, b"array", t, h5s.create_simple((1 << 20,)))
        h5d.create(f.id, b"vl_wide", h5t.array_create(h5t.vlen_create(t), (1 << 24,)), h5s.create_simple((3,)))
        t = h5t.STD_I8LE
        for _ in range(30):
            t = h5t.array_create(t, (2,))
        h5d.create(f.id, b"nested", t, h5s.create_simple((3,)))


def big_attributes(path):
    with new(path) as f:
        for i in range(100):
            f.attrs["big%d" % i] = np.zeros(1 << 20, "u1")
        d = f.create_dataset("one", (1,), h5py.string_dtype())
        f.attrs.create("strings", ["y" * 100000] * 4, dtype=h5py.string_dtype())


def attributes_60000(path):
    with new(path) as f:
        for i in range(30000):
            f.attrs.create("k%06d" % i, 1, dtype="i1")
        g = f.create_group("g")
        for i in range(30000):
            g.attrs.create("n" * 200 + "%06d" % i, 1, dtype="i1")


MAKERS = [v for k, v in list(globals().items()) if callable(v) and getattr(v, "__module__", "") == __name__ and v.__code__.co_varnames[:1] == ("path",)
          and v.__code__.co_argcount == 1]


def make(folder):
    """Makes all files; gives their paths."""
    paths = []
    for maker in MAKERS:
        path = os.path.join(folder, maker.__name__ + ".h5")
        maker(path)
        paths.append(path)
    return paths


if __name__ == "__main__":
    import sys, time
    os.makedirs(sys.argv[1], exist_ok=True)
    for maker in MAKERS:
        if len(sys.argv) > 2 and maker.__name__ not in sys.argv[2:]:
            continue
        t = time.time()
        path = os.path.join(sys.argv[1], maker.__name__ + ".h5")
        maker(path)
        print(maker.__name__, os.path.getsize(path), os.stat(path).st_blocks * 512, "%.1fs" % (time.time() - t), flush=True)
