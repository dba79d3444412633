"""The file of a container whose content is replaced again and again: it stops growing.

    everyday_growth.py H5DIR FOLDER

Each pattern runs 100 rounds in a new HDF5 file: with one mount a round, with one fsync a round, and with mounts that are killed
after a fsync. The file may not grow any more after the first rounds. Unmounted, it may have little more than the last state and the
one before it, which is free until the commit.
"""
import ctypes
import os
import random
import shutil
import signal
import subprocess
import sys
import time

H5DIR, FOLDER = sys.argv[1:3]
ROUNDS, KILLED_ROUNDS = 100, int(os.environ.get("H5DIR_KILLED_ROUNDS", "30"))
FILE, MOUNT = os.path.join(FOLDER, "growth.h5"), os.path.join(FOLDER, "growth")
COPY = os.path.join(FOLDER, "growth-copy.h5")
RANDOM = random.Random(7)
LIBC = ctypes.CDLL(None, use_errno=True)
LIBC.fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_longlong, ctypes.c_longlong]
PUNCH = 3


def write(path, data):
    with open(path, "wb", 0) as f:
        f.write(data)


def small_files(mnt, _):
    """Many small files, removed and written again."""
    shutil.rmtree(mnt + "/many", ignore_errors=True)
    os.mkdir(mnt + "/many")
    for i in range(60):
        write(f"{mnt}/many/{i}", b"%d\n" % i)


def files_of_other_sizes(mnt, _):
    """Files whose length is another one each time."""
    for i in range(30):
        write(f"{mnt}/{i}", RANDOM.randbytes(RANDOM.randint(1, 900)))


def chunks(mnt, _):
    """A dataset whose chunks are overwritten."""
    with open(mnt + "/chunks", "wb" if not os.path.exists(mnt + "/chunks") else "r+b", 0) as f:
        f.write(RANDOM.randbytes(300_000))


def attributes(mnt, _):
    """Attributes of other lengths."""
    os.makedirs(mnt + "/group", exist_ok=True)
    for i in range(12):
        os.setxattr(mnt + "/group", f"user.a{i}", b"x" * RANDOM.choice([3, 60, 300]))


def renames_over(mnt, _):
    """Files that are replaced by a rename."""
    for i in range(15):
        write(mnt + "/.new", RANDOM.randbytes(RANDOM.randint(1, 3000)))
        os.rename(mnt + "/.new", f"{mnt}/{i}")


def logged(mnt, _):
    """A dataset in the log that is overwritten."""
    path = mnt + "/logged"
    if not os.path.exists(path):
        write(path, b"")
        os.setxattr(path, "user.h5dir.dataset", b'{"dtype": "u1", "shape": [0], "maxshape": [null], "layout": "log"}')
    with open(path, "r+b", 0) as f:
        f.write(RANDOM.randbytes(300_000))


def sparse(mnt, number):
    """A sparse dataset, half of which is punched and written again."""
    path = mnt + "/sparse"
    if not os.path.exists(path):
        write(path, b"")
        os.setxattr(path, "user.h5dir.dataset", b'{"dtype": "u1", "shape": [0], "maxshape": [null], "layout": "sparse", "chunks": [4096]}')
    with open(path, "r+b", 0) as f:
        f.seek(100_000 * (number % 2))
        f.write(RANDOM.randbytes(100_000))
        LIBC.fallocate(f.fileno(), PUNCH, 100_000 * (1 - number % 2), 100_000)


def links(mnt, number):
    """Symbolic links whose texts are kept beside them, made and removed."""
    os.makedirs(mnt + "/links", exist_ok=True)
    for i in range(40):
        path = f"{mnt}/links/{i}"
        if os.path.islink(path):
            os.unlink(path)
        os.symlink(f"../target{number % 7}/{i}", path)


PATTERNS = (small_files, files_of_other_sizes, chunks, attributes, renames_over, logged, sparse, links)


def sync(mnt):
    fd = os.open(mnt, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def mount():
    subprocess.check_call([H5DIR, "mount", "--read-write", "--commit-interval", "0", FILE, MOUNT])


def unmount():
    subprocess.check_call([H5DIR, "umount", MOUNT])


def killed(pattern, number):
    """One round of a mount that is killed after a fsync."""
    command = [H5DIR, "mount", "--foreground", "--read-write", "--commit-interval", "0", FILE, MOUNT]
    daemon = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    try:
        while not os.path.ismount(MOUNT):
            assert daemon.poll() is None, "the mount ended"
            time.sleep(0.01)
        pattern(MOUNT, number)
        sync(MOUNT)
    finally:
        daemon.send_signal(signal.SIGKILL)
        daemon.wait()
        subprocess.check_call(["umount", "--lazy", MOUNT])
    subprocess.check_call([H5DIR, "recover", FILE], stdout=subprocess.DEVNULL)


def mounted(pattern, number):
    """One round of a mount."""
    mount()
    pattern(MOUNT, number)
    unmount()


def synced(pattern, number):
    """One round that ends with a fsync."""
    if number == 0:
        mount()
    pattern(MOUNT, number)
    sync(MOUNT)


def sizes(pattern, one_round):
    """Length of the file after each round, and of a copy without free space."""
    subprocess.check_call([H5DIR, "create", FILE])
    lengths = []
    try:
        for number in range(ROUNDS if one_round is not killed else KILLED_ROUNDS):
            one_round(pattern, number)
            lengths.append(os.path.getsize(FILE))
    finally:
        if os.path.ismount(MOUNT):
            unmount()
    subprocess.check_call([H5DIR, "check", FILE], stdout=subprocess.DEVNULL)
    subprocess.check_call([H5DIR, "create", COPY])
    subprocess.check_call([H5DIR, "cp", "-r", FILE + ":/", COPY + ":/"])
    live = os.path.getsize(COPY)
    os.unlink(FILE)
    os.unlink(COPY)
    return lengths, live


def main():
    os.makedirs(MOUNT, exist_ok=True)
    grown = []
    for pattern in PATTERNS:
        # A log is compacted when the mount is idle or ends.
        for one_round in (mounted,) if pattern is logged else (mounted, synced, killed):
            lengths, live = sizes(pattern, one_round)
            # The second half may not be longer than the first, but for states of other sizes.
            first, second = max(lengths[: len(lengths) // 2]), max(lengths[len(lengths) // 2 :])
            what = f"{pattern.__name__}, {one_round.__name__}: {first} bytes, then {second}; a copy has {live}"
            print(what)
            # While it is mounted, the file grows by at least 64 KiB at a time.
            room = 128 << 10 if one_round is synced else 0
            if second > first * 1.15 + room or one_round is not synced and second > 2.2 * live + (128 << 10):
                grown.append(what)
    os.rmdir(MOUNT)
    if grown:
        sys.exit("the file grows:\n" + "\n".join(grown))
    print(f"{ROUNDS} rounds of {len(PATTERNS)} patterns")


main()
