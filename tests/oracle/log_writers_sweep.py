"""Several writers of one log: mounts with --log-writer K at once, each beside the HDF5 file, judged by numpy and h5py.

Models: each writer's writes in their order, those of a higher number after those of a lower one. Then: kills, full disks, damage,
what is refused, and joining by later mounts.
"""
import contextlib
import errno
import json
import os
import random
import shutil
import signal
import subprocess
import tempfile
import time

import h5py
import numpy as np

import harness

SHAPES = {"grid": ((64, 33), "<i4"), "packed": ((50, 40), "<f4"), "line": ((100000,), "<f8"), "cube": ((6, 7, 8), "<u2")}
# Bytes of the head of a run file.
HEAD = 52
STEPS = int(os.environ.get("H5DIR_LOG_WRITERS_STEPS", "150"))


def run(binary, *arguments, timeout=300):
    return subprocess.run([binary, *arguments], capture_output=True, text=True, timeout=timeout)


def make(binary, path):
    """A file with datasets in a log, some of whose elements are written, and one that is not in it. Returns the model."""
    subprocess.run([binary, "create", path], check=True)
    model = {}
    with harness.mounted(binary, path, "--read-write") as point:
        for name, (shape, kind) in SHAPES.items():
            text = {"dtype": kind, "shape": shape, "fillvalue": "9", "layout": "log"}
            if name == "packed":
                text["profile"] = "deflate"
            open(f"{point}/{name}", "wb").close()
            os.setxattr(f"{point}/{name}", "user.h5dir.dataset", json.dumps(text).encode())
            model[name] = np.full(shape, 9, kind)
            data = np.arange(shape[0]).astype(kind)
            flat = model[name].reshape(-1)
            flat[: data.size] = data
            with open(f"{point}/{name}", "r+b") as f:
                f.write(data.tobytes())
        with open(f"{point}/bytes", "wb") as f:
            f.write(b"not in the log")
    return model


class Writer:
    """A mount with --log-writer, and what was written through it."""

    def __init__(self, binary, path, number, *options, popen=False):
        self.binary, self.number, self.point = binary, number, tempfile.mkdtemp(prefix="h5dir-mount-")
        self.daemon, self.writes, self.earlier, self.synced = None, [], [], 0
        if popen:
            command = [binary, "mount", "-f", "--log-writer", str(number), *options, path, self.point]
            self.daemon = subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            while not os.path.ismount(self.point) and self.daemon.poll() is None:
                time.sleep(0.01)
        else:
            done = run(binary, "mount", "--log-writer", str(number), *options, path, self.point)
            assert done.returncode == 0, done.stderr
        self.open = {name: os.open(f"{self.point}/{name}", os.O_RDWR) for name in SHAPES}

    def step(self, rnd, long=60):
        name = rnd.choice(list(SHAPES))
        shape, kind = SHAPES[name]
        row, size = row_of(name), np.dtype(kind).itemsize
        total = os.fstat(self.open[name]).st_size // size
        if rnd.random() < 0.2:
            self.grow(rnd, name, total)
        else:
            first = rnd.randrange(total)
            # Some go past the end, within a row or some rows.
            count = min(rnd.choice([1, 2, 7, long, 40 * long]), total - first + rnd.choice([0, 0, 0, 5, 2 * row + 1]))
            self.write(name, first, numbers(rnd, count, kind))
        if rnd.random() < 0.05:
            self.sync()

    def write(self, name, first, data):
        assert os.pwrite(self.open[name], data.tobytes(), first * data.itemsize) == data.nbytes
        self.note(name, first, data)

    def note(self, name, first, data):
        """The size follows a write at once, in whole rows."""
        shape, kind = SHAPES[name]
        before = max([shape[0]] + [rows_of(*write) for write in self.earlier + self.writes if write[0] == name])
        self.writes.append((name, first, data))
        rows = max(before, rows_of(name, first, data))
        assert os.fstat(self.open[name]).st_size == rows * row_of(name) * np.dtype(kind).itemsize

    def grow(self, rnd, name, total):
        """Appends rows, or leaves them without elements."""
        kind, row, more = SHAPES[name][1], row_of(name), rnd.randrange(1, 4)
        size, path, none = np.dtype(kind).itemsize, f"{self.point}/{name}", np.zeros(0, kind)
        end = total + more * row
        how = rnd.choice(["append", "truncate", "shape", "past"])
        if how == "append":
            data = numbers(rnd, more * row, kind)
            with open(path, "ab") as f:
                f.write(data.tobytes())
            self.note(name, total, data)
        elif how == "truncate":
            os.ftruncate(self.open[name], end * size - rnd.randrange(size))
            self.note(name, end, none)
        elif how == "shape":
            os.setxattr(path, "user.h5dir.shape", json.dumps([end // row, *SHAPES[name][0][1:]]).encode())
            self.note(name, end, none)
        else:
            self.write(name, end - rnd.randrange(row), numbers(rnd, 1, kind))

    def sync(self):
        os.fsync(self.open["grid"])
        self.synced = len(self.writes)

    def close(self):
        for fd in self.open.values():
            with contextlib.suppress(OSError):
                os.close(fd)

    def unmount(self):
        self.close()
        done = run(self.binary, "umount", self.point)
        os.rmdir(self.point)
        return done

    def kill(self):
        self.daemon.send_signal(signal.SIGKILL)
        self.daemon.wait()
        self.close()
        run(self.binary, "umount", "--lazy", self.point)
        os.rmdir(self.point)


def row_of(name):
    """Elements of a row of a dataset."""
    return int(np.prod(SHAPES[name][0][1:]))


def rows_of(name, first, data):
    """First dimension that a dataset has at least after a write, or, without data, after it grew to `first` elements."""
    return -(-(first + data.size) // row_of(name))


def numbers(rnd, count, kind):
    return np.array([rnd.randrange(1, 60000) for _ in range(count)]).astype(kind)


def sizes(model):
    """Writes without data that make datasets as large as those of the model."""
    return [(name, data.size, np.zeros(0, data.dtype)) for name, data in model.items()]


def apply(model, writes):
    for name, first, data in writes:
        old, rows = model[name], rows_of(name, first, data)
        if rows > old.shape[0]:
            model[name] = np.full((rows, *old.shape[1:]), 9, old.dtype)
            model[name][: old.shape[0]] = old
        model[name].reshape(-1)[first : first + data.size] = data


def joined(model, writers):
    model = {name: data.copy() for name, data in model.items()}
    for writer in sorted(writers, key=lambda writer: writer.number):
        apply(model, writer.writes)
    return model


def shown(point):
    return {name: np.frombuffer(harness.read(f"{point}/{name}"), kind).reshape(-1, *shape[1:]) for name, (shape, kind) in SHAPES.items()}


def compare(t, got, want, what):
    for name, data in want.items():
        if got[name].shape != data.shape:
            t.check(False, f"{what}: {name} has the shape {got[name].shape}, not {data.shape}")
        else:
            t.check(np.array_equal(got[name], data), f"{what}: {name} differs at {np.flatnonzero(got[name] != data)[:4]}")


def run_files(path):
    folder, name = os.path.split(path)
    return sorted(entry for entry in os.listdir(folder) if entry.startswith(name + ".log."))


def compare_by_all(t, binary, path, want, what):
    """A read-only mount, a copy that h5py reads, and `check` agree; the run files stay."""
    before = run_files(path)
    with harness.mounted(binary, path) as point:
        compare(t, shown(point), want, f"{what}, a read-only mount")
    done = run(binary, "check", "--data", path)
    t.equal(done.returncode, 0, f"{what}: check: {done.stdout}{done.stderr}")
    copy = path + ".copy.h5"
    subprocess.run([binary, "create", copy], check=True)
    for name in want:
        done = run(binary, "cp", "--no-log", f"{path}:/{name}", f"{copy}:/{name}")
        t.equal(done.returncode, 0, f"{what}: cp of {name}: {done.stderr}")
    compare_by_h5py(t, copy, want, f"{what}, a copy")
    os.unlink(copy)
    t.equal(run_files(path), before, f"{what}: run files after reading")


def compare_by_h5py(t, path, want, what):
    with h5py.File(path) as f:
        compare(t, {name: f[name][()] for name in want}, want, f"{what}, by h5py")


def join(t, binary, path, want, what):
    """A mount for writing joins the run files and goes on."""
    with harness.mounted(binary, path, "--read-write") as point:
        t.equal(run_files(path), [], f"{what}: run files after a mount for writing")
        compare(t, shown(point), want, f"{what}, joined")
        with open(f"{point}/cube", "r+b") as f:
            f.write(np.array([77], "<u2").tobytes())
    want["cube"].reshape(-1)[0] = 77
    with harness.mounted(binary, path) as point:
        compare(t, shown(point), want, f"{what}, written after joining")
    plain = path + ".plain.h5"
    done = run(binary, "log", "replay", path, plain)
    t.equal(done.returncode, 0, f"{what}: log replay: {done.stderr}")
    compare_by_h5py(t, plain, want, f"{what}, replayed")
    os.unlink(plain)
    done = run(binary, "check", "--data", path)
    t.equal(done.returncode, 0, f"{what}: check after joining: {done.stdout}{done.stderr}")


def several(t, binary, place, rnd):
    """Three writers at once; then again in the same run files; then again after joining."""
    path = os.path.join(place, "several.h5")
    base = make(binary, path)
    earlier = []
    for turn in range(3):
        writers = [Writer(binary, path, number) for number in (7, 1, 12)]
        for writer in writers:
            writer.earlier = sizes(joined(base, earlier))
        for _ in range(STEPS):
            rnd.choice(writers).step(rnd)
        if turn == 0:
            exclusion(t, binary, path, place)
        for writer in writers:
            # What others wrote since the mount began is not shown.
            own = joined(base, earlier)
            apply(own, writer.writes)
            compare(t, shown(writer.point), own, f"turn {turn}: the mount of writer {writer.number}")
        for writer in writers:
            t.equal(writer.unmount().returncode, 0, f"unmounting writer {writer.number}")
        t.equal(len(run_files(path)), 3, f"run files after turn {turn}")
        # Of an element the write of the higher number counts, also if it is of an earlier session.
        earlier += writers
        model = joined(base, earlier)
        compare_by_all(t, binary, path, model, f"turn {turn}")
        if turn > 0:
            join(t, binary, path, model, f"turn {turn}")
            base, earlier = model, []


def exclusion(t, binary, path, place):
    """What programs may do beside writers."""
    mnt = os.path.join(place, "mnt")
    os.makedirs(mnt, exist_ok=True)
    for options, text in (
        (["--log-writer", "7"], "another mount is log writer 7"),
        (["--read-write"], "another program has it open"),
        (["--log-writer", "0"], "1 to 1024"),
        (["--log-writer", "2", "--read-write"], "leave out --read-write"),
    ):
        done = run(binary, "mount", *options, path, mnt)
        t.check(done.returncode != 0 and text in done.stderr, f"{options} beside writers: {done.returncode} {done.stderr}")
    with h5py.File(path, "r") as f:
        t.check("LOG" in f, "h5py reads the file beside writers")
    try:
        h5py.File(path, "r+").close()
        t.check(False, "h5py opens it for writing")
    except OSError:
        t.check(True, "")
    with harness.mounted(binary, path) as point:
        t.equal(harness.read(f"{point}/bytes"), b"not in the log", "a read-only mount beside writers")


def refused(t, what, f, *arguments):
    try:
        f(*arguments)
        t.check(False, f"{what} succeeded")
    except OSError as e:
        t.equal(e.errno, errno.EPERM, what)


def write_at(path, at):
    fd = os.open(path, os.O_RDWR)
    try:
        os.pwrite(fd, b"1234", at)
    finally:
        os.close(fd)


def refusals(t, binary, place):
    path = os.path.join(place, "refusals.h5")
    make(binary, path)
    writer = Writer(binary, path, 1)
    point = writer.point
    size = os.stat(f"{point}/grid").st_size
    refused(t, "a smaller size", os.truncate, f"{point}/grid", 4)
    t.check("smaller" in os.getxattr(f"{point}/grid", "user.h5dir.error").decode(), "the reason of a refused size")
    refused(t, "opening with O_TRUNC", open, f"{point}/grid", "wb")
    refused(t, "a dataset that is not in the log", write_at, f"{point}/bytes", 0)
    t.check("--log-writer" in os.getxattr(f"{point}/bytes", "user.h5dir.error").decode(), "the reason of a refused dataset")
    refused(t, "mkdir", os.mkdir, f"{point}/new")
    refused(t, "a new file", open, f"{point}/new", "wb")
    refused(t, "unlink", os.unlink, f"{point}/grid")
    refused(t, "rename", os.rename, f"{point}/grid", f"{point}/other")
    refused(t, "setxattr", os.setxattr, f"{point}/grid", "user.a", b"1")
    refused(t, "a smaller shape", os.setxattr, f"{point}/grid", "user.h5dir.shape", b"[63,33]")
    refused(t, "a row that is longer", os.setxattr, f"{point}/grid", "user.h5dir.shape", b"[64,34]")
    t.check("--log-writer" in os.getxattr(f"{point}/grid", "user.h5dir.error").decode(), "the reason of a refused shape")
    os.truncate(f"{point}/grid", size)
    t.equal(os.stat(f"{point}/grid").st_size, size, "the size after what was refused")
    os.utime(f"{point}/grid", (1, 1))
    t.equal(writer.unmount().returncode, 0, "unmounting after refusals")
    plain = os.path.join(place, "plain.h5")
    subprocess.run([binary, "create", plain], check=True)
    mnt = os.path.join(place, "mnt")
    os.makedirs(mnt, exist_ok=True)
    for target, text in ((plain, "has no log"), (place, "needs an HDF5 file")):
        done = run(binary, "mount", "--log-writer", "1", target, mnt)
        t.check(done.returncode != 0 and text in done.stderr, f"a writer of {target}: {done.stderr}")


def kills(t, binary, place, rnd):
    """kill -9 of two writers: all that was synced counts, of the rest whole writes or none of a commit."""
    path = os.path.join(place, "kills.h5")
    model = make(binary, path)
    for round_ in range(6):
        writers = [Writer(binary, path, number, "--commit-interval=0", popen=True) for number in (1, 2)]
        for writer in writers:
            writer.earlier = sizes(model)
        for _ in range(rnd.randrange(10, 80)):
            rnd.choice(writers).step(rnd, 200)
        if round_ % 2 == 0:
            # Bytes that no sync acknowledged are in the file, too.
            for writer in writers:
                writer.sync()
                writer.step(rnd)
        for writer in writers:
            writer.kill()
            writer.writes = writer.writes[: writer.synced]
        if round_ == 2:
            for writer in writers:
                with open(f"{path}.log.{writer.number}", "ab") as f:
                    f.write(os.urandom(rnd.randrange(1, 5000)))
        want = joined(model, writers)
        with harness.mounted(binary, path) as point:
            compare(t, shown(point), want, f"kill {round_}")
        if round_ % 3 == 2:
            again = Writer(binary, path, 2)
            again.earlier = sizes(want)
            again.step(rnd)
            t.equal(again.unmount().returncode, 0, "a writer that goes on")
            writers[1].writes += again.writes
            want = joined(model, writers)
        join(t, binary, path, want, f"kill {round_}")
        model = want


def killed_joins(t, binary, place, rnd):
    """kill -9 of mounts that join: the next one shows the same."""
    path = os.path.join(place, "joins.h5")
    model = make(binary, path)
    for round_ in range(8):
        writers = [Writer(binary, path, number) for number in (1, 2)]
        for writer in writers:
            writer.earlier = sizes(model)
        for _ in range(40):
            rnd.choice(writers).step(rnd, 300)
        for writer in writers:
            writer.unmount()
        model = joined(model, writers)
        point = tempfile.mkdtemp(prefix="h5dir-mount-")
        daemon = subprocess.Popen([binary, "mount", "-f", "--read-write", path, point], stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(rnd.random() * 0.25)
        daemon.kill()
        daemon.wait()
        run(binary, "umount", "--lazy", point)
        os.rmdir(point)
        with harness.mounted(binary, path) as point:
            compare(t, shown(point), model, f"join {round_} that was killed")
        join(t, binary, path, model, f"join {round_} that was killed")


def joined_once(t, binary, place):
    """Regression: a run file that could not be removed after it was joined is not joined again."""
    path = os.path.join(place, "once.h5")
    model = make(binary, path)
    writer = Writer(binary, path, 3)
    os.pwrite(writer.open["grid"], np.array([5], "<i4").tobytes(), 0)
    writer.unmount()
    shutil.copy(path + ".log.3", path + ".kept")
    model["grid"][0, 0] = 5
    with harness.mounted(binary, path, "--read-write") as point:
        with open(f"{point}/grid", "r+b") as f:
            f.write(np.array([6], "<i4").tobytes())
    shutil.copy(path + ".kept", path + ".log.3")
    model["grid"][0, 0] = 6
    compare_by_all(t, binary, path, model, "a run file that was joined")
    join(t, binary, path, model, "a run file that was joined")
    # Beside an earlier state of the file it belongs to another one.
    other = os.path.join(place, "other.h5")
    make(binary, other)
    with harness.mounted(binary, path, "--read-write") as point:
        for i in range(5):
            with open(f"{point}/grid", "r+b") as f:
                f.write(np.array([i], "<i4").tobytes())
                os.fsync(f.fileno())
    writer = Writer(binary, path, 3)
    os.pwrite(writer.open["grid"], np.array([8], "<i4").tobytes(), 0)
    writer.unmount()
    shutil.copy(path + ".log.3", other + ".log.3")
    damaged(t, binary, other, "beside another file", place, "another HDF5 file")


def damaged(t, binary, path, what, place, text=""):
    """A mount for writing is refused with the reason; one for reading shows what is not in the log."""
    mnt = os.path.join(place, "mnt")
    os.makedirs(mnt, exist_ok=True)
    done = run(binary, "mount", "--read-write", path, mnt)
    t.check(done.returncode != 0 and "writer" in done.stderr and text in done.stderr, f"{what}: {done.returncode} {done.stderr}")
    if done.returncode == 0:
        run(binary, "umount", mnt)
        return
    with harness.mounted(binary, path) as point:
        t.equal(harness.read(f"{point}/bytes"), b"not in the log", f"{what}: a dataset that is not in the log")
        try:
            harness.read(f"{point}/grid")
            t.check(False, f"{what}: elements of the log are read")
        except OSError as e:
            t.equal(e.errno, errno.EIO, f"{what}: elements of the log")
    done = run(binary, "check", path)
    t.check(done.returncode == 1 and "writer" in done.stdout + done.stderr, f"{what}: check: {done.returncode} {done.stdout}{done.stderr}")


def foreign(t, binary, place):
    """Files of other programs with the names of run files, as logs that were rotated have: nobody joins, changes or removes them."""
    path = os.path.join(place, "foreign.h5")
    make(binary, path)
    others = {1: b"2026-11-27 a line\n", 2: b"a longer line of a log\n" * 9, 3: b"", 4: bytes(500), 5: b"H5DLOG"}
    for number, content in others.items():
        with open(f"{path}.log.{number}", "wb") as f:
            f.write(content)
    os.symlink("/etc/hostname", path + ".log.6")
    os.mkdir(path + ".log.7")
    os.chmod(path + ".log.1", 0o666)
    model = np.zeros(0, "u1")
    with harness.mounted(binary, path, "--read-write") as point:
        with open(f"{point}/grid", "r+b") as f:
            f.write(b"\1\0\0\0")
        model = harness.read(f"{point}/grid")
    writer = Writer(binary, path, 9)
    os.pwrite(writer.open["grid"], b"\2\0\0\0", 4)
    writer.unmount()
    mnt = os.path.join(place, "mnt")
    os.makedirs(mnt, exist_ok=True)
    for number in (1, 2, 4, 5):
        done = run(binary, "mount", "--log-writer", str(number), path, mnt)
        t.check(done.returncode != 0 and (number == 1 or "another file" in done.stderr), f"log writer {number}: {done.returncode} {done.stderr}")
        if done.returncode == 0:
            run(binary, "umount", mnt)
    with harness.mounted(binary, path, "--read-write") as point:
        t.equal(harness.read(f"{point}/grid"), model[:4] + b"\2\0\0\0" + model[8:], "the run file of writer 9 is joined")
    for number, content in others.items():
        t.equal(harness.read(f"{path}.log.{number}"), content, f"another file with the name of run file {number}")
    t.equal([os.path.islink(path + ".log.6"), os.path.isdir(path + ".log.7"), os.path.exists(path + ".log.9")], [True, True, False], "what there is")
    t.equal(run(binary, "check", path).returncode, 0, "check beside other files")


def damage(t, binary, place, rnd):
    """Damaged run files: refused, or cut at the damage; bounded in memory."""
    path = os.path.join(place, "damage.h5")
    make(binary, path)
    writer = Writer(binary, path, 1)
    for _ in range(30):
        writer.step(rnd)
    writer.unmount()
    own = path + ".log.1"
    whole = harness.read(own)
    for at in (3, 9, 20, 40):
        with open(own, "wb") as f:
            f.write(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        damaged(t, binary, path, f"head damaged at {at}", place)
    with open(own, "wb") as f:
        f.write(whole)
    os.chmod(own, 0o666)
    os.chmod(path, 0o644)
    damaged(t, binary, path, "a run file that others may write", place, "more users")
    os.chmod(own, 0o644)
    os.rename(own, path + ".log.2")
    damaged(t, binary, path, "a run file with another number", place, "another writer")
    os.rename(path + ".log.2", own)
    for number in range(40):
        bad = bytearray(whole)
        for _ in range(rnd.choice([1, 1, 5, 50])):
            bad[rnd.randrange(HEAD, len(bad))] = rnd.randrange(256)
        if number % 5 == 0:
            # Counts of 2^60 with a right checksum are made by the fuzzer; here the length of the run.
            bad[HEAD + 36 + 24 : HEAD + 36 + 32] = (rnd.choice([1 << 62, (1 << 64) - 1, 1 << 29])).to_bytes(8, "little")
        with open(own, "wb") as f:
            f.write(bad[: rnd.choice([len(bad), rnd.randrange(len(bad))])])
        limited = f"ulimit -v {4 << 20}; exec timeout 60 '{binary}' check --data '{path}'"
        done = subprocess.run(["bash", "-c", limited], capture_output=True, text=True)
        t.check(done.returncode in (0, 1), f"damage {number}: {done.returncode} {done.stderr[-200:]}")
    # A file shorter than a head is that of a writer that was stopped at once.
    for length in (0, 10, 43, HEAD - 1):
        with open(own, "wb") as f:
            f.write(whole[:length])
        with harness.mounted(binary, path) as point:
            t.equal(len(harness.read(f"{point}/grid")), 64 * 33 * 4, f"a run file of {length} bytes")
    with harness.mounted(binary, path, "--read-write"):
        t.equal(run_files(path), [], "a run file without a head is removed")


def full_disk(t, binary, place):
    """On a full disk fsync fails and nothing acknowledged is lost; with room again it succeeds."""
    disk = os.path.join(place, "disk")
    os.makedirs(disk)
    if os.geteuid() != 0 or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", disk], capture_output=True).returncode != 0:
        print("no tmpfs: full disks left out")
        return
    try:
        path = os.path.join(disk, "full.h5")
        model = make(binary, path)
        filler = os.path.join(disk, "filler")
        with open(filler, "wb") as f, contextlib.suppress(OSError):
            f.write(bytes(1200 << 10))
        writer = Writer(binary, path, 1, "--commit-interval=0")
        data, failed = np.arange(100000, dtype="<f8"), False
        for round_ in range(8):
            data = data + 1
            os.pwrite(writer.open["line"], data.tobytes(), 0)
            try:
                os.fsync(writer.open["line"])
                model["line"][:] = data
            except OSError as e:
                t.equal(e.errno, errno.ENOSPC, "fsync on a full disk")
                failed = True
                break
        t.check(failed, "the disk was never full")
        with harness.mounted(binary, path) as point:
            compare(t, shown(point), model, "a full disk, what was synced")
        os.unlink(filler)
        os.fsync(writer.open["line"])
        model["line"][:] = data
        t.equal(writer.unmount().returncode, 0, "unmounting after a full disk")
        with harness.mounted(binary, path) as point:
            compare(t, shown(point), model, "with room again")
        # There is no room to join: the run file stays.
        with open(filler, "wb") as f, contextlib.suppress(OSError):
            f.write(bytes(3 << 20))
        mnt = os.path.join(place, "mnt")
        done = run(binary, "mount", "--read-write", path, mnt)
        t.check(done.returncode != 0 and run_files(path) == ["full.h5.log.1"], f"joining on a full disk: {done.stderr}")
        if done.returncode == 0:
            run(binary, "umount", mnt)
        with harness.mounted(binary, path) as point:
            compare(t, shown(point), model, "after joining failed")
        os.unlink(filler)
        subprocess.run(["mount", "-o", "remount,size=12m", disk], check=True)
        join(t, binary, path, model, "with room to join")
    finally:
        subprocess.run(["umount", disk], capture_output=True)


def rounds(t, binary, place):
    """100 rounds of writing and 20 of joining: neither files nor memory grow without end."""
    path = os.path.join(place, "rounds.h5")
    model = make(binary, path)
    sizes = []
    for round_ in range(20):
        writer = Writer(binary, path, 1)
        for step in range(5):
            data = np.full(64 * 33, round_ * 5 + step, "<i4")
            os.pwrite(writer.open["grid"], data.tobytes(), 0)
            os.fsync(writer.open["grid"])
        model["grid"][:] = data.reshape(64, 33)
        writer.unmount()
        with harness.mounted(binary, path, "--read-write"):
            pass
        sizes.append(os.stat(path).st_size)
    t.check(max(sizes[10:]) <= 2 * max(sizes[:4]) + (256 << 10), f"sizes after rounds: {sizes}")
    compare_by_all(t, binary, path, model, "rounds")


def main():
    options = harness.arguments(__doc__)
    t = harness.Tally()
    rnd = random.Random(options.seed)
    with harness.folder(options.keep) as place:
        refusals(t, options.bin, place)
        several(t, options.bin, place, rnd)
        kills(t, options.bin, place, rnd)
        killed_joins(t, options.bin, place, rnd)
        joined_once(t, options.bin, place)
        foreign(t, options.bin, place)
        damage(t, options.bin, place, rnd)
        full_disk(t, options.bin, place)
        rounds(t, options.bin, place)
    t.finish()


if __name__ == "__main__":
    main()
