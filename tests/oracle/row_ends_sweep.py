#!/usr/bin/env python3
"""Programs that overwrite a dataset as a whole (O_TRUNC) and end within a row or an element: close(2) is EINVAL with the sizes; of all other writes it is not."""
import errno
import json
import os
import subprocess
import time

import h5py
import numpy as np

import harness

ROWS = {"elements": (4, {"dtype": "<i4", "shape": [0], "maxshape": [None], "chunks": [8]}),
        "rows": (24, {"dtype": "<i4", "shape": [0, 6], "maxshape": [None, 6], "chunks": [2, 3]}),
        "frames": (64 * 64, {"dtype": "u1", "shape": [0, 64, 64], "maxshape": [None, 64, 64], "chunks": [1, 64, 64], "filters": ["deflate 1"]}),
        "sparse": (8, {"dtype": "<f8", "shape": [0], "maxshape": [None], "chunks": [16], "layout": "sparse"}),
        "bounded": (12, {"dtype": "<i2", "shape": [1, 6], "maxshape": [9, 6], "chunks": [2, 6]})}
BYTES = {"dtype": "u1", "shape": [0], "maxshape": [None], "chunks": [16]}


def make(point):
    for name, (_, spec) in [*ROWS.items(), ("bytes", (1, BYTES)), ("fixed", (4, {"dtype": "<i4", "shape": [8], "layout": "contiguous"}))]:
        open(f"{point}/{name}", "xb").close()
        os.setxattr(f"{point}/{name}", "user.h5dir.dataset", json.dumps(spec).encode())


class Closing:
    """A descriptor; `closed` is what close(2) returned."""

    def __init__(self, path, flags):
        self.path, self.fd, self.closed = path, os.open(path, flags), 0

    def __enter__(self):
        return self.fd

    def __exit__(self, *_):
        try:
            os.close(self.fd)
        except OSError as e:
            self.closed = e.errno


def ends(t, path, what, flags, call, wrong, row):
    """Calls `call` with a descriptor; closing it is an error if `wrong`."""
    try:
        os.removexattr(path, "user.h5dir.error")
    except OSError:
        pass
    closing = Closing(path, flags)
    with closing as fd:
        call(fd)
    t.equal(closing.closed, errno.EINVAL if wrong else 0, what)
    size = os.stat(path).st_size
    t.equal(size % row, 0, f"{what}: whole rows")
    if wrong:
        reason = os.getxattr(path, "user.h5dir.error").decode()
        t.check(str(row) in reason and str(size) in reason, f"{what}: {reason}")


def one_dataset(t, path, row):
    fill = lambda n: bytes(i % 250 + 1 for i in range(n))
    write, read_write = os.O_WRONLY, os.O_RDWR
    for flags in (write, read_write):
        what = f"{path} {'O_WRONLY' if flags == write else 'O_RDWR'}"
        trunc, append = flags | os.O_TRUNC, flags | os.O_APPEND
        ends(t, path, f"{what} O_TRUNC, whole rows", trunc, lambda fd: os.write(fd, fill(3 * row)), False, row)
        ends(t, path, f"{what} O_TRUNC, a part", trunc, lambda fd: os.write(fd, fill(3 * row + 1)), True, row)
        t.equal(harness.read(path), fill(3 * row + 1) + bytes(row - 1), f"{what}: the fill value follows")
        ends(t, path, f"{what} O_TRUNC, nothing", trunc, lambda fd: None, False, row)
        ends(t, path, f"{what} O_TRUNC, pieces of rows", trunc, lambda fd: [os.pwrite(fd, fill(1), i) for i in range(2 * row if row < 100 else row)], False, row)
        size = os.stat(path).st_size
        ends(t, path, f"{what} part of an element in place", flags, lambda fd: os.pwrite(fd, b"x", size - row + 1), False, row)
        ends(t, path, f"{what} appends a row in pieces", append, lambda fd: [os.write(fd, fill(1)) for _ in range(row)], False, row)
        ends(t, path, f"{what} appends a part", append, lambda fd: os.write(fd, fill(row - 1)), False, row)
        ends(t, path, f"{what} appends after a part", append, lambda fd: os.write(fd, fill(row)), False, row)
        ends(t, path, f"{what} ftruncate after a part", flags, lambda fd: (os.ftruncate(fd, 0), os.write(fd, fill(row + 1)), os.ftruncate(fd, row)), False, row)
        ends(t, path, f"{what} ftruncate to a part", flags, lambda fd: (os.pwrite(fd, fill(row), 0), os.ftruncate(fd, row + 1)), False, row)
        ends(t, path, f"{what} O_TRUNC, ftruncate to a part", trunc, lambda fd: (os.pwrite(fd, fill(row), 0), os.ftruncate(fd, row + 1)), True, row)
        ends(t, path, f"{what} ftruncate alone", flags, lambda fd: os.ftruncate(fd, row + 1), False, row)
        ends(t, path, f"{what} reserves and fills", flags,
             lambda fd: (os.ftruncate(fd, 0), os.ftruncate(fd, row * 2 - 1), os.pwrite(fd, fill(2 * row), 0)), False, row)
        ends(t, path, f"{what} reserves, and fills a part", flags,
             lambda fd: (os.ftruncate(fd, 0), os.ftruncate(fd, row + 1), os.pwrite(fd, fill(row + 1), 0)), False, row)
    with open(path, "wb", buffering=0) as f:
        f.write(fill(row + 1))
        copy = os.dup(f.fileno())
        try:
            os.close(copy)
            t.check(False, f"{path}: a copy of the descriptor is closed within a row")
        except OSError as e:
            t.equal(e.errno, errno.EINVAL, f"{path}: a copy of the descriptor")
        os.fsync(f.fileno())
        f.write(fill(row - 1))
    # Descriptors that did not write get no error for others.
    a, b = os.open(path, os.O_WRONLY | os.O_TRUNC), os.open(path, os.O_RDWR)
    os.write(a, fill(row + 1))
    os.close(b)
    os.write(a, fill(row - 1))
    os.close(a)
    t.equal(harness.read(path), fill(row + 1) + fill(row - 1), f"{path}: pieces")


def programs(t, point, folder):
    """cp, dd, rsync --inplace, tail -f."""
    whole, part, short = (os.path.join(folder, name) for name in ("whole", "part", "short"))
    for name, n in ((whole, 4096 * 3), (part, 4096 * 3 + 10), (short, 4096 + 10)):
        with open(name, "wb") as f:
            f.write(os.urandom(n))
    runs = {"cp": lambda source, to: ["cp", source, to], "cat": lambda source, to: ["sh", "-c", f"cat '{source}' >'{to}'"],
            "cp --sparse": lambda source, to: ["cp", "--sparse=always", source, to],
            "dd": lambda source, to: ["dd", f"if={source}", f"of={to}", "bs=7", "status=none"],
            "dd notrunc": lambda source, to: ["dd", f"if={source}", f"of={to}", "bs=1000", "conv=notrunc", "status=none"],
            "rsync --inplace": lambda source, to: ["rsync", "--inplace", source, to],
            "rsync --inplace --preallocate": lambda source, to: ["rsync", "--inplace", "--preallocate", "--ignore-times", source, to]}
    for dataset in ("elements", "frames"):
        to = f"{point}/{dataset}"
        for name, arguments in runs.items():
            done = subprocess.run(arguments(whole, to), capture_output=True, text=True)
            t.equal((done.returncode, harness.read(to)[:12288] == harness.read(whole)), (0, True), f"{name} of whole rows to {dataset}: {done.stderr}")
            for source in (part, short):
                if name == "dd notrunc" and source == short:
                    continue
                done = subprocess.run(arguments(source, to), capture_output=True, text=True)
                # The others write into what is there.
                is_refused = name in ("cp", "cat", "cp --sparse", "dd")
                t.check(bool(done.stderr) if is_refused and done.returncode else not is_refused and not done.returncode,
                        f"{name} of {source} to {dataset}: {done}")
                t.equal(harness.read(to)[:len(harness.read(source))], harness.read(source), f"{name} of {source} to {dataset}: the bytes")
        subprocess.run(["cp", whole, to], check=True)
        done = subprocess.run(["dd", f"if={part}", f"of={to}", "bs=6", "count=1", "conv=notrunc", "status=none"], capture_output=True)
        t.equal(done.returncode, 0, f"dd in place to {dataset}")
    for name in ("bytes",):
        for source in (whole, part, short):
            for run, arguments in runs.items():
                done = subprocess.run(arguments(source, f"{point}/{name}"), capture_output=True, text=True)
                t.equal(done.returncode, 0, f"{run} of {source} to bytes: {done.stderr}")
    t.equal(subprocess.run(["dd", f"if={short}", f"of={point}/fixed", "bs=6", "count=1", "conv=notrunc", "status=none"]).returncode, 0, "a fixed shape")
    logger(t, point)


def logger(t, point):
    """A logger writes in pieces, tail -f follows, and a new record is complete in the end."""
    path = f"{point}/elements"
    os.truncate(path, 0)
    follow = subprocess.Popen(["tail", "-c", "+1", "-f", path], stdout=subprocess.PIPE)
    closing = Closing(path, os.O_WRONLY | os.O_APPEND)
    data = bytes(range(1, 201))
    with closing as fd:
        for i in range(0, 200, 10):
            os.write(fd, data[i:i + 3])
            os.write(fd, data[i + 3:i + 10])
            if i % 50 == 0:
                time.sleep(0.02)
    t.equal(closing.closed, 0, "a logger that completes its records")
    t.equal(harness.read(path), data, "its bytes")
    # It polls once a second.
    shown, end = b"", time.time() + 20
    os.set_blocking(follow.stdout.fileno(), False)
    while len(shown) < len(data) and time.time() < end:
        shown += follow.stdout.read() or b""
        time.sleep(0.05)
    follow.terminate()
    follow.wait()
    t.equal(shown[-10:], data[-10:], "tail -f")


def facts(t, point):
    """Facts that change the shape of an open file are no error of its writes."""
    path = f"{point}/reshaped"
    fd = os.open(path, os.O_RDWR | os.O_CREAT)
    os.write(fd, bytes(80))
    os.setxattr(path, "user.h5dir.dataset", b'{"dtype":"<i4","shape":[4,5],"maxshape":[null,null],"chunks":[2,5]}')
    os.setxattr(path, "user.h5dir.shape", b"[4,7]")
    os.close(fd)
    t.equal(os.stat(path).st_size, 112, "a new extent")
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.write(fd, bytes(28))
    os.setxattr(path, "user.h5dir.shape", b"[5,5]")
    os.close(fd)


def main():
    options, t = harness.arguments(__doc__.splitlines()[0]), harness.Tally()
    with harness.folder(options.keep) as folder:
        for target in (os.path.join(folder, "f.h5"), "iod:" + os.path.join(folder, "container")):
            subprocess.run([options.bin, "create", target], check=True)
            with harness.mounted(options.bin, target, "--read-write") as point:
                make(point)
                for name, (row, _) in ROWS.items():
                    one_dataset(t, f"{point}/{name}", row)
                programs(t, point, folder)
                facts(t, point)
                shown = {name: harness.read(f"{point}/{name}") for name in ROWS}
            if not target.startswith("iod:"):
                with h5py.File(target) as f:
                    for name, want in shown.items():
                        t.equal(f[name][()].tobytes(), want, f"h5py reads {name}")
    t.finish()


if __name__ == "__main__":
    main()
