#!/usr/bin/env python3
"""A mounted directory whose containers are closed and opened again between changes of names: what a process holds, by a
descriptor or as its working directory, stays what it was, and no name leads to what another one led to.

    mirror_names_sweep.py [--bin H5DIR] [--seed N]

Each expectation is what a directory of the host gives for the same calls; random sequences are made in both.
"""
import contextlib
import ctypes
import errno
import os
import random
import sys
import tempfile

import h5py
import numpy as np

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from harness import Tally, arguments, mounted

EXCHANGE = 2
LIBC = ctypes.CDLL(None, use_errno=True)


def rename(a, b, flags=0):
    if LIBC.renameat2(-100, os.fsencode(a), -100, os.fsencode(b), flags):
        raise OSError(ctypes.get_errno(), "renameat2")


def tried(f, *args, **options):
    """What `f` returns, or the name of its errno."""
    try:
        return f(*args, **options)
    except OSError as e:
        return errno.errorcode[e.errno]


@contextlib.contextmanager
def mirror(binary, *options):
    """The mount of a directory with four containers, of which two are open at a time."""
    with tempfile.TemporaryDirectory(prefix="h5dir-names-") as top:
        for number in range(4):
            with h5py.File(f"{top}/f{number}.h5", "w") as f:
                for name in "abc":
                    f.create_group(name).create_dataset("d", data=np.arange(5))
                f["top"] = np.arange(7)
        with mounted(binary, top, "--read-write", "--max-open=2", *options) as point:
            yield point


def others(point):
    """Opens the other containers, so that the first one is closed."""
    for number in (1, 2, 3):
        os.listdir(f"{point}/f{number}.h5")


@contextlib.contextmanager
def held(path, flags=os.O_PATH):
    fd = os.open(path, flags)
    try:
        yield fd
    finally:
        os.close(fd)


def listed(fd):
    return tried(lambda: sorted(os.listdir(f"/proc/self/fd/{fd}")))


def moved(t, binary):
    with mirror(binary) as point:
        x = f"{point}/f0.h5/"
        for name in ("p/P", "q/Q", "w"):
            os.makedirs(x + name)
        rename(x + "p", x + "q", EXCHANGE)
        others(point)
        rename(x + "p", x + "q", EXCHANGE)
        open(x + "p/new", "w").close()
        t.equal((sorted(os.listdir(x + "p")), os.listdir(x + "q")), (["P", "new"], ["Q"]), "exchanged twice, by paths")
        with held(x + "a") as fd:
            os.rename(x + "a", x + "n1")
            others(point)
            os.rename(x + "n1", x + "n2")
            os.mkdir(x + "n1")
            t.equal(listed(fd), ["d"], "moved twice: its descriptor")
            os.mkdir("in", dir_fd=fd)
            t.equal((os.listdir(x + "n1"), sorted(os.listdir(x + "n2"))), ([], ["d", "in"]), "moved twice: made by the descriptor")
        with held(x + "b") as fd:
            os.rename(x + "b", x + "done")
            others(point)
            os.mkdir(x + "b")
            t.check(os.stat(x + "b").st_ino != os.stat(x + "done").st_ino, "a name that is used again has a number of its own")
            open(f"/proc/self/fd/{fd}/log", "w").close()
            t.equal((os.listdir(x + "b"), sorted(os.listdir(x + "done"))), ([], ["d", "log"]), "a name that is used again")
        os.symlink("top", x + "link")
        os.rename(x + "link", x + "link2")
        others(point)
        os.symlink("c", x + "link")
        t.equal((os.readlink(x + "link"), os.readlink(x + "link2")), ("c", "top"), "links")
        os.mkdir(x + "one")
        os.rename(x + "one", x + "two")
        others(point)
        t.equal(tried(os.rename, x + "two", x + "two"), None, "a rename to itself")


def removed(t, binary):
    with mirror(binary) as point:
        x = f"{point}/f0.h5/"
        old = os.stat(x + "top")
        with held(x + "top", os.O_RDONLY) as fd:
            others(point)
            os.unlink(x + "top")
            others(point)
            for number in range(4):
                with open(f"{x}new{number}", "wb") as f:
                    f.write(b"new")
            found = os.fstat(fd)
            t.equal((found.st_nlink, found.st_size, found.st_ino), (0, 56, old.st_ino), "a removed dataset that is open")
            t.equal(tried(os.pread, fd, 100, 0), np.arange(7).tobytes(), "a removed dataset that is open: its bytes")
        with held(x + "a") as fd:
            os.unlink(x + "a/d")
            os.rmdir(x + "a")
            others(point)
            t.equal(listed(fd), [], "a removed directory that is held")
            os.mkdir(x + "a")
            t.equal(tried(os.mkdir, x + "a/in"), None, "a directory made where one was removed")
            t.equal((os.listdir(x + "a"), listed(fd)), (["in"], []), "both")
        os.link(x + "new0", x + "b/other")
        with held(x + "new0", os.O_RDONLY) as fd:
            others(point)
            os.unlink(x + "new0")
            others(point)
            t.equal((os.fstat(fd).st_nlink, tried(os.pread, fd, 10, 0)), (1, b"new"), "one of two names was removed")


def in_the_tree(t, binary):
    """The host uses the inode number of a removed directory again."""
    with mirror(binary) as point:
        os.mkdir(f"{point}/D")
        with held(f"{point}/D") as fd:
            os.rmdir(f"{point}/D")
            os.mkdir(f"{point}/D")
            t.equal(tried(os.mkdir, f"{point}/D/x"), None, "a directory of the tree made where one was removed")
            t.equal(os.listdir(f"{point}/D"), ["x"], "a directory of the tree made where one was removed: its names")
            t.check(listed(fd) in ([], "ESTALE", "ENOENT"), "the removed one")
        os.mkdir(f"{point}/E")
        os.rename(f"{point}/E", f"{point}/D/x")
        t.equal((sorted(os.listdir(f"{point}/D")), os.listdir(f"{point}/D/x")), (["x"], []), "a directory renamed over an empty one")


def same(t, binary, seed):
    """Random changes of names in a container and in a directory of the host."""
    rnd = random.Random(seed)
    with mirror(binary) as point, tempfile.TemporaryDirectory(prefix="h5dir-names-") as host:
        tops, kept = (f"{point}/f0.h5", host), []
        for top in tops:
            os.mkdir(f"{top}/x")
        for n in range(60):
            name, to = (f"x/{rnd.choice('pqrs')}{rnd.choice(['', '/t', '/u'])}" for _ in range(2))
            kind = rnd.randrange(9)
            if kind == 0:
                others(point)
                continue
            if kind == 1:
                fds = [tried(os.open, f"{top}/{name}", os.O_PATH) for top in tops]
                t.equal(*[isinstance(fd, str) and fd for fd in fds], f"{seed}, {n}: open {name}")
                kept += [fds] if not isinstance(fds[0], str) and not isinstance(fds[1], str) else []
            change = {
                2: lambda top: rename(f"{top}/{name}", f"{top}/{to}"),
                3: lambda top: rename(f"{top}/{name}", f"{top}/{to}", EXCHANGE),
                4: lambda top: os.rmdir(f"{top}/{name}"),
                5: lambda top: os.symlink(f"to{n}", f"{top}/{name}"),
                6: lambda top: os.unlink(f"{top}/{name}"),
            }.get(kind, lambda top: os.mkdir(f"{top}/{name}"))
            if kind != 1:
                t.equal(*[tried(change, top) for top in tops], f"{seed}, {n}: change {kind} of {name} and {to}")
            found = [[(path[len(top) :], sorted(dirs), sorted(files)) for path, dirs, files in os.walk(f"{top}/x")] for top in tops]
            t.equal(*[sorted(one) for one in found], f"{seed}, {n}: names after change {kind} of {name} and {to}")
            for fds in kept:
                t.equal(*[listed(fd) for fd in fds], f"{seed}, {n}: a descriptor after change {kind} of {name} and {to}")
        for fds in kept:
            for fd in fds:
                os.close(fd)


def main():
    options = arguments(__doc__)
    t = Tally()
    moved(t, options.bin)
    removed(t, options.bin)
    in_the_tree(t, options.bin)
    for seed in range(8):
        same(t, options.bin, options.seed + seed)
    t.finish()


if __name__ == "__main__":
    main()
