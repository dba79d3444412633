"""What netCDF says of a file that it made and that was changed since: ncdump takes it, and tells the values that are in it."""

import re
import shutil
import subprocess

import h5py
import netCDF4
import numpy as np


def ncdump(path, *options):
    done = subprocess.run(["ncdump", *options, path], capture_output=True, errors="surrogateescape")
    assert done.returncode == 0, ("ncdump", options, done.stderr)
    return done.stdout


def variables(group):
    yield from group.variables.values()
    for below in group.groups.values():
        yield from variables(below)


def number(word, kind):
    if kind != "f":
        return int(word)
    special = re.fullmatch(r"(-?)(NaN|Infinity)f?", word)
    return float(special[1] + special[2] if special else word)


def same_values(told, values, fill, inside):
    """`told` are ncdump's words for `values`; those that are not `inside` the dataset are filled."""
    words = told.replace("{", " ").replace("}", " ").replace(",", " ").split()
    assert len(words) == values.size, (len(words), values.size)
    for word, value, there in zip(words, values.flat, inside.flat):
        if word == "_":
            assert not there or value == fill, (word, value)
            continue
        read = values.dtype.type(number(word, values.dtype.kind))
        assert (read == value if there else read == fill) or (read != read and value != value), (word, value, there)


def fill_of(v):
    if "_FillValue" in v.ncattrs():
        return v.getncattr("_FillValue")
    return netCDF4.default_fillvals.get(v.dtype.str[1:])


def check(path, objects):
    """`objects`: by path, kind and bytes of all that must be there."""
    ncdump(path, "-h")
    text = ncdump(path, "-p", "9,17")
    seen = set()
    with h5py.File(path, "r") as f, netCDF4.Dataset(path) as n:
        n.set_auto_maskandscale(False)
        n.set_auto_chartostring(False)
        names = [v.name for v in variables(n)]
        for v in variables(n):
            key = (v.group().path.rstrip("/") + "/" + v.name).encode()
            kind, data = objects[key]
            assert kind == "dataset", key
            # Where another variable has more of an unlimited dimension, the rest is filled.
            own = tuple(slice(0, n) for n in f[key].shape)
            got = np.asarray(v[...])
            assert got[own].tobytes() == data, ("netCDF", key)
            seen.add(key)
            if v.dtype.kind in "iuf" and names.count(v.name) == 1 and re.fullmatch(r"\w+", v.name, re.A):
                told = re.search(rf"^ *{v.name} =(.*?) ?;$", text, re.M | re.S)
                inside = np.zeros(got.shape, bool)
                inside[own] = True
                # Of one without values it says nothing.
                same_values(told[1] if told else "", got, fill_of(v), inside)
        missing = {k for k, (kind, _) in objects.items() if kind == "dataset" and k not in seen and not only_dimension(f[k])}
        assert not missing, ("netCDF does not see", missing)
        ordered = all(f[k].id.get_create_plist().get_link_creation_order() for k, (kind, _) in objects.items() if kind == "group")
    if ordered:
        go_on(path)


def only_dimension(d):
    return bytes(d.attrs.get("NAME", b"")).startswith(b"This is a netCDF dimension but not a netCDF variable")


def go_on(path):
    """netCDF itself changes a file whose groups all know the order of their links."""
    copy = path.with_suffix(".copy.nc")
    shutil.copy(path, copy)
    with netCDF4.Dataset(copy, "r+") as n:
        n.changed = "by netCDF"
        n.createDimension("zz dim", 2)
        n.createVariable("zz", "i4", ("zz dim",))[:] = [1, 2]
    with netCDF4.Dataset(copy) as n:
        assert n.changed == "by netCDF" and list(n["zz"][:]) == [1, 2]
