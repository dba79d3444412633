#!/usr/bin/env python3
"""user.h5dir.shape: random extents in all dimensions over layouts, chunk indexes, filters and kinds of containers, against numpy; h5py reads the files after each session."""
import ctypes
import errno
import glob
import json
import mmap
import os
import subprocess

import h5py
import numpy as np

import harness

SESSIONS, STEPS = 3, 14
FILL = 7
LIBHDF5 = ctypes.CDLL(glob.glob(os.path.join(os.path.dirname(h5py.__file__), "..", "h5py.libs", "libhdf5-*.so*"))[0])
DONT_FILTER_PARTIAL_CHUNKS = 2


def chunk_index(f, name, shape, maxshape, chunks, dtype, fill, kind):
    """Creates a dataset by the low level, where h5py has no option for it."""
    space = h5py.h5s.create_simple(shape, tuple(h5py.h5s.UNLIMITED if n is None else n for n in maxshape))
    plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    plist.set_chunk(chunks)
    plist.set_fill_value(np.array(fill, dtype))
    if kind == "implicit":
        plist.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
    if kind in ("gzip", "edges"):
        plist.set_deflate(3)
    if kind == "edges":
        assert LIBHDF5.H5Pset_chunk_opts(ctypes.c_int64(plist.id), ctypes.c_uint(DONT_FILTER_PARTIAL_CHUNKS)) >= 0
    h5py.h5d.create(f.id, name.encode(), h5py.h5t.py_create(np.dtype(dtype)), space, plist)


class Model:
    """A dataset as numpy has it, and which of its elements are defined."""

    def __init__(self, name, shape, maxshape, dtype, fill, defines, stock):
        self.name, self.maxshape, self.defines, self.stock = name, maxshape, defines, stock
        self.dtype, self.fill, self.most = np.dtype(dtype), fill, [max(24, n) for n in shape]
        self.values = np.full(shape, fill, dtype)
        self.defined = np.zeros(shape, bool)

    def resize(self, shape):
        for which, empty in (("values", self.fill), ("defined", False)):
            old = getattr(self, which)
            new = np.full(shape, empty, old.dtype)
            both = tuple(slice(0, min(a, b)) for a, b in zip(old.shape, shape))
            new[both] = old[both]
            setattr(self, which, new)

    def next_shape(self, rng):
        shape = list(self.values.shape)
        for dim in rng.choice(len(shape), rng.integers(1, len(shape) + 1), replace=False):
            most = self.most[dim] if self.maxshape[dim] is None else self.maxshape[dim]
            shape[dim] = int(rng.integers(0 if rng.random() < 0.1 else 1, most + 1))
        return tuple(shape)

    def write(self, fd, rng):
        """Writes some runs of elements through the file."""
        if not self.values.size:
            return
        flat, known = self.values.reshape(-1), self.defined.reshape(-1)
        for _ in range(rng.integers(1, 5)):
            start = int(rng.integers(flat.size))
            end = min(flat.size, start + int(rng.integers(1, 60 + flat.size // 4)))
            part = rng.integers(1, 200, end - start).astype(self.dtype)
            os.pwrite(fd, part.tobytes(), start * self.dtype.itemsize)
            flat[start:end], known[start:end] = part, True


def file_models(path, rng):
    """Datasets of libhdf5 with every chunk index, and filters."""
    models = []
    for libver in ("earliest", "latest"):
        name = f"{path}.{libver}.h5"
        with h5py.File(name, "w", libver=libver) as f:
            for i, (shape, maxshape, chunks) in enumerate([
                ((9,), (None,), (4,)), ((5, 6), (None, None), (2, 3)), ((5, 6), (20, None), (3, 2)), ((5, 6), (20, 17), (4, 4)),
                ((4, 3, 5), (None, 12, 9), (2, 2, 2)), ((4, 3, 5), (9, 8, 10), (3, 3, 3)), ((3, 2, 3, 2), (None, 5, None, 6), (2, 2, 2, 2)),
                ((6, 5), (6, 5), (6, 5)), ((0, 5), (None, 8), (3, 5)), ((200, 150), (None, 160), (2, 7)),
            ]):
                for kind in ("plain", "gzip", "implicit", "edges"):
                    if kind == "implicit" and None in maxshape or kind == "edges" and libver == "earliest":
                        continue
                    dtype = ("<i4", ">f8", "u1")[int(rng.integers(3))]
                    dataset = f"{kind}{i}"
                    chunk_index(f, dataset, shape, maxshape, chunks, dtype, FILL, kind)
                    models.append((name, Model(dataset, shape, maxshape, dtype, FILL, False, True)))
    return models


def mount_models(target, mount, container):
    """Datasets made through a mount: sparse profiles and partial chunks; returns their models."""
    models = []
    layouts = [("chunked", None), ("sparse", "map"), ("sparse", "filter")] if container else [
        ("sparse", "map"), ("sparse", "filter"), ("sparse", "structured"), ("log", None)]
    for layout, profile in layouts:
        for i, (shape, maxshape, chunks) in enumerate([((5, 6), [None, None], [3, 4]), ((4, 3, 5), [None, 12, 9], [2, 2, 4]), ((7,), [None], [3])]):
            name = f"{layout}-{profile}-{i}"
            path = os.path.join(mount, name)
            open(path, "w").close()
            spec = {"dtype": "<i4", "shape": shape, "maxshape": maxshape, "layout": layout, "fillvalue": FILL}
            if layout != "log":
                spec["chunks"] = chunks
            if profile:
                spec["profile"] = profile
            try:
                os.setxattr(path, "user.h5dir.dataset", json.dumps(spec).encode())
            except OSError as e:
                os.unlink(path)
                print(f"skipped {name}: {errno.errorcode[e.errno]}")
                continue
            stock = layout == "chunked" or profile == "map"
            models.append((target, Model(name, tuple(shape), tuple(maxshape), "<i4", FILL, layout == "sparse", stock and not container)))
    return models


def defined(mount, name, shape):
    with open(os.path.join(mount, ".h5dir", "defined", name)) as f:
        found = json.load(f)
    mask = np.zeros(shape, bool)
    for block in found["blocks"]:
        mask[tuple(slice(a, b) for a, b in zip(block["start"], block["stop"]))] = True
    return mask


def compare(tally, mount, model, what):
    path = os.path.join(mount, model.name)
    tally.equal(json.loads(harness.fact(path, "shape")), list(model.values.shape), f"{what}: shape")
    tally.equal(os.stat(path).st_size, model.values.nbytes, f"{what}: size")
    tally.equal(harness.read(path), model.values.tobytes(), f"{what}: values")
    if model.defines:
        tally.check((defined(mount, model.name, model.values.shape) == model.defined).all(), f"{what}: defined")


def step(tally, mount, model, rng, what):
    path = os.path.join(mount, model.name)
    if rng.random() < 0.4:
        fd = os.open(path, os.O_RDWR)
        try:
            model.write(fd, rng)
            if rng.random() < 0.3:
                os.fsync(fd)
        finally:
            os.close(fd)
        return
    if rng.random() < 0.15:
        # A dataset in a log that is laid out with its shape as its maximum keeps that size.
        most = [None if n is None and rng.random() < 0.8 else max(m, n or 24) + int(rng.integers(1, 5))
                for m, n in zip(model.values.shape, model.maxshape)]
        os.setxattr(path, "user.h5dir.maxshape", json.dumps(most).encode())
        model.maxshape = most
        tally.equal(json.loads(harness.fact(path, "maxshape")), most, f"{what}: maxshape")
        return
    shape = model.next_shape(rng)
    os.setxattr(path, "user.h5dir.shape", json.dumps(shape).encode())
    model.resize(shape)
    tally.equal(os.stat(path).st_size, model.values.nbytes, f"{what}: size after {shape}")


def session(options, tally, target, models, rng, number):
    # With the smaller one not all chunks that change fit in memory.
    with harness.mounted(options.bin, target, "--read-write", "--cache-size", ("8M", "256K")[number % 2]) as mount:
        for turn in range(STEPS):
            for model in models:
                what = f"{target} {model.name} session {number} step {turn}"
                step(tally, mount, model, rng, what)
                if rng.random() < 0.3:
                    compare(tally, mount, model, what)
        for model in models:
            compare(tally, mount, model, f"{target} {model.name} session {number}")
    done = subprocess.run([options.bin, "check", "--data", "--json", target], capture_output=True, text=True)
    tally.equal((done.returncode, json.loads(done.stdout)["findings"]), (0, []), f"check {target}")
    if target.startswith("iod:"):
        return
    with h5py.File(target) as f:
        for model in models:
            if model.stock:
                tally.equal((f[model.name].shape, f[model.name][()].tobytes()), (model.values.shape, model.values.tobytes()),
                            f"h5py {target} {model.name} session {number}")


def refusals(options, tally, target, mount):
    """What no extent is, and what a shape does not do by accident."""
    path = os.path.join(mount, "refused")
    with open(path, "wb") as f:
        f.write(np.arange(24, dtype="<i4").tobytes())
    os.setxattr(path, "user.h5dir.dataset", b'{"dtype":"<i4","shape":[4,6],"maxshape":[null,8]}')

    def refused(fact, value, number, file=path):
        try:
            os.setxattr(file, "user.h5dir." + fact, value)
            tally.check(False, f"{fact} {value} is taken")
        except OSError as e:
            tally.equal(errno.errorcode[e.errno], errno.errorcode[number], f"{fact} {value}")
            reason = os.getxattr(file, "user.h5dir.error").decode()
            tally.check(len(reason) > 10, f"{fact} {value}: {reason}")

    refused("shape", b"[24]", errno.EINVAL)
    refused("shape", b"[2,3,4]", errno.EINVAL)
    refused("shape", b"[3,9]", errno.EINVAL)
    refused("shape", b"[4294967296,4294967296]", errno.EINVAL)
    refused("shape", b"[9223372036854775807,8]", errno.EFBIG)
    refused("dtype", b"<f8", errno.EINVAL)
    refused("reshape", b"[5,5]", errno.EINVAL)
    tally.equal(harness.read(path), np.arange(24, dtype="<i4").tobytes(), "refusals change nothing")
    os.setxattr(path, "user.h5dir.reshape", b"[6,4]")
    tally.equal((harness.fact(path, "shape"), harness.read(path)), ("[6,4]", np.arange(24, dtype="<i4").tobytes()), "reshape")
    fixed = os.path.join(mount, "fixed")
    with open(fixed, "wb") as f:
        f.write(bytes(24))
    os.setxattr(fixed, "user.h5dir.dataset", b'{"dtype":"<i4","shape":[6],"layout":"contiguous"}')
    refused("shape", b"[5]", errno.EPERM, fixed)


def open_files(tally, mount):
    """What is open and mapped while the extent changes: elements have other places, and the kernel has the new size."""
    path = os.path.join(mount, "mapped")
    values = np.arange(6 * 4096, dtype="<i4").reshape(6, 4096)
    with open(path, "wb") as f:
        f.write(values.tobytes())
    os.setxattr(path, "user.h5dir.dataset", b'{"dtype":"<i4","shape":[6,4096],"maxshape":[null,null],"chunks":[2,1024]}')
    with open(path, "r+b") as f, mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ) as mapped:
        tally.equal(mapped[:], values.tobytes(), "mapped before")
        os.setxattr(path, "user.h5dir.shape", b"[6,2048]")
        small = values[:, :2048].tobytes()
        tally.equal((mapped[:len(small)], os.pread(f.fileno(), 1 << 20, 0)), (small, small), "mapped after")
        os.setxattr(path, "user.h5dir.shape", b"[12,4096]")
        large = np.zeros((12, 4096), "<i4")
        large[:6, :2048] = values[:, :2048]
        with open(os.path.join(mount, "copy"), "w+b") as to:
            copied = os.copy_file_range(f.fileno(), to.fileno(), large.nbytes, 0, 0)
            tally.equal((copied, os.pread(to.fileno(), 1 << 20, 0)[:copied]), (large.nbytes, large.tobytes()), "copy_file_range")


def external(options, tally, folder):
    """The first dimension of a dataset in external files: bytes stay in the files."""
    path, raw = os.path.join(folder, "external.h5"), os.path.join(folder, "external.raw")
    values = np.arange(40, dtype="<i4").reshape(10, 4)
    values.tofile(raw)
    with h5py.File(path, "w") as f:
        f.create_dataset("open", (4, 4), "<i4", maxshape=(None, 4), external=[("external.raw", 0, h5py.h5f.UNLIMITED)])
        f.create_dataset("limited", (4, 4), "<i4", maxshape=(8, 4), external=[("external.raw", 0, 8 * 16)])
        # Of fixed shape.
        f.create_dataset("fixed", (4, 4), "<i4", external=[("external.raw", 0, 4 * 16)])
    with harness.mounted(options.bin, path, "--read-write") as mount:
        for name, rows in (("open", 7), ("open", 2), ("open", 10), ("limited", 8), ("limited", 3), ("fixed", 3)):
            os.setxattr(os.path.join(mount, name), "user.h5dir.shape", json.dumps([rows, 4]).encode())
            tally.equal(harness.read(os.path.join(mount, name)), values[:rows].tobytes(), f"external {name} {rows}")
        for name, shape in (("limited", b"[9,4]"), ("fixed", b"[5,4]"), ("open", b"[10,3]")):
            try:
                os.setxattr(os.path.join(mount, name), "user.h5dir.shape", shape)
                tally.check(False, f"external {name} {shape} is taken")
            except OSError:
                tally.check(True, "")
    with h5py.File(path) as f:
        tally.equal([f[name].shape for name in ("open", "limited", "fixed")], [(10, 4), (3, 4), (3, 4)], "external shapes")
        access = h5py.h5p.create(h5py.h5p.DATASET_ACCESS)
        access.set_efile_prefix(folder.encode())
        rows = h5py.Dataset(h5py.h5d.open(f.id, b"open", access))[()]
        tally.check((rows == values).all(), "h5py reads the external rows")


def strings(options, tally, target, mount):
    """Variable-length strings keep their places, and their space is used again."""
    path = os.path.join(mount, "words")
    words = [f"word {i} " + "x" * i for i in range(12)]
    with open(path, "w") as f:
        f.write("".join(w + "\n" for w in words))
    spec = b'{"dtype":"str","shape":[3,4],"maxshape":[null,null],"chunks":[2,3]}'
    os.setxattr(path, "user.h5dir.dataset", spec)
    model = np.array(words, object).reshape(3, 4)
    for shape in ([2, 4], [4, 6], [4, 2], [5, 5], [1, 1], [3, 3]):
        os.setxattr(path, "user.h5dir.shape", json.dumps(shape).encode())
        new = np.full(shape, "", object)
        both = tuple(slice(0, min(a, b)) for a, b in zip(model.shape, shape))
        new[both] = model[both]
        model = new
        tally.equal(harness.read(path).decode(), "".join(w + "\n" for w in model.reshape(-1)), f"{target}: strings {shape}")


def appended(options, tally, target):
    """h5dir append along every dimension, from files, pipes and numpy files; what does not fit appends nothing."""
    with harness.mounted(options.bin, target, "--read-write") as mount:
        for name, spec in (("grows", b'{"dtype":"<i2","shape":[2,3,4],"maxshape":[null,null,9],"chunks":[2,2,2],"filters":["deflate 1"]}'),
                           ("lines", b'{"dtype":"str","shape":[2,2],"maxshape":[null,null],"chunks":[2,2]}')):
            with open(os.path.join(mount, name), "wb") as f:
                f.write(np.arange(24, dtype="<i2").tobytes() if name == "grows" else b"a\nb\nc\nd\n")
            os.setxattr(os.path.join(mount, name), "user.h5dir.dataset", spec)
    model = np.arange(24, dtype="<i2").reshape(2, 3, 4)

    def append(dataset, data, *args, pipe=False, code=0):
        with open(target.removeprefix("iod:") + ".input", "wb") as f:
            f.write(data)
        with open(f.name, "rb") as source:
            stdin = {"input": data} if pipe else {"stdin": source}
            done = subprocess.run([options.bin, "append", *args, f"{target}:/{dataset}"], capture_output=True, **stdin)
        tally.equal(done.returncode, code, f"append {args} {done.stderr.decode()}")
        return done.stderr.decode()

    def now(dataset):
        done = subprocess.run([options.bin, "cat", "--raw" if dataset == "grows" else "--text", f"{target}:/{dataset}"], capture_output=True)
        return done.stdout

    for axis, n, pipe in ((0, 2, False), (1, 3, True), (2, 5, False), (-3, 1, True), (-1, 0, False), (1, 1, True)):
        shape = list(model.shape)
        shape[axis] = n
        block = (np.arange(np.prod(shape), dtype="<i2") + 1000 * (axis + 4)).reshape(shape)
        append("grows", block.tobytes(), "--axis", str(axis), pipe=pipe)
        model = np.concatenate([model, block], axis)
        tally.equal(now("grows"), model.tobytes(), f"{target}: append along {axis}")
    block = np.ones((model.shape[0], 2, model.shape[2]), "<i2")
    np.save(target.removeprefix("iod:") + ".npy", block)
    with open(target.removeprefix("iod:") + ".npy", "rb") as f:
        append("grows", f.read(), "--npy", "--axis=1", pipe=True)
    model = np.concatenate([model, block], 1)
    for args, data in ((["--axis=3"], b""), (["--axis=-4"], b""), (["--axis=1"], b"xyz"), (["--axis=2"], bytes(model.nbytes // model.shape[2])),
                       (["--axis=0", "--npy"], b"no numpy file")):
        reason = append("grows", data, *args, code=1)
        tally.check(len(reason.splitlines()) == 1 and "grows" in reason, f"{args}: {reason}")
    tally.equal(now("grows"), model.tobytes(), f"{target}: refused appends change nothing")
    append("lines", b"e\nf\n", "--axis=1")
    append("lines", b"1\n2\n3\n4\n5\n6\n", pipe=True)
    append("lines", b"1\n2\n", code=1)
    tally.equal(now("lines").split(), b"a b e c d f 1 2 3 4 5 6".split(), f"{target}: lines")


def main():
    options, tally = harness.arguments(__doc__), harness.Tally()
    rng = np.random.default_rng(options.seed)
    with harness.folder(options.keep) as folder:
        models = file_models(os.path.join(folder, "made"), rng)
        for target, container in ((os.path.join(folder, "mounted.h5"), False), ("iod:" + os.path.join(folder, "container"), True)):
            subprocess.run([options.bin, "create", target], check=True)
            with harness.mounted(options.bin, target, "--read-write") as mount:
                models += mount_models(target, mount, container)
                refusals(options, tally, target, mount)
                strings(options, tally, target, mount)
                open_files(tally, mount)
            appended(options, tally, target)
        external(options, tally, folder)
        for target in dict.fromkeys(target for target, _ in models):
            for number in range(SESSIONS):
                session(options, tally, target, [m for t, m in models if t == target], rng, number)
    tally.finish()


main()
