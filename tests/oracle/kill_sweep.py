"""kill -9 of a mounted daemon under load, again and again; stock h5py finds all that fsync acknowledged.

Each round mounts a file read-write, appends records to a dataset, creates files and sets attributes, each with
fsync, kills the daemon at a random moment, and looks at the file: as it is, or, if libhdf5 refuses it, after
`h5dir recover`.
"""
import os
import random
import signal
import subprocess
import tempfile
import threading
import time

import h5py
import numpy as np

import harness

ROUNDS = int(os.environ.get("H5DIR_KILL_ROUNDS", "200"))
RECORD = 512


def record(i):
    return (b"%08d" % i) * (RECORD // 8)


class Load(threading.Thread):
    """Works in the mount until it breaks; `acknowledged` tells what fsync returned for."""

    def __init__(self, point):
        super().__init__(daemon=True)
        self.point = point
        self.records = self.files = self.attributes = 0
        self.unexpected = None

    def run(self):
        try:
            with open(f"{self.point}/log", "ab", buffering=0) as log:
                for i in range(1 << 30):
                    log.write(record(i))
                    os.fsync(log.fileno())
                    self.records = i + 1
                    if i % 3 == 0:
                        path = f"{self.point}/g/part{i}"
                        with open(path, "wb", buffering=0) as f:
                            f.write(record(i) * 5)
                            os.fsync(f.fileno())
                        self.files = i + 1
                    if i % 5 == 0:
                        os.setxattr(f"{self.point}/data", "user.count", str(i).encode())
                        d = os.open(f"{self.point}/data", os.O_RDWR)
                        os.pwrite(d, np.float64(i).tobytes(), 8 * (i % 1000))
                        os.fsync(d)
                        os.close(d)
                        self.attributes = i + 1
        except OSError as e:
            # The daemon is gone.
            if e.errno not in (107, 103, 5, 2):
                self.unexpected = e


def base(path, libver):
    with h5py.File(path, "w", libver=(libver, "v110")) as f:
        f.create_dataset("log", (0,), "u1", maxshape=(None,), chunks=(4096,))
        f.create_dataset("data", data=np.zeros(1000), chunks=(100,), compression="gzip")
        f.create_group("g")
        f["data"].attrs["count"] = np.bytes_("0" * 12)


def check(t, path, load, label):
    with h5py.File(path, "r") as f:
        log = f["log"][...].tobytes()
        t.check(len(log) % RECORD == 0 or len(log) >= load.records * RECORD, f"{label}: whole records")
        t.check(len(log) >= load.records * RECORD, f"{label}: {len(log)} bytes of log, {load.records} records acknowledged")
        whole = len(log) // RECORD
        want = b"".join(record(i) for i in range(whole))
        t.check(log[: whole * RECORD] == want, f"{label}: the log's bytes")
        for i in range(0, load.files, 3):
            t.check(f"g/part{i}" in f and f[f"g/part{i}"][...].tobytes() == record(i) * 5, f"{label}: part{i}")
        if load.attributes:
            i = (load.attributes - 1) // 5 * 5
            t.check(int(f["data"].attrs["count"]) >= i, f"{label}: attribute {f['data'].attrs['count']}, {i} acknowledged")
            t.check(f["data"][i % 1000] >= i, f"{label}: element {i}")


def one_round(t, binary, place, number, rnd):
    path = os.path.join(place, "f.h5")
    libver = rnd.choice(["earliest", "v108", "v110"])
    base(path, libver)
    label = f"round {number}, {libver}"
    with tempfile.TemporaryDirectory(prefix="h5dir-kill-") as point:
        daemon = subprocess.Popen([binary, "mount", "-f", "--read-write", "--commit-interval=1", path, point], stdin=subprocess.DEVNULL)
        device = os.stat(place).st_dev
        end = time.monotonic() + 30
        while os.stat(point).st_dev == device and time.monotonic() < end:
            time.sleep(0.002)
        load = Load(point)
        load.start()
        time.sleep(rnd.uniform(0.01, 0.25))
        daemon.send_signal(signal.SIGKILL)
        daemon.wait()
        subprocess.run(["umount", "-l", point], check=False, stderr=subprocess.DEVNULL)
        load.join(30)
    t.check(load.unexpected is None, f"{label}: {load.unexpected}")
    direct = True
    try:
        h5py.File(path, "r").close()
    except OSError:
        direct = False
        done = subprocess.run([binary, "recover", path], capture_output=True, text=True)
        t.check(done.returncode == 0, f"{label}: recover: {done.stderr}")
    try:
        check(t, path, load, label)
    except Exception as e:  # noqa: BLE001 - whatever h5py says is a failure of this round
        t.check(False, f"{label}: {e!r}")
    # The next mount works, whatever was left.
    with harness.mounted(binary, path, "--read-write") as point:
        t.check(os.path.exists(f"{point}/log"), f"{label}: the next mount")
    left = sorted(set(os.listdir(place)) - {"f.h5"})
    t.equal(left, [], f"{label}: files left")
    os.unlink(path)
    return direct, load.records


def main():
    options = harness.arguments(__doc__)
    t = harness.Tally()
    rnd = random.Random(options.seed)
    direct = records = 0
    with harness.folder(options.keep) as place:
        for number in range(ROUNDS):
            opened, done = one_round(t, options.bin, place, number, rnd)
            direct += opened
            records += done
    t.check(records > ROUNDS, "the rounds did some work")
    print(f"{ROUNDS} kills, {records} records acknowledged; stock libhdf5 opened {direct} files as they were")
    t.finish()


if __name__ == "__main__":
    main()
