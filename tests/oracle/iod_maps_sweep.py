"""Maps of containers in a folder, through mounts: compared with dictionaries of Python and with struct."""
import errno
import json
import os
import struct
import subprocess
import time

import h5py
import numpy as np

import harness

MAP = "user.h5dir.map"
TYPES = b'{"key":"<i8","value":"<f8"}'


def run(options, *arguments):
    return subprocess.run([options.bin, *arguments], capture_output=True, text=True, timeout=120)


def create(options, path):
    done = run(options, "create", "iod:" + path)
    assert done.returncode == 0, done.stderr
    return "iod:" + path


def make_map(path, types=TYPES):
    os.mkdir(path)
    os.setxattr(path, MAP, types)


def put(path, data):
    with open(path, "wb") as f:
        f.write(data)


def refused(tally, wanted, what, f, *arguments):
    try:
        f(*arguments)
        tally.check(False, f"{what} was not refused")
    except OSError as e:
        tally.equal(errno.errorcode[e.errno], errno.errorcode[wanted], what)


def settled(path, wanted):
    """The content of a file after a refused close, which may change until the kernel releases the descriptor."""
    end = time.time() + 10
    while harness.read(path) != wanted and time.time() < end:
        time.sleep(0.01)
    return harness.read(path)


def shown(path):
    return {name: harness.read(os.path.join(path, name)) for name in os.listdir(path)}


def random_pairs(options, tally, folder):
    """Random puts, removals and renames: the directory is the dictionary, also after mounting again."""
    rng = np.random.default_rng(options.seed)
    container = create(options, os.path.join(folder, "random"))
    model = {}
    for round_ in range(2):
        with harness.mounted(options.bin, container, "--read-write") as mount:
            m = os.path.join(mount, "m")
            if round_ == 0:
                make_map(m)
            for _ in range(80):
                key, other = (str(int(n)) for n in rng.integers(-9, 9, 2))
                what, value = int(rng.integers(0, 6)), struct.pack("<d", rng.random())
                if what < 3:
                    put(os.path.join(m, key), value)
                    model[key] = value
                elif key not in model:
                    refused(tally, errno.ENOENT, "a key that is not there", os.unlink, os.path.join(m, key))
                elif what == 3:
                    os.unlink(os.path.join(m, key))
                    del model[key]
                else:
                    os.rename(os.path.join(m, key), os.path.join(m, other))
                    model[other] = model.pop(key)
            tally.equal(shown(m), model, "pairs")
            tally.check(all(os.stat(os.path.join(m, key)).st_size == 8 for key in model), "sizes")
    with harness.mounted(options.bin, container) as mount:
        tally.equal(shown(os.path.join(mount, "m")), model, "pairs, mounted again")
        tally.equal(harness.fact(os.path.join(mount, "m"), "kind"), "map", "kind")
        tally.equal([harness.fact(os.path.join(mount, "m"), t) for t in ("key", "value")], ["<i8", "<f8"], "types")
        refused(tally, errno.EROFS, "a pair in a read-only mount", put, os.path.join(mount, "m", "100"), bytes(8))


def types_of_keys(options, tally, folder):
    """Names are texts of keys, values their bytes."""
    container = create(options, os.path.join(folder, "types"))
    long = "x" * 300
    cases = {
        "strings": ('{"key":"str","value":"str"}', {"a%2Fb": b"slash", "%EMPTY": b"", "%2E%2E": b"dots", "r\u00f6t": "gr\u00fcn".encode()}),
        "fixed": ('{"key":"S3","value":"S2"}', {"ab": b"x\0", "abc": b"yz", "%EMPTY": b"\0\0"}),
        "floats": ('{"key":"<f4","value":"<i2"}', {"0.5": struct.pack("<h", 7), "-1.25": bytes(2), "NaN": b"\1\2"}),
        "records": ("""{"key":"[('a','u1'),('b','<i2')]","value":"('>u2', (3,))"}""", {'{"a":1,"b":-2}': struct.pack(">3H", 1, 2, 3)}),
        "booleans": ('{"key":"bool","value":"u1"}', {"TRUE": b"\1", "FALSE": b"\0"}),
        "wide": ('{"key":"u1","value":"V5000"}', {"255": bytes(range(250)) * 20}),
    }
    with harness.mounted(options.bin, container, "--read-write") as mount:
        for name, (types, pairs) in cases.items():
            make_map(os.path.join(mount, name), types.encode())
            for key, value in pairs.items():
                put(os.path.join(mount, name, key), value)
        os.mkdir(os.path.join(mount, "long"))
        os.setxattr(os.path.join(mount, "long"), MAP, b'{"key":"S300","value":"u1"}')
    with harness.mounted(options.bin, container) as mount:
        for name, (_, pairs) in cases.items():
            tally.equal(shown(os.path.join(mount, name)), pairs, name)
        text = json.loads(harness.read(os.path.join(mount, ".h5dir/json/strings.json")))
        tally.equal(sorted(map(tuple, text["pairs"])), sorted([("a/b", "slash"), ("", ""), ("..", "dots"), ("r\u00f6t", "gr\u00fcn")]), "JSON")
    with harness.mounted(options.bin, container, "--read-write") as mount:
        refused(tally, errno.ENAMETOOLONG, "a name of 300 bytes", put, os.path.join(mount, "long", long), b"1")


def refusals(options, tally, folder):
    """What a map cannot be or hold is refused, with the reason in the log."""
    container = create(options, os.path.join(folder, "refused"))
    with harness.mounted(options.bin, container, "--read-write") as mount:
        def path(*names):
            return os.path.join(mount, *names)
        refused(tally, errno.EINVAL, "the root as a map", os.setxattr, mount, MAP, TYPES)
        os.makedirs(path("full", "x"))
        refused(tally, errno.ENOTEMPTY, "a full directory", os.setxattr, path("full"), MAP, TYPES)
        put(path("file"), b"x")
        refused(tally, errno.EINVAL, "a file", os.setxattr, path("file"), MAP, TYPES)
        os.mkdir(path("m"))
        for types in (b"", b"{}", b'{"key":"<i8"}', b'{"key":"<i8","value":"x"}', b'{"key":"<i8","value":"<f8","more":1}', b"[]"):
            refused(tally, errno.EINVAL, f"types {types}", os.setxattr, path("m"), MAP, types)
        # The directory was listed and looked up before, and its number stays.
        before = os.stat(path("m")).st_ino
        os.setxattr(path("m"), MAP, TYPES)
        os.setxattr(path("m"), MAP, os.getxattr(path("m"), MAP))
        tally.equal(os.stat(path("m")).st_ino, before, "inode number")
        for name in ("x", "01", "+1", "1.0", " 1"):
            refused(tally, errno.EINVAL, f"key {name}", put, path("m", name), bytes(8))
        refused(tally, errno.ERANGE, "a key of 65 bits", put, path("m", "9223372036854775808"), bytes(8))
        for data in (bytes(4), bytes(9)):
            refused(tally, errno.EINVAL, f"a value of {len(data)} bytes", put, path("m", "1"), data)
            tally.equal(settled(path("m", "1"), bytes(8)), bytes(8), "the value of a new pair")
        put(path("m", "1"), b"12345678")
        with open(path("m", "1"), "r+b") as f:
            f.seek(4)
            f.write(b"abcd")
            f.flush()
            os.fsync(f.fileno())
            tally.equal(harness.read(path("m", "1")), b"1234abcd", "a part of a value is written")
        refused(tally, errno.EINVAL, "a shorter value", put, path("m", "1"), b"abc")
        tally.equal(settled(path("m", "1"), b"1234abcd"), b"1234abcd", "the value that stays")
        refused(tally, errno.EPERM, "mkdir in a map", os.mkdir, path("m", "2"))
        refused(tally, errno.EPERM, "a symbolic link in a map", os.symlink, "x", path("m", "2"))
        refused(tally, errno.EINVAL, "a rename to no key", os.rename, path("m", "1"), path("m", "x"))
        refused(tally, errno.EXDEV, "a rename out of the map", os.rename, path("m", "1"), path("one"))
        refused(tally, errno.ENOTEMPTY, "rmdir of a full map", os.rmdir, path("m"))
        os.setxattr(path("m"), "user.note", b"text")
        os.chmod(path("m"), 0o750)
        tally.equal((os.getxattr(path("m"), "user.note"), os.stat(path("m")).st_mode & 0o777), (b"text", 0o750), "attribute and mode")
        os.rename(path("m"), path("full", "moved"))
        tally.equal(shown(path("full", "moved")), {"1": b"1234abcd"}, "a map that was moved")
        os.unlink(path("full", "moved", "1"))
        os.rmdir(path("full", "moved"))
        tally.check("is spelled" in harness.read(path(".h5dir/log")).decode(), "the log says why")
    source = os.path.join(folder, "plain.h5")
    h5py.File(source, "w").close()
    with harness.mounted(options.bin, source, "--read-write") as mount:
        os.mkdir(os.path.join(mount, "m"))
        refused(tally, errno.EOPNOTSUPP, "a map in an HDF5 file", os.setxattr, os.path.join(mount, "m"), MAP, TYPES)


def writers(options, tally, folder):
    """Two mounts put different keys: both are there. The same key is a conflict with its name."""
    container = create(options, os.path.join(folder, "two"))
    with harness.mounted(options.bin, container, "--read-write") as mount:
        make_map(os.path.join(mount, "m"))
    both = ("--read-write", "--commit-interval=1000")
    with harness.mounted(options.bin, container, *both) as a, harness.mounted(options.bin, container, *both) as b:
        for i in range(20):
            for mount, n in ((a, i), (b, -1 - i)):
                with open(os.path.join(mount, "m", str(n)), "wb") as f:
                    f.write(struct.pack("<d", n))
                    f.flush()
                    os.fsync(f.fileno())
    with harness.mounted(options.bin, container) as mount:
        tally.equal(shown(os.path.join(mount, "m")), {str(n): struct.pack("<d", n) for n in range(-20, 20)}, "keys of two writers")
    with harness.mounted(options.bin, container, *both) as a:
        point = os.path.join(folder, "b")
        os.makedirs(point)
        subprocess.run([options.bin, "mount", *both, container, point], check=True, timeout=60)
        try:
            put(os.path.join(a, "m", "-7"), bytes(8))
            put(os.path.join(point, "m", "-7"), b"12345678")
            os.sync()
            for mount, wanted in ((a, None), (point, errno.EIO)):
                fd = os.open(os.path.join(mount, "m", "-7"), os.O_RDONLY)
                try:
                    os.fsync(fd)
                    tally.check(wanted is None, "a conflict was not refused")
                except OSError as e:
                    tally.equal(e.errno, wanted, "fsync of a conflict")
                finally:
                    os.close(fd)
            tally.check("key -7 of /m" in harness.read(os.path.join(point, ".h5dir/log")).decode(), "the log names the key")
        finally:
            run(options, "umount", "--lazy", point)


def commands(options, tally, folder):
    """cp, cat, ls, diff, stat and dump of maps."""
    source = create(options, os.path.join(folder, "source"))
    with harness.mounted(options.bin, source, "--read-write") as mount:
        make_map(os.path.join(mount, "m"))
        os.setxattr(os.path.join(mount, "m"), "user.note", b"text")
        for n in range(-3, 4):
            put(os.path.join(mount, "m", str(n)), struct.pack("<d", n / 2))
        put(os.path.join(mount, "plain"), b"bytes")
    copy = create(options, os.path.join(folder, "copy"))
    done = run(options, "cp", "-r", source + ":/", copy + ":/")
    tally.equal((done.returncode, done.stderr), (0, ""), "cp between containers")
    done = run(options, "diff", "-r", source + ":/", copy + ":/")
    tally.equal((done.returncode, done.stdout), (0, ""), "diff of a copy")
    done = run(options, "cp", "-r", source + ":/m", copy + ":/")
    tally.equal(done.returncode, 0, f"cp into a map that is there: {done.stderr}")
    with harness.mounted(options.bin, copy, "--read-write") as mount:
        tally.equal(shown(os.path.join(mount, "m")), {str(n): struct.pack("<d", n / 2) for n in range(-3, 4)}, "the copy")
        tally.equal(os.getxattr(os.path.join(mount, "m"), "user.note"), b"text", "the attribute of the copy")
        put(os.path.join(mount, "m", "2"), bytes(8))
        os.unlink(os.path.join(mount, "m", "-1"))
    done = run(options, "diff", "-r", source + ":/", copy + ":/")
    tally.check(done.returncode == 1 and "/m/2" in done.stdout and "/m/-1" in done.stdout, f"diff of changed maps: {done}")
    plain = os.path.join(folder, "plain-copy.h5")
    run(options, "create", plain)
    done = run(options, "cp", "-r", source + ":/", plain + ":/")
    tally.check(done.returncode != 0 and "/m: it is a map, and HDF5 files have none" in done.stderr, f"cp to an HDF5 file: {done}")
    with h5py.File(plain) as f:
        tally.equal((list(f), f["plain"][()].tobytes()), (["plain"], b"bytes"), "the rest is copied")
    done = run(options, "cp", source + ":/m/1", copy + ":/pair")
    tally.check(done.returncode == 1 and "a pair of a map" in done.stderr, f"cp of a pair into a group: {done}")
    local = os.path.join(folder, "local")
    tally.equal(run(options, "cp", "-r", source + ":/m", local).returncode, 0, "cp to a local directory")
    tally.equal(shown(local), {str(n): struct.pack("<d", n / 2) for n in range(-3, 4)}, "the local copy")
    cat = subprocess.run([options.bin, "cat", source + ":/m/-3"], capture_output=True, timeout=60)
    tally.equal(cat.stdout, struct.pack("<d", -1.5), "cat")
    tally.equal(sorted(run(options, "ls", source + ":/m").stdout.split()), sorted(map(str, range(-3, 4))), "ls")
    facts = json.loads(run(options, "stat", "--json", source + ":/m").stdout)
    tally.check("<f8" in json.dumps(facts) and '"map"' in json.dumps(facts), f"stat {facts}")
    dump = run(options, "iod", "dump", source).stdout
    tally.check("KV object (map)" in dump and f"<-3, 0x{struct.pack('<d', -1.5).hex()}>" in dump, f"dump {dump[-600:]}")


def main():
    options, tally = harness.arguments(__doc__), harness.Tally()
    with harness.folder(options.keep) as folder:
        for part in (random_pairs, types_of_keys, refusals, writers, commands):
            part(options, tally, folder)
    tally.finish()


if __name__ == "__main__":
    main()
