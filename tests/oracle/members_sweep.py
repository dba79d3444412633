#!/usr/bin/env python3
"""HDF5 files in several files of the host: those of the drivers family, split and onion, as libhdf5 writes them."""
import ctypes
import errno
import glob
import os
import random
import re
import shutil
import subprocess

import h5py
import numpy as np

import harness


def run(options, *args, code=0):
    done = subprocess.run([options.bin, *args], capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=60)
    assert code is None or done.returncode == code, (args, done)
    return done.stdout + done.stderr


def fill(f, rng):
    data = {"plain": rng.integers(0, 1 << 40, (300, 21)), "small": np.arange(5, dtype="i1"), "g/h/deep": rng.random(777)}
    for name, values in data.items():
        f[name] = values
    data["chunked"] = rng.integers(0, 50, (120, 90)).astype("<i2")
    f.create_dataset("chunked", data=data["chunked"], chunks=(7, 30), compression="gzip", shuffle=True)
    data["grown"] = np.arange(4000, dtype="<u4")
    f.create_dataset("grown", data=data["grown"], chunks=(50,), maxshape=(None,))
    f["text"] = ["one", "two " * 500]
    f["g"].attrs["note"] = "x" * 3000
    for i in range(60):
        f[f"links/number {i:03}"] = i
    return data


def compare(t, options, first, data, what):
    """Reads the file through every command and a mount."""
    listed = run(options, "ls", "-R", first)
    t.check("deep" in listed and "number 059" in listed, f"{what}: ls")
    out = run(options, "check", "--data", first)
    t.check("objects" in out and "9223372" not in out, f"{what}: check: {out}")
    space = run(options, "stat", "--space", first)
    t.check("Live" in space and "9223372" not in space, f"{what}: space: {space}")
    with harness.mounted(options.bin, first) as m:
        for name, values in data.items():
            t.equal(harness.read(f"{m}/{name}"), values.tobytes(), f"{what}: {name}")
        t.equal(harness.read(f"{m}/text"), b"one\n" + b"two " * 500 + b"\n", f"{what}: strings")
        t.equal(os.getxattr(f"{m}/g", "user.note"), b"x" * 3000, f"{what}: attribute")
        try:
            open(f"{m}/new", "xb").close()
            code = 0
        except OSError as e:
            code = e.errno
        t.equal(code, errno.EROFS, f"{what}: mounted read-only")
    copy = first + ".copy.h5"
    run(options, "cp", "-r", f"{first}:/", f"{copy}:/", "--create")
    with h5py.File(copy) as f:
        for name, values in data.items():
            t.check(np.array_equal(f[name][()], values), f"{what}: copy of {name}")
        t.equal(f["text"].asstr()[1], "two " * 500, f"{what}: copy of strings")
    os.unlink(copy)
    name, values = next(iter(data.items()))
    done = subprocess.run([options.bin, "cat", f"{first}:/{name}"], capture_output=True, stdin=subprocess.DEVNULL)
    t.equal(done.stdout, values.tobytes(), f"{what}: cat")
    before = {path: harness.read(path) for path in glob.glob(os.path.join(os.path.dirname(first), "*"))}
    out = subprocess.run([options.bin, "mount", "--read-write", first, os.path.dirname(first)], capture_output=True, text=True, stdin=subprocess.DEVNULL)
    t.check(out.returncode != 0 and "read" in out.stderr and out.stderr.count("\n") == 1, f"{what}: read-write: {out}")
    out = run(options, "cp", f"{first}:/small", f"{first}:/other", code=None)
    t.check("read" in out, f"{what}: cp into it: {out}")
    t.equal({path: harness.read(path) for path in before}, before, f"{what}: no byte changed")


def by_name(t, options, name, first, what):
    """Every command takes `name` for the file, whose first member is `first`."""
    for command in (("ls", "-lR"), ("check", "--data"), ("stat", "--space"), ("find",)):
        shown = run(options, *command, name).replace(name, first)
        t.equal(shown, run(options, *command, first), f"{what}: {command}")
    t.equal(run(options, "cat", "--text", f"{name}:/small"), "0\n1\n2\n3\n4\n", f"{what}: cat")
    t.equal(run(options, "diff", f"{name}:/", f"{first}:/"), "", f"{what}: diff")
    copy = first + ".copy.h5"
    # Options may stand between the source and the destination.
    run(options, "cp", "-r", f"{name}:/", "--create", f"{copy}:/")
    t.equal(run(options, "diff", f"{copy}:/", f"{name}:/"), "", f"{what}: cp")
    os.unlink(copy)
    with harness.mounted(options.bin, name) as m:
        t.equal(harness.read(f"{m}/small"), bytes(range(5)), f"{what}: mount")
    out = run(options, "cp", f"{name}:/small", f"{name}:/other", code=None)
    t.check("only read" in out, f"{what}: cp into it: {out}")


def families(t, options, folder, rng):
    for libver in ("earliest", "v110", "latest"):
        for size, pattern in ((4096, "fam%05d.h5"), (1000, "run0_%d.h5"), (1 << 20, "one%03d.h5"), (30_000, "%02d"), (777, "t%03d-7.h5")):
            place = os.path.join(folder, f"{libver}-{size}")
            os.mkdir(place)
            path = os.path.join(place, pattern)
            with h5py.File(path, "w", driver="family", memb_size=size, libver=libver) as f:
                data = fill(f, rng)
            first = os.path.join(place, re.sub(r"%\d*d", lambda found: found[0] % 0, pattern))
            what = f"family {libver} {size} {pattern}"
            compare(t, options, first, data, what)
            by_name(t, options, path, first, f"{what}: by its pattern")
    # Damage of members.
    place = os.path.join(folder, "earliest-4096")
    first = os.path.join(place, "fam00000.h5")
    third = os.path.join(place, "fam00002.h5")
    whole = harness.read(third)
    for what, damage in (("short", whole[:-1]), ("long", whole + b"x"), ("empty", b""), ("missing", None)):
        os.unlink(third)
        if damage is not None:
            with open(third, "wb") as f:
                f.write(damage)
        out = run(options, "ls", first, code=None)
        t.check("member" in out or "ends after" in out or "end of file" in out or "bytes" in out, f"a {what} member: {out}")
        done = subprocess.run([options.bin, "check", "--data", first], capture_output=True, text=True, stdin=subprocess.DEVNULL)
        t.check(done.returncode != 0 and "panic" not in done.stderr, f"a {what} member: {done}")
        if not os.path.exists(third):
            open(third, "w").close()
    with open(third, "wb") as f:
        f.write(whole)
    out = run(options, "ls", os.path.join(place, "fam00003.h5"), code=None)
    t.check("not an HDF5 file" in out, f"not the first member: {out}")


def splits(t, options, folder, rng):
    for libver in ("earliest", "v110", "latest"):
        place = os.path.join(folder, f"split-{libver}")
        os.mkdir(place)
        for base, extensions in (("data", {}), ("odd", {"meta_ext": b".meta", "raw_ext": b".rawdata"})):
            path = os.path.join(place, base)
            with h5py.File(path, "w", driver="split", libver=libver, **extensions) as f:
                data = fill(f, rng)
            first = path + extensions.get("meta_ext", b"-m.h5").decode()
            compare(t, options, first, data, f"split {libver} {base}")
        by_name(t, options, os.path.join(place, "data"), os.path.join(place, "data-m.h5"), f"split {libver}: by its name as a whole")
    place = os.path.join(folder, "split-latest")
    first, raw = os.path.join(place, "data-m.h5"), os.path.join(place, "data-r.h5")
    moved = os.path.join(place, "else")
    os.rename(raw, moved)
    out = run(options, "ls", first, code=None)
    t.check("data-r.h5" in out and out.count("\n") == 1, f"without the raw data: {out}")
    with open(raw, "wb") as f:
        f.write(harness.read(moved)[:-1])
    out = run(options, "ls", first, code=None)
    t.check("data-r.h5" in out and out.count("\n") == 1, f"raw data cut off: {out}")
    os.unlink(raw)
    os.symlink("/etc/passwd", raw)
    out = run(options, "ls", first, code=None)
    t.check("data-r.h5" in out, f"a symbolic link as a member: {out}")
    os.unlink(raw)
    os.rename(moved, raw)
    shutil.copy(first, os.path.join(place, "renamed.h5"))
    out = run(options, "ls", os.path.join(place, "renamed.h5"), code=None)
    t.check("%s-m.h5" in out, f"another name: {out}")
    # A file with a superblock extension that is no such file.
    plain = os.path.join(place, "plain.h5")
    with h5py.File(plain, "w", libver="latest", fs_strategy="page") as f:
        f["x"] = 1
    t.check("x" in run(options, "ls", plain), "a file of its own")


class OnionInfo(ctypes.Structure):
    """H5FD_onion_fapl_info_t."""

    _fields_ = [("version", ctypes.c_uint8), ("backing", ctypes.c_int64), ("page_size", ctypes.c_uint32), ("target", ctypes.c_int),
                ("revision", ctypes.c_uint64), ("force", ctypes.c_uint8), ("flags", ctypes.c_uint8), ("comment", ctypes.c_char * 256)]


def opened(path, flags, page_size, revision=2**64 - 1, align=0):
    """The file by libhdf5's driver onion."""
    lib = ctypes.CDLL(glob.glob(os.path.join(os.path.dirname(os.path.dirname(h5py.__file__)), "h5py.libs", "libhdf5-*"))[0])
    fapl, backing = h5py.h5p.create(h5py.h5p.FILE_ACCESS), h5py.h5p.create(h5py.h5p.FILE_ACCESS)
    backing.set_fapl_sec2()
    info = OnionInfo(1, backing.id, page_size, 0, revision, 0, align, b"a comment")
    assert lib.H5Pset_fapl_onion(ctypes.c_int64(fapl.id), ctypes.byref(info)) >= 0
    return h5py.File(h5py.h5f.open(path.encode(), flags, fapl))


def onions(t, options, folder, rng):
    for page_size, align, libver in ((32, 0, "latest"), (4096, 0, "earliest"), (256, 1, "v110"), (1, 0, "latest")):
        place = os.path.join(folder, f"onion-{page_size}")
        os.mkdir(place)
        path = os.path.join(place, "file.h5")
        with h5py.File(path, "w", libver=libver) as f:
            f["x"] = np.arange(100)
            f.create_dataset("c", data=np.arange(600), chunks=(50,), maxshape=(None,), compression="gzip")
        original = harness.read(path)
        for n in range(5):
            with opened(path, h5py.h5f.ACC_RDWR, page_size, align=align) as f:
                f[f"r{n}"] = rng.integers(0, 100, 200 + n)
                f["x"][n] = 1000 + n
                f["c"].resize((600 + 70 * n,))
                f["c"][-10:] = n
                f.attrs[f"a{n}"] = n
                if n == 3:
                    del f["r0"]
        t.equal(harness.read(path), original, f"onion {page_size}: libhdf5 leaves the original")
        for n in range(6):
            with opened(path, h5py.h5f.ACC_RDONLY, page_size, n) as f:
                want = {name: f[name][()] for name in f}
                attributes = dict(f.attrs)
            name = str(n) if n else "original"
            listed = run(options, "ls", "--revision", name, path).split()
            t.equal(sorted(listed), sorted(want), f"onion {page_size}: names of revision {n}")
            with harness.mounted(options.bin, path, f"--revision={name}") as m:
                for key, values in want.items():
                    t.equal(harness.read(f"{m}/{key}"), values.tobytes(), f"onion {page_size}: {key} of revision {n}")
                t.equal(sorted(a for a in os.listxattr(m) if a.startswith("user.a")), sorted(f"user.{a}" for a in attributes), f"attributes of {n}")
            run(options, "check", "--data", "--version", name, path)
        t.equal(sorted(run(options, "ls", path).split()), sorted(want), f"onion {page_size}: the newest")
        run(options, "cp", "-r", "--revision", "2", f"{path}:/", f"{place}/copy.h5:/", "--create")
        with h5py.File(f"{place}/copy.h5") as f, opened(path, h5py.h5f.ACC_RDONLY, page_size, 2) as g:
            t.check(sorted(f) == sorted(g) and all(np.array_equal(f[k][()], g[k][()]) for k in f), f"onion {page_size}: a copy of a revision")
        os.unlink(f"{place}/copy.h5")
        for name in ("6", "99999", "other"):
            out = run(options, "ls", "--revision", name, path, code=None)
            t.check("1 to 5" in out and out.count("\n") == 1, f"revision {name}: {out}")
        out = subprocess.run([options.bin, "mount", "--read-write", path, place], capture_output=True, text=True, stdin=subprocess.DEVNULL)
        t.check(out.returncode != 0 and "revisions" in out.stderr, f"onion: read-write: {out}")
        t.equal(harness.read(path), original, f"onion {page_size}: h5dir leaves the original")
    out = run(options, "ls", "--revision", "1", os.path.join(folder, "split-latest", "plain.h5"), code=2)
    t.check("no versions" in out, out)
    path = os.path.join(folder, "onion-32", "file.h5")
    whole = harness.read(path + ".onion")
    random_bytes = random.Random(options.seed)
    for i in range(120):
        damaged = bytearray(whole)
        if i % 4 == 0:
            del damaged[random_bytes.randrange(len(damaged)):]
        else:
            for _ in range(random_bytes.randrange(1, 4)):
                damaged[random_bytes.randrange(44 if i % 4 == 1 else len(damaged))] ^= 1 << random_bytes.randrange(8)
        with open(path + ".onion", "wb") as f:
            f.write(damaged)
        for args in (("ls", "-R", path), ("check", "--data", path)):
            done = subprocess.run(["bash", "-c", 'ulimit -v 4000000; exec "$@"', "-", options.bin, *args], capture_output=True,
                                  stdin=subprocess.DEVNULL, timeout=30)
            t.check(0 <= done.returncode < 100 and b"panic" not in done.stderr, f"{args}: {done.returncode} {done.stderr[-300:]}")
    with open(path + ".onion", "wb") as f:
        f.write(b"of another program")
    with h5py.File(path) as f:
        t.equal(sorted(run(options, "ls", path).split()), sorted(f), "a file of that name that is no onion file")


def hostile(t, options, folder, rng):
    """Damaged driver information, first members and sizes: errors, no crash, little memory."""
    for place, name, rest in ((os.path.join(folder, "earliest-4096"), "fam00000.h5", "fam"), (os.path.join(folder, "latest-4096"), "fam00000.h5", "fam"),
                              (os.path.join(folder, "split-earliest"), "data-m.h5", "data"), (os.path.join(folder, "split-latest"), "data-m.h5", "data")):
        first = os.path.join(place, name)
        whole = harness.read(first)
        at = whole.index(b"NCSA")
        for i in range(90):
            damaged = bytearray(whole)
            for _ in range(rng.randrange(1, 4)):
                damaged[at - 12 + rng.randrange(76) if i % 2 else rng.randrange(400)] = rng.choice((0, 1, 0x7f, 0x80, 0xff, rng.randrange(256)))
            with open(first, "wb") as f:
                f.write(damaged)
            for args in (("ls", "-R", first), ("check", "--data", first)):
                done = subprocess.run(["bash", "-c", 'ulimit -v 4000000; exec "$@"', "-", options.bin, *args], capture_output=True,
                                      stdin=subprocess.DEVNULL, timeout=30)
                t.check(0 <= done.returncode < 100 and b"panic" not in done.stderr, f"{args}: {done.returncode} {done.stderr[-300:]}")
        with open(first, "wb") as f:
            f.write(whole)


def main():
    options = harness.arguments(__doc__.splitlines()[0])
    t, rng = harness.Tally(), np.random.default_rng(options.seed)
    with harness.folder(options.keep) as folder:
        families(t, options, folder, rng)
        splits(t, options, folder, rng)
        onions(t, options, folder, rng)
        hostile(t, options, folder, random.Random(options.seed))
    t.finish()


if __name__ == "__main__":
    main()
