"""kill -9 of a program that writes a file with h5py, again and again: what is left of its file is not made worse.

Each round has a program change a file of some format version, file space strategy and content, flush now this dataset and now the
whole file, and kill itself. After `h5dir recover`, or without where that is not needed, all that a read-only mount shows is noted, and compared with h5py's reading where
h5py has one. Then the file is mounted read-write and new files are made, others changed and removed: all that could be read before and
was not touched must be read again, and what is new too, by h5py as well.
"""
import errno
import os
import random
import shutil
import subprocess
import sys
import tempfile

import h5py
import numpy as np

import harness

ROUNDS = int(os.environ.get("H5DIR_KILLED_WRITER_ROUNDS", "60"))
STRATEGIES = [{}, {"fs_strategy": "fsm", "fs_persist": True}, {"fs_strategy": "page", "fs_persist": True}, {"fs_strategy": "page"}, {"fs_strategy": "none"}]
LIBVERS = ["earliest", "v108", "v110", "latest"]


def base(path, rnd):
    """A file with objects of many kinds, and free space between them."""
    libver, strategy = rnd.choice(LIBVERS), rnd.choice(STRATEGIES)
    block = {"userblock_size": 512} if rnd.random() < 0.2 and not strategy.get("fs_strategy") == "page" else {}
    with h5py.File(path, "w", libver=libver, **strategy, **block) as f:
        for i in range(8):
            f.create_dataset(f"plain{i}", data=np.full(rnd.choice([50, 3000, 20000]), i, "i4"))
        for i in range(4):
            kind = {"chunks": (rnd.choice([1, 5]), 100), "maxshape": rnd.choice([(None, 100), (None, None), (4000, 100)])}
            if rnd.random() < 0.5:
                kind["compression"] = "gzip"
            d = f.create_dataset(f"rows{i}", (0, 100), "i4", **kind)
            d.resize(10, 0)
            d[...] = i
        for i in range(rnd.choice([3, 40])):
            g = f.create_group(f"group{i}")
            g.attrs["number"] = i
            g["inner"] = np.arange(i + 1)
        f.create_dataset("strings", (20,), h5py.string_dtype(), maxshape=(None,), chunks=(4,))
        f["strings"][...] = "some text"
    with h5py.File(path, "r+", libver=libver) as f:
        for i in range(0, 8, 3):
            del f[f"plain{i}"]
        for i in range(0, 3, 2):
            del f[f"group{i}"]
    return libver


def write_until_killed(path, libver, seed):
    """What the program does; it does not return."""
    rnd = random.Random(seed)
    f = h5py.File(path, "r+", libver=libver)
    if libver in ("v110", "latest") and rnd.random() < 0.5:
        f.swmr_mode = True
    for number in range(rnd.randrange(5, 120)):
        what = rnd.random()
        if what < 0.6 or f.swmr_mode:
            d = f[f"rows{rnd.randrange(4)}"]
            n = d.shape[0]
            if n < 3000:
                d.resize(n + rnd.randrange(1, 30), 0)
            d[n // 2 :] = number
        elif what < 0.7:
            f.create_dataset(f"new{number}", data=np.full(rnd.choice([20, 20000]), number, "i4"))
        elif what < 0.8:
            f.create_group(f"newgroup{number}").attrs["x"] = np.arange(rnd.choice([3, 3000]))
        elif what < 0.85:
            f["strings"][rnd.randrange(20)] = "longer text " * rnd.randrange(1, 300)
        else:
            names = [n for n in f if n.startswith(("new", "plain"))]
            if names:
                del f[rnd.choice(names)]
        if rnd.random() < 0.4:
            f[f"rows{rnd.randrange(4)}"].flush()
        elif rnd.random() < 0.1 and not f.swmr_mode:
            f.flush()
    os.kill(os.getpid(), 9)


def seen(point):
    """What can be read: {path: (bytes, attributes)}, and what cannot."""
    there, damaged = {}, set()
    for folder, folders, files in os.walk(point):
        for name in folders + files:
            path = os.path.join(folder, name)
            key = os.path.relpath(path, point)
            try:
                attributes = {n: os.getxattr(path, n) for n in os.listxattr(path) if not n.startswith("user.h5dir.")}
                there[key] = (harness.read(path) if name in files else None, attributes)
            except OSError:
                damaged.add(key)
    return there, damaged


def by_h5py(path, keys):
    """The datasets of `keys` as another process with h5py reads them, as far as it can: {key: bytes}."""
    script = """
import h5py, sys, numpy
with h5py.File(sys.argv[1], 'r') as f:
    for key in sys.argv[2:]:
        try:
            d = f[key]
            if d.dtype.kind != 'O': print(key, d[...].tobytes().hex(), flush=True)
        except Exception: pass
"""
    out = subprocess.run([sys.executable, "-c", script, path, *keys], capture_output=True, text=True, timeout=120).stdout
    return {key: bytes.fromhex(text) for key, _, text in (line.partition(" ") for line in out.splitlines())}


def can_link(path):
    """Whether h5py can, in a copy of the file."""
    script = "import h5py, sys; f = h5py.File(sys.argv[1], 'r+'); f['another'] = 1; f.close()"
    shutil.copy(path, path + ".copy")
    done = subprocess.run([sys.executable, "-c", script, path + ".copy"], capture_output=True, timeout=60)
    os.unlink(path + ".copy")
    return done.returncode == 0


def one_round(t, binary, place, number, rnd):
    path = os.path.join(place, "f.h5")
    libver = base(path, rnd)
    seed = rnd.randrange(1 << 30)
    subprocess.run([sys.executable, __file__, "--write", path, libver, str(seed)], stdin=subprocess.DEVNULL, timeout=120)
    label = f"round {number}, {libver}"
    said = ""
    # Without a flag that refuses it nobody need have recovered the file.
    if libver in ("v110", "latest") or rnd.random() < 0.5:
        done = subprocess.run([binary, "recover", path], capture_output=True, text=True)
        t.check(done.returncode == 0, f"{label}: recover: {done.stderr}")
        said = done.stdout
    with harness.mounted(binary, path) as point:
        before, damaged = seen(point)
    theirs = by_h5py(path, [key for key, (data, _) in before.items() if data is not None])
    for key, data in theirs.items():
        t.equal(before[key][0], data, f"{label}: {key} as h5py reads it")
    new = {f"made{i}": rnd.randbytes(rnd.choice([10, 5000, 70000, 300000])) for i in range(5)}
    gone = {key for key in ("plain1", "rows3") if key in before and rnd.random() < 0.5}
    with harness.mounted(binary, path, "--read-write") as point:
        try:
            for key, data in new.items():
                with open(f"{point}/{key}", "wb") as f:
                    f.write(data)
                os.mkdir(f"{point}/folder-{key}")
                os.setxattr(f"{point}/folder-{key}", "user.note", b"set" * 10)
            for key in gone:
                os.unlink(f"{point}/{key}")
            refused = False
        except OSError as e:
            # Half of a group's structures may have been written: nobody can make a link in it, libhdf5 neither.
            t.equal(e.errno, errno.EIO, f"{label}: why nothing can be made")
            t.check(not can_link(path), f"{label}: h5py makes links in it")
            new, refused = {}, True
    with harness.mounted(binary, path) as point:
        after, _ = seen(point)
    for key, what in before.items():
        if key not in gone:
            t.check(after.get(key) == what, f"{label}: {key} after others were made")
    for key, data in new.items():
        t.check(after.get(key, (None,))[0] == data, f"{label}: {key} is new")
    later = by_h5py(path, [*theirs, *new])
    t.equal({k: v for k, v in later.items() if k in new}, new, f"{label}: what is new, for h5py")
    t.check(all(later.get(k) == v for k, v in theirs.items() if k not in gone), f"{label}: what was there, for h5py")
    os.unlink(path)
    return len(before), len(damaged), "kept" in said, "forgotten" in said, refused


def main():
    if sys.argv[1:2] == ["--write"]:
        write_until_killed(sys.argv[2], sys.argv[3], int(sys.argv[4]))
    options = harness.arguments(__doc__)
    t = harness.Tally()
    rnd = random.Random(options.seed)
    rounds = []
    with harness.folder(options.keep) as place:
        for number in range(ROUNDS):
            rounds.append(one_round(t, options.bin, place, number, rnd))
    read, damaged, kept, forgotten, refused = (sum(column) for column in zip(*rounds))
    t.check(kept > 0 and forgotten > 0 and read > 20 * ROUNDS and refused < ROUNDS / 10, "the rounds met what they are for")
    print(f"{ROUNDS} killed writers; {read} objects read after that, {damaged} damaged, {refused} root groups among them")
    print(f"{kept} ends not told, {forgotten} stale lists of free space")
    t.finish()


if __name__ == "__main__":
    main()
