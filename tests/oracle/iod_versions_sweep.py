"""Versions of containers in a folder: views, tags, --version, diff, revert and following, compared with a model in Python."""
import copy
import errno
import io
import json
import os
import subprocess
import time

import numpy as np

import harness

KEPT = "--commit-interval=1000"


def run(options, *arguments):
    return subprocess.run([options.bin, *arguments], capture_output=True, text=True, timeout=120)


def newest(container):
    return max(int(name, 16) for name in os.listdir(os.path.join(container.removeprefix("iod:"), "v")))


class Model:
    """Objects by number: a group has names, a file bytes; both have attributes."""

    def __init__(self):
        self.objects = {0: {"names": {}, "attributes": {}}}
        self.last = 0

    def paths(self):
        found, groups = {0: "/"}, [(0, "")]
        while groups:
            group, path = groups.pop(0)
            for name, number in sorted(self.objects[group]["names"].items()):
                if number not in found:
                    found[number] = f"{path}/{name}"
                    if "names" in self.objects[number]:
                        groups.append((number, f"{path}/{name}"))
        return found

    def add(self, group, name, item):
        self.last += 1
        self.objects[self.last] = {"attributes": {}, **item}
        self.objects[group]["names"][name] = self.last
        return self.last

    def of_kind(self, key):
        return [number for number, item in self.objects.items() if key in item]


def operation(rng, mount, model):
    """One random change of the mount, and the same of the model."""
    paths = model.paths()
    at = lambda number: mount + paths[number].rstrip("/")
    groups, files = model.of_kind("names"), model.of_kind("bytes")
    group = int(rng.choice(groups))
    name = f"n{model.last}"
    what = int(rng.integers(0, 9))
    if what == 0:
        os.mkdir(os.path.join(at(group), name))
        return model.add(group, name, {"names": {}})
    if what == 1 or not files:
        data = rng.bytes(int(rng.integers(1, 9000)))
        with open(os.path.join(at(group), name), "wb") as f:
            f.write(data)
        return model.add(group, name, {"bytes": data})
    if what == 2:
        array = rng.standard_normal((int(rng.integers(1, 40)), 30))
        text = io.BytesIO()
        np.save(text, array)
        with open(f"{mount}/.h5dir/npy{paths[group].rstrip('/')}/{name}.npy", "wb") as f:
            f.write(text.getvalue())
        return model.add(group, name, {"bytes": array.tobytes()})
    number = int(rng.choice(files))
    item = model.objects[number]
    if what in (3, 4):
        start = int(rng.integers(0, len(item["bytes"])))
        data = rng.bytes(min(int(rng.integers(1, 500)), len(item["bytes"]) - start))
        fd = os.open(at(number), os.O_RDWR)
        os.pwrite(fd, data, start)
        os.close(fd)
        item["bytes"] = item["bytes"][:start] + data + item["bytes"][start + len(data):]
    elif what == 5:
        value = rng.bytes(int(rng.integers(1, 50)))
        key = f"k{int(rng.integers(0, 3))}"
        number = int(rng.choice(list(model.objects)))
        os.setxattr(at(number) or mount, f"user.{key}", value)
        model.objects[number]["attributes"][key] = value
    elif what == 6 and item["attributes"]:
        key = sorted(item["attributes"])[0]
        os.removexattr(at(number), f"user.{key}")
        del item["attributes"][key]
    elif what == 7:
        old = next(g for g in groups if number in model.objects[g]["names"].values())
        shown = next(n for n, o in model.objects[old]["names"].items() if o == number)
        model.last += 1
        os.rename(f"{at(old)}/{shown}", f"{at(group)}/{name}r")
        del model.objects[old]["names"][shown]
        model.objects[group]["names"][f"{name}r"] = number
    elif what == 8 and len(files) > 3:
        os.unlink(at(number))
        for g in groups:
            names = model.objects[g]["names"]
            model.objects[g]["names"] = {n: o for n, o in names.items() if o != number}
        del model.objects[number]
    return None


def commit(mount):
    # An unlinked file that is open is in the version.
    harness.released(mount)
    fd = os.open(mount, os.O_RDONLY)
    os.fsync(fd)
    os.close(fd)


def compare(tally, folder, model, what):
    """All names, bytes and attributes below `folder` are those of the model."""
    groups = [(0, folder)]
    while groups:
        number, path = groups.pop()
        item = model.objects[number]
        attributes = {k: os.getxattr(path, f"user.{k}") for k in ("k0", "k1", "k2") if f"user.{k}" in os.listxattr(path)}
        tally.equal(attributes, item["attributes"], f"{what}: attributes of {path}")
        if "bytes" in item:
            tally.equal(harness.read(path), item["bytes"], f"{what}: bytes of {path}")
            continue
        tally.equal(sorted(os.listdir(path)), sorted(item["names"]), f"{what}: names in {path}")
        groups.extend((o, f"{path}/{n}") for n, o in item["names"].items() if os.path.lexists(f"{path}/{n}"))


def expected(a, b):
    """What differs between two models, by path: the changes that `iod diff --json` has."""
    names = lambda m, number: {(g, n) for g in m.of_kind("names") for n, o in m.objects[g]["names"].items() if o == number}
    found, paths = {}, (a.paths(), b.paths())
    for number in set(a.objects) | set(b.objects):
        path = paths[1].get(number) or paths[0].get(number)
        if number not in a.objects or number not in b.objects:
            found[path] = {"created" if number in b.objects else "removed"}
            continue
        was, now, changes = a.objects[number], b.objects[number], set()
        if names(a, number) != names(b, number):
            changes.add("renamed")
        for key in set(was["attributes"]) | set(now["attributes"]):
            if key not in now["attributes"]:
                changes.add(f"attribute removed {key}")
            elif was["attributes"].get(key) != now["attributes"][key]:
                changes.add(f"attribute set {key}")
        if was.get("bytes") != now.get("bytes"):
            changes.add("elements")
        if changes:
            found[path] = changes
    return found


def reported(text):
    full = lambda c: f"{c['change']} {c['name']}" if c["change"].startswith("attribute") else c["change"]
    return {o["path"]: {full(c) for c in o["changes"]} for o in json.loads(text)}


def histories(options, tally, folder):
    """Every version of a random history, by each way to name it; reverting; what differs."""
    rng = np.random.default_rng(options.seed)
    container, models, model = "iod:" + os.path.join(folder, "history"), {}, Model()
    tally.equal(run(options, "create", container).returncode, 0, "create")
    with harness.mounted(options.bin, container, "--read-write", KEPT) as mount:
        for _ in range(20):
            for _ in range(int(rng.integers(1, 7))):
                operation(rng, mount, model)
            # An operation may change nothing, and a commit without changes makes no version.
            model.objects[0]["attributes"]["k0"] = rng.bytes(8)
            os.setxattr(mount, "user.k0", model.objects[0]["attributes"]["k0"])
            commit(mount)
            models[newest(container)] = copy.deepcopy(model)
            compare(tally, mount, model, "the mount that writes")
        early = sorted(models)[4]
        compare(tally, f"{mount}/.h5dir/versions/{early}", models[early], "a version below the mount that writes")
        refused(tally, f"{mount}/.h5dir/versions/{early}", models[early])
    versions = sorted(models)
    for name, at in (("first", 0), ("mid-way", 9), ("last_one", 19)):
        done = run(options, "iod", "tag", container, name, str(versions[at]))
        tally.equal((done.returncode, done.stderr), (0, ""), f"tag {name}")
    tags(options, tally, container, versions)
    log = {int(line.split()[0]): line for line in run(options, "iod", "log", container).stdout.splitlines()}
    with harness.mounted(options.bin, container) as mount:
        listed = sorted(int(name) for name in os.listdir(f"{mount}/.h5dir/versions"))
        tally.equal(listed, list(range(1, newest(container) + 1)), "listed versions")
        for version in versions:
            path = f"{mount}/.h5dir/versions/{version}"
            compare(tally, path, models[version], f"version {version} below the mount")
            stamp = time.strftime("%Y-%m-%d", time.gmtime(os.stat(path).st_mtime))
            clock = time.strftime("%H:%M:%S", time.gmtime(os.stat(path).st_mtime))
            tally.check(stamp in log[version] and clock in log[version], f"time of {version}: {stamp} {clock}, {log[version]}")
        tally.equal(sorted(os.listdir(f"{mount}/.h5dir/tags")), ["first", "last_one", "mid-way"], "listed tags")
        compare(tally, f"{mount}/.h5dir/tags/mid-way", models[versions[9]], "a tag below the mount")
        for absent in ("versions/99999", "versions/0", "versions/01", "versions/x", "tags/none", "tags/7"):
            tally.check(not os.path.lexists(f"{mount}/.h5dir/{absent}"), absent)
    for version, name in ((versions[2], str(versions[2])), (versions[9], "mid-way"), (versions[19], "latest")):
        with harness.mounted(options.bin, container, f"--version={name}") as mount:
            compare(tally, mount, models[version], f"--version={name}")
        number = models[version].of_kind("bytes")[0]
        path, data = models[version].paths()[number], models[version].objects[number]["bytes"]
        done = subprocess.run([options.bin, "cat", f"--version={name}", container + ":" + path], capture_output=True, timeout=60)
        tally.equal(done.stdout, data, f"cat --version={name}")
    pairs = [(versions[i], versions[i + 1]) for i in range(0, 19, 3)] + [(versions[0], versions[19]), (versions[19], versions[3])]
    for a, b in pairs:
        done = run(options, "iod", "diff", "--json", container, str(a), str(b))
        tally.equal(reported(done.stdout), expected(models[a], models[b]), f"diff {a} {b}")
    for name, version in (("mid-way", versions[9]), (str(versions[15]), versions[15])):
        done = run(options, "iod", "revert", container, name)
        tally.equal(done.returncode, 0, f"revert: {done.stderr}")
        with harness.mounted(options.bin, container, "--read-write", KEPT) as mount:
            compare(tally, mount, models[version], f"reverted to {name}")
            operation(rng, mount, models[version])
            commit(mount)
            compare(tally, mount, models[version], f"written after reverting to {name}")
        done = run(options, "iod", "revert", container, str(newest(container)))
        tally.check("already" in done.stdout, f"a revert to the same: {done}")


def refused(tally, path, model):
    """A version below a mount that writes is not changed."""
    number = model.of_kind("bytes")[0]
    file = path + model.paths()[number]
    for what, change in (
        ("open", lambda: os.close(os.open(file, os.O_RDWR))),
        ("truncate", lambda: os.truncate(file, 0)),
        ("unlink", lambda: os.unlink(file)),
        ("mkdir", lambda: os.mkdir(path + "/new")),
        ("create", lambda: os.close(os.open(path + "/new", os.O_CREAT | os.O_RDWR))),
        ("rename", lambda: os.rename(file, path + "/new")),
        ("setxattr", lambda: os.setxattr(file, "user.k0", b"x")),
        ("rmdir", lambda: os.rmdir(path)),
    ):
        try:
            change()
            tally.check(False, f"{what} in a version")
        except OSError as e:
            tally.check(e.errno in (errno.EROFS, errno.EACCES, errno.EPERM), f"{what} in a version: {e}")


def tags(options, tally, container, versions):
    """Errors of tags, their removal, and the list."""
    for arguments, text in (
        (("first", "2"), "exists and names version"),
        (("Bad",), "a tag has 1 to 64 characters"),
        (("12",), "a tag has 1 to 64 characters"),
        (("new", "99999"), "no version 99999"),
        (("new", "none"), "no tag 'none'; it has first, last_one, mid-way"),
    ):
        done = run(options, "iod", "tag", container, *arguments)
        tally.check(done.returncode != 0 and text in done.stderr, f"tag {arguments}: {done}")
    done = run(options, "cat", "--version=none", container + ":/x")
    tally.check(done.returncode != 0 and "no tag 'none'; it has first" in done.stderr, f"an unknown tag: {done}")
    tally.equal(run(options, "iod", "tag", container, "spare", "mid-way").returncode, 0, "a tag of a tag")
    rows = [line.split()[:2] for line in run(options, "iod", "tag", container).stdout.splitlines()]
    want = [["first", versions[0]], ["last_one", versions[19]], ["mid-way", versions[9]], ["spare", versions[9]]]
    tally.equal(rows, [[name, str(number)] for name, number in want], "the list of tags")
    tally.equal(run(options, "iod", "tag", "--delete", "spare", container).returncode, 0, "the removal of a tag")
    done = run(options, "iod", "tag", "--delete", "spare", container)
    tally.check(done.returncode != 0 and "no tag 'spare'" in done.stderr, f"the removal of no tag: {done}")


def links(options, tally, folder):
    """Links, modes and a mounted group in another version."""
    container = "iod:" + os.path.join(folder, "links")
    run(options, "create", container)
    with harness.mounted(options.bin, container, "--read-write", KEPT) as mount:
        os.mkdir(f"{mount}/g")
        with open(f"{mount}/g/f", "wb") as f:
            f.write(b"old")
        os.chmod(f"{mount}/g/f", 0o640)
        os.link(f"{mount}/g/f", f"{mount}/hard")
        os.symlink("g/f", f"{mount}/soft")
        os.symlink("../outside", f"{mount}/g/up")
        os.symlink("nothing", f"{mount}/g/none")
        commit(mount)
        old = newest(container)
        os.rename(f"{mount}/g", f"{mount}/h")
        with open(f"{mount}/h/f", "wb") as f:
            f.write(b"new bytes")
        os.chmod(f"{mount}/h/f", 0o600)
        os.unlink(f"{mount}/soft")
        commit(mount)
        path = f"{mount}/.h5dir/versions/{old}"
        for name in ("g/f", "hard", "soft"):
            tally.equal(harness.read(f"{path}/{name}"), b"old", f"{name} of a version")
        stats = [os.stat(f"{path}/{name}") for name in ("g/f", "hard", "soft")]
        tally.equal(len({s.st_ino for s in stats}), 1, "hard links of a version")
        tally.equal((stats[0].st_mode & 0o777, stats[0].st_nlink, os.stat(f"{mount}/h/f").st_mode & 0o777), (0o440, 2, 0o600), "modes")
        tally.check(stats[0].st_ino != os.stat(f"{mount}/h/f").st_ino, "an inode of a version is another one")
        tally.equal(os.readlink(f"{path}/g/up"), "../outside", "the text of a symbolic link")
        tally.check(not os.path.exists(f"{path}/g/none") and os.path.islink(f"{path}/g/none"), "a broken link")
        tally.equal(sorted(os.listdir(path)), ["g", "hard", "soft"], "names of a version")
    with harness.mounted(options.bin, container + ":/h") as mount:
        tally.equal(os.listdir(f"{mount}/.h5dir/versions"), [str(newest(container))], "versions that have the mounted group")
        tally.equal(harness.read(f"{mount}/.h5dir/versions/{newest(container)}/f"), b"new bytes", "a group in a version")
    done = run(options, "cp", "-r", f"--version={old}", container + ":/g/f", os.path.join(folder, "copied"))
    tally.equal((done.returncode, harness.read(os.path.join(folder, "copied"))), (0, b"old"), "cp --version")
    done = run(options, "ls", f"--version={old}", container + ":/")
    tally.equal(done.stdout.split(), ["g", "hard", "soft"], "ls --version")


def soon(condition):
    for _ in range(200):
        if condition():
            return True
        time.sleep(0.05)
    return False


def follows(options, tally, folder):
    """A mount that reads shows new versions; so does one that writes and has no changes. Open files, too."""
    container = "iod:" + os.path.join(folder, "followed")
    run(options, "create", container)
    with harness.mounted(options.bin, container, "--read-write", KEPT) as writer:
        with open(f"{writer}/f", "wb") as f:
            f.write(b"one" * 1000)
        commit(writer)
        with harness.mounted(options.bin, container, "--check-interval=0.1") as reader, \
                harness.mounted(options.bin, container, "--check-interval=0") as fixed, \
                harness.mounted(options.bin, container, "--read-write", "--commit-interval=0.2") as other:
            held = os.open(f"{reader}/f", os.O_RDONLY)
            mounts = (reader, fixed, other)
            for mount in mounts:
                tally.equal(harness.read(f"{mount}/f"), b"one" * 1000, "before")
            tally.check(not os.path.exists(f"{reader}/g"), "before")
            fd = os.open(f"{writer}/f", os.O_RDWR)
            os.pwrite(fd, b"two", 0)
            os.close(fd)
            os.mkdir(f"{writer}/g")
            commit(writer)
            want = b"two" + b"one" * 999
            for mount in (reader, other):
                tally.check(soon(lambda: os.path.isdir(f"{mount}/g")), f"a new name: {os.listdir(mount)}")
                tally.check(soon(lambda: harness.read(f"{mount}/f") == want), "new bytes")
            tally.check(soon(lambda: os.pread(held, 5000, 0) == want), "new bytes of an open file")
            os.close(held)
            tally.check(os.path.isdir(f"{reader}/.h5dir/versions/{newest(container)}"), "the new version")
            tally.equal(harness.read(f"{fixed}/f"), b"one" * 1000, "a mount that does not follow")
            tag, last = f"{fixed}/.h5dir/tags/moving", newest(container)
            for wanted, data in ((last, want), (last - 1, None)):
                tally.equal((os.listdir(f"{fixed}/.h5dir/tags"), os.path.exists(tag)), ([], False), "no tag yet")
                run(options, "iod", "tag", container, "moving", str(wanted))
                tally.equal((os.listdir(f"{fixed}/.h5dir/tags"), os.path.exists(tag)), (["moving"], True), "a new tag")
                tally.check(str(wanted) in os.listdir(f"{fixed}/.h5dir/versions"), "the versions of a mount that does not follow")
                if data and os.path.exists(tag):
                    tally.equal(harness.read(f"{tag}/f"), data, "a new tag below a mount that does not follow")
                run(options, "iod", "tag", "--delete", "moving", container)
            with open(f"{other}/h", "wb") as f:
                f.write(b"h")
            commit(other)
            tally.check(soon(lambda: os.path.exists(f"{reader}/h")), "a version of the other writer")


def main():
    options, tally = harness.arguments(__doc__), harness.Tally()
    with harness.folder(options.keep) as folder:
        for part in (histories, links, follows):
            part(options, tally, folder)
    tally.finish()


if __name__ == "__main__":
    main()
