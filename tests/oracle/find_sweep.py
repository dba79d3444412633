#!/usr/bin/env python3
"""Compares `h5dir find` with a walk by h5py: names, types, attributes, sizes, links, cycles, many objects, damage.

    find_sweep.py [--bin H5DIR] [--keep FOLDER] [--seed N]
"""
import fnmatch
import json
import os
import resource
import select
import shutil
import subprocess
import sys

import h5py
import numpy as np

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from commands_sweep import Commands
from harness import Tally, arguments, folder, read

MANY = 60_000
MEMORY_KIB_MAX = 200 << 10


def make(path):
    with h5py.File(path, "w", libver=("earliest", "v110")) as f:
        for i, dtype in enumerate(["i1", "<i4", ">i4", "<f4", ">f4", "<f8", "S5", "?", "<c8", np.dtype([("a", "<i4")]), h5py.string_dtype()]):
            d = f.create_dataset(f"types/t{i}", (3 + i,), dtype)
            d.attrs["number"], d.attrs["units"] = i, "K" if i % 2 else "kelvin"
        f.create_dataset("sizes/kib", data=np.zeros(1024, "i1"))
        f.create_dataset("sizes/more", data=np.zeros(1025, "i1"))
        f.create_dataset("sizes/mib", data=np.zeros(1 << 20, "i1"), chunks=True, compression="gzip")
        f.create_dataset("sizes/scalar", data=1.5)
        f["named/type"] = np.dtype("<f4")
        f["named/type"].attrs["units"] = "K"
        links = f.create_group("zlinks")
        links["soft"], links["dangling"] = h5py.SoftLink("/types"), h5py.SoftLink("/none")
        links["external"], links["missing"] = h5py.ExternalLink("other.h5", "/g"), h5py.ExternalLink("none.h5", "/x")
        links["hard"], links["group"], links["root"] = f["types/t1"], f["types"], f["/"]
        links.create_group("deep/er/still")
        links["deep/er/still/around"] = links["deep"]
        f["names/sp ace"], f["names/st*r"], f["names/n\u00e9"] = 1, 2, 3
        f["names/new\nline"] = 4
    with h5py.File(os.path.join(os.path.dirname(path), "other.h5"), "w") as f:
        f["g/x"] = 1


def walked(f, start="/", maxdepth=None):
    """Paths with letter of type, by links: groups once, external and soft links not followed."""
    seen, rows = set(), []

    def visit(path, kind, depth):
        rows.append((path, kind, depth))
        if kind != "g" or (maxdepth is not None and depth >= maxdepth):
            return
        group = f[path]
        address = h5py.h5o.get_info(group.id).addr
        if address in seen:
            return
        seen.add(address)
        for name in group:
            below = path.rstrip("/") + "/" + name
            link = group.get(name, getlink=True)
            if not isinstance(link, h5py.HardLink):
                visit(below, "l", depth + 1)
            else:
                visit(below, {h5py.Group: "g", h5py.Dataset: "d", h5py.Datatype: "t"}[group.get(name, getclass=True)], depth + 1)

    visit(start, "g" if isinstance(f[start], h5py.Group) else "d", 0)
    return rows


def found(c, *args, code=0):
    """Paths, sorted; each begins with the name of the file."""
    done = c.run("find", args[0], *args[1:], "-print0")
    c.tally.equal((done.returncode, done.stderr), (code, b""), f"find {args}")
    file = args[0].split(":/")[0].encode() + b":"
    names = done.stdout.split(b"\0")[:-1]
    c.tally.check(all(name.startswith(file) for name in names), f"{args}: {names[:3]}")
    return sorted(name[len(file):].decode() for name in names)


def tests(c, f):
    rows = walked(f)
    tally, at = c.tally, {path: f[path] for path, kind, _ in rows if kind in "dt"}
    datasets = {path: d for path, d in at.items() if isinstance(d, h5py.Dataset)}

    def want(which, what, *args):
        tally.equal(found(c, "f.h5", *args), sorted(which), what)

    want([path for path, *_ in rows], "all")
    for letter in "gdlt":
        want([path for path, kind, _ in rows if kind == letter], f"type {letter}", "-type", letter)
    want([path for path, kind, _ in rows if kind in "dl"], "types", "-type", "d,l")
    want([], "maps", "-type", "m")
    for depth in range(4):
        want([path for path, *_ in walked(f, maxdepth=depth)], f"maxdepth {depth}", "-maxdepth", depth)
        want([path for path, _, at in rows if at >= depth], f"mindepth {depth}", "-mindepth", depth)
    for glob in ["t1*", "*", "t?", "[st]*", "sp ace", "n\u00e9", "*line"]:
        names = [(path, path.rsplit("/", 1)[1]) for path, *_ in rows]
        want([path for path, name in names if fnmatch.fnmatchcase(name, glob)], f"name {glob}", "-name", glob)
    want(["/names/st*r"], "an escaped star", "-name", "st[*]r")
    attributes = {path: o.attrs for path, o in at.items()}
    want([p for p, a in attributes.items() if "units" in a], "attribute", "-attr", "units")
    want([p for p, a in attributes.items() if a.get("units") == "K"], "value", "-attr", "units=K")
    want([p for p, a in attributes.items() if str(a.get("units", "")).lower().startswith("k")], "pattern", "-attr", "units=[Kk]*")
    want([p for p, a in attributes.items() if a.get("number") == 3], "number", "-attr", "number=3.0")
    want([p for p, a in attributes.items() if a.get("number") == 3], "two attributes", "-attr", "number=3", "-attr", "units")
    for text, sizes in [("+1k", lambda n: n > 1024), ("-1k", lambda n: n < 1024), ("1k", lambda n: 0 < n <= 1024), ("1M", lambda n: 0 < n <= 1 << 20),
                        ("+1M", lambda n: n > 1 << 20), ("8", lambda n: n == 8), ("+1023c", lambda n: n > 1023)]:
        plain = [p for p, d in datasets.items() if not h5py.check_string_dtype(d.dtype) and sizes(d.nbytes)]
        tally.equal([p for p in found(c, "f.h5", "-size", text) if p in datasets and not h5py.check_string_dtype(datasets[p].dtype)], sorted(plain), f"size {text}")
    for text in ["f4", "<f4", ">f4", "i4", "i1", "|i1", "S5"]:
        kind, size = np.dtype(text).kind, np.dtype(text).itemsize
        order = text[0] if text[0] in "<>" else None
        right = [p for p, d in at.items() if d.dtype.kind == kind and d.dtype.itemsize == size
                 and (order is None or d.dtype.newbyteorder(order) == d.dtype) and h5py.check_string_dtype(d.dtype) is None or text == "S5" and d.dtype == "S5"]
        want(right, f"dtype {text}", "-dtype", text)
    for text, i in [("compound", 9), ("str", 10), ("bool", 7), ("complex64", 8), ("int32 BE", 2), ("float64", 5)]:
        got = [p for p in found(c, "f.h5", "-dtype", text) if p.startswith("/types/")]
        tally.check(f"/types/t{i}" in got and len(got) <= 2, f"dtype {text}: {got}")
    for start in ["/types", "/zlinks/deep", "/types/t0"]:
        tally.equal(found(c, "f.h5:" + start), sorted(path for path, *_ in walked(f, start)), f"from {start}")
    for path, kind, _ in rows:
        if kind == "d" and len(path) % 3 == 0:
            tally.equal(found(c, "f.h5", "-name", os.path.basename(path).replace("*", "[*]"), "-size", "+0"), sorted(
                p for p in datasets if os.path.basename(p) == os.path.basename(path)), f"one name {path}")
    lines = [json.loads(line) for line in c.ends(0, "find", "f.h5", "-json")[0].splitlines()]
    tally.equal(sorted(line["path"] for line in lines), sorted(path for path, *_ in rows), "JSON")
    letters = {line["path"]: line["type"][0] if line["type"] != "datatype" else "t" for line in lines}
    tally.equal(letters, {path: kind for path, kind, _ in rows}, "types in JSON")
    by_path = {line["path"]: line for line in lines}
    tally.equal([by_path["/types/t3"][k] for k in ("file", "dtype", "shape", "size", "attributes")], ["f.h5", "<f4", [6], 24, 2], "a dataset")
    tally.equal([by_path[f"/zlinks/{name}"]["target"] for name in ("soft", "external")], ["/types", {"file": "other.h5", "path": "/g"}], "links")
    tally.check("f.h5:/names/new\\nline\n" in c.ends(0, "find", "f.h5")[0], "a newline in a name")


def usage(c):
    for args, code, text in [(("find",), 2, "FILE"), (("find", "f.h5", "-typ", "d"), 2, "--type"), (("find", "f.h5", "-type", "x"), 2, "t (named"),
                             (("find", "f.h5", "-size", "1X"), 2, "bytes"), (("find", "f.h5", "-name", "a/b"), 2, "no slash"),
                             (("find", "f.h5", "-name", "[a"), 2, "pattern"), (("find", "none.h5"), 3, "No such file"),
                             (("find", "f.h5:/none"), 5, "/none"), (("find", "f.h5", "-print0", "--json"), 2, "cannot be used")]:
        out, errors = c.ends(code, *args)
        c.tally.check(out == "" and text in errors, f"{args}: {errors}")
    both = c.ends(5, "find", "f.h5:/none", "f.h5:/named", "--name", "type")
    c.tally.equal(both[0], "f.h5:/named/type\n", "others go on")
    c.tally.equal(c.ends(0, "find", "f.h5:/types", "f.h5:/named", "-maxdepth", "0")[0], "f.h5:/types\nf.h5:/named\n", "several")


def trees(c):
    """Directories: each file is a start. Containers."""
    os.makedirs(c.path("tree/sub"))
    for name in ("tree/b.h5", "tree/sub/a.h5"):
        shutil.copy(c.path("f.h5"), c.path(name))
    with open(c.path("tree/note"), "w") as f:
        f.write("no HDF5 file")
    one = c.ends(0, "find", "f.h5", "-type", "d", "-maxdepth", "2")[0]
    want = [one.replace("f.h5:", name + ":") for name in ("tree/b.h5", "tree/sub/a.h5")]
    c.tally.equal(sorted(c.ends(0, "find", "tree", "-type", "d", "-maxdepth", "2")[0].splitlines()), sorted("".join(want).splitlines()), "a directory")
    c.tally.equal(c.ends(0, "find", "tree:/sub/a.h5/named", "-type", "t")[0], "tree/sub/a.h5:/named/type\n", "a path in a directory")
    # The copy lacks what no container can have.
    c.run("cp", "-r", "f.h5", "iod:box")
    got = found(c, "iod:box", "-type", "d", "-name", "t*")
    c.tally.equal(got, sorted(f"/types/t{i}" for i in range(11)), "a container")


def many(c):
    """Many objects: the first match appears before the search ends, and memory is bounded."""
    with h5py.File(c.path("many.h5"), "w", libver="latest") as f:
        space, kind = h5py.h5s.create(h5py.h5s.SCALAR), h5py.h5t.STD_I8LE
        group = f.create_group("big")
        for i in range(MANY):
            h5py.h5d.create(group.id, b"%06d" % i, kind, space)
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    process = subprocess.Popen([c.binary, "find", "many.h5"], cwd=c.place, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL)
    # The rest waits in the pipe until it is read: the command cannot have ended.
    ready, _, _ = select.select([process.stdout], [], [], 60)
    first = os.read(process.stdout.fileno(), 12)
    c.tally.check(ready and first.startswith(b"many.h5:/") and process.poll() is None, f"the first match: {first}")
    rest = process.stdout.read()
    c.tally.equal((process.wait(), (first + rest).count(b"\n")), (0, MANY + 2), "all")
    after = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    c.tally.check(after <= max(before, MEMORY_KIB_MAX), f"memory: {after} KiB")
    head = subprocess.run(f"'{c.binary}' find many.h5 | head -n 1", shell=True, cwd=c.place, capture_output=True, timeout=60)
    c.tally.equal((head.stdout, head.stderr), (b"many.h5:/\n", b""), "a closed pipe")


def damaged(c):
    """An object that cannot be read is reported, and the others are found."""
    with h5py.File(c.path("damaged.h5"), "w") as f:
        f["a"], f["b"], f["z"] = 1, 2, 3
        f["b"].attrs["x"] = 1
        address = h5py.h5o.get_info(f["b"].id).addr
    data = bytearray(read(c.path("damaged.h5")))
    data[address:address + 16] = b"\xff" * 16
    with open(c.path("damaged.h5"), "wb") as f:
        f.write(data)
    done = c.run("find", "damaged.h5", "-type", "d")
    c.tally.equal((done.returncode, done.stdout), (1, b"damaged.h5:/a\ndamaged.h5:/z\n"), "beside damage")
    c.tally.check(b"damaged.h5:/b" in done.stderr, done.stderr)


def main():
    options = arguments(__doc__)
    tally = Tally()
    with folder(options.keep) as place:
        c = Commands(options.bin, place, tally)
        make(c.path("f.h5"))
        with h5py.File(c.path("f.h5")) as f:
            tests(c, f)
        usage(c)
        trees(c)
        many(c)
        damaged(c)
    tally.finish()


if __name__ == "__main__":
    main()
