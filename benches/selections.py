"""Rows of spots in 100,000 frames: one call a frame, or one command for all, against a call a run and against h5py."""

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
# Spots of a frame: runs of 5 to 10 pixels.
SPOTS = 75


def spots(frame):
    """Runs of a frame in row-major order, which do not touch: row, first column, pixels."""
    rng = np.random.default_rng(frame)
    rows = np.sort(rng.choice(SIDE, SPOTS, replace=False))
    return list(zip(rows.tolist(), rng.integers(0, SIDE - 10, SPOTS).tolist(), rng.integers(5, 11, SPOTS).tolist()))


class Ours:
    """A dataset in sparse chunks, a frame each, in a mount."""

    def __init__(self, folder, profile, frames):
        self.path, self.mnt = folder / f"{profile}.h5", folder / "mnt"
        self.mnt.mkdir(exist_ok=True)
        subprocess.run([c.H5DIR, "create", self.path], check=True)
        self.mount = c.Mount(["mount", "-f", "--read-write", str(self.path)], self.mnt)
        (self.mnt / "d").touch()
        text = {"dtype": "<u2", "shape": [frames, SIDE, SIDE], "chunks": [1, SIDE, SIDE]}
        text |= {"layout": "sparse", "profile": profile, "filters": ["deflate 1"]}
        os.setxattr(self.mnt / "d", "user.h5dir.dataset", json.dumps(text).encode())

    def close(self):
        if self.mount:
            self.mount.close()
        self.mount = None

    def synced(self):
        f = os.open(self.mnt / "d", os.O_RDWR)
        os.fsync(f)
        os.close(f)

    def by_runs(self, frames, pixels):
        begin = time.perf_counter()
        f = os.open(self.mnt / "d", os.O_RDWR)
        for i in frames:
            for y, x, n in spots(i):
                os.pwrite(f, pixels[y, x:x + n].tobytes(), (i * FRAME + y * SIDE + x) * 2)
        os.fsync(f)
        os.close(f)
        return (time.perf_counter() - begin) / len(frames)

    def by_frames(self, frames, pixels):
        begin = time.perf_counter()
        for i in frames:
            runs = spots(i)
            name = f"d@{i},({'+'.join(f'{y},{x}:{x + n}' for y, x, n in runs)}).values"
            f = os.open(f"{self.mnt}/.h5dir/defined/{name}", os.O_WRONLY)
            os.write(f, np.concatenate([pixels[y, x:x + n] for y, x, n in runs]).tobytes())
            os.close(f)
        self.synced()
        return (time.perf_counter() - begin) / len(frames)

    def by_command(self, frames, pixels, folder):
        """The mount ends: `h5dir write` needs the file."""
        self.close()
        begin = time.perf_counter()
        points, values = [], []
        for i in frames:
            for y, x, n in spots(i):
                points.append(np.stack([np.full(n, i), np.full(n, y), np.arange(x, x + n)], 1).astype("<u4"))
                values.append(pixels[y, x:x + n])
        np.save(folder / "points.npy", np.concatenate(points))
        np.concatenate(values).tofile(folder / "values.raw")
        subprocess.run([c.H5DIR, "write", "--select", f"@{folder / 'points.npy'}", "--from", folder / "values.raw", f"{self.path}:/d"], check=True)
        return (time.perf_counter() - begin) / len(frames)


def dense(path, frames, pixels):
    """h5py assembles and deflates whole frames."""
    begin = time.perf_counter()
    with h5py.File(path, "w") as f:
        d = f.create_dataset("d", (frames[-1] + 1, SIDE, SIDE), "<u2", chunks=(1, SIDE, SIDE), compression="gzip", compression_opts=1)
        frame = np.empty((SIDE, SIDE), "<u2")
        for i in frames:
            frame[...] = 0
            for y, x, n in spots(i):
                frame[y, x:x + n] = pixels[y, x:x + n]
            d[i] = frame
    return (time.perf_counter() - begin) / len(frames)


def corners(path, frames, pixels):
    """h5py appends values and both corners of each run to two datasets, and where each frame begins to a third one."""
    begin = time.perf_counter()
    with h5py.File(path, "w") as f:
        values = f.create_dataset("values", (0,), "<u2", maxshape=(None,), chunks=(1 << 15,), compression="gzip", compression_opts=1)
        places = f.create_dataset("corners", (0, 4), "<u4", maxshape=(None, 4), chunks=(1 << 12, 4), compression="gzip", compression_opts=1)
        index = f.create_dataset("frames", (0,), "<u8", maxshape=(None,), chunks=(1 << 12,))
        for i in frames:
            runs = spots(i)
            new = np.concatenate([pixels[y, x:x + n] for y, x, n in runs])
            for d, rows in ((values, new), (places, [(y, x, y, x + n - 1) for y, x, n in runs]), (index, [len(values)])):
                d.resize(len(d) + len(rows), 0)
                d[len(d) - len(rows):] = rows
    return (time.perf_counter() - begin) / len(frames)


def run(bench):
    count = 2_000 if bench.quick else 100_000
    # Whole frames take h5py long: a part of them.
    whole = range(count // 50)
    pixels = np.random.default_rng(0).poisson(20, (SIDE, SIDE)).astype("<u2") + 1
    need = sum(n * 2 + 16 for i in range(count) for _, _, n in spots(i)) / 1e6
    for profile in ("filter", "map"):
        # Frames of profile map are deflated whole.
        frames = range(count) if profile == "filter" else whole
        with tempfile.TemporaryDirectory(dir=os.environ.get("H5DIR_BENCH_CACHE")) as folder:
            folder, times, sizes = Path(folder), {}, {}
            for what in ("by_runs", "by_frames", "by_command"):
                place = folder / what
                place.mkdir()
                ours = Ours(place, profile, count)
                try:
                    times[what] = getattr(ours, what)(frames, pixels, *([place] if what == "by_command" else []))
                finally:
                    ours.close()
                sizes[what] = ours.path.stat().st_size / 1e6
            times["dense"], times["corners"] = dense(folder / "dense.h5", whole, pixels), corners(folder / "corners.h5", frames, pixels)
            sizes["dense"], sizes["corners"] = ((folder / f"{name}.h5").stat().st_size / 1e6 for name in ("dense", "corners"))
        name = f"{len(frames)} frames of spots, profile {profile}"
        note = f"files: {', '.join(f'{what} {size:.3g} MB' for what, size in sizes.items())}; dense has {len(whole)} frames"
        bench.times(f"{name}: one call a frame / one a run", [times["by_frames"]], [times["by_runs"]], 5, 1e3, "ms", note)
        bench.times(f"{name}: one command / one call a run", [times["by_command"]], [times["by_runs"]], 5, 1e3, "ms")
        bench.times(f"{name}: one call a frame / h5py dense", [times["by_frames"]], [times["dense"]], 2, 1e3, "ms")
        bench.times(f"{name}: one call a frame / h5py values and corners", [times["by_frames"]], [times["corners"]], None, 1e3, "ms")
        share = need * len(frames) / count
        bench.size(f"{name}: size / values and corners", sizes["by_frames"], share, [sizes["by_frames"] / share], "MB", 2, "")
