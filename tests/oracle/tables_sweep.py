#!/usr/bin/env python3
"""Datasets as text: `h5dir cat` and the views text, csv, tsv and jsonl against h5py, as pandas, DuckDB, csv, json and numpy read them."""
import csv
import errno
import io
import json
import os
import random
import subprocess

import duckdb
import h5py
import numpy as np
import pandas

import harness

VIEWS = {"text": "txt", "csv": "csv", "tsv": "tsv", "jsonl": "jsonl"}


def make(path, rng):
    with h5py.File(path, "w") as f:
        for dtype in ("i1", "u1", "<i2", ">u2", "<i4", ">i4", "<u8", ">i8", "<f2", "<f4", ">f4", "<f8", ">f8"):
            raw = rng.integers(0, 256, 60 * np.dtype(dtype).itemsize, dtype=np.uint8).view(dtype)
            f.create_dataset(f"number {dtype}", data=raw.reshape(12, 5), chunks=(5, 2), compression="gzip")
        f["line"] = np.array([1.5, np.nan, np.inf, -np.inf, 1e300, 1e-7, -0.0, 0.1])
        f["scalar"], f["none"], f["null"] = 7.25, np.zeros((0, 3)), h5py.Empty("f4")
        f["cube"] = np.arange(24.0).reshape(2, 3, 4)
        f["fixed"] = np.array([b"a,b", b'q"x', b"", b" pad ", b"tab\t!", b"NA"], "S8")
        f.create_dataset("words", data=["hällo", "two\nlines", "\r", "", "x,y", '"', "\\n"], dtype=h5py.string_dtype())
        f["flags"] = np.array([True, False, True])
        f["colours"] = np.array([1, 0, 2], h5py.enum_dtype({"RED": 0, "GREEN": 1, "BLUE": 2}, "u1")).astype(
            h5py.enum_dtype({"RED": 0, "GREEN": 1, "BLUE": 2}, "u1"))
        nested = np.dtype([("n", "<i4"), ("x", ">f8"), ("in", [("name", "S4"), ("flag", "?")]), ("pair", "<i2", (2,))])
        table = np.zeros(5000, nested)
        table["n"], table["x"] = np.arange(5000), rng.random(5000)
        table["in"]["name"] = [b"%d,a" % (i % 100) for i in range(5000)]
        table["in"]["flag"], table["pair"] = table["n"] % 2, rng.integers(-9, 9, (5000, 2))
        f.create_dataset("table", data=table, chunks=(700,), compression="lzf")
        f["table 2-D"] = table[:12].reshape(3, 4)
        f.create_dataset("lists", (3,), h5py.vlen_dtype("<i4"))[1] = [1, 2]
        f["to"] = np.array([f["line"].ref, f["table"].ref], h5py.ref_dtype)
        f["time"] = np.arange(5, dtype="<i8") * 86400
        f["time"].attrs["units"] = "seconds since 2000-01-01 12:00"
        f["hours"] = np.array([0.25, 1e6, np.nan])
        f["hours"].attrs["units"], f["hours"].attrs["calendar"] = "hours since 1900-01-01", "standard"
        f["calendar"] = np.arange(2.0)
        f["calendar"].attrs["units"], f["calendar"].attrs["calendar"] = "days since 2000-01-01", "360_day"
        stamps = np.array(["2020-01-01T01:02:03.5", "NaT"], "M8[ns]")
        f.create_dataset("stamps", data=stamps.astype(h5py.opaque_dtype(stamps.dtype)))
        f["big"] = rng.random(300_000)
        colour = h5py.enum_dtype({"RED": 0, "GREEN": 1, "BLUE": 2}, "u1")
        part = np.dtype([("colour", colour), ("x", ">f4", (2,)), ("name", "S3")])
        deep = np.zeros(3, [("half", "<f2"), ("long", "g"), ("parts", part, (2,)), ("flag", "?"), ("z", "<c8")])
        deep["half"], deep["long"], deep["z"] = [np.nan, np.inf, 0.5], [-np.inf, np.nan, 1.25], [1 + 2j, complex("nan"), 0]
        deep["parts"]["x"], deep["parts"]["colour"] = [[[np.nan, 1], [np.inf, 2]]] * 3, [[0, 1], [2, 7], [1, 1]]
        deep["parts"]["name"] = b'"\n'
        f["deep"] = deep


def cat(options, *args, code=0):
    done = subprocess.run([options.bin, "cat", *args], stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL)
    assert done.returncode == code, (args, done)
    return done.stdout if code == 0 else done.stderr.decode()


def forms(t, options, path):
    """Each form as the program reads it that it is for."""
    with h5py.File(path) as f:
        for name in f:
            if not name.startswith("number"):
                continue
            data = f[name][()]
            where = f"{path}:/{name}"
            table = pandas.read_csv(io.BytesIO(cat(options, "--csv", where)), header=None).to_numpy()
            same = np.array_equal(table.astype(data.dtype), data, equal_nan=data.dtype.kind == "f")
            t.check(same, f"{name}: pandas reads other numbers than h5py")
            again = np.loadtxt(io.BytesIO(cat(options, "--text", where)), dtype=data.dtype if data.dtype.kind == "f" else object,
                               converters=None if data.dtype.kind == "f" else int).astype(data.dtype)
            t.check(np.array_equal(again, data, equal_nan=data.dtype.kind == "f"), f"{name}: numpy reads other numbers as text")
            t.check(np.array_equal(np.load(io.BytesIO(cat(options, "--npy", where))), data, equal_nan=data.dtype.kind == "f"), f"{name}: npy")
            whole = json.loads(cat(options, "--json", where))
            numbers = [data.dtype.type(x) for row in whole for x in row]
            t.check(np.array_equal(np.array(numbers, data.dtype).reshape(data.shape), data, equal_nan=data.dtype.kind == "f"), f"{name}: JSON")
            for select, part in (("2:7,1:3", data[2:7, 1:3]), ("3", data[3:4]), (":,-1", data[:, -1:]), ("-2:", data[-2:])):
                got = np.load(io.BytesIO(cat(options, "--npy", f"--select={select}", where)))
                t.check(np.array_equal(got, part, equal_nan=data.dtype.kind == "f"), f"{name}[{select}]")
                rows = cat(options, "--csv", f"--select={select}", where).splitlines()
                t.equal(len(rows), len(part), f"{name}[{select}]: rows")
        words = [row[0] for row in csv.reader(io.StringIO(cat(options, "--csv", f"{path}:/words").decode(), newline=""))]
        t.equal(words, list(f["words"].asstr()[:]), "strings in CSV")
        unescape = {"\\n": "\n", "\\r": "\r", "\\t": "\t", "\\\\": "\\"}
        lines = cat(options, "--tsv", f"{path}:/words").decode().split("\n")[:-1]
        t.equal(["".join(unescape.get(line[i:i + 2], "") if line[i] == "\\" else line[i] for i in range(len(line))
                         if i == 0 or line[i - 1] != "\\" or line[:i].endswith("\\\\")) for line in lines][:5],
                list(f["words"].asstr()[:5]), "strings in TSV")
        fixed = [row[0].encode() for row in csv.reader(io.StringIO(cat(options, "--csv", f"{path}:/fixed").decode(), newline=""))]
        t.equal(fixed, list(f["fixed"][()]), "strings of fixed length in CSV")
        rows = [json.loads(line) for line in cat(options, "--jsonl", f"{path}:/words").splitlines()]
        t.equal(rows, list(f["words"].asstr()[:]), "strings in JSON lines")
        table = pandas.read_csv(io.BytesIO(cat(options, "--csv", f"{path}:/table")))
        data = f["table"][()]
        t.equal(list(table.columns), ["n", "x", "in.name", "in.flag", "pair"], "names of columns")
        t.check(np.array_equal(table["n"], data["n"]) and np.array_equal(table["x"], data["x"]), "numbers of a compound")
        t.equal([name.encode() for name in table["in.name"]], list(data["in"]["name"]), "strings of a nested compound")
        t.equal([bool(flag) for flag in table["in.flag"]], list(data["in"]["flag"]), "flags")
        t.equal([json.loads(pair) for pair in table["pair"]], data["pair"].tolist(), "arrays in a cell")
        t.equal(len(cat(options, "--csv", f"{path}:/table 2-D").splitlines()), 13, "compounds of two dimensions: a line each")
        rows = [json.loads(line) for line in cat(options, "--jsonl", "-n", "3", f"{path}:/table").splitlines()]
        t.equal([(row["n"], row["in.name"], row["pair"]) for row in rows],
                [(int(r["n"]), r["in"]["name"].decode(), r["pair"].tolist()) for r in data[:3]], "JSON lines of a compound")
        colours = {0: "RED", 1: "GREEN", 2: "BLUE"}

        def plain(value):
            if isinstance(value, np.void):
                return {name: colours.get(int(value[name]), int(value[name])) if name == "colour" else plain(value[name]) for name in value.dtype.names}
            if isinstance(value, np.ndarray):
                return [plain(x) for x in value]
            if isinstance(value, bytes):
                return value.decode()
            return float(value) if np.isfinite(value) else None

        def strict(word):
            raise ValueError(f"{word} is no JSON")

        rows = [json.loads(line, parse_constant=strict) for line in cat(options, "--jsonl", f"{path}:/deep").splitlines()]
        want = [{"half": plain(r["half"]), "long": plain(r["long"]), "parts": plain(r["parts"]), "flag": "FALSE",
                 "z.r": plain(r["z"].real), "z.i": plain(r["z"].imag)} for r in f["deep"][()]]
        t.equal(rows, want, "JSON lines of nested values, of no number null")
        last = cat(options, "--csv", "--tail", "2", f"{path}:/table").splitlines()
        t.equal([line.split(b",")[0] for line in last], [b"n", b"4998", b"4999"], "the last rows")
        t.equal(json.loads(cat(options, "--json", f"{path}:/cube")), f["cube"][()].tolist(), "JSON of three dimensions")
        t.equal(json.loads(cat(options, "--json", "-s", "1,1:,2:4", f"{path}:/cube")), f["cube"][1:2, 1:, 2:4].tolist(), "JSON of a block")
    t.equal(cat(options, "--json", f"{path}:/null"), b"null\n", "JSON of a null dataspace")
    simple = {"null": b"", "scalar": b"7.25\n", "none": b"", "flags": b"TRUE\nFALSE\nTRUE\n", "colours": b"GREEN\nRED\nBLUE\n", "lists": b"[]\n[1,2]\n[]\n",
              "to": b"/line\n/table\n", "line": b"1.5\nNaN\nInfinity\n-Infinity\n1e300\n1e-7\n-0.0\n0.1\n",
              "time": b"".join(b"2000-01-0%dT12:00:00\n" % i for i in range(1, 6)), "calendar": b"0.0\n1.0\n",
              "hours": b"1900-01-01T00:15:00\n2014-01-29T16:00:00\nNaT\n", "stamps": b"2020-01-01T01:02:03.5\nNaT\n"}
    for name, text in simple.items():
        t.equal(cat(options, "--text", f"{path}:/{name}"), text, f"{name} as text")
    for args, word in (((f"{path}:/null", "--npy"), "numpy"), ((f"{path}:/words", "--npy"), "numpy"),
                       ((f"{path}:/cube", "--text", "-s", "5"), "coordinate"), ((f"{path}:/cube", "--text", "-s", "1,1,1,1"), "dimensions")):
        said = cat(options, *args, code=1)
        t.check(word in said and said.count("\n") == 1, f"{args}: {said}")


def views(t, options, path, target):
    """The files of the views are what the command prints, read in order and anywhere."""
    rng = random.Random(options.seed)
    with harness.mounted(options.bin, target) as mount, h5py.File(path) as f:
        for view, suffix in VIEWS.items():
            folder = os.path.join(mount, ".h5dir", view)
            t.equal(sorted(os.listdir(folder)), sorted(f"{name}.{suffix}" for name in f), f"{view}: names")
            for name in f:
                file, want = os.path.join(folder, f"{name}.{suffix}"), cat(options, f"--{view}", f"{path}:/{name}")
                t.equal(harness.read(file), want, f"{target}: {view}: {name}")
                with open(file, "rb") as text:
                    for _ in range(8):
                        at = rng.randrange(len(want) + 1)
                        text.seek(at)
                        t.equal(text.read(rng.choice([1, 700, 70_000])), want[at:text.tell()], f"{view}: {name} at {at}")
        folder = os.path.join(mount, ".h5dir", "csv")
        table = pandas.read_csv(os.path.join(folder, "table.csv"))
        t.check(np.array_equal(table["x"], f["table"]["x"]), "pandas reads the view")
        total = duckdb.sql(f"select sum(n), count(*), min(\"in.name\") from read_csv('{folder}/table.csv')").fetchall()[0]
        t.equal(total, (sum(range(5000)), 5000, "0,a"), "DuckDB reads the view")
        shell = f"awk -F, 'NR > 1 {{ n += $1 }} END {{ print n }}' {folder}/table.csv; column -t -s, {folder}/cube.csv | head -1"
        t.equal(subprocess.check_output(["bash", "-c", shell]), b"12497500\n0.0   1.0   2.0   3.0\n", "awk and column read the view")
        lines = duckdb.sql(f"select sum(n) from read_json('{mount}/.h5dir/jsonl/table.jsonl')").fetchall()[0]
        t.equal(lines, (sum(range(5000)),), "DuckDB reads JSON lines")


def summaries(t, options, path, target):
    """Statistics are those of numpy."""
    def of(name, *more):
        done = subprocess.run([options.bin, "summary", "--json", *more, f"{target}:/{name}"], stdout=subprocess.PIPE, check=True)
        return json.loads(done.stdout)

    with h5py.File(path) as f:
        for name in [name for name in f if name.startswith("number")] + ["line", "cube", "big", "none", "scalar"]:
            data = f[name][()]
            found = of(name)
            kept = np.asarray(data)[np.isfinite(data)].astype("f8")
            numbers = data[~np.isnan(data)] if data.dtype.kind == "f" else np.asarray(data)
            t.equal((found["count"], found["nan"], found["infinite"]),
                    (data.size, int(np.isnan(data).sum()), int(np.isinf(data).sum())), f"{target}: {name}: counts")
            if not numbers.size:
                t.equal((found["min"], found["histogram"]["counts"]), (None, []), f"{name}: of nothing")
                continue
            same = [float(found[key]) == float(want) for key, want in (("min", numbers.min()), ("max", numbers.max()))]
            t.equal(same, [True, True], f"{name}: {found['min']} to {found['max']}")
            with np.errstate(all="ignore"):
                mean, std = kept.mean(), kept.std()
            # The sum of some overflows in numpy.
            t.equal([key for key, want in (("mean", mean), ("std", std)) if np.isfinite(want) and not np.isclose(found[key], want, rtol=1e-6)], [],
                    f"{name}: {found['mean']} {found['std']}, not {mean} {std}")
            t.equal(sum(found["histogram"]["counts"]), kept.size, f"{name}: histogram")
        t.equal(of("cube", "-s", "1,:2")["count"], 8, "a block")
        t.equal(int(of("number >i8")["max"]), int(f["number >i8"][()].max()), "whole numbers keep their digits")
    done = subprocess.run([options.bin, "summary", f"{target}:/words"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    t.check(done.returncode == 1 and b"no numbers" in done.stderr, f"strings: {done.stderr}")
    done = subprocess.run([options.bin, "summary", f"{target}:/"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    t.check(done.returncode == 1 and b"no dataset" in done.stderr, f"a group: {done.stderr}")
    shown = subprocess.run([options.bin, "summary", f"{target}:/big"], stdout=subprocess.PIPE, check=True).stdout.decode().splitlines()
    t.check(len(shown) == 22 and shown[1] == "  elements  300000", f"{shown}")


def one_string_for_all(path):
    """200,000 elements that are one string of 16 MiB: 3 TB of text in a file of 20 MiB."""
    with h5py.File(path, "w") as f:
        d = f.create_dataset("d", (200_000,), h5py.string_dtype())
        d[0] = "x" * (16 << 20)
        d[1:] = "y"
        offset = d.id.get_offset()
    with open(path, "r+b") as f:
        f.seek(offset)
        descriptor = f.read(16)
        f.seek(offset)
        f.write(descriptor * 200_000)


def sizes(t, options, path):
    """A long text shows its size after it was read to its end, and programs that go by it read all of it."""
    for target in (path, None):
        if target is None:
            target = path[:-3] + "-iod"
            subprocess.run([options.bin, "cp", "-r", path, f"iod:{target}"], check=True, stdin=subprocess.DEVNULL)
            target = f"iod:{target}"
        with harness.mounted(options.bin, target) as mount:
            file, copy = f"{mount}/.h5dir/csv/d.csv", path + ".csv"
            os.listdir(os.path.dirname(file))
            t.equal(os.stat(file).st_size, 0, "the size of a text that was not made")
            with open(file, "rb") as f:
                t.equal(os.fstat(f.fileno()).st_size, 0, "the size of a text that was opened")
                want = f.read()
                t.equal((os.fstat(f.fileno()).st_size, f.seek(0, os.SEEK_END)), (len(want), len(want)), "the size of a text that was read")
            t.equal(os.stat(file).st_size, len(want), "the size of a text that was read before")
            subprocess.run(["rsync", file, copy], check=True)
            t.check(harness.read(copy) == want == cat(options, "--csv", f"{path}:/d"), "rsync copies a text that was read")
            rows = duckdb.sql(f"select count(*) from read_csv('{file}', header=false)").fetchall()
            t.equal(rows, [(3_000_000,)], "DuckDB reads a text that was read before")
            file = f"{mount}/.h5dir/json/small.json"
            t.equal(os.stat(file).st_size, 0, "the size of JSON that was not made")
            t.equal(len(harness.read(file)), os.stat(file).st_size, "the size of JSON that was made")


def endless(t, options, path):
    """A dataset of 2^60 bytes that were never written: no request lasts."""
    with h5py.File(path, "w") as f:
        f.create_dataset("d", (1 << 57,), "<f8", chunks=(1 << 16,))
    with harness.mounted(options.bin, path) as mount:
        file = f"{mount}/.h5dir/csv/d.csv"
        t.equal(subprocess.run(["head", "-c", "8", file], stdout=subprocess.PIPE).stdout, b"0.0\n0.0\n", "its beginning")
        with open(file, "rb", buffering=0) as f:
            for at, what in ((1 << 50, lambda: f.read(1)), (0, lambda: os.lseek(f.fileno(), 0, os.SEEK_HOLE)),
                             (0, lambda: os.lseek(f.fileno(), 0, os.SEEK_DATA))):
                f.seek(at)
                try:
                    t.check(False, f"{what()}: nothing is refused")
                except OSError as e:
                    t.equal(e.errno, errno.EFBIG if at else errno.EINVAL, f"at {at}")
            f.seek(20 << 20)
            t.equal(f.read(4), b"0.0\n", "not far")


def hostile(t, options, path):
    one_string_for_all(path)
    row = b"x" * (16 << 20) + b"\n"
    first = subprocess.run([options.bin, "cat", "--csv", "-n", "1", f"{path}:/d"], stdout=subprocess.PIPE).stdout
    t.check(first == row, "the first row")
    with harness.mounted(options.bin, path) as mount:
        with open(f"{mount}/.h5dir/csv/d.csv", "rb") as f:
            t.equal(os.fstat(f.fileno()).st_size, 0, "the size is not sought")
            f.seek(2 * len(row) - 2)
            t.equal(f.read(4), b"x\nxx", "the third row")
        peak = harness.peak_memory(mount)
        t.check(peak < 400, f"memory of the mount: {peak} MiB")


def main():
    options = harness.arguments(__doc__)
    t = harness.Tally()
    with harness.folder(options.keep) as place:
        path, container = os.path.join(place, "tables.h5"), f"iod:{place}/container"
        make(path, np.random.default_rng(options.seed))
        subprocess.run([options.bin, "cp", "-r", path, container], check=True, stdin=subprocess.DEVNULL)
        forms(t, options, path)
        views(t, options, path, path)
        views(t, options, path, container)
        summaries(t, options, path, path)
        summaries(t, options, path, container)
        hostile(t, options, os.path.join(place, "hostile.h5"))
        endless(t, options, os.path.join(place, "endless.h5"))
        large, copy = os.path.join(place, "large.h5"), os.path.join(place, "copy.csv")
        with h5py.File(large, "w") as f:
            f["d"] = np.random.default_rng(1).random(3_000_000)
            f["small"] = 1
        subprocess.run([options.bin, "cp", f"{large}:/.h5dir/csv/d.csv", copy], check=True, stdin=subprocess.DEVNULL)
        t.check(harness.read(copy) == cat(options, "--csv", f"{large}:/d"), "a long text is copied")
        sizes(t, options, large)
    t.finish()


if __name__ == "__main__":
    main()
