"""A file system of 8 MiB that gets full under many writers: the writer is told, and the file stays whole.

Each round puts a file into a tmpfs of 8 MiB (as root; else the rounds are skipped), mounts it read-write, and lets several threads append, create
files and set attributes until each of them has been told ENOSPC. What was acknowledged by fsync must be there afterwards, for the
mount, and for stock h5py after unmounting; when the file system is made larger, writing goes on. So it does when the elements of a
dataset are a hole that cannot be filled. A file that is copied to the full file system is there as far as `write` acknowledged
it, never as zeros; what was removed can be committed, whatever layout it had.
"""
import contextlib
import errno
import functools
import itertools
import json
import os
import random
import shutil
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


def one_round(t, binary, label, seed, what, size=8, unit="m"):
    with tempfile.TemporaryDirectory(prefix="h5dir-full-") as place:
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}{unit}", "tmpfs", place], check=True)
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


def fill_but(place, left):
    """Fills the file system, but for `left` bytes."""
    there = os.statvfs(place)
    with open(f"{place}/filler", "wb") as filler:
        filler.write(bytes(max(0, there.f_bavail * there.f_bsize - left)))


def write_what_fits(t, label, path, want, writes, interval):
    """Writes places and bytes; what is taken is in `want` then, and synced."""
    fd = os.open(path, os.O_WRONLY)
    try:
        for n, (at, data) in enumerate(writes, 1):
            try:
                written = os.pwrite(fd, data, at)
                want[at : at + written] = data[:written]
            except OSError as e:
                t.equal(e.errno, errno.ENOSPC, f"{label}: write {n}")
            if n % interval == 0 or n == len(writes):
                try:
                    os.fsync(fd)
                except OSError as e:
                    t.check(False, f"{label}: fsync after write {n}: {e}")
    finally:
        os.close(fd)


def overwritten(t, binary, place, label, seed):
    """A dataset is overwritten where it is, and the journal of all that does not fit the disk: what write(2) accepted is committed."""
    path, rnd = f"{place}/f.h5", random.Random(seed)
    chunks, libver, size = [(None, "earliest", 1_600_000), ((20_000,), "latest", 1_600_000), (None, "latest", 1_400_000)][seed % 3]
    with h5py.File(path, "w", libver=libver) as f:
        plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        if chunks:
            # Early allocation without filters: the implicit index, whose chunks stay where they are.
            plist.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
        f.create_dataset("d", data=np.ones(size, "u1"), chunks=chunks, dcpl=plist)
    want = bytearray(b"\1" * size)
    with open(f"{place}/filler", "wb") as filler:
        filler.write(bytes(1_000_000))
    with harness.mounted(binary, path, "--read-write", "--commit-interval=0") as point:
        writes = []
        for _ in range(60):
            at, length = rnd.randrange(size), rnd.choice([100, 20_000, 100_000])
            writes.append((at, rnd.randbytes(min(length, size - at))))
        write_what_fits(t, label, f"{point}/d", want, writes, 20)
        t.equal(harness.read(f"{point}/d"), bytes(want), f"{label}: through the mount")
    with h5py.File(path) as f:
        t.equal(f["d"][()].tobytes(), bytes(want), f"{label}: h5py")
    t.equal(sorted(os.listdir(place)), ["f.h5", "filler"], f"{label}: files left")


def packed(t, binary, place, label, seed):
    """Chunks with filters take more of the file than their bytes, and change nodes of their index: what write(2) accepted is committed."""
    path, rnd = f"{place}/f.h5", random.Random(seed)
    chunk, count, free = [(4096, 360, (350_000, 570_000)), (64, 700, (80_000, 130_000)), (1000, 400, (90_000, 160_000)), (9000, 160, (400_000, 600_000))][seed % 4]
    libver, growing, pages = rnd.choice(["earliest", "latest"]), rnd.random() < 0.5, rnd.random() < 0.2
    strategy = {"fs_strategy": "page", "fs_page_size": 4096} if pages else {}
    want = bytearray(chunk * count)
    with h5py.File(path, "w", libver=libver, **strategy) as f:
        d = f.create_dataset("d", (len(want),), "u1", chunks=(chunk,), maxshape=(None,) if growing else None, compression="gzip")
        if rnd.random() < 0.7:
            want[:] = rnd.randbytes(len(want)) if rnd.random() < 0.3 else bytes(len(want))
            d[...] = np.frombuffer(want, "u1")
    with harness.mounted(binary, path, "--read-write", "--commit-interval=0") as point:
        fill_but(place, rnd.randrange(*free))
        writes = []
        for n in range(rnd.randrange(20, 120)):
            at = rnd.randrange(count) * chunk
            length = min(rnd.choice([chunk, 1, chunk // 2 + 1, 3 * chunk]), len(want) - at)
            writes.append((at, rnd.randbytes(length) if rnd.random() < 0.7 else bytes([n]) * length))
        write_what_fits(t, label, f"{point}/d", want, writes, len(writes))
        t.equal(harness.read(f"{point}/d"), bytes(want), f"{label}: through the mount")
    with h5py.File(path) as f:
        t.equal(f["d"][()].tobytes(), bytes(want), f"{label}: h5py")


def in_place(t, binary, place, label, seed, layout, left):
    """Bytes that are changed where they are, and a disk without room for the journal of that: what write(2) accepted is committed."""
    path, rnd = f"{place}/f.h5", random.Random(seed)
    size = 30_000 if layout == "compact" else 700_000
    plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    if layout == "compact":
        plist.set_layout(h5py.h5d.COMPACT)
    else:
        plist.set_chunk((1000,))
        plist.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
    with h5py.File(path, "w", libver="latest") as f:
        h5py.h5d.create(f.id, b"d", h5py.h5t.STD_U8LE, h5py.h5s.create_simple((size,)), plist)
    want = bytearray(size)
    with harness.mounted(binary, path, "--read-write", "--commit-interval=0") as point:
        fill_but(place, left)
        writes = []
        for _ in range(12):
            at, length = rnd.randrange(size), rnd.choice([1, 300, 12_000, 26_000, 100_000])
            writes.append((at, rnd.randbytes(min(length, size - at))))
        write_what_fits(t, label, f"{point}/d", want, writes, 5)
        t.equal(harness.read(f"{point}/d"), bytes(want), f"{label}: through the mount")
    with h5py.File(path) as f:
        t.equal(f["d"][()].tobytes(), bytes(want), f"{label}: h5py")


def temporary(t, binary, place, label, seed):
    """$TMPDIR has no room for a large chunk: it is read in memory, and not changed."""
    size, file, container = 70 << 20, tempfile.mkdtemp(prefix="h5dir-full-"), None
    try:
        source = f"{file}/f.h5"
        with h5py.File(source, "w") as f:
            data = np.zeros(size, "u1")
            data[::4099] = 7
            f.create_dataset("d", data=data, chunks=(size,), compression="gzip", compression_opts=1)
        container = f"iod:{file}/container"
        subprocess.run([binary, "create", container], check=True)
        subprocess.run([binary, "cp", f"{source}:/d", f"{container}:/d"], check=True)
        for target in (source, container):
            point = tempfile.mkdtemp(prefix="h5dir-full-mnt-")
            subprocess.run([binary, "mount", "--read-write", "--cache-size=64M", target, point], check=True, env={**os.environ, "TMPDIR": place})
            try:
                with open(f"{point}/d", "rb") as f:
                    for at in (0, size // 2, size - 10_000):
                        f.seek(at)
                        t.equal(f.read(10_000), data[at : at + 10_000].tobytes(), f"{label}: {target} at {at}")
                fd = os.open(f"{point}/d", os.O_WRONLY)
                try:
                    os.pwrite(fd, b"x", 5)
                    t.check(False, f"{label}: {target}: the chunk is changed")
                except OSError as e:
                    t.equal(e.errno, errno.ENOSPC, f"{label}: {target}")
                os.close(fd)
                reason = harness.fact(f"{point}/d", "error")
                t.check("$TMPDIR" in reason and str(size) in reason, f"{label}: {target}: {reason}")
            finally:
                subprocess.run([binary, "umount", point], check=True)
                os.rmdir(point)
    finally:
        shutil.rmtree(file)


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


LAYOUTS = {
    "": None,
    "filters": {"dtype": "u1", "chunks": [1000], "filters": ["shuffle", {"deflate": 4}]},
    "map": {"dtype": "u1", "chunks": [1000], "layout": "sparse"},
    "filter": {"dtype": "u1", "chunks": [1000], "layout": "sparse", "profile": "filter"},
    "structured": {"dtype": "u1", "chunks": [1000], "layout": "sparse", "profile": "structured"},
    "log": {"dtype": "u1", "layout": "log"},
    "deflated log": {"dtype": "u1", "layout": "log", "profile": "deflate"},
}


def create_as(path, layout):
    """A new file of a layout, open for writing."""
    fd = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_TRUNC)
    try:
        if LAYOUTS[layout]:
            os.setxattr(path, "user.h5dir.dataset", json.dumps(LAYOUTS[layout] | {"shape": [0], "maxshape": [None]}).encode())
    except OSError:
        os.close(fd)
        raise
    return fd


@contextlib.contextmanager
def mounted(binary, path):
    """The daemon of a mount of `path`, and the mount point, which is unmounted at the end."""
    with tempfile.TemporaryDirectory(prefix="h5dir-full-mnt-") as point:
        daemon = subprocess.Popen([binary, "mount", "-f", "--read-write", path, point], stdin=subprocess.DEVNULL)
        try:
            wait(lambda: os.path.ismount(point))
            yield daemon, point
        finally:
            if daemon.poll() is None:
                daemon.kill()
                daemon.wait()
            subprocess.run(["umount", "-l", point], check=False, stderr=subprocess.DEVNULL)


def killed_or_unmounted(binary, daemon, point, kill):
    if kill:
        daemon.kill()
        daemon.wait(60)
        return 0
    subprocess.run([binary, "umount", point], check=False, stdin=subprocess.DEVNULL)
    return daemon.wait(60)


def copied(t, binary, place, label, seed, layout, kill):
    """A file that does not fit is copied over another one, and alone."""
    path, rnd = f"{place}/f.h5", random.Random(seed)
    subprocess.run([binary, "create", path], check=True, stdin=subprocess.DEVNULL)
    written = {}
    with mounted(binary, path) as (daemon, point):
        works(t, f"{point}/old", b"old " * 1000, f"{label}: the old file")
        for name in ("old", "new"):
            fd = create_as(f"{point}/{name}", layout)
            data, full = b"", None
            try:
                for _ in range(100):
                    piece = rnd.randbytes(100000).replace(b"\0", b"x")
                    data += piece[: os.write(fd, piece)]
            except OSError as e:
                full = e.errno
            t.check(full in FULL, f"{label}: {name} was told {full}")
            written[name] = data
            try:
                os.fsync(fd)
            except OSError as e:
                t.check(False, f"{label}: fsync of {name}, which was acknowledged: {e}")
            os.close(fd)
        t.equal(killed_or_unmounted(binary, daemon, point, kill), 0, f"{label}: exit status")
    back = {name: subprocess.run([binary, "cat", f"{path}:/{name}"], capture_output=True, stdin=subprocess.DEVNULL).stdout for name in written}
    for name, data in written.items():
        t.check(back[name][: len(data)] == data, f"{label}: {name} has {len(back[name])} bytes of {len(data)}")
        t.check(not any(back[name][len(data) :]), f"{label}: bytes of {name} that were not written")
    t.equal(subprocess.run([binary, "check", "--data", path], capture_output=True, stdin=subprocess.DEVNULL).returncode, 0, f"{label}: check")


def removed(t, binary, place, label, seed, layout):
    """Everything is removed from a full file system, and the next file fits."""
    path, rnd = f"{place}/f.h5", random.Random(seed)
    subprocess.run([binary, "create", path], check=True, stdin=subprocess.DEVNULL)
    with mounted(binary, path) as (daemon, point):
        os.mkdir(f"{point}/fill")
        told = 0
        for n in range(60):
            try:
                fd = create_as(f"{point}/fill/{n}", layout)
                try:
                    os.write(fd, rnd.randbytes(300000))
                    os.fsync(fd)
                finally:
                    os.close(fd)
            except OSError as e:
                t.check(e.errno in FULL, f"{label}: {e}")
                told += 1
        t.check(told > 0, f"{label}: the file system is full")
        try:
            for name in os.listdir(f"{point}/fill"):
                os.unlink(f"{point}/fill/{name}")
        except OSError as e:
            t.check(False, f"{label}: removing: {e}")
        sync(point, lambda e: t.check(False, f"{label}: committing removals: {e}"))
        if "log" not in layout:
            works(t, f"{point}/again", b"more " * 10000, f"{label}: writing after files were removed")
        t.equal(killed_or_unmounted(binary, daemon, point, False), 0, f"{label}: exit status")
    listed = subprocess.run([binary, "ls", f"{path}:/fill"], capture_output=True, stdin=subprocess.DEVNULL)
    t.equal((listed.returncode, listed.stdout), (0, b""), f"{label}: names left")
    t.equal(subprocess.run([binary, "check", "--data", path], capture_output=True, stdin=subprocess.DEVNULL).returncode, 0, f"{label}: check")


def collected(t, binary, place, label, seed):
    """Old versions of a container fill its file system, also by removals; garbage collection frees them, and its mount goes on."""
    container, rnd = f"iod:{place}/store", random.Random(seed)
    subprocess.run([binary, "create", container], check=True, stdin=subprocess.DEVNULL)
    with mounted(binary, container) as (daemon, point):
        kept = rnd.randbytes(40000)
        works(t, f"{point}/kept", kept, f"{label}: the first file")
        refused = 0
        for _ in range(3000):
            # Small records go on after packs are refused, up to the room of garbage collection.
            try:
                if rnd.random() < 0.5:
                    put_new(f"{point}/new", rnd.randbytes(rnd.choice([100, 50000])))
                else:
                    os.setxattr(f"{point}/kept", "user.n", b"%d" % rnd.randrange(1000))
                    sync(point, raised)
            except OSError as e:
                t.check(e.errno in FULL, f"{label}: {e}")
                refused += 1
            with contextlib.suppress(FileNotFoundError):
                os.unlink(f"{point}/new")
            if refused > 40:
                break
        t.check(refused > 40, f"{label}: the file system is full")
        free = os.statvfs(place).f_bavail
        done = subprocess.run([binary, "iod", "gc", "--grace=0", "--keep-versions=1", container], capture_output=True, text=True, stdin=subprocess.DEVNULL)
        t.check(done.returncode == 0, f"{label}: gc on a full file system: {done.stderr[-300:]}")
        t.check(os.statvfs(place).f_bavail > free, f"{label}: gc makes room: {done.stdout}")
        sync(point, lambda e: t.check(False, f"{label}: committing after gc: {e}"))
        works(t, f"{point}/again", b"more " * 10000, f"{label}: writing after gc")
        with open(f"{point}/kept", "rb") as f:
            t.check(f.read() == kept, f"{label}: bytes of the first file")
        t.equal(killed_or_unmounted(binary, daemon, point, False), 0, f"{label}: exit status")
    t.equal(subprocess.run([binary, "check", "--data", container], capture_output=True, stdin=subprocess.DEVNULL).returncode, 0, f"{label}: check")


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


def put_new(path, data):
    """Writes a file and syncs it."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT)
    try:
        os.write(fd, data)
        os.fsync(fd)
    finally:
        os.close(fd)


def raised(e):
    raise e


def sync(path, failed=lambda e: None):
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    except OSError as e:
        failed(e)
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
    for seed in range(4):
        one_round(t, options.bin, f"container {seed}", seed, collected)
    for seed in range(6):
        one_round(t, options.bin, f"overwritten {seed}", seed, overwritten, 3)
    for seed in range(32):
        one_round(t, options.bin, f"packed {seed}", seed, packed, 3)
    for layout, left in itertools.product(("compact", "implicit"), (4096, 12_288, 20_480, 100_000)):
        what = functools.partial(in_place, layout=layout, left=left)
        one_round(t, options.bin, f"{layout}, {left} bytes left", options.seed + left, what, 3)
    for layout in ("compact", "implicit"):
        what = functools.partial(in_place, layout=layout, left=1_500_000)
        one_round(t, options.bin, f"{layout}, no inode left", options.seed, what, "3m,nr_inodes=3", "")
    one_round(t, options.bin, "temporary files", 0, temporary, 20)
    for seed in (0, 1):
        one_round(t, options.bin, f"hole {seed}", seed, sparse)
    for layout, size in itertools.product(LAYOUTS, (2, 5)):
        name = f"{layout or 'dense'}, {size} MiB"
        for kill in (False, True):
            what = functools.partial(copied, layout=layout, kill=kill)
            one_round(t, options.bin, f"copied, {name}, {'killed' if kill else 'unmounted'}", options.seed, what, size)
        one_round(t, options.bin, f"removed, {name}", options.seed, functools.partial(removed, layout=layout), size)
    t.finish()


if __name__ == "__main__":
    main()
