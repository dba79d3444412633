#!/usr/bin/env python3
"""`h5dir attr` sets attributes that h5py reads with the types that were asked for, in files and in containers."""
import os
import subprocess

import h5py
import numpy as np

import harness

VALUES = [
    ("5", None, np.dtype("<i8"), 5), ("-5", None, np.dtype("<i8"), -5), ("2.5", None, np.dtype("<f8"), 2.5), ("1e3", None, np.dtype("<f8"), 1e3),
    ("NaN", None, np.dtype("<f8"), np.nan), ("5", "<f4", np.dtype("<f4"), 5), ("-7", ">i2", np.dtype(">i2"), -7), ("255", "|u1", np.dtype("u1"), 255),
    ("[1, 2, 3]", None, np.dtype("<i8"), [1, 2, 3]), ("[[1, 2.5], [3, 4]]", None, np.dtype("<f8"), [[1, 2.5], [3, 4]]),
    ("[1, 2]", "<u2", np.dtype("<u2"), [1, 2]), ("m/s", None, "str", "m/s"), ("5", "str", "str", "5"), ('"5"', None, "str", "5"), ("", None, "str", ""),
    ("µm", None, "str", "µm"), ('["a", "bc"]', None, "str", ["a", "bc"]), ("abc", "S8", np.dtype("S8"), b"abc"),
]
WRONG = [("300", "|u1"), ("abc", "<i4"), ("[[1], [1, 2]]", None), ("1", "nothing"), ("[1, \"a\"]", "<i4")]


def run(options, *args):
    done = subprocess.run([options.bin, "attr", *args], stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL)
    return done.returncode, done.stdout.decode(), done.stderr.decode()


def unreadable(t, options, place):
    """An attribute whose string is in a damaged heap does not hide the others."""
    path = os.path.join(place, "damaged.h5")
    with h5py.File(path, "w") as f:
        f.attrs["a"], f.attrs["b"], f.attrs["c"] = np.int32(1), "in the heap", np.int32(3)
    with open(path, "r+b") as raw:
        raw.seek(raw.read().index(b"GCOL"))
        raw.write(b"0000")
    code, shown, said = run(options, "get", f"{path}:/")
    t.equal((code, shown, said.count("\n")), (1, "a = 1\nc = 3\n", 1), "the others")
    t.check("damaged.h5:/: the attribute b: " in said, f"the damaged one: {said}")


def main():
    options = harness.arguments(__doc__)
    t = harness.Tally()
    with harness.folder(options.keep) as place:
        path, container, back = os.path.join(place, "a.h5"), f"iod:{place}/c", os.path.join(place, "back.h5")
        with h5py.File(path, "w") as f:
            f["g/d"] = np.arange(3)
            f["g/d"].attrs["old"] = "before"
        subprocess.run([options.bin, "cp", "-r", path, container], check=True, stdin=subprocess.DEVNULL)
        for target in (path, container):
            for number, (text, datatype, _, _) in enumerate(VALUES):
                more = ["--type", datatype] if datatype else []
                t.equal(run(options, "set", f"{target}:/g/d", f"a{number}", text, *more), (0, "", ""), f"{target}: set {text} {datatype}")
            for text, datatype in WRONG:
                code, _, said = run(options, "set", f"{target}:/g/d", "wrong", text, *(["--type", datatype] if datatype else []))
                t.check(code == 1 and said.count("\n") == 1 and "/g/d" in said, f"{target}: {text} {datatype}: {code} {said}")
            t.equal(run(options, "set", f"{target}:/g/d", "old", "6")[0], 0, "another type replaces the old one")
            t.equal(run(options, "set", f"{target}:/", "title", "of the root")[0], 0, "the root")
            t.equal(run(options, "get", f"{target}:/g/d", "a0"), (0, "5\n", ""), "get")
            t.equal(run(options, "get", f"{target}:/", ), (0, "title = of the root\n", ""), "get all")
            t.equal(run(options, "rm", f"{target}:/g/d", "a1"), (0, "", ""), "rm")
            code, _, said = run(options, "rm", f"{target}:/g/d", "a1")
            t.check(code == 1 and "no such attribute" in said, f"rm of nothing: {said}")
            t.check("no such attribute: a1" in run(options, "get", f"{target}:/g/d", "a1")[2], "get of nothing")
            t.equal(run(options, "get", f"{target}:/none")[0], 5, "no such object")
        subprocess.run([options.bin, "cp", "-r", container, back], check=True, stdin=subprocess.DEVNULL)
        unreadable(t, options, place)
        for file in (path, back):
            with h5py.File(file) as f:
                attributes = f["g/d"].attrs
                t.equal((attributes["old"], attributes["old"].dtype, f.attrs["title"]), (6, np.dtype("<i8"), "of the root"), "replaced")
                t.check("a1" not in attributes and "wrong" not in attributes, "removed and refused ones")
                for number, (text, _, dtype, value) in enumerate(VALUES):
                    if number == 1:
                        continue
                    found = attributes[f"a{number}"]
                    if dtype == "str":
                        t.equal(found.tolist() if isinstance(found, np.ndarray) else found, value, f"{file}: {text}")
                    else:
                        same = np.array_equal(found, np.array(value, dtype), equal_nan=dtype.kind == "f") and attributes.get_id(f"a{number}").dtype == dtype
                        t.check(same, f"{file}: {text}: {found!r} {attributes.get_id(f'a{number}').dtype}")
    t.finish()


if __name__ == "__main__":
    main()
