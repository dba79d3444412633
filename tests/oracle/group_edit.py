"""libhdf5's side of the tests of changed groups (src/structures/group/edit_tests.rs).

  group_edit.py make FOLDER     writes NAME.h5 with groups /g and /many, objects /objects/0 .. 9
  group_edit.py check FOLDER    every NAME.json tells what must be in NAME.out; then h5py goes on changing it
"""
import json
import os
import random
import sys

import h5py
from h5py import h5p

LIBVERS = {"earliest": ("earliest", "latest"), "v108": ("v108", "v108"), "v110": ("v110", "v110")}


def make(folder):
    for libver, bounds in LIBVERS.items():
        for order in (False, True):
            name = f"{libver}_{'order' if order else 'plain'}"
            with h5py.File(os.path.join(folder, name + ".h5"), "w", libver=bounds) as f:
                objects = f.create_group("objects")
                for i in range(10):
                    objects.create_dataset(str(i), data=i)
                # Some links are there already: few, and many.
                for where, n in (("g", 5), ("many", 300)):
                    g = f.create_group(where, track_order=order)
                    for i in range(n):
                        g[f"first{i}"] = h5py.SoftLink(f"/objects/{i}")


def raw(name):
    """h5py gives a name that is not UTF-8 as bytes."""
    return name if isinstance(name, bytes) else name.encode()


def links(g):
    """Name in hex to what a link is; the creation order too."""
    found = {}

    def visit(name):
        info = g.id.links.get_info(name)
        value = g.id.links.get_val(name) if info.type != h5py.h5l.TYPE_HARD else None
        if info.type == h5py.h5l.TYPE_HARD:
            target = ["hard", h5py.h5o.get_info(g.id, name).addr]
        elif info.type == h5py.h5l.TYPE_SOFT:
            target = ["soft", value.hex()]
        else:
            target = ["external", value[0].hex(), value[1].hex()]
        found[name.hex()] = [target, info.corder if info.corder_valid else None, info.cset]

    g.id.links.iterate(visit)
    return found


def tracked(g):
    return bool(g.id.get_create_plist().get_link_creation_order() & h5p.CRT_ORDER_TRACKED)


def check_file(path, want):
    with h5py.File(path, "r") as f:
        for where, wanted in want["groups"].items():
            g = f[where]
            old, wanted = wanted["old"], wanted["links"]
            found = links(g)
            assert len(g) == len(wanted), (path, where, len(g), len(wanted))
            for name, (target, order, utf8) in wanted.items():
                got = found.pop(name)
                assert got[0] == target, (path, where, name, got, target)
                assert got[1] == order, (path, where, name, got, order)
                assert old or got[2] == utf8, (path, where, name, got, utf8)
            assert not found, (path, where, found)
            if tracked(g) and wanted:
                names = []
                g.id.links.iterate(names.append, idx_type=h5py.h5.INDEX_CRT_ORDER, order=h5py.h5.ITER_INC)
                orders = [wanted[n.hex()][1] for n in names]
                assert orders == sorted(orders) and len(orders) == len(wanted), (path, where)
        for i, count in enumerate(want["references"]):
            assert h5py.h5o.get_info(f[f"objects/{i}"].id).rc == count, (path, i)


def go_on(path, want):
    """h5py changes what was changed here."""
    rng = random.Random(path)
    with h5py.File(path, "r+") as f:
        for where in want["groups"]:
            g = f[where]
            model = set(map(raw, g))
            for k in range(300):
                if model and rng.random() < (0.35 if k < 150 else 0.8):
                    name = rng.choice(sorted(model))
                    g.id.unlink(name)
                    model.remove(name)
                else:
                    name = f"py{k}" + "x" * rng.choice((0, 10, 200))
                    g[name] = h5py.SoftLink("/somewhere") if rng.random() < 0.5 else f["objects/1"]
                    model.add(raw(name))
            assert set(map(raw, g)) == model, path
    with h5py.File(path, "r+") as f:
        for where in want["groups"]:
            g = f[where]
            for name in list(g):
                g.id.unlink(raw(name))
            assert len(g) == 0
            g["last"] = h5py.SoftLink("/x")
    with h5py.File(path, "r") as f:
        assert all(list(f[where]) == ["last"] for where in want["groups"])
        assert f["objects/7"][()] == 7


def check(folder):
    count = 0
    for file in sorted(os.listdir(folder)):
        if not file.endswith(".json"):
            continue
        with open(os.path.join(folder, file)) as f:
            want = json.load(f)
        path = os.path.join(folder, file[:-5] + ".out")
        check_file(path, want)
        go_on(path, want)
        count += 1
    print(count)


if __name__ == "__main__":
    {"make": make, "check": check}[sys.argv[1]](sys.argv[2])
