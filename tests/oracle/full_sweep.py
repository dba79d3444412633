"""A file system of 8 MiB that gets full under many writers: the writer is told, and the file stays whole.

Each round puts a file into a tmpfs of 8 MiB (as root; else the rounds are skipped), mounts it read-write, and lets several threads append, create
files and set attributes until each of them has been told ENOSPC. What was acknowledged by fsync must be there afterwards, for the
mount, and for stock h5py after unmounting; when the file system is made larger, writing goes on. So it does when the elements of a
dataset are a hole that cannot be filled.
"""
import errno
import os
import random
import subprocess
import tempfile
import threading

import h5py
import numpy as np

import harness

ROUNDS = int(os.environ.get("H5DIR_FULL_ROUNDS", "4"))
FULL = (errno.ENOSPC, errno.EDQUOT)


class Writer(threading.Thread):
    """Writes until there is no room; `synced` is what fsync returned for."""

    def __init__(self, point, number, seed):
        super().__init__(daemon=True)
        self.point, self.number, self.rnd = point, number, random.Random(seed)
        self.synced, self.told, self.unexpected, self.steps = {}, [], None, 0

    def attempt(self, what, f, *args):
        try:
            return f(*args)
        except OSError as e:
            if e.errno not in FULL:
                self.unexpected = f"{what}: {e}"
            self.told.append((what, e.errno))
            raise

    def run(self):
        try:
            while self.steps < 4000:
                self.steps += 1
                name = f"w{self.number}_{self.steps % 5}"
                fd = self.attempt("open", os.open, f"{self.point}/{name}", os.O_RDWR | os.O_CREAT)
                try:
                    size = os.fstat(fd).st_size
                    data = self.rnd.randbytes(self.rnd.choice((100, 5000, 70000)))
                    self.synced.pop(name, None)
                    done = self.attempt("write", os.pwrite, fd, data, size)
                    self.attempt("fsync", os.fsync, fd)
                    if done == len(data):
                        self.synced[name] = (size, data)
                finally:
                    self.attempt("close", os.close, fd)
                if self.steps % 7 == 0:
                    self.attempt("setxattr", os.setxattr, f"{self.point}/{name}", "user.note", b"n" * self.rnd.randrange(1, 900))
        except OSError:
            pass


def one_round(t, binary, label, seed, what):
    with tempfile.TemporaryDirectory(prefix="h5dir-full-") as place:
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", place], check=True)
        try:
            what(t, binary, place, label, seed)
        finally:
            subprocess.run(["umount", "-l", place], check=False)


def filled(t, binary, place, label, seed):
    path = f"{place}/f.h5"
    with h5py.File(path, "w", libver=random.Random(seed).choice([("earliest", "v108"), ("v108", "v108"), ("v110", "v110")])) as f:
        f.create_dataset("packed", data=np.arange(100000.0), chunks=(1000,), compression="gzip")
        f.create_group("g").attrs["x"] = "value"
    want = np.arange(100000.0)
    writers = []
    with tempfile.TemporaryDirectory(prefix="h5dir-full-mnt-") as point:
        daemon = subprocess.Popen([binary, "mount", "-f", "--read-write", path, point], stdin=subprocess.DEVNULL)
        wait(lambda: os.path.exists(f"{point}/packed"))
        writers = [Writer(point, n, seed * 10 + n) for n in range(4)]
        for w in writers:
            w.start()
        for w in writers:
            w.join(120)
        for w in writers:
            t.check(w.unexpected is None, f"{label}: {w.unexpected}")
            t.check(bool(w.told) and not w.is_alive(), f"{label}: writer {w.number} was told {w.told} after {w.steps} steps")
            for name, (at, data) in w.synced.items():
                t.equal(harness.read(f"{point}/{name}")[at : at + len(data)], data, f"{label}: {name} through the mount")
        t.equal(np.frombuffer(harness.read(f"{point}/packed")).tolist(), want.tolist(), f"{label}: the other dataset")
        # What is removed makes room.
        for w in writers[:2]:
            for name in {n for n in os.listdir(point) if n.startswith(f"w{w.number}_")}:
                try:
                    os.unlink(f"{point}/{name}")
                except OSError as e:
                    t.check(False, f"{label}: unlink {name}: {e}")
            w.synced.clear()
        works(t, f"{point}/again", b"more " * 1000, f"{label}: writing after files were removed")
        # With a larger file system it goes on, too.
        subprocess.run(["mount", "-o", "remount,size=32m", place], check=True)
        sync(f"{point}")
        works(t, f"{point}/after", b"room " * 1000, f"{label}: writing after space was made")
        subprocess.run([binary, "umount", point], check=False, stdin=subprocess.DEVNULL)
        t.equal(daemon.wait(60), 0, f"{label}: exit status")
    t.equal(sorted(os.listdir(place)), ["f.h5"], f"{label}: files left")
    with h5py.File(path, "r") as f:
        f.visititems(lambda _, o: o[...] if isinstance(o, h5py.Dataset) else None)
        t.check(bool((f["packed"][...] == want).all()), f"{label}: h5py reads the other dataset")
        t.check("after" in f and f["after"][...].tobytes() == b"room " * 1000, f"{label}: h5py reads what came after")
        for w in writers:
            for name, (at, data) in w.synced.items():
                t.equal(f[name][...].tobytes()[at : at + len(data)], data, f"{label}: {name} for h5py")


def sparse(t, binary, place, label, seed):
    """The disk is full when elements are written into a hole, left by h5dir (an even seed) or by libhdf5."""
    path, first, data = f"{place}/f.h5", b"first", random.Random(seed).randbytes(100000)
    with h5py.File(path, "w", libver="latest") as f:
        d = f.create_dataset("hole", shape=(3000000,), dtype="u1")
        if seed % 2:
            d[0] = 1
    with tempfile.TemporaryDirectory(prefix="h5dir-full-mnt-") as point:
        daemon = subprocess.Popen([binary, "mount", "-f", "--read-write", path, point], stdin=subprocess.DEVNULL)
        wait(lambda: os.path.exists(f"{point}/hole"))
        t.equal(put(f"{point}/hole", first, 0), 0, f"{label}: the first elements")
        with open(f"{place}/fill", "wb", buffering=0) as f:
            try:
                while True:
                    f.write(bytes(4096))
            except OSError:
                pass
        for at in (1000000, 2000000):
            t.check(put(f"{point}/hole", data, at) in FULL, f"{label}: a full disk is told at {at}")
        t.equal(harness.read(f"{point}/hole")[:5], first, f"{label}: reading on the full disk")
        os.unlink(f"{place}/fill")
        t.equal(put(f"{point}/hole", data, 1000000), 0, f"{label}: writing after space was made")
        subprocess.run([binary, "umount", point], check=False, stdin=subprocess.DEVNULL)
        t.equal(daemon.wait(60), 0, f"{label}: exit status")
    t.equal(sorted(os.listdir(place)), ["f.h5"], f"{label}: files left")
    with h5py.File(path, "r") as f:
        got = f["hole"][...].tobytes()
        t.equal(got[:5] + got[1000000:1100000], first + data, f"{label}: h5py reads what was written")
        t.check(not any(got[5:1000000]) and not any(got[2100000:]), f"{label}: h5py reads zeros beside it")


def put(path, data, at):
    """Writes elements and syncs; the error's number, or 0."""
    try:
        with os.fdopen(os.open(path, os.O_WRONLY), "wb", 0) as f:
            f.seek(at)
            f.write(data)
            os.fsync(f.fileno())
        return 0
    except OSError as e:
        return e.errno


def works(t, path, data, what):
    """A file can be written and synced."""
    try:
        with open(path, "wb") as f:
            f.write(data)
            f.flush()
            os.fsync(f.fileno())
    except OSError as e:
        t.check(False, f"{what}: {e}")


def sync(path):
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    except OSError:
        pass
    finally:
        os.close(fd)


def wait(what):
    import time

    end = time.monotonic() + 30
    while not what() and time.monotonic() < end:
        time.sleep(0.01)


def main():
    options = harness.arguments(__doc__)
    t = harness.Tally()
    if os.geteuid() != 0:
        print("only root can mount a small file system: skipped")
        t.check(True, "")
        t.finish()
    for number in range(ROUNDS):
        one_round(t, options.bin, f"round {number}", options.seed + number, filled)
    for seed in (0, 1):
        one_round(t, options.bin, f"hole {seed}", seed, sparse)
    t.finish()


if __name__ == "__main__":
    main()
