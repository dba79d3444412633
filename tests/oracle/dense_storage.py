"""What libhdf5 makes of dense links and attributes that the tests of this layer changed.

make FILE              two groups with links and attributes in dense storage; prints their addresses
check FILE STATE       compares the file with STATE
change FILE STATE SEED changes the file with libhdf5, and STATE with it

STATE has lines: group, "link" or "attr", name, soft link path or bytes in hexadecimal, tab-separated.
"""
import random
import subprocess
import sys

import h5py
import numpy as np

GROUPS = ("plain", "ordered")


def load(path):
    state = {(g, k): {} for g in GROUPS for k in ("link", "attr")}
    with open(path) as f:
        for line in f:
            g, k, name, value = line.rstrip("\n").split("\t")
            state[g, k][name] = value
    return state


def save(path, state):
    with open(path, "w") as f:
        for (g, k), items in state.items():
            for name, value in items.items():
                f.write(f"{g}\t{k}\t{name}\t{value}\n")


def add(group, kind, name, value):
    if kind == "link":
        group[name] = h5py.SoftLink(value)
    else:
        group.attrs.create(name, np.frombuffer(bytes.fromhex(value), dtype="i1"))


def make(path):
    with h5py.File(path, "w", libver="latest") as f:
        for g in GROUPS:
            group = f.create_group(g, track_order=g == "ordered")
            for n in range(20):
                add(group, "link", f"first{n}", f"/target{n}")
                add(group, "attr", f"first{n}", bytes([n + 1, n]).hex())
            print(h5py.h5o.get_info(group.id).addr)


def check(path, state):
    state = load(state)
    with h5py.File(path, "r") as f:
        for g in GROUPS:
            links, attrs = state[g, "link"], state[g, "attr"]
            assert len(f[g]) == len(links), (g, len(f[g]), len(links))
            assert sorted(f[g]) == sorted(links), g
            for name, value in links.items():
                assert f[g].get(name, getlink=True).path == value, (g, name)
            assert f[g].get("missing", getlink=True, default=None) is None
            assert len(f[g].attrs) == len(attrs), (g, len(f[g].attrs), len(attrs))
            assert sorted(f[g].attrs) == sorted(attrs), g
            for name, value in attrs.items():
                assert bytes(f[g].attrs[name]).hex() == value, (g, name)
            order = []
            if g == "ordered":
                group = f[g]
                group.id.links.iterate(order.append, idx_type=h5py.h5.INDEX_CRT_ORDER)
                assert sorted(n.decode() for n in order) == sorted(links), g
    for command in (["h5dump", "-A", path], ["h5stat", path]):
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0 and "error" not in done.stderr.lower(), done.stderr[-2000:]


def change(path, state_path, seed):
    state, r = load(state_path), random.Random(int(seed))
    with h5py.File(path, "r+", libver="latest") as f:
        for (g, k), items in state.items():
            group = f[g]
            for name in r.sample(sorted(items), len(items) // 2):
                del items[name]
                if k == "link":
                    del group[name]
                else:
                    del group.attrs[name]
            for n in range(60 + len(items) // 2):
                name = f"py{seed}-{n}" + "x" * r.choice([0, 10, 200])
                size = r.choice([1, 30, 300, 3000, 5000])
                value = "/" + "p" * size if k == "link" else r.randbytes(size).hex()
                add(group, k, name, value)
                items[name] = value
            for name in r.sample(sorted(items), len(items) // 3):
                del items[name]
                if k == "link":
                    del group[name]
                else:
                    del group.attrs[name]
    save(state_path, state)
    check(path, state_path)


{"make": make, "check": check, "change": change}[sys.argv[1]](*sys.argv[2:])
