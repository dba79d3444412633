"""Logs through a mount. Of the released log VOL: shared samples, files of every form, hostile entries. Of records: changes, kills."""
import contextlib
import ctypes
import glob
import json
import os
import struct
import subprocess
import threading
import time

import h5py
import numpy as np

import harness
import log_files
import log_reader
from log_files import Writer, deflated, entry, longs, selection

SAMPLES = os.environ.get("LOGVOL_SAMPLES") or os.path.join(harness.TOP, "..", "shared", "logvol-samples")


def shown(mount):
    """Files and directories of a mount, but for the control directory."""
    found = set()
    for base, directories, files in os.walk(mount):
        directories[:] = [d for d in directories if d != ".h5dir"]
        found |= {os.path.relpath(os.path.join(base, name), mount) for name in directories + files}
    return found


def npy(mount, path):
    return np.load(os.path.join(mount, ".h5dir/npy", path.lstrip("/") + ".npy"), allow_pickle=False)


def attributes(path):
    return {name.removeprefix("user.") for name in os.listxattr(path) if not name.startswith("user.h5dir.")}


def samples(options, tally):
    manifest = os.path.join(SAMPLES, "manifest.json")
    if not os.path.exists(manifest):
        print("no samples at", SAMPLES)
        return
    cases = json.load(open(manifest))
    for file in sorted({case["file"] for case in cases}):
        of = [case for case in cases if case["file"] == file]
        with harness.mounted(options.bin, os.path.join(SAMPLES, file)) as mount:
            for case in of:
                got = npy(mount, case["dataset"])
                want = np.fromfile(os.path.join(SAMPLES, case["bin"]), case["dtype"]).reshape(case["dims"])
                tally.check(got.shape == want.shape and got.astype(case["dtype"]).tobytes() == want.tobytes(), f"{file} {case['dataset']}")
            names = {case["dataset"].lstrip("/") for case in of}
            tally.equal(shown(mount), names | {os.path.dirname(n) for n in names} - {""}, f"{file}: names")
    with harness.mounted(options.bin, os.path.join(SAMPLES, "a_basic.h5")) as mount:
        tally.equal(attributes(os.path.join(mount, "grid")), {"_private", "units_code"}, "attributes of a dataset")
        tally.equal(attributes(mount), {"run"}, "attributes of the root")
    with harness.mounted(options.bin, os.path.join(SAMPLES, "a_basic.h5"), "--log=raw") as mount:
        tally.check({"_LOG/_ld_0", "_LOG/_md_0", "__under"} <= shown(mount), "--log=raw")
        tally.check("_dims" in attributes(os.path.join(mount, "grid")), "--log=raw: attributes")
    for file in sorted(glob.glob(os.path.join(SAMPLES, "*.h5"))):
        done = subprocess.run([options.bin, "check", "--data", file], capture_output=True, text=True)
        tally.equal(done.returncode, 0, f"check {file}: {done.stdout[-500:]}")


def random_blocks(rng, dims, records):
    """Blocks of one write, which do not overlap: cut along one dimension."""
    if not dims:
        return [((), ())], None
    start = [int(rng.integers(0, d)) for d in dims]
    count = [int(rng.integers(1, d - s + 1)) for d, s in zip(dims, start)]
    record = None
    if records and rng.random() < 0.5:
        count[0], record = 1, start[0]
    axis = int(rng.integers(0, len(dims)))
    cuts = sorted({0, count[axis], *map(int, rng.integers(0, count[axis] + 1, 2))})
    blocks = []
    for low, high in zip(cuts, cuts[1:]):
        if rng.random() < 0.8 or not blocks:
            s, c = list(start), list(count)
            s[axis], c[axis] = start[axis] + low, high - low
            blocks.append((tuple(s), tuple(c)))
    return blocks, record


def random_file(path, rng, version):
    """Writes a file of every form of entries; returns the arrays."""
    writer = Writer(path, version, userblock=int(rng.choice([0, 512])))
    arrays, ids = {}, {}
    for i in range(5):
        dims = [int(n) for n in rng.integers(1, 9, int(rng.integers(0, 5)))]
        name, dtype = ["a", "g/b", "g/h/c", "d", "_e" if version == "1.4" else "e"][i], rng.choice(["<i4", ">f8", "<u2", "|i1"])
        fill = int(rng.integers(0, 3))
        maximum = [-1, *dims[1:]] if dims else None
        ids[name] = writer.dataset(name, dtype, dims, maximum, fill), maximum is not None
        arrays[name] = np.full(dims, fill, dtype)
    for _ in range(int(rng.integers(1, 4))):
        ranks, pieces, order = int(rng.integers(1, 4)), [], []
        requests = [[] for _ in range(ranks)]
        for flush in range(int(rng.integers(1, 3))):
            batch = []
            for rank in range(ranks):
                for _ in range(int(rng.integers(0, 6))):
                    name = str(rng.choice(list(arrays)))
                    array = arrays[name]
                    blocks, record = random_blocks(rng, array.shape, ids[name][1])
                    parts = [rng.integers(0, 100, c).astype(array.dtype) for _, c in blocks]
                    for (s, c), part in zip(blocks, parts):
                        array[tuple(slice(a, a + n) for a, n in zip(s, c))] = part
                    raw = b"".join(part.tobytes() for part in parts)
                    packed = deflated(raw)
                    batch.append((rank, name, blocks, record, packed if rng.random() < 0.3 and len(packed) != len(raw) else raw))
            offsets = writer.flush([b[-1] for b in batch]) if batch else []
            for (rank, name, blocks, record, raw), offset in zip(batch, offsets):
                requests[rank].append((name, blocks, record, offset, len(raw)))
        sections = []
        for section in requests:
            made, earlier = b"", {}
            for name, blocks, record, offset, length in section:
                array = arrays[name]
                key = name, tuple((s[1:], c[1:]) for s, c in blocks) if record is not None else tuple(blocks), record is not None
                if key in earlier and rng.random() < 0.8:
                    back, first = len(made) - earlier[key][0], earlier[key][1]
                    same = first == record
                    flags = REFERENCE_OF(record if not same else None) | (log_files.RECORD if same and version in ("1.1", "1.2") and record is not None else 0)
                    body = (b"" if same or record is None else longs([record])) + longs([-back])
                else:
                    form = str(rng.choice(["canonical", "encoded"]))
                    flags, body = selection(blocks, array.ndim, array.shape, form, record, version != "1.4")
                    earlier[key] = len(made), record
                made += entry(ids[name][0], flags, offset, length, body)
            sections.append(made)
        if any(sections):
            writer.describe(sections)
    writer.close()
    return arrays


def REFERENCE_OF(record):
    return log_files.REFERENCE | (log_files.RECORD if record is not None else 0)


def forms(options, tally, folder):
    rng = np.random.default_rng(options.seed)
    for number in range(60 if os.environ.get("H5DIR_LONG") else 16):
        path, version = os.path.join(folder, f"r{number}.h5"), ["1.0", "1.1", "1.2", "1.4"][number % 4]
        arrays = random_file(path, rng, version)
        with harness.mounted(options.bin, path) as mount:
            for name, want in arrays.items():
                got = npy(mount, name)
                tally.check(got.dtype == want.dtype and got.shape == want.shape and got.tobytes() == want.tobytes(), f"{path} ({version}) {name}")
            tally.equal(shown(mount), set(arrays) | {"g", "g/h"}, f"{path}: names")
            for name, want in arrays.items():
                raw = harness.read(os.path.join(mount, name))
                for _ in range(5):
                    at = int(rng.integers(0, max(1, len(raw))))
                    with open(os.path.join(mount, name), "rb", buffering=0) as f:
                        tally.equal(os.pread(f.fileno(), 13, at), want.tobytes()[at:at + 13], f"{path} {name} at {at}")


def merged(options, tally, folder):
    """Requests merged into one entry: decoded where that has one meaning."""
    path = os.path.join(folder, "merged.h5")
    writer = Writer(path)
    a, b = writer.dataset("a", "<i4", [100]), writer.dataset("b", "<i4", [100])
    one, two, clear = np.arange(8, dtype="<i4"), np.arange(3, dtype="<i4"), np.arange(6, dtype="<i4")
    offsets = writer.flush([one.tobytes() + two.tobytes(), clear.tobytes(), clear.tobytes()])
    flags, body = selection([((10,), (8,)), ((50,), (3,))], 1, [100], "merged")
    # Starts 3 and 3, counts 3 and 3; or blocks of 3 at 3: the same either way.
    same = selection([((3,), (3,)), ((3,), (3,))], 1, [100], "merged")
    writer.describe([entry(a, flags, offsets[0], 44, body) + entry(b, same[0], offsets[1], 24, same[1])])
    writer.close(config=1)
    with harness.mounted(options.bin, path) as mount:
        want = np.zeros(100, "<i4")
        want[10:18], want[50:53] = one, two
        tally.check((npy(mount, "a") == want).all(), "merged requests")
        tally.check((npy(mount, "b")[:3] == 0).all(), "merged requests of equal numbers")


def holes(options, tally, folder):
    """Elements that no write supplied are holes, exact to the element."""
    path = os.path.join(folder, "holes.h5")
    writer = Writer(path)
    d = writer.dataset("d", "<i8", [1000, 1000])
    offset, = writer.flush([np.arange(1, 61, dtype="<i8").tobytes()])
    flags, body = selection([((5, 10), (2, 10)), ((700, 0), (1, 40))], 2, [1000, 1000], "canonical")
    writer.describe([entry(d, flags, offset, 480, body)])
    writer.close()
    with harness.mounted(options.bin, path) as mount, open(os.path.join(mount, "d"), "rb") as f:
        found, at = [], 0
        while at < 8_000_000:
            try:
                start = os.lseek(f.fileno(), at, os.SEEK_DATA)
            except OSError:
                break
            at = os.lseek(f.fileno(), start, os.SEEK_HOLE)
            found.append((start // 8, at // 8))
        tally.equal(found, [(5010, 5020), (6010, 6020), (700000, 700040)], "holes")
        tally.equal(os.stat(f.fileno()).st_blocks, 1, "allocated bytes")


def error_of(mount, name, offset, size=4):
    with open(os.path.join(mount, name), "rb", buffering=0) as f:
        # Past the page cache: each element is a request of its own page.
        try:
            return os.pread(f.fileno(), size, offset)
        except OSError as e:
            return e.errno


def hostile(options, tally, folder):
    """A damaged entry makes the bytes that it supplies EIO, and nothing else."""
    good = selection([((0,), (4096,))], 1, [8192], "canonical")[1]
    later = selection([((4096,), (4096,))], 1, [8192], "canonical")[1]
    raw = np.arange(4096, dtype="<i4").tobytes()
    cases = {
        "size below 28": lambda e: struct.pack("<i", 20) + e[4:],
        "size past the section": lambda e: struct.pack("<i", 1 << 20) + e[4:],
        "huge count of blocks": lambda e: struct.pack("<iii", 48, 0, 1) + e[12:28] + struct.pack("<i", 2**31 - 1) + e[28:44],
        "negative start": lambda e: e[:28] + longs([-5]) + e[36:],
        "data before the log": lambda e: e[:12] + longs([0]) + e[20:],
        "data past the log": lambda e: e[:12] + longs([1 << 40]) + e[20:],
        "length past the log": lambda e: e[:20] + longs([1 << 40]) + e[28:],
        "length of less": lambda e: e[:20] + longs([100]) + e[28:],
        "reference to nowhere": lambda e: struct.pack("<iii", 36, 0, 16) + e[12:28] + longs([-1 << 40]),
        "reference forwards": lambda e: struct.pack("<iii", 36, 0, 16) + e[12:28] + longs([36]),
        "reference into an entry": lambda e: struct.pack("<iii", 36, 0, 16) + e[12:28] + longs([-4]),
        "step of 0": lambda e: struct.pack("<iii", 56, 0, 5) + e[12:28] + struct.pack("<i", 1) + longs([0, 0, 0]),
    }
    for label, damage in cases.items():
        path = os.path.join(folder, label.replace(" ", "_") + ".h5")
        writer = Writer(path)
        a, b = writer.dataset("a", "<i4", [8192]), writer.dataset("b", "<i4", [8192])
        offsets = writer.flush([raw, raw, raw])
        first = damage(entry(a, 0, offsets[0], len(raw), good))
        writer.describe([first + entry(a, 0, offsets[1], len(raw), later) + entry(b, 0, offsets[2], len(raw), good)])
        writer.close()
        with harness.mounted(options.bin, path, "--log-file=" + path + ".log") as mount:
            tally.equal(error_of(mount, "a", 0), 5, f"{label}: damaged")
            # What a later write supplies is known, unless a damaged size hides which is later.
            if not label.startswith("size"):
                tally.equal(error_of(mount, "a", 8000 * 4), struct.pack("<i", 8000 - 4096), f"{label}: later write")
            tally.equal(error_of(mount, "b", 16), struct.pack("<i", 4), f"{label}: other dataset")
            tally.equal(sorted(os.listdir(mount)), ["a", "b"], f"{label}: names")
        log = open(path + ".log").read()
        tally.check("log VOL metadata" in log, f"{label}: log {log!r}")
    # Nothing can be read of the metadata: no value of the file is certain.
    for label, table in {"sections": longs([1 << 60]), "ends": longs([2, 1 << 40, 5]), "short": b"\1\0\0"}.items():
        path = os.path.join(folder, f"table_{label}.h5")
        writer = Writer(path)
        writer.dataset("a", "<i4", [8192])
        writer.write(writer.bytes("md", 0, len(table)), table)
        writer.metadata = 1
        writer.close()
        with harness.mounted(options.bin, path) as mount:
            tally.equal(error_of(mount, "a", 0), 5, f"{label}: damaged table")


def mutants(options, tally, folder):
    """Changed bytes anywhere in the metadata: the daemon survives, and answers or fails each read."""
    rng = np.random.default_rng(options.seed + 1)
    path = os.path.join(folder, "mutant.h5")
    arrays = random_file(path, rng, "1.4")
    with h5py.File(path, "r") as f:
        spans = [(f["_LOG"][n].id.get_offset(), f["_LOG"][n].shape[0]) for n in f["_LOG"] if n.startswith("_md")]
    image = harness.read(path)
    for number in range(400 if os.environ.get("H5DIR_LONG") else 40):
        changed = bytearray(image)
        for _ in range(int(rng.integers(1, 4))):
            at, size = spans[int(rng.integers(0, len(spans)))]
            changed[at + int(rng.integers(0, size))] = int(rng.choice([0, 1, 0x7f, 0x80, 0xff, int(rng.integers(0, 256))]))
        open(path, "wb").write(changed)
        with harness.mounted(options.bin, path, "--log-level=off") as mount:
            for name, want in arrays.items():
                got = error_of(mount, name, 0, want.nbytes + 8)
                tally.check(got == 5 or (isinstance(got, bytes) and len(got) == want.nbytes), f"mutant {number} {name}: {got!r:.60}")


FALLOC_PUNCH = 3
LIBC = ctypes.CDLL(None, use_errno=True)


class Records:
    """Datasets in a log of records under random changes, and arrays that should equal them."""

    SHAPES = [((500,), (None,), "<i4"), ((30, 40), (None, 40), "<u2"), ((5, 9, 9), (5, 9, 9), ">f8"), ((), (), "<i8"), ((300,), (900,), "V3")]
    # Ends of the names of datasets that grow, and of those that grow to 900 rows.
    GROWS, LARGE = "014", "4"

    def __init__(self, options, tally, path, rng):
        self.options, self.tally, self.path, self.rng, self.arrays = options, tally, path, rng, {}

    def create(self, mount):
        for i, (shape, maximum, dtype) in enumerate(self.SHAPES):
            for profile in ("plain", "deflate"):
                name = f"{profile}{i}"
                open(os.path.join(mount, name), "wb").close()
                text = {"dtype": "|V3" if dtype == "V3" else dtype, "shape": shape, "maxshape": maximum, "layout": "log", "profile": profile}
                os.setxattr(os.path.join(mount, name), "user.h5dir.dataset", json.dumps(text).encode())
                self.arrays[name] = np.zeros(shape, dtype)

    def change(self, mount, name):
        array, path, rng = self.arrays[name], os.path.join(mount, name), self.rng
        raw, kind = bytearray(array.tobytes()), int(rng.integers(0, 14))
        row = array.itemsize * int(np.prod(array.shape[1:], dtype=int))
        grows = name[-1] in self.GROWS
        with open(path, "r+b", buffering=0) as f:
            if kind < 8:
                at = int(rng.integers(0, max(1, len(raw))))
                piece = rng.integers(0, 256, int(rng.integers(1, 700)), dtype="u1").tobytes()[: len(raw) - at]
                os.pwrite(f.fileno(), piece, at)
                raw[at:at + len(piece)] = piece
            elif kind == 8:
                at, length = int(rng.integers(0, max(1, len(raw)))), int(rng.integers(1, 900))
                if LIBC.fallocate(f.fileno(), FALLOC_PUNCH, ctypes.c_long(at), ctypes.c_long(length)) != 0:
                    raise OSError(ctypes.get_errno(), "punch")
                raw[at:at + length] = bytes(len(raw[at:at + length]))
            elif kind in (9, 10) and grows:
                rows = int(rng.integers(1, 900 if name[-1] == self.LARGE else 2 * array.shape[0] + 2))
                os.ftruncate(f.fileno(), rows * row)
                raw = raw[: rows * row].ljust(rows * row, b"\0")
            elif kind == 11 and grows and len(raw) // row < 800:
                piece = rng.integers(0, 256, row * int(rng.integers(1, 4)), dtype="u1").tobytes()
                os.pwrite(f.fileno(), piece, len(raw))
                raw += piece
            else:
                os.fsync(f.fileno())
        shape = (len(raw) // row, *array.shape[1:]) if array.shape else ()
        self.arrays[name] = np.frombuffer(bytes(raw), array.dtype).reshape(shape)

    def check(self, mount, label):
        for name, array in self.arrays.items():
            self.tally.check(harness.read(os.path.join(mount, name)) == array.tobytes(), f"{label}: {name}")

    def independent(self, label):
        with h5py.File(self.path, "r") as f:
            for records in (False, True):
                found = log_reader.read(f, records)
                for name, array in self.arrays.items():
                    # The sign and the payload of a NaN are its bytes.
                    self.tally.check(found[name].values.tobytes() == array.tobytes(), f"{label}: {name}, records alone: {records}")


@contextlib.contextmanager
def killed(options, file, mount):
    """A mount whose daemon is killed at the end."""
    os.makedirs(mount, exist_ok=True)
    daemon = subprocess.Popen([options.bin, "mount", "-f", "--read-write", "--commit-interval=0", file, mount], stdin=subprocess.DEVNULL,
                              stderr=subprocess.DEVNULL)
    try:
        while not os.path.ismount(mount):
            assert daemon.poll() is None, "the daemon ended"
            time.sleep(0.02)
        yield
    finally:
        daemon.kill()
        daemon.wait()
        subprocess.run(["umount", "-l", mount], capture_output=True)


def records(options, tally, folder):
    rng = np.random.default_rng(options.seed + 2)
    log = Records(options, tally, os.path.join(folder, "records.h5"), rng)
    subprocess.run([options.bin, "create", log.path], check=True)
    for turn in range(8 if os.environ.get("H5DIR_LONG") else 4):
        with harness.mounted(options.bin, log.path, "--read-write", "--cache-size=1M") as mount:
            if turn == 0:
                log.create(mount)
            log.check(mount, f"turn {turn}, mounted again")
            for _ in range(150):
                log.change(mount, str(rng.choice(list(log.arrays))))
            log.check(mount, f"turn {turn}")
        with harness.mounted(options.bin, log.path) as mount:
            log.check(mount, f"turn {turn}, read-only")
            tally.equal(sorted(os.listdir(mount)), sorted(log.arrays), "names")
            tally.equal(attributes(os.path.join(mount, "plain0")), set(), "attributes")
        log.independent(f"turn {turn}")
        done = subprocess.run([options.bin, "check", "--data", log.path], capture_output=True, text=True)
        tally.equal(done.returncode, 0, f"turn {turn}: check: {done.stdout[-400:]}")
    with harness.mounted(options.bin, log.path, "--read-write") as mount:
        for layout in ("chunked", "log", "contiguous", "log"):
            for name in list(log.arrays):
                if name[-1] in "14":
                    os.setxattr(os.path.join(mount, name), "user.h5dir.layout", layout.encode())
                    tally.equal(os.getxattr(os.path.join(mount, name), "user.h5dir.layout").decode(), layout, f"{name} becomes {layout}")
            log.check(mount, f"converted to {layout}")
        os.unlink(os.path.join(mount, "plain2"))
        del log.arrays["plain2"]
        os.rename(os.path.join(mount, "plain3"), os.path.join(mount, "moved3"))
        log.arrays["moved3"] = log.arrays.pop("plain3")
    log.independent("converted")


def kills(options, tally, folder):
    """The daemon is killed: what fsync acknowledged is there, by the next mount and by an independent reader."""
    rng = np.random.default_rng(options.seed + 3)
    log = Records(options, tally, os.path.join(folder, "kills.h5"), rng)
    subprocess.run([options.bin, "create", log.path], check=True)
    with harness.mounted(options.bin, log.path, "--read-write") as mount:
        log.create(mount)
    for turn in range(20 if os.environ.get("H5DIR_LONG") else 6):
        point = os.path.join(folder, f"mount{turn}")
        with killed(options, log.path, point):
            log.check(point, f"kill {turn}: mounted again")
            for _ in range(int(rng.integers(1, 60))):
                log.change(point, str(rng.choice(list(log.arrays))))
            with open(os.path.join(point, "plain0"), "rb") as f:
                os.fsync(f.fileno())
            acknowledged = dict(log.arrays)
            # Not acknowledged, and not committed by an interval.
            with open(os.path.join(point, "plain2"), "r+b", buffering=0) as f:
                os.pwrite(f.fileno(), b"lost", 0)
        log.arrays = acknowledged
        subprocess.run([options.bin, "recover", log.path], check=True, capture_output=True)
        log.independent(f"kill {turn}")


def set_layout(file, layout):
    try:
        os.setxattr(file, "user.h5dir.layout", layout.encode())
    except OSError:
        # The daemon was killed.
        pass


def conversions(options, tally, folder):
    """Datasets become log datasets and back in pieces: others are written meanwhile; killed at any moment, each is old or new."""
    rng, path = np.random.default_rng(options.seed + 4), os.path.join(folder, "conversions.h5")
    subprocess.run([options.bin, "create", path], check=True)
    want = rng.integers(0, 1 << 20, (4096, 1024), "<u4")
    with harness.mounted(options.bin, path, "--read-write") as mount:
        for name, text in (("d", {"shape": want.shape}), ("other", {"shape": [1 << 16], "layout": "log"})):
            open(os.path.join(mount, name), "wb").close()
            os.setxattr(os.path.join(mount, name), "user.h5dir.dataset", json.dumps({"dtype": "<u4", **text}).encode())
        with open(os.path.join(mount, "d"), "r+b") as f:
            f.write(want.tobytes())
    most = 0
    for turn in range(16 if os.environ.get("H5DIR_LONG") else 4):
        point, layout = os.path.join(folder, f"conversion{turn}"), ("log", "contiguous")[turn % 2]
        file, other = os.path.join(point, "d"), os.path.join(point, "other")
        with killed(options, path, point):
            thread = threading.Thread(target=set_layout, args=(file, layout))
            thread.start()
            until, served = time.time() + float(rng.random()) * 0.4, 0
            with open(other, "r+b", buffering=0) as f:
                while thread.is_alive() and time.time() < until:
                    os.pwrite(f.fileno(), struct.pack("<I", turn), 4 * served)
                    served += 1
                    if served % 16 == 0:
                        os.fsync(f.fileno())
        thread.join()
        subprocess.run([options.bin, "recover", path], check=True, capture_output=True)
        with harness.mounted(options.bin, path, "--read-write") as mount:
            file, other = os.path.join(mount, "d"), os.path.join(mount, "other")
            tally.check(harness.read(file) == want.tobytes(), f"conversion {turn}, killed")
            with open(other, "r+b", buffering=0) as f:
                written = 0
                thread = threading.Thread(target=set_layout, args=(file, layout))
                thread.start()
                while thread.is_alive():
                    os.pwrite(f.fileno(), struct.pack("<I", turn), 4 * (written % 1000))
                    written += 1
            most = max(most, written, served)
            tally.equal(os.getxattr(file, "user.h5dir.layout").decode(), layout, f"conversion {turn}")
            tally.check(harness.read(file) == want.tobytes(), f"conversion {turn}, again")
        with h5py.File(path, "r") as f:
            found = log_reader.read(f)["d"].values if layout == "log" else f["d"][()]
            tally.check((found == want).all(), f"conversion {turn}, by h5py")
        tally.equal(subprocess.run([options.bin, "check", "--data", path], capture_output=True).returncode, 0, f"conversion {turn}: check")
    # As one operation it would let one or two through.
    tally.check(most > 8, f"at most {most} writes of another dataset during a conversion")


def refusals(options, tally, folder):
    path = os.path.join(folder, "refusals.h5")
    subprocess.run([options.bin, "create", path], check=True)
    with harness.mounted(options.bin, path, "--read-write") as mount:
        cases = {"strings": {"dtype": {"class": "H5T_STRING", "length": "H5T_VARIABLE"}, "shape": [2]}, "chunks": {"dtype": "<i4", "shape": [8], "chunks": [4]},
                 "filters": {"dtype": "<i4", "shape": [8], "filters": ["deflate"]}, "profile": {"dtype": "<i4", "shape": [8], "profile": "fast"}}
        for name, text in cases.items():
            file = os.path.join(mount, name)
            open(file, "wb").close()
            try:
                os.setxattr(file, "user.h5dir.dataset", json.dumps({"layout": "log", **text}).encode())
                tally.check(False, f"{name}: accepted")
            except OSError as e:
                tally.equal(e.errno, 22, f"{name}: {e}")
        file = os.path.join(mount, "LOG")
        os.mkdir(file)
        try:
            open(os.path.join(mount, "d"), "wb").close()
            os.setxattr(os.path.join(mount, "d"), "user.h5dir.dataset", json.dumps({"dtype": "<i4", "shape": [4], "layout": "log"}).encode())
            tally.check(False, "a group LOG of the user: accepted")
        except OSError as e:
            tally.equal(e.errno, 22, f"a group LOG of the user: {e}")


def main():
    options, tally = harness.arguments(__doc__), harness.Tally()
    with harness.folder(options.keep) as folder:
        samples(options, tally)
        merged(options, tally, folder)
        holes(options, tally, folder)
        forms(options, tally, folder)
        hostile(options, tally, folder)
        mutants(options, tally, folder)
        records(options, tally, folder)
        kills(options, tally, folder)
        conversions(options, tally, folder)
        refusals(options, tally, folder)
    tally.finish()


if __name__ == "__main__":
    main()
