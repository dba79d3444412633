#!/usr/bin/env python3
"""Arguments of the commands that look into files, against h5py: whole files, directories, containers, patterns.

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


def many_arguments(c):
    """`check`, `cat` and `stat --space` go on after a failure; the exit code is the worst."""
    with h5py.File(c.path("a.h5")) as f:
        for pattern, names in [("/run*/t", ["run0/t", "run1/t", "run2/t"]), ("/run[02]/t", ["run0/t", "run2/t"]), ("/run?/*", ["run0/t", "run1/t", "run2/t"])]:
            want = b"".join(f[name][()].tobytes() for name in names)
            got = c.run("cat", "a.h5:" + pattern)
            c.tally.equal((got.returncode, got.stdout, got.stderr), (0, want, b""), f"cat {pattern}")
    got = c.ends(5, "cat", "--text", "a.h5:/run0/t", "a.h5:/none", "d1:/s/x.h5/run1/t", "iod:box:/run2/t")
    c.tally.equal(got[0].split(), "0 1 2 1 2 3 2 3 4".split(), "cat of files, directories and containers")
    c.tally.check(got[1].count("\n") == 1 and "/none" in got[1], got[1])
    for args, code, text in [(("cat", "a.h5"), 1, "it is a group"), (("cat", "d1/note"), 3, "not an HDF5 file"), (("cat", "-"), 2, "standard input"),
                             (("cat", "a.h5:/x*"), 5, "/x*"), (("check", "a.h5:/run0"), 2, "a.h5 without :/run0"), (("check", "empty"), 3, "no HDF5 files"),
                             (("stat", "--space", "a.h5:/run0"), 2, "without :/run0")]:
        out, errors = c.ends(code, *args)
        c.tally.check(out == "" and text in errors and errors.count("\n") == 1, f"{args}: {errors}")
    want = [c.path(name) for name in ("d1/y.h5", "d1/s/x.h5")]
    documents = json.loads(c.ends(0, "check", "--json", "d1", "iod:box")[0])
    c.tally.equal([d["file"] for d in documents], ["d1/y.h5", "d1/s/x.h5", "iod:box"], "check of a directory")
    c.tally.check("file" in json.loads(c.ends(0, "check", "--json", "a.h5")[0]), "check of one file")
    documents = json.loads(c.ends(0, "stat", "--space", "--json", "d1")[0])
    c.tally.equal([(d["file"], d["total"]) for d in documents], [(name, os.path.getsize(name)) for name in want], "space of a directory")
    os.makedirs(c.path("d3/empty"))
    with open(c.path("a.h5"), "rb") as whole, open(c.path("d3/cut.h5"), "wb") as cut:
        cut.write(whole.read()[:3000])
    shutil.copy(c.path("a.h5"), c.path("d3/whole.h5"))
    out, errors = c.ends(3, "check", "d3", "none.h5", "a.h5")
    c.tally.check(all(f"{name}: 11 objects" in out for name in ("d3/whole.h5", "a.h5")), out)
    c.tally.check("d3/cut.h5 was cut" in errors and "none.h5: No such file" in errors, errors)
    c.ends(1, "check", "d3")
    documents = json.loads(c.ends(3, "check", "--json", "d3", "none.h5")[0])
    c.tally.equal([(d["file"], d["problems"] > 0) for d in documents], [("d3/cut.h5", True), ("d3/whole.h5", False)], "JSON beside failures")


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
        os.makedirs(c.path("empty"))
        many_arguments(c)
    tally.finish()


if __name__ == "__main__":
    main()
