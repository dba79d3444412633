"""Copies of sparse datasets keep which elements are defined, whatever the tool.

  sparse_copies.py H5DIR DIRECTORY CASE

DIRECTORY has an empty folder "mnt". The caller unmounts it after a failure. With H5DIR_KIND=iod:
containers in folders, not HDF5 files.
"""

import json
import mmap
import os
import random
import shutil
import subprocess
import sys

import numpy as np

H5DIR, DIRECTORY, CASE = sys.argv[1:4]
MNT, MNT2 = os.path.join(DIRECTORY, "mnt"), os.path.join(DIRECTORY, "mnt2")
IN_STORE = os.environ.get("H5DIR_KIND") == "iod"
PREFIX = "iod:" if IN_STORE else ""
FILE, OTHER = PREFIX + os.path.join(DIRECTORY, "f.h5"), PREFIX + os.path.join(DIRECTORY, "g.h5")
PROFILES = ["map", "filter"] if IN_STORE else ["map", "filter", "structured"]
LOG = [] if IN_STORE else ["log"]
FILLS = {"default": None, "zero": 0, "minus": -1, "nan": float("nan")}
SHAPES = {"r1": ([3000], [64]), "r2": ([30, 40], [7, 16]), "r3": ([5, 16, 16], [1, 16, 16])}
STRING = {"class": "H5T_STRING", "length": "H5T_VARIABLE", "charSet": "H5T_CSET_UTF8", "strPad": "H5T_STR_NULLTERM"}


def run(*command, fails=False, **kw):
    done = subprocess.run(command, capture_output=True, text=True, **kw)
    if (done.returncode != 0) != fails:
        raise SystemExit(f"{command}: exit {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout + done.stderr


def shell(script):
    return run("bash", "-c", "set -e -o pipefail; " + script, cwd=DIRECTORY)


def create(file, *options):
    path = file.removeprefix("iod:")
    if os.path.isdir(path):
        shutil.rmtree(path)
    elif os.path.exists(path):
        os.unlink(path)
    run(H5DIR, "create", *options, file)


class Mounted:
    def __init__(self, *options, file=FILE, at=MNT):
        self.options, self.file, self.at = options, file, at
        os.makedirs(at, exist_ok=True)

    def __enter__(self):
        run(H5DIR, "mount", "--read-write", *self.options, self.file, self.at)

    def __exit__(self, *_):
        run(H5DIR, "umount", self.at)


def describe(path, **description):
    open(path, "a").close()
    os.setxattr(path, "user.h5dir.dataset", json.dumps(description).encode())
    return path


def mask(text):
    answer = json.loads(text)
    found = np.zeros(answer["shape"], bool)
    for block in answer["blocks"]:
        found[tuple(map(slice, block["start"], block["stop"]))] = True
    assert answer["count"] == found.sum()
    return found


def view(at, name):
    with open(os.path.join(at, ".h5dir", "defined", name)) as f:
        return mask(f.read())


def command(file, name):
    return mask(run(H5DIR, "defined", "--json", f"{file}:/{name}"))


def source(rng, at):
    """Datasets of each kind in the folder `at`: values and defined elements by name."""
    made = {}
    for profile in PROFILES:
        for fill_name, fill in FILLS.items():
            for rank, (shape, chunks) in SHAPES.items():
                name = f"{profile}-{fill_name}-{rank}"
                dtype = "<f4" if fill_name == "nan" else "<i4"
                more = {} if fill is None else {"fillvalue": "nan" if fill_name == "nan" else fill}
                path = describe(os.path.join(at, name), layout="sparse", profile=profile, dtype=dtype, shape=shape, chunks=chunks, **more)
                n = int(np.prod(shape))
                data, defined = np.full(n, fill or 0, dtype), np.zeros(n, bool)
                with open(path, "r+b", buffering=0) as f:
                    for _ in range(rng.choice([0, 1, 12, 12])):
                        first = rng.randrange(n)
                        # Zeros and the fill value are defined where they are written.
                        values = np.array([rng.choice([0, fill or 0, 7, 9]) for _ in range(rng.choice([1, 5, 300]))], dtype)[: n - first]
                        os.pwrite(f.fileno(), values.tobytes(), first * 4)
                        data[first : first + len(values)], defined[first : first + len(values)] = values, True
                made[name] = (data.tobytes(), defined.reshape(shape))
    return made


TOOLS = {
    "cp": "mkdir {to}; cp -a {at}/* {to}",
    "never": "mkdir {to}; cp -a --sparse=never {at}/* {to}",
    "always": "mkdir {to}; cp -a --sparse=always {at}/* {to}",
    "sparse_tar": "mkdir {to}; tar --xattrs -S -C {at} -cf - . | tar --xattrs --xattrs-include=user.* -S -C {to} -xf -",
    "tar": "mkdir {to}; tar --xattrs -C {at} -cf - . | tar --xattrs --xattrs-include=user.* -C {to} -xf -",
    "rsync": "rsync -aX {at}/ {to}",
    "sparse_rsync": "rsync -aXS {at}/ {to}",
    "inplace": "rsync -aX --inplace {at}/ {to}",
}


def agree(at, folder, made, what):
    for name, (data, defined) in made.items():
        path = os.path.join(folder, name)
        with open(os.path.join(at, path), "rb") as f:
            assert f.read() == data, (what, name, "values")
        assert (view(at, path) == defined).all(), (what, name, view(at, path).sum(), defined.sum())


def programs():
    """From mount to mount, and through a local directory, before and after the commit."""
    for committed in [False, True]:
        create(FILE)
        create(OTHER)
        with Mounted("--commit-interval=0"), Mounted(file=OTHER, at=MNT2):
            os.mkdir(os.path.join(MNT, "in"))
            made = source(random.Random(3 + committed), os.path.join(MNT, "in"))
            if committed:
                run("sync", MNT)
            for name, tool in TOOLS.items():
                shell(tool.format(at="mnt/in", to=f"mnt2/{name}"))
                agree(MNT2, name, made, (name, committed))
            local = os.path.join(DIRECTORY, "local")
            for there in ["cp", "sparse_tar", "rsync"]:
                shell(f"rm -rf {local}; " + TOOLS[there].format(at="mnt/in", to=local))
                if not has_attributes(local):
                    break
                for back in ["cp", "tar", "rsync"]:
                    shell(TOOLS[back].format(at=local, to=f"mnt2/{there}-{back}"))
                    agree(MNT2, f"{there}-{back}", made, (there, back, committed))


def has_attributes(folder):
    """True if the local file system keeps extended attributes."""
    return all("user.h5dir.defined" in os.listxattr(os.path.join(folder, name)) for name in os.listdir(folder))


def commands():
    """h5dir cp: from file to file, within a file, through a local directory; diff --storage."""
    create(FILE)
    create(OTHER)
    with Mounted():
        os.mkdir(os.path.join(MNT, "in"))
        made = source(random.Random(8), os.path.join(MNT, "in"))
    run(H5DIR, "cp", "-r", f"{FILE}:/in", f"{OTHER}:/out")
    run(H5DIR, "diff", "-r", "--storage", f"{FILE}:/in", f"{OTHER}:/out")
    run(H5DIR, "cp", "-r", f"{OTHER}:/out", f"{OTHER}:/within")
    local = os.path.join(DIRECTORY, "local")
    run(H5DIR, "cp", "-a", f"{FILE}:/in", local)
    folders = ["out", "within"]
    if has_attributes(local):
        run(H5DIR, "cp", "-a", local, f"{OTHER}:/back")
        folders.append("back")
    with Mounted(file=OTHER, at=MNT2):
        for folder in folders:
            agree(MNT2, folder, made, folder)
    one = next(name for name, (_, defined) in made.items() if defined.any() and not defined.all())
    run(H5DIR, "defined", "--count", f"{FILE}:/in/{one}")
    with Mounted(file=OTHER, at=MNT2):
        os.setxattr(os.path.join(MNT2, "out", one), "user.h5dir.defined", f"0:{made[one][1].size} 0+{made[one][1].size}".encode())
    assert "defined" in run(H5DIR, "diff", "--storage", f"{FILE}:/in/{one}", f"{OTHER}:/out/{one}", fails=True)
    run(H5DIR, "diff", f"{FILE}:/in/{one}", f"{OTHER}:/out/{one}")


def elsewhere():
    """Between files and containers, and into a file with a log, a copy knows what is defined."""
    create(FILE)
    container, log = "iod:" + os.path.join(DIRECTORY, "container"), os.path.join(DIRECTORY, "log.h5")
    run(H5DIR, "create", container)
    with Mounted():
        os.mkdir(os.path.join(MNT, "in"))
        made = source(random.Random(11), os.path.join(MNT, "in"))
    run(H5DIR, "cp", "-r", f"{FILE}:/in", f"{container}:/out")
    run(H5DIR, "cp", "-r", f"{container}:/out", f"{FILE}:/back")
    run(H5DIR, "diff", "-r", f"{FILE}:/in", f"{container}:/out")
    run(H5DIR, "check", "--data", container)
    with Mounted(), Mounted(file=container, at=MNT2):
        agree(MNT2, "out", made, "in a container")
        agree(MNT, "back", made, "back")
        shell("rsync -aX mnt/in/map* mnt2/synced/; cp -a mnt2/synced mnt/unsynced")
        ordinary = {name: of for name, of in made.items() if name.startswith("map")}
        agree(MNT2, "synced", ordinary, "rsync")
        agree(MNT, "unsynced", ordinary, "cp -a")
    with Mounted(file=container, at=MNT2):
        agree(MNT2, "out", made, "mounted again")
        assert os.getxattr(os.path.join(MNT2, "out", "structured-zero-r1"), "user.h5dir.profile") == b"map"
        describe(os.path.join(MNT2, "d"), dtype="<i4", shape=[10])
        try:
            os.setxattr(os.path.join(MNT2, "d"), "user.h5dir.dataset", b'{"layout":"sparse","profile":"structured","chunks":[5]}')
            raise SystemExit("a container has structured chunks")
        except OSError as e:
            assert e.errno == 95, e
    create(log, "--log")
    run(H5DIR, "cp", f"{FILE}:/in/map-zero-r1", f"{log}:/d")
    assert (command(log, "d") == made["map-zero-r1"][1]).all(), "in a file with a log it stays sparse"
    create(log, "--log")
    with Mounted(file=log):
        describe(os.path.join(MNT, "logged"), layout="log", dtype="<i4", shape=[0], maxshape=[None])
        with open(os.path.join(MNT, "logged"), "wb") as f:
            f.write(np.arange(500, dtype="<i4").tobytes())
            f.truncate(2400)
    run(H5DIR, "cp", f"{log}:/logged", f"{container}:/logged")
    run(H5DIR, "diff", f"{log}:/logged", f"{container}:/logged")
    for side in log, container:
        assert (command(side, "logged") == (np.arange(600) < 500)).all(), f"a log knows what is defined, and so does its copy: {side}"


def attribute():
    """user.h5dir.defined changes no value, and takes no other than its form."""
    create(FILE)
    with Mounted():
        for fill in [0, -1]:
            path = describe(os.path.join(MNT, f"d{fill}"), layout="sparse", dtype="<i4", shape=[20, 50], chunks=[7, 50], fillvalue=fill)
            name, rng = os.path.basename(path), np.random.default_rng(1)
            with open(path, "r+b", buffering=0) as f:
                os.pwrite(f.fileno(), np.full(100, 5, "<i4").tobytes(), 400)
                os.pwrite(f.fileno(), np.full(100, fill, "<i4").tobytes(), 2000)
            assert os.getxattr(path, "user.h5dir.defined") == b"0:1000 100+100 300+100"
            before = open(path, "rb").read()
            want = rng.random(1000) > 0.7
            runs, at = "", 0
            for i in np.flatnonzero(want):
                runs, at = f"{runs} {i - at}+1", i + 1
            os.setxattr(path, "user.h5dir.defined", f"0:1000{runs}".encode())
            want[100:200] = True
            assert (view(MNT, name).ravel() == want).all() and open(path, "rb").read() == before
            # A part says nothing of the rest.
            os.setxattr(path, "user.h5dir.defined", b"300:400")
            os.setxattr(path, "user.h5dir.defined", b"900:1000 10+5")
            want[300:400], want[900:] = False, False
            want[910:915] = True
            assert (view(MNT, name).ravel() == want).all() and open(path, "rb").read() == before
            for wrong in [b"", b"0:1001", b"5", b"0:10 9+2", b"[]"]:
                try:
                    os.setxattr(path, "user.h5dir.defined", wrong)
                    raise SystemExit(f"{wrong} was taken")
                except OSError as e:
                    assert e.errno == 22, e
        plain = describe(os.path.join(MNT, "plain"), dtype="u1", shape=[10])
        assert os.listxattr(plain) == ["user.h5dir.dataset"]
        os.setxattr(plain, "user.h5dir.defined", b"0:10 0+10")
        try:
            os.setxattr(plain, "user.h5dir.defined", b"0:10 0+9")
            raise SystemExit("a dense dataset has undefined elements")
        except OSError as e:
            assert e.errno == 95, e
        # Set before the bytes, it applies when the writer closes, and to no later write.
        once = describe(os.path.join(MNT, "once"), layout="sparse", dtype="<i4", shape=[10], chunks=[10])
        with open(once, "rb"):
            for runs in ["2+3", "0+2"]:
                os.setxattr(once, "user.h5dir.defined", f"0:10 {runs}".encode())
            for count in [2, 10]:
                with open(once, "r+b", buffering=0) as f:
                    f.write(bytes(40))
                assert view(MNT, "once").sum() == count, (count, view(MNT, "once"))
        # Regression: it applied until the daemon heard of the close, which is after `close`.
        held = describe(os.path.join(MNT, "held"), layout="sparse", dtype="<i4", shape=[10], chunks=[10])
        os.setxattr(held, "user.h5dir.defined", b"0:10 0+2")
        with open(held, "r+b", buffering=0) as first:
            copy = os.dup(first.fileno())
            first.write(bytes(40))
        for count in [2, 10]:
            assert view(MNT, "held").sum() == count, (count, view(MNT, "held"))
            with open(held, "r+b", buffering=0) as f:
                f.write(bytes(40))
        os.close(copy)
        # More runs than one attribute takes.
        many = describe(os.path.join(MNT, "many"), layout="sparse", dtype="u1", shape=[100_000], chunks=[10_000])
        with open(many, "r+b", buffering=0) as f:
            for at in range(0, 100_000, 4):
                os.pwrite(f.fileno(), b"\0", at)
        assert {"user.h5dir.defined", "user.h5dir.defined2"} <= set(os.listxattr(many))
        shell("cp -a mnt/many mnt/copy")
        assert (view(MNT, "many") == view(MNT, "copy")).all() and view(MNT, "copy").sum() == 25_000


def strings():
    """Elements of variable length."""
    for profile in ["map", "filter"]:
        create(FILE)
        create(OTHER)
        with Mounted(), Mounted(file=OTHER, at=MNT2):
            path = describe(os.path.join(MNT, "s"), layout="sparse", profile=profile, dtype=STRING, shape=[8], maxshape=[None], chunks=[4])
            with open(path, "w") as f:
                f.write("a\nb\nc\n\ne\nf\n\nh\n")
            os.setxattr(path, "user.h5dir.erase", b"1:3")
            want = np.array([1, 0, 0, 1, 1, 1, 1, 1], bool)
            assert (view(MNT, "s") == want).all()
            for name, tool in TOOLS.items():
                os.makedirs(os.path.join(MNT, "in"), exist_ok=True)
                if not os.path.exists(os.path.join(MNT, "in", "s")):
                    shell("cp -a mnt/s mnt/in/s")
                shell(tool.format(at="mnt/in", to=f"mnt2/{name}"))
                assert (view(MNT2, f"{name}/s") == want).all(), (profile, name, view(MNT2, f"{name}/s"))
            with open(path, "a") as f:
                f.write("i\n")
            assert (view(MNT, "s") == np.append(want, True)).all(), "appending defines what is appended"
            with open(os.path.join(MNT, ".h5dir", "exact", "s"), "ab") as f:
                f.write(b"\1\0\0\0j")
            assert (view(MNT, "s") == np.append(want, [True, True])).all()
            with open(os.path.join(MNT, ".h5dir", "defined", "s@0:5.values"), "rb") as f:
                assert f.read() == b"\1\0\0\0a" + b"\0\0\0\0" + b"\1\0\0\0e"
        run(H5DIR, "cp", f"{FILE}:/in/s", f"{OTHER}:/copy")
        run(H5DIR, "diff", "--storage", f"{FILE}:/in/s", f"{OTHER}:/copy")
        assert (command(OTHER, "copy") == want).all()


def ranges():
    """copy_file_range defines what the source defines, and nothing else."""
    rng = np.random.default_rng(4)
    for profile in [*PROFILES, *LOG]:
        for fill in [0, -1]:
            create(FILE)
            with Mounted():
                more = {"layout": "log"} if profile == "log" else {"layout": "sparse", "profile": profile, "chunks": [64]}
                paths = [describe(os.path.join(MNT, n), dtype="<i4", shape=[1000], fillvalue=fill, **more) for n in "abc"]
                a, b, c = [os.open(path, os.O_RDWR) for path in paths]
                data, other = np.zeros(1000, bool), np.zeros(1000, bool)
                for _ in range(12):
                    at = int(rng.integers(0, 990))
                    os.pwrite(a, np.arange(1, 8, dtype="<i4").tobytes(), 4 * at)
                    data[at : at + 7] = True
                os.pwrite(b, np.full(300, 9, "<i4").tobytes(), 0)
                other[:300] = True
                sizes = [os.fstat(f).st_size for f in [a, b, c]]
                assert sizes == [4000] * 3
                copy_range(a, c, 4000, 0, 0)
                copy_range(a, b, 2000, 52, 52)
                other[13:513] = data[13:513]
                va, vb, vc = [np.fromfile(path, "<i4") for path in paths]
                assert (va == vc).all() and (va[13:513] == vb[13:513]).all() and (vb[:13] == 9).all()
                for name, want in [("b", other), ("c", data)]:
                    if profile != "log":
                        assert (view(MNT, name) == want).all(), (profile, fill, name)
                    elif fill == 0:
                        assert (segments(os.path.join(MNT, name)) == want).all(), (profile, fill, name)
                [os.close(f) for f in [a, b, c]]


def copy_range(source, target, length, at, to):
    while length:
        n = os.copy_file_range(source, target, length, at, to)
        assert n
        length, at, to = length - n, at + n, to + n


def segments(path):
    found = np.zeros(os.stat(path).st_size, bool)
    with open(path, "rb") as f:
        at = 0
        while True:
            try:
                start = os.lseek(f.fileno(), at, os.SEEK_DATA)
            except OSError:
                return found[::4]
            at = os.lseek(f.fileno(), start, os.SEEK_HOLE)
            found[start:at] = True


def mappings():
    """A store to a mapping defines the elements that it changes."""
    for layout in ["sparse", *LOG]:
        create(FILE)
        with Mounted():
            path = describe(os.path.join(MNT, "d"), layout=layout, dtype="<i4", shape=[4096], fillvalue=0)
            with open(path, "r+b") as f, mmap.mmap(f.fileno(), 0) as m:
                m[4100:4104] = b"\1\0\0\0"
                m[4108:4116] = b"\1\0\0\0\2\0\0\0"
                m[9001] = 7
                m.flush()
            assert list(np.flatnonzero(segments(path))) == [1025, 1027, 1028, 2250], layout
            assert list(np.flatnonzero(np.fromfile(path, "<i4"))) == [1025, 1027, 1028, 2250]


CASES = [programs, commands, elsewhere, attribute, strings, ranges, mappings]
if __name__ == "__main__":
    next(case for case in CASES if case.__name__ == CASE)()
