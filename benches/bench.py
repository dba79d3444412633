"""The rows of the table and their order. Started by `benches/run`."""

import argparse
import json
import os
import platform
import statistics
import sys
import time

import contenders as c
import data
import forms
import h5py
import iod
import remote
import space
import log
import selections
import sparse
import waits
import writing

MIB = 1 << 20


class Row:
    """One line: h5dir against a reference, with the target that the ratio must reach."""

    def __init__(self, name, ours, theirs, ratios, unit, target=None, at_most=False, note=""):
        self.name, self.ours, self.theirs, self.ratios = name, ours, theirs, ratios
        self.unit, self.target, self.at_most, self.note = unit, target, at_most, note

    @property
    def ratio(self):
        return statistics.median(self.ratios)

    @property
    def met(self):
        if self.target is None:
            return None
        # Not a Boolean of numpy, which is no JSON.
        return bool(self.ratio <= self.target if self.at_most else self.ratio >= self.target)

    def show(self):
        spread = f"{min(self.ratios):.2f}-{max(self.ratios):.2f}" if len(self.ratios) > 1 else ""
        target = "" if self.target is None else f"{'<=' if self.at_most else '>='} {self.target:g}"
        met = {None: "", True: "met", False: "MISSED"}[self.met]
        cells = [self.name, f"{self.ours:.4g} {self.unit}", f"{self.theirs:.4g} {self.unit}", f"{self.ratio:.2f}", spread, target, met]
        widths = (60, 13, 13, 7, 13, 9, 7)
        line = " ".join(cell.ljust(w) if i == 0 else cell.rjust(w) for i, (cell, w) in enumerate(zip(cells, widths)))
        return f"{line}  {self.note}".rstrip()

    def as_dict(self):
        fields = ("name", "ours", "theirs", "ratio", "ratios", "unit", "target", "met", "note")
        return {f: getattr(self, f) for f in fields}


HEADER = " ".join(
    t.ljust(w) if i == 0 else t.rjust(w)
    for i, (t, w) in enumerate(
        zip(("row (h5dir against ...)", "h5dir", "reference", "ratio", "spread", "target", ""), (60, 13, 13, 7, 13, 9, 7))
    )
)


class Bench:
    def __init__(self, quick, reps):
        self.quick, self.reps = quick, reps
        self.arrays = data.arrays(quick)
        self.rows = []

    def add(self, row):
        self.rows.append(row)
        print(row.show(), flush=True)

    def rates(self, name, nbytes, ours, theirs, target=None, note=""):
        """Rows of bytes per second; the ratio is ours / theirs, repetition by repetition."""
        mib = nbytes / MIB
        ratios = [t / o for o, t in zip(ours, theirs)]
        self.add(Row(name, mib / statistics.median(ours), mib / statistics.median(theirs), ratios, "MiB/s", target, note=note))

    def times(self, name, ours, theirs, target=None, scale=1.0, unit="s", note=""):
        """Rows of seconds; the ratio is theirs / ours: above 1, h5dir is faster."""
        ratios = [t / o for o, t in zip(ours, theirs)]
        self.add(Row(name, statistics.median(ours) * scale, statistics.median(theirs) * scale, ratios, unit, target, note=note))

    def size(self, name, ours, theirs, ratios, unit, target, note):
        """Rows of file sizes: below is better."""
        self.add(Row(name, ours, theirs, ratios, unit, target, True, note))

    def array(self, name):
        a = self.arrays[name].make()
        c.warm(a.path)
        return a

    # ---- rows

    def programs(self, name, label, first_target, second_target):
        """Whole programs: `cat` and numpy on the mount's file, against h5py."""
        a = self.array(name)
        ours = {k: [] for k in ("first cat", "second cat", "first numpy", "second numpy")}
        theirs = []
        for _ in range(self.reps):
            for tool, run in (("cat", c.cat), ("numpy", c.numpy_program)):
                with c.mount_file(a.path) as m:
                    for read in ("first", "second"):
                        ours[f"{read} {tool}"].append(run(m.point / "data"))
            theirs.append(c.h5py_program(a.path))
        targets = {"first cat": first_target, "second cat": second_target}
        for key, seconds in ours.items():
            read, tool = key.split()
            tool = {"cat": "cat", "numpy": "numpy.fromfile"}[tool]
            self.rates(f"{label}, program: {tool}, {read} read / h5py [...]", a.nbytes, seconds, theirs, targets.get(key))

    def contiguous(self):
        a = self.array("contiguous")
        self.programs("contiguous", "contiguous", None, 1.0)
        plain = data.plain_copy(a)
        c.warm(plain)
        tools = {"read loop, 1 MiB": c.read_loop, "dd bs=1M": c.dd, "cat": c.cat}
        first = {t: [] for t in tools}
        base = {t: [] for t in tools}
        second, second_into, library, library_into, host, cpu = [], [], [], [], [], [[], []]
        for _ in range(self.reps):
            for tool, read in tools.items():
                with c.mount_file(a.path) as m:
                    before = m.cpu()
                    first[tool].append(read(m.point / "data"))
                    cpu[0].append(m.cpu() - before)
                    if tool == "read loop, 1 MiB":
                        second.append(read(m.point / "data"))
                        second_into.append(c.read_into_one(m.point / "data"))
                with c.memory_fs(a.nbytes) as m:
                    before = m.cpu()
                    base[tool].append(read(m.point / "data"))
                    cpu[1].append(m.cpu() - before)
            library.append(c.h5py_whole(a))
            library_into.append(c.h5py_into_one(a))
            c.warm(plain)
            host.append(c.read_loop(plain))
        note = "CPU {:.2f} s, in-memory {:.2f} s".format(*map(statistics.median, cpu))
        for tool in tools:
            target = 0.8 if tool == "read loop, 1 MiB" else None
            self.rates(f"contiguous, first read ({tool}) / in-memory fuser", a.nbytes, first[tool], base[tool], target, note)
        self.rates("contiguous, first read / h5py", a.nbytes, first["read loop, 1 MiB"], library)
        self.rates("contiguous, second read (1 MiB buffer) / h5py (16 MiB buffer)", a.nbytes, second, library)
        self.rates("contiguous, second read into one buffer / h5py the same", a.nbytes, second_into, library_into)
        self.rates("contiguous, second read / the same bytes on the host", a.nbytes, second, host)

    def deflate(self):
        for name in ("deflate3d", "deflate1d"):
            a = self.array(name)
            ours, theirs, second, cpu = [], [], [], [[], []]
            for _ in range(self.reps):
                with c.mount_file(a.path) as m:
                    before = m.cpu()
                    ours.append(c.read_loop(m.point / "data"))
                    cpu[0].append(m.cpu() - before)
                    second.append(c.read_loop(m.point / "data"))
                before = time.process_time()
                theirs.append(c.h5py_whole(a))
                cpu[1].append(time.process_time() - before)
            label = f"{'3-D 64^3' if name == 'deflate3d' else '1-D'} shuffle+deflate"
            note = "CPU {:.2f} s, h5py {:.2f} s".format(*map(statistics.median, cpu))
            self.programs(name, label, 4.0, 1.0)
            self.rates(f"{label}, first read / h5py", a.nbytes, ours, theirs, None, note)
            self.rates(f"{label}, second read / h5py", a.nbytes, second, theirs, 1.0)

    def small(self):
        for name in ("small-raw", "small-deflate"):
            a = self.array(name)
            label = "3-D small chunks, " + ("unfiltered" if name == "small-raw" else "shuffle+deflate")
            self.programs(name, label, 1.0, 1.0)
            for option in ((), ("--cache-size", "16M")):
                ours, theirs, cpu, decoded = [], [], [], 0
                for _ in range(self.reps):
                    with c.mount_file(a.path, *option) as m:
                        before = m.cpu()
                        ours.append(c.read_loop(m.point / "data"))
                        cpu.append(m.cpu() - before)
                        decoded = int(m.status()["chunks_decoded"])
                    theirs.append(c.h5py_whole(a))
                note = f"decoded {decoded} of {a.chunk_count} chunks, CPU {statistics.median(cpu):.2f} s"
                title = f"{label}{', cache 16 MiB' if option else ''} / h5py"
                self.rates(title, a.nbytes, ours, theirs, 1.0 if name == "small-deflate" else None, note)
                if option:
                    self.add(
                        Row(f"{label}, cache 16 MiB: decodes / chunks", decoded, a.chunk_count, [decoded / a.chunk_count], "", 1.05, True)
                    )

    def random(self):
        a = self.array("contiguous")
        plain = data.plain_copy(a)
        c.warm(plain)
        count = 20_000 if self.quick else 100_000
        ours, theirs = [], []
        with c.mount_file(a.path) as m:
            c.read_loop(m.point / "data")
            for _ in range(max(self.reps, 5)):
                ours.append(c.reader("random", m.point / "data", 4096, count))
                theirs.append(c.reader("random", plain, 4096, count))
        note = f"{count} reads, both from the page cache"
        slower = [o / t for o, t in zip(ours, theirs)]
        us = 1e6 / count
        self.add(Row("random 4 KiB, cached: time / ext4", statistics.median(ours) * us, statistics.median(theirs) * us, slower, "us", 2.0, True, note))
        self.random_uncached()

    def random_uncached(self):
        for name, library in (("deflate1d", c.h5py_spread), ("deflate3d", c.h5py_spread_rows)):
            a = self.array(name)
            count = 64 if self.quick else 256
            ours, theirs = [], []
            for _ in range(self.reps):
                with c.mount_file(a.path) as m:
                    ours.append(c.reader("spread", m.point / "data", 4096, count))
                theirs.append(library(a, count))
            label = "1-D" if name == "deflate1d" else "3-D"
            self.times(f"random 4 KiB, uncached {label} shuffle+deflate / h5py", ours, theirs, 1.0, 1e6 / count, "us", f"{count} places")

    def walk(self):
        n = 20_000 if self.quick else 100_000
        for groups, label in ((0, "one group"), (100, "100 groups")):
            path = data.tree(groups, n // max(groups, 1), "tree")
            c.warm(path)
            ours, again, tool, library, cpu = [], [], [], [], []
            for _ in range(self.reps):
                with c.mount_file(path) as m:
                    before = m.cpu()
                    ours.append(c.ls(m.point))
                    cpu.append(m.cpu() - before)
                    again.append(c.ls(m.point))
                tool.append(c.h5ls(path))
                library.append(c.h5py_walk(path))
            if None not in tool:
                self.times(f"ls -lR, {n} datasets in {label} / h5ls -r", ours, tool, 1.0, note=f"CPU {statistics.median(cpu):.2f} s")
                self.times(f"ls -lR again, {n} datasets in {label} / h5ls -r", again, tool, 1.0)
            self.times(f"ls -lR, {n} datasets in {label} / h5py visititems", ours, library, 1.0)
        n = 1_000_000 if self.quick else 10_000_000
        path = data.chunks(n, "chunks")
        ours, theirs = [], []
        for _ in range(self.reps):
            with c.mount_file(path) as m:
                start = time.perf_counter()
                os.stat(m.point / "data")
                ours.append(time.perf_counter() - start)
            theirs.append(c.h5py_storage_size(path))
        self.times(f"first stat, {n} chunks / h5py get_storage_size", ours, theirs, 1.0, 1e3, "ms")

    def mount(self):
        big, small = data.objects(1_000_000, "objects"), data.objects(10, "objects")
        c.warm(small)
        c.warm(big)
        many, few, library = [], [], []
        for _ in range(max(self.reps, 7)):
            many.append(c.mount_seconds(big))
            few.append(c.mount_seconds(small))
            library.append(c.h5py_open(big))
        for label, times in (("1,000,000 objects", many), ("10 objects", few)):
            ms = statistics.median(times) * 1e3
            self.add(Row(f"mount, {label}: time / 20 ms", ms, 20, [t / 0.02 for t in times], "ms", 1.0, True))
        self.times("mount, 10 objects' time / 1,000,000 objects' time", many, few, None, 1e3, "ms")

    def mirror(self):
        files = 250 if self.quick else 1000
        path = data.folder(files, 100, "folder")
        ours, again, tool = [], [], []
        for _ in range(self.reps):
            with c.mounted("mount", "-f", str(path)) as m:
                ours.append(c.ls(m.point))
                again.append(c.ls(m.point))
            tool.append(c.timed(["sh", "-c", 'for f in "$1"/*; do h5ls -r "$f"; done', "sh", str(path)]))
        self.times(f"ls -lR, {files} files of 100 datasets / h5ls -r of each", ours, tool, 1.0)
        self.times(f"ls -lR again, {files} files of 100 datasets / h5ls -r of each", again, tool, 1.0)
        files = 25_000 if self.quick else 100_000
        path = data.folder(files, 0, "folder")
        first, again, host, opened = [], [], [], 0
        for _ in range(self.reps):
            with c.mounted("mount", "-f", str(path)) as m:
                first.append(c.timed(["ls", "-l", str(m.point)]))
                again.append(c.timed(["ls", "-l", str(m.point)]))
                opened = max(opened, int(m.status()["open_containers"]))
            host.append(c.timed(["ls", "-l", str(path)]))
        note = f"{opened} opened"
        self.times(f"ls -l, directory of {files} files / host", first, host, None, note=note)
        self.times(f"ls -l again, directory of {files} files / host", again, host, None)

    def memory(self):
        for name in ("deflate3d", "small-deflate"):
            a = self.array(name)
            for size in (64, 256):
                with c.mount_file(a.path, "--cache-size", f"{size}M") as m:
                    c.read_loop(m.point / "data")
                    peak = m.peak_memory() / MIB
                limit = size + 64
                self.add(Row(f"memory peak, {name}, cache {size} MiB / limit", peak, limit, [peak / limit], "MiB", 1.0, True))

    def write(self):
        writing.rows(self)

    def space(self):
        space.rows(self)

    def log(self):
        log.rows(self)

    def sparse(self):
        sparse.rows(self)

    def frames(self):
        sparse.run(self)

    def spots(self):
        selections.run(self)

    def iod(self):
        iod.rows(self)

    def waits(self):
        waits.rows(self)

    def forms(self):
        forms.rows(self)

    def remote(self):
        remote.rows(self, c.H5DIR)

    ALL = ("contiguous", "deflate", "small", "random", "walk", "mirror", "mount", "memory", "forms", "write", "space", "sparse", "log", "iod", "waits")
    # Only on request: they take minutes, or packages of Python.
    LONG = ("frames", "spots", "remote")


def main():
    p = argparse.ArgumentParser(prog="benches/run", description="h5dir's mount against h5py and others; see docs/BENCHMARKING.md")
    p.add_argument("--quick", action="store_true", help="a quarter of the data, 3 repetitions")
    p.add_argument("--only", metavar="NAME", action="append", choices=Bench.ALL + Bench.LONG, help="only these rows (repeatable): %(choices)s")
    p.add_argument("--list", action="store_true", help="print the names of the rows")
    p.add_argument("--reps", type=int, metavar="N", help="repetitions [default: 5, with --quick 3]")
    p.add_argument("--json", metavar="FILE", help="write the rows as JSON too")
    args = p.parse_args()
    if args.list:
        print("\n".join(Bench.ALL))
        return 0
    bench = Bench(args.quick, args.reps or (3 if args.quick else 5))
    print(f"h5dir {c.H5DIR}, h5py {h5py.__version__} (libhdf5 {h5py.version.hdf5_version}), Linux {platform.release()}, {os.cpu_count()} CPUs")
    print(f"median of {bench.reps} interleaved repetitions; all files in the page cache; a mount is new for each first read", flush=True)
    print("ratio: speed of h5dir / speed of the reference, above 1 is faster; 'time /', 'peak', 'decodes' and 'size' rows: below is better\n")
    print(HEADER, flush=True)
    for name in args.only or Bench.ALL:
        getattr(bench, name)()
    if args.json:
        with open(args.json, "w") as f:
            json.dump([r.as_dict() for r in bench.rows], f, indent=1, default=float)
    missed = [r for r in bench.rows if r.met is False]
    print(f"\n{sum(r.met is True for r in bench.rows)} targets met, {len(missed)} missed" + "".join(f"\n  {r.name}: {r.ratio:.2f}" for r in missed))
    return 0


if __name__ == "__main__":
    sys.exit(main())
