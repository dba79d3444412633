#!/usr/bin/env python3
"""Writes through virtual datasets to sources in other HDF5 files: h5py reads these files and the virtual datasets."""
import contextlib
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
from virtual_write_sweep import poke, refused, run

ROUNDS = 100
BASE = np.arange(24, dtype="<i4").reshape(4, 6)
EVERYTHING = np.s_[:, :]


def mounted(options, folder, name, *more):
    return harness.mounted(options.bin, os.path.join(folder, name), "--read-write", "--external-write", f"--external-root={folder}", *more)


def virtual(f, name, shape, parts, dtype="<i4", fill=-1):
    """`parts`: where, file, dataset with its shape and type, selection."""
    layout = h5py.VirtualLayout(shape, dtype)
    for at, file, source, of, select in parts:
        layout[at] = h5py.VirtualSource(file, source, of[0], of[1])[select]
    f.create_virtual_dataset(name, layout, fillvalue=fill)


def make(folder, libver):
    """Three files of sources, files of one block each, and files of virtual datasets. Returns the names of those in main.h5."""
    versions = ("v110", "latest") if libver == "latest" else ("earliest", "v110")
    of, small = ((4, 6), "<i4"), ((2, 6), "<i4")

    def new(name):
        return h5py.File(os.path.join(folder, name), "w", libver=versions)

    with new("a.h5") as f:
        f["plain"] = BASE
        f.create_dataset("deep/er/chunked", data=BASE + 100, chunks=(2, 4), compression="gzip", maxshape=(None, 6))
        f["soft"] = h5py.SoftLink("/deep/er/chunked")
    with new("b.h5") as f:
        f.create_dataset("unwritten", (4, 6), "<i4", chunks=(3, 3), fillvalue=7)
        f.create_dataset("late", (4, 6), "<i4")
        f.create_dataset("compact", data=np.arange(6, dtype="<i4"), dtype="<i4")
        f.create_dataset("big", data=(BASE + 200).astype(">i8"))
    os.makedirs(os.path.join(folder, "sub"), exist_ok=True)
    with new("sub/c.h5") as f:
        f.create_dataset("x", data=BASE + 300, chunks=(1, 6), shuffle=True, compression="gzip", fletcher32=True)
        virtual(f, "inner", (8, 6), [(np.s_[:4], "../a.h5", "plain", of, EVERYTHING), (np.s_[4:], "c.h5", "x", of, EVERYTHING)])
    for i in range(3):
        with new(f"block{i}.h5") as f:
            f["x"] = BASE[:2] + 1000 * i
    os.link(os.path.join(folder, "a.h5"), os.path.join(folder, "hard.h5"))
    with new("main.h5") as f:
        f["own"] = BASE + 400
        f["to a"] = h5py.ExternalLink("a.h5", "/plain")
        f["to b"] = h5py.ExternalLink("b.h5", "/late")
        f["to c"] = h5py.ExternalLink("sub/c.h5", "/x")
        rows = [("a.h5", "plain"), ("b.h5", "unwritten"), (".", "own"), ("sub/c.h5", "x"), ("b.h5", "late"), ("./a.h5", "soft")]
        virtual(f, "rows", (24, 6), [(np.s_[4 * i:4 * i + 4], file, name, of, EVERYTHING) for i, (file, name) in enumerate(rows)])
        virtual(f, "interleaved", (4, 12), [(np.s_[:, 0::2], "a.h5", "plain", of, EVERYTHING), (np.s_[:, 1::2], "b.h5", "late", of, EVERYTHING)])
        virtual(f, "stacked", (3, 4, 6), [(np.s_[i], file, name, of, EVERYTHING) for i, (file, name) in enumerate(rows[3:])])
        virtual(f, "same file", (8, 6), [(np.s_[:4], "main.h5", "own", of, EVERYTHING), (np.s_[4:], "hard.h5", "plain", of, EVERYTHING)])
        virtual(f, "absolute", (4, 6), [(np.s_[:], os.path.join(folder, "b.h5"), "late", of, EVERYTHING)])
        virtual(f, "converted", (8, 6), [(np.s_[:4], "b.h5", "big", ((4, 6), ">i8"), EVERYTHING), (np.s_[4:], ".", "own", of, EVERYTHING)])
        virtual(f, "holes", (6, 8), [(np.s_[1:5, 1:7], "a.h5", "plain", of, EVERYTHING)])
        virtual(f, "overlap", (6, 6), [(np.s_[0:4], "a.h5", "plain", of, EVERYTHING), (np.s_[2:6], "b.h5", "late", of, EVERYTHING)])
        virtual(f, "small", (6,), [(np.s_[:], "b.h5", "compact", ((6,), "<i4"), np.s_[:])])
        virtual(f, "nested", (2, 6), [(np.s_[:], "sub/c.h5", "inner", ((8, 6), "<i4"), np.s_[3:5, :])])
        virtual(f, "blocks", (6, 6), [(np.s_[2 * i:2 * i + 2], f"block{i}.h5", "x", small, EVERYTHING) for i in range(3)])
        with h5py.File(os.path.join(folder, "a.h5")) as a:
            grows = h5py.VirtualLayout((4, 6), "<i4", maxshape=(None, 6))
            d = a["deep/er/chunked"]
            source = h5py.VirtualSource("a.h5", "/deep/er/chunked", d.shape, d.dtype, d.maxshape)
            grows[0:h5py.h5s.UNLIMITED, :] = source[0:h5py.h5s.UNLIMITED, :]
        f.create_virtual_dataset("unlimited", grows)
        plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        plist.set_layout(h5py.h5d.VIRTUAL)
        at, one = h5py.h5s.create_simple((6, 6), (h5py.h5s.UNLIMITED, 6)), h5py.h5s.create_simple((2, 6))
        at.select_hyperslab((0, 0), (h5py.h5s.UNLIMITED, 1), (2, 1), (2, 6))
        one.select_hyperslab((0, 0), (1, 1), None, (2, 6))
        plist.set_virtual(at, b"block%b.h5", b"x", one)
        h5py.h5d.create(f.id, b"numbered", h5py.h5t.py_create(np.dtype("<i4")), h5py.h5s.create_simple((6, 6), (h5py.h5s.UNLIMITED, 6)), plist)
        return [name for name in f if isinstance(f.get(name, getlink=True), h5py.HardLink) and f[name].is_virtual]


FILES = ("a.h5", "b.h5", "sub/c.h5", "block0.h5", "block1.h5", "block2.h5", "main.h5")


def contents(folder):
    """All elements of all datasets, as h5py reads them."""
    found = {}
    for file in FILES:
        with h5py.File(os.path.join(folder, file)) as f:
            f.visititems(lambda name, d: found.update({(file, name): d[()].tobytes()}) if isinstance(d, h5py.Dataset) else None)
    return found


def check_files(t, options, folder, what):
    for file in FILES:
        path = os.path.join(folder, file)
        done = subprocess.run([options.bin, "check", "--data", f"--external-root={folder}", path], capture_output=True, timeout=60)
        t.equal(done.returncode, 0, f"{what}: check {file}: {done.stdout[-300:]}{done.stderr[-300:]}")
        t.check(not os.path.exists(path + ".h5dir-journal"), f"{what}: a journal beside {file}")


def write_random(t, options, folder, names, rng):
    """Random writes: the virtual datasets and links to the sources show them at once, h5py afterwards; the model is h5py."""
    with h5py.File(os.path.join(folder, "main.h5")) as f:
        shapes = {name: f[name].shape for name in names}
    # An oracle: libhdf5 makes the same writes to copies of the files.
    twin = os.path.join(folder, "twin")
    subprocess.run(["sh", "-c", 'rm -rf twin && mkdir -p twin/sub && cp *.h5 twin && cp sub/c.h5 twin/sub && ln -f twin/a.h5 twin/hard.h5'], cwd=folder, check=True)
    links = {"to a": ("a.h5", "plain"), "to b": ("b.h5", "late"), "to c": ("sub/c.h5", "x")}
    with mounted(options, folder, "main.h5") as m:
        fds = {name: os.open(f"{m}/{name}", os.O_RDONLY) for name in links}
        for turn in range(60):
            name = names[int(rng.integers(len(names)))]
            n = int(np.prod(shapes[name]))
            start = int(rng.integers(n))
            end = min(n, start + int(rng.integers(1, 1 + n // 2)))
            values = rng.integers(-5000, 5000, end - start).astype("<i4")
            try:
                poke(f"{m}/{name}", values.tobytes(), 4 * start)
                wrote = True
            except PermissionError:
                wrote = False
            t.equal(wrote, libhdf5_writes(twin, name, start, values), f"{name}: {start} {end}")
            shown = np.frombuffer(harness.read(f"{m}/{name}"), "<i4")
            if wrote:
                t.check((shown[start:end] == values).all() or name in ("overlap", "absolute"), f"{name} shows what was written")
            if turn % 6 == 0:
                time.sleep(0.05)
                for link, (file, dataset) in links.items():
                    with h5py.File(os.path.join(twin, file)) as f:
                        want = f[dataset][()].tobytes()
                    t.equal(os.pread(fds[link], 1 << 16, 0), want, f"an open file of {dataset} after {name}")
                    t.equal(harness.read(f"{m}/{link}"), want, f"{dataset} by its link after {name}")
        for fd in fds.values():
            os.close(fd)
    want, got = contents(twin), contents(folder)
    # The absolute name leads out of the twin.
    for key, value in want.items():
        if key != ("main.h5", "absolute"):
            t.equal(got[key], value, f"{key}")
    subprocess.run(["rm", "-rf", twin], check=True)
    check_files(t, options, folder, "random writes")


def libhdf5_writes(twin, name, start, values):
    """Writes elements by h5py; an absolute name is that of the twin."""
    if name == "absolute":
        with h5py.File(os.path.join(twin, "b.h5"), "r+") as f:
            return write_elements(f["late"], start, values)
    # libhdf5 refuses elements that several mappings have; they go to all their sources.
    if name == "overlap":
        for file, dataset, first in (("a.h5", "plain", 0), ("b.h5", "late", 12)):
            low, high = max(start, first), min(start + len(values), first + 24)
            with h5py.File(os.path.join(twin, file), "r+") as f:
                if low < high:
                    write_elements(f[dataset], low - first, values[low - start:high - start])
        return True
    with h5py.File(os.path.join(twin, "main.h5"), "r+") as f:
        return write_elements(f[name], start, values)


def write_elements(d, start, values):
    if d.name == "/holes":
        space = d.id.get_space()
        space.select_elements(np.stack(np.unravel_index(np.arange(start, start + len(values)), d.shape), axis=1).astype("u8"))
        try:
            d.id.write(h5py.h5s.create_simple((len(values),)), space, values)
            return True
        except OSError:
            return False
    # libhdf5 refuses some selections of points.
    elements = d[()].reshape(-1)
    elements[start:start + len(values)] = values
    d[...] = elements.reshape(d.shape)
    return True


def others(t, options, folder):
    """Other ways to write, and what is refused."""
    values = (np.arange(144, dtype="<i4") * 3).reshape(24, 6)
    with mounted(options, folder, "main.h5") as m:
        rows = f"{m}/rows"
        with open(rows, "r+b") as f, mmap.mmap(f.fileno(), 0) as mapped:
            mapped[:] = values.tobytes()
            mapped.flush()
        t.equal(harness.read(f"{m}/to c"), values[12:16].tobytes(), "a mapping")
        t.equal(harness.read(rows), values.tobytes(), "the virtual dataset after a mapping")
        fd = os.open(rows, os.O_RDWR)
        zero = subprocess.run(["fallocate", "-z", "-n", "-o", "100", "-l", "300", rows], capture_output=True)
        t.equal(zero.returncode, 0, f"fallocate -z {zero.stderr}")
        want = bytearray(values.tobytes())
        want[100:400] = bytes(300)
        t.equal(harness.read(rows), bytes(want), "zeros are written through")
        refused(t, "truncate to less", errno.EPERM, lambda: os.ftruncate(fd, 24), rows, "sources")
        refused(t, "truncate to more", errno.EFBIG, lambda: os.ftruncate(fd, 24 * 100), rows, "sources")
        refused(t, "write past the end", errno.EFBIG, lambda: os.pwrite(fd, b"1234", 24 * 24), rows, "sources")
        refused(t, "a write that ends past the end", errno.EFBIG, lambda: os.pwrite(fd, b"12345678", 24 * 24 - 4), rows, "sources")
        refused(t, "O_TRUNC", errno.EPERM, lambda: open(rows, "wb").close(), rows, "sources")
        refused(t, "append", errno.EFBIG, lambda: append(rows), rows, "sources")
        refused(t, "the shape", errno.EOPNOTSUPP, lambda: os.setxattr(rows, "user.h5dir.shape", b"[25,6]"), rows)
        os.close(fd)
        before = harness.read(f"{m}/holes")
        refused(t, "no source", errno.EPERM, lambda: poke(f"{m}/holes", bytes(range(64)), 4 * 10), f"{m}/holes", "[1, 7]")
        t.equal(harness.read(f"{m}/holes"), before, "a refused write writes nothing")
        subprocess.run(["dd", f"of={rows}", "conv=notrunc", "bs=7", "status=none"], input=values.tobytes(), check=True)
        t.equal(harness.read(rows), values.tobytes(), "dd conv=notrunc")
        refused(t, "a file of the source", errno.EROFS, lambda: poke(f"{m}/to a", bytes(4), 0))
        source = os.open(f"{m}/own", os.O_RDONLY)
        target = os.open(rows, os.O_RDWR)
        t.equal(os.copy_file_range(source, target, 96, 0, 0), 96, "copy_file_range")
        values[:4] = values[8:12]
        os.close(source), os.close(target)
        subprocess.run(["cp", "--no-preserve=all", rows, f"{folder}/rows.raw"], check=True)
        with open(f"{folder}/rows.raw", "rb") as f:
            t.equal(f.read(), values.tobytes(), "cp of the virtual dataset")
    check_files(t, options, folder, "others")
    found = contents(folder)
    t.equal(found["b.h5", "late"], values[16:20].tobytes(), "h5py reads a source")
    t.equal(found["main.h5", "rows"], values.tobytes(), "h5py reads the virtual dataset")


def commands(t, options, folder):
    """`h5dir write` and `h5dir cp` with the options of a mount."""
    main, external = os.path.join(folder, "main.h5"), ("--external-write", f"--external-root={folder}")
    values = (np.arange(144, dtype="<i4") * 11).reshape(24, 6)
    why = run(options, "write", f"{main}:/rows", data=values.tobytes(), code=1)
    t.check("--external-write" in why and why.count("\n") == 1, why)
    run(options, "write", *external, f"{main}:/rows", data=values.tobytes())
    t.equal(contents(folder)["main.h5", "rows"], values.tobytes(), "h5dir write")
    picked = np.arange(12 * 3, dtype="<i4")
    run(options, "write", *external, "--select", "::2,1::2", f"{main}:/rows", data=picked.tobytes())
    values[::2, 1::2] = picked.reshape(12, 3)
    found = contents(folder)
    t.equal(found["main.h5", "rows"], values.tobytes(), "h5dir write --select")
    t.equal(found["sub/c.h5", "x"], values[12:16].tobytes(), "in its file")
    raw = os.path.join(folder, "rows.raw")
    (values + 1).tofile(raw)
    run(options, "cp", raw, f"{main}:/rows", code=1)
    t.equal(contents(folder)["main.h5", "rows"], values.tobytes(), "h5dir cp without the option changes nothing")
    run(options, "cp", *external, raw, f"{main}:/rows")
    found = contents(folder)
    t.equal(found["main.h5", "rows"], (values + 1).tobytes(), "h5dir cp")
    t.equal(found["b.h5", "late"], (values[16:20] + 1).tobytes(), "in its file")
    check_files(t, options, folder, "commands")


def unwritten(t, options, folder):
    """Without a write, nothing is opened for writing: not a byte, no time and no journal changes."""
    paths = [os.path.join(folder, name) for name in FILES[:-1]]
    before = [(harness.read(path), os.stat(path).st_mtime_ns, os.stat(path).st_ctime_ns) for path in paths]
    with mounted(options, folder, "main.h5") as m:
        for name in ("rows", "numbered", "nested", "to a"):
            harness.read(f"{m}/{name}")
        os.close(os.open(f"{m}/rows", os.O_RDWR))
        poke(f"{m}/own", bytes(4), 0)
        with h5py.File(paths[0], "r+") as f:
            t.check("plain" in f, "h5py may write the source")
        before[0] = (harness.read(paths[0]), os.stat(paths[0]).st_mtime_ns, os.stat(paths[0]).st_ctime_ns)
        t.check(not any(os.path.exists(path + ".h5dir-journal") for path in paths), "no journal")
    t.equal([(harness.read(path), os.stat(path).st_mtime_ns, os.stat(path).st_ctime_ns) for path in paths], before, "no file changes")


def append(path):
    fd = os.open(path, os.O_WRONLY | os.O_APPEND)
    try:
        os.write(fd, b"1234")
    finally:
        os.close(fd)


def refusals(t, options, folder):
    """Reasons of refusals; nothing is written then."""
    of = ((4,), "<i4")
    outside = os.path.join(os.path.dirname(folder), os.path.basename(folder) + "-outside.h5")
    for path in (os.path.join(folder, "good.h5"), outside, os.path.join(folder, "x.h5dir-journal"), os.path.join(folder, ".hidden.h5")):
        with h5py.File(path, "w") as f:
            f["x"] = np.arange(4, dtype="<i4")
            f["text"] = np.array([b"a", b"b", b"c", b"d"])
    os.symlink("good.h5", os.path.join(folder, "symlink.h5"))
    with open(os.path.join(folder, "text.h5"), "w") as f:
        f.write("no HDF5 file" * 100)
    with h5py.File(os.path.join(folder, "flagged.h5"), "w", libver="latest") as f:
        f["x"] = np.arange(4, dtype="<i4")
    sources = {"missing": "none.h5", "outside": "../" + os.path.basename(outside), "symlink": "symlink.h5", "text": "text.h5",
               "journal": "x.h5dir-journal", "hidden": ".hidden.h5", "good": "good.h5", "flagged": "flagged.h5", "cycle": "cycle.h5"}
    with h5py.File(os.path.join(folder, "refused.h5"), "w", libver="latest") as f:
        f["own"] = np.arange(4, dtype="<i4")
        for name, file in sources.items():
            virtual(f, name, (8,), [(np.s_[:4], ".", "own", of, np.s_[:]), (np.s_[4:], file, "x", of, np.s_[:])])
        virtual(f, "no dataset", (8,), [(np.s_[:4], "good.h5", "x", of, np.s_[:]), (np.s_[4:], "good.h5", "none", of, np.s_[:])])
        virtual(f, "type", (8,), [(np.s_[:4], "good.h5", "x", of, np.s_[:]), (np.s_[4:], "good.h5", "text", of, np.s_[:])])
    with h5py.File(os.path.join(folder, "cycle.h5"), "w", libver="latest") as f:
        virtual(f, "x", (4,), [(np.s_[:], "refused.h5", "cycle", ((8,), "<i4"), np.s_[4:])])
    with open(os.path.join(folder, "flagged.h5"), "r+b") as f:
        flag(f, 5)
    before = {name: harness.read(os.path.join(folder, name)) for name in ("refused.h5", "good.h5", "flagged.h5", "cycle.h5", ".hidden.h5", "text.h5")}
    expected = {"missing": (errno.ENOENT, "none.h5"), "outside": (errno.EACCES, "--external-root"), "symlink": (errno.ELOOP, "symlink.h5"),
                "text": (errno.EIO, ""), "journal": (errno.EPERM, "journal"), "hidden": (errno.EACCES, "--external=all"),
                "flagged": (errno.EBUSY, "h5dir recover"), "cycle": (errno.ELOOP, "own sources"), "no dataset": (errno.EIO, "none"),
                "type": (errno.EOPNOTSUPP, "datatype")}
    with mounted(options, folder, "refused.h5") as m:
        for name, (code, word) in expected.items():
            refused(t, name, code, lambda name=name: poke(f"{m}/{name}", bytes(32), 0), f"{m}/{name}", word)
        t.equal(harness.read(f"{m}/own"), np.arange(4, dtype="<i4").tobytes(), "refused writes write nothing")
    t.equal({name: harness.read(os.path.join(folder, name)) for name in before}, before, "refused writes change no file")
    for more in ((), (f"--external-root={folder}",), ("--external=off",)):
        with harness.mounted(options.bin, os.path.join(folder, "refused.h5"), "--read-write", *more) as m:
            refused(t, f"without the option {more}", errno.EACCES, lambda: poke(f"{m}/good", bytes(32), 0), f"{m}/good", "--external-write")
    t.equal({name: harness.read(os.path.join(folder, name)) for name in before}, before, "nor do they without the option")
    t.check(not os.path.exists(os.path.join(folder, "none.h5")), "no file is created")
    os.remove(outside)


def flag(f, flags):
    """Sets the flags of a version 3 superblock, and its checksum, as a writer leaves it."""
    f.seek(0)
    block = bytearray(f.read(48))
    assert block[8] == 3
    block[11] = flags
    block[44:48] = lookup3(bytes(block[:44])).to_bytes(4, "little")
    f.seek(0)
    f.write(block)


def lookup3(data):
    """Jenkins' lookup3 of bytes, as H5_checksum_lookup3."""
    def rot(x, k):
        return (x << k | x >> (32 - k)) & 0xffffffff
    a = b = c = (0xdeadbeef + len(data)) & 0xffffffff
    while len(data) > 12:
        a, b, c = ((x + int.from_bytes(data[4 * i:4 * i + 4], "little")) & 0xffffffff for i, x in enumerate((a, b, c)))
        for k, order in ((4, 0), (6, 1), (8, 2), (16, 0), (19, 1), (4, 2)):
            if order == 0:
                a = (a - c & 0xffffffff) ^ rot(c, k)
                c = c + b & 0xffffffff
            elif order == 1:
                b = (b - a & 0xffffffff) ^ rot(a, k)
                a = a + c & 0xffffffff
            else:
                c = (c - b & 0xffffffff) ^ rot(b, k)
                b = b + a & 0xffffffff
        data = data[12:]
    data = data + bytes(12 - len(data))
    a, b, c = ((x + int.from_bytes(data[4 * i:4 * i + 4], "little")) & 0xffffffff for i, x in enumerate((a, b, c)))
    c = (c ^ b) - rot(b, 14) & 0xffffffff
    a = (a ^ c) - rot(c, 11) & 0xffffffff
    b = (b ^ a) - rot(a, 25) & 0xffffffff
    c = (c ^ b) - rot(b, 16) & 0xffffffff
    a = (a ^ c) - rot(c, 4) & 0xffffffff
    b = (b ^ a) - rot(a, 14) & 0xffffffff
    c = (c ^ b) - rot(b, 24) & 0xffffffff
    return c


def locks(t, options, folder):
    """A file has one writer, and the others learn why; it is free again when nothing is written to it."""
    a = os.path.join(folder, "a.h5")
    one, two = np.ones(24, "<i4").tobytes(), (2 * np.ones(24, "<i4")).tobytes()
    with mounted(options, folder, "main.h5", "--commit-interval=1") as m:
        with h5py.File(a, "r+"):
            refused(t, "h5py writes the source", errno.EBUSY, lambda: poke(f"{m}/rows", one, 0), f"{m}/rows", "another program has it open")
        poke(f"{m}/rows", one, 0)
        with contextlib.suppress(OSError):
            with h5py.File(a, "r+"):
                t.check(False, "h5py opened a source that is written")
        free = time.time() + 20
        while os.path.exists(a + ".h5dir-journal") and time.time() < free:
            time.sleep(0.1)
        with h5py.File(a, "r+") as f:
            t.equal(f["plain"][()].tobytes(), one, "h5py reads what was written")
            f["plain"][0] = 9
            f["added"] = BASE
        poke(f"{m}/interleaved", two, 24)
        shown = np.frombuffer(harness.read(f"{m}/rows"), "<i4").reshape(24, 6)
        t.check((shown[0, :3] == 9).all() and (shown[0, 3:] == 2).all(), f"what h5py wrote meanwhile is kept {shown[:4]}")
        fd = os.open(f"{m}/rows", os.O_RDWR)
        os.pwrite(fd, one, 0)
        done = subprocess.run([options.bin, "write", "--select", "0,0", f"{a}:/plain"], input=bytes(4), capture_output=True)
        t.check(done.returncode != 0 and b"another program has it open" in done.stderr, f"{done}")
        os.close(fd)
    with harness.mounted(options.bin, a, "--read-write") as source, mounted(options, folder, "main.h5") as m:
        poke(f"{source}/plain", two, 0)
        refused(t, "a mount writes the source", errno.EBUSY, lambda: poke(f"{m}/rows", one, 0), f"{m}/rows", "another program has it open")
    writer = h5py.File(os.path.join(folder, "swmr.h5"), "w", libver="latest")
    writer.create_dataset("x", data=np.arange(4, dtype="<i4"), chunks=(4,), maxshape=(None,))
    writer.swmr_mode = True
    with h5py.File(os.path.join(folder, "over swmr.h5"), "w", libver="latest") as f:
        virtual(f, "v", (4,), [(np.s_[:], "swmr.h5", "x", ((4,), "<i4"), np.s_[:])])
    with mounted(options, folder, "over swmr.h5") as m:
        refused(t, "a SWMR writer has the source", errno.EBUSY, lambda: poke(f"{m}/v", bytes(4), 0), f"{m}/v")
        writer.close()
        poke(f"{m}/v", bytes(4), 0)
        t.equal(harness.read(f"{m}/v")[:8], bytes(4) + b"\1\0\0\0", "after it closed")
    # Two files with virtual datasets of each other, in two daemons.
    for name, other in (("left.h5", "right.h5"), ("right.h5", "left.h5")):
        with h5py.File(os.path.join(folder, name), "w", libver="latest") as f:
            f["x"] = np.arange(4, dtype="<i4")
            virtual(f, "v", (4,), [(np.s_[:], other, "x", ((4,), "<i4"), np.s_[:])])
    with mounted(options, folder, "left.h5") as left, mounted(options, folder, "right.h5") as right:
        for m in (left, right):
            refused(t, "of each other", errno.EBUSY, lambda m=m: poke(f"{m}/v", bytes(4), 0), f"{m}/v", "another program has it open")
            poke(f"{m}/x", bytes(4), 0)


def many(t, options, folder):
    """More files than are open at a time; descriptors and memory are bounded."""
    count, place = 100, os.path.join(folder, "many")
    os.mkdir(place)
    for i in range(count):
        with h5py.File(os.path.join(place, f"s{i}.h5"), "w") as f:
            f["x"] = np.full(4, i, "<i4")
    with h5py.File(os.path.join(place, "all.h5"), "w", libver="latest") as f:
        virtual(f, "v", (4 * count,), [(np.s_[4 * i:4 * i + 4], f"s{i}.h5", "x", ((4,), "<i4"), np.s_[:]) for i in range(count)])
    want = np.arange(4 * count, dtype="<i4") + 5
    with mounted(options, place, "all.h5") as m:
        v = f"{m}/v"
        refused(t, "too many files in one write", errno.EMFILE, lambda: poke(v, bytes(16 * count), 0), v, "write fewer elements")
        fd = os.open(v, os.O_RDWR)
        for turn in range(3):
            for i in range(0, count, 20):
                try:
                    os.pwrite(fd, (want[4 * i:4 * i + 80] + turn).tobytes(), 16 * i)
                except OSError as e:
                    t.check(False, f"{i}: {e} {os.getxattr(v, 'user.h5dir.error')}")
        t.equal(os.pread(fd, 1 << 16, 0), (want + 2).tobytes(), "all are written")
        os.fsync(fd)
        pid = daemon_of(m)
        t.check(len(os.listdir(f"/proc/{pid}/fd")) < 64 * 6 + 2 * count + 60, f"{len(os.listdir(f'/proc/{pid}/fd'))} descriptors")
        t.check(harness.peak_memory(m) < 300, f"{harness.peak_memory(m)} MiB")
        os.close(fd)
    for i in range(count):
        with h5py.File(os.path.join(place, f"s{i}.h5")) as f:
            t.equal(f["x"][()].tolist(), (want[4 * i:4 * i + 4] + 2).tolist(), f"file {i}")


def daemon_of(m):
    return int(subprocess.run(["pgrep", "-f", m], check=True, stdout=subprocess.PIPE).stdout.split()[0])


def rounds(t, options, folder):
    """Rounds of writes with the files opened and closed again let no file grow, and leave no descriptors."""
    sizes, descriptors = [], []
    with mounted(options, folder, "main.h5") as m:
        pid = daemon_of(m)
        for turn in range(ROUNDS):
            fd = os.open(f"{m}/rows", os.O_WRONLY)
            os.pwrite(fd, (np.arange(144, dtype="<i4") * turn).tobytes(), 0)
            os.fsync(fd)
            os.close(fd)
            # No virtual dataset is open: the next commit closes the other files.
            poke(f"{m}/own", bytes(4), 0)
            fd = os.open(f"{m}/own", os.O_RDONLY)
            os.fsync(fd)
            os.close(fd)
            sizes.append([os.stat(os.path.join(folder, name)).st_size for name in FILES])
            descriptors.append(len(os.listdir(f"/proc/{pid}/fd")))
        # The kernel reports a close(2) after it has returned: in some rounds the files are still open.
        early, late = np.min(sizes[5:20], axis=0), np.min(sizes[-15:], axis=0)
        t.check((late <= early + 4096).all(), f"the files grow: {early} to {late} bytes")
        t.check(min(descriptors[-15:]) <= min(descriptors[5:20]) + 2, f"descriptors: {descriptors}")
        t.check(harness.peak_memory(m) < 300, f"{harness.peak_memory(m)} MiB")
    check_files(t, options, folder, "rounds")


def killed(t, options, folder, rng):
    """After a kill each file has the last write that fsync acknowledged, or the next, as a whole; the next write recovers the sources."""
    place, point = os.path.join(folder, "killed"), os.path.join(folder, "mnt")
    os.mkdir(place), os.mkdir(point)
    make(place, "latest")
    shapes = {("a.h5", "plain"): np.s_[0:4], ("b.h5", "unwritten"): np.s_[4:8], ("main.h5", "own"): np.s_[8:12], ("sub/c.h5", "x"): np.s_[12:16],
              ("b.h5", "late"): np.s_[16:20], ("a.h5", "deep/er/chunked"): np.s_[20:24]}
    for turn in range(8):
        daemon = harness.foreground(options.bin, os.path.join(place, "main.h5"), point, "--read-write", "--external-write", f"--external-root={place}")
        try:
            end, i = time.time() + 0.1 + rng.random() * 0.5, 0
            fd = os.open(f"{point}/rows", os.O_WRONLY)
            while time.time() < end:
                i += 1
                os.pwrite(fd, np.full(144, turn * 100000 + i, "<i4").tobytes(), 0)
                os.fsync(fd)
            os.pwrite(fd, np.full(144, turn * 100000 + i + 1, "<i4").tobytes(), 0)
            if turn % 2:
                killer = subprocess.Popen(["sh", "-c", f"sleep 0.0{rng.randrange(10)}; kill -9 {daemon.pid}"])
                with contextlib.suppress(OSError):
                    os.fsync(fd)
                killer.wait()
        finally:
            daemon.send_signal(signal.SIGKILL)
            daemon.wait()
            with contextlib.suppress(OSError):
                os.close(fd)
            subprocess.run([options.bin, "umount", point], stdin=subprocess.DEVNULL, capture_output=True)
        if turn < 4:
            for file in ("a.h5", "b.h5", "sub/c.h5", "main.h5"):
                run(options, "recover", os.path.join(place, file))
        else:
            # A mount recovers its file, and its first write through a virtual dataset the sources.
            with mounted(options, place, "main.h5") as m:
                shown = np.frombuffer(harness.read(f"{m}/rows"), "<i4")
                poke(f"{m}/rows", shown.tobytes(), 0)
        for file in ("a.h5", "b.h5", "sub/c.h5", "main.h5"):
            run(options, "check", "--data", f"--external-root={place}", os.path.join(place, file))
        last, of_file = turn * 100000 + i, {}
        for (file, name), part in shapes.items():
            with h5py.File(os.path.join(place, file)) as f:
                found = f[name][()]
            t.check((found == found[0, 0]).all() and found[0, 0] in (last, last + 1), f"{file} {name}: {found[0]}, {last} was acknowledged")
            t.check(of_file.setdefault(file, found[0, 0]) == found[0, 0], f"a write to two sources in {file} is whole")


def hostile(t, options, folder, rng):
    """Damaged sources and damaged virtual datasets: an error or not, and no crash; bounded memory."""
    place = os.path.join(folder, "hostile")
    os.mkdir(place)
    make(place, "latest")
    whole = {name: harness.read(os.path.join(place, name)) for name in FILES}
    for turn in range(60):
        damaged = ("a.h5", "b.h5", "sub/c.h5", "main.h5")[turn % 4]
        for name, content in whole.items():
            content = bytearray(content)
            for _ in range(rng.randrange(1, 8) if name == damaged else 0):
                content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
            with open(os.path.join(place, name), "wb") as f:
                f.write(content)
            with contextlib.suppress(FileNotFoundError):
                os.remove(os.path.join(place, name) + ".h5dir-journal")
        done = subprocess.run([options.bin, "write", "--external-write", f"--external-root={place}", f"{place}/main.h5:/rows"],
                              input=np.full(144, turn, "<i4").tobytes(), capture_output=True, timeout=60)
        t.check(0 <= done.returncode < 100 and b"panic" not in done.stderr, f"{damaged}: {done.returncode} {done.stderr[-200:]}")
        for name in whole:
            if name != damaged:
                check = subprocess.run([options.bin, "check", f"--external-root={place}", os.path.join(place, name)], capture_output=True)
                t.equal(check.returncode, 0, f"{name} beside a damaged {damaged}: {check.stdout[-200:]}{check.stderr[-200:]}")


def together(t, options, folder):
    """Writers through several virtual datasets, readers and commits at the same time: whole values in each file, and no wait without end."""
    with mounted(options, folder, "main.h5", "--commit-interval=1") as m:
        program = """
import os, sys, time
path, mode, end = sys.argv[1], sys.argv[2], time.time() + 6
fd = os.open(path, os.O_RDONLY if mode == 'read' else os.O_RDWR)
size, n = os.fstat(fd).st_size, 0
while time.time() < end:
    n += 1
    if mode == 'read':
        assert len(os.pread(fd, size, 0)) == size
    else:
        try:
            os.pwrite(fd, (n % 1000).to_bytes(4, 'little') * (size // 4), 0)
        except OSError as e:
            sys.exit(f"{e} {os.getxattr(path, 'user.h5dir.error')}")
        if n % 7 == 0:
            os.fsync(fd)
        if n % 50 == 0:
            os.close(fd)
            fd = os.open(path, os.O_RDWR)
"""
        jobs = [("rows", "write"), ("interleaved", "write"), ("blocks", "write"), ("own", "write"), ("rows", "read"), ("to b", "read"), ("nested", "read")]
        running = [subprocess.Popen(["python3", "-c", program, f"{m}/{name}", mode], stderr=subprocess.PIPE) for name, mode in jobs]
        for (name, mode), job in zip(jobs, running):
            _, why = job.communicate(timeout=120)
            t.equal(job.returncode, 0, f"{mode} {name}: {why[-300:]}")
        value = (77).to_bytes(4, "little")
        poke(f"{m}/rows", value * 144, 0)
        t.equal(harness.read(f"{m}/rows"), value * 144, "afterwards")
        t.check(harness.peak_memory(m) < 300, f"{harness.peak_memory(m)} MiB")
    check_files(t, options, folder, "together")


def mirror(t, options, folder):
    """In a mirror a file has one writer, too."""
    place = os.path.join(folder, "tree")
    os.mkdir(place)
    with h5py.File(os.path.join(place, "source.h5"), "w", libver="latest") as f:
        f["x"] = np.arange(4, dtype="<i4")
    with h5py.File(os.path.join(place, "over.h5"), "w", libver="latest") as f:
        virtual(f, "v", (4,), [(np.s_[:], "source.h5", "x", ((4,), "<i4"), np.s_[:])])
    with harness.mounted(options.bin, place, "--read-write", "--external-write", f"--external-root={place}") as m:
        t.equal(harness.read(f"{m}/over.h5/v"), np.arange(4, dtype="<i4").tobytes(), "before")
        t.equal(harness.read(f"{m}/source.h5/x"), np.arange(4, dtype="<i4").tobytes(), "before")
        fd = os.open(f"{m}/over.h5/v", os.O_RDWR)
        os.pwrite(fd, b"\7\0\0\0", 0)
        refused(t, "the source is written by its virtual dataset", errno.EBUSY, lambda: poke(f"{m}/source.h5/x", bytes(4), 4))
        os.fsync(fd)
        os.close(fd)
        end = time.time() + 30
        while time.time() < end:
            with contextlib.suppress(OSError):
                poke(f"{m}/source.h5/x", b"\5\0\0\0", 4)
                break
            time.sleep(0.2)
        t.equal(harness.read(f"{m}/source.h5/x")[:8], b"\7\0\0\0\5\0\0\0", "written by both, one after the other")
        refused(t, "the source is written as a file", errno.EBUSY, lambda: poke(f"{m}/over.h5/v", bytes(4), 0))
    with h5py.File(os.path.join(place, "source.h5")) as f:
        t.equal(f["x"][()].tolist(), [7, 5, 2, 3], "h5py")


def main():
    options = harness.arguments(__doc__.splitlines()[0])
    t, rng = harness.Tally(), np.random.default_rng(options.seed)
    with harness.folder(options.keep) as folder:
        folder = os.path.realpath(folder)
        for libver in ("earliest", "latest"):
            place = os.path.join(folder, libver)
            os.mkdir(place)
            names = make(place, libver)
            for _ in range(2):
                write_random(t, options, place, names, rng)
            others(t, options, place)
            commands(t, options, place)
            unwritten(t, options, place)
            rounds(t, options, place)
        locks(t, options, place)
        together(t, options, place)
        for part in (refusals, many, mirror):
            part(t, options, folder)
        hostile(t, options, folder, random.Random(options.seed))
        killed(t, options, folder, random.Random(options.seed))
    t.finish()


if __name__ == "__main__":
    main()
