"""Logs of the released log VOL that decode to far more than they hold take bounded memory.

  log_memory.py H5DIR DIRECTORY [CASE]

DIRECTORY has an empty folder "mnt". The caller unmounts it after a failure. There is one case.
"""

import os
import struct
import subprocess
import sys
import zlib

from log_files import MULTIPLE, Writer, entry, longs, selection

H5DIR, DIRECTORY = sys.argv[1:3]
MNT, MIB = os.path.join(DIRECTORY, "mnt"), 1 << 20
# The cache, 128 MiB, and what the program itself takes.
CACHE, MOST = 64, 64 + 128 + 48
# Bytes that a deflated entry decodes to, and entries.
INFLATED, ENTRIES = 256 * MIB, 6
LINE, PLANE = (1 << 40,), (2000, 2000)


def place(block, dims):
    return selection([block], len(dims), dims, "canonical")


def log(name, dims, piece, entries):
    """A log with the bytes `piece`; `entries(dataset, offset)` refer to it."""
    path = os.path.join(DIRECTORY, name)
    writer = Writer(path)
    dataset = writer.dataset("d", "u1", dims)
    (offset,) = writer.flush([piece])
    writer.describe([entries(dataset, offset)])
    writer.close()
    return path


def deflated(dataset, offset):
    return b"".join(entry(dataset, 2, offset, len(ZEROS), place(((n << 31,), (INFLATED,)), LINE)[1]) for n in range(ENTRIES))


def single(dataset, offset):
    """Many entries of one element."""
    return b"".join(entry(dataset, 0, offset, 1, place(((n * 7,), (1,)), LINE)[1]) for n in range(100_000))


def claimed(dataset, offset):
    """An entry that claims 2^31 blocks."""
    return entry(dataset, MULTIPLE, offset, 100, struct.pack("<i", 0x7FFFFFFF) + longs([1] * 20))


def blocks(dataset, offset):
    """An entry of many blocks."""
    count = 300_000
    return entry(dataset, MULTIPLE, offset, count, struct.pack("<i", count) + longs([n * 3 for n in range(count)] + [1] * count))


def overlapping(dataset, offset):
    """Many entries, each over others."""
    return b"".join(entry(dataset, 0, offset, 1000, place(((n % 1000, (n * 37) % 1000), (1, 1000)), PLANE)[1]) for n in range(60_000))


ZEROS = zlib.compress(bytes(INFLATED), 9)
CASES = [
    ("deflated", LINE, ZEROS, deflated, [n << 31 for n in range(ENTRIES)]),
    ("single", LINE, b"x" * 16, single, [0, 7 * 50_000, 1 << 39]),
    ("claimed", LINE, b"x" * 200, claimed, [0]),
    ("blocks", LINE, b"x" * 300_000, blocks, [0, 450_000]),
    ("overlapping", PLANE, b"x" * 1000, overlapping, [0, 2_000_000]),
]


def peak(pid):
    with open(f"/proc/{pid}/status") as f:
        return int(next(line for line in f if line.startswith("VmHWM")).split()[1]) // 1024


def main():
    for name, dims, piece, entries, offsets in CASES:
        path = log(f"{name}.h5", dims, piece, entries)
        mount = subprocess.Popen([H5DIR, "mount", "--foreground", f"--cache-size={CACHE}M", path, MNT])
        while not os.path.ismount(MNT):
            assert mount.poll() is None
        dataset = os.path.join(MNT, "d")
        readers = [subprocess.Popen(["dd", f"if={dataset}", "of=/dev/null", "bs=1M", "count=1", "iflag=skip_bytes", f"skip={at}", "status=none"],
                                    stderr=subprocess.DEVNULL) for at in offsets]
        codes = [reader.wait(300) for reader in readers]
        # An entry whose claims are false supplies nothing, or its bytes are EIO.
        assert name == "claimed" or codes == [0] * len(codes), (name, codes)
        used = peak(mount.pid)
        print(name, used, "MiB")
        assert used <= MOST, f"{name}: {used} MiB, {MOST} allowed"
        subprocess.run([H5DIR, "umount", MNT], check=True)
        assert mount.wait(60) == 0
        checked = subprocess.run([sys.executable, "-c", CHECK, H5DIR, "check", "--data", path], capture_output=True, text=True, timeout=300)
        used = int(checked.stdout.splitlines()[-1])
        print(name, "check", used, "MiB")
        assert used <= MOST, f"check of {name}: {used} MiB, {MOST} allowed"


CHECK = """
import resource, subprocess, sys
subprocess.run(sys.argv[1:])
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss >> 10)
"""

main()
