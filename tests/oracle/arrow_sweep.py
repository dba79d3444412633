#!/usr/bin/env python3
"""Datasets as Arrow files: `h5dir cat --arrow` and the view arrow against h5py, as pyarrow, pandas, polars and DuckDB read them.

    arrow_sweep.py [--bin H5DIR] [--seed N] [--keep FOLDER]
"""
import errno
import gc
import mmap
import os
import random
import subprocess
import sys

import duckdb
import h5py
import numpy as np
import pandas
import polars
import pyarrow
import pyarrow.ipc

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import harness  # noqa: E402

# Their sizes are known before they are made, and they are mapped.
VARIABLE = {"words", "lists", "to", "places", "pairs"}
# Two-dimensional: a column a column.
ARRAYS = ["array <i4", "array >f8", "array <u2", "array >i8", "array <f4", "array |i1", "array <u8"]


def make(path, rng):
    with h5py.File(path, "w") as f:
        for dtype in ("<i4", ">f8", "<u2", ">i8", "<f4", "|i1", "<u8"):
            data = (rng.random((70, 9)) * 100).astype(dtype)
            f.create_dataset(f"array {dtype}", data=data, chunks=(16, 4), compression="gzip")
            f[f"line {dtype}"] = data.ravel()
        f["none"], f["empty rows"], f["scalar"] = np.zeros((0, 3)), np.zeros((4, 0)), 2.5
        f["null"] = h5py.Empty("<f4")
        f["half"] = np.array([1.5, -2, np.inf, np.nan], "<f2")
        f["cube"] = rng.random((5, 3, 4))
        f["wide"] = rng.random((3, 2000)).astype("<f4")
        f["large"] = rng.random(1_000_000)
        f["fixed"] = np.array([b"%d" % i * (i % 9) for i in range(300_000)], "S20")
        f["latin"] = np.array([b"caf\xe9", "caf\xe9".encode()], "S6")
        f["flags"] = rng.integers(0, 2, 1001).astype(bool)
        kinds = h5py.enum_dtype({"RED": 0, "GREEN": 1, "BLUE": 700}, ">i2")
        f["colours"] = np.array([1, 0, 700, 3], ">i2").astype(kinds)
        f["complex"] = rng.random(5) + 1j * rng.random(5)
        f["opaque"] = np.array([b"abc", b"\0\xff1"], "V3")
        nested = np.dtype([("n", "<i4"), ("x", ">f8"), ("in", [("name", "S4"), ("flag", "?")]), ("pair", "<i2", (2,)), ("colour", kinds)])
        table = np.zeros(50_000, nested)
        table["n"], table["x"] = np.arange(50_000), rng.random(50_000)
        table["in"]["name"], table["in"]["flag"] = [b"%d" % (i % 1000) for i in range(50_000)], table["n"] % 2
        table["pair"], table["colour"] = rng.integers(-9, 9, (50_000, 2)), table["n"] % 2
        f.create_dataset("table", data=table, chunks=(7000,), compression="lzf")
        f["table 2-D"] = table[:12].reshape(3, 4)
        f["time"] = np.arange(5, dtype="<i8") * 86400
        f["time"].attrs["units"] = "seconds since 2000-01-01 12:00"
        f["hours"] = np.array([0.25, 1e6, np.nan])
        f["hours"].attrs["units"], f["hours"].attrs["calendar"] = "hours since 1900-01-01", "standard"
        f["calendar"] = np.arange(2.0)
        f["calendar"].attrs["units"], f["calendar"].attrs["calendar"] = "days since 2000-01-01", "360_day"
        for unit in ("ns", "us", "ms", "s", "D"):
            stamps = np.array(["2020-01-01", "NaT", "1960-05-04"], f"M8[{unit}]")
            f.create_dataset(f"stamps {unit}", data=stamps.astype(h5py.opaque_dtype(stamps.dtype)))
        f.create_dataset("words", data=["", "x", "\u00e9\u4e2d", "a\nb"] * 200_000, dtype=h5py.string_dtype(), chunks=(1000,))
        f.create_dataset("lists", (3,), h5py.vlen_dtype("<i4"))[1] = [1, 2]
        f["to"] = np.array([f["cube"].ref, f["table"].ref], h5py.ref_dtype)
        places = np.dtype([("name", h5py.string_dtype()), ("at", "<f8")])
        f["places"] = np.array([("here", 1.5), ("there", 2.5)], places)
        pairs = f.create_dataset("pairs", (2, 2), h5py.string_dtype())
        pairs[:] = [["a", "b"], ["c", ""]]


def cat(options, *args, code=0):
    done = subprocess.run([options.bin, "cat", *args], stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL)
    assert done.returncode == code, (args, done.stderr)
    return done.stdout if code == 0 else done.stderr.decode()


def table_of(data):
    with pyarrow.ipc.open_file(pyarrow.py_buffer(data)) as reader:
        table = reader.read_all()
    table.validate(full=True)
    return table


def column(table, name="value"):
    return table.column(name).to_numpy()


def forms(t, options, path):
    """Values are those of h5py."""
    def of(name, *more):
        return table_of(cat(options, "--arrow", *more, f"{path}:/{name}"))

    with h5py.File(path) as f:
        for name in ARRAYS:
            data, table = f[name][()], of(name)
            t.equal(table.column_names, [str(i) for i in range(9)], f"{name}: names of columns")
            t.equal(table.schema.field("0").type, pyarrow.from_numpy_dtype(data.dtype.newbyteorder("=")), f"{name}: type")
            t.check(np.array_equal(np.stack([column(table, str(i)) for i in range(9)], 1), data), f"{name}: numbers")
            line = name.replace("array", "line")
            t.check(np.array_equal(column(of(line)), f[line][()]), f"{line}: numbers")
            for select, part in (("2:7,1:3", data[2:7, 1:3]), ("3", data[3:4]), (":,-1", data[:, -1:])):
                got = of(name, f"--select={select}")
                t.check(np.array_equal(np.stack([column(got, n) for n in got.column_names], 1), part), f"{name}[{select}]")
            frame = pandas.read_feather(pyarrow.BufferReader(cat(options, "--arrow", f"{path}:/{name}")))
            t.check(np.array_equal(frame.to_numpy(), data), f"{name}: pandas")
        for name in ("cube", "wide"):
            t.equal(of(name).column("value").to_pylist(), f[name][()].tolist(), f"{name}: lists")
        t.equal(of("cube", "-s", "1:3,:,2:4").column("value").to_pylist(), f["cube"][1:3, :, 2:4].tolist(), "lists of a block")
        t.check(np.array_equal(column(of("half")), f["half"][()].astype("f4"), equal_nan=True), "halves are floats")
        t.equal(of("fixed").column("value").to_pylist(), [s.decode() for s in f["fixed"][()]], "strings of fixed length")
        t.equal(of("latin").column("value").to_pylist(), ["caf?", "caf\xe9"], "bytes that are not UTF-8")
        t.equal(of("flags").column("value").to_pylist(), f["flags"][()].tolist(), "booleans")
        t.equal(of("colours").column("value").to_pylist(), ["GREEN", "RED", "BLUE", None], "enumeration")
        t.equal([complex(row["r"], row["i"]) for row in of("complex").to_pylist()], f["complex"][()].tolist(), "complex")
        t.equal(of("opaque").column("value").to_pylist(), [b"abc", b"\0\xff1"], "opaque")
        t.equal((of("none").num_rows, of("none").num_columns, of("empty rows").num_rows, of("null").num_rows), (0, 3, 0, 0), "without rows")
        t.equal(of("scalar").to_pylist(), [{"value": 2.5}], "scalar")
        data, table = f["table"][()], of("table")
        t.equal(table.column_names, ["n", "x", "in.name", "in.flag", "pair", "colour"], "names of columns")
        t.check(np.array_equal(column(table, "n"), data["n"]) and np.array_equal(column(table, "x"), data["x"]), "numbers of a compound")
        t.equal(table.column("in.name").to_pylist(), [s.decode() for s in data["in"]["name"]], "strings of a nested compound")
        t.equal(table.column("in.flag").to_pylist(), data["in"]["flag"].tolist(), "flags of a nested compound")
        t.equal(table.column("pair").to_pylist(), data["pair"].tolist(), "arrays of a compound")
        t.equal(table.column("colour").to_pylist(), ["GREEN" if n else "RED" for n in data["colour"]], "names of a compound")
        t.equal(column(of("table 2-D"), "n").tolist(), list(range(12)), "compounds of two dimensions")
        t.equal(of("words").column("value").to_pylist(), f["words"].asstr()[:].tolist(), "strings")
        t.equal(of("lists").column("value").to_pylist(), [[], [1, 2], []], "sequences")
        t.equal(of("to").column("value").to_pylist(), ["/cube", "/table"], "references")
        t.equal(of("places").to_pylist(), [{"name": "here", "at": 1.5}, {"name": "there", "at": 2.5}], "compounds with strings")
        t.equal(of("pairs").to_pylist(), [{"0": "a", "1": "b"}, {"0": "c", "1": ""}], "rows of strings")
    day = [np.datetime64("2000-01-01T12") + np.timedelta64(i, "D") for i in range(5)]
    t.equal(column(of("time")).astype("M8[us]").tolist(), [d.astype("M8[us]").item() for d in day], "CF times")
    t.equal([str(x) for x in of("hours").column("value").to_pylist()], ["1900-01-01 00:15:00", "2014-01-29 16:00:00", "None"], "hours")
    t.equal(of("calendar").column("value").to_pylist(), [0.0, 1.0], "another calendar")
    for unit in ("ns", "us", "ms", "s", "D"):
        got = of(f"stamps {unit}").column("value")
        t.equal([str(x)[:10] for x in got.to_pylist()], ["2020-01-01", "None", "1960-05-04"], f"datetime64[{unit}]")
        t.equal(got.type, pyarrow.timestamp(unit if unit != "D" else "s"), f"datetime64[{unit}]: type")
    said = cat(options, "--arrow", "-n", "2", f"{path}:/cube", code=2)
    t.check("--select" in said, said)


def views(t, options, path, target):
    """The files of the view are what the command prints, read in order, anywhere, and mapped."""
    rng = random.Random(options.seed)
    with harness.mounted(options.bin, target) as mount, h5py.File(path) as f:
        folder = os.path.join(mount, ".h5dir", "arrow")
        t.equal(sorted(os.listdir(folder)), sorted(f"{name}.arrow" for name in f), "names")
        for name in f:
            file, want = os.path.join(folder, f"{name}.arrow"), cat(options, "--arrow", f"{path}:/{name}")
            if name not in VARIABLE:
                t.equal(os.stat(file).st_size, len(want), f"{name}: the size before it was read")
            with open(file, "rb") as part:
                for _ in range(6):
                    at = rng.randrange(len(want) + 1)
                    part.seek(at)
                    t.check(part.read(rng.choice([1, 700, 70_000])) == want[at:part.tell()], f"{target}: {name} at {at}")
            t.check(harness.read(file) == want, f"{target}: {name}")
            t.equal(os.stat(file).st_size, len(want), f"{name}: the size")
            t.equal(polars.read_ipc(file).height, table_of(want).num_rows, f"{name}: rows that polars reads")
            if name in VARIABLE:
                continue
            with open(file, "rb") as part, mmap.mmap(part.fileno(), 0, prot=mmap.PROT_READ) as mapped:
                t.check(mapped[:] == want, f"{name}: mapped")
        programs(t, f, folder)
        # What is mapped keeps the mount busy.
        gc.collect()


def programs(t, f, folder):
    """Programs read and map the files of the view."""
    large = f"{folder}/large.arrow"
    with pyarrow.memory_map(large) as source:
        table = pyarrow.ipc.open_file(source).read_all()
        t.check(np.array_equal(column(table), f["large"][()]), "pyarrow maps the view")
        total = duckdb.sql("select sum(value), count(*) from \"table\"").fetchall()[0]
        t.check(np.isclose(total[0], f["large"][()].sum()) and total[1] == 1_000_000, "DuckDB takes the mapped table")
    with pyarrow.memory_map(large) as source:
        reader = pyarrow.ipc.open_file(source)
        last = reader.get_batch(reader.num_record_batches - 1)
        t.equal(last.column(0)[-1].as_py(), f["large"][-1], "the last batch alone")
    frame = pandas.read_feather(f"{folder}/table.arrow")
    t.check(np.array_equal(frame["x"], f["table"]["x"]) and str(frame["colour"].dtype) == "category", "pandas reads the view")
    found = polars.scan_ipc(f"{folder}/table.arrow").filter(polars.col("n") > 49_990).select(polars.col("n").sum()).collect().item()
    t.equal(found, sum(range(49_991, 50_000)), "polars scans the view")
    words = pyarrow.ipc.open_file(f"{folder}/words.arrow").read_all()
    t.equal(words.num_rows, 800_000, "strings whose size was found when they were read")


def changing(t, options, place):
    """A mount that changes a dataset, and one that follows, show the rows that there are."""
    path = os.path.join(place, "changing.h5")
    with h5py.File(path, "w") as f:
        f.create_dataset("d", data=np.arange(10), maxshape=(None,), chunks=(100,))
    with harness.mounted(options.bin, path, "--read-write") as mount:
        file = f"{mount}/.h5dir/arrow/d.arrow"
        t.equal(column(table_of(harness.read(file))).tolist(), list(range(10)), "before")
        with open(f"{mount}/d", "ab") as f:
            f.write(np.arange(10, 500_000).tobytes())
        t.check(np.array_equal(column(table_of(harness.read(file))), np.arange(500_000)), "after rows were appended")


def endless(t, options, path):
    """Datasets of claimed sizes that no memory holds: any part of a file costs little, or it is refused."""
    with h5py.File(path, "w") as f:
        f.create_dataset("rows", (1 << 36,), "<f8", chunks=(1 << 16,))
        f.create_dataset("more rows", (1 << 50,), "<f8", chunks=(1 << 16,))
        f.create_dataset("strings", (1 << 50,), "S100", chunks=(1 << 10,))
        f.create_dataset("words", (1 << 50,), h5py.string_dtype(), chunks=(1 << 10,))
        f.create_dataset("row", (2, 1 << 40), "<f8", chunks=(1, 1 << 16))
        f.create_dataset("tensor", (1 << 20, 1 << 20, 1 << 20), "u1", chunks=(1, 1, 1 << 16))
    with harness.mounted(options.bin, path) as mount:
        folder = f"{mount}/.h5dir/arrow"
        os.listdir(folder)
        size = os.stat(f"{folder}/rows.arrow").st_size
        t.check(8 << 36 < size < 9 << 36, f"{size} bytes")
        with open(f"{folder}/rows.arrow", "rb") as f:
            f.seek(size - 6)
            t.equal(f.read(), b"ARROW1", "the end of 512 GiB")
            f.seek(size // 2)
            t.equal(len(f.read(4096)), 4096, "the middle of 512 GiB")
            reader = pyarrow.ipc.open_file(f)
            t.equal(reader.get_batch(reader.num_record_batches - 1).column(0)[-1].as_py(), 0.0, "the last batch of 512 GiB")
        for name in ("more rows", "strings", "words", "row", "tensor"):
            try:
                harness.read(f"{folder}/{name}.arrow")
                t.check(False, f"{name} was read")
            except OSError as e:
                t.check(e.errno in (errno.EFBIG, errno.EACCES), f"{name}: {e}")
        peak = harness.peak_memory(mount)
        t.check(peak < 400, f"memory of the mount: {peak} MiB")
    said = cat(options, "--arrow", f"{path}:/more rows", code=1)
    t.check("too many rows" in said, said)


def hostile(t, options, path):
    """200,000 strings that are one of 16 MiB."""
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
    with harness.mounted(options.bin, path) as mount:
        with open(f"{mount}/.h5dir/arrow/d.arrow", "rb") as f:
            t.equal(os.fstat(f.fileno()).st_size, 0, "the size is not sought")
            reader = pyarrow.ipc.open_stream(pyarrow.py_buffer(f.read(40 << 20)[8:]))
            t.equal(len(reader.read_next_batch().column(0)[0].as_py()), 16 << 20, "the first row")
        peak = harness.peak_memory(mount)
        t.check(peak < 500, f"memory of the mount: {peak} MiB")


def main():
    options = harness.arguments(__doc__)
    t = harness.Tally()
    with harness.folder(options.keep) as place:
        path, container = os.path.join(place, "arrow.h5"), f"iod:{place}/container"
        make(path, np.random.default_rng(options.seed))
        subprocess.run([options.bin, "cp", "-r", path, container], check=True, stdin=subprocess.DEVNULL)
        forms(t, options, path)
        views(t, options, path, path)
        views(t, options, path, container)
        changing(t, options, place)
        endless(t, options, os.path.join(place, "endless.h5"))
        hostile(t, options, os.path.join(place, "hostile.h5"))
    t.finish()


if __name__ == "__main__":
    main()
