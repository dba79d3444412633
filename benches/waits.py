"""Rows of requests that meet long work of others: stat, reads and durable writes beside commits, relayouts, compaction."""

import ctypes
import json
import mmap
import os
import subprocess
import tempfile
import threading
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path

import contenders as c
import numpy as np

MIB = 1 << 20
BLOCK = 4096
# No request waits longer, 99 of 100 times, whatever else goes on: seconds.
WAIT_SECONDS = 0.020
# How much longer a durable write takes beside readers.
READERS, READERS_RATIO = 8, 2.0

LIBC = ctypes.CDLL(None, use_errno=True)
AT_FDCWD, AT_STATX_FORCE_SYNC, STATX_BASIC_STATS = -100, 0x2000, 0x7FF


def stat_now(path, buffer=ctypes.create_string_buffer(256)):
    """`stat` that the kernel does not answer from its memory."""
    if LIBC.statx(AT_FDCWD, os.fsencode(path), AT_STATX_FORCE_SYNC, STATX_BASIC_STATS, buffer):
        raise OSError(ctypes.get_errno(), f"statx of {path}")


def p99(seconds):
    return sorted(seconds)[min(len(seconds) - 1, len(seconds) * 99 // 100)]


class Asker(threading.Thread):
    """Asks for attributes and for 4 KiB of the daemon, over and over, until `over` is set."""

    def __init__(self, path):
        super().__init__(daemon=True)
        self.path, self.begun, self.over, self.stats, self.reads = path, threading.Event(), threading.Event(), [], []

    def run(self):
        size, rng = os.stat(self.path).st_size // BLOCK, np.random.default_rng(1)
        page = mmap.mmap(-1, BLOCK)
        file = os.open(self.path, os.O_RDONLY | os.O_DIRECT)
        while not self.over.is_set():
            start = time.perf_counter()
            stat_now(self.path)
            middle = time.perf_counter()
            os.preadv(file, [page], int(rng.integers(size)) * BLOCK)
            self.stats.append(middle - start)
            self.reads.append(time.perf_counter() - middle)
            self.begun.set()
        os.close(file)


@contextmanager
def asked(path):
    asker = Asker(path)
    asker.start()
    asker.begun.wait(c.START_LIMIT)
    try:
        yield asker
    finally:
        asker.over.set()
        asker.join()


def created(folder, name, kind):
    target = f"iod:{folder / name}" if kind == "iod" else str(folder / f"{name}.h5")
    subprocess.run([c.H5DIR, "create", target], check=True)
    return target


def fill(path, size, block):
    with open(path, "r+b", buffering=0) as f:
        for at in range(0, size, len(block)):
            f.write(block)
        os.fsync(f.fileno())


def dataset(path, size, **facts):
    Path(path).touch()
    os.setxattr(path, "user.h5dir.dataset", json.dumps({"dtype": "|u1", "shape": [size], **facts}).encode())


def beside(bench, name, target, prepare, work):
    """The longest waits of one who asks for `other` while `work` runs."""
    stats, reads, took = [], [], []
    for _ in range(bench.reps):
        with tempfile.TemporaryDirectory(dir=os.environ.get("H5DIR_BENCH_CACHE")) as folder:
            target_name = created(Path(folder), "d", target)
            with c.mounted("mount", "-f", "--read-write", target_name) as m:
                block = np.random.default_rng(0).integers(0, 60, MIB, "u1").tobytes()
                dataset(m.point / "other", 64 * MIB, chunks=[MIB // 4], filters=["deflate 1"])
                fill(m.point / "other", 64 * MIB, block)
                prepare(m.point, block)
                with asked(m.point / "other") as asker:
                    start = time.perf_counter()
                    work(m.point, block)
                    took.append(time.perf_counter() - start)
        stats.append(p99(asker.stats))
        reads.append(p99(asker.reads))
        note = f"{len(asker.reads)} of each in {took[-1]:.1f} s, longest {1e3 * max(asker.stats):.0f} and {1e3 * max(asker.reads):.0f} ms"
    for what, waits in (("stat", stats), ("4 KiB read", reads)):
        slower = [w / WAIT_SECONDS for w in waits]
        bench.size(f"p99 of {what} beside {name} / 20 ms", 1e3 * min(waits), 1e3 * WAIT_SECONDS, slower, "ms", 1.0, note)


def commit(bench):
    size = (256 if bench.quick else 1024) * MIB

    def prepare(point, _block):
        (point / "big").touch()

    def work(point, block):
        fill(point / "big", size, block)

    for kind in ("hdf5", "iod"):
        beside(bench, f"a commit of {size // MIB} MiB ({kind})", kind, prepare, work)


def relayout(bench):
    size = (128 if bench.quick else 512) * MIB

    def prepare(point, block):
        dataset(point / "big", size, chunks=[MIB], filters=["deflate 1"])
        fill(point / "big", size, block)

    def work(point, _block):
        os.setxattr(point / "big", "user.h5dir.chunks", json.dumps([MIB // 2]).encode())

    for kind in ("hdf5", "iod"):
        beside(bench, f"a relayout of {size // MIB} MiB ({kind})", kind, prepare, work)


def compaction(bench):
    """A log grows by overwrites, which are compacted beside them."""
    size, count = 64 * MIB, 40_000 if bench.quick else 200_000

    def prepare(point, block):
        dataset(point / "big", size, layout="log")
        fill(point / "big", size, block)

    def work(point, block):
        rng = np.random.default_rng(2)
        f = os.open(point / "big", os.O_RDWR)
        for n, at in enumerate(rng.integers(0, size // BLOCK, count)):
            os.pwrite(f, block[:BLOCK], int(at) * BLOCK)
            if n % 1000 == 0:
                os.fsync(f)
        os.close(f)

    beside(bench, f"{count} overwrites of a log", "hdf5", prepare, work)


def durable(bench):
    """A write and fsync of 4 bytes alone, and beside readers of other data of the mount, or of another mount."""
    n = 200 if bench.quick else 1000

    def writes(path):
        seconds = []
        f = os.open(path, os.O_RDWR)
        for i in range(n):
            start = time.perf_counter()
            os.pwrite(f, i.to_bytes(4, "little"), 8 * i)
            os.fsync(f)
            seconds.append(time.perf_counter() - start)
        os.close(f)
        return p99(seconds)

    def beside(path, other):
        command = [c.READER, "loop", str(other), str(BLOCK)]
        readers = [subprocess.Popen(command, stdout=subprocess.DEVNULL) for _ in range(READERS)]
        try:
            return writes(path)
        finally:
            for reader in readers:
                reader.kill()
                reader.wait()

    for kind in ("hdf5", "iod"):
        alone, elsewhere, here = [], [], []
        for _ in range(bench.reps):
            with tempfile.TemporaryDirectory(dir=os.environ.get("H5DIR_BENCH_CACHE")) as folder:
                with ExitStack() as mounts:
                    m, other = (
                        mounts.enter_context(c.mounted("mount", "-f", "--read-write", created(Path(folder), name, kind)))
                        for name in ("d", "other")
                    )
                    block = np.random.default_rng(0).integers(0, 60, MIB, "u1").tobytes()
                    for point in (m.point, other.point):
                        dataset(point / "other", 64 * MIB, chunks=[MIB // 4], filters=["deflate 1"])
                        fill(point / "other", 64 * MIB, block)
                    (m.point / "d").write_bytes(bytes(64 * 1024))
                    alone.append(writes(m.point / "d"))
                    elsewhere.append(beside(m.point / "d", other.point / "other"))
                    here.append(beside(m.point / "d", m.point / "other"))
        name = f"p99 of write and fsync beside {READERS} readers"
        ratios = [h / a for h, a in zip(here, alone)]
        bench.size(f"{name} / alone ({kind})", 1e3 * min(here), 1e3 * min(alone), ratios, "ms", READERS_RATIO, f"{n} writes")
        ratios = [e / a for e, a in zip(elsewhere, alone)]
        bench.size(f"{name} of another mount / alone ({kind})", 1e3 * min(elsewhere), 1e3 * min(alone), ratios, "ms", None, f"{n} writes")
        ratios = [h / e for h, e in zip(here, elsewhere)]
        bench.size(f"{name} / of another mount ({kind})", 1e3 * min(here), 1e3 * min(elsewhere), ratios, "ms", READERS_RATIO, f"{n} writes")


def rows(bench):
    for row in (commit, relayout, compaction, durable):
        row(bench)
