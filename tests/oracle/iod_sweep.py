"""Containers in a folder, through mounts: copies of HDF5 files in and back, two writers, kills, versions, random writes."""
import errno
import glob
import json
import os
import signal
import subprocess
import sys
import time

import h5py
import numpy as np

import harness

FIXTURES = os.path.join(harness.TOP, "tests", "fixtures")
FILES = ["sample/sample.h5", "mount/types.h5", "mount/variable.h5", "mount/links.h5", "mount/layouts_new.h5", "datatype/values.h5"]


def run(options, *arguments):
    return subprocess.run([options.bin, *arguments], capture_output=True, text=True, timeout=120)


def create(options, path):
    done = run(options, "create", "iod:" + path)
    assert done.returncode == 0, done.stderr
    return "iod:" + path


def write(path, data, offset=0):
    fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        os.pwrite(fd, data, offset)
        os.fsync(fd)
    finally:
        os.close(fd)


def records(container):
    return sorted(os.listdir(os.path.join(container.removeprefix("iod:"), "v")))


def copies(options, tally, folder):
    """cp -r of HDF5 files into a container and back: the same for libhdf5 and for h5dir diff."""
    for i, name in enumerate(FILES):
        source, back = os.path.join(FIXTURES, name), os.path.join(folder, f"back{i}.h5")
        container = create(options, os.path.join(folder, f"copy{i}"))
        for target in [(source + ":/", container + ":/"), (container + ":/", back + ":/")]:
            if target[0].startswith("iod:"):
                run(options, "create", back)
            done = run(options, "cp", "-r", *target)
            tally.check(done.returncode == 0, f"cp -r {target}: {done.stderr[-300:]}")
        for arguments in ([], ["--data"]):
            done = run(options, "check", "--json", *arguments, container)
            found = json.loads(done.stdout)
            tally.equal([done.returncode, found["findings"]], [0, []], f"check {name} {arguments}")
        for pair in [(source + ":/", container + ":/"), (source + ":/", container), (source + ":/", back + ":/")]:
            done = run(options, "diff", *pair)
            tally.check(done.returncode == 0, f"diff {pair}: {(done.stdout + done.stderr)[-300:]}")
        compare(tally, source, back)
    done = run(options, "cp", "-r", os.path.join(folder, "none.h5"), "iod:" + os.path.join(folder, "none"))
    tally.check(done.returncode == 1 and "none.h5" in done.stderr, f"a source that is not there: {done}")
    tally.check(not os.path.exists(os.path.join(folder, "none")), "nothing is created for it")


def compare(tally, source, back):
    with h5py.File(source) as a, h5py.File(back) as b:
        def visit(name, item):
            if name not in b:
                return tally.check(False, f"{name} is missing")
            other = b[name]
            tally.equal(sorted(item.attrs), sorted(other.attrs), f"{name}: attributes")
            if not isinstance(item, h5py.Dataset):
                return None
            tally.equal((item.shape, item.maxshape), (other.shape, other.maxshape), f"{name}: shape")
            tally.check(item.id.get_type() == other.id.get_type(), f"{name}: type")
            tally.equal((item.compression, item.shuffle), (other.compression, other.shuffle), f"{name}: filters")
            try:
                plain = item.shape is not None and item.size < 1 << 20 and item.dtype.kind not in "OV"
            except TypeError:
                # A type that numpy does not have; `h5dir diff` compared its bytes.
                return None
            if plain:
                tally.equal(item[()].tobytes(), other[()].tobytes(), f"{name}: elements")
            return None
        a.visititems(visit)


def make_named(path):
    """Named datatypes whose users come before and after them, in a group, and without a name."""
    record = np.dtype([("x", "<f8"), ("n", "<i4", (2,))])
    with h5py.File(path, "w", libver="latest") as f:
        f["types/record"] = record
        f["types/text"] = h5py.string_dtype()
        f["zzz"] = np.dtype(">i2")
        f["zzz"].attrs["note"] = "of the type"
        for name, of in [("a", "types/record"), ("types/own", "types/record"), ("strings", "types/text"), ("zzzz", "zzz")]:
            f.create_dataset(name, (4,), dtype=f[of], maxshape=(None,))
        f["strings"][:] = ["one", "", "three", "four"]
        f["a"][1] = (2.5, (3, 4))
        f.create_dataset("plain", data=np.zeros(3, ">i2"))
        f.attrs.create("of the root", 7, dtype=f["zzz"])
        f["plain"].attrs.create("r", np.array((1.5, (1, 2)), record), dtype=f["types/record"])
        f["plain"].attrs.create("own", 3)
        f["gone"] = np.dtype("<u8")
        f.create_dataset("nameless", data=np.arange(3, dtype="<u8"), dtype=f["gone"])
        del f["gone"]
        f.create_group("g")["hard"] = f["types/record"]


def named_types(options, tally, folder):
    """Users of named datatypes refer to them again in a container, and in a file that is copied from there."""
    source, back = os.path.join(folder, "named.h5"), os.path.join(folder, "named-back.h5")
    make_named(source)
    container = create(options, os.path.join(folder, "named"))
    run(options, "create", back)
    for target in [(source + ":/", container + ":/"), (container + ":/", back + ":/")]:
        done = run(options, "cp", "-r", *target)
        tally.check(done.returncode == 0, f"cp -r {target}: {done.stderr[-300:]}")
        done = run(options, "diff", source + ":/", target[1])
        tally.check(done.returncode == 0, f"diff {target}: {(done.stdout + done.stderr)[-300:]}")
    users = {"/a": "types/record", "/types/own": "types/record", "/strings": "types/text", "/zzzz": "zzz"}
    attributes = {("/", "of the root"): "zzz", ("/plain", "r"): "types/record"}
    with h5py.File(back) as f:
        def address(item):
            return h5py.h5o.get_info(item).addr
        for path, of in users.items():
            committed = f[path].id.get_type()
            tally.check(committed.committed() and address(committed) == address(f[of].id), f"{path} refers to {of}")
        for (path, name), of in attributes.items():
            committed = f[path].attrs.get_id(name).get_type()
            tally.check(committed.committed() and address(committed) == address(f[of].id), f"{path}: {name} refers to {of}")
        own = [f["plain"].id.get_type(), f["nameless"].id.get_type(), f["plain"].attrs.get_id("own").get_type()]
        tally.check(not any(t.committed() for t in own), "types without a name are their own")
        counts = [h5py.h5o.get_info(f[of].id).rc for of in ("types/record", "types/text", "zzz")]
        tally.equal(counts, [5, 2, 3], "reference counts")
        tally.equal(f["strings"].asstr()[()].tolist(), ["one", "", "three", "four"], "strings of a named type")
    named_in_store(options, tally, container)


def named_in_store(options, tally, container):
    """What the independent reader finds in the container, then changes through a mount."""
    sys.path.insert(0, os.path.join(harness.TOP, "tests", "objectstore"))
    import iod_reader
    reader = iod_reader.Container(iod_reader.Folder(container.removeprefix("iod:")))
    values = {}
    for record in reader.records():
        values.update((iod_reader.parts(key), cell) for key, cell, _ in record.entries)
    def stored(oid, kind, rest):
        return reader.resolve(values[oid, kind, rest][1])
    links = {name: iod_reader.link_target(stored(0, b"L", name)) for name in (b"zzz", b"zzzz")}
    message = stored(links[b"zzzz"], b"H", b"\0\3")
    tally.equal(message, bytes([2, 2]) + links[b"zzz"].to_bytes(8, "little"), "the stored datatype message")
    with harness.mounted(options.bin, container, "--read-write") as mount:
        at = os.path.join(mount, "zzzz")
        tally.equal(os.getxattr(at, "user.h5dir.types"), b'{"type":"/zzz"}', "the fact")
        os.unlink(os.path.join(mount, "zzz"))
        tally.equal(len(harness.read(at)), 8, "a dataset whose type has no name")
        made = os.path.join(mount, "made")
        write(made, b"")
        os.setxattr(made, "user.h5dir.datatype", b"<f4")
        write(os.path.join(mount, "uses"), b"")
        os.setxattr(os.path.join(mount, "uses"), "user.h5dir.dataset", b'{"dtype":"<f4","shape":[2]}')
        os.setxattr(os.path.join(mount, "uses"), "user.h5dir.types", b'{"type":"/made"}')
        tally.equal(os.stat(made).st_nlink, 2, "names and users of the type")
        try:
            os.setxattr(at, "user.h5dir.types", b'{"type":"/made"}')
            tally.check(False, "another type was taken")
        except OSError as e:
            tally.equal(e.errno, errno.EINVAL, "another type")
    with harness.mounted(options.bin, container) as mount:
        tally.equal(os.getxattr(os.path.join(mount, "uses"), "user.h5dir.types"), b'{"type":"/made"}', "mounted again")


def external_links(options, tally, folder):
    """Links to HDF5 files beside the container's folder are followed, as those of a file; none leads out of it."""
    inner = os.path.join(folder, "out", "inner")
    os.makedirs(os.path.join(inner, "sub"))
    for path in ("out/secret.h5", "out/inner/other.h5", "out/inner/sub/third.h5"):
        with h5py.File(os.path.join(folder, path), "w") as f:
            f["d"] = np.arange(5, dtype="<i4") + len(path)
            f["g/e"] = np.full(3, 7, "u1")
            f["d"].attrs["note"] = path
            f["back"] = h5py.ExternalLink("../other.h5", "/g") if "third" in path else h5py.ExternalLink("sub/third.h5", "/d")
    os.symlink("../secret.h5", os.path.join(inner, "alias.h5"))
    links = {"data": ("other.h5", "/d"), "group": ("other.h5", "/g"), "chain": ("other.h5", "/back"), "deep": ("sub/third.h5", "/back/e"),
             "up": ("../secret.h5", "/d"), "absolute": (os.path.join(folder, "out/secret.h5"), "/d"), "alias": ("alias.h5", "/d"),
             "missing": ("none.h5", "/d"), "nothing": ("other.h5", "/none"), "folder": ("c/iod", "/")}
    with h5py.File(os.path.join(inner, "main.h5"), "w") as f:
        for name, (file, path) in links.items():
            f[name] = h5py.ExternalLink(file, path)
        f["soft"] = h5py.SoftLink("/data")
    container = create(options, os.path.join(inner, "c"))
    done = run(options, "cp", "-r", os.path.join(inner, "main.h5") + ":/", container + ":/")
    tally.check(done.returncode == 0, f"cp -r of external links: {done.stderr[-300:]}")
    followed = {"data": np.arange(5, dtype="<i4") + len("out/inner/other.h5"), "group/e": np.full(3, 7, "u1"),
                "chain": np.arange(5, dtype="<i4") + len("out/inner/sub/third.h5"), "deep": np.full(3, 7, "u1")}
    broken = ("up", "absolute", "alias", "missing", "nothing", "folder")
    for arguments in ([], ["--read-write"]):
        with harness.mounted(options.bin, container, *arguments) as mount:
            for name, want in followed.items():
                tally.equal(harness.read(os.path.join(mount, name)), want.tobytes(), f"{name} {arguments}")
            tally.equal(os.getxattr(os.path.join(mount, "data"), "user.note"), b"out/inner/other.h5", "an attribute elsewhere")
            tally.equal(sorted(os.listdir(os.path.join(mount, "group"))), ["e"], "a group elsewhere")
            for name in broken:
                path = os.path.join(mount, name)
                tally.check(os.path.islink(path) and not os.path.exists(path), f"{name} leads nowhere {arguments}")
            if arguments:
                for action in (lambda: os.open(os.path.join(mount, "data"), os.O_RDWR), lambda: os.mkdir(os.path.join(mount, "group/new"))):
                    try:
                        action()
                        tally.check(False, "a file elsewhere is changed")
                    except OSError as e:
                        tally.equal(e.errno, errno.EROFS, "a change of a file elsewhere")
    with harness.mounted(options.bin, container, "--external=off") as mount:
        tally.check(all(os.path.islink(os.path.join(mount, name)) for name in links), "--external=off follows none")
    with harness.mounted(options.bin, container, "--external-root", os.path.join(folder, "out")) as mount:
        tally.equal(harness.read(os.path.join(mount, "up"))[:4], (13).to_bytes(4, "little"), "a file beneath --external-root")


def writers(options, tally, folder):
    """Two mounts write at once: disjoint changes are merged, true conflicts are refused."""
    container = create(options, os.path.join(folder, "two"))
    with harness.mounted(options.bin, container, "--read-write") as mount:
        write(os.path.join(mount, "f"), b"-" * 1000)
    with harness.mounted(options.bin, container, "--read-write") as a, harness.mounted(options.bin, container, "--read-write") as b:
        for i in range(10):
            write(os.path.join(a, "f"), b"a" * 50, 50 * i)
            write(os.path.join(b, "f"), b"b" * 50, 500 + 50 * i)
            write(os.path.join(a, f"of-a{i}"), b"%d" % i)
            write(os.path.join(b, f"of-b{i}"), b"%d" % i)
            os.mkdir(os.path.join(a, f"dir-a{i}"))
    with harness.mounted(options.bin, container) as mount:
        tally.equal(harness.read(os.path.join(mount, "f")), b"a" * 500 + b"b" * 500, "disjoint writes to one chunk")
        want = {f"of-{w}{i}" for w in "ab" for i in range(10)} | {f"dir-a{i}" for i in range(10)} | {"f", ".h5dir"}
        tally.equal(set(os.listdir(mount)) | {".h5dir"}, want, "names of two writers")
    with harness.mounted(options.bin, container, "--read-write", "--commit-interval=1000") as a:
        point = os.path.join(folder, "b")
        os.makedirs(point, exist_ok=True)
        subprocess.run([options.bin, "mount", "--read-write", "--commit-interval=1000", container, point], check=True, timeout=60)
        try:
            os.setxattr(os.path.join(a, "f"), "user.title", b"one")
            os.setxattr(os.path.join(point, "f"), "user.title", b"two")
            write(os.path.join(a, "f"), b"x")
            try:
                write(os.path.join(point, "f"), b"y", 900)
                tally.check(False, "a conflict was not refused")
            except OSError as e:
                tally.equal(e.errno, errno.EIO, "fsync of a conflict")
        finally:
            run(options, "umount", "--lazy", point)
    with harness.mounted(options.bin, container) as mount:
        tally.equal(os.getxattr(os.path.join(mount, "f"), "user.title"), b"one", "the first writer's attribute")
        tally.equal(harness.read(os.path.join(mount, "f"))[:1], b"x", "the first writer's bytes")


def failing(action):
    """The errno of an action that must fail; 0 if it does not."""
    try:
        action()
    except OSError as e:
        return e.errno
    return 0


def order(path, word):
    fd = os.open(path, os.O_WRONLY)
    try:
        os.write(fd, word)
    finally:
        os.close(fd)


def refused(options, tally, folder):
    """After a refused commit, .h5dir/refused says why, and takes 'discard'."""
    container = create(options, os.path.join(folder, "refused"))
    slow = ("--read-write", "--commit-interval=1000")
    with harness.mounted(options.bin, container, *slow) as a, harness.mounted(options.bin, container, *slow) as b:
        control = os.path.join(b, ".h5dir", "refused")
        write(os.path.join(a, "f"), b"-" * 1000)
        tally.equal(failing(lambda: os.stat(control)), errno.ENOENT, "no commit was refused")
        time.sleep(1.1)
        write(os.path.join(b, "g"), b"-")
        tally.equal(harness.read(os.path.join(b, "f"))[:1], b"-", "the file of the other mount")
        write(os.path.join(a, "f"), b"aaaa")
        os.mkdir(os.path.join(b, "lost"))
        tally.equal(failing(lambda: write(os.path.join(b, "f"), b"bbbb")), errno.EIO, "fsync of a conflict")
        tally.equal(failing(lambda: os.mkdir(os.path.join(b, "more"))), errno.EIO, "a change after it")
        tally.equal(harness.read(os.path.join(b, "f"))[:4], b"bbbb", "the changes can still be read")
        tally.equal(os.stat(control).st_mode & 0o777, 0o600, "its mode")
        reason = harness.read(control).decode()
        tally.check("conflict at /f" in reason, f"reason: {reason}")
        tally.equal(failing(lambda: order(control, b"retry")), errno.EINVAL, "another word")
        order(control, b"discard\n")
        time.sleep(1.1)
        tally.equal(failing(lambda: os.stat(control)), errno.ENOENT, "the mount goes on")
        tally.equal(harness.read(os.path.join(b, "f"))[:4], b"aaaa", "the bytes of the other mount")
        tally.check("lost" not in os.listdir(b), "the other changes are dropped")
        write(os.path.join(b, "f"), b"b", 3)
        os.mkdir(os.path.join(b, "after"))
    with harness.mounted(options.bin, container) as mount:
        tally.equal(harness.read(os.path.join(mount, "f"))[:5], b"aaab-", "changes after 'discard'")
        tally.equal({n for n in os.listdir(mount) if n != ".h5dir"}, {"f", "g", "after"}, "names after 'discard'")


def full(options, tally, folder):
    """A commit on a full disk fails, and the next one succeeds when there is space again."""
    small = os.path.join(folder, "small")
    os.makedirs(small)
    if os.geteuid() or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=40M", "none", small], capture_output=True).returncode:
        print("a tmpfs cannot be mounted: the full disk is left out")
        return
    try:
        container = create(options, os.path.join(small, "box"))
        random = os.urandom(1 << 20)
        with harness.mounted(options.bin, container, "--read-write", "--commit-interval=1000") as mount:
            write(os.path.join(mount, "kept"), random * 20)
            write(os.path.join(mount, "small"), b"1")
            tally.check(failing(lambda: write(os.path.join(mount, "large"), random * 40)) in (errno.EIO, errno.ENOSPC), "a full disk")
            write_later = failing(lambda: os.mkdir(os.path.join(mount, "meanwhile")))
            tally.equal(write_later, 0, "a change while the disk is full")
            os.unlink(os.path.join(mount, "large"))
            harness.released(mount)
            write(os.path.join(mount, "small"), b"2")
        with harness.mounted(options.bin, container) as mount:
            tally.equal({n for n in os.listdir(mount) if n != ".h5dir"}, {"kept", "small", "meanwhile"}, "names after a full disk")
            tally.equal(harness.read(os.path.join(mount, "small")), b"2", "bytes after a full disk")
            tally.equal(harness.read(os.path.join(mount, "kept")), random * 20, "bytes before it")
    finally:
        subprocess.run(["umount", "-l", small], capture_output=True)


def versions(options, tally, folder):
    """Each fsync is a version that stays readable."""
    container = create(options, os.path.join(folder, "versions"))
    want = {}
    with harness.mounted(options.bin, container, "--read-write", "--commit-interval=1000") as mount:
        for i in range(5):
            write(os.path.join(mount, "f"), b"%d" % i * (i + 1))
            want[int(records(container)[-1], 16)] = b"%d" % i * (i + 1)
    for version, data in want.items():
        with harness.mounted(options.bin, container, f"--version={version}") as mount:
            tally.equal(harness.read(os.path.join(mount, "f")), data, f"version {version}")
            try:
                write(os.path.join(mount, "f"), b"z")
                tally.check(False, "a version was written")
            except OSError as e:
                tally.equal(e.errno, errno.EROFS, "a version is read-only")
    log = run(options, "iod", "log", container)
    tally.equal([int(line.split()[0]) for line in log.stdout.splitlines()], list(range(len(records(container)), 0, -1)), "iod log")
    dump = run(options, "iod", "dump", container)
    tally.check("0: KV object (group)" in dump.stdout and '<"f", ' in dump.stdout and "object_dataspace" in dump.stdout, f"iod dump {dump}")
    done = run(options, "mount", "--version=99999", container, folder)
    tally.check(done.returncode != 0 and "no version 99999" in done.stderr, f"a version that is not there: {done.stderr}")


def daemon_of(mount):
    for path in glob.glob("/proc/[0-9]*/cmdline"):
        try:
            words = open(path, "rb").read().split(b"\0")
        except OSError:
            continue
        if mount.encode() in words and b"mount" in words:
            yield int(path.split("/")[2])


def kills(options, tally, folder):
    """kill -9 of a writer: what was synced is there, and nothing is damaged."""
    for round_number in range(3):
        container = create(options, os.path.join(folder, f"killed{round_number}"))
        point = os.path.join(folder, f"k{round_number}")
        os.makedirs(point, exist_ok=True)
        subprocess.run([options.bin, "mount", "--read-write", "--commit-interval=0.05", container, point], check=True, timeout=60)
        write(os.path.join(point, "synced"), b"s" * 100000)
        for i in range(20 * round_number):
            with open(os.path.join(point, f"n{i}"), "wb") as f:
                f.write(os.urandom(20000))
        for pid in daemon_of(point):
            os.kill(pid, signal.SIGKILL)
        time.sleep(0.3)
        subprocess.run(["umount", "-l", point], capture_output=True)
        with harness.mounted(options.bin, container, "--read-write") as mount:
            tally.equal(harness.read(os.path.join(mount, "synced")), b"s" * 100000, "synced bytes after a kill")
            write(os.path.join(mount, "after"), b"goes on")
        with harness.mounted(options.bin, container) as mount:
            for name in os.listdir(mount):
                if name != ".h5dir":
                    tally.check(len(harness.read(os.path.join(mount, name))) in (0, 7, 20000, 100000), f"{name} after a kill")


def random_writes(options, tally, folder):
    """Random writes, truncations and holes of files and typed datasets, compared with bytes in memory."""
    rng = np.random.default_rng(options.seed)
    container = create(options, os.path.join(folder, "random"))
    with harness.mounted(options.bin, container, "--read-write", "--commit-interval=0.1") as mount:
        path, model = os.path.join(mount, "f"), bytearray()
        fd = os.open(path, os.O_RDWR | os.O_CREAT)
        for _ in range(150):
            at, n, what = int(rng.integers(0, 3 << 20)), int(rng.integers(1, 300000)), int(rng.integers(0, 5))
            if what < 3:
                data = rng.bytes(n)
                model.extend(bytes(max(0, at + n - len(model))))
                model[at:at + n] = data
                os.pwrite(fd, data, at)
            elif what == 3:
                os.ftruncate(fd, at)
                model = model[:at] + bytes(max(0, at - len(model)))
            else:
                os.fsync(fd)
            tally.check(os.fstat(fd).st_size == len(model), "size")
        tally.equal(os.pread(fd, len(model) + 1, 0), bytes(model), "random writes")
        os.close(fd)
        os.mkdir(os.path.join(mount, "d"))
        np.save(os.path.join(mount, ".h5dir/npy/d/x.npy"), np.arange(24.0).reshape(4, 6))
        os.setxattr(os.path.join(mount, "d"), "user.note", b"text")
        os.symlink("f", os.path.join(mount, "link"))
        os.link(path, os.path.join(mount, "d/hard"))
        os.rename(path, os.path.join(mount, "g"))
    with harness.mounted(options.bin, container) as mount:
        tally.equal(harness.read(os.path.join(mount, "g")), bytes(model), "random writes, mounted again")
        tally.equal(harness.read(os.path.join(mount, "d/hard")), bytes(model), "a hard link")
        tally.equal(np.load(os.path.join(mount, ".h5dir/npy/d/x.npy")).tolist(), np.arange(24.0).reshape(4, 6).tolist(), "an array")
        tally.equal(os.getxattr(os.path.join(mount, "d"), "user.note"), b"text", "an attribute")
        tally.equal(os.readlink(os.path.join(mount, "link")), "f", "a symbolic link")


def damage(options, tally, folder):
    """Flipped bits of any object are errors or another checkpoint, never other bytes and never a crash."""
    rng = np.random.default_rng(options.seed)
    container = create(options, os.path.join(folder, "damaged"))
    with harness.mounted(options.bin, container, "--read-write") as mount:
        write(os.path.join(mount, "f"), b"content" * 3000)
    want = b"content" * 3000
    for path in sorted(glob.glob(container.removeprefix("iod:") + "/**", recursive=True)):
        if not os.path.isfile(path):
            continue
        right = harness.read(path)
        os.chmod(path, 0o644)
        for _ in range(3):
            wrong = bytearray(right)
            wrong[int(rng.integers(0, len(wrong)))] ^= 1 << int(rng.integers(0, 8))
            with open(path, "wb") as f:
                f.write(wrong)
            done = subprocess.run([options.bin, "cat", container + ":/f"], capture_output=True, timeout=60)
            tally.check(done.returncode > 0 and want not in done.stdout or done.stdout == want, f"a flipped bit of {path}")
            found = subprocess.run([options.bin, "check", "--data", container], capture_output=True, timeout=60)
            tally.check(found.returncode in (0, 1, 3), f"check exits with {found.returncode}")
            tally.check(found.returncode > 0 or done.stdout == want, f"check does not find the flipped bit of {path}")
        with open(path, "wb") as f:
            f.write(right)
    tally.equal(run(options, "cat", container + ":/f").stdout.encode(), want, "undamaged again")
    for version, code in [("1", 0), ("2", 0), ("999", 3)]:
        tally.equal(run(options, "check", "--data", "--version", version, container).returncode, code, f"check of version {version}")
    for path in glob.glob(container.removeprefix("iod:") + "/d/*/*"):
        os.rename(path, path + "-away")
        tally.equal(run(options, "check", container).returncode, 1, "check without a pack")
        os.rename(path + "-away", path)


def main():
    options, tally = harness.arguments(__doc__), harness.Tally()
    with harness.folder(options.keep) as folder:
        for part in (copies, named_types, external_links, writers, refused, full, versions, kills, random_writes, damage):
            part(options, tally, folder)
    tally.finish()


if __name__ == "__main__":
    main()
