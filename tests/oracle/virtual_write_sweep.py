#!/usr/bin/env python3
"""Writes to virtual datasets in a mount, by `h5dir write` and `h5dir cp`: h5py reads the virtual datasets and their sources."""
import errno
import mmap
import os
import random
import signal
import subprocess
import time

import h5py
import numpy as np

import harness

ROUNDS = 100


def run(options, *args, data=None, code=0):
    done = subprocess.run([options.bin, *args], capture_output=True, input=data, timeout=120)
    assert done.returncode == code, (args, done)
    return done.stderr.decode()


def source_of(f, name, **how):
    return h5py.VirtualSource(".", name, **how)


def make(path, libver="latest"):
    """A file of sources in several layouts, and virtual datasets of them. Returns the elements without a source."""
    base = np.arange(24, dtype="<i4").reshape(4, 6)
    with h5py.File(path, "w", libver=("v110", "latest") if libver == "latest" else ("earliest", "v110")) as f:
        f["plain"] = base
        f.create_dataset("chunked", data=base + 100, chunks=(2, 4), compression="gzip", maxshape=(None, 6))
        f.create_dataset("compact", data=np.arange(6, dtype="<i4"), dtype="<i4")
        f.create_dataset("unwritten", (4, 6), "<i4", chunks=(3, 3), fillvalue=7)
        f.create_dataset("big", data=(base + 200).astype(">i8"))
        f.create_dataset("float", data=(base + 300).astype("<f4"), chunks=(2, 2))
        for i in range(3):
            f[f"part{i}"] = base[:2] + 1000 * i
        pairs = np.array([(i, i / 2) for i in range(6)], dtype=[("a", "<i4"), ("b", "<f8")])
        f["pairs"] = pairs

        def virtual(name, shape, parts, dtype="<i4", maxshape=None, fill=-1):
            layout = h5py.VirtualLayout(shape, dtype, maxshape=maxshape)
            for at, source, select in parts:
                d = f[source]
                layout[at] = h5py.VirtualSource(".", source, d.shape, d.dtype, d.maxshape)[select]
            f.create_virtual_dataset(name, layout, fillvalue=None if dtype == pairs.dtype else fill)

        everything = np.s_[:, :]
        virtual("rows", (12, 6), [(np.s_[4 * i:4 * i + 4], name, everything) for i, name in enumerate(("plain", "chunked", "unwritten"))])
        virtual("interleaved", (4, 12), [(np.s_[:, 0::2], "plain", everything), (np.s_[:, 1::2], "chunked", everything)])
        virtual("stacked", (3, 4, 6), [(np.s_[i], name, everything) for i, name in enumerate(("unwritten", "chunked", "plain"))])
        virtual("holes", (6, 8), [(np.s_[1:5, 1:7], "plain", everything)])
        virtual("overlap", (6, 6), [(np.s_[0:4], "plain", everything), (np.s_[2:6], "unwritten", everything)])
        virtual("converted", (8, 6), [(np.s_[0:4], "big", everything), (np.s_[4:8], "float", everything)])
        virtual("doubles", (8, 6), [(np.s_[0:4], "chunked", everything), (np.s_[4:8], "float", everything)], "<f8")
        virtual("small", (6,), [(np.s_[:], "compact", np.s_[:])])
        virtual("records", (3,), [(np.s_[:], "pairs", np.s_[::2])], pairs.dtype)
        virtual("nested", (2, 12), [(np.s_[:], "interleaved", np.s_[1:3])])
        grows = h5py.VirtualLayout((4, 6), "<i4", maxshape=(None, 6))
        grows[0:h5py.h5s.UNLIMITED, :] = h5py.VirtualSource(f["chunked"])[0:h5py.h5s.UNLIMITED, :]
        f.create_virtual_dataset("unlimited", grows)
        plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        plist.set_layout(h5py.h5d.VIRTUAL)
        at, one = h5py.h5s.create_simple((6, 6), (h5py.h5s.UNLIMITED, 6)), h5py.h5s.create_simple((2, 6))
        at.select_hyperslab((0, 0), (h5py.h5s.UNLIMITED, 1), (2, 1), (2, 6))
        one.select_hyperslab((0, 0), (1, 1), None, (2, 6))
        plist.set_virtual(at, b".", b"part%b", one)
        h5py.h5d.create(f.id, b"numbered", h5py.h5t.py_create(np.dtype("<i4")), h5py.h5s.create_simple((6, 6), (h5py.h5s.UNLIMITED, 6)), plist)
        return [name for name in f if f[name].is_virtual]


def refused(t, what, number, call, path=None, word=None):
    try:
        call()
        t.check(False, f"{what}: taken")
    except OSError as e:
        t.equal(errno.errorcode[e.errno], errno.errorcode[number], what)
    if path:
        reason = os.getxattr(path, "user.h5dir.error").decode()
        t.check(len(reason) > 10 and (word or "") in reason, f"{what}: {reason}")


def write_random(t, options, path, names, rng):
    """Random writes, whole elements and parts of them; all files show them, and h5py reads them."""
    with h5py.File(path) as f:
        shapes = {name: (f[name].shape, f[name].dtype) for name in names}
    with harness.mounted(options.bin, path, "--read-write") as m:
        sources = {name: os.open(f"{m}/{name}", os.O_RDONLY) for name in ("plain", "chunked", "unwritten")}
        for turn in range(60):
            name = names[int(rng.integers(len(names)))]
            shape, dtype = shapes[name]
            before = bytearray(harness.read(f"{m}/{name}"))
            n = int(np.prod(shape))
            start = int(rng.integers(n))
            end = min(n, start + int(rng.integers(1, 1 + n // 2)))
            if dtype.names:
                values = np.zeros(end - start, dtype)
                values["a"], values["b"] = rng.integers(0, 999, end - start), rng.random(end - start)
            else:
                values = rng.integers(-5000, 5000, end - start).astype(dtype)
            data, at = values.tobytes(), start * dtype.itemsize
            if name not in ("doubles", "converted") and len(data) > 3 and rng.random() < 0.4:
                data, at = data[1:-1], at + 1
            fd = os.open(f"{m}/{name}", (os.O_RDWR, os.O_WRONLY)[turn % 2])
            try:
                wrote = os.pwrite(fd, data, at)
            except OSError as e:
                wrote = -e.errno
            os.close(fd)
            if name == "holes":
                mask = np.zeros((6, 8), bool)
                mask[1:5, 1:7] = True
                whole = mask.reshape(-1)[at // 4:-(-(at + len(data)) // 4)].all()
                t.equal(wrote, len(data) if whole else -errno.EPERM, f"{name}: {at} {len(data)}")
                if not whole:
                    data = b""
            else:
                t.equal(wrote, len(data), f"{name}: {at} {len(data)}")
            before[at:at + len(data)] = data
            t.equal(harness.read(f"{m}/{name}"), bytes(before), f"{name} after {turn} writes")
            # Descriptors that were open before show what was written through.
            if turn % 10 == 0:
                time.sleep(0.05)
                for source, fd in sources.items():
                    t.equal(os.pread(fd, 1 << 16, 0), harness.read(f"{m}/{source}"), f"{source}: an open file after {name}")
        for fd in sources.values():
            os.close(fd)
        shown = {name: harness.read(f"{m}/{name}") for name in [*names, "plain", "chunked", "unwritten", "big", "float", "pairs"]}
    t.check("belong to no structure" not in run(options, "check", "--data", path), "no lost space")
    with h5py.File(path) as f:
        for name, want in shown.items():
            t.equal(f[name][()].tobytes(), want, f"h5py reads {name}")


def others(t, options, path):
    """Mappings, fallocate, copies, and the commands."""
    values = (np.arange(72, dtype="<i4") * 3).reshape(12, 6)
    with harness.mounted(options.bin, path, "--read-write") as m:
        rows = f"{m}/rows"
        with open(rows, "r+b") as f, mmap.mmap(f.fileno(), 0) as mapped:
            mapped[:] = values.tobytes()
            mapped.flush()
        t.equal(harness.read(f"{m}/chunked"), values[4:8].tobytes(), "a mapping")
        with open(f"{m}/holes", "r+b") as f, mmap.mmap(f.fileno(), 0) as mapped:
            mapped[4 * 9:4 * 11] = np.array([8, 9], "<i4").tobytes()
            mapped.flush()
        t.equal(np.frombuffer(harness.read(f"{m}/plain"), "<i4")[:2].tolist(), [8, 9], "a mapping with elements of no source")
        fd = os.open(rows, os.O_RDWR)
        zero = subprocess.run(["fallocate", "-z", "-n", "-o", "96", "-l", "24", rows], capture_output=True)
        t.equal(zero.returncode, 0, f"fallocate -z {zero.stderr}")
        t.equal(harness.read(f"{m}/chunked")[:24], bytes(24), "zeros are written through")
        source = os.open(f"{m}/plain", os.O_RDONLY)
        copied = os.copy_file_range(source, fd, 96, 0, 4 * 48)
        t.equal((copied, harness.read(f"{m}/unwritten")), (96, harness.read(f"{m}/plain")), "copy_file_range")
        os.close(source)
        refused(t, "truncate to less", errno.EPERM, lambda: os.ftruncate(fd, 24), rows, "sources")
        refused(t, "truncate to more", errno.EFBIG, lambda: os.ftruncate(fd, 24 * 100), rows, "sources")
        refused(t, "write past the end", errno.EFBIG, lambda: os.pwrite(fd, b"1234", 12 * 24), rows, "sources")
        refused(t, "a write that ends past the end", errno.EFBIG, lambda: os.pwrite(fd, b"12345678", 12 * 24 - 4), rows, "sources")
        refused(t, "O_TRUNC", errno.EPERM, lambda: open(rows, "wb").close(), rows, "sources")
        os.close(fd)
        refused(t, "the shape", errno.EOPNOTSUPP, lambda: os.setxattr(rows, "user.h5dir.shape", b"[13,6]"), rows)
        refused(t, "an element of no source", errno.EPERM, lambda: poke(f"{m}/holes", b"1234", 4 * 8), f"{m}/holes", "[1, 0]")
        before = harness.read(f"{m}/holes")
        refused(t, "some elements of no source", errno.EPERM, lambda: poke(f"{m}/holes", bytes(range(64)), 4 * 10), f"{m}/holes", "[1, 7]")
        t.equal(harness.read(f"{m}/holes"), before, "a refused write writes nothing")
        refused(t, "a value that the source has not", errno.ERANGE, lambda: poke(f"{m}/doubles", np.float64(0.5).tobytes(), 0), f"{m}/doubles", "type")
        refused(t, "a value between two floats", errno.ERANGE, lambda: poke(f"{m}/doubles", np.float64(0.1).tobytes(), 8 * 24), f"{m}/doubles", "type")
        poke(f"{m}/doubles", np.float64([0.25, np.nan, np.inf, -0.0]).tobytes(), 8 * 24)
        t.check(np.array_equal(np.frombuffer(harness.read(f"{m}/float"), "<f4")[:4], np.float32([0.25, np.nan, np.inf, -0.0]), True), "floats")
        subprocess.run(["dd", f"of={rows}", "conv=notrunc", "bs=7", "status=none"], input=values.tobytes(), check=True)
        t.equal(harness.read(rows), values.tobytes(), "dd conv=notrunc")
    run(options, "write", "--select", "3:5,::2", f"{path}:/rows", data=np.arange(6, dtype="<i4").tobytes())
    values[3:5, ::2] = np.arange(6).reshape(2, 3)
    with h5py.File(path) as f:
        t.check(np.array_equal(f["rows"][()], values), "h5dir write --select")
    why = run(options, "write", "--select", "0:2,:", f"{path}:/holes", data=bytes(64), code=1)
    t.check("source" in why and why.count("\n") == 1, why)
    raw = path + ".raw"
    values[:] = np.arange(72).reshape(12, 6) * 5
    values.tofile(raw)
    run(options, "cp", raw, f"{path}:/rows")
    with h5py.File(path) as f:
        t.check(f["rows"].is_virtual and np.array_equal(f["rows"][()], values) and np.array_equal(f["chunked"][()], values[4:8]), "h5dir cp")
    values[:11].tofile(raw)
    t.check("288" in run(options, "cp", raw, f"{path}:/rows", code=1), "a file of another size")
    with h5py.File(path) as f:
        t.check(np.array_equal(f["rows"][()], values), "it changes nothing")


def poke(path, data, at):
    fd = os.open(path, os.O_WRONLY)
    try:
        assert os.pwrite(fd, data, at) == len(data)
    finally:
        os.close(fd)


def elsewhere(t, options, folder):
    """Missing sources, strings, and loops: refused with reasons."""
    path = os.path.join(folder, "elsewhere.h5")
    with h5py.File(os.path.join(folder, "other.h5"), "w") as f:
        f["x"] = np.arange(4, dtype="<i4")
    with h5py.File(path, "w", libver="latest") as f:
        f["own"] = np.arange(4, dtype="<i4")
        f["strings"] = np.array(["a", "b"], object)
        f["texts"] = np.array([b"a", b"b", b"c", b"d"])
        for name, file, source, dtype in (("other", "other.h5", "x", "<i4"), ("missing", ".", "none", "<i4"), ("strange", ".", "texts", "<i4")):
            layout = h5py.VirtualLayout((8,), dtype)
            layout[:4] = h5py.VirtualSource(".", "own", (4,), "<i4")
            layout[4:] = h5py.VirtualSource(file, source, (4,), "<i4")
            f.create_virtual_dataset(name, layout)
        layout = h5py.VirtualLayout((2,), h5py.string_dtype())
        layout[:] = h5py.VirtualSource(".", "strings", (2,), h5py.string_dtype())
        f.create_virtual_dataset("words", layout)
        for name in ("loop", "twice"):
            layout = h5py.VirtualLayout((4,), "<i4")
            layout[:] = h5py.VirtualSource(".", name, (4,), "<i4")
            if name == "twice":
                layout[:] = h5py.VirtualSource(".", name, (4,), "<i4")
            f.create_virtual_dataset(name, layout)
    before = harness.read(path)
    with harness.mounted(options.bin, path, "--read-write", "--external", "--external-write", f"--external-root={folder}") as m:
        poke(f"{m}/other", bytes(16), 16)
        t.equal(harness.read(f"{m}/other")[16:], bytes(16), "another file")
        poke(f"{m}/other", np.arange(4, dtype="<i4").tobytes(), 0)
        refused(t, "a missing source", errno.EIO, lambda: poke(f"{m}/missing", bytes(32), 0), f"{m}/missing", "none")
        poke(f"{m}/missing", np.arange(4, dtype="<i4").tobytes(), 0)
        refused(t, "a source of another type", errno.EOPNOTSUPP, lambda: poke(f"{m}/strange", bytes(32), 0), f"{m}/strange")
        refused(t, "strings", errno.EPERM, lambda: poke(f"{m}/words", b"c\nd\n", 0), f"{m}/words", "elsewhere")
        for name in ("loop", "twice"):
            began = time.time()
            refused(t, name, errno.ELOOP, lambda: poke(f"{m}/{name}", bytes(16), 0), f"{m}/{name}")
            t.check(time.time() - began < 30, f"{name}: bounded")
        t.equal(harness.read(f"{m}/own"), np.arange(4, dtype="<i4").tobytes(), "refused writes write nothing")
        t.check(harness.peak_memory(m) < 300, "memory")
    with h5py.File(os.path.join(folder, "other.h5")) as f:
        t.equal(f["x"][()].tolist(), [0, 0, 0, 0], "the other file is written")
    t.check(len(harness.read(path)) <= len(before) + 8192, "nothing grows")
    swmr = os.path.join(folder, "swmr.h5")
    with h5py.File(swmr, "w", libver="latest") as f:
        f.create_dataset("x", data=np.arange(4, dtype="<i4"), chunks=(4,), maxshape=(None,))
        layout = h5py.VirtualLayout((4,), "<i4")
        layout[:] = h5py.VirtualSource(".", "x", (4,), "<i4")
        f.create_virtual_dataset("v", layout)
    with harness.mounted(options.bin, swmr, "--read-write", "--swmr") as m:
        refused(t, "SWMR", errno.EPERM, lambda: poke(f"{m}/v", bytes(4), 0), f"{m}/v")


def hostile(t, options, folder, rng):
    """Mappings that overlap, huge extents, and damage: bounded in time and memory, and no crash."""
    path = os.path.join(folder, "hostile.h5")
    with h5py.File(path, "w", libver="latest") as f:
        f["own"] = np.arange(1 << 20, dtype="u1")
        f["ids"] = np.arange(8, dtype="<i4")

        def create(name, shape, parts, dtype="u1"):
            plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
            plist.set_layout(h5py.h5d.VIRTUAL)
            for (start, stride, count, block), source, (s_start, s_stride, s_count, s_block) in parts:
                at, of = h5py.h5s.create_simple((shape,)), h5py.h5s.create_simple(f[source].shape)
                at.select_hyperslab((start,), (count,), (stride,), (block,))
                of.select_hyperslab((s_start,), (s_count,), (s_stride,), (s_block,))
                plist.set_virtual(at, b".", source.encode(), of)
            h5py.h5d.create(f.id, name.encode(), h5py.h5t.py_create(np.dtype(dtype)), h5py.h5s.create_simple((shape,)), plist)

        create("huge", 1 << 40, [((1 << 39, 1 << 10, 1 << 10, 1), "own", (0, 1, 1, 1 << 10))])
        create("many", 4, [((0, 1, 1, 4), "ids", (i % 4, 1, 1, 4)) for i in range(200)], "<i4")
        create("too many", 4, [((0, 1, 1, 4), "ids", (i % 4, 1, 1, 4)) for i in range(2000)], "<i4")
        create("strided", 1 << 19, [((0, 1, 1, 1 << 19), "own", (0, 2, 1 << 19, 1))])
    with harness.mounted(options.bin, path, "--read-write") as m:
        began = time.time()
        poke(f"{m}/huge", b"x", 1 << 39)
        refused(t, "a gap of a huge dataset", errno.EPERM, lambda: poke(f"{m}/huge", bytes(1 << 20), 1 << 39), f"{m}/huge", str((1 << 39) + 1))
        poke(f"{m}/many", np.array([4, 5, 6, 7], "<i4").tobytes(), 0)
        t.equal(np.frombuffer(harness.read(f"{m}/ids"), "<i4").tolist(), [4, 4, 4, 4, 5, 6, 7, 7], "every mapping is written, the last one last")
        refused(t, "too many mappings", errno.EIO, lambda: poke(f"{m}/too many", bytes(16), 0), f"{m}/too many")
        for at in range(0, 1 << 19, 1 << 17):
            poke(f"{m}/strided", bytes(range(256)) * 512, at)
        t.check(harness.read(f"{m}/strided") == bytes(range(256)) * 2048, "single elements")
        t.check(harness.read(f"{m}/own")[1::2][:4] == bytes([1, 3, 5, 7]), "elements between them stay")
        t.check(time.time() - began < 120, f"{time.time() - began} s")
        t.check(harness.peak_memory(m) < 400, "memory")
    whole = harness.read(os.path.join(folder, "latest.h5"))
    mutant = os.path.join(folder, "mutant.h5")
    for _ in range(60):
        damaged = bytearray(whole)
        for _ in range(rng.randrange(1, 8)):
            damaged[rng.randrange(len(damaged))] ^= 1 << rng.randrange(8)
        with open(mutant, "wb") as f:
            f.write(damaged)
        for name in ("rows", "interleaved", "numbered"):
            done = subprocess.run([options.bin, "write", "--select", "0", f"{mutant}:/{name}"], input=bytes(48 if name == "interleaved" else 24),
                                  capture_output=True, timeout=60)
            t.check(0 <= done.returncode < 100 and b"panic" not in done.stderr, f"{name}: {done.returncode} {done.stderr[-200:]}")


def rounds(t, options, path):
    """Rounds of writes do not let the file grow."""
    sizes = []
    with harness.mounted(options.bin, path, "--read-write") as m:
        for turn in range(ROUNDS):
            fd = os.open(f"{m}/rows", os.O_WRONLY)
            os.pwrite(fd, (np.arange(72, dtype="<i4") * turn).tobytes(), 0)
            os.fsync(fd)
            os.close(fd)
            sizes.append(os.stat(path).st_size)
        t.check(sizes[-1] <= sizes[9] + 4096, f"the file grows: {sizes[9]} to {sizes[-1]} bytes")


def killed(t, options, folder, rng):
    """Nothing that fsync of the virtual dataset acknowledged is lost by a kill."""
    path, point = os.path.join(folder, "killed.h5"), os.path.join(folder, "killed")
    os.mkdir(point)
    make(path)
    for turn in range(8):
        daemon = harness.foreground(options.bin, path, point, "--read-write")
        try:
            end, i = time.time() + 0.1 + rng.random() * 0.5, 0
            fd = os.open(f"{point}/rows", os.O_WRONLY)
            while time.time() < end:
                i += 1
                os.pwrite(fd, np.full(72, turn * 100000 + i, "<i4").tobytes(), 0)
                os.fsync(fd)
            os.pwrite(fd, np.full(72, turn * 100000 + i + 1, "<i4").tobytes(), 0)
        finally:
            daemon.send_signal(signal.SIGKILL)
            daemon.wait()
            try:
                os.close(fd)
            except OSError:
                pass
            subprocess.run([options.bin, "umount", point], stdin=subprocess.DEVNULL, capture_output=True)
        run(options, "recover", path)
        run(options, "check", "--data", path)
        with h5py.File(path) as f:
            rows, last = f["rows"][()], turn * 100000 + i
            t.check((rows == rows[0, 0]).all(), "a write to three sources is whole after a kill")
            t.check(rows[0, 0] in (last, last + 1), f"{rows[0, 0]}, {last} was acknowledged")
            t.check(all((f[name][()] == rows[0, 0]).all() for name in ("plain", "chunked", "unwritten")), "the sources have it")


def main():
    options = harness.arguments(__doc__.splitlines()[0])
    t, rng = harness.Tally(), np.random.default_rng(options.seed)
    with harness.folder(options.keep) as folder:
        for libver in ("earliest", "latest"):
            path = os.path.join(folder, libver + ".h5")
            names = make(path, libver)
            for _ in range(2):
                write_random(t, options, path, names, rng)
            others(t, options, path)
            rounds(t, options, path)
        elsewhere(t, options, folder)
        hostile(t, options, folder, random.Random(options.seed))
        killed(t, options, folder, random.Random(options.seed))
    t.finish()


if __name__ == "__main__":
    main()
