"""Long strings and large deflated chunks of a container take bounded memory, however many programs read them.

  container_memory.py H5DIR DIRECTORY [CASE]

DIRECTORY has an empty folder "mnt". The caller unmounts it after a failure. There is one case.
"""

import os
import subprocess
import sys

import h5py
import numpy as np

H5DIR, DIRECTORY = sys.argv[1:3]
MNT, FILE = os.path.join(DIRECTORY, "mnt"), os.path.join(DIRECTORY, "f.h5")
CONTAINER = "iod:" + os.path.join(DIRECTORY, "container")
MIB = 1 << 20
# Bytes of a string, and of a chunk.
LONG = 50 * MIB
STRINGS, CHUNKS, READERS = 2, 8, 16
# The cache, 128 MiB, and what the program itself takes.
CACHE, MOST = 64, 64 + 128 + 48


def run(*command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{command}: exit {done.returncode}\n{done.stdout}{done.stderr}")


def peak(pid):
    with open(f"/proc/{pid}/status") as f:
        return int(next(line for line in f if line.startswith("VmHWM")).split()[1]) // 1024


def read(name, size):
    """Many programs read a MiB each, far from each other; those with an odd number do so twice."""
    started = []
    for n in range(READERS):
        at = size // READERS * n
        code = "import os, sys; f = os.open(sys.argv[1], os.O_RDONLY)\nfor _ in range(int(sys.argv[3])):"
        script = code + " assert len(os.pread(f, 1 << 20, int(sys.argv[2]))) == 1 << 20"
        started.append(subprocess.Popen([sys.executable, "-c", script, os.path.join(MNT, name), str(at), str(1 + n % 2)]))
    for process in started:
        assert process.wait(300) == 0, name


def main():
    with h5py.File(FILE, "w") as f:
        strings = f.create_dataset("strings", (STRINGS,), h5py.string_dtype())
        for n in range(STRINGS):
            strings[n] = chr(97 + n) * LONG
        f.create_dataset("zeros", (CHUNKS, LONG), "u1", chunks=(1, LONG), compression="gzip", compression_opts=1)[...] = 0
    run(H5DIR, "create", CONTAINER)
    run(H5DIR, "cp", "-r", f"{FILE}:/strings", f"{FILE}:/zeros", f"{CONTAINER}:/")
    for options in [[], ["--read-write"]]:
        mount = subprocess.Popen([H5DIR, "mount", "--foreground", f"--cache-size={CACHE}M", *options, CONTAINER, MNT])
        while not os.path.ismount(MNT):
            assert mount.poll() is None
        for name, size in [("strings", STRINGS * (LONG + 1)), ("zeros", CHUNKS * LONG)]:
            assert os.stat(os.path.join(MNT, name)).st_size == size
            read(name, size)
            used = peak(mount.pid)
            print(options, name, used, "MiB")
            assert used <= MOST, f"{name}: {used} MiB, {MOST} allowed"
        run(H5DIR, "umount", MNT)
        assert mount.wait(60) == 0


main()
