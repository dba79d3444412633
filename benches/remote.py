"""Remote files: h5dir's mount against h5py over fsspec, with 30 ms added to each request."""

import os
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../tests/objectstore"))

import h5py  # noqa: E402
import numpy as np  # noqa: E402
from range_server import Server  # noqa: E402

LATENCY = 0.03
MIB = 1 << 20


def make(folder, quick):
    """Files by name: many small datasets, many large ones (sparse), 10 GiB in chunks (sparse), one to read."""
    rng = np.random.default_rng(1)
    path = lambda name: os.path.join(folder, name)
    with h5py.File(path("small.h5"), "w") as f:
        for i in range(1000):
            f.create_dataset(f"g{i % 10}/d{i:03}", data=rng.random(2000)).attrs["units"] = "m"
    with h5py.File(path("middle.h5"), "w") as f:
        for i in range(1000):
            f.create_dataset(f"d{i:03}", data=rng.random(12500)).attrs["units"] = "m"
    plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    plist.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
    plist.set_fill_time(h5py.h5d.FILL_TIME_NEVER)
    with h5py.File(path("wide.h5"), "w") as f:
        for i in range(1000):
            space = h5py.h5s.create_simple((1 << 17,))
            h5py.Dataset(h5py.h5d.create(f.id, b"d%03d" % i, h5py.h5t.IEEE_F64LE, space, plist)).attrs["units"] = "m"
    plist.set_chunk((1 << 17,))
    with h5py.File(path("large.h5"), "w") as f:
        space = h5py.h5s.create_simple((10 << 27,))
        h5py.h5d.create(f.create_group("a/b").id, b"big", h5py.h5t.IEEE_F64LE, space, plist)
    with h5py.File(path("data.h5"), "w") as f:
        f.create_dataset("data", data=rng.integers(0, 256, (64 if quick else 512) * MIB, "u1"))


class Case:
    """One server, and how each side is run."""

    def __init__(self, server, h5dir, folder):
        self.server, self.h5dir, self.folder = server, h5dir, folder

    def measured(self, action):
        self.server.stats()
        start = time.monotonic()
        action()
        seconds = time.monotonic() - start
        stats = self.server.stats()
        return seconds, stats["requests"], stats["bytes"] / MIB

    def mounted(self, name, action, *options):
        at = tempfile.mkdtemp(dir=self.folder)
        subprocess.run([self.h5dir, "mount", f"{self.server.url}/{name}", at, *options], check=True)
        try:
            action(at)
        finally:
            subprocess.run([self.h5dir, "umount", at], check=True)
            os.rmdir(at)

    def opened(self, name, action):
        import fsspec
        with fsspec.filesystem("http", skip_instance_cache=True).open(f"{self.server.url}/{name}") as file, h5py.File(file) as f:
            action(f)

    def walk(self, name):
        return (
            self.measured(lambda: self.mounted(name, lambda at: subprocess.run(["ls", "-lR", at], check=True, stdout=subprocess.DEVNULL))),
            self.measured(lambda: self.opened(name, lambda f: f.visititems(lambda _, o: (getattr(o, "shape", 0), getattr(o, "dtype", 0)) and None))),
        )

    def first_byte(self):
        offset = 5 << 30

        def read(at):
            with open(os.path.join(at, "a/b/big"), "rb", buffering=0) as f:
                f.seek(offset)
                f.read(8)

        return (
            self.measured(lambda: self.mounted("large.h5", read)),
            self.measured(lambda: self.opened("large.h5", lambda f: f["a/b/big"][offset // 8])),
        )

    def sequential(self):
        size = os.stat(os.path.join(self.folder, "files/data.h5")).st_size

        def parallel():
            """A plain parallel GET of 8 MiB pieces, 16 at once."""
            import http.client
            starts = iter(range(0, size, 8 * MIB))
            lock = threading.Lock()

            def work():
                connection = http.client.HTTPConnection("127.0.0.1", self.server.port)
                buffer = bytearray(8 * MIB)
                while True:
                    with lock:
                        start = next(starts, None)
                    if start is None:
                        return
                    connection.request("GET", "/data.h5", headers={"Range": f"bytes={start}-{min(start + 8 * MIB, size) - 1}"})
                    answer = connection.getresponse()
                    while answer.readinto(buffer):
                        pass

            threads = [threading.Thread(target=work) for _ in range(16)]
            [t.start() for t in threads]
            [t.join() for t in threads]

        def read(at):
            buffer = bytearray(4 * MIB)
            with open(os.path.join(at, "data"), "rb", buffering=0) as f:
                while f.readinto(buffer):
                    pass

        def fsspec_read(f):
            data = f["data"]
            for start in range(0, data.shape[0], 4 * MIB):
                data[start : start + 4 * MIB]

        ours = []
        self.mounted("data.h5", lambda at: ours.append(self.measured(lambda: read(at))))
        return (
            ours[0],
            self.measured(parallel),
            self.measured(lambda: self.opened("data.h5", fsspec_read)),
        )


def rows(bench, h5dir):
    """Adds the rows of all cases; bench has `times` and `rates`."""
    cache = os.environ.get("H5DIR_BENCH_CACHE", "/var/tmp")
    with tempfile.TemporaryDirectory(dir=cache) as folder:
        files = os.path.join(folder, "files")
        os.mkdir(files)
        make(files, bench.quick)
        server = Server(files)
        try:
            server.set(latency=LATENCY)
            case = Case(server, str(h5dir), folder)
            for name in ("small.h5", "middle.h5", "wide.h5"):
                reps = 1 if name == "wide.h5" else bench.reps
                add(bench, f"remote, walk of 1,000 in {name}", [case.walk(name) for _ in range(reps)], 20.0 if name == "small.h5" else None)
            add(bench, "remote, first byte of 10 GiB", [case.first_byte() for _ in range(bench.reps)], None)
            both = [case.sequential() for _ in range(bench.reps)]
            size = os.stat(os.path.join(files, "data.h5")).st_size
            ours = [ours for (ours, _, _), _, _ in both]
            bench.rates("remote, sequential read / 16 GETs at once", size, ours, [s for _, (s, _, _), _ in both], 0.9)
            bench.rates("remote, sequential read / fsspec", size, ours, [s for _, _, (s, _, _) in both])
        finally:
            server.close()


def add(bench, name, both, target):
    """Rows of GETs and of seconds of h5dir and of h5py over fsspec."""
    (ours, theirs) = zip(*both)
    note = f"{ours[0][2]:.0f} MiB, fsspec {theirs[0][2]:.0f} MiB"
    bench.times(f"{name}: fsspec's GETs /", [n for _, n, _ in ours], [n for _, n, _ in theirs], target, unit="GETs", note=note)
    bench.times(f"{name}: fsspec's time /", [s for s, _, _ in ours], [s for s, _, _ in theirs])
