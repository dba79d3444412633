"""What is measured: the mount, h5py, and plain tools. Every function returns seconds."""

import mmap
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path

import h5py
import numpy as np

H5DIR = os.environ.get("H5DIR_BIN", "target/release/h5dir")
READER = os.environ.get("H5DIR_BENCH_READER", "reader")
WRITER = os.environ.get("H5DIR_BENCH_WRITER", "writer")
START_LIMIT = 60.0


class Mount:
    """A mount served by a child process, so that its memory and its end can be seen."""

    def __init__(self, command, point):
        self.point = Path(point)
        self.device = self.point.stat().st_dev
        self.process = subprocess.Popen([H5DIR, *command, str(point)])
        end = time.monotonic() + START_LIMIT
        while self.point.stat().st_dev == self.device:
            if self.process.poll() is not None or time.monotonic() > end:
                raise SystemExit(f"{command} did not mount")
            time.sleep(0.002)

    def status(self):
        text = (self.point / ".h5dir/status").read_text()
        return dict(line.split(" ", 1) for line in text.splitlines())

    def cpu(self):
        """CPU seconds used so far by the daemon (in steps of 10 ms) and by finished tools."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        tools = resource.getrusage(resource.RUSAGE_CHILDREN)
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK") + tools.ru_utime + tools.ru_stime

    def peak_memory(self):
        """Largest resident size so far, bytes."""
        for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
        raise SystemExit("no VmHWM")

    def close(self, lazy=False):
        subprocess.run([H5DIR, "umount", *(["--lazy"] if lazy else []), str(self.point)], check=True)
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.send_signal(signal.SIGKILL)
            raise


@contextmanager
def mounted(*command):
    point = tempfile.mkdtemp(prefix="h5dir-bench-")
    mount = Mount(command, point)
    try:
        yield mount
    except BaseException:
        mount.close(lazy=True)
        raise
    else:
        mount.close()
    finally:
        os.rmdir(point)


def mount_file(path, *options):
    # Some hosts take cold pages away within minutes.
    warm(path)
    back_memory(1 << 30)
    return mounted("mount", "-f", *options, str(path))


def memory_fs(size):
    """The baseline of FUSE itself: a file in memory behind the same adapter, with the same settings."""
    back_memory(size + (1 << 30))
    return mounted("bench-memory-fs", "-f", "--size", str(size))


def back_memory(size):
    """Has the host of a virtual machine back this much free memory, so that nobody is charged for it.

    The first touch of memory that the host has yet to provide costs more than everything measured here,
    and it falls on whoever needs new pages: the page cache of a new mount. The kernel need not take those that were
    free last: some more are backed.
    """
    pages = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    size = max(size, min(size + (2 << 30), pages // 2))
    mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | mmap.MAP_POPULATE).close()


def warm(path):
    """Brings a file of the host into the page cache."""
    with open(path, "rb", buffering=0) as f:
        buffer = bytearray(1 << 20)
        while f.readinto(buffer):
            pass


def reader(mode, path, block, count=0):
    out = subprocess.run([READER, mode, str(path), str(block), str(count)], check=True, capture_output=True, text=True).stdout
    return float(out.split()[0])


def writer(mode, source, path, block, count=0):
    out = subprocess.run([WRITER, mode, str(source), str(path), str(block), str(count)], check=True, capture_output=True, text=True).stdout
    return float(out)


def read_loop(path):
    return reader("seq", path, 1 << 20)


def read_into_one(path):
    """The whole file into one buffer used before: what h5py_into_one does."""
    return reader("fill", path, 16 << 20)


def dd(path):
    return timed(["dd", f"if={path}", "of=/dev/null", "bs=1M", "status=none"])


def cat(path):
    start = time.perf_counter()
    with open("/dev/null", "wb") as null:
        subprocess.run(["cat", str(path)], check=True, stdout=null)
    return time.perf_counter() - start


def timed(command, stdout=subprocess.DEVNULL, env=None):
    start = time.perf_counter()
    subprocess.run(command, check=True, stdout=stdout, env=env)
    return time.perf_counter() - start


def program(code, *paths):
    """A Python program from its start to its end, with numpy's own settings."""
    env = {k: v for k, v in os.environ.items() if k != "NUMPY_MADVISE_HUGEPAGE"}
    return timed([sys.executable, "-c", code, *map(str, paths)], env=env)


def h5py_program(path):
    """What reads a dataset without h5dir: a program that ends with the array in its memory."""
    warm(path)
    back_memory(1 << 30)
    return program("import sys, h5py; h5py.File(sys.argv[1])['data'][...]", path)


def numpy_program(path):
    """The same with the mount's file and without h5py."""
    return program("import sys, numpy; numpy.fromfile(sys.argv[1], 'f4')", path)


_buffer = None


def h5py_whole(array):
    """The whole dataset in windows of at least 16 MiB and whole chunks into one buffer used before."""
    global _buffer
    warm(array.path)
    shape = (array.rows_at_once, *array.shape[1:])
    if _buffer is None or _buffer.shape != shape:
        _buffer = np.ones(shape, "f4")
    start = time.perf_counter()
    with h5py.File(array.path) as f:
        d = f["data"]
        for at in range(0, array.shape[0], shape[0]):
            n = min(shape[0], array.shape[0] - at)
            d.read_direct(_buffer, np.s_[at : at + n], np.s_[:n])
    return time.perf_counter() - start


def h5py_into_one(array):
    """The whole dataset in the same windows into one buffer of its size, used before."""
    global _buffer
    warm(array.path)
    if _buffer is None or _buffer.shape != array.shape:
        _buffer = np.ones(array.shape, "f4")
    start = time.perf_counter()
    with h5py.File(array.path) as f:
        d = f["data"]
        for at in range(0, array.shape[0], array.rows_at_once):
            rows = np.s_[at : min(at + array.rows_at_once, array.shape[0])]
            d.read_direct(_buffer, rows, rows)
    return time.perf_counter() - start


def h5py_spread(array, count):
    """One read of 4 KiB in each of `count` equal parts of a 1-D dataset, in random order."""
    rng = np.random.default_rng(42)
    part = array.shape[0] // count
    offsets = np.arange(count) * part + rng.integers(0, part // 1024, count) * 1024
    rng.shuffle(offsets)
    buffer = np.ones(1024, "f4")
    warm(array.path)
    start = time.perf_counter()
    with h5py.File(array.path) as f:
        d = f["data"]
        for at in offsets.tolist():
            d.read_direct(buffer, np.s_[at : at + 1024])
    return time.perf_counter() - start


def h5py_spread_rows(array, count):
    """One read of 4 KiB (two rows of 512) in `count` places of a 3-D dataset, in random order."""
    rng = np.random.default_rng(42)
    pairs = array.shape[0] * array.shape[1] // 2
    part = pairs // count
    offsets = np.arange(count) * part + rng.integers(0, part, count)
    rng.shuffle(offsets)
    buffer = np.ones((2, array.shape[2]), "f4")
    warm(array.path)
    start = time.perf_counter()
    with h5py.File(array.path) as f:
        d = f["data"]
        for pair in offsets.tolist():
            z, y = divmod(pair * 2, array.shape[1])
            d.read_direct(buffer, np.s_[z, y : y + 2])
    return time.perf_counter() - start


def h5py_storage_size(path):
    """Stored bytes of the dataset "data"."""
    warm(path)
    start = time.perf_counter()
    with h5py.File(path) as f:
        f["data"].id.get_storage_size()
    return time.perf_counter() - start


def h5py_walk(path):
    """visititems with what `ls -l` shows: each object opened, the size of each dataset."""
    total = 0

    def visit(_name, item):
        nonlocal total
        if isinstance(item, h5py.Dataset):
            total += item.size

    warm(path)
    start = time.perf_counter()
    with h5py.File(path) as f:
        f.visititems(visit)
    return time.perf_counter() - start


def h5ls(path):
    if not shutil.which("h5ls"):
        return None
    warm(path)
    return timed(["h5ls", "-r", str(path)])


def ls(point):
    return timed(["ls", "-lR", str(point)])


def mount_seconds(path):
    """`h5dir mount` as it is used: it returns when the mount answers."""
    point = tempfile.mkdtemp(prefix="h5dir-bench-")
    try:
        seconds = timed([H5DIR, "mount", str(path), point])
        subprocess.run([H5DIR, "umount", point], check=True)
    finally:
        os.rmdir(point)
    return seconds


def h5py_open(path):
    start = time.perf_counter()
    with h5py.File(path) as f:
        len(f.attrs)
    return time.perf_counter() - start
