"""Reads the files that the model test left, with stock h5py, h5dump and, those that netCDF made, netCDF and ncdump: model_check.py FOLDER.

N.h5 must hold what N.list says (bytes of datasets in N.data, one after another), and stay a file that
libhdf5 can change: things are added to every group of it and taken out again, and what was there is still there.
"""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import h5py
import hdf5plugin  # noqa: F401 - filters
import log_reader
import netcdf_check

FEW = 3
# Seconds that a file may take, and one of pages while libhdf5 changes it.
LIMIT, PAGED_LIMIT = 60, 10
# Stock libhdf5 2.0 does not always end when it closes a file of small pages that remembers its free space: H5MF_settle_meta_data_fsm
# goes on for ever, in one of 20 files that nothing but libhdf5 ever wrote. A file that was right until then passes, if these are few.
PAGED = "libhdf5 changes a file of pages"


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
    # Those of a dataset in a log.
    got = {n for n in got if not n.startswith(b"_log_")}
    # Texts of symbolic links, beside soft links that are there.
    texts = {n for n in got if n.startswith(b"_h5dir_posix:")}
    for name in texts:
        link = item.id.links.get_info(name.split(b":", 1)[1])
        assert link.type == h5py.h5l.TYPE_SOFT and b"text=" in item.attrs[name.decode()], (key, name)
    got -= texts
    assert got == set(wanted), (key, got ^ set(wanted))
    for name in got:
        value = item.attrs[name.decode()]
        if isinstance(value, str):
            assert value.encode() == wanted[name], (key, name, value, wanted[name])


def walk(f, objects, attributes):
    seen = set()
    log = log_reader.by_id(f)

    def group(g, key):
        same_attributes(g, attributes[key], key)
        for name in g.id:
            if key == b"/" and name == b"LOG" and b"/LOG" not in objects:
                continue
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
                got = log[int(d.attrs["_log_id"])] if "_log_id" in d.attrs else d[()]
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


def check(path, said):
    objects, attributes = expected(path)
    with h5py.File(path, "r") as f:
        walk(f, objects, attributes)
        is_netcdf = "_NCProperties" in f.attrs
    if is_netcdf:
        netcdf_check.check(path, objects)
    page = page_of(path)
    buffered = [{}] if page is None else [{}, {"page_buf_size": page * 4}]
    if page is not None:
        # What relies on pages: one kind of block in each, none beyond its end.
        with h5py.File(path, "r", page_buf_size=page * 2) as f:
            walk(f, objects, attributes)
    if page is not None:
        print(PAGED, file=said, flush=True)
        signal.alarm(PAGED_LIMIT * len(buffered))
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
    dump = lambda p: subprocess.run(["h5dump", p], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    # It may be older than the file's format.
    if dump(path.with_suffix(".start.h5")).returncode == 0:
        done = dump(path)
        assert done.returncode == 0, done.stderr


def apart(path):
    """Why a file is wrong, if it is. It is looked at in a process of its own, as it may hang."""
    with tempfile.TemporaryFile("w+") as said:
        child = os.fork()
        if child == 0:
            signal.alarm(LIMIT)
            try:
                check(path, said)
            except Exception as e:  # noqa: BLE001 - whatever it is, the file is wrong
                print(f"{type(e).__name__}: {e!s:.600}", file=said, flush=True)
                os._exit(1)
            os._exit(0)
        status = os.waitpid(child, 0)[1]
        said.seek(0)
        if status == signal.SIGALRM and said.read().strip() == PAGED:
            return PAGED
        said.seek(0)
        return f"{said.read()} (status {status})" if status else ""


def main():
    wrong = endless = 0
    for tool, package in (("h5dump", "hdf5-tools"), ("ncdump", "netcdf-bin")):
        if not shutil.which(tool):
            sys.exit(f"{tool} is missing: install {package}")
    paths = sorted(p for p in Path(sys.argv[1]).glob("*.h5") if p.name.count(".") == 1)
    for path in paths:
        why = apart(path)
        endless += why == PAGED
        if why and why != PAGED:
            wrong += 1
            print(path.with_suffix(".list").read_text().splitlines()[0], why)
    print(f"{len(paths)} files, {wrong} wrong, {endless} that libhdf5 did not close after it had changed them")
    sys.exit(1 if wrong or not paths or endless * 30 > len(paths) else 0)


main()
