"""Rows of datasets in a log: random overwrites, reading back, many small records, reopening; against chunks and h5py."""

import json
import os
import subprocess
import tempfile
import time
from pathlib import Path

import contenders as c
import h5py
import numpy as np

PIECE = 4096
CACHE = 64 << 20


class Dataset:
    """One dataset of bytes, mounted read-write."""

    def __init__(self, folder, name, size, dtype="|u1", **layout):
        self.path, self.mnt = folder / f"{name}.h5", folder / "mnt"
        self.mnt.mkdir(exist_ok=True)
        subprocess.run([c.H5DIR, "create", self.path], check=True)
        self.file = self.mnt / "d"
        self.open()
        self.file.touch()
        text = {"dtype": dtype, "shape": [size], **layout}
        os.setxattr(self.file, "user.h5dir.dataset", json.dumps(text).encode())

    def open(self):
        self.mount = c.Mount(["mount", "-f", "--read-write", f"--cache-size={CACHE}", str(self.path)], self.mnt)

    def overwrite(self, places, piece):
        """Writes the pieces, and makes them durable."""
        begin = time.perf_counter()
        f = os.open(self.file, os.O_RDWR)
        for at in places:
            os.pwrite(f, piece, int(at) * PIECE)
        os.fsync(f)
        os.close(f)
        return time.perf_counter() - begin

    def whole(self):
        begin = time.perf_counter()
        buffer = bytearray(1 << 20)
        with open(self.file, "rb", buffering=0) as f:
            while f.readinto(buffer):
                pass
        return time.perf_counter() - begin

    def remount(self):
        begin = time.perf_counter()
        self.mount.close()
        closed = time.perf_counter() - begin
        self.open()
        return closed


def in_h5py(path, size, places, piece):
    """The same overwrites of a deflated dataset by a program with h5py."""
    with h5py.File(path, "w", rdcc_nbytes=CACHE) as f:
        d = f.create_dataset("d", (size,), "u1", chunks=(1 << 20,), compression=1)
        values = np.frombuffer(piece, "u1")
        chunk = np.tile(values, (1 << 20) // PIECE)
        for at in range(0, size, 1 << 20):
            d[at:at + (1 << 20)] = chunk
        f.flush()
        begin = time.perf_counter()
        for at in places:
            d[int(at) * PIECE:(int(at) + 1) * PIECE] = values
        f.flush()
    with open(path, "rb") as f:
        os.fsync(f.fileno())
    return time.perf_counter() - begin


def rows(bench):
    size, rng = 4 * CACHE, np.random.default_rng(0)
    count = 20_000 if bench.quick else 100_000
    places = rng.integers(0, size // PIECE, count)
    piece = rng.integers(0, 60, PIECE, "u1").tobytes()
    with tempfile.TemporaryDirectory(dir=os.environ.get("H5DIR_BENCH_CACHE")) as folder:
        folder = Path(folder)
        overwrites(bench, folder, size, places, piece)
        small(bench, folder, 200_000 if bench.quick else 10_000_000)


def overwrites(bench, folder, size, places, piece):
    log = Dataset(folder, "log", size, layout="log")
    log.overwrite(range(size // PIECE), piece)
    logged = log.overwrite(places, piece)
    # As many bytes one after the other.
    appended = log.overwrite([n % (size // PIECE) for n in range(len(places))], piece)
    closed = log.remount()
    random = log.whole()
    log.mount.close()
    subprocess.run([c.H5DIR, "compact", log.path], check=True, stdout=subprocess.DEVNULL)
    log.open()
    compacted = log.whole()
    log.mount.close()
    # The slow ones are measured with fewer writes.
    few = places[:len(places) // 20]
    chunked = Dataset(folder, "chunked", size, chunks=[1 << 20], filters=["deflate 1"])
    chunked.overwrite(range(size // PIECE), piece)
    packed = chunked.overwrite(few, piece) * 20
    chunked.mount.close()
    plain = Dataset(folder, "contiguous", size, layout="contiguous")
    plain.overwrite(range(size // PIECE), piece)
    plain.remount()
    contiguous = plain.whole()
    plain.mount.close()
    theirs = in_h5py(folder / "h5py.h5", size, few, piece) * 20
    name = f"log: {len(places)} random 4 KiB overwrites"
    print(f"  unmount after them: {closed:.2f} s")
    bench.times(f"{name} / chunked, deflated", [logged], [packed], 10, 1, "s")
    bench.times(f"{name} / h5py, deflated", [logged], [theirs], 100, 1, "s")
    bench.times(f"{name}, durable / appending", [logged], [appended], 0.8, 1, "s")
    bench.times("log: read all after random writes / contiguous", [random], [contiguous], 0.33, 1, "s")
    bench.times("log: read all after h5dir compact / contiguous", [compacted], [contiguous], 1, 1, "s")


def small(bench, folder, count):
    """Many records of 8 elements that cannot be joined; the cost of the last tenth against the first, then reopening."""
    log = Dataset(folder, "small", 2 * 8 * count, dtype="<u2", layout="log")
    costs, tenth = [], count // 10
    f = os.open(log.file, os.O_RDWR)
    for part in range(10):
        begin = time.perf_counter()
        for n in range(part * tenth, (part + 1) * tenth):
            os.pwrite(f, b"0123456789abcdef", n * 32)
        os.fsync(f)
        costs.append((time.perf_counter() - begin) / tenth)
    os.close(f)
    memory = log.mount.peak_memory() / 1e6
    begin = time.perf_counter()
    log.mount.close()
    closed = time.perf_counter() - begin
    begin = time.perf_counter()
    log.open()
    opened = time.perf_counter() - begin
    begin = time.perf_counter()
    with open(log.file, "rb", buffering=0) as file:
        file.read(16)
    first = time.perf_counter() - begin
    log.mount.close()
    note = f"peak memory {memory:.0f} MB; mount {1e3 * opened:.0f} ms, first read {first:.2f} s; parts: {' '.join(f'{1e6 * t:.1f}' for t in costs)} us"
    bench.size(f"log: {count} records: write, last tenth / first", 1e6 * costs[-1], 1e6 * costs[0], [costs[-1] / costs[0]], "us", 1.2, note)
    bound = (CACHE + (64 << 20)) / 1e6
    bench.size(f"log: {count} records: peak memory / cache + 64 MiB", memory, bound, [memory / bound], "MB", 1, note)
    bench.size(f"log: {count} records: unmount, s per million", closed, count / 1e6, [closed / (count / 1e6)], "s", 1, note)
