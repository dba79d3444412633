"""What the sweeps share: a mount of the built command, counting of checks, the command line."""
import argparse
import contextlib
import os
import re
import subprocess
import sys
import tempfile
import time

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def arguments(description):
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--bin", type=os.path.abspath, default=os.path.join(TOP, "target", "release", "h5dir"))
    parser.add_argument("--seed", type=int, default=20260101)
    parser.add_argument("--keep", help="write the files into this folder and keep them")
    return parser.parse_args()


class Tally:
    """Counts checks; the first failures are printed."""

    def __init__(self):
        self.passed = self.failed = 0
        self.began = time.time()

    def check(self, right, what):
        if right:
            self.passed += 1
            return
        self.failed += 1
        if self.failed <= 40:
            print("FAILED", what, flush=True)

    def equal(self, got, want, what):
        if got == want:
            self.passed += 1
            return
        if isinstance(want, bytes):
            at = next((i for i, (a, b) in enumerate(zip(got, want)) if a != b), min(len(got), len(want)))
            got, want = f"{len(got)} bytes, byte {at} {got[at:at + 16].hex()}", f"{len(want)} bytes, {want[at:at + 16].hex()}"
        self.check(False, f"{what}: {got!r}, not {want!r}"[:600])

    def finish(self):
        print(f"{time.time() - self.began:.1f} s")
        print(f"{self.passed} passed, {self.failed} failed")
        sys.exit(1 if self.failed or not self.passed else 0)


@contextlib.contextmanager
def folder(keep):
    if keep:
        os.makedirs(keep, exist_ok=True)
        yield keep
    else:
        with tempfile.TemporaryDirectory(prefix="h5dir-oracle-") as path:
            yield path


@contextlib.contextmanager
def mounted(binary, file, *options):
    """Mounts `file`; gives the mountpoint."""
    with tempfile.TemporaryDirectory(prefix="h5dir-mount-") as point:
        subprocess.run([binary, "mount", *options, file, point], check=True, stdin=subprocess.DEVNULL, timeout=60)
        try:
            yield point
        finally:
            # A lazy unmount does not wait until the file is written and unlocked.
            if subprocess.run([binary, "umount", point], stdin=subprocess.DEVNULL, timeout=60).returncode != 0:
                subprocess.run([binary, "umount", "--lazy", point], check=True, stdin=subprocess.DEVNULL, timeout=60)


def foreground(binary, file, point, *options):
    """Starts a daemon of `file` that can be killed; returns it when it is mounted at `point`."""
    daemon = subprocess.Popen([binary, "mount", "-f", *options, file, point], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                              stderr=subprocess.DEVNULL)
    while not os.path.ismount(point):
        time.sleep(0.02)
        assert daemon.poll() is None, "the daemon ended"
    return daemon


def released(mount):
    """Waits until no file is open for the daemon of `mount`: it hears of a close after the program that closed."""
    end = time.monotonic() + 10
    while not re.search(rb"^open_files 0$", read(f"{mount}/.h5dir/status"), re.M):
        assert time.monotonic() < end, "descriptors stay open"
        time.sleep(0.1)


def peak_memory(mount):
    """Most memory of the daemon of `mount` so far, MiB."""
    daemons = subprocess.run(["pgrep", "-f", mount], check=True, stdout=subprocess.PIPE).stdout.split()
    status = [line for pid in daemons for line in read(f"/proc/{pid.decode()}/status").splitlines()]
    return max(int(line.split()[1]) for line in status if line.startswith(b"VmHWM")) >> 10


def read(path):
    with open(path, "rb") as f:
        return f.read()


def fact(path, name):
    return os.getxattr(path, "user.h5dir." + name).decode()
