"""Rows of sparse datasets: frames of a detector of which little is stored, against h5py's dense and deflated ones."""

import json
import os
import subprocess
import tempfile
import time
from pathlib import Path

import contenders as c
import h5py
import numpy as np

SIDE = 2048
FRAME = SIDE * SIDE
SIZE = 2
# A region of a tenth of the frame; spots of 5 to 10 pixels.
REGION = int(SIDE * 0.316)
SPOTS = 75


def regions(kind, frame):
    """Blocks of a frame that are stored: first row, end row, first column, end column."""
    rng = np.random.default_rng(frame)
    if kind == "region":
        y, x = rng.integers(0, SIDE - REGION, 2)
        return [(y, y + REGION, x, x + REGION)]
    spots = zip(rng.integers(0, SIDE, SPOTS), rng.integers(0, SIDE - 10, SPOTS), rng.integers(5, 11, SPOTS))
    return [(y, y + 1, x, x + n) for y, x, n in spots]


def needed(kind, frames):
    """Bytes of the values and of two coordinates of 4 bytes for both corners of each block."""
    blocks = [b for i in range(frames) for b in regions(kind, i)]
    return sum((b[1] - b[0]) * (b[3] - b[2]) * SIZE + 16 for b in blocks)


class Ours:
    """A dataset in sparse chunks, a frame each."""

    def __init__(self, folder, profile):
        self.path, self.mnt = folder / f"{profile}.h5", folder / "mnt"
        self.mnt.mkdir(exist_ok=True)
        subprocess.run([c.H5DIR, "create", self.path], check=True)
        self.mount = c.Mount(["mount", "-f", "--read-write", str(self.path)], self.mnt)
        (self.mnt / "d").touch()
        text = {"dtype": "<u2", "shape": [0, SIDE, SIDE], "maxshape": [None, SIDE, SIDE], "chunks": [1, SIDE, SIDE]}
        text |= {"layout": "sparse", "profile": profile, "filters": ["deflate 1"]}
        os.setxattr(self.mnt / "d", "user.h5dir.dataset", json.dumps(text).encode())

    def write(self, kind, frames, pixels, first=0):
        begin = time.perf_counter()
        f = os.open(self.mnt / "d", os.O_RDWR)
        for i in range(first, first + frames):
            for y, end, x, stop in regions(kind, i):
                for row in range(y, end):
                    os.pwrite(f, pixels[row, x:stop].tobytes(), (i * FRAME + row * SIDE + x) * SIZE)
        os.ftruncate(f, (first + frames) * FRAME * SIZE)
        os.fsync(f)
        os.close(f)
        return (time.perf_counter() - begin) / frames

    def remount(self):
        self.mount.close()
        self.mount = c.Mount(["mount", "-f", str(self.path)], self.mnt)

    def defined(self, frames, first=0):
        """Finds and reads the stored elements."""
        begin = time.perf_counter()
        for i in range(first, first + frames):
            with open(self.mnt / f".h5dir/defined/d@{i}") as text:
                json.load(text)
            np.fromfile(self.mnt / f".h5dir/defined/d@{i}.values", "<u2")
        return (time.perf_counter() - begin) / frames

    def whole(self, frames):
        begin = time.perf_counter()
        f = os.open(self.mnt / "d", os.O_RDONLY)
        buffer = np.empty(FRAME, "<u2")
        for i in range(frames):
            os.preadv(f, [buffer], i * FRAME * SIZE)
        os.close(f)
        return (time.perf_counter() - begin) / frames


class Theirs:
    """The same frames, zero where nothing is stored, deflated by h5py."""

    def __init__(self, folder):
        self.path = folder / "h5py.h5"

    def write(self, kind, frames, pixels):
        begin = time.perf_counter()
        with h5py.File(self.path, "w") as f:
            options = {"maxshape": (None, SIDE, SIDE), "chunks": (1, SIDE, SIDE), "compression": "gzip", "compression_opts": 1}
            d = f.create_dataset("d", (frames, SIDE, SIDE), "<u2", **options)
            frame = np.empty((SIDE, SIDE), "<u2")
            for i in range(frames):
                frame[...] = 0
                for y, end, x, stop in regions(kind, i):
                    frame[y:end, x:stop] = pixels[y:end, x:stop]
                d[i] = frame
        with open(self.path, "rb") as f:
            os.fsync(f.fileno())
        return (time.perf_counter() - begin) / frames

    def defined(self, frames):
        begin = time.perf_counter()
        with h5py.File(self.path) as f:
            for i in range(frames):
                frame = f["d"][i]
                frame[np.nonzero(frame)]
        return (time.perf_counter() - begin) / frames

    def whole(self, frames):
        begin = time.perf_counter()
        with h5py.File(self.path) as f:
            buffer = np.empty((SIDE, SIDE), "<u2")
            for i in range(frames):
                f["d"].read_direct(buffer, np.s_[i])
        return (time.perf_counter() - begin) / frames


def rows(bench):
    frames = 40 if bench.quick else 200
    pixels = np.random.default_rng(0).poisson(20, (SIDE, SIDE)).astype("<u2") + 1
    for kind in ["region", "spots"]:
        for profile in ["filter", "map"]:
            name = f"sparse {kind}, profile {profile}"
            with tempfile.TemporaryDirectory(dir=os.environ.get("H5DIR_BENCH_CACHE")) as folder:
                compare(bench, name, kind, profile, frames, pixels, Path(folder))


def compare(bench, name, kind, profile, frames, pixels, folder):
    times = {what: ([], []) for what in ["write", "defined", "whole"]}
    for turn in range(bench.reps):
        place = folder / str(turn)
        place.mkdir()
        ours, theirs = Ours(place, profile), Theirs(place)
        try:
            both = [(ours, 0), (theirs, 1)]
            for side, n in both:
                times["write"][n].append(side.write(kind, frames, pixels))
            ours.remount()
            for what in ["defined", "whole"]:
                for side, n in both:
                    times[what][n].append(getattr(side, what)(min(frames, 40)))
        finally:
            ours.mount.close()
    sizes = ours.path.stat().st_size, theirs.path.stat().st_size
    need, full = needed(kind, frames), frames * FRAME * SIZE
    ratio = sizes[0] / need
    note = f"h5py {sizes[1] / 1e6:.3g} MB, all pixels {full / 1e6:.4g} MB, 1:{full / sizes[0]:.0f}"
    most = 2 if profile == "map" else 1.3
    bench.size(f"size, {name} / values and corners", sizes[0] / 1e6, need / 1e6, [ratio], "MB", most, note)
    bench.times(f"{name}: write a frame / h5py dense", *times["write"], 2, 1e3, "ms")
    bench.times(f"{name}: find and read / h5py nonzero", *times["defined"], 10, 1e3, "ms")
    bench.times(f"{name}: read a frame / h5py", *times["whole"], 0.83, 1e3, "ms")


def run(bench):
    """Many frames of spots in one dataset: the cost of the last tenth of them, against the first tenth."""
    frames = 5_000 if bench.quick else 100_000
    tenth = frames // 10
    pixels = np.random.default_rng(0).poisson(20, (SIDE, SIDE)).astype("<u2") + 1
    with tempfile.TemporaryDirectory(dir=os.environ.get("H5DIR_BENCH_CACHE")) as folder:
        ours, costs = Ours(Path(folder), "filter"), []
        try:
            for part in range(10):
                costs.append(ours.write("spots", tenth, pixels, part * tenth))
            memory = ours.mount.peak_memory() / 1e6
            ours.remount()
            read = [ours.defined(40, at) for at in (0, frames - 40)]
        finally:
            ours.mount.close()
        size = ours.path.stat().st_size / 1e6
    note = f"peak memory {memory:.0f} MB, file {size:.0f} MB; parts: {' '.join(f'{1e3 * t:.2f}' for t in costs)} ms"
    bench.size(f"{frames} frames of spots: write, last tenth / first", 1e3 * costs[-1], 1e3 * costs[0], [costs[-1] / costs[0]], "ms", 1.2, note)
    bench.size(f"{frames} frames of spots: find and read, last / first", 1e3 * read[1], 1e3 * read[0], [read[1] / read[0]], "ms", 1.2, "")
