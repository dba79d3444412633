"""Rows of other forms of large datasets: the first CSV row, one PNG image, one Zarr chunk, of a new mount each."""

import statistics
import time

import contenders as c
import data
import h5py
import numpy as np

# What a person does not wait for, seconds.
SOON = 0.05


def of_ten_gb():
    """10.7 GB in chunks of 256 KiB, of which few were written, and as large a column."""
    path = data.CACHE / f"forms-10g-{data.GENERATION}.h5"
    if not path.exists():
        part = path.with_suffix(".part")
        with h5py.File(part, "w") as f:
            images = f.create_dataset("images", (640, 2048, 2048), "f4", chunks=(1, 256, 256), compression="gzip", compression_opts=1)
            images[20, 512:768, 512:768] = np.random.default_rng(1).random((256, 256))
            images[639, -256:, -256:] = 2
            table = f.create_dataset("table", (1_340_000_000,), "f8", chunks=(1 << 17,))
            table[:5], table[-1] = 1.5, 7
        part.rename(path)
    return path


def of_one_gib():
    """1 GiB of numbers that compress to two thirds, and a table of 16 columns."""
    path = data.CACHE / f"forms-1g-{data.GENERATION}.h5"
    if not path.exists():
        print(f"writing {path} ...", flush=True)
        part, rng = path.with_suffix(".part"), np.random.default_rng(2)
        with h5py.File(part, "w") as f:
            images = f.create_dataset("images", (64, 2048, 2048), "f4", chunks=(1, 256, 2048), compression="gzip", compression_opts=1)
            for i in range(len(images)):
                images[i] = rng.integers(0, 1000, images.shape[1:]) / 8
            f.create_dataset("table", data=rng.random((1 << 20, 16)))
        part.rename(path)
    return path


def first_line(path):
    with open(path, "rb") as f:
        assert f.readline().endswith(b"\n"), path


def whole(path):
    with open(path, "rb") as f:
        assert f.read(), path


def rows(bench):
    for label, path, chunk in (("10 GB, few chunks", of_ten_gb(), "20/2/2"), ("1 GiB", of_one_gib(), "20/3/0")):
        c.warm(path)
        for what, read, name in (("first CSV row", first_line, "csv/table.csv"), ("image of 2048 x 2048 floats", whole, "images/images/000021.png"),
                                 ("preview", whole, "images/images.png"), ("Zarr chunk", whole, f"zarr/images/c/{chunk}")):
            seconds, spent = [], []
            for _ in range(bench.reps):
                with c.mount_file(path) as m:
                    before, start = m.cpu(), time.perf_counter()
                    read(m.point / ".h5dir" / name)
                    seconds.append(time.perf_counter() - start)
                    spent.append(m.cpu() - before)
            ms = statistics.median(seconds) * 1e3
            note = f"CPU {statistics.median(spent) * 1e3:.0f} ms"
            bench.size(f"{what} of {label}: time / 50 ms", ms, SOON * 1e3, [s / SOON for s in seconds], "ms", 1.0, note)
