#!/usr/bin/env python3
"""Compares the lines of `h5dir ls -l` and the screen of `h5dir stat` with h5py: types, layouts, filters, links.

    ls_stat_sweep.py [--bin H5DIR] [--keep FOLDER] [--seed N]
"""
import json
import os
import pty
import re
import subprocess
import sys

import h5py
import numpy as np

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from harness import Tally, arguments, folder

# Type as h5dir shows it, and a dtype for h5py.
TYPES = {
    "int8": "i1", "int16": "<i2", "int32": "<i4", "int64": "<i8", "uint8": "u1", "uint16": "<u2", "uint32": "<u4", "uint64": "<u8",
    "int32 BE": ">i4", "float16": "<f2", "float32": "<f4", "float64": "<f8", "float32 BE": ">f4", "complex64": "<c8", "complex128": "<c16",
    "bool": "?", "str[5]": "S5", "str": h5py.string_dtype(), "str[7]": h5py.string_dtype("utf-8", 7), "opaque[3]": "V3",
    "enum{GREEN, RED}": h5py.enum_dtype({"RED": 0, "GREEN": 1}, "i2"), "vlen int32": h5py.vlen_dtype("<i4"),
    "object reference": h5py.ref_dtype, "region reference": h5py.regionref_dtype, "float32[2, 3]": np.dtype(("<f4", (2, 3))),
    "compound{a: int32, b: float32}": np.dtype([("a", "<i4"), ("b", "<f4")]),
    "datetime64[ns]": h5py.opaque_dtype(np.dtype("<M8[ns]")),
}
FILTERS = {
    "gzip 4": {"compression": "gzip"}, "shuffle+gzip 9": {"compression": "gzip", "compression_opts": 9, "shuffle": True},
    "lzf": {"compression": "lzf"}, "fletcher32": {"fletcher32": True}, "scaleoffset": {"scaleoffset": 3},
    "shuffle+lzf+fletcher32": {"compression": "lzf", "shuffle": True, "fletcher32": True},
}
SHAPES = {
    "()": ((), None), "(5)": ((5,), None), "(2, 3, 4)": ((2, 3, 4), None), "(0, 3)": ((0, 3), (0, 3)),
    "(4/inf, 6)": ((4, 6), (None, 6)), "(4/9, 6/inf)": ((4, 6), (9, None)),
}


def units(size):
    """A number of bytes as h5dir shows it."""
    if size < 1024:
        return f"{size} B"
    for unit in ("KiB", "MiB", "GiB"):
        tenths, size = size * 10 // 1024, size // 1024
        if tenths < 10240:
            return f"{tenths // 10}.{tenths % 10} {unit}"


def make(path):
    with h5py.File(path, "w") as f:
        types = f.create_group("types")
        for i, dtype in enumerate(TYPES.values()):
            types.create_dataset(f"t{i:02}", (3,), dtype)
        shapes = f.create_group("shapes")
        for i, (shape, maximum) in enumerate(SHAPES.values()):
            shapes.create_dataset(f"s{i}", shape, "<i4", maxshape=maximum)
        shapes["null"] = h5py.Empty("<f8")
        filters = f.create_group("filters")
        for i, options in enumerate(FILTERS.values()):
            filters.create_dataset(f"f{i}", data=np.arange(600, dtype="<i4").reshape(20, 30), chunks=(7, 30), **options)
        layouts = f.create_group("layouts")
        create = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        create.set_layout(h5py.h5d.COMPACT)
        space = h5py.h5s.create_simple((4,))
        h5py.h5d.create(layouts.id, b"compact", h5py.h5t.STD_I32LE, space, create)
        layouts.create_dataset("external", (4,), "<i4", external=[("raw.bin", 0, 16)])
        layout = h5py.VirtualLayout((20, 30), "<i4")
        layout[:] = h5py.VirtualSource(filters["f0"])
        layouts.create_virtual_dataset("virtual", layout)
        links = f.create_group("links")
        links["soft"], links["dangling"] = h5py.SoftLink("/types/t00"), h5py.SoftLink("/none")
        links["external"], links["missing"] = h5py.ExternalLink("other.h5", "/d"), h5py.ExternalLink("none.h5", "/x")
        links["root"], links["type"], links["hard"] = f["/"], np.dtype("<i4"), shapes["s0"]
        attributes = f.create_group("attributes")
        for name, value in VALUES.items():
            attributes.attrs[name] = value
        long = f.create_dataset("long", data=np.arange(1000, dtype="<i4"))
        for i in range(40):
            long.attrs[f"attribute{i}"] = "x" * 500
        f.create_dataset("wide", (2,), "V70000")
        f.create_dataset("lines", data=[f"line {i}" for i in range(9000)], dtype=h5py.string_dtype())
    with h5py.File(os.path.join(os.path.dirname(path), "other.h5"), "w") as f:
        f["d"] = np.arange(6.0)


VALUES = {
    "number": 7, "text": "a \"b\"\nc", "list": np.arange(3), "many": np.arange(5000), "float": 2.5, "empty": h5py.Empty("<i4"),
    "words": ["a", "b"], "point": np.array((1, 2.5), [("x", "<i4"), ("y", "<f8")]), "flag": True, "gain": 3, "gain_units": "dB",
    "complex": 1.5 - 2j,
}
BRIEF = {
    "number": "7", "text": r'"a \"b\"\nc"', "list": "[0, 1, 2]", "float": "2.5", "empty": "null", "words": '["a", "b"]',
    "point": "{x: 1, y: 2.5}", "flag": "true", "gain": "3", "gain_units": '"dB"', "complex": "1.5-2.0j",
}


class Shown:
    def __init__(self, binary, place, tally):
        self.binary, self.place, self.tally = binary, place, tally

    def run(self, *args):
        done = subprocess.run([self.binary, *args], capture_output=True, stdin=subprocess.DEVNULL, cwd=self.place, timeout=60)
        return done.returncode, done.stdout.decode(), done.stderr.decode()

    def ok(self, *args):
        code, out, errors = self.run(*args)
        self.tally.equal((code, errors), (0, ""), f"{args}")
        return out

    def lines(self, group):
        """Lines of `ls -l` by name, columns by two spaces."""
        lines = {}
        for line in self.ok("ls", "-l", f"f.h5:{group}").splitlines():
            cells = re.split(r"\s{2,}", line.strip())
            lines[cells[-1].split(" -> ")[0]] = cells
        return lines


def compare_objects(shown, f):
    tally, types = shown.tally, shown.lines("/types")
    for i, brief in enumerate(TYPES):
        tally.equal(types[f"t{i:02}"][:2], [brief, "(3)"], "type")
    shapes = shown.lines("/shapes")
    for i, brief in enumerate(SHAPES):
        tally.equal(shapes[f"s{i}"][1], brief, "shape")
    tally.equal(shapes["null"][:2], ["float64", "null"], "null")
    filters = shown.lines("/filters")
    for i, brief in enumerate(FILTERS):
        d = f[f"filters/f{i}"]
        dims = ", ".join(map(str, d.chunks))
        tally.equal(filters[f"f{i}"][1:-1], ["(20, 30)", f"chunks ({dims})", brief, units(d.id.get_storage_size())], "filters")
    layouts = shown.lines("/layouts")
    for name in ("compact", "external", "virtual"):
        tally.equal(layouts[name][2], name, "layout")


def compare_links(shown):
    tally, links = shown.tally, shown.lines("/links")
    ends = {name: (cells[0], cells[-1].partition(" -> ")[2]) for name, cells in links.items()}
    tally.equal(ends, {
        "soft": ("soft link", "/types/t00"), "dangling": ("soft link", "/none"), "external": ("float64", "other.h5:/d"),
        "missing": ("external link", "none.h5:/x"), "root": ("hard link", ".."), "type": ("type int32", ""), "hard": ("int32", ""),
    }, "links")
    link = shown.ok("stat", "f.h5:/links/soft").splitlines()
    tally.equal([line.split(None, 1) for line in link], [["link", "/links/soft"], ["kind", "soft link"], ["target", "/types/t00"]], "a link")
    tally.check("external  other.h5:/d\n" in shown.ok("stat", "f.h5:/links/external"), "stat of an external link")


def compare_attributes(shown):
    tally = shown.tally
    listed = [line for line in shown.ok("ls", "-a", "f.h5").splitlines() if line.startswith("    ")]
    pairs = dict(line.strip().split(" = ", 1) for line in listed if " = " in line)
    tally.equal({name: pairs.get(name) for name in BRIEF}, BRIEF, "values")
    tally.check(re.fullmatch(r"\[0, 1, 2, .*, \.\.\. \d+ more\]", pairs["many"]) and len(pairs["many"]) <= 60, pairs["many"])
    tally.check("  gain = 3 dB\n" in shown.ok("stat", "f.h5:/attributes"), "unit")


def screens(shown, f):
    """Every object has a screen of 24 lines of 80 columns; the elements are those of h5py."""
    tally, paths = shown.tally, ["/"]
    f.visit(lambda path: paths.append("/" + path))
    texts = re.split(r"(?:^|\n\n)f\.h5:.*:\n", shown.ok("stat", *(f"f.h5:{path}" for path in paths)))[1:]
    tally.equal(len(texts), len(paths), "screens")
    for path, text in zip(paths, texts):
        lines = text.splitlines()
        tally.check(len(lines) <= 24 and all(len(line) <= 80 for line in lines), f"{path}: {text}")
    long = dict(line.split(None, 1) for line in texts[paths.index("/long")].splitlines() if not line.startswith(("  ", "attributes")))
    tally.equal((long["first"], long["last"]), ("0, 1, 2, 3, 4, 5, 6, 7, ...", "..., 992, 993, 994, 995, 996, 997, 998, 999"), "ends")
    tally.check('first     "line 0", "line 1", ' in texts[paths.index("/lines")], "lines")
    tally.check("(70000 bytes each)" in texts[paths.index("/wide")], "large elements are not read")


def arguments_of_commands(shown):
    """Several arguments, patterns, failures, directories, JSON, colours."""
    tally = shown.tally
    tally.equal(shown.ok("ls", "f.h5:/links", "other.h5"), "f.h5:/links:\n" + shown.ok("ls", "f.h5:/links") + "\nother.h5:\nd\n", "headings")
    code, out, errors = shown.run("ls", "f.h5:/none", "absent.h5", "other.h5")
    tally.equal((code, out, len(errors.splitlines())), (5, "other.h5:\nd\n", 2), "failures")
    code, out, errors = shown.run("ls", "absent.h5", "f.h5:/none")
    tally.equal((code, out), (5, ""), "the worst failure")
    tally.equal(shown.ok("ls", "f.h5:/shapes/s[0-2]"), "/shapes/s0\n/shapes/s1\n/shapes/s2\n", "pattern")
    tally.equal(shown.ok("ls", "f.h5:/[lt]*s/t00"), "/types/t00\n", "pattern of a group")
    tally.equal(shown.run("ls", "f.h5:/x*")[0], 5, "no match")
    tally.equal([line.split()[-1] for line in shown.ok("ls", "-l", ".").splitlines() if line.startswith("HDF5 file")],
                ["f.h5", "other.h5"], "directory")
    tally.check("    " not in shown.ok("ls", "f.h5"), "names only")
    kinds = {line[0] for line in shown.ok("ls", "-l", "f.h5:/.h5dir").splitlines()}
    tally.check(kinds == {"-", "d"}, f"views are files: {kinds}")
    tally.check(shown.ok("ls", "-l", "--posix", "f.h5:/types").startswith("-rw"), "posix")
    tree = shown.ok("ls", "-R", "f.h5")
    tally.check(tree.startswith("f.h5\n\u251c\u2500\u2500 attributes\n") and "\u2502   \u2514\u2500\u2500 type\n" in tree, "tree")
    rows = json.loads(shown.ok("ls", "--json", "f.h5:/filters"))
    tally.equal([(r["dtype"], r["shape"], r["maxshape"], r["chunks"], len(r["filters"])) for r in rows][:2],
                [("<i4", [20, 30], [20, 30], [7, 30], 1), ("<i4", [20, 30], [20, 30], [7, 30], 2)], "JSON")
    tally.equal(json.loads(shown.ok("ls", "--json", "f.h5"))[0]["attributes"]["gain_units"], "dB", "attributes as JSON")
    tally.equal([r["path"] for r in json.loads(shown.ok("stat", "--json", "f.h5:/long", "other.h5:/d"))], ["/long", "/d"], "stat --json")


def on_terminal(shown, **environment):
    """What `ls -l` writes to a terminal."""
    master, slave = pty.openpty()
    with subprocess.Popen([shown.binary, "ls", "-l", "f.h5:/links"], stdin=subprocess.DEVNULL, stdout=slave, cwd=shown.place,
                          env=os.environ | {"TERM": "xterm"} | environment):
        os.close(slave)
        out = b""
        try:
            while piece := os.read(master, 65536):
                out += piece
        except OSError:
            pass
    os.close(master)
    return out


def main():
    args = arguments(__doc__)
    tally = Tally()
    with folder(args.keep) as place:
        path = os.path.join(place, "f.h5")
        make(path)
        shown = Shown(args.bin, place, tally)
        with h5py.File(path, "r") as f:
            compare_objects(shown, f)
            compare_links(shown)
            compare_attributes(shown)
            screens(shown, f)
        arguments_of_commands(shown)
        tally.check(b"\x1b[36msoft\x1b[0m" in on_terminal(shown), "colours")
        tally.check(b"\x1b" not in on_terminal(shown, NO_COLOR="1"), "NO_COLOR")
        tally.check("\x1b" not in shown.ok("ls", "-l", "f.h5:/links"), "no terminal")
    tally.finish()


if __name__ == "__main__":
    main()
