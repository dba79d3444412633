"""SWMR: h5py follows a file by swmr=True while a mount with --swmr appends to its datasets and overwrites elements.

Readers are processes of their own, some of them started before the first change, others in the middle. Each refreshes all datasets
again and again: no length may shrink, element i of an appended dataset must be i + 1, and elements that are overwritten may only count
up. Then: which changes are refused, which programs may open the file, what an unmounted and what a killed mount leaves behind.
"""
import errno
import mmap
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import h5py
import numpy as np

import harness

APPENDS = int(os.environ.get("H5DIR_SWMR_APPENDS", "4000"))
KILLS = int(os.environ.get("H5DIR_SWMR_KILLS", "9"))
# Elements of a row; the most rows.
GROWING = {"array": (1, None), "packed": (4, None), "tree": (6, None), "packedtree": (6, None), "fixed": (1, 9000), "packedfixed": (1, 4000), "deep/wide": (40, None), "tall": (1, 150000)}
OVERWRITTEN = {"over": 64, "packedover": 90, "plain": 100}


def make(path):
    with h5py.File(path, "w", libver="latest") as f:
        f.create_dataset("array", (0,), "i8", maxshape=(None,), chunks=(16,))
        f.create_dataset("packed", (0, 4), "i8", maxshape=(None, 4), chunks=(8, 4), compression="gzip")
        f.create_dataset("tree", (0, 6), "i8", maxshape=(None, None), chunks=(4, 3))
        f.create_dataset("packedtree", (0, 6), "i8", maxshape=(None, None), chunks=(5, 2), compression="gzip", shuffle=True)
        f.create_dataset("fixed", (0,), "i8", maxshape=(9000,), chunks=(3,))
        f.create_dataset("packedfixed", (0,), "i8", maxshape=(4000,), chunks=(8,), compression="gzip")
        f.create_dataset("deep/wide", (0, 40), "i8", maxshape=(None, 40), chunks=(1, 8))
        # Many chunks: super blocks and pages of the index.
        f.create_dataset("tall", (0,), "i8", maxshape=(None,), chunks=(1,))
        f.create_dataset("over", (64,), "i8", maxshape=(None,), chunks=(16,))
        f.create_dataset("packedover", (90,), "i8", maxshape=(None,), chunks=(32,), compression="gzip")
        f.create_dataset("plain", data=np.zeros(100, "i8"))
        f.create_dataset("late", (100,), "i8")
        f.create_dataset("strings", (3,), h5py.string_dtype(), maxshape=(None,), chunks=(2,))
        f["compact"] = np.arange(3)
        dcpl = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        dcpl.set_layout(h5py.h5d.COMPACT)
        h5py.h5d.create(f.id, b"inheader", h5py.h5t.NATIVE_INT64, h5py.h5s.create_simple((4,)), dcpl)
        f.attrs["there"] = 1


def flags(path):
    return harness.read(path)[11]


class Seen:
    """What one reader has seen."""

    def __init__(self):
        self.rows = dict.fromkeys(GROWING, 0)
        self.values = {name: np.zeros(n, "i8") for name, n in OVERWRITTEN.items()}
        self.rounds = 0

    def look(self, f):
        for name in GROWING:
            d = f[name]
            d.refresh()
            rows = d.shape[0]
            if rows < self.rows[name]:
                raise SystemExit(f"{name} shrank from {self.rows[name]} to {rows}")
            # All of it now and then, else what is new and some rows before that.
            often = 200 if name == "tall" else 16
            first = 0 if self.rounds % often == often - 1 else max(0, (self.rows[name] or rows - 3000) - 40)
            data = d[first:rows].ravel()
            row = GROWING[name][0]
            want = np.arange(first * row + 1, rows * row + 1)
            if not np.array_equal(data, want):
                at = int(np.flatnonzero(data != want)[0])
                # The kernel divides a write at a page: the row that the next page begins in may be there in part.
                torn = (first * row + at) * 8 % mmap.PAGESIZE == 0 and at >= data.size - row and not data[at:].any()
                if not torn:
                    raise SystemExit(f"{name} has {rows} rows, {self.rows[name]} before; element {first * row + at} is {data[at]}")
                # The whole of it is there next.
                rows -= 1
            self.rows[name] = max(rows, self.rows[name])
        for name, before in self.values.items():
            d = f[name]
            d.refresh()
            # It grows, too.
            now = d[...][: before.size]
            if (now < before).any():
                raise SystemExit(f"{name}: an older value came back")
            self.values[name] = now
        self.rounds += 1


def follow(path, stop):
    """A reader: looks until `stop` exists, and once more."""
    seen = Seen()
    with h5py.File(path, "r", libver="latest", swmr=True) as f:
        print("open", flush=True)
        last = False
        while not last:
            last = os.path.exists(stop)
            seen.look(f)
    print(seen.rounds, *seen.rows.values(), *(int(v.sum()) for v in seen.values.values()), flush=True)


def start_reader(path, stop):
    reader = subprocess.Popen([sys.executable, __file__, "--follow", path, stop], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    return reader, reader.stdout.readline()


class Writer:
    """Appends to and overwrites the datasets of a mount, by plain writes to files."""

    def __init__(self, point, rnd, rows=None):
        self.point, self.rnd = point, rnd
        self.rows = dict(rows or dict.fromkeys(GROWING, 0))
        self.synced = dict(self.rows)
        self.values = {name: np.zeros(n, "i8") for name, n in OVERWRITTEN.items()}
        self.open = {name: os.open(f"{point}/{name}", os.O_RDWR) for name in [*GROWING, *OVERWRITTEN]}

    def step(self):
        rnd = self.rnd
        if rnd.random() < 0.15:
            name = rnd.choice(list(OVERWRITTEN))
            first = rnd.randrange(OVERWRITTEN[name])
            part = self.values[name][first : first + rnd.randrange(1, 40)]
            part += 1
            os.pwrite(self.open[name], part.tobytes(), first * 8)
        else:
            name = rnd.choice(list(GROWING))
            row, most = GROWING[name]
            rows = rnd.choice([1, 100, 2000] if name == "tall" else [1, 1, 2, 3, 7, 30])
            now = self.rows[name]
            rows = rows if most is None else min(rows, most - now)
            if rows:
                data = np.arange(now * row + 1, (now + rows) * row + 1).astype("i8").tobytes()
                assert os.pwrite(self.open[name], data, now * row * 8) == len(data)
                self.rows[name] += rows
        if rnd.random() < 0.05:
            os.fsync(self.open[name])
            self.synced = dict(self.rows)

    def close(self):
        for fd in self.open.values():
            os.close(fd)


def refused(t, what, number, f, *arguments):
    try:
        f(*arguments)
        t.check(False, f"{what} succeeded")
    except OSError as e:
        t.equal(e.errno, number, what)


def punch(path):
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    fd = os.open(path, os.O_RDWR)
    try:
        # FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE
        if libc.fallocate(fd, 3, ctypes.c_long(0), ctypes.c_long(64)) != 0:
            raise OSError(ctypes.get_errno(), "fallocate")
    finally:
        os.close(fd)


def write_to(path, offset=0):
    fd = os.open(path, os.O_RDWR)
    try:
        os.pwrite(fd, b"x" * 16, offset)
    finally:
        os.close(fd)


def refusals(t, point):
    refused(t, "mkdir", errno.EPERM, os.mkdir, f"{point}/new")
    refused(t, "a new file", errno.EPERM, open, f"{point}/new", "wb")
    refused(t, "unlink", errno.EPERM, os.unlink, f"{point}/array")
    refused(t, "rmdir", errno.EPERM, os.rmdir, f"{point}/deep")
    refused(t, "rename", errno.EPERM, os.rename, f"{point}/array", f"{point}/other")
    refused(t, "link", errno.EPERM, os.link, f"{point}/array", f"{point}/other")
    refused(t, "symlink", errno.EPERM, os.symlink, "array", f"{point}/other")
    refused(t, "setxattr", errno.EPERM, os.setxattr, f"{point}/array", "user.new", b"1")
    refused(t, "setxattr of a fact", errno.EPERM, os.setxattr, f"{point}/array", "user.h5dir.chunks", b"[4]")
    refused(t, "removexattr", errno.EPERM, os.removexattr, point, "user.there")
    refused(t, "the order of links", errno.EPERM, os.setxattr, point, "user.h5dir.links", b'["over"]')
    refused(t, "a comment", errno.EPERM, os.setxattr, f"{point}/array", "user.h5dir.comment", b"c")
    refused(t, "chmod", errno.EPERM, os.chmod, f"{point}/array", 0o600)
    refused(t, "truncate to less", errno.EPERM, os.truncate, f"{point}/array", 8)
    refused(t, "O_TRUNC", errno.EPERM, open, f"{point}/array", "wb")
    refused(t, "a hole", errno.EPERM, punch, f"{point}/over")
    refused(t, "writing strings", errno.EPERM, write_to, f"{point}/strings")
    refused(t, "writing compact data", errno.EPERM, write_to, f"{point}/inheader")
    # libhdf5 refuses storage past the EOF that the superblock had when the reader opened the file.
    refused(t, "writing a block without storage", errno.EPERM, write_to, f"{point}/late")
    refused(t, "growing a fixed size", errno.EFBIG, os.truncate, f"{point}/fixed", 9001 * 8)


def opens(path, mode, **how):
    """Whether another process opens the file with h5py."""
    program = f"import h5py, sys; h5py.File(sys.argv[1], {mode!r}, **{how!r})"
    return subprocess.run([sys.executable, "-c", program, path], capture_output=True).returncode == 0


def check_whole(t, path, rows, what, least=None):
    """The file as any program opens it: appended elements are those of `rows`, or of `least` at least."""
    with h5py.File(path, "r") as f:
        for name, n in rows.items():
            data = f[name][...].ravel()
            row = GROWING[name][0]
            t.check(np.array_equal(data, np.arange(1, data.size + 1)), f"{what}: elements of {name}")
            if least is None:
                t.equal(data.size, n * row, f"{what}: size of {name}")
            else:
                t.check(least[name] * row <= data.size <= n * row, f"{what}: size of {name}: {data.size // row} rows, {least[name]} synced, {n} written")
        return {name: f[name].shape[0] for name in rows}


def follow_a_mount(t, binary, place, rnd):
    path, stop = os.path.join(place, "follow.h5"), os.path.join(place, "stop")
    make(path)
    readers = []
    with harness.mounted(binary, path, "--read-write", "--swmr") as point:
        t.equal(flags(path), 5, "flags while it is mounted")
        readers.append(start_reader(path, stop))
        t.check(not opens(path, "r+"), "h5py opens it for writing")
        t.check(not opens(path, "r+", libver="latest"), "h5py opens it for writing with libver")
        t.check(not opens(path, "r"), "h5py opens it without swmr")
        for command in (["mount", "--read-write", path, place + "/mnt"], ["mount", "--read-write", "--swmr", path, place + "/mnt"], ["recover", path]):
            os.makedirs(place + "/mnt", exist_ok=True)
            done = subprocess.run([binary, *command], capture_output=True, text=True)
            t.equal(done.returncode, 3, f"{command[:-2]}: {done.stderr}")
        writer = Writer(point, rnd)
        for number in range(APPENDS):
            writer.step()
            # The readers shall see many states.
            time.sleep(0.001)
            if number in (APPENDS // 5, APPENDS // 2):
                readers.append(start_reader(path, stop))
            if number == APPENDS // 3:
                refusals(t, point)
        os.truncate(f"{point}/over", 70 * 8)
        # No fsync: the next timed commit shows it.
        with h5py.File(path, "r", libver="latest", swmr=True) as f:
            until = time.time() + 60
            while time.time() < until and f["array"].shape[0] < writer.rows["array"]:
                time.sleep(0.05)
                f["array"].refresh()
            t.equal(f["array"].shape[0], writer.rows["array"], "what a timed commit shows")
        os.fsync(writer.open["array"])
        open(stop, "w").close()
        for number, (reader, first) in enumerate(readers):
            printed = reader.communicate(timeout=300)[0]
            t.equal((first, reader.returncode), ("open\n", 0), f"reader {number}: {first}{printed[-300:]}")
            numbers = [int(n) for n in printed.split()] if reader.returncode == 0 else [0]
            t.equal(numbers[1:], [*writer.rows.values(), *(int(v.sum()) for v in writer.values.values())], f"what reader {number} saw at last")
            print(f"reader {number}: {numbers[0]} rounds")
        for name, values in writer.values.items():
            t.equal(harness.read(f"{point}/{name}")[: values.nbytes], values.tobytes(), f"{name} through the mount")
        rows = writer.rows
        writer.close()
        # A reader that goes on while the mount ends.
        os.unlink(stop)
        last = start_reader(path, stop)
    open(stop, "w").close()
    printed = last[0].communicate(timeout=300)[0]
    t.equal(last[0].returncode, 0, f"the reader that outlives the mount: {printed}")
    t.equal(flags(path), 0, "flags after unmounting")
    t.check(not os.path.exists(path + ".h5dir-journal"), "the journal is gone")
    check_whole(t, path, rows, "unmounted")
    done = subprocess.run([binary, "check", path], capture_output=True, text=True)
    t.equal(done.returncode, 0, f"h5dir check: {done.stdout}{done.stderr}")
    with h5py.File(path, "r+", libver="latest") as f:
        f["array"].resize(rows["array"] + 5, 0)
        f["array"][-5:] = np.arange(rows["array"] + 1, rows["array"] + 6)
        f["new"] = 1
    # What was free in the session is used in the next one.
    with harness.mounted(binary, path, "--read-write") as point:
        with open(f"{point}/bytes", "wb") as f:
            f.write(b"b" * 100000)
    check_whole(t, path, {**rows, "array": rows["array"] + 5}, "changed again")
    return sum(rows.values())


def kill_a_mount(t, binary, place, number, rnd):
    """kill -9 of the daemon, then recovery by one of three programs."""
    path = os.path.join(place, f"kill{number}.h5")
    make(path)
    how = ["recover", "mount", "h5clear"][number % 3]
    with tempfile.TemporaryDirectory(prefix="h5dir-mount-") as point:
        daemon = subprocess.Popen([binary, "mount", "-f", "--read-write", "--swmr", "--commit-interval=0.02", path, point], stdin=subprocess.DEVNULL)
        try:
            while not os.path.ismount(point):
                t.check(daemon.poll() is None, "the daemon ended")
                time.sleep(0.01)
            writer = Writer(point, rnd)
            for _ in range(rnd.randrange(20, 600)):
                writer.step()
            daemon.send_signal(signal.SIGKILL)
            daemon.wait()
            for fd in writer.open.values():
                try:
                    os.close(fd)
                except OSError:
                    pass
        finally:
            if daemon.poll() is None:
                daemon.kill()
                daemon.wait()
            subprocess.run([binary, "umount", "--lazy", point], stdin=subprocess.DEVNULL, capture_output=True)
    what = f"killed mount {number}, {how}"
    t.equal(flags(path), 5, f"{what}: flags")
    with h5py.File(path, "r", libver="latest", swmr=True) as f:
        Seen().look(f)
    journal = os.path.exists(path + ".h5dir-journal")
    if how == "recover":
        done = subprocess.run([binary, "recover", path], capture_output=True, text=True)
        t.equal(done.returncode, 0, f"{what}: {done.stderr}")
    elif how == "mount":
        with harness.mounted(binary, path, "--read-write") as point:
            for name in GROWING:
                size = os.stat(f"{point}/{name}").st_size // 8 // GROWING[name][0]
                t.check(writer.synced[name] <= size <= writer.rows[name], f"{what}: {name} of the next mount")
    elif shutil.which("h5clear"):
        subprocess.run(["h5clear", "-s", path], check=True)
    else:
        clear_flags(path)
    t.equal(flags(path), 0, f"{what}: flags afterwards")
    left = check_whole(t, path, writer.rows, what, writer.synced)
    with h5py.File(path, "r+", libver="latest") as f:
        f["array"].resize(left["array"] + 3, 0)
        f["array"][-3:] = np.arange(left["array"] + 1, left["array"] + 4)
    check_whole(t, path, {**left, "array": left["array"] + 3}, f"{what}, changed")
    return journal


def clear_flags(path):
    """What h5clear -s does, with libhdf5 itself: H5F_ACC_RDWR with the property "clear_status_flags" has no h5py call."""
    data = bytearray(harness.read(path)[:48])
    data[11] = 0
    data[44:48] = lookup3(bytes(data[:44])).to_bytes(4, "little")
    with open(path, "r+b") as f:
        f.write(data)


def lookup3(key):
    """Bob Jenkins' hash, H5_checksum_lookup3."""
    mask = 0xFFFFFFFF
    rot = lambda x, k: ((x << k) | (x >> (32 - k))) & mask  # noqa: E731
    a = b = c = (0xDEADBEEF + len(key)) & mask
    while len(key) > 12:
        a, b, c = ((x + int.from_bytes(key[i : i + 4], "little")) & mask for x, i in ((a, 0), (b, 4), (c, 8)))
        a = (a - c) & mask ^ rot(c, 4)
        c = (c + b) & mask
        b = (b - a) & mask ^ rot(a, 6)
        a = (a + c) & mask
        c = (c - b) & mask ^ rot(b, 8)
        b = (b + a) & mask
        a = (a - c) & mask ^ rot(c, 16)
        c = (c + b) & mask
        b = (b - a) & mask ^ rot(a, 19)
        a = (a + c) & mask
        c = (c - b) & mask ^ rot(b, 4)
        b = (b + a) & mask
        key = key[12:]
    key = key.ljust(12, b"\0")
    a, b, c = ((x + int.from_bytes(key[i : i + 4], "little")) & mask for x, i in ((a, 0), (b, 4), (c, 8)))
    for x in ("cb14", "ac11", "ba25", "cb16", "ac4", "ba14", "cb24"):
        v = {"a": a, "b": b, "c": c}
        to, by, k = x[0], x[1], int(x[2:])
        v[to] = ((v[to] ^ v[by]) - rot(v[by], k)) & mask
        a, b, c = v["a"], v["b"], v["c"]
    return c


def usage(t, binary, place):
    path = os.path.join(place, "old.h5")
    with h5py.File(path, "w", libver="earliest") as f:
        f.create_dataset("x", (0,), "i4", maxshape=(None,), chunks=(4,))
    before = harness.read(path)
    os.makedirs(place + "/mnt", exist_ok=True)
    for options, text in ((["--swmr"], "needs --read-write"), (["--swmr", "--read-write"], "h5repack -L")):
        done = subprocess.run([binary, "mount", *options, path, place + "/mnt"], capture_output=True, text=True)
        t.check(done.returncode != 0 and text in done.stderr, f"{options}: {done.returncode} {done.stderr}")
    t.equal(harness.read(path), before, "a file that SWMR does not allow")
    done = subprocess.run([binary, "mount", "--swmr", "--read-write", place, place + "/mnt"], capture_output=True, text=True)
    t.check(done.returncode != 0 and "needs an HDF5 file" in done.stderr, f"a directory: {done.stderr}")
    # A file of h5dir: its datasets can be followed.
    path = os.path.join(place, "own.h5")
    subprocess.run([binary, "create", path], check=True)
    with harness.mounted(binary, path, "--read-write") as point:
        open(f"{point}/d", "wb").close()
        os.setxattr(f"{point}/d", "user.h5dir.dataset", b'{"dtype": "<i8", "shape": [0], "maxshape": [null], "chunks": [16]}')
    with harness.mounted(binary, path, "--read-write", "--swmr") as point:
        with h5py.File(path, "r", libver="latest", swmr=True) as f:
            for n in range(100):
                with open(f"{point}/d", "ab") as d:
                    d.write(np.array([n]).tobytes())
                    d.flush()
                    os.fsync(d.fileno())
                f["d"].refresh()
                t.equal(f["d"][...].tolist(), list(range(n + 1)), "a dataset of h5dir")


SPARSE = {"sparse": "map", "packed": "filter", "structured": "structured"}
SPARSE_ROWS = 400


def make_with_log(binary, path):
    """A file of h5dir with an ordinary dataset, sparse ones of all profiles, and one in a log, whose index lacks its last run."""
    subprocess.run([binary, "create", path], check=True)
    with harness.mounted(binary, path, "--read-write") as point:
        def dataset(name, more):
            open(f"{point}/{name}", "wb").close()
            text = '{"dtype": "<i8", "shape": [0, 4], "maxshape": [null, 4], %s}' % more
            os.setxattr(f"{point}/{name}", "user.h5dir.dataset", text.encode())
        dataset("array", '"chunks": [16, 4]')
        for name, profile in SPARSE.items():
            dataset(name, f'"chunks": [16, 4], "layout": "sparse", "profile": "{profile}"')
        dataset("logged", '"layout": "log"')
        for name in ("logged", *SPARSE):
            with open(f"{point}/{name}", "wb") as f:
                f.write(np.arange(1, 41).astype("<i8").tobytes())
        for name in SPARSE:
            os.truncate(f"{point}/{name}", 0)


def reason(path):
    return os.getxattr(path, "user.h5dir.error").decode()


def sparse_and_log_refusals(t, point):
    """What SWMR cannot do with sparse and log datasets is refused, each with its reason; the others can be written."""
    refused(t, "writing in a log", errno.EPERM, write_to, f"{point}/logged")
    t.check("in a log" in reason(f"{point}/logged"), reason(f"{point}/logged"))
    refused(t, "growing in a log", errno.EPERM, os.truncate, f"{point}/logged", 400)
    refused(t, "shrinking in a log", errno.EPERM, os.truncate, f"{point}/logged", 32)
    for name in ("packed", "structured"):
        refused(t, f"writing {name}", errno.EPERM, write_to, f"{point}/{name}")
        t.check("does not read without a plugin" in reason(f"{point}/{name}"), reason(f"{point}/{name}"))
    refused(t, "a hole of sparse data", errno.EPERM, punch, f"{point}/sparse")
    t.check("holes" in reason(f"{point}/sparse"), reason(f"{point}/sparse"))
    refused(t, "a smaller sparse dataset", errno.EPERM, os.truncate, f"{point}/sparse", 32)
    refused(t, "another layout", errno.EPERM, os.setxattr, f"{point}/array", "user.h5dir.layout", b"log")


def grow_sparse(point, row):
    """Defines one element of a new row of the sparse dataset, and all of a row of the other one."""
    with open(f"{point}/sparse", "r+b") as f:
        f.seek((row * 4 + row % 4) * 8)
        f.write(np.array([row + 1], "<i8").tobytes())
        f.flush()
        with open(f"{point}/array", "r+b") as g:
            g.seek(row * 32)
            g.write(np.full(4, row + 1, "<i8").tobytes())
        if row % 3 == 0:
            os.fsync(f.fileno())


def sparse_row(row):
    return [row + 1 if i == row % 4 else 0 for i in range(4)]


def follow_sparse(path, stop):
    """A reader: each row that a dataset has is whole, and none goes."""
    seen, rounds = {"sparse": 0, "array": 0}, 0
    with h5py.File(path, "r", libver="latest", swmr=True) as f:
        print("open", flush=True)
        last = False
        while not last:
            last = os.path.exists(stop)
            for name in seen:
                f[name].refresh()
                data = f[name][...]
                if len(data) < seen[name]:
                    raise SystemExit(f"{name} shrank")
                for row, values in enumerate(data.tolist()):
                    # A program writes the element that makes a row after the row before is there.
                    want = sparse_row(row) if name == "sparse" else [row + 1] * 4
                    if values != want:
                        raise SystemExit(f"{name}: row {row} of {len(data)} is {values}")
                seen[name] = len(data)
            rounds += 1
    print(rounds, *seen.values(), flush=True)


def data_bytes(path):
    """Bytes of a file that are no holes."""
    fd, at, found = os.open(path, os.O_RDONLY), 0, 0
    try:
        while True:
            start = os.lseek(fd, at, os.SEEK_DATA)
            at = os.lseek(fd, start, os.SEEK_HOLE)
            found += at - start
    except OSError as e:
        if e.errno != errno.ENXIO:
            raise
        return found
    finally:
        os.close(fd)


def check_sparse(t, binary, path, logged, rows, what, synced=None):
    """The file as h5py and the next mount have it."""
    with h5py.File(path, "r") as f:
        for name, want in (("sparse", sparse_row), ("array", lambda row: [row + 1] * 4)):
            data = f[name][...].tolist()
            t.equal(data, [want(row) for row in range(len(data))], f"{what}: {name}")
            least = rows if synced is None else synced
            t.check(least <= len(data) <= rows, f"{what}: {name} has {len(data)} rows, not {least} to {rows}")
    with harness.mounted(binary, path, "--read-write") as point:
        t.equal(harness.read(f"{point}/logged"), logged, f"{what}: elements of the log")
        rows_now = os.stat(f"{point}/sparse").st_size // 32
        t.equal(data_bytes(f"{point}/sparse"), rows_now * 8, f"{what}: bytes of defined elements")
        with open(f"{point}/logged", "ab") as f:
            f.write(np.arange(41, 45).astype("<i8").tobytes())
    with harness.mounted(binary, path) as point:
        t.equal(len(harness.read(f"{point}/logged")), len(logged) + 32, f"{what}: the log is written again")
    done = subprocess.run([binary, "check", "--data", path], capture_output=True, text=True)
    t.equal(done.returncode, 0, f"{what}: h5dir check: {done.stdout}{done.stderr}")


def sparse_and_log(t, binary, place):
    """A file with sparse datasets and a log has a SWMR writer."""
    path, stop = os.path.join(place, "sparse.h5"), os.path.join(place, "sparse-stop")
    make_with_log(binary, path)
    killed = os.path.join(place, "sparse-killed.h5")
    shutil.copy(path, killed)
    with harness.mounted(binary, path, "--read-write", "--swmr") as point:
        logged = harness.read(f"{point}/logged")
        t.equal(np.frombuffer(logged, "<i8").tolist(), list(range(1, 41)), "the log through the mount")
        reader = subprocess.Popen([sys.executable, __file__, "--follow-sparse", path, stop], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        try:
            first = reader.stdout.readline()
            for row in range(SPARSE_ROWS):
                grow_sparse(point, row)
                if row == SPARSE_ROWS // 2:
                    sparse_and_log_refusals(t, point)
            with open(f"{point}/sparse", "r+b") as f:
                os.fsync(f.fileno())
            open(stop, "w").close()
            printed = reader.communicate(timeout=300)[0]
        finally:
            reader.kill()
        t.equal((first, reader.returncode), ("open\n", 0), f"the reader of sparse data: {first}{printed[-300:]}")
        t.equal(printed.split()[1:], [str(SPARSE_ROWS)] * 2, "rows that the reader saw at last")
        t.equal(harness.read(f"{point}/logged"), logged, "the log after refusals")
    t.equal(flags(path), 0, "flags after unmounting")
    check_sparse(t, binary, path, logged, SPARSE_ROWS, "unmounted")
    with tempfile.TemporaryDirectory(prefix="h5dir-mount-") as point:
        daemon = subprocess.Popen([binary, "mount", "-f", "--read-write", "--swmr", killed, point], stdin=subprocess.DEVNULL)
        while not os.path.ismount(point) and daemon.poll() is None:
            time.sleep(0.01)
        for row in range(50):
            grow_sparse(point, row)
        daemon.kill()
        daemon.wait()
        subprocess.run([binary, "umount", "--lazy", point], stdin=subprocess.DEVNULL, capture_output=True)
    done = subprocess.run([binary, "recover", killed], capture_output=True, text=True)
    t.equal(done.returncode, 0, f"recover of a file with a log: {done.stderr}")
    check_sparse(t, binary, killed, logged, 50, "killed", 48)


def main():
    if sys.argv[1:2] == ["--follow-sparse"]:
        return follow_sparse(sys.argv[2], sys.argv[3])
    if sys.argv[1:2] == ["--follow"]:
        return follow(sys.argv[2], sys.argv[3])
    options = harness.arguments(__doc__)
    t = harness.Tally()
    rnd = random.Random(options.seed)
    with harness.folder(options.keep) as place:
        usage(t, options.bin, place)
        sparse_and_log(t, options.bin, place)
        rows = follow_a_mount(t, options.bin, place, rnd)
        journals = sum(kill_a_mount(t, options.bin, place, number, rnd) for number in range(KILLS))
    print(f"{rows} rows appended by {APPENDS} writes; {KILLS} killed mounts, {journals} left a journal")
    t.finish()


if __name__ == "__main__":
    main()
