"""`h5dir cp --link`: a container whose elements stay in the HDF5 file, read, changed, checked, moved and collected."""
import errno
import hashlib
import json
import os
import shutil
import subprocess
import sys

import h5py
import numpy as np

import cp_stored_sweep
import harness

sys.path.insert(0, os.path.join(harness.TOP, "tests", "objectstore"))
import iod_reader


def run(options, *args, code=0):
    done = subprocess.run([options.bin, *map(str, args)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=300)
    if done.returncode != code:
        sys.exit(f"h5dir {args}: {done.returncode}\n{done.stdout[-2000:]}\n{done.stderr.decode()[-2000:]}")
    return done


def digest(path):
    return hashlib.sha256(harness.read(path)).hexdigest()


def packed(container):
    """Bytes of the packs of a container."""
    return sum(os.path.getsize(os.path.join(top, name)) for top, _, names in os.walk(os.path.join(container, "d")) for name in names)


def reading(path):
    """The bytes of a file, or the errno of reading it."""
    try:
        return harness.read(path)
    except OSError as e:
        return e.errno


def make(path, rng):
    """Contiguous datasets of several pieces behind a user block, and others that have no place of their own."""
    with h5py.File(path, "w", userblock_size=1024) as f:
        f["big"] = rng.integers(0, 1 << 60, (5, 100_000))
        f["ends"] = rng.integers(0, 255, (1 << 20) + 3).astype("u1")
        f["records"] = np.zeros(50_000, [("a", "<i2"), ("b", ">f8", 3)])
        f["scalar"] = 7
        f["filled"] = np.arange(40.0)
        f.create_dataset("never written", (1000, 1000), "<f4", fillvalue=3)
        f.create_dataset("small chunks", (4, 8), "<i2", chunks=(2, 4), data=np.arange(32).reshape(4, 8))
        f.create_dataset("chunks", (3000, 400), "<i4", chunks=(300, 100), maxshape=(None, 400), data=rng.integers(0, 99, (3000, 400)))
        f["names"] = ["one", "two"]
        f["big"].attrs["unit"] = "m"
        f["grown"] = h5py.Empty("f4")


def copies(t, options, place, rng):
    """Every chunk index and filter: the same chunks for libhdf5 after a copy back."""
    for label, libver in (("earliest", ("earliest", "v108")), ("latest", ("latest", "latest"))):
        source, container, back = (os.path.join(place, label + end) for end in (".h5", "_folder", "_back.h5"))
        cp_stored_sweep.make(source, libver, rng)
        before = digest(source)
        run(options, "cp", "-r", "--link", source, f"iod:{container}")
        t.check(packed(container) < os.path.getsize(source) / 20, f"{label}: {packed(container)} bytes in packs")
        t.equal(run(options, "diff", "-r", "--storage", source + ":/", f"iod:{container}:/").stdout, b"", f"{label}: diff")
        run(options, "cp", "-r", f"iod:{container}", back)
        with h5py.File(source) as f, h5py.File(back) as g:
            cp_stored_sweep.same(t, label, f, g)
        t.equal(digest(source), before, f"{label}: the original is as it was")


def linked(options, place, rng):
    """A folder with an original and a container of it."""
    os.makedirs(place)
    source, container = os.path.join(place, "run.h5"), os.path.join(place, "box")
    make(source, rng)
    run(options, "cp", "-r", "--link", source, f"iod:{container}")
    return source, container


def reads(t, options, source, container):
    t.check(packed(container) < 100_000, f"{packed(container)} bytes in packs")
    run(options, "diff", "-r", source + ":/", f"iod:{container}:/")
    with h5py.File(source) as f, harness.mounted(options.bin, f"iod:{container}") as point:
        for name in ("big", "ends", "records", "scalar", "filled", "never written", "small chunks", "chunks"):
            t.equal(harness.read(os.path.join(point, name)), f[name][()].tobytes(), name)
    dump = run(options, "iod", "dump", f"iod:{container}").stdout.decode()
    with h5py.File(source) as f:
        offset = f["big"].id.get_offset()
    t.check(f" at {offset} of run.h5)" in dump, "dump names the original and the offset")
    for arguments in ([], ["--data"]):
        found = json.loads(run(options, "check", "--json", *arguments, f"iod:{container}").stdout)
        t.equal(found["findings"], [], f"check {arguments}")


def by_the_format(t, source, container):
    """A reader that shares no code with h5dir finds the bytes of small datasets."""
    box, found = iod_reader.Container(iod_reader.Folder(container)), {}
    for record in box.records():
        for key, cell, _ in record.entries:
            ident, kind, rest = iod_reader.parts(key)
            if kind == b"C" and cell and isinstance(cell[1], tuple) and cell[1][0] == "original" and cell[1][3] < 5000:
                found.setdefault(box.resolve(cell[1]), []).append((ident, rest))
    with h5py.File(source) as f:
        t.check(f["filled"][()].tobytes() in found, f"{len(found)} small chunks, none of them that of 'filled'")


def changes(t, options, source, container):
    """Writes go to the container: the original stays, also for versions before."""
    before = digest(source)
    with h5py.File(source) as f:
        old = f["chunks"][()]
    run(options, "iod", "tag", f"iod:{container}", "imported")
    new = old.copy()
    new[250:350, 90:110] = -1
    with harness.mounted(options.bin, f"iod:{container}", "--read-write") as point:
        with open(os.path.join(point, "chunks"), "r+b") as f:
            for row in range(250, 350):
                f.seek(row * 1600 + 360)
                f.write(new[row, 90:110].tobytes())
            f.flush()
            os.fsync(f.fileno())
        os.truncate(os.path.join(point, "chunks"), 2900 * 1600)
        os.unlink(os.path.join(point, "ends"))
        os.setxattr(os.path.join(point, "big"), "user.note", b"linked")
    with harness.mounted(options.bin, f"iod:{container}") as point:
        t.equal(harness.read(os.path.join(point, "chunks")), new[:2900].tobytes(), "a linked dataset that was written to")
    with harness.mounted(options.bin, f"iod:{container}", "--version", "imported") as point:
        t.equal(harness.read(os.path.join(point, "chunks")), old.tobytes(), "the version before")
    t.equal(digest(source), before, "the original is as it was after writes")
    run(options, "iod", "tag", "--delete", "imported", f"iod:{container}")
    for _ in range(3):
        run(options, "iod", "gc", "--keep-versions", "1", "--grace", "0", f"iod:{container}")
    found = json.loads(run(options, "check", "--json", "--data", f"iod:{container}").stdout)
    t.equal(found["findings"], [], "check after garbage collection")


def damage(t, options, source, container):
    """What was changed in the original is an error there, and only there."""
    with h5py.File(source, "r+") as f:
        f.attrs["later"] = np.arange(5000)
        f["more"] = np.arange(100_000)
        want, offset = f["big"][()].tobytes(), f["big"].id.get_offset()
    with harness.mounted(options.bin, f"iod:{container}") as point:
        t.equal(reading(os.path.join(point, "big")), want, "after changes beside the elements")
    with open(source, "r+b") as f:
        f.seek(offset + (1 << 20) + 17)
        byte = f.read(1)
        f.seek(-1, os.SEEK_CUR)
        f.write(bytes([byte[0] ^ 1]))
    with harness.mounted(options.bin, f"iod:{container}") as point:
        t.equal(reading(os.path.join(point, "big")), errno.EIO, "a changed byte")
        with open(os.path.join(point, "big"), "rb") as f:
            t.equal(os.pread(f.fileno(), 1 << 20, 0), want[:1 << 20], "the piece before it")
            t.equal(os.pread(f.fileno(), 1 << 20, 2 << 20), want[2 << 20:3 << 20], "the piece after it")
        t.check(isinstance(reading(os.path.join(point, "chunks")), bytes), "other datasets")
    said = run(options, "cat", f"iod:{container}:/big", code=1).stderr.decode()
    t.check("run.h5" in said and "changed" in said, f"message: {said}")
    t.equal(json.loads(run(options, "check", "--json", f"iod:{container}").stdout)["findings"], [], "check without --data")
    found = json.loads(run(options, "check", "--json", "--data", f"iod:{container}", code=1).stdout)["findings"]
    t.check(len(found) == 1 and "big" in json.dumps(found) and "run.h5" in json.dumps(found), f"check --data: {found}")
    with open(source, "r+b") as f:
        f.seek(offset + (1 << 20) + 17)
        f.write(byte)
    return want


def moves(t, options, place, source, container, want):
    """Names are relative to the folder's directory: both move together. A missing original is EIO."""
    other = place + "-moved"
    os.rename(place, other)
    moved, original = (os.path.join(other, os.path.basename(path)) for path in (container, source))
    t.equal(run(options, "cat", f"iod:{moved}:/big").stdout, want, "moved together")
    aside = original + ".aside"
    os.rename(original, aside)
    said = run(options, "cat", f"iod:{moved}:/big", code=1).stderr.decode()
    t.check("run.h5" in said and "No such file" in said, f"missing: {said}")
    found = json.loads(run(options, "check", "--json", f"iod:{moved}", code=1).stdout)["findings"]
    t.check(found and "run.h5" in json.dumps(found), f"check of a missing original: {found}")
    with harness.mounted(options.bin, f"iod:{moved}") as point:
        t.equal(reading(os.path.join(point, "big")), errno.EIO, "a missing original")
        t.equal(harness.read(os.path.join(point, "scalar")), np.int64(7).tobytes(), "what is in the container")
        t.equal(os.getxattr(os.path.join(point, "big"), "user.unit"), b"m", "attributes")
    # A copy with other times is as good.
    shutil.copyfile(aside, original)
    t.equal(run(options, "cat", f"iod:{moved}:/big").stdout, want, "a copy in its place")
    with harness.mounted(options.bin, f"iod:{moved}", "--external=off") as point:
        t.equal(reading(os.path.join(point, "big")), errno.EIO, "--external=off")
    own = os.path.join(other, "own")
    run(options, "cp", "-r", f"iod:{moved}", f"iod:{own}")
    os.remove(original)
    t.equal(run(options, "cat", f"iod:{own}:/big").stdout, want, "a copy of the container has its own bytes")


def elsewhere(t, options, place, rng):
    """An original above the folder's directory needs --external-root, also at mounts."""
    os.makedirs(os.path.join(place, "data"))
    os.makedirs(os.path.join(place, "boxes"))
    source, container = os.path.join(place, "data", "run.h5"), os.path.join(place, "boxes", "box")
    make(source, rng)
    said = run(options, "cp", "-r", "--link", source, f"iod:{container}", code=2).stderr.decode()
    t.check("--external-root" in said and not os.path.exists(container), f"{said}")
    run(options, "cp", "-r", "--link", "--external-root", place, source, f"iod:{container}")
    with h5py.File(source) as f:
        want = f["big"][()].tobytes()
    t.equal(run(options, "cat", "--external-root", place, f"iod:{container}:/big").stdout, want, "with --external-root")
    said = run(options, "cat", f"iod:{container}:/big", code=1).stderr.decode()
    t.check("--external-root" in said, f"without: {said}")
    for arguments, count in (([], 1), (["--external-root", place], 0)):
        found = json.loads(run(options, "check", "--json", *arguments, f"iod:{container}", code=count).stdout)["findings"]
        t.check(bool(found) == bool(count), f"check {arguments}: {found}")
    # A symbolic link of the name leads nowhere.
    os.rename(source, source + ".1")
    os.symlink("run.h5.1", source)
    run(options, "cat", "--external-root", place, f"iod:{container}:/big", code=1)


def refusals(t, options, place, source):
    other = os.path.join(place, "other.h5")
    for arguments in (["-r", "--create", source + ":/", other + ":/"], ["-r", source + ":/", os.path.join(place, "files")],
                      ["-r", "--external=off", source, f"iod:{place}/x"], [source + ":/big", "-"]):
        said = run(options, "cp", "--link", *arguments, code=2).stderr.decode()
        t.check("--link" in said, f"{arguments}: {said}")
    t.check(not os.path.exists(other), "nothing is made")


def again(t, options, place, rng):
    """One dataset, a second copy over the first, a group of another file."""
    os.makedirs(place)
    one, two, container = (os.path.join(place, name) for name in ("one.h5", "two.h5", "box"))
    make(one, rng)
    make(two, rng)
    run(options, "create", f"iod:{container}")
    run(options, "cp", "--link", one + ":/big", f"iod:{container}:/a")
    run(options, "cp", "-l", two + ":/big", f"iod:{container}:/a")
    run(options, "cp", "-rl", one + ":/", two + ":/chunks", f"iod:{container}:/")
    with h5py.File(one) as f, h5py.File(two) as g:
        for path, want in (("a", g["big"]), ("big", f["big"]), ("chunks", g["chunks"])):
            t.equal(run(options, "cat", f"iod:{container}:/{path}").stdout, want[()].tobytes(), path)
    t.check(packed(container) < 100_000, f"{packed(container)} bytes in packs")


def main():
    options = harness.arguments(__doc__)
    t, rng = harness.Tally(), np.random.default_rng(options.seed)
    with harness.folder(options.keep) as place:
        place = os.path.realpath(place)
        copies(t, options, place, rng)
        first = os.path.join(place, "set")
        source, container = linked(options, first, rng)
        reads(t, options, source, container)
        by_the_format(t, source, container)
        changes(t, options, source, container)
        want = damage(t, options, source, container)
        refusals(t, options, place, source)
        moves(t, options, first, source, container, want)
        elsewhere(t, options, os.path.join(place, "apart"), rng)
        again(t, options, os.path.join(place, "again"), rng)
    t.finish()


if __name__ == "__main__":
    main()
