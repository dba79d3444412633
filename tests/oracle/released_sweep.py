"""Writing logs of the released log VOL: exports, changes through mounts, kills, foreign files; read by `released_reader`."""
import contextlib
import json
import os
import shutil
import subprocess

import h5py
import numpy as np

import harness
import released_reader
from log_files import Writer, deflated, entry, longs, selection
from log_sweep import SAMPLES, Records, attributes, error_of, killed, npy, shown

LONG = bool(os.environ.get("H5DIR_LONG"))


def run(options, *arguments):
    return subprocess.run([options.bin, *arguments], capture_output=True, text=True)


def same(tally, got, want, label):
    """The datasets `got` have the names, types, shapes and bytes of `want`."""
    tally.equal(sorted(got), sorted(want), f"{label}: names")
    for name in set(got) & set(want):
        a, b = got[name], want[name]
        tally.check(a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes(), f"{label}: {name}: {a.dtype} {a.shape}, not {b.dtype} {b.shape}")


def ordinary(path):
    """Datasets of an ordinary file by name."""
    found = {}
    with h5py.File(path, "r") as file:
        file.visititems(lambda name, item: found.__setitem__(name, np.asarray(item[()], item.dtype)) if isinstance(item, h5py.Dataset) else None)
    return found


def sound(options, tally, path, arrays, label):
    """The log has these arrays: by the independent reader, a dump, a check and a replay."""
    same(tally, released_reader.read(path), arrays, label)
    dump = run(options, "log", "dump", "--json", path)
    parts = [json.loads(line) for line in dump.stdout.splitlines()]
    tally.check(dump.returncode == 0 and parts[0]["part"] == "log" and "problem" not in dump.stdout, f"{label}: dump {dump.stderr}")
    done = run(options, "check", "--data", path)
    tally.equal(done.returncode, 0, f"{label}: check {done.stdout[-400:]}")
    copy = path + ".replayed"
    done = run(options, "log", "replay", path, copy)
    tally.equal(done.returncode, 0, f"{label}: replay {done.stderr}")
    same(tally, ordinary(copy), arrays, f"{label}: replayed")
    os.unlink(copy)


def golden(options, tally, folder):
    """Objects are stored as the released connector stores them; `m_byhand` differs in the time of allocation of anchors."""
    byhand, basic, ranks = (released_reader.structure(os.path.join(SAMPLES, name + ".h5")) for name in ("m_byhand", "a_basic", "b_mpi4"))
    late = lambda anchors: {(*a[:2], 2, *a[3:]) for a in anchors}
    for name in ("m_byhand", "a_basic", "b_mpi4"):
        path, plain = (os.path.join(folder, f"{name}{end}.h5") for end in ("", ".plain"))
        tally.equal(run(options, "log", "replay", os.path.join(SAMPLES, name + ".h5"), plain).returncode, 0, f"{name}: replay")
        done = run(options, "log", "export", "--libver=earliest", plain, path)
        tally.equal(done.returncode, 0, f"{name}: export {done.stderr}")
        found = released_reader.structure(path)
        tally.equal(found, basic, f"{name}: as a_basic")
        tally.equal(found, ranks, f"{name}: as b_mpi4")
        tally.equal({**found, "anchor": late(found["anchor"])}, byhand, f"{name}: as m_byhand")
        tally.equal(harness.read(path)[8], harness.read(os.path.join(SAMPLES, name + ".h5"))[8], f"{name}: superblock")
        with h5py.File(path) as ours, h5py.File(os.path.join(SAMPLES, name + ".h5")) as theirs:
            tally.equal([int(n) for n in ours.attrs["_int_att"]][0::4], [int(n) for n in theirs.attrs["_int_att"]][0::4], f"{name}: counts")
            for anchor in released_reader.Log(theirs, False).anchors:
                stored = "/".join("_" + part if part.startswith("_") else part for part in anchor.split("/"))
                a, b = ours[stored], theirs[stored]
                tally.check(a.id.get_type().equal(b.id.get_type()) and set(a.attrs) == set(b.attrs), f"{name} {anchor}: type, attributes")
                tally.check(all((a.attrs[n] == b.attrs[n]).all() for n in b.attrs if n not in ("_ID", "_mdims")), f"{name} {anchor}: attributes")
    for case in json.load(open(os.path.join(SAMPLES, "manifest.json"))):
        if case["file"][:-3] in ("m_byhand", "a_basic", "b_mpi4"):
            got = released_reader.read(os.path.join(folder, case["file"]))[case["dataset"].lstrip("/")]
            want = np.fromfile(os.path.join(SAMPLES, case["bin"]), case["dtype"]).reshape(case["dims"])
            tally.check(got.shape == want.shape and got.astype(case["dtype"]).tobytes() == want.tobytes(), f"{case['file']} {case['dataset']}")


def exports(options, tally, folder):
    """A file of all that fits: types, shapes, storage, names, links, attributes."""
    rng = np.random.default_rng(options.seed)
    plain = os.path.join(folder, "plain.h5")
    enum = h5py.enum_dtype({"NO": 0, "YES": 1}, "i1")
    with h5py.File(plain, "w") as file:
        file["i"] = rng.integers(-9, 9, (8, 10)).astype("<i4")
        file["_under"], file["g/h/__both"] = np.arange(3, dtype=">i2"), np.arange(4, dtype="u1")
        file["g/v"], file["scalar"], file["none"] = rng.random(5).astype(">f8"), np.int64(7), np.zeros((0, 3), "f4")
        file["compound"] = np.array([(1, (2.5, 3)), (4, (5.5, 6))], [("a", "<i2"), ("b", ">f4", (2,))])
        file["text"], file["raw"] = np.array([b"abc", b"de"], "S4"), np.array([b"\1\2\3", b"\0\5\6"], "V3")
        file.create_dataset("enum", data=np.array([0, 1, 1], "i1"), dtype=enum)
        file.create_dataset("chunks", data=rng.random((70, 30)), chunks=(16, 16), compression="gzip", maxshape=(None, 30))
        file.create_dataset("fill", (5, 4), "<i2", fillvalue=-9)
        file.create_dataset("big", data=rng.integers(0, 255, 3 << 20).astype("u1"))
        file["i"].attrs["units"], file["i"].attrs["_private"], file.attrs["run"], file["g"].attrs["_x"] = "metre", 3, 5, [1, 2]
        file["soft"], file["hard"], file["named"] = h5py.SoftLink("/i"), file["i"], np.dtype("<u2")
    want = ordinary(plain)
    for libver in ("earliest", "v110"):
        path = os.path.join(folder, f"export-{libver}.h5")
        done = run(options, "log", "export", "--log-format=released", "--libver=" + libver, plain, path)
        tally.equal((done.returncode, done.stderr), (0, ""), f"export {libver}")
        with h5py.File(path) as file:
            tally.equal(file.get("soft", getlink=True).path, "/i", "a soft link")
            tally.equal(file["hard"], file["i"], "a hard link")
            tally.equal(file["named"].dtype, np.dtype("<u2"), "a committed datatype")
            tally.equal(file["i"].attrs["__private"], 3, "an escaped attribute")
            tally.equal(list(file["chunks"].attrs["_mdims"]), [-1, 30], "the largest shape")
            used = sorted(a["id"] for a in released_reader.Log(file, True).anchors.values())
            tally.equal(used, list(range(int(file.attrs["_int_att"][0]))), "IDs without a gap")
        # A hard link is visited under one of its names.
        sound_names = {n: a for n, a in want.items() if n in released_reader.read(path)}
        tally.check(len(sound_names) == len(want), f"{libver}: names of datasets {sorted(set(want) - set(sound_names))}")
        sound(options, tally, path, sound_names, f"export {libver}")
        with harness.mounted(options.bin, path) as mount:
            tally.equal(attributes(os.path.join(mount, "i")), {"units", "_private"}, "names of attributes")
            tally.check({"_under", "g/h/__both", "soft", "hard", "named"} <= shown(mount) and "_LOG" not in shown(mount), "names of a mount")
    tally.check(run(options, "log", "export", plain, path).returncode != 0, "an export over a file")
    with h5py.File(plain, "a") as file:
        file["g/strings"] = ["a", "bc"]
    path = os.path.join(folder, "strings.h5")
    done = run(options, "log", "export", plain, path)
    tally.check(done.returncode == 1 and "/g/strings" in done.stderr and "variable length" in done.stderr, f"variable length: {done.stderr}")
    same(tally, released_reader.read(path), sound_names, "without what does not fit")


class Datasets(Records):
    """Datasets of a released log under random changes, and arrays that should equal them."""

    SHAPES = {"a": ((500,), (None,), "<i4"), "b": ((30, 40), (None, 40), "<u2"), "c": ((5, 9, 9), (5, 9, 9), ">f8"), "s": ((), (), "<i8"),
              "_v": ((300,), (900,), "V3")}
    GROWS, LARGE = "abv", "v"

    def create(self, mount, prefix=""):
        for name, (shape, maximum, dtype) in self.SHAPES.items():
            file = os.path.join(mount, prefix + name)
            open(file, "wb").close()
            os.setxattr(file, "user.h5dir.dataset", json.dumps({"dtype": "|V3" if dtype == "V3" else dtype, "shape": shape, "maxshape": maximum}).encode())
            self.arrays[prefix + name] = np.zeros(shape, dtype)

    def changes(self, mount, count):
        for _ in range(count):
            self.change(mount, str(self.rng.choice(list(self.arrays))))


def mounts(options, tally, folder):
    """Random changes through mounts; the independent reader after each of them."""
    rng = np.random.default_rng(options.seed + 1)
    log = Datasets(options, tally, os.path.join(folder, "mounts.h5"), rng)
    tally.equal(run(options, "create", "--log", "--log-format=released", log.path).returncode, 0, "create")
    for turn in range(8 if LONG else 3):
        with harness.mounted(options.bin, log.path, "--read-write", "--cache-size=1M") as mount:
            if turn == 0:
                log.create(mount)
            log.check(mount, f"turn {turn}, mounted again")
            log.changes(mount, 120)
            log.check(mount, f"turn {turn}")
            for name, raw in {f"new{turn}": b"bytes", "again": b"x" * (9 - turn), "big": rng.bytes(1_400_000 + turn)}.items():
                with open(os.path.join(mount, name), "wb") as f:
                    f.write(raw)
                log.arrays[name] = np.frombuffer(raw, "u1")
            with open(os.path.join(mount, "gone"), "w+b", buffering=0) as f:
                f.write(b"before")
                os.fsync(f.fileno())
                os.unlink(os.path.join(mount, "gone"))
                f.write(b" after")
                os.fsync(f.fileno())
                tally.equal(os.pread(f.fileno(), 20, 0), b"before after", "deleted while it is open")
        sound(options, tally, log.path, log.arrays, f"turn {turn}")
        with harness.mounted(options.bin, log.path) as mount:
            log.check(mount, f"turn {turn}, read-only")
            tally.equal(attributes(os.path.join(mount, "a")), set(), "attributes of the log are hidden")
    with harness.mounted(options.bin, log.path, "--read-write", "--cache-size=1M") as mount:
        os.unlink(os.path.join(mount, "c"))
        del log.arrays["c"]
        os.mkdir(os.path.join(mount, "_g"))
        os.rename(os.path.join(mount, "b"), os.path.join(mount, "_g/_b"))
        log.arrays["_g/_b"] = log.arrays.pop("b")
        os.setxattr(os.path.join(mount, "_g/_b"), "user._mine", b"x")
        open(os.path.join(mount, "named"), "wb").close()
        os.setxattr(os.path.join(mount, "named"), "user.h5dir.datatype", b"<i4")
        # A dataset of another type is one with another ID; rows are kept.
        os.setxattr(os.path.join(mount, "a"), "user.h5dir.dtype", b"<f4")
        log.arrays["a"] = log.arrays["a"].view("<f4")
        os.truncate(os.path.join(mount, "big"), 1_200_000)
        os.setxattr(os.path.join(mount, "big"), "user.h5dir.dtype", b">u2")
        log.arrays["big"] = log.arrays["big"][:1_200_000].view(">u2")
        tally.equal(attributes(os.path.join(mount, "_g/_b")), {"_mine"}, "an attribute of a user")
    sound(options, tally, log.path, log.arrays, "deleted, renamed, retyped")
    with h5py.File(log.path) as file:
        tally.equal(set(file["__g/__b"].attrs), {"__mine", "_ID", "_dims", "_mdims"}, "escaped names")
        tally.equal(set(file["named"].attrs), set(), "a datatype is no anchor")
    with harness.mounted(options.bin, log.path, "--read-write", "--commit-interval=0") as mount:
        for number in range(150):
            with open(os.path.join(mount, "s"), "r+b", buffering=0) as f:
                f.write(number.to_bytes(8, "little"))
                os.fsync(f.fileno())
    log.arrays["s"] = np.array(149, "<i8")
    same(tally, released_reader.read(log.path), log.arrays, "many commits")
    with h5py.File(log.path) as file:
        tally.check(file.attrs["_int_att"][2] <= 64, f"metadata datasets are joined: {file.attrs['_int_att']}")
    before = harness.read(log.path)
    with harness.mounted(options.bin, log.path, "--read-write") as mount:
        log.check(mount, "read in a mount for writing")
    tally.check(harness.read(log.path) == before, "a mount without changes writes nothing")


def kills(options, tally, folder):
    """The daemon is killed: what fsync acknowledged is there."""
    rng = np.random.default_rng(options.seed + 2)
    log = Datasets(options, tally, os.path.join(folder, "kills.h5"), rng)
    run(options, "create", "--log", "--log-format=released", log.path)
    with harness.mounted(options.bin, log.path, "--read-write") as mount:
        log.create(mount)
    for turn in range(20 if LONG else 4):
        point = os.path.join(folder, f"mount{turn}")
        with killed(options, log.path, point):
            log.check(point, f"kill {turn}: mounted again")
            log.changes(point, int(rng.integers(1, 60)))
            with open(os.path.join(point, "a"), "rb") as f:
                os.fsync(f.fileno())
            # Not acknowledged, and not committed by an interval.
            with open(os.path.join(point, "c"), "r+b", buffering=0) as f:
                os.pwrite(f.fileno(), b"lost", 0)
        run(options, "recover", log.path)
        same(tally, released_reader.read(log.path), log.arrays, f"kill {turn}")


def foreign(options, tally, folder):
    """Files of the released connector are written where their log has only what is written here."""
    for name in ("a_basic", "b_mpi4", "c_points", "e_flushes", "g_record", "f_fullrow_canon", "m_byhand"):
        path = os.path.join(folder, f"foreign-{name}.h5")
        shutil.copy(os.path.join(SAMPLES, name + ".h5"), path)
        os.chmod(path, 0o644)
        arrays = {n: a.copy() for n, a in released_reader.read(path, False).items()}
        rng = np.random.default_rng(options.seed + 3)
        with harness.mounted(options.bin, path, "--read-write") as mount:
            for dataset, array in arrays.items():
                raw = bytearray(array.tobytes())
                at = int(rng.integers(0, len(raw)))
                raw[at:at + 20] = (b"appended by h5dir!!!" * 2)[: len(raw[at:at + 20])]
                with open(os.path.join(mount, dataset), "r+b", buffering=0) as f:
                    os.pwrite(f.fileno(), bytes(raw[at:at + 20]), at)
                arrays[dataset] = np.frombuffer(bytes(raw), array.dtype).reshape(array.shape)
            with open(os.path.join(mount, "new"), "wb") as f:
                f.write(b"new")
            arrays["new"] = np.frombuffer(b"new", "u1")
        same(tally, released_reader.read(path, False), arrays, f"appended to {name}")
        with h5py.File(path) as file, h5py.File(os.path.join(SAMPLES, name + ".h5")) as old:
            after, before = (list(map(int, f.attrs["_int_att"])) for f in (file, old))
            tally.equal(after, [before[0] + 1, before[1] + 1, before[2] + 1, *before[3:]], f"{name}: counts")
            ends = [d.id.get_offset() + d.shape[0] for n, d in old["_LOG"].items() if n.startswith("_ld")]
            tally.check(file["_LOG"][f"_ld_{before[1]}"].id.get_offset() >= max(ends), f"{name}: new data is further back")
        with harness.mounted(options.bin, path, "--read-write") as mount:
            os.unlink(os.path.join(mount, "new"))
            del arrays["new"]
        # All entries were written anew, in the form that is read strictly.
        same(tally, released_reader.read(path), arrays, f"{name}, entries joined")


def shrunk(options, tally, folder):
    """Entries beyond the extent, which a program left that shrank the dataset, do not show again when it grows."""
    path = os.path.join(folder, "shrunk.h5")
    writer = Writer(path)
    d = writer.dataset("d", "<i4", [4], [-1])
    offset, = writer.flush([np.arange(1, 11, dtype="<i4").tobytes()])
    writer.describe([entry(d, *(0, offset, 40), selection([((0,), (10,))], 1, [10], "canonical")[1])])
    writer.close(config=0)
    with harness.mounted(options.bin, path, "--read-write") as mount:
        os.truncate(os.path.join(mount, "d"), 32)
        tally.equal(np.fromfile(os.path.join(mount, "d"), "<i4").tolist(), [1, 2, 3, 4, 0, 0, 0, 0], "grown")
    tally.equal(released_reader.read(path)["d"].tolist(), [1, 2, 3, 4, 0, 0, 0, 0], "grown, read again")


def mutants(options, tally, folder):
    """Changed bytes in the metadata: a mount for writing is refused, or ends in order after a write."""
    rng = np.random.default_rng(options.seed + 4)
    path = os.path.join(folder, "mutant.h5")
    writer = Writer(path)
    datasets = [(writer.dataset("a", "<i4", [40, 30]), [40, 30]), (writer.dataset("g/b", ">f8", [500]), [500]), (writer.dataset("s", "<i8", []), [])]
    for _ in range(3):
        made = b""
        for number, dims in datasets:
            start = [int(rng.integers(0, d)) for d in dims]
            count = [int(rng.integers(1, d - s + 1)) for d, s in zip(dims, start)]
            raw = rng.bytes(int(np.prod(count, dtype=int)) * (4 if number == 0 else 8))
            made += entry(number, 0, *writer.flush([raw]), len(raw), longs([*start, *count]))
        writer.describe([made])
    writer.close()
    with h5py.File(path, "r") as f:
        spans = [(f["_LOG"][n].id.get_offset(), f["_LOG"][n].shape[0]) for n in f["_LOG"] if n.startswith("_md")]
    image, point = harness.read(path), os.path.join(folder, "mutants")
    os.mkdir(point)
    for number in range(200 if LONG else 12):
        changed = bytearray(image)
        at, size = spans[int(rng.integers(0, len(spans)))]
        changed[at + int(rng.integers(0, size))] = int(rng.choice([0, 1, 0x7F, 0x80, 0xFF, int(rng.integers(0, 256))]))
        open(path, "wb").write(changed)
        done = run(options, "mount", "--read-write", "--log-level=error", path, point)
        if done.returncode != 0:
            tally.check(done.returncode == 3 and "not written here" in done.stderr, f"mutant {number}: {done.returncode} {done.stderr}")
            continue
        with open(os.path.join(point, "new"), "wb") as f:
            f.write(b"new")
        done = run(options, "umount", point)
        tally.equal(done.returncode, 0, f"mutant {number}: {done.stderr}")
        tally.equal(released_reader.read(path, False)["new"].tobytes(), b"new", f"mutant {number}: the write")


@contextlib.contextmanager
def refused(tally, number, label):
    try:
        yield
        tally.check(False, f"{label}: accepted")
    except OSError as e:
        tally.equal(e.errno, number, f"{label}: {e}")


def not_written(options, tally, file, folder, why):
    done = run(options, "mount", "--read-write", file, folder)
    tally.check(done.returncode != 0 and "--log=raw" in done.stderr and "not written here" in done.stderr, f"{why}: {done.stderr}")
    tally.check(why in ("broken",) or why in done.stderr, f"the reason {why}: {done.stderr}")


def subfiles(options, tally, folder):
    shutil.copytree(os.path.join(SAMPLES, "h_subfile.h5.subfiles"), os.path.join(folder, "h_subfile.h5.subfiles"))
    not_written(options, tally, shutil.copy(os.path.join(SAMPLES, "h_subfile.h5"), folder), folder, "subfiles")


def refusals(options, tally, folder):
    """What the connector cannot read is refused, with the reason."""
    path = os.path.join(folder, "refusals.h5")
    run(options, "create", "--log", "--log-format=released", path)
    cases = {"strings": {"dtype": {"class": "H5T_STRING", "length": "H5T_VARIABLE"}, "shape": [2]}, "chunks": {"dtype": "<i4", "shape": [8], "chunks": [4]},
             "filters": {"dtype": "<i4", "shape": [8], "filters": ["deflate"]}, "contiguous": {"dtype": "<i4", "shape": [8], "layout": "contiguous"},
             "deflate": {"dtype": "<i4", "shape": [8], "layout": "log", "profile": "deflate"}}
    with harness.mounted(options.bin, path, "--read-write") as mount:
        for name, text in cases.items():
            file = os.path.join(mount, name)
            open(file, "wb").close()
            with refused(tally, 95, name):
                os.setxattr(file, "user.h5dir.dataset", json.dumps(text).encode())
            os.unlink(file)
        with open(os.path.join(mount, "d"), "wb") as f:
            f.write(b"1")
        with refused(tally, 95, "a fact of the layout"):
            os.setxattr(os.path.join(mount, "d"), "user.h5dir.layout", b"chunked")
    same(tally, released_reader.read(path), {"d": np.frombuffer(b"1", "u1")}, "after refusals")
    for command in (["compact"], ["log", "rebuild"]):
        done = run(options, *command, path)
        tally.check(done.returncode == 1 and "has no log of records" in done.stderr and "log export" in done.stderr, f"{command}: {done.stderr}")
    for version in ("1.0", "1.1", "1.2"):
        file = os.path.join(folder, f"v{version}.h5")
        writer = Writer(file, version)
        writer.dataset("d", "<i4", [4])
        writer.close()
        not_written(options, tally, file, folder, "1.4")
    raw = np.arange(4096, dtype="<i4").tobytes()
    packed = deflated(raw)
    for label, change in {"deflated": lambda w, o: entry(0, 0, o, len(packed), longs([0, 4096])),
                          "broken": lambda w, o: entry(0, 0, 1 << 40, len(raw), longs([0, 4096])),
                          "merged": lambda w, o: b""}.items():
        file = os.path.join(folder, label + ".h5")
        writer = Writer(file)
        writer.dataset("d", "<i4", [4096])
        offset, = writer.flush([packed if label == "deflated" else raw])
        writer.describe([change(writer, offset)])
        writer.close(config=1 if label == "merged" else 10)
        not_written(options, tally, file, folder, label)


def main():
    options, tally = harness.arguments(__doc__), harness.Tally()
    with harness.folder(options.keep) as folder:
        if os.path.exists(SAMPLES):
            golden(options, tally, folder)
            foreign(options, tally, folder)
            subfiles(options, tally, folder)
        else:
            print("no samples at", SAMPLES)
        exports(options, tally, folder)
        mounts(options, tally, folder)
        kills(options, tally, folder)
        shrunk(options, tally, folder)
        mutants(options, tally, folder)
        refusals(options, tally, folder)
    tally.finish()


if __name__ == "__main__":
    main()
