#!/usr/bin/env python3
"""Runs the lines of README's gallery on a mounted directory of HDF5 files, and draws its picture again.

    gallery_sweep.py [--bin H5DIR] [--keep FOLDER]
"""
import os
import re
import subprocess
import sys

import h5py
import numpy as np

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from harness import TOP, Tally, arguments, folder, mounted, read

# What a line prints, as far as it is known.
PRINTS = {
    "find ": "run1.h5/temperature",
    "cmp ": "",
    "grep -h": "warning: too warm",
    "getfattr -n": "kelvin",
    "od ": "10 11",
    "dd ": "4096",
    "cp /mnt/lab/run1.h5/.h5dir/images": "PNG image data, 32 x 32, 16-bit grayscale",
    "grep -m1": "dims",
    'python3 -c "import zarr': "(8, 32, 32)",
    'python3 -c "import polars': "4950",
}


def make(path, number):
    with h5py.File(path, "w") as f:
        f["temperature"] = np.linspace(270, 300, 1000) + number
        f["temperature"].attrs["units"] = "kelvin"
        f["mask"] = np.arange(100, dtype="<i4")
        f.create_dataset("frames", data=np.zeros((8, 32, 32), "<u2"), chunks=(1, 32, 32), compression="gzip")
        f.create_dataset("log", data=["begun", "warning: too warm", "ended"], dtype=h5py.string_dtype(), maxshape=(None,), chunks=(16,))
        setup = f.create_group("setup")
        setup["gain"] = 2.5
        setup.attrs["operator"] = "someone"


def lines():
    with open(os.path.join(TOP, "README.md")) as f:
        gallery = re.search(r"## Gallery\n.*?```sh\n(.*?)```", f.read(), re.S).group(1)
    return [line for line in gallery.splitlines() if line.strip()]


def main():
    args = arguments(__doc__)
    tally = Tally()
    with folder(args.keep) as place:
        top = os.path.join(place, "lab")
        os.mkdir(top)
        for number in (1, 2):
            make(os.path.join(top, f"run{number}.h5"), number)
        tally.check(len(lines()) > 10, "the gallery has lines")
        with mounted(args.bin, "--read-write", "--idle-timeout=1", top) as m:
            # The h5py of these tests has numpy.
            path = os.path.dirname(sys.executable) + ":" + os.environ["PATH"]
            for line in lines():
                command = line.replace("/mnt/lab", m)
                run = subprocess.run(["bash", "-eo", "pipefail", "-c", command], capture_output=True, text=True, cwd=place,
                                     env=os.environ | {"PATH": path}, stdin=subprocess.DEVNULL)
                tally.equal(run.returncode, 0, f"{line}: {run.stderr}")
                printed = " ".join(run.stdout.split())
                for start, want in PRINTS.items():
                    if line.startswith(start):
                        tally.check(want in printed and (want or not printed), f"{line}: {printed!r}")
        with h5py.File(os.path.join(top, "run2.h5"), "r") as f:
            tally.equal((f["copy/gain"][()], f["mask"].attrs["checked"] in (b"yes", "yes"), "log" in f), (2.5, True, False), "what was changed")
            tally.equal(f["copy"].attrs["operator"] in (b"someone", "someone"), True, "an attribute that rsync copied")
        tally.check(len(read(os.path.join(place, "backup.tar"))) > 10000, "the archive")
    drawn = subprocess.run([os.path.join(TOP, "mount-scripts", "picture"), args.bin], capture_output=True, stdin=subprocess.DEVNULL)
    tally.equal(drawn.stdout, read(os.path.join(TOP, "docs", "session.svg")), "mount-scripts/picture")
    tally.finish()


if __name__ == "__main__":
    main()
