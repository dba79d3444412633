#!/usr/bin/env python3
"""Damaged files: h5dir mount --rescue shows what libhdf5 had read before, h5dir recover --dry-run changes nothing.

    rescue_sweep.py [--bin H5DIR] [--keep FOLDER]
"""
import os
import shutil
import subprocess
import sys

import h5py
import numpy as np

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from harness import Tally, arguments, folder, mounted, read


def make(path, libver):
    """Makes a file; returns the bytes of its datasets by address."""
    with h5py.File(path, "w", libver=libver) as f:
        f["numbers"] = np.arange(1000)
        f["odd"] = np.frombuffer(b"abc", "S1")
        g = f.create_group("outer").create_group("inner")
        g.create_dataset("packed", data=np.arange(4000.0).reshape(40, 100), chunks=(10, 100), compression="gzip")
        g["same"] = f["numbers"]
        g.attrs["note"] = "kept"
        for n in range(20):
            g[f"small{n:02}"] = np.full(n + 1, n, "<i4")
        f["type"] = np.dtype("<i8")
        found = {}
        f.visititems(lambda _, o: found.update({h5py.h5o.get_info(o.id).addr: o[()].tobytes()}) if isinstance(o, h5py.Dataset) else None)
        group = h5py.h5o.get_info(g.id).addr
        root = h5py.h5o.get_info(f.id).addr
    return found, group, root


def all_found(tally, m, datasets, group, what):
    names = os.listdir(os.path.join(m, ".h5dir", "found"))
    tally.equal(len(names), len(set(names)), f"{what}: names")
    for address, want in datasets.items():
        path = os.path.join(m, ".h5dir", "found", f"{address:#x}")
        tally.check(f"{address:#x}" in names, f"{what}: {address:#x} is listed")
        tally.equal(read(path), want, f"{what}: dataset at {address:#x}")
    inner = os.path.join(m, ".h5dir", "found", f"{group:#x}")
    tally.equal(len(os.listdir(inner)), 22, f"{what}: names of a group")
    tally.equal(os.getxattr(inner, "user.note"), b"kept", f"{what}: its attribute")
    tally.equal(read(os.path.join(inner, "packed")), np.arange(4000.0).tobytes(), f"{what}: a dataset by its name")
    tally.check(not os.path.exists(os.path.join(m, ".h5dir", "found", "0x8")), f"{what}: no object")


def damage(path, offset, data):
    with open(path, "r+b") as f:
        f.seek(offset)
        f.write(data)


def rescue(tally, binary, place):
    for libver in ["earliest", "v110", "latest"]:
        whole = os.path.join(place, f"{libver}.h5")
        datasets, group, root = make(whole, libver)
        before = read(whole)
        with mounted(binary, whole) as m:
            tally.check(not os.path.exists(os.path.join(m, ".h5dir", "found")), f"{libver}: only with --rescue")
        with mounted(binary, "--rescue", whole) as m:
            all_found(tally, m, datasets, group, f"{libver}, sound")
            tally.equal(read(os.path.join(m, "numbers")), np.arange(1000).tobytes(), f"{libver}: the main tree")
        for name, offset, data in [("signature", 0, b"\xff" * 8), ("superblock", 8, b"\xff" * 40), ("root", root, b"\xff" * 24),
                                   ("both", 0, b"\xff" * (root + 24))]:
            path = os.path.join(place, f"{libver}_{name}.h5")
            shutil.copy(whole, path)
            damage(path, offset, data)
            broken = read(path)
            refused = subprocess.run([binary, "ls", path], capture_output=True, stdin=subprocess.DEVNULL)
            tally.check(refused.returncode != 0, f"{libver} {name}: refused without --rescue")
            with mounted(binary, "--rescue", path) as m:
                all_found(tally, m, datasets, group, f"{libver}, {name}")
                if name in ("signature", "superblock"):
                    tally.equal(read(os.path.join(m, "numbers")), np.arange(1000).tobytes(), f"{libver} {name}: the main tree")
            tally.check(read(path) == broken, f"{libver} {name}: nothing is written")
        cut = os.path.join(place, f"{libver}_cut.h5")
        with open(cut, "wb") as f:
            f.write(before[:len(before) * 3 // 4])
        with mounted(binary, "--rescue", cut) as m:
            tally.check(len(os.listdir(os.path.join(m, ".h5dir", "found"))) > 3, f"{libver}: a file that was cut")
    both = subprocess.run([binary, "mount", "--rescue", "--read-write", whole, place], capture_output=True, text=True, stdin=subprocess.DEVNULL)
    tally.equal((both.returncode, "--rescue" in both.stderr), (2, True), "--rescue and --read-write")


def interrupted(binary, place, name):
    """A file whose writing mount was killed, and its journal if there is one."""
    path = os.path.join(place, name)
    make(path, "v110")
    point = os.path.join(place, name + ".mnt")
    os.mkdir(point)
    process = subprocess.Popen([binary, "mount", "--foreground", "--read-write", path, point], stdin=subprocess.DEVNULL,
                               stderr=subprocess.DEVNULL)
    try:
        while not os.path.ismount(point):
            assert process.poll() is None
        for n in range(50):
            os.mkdir(os.path.join(point, f"made{n}"))
        with open(os.path.join(point, "made0", "synced"), "wb") as f:
            f.write(b"x" * 5000)
            os.fsync(f.fileno())
        os.mkdir(os.path.join(point, "lost"))
        process.kill()
        process.wait()
    finally:
        subprocess.run([binary, "umount", point], stdin=subprocess.DEVNULL)
    return path


def states(place):
    return {name: (read(os.path.join(place, name)), os.stat(os.path.join(place, name)).st_mtime_ns)
            for name in os.listdir(place) if os.path.isfile(os.path.join(place, name))}


def dry_run(tally, binary, place):
    def recover(*args):
        run = subprocess.run([binary, "recover", *args], capture_output=True, text=True, stdin=subprocess.DEVNULL)
        tally.equal(run.returncode, 0, f"recover {args}: {run.stderr}")
        return run.stdout.strip().rpartition(": ")[2]

    here = os.path.join(place, "dry")
    os.mkdir(here)
    whole = os.path.join(here, "whole.h5")
    make(whole, "v110")
    flagged = os.path.join(here, "flagged.h5")
    make(flagged, "latest")
    # A writer of libhdf5 that is gone: consistency flags of superblock version 3, and its checksum.
    code = "import h5py, os, sys; f = h5py.File(sys.argv[1], 'r+', libver='latest'); f['x'] = 1; f.flush(); os._exit(0)"
    subprocess.run([sys.executable, "-c", code, flagged], check=True)
    killed = interrupted(binary, here, "killed.h5")
    for path, words in [(whole, "there is nothing to do"), (flagged, "would be taken off"), (killed, "")]:
        before = states(here)
        said = recover("--dry-run", path)
        tally.check(words in said, f"the words of a dry run: {said}")
        tally.equal(states(here), before, f"nothing is changed for {path}")
        done = recover(path)
        tally.equal(said.replace("would be", "was"), done, f"what is said of {path}")
        tally.equal(recover("--dry-run", path), "there is nothing to do", f"after recovery of {path}")


def main():
    args = arguments(__doc__)
    tally = Tally()
    with folder(args.keep) as place:
        rescue(tally, args.bin, place)
        dry_run(tally, args.bin, place)
    tally.finish()


if __name__ == "__main__":
    main()
