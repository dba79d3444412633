"""Rows of containers in a folder (`iod:FOLDER`), against HDF5 files mounted by the same program."""

import os
import shutil
import subprocess
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

import contenders as c
import h5py
import numpy as np

MIB = 1 << 20
# As many small datasets as the conversion that took HSDS minutes had.
IMPORTED = 11_000
# Targets of the digest of object stores: seconds.
IMPORT_SECONDS, LIST_SECONDS = 3.0, 1.0
# 100 writers that commit at once: seconds, and how much longer than the median one may wait.
CONTEST_SECONDS, CONTEST_RATIO = 2.0, 5.0


class Pair:
    """An empty container in a folder and an empty HDF5 file, beside each other."""

    def __init__(self, folder):
        self.targets = {"iod": f"iod:{folder / 'container'}", "hdf5": str(folder / "file.h5")}
        for target in self.targets.values():
            subprocess.run([c.H5DIR, "create", target], check=True)

    def mount(self, kind, writable=True):
        return c.mounted("mount", "-f", *(["--read-write"] if writable else []), self.targets[kind])


@contextmanager
def pair():
    with tempfile.TemporaryDirectory(dir=os.environ.get("H5DIR_BENCH_CACHE")) as folder:
        yield Pair(Path(folder))


def sync(path):
    fd = os.open(path, os.O_RDONLY)
    os.fsync(fd)
    os.close(fd)


def timed(f, *args):
    start = time.perf_counter()
    f(*args)
    return time.perf_counter() - start


def both(bench, measure):
    """Seconds that `measure(pair, kind)` returns: those of containers and those of HDF5 files."""
    seconds = {"iod": [], "hdf5": []}
    for n in range(bench.reps):
        with pair() as made:
            # In turns: what runs second finds a busier disk.
            for kind in ("iod", "hdf5") if n % 2 else ("hdf5", "iod"):
                seconds[kind].append(measure(made, kind))
    return seconds["iod"], seconds["hdf5"]


def sequential(bench):
    size = (128 if bench.quick else 512) * MIB
    block = np.random.default_rng(0).integers(0, 256, MIB, "u1").tobytes()
    reads = {"iod": [], "hdf5": []}

    def write(path):
        with open(path, "wb", buffering=0) as f:
            for _ in range(size // MIB):
                f.write(block)
            os.fsync(f.fileno())

    def measure(made, kind):
        c.back_memory(size + (1 << 30))
        with made.mount(kind) as m:
            written = timed(write, m.point / "d")
        with made.mount(kind, writable=False) as m:
            c.back_memory(size + (1 << 30))
            reads[kind].append(c.read_loop(m.point / "d"))
        return written

    bench.rates("iod: write in order, synced / HDF5 file", size, *both(bench, measure), 0.9)
    bench.rates("iod: read in order / HDF5 file", size, reads["iod"], reads["hdf5"], 0.9)


def small(bench):
    n = 2_000 if bench.quick else 20_000
    listings = {"iod": [], "hdf5": []}

    def create(folder):
        for i in range(n):
            with open(folder / f"{i:06}", "wb", buffering=0) as f:
                f.write(b"0123456789abcdef")
        sync(folder / "000000")

    def measure(made, kind):
        with made.mount(kind) as m:
            created = timed(create, m.point)
        with made.mount(kind, writable=False) as m:
            listings[kind].append(c.ls(m.point))
        return created

    bench.times(f"iod: {n} small files, then synced / HDF5 file", *both(bench, measure), 1.0)
    bench.times(f"iod: ls -lR of {n} files / HDF5 file", listings["iod"], listings["hdf5"], 1.0)


def durable(bench):
    n = 100 if bench.quick else 300

    def measure(made, kind):
        with made.mount(kind) as m:
            (m.point / "d").write_bytes(bytes(4096))
            f = os.open(m.point / "d", os.O_RDWR)
            os.fsync(f)
            start = time.perf_counter()
            for i in range(n):
                os.pwrite(f, i.to_bytes(4, "little"), 8 * i)
                os.fsync(f)
            seconds = (time.perf_counter() - start) / n
            os.close(f)
        return seconds

    ours, theirs = both(bench, measure)
    slower = [o / t for o, t in zip(ours, theirs)]
    bench.size("iod: write and fsync / HDF5 file", 1e3 * min(ours), 1e3 * min(theirs), slower, "ms", 2.0, f"{n} writes of 4 bytes")


def imported(bench):
    with tempfile.TemporaryDirectory(dir=os.environ.get("H5DIR_BENCH_CACHE")) as folder:
        source = Path(folder) / "source.h5"
        with h5py.File(source, "w") as f:
            for g in range(110):
                group = f.create_group(f"g{g:03}")
                for i in range(IMPORTED // 110):
                    group[f"d{i:03}"] = np.arange(10)
        ours, theirs = [], []
        for _ in range(bench.reps):
            for target, seconds in ((f"iod:{folder}/container", ours), (f"{folder}/copy.h5", theirs)):
                seconds.append(c.timed([c.H5DIR, "cp", "-r", "--create", f"{source}:/", f"{target}:/"]))
            shutil.rmtree(f"{folder}/container")
            os.unlink(f"{folder}/copy.h5")
    slower = [t / IMPORT_SECONDS for t in ours]
    bench.size(f"iod: cp -r of {IMPORTED} datasets: time / {IMPORT_SECONDS:g} s", min(ours), IMPORT_SECONDS, slower, "s", 1.0, "")
    bench.times(f"iod: cp -r of {IMPORTED} datasets / into an HDF5 file", ours, theirs, 1.0)


def listed(bench):
    n = 20_000 if bench.quick else 96_882
    with pair() as made:
        with made.mount("iod") as m:
            for i in range(n):
                os.close(os.open(m.point / f"{i:06}", os.O_CREAT | os.O_WRONLY))
        seconds = []
        for _ in range(bench.reps):
            with made.mount("iod", writable=False) as m:
                seconds.append(c.timed(["ls", "-f", str(m.point)]))
    limit = LIST_SECONDS * n / 96_882
    bench.size(f"iod: ls of {n} names: time / {limit:.2g} s", min(seconds), limit, [t / limit for t in seconds], "s", 1.0, "")


def contest(bench):
    """Mounts that write a file each and sync it at the same time."""
    n = 16 if bench.quick else 100
    totals, ratios, medians = [], [], []
    for _ in range(bench.reps):
        with pair() as made, ExitStack() as mounts:
            files = []
            for i in range(n):
                point = mounts.enter_context(made.mount("iod")).point
                files.append(mounts.enter_context(open(point / f"w{i}", "wb", buffering=0)))
            begin = threading.Barrier(n)

            def write(f):
                f.write(b"0123456789abcdef")
                begin.wait()
                start = time.perf_counter()
                os.fsync(f.fileno())
                return start, time.perf_counter()

            with ThreadPoolExecutor(n) as threads:
                spans = list(threads.map(write, files))
            waits = sorted(end - start for start, end in spans)
            totals.append(max(end for _, end in spans) - min(start for start, _ in spans))
            medians.append(waits[n // 2])
            ratios.append(waits[min(n - 1, n * 99 // 100)] / waits[n // 2])
    name = f"iod: {n} mounts commit at once: "
    slower = [t / CONTEST_SECONDS for t in totals]
    bench.size(f"{name}time / {CONTEST_SECONDS:g} s", min(totals), CONTEST_SECONDS, slower, "s", 1.0, "")
    bench.size(f"{name}p99 / p50", min(medians) * min(ratios), min(medians), ratios, "s", CONTEST_RATIO, "")


def rows(bench):
    for row in (sequential, small, durable, imported, listed, contest):
        row(bench)
