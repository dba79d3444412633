"""An interrupted cp -r into a container or an HDF5 file is resumed: h5dir diff, inode numbers, attributes."""
import os
import signal
import subprocess
import time

import h5py
import numpy as np

import harness


def run(options, *arguments):
    return subprocess.run([options.bin, *arguments], capture_output=True, text=True, timeout=120)


def inodes(mount):
    return {os.path.relpath(os.path.join(folder, name), mount): os.stat(os.path.join(folder, name)).st_ino
            for folder, _, names in os.walk(mount) for name in names}


def resume(options, tally, folder):
    """A copy that is interrupted is resumed: what it completed is not copied again."""
    rng = np.random.default_rng(options.seed)
    source = os.path.join(folder, "many.h5")
    with h5py.File(source, "w") as f:
        for g in range(4):
            for i in range(400):
                f.create_dataset(f"g{g}/d{i}", data=rng.integers(0, 99, 5)).attrs["unit"] = "m"
        f["first"] = f["g0/d0"]
        f.create_dataset("refs", data=[f["g3/d399"].ref], dtype=h5py.ref_dtype)
    for kind in ("iod", "h5"):
        target = ("iod:" if kind == "iod" else "") + os.path.join(folder, "resumed." + kind)
        tally.equal(run(options, "create", target).returncode, 0, "create")
        names = []
        for wait in (0.1, 0.15, 0.2, 0.3, 0.5, 0.8):
            copy = subprocess.Popen([options.bin, "cp", "-r", source + ":/", target + ":/"], stderr=subprocess.PIPE)
            time.sleep(wait)
            copy.send_signal(signal.SIGINT)
            said = copy.communicate(timeout=60)[1]
            names = run(options, "ls", target + ":/").stdout.split()
            if copy.returncode == 0 or names:
                break
        tally.check(copy.returncode != 0 and "refs" not in names, f"{kind}: the copy was interrupted: {names}")
        tally.check(b"the same command copies the rest" in said, f"{kind}: {said}")
        with harness.mounted(options.bin, target) as mount:
            tally.check("user.h5dir-copy" in os.listxattr(mount), f"{kind}: the copy is noted")
            before = inodes(mount)
        done = run(options, "cp", "-r", source + ":/", target + ":/")
        tally.equal((done.returncode, done.stderr), (0, ""), f"{kind}: the copy is resumed")
        done = run(options, "diff", "-r", source + ":/", target + ":/")
        tally.equal((done.returncode, done.stdout), (0, ""), f"{kind}: diff of the copy")
        with harness.mounted(options.bin, target, "--read-write") as mount:
            after = inodes(mount)
            tally.check(before and all(after[name] == ino for name, ino in before.items()), f"{kind}: {len(before)} datasets were copied again")
            tally.check("user.h5dir-copy" not in os.listxattr(mount), f"{kind}: the note is removed")
            tally.equal(os.stat(os.path.join(mount, "first")).st_ino, os.stat(os.path.join(mount, "g0/d0")).st_ino, f"{kind}: hard link")
            with open(os.path.join(mount, "g0/d1"), "r+b") as f:
                f.write(bytes(40))
        os.utime(source)
        done = run(options, "cp", "-r", source + ":/", target + ":/")
        tally.equal((done.returncode, run(options, "diff", "-r", source + ":/", target + ":/").returncode), (0, 0), f"{kind}: a complete copy is overwritten")


def main():
    options, tally = harness.arguments(__doc__), harness.Tally()
    with harness.folder(options.keep) as folder:
        resume(options, tally, folder)
    tally.finish()


if __name__ == "__main__":
    main()
