"""Rows of writing: the mount against h5py, both with and without making the bytes durable."""

import os
import shutil
import statistics
import subprocess
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import contenders as c
import data
import h5py
import numpy as np

# Options of a mount that makes files durable when they are closed.
DURABLE = ("--commit-on-close=on",)


@contextmanager
def scratch(name):
    """A path for a file that is written to, empty before and gone after."""
    path = data.CACHE / f"scratch-{name}.h5"
    path.unlink(missing_ok=True)
    try:
        yield path
    finally:
        path.unlink(missing_ok=True)


def sync(path):
    """Makes a file durable."""
    fd = os.open(path, os.O_RDWR)
    os.fsync(fd)
    os.close(fd)


def empty(path, array):
    """A file with the array's dataset and no elements in it."""
    path.unlink(missing_ok=True)
    with h5py.File(path, "w", libver="v110") as f:
        f.create_dataset("data", array.shape, "f4", chunks=array.chunks, **array.filters)
    sync(path)


def mount(path, *options):
    return c.mounted("mount", "-f", "--read-write", *options, str(path))


def h5py_write(path, values, rows, durable):
    """All elements in h5py's windows, and the file closed."""
    start = time.perf_counter()
    with h5py.File(path, "r+") as f:
        d = f["data"]
        for at in range(0, values.shape[0], rows):
            d.write_direct(values, np.s_[at : at + rows], np.s_[at : at + rows])
    if durable:
        sync(path)
    return time.perf_counter() - start


def check(path, values):
    with h5py.File(path) as f:
        if not np.array_equal(f["data"][...], values):
            raise SystemExit(f"{path}: what was written through the mount is not what h5py reads")


def sequential(bench, name, label, target):
    a = bench.array(name)
    plain = data.plain_copy(a)
    values = np.fromfile(plain, "f4").reshape(a.shape)
    # Deflated chunks are encoded by the commit: without one the mount would have done less than h5py.
    for durable in (False, True) if a.chunks is None else (True,):
        ours, theirs, cpu = [], [], [[], []]
        for _ in range(bench.reps):
            with scratch("ours") as path:
                empty(path, a)
                c.back_memory(a.nbytes + (1 << 30))
                c.warm(plain)
                with mount(path, *(DURABLE if durable else ())) as m:
                    before = m.cpu()
                    ours.append(c.writer("seq", plain, m.point / "data", 1 << 20))
                    cpu[0].append(m.cpu() - before)
                check(path, values)
            with scratch("theirs") as path:
                empty(path, a)
                c.back_memory(a.nbytes + (1 << 30))
                before = time.process_time()
                theirs.append(h5py_write(path, values, a.rows_at_once, durable))
                cpu[1].append(time.process_time() - before)
        how = "closed and durable" if durable else "closed, not synced"
        note = "CPU {:.2f} s, h5py {:.2f} s".format(*(sum(x) / len(x) for x in cpu))
        bench.rates(f"write {label}, {how} / h5py", a.nbytes, ours, theirs, target, note)


def program(bench, name, label, target):
    """`dd` of a file into the mount, against a program that stores it with h5py; both durable."""
    a = bench.array(name)
    plain = data.plain_copy(a)
    ours, theirs = [], []
    for _ in range(bench.reps):
        with scratch("ours") as path:
            empty(path, a)
            c.back_memory(a.nbytes + (1 << 30))
            c.warm(plain)
            with mount(path) as m:
                ours.append(c.timed(["dd", f"if={plain}", f"of={m.point}/data", "bs=1M", "conv=notrunc", "status=none"]))
        with scratch("theirs") as path:
            empty(path, a)
            c.back_memory(a.nbytes + (1 << 30))
            theirs.append(c.program(STORE, plain, path))
    bench.rates(f"write {label}, program: dd / h5py [...] = fromfile, synced", a.nbytes, ours, theirs, target)


STORE = """
import os, sys, h5py, numpy
with h5py.File(sys.argv[2], 'r+') as f:
    d = f['data']
    d[...] = numpy.fromfile(sys.argv[1], 'f4').reshape(d.shape)
os.fsync(os.open(sys.argv[2], os.O_RDWR))
"""

def overwrites(bench):
    """4 KiB at a time over random places of deflated chunks."""
    a = bench.array("deflate1d")
    plain = data.plain_copy(a)
    count = 5_000 if bench.quick else 100_000
    # h5py decodes and encodes a chunk each time: a part of them tells the rate.
    part = count // 100
    rng = np.random.default_rng(7)
    places = rng.integers(0, a.shape[0] // 1024, part) * 1024
    block = np.fromfile(plain, "f4", 1024)
    ours, theirs = [], []
    for _ in range(min(bench.reps, 3)):
        with scratch("ours") as path:
            shutil.copy(a.path, path)
            with mount(path) as m:
                seconds = c.writer("random", plain, m.point / "data", 4096, count)
                start = time.perf_counter()
            # What waits in memory is encoded when the mount ends.
            ours.append(seconds + time.perf_counter() - start)
        with scratch("theirs") as path:
            shutil.copy(a.path, path)
            start = time.perf_counter()
            with h5py.File(path, "r+") as f:
                d = f["data"]
                for at in places.tolist():
                    d.write_direct(block, None, np.s_[at : at + 1024])
            theirs.append((time.perf_counter() - start) * count / part)
    bench.times(f"{count} random 4 KiB overwrites, deflated chunks, unmounted / h5py", ours, theirs, 1.0, note="h5py: rate of a hundredth of them")


@contextmanager
def processors(number):
    """What is started here runs on that many processors; 0: all."""
    all_of_them = os.sched_getaffinity(0)
    if number:
        os.sched_setaffinity(0, sorted(all_of_them)[:number])
    try:
        yield
    finally:
        os.sched_setaffinity(0, all_of_them)


def many(bench):
    """Small datasets: until the programs have ended, with the mount's own settings for when changes become durable."""
    for durable, number, programs in ((False, 0, 1), (False, 0, 4), (False, 1, 1), (True, 0, 1)):
        with processors(number):
            create_many(bench, durable, number, programs)


def files(source, place, count, programs):
    """Seconds that so many programs take to make the files, each in a directory of its own."""
    folders = [place / f"g{i}" for i in range(programs)]
    for folder in folders:
        folder.mkdir()
    start = time.perf_counter()
    with ThreadPoolExecutor(programs) as pool:
        list(pool.map(lambda folder: c.writer("files", source, folder, 64, count // programs), folders))
    return time.perf_counter() - start


def create_many(bench, durable, number, programs):
    count = 10_000 if bench.quick else 100_000
    source = data.bytes_for_files()
    ours, theirs, floor = [], [], []
    n = count if not durable else count // 20
    for _ in range(min(bench.reps, 3)):
        with scratch("ours") as path:
            c.timed([c.H5DIR, "create", str(path)])
            with mount(path, *(DURABLE if durable else ())) as m:
                ours.append(files(source, m.point, n, programs))
        if not durable and shutil.which("bindfs"):
            with bindfs() as point:
                floor.append(files(source, point, n, programs))
        with scratch("theirs") as path:
            block = np.arange(64, dtype="u1")
            start = time.perf_counter()
            with h5py.File(path, "w", libver="v110") as f:
                g = f.create_group("g")
                for i in range(n):
                    g.create_dataset(f"d{i:06}", data=block, maxshape=(None,), chunks=(64,))
                    if durable:
                        f.flush()
                        os.fsync(f.id.get_vfd_handle())
            theirs.append(time.perf_counter() - start)
    how = ", each durable" if durable else ""
    where = (f" by {programs} programs at once" if programs > 1 else "") + (", on one processor" if number else "")
    note = f"bindfs, of files in memory: {statistics.median(t / o for o, t in zip(floor, theirs)):.2f} of h5py" if floor else ""
    bench.times(f"{n} small datasets created{how}{where} / h5py", ours, theirs, None if durable or number else 1.0, note=note)


@contextmanager
def bindfs():
    """A FUSE file system that does nothing but pass on: to a directory in memory."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as inside, tempfile.TemporaryDirectory() as point:
        subprocess.run(["bindfs", inside, point], check=True)
        try:
            yield Path(point)
        finally:
            subprocess.run(["fusermount3", "-u", point], check=True)


def tree(bench):
    """`cp -a` of a tree of files, against a program that does the same with h5py."""
    root = data.CACHE / "files"
    count = 500 if bench.quick else 2_000
    source = data.plain_copy(bench.array("contiguous"))
    shutil.rmtree(root, ignore_errors=True)
    with open(source, "rb") as f:
        for i in range(count):
            folder = root / f"f{i % 20:02}"
            folder.mkdir(parents=True, exist_ok=True)
            (folder / f"n{i:05}").write_bytes(f.read(64 << 10))
    ours, theirs = [], []
    for _ in range(bench.reps):
        with scratch("ours") as path:
            c.timed([c.H5DIR, "create", str(path)])
            with mount(path) as m:
                ours.append(c.timed(["cp", "-a", str(root), str(m.point / "tree")]))
        with scratch("theirs") as path:
            theirs.append(c.program(COPY, root, path))
    bench.times(f"cp -a of {count} files of 64 KiB / a program with h5py", ours, theirs, 1.0)
    shutil.rmtree(root)


COPY = """
import os, sys, h5py, numpy
with h5py.File(sys.argv[2], 'w', libver='v110') as f:
    for folder, _, names in os.walk(sys.argv[1]):
        g = f.require_group(os.path.relpath(folder, sys.argv[1]))
        for n in names:
            g.create_dataset(n, data=numpy.fromfile(os.path.join(folder, n), 'u1'), maxshape=(None,), chunks=True)
"""


def rows(bench):
    for name, label, target in (("contiguous", "contiguous", 1.0), ("deflate3d", "3-D shuffle+deflate", 2.0), ("deflate1d", "1-D shuffle+deflate", 2.0)):
        program(bench, name, label, target)
        sequential(bench, name, label, target)
    overwrites(bench)
    many(bench)
    tree(bench)
