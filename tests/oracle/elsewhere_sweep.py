#!/usr/bin/env python3
"""Datasets whose elements are in raw files or other datasets: created in a mount and by `h5dir virtual`, read by h5py, copied, killed."""
import errno
import json
import os
import random
import shutil
import signal
import subprocess
import time

# Raw files are beside the HDF5 file; libhdf5 looks in the working directory.
os.environ["HDF5_EXTFILE_PREFIX"] = "${ORIGIN}"

import h5py
import numpy as np

import harness

UNLIMITED = h5py.h5f.UNLIMITED if hasattr(h5py.h5f, "UNLIMITED") else 2**64 - 1


def run(options, *args, code=0, cwd=None):
    done = subprocess.run([options.bin, *args], capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=120, cwd=cwd)
    assert done.returncode == code, (args, done)
    return done.stdout + done.stderr


def become(path, description):
    """Makes the file `path`; returns the errno of the description, 0 for success."""
    if not os.path.exists(path):
        open(path, "xb").close()
    try:
        os.setxattr(path, "user.h5dir.dataset", json.dumps(description).encode())
    except OSError as e:
        return e.errno
    return 0


def new(folder, name, options, *args):
    path = os.path.join(folder, name)
    run(options, "create", *args, path)
    return path


def external(t, options, folder, rng):
    path = new(folder, "external.h5", options)
    cases = {
        "one": ((6,), None, [["one.raw", 0, 24]]),
        "offset": ((4, 5), None, [["offset.raw", 100, 80]]),
        "three": ((7, 3), None, [["a.raw", 8, 20], ["b.raw", 0, 40], ["c.raw", 3, 24]]),
        "open end": ((10,), None, [["d.raw", 5, 16], ["e.raw", 0, None]]),
        "grows": ((3, 4), [None, 4], [["f.raw", 0, None]]),
        "bounded": ((2, 4), [5, 4], [["g.raw", 0, 80]]),
        "below": ((3,), None, [["sub/h.raw", 1, 12]]),
        "scalar": ((), None, [["i.raw", 2, 4]]),
    }
    os.mkdir(os.path.join(folder, "sub"))
    with harness.mounted(options.bin, path, "--read-write", "--external", "--external-write", f"--external-root={folder}") as m:
        for name, (shape, maxshape, files) in cases.items():
            d = {"dtype": "<i4", "shape": list(shape), "layout": "external",
                 "external": files if len(name) % 2 else [dict(zip(("file", "offset", "size"), f)) for f in files]}
            if maxshape:
                d["maxshape"] = maxshape
            t.equal(become(f"{m}/{name}", d), 0, f"{name}: description")
            data = rng.integers(0, 2**31, shape).astype("<i4")
            with open(f"{m}/{name}", "r+b") as f:
                f.write(data.tobytes())
                os.fsync(f.fileno())
            t.equal(harness.read(f"{m}/{name}"), data.tobytes(), f"{name}: read back")
            t.equal(harness.fact(f"{m}/{name}", "layout"), "external", f"{name}: layout")
            stored = [[s["file"], s["offset"], s["size"]] for s in json.loads(harness.fact(f"{m}/{name}", "external"))]
            t.equal(stored, files, f"{name}: the fact external")
            cases[name] = (shape, maxshape, files, data)
        refused(t, m, folder)
    with h5py.File(path, "r") as f:
        for name, (shape, maxshape, files, data) in cases.items():
            d = f[name]
            t.check(np.array_equal(d[()], data) and d.shape == shape, f"{name}: h5py reads the elements")
            t.equal([list(e) for e in d.external], [[n, o, UNLIMITED if s is None else s] for n, o, s in files], f"{name}: segments of h5py")
            if maxshape:
                t.equal(list(d.maxshape), maxshape, f"{name}: maxshape")
    raw = b"".join(harness.read(f"{folder}/{n}")[o:o + (s or 10**6)] for n, o, s in cases["three"][2])
    t.equal(raw, cases["three"][3].tobytes(), "the bytes are in the raw files")
    before = np.arange(24, dtype="<i4").reshape(6, 4)
    with h5py.File(path, "r+") as f:
        f["grows"].id.set_extent((6, 4))
        f["grows"][:] = before
        f["one"][1:3] = [7, 8]
    with harness.mounted(options.bin, path, "--external") as m:
        t.equal(harness.read(f"{m}/grows"), before.tobytes(), "h5py extended an external dataset")
        t.equal(np.frombuffer(harness.read(f"{m}/one"), "<i4")[1:3].tolist(), [7, 8], "h5py wrote an external dataset")
    out = run(options, "check", "--data", path)
    t.check("belong to no structure" not in out, out)
    # Without leave to write, and without leave to read.
    with harness.mounted(options.bin, path, "--read-write", "--external") as m:
        try:
            with open(f"{m}/one", "r+b") as f:
                f.write(b"1234")
            wrote = 0
        except OSError as e:
            wrote = e.errno
        t.check(wrote in (errno.EACCES, errno.EROFS), f"a write without --external-write: {wrote}")
        t.check("--external-write" in os.getxattr(f"{m}/one", "user.h5dir.error").decode(), "the reason names the option")
    with harness.mounted(options.bin, path, "--read-write", "--external=off") as m:
        t.equal(become(f"{m}/no", {"dtype": "<i4", "shape": [1], "layout": "external", "external": [["no.raw", 0, 4]]}), errno.EACCES, "no other files")
    copy = os.path.join(folder, "copied.h5")
    run(options, "cp", "-r", f"{path}:/", f"{copy}:/", "--create")
    with h5py.File(copy) as f, h5py.File(path) as g:
        for name in cases:
            t.check(f[name].external is None and np.array_equal(f[name][()], g[name][()]), f"{name}: a copy has its own elements")


def refused(t, m, folder):
    base = {"dtype": "<i4", "shape": [6], "layout": "external"}
    for what, files, code in (("outside", [["/etc/passwd", 0, 24]], errno.EACCES), ("above", [["../x.raw", 0, 24]], errno.EACCES),
                              ("hidden", [[".x.raw", 0, 24]], errno.EACCES), ("journal", [["x.h5dir-journal", 0, 24]], errno.EACCES),
                              ("short", [["x.raw", 0, 20]], errno.EINVAL), ("open first", [["x.raw", 0, None], ["y.raw", 0, 4]], errno.EINVAL),
                              ("no bytes", [["x.raw", 0, 0], ["y.raw", 0, 24]], errno.EINVAL), ("far", [["x.raw", 2**63 - 4, 24]], errno.EINVAL),
                              ("no name", [["", 0, 24]], errno.EINVAL), ("nothing", [], errno.EINVAL)):
        t.equal(become(f"{m}/refused {what}", dict(base, external=files)), code, f"external: {what}")
        t.check(len(os.getxattr(f"{m}/refused {what}", "user.h5dir.error")) > 10, f"external: {what}: a reason")
    files = [["x.raw", 0, None]]
    for what, more in (("vlen", {"dtype": "str"}), ("chunks", {"chunks": [2]}), ("filters", {"filters": ["deflate 1"]}), ("other layout", {"layout": "chunked"}),
                       ("second dimension", {"shape": [2, 3], "maxshape": [2, None]}), ("unlimited", {"external": [["x.raw", 0, 24]], "maxshape": [None]}),
                       ("without files", {"external": None}), ("both", {"virtual": [{"source": ".:/x"}]})):
        d = dict(base, external=files, **{k: v for k, v in more.items() if k != "external"})
        if "external" in more:
            d["external"] = more["external"]
            if more["external"] is None:
                del d["external"]
        t.equal(become(f"{m}/refused {what}", d), errno.EINVAL, f"external: {what}")
    with open(f"{m}/refused has bytes", "wb") as f:
        f.write(b"1234")
    t.equal(become(f"{m}/refused has bytes", dict(base, external=files)), errno.EINVAL, "external: a file with bytes")
    for name in os.listdir(m):
        if name.startswith("refused"):
            os.unlink(f"{m}/{name}")
    t.check(not os.path.exists(f"{folder}/x.raw"), "nothing was made for what was refused")


def virtual(t, options, folder, rng):
    shapes = [(4, 6), (3, 6), (5, 6)]
    data = [rng.integers(0, 1000, s).astype("<i4") for s in shapes]
    for i, d in enumerate(data):
        with h5py.File(f"{folder}/run_{i}.h5", "w") as f:
            f["frames"] = d
            f.create_dataset("grow", data=d, maxshape=(None, 6), chunks=(2, 3))
            f["same"] = d[:3]
    path = new(folder, "virtual.h5", options)
    a, b, c = data
    def mixed():
        out = np.full((6, 6), -1, "<i4")
        out[0:6:2, 1:4] = a[0:3, 0:3]
        out[1, :] = c[4, :]
        out[3:5, 4:6] = b[1:3, 0:4:2]
        return out
    blocks = np.full(12, -1, "<i4")
    for i in range(3):
        blocks[4 * i:4 * i + 2] = b[0, 2 * i:2 * i + 2]
    d = {"dtype": "<i4", "fillvalue": -1}
    cases = {
        "whole": (dict(d, shape=[4, 6], virtual=[{"source": "run_0.h5:/frames"}]), a),
        "mixed": (dict(d, shape=[6, 6], virtual=[
            {"source": "run_0.h5:/frames", "select": "0:3,0:3", "at": "0:6:2,1:4"},
            {"source": "run_2.h5:/frames", "select": "4,:", "at": "1,:"},
            {"source": "run_1.h5:/frames", "select": "1:3,0:4:2", "at": "3:5,4:6"}]), mixed()),
        "blocks": (dict(d, shape=[12], virtual=[{"source": "run_1.h5:/frames", "select": "0,:", "at": "0:12:4*2"}]), blocks),
        "rank": (dict(d, shape=[3, 4, 6], virtual=[{"source": "run_0.h5:/frames", "at": "1,:,:"}]),
                 np.stack([np.full((4, 6), -1), a, np.full((4, 6), -1)]).astype("<i4")),
        "unlimited": (dict(d, shape=[0, 6], maxshape=[None, 6], virtual=[{"source": "run_1.h5:/grow", "at": "0:inf,:"}]), b),
        "unlimited step": (dict(d, shape=[0, 6], maxshape=[None, 6], virtual=[{"source": "run_1.h5:/grow", "select": "1:inf:2,:", "at": "0:inf,:"}]), b[1::2]),
        "printf": (dict(d, shape=[0, 6], maxshape=[None, 6], virtual=[{"source": "run_%b.h5:/same", "select": "0:3,:", "at": "0:inf,:"}]),
                   np.concatenate([x[:3] for x in data])),
        "printf gaps": (dict(d, shape=[0, 6], maxshape=[None, 6], virtual=[{"source": "run_%b.h5:/same", "select": "0:2,:", "at": "0:inf:3,:"}]), None),
        "own file": (dict(d, shape=[2, 6], virtual=[{"source": ".:/whole", "select": "0:4:2,:"}]), a[0:4:2]),
        "missing": (dict(d, shape=[2, 2], virtual=[{"source": "none.h5:/x", "at": "0,:", "select": "0:2"}]), np.full((2, 2), -1, "<i4")),
    }
    with harness.mounted(options.bin, path, "--read-write", "--external") as m:
        for name, (description, want) in cases.items():
            t.equal(become(f"{m}/{name}", description), 0, f"{name}: description")
            t.equal(harness.fact(f"{m}/{name}", "layout"), "virtual", f"{name}: layout")
            if want is not None and name != "missing":
                t.equal(harness.read(f"{m}/{name}"), want.tobytes(), f"{name}: elements")
        facts = {name: json.loads(harness.fact(f"{m}/{name}", "virtual")) for name in cases}
        for name, (description, _) in cases.items():
            again = dict(description, virtual=facts[name])
            t.equal(become(f"{m}/again {name}", again), 0, f"{name}: what the fact shows makes the same")
            t.equal(json.loads(harness.fact(f"{m}/again {name}", "virtual")), facts[name], f"{name}: the fact of the same")
        for what, more in (("count", {"shape": [4], "virtual": [{"source": "a.h5:/x", "select": "0:3", "at": "0:4"}]}),
                           ("rank", {"shape": [4], "virtual": [{"source": "a.h5:/x", "at": "0:2,0:2"}]}),
                           ("no path", {"shape": [4], "virtual": [{"source": "a.h5"}]}),
                           ("no shape", {"virtual": [{"source": "a.h5:/x"}]}),
                           ("no source", {"shape": [4], "virtual": []}),
                           ("chunks", {"shape": [4], "chunks": [2], "virtual": [{"source": "a.h5:/x"}]}),
                           ("half unlimited", {"shape": [0], "maxshape": [None], "virtual": [{"source": "a.h5:/x", "select": "0:3", "at": "0:inf"}]}),
                           ("printf", {"shape": [0], "maxshape": [None], "virtual": [{"source": "a%b.h5:/x", "at": "0:inf"}]}),
                           ("overlap", {"shape": [9], "virtual": [{"source": "a.h5:/x", "select": "0:6", "at": "0:9:2*3"}]}),
                           ("no text", {"shape": [9], "virtual": [{"source": "a.h5:/x", "select": 3}]}),
                           ("huge", {"shape": [2**62], "virtual": [{"source": "a.h5:/x", "select": "0:4", "at": f"{2**63}:{2**64 + 5}"}]}),
                           ("without sources", {"shape": [4], "layout": "virtual"})):
            t.equal(become(f"{m}/bad", dict(d, **more)), errno.EINVAL, f"virtual: {what}")
    with h5py.File(path, "r") as f:
        for name, (description, want) in cases.items():
            for name in (name, f"again {name}"):
                t.check(f[name].is_virtual, f"{name}: h5py: virtual")
                if want is not None:
                    t.check(f[name].shape == want.shape and np.array_equal(f[name][()], want), f"{name}: h5py reads {f[name].shape}")
        t.check(np.array_equal(f["printf gaps"][0:2], a[:2]) and (f["printf gaps"][2] == -1).all(), "printf with gaps")
    with h5py.File(f"{folder}/run_1.h5", "r+") as f:
        f["grow"].resize((9, 6))
        f["grow"][3:] = 5
    with h5py.File(path, "r") as f:
        t.equal(f["unlimited"].shape, (9, 6), "the dataset grows with its source")
    with h5py.File(path, "r+") as f:
        del f["again rank"], f["again blocks"]
        f["after"] = 1
    run(options, "check", path)
    old = new(folder, "old.h5", options, "--libver=earliest")
    with harness.mounted(options.bin, old, "--read-write") as m:
        t.equal(become(f"{m}/v", cases["whole"][0]), errno.EINVAL, "a file for every release has no virtual datasets")
    copies(t, options, folder, path, a)


def copies(t, options, folder, path, a):
    with h5py.File(path) as f:
        want = {name: f[name][()] for name in f}
        mapped = {name: [tuple(s[1:3]) for s in f[name].virtual_sources()] for name in f if f[name].is_virtual}
        kept = [name for name in f if f[name].is_virtual]
    copy, flat = os.path.join(folder, "copy.h5"), os.path.join(folder, "flat.h5")
    run(options, "cp", "-r", f"{path}:/", f"{copy}:/", "--create")
    with h5py.File(copy) as f:
        for name in kept:
            t.check(f[name].is_virtual, f"{name}: a copy is virtual")
            t.equal([tuple(s[1:3]) for s in f[name].virtual_sources()], mapped[name], f"{name}: sources as stored")
            t.check("own file" in name or np.array_equal(f[name][()], want[name]), f"{name}: a copy has the elements")
    t.equal(run(options, "diff", "-r", f"{copy}:/printf", f"{path}:/printf"), "", "no difference")
    # The last one of -L and -P counts.
    run(options, "cp", "-r", "-LP", f"{path}:/rank", f"{folder}/again.h5:/", "--create")
    with h5py.File(f"{folder}/again.h5") as f:
        t.check(f["rank"].is_virtual, "-LP")
    for flag in ("--dereference", "-L", "-PL"):
        shutil.rmtree(f"{folder}/other", ignore_errors=True)
        os.mkdir(f"{folder}/other")
        flat = f"{folder}/other/flat.h5"
        run(options, "cp", "-r", flag, f"{path}:/printf", f"{path}:/unlimited", f"{path}:/rank", f"{flat}:/", "--create")
        with h5py.File(flat) as f:
            for name in f:
                t.check(not f[name].is_virtual and np.array_equal(f[name][()], want[name]), f"{name}: {flag}")
    # Where the sources are not found: a warning, also where the extent is theirs.
    for name in sorted(kept):
        shutil.rmtree(f"{folder}/other", ignore_errors=True)
        os.mkdir(f"{folder}/other")
        made = subprocess.run([options.bin, "cp", f"{path}:/{name}", f"{folder}/other/v.h5:/", "--create"], capture_output=True, text=True)
        named = any(file not in (".", os.path.basename(path)) and "%" not in file for file, _ in mapped[name])
        t.equal((made.returncode, "is not where the copy is" in made.stderr), (0, named), f"{name}: {made.stderr}")
    run(options, "cp", "-r", f"{path}:/printf", f"iod:{folder}/c:/p", "--create")
    run(options, "cp", "-r", f"iod:{folder}/c:/p", f"{folder}/back.h5:/p", "--create")
    with h5py.File(f"{folder}/back.h5") as f:
        t.check(np.array_equal(f["p"][()], want["printf"]), "a container gets the elements")
    run(options, "cp", f"{path}:/rank", f"{folder}/rank.raw")
    t.equal(harness.read(f"{folder}/rank.raw"), want["rank"].tobytes(), "a local file gets the bytes")
    # A selection that no text states.
    odd = os.path.join(folder, "odd.h5")
    with h5py.File(odd, "w", libver="latest") as f:
        f["s"] = np.arange(24).reshape(4, 6)
        plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        plist.set_layout(h5py.h5d.VIRTUAL)
        at, source = h5py.h5s.create_simple((5,)), h5py.h5s.create_simple((4, 6))
        source.select_hyperslab((0, 1), (1, 2))
        source.select_hyperslab((2, 0), (1, 3), op=h5py.h5s.SELECT_OR)
        plist.set_virtual(at, b".", b"s", source)
        h5py.h5d.create(f.id, b"blocks", h5py.h5t.NATIVE_INT64, h5py.h5s.create_simple((5,)), plist)
    run(options, "cp", "-r", f"{odd}:/", f"{folder}/odd2.h5:/", "--create")
    with h5py.File(f"{folder}/odd2.h5") as f:
        t.check(f["blocks"].is_virtual and f["blocks"][()].tolist() == [1, 2, 12, 13, 14], "unions of blocks are copied")


def command(t, options, folder, rng):
    os.makedirs(f"{folder}/runs")
    parts = []
    for i in (1, 2, 10):
        parts.append(rng.random((2, 3, 4)).astype(">f4"))
        with h5py.File(f"{folder}/runs/r{i}.h5", "w") as f:
            f["g/x"] = parts[-1]
            f[f"n{i}"] = np.arange(i + 1)
            f["text"] = np.array([b"ab", b"c"], "S3")
    new_file = f"{folder}/all.h5"
    for axis in (0, 1, 2):
        run(options, "virtual", f"{new_file}:/axis{axis}", f"{folder}/runs/r*.h5:/g/x", "--axis", str(axis))
    for axis in (0, 1, 3):
        run(options, "virtual", f"{new_file}:/stack{axis}", f"{folder}/runs/r*.h5:/g/x", "--axis", str(axis), "--stack")
    run(options, "virtual", "all.h5:/ragged", "runs/r1.h5:/n1", "runs/r2.h5:/n2", "runs/r10.h5:/n10", cwd=folder)
    run(options, "virtual", "all.h5:/text", "runs/r?.h5:/text", cwd=folder)
    run(options, "virtual", f"{new_file}:/own", f"{new_file}:/axis0", f"{new_file}:/axis0")
    with h5py.File(new_file) as f:
        for axis in (0, 1, 2):
            t.check(np.array_equal(f[f"axis{axis}"][()], np.concatenate(parts, axis)), f"--axis {axis}")
        for axis in (0, 1, 3):
            t.check(np.array_equal(f[f"stack{axis}"][()], np.stack(parts, axis)), f"--stack --axis {axis}")
        t.equal(f["ragged"][()].tolist(), [0, 1, 0, 1, 2, *range(11)], "lengths along the axis differ")
        t.equal(f["text"][()].tolist(), [b"ab", b"c", b"ab", b"c"], "strings")
        t.check(np.array_equal(f["own"][()], np.concatenate([np.concatenate(parts)] * 2)), "sources in the own file")
        t.equal({s.file_name for s in f["own"].virtual_sources()}, {"."}, "the own file")
        t.equal([s.file_name for s in f["axis0"].virtual_sources()], ["runs/r1.h5", "runs/r2.h5", "runs/r10.h5"], "names are relative, in order")
        t.equal(f["axis0"].dtype, np.dtype(">f4"), "the type of the sources")
    with harness.mounted(options.bin, new_file, "--external") as m:
        t.equal(harness.read(f"{m}/stack1"), np.stack(parts, 1).astype(">f4").tobytes(), "in a mount")
    for args, word, code in (((f"{new_file}:/axis0", f"{folder}/runs/r1.h5:/g/x"), "exist", 1), ((f"{folder}/n.h5:/x", f"{folder}/none*.h5:/x"), "no file matches", None),
                             ((f"{folder}/n.h5:/x", f"{folder}/runs/r1.h5:/none"), "none", None), ((f"{folder}/n.h5:/x", f"{folder}/runs/r1.h5:/g"), "no dataset", 1),
                             ((f"{folder}/n.h5:/x", f"{folder}/runs/r1.h5:/g/x", f"{folder}/runs/r1.h5:/n1"), "type", 1),
                             ((f"{folder}/n.h5:/x", f"{folder}/runs/r1.h5:/n1", f"{folder}/runs/r2.h5:/n2", "--stack"), "shape", 1),
                             ((f"{folder}/n.h5:/x", f"{folder}/runs/r1.h5:/g/x", "--axis", "3"), "--axis", 2),
                             ((f"{folder}/n.h5:/g/x", f"{folder}/runs/r1.h5:/g/x"), "No such", 1)):
        done = subprocess.run([options.bin, "virtual", *args], capture_output=True, text=True, stdin=subprocess.DEVNULL)
        t.check(done.returncode == code or code is None and done.returncode, f"{args}: {done}")
        t.check(word in done.stderr and done.stderr.count("\n") == 1, f"{args}: {done.stderr}")
        t.check(not os.path.exists(f"{folder}/n.h5"), f"{args}: no file is left")


def killed(t, options, folder, rng):
    path, point = new(folder, "killed.h5", options), os.path.join(folder, "killed")
    os.mkdir(point)
    for turn in range(4):
        daemon = harness.foreground(options.bin, path, point, "--read-write", "--external")
        try:
            end, i = time.time() + rng.random() * 0.5, 0
            while time.time() < end:
                d = {"dtype": "<i4", "shape": [4, 6]}
                d |= {"virtual": [{"source": "run_0.h5:/frames"}]} if i % 2 else {"layout": "external", "external": [["k.raw", 0, None]]}
                t.equal(become(f"{point}/k{turn}.{i}", d), 0, "before the kill")
                if i % 5 == 4:
                    os.unlink(f"{point}/k{turn}.{i - 1}")
                if i % 7 == 6:
                    fd = os.open(point, os.O_RDONLY)
                    os.fsync(fd)
                    os.close(fd)
                i += 1
        finally:
            daemon.send_signal(signal.SIGKILL)
            daemon.wait()
            subprocess.run([options.bin, "umount", point], stdin=subprocess.DEVNULL, capture_output=True)
        run(options, "recover", path)
        run(options, "check", path)
        with h5py.File(path, "r+") as f:
            for name in f:
                t.check(f[name].is_virtual or f[name].external or f[name].shape == (0,), f"{name}: whole or new after a kill")
            f[f"h5py {turn}"] = np.zeros(0)


def hostile(t, options, folder, rng):
    """Damaged descriptions: errors, no crash."""
    whole = bytearray(harness.read(os.path.join(folder, "copy.h5")))
    path = os.path.join(folder, "mutant.h5")
    for _ in range(60):
        bytes_ = bytearray(whole)
        for _ in range(rng.randrange(1, 6)):
            bytes_[rng.randrange(len(bytes_))] ^= 1 << rng.randrange(8)
        with open(path, "wb") as f:
            f.write(bytes_)
        for args in (("check", "--data", path), ("ls", "-R", path), ("cp", "-r", f"{path}:/", f"{folder}/m-out.h5:/", "--create")):
            done = subprocess.run([options.bin, *args], capture_output=True, stdin=subprocess.DEVNULL, timeout=60)
            t.check(0 <= done.returncode < 100 and b"panic" not in done.stderr, f"{args}: {done.returncode} {done.stderr[-200:]}")
        if os.path.exists(f"{folder}/m-out.h5"):
            os.unlink(f"{folder}/m-out.h5")


def main():
    options = harness.arguments(__doc__.splitlines()[0])
    t, rng = harness.Tally(), np.random.default_rng(options.seed)
    with harness.folder(options.keep) as folder:
        external(t, options, folder, rng)
        virtual(t, options, folder, rng)
        command(t, options, folder, rng)
        killed(t, options, folder, random.Random(options.seed))
        hostile(t, options, folder, random.Random(options.seed))
    t.finish()


if __name__ == "__main__":
    main()
