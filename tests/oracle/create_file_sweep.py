#!/usr/bin/env python3
"""`h5dir create` with every property of a file: h5py and h5dump read it back, a mount and h5py change the file in turns."""
import ctypes
import glob
import itertools
import os
import random
import re
import signal
import subprocess
import time

import h5py
import numpy as np

import harness

STRATEGIES = {"fsm": 0, "page": 1, "aggr": 2, "none": 3}
TYPES = {"dataspace": 2, "datatype": 8, "fillvalue": 32, "filters": 2048, "attribute": 4096}


def libhdf5():
    return ctypes.CDLL(glob.glob(os.path.join(os.path.dirname(os.path.dirname(h5py.__file__)), "h5py.libs", "libhdf5-*"))[0])


def shared(f):
    """Indexes of shared messages: types and smallest size."""
    lib, plist = libhdf5(), f.id.get_create_plist()
    number = ctypes.c_uint()
    assert lib.H5Pget_shared_mesg_nindexes(ctypes.c_int64(plist.id), ctypes.byref(number)) >= 0
    indexes = []
    for i in range(number.value):
        types, least = ctypes.c_uint(), ctypes.c_uint()
        assert lib.H5Pget_shared_mesg_index(ctypes.c_int64(plist.id), i, ctypes.byref(types), ctypes.byref(least)) >= 0
        indexes.append((types.value, least.value))
    return indexes


def superblock(path):
    text = subprocess.run(["h5dump", "-B", "-H", path], check=True, capture_output=True, text=True).stdout
    return dict(re.findall(r"^ *([A-Z_]+) (\S+)$", text, re.M))


def run(options, *args, code=0):
    done = subprocess.run([options.bin, *args], capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=120)
    assert done.returncode == code, (args, done)
    return done.stdout + done.stderr


def cases():
    yield {}
    for name in STRATEGIES:
        yield {"strategy": name}
    for size in ("512", "4096", "64K"):
        yield {"strategy": "page", "page-size": size}
        yield {"strategy": "page", "page-size": size, "persist-free-space": "on", "user-block": size}
    yield {"persist-free-space": "on", "free-space-threshold": "32"}
    yield {"strategy": "page", "persist-free-space": "on", "btree-k": "7", "sym-k": "3", "sym-leaf-k": "2", "shared-messages": "all"}
    for block in ("0", "512", "2048", "64K"):
        yield {"user-block": block}
    for block, (k, sym, leaf) in itertools.product(("0", "1024"), ((32, 2, 1), (5, 16, 4), (100, 30, 12))):
        for libver in ("v110", "earliest"):
            yield {"libver": libver, "user-block": block, "btree-k": str(k), "sym-k": str(sym), "sym-leaf-k": str(leaf)}
    for types in ("attribute", "dataspace,datatype", "all"):
        yield {"shared-messages": types}


def bytes_of(text):
    return int(text[:-1]) * 1024 if text.endswith("K") else int(text)


def properties(t, path, case, what):
    with h5py.File(path, "r") as f:
        plist = f.id.get_create_plist()
        threshold = bytes_of(case.get("free-space-threshold", "1"))
        want = (STRATEGIES[case.get("strategy", "fsm")], int("persist-free-space" in case), threshold)
        t.equal(tuple(map(int, plist.get_file_space_strategy())), want, f"{what}: strategy, persist, threshold")
        t.equal(plist.get_file_space_page_size(), bytes_of(case.get("page-size", "4096")), f"{what}: page size")
        t.equal(plist.get_userblock(), bytes_of(case.get("user-block", "0")), f"{what}: user block")
        types = case.get("shared-messages", "").split(",")
        want = [] if types == [""] else [(sum(TYPES.values()) if types == ["all"] else sum(TYPES[n] for n in types), 50)]
        t.equal(shared(f), want, f"{what}: shared messages")
    found = superblock(path)
    k = tuple(int(found[name]) for name in ("ISTORE_K", "BTREE_RANK", "BTREE_LEAF"))
    t.equal(k, (int(case.get("btree-k", 32)), int(case.get("sym-k", 16)), int(case.get("sym-leaf-k", 4))), f"{what}: K values")


class Model:
    """What the file must hold: arrays by name, and groups with links and attributes."""

    def __init__(self, rng):
        self.rng, self.data, self.attributes, self.count = rng, {}, {}, 0

    def new(self):
        self.count += 1
        return f"g{self.count % 3}/d{self.count}", self.rng.integers(0, 2**31, self.rng.integers(1, 3000)).astype("<i4")

    def by_h5py(self, path, rounds):
        with h5py.File(path, "r+") as f:
            for _ in range(rounds):
                name, values = self.new()
                kind = dict(chunks=(64,), maxshape=(None,), compression="gzip") if self.count % 2 else {}
                f.create_dataset(name, data=values, **kind).attrs["long name of an attribute"] = "x" * 60
                self.data[name] = values
            for name in list(self.data)[::4]:
                del f[name]
                del self.data[name]

    def by_mount(self, options, path, rounds):
        with harness.mounted(options.bin, path, "--read-write") as m:
            for _ in range(rounds):
                name, values = self.new()
                os.makedirs(os.path.join(m, os.path.dirname(name)), exist_ok=True)
                at = os.path.join(m, name)
                open(at, "xb").close()
                os.setxattr(at, "user.h5dir.dtype", b"<i4")
                with open(at, "r+b") as out:
                    out.write(values.tobytes())
                os.setxattr(at, "user.note", b"y" * 70)
                self.data[name] = values
            for name in list(self.data)[1::5]:
                os.unlink(os.path.join(m, name))
                del self.data[name]

    def compare(self, t, path, what):
        with h5py.File(path, "r") as f:
            found = []
            f.visititems(lambda name, o: found.append(name) if isinstance(o, h5py.Dataset) else None)
            t.equal(sorted(found), sorted(self.data), f"{what}: names")
            for name, values in self.data.items():
                t.check(name in f and np.array_equal(f[name][()], values), f"{what}: {name}")


def turns(t, options, folder, rng):
    for number, case in enumerate(cases()):
        path = os.path.join(folder, f"{number}.h5")
        what = " ".join(f"--{k}={v}" for k, v in case.items()) or "plain"
        run(options, "create", *(f"--{k}={v}" for k, v in case.items()), path)
        properties(t, path, case, what)
        if case.get("user-block", "0") != "0":
            with open(path, "r+b") as f:
                f.write(b"of another program")
        model = Model(rng)
        for turn in range(2):
            model.by_mount(options, path, 8)
            model.compare(t, path, f"{what}: mount {turn}")
            out = run(options, "check", "--data", path)
            t.check("ERROR" not in out and "overlap" not in out, f"{what}: {out}")
            model.by_h5py(path, 8)
            model.compare(t, path, f"{what}: h5py {turn}")
        properties(t, path, case, what)
        out = run(options, "check", "--data", path)
        done = subprocess.run(["h5repack", path, path + ".again"], capture_output=True, text=True)
        t.equal(done.returncode, 0, f"{what}: h5repack: {done.stderr[-300:]}")
        if case.get("user-block", "0") != "0":
            t.equal(harness.read(path)[:18], b"of another program", f"{what}: the user block")


def sync(point):
    directory = os.open(point, os.O_RDONLY)
    os.fsync(directory)
    os.close(directory)


def persists(t, options, folder):
    """What a mount frees, libhdf5 knows as free and uses, and the other way round."""
    for case in (["--persist-free-space"], ["--strategy=page", "--persist-free-space"], ["--strategy=page", "--page-size=2K", "--persist-free-space"]):
        path = os.path.join(folder, "persist.h5")
        if os.path.exists(path):
            os.unlink(path)
        run(options, "create", *case, path)
        blob = np.arange(50_000, dtype="<i4")
        with harness.mounted(options.bin, path, "--read-write") as m:
            for i in range(12):
                with open(os.path.join(m, f"f{i}"), "xb") as out:
                    out.write(blob.tobytes()[: 200_000 - i])
                sync(m)
        with harness.mounted(options.bin, path, "--read-write") as m:
            for i in range(1, 12, 2):
                os.unlink(os.path.join(m, f"f{i}"))
        with h5py.File(path, "r") as f:
            t.check(f.id.get_freespace() >= 1_000_000, f"{case}: libhdf5 knows {f.id.get_freespace()} free bytes of 1,200,000")
        size = os.path.getsize(path)
        with h5py.File(path, "r+") as f:
            for i in range(25):
                f[f"again{i}"] = blob[:9_000]
        t.check(os.path.getsize(path) < size + 100_000, f"{case}: libhdf5 reuses what h5dir freed: {size} -> {os.path.getsize(path)}")
        with h5py.File(path, "r+") as f:
            for i in range(25):
                del f[f"again{i}"]
        size = os.path.getsize(path)
        with harness.mounted(options.bin, path, "--read-write") as m:
            # The space becomes free with the first commit.
            os.mkdir(os.path.join(m, "new"))
            sync(m)
            for i in range(25):
                with open(os.path.join(m, f"new/{i}"), "xb") as out:
                    out.write(blob.tobytes()[:36_000])
        t.check(os.path.getsize(path) < size + 100_000, f"{case}: h5dir reuses what libhdf5 freed: {size} -> {os.path.getsize(path)}")
        for n in range(12):
            with harness.mounted(options.bin, path, "--read-write") as m:
                for i in range(40):
                    os.setxattr(os.path.join(m, "f0"), f"user.n{n}.{i}", b"x" * (1 + 13 * i))
                for i in range(0, 40, 2):
                    os.removexattr(os.path.join(m, "f0"), f"user.n{n}.{i}")
                if n % 3 == 2:
                    for i in range(1, 40, 2):
                        for old in (n, n - 1, n - 2):
                            os.removexattr(os.path.join(m, "f0"), f"user.n{old}.{i}")
            if n == 5:
                size = os.path.getsize(path)
        t.check(os.path.getsize(path) < size * 1.2 + 100_000, f"{case}: sessions do not leak: {size} -> {os.path.getsize(path)}")
        with h5py.File(path, "r+") as f:
            t.check(np.array_equal(f["f0"][()].view("<i4"), blob), f"{case}: elements")
            t.equal(len(f["f0"].attrs), 0 + 0, f"{case}: attributes")
            f["last"] = 1
        out = run(options, "check", "--data", path)
        t.check("overlap" not in out, f"{case}: {out}")


def killed(t, options, folder, rng):
    """SIGKILL during changes of files with properties; then recover, check, h5py."""
    for number, case in enumerate((["--strategy=page", "--persist-free-space"], ["--persist-free-space"], ["--strategy=page"], ["--shared-messages=all"])):
        path, point = os.path.join(folder, f"killed{number}.h5"), os.path.join(folder, f"m{number}")
        run(options, "create", *case, path)
        os.mkdir(point)
        for turn in range(4):
            daemon = harness.foreground(options.bin, path, point, "--read-write")
            try:
                end = time.time() + rng.random() * 0.7
                i = 0
                while time.time() < end:
                    with open(os.path.join(point, f"t{turn}.{i}"), "xb") as out:
                        out.write(rng.randbytes(rng.randrange(1, 20_000)))
                        if i % 4 == 0:
                            os.fsync(out.fileno())
                    if i % 3 == 2:
                        os.unlink(os.path.join(point, f"t{turn}.{i - 1}"))
                    i += 1
            finally:
                daemon.send_signal(signal.SIGKILL)
                daemon.wait()
                subprocess.run([options.bin, "umount", point], stdin=subprocess.DEVNULL, capture_output=True)
            run(options, "recover", path)
            out = run(options, "check", "--data", path)
            t.check("overlap" not in out, f"{case}: killed: {out}")
            with h5py.File(path, "r+") as f:
                f[f"h5py{turn}"] = np.arange(3000)
                for name in list(f)[::3]:
                    del f[name]
            run(options, "check", "--data", path)
            t.check(True, "")


def rules(t, options, folder):
    config = os.path.join(folder, "rules.yaml")
    with open(config, "w") as f:
        f.write("create:\n  - pattern: '*.nx'\n    strategy: page\n    page-size: 8192\n    persist-free-space: true\n    user-block: 8K\n"
                "  - pattern: '*.f8'\n    dtype: '<f8'\n")
    path = os.path.join(folder, "by rule.nx")
    run(options, "create", "--config", config, path)
    properties(t, path, {"strategy": "page", "page-size": "8192", "persist-free-space": "on", "user-block": "8192"}, "a rule")
    source, other = os.path.join(folder, "a.f8"), os.path.join(folder, "copied.nx")
    np.arange(5.0).tofile(source)
    run(options, "cp", "--create", "--config", config, source, f"{other}:/a.f8")
    properties(t, other, {"strategy": "page", "page-size": "8192", "persist-free-space": "on", "user-block": "8192"}, "a rule, by cp")
    with h5py.File(other) as f:
        t.equal(list(f["a.f8"][()]), [0, 1, 2, 3, 4], "the rule for datasets applies beside it")
    path = os.path.join(folder, "by option.nx")
    run(options, "create", "--config", config, "--strategy=page", "--page-size=512", path)
    properties(t, path, {"strategy": "page", "page-size": "512", "persist-free-space": "on", "user-block": "8192"}, "an option and a rule")
    for text, word in (("strategy: best", "expected fsm"), ("user-block: 700", "power of two"), ("strategy: none\n    persist-free-space: true", "record free"),
                       ("strategy: page\n    dtype: f8", "two rules"), ("stratgy: page", "strategy")):
        with open(config, "w") as f:
            f.write(f"create:\n  - pattern: '*.nx'\n    {text}\n")
        out = run(options, "create", "--config", config, os.path.join(folder, "never.nx"), code=2)
        t.check(word in out and out.count("\n") == 1, f"{text}: {out}")


def refused(t, options, folder):
    path = os.path.join(folder, "never.h5")
    for args, word in ((["--user-block=100"], "power of two"), (["--page-size=4K"], "strategy page"), (["--strategy=page", "--page-size=1"], "512"), (["--strategy=page", "--user-block=512"], "multiple of a page"),
                       (["--strategy=aggr", "--persist-free-space"], "fsm and page"), (["--btree-k=0"], "from 1"), (["--sym-leaf-k=40000"], "from 1"),
                       (["--libver=earliest", "--strategy=page"], "earliest"), (["--shared-messages=links"], "dataspace"), (["--strategy=all"], "fsm, page")):
        out = run(options, "create", *args, path, code=2)
        t.check(word in out, f"{args}: {out}")
        t.check(not os.path.exists(path), f"{args}: no file")
    out = run(options, "create", "--strategy=page", f"iod:{folder}/c", code=3)
    t.check("strategy" in out, f"a container: {out}")


def main():
    options = harness.arguments(__doc__.splitlines()[0])
    t, rng = harness.Tally(), np.random.default_rng(options.seed)
    with harness.folder(options.keep) as folder:
        refused(t, options, folder)
        rules(t, options, folder)
        persists(t, options, folder)
        killed(t, options, folder, random.Random(options.seed))
        turns(t, options, folder, rng)
    t.finish()


if __name__ == "__main__":
    main()
