#!/usr/bin/env python3
"""Selections, with numpy as judge: unions, differences, steps, points and files of them, read, written, erased and counted by commands and
through mounts, in datasets of every layout in HDF5 files, logs and containers of object stores; kills; hostile selections."""
import contextlib
import io
import json
import os
import random
import resource
import signal
import subprocess
import time

import h5py
import numpy as np

import harness

ROUNDS = int(os.environ.get("H5DIR_SELECTION_ROUNDS", "60"))
RECORD = np.dtype([("n", "<i4"), ("x", ">f8"), ("c", "u1")])
TYPES = [("u1", "|u1"), ("<i2", "<i2"), (">f4", ">f4"), ("<i8", "<i8"), ("S5", "|S5"), ("V16", "|V16"),
         (RECORD, "[('n', '<i4'), ('x', '>f8'), ('c', '|u1')]")]
SHAPES = [((47,), (10,)), ((13, 21), (5, 8)), ((5, 7, 11), (1, 7, 11)), ((4, 3, 5, 6), (2, 3, 2, 6)), ((1, 1), (1, 1))]
LAYOUTS = {
    "contiguous": {"layout": "contiguous"},
    "chunked": {},
    "deflated": {"filters": ["shuffle", "deflate"]},
    "map": {"layout": "sparse", "profile": "map"},
    "filter": {"layout": "sparse", "profile": "filter"},
    "structured": {"layout": "sparse", "profile": "structured"},
    "log": {"layout": "log"},
}
KNOWS = ("map", "filter", "structured", "log")


class Selection:
    """Text, and the elements: a list of row-major numbers in the order of the selection."""

    def __init__(self, rng, shape, folder, in_name=False):
        self.rng, self.shape, self.folder, self.in_name = rng, shape, folder, in_name
        self.files = []
        kind = rng.random()
        if kind < 0.25:
            self.text, numbers = self.points(inline=in_name or rng.random() < 0.3)
            self.numbers, self.grid = np.array(numbers, np.int64), None
        elif kind < 0.5:
            self.text, mask, self.grid = self.block(shape)
            self.numbers = np.flatnonzero(mask)
        else:
            self.text, mask = self.union(shape)
            self.numbers, self.grid = np.flatnonzero(mask), None

    def union(self, shape, deep=0):
        terms, mask = "", np.zeros(shape, bool)
        for i in range(self.rng.randint(2, 5) if deep == 0 else 2):
            text, term = self.term(shape, deep)
            operator = "+" if i == 0 or self.rng.random() < 0.6 else "-"
            space = self.rng.choice(["", " "])
            terms += text if i == 0 else f"{space}{operator}{' ' if operator == '-' else space}{text}"
            mask = mask | term if operator == "+" else mask & ~term
        if deep == 0 and self.rng.random() < 0.2:
            terms = f"({terms})"
        return terms, mask

    def term(self, shape, deep):
        kind = self.rng.random()
        if kind < 0.15 and len(shape) > 1 and deep < 2:
            outer = shape[:self.rng.randint(1, len(shape) - 1)]
            text, mask, _ = self.block(outer, dots=False)
            inner_text, inner = self.union(shape[len(outer):], deep + 1)
            return f"{text},({inner_text})", np.multiply.outer(mask, inner)
        if kind < 0.3 and deep == 0:
            text, numbers = self.points(inline=self.in_name or self.rng.random() < 0.3)
            mask = np.zeros(int(np.prod(shape)), bool)
            mask[numbers] = True
            return (text if text[0] == "[" else f"[{text}]"), mask.reshape(shape)
        text, mask, _ = self.block(shape)
        # A block that ends in a colon would take the sign of a difference.
        return f"[{text}]", mask

    def block(self, shape, dots=True):
        parts, index = [], []
        for n in shape:
            kind = self.rng.random()
            if kind < 0.3:
                at = self.rng.randrange(-n, n)
                parts.append(str(at))
                index.append(slice(at % n, at % n + 1))
                continue
            numbers = [self.rng.choice([None, self.rng.randint(-n - 2, n + 3)]) for _ in range(2)]
            step = self.rng.choice([None, None, 1, 2, 3, n + 5])
            text = ":".join("" if x is None else str(x) for x in numbers)
            parts.append(text if step is None else f"{text}:{step}")
            index.append(slice(*numbers, step))
        text = ",".join(parts)
        if len(shape) > 1 and dots and self.rng.random() < 0.2:
            keep = self.rng.randrange(len(shape))
            text = ",".join(parts[:keep] + ["..."]) if self.rng.random() < 0.5 else ",".join(["...", *parts[keep:]])
            index = [*index[:keep], *[slice(None)] * (len(shape) - keep)] if text.endswith("...") else [slice(None)] * keep + index[keep:]
        mask = np.zeros(shape, bool)
        mask[tuple(index)] = True
        return text, mask, tuple(len(range(*s.indices(n))) for s, n in zip(index, shape))

    def points(self, inline):
        count = self.rng.choice([0, 1, 3, 10] if inline else [0, 1, 7, 40])
        at = np.array([[self.rng.randrange(n) for n in self.shape] for _ in range(count)], np.int64).reshape(count, len(self.shape))
        numbers = np.ravel_multi_index(tuple(at.T), self.shape)
        signed = at.copy()
        for row in signed:
            if self.rng.random() < 0.2:
                row[0] -= self.shape[0]
        if inline:
            return json.dumps(signed.tolist(), separators=(",", ":")) if count else "[[0" + ",0" * (len(self.shape) - 1) + "]]", \
                numbers if count else np.array([0])
        name = os.path.join(self.folder, f"points-{self.rng.randrange(1 << 40)}.{self.rng.choice(['npy', 'json'])}")
        self.files.append(name)
        if name.endswith("json"):
            with open(name, "w") as f:
                json.dump(signed.tolist(), f)
        else:
            dtype = self.rng.choice(["i1", "<i2", ">i4", "<i8"] + (["u1", "<u4", ">u8"] if (signed >= 0).all() else []))
            array = signed.astype(dtype)
            if self.rng.random() < 0.5:
                array = np.asfortranarray(array)
            if len(self.shape) == 1 and self.rng.random() < 0.5:
                array = array.ravel()
            with open(name, "wb") as f:
                np.lib.format.write_array(f, array, version=self.rng.choice([(1, 0), (2, 0), (3, 0)]))
        return f"@{name}", numbers


class Data:
    """A dataset and its model."""

    def __init__(self, rng, name, shape, chunks, dtype, notation, layout):
        self.name, self.layout, self.dtype, self.shape = name, layout, np.dtype(dtype), shape
        self.values = np.zeros(int(np.prod(shape)), self.dtype)
        self.defined = np.zeros(self.values.size, bool) if layout in KNOWS else np.ones(self.values.size, bool)
        self.description = {"dtype": notation, "shape": list(shape), **LAYOUTS[layout]}
        if layout not in ("contiguous", "log"):
            self.description["chunks"] = list(chunks)

    def random(self, rng, count):
        return np.frombuffer(rng.integers(1, 120, count * self.dtype.itemsize, dtype="u1").tobytes(), self.dtype)

    def put(self, numbers, values):
        # The last of several values of an element counts.
        for n, value in zip(numbers, values):
            self.values[n] = value
        self.defined[numbers] = True


def run(options, *args, data=None, code=0, **more):
    done = subprocess.run([options.bin, *args], input=data, capture_output=True, **more)
    assert done.returncode == code, (args, done.returncode, done.stderr[-400:], done.stdout[-100:])
    return done


def create(options, target, data):
    run(options, "create", target)
    with harness.mounted(options.bin, target, "--read-write") as mnt:
        for d in data:
            path = os.path.join(mnt, d.name)
            open(path, "xb").close()
            os.setxattr(path, "user.h5dir.dataset", json.dumps(d.description).encode())


def by_commands(t, options, target, d, s, rng):
    where, label = f"{target}:/{d.name}", f"{target} {d.name} {s.text!r}"
    wanted = d.values[s.numbers]
    t.equal(run(options, "cat", "--raw", "--select", s.text, where).stdout, wanted.tobytes(), f"{label}: cat")
    array = np.load(io.BytesIO(run(options, "cat", "--npy", "--select", s.text, where).stdout))
    t.equal(array.shape, s.grid if s.grid is not None else (len(s.numbers),), f"{label}: shape of npy")
    t.equal(array.tobytes(), wanted.tobytes(), f"{label}: npy")
    mask = np.zeros(d.values.size, bool)
    mask[s.numbers] = True
    count = int(run(options, "defined", "--count", "--select", s.text, where).stdout)
    t.equal(count, int((mask & d.defined).sum()), f"{label}: defined --count")
    if d.dtype.kind in "iuf" and len(s.numbers):
        found = json.loads(run(options, "summary", "--json", "--select", s.text, where).stdout)
        numbers = wanted.astype(d.dtype)
        t.equal(found["count"], len(numbers), f"{label}: summary")
    new = d.random(rng, len(s.numbers))
    form = rng.integers(0, 3)
    if form == 0:
        run(options, "write", "--select", s.text, where, data=new.tobytes())
    elif form == 1 or d.dtype.kind == "V" and d.dtype.names is None:
        path = os.path.join(s.folder, "input.raw")
        with open(path, "wb") as f:
            f.write(new.tobytes())
        run(options, "write", "-s", s.text, "--from", path, where)
    else:
        array = io.BytesIO()
        np.save(array, new)
        run(options, "write", "--npy", "--select", s.text, where, data=array.getvalue())
    d.put(s.numbers, new)
    # As many as there are, or nothing.
    size = d.dtype.itemsize
    for wrong in (new.tobytes() + b"x", new.tobytes()[:-1], new.tobytes() + bytes(size)):
        if len(wrong) != len(new) * size:
            done = run(options, "write", "--select", s.text, where, data=wrong, code=1)
            t.check(str(len(new) * size) in done.stderr.decode(), f"{label}: sizes in {done.stderr}")
    if d.layout in KNOWS and rng.random() < 0.4:
        erased = Selection(s.rng, d.shape, s.folder)
        run(options, "erase", "--select", erased.text, where)
        d.defined[erased.numbers] = False
        d.values[erased.numbers] = np.zeros((), d.dtype)


def by_mount(t, options, mnt, d, s, rng):
    path, label = f"{mnt}/.h5dir/defined/{d.name}@{s.text}.values", f"mount {d.name} {s.text!r}"
    order = s.numbers[d.defined[s.numbers]]
    t.equal(harness.read(path), d.values[order].tobytes(), f"{label}: values")
    new = d.random(rng, len(s.numbers))
    raw = new.tobytes()
    form = rng.integers(0, 3)
    if form == 0:
        with open(path, "wb") as f:
            f.write(raw)
    elif form == 1:
        fd = os.open(path, os.O_WRONLY)
        step = int(rng.integers(1, 60))
        for at in range(0, len(raw), step):
            assert os.pwrite(fd, raw[at:at + step], at) == len(raw[at:at + step])
        os.close(fd)
    else:
        subprocess.run(["dd", f"of={path}", f"bs={int(rng.integers(1, 300))}", "status=none"], input=raw, check=True)
    d.put(s.numbers, new)
    t.equal(harness.read(path), d.values[s.numbers].tobytes(), f"{label}: values after the write")
    fd = os.open(path, os.O_RDWR)
    if raw:
        at = int(rng.integers(0, len(raw)))
        t.equal(os.pread(fd, 50, at), d.values[s.numbers].tobytes()[at:at + 50], f"{label}: part")
    for offset, data in ((len(raw), b"x"), (max(len(raw) - 1, 0), b"xx")):
        t.equal(errno_of(lambda: os.pwrite(fd, data, offset)), "EFBIG", f"{label}: write past the end")
    t.equal(errno_of(lambda: os.ftruncate(fd, len(raw) + 1)), "EFBIG", f"{label}: truncation past the end")
    os.ftruncate(fd, 0)
    os.close(fd)
    with open(path, "ab", buffering=0) as f:
        t.equal(errno_of(lambda: f.write(b"x")), "EFBIG", f"{label}: append")
    t.equal(harness.read(path), d.values[s.numbers].tobytes(), f"{label}: values after truncation and append")


def errno_of(f):
    import errno
    try:
        f()
    except OSError as e:
        return errno.errorcode[e.errno]
    return None


def whole(t, options, target, data, label):
    """All elements, by a mount; h5py reads files without logs and drafts."""
    with harness.mounted(options.bin, target) as mnt:
        for d in data:
            t.equal(harness.read(f"{mnt}/{d.name}"), d.values.tobytes(), f"{label} {d.name}: elements")
            shown = json.loads(harness.read(f"{mnt}/.h5dir/defined/{d.name}"))
            mask = np.zeros(d.shape, bool)
            for block in shown["blocks"]:
                mask[tuple(map(slice, block["start"], block["stop"]))] = True
            t.check((mask.ravel() == d.defined).all() and shown["count"] == d.defined.sum(), f"{label} {d.name}: defined")
    if target.startswith("iod:"):
        return
    with h5py.File(target) as f:
        for d in data:
            if d.layout in ("contiguous", "chunked", "deflated", "map"):
                t.equal(f[d.name][()].tobytes(), d.values.tobytes(), f"{label} {d.name}: h5py")


def random_sweep(t, options, folder):
    rng, picks = np.random.default_rng(options.seed), random.Random(options.seed)
    for kind in ("file", "log", "container"):
        layouts = {"file": ["contiguous", "chunked", "deflated", "map", "filter", "structured"], "log": ["log"],
                   "container": ["chunked", "deflated", "map", "filter"]}[kind]
        target = ("iod:" if kind == "container" else "") + os.path.join(folder, kind + ("" if kind == "container" else ".h5"))
        data = []
        for i, layout in enumerate(layouts * (6 if kind == "log" else 2)):
            shape, chunks = SHAPES[(i + picks.randrange(len(SHAPES))) % len(SHAPES)]
            dtype, notation = TYPES[picks.randrange(len(TYPES))]
            data.append(Data(rng, f"{layout}{i}", shape, chunks, dtype, notation, layout))
        create(options, target, data)
        for session in range(3):
            for _ in range(ROUNDS // 3):
                d = picks.choice(data)
                by_commands(t, options, target, d, Selection(picks, d.shape, folder), rng)
            with harness.mounted(options.bin, target, "--read-write") as mnt:
                for _ in range(ROUNDS):
                    d = picks.choice(data)
                    by_mount(t, options, mnt, d, Selection(picks, d.shape, folder, in_name=True), rng)
            whole(t, options, target, data, f"{kind}, session {session}")


def exact(*strings):
    return b"".join(len(s).to_bytes(4, "little") + s for s in strings)


def strings(t, options, folder):
    """Strings of variable length: a line each by the command, in exact form through the mount."""
    for target in (os.path.join(folder, "strings.h5"), "iod:" + os.path.join(folder, "strings")):
        run(options, "create", target)
        with harness.mounted(options.bin, target, "--read-write") as mnt:
            for name, layout in (("s", {}), ("sparse", {"layout": "sparse"}), ("kept", {"layout": "sparse", "fillvalue": "none"})):
                open(f"{mnt}/{name}", "xb").close()
                os.setxattr(f"{mnt}/{name}", "user.h5dir.dataset", json.dumps({"dtype": "str", "shape": [3, 4], "chunks": [2, 3], **layout}).encode())
        for name in ("s", "sparse"):
            model, where = [b""] * 12, f"{target}:/{name}"
            run(options, "write", where, data=b"".join(b"word %d\n" % i for i in range(12)))
            model = [b"word %d" % i for i in range(12)]
            run(options, "write", "--select", "1,::2 + 2,3", where, data="\näß\nlast".encode())
            model[4], model[6], model[11] = b"", "äß".encode(), b"last"
            run(options, "write", "--select", "[[0,1],[2,0],[0,1]]", where, data=b"one\ntwo\nthree\n")
            model[1], model[8] = b"three", b"two"
            for wrong in (b"a\nb\n", b"a\nb\nc\nd\n", b"a\nb\0\nc\n", b""):
                run(options, "write", "--select", "0,:3", where, data=wrong, code=1)
            t.equal(run(options, "cat", "--raw", where).stdout.split(b"\n")[:-1], model, f"{where}: lines")
            t.equal(json.loads(run(options, "cat", "--json", "--select", "::2,1:4:2", where).stdout),
                    [[model[4 * i + j].decode() for j in (1, 3)] for i in (0, 2)], f"{where}: json")
            with harness.mounted(options.bin, target, "--read-write") as mnt:
                path = f"{mnt}/.h5dir/defined/{name}@2,1:3+0,0.values"
                t.equal(harness.read(path), exact(model[0], model[9], model[10]), f"{where}: values")
                with open(path, "wb") as f:
                    f.write(exact(b"x" * 70000, b"", b"z"))
                model[0], model[9], model[10] = b"x" * 70000, b"", b"z"
                t.equal(harness.read(path), exact(model[0], model[9], model[10]), f"{where}: values written")
                fd = os.open(path, os.O_WRONLY | os.O_TRUNC)
                os.write(fd, exact(b"too few"))
                t.equal(errno_of(lambda: os.close(fd)), "EINVAL", f"{where}: too few elements at close")
                t.equal(harness.read(f"{mnt}/{name}").split(b"\n")[:-1], model, f"{where}: as they were")
            if not target.startswith("iod:"):
                with h5py.File(target) as f:
                    t.equal([x for row in f[name][()] for x in row], model, f"{where}: h5py")
        others_stay(t, options, target)


def others_stay(t, options, target):
    """Elements of variable length that a selection leaves out keep what they are, also that they are undefined (a container
    defined all of them). Rounds of writes leave as many cells."""
    where, rng = f"{target}:/kept", random.Random(options.seed)
    run(options, "write", "--select", "1,1:3", where, data=b"a\nnone\n")
    run(options, "write", "--select", "2,3", where, data=b"z\n")
    t.equal(run(options, "defined", where).stdout.split(), [b"1:2,1:3", b"2:3,3:4"], f"{where}: defined")
    model = run(options, "cat", "--raw", where).stdout.split(b"\n")[:-1]
    t.equal(model, [b"none"] * 5 + [b"a"] + [b"none"] * 5 + [b"z"], f"{where}: elements")
    sizes = []
    with harness.mounted(options.bin, target, "--read-write") as mnt:
        for turn in range(150):
            i, j = rng.randrange(3), rng.randrange(1, 4)
            with open(f"{mnt}/.h5dir/defined/kept@{i},{j}.values", "wb") as f:
                model[4 * i + j] = b"%d" % turn * rng.randrange(1, 3000)
                f.write(exact(model[4 * i + j]))
                f.flush()
                os.fsync(f.fileno())
            sizes.append(run(options, "iod", "dump", target).stdout.count(b"cells") if target.startswith("iod:") else os.stat(target).st_size)
        t.equal(harness.read(f"{mnt}/kept").split(b"\n")[:-1], model, f"{where}: after rounds")
        if not target.startswith("iod:"):
            t.check(sizes[-1] <= 1.5 * sizes[74], f"{where}: {sizes[74]} to {sizes[-1]} bytes")
        else:
            t.check(sizes[-1] <= 80, f"{where}: {sizes[-1]} blocks of cells")
    t.equal(run(options, "check", "--data", target).returncode, 0, f"{where}: check")
    t.equal(run(options, "defined", "--select", ":,0", where).stdout, b"", f"{where}: what was never written")
    # What an open file writes as a whole is not replaced below it.
    with harness.mounted(options.bin, target, "--read-write") as mnt:
        fd = os.open(f"{mnt}/kept", os.O_WRONLY)
        t.equal(errno_of(lambda: os.open(f"{mnt}/.h5dir/defined/kept@0,1.values", os.O_WRONLY)), "EBUSY", f"{where}: two views")
        os.close(fd)


def whole_datasets(t, options, folder):
    """Without a selection: all elements. Scalars and empty datasets."""
    path = os.path.join(folder, "whole.h5")
    with h5py.File(path, "w") as f:
        f["scalar"], f["none"], f["null"], f["line"] = 7.25, np.zeros((0, 3)), h5py.Empty("f4"), np.arange(6, dtype="<i4")
        f.create_dataset("grows", data=np.arange(4, dtype="u1"), maxshape=(None,), chunks=(2,))
        f.create_group("g")
    run(options, "write", f"{path}:/scalar", data=np.float64(2.5).tobytes())
    run(options, "write", f"{path}:/none", data=b"")
    run(options, "write", f"{path}:/line", data=np.arange(6, 12, dtype="<i4").tobytes())
    for name, data in (("scalar", b"1"), ("none", b"1"), ("null", b""), ("line", b"x" * 28), ("grows", b"12345"), ("g", b"")):
        run(options, "write", f"{path}:/{name}", data=data, code=1)
    run(options, "write", f"{path}:/nothing", data=b"", code=5)
    run(options, "write", "--select", "0:2", "--from", os.path.join(folder, "missing"), f"{path}:/line", code=1)
    wrong = io.BytesIO()
    np.save(wrong, np.arange(6.0))
    run(options, "write", "--npy", f"{path}:/line", data=wrong.getvalue(), code=1)
    with h5py.File(path) as f:
        t.check(f["scalar"][()] == 2.5 and (f["line"][()] == np.arange(6, 12)).all() and (f["grows"][()] == np.arange(4)).all(), "whole datasets")
    # A file that is mounted for writing is not written beside the mount.
    with harness.mounted(options.bin, path, "--read-write") as mnt:
        done = run(options, "write", f"{path}:/line", data=bytes(24), code=3)
        t.check(b"in use" in done.stderr or b"lock" in done.stderr or b"another" in done.stderr, f"a mounted file: {done.stderr}")
        fd = os.open(f"{mnt}/line", os.O_RDWR)
        t.equal(errno_of(lambda: os.open(f"{mnt}/.h5dir/defined/line@0.values", os.O_WRONLY)), "EBUSY", "another view is open for writing")
        os.close(fd)
        os.truncate(f"{mnt}/grows", 4)
        fd = os.open(f"{mnt}/.h5dir/defined/grows@::2.values", os.O_RDONLY)
        t.equal(os.pread(fd, 9, 0), b"\0\2", "before the dataset grows")
        with open(f"{mnt}/grows", "ab") as f:
            f.write(b"\4\5\6")
        t.equal(os.pread(fd, 9, 0), b"\0\2\4\6", "after the dataset has grown")
        os.close(fd)
        os.truncate(f"{mnt}/grows", 4)
        cached = open(f"{mnt}/line", "rb")
        cached.read()
        with open(f"{mnt}/.h5dir/defined/line@1:3.values", "wb") as f:
            f.write(np.array([-1, -2], "<i4").tobytes())
        cached.seek(0)
        t.equal(np.frombuffer(cached.read(), "<i4").tolist(), [6, -1, -2, 9, 10, 11], "pages of the dataset after a write through the view")
        cached.close()
        for n in range(3000):
            harness.read(f"{mnt}/.h5dir/defined/line@{n % 6} + {n % 5}.values")
        kept = int(next(line.split()[1] for line in harness.read(f"{mnt}/.h5dir/status").decode().splitlines() if line.startswith("inodes ")))
        t.check(kept < 500, f"names of selections are kept: {kept} inodes")
    with harness.mounted(options.bin, path) as mnt:
        t.equal(errno_of(lambda: os.open(f"{mnt}/.h5dir/defined/line@0.values", os.O_WRONLY)), "EROFS", "a mount for reading")


def view_mask(mnt, name, count):
    mask = np.zeros(count, bool)
    for block in json.loads(harness.read(f"{mnt}/.h5dir/defined/{name}"))["blocks"]:
        mask[block["start"][0]:block["stop"][0]] = True
    return mask


def logs(t, options, folder):
    """What is defined in a log: shown, erased, copied, kept by other layouts; for any fill value."""
    rng = random.Random(options.seed)
    for fill in (0, -1):
        path, copy = (os.path.join(folder, f"{name}{fill}.h5") for name in ("logged", "copied"))
        run(options, "create", "--log", path)
        run(options, "create", copy)
        with harness.mounted(options.bin, path, "--read-write") as mnt:
            values, mask = {}, {}
            for name in ("a", "b", "c", "d"):
                open(f"{mnt}/{name}", "xb").close()
                profile = {"profile": "deflate"} if name == "b" else {}
                text = json.dumps({"dtype": "<i4", "shape": [1000], "layout": "log", "fillvalue": fill, **profile})
                os.setxattr(f"{mnt}/{name}", "user.h5dir.dataset", text.encode())
                values[name], mask[name] = np.full(1000, fill, "<i4"), np.zeros(1000, bool)
                with open(f"{mnt}/{name}", "r+b", buffering=0) as f:
                    for _ in range(12 if name < "c" else 0):
                        at, n = rng.randrange(990), rng.randrange(1, 10)
                        os.pwrite(f.fileno(), np.arange(n, dtype="<i4").tobytes(), 4 * at)
                        values[name][at:at + n], mask[name][at:at + n] = np.arange(n), True
            for name in ("a", "b"):
                text = "::7 + 100:300 - 150:160"
                os.setxattr(f"{mnt}/{name}", "user.h5dir.erase", text.encode())
                erased = np.zeros(1000, bool)
                erased[::7], erased[100:300], erased[150:160] = True, True, False
                values[name][erased], mask[name][erased] = fill, False
                with open(f"{mnt}/{name}", "rb") as source, open(f"{mnt}/{'c' if name == 'a' else 'd'}", "r+b") as target:
                    os.copy_file_range(source.fileno(), target.fileno(), 2000, 52, 52)
                other = "c" if name == "a" else "d"
                values[other][13:513], mask[other][13:513] = values[name][13:513], mask[name][13:513]
            for name in values:
                t.equal(np.frombuffer(harness.read(f"{mnt}/{name}"), "<i4").tolist(), values[name].tolist(), f"log {name}, fill {fill}: elements")
                t.check((view_mask(mnt, name, 1000) == mask[name]).all(), f"log {name}, fill {fill}: defined")
            subprocess.run(["cp", "-a", f"{mnt}/a", f"{mnt}/copy"], check=True)
            t.check((view_mask(mnt, "copy", 1000) == mask["a"]).all(), f"fill {fill}: cp -a in a log")
            os.setxattr(f"{mnt}/copy", "user.h5dir.layout", b"sparse")
            t.check((view_mask(mnt, "copy", 1000) == mask["a"]).all(), f"fill {fill}: defined in another layout")
            os.setxattr(f"{mnt}/copy", "user.h5dir.layout", b"log")
            t.check((view_mask(mnt, "copy", 1000) == mask["a"]).all(), f"fill {fill}: and back in a log")
        for name in ("a", "b"):
            run(options, "cp", f"{path}:/{name}", f"{copy}:/{name}")
            t.equal(int(run(options, "defined", "--count", "--select", "::3", f"{copy}:/{name}").stdout), int(mask[name][::3].sum()), f"cp of log {name}")
        run(options, "log", "replay", path, os.path.join(folder, f"replayed{fill}.h5"))


def kills(t, options, folder):
    """A writer that is killed leaves elements of before or after, and a file that opens."""
    rng = random.Random(options.seed)
    for target in (os.path.join(folder, "killed.h5"), "iod:" + os.path.join(folder, "killed")):
        shape = (200, 64, 64)
        d = Data(rng, "d", shape, (1, 64, 64), "<u4", "<u4", "chunked")
        create(options, target, [d])
        old = 0
        for round in range(6):
            new = round + 1
            with subprocess.Popen([options.bin, "write", "--select", ":,::2,:", f"{target}:/d"], stdin=subprocess.PIPE, stderr=subprocess.PIPE) as p:
                data = np.full(200 * 32 * 64, new, "<u4").tobytes()
                with contextlib.suppress(BrokenPipeError):
                    p.stdin.write(data[:rng.randrange(len(data))] if round % 2 else data)
                    p.stdin.flush()
                time.sleep(rng.random() * 0.3)
                p.send_signal(signal.SIGKILL)
            if not target.startswith("iod:") and os.path.exists(target + ".h5dir-journal"):
                run(options, "recover", target)
            with harness.mounted(options.bin, target, "--read-write") as mnt:
                a = np.frombuffer(harness.read(f"{mnt}/d"), "<u4").reshape(shape)
                t.check((a[:, 1::2] == 0).all() and np.isin(a[:, ::2], [old, new]).all(), f"{target}, round {round}: elements of neither")
                if (a[:, ::2] == new).any():
                    with open(f"{mnt}/.h5dir/defined/d@:,::2,:.values", "wb") as f:
                        f.write(data)
                    old = new
            t.equal(run(options, "check", "--data", target).returncode, 0, f"{target}: check")


def hostile(t, options, folder):
    """Selections that no memory holds: refused, or read in parts."""
    path = os.path.join(folder, "hostile.h5")
    with h5py.File(path, "w") as f:
        f.create_dataset("line", (1 << 41,), "u1", chunks=(1 << 20,))
        f.create_dataset("plane", (1 << 20, 1 << 20), "u1", chunks=(1 << 10, 1 << 10))
        f.create_dataset("small", (10, 10), "u1")
    alternating = "+".join(f"{8 * i}:{8 * i + 3}-{8 * i + 1}" for i in range(5000))
    files = {"nan.npy": np.array([[1.0, np.nan]]), "float.npy": np.ones((2, 2)), "wide.npy": np.ones((3, 3), "i4"), "outside.npy": np.array([[1, 99]]),
             "bool.npy": np.ones((2, 2), bool), "deep.npy": np.ones((1, 2, 2), "i4")}
    for name, array in files.items():
        np.save(os.path.join(folder, name), array)
    with open(os.path.join(folder, "claims.npy"), "wb") as f:
        np.lib.format.write_array_header_1_0(f, {"descr": "<i8", "fortran_order": True, "shape": (1 << 60, 2)})
    with open(os.path.join(folder, "ends.npy"), "wb") as f:
        np.lib.format.write_array_header_1_0(f, {"descr": "<i8", "fortran_order": True, "shape": (1 << 20, 2)})
        f.write(bytes(100))
    with open(os.path.join(folder, "nested.json"), "w") as f:
        f.write("[" * 100000)
    with open(os.path.join(folder, "plus.json"), "wb") as f:
        f.write(b"[[1,2]," * (3 << 20))
    refused = [("small", s) for s in ["nan", "1.5", "::0", "::-1", "10", "-11", "1,2,3", "18446744073709551616", "0:1e3", "[", "(", "[[", "[[1]]", "[[1,2],[3]]",
                                      "[[1,NaN]]", "0 + ", "+ 0", "0 ++ 1", "0,", ",0", "...,...", "{}", "[{}]", "@", "[@]", "0:::", "0:18446744073709551616", "\u0661"]]
    refused += [("small", "@" + os.path.join(folder, name)) for name in [*files, "claims.npy", "ends.npy", "nested.json", "plus.json", "none", "."]]
    refused += [("line", "::2 + 1"), ("line", "::2 - 1"), ("plane", "::2,::2 + ::3,::3 + ::5,::5 + ::7,::7 + ::11,::11 - 0"),
                ("line", "+".join(["0"] * 30000) + "x"), ("small", "0" + ",(" * 20000), ("small", "(" * 50000), ("small", "/dev/zero"), ("small", "@/dev/zero")]
    limit = lambda: resource.setrlimit(resource.RLIMIT_AS, (3 << 30, 3 << 30))
    for name, text in refused:
        done = subprocess.run([options.bin, "cat", "--raw", "--select", text, f"{path}:/{name}"], capture_output=True, timeout=120, preexec_fn=limit)
        t.check(done.returncode == 1 and done.stderr.count(b"\n") == 1 and len(done.stderr) < 2000, f"{name} {text[:60]!r}: {done.returncode} {done.stderr[:300]}")
        if name == "small":
            done = subprocess.run([options.bin, "write", "--select", text, f"{path}:/{name}"], input=b"", capture_output=True, timeout=120, preexec_fn=limit)
            t.check(done.returncode == 1, f"write {text[:60]!r}: {done.returncode} {done.stderr[:300]}")
    t.equal(len(run(options, "cat", "--raw", "--select", alternating, f"{path}:/line", preexec_fn=limit).stdout), 10000, "alternating terms")
    # 2^40 elements cost what is read of them.
    for name, text, count in (("line", "::2", 1 << 40), ("plane", "::3,::5", -(-(1 << 20) // 3) * -(-(1 << 20) // 5))):
        t.equal(int(run(options, "defined", "--count", "--select", text, f"{path}:/{name}", preexec_fn=limit).stdout), count, f"{name} {text}: count")
        with subprocess.Popen([options.bin, "cat", "--raw", "--select", text, f"{path}:/{name}"], stdout=subprocess.PIPE, preexec_fn=limit) as p:
            t.equal(p.stdout.read(1 << 20), bytes(1 << 20), f"{name} {text}: the first MiB")
            p.stdout.close()
            t.equal(p.wait(60), 0, f"{name} {text}: a closed pipe")
    done = run(options, "write", "--select", "::2", f"{path}:/line", data=b"x", code=1, preexec_fn=limit)
    t.check(b"1099511627776" in done.stderr, f"sizes: {done.stderr}")
    with harness.mounted(options.bin, path, "--read-write") as mnt:
        view = f"{mnt}/.h5dir/defined"
        for name, text in refused:
            if "/" not in text and len(text.encode()) < 3000:
                with contextlib.suppress(OSError):
                    os.close(os.open(f"{view}/{name}@{text}.values", os.O_RDWR))
                    t.check(text in ("", "@", "0 "), f"{name}@{text!r} opens")
        fd = os.open(f"{view}/line@::2.values", os.O_RDWR)
        t.equal(os.fstat(fd).st_size, 1 << 40, "size of 2^40 elements")
        os.pwrite(fd, b"abc", (1 << 40) - 3)
        t.equal(os.pread(fd, 10, (1 << 40) - 4), b"\0abc", "the end of 2^40 elements")
        os.close(fd)
        with open(f"{mnt}/line", "rb") as f:
            t.equal(os.pread(f.fileno(), 6, (1 << 41) - 6), b"a\0b\0c\0", "written where they are")
        t.equal(errno_of(lambda: os.open(f"{view}/small@{'0+' * 3000}0.values", os.O_RDONLY)), "ENAMETOOLONG", "a long name")
        peak = harness.peak_memory(mnt)
        t.check(peak < 400, f"memory of the mount: {peak} MiB")


def large_lists(t, options, folder):
    """Point lists of millions, in any order."""
    path, rng = os.path.join(folder, "points.h5"), np.random.default_rng(options.seed)
    with h5py.File(path, "w") as f:
        f.create_dataset("d", (400, 100, 100), "<u2", chunks=(1, 100, 100))
    numbers = rng.integers(0, 4_000_000, 1_000_000)
    values = rng.integers(1, 60000, len(numbers)).astype("<u2")
    np.save(os.path.join(folder, "many.npy"), np.stack(np.unravel_index(numbers, (400, 100, 100)), 1).astype("<u4"))
    limit = lambda: resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30))
    text = "@" + os.path.join(folder, "many.npy")
    run(options, "write", "--select", text, f"{path}:/d", data=values.tobytes(), preexec_fn=limit)
    model = np.zeros(4_000_000, "<u2")
    model[numbers] = values
    with h5py.File(path) as f:
        t.check((f["d"][()].ravel() == model).all(), "a million points")
    t.equal(run(options, "cat", "--raw", "--select", text, f"{path}:/d", preexec_fn=limit).stdout, model[numbers].tobytes(), "a million points read")
    union = run(options, "cat", "--raw", "--select", f"[{text}] - 0:200", f"{path}:/d", preexec_fn=limit).stdout
    mask = np.zeros(4_000_000, bool)
    mask[numbers], mask[:2_000_000] = True, False
    t.equal(union, model[mask].tobytes(), "a million points without others")


def main():
    options = harness.arguments(__doc__)
    tally = harness.Tally()
    with harness.folder(options.keep) as folder:
        for part in (random_sweep, strings, whole_datasets, logs, kills, hostile, large_lists):
            began = time.time()
            part(tally, options, folder)
            print(f"{part.__name__}: {time.time() - began:.1f} s, {tally.passed} passed, {tally.failed} failed", flush=True)
    tally.finish()


if __name__ == "__main__":
    main()
