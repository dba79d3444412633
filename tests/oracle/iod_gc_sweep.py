"""Garbage collection of containers in a folder: random histories of several mounts, killed ones, pins, versions, sizes."""
import contextlib
import errno
import os
import re
import signal
import subprocess
import time

import numpy as np

import harness
from iod_sweep import create, daemon_of, records, run, write

ROUNDS = 40 if os.environ.get("H5DIR_LONG") else 4
PIN = "--pin=2"
QUIET = "--commit-interval=1000"


def objects(container):
    """Files of the container by their first name: count, and bytes."""
    found = {}
    top = container.removeprefix("iod:")
    for folder, _, names in os.walk(top):
        kind = os.path.relpath(folder, top).split("/")[0]
        count, size = found.get(kind, (0, 0))
        found[kind] = (count + len(names), size + sum(os.path.getsize(os.path.join(folder, n)) for n in names))
    return found


def collect(options, tally, container, keep, *more):
    done = run(options, "iod", "gc", "--grace=0", f"--keep-versions={keep}", *more, container)
    tally.check(done.returncode == 0, f"gc: {done.stderr[-300:]}")
    kept = re.search(r"versions (\d+) to (\d+) are kept", done.stdout)
    tally.check(kept is not None, f"gc: {done.stdout}")
    return int(kept[1]) if kept else 1


def compare(tally, point, model, what):
    """The files of a mount are those of the model."""
    names = {name for name in os.listdir(point) if name != ".h5dir"}
    tally.equal(names, set(model), f"{what}: names")
    for name in sorted(names & set(model)):
        got = np.frombuffer(harness.read(os.path.join(point, name)), np.uint8)
        tally.check(np.array_equal(got, model[name]), f"{what}: {name}")


class Mounts:
    """Writers of one container, each in files of its own."""

    def __init__(self, options, container, folder):
        self.options, self.container, self.folder = options, container, folder
        self.points, self.number = [], 0

    def add(self):
        self.number += 1
        point = os.path.join(self.folder, f"w{self.number}")
        os.makedirs(point)
        subprocess.run([self.options.bin, "mount", "--read-write", QUIET, PIN, self.container, point], check=True, timeout=60)
        self.points.append(point)

    def end(self, point, kill):
        self.points.remove(point)
        if kill:
            # A pack of the killed writer: bytes that no version has.
            with open(os.path.join(point, "lost"), "wb") as f:
                f.write(os.urandom(100000))
            for pid in list(daemon_of(point)):
                os.kill(pid, signal.SIGKILL)
            subprocess.run(["umount", "-l", point], capture_output=True)
        else:
            run(self.options, "umount", point)

    def close(self):
        for point in list(self.points):
            self.end(point, False)


def history(options, tally, folder):
    """Random commits of several mounts, kills, and runs in between: kept versions read as their models."""
    rng = np.random.default_rng(options.seed)
    container = create(options, os.path.join(folder, "history"))
    mounts, model, models = Mounts(options, container, folder), {}, {}
    with contextlib.closing(mounts):
        for number in range(ROUNDS):
            while len(mounts.points) < 2:
                mounts.add()
            for _ in range(12):
                point = mounts.points[int(rng.integers(0, len(mounts.points)))]
                name = f"{os.path.basename(point)}-{int(rng.integers(0, 3))}"
                at, data = int(rng.integers(0, 1 << 20)), np.frombuffer(rng.bytes(int(rng.integers(1, 300000))), np.uint8)
                old = model.get(name, np.zeros(0, np.uint8))
                new = np.zeros(max(len(old), at + len(data)), np.uint8)
                new[:len(old)] = old
                new[at:at + len(data)] = data
                write(os.path.join(point, name), data.tobytes(), at)
                model[name] = new
                models[int(records(container)[-1], 16)] = dict(model)
            mounts.end(mounts.points[0], number % 2 == 0)
            floor = collect(options, tally, container, int(rng.integers(1, 15)))
            kept = [version for version in models if version >= floor]
            for version in rng.choice(kept, min(2, len(kept)), replace=False) if kept else []:
                with harness.mounted(options.bin, container, f"--version={version}") as point:
                    compare(tally, point, models[version], f"version {version}, round {number}")
    # Pins of killed mounts are over then.
    time.sleep(2.2)
    for _ in range(4):
        collect(options, tally, container, 1)
    with harness.mounted(options.bin, container) as point:
        compare(tally, point, model, "the end")
    left = objects(container)
    tally.check(left.get("p", (0, 0))[0] == 0, f"pins are left: {left}")
    tally.check(left["v"][0] <= 6 and left["c"][0] <= 2 and left["g"][0] == 1, f"objects are left: {left}")
    live = sum(len(data) for data in model.values())
    tally.check(left["d"][1] <= 2 * live + (1 << 20), f"{left['d'][1]} bytes of packs for {live}")


def readers(options, tally, folder):
    """A pinned mount keeps what it shows; another one gets EIO, and its log says why."""
    container = create(options, os.path.join(folder, "readers"))
    first = os.urandom(3 << 20)
    log = os.path.join(folder, "reader.log")
    with harness.mounted(options.bin, container, "--read-write", QUIET) as mount:
        write(os.path.join(mount, "f"), first)
    with harness.mounted(options.bin, container, "--pin=60") as pinned:
        with harness.mounted(options.bin, container, "--read-write", QUIET) as mount:
            write(os.path.join(mount, "f"), os.urandom(3 << 20))
        before = objects(container)
        collect(options, tally, container, 1, "--dry-run")
        tally.equal(objects(container), before, "a dry run changes nothing")
        collect(options, tally, container, 1)
        tally.equal(harness.read(os.path.join(pinned, "f")), first, "what a pinned mount shows")
    last = int(records(container)[-1], 16)
    log_of = run(options, "iod", "log", container)
    want = sorted((int(name, 16) for name in records(container)), reverse=True)
    tally.equal([int(line.split()[0]) for line in log_of.stdout.splitlines()], want, "iod log")
    with harness.mounted(options.bin, container, f"--log-file={log}") as loose:
        names = os.listdir(loose)
        with harness.mounted(options.bin, container, "--read-write", QUIET) as mount:
            write(os.path.join(mount, "f"), os.urandom(3 << 20))
        for _ in range(3):
            collect(options, tally, container, 1)
        try:
            harness.read(os.path.join(loose, "f"))
            tally.check(False, "a version that was collected is read")
        except OSError as e:
            tally.equal(e.errno, errno.EIO, "a version that was collected")
    tally.check("f" in names and "garbage collection" in harness.read(log).decode(), "the log says why")
    done = run(options, "iod", "dump", f"--version={last}", container)
    tally.check(done.returncode != 0 and f"no version {last}" in done.stderr, f"a version that was collected: {done.stderr}")


def main():
    options, tally = harness.arguments(__doc__), harness.Tally()
    with harness.folder(options.keep) as folder:
        for part in (history, readers):
            part(options, tally, folder)
    tally.finish()


if __name__ == "__main__":
    main()
