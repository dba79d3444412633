"""Rows of space: the size of a file after many sessions, and of copies made by common programs."""

import os
import shutil
import subprocess
from contextlib import contextmanager

import contenders as c
import data
import h5py
import numpy as np
import writing

MIB = 1 << 20
TARGET = 1.1


def integers(count, seed):
    """Numbers of 12 random bits: shuffle and deflate store 0.77 of their bytes."""
    return np.random.default_rng(seed).integers(0, 4096, count).astype("i2")


def random_bytes(count, seed):
    return np.random.default_rng(seed).integers(0, 256, count, dtype="u1")


def dd(values, target, at=0):
    """Writes the bytes of an array over those of a file from byte `at` on, 1 MiB at a time."""
    with target.open("r+b", buffering=0) as f:
        f.seek(at)
        view = memoryview(values).cast("B")
        while view:
            view = view[f.write(view[:MIB]) :]


# ---- changes: what is in the file at first, and what a session does to it, by the mount and by h5py


class Rewrite:
    label = "a gzip dataset of 18.5 MB rewritten"
    count = 11_400_000
    options = {"chunks": (250_000,), "compression": "gzip", "compression_opts": 1, "shuffle": True}

    def make(self, f):
        f.create_dataset("data", data=integers(self.count, 0), **self.options)

    def mount(self, point, session):
        dd(integers(self.count, session), point / "data")

    def h5py(self, f, session):
        f["data"][...] = integers(self.count, session)

    def values(self, session):
        return {"data": integers(self.count, session)}


class CopyOver:
    label = "cp of a file of 1 MB over itself"
    bytes = random_bytes(1_000_000, 0)

    def make(self, f):
        f.create_dataset("data", data=self.bytes, maxshape=(None,), chunks=(4096,))

    def mount(self, point, session):
        source = data.CACHE / "space-bytes.bin"
        source.write_bytes(self.bytes)
        subprocess.run(["cp", str(source), str(point / "data")], check=True)
        source.unlink()

    def h5py(self, f, session):
        f["data"].resize((0,))
        f["data"].resize((self.bytes.size,))
        f["data"][...] = self.bytes

    def values(self, session):
        return {"data": self.bytes}


class OneByte:
    label = "1 byte changed in a gzip chunk of 4 MiB"

    def make(self, f):
        f.create_dataset("data", data=self.values(0)["data"], chunks=(4 * MIB,), compression="gzip", compression_opts=1)

    def mount(self, point, session):
        dd(np.full(1, session, "u1"), point / "data", session * 1000)

    def h5py(self, f, session):
        f["data"][session * 1000] = session

    def values(self, session):
        # Of 6 random bits a byte: deflate stores 3.3 MB.
        values = random_bytes(4 * MIB, 1) & 63
        for s in range(1, session + 1):
            values[s * 1000] = s
        return {"data": values}


class WrittenAndRemoved:
    label = "5 MB written, removed in the next session"
    sessions = 2

    def make(self, f):
        f.create_dataset("other", data=np.arange(1000))

    def mount(self, point, session):
        if session % 2:
            (point / "data").write_bytes(random_bytes(5_000_000, session).tobytes())
        else:
            (point / "data").unlink()

    def h5py(self, f, session):
        if session % 2:
            f.create_dataset("data", data=random_bytes(5_000_000, session), maxshape=(None,), chunks=(1 << 16,))
        else:
            del f["data"]

    def values(self, session):
        return {"data": random_bytes(5_000_000, session)} if session % 2 else {}


class SmallFiles:
    label = "300 small files, removed in the next session"
    sessions = 2

    def make(self, f):
        f.create_dataset("other", data=np.arange(1000))

    def contents(self, session):
        return {f"f{i:03}": random_bytes(1 + i * 37 % 3000, session * 1000 + i) for i in range(300)}

    def mount(self, point, session):
        for name, values in self.contents(session | 1).items():
            if session % 2:
                (point / name).write_bytes(values.tobytes())
            else:
                (point / name).unlink()

    def h5py(self, f, session):
        for name, values in self.contents(session | 1).items():
            if session % 2:
                f.create_dataset(name, data=values, maxshape=(None,), chunks=(480,) if values.size <= 480 else (4096,))
            else:
                del f[name]

    def values(self, session):
        return self.contents(session) if session % 2 else {}


CHANGES = (Rewrite(), CopyOver(), OneByte(), WrittenAndRemoved(), SmallFiles())


def check(path, values):
    with h5py.File(path) as f:
        for name, want in values.items():
            if not np.array_equal(f[name][...], want):
                raise SystemExit(f"{path}: h5py does not read what was written to {name}")


def sizes(change, rounds, by_mount):
    """Size of the new file, and its largest size in each round: one session, or one that writes and one that removes."""
    sessions, out = getattr(change, "sessions", 1), []
    with writing.scratch("space") as path:
        with h5py.File(path, "w", libver="v110") as f:
            change.make(f)
        start = path.stat().st_size
        for number in range(1, rounds + 1):
            largest = 0
            for session in range((number - 1) * sessions + 1, number * sessions + 1):
                if by_mount:
                    with writing.mount(path) as m:
                        change.mount(m.point, session)
                else:
                    with h5py.File(path, "r+", libver="v110") as f:
                        change.h5py(f, session)
                largest = max(largest, path.stat().st_size)
                check(path, change.values(session) if number in (1, rounds) else {})
            out.append(largest)
    return start, out


def growth(bench, rounds):
    """The largest size after many sessions, divided by the size after the first."""
    for change in CHANGES:
        (start, ours), (_, theirs) = sizes(change, rounds, True), sizes(change, rounds, False)
        mb = [f"{size / 1e6:.3g}" for size in (start, ours[0], max(ours), theirs[0], max(theirs))]
        note = "{} MB; after sessions {} to {}, h5py {} to {}".format(*mb)
        name = f"size, {rounds} times {change.label}"
        bench.size(name, max(ours) / ours[0], max(theirs) / theirs[0], [max(ours) / ours[0]], "x", TARGET, note)


# ---- copies


def gzip_file(f, quick):
    f.create_dataset("data", data=integers(15_100_000, 5), **Rewrite.options)


def contiguous_file(f, quick):
    f.create_dataset("data", data=np.random.default_rng(5).random(12_500_000))


def sparse_file(f, quick):
    # 4 GB, of which 5 MB in two places are written.
    count = 125_000_000 if quick else 500_000_000
    d = f.create_dataset("data", (count,), "f8", chunks=(100_000,))
    for at in (100_000, count // 2 + 5):
        d[at : at + 312_500] = np.random.default_rng(at).random(312_500)


SOURCES = (("a gzip file of 24 MB", gzip_file), ("100 MB contiguous", contiguous_file), ("{} GB sparse", sparse_file))
COPIES = ("cp -a {0}/data {1}/", "rsync -aX {0}/data {1}/", "rsync -aXS {0}/data {1}/")
TAR = "tar --xattrs -C {0} -cSf - data | tar --xattrs --xattrs-include='user.*' -C {1} -xSf -"


@contextmanager
def source_file(make, quick):
    path = data.CACHE / "space-source.h5"
    try:
        with h5py.File(path, "w", libver="v110") as f:
            f.attrs["made"] = "for copies"
            make(f, quick)
        yield path
    finally:
        path.unlink(missing_ok=True)


def equal(source, copy):
    """The copy has the elements, the type, the chunks and the filters of the source."""
    with h5py.File(source) as f, h5py.File(copy) as g:
        a, b = f["data"], g["data"]
        same = (a.shape, a.dtype, a.chunks, a.compression, a.shuffle) == (b.shape, b.dtype, b.chunks, b.compression, b.shuffle)
        step = (a.chunks or (1_000_000,))[0] * 20
        if not same or any(not np.array_equal(a[i : i + step], b[i : i + step]) for i in range(0, a.shape[0], step)):
            raise SystemExit(f"{copy}: not a copy of {source}")


def copied(command, source, path):
    """The size of a new file after the command has copied the mounted source into it."""
    path.unlink(missing_ok=True)
    subprocess.run([c.H5DIR, "create", str(path)], check=True)
    with c.mounted("mount", "-f", str(source)) as a, writing.mount(path) as b:
        subprocess.run(["bash", "-o", "pipefail", "-c", command.format(a.point, b.point)], check=True)
    return path.stat().st_size


def copies(bench):
    if not shutil.which("rsync"):
        raise SystemExit("install the package rsync first")
    for label, make in SOURCES:
        label = label.format(1 if bench.quick else 4)
        with source_file(make, bench.quick) as source, writing.scratch("space") as path:
            once, results = [], {command: [] for command in COPIES}
            for _ in range(min(bench.reps, 3)):
                once.append(copied(TAR, source, path))
                equal(source, path)
                for command, result in results.items():
                    result.append(copied(command, source, path))
                    equal(source, path)
            for command, result in results.items():
                ratios = [r / o for r, o in zip(result, once)]
                name = f"size, {' '.join(command.split()[:2])}, {label} / tar x"
                bench.size(name, max(result) / 1e6, max(once) / 1e6, ratios, "MB", TARGET, f"source {os.stat(source).st_size / 1e6:.3g} MB")


def rows(bench):
    growth(bench, 5 if bench.quick else 20)
    copies(bench)
