"""Sparse datasets through a mount, against numpy and h5py.

  defined.py H5DIR DIRECTORY CASE

DIRECTORY has an empty folder "mnt". The caller unmounts it after a failure.
"""

import json
import os
import random
import shutil
import subprocess
import sys

import h5py
import numpy as np

import structured as independent

H5DIR, DIRECTORY, CASE = sys.argv[1:4]
MNT = os.path.join(DIRECTORY, "mnt")
# With H5DIR_KIND=iod a container in a folder, not an HDF5 file.
IN_STORE = os.environ.get("H5DIR_KIND") == "iod"
PREFIX = "iod:" if IN_STORE else ""
FILE = PREFIX + os.path.join(DIRECTORY, "f.h5")
PROFILES = ["map", "filter"] if IN_STORE else ["map", "filter", "structured"]
# What stock libraries read.
READABLE = [] if IN_STORE else ["map"]


def run(*command, fails=False, **kw):
    done = subprocess.run(command, capture_output=True, text=True, **kw)
    if (done.returncode != 0) != fails:
        raise SystemExit(f"{command}: exit {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout + done.stderr


def shell(script, fails=False):
    return run("bash", "-c", "set -e; " + script, cwd=MNT, fails=fails)


def remove(file):
    path = file.removeprefix("iod:")
    if os.path.isdir(path):
        shutil.rmtree(path)
    elif os.path.exists(path):
        os.unlink(path)


def create(file=FILE):
    remove(file)
    run(H5DIR, "create", file)


def agrees(profile, name, data, defined, fill=0):
    """Structured chunks, which h5py does not read, against an independent reader."""
    if profile == "structured":
        values, mask = independent.read(FILE, name, data.dtype, fill)
        assert (mask == defined).all() and (values == data).all(), name


class Mounted:
    """The file, mounted read-write."""

    def __init__(self, *options, file=FILE, at=MNT):
        self.options, self.file, self.at = options, file, at

    def __enter__(self):
        run(H5DIR, "mount", "--read-write", *self.options, self.file, self.at)

    def __exit__(self, *_):
        run(H5DIR, "umount", self.at)


def describe(name, profile="map", **properties):
    """Makes a new file a sparse dataset."""
    text = json.dumps({"layout": "sparse", "profile": profile, **properties})
    path = os.path.join(MNT, name)
    open(path, "a").close()
    os.setxattr(path, "user.h5dir.dataset", text.encode())
    return path


def segments(path):
    """Data of a file by SEEK_DATA and SEEK_HOLE."""
    with open(path, "rb") as f:
        found, at = [], 0
        while True:
            try:
                data = os.lseek(f.fileno(), at, os.SEEK_DATA)
            except OSError:
                return found
            at = os.lseek(f.fileno(), data, os.SEEK_HOLE)
            found.append((data, at))


def seek_mask(path, shape, size):
    mask = np.zeros(int(np.prod(shape)) * size, bool)
    for start, stop in segments(path):
        mask[start:stop] = True
    mask = mask.reshape(-1, size)
    assert (mask.all(1) == mask.any(1)).all(), "a hole begins within an element"
    return mask.all(1).reshape(shape)


def view_mask(name, shape, selection=None):
    name = name if selection is None else f"{name}@{selection}"
    with open(os.path.join(MNT, ".h5dir", "defined", name)) as f:
        return json_mask(f.read(), shape)


def json_mask(text, shape):
    answer = json.loads(text)
    mask = np.zeros(shape, bool)
    for block in answer["blocks"]:
        mask[tuple(map(slice, block["start"], block["stop"]))] = True
    assert answer["shape"] == list(shape) and answer["count"] == mask.sum()
    return mask


def box(rng, shape):
    ranges = [sorted((rng.randrange(n), rng.randrange(n + 1))) for n in shape]
    return tuple(slice(a, b) for a, b in ranges), ",".join(f"{a}:{b}" for a, b in ranges)


def punch(path, first, count):
    if count:
        run("fallocate", "-p", "-o", str(first), "-l", str(count), path)


def random_changes():
    rng = random.Random(5)
    shapes = [((6, 30, 40), (1, 30, 40), "<i4"), ((25, 37), (7, 10), "<u2"), ((1000,), (64,), "<f8"), ((9, 8, 7), (4, 4, 4), "<i2")]
    for profile in PROFILES:
        for shape, chunks, dtype in shapes:
            create()
            size, n = np.dtype(dtype).itemsize, int(np.prod(shape))
            data, defined = np.zeros(n, dtype), np.zeros(n, bool)
            for session in range(3):
                with Mounted():
                    path = os.path.join(MNT, "d")
                    if session == 0:
                        describe("d", profile, dtype=dtype, shape=shape, maxshape=(None, *shape[1:]), chunks=chunks, filters=["shuffle", "deflate"])
                    for _ in range(2):
                        change(rng, path, shape, data, defined)
                        check(rng, path, shape, data, defined)
                agrees(profile, "d", data.reshape(shape), defined.reshape(shape))
                if profile in READABLE:
                    with h5py.File(FILE) as f:
                        assert (f["d"][...].ravel() == data).all()


def change(rng, path, shape, data, defined):
    size, n = data.itemsize, len(data)
    with open(path, "r+b", buffering=0) as f:
        for _ in range(12):
            first = rng.randrange(n)
            count = min(rng.choice([1, 2, 5, 40, 300]), n - first)
            what = rng.random()
            if what < 0.7:
                values = np.array([rng.choice([0, 1, 7, 200]) for _ in range(count)], data.dtype)
                os.pwrite(f.fileno(), values.tobytes(), first * size)
                data[first : first + count], defined[first : first + count] = values, True
            elif what < 0.9:
                punch(path, first * size, count * size)
                data[first : first + count], defined[first : first + count] = 0, False
            else:
                index, text = box(rng, shape)
                os.setxattr(path, "user.h5dir.erase", text.encode())
                data.reshape(shape)[index], defined.reshape(shape)[index] = 0, False


def check(rng, path, shape, data, defined):
    want = defined.reshape(shape)
    assert (np.fromfile(path, data.dtype) == data).all()
    assert (view_mask("d", shape) == want).all(), "view"
    assert (seek_mask(path, shape, data.itemsize) == want).all(), "seek"
    index, text = box(rng, shape)
    part = np.zeros(shape, bool)
    part[index] = want[index]
    assert (view_mask("d", shape, text) == part).all(), "selection"
    values = np.fromfile(os.path.join(MNT, ".h5dir", "defined", f"d@{text}.values"), data.dtype)
    assert (values == data.reshape(shape)[part]).all(), "values"


def stock_writer():
    """A chunk that h5py wrote has no map: what differs from the fill value is defined."""
    create()
    with Mounted():
        path = describe("d", dtype="<i4", shape=[4, 100], chunks=[1, 100])
        with open(path, "r+b", buffering=0) as f:
            for row in range(4):
                os.pwrite(f.fileno(), np.array([5, 0, 6], "<i4").tobytes(), (row * 100 + 10) * 4)
    assert "5, 0, 6" in run("ncdump", "-v", "d", FILE), "netCDF reads it as any other dataset"
    assert "_h5dir" not in run("ncdump", FILE)
    with h5py.File(FILE, "r+") as f:
        assert list(f) == ["d"] and f["d"].compression == "gzip" and list(f["d"][1, 10:13]) == [5, 0, 6]
        f["d"][1, 50] = 9
        f["copy"] = f["d"][...]
        f.copy("d", "d2")
        assert dict(f["d"].attrs) == {}
    with Mounted():
        want = np.zeros((4, 100), bool)
        want[:, 10:13] = True
        want[1, 11], want[1, 50] = False, True
        for name in ["d", "d2"]:
            assert (view_mask(name, (4, 100)) == want).all(), name
        assert view_mask("copy", (4, 100)).all(), "all elements of another dataset are defined"
    packed = os.path.join(DIRECTORY, "repacked.h5")
    run("h5repack", FILE, packed)
    with Mounted(file=packed):
        assert (view_mask("d", (4, 100)) == want).all(), "h5repack copies chunks as they are stored"
    os.unlink(packed)
    run("h5repack", "-f", "d:GZIP=1", FILE, packed)
    with Mounted(file=packed):
        assert os.getxattr(os.path.join(MNT, "d"), "user.h5dir.layout") == b"chunked", "of other filters h5repack makes a dense dataset"
        assert view_mask("d", (4, 100)).all()


def tools():
    """Holes that tools leave stay undefined, and defined zeros stay defined."""
    rng = random.Random(7)
    n = 3_000_000
    for profile in PROFILES:
        create()
        host = os.path.join(DIRECTORY, "host")
        data = np.zeros(n, "u1")
        with open(host, "wb") as f:
            for _ in range(20):
                first = rng.randrange(n // 4096) * 4096
                part = np.frombuffer(rng.randbytes(5000), "u1")[: n - first]
                f.seek(first)
                f.write(part.tobytes())
                data[first : first + len(part)] = part
            f.truncate(n)
        with Mounted():
            for name in ["cp", "rsync", "tar/host", "dd"]:
                os.makedirs(os.path.dirname(os.path.join(MNT, name)), exist_ok=True)
                describe(name, profile, dtype="u1", shape=[0], maxshape=[None], chunks=[65536])
            commands = {
                "cp": f"cp --sparse=always {host} cp",
                "rsync": f"rsync -S --inplace {host} rsync",
                "tar/host": f"cd tar; tar cSf - -C {DIRECTORY} host | tar xSf - --overwrite",
                "dd": f"dd if={host} of=dd conv=sparse bs=4096 status=none; truncate -s {n} dd",
            }
            for name, command in commands.items():
                shell(command)
                path = os.path.join(MNT, name)
                assert (np.fromfile(path, "u1") == data).all(), name
                mask = seek_mask(path, (n,), 1)
                assert mask[data != 0].all(), name
                assert mask.sum() < 20 * 5000 + 20 * 8192, (name, mask.sum())
        exact(profile)


def exact(profile):
    """cp, rsync and tar from mount to mount keep which elements are defined."""
    create()
    other, at = PREFIX + os.path.join(DIRECTORY, "g.h5"), os.path.join(DIRECTORY, "mnt2")
    create(other)
    os.makedirs(at, exist_ok=True)
    with Mounted():
        path = describe("d", profile, dtype="<i4", shape=[50, 1000], chunks=[1, 1000])
        with open(path, "r+b", buffering=0) as f:
            for row in range(0, 50, 3):
                os.pwrite(f.fileno(), np.array([0, 1, 0, 0, 5], "<i4").tobytes(), (row * 1000 + 7 * row) * 4)
        want = seek_mask(path, (50, 1000), 4)
        assert want.sum() == 17 * 5
        shell("mkdir c; cp -a d c/all")
        assert (view_mask("c/all", (50, 1000)) == want).all()
        with Mounted(file=other, at=at):
            shell(f"cp -a d {at}/cp; mkdir {at}/tar; tar cSf - --xattrs --xattrs-include='user.*' d | tar xSf - --xattrs --xattrs-include='user.*' -C {at}/tar")
            for name in ["cp", "tar/d"]:
                copy = os.path.join(at, name)
                assert (np.fromfile(copy, "u1") == np.fromfile(path, "u1")).all(), name
                assert (seek_mask(copy, (50, 1000), 4) == want).all(), name
    remove(other)


def command_line():
    for profile in PROFILES:
        create()
        with Mounted():
            path = describe("d", profile, dtype="<f4", shape=[10, 20], chunks=[5, 20], fillvalue=-1)
            with open(path, "r+b", buffering=0) as f:
                os.pwrite(f.fileno(), np.arange(30, dtype="<f4").tobytes(), 0)
            assert segments(path) == [(0, 800)], "POSIX holes read as zeros: a dataset with another fill value has none"
            punch(path, 4 * 5, 4 * 2)
            assert list(np.fromfile(path, "<f4")[4:8]) == [4, -1, -1, 7], "punched elements have the fill value"
            assert view_mask("d", (10, 20)).sum() == 28
            # A part of an element is zeroed.
            punch(path, 4 * 8 + 1, 2)
            assert view_mask("d", (10, 20))[0, 8]
            assert os.stat(os.path.join(MNT, ".h5dir/log")).st_mode & 0o777 == 0o400
            assert "refused" not in open(os.path.join(MNT, ".h5dir/log")).read()
        assert f"profile: {profile}" in run(H5DIR, "stat", "--posix", f"{FILE}:/d")
        assert run(H5DIR, "defined", f"{FILE}:/d", "--count") == "28\n"
        assert run(H5DIR, "defined", f"{FILE}:/d", "--select", "0,3:7") == "0:1,3:5\n"
        run(H5DIR, "erase", f"{FILE}:/d", "--select", "0,:5")
        assert run(H5DIR, "defined", f"{FILE}:/d", "--count", "--select=:,:5") == "5\n"
        assert json_mask(run(H5DIR, "defined", f"{FILE}:/d", "--json"), (10, 20)).sum() == 23
        mask = os.path.join(DIRECTORY, "mask.npy")
        run(H5DIR, "defined", f"{FILE}:/d", "--mask", mask)
        assert np.load(mask).sum() == 23 and not np.load(mask)[0, :5].any()
        assert "dimensions" in run(H5DIR, "defined", f"{FILE}:/d", "--select", "1,2,3", fails=True)
        run(H5DIR, "erase", f"{FILE}:/d", "--select", ":")
        agrees(profile, "d", np.full((10, 20), -1, "<f4"), np.zeros((10, 20), bool), -1)
        with Mounted():
            # One block: `tar -S` would take a file without blocks for zeros.
            assert os.stat(os.path.join(MNT, "d")).st_blocks == 1, "chunks without defined elements are freed"
            assert (np.fromfile(os.path.join(MNT, "d"), "<f4") == -1).all()
        if profile in READABLE:
            with h5py.File(FILE) as f:
                assert f["d"].id.get_num_chunks() == 0 and (f["d"][...] == -1).all()


def limits():
    create()
    with Mounted():
        wrong = [
            ({"dtype": "u1", "shape": [5, 4], "chunks": [10, 10]}, "exceeds the maximum dimension"),
            ({"dtype": "u1", "shape": [1 << 40], "chunks": [(1 << 32) - 1], "filters": ["shuffle"]}, "deflate"),
            ({"dtype": "<i8", "shape": [1 << 40], "chunks": [1 << 30]}, "4 GiB"),
            ({"dtype": "u1", "shape": [4], "chunks": [4], "profile": "none"}, "profile none"),
            ({"dtype": "u1", "shape": [4], "chunks": [4], "filters": ["lzf"], "profile": "filter"}, "lzf"),
            ({"dtype": "u1", "shape": [], "chunks": "auto"}, "dimensions"),
            ({"dtype": "u1", "shape": [4], "chunks": [4], "filters": ["lzf"], "profile": "structured"}, "lzf"),
            ({"dtype": "str", "shape": [4], "chunks": [4], "profile": "structured"}, "variable length"),
            ({"dtype": "[('n','<i4'),('s','str')]", "shape": [4], "chunks": [4], "profile": "structured"}, "variable length"),
        ]
        for i, (properties, reason) in enumerate(wrong):
            try:
                describe(f"x{i}", **{"profile": "map", **properties})
            except OSError:
                pass
            else:
                raise SystemExit(f"{properties} is accepted")
            log = open(os.path.join(MNT, ".h5dir/log")).read()
            assert reason in log, (properties, log)


def conversion():
    rng = np.random.default_rng(3)
    data = (rng.random((20, 300)) > 0.9) * rng.integers(1, 100, (20, 300))
    with h5py.File(FILE, "w") as f:
        f.create_dataset("all", data=data.astype("<i4"), chunks=(4, 100), compression="gzip")
        f.create_dataset("plain", data=data.astype("<i4"))
        f.create_dataset("few", (20, 300), "<i4", chunks=(4, 100))[0, 0] = 1
    everything = np.ones((20, 300), bool)
    with Mounted():
        for name, undefine in [("all", False), ("plain", True), ("few", False)]:
            for profile in PROFILES:
                text = {"layout": "sparse", "profile": profile, "chunks": [5, 60], "filters": ["deflate"]}
                want = everything
                if undefine:
                    text["undefine"], want = "fill", data != 0
                if name == "few":
                    want = np.zeros((20, 300), bool)
                    want[:4, :100] = True
                os.setxattr(os.path.join(MNT, name), "user.h5dir.dataset", json.dumps(text).encode())
                assert (view_mask(name, (20, 300)) == want).all(), (name, profile)
            if name != "few":
                assert (np.fromfile(os.path.join(MNT, name), "<i4").reshape(20, 300) == data).all()
        # Other chunks: what is defined stays so. Another layout: all of it is.
        os.setxattr(os.path.join(MNT, "plain"), "user.h5dir.chunks", b"[20,7]")
        assert (view_mask("plain", (20, 300)) == (data != 0)).all()
        os.setxattr(os.path.join(MNT, "plain"), "user.h5dir.layout", b"contiguous")
        assert view_mask("plain", (20, 300)).all()
        os.setxattr(os.path.join(MNT, "all"), "user.h5dir.layout", b"chunked")
    with h5py.File(FILE) as f:
        assert (f["plain"][...] == data).all() and f["plain"].chunks is None
        assert (f["all"][...] == data).all() and f["all"].chunks == (5, 60)


def types():
    """Compound elements, and elements of variable length."""
    for profile in PROFILES:
        create()
        with Mounted():
            pair = np.dtype([("x", "<i2"), ("y", "<f8")])
            path = describe("pair", profile, dtype="[('x','<i2'),('y','<f8')]", shape=[100], chunks=[30])
            with open(path, "r+b", buffering=0) as f:
                os.pwrite(f.fileno(), np.array([(1, 2.5), (0, 0)], pair).tobytes(), 41 * pair.itemsize)
                os.pwrite(f.fileno(), b"\x07", 70 * pair.itemsize + 3)
            want = np.zeros(100, bool)
            want[[41, 42, 70]] = True
            assert (view_mask("pair", (100,)) == want).all() and (seek_mask(path, (100,), pair.itemsize) == want).all()
            if profile == "structured":
                # The proposal stores them in a third section.
                continue
            path = describe("text", profile, dtype="str", shape=[6], chunks=[3])
            with open(path, "w") as f:
                f.write("one\ntwo\n\n\nfive\nsix\n")
            os.setxattr(path, "user.h5dir.erase", b"0:2")
            assert open(path).read() == "\n\n\n\nfive\nsix\n"
            assert list(view_mask("text", (6,))) == [False, False, True, True, True, True]
        with Mounted():
            assert open(os.path.join(MNT, "text")).read() == "\n\n\n\nfive\nsix\n"
            assert (view_mask("pair", (100,)) == want).all()
        if profile in READABLE:
            with h5py.File(FILE) as f:
                assert f["pair"][41].tolist() == (1, 2.5) and f["text"][4] == b"five"


def other_shapes():
    """Datasets without dimensions, and without elements."""
    with h5py.File(FILE, "w") as f:
        f["scalar"], f["null"], f["none"] = 5, h5py.Empty("i4"), np.zeros((0, 3))
    with Mounted():
        text = {name: json.load(open(os.path.join(MNT, ".h5dir/defined", name))) for name in ["scalar", "null", "none"]}
        assert text["scalar"] == {"shape": [], "count": 1, "blocks": [{"start": [], "stop": []}]}
        assert text["null"] == {"shape": [], "count": 0, "blocks": []}
        assert text["none"] == {"shape": [0, 3], "count": 0, "blocks": []}


def after_the_fact():
    """Regression: bytes of new files that were copied, zeroed, or written after a first fact became undefined; an open
    file showed erased elements; --mask emptied a file that was not read."""
    create()
    with Mounted():
        source = os.path.join(MNT, "source")
        with open(source, "wb") as f:
            f.write(bytes(range(200)) * 2)
        for name in ["copied", "zeroed"]:
            path = os.path.join(MNT, name)
            with open(path, "w+b", buffering=0) as f:
                os.ftruncate(f.fileno(), 400)
                if name == "copied":
                    with open(source, "rb", buffering=0) as s:
                        assert os.copy_file_range(s.fileno(), f.fileno(), 400, 0, 0) == 400
                else:
                    run("fallocate", "--zero-range", "-o", "0", "-l", "200", path)
            describe(name, dtype="u1", shape=[4, 100], chunks=[1, 100])
        late = os.path.join(MNT, "late")
        with open(late, "w+b", buffering=0) as f:
            os.ftruncate(f.fileno(), 400)
            os.setxattr(late, "user.h5dir.chunks", b"[1,100]")
            os.pwrite(f.fileno(), b"later", 120)
        describe("late", dtype="u1", shape=[4, 100])
        assert open(late, "rb").read()[120:125] == b"later" and view_mask("late", (4, 100)).sum() == 5
        assert open(os.path.join(MNT, "copied"), "rb").read() == bytes(range(200)) * 2
        assert view_mask("copied", (4, 100)).sum() == 400 and view_mask("zeroed", (4, 100)).sum() == 200
        path = describe("open", dtype="<f4", shape=[10], chunks=[10], fillvalue=1.5)
        with open(path, "r+b", buffering=0) as f:
            os.pwrite(f.fileno(), np.arange(10, dtype="<f4").tobytes(), 0)
            assert len(os.pread(f.fileno(), 40, 0)) == 40
            os.setxattr(path, "user.h5dir.erase", b"0:2")
            assert list(np.frombuffer(os.pread(f.fileno(), 12, 0), "<f4")) == [1.5, 1.5, 2]
            punch(path, 8, 4)
            assert list(np.frombuffer(os.pread(f.fileno(), 16, 0), "<f4")) == [1.5, 1.5, 1.5, 3]
        describe("open@0:3", dtype="u1", shape=[2], chunks=[2])
    before = open(FILE, "rb").read()
    run(H5DIR, "defined", f"{FILE}:/open", "--mask", FILE, fails=True)
    run(H5DIR, "defined", f"{FILE}:/nothing", "--mask", FILE, fails=True)
    assert open(FILE, "rb").read() == before
    # The dataset open@0:3 is another one.
    assert run(H5DIR, "defined", f"{FILE}:/open", "--select", "0:3").strip() == ""
    assert run(H5DIR, "defined", f"{FILE}:/open", "--select", "0:4").strip() == "3:4"


def resizing():
    for profile in PROFILES:
        create()
        with Mounted():
            path = describe("d", profile, dtype="<i4", shape=[10, 10], maxshape=[None, 10], chunks=[4, 10])
            with open(path, "r+b", buffering=0) as f:
                os.pwrite(f.fileno(), np.arange(100, dtype="<i4").tobytes(), 0)
            os.truncate(path, 5 * 40)
            os.truncate(path, 12 * 40)
            want = np.zeros((12, 10), bool)
            want[:5] = True
            assert (view_mask("d", (12, 10)) == want).all()
            with open(path, "ab", buffering=0) as f:
                f.write(b"\x01\0\0\0")
            want = np.vstack([want, np.zeros((1, 10), bool)])
            want[12, 0] = True
            assert (view_mask("d", (13, 10)) == want).all(), view_mask("d", (13, 10))
        with Mounted():
            assert (view_mask("d", (13, 10)) == want).all()
            os.unlink(path)
        assert IN_STORE or os.stat(FILE).st_size < 4096


def create_rules():
    rules = os.path.join(DIRECTORY, "rules.yaml")
    for profile in PROFILES:
        with open(rules, "w") as f:
            f.write("create:\n  - {pattern: '*.sparse', dtype: '<i4', shape: [0, 50], maxshape: [null, 50], chunks: [8, 50], layout: sparse, ")
            f.write(f"profile: {profile}}}\n")
        create()
        with Mounted("--config", rules):
            shell("truncate -s 4000 a.sparse; printf 'abcd' | dd of=a.sparse bs=4 seek=77 conv=notrunc status=none")
            want = np.zeros((20, 50), bool)
            want[1, 27] = True
            assert (view_mask("a.sparse", (20, 50)) == want).all()
            assert os.getxattr(os.path.join(MNT, "a.sparse"), "user.h5dir.profile") == profile.encode()
            log = open(os.path.join(MNT, ".h5dir/log")).read()
            assert ("no released libhdf5" in log) == (profile == "structured"), log


def plugin():
    """h5py and h5dump with the filter's plugin, which HDF5_PLUGIN_PATH names."""
    rng = np.random.default_rng(5)
    create()
    shape, fill = (6, 50, 40), -3
    data, defined = np.full(shape, fill, "<i2"), np.zeros(shape, bool)
    # Nothing, one region, spots, every other element, all.
    defined[1, 5:20, 7:30] = True
    defined[2] = rng.random((50, 40)) > 0.99
    defined[3] = rng.random((50, 40)) > 0.5
    defined[4] = True
    data[defined] = rng.integers(-3, 100, defined.sum())
    with Mounted():
        path = describe("d", "filter", dtype="<i2", shape=shape, chunks=[1, 50, 40], fillvalue=fill, filters=["shuffle", {"deflate": 6}, "fletcher32"])
        bare = describe("bare", "filter", dtype="<i2", shape=shape, chunks=[1, 50, 40], fillvalue=fill)
        for name in [path, bare]:
            with open(name, "r+b", buffering=0) as f:
                for index in np.argwhere(defined):
                    os.pwrite(f.fileno(), data[tuple(index)].tobytes(), int(np.ravel_multi_index(index, shape)) * 2)
        assert (view_mask("d", shape) == defined).all()
    with h5py.File(FILE, "r+") as f:
        assert (f["d"][...] == data).all() and (f["bare"][...] == data).all()
        f["d"][1, 0, 0] = 77
        f["bare"][0, 3, 3:6] = [1, fill, 2]
    dumped = run("h5dump", "-d", "/d", "-s", "1,0,0", "-c", "1,1,2", FILE)
    assert "77, -3" in dumped, dumped
    data[1, 0, 0] = 77
    defined[1] = data[1] != fill
    with Mounted():
        assert (np.fromfile(os.path.join(MNT, "d"), "<i2").reshape(shape) == data).all()
        assert (view_mask("d", shape) == defined).all(), "h5py defines what differs from the fill value, in the chunks that it writes"
        assert view_mask("bare", shape)[0].sum() == 2


CASES = [after_the_fact, plugin, other_shapes, random_changes, stock_writer, tools, command_line, limits, conversion, types, resizing, create_rules]
if __name__ == "__main__":
    next(case for case in CASES if case.__name__ == CASE)()
