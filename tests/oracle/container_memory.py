"""Long strings and large chunks of a container take bounded memory, however many programs read them, and written.

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
# Bytes of a chunk that is written.
WRITTEN = 300 * MIB
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
    written()


def written():
    """Chunks that are too large for memory are written through the mount, then changed."""
    bytes_of = np.arange(WRITTEN, dtype="u4").astype("u1")
    with h5py.File(FILE, "w") as f:
        for name, options in [("plain", {}), ("deflated", {"compression": "gzip", "compression_opts": 1})]:
            f.create_dataset(name, (WRITTEN,), "u1", chunks=(WRITTEN,), **options)[...] = bytes_of
    source, copies = os.path.join(DIRECTORY, "source"), "iod:" + os.path.join(DIRECTORY, "copies")
    os.mkdir(source)
    run(H5DIR, "create", copies)
    run(H5DIR, "mount", FILE, source)
    try:
        mount = subprocess.Popen([H5DIR, "mount", "--foreground", f"--cache-size={CACHE}M", "--read-write", copies, MNT])
        while not os.path.ismount(MNT):
            assert mount.poll() is None
        for name in ["plain", "deflated"]:
            run("cp", "-a", os.path.join(source, name), MNT)
            with open(os.path.join(MNT, name), "r+b", buffering=0) as f:
                for at in [0, WRITTEN // 2, WRITTEN - 7]:
                    os.pwrite(f.fileno(), b"changed", at)
                os.fsync(f.fileno())
            used = peak(mount.pid)
            print("written", name, used, "MiB")
            assert used <= MOST, f"{name}: {used} MiB, {MOST} allowed"
    finally:
        run(H5DIR, "umount", source)
    run(H5DIR, "umount", MNT)
    assert mount.wait(60) == 0
    run(H5DIR, "check", "--data", copies)
    os.remove(FILE)
    run(H5DIR, "cp", "-r", f"{copies}:/", FILE)
    for at in [0, WRITTEN // 2, WRITTEN - 7]:
        bytes_of[at : at + 7] = np.frombuffer(b"changed", "u1")
    with h5py.File(FILE) as f:
        for name in ["plain", "deflated"]:
            assert f[name].chunks == (WRITTEN,) and (f[name][...] == bytes_of).all(), name


main()
