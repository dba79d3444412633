#!/usr/bin/env python3
"""Arguments of the commands that look into files, against h5py: `diff` of whole files.

    commands_sweep.py [--bin H5DIR] [--keep FOLDER] [--seed N]
"""
import json
import os
import shutil
import subprocess
import sys

import h5py
import numpy as np

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from harness import Tally, arguments, folder


class Commands:
    """Runs the command in a folder."""

    def __init__(self, binary, place, tally):
        self.binary, self.place, self.tally = os.path.abspath(binary), place, tally

    def run(self, *args, **more):
        more = {"stdin": subprocess.DEVNULL, "cwd": self.place, "timeout": 120, **more}
        return subprocess.run([self.binary, *map(str, args)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, **more)

    def ends(self, code, *args, **more):
        """The output of a command that ends with `code`."""
        done = self.run(*args, **more)
        self.tally.equal(done.returncode, code, f"{args}: {done.stderr.decode()[-300:]}")
        return done.stdout.decode(errors="surrogateescape"), done.stderr.decode()

    def path(self, name):
        return os.path.join(self.place, name)


def make(path, start=0):
    """A file with groups of equal names, a group with two names, and a cycle of hard links."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with h5py.File(path, "w") as f:
        f.create_group("g/sub")["x"] = np.arange(5) + start
        f["again"], f["g/top"] = f["g"], f["/"]
        for run in range(3):
            f[f"run{run}/t"] = np.arange(3, dtype="<i4") + run
            f[f"run{run}/t"].attrs["units"] = "K"
        f["text"] = "a text"


def diff_whole(c):
    """Files, containers and directories are compared with all that is in them."""
    c.tally.equal(c.ends(0, "diff", "a.h5", "same.h5"), ("", ""), "equal files")
    found = "/again/sub/x: data [0]: 0 | 1\n"
    c.tally.equal(c.ends(1, "diff", "a.h5", "b.h5"), (found, ""), "different files")
    c.tally.equal(c.ends(1, "diff", "a.h5:/", "b.h5", "-r"), (found, ""), "a path and a file")
    c.ends(0, "diff", "a.h5:/", "b.h5")
    c.ends(0, "cp", "-r", "a.h5", "iod:box")
    c.tally.equal(c.ends(0, "diff", "a.h5", "iod:box"), ("", ""), "a file and a container")
    c.tally.equal(c.ends(1, "diff", "iod:box", "b.h5"), (found, ""), "a container and a file")
    # Both have files with groups of the same numbers, which are compared each.
    out, _ = c.ends(1, "diff", "d1", "d2")
    c.tally.equal(out, "/note: data byte 0: a | b\n/s/x.h5" + found, "directories")
    c.tally.equal(c.ends(0, "diff", "d1", "d1"), ("", ""), "a directory and itself")
    rows = json.loads(c.ends(1, "diff", "--json", "d1", "d2")[0])
    c.tally.equal([row["path"] for row in rows], ["/note", "/s/x.h5/again/sub/x"], "JSON")
    c.ends(0, "cp", "-r", "a.h5:/run1", "files")
    c.tally.equal(c.ends(0, "diff", "a.h5:/run1", "files"), ("", ""), "a group and a local directory")
    tree = c.ends(0, "ls", "-R", "d1")[0]
    c.tally.equal(tree.count("(the same group as /s/x.h5"), tree.count("(the same group as /y.h5"), "groups of several files")
    for left, right, text in [("a.h5", "d1/note", "not an HDF5 file"), ("d1/note", "d2/note", "neither side"), ("a.h5", "none.h5", "No such file"),
                              ("-", "a.h5", "standard input")]:
        errors = c.ends(2, "diff", left, right)[1]
        c.tally.check(text in errors and errors.count("\n") == 1, f"diff {left} {right}: {errors}")


def main():
    options = arguments(__doc__)
    tally = Tally()
    with folder(options.keep) as place:
        c = Commands(options.bin, place, tally)
        for name, start in [("a.h5", 0), ("b.h5", 1), ("d1/s/x.h5", 0), ("d2/s/x.h5", 1), ("d1/y.h5", 0), ("d2/y.h5", 0)]:
            make(c.path(name), start)
        shutil.copy(c.path("a.h5"), c.path("same.h5"))
        for name, text in [("d1/note", "a"), ("d2/note", "b")]:
            with open(c.path(name), "w") as f:
                f.write(text)
        diff_whole(c)
    tally.finish()


if __name__ == "__main__":
    main()
