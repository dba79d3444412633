#!/usr/bin/env python3
"""Mounts directories: names, bytes and attributes of HDF5 files and other files as the host and single mounts have them.

    mirror_sweep.py [--bin H5DIR] [--keep FOLDER]
"""
import concurrent.futures
import contextlib
import errno
import mmap
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import threading
import time

import h5py
import numpy as np
from prometheus_client.parser import text_string_to_metric_families

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from harness import Tally, arguments, folder, mounted, read



def failure(f):
    """The errno with which `f` fails, or None."""
    try:
        f()
    except OSError as e:
        return e.errno
    return None


def later(f, want, timeout=20):
    """What `f` gives, called until that is `want` or the time is over."""
    end = time.time() + timeout
    while (got := f()) != want and time.time() < end:
        time.sleep(0.1)
    return got


def make(path, number=0, **options):
    with h5py.File(path, "w", **options) as f:
        f["a"] = np.arange(10 + number)
        g = f.create_group("group")
        g.create_dataset("b", data=np.full((64, 64), number, "<f4"), chunks=(16, 16), compression="gzip")
        g.attrs["note"] = f"number {number}"
        f["soft"] = h5py.SoftLink("/group/b")
        f.attrs["number"] = number


def tree(top):
    """Path, kind, bytes or target of everything below `top`."""
    found = {}
    for folder_path, dirs, files in os.walk(top):
        for name in dirs + files:
            path = os.path.join(folder_path, name)
            mode = os.lstat(path).st_mode
            what = os.readlink(path) if stat.S_ISLNK(mode) else read(path) if stat.S_ISREG(mode) and mode & 0o400 else None
            found[os.path.relpath(path, top)] = (stat.S_IFMT(mode), what)
    return found


def sample(top):
    """A directory with HDF5 files of several names, and other files."""
    os.makedirs(os.path.join(top, "sub", "deep"))
    for number, name in enumerate(["one.h5", "two.hdf5", "three.nc", "no_ending", "sub/four.nxs", "sub/deep/five.mat"]):
        make(os.path.join(top, name), number, **({"userblock_size": 1 << (8 + number)} if number > 0 else {}))
    with open(os.path.join(top, "text.h5"), "w") as f:
        f.write("the name of an HDF5 file, and no signature\n" * 100)
    with open(os.path.join(top, "sub", "program"), "w") as f:
        f.write("#!/bin/sh\necho ran\n")
    os.chmod(os.path.join(top, "sub", "program"), 0o750)
    open(os.path.join(top, "empty"), "w").close()
    os.symlink("one.h5", os.path.join(top, "to_container"))
    os.symlink("../text.h5", os.path.join(top, "sub", "to_text"))
    os.setxattr(os.path.join(top, "empty"), "user.note", b"of the host")
    os.link(os.path.join(top, "empty"), os.path.join(top, "linked"))
    with open(os.path.join(top, "sparse"), "wb") as f:
        f.truncate(1 << 20)
        f.seek(1 << 19)
        f.write(b"data")


def containers(top):
    found = []
    for folder_path, _, files in os.walk(top):
        paths = (os.path.join(folder_path, name) for name in files)
        found += [os.path.relpath(p, top) for p in paths if not os.path.islink(p) and h5py.is_hdf5(p)]
    return sorted(found)


def shows_all(tally, binary, place):
    """Files are as on the host, HDF5 files as in mounts of their own."""
    top = os.path.join(place, "all")
    os.mkdir(top)
    sample(top)
    names = containers(top)
    tally.equal(len(names), 6, "HDF5 files of the sample")
    with mounted(binary, top) as m:
        shown = tree(m)
        for name in names:
            with mounted(binary, os.path.join(top, name)) as single:
                alone = tree(single)
            inside = {os.path.relpath(p, name): v for p, v in shown.items() if p.startswith(name + "/")}
            tally.equal(inside, alone, f"{name} in the mirror")
            tally.equal(os.listxattr(os.path.join(m, name, "group")).count("user.note"), 1, f"xattrs of {name}")
        own = {p: v for p, v in shown.items() if not any(p == n or p.startswith(n + "/") for n in names)}
        host = {p: v for p, v in tree(top).items() if p not in names}
        tally.equal(own, host, "other files")
        for path in ["text.h5", "empty", "linked", "sparse", "sub/program", "to_container", "sub"]:
            a, b = os.lstat(os.path.join(top, path)), os.lstat(os.path.join(m, path))
            same = ["st_mode", "st_uid", "st_gid", "st_mtime_ns"] + ([] if path == "sub" else ["st_nlink", "st_size", "st_blocks"])
            for field in same:
                tally.equal(getattr(b, field), getattr(a, field), f"{field} of {path}")
        tally.equal(os.stat(os.path.join(m, "empty")).st_ino, os.stat(os.path.join(m, "linked")).st_ino, "hard links")
        tally.equal(os.getxattr(os.path.join(m, "empty"), "user.note"), b"of the host", "xattr of the host")
        tally.equal(subprocess.run([os.path.join(m, "sub", "program")], capture_output=True).stdout, b"ran\n", "a program")
        with open(os.path.join(m, "sparse"), "rb") as f:
            tally.equal(os.lseek(f.fileno(), 0, os.SEEK_DATA), 1 << 19, "SEEK_DATA of the host")
        for name in names:
            original = read(os.path.join(m, ".h5dir", "files", name))
            tally.check(original == read(os.path.join(top, name)), f"original of {name}")
        # find(1) counts links to know when it has seen all subdirectories.
        found = subprocess.run(["find", m, "-name", "b", "-type", "f"], capture_output=True, text=True).stdout.split()
        tally.equal(len(found), len(names), "find")
        tally.equal(".h5dir" in os.listdir(m), False, ".h5dir is not listed")
        for change in [lambda: os.mkdir(os.path.join(m, "new")), lambda: open(os.path.join(m, "empty"), "w"),
                       lambda: os.unlink(os.path.join(m, "one.h5", "a"))]:
            tally.equal(failure(change), errno.EROFS, "a change of a read-only mirror")
        families = {f.name for f in text_string_to_metric_families(read(os.path.join(m, ".h5dir", "metrics")).decode())}
        tally.check("h5dir_open_containers" in families and "h5dir_operation_seconds" in families, "metrics")


def names_and_patterns(tally, binary, place):
    top = os.path.join(place, "names")
    os.makedirs(os.path.join(top, "sub"))
    make(os.path.join(top, "x.h5"))
    make(os.path.join(top, "sub", "y.nc"))
    for name in ["note.txt", "sub/other.txt", "x.h5.d.txt"]:
        open(os.path.join(top, name), "w").close()
    with mounted(binary, "--mirror-names=suffix", top) as m:
        tally.equal(sorted(os.listdir(m)), ["note.txt", "sub", "x.h5.d", "x.h5.d.txt"], "names with an ending")
        tally.check(os.path.isdir(os.path.join(m, "x.h5.d")) and not os.path.exists(os.path.join(m, "x.h5")), "its directory only")
    with mounted(binary, "--mirror-names=both", top) as m:
        tally.equal(sorted(os.listdir(m)), ["note.txt", "sub", "x.h5", "x.h5.d", "x.h5.d.txt"], "both names")
        tally.check(read(os.path.join(m, "x.h5")) == read(os.path.join(top, "x.h5")), "the file of both")
        tally.equal(sorted(os.listdir(os.path.join(m, "sub", "y.nc.d"))), ["a", "group", "soft"], "the directory of both")
    with mounted(binary, "--mirror-names=both", "--read-write", top) as m:
        for change in [lambda: open(os.path.join(m, "x.h5"), "r+b"), lambda: os.truncate(os.path.join(m, "x.h5"), 0)]:
            tally.equal(failure(change), errno.EROFS, "bytes of a file that is also a directory")
        with open(os.path.join(m, "x.h5.d", "a"), "r+b") as f:
            f.write(b"1")
            f.flush()
            tally.equal(failure(lambda: os.unlink(os.path.join(m, "x.h5"))), errno.EBUSY, "a file whose directory is in use")
        os.rename(os.path.join(m, "x.h5.d"), os.path.join(m, "renamed.h5.d"))
        tally.equal(read(os.path.join(m, "renamed.h5.d", "a"))[:1], b"1", "renamed by its directory")
        os.rename(os.path.join(m, "renamed.h5"), os.path.join(m, "x.h5"))
        tally.equal(read(os.path.join(m, "x.h5.d", "a"))[:1], b"1", "renamed as a file")
    with mounted(binary, "--include=*.h5,sub/*.nc", top) as m:
        tally.equal(sorted(os.listdir(m)) + os.listdir(os.path.join(m, "sub")), ["sub", "x.h5", "y.nc"], "included")
        tally.equal(failure(lambda: os.stat(os.path.join(m, "note.txt"))), errno.ENOENT, "not included")
    with mounted(binary, "--exclude=sub,*.txt", top) as m:
        tally.equal(os.listdir(m), ["x.h5"], "excluded")
        tally.equal(failure(lambda: os.stat(os.path.join(m, "sub"))), errno.ENOENT, "an excluded directory")


def links_between_files(tally, binary, place):
    """External links and virtual sources lead to other files of the tree, and not out of it."""
    top = os.path.join(place, "links")
    os.makedirs(os.path.join(top, "a"))
    os.makedirs(os.path.join(top, "b"))
    make(os.path.join(place, "outside.h5"))
    make(os.path.join(top, "a", "source.h5"), 5)
    with h5py.File(os.path.join(top, "b", "links.h5"), "w") as f:
        f["link"] = h5py.ExternalLink("../a/source.h5", "/a")
        f["group"] = h5py.ExternalLink("../a/source.h5", "/group")
        f["out"] = h5py.ExternalLink("../../outside.h5", "/a")
        layout = h5py.VirtualLayout((15,), "<i8")
        layout[:] = h5py.VirtualSource("../a/source.h5", "a", (15,))
        f.create_virtual_dataset("virtual", layout)
    want = np.arange(15).astype("<i8").tobytes()
    with mounted(binary, top) as m:
        at = os.path.join(m, "b", "links.h5")
        tally.equal(read(os.path.join(at, "link")), want, "an external link")
        tally.equal(read(os.path.join(at, "virtual")), want, "a virtual source")
        tally.equal(os.path.getsize(os.path.join(at, "group", "b")), 64 * 64 * 4, "a group by an external link")
        tally.check(failure(lambda: read(os.path.join(at, "out"))) is not None, "a link out of the tree")


def damaged(tally, binary, place):
    """One file that cannot be read has mode 0 and a line in the log. Nothing else suffers."""
    top = os.path.join(place, "damaged")
    os.mkdir(top)
    make(os.path.join(top, "good.h5"), 3)
    with open(os.path.join(top, "superblock.h5"), "wb") as f:
        f.write(b"\x89HDF\r\n\x1a\n" + b"\x07" * 500)
    bytes_of = bytearray(read(os.path.join(top, "good.h5")))
    bytes_of[96:400] = b"\xff" * 304
    with open(os.path.join(top, "root.h5"), "wb") as f:
        f.write(bytes_of)
    with open(os.path.join(top, "cut.h5"), "wb") as f:
        f.write(read(os.path.join(top, "good.h5"))[:40])
    with tempfile.NamedTemporaryFile() as log, mounted(binary, f"--log-file={log.name}", top) as m:
        modes = lambda: {name: stat.filemode(os.lstat(os.path.join(m, name)).st_mode) for name in sorted(os.listdir(m))}
        for name in ["superblock.h5", "cut.h5"]:
            tally.equal(modes()[name], "----------", name)
        failure(lambda: os.listdir(os.path.join(m, "root.h5")))
        tally.equal(later(lambda: modes()["root.h5"], "----------"), "----------", "a damaged root group")
        tally.equal(modes()["good.h5"][0], "d", "the good file")
        tally.equal(len(read(os.path.join(m, "good.h5", "a"))), 13 * 8, "bytes of the good file")
        lines = read(log.name).decode().splitlines()
        for name in ["superblock.h5", "root.h5", "cut.h5"]:
            tally.equal(len([line for line in lines if name in line]), 1, f"lines of {name} in the log")
        shutil.copy(os.path.join(top, "good.h5"), os.path.join(top, "root.h5"))
        tally.equal(later(lambda: modes()["root.h5"][0], "d"), "d", "a mended file")


def changes_of_others(tally, binary, place):
    """New, changed, replaced and removed files appear without a new mount."""
    top = os.path.join(place, "others")
    os.mkdir(top)
    make(os.path.join(top, "x.h5"), 1)
    with mounted(binary, top) as m:
        x = os.path.join(m, "x.h5")
        tally.equal(len(read(os.path.join(x, "a"))), 88, "before")
        make(os.path.join(top, "new.h5"), 2)
        open(os.path.join(top, "new.txt"), "w").write("1")
        tally.equal(later(lambda: sorted(os.listdir(m)), ["new.h5", "new.txt", "x.h5"]), ["new.h5", "new.txt", "x.h5"], "new files")
        open(os.path.join(top, "new.txt"), "w").write("changed")
        tally.equal(later(lambda: read(os.path.join(m, "new.txt")), b"changed"), b"changed", "a changed file")
        with h5py.File(os.path.join(top, "x.h5"), "a") as f:
            f["more"] = np.arange(7)
            f["a"][0] = 99
        tally.equal(later(lambda: os.path.exists(os.path.join(x, "more")), True), True, "a new dataset")
        tally.equal(later(lambda: read(os.path.join(x, "a"))[0], 99), 99, "a changed element")
        make(os.path.join(top, ".replacement"), 30)
        os.rename(os.path.join(top, ".replacement"), os.path.join(top, "x.h5"))
        tally.equal(later(lambda: os.path.getsize(os.path.join(x, "a")), 320), 320, "a replaced file")
        tally.equal(read(os.path.join(x, "a")), np.arange(40).tobytes(), "bytes of a replaced file")
        os.unlink(os.path.join(top, "x.h5"))
        tally.equal(later(lambda: os.path.exists(x), False), False, "a removed file")
        os.mkdir(os.path.join(top, "x.h5"))
        tally.equal(later(lambda: os.path.isdir(x) and os.listdir(x), []), [], "a directory of the same name")


def opened(m):
    return int(re.search(r"open_containers (\d+)", read(os.path.join(m, ".h5dir", "status")).decode()).group(1))


def bounds(tally, binary, place):
    """A listing opens no container. Containers are closed when idle, and when others are opened."""
    top = os.path.join(place, "bounds")
    os.mkdir(top)
    for n in range(60):
        make(os.path.join(top, f"{n:03}.h5"), n)
    with mounted(binary, "--max-open=8", "--idle-timeout=1", top) as m:
        subprocess.run(["ls", "-l", m], stdout=subprocess.DEVNULL, check=True)
        tally.equal(opened(m), 0, "open after a listing")
        working = os.open(os.path.join(m, "000.h5", "group"), os.O_RDONLY)
        held = open(os.path.join(m, "001.h5", "a"), "rb")
        tally.equal(held.read(8), b"\0" * 8, "first bytes")
        for round_ in range(2):
            for n in range(60):
                tally.equal(len(read(os.path.join(m, f"{n:03}.h5", "a"))), (10 + n) * 8, f"round {round_}, file {n}")
                tally.check(opened(m) <= 8, "open containers")
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            sizes = pool.map(lambda n: len(read(os.path.join(m, f"{n % 60:03}.h5", "group", "b"))), range(240))
            tally.equal(set(sizes), {64 * 64 * 4}, "readers of many files")
        # What was opened before the container was closed and opened again.
        tally.equal(sorted(os.listdir(working)), ["b"], "an open directory")
        tally.equal(held.read(), np.arange(1, 11).tobytes(), "an open file")
        held.close()
        os.close(working)
        tally.equal(later(lambda: opened(m), 0), 0, "open when idle")
        tally.equal(len(read(os.path.join(m, "005.h5", "a"))), 15 * 8, "opened again")


def writes(tally, binary, place):
    """--read-write changes containers and other files."""
    top = os.path.join(place, "writes")
    os.mkdir(top)
    sample(top)
    with mounted(binary, "--read-write", "--idle-timeout=1", top) as m:
        one = os.path.join(m, "one.h5")
        reader = open(os.path.join(one, "a"), "rb", buffering=0)
        tally.equal(reader.read(8), b"\0" * 8, "read before the first change")
        with h5py.File(os.path.join(top, "one.h5"), "r") as f:
            tally.equal(f["a"][3], 3, "others may open what is only read")
        os.mkdir(os.path.join(one, "made"))
        with open(os.path.join(one, "made", "file"), "wb") as f:
            f.write(b"bytes of a new dataset")
        with open(os.path.join(one, "a"), "r+b") as f:
            f.write(np.int64(77).tobytes())
        os.setxattr(os.path.join(one, "a"), "user.unit", b"mm")
        os.rename(os.path.join(one, "group", "b"), os.path.join(one, "made", "moved"))
        os.link(os.path.join(one, "made", "moved"), os.path.join(one, "again"))
        os.symlink("a", os.path.join(one, "link"))
        reader.seek(0)
        tally.equal(np.frombuffer(reader.read(8), "<i8")[0], 77, "read after the change")
        reader.close()
        tally.equal(os.stat(os.path.join(one, "again")).st_nlink, 2, "links")
        with open(os.path.join(one, "made", "file"), "rb") as f:
            os.fsync(f.fileno())
        tally.equal(later(lambda: opened(m), 0), 0, "closed when idle, and unlocked")
        with h5py.File(os.path.join(top, "one.h5"), "a") as f:
            tally.equal(bytes(f["made/file"][:]), b"bytes of a new dataset", "a new dataset")
            tally.equal((f["a"][0], f["a"].attrs["unit"]), (77, b"mm") if isinstance(f["a"].attrs["unit"], bytes) else (77, "mm"), "changes")
            tally.equal(f["again"] == f["made/moved"], True, "a hard link")
            f["by_others"] = 5
        tally.equal(later(lambda: os.path.exists(os.path.join(one, "by_others")), True), True, "a change between two of ours")
        tally.equal(failure(lambda: os.rename(os.path.join(one, "a"), os.path.join(m, "a"))), errno.EXDEV, "out of a container")
        tally.equal(failure(lambda: os.link(os.path.join(one, "a"), os.path.join(m, "two.hdf5", "c"))), errno.EXDEV, "to another one")
        subprocess.run(["mv", os.path.join(one, "a"), os.path.join(m, "two.hdf5", "from_one")], check=True)
        other_files(tally, top, m)
        whole_containers(tally, top, m)
    with h5py.File(os.path.join(top, "two.hdf5"), "r") as f:
        tally.equal(f["from_one"].shape, (10,), "a dataset that mv copied")
        tally.equal(f["from_one"].attrs["unit"] in (b"mm", "mm"), True, "its attribute")
    for name in containers(top):
        dump = subprocess.run(["h5dump", os.path.join(top, name)], capture_output=True)
        tally.equal(dump.returncode, 0, f"h5dump {name}")
    tally.equal([n for n in os.listdir(top) if "journal" in n], [], "journals")


def other_files(tally, top, m):
    """Files of the host change as on the host."""
    path, host = os.path.join(m, "made.txt"), os.path.join(top, "made.txt")
    os.umask(0o027)
    with open(path, "w") as f:
        f.write("written")
        f.flush()
        os.fsync(f.fileno())
        tally.equal(read(host), b"written", "written to the host")
    os.umask(0o022)
    tally.equal(stat.S_IMODE(os.stat(host).st_mode), 0o640, "mode of a new file")
    with open(path, "a") as f:
        f.write(" and more")
    os.truncate(path, 12)
    tally.equal(read(host), b"written and ", "appended and cut")
    for length in (200, 241, 242, 255):
        names = [os.path.join(m, letter * length) for letter in "no"]
        with open(names[0], "w") as f:
            f.write("long")
        os.rename(*names)
        os.mkdir(names[0])
        os.rmdir(names[0])
        os.unlink(names[1])
        tally.check(not any(map(os.path.lexists, names)), f"a name of {length} bytes is removed")
    os.chmod(path, 0o4755)
    os.utime(path, ns=(10**18, -1_500_000_000))
    os.setxattr(path, "user.k", b"v")
    s = os.stat(host)
    tally.equal((stat.S_IMODE(s.st_mode), s.st_atime_ns, s.st_mtime_ns), (0o4755, 10**18, -1_500_000_000), "mode and times")
    tally.equal((os.getxattr(host, "user.k"), os.listxattr(path)), (b"v", ["user.k"]), "xattr")
    tally.equal(failure(lambda: os.setxattr(path, "user.k", b"w", os.XATTR_CREATE)), errno.EEXIST, "XATTR_CREATE")
    os.removexattr(path, "user.k")
    os.makedirs(os.path.join(m, "d1", "d2"))
    os.rename(path, os.path.join(m, "d1", "d2", "renamed"))
    os.symlink("d2/renamed", os.path.join(m, "d1", "link"))
    os.link(os.path.join(m, "d1", "d2", "renamed"), os.path.join(m, "d1", "hard"))
    tally.equal(read(os.path.join(m, "d1", "link")), b"written and ", "by a symbolic link")
    tally.equal(os.stat(os.path.join(top, "d1", "hard")).st_nlink, 2, "a hard link")
    with open(os.path.join(m, "d1", "hard"), "rb") as f:
        os.unlink(os.path.join(m, "d1", "hard"))
        os.unlink(os.path.join(m, "d1", "d2", "renamed"))
        tally.equal((f.read(), os.fstat(f.fileno()).st_nlink), (b"written and ", 0), "read after unlink")
    tally.equal(failure(lambda: os.rmdir(os.path.join(m, "d1"))), errno.ENOTEMPTY, "a directory that is not empty")
    shutil.rmtree(os.path.join(m, "d1"))
    tally.equal(os.path.exists(os.path.join(top, "d1")), False, "removed")
    tally.equal(failure(lambda: os.mkdir(os.path.join(m, ".h5dir"))), errno.EEXIST, "the name .h5dir")
    control, new = os.path.join(m, ".h5dir"), os.path.join(m, "new-name")
    for what, change in {
        "mkdir": lambda: os.mkdir(os.path.join(control, "x")),
        "open(O_CREAT)": lambda: open(os.path.join(control, "x"), "w"),
        "symlink": lambda: os.symlink("a", os.path.join(control, "x")),
        "unlink": lambda: os.unlink(os.path.join(control, "log")),
        "rename": lambda: os.rename(os.path.join(control, "log"), new),
        "link": lambda: os.link(os.path.join(control, "log"), new),
    }.items():
        tally.equal(failure(change), errno.EPERM, f"{what} in .h5dir")
    tally.equal(failure(lambda: open(os.path.join(m, "x.h5dir-journal"), "w")), errno.EPERM, "the name of a journal")
    subprocess.run(["rsync", "-a", "/usr/share/common-licenses/", os.path.join(m, "copied")], check=True)
    tally.equal(tree(os.path.join(top, "copied")), tree("/usr/share/common-licenses"), "rsync -a")


def whole_containers(tally, top, m):
    """HDF5 files are created, moved and removed as files and directories."""
    made = os.path.join(m, "made.h5")
    with h5py.File(made, "w") as f:
        f["x"] = np.arange(5)
        tally.equal(os.path.isfile(made), True, "a file while it is written")
    tally.equal(later(lambda: os.path.isdir(made), True), True, "a directory when it is closed")
    tally.equal(len(read(os.path.join(made, "x"))), 40, "its dataset")
    os.rename(made, os.path.join(m, "sub", "moved.h5"))
    tally.equal((os.path.isfile(os.path.join(top, "sub", "moved.h5")), os.path.exists(os.path.join(top, "made.h5"))), (True, False), "moved")
    tally.equal(len(read(os.path.join(m, "sub", "moved.h5", "x"))), 40, "its dataset after it was moved")
    moved = os.path.join(m, "sub", "moved.h5")
    tally.equal(failure(lambda: os.rmdir(moved)), errno.ENOTEMPTY, "a container with links")
    original = os.path.join(m, ".h5dir", "files", "sub", "moved.h5")
    tally.equal(failure(lambda: open(original, "r+b")), errno.EROFS, "the original is not written")
    subprocess.run(["rm", "-r", moved], check=True)
    tally.equal(os.path.exists(os.path.join(top, "sub", "moved.h5")), False, "removed")


def first_change(tally, binary, place):
    """Regression: after the first change of a container, which opens it again, names led to other objects."""
    top = os.path.join(place, "first")
    os.mkdir(top)

    def fresh(name):
        with h5py.File(os.path.join(top, name), "w") as f:
            for letter in "abc":
                f[letter] = np.full(4, ord(letter), "<i8")
            f["hard"] = f["c"]
            for n in range(300):
                f.create_group(f"many/{n:03}")
        return os.path.join(m, name)

    want = lambda letter: np.full(4, ord(letter), "<i8").tobytes()
    with mounted(binary, "--read-write", "--idle-timeout=1", top) as m:
        x = fresh("renamed.h5")
        held = os.open(os.path.join(x, "a"), os.O_RDONLY)
        tally.equal(os.pread(held, 32, 0), want("a"), "before")
        os.rename(os.path.join(x, "b"), os.path.join(x, "a"))
        tally.equal(os.pread(held, 32, 0), want("a"), "an open file that was replaced")
        os.close(held)
        tally.equal(read(os.path.join(x, "a")), want("b"), "its name")
        x = fresh("unlinked.h5")
        held = os.open(os.path.join(x, "b"), os.O_RDONLY)
        os.unlink(os.path.join(x, "b"))
        tally.equal(os.pread(held, 32, 0), want("b"), "an open file that was unlinked")
        os.close(held)
        x = fresh("linked.h5")
        for name in ["b", "c", "hard"]:
            os.stat(os.path.join(x, name))
        os.rename(os.path.join(x, "b"), os.path.join(x, "hard"))
        with open(os.path.join(x, "c"), "r+b", buffering=0) as f:
            f.write(np.int64(9).tobytes())
            os.fsync(f.fileno())
            os.setxattr(f.fileno(), "user.which", b"c")
        tally.equal((read(os.path.join(x, "hard")), read(os.path.join(x, "c"))[8:]), (want("b"), want("c")[8:]), "by the other name")
        tally.equal(np.frombuffer(read(os.path.join(x, "c"))[:8], "<i8")[0], 9, "the file that was written")
        tally.equal(("user.which" in os.listxattr(os.path.join(x, "c")), "user.which" in os.listxattr(os.path.join(x, "hard"))), (True, False), "xattr")
        x = fresh("removed.h5")
        with os.scandir(os.path.join(x, "many")) as names:
            for entry in names:
                os.rmdir(entry.path)
        tally.equal(os.listdir(os.path.join(x, "many")), [], "removed while they were listed")
        x = fresh("made.h5")
        seen = []
        with os.scandir(os.path.join(x, "many")) as names:
            for entry in names:
                if len(seen) == 20:
                    for n in range(50):
                        os.mkdir(os.path.join(x, "many", f"0{n:02}_new"))
                seen.append(entry.name)
        old = [name for name in seen if "new" not in name]
        tally.equal((len(old), len(set(old))), (300, 300), "listed while names were made")
        tally.equal(later(lambda: opened(m), 0), 0, "closed")
    for name in os.listdir(top):
        with h5py.File(os.path.join(top, name), "r") as f:
            tally.check("c" in f, f"{name} afterwards")


def full_disk(tally, binary, place):
    """Regression: what could not be stored when a container was closed was lost, and fsync(2) succeeded."""
    if os.geteuid() != 0:
        return
    top = os.path.join(place, "full")
    os.mkdir(top)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", top], check=True)
    try:
        make(os.path.join(top, "x.h5"))
        with mounted(binary, "--read-write", "--idle-timeout=1", "--commit-interval=0", top) as m:
            path = os.path.join(m, "x.h5", "new")
            with open(path, "wb") as f:
                f.write(b"kept" * (1 << 16))
            with open(os.path.join(top, "filler"), "wb") as f:
                with contextlib.suppress(OSError):
                    while True:
                        f.write(bytes(1 << 16))
                        f.flush()
            time.sleep(4)
            os.unlink(os.path.join(top, "filler"))
            with open(path, "rb") as f:
                os.fsync(f.fileno())
                tally.check(f.read() == b"kept" * (1 << 16), "bytes after the disk was full")
        with h5py.File(os.path.join(top, "x.h5"), "r") as f:
            tally.check(bytes(f["new"][:]) == b"kept" * (1 << 16), "bytes in the file")
    finally:
        subprocess.run(["umount", top], check=True)


def exchanged(tally, binary, place):
    """Regression: directories and files that other programs exchange were taken for one another."""
    top = os.path.join(place, "exchanged")
    os.makedirs(os.path.join(top, "d"))
    os.makedirs(os.path.join(top, "a", "b"))
    with mounted(binary, "--read-write", top) as m:
        held = os.open(os.path.join(m, "d"), os.O_RDONLY)
        os.rename(os.path.join(top, "d"), os.path.join(top, "d.old"))
        os.mkdir(os.path.join(top, "d"))
        with open(os.path.join(top, "d", "f"), "w") as f:
            f.write("precious")
        tally.equal(failure(lambda: os.unlink("f", dir_fd=held)), errno.ESTALE, "unlinkat in a directory that was moved")
        tally.check(failure(lambda: os.open("g", os.O_CREAT | os.O_WRONLY, dir_fd=held)) is not None, "openat in it")
        tally.equal(os.listdir(os.path.join(top, "d")), ["f"], "the new directory")
        os.close(held)
        inner = os.open(os.path.join(m, "a", "b"), os.O_RDONLY)
        os.rename(os.path.join(top, "a"), os.path.join(top, "tmp"))
        os.makedirs(os.path.join(top, "a", "b"))
        os.rename(os.path.join(top, "tmp"), os.path.join(top, "a", "b", "a"))
        failure(lambda: os.stat("a", dir_fd=inner))
        tally.equal(sorted(os.listdir(os.path.join(m, "a", "b"))), ["a"], "directories that were moved into each other")
        os.close(inner)
        with tempfile.TemporaryFile(dir=m) as f:
            f.truncate(10)
            os.fchmod(f.fileno(), 0o600)
            os.setxattr(f.fileno(), "user.k", b"v")
            os.utime(f.fileno(), ns=(1, 2))
            s = os.fstat(f.fileno())
            tally.equal((s.st_size, s.st_mtime_ns, os.getxattr(f.fileno(), "user.k")), (10, 2, b"v"), "a file without a name")


def owners(tally, binary, place):
    """Regression: chown(2) did nothing, and files that others created belonged to root."""
    if os.geteuid() != 0:
        return
    top = os.path.join(place, "owners")
    os.makedirs(os.path.join(top, "theirs"))
    make(os.path.join(top, "x.h5"))
    os.symlink("x.h5", os.path.join(top, "link"))
    os.chown(os.path.join(top, "theirs"), 65534, 65534)
    for path in [place, top]:
        os.chmod(path, 0o755)
    with mounted(binary, "--read-write", "--allow-other", top) as m:
        os.chmod(m, 0o755)
        for name in ["x.h5", "link", "theirs"]:
            os.lchown(os.path.join(m, name), 1234, 1235)
            s = os.lstat(os.path.join(top, name))
            tally.equal((s.st_uid, s.st_gid), (1234, 1235), f"owner of {name}")
        os.chown(os.path.join(m, "theirs"), 65534, 65534)
        code = "import os, sys; os.setgid(65534); os.setuid(65534); os.umask(0); os.chdir(sys.argv[1]); open('f', 'x').close(); os.mkdir('d', 0o700); os.symlink('f', 'l')"
        subprocess.run([sys.executable, "-c", code, os.path.join(m, "theirs")], check=True)
        for name, mode in [("f", 0o666), ("d", 0o700), ("l", 0o777)]:
            s = os.lstat(os.path.join(top, "theirs", name))
            tally.equal((s.st_uid, s.st_gid, stat.S_IMODE(s.st_mode)), (65534, 65534, mode), f"{name} of another user")


def shown_names(tally, binary, place):
    """Regression: with two names for a file, a rename replaced what another name showed."""
    top = os.path.join(place, "shown")
    os.makedirs(os.path.join(top, "foo.d"))
    open(os.path.join(top, "foo.d", "inner"), "w").close()
    make(os.path.join(top, "x.h5"))
    make(os.path.join(top, "new.h5"), 7)
    with mounted(binary, "--read-write", "--mirror-names=both", top) as m:
        tally.equal(failure(lambda: os.rename(os.path.join(m, "x.h5.d"), os.path.join(m, "foo.d"))), errno.ENOTEMPTY, "over a directory")
        os.rename(os.path.join(m, "new.h5"), os.path.join(m, "x.h5"))
        tally.equal(os.path.getsize(os.path.join(m, "x.h5.d", "a")), 17 * 8, "a file replaced by another one")
    with mounted(binary, "--read-write", "--mirror-names=suffix", top) as m:
        open(os.path.join(m, "text"), "w").close()
        tally.equal(failure(lambda: os.rename(os.path.join(m, "text"), os.path.join(m, "x.h5"))), errno.EEXIST, "over a file that is not shown")
    with open(os.path.join(top, "x.h5.h5dir-journal"), "w") as f:
        f.write("left behind")
    with mounted(binary, "--read-write", top) as m:
        tally.equal(failure(lambda: os.rename(os.path.join(m, "x.h5"), os.path.join(m, "y.h5"))), errno.EBUSY, "a file with a journal")


def locked_and_read_only(tally, binary, place):
    """A file that may not be written, or that another program has open, refuses changes; others take them."""
    top = os.path.join(place, "locked")
    os.mkdir(top)
    for name in ["free.h5", "locked.h5"]:
        make(os.path.join(top, name))
    with h5py.File(os.path.join(top, "locked.h5"), "a") as f, mounted(binary, "--read-write", top) as m:
        tally.equal(len(read(os.path.join(m, "locked.h5", "a"))), 80, "reading a locked file")
        tally.equal(failure(lambda: os.mkdir(os.path.join(m, "locked.h5", "new"))), errno.EBUSY, "changing a locked file")
        os.mkdir(os.path.join(m, "free.h5", "new"))
        f.close()
        os.mkdir(os.path.join(m, "locked.h5", "new"))
    with h5py.File(os.path.join(top, "locked.h5"), "r") as f:
        tally.check("new" in f, "changed after it was unlocked")


def killed(tally, binary, place):
    """What fsync(2) acknowledged is in the files after the daemon was killed."""
    top = os.path.join(place, "killed")
    os.mkdir(top)
    for n in range(3):
        make(os.path.join(top, f"{n}.h5"))
    point = tempfile.mkdtemp(dir=place)
    process = subprocess.Popen([binary, "mount", "--foreground", "--read-write", top, point], stdin=subprocess.DEVNULL,
                               stderr=subprocess.DEVNULL)
    try:
        later(lambda: os.path.ismount(point), True)
        for n in range(3):
            with open(os.path.join(point, f"{n}.h5", "kept"), "wb") as f:
                f.write(b"acknowledged")
                f.flush()
                os.fsync(f.fileno())
            os.mkdir(os.path.join(point, f"{n}.h5", "perhaps"))
        process.send_signal(signal.SIGKILL)
        process.wait()
    finally:
        subprocess.run([binary, "umount", point], stdin=subprocess.DEVNULL)
    for n in range(3):
        subprocess.run([binary, "recover", os.path.join(top, f"{n}.h5")], check=True, stdout=subprocess.DEVNULL)
        with h5py.File(os.path.join(top, f"{n}.h5"), "r") as f:
            tally.equal(bytes(f["kept"][:]), b"acknowledged", f"{n}.h5 after a kill")


def moved_after_a_kill(tally, binary, place):
    """Regression: a container with the journal of a killed writer was not renamed or removed (EBUSY)."""
    top = os.path.join(place, "journals")
    os.mkdir(top)
    files = [os.path.join(top, f"{n}.h5") for n in range(3)]
    for n, path in enumerate(files):
        make(path, n)
        point = tempfile.mkdtemp(dir=place)
        process = subprocess.Popen([binary, "mount", "--foreground", "--read-write", path, point], stdin=subprocess.DEVNULL,
                                   stderr=subprocess.DEVNULL)
        try:
            later(lambda: os.path.ismount(point), True)
            with open(os.path.join(point, "a"), "r+b", buffering=0) as f:
                f.write(b"changed!")
                os.fsync(f.fileno())
            process.send_signal(signal.SIGKILL)
            process.wait()
        finally:
            subprocess.run([binary, "umount", point], stdin=subprocess.DEVNULL)
        tally.check(os.path.exists(path + ".h5dir-journal"), f"{n}.h5 has a journal")
    with mounted(binary, "--read-write", top) as m:
        os.rename(os.path.join(m, "0.h5"), os.path.join(m, "moved.h5"))
        tally.equal(read(os.path.join(m, "moved.h5", "a"))[:8], b"changed!", "a container moved after a kill")
        subprocess.run(["rm", "-r", os.path.join(m, "1.h5")], check=True)
        tally.equal(sorted(os.listdir(m)), ["2.h5", "moved.h5"], "names after a kill")
    tally.equal(sorted(os.listdir(top)), ["2.h5", "2.h5.h5dir-journal", "moved.h5"], "no journal is left behind")
    with h5py.File(os.path.join(top, "moved.h5"), "r") as f:
        tally.equal(f["a"][:].tobytes()[:8], b"changed!", "the acknowledged change")


def removed_while_closing(tally, binary, place):
    """Regression: `rm -r` of a container was EBUSY if the daemon heard of closedir(3) after rmdir(2)."""
    top = os.path.join(place, "closing")
    os.mkdir(top)

    def attempt(number, change):
        path = os.path.join(m, f"{number}.h5")
        with h5py.File(os.path.join(top, f"{number}.h5"), "w"):
            pass
        later(lambda: os.path.isdir(path), True)
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        os.listdir(descriptor)
        closing = threading.Timer(0.05, os.close, [descriptor])
        closing.start()
        result = failure(lambda: change(path))
        closing.join()
        return result

    with mounted(binary, "--read-write", top) as m:
        for name, change in [("rmdir", os.rmdir), ("rename", lambda path: os.rename(path, path + "x.h5"))]:
            # A machine under load may close the descriptor too late.
            tally.check(any(attempt(f"{name}{n}", change) is None for n in range(5)), f"{name} while a descriptor is closed")


def passthrough(tally, binary, place):
    """As root and without the sandbox, the kernel reads and writes other files itself."""
    if os.geteuid() != 0:
        return
    top = os.path.join(place, "passthrough")
    os.mkdir(top)
    make(os.path.join(top, "x.h5"))
    data = os.urandom(3 << 20)
    with open(os.path.join(top, "data"), "wb") as f:
        f.write(data)
    requests = lambda m: int((re.search(rb'operation_seconds_count\{operation="read"\} (\d+)', read(os.path.join(m, ".h5dir", "metrics"))) or [0, 0])[1])
    with mounted(binary, "--read-write", "--no-sandbox", top) as m:
        path = os.path.join(m, "data")
        before = requests(m)
        tally.check(read(path) == data, "bytes")
        # Reading the metrics is a request as well.
        tally.check(requests(m) - before < 4, "reads do not reach the daemon")
        with open(path, "r+b") as a, open(path, "rb") as b, mmap.mmap(b.fileno(), 0, prot=mmap.PROT_READ) as mapped:
            a.seek(100)
            a.write(b"changed")
            a.flush()
            os.fsync(a.fileno())
            tally.equal((mapped[100:107], b.read(107)[100:]), (b"changed", b"changed"), "a write seen by others")
            tally.equal(read(os.path.join(top, "data"))[100:107], b"changed", "a write seen on the host")
        with open(path, "ab") as f:
            f.write(b"tail")
        tally.equal(os.path.getsize(path), len(data) + 4, "size after an append")
        with open(os.path.join(m, "new"), "wb") as f:
            f.write(b"new file")
        tally.equal((read(os.path.join(m, "new")), read(os.path.join(top, "new"))), (b"new file", b"new file"), "a new file")
        tally.equal(len(read(os.path.join(m, "x.h5", "a"))), 80, "files in containers")
        subprocess.run(["cp", "-a", path, os.path.join(m, "copy")], check=True)
        tally.check(read(os.path.join(top, "copy"))[107:] == data[107:] + b"tail", "a copy")


def refusals(tally, binary, place):
    top = os.path.join(place, "refusals")
    os.makedirs(os.path.join(top, "inside"))
    run = subprocess.run([binary, "mount", top, os.path.join(top, "inside")], capture_output=True, text=True, stdin=subprocess.DEVNULL)
    tally.equal((run.returncode, "choose one outside" in run.stderr), (2, True), "a mountpoint in the directory")
    run = subprocess.run([binary, "mount", "--max-open=0", top, place], capture_output=True, text=True, stdin=subprocess.DEVNULL)
    tally.equal(run.returncode, 2, "--max-open=0")
    outside = os.path.join(place, "target")
    make(outside)
    os.symlink(place, os.path.join(top, "out"))
    with mounted(binary, top) as m:
        # The kernel follows the link, not the daemon.
        tally.equal(os.readlink(os.path.join(m, "out")), place, "a link out of the tree")
        os.mkfifo(os.path.join(top, "fifo"))
        tally.equal(later(lambda: sorted(os.listdir(m)), ["inside", "out"]), ["inside", "out"], "a FIFO is hidden")


CASES = [shows_all, names_and_patterns, links_between_files, damaged, changes_of_others, bounds, writes, first_change, full_disk, exchanged, owners, shown_names,
         locked_and_read_only, killed, moved_after_a_kill, removed_while_closing, passthrough, refusals]


def main():
    args = arguments(__doc__)
    tally = Tally()
    with folder(args.keep) as place:
        for case in CASES:
            case(tally, args.bin, place)
    tally.finish()


if __name__ == "__main__":
    main()
