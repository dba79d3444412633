"""Run files of log writers that are not where or what they were: beside other files and other states, linked, of other versions.

Each must be joined as a whole, or refused with the reason; none may be left out, or replace newer elements.
"""
import contextlib
import errno
import json
import os
import random
import shutil
import subprocess

import h5py
import numpy as np

import harness
from log_writers_sweep import HEAD, SHAPES, Writer, apply, compare_by_all, damaged, join, joined, make, run, run_files, sizes


def lookup3(data):
    """Bob Jenkins' hashlittle, as HDF5 has it."""
    mask = 0xFFFFFFFF
    rot = lambda x, k: ((x << k) | (x >> (32 - k))) & mask
    a = b = c = (0xDEADBEEF + len(data)) & mask
    words = lambda at: [int.from_bytes(data[at + i : at + i + 4].ljust(4, b"\0"), "little") for i in (0, 4, 8)]
    at = 0
    while len(data) - at > 12:
        x, y, z = words(at)
        a, b, c = (a + x) & mask, (b + y) & mask, (c + z) & mask
        for k in (4, 6, 8, 16, 19, 4):
            a = ((a - c) & mask) ^ rot(c, k)
            c = (c + b) & mask
            a, b, c = b, c, a
        at += 12
    if len(data) == at:
        return c
    x, y, z = words(at)
    a, b, c = (a + x) & mask, (b + y) & mask, (c + z) & mask
    for k in (14, 11, 25, 16, 4, 14, 24):
        c = ((c ^ b) - rot(b, k)) & mask
        a, b, c = b, c, a
    return b


def write_one(binary, path, number, value, name="grid", at=0):
    """A writer that writes one element and ends."""
    writer = Writer(binary, path, number)
    writer.write(name, at, np.array([value]).astype(SHAPES[name][1]))
    done = writer.unmount()
    assert done.returncode == 0, done.stderr
    return writer


def put(binary, path, value):
    """Overwrites the first element of grid in the file."""
    with harness.mounted(binary, path, "--read-write") as point, open(f"{point}/grid", "r+b") as f:
        f.write(np.array([value], "<i4").tobytes())


def first(binary, path, name="grid", *options):
    with harness.mounted(binary, path, *options) as point:
        return int(np.frombuffer(harness.read(f"{point}/{name}")[:4], "<i4")[0])


def same_rows(t, binary, place):
    """Two writers append to the same dataset: the highest number has the row, and the longest extent counts."""
    path = os.path.join(place, "rows.h5")
    model = make(binary, path)
    writers = [Writer(binary, path, number) for number in (1, 2)]
    rows = [np.full((n, 33), n, "<i4") for n in (3, 2)]
    for writer, data in zip(writers, rows):
        with open(f"{writer.point}/grid", "ab") as f:
            f.write(data.tobytes())
        writer.note("grid", 64 * 33, data.reshape(-1))
        # What dd appends to a dataset is its last row.
        out = subprocess.run(["dd", f"of={writer.point}/line", "bs=8", "seek=100002", "conv=notrunc", "status=none"], input=b"\1" * 8)
        writer.note("line", 100002, np.frombuffer(b"\1" * 8, "<f8"))
        t.equal(out.returncode, 0, "dd past the end")
    model = joined(model, writers)
    for writer in writers:
        t.equal(writer.unmount().returncode, 0, "unmounting a writer that appended")
    t.equal([model["grid"].shape, model["grid"][64, 0], model["grid"][66, 0], model["line"].size], [(67, 33), 2, 3, 100003], "the model")
    compare_by_all(t, binary, path, model, "appended by two")
    raw = np.full(33, 5, "<i4")
    done = subprocess.run([binary, "append", f"{path}:/grid"], input=raw.tobytes(), capture_output=True)
    t.equal(done.returncode, 0, f"h5dir append joins first: {done.stderr}")
    apply(model, [("grid", 67 * 33, raw)])
    t.equal(run_files(path), [], "run files after h5dir append")
    join(t, binary, path, model, "appended by two, then by h5dir append")


def limits(t, binary, place):
    """A writer grows a dataset to its maximum shape and not beyond, and only one that grows."""
    path = os.path.join(place, "limits.h5")
    make(binary, path)
    with harness.mounted(binary, path, "--read-write") as point:
        for name, text in (("most", {"shape": [2, 3], "maxshape": [4, 3]}), ("fixed", {"shape": [2], "maxshape": [2]}), ("one", {"shape": []})):
            open(f"{point}/{name}", "wb").close()
            os.setxattr(f"{point}/{name}", "user.h5dir.dataset", json.dumps({"dtype": "<i4", "layout": "log", **text}).encode())
    writer = Writer(binary, path, 1)
    point = writer.point
    for name, size, why in (("most", 61, "maximum shape"), ("fixed", 12, "maximum shape beyond"), ("one", 8, "without dimensions")):
        for what, change in (("truncate", os.truncate), ("write", lambda path, end: os.pwrite(fd, b"\1" * 8, end - 8))):
            fd = os.open(f"{point}/{name}", os.O_RDWR)
            try:
                change(f"{point}/{name}", size)
                t.check(False, f"{what} of {name} past its maximum succeeded")
            except OSError as e:
                t.equal(e.errno, errno.EFBIG, f"{what} of {name} past its maximum")
            reason = os.getxattr(f"{point}/{name}", "user.h5dir.error").decode()
            t.check(why in reason, f"{what} of {name} past its maximum: {reason}")
            os.close(fd)
    os.truncate(f"{point}/most", 48)
    t.equal(writer.unmount().returncode, 0, "unmounting after limits")
    with harness.mounted(binary, path, "--read-write") as point:
        t.equal([os.stat(f"{point}/{name}").st_size for name in ("most", "fixed", "one")], [48, 8, 4], "sizes")
    # The maximum became smaller: another program changed the file.
    write_one(binary, path, 1, 1)
    writer = Writer(binary, path, 1)
    os.truncate(f"{writer.point}/grid", 70 * 33 * 4)
    writer.unmount()
    with h5py.File(path, "r+") as f:
        f["grid"].attrs.modify("_log_maximum", np.array([65, 33], "<i8"))
    mnt = os.path.join(place, "mnt")
    os.makedirs(mnt, exist_ok=True)
    done = run(binary, "mount", "--read-write", path, mnt)
    t.check(done.returncode != 0 and "maxshape" in done.stderr, f"rows past a maximum that became smaller: {done.returncode} {done.stderr}")
    with h5py.File(path, "r+") as f:
        f["grid"].attrs.modify("_log_maximum", np.array([-1, 33], "<i8"))
    with harness.mounted(binary, path, "--read-write") as point:
        t.equal(os.stat(f"{point}/grid").st_size, 70 * 33 * 4, "rows after the maximum is as it was")


def foreign_states(t, binary, place):
    """Regression: a run file of another file, of an earlier state, or that was joined long ago replaced elements."""
    a, b = (os.path.join(place, f"{name}.h5") for name in ("state_a", "state_b"))
    make(binary, a)
    make(binary, b)
    write_one(binary, a, 1, 7)
    shutil.copy(a + ".log.1", b + ".log.1")
    damaged(t, binary, b, "the run file of a file of the same making", place, "another HDF5 file")
    os.unlink(b + ".log.1")
    # A copy with its run files is one file more.
    shutil.copy(a, b)
    shutil.copy(a + ".log.1", b + ".log.1")
    t.equal([first(binary, b), first(binary, b, "grid", "--read-write")], [7, 7], "a copy with its run file")
    kept = os.path.join(place, "kept")
    shutil.copy(a + ".log.1", kept)
    for value in (50, 51):
        put(binary, a, 0)
        write_one(binary, a, 2, value)
    put(binary, a, 52)
    shutil.copy(kept, a + ".log.1")
    damaged(t, binary, a, "a run file that was joined three times ago", place, "earlier state")
    os.unlink(a + ".log.1")
    write_one(binary, a, 1, 8)
    shutil.move(a + ".log.1", kept)
    put(binary, a, 53)
    shutil.move(kept, a + ".log.1")
    damaged(t, binary, a, "a run file that was moved away for a while", place, "earlier state")
    os.unlink(a + ".log.1")
    t.equal(first(binary, a, "grid", "--read-write"), 53, "the file without it")
    # One without elements has nothing to lose: it gets a new head.
    Writer(binary, a, 1).unmount()
    shutil.move(a + ".log.1", kept)
    put(binary, a, 54)
    shutil.move(kept, a + ".log.1")
    write_one(binary, a, 1, 9)
    t.equal([first(binary, a), first(binary, a, "grid", "--read-write")], [9, 9], "a run file that was empty")


def deleted_file(t, binary, place):
    """Regression: a new file got the elements of the run files of an earlier file of its name."""
    path = os.path.join(place, "deleted.h5")
    make(binary, path)
    write_one(binary, path, 4, 7)
    os.unlink(path)
    try:
        make(binary, path)
        t.check(False, "a log is made beside the run file of an earlier file")
    except OSError as e:
        t.equal(e.errno, errno.EEXIST, "making a log beside the run file of an earlier file")
    with harness.mounted(binary, path, "--read-write") as point:
        with contextlib.suppress(OSError):
            os.setxattr(f"{point}/grid", "user.h5dir.dataset", json.dumps({"dtype": "<i4", "shape": [5], "layout": "log"}).encode())
        reason = os.getxattr(f"{point}/grid", "user.h5dir.error").decode()
        t.check("deleted.h5.log.4" in reason, f"the reason: {reason}")
    os.unlink(path + ".log.4")
    os.unlink(path)
    make(binary, path)
    t.equal(first(binary, path), 0, "a file without the run file")


def renamed(t, binary, place):
    """Regression: fsync acknowledged what went to a run file that had been removed, or whose HDF5 file had another name."""
    for what, change, undo in (
        ("a run file that is removed", lambda path: os.unlink(path + ".log.1"), None),
        ("a run file that is replaced", lambda path: (os.unlink(path + ".log.1"), open(path + ".log.1", "wb").close()), None),
        ("a renamed HDF5 file", lambda path: os.rename(path, path + ".new"), lambda path: os.rename(path + ".new", path)),
    ):
        path = os.path.join(place, "renamed.h5")
        make(binary, path)
        writer = Writer(binary, path, 1)
        change(path)
        writer.write("grid", 0, np.array([7], "<i4"))
        for attempt in range(2):
            try:
                writer.sync()
                t.check(False, f"{what}: fsync {attempt} succeeds")
            except OSError as e:
                t.check(e.errno in (errno.ESTALE, errno.EIO), f"{what}: {e}")
        if undo:
            undo(path)
            writer.sync()
            t.equal(writer.unmount().returncode, 0, f"{what}, that has its name again")
            t.equal(first(binary, path), 7, what)
        else:
            done = writer.unmount()
            t.check(done.returncode != 0, f"{what}: unmounting says so: {done.stderr}")
        for file in os.listdir(place):
            if file.startswith("renamed.h5"):
                os.unlink(os.path.join(place, file))


def swmr(t, binary, place):
    """Regression: log writers began beside SWMR writers, which change the file under them."""
    path = os.path.join(place, "swmr.h5")
    make(binary, path)
    mnt = os.path.join(place, "mnt")
    os.makedirs(mnt, exist_ok=True)
    with harness.mounted(binary, path, "--read-write", "--swmr"):
        done = run(binary, "mount", "--log-writer", "1", path, mnt)
        t.check(done.returncode != 0 and "another program has it open" in done.stderr, f"beside --swmr: {done.returncode} {done.stderr}")
    with h5py.File(path, "r+", libver="latest") as f:
        f.create_dataset("x", (0,), "f4", maxshape=(None,), chunks=(10,))
        f.swmr_mode = True
        done = run(binary, "mount", "--log-writer", "1", path, mnt)
        t.check(done.returncode != 0 and "another program has it open" in done.stderr, f"beside h5py: {done.returncode} {done.stderr}")
    t.equal(run_files(path), [], "run files of writers that did not begin")
    write_one(binary, path, 1, 7)
    t.equal(first(binary, path, "grid", "--read-write"), 7, "a writer after the SWMR writers")


def last_commit(t, binary, place):
    """Regression: damage in the last commit of a writer that was unmounted was taken for one that had not been acknowledged."""
    path = os.path.join(place, "last.h5")
    make(binary, path)
    write_one(binary, path, 1, 7)
    with open(path + ".log.1", "rb") as f:
        whole = f.read()
    for at in range(HEAD, len(whole) - 108, 7):
        with open(path + ".log.1", "wb") as f:
            f.write(whole[:at] + bytes([whole[at] ^ 16]) + whole[at + 1 :])
        done = run(binary, "check", path)
        t.check(done.returncode == 1 and "damaged" in done.stdout, f"a changed byte {at}: {done.returncode} {done.stdout}")
    damaged(t, binary, path, "the last commit", place, "damaged")
    # The run after it has nothing.
    for cut in (1, 50, 107, 108):
        with open(path + ".log.1", "wb") as f:
            f.write(whole[:-cut])
        t.equal(first(binary, path), 7, f"without the last {cut} bytes")


def linked(t, binary, place):
    """Regression: files that links lead to were joined with run files that others may write, and not at all from a folder."""
    inner = os.path.join(place, "linked", "real")
    os.makedirs(inner)
    path = os.path.join(inner, "source.h5")
    make(binary, path)
    write_one(binary, path, 1, 7)
    outer = os.path.join(place, "linked", "outer.h5")
    folder = "iod:" + os.path.join(place, "linked", "folder.iod")
    with h5py.File(outer, "w") as f:
        f["x"] = h5py.ExternalLink("real/source.h5", "/grid")
    made = run(binary, "create", folder)
    copied = run(binary, "cp", "-r", f"{outer}:/", f"{folder}:/")
    t.equal([made.returncode, copied.returncode, os.path.isdir(folder[4:])], [0, 0, True], f"a folder with links: {made.stderr}{copied.stderr}")
    # A debug build panicked: the linked file was read without an access.
    with harness.mounted(binary, outer, "--read-write", "--external") as point:
        t.equal(harness.read(f"{point}/x")[:4], b"\7\0\0\0", "a link to a file with a log, in a mount that writes")
    copy = os.path.join(place, "linked", "copy.h5")
    run(binary, "create", copy)
    done = run(binary, "cp", "-r", f"{outer}:/", f"{copy}:/")
    t.equal(done.returncode, 0, f"a copy of a link to a file with a log: {done.stderr}")
    for target in (outer, folder):
        with harness.mounted(binary, target, "--external") as point:
            got = np.frombuffer(harness.read(f"{point}/x"), "<i4")[0]
            t.equal(int(got), 7, f"{os.path.basename(target)}: a link to a file with a run file")
    os.chmod(path + ".log.1", 0o666)
    for target in (outer, folder):
        with harness.mounted(binary, target, "--external") as point:
            try:
                harness.read(f"{point}/x")
                t.check(False, f"{os.path.basename(target)}: the dataset has what others may have written")
            except OSError as e:
                t.equal(e.errno, errno.EIO, f"{os.path.basename(target)}: a run file that others may write")


def to_version_0(path):
    """Makes a run file one of version 0, as the first h5dir with log writers wrote."""
    with open(path, "rb") as f:
        whole = f.read()
    head = whole[:12] + bytes(4) + whole[16:40]
    with open(path, "wb") as f:
        f.write(head + lookup3(head).to_bytes(4, "little") + whole[HEAD:])


def versions(t, binary, place, rnd):
    """Run files of version 0 are joined, and appended to; those of later versions are refused."""
    path = os.path.join(place, "versions.h5")
    model = make(binary, path)
    writers = [Writer(binary, path, number) for number in (1, 2)]
    for writer in writers:
        writer.write("grid", 5, np.arange(40, dtype="<i4") + writer.number)
        t.equal(writer.unmount().returncode, 0, "unmounting")
    with open(path + ".log.1", "rb") as f:
        whole = f.read()
    t.equal(int.from_bytes(whole[HEAD - 4 : HEAD], "little"), lookup3(whole[: HEAD - 4]), "lookup3")
    with open(path + ".log.1", "wb") as f:
        f.write(whole[:12] + b"\2" + whole[13:])
    damaged(t, binary, path, "a later version", place, "a later h5dir")
    with open(path + ".log.1", "wb") as f:
        f.write(whole)
    to_version_0(path + ".log.1")
    compare_by_all(t, binary, path, joined(model, writers), "a run file of version 0")
    again = Writer(binary, path, 1)
    again.earlier = sizes(model)
    again.write("line", 9, np.array([4.5, 5.5]))
    try:
        os.truncate(f"{again.point}/grid", 70 * 33 * 4)
        t.check(False, "a run file of version 0 gets a dataset that grew")
    except OSError as e:
        t.equal(e.errno, errno.EPERM, "growing in a run file of version 0")
    reason = os.getxattr(f"{again.point}/grid", "user.h5dir.error").decode()
    t.check("earlier version" in reason, f"growing in a run file of version 0: {reason}")
    again.sync()
    t.equal(again.unmount().returncode, 0, "unmounting a writer of version 0")
    more = Writer(binary, path, 2)
    more.earlier = sizes(model)
    more.grow(rnd, "grid", 64 * 33)
    t.equal(more.unmount().returncode, 0, "unmounting a writer beside one of version 0")
    model = joined(model, [writers[0], again, writers[1], more])
    join(t, binary, path, model, "run files of two versions")


def hostile(t, binary, place):
    """Counts and extents of a run that cannot be, with right checksums: bounded memory, and an error."""
    path = os.path.join(place, "hostile.h5")
    make(binary, path)
    shutil.copy(path, path + ".kept")
    write_one(binary, path, 1, 7)
    with open(path + ".log.1", "rb") as f:
        whole = f.read()
    length = int.from_bytes(whole[HEAD + 68 : HEAD + 76], "little")
    for what, at, values in (
        ("records", 36 + 40, (1 << 62, 5)),
        ("datasets", 36 + 64, (1 << 62, 1 << 20, 2)),
        ("element size", 36 + 80, (0, 1 << 62)),
        ("rank", 36 + 88, (0, 1, 3, 32, 1 << 40)),
        ("rows", 36 + 96, (1 << 62, (1 << 64) - 1, 1 << 40)),
        ("columns", 36 + 104, (0, 1 << 62, 34)),
        ("start", 36 + 112 + 12, (1 << 62,)),
        ("count", 36 + 112 + 28, (1 << 62, 0, 1 << 20)),
    ):
        for value in values:
            run_ = bytearray(whole[HEAD : HEAD + length])
            run_[at : at + 8] = value.to_bytes(8, "little")
            run_[92:100] = bytes(8)
            run_[92:100] = lookup3(bytes(run_)).to_bytes(8, "little")
            with open(path + ".log.1", "wb") as f:
                f.write(whole[:HEAD] + run_ + whole[HEAD + length :])
            limited = f"ulimit -v {4 << 20}; exec timeout 60 '{binary}' check --data '{path}'"
            done = subprocess.run(["bash", "-c", limited], capture_output=True, text=True)
            t.check(done.returncode in (0, 1), f"{what} {value}: {done.returncode} {done.stderr[-300:]}")
            mnt = os.path.join(place, "mnt")
            os.makedirs(mnt, exist_ok=True)
            with harness.mounted(binary, path) as point:
                t.equal(harness.read(f"{point}/bytes"), b"not in the log", f"{what} {value}: what is not in the log")
            joins = run(binary, "mount", "--read-write", path, mnt)
            if joins.returncode == 0:
                run(binary, "umount", mnt)
                t.check(what in ("start", "count", "rows"), f"{what} {value} is joined")
            shutil.copy(path + ".kept", path)


def shapes_stay(t, binary, place):
    """What h5py does to the file beside run files: a dataset that it deletes is gone, one that it renames is joined."""
    path = os.path.join(place, "h5py.h5")
    model = make(binary, path)
    writer = Writer(binary, path, 1)
    for name in ("grid", "line", "cube"):
        writer.write(name, 3, np.array([6]).astype(SHAPES[name][1]))
    writer.grow(random.Random(1), "cube", 6 * 56)
    t.equal(writer.unmount().returncode, 0, "unmounting")
    model = joined(model, [writer])
    with h5py.File(path, "r+") as f:
        del f["line"]
        f.move("cube", "moved")
        f["extra"] = np.arange(5)
    with harness.mounted(binary, path, "--read-write") as point:
        t.equal(sorted(os.listdir(point)), ["bytes", "extra", "grid", "moved", "packed"], "names")
        for name, of in (("grid", "grid"), ("moved", "cube")):
            t.equal(harness.read(f"{point}/{name}"), model[of].tobytes(), f"h5py changed the file: {name}")
    t.equal(run_files(path), [], "run files")


def main():
    options = harness.arguments(__doc__)
    t = harness.Tally()
    rnd = random.Random(options.seed)
    with harness.folder(options.keep) as place:
        same_rows(t, options.bin, place)
        limits(t, options.bin, place)
        foreign_states(t, options.bin, place)
        deleted_file(t, options.bin, place)
        renamed(t, options.bin, place)
        swmr(t, options.bin, place)
        last_commit(t, options.bin, place)
        linked(t, options.bin, place)
        versions(t, options.bin, place, rnd)
        hostile(t, options.bin, place)
        shapes_stay(t, options.bin, place)
    t.finish()


if __name__ == "__main__":
    main()
