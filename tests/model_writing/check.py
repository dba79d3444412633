"""Reads the files that the model test left, with stock h5py and h5dump: python check.py FOLDER.

N.h5 must hold what N.list says (bytes of datasets in N.data, one after another), and stay a file that
libhdf5 can change: things are added to every group of it and taken out again, and what was there is still there.
"""

import shutil
import subprocess
import sys
from pathlib import Path

import h5py
import hdf5plugin  # noqa: F401 - filters

FEW = 3


def name_of(text):
    return b"/".join(bytes.fromhex(p) for p in text.split("/")) or b"/"


def expected(path):
    data = path.with_suffix(".data").read_bytes()
    at, objects, attributes = 0, {b"/": ("group", None)}, {b"/": {}}
    for line in path.with_suffix(".list").read_text().splitlines()[1:]:
        kind, name, *rest = line.split(" ")
        key = name_of(name.rstrip("/")) if kind == "attribute" else name_of(name)
        if kind == "attribute":
            attributes[key][bytes.fromhex(rest[0])] = bytes.fromhex(rest[1].rstrip("."))
            continue
        size = int(rest[0]) if rest else 0
        objects[key] = (kind, data[at : at + size])
        attributes[key] = {}
        at += size
    return objects, attributes


def same_attributes(item, wanted, key):
    got = {n if isinstance(n, bytes) else n.encode(errors="surrogateescape") for n in item.attrs}
    assert got == set(wanted), (key, got ^ set(wanted))
    for name in got:
        value = item.attrs[name.decode()]
        if isinstance(value, str):
            assert value.encode() == wanted[name], (key, name, value, wanted[name])


def walk(f, objects, attributes):
    seen = set()

    def group(g, key):
        same_attributes(g, attributes[key], key)
        for name in g.id:
            below = key.rstrip(b"/") + b"/" + name
            if below not in objects:
                # Cut or escaped beyond what the list tells.
                assert len(name) > 250, below
                continue
            seen.add(below)
            kind, data = objects[below]
            info = g.id.links.get_info(name)
            if kind == "link":
                continue
            assert info.type == h5py.h5l.TYPE_HARD, (below, info.type)
            item = h5py.h5o.open(g.id, name)
            if kind == "group":
                group(h5py.Group(item), below)
            else:
                d = h5py.Dataset(item)
                got = d[()]
                got = got.tobytes() if hasattr(got, "tobytes") else got
                assert got == data, (below, d, len(data))
                same_attributes(d, attributes[below], below)

    group(f["/"], b"/")
    missing = {k for k in objects if k not in seen and k != b"/"}
    assert not missing, ("missing", missing)


def add(f, groups):
    for key in groups:
        g = f[key]
        if "zz group" in g:
            # Under another name.
            continue
        for i in range(FEW):
            d = g.create_dataset("zz py%d" % i, data=list(range(300)), maxshape=(None,), chunks=(64,))
            d.attrs["by"] = "python"
        for i in range(12):
            g.attrs["zz py%d" % i] = "x" * 40 * i
        g.create_group("zz group")


def take_out(f, groups):
    for key in groups:
        g = f[key]
        if "zz group" not in g:
            continue
        for i in range(FEW):
            assert g["zz py%d" % i].attrs["by"] == "python" and list(g["zz py%d" % i][:]) == list(range(300))
            del g["zz py%d" % i]
        for i in range(12):
            del g.attrs["zz py%d" % i]
        del g["zz group"]


def wipe(f, groups):
    """Takes out everything that was there, as libhdf5 counts its references."""
    for key in sorted(groups, key=len, reverse=True):
        g = f.get(key)
        if g is None:
            continue
        for name in list(g.id):
            item = g.get(name) if g.id.links.get_info(name).type == h5py.h5l.TYPE_HARD else None
            for a in list(item.attrs) if isinstance(item, h5py.Dataset) else []:
                del item.attrs[a]
            del item
            g.id.unlink(name)
        for a in list(g.attrs):
            del g.attrs[a]


def page_of(path):
    """Bytes of the file's pages, if its space is managed in pages; None else."""
    with h5py.File(path, "r") as f:
        plist = f.id.get_create_plist()
        if plist.get_file_space_strategy()[0] != h5py.h5f.FSPACE_STRATEGY_PAGE:
            return None
        size, user = plist.get_file_space_page_size(), plist.get_userblock()
    assert (path.stat().st_size - user) % size == 0, ("not whole pages", path.stat().st_size, size)
    return size


def check(path):
    objects, attributes = expected(path)
    with h5py.File(path, "r") as f:
        walk(f, objects, attributes)
    page = page_of(path)
    buffered = [{}] if page is None else [{}, {"page_buf_size": page * 4}]
    if page is not None:
        # What relies on pages: one kind of block in each, none beyond its end.
        with h5py.File(path, "r", page_buf_size=page * 2) as f:
            walk(f, objects, attributes)
    for options in buffered:
        change(path, objects, attributes, options)


def change(path, objects, attributes, options):
    copy = path.with_suffix(".copy.h5")
    shutil.copy(path, copy)
    groups = [k for k, (kind, _) in objects.items() if kind == "group"]
    for step in (add, take_out):
        with h5py.File(copy, "r+", **options) as f:
            step(f, groups)
    with h5py.File(copy, "r") as f:
        walk(f, objects, attributes)
    with h5py.File(copy, "r+", **options) as f:
        wipe(f, groups)
    with h5py.File(copy, "r+", **options) as f:
        assert not list(f) and not list(f.attrs), list(f)
        add(f, [b"/"])
    with h5py.File(copy, "r+") as f:
        take_out(f, [b"/"])
        assert not list(f) and not list(f.attrs), list(f)
    dump = lambda p: subprocess.run(["h5dump", "-H", p], capture_output=True, text=True)
    if shutil.which("h5dump") and dump(path.with_suffix(".start.h5")).returncode == 0:
        done = dump(path)
        assert done.returncode == 0, done.stderr


def main():
    wrong = 0
    paths = sorted(p for p in Path(sys.argv[1]).glob("*.h5") if p.name.count(".") == 1)
    for path in paths:
        try:
            check(path)
        except Exception as e:  # noqa: BLE001 - whatever it is, the file is wrong
            wrong += 1
            print(path.with_suffix(".list").read_text().splitlines()[0], f"{type(e).__name__}: {e!s:.600}")
    print(f"{len(paths)} files, {wrong} wrong")
    sys.exit(1 if wrong or not paths else 0)


main()
